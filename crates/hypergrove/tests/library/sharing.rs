//! Many calls on one engine: they share its devices, and each gets its turn.

use crate::common::{Mock, OnMock, P, PURE, job, key, message, mock, sign};
use hypergrove::rows::{Column, RowStatus, RowVerifyingKeys, VerifyRows};
use hypergrove::*;
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Engines of each shape: the CPU with two threads, a host, and one or two discrete devices.
fn engines() -> Vec<Engine> {
    let cpu = Engine::builder().backend(Arc::new(Cpu::new())).threads(2).build().unwrap();
    let mocks = [(1, 1), (1, 2), (2, 2), (3, 1)].map(|(devices, queue)| mock(devices, queue).engine());
    std::iter::once(cpu).chain(mocks).collect()
}

/// A source that gives its next job only when the results of all before it are there.
#[test]
fn results_come_while_the_source_blocks() {
    let key = key(1);
    for engine in engines() {
        let (answers, answered) = mpsc::channel();
        let key = &key;
        let jobs = (0..20).map(move |i| {
            // None is asked for before the first job.
            if i > 0 {
                answered.recv_timeout(Duration::from_secs(30)).expect("the result of the job before");
            }
            job(key, i)
        });
        let mut next = 0;
        engine
            .sign_batch(jobs, |index, signature| {
                assert_eq!(index, next);
                signature.unwrap();
                next += 1;
                answers.send(()).unwrap();
            })
            .unwrap();
        assert_eq!(next, 20);
    }
}

#[test]
fn a_sink_may_end_the_call() {
    let key = key(1);
    for engine in engines() {
        let pulled = AtomicUsize::new(0);
        let jobs = (0..).map(|i| {
            pulled.fetch_add(1, SeqCst);
            job(&key, i)
        });
        let mut seen = 0;
        let stop = |index, signature: Result<Signature, Error>| {
            assert_eq!(index, seen);
            signature.unwrap();
            seen += 1;
            if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        engine.sign_batch(jobs, stop).unwrap();
        assert_eq!(seen, 3);
        assert!(pulled.load(SeqCst) < 20_000);
        assert_eq!(sign(&engine, &key, 30), (Ok(()), 30), "the engine goes on");
        assert!(engine.stats().devices.iter().all(|device| (device.running, device.waiting) == (0, 0)));
    }
}

#[test]
fn the_engine_is_used_in_a_sink() {
    let key = key(1);
    for engine in engines() {
        let (inner, mut count) = (engine.clone(), 0);
        let jobs = (0..40).map(|i| job(&key, i));
        engine
            .sign_batch(jobs, |index, signature| {
                let public = key.verifying_key();
                let signature = signature.unwrap();
                assert_eq!(inner.verify(&public, PURE, &message(index), signature.as_bytes()), Ok(true));
                if index % 10 == 0 {
                    assert_eq!(sign(&inner, &key, 12), (Ok(()), 12));
                }
                count += 1;
            })
            .unwrap();
        assert_eq!(count, 40);
    }
}

#[test]
fn the_engine_is_used_by_a_source() {
    let key = key(1);
    let alone = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
    let discrete = Mock { memory: 1 << 30, ..mock(1, 1) }.builder().threads(1).build().unwrap();
    for engine in engines().into_iter().chain([alone, discrete]) {
        let inner = engine.clone();
        let jobs = (0..30).map(|i| {
            inner.sign(&key, PURE, b"first", Randomizer::Hedged).unwrap();
            if i % 7 == 0 {
                assert_eq!(sign(&inner, &key, 12), (Ok(()), 12));
            }
            job(&key, i)
        });
        let mut count = 0;
        engine.sign_batch(jobs, |_, signature| count += usize::from(signature.is_ok())).unwrap();
        assert_eq!(count, 30);
        let jobs = (0..4).map(|i| {
            assert_eq!(sign(&inner, &key, 12), (Ok(()), 12));
            job(&key, i)
        });
        assert_eq!(engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().count(), 4);
    }
}

#[test]
fn calls_come_from_a_pool_and_from_many_threads() {
    let key = key(1);
    for engine in engines() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            (0..24).into_par_iter().for_each(|i| {
                if i % 3 == 0 {
                    assert_eq!(sign(&engine, &key, 9), (Ok(()), 9));
                } else {
                    engine.sign(&key, PURE, b"x", Randomizer::Hedged).unwrap();
                }
            });
        });
        std::thread::scope(|scope| {
            for i in 0..16 {
                let (engine, key) = (&engine, &key);
                scope.spawn(move || match i % 4 {
                    0 => assert_eq!(sign(engine, key, 20), (Ok(()), 20)),
                    _ => drop(engine.sign(key, PURE, b"x", Randomizer::Hedged).unwrap()),
                });
            }
        });
        let stats = engine.stats();
        assert!(stats.devices.iter().all(|device| (device.running, device.waiting) == (0, 0)));
        assert!(stats.jobs >= stats.chunks && stats.single_jobs > 0, "{stats:?}");
    }
}

