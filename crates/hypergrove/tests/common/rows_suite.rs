//! Tests of rows that hold for any scheme. Each test is a generic function; [`rows_suite!`] makes a `#[test]` of it for a scheme.

use crate::common::{Mock, OnMock, columns};
use hypergrove::rows::{Column, Offsets, RowSet, RowSigningKeys, RowStatus};
use hypergrove::schemes::{
    CallColumns, MessageRows, RowVerifyingKeys, Scheme, SchemeKey, SignJob, SignatureRows, Sizes, VerifyJob,
};
use hypergrove::{Cpu, Engine, EngineBuilder, Error, Fault, Isa, JobKey, Op};
use std::collections::BTreeSet;
use std::iter::zip;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Makes a `#[test]` of each test of the suite for a scheme: of all of them, or of those that are named.
macro_rules! rows_suite {
    ($scheme:ty) => {
        $crate::rows_suite::rows_suite! { $scheme:
            rows_are_signed_and_verified_as_jobs_are,
            keys_are_made_in_rows,
            progress_counts_rows_and_stops_a_call,
            each_bad_row_has_a_status_of_its_own,
            a_damaged_key_damages_its_rows_alone,
            calls_that_do_not_fit_are_errors,
            devices_that_fail_lose_no_row_and_no_job,
            without_a_device_what_was_not_done_says_so,
            sets_of_rows_give_what_their_calls_give,
        }
    };
    ($scheme:ty: $($test:ident),+ $(,)?) => {$(
        #[test]
        fn $test() {
            $crate::rows_suite::$test::<$scheme>();
        }
    )+};
}
pub(crate) use rows_suite;

/// A scheme as the suite needs it.
pub(crate) trait Tested: Scheme<Signature: Into<Vec<u8>>> {
    /// The numbers of rows that are compared with jobs.
    const COUNTS: &'static [usize] = &[0, 1, 2, 70];
    /// The rows of a call that has many chunks on each of two doubles.
    const LONG: usize = 600;

    fn tested() -> Self;
    /// The CPU's instruction sets that the tests run on; none if the scheme has no code for the CPU.
    fn isas() -> Vec<Isa> {
        Vec::new()
    }
    /// Doubles of devices, eight jobs at a time.
    fn double(count: u32, queue: u32) -> Mock;
    fn on(double: &Mock) -> EngineBuilder {
        double.builder()
    }

    fn seeds(of: u8) -> Self::Seeds;
    /// The key of [`Tested::seeds`], as the reference makes it.
    fn key(of: u8) -> Self::SigningKey;
    /// The bytes of the key and of its public key.
    fn bytes(key: &Self::SigningKey) -> [Vec<u8>; 2];
    fn is_sound(engine: &Engine, key: &Self::SigningKey) -> bool;
    /// The reference's signature, in the default mode.
    fn reference(key: &Self::SigningKey, message: &[u8]) -> Vec<u8>;
    fn column(messages: Column<'_>) -> Self::RowMessages<'_>;
    fn message(message: &[u8]) -> Self::JobMessage<'_>;
    /// Randomness of which each signature of a message is the same.
    fn randomizer<'a>() -> Self::Randomizer<'a>
    where
        'a: 'a,
    {
        Default::default()
    }
    /// The mode for the number of rows `COUNTS[number]`.
    fn mode<'a>(_number: usize) -> Self::Mode<'a>
    where
        'a: 'a,
    {
        Default::default()
    }
    /// Messages for [`Tested::mode`].
    fn messages(_number: usize, count: usize) -> Vec<Vec<u8>> {
        texts(count)
    }
}

/// A scheme whose keys tell whether they are damaged.
pub(crate) trait Damageable: Tested {
    fn damaged() -> Self::SigningKey;
}

/// Engines on the CPU and on doubles, with and without checks.
pub(crate) fn engines<S: Tested>() -> Vec<(&'static str, Engine)> {
    let cpu = |isa, threads| Engine::builder().backend(Arc::new(Cpu::with(isa).unwrap())).threads(threads);
    let discrete = || S::on(&Mock { memory: 1 << 30, jobs: 64, ..S::double(3, 2) });
    let mut builders = vec![
        ("two devices", S::on(&S::double(2, 2))),
        ("discrete devices", discrete()),
        ("redundant discrete devices", discrete().redundant(true)),
    ];
    builders.extend(S::isas().into_iter().map(|isa| (isa.name(), cpu(isa, 2))));
    if let Some(isa) = S::isas().pop() {
        builders.push(("one thread", cpu(isa, 1)));
        builders.push(("verified", cpu(isa, 2).verify_signatures(true)));
        builders.push(("redundant", cpu(isa, 2).redundant(true)));
    }
    builders.into_iter().map(|(what, builder)| (what, builder.build().unwrap())).collect()
}

/// Messages of which every third has a length of its own.
pub(crate) fn texts(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i as u8; if i % 3 == 0 { i } else { 5 }]).collect()
}

