//! GPUs that hang: other devices do what they were given, the right one is blamed, and what it may still use stays.

use crate::common::{Mock, OnMock, P, PURE, key, message, mock, sign};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::*;
use hypergrove_gpu::{Gpus, Wrapper};
use hypergrove_testkit::faults::{Faults, WithFaultsOfEach};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Short, since tests wait for it.
const PATIENCE: Duration = Duration::from_millis(200);

/// Longer than a call takes that waits for nothing: it overwrites what the device may not use any more, some hundred megabytes.
const LONG: Duration = Duration::from_secs(2);

/// Jobs of each call: for two devices more than a recording has, so that rows are held back and fetched.
const JOBS: usize = 64;

/// So many GPUs, whose kernels run on the host, and what makes the first hang.
fn gpus(count: usize) -> (Arc<dyn Backend>, Arc<Faults>) {
    let (backend, mut faults) = doubles(count);
    (backend, faults.swap_remove(0))
}

/// So many GPUs, whose kernels run on the host, and the faults of each.
pub(crate) fn doubles(count: usize) -> (Arc<dyn Backend>, Vec<Arc<Faults>>) {
    let with_faults = WithFaultsOfEach::default();
    let gpu = |number: usize| {
        let mut gpu = crate::host::HostGpu::new(false);
        gpu.facts.id = format!("host:{number}");
        Arc::new(with_faults.wrap(Arc::new(gpu)))
    };
    let gpus = (0..count).map(gpu).collect();
    (Arc::new(Gpus::new("host", Ok(gpus), None)), with_faults.0.into_inner().unwrap())
}

fn engine(backend: &Arc<dyn Backend>, count: u32) -> Engine {
    let devices = (0..count).map(|device| (backend.clone(), device)).collect();
    Engine::builder().devices(devices).threads(2).build().unwrap()
}

/// An engine's clients.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Client {
    SlhDsa,
    ZkDilithium,
    Sha256,
}
const CLIENTS: [Client; 3] = [Client::SlhDsa, Client::ZkDilithium, Client::Sha256];

impl Client {
    /// A call whose results are all right, or its error.
    fn call(self, engine: &Engine) -> Result<(), Error> {
        match self {
            Client::SlhDsa => {
                let (done, count) = sign(engine, &key(1), JOBS);
                assert!(done.is_err() || count == JOBS, "{count} signatures");
                done
            }
            Client::ZkDilithium => {
                let key = zkdilithium::SigningKey::from_seed(&[1; 32]);
                let messages: Vec<_> = (0..4).map(message).collect();
                let jobs = messages.iter().map(|message| zkdilithium::SignJob::new(&key, message));
                let signed = engine.sign_batch_to_vec(jobs)?;
                for (message, signature) in messages.iter().zip(signed) {
                    let right = key.sign_message(zkdilithium::Message::Bytes(message)).unwrap();
                    assert!(signature?.as_bytes() == right.as_bytes());
                }
                Ok(())
            }
            Client::Sha256 => {
                let bytes: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
                let (mut digests, mut statuses) = (vec![[0; 32]; 50], [RowStatus::default(); 50]);
                engine.sha256_rows(Column::packed(&bytes, 100), digests.as_flattened_mut(), &mut statuses)?;
                for (message, digest) in bytes.chunks(100).zip(digests) {
                    assert!(digest == *Sha256::digest(message));
                }
                Ok(())
            }
        }
    }

    /// How errors name what it does.
    fn work(self) -> &'static str {
        match self {
            Client::SlhDsa => "signatures",
            Client::ZkDilithium => "zkDilithium",
            Client::Sha256 => "SHA-256 of messages",
        }
    }
}

/// Whether the first device was blamed, and no other.
fn is_blamed(engine: &Engine) -> bool {
    let faults = engine.faults();
    for fault in &faults {
        assert_eq!(fault.error.kind(), ErrorKind::DeviceFailed);
        let (device, why) = (fault.device.id(), fault.error.to_string());
        assert!(device == "host:0" && why.starts_with("host:0 failed: it hangs: it did not finish"), "{device}: {why}");
    }
    !faults.is_empty()
}

/// Calls until both devices are known, and self-tests have passed.
fn warm_up(engine: &Engine) {
    for client in CLIENTS {
        (0..3).for_each(|_| client.call(engine).unwrap());
    }
    assert_eq!(engine.faults(), []);
}

