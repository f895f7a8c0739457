//! Rows give what jobs give, whatever the columns are like; hostile columns are errors or statuses; devices that fail lose no row.

use crate::common::{Mock, OnMock, P, PURE, columns, key, message, mock};
use hypergrove::rows::{Column, Offsets, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::*;
use hypergrove_testkit::toys::{TOY_SHA2_32, TOY_SHAKE_24};
use std::iter::zip;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

fn engines() -> Vec<(&'static str, Engine)> {
    let cpu = |threads| Engine::builder().backend(Arc::new(Cpu::new())).threads(threads);
    vec![
        ("the CPU", cpu(2).build().unwrap()),
        ("one thread", cpu(1).build().unwrap()),
        ("verified", cpu(2).verify_signatures(true).build().unwrap()),
        ("redundant", cpu(2).redundant(true).build().unwrap()),
        ("two devices", mock(2, 2).engine()),
        ("discrete devices", Mock { memory: 1 << 30, jobs: 64, ..mock(3, 2) }.engine()),
        (
            "redundant discrete devices",
            Mock { memory: 1 << 30, jobs: 64, ..mock(3, 2) }.builder().redundant(true).build().unwrap(),
        ),
    ]
}

/// Messages of which every third has a length of its own.
fn messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i as u8; if i % 3 == 0 { i } else { 5 }]).collect()
}

fn sign(engine: &Engine, rows: &SignRows<'_>, count: usize) -> (Vec<u8>, Vec<RowStatus>) {
    let p = match rows.keys {
        RowSigningKeys::One(key) => key.params(),
        RowSigningKeys::Table { keys, .. } => keys[0].params(),
    };
    // Earlier content is overwritten.
    let (mut signatures, mut statuses) = (vec![1; count * p.sig_bytes()], vec![RowStatus::Valid; count]);
    engine.sign_rows(rows, &mut signatures, &mut statuses).unwrap();
    (signatures, statuses)
}

#[test]
fn rows_are_signed_and_verified_as_jobs_are() {
    let keys = [1, 2, 3].map(key);
    let public = keys.each_ref().map(SigningKey::verifying_key);
    let (hash, context) = (PreHash::Sha512, &b"context"[..]);
    for (what, engine) in engines() {
        for (count, mode) in [
            (0, PURE),
            (1, Mode::Pure { context }),
            (2, Mode::Internal),
            (70, Mode::PreHash { context, hash }),
            (300, Mode::Digest { context, hash }),
        ] {
            let messages = match mode {
                Mode::Digest { .. } => messages(count).iter().map(|message| hash.hash(&[message])).collect(),
                _ => messages(count),
            };
            let of: Vec<u32> = (0..count as u32).map(|i| i * i % 3).collect();
            let jobs = zip(&messages, &of)
                .map(|(message, key)| SignJob::new(&keys[*key as usize], message).mode(mode).deterministic());
            let signed = engine.sign_batch_to_vec(jobs).unwrap();
            let expected: Vec<Vec<u8>> = signed.into_iter().map(|signature| signature.unwrap().into_bytes()).collect();
            // Every fifth is not valid.
            let mut given = expected.clone();
            given.iter_mut().step_by(5).for_each(|signature| signature[100] ^= 1);
            let verdicts: Vec<RowStatus> =
                (0..count).map(|i| if i % 5 == 0 { RowStatus::Invalid } else { RowStatus::Valid }).collect();
            let encoded: Vec<Vec<u8>> = of.iter().map(|key| public[*key as usize].to_bytes()).collect();
            columns(&messages, |kind, column| {
                let keys = RowSigningKeys::Table { keys: &keys, of: &of };
                let rows = SignRows { keys, mode, messages: column, randomizer: Randomizer::Deterministic };
                let (signatures, statuses) = sign(&engine, &rows, count);
                assert_eq!(statuses, vec![RowStatus::Signed; count], "{what}, {count} rows, {kind}");
                assert!(signatures == expected.concat(), "{what}, {count} rows, {kind}");
            });
            let verify = |keys: RowVerifyingKeys<'_>, messages: Column<'_>, signatures: Column<'_>, kind: &str| {
                let mut statuses = vec![RowStatus::default(); count];
                engine.verify_rows(&VerifyRows { keys, mode, messages, signatures }, &mut statuses).unwrap();
                assert_eq!(statuses, verdicts, "{what}, {count} rows, {kind}");
            };
            let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let messages = Column::Slices(&slices);
            let table = RowVerifyingKeys::Table { keys: &public, of: &of };
            columns(&given, |kind, signatures| verify(table, messages, signatures, kind));
            let signatures = given.concat();
            let signatures = Column::packed(&signatures, P.sig_bytes());
            columns(&encoded, |kind, keys| {
                verify(RowVerifyingKeys::Encoded { params: P, keys }, messages, signatures, kind);
            });
        }
    }
}

