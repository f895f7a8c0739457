//! Rows of zkDilithium: those of any scheme, field elements, where devices write signatures, and sets that share launches.

use crate::common::{Mock, OnMock, zk_mock};
use crate::rows_suite::*;
use hypergrove::rows::{Column, Offsets, RowSet, RowSigningKeys, RowStatus};
use hypergrove::zkdilithium::params::{MUSIZE, PK_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{
    Fe, JobMessage, Message, RowCall, RowMessages, RowVerifyingKeys, SignRows, SigningKey, VerifyRows, VerifyingKey,
    ZkDilithium as Set,
};
use hypergrove::{Engine, EngineBuilder, Error, Isa};
use std::iter::zip;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

impl Tested for Set {
    const LONG: usize = 200;

    fn tested() -> Set {
        Set
    }
    fn isas() -> Vec<Isa> {
        Isa::available()
    }
    fn double(count: u32, queue: u32) -> Mock {
        Mock { memory: 1 << 30, ..zk_mock(count, queue) }
    }
    fn seeds(of: u8) -> [u8; 32] {
        [of; 32]
    }
    fn key(of: u8) -> SigningKey {
        SigningKey::from_seed(&[of; 32])
    }
    fn bytes(key: &SigningKey) -> [Vec<u8>; 2] {
        [key.to_bytes().to_vec(), key.verifying_key().as_bytes().to_vec()]
    }
    fn is_sound(_: &Engine, key: &SigningKey) -> bool {
        key.check().is_ok()
    }
    fn reference(key: &SigningKey, message: &[u8]) -> Vec<u8> {
        key.sign_message(Message::Bytes(message)).unwrap().into_bytes()
    }
    fn column(messages: Column<'_>) -> RowMessages<'_> {
        messages.into()
    }
    fn message(message: &[u8]) -> JobMessage<'_> {
        message.into()
    }
}

impl Damageable for Set {
    fn damaged() -> SigningKey {
        let mut bytes = Set::key(1).to_bytes().to_vec();
        bytes[1000] ^= 1;
        SigningKey::from_bytes_unchecked(&bytes).unwrap()
    }
}

rows_suite!(Set);

/// Two devices that compute what the reference does, eight jobs at a time.
fn sound() -> Mock {
    Mock { name: "gpu", ..Set::double(2, 2) }
}

#[test]
fn rows_of_one_key_and_of_field_elements() {
    let key = &Set::key(1);
    let public = key.verifying_key();
    let elements: Vec<[Fe; MUSIZE]> = (0..40).map(|i| [Fe::new(i); MUSIZE]).collect();
    for (what, engine) in engines::<Set>() {
        let last = &elements[39];
        let kinds =
            [(RowMessages::Blocks(&elements), Message::Block(last)), (RowMessages::Mus(&elements), Message::Mu(last))];
        for (messages, last) in kinds {
            let rows = SignRows::new(RowSigningKeys::One(key), messages);
            let (signatures, statuses) = sign(&engine, &rows, 40);
            assert_eq!(statuses, [RowStatus::Signed; 40], "{what}");
            let alone = key.sign_message(last).unwrap();
            assert!(signatures.ends_with(alone.as_bytes()), "{what}");
            let signatures = Column::packed(&signatures, SIG_BYTES);
            let rows = VerifyRows::new(RowVerifyingKeys::One(&public), messages, signatures);
            assert_eq!(verify(&engine, &rows, 40), [RowStatus::Valid; 40], "{what}");
        }
    }
}

#[test]
fn as_many_field_elements_as_rows_are_signed() {
    let (engine, key) = (sound().engine(), Set::key(1));
    let rows = SignRows::new(RowSigningKeys::One(&key), RowMessages::Mus(&[[Fe::ZERO; MUSIZE]]));
    refuses_to_sign(&engine, &rows, (2 * SIG_BYTES, 2), "the list of messages");
}

/// Signatures without a later check go to the caller's memory at once, also between rows that cannot be signed. Others go there when they
/// were checked.
#[test]
fn signatures_go_to_their_rows_when_they_are_checked() {
    use RowStatus::{BadOffsets, KeyDamaged, Signed};
    let keys = [Set::key(1), Set::damaged()];
    let right = Set::reference(&keys[0], b"m");
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
        let (signatures, statuses) = sign(&engine, &rows, 20);
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

/// If no device can prepare a program, that is an error of the call, and no status of its rows.
#[test]
fn a_kind_that_no_device_takes_is_an_error_of_the_call() {
    let full = || Error::OutOfMemory { device: "gpu:0".into(), needs: 2, has: 1 };
    let gpu = Mock { count: 1, ..sound() }.preparing(move |_| Err(full()));
    let (engine, key) = (gpu.builder().build().unwrap(), Set::key(1));
    let rows = SignRows::new(RowSigningKeys::One(&key), Column::packed(b"ab", 1));
    let (mut signatures, mut statuses) = (vec![1; 2 * SIG_BYTES], [RowStatus::Signed; 2]);
    let mut progress = 0;
    let done = engine.sign_rows_with_progress(&rows, &mut signatures, &mut statuses, |rows| progress = rows);
    assert!(matches!(done, Err(Error::OutOfMemory { .. })), "{done:?}");
    assert!(is_zero(&signatures) && statuses == [RowStatus::NotComputed; 2] && progress == 0);
}

/// The memory budget counts no signature that the caller has memory for, and no more chunks than zkDilithium has in flight.
#[test]
fn chunks_are_as_large_as_the_budget_allows() {
    let key = &Set::key(1);
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
                    let dead = Error::Device { device: "gpu:0".into(), what: "dead".into() };
                    let is_lost = |result: Result<Letters, Error>| result.map(drop).unwrap_err() == dead;
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
