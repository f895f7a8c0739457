//! Tickets of jobs that wait for the test, and times by a clock that the test sets.

use super::batch::begin;
use super::deadlines::Clock;
use super::entry::{Entry, Holds};
use super::line::{Begun, Line, whole};
use super::waiting::{PlaceInLine, Taker, Waiting};
use super::*;
use crate::scheduler::cell::Cell;
use crate::scheduler::permits::lock;
use crate::scheduler::scale::BatchLimits;
use crate::scheduler::stats::TicketCounters;
use crate::scheduler::tests::{FOUR_SECONDS, MICROSECOND, Nothing, UNMEASURED, light, options, scheduler};
use crate::scheduler::{CancelToken, Checks, WorkOptions};
use crate::{Backend, Reference};
use std::any::TypeId;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Wake};
use std::thread::scope;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A time, and how often a clock was asked for the time.
#[derive(Clone)]
struct Time(Arc<(Mutex<(Instant, usize)>, Condvar)>);

impl Time {
    fn new() -> Time {
        Time(Arc::new((Mutex::new((Instant::now(), 0)), Condvar::new())))
    }

    fn clock(&self) -> Clock {
        let time = self.clone();
        Box::new(move || {
            let mut state = lock(&time.0.0);
            state.1 += 1;
            time.0.1.notify_all();
            state.0
        })
    }

    fn now(&self) -> Instant {
        lock(&self.0.0).0
    }

    fn jump(&self, ahead: Duration) {
        lock(&self.0.0).0 += ahead;
    }

    /// Waits until the clock was asked `times` more times.
    fn wait_for(&self, times: usize) {
        let state = lock(&self.0.0);
        let until = state.1 + times;
        let waited = self.0.1.wait_timeout_while(state, SOON, |state| state.1 < until).unwrap();
        assert!(!waited.1.timed_out(), "the clock is asked {times} times");
    }
}

/// A job that is done when the gate is open.
struct Gated(Arc<(Mutex<bool>, Condvar)>);

impl Queued for Gated {
    type Out = ();
    const BY_ALL_THREADS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(light(UNMEASURED))
    }
    fn run(
        _: &Scheduler,
        jobs: Vec<Gated>,
        _: IsWanted<'_>,
        sink: &mut dyn FnMut(usize, Result<(), Error>),
    ) -> Result<(), Error> {
        let (gate, opened) = &*jobs[0].0;
        drop(opened.wait_while(lock(gate), |is_open| !*is_open));
        (0..jobs.len()).for_each(|job| sink(job, Ok(())));
        Ok(())
    }
    fn discard(_: ()) {}
}

/// A set of jobs that is done when the gate is open.
struct GatedSet(Gated);

impl Queued for GatedSet {
    type Out = ();
    const BY_ALL_THREADS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        self.0.kind()
    }
    fn run(
        scheduler: &Scheduler,
        sets: Vec<Self>,
        is_wanted: IsWanted<'_>,
        sink: &mut dyn FnMut(usize, Result<(), Error>),
    ) -> Result<(), Error> {
        Gated::run(scheduler, sets.into_iter().map(|set| set.0).collect(), is_wanted, sink)
    }
    fn discard(_: ()) {}
}

/// A queue with a clock of its own, and the gate of its jobs.
struct Gatekeeper {
    queue: Queue,
    gate: Arc<(Mutex<bool>, Condvar)>,
    time: Time,
}

impl Gatekeeper {
    fn new(capacity: usize, max_delay: Duration) -> Gatekeeper {
        Gatekeeper::with_threads(1, capacity, max_delay)
    }

    fn with_threads(threads: usize, capacity: usize, max_delay: Duration) -> Gatekeeper {
        let time = Time::new();
        let queue = Queue::with_clock(Arc::new(scheduler(threads)), (capacity, 1000), max_delay, time.clock());
        Gatekeeper { queue, gate: Arc::default(), time }
    }

    fn open(&self) {
        *lock(&self.gate.0) = true;
        self.gate.1.notify_all();
    }