pub(crate) fn slices(texts: &[Vec<u8>]) -> Vec<&[u8]> {
    texts.iter().map(Vec::as_slice).collect()
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn job<'a, S: Tested>(key: &'a S::SigningKey, message: &'a [u8]) -> SignJob<'a, S> {
    let (mode, randomizer) = (Default::default(), S::randomizer());
    SignJob { key: JobKey::Borrowed(key), mode, message: S::message(message), randomizer }
}

/// Rows of the default mode.
pub(crate) fn to_sign<'a, S: Tested>(
    keys: RowSigningKeys<'a, S::SigningKey>,
    messages: Column<'a>,
) -> MessageRows<'a, S> {
    MessageRows { keys, mode: Default::default(), messages: S::column(messages), randomizer: S::randomizer() }
}

/// Rows of the default mode.
pub(crate) fn to_verify<'a, S: Tested>(
    keys: RowVerifyingKeys<'a, S::VerifyingKey, S::Set>,
    messages: Column<'a>,
    signatures: Column<'a>,
) -> SignatureRows<'a, S> {
    SignatureRows { keys, mode: Default::default(), messages: S::column(messages), signatures }
}

/// Signs rows over what an earlier call left in the memory.
pub(crate) fn sign<S: Scheme>(engine: &Engine, rows: &MessageRows<'_, S>, count: usize) -> (Vec<u8>, Vec<RowStatus>) {
    let set = match rows.keys {
        RowSigningKeys::One(key) => key.scheme(),
        RowSigningKeys::Table { keys, .. } => keys[0].scheme(),
    };
    let (mut signatures, mut statuses) = (vec![1; count * set.sizes().signature], vec![RowStatus::Valid; count]);
    engine.sign_rows(rows, &mut signatures, &mut statuses).unwrap();
    (signatures, statuses)
}

pub(crate) fn verify<S: Scheme>(engine: &Engine, rows: &SignatureRows<'_, S>, count: usize) -> Vec<RowStatus> {
    let mut statuses = vec![RowStatus::Signed; count];
    engine.verify_rows(rows, &mut statuses).unwrap();
    statuses
}

fn public<S: Tested>(key: &S::SigningKey) -> S::VerifyingKey {
    S::VerifyingKey::of_bytes(S::tested(), &S::bytes(key)[1])
}

fn bytes_of<S: Tested>(signed: Vec<Result<S::Signature, Error>>) -> Vec<u8> {
    signed.into_iter().flat_map(|signature| signature.unwrap().into()).collect()
}

pub(crate) fn is_all(statuses: &[RowStatus], status: RowStatus) -> bool {
    statuses.iter().all(|is| *is == status)
}

