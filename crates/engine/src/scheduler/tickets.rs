//! Tickets: many callers bring one job each, and their jobs share batches.
//!
//! A submitted job waits in the line of its kind. When a device has a free slot, dispatchers, which are threads of the engine, take jobs of one line
//! and run them as a call of the scheduler. If the engine is idle and no delay is set, they take one job at once, otherwise the jobs that came while
//! the devices were busy. Lines take turns. Results go to the jobs' [`Ticket`]s first, and waiters are notified afterwards, when the slot is free
//! again: a callback may wait for any other ticket.

use super::{Job, Scheduler};
use crate::Error;
use crate::scheme::Kind;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod batch;
mod deadlines;
mod dispatch;
mod entry;
mod line;
mod queue;
mod room;
mod state;
#[cfg(test)]
mod tests;
mod ticket;
mod waiting;

pub use queue::Queue;
pub use room::Room;
pub use ticket::{Canceller, Ticket};

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

/// Jobs of the scheduler run as they are.
impl<J: Job<Out: 'static> + 'static> Queued for J {
    type Out = J::Out;
    const BY_ALL_THREADS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Job::kind(self)
    }

    fn run(
        scheduler: &Scheduler,
        jobs: Vec<J>,
        _: IsWanted<'_>,
        sink: &mut dyn FnMut(usize, Result<J::Out, Error>),
    ) -> Result<(), Error> {
        let (scheduler, mut indices) = (scheduler.of_call(), 0..);
        let mut sink = |_, result| {
            sink(indices.next().expect("they do not end"), result);
            ControlFlow::Continue(())
        };
        let Some(jobs) = scheduler.run_on_thread(jobs, &mut sink)? else { return Ok(()) };
        let booked = scheduler.device_of_batch(&jobs);
        // A single job runs on a booked device as a single job.
        scheduler.run(booked.as_ref().map(|booked| booked.worker), None, &mut jobs.into_iter(), &mut sink)
    }

    fn discard(out: J::Out) {
        J::discard(out);
    }
}

/// The share of the queue's capacity that a job takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The jobs that it counts for.
    pub jobs: usize,
    /// Bytes that it owns.
    pub bytes: u64,
}

/// Runs code of others, or drops their values. A panic there is ignored.
fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

fn cancelled(what: &str) -> Error {
    Error::Cancelled { what: what.into() }
}

fn gone() -> Error {
    cancelled("the engine was dropped before the job began")
}
