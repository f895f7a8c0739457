//! Columns and results in memory that others may write to: each byte is read once, and nothing is left of results that are not trusted.

use crate::common::{Mock, OnMock, P, PURE, key, mock, quick_mock};
use hypergrove::rows::{
    Column, ForeignMemory, ForeignRows, RowCall, RowMemory, RowSet, RowSigningKeys, RowStatus, RowVerifyingKeys,
    SignRows, VerifyRows,
};
use hypergrove::*;
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};

/// Rows that count how often each of their bytes is read.
#[derive(Debug)]
struct Watched {
    values: Vec<Vec<(AtomicU8, AtomicUsize)>>,
    width: Option<usize>,
}

impl Watched {
    /// A list of values, or an array of them.
    fn of(values: &[Vec<u8>], is_array: bool) -> Watched {
        let watched = |value: &Vec<u8>| value.iter().map(|byte| ((*byte).into(), AtomicUsize::new(0))).collect();
        let width = is_array.then(|| values.first().map_or(0, Vec::len));
        Watched { values: values.iter().map(watched).collect(), width }
    }

    /// How often each row was read, all of it as often.
    fn reads(&self) -> Vec<usize> {
        let of = |row: &Vec<(AtomicU8, AtomicUsize)>| {
            let reads = row.first().map_or(0, |(_, reads)| reads.load(SeqCst));
            assert!(row.iter().all(|(_, others)| others.load(SeqCst) == reads));
            reads
        };
        self.values.iter().map(of).collect()
    }
}

impl ForeignRows for Watched {
    fn rows(&self) -> usize {
        self.values.len()
    }
    fn length(&self, row: usize) -> usize {
        self.values[row].len()
    }
    fn width(&self) -> Option<usize> {
        self.width
    }
    fn copy(&self, first: usize, to: &mut [u8], _: bool) {
        let mut from = self.values[first..].iter().flatten();
        for to in to {
            let (byte, reads) = from.next().unwrap();
            *to = byte.load(SeqCst);
            reads.fetch_add(1, SeqCst);
        }
    }
}

#[derive(Debug)]
struct Shared(Vec<AtomicU8>);

impl Shared {
    fn new(bytes: usize) -> Shared {
        Shared((0..bytes).map(|_| AtomicU8::new(1)).collect())
    }
    fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(SeqCst)).collect()
    }
}

impl ForeignMemory for Shared {
    fn size(&self) -> usize {
        self.0.len()
    }
    fn store(&self, at: usize, from: &[u8]) {
        self.0[at..][..from.len()].iter().zip(from).for_each(|(to, from)| to.store(*from, SeqCst));
    }
}

fn discrete(memory: u64) -> Mock {
    Mock { memory, jobs: 64, ..quick_mock(2, 2) }
}

fn engines() -> Vec<(&'static str, Engine)> {
    let cpu = |threads| Engine::builder().backend(Arc::new(Cpu::new())).threads(threads);
    vec![
        ("the CPU", cpu(2).build().unwrap()),
        ("one thread", cpu(1).build().unwrap()),
        ("verified", cpu(2).verify_signatures(true).build().unwrap()),
        ("redundant", cpu(2).redundant(true).build().unwrap()),
        ("little memory", cpu(2).memory_budget(1 << 20).build().unwrap()),
        ("two devices", quick_mock(2, 2).engine()),
        ("discrete devices", discrete(1 << 30).engine()),
        ("redundant discrete devices", discrete(1 << 30).builder().redundant(true).build().unwrap()),
    ]
}

/// Messages of one length or of many.
fn messages(count: usize, is_array: bool) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i as u8; if is_array { 7 } else { i % 40 }]).collect()
}

/// Rows that one key signs, always in the same way.
fn rows_of<'a>(key: &'a SigningKey, messages: &'a Watched) -> SignRows<'a> {
    SignRows {
        keys: RowSigningKeys::One(key),
        mode: PURE,
        messages: Column::Foreign(messages),
        randomizer: Randomizer::Deterministic,
    }
}

fn signatures(key: &SigningKey, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
    let jobs = messages.iter().map(|message| SignJob::new(key, message).deterministic());
    engine.sign_batch_to_vec(jobs).unwrap().into_iter().map(|signature| signature.unwrap().into_bytes()).collect()
}

