//! Tickets: many callers bring one job each, and their jobs share batches.
//!
//! A submitted job waits in the line of its kind. When a device has a free slot, dispatchers, which are threads of the engine, take jobs of one line
//! and run them as a call of the scheduler. If the engine is idle and no delay is set, they take one job at once, otherwise the jobs that came while
//! the devices were busy. Lines take turns. Results go to the jobs' [`Ticket`]s first, and waiters are notified afterwards, when the slot is free
//! again: a callback may wait for any other ticket.

use super::cell::{Callback, Cell, Resolved, Then, Wake};
use super::deadlines::{Clock, Deadlines, Expires, When};
use super::permits::lock;
use super::stats::{Counter, TicketCounters, TicketStats};
use super::worker::BatchLimits;
use super::{CancelToken, Checks, Scheduler, WorkOptions};
use crate::scheme::Kind;
use crate::{Error, Process};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{Builder, JoinHandle, current, yield_now};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;
mod waiting;

use waiting::{Entries, PlaceInLine, Taker, Waiting, core_among};

/// The most jobs of a line's first batch: how many pay is known afterwards.
const FIRST_BATCH: usize = 256;

/// Threads of which each wakes the next, so that they run one after the other. If a dispatcher woke them all, each would take the dispatcher's core
/// from it. (On two cores, 256 callers that verify 128s: 51,000/s, without chains 43,000/s.) A thread that is stopped holds the others of its chain
/// up.
const CHAIN: usize = 8;

/// Withdrawn jobs leave their entries in the line until these are more than this number, and more than half of the line.
const FEW: usize = 64;

/// A job that takes no more than one part in so many of the queue's capacity is small.
const SMALL: u64 = 1024;

/// Whether anybody still wants the results of a batch. Once nobody does, this stays so.
pub type IsWanted<'w> = &'w (dyn Fn() -> bool + Sync);

/// A job that waits for its turn. It owns all data that it needs.
pub trait Queued: Send + Sized + 'static {
    /// The result of the job.
    type Out: Send + 'static;
    /// Whether all threads of the host run a batch together, where the host alone computes. If not, each thread runs batches of its own.
    const BY_ALL_THREADS: bool;
    /// The kind of program that does the job, or why none can.
    fn kind(&self) -> Result<Kind, Error>;
    /// Runs jobs of one kind. `sink` gets each job's index and result, in order; an error is that of all jobs whose result it did not get. A job that
    /// consists of many ends early once the batch is not wanted any more.
    fn run(
        scheduler: &Scheduler,
        jobs: Vec<Self>,
        is_wanted: IsWanted<'_>,
        sink: &mut dyn FnMut(usize, Result<Self::Out, Error>),
    ) -> Result<(), Error>;
    /// Discards a result that nobody gets.
    fn discard(out: Self::Out);
}

/// The share of the queue's capacity that a job takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The jobs that it counts for.
    pub jobs: usize,
    /// Bytes that it owns.
    pub bytes: u64,
}

/// A line's jobs have one kind and the same checks, and one type runs them.
type LineId = (Option<Kind>, Checks, TypeId);
/// An entry that has its result, and who waits for it.
type Waiter<J> = (Arc<Entry<J>>, Wake<<J as Queued>::Out>);

/// A job and its result.
struct Entry<J: Queued> {
    /// The job. Whoever takes it runs it, or drops it, and counts it out of the queue's capacity.
    job: Mutex<Option<J>>,
    cell: Cell<J::Out>,
    place: PlaceInLine,
    /// `None` for a job that no program does.
    kind: Option<Kind>,
    checks: Checks,
    cancel: Option<CancelToken>,
    size: Size,
    since: Instant,
    /// No result that comes at this time or later counts.
    deadline: Mutex<Option<Instant>>,
    shared: Weak<Shared>,
}

impl<J: Queued> Entry<J> {
    fn take(&self) -> Option<J> {
        lock(&self.job).take()
    }

    fn line_id(&self) -> LineId {
        (self.kind, self.checks, TypeId::of::<J>())
    }

    /// Sets the result, unless the ticket has one, and gives the waiter to notify. A result that comes after the deadline is not given, because the
    /// thread that watches the deadlines may be late.
    fn resolve(&self, result: Result<J::Out, Error>) -> Wake<J::Out> {
        if !self.is_late() {
            return waiter_of::<J>(self.cell.resolve(result));
        }
        self.discard(result);
        waiter_of::<J>(self.set_error(Error::DeadlineExceeded, |counters| &counters.expired))
    }

    /// Whether the caller has cancelled the job's work.
    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    fn is_late(&self) -> bool {
        let deadline = *lock(&self.deadline);
        deadline.is_some_and(|at| self.shared.upgrade().is_some_and(|shared| at <= (shared.clock)()))
    }

    /// Sets an error as the result, unless there is a result, and counts the error.
    fn set_error(&self, why: Error, counter: fn(&TicketCounters) -> &Counter) -> Resolved<J::Out> {
        let resolved = self.cell.resolve(Err(why));
        if let (Ok(_), Some(shared)) = (&resolved, self.shared.upgrade()) {
            counter(&shared.counters).add(1);
        }
        resolved
    }
}

/// The waiter to notify. A result that comes too late is discarded.
fn waiter_of<J: Queued>(resolved: Resolved<J::Out>) -> Wake<J::Out> {
    resolved.unwrap_or_else(|late| {
        quietly(|| drop(late.map(J::discard)));
        Wake::Nobody
    })
}

/// An entry, as its ticket sees it.
trait Holds<T>: Expires {
    fn cell(&self) -> &Cell<T>;
    fn shared(&self) -> Option<Arc<Shared>>;
    /// The jobs that it counts for.
    fn jobs(&self) -> usize;
    /// Takes the job out of the queue; `false` if it has begun.
    fn withdraw(&self) -> bool;
    /// Runs the job on this thread and sets its result, unless the job has begun.
    fn run_here(&self, shared: &Shared);
    fn set_deadline(&self, at: Instant);
    fn discard(&self, result: Result<T, Error>);
    fn as_expiring(self: Arc<Self>) -> Weak<dyn Expires>;
}

