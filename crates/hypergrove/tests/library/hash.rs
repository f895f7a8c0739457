//! SHA-256 of messages through the engine, and which device takes what.

use crate::common::{Call, Capability, Mock, OnMock, columns, mock};
use hypergrove::backend::THREADS;
use hypergrove::rows::{Column, Offsets, RowStatus};
use hypergrove::{CancelToken, Engine, Error, WorkOptions};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn sum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

fn engine(threads: usize) -> Engine {
    Engine::builder().threads(threads).build().unwrap()
}

/// Hashes messages of `each` bytes, and compares the sums.
fn hash(engine: &Engine, bytes: &[u8], each: usize) {
    let messages = Column::packed(bytes, each);
    let (mut sums, mut statuses) = (vec![[0; 32]; messages.rows()], vec![RowStatus::default(); messages.rows()]);
    engine.sha256_rows(messages, sums.as_flattened_mut(), &mut statuses).unwrap();
    assert!(statuses.iter().all(|status| *status == RowStatus::Hashed), "{each} bytes");
    assert!(bytes.chunks_exact(each).zip(sums).all(|(message, digest)| digest == sum(message)), "{each} bytes");
}

#[test]
fn packed_rows_are_hashed_where_they_are() {
    let data = bytes(2 << 20);
    for threads in [1, 3] {
        for each in [1, 64, 1000, 1 << 19] {
            hash(&engine(threads), &data, each);
            let (messages, mut sums) = (Column::packed(&data, each), vec![0; 32 * (data.len() / each - 1)]);
            let mut statuses = vec![RowStatus::default(); data.len() / each];
            let short = engine(threads).sha256_rows(messages, &mut sums, &mut statuses);
            assert!(matches!(short, Err(Error::Length { .. })));
        }
    }
}

#[test]
fn rows_are_hashed_whatever_the_column_is_like() {
    let data = bytes(1 << 20);
    let small = Engine::builder().memory_budget(1 << 20).build().unwrap();
    for engine in [engine(1), engine(3), small, gpu(|_| Ok(())).engine(), both(&broken())] {
        for (count, longest) in [(0, 1), (1, 1), (3, 500_000), (40_000, 100), (2000, 1)] {
            let length = |i: usize| if longest == 1 { 7 } else { i * i % longest };
            let values: Vec<Vec<u8>> = (0..count).map(|i| data[i..][..length(i)].to_vec()).collect();
            let expected: Vec<u8> = values.iter().flat_map(|value| sum(value)).collect();
            columns(&values, |kind, column| {
                // Earlier content is overwritten.
                let (mut sums, mut statuses) = (vec![1; 32 * count], vec![RowStatus::Signed; count]);
                engine.sha256_rows(column, &mut sums, &mut statuses).unwrap();
                assert!(sums == expected, "{count} messages, {kind}");
                assert_eq!(statuses, vec![RowStatus::Hashed; count], "{count} messages, {kind}");
            });
        }
    }
}

#[test]
fn rows_that_do_not_fit_have_no_sum() {
    let (engine, data) = (engine(1), b"abcdefgh");
    let (mut sums, mut statuses) = ([1; 32 * 7], [RowStatus::Signed; 7]);
    let offsets = [0, 5, 3, 9, -1, 0, 3, 8];
    let column = Column::Variable { bytes: data, offsets: Offsets::I64(&offsets) };
    engine.sha256_rows(column, &mut sums, &mut statuses).unwrap();
    let expected = [Some(&b"abcde"[..]), None, None, None, None, Some(b"abc"), Some(b"defgh")];
    for ((status, sum_of), message) in statuses.iter().zip(sums.chunks(32)).zip(expected) {
        assert_eq!(*status, if message.is_some() { RowStatus::Hashed } else { RowStatus::BadOffsets });
        assert_eq!(sum_of, message.map_or([0; 32], sum));
    }
    // Any number of empty messages.
    let empty = Column::Packed { bytes: b"", width: 0, stride: 0, rows: 7 };
    engine.sha256_rows(empty, &mut sums, &mut statuses).unwrap();
    assert!(sums.chunks(32).all(|of| of == sum(b"")) && statuses == [RowStatus::Hashed; 7]);

    let refused = |column, sums: usize, why: &str| {
        let mut statuses = [RowStatus::Hashed; 2];
        let error = engine.sha256_rows(column, &mut vec![0; sums], &mut statuses).unwrap_err().to_string();
        assert!(error.contains(why) && statuses == [RowStatus::NotComputed; 2], "{error}");
    };
    refused(Column::packed(data, 4), 63, "the memory for sums");
    refused(Column::packed(data, 2), 64, "the column of messages: it has 4 rows, the call has 2");
    refused(Column::Packed { bytes: data, width: 4, stride: 2, rows: 2 }, 64, "the rows overlap");
    refused(Column::Packed { bytes: data, width: 4, stride: 5, rows: 2 }, 64, "do not fit");
    refused(Column::Variable { bytes: data, offsets: Offsets::I32(&[]) }, 64, "it has no offsets");

    // A device that fails without another: what was not hashed says so.
    let alone = broken().engine();
    let (mut sums, mut statuses) = ([1; 64], [RowStatus::Hashed; 2]);
    alone.sha256_rows(Column::packed(data, 4), &mut sums, &mut statuses).unwrap_err();
    assert!(sums == [0; 64] && statuses == [RowStatus::NotComputed; 2]);
}