#[test]
fn rows_of_one_key_of_every_hash_function() {
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let texts = messages(20);
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    for p in [&SLH_DSA_SHA2_128F, &SLH_DSA_SHAKE_128F, &TOY_SHA2_32] {
        let key = engine.generate(p).unwrap();
        let cached = engine.cache(&key, 1).unwrap();
        let public = key.verifying_key();
        let opt_rand: Vec<u8> = (0..20 * p.n).map(|i| i as u8).collect();
        let given = Randomizer::Given(&opt_rand);
        for (key, randomizer) in [(&key, given), (&cached, given), (&key, Randomizer::Hedged)] {
            let messages = Column::Slices(&slices);
            let rows = SignRows { keys: RowSigningKeys::One(key), mode: PURE, messages, randomizer };
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
            let rows = VerifyRows {
                keys: RowVerifyingKeys::One(&public),
                mode: PURE,
                messages,
                signatures: Column::packed(&signatures, p.sig_bytes()),
            };
            let mut statuses = [RowStatus::default(); 20];
            engine.verify_rows(&rows, &mut statuses).unwrap();
            assert_eq!(statuses, [RowStatus::Valid; 20]);
        }
        // Hedged twice: two signatures.
        let rows = SignRows {
            keys: RowSigningKeys::One(&key),
            mode: PURE,
            messages: Column::packed(b"aa", 1),
            randomizer: Randomizer::Hedged,
        };
        let (signatures, _) = sign(&engine, &rows, 2);
        assert_ne!(signatures[..p.n], signatures[p.sig_bytes()..][..p.n]);
    }
}

