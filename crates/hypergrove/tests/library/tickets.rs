//! Tickets: each has one result, whatever happens to devices, callers and the engine.

use crate::common::{Call, Mock, OnMock, P, PURE, job, key, message, mock, sign};
use hypergrove::rows::{
    Column, Offsets, RowCall, RowSet, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows,
};
use hypergrove::zkdilithium::{self, Message, ZkDilithium};
use hypergrove::*;
use hypergrove_fips205::reference::slh_sign;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park, scope, sleep, spawn, yield_now};
use std::time::{Duration, Instant};

/// A result that takes longer never comes. ThreadSanitizer on a busy machine takes minutes for some batches.
const SOON: Duration = Duration::from_secs(600);

/// Wakes a thread, and counts.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(current(), AtomicUsize::new(0))));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => park(),
        }
    }
}

/// Engines of each shape.
fn engines() -> Vec<Engine> {
    let cpu = |threads| Engine::builder().backend(Arc::new(Cpu::new())).threads(threads).build().unwrap();
    let mocks = [(1, 1), (1, 2), (2, 2)].map(|(devices, queue)| mock(devices, queue).engine());
    [cpu(1), cpu(2)].into_iter().chain(mocks).collect()
}

fn expected(key: &SigningKey, i: usize) -> Vec<u8> {
    slh_sign(&message(i), b"", key.as_ref(), None).unwrap().as_bytes().to_vec()
}

fn is_right(key: &SigningKey, i: usize, signature: Result<Signature, Error>) {
    assert!(signature.unwrap().as_bytes() == expected(key, i), "signature {i}");
}

/// The counters of the queue, once no batch runs: a batch is counted out after its results are there.
pub(crate) fn at_rest(engine: &Engine) -> TicketStats {
    let end = Instant::now() + SOON;
    while engine.stats().tickets.running > 0 && Instant::now() < end {
        yield_now();
    }
    engine.stats().tickets
}

/// A device that computes when the gate is open.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Default)]
struct Passage {
    is_open: bool,
    /// How often it was opened. Whoever waits passes then, even if it is closed again before that thread wakes up.
    opened: usize,
    /// The runs that came since it was closed.
    runs: usize,
}

impl Gate {
    fn pass(&self) {
        let mut passage = self.0.0.lock().unwrap();
        passage.runs += 1;
        self.0.1.notify_all();
        let opened = passage.opened;
        drop(self.0.1.wait_while(passage, |passage| !passage.is_open && passage.opened == opened).unwrap());
    }
    fn open(&self) {
        let mut passage = self.0.0.lock().unwrap();
        passage.is_open = true;
        passage.opened += 1;
        self.0.1.notify_all();
    }
    fn close(&self) {
        let mut passage = self.0.0.lock().unwrap();
        passage.is_open = false;
        passage.runs = 0;
    }
    /// Waits until so many runs have come to it.
    fn wait_for(&self, runs: usize) {
        let passage = self.0.0.lock().unwrap();
        let (passage, waited) = self.0.1.wait_timeout_while(passage, SOON, |passage| passage.runs < runs).unwrap();
        let came = passage.runs;
        drop(passage);
        if waited.timed_out() {
            // The engine waits for its runs before it goes.
            self.open();
            panic!("{came} runs came, not {runs}");
        }
    }
    /// A device whose known answer was asked already.
    fn device(&self, mock: Mock) -> (Engine, Mock) {
        self.open();
        let gate = self.clone();
        let device = Mock { jobs: 64, memory: 1 << 30, ..mock }.answering(move |_| {
            gate.pass();
            Ok(())
        });
        let engine = device.engine();
        engine.sign(&key(9), PURE, b"first", Randomizer::Hedged).unwrap();
        device.log.runs.lock().unwrap().clear();
        self.close();
        (engine, device)
    }
}

/// The results that each ticket's callback got.
fn collected<T: Send + 'static>(tickets: Vec<Ticket<T>>) -> Vec<Result<T, Error>> {
    let (sender, results) = mpsc::channel();
    let count = tickets.len();
    for (i, ticket) in tickets.into_iter().enumerate() {
        let sender = sender.clone();
        ticket.on_done(move |result| sender.send((i, result)).unwrap());
    }
    drop(sender);
    let all: BTreeMap<_, _> = std::iter::from_fn(|| results.recv_timeout(SOON).ok()).collect();
    assert_eq!(all.len(), count, "each callback is called once");
    all.into_values().collect()
}

#[test]
fn every_job_of_every_scheme_gives_what_its_call_gives() {
    let key = Arc::new(key(1));
    let public = key.verifying_key();
    let zk = zkdilithium::SigningKey::from_seed(&[3; 32]);
    for engine in engines() {
        let context = b"context".to_vec();
        let opt_rand = [7; 16];
        let modes = [Mode::Pure { context: &context }, Mode::Internal, PURE];
        for mode in modes {
            let given = Randomizer::Given(&opt_rand);
            let sign =
                |key: hypergrove::JobKey<'static, SigningKey>| SignJob::new(key, b"m").mode(mode).randomizer(given);
            let right = engine.sign(&key, mode, b"m", given).unwrap();
            let signed = engine.submit(sign(key.clone().into())).unwrap().wait().unwrap();
            assert_eq!(signed, right);
            assert_eq!(block_on(engine.submit(sign((*key).clone().into())).unwrap()).unwrap(), right);
            let verify = |text: &'static [u8]| VerifyJob::new(&public, text, right.as_bytes()).mode(mode);
            assert_eq!(engine.submit(verify(b"m")).unwrap().wait(), Ok(true));
            assert_eq!(block_on(engine.submit(verify(b"n")).unwrap()), Ok(false));
        }
        let hedged = || SignJob::new(key.clone(), b"m");
        let [first, second] = [(); 2].map(|()| engine.submit(hedged()).unwrap().wait().unwrap());
        assert!(first != second);
        let seeds = Seeds { sk_seed: vec![1; 16].into(), sk_prf: vec![2; 16].into(), pk_seed: vec![3; 16] };
        let made = engine.submit(GenerateJob::from_seeds(P, seeds.clone())).unwrap();
        assert!(made.wait().unwrap() == engine.from_seeds(P, &[seeds]).unwrap()[0]);
        let mut fresh = engine.submit(GenerateJob::new(P)).unwrap();
        assert!(
            fresh.wait_timeout(Duration::MAX).unwrap().unwrap()
                != engine.submit(GenerateJob::new(P)).unwrap().wait().unwrap()
        );
        assert!(fresh.is_done() && fresh.try_take().is_none() && fresh.wait().is_err(), "it is taken once");

        assert_eq!(engine.submit(VerifyJob::new(&public, b"m", &[1, 2][..])).unwrap().wait(), Ok(false));
        // A fault for which the job itself is to blame.
        let bad = engine.submit(VerifyJob::new(&public, b"m", &[1, 2][..]).context(&[7; 256])).unwrap();
        assert!(bad.is_done() && bad.wait().is_err_and(|why| why.kind() == ErrorKind::BadInput));
        let stats = at_rest(&engine);
        assert_eq!((stats.queued, stats.queued_bytes, stats.running, stats.refused), (0, 0, 0, 0));
    }
    for builder in [Engine::builder().threads(1), Engine::builder()] {
        let engine = builder.backend(Arc::new(Cpu::new())).build().unwrap();
        let right = zk.sign_message(Message::Bytes(b"m")).unwrap();
        assert!(engine.submit(zkdilithium::SignJob::new(&zk, b"m")).unwrap().wait().unwrap() == right);
        let many: Vec<_> =
            (0..40).map(|_| engine.submit(zkdilithium::SignJob::new(zk.clone(), b"m")).unwrap()).collect();
        assert!(collected(many).into_iter().all(|signature| signature.unwrap() == right));
        let public = Arc::new(zk.verifying_key());
        let verify = |text: &'static [u8]| zkdilithium::VerifyJob::new(public.clone(), text, right.as_bytes());
        assert_eq!(engine.submit(verify(b"m")).unwrap().wait(), Ok(true));
        assert_eq!(engine.submit(verify(b"n")).unwrap().wait(), Ok(false));
        let short = zkdilithium::VerifyJob::new(public.clone(), b"m", &right.as_bytes()[1..]);
        assert_eq!(engine.submit(short).unwrap().wait(), Ok(false));
        let seeds: Vec<[u8; 32]> = (0..20).map(|i| [i; 32]).collect();
        let make = |seed: &[u8; 32]| engine.submit(GenerateJob::from_seeds(ZkDilithium, *seed)).unwrap();
        let made = seeds.iter().map(make).collect();
        let made: Vec<_> = collected(made).into_iter().map(Result::unwrap).collect();
        assert!(made == engine.from_seeds(ZkDilithium, &seeds).unwrap());
        assert!(engine.submit(GenerateJob::new(ZkDilithium)).unwrap().wait().is_ok());
    }
}

