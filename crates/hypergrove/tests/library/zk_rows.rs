//! Rows of zkDilithium give what jobs give, whatever the columns are like; hostile columns are errors or statuses; devices that fail lose
//! no row.

use crate::common::{Mock, OnMock, columns, zk_mock};
use hypergrove::rows::{Column, Offsets, RowSet, RowSigningKeys, RowStatus};
use hypergrove::zkdilithium::params::{MUSIZE, PK_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{
    Fe, Message, RowCall, RowMessages, RowVerifyingKeys, SignJob, SignRows, SigningKey, VerifyJob, VerifyRows,
    VerifyingKey, ZkDilithium as Set,
};
use hypergrove::{Cpu, Engine, EngineBuilder, Error, Isa, Op};
use std::iter::zip;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two devices that compute what the reference does, eight jobs at a time.
fn sound() -> Mock {
    Mock { name: "gpu", memory: 1 << 30, ..zk_mock(2, 2) }
}

/// An engine on the first of these devices.
fn on_first(gpu: &Mock) -> Engine {
    Mock { count: 1, ..gpu.clone() }.engine()
}

fn dead(device: u32) -> Error {
    Error::Device { device: format!("gpu:{device}"), what: "dead".into() }
}

fn engines() -> Vec<(String, Engine)> {
    let of = |isa, threads| Engine::builder().backend(Arc::new(Cpu::with(isa).unwrap())).threads(threads);
    let cpu = |threads| of(Isa::fastest(), threads);
    let mut builders = vec![
        ("one thread".into(), cpu(1)),
        ("verified".into(), cpu(2).verify_signatures(true)),
        ("redundant".into(), cpu(2).redundant(true)),
        ("two devices".into(), sound().builder()),
        ("redundant devices".into(), sound().builder().redundant(true).verify_signatures(true)),
    ];
    builders.extend(Isa::available().into_iter().map(|isa| (isa.name().to_string(), of(isa, 2))));
    builders.into_iter().map(|(what, builder)| (what, builder.build().unwrap())).collect()
}

fn keys() -> [SigningKey; 3] {
    [1, 2, 3].map(|of| SigningKey::from_seed(&[of; 32]))
}

/// Messages of which every third has a length of its own.
fn messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i as u8; if i % 3 == 0 { i } else { 5 }]).collect()
}

