//! Options of the work: checks, a timeout and cancelling, of every way to bring jobs. The engine is one.

use crate::common::{Mock, OnMock, P, PURE, job, key, message, mock};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::{scope, sleep};
use std::time::Duration;

/// A time far below that of a test that hangs.
const SOON: Duration = Duration::from_secs(10);

/// Engines of each shape.
fn engines() -> Vec<Engine> {
    let cpu = |threads| Engine::builder().backend(Arc::new(Cpu::new())).threads(threads).build().unwrap();
    let discrete = Mock { memory: 1 << 30, ..mock(1, 2) };
    vec![cpu(1), cpu(2), mock(1, 1).engine(), discrete.engine()]
}

fn twice(engine: &Engine) -> Engine {
    let mut options = engine.work_options();
    options.checks.redundant = true;
    engine.with(options)
}

const ROWS: usize = 40;

/// Signs rows. Returns the outcome and the number of rows that were signed; the memory of other rows is zero.
fn sign_rows(engine: &Engine, key: &SigningKey) -> (Result<(), Error>, usize) {
    let messages: Vec<u8> = (0..ROWS).flat_map(|row| [row as u8; 8]).collect();
    let rows = SignRows {
        keys: RowSigningKeys::One(key),
        mode: PURE,
        messages: Column::packed(&messages, 8),
        randomizer: Randomizer::Deterministic,
    };
    let (mut out, mut statuses) = (vec![7; ROWS * P.sig_bytes()], [RowStatus::Valid; ROWS]);
    let done = engine.sign_rows(&rows, &mut out, &mut statuses);
    for (row, status) in out.chunks(P.sig_bytes()).zip(statuses) {
        match status {
            RowStatus::Signed => assert!(row.iter().any(|byte| *byte != 0)),
            status => assert!(status == RowStatus::NotComputed && row.iter().all(|byte| *byte == 0)),
        }
    }
    (done, statuses.iter().filter(|status| **status == RowStatus::Signed).count())
}

#[test]
fn checks_are_those_of_the_work_and_all_else_is_shared() {
    let key = key(1);
    for engine in engines() {
        let careful = twice(&engine);
        let sign = |engine: &Engine| engine.sign(&key, PURE, b"m", Randomizer::Deterministic).unwrap();
        assert_eq!(sign(&engine), sign(&careful));
        assert_eq!((engine.stats().redundant_jobs, careful.stats().redundant_jobs), (1, 1));
        assert_eq!(engine.stats().chunks, 2, "one engine counts both");
        let signed = |engine: &Engine| {
            let before = engine.stats().redundant_jobs;
            assert_eq!(sign_rows(engine, &key), (Ok(()), ROWS));
            let made = engine.sign_batch_to_vec((0..5).map(|i| job(&key, i))).unwrap();
            assert!(made.iter().all(Result::is_ok));
            let tickets: Vec<_> = (0..5).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
            assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
            engine.stats().redundant_jobs - before
        };
        assert_eq!((signed(&engine), signed(&careful), signed(&engine)), (0, ROWS as u64 + 10, 0));
    }
}

/// Faults that only the comparison finds are found in the work that asks for it, and in no other work of the same engine.
#[test]
fn a_fault_is_found_in_the_work_that_compares() {
    let key = key(1);
    let lies = Mock { memory: 1 << 30, ..mock(2, 2) }.answering(|call| {
        // Device 0 has one wrong place.
        if call.device == 0 && call.op == Some(Op::Sign) {
            call.out[P.sig_bytes() - 1] ^= 1;
        }
        Ok(())
    });
    let engine = lies.builder().build().unwrap();
    let (done, signed) = sign_rows(&engine, &key);
    assert_eq!((done, signed, engine.faults().len()), (Ok(()), ROWS, 0), "nobody looked");
    let (done, signed) = sign_rows(&twice(&engine), &key);
    assert_eq!((done, signed), (Ok(()), ROWS));
    let faults = engine.faults();
    let is_found = |fault: &Fault| {
        fault.device.index == 0 && fault.error.to_string().contains("differs when it is computed again")
    };
    assert!(!faults.is_empty() && faults.iter().all(is_found), "{faults:?}");
}

/// Jobs of tickets with other checks wait in a line of their own, and both lines get their turn.
#[test]
fn tickets_share_a_batch_if_their_checks_are_equal() {
    let (key, mock) = (Arc::new(key(1)), Mock { jobs: 64, ..mock(1, 1) });
    let engine = mock.engine();
    let careful = twice(&engine);
    let tickets: Vec<_> = (0..40)
        .map(|i| if i % 2 == 0 { &engine } else { &careful }.submit(SignJob::new(key.clone(), message(i))).unwrap())
        .collect();
    assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
    assert_eq!(engine.stats().redundant_jobs, 20);
}

#[test]
fn no_work_begins_after_its_time() {
    let key = key(1);
    for engine in engines() {
        let late = engine.with(WorkOptions { timeout: Some(Duration::ZERO), ..engine.work_options() });
        let passed = Err(Error::DeadlineExceeded);
        assert_eq!(late.sign(&key, PURE, b"m", Randomizer::Hedged).map(drop), passed);
        assert_eq!(sign_rows(&late, &key), (passed.clone(), 0));
        assert_eq!(late.sign_batch_to_vec((0..5).map(|i| job(&key, i))).map(drop), passed);
        assert_eq!(late.submit(job(&key, 0)).unwrap().wait().map(drop), passed);
        let patient = engine.with(WorkOptions { timeout: Some(Duration::MAX), ..engine.work_options() });
        assert_eq!(sign_rows(&patient, &key), (Ok(()), ROWS));
        assert_eq!(sign_rows(&engine, &key), (Ok(()), ROWS));
    }
}

