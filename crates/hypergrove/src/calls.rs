//! The engine's calls for a scheme. They are function pointers, so that each is compiled once, with the scheme: generic calls would be compiled
//! again in every program that makes them.

use crate::flow::Progress;
use crate::jobs::{GenerateJob, Refused, SignJob, VerifyJob};
use crate::rows::columns::CallColumns;
use crate::rows::foreign::RowMemory;
use crate::types::SchemeTypes;
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::{self, IsWanted, Queue, Queued, Scheduler, Size, Ticket};

/// The jobs of a call, from an iterator.
pub(crate) type Source<'i, J> = &'i mut (dyn Iterator<Item = J> + Send + 'i);
/// Takes the results of a call's jobs in their order, each with the number of jobs that it counts for, which is 1. Says whether the call goes on.
pub(crate) type Sink<'s, T> = &'s mut scheduler::Sink<'s, T>;

/// A ticket for a job, or why there is none.
pub(crate) type Submitted<J, T> = Result<Ticket<T>, Refused<J>>;

/// The engine's calls for a scheme: see the module.
#[expect(clippy::type_complexity, reason = "each type is the signature of a call")]
pub struct Calls<S: SchemeTypes> {
    pub(crate) sign: fn(&Scheduler, SignJob<'_, S>) -> Result<S::Signature, Error>,
    pub(crate) verify: fn(&Scheduler, VerifyJob<'_, S>) -> Result<bool, Error>,
    pub(crate) generate: fn(&Scheduler, GenerateJob<'_, S>) -> Result<S::SigningKey, Error>,
    /// The last argument is whether the iterator may block: then a separate thread takes the jobs from it.
    pub(crate) sign_all:
        for<'a> fn(&Scheduler, Source<'_, SignJob<'a, S>>, Sink<'_, S::Signature>, bool) -> Result<(), Error>,
    pub(crate) verify_all:
        for<'a> fn(&Scheduler, Source<'_, VerifyJob<'a, S>>, Sink<'_, bool>, bool) -> Result<(), Error>,
    pub(crate) generate_all:
        for<'a> fn(&Scheduler, Source<'_, GenerateJob<'a, S>>, Sink<'_, S::SigningKey>, bool) -> Result<(), Error>,
    pub(crate) submit_sign: for<'a> fn(&Queue, &Scheduler, SignJob<'a, S>) -> Submitted<SignJob<'a, S>, S::Signature>,
    pub(crate) submit_verify: for<'a> fn(&Queue, &Scheduler, VerifyJob<'a, S>) -> Submitted<VerifyJob<'a, S>, bool>,
    pub(crate) submit_generate:
        fn(&Queue, &Scheduler, GenerateJob<'static, S>) -> Submitted<GenerateJob<'static, S>, S::SigningKey>,
    /// Runs calls of rows; see [`run_calls`](crate::rows::run_calls).
    pub(crate) rows: fn(
        &Scheduler,
        &mut [Result<CallColumns<'_, '_, S>, Error>],
        Option<RowMemory<'_>>,
        IsWanted<'_>,
        Option<Progress<'_>>,
    ) -> Vec<Result<(), Error>>,
}

/// Queues a job if the queue has room for its size, else gives it back. `own` turns it into a job that borrows nothing.
pub(crate) fn submit<J, O: Queued>(
    queue: &Queue,
    scheduler: &Scheduler,
    job: J,
    size: Size,
    own: impl FnOnce(J) -> O,
) -> Submitted<J, O::Out> {
    let mut job = Some(job);
    match queue.submit(&scheduler.work, size, || own(job.take().expect("it is made once"))) {
        Ok(ticket) => Ok(ticket),
        Err(why) => Err(Refused { job: job.expect("it was not made"), why }),
    }
}
