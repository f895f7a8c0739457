//! Jobs of zkDilithium through the engine's public interface.

use crate::common::{Mock, OnMock, zk_mock};
use hypergrove::backend::{Policy, THREADS};
use hypergrove::signature::Signer;
use hypergrove::zkdilithium::{JobMessage, Message, SignJob, SigningKey, VerifyJob, VerifyingKey, ZkDilithium as Set};
use hypergrove::{Backend, Cpu, Engine, EngineBuilder, Error, ErrorKind};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const MESSAGE: Message<'static> = Message::Bytes(b"m");

fn cpu(threads: usize) -> EngineBuilder {
    Engine::builder().backend(Arc::new(Cpu::new())).threads(threads)
}

/// Engines on the calling thread, on a pool, on a GPU, and on both.
fn engines() -> Vec<Engine> {
    let gpu: Arc<dyn Backend> = Arc::new(Mock { jobs: 4, ..zk_mock(1, 1) });
    let builders = [
        cpu(1),
        cpu(2).verify_signatures(true),
        Engine::builder().threads(1).devices(vec![(gpu.clone(), 0)]),
        Engine::builder().threads(2).devices(vec![(gpu, 0), (Arc::new(Cpu::new()), 0)]).verify_signatures(true),
    ];
    builders.map(|builder| builder.build().unwrap()).into()
}

fn is_damaged(error: &Error) -> bool {
    error.kind() == ErrorKind::KeyDamaged
}

/// Of 9 jobs, those of the damaged key fail, and no others.
fn fails_alone(engine: &Engine, good: &SigningKey, damaged: &SigningKey, what: &str) {
    let key_of = |i: usize| if i == 1 || i > 5 { damaged } else { good };
    let jobs = (0..9).map(|i| SignJob::new(key_of(i), MESSAGE));
    let expected = good.sign_message(MESSAGE).unwrap();
    for (i, signature) in engine.sign_batch_to_vec(jobs).unwrap().into_iter().enumerate() {
        match std::ptr::eq(key_of(i), damaged) {
            true => assert!(signature.as_ref().is_err_and(is_damaged), "{what}, {engine:?}: {signature:?}"),
            false => assert!(signature.as_ref() == Ok(&expected), "{what}, {engine:?}"),
        }
    }
    assert!(engine.faults().is_empty(), "no device is to blame");
}

/// Were it signed with, a flipped bit in ρ would put the same masks under another challenge.
#[test]
fn keys_from_bytes_are_checked_before_they_sign() {
    let good = SigningKey::from_seed(&[7; 32]);
    let engines = engines();
    for (what, at) in [("rho", 0), ("tr", 64), ("s1", 100), ("s2", 500), ("t", 1000), ("the last byte of t", 3935)] {
        let mut bytes = good.to_bytes();
        bytes[at] ^= 1;
        let damaged = || SigningKey::from_bytes_unchecked(&bytes).unwrap();
        assert!(damaged().sign_message(MESSAGE).as_ref().is_err_and(is_damaged), "{what}");
        assert!(damaged().expanded().as_ref().is_err_and(is_damaged), "{what}");
        assert!(damaged().try_sign(b"m").is_err(), "{what}");
        engines.iter().for_each(|engine| fails_alone(engine, &good, &damaged(), what));
        // Not only the first time.
        let known = damaged();
        (0..3).for_each(|_| assert!(known.sign_message(MESSAGE).is_err(), "{what}"));
        engines.iter().for_each(|engine| fails_alone(engine, &good, &known, what));
    }
    // A wrong `key` cannot be told from a right one: it gives other masks, and valid signatures.
    let mut bytes = good.to_bytes();
    bytes[40] ^= 1;
    let other = SigningKey::from_bytes_unchecked(&bytes).unwrap();
    assert!(good.verifying_key().is_valid(MESSAGE, other.sign_message(MESSAGE).unwrap().as_bytes()));
}

