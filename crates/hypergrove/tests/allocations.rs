//! Rows cost no allocation each: what a call allocates depends on its chunks, not on their rows.

mod common;

use common::{Mock, P, PURE, key, mock};
use hypergrove::backend::{Policy, Reference, SelfTest};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::zkdilithium::params::{SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{self, Op};
use hypergrove::{Backend, Device, Error, Timing};
use hypergrove::{Engine, Mode, PreHash, Randomizer, VerifyJob};
use hypergrove_engine::{ZkDilithium, ZkDilithiumPrograms, ZkSign, ZkVerify, capabilities, forward};
use hypergrove_zkdilithium::{SignatureBytes, SigningKeyBytes};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The system's allocator, how often it was asked, and how many of its bytes are in use.
struct Counting(AtomicUsize, AtomicUsize);

#[global_allocator]
static ALLOCATOR: Counting = Counting(AtomicUsize::new(0), AtomicUsize::new(0));

// SAFETY: every call is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Relaxed);
        self.1.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.1.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// One test counts at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocations of a call.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.0.load(Relaxed);
    work();
    ALLOCATOR.0.load(Relaxed) - before
}

#[test]
fn a_row_that_is_hashed_allocates_nothing() {
    let _alone = alone();
    let engine = Engine::builder().backend(Arc::new(hypergrove::Cpu::new())).threads(1).build().unwrap();
    let hash = |rows: usize, kind: usize| {
        let (mut sums, mut statuses) = (vec![0; 32 * rows], vec![RowStatus::default(); rows]);
        let offsets: Vec<i64> = (0..=rows as i64).collect();
        let bytes = vec![7; 2 * rows];
        let slices = vec![&b"message"[..]; rows];
        let column = match kind {
            0 => Column::packed(&bytes, 2),
            1 => Column::Packed { bytes: &bytes, width: 1, stride: 2, rows },
            2 => Column::Variable { bytes: &bytes, offsets: hypergrove::rows::Offsets::I64(&offsets) },
            _ => Column::Slices(&slices),
        };
        allocations(|| engine.sha256_rows(column, &mut sums, &mut statuses).unwrap())
    };
    for kind in 0..4 {
        let [_, few] = [1000; 2].map(|rows| hash(rows, kind));
        let many = hash(1_000_000, kind);
        println!("checked: hash: {few} allocations for 1,000 rows, {many} for 1,000,000");
        // The CPU's lanes take 256 messages together.
        assert!(many < few + 10_000, "column {kind}: {few} allocations for 1,000 rows, {many} for 1,000,000");
    }
}

/// A device that computes nothing: what is counted is the engine's.
fn engine(jobs: usize) -> Engine {
    Mock { is_idle: true, jobs, memory: 1 << 30, ..mock(1, 2) }.builder().memory_budget(8 << 30).build().unwrap()
}

#[test]
fn a_row_allocates_nothing() {
    let _alone = alone();
    let (one, context) = (key(1), &b"context"[..]);
    let public = one.verifying_key();
    let signature = [0; 2000];
    let signature = &signature[..P.sig_bytes()];
    let verify = |engine: &Engine, rows: usize, mode: Mode<'_>| {
        let mut statuses = vec![RowStatus::default(); rows];
        // All rows have the same bytes.
        let offsets: Vec<i64> = (0..=rows as i64).map(|i| i % 2).collect();
        let slices = vec![signature; rows];
        let messages = hypergrove::rows::Offsets::I64(&offsets);
        let rows = VerifyRows {
            keys: RowVerifyingKeys::One(&public),
            mode,
            messages: Column::Variable { bytes: b"x", offsets: messages },
            signatures: Column::Slices(&slices),
        };
        allocations(|| engine.verify_rows(&rows, &mut statuses).unwrap())
    };
    let sign = |engine: &Engine, rows: usize, mode: Mode<'_>| {
        let (mut statuses, messages) = (vec![RowStatus::default(); rows], vec![7; rows]);
        let mut signatures = vec![0; rows * P.sig_bytes()];
        let messages = Column::packed(&messages, 1);
        let rows = SignRows { keys: RowSigningKeys::One(&one), mode, messages, randomizer: Randomizer::Hedged };
        allocations(|| engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap())
    };
    for mode in [PURE, Mode::PreHash { context, hash: PreHash::Shake256 }] {
        // A chunk takes all rows, or 4,096 of them.
        for (jobs, chunks) in [(1 << 20, 1), (1 << 12, 25)] {
            let engine = engine(jobs);
            for (op, call) in [("verify", &verify as &dyn Fn(_, _, _) -> _), ("sign", &sign)] {
                // Signatures of a million rows would take 1.5 GB.
                // The first calls start threads.
                let [_, _, few] = [1000; 3].map(|rows| call(&engine, rows, mode));
                let many = call(&engine, 100_000, mode);
                println!("checked: {op}: {few} allocations for 1,000 rows, {many} for 100,000");
                assert!(many < few + 50 * chunks, "{op}: {few} allocations for 1,000 rows, {many} for 100,000");
            }
        }
    }
}

/// A device that answers at once, 4,096 jobs at a time.
#[derive(Clone)]
struct Idle;

impl Backend for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device { backend: "idle", queue: 2, memory: 1 << 30, ..Reference.devices()?.remove(0) }])
    }
    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    forward!(self => Reference; absent, notices, rates, clock, fingerprint, free);
    capabilities!(has zkdilithium; lacks slh_dsa, sha256, host_memory;);
}

impl ZkDilithiumPrograms for Idle {
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(Box::new(Idle))
    }
}