#[test]
fn a_lone_job_begins_at_once_and_what_waits_is_the_next_batch() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, device) = gate.device(mock(1, 1));
    let first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let others: Vec<_> = (1..31).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
    assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.running), (30, 1));
    assert!(!first.is_done());
    gate.open();
    is_right(&key, 0, first.wait());
    for (i, ticket) in others.into_iter().enumerate() {
        is_right(&key, i + 1, block_on(ticket));
    }
    // Where a job takes long, a batch has several chunks.
    let runs: Vec<usize> = device.log.runs.lock().unwrap().iter().map(|run| run.1).collect();
    assert_eq!((runs[0], runs[1..].iter().sum()), (1, 30));
    let stats = engine.stats().tickets;
    assert_eq!((stats.submitted, &stats.batch_sizes[..]), (31, &[1, 0, 0, 0, 1][..]));
    assert_eq!((stats.waits.iter().sum::<u64>(), stats.service_times.iter().sum::<u64>()), (31, 31));
}

/// A caller that is alone runs its job itself. The jobs of callers that come while a batch runs are the next one.
#[test]
fn callers_share_batches_unless_they_are_alone() {
    let key = key(1);
    for engine in engines() {
        is_right(&key, 0, engine.share(job(&key, 0)));
        let stats = engine.stats().tickets;
        assert_eq!((stats.submitted, &stats.batch_sizes[..], stats.queued, stats.running), (1, &[1][..], 0, 0));
        assert_eq!((stats.waits, stats.service_times.iter().sum::<u64>()), (vec![1], 1));
    }
    let gate = Gate::default();
    let (engine, _) = gate.device(mock(1, 1));
    let first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    scope(|scope| {
        let share = |i| engine.share(job(&key, i));
        let others: Vec<_> = (1..6).map(|i| scope.spawn(move || share(i))).collect();
        while engine.stats().tickets.queued < others.len() {
            std::thread::yield_now();
        }
        gate.open();
        for (i, other) in others.into_iter().enumerate() {
            is_right(&key, i + 1, other.join().unwrap());
        }
    });
    is_right(&key, 0, first.wait());
    assert_eq!(engine.stats().tickets.batch_sizes, [1, 0, 1]);
    // In a thread of a pool, which hands its job over.
    is_right(&key, 7, rayon::scope(|_| engine.share(job(&key, 7))));
    engine.drain(Instant::now() + SOON).unwrap();
    assert_eq!(engine.share(job(&key, 8)).unwrap_err().kind(), ErrorKind::Cancelled);
}

/// Each batch is one chunk on one device, and batches that run at the same time are on different devices.
#[test]
fn several_devices_have_batches_of_their_own() {
    let (gate, key) = (Gate::default(), Arc::new(key(1)));
    let gated = gate.clone();
    let device = Mock { jobs: 256, memory: 1 << 30, ..mock(4, 2) }.answering(move |_| {
        gated.pass();
        Ok(())
    });
    let engine = device.engine();
    let submit = |i| engine.submit(SignJob::new(key.clone(), message(i)).deterministic()).unwrap();
    // Each of these begins while those before it wait on their devices.
    let begin = |i| {
        let ticket = submit(i);
        gate.wait_for(i + 1);
        ticket
    };
    let mut tickets: Vec<_> = (0..4).map(begin).collect();
    let runs = device.log.counts.each_ref().map(|(ever, ..)| ever.load(SeqCst));
    // No device has so slow a chunk behind it that it would cut a batch of these.
    tickets.extend((4..34).map(submit));
    gate.open();
    for (i, ticket) in tickets.into_iter().enumerate() {
        is_right(&key, i, ticket.wait());
    }
    engine.drain(Instant::now() + SOON).unwrap();
    let stats = engine.stats();
    let batches: u64 = stats.tickets.batch_sizes.iter().sum();
    assert_eq!((runs, stats.chunks), ([1; 4], batches));
}

/// Of four devices one falls off the bus, one computes wrongly, and the others do all.
#[test]
fn other_devices_do_the_batches_of_those_that_fail() {
    let device = Mock { jobs: 64, memory: 1 << 30, ..mock(4, 2) }.answering(|call| match (call.device, call.nth) {
        (1, 2..) => call.fails("fell off the bus"),
        (2, 1..) => Err(Error::Inconsistent { device: "mock:2".into(), what: "a check".into() }),
        _ => Ok(()),
    });
    let (engine, key) = (device.engine(), Arc::new(key(1)));
    let submit = |i: usize| engine.submit(SignJob::new(key.clone(), message(i)).deterministic()).unwrap();
    let failed = || engine.faults().iter().map(|fault| fault.device.id()).collect::<BTreeSet<_>>();
    let mut count = 0;
    // Each device has its turn sooner or later.
    while failed().len() < 2 {
        let tickets: Vec<_> = (count..count + 300).map(submit).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            is_right(&key, count + i, ticket.wait());
        }
        count += 300;
        assert!(count < 30_000, "{:?}", failed());
    }
    assert!(failed().iter().eq(["mock:1", "mock:2"]));
    assert_eq!(engine.devices().iter().map(|device| device.index).collect::<Vec<_>>(), [0, 3]);
    engine.drain(Instant::now() + SOON).unwrap();
    let stats = engine.stats().tickets;
    assert_eq!((stats.submitted, stats.queued, stats.running), (count as u64, 0, 0));
}

/// A job that waits for others goes on, although all jobs of another line were withdrawn.
#[test]
fn a_line_of_withdrawn_jobs_holds_nobody_up() {
    let device = Mock { jobs: 64, memory: 1 << 30, ..mock(2, 2) };
    let engine = device.builder().max_delay(Duration::from_millis(30)).build().unwrap();
    let key = Arc::new(key(1));
    let (public, sign) = (Arc::new(key.verifying_key()), |i| engine.submit(job(&key, i)).unwrap());
    let signature = sign(0).wait().unwrap();
    let verify = || engine.submit(VerifyJob::new(public.clone(), message(0), signature.as_bytes())).unwrap();
    // From now on the queue knows what pays for both kinds.
    assert_eq!(verify().wait(), Ok(true));
    for i in 1..20 {
        let (withdrawn, mut waits) = (sign(i), verify());
        drop(withdrawn);
        assert_eq!(waits.wait_timeout(SOON), Some(Ok(true)));
    }
}

