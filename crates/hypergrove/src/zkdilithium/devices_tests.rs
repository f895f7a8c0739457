//! Devices that share the jobs of zkDilithium, fail and lie.

use super::{Message, SignJob, SigningKey, VerifyJob, ZkDilithium as Set, only, poseidon_rate};
use crate::{Cpu, Engine, Error, Fault};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{
    Axis, Backend, Device, Policy, Reference, SelfTest, Timing, ZkDilithium, ZkDilithiumPrograms, ZkSign, ZkVerify,
    capabilities, forward,
};
use hypergrove_zkdilithium::params::SK_BYTES;
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKeyBytes, Trace, VerifyingKey as RawVerifyingKey, reference};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Devices that compute what the reference does, three jobs at a time, until they fail or lie. Bit i of `fails` and of `lies` is for device i.
#[derive(Clone, Default)]
struct Mock {
    fails: Arc<AtomicU32>,
    lies: Arc<AtomicU32>,
    runs: Arc<Mutex<Vec<(u32, usize)>>>,
    /// The number of programs that verify now, and the largest such number so far.
    together: Arc<(Mutex<(usize, usize)>, Condvar)>,
    /// Whether each program that verifies waits for another one.
    waits: Arc<AtomicBool>,
    /// Whether a device has room for only one program. `made` counts the programs that were made or refused, `live` those that exist.
    is_small: Arc<AtomicBool>,
    made: Arc<AtomicU32>,
    live: Arc<AtomicU32>,
    /// Whether making keys is slow, so that programs overlap.
    is_slow: Arc<AtomicBool>,
}

struct MockProgram(u32, Mock);

impl MockProgram {
    fn begin(&self, jobs: usize) -> Result<Timing, Error> {
        lock(&self.1.runs).push((self.0, jobs));
        match self.is_in(&self.1.fails) {
            true => Err(Error::Device { device: format!("mock:{}", self.0), what: "no answer".into() }),
            false => Ok(Timing { execute: Duration::from_micros(1), ..Timing::default() }),
        }
    }
    fn is_in(&self, devices: &AtomicU32) -> bool {
        devices.load(Relaxed) >> self.0 & 1 == 1
    }
}

impl Drop for MockProgram {
    fn drop(&mut self) {
        self.1.live.fetch_sub(1, Relaxed);
    }
}

impl ZkDilithium for MockProgram {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
        Some(100.0)
    }
    fn uses_expanded_keys(&self) -> bool {
        false
    }
    fn jobs(&self, _: Op) -> usize {
        3
    }
    fn queue(&self, _: Op) -> u32 {
        2
    }
    fn bytes(&self) -> u64 {
        0
    }
    /// A device of the reference has only one place for a job.
    fn elsewhere(&mut self, _: bool) {}
    hypergrove_engine::forward!(self => self; no_time_limit);

    fn keygen(&mut self, seeds: &[[u8; 32]], keys: &mut [&mut SigningKeyBytes]) -> Result<Timing, Error> {
        for (seed, key) in seeds.iter().zip(keys) {
            key.copy_from_slice(reference::keygen(seed).secret_bytes());
        }
        if self.1.is_slow.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.begin(seeds.len())
    }
    fn sign(&mut self, jobs: &[ZkSign<'_>], signatures: &mut [&mut SignatureBytes]) -> Result<Timing, Error> {
        for (job, signature) in jobs.iter().zip(signatures) {
            let made = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
            signature.copy_from_slice(made.as_bytes());
            signature[700] ^= u8::from(self.is_in(&self.1.lies));
        }
        self.begin(jobs.len())
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
        let judge = |key: &RawVerifyingKey, job: &ZkVerify<'_>| {
            reference::verify(&key.expand(), job.message, job.signature, &mut Trace::default())
        };
        out.extend(jobs.iter().map(|job| judge(job.key, job)));
        if self.1.waits.load(Relaxed) {
            let (count, changed) = &*self.1.together;
            let mut now = lock(count);
            now.0 += 1;
            now.1 = now.1.max(now.0);
            changed.notify_all();
            let met = changed.wait_timeout_while(now, Duration::from_secs(10), |now| now.1 < 2);
            met.unwrap_or_else(PoisonError::into_inner).0.0 -= 1;
        }
        self.begin(jobs.len())
    }
}

