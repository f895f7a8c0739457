//! Streams of jobs on devices that take their time, run out of memory, fail and lie.

use crate::common::{Call, Mock, OnMock, P, PURE, job, key, message, mock, sign};
use hypergrove::backend::*;
use hypergrove::*;
use hypergrove_fips205::reference::{slh_keygen_internal, slh_sign};
use hypergrove_testkit::toys::TOY_SHAKE_24;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[test]
fn sub_batches_overlap_and_results_come_in_order() {
    // Every other sub-batch takes long.
    let slow = mock(1, 2).answering(|call| {
        std::thread::sleep(Duration::from_millis(if call.nth % 2 == 0 { 5 } else { 0 }));
        Ok(())
    });
    let (engine, key) = (slow.engine(), key(1));
    for count in [0, 1, 7, 8, 9, 100] {
        assert_eq!(sign(&engine, &key, count), (Ok(()), count));
    }
    assert_eq!(slow.log.counts[0].2.load(SeqCst), 2, "two runs at a time, never three");
    assert!(slow.log.runs.lock().unwrap().iter().all(|(_, jobs)| *jobs <= 8));

    let public = key.verifying_key();
    let signatures: Vec<_> = (0..50)
        .map(|i| engine.sign(&key, PURE, &message(i), Randomizer::Deterministic).unwrap().into_bytes())
        .collect();
    let jobs = (0..50).map(|i| VerifyJob::new(&public, message(i + usize::from(i % 3 == 0)), &signatures[i]));
    let mut verdicts = Vec::new();
    engine.verify_batch(jobs, |index, verdict| verdicts.push((index, verdict))).unwrap();
    assert_eq!(verdicts, (0..50).map(|i| (i, Ok(i % 3 != 0))).collect::<Vec<_>>());
}

/// The first chunk of one device takes long. The other goes on, whose results wait for those of that chunk.
#[test]
fn a_slow_chunk_does_not_keep_other_devices_idle() {
    const MANY: usize = 20;
    let (others, in_vain) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let (count, gives_up) = (others.clone(), in_vain.clone());
    let mock = mock(2, 2).answering(move |call| {
        if call.device == 1 {
            count.fetch_add(1, SeqCst);
        }
        let (began, so_far) = (Instant::now(), count.load(SeqCst));
        // The first chunks tell how fast the devices are.
        while (call.device, call.nth) == (0, 4) && count.load(SeqCst) < so_far + MANY {
            std::thread::sleep(Duration::from_millis(1));
            if began.elapsed() > Duration::from_secs(20) {
                gives_up.store(true, SeqCst);
                break;
            }
        }
        Ok(())
    });
    let (engine, key) = (mock.engine(), key(1));
    assert_eq!(sign(&engine, &key, 800), (Ok(()), 800));
    assert!(!in_vain.load(SeqCst), "the other device had only {} chunks", others.load(SeqCst));
}