fn sign(engine: &Engine, rows: &SignRows<'_>, count: usize) -> (Vec<u8>, Vec<RowStatus>) {
    // Earlier content is overwritten.
    let (mut signatures, mut statuses) = (vec![1; count * SIG_BYTES], vec![RowStatus::Valid; count]);
    engine.sign_rows(rows, &mut signatures, &mut statuses).unwrap();
    (signatures, statuses)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn rows_are_signed_and_verified_as_jobs_are() {
    let keys = keys();
    let public = keys.each_ref().map(SigningKey::verifying_key);
    for (what, engine) in engines() {
        for count in [0, 1, 2, 70] {
            let messages = messages(count);
            let of: Vec<u32> = (0..count as u32).map(|i| i * i % 3).collect();
            let jobs = zip(&messages, &of).map(|(message, key)| SignJob::new(&keys[*key as usize], message));
            let signed = engine.sign_batch_to_vec(jobs).unwrap();
            let expected: Vec<Vec<u8>> = signed.into_iter().map(|signature| signature.unwrap().into_bytes()).collect();
            // Every fifth is not valid.
            let mut given = expected.clone();
            given.iter_mut().step_by(5).for_each(|signature| signature[100] ^= 1);
            let jobs = zip(&messages, zip(&of, &given));
            let jobs = jobs.map(|(message, (key, given))| VerifyJob::new(&public[*key as usize], message, given));
            let verdict = |valid| if valid { RowStatus::Valid } else { RowStatus::Invalid };
            let verdicts = engine.verify_batch_to_vec(jobs).unwrap();
            let verdicts: Vec<RowStatus> = verdicts.into_iter().map(|valid| verdict(valid.unwrap())).collect();
            assert!(verdicts.iter().enumerate().all(|(i, valid)| *valid == verdict(i % 5 != 0)));
            columns(&messages, |kind, column| {
                let keys = RowSigningKeys::Table { keys: &keys, of: &of };
                let (signatures, statuses) = sign(&engine, &SignRows::new(keys, column), count);
                assert_eq!(statuses, vec![RowStatus::Signed; count], "{what}, {count} rows, {kind}");
                assert!(signatures == expected.concat(), "{what}, {count} rows, {kind}");
            });
            let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let verify = |keys: RowVerifyingKeys<'_>, signatures: Column<'_>, kind: &str| {
                let mut statuses = vec![RowStatus::default(); count];
                let rows = VerifyRows::new(keys, Column::Slices(&slices), signatures);
                engine.verify_rows(&rows, &mut statuses).unwrap();
                assert_eq!(statuses, verdicts, "{what}, {count} rows, {kind}");
            };
            let table = RowVerifyingKeys::Table { keys: &public, of: &of };
            columns(&given, |kind, signatures| verify(table, signatures, kind));
            let encoded: Vec<Vec<u8>> = of.iter().map(|key| public[*key as usize].as_bytes().to_vec()).collect();
            let packed = given.concat();
            columns(&encoded, |kind, keys| {
                verify(RowVerifyingKeys::Encoded { params: Set, keys }, Column::packed(&packed, SIG_BYTES), kind);
            });
        }
    }
}

#[test]
fn rows_of_one_key_and_of_field_elements() {
    let key = &keys()[0];
    let public = key.verifying_key();
    let elements: Vec<[Fe; MUSIZE]> = (0..40).map(|i| [Fe::new(i); MUSIZE]).collect();
    type Rows<'a> = hypergrove::zkdilithium::RowMessages<'a>;
    for (what, engine) in engines() {
        let last = &elements[39];
        let kinds = [(Rows::Blocks(&elements), Message::Block(last)), (Rows::Mus(&elements), Message::Mu(last))];
        for (messages, last) in kinds {
            let rows = SignRows::new(RowSigningKeys::One(key), messages);
            let (signatures, statuses) = sign(&engine, &rows, 40);
            assert_eq!(statuses, [RowStatus::Signed; 40], "{what}");
            let alone = key.sign_message(last).unwrap();
            assert!(signatures.ends_with(alone.as_bytes()), "{what}");
            let signatures = Column::packed(&signatures, SIG_BYTES);
            let mut statuses = [RowStatus::default(); 40];
            let rows = VerifyRows::new(RowVerifyingKeys::One(&public), messages, signatures);
            engine.verify_rows(&rows, &mut statuses).unwrap();
            assert_eq!(statuses, [RowStatus::Valid; 40], "{what}");
        }
    }
}

#[test]
fn keys_are_made_in_rows() {
    for (what, engine) in engines() {
        for count in [0, 1, 100] {
            let seeds: Vec<[u8; 32]> = (0..count).map(|i| [i as u8; 32]).collect();
            let keys = engine.from_seeds(Set, &seeds).unwrap();
            let expected: Vec<u8> = keys.iter().flat_map(|key| key.to_bytes().to_vec()).collect();
            let encoded: Vec<u8> = keys.iter().flat_map(|key| key.verifying_key().as_bytes().to_vec()).collect();
            let (mut private, mut public) = (vec![1; count * SK_BYTES], vec![1; count * PK_BYTES]);
            engine.keygen_rows_from_seeds(Set, seeds.as_flattened(), &mut private, Some(&mut public)).unwrap();
            assert!(private == expected && public == encoded, "{what}");
            private.fill(1);
            engine.keygen_rows_from_seeds(Set, seeds.as_flattened(), &mut private, None).unwrap();
            assert!(private == expected, "{what}");

            engine.keygen_rows(Set, &mut private, Some(&mut public)).unwrap();
            for (private, public) in zip(private.chunks(SK_BYTES), public.chunks(PK_BYTES)) {
                let key = SigningKey::from_bytes_unchecked(private).unwrap();
                assert!(key.check().is_ok() && key.verifying_key().as_bytes() == public, "{what}");
            }
            let distinct: std::collections::BTreeSet<_> = private.chunks(SK_BYTES).map(|key| &key[..32]).collect();
            assert_eq!(distinct.len(), count, "{what}");
        }
    }
    // Nothing is left of a call that fails, be it by an error or by a panic.
    let (mut private, mut public) = (vec![1; 100 * SK_BYTES], vec![1; 100 * PK_BYTES]);
    let fails = sound().answering(|call| if call.nth < 3 { Ok(()) } else { call.fails("dead") });
    assert_eq!(on_first(&fails).keygen_rows(Set, &mut private, Some(&mut public)), Err(dead(0)));
    assert!(is_zero(&private) && is_zero(&public));
    (private[0], public[0]) = (1, 1);
    let panics = on_first(&sound().answering(|call| if call.nth < 3 { Ok(()) } else { panic!("a broken backend") }));
    catch_unwind(AssertUnwindSafe(|| panics.keygen_rows(Set, &mut private, Some(&mut public)))).unwrap_err();
    assert!(is_zero(&private) && is_zero(&public));
    let engine = on_first(&sound());
    for (private, public) in
        [(SK_BYTES - 1, PK_BYTES), (SK_BYTES, PK_BYTES - 1), (0, PK_BYTES), (2 * SK_BYTES, PK_BYTES)]
    {
        let (mut private, mut public) = (vec![1; private], vec![1; public]);
        let why = engine.keygen_rows(Set, &mut private, Some(&mut public)).unwrap_err().to_string();
        assert!(is_zero(&private) && is_zero(&public) && why.contains("the column of "), "{why}");
    }
    let why = engine.keygen_rows_from_seeds(Set, &[0; 32], &mut [1; 2 * SK_BYTES], None).unwrap_err().to_string();
    assert!(why.contains("the seeds"), "{why}");
}

#[test]
fn progress_counts_rows_and_stops_a_call() {
    let ([key, ..], texts) = (keys(), messages(300));
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let messages = RowMessages::Bytes(Column::Slices(&slices));
    let public = key.verifying_key();
    for (what, engine) in engines() {
        let (mut signatures, mut statuses) = (vec![1; 300 * SIG_BYTES], vec![RowStatus::Valid; 300]);
        let rows = SignRows::new(RowSigningKeys::One(&key), messages);
        let mut counts = vec![0];
        engine.sign_rows_with_progress(&rows, &mut signatures, &mut statuses, |done| counts.push(done)).unwrap();
        assert!(counts.is_sorted_by(|a, b| a < b) && counts.last() == Some(&300), "{what}: {counts:?}");
        assert_eq!(statuses, [RowStatus::Signed; 300], "{what}");

        let signatures = Column::packed(&signatures, SIG_BYTES);
        let rows = VerifyRows::new(RowVerifyingKeys::One(&public), messages, signatures);
        let mut stopped = 0;
        let stop = |done: usize| {
            stopped = done;
            ControlFlow::Break(())
        };
        engine.verify_rows_with_progress(&rows, &mut statuses, stop).unwrap();
        assert!(0 < stopped && statuses[..stopped].iter().all(|status| *status == RowStatus::Valid), "{what}");
        assert!(statuses[stopped..].iter().all(|status| *status == RowStatus::NotComputed), "{what}");

        let (mut private, mut public) = (vec![1; 300 * SK_BYTES], vec![1; 300 * PK_BYTES]);
        engine.keygen_rows_with_progress(Set, &mut private, Some(&mut public), |_| ControlFlow::Break(())).unwrap();
        assert!(is_zero(&private) && is_zero(&public), "{what}: no key is left of a call that stopped");
    }
}

#[test]
fn each_bad_row_has_a_status_of_its_own() {
    use RowStatus::{BadOffsets, Invalid, KeyDamaged, KeyLength, NoSuchKey, SignatureLength, Signed, Valid};
    let sound_key = &keys()[0];
    let mut bytes = sound_key.to_bytes().to_vec();
    bytes[1000] ^= 1;
    let keys = [sound_key.clone(), SigningKey::from_bytes_unchecked(&bytes).unwrap()];
    let public = [sound_key.verifying_key(), self::keys()[1].verifying_key()];
    let good = sound_key.sign_message(Message::Bytes(b"m")).unwrap().into_bytes();
    let (short, encoded) = (&good[1..], public[0].as_bytes());
    for (what, engine) in engines() {
        let bytes = b"mmmmm";
        let offsets = Offsets::I64(&[0, 1, 2, 3, 4, 3, 9, 5]);
        let messages = Column::Variable { bytes, offsets };
        let of = [0, 1, 2, 0, 0, 0, u32::MAX];
        let rows = SignRows::new(RowSigningKeys::Table { keys: &keys, of: &of }, messages);
        let (signatures, statuses) = sign(&engine, &rows, 7);
        assert_eq!(statuses, [Signed, KeyDamaged, NoSuchKey, Signed, BadOffsets, BadOffsets, NoSuchKey], "{what}");
        for (status, signature) in zip(statuses, signatures.chunks(SIG_BYTES)) {
            assert!(if status == Signed { signature == good } else { is_zero(signature) }, "{what}");
        }

        let bytes = [&good[..], short, &good].concat();
        let sizes = [0, good.len(), good.len() + short.len(), bytes.len(), bytes.len() + 1, 0, -1_i64 as usize];
        let offsets = sizes.map(|at| at as i64);
        let rows = VerifyRows::new(
            RowVerifyingKeys::Table { keys: &public, of: &[0, 0, 1, 0, 0, 0] },
            Column::packed(b"mmmmmm", 1),
            Column::Variable { bytes: &bytes, offsets: Offsets::I64(&offsets) },
        );
        let mut statuses = [RowStatus::default(); 6];
        engine.verify_rows(&rows, &mut statuses).unwrap();
        assert_eq!(statuses, [Valid, SignatureLength, Invalid, BadOffsets, BadOffsets, BadOffsets], "{what}");
        let keys = RowVerifyingKeys::Table { keys: &public, of: &[0, 2, 0, 9, 1, 1] };
        engine.verify_rows(&VerifyRows { keys, ..rows }, &mut statuses).unwrap();
        assert_eq!(statuses, [Valid, NoSuchKey, Valid, NoSuchKey, BadOffsets, BadOffsets], "{what}");

        let keys = Column::Slices(&[encoded, &encoded[1..], &[], encoded]);
        let keys = RowVerifyingKeys::Encoded { params: Set, keys };
        let signatures = Column::Slices(&[&good, &good, &good, short]);
        let rows = VerifyRows::new(keys, Column::packed(b"mmmm", 1), signatures);
        let mut statuses = [RowStatus::default(); 4];
        engine.verify_rows(&rows, &mut statuses).unwrap();
        assert_eq!(statuses, [Valid, KeyLength, KeyLength, SignatureLength], "{what}");
    }
    // All of them bad: no device is asked.
    let idle = sound();
    let signatures = Column::Slices(&[&b""[..]; 4]);
    let rows = VerifyRows::new(RowVerifyingKeys::One(&public[0]), Column::packed(b"mmmm", 1), signatures);
    let mut statuses = [Valid; 4];
    on_first(&idle).verify_rows(&rows, &mut statuses).unwrap();
    assert_eq!((statuses, idle.runs()), ([SignatureLength; 4], 0));
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let (engine, keys) = (on_first(&sound()), keys());
    let public = keys.each_ref().map(SigningKey::verifying_key);
    let sign = |rows: SignRows<'_>, signatures: usize, count: usize, why: &str| {
        let (mut signatures, mut statuses) = (vec![1; signatures], vec![RowStatus::Signed; count]);
        let error = engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(statuses, vec![RowStatus::NotComputed; count], "nothing of an earlier call is left");
    };
    let good = SignRows::new(RowSigningKeys::One(&keys[0]), Column::packed(b"ab", 1));
    sign(good, 2 * SIG_BYTES, 3, "the column of messages: it has 2 rows, the call has 3");
    sign(good, 2 * SIG_BYTES - 1, 2, "the memory for signatures");
    sign(SignRows { keys: RowSigningKeys::Table { keys: &[], of: &[0, 0] }, ..good }, 2 * SIG_BYTES, 2, "without keys");
    sign(SignRows { keys: RowSigningKeys::Table { keys: &keys, of: &[0] }, ..good }, 2 * SIG_BYTES, 2, "key indices");
    let many = Column::Packed { bytes: b"ab", width: 1, stride: 1, rows: 1 << 32 };
    sign(SignRows { messages: many.into(), ..good }, 2 * SIG_BYTES, 2, "it has 4294967296 rows");
    let elements = hypergrove::zkdilithium::RowMessages::Mus(&[[Fe::ZERO; MUSIZE]]);
    sign(SignRows { messages: elements, ..good }, 2 * SIG_BYTES, 2, "the list of messages");

    let good =
        VerifyRows::new(RowVerifyingKeys::One(&public[0]), Column::packed(b"ab", 1), Column::Slices(&[b"", b""]));
    let verify = |rows: VerifyRows<'_>, why: &str| {
        let mut statuses = [RowStatus::Valid; 2];
        let error = engine.verify_rows(&rows, &mut statuses).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(statuses, [RowStatus::NotComputed; 2], "nothing of an earlier call is left");
    };
    verify(VerifyRows { messages: Column::packed(b"abc", 1).into(), ..good }, "messages: it has 3 rows");
    verify(VerifyRows { signatures: Column::Slices(&[b""]), ..good }, "the column of signatures");
    let bytes = vec![0; 2 * PK_BYTES];
    let overlap = Column::Packed { bytes: &bytes, width: PK_BYTES, stride: 16, rows: 2 };
    verify(VerifyRows { keys: RowVerifyingKeys::Encoded { params: Set, keys: overlap }, ..good }, "the rows overlap");
    verify(VerifyRows { keys: RowVerifyingKeys::Table { keys: &[], of: &[0, 0] }, ..good }, "without keys");
    verify(VerifyRows { keys: RowVerifyingKeys::Table { keys: &public, of: &[] }, ..good }, "key indices");
}

