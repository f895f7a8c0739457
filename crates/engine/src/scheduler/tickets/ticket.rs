//! Tickets: the handles of submitted jobs, and those that cancel them.

use super::deadlines::When;
use super::entry::Holds;
use super::state::Shared;
use super::waiting::AnyEntry;
use crate::scheduler::cell::Callback;
use crate::scheduler::permits::lock;
use crate::{Error, Process};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The handle of a submitted job, which gets the job's result. It is a `Future`, and a thread can wait for it. Dropping a ticket
/// cancels its job, unless the job has begun.
#[must_use = "a ticket that is dropped cancels its job"]
pub struct Ticket<T> {
    pub(super) entry: Arc<dyn Holds<T>>,
    process: Process,
    deadline: Option<Deadline>,
    /// Whether a callback takes the result, or it was taken, so that there is nothing to cancel.
    is_released: bool,
}

impl<T> Ticket<T> {
    pub(super) fn new(entry: Arc<dyn Holds<T>>, process: Process) -> Ticket<T> {
        Ticket { entry, process, deadline: None, is_released: false }
    }

    fn same_process(&self) -> Result<(), Error> {
        if self.process == Process::current() { Ok(()) } else { Err(Error::of_parent()) }
    }

    /// The entry, for those who may end the job.
    fn any_entry(&self) -> Weak<dyn AnyEntry> {
        let entry: Arc<dyn AnyEntry> = self.entry.clone();
        Arc::downgrade(&entry)
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
        Canceller { entry: self.any_entry(), process: self.process }
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
        let when = shared.deadlines.add(at, self.any_entry(), start);
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
    entry: Weak<dyn AnyEntry>,
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