/// Each thread of the host has a batch of its own. The jobs that wait meanwhile are shared out among the threads.
#[test]
fn the_hosts_threads_do_batches_at_the_same_time() {
    let (gate, key) = (Gate::default(), key(1));
    let (public, gated) = (Arc::new(key.verifying_key()), gate.clone());
    let device = Mock { jobs: 64, ..mock(1, 1) }.answering(move |_| {
        gated.pass();
        Ok(())
    });
    gate.open();
    let engine = device.engine();
    // With fresh randomness, a signature of a toy set would now and then be valid for another message.
    let signature = engine.sign(&key, PURE, &message(0), Randomizer::Deterministic).unwrap();
    let submit = |i| engine.submit(VerifyJob::new(public.clone(), message(i), signature.as_bytes())).unwrap();
    assert_eq!(submit(0).wait(), Ok(true));
    gate.close();
    let mut tickets: Vec<_> = (0..2).map(submit).collect();
    gate.wait_for(2);
    tickets.extend((2..40).map(submit));
    assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.running), (38, 2));
    device.log.runs.lock().unwrap().clear();
    gate.open();
    let verdicts: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    assert!(verdicts.into_iter().enumerate().all(|(i, verdict)| verdict == Ok(i == 0)));
    let largest = device.log.runs.lock().unwrap().iter().map(|run| run.1).max().unwrap();
    assert!((12..=20).contains(&largest), "{largest}: half of the 40 at most");
    let stats = at_rest(&engine);
    assert_eq!((stats.service_times.iter().sum::<u64>(), stats.queued, stats.running), (41, 0, 0));
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let (gate, key) = (Gate::default(), key(1));
    gate.open();
    let device = {
        let gate = gate.clone();
        Mock { memory: 1 << 30, ..mock(1, 1) }.answering(move |_| {
            gate.pass();
            Ok(())
        })
    };
    for capacity in [(3, 1 << 20), (1000, 3 * message(0).len() as u64)] {
        let engine = device.builder().queue(capacity.0, capacity.1).build().unwrap();
        engine.sign(&key, PURE, b"first", Randomizer::Hedged).unwrap();
        gate.close();
        block_on(engine.ready()).unwrap();
        let mut tickets = vec![engine.submit(job(&key, 0)).unwrap()];
        gate.wait_for(1);
        tickets.extend((1..4).map(|i| engine.submit(job(&key, i)).unwrap()));
        let refused = engine.submit(job(&key, 4)).unwrap_err();
        assert!(
            refused.why.kind() == ErrorKind::QueueFull
                && matches!(&refused.job.message, JobMessage::Bytes(bytes) if **bytes == message(4)),
            "{refused}"
        );
        scope(|scope| {
            let room = [scope.spawn(|| engine.ready().wait()), scope.spawn(|| block_on(engine.ready()))];
            sleep(Duration::from_millis(20));
            assert!(room.iter().all(|room| !room.is_finished()));
            // One that is cancelled makes room.
            drop(tickets.pop());
            for room in room {
                room.join().unwrap().unwrap();
            }
        });
        tickets.push(engine.submit(refused.job).unwrap());
        assert!(engine.submit(job(&key, 5)).is_err());
        // A caller that shares runs its job itself then.
        scope(|scope| {
            let shares = scope.spawn(|| engine.share(job(&key, 6)));
            while engine.stats().tickets.refused < 3 {
                std::thread::yield_now();
            }
            gate.open();
            is_right(&key, 6, shares.join().unwrap());
        });
        for (i, ticket) in [0, 1, 2, 4].into_iter().zip(tickets) {
            is_right(&key, i, ticket.wait());
        }
        engine.ready().wait().unwrap();
        let stats = engine.stats().tickets;
        assert_eq!((stats.submitted, stats.refused, stats.cancelled, stats.queued_bytes), (5, 3, 1, 0));
    }
    // One job is never too large.
    let engine = device.builder().queue(0, 0).build().unwrap();
    is_right(&key, 7, engine.submit(job(&key, 7)).unwrap().wait());
}

#[test]
fn a_dropped_ticket_cancels_what_has_not_begun() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, device) = gate.device(mock(1, 1));
    let first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    // Many more than may stay in the queue.
    for round in 0..1000 {
        drop(engine.submit(job(&key, round)).unwrap());
    }
    let kept = engine.submit(job(&key, 1)).unwrap();
    assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.cancelled), (1, 1000));
    // One that has begun is completed, for nobody.
    drop(first);
    gate.open();
    is_right(&key, 1, kept.wait());
    assert_eq!(device.log.runs.lock().unwrap().iter().map(|run| run.1).sum::<usize>(), 2);
}

/// Whatever the job is.
#[test]
fn verifications_and_new_keys_are_cancelled_before_they_begin() {
    fn check<T>(end: impl Fn(Ticket<T>), submit: impl Fn(&Engine) -> Ticket<T>) {
        let gate = Gate::default();
        let (engine, device) = gate.device(mock(1, 1));
        let first = engine.submit(job(&key(1), 0)).unwrap();
        gate.wait_for(1);
        for _ in 0..20 {
            end(submit(&engine));
        }
        assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.cancelled), (0, 20));
        gate.open();
        is_right(&key(1), 0, first.wait());
        engine.drain(Instant::now() + SOON).unwrap();
        assert_eq!(device.log.runs.lock().unwrap().iter().map(|run| run.1).sum::<usize>(), 1);
    }
    fn by_handle<T>(ticket: Ticket<T>) {
        ticket.canceller().cancel();
        assert!(ticket.wait().is_err_and(|why| why.kind() == ErrorKind::Cancelled));
    }
    fn by_task<T>(mut ticket: Ticket<T>) {
        let waker = std::task::Waker::noop();
        assert!(std::pin::Pin::new(&mut ticket).poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    let public = key(1).verifying_key();
    let verify = |engine: &Engine| engine.submit(VerifyJob::new(&public, b"m", vec![1; P.sig_bytes()])).unwrap();
    let generate = |engine: &Engine| engine.submit(GenerateJob::new(P)).unwrap();
    check(drop, verify);
    check(by_handle, verify);
    check(by_task, verify);
    check(drop, generate);
    check(by_handle, generate);
    check(by_task, generate);
}

/// By whoever has the handle: the ticket may be held, or given away to a callback.
#[test]
fn a_job_is_cancelled_by_its_handle() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, device) = gate.device(mock(1, 1));
    let running = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let [waiting, called, kept] = [1, 2, 3].map(|i| engine.submit(job(&key, i)).unwrap());
    let handles = [&running, &waiting, &called].map(Ticket::canceller);
    let (sender, result) = mpsc::channel();
    called.on_done(move |signature| sender.send((signature, current().id())).unwrap());
    handles.iter().for_each(Canceller::cancel);
    handles.iter().for_each(Canceller::cancel);
    let is_cancelled = |why: &Error| why.kind() == ErrorKind::Cancelled;
    assert!(running.wait().is_err_and(|why| is_cancelled(&why)) && waiting.wait().is_err_and(|why| is_cancelled(&why)));
    let (signature, thread) = result.try_recv().expect("the callback was called");
    assert!(signature.is_err_and(|why| is_cancelled(&why)) && thread == current().id());
    assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.cancelled), (1, 3));
    let handle = kept.canceller();
    gate.open();
    let signature = kept.wait();
    handle.cancel();
    is_right(&key, 3, signature);
    assert_eq!(engine.stats().tickets.cancelled, 3, "it was done before");
    drop(engine);
    handle.cancel();
    assert_eq!(
        device.log.runs.lock().unwrap().iter().map(|run| run.1).sum::<usize>(),
        2,
        "what is cancelled does not begin"
    );
}

