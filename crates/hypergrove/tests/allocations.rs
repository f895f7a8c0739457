//! Rows cost no allocation each: what a call allocates depends on its chunks, not on their rows.

mod common;

use common::{Mock, P, PURE, key, mock};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{Engine, Mode, PreHash, Randomizer};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's allocator, and how often it was asked.
struct Counting(AtomicUsize);

#[global_allocator]
static ALLOCATOR: Counting = Counting(AtomicUsize::new(0));

// SAFETY: every call is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
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
    let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).threads(1).build().unwrap();
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
