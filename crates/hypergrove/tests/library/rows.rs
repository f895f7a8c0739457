//! Rows of SLH-DSA: those of any scheme, its hash functions and modes, its keys' caches, and the memory that devices reach.

use crate::common::{Mock, OnMock, P, PURE, key, mock, quick_mock};
use crate::rows_suite::*;
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows};
use hypergrove::*;
use hypergrove_fips205::reference::slh_sign;
use hypergrove_testkit::toys::{TOY_SHA2_32, TOY_SHAKE_24};
use std::iter::zip;
use std::sync::Arc;

impl Tested for SlhDsa {
    const COUNTS: &'static [usize] = &[0, 1, 2, 70, 300];

    fn tested() -> SlhDsa {
        P.into()
    }
    fn isas() -> Vec<Isa> {
        vec![Isa::fastest()]
    }
    fn double(count: u32, queue: u32) -> Mock {
        quick_mock(count, queue)
    }
    fn seeds(of: u8) -> Seeds {
        let [sk_seed, sk_prf, pk_seed] = [of, of ^ 0x55, of ^ 0xaa].map(|byte| vec![byte; P.n]);
        Seeds { sk_seed: sk_seed.into(), sk_prf: sk_prf.into(), pk_seed }
    }
    fn key(of: u8) -> SigningKey {
        key(of)
    }
    fn bytes(key: &SigningKey) -> [Vec<u8>; 2] {
        [key.to_bytes().to_vec(), key.verifying_key().to_bytes()]
    }
    fn is_sound(engine: &Engine, key: &SigningKey) -> bool {
        engine.check(key).is_ok()
    }
    fn reference(key: &SigningKey, message: &[u8]) -> Vec<u8> {
        slh_sign(message, b"", key.as_ref(), None).unwrap().as_bytes().to_vec()
    }
    fn column(messages: Column<'_>) -> Column<'_> {
        messages
    }
    fn message(message: &[u8]) -> JobMessage<'_> {
        message.into()
    }
    fn randomizer<'a>() -> Randomizer<'a> {
        Randomizer::Deterministic
    }
    fn mode<'a>(number: usize) -> Mode<'a> {
        let (context, hash) = (&b"context"[..], PreHash::Sha512);
        [PURE, Mode::Pure { context }, Mode::Internal, Mode::PreHash { context, hash }, Mode::Digest { context, hash }]
            [number]
    }
    fn messages(number: usize, count: usize) -> Vec<Vec<u8>> {
        match Self::mode(number) {
            Mode::Digest { hash, .. } => texts(count).iter().map(|text| hash.hash(&[text])).collect(),
            _ => texts(count),
        }
    }
}

impl Damageable for SlhDsa {
    fn damaged() -> SigningKey {
        let mut bytes = key(1).to_bytes().to_vec();
        bytes[3 * P.n] ^= 1;
        SigningKey::from_bytes_unchecked(P, &bytes).unwrap()
    }
}

rows_suite!(SlhDsa);

#[test]
fn rows_of_one_key_of_every_hash_function() {
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let texts = texts(20);
    let slices = slices(&texts);
    let messages = Column::Slices(&slices);
    for p in [&SLH_DSA_SHA2_128F, &SLH_DSA_SHAKE_128F, &TOY_SHA2_32] {
        let key = engine.generate(p).unwrap();
        let cached = engine.cache(&key, 1).unwrap();
        let public = key.verifying_key();
        let opt_rand: Vec<u8> = (0..20 * p.n).map(|i| i as u8).collect();
        let given = Randomizer::Given(&opt_rand);
        for (key, randomizer) in [(&key, given), (&cached, given), (&key, Randomizer::Hedged)] {
            let rows = SignRows { randomizer, ..to_sign(RowSigningKeys::One(key), messages) };
            let (signatures, statuses) = sign(&engine, &rows, 20);
            assert_eq!(statuses, [RowStatus::Signed; 20]);
            for ((text, signature), bytes) in
                texts.iter().zip(signatures.chunks(p.sig_bytes())).zip(opt_rand.chunks(p.n))
            {
                if randomizer == given {
                    let alone = engine.sign(key, PURE, text, Randomizer::Given(bytes)).unwrap();
                    assert!(alone.as_bytes() == signature, "{p}");
                }
            }
            let signatures = Column::packed(&signatures, p.sig_bytes());
            let rows = to_verify::<SlhDsa>(RowVerifyingKeys::One(&public), messages, signatures);
            assert!(is_all(&verify(&engine, &rows, 20), RowStatus::Valid));
        }
        // Hedged twice: two signatures.
        let rows = to_sign(RowSigningKeys::One(&key), Column::packed(b"aa", 1));
        let rows = SignRows { randomizer: Randomizer::Hedged, ..rows };
        let (signatures, _) = sign(&engine, &rows, 2);
        assert_ne!(signatures[..p.n], signatures[p.sig_bytes()..][..p.n]);
    }
}