#[test]
fn each_byte_is_read_once() {
    let (one, public) = (key(1), key(1).verifying_key());
    for (what, engine) in engines() {
        for (count, is_array) in [(0, true), (1, false), (70, true), (300, true), (300, false)] {
            let texts = messages(count, is_array);
            let expected = signatures(&one, &texts);
            let case = format!("{what}, {count} rows, an array: {is_array}");
            let watched = Watched::of(&texts, is_array);
            let rows = rows_of(&one, &watched);
            let (out, mut statuses) = (Shared::new(count * P.sig_bytes()), vec![RowStatus::Valid; count]);
            engine.sign_rows_into(&rows, RowMemory::Foreign(&out), &mut statuses, |_| ()).unwrap();
            assert_eq!(statuses, vec![RowStatus::Signed; count], "{case}");
            assert!(out.bytes() == expected.concat(), "{case}");
            assert!(watched.reads().iter().zip(&texts).all(|(reads, text)| *reads == usize::from(!text.is_empty())));

            // Every fifth signature is not valid, and of a list every seventh has another length.
            let (mut given, mut keys) = (expected, vec![public.to_bytes(); count]);
            let mut verdicts = vec![RowStatus::Valid; count];
            for row in (0..count).step_by(5) {
                (given[row][100], verdicts[row]) = (given[row][100] ^ 1, RowStatus::Invalid);
            }
            let is_cut = |row: usize| !is_array && row % 7 == 3;
            for row in (0..count).filter(|row| is_cut(*row)) {
                let cut = if row % 2 == 0 { &mut given[row] } else { &mut keys[row] };
                cut.pop();
                verdicts[row] = if row % 2 == 0 { RowStatus::SignatureLength } else { RowStatus::KeyLength };
            }
            let columns = [&given, &texts, &keys].map(|values| Watched::of(values, is_array));
            let [of_signatures, of_messages, of_keys] = &columns;
            let rows = VerifyRows {
                keys: RowVerifyingKeys::Encoded { params: P, keys: Column::Foreign(of_keys) },
                mode: PURE,
                messages: Column::Foreign(of_messages),
                signatures: Column::Foreign(of_signatures),
            };
            engine.verify_rows(&rows, &mut statuses).unwrap();
            assert_eq!(statuses, verdicts, "{case}");
            for (column, wanted) in columns.iter().zip([Some(P.sig_bytes()), None, Some(P.pk_bytes())]) {
                let expected = column.values.iter().map(|value| match wanted {
                    Some(wanted) => usize::from(value.len() == wanted),
                    None => usize::from(!value.is_empty()),
                });
                assert!(column.reads().into_iter().eq(expected), "{case}");
            }
        }
    }
}

/// Empty messages in foreign memory are signed: one row, which one thread reads, and as many rows as all threads read together.
#[test]
fn empty_messages_are_signed() {
    let (one, engine) = (key(1), Engine::builder().backend(Arc::new(Cpu::new())).threads(2).build().unwrap());
    let expected = signatures(&one, &[Vec::new()]).remove(0);
    for count in [1, 1100] {
        let watched = Watched::of(&vec![Vec::new(); count], false);
        let (mut out, mut statuses) = (vec![0; count * P.sig_bytes()], vec![RowStatus::Valid; count]);
        engine.sign_rows(&rows_of(&one, &watched), &mut out, &mut statuses).unwrap();
        assert_eq!(statuses, vec![RowStatus::Signed; count]);
        assert!(out.chunks(P.sig_bytes()).all(|signature| *signature == expected));
    }
}

/// A column that is no array of the right width is refused row by row, without a copy.
#[test]
fn rows_of_another_width_are_not_read() {
    let (texts, public) = (messages(20, true), key(1).verifying_key());
    let (of_signatures, of_messages) = (Watched::of(&texts, true), Watched::of(&texts, true));
    let rows = VerifyRows {
        keys: RowVerifyingKeys::One(&public),
        mode: PURE,
        messages: Column::Foreign(&of_messages),
        signatures: Column::Foreign(&of_signatures),
    };
    for (_, engine) in engines() {
        let mut statuses = [RowStatus::Valid; 20];
        engine.verify_rows(&rows, &mut statuses).unwrap();
        assert_eq!(statuses, [RowStatus::SignatureLength; 20]);
        let mut few = [RowStatus::Valid; 19];
        assert!(engine.verify_rows(&rows, &mut few).unwrap_err().to_string().contains("it has 20 rows"));
    }
    assert!(of_signatures.reads().iter().all(|reads| *reads == 0));
}