/// Signatures without a later check go to the caller's memory at once, also between rows that cannot be signed. Others go there when they
/// were checked.
#[test]
fn signatures_go_to_their_rows_when_they_are_checked() {
    use RowStatus::{BadOffsets, KeyDamaged, Signed};
    let sound_key = &keys()[0];
    let mut bytes = sound_key.to_bytes().to_vec();
    bytes[1000] ^= 1;
    let keys = [sound_key.clone(), SigningKey::from_bytes_unchecked(&bytes).unwrap()];
    let right = sound_key.sign_message(Message::Bytes(b"m")).unwrap().into_bytes();
    // Rows 2 and 3 have no message, and rows 6 to 8 have a damaged key.
    let mut offsets: Vec<i64> = (0..=20).collect();
    offsets[3] = -1;
    let of: Vec<u32> = (0..20).map(|row| u32::from((6..9).contains(&row))).collect();
    let messages = Column::Variable { bytes: &[b'm'; 20], offsets: Offsets::I64(&offsets) };
    let rows = SignRows::new(RowSigningKeys::Table { keys: &keys, of: &of }, messages);
    let mut expected = [Signed; 20];
    expected[2..4].fill(BadOffsets);
    expected[6..9].fill(KeyDamaged);
    for (verifies, redundant) in [(false, false), (true, false), (false, true)] {
        let gpu = sound();
        let engine = gpu.builder().verify_signatures(verifies).redundant(redundant).build().unwrap();
        let (mut signatures, mut statuses) = (vec![1; 20 * SIG_BYTES], vec![RowStatus::Valid; 20]);
        engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap();
        assert_eq!(statuses, expected);
        for (status, signature) in zip(statuses, signatures.chunks(SIG_BYTES)) {
            assert!(if status == Signed { signature == right } else { is_zero(signature) });
        }
        let mut places = gpu.log.places.lock().unwrap().concat();
        places.sort_unstable();
        let of_rows =
            (0..20).filter(|row| expected[*row] == Signed).map(|row| signatures[row * SIG_BYTES..].as_ptr().addr());
        let are_there = places == of_rows.collect::<Vec<_>>();
        assert_eq!(are_there, !verifies && !redundant, "verifies {verifies}, redundant {redundant}");
        let memory = signatures.as_ptr_range();
        let is_inside = |place: &usize| (memory.start.addr()..memory.end.addr()).contains(place);
        assert_eq!(places.iter().any(is_inside), are_there);
    }
}

