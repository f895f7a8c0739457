//! Engines in processes that were forked: a child has none of its parent's threads.
#![cfg(target_os = "linux")]

mod common;

use common::{OnMock, PURE, job, key, mock, sign};
use hypergrove::*;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
}

/// Does `work` in a child of this process, which must neither panic nor hang.
fn in_child(what: &str, work: impl FnOnce()) {
    // SAFETY: the child allocates, which glibc allows, and takes no lock that another thread of this process may hold: the
    // other threads sleep, but for those of `cargo test`, with which the child has no business.
    let child = unsafe { fork() };
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: it ends the process at once. Nobody waits for the child's threads, or reads what it has printed.
        unsafe { _exit(i32::from(done.is_err())) }
    }
    let child = Pid::from_raw(child).expect("a child was forked");
    let began = Instant::now();
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            Some((_, status)) => return assert_eq!(status.exit_status(), Some(0), "{what}"),
            None if began.elapsed() < Duration::from_secs(60) => std::thread::sleep(Duration::from_millis(1)),
            None => {
                kill_process(child, Signal::KILL).unwrap();
                panic!("{what}: the child hangs");
            }
        }
    }
}

/// Calls of an engine whose threads belong to the parent.
fn are_refused(engine: &Engine, key: &SigningKey) {
    let refused = |done: Result<(), Error>| {
        let why = done.expect_err("there are no threads");
        assert!(matches!(why, Error::Io { .. }) && why.to_string().contains("make a new engine"), "{why}");
    };
    refused(sign(engine, key, 20).0);
    refused(sign(engine, key, 1).0);
    refused(engine.sign(key, PURE, b"message", Randomizer::Hedged).map(drop));
    tickets_are_refused(engine, key);
}

fn tickets_are_refused(engine: &Engine, key: &SigningKey) {
    let refused = engine.submit(job(key, 0)).unwrap_err();
    assert!(refused.why.to_string().contains("make a new engine"), "{refused}");
}

/// One test: nothing else happens in this process.
#[test]
fn a_child_computes_or_gets_an_error() {
    let key = key(1);
    let cpu = || Engine::builder().backend(Arc::new(Cpu::new())).threads(2).build().unwrap();
    let two_devices = || mock(2, 2).engine();
    for build in [&cpu as &dyn Fn() -> Engine, &two_devices] {
        let engine = build();
        // Whoever reads statistics has not used the engine yet.
        assert_eq!(engine.stats().tickets.submitted, 0);
        in_child("before the first use", || assert_eq!(sign(&engine, &key, 20), (Ok(()), 20)));
        assert_eq!(sign(&engine, &key, 20), (Ok(()), 20), "the parent's is its own");
        in_child("after it", || {
            are_refused(&engine, &key);
            assert_eq!(sign(&build(), &key, 20), (Ok(()), 20), "a new engine has threads");
        });
        assert_eq!(sign(&engine, &key, 20), (Ok(()), 20), "the parent goes on");
    }

    // Single verifications have no thread but the caller's.
    let engine = cpu();
    let (public, signature) = (key.verifying_key(), cpu().sign(&key, PURE, b"message", Randomizer::Hedged).unwrap());
    assert_eq!(engine.verify(&public, PURE, b"message", signature.as_bytes()), Ok(true));
    in_child("after verifications alone", || are_refused(&engine, &key));

    // With one thread, all is done by the thread that calls, which the child has.
    let alone = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
    assert_eq!(sign(&alone, &key, 20), (Ok(()), 20));
    in_child("one thread", || assert_eq!(sign(&alone, &key, 20), (Ok(()), 20)));

    // A ticket starts a thread, which the child has not. Nobody in the child gets the result that the parent was waiting for.
    let first = alone.submit(job(&key, 0)).unwrap();
    let mut tickets: Vec<_> = (0..4).map(|i| Some(alone.submit(job(&key, i)).unwrap())).collect();
    in_child("tickets", || {
        tickets_are_refused(&alone, &key);
        assert_eq!(sign(&alone, &key, 20), (Ok(()), 20), "calls go on");
        let is_parents = |why: Error| why.to_string().contains("make a new engine");
        assert!(tickets[0].take().unwrap().wait().is_err_and(is_parents));
        assert!(tickets[1].as_mut().unwrap().try_take().unwrap().is_err_and(is_parents));
        assert!(tickets[2].take().unwrap().deadline(Instant::now()).wait().is_err_and(is_parents));
        tickets[3].take().unwrap().on_done(move |result| assert!(result.is_err_and(is_parents)));
        assert!(alone.drain(Instant::now()).is_err_and(is_parents));
        tickets.clear();
        let own = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
        own.submit(job(&key, 0)).unwrap().wait().unwrap();
        drop(own);
    });
    first.wait().unwrap();
    tickets.into_iter().flatten().for_each(|ticket| drop(ticket.wait().unwrap()));

    // The next chunks are under way while results are handed out: in the child, their turns never end.
    let slow = mock(1, 2).answering(|call| {
        std::thread::sleep(Duration::from_millis(if call.nth == 0 { 0 } else { 200 }));
        Ok(())
    });
    let engine = slow.engine();
    engine
        .sign_batch((0..32).map(|i| job(&key, i)), |index, signature| {
            signature.unwrap();
            if index == 0 {
                in_child("while a device is in use", || are_refused(&engine, &key));
            }
        })
        .unwrap();
}