#[test]
fn bad_jobs_fail_alone_in_flight() {
    let (engine, key, long) = (mock(1, 2).engine(), key(1), [0; 256]);
    let bad = |i| i % 5 == 3 || (40..60).contains(&i);
    let jobs = (0..100).map(|i| match bad(i) {
        true => job(&key, i).context(&long),
        false => job(&key, i),
    });
    let mut next = 0;
    engine
        .sign_batch(jobs, |index, signature| {
            assert_eq!((index, signature.is_err()), (next, bad(index)));
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 100);
}

/// Messages, outputs (those that wait to be handed out, and those that they are taken from) and programs together.
#[test]
fn all_that_is_in_flight_fits_the_memory_budget() {
    const MESSAGE: usize = 3_000;
    const BUDGET: u64 = 200_000;
    for (devices, queue) in [(1, 2), (2, 2), (3, 1), (1, 3)] {
        let slow = Mock { bytes: 500, jobs: 64, ..mock(devices, queue) };
        let engine = slow.builder().memory_budget(BUDGET).build().unwrap();
        let (key, held, most) = (key(1), AtomicU64::new(0), AtomicU64::new(0));
        let each = (MESSAGE + 2 * P.sig_bytes()) as u64;
        let watch = || {
            most.fetch_max(held.load(SeqCst) + slow.log.bytes.load(SeqCst), SeqCst);
        };
        let jobs = (0..300).map(|i| {
            // The job that is taken now waits for room.
            watch();
            held.fetch_add(each, SeqCst);
            SignJob::new(&key, vec![i as u8; MESSAGE])
        });
        let mut count = 0;
        engine
            .sign_batch(jobs, |_, signature| {
                watch();
                signature.unwrap();
                held.fetch_sub(each, SeqCst);
                count += 1;
            })
            .unwrap();
        assert_eq!(count, 300);
        let most = most.load(SeqCst);
        assert!(most <= BUDGET, "{devices} devices, {queue} at a time: {most} bytes");
        assert!(most > BUDGET / 3, "the budget is made use of: {most} bytes");
        let prepared = slow.log.prepared.load(SeqCst) as u32;
        assert!(prepared <= 3 * devices * queue, "programs are used again: {prepared} were prepared");
    }
}

#[test]
fn a_job_may_take_the_whole_budget() {
    let (engine, key) = (mock(2, 2).builder().memory_budget(100_000).build().unwrap(), key(1));
    let sizes = [10, 80_000, 10, 10, 200_000, 10];
    let mut results = Vec::new();
    engine
        .sign_batch(sizes.iter().map(|size| SignJob::new(&key, vec![1; *size])), |_, signature| {
            results.push(signature.map(drop));
        })
        .unwrap();
    assert!(matches!(results.remove(4), Err(Error::OutOfMemory { has: 100_000, .. })));
    assert_eq!(results, vec![Ok(()); 5]);
    assert_eq!(engine.faults(), [], "no device is to blame");

    // An endless row of such jobs is as lazy as any.
    let (pulled, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let jobs = std::iter::from_fn(|| {
        pulled.fetch_add(1, SeqCst);
        (seen.load(SeqCst) < 3).then(|| SignJob::new(&key, vec![1; 200_000]))
    });
    engine
        .sign_batch(jobs, |_, signature| {
            assert!(signature.is_err());
            seen.fetch_add(1, SeqCst);
        })
        .unwrap();
    assert!(pulled.load(SeqCst) < 20);
}

#[test]
fn work_is_split_by_speed() {
    let key = key(1);
    let mut two = mock(2, 2);
    (two.delay[0], two.delay[1]) = (Duration::from_millis(3), Duration::from_millis(12));
    let engine = two.engine();
    assert_eq!(sign(&engine, &key, 300), (Ok(()), 300));
    let [fast, slow, ..] = two.shares();
    let ratio = fast as f64 / slow as f64;
    assert!((1.5..12.0).contains(&ratio), "{fast} and {slow} jobs, {ratio:.1} instead of 4");

    // Rows too short to be pulled again and again are shared out too.
    let even = Mock { jobs: 1000, ..mock(2, 1) };
    let engine = even.engine();
    assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
    let [a, b, ..] = even.shares();
    assert!(a.abs_diff(b) < 40, "{a} and {b} jobs");
    // An unknown length is no reason to wait.
    let mut seen = 0;
    let jobs = std::iter::successors(Some(0), |i| (*i < 99).then_some(i + 1));
    engine.sign_batch(jobs.map(|i| job(&key, i)), |_, _| seen += 1).unwrap();
    assert_eq!(seen, 100);
}

#[test]
fn a_device_that_fails_is_disabled_and_nothing_is_lost() {
    for queue in [1, 2] {
        let failing = mock(3, queue).answering(|call| match (call.device, call.nth) {
            (1, 2..) => call.fails("fell off the bus"),
            _ => Ok(()),
        });
        let (engine, key) = (failing.engine(), key(1));
        assert_eq!(sign(&engine, &key, 300), (Ok(()), 300));
        let faults = engine.faults();
        assert!(!faults.is_empty() && faults.len() <= queue as usize);
        for Fault { device, error, jobs } in &faults {
            assert_eq!((device.id().as_str(), *jobs > 0), ("mock:1", true));
            assert_eq!(*error, Error::Device { device: "mock:1".into(), what: "fell off the bus".into() });
        }
        assert_eq!(engine.devices().iter().map(|device| device.index).collect::<Vec<_>>(), [0, 2]);
        let before = failing.log.counts[1].0.load(SeqCst);
        assert_eq!(sign(&engine.clone(), &key, 100), (Ok(()), 100));
        assert_eq!(failing.log.counts[1].0.load(SeqCst), before, "it is not used again");
        assert_eq!(engine.faults().len(), faults.len());
    }
}

/// Two devices, each with a queue of one. Device 0 gives wrong results and is found out by the check of its run
/// number `found`; the first run of device 1, which has the first jobs, lasts until then.
fn lying(found: usize) -> (Mock, Engine) {
    let engine = Arc::new(OnceLock::<Engine>::new());
    let known = engine.clone();
    let mock = mock(2, 1).answering(move |call| match (call.device, call.nth) {
        (0, nth) if nth < found => {
            *call.out.last_mut().unwrap() ^= 1;
            Ok(())
        }
        (0, _) => Err(Error::Inconsistent { device: "mock:0".into(), what: "a check".into() }),
        (_, 0) => {
            while known.get().is_none_or(|engine| engine.faults().is_empty()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
        _ => Ok(()),
    });
    let backend: Arc<dyn Backend> = Arc::new(mock.clone());
    let built = Engine::builder().devices(vec![(backend.clone(), 1), (backend, 0)]).threads(2).build().unwrap();
    assert!(engine.set(built.clone()).is_ok(), "set once");
    (mock, built)
}

/// Results of device 0 from before its fault was found wait for results of device 1, and their jobs are done again.
#[test]
fn results_of_a_device_that_proves_wrong_are_withdrawn() {
    let (mock, engine) = lying(2);
    assert_eq!(sign(&engine, &key(1), 120), (Ok(()), 120));
    assert_eq!(engine.faults().len(), 1);
    assert!(mock.log.counts[0].0.load(SeqCst) >= 3, "it had given results before");
}

#[test]
fn results_that_wait_are_withdrawn_when_another_call_finds_their_device_wrong() {
    let (mock, engine) = lying(1);
    let runs = || mock.log.counts[0].0.load(SeqCst);
    std::thread::scope(|scope| {
        // It ends after device 1's first run, so after the fault is known.
        let first = scope.spawn(|| sign(&engine, &key(1), 16));
        while runs() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sign(&engine, &key(1), 60), (Ok(()), 60));
        // Either call finds it out, or both do at the same time.
        assert!(runs() >= 2 && !engine.faults().is_empty(), "a run after the first found it out");
        assert_eq!(first.join().unwrap(), (Ok(()), 16));
    });
}

#[test]
fn when_no_device_is_left_the_call_fails_with_the_first_error() {
    for queue in [1, 2] {
        let engine = Arc::new(OnceLock::<Engine>::new());
        let known = engine.clone();
        let failing = mock(2, queue).answering(move |call| match (call.device, call.nth) {
            (0, 2..) => call.fails("first"),
            (1, 6..) => {
                // Device 1 fails once the call knows that device 0 did.
                while known.get().is_none_or(|engine| engine.devices().len() == 2) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                call.fails("second")
            }
            _ => Ok(()),
        });
        let (built, key) = (failing.engine(), key(1));
        let engine = engine.get_or_init(|| built);
        let (done, count) = sign(engine, &key, 500);
        assert_eq!(done, Err(Error::Device { device: "mock:0".into(), what: "first".into() }));
        assert!((16..=500 - 8).contains(&count), "{count} results were good and came out");
        assert_eq!(engine.devices().len(), 1, "the last one may be tried again");
        assert_eq!(sign(engine, &key, 3).1, 0);
    }
}

#[test]
fn an_error_ends_the_call_after_the_results_before_it() {
    // Of two in flight, the later one fails first.
    let failing = mock(1, 2).answering(|call| match call.nth {
        2 => {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        }
        3 => call.fails("dead"),
        _ => Ok(()),
    });
    let (engine, key) = (failing.engine(), key(1));
    let (done, count) = sign(&engine, &key, 400);
    assert_eq!(done, Err(Error::Device { device: "mock:0".into(), what: "dead".into() }));
    // Two that start at a time may change places, and a feed that another process holds up cuts smaller ones.
    assert!((2..=24).contains(&count), "two or three sub-batches of up to 8 came before: {count}");
    assert!(failing.log.counts[0].0.load(SeqCst) <= 6, "no new ones are started");
    let faults = engine.faults();
    assert!(faults.len() == 1 && (1..=8).contains(&faults[0].jobs));
    assert_eq!(engine.devices().len(), 1);

    // After an error that is not the fault of a device, no other device tries.
    let refusing = mock(2, 2).answering(|call| match call.nth {
        3 => Err(Error::Randomness),
        _ => Ok(()),
    });
    let engine = refusing.engine();
    assert_eq!(sign(&engine, &key, 400).0, Err(Error::Randomness));
    assert_eq!((engine.faults(), engine.devices().len()), (vec![], 2));

    // Another device may prepare a plan that one device cannot prepare, for want of a compiler, say.
    let refusing = mock(2, 2).answering(|call| match call.device {
        0 => Err(Error::Unsupported { device: "mock:0".into(), what: "this".into() }),
        _ => Ok(()),
    });
    let engine = refusing.engine();
    assert_eq!(sign(&engine, &key, 100), (Ok(()), 100));
    assert_eq!(engine.devices().len(), 1);
}

#[test]
fn single_operations_go_on_with_the_next_device() {
    let failing = mock(3, 2).answering(|call| if call.device < 2 { call.fails("dead") } else { Ok(()) });
    let (engine, key) = (failing.engine(), key(1));
    let signature = engine.sign(&key, PURE, b"x", Randomizer::Hedged).unwrap();
    assert!(engine.verify(&key.verifying_key(), PURE, b"x", signature.as_bytes()).unwrap());
    engine.check(&engine.generate(P).unwrap()).unwrap();
    assert_eq!(
        engine.faults().iter().map(|fault| (fault.device.index, fault.jobs)).collect::<Vec<_>>(),
        [(0, 1), (1, 1)]
    );
    assert_eq!((engine.device().index, engine.devices()[0].index), (0, 2));
    assert_eq!(failing.shares(), [0, 0, 4, 0]);
}

#[test]
fn out_of_memory_halves_the_batch() {
    let key = key(1);
    for queue in [1, 2] {
        let small = Mock { memory: 1 << 30, jobs: 64, capacity: 10, ..mock(1, queue) };
        let engine = small.engine();
        assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
        assert!(small.log.runs.lock().unwrap().iter().all(|(_, jobs)| *jobs <= 8));
        assert_eq!(engine.faults(), [], "that is no failure");
        assert_eq!(engine.explain(P, Op::Sign, 100).unwrap().memory.sub_batch, 8);
    }
    // It is tried again with more, now and then.
    let small = Mock { memory: 1 << 30, jobs: 64, capacity: 10, ..mock(1, 1) };
    let (engine, refused) = (small.engine(), || small.log.refused.load(SeqCst));
    assert_eq!(sign(&engine, &key, 60), (Ok(()), 60));
    // Programs for 64, 32 and 16 jobs are refused. Idle programs make way before that is given up, so each try may be refused
    // twice. A feed that another process holds up cuts smaller chunks: the numbers are not exact.
    let first = refused();
    assert!((1..=6).contains(&first), "{first} refusals");
    assert_eq!(sign(&engine, &key, 50 * 8), (Ok(()), 50 * 8));
    let again = refused() - first;
    assert!((1..=8).contains(&again), "{again} refusals in some 50 runs");
    // Not even one job: another device does them.
    let tiny = mock(2, 1).answering(|call| match call.device {
        0 => Err(Error::OutOfMemory { device: "mock:0".into(), needs: 2, has: 1 }),
        _ => Ok(()),
    });
    let engine = Mock { memory: 1 << 30, ..tiny.clone() }.engine();
    assert_eq!(sign(&engine, &key, 50), (Ok(()), 50));
    assert!(
        matches!(&engine.faults()[..], [Fault { device, error: Error::OutOfMemory { .. }, .. }] if device.index == 0)
    );
    // The host's memory is not a device's own: nothing is gained by halving.
    let engine = Mock { count: 1, ..tiny }.engine();
    assert_eq!(sign(&engine, &key, 50).1, 0);
}

/// Flips a bit of device 0's output from run `from` on.
fn flip(from: usize) -> impl Fn(Call<'_>) -> Result<(), Error> {
    move |call| {
        if (call.device, call.op) == (0, Some(Op::Sign)) && call.nth >= from {
            *call.out.last_mut().unwrap() ^= 1;
        }
        Ok(())
    }
}

#[test]
fn redundant_computing_catches_a_fault_that_stays_in_its_place() {
    let key = key(1);
    for (devices, queue) in [(1, 1), (1, 2), (2, 2)] {
        let sound = mock(devices, queue);
        let engine = sound.builder().redundant(true).build().unwrap();
        assert_eq!(sign(&engine, &key, 50), (Ok(()), 50));
        assert_eq!(sound.shares().iter().sum::<usize>(), 100, "everything is computed twice");
        engine.cache(&engine.generate(P).unwrap(), 1).unwrap();
        let signature = engine.sign(&key, PURE, b"x", Randomizer::Deterministic).unwrap();
        assert_eq!(engine.verify(&key.verifying_key(), PURE, b"x", signature.as_bytes()), Ok(true));
        assert_eq!(engine.verify(&key.verifying_key(), PURE, b"y", signature.as_bytes()), Ok(false));
    }
    // In every run, the last job's signature is wrong, whichever job it is; or only in a second run.
    for from in [0, 1, 5] {
        let alone = mock(1, 1).answering(flip(from));
        let engine = alone.builder().redundant(true).build().unwrap();
        let (done, count) = sign(&engine, &key, 50);
        assert!(
            matches!(&done, Err(Error::Inconsistent { device, what })
            if device == "mock:0" && what.contains("the output of Sign of job")),
            "{done:?}"
        );
        assert_eq!(count, from / 2 * 8);

        let pair = mock(2, 2).answering(flip(from));
        let engine = pair.builder().redundant(true).build().unwrap();
        assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
        assert!(matches!(&engine.faults()[..], [Fault { error: Error::Inconsistent { .. }, .. }, ..]));
        assert_eq!(engine.devices().iter().map(|device| device.index).collect::<Vec<_>>(), [1]);
    }
    // The last node of a lower layer does not lead to the root, so only a second computation shows that it is wrong.
    for redundant in [false, true] {
        let wrong_once = mock(1, 1).answering(|call| {
            if (call.op, call.nth) == (Some(Op::Cache), 0) {
                *call.out.last_mut().unwrap() ^= 1;
            }
            Ok(())
        });
        let cached = wrong_once.builder().redundant(redundant).build().unwrap().cache(&key, 2);
        assert_eq!(matches!(cached, Err(Error::Inconsistent { .. })), redundant, "{cached:?}");
    }
    for from in [0, 1] {
        let single = mock(1, 1).answering(flip(from)).builder().redundant(true).build().unwrap();
        let signed = single.sign(&key, PURE, b"x", Randomizer::Hedged);
        assert!(matches!(signed, Err(Error::Inconsistent { .. })));
    }
}

#[test]
fn a_damaged_key_is_no_fault_of_any_device() {
    let mut bytes = key(1).to_bytes();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(P, &bytes).unwrap();
    for (devices, queue) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)] {
        let engine = mock(devices, queue).engine();
        // Its jobs are all, none but one, or scattered.
        for is_its in [|_| true, |i| i == 57, |i| i * i % 7 == 2] {
            let (good, mut next) = (key(1), 0);
            let jobs = (0..100).map(|i| job(if is_its(i) { &damaged } else { &good }, i));
            engine
                .sign_batch(jobs, |index, signature| {
                    assert_eq!(index, next);
                    next += 1;
                    if is_its(index) {
                        assert!(matches!(&signature, Err(Error::KeyDamaged { .. })), "{signature:?}");
                    } else {
                        let expected = slh_sign(&message(index), b"", good.as_ref(), None).unwrap();
                        assert!(signature.unwrap().as_bytes() == expected.as_bytes());
                    }
                })
                .unwrap();
            assert_eq!(next, 100);
        }
        let mut alone = Vec::new();
        engine.sign_batch([job(&damaged, 0)], |_, signature| alone.push(signature.map(drop))).unwrap();
        assert!(matches!(alone[..], [Err(Error::KeyDamaged { .. })]));
        assert!(matches!(engine.sign(&damaged, PURE, b"x", Randomizer::Hedged), Err(Error::KeyDamaged { .. })));
        assert_eq!((engine.faults(), engine.devices().len()), (vec![], devices as usize));
    }

    // A device that gets a root wrong is told from a damaged key.
    let lying = mock(2, 2).answering(|_| Ok(()));
    let lying = Mock { answer: Arc::new(flip(0)), ..lying };
    let engine = lying.builder().verify_signatures(true).build().unwrap();
    assert_eq!(sign(&engine, &key(1), 100), (Ok(()), 100));
    assert_eq!(engine.devices().len(), 1);
}

#[test]
fn a_device_does_what_it_can() {
    let declines = |device: &Device, plan: &Plan| match device.index == 0 && plan.params.family == Family::Shake {
        true => Err(Error::Unsupported { device: device.id(), what: "SHAKE".into() }),
        false => Ok(Vec::new()),
    };
    let picky = mock(2, 1).with_space(declines);
    let seed = |of: u8| vec![of; 24];
    let shake: SigningKey = slh_keygen_internal(&TOY_SHAKE_24, &seed(1), &seed(2), &seed(3)).into();
    let (engine, sha2) = (picky.engine(), key(1));
    let keys = [&sha2, &shake];
    let mut next = 0;
    let jobs = (0..100).map(|i| job(keys[i / 7 % 2], i));
    engine
        .sign_batch(jobs, |index, signature| {
            assert_eq!(index, next);
            let expected = slh_sign(&message(index), b"", keys[index / 7 % 2].as_ref(), None).unwrap();
            assert!(signature.unwrap().as_bytes() == expected.as_bytes());
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 100);
    engine.sign(&shake, PURE, b"x", Randomizer::Hedged).unwrap();
    assert_eq!(engine.faults(), []);

    let alone = mock(1, 2).with_space(declines);
    let mut results = Vec::new();
    alone.engine().sign_batch(keys.map(|key| job(key, 0)), |_, signature| results.push(signature.map(drop))).unwrap();
    assert_eq!(results, [Ok(()), Err(Error::Unsupported { device: "mock:0".into(), what: "SHAKE".into() })]);
}

#[test]
fn a_panic_of_a_backend_is_the_callers() {
    let panicking = mock(2, 2).answering(|call| if call.nth == 2 { panic!("a fault of the mock") } else { Ok(()) });
    let (engine, key) = (panicking.engine(), key(1));
    let caught = catch_unwind(AssertUnwindSafe(|| sign(&engine, &key, 200)));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"a fault of the mock"));
}