impl<J: Queued> Holds<J::Out> for Entry<J> {
    fn cell(&self) -> &Cell<J::Out> {
        &self.cell
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    fn jobs(&self) -> usize {
        self.size.jobs
    }

    fn withdraw(&self) -> bool {
        let Some(job) = self.take() else { return false };
        if let Some(shared) = self.shared() {
            shared.left(self.line_id(), self.size, &self.place);
        }
        quietly(|| drop(job));
        true
    }

    fn run_here(&self, shared: &Shared) {
        if self.is_late() {
            return self.expire();
        }
        if self.is_cancelled() {
            return self.cancel();
        }
        let Some(job) = self.take() else { return };
        shared.left(self.line_id(), self.size, &self.place);
        let began = Instant::now();
        let mut result = None;
        let is_wanted = || !self.cell.is_resolved();
        let done = shared.with_checks(self.checks, |scheduler| {
            J::run(scheduler, vec![job], &is_wanted, &mut |_, out| result = Some(out))
        });
        shared.counters.batch(self.size.jobs, 1, began.elapsed());
        shared.counters.waited(&[began - self.since]);
        let result = done.err().map(Err).or(result).unwrap_or_else(|| Err(cancelled(NO_RESULT)));
        // This thread holds the ticket, so there is nobody to wake. A task that has polled the ticket no longer wants its result.
        let wake = self.resolve(result);
        quietly(|| drop(wake));
    }

    fn set_deadline(&self, at: Instant) {
        *lock(&self.deadline) = Some(at);
    }

    fn discard(&self, result: Result<J::Out, Error>) {
        quietly(|| drop(result.map(J::discard)));
    }

    fn as_expiring(self: Arc<Self>) -> Weak<dyn Expires> {
        Arc::downgrade(&self) as Weak<dyn Expires>
    }
}

impl<J: Queued> Expires for Entry<J> {
    fn expire(&self) {
        self.end(Error::DeadlineExceeded, |counters| &counters.expired);
    }

    fn cancel(&self) {
        self.end(cancelled("its caller wants no result"), |counters| &counters.cancelled);
    }
}

impl<J: Queued> Entry<J> {
    /// Sets an error as the result, unless there is a result. The job does not begin any more. It leaves the queue when the result is set, so that
    /// whoever waits for an empty queue finds all results.
    fn end(&self, why: Error, counter: fn(&TicketCounters) -> &Counter) {
        let job = self.take();
        let resolved = self.set_error(why, counter);
        if let (Some(_), Some(shared)) = (&job, self.shared()) {
            shared.left(self.line_id(), self.size, &self.place);
        }
        quietly(|| drop(job));
        if let Ok(wake) = resolved {
            quietly(|| self.cell.wake(wake));
        }
    }
}

/// Runs code of others, or drops their values. A panic there is ignored.
fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// The jobs of one line that wait.
struct Line {
    id: LineId,
    limits: BatchLimits,
    /// The line's batches that run, and their jobs.
    running: usize,
    taken: usize,
    /// Entries in the line whose job was withdrawn.
    withdrawn: usize,
    entries: Box<dyn Entries>,
}

/// How long jobs may wait for others, and what time it is.
type Patience = (Duration, Instant);

impl Line {
    /// Whether the line has jobs, and a batch of them may begin. While a GPU does other batches of the line, jobs wait until they are a full batch,
    /// or a fair share of all jobs: small batches would keep the GPU from large ones. (An H200 signs by 128f for 4,096 callers 135,000 times a
    /// second, without this rule 121,000 times, and 95,000 times if four batches run at a time.)
    fn may_begin(&self) -> bool {
        let (jobs, BatchLimits { most, of_thread, slots, .. }) = (self.entries.jobs(), self.limits);
        let is_share =
            self.running < self.devices() || jobs >= most || jobs.saturating_mul(self.running + 2) >= jobs + self.taken;
        let is_of_thread = of_thread.is_some() && !self.entries.by_all_threads();
        self.entries.len() > 0 && self.running < slots && (is_share || is_of_thread)
    }

    /// Devices of which a batch goes to one. A batch that all threads do goes to all devices, too.
    fn devices(&self) -> usize {
        if self.entries.by_all_threads() { 1 } else { self.limits.devices }
    }

    /// Jobs of a batch that one of the host's threads does, or all do together; see [`BatchLimits::of_thread`].
    fn of_threads(&self) -> Option<usize> {
        let threads = if self.entries.by_all_threads() { self.limits.slots } else { 1 };
        self.limits.of_thread.map(|few| few.saturating_mul(threads))
    }

    /// This thread, as the taker of the line's next batch. Only where each of the host's threads runs batches of its own do jobs have cores.
    fn taker(&self, slots: usize) -> Taker {
        let has_cores = self.limits.of_thread.is_some() && !self.entries.by_all_threads();
        Taker { core: if has_cores { core_among(slots) } else { 0 }, in_flight: self.entries.jobs() + self.taken }
    }