#[test]
fn keys_are_made_in_rows() {
    for (what, engine) in engines() {
        for count in [0, 1, 100] {
            let seeds: Vec<u8> = (0..count * 3 * P.n).map(|i| (i * i / 7) as u8).collect();
            let (mut private, mut public) = (vec![1; count * P.sk_bytes()], vec![1; count * P.pk_bytes()]);
            engine.keygen_rows_from_seeds(P, &seeds, &mut private, Some(&mut public)).unwrap();
            let of_seeds = seeds.chunks(3 * P.n).map(|seeds| {
                let (sk_seed, rest) = seeds.split_at(P.n);
                let (sk_prf, pk_seed) = rest.split_at(P.n);
                Seeds { sk_seed: sk_seed.to_vec().into(), sk_prf: sk_prf.to_vec().into(), pk_seed: pk_seed.into() }
            });
            let keys = engine.from_seeds(P, &of_seeds.collect::<Vec<_>>()).unwrap();
            assert_eq!(private, keys.iter().flat_map(|key| key.to_bytes().to_vec()).collect::<Vec<_>>(), "{what}");
            let encoded: Vec<u8> = keys.iter().flat_map(|key| key.verifying_key().to_bytes()).collect();
            assert_eq!(public, encoded, "{what}");

            engine.keygen_rows(P, &mut private, Some(&mut public)).unwrap();
            for (private, public) in private.chunks(P.sk_bytes()).zip(public.chunks(P.pk_bytes())) {
                let key = SigningKey::from_bytes_unchecked(P, private).unwrap();
                engine.check(&key).unwrap();
                assert_eq!(key.verifying_key().to_bytes(), public);
            }
            let distinct: std::collections::BTreeSet<_> = private.chunks(P.n).collect();
            assert_eq!(distinct.len(), 4 * count);
        }
    }
    // Nothing is left of a call that fails.
    let engine = mock(1, 1).answering(|call| call.fails("dead")).engine();
    let (mut private, mut public) = (vec![1; P.sk_bytes()], vec![1; P.pk_bytes()]);
    engine.keygen_rows(P, &mut private, Some(&mut public)).unwrap_err();
    assert!(private.iter().chain(&public).all(|byte| *byte == 0));
    for (private, public) in [(63, 32), (64, 31), (0, 32), (128, 32)] {
        let (mut private, mut public) = (vec![1; private], vec![1; public]);
        let why = engine.keygen_rows(P, &mut private, Some(&mut public)).unwrap_err();
        assert!(private.iter().chain(&public).all(|byte| *byte == 0));
        assert!(why.to_string().contains("the column of "), "{why}");
    }
    let why = engine.keygen_rows_from_seeds(P, &[0; 47], &mut private, Some(&mut public)).unwrap_err();
    assert!(why.to_string().contains("the seeds"), "{why}");
}

#[test]
fn progress_counts_rows_and_stops_a_call() {
    let (key, texts) = (key(1), messages(600));
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let messages = Column::Slices(&slices);
    let (n, size) = (P.n, P.sig_bytes());
    for (what, engine) in engines() {
        let mut memory = (vec![1; 600 * size], vec![RowStatus::Valid; 600]);
        let (signatures, statuses) = (&mut memory.0[..], &mut memory.1[..]);
        let rows =
            SignRows { keys: RowSigningKeys::One(&key), mode: PURE, messages, randomizer: Randomizer::default() };
        let mut counts = vec![0];
        engine.sign_rows_with_progress(&rows, signatures, statuses, |done| counts.push(done)).unwrap();
        assert!(counts.is_sorted_by(|a, b| a < b) && counts.last() == Some(&600), "{what}: {counts:?}");
        assert_eq!(statuses, [RowStatus::Signed; 600], "{what}");

        let public = key.verifying_key();
        let of_signatures = Column::packed(signatures, size);
        let rows = VerifyRows { keys: RowVerifyingKeys::One(&public), mode: PURE, messages, signatures: of_signatures };
        let mut verdicts = vec![RowStatus::default(); 600];
        let mut stopped = 0;
        let stop = |done: usize| {
            assert_eq!(stopped, 0, "{what}: nothing is reported after the stop");
            stopped = done;
            ControlFlow::Break(())
        };
        engine.verify_rows_with_progress(&rows, &mut verdicts, stop).unwrap();
        assert!(0 < stopped && stopped <= 600, "{what}");
        assert!(verdicts[..stopped].iter().all(|verdict| *verdict == RowStatus::Valid), "{what}");
        assert!(verdicts[stopped..].iter().all(|verdict| *verdict == RowStatus::NotComputed), "{what}");

        let rows =
            SignRows { keys: RowSigningKeys::One(&key), mode: PURE, messages, randomizer: Randomizer::default() };
        let mut stopped = 0;
        let stop = |done: usize| {
            stopped = done;
            ControlFlow::Break(())
        };
        engine.sign_rows_with_progress(&rows, signatures, statuses, stop).unwrap();
        assert!(statuses[stopped..].iter().all(|status| *status == RowStatus::NotComputed), "{what}");
        assert!(signatures[stopped * size..].iter().all(|byte| *byte == 0), "{what}");

        let (mut private, mut public) = (vec![1; 600 * 4 * n], vec![1; 600 * 2 * n]);
        let mut counts = vec![0];
        engine.keygen_rows_with_progress(P, &mut private, Some(&mut public), |done| counts.push(done)).unwrap();
        assert!(counts.is_sorted_by(|a, b| a < b) && counts.last() == Some(&600), "{what}: {counts:?}");
        assert!(private.chunks(4 * n).zip(public.chunks(2 * n)).all(|(private, public)| private.ends_with(public)));
        engine.keygen_rows_with_progress(P, &mut private, Some(&mut public), |_| ControlFlow::Break(())).unwrap();
        assert!(private.iter().chain(&public).all(|byte| *byte == 0), "{what}: no key is left of a call that stopped");
    }
}