    fn submit(&self) -> Ticket<()> {
        self.queue.submit(&WorkOptions::default(), Size { jobs: 1, bytes: 1 }, || Gated(self.gate.clone())).unwrap()
    }

    /// Submits a job for work that this token cancels.
    fn submit_with(&self, token: &CancelToken) -> Result<Ticket<()>, Error> {
        let work = WorkOptions { cancel: Some(token.clone()), ..WorkOptions::default() };
        self.queue.submit(&work, Size { jobs: 1, bytes: 1 }, || Gated(self.gate.clone()))
    }

    fn submit_set(&self, jobs: usize) -> Ticket<()> {
        let size = Size { jobs, bytes: 10 };
        self.queue.submit(&WorkOptions::default(), size, || GatedSet(Gated(self.gate.clone()))).unwrap()
    }

    /// Submits jobs with these deadlines, counted from now. Gives the results that their callbacks get, each with the job's number.
    fn submit_all(&self, deadlines: &[Option<Duration>]) -> Receiver<(usize, Result<(), Error>)> {
        let (sender, results) = channel();
        for (number, deadline) in deadlines.iter().enumerate() {
            let ticket = self.submit();
            let ticket = match deadline {
                Some(after) => ticket.deadline(self.time.now() + *after),
                None => ticket,
            };
            let sender = sender.clone();
            ticket.on_done(move |result| sender.send((number, result)).unwrap());
        }
        results
    }
}

#[test]
fn time_that_stands_still_or_jumps_ends_each_ticket_once() {
    let keeper = Gatekeeper::new(1000, Duration::ZERO);
    let near = |i: u64| Some(Duration::from_millis(1 + i));
    let far = Some(2 * CENTURY);
    let deadlines: Vec<_> = (0..40).map(|i| [near(i), None, Some(CENTURY), far][i as usize % 4]).collect();
    let results = keeper.submit_all(&deadlines);

    // The thread that watches wakes up every millisecond, and finds that none went by.
    keeper.time.wait_for(5);
    assert!(results.try_recv().is_err() && keeper.queue.stats().expired == 0, "no time went by");

    keeper.time.jump(CENTURY);
    let mut early: Vec<_> = (0..20).map(|_| results.recv_timeout(SOON).unwrap()).collect();
    early.sort_by_key(|(number, _)| *number);
    let expected: Vec<_> = (0..40).step_by(2).map(|number| (number, Err(Error::DeadlineExceeded))).collect();
    assert_eq!(early, expected);
    // A job that is submitted now has the new time.
    assert_eq!(keeper.submit().deadline(keeper.time.now() - CENTURY).wait(), Err(Error::DeadlineExceeded));
    let late = keeper.submit().deadline(keeper.time.now() + CENTURY);

    keeper.open();
    assert_eq!(late.wait(), Ok(()));
    assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
    assert_eq!((keeper.queue.stats().expired, keeper.queue.stats().queued), (21, 0));
    keeper.time.jump(2 * CENTURY);
    drop(keeper);
    let mut rest: Vec<_> = results.iter().collect();
    rest.sort_by_key(|(number, _)| *number);
    let expected: Vec<_> = (1..40).step_by(2).map(|number| (number, Ok(()))).collect();
    assert_eq!(rest, expected, "nobody has a second result");
}

/// The thread that watches the deadlines sleeps meanwhile.
#[test]
fn a_result_that_comes_after_the_deadline_is_not_given() {
    let keeper = Gatekeeper::new(1, Duration::ZERO);
    let late = keeper.submit().deadline(keeper.time.now() + CENTURY);
    // There is room when the job has begun.
    keeper.queue.ready().wait().unwrap();
    let passed = keeper.submit().deadline(keeper.time.now());
    // The thread looks at the clock, and sleeps for a century.
    std::thread::sleep(Duration::from_millis(20));
    keeper.time.jump(CENTURY);
    keeper.open();
    assert_eq!(late.wait(), Err(Error::DeadlineExceeded));
    assert_eq!(passed.wait(), Err(Error::DeadlineExceeded));
    assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
    assert_eq!(keeper.queue.stats().expired, 2);
}