/// Gives so many bytes, and fails.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = to.len().min(self.0).min(1000);
        self.0 -= bytes;
        if bytes == 0 { Err(io::Error::other("broken")) } else { Ok(bytes) }
    }
}

#[test]
fn what_is_read_is_hashed_where_it_was_read() {
    let data = bytes(3 << 20);
    let lengths = [0, 1, 128 << 10, (128 << 10) + 1, 3 << 20, 77, 1 << 20, 64, 200_000];
    let open = |i: usize| -> io::Result<Box<dyn Read + Send>> {
        match i % 10 {
            3 => Err(io::Error::other("shut")),
            4 => Ok(Box::new(Broken(i * 5000))),
            _ => Ok(Box::new(&data[..lengths[i % lengths.len()]])),
        }
    };
    // With little memory, some messages are longer than any batch of a device.
    let gpu = gpu(|_| Ok(()));
    let small = gpu.builder().memory_budget(1 << 20).build().unwrap();
    for engine in [engine(1), engine(3), gpu.engine(), small] {
        let mut next = 0;
        engine
            .sha256_each(60, open, |i, digest| {
                assert_eq!(i, next);
                next += 1;
                match (i % 10, digest) {
                    (3, Err(error)) => assert_eq!(error.to_string(), "shut"),
                    (4, Err(error)) => assert_eq!(error.to_string(), "broken"),
                    (_, digest) => assert_eq!(digest.unwrap(), sum(&data[..lengths[i % lengths.len()]]), "{i}"),
                }
            })
            .unwrap();
        assert_eq!(next, 60);
    }
}

/// Counts what is open, and is not open beyond a number.
struct Door<'a>(&'a AtomicUsize, &'a [u8]);

impl Door<'_> {
    /// As a system does that has no room for more.
    fn open<'a>(open: &'a AtomicUsize, most: usize, bytes: &'a [u8]) -> io::Result<Door<'a>> {
        let is_open = open.fetch_update(Relaxed, Relaxed, |number| (number < most).then_some(number + 1));
        is_open.map(|_| Door(open, bytes)).map_err(|_| io::Error::from_raw_os_error(24))
    }
}

impl Read for Door<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.1.read(to)
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(unix)]
#[test]
fn files_that_there_is_no_room_for_are_opened_later() {
    let data = bytes(300_000);
    for (threads, most) in [(1, 1), (1, 5), (8, 1), (8, 3), (8, 20)] {
        let open = AtomicUsize::new(0);
        let mut sums = Vec::new();
        engine(threads)
            .sha256_each(200, |i| Door::open(&open, most, &data[i..i * 1500]), |_, digest| sums.push(digest.unwrap()))
            .unwrap();
        assert!((0..200).all(|i| sums[i] == sum(&data[i..i * 1500])), "{threads} threads, {most} open");
    }
    // Two calls that wait for files of their own leave each other the threads.
    let shared = engine(2);
    std::thread::scope(|scope| {
        let call = || {
            let open = AtomicUsize::new(0);
            let mut count = 0;
            shared
                .sha256_each(
                    200,
                    |i| Door::open(&open, 1, &data[i..i * 1500]),
                    |_, digest| count += digest.unwrap().len() / 32,
                )
                .unwrap();
            assert_eq!(count, 200);
        };
        scope.spawn(call);
        call();
    });
    // Where nothing of the call's own is open, waiting would be in vain.
    let none = AtomicUsize::new(0);
    let mut refused = 0;
    engine(3)
        .sha256_each(9, |_| Door::open(&none, 0, &data), |_, digest| refused += usize::from(digest.is_err()))
        .unwrap();
    assert_eq!(refused, 9);
}