#[test]
fn cached_nodes_have_an_identity() {
    let plain = mock(1, 1);
    let (engine, key) = (plain.engine(), key(1));
    assert_eq!(sign(&engine, &key, 3), (Ok(()), 3));
    assert_eq!(*plain.log.cached_ids.lock().unwrap(), HashSet::from([0]));
    let cached = engine.cache(&key, 1).unwrap();
    let ids = |key: &SigningKey| {
        plain.log.cached_ids.lock().unwrap().clear();
        assert_eq!(sign(&engine, key, 3), (Ok(()), 3));
        plain.log.cached_ids.lock().unwrap().iter().copied().collect::<Vec<_>>()
    };
    let [first] = ids(&cached)[..] else { panic!("one key") };
    assert_eq!(ids(&cached.clone()), [first], "a clone has the same nodes");
    let [second] = ids(&engine.cache(&key, 1).unwrap())[..] else { panic!("one key") };
    assert!(first > 0 && second > first);
    assert_eq!(ids(&engine.cache(&cached, 0).unwrap()), [0]);
}

#[test]
fn devices_are_named_once_and_exist() {
    let (backend, cpu): (Arc<dyn Backend>, Arc<dyn Backend>) = (Arc::new(mock(2, 1)), Arc::new(Cpu::new()));
    let build = |backend: &Arc<dyn Backend>, indices: &[u32]| {
        let devices = indices.iter().map(|index| (backend.clone(), *index)).collect();
        Engine::builder().devices(devices).threads(1).build()
    };
    let refused = |indices: &[u32]| build(&backend, indices).unwrap_err().to_string();
    assert!(refused(&[]).contains("without a device"));
    assert!(refused(&[0, 1, 0]).contains("mock:0 is named twice"));
    assert!(refused(&[1, 2]).contains("device 2 of mock: it has 2 devices"));
    assert!(build(&cpu, &[0, 0]).unwrap_err().to_string().contains("cpu:0 is named twice"));
    assert!(build(&cpu, &[1]).unwrap_err().to_string().contains("device 1 of cpu: it has 1 devices"));
    assert_eq!(build(&cpu, &[0]).unwrap().devices()[0].id(), "cpu:0");
}

