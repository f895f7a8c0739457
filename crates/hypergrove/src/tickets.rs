//! Jobs of tickets: they own what they need, since their callers may go on before they are done.

use crate::block::{Block, Job, one_by_one};
use crate::engine::Engine;
use crate::jobs::{JobKey, KeygenJob, Randomizer, Seeds, SignJob, VerifyJob};
use crate::keys::{Signature, SigningKey, VerifyingKey};
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::{Queued, Room, Scheduler, Size, Ticket};
use hypergrove_engine::scheme::Kind;
use hypergrove_fips205::{Mode, Params};
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;
use zeroize::Zeroizing;

/// A job that can be [submitted](Engine::submit): a [`SignJob`], a [`VerifyJob`] or a [`GenerateJob`], or one of zkDilithium; or a
/// [`RowSet`](crate::rows::RowSet). The engine copies what a job borrows, keys too: share keys by `Arc`.
pub trait Submit: Sized {
    /// The result of the job.
    type Out: Send + 'static;
    /// The job with all that it needs.
    #[doc(hidden)]
    type Owned: Queued<Out = Self::Out>;
    /// What counts in the queue, or why the job cannot run.
    #[doc(hidden)]
    fn size(&mut self) -> Result<Size, Error>;
    #[doc(hidden)]
    fn own(self) -> Self::Owned;
}

/// The error of a job that was not queued, with the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused<J> {
    /// The job, unchanged.
    pub job: J,
    /// The reason: [`Error::QueueFull`], [`Error::Cancelled`] after [`Engine::drain`], or [`Error::Io`]. For a
    /// [`RowSet`](crate::rows::RowSet) also what is wrong with its columns.
    pub why: Error,
}

impl<J> fmt::Display for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<J: fmt::Debug> std::error::Error for Refused<J> {}

impl<J> From<Refused<J>> for Error {
    fn from(refused: Refused<J>) -> Error {
        refused.why
    }
}

/// A job that makes a key.
#[derive(Clone, Debug)]
pub struct GenerateJob {
    params: &'static Params,
    seeds: Option<Seeds>,
}

impl GenerateJob {
    /// Makes a key from the operating system's randomness.
    pub fn new(params: &'static Params) -> GenerateJob {
        GenerateJob { params, seeds: None }
    }

    /// Makes the key of these seeds.
    pub fn from_seeds(params: &'static Params, seeds: Seeds) -> GenerateJob {
        GenerateJob { params, seeds: Some(seeds) }
    }
}

impl Engine {
    /// Queues a job, and gives a [`Ticket`] for its result. Jobs of all callers that wait at the same time share batches; a job alone
    /// begins at once, unless [`EngineBuilder::max_delay`](crate::EngineBuilder::max_delay) is set. If the queue is full, the job is given back.
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
    pub fn submit<J: Submit>(&self, mut job: J) -> Result<Ticket<J::Out>, Refused<J>> {
        let size = match job.size() {
            Ok(size) => size,
            Err(why) => return Err(Refused { job, why }),
        };
        let mut job = Some(job);
        let own = || job.take().expect("it is made once").own();
        match self.0.queue.submit(size, own) {
            Ok(ticket) => Ok(ticket),
            Err(why) => Err(Refused { job: job.expect("it was not made"), why }),
        }
    }

    /// A future that is ready when the queue of tickets has room again. Another caller may take the room first.
    pub fn ready(&self) -> Room {
        self.0.queue.ready()
    }

    /// Stops the queue: refuses new tickets, and waits until all existing ones have their results. At `until`, the engine cancels the
    /// jobs that have not begun, and the error is [`Error::DeadlineExceeded`]. Do not call this in a ticket's callback. Calls without a
    /// ticket go on.
    pub fn drain(&self, until: Instant) -> Result<(), Error> {
        self.0.queue.drain(until)
    }
}

/// Runs jobs that are lent to the scheduler.
pub(crate) fn run<'a, J: Job + 'a>(
    scheduler: &'a Scheduler,
    lent: impl Iterator<Item = J> + Clone,
    sink: &mut dyn FnMut(usize, Result<J::Out, Error>),
) -> Result<(), Error> {
    let mut give = |index, result| {
        sink(index, result);
        ControlFlow::Continue(())
    };
    scheduler.run_together(lent.map(Block::One), &mut one_by_one(J::discard, &mut give))
}

/// What owns all that a ticket's job needs, the job that it lends, and what comes of that. `lend` gives the job, which borrows, or says why
/// there is none.
macro_rules! queued {
    ($($owned:ident: $job:ty => $out:ty;)*) => {$(
        impl Queued for $owned {
            type Out = $out;
            const BY_ALL_THREADS: bool = false;

            fn ask(&self) -> Result<Kind, Error> {
                self.lend()?.kind()
            }

            fn run(
                scheduler: &Scheduler,
                jobs: Vec<Self>,
                sink: &mut dyn FnMut(usize, Result<Self::Out, Error>),
            ) -> Result<(), Error> {
                $crate::tickets::run(scheduler, jobs.iter().map(|job| job.lend().expect("it was asked")), sink)
            }

            fn discard(out: Self::Out) {
                <$job>::discard(out);
            }
        }
    )*};
}
#[cfg(feature = "zkdilithium")]
pub(crate) use queued;