/// The queue has keys of its own.
#[test]
fn keys_may_go_while_their_jobs_wait() {
    let (gate, known) = (Gate::default(), key(1));
    let (engine, _) = gate.device(mock(1, 1));
    let mut tickets = vec![engine.submit(job(&known, 0)).unwrap()];
    gate.wait_for(1);
    for i in 1..6 {
        // Shared, owned, borrowed: no clone of the key is left when its job begins.
        let shared = Arc::new(key(1));
        let job = match i % 3 {
            0 => SignJob::new(shared.clone(), message(i)),
            1 => SignJob::new((*shared).clone(), message(i)),
            _ => SignJob::new(&*shared, message(i)),
        };
        tickets.push(engine.submit(job.deterministic()).unwrap());
    }
    gate.open();
    for (i, ticket) in tickets.into_iter().enumerate() {
        is_right(&known, i, ticket.wait());
    }
}

/// Without a thread the submitter does the job, and calls go on.
#[test]
fn threads_that_cannot_start_leave_the_jobs_to_the_caller() {
    const CHILD: &str = "HYPERGROVE_TEST_WITHOUT_THREADS";
    if std::env::var_os(CHILD).is_none() {
        // No memory has room for such a stack.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["tickets::threads_that_cannot_start_leave_the_jobs_to_the_caller", "--exact", "--test-threads=1"]);
        let output = child.env(CHILD, "1").env("RUST_MIN_STACK", (1u64 << 46).to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let (engine, key) = (mock(1, 1).builder().threads(1).build().unwrap(), key(1));
    let ticket = engine.submit(job(&key, 0)).unwrap();
    assert!(ticket.is_done());
    is_right(&key, 0, ticket.wait());
    is_right(&key, 1, engine.sign(&key, PURE, &message(1), Randomizer::Deterministic));
    assert_eq!((engine.stats().tickets.refused, engine.stats().tickets.queued), (0, 0));
    // Devices whose slots have no threads.
    let several = mock(2, 2).engine();
    assert_eq!(sign(&several, &key, 20), (Ok(()), 20));
    for engine in [engine, several] {
        assert!(matches!(&engine.notices()[..], [one] if one.contains("0 of ")), "{:?}", engine.notices());
        assert_eq!(engine.faults(), []);
    }
}

/// Without a thread of the engine, the submitter's job is one that runs.
#[test]
fn draining_waits_for_submitters_that_do_their_jobs() {
    const CHILD: &str = "HYPERGROVE_TEST_DRAIN_WITHOUT_THREADS";
    const NAME: &str = "tickets::draining_waits_for_submitters_that_do_their_jobs";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([NAME, "--exact", "--test-threads=1"]).env(CHILD, "1");
        let output = child.env("RUST_MIN_STACK", (1u64 << 46).to_string()).output().unwrap();
        return assert!(output.status.success(), "{output:?}");
    }
    let (gate, key) = (Gate::default(), key(1));
    let (engine, _) = gate.device(mock(1, 1));
    scope(|scope| {
        let submitter = std::thread::Builder::new().stack_size(1 << 20);
        let submit = || engine.submit(job(&key, 0)).unwrap();
        let submitted = submitter.spawn_scoped(scope, submit).unwrap();
        gate.wait_for(1);
        assert_eq!(engine.stats().tickets.running, 1);
        assert_eq!(engine.drain(Instant::now()), Err(Error::DeadlineExceeded));
        gate.open();
        is_right(&key, 0, submitted.join().unwrap().wait());
        assert_eq!(engine.drain(Instant::now() + SOON), Ok(()));
    });
}

#[test]
fn a_deadline_is_kept_whatever_the_device_does() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, device) = gate.device(mock(1, 1));
    let soon = || Instant::now() + Duration::from_millis(30);
    let running = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let running = running.deadline(soon());
    let waiting = engine.submit(job(&key, 1)).unwrap().deadline(soon());
    let polled = engine.submit(job(&key, 2)).unwrap().deadline(soon());
    let called = engine.submit(job(&key, 3)).unwrap().deadline(soon());
    let patient = engine.submit(job(&key, 4)).unwrap().deadline(Instant::now() + SOON);
    let exceeded = Err(Error::DeadlineExceeded);
    assert_eq!(running.wait(), exceeded);
    assert_eq!(waiting.wait(), exceeded);
    assert_eq!(block_on(polled), exceeded);
    assert_eq!(collected(vec![called]), std::slice::from_ref(&exceeded));
    assert_eq!(engine.submit(job(&key, 5)).unwrap().deadline(Instant::now()).wait(), exceeded);
    assert_eq!((engine.stats().tickets.queued, engine.stats().tickets.expired), (1, 5));
    gate.open();
    is_right(&key, 4, patient.wait());
    assert_eq!(
        device.log.runs.lock().unwrap().iter().map(|run| run.1).sum::<usize>(),
        2,
        "what expired does not begin"
    );
}

/// All ways to get a ticket's result.
type Way = fn(Ticket<Signature>) -> Result<Signature, Error>;
const WAYS: [(&str, Way); 4] = [
    ("wait", Ticket::wait),
    ("wait_timeout", |mut ticket| ticket.wait_timeout(SOON).unwrap()),
    ("await", block_on),
    ("on_done", |ticket| collected(vec![ticket]).remove(0)),
];

/// The error of a ticket that ends while its job runs, by each way to get the result. Nobody else uses the engine. The device computes
/// until the ticket has its result, or for so long that the result is late.
fn ended_early(end: impl Fn(Ticket<Signature>, Way) -> Result<Signature, Error>) -> Vec<(&'static str, Error)> {
    const LATE: Duration = Duration::from_secs(10);
    let of = |(name, way): (&'static str, Way)| {
        let (gate, key) = (Gate::default(), key(1));
        let (engine, device) = gate.device(mock(1, 1));
        let (ended, waits) = mpsc::channel::<()>();
        let why = scope(|scope| {
            let gate = &gate;
            let opener = scope.spawn(move || {
                let is_late = waits.recv_timeout(LATE) == Err(mpsc::RecvTimeoutError::Timeout);
                gate.open();
                is_late
            });
            let result = end(engine.submit(job(&key, 0)).unwrap(), way);
            drop(ended);
            assert!(!opener.join().unwrap(), "{name}: the ticket waited for the device: {result:?}");
            result.expect_err(name)
        });
        // The batch that runs is completed, for nobody.
        engine.drain(Instant::now() + SOON).unwrap();
        let (runs, stats) = (device.log.runs.lock().unwrap().len(), engine.stats().tickets);
        assert_eq!((stats.submitted, stats.queued, stats.running), (1, 0, 0), "{name}");
        assert_eq!(stats.expired + stats.cancelled, 1, "{name}");
        for histogram in [&stats.batch_sizes, &stats.waits, &stats.service_times] {
            assert_eq!(histogram.iter().sum::<u64>(), runs as u64, "{name}");
        }
        (name, why)
    };
    WAYS.into_iter().map(of).collect()
}

/// The thread that waits does not compute the job itself then: it could not return in time.
#[test]
fn a_deadline_ends_every_wait_on_an_idle_engine() {
    let after = |time| move |ticket: Ticket<_>, way: Way| way(ticket.deadline(Instant::now() + time));
    let expected = WAYS.map(|(name, _)| (name, Error::DeadlineExceeded));
    assert_eq!(ended_early(after(Duration::from_millis(30))), expected);
    assert_eq!(ended_early(after(Duration::ZERO)), expected, "it has passed");
}

#[test]
fn a_canceller_ends_every_wait_on_an_idle_engine() {
    let later = |ticket: Ticket<_>, way: Way| {
        let handle = ticket.canceller();
        let other = spawn(move || {
            sleep(Duration::from_millis(30));
            handle.cancel();
        });
        let result = way(ticket);
        other.join().unwrap();
        result
    };
    let at_once = |ticket: Ticket<_>, way: Way| {
        ticket.canceller().cancel();
        way(ticket)
    };
    let errors = ended_early(later).into_iter().chain(ended_early(at_once));
    errors.for_each(|(name, why)| assert_eq!(why.kind(), ErrorKind::Cancelled, "{name}"));
}

