//! Lines of jobs, and the batches that are taken out of them, whatever the type of the jobs.

use super::Size;
use crate::Error;
use crate::scheduler::scale::BatchLimits;
use crate::scheduler::stats::TicketCounters;
use crate::scheduler::{Checks, Scheduler, WorkOptions};
use crate::scheme::Kind;
use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A line's jobs have one kind and the same checks, and one type runs them.
pub(super) type LineId = (Option<Kind>, Checks, TypeId);

/// How long jobs may wait for others, and what time it is.
pub(super) type Patience = (Duration, Instant);

/// The jobs of one line that wait.
pub(super) struct Line {
    pub(super) id: LineId,
    pub(super) limits: BatchLimits,
    /// The line's batches that run, and their jobs.
    pub(super) running: usize,
    pub(super) taken: usize,
    /// Entries in the line whose job was withdrawn.
    pub(super) withdrawn: usize,
    pub(super) entries: Box<dyn Entries>,
}

impl Line {
    /// Whether the line has jobs, and a batch of them may begin. While a GPU does other batches of the line, jobs wait until they are a full batch,
    /// or a fair share of all jobs: small batches would keep the GPU from large ones. (An H200 signs by 128f for 4,096 callers 135,000 times a
    /// second, without this rule 121,000 times, and 95,000 times if four batches run at a time.)
    pub(super) fn may_begin(&self) -> bool {
        let (jobs, BatchLimits { most, of_thread, slots, .. }) = (self.entries.jobs(), self.limits);
        let is_share =
            self.running < self.devices() || jobs >= most || jobs.saturating_mul(self.running + 2) >= jobs + self.taken;
        let is_of_thread = of_thread.is_some() && !self.entries.by_all_threads();
        self.entries.len() > 0 && self.running < slots && (is_share || is_of_thread)
    }

    /// Devices of which a batch goes to one. A batch that all threads do goes to all devices, too.
    pub(super) fn devices(&self) -> usize {
        if self.entries.by_all_threads() { 1 } else { self.limits.devices }
    }

    /// Jobs of a batch that one of the host's threads does, or all do together; see [`BatchLimits::of_thread`].
    pub(super) fn of_threads(&self) -> Option<usize> {
        let threads = if self.entries.by_all_threads() { self.limits.slots } else { 1 };
        self.limits.of_thread.map(|few| few.saturating_mul(threads))
    }

    /// This thread, as the taker of the line's next batch. Only where each of the host's threads runs batches of its own do jobs have cores.
    pub(super) fn taker(&self, slots: usize) -> Taker {
        let has_cores = self.limits.of_thread.is_some() && !self.entries.by_all_threads();
        Taker { core: if has_cores { core_among(slots) } else { 0 }, in_flight: self.entries.jobs() + self.taken }
    }

    /// How long the line's jobs still wait for others; `None` if they may begin.
    pub(super) fn waits(&self, (max_delay, now): Patience) -> Option<Duration> {
        let most = self.limits.most;
        let is_enough = self.entries.jobs() >= self.of_threads().map_or(most, |few| most.min(few));
        let since = self.entries.since().filter(|_| !is_enough)?;
        max_delay.checked_sub(now - since).filter(|rest| !rest.is_zero())
    }
}

/// The jobs of a batch that could have `jobs`, without those that would leave lanes empty. (On two cores, 64 callers that verify 128s: 43,300/s,
/// without this 41,000/s.)
pub(super) fn whole(jobs: usize, lanes: usize) -> usize {
    if jobs > lanes { jobs - jobs % lanes } else { jobs }
}

/// The core on which this thread runs, as one of `number`. It may run on another one right afterwards. Only Linux tells; elsewhere all threads have
/// core 0, and jobs go in the order in which they came. (`nix` asks the C library. `rustix` reads the vDSO by itself, and crashes under Valgrind.)
pub(super) fn core_among(number: usize) -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    return nix::sched::sched_getcpu().unwrap_or(0) % number.max(1);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = number;
        0
    }
}

/// The place of an entry in its line. It changes under the queue's lock alone. So a batch is taken out of a line without a look at each of its entries,
/// which are in the caches of the threads that submitted them.
pub(super) struct PlaceInLine {
    /// The core of the thread that submitted it.
    pub(super) core: usize,
    number: AtomicU64,
}

impl PlaceInLine {
    /// The number of an entry whose job was withdrawn while it was in the line.
    pub(super) const WITHDRAWN: u64 = u64::MAX;

    pub(super) fn new(core: usize) -> PlaceInLine {
        PlaceInLine { core, number: AtomicU64::new(0) }
    }

    pub(super) fn get(&self) -> u64 {
        self.number.load(Relaxed)
    }

    pub(super) fn set(&self, number: u64) {
        self.number.store(number, Relaxed);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.get() == PlaceInLine::WITHDRAWN
    }
}

/// The dispatcher that takes a batch.
#[derive(Clone, Copy)]
pub(super) struct Taker {
    /// Its core.
    pub(super) core: usize,
    /// Jobs of the line that wait or run.
    pub(super) in_flight: usize,
}

pub(super) trait Entries: Any + Send {
    /// Takes the entries of a batch of at most `most` jobs out of the line, or one that counts for more: first those of the taker's core, unless the
    /// oldest entry came more than twice as many entries before them as are in flight. `withdrawn` has the number of entries in the line whose job
    /// was withdrawn.
    fn take(&mut self, most: usize, taker: Taker, withdrawn: &mut usize) -> Option<Box<dyn TakenBatch>>;
    fn len(&self) -> usize;
    /// Jobs that the entries count for.
    fn jobs(&self) -> usize;
    /// [`Queued::BY_ALL_THREADS`](super::Queued::BY_ALL_THREADS) of the entries' jobs.
    fn by_all_threads(&self) -> bool;
    /// Counts out a job that was withdrawn and counts for so many, if its entry is in the line. Gives whether it is.
    fn withdraw(&mut self, jobs: usize, place: &PlaceInLine) -> bool;
    /// When the first job was submitted.
    fn since(&self) -> Option<Instant>;
    /// Removes entries whose job was withdrawn.
    fn compact(&mut self);
}

pub(super) trait TakenBatch: Send {
    fn line_id(&self) -> LineId;
    /// The number of tickets.
    fn len(&self) -> usize;
    /// The jobs that the entries counted for in the line, those that were withdrawn since among them.
    fn jobs(&self) -> usize;
    /// Takes the jobs of the entries, without those that are withdrawn at the same time. Gives the share of the queue's capacity that they take.
    fn take_jobs(&mut self, counters: &TicketCounters) -> Size;
    /// Runs the jobs, and sets their results.
    fn run(self: Box<Self>, scheduler: &Scheduler, counters: &TicketCounters) -> Tell;
    /// Sets an error as the result of all jobs.
    fn refuse(self: Box<Self>, why: Error) -> Tell;
}

/// Notifies those who wait for results, when the slot of their batch is free again.
pub(super) struct Tell {
    /// Whether there are callbacks or tasks' wakers.
    pub(super) runs_code_of_others: bool,
    pub(super) tell: Box<dyn FnOnce()>,
}

/// Calls `run` with a scheduler for work with these checks.
pub(super) fn with_checks<R>(scheduler: &Scheduler, checks: Checks, run: impl FnOnce(&Scheduler) -> R) -> R {
    match checks == scheduler.work.checks {
        true => run(scheduler),
        false => run(&scheduler.with(WorkOptions { checks, ..WorkOptions::default() })),
    }
}
