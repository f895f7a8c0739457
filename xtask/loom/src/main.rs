//! The scheduler's queues under loom: every order in which threads can take the locks, up to a number of preemptions.
//!
//! `cell.rs`, `permits.rs` and `producer.rs` are compiled here as they are, with loom's locks. Loom reports a thread that is never woken as a
//! deadlock.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the models use some of it")]
#[path = "../../../crates/engine/src/scheduler/cell.rs"]
mod cell;
#[allow(dead_code, reason = "the models use some of it")]
#[path = "../../../crates/engine/src/scheduler/permits.rs"]
mod permits;
#[allow(dead_code, reason = "the models use some of it")]
#[path = "../../../crates/engine/src/scheduler/producer.rs"]
mod producer;

/// The items that the scheduler's module of this name takes from the standard library.
mod sync {
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    use std::sync::LockResult;
    use std::time::Duration;

    /// Loom's, with the two waits that it lacks.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
        pub(crate) fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut waits: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            while waits(&mut guard) {
                guard = self.0.wait(guard)?;
            }
            Ok(guard)
        }
        /// Loom has no clock: the models do without what time would do.
        pub(crate) fn wait_timeout_while<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _: Duration,
            waits: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            self.wait_while(guard, waits)
        }
    }
}

/// The open block, with the fields that the producer reads. Here each job stays by itself.
mod blocks {
    pub(crate) struct OpenBlock<J> {
        pub(crate) job: J,
        pub(crate) held: u64,
        pub(crate) count: usize,
    }