#[test]
fn a_device_with_memory_of_its_own_is_filled() {
    let rich = Mock { memory: 1 << 30, jobs: 5000, ..mock(1, 2) };
    let explained = rich.engine().explain(P, Op::Sign, 1_000_000).unwrap();
    assert_eq!((explained.memory.sub_batch, explained.memory.budget), (5000, DEVICE_MEMORY_BUDGET));
    let explained = mock(1, 1).engine().explain(P, Op::Sign, 1_000_000).unwrap();
    assert_eq!((explained.memory.sub_batch, explained.memory.budget), (8, MEMORY_BUDGET));
    let engine = mock(2, 2).engine();
    engine.calibrate(P).unwrap();
    let explained = engine.explain(P, Op::Sign, 1000).unwrap();
    assert!(explained.predicted.is_some());
}

/// A host and a device that is initialised lazily, and how often that happened.
fn lazily_initialised(host: &Mock, other: &Mock) -> (EngineBuilder, Arc<AtomicUsize>) {
    let initialised = Arc::new(AtomicUsize::new(0));
    let (other, times) = (Mock { name: "other", ..other.clone() }, initialised.clone());
    let wake: Wake = Arc::new(move || {
        times.fetch_add(1, SeqCst);
        vec![Arc::new(other.clone()) as Arc<dyn Backend>]
    });
    (Engine::builder().automatic(Arc::new(host.clone()), wake).threads(2), initialised)
}

