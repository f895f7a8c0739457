//! Devices that share the jobs of zkDilithium: how their chunks are filled, and their queues and memory. The suite of the library's tests
//! (`tests/common/rows_suite.rs`) has devices that fail and lie.

use super::{Message, SignJob, SigningKey, VerifyJob, ZkDilithium as Set, poseidon_rate};
use crate::{Cpu, Engine, Error};
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Backend, Device, Timing};
use hypergrove_testkit::mock::{Call, Capability, Mock, mock};
use hypergrove_zkdilithium::{Op, reference};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Devices that compute what the reference does, three jobs at a time, and report a microsecond for each run.
fn sound() -> Mock {
    let (has, backend) = (&[Capability::ZkDilithium], Arc::new(Cpu::new()));
    let (jobs, poseidon_rate, delay) = (3, Some(100.0), [Duration::ZERO; 4]);
    Mock { has, backend, jobs, poseidon_rate, delay, memory: 1 << 30, ..mock(2, 2) }.answering(in_a_microsecond)
}

fn in_a_microsecond(call: Call<'_>) -> Result<(), Error> {
    *call.timing = Timing { execute: Duration::from_micros(1), ..Timing::default() };
    Ok(())
}

fn seeds(count: u8) -> Vec<[u8; 32]> {
    (0..count).map(|i| [i; 32]).collect()
}

fn are_keys_of(keys: &[SigningKey], seeds: &[[u8; 32]]) {
    assert_eq!(keys.len(), seeds.len());
    assert!(seeds.iter().zip(keys).all(|(seed, key)| *key.as_ref() == reference::keygen(seed)));
}

/// Repeats a call until something has happened, at most 100 times: chance decides which device takes which jobs.
fn in_the_end(happened: impl FnMut() -> bool) {
    assert!(std::iter::repeat_with(happened).take(100).any(|happened| happened));
}

#[test]
fn devices_share_jobs_and_results_come_in_order() {
    let mock = sound();
    let engine = Engine::builder().devices(mock.on([0, 1])).threads(2).verify_signatures(true).build().unwrap();
    assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["mock:0", "mock:1"]);
    assert_eq!(
        (engine.jobs_to_fill(Set, crate::Op::Sign, 0).unwrap(), poseidon_rate(&engine, None).unwrap()),
        (24, Some(200.0))
    );
    let keys = engine.from_seeds(Set, &seeds(10)).unwrap();
    are_keys_of(&keys, &seeds(10));
    let runs = std::mem::take(&mut *lock(&mock.log.runs));
    assert!(runs.iter().all(|(_, jobs)| *jobs <= 3));
    assert_eq!(engine.timing().execute, Duration::from_micros(runs.len() as u64));
    let jobs = keys[..4].iter().map(|key| SignJob::new(key, b"m"));
    let signatures: Vec<_> = engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().collect();
    assert!(lock(&mock.log.runs).iter().all(|(_, jobs)| *jobs == 2), "few jobs are spread over devices");
    for (key, signature) in keys.iter().zip(&signatures) {
        assert!(key.verifying_key().is_valid(Message::Bytes(b"m"), signature.as_bytes()));
    }
    assert!(engine.sign_batch_to_vec([] as [SignJob<'_>; 0]).unwrap().is_empty());
    assert!(engine.faults().is_empty());
}

/// A GPU and the CPU both make some of the keys, and each key is in its place.
#[test]
fn the_cpu_takes_part() {
    let fails = Arc::new(AtomicBool::new(false));
    let now = fails.clone();
    let mock = sound().answering(move |call| if now.load(Relaxed) { call.fails("no answer") } else { Ok(()) });
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    let devices = [mock.on([1]), vec![(cpu, 0)]].concat();
    let engine = Engine::builder().devices(devices).threads(1).build().unwrap();
    // A chunk of the CPU has up to four times the jobs that fill the CPU.
    assert_eq!(engine.jobs_to_fill(Set, crate::Op::Verify, 0).unwrap(), 2 * (6 + 4 * 512));
    in_the_end(|| {
        lock(&mock.log.runs).clear();
        are_keys_of(&engine.from_seeds(Set, &seeds(200)).unwrap(), &seeds(200));
        (1..200).contains(&lock(&mock.log.runs).iter().map(|(_, jobs)| jobs).sum::<usize>())
    });
    // The CPU takes no part if the engine was faster without it.
    for _ in 0..2 {
        engine.0.scheduler.know_pace(Kind::zkdilithium(Op::Keygen), 20, true, 1e11);
        engine.0.scheduler.know_pace(Kind::zkdilithium(Op::Keygen), 20, false, 1e12);
    }
    lock(&mock.log.runs).clear();
    are_keys_of(&engine.from_seeds(Set, &seeds(20)).unwrap(), &seeds(20));
    assert_eq!(lock(&mock.log.runs).iter().map(|(_, jobs)| jobs).sum::<usize>(), 20);
    // A device that fails leaves all jobs to the other device.
    fails.store(true, Relaxed);
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(200)).unwrap(), &seeds(200));
        !engine.faults().is_empty()
    });
    // Both programs that the device had in flight may have failed.
    let faults = engine.faults();
    assert!(faults.len() <= 2 && faults.iter().all(|fault| fault.device.id() == "mock:1"), "{faults:?}");
    lock(&mock.log.runs).clear();
    are_keys_of(&engine.from_seeds(Set, &seeds(20)).unwrap(), &seeds(20));
    assert!(lock(&mock.log.runs).is_empty(), "it was disabled");
}