/// While a long batch runs, a single job of another caller waits for the chunks in flight, not for the batch.
#[test]
fn a_single_job_waits_for_one_chunk() {
    for queue in [1, 2] {
        // 8 jobs fill a chunk, which takes 40 ms.
        let slow = Mock { delay: [Duration::from_millis(5); 4], memory: 1 << 30, ..mock(1, queue) };
        let (engine, key) = (slow.engine(), key(1));
        let (done, singles) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(sign(&engine, &key, 400), (Ok(()), 400));
                done.store(true, SeqCst);
            });
            while slow.log.runs.lock().unwrap().len() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..10 {
                let began = Instant::now();
                engine.sign(&key, PURE, b"x", Randomizer::Hedged).unwrap();
                singles.lock().unwrap().push(began.elapsed());
            }
            assert!(!done.load(SeqCst), "the batch goes on");
        });
        let singles = singles.into_inner().unwrap();
        // One chunk, the job itself, and whatever else this machine does.
        assert!(singles.iter().all(|took| *took < Duration::from_millis(1500)), "{singles:?}");
        assert!(engine.stats().devices[0].waits.longest <= Duration::from_millis(1500));
    }
}

/// Batches of several callers take turns chunk by chunk: none has to wait for the end of another.
#[test]
fn batches_take_turns() {
    let slow = Mock { delay: [Duration::from_millis(1); 4], memory: 1 << 30, ..mock(1, 1) };
    let (engine, key) = (slow.engine(), key(1));
    let ends = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(sign(&engine, &key, 800), (Ok(()), 800));
            ends.lock().unwrap().push("long");
        });
        while slow.log.runs.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        scope.spawn(|| {
            assert_eq!(sign(&engine, &key, 40), (Ok(()), 40));
            ends.lock().unwrap().push("short");
        });
    });
    assert_eq!(*ends.lock().unwrap(), ["short", "long"]);
}

#[test]
fn a_panic_of_a_sink_or_a_source_leaves_the_engine_whole() {
    let key = key(1);
    for engine in engines() {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            engine.sign_batch((0..40).map(|i| job(&key, i)), |index, _| assert!(index < 5, "a fault of the sink"))
        }));
        assert!(caught.is_err());
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let jobs = (0..40).map(|i| if i < 20 { job(&key, i) } else { panic!("a fault of the source") });
            engine.sign_batch(jobs, |_, _| ())
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"a fault of the source"));
        assert_eq!(sign(&engine, &key, 20), (Ok(()), 20));
        assert!(engine.stats().devices.iter().all(|device| (device.running, device.waiting) == (0, 0)));
    }
}

#[test]
fn the_last_clone_may_go_first() {
    let key = key(1);
    for engine in engines() {
        let mut engine = Some(engine);
        let held = engine.clone().unwrap();
        held.sign_batch((0..20).map(|i| job(&key, i)), |_, signature| {
            signature.unwrap();
            drop(engine.take());
        })
        .unwrap();
        std::thread::spawn(move || drop(held)).join().unwrap();
    }
}