impl Backend for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        let cpu = only(Cpu::new().devices()?);
        Ok((0..2).map(|index| Device { backend: "mock", index, queue: 2, memory: 1 << 30, ..cpu.clone() }).collect())
    }
    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    forward!(self => Reference; absent, notices, rates, clock, fingerprint, free);
    capabilities!(has zkdilithium;);
}

impl ZkDilithiumPrograms for Mock {
    fn prepare(&self, device: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        self.made.fetch_add(1, Relaxed);
        if self.live.fetch_add(1, Relaxed) > 0 && self.is_small.load(Relaxed) {
            self.live.fetch_sub(1, Relaxed);
            return Err(Error::OutOfMemory { device: device.id(), needs: 2, has: 1 });
        }
        Ok(Box::new(MockProgram(device.index, self.clone())))
    }
}

fn mocks(mock: &Mock) -> Vec<(Arc<dyn Backend>, u32)> {
    let backend: Arc<dyn Backend> = Arc::new(mock.clone());
    vec![(backend.clone(), 0), (backend, 1)]
}

fn seeds(count: u8) -> Vec<[u8; 32]> {
    (0..count).map(|i| [i; 32]).collect()
}

fn are_keys_of(keys: &[SigningKey], seeds: &[[u8; 32]]) {
    assert_eq!(keys.len(), seeds.len());
    assert!(seeds.iter().zip(keys).all(|(seed, key)| *key.as_ref() == reference::keygen(seed)));
}

/// Makes keys in one column, which is zero if an error occurs.
fn keys_of_rows(engine: &Engine, seeds: &[[u8; 32]]) -> Result<Vec<SigningKey>, Error> {
    let mut keys = vec![0; seeds.len() * SK_BYTES];
    let made = engine.keygen_rows_from_seeds(Set, seeds.as_flattened(), &mut keys, None);
    assert!(made.is_ok() || keys.iter().all(|byte| *byte == 0), "after an error there are no keys");
    made.map(|()| keys.chunks(SK_BYTES).map(|key| SigningKey::from_bytes(key).unwrap()).collect())
}

/// Repeats a call until something has happened, at most 100 times: chance decides which device takes which jobs.
fn in_the_end(happened: impl FnMut() -> bool) {
    assert!(std::iter::repeat_with(happened).take(100).any(|happened| happened));
}