/// In a callback, the thread that waits may be the only one that can compute the job. A late result is not given all the same.
#[test]
fn a_late_result_of_a_callbacks_own_wait_is_not_given() {
    let (gate, known) = (Gate::default(), Arc::new(key(1)));
    let (engine, _) = gate.device(mock(1, 1));
    let (sender, results) = mpsc::channel();
    let (begins, began) = mpsc::channel();
    let (inner, key, gated) = (engine.clone(), known.clone(), gate.clone());
    engine.submit(SignJob::new(known, b"m")).unwrap().on_done(move |_| {
        gated.close();
        begins.send(()).unwrap();
        let wait = |after| {
            let ticket = inner.submit(SignJob::new(key.clone(), b"n")).unwrap();
            ticket.deadline(Instant::now() + after).wait().map(drop)
        };
        sender.send([Duration::ZERO, Duration::from_millis(30)].map(wait)).unwrap();
    });
    gate.open();
    began.recv_timeout(SOON).unwrap();
    gate.wait_for(1);
    sleep(Duration::from_millis(100));
    gate.open();
    assert_eq!(results.recv_timeout(SOON).unwrap(), [Err(Error::DeadlineExceeded), Err(Error::DeadlineExceeded)]);
    assert_eq!(engine.stats().tickets.expired, 2);
}

/// Devices that fail, that are wrong, that have no memory: results are right or errors, and each ticket has one.
#[test]
fn every_ticket_has_one_result_whatever_devices_do() {
    let key = key(1);
    type Fault = fn(usize) -> Mock;
    let lost: Fault = |after| {
        mock(2, 2).answering(move |call| match call.nth >= after && call.device == 1 {
            true => call.fails("no answer"),
            false => Ok(()),
        })
    };
    let wrong: Fault = |after| {
        mock(2, 2).answering(move |call| {
            if call.op == Some(Op::Sign) && call.nth >= after && call.device == 0 {
                call.out[P.n + 1] ^= 1;
            }
            Ok(())
        })
    };
    let full: Fault = |_| Mock { capacity: 1, memory: 1 << 30, ..mock(2, 1) };
    let slow: Fault = |_| Mock { delay: [1, 3, 0, 0].map(Duration::from_millis), ..mock(2, 1) };
    for (name, fault) in [("lost", lost), ("wrong", wrong), ("without memory", full), ("slow", slow)] {
        for after in [0, 3] {
            let engine = fault(after).builder().verify_signatures(true).build().unwrap();
            let tickets: Vec<_> = (0..60).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
            for (i, ticket) in tickets.into_iter().enumerate() {
                is_right(&key, i, ticket.wait());
            }
            assert_eq!(at_rest(&engine).running, 0, "{name}");
        }
    }
    // No device is left.
    let broken = mock(2, 1).answering(|call| if call.nth < 2 { Ok(()) } else { call.fails("no answer") });
    let engine = broken.engine();
    let tickets: Vec<_> = (0..60).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
    let (mut right, mut lost) = (0, 0);
    for (i, result) in collected(tickets).into_iter().enumerate() {
        match result {
            Ok(signature) => {
                is_right(&key, i, Ok(signature));
                right += 1;
            }
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::DeviceFailed, "{why}");
                lost += 1;
            }
        }
    }
    assert!(right + lost == 60 && lost > 0, "{right} {lost}");
    // A device that panics.
    let panics = AtomicUsize::new(0);
    let broken = mock(1, 1).answering(move |_| match panics.fetch_add(1, SeqCst) {
        2 => panic!("a fault of the device"),
        _ => Ok(()),
    });
    let engine = broken.engine();
    let results = collected((0..20).map(|i| engine.submit(job(&key, i)).unwrap()).collect());
    assert!(results.iter().any(|result| result.as_ref().is_err_and(|why| why.to_string().contains("panicked"))));
    is_right(&key, 1, engine.submit(job(&key, 1)).unwrap().wait());
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a fault of the waker");
    }
}

#[test]
fn the_panic_of_a_waker_or_a_callback_is_its_own() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, _) = gate.device(mock(1, 1));
    let mut first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let mut second = engine.submit(job(&key, 1)).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    for ticket in [&mut first, &mut second] {
        assert!(pin!(ticket).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    engine.submit(job(&key, 2)).unwrap().on_done(|_| panic!("a fault of the callback"));
    let last = engine.submit(job(&key, 3)).unwrap();
    gate.open();
    is_right(&key, 3, last.wait());
    is_right(&key, 0, first.wait());
    is_right(&key, 1, block_on(second));
    // A task that polls again with another waker is woken by that one.
    gate.close();
    let mut moved = engine.submit(job(&key, 4)).unwrap();
    assert!(pin!(&mut moved).poll(&mut Context::from_waker(&waker)).is_pending());
    let counted = Arc::new(Unpark(current(), AtomicUsize::new(0)));
    assert!(pin!(&mut moved).poll(&mut Context::from_waker(&counted.clone().into())).is_pending());
    gate.open();
    while counted.1.load(SeqCst) == 0 {
        park();
    }
    is_right(&key, 4, moved.try_take().unwrap());
}

#[test]
fn a_dropped_engine_completes_what_runs_and_cancels_the_rest() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, _) = gate.device(mock(1, 1));
    let first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let waits = engine.submit(job(&key, 1)).unwrap();
    let polled = engine.submit(job(&key, 2)).unwrap().deadline(Instant::now() + SOON);
    let called = engine.submit(job(&key, 3)).unwrap();
    let (sender, result) = mpsc::channel();
    called.on_done(move |result| sender.send(result).unwrap());
    let mut room = pin!(engine.ready());
    let gone = spawn(move || drop(engine));
    // The room is an error once the engine takes no more jobs.
    let waker = Waker::from(Arc::new(Unpark(current(), AtomicUsize::new(0))));
    let no_room = loop {
        match room.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Err(why)) => break why,
            _ => sleep(Duration::from_millis(1)),
        }
    };
    assert!(!gone.is_finished(), "it waits for the device");
    gate.open();
    gone.join().unwrap();
    is_right(&key, 0, first.wait());
    let is_cancelled = |why: Error| why.kind() == ErrorKind::Cancelled;
    assert!(waits.wait().is_err_and(is_cancelled) && block_on(polled).is_err_and(is_cancelled));
    assert!(result.recv_timeout(SOON).unwrap().is_err_and(is_cancelled));
    assert!(is_cancelled(no_room));
}

#[test]
fn the_last_clone_may_go_in_a_callback() {
    let key = Arc::new(key(1));
    for engine in engines() {
        let ticket = engine.submit(SignJob::new(key.clone(), b"m")).unwrap();
        let (sender, done) = mpsc::channel();
        ticket.on_done(move |signature| {
            drop(engine);
            sender.send(signature.is_ok()).unwrap();
        });
        assert!(done.recv_timeout(SOON).unwrap());
    }
}

#[test]
fn a_callback_may_use_the_engine() {
    let key = Arc::new(key(1));
    for engine in engines() {
        let (sender, done) = mpsc::channel();
        // As many as there are dispatchers, and more.
        for round in 0..8 {
            let (inner, key, sender) = (engine.clone(), key.clone(), sender.clone());
            let ticket = engine.submit(SignJob::new(key.clone(), message(round)).deterministic()).unwrap();
            ticket.on_done(move |signature| {
                is_right(&key, round, signature);
                let job = |i| SignJob::new(key.clone(), message(i)).deterministic();
                let [first, second] = [20, 21].map(|i| inner.submit(job(i)).unwrap());
                is_right(&key, 21, second.wait());
                is_right(&key, 20, first.wait());
                assert_eq!(sign(&inner, &key, 5), (Ok(()), 5));
                assert_eq!(inner.ready().wait(), Ok(()), "there is room");
                // Where the result was there already, this is the test's own thread.
                if current().name() == Some("hypergrove-tickets") {
                    let why = inner.drain(Instant::now() + SOON).unwrap_err();
                    assert_eq!(why.kind(), ErrorKind::BadInput, "{why}");
                }
                let again = inner.submit(job(30)).unwrap();
                again.on_done(move |signature| sender.send(signature.is_ok()).unwrap());
            });
        }
        drop(sender);
        let results: Vec<_> = (0..8).map(|_| done.recv_timeout(SOON).expect("no callback waits for ever")).collect();
        assert_eq!(results, [true; 8]);
    }
}