/// A device with memory of its own that hashes as its script says, but no messages above 100,000 bytes.
fn gpu(answer: impl Fn(Call<'_>) -> Result<(), Error> + Send + Sync + 'static) -> Mock {
    let (has, delay) = (&[Capability::Sha256], [Duration::ZERO; 4]);
    let gpu = Mock { name: "gpu", has, delay, memory: 1 << 30, longest: 100_000, ..mock(1, 2) };
    gpu.answering(answer).preparing(|it| {
        assert!(it.policy.get(THREADS).is_some());
        Ok(())
    })
}

fn broken() -> Mock {
    gpu(|call| call.fails("no answer"))
}

fn both(gpu: &Mock) -> Engine {
    let cpu = Arc::new(hypergrove::Cpu::new());
    Engine::builder().devices(vec![(cpu, 0), (Arc::new(gpu.clone()), 0)]).build().unwrap()
}

#[test]
fn few_bytes_are_hashed_by_the_host_wherever_it_stands() {
    let (data, gpu) = (bytes(8 << 20), gpu(|_| Ok(())));
    let cpu = Arc::new(hypergrove::Cpu::new());
    let engine = Engine::builder().devices(vec![(Arc::new(gpu.clone()), 0), (cpu, 0)]).build().unwrap();
    hash(&engine, &data[..10 << 10], 1024);
    assert_eq!(gpu.runs(), 0, "it takes longer to ask it");
    hash(&engine, &data, 1024);
    assert!(gpu.runs() > 0, "more bytes are tried there");
}

#[test]
fn a_device_is_measured_once_and_kept_if_it_is_fast() {
    let data = bytes(8 << 20);
    let slow = gpu(|_| {
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    });
    let engine = both(&slow);
    for _ in 0..6 {
        hash(&engine, &data, 1024);
        hash(&engine, &data[..10 << 10], 1024);
    }
    // It is timed once, and two calls are made without the CPU, which took longer.
    assert_eq!(slow.runs(), 3, "the CPU is faster");
}

#[test]
fn devices_share_the_messages_of_a_call() {
    let (data, each) = (bytes(128 << 20), 1024);
    let several = Mock { count: 3, ..gpu(|_| Ok(())) };
    hash(&several.engine(), &data, each);
    let shares = several.shares();
    assert!(shares[..3].iter().all(|messages| *messages > 0), "{shares:?}");
    assert_eq!(shares.iter().sum::<usize>(), data.len() / each, "each message once");
    // The third device does the messages that two others lose.
    let failing = Mock { count: 3, ..gpu(|call| if call.device > 0 { call.fails("no answer") } else { Ok(()) }) };
    let engine = failing.engine();
    hash(&engine, &data, each);
    assert_eq!((engine.faults().len(), failing.shares()), (2, [data.len() / each, 0, 0, 0]));
}

#[test]
fn the_host_does_what_no_device_takes() {
    let data = bytes(2 << 20);
    let gpu = gpu(|_| Ok(()));
    let alone = gpu.engine();
    hash(&alone, &data, 1 << 19);
    hash(&alone, &data[..4000], 1000);
    assert_eq!(gpu.runs(), 1, "the short ones");

    let engine = both(&broken());
    for _ in 0..3 {
        hash(&engine, &data, 1 << 10);
        hash(&engine, &data, 1 << 19);
    }
    assert_eq!(engine.faults().len(), 1, "and was disabled");
}

/// An engine for work that ends after `timeout`, or when the token is cancelled.
fn ending(engine: &Engine, timeout: Option<Duration>) -> (Engine, CancelToken) {
    let token = CancelToken::default();
    let work = WorkOptions { timeout, cancel: Some(token.clone()), ..engine.work_options() };
    (engine.with(work), token)
}

/// Gives zeros without an end, and cancels after a mebibyte.
struct Endless(usize, CancelToken);

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        to.fill(0);
        self.0 += to.len();
        if self.0 > 1 << 20 {
            self.1.cancel();
        }
        Ok(to.len())
    }
}