#[test]
fn devices_share_jobs_and_results_come_in_order() {
    let mock = Mock::default();
    let engine = Engine::builder().devices(mocks(&mock)).threads(2).verify_signatures(true).build().unwrap();
    assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["mock:0", "mock:1"]);
    assert_eq!(
        (engine.jobs_to_fill(Set, crate::Op::Sign, 0).unwrap(), poseidon_rate(&engine, None).unwrap()),
        (24, Some(200.0))
    );
    let keys = engine.from_seeds(Set, &seeds(10)).unwrap();
    are_keys_of(&keys, &seeds(10));
    let runs = std::mem::take(&mut *lock(&mock.runs));
    assert!(runs.iter().all(|(_, jobs)| *jobs <= 3));
    assert_eq!(engine.timing().execute, Duration::from_micros(runs.len() as u64));
    let jobs = keys[..4].iter().map(|key| SignJob::new(key, b"m"));
    let signatures: Vec<_> = engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().collect();
    assert!(lock(&mock.runs).iter().all(|(_, jobs)| *jobs == 2), "few jobs are spread over devices");
    for (key, signature) in keys.iter().zip(&signatures) {
        assert!(key.verifying_key().is_valid(Message::Bytes(b"m"), signature.as_bytes()));
    }
    assert!(engine.sign_batch_to_vec([] as [SignJob<'_>; 0]).unwrap().is_empty());
    for count in [20, 7, 0, 23] {
        are_keys_of(&keys_of_rows(&engine, &seeds(count)).unwrap(), &seeds(count));
    }
    assert!(engine.faults().is_empty());
}

/// A GPU and the CPU both make some of the keys, and each key is in its place.
#[test]
fn the_cpu_takes_part() {
    let mock = Mock::default();
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    let devices = vec![mocks(&mock)[1].clone(), (cpu, 0)];
    let engine = Engine::builder().devices(devices).threads(1).build().unwrap();
    // A chunk of the CPU has up to four times the jobs that fill the CPU.
    assert_eq!(engine.jobs_to_fill(Set, crate::Op::Verify, 0).unwrap(), 2 * (6 + 4 * 512));
    in_the_end(|| {
        lock(&mock.runs).clear();
        are_keys_of(&engine.from_seeds(Set, &seeds(200)).unwrap(), &seeds(200));
        (1..200).contains(&lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>())
    });
    // The CPU takes no part if the engine was faster without it.
    for _ in 0..2 {
        engine.0.scheduler.know_pace(Kind::zkdilithium(Op::Keygen), 20, true, 1e11);
        engine.0.scheduler.know_pace(Kind::zkdilithium(Op::Keygen), 20, false, 1e12);
    }
    lock(&mock.runs).clear();
    are_keys_of(&engine.from_seeds(Set, &seeds(20)).unwrap(), &seeds(20));
    assert_eq!(lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>(), 20);
    // A device that fails leaves all jobs to the other device.
    mock.fails.store(0b10, Relaxed);
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(200)).unwrap(), &seeds(200));
        !engine.faults().is_empty()
    });
    // Both programs that the device had in flight may have failed.
    let faults = engine.faults();
    assert!(faults.len() <= 2 && faults.iter().all(|fault| fault.device.id() == "mock:1"), "{faults:?}");
    lock(&mock.runs).clear();
    are_keys_of(&engine.from_seeds(Set, &seeds(20)).unwrap(), &seeds(20));
    assert!(lock(&mock.runs).is_empty(), "it was disabled");
}

/// Two programs of one device run concurrently: neither needs an answer that the other can give only when it is done.
#[test]
fn programs_of_a_device_are_in_flight_together() {
    let mock = Mock::default();
    let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
    let key = SigningKey::from_seed(&[7; 32]);
    let (signature, public) = (key.sign_message(Message::Bytes(b"m")).unwrap(), key.verifying_key());
    let job = VerifyJob::new(&public, b"m", signature.as_bytes());
    mock.waits.store(true, Relaxed);
    assert_eq!(engine.verify_batch_to_vec(vec![job; 12]).unwrap(), [const { Ok(true) }; 12]);
    assert_eq!(lock(&mock.together.0).1, 2);
}

#[test]
fn a_device_without_room_for_a_second_program_goes_on_with_one() {
    let mock = Mock::default();
    mock.is_small.store(true, Relaxed);
    mock.is_slow.store(true, Relaxed);
    let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(12)).unwrap(), &seeds(12));
        mock.made.load(Relaxed) > 1
    });
    assert!(engine.faults().is_empty());
    // There may be room for a second program again.
    mock.is_small.store(false, Relaxed);
    let made = mock.made.load(Relaxed);
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(12)).unwrap(), &seeds(12));
        mock.made.load(Relaxed) > made
    });
}

/// A thread of the caller's pool that waits for one call may begin with the next.
#[test]
fn calls_from_a_pool_do_not_wait_for_themselves() {
    let engine = Engine::builder().devices(mocks(&Mock::default())[..1].to_vec()).threads(1).build().unwrap();
    let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        (0..16u8).into_par_iter().for_each(|_| are_keys_of(&engine.from_seeds(Set, &seeds(2)).unwrap(), &seeds(2)));
    });
}