queued! {
    OwnedSign: SignJob<'static> => Signature;
    OwnedVerify: VerifyJob<'static> => bool;
    OwnedGenerate: KeygenJob<'static> => SigningKey;
}

/// The size of one job, which owns so many bytes.
pub(crate) fn one_of(bytes: usize) -> Result<Size, Error> {
    Ok(Size { jobs: 1, bytes: bytes as u64 })
}

pub(crate) fn own_key<K: Clone>(key: JobKey<'_, K>) -> JobKey<'static, K> {
    match key {
        JobKey::Borrowed(key) => JobKey::Owned(key.clone()),
        JobKey::Owned(key) => JobKey::Owned(key),
        JobKey::Shared(key) => JobKey::Shared(key),
    }
}

/// A mode that owns its context.
struct OwnedMode {
    mode: Mode<'static>,
    context: Box<[u8]>,
}

fn context<'a>(mode: &Mode<'a>) -> &'a [u8] {
    match *mode {
        Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. } => context,
        Mode::Internal => &[],
    }
}

impl OwnedMode {
    fn new(mode: Mode<'_>) -> OwnedMode {
        let context = context(&mode).into();
        let mode = match mode {
            Mode::Internal => Mode::Internal,
            with_context => with_context.with_context(&[]),
        };
        OwnedMode { mode, context }
    }

    fn borrowed(&self) -> Mode<'_> {
        match self.mode {
            Mode::Internal => Mode::Internal,
            mode => mode.with_context(&self.context),
        }
    }
}

/// A [`SignJob`] that borrows nothing.
pub struct OwnedSign {
    key: JobKey<'static, SigningKey>,
    mode: OwnedMode,
    message: Vec<u8>,
    randomizer: Randomizer<'static>,
    /// opt_rand, where it is given.
    given: Option<Zeroizing<Vec<u8>>>,
}

impl OwnedSign {
    fn lend(&self) -> Result<SignJob<'_>, Error> {
        let randomizer = self.given.as_ref().map_or(self.randomizer, |given| Randomizer::Given(given));
        let job = SignJob::new(&*self.key, &self.message);
        Ok(job.mode(self.mode.borrowed()).randomizer(randomizer))
    }
}

impl Submit for SignJob<'_> {
    type Out = Signature;
    type Owned = OwnedSign;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(self.message.len() + context(&self.mode).len())
    }

    fn own(self) -> OwnedSign {
        let (randomizer, given) = match self.randomizer {
            Randomizer::Hedged => (Randomizer::Hedged, None),
            Randomizer::Deterministic => (Randomizer::Deterministic, None),
            Randomizer::Given(bytes) => (Randomizer::Given(&[]), Some(Zeroizing::new(bytes.to_vec()))),
        };
        let (key, mode, message) = (own_key(self.key), OwnedMode::new(self.mode), self.message.into_owned());
        OwnedSign { key, mode, message, randomizer, given }
    }
}

/// A [`VerifyJob`] that borrows nothing.
pub struct OwnedVerify {
    key: JobKey<'static, VerifyingKey>,
    mode: OwnedMode,
    message: Vec<u8>,
    signature: Vec<u8>,
}

impl OwnedVerify {
    fn lend(&self) -> Result<VerifyJob<'_>, Error> {
        Ok(VerifyJob::new(&*self.key, &self.message, &self.signature).mode(self.mode.borrowed()))
    }
}

impl Submit for VerifyJob<'_> {
    type Out = bool;
    type Owned = OwnedVerify;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(self.message.len() + self.signature.len() + context(&self.mode).len())
    }

    fn own(self) -> OwnedVerify {
        let (key, mode) = (own_key(self.key), OwnedMode::new(self.mode));
        let (message, signature) = (self.message.into_owned(), self.signature.into_owned());
        OwnedVerify { key, mode, message, signature }
    }
}

/// A [`GenerateJob`] with its seeds, or why there are none.
pub struct OwnedGenerate(&'static Params, Result<Seeds, Error>);

impl OwnedGenerate {
    fn lend(&self) -> Result<KeygenJob<'_>, Error> {
        let seeds = self.1.as_ref().map_err(Clone::clone)?;
        Ok(KeygenJob(self.0, Cow::Borrowed(seeds)))
    }
}

impl Submit for GenerateJob {
    type Out = SigningKey;
    type Owned = OwnedGenerate;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(3 * self.params.n)
    }

    fn own(self) -> OwnedGenerate {
        let seeds = self.seeds.map_or_else(|| Seeds::random(self.params), Ok);
        OwnedGenerate(self.params, seeds)
    }
}