fn each(micros: u64) -> [Duration; 4] {
    [Duration::from_micros(micros); 4]
}

#[test]
fn small_batches_wake_nobody_and_large_ones_go_where_they_are_fast() {
    // The host takes 20 ms a job, the other device 0.1 ms.
    let host = Mock { delay: each(20_000), ..mock(1, 1) };
    let fast = Mock { delay: each(100), memory: 1 << 30, ..mock(1, 2) };
    let ((builder, initialised), key) = (lazily_initialised(&host, &fast), key(1));
    let engine = builder.build().unwrap();
    let signature = engine.sign(&key, PURE, b"one", Randomizer::Hedged).unwrap();
    assert!(engine.verify(&key.verifying_key(), PURE, b"one", signature.as_bytes()).unwrap());
    assert_eq!(sign(&engine, &key, 8), (Ok(()), 8));
    assert_eq!(sign(&engine, &key, 8), (Ok(()), 8));
    assert_eq!((initialised.load(SeqCst), engine.devices().len()), (0, 1), "0.16 s are not worth a driver");
    assert_eq!((engine.explain(P, Op::Sign, 8).unwrap().device.backend, initialised.load(SeqCst)), ("mock", 0));

    // 4 s on the host: the other one is initialised, and soon known.
    assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
    assert_eq!((initialised.load(SeqCst), engine.devices().len()), (1, 2));
    let before = fast.shares()[0];
    assert!(before > 100, "the other device did {before}");
    assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
    // How much the host helps depends on what else the machine does.
    assert!(fast.shares()[0] - before >= 100, "the other device did {}", fast.shares()[0] - before);
    assert_eq!(initialised.load(SeqCst), 1);
    let explained = engine.explain(P, Op::Sign, 200).unwrap();
    assert_eq!((explained.device.backend, explained.predicted_by), ("other", "runs of this engine"));
    assert!(explained.device_why.contains("jobs a second"), "{}", explained.device_why);
    // Of signing the two are known, of single verifications the host is.
    assert_eq!(engine.explain(P, Op::Verify, 1).unwrap().device.backend, "mock");
    assert!(explained.crossover.is_some_and(|jobs| jobs <= 8), "{:?}", explained.crossover);
}