    /// How long the line's jobs still wait for others; `None` if they may begin.
    fn waits(&self, (max_delay, now): Patience) -> Option<Duration> {
        let most = self.limits.most;
        let is_enough = self.entries.jobs() >= self.of_threads().map_or(most, |few| most.min(few));
        let since = self.entries.since().filter(|_| !is_enough)?;
        max_delay.checked_sub(now - since).filter(|rest| !rest.is_zero())
    }
}

/// Entries that were taken out of a line, and their jobs.
struct TakenJobs<J: Queued> {
    line_id: LineId,
    entries: Vec<Arc<Entry<J>>>,
    /// Jobs that the entries counted for in the line.
    size: usize,
    /// The jobs of all entries, once they are taken.
    jobs: Vec<J>,
    /// The entries whose work was cancelled before their jobs were taken, and their waiters.
    cancelled: Vec<Waiter<J>>,
}

/// Notifies those who wait for results, when the slot of their batch is free again.
struct Tell {
    /// Whether there are callbacks or tasks' wakers.
    runs_code_of_others: bool,
    tell: Box<dyn FnOnce()>,
}

trait TakenBatch: Send {
    fn line_id(&self) -> LineId;
    /// The number of tickets.
    fn len(&self) -> usize;
    /// The jobs that the entries counted for in the line, those that were withdrawn since among them.
    fn jobs(&self) -> usize;
    /// Takes the jobs of the entries, without those that are withdrawn at the same time. Gives the share of the queue's capacity that they take.
    fn take_jobs(&mut self, counters: &TicketCounters) -> Size;
    /// Runs the jobs, and sets their results.
    fn run(self: Box<Self>, shared: &Shared) -> Tell;
    /// Sets an error as the result of all jobs.
    fn refuse(self: Box<Self>, why: Error) -> Tell;
}

impl<J: Queued> TakenBatch for TakenJobs<J> {
    fn line_id(&self) -> LineId {
        self.line_id
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn jobs(&self) -> usize {
        self.size
    }

    fn take_jobs(&mut self, counters: &TicketCounters) -> Size {
        let (now, mut size) = (Instant::now(), Size { jobs: 0, bytes: 0 });
        let mut waits = Vec::with_capacity(self.entries.len());
        let mut entries = Vec::with_capacity(self.entries.len());
        self.jobs.reserve_exact(self.entries.len());
        for entry in self.entries.drain(..) {
            let job = entry.take();
            if job.is_some() {
                (size.jobs, size.bytes) = (size.jobs + entry.size.jobs, size.bytes + entry.size.bytes);
            }
            if entry.is_cancelled() {
                quietly(|| drop(job));
                // Its waiter may wait for a job of this batch, so it is notified with the others.
                let resolved = entry.set_error(CancelToken::error(), |counters| &counters.cancelled);
                self.cancelled.extend(resolved.ok().map(|wake| (entry, wake)));
                continue;
            }
            // A job that was withdrawn meanwhile has its result.
            let Some(job) = job else { continue };
            waits.push(now - entry.since);
            self.jobs.push(job);
            entries.push(entry);
        }
        self.entries = entries;
        counters.waited(&waits);
        size
    }

    fn run(self: Box<Self>, shared: &Shared) -> Tell {
        let TakenJobs { entries, jobs: all, cancelled: ended, .. } = *self;
        let jobs = entries.iter().map(|entry| entry.size.jobs).sum();
        let mut wakes: Vec<Wake<J::Out>> = Vec::with_capacity(entries.len());
        if all.is_empty() {
            return tell(ended);
        }
        let began = Instant::now();
        let is_wanted = || entries.iter().any(|entry| !entry.cell.is_resolved() && !entry.is_cancelled());
        let done = catch_unwind(AssertUnwindSafe(|| {
            shared.with_checks(entries[0].checks, |scheduler| {
                J::run(scheduler, all, &is_wanted, &mut |index, result| {
                    debug_assert_eq!(index, wakes.len(), "results come in order");
                    wakes.push(entries[index].resolve(result));
                })
            })
        }));
        shared.counters.batch(jobs, entries.len(), began.elapsed());
        if wakes.len() < entries.len() {
            let why = match done {
                Ok(done) => done.err().unwrap_or_else(|| cancelled(NO_RESULT)),
                Err(_) => shared.scheduler.panicked("this job"),
            };
            wakes.extend(entries[wakes.len()..].iter().map(|entry| entry.resolve(Err(why.clone()))));
        }
        tell(entries.into_iter().zip(wakes).chain(ended))
    }

    fn refuse(self: Box<Self>, why: Error) -> Tell {
        let TakenJobs { jobs, entries, cancelled: ended, .. } = *self;
        let wakes: Vec<_> = entries.iter().map(|entry| entry.resolve(Err(why.clone()))).collect();
        jobs.into_iter().for_each(|job| quietly(|| drop(job)));
        tell(entries.into_iter().zip(wakes).chain(ended))
    }
}

/// Notifies threads and tasks first, because a callback may wait for another ticket of the batch.
fn tell<J: Queued>(all: impl IntoIterator<Item = Waiter<J>>) -> Tell {
    let (mut threads, mut tasks, mut callbacks) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, wake) in all {
        match wake {
            Wake::Nobody => {}
            Wake::Thread => threads.push(entry),
            Wake::Task(_) => tasks.push((entry, wake)),
            Wake::Callback(..) => callbacks.push((entry, wake)),
        }
    }
    let runs_code_of_others = !tasks.is_empty() || !callbacks.is_empty();
    let tell = move || {
        while !threads.is_empty() {
            let few = threads.drain(..CHAIN.min(threads.len())).rev();
            let link = |then: Option<Then>, entry: Arc<Entry<J>>| -> Option<Then> {
                Some(Box::new(move || entry.cell.wake_thread(then)))
            };
            few.fold(None, link).into_iter().for_each(|then| then());
        }
        tasks.into_iter().chain(callbacks).for_each(|(entry, wake)| quietly(|| entry.cell.wake(wake)));
    };
    Tell { runs_code_of_others, tell: Box::new(tell) }
}

/// The reason for which a job is cancelled that was run and has no result.
const NO_RESULT: &str = "its batch ended before it";

fn cancelled(what: &str) -> Error {
    Error::Cancelled { what: what.into() }
}

fn gone() -> Error {
    cancelled("the engine was dropped before the job began")
}

/// The jobs that are queued, and the threads that work on them.
#[derive(Default)]
struct State {
    lines: Vec<Line>,
    /// The line whose turn it is.
    next: usize,
    /// Jobs in the queue, and those about to enter it; bytes that they own.
    jobs: usize,
    bytes: u64,
    /// Jobs in lines.
    queued: usize,
    /// Batches that run, their jobs, and tickets whose jobs run on the threads that wait for them.
    running: usize,
    taken: usize,
    alone: usize,
    /// Tickets of the latest batch.
    latest: usize,
    /// Dispatchers: all, those that sleep, those that were notified or started and did not look yet, and those that notify waiters.
    dispatchers: usize,
    asleep: usize,
    /// Of the dispatchers that sleep, those that look when a line's jobs have waited long enough for others.
    timed: usize,
    notified: usize,
    started: usize,
    telling: usize,
    threads: Vec<JoinHandle<()>>,
    /// Whether the queue takes no more jobs, and whether the engine is gone.
    is_closed: bool,
    is_gone: bool,
    /// Tasks that wait for room, by number, and the latest number.
    rooms: BTreeMap<u64, Waker>,
    latest_room: u64,
    /// Threads that wait for `changed`.
    blocked: usize,
}

impl State {
    fn is_quiet(&self) -> bool {
        self.jobs == 0 && self.running == 0 && self.alone == 0 && self.telling == 0
    }

    /// Counts jobs out of the queue's capacity.
    fn count_out(&mut self, size: Size) {
        self.jobs -= size.jobs;
        self.bytes -= size.bytes;
    }

