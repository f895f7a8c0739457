//! Rows cost no allocation each: what a call allocates depends on its chunks, not on their rows.

mod common;

use common::{Mock, OnMock, P, PURE, key, mock, zk_mock};
use hypergrove::rows::{Column, RowCall, RowSet, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::zkdilithium;
use hypergrove::zkdilithium::params::{SIG_BYTES, SK_BYTES};
use hypergrove::{Engine, Error, Mode, PreHash, Randomizer, Ticket, VerifyJob, VerifyingKey};
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
                // How often threads that share a chunk allocate depends on when they come. One allocation a row would be 99,000 more.
                assert!(many < few + 1000 + 50 * chunks, "{op}: {few} allocations for 1,000 rows, {many} for 100,000");
            }
        }
    }
}

#[test]
fn a_row_of_zkdilithium_allocates_nothing() {
    let _alone = alone();
    // A device that answers at once, 4,096 jobs at a time.
    let idle = Mock { is_idle: true, memory: 1 << 30, jobs: 1 << 12, ..zk_mock(1, 2) };
    let engine = idle.builder().memory_budget(8 << 30).build().unwrap();
    let keys = [1, 2].map(|of| zkdilithium::SigningKey::from_seed(&[of; 32]));
    let public = keys.each_ref().map(zkdilithium::SigningKey::verifying_key);
    let sign = |rows: usize| {
        let (mut statuses, mut signatures) = (vec![RowStatus::default(); rows], vec![0; rows * SIG_BYTES]);
        let (bytes, of) = (vec![7; rows], (0..rows as u32).map(|i| i % 2).collect::<Vec<_>>());
        let keys = RowSigningKeys::Table { keys: &keys, of: &of };
        let rows = zkdilithium::SignRows::new(keys, Column::packed(&bytes, 1));
        allocations(|| engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap())
    };
    let verify = |rows: usize| {
        let (mut statuses, signature) = (vec![RowStatus::default(); rows], [0; SIG_BYTES]);
        let (bytes, of) = (vec![7; rows], (0..rows as u32).map(|i| i % 2).collect::<Vec<_>>());
        let keys = zkdilithium::RowVerifyingKeys::Table { keys: &public, of: &of };
        let signatures = vec![&signature[..]; rows];
        let signatures = Column::Slices(&signatures);
        let rows = zkdilithium::VerifyRows::new(keys, Column::packed(&bytes, 1), signatures);
        allocations(|| engine.verify_rows(&rows, &mut statuses).unwrap())
    };
    let keygen = |rows: usize| {
        let mut private = vec![0; rows * SK_BYTES];
        allocations(|| engine.keygen_rows(zkdilithium::ZkDilithium, &mut private, None).unwrap())
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

/// Tickets of a round, of which each tenth is that of a set of rows.
const ROUND: usize = 1000;
const SETS: usize = ROUND / 10;

/// Whether the ticket of this number is that of a set: of each five there is one of every end.
fn is_set(number: usize) -> bool {
    (number / 5).is_multiple_of(10)
}

/// Rows whose signatures are not valid, and how many sets of them are gone.
struct Letters {
    public: Arc<VerifyingKey>,
    signatures: Arc<[u8]>,
    statuses: Vec<RowStatus>,
    gone: Arc<AtomicUsize>,
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Relaxed);
    }
}

/// Brings a ticket to one of five ends, one of which gives up its result. `count` gets the result; tickets that are held give theirs later.
fn end<T: Send + 'static>(
    number: usize,
    ticket: Ticket<T>,
    held: &mut Vec<(usize, Ticket<T>)>,
    count: impl FnOnce(Result<T, Error>) + Send + 'static,
) {
    match number % 5 {
        0 => count(ticket.wait()),
        1 => drop(ticket),
        2 => ticket.on_done(count),
        3 => held.push((number, ticket.deadline(Instant::now() + Duration::from_secs(3600)))),
        _ => held.push((number, ticket)),
    }
}

