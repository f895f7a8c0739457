//! zkDilithium on every instruction set that this machine has, against the reference.

use hypergrove_cpu::zk::{Sign, Verify, ZkDilithium};
use hypergrove_cpu::{Cpu, Isa};
use hypergrove_engine::{Backend, Places, Policy, THREADS, ZkSign, ZkVerify};
use hypergrove_testkit::zk_suite::{LENGTHS, bytes, keygen_to_vec, sign_to_vec};
use hypergrove_testkit::zk_tests;
use hypergrove_testkit::zkdilithium::{boundary, public, special, verify_only};
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::{Fe, Op, SigningKey, Trace, VerifyingKey, reference};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Messages of all lengths under `keys` keys, from number `first` on: every set's keys, signatures and verdicts must be the
/// reference's.
fn agree(sets: &[ZkDilithium], keys: usize, first: u64, messages: usize) {
    let seeds: Vec<[u8; 32]> =
        (0..keys as u64).map(|i| bytes(1000 + first + i, 32).try_into().expect("32 bytes")).collect();
    let pairs: Vec<_> = seeds.iter().map(reference::keygen).collect();
    let signing: Vec<_> = pairs.iter().map(SigningKey::expand).collect();
    let verifying: Vec<_> = pairs.iter().map(|pair| pair.verifying_key().expand()).collect();
    let texts: Vec<_> = (0..messages).map(|i| bytes(first + i as u64, LENGTHS[i % LENGTHS.len()])).collect();
    let sign: Vec<_> =
        (0..messages).map(|i| Sign { key: &signing[i % keys], message: Message::Bytes(&texts[i]) }).collect();
    let signatures: Vec<_> =
        sign.iter().map(|job| reference::sign(job.key, job.message, &mut Trace::default())).collect();
    // One bit of every third is flipped, one in five is cut short.
    let mut changed: Vec<Vec<u8>> = signatures.iter().map(|signature| signature.as_bytes().into()).collect();
    for (i, signature) in changed.iter_mut().enumerate() {
        let at = i * 7919 % signature.len();
        signature[at] ^= u8::from(i % 3 == 2) << (i % 8);
        signature.truncate(if i % 5 == 4 { at } else { signature.len() });
    }
    let verify: Vec<_> = (0..messages)
        .map(|i| Verify { key: &verifying[i % keys], message: Message::Bytes(&texts[i]), signature: &changed[i] })
        .collect();
    for (i, job) in verify.iter().enumerate() {
        let verdict = reference::verify(job.key, job.message, job.signature, &mut Trace::default());
        assert_eq!(verdict, i % 3 != 2 && i % 5 != 4);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    for zk in sets {
        let name = zk.isa().name();
        assert!(zk.keygen(&seeds) == pairs, "{name}: {keys} key pairs from {first} on");
        for (i, (signature, expected)) in zk.sign(&sign).iter().zip(&signatures).enumerate() {
            assert!(signature == expected, "{name}: message {i} from {first} on");
        }
        // Two threads share the messages in several groups, each of which follows another.
        let shared = pool.install(|| zk.sign(&sign));
        assert!(shared == signatures, "{name}: messages from {first} on, by two threads");
        for (i, verdict) in zk.verify(&verify).into_iter().enumerate() {
            assert_eq!(verdict, i % 3 != 2 && i % 5 != 4, "{name}: verdict {i} from {first} on");
        }
    }
}

/// Two of each instruction set that this CPU has: the second one has every instance in another lane.
fn sets() -> Vec<ZkDilithium> {
    let of = |isa: &Isa| {
        let zk = || ZkDilithium::with(*isa);
        if zk().is_none() {
            println!("skipped: {}: this CPU lacks it", isa.name());
        }
        zk().into_iter().chain(zk().map(ZkDilithium::relocated))
    };
    Isa::ALL.iter().flat_map(of).collect()
}

fn every_set(test: impl Fn(&ZkDilithium)) {
    sets().iter().for_each(test);
}

#[test]
fn batches_of_every_size_are_the_references() {
    let sets = sets();
    // Alone, between one vector and the next, one key and several.
    for (messages, keys) in [(1, 1), (3, 2), (5, 1), (9, 3), (17, 17), (68, 2)] {
        agree(&sets, keys, 100 * messages as u64, messages);
    }
}

/// The rare branches of the vectors (no challenge, zeros in S-boxes, norms at their bounds, κ beyond a byte) in one batch, so
/// that lanes are refilled at different times; and with fewer messages than lanes, where attempts run ahead.
#[test]
fn vectors() {
    let cases: Vec<_> = public().into_iter().chain(special()).chain(boundary()).collect();
    let seeds: Vec<[u8; 32]> = cases.iter().map(|case| case.seed[..].try_into().expect("32 bytes")).collect();
    every_set(|zk| {
        let pairs = zk.keygen(&seeds);
        let signing: Vec<_> = pairs.iter().map(SigningKey::expand).collect();
        let jobs: Vec<_> =
            cases.iter().zip(&signing).map(|(case, key)| Sign { key, message: Message::Bytes(&case.msg) }).collect();
        let alone: Vec<_> = jobs.iter().skip(50).flat_map(|job| zk.sign(&[*job])).collect();
        let signatures = zk.sign(&jobs);
        assert_eq!(signatures[50..], alone[..], "{}: alone and among others", zk.isa().name());
        for ((case, pair), signature) in cases.iter().zip(&pairs).zip(&signatures) {
            assert!(*pair.to_bytes() == case.sk && pair.verifying_key().as_bytes() == case.pk, "{}", case.id);
            assert!(signature.as_bytes() == case.sig, "{}: {}", zk.isa().name(), case.id);
        }

        let mutations = cases
            .iter()
            .flat_map(|case| case.verify_mutations.iter().map(|mutation| (mutation.apply(case), mutation.expect)));
        let only = verify_only().into_iter().map(|case| ((case.pk, case.msg, case.sig), case.expect));
        // A key of the wrong length is refused before it comes here.
        let inputs: Vec<_> = mutations
            .chain(only)
            .filter_map(|((pk, msg, sig), expect)| {
                Some((VerifyingKey::from_bytes(&pk).ok()?.expand(), msg, sig, expect))
            })
            .collect();
        let jobs: Vec<_> = inputs
            .iter()
            .map(|(key, msg, signature, _)| Verify { key, message: Message::Bytes(msg), signature })
            .collect();
        for ((.., expect), verdict) in inputs.iter().zip(zk.verify(&jobs)) {
            assert_eq!(verdict, *expect, "{}", zk.isa().name());
        }
    });
}

#[test]
fn blocks_and_mu_are_the_references() {
    let key = reference::keygen(&[9; 32]);
    let (signing, verifying) = (key.expand(), key.verifying_key().expand());
    let block = std::array::from_fn(|i| Fe::new(1_000_003 * i as u32));
    every_set(|zk| {
        let messages = [Message::Block(&block), Message::Bytes(b"between"), Message::Mu(&block), Message::Bytes(b"")];
        let signatures = zk.sign(&messages.map(|message| Sign { key: &signing, message }));
        let jobs: Vec<_> = messages
            .iter()
            .zip(&signatures)
            .map(|(message, signature)| Verify { key: &verifying, message: *message, signature: signature.as_bytes() })
            .collect();
        assert_eq!(zk.verify(&jobs), [true; 4]);
        for (message, signature) in messages.iter().zip(&signatures) {
            assert_eq!(*signature, reference::sign(&signing, *message, &mut Trace::default()), "{}", zk.isa().name());
        }
    });
}

/// Ten thousand messages of all lengths, by the sets that this CPU has: minutes of all cores, nearly all of them the reference's.
#[test]
#[ignore = "long: cargo test --release -p hypergrove-cpu --test zkdilithium -- --ignored"]
fn ten_thousand_messages() {
    let (sets, next) = (sets(), AtomicU64::new(0));
    let parts = || {
        while let part @ 0..40 = next.fetch_add(1, Relaxed) {
            agree(&sets, 1 + part as usize % 5, 10_000 + 250 * part, 250);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(parts))));
}

