//! An entry of the queue: a job and its result, as the queue and the job's ticket see it.

use super::line::{LineId, with_checks};
use super::state::Shared;
use super::waiting::{AnyEntry, PlaceInLine};
use super::{Queued, Size, cancelled, quietly};
use crate::Error;
use crate::scheduler::cell::{Cell, Resolved, Wake};
use crate::scheduler::permits::lock;
use crate::scheduler::stats::{Counter, TicketCounters};
use crate::scheduler::{CancelToken, Checks};
use crate::scheme::Kind;
use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// The reason for which a job is cancelled that was run and has no result.
pub(super) const NO_RESULT: &str = "its batch ended before it";

/// A job and its result.
pub(super) struct Entry<J: Queued> {
    /// The job. Whoever takes it runs it, or drops it, and counts it out of the queue's capacity.
    pub(super) job: Mutex<Option<J>>,
    pub(super) cell: Cell<J::Out>,
    pub(super) place: PlaceInLine,
    /// `None` for a job that no program does.
    pub(super) kind: Option<Kind>,
    pub(super) checks: Checks,
    pub(super) cancel: Option<CancelToken>,
    pub(super) size: Size,
    pub(super) since: Instant,
    /// No result that comes at this time or later counts.
    pub(super) deadline: Mutex<Option<Instant>>,
    pub(super) shared: Weak<Shared>,
}

impl<J: Queued> Entry<J> {
    pub(super) fn take(&self) -> Option<J> {
        lock(&self.job).take()
    }

    pub(super) fn line_id(&self) -> LineId {
        (self.kind, self.checks, TypeId::of::<J>())
    }

    /// Sets the result, unless the ticket has one, and gives the waiter to notify. A result that comes after the deadline is not given, because the
    /// thread that watches the deadlines may be late.
    pub(super) fn resolve(&self, result: Result<J::Out, Error>) -> Wake<J::Out> {
        if !self.is_late() {
            return waiter_of::<J>(self.cell.resolve(result));
        }
        self.discard(result);
        waiter_of::<J>(self.set_error(Error::DeadlineExceeded, |counters| &counters.expired))
    }

    /// Whether the caller has cancelled the job's work.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    fn is_late(&self) -> bool {
        let deadline = *lock(&self.deadline);
        deadline.is_some_and(|at| self.shared.upgrade().is_some_and(|shared| at <= (shared.clock)()))
    }

    /// Sets an error as the result, unless there is a result, and counts the error.
    pub(super) fn set_error(&self, why: Error, counter: fn(&TicketCounters) -> &Counter) -> Resolved<J::Out> {
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
pub(super) trait Holds<T>: AnyEntry {
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
        let done = with_checks(&shared.scheduler, self.checks, |scheduler| {
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
}

impl<J: Queued> AnyEntry for Entry<J> {
    fn place(&self) -> &PlaceInLine {
        &self.place
    }

    fn expire(&self) {
        self.end(Error::DeadlineExceeded, |counters| &counters.expired);
    }

    fn cancel(&self) {
        self.end(cancelled("its caller wants no result"), |counters| &counters.cancelled);
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
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