#[test]
fn a_digest_of_another_length_has_its_status() {
    use RowStatus::{DigestLength, NoSuchKey, Signed};
    let (keys, mode) = ([1, 2].map(key), Mode::Digest { context: b"", hash: PreHash::Sha256 });
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let digest = [7; 32];
    let good = engine.sign(&keys[0], mode, &digest, Randomizer::Deterministic).unwrap().into_bytes();
    let table = RowSigningKeys::Table { keys: &keys, of: &[0, 0, 2, 0, u32::MAX] };
    let messages = Column::Slices(&[&digest, &digest[1..], &digest, &[], &digest]);
    let (signatures, statuses) = sign(&engine, &SignRows { mode, ..to_sign(table, messages) }, 5);
    assert_eq!(statuses, [Signed, DigestLength, NoSuchKey, DigestLength, NoSuchKey]);
    assert!(signatures[..good.len()] == good && is_zero(&signatures[good.len()..]));
}

#[test]
fn randomness_contexts_and_keys_that_do_not_fit_are_errors() {
    let (engine, one) = (mock(1, 1).engine(), key(1));
    let other = engine.generate(&TOY_SHAKE_24).unwrap();
    let good = to_sign(RowSigningKeys::One(&one), Column::packed(b"ab", 1));
    let refuses = |rows: SignRows<'_>, why: &str| refuses_to_sign(&engine, &rows, (2 * P.sig_bytes(), 2), why);
    refuses(SignRows { randomizer: Randomizer::Given(&[0; 31]), ..good }, "opt_rand");
    refuses(SignRows { mode: Mode::Pure { context: &[0; 256] }, ..good }, "context");
    let cached = engine.cache(&one, 1).unwrap();
    for (second, why) in [(&other, "toy-SHAKE-24"), (&cached, "cached layers")] {
        let keys = [one.clone(), second.clone()];
        refuses(SignRows { keys: RowSigningKeys::Table { keys: &keys, of: &[0, 1] }, ..good }, why);
    }
    let keys = [one.verifying_key(), other.verifying_key()];
    let table = RowVerifyingKeys::Table { keys: &keys, of: &[0, 0] };
    let rows = to_verify::<SlhDsa>(table, Column::packed(b"ab", 1), Column::Slices(&[b"", b""]));
    refuses_to_verify(&engine, &rows, "toy-SHAKE-24");
}

#[test]
fn rows_beyond_the_memory_budget_say_so() {
    let small = mock(1, 1).builder().memory_budget(100).build().unwrap();
    let one = key(1);
    let rows = to_sign(RowSigningKeys::One(&one), Column::packed(b"ab", 1));
    let rows = SignRows { randomizer: Randomizer::Hedged, ..rows };
    let (signatures, statuses) = sign(&small, &rows, 2);
    assert_eq!(statuses, [RowStatus::OutOfMemory; 2]);
    assert!(signatures.iter().all(|byte| *byte == 0));
    // A budget of some rows is enough for any number, be the device's chunks small or large.
    for jobs in [8, 1 << 12] {
        let device = Mock { jobs, ..mock(1, 1) };
        let engine = device.builder().memory_budget(20 * P.sig_bytes() as u64).build().unwrap();
        let text = [1; 1000];
        let (_, statuses) = sign(&engine, &SignRows { messages: Column::packed(&text, 1), ..rows }, 1000);
        assert_eq!(statuses, [RowStatus::Signed; 1000]);
    }
}

