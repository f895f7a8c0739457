//! SHA-256 of messages through the engine, Merkle trees, and which device takes what.

use crate::common::columns;
use hypergrove::backend::{Axis, Hasher, Policy, Reference, Sha256Programs, THREADS};
use hypergrove::rows::{Column, Offsets, RowStatus};
use hypergrove::{Backend, Device, Engine, Error, MerkleTree, Messages, Timing};
use hypergrove_engine::{capabilities, forward};
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

#[test]
fn batches() {
    let data = bytes(2 << 20);
    for threads in [1, 3] {
        let engine = engine(threads);
        for each in [1, 64, 1000, 1 << 19] {
            let messages = Messages::equal(&data[..data.len() / each * each], each).unwrap();
            let mut digests = vec![[0; 32]; messages.len()];
            engine.sha256_batch(messages, &mut digests).unwrap();
            assert!((0..messages.len()).all(|i| digests[i] == sum(messages.get(i))), "{each} bytes, {threads} threads");
            assert!(matches!(engine.sha256_batch(messages, &mut digests[1..]), Err(Error::Length { .. })));
        }
    }
}

#[test]
fn rows_are_hashed_whatever_the_column_is_like() {
    let data = bytes(1 << 20);
    let small = Engine::builder().memory_budget(1 << 20).build().unwrap();
    let gpu = Engine::builder().backend(Arc::new(Gpu::new(Duration::ZERO))).build().unwrap();
    let broken = both(&Gpu { fails: true, ..Gpu::new(Duration::ZERO) });
    for engine in [engine(1), engine(3), small, gpu, broken] {
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
    let broken = Gpu { fails: true, ..Gpu::new(Duration::ZERO) };
    let alone = Engine::builder().backend(Arc::new(broken)).build().unwrap();
    let (mut sums, mut statuses) = ([1; 64], [RowStatus::Hashed; 2]);
    alone.sha256_rows(Column::packed(data, 4), &mut sums, &mut statuses).unwrap_err();
    assert!(sums == [0; 64] && statuses == [RowStatus::NotComputed; 2]);
}

#[test]
fn streams_stay_in_order_and_within_memory() {
    let data = bytes(1 << 20);
    let engine = Engine::builder().memory_budget(1 << 20).build().unwrap();
    // Room is a quarter of the budget: batches, and messages that are longer than any.
    let lengths: Vec<usize> = (0..600).map(|i| if i % 97 == 5 { 300_000 + i } else { i * i % 3000 }).collect();
    let mut digests = Vec::new();
    let mut stream = engine.sha256_stream(|number, digest| {
        assert_eq!(number, digests.len());
        digests.push(digest);
    });
    for (i, &length) in lengths.iter().enumerate() {
        if i % 2 == 0 {
            stream.push(&data[i..i + length]).unwrap();
        } else {
            let read = stream.read(b"prefix", &mut &data[i..i + length]).unwrap().unwrap();
            assert_eq!(read, length as u64);
        }
        let failed = stream.read(b"lost", &mut Broken(i * 1000)).unwrap();
        assert!(failed.is_err(), "and left out");
    }
    assert_eq!(stream.finish().unwrap(), lengths.len());
    for (i, &length) in lengths.iter().enumerate() {
        let prefix: &[u8] = if i % 2 == 0 { b"" } else { b"prefix" };
        assert_eq!(digests[i], sum(&[prefix, &data[i..i + length]].concat()), "{i}");
    }
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
    let open = |i: usize| -> io::Result<Box<dyn Read>> {
        match i % 10 {
            3 => Err(io::Error::other("shut")),
            4 => Ok(Box::new(Broken(i * 5000))),
            _ => Ok(Box::new(&data[..lengths[i % lengths.len()]])),
        }
    };
    let reference = Engine::builder().backend(Arc::new(Gpu::new(Duration::ZERO))).build().unwrap();
    for engine in [engine(1), engine(3), reference] {
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
    // Where nothing of the call's own is open, waiting would be in vain.
    let none = AtomicUsize::new(0);
    let mut refused = 0;
    engine(3)
        .sha256_each(9, |_| Door::open(&none, 0, &data), |_, digest| refused += usize::from(digest.is_err()))
        .unwrap();
    assert_eq!(refused, 9);
}

/// Entries and roots that implementations of Certificate Transparency test with.
#[test]
fn the_tree_of_rfc_9162() {
    let entries = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let from_hex = |text: &str| -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
    };
    let engine = engine(1);
    for (count, root) in roots.iter().enumerate() {
        let mut tree = MerkleTree::new(&engine);
        for entry in &entries[..count] {
            tree.push(sum(&[&[MerkleTree::LEAF][..], &from_hex(entry)].concat())).unwrap();
        }
        assert_eq!(tree.root().unwrap().to_vec(), from_hex(root), "{count} entries");
    }
}

/// Many more leaves than are paired at a time.
#[test]
fn large_trees() {
    let engine = engine(1);
    let leaves: Vec<[u8; 32]> = (0..150_001u32).map(|i| sum(&i.to_le_bytes())).collect();
    let mut level = leaves.clone();
    while level.len() > 1 {
        // A node without a sibling goes up as it is: the same tree, told from below.
        let pair = |pair: &[[u8; 32]]| match pair {
            [left, right] => sum(&[&[1], &left[..], right].concat()),
            alone => alone[0],
        };
        level = level.chunks(2).map(pair).collect();
    }
    let mut tree = MerkleTree::new(&engine);
    leaves.into_iter().for_each(|leaf| tree.push(leaf).unwrap());
    assert_eq!(tree.root().unwrap(), level[0]);
}

/// A device with memory of its own that takes so long, and no messages above 100,000 bytes.
#[derive(Clone)]
struct Gpu {
    takes: Duration,
    runs: Arc<AtomicUsize>,
    fails: bool,
}

impl Gpu {
    fn new(takes: Duration) -> Gpu {
        Gpu { takes, runs: Arc::default(), fails: false }
    }
}

impl Backend for Gpu {
    fn name(&self) -> &'static str {
        "gpu"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device { backend: "gpu", memory: 1 << 30, queue: 2, ..Reference.devices()?.remove(0) }])
    }
    forward!(self => Reference; self_test, absent, notices, rates, clock, fingerprint, free);
    capabilities!(has sha256;);
}