pub(crate) fn rows_are_signed_and_verified_as_jobs_are<S: Tested>() {
    let (set, keys) = (S::tested(), [1, 2, 3].map(S::key));
    let public = keys.each_ref().map(public::<S>);
    for (what, engine) in engines::<S>() {
        for (number, count) in S::COUNTS.iter().copied().enumerate() {
            let texts = S::messages(number, count);
            let slices = slices(&texts);
            let of: Vec<u32> = (0..count as u32).map(|i| i * i % 3).collect();
            let jobs = zip(&texts, &of)
                .map(|(text, key)| SignJob { mode: S::mode(number), ..job::<S>(&keys[*key as usize], text) });
            let expected = bytes_of::<S>(engine.sign_batch_to_vec(jobs).unwrap());
            columns(&texts, |kind, column| {
                let keys = RowSigningKeys::Table { keys: &keys, of: &of };
                let rows = MessageRows { mode: S::mode(number), ..to_sign::<S>(keys, column) };
                let (signatures, statuses) = sign(&engine, &rows, count);
                assert_eq!(statuses, vec![RowStatus::Signed; count], "{what}, {count} rows, {kind}");
                assert!(signatures == expected, "{what}, {count} rows, {kind}");
            });

            // Every fifth is not valid.
            let mut given: Vec<Vec<u8>> = expected.chunks(set.sizes().signature).map(<[u8]>::to_vec).collect();
            given.iter_mut().step_by(5).for_each(|signature| signature[100] ^= 1);
            let jobs = zip(&texts, zip(&of, &given)).map(|(text, (key, given))| VerifyJob::<S> {
                key: JobKey::Borrowed(&public[*key as usize]),
                mode: S::mode(number),
                message: S::message(text),
                signature: given.into(),
            });
            let verdicts = engine.verify_batch_to_vec(jobs).unwrap();
            let is_right = |(i, valid): (usize, &Result<bool, Error>)| *valid == Ok(i % 5 != 0);
            assert!(verdicts.iter().enumerate().all(is_right), "{what}, {count} jobs");
            let verdict = |i| if i % 5 == 0 { RowStatus::Invalid } else { RowStatus::Valid };
            let verdicts: Vec<RowStatus> = (0..count).map(verdict).collect();
            let verifies = |keys: RowVerifyingKeys<'_, S::VerifyingKey, S::Set>, signatures: Column<'_>, kind: &str| {
                let rows = to_verify::<S>(keys, Column::Slices(&slices), signatures);
                let rows = SignatureRows { mode: S::mode(number), ..rows };
                assert_eq!(verify(&engine, &rows, count), verdicts, "{what}, {count} rows, {kind}");
            };
            let table = RowVerifyingKeys::Table { keys: &public, of: &of };
            columns(&given, |kind, signatures| verifies(table, signatures, kind));
            let encoded: Vec<Vec<u8>> = of.iter().map(|key| S::bytes(&keys[*key as usize])[1].clone()).collect();
            let packed = given.concat();
            let packed = Column::packed(&packed, set.sizes().signature);
            columns(&encoded, |kind, keys| {
                verifies(RowVerifyingKeys::Encoded { params: set.set(), keys }, packed, kind);
            });
        }
    }
}

pub(crate) fn keys_are_made_in_rows<S: Tested>() {
    let set = S::tested();
    let Sizes { seeds: seed_bytes, private: private_bytes, public: public_bytes, .. } = set.sizes();
    let memory = |rows| (vec![1; rows * private_bytes], vec![1; rows * public_bytes]);
    for (what, engine) in engines::<S>() {
        for count in [0, 1, 100] {
            let (seeds, column, keys) = seeds_and_keys::<S>(count);
            let [expected, encoded] = columns_of::<S>(&keys);
            assert!(columns_of::<S>(&engine.from_seeds(set, &seeds).unwrap())[0] == expected, "{what}");
            let (mut private, mut public) = memory(count);
            engine.keygen_rows_from_seeds(set, &column, &mut private, Some(&mut public)).unwrap();
            assert!(private == expected && public == encoded, "{what}");
            private.fill(1);
            engine.keygen_rows_from_seeds(set, &column, &mut private, None).unwrap();
            assert!(private == expected, "{what}");

            engine.keygen_rows(set, &mut private, Some(&mut public)).unwrap();
            for (private, public) in zip(private.chunks(private_bytes), public.chunks(public_bytes)) {
                let key = S::SigningKey::of_bytes(set, private);
                assert!(S::is_sound(&engine, &key) && S::bytes(&key)[1] == public, "{what}");
            }
            // A private key begins with what was drawn.
            let pieces = || private.chunks(private_bytes).flat_map(|key| key[..seed_bytes].chunks(16));
            assert_eq!(pieces().collect::<BTreeSet<_>>().len(), pieces().count(), "{what}: no two are the same");
        }
    }
    let engine = S::on(&S::double(1, 1)).build().unwrap();
    let (of_private, of_public) = (private_bytes, public_bytes);
    for (private, public) in
        [(of_private - 1, of_public), (of_private, of_public - 1), (0, of_public), (2 * of_private, of_public)]
    {
        let (mut private, mut public) = (vec![1; private], vec![1; public]);
        let why = engine.keygen_rows(set, &mut private, Some(&mut public)).unwrap_err().to_string();
        assert!(is_zero(&private) && is_zero(&public) && why.contains("the column of "), "{why}");
    }
    for (seeds, rows) in [(seed_bytes - 1, 1), (seed_bytes, 2)] {
        let (mut private, mut public) = memory(rows);
        let why = engine.keygen_rows_from_seeds(set, &vec![0; seeds], &mut private, Some(&mut public)).unwrap_err();
        assert!(why.to_string().contains("the seeds"), "{why}");
    }
}