/// Flips a bit of what lies in memory, as a fault of the memory would.
#[cfg(target_os = "linux")]
fn corrupt(address: u64) {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut byte = [0];
    memory.read_exact_at(&mut byte, address).unwrap();
    memory.write_all_at(&[byte[0] ^ 2], address).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_key_that_changes_in_memory_signs_nothing() {
    type Place = fn(&SigningKey) -> u64;
    let raw: [Place; 3] = [
        |key| key.as_ref().rho().as_ptr() as u64,
        |key| key.as_ref().key().as_ptr() as u64,
        |key| key.as_ref().secret_bytes()[3000..].as_ptr() as u64,
    ];
    let expanded: [Place; 6] = [
        |key| &raw const key.expanded().unwrap().a_hat()[2][1].0[77] as u64,
        |key| &raw const key.expanded().unwrap().s1_hat()[0].0[0] as u64,
        |key| &raw const key.expanded().unwrap().s2_hat()[3].0[255] as u64,
        |key| &raw const key.expanded().unwrap().state_after_tr()[34] as u64,
        |key| key.expanded().unwrap().key().as_ptr() as u64,
        |key| key.expanded().unwrap().tr().as_ptr() as u64,
    ];
    let (engines, good) = (engines(), SigningKey::from_seed(&[7; 32]));
    let places = raw.into_iter().zip(std::iter::repeat(true)).chain(expanded.into_iter().zip(std::iter::repeat(false)));
    for (i, (place, is_raw)) in places.enumerate() {
        let key = SigningKey::from_seed(&[8; 32]);
        assert!(key.sign_message(MESSAGE).is_ok());
        corrupt(place(&key));
        let key = std::hint::black_box(&key);
        assert!(key.sign_message(MESSAGE).as_ref().is_err_and(is_damaged), "place {i}");
        assert!(key.clone().try_sign(b"m").is_err());
        // GPUs expand the key's bytes themselves.
        let engines = engines.iter().filter(|engine| is_raw || engine.devices()[0].backend == "cpu");
        engines.for_each(|engine| fails_alone(engine, &good, key, &format!("place {i}")));
    }
}

/// A budget that suffices for one job suffices for any number of them, in a list or of an iterator: they are cut into chunks.
#[test]
fn a_memory_budget_cuts_lists_and_batches() {
    let (backend, policy) = (Cpu::new(), Policy(vec![(THREADS, 1)]));
    let device = backend.devices().unwrap().remove(0);
    let fixed = backend.zkdilithium().unwrap().prepare(&device, &policy).unwrap().bytes();
    let within = |bytes| cpu(1).memory_budget(bytes).build().unwrap();
    let key = SigningKey::from_seed(&[7; 32]);
    let (signature, public) = (key.sign_message(MESSAGE).unwrap(), key.verifying_key());
    let job = || SignJob::new(&key, MESSAGE);
    let check = || VerifyJob::new(&public, MESSAGE, signature.as_bytes());
    let is_refused = |error: &Error| error.kind() == ErrorKind::OutOfMemory;

    // Not even the lanes of a thread.
    let poor = within(fixed / 2);
    for count in [1, 3] {
        let signed = poor.sign_batch_to_vec(vec![job(); count]).unwrap();
        assert!(signed.len() == count && signed.iter().all(|made| made.as_ref().is_err_and(is_refused)));
        let verdicts = poor.verify_batch_to_vec(vec![check(); count]).unwrap();
        assert!(verdicts.len() == count && verdicts.iter().all(|made| made.as_ref().is_err_and(is_refused)));
        assert!(poor.from_seeds(Set, &vec![[1; 32]; count]).as_ref().is_err_and(is_refused));
    }
    assert!(poor.run(job()).as_ref().is_err_and(is_refused) && poor.generate(Set).as_ref().is_err_and(is_refused));

    // As much as one needs, and no byte less.
    let needs = |error: Error| match error {
        Error::OutOfMemory { needs, has, .. } if has == fixed / 2 => needs,
        error => panic!("{error}"),
    };
    let of_signing = needs(poor.run(job()).unwrap_err());
    assert!(within(of_signing - 1).run(job()).as_ref().is_err_and(is_refused));
    assert_eq!(within(of_signing).sign_batch_to_vec(vec![job(); 9]).unwrap(), vec![Ok(signature.clone()); 9]);
    let of_keygen = needs(poor.from_seeds(Set, &[[1; 32]]).unwrap_err());
    assert!(within(of_keygen - 1).from_seeds(Set, &[[1; 32]]).as_ref().is_err_and(is_refused));
    assert_eq!(within(of_keygen).from_seeds(Set, &[[1; 32]; 9]).unwrap(), vec![SigningKey::from_seed(&[1; 32]); 9]);

    // Jobs of a list or of an iterator are cut to fit.
    let tight = within(fixed + 100_000);
    let chunks_of = |jobs: usize, work: &mut dyn FnMut()| {
        let before = tight.stats();
        work();
        let after = tight.stats();
        assert_eq!(after.jobs - before.jobs, jobs as u64);
        let chunks = (after.chunks - before.chunks) as usize;
        assert!(chunks < jobs, "some are computed together");
        jobs.div_ceil(chunks)
    };
    // A signature is held twice: where a chunk makes it, and until its caller takes it.
    let fit = 100_000 / (2 * signature.as_bytes().len());
    assert!(tight.jobs_per_program(Set, hypergrove::Op::Sign, 0).unwrap() > fit, "a program takes more");
    let of_list = chunks_of(20 * fit, &mut || {
        assert_eq!(tight.sign_batch_to_vec(vec![job(); 20 * fit]).unwrap(), vec![Ok(signature.clone()); 20 * fit]);
    });
    let of_batch = chunks_of(20 * fit, &mut || {
        let mut count = 0;
        tight
            .sign_batch((0..20 * fit).map(|_| job()), |_, made| {
                assert_eq!(made, Ok(signature.clone()));
                count += 1;
            })
            .unwrap();
        assert_eq!(count, 20 * fit);
    });
    let of_keys = chunks_of(100, &mut || assert_eq!(tight.from_seeds(Set, &[[1; 32]; 100]).unwrap().len(), 100));
    let of_new_keys = chunks_of(100, &mut || {
        let mut count = 0;
        tight.generate_batch(Set, 100, |_, _| count += 1).unwrap();
        assert_eq!(count, 100);
    });
    let sizes = [of_list, of_batch, of_keys, of_new_keys];
    assert!(sizes.iter().all(|size| (8..=fit).contains(size)), "{sizes:?}");
    // By powers of two: none has 32 jobs.
    assert!(tight.stats().chunk_sizes.len() <= 5);
    assert_eq!(tight.verify_batch_to_vec(vec![check(); 3]).unwrap(), [const { Ok(true) }; 3]);
    // Messages that jobs own count.
    let owned = || [job(), SignJob::new(&key, vec![0; 60_000]), SignJob::new(&key, vec![0; 200_000]), job()];
    let mut fed = Vec::new();
    tight.sign_batch(owned(), |_, made| fed.push(made)).unwrap();
    for mut results in [fed, tight.sign_batch_to_vec(owned()).unwrap()] {
        assert!(results.remove(2).as_ref().is_err_and(is_refused) && results.iter().all(Result::is_ok));
    }
    let seen = vec![7; 200_000];
    assert!(
        tight.sign_batch_to_vec([SignJob::new(&key, &seen)]).unwrap()[0].is_ok(),
        "a message that is borrowed does not"
    );
}

/// Engines of [`engines`] that take jobs on a thread of their own.
fn engines_with_threads() -> impl Iterator<Item = Engine> {
    engines().into_iter().filter(|engine| engine.threads() > 1)
}

/// A source that gives its next job only when the results of all before it are there.
#[test]
fn results_come_while_the_source_blocks() {
    let key = SigningKey::from_seed(&[7; 32]);
    let (key, public) = (&key, &key.verifying_key());
    for engine in engines_with_threads() {
        let (answers, answered) = mpsc::channel();
        let jobs = (0..20u8).map(move |i| {
            // None is asked for before the first job.
            if i > 0 {
                answered.recv_timeout(Duration::from_secs(30)).expect("the result of the job before");
            }
            SignJob::new(key, vec![i])
        });
        let mut signatures = Vec::new();
        engine
            .sign_batch(jobs, |index, signature| {
                assert_eq!(index, signatures.len());
                signatures.push(signature.unwrap());
                answers.send(()).unwrap();
            })
            .unwrap();
        assert_eq!(signatures.len(), 20);

        let ((answers, answered), signatures) = (mpsc::channel(), &signatures);
        let jobs = (0..20u8).map(move |i| {
            if i > 0 {
                answered.recv_timeout(Duration::from_secs(30)).expect("the verdict before");
            }
            VerifyJob::new(public, vec![i ^ u8::from(i == 9)], signatures[usize::from(i)].as_bytes())
        });
        let mut verdicts = Vec::new();
        engine
            .verify_batch(jobs, |_, verdict| {
                verdicts.push(verdict.unwrap());
                answers.send(()).unwrap();
            })
            .unwrap();
        assert!(verdicts.iter().enumerate().all(|(i, valid)| *valid == (i != 9)) && verdicts.len() == 20);
    }
}

#[test]
fn a_sink_may_end_the_call() {
    let key = SigningKey::from_seed(&[7; 32]);
    for engine in engines() {
        let (pulled, mut seen) = (AtomicUsize::new(0), 0);
        let jobs = (0u32..).map(|i| {
            pulled.fetch_add(1, SeqCst);
            SignJob::new(&key, i.to_le_bytes().to_vec())
        });
        engine
            .sign_batch(jobs, |index, signature| {
                assert_eq!(index, seen);
                signature.unwrap();
                seen += 1;
                if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(seen, 3);
        assert!(pulled.load(SeqCst) < 20_000);
        assert_eq!(engine.run(SignJob::new(&key, b"m")), key.sign_message(MESSAGE), "the engine goes on");
        assert!(engine.stats().devices.iter().all(|device| (device.running, device.waiting) == (0, 0)));
    }
    for threads in [1, 2] {
        let (engine, mut seen) = (cpu(threads).build().unwrap(), Vec::new());
        engine
            .generate_batch(Set, 1_000_000, |number, key| {
                assert_eq!(number, seen.len());
                seen.push(key);
                if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert!(seen.len() == 3 && seen[0] != seen[1] && seen[1] != seen[2]);
    }
}

#[test]
fn jobs_borrow_own_and_share() {
    let keys = [1, 2, 3].map(|seed| SigningKey::from_seed(&[seed; 32]));
    let shared = keys.clone().map(Arc::new);
    let sign = |i: usize| {
        let (key, bytes) = (&keys[i % 3], b"message");
        match i / 3 {
            0 => SignJob::new(key, bytes),
            1 => SignJob::new(key.clone(), &bytes[..]),
            2 => SignJob::new(shared[i % 3].clone(), bytes.to_vec()),
            3 => SignJob::new(shared[i % 3].clone(), Cow::Borrowed(&bytes[..])),
            _ => SignJob::new(key, Message::Bytes(bytes)),
        }
    };
    let expected: Vec<_> = (0..15).map(|i| keys[i % 3].sign_message(Message::Bytes(b"message"))).collect();
    let publics = keys.each_ref().map(SigningKey::verifying_key);
    let shared_publics = publics.clone().map(Arc::new);
    // Every fourth signature is of another key.
    let verify = |i: usize| {
        let signature = expected[i + usize::from(i % 4 == 3)].as_ref().unwrap().as_bytes();
        match i / 3 {
            0 => VerifyJob::new(&publics[i % 3], b"message", signature),
            1 => VerifyJob::new(publics[i % 3].clone(), b"message", signature.to_vec()),
            _ => VerifyJob::new(shared_publics[i % 3].clone(), b"message".to_vec(), signature),
        }
    };
    let verdicts: Vec<_> = (0..14).map(|i| Ok(i % 4 != 3)).collect();
    for engine in engines() {
        assert_eq!(engine.sign_batch_to_vec((0..15).map(sign)).unwrap(), expected);
        let mut signatures = Vec::new();
        engine.sign_batch((0..15).map(sign), |_, signature| signatures.push(signature)).unwrap();
        assert_eq!(signatures, expected);
        assert_eq!(engine.verify_batch_to_vec((0..14).map(verify)).unwrap(), verdicts);
        let mut judged = Vec::new();
        engine.verify_batch((0..14).map(verify), |_, verdict| judged.push(verdict)).unwrap();
        assert_eq!(judged, verdicts);
    }
}

/// Elements instead of bytes, and single jobs.
#[test]
fn single_jobs_and_messages_of_elements() {
    let key = cpu(2).build().unwrap().generate(Set).unwrap();
    let (public, other) = (key.verifying_key(), VerifyingKey::from_bytes(&[0; 3104]).unwrap());
    let elements = [hypergrove::zkdilithium::Fe::ONE; 24];
    for engine in engines() {
        for message in [MESSAGE, Message::Block(&elements), Message::Mu(&elements)] {
            let signature = engine.run(SignJob::new(&key, message)).unwrap();
            let verify = |key, message, signature| engine.run(VerifyJob::new(key, message, signature));
            assert_eq!(Ok(&signature), key.sign_message(message).as_ref());
            assert_eq!(verify(&public, JobMessage::from(message), signature.as_bytes()), Ok(true));
            assert_eq!(verify(&other, message.into(), signature.as_bytes()), Ok(false));
            assert_eq!(verify(&public, message.into(), &signature.as_bytes()[1..]), Ok(false));
        }
        let mut bytes = key.to_bytes();
        bytes[0] ^= 1;
        let damaged = SigningKey::from_bytes_unchecked(&bytes).unwrap();
        assert!(engine.run(SignJob::new(&damaged, b"m")).is_err_and(|why| is_damaged(&why)));
        // As a job of an iterator it fails alone.
        let mut results = Vec::new();
        let jobs = [&key, &damaged, &key].map(|key| SignJob::new(key, b"m"));
        engine
            .sign_batch(jobs, |_, signature| results.push(signature.map(drop).map_err(|why| is_damaged(&why))))
            .unwrap();
        assert_eq!(results, [Ok(()), Err(true), Ok(())]);
        assert!(engine.faults().is_empty());
    }
}

/// Measures the way of a job to a device and back: a device that computes nothing gets signatures to verify.
#[test]
#[ignore = "a measurement: run it alone, with --ignored --show-output"]
fn the_way_to_a_device() {
    let key = SigningKey::from_seed(&[7; 32]).verifying_key();
    let (count, signature) = (1 << 20, [0; 2340]);
    let engine = Mock { jobs: 1 << 16, is_idle: true, ..zk_mock(1, 1) }.engine();
    let jobs = || (0..count).map(|_| VerifyJob::new(&key, b"message", &signature));
    let fed = || {
        let mut valid = 0;
        engine.verify_batch(jobs(), |_, verdict| valid += usize::from(verdict.unwrap())).unwrap();
        valid
    };
    let at_hand =
        || engine.verify_batch_to_vec(jobs()).unwrap().into_iter().filter(|verdict| *verdict == Ok(true)).count();
    crate::common::tell_the_way(count, &[("a job of an iterator", &fed), ("a job of a list", &at_hand)]);
}