#[test]
fn time_that_jumps_while_results_come_ends_each_ticket_once() {
    const ROUNDS: u64 = if cfg!(miri) { 3 } else { 200 };
    let mut expired = 0;
    for round in 0..ROUNDS {
        let keeper = Gatekeeper::new(1000, Duration::ZERO);
        let deadlines: Vec<_> = (0..8).map(|i| Some(Duration::from_millis(1 + (i + round) % 2))).collect();
        let results = keeper.submit_all(&deadlines);
        scope(|scope| {
            scope.spawn(|| keeper.open());
            scope.spawn(|| keeper.time.jump(SOON));
        });
        assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
        // When the queue is gone, so are its threads.
        let shared = keeper.queue.0.clone();
        drop(keeper);
        let counted = shared.counters.stats().expired;
        drop(shared);
        let mut all: Vec<_> = results.iter().collect();
        all.sort_by_key(|(number, _)| *number);
        assert!(all.iter().map(|(number, _)| *number).eq(0..8), "each ticket has one result: {all:?}");
        let errors = all.into_iter().filter_map(|(_, result)| result.err());
        assert_eq!(errors.inspect(|why| assert_eq!(why, &Error::DeadlineExceeded)).count() as u64, counted);
        expired += counted;
    }
    println!("checked: {expired} of {} tickets expired as their results came", 8 * ROUNDS);
}

/// Sets and single jobs, by two callers each: done, dropped, cancelled, or with a deadline that passes meanwhile.
#[test]
#[cfg_attr(miri, ignore = "Miri takes minutes")]
fn sets_and_single_jobs_have_one_result_each() {
    const ROUNDS: usize = 200;
    let mut done = 0;
    for round in 0..ROUNDS {
        let keeper = Gatekeeper::new(1000, Duration::ZERO);
        let (sender, results) = channel();
        let call = |caller: usize| {
            for number in 0..8 {
                let ticket = match (number + caller + round) / 4 % 2 {
                    0 => keeper.submit(),
                    _ => keeper.submit_set(1 + number),
                };
                let ticket = match number % 4 {
                    0 => ticket,
                    1 => continue,
                    2 => {
                        let handle = ticket.canceller();
                        let sender = sender.clone();
                        ticket.on_done(move |result| sender.send((caller, number, result.is_ok())).unwrap());
                        handle.cancel();
                        continue;
                    }
                    _ => ticket.deadline(keeper.time.now() + Duration::from_millis(1)),
                };
                let sender = sender.clone();
                ticket.on_done(move |result| sender.send((caller, number, result.is_ok())).unwrap());
            }
        };
        scope(|scope| {
            scope.spawn(|| call(0));
            scope.spawn(|| call(1));
            scope.spawn(|| keeper.open());
            scope.spawn(|| keeper.time.jump(SOON));
        });
        assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
        let state = lock(&keeper.queue.0.state);
        assert_eq!((state.jobs, state.bytes, state.queued, state.running, state.taken), (0, 0, 0, 0, 0));
        assert!(state.lines.iter().all(|line| (line.entries.jobs(), line.running, line.taken) == (0, 0, 0)));
        drop(state);
        drop((keeper, sender));
        let mut all: Vec<_> = results.iter().collect();
        all.sort_unstable();
        let expected = (0..2).flat_map(|caller| [0, 2, 3, 4, 6, 7].map(|number| (caller, number)));
        assert!(all.iter().map(|(caller, number, _)| (*caller, *number)).eq(expected), "{all:?}");
        assert!(all.iter().all(|(_, number, is_done)| *is_done || number % 4 != 0), "{all:?}");
        done += all.iter().filter(|(.., is_done)| *is_done).count();
    }
    println!("checked: {done} of {} tickets were done", 16 * ROUNDS);
}

/// A test that fails must not wait for its jobs.
impl Drop for Gatekeeper {
    fn drop(&mut self) {
        self.open();
    }
}

/// Records whether there is a result when it is woken.
struct Looks(Arc<dyn Holds<()>>, AtomicBool);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.cell().is_resolved(), SeqCst);
    }
}