/// The memory budget counts no signature that the caller has memory for, and no more chunks than zkDilithium has in flight.
#[test]
fn chunks_are_as_large_as_the_budget_allows() {
    let key = &keys()[0];
    let bytes = [5; 400];
    let rows = SignRows::new(RowSigningKeys::One(key), Column::packed(&bytes, 1));
    for (verifies, sizes) in [(false, 200..=200), (true, 30..=45)] {
        // Of the budget's shares, two are for chunks in flight and one is for results that wait.
        let gpu = Mock { jobs: 200, queue: 4, count: 1, ..sound() };
        let engine = gpu.builder().memory_budget(600_000).verify_signatures(verifies).build().unwrap();
        let (_, statuses) = sign(&engine, &rows, 400);
        assert_eq!(statuses, [RowStatus::Signed; 400]);
        let largest = gpu.log.places.lock().unwrap().iter().map(Vec::len).max().unwrap();
        assert!(sizes.contains(&largest), "verifies {verifies}: {largest}");
    }
}

/// Rows of a device that fails, or computes wrongly, are done by another; without another, what was not done says so.
#[test]
fn devices_that_fail_lose_no_row() {
    let key = &keys()[0];
    let texts: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; 3]).collect();
    let bytes = texts.concat();
    let rows = SignRows::new(RowSigningKeys::One(key), Column::packed(&bytes, 3));
    let cpu = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let (expected, _) = sign(&cpu, &rows, 200);
    let fails =
        || sound().answering(|call| if call.device == 1 && call.nth >= 3 { call.fails("dead") } else { Ok(()) });
    let lies = sound().answering(|call| {
        if (call.device, call.op) == (0, Some(Op::Sign)) && call.nth >= 3 {
            call.out.chunks_mut(SIG_BYTES).for_each(|signature| signature[700] ^= 1);
        }
        Ok(())
    });
    for engine in [fails().engine(), lies.builder().verify_signatures(true).build().unwrap()] {
        let (signatures, statuses) = sign(&engine, &rows, 200);
        assert!(signatures == expected && statuses == [RowStatus::Signed; 200]);
        assert_eq!(engine.devices().len(), 1);
    }
    let engine = fails().engine();
    let seeds: Vec<[u8; 32]> = (0..200).map(|i| [i; 32]).collect();
    let [mut first, mut second] = [(); 2].map(|()| vec![1; 200 * SK_BYTES]);
    engine.keygen_rows_from_seeds(Set, seeds.as_flattened(), &mut first, None).unwrap();
    cpu.keygen_rows_from_seeds(Set, seeds.as_flattened(), &mut second, None).unwrap();
    assert!(first == second && engine.devices().len() == 1);

    let is_done = |statuses: &[RowStatus], signatures: &[u8]| {
        let done = statuses.iter().take_while(|status| **status == RowStatus::Signed).count();
        assert!(done < 200 && statuses[done..].iter().all(|status| *status == RowStatus::NotComputed));
        let (signed, others) = signatures.split_at(done * SIG_BYTES);
        assert!(signed == &expected[..signed.len()] && is_zero(others));
    };
    let dies = on_first(&sound().answering(|call| if call.nth >= 5 { call.fails("dead") } else { Ok(()) }));
    let (mut signatures, mut statuses) = (vec![1; 200 * SIG_BYTES], vec![RowStatus::Valid; 200]);
    assert_eq!(dies.sign_rows(&rows, &mut signatures, &mut statuses), Err(dead(0)));
    is_done(&statuses, &signatures);
    let panics = on_first(&sound().answering(|call| if call.nth >= 5 { panic!("a broken backend") } else { Ok(()) }));
    let (mut signatures, mut statuses) = (vec![1; 200 * SIG_BYTES], vec![RowStatus::Valid; 200]);
    let call = AssertUnwindSafe(|| panics.sign_rows(&rows, &mut signatures, &mut statuses));
    catch_unwind(call).unwrap_err();
    is_done(&statuses, &signatures);
}