#[test]
fn cancelled_work_ends_and_other_work_goes_on() {
    let key = key(1);
    for engine in engines() {
        let token = CancelToken::default();
        let work = engine.with(WorkOptions { cancel: Some(token.clone()), ..engine.work_options() });
        let mut results = 0;
        let done = work.sign_batch((0..).map(|i| job(&key, i % 100)), |_, signature| {
            assert!(signature.is_ok());
            results += 1;
            token.cancel();
        });
        assert!(matches!(done, Err(Error::Cancelled { .. })), "{done:?}");
        // Chunks that had begun are completed; the jobs would never end.
        assert!(results > 0);
        assert!(matches!(sign_rows(&work, &key), (Err(Error::Cancelled { .. }), 0)));
        assert!(matches!(work.sign(&key, PURE, b"m", Randomizer::Hedged), Err(Error::Cancelled { .. })));
        assert!(matches!(work.submit(job(&key, 0)).unwrap().wait(), Err(Error::Cancelled { .. })));
        assert_eq!(sign_rows(&engine, &key), (Ok(()), ROWS));
    }
}

/// A call that waits for a device, which another call keeps, is cancelled while it waits.
#[test]
fn a_call_that_waits_for_a_device_is_cancelled() {
    let (key, holds) = (key(1), Arc::new(Barrier::new(2)));
    let mock = mock(1, 1);
    let engine = {
        let holds = holds.clone();
        let slow = mock.answering(move |call| {
            if call.nth == 0 {
                holds.wait();
                holds.wait();
            }
            Ok(())
        });
        slow.engine()
    };
    let token = CancelToken::default();
    let work = engine.with(WorkOptions { cancel: Some(token.clone()), ..engine.work_options() });
    scope(|scope| {
        let first = scope.spawn(|| engine.sign_batch_to_vec((0..2).map(|i| job(&key, i))));
        holds.wait();
        let second = scope.spawn(|| work.sign_batch((0..2).map(|i| job(&key, i)), |_, _| ControlFlow::Continue(())));
        token.cancel();
        assert!(matches!(second.join().unwrap(), Err(Error::Cancelled { .. })));
        holds.wait();
        assert!(first.join().unwrap().unwrap().iter().all(Result::is_ok));
    });
}

/// Single jobs have few permits at a time. A job that waits for one ends when its time is over, or when it is cancelled.
#[test]
fn a_single_job_that_waits_for_a_permit_ends_in_time() {
    const SINGLES: usize = 4;
    let (key, holds) = (key(1), Arc::new((Mutex::new(false), Condvar::new())));
    let begun = Arc::new(AtomicUsize::new(0));
    let engine = {
        let (holds, begun) = (holds.clone(), begun.clone());
        let slow = mock(1, 1).answering(move |_| {
            begun.fetch_add(1, SeqCst);
            drop(holds.1.wait_while(holds.0.lock().unwrap(), |is_over| !*is_over).unwrap());
            Ok(())
        });
        slow.builder().threads(2).build().unwrap()
    };
    let sign = |engine: &Engine| engine.sign(&key, PURE, b"m", Randomizer::Hedged).map(drop);
    let token = CancelToken::default();
    let hasty = WorkOptions { timeout: Some(Duration::from_millis(10)), ..engine.work_options() };
    let cancelled = WorkOptions { cancel: Some(token.clone()), ..engine.work_options() };
    let works = [hasty, cancelled].map(|work| engine.with(work));
    scope(|scope| {
        let sign = &sign;
        let others: Vec<_> = (0..SINGLES).map(|_| scope.spawn(|| sign(&engine))).collect();
        while begun.load(SeqCst) < SINGLES {
            sleep(Duration::from_millis(1));
        }
        let (sender, ended) = channel();
        for work in &works {
            let sender = sender.clone();
            scope.spawn(move || sender.send(sign(work)).unwrap());
        }
        let first = ended.recv_timeout(SOON);
        token.cancel();
        let second = ended.recv_timeout(SOON);
        *holds.0.lock().unwrap() = true;
        holds.1.notify_all();
        assert_eq!(first, Ok(Err(Error::DeadlineExceeded)));
        assert!(matches!(second, Ok(Err(Error::Cancelled { .. }))), "{second:?}");
        assert!(others.into_iter().all(|other| other.join().unwrap() == Ok(())));
    });
    // The permits are there for others.
    assert_eq!((sign(&engine), engine.stats().devices[0].waiting), (Ok(()), 0));
}

/// A call that runs jobs one after the other has one time for all of them.
#[test]
fn a_call_of_several_runs_has_one_timeout() {
    let key = key(1);
    let slow = Mock { memory: 1 << 30, ..mock(1, 2) }.answering(|_| {
        sleep(Duration::from_millis(300));
        Ok(())
    });
    let engine = slow.engine();
    let hasty = engine.with(WorkOptions { timeout: Some(Duration::from_millis(200)), ..engine.work_options() });
    assert_eq!(hasty.cache(&key, 1).map(drop), Err(Error::DeadlineExceeded));
    assert_eq!((slow.runs(), engine.cache(&key, 1).is_ok()), (1, true), "the nodes are computed twice");
}