    /// How long all jobs still wait for others; `None` if some may begin, or if there are none. Jobs that waited long enough, and may
    /// not begin yet, begin when others come or end.
    fn waits(&self, patience: Patience) -> Option<Duration> {
        let lines = self.lines.iter().filter(|line| line.entries.len() > 0);
        let lines = lines.filter(|line| line.may_begin() || line.waits(patience).is_some());
        lines.map(|line| line.waits(patience)).min().flatten()
    }

    /// Takes a batch out of the queue: from the line whose turn it is and whose jobs wait for no others. With `all`, takes all jobs of a line.
    fn take(&mut self, all: bool, slots: usize, patience: Option<Patience>) -> Option<Box<dyn TakenBatch>> {
        let in_flight = self.queued + self.taken;
        for at in (self.next..self.lines.len()).chain(0..self.next) {
            let line = &mut self.lines[at];
            if !(all || line.may_begin()) || patience.is_some_and(|patience| line.waits(patience).is_some()) {
                continue;
            }
            let most = match line.of_threads() {
                _ if all => usize::MAX,
                // Each thread takes its share of all jobs; jobs that waited for each other stay together. (64 jobs of 128s, two threads: a caller
                // that holds all tickets gets 88,700 to 90,300/s. With shares for three threads, whose batches fill lanes less, it gets 85,800 to
                // 88,200.)
                Some(few) if line.entries.jobs() < line.limits.most => {
                    match patience.is_some() || line.entries.by_all_threads() {
                        true => few,
                        false => whole(few.min(in_flight.div_ceil(slots)), line.limits.lanes),
                    }
                }
                // Jobs that waited for each other stay together here, too.
                _ if line.devices() > 1 && patience.is_none() => {
                    let all = line.entries.jobs() + line.taken;
                    line.limits.most.min(all.div_ceil(line.limits.slots.saturating_sub(1).max(1))).max(1)
                }
                _ => line.limits.most,
            };
            let taker = line.taker(slots);
            if let Some(batch) = line.entries.take(most, taker, &mut line.withdrawn) {
                if !all {
                    line.running += 1;
                    line.taken += batch.jobs();
                }
                self.queued -= batch.jobs();
                self.next = (at + 1) % self.lines.len();
                return Some(batch);
            }
        }
        None
    }
}

/// The jobs of a batch that could have `jobs`, without those that would leave lanes empty. (On two cores, 64 callers that verify 128s: 43,300/s,
/// without this 41,000/s.)
fn whole(jobs: usize, lanes: usize) -> usize {
    if jobs > lanes { jobs - jobs % lanes } else { jobs }
}

/// The state that dispatchers, tickets and the engine share.
struct Shared {
    scheduler: Arc<Scheduler>,
    /// The most jobs and bytes in the queue.
    capacity: (usize, u64),
    /// The longest time that a job waits for others though it could begin.
    max_delay: Duration,
    state: Mutex<State>,
    /// Whether the queue is open and half empty at least. Then submitters need not reserve a place under the lock before they make their jobs. Set under
    /// the lock.
    has_much_room: AtomicBool,
    /// Whether the engine has other work than the job of a thread that waits, so that the thread need not look under the lock. Set under the lock.
    is_busy: AtomicBool,
    /// Dispatchers sleep on `work`, and other threads are blocked on `changed`.
    work: Condvar,
    changed: Condvar,
    deadlines: Deadlines,
    /// The clock by which deadlines pass and jobs wait for others.
    clock: Clock,
    counters: TicketCounters,
    /// The process whose threads the dispatchers are.
    process: OnceLock<Process>,
}

/// How much of the queue was reserved for a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reserved {
    /// A place.
    Place,
    /// A place, in a queue for which the system started no thread: the submitter does the job.
    PlaceWithoutDispatcher,
    /// Nothing: there is so much room, and the job is so small, that a place is taken when the job is added. Hundreds of threads that add such jobs at
    /// the same time still find room.
    Nothing,
}

/// Sets a flag that all cores read, and that seldom changes: a write would take its cache line from them.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Relaxed) != value {
        flag.store(value, Relaxed);
    }
}