/// As many tickets as `HYPERGROVE_TICKETS` says, of single jobs and of sets of rows, of every end: each has one result, and after each tenth of
/// them as much memory is in use as before.
#[test]
fn tickets_have_one_result_and_leave_nothing_behind() {
    let _alone = alone();
    let count = std::env::var("HYPERGROVE_TICKETS").map_or(100_000, |count| count.parse::<usize>().expect("a number"));
    let device = Mock { is_idle: true, jobs: 64, memory: 1 << 30, ..mock(1, 2) };
    let engine = device.builder().queue(1000, 1 << 24).build().unwrap();
    let (public, signature) = (Arc::new(key(1).verifying_key()), vec![0; P.sig_bytes()]);
    let signatures: [Arc<[u8]>; 3] = [1, 2, 3].map(|rows| vec![0; rows * P.sig_bytes()].into());
    let job = || VerifyJob::new(public.clone(), &b"message"[..], &signature);
    let set = |number: usize, gone: &Arc<AtomicUsize>| {
        let signatures = signatures[number % 3].clone();
        let statuses = vec![RowStatus::default(); signatures.len() / P.sig_bytes()];
        RowSet::new(Letters { public: public.clone(), signatures, statuses, gone: gone.clone() }, |it| {
            RowCall::Verify {
                rows: VerifyRows {
                    keys: RowVerifyingKeys::One(&it.public),
                    mode: PURE,
                    messages: Column::packed(&b"message"[..it.statuses.len()], 1),
                    signatures: Column::packed(&it.signatures, P.sig_bytes()),
                },
                statuses: &mut it.statuses,
            }
        })
    };
    let round = || {
        let results: Arc<[AtomicUsize]> = (0..ROUND).map(|_| AtomicUsize::new(0)).collect();
        let (gone, mut jobs, mut sets) = (Arc::new(AtomicUsize::new(0)), Vec::new(), Vec::new());
        // A callback's panic would not be seen: only right results count.
        let of_job = |number: usize| {
            let results = results.clone();
            move |result: Result<bool, Error>| {
                results[number].fetch_add(usize::from(result == Ok(false)), Relaxed);
            }
        };
        let of_set = |number: usize| {
            let results = results.clone();
            move |result: Result<Letters, Error>| {
                let are_invalid = |it: &Letters| it.statuses.iter().all(|status| *status == RowStatus::Invalid);
                results[number].fetch_add(usize::from(result.as_ref().is_ok_and(are_invalid)), Relaxed);
            }
        };
        for number in 0..ROUND {
            match is_set(number) {
                true => end(number, engine.submit(set(number, &gone)).unwrap(), &mut sets, of_set(number)),
                false => end(number, engine.submit(job()).unwrap(), &mut jobs, of_job(number)),
            }
            engine.ready().wait().unwrap();
        }
        jobs.into_iter().for_each(|(number, ticket)| of_job(number)(ticket.wait()));
        sets.into_iter().for_each(|(number, ticket)| of_set(number)(ticket.wait()));
        let counted = || results.iter().map(|count| count.load(Relaxed)).enumerate();
        let is_over = || counted().all(|(number, count)| count == usize::from(number % 5 != 1));
        let until = Instant::now() + Duration::from_secs(600);
        while !(is_over() && gone.load(Relaxed) == SETS && engine.stats().tickets.running == 0) {
            let [least, most] = [counted().map(|it| it.1).min(), counted().map(|it| it.1).max()];
            let gone = gone.load(Relaxed);
            assert!(
                Instant::now() < until,
                "{least:?} to {most:?} results of a ticket, {gone} of {SETS} sets are gone"
            );
            std::thread::yield_now();
        }
        ALLOCATOR.1.load(Relaxed)
    };
    // Queues and buffers keep what they grew to.
    let before = (0..10).map(|_| round()).max().unwrap();
    let tenths: Vec<usize> = (0..10).map(|_| (0..count / 10_000).fold(before, |_, _| round())).collect();
    let stats = engine.stats().tickets;
    let begun = [&stats.waits, &stats.service_times].map(|times| times.iter().sum::<u64>());
    assert!(stats.submitted >= count as u64 && (stats.refused, stats.expired) == (0, 0));
    assert_eq!(begun, [stats.submitted - stats.cancelled; 2], "a ticket begins once, or is cancelled");
    println!(
        "checked: tickets: {before} bytes in use after 10,000 tickets, {tenths:?} after each tenth of {count} more"
    );
    let (least, most) = (tenths.iter().min().unwrap(), tenths.iter().max().unwrap());
    assert!(*most < before + GROWTH && most - least < GROWTH, "{before} bytes in use at first, then {tenths:?}");
}