impl Sha256Programs for Gpu {
    fn prepare(&self, _: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        assert!(policy.get(THREADS).is_some());
        Ok(Box::new(self.clone()))
    }
}

impl Hasher for Gpu {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn longest(&self) -> usize {
        100_000
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        self.runs.fetch_add(1, Relaxed);
        if self.fails {
            return Err(Error::Device { device: "gpu:0".into(), what: "no answer".into() });
        }
        std::thread::sleep(self.takes);
        for (i, digest) in digests.iter_mut().enumerate() {
            *digest = sum(messages.get(i));
        }
        Ok(Timing::default())
    }
    forward!(self => self; hashes_on_host);
}

fn both(gpu: &Gpu) -> Engine {
    let cpu = Arc::new(hypergrove::Cpu::new());
    Engine::builder().devices(vec![(cpu, 0), (Arc::new(gpu.clone()), 0)]).build().unwrap()
}

#[test]
fn few_bytes_are_hashed_by_the_host_wherever_it_stands() {
    let (data, gpu) = (bytes(8 << 20), Gpu::new(Duration::ZERO));
    let cpu = Arc::new(hypergrove::Cpu::new());
    let engine = Engine::builder().devices(vec![(Arc::new(gpu.clone()), 0), (cpu, 0)]).build().unwrap();
    let messages = Messages::equal(&data, 1024).unwrap();
    let mut digests = vec![[0; 32]; messages.len()];
    engine.sha256_batch(messages.range(0..10), &mut digests[..10]).unwrap();
    assert_eq!(gpu.runs.load(Relaxed), 0, "it takes longer to ask it");
    engine.sha256_batch(messages, &mut digests).unwrap();
    assert!(gpu.runs.load(Relaxed) > 0, "more bytes are tried there");
    assert!((0..messages.len()).all(|i| digests[i] == sum(messages.get(i))));
}

#[test]
fn a_device_is_tried_once_and_kept_if_it_is_fast() {
    let data = bytes(8 << 20);
    let mut digests = vec![[0; 32]; data.len() / 1024];
    let messages = Messages::equal(&data, 1024).unwrap();
    let slow = Gpu::new(Duration::from_secs(1));
    let engine = both(&slow);
    for _ in 0..6 {
        engine.sha256_batch(messages, &mut digests).unwrap();
        engine.sha256_batch(messages.range(0..10), &mut digests[..10]).unwrap();
    }
    assert_eq!(slow.runs.load(Relaxed), 2, "warmed up and timed once: the CPU is faster");
    assert!((0..messages.len()).all(|i| digests[i] == sum(messages.get(i))));
}

#[test]
fn the_host_does_what_no_device_takes() {
    let data = bytes(2 << 20);
    let mut digests = [[0; 32]; 4];
    let gpu = Gpu::new(Duration::ZERO);
    let alone = Engine::builder().backend(Arc::new(gpu.clone())).build().unwrap();
    for messages in [Messages::equal(&data, 1 << 19).unwrap(), Messages::equal(&data[..4000], 1000).unwrap()] {
        alone.sha256_batch(messages, &mut digests).unwrap();
        assert!((0..4).all(|i| digests[i] == sum(messages.get(i))));
    }
    assert_eq!(gpu.runs.load(Relaxed), 2, "the short ones, after warming up");

    let broken = Gpu { fails: true, ..gpu };
    let engine = both(&broken);
    let messages = Messages::equal(&data, 1 << 19).unwrap().range(0..4);
    let short = Messages::equal(&data, 1 << 10).unwrap();
    let mut digests = vec![[0; 32]; short.len()];
    for _ in 0..3 {
        engine.sha256_batch(short, &mut digests).unwrap();
        engine.sha256_batch(messages, &mut digests[..4]).unwrap();
    }
    assert_eq!(engine.faults().len(), 1, "and was disabled");
    assert!((0..4).all(|i| digests[i] == sum(messages.get(i))));
}