#[test]
fn tickets_are_waited_for_in_a_pool_and_in_a_sink() {
    let key = Arc::new(key(1));
    for engine in engines() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let one = |i| is_right(&key, i, engine.submit(job(&key, i)).unwrap().wait());
        pool.install(|| (0..16).into_par_iter().for_each(one));
        let mut count = 0;
        let jobs = (0..30).map(|i| job(&key, i));
        engine
            .sign_batch(jobs, |index, signature| {
                is_right(&key, index, signature);
                one(index);
                count += 1;
            })
            .unwrap();
        assert_eq!(count, 30);
    }
}

#[test]
fn draining_completes_or_cancels() {
    let (gate, key) = (Gate::default(), key(1));
    let (engine, _) = gate.device(mock(1, 1));
    let tickets: Vec<_> = (0..20).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
    scope(|scope| {
        let drained = scope.spawn(|| engine.drain(Instant::now() + SOON));
        gate.wait_for(1);
        gate.open();
        assert_eq!(drained.join().unwrap(), Ok(()));
    });
    for (i, mut ticket) in tickets.into_iter().enumerate() {
        is_right(&key, i, ticket.try_take().expect("all are done"));
    }
    let refused = engine.submit(job(&key, 0)).unwrap_err();
    assert_eq!(
        (refused.why.kind(), engine.ready().wait().unwrap_err().kind()),
        (ErrorKind::Cancelled, ErrorKind::Cancelled)
    );
    assert_eq!(sign(&engine, &key, 3), (Ok(()), 3), "calls go on");

    let (engine, _) = gate.device(mock(1, 1));
    let first = engine.submit(job(&key, 0)).unwrap();
    gate.wait_for(1);
    let others: Vec<_> = (1..9).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
    assert_eq!(engine.drain(Instant::now() + Duration::from_millis(20)), Err(Error::DeadlineExceeded));
    assert!(others.into_iter().all(|ticket| ticket.wait().is_err_and(|why| why.kind() == ErrorKind::Cancelled)));
    gate.open();
    is_right(&key, 0, first.wait());
}

/// Of kinds that wait, each has its turn.
#[test]
fn a_flood_of_one_kind_starves_no_other() {
    let slow = Mock { delay: [Duration::from_millis(1); 4], jobs: 64, memory: 1 << 30, ..mock(1, 1) };
    let (engine, key) = (slow.engine(), key(1));
    engine.sign(&key, PURE, b"first", Randomizer::Hedged).unwrap();
    let flood: Vec<_> = (0..1500).map(|i| engine.submit(job(&key, i)).unwrap()).collect();
    let began = Instant::now();
    let other = engine.submit(GenerateJob::new(P)).unwrap();
    other.wait().unwrap();
    let took = began.elapsed();
    let left = flood.iter().filter(|ticket| !ticket.is_done()).count();
    // The bound allows for the running batch, the next batch, and other work of this machine: the flood takes more than 1.5 s.
    assert!(left > 300, "{left} of the flood are left after {took:?}");
}

/// Callers that come and go, tickets of every end, and devices that fail now and then.
#[test]
fn callers_that_vanish_leave_nothing_behind() {
    let failures = Arc::new(AtomicUsize::new(0));
    let device = {
        let failures = failures.clone();
        mock(2, 2).answering(move |call| match call.nth % 97 == 96 && failures.fetch_add(1, SeqCst) == 0 {
            true => call.fails("no answer"),
            false => Ok(()),
        })
    };
    let engine = Mock { delay: [Duration::from_micros(10); 4], jobs: 16, ..device }
        .builder()
        .queue(64, 1 << 20)
        .build()
        .unwrap();
    let key = Arc::new(key(1));
    let (right, refused, called) = (expected(&key, 0), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let is_over = AtomicBool::new(false);
    let mut awaited = 0;
    scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (engine, key, right, refused, called) = (&engine, &key, &right, &refused, called.clone());
                scope.spawn(move || {
                    let mut held = Vec::new();
                    let mut awaited = 0;
                    for round in 0..150 {
                        let job = SignJob::new(key.clone(), message(0)).deterministic();
                        let mut ticket = match engine.submit(job) {
                            Ok(ticket) => ticket,
                            Err(full) => {
                                assert_eq!(full.why.kind(), ErrorKind::QueueFull);
                                refused.fetch_add(1, SeqCst);
                                engine.ready().wait().unwrap();
                                continue;
                            }
                        };
                        let is_right =
                            |signature: Result<Signature, Error>| assert!(signature.unwrap().as_bytes() == right);
                        match (caller + round) % 7 {
                            0 => is_right(ticket.wait()),
                            1 => is_right(block_on(ticket)),
                            2 => drop(ticket),
                            3 => {
                                awaited += 1;
                                let called = called.clone();
                                ticket.on_done(move |signature| {
                                    signature.unwrap();
                                    called.fetch_add(1, SeqCst);
                                });
                            }
                            4 => drop(ticket.wait_timeout(Duration::from_micros(200)).map(is_right)),
                            5 => match ticket.deadline(Instant::now() + Duration::from_micros(300)).wait() {
                                Err(why) => assert_eq!(why, Error::DeadlineExceeded),
                                signature => is_right(signature),
                            },
                            _ => held.push(ticket),
                        }
                    }
                    held.into_iter().step_by(2).for_each(|ticket| assert!(ticket.wait().unwrap().as_bytes() == right));
                    awaited
                })
            })
            .collect();
        awaited = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        is_over.store(true, SeqCst);
    });
    engine.drain(Instant::now() + SOON).unwrap();
    assert_eq!(called.load(SeqCst), awaited);
    let stats = engine.stats();
    assert_eq!((stats.tickets.queued, stats.tickets.queued_bytes, stats.tickets.running), (0, 0, 0));
    assert!(stats.devices.iter().all(|device| (device.running, device.waiting) == (0, 0)));
    println!("checked: {} refused, {:?}", refused.load(SeqCst), stats.tickets);
}

#[test]
fn a_panic_of_the_caller_leaves_the_engine_whole() {
    let key = key(1);
    for engine in engines() {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _ticket = engine.submit(job(&key, 0)).unwrap();
            panic!("a fault of the caller");
        }));
        assert!(caught.is_err());
        is_right(&key, 1, engine.submit(job(&key, 1)).unwrap().wait());
        engine.drain(Instant::now() + SOON).unwrap();
    }
}

/// Rows of the tests, with memory of several kinds.
#[derive(Clone)]
struct Letters<M = Vec<u8>> {
    keys: Arc<[SigningKey]>,
    public: Arc<[VerifyingKey]>,
    of: Vec<u32>,
    messages: Arc<[u8]>,
    offsets: Vec<i32>,
    signatures: M,
    statuses: Vec<RowStatus>,
    /// Whether these rows were dropped.
    trace: Arc<AtomicBool>,
}

impl<M> Drop for Letters<M> {
    fn drop(&mut self) {
        self.trace.store(true, SeqCst);
    }
}