#[test]
fn each_bad_row_has_a_status_of_its_own() {
    let (keys, mode) = ([1, 2].map(key), Mode::Digest { context: b"", hash: PreHash::Sha256 });
    let public = keys.each_ref().map(SigningKey::verifying_key);
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let digest = [7; 32];
    let good = engine.sign(&keys[0], mode, &digest, Randomizer::Deterministic).unwrap().into_bytes();
    let short = &good[1..];

    let of = [0, 0, 2, 0, u32::MAX];
    let table = RowSigningKeys::Table { keys: &keys, of: &of };
    let messages = Column::Slices(&[&digest, &digest[1..], &digest, &[], &digest]);
    let rows = SignRows { keys: table, mode, messages, randomizer: Randomizer::Deterministic };
    let (signatures, statuses) = sign(&engine, &rows, 5);
    use RowStatus::{DigestLength, Invalid, KeyLength, NoSuchKey, SignatureLength, Signed, Valid};
    assert_eq!(statuses, [Signed, DigestLength, NoSuchKey, DigestLength, NoSuchKey]);
    assert!(signatures[..P.sig_bytes()] == good && signatures[P.sig_bytes()..].iter().all(|byte| *byte == 0));

    let bytes = [&good[..], short, &good].concat();
    let sizes = [0, good.len(), good.len() + short.len(), bytes.len(), bytes.len() + 1, 0, -1_i64 as usize];
    let offsets = sizes.map(|at| at as i64);
    let rows = VerifyRows {
        keys: RowVerifyingKeys::Table { keys: &public, of: &[0, 0, 1, 0, 0, 0] },
        mode,
        messages: Column::Slices(&[&digest[..]; 6]),
        signatures: Column::Variable { bytes: &bytes, offsets: Offsets::I64(&offsets) },
    };
    let mut statuses = [RowStatus::default(); 6];
    engine.verify_rows(&rows, &mut statuses).unwrap();
    assert_eq!(
        statuses,
        [Valid, SignatureLength, Invalid, RowStatus::BadOffsets, RowStatus::BadOffsets, RowStatus::BadOffsets]
    );

    let encoded = public[0].to_bytes();
    let keys = Column::Slices(&[&encoded, &encoded[1..], &[], &encoded]);
    let keys = RowVerifyingKeys::Encoded { params: P, keys };
    let signatures = Column::Slices(&[&good, &good, &good, short]);
    let mut statuses = [RowStatus::default(); 4];
    let rows = VerifyRows { keys, mode, messages: Column::Slices(&[&digest[..]; 4]), signatures };
    engine.verify_rows(&rows, &mut statuses).unwrap();
    assert_eq!(statuses, [Valid, KeyLength, KeyLength, SignatureLength]);

    // All of them bad: no device is asked.
    let idle = mock(1, 1);
    let rows = VerifyRows { signatures: Column::Slices(&[&[][..]; 4]), ..rows };
    idle.engine().verify_rows(&rows, &mut statuses).unwrap();
    assert_eq!(statuses, [SignatureLength, KeyLength, KeyLength, SignatureLength]);
    assert_eq!(idle.log.counts[0].0.load(SeqCst), 0);
}