impl ZkDilithium for Idle {
    common::zk_facts!();

    fn jobs(&self, _: Op) -> usize {
        1 << 12
    }
    fn elsewhere(&mut self, _: bool) {}

    fn keygen(&mut self, _: &[[u8; 32]], _: &mut [&mut SigningKeyBytes]) -> Result<Timing, Error> {
        Ok(Timing::default())
    }
    fn sign(&mut self, _: &[ZkSign<'_>], _: &mut [&mut SignatureBytes]) -> Result<Timing, Error> {
        Ok(Timing::default())
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
        out.resize(jobs.len(), true);
        Ok(Timing::default())
    }
}

#[test]
fn a_row_of_zkdilithium_allocates_nothing() {
    let _alone = alone();
    let backend: Arc<dyn Backend> = Arc::new(Idle);
    let engine = zkdilithium::Engine::builder().threads(2).memory_budget(8 << 30).devices(vec![(backend, 0)]);
    let engine = engine.build().unwrap();
    let keys = [1, 2].map(|of| zkdilithium::SigningKey::from_seed(&[of; 32]));
    let public = keys.each_ref().map(zkdilithium::SigningKey::verifying_key);
    let sign = |rows: usize| {
        let (mut statuses, mut signatures) = (vec![RowStatus::default(); rows], vec![0; rows * SIG_BYTES]);
        let (bytes, of) = (vec![7; rows], (0..rows as u32).map(|i| i % 2).collect::<Vec<_>>());
        let keys = RowSigningKeys::Table { keys: &keys, of: &of };
        let rows = zkdilithium::SignRows { keys, messages: Column::packed(&bytes, 1).into() };
        allocations(|| engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap())
    };
    let verify = |rows: usize| {
        let (mut statuses, signature) = (vec![RowStatus::default(); rows], [0; SIG_BYTES]);
        let (bytes, of) = (vec![7; rows], (0..rows as u32).map(|i| i % 2).collect::<Vec<_>>());
        let keys = zkdilithium::RowVerifyingKeys::Table { keys: &public, of: &of };
        let signatures = vec![&signature[..]; rows];
        let signatures = Column::Slices(&signatures);
        let rows = zkdilithium::VerifyRows { keys, messages: Column::packed(&bytes, 1).into(), signatures };
        allocations(|| engine.verify_rows(&rows, &mut statuses).unwrap())
    };
    let keygen = |rows: usize| {
        let mut private = vec![0; rows * SK_BYTES];
        allocations(|| engine.keygen_rows(&mut private, None).unwrap())
    };
    for (op, call) in [("sign", &sign as &dyn Fn(_) -> _), ("verify", &verify), ("keygen", &keygen)] {
        let [_, _, few] = [1000; 3].map(call);
        let many = call(100_000);
        println!("checked: zkDilithium, {op}: {few} allocations for 1,000 rows, {many} for 100,000");
        // A chunk has 4,096 rows.
        assert!(many < few + 80 * 25, "{op}: {few} allocations for 1,000 rows, {many} for 100,000");
    }
}

/// Bytes by which the memory in use may differ between two rounds of tickets: less than a hundredth of a byte a ticket in the full suite.
const GROWTH: usize = 64 << 10;

/// As many tickets as `HYPERGROVE_TICKETS` says, of every end: after each tenth of them as much memory is in use as before.
#[test]
fn tickets_leave_nothing_behind() {
    let _alone = alone();
    let count = std::env::var("HYPERGROVE_TICKETS").map_or(100_000, |count| count.parse::<usize>().expect("a number"));
    let device = Mock { is_idle: true, jobs: 64, memory: 1 << 30, ..mock(1, 2) };
    let engine = device.builder().queue(1000, 1 << 24).build().unwrap();
    let (public, signature) = (Arc::new(key(1).verifying_key()), vec![0; P.sig_bytes()]);
    let job = || VerifyJob::new(public.clone(), &b"message"[..], &signature);
    let round = || {
        let called = Arc::new(AtomicUsize::new(0));
        let mut held = Vec::with_capacity(1000);
        for i in 0..1000 {
            let ticket = engine.submit(job()).unwrap();
            match i % 5 {
                0 => assert_eq!(ticket.wait(), Ok(false)),
                1 => drop(ticket),
                2 => {
                    let called = called.clone();
                    ticket.on_done(move |_| {
                        called.fetch_add(1, Relaxed);
                    });
                }
                3 => held.push(ticket.deadline(Instant::now() + Duration::from_secs(3600))),
                _ => held.push(ticket),
            }
            engine.ready().wait().unwrap();
        }
        held.into_iter().for_each(|ticket| assert_eq!(ticket.wait(), Ok(false)));
        while called.load(Relaxed) < 200 || engine.stats().tickets.running > 0 {
            std::thread::yield_now();
        }
        ALLOCATOR.1.load(Relaxed)
    };
    // Queues and buffers keep what they grew to.
    let before = (0..10).map(|_| round()).max().unwrap();
    let tenths: Vec<usize> = (0..10).map(|_| (0..count / 10_000).fold(before, |_, _| round())).collect();
    assert!(engine.stats().tickets.submitted >= count as u64);
    println!(
        "checked: tickets: {before} bytes in use after 10,000 tickets, {tenths:?} after each tenth of {count} more"
    );
    let (least, most) = (tenths.iter().min().unwrap(), tenths.iter().max().unwrap());
    assert!(*most < before + GROWTH && most - least < GROWTH, "{before} bytes in use at first, then {tenths:?}");
}