/// Rows that a device lost are copied again by the device that does them again, and nowhere else.
#[test]
fn rows_that_are_done_again_are_read_once_for_each_time() {
    let one = key(1);
    let texts = messages(500, true);
    let expected = signatures(&one, &texts).concat();
    let lies = discrete(1 << 30);
    lies.wrong_roots.store(1, SeqCst);
    let dies = discrete(0).answering(|call| match call.device {
        0 if call.op == Some(Op::Sign) && call.out.len() >= 16 * P.sig_bytes() => call.fails("dead"),
        _ => Ok(()),
    });
    for (what, device) in [("lies", lies), ("dies", dies)] {
        let (engine, watched) = (device.engine(), Watched::of(&texts, true));
        let rows = rows_of(&one, &watched);
        let (out, mut statuses) = (Shared::new(500 * P.sig_bytes()), [RowStatus::Valid; 500]);
        engine.sign_rows_into(&rows, RowMemory::Foreign(&out), &mut statuses, |_| ()).unwrap();
        assert!(statuses == [RowStatus::Signed; 500] && out.bytes() == expected);
        let (reads, again) = (watched.reads(), engine.stats().retried_jobs as usize);
        assert!(!engine.faults().is_empty() && again > 0, "it {what}");
        assert_eq!(reads.iter().sum::<usize>(), 500 + again);
        assert!(reads.iter().all(|reads| *reads >= 1));
    }
}

/// Whatever ends a call, memory of rows that were not handed out is zero.
#[test]
fn nothing_is_left_of_a_call_that_ends() {
    let one = key(1);
    let texts = messages(300, true);
    let expected = signatures(&one, &texts).concat();
    for (what, engine) in engines() {
        for panics in [false, true] {
            let watched = Watched::of(&texts, true);
            let rows = rows_of(&one, &watched);
            let (out, mut statuses) = (Shared::new(300 * P.sig_bytes()), vec![RowStatus::Valid; 300]);
            let call = AssertUnwindSafe(|| {
                engine.sign_rows_into(&rows, RowMemory::Foreign(&out), &mut statuses, |_| match panics {
                    true => panic!("the sink"),
                    false => ControlFlow::<()>::Break(()),
                })
            });
            assert_eq!(catch_unwind(call).is_err(), panics, "{what}");
            let done = statuses.iter().take_while(|status| **status == RowStatus::Signed).count();
            assert!(statuses[done..].iter().all(|status| *status == RowStatus::NotComputed), "{what}");
            let (signed, others) = (done * P.sig_bytes(), out.bytes());
            assert!(others[..signed] == expected[..signed] && others[signed..].iter().all(|byte| *byte == 0));
            assert!(watched.reads().iter().all(|reads| *reads <= 1), "{what}");
        }
    }
    let dead = mock(1, 1).answering(|call| call.fails("dead")).engine();
    let watched = Watched::of(&texts, true);
    let rows = rows_of(&one, &watched);
    let (out, mut statuses) = (Shared::new(300 * P.sig_bytes()), vec![RowStatus::Valid; 300]);
    dead.sign_rows_into(&rows, RowMemory::Foreign(&out), &mut statuses, |_| ()).unwrap_err();
    assert!(out.bytes().iter().all(|byte| *byte == 0) && statuses == vec![RowStatus::NotComputed; 300]);
    // An argument that is refused changes nothing.
    let short = Shared::new(5);
    let refused = dead.sign_rows_into(&rows, RowMemory::Foreign(&short), &mut statuses, |_| ());
    assert!(matches!(refused, Err(Error::Length { .. })) && short.bytes() == [1; 5]);
}

/// Sets that wait together share chunks, whatever their columns are.
#[test]
fn sets_share_chunks() {
    struct Set(SigningKey, Vec<Vec<u8>>, Option<Arc<Watched>>, Vec<u8>, Vec<RowStatus>);
    fn lend(set: &mut Set) -> RowCall<'_> {
        let Set(key, _, watched, signatures, statuses) = set;
        let messages = match watched {
            Some(watched) => Column::Foreign(&**watched),
            None => Column::packed(b"1234567", 7),
        };
        let keys = RowSigningKeys::One(key);
        let rows = SignRows { keys, mode: PURE, messages, randomizer: Randomizer::Deterministic };
        RowCall::Sign { rows, signatures, statuses }
    }
    for (what, engine) in engines() {
        let sets = (0..12_usize).map(|number| {
            let (rows, is_array) = (1 + number * 5, number % 2 == 0);
            let texts = if number == 0 { vec![b"1234567".to_vec()] } else { messages(rows, is_array) };
            let watched = (number > 0).then(|| Arc::new(Watched::of(&texts, is_array)));
            Set(key(number as u8), texts, watched, vec![1; rows * P.sig_bytes()], vec![RowStatus::default(); rows])
        });
        let tickets: Vec<_> = sets.map(|set| engine.submit(RowSet::new(set, lend)).unwrap()).collect();
        for ticket in tickets {
            let Set(key, texts, watched, all, statuses) = ticket.wait().unwrap();
            assert!(statuses.iter().all(|status| *status == RowStatus::Signed), "{what}");
            assert!(all == signatures(&key, &texts).concat(), "{what}");
            let once = |watched: Arc<Watched>| {
                watched.reads().iter().zip(&texts).all(|(reads, text)| *reads == usize::from(!text.is_empty()))
            };
            assert!(watched.is_none_or(once), "{what}");
        }
    }
}

