//! The jobs that a client gives to the scheduler, and their results.

use super::Run;
use crate::Error;
use crate::scheme::GroupFacts;
use crate::scheme::Kind;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The scheduler's unit of work: one row, or successive rows of one kind. Rows of one kind are run together.
pub trait Job: Send + Sync + Sized {
    /// The result of the job.
    type Out: Send;
    /// Whether the scheduler joins jobs of one kind to blocks, so that work done once for a block costs each job little. If not, a job is a block
    /// by itself, which the scheduler cuts if it has several rows.
    const JOINS: bool;
    /// The kind of program that does the job, or why none can.
    fn kind(&self) -> Result<Kind, Error>;
    /// The number of its rows.
    fn count(&self) -> usize {
        1
    }
    /// Cuts so many rows off the front, or about so many. Neither part is empty. `None` if these rows stay together.
    fn cut(&mut self, _rows: usize) -> Option<Self> {
        None
    }
    /// Bytes of memory that the job owns.
    fn owned(&self) -> usize;
    /// Bytes of the job's output, computed from the facts about its group.
    fn output(&self, facts: &GroupFacts) -> usize;
    /// Runs jobs of one group on a device, and gives a result for each, in their order. A job that is itself to blame has an error of its own; an
    /// error of the whole run is the device's or the call's. `memory` is kept between chunks; after an error it holds nothing of the jobs.
    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<Self::Out>, Error>;
    /// Discards a result that nobody gets.
    fn discard(out: Self::Out) {
        drop(out);
    }
}

/// The errors of jobs that are to blame themselves, by the number of the job.
pub type Failed = BTreeMap<usize, Error>;

/// The results of a run. Errors are apart from them: they are rare, and a result may be far smaller than an error.
pub struct Outcomes<T> {
    /// A result for each job, in their order. That of a job that failed is discarded.
    pub results: Vec<T>,
    /// The errors of jobs that failed.
    pub failed: Failed,
}

impl<T> From<Vec<T>> for Outcomes<T> {
    /// No job failed.
    fn from(results: Vec<T>) -> Outcomes<T> {
        Outcomes { results, failed: Failed::new() }
    }
}

/// Takes the results, each with the number of rows that it stands for, and may end the call.
pub type Sink<'s, T> = dyn FnMut(usize, Result<T, Error>) -> ControlFlow<()> + 's;