thread_local! {
    /// The queue whose callbacks this thread calls.
    static SERVES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Shared {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// Whether this thread calls this queue's callbacks. Such a thread must not wait for anything that callbacks hold up.
    fn is_served_here(self: &Arc<Self>) -> bool {
        SERVES.get() == self.address()
    }

    fn in_callback(self: &Arc<Self>) -> Result<(), Error> {
        match self.is_served_here() {
            true => Err(Error::Value {
                what: "a ticket's callback waits for the engine that called it; let the callback return first".into(),
            }),
            false => Ok(()),
        }
    }

    /// Calls `run` with a scheduler for work with these checks.
    fn with_checks<R>(&self, checks: Checks, run: impl FnOnce(&Scheduler) -> R) -> R {
        match checks == self.scheduler.work.checks {
            true => run(&self.scheduler),
            false => run(&self.scheduler.with(WorkOptions { checks, ..WorkOptions::default() })),
        }
    }

    /// Gives an error in a process that was forked off, where there are no dispatchers and locks may be held for ever.
    fn same_process(&self) -> Result<(), Error> {
        self.is_process(Process::current())
    }

    fn is_process(&self, process: Process) -> Result<(), Error> {
        let first = self.process.get();
        if first.is_some_and(|first| *first != process) { Err(Error::of_parent()) } else { Ok(()) }
    }

    /// The most batches that run at a time.
    fn slots(&self) -> usize {
        if self.scheduler.is_host_alone() {
            return self.scheduler.options.threads;
        }
        let of = |worker: &super::Worker| if worker.is_host() { 1 } else { worker.queue() };
        self.scheduler.live().map(of).sum::<usize>().max(1)
    }

    fn has_room(&self, state: &State) -> bool {
        state.jobs == 0 || (state.jobs < self.capacity.0 && state.bytes < self.capacity.1)
    }

    /// Locks the queue of this process, unless it takes no more jobs.
    fn open(&self, process: Process) -> Result<MutexGuard<'_, State>, Error> {
        self.scheduler.same_process_as(process)?;
        self.is_process(process)?;
        let state = lock(&self.state);
        match state.is_closed {
            true => Err(cancelled("the engine takes no more tickets: it was drained")),
            false => Ok(state),
        }
    }

    /// Reserves a place in the queue for a job, in this process.
    fn reserve(self: &Arc<Self>, process: Process, size: Size) -> Result<Reserved, Error> {
        let (jobs, bytes) = self.capacity;
        let is_small = size.jobs <= jobs / SMALL as usize && size.bytes <= bytes / SMALL;
        if is_small && self.has_much_room.load(Relaxed) {
            self.scheduler.same_process_as(process)?;
            self.is_process(process)?;
            return Ok(Reserved::Nothing);
        }
        let mut state = self.open(process)?;
        // If there is room, no job is too large: a large one would wait for ever while smaller ones come.
        if !self.has_room(&state) {
            return Err(Error::QueueFull { jobs, bytes });
        }
        if state.dispatchers == 0 {
            self.start(&mut state);
        }
        self.count_in(&mut state, size);
        Ok(if state.dispatchers == 0 { Reserved::PlaceWithoutDispatcher } else { Reserved::Place })
    }

    /// Counts a job in.
    fn count_in(&self, state: &mut State, size: Size) {
        state.jobs += size.jobs;
        state.bytes += size.bytes;
        self.note_room(state);
    }

    /// Tells submitters whether there is much room.
    fn note_room(&self, state: &State) {
        let (jobs, bytes) = self.capacity;
        let is_half_empty = state.jobs < jobs / 2 && state.bytes < bytes / 2;
        set(&self.has_much_room, is_half_empty && !state.is_closed && state.dispatchers > 0);
    }

    /// Starts a dispatcher, if the system starts a thread.
    fn start(self: &Arc<Self>, state: &mut State) {
        self.process.get_or_init(Process::current);
        if self.spawn(state, "hypergrove-tickets", |shared| shared.serve()) {
            state.dispatchers += 1;
            state.started += 1;
        }
    }

    /// Starts a thread. Gives whether the system did.
    fn spawn(self: &Arc<Self>, state: &mut State, name: &str, work: fn(&Arc<Shared>)) -> bool {
        let shared = self.clone();
        let body = move || {
            SERVES.set(shared.address());
            work(&shared);
        };
        let thread = Builder::new().name(name.into()).spawn(body);
        let thread = thread.inspect_err(|why| self.scheduler.note_threads(1, 0, why)).ok();
        let is_started = thread.is_some();
        state.threads.extend(thread);
        is_started
    }

    /// Adds a job, for which there may be a place already. If not, and the queue was closed meanwhile, this is an error.
    fn add<J: Queued>(self: &Arc<Self>, entry: Arc<Entry<J>>, process: Process, has_place: bool) -> Result<(), Error> {
        let mut state = if has_place { lock(&self.state) } else { self.open(process)? };
        if !has_place {
            self.count_in(&mut state, entry.size);
        }
        let known = state.lines.iter().position(|line| line.id == entry.line_id());
        let at = known.unwrap_or_else(|| {
            let entries: Box<dyn Entries> = Box::new(Waiting::<J>::default());
            let (most, of_thread, slots) = match self.scheduler.is_host_alone() {
                true => (usize::MAX, Some(1), self.slots()),
                false => (FIRST_BATCH, None, usize::MAX),
            };
            let limits = BatchLimits { most, of_thread, lanes: 1, slots, devices: 1 };
            state.lines.push(Line { id: entry.line_id(), limits, running: 0, taken: 0, withdrawn: 0, entries });
            state.lines.len() - 1
        });
        state.queued += entry.size.jobs;
        let waiting: &mut dyn Any = &mut *state.lines[at].entries;
        let waiting: &mut Waiting<J> = waiting.downcast_mut().expect("a line has one type of job");
        waiting.push(entry);
        let wakes = self.rouse(&mut state);
        drop(state);
        self.wake(wakes);
        Ok(())
    }

    /// How long jobs wait for others, and the time now; `None` if no job waits.
    fn patience(&self, state: &State) -> Option<Patience> {
        let is_none = self.max_delay.is_zero() || state.is_closed;
        (!is_none).then(|| (self.max_delay, (self.clock)()))
    }

    /// Starts a dispatcher, if a batch could begin. Gives whether one that sleeps is to be woken instead, after the lock is released, because a woken
    /// dispatcher takes the lock first.
    #[must_use]
    fn rouse(self: &Arc<Self>, state: &mut State) -> bool {
        if state.queued == 0 || !state.lines.iter().any(|line| line.may_begin()) {
            return false;
        }
        let slots = self.slots();
        if state.running + state.notified + state.started >= slots {
            return false;
        }
        // One dispatcher that looks in time suffices, since later jobs wait longer.
        if state.timed > 0 && self.patience(state).is_some_and(|patience| state.waits(patience).is_some()) {
            return false;
        }
        if state.asleep > 0 {
            state.asleep -= 1;
            state.notified += 1;
            return true;
        }
        if state.dispatchers < slots + usize::from(state.telling > 0) {
            // One dispatcher works while another notifies waiters. If it cannot be started, others do both.
            self.start(state);
        }
        false
    }

    /// Wakes a dispatcher if [`Shared::rouse`] says so.
    fn wake(&self, wakes: bool) {
        if wakes {
            self.work.notify_one();
        }
    }

    /// Counts out a job that left the queue without a batch.
    fn left(&self, line_id: LineId, size: Size, place: &PlaceInLine) {
        let mut state = lock(&self.state);
        state.count_out(size);
        let State { lines, queued, .. } = &mut *state;
        if let Some(line) = lines.iter_mut().find(|line| line.id == line_id)
            && line.entries.withdraw(size.jobs, place)
        {
            *queued -= size.jobs;
            line.withdrawn += 1;
            if line.entries.jobs() == 0 || (line.withdrawn > FEW && line.withdrawn > line.entries.len() / 2) {
                line.entries.compact();
                line.withdrawn = 0;
            }
        }
        self.release(state);
    }

    /// Releases the lock, and notifies those who wait that the queue changed.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let is_over = state.is_closed || self.has_room(&state);
        self.note_room(&state);
        let rooms = if is_over { std::mem::take(&mut state.rooms) } else { BTreeMap::new() };
        let is_blocked = state.blocked > 0;
        drop(state);
        if is_blocked {
            self.changed.notify_all();
        }
        rooms.into_values().for_each(|waker| quietly(|| waker.wake()));
    }

    /// Blocks until `is_so` holds, or until the time is over. Gives whether it holds.
    fn wait_until<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        until: Option<Instant>,
        is_so: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'s, State>, bool) {
        state.blocked += 1;
        let goes_on = |state: &mut State| !is_so(state);
        let mut state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => self.changed.wait_while(state, goes_on).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.blocked -= 1;
        let is_so = is_so(&state);
        (state, is_so)
    }

    /// Does the work of a dispatcher until the engine is gone.
    fn serve(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.started -= 1;
        loop {
            let (slots, all, patience) = (self.slots(), state.is_gone, self.patience(&state));
            let is_free = all || state.running < slots;
            let batch = if is_free { state.take(all, slots, patience) } else { None };
            state = match batch {
                Some(batch) if all => {
                    drop(state);
                    self.refuse(batch, gone())
                }
                Some(mut batch) => {
                    state.running += 1;
                    state.taken += batch.jobs();
                    set(&self.is_busy, true);
                    // This thread may be the dispatcher that was to look at the other lines, or may have left jobs for other devices.
                    let wakes = (patience.is_some() || !self.scheduler.is_host_alone()) && self.rouse(&mut state);
                    drop(state);
                    self.wake(wakes);
                    let (line_id, jobs) = (batch.line_id(), batch.jobs());
                    // Not under the lock, for which submitters would wait meanwhile.
                    let size = batch.take_jobs(&self.counters);
                    let tickets = batch.len();
                    self.count_out(size);
                    let tell = batch.run(self);
                    self.complete((line_id, jobs, tickets), tell)
                }
                None if state.is_gone => break,
                None => {
                    let rest = patience.filter(|_| is_free).and_then(|patience| state.waits(patience));
                    self.sleep(state, rest)
                }
            };
        }
    }

    /// Lets a dispatcher sleep until it is woken, or for the time `most`.
    fn sleep<'s>(&'s self, mut state: MutexGuard<'s, State>, most: Option<Duration>) -> MutexGuard<'s, State> {
        let sleeps = |state: &mut State| state.notified == 0 && !state.is_gone;
        state.asleep += 1;
        let mut state = match most {
            None => self.work.wait_while(state, sleeps).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                state.timed += 1;
                let waited = self.work.wait_timeout_while(state, most, sleeps);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.timed -= 1;
                state
            }
        };
        // Whoever wakes a dispatcher counts it as notified; another dispatcher may be the one that wakes up.
        match state.notified {
            0 => state.asleep -= 1,
            _ => state.notified -= 1,
        }
        state
    }

    /// Sets an error as the result of a batch's jobs.
    fn refuse(&self, mut batch: Box<dyn TakenBatch>, why: Error) -> MutexGuard<'_, State> {
        let size = batch.take_jobs(&self.counters);
        (batch.refuse(why).tell)();
        self.count_out(size);
        lock(&self.state)
    }

    /// Counts jobs that left the queue out of its capacity.
    fn count_out(&self, size: Size) {
        let mut state = lock(&self.state);
        state.count_out(size);
        self.release(state);
    }

    /// Notifies the waiters of a batch that ran, when its slot is free again. The batch had so many jobs in its line, and so many tickets.
    fn complete(
        self: &Arc<Self>,
        (line_id, jobs, tickets): (LineId, usize, usize),
        tell: Tell,
    ) -> MutexGuard<'_, State> {
        let kind = line_id.0.expect("the jobs of a line have a kind");
        let limits = self.with_checks(line_id.1, |scheduler| scheduler.batch_limits(kind));
        let mut state = lock(&self.state);
        if let Some(line) = state.lines.iter_mut().find(|line| line.id == line_id) {
            line.limits = limits;
            line.running -= 1;
            line.taken -= jobs;
        }
        state.running -= 1;
        state.taken -= jobs;
        state.latest = tickets;
        set(&self.is_busy, state.running > 0 || state.latest > 1);
        // On the host this thread goes on itself: another dispatcher would take the core of the threads that are notified, which bring the next jobs.
        // Results that code of others waits for must not wait for this thread.
        let others_go_on = tell.runs_code_of_others || !self.scheduler.is_host_alone();
        state.telling += usize::from(others_go_on);
        let wakes = others_go_on && self.rouse(&mut state);
        drop(state);
        self.wake(wakes);
        (tell.tell)();
        if !others_go_on {
            // Most of the threads that were notified wait for this core.
            yield_now();
        }
        let mut state = lock(&self.state);
        state.telling -= usize::from(others_go_on);
        self.release(state);
        lock(&self.state)
    }

    /// Whether a thread that brings `jobs` jobs, which wait in the queue or do not enter it, computes them itself: the engine has nothing else to do,
    /// so another thread would only have to be woken.
    fn is_idle(&self, state: &State, jobs: usize) -> bool {
        let threads = self.scheduler.options.threads;
        let is_idle = self.max_delay.is_zero() && state.queued == jobs && state.running == 0 && state.alone < threads;
        // Many callers are faster together. A thread of a pool would have to hand the job over.
        is_idle && state.latest <= 1 && rayon::current_thread_index().is_none()
    }

    /// Computes the ticket's result on this thread, if that is best. In a callback there may be no other thread that could compute it.
    fn alone<T>(self: &Arc<Self>, entry: &Arc<dyn Holds<T>>) {
        if self.is_busy.load(Relaxed) && !self.is_served_here() {
            return;
        }
        let state = lock(&self.state);
        // A deadline and a canceller refer to the entry. They may end the ticket while the job runs, and this thread returns then.
        let may_end_early = || Arc::weak_count(entry) > 0;
        if !self.is_served_here() && (!self.is_idle(&state, entry.jobs()) || may_end_early()) {
            return;
        }
        self.run_here(state, &**entry);
    }

    /// Runs a ticket's job on this thread. Whoever drains the queue waits for this thread meanwhile.
    fn run_here<T>(&self, mut state: MutexGuard<'_, State>, entry: &dyn Holds<T>) {
        state.alone += 1;
        drop(state);
        let _alone = Alone(self);
        entry.run_here(self);
    }
}