/// The inputs, and the memory for outputs, that a caller lends to its set.
struct Letters {
    keys: Vec<SigningKey>,
    public: Vec<VerifyingKey>,
    encoded: Option<Vec<u8>>,
    of: Vec<u32>,
    messages: Vec<u8>,
    seeds: Option<Vec<[u8; 32]>>,
    private: Vec<u8>,
    signatures: Vec<u8>,
    statuses: Vec<RowStatus>,
}

/// Of each number other keys and messages.
fn letters(number: u8, rows: usize) -> Letters {
    let keys = [number, number + 100].map(|of| SigningKey::from_seed(&[of; 32]));
    let of: Vec<u32> = (0..rows).map(|row| (row % 2) as u32).collect();
    let encoded = of.iter().flat_map(|of| keys[*of as usize].verifying_key().as_bytes().to_vec()).collect();
    Letters {
        public: keys.iter().map(SigningKey::verifying_key).collect(),
        keys: keys.into(),
        encoded: number.is_multiple_of(2).then_some(encoded),
        of,
        messages: (0..3 * rows).map(|i| i as u8 ^ number).collect(),
        seeds: (number % 2 == 1).then(|| (0..rows).map(|row| [row as u8 ^ number; 32]).collect()),
        private: vec![0; rows * SK_BYTES],
        signatures: vec![1; rows * SIG_BYTES],
        statuses: vec![RowStatus::default(); rows],
    }
}

