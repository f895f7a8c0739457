//! Lines of jobs, and the batches that are taken out of them, whatever the type of the jobs.

use super::Size;
use super::waiting::{AnyEntry, Taker, Waiting, core_among};
use crate::Error;
use crate::scheduler::scale::BatchLimits;
use crate::scheduler::stats::TicketCounters;
use crate::scheduler::{Checks, Scheduler, WorkOptions};
use crate::scheme::Kind;
use std::any::TypeId;
use std::sync::Arc;
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
    pub(super) entries: Waiting,
    /// [`Queued::BY_ALL_THREADS`](super::Queued::BY_ALL_THREADS) of the entries' jobs.
    pub(super) by_all_threads: bool,
    pub(super) begin: Begin,
}

impl Line {
    /// Whether the line has jobs, and a batch of them may begin. While a GPU does other batches of the line, jobs wait until they are a full batch,
    /// or a fair share of all jobs: small batches would keep the GPU from large ones. (An H200 signs by 128f for 4,096 callers 135,000 times a
    /// second, without this rule 121,000 times, and 95,000 times if four batches run at a time.)
    pub(super) fn may_begin(&self) -> bool {
        let (jobs, BatchLimits { most, of_thread, slots, .. }) = (self.entries.jobs(), self.limits);
        let is_share =
            self.running < self.devices() || jobs >= most || jobs.saturating_mul(self.running + 2) >= jobs + self.taken;
        let is_of_thread = of_thread.is_some() && !self.by_all_threads;
        self.entries.len() > 0 && self.running < slots && (is_share || is_of_thread)
    }

    /// Devices of which a batch goes to one. A batch that all threads do goes to all devices, too.
    pub(super) fn devices(&self) -> usize {
        if self.by_all_threads { 1 } else { self.limits.devices }
    }

    /// Jobs of a batch that one of the host's threads does, or all do together; see [`BatchLimits::of_thread`].
    pub(super) fn of_threads(&self) -> Option<usize> {
        let threads = if self.by_all_threads { self.limits.slots } else { 1 };
        self.limits.of_thread.map(|few| few.saturating_mul(threads))
    }

    /// This thread, as the taker of the line's next batch. Only where each of the host's threads runs batches of its own do jobs have cores.
    pub(super) fn taker(&self, slots: usize) -> Taker {
        let has_cores = self.limits.of_thread.is_some() && !self.by_all_threads;
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

/// A batch that was taken out of a line.
pub(super) struct TakenBatch {
    pub(super) line_id: LineId,
    /// Jobs that the entries counted for in the line.
    pub(super) jobs: usize,
    pub(super) entries: Vec<Arc<dyn AnyEntry>>,
    pub(super) begin: Begin,
}

/// Takes the jobs of a batch out of their entries, without those that are withdrawn at the same time.
pub(super) type Begin = fn(Vec<Arc<dyn AnyEntry>>, &TicketCounters) -> Begun;

/// A batch whose jobs were taken out of their entries.
pub(super) struct Begun {
    /// The share of the queue's capacity that the jobs take.
    pub(super) size: Size,
    /// The number of tickets.
    pub(super) tickets: usize,
    pub(super) finish: Finish,
}

/// Runs the jobs of a batch and sets their results, or sets an error as the result of all jobs.
pub(super) type Finish = Box<dyn FnOnce(Result<&Scheduler, Error>, &TicketCounters) -> Tell>;

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