/// Seeds, the same in a column, and their keys.
fn seeds_and_keys<S: Tested>(count: usize) -> (Vec<S::Seeds>, Vec<u8>, Vec<S::SigningKey>) {
    let numbers = || (0..count).map(|i| i as u8);
    let (seeds, size) = (numbers().map(S::seeds).collect::<Vec<_>>(), S::tested().sizes().seeds);
    let mut column = vec![0; count * size];
    zip(&seeds, column.chunks_mut(size)).for_each(|(seeds, to)| S::write_seeds(seeds, to));
    (seeds, column, numbers().map(S::key).collect())
}

/// The columns of private and of public keys.
fn columns_of<S: Tested>(keys: &[S::SigningKey]) -> [Vec<u8>; 2] {
    [0, 1].map(|which| keys.iter().flat_map(|key| S::bytes(key)[which].clone()).collect())
}

/// Stops a call at once, and keeps the number of completed rows.
fn stop(stopped: &mut usize) -> impl FnMut(usize) -> ControlFlow<()> {
    |done| {
        assert_eq!(*stopped, 0, "nothing is reported after the stop");
        *stopped = done;
        ControlFlow::Break(())
    }
}

pub(crate) fn progress_counts_rows_and_stops_a_call<S: Tested>() {
    let (set, key, rows) = (S::tested(), S::key(1), S::LONG);
    let (public, texts) = (public::<S>(&key), texts(rows));
    let slices = slices(&texts);
    let Sizes { private: private_bytes, public: public_bytes, signature: size, .. } = set.sizes();
    let is_counted = |counts: &[usize]| counts.is_sorted_by(|a, b| a < b) && counts.last() == Some(&rows);
    for (what, engine) in engines::<S>() {
        let to_sign = to_sign::<S>(RowSigningKeys::One(&key), Column::Slices(&slices));
        let to_sign = MessageRows { randomizer: Default::default(), ..to_sign };
        let (mut signatures, mut statuses) = (vec![1; rows * size], vec![RowStatus::Valid; rows]);
        let mut counts = vec![0];
        engine.sign_rows_with_progress(&to_sign, &mut signatures, &mut statuses, |done| counts.push(done)).unwrap();
        assert!(is_counted(&counts), "{what}: {counts:?}");
        assert!(is_all(&statuses, RowStatus::Signed), "{what}");

        let column = Column::packed(&signatures, size);
        let to_verify = to_verify::<S>(RowVerifyingKeys::One(&public), Column::Slices(&slices), column);
        let mut stopped = 0;
        engine.verify_rows_with_progress(&to_verify, &mut statuses, stop(&mut stopped)).unwrap();
        assert!(0 < stopped && stopped <= rows, "{what}");
        assert!(is_all(&statuses[..stopped], RowStatus::Valid), "{what}");
        assert!(is_all(&statuses[stopped..], RowStatus::NotComputed), "{what}");

        let mut stopped = 0;
        engine.sign_rows_with_progress(&to_sign, &mut signatures, &mut statuses, stop(&mut stopped)).unwrap();
        assert!(0 < stopped && is_all(&statuses[..stopped], RowStatus::Signed), "{what}");
        assert!(is_all(&statuses[stopped..], RowStatus::NotComputed), "{what}");
        assert!(is_zero(&signatures[stopped * size..]), "{what}");

        let (mut private, mut public) = (vec![1; rows * private_bytes], vec![1; rows * public_bytes]);
        let mut counts = vec![0];
        engine.keygen_rows_with_progress(set, &mut private, Some(&mut public), |done| counts.push(done)).unwrap();
        assert!(is_counted(&counts), "{what}: {counts:?}");
        for (private, public) in zip(private.chunks(private_bytes), public.chunks(public_bytes)) {
            assert!(S::bytes(&S::SigningKey::of_bytes(set, private))[1] == public, "{what}");
        }
        engine.keygen_rows_with_progress(set, &mut private, Some(&mut public), |_| ControlFlow::Break(())).unwrap();
        assert!(is_zero(&private) && is_zero(&public), "{what}: no key is left of a call that stopped");
    }
}

