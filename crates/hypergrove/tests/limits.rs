//! A caller's number may ask for more memory than there is: that is an error, and does not end the process.
#![cfg(target_os = "linux")]

use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::zkdilithium::ZkDilithium;
use hypergrove::{
    Cpu, Engine, Error, ErrorKind, Mode, Randomizer, SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S, SignJob, SigningKey,
    VerifyJob, cache_bytes,
};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Says to the test that it runs in a process with little memory.
const IS_CHILD: &str = "HYPERGROVE_LITTLE_MEMORY";

/// Runs a test of this file again, in a process that gets no more than 2 GB.
fn with_little_memory(test: &str, work: impl FnOnce()) {
    if std::env::var_os(IS_CHILD).is_some() {
        return work();
    }
    let limited = r#"ulimit -v 2000000 && exec "$0" --exact "$1""#;
    let child = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", limited]).arg(child).arg(test).env(IS_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory && error.to_string().starts_with("the host gives no ")
}

#[test]
fn layers_that_are_too_many_are_an_error() {
    with_little_memory("layers_that_are_too_many_are_an_error", || {
        let p = &SLH_DSA_SHA2_128S;
        let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).memory_budget(u64::MAX);
        let engine = engine.threads(2).build().unwrap();
        let key = SigningKey::from_bytes_unchecked(p, &[7; 64]).unwrap();
        for layers in [3, 4] {
            let why = engine.cache(&key, layers).unwrap_err();
            assert!(is_refused(&why), "{layers} layers of {:?} bytes: {why}", cache_bytes(p, layers));
            let why = engine.cache_within(&key, cache_bytes(p, layers).unwrap()).unwrap_err();
            assert!(is_refused(&why), "{why}");
        }
        assert_eq!(engine.cache(&key, 5).unwrap_err().kind(), ErrorKind::BadInput);
        // The engine is as before.
        assert!(engine.faults().is_empty());
        let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
        assert_eq!(engine.cache(&key, 2).unwrap().cached_layers(), 2);
    });
}

#[test]
fn memory_that_is_too_large_is_an_error() {
    with_little_memory("memory_that_is_too_large_is_an_error", || {
        let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).build().unwrap();
        for bytes in [3 << 30, 1 << 62, usize::MAX] {
            assert!(is_refused(&engine.memory(bytes).unwrap_err()));
        }
        assert_eq!(engine.memory(1 << 20).unwrap().len(), 1 << 20);
    });
}

#[test]
fn threads_that_are_too_many_are_an_error() {
    for threads in [rayon::max_num_threads() + 1, usize::MAX] {
        let why = Engine::builder().threads(threads).build().unwrap_err();
        assert!(why.kind() == ErrorKind::BadInput && why.to_string().contains(&format!("{threads} threads")), "{why}");
    }
}

/// Nothing is computed: no number that is explained may end the process either.
#[test]
fn any_batch_is_explained() {
    let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).build().unwrap();
    for op in [hypergrove::Op::Sign, hypergrove::Op::Verify, hypergrove::Op::Keygen] {
        assert!(engine.explain(&SLH_DSA_SHA2_128F, op, usize::MAX).is_ok());
    }
}