#[test]
fn the_part_of_one_that_fails_is_done_by_another() {
    let mock = Mock::default();
    let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
    mock.fails.store(0b01, Relaxed);
    in_the_end(|| {
        are_keys_of(&engine.from_seeds(Set, &seeds(11)).unwrap(), &seeds(11));
        !engine.faults().is_empty()
    });
    let faults = engine.faults();
    assert!(faults.iter().all(|fault| fault.device.id() == "mock:0" && fault.jobs > 0), "{faults:?}");
    in_the_end(|| {
        let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
        are_keys_of(&keys_of_rows(&engine, &seeds(11)).unwrap(), &seeds(11));
        !engine.faults().is_empty()
    });
    mock.fails.store(0b11, Relaxed);
    assert!(keys_of_rows(&engine, &seeds(11)).is_err());
    let why = engine.from_seeds(Set, &seeds(11)).unwrap_err();
    assert!(matches!(&why, Error::Device { device, what } if device == "mock:1" && what == "no answer"), "{why}");
    mock.fails.store(0, Relaxed);
    are_keys_of(&engine.from_seeds(Set, &seeds(2)).unwrap(), &seeds(2));
}

#[test]
fn wrong_signatures_are_withheld_and_made_again() {
    let mock = Mock::default();
    let engine = Engine::builder().devices(mocks(&mock)).threads(1).verify_signatures(true).build().unwrap();
    let key = SigningKey::from_seed(&[7; 32]);
    let jobs = vec![SignJob::new(&key, b"m"); 9];
    let right = key.sign_message(Message::Bytes(b"m"));
    mock.lies.store(0b01, Relaxed);
    in_the_end(|| {
        assert_eq!(engine.sign_batch_to_vec(jobs.clone()).unwrap(), vec![right.clone(); 9]);
        !engine.faults().is_empty()
    });
    let faults = engine.faults();
    let is_lie = |fault: &Fault| matches!(fault.error, Error::Inconsistent { .. }) && fault.device.index == 0;
    assert!(faults.len() <= 2 && faults.iter().all(is_lie), "{faults:?}");
    // Wrong signatures of a call that takes an iterator are withheld too.
    in_the_end(|| {
        let engine = Engine::builder().devices(mocks(&mock)).threads(2).verify_signatures(true).build().unwrap();
        let mut signatures = Vec::new();
        engine.sign_batch(jobs.clone(), |_, signature| signatures.push(signature)).unwrap();
        assert_eq!(signatures, vec![right.clone(); 9]);
        !engine.faults().is_empty()
    });
    mock.lies.store(0b11, Relaxed);
    assert!(
        matches!(engine.sign_batch_to_vec(jobs), Err(Error::Inconsistent { .. })),
        "the last one's lie ends the call"
    );
}

#[test]
fn what_cannot_be_an_engine_is_refused() {
    let mock: Arc<dyn Backend> = Arc::new(Mock::default());
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    let refused = |devices| Engine::builder().devices(devices).build().unwrap_err().to_string();
    assert!(refused(vec![(mock.clone(), 2)]).contains("it has 2 devices"));
    assert!(refused(vec![(mock.clone(), 0), (mock, 0)]).contains("named twice"));
    assert!(refused(vec![(cpu.clone(), 0), (cpu.clone(), 0)]).contains("named twice"));
    assert!(refused(vec![(cpu.clone(), 1)]).contains("it has 1 devices"));
    let engine = Engine::builder().devices(vec![(cpu, 0)]).threads(1).build().unwrap();
    assert_eq!(engine.devices()[0].id(), "cpu:0");
    let reference: Arc<dyn Backend> = Arc::new(hypergrove_engine::Reference);
    let engine = Engine::builder().devices(vec![(reference, 0)]).build().unwrap();
    let why = engine.from_seeds(Set, &[[0; 32]]).unwrap_err().to_string();
    assert_eq!(why, "reference:0 cannot execute zkDilithium");
}