fn to_sign(it: &mut Letters) -> RowCall<'_> {
    RowCall::Sign {
        rows: SignRows::new(RowSigningKeys::Table { keys: &it.keys, of: &it.of }, Column::packed(&it.messages, 3)),
        signatures: &mut it.signatures,
        statuses: &mut it.statuses,
    }
}

fn to_verify(it: &mut Letters) -> RowCall<'_> {
    RowCall::Verify {
        rows: VerifyRows::new(
            match &it.encoded {
                Some(keys) => RowVerifyingKeys::Encoded { params: Set, keys: Column::packed(keys, PK_BYTES) },
                None => RowVerifyingKeys::Table { keys: &it.public, of: &it.of },
            },
            Column::packed(&it.messages, 3),
            Column::packed(&it.signatures, SIG_BYTES),
        ),
        statuses: &mut it.statuses,
    }
}

fn to_make(it: &mut Letters) -> RowCall<'_> {
    let seeds = it.seeds.as_ref().map(|seeds| seeds.as_flattened());
    RowCall::Keygen { params: Set, seeds, private: &mut it.private, public: None }
}

/// A device whose first run waits for the test, and then fails if it is to. Others wait in the queue meanwhile.
fn gated(fails: bool) -> (Mock, Receiver<()>, Sender<()>) {
    let ((here, came), (go, passes)) = (channel(), channel::<()>());
    let (here, passes) = (Mutex::new(here), Mutex::new(passes));
    let gpu = Mock { jobs: 256, queue: 1, count: 1, ..sound() }.answering(move |call| {
        if call.nth == 0 {
            here.lock().unwrap().send(()).unwrap();
            let _ = passes.lock().unwrap().recv();
        }
        if fails { call.fails("dead") } else { Ok(()) }
    });
    // However long the first run waits, and the device seems slow, an eighth of the device's jobs is a batch.
    (gpu, came, go)
}