pub(crate) fn each_bad_row_has_a_status_of_its_own<S: Tested>() {
    use RowStatus::{BadOffsets, Invalid, KeyLength, NoSuchKey, SignatureLength, Signed, Valid};
    let (set, keys) = (S::tested(), [1, 2].map(S::key));
    let public = keys.each_ref().map(public::<S>);
    let good = S::reference(&keys[0], b"m");
    let (short, [_, encoded]) = (&good[1..], S::bytes(&keys[0]));
    let (encoded, lengths) = ([&encoded[..], &encoded[1..], &[], &encoded], [&good[..], &good, &good, short]);
    let encoded = RowVerifyingKeys::Encoded { params: set.set(), keys: Column::Slices(&encoded) };
    let of_encoded = |signatures| to_verify::<S>(encoded, Column::packed(b"mmmm", 1), Column::Slices(signatures));
    for (what, engine) in engines::<S>() {
        let offsets = Offsets::I64(&[0, 1, 2, 3, 4, 3, 9, 5]);
        let messages = Column::Variable { bytes: b"mmmmm", offsets };
        let of = [0, 0, 2, 0, 0, 0, u32::MAX];
        let rows = to_sign::<S>(RowSigningKeys::Table { keys: &keys, of: &of }, messages);
        let (signatures, statuses) = sign(&engine, &rows, 7);
        assert_eq!(statuses, [Signed, Signed, NoSuchKey, Signed, BadOffsets, BadOffsets, NoSuchKey], "{what}");
        for (status, signature) in zip(statuses, signatures.chunks(good.len())) {
            assert!(if status == Signed { signature == good } else { is_zero(signature) }, "{what}");
        }

        let bytes = [&good[..], short, &good].concat();
        let sizes = [0, good.len(), good.len() + short.len(), bytes.len(), bytes.len() + 1, 0, -1_i64 as usize];
        let offsets = sizes.map(|at| at as i64);
        let signatures = Column::Variable { bytes: &bytes, offsets: Offsets::I64(&offsets) };
        let table = |of| RowVerifyingKeys::Table { keys: &public, of };
        let rows = to_verify::<S>(table(&[0, 0, 1, 0, 0, 0]), Column::packed(b"mmmmmm", 1), signatures);
        let expected = [Valid, SignatureLength, Invalid, BadOffsets, BadOffsets, BadOffsets];
        assert_eq!(verify(&engine, &rows, 6), expected, "{what}");
        let rows = SignatureRows { keys: table(&[0, 2, 0, 9, 1, 1]), ..rows };
        let expected = [Valid, NoSuchKey, Valid, NoSuchKey, BadOffsets, BadOffsets];
        assert_eq!(verify(&engine, &rows, 6), expected, "{what}");

        let rows = of_encoded(&lengths);
        assert_eq!(verify(&engine, &rows, 4), [Valid, KeyLength, KeyLength, SignatureLength], "{what}");
    }
    // All of them bad: no device is asked.
    let idle = S::double(1, 1);
    let engine = S::on(&idle).build().unwrap();
    let rows = of_encoded(&[b"", b"", b"", b""]);
    assert_eq!(verify(&engine, &rows, 4), [SignatureLength, KeyLength, KeyLength, SignatureLength]);
    let rows = SignatureRows { keys: RowVerifyingKeys::One(&public[0]), ..rows };
    assert_eq!(verify(&engine, &rows, 4), [SignatureLength; 4]);
    assert_eq!(idle.runs(), 0);
}

pub(crate) fn a_damaged_key_damages_its_rows_alone<S: Damageable>() {
    let keys = [S::key(1), S::damaged()];
    let texts = texts(50);
    let slices = slices(&texts);
    let of: Vec<u32> = (0..50).map(|i| u32::from(i % 7 == 0)).collect();
    for (what, engine) in engines::<S>() {
        let rows = to_sign::<S>(RowSigningKeys::Table { keys: &keys, of: &of }, Column::Slices(&slices));
        let (signatures, statuses) = sign(&engine, &rows, 50);
        let signatures = signatures.chunks(signatures.len() / 50);
        for ((of, status), (text, signature)) in zip(zip(&of, statuses), zip(&texts, signatures)) {
            if *of == 1 {
                assert!(status == RowStatus::KeyDamaged && is_zero(signature), "{what}: {status:?}");
            } else {
                let is_right = signature == S::reference(&keys[0], text);
                assert!(status == RowStatus::Signed && is_right, "{what}: {status:?}");
            }
        }
    }
}