/// As many rows as the memory has room for signatures. Every seventh has a key that is not there.
fn letters<M: std::ops::Deref<Target = [u8]>>(signatures: M) -> Letters<M> {
    let rows = signatures.len() / P.sig_bytes();
    let keys: Arc<[SigningKey]> = [1, 2].map(key).into();
    let (mut messages, mut offsets) = (Vec::new(), vec![0]);
    for row in 0..rows {
        messages.extend(message(row));
        offsets.push(messages.len() as i32);
    }
    Letters {
        public: keys.iter().map(SigningKey::verifying_key).collect(),
        keys,
        of: (0..rows as u32).map(|row| if row % 7 == 6 { 9 } else { row % 2 }).collect(),
        messages: messages.into(),
        offsets,
        signatures,
        statuses: vec![RowStatus::default(); rows],
        trace: Arc::default(),
    }
}

fn to_sign<M: std::ops::DerefMut<Target = [u8]>>(letters: Letters<M>) -> RowSet<Letters<M>> {
    RowSet::new(letters, |it| RowCall::Sign {
        rows: SignRows {
            keys: RowSigningKeys::Table { keys: &it.keys, of: &it.of },
            mode: PURE,
            messages: Column::Variable { bytes: &it.messages, offsets: Offsets::I32(&it.offsets) },
            randomizer: Randomizer::Deterministic,
        },
        signatures: &mut it.signatures,
        statuses: &mut it.statuses,
    })
}

fn to_verify<M: std::ops::DerefMut<Target = [u8]>>(letters: Letters<M>) -> RowSet<Letters<M>> {
    RowSet::new(letters, |it| RowCall::Verify {
        rows: VerifyRows {
            keys: RowVerifyingKeys::Table { keys: &it.public, of: &it.of },
            mode: PURE,
            messages: Column::Variable { bytes: &it.messages, offsets: Offsets::I32(&it.offsets) },
            signatures: Column::packed(&it.signatures, P.sig_bytes()),
        },
        statuses: &mut it.statuses,
    })
}

fn set(rows: usize) -> RowSet<Letters> {
    to_sign(letters(vec![1; rows * P.sig_bytes()]))
}

fn are_signed<M: std::ops::Deref<Target = [u8]>>(it: &Letters<M>) {
    for (row, (status, signature)) in it.statuses.iter().zip(it.signatures.chunks(P.sig_bytes())).enumerate() {
        match it.of[row] {
            9 => assert!(*status == RowStatus::NoSuchKey && signature.iter().all(|byte| *byte == 0), "row {row}"),
            of => {
                assert_eq!(*status, RowStatus::Signed, "row {row}");
                assert!(signature == expected(&it.keys[of as usize], row), "row {row}");
            }
        }
    }
}

#[test]
fn sets_of_rows_give_what_their_calls_give() {
    let many = 40;
    for engine in engines() {
        for rows in [0, 1, many] {
            let of_vec = set(rows);
            let at = of_vec.memory.signatures.as_ptr();
            let mut memory = engine.memory(rows * P.sig_bytes()).unwrap();
            memory.fill(1);
            let of_memory = engine.submit(to_sign(letters(memory))).unwrap();
            let of_vec = engine.submit(of_vec).unwrap().wait().unwrap();
            assert_eq!(of_vec.signatures.as_ptr(), at, "it is given back");
            are_signed(&of_vec);
            let mut of_memory = block_on(of_memory).unwrap();
            are_signed(&of_memory);

            // The memory is used again.
            of_memory.signatures.chunks_mut(P.sig_bytes()).step_by(5).for_each(|signature| signature[9] ^= 1);
            let (sender, verdicts) = mpsc::channel();
            engine
                .submit(to_verify(of_memory))
                .unwrap()
                .on_done(move |it| sender.send(it.unwrap().statuses.clone()).unwrap());
            let right = |row| match (row % 7, row % 5) {
                (6, _) => RowStatus::NoSuchKey,
                (_, 0) => RowStatus::Invalid,
                _ => RowStatus::Valid,
            };
            assert_eq!(verdicts.recv_timeout(SOON).unwrap(), (0..rows).map(right).collect::<Vec<_>>());

            for seeds in [None, Some((0..rows * 3 * P.n).map(|i| i as u8).collect::<Vec<_>>())] {
                let keys = (seeds.clone(), vec![0; rows * P.sk_bytes()], vec![0; rows * P.pk_bytes()]);
                let set = RowSet::new(keys, |(seeds, private, public)| RowCall::Keygen {
                    params: P,
                    seeds: seeds.as_deref(),
                    private,
                    public: Some(public),
                });
                let (_, private, public) = engine.submit(set).unwrap().wait().unwrap();
                if let Some(seeds) = seeds {
                    let mut right = (vec![0; private.len()], vec![0; public.len()]);
                    engine.keygen_rows_from_seeds(P, &seeds, &mut right.0, Some(&mut right.1)).unwrap();
                    assert!((&private, &public) == (&right.0, &right.1));
                }
                for (private, public) in private.chunks(P.sk_bytes()).zip(public.chunks(P.pk_bytes())) {
                    let key = SigningKey::from_bytes_unchecked(P, private).unwrap();
                    assert!(engine.check(&key).is_ok() && key.verifying_key().to_bytes() == public);
                }
            }
        }
        let stats = at_rest(&engine);
        assert_eq!((stats.submitted, stats.queued, stats.queued_bytes, stats.running), (15, 0, 0, 0));
    }
}

#[test]
fn a_set_that_does_not_fit_comes_back() {
    let engine = mock(1, 1).engine();
    type Spoil = fn(&mut Letters);
    let wrong: [(Spoil, &str); 4] = [
        (|it| it.signatures.truncate(7), "the memory for signatures"),
        (|it| it.offsets.push(1), "the column of messages"),
        (|it| it.of.truncate(1), "key indices"),
        (|it| it.keys = Arc::new([]), "a table without keys"),
    ];
    for (spoil, why) in wrong {
        let mut spoilt = set(3);
        spoil(&mut spoilt.memory);
        let refused = engine.submit(spoilt).unwrap_err();
        assert!(refused.why.kind() == ErrorKind::BadInput && refused.why.to_string().contains(why), "{refused}");
        assert_eq!(refused.job.memory.messages, set(3).memory.messages, "its memory is there");
    }
    // Offsets are looked at row by row.
    let mut lies = set(3);
    lies.memory.offsets = vec![0, i32::MAX, -1, 5];
    assert_eq!(engine.submit(lies).unwrap().wait().unwrap().statuses, [RowStatus::BadOffsets; 3]);
    let none = RowSet::new((vec![0; 63], vec![0; 32]), |(private, public)| RowCall::Keygen {
        params: P,
        seeds: None,
        private,
        public: Some(public),
    });
    assert_eq!(engine.submit(none).unwrap_err().why.kind(), ErrorKind::BadInput);
    let stats = engine.stats().tickets;
    assert_eq!((stats.submitted, stats.queued, stats.queued_bytes), (1, 0, 0));
}