/// Two programs of one device run concurrently: neither needs an answer that the other can give only when it is done.
#[test]
fn programs_of_a_device_are_in_flight_together() {
    // The number of programs that verify now, and the largest such number so far. Each program waits for another one.
    let together = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let meet = together.clone();
    let mock = sound().answering(move |_| {
        let (count, changed) = &*meet;
        let mut now = lock(count);
        now.0 += 1;
        now.1 = now.1.max(now.0);
        changed.notify_all();
        let met = changed.wait_timeout_while(now, Duration::from_secs(10), |now: &mut (usize, usize)| now.1 < 2);
        met.unwrap_or_else(PoisonError::into_inner).0.0 -= 1;
        Ok(())
    });
    let engine = Engine::builder().devices(mock.on([0])).threads(2).build().unwrap();
    let key = SigningKey::from_seed(&[7; 32]);
    let (signature, public) = (key.sign_message(Message::Bytes(b"m")).unwrap(), key.verifying_key());
    let job = VerifyJob::new(&public, b"m", signature.as_bytes());
    assert_eq!(engine.verify_batch_to_vec(vec![job; 12]).unwrap(), [const { Ok(true) }; 12]);
    assert_eq!(lock(&together.0).1, 2);
}

#[test]
fn a_device_without_room_for_a_second_program_goes_on_with_one() {
    // Whether a device has room for only one program, and the programs that were made or refused.
    let small = Arc::new((AtomicBool::new(true), AtomicU32::new(0)));
    let now = small.clone();
    let made = || small.1.load(Relaxed);
    // Making keys is slow, so that programs overlap.
    let slow = Mock { delay: [Duration::from_millis(1); 4], ..sound() };
    let mock = slow.preparing(move |it| {
        now.1.fetch_add(1, Relaxed);
        match it.live > 0 && now.0.load(Relaxed) {
            true => Err(Error::OutOfMemory { device: it.device.id(), needs: 2, has: 1 }),
            false => Ok(()),
        }
    });
    let engine = Engine::builder().devices(mock.on([0])).threads(2).build().unwrap();
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(12)).unwrap(), &seeds(12));
        made() > 1
    });
    assert!(engine.faults().is_empty());
    // There may be room for a second program again.
    small.0.store(false, Relaxed);
    let before = made();
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(12)).unwrap(), &seeds(12));
        made() > before
    });
}

/// A thread of the caller's pool that waits for one call may begin with the next. Programs of zkDilithium may also wait for each other's memory.
#[test]
fn calls_from_a_pool_do_not_wait_for_themselves() {
    let engine = Engine::builder().devices(sound().on([0])).threads(1).build().unwrap();
    let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        (0..16u8).into_par_iter().for_each(|_| are_keys_of(&engine.from_seeds(Set, &seeds(2)).unwrap(), &seeds(2)));
    });
}

#[test]
fn a_device_without_zkdilithium_says_so() {
    let reference: Arc<dyn Backend> = Arc::new(hypergrove_engine::Reference);
    let engine = Engine::builder().devices(vec![(reference, 0)]).build().unwrap();
    let why = engine.from_seeds(Set, &[[0; 32]]).unwrap_err().to_string();
    assert_eq!(why, "reference:0 cannot execute zkDilithium");
}