/// The lanes as the engine's program, on as many threads.
fn program(threads: u32) -> Option<Box<dyn hypergrove_engine::ZkDilithium>> {
    let (cpu, policy) = (Cpu::new(), Policy(vec![(THREADS, threads)]));
    Some(cpu.zkdilithium()?.prepare(&cpu.devices().ok()?[0], &policy).expect("made ready"))
}

zk_tests!(program_on_one_thread, program(1));
zk_tests!(program_outside_of_a_pool, program(3));

/// Expanded keys are used where they are passed; elsewhere they are made anew, so that a damaged expansion shows.
#[test]
fn expanded_keys_are_used_where_they_are_passed() {
    let [pair, other] = [[1; 32], [2; 32]].map(|seed| reference::keygen(&seed));
    let (message, right) = (
        Message::Bytes(b"message"),
        reference::sign(&pair.expand(), Message::Bytes(b"message"), &mut Trace::default()),
    );
    let (public, expanded) = (pair.verifying_key(), other.expand());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
    let mut zk = program(2).expect("the CPU has it");
    assert!(zk.uses_expanded_keys());
    let one_place = zk.bytes();
    let jobs = [ZkSign::new(&pair, message), ZkSign { expanded: Some(&expanded), ..ZkSign::new(&pair, message) }];
    let jobs = [jobs[0], jobs[0], jobs[1], jobs[0]];
    let (given, anew) = ([true, true, false, true], [true; 4]);
    for (places, expected) in [(Places::Usual, given), (Places::Other, anew), (Places::Usual, given)] {
        let signatures = pool.install(|| sign_to_vec(&mut *zk, &jobs, places)).expect("signatures");
        assert_eq!(signatures.iter().map(|signature| *signature == right).collect::<Vec<_>>(), expected);
    }
    assert_eq!(zk.bytes(), one_place, "the same lanes serve both places");
    let wrong = other.verifying_key().expand();
    let job = ZkVerify::new(&public, message, right.as_bytes());
    let mut verdicts = Vec::new();
    let jobs = [job, ZkVerify { expanded: Some(&wrong), ..job }];
    pool.install(|| zk.verify(&jobs, &mut verdicts, Places::Usual)).expect("verdicts");
    assert_eq!(verdicts, [true, false]);
}

/// More seeds than fill a program: each key is in its place.
#[test]
fn keys_are_written_in_their_order() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
    let seeds: Vec<[u8; 32]> = (0..2100).map(|i| bytes(i, 32).try_into().expect("32 bytes")).collect();
    let expected = ZkDilithium::with(Isa::fastest()).expect("detected").keygen(&seeds);
    for threads in [1, 2] {
        let mut zk = program(threads).expect("the CPU has it");
        assert!(seeds.len() > zk.jobs(Op::Keygen));
        assert!(pool.install(|| keygen_to_vec(&mut *zk, &seeds, Places::Usual)).expect("keys") == expected);
    }
}

#[test]
fn policies_of_other_devices_are_refused() {
    let (cpu, device) = (Cpu::new(), Cpu::new().devices().expect("one").remove(0));
    let prepare = |axis| cpu.zkdilithium().expect("it has").prepare(&device, &Policy(vec![axis])).err();
    let why = |axis| prepare(axis).expect("refused").to_string();
    assert!(why(("block", 64)).contains("no policy axis \"block\"") && why((THREADS, 0)).contains("1 or more"));
}