/// Rows for `size.0` bytes of signatures and `size.1` statuses are refused.
#[track_caller]
pub(crate) fn refuses_to_sign<S: Scheme>(engine: &Engine, rows: &MessageRows<'_, S>, size: (usize, usize), why: &str) {
    let (mut signatures, mut statuses) = (vec![1; size.0], vec![RowStatus::Signed; size.1]);
    let error = engine.sign_rows(rows, &mut signatures, &mut statuses).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    assert!(is_all(&statuses, RowStatus::NotComputed), "nothing of an earlier call is left");
}

/// Rows for two verdicts are refused.
#[track_caller]
pub(crate) fn refuses_to_verify<S: Scheme>(engine: &Engine, rows: &SignatureRows<'_, S>, why: &str) {
    let mut statuses = [RowStatus::Valid; 2];
    let error = engine.verify_rows(rows, &mut statuses).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    assert!(is_all(&statuses, RowStatus::NotComputed), "nothing of an earlier call is left");
}

pub(crate) fn calls_that_do_not_fit_are_errors<S: Tested>() {
    let (set, keys) = (S::tested(), [1, 2].map(S::key));
    let public = keys.each_ref().map(public::<S>);
    let (engine, size) = (S::on(&S::double(1, 1)).build().unwrap(), set.sizes().signature);
    let good = to_sign::<S>(RowSigningKeys::One(&keys[0]), Column::packed(b"ab", 1));
    refuses_to_sign(&engine, &good, (2 * size, 3), "the column of messages: it has 2 rows, the call has 3");
    refuses_to_sign(&engine, &good, (2 * size - 1, 2), "the memory for signatures");
    let many = Column::Packed { bytes: b"ab", width: 1, stride: 1, rows: 1 << 32 };
    let many = MessageRows { messages: S::column(many), ..good };
    refuses_to_sign(&engine, &many, (2 * size, 2), "it has 4294967296 rows");
    let table = |keys, of| MessageRows { keys: RowSigningKeys::Table { keys, of }, ..good };
    refuses_to_sign(&engine, &table(&[], &[0, 0]), (2 * size, 2), "without keys");
    refuses_to_sign(&engine, &table(&keys, &[0]), (2 * size, 2), "key indices");

    let signatures = Column::Slices(&[b"", b""]);
    let good = to_verify::<S>(RowVerifyingKeys::One(&public[0]), Column::packed(b"ab", 1), signatures);
    let messages = S::column(Column::packed(b"abc", 1));
    let three = SignatureRows { messages, ..good };
    refuses_to_verify(&engine, &three, "messages: it has 3 rows, the call has 2");
    let one = SignatureRows { signatures: Column::Slices(&[b""]), ..good };
    refuses_to_verify(&engine, &one, "the column of signatures");
    let width = set.sizes().public;
    let bytes = vec![0; 2 * width];
    let overlap = Column::Packed { bytes: &bytes, width, stride: 16, rows: 2 };
    let keys = RowVerifyingKeys::Encoded { params: set.set(), keys: overlap };
    refuses_to_verify(&engine, &SignatureRows { keys, ..good }, "the rows overlap");
    let table = |keys, of| SignatureRows { keys: RowVerifyingKeys::Table { keys, of }, ..good };
    refuses_to_verify(&engine, &table(&[], &[0, 0]), "without keys");
    refuses_to_verify(&engine, &table(&public, &[]), "key indices");
}

/// The fault of the first of some doubles.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Broken {
    Fails,
    /// Its signatures are wrong.
    Lies,
    Panics,
}

/// Doubles, the first of which is broken from this run on.
fn faulty<S: Tested>(count: u32, broken: Broken, from: usize) -> Mock {
    S::double(count, 2).answering(move |call| match broken {
        _ if call.device > 0 || call.nth < from => Ok(()),
        Broken::Fails => call.fails("dead"),
        Broken::Panics => panic!("a broken backend"),
        Broken::Lies => {
            if call.op == Some(Op::Sign) {
                call.out[50] ^= 1;
            }
            Ok(())
        }
    })
}

fn is_dead(error: &Error) -> bool {
    matches!(error, Error::Device { what, .. } if what == "dead")
}