/// Copies take of the memory budget. A row that is larger than a budget nobody chose is done alone.
#[test]
fn copies_take_of_the_budget() {
    let one = key(1);
    let mut texts = messages(40, true);
    texts[17] = vec![9; 3 << 20];
    let expected = signatures(&one, &texts);
    for budget in [None, Some(1 << 20)] {
        let builder = Engine::builder().backend(Arc::new(Cpu::new())).threads(2);
        let engine = budget.map_or(builder.clone(), |bytes| builder.memory_budget(bytes)).build().unwrap();
        let watched = Watched::of(&texts, false);
        let rows = rows_of(&one, &watched);
        let (mut all, mut statuses) = (vec![1; 40 * P.sig_bytes()], [RowStatus::default(); 40]);
        engine.sign_rows(&rows, &mut all, &mut statuses).unwrap();
        for (row, signature) in all.chunks(P.sig_bytes()).enumerate() {
            let is_refused = budget.is_some() && row == 17;
            let status = if is_refused { RowStatus::OutOfMemory } else { RowStatus::Signed };
            assert_eq!(statuses[row], status, "row {row}");
            assert!(if is_refused { signature.iter().all(|byte| *byte == 0) } else { signature == expected[row] });
            assert_eq!(watched.reads()[row], usize::from(!is_refused));
        }
    }
}

/// One long message makes no small groups of the others: rows are copied together as long as they fit.
#[test]
fn rows_are_copied_together_by_their_own_length() {
    let host = Mock { jobs: 200, ..mock(1, 1) };
    let (engine, one) = (host.builder().threads(1).memory_budget(1 << 30).build().unwrap(), key(1));
    // One thread copies 4 MiB at a time.
    let mut texts = vec![vec![1; 100_000]; 100];
    texts.push(vec![2; 5 << 20]);
    let watched = Watched::of(&texts, false);
    let (mut all, mut statuses) = (vec![0; 101 * P.sig_bytes()], [RowStatus::default(); 101]);
    engine.sign_rows(&rows_of(&one, &watched), &mut all, &mut statuses).unwrap();
    assert!(statuses == [RowStatus::Signed; 101] && watched.reads() == [1; 101]);
    let mut runs: Vec<usize> = host.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect();
    runs.sort_unstable();
    assert_eq!(runs, [1, 18, 41, 41], "one group for each 4 MiB, and one for the long row");
}

/// Memory for copies that a device reaches is kept for the next call.
#[test]
fn memory_that_devices_reach_is_kept() {
    let (engine, one) = (discrete(1 << 30).engine(), key(1));
    let texts: Vec<Vec<u8>> = (0..64).map(|i| vec![i; 100_000]).collect();
    let expected = signatures(&one, &texts).concat();
    let mut in_use = Vec::new();
    for _ in 0..3 {
        let watched = Watched::of(&texts, true);
        let rows = rows_of(&one, &watched);
        let (mut all, mut statuses) = (vec![1; 64 * P.sig_bytes()], [RowStatus::default(); 64]);
        engine.sign_rows(&rows, &mut all, &mut statuses).unwrap();
        assert!(all == expected && watched.reads() == [1; 64]);
        in_use.push(engine.stats().memory_in_use);
    }
    assert!(in_use[0] >= 16 << 20 && in_use[0] % (16 << 20) == 0 && in_use[2] <= 5 * (16 << 20), "{in_use:?}");
}

#[test]
fn messages_are_hashed_from_copies() {
    for (_, engine) in engines().into_iter().take(2) {
        for (count, is_array) in [(0, true), (1, false), (1000, true), (1000, false)] {
            let texts = messages(count, is_array);
            let (watched, out) = (Watched::of(&texts, is_array), Shared::new(32 * count));
            let mut statuses = vec![RowStatus::default(); count];
            engine
                .sha256_rows_into(Column::Foreign(&watched), RowMemory::Foreign(&out), &mut statuses, |_| ())
                .unwrap();
            assert_eq!(statuses, vec![RowStatus::Hashed; count]);
            assert!(out.bytes() == texts.iter().flat_map(Sha256::digest).collect::<Vec<u8>>());
            assert!(watched.reads().iter().zip(&texts).all(|(reads, text)| *reads == usize::from(!text.is_empty())));
        }
        let texts = [vec![1; 3 << 20], vec![2; 9 << 20], vec![3; 5]];
        let (watched, mut sums) = (Watched::of(&texts, false), [0; 3 * 32]);
        engine.sha256_rows(Column::Foreign(&watched), &mut sums, &mut [RowStatus::default(); 3]).unwrap();
        assert!(sums[..] == texts.iter().flat_map(Sha256::digest).collect::<Vec<u8>>());
        assert!(watched.reads() == [1; 3]);
    }
}