/// Otherwise a queue that is drained would be quiet too early.
#[test]
fn a_job_leaves_the_queue_when_its_result_is_set() {
    let keeper = Gatekeeper::new(1, Duration::ZERO);
    let running = keeper.submit();
    keeper.queue.ready().wait().unwrap();
    let waiting = keeper.submit();
    let looks = Arc::new(Looks(waiting.entry.clone(), AtomicBool::new(false)));
    let mut room = pin!(keeper.queue.ready());
    assert!(room.as_mut().poll(&mut Context::from_waker(&looks.clone().into())).is_pending());
    waiting.canceller().cancel();
    assert!(looks.1.load(SeqCst) && waiting.wait().is_err());
    keeper.open();
    assert_eq!(running.wait(), Ok(()));
}

#[test]
fn a_job_waits_for_others_no_longer_than_max_delay() {
    const DELAY: Duration = Duration::from_millis(1);
    let keeper = Gatekeeper::new(1000, DELAY);
    keeper.open();
    // How many jobs pay is known after the first batch.
    assert_eq!(keeper.submit().wait(), Ok(()));
    let few = keeper.submit_all(&[None; 5]);
    keeper.time.wait_for(3);
    assert_eq!((few.try_recv().is_err(), keeper.queue.stats().queued), (true, 5), "no time went by");
    keeper.time.jump(DELAY);
    assert!((0..5).all(|_| few.recv_timeout(SOON).is_ok_and(|(_, result)| result.is_ok())));
    // Jobs that are enough for a batch do not wait, nor does the thread that waits for one compute it.
    let enough: Vec<_> = (0..64).map(|_| keeper.submit()).collect();
    assert!(enough.into_iter().all(|ticket| ticket.wait() == Ok(())));
    // A queue that is drained waits for no others.
    let last = keeper.submit_all(&[None; 2]);
    assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
    assert_eq!(last.try_iter().filter(|(_, result)| result.is_ok()).count(), 2);
    // By powers of two: the first job, the last two (together or not), the five, and twice 32.
    let sizes = keeper.queue.stats().batch_sizes;
    assert_eq!((sizes[0] + 2 * sizes[1], &sizes[2..]), (3, &[1, 0, 0, 2][..]));
}

/// Sets share batches as jobs do. Where the host alone computes, all of its threads run a batch of sets, which is larger by their number.
#[test]
fn sets_share_batches_of_all_threads() {
    let keeper = Gatekeeper::with_threads(2, 1000, Duration::ZERO);
    keeper.open();
    // How many jobs pay is known after the first batch.
    assert_eq!(keeper.submit_set(1).wait(), Ok(()));
    // A batch runs until it is counted, after its results are there.
    let wait_for = |running: usize| {
        while keeper.queue.stats().running != running {
            std::thread::yield_now();
        }
    };
    wait_for(0);
    *lock(&keeper.gate.0) = false;
    // Each is a batch of its own: the first one runs before the second one comes.
    let running = [1, 2].map(|batches| {
        let ticket = keeper.submit_set(2);
        wait_for(batches);
        ticket
    });
    // A thread's batch has 32 jobs. A set of more than both threads' is a batch of its own.
    let waiting = [10, 20, 20, 15, 100, 1].map(|jobs| keeper.submit_set(jobs));
    keeper.open();
    assert!(running.into_iter().chain(waiting).all(|ticket| ticket.wait() == Ok(())));
    wait_for(0);
    // By powers of two: the first set and the last one, the two that ran, 15, 50, and 100 jobs.
    assert_eq!(keeper.queue.stats().batch_sizes, [2, 2, 0, 1, 0, 1, 1]);
}

/// Where the devices are not named, others are initialised for about a second of work. A job that takes longer is a batch by itself: a
/// batch of no jobs would leave all of them in the queue.
#[test]
fn a_slow_job_is_a_batch() {
    let host: Arc<dyn Backend> = Arc::new(Reference);
    let device = host.devices().unwrap().remove(0);
    let scheduler = Scheduler::new(
        vec![(host, device)],
        Some(Arc::new(Vec::new)),
        (options(2, 1 << 20), WorkOptions::default()),
        Arc::new(|_, _| Arc::new(Nothing)),
        Default::default(),
    );
    let most = |op| scheduler.batch_limits(light(op)).most;
    assert_eq!([MICROSECOND, FOUR_SECONDS].map(most), [1_000_000, 1]);
}