#[test]
fn sets_share_launches() {
    let builds: [fn(EngineBuilder) -> EngineBuilder; 2] = [|it| it, |it| it.redundant(true).verify_signatures(true)];
    for (number, build) in builds.into_iter().enumerate() {
        for fails in [false, true] {
            let mut sets: Vec<Letters> = (0..6).map(|set| letters(set, 3 + set as usize)).collect();
            for lend in [to_sign, to_verify, to_make] {
                let (gpu, came, go) = gated(fails);
                let engine = build(gpu.builder()).build().unwrap();
                sets[3].of[2] = 9;
                let mut waiting = std::mem::take(&mut sets).into_iter();
                let mut submit = |count| -> Vec<_> {
                    let sets = waiting.by_ref().take(count);
                    sets.map(|it| engine.submit(RowSet::new(it, lend)).unwrap()).collect()
                };
                let mut tickets = submit(1);
                came.recv_timeout(Duration::from_secs(600)).unwrap();
                tickets.extend(submit(5));
                drop(go);
                let results: Vec<_> = tickets.into_iter().map(hypergrove::Ticket::wait).collect();
                if fails {
                    let is_lost = |result: Result<Letters, Error>| result.map(drop).unwrap_err() == dead(0);
                    assert!(results.into_iter().all(is_lost));
                    break;
                }
                sets = results.into_iter().map(Result::unwrap).collect();
                // By powers of two: 3 rows, and 30.
                assert_eq!(engine.stats().tickets.batch_sizes, [0, 1, 0, 0, 1]);
                if number == 0 {
                    assert_eq!(gpu.runs(), 2);
                }
                for it in &mut sets {
                    match lend(it) {
                        RowCall::Keygen { seeds: Some(seeds), private, .. } => {
                            for (seed, private) in zip(seeds.as_chunks().0, private.chunks(SK_BYTES)) {
                                assert!(private == SigningKey::from_seed(seed).to_bytes().as_slice());
                            }
                        }
                        RowCall::Keygen { private, .. } => {
                            assert!(private.chunks(SK_BYTES).all(|key| SigningKey::from_bytes_unchecked(key).is_ok()));
                        }
                        RowCall::Sign { .. } => {
                            for (row, of) in it.of.iter().enumerate() {
                                let signature = &it.signatures[row * SIG_BYTES..][..SIG_BYTES];
                                let Some(key) = it.keys.get(*of as usize) else {
                                    assert!(it.statuses[row] == RowStatus::NoSuchKey && is_zero(signature));
                                    continue;
                                };
                                assert_eq!(it.statuses[row], RowStatus::Signed);
                                let message = Message::Bytes(&it.messages[3 * row..][..3]);
                                assert!(key.sign_message(message).unwrap().as_bytes() == signature);
                            }
                            it.signatures[0] ^= 1;
                        }
                        _ => {
                            for (row, of) in it.of.iter().enumerate() {
                                let expected = match (row, of) {
                                    (_, 9) => RowStatus::NoSuchKey,
                                    (0, _) => RowStatus::Invalid,
                                    _ => RowStatus::Valid,
                                };
                                assert_eq!(it.statuses[row], expected);
                            }
                        }
                    }
                }
            }
        }
    }
}