/// The first device of CUDA and that of Vulkan, where there are any.
fn gpus() -> Vec<(&'static str, Engine)> {
    let mut found = Vec::new();
    for backend in backends().into_iter().filter(|backend| backend.name() != "cpu") {
        match backend.absent() {
            None => found.push((backend.name(), Engine::builder().devices(vec![(backend, 0)]).build().unwrap())),
            Some(why) => println!("skipped: {}: {why}", backend.name()),
        }
    }
    found
}

/// A driver's other devices do not copy from memory that one of them has imported, and do not get it later.
#[test]
fn memory_names_the_devices_that_reach_it() {
    let one = Mock { memory: 1 << 30, reaching: |device| device.index == 1, ..quick_mock(3, 2) };
    let memory = one.engine().memory(1 << 20).unwrap();
    assert_eq!(memory.devices(), ["mock:1"]);
    let none = Mock { memory: 1 << 30, reaching: |_| false, ..mock(3, 2) };
    let engine = none.engine();
    drop(engine.memory(1 << 20).unwrap());
    assert!(engine.memory(1 << 20).unwrap().devices().is_empty() && engine.stats().memory_idle == 0);
}

/// With and without memory that devices reach: the same bytes, whatever part of the rows lies in it.
#[test]
fn rows_may_lie_in_memory_that_devices_reach() {
    let keys = [1, 2].map(key);
    let public = keys.each_ref().map(SigningKey::verifying_key);
    let size = P.sig_bytes();
    for (what, engine) in engines::<SlhDsa>().into_iter().chain(gpus()) {
        for count in [1, 17, 300] {
            let texts = texts(count);
            let slices = slices(&texts);
            let messages = Column::Slices(&slices);
            let of: Vec<u32> = (0..count as u32).map(|i| i / 7 % 2).collect();
            let jobs = zip(&texts, &of).map(|(text, key)| SignJob::new(&keys[*key as usize], text).deterministic());
            let signed = engine.sign_batch_to_vec(jobs).unwrap().into_iter();
            let expected: Vec<u8> = signed.flat_map(|done| done.unwrap().into_bytes()).collect();
            let rows = to_sign::<SlhDsa>(RowSigningKeys::Table { keys: &keys, of: &of }, messages);
            // Twice: the device has signed before, and the memory was used before.
            for _ in 0..2 {
                let mut memory = engine.memory(count * size).unwrap();
                let is_reached = !memory.devices().is_empty();
                let reaches = what.ends_with("discrete devices") || ["cuda", "vulkan"].contains(&what);
                assert_eq!(is_reached, reaches, "{what}");
                assert!(is_zero(&memory), "{what}: memory is wiped before it is used again");
                let mut statuses = vec![RowStatus::default(); count];
                engine.sign_rows(&rows, &mut memory, &mut statuses).unwrap();
                assert_eq!(statuses, vec![RowStatus::Signed; count], "{what}, {count}");
                assert!(*memory == expected, "{what}, {count}");

                let mut verdicts = vec![RowStatus::Valid; count];
                for bad in (0..count).step_by(5) {
                    memory[bad * size + 100] ^= 1;
                    verdicts[bad] = RowStatus::Invalid;
                }
                // All of them packed; and some elsewhere, or of another length.
                let keys = RowVerifyingKeys::Table { keys: &public, of: &of };
                let verifies = |signatures: Column<'_>, verdicts: &[RowStatus]| {
                    let rows = to_verify::<SlhDsa>(keys, messages, signatures);
                    assert_eq!(verify(&engine, &rows, count), verdicts, "{what}, {count}");
                };
                verifies(Column::packed(&memory, size), &verdicts);
                let relocated = memory.to_vec();
                let mut mixed: Vec<&[u8]> = memory.chunks(size).collect();
                mixed[count / 2] = &relocated[count / 2 * size..][..size];
                verifies(Column::Slices(&mixed), &verdicts);
                mixed[count / 2] = &relocated[..size - 1];
                verdicts[count / 2] = RowStatus::SignatureLength;
                verifies(Column::Slices(&mixed), &verdicts);
            }
        }
        let memory = engine.memory(299 * size).unwrap();
        if what == "discrete devices" {
            assert_eq!(memory.devices(), ["mock:0", "mock:1", "mock:2"]);
        }
        let (of_devices, idle) = (!memory.devices().is_empty(), engine.stats().memory_idle);
        drop(memory);
        let more = engine.stats().memory_idle - idle;
        assert_eq!(more, if of_devices { 300 * size as u64 } else { 0 }, "{what}: a block that was given back served");
        assert_eq!(engine.stats().memory_in_use, 0);
        let seeds: Vec<u8> = (0..100 * 3 * 16).map(|i| i as u8).collect();
        let (mut private, mut public) = (engine.memory(100 * 64).unwrap(), engine.memory(100 * 32).unwrap());
        engine.keygen_rows_from_seeds(P, &seeds, &mut private, Some(&mut public)).unwrap();
        for (private, seeds) in private.chunks(64).zip(seeds.chunks(48)) {
            assert_eq!(private[..48], *seeds);
            SigningKey::from_bytes_unchecked(P, private).unwrap();
        }
        assert_eq!(engine.stats().memory_in_use, 100 * 96);
        drop(engine);
        // It outlives its engine.
        assert!(private[..48] == seeds[..48] && !format!("{private:?}").contains("[0, 1"));
    }
}