/// A job that runs on the thread that submitted it, or that waits for it.
struct Alone<'a>(&'a Shared);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.alone -= 1;
        self.0.release(state);
    }
}

/// The queue of an engine.
pub struct Queue(Arc<Shared>);

impl Queue {
    /// A queue with room for so many jobs, which own so many bytes. A job that could begin waits for others, but no longer than
    /// `max_delay`. Threads start with the first job.
    pub fn new(scheduler: Arc<Scheduler>, jobs: usize, bytes: u64, max_delay: Duration) -> Queue {
        Queue::with_clock(scheduler, (jobs, bytes), max_delay, Box::new(Instant::now))
    }

    fn with_clock(scheduler: Arc<Scheduler>, capacity: (usize, u64), max_delay: Duration, clock: Clock) -> Queue {
        Queue(Arc::new(Shared {
            scheduler,
            capacity,
            max_delay,
            state: Mutex::default(),
            has_much_room: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            work: Condvar::new(),
            changed: Condvar::new(),
            deadlines: Deadlines::default(),
            clock,
            counters: TicketCounters::default(),
            process: OnceLock::new(),
        }))
    }

    /// Queues a job of this size, for work with these options. `make` is called only if there is room.
    pub fn submit<J: Queued>(
        &self,
        work: &WorkOptions,
        size: Size,
        make: impl FnOnce() -> J,
    ) -> Result<Ticket<J::Out>, Error> {
        let (shared, process) = (&self.0, Process::current());
        // Every job counts, because the queue does not wait for jobs that count for nothing.
        let size = Size { jobs: size.jobs.max(1), ..size };
        let reserved = shared.reserve(process, size).inspect_err(|_| shared.counters.refused.add(1))?;
        let has_place = reserved != Reserved::Nothing;
        shared.counters.submitted.add(1);
        let job = make();
        let requested = job.kind();
        // A job that no program does enters no line.
        let kind = requested.as_ref().ok().copied();
        let (cell, since) = (Cell::new(), (shared.clock)());
        let has_cores = !J::BY_ALL_THREADS && shared.scheduler.is_host_alone();
        let core = if has_cores { core_among(shared.scheduler.options.threads) } else { 0 };
        // A time that is too far away for the clock is no limit. A result that comes later is not given, even if the ticket is not watched yet.
        let until = work.until(since);
        let (deadline, of, place) = (Mutex::new(until), Arc::downgrade(shared), PlaceInLine::new(core));
        let job = Mutex::new(Some(job));
        let (checks, cancel) = (work.checks, work.cancel.clone());
        let entry = Arc::new(Entry { job, cell, place, kind, checks, cancel, size, since, deadline, shared: of });
        let is_cancelled = entry.is_cancelled();
        let added = requested.and_then(|_| match is_cancelled {
            true => Err(CancelToken::error()),
            false => shared.add(entry.clone(), process, has_place),
        });
        if let Err(why) = added {
            drop(entry.take());
            let resolved = match is_cancelled {
                true => entry.set_error(why, |counters| &counters.cancelled),
                false => entry.cell.resolve(Err(why)),
            };
            let Ok(Wake::Nobody) = resolved else { unreachable!("nobody has the ticket yet") };
            if has_place {
                shared.count_out(size);
            }
        }
        if reserved == Reserved::PlaceWithoutDispatcher {
            shared.run_here(lock(&shared.state), &*entry);
        }
        let ticket = Ticket { entry, process, deadline: None, is_released: false };
        Ok(if let Some(until) = until { ticket.deadline(until) } else { ticket })
    }

