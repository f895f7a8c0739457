//! zkDilithium on every instruction set that this machine has, against the reference.

use hypergrove_cpu::Isa;
use hypergrove_cpu::zk::{Sign, Verify, ZkDilithium};
use hypergrove_testkit::zk_suite::{LENGTHS, bytes};
use hypergrove_testkit::zkdilithium::{boundary, public, special, verify_only};
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::{Fe, SigningKey, Trace, VerifyingKey, reference};

/// Messages of all lengths under `keys` keys, from number `first` on: signatures and verdicts must be the reference's.
fn agree(zk: &ZkDilithium, keys: usize, first: u64, messages: usize) {
    let seeds: Vec<[u8; 32]> =
        (0..keys as u64).map(|i| bytes(1000 + first + i, 32).try_into().expect("32 bytes")).collect();
    let pairs = zk.keygen(&seeds);
    for (seed, pair) in seeds.iter().zip(&pairs) {
        assert!(reference::keygen(seed) == *pair, "{}: keygen from {seed:02x?}", zk.isa().name());
    }
    let signing: Vec<_> = pairs.iter().map(SigningKey::expand).collect();
    let verifying: Vec<_> = pairs.iter().map(|pair| pair.verifying_key().expand()).collect();
    let texts: Vec<_> = (0..messages).map(|i| bytes(first + i as u64, LENGTHS[i % LENGTHS.len()])).collect();
    let jobs: Vec<_> =
        (0..messages).map(|i| Sign { key: &signing[i % keys], message: Message::Bytes(&texts[i]) }).collect();
    let mut signatures: Vec<_> = zk.sign(&jobs).into_iter().map(Vec::from).collect();
    for (i, (job, signature)) in jobs.iter().zip(&signatures).enumerate() {
        let expected = reference::sign(job.key, job.message, &mut Trace::default());
        assert!(*signature == expected.as_bytes(), "{}: message {i} from {first} on", zk.isa().name());
    }
    // One bit of every third is flipped, one in five is cut short.
    for (i, signature) in signatures.iter_mut().enumerate() {
        let at = i * 7919 % signature.len();
        signature[at] ^= u8::from(i % 3 == 2) << (i % 8);
        signature.truncate(if i % 5 == 4 { at } else { signature.len() });
    }
    let jobs: Vec<_> = (0..messages)
        .map(|i| Verify { key: &verifying[i % keys], message: Message::Bytes(&texts[i]), signature: &signatures[i] })
        .collect();
    for (i, (job, verdict)) in jobs.iter().zip(zk.verify(&jobs)).enumerate() {
        let expected = reference::verify(job.key, job.message, job.signature, &mut Trace::default());
        assert_eq!(verdict, expected, "{}: verdict {i} from {first} on", zk.isa().name());
        assert_eq!(verdict, i % 3 != 2 && i % 5 != 4);
    }
}

fn every_set(test: impl Fn(&ZkDilithium)) {
    for isa in Isa::ALL {
        match ZkDilithium::with(*isa) {
            Some(zk) => test(&zk),
            None => println!("skipped: {}: this CPU lacks it", isa.name()),
        }
    }
}

#[test]
fn batches_of_every_size_are_the_references() {
    every_set(|zk| {
        // Alone, between one vector and the next, one key and several.
        for (messages, keys) in [(1, 1), (3, 2), (5, 1), (9, 3), (17, 17), (68, 2)] {
            agree(zk, keys, 100 * messages as u64, messages);
        }
    });
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

/// Ten thousand messages of all lengths, by the sets that this CPU has: some minutes, nearly all of them the reference's.
#[test]
#[ignore = "long: cargo test --release -p hypergrove-cpu --test zkdilithium -- --ignored"]
fn ten_thousand_messages() {
    every_set(|zk| (0..40).for_each(|part| agree(zk, 1 + part as usize % 5, 10_000 + 250 * part, 250)));
}