/// Compares the rate of callers, each on its own thread, who sign one message after the other with the rate of one batch.
#[test]
#[ignore = "a measurement, which takes a minute: run it alone, with --ignored --show-output"]
fn callers_of_single_signatures() {
    let set = &SLH_DSA_SHA2_128F;
    for backend in backends() {
        if backend.devices().map_or(0, |devices| devices.len()) == 0 {
            continue;
        }
        let engine = Engine::builder().backend(backend.clone()).build().unwrap();
        let key = engine.generate(set).unwrap();
        let batch = 4 * engine.jobs_to_fill(set, Op::Sign, 0).unwrap();
        let mut rate = 0.0;
        for _ in 0..3 {
            let began = Instant::now();
            let jobs = (0..batch).map(|i| SignJob::new(&key, message(i)));
            assert_eq!(engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().count(), batch);
            rate = batch as f64 / began.elapsed().as_secs_f64();
        }
        println!("checked: {}: batches of {batch}: {rate:.0} signatures/s", backend.name());
        for callers in [1, 16, 64, 256] {
            let times = Mutex::new(Vec::new());
            let began = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..callers {
                    scope.spawn(|| {
                        let mut mine = Vec::new();
                        while began.elapsed() < Duration::from_secs(4) {
                            let start = Instant::now();
                            engine.sign(&key, PURE, b"message", Randomizer::Hedged).unwrap();
                            mine.push(start.elapsed());
                        }
                        times.lock().unwrap().extend(mine);
                    });
                }
            });
            let took = began.elapsed().as_secs_f64();
            let mut times = times.into_inner().unwrap();
            times.sort();
            let ms = |share: f64| 1e3 * times[((times.len() - 1) as f64 * share) as usize].as_secs_f64();
            let (all, p50, p99) = (times.len() as f64 / took, ms(0.5), ms(0.99));
            let fair = 2e3 * f64::from(callers) / rate;
            println!(
                "checked: {callers} callers: {all:.0} signatures/s, p50 {p50:.2} ms, p99 {p99:.2} ms of {fair:.2}"
            );
        }
        println!("checked: {:?}", engine.stats().devices[0].waits);
    }
}

/// Measures the way of a job to a device and back: a device that computes nothing gets signatures to verify.
#[test]
#[ignore = "a measurement: run it alone, with --ignored --show-output"]
fn the_way_to_a_device() {
    let key = key(1).verifying_key();
    let signature = vec![0; P.sig_bytes()];
    let count = 1 << 20;
    let device = Mock { is_idle: true, jobs: 1 << 16, memory: 1 << 30, ..mock(1, 2) };
    let engine = device.builder().memory_budget(4 << 30).build().unwrap();
    let jobs = || (0..count).map(|_| VerifyJob::new(&key, &b"message"[..], &signature));
    let fed = || {
        let mut valid = 0;
        engine.verify_batch(jobs(), |_, verdict| valid += usize::from(verdict.unwrap())).unwrap();
        valid
    };
    let at_hand =
        || engine.verify_batch_to_vec(jobs()).unwrap().into_iter().filter(|verdict| *verdict == Ok(true)).count();
    let (messages, signatures) = (vec![&b"message"[..]; count as usize], vec![&signature[..]; count as usize]);
    let of_rows = || {
        let rows = VerifyRows {
            keys: RowVerifyingKeys::One(&key),
            mode: Mode::default(),
            messages: Column::Slices(&messages),
            signatures: Column::Slices(&signatures),
        };
        let mut statuses = vec![RowStatus::default(); count as usize];
        engine.verify_rows(&rows, &mut statuses).unwrap();
        statuses.into_iter().filter(|status| *status == RowStatus::Valid).count()
    };
    crate::common::tell_the_way(
        count,
        &[("a job of an iterator", &fed), ("a job of a list", &at_hand), ("a row", &of_rows)],
    );
}
