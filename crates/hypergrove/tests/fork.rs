//! Engines in processes that were forked: a child has none of its parent's threads.
#![cfg(target_os = "linux")]

mod common;

use common::{OnMock, PURE, job, key, mock, sign};
use hypergrove::*;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn fork() -> i32;
    fn unshare(flags: i32) -> i32;
    fn syscall(number: i64, ...) -> i64;
    fn _exit(status: i32) -> !;
}

/// The system call `clone`, and the signal of a child that ends.
const CLONE: i64 = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
const SIGCHLD: i64 = 17;
/// Children are in a new PID namespace, where the first one has the number 1; and in a new user namespace, where that is allowed to everybody.
const NEW_PID: i32 = 0x2000_0000;
const NEW_USER: i32 = 0x1000_0000;

/// Held by the test that runs: a child must not need a lock that another test's thread holds.
static ALONE: Mutex<()> = Mutex::new(());

/// Does `work` in a child of this process, which must neither panic nor hang.
fn in_child(what: &str, work: impl FnOnce()) {
    // SAFETY: the child allocates, which glibc allows, and takes no lock that another thread of this process may hold: the
    // other threads sleep, but for those of `cargo test`, with which the child has no business.
    in_forked(what, unsafe { fork() }, work);
}

/// Does `work` in a child of this process that was forked off without the C library, which calls no handler then.
fn in_cloned_child(what: &str, work: impl FnOnce()) {
    // SAFETY: as in `in_child`. The child has a copy of this process's memory and stack.
    in_forked(what, unsafe { syscall(CLONE, SIGCHLD, 0_i64, 0_i64, 0_i64, 0_i64) } as i32, work);
}

fn in_forked(what: &str, child: i32, work: impl FnOnce()) {
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

#[test]
fn a_child_with_its_parents_number_gets_an_error() {
    let _alone = ALONE.lock();
    let key = key(1);
    // SAFETY: it changes where children of the calling process go, and nothing else.
    let isolate = || unsafe { unshare(NEW_PID) == 0 || unshare(NEW_USER | NEW_PID) == 0 };
    let is_possible = || in_child("the test may make a PID namespace", || assert!(isolate()));
    if catch_unwind(is_possible).is_err() {
        return println!("skipped: a child with its parent's number: this user may make no PID namespace");
    }
    in_child("namespaces", || {
        assert!(isolate());
        in_child("the first process of a namespace", || {
            let engine = Engine::builder().backend(Arc::new(Cpu::new())).threads(2).build().unwrap();
            assert_eq!((std::process::id(), sign(&engine, &key, 20)), (1, (Ok(()), 20)));
            let ticket = engine.submit(job(&key, 0)).unwrap();
            // Afterwards this process starts no thread.
            assert!(isolate(), "the first namespace could be made");
            in_child("the first process of the next namespace", || {
                assert_eq!(std::process::id(), 1);
                are_refused(&engine, &key);
                assert!(ticket.wait().is_err_and(|why| why.to_string().contains("make a new engine")));
                let new = Engine::builder().backend(Arc::new(Cpu::new())).threads(2).build().unwrap();
                assert_eq!(sign(&new, &key, 20), (Ok(()), 20), "a new engine has threads");
            });
        });
    });
}

#[test]
fn a_child_computes_or_gets_an_error() {
    let _alone = ALONE.lock();
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
        in_cloned_child("after it, without the C library", || are_refused(&engine, &key));
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