    /// Calls `work`, which does one job, on this thread if the engine has nothing else to do; otherwise gives `None`. For the counters it is a
    /// ticket that did not wait.
    pub fn run_alone<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        let shared = &self.0;
        if shared.is_busy.load(Relaxed) {
            return Ok(None);
        }
        let mut state = shared.open(Process::current())?;
        if !shared.is_idle(&state, 0) {
            return Ok(None);
        }
        state.alone += 1;
        drop(state);
        let (_alone, began) = (Alone(shared), Instant::now());
        let out = work();
        shared.counters.submitted.add(1);
        shared.counters.waited(&[Duration::ZERO]);
        shared.counters.batch(1, 1, began.elapsed());
        Ok(Some(out))
    }

    /// Resolves when the queue has room again.
    pub fn ready(&self) -> Room {
        Room { shared: Arc::downgrade(&self.0), number: None }
    }

    /// Takes no more jobs, and waits for those that it has. Jobs that have not begun at `until` are cancelled.
    pub fn drain(&self, until: Instant) -> Result<(), Error> {
        let shared = &self.0;
        shared.same_process()?;
        shared.in_callback()?;
        let mut state = lock(&shared.state);
        state.is_closed = true;
        // From now on, jobs do not wait for others.
        let wakes = shared.rouse(&mut state);
        shared.release(state);
        shared.wake(wakes);
        let (mut state, is_quiet) = shared.wait_until(lock(&shared.state), Some(until), State::is_quiet);
        if is_quiet {
            return Ok(());
        }
        while let Some(batch) = state.take(true, 1, None) {
            drop(state);
            state = shared.refuse(batch, cancelled("the engine was drained, and the time for it was over"));
        }
        Err(Error::DeadlineExceeded)
    }

    /// The counters of the queue.
    pub fn stats(&self) -> TicketStats {
        let mut stats = self.0.counters.stats();
        if self.0.same_process().is_ok() {
            let state = lock(&self.0.state);
            (stats.queued, stats.queued_bytes, stats.running) =
                (state.queued, state.bytes, state.running + state.alone);
        }
        stats
    }
}

