//! Jobs of any scheme, as callers describe them.

use crate::types::{SchemeKey, SchemeTypes};
use hypergrove_engine::Error;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The key of a job, which the job borrows, owns or shares. In a batch of SLH-DSA, equal keys count as one key, wherever they lie.
#[derive(Clone, Debug)]
pub enum JobKey<'a, K> {
    /// The job borrows the key.
    Borrowed(&'a K),
    /// The job owns the key.
    Owned(K),
    /// The job shares the key.
    Shared(Arc<K>),
}

impl<K> Deref for JobKey<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        match self {
            JobKey::Borrowed(key) => key,
            JobKey::Owned(key) => key,
            JobKey::Shared(key) => key,
        }
    }
}

impl<'a, K> From<&'a K> for JobKey<'a, K> {
    fn from(key: &'a K) -> JobKey<'a, K> {
        JobKey::Borrowed(key)
    }
}

impl<K> From<K> for JobKey<'_, K> {
    fn from(key: K) -> Self {
        JobKey::Owned(key)
    }
}

impl<K> From<Arc<K>> for JobKey<'_, K> {
    fn from(key: Arc<K>) -> Self {
        JobKey::Shared(key)
    }
}

/// A message to be signed, with a scheme `S`. Each scheme has a name for its own jobs: [`SignJob`](crate::SignJob) is SLH-DSA's.
#[derive(Clone, Debug)]
pub struct SignJob<'a, S: SchemeTypes> {
    /// The key that signs.
    pub key: JobKey<'a, S::SigningKey>,
    /// How the message is signed.
    pub mode: S::Mode<'a>,
    /// The message. If the job owns it, it counts against the memory budget.
    pub message: S::JobMessage<'a>,
    /// Where the randomness comes from.
    pub randomizer: S::Randomizer<'a>,
}

impl<'a, S: SchemeTypes> SignJob<'a, S> {
    /// Makes a job with fresh randomness, in the mode that the key implies. For SLH-DSA, that is pure mode with an empty context, or pre-hash
    /// mode for a key of HashSLH-DSA.
    pub fn new(key: impl Into<JobKey<'a, S::SigningKey>>, message: impl Into<S::JobMessage<'a>>) -> SignJob<'a, S> {
        let key = key.into();
        let mode = key.usual_mode();
        SignJob { key, mode, message: message.into(), randomizer: S::Randomizer::default() }
    }
}

/// A signature to be verified, with a scheme `S`. Each scheme has a name for its own jobs: [`VerifyJob`](crate::VerifyJob) is SLH-DSA's.
#[derive(Clone, Debug)]
pub struct VerifyJob<'a, S: SchemeTypes> {
    /// The key that should have signed.
    pub key: JobKey<'a, S::VerifyingKey>,
    /// How the message was signed.
    pub mode: S::Mode<'a>,
    /// The message. If the job owns it, it counts against the memory budget.
    pub message: S::JobMessage<'a>,
    /// The signature. A signature of the wrong length is invalid. If the job owns the signature, it counts against the memory budget.
    pub signature: Cow<'a, [u8]>,
}

impl<'a, S: SchemeTypes> VerifyJob<'a, S> {
    /// Makes a job in the mode that the key implies. For SLH-DSA, that is pure mode with an empty context, or pre-hash mode for a key of HashSLH-DSA.
    pub fn new(
        key: impl Into<JobKey<'a, S::VerifyingKey>>,
        message: impl Into<S::JobMessage<'a>>,
        signature: impl Into<Cow<'a, [u8]>>,
    ) -> VerifyJob<'a, S> {
        let key = key.into();
        let mode = key.usual_mode();
        VerifyJob { key, mode, message: message.into(), signature: signature.into() }
    }
}

/// A job that makes a key of a parameter set.
#[derive(Clone)]
pub struct GenerateJob<'a, S: SchemeTypes> {
    pub(crate) set: S,
    pub(crate) seeds: GivenSeeds<'a, S>,
}

/// The seeds of a key, or the instruction to draw them.
#[derive(Clone)]
pub(crate) enum GivenSeeds<'a, S: SchemeTypes> {
    /// The seeds come from the operating system's randomness.
    None,
    Borrowed(&'a S::Seeds),
    Owned(Box<Zeroizing<S::Seeds>>),
}

/// Leaves the seeds out, because they are secret.
impl<S: SchemeTypes> fmt::Debug for GenerateJob<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateJob").field("set", &self.set).finish_non_exhaustive()
    }
}

/// Implements the conversion of a job's message from types that hold bytes.
macro_rules! from_bytes {
    ($message:ident) => {
        $crate::jobs::from_bytes! { $message
            [] &'a [u8];
            [const N: usize] &'a [u8; N];
            [] &'a Vec<u8>;
            [] Vec<u8>;
            [] Cow<'a, [u8]>;
        }
    };
    ($message:ident $([$($generic:tt)*] $bytes:ty;)*) => {$(
        impl<'a, $($generic)*> From<$bytes> for $message<'a> {
            fn from(bytes: $bytes) -> $message<'a> {
                $message::Bytes(bytes.into())
            }
        }
    )*};
}
pub(crate) use from_bytes;

/// The bytes of memory that a job owns: none if it borrows `bytes`.
#[expect(clippy::ptr_arg, reason = "whether the bytes are owned is the question")]
pub(crate) fn owned(bytes: &Cow<'_, [u8]>) -> usize {
    match bytes {
        Cow::Borrowed(_) => 0,
        Cow::Owned(bytes) => bytes.capacity(),
    }
}

/// A key that is owned or shared, not borrowed.
pub(crate) fn own_key<K: Clone>(key: JobKey<'_, K>) -> JobKey<'static, K> {
    match key {
        JobKey::Borrowed(key) => JobKey::Owned(key.clone()),
        JobKey::Owned(key) => JobKey::Owned(key),
        JobKey::Shared(key) => JobKey::Shared(key),
    }
}

/// The error of a job that was not queued, with the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused<J> {
    /// The job, unchanged.
    pub job: J,
    /// The reason: [`Error::QueueFull`], [`Error::Cancelled`] after [`Engine::drain`](crate::Engine::drain), or [`Error::Io`]. A [`RowSet`](crate::rows::RowSet) is
    /// also refused if its columns are wrong.
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