#[test]
fn a_host_that_fails_is_replaced_by_an_initialised_device() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let host = Mock { delay: each(4_000), ..mock(1, 1) }.answering(move |_| match failing.load(SeqCst) {
        true => Err(Error::Inconsistent { device: "mock:0".into(), what: "a check".into() }),
        false => Ok(()),
    });
    let slow = Mock { delay: each(100_000), jobs: 2, memory: 1 << 30, ..mock(1, 1) };
    let ((builder, _), key) = (lazily_initialised(&host, &slow), key(1));
    let engine = builder.build().unwrap();
    assert_eq!(sign(&engine, &key, 400), (Ok(()), 400));
    assert_eq!((engine.faults().len(), engine.devices().len()), (0, 2));
    fails.store(true, SeqCst);
    assert_eq!(sign(&engine, &key, 3), (Ok(()), 3), "which the host begins");
    assert_eq!((engine.faults().len(), engine.devices().len()), (1, 1));
    assert_eq!(sign(&engine, &key, 3), (Ok(()), 3));
}

#[test]
fn a_device_that_is_slower_is_left_alone_once_that_is_known() {
    let host = Mock { delay: each(4_000), ..mock(1, 1) };
    let slow = Mock { delay: each(400_000), jobs: 2, memory: 1 << 30, ..mock(1, 1) };
    let ((builder, initialised), key) = (lazily_initialised(&host, &slow), key(1));
    let engine = builder.build().unwrap();
    assert_eq!(sign(&engine, &key, 400), (Ok(()), 400));
    let known = slow.shares()[0];
    assert_eq!(initialised.load(SeqCst), 1);
    assert_eq!(sign(&engine, &key, 400), (Ok(()), 400));
    assert_eq!(slow.shares()[0], known);
    let explained = engine.explain(P, Op::Sign, 400).unwrap();
    assert_eq!((explained.device.backend, explained.crossover), ("mock", None));
}