/// A batch with more checks has fewer jobs, so that it does not take longer than the batches of other lines.
#[test]
fn batches_with_more_checks_have_fewer_jobs() {
    let limits = |redundant| {
        let checks = Checks { redundant, ..Checks::default() };
        let scheduler = scheduler(2).with(WorkOptions { checks, ..WorkOptions::default() });
        [MICROSECOND, FOUR_SECONDS].map(|op| scheduler.batch_limits(light(op)).of_thread)
    };
    assert_eq!(limits(false), [Some(1000), Some(32)]);
    assert_eq!(limits(true), [Some(500), Some(16)]);
}

/// A line has the limits of its checks.
#[test]
fn a_line_of_redundant_jobs_has_limits_of_its_own() {
    let keeper = Gatekeeper::new(1000, Duration::ZERO);
    keeper.open();
    let checks = Checks { redundant: true, ..Checks::default() };
    let careful = WorkOptions { checks, ..WorkOptions::default() };
    assert_eq!(keeper.submit().wait(), Ok(()));
    let ticket = keeper.queue.submit(&careful, Size { jobs: 1, bytes: 1 }, || Gated(keeper.gate.clone())).unwrap();
    // The thread that waits would compute the job itself.
    while !ticket.is_done() {
        std::thread::yield_now();
    }
    assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
    let state = lock(&keeper.queue.0.state);
    let of = |redundant: bool| {
        let line = state.lines.iter().find(|line| line.id.1.redundant == redundant).unwrap();
        line.limits.of_thread.unwrap()
    };
    assert_eq!((of(true), state.lines.len()), (16, 2));
}

/// A callback of a job whose work was cancelled may wait for a job of the same batch.
#[test]
fn a_callback_of_cancelled_work_waits_for_a_job_of_its_batch() {
    let keeper = Gatekeeper::new(1000, Duration::ZERO);
    let running = keeper.submit();
    keeper.queue.ready().wait().unwrap();
    while keeper.queue.stats().running == 0 {
        std::thread::yield_now();
    }
    let (token, (sender, results)) = (CancelToken::default(), channel());
    let mut other = keeper.submit();
    keeper.submit_with(&token).unwrap().on_done(move |result| {
        // A time far below that of a test that hangs.
        sender.send((result, other.wait_timeout(Duration::from_secs(5)))).unwrap();
    });
    token.cancel();
    keeper.open();
    assert_eq!(results.recv_timeout(SOON), Ok((Err(CancelToken::error()), Some(Ok(())))));
    assert_eq!(running.wait(), Ok(()));
    assert_eq!(keeper.queue.drain(Instant::now() + SOON), Ok(()));
    let stats = keeper.queue.stats();
    assert_eq!((stats.cancelled, stats.queued, stats.queued_bytes), (1, 0, 0));
}

/// A line of jobs that threads on these cores submitted one after the other, and its entries.
fn line_of_cores(cores: &[usize]) -> (Waiting, Vec<Arc<Entry<Gated>>>) {
    let mut line = Waiting::default();
    let entry = |core: &usize| {
        Arc::new(Entry {
            job: Mutex::new(Some(Gated(Arc::default()))),
            cell: Cell::new(),
            place: PlaceInLine::new(*core),
            kind: None,
            checks: Checks::default(),
            cancel: None,
            size: Size { jobs: 1, bytes: 0 },
            since: Instant::now(),
            deadline: Mutex::new(None),
            shared: Weak::new(),
        })
    };
    let entries: Vec<_> = cores.iter().map(entry).collect();
    entries.iter().for_each(|entry| line.push(entry.clone(), 1, entry.since));
    (line, entries)
}