/// A root that does not fit is found before anything is written to the caller, and the row that is to blame is named.
#[test]
fn signatures_stay_on_the_device_until_their_roots_are_right() {
    let keys = [key(2), SlhDsa::damaged()];
    let discrete = ("mock", Mock { memory: 1 << 30, jobs: 64, ..quick_mock(1, 2) }.engine());
    for (_, engine) in gpus().into_iter().chain([discrete]) {
        let of: Vec<u32> = (0..100).map(|i| u32::from(i == 70)).collect();
        let texts = texts(100);
        let slices = slices(&texts);
        let rows = to_sign::<SlhDsa>(RowSigningKeys::Table { keys: &keys, of: &of }, Column::Slices(&slices));
        let mut signatures = engine.memory(100 * P.sig_bytes()).unwrap();
        let mut statuses = vec![RowStatus::default(); 100];
        engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap();
        for (i, (status, signature)) in zip(&statuses, signatures.chunks(P.sig_bytes())).enumerate() {
            let (expected, expects_zero) =
                if i == 70 { (RowStatus::KeyDamaged, true) } else { (RowStatus::Signed, false) };
            assert_eq!((*status, is_zero(signature)), (expected, expects_zero), "row {i}");
        }
    }
}

/// Also if it would have been right the next time.
#[test]
fn a_device_whose_root_is_wrong_is_blamed() {
    let key = key(1);
    let texts = texts(100);
    let slices = slices(&texts);
    let rows = to_sign::<SlhDsa>(RowSigningKeys::One(&key), Column::Slices(&slices));
    let device = Mock { memory: 1 << 30, jobs: 64, wrong_roots: Arc::new(1.into()), ..quick_mock(2, 2) };
    let engine = device.engine();
    let (signatures, statuses) = sign(&engine, &rows, 100);
    assert_eq!(statuses, [RowStatus::Signed; 100]);
    assert!(texts.iter().flat_map(|text| SlhDsa::reference(&key, text)).eq(signatures));
    let faults = engine.faults();
    assert!(matches!(&faults[..], [Fault { error: Error::Inconsistent { .. }, .. }]), "{faults:?}");
}

/// A device computes early, and has full chunks later.
#[test]
fn a_long_call_begins_with_small_chunks() {
    let key = key(1);
    let (texts, device) = (texts(400), Mock { memory: 1 << 30, jobs: 64, ..quick_mock(1, 2) });
    let slices = slices(&texts);
    let rows = to_sign::<SlhDsa>(RowSigningKeys::One(&key), Column::Slices(&slices));
    let engine = device.engine();
    let (signatures, _) = sign(&engine, &rows, 400);
    let public = key.verifying_key();
    let verifies = |count: usize| {
        device.log.runs.lock().unwrap().clear();
        let signatures = Column::packed(&signatures[..count * P.sig_bytes()], P.sig_bytes());
        let rows = to_verify::<SlhDsa>(RowVerifyingKeys::One(&public), Column::Slices(&slices[..count]), signatures);
        assert!(is_all(&verify(&engine, &rows, count), RowStatus::Valid));
        let mut runs: Vec<usize> = device.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect();
        runs.sort_unstable();
        runs
    };
    verifies(400);
    assert_eq!(verifies(400), [8, 16, 24, 32, 64, 64, 64, 64, 64]);
    assert_eq!(verifies(64), [64]);
}