/// A set is to blame for the rows that it lends; the sets that wait with it are not.
#[test]
fn a_set_that_lends_something_else_is_an_error_of_its_own() {
    type Fickle = (Letters, usize);
    fn fickle(rows: usize, at_first: usize) -> RowSet<Fickle> {
        RowSet::new((set(rows).memory, at_first), |(it, times)| {
            *times += 1;
            let rows = match *times {
                3 => it.statuses.len() - 1,
                5 => panic!("a fault of the function"),
                _ => it.statuses.len(),
            };
            RowCall::Verify {
                rows: VerifyRows {
                    keys: RowVerifyingKeys::One(&it.public[0]),
                    mode: PURE,
                    messages: Column::packed(&it.messages[..rows], 1),
                    signatures: Column::packed(&it.signatures[..rows * P.sig_bytes()], P.sig_bytes()),
                },
                statuses: &mut it.statuses[..rows],
            }
        })
    }
    let gate = Gate::default();
    let (engine, device) = gate.device(mock(1, 1));
    let first = engine.submit(fickle(3, 100)).unwrap();
    gate.wait_for(1);
    let tickets = [100, 1, 3, 100].map(|at_first| engine.submit(fickle(3, at_first)).unwrap());
    gate.open();
    assert_eq!(first.wait().unwrap().0.statuses, [RowStatus::Invalid; 3]);
    let [before, other, panics, after] = tickets.map(Ticket::wait);
    for right in [before, after] {
        assert_eq!(right.unwrap().0.statuses, [RowStatus::Invalid; 3]);
    }
    let what = |result: Result<Fickle, Error>| result.map(drop).unwrap_err().to_string();
    let (other, panics) = (what(other), what(panics));
    assert!(other.contains("other columns") && panics.contains("rows panicked"), "{other}; {panics}");
    let runs: Vec<usize> = device.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect();
    assert_eq!(runs, [3, 6], "the right ones share a run");
}

#[test]
fn sets_fill_the_queue_by_their_rows_and_their_bytes() {
    let of_six = engine_size(6);
    for capacity in [(12, 1 << 30), (1 << 20, 2 * of_six)] {
        let gate = Gate::default();
        gate.open();
        let gated = gate.clone();
        let device = Mock { memory: 1 << 30, ..mock(1, 1) }.answering(move |_| {
            gated.pass();
            Ok(())
        });
        let engine = device.builder().queue(capacity.0, capacity.1).build().unwrap();
        engine.sign(&key(9), PURE, b"first", Randomizer::Hedged).unwrap();
        gate.close();
        let first = engine.submit(set(6)).unwrap();
        gate.wait_for(1);
        let [second, third] = [(); 2].map(|()| engine.submit(set(6)).unwrap());
        let stats = engine.stats().tickets;
        assert_eq!((stats.queued, stats.queued_bytes), (12, 2 * of_six));
        let refused = engine.submit(set(1)).unwrap_err();
        assert_eq!(refused.why.kind(), ErrorKind::QueueFull);
        assert!(engine.submit(job(&key(1), 0)).is_err(), "single jobs have the same queue");
        drop(third);
        // Where there is room, a set of any size gets in, or small ones would keep it out for ever.
        block_on(engine.ready()).unwrap();
        let large = engine.submit(set(30)).unwrap();
        assert!(engine.submit(refused.job).is_err());
        gate.open();
        for ticket in [first, second, large] {
            are_signed(&ticket.wait().unwrap());
        }
        let stats = engine.stats().tickets;
        assert_eq!((stats.submitted, stats.refused, stats.cancelled, stats.queued_bytes), (4, 3, 1, 0));
    }
}

/// Bytes of such a set's columns.
fn engine_size(rows: usize) -> u64 {
    let Letters { of, messages, offsets, signatures, statuses, .. } = &set(rows).memory;
    (size_of_val(&of[..]) + messages.len() + size_of_val(&offsets[..]) + signatures.len() + statuses.len()) as u64
}

#[test]
fn a_set_without_a_ticket_lives_until_no_device_uses_it() {
    let gate = Gate::default();
    let (engine, device) = gate.device(mock(1, 1));
    let (running, waiting) = (set(8), set(8));
    let gone = [&running, &waiting].map(|set| set.memory.trace.clone());
    let is_gone = |nth: usize| gone[nth].load(SeqCst);
    let running = engine.submit(running).unwrap();
    gate.wait_for(1);
    let waiting = engine.submit(waiting).unwrap();
    drop((running, waiting));
    assert!(!is_gone(0) && is_gone(1), "the device has the first one");
    // A deadline and a cancellation leave the device its memory too.
    gate.open();
    engine.sign(&key(1), PURE, b"next", Randomizer::Hedged).unwrap();
    gate.close();
    let late = set(8);
    let trace = late.memory.trace.clone();
    let late = engine.submit(late).unwrap();
    gate.wait_for(1);
    let late = late.deadline(Instant::now() + Duration::from_millis(20));
    let cancelled = engine.submit(set(8)).unwrap();
    let handle = cancelled.canceller();
    handle.cancel();
    assert_eq!(late.wait().map(drop), Err(Error::DeadlineExceeded));
    assert_eq!(cancelled.wait().map(drop).unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!trace.load(SeqCst), "the device computes");
    gate.open();
    engine.drain(Instant::now() + SOON).unwrap();
    assert!(trace.load(SeqCst) && is_gone(0));
    // Sets have rows without a key, whose signatures no device makes.
    let rows: usize = device.log.runs.lock().unwrap().iter().map(|run| run.1).sum();
    assert_eq!(rows, 7 + 1 + 7);
}

#[test]
fn sets_are_drained() {
    let gate = Gate::default();
    let (engine, _) = gate.device(mock(1, 1));
    let first = engine.submit(set(8)).unwrap();
    gate.wait_for(1);
    let others: Vec<_> = (0..5).map(|rows| engine.submit(set(rows)).unwrap()).collect();
    assert_eq!(engine.drain(Instant::now() + Duration::from_millis(20)), Err(Error::DeadlineExceeded));
    let is_cancelled = |ticket: Ticket<Letters>| ticket.wait().map(drop).unwrap_err().kind() == ErrorKind::Cancelled;
    assert!(others.into_iter().all(is_cancelled));
    let refused = engine.submit(set(2)).unwrap_err();
    assert_eq!((refused.why.kind(), refused.job.memory.of.len()), (ErrorKind::Cancelled, 2));
    gate.open();
    are_signed(&first.wait().unwrap());
}

/// Sets of any size whose devices fail: right, or an error.
#[test]
fn every_set_has_one_result_whatever_devices_do() {
    let faults: [fn(Call<'_>) -> Result<(), Error>; 3] = [
        |call| if call.nth >= 3 && call.device == 1 { call.fails("no answer") } else { Ok(()) },
        |call| {
            if call.op == Some(Op::Sign) && call.nth >= 3 && call.device == 0 {
                call.out[P.n + 1] ^= 1;
            }
            Ok(())
        },
        |call| if call.device == 0 && call.nth == 2 { panic!("a fault of the device") } else { Ok(()) },
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let engine = mock(2, 2).answering(fault).builder().verify_signatures(true).build().unwrap();
        let tickets: Vec<_> = (0..40).map(|rows| engine.submit(set(1 + rows % 13)).unwrap()).collect();
        let results = collected(tickets);
        let lost = results.iter().filter(|result| result.is_err()).count();
        results.iter().flatten().for_each(are_signed);
        // The panic is that of the sets of one batch, and nobody knows which device it came from.
        assert!(if number == 2 { (1..20).contains(&lost) } else { lost == 0 }, "{number}: {lost} are lost");
        let all = "one of mock:0, mock:1 failed: a thread that ran this set of rows panicked";
        assert!(results.iter().flat_map(|result| result.as_ref().err()).all(|why| why.to_string() == all));
        assert_eq!(at_rest(&engine).running, 0);
    }
    let broken = mock(2, 1).answering(|call| if call.nth < 2 { Ok(()) } else { call.fails("no answer") });
    let engine = broken.engine();
    let results = collected((0..20).map(|_| engine.submit(set(9)).unwrap()).collect());
    let is_lost = |result: &Result<Letters, Error>| match result {
        Ok(it) => {
            are_signed(it);
            false
        }
        Err(why) => why.kind() == ErrorKind::DeviceFailed,
    };
    assert!(results.iter().filter(|result| is_lost(result)).count() > 0);
    assert!(results.iter().all(|result| result.is_ok() || is_lost(result)));
}