#[test]
fn a_batch_begins_with_the_jobs_of_its_core() {
    let (mut line, entries) = line_of_cores(&[1, 0, 1, 0, 2, 0, 0]);
    let mut left: Vec<usize> = (0..entries.len()).collect();
    let mut take = |most: usize, core: usize, in_flight: usize| {
        let (batch, _) = line.take(most, Taker { core, in_flight });
        let Begun { tickets, .. } = begin::<Gated>(batch, &TicketCounters::default());
        let taken = left.extract_if(.., |number| lock(&entries[*number].job).is_none()).collect::<Vec<_>>();
        assert_eq!((tickets, line.len(), line.jobs()), (taken.len(), left.len(), left.len()));
        taken
    };
    assert_eq!(take(2, 0, 7), [1, 3]);
    // Job 5 came five after job 0, and job 6 six: within twice three, and beyond twice two.
    assert_eq!(take(1, 0, 3), [5]);
    assert_eq!(take(1, 0, 2), [0]);
    // Job 6 came four after job 2: twice two.
    assert_eq!(take(1, 0, 2), [6]);
    // A core without jobs takes the oldest, and so does one whose jobs do not fill its batch.
    assert_eq!(take(1, 7, 9), [2]);
    assert_eq!(take(9, 0, 9), [4]);
    assert!(line.take(1, Taker { core: 0, in_flight: 9 }).0.is_empty() && line.since().is_none());
}

#[test]
fn a_job_is_withdrawn_from_the_jobs_of_its_core() {
    let (mut line, entries) = line_of_cores(&[0, 1, 0, 1]);
    assert_eq!(line.take(1, Taker { core: 1, in_flight: 4 }).1, 1);
    // The job of the batch is no longer in the line.
    let in_line: Vec<_> = entries.iter().map(|entry| line.withdraw(1, &entry.place)).collect();
    assert_eq!((in_line, line.len(), line.jobs()), (vec![true, false, true, true], 3, 0));
    assert!(line.take(4, Taker { core: 0, in_flight: 4 }).0.is_empty());
    assert_eq!(line.len(), 0);
    let (mut line, entries) = line_of_cores(&[0, 1, 0]);
    assert!(line.withdraw(1, &entries[0].place));
    line.compact();
    assert_eq!((line.len(), line.jobs(), line.since()), (2, 2, Some(entries[1].since)));
    assert!(line.withdraw(1, &entries[2].place));
    line.compact();
    assert_eq!((line.len(), line.jobs(), line.since()), (1, 1, Some(entries[1].since)));
}

#[test]
fn batches_of_a_thread_fill_lanes() {
    for (jobs, lanes, batch) in
        [(0, 16, 0), (1, 16, 1), (15, 16, 15), (16, 16, 16), (22, 16, 16), (48, 16, 48), (22, 1, 22)]
    {
        assert_eq!(whole(jobs, lanes), batch, "{jobs} jobs, {lanes} lanes");
    }
}

/// Batches, two at most, that a line may begin with: on a GPU a second one is full, or has a third of all jobs at least.
#[test]
fn jobs_wait_for_a_fair_share_while_a_gpu_works() {
    let id = (Some(Kind::sha256(0)), Checks::default(), TypeId::of::<Gated>());
    for (of_thread, queued, running, taken, may) in [
        (None, 0, 0, 0, false),
        (None, 1, 0, 0, true),
        (None, 32, 1, 68, false),
        (None, 34, 1, 66, true),
        (None, 90, 2, 10, false),
        (None, 999, 1, 1_000_000, false),
        (None, 1000, 1, 1_000_000, true),
        (Some(1), 1, 1, 99, true),
        (Some(1), 90, 2, 10, false),
    ] {
        let limits = BatchLimits { most: 1000, of_thread, lanes: 1, slots: 2, devices: 1 };
        let (entries, _) = line_of_cores(&vec![0; queued]);
        let line = Line { id, limits, running, taken, entries, by_all_threads: false, begin: begin::<Gated> };
        assert_eq!(line.may_begin(), may, "{queued} wait, {running} batches of {taken} jobs run");
    }
}
