//! Jobs that run at once or wait in the engine's queue.

use crate::calls::Submitted;
use crate::engine::Engine;
use crate::jobs::{GenerateJob, Refused, SignJob, VerifyJob};
use crate::scheme::Scheme;
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::{Room, Ticket};
use std::time::Instant;

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
                (S::calls().$submit)(&engine.0.queue, &engine.0.scheduler, self)
            }
        }
    )*};
}

jobs! {
    SignJob<'_, S>: S::Signature, sign, submit_sign;
    VerifyJob<'_, S>: bool, verify, submit_verify;
    GenerateJob<'static, S>: S::SigningKey, generate, submit_generate;
}

impl Engine {
    /// Runs one job, on the device that suits it. [`submit`](Engine::submit) queues a job instead.
    ///
    /// ```
    /// use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    /// let signature = engine.run(SignJob::new(&key, b"Dear reader"))?;
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn run<J: Job>(&self, job: J) -> Result<J::Out, Error> {
        job.run(self)
    }

    /// Queues a job, and returns a [`Ticket`] for its result. Jobs of all callers that wait at the same time share batches; a job alone begins
    /// at once, unless [`EngineBuilder::max_delay`](crate::EngineBuilder::max_delay) is set. The engine copies what a job borrows, keys too:
    /// share keys by `Arc`. If the queue is full, the error gives the job back.
    ///
    /// ```
    /// use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
    /// use std::sync::Arc;
    ///
    /// let engine = Engine::new()?;
    /// let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F)?);
    /// let first = engine.submit(SignJob::new(key.clone(), b"Dear reader"))?;
    /// let second = engine.submit(SignJob::new(key, b"Dear writer"))?;
    /// assert_ne!(first.wait()?, second.wait()?);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn submit<J: Job>(&self, job: J) -> Result<Ticket<J::Out>, Refused<J>> {
        job.submit(self)
    }

    /// Runs one job together with those that other threads bring at the same time, as [`submit`](Engine::submit) and [`Ticket::wait`] do. If the
    /// engine has nothing else to do, this thread runs the job as [`run`](Engine::run) does: it copies nothing and wakes no other thread. It also does
    /// so if the queue is full.
    ///
    /// ```
    /// use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    /// let sign = |message: &'static [u8]| engine.share(SignJob::new(&key, message));
    /// let (first, second) = std::thread::scope(|threads| {
    ///     let first = threads.spawn(|| sign(b"Dear reader"));
    ///     (first.join().expect("it does not panic"), sign(b"Dear writer"))
    /// });
    /// assert_ne!(first?, second?);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn share<J: Job>(&self, job: J) -> Result<J::Out, Error> {
        let job = match self.run_if_idle(job) {
            Ok(done) => return done,
            Err(job) => job,
        };
        match job.submit(self) {
            Ok(ticket) => ticket.wait(),
            Err(Refused { job, why: Error::QueueFull { .. } }) => job.run(self),
            Err(refused) => Err(refused.why),
        }
    }

    /// Runs one job on this thread, as [`run`](Engine::run) does, if the engine has nothing else to do; otherwise gives the job back.
    ///
    /// ```
    /// use hypergrove::{Engine, GenerateJob, SLH_DSA_SHA2_128F};
    ///
    /// let engine = Engine::new()?;
    /// let key = match engine.run_if_idle(GenerateJob::new(&SLH_DSA_SHA2_128F)) {
    ///     Ok(key) => key?,
    ///     Err(job) => engine.submit(job)?.wait()?,
    /// };
    /// assert_eq!(key.params().n, 16);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn run_if_idle<J: Job>(&self, job: J) -> Result<Result<J::Out, Error>, J> {
        let mut job = Some(job);
        let mut taken = || job.take().expect("it is taken once");
        match self.0.queue.run_alone(|| taken().run(self)) {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(taken()),
            Err(why) => Ok(Err(why)),
        }
    }

    /// A future that is ready when the queue of tickets has room again. Another caller may take the room first.
    pub fn ready(&self) -> Room {
        self.0.queue.ready()
    }

    /// Stops the queue, which all handles of the engine share ([`Engine::with`]): refuses new tickets, and waits until all existing ones have their
    /// results. At `until`, the engine cancels the jobs that have not begun, and the error is [`Error::DeadlineExceeded`]. A job that is submitted at
    /// the same time is refused, or its ticket has [`Error::Cancelled`]. Do not call this in a ticket's callback. Calls without a ticket go on.
    pub fn drain(&self, until: Instant) -> Result<(), Error> {
        self.0.queue.drain(until)
    }
}