#[test]
fn a_device_is_used_once_and_a_cpu_under_a_gpus_driver_only_where_it_is_named() {
    let host = Mock { delay: each(5_000), ..mock(1, 1) };
    let gpu = Mock { delay: each(50), memory: 1 << 30, ..mock(1, 2) };
    let first = Mock { name: "first", uuid: Some([1; 16]), ..gpu.clone() };
    // Its device 0 is the same.
    let second = Mock { name: "second", uuid: Some([1; 16]), ..Mock { count: 2, log: Arc::default(), ..gpu.clone() } };
    let cpu = Mock { name: "cpu as a gpu", automatic: false, log: Arc::default(), ..gpu };
    let all = [first, second, cpu.clone()].map(|mock| Arc::new(mock) as Arc<dyn Backend>);
    let wake: Wake = Arc::new(move || all.to_vec());
    let (engine, key) = (Engine::builder().automatic(Arc::new(host), wake).threads(2).build().unwrap(), key(1));
    assert_eq!(sign(&engine, &key, 200), (Ok(()), 200));
    let devices: Vec<_> = engine.devices().iter().map(Device::id).collect();
    assert_eq!(devices, ["mock:0", "first:0", "second:1"]);
    assert_eq!(cpu.shares(), [0; 4]);
    assert_eq!(sign(&cpu.engine(), &key, 4), (Ok(()), 4));
    assert_eq!(cpu.shares()[0], 4);
}