#[test]
fn a_damaged_key_damages_its_rows_alone() {
    let sound = key(1);
    let mut bytes = sound.to_bytes().to_vec();
    bytes[3 * P.n] ^= 1;
    let keys = [sound, SigningKey::from_bytes_unchecked(P, &bytes).unwrap()];
    let texts: Vec<Vec<u8>> = (0..50).map(message).collect();
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let of: Vec<u32> = (0..50).map(|i| u32::from(i % 7 == 0)).collect();
    for (what, engine) in engines() {
        let keys = RowSigningKeys::Table { keys: &keys, of: &of };
        let messages = Column::Slices(&slices);
        let rows = SignRows { keys, mode: PURE, messages, randomizer: Randomizer::Deterministic };
        let (signatures, statuses) = sign(&engine, &rows, 50);
        for ((of, status), signature) in of.iter().zip(statuses).zip(signatures.chunks(P.sig_bytes())) {
            let is_damaged = *of == 1;
            assert_eq!(status, if is_damaged { RowStatus::KeyDamaged } else { RowStatus::Signed }, "{what}");
            assert_eq!(signature.iter().all(|byte| *byte == 0), is_damaged, "{what}");
        }
    }
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let (engine, one, public) = (mock(1, 1).engine(), key(1), key(1).verifying_key());
    let other = engine.generate(&TOY_SHAKE_24).unwrap();
    let sign = |rows: SignRows<'_>, signatures: usize, rows_of_call: usize, why: &str| {
        let (mut signatures, mut statuses) = (vec![1; signatures], vec![RowStatus::Signed; rows_of_call]);
        let error = engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(statuses, vec![RowStatus::NotComputed; rows_of_call], "nothing of an earlier call is left");
    };
    let good = SignRows {
        keys: RowSigningKeys::One(&one),
        mode: PURE,
        messages: Column::packed(b"ab", 1),
        randomizer: Randomizer::Hedged,
    };
    let size = P.sig_bytes();
    sign(good, 2 * size, 3, "the column of messages: it has 2 rows, the call has 3");
    sign(good, 2 * size - 1, 2, "the memory for signatures");
    sign(SignRows { randomizer: Randomizer::Given(&[0; 31]), ..good }, 2 * size, 2, "opt_rand");
    sign(SignRows { mode: Mode::Pure { context: &[0; 256] }, ..good }, 2 * size, 2, "context");
    let keys = [one.clone(), other.clone()];
    sign(SignRows { keys: RowSigningKeys::Table { keys: &keys, of: &[0, 1] }, ..good }, 2 * size, 2, "toy-SHAKE-24");
    let keys = [one.clone(), engine.cache(&one, 1).unwrap()];
    sign(SignRows { keys: RowSigningKeys::Table { keys: &keys, of: &[0, 1] }, ..good }, 2 * size, 2, "cached layers");
    sign(SignRows { keys: RowSigningKeys::Table { keys: &[], of: &[0, 1] }, ..good }, 2 * size, 2, "without keys");
    sign(SignRows { keys: RowSigningKeys::Table { keys: &keys, of: &[0] }, ..good }, 2 * size, 2, "key indices");
    let many = Column::Packed { bytes: b"ab", width: 1, stride: 1, rows: 1 << 32 };
    sign(SignRows { messages: many, ..good }, 2 * size, 2, "it has 4294967296 rows");

    let good = VerifyRows {
        keys: RowVerifyingKeys::One(&public),
        mode: PURE,
        messages: Column::packed(b"ab", 1),
        signatures: Column::Slices(&[b"", b""]),
    };
    let verify = |rows: VerifyRows<'_>, why: &str| {
        let mut statuses = [RowStatus::Valid; 2];
        let error = engine.verify_rows(&rows, &mut statuses).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(statuses, [RowStatus::NotComputed; 2], "nothing of an earlier call is left");
    };
    verify(VerifyRows { messages: Column::packed(b"abc", 1), ..good }, "messages: it has 3 rows, the call has 2");
    verify(VerifyRows { signatures: Column::Slices(&[b""]), ..good }, "the column of signatures");
    let bytes = [0; 100];
    let overlap = Column::Packed { bytes: &bytes, width: 32, stride: 16, rows: 2 };
    verify(VerifyRows { keys: RowVerifyingKeys::Encoded { params: P, keys: overlap }, ..good }, "the rows overlap");
    let keys = [public.clone(), other.verifying_key()];
    verify(VerifyRows { keys: RowVerifyingKeys::Table { keys: &keys, of: &[0, 0] }, ..good }, "toy-SHAKE-24");
}