/// The first of two devices was disabled for errors like this, and no other fault was found.
#[track_caller]
fn is_blamed(engine: &Engine, like: impl Fn(&Error) -> bool) {
    let faults = engine.faults();
    // Both programs that the device had in flight may be faulty.
    assert!((1..=2).contains(&faults.len()), "{faults:?}");
    for Fault { device, error, jobs } in &faults {
        assert!(device.index == 0 && error.to_string().contains(&device.id()), "{faults:?}");
        assert!(like(error) && *jobs > 0, "{faults:?}");
    }
    assert_eq!(engine.devices().iter().map(|device| device.index).collect::<Vec<_>>(), [1]);
}

/// Rows, jobs and keys of a device that fails, or computes wrongly, are done by another.
pub(crate) fn devices_that_fail_lose_no_row_and_no_job<S: Tested>() {
    let (set, key, texts) = (S::tested(), S::key(1), texts(S::LONG));
    let slices = slices(&texts);
    let rows = to_sign::<S>(RowSigningKeys::One(&key), Column::Slices(&slices));
    let jobs = || texts.iter().map(|text| job::<S>(&key, text));
    let expected: Vec<u8> = texts.iter().flat_map(|text| S::reference(&key, text)).collect();
    let cases = [
        (Broken::Fails, 3, false),
        (Broken::Lies, 3, false),
        // The first or the second of two results is wrong. A device with memory of its own may compare them by itself.
        (Broken::Lies, 2, true),
        (Broken::Lies, 3, true),
    ];
    for (broken, from, redundant) in cases {
        let like = |error: &Error| match error {
            Error::Inconsistent { what, .. } if redundant => what.starts_with("the output of Sign of job"),
            Error::Inconsistent { .. } => broken == Broken::Lies,
            error => broken == Broken::Fails && is_dead(error),
        };
        let on_two = || {
            let mut double = faulty::<S>(2, broken, from);
            double.memory = if redundant { 1 << 30 } else { double.memory };
            let verifies = broken == Broken::Lies && !redundant;
            let builder = S::on(&double).verify_signatures(verifies).redundant(redundant);
            (builder.build().unwrap(), double)
        };
        let (engine, double) = on_two();
        let (signatures, statuses) = sign(&engine, &rows, S::LONG);
        assert!(signatures == expected && is_all(&statuses, RowStatus::Signed));
        is_blamed(&engine, like);
        if redundant {
            assert!(double.shares().iter().sum::<usize>() >= 2 * S::LONG, "everything is computed twice");
            continue;
        }
        let (engine, _) = on_two();
        assert!(bytes_of::<S>(engine.sign_batch_to_vec(jobs()).unwrap()) == expected);
        is_blamed(&engine, like);

        let ((engine, _), mut signed) = (on_two(), Vec::new());
        let each = |index, signature| {
            assert_eq!(index, signed.len(), "results in order, each once");
            signed.push(signature);
        };
        engine.sign_batch(jobs(), each).unwrap();
        assert!(bytes_of::<S>(signed) == expected);
        is_blamed(&engine, like);
    }

    let (seeds, column, keys) = seeds_and_keys::<S>(S::LONG);
    let [expected, _] = columns_of::<S>(&keys);
    let engine = || S::on(&faulty::<S>(2, Broken::Fails, 3)).build().unwrap();
    let (of_rows, of_jobs) = (engine(), engine());
    let mut private = vec![1; expected.len()];
    of_rows.keygen_rows_from_seeds(set, &column, &mut private, None).unwrap();
    assert!(private == expected);
    is_blamed(&of_rows, is_dead);
    assert!(columns_of::<S>(&of_jobs.from_seeds(set, &seeds).unwrap())[0] == expected);
    is_blamed(&of_jobs, is_dead);
}

