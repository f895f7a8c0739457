//! The engine's calls for a scheme. They are function pointers, so that each is compiled once, with the scheme: generic calls would be compiled
//! again in every program that makes them.

use crate::engine::{Engine, Inner};
use crate::jobs::{GenerateJob, Sign, SignJob, Verify, VerifyJob, one_of};
use crate::rows::{CallColumns, Progress, RowMemory, run_calls};
use crate::scheme::Scheme;
use crate::tickets::Refused;
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::{self, IsWanted, Queued, Scheduler, Size, Ticket};

/// The jobs of a call, from an iterator.
pub(crate) type Source<'i, J> = &'i mut (dyn Iterator<Item = J> + Send + 'i);
/// Takes the results of a call's jobs in their order, each with the number of jobs that it counts for, which is 1. Says whether the call goes on.
pub(crate) type Sink<'s, T> = &'s mut scheduler::Sink<'s, T>;

/// A ticket for a job, or why there is none.
type Submitted<J, T> = Result<Ticket<T>, Refused<J>>;

/// The engine's calls for a scheme: see the module.
#[expect(clippy::type_complexity, reason = "each type is the signature of a call")]
pub struct Calls<S: Scheme> {
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
    pub(crate) submit_sign: for<'a> fn(&Inner, SignJob<'a, S>) -> Submitted<SignJob<'a, S>, S::Signature>,
    pub(crate) submit_verify: for<'a> fn(&Inner, VerifyJob<'a, S>) -> Submitted<VerifyJob<'a, S>, bool>,
    pub(crate) submit_generate:
        fn(&Inner, GenerateJob<'static, S>) -> Submitted<GenerateJob<'static, S>, S::SigningKey>,
    /// Runs calls of rows; see [`run_calls`].
    pub(crate) rows: fn(
        &Scheduler,
        &mut [Result<CallColumns<'_, '_, S>, Error>],
        Option<RowMemory<'_>>,
        IsWanted<'_>,
        Option<Progress<'_>>,
    ) -> Vec<Result<(), Error>>,
}

/// Runs the jobs of an iterator.
macro_rules! all {
    ($job:ident) => {
        |scheduler, jobs, sink, may_block| {
            let mut jobs = jobs.map($job::from);
            match may_block && scheduler.pulls_ahead(jobs.size_hint().1) {
                true => scheduler.run_blocking(&mut jobs, sink),
                false => scheduler.run(None, None, &mut jobs, sink),
            }
        }
    };
}

impl<S: Scheme> Calls<S> {
    /// The calls of the scheme `S`.
    pub const OF: Calls<S> = Calls {
        sign: |scheduler, job| scheduler.one(None, Sign::from(job)),
        verify: |scheduler, job| scheduler.one(None, Verify::from(job)),
        generate: |scheduler, job| scheduler.one(None, job),
        sign_all: all!(Sign),
        verify_all: all!(Verify),
        generate_all: all!(GenerateJob),
        submit_sign: |engine, job| {
            let size = one_of(S::size_of_input(job.mode, &job.message));
            engine.submit(job, size, |job| Sign::from(job).into_owned())
        },
        submit_verify: |engine, job| {
            let size = one_of(S::size_of_input(job.mode, &job.message) + job.signature.len());
            engine.submit(job, size, |job| Verify::from(job).into_owned())
        },
        submit_generate: |engine, job| {
            let size = one_of(job.size());
            engine.submit(job, size, |job| job)
        },
        rows: run_calls,
    };
}

impl Inner {
    /// Queues a job if the queue has room for its size, else gives it back. `own` turns it into a job that borrows nothing.
    pub(crate) fn submit<J, O: Queued>(&self, job: J, size: Size, own: impl FnOnce(J) -> O) -> Submitted<J, O::Out> {
        let mut job = Some(job);
        match self.queue.submit(&self.scheduler.work, size, || own(job.take().expect("it is made once"))) {
            Ok(ticket) => Ok(ticket),
            Err(why) => Err(Refused { job: job.expect("it was not made"), why }),
        }
    }
}

/// A job that [`Engine::run`] runs at once, and that [`Engine::submit`] queues: a [`SignJob`](crate::SignJob), a [`VerifyJob`](crate::VerifyJob)
/// or a [`GenerateJob`] of any scheme, or a [`RowSet`](crate::rows::RowSet).
pub trait Job: Sized {
    /// The result of the job.
    type Out: Send + 'static;
    #[doc(hidden)]
    fn run(self, engine: &Engine) -> Result<Self::Out, Error>;
    #[doc(hidden)]
    fn submit(self, engine: &Engine) -> Result<Ticket<Self::Out>, Refused<Self>>;
}

/// Implements [`Job`] for jobs that the scheme's calls run and queue.
macro_rules! jobs {
    ($($job:ty: $out:ty, $run:ident, $submit:ident;)*) => {$(
        impl<S: Scheme> Job for $job {
            type Out = $out;

            fn run(self, engine: &Engine) -> Result<$out, Error> {
                (S::calls().$run)(&engine.0.scheduler, self)
            }
            fn submit(self, engine: &Engine) -> Submitted<Self, $out> {
                (S::calls().$submit)(&engine.0, self)
            }
        }
    )*};
}

jobs! {
    SignJob<'_, S>: S::Signature, sign, submit_sign;
    VerifyJob<'_, S>: bool, verify, submit_verify;
    GenerateJob<'static, S>: S::SigningKey, generate, submit_generate;
}