#[test]
fn no_hashing_begins_after_the_end_of_a_call() {
    let (data, gpu) = (bytes(8 << 20), gpu(|_| Ok(())));
    let small = gpu.builder().memory_budget(1 << 20).build().unwrap();
    for engine in [engine(1), engine(2), gpu.engine(), small] {
        let (late, _) = ending(&engine, Some(Duration::ZERO));
        // A single block, several blocks, and messages that only the host hashes.
        for each in [1 << 10, 1 << 16, 1 << 19] {
            let (mut sums, mut statuses) = (vec![1; 32 * 16], [RowStatus::Hashed; 16]);
            let done = late.sha256_rows(Column::packed(&data[..16 * each], each), &mut sums, &mut statuses);
            assert_eq!(done, Err(Error::DeadlineExceeded), "{each} bytes");
            assert!(sums.iter().all(|byte| *byte == 0) && statuses == [RowStatus::NotComputed; 16]);
        }
        let none = |_, _| panic!("a sum after the end");
        let opened = |_| -> io::Result<&[u8]> { panic!("opened after the end") };
        assert_eq!(late.sha256_each(3, opened, none), Err(Error::DeadlineExceeded));

        let is_cancelled = |done| assert!(matches!(done, Err(Error::Cancelled { .. })), "{done:?}");
        // Readers without an end, of which some are open, and one message without an end.
        let (work, token) = ending(&engine, None);
        let open = |i| {
            if i == 100 {
                token.cancel();
            }
            Ok(&data[..7])
        };
        let mut sums = 0;
        is_cancelled(work.sha256_each(usize::MAX, open, |_, digest| {
            assert_eq!(digest.unwrap(), sum(&data[..7]));
            sums += 1;
        }));
        assert!(sums < usize::MAX);
        let (work, token) = ending(&engine, None);
        is_cancelled(work.sha256_each(1, |_| Ok(Endless(0, token.clone())), none));
        hash(&engine, &data, 1 << 10);
    }
}

/// Rows that are copied are hashed in batches, of which none begins after the end. The time is that of the whole call, not of each batch.
#[test]
fn no_batch_of_rows_begins_after_the_end_of_a_call() {
    let data = bytes(8 << 20);
    let (count, rows) = (8000, Column::Packed { bytes: &data, width: 1000, stride: 1001, rows: 8000 });
    let small = Engine::builder().memory_budget(1 << 20).build().unwrap();
    for timeout in [None, Some(Duration::from_millis(200))] {
        let (work, token) = ending(&small, timeout);
        let (mut sums, mut statuses, mut hashed) = (vec![0; 32 * count], vec![RowStatus::default(); count], 0);
        let done = work.sha256_rows_into(rows, (&mut sums[..]).into(), &mut statuses, |done| {
            hashed = done;
            match timeout {
                Some(time) => std::thread::sleep(time),
                None => token.cancel(),
            }
        });
        assert!(matches!(done, Err(Error::Cancelled { .. } | Error::DeadlineExceeded)), "{done:?}");
        let of = |status| statuses.iter().filter(|of| **of == status).count();
        assert!(hashed > 0, "the first batch is completed");
        assert_eq!((of(RowStatus::Hashed), of(RowStatus::NotComputed)), (hashed, count - hashed));
    }
    // The host hashes messages that no device takes in parts.
    let gpu = gpu(|_| Ok(())).builder().memory_budget(1 << 20).build().unwrap();
    let (late, _) = ending(&gpu, Some(Duration::from_millis(1)));
    let (mut sums, mut statuses, data) = (vec![0; 32 * 16], [RowStatus::Hashed; 16], bytes(32 << 20));
    let done = late.sha256_rows(Column::packed(&data, 2 << 20), &mut sums, &mut statuses);
    assert_eq!(done, Err(Error::DeadlineExceeded));
}