/// Rows of a device that fails, or computes wrongly, are done by another; without another, what was not done says so.
#[test]
fn devices_that_fail_lose_no_row() {
    let (one, texts) = (key(1), (0..500).map(message).collect::<Vec<_>>());
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let messages = Column::Slices(&slices);
    let rows =
        SignRows { keys: RowSigningKeys::One(&one), mode: PURE, messages, randomizer: Randomizer::Deterministic };
    let expected = sign(&mock(1, 1).engine(), &rows, 500).0;
    let fails = mock(2, 2).answering(|call| match (call.device, call.nth) {
        (1, 3..) => call.fails("dead"),
        _ => Ok(()),
    });
    let lies = mock(2, 2).answering(|call| {
        if (call.device, call.op) == (0, Some(Op::Sign)) && call.nth >= 3 {
            call.out[50] ^= 1;
        }
        Ok(())
    });
    for engine in [fails.engine(), lies.builder().verify_signatures(true).build().unwrap()] {
        let (signatures, statuses) = sign(&engine, &rows, 500);
        assert!(signatures == expected && statuses == [RowStatus::Signed; 500]);
        assert_eq!(engine.devices().len(), 1);
    }
    // A device that holds signatures back computes them twice and compares by itself.
    for from in [2, 3] {
        let lies = mock(2, 2).answering(move |call| {
            if (call.device, call.op) == (0, Some(Op::Sign)) && call.nth >= from {
                call.out[50] ^= 1;
            }
            Ok(())
        });
        let lies = Mock { memory: 1 << 30, ..lies };
        let engine = lies.builder().redundant(true).build().unwrap();
        let (signatures, statuses) = sign(&engine, &rows, 500);
        assert!(signatures == expected && statuses == [RowStatus::Signed; 500]);
        assert!(matches!(&engine.faults()[..], [Fault { error: Error::Inconsistent { device, what }, .. }, ..]
            if device == "mock:0" && what.starts_with("the output of Sign of job")));
        assert_eq!(engine.devices().len(), 1);
        assert!(lies.shares().iter().sum::<usize>() >= 1000, "everything is computed twice");
    }
    let dies = mock(1, 2).answering(|call| if call.nth >= 5 { call.fails("dead") } else { Ok(()) });
    let (mut signatures, mut statuses) = (vec![1; 500 * P.sig_bytes()], vec![RowStatus::Valid; 500]);
    let why = dies.engine().sign_rows(&rows, &mut signatures, &mut statuses).unwrap_err();
    assert_eq!(why, Error::Device { device: "mock:0".into(), what: "dead".into() });
    let done = statuses.iter().take_while(|status| **status == RowStatus::Signed).count();
    assert!(done < 500 && statuses[done..].iter().all(|status| *status == RowStatus::NotComputed));
    let (signed, others) = signatures.split_at(done * P.sig_bytes());
    assert!(signed == &expected[..signed.len()] && others.iter().all(|byte| *byte == 0));
}