/// All three clients share the devices when one of these hangs.
#[test]
fn shared_work_loses_nothing() {
    let mut blamed = 0;
    // At first also in the self-tests.
    for (is_warm, after) in [(false, 0), (false, 3), (true, 0), (true, 1), (true, 4), (true, 9), (true, 20)] {
        let (backend, faults) = gpus(2);
        let engine = engine(&backend, 2);
        if is_warm {
            warm_up(&engine);
        }
        faults.hang_after(after, PATIENCE);
        scope(|scope| {
            for client in CLIENTS {
                let engine = &engine;
                scope.spawn(move || (0..4).for_each(|_| client.call(engine).unwrap()));
            }
        });
        if is_blamed(&engine) {
            assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["host:1"]);
            blamed += 1;
        }
        // The device goes on when nobody waits for it any more. It finds all memory that it uses.
        drop((engine, backend));
        faults.go_on().unwrap();
    }
    assert!(blamed >= 5, "{blamed}");
}

/// Without another device, calls end with an error that names the device and the work; later calls end at once.
#[test]
fn a_call_without_another_device_ends_with_an_error() {
    for client in CLIENTS {
        let (backend, faults) = gpus(1);
        let engine = engine(&backend, 1);
        warm_up(&engine);
        faults.hang_after(0, LONG);
        let why = client.call(&engine).unwrap_err();
        let text = why.to_string();
        assert!(
            text.starts_with(&format!("host:0 failed: it hangs: it did not finish {} in ", client.work())),
            "{text}"
        );
        assert!(text.ends_with("restart the process to use it again, or set a longer device timeout"), "{text}");
        assert!(is_blamed(&engine));
        for other in CLIENTS {
            let began = Instant::now();
            assert_eq!(other.call(&engine), Err(why.clone()));
            assert!(began.elapsed() < LONG, "{other:?} after {client:?}: {:?}", began.elapsed());
        }
        drop((engine, backend));
        assert!(faults.go_on().unwrap() > 0, "{client:?}: the device had work");
    }
}

#[test]
fn a_device_that_goes_on_in_time_is_not_blamed() {
    let (backend, faults) = gpus(1);
    let engine = Engine::builder().backend(backend).threads(2).build().unwrap();
    warm_up(&engine);
    for client in CLIENTS {
        faults.hang_after(0, Duration::MAX);
        scope(|scope| {
            let call = scope.spawn(|| client.call(&engine));
            sleep(PATIENCE);
            assert!(!call.is_finished(), "{client:?}: nobody has given it up");
            assert_eq!(faults.go_on(), Ok(0));
            assert_eq!(call.join().unwrap(), Ok(()));
        });
    }
    assert_eq!(engine.faults(), []);
}

/// How often all numbers of submissions are tried, at most.
const ROUNDS: usize = 10;

/// Calls whose results go to memory that the device reaches, with a device that hangs after so many submissions: the call does not return
/// while the device may write, and nothing is written later. Which of the two happens depends on the threads' times, so this goes on until both did.
fn is_not_written_late(right: &[u8], after: &[u64], call: impl Fn(&Engine, &mut [u8]) -> Result<(), Error> + Sync) {
    let (mut waited, mut gone_on, once) = (0, 0, after.len());
    for (number, after) in after.iter().copied().cycle().take(ROUNDS * once).enumerate() {
        if number >= once && waited > 0 && gone_on > 0 {
            break;
        }
        let (backend, faults) = gpus(2);
        let engine = engine(&backend, 2);
        let mut memory = engine.memory(right.len()).unwrap();
        // Rows of the other device go through staging.
        assert_eq!(memory.devices(), ["host:0"]);
        for _ in 0..2 {
            call(&engine, &mut memory).unwrap();
        }
        memory.fill(0);
        faults.hang_after(after, PATIENCE);
        scope(|scope| {
            let memory = &mut memory;
            let call = scope.spawn(|| call(&engine, memory));
            while !call.is_finished() && faults.endless_waits() == 0 {
                sleep(Duration::from_millis(1));
            }
            if faults.endless_waits() > 0 {
                // It waits for the device, which copies to the caller's memory.
                sleep(2 * PATIENCE);
                assert!(!call.is_finished(), "after {after}");
                waited += 1;
                faults.go_on().unwrap();
            }
            call.join().unwrap().unwrap();
        });
        assert!(memory[..] == *right, "after {after}");
        gone_on += u32::from(is_blamed(&engine));
        // Whatever the device does late, it does elsewhere.
        memory.fill(7);
        drop(engine);
        faults.go_on().unwrap();
        assert!(memory.iter().all(|byte| *byte == 7), "after {after}");
        drop((memory, backend));
    }
    println!("waited {waited} times, went on {gone_on} times");
    assert!(waited > 0 && gone_on > 0, "waited {waited} times, went on {gone_on} times");
}