#[test]
fn a_stream_without_an_end_goes_on_in_order_on_other_devices() {
    let host = Mock { delay: each(5_000), ..mock(1, 1) };
    let fast = Mock { delay: each(50), memory: 1 << 30, ..mock(2, 2) };
    let ((builder, initialised), key) = (lazily_initialised(&host, &fast), key(1));
    let engine = builder.build().unwrap();
    let mut next = 0;
    // Nobody knows how many there are.
    let endless = (0..)
        .map(|i| job(&key, i))
        .take_while(|job| !matches!(&job.message, JobMessage::Bytes(bytes) if **bytes == *b"message 150"));
    engine
        .sign_batch(endless, |index, signature| {
            assert_eq!(index, next);
            let expected = slh_sign(&message(index), b"", key.as_ref(), None).unwrap();
            assert!(signature.unwrap().as_bytes() == expected.as_bytes());
            next += 1;
        })
        .unwrap();
    assert_eq!((next, initialised.load(SeqCst), engine.devices().len()), (150, 1, 3));
    assert!(fast.shares()[..2].iter().all(|jobs| *jobs > 0), "{:?}", fast.shares());

    // Where nothing wakes up, the host does it all.
    let nobody: Wake = Arc::new(Vec::new);
    let engine = Engine::builder().automatic(Arc::new(mock(1, 1)), nobody).threads(2).build().unwrap();
    assert_eq!(sign(&engine, &key, 100), (Ok(()), 100));
}

#[test]
fn omissions_of_backends_are_reported_once() {
    let engine = Mock { notices: vec!["left out".into()], ..mock(2, 1) }.builder().threads(1).build().unwrap();
    assert_eq!(engine.notices(), ["left out"]);
}

#[test]
fn a_table_is_followed_and_doubted_where_its_time_is_far_off() {
    // By the value of its axis, a program takes as many times as long.
    let slow = |call: Call<'_>| {
        let slowness = call.policy.get("slowness").unwrap_or(8);
        std::thread::sleep(Duration::from_millis(10) * slowness * call.jobs as u32);
        Ok(())
    };
    let tuned = Mock { delay: each(0), ..mock(1, 1) }
        .with_space(|_, _| Ok(vec![Axis::new("slowness", &[1, 2, 4, 8])]))
        .answering(slow);
    let backend: Arc<dyn Backend> = Arc::new(tuned);
    let device = backend.devices().unwrap().remove(0);
    let space = hypergrove_tables::space::checksum(&*backend, &device).unwrap();
    let table = |space: &str, slowness: u32, seconds: f64| TableSource {
        name: "a table".into(),
        text: format!(
            "backend = \"mock\"\ndevice = {:?}\ndetail = {:?}\nspace = \"{space}\"\nversion = \"1\"\n[[policy]]\n\
             family = \"SHA2\"\nn = 16\nop = \"sign\"\nbatch = \"1..\"\njobs = 4\n\
             axes = {{ slowness = {slowness} }}\nseconds = {seconds}\ndefault_seconds = 1.0\nspread = 0.01\nsamples = 9\n",
            device.name, device.detail
        ),
    };
    let build = |table| Engine::builder().backend(backend.clone()).threads(1).tables(vec![table]).build().unwrap();
    let (key, explain) = (key(1), |engine: &Engine| engine.explain(P, Op::Sign, 4).unwrap());

    let right = build(table(&space, 2, 0.09));
    let explained = explain(&right);
    assert_eq!((explained.policy_source, explained.policy.get("slowness")), (PolicySource::Table, Some(2)));
    assert_eq!((explained.predicted, explained.predicted_by), (Some(Duration::from_millis(90)), "a table's row"));
    assert!(explained.policy_why.contains("a table"), "{}", explained.policy_why);
    for _ in 0..8 {
        assert_eq!(sign(&right, &key, 4), (Ok(()), 4));
    }
    assert_eq!(explain(&right).policy_source, PolicySource::Table);

    // It says 1 ms, it takes 160: neighbours are measured, and the fastest kept.
    let wrong = build(table(&space, 4, 0.001));
    for _ in 0..16 {
        assert_eq!(sign(&wrong, &key, 4), (Ok(()), 4));
    }
    let explained = explain(&wrong);
    assert_eq!(
        (explained.policy_source, explained.policy.get("slowness")),
        (PolicySource::Adjusted, Some(2)),
        "{explained:?}"
    );
    assert!(explained.policy_why.contains("predicted 250.00 µs; slowness = 2 takes"), "{}", explained.policy_why);

    let stale = build(table("0123456789abcdef", 2, 0.009));
    assert_eq!(stale.notices().len(), 1, "{:?}", stale.notices());
    assert_eq!(explain(&stale).policy_source, PolicySource::Default);
}