pub(crate) fn without_a_device_what_was_not_done_says_so<S: Tested>() {
    let (set, key, texts) = (S::tested(), S::key(1), texts(S::LONG));
    let slices = slices(&texts);
    let rows = to_sign::<S>(RowSigningKeys::One(&key), Column::Slices(&slices));
    let jobs = || texts.iter().map(|text| job::<S>(&key, text));
    let expected: Vec<u8> = texts.iter().flat_map(|text| S::reference(&key, text)).collect();
    let Sizes { private, public, signature: size, .. } = set.sizes();
    let ends = |broken, call: &mut dyn FnMut(&Engine) -> Result<(), Error>| {
        let engine = S::on(&faulty::<S>(1, broken, 3)).build().unwrap();
        match catch_unwind(AssertUnwindSafe(|| call(&engine))) {
            Ok(result) => {
                let why = result.unwrap_err();
                assert!(
                    broken == Broken::Fails && is_dead(&why) && why.to_string().contains(&engine.device().id()),
                    "{why}"
                );
            }
            Err(_) => assert_eq!(broken, Broken::Panics),
        }
    };
    for broken in [Broken::Fails, Broken::Panics] {
        let (mut signatures, mut statuses) = (vec![1; expected.len()], vec![RowStatus::Valid; S::LONG]);
        ends(broken, &mut |engine| engine.sign_rows(&rows, &mut signatures, &mut statuses));
        let done = statuses.iter().take_while(|status| **status == RowStatus::Signed).count();
        assert!(done < S::LONG && is_all(&statuses[done..], RowStatus::NotComputed));
        let (signed, others) = signatures.split_at(done * size);
        assert!(signed == &expected[..signed.len()] && is_zero(others));

        let (mut private, mut public) = (vec![1; 100 * private], vec![1; 100 * public]);
        ends(broken, &mut |engine| engine.keygen_rows(set, &mut private, Some(&mut public)));
        assert!(is_zero(&private) && is_zero(&public));
    }
    let lies = S::on(&faulty::<S>(1, Broken::Lies, 0)).verify_signatures(true).build().unwrap();
    assert!(matches!(lies.sign_batch_to_vec(jobs()).map(drop), Err(Error::Inconsistent { .. })));

    // The last device is tried again.
    let fails = Arc::new(AtomicBool::new(true));
    let now = fails.clone();
    let both = S::double(2, 2).answering(move |call| if now.load(SeqCst) { call.fails("dead") } else { Ok(()) });
    let engine = S::on(&both).build().unwrap();
    assert!(engine.sign_batch_to_vec(jobs()).is_err_and(|why| is_dead(&why)));
    assert!(engine.run(job::<S>(&key, b"m")).is_err_and(|why| is_dead(&why)));
    assert!(engine.from_seeds(set, &[S::seeds(1)]).is_err_and(|why| is_dead(&why)));
    assert_eq!(engine.devices().len(), 1);
    fails.store(false, SeqCst);
    assert!(engine.run(job::<S>(&key, b"m")).unwrap().into() == S::reference(&key, b"m"));
}

pub(crate) fn sets_of_rows_give_what_their_calls_give<S: Tested>() {
    use RowStatus::{Invalid, Signed, Valid};
    const MESSAGES: Column<'_> = Column::Slices(&[b"a", b"b", b"c", b"d", b"e"]);
    let Sizes { private, public, signature, .. } = S::tested().sizes();
    for (what, engine) in engines::<S>() {
        let (_, seeds, keys) = seeds_and_keys::<S>(5);
        let made = (seeds, vec![1; 5 * private], vec![1; 5 * public]);
        let made = RowSet::<_, S>::new(made, |(seeds, private, public)| CallColumns::Keygen {
            params: S::tested().set(),
            seeds: Some(seeds),
            private,
            public: Some(public),
        });
        let (_, private, public) = engine.submit(made).unwrap().wait().unwrap();
        assert!([&private, &public] == columns_of::<S>(&keys).each_ref(), "{what}");

        let signed = (keys, vec![1; 5 * signature], [Valid; 5]);
        let signed = RowSet::<_, S>::new(signed, |(keys, signatures, statuses)| {
            let rows = to_sign(RowSigningKeys::Table { keys, of: &[0, 1, 2, 3, 4] }, MESSAGES);
            CallColumns::Sign { rows, signatures, statuses }
        });
        let (keys, mut signatures, statuses) = engine.submit(signed).unwrap().wait().unwrap();
        let right = zip(&keys, b"abcde".chunks(1)).flat_map(|(key, message)| S::reference(key, message));
        assert!(statuses == [Signed; 5] && right.eq(signatures.iter().copied()), "{what}");

        signatures[2 * signature] ^= 1;
        let judged = RowSet::<_, S>::new((public, signatures, [Signed; 5]), |(public, signatures, statuses)| {
            let packed = |bytes| Column::packed(bytes, bytes.len() / 5);
            let keys = RowVerifyingKeys::Encoded { params: S::tested().set(), keys: packed(public) };
            CallColumns::Verify { rows: to_verify(keys, MESSAGES, packed(signatures)), statuses }
        });
        let (.., verdicts) = engine.submit(judged).unwrap().wait().unwrap();
        assert_eq!(verdicts, [Valid, Valid, Invalid, Valid, Valid], "{what}");
        assert_eq!(engine.stats().tickets.submitted, 3);
    }
}