    impl<J> OpenBlock<J> {
        pub(crate) fn join(&mut self, next: OpenBlock<J>) -> Option<OpenBlock<J>> {
            Some(next)
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
struct Error;

trait Job {}

impl Job for usize {}

use blocks::OpenBlock;
use cell::{Cell, Then, Wake};
use loom::sync::atomic::AtomicUsize;
use loom::thread::{self, JoinHandle};
use permits::{Permit, Permits, Request, Signal, lock};
use producer::{ProducedJobs, Producer, Produces};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use sync::Mutex;

/// Preemptions in one execution: each one more multiplies the executions.
const PREEMPTIONS: usize = 3;

type Model = (&'static str, fn());

const MODELS: [Model; 11] = [
    ("chunks come one at a time, in the order of their requests", chunks_in_order),
    ("a call that gives up leaves its permit to the next", giving_up),
    ("a call that steps aside for its sink comes back", stepping_aside),
    ("single jobs wait for single jobs alone", singles),
    ("a single job that gives up keeps no permit", single_gives_up),
    ("a producer that is full goes on when there is room", producer_goes_on),
    ("a producer that is stopped ends, whatever it waits for", producer_stops),
    ("of two results one reaches the thread that waits", one_result),
    ("a ticket that is dropped leaves its result to one", dropping),
    ("a callback is called once", calling),
    ("a thread that is woken wakes the next", chained),
];

/// Faults that loom must find.
const CONTROLS: [Model; 3] = [
    ("a call that looks for its permit before it asks what happened", careless),
    ("a call that keeps the permit that it gave up", keeping),
    ("a result of which nobody is notified", untold),
];

fn main() -> ExitCode {
    let explored = |model: fn()| {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS);
        catch_unwind(AssertUnwindSafe(|| builder.check(model))).is_ok()
    };
    let verdict = |(name, model): &Model, is_right| {
        let passes = explored(*model) == is_right;
        println!("test {name} ... {}", if passes { "ok" } else { "FAILED" });
        passes
    };
    let mut all: Vec<bool> = MODELS.iter().map(|model| verdict(model, true)).collect();
    // Loom's reports of these are expected.
    std::panic::set_hook(Box::new(|_| ()));
    all.extend(CONTROLS.iter().map(|control| verdict(control, false)));
    let (passed, failed): (Vec<bool>, Vec<bool>) = all.into_iter().partition(|passes| *passes);
    let outcome = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("test result: {outcome}. {} passed; {} failed", passed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits for the permit that the call has asked for.
fn granted<'a>(permits: &'a Permits, signal: &Signal) -> Permit<'a> {
    loop {
        let seen = signal.events();
        if let Some((_, slot)) = signal.take_granted().pop() {
            return permits.granted(slot);
        }
        signal.wait(seen, None);
    }
}

/// A device with one slot, and which requests had it so far.
struct Device {
    permits: Permits,
    inside: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

impl Device {
    fn new() -> Arc<Device> {
        Arc::new(Device { permits: Permits::new(1, 1), inside: AtomicUsize::new(0), requests: Mutex::new(Vec::new()) })
    }

    /// A chunk.
    fn run(&self) {
        let signal = Arc::new(Signal::default());
        let (permit, request) = match self.permits.chunk(&signal, 0, None) {
            Ok(permit) => (permit, None),
            Err(request) => (granted(&self.permits, &signal), Some(request)),
        };
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "one at a time");
        lock(&self.requests).extend(request);
        self.inside.fetch_sub(1, SeqCst);
        drop(permit);
    }

    fn spawn(self: &Arc<Self>, body: impl FnOnce(&Device) + 'static) -> JoinHandle<()> {
        let device = self.clone();
        thread::spawn(move || body(&device))
    }

    /// All calls have ended.
    fn is_idle(&self) {
        assert_eq!(self.permits.load(), (0, 0));
    }
}

fn chunks_in_order() {
    let device = Device::new();
    let others = [(); 2].map(|()| device.spawn(Device::run));
    device.run();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert!(lock(&device.requests).is_sorted());
    device.is_idle();
}

/// A call asks for a permit and ends before it has it.
fn gives_up(device: &Device, returns: bool) {
    let signal = Arc::new(Signal::default());
    let request = device.permits.chunk(&signal, 0, None).err();
    if request.is_some_and(|request| !device.permits.withdraw(request)) && returns {
        for (_, slot) in signal.take_granted() {
            drop(device.permits.granted(slot));
        }
    }
}

fn giving_up() {
    let device = Device::new();
    let others = [device.spawn(|device| gives_up(device, true)), device.spawn(Device::run)];
    device.run();
    others.into_iter().for_each(|other| other.join().unwrap());
    device.is_idle();
}

fn stepping_aside() {
    let device = Device::new();
    let signal = Arc::new(Signal::default());
    let Ok(first) = device.permits.chunk(&signal, 0, None) else { panic!("nobody is there") };
    let aside = Arc::new(Signal::default());
    let Err(request) = device.permits.chunk(&aside, 0, None) else { panic!("the slot is in use") };
    let other = device.spawn(Device::run);
    let end = device.spawn(|device| drop(device.permits.granted(0)));
    std::mem::forget(first);
    let permit = match device.permits.withdraw(request) {
        true => device.permits.chunk(&aside, 0, Some(request)).unwrap_or_else(|same| {
            assert_eq!(same, request);
            granted(&device.permits, &aside)
        }),
        false => granted(&device.permits, &aside),
    };
    drop(permit);
    [other, end].into_iter().for_each(|other| other.join().unwrap());
    device.is_idle();
}

fn singles() {
    let device = Device::new();
    let signal = Arc::new(Signal::default());
    // A chunk that lasts keeps no single job away.
    let Ok(chunk) = device.permits.chunk(&signal, 0, None) else { panic!("nobody is there") };
    let single = |device: &Device| {
        let permit = device.permits.single(|| Ok::<_, Infallible>(None)).unwrap();
        assert_eq!(device.inside.fetch_add(1, SeqCst), 0, "one at a time");
        device.inside.fetch_sub(1, SeqCst);
        drop(permit);
    };
    let others = [(); 2].map(|()| device.spawn(single));
    single(&device);
    others.into_iter().for_each(|other| other.join().unwrap());
    drop(chunk);
    device.is_idle();
}

fn single_gives_up() {
    let device = Device::new();
    let first = device.permits.single(|| Err(())).ok();
    // Its permit may be granted while it gives up.
    let others =
        [|| Err(()), || Ok(None)].map(|patience| device.spawn(move |device| drop(device.permits.single(patience))));
    drop(first);
    others.into_iter().for_each(|other| other.join().unwrap());
    device.is_idle();
}

/// A source of three jobs, of which one may be taken ahead, and a call that takes them.
fn producer_goes_on() {
    const JOBS: usize = 3;
    let producer = Arc::new(Producer::new(1, u64::MAX));
    let (source, signal) = (producer.clone(), producer.signal());
    let pull = thread::spawn(move || source.pull((0..JOBS).map(|job| OpenBlock { job, held: 1, count: 1 })));
    let mut produced = ProducedJobs { producer: &producer, jobs: VecDeque::new(), most: None };
    let mut next = 0;
    loop {
        let seen = signal.events();
        // Whether to start what is at hand is a question of time; that a producer with room goes on is not.
        producer.readiness(0, 0, None, std::time::Duration::from_millis(1));
        while let Some(queued) = produced.next() {
            assert_eq!(queued.job, next);
            next += 1;
        }
        if produced.size_hint() == (0, Some(0)) {
            break;
        }
        producer.readiness(0, 0, None, std::time::Duration::from_millis(1));
        signal.wait(seen, None);
    }
    assert_eq!(next, JOBS);
    pull.join().unwrap();
}

/// A source without an end, and a call that ends whatever the source's thread waits for.
fn producer_stops() {
    let producer = Arc::new(Producer::new(1, u64::MAX));
    let source = producer.clone();
    let pull = thread::spawn(move || source.pull((0..).map(|job| OpenBlock { job, held: 1, count: 1 })));
    producer.readiness(0, 0, None, std::time::Duration::from_millis(1));
    producer.stop();
    pull.join().unwrap();
}

fn careless() {
    let device = Device::new();
    let other = device.spawn(Device::run);
    let signal = Arc::new(Signal::default());
    if device.permits.chunk(&signal, 0, None).is_err() {
        while signal.take_granted().is_empty() {
            signal.wait(signal.events(), None);
        }
        drop(device.permits.granted(0));
    }
    other.join().unwrap();
}

fn keeping() {
    let device = Device::new();
    let others = [device.spawn(|device| gives_up(device, false)), device.spawn(Device::run)];
    device.run();
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Sets a result in a thread of its own, and tells of it: whether it was accepted.
fn resolves(cell: &Arc<Cell<u32>>, result: Result<u32, Error>) -> JoinHandle<bool> {
    let cell = cell.clone();
    thread::spawn(move || cell.resolve(result).map(|wake| cell.wake(wake)).is_ok())
}

fn one_result() {
    let cell = Arc::new(Cell::new());
    let setters = [resolves(&cell, Ok(1)), resolves(&cell, Err(Error))];
    let result = cell.wait(None).expect("nobody else takes it");
    let accepted = setters.map(|setter| setter.join().unwrap());
    assert_eq!(accepted, [result.is_ok(), result.is_err()]);
    assert!(cell.is_resolved() && cell.take().is_none());
}

fn chained() {
    let cells = [(); 2].map(|()| Arc::new(Cell::new()));
    let waiting = cells.each_ref().map(|cell| {
        let cell = cell.clone();
        thread::spawn(move || cell.wait(None))
    });
    let wakes = cells.each_ref().map(|cell| cell.resolve(Ok(1)).ok().expect("nobody else sets it"));
    let link = |then: Option<Then>, (cell, wake): (Arc<Cell<_>>, Wake<_>)| match wake {
        Wake::Thread => Some(Box::new(move || cell.wake_thread(then)) as Then),
        _ => then,
    };
    cells.into_iter().zip(wakes).rev().fold(None, link).into_iter().for_each(|then| then());
    for thread in waiting {
        assert!(matches!(thread.join().unwrap(), Some(Ok(1))));
    }
}

fn dropping() {
    let cell = Arc::new(Cell::new());
    let setter = resolves(&cell, Ok(1));
    let dropped = cell.abandon().is_some();
    assert_eq!(setter.join().unwrap(), dropped, "a result that was accepted is given to the ticket");
}

fn calling() {
    let cell = Arc::new(Cell::new());
    let setters = [resolves(&cell, Ok(1)), resolves(&cell, Err(Error))];
    let called = Arc::new(AtomicUsize::new(0));
    let counts = called.clone();
    let callback = move |_| {
        counts.fetch_add(1, SeqCst);
    };
    if let Some((callback, result)) = cell.on_done(Box::new(callback)) {
        callback(result);
    }
    let accepted = setters.map(|setter| usize::from(setter.join().unwrap()));
    assert_eq!((accepted[0] + accepted[1], called.load(SeqCst)), (1, 1));
}

fn untold() {
    let cell = Arc::new(Cell::new());
    let silent = cell.clone();
    let setter = thread::spawn(move || silent.resolve(Ok(1)).is_ok());
    cell.wait(None).unwrap().unwrap();
    setter.join().unwrap();
}