#[test]
fn callers_memory_of_zkdilithium_is_not_written_after_the_call() {
    let key = zkdilithium::SigningKey::from_seed(&[1; 32]);
    let messages = [b'm'; 8];
    let rows = zkdilithium::SignRows::new(RowSigningKeys::One(&key), Column::packed(&messages, 1));
    let one = key.sign_message(zkdilithium::Message::Bytes(b"m")).unwrap();
    is_not_written_late(&one.as_bytes().repeat(messages.len()), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], |engine, memory| {
        let mut statuses = vec![RowStatus::default(); messages.len()];
        engine.sign_rows(&rows, memory, &mut statuses)?;
        assert!(statuses.iter().all(|status| *status == RowStatus::Signed));
        Ok(())
    });
}

/// Rows in memory that the device reaches. It may read that memory for ever, which therefore stays; but while it may write there, the
/// call does not return.
#[test]
fn callers_memory_is_not_written_after_the_call() {
    let (size, key) = (P.sig_bytes(), key(1));
    let (public, messages) = (key.verifying_key(), (0..JOBS).map(message).collect::<Vec<_>>());
    let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let signing = SignRows {
        keys: RowSigningKeys::One(&key),
        mode: PURE,
        messages: Column::Slices(&slices),
        randomizer: Randomizer::Deterministic,
    };
    let (mut right, mut statuses) = (vec![0; JOBS * size], vec![RowStatus::default(); JOBS]);
    Engine::builder()
        .backend(Arc::new(Cpu::new()))
        .build()
        .unwrap()
        .sign_rows(&signing, &mut right, &mut statuses)
        .unwrap();
    is_not_written_late(&right, &[0, 1, 4, 9, 10, 11, 12], |engine, memory| {
        let mut statuses = vec![RowStatus::default(); JOBS];
        engine.sign_rows(&signing, memory, &mut statuses)?;
        assert!(statuses.iter().all(|status| *status == RowStatus::Signed));
        Ok(())
    });

    let mut verified = 0;
    for after in 0..3 {
        let (backend, faults) = gpus(2);
        let engine = engine(&backend, 2);
        let mut memory = engine.memory(JOBS * size).unwrap();
        memory.copy_from_slice(&right);
        let verify = |statuses: &mut [RowStatus], memory: &[u8]| {
            let signatures = Column::Packed { bytes: memory, width: size, stride: size, rows: JOBS };
            let (keys, messages) = (RowVerifyingKeys::One(&public), Column::Slices(&slices));
            engine.verify_rows(&VerifyRows { keys, mode: PURE, messages, signatures }, statuses).unwrap();
            assert!(statuses.iter().all(|status| *status == RowStatus::Valid), "after {after}");
        };
        (0..2).for_each(|_| verify(&mut statuses, &memory));
        faults.hang_after(after, PATIENCE);
        statuses.fill(RowStatus::default());
        verify(&mut statuses, &memory);
        verified += u32::from(is_blamed(&engine));
        // The device may read it still, and finds it where it was.
        drop((memory, engine, backend));
        faults.go_on().unwrap();
    }
    assert!(verified > 0);
}

/// 100 times what jobs are predicted to take, and no less than the engine's least. The host has none.
#[test]
fn limits_follow_predictions() {
    let limits = |device: &Mock, timeout: Option<Duration>| {
        let builder = device.builder();
        let engine = timeout.map_or(builder.clone(), |timeout| builder.device_timeout(timeout)).build().unwrap();
        device.log.limits.lock().unwrap().clear();
        for _ in 0..2 {
            assert_eq!(sign(&engine, &key(1), 8), (Ok(()), 8));
        }
        let limits: Vec<Option<Duration>> = device.log.limits.lock().unwrap().iter().map(|(_, limit)| *limit).collect();
        limits
    };
    let slow = |micros| Mock { memory: 1 << 30, delay: [Duration::from_micros(micros); 4], ..mock(1, 2) };
    let given = limits(&slow(100), None);
    assert!(!given.is_empty() && given.iter().all(|limit| *limit == Some(DEVICE_TIMEOUT)), "{given:?}");
    let hour = Duration::from_secs(3600);
    assert!(limits(&slow(100), Some(hour)).iter().all(|limit| *limit == Some(hour)));
    assert!(limits(&slow(100), Some(Duration::MAX)).iter().all(Option::is_none));
    // Eight jobs of 2 ms each.
    let measured = *limits(&slow(2000), Some(Duration::from_millis(1))).last().unwrap();
    assert!(measured.is_some_and(|limit| (1.6..60.0).contains(&limit.as_secs_f64())), "{measured:?}");
    assert_eq!(limits(&mock(1, 1), Some(hour)), []);
    assert_eq!(Engine::new().unwrap().device_timeout(), DEVICE_TIMEOUT);
    assert_eq!(Engine::builder().device_timeout(hour).build().unwrap().device_timeout(), hour);
}