impl Drop for Queue {
    /// Jobs that run are completed, the others are cancelled.
    fn drop(&mut self) {
        let shared = &self.0;
        if shared.same_process().is_err() {
            return;
        }
        shared.deadlines.end();
        let mut state = lock(&shared.state);
        (state.is_closed, state.is_gone) = (true, true);
        let threads = std::mem::take(&mut state.threads);
        shared.release(state);
        shared.work.notify_all();
        // In a callback this thread is one of these threads, which then end by themselves.
        if !threads.iter().any(|thread| thread.thread().id() == current().id()) {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

/// The handle of a submitted job, which gets the job's result. It is a `Future`, and a thread can wait for it. Dropping a ticket
/// cancels its job, unless the job has begun.
#[must_use = "a ticket that is dropped cancels its job"]
pub struct Ticket<T> {
    entry: Arc<dyn Holds<T>>,
    process: Process,
    deadline: Option<Deadline>,
    /// Whether a callback takes the result, or it was taken, so that there is nothing to cancel.
    is_released: bool,
}

impl<T> Ticket<T> {
    fn same_process(&self) -> Result<(), Error> {
        if self.process == Process::current() { Ok(()) } else { Err(Error::of_parent()) }
    }

    /// Waits for the result. If the engine has nothing else to do, jobs do not wait for others, and the ticket has neither a deadline nor
    /// a [`Canceller`], this thread computes the result. In a callback, this thread computes it whenever the job has not begun.
    pub fn wait(mut self) -> Result<T, Error> {
        self.same_process()?;
        if let Some(shared) = self.entry.shared() {
            shared.alone(&self.entry);
        }
        let result = self.entry.cell().wait(None);
        self.is_released = true;
        result.unwrap_or_else(taken)
    }

    /// Waits for the result, at most this long. `None` if the time is over, or if the result was taken before.
    pub fn wait_timeout(&mut self, most: Duration) -> Option<Result<T, Error>> {
        if let Err(why) = self.same_process() {
            return Some(Err(why));
        }
        // A time that is too far away for the clock is no limit.
        self.entry.cell().wait(Instant::now().checked_add(most))
    }

    /// Takes the result, if it is known. Each result can be taken once.
    pub fn try_take(&mut self) -> Option<Result<T, Error>> {
        match self.same_process() {
            Ok(()) => self.entry.cell().take(),
            Err(why) => Some(Err(why)),
        }
    }

    /// Whether the result is known, or was taken.
    pub fn is_done(&self) -> bool {
        self.same_process().is_err() || self.entry.cell().is_resolved()
    }

    /// Returns a handle that cancels the job later, even after [`on_done`](Ticket::on_done) has consumed the ticket.
    pub fn canceller(&self) -> Canceller {
        Canceller { entry: self.entry.clone().as_expiring(), process: self.process }
    }

    /// Sets a deadline. If the result is not known at this time, it becomes [`Error::DeadlineExceeded`], and a job that has not begun
    /// does not begin. A later call replaces the deadline. An engine starts a thread for its first deadline that has not passed yet.
    pub fn deadline(mut self, at: Instant) -> Ticket<T> {
        let shared = self.entry.shared().filter(|_| self.same_process().is_ok());
        // Without its engine, or in a forked process, the ticket's result is known.
        let Some(shared) = shared else { return self };
        self.entry.set_deadline(at);
        if at <= (shared.clock)() {
            self.entry.expire();
            return self;
        }
        let start = || {
            let mut state = lock(&shared.state);
            shared.spawn(&mut state, "hypergrove-deadlines", |shared| shared.deadlines.watch(&shared.clock))
        };
        let when = shared.deadlines.add(at, self.entry.clone().as_expiring(), start);
        self.deadline = Some(Deadline { shared: Arc::downgrade(&shared), when, process: self.process });
        self
    }
}

impl<T: Send + 'static> Ticket<T> {
    /// Calls `callback` with the result: on a thread of the engine, or at once on this thread if the result is known. A callback should
    /// be short, because the results of others wait for it. A panic on a thread of the engine ends only the callback. A callback may use the engine,
    /// submit jobs, wait for other tickets, and drop the engine.
    pub fn on_done(mut self, callback: impl FnOnce(Result<T, Error>) + Send + 'static) {
        if let Err(why) = self.same_process() {
            return callback(Err(why));
        }
        let deadline = self.deadline.take();
        let callback: Callback<T> = Box::new(move |result| {
            drop(deadline);
            callback(result);
        });
        self.is_released = true;
        if let Some((callback, result)) = self.entry.cell().on_done(callback) {
            callback(result);
        }
    }
}

impl<T> Future for Ticket<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(why) = self.same_process() {
            return Poll::Ready(Err(why));
        }
        self.entry.cell().poll(context.waker()).map(|result| result.unwrap_or_else(taken))
    }
}

/// Cancels a ticket's job; see [`Ticket::canceller`].
#[derive(Clone)]
pub struct Canceller {
    entry: Weak<dyn Expires>,
    process: Process,
}

impl Canceller {
    /// Cancels the job. Its result becomes [`Error::Cancelled`], unless the result is known. A job that has not begun does not begin;
    /// the result of a running job is dropped. If the ticket has a callback, this thread calls it.
    pub fn cancel(&self) {
        if self.process == Process::current()
            && let Some(entry) = self.entry.upgrade()
        {
            entry.cancel();
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").finish_non_exhaustive()
    }
}

fn taken<T>() -> Result<T, Error> {
    Err(Error::Value { what: "the ticket's result was taken before; take it once".into() })
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if self.is_released || self.same_process().is_err() {
            return;
        }
        if self.entry.withdraw()
            && let Some(shared) = self.entry.shared()
        {
            shared.counters.cancelled.add(1);
        }
        if let Some(result) = self.entry.cell().abandon() {
            self.entry.discard(result);
        }
    }
}

impl<T> std::fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// A ticket's deadline, as long as it matters.
struct Deadline {
    shared: Weak<Shared>,
    when: When,
    process: Process,
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if self.process == Process::current()
            && let Some(shared) = self.shared.upgrade()
        {
            shared.deadlines.remove(self.when);
        }
    }
}

/// A future that is ready when the queue has room again. Another caller may take the room first.
#[must_use = "it does nothing unless it is awaited or waited for"]
pub struct Room {
    shared: Weak<Shared>,
    /// The number by which the queue knows the task.
    number: Option<u64>,
}

impl Room {
    /// Whether there is room, or an error if there never will be; `None` if there is no room now.
    fn look(shared: &Shared, state: &State) -> Option<Result<(), Error>> {
        match state.is_closed {
            true => Some(Err(if state.is_gone { gone() } else { cancelled("the engine was drained") })),
            false => shared.has_room(state).then_some(Ok(())),
        }
    }

    /// Blocks this thread until there is room. Do not call this in a ticket's callback, whose thread may have to make the room.
    pub fn wait(self) -> Result<(), Error> {
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        shared.same_process()?;
        let state = lock(&shared.state);
        if let Some(known) = Room::look(&shared, &state) {
            return known;
        }
        shared.in_callback()?;
        let (state, _) = shared.wait_until(state, None, |state| Room::look(&shared, state).is_some());
        Room::look(&shared, &state).unwrap_or(Ok(()))
    }
}

impl Future for Room {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(Err(gone())) };
        shared.same_process()?;
        let waker = context.waker().clone();
        let mut state = lock(&shared.state);
        if let Some(known) = Room::look(&shared, &state) {
            return Poll::Ready(known);
        }
        let number = self.number.unwrap_or_else(|| {
            state.latest_room += 1;
            state.latest_room
        });
        let before = state.rooms.insert(number, waker);
        drop(state);
        drop(before);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if let Some(shared) = self.shared.upgrade()
            && shared.same_process().is_ok()
        {
            let before = lock(&shared.state).rooms.remove(&number);
            drop(before);
        }
    }
}