#[test]
fn rows_beyond_the_memory_budget_say_so() {
    let small = mock(1, 1).builder().memory_budget(100).build().unwrap();
    let one = key(1);
    let rows = SignRows {
        keys: RowSigningKeys::One(&one),
        mode: PURE,
        messages: Column::packed(b"ab", 1),
        randomizer: Randomizer::Hedged,
    };
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

/// Nothing is left of what was not handed out, also where a backend panics.
#[test]
fn a_panic_leaves_no_key_and_no_untrusted_signature() {
    let one = key(1);
    let panics =
        || mock(1, 1).answering(|call| if call.nth >= 5 { panic!("a broken backend") } else { Ok(()) }).engine();
    let text = [1; 100];
    let rows = SignRows {
        keys: RowSigningKeys::One(&one),
        mode: PURE,
        messages: Column::packed(&text, 1),
        randomizer: Randomizer::Deterministic,
    };
    let (mut signatures, mut statuses) = (vec![1; 100 * P.sig_bytes()], [RowStatus::Valid; 100]);
    let engine = panics();
    let call = AssertUnwindSafe(|| engine.sign_rows(&rows, &mut signatures, &mut statuses));
    catch_unwind(call).unwrap_err();
    let done = statuses.iter().take_while(|status| **status == RowStatus::Signed).count();
    assert!(done < 100 && statuses[done..].iter().all(|status| *status == RowStatus::NotComputed));
    assert!(signatures[done * P.sig_bytes()..].iter().all(|byte| *byte == 0));

    let (mut private, mut public) = (vec![1; 100 * P.sk_bytes()], vec![1; 100 * P.pk_bytes()]);
    let engine = panics();
    catch_unwind(AssertUnwindSafe(|| engine.keygen_rows(P, &mut private, Some(&mut public)))).unwrap_err();
    assert!(private.iter().chain(&public).all(|byte| *byte == 0));
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
    let one = Mock { memory: 1 << 30, reaching: |device| device.index == 1, ..mock(3, 2) };
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
    for (what, engine) in engines().into_iter().chain(gpus()) {
        for count in [1, 17, 300] {
            let texts = messages(count);
            let of: Vec<u32> = (0..count as u32).map(|i| i / 7 % 2).collect();
            let jobs = zip(&texts, &of).map(|(text, key)| SignJob::new(&keys[*key as usize], text).deterministic());
            let expected: Vec<u8> = engine
                .sign_batch_to_vec(jobs)
                .unwrap()
                .into_iter()
                .flat_map(|done| done.unwrap().into_bytes())
                .collect();
            let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            let (keys, messages) = (RowSigningKeys::Table { keys: &keys, of: &of }, Column::Slices(&slices));
            let rows = SignRows { keys, mode: PURE, messages, randomizer: Randomizer::Deterministic };
            // Twice: the device has signed before, and the memory was used before.
            for _ in 0..2 {
                let mut memory = engine.memory(count * size).unwrap();
                let is_reached = !memory.devices().is_empty();
                assert_eq!(
                    is_reached,
                    ["discrete devices", "redundant discrete devices", "cuda", "vulkan"].contains(&what),
                    "{what}"
                );
                assert!(memory.iter().all(|byte| *byte == 0), "{what}: memory is wiped before it is used again");
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
                let (keys, mode) = (RowVerifyingKeys::Table { keys: &public, of: &of }, PURE);
                let mut verify = |signatures: Column<'_>, verdicts: &[RowStatus]| {
                    engine.verify_rows(&VerifyRows { keys, mode, messages, signatures }, &mut statuses).unwrap();
                    assert_eq!(statuses, verdicts, "{what}, {count}");
                };
                verify(Column::packed(&memory, size), &verdicts);
                let relocated = memory.to_vec();
                let mut mixed: Vec<&[u8]> = memory.chunks(size).collect();
                mixed[count / 2] = &relocated[count / 2 * size..][..size];
                verify(Column::Slices(&mixed), &verdicts);
                mixed[count / 2] = &relocated[..size - 1];
                verdicts[count / 2] = RowStatus::SignatureLength;
                verify(Column::Slices(&mixed), &verdicts);
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
    let (good, bad) = (key(1), key(2));
    let mut bytes = bad.to_bytes().to_vec();
    bytes[3 * P.n] ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(P, &bytes).unwrap();
    let keys = [good, damaged];
    let discrete = ("mock", Mock { memory: 1 << 30, jobs: 64, ..mock(1, 2) }.engine());
    for (_, engine) in gpus().into_iter().chain([discrete]) {
        let of: Vec<u32> = (0..100).map(|i| u32::from(i == 70)).collect();
        let texts = messages(100);
        let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let (keys, messages) = (RowSigningKeys::Table { keys: &keys, of: &of }, Column::Slices(&slices));
        let rows = SignRows { keys, mode: PURE, messages, randomizer: Randomizer::Deterministic };
        let mut signatures = engine.memory(100 * P.sig_bytes()).unwrap();
        let mut statuses = vec![RowStatus::default(); 100];
        engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap();
        for (i, (status, signature)) in zip(&statuses, signatures.chunks(P.sig_bytes())).enumerate() {
            let (expected, is_zero) = if i == 70 { (RowStatus::KeyDamaged, true) } else { (RowStatus::Signed, false) };
            assert_eq!((*status, signature.iter().all(|byte| *byte == 0)), (expected, is_zero), "row {i}");
        }
    }
}

/// Also if it would have been right the next time.
#[test]
fn a_device_whose_root_is_wrong_is_blamed() {
    let key = key(1);
    let texts = messages(100);
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let (keys, messages) = (RowSigningKeys::One(&key), Column::Slices(&slices));
    let rows = SignRows { keys, mode: PURE, messages, randomizer: Randomizer::Deterministic };
    let device = Mock { memory: 1 << 30, jobs: 64, wrong_roots: Arc::new(1.into()), ..mock(2, 2) };
    let engine = device.engine();
    let (signatures, statuses) = sign(&engine, &rows, 100);
    assert_eq!(statuses, [RowStatus::Signed; 100]);
    let jobs = texts.iter().map(|text| SignJob::new(&key, text).deterministic());
    let expected = mock(1, 1).engine().sign_batch_to_vec(jobs).unwrap();
    assert!(expected.into_iter().flat_map(|done| done.unwrap().into_bytes()).eq(signatures));
    let faults = engine.faults();
    assert!(matches!(&faults[..], [Fault { error: Error::Inconsistent { .. }, .. }]), "{faults:?}");
}

/// A device computes early, and has full chunks later.
#[test]
fn a_long_call_begins_with_small_chunks() {
    let key = key(1);
    let (messages, device) = (messages(400), Mock { memory: 1 << 30, jobs: 64, ..mock(1, 2) });
    let rows = SignRows {
        keys: RowSigningKeys::One(&key),
        mode: Mode::default(),
        messages: Column::Slices(&messages.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        randomizer: Randomizer::Deterministic,
    };
    let engine = device.engine();
    let (signatures, _) = sign(&engine, &rows, 400);
    let public = key.verifying_key();
    let verify = |count: usize| {
        device.log.runs.lock().unwrap().clear();
        let messages: Vec<&[u8]> = messages[..count].iter().map(Vec::as_slice).collect();
        let rows = VerifyRows {
            keys: RowVerifyingKeys::One(&public),
            mode: Mode::default(),
            messages: Column::Slices(&messages),
            signatures: Column::packed(&signatures[..count * P.sig_bytes()], P.sig_bytes()),
        };
        let mut statuses = vec![RowStatus::default(); count];
        engine.verify_rows(&rows, &mut statuses).unwrap();
        assert!(statuses.iter().all(|status| *status == RowStatus::Valid));
        let mut runs: Vec<usize> = device.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect();
        runs.sort_unstable();
        runs
    };
    verify(400);
    assert_eq!(verify(400), [8, 16, 24, 32, 64, 64, 64, 64, 64]);
    assert_eq!(verify(64), [64]);
}
