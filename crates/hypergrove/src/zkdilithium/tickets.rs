//! Jobs of tickets for zkDilithium.

use super::blocks::KeygenJob;
use super::{Engine, Fe, JobMessage, SignJob, Signature, SigningKey, VerifyJob, VerifyingKey, params};
use crate::Error;
use crate::block::Job;
use crate::jobs::JobKey;
use crate::tickets::{Refused, Submit, one_of, own_key, queued};
use hypergrove_engine::scheduler::{Queued, Room, Scheduler, Size, Ticket};
use hypergrove_engine::scheme::Kind;
use hypergrove_zkdilithium::params::SEED_BYTES;
use std::time::Instant;
use zeroize::Zeroizing;

impl Engine {
    /// Queues a job, and gives a [`Ticket`] for its result: see [`crate::Engine::submit`], whose queue this is.
    pub fn submit<J: Submit>(&self, job: J) -> Result<Ticket<J::Out>, Refused<J>> {
        self.0.submit(job)
    }

    /// A future that is ready when the queue of tickets has room again. Another caller may take the room first.
    pub fn ready(&self) -> Room {
        self.0.ready()
    }

    /// See [`crate::Engine::drain`].
    pub fn drain(&self, until: Instant) -> Result<(), Error> {
        self.0.drain(until)
    }
}

/// A job that makes a key.
#[derive(Clone, Default)]
pub struct GenerateJob(Option<Box<Zeroizing<[u8; SEED_BYTES]>>>);

impl GenerateJob {
    /// Makes a key from the operating system's randomness.
    pub fn new() -> GenerateJob {
        GenerateJob(None)
    }

    /// Makes the key of this seed, which must be secret and uniformly random.
    pub fn from_seed(seed: &[u8; SEED_BYTES]) -> GenerateJob {
        GenerateJob(Some(Box::new(Zeroizing::new(*seed))))
    }
}

impl std::fmt::Debug for GenerateJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenerateJob").finish_non_exhaustive()
    }
}

queued! {
    OwnedSign: SignJob<'static> => Signature;
    OwnedVerify: VerifyJob<'static> => bool;
    OwnedGenerate: KeygenJob<'static> => SigningKey;
}

/// A message that is the job's own.
enum OwnedMessage {
    Bytes(Vec<u8>),
    Block(Box<[Fe; params::MUSIZE]>),
    Mu(Box<[Fe; params::MUSIZE]>),
}

impl OwnedMessage {
    fn new(message: JobMessage<'_>) -> OwnedMessage {
        match message {
            JobMessage::Bytes(bytes) => OwnedMessage::Bytes(bytes.into_owned()),
            JobMessage::Block(block) => OwnedMessage::Block(Box::new(*block)),
            JobMessage::Mu(mu) => OwnedMessage::Mu(Box::new(*mu)),
        }
    }

    fn borrowed(&self) -> JobMessage<'_> {
        match self {
            OwnedMessage::Bytes(bytes) => bytes.into(),
            OwnedMessage::Block(block) => JobMessage::Block(block),
            OwnedMessage::Mu(mu) => JobMessage::Mu(mu),
        }
    }
}

fn length(message: &JobMessage<'_>) -> usize {
    match message {
        JobMessage::Bytes(bytes) => bytes.len(),
        JobMessage::Block(fes) | JobMessage::Mu(fes) => size_of_val(*fes),
    }
}

/// A [`SignJob`] that borrows nothing.
pub struct OwnedSign {
    key: JobKey<'static, SigningKey>,
    message: OwnedMessage,
}

impl OwnedSign {
    fn lend(&self) -> Result<SignJob<'_>, Error> {
        Ok(SignJob::new(&*self.key, self.message.borrowed()))
    }
}

impl Submit for SignJob<'_> {
    type Out = Signature;
    type Owned = OwnedSign;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(length(&self.message))
    }

    fn own(self) -> OwnedSign {
        OwnedSign { key: own_key(self.key), message: OwnedMessage::new(self.message) }
    }
}

/// A [`VerifyJob`] that borrows nothing.
pub struct OwnedVerify {
    key: JobKey<'static, VerifyingKey>,
    message: OwnedMessage,
    signature: Vec<u8>,
}

impl OwnedVerify {
    fn lend(&self) -> Result<VerifyJob<'_>, Error> {
        Ok(VerifyJob::new(&*self.key, self.message.borrowed(), &self.signature))
    }
}

impl Submit for VerifyJob<'_> {
    type Out = bool;
    type Owned = OwnedVerify;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(length(&self.message) + self.signature.len())
    }

    fn own(self) -> OwnedVerify {
        let (key, message) = (own_key(self.key), OwnedMessage::new(self.message));
        OwnedVerify { key, message, signature: self.signature.into_owned() }
    }
}

/// A [`GenerateJob`] with its seed, or why there is none.
pub struct OwnedGenerate(Result<Box<Zeroizing<[u8; SEED_BYTES]>>, Error>);

impl OwnedGenerate {
    fn lend(&self) -> Result<KeygenJob<'_>, Error> {
        self.0.as_ref().map(|seed| KeygenJob(Some(seed))).map_err(Clone::clone)
    }
}

impl Submit for GenerateJob {
    type Out = SigningKey;
    type Owned = OwnedGenerate;

    fn size(&mut self) -> Result<Size, Error> {
        one_of(SEED_BYTES)
    }

    fn own(self) -> OwnedGenerate {
        OwnedGenerate(self.0.map_or_else(SigningKey::random_seed, Ok))
    }
}