/// Threads of this process that wait until they may end.
struct Waiting(Vec<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Waiting {
    /// As many threads as the system starts, up to `most`.
    fn start(most: usize) -> Waiting {
        let start = |_| {
            let (end, ends): (_, Receiver<()>) = channel();
            Builder::new().spawn(move || ends.recv().unwrap_or_default()).ok().map(|thread| (end, thread))
        };
        Waiting((0..most).map_while(start).collect())
    }

    /// Ends the threads, and gives how many there were.
    fn end(self) -> usize {
        let count = self.0.len();
        for (end, thread) in self.0 {
            drop(end);
            thread.join().unwrap();
        }
        count
    }
}

/// Lets this process start so many threads more. `false` if the system does not limit them.
fn allow(threads: usize) -> bool {
    let maximum = getrlimit(Resource::Nproc).maximum;
    let starts = |current| {
        setrlimit(Resource::Nproc, Rlimit { current: Some(current), maximum }).unwrap();
        Waiting::start(100).end()
    };
    // Threads of an engine that was dropped may end meanwhile.
    starts(1) < 100 && (0..100).any(|_| (1..30).any(|current| starts(current) == threads))
}

/// All kinds of calls of an engine that lacks threads.
fn works(engine: &Engine) {
    let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
    let public = key.verifying_key();
    let is_valid = |i: u8, signature: &[u8]| engine.verify(&public, Mode::Pure { context: b"" }, &[i], signature);
    let job = |i: u8| SignJob::new(&key, vec![i]);

    let one = engine.sign(&key, Mode::Pure { context: b"" }, &[1], Randomizer::Hedged).unwrap();
    assert_eq!(is_valid(1, one.as_bytes()), Ok(true));
    let mut all = Vec::new();
    engine.sign_batch((0..9).map(job), |_, signature| all.push(signature.unwrap())).unwrap();
    // A source that does not say how many jobs come.
    engine.sign_batch((9..40).filter(|i| i % 2 == 0).map(job), |_, signature| drop(signature.unwrap())).unwrap();
    let checks = all.iter().zip(0..).map(|(signature, i)| VerifyJob::new(&public, vec![i], signature.as_bytes()));
    assert_eq!(engine.verify_batch_to_vec(checks).unwrap(), [const { Ok(true) }; 9]);
    let (mut rows, mut statuses) = (vec![0; 9 * one.as_bytes().len()], [RowStatus::default(); 9]);
    let texts: Vec<Vec<u8>> = (0..9).map(|i| vec![i]).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let (mode, messages) = (Mode::Pure { context: b"" }, Column::Slices(&texts));
    let of_rows = SignRows { keys: RowSigningKeys::One(&key), mode, messages, randomizer: Randomizer::Hedged };
    engine.sign_rows(&of_rows, &mut rows, &mut statuses).unwrap();
    assert_eq!(statuses, [RowStatus::Signed; 9]);
    engine.generate_batch(ZkDilithium, 40, |_, _| ()).unwrap();
    let (mut count, files) = (0, vec![vec![7_u8; 1 << 20]; 5]);
    engine.sha256_each(5, |i| Ok(&files[i][..]), |_, digest| count += usize::from(digest.is_ok())).unwrap();
    assert_eq!(count, 5);

    let tickets: Vec<_> = (0..5).map(|i| engine.submit(job(i)).unwrap()).collect();
    for (ticket, i) in tickets.into_iter().zip(0..) {
        assert_eq!(is_valid(i, ticket.wait().unwrap().as_bytes()), Ok(true));
    }
    let (send, results) = channel();
    engine.submit(job(1)).unwrap().on_done(move |result| send.send(result).unwrap());
    assert!(results.recv_timeout(Duration::from_secs(60)).unwrap().is_ok());
    let later = Instant::now() + Duration::from_secs(60);
    assert!(engine.submit(job(1)).unwrap().deadline(later).wait().is_ok());
    // Where the submitter does the job, the result comes before the deadline is set.
    let late = engine.submit(job(1)).unwrap().deadline(Instant::now()).wait();
    assert!(late.is_ok() || late == Err(Error::DeadlineExceeded));
    assert!(engine.share(job(1)).is_ok());
    engine.drain(later).unwrap();
}

#[test]
fn work_goes_on_with_the_threads_that_there_are() {
    const NAME: &str = "work_goes_on_with_the_threads_that_there_are";
    if std::env::var_os(IS_CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        // On the main thread. The system does not limit root; nobody else has this number.
        child.args(["--exact", NAME, "--test-threads=1", "--nocapture"]).env(IS_CHILD, "1");
        if getuid().is_root() {
            child.uid(47_011).gid(47_011);
        }
        let output = child.output().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        return assert!(output.status.success(), "{output:?}");
    }
    // A caller in a pool of its own may not wait for others while it holds a permit.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    if !allow(0) {
        return println!("skipped: an engine without threads: the system does not limit this user's threads");
    }
    // Of those that the pool leaves, some suffice for the dispatchers or for deadlines.
    for threads in 0..9 {
        assert!(allow(threads), "{threads} threads");
        for redundant in [false, true] {
            let builder = || Engine::builder().backend(Arc::new(Cpu::new())).threads(4).redundant(redundant);
            let engine = builder().build().unwrap();
            works(&engine);
            let engine = builder().build().unwrap();
            pool.install(|| works(&engine));
            assert_eq!(engine.faults(), []);
            let notices = engine.notices();
            assert!(
                matches!(&notices[..], [one] if one.contains("threads could be started") && one.contains("ulimit -u"))
                    || (threads >= 4 && notices.is_empty()),
                "{threads}: {notices:?}"
            );
        }
    }
    assert!(allow(20));
    let engine = Engine::builder().backend(Arc::new(Cpu::new())).threads(4).build().unwrap();
    works(&engine);
    assert!(engine.notices().is_empty());
}
