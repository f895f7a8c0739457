//! The types that callers of SLH-DSA see: parameter sets, messages, the source of randomness, and seeds.

use super::read_message::ReadMessage;
use crate::jobs::{self, from_bytes};
use crate::random::random;
use crate::scheme::ParameterSet;
use hypergrove_engine::Error;
use hypergrove_fips205::{MPrime, Mode, Params};
use hypergrove_taint::declassify;
use std::borrow::Cow;
use std::ops::Deref;
use zeroize::{Zeroize, Zeroizing};

/// SLH-DSA (FIPS 205) with a parameter set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlhDsa(pub(super) &'static Params);

impl From<&'static Params> for SlhDsa {
    fn from(params: &'static Params) -> SlhDsa {
        SlhDsa(params)
    }
}

impl Deref for SlhDsa {
    type Target = Params;

    fn deref(&self) -> &Params {
        self.0
    }
}

impl ParameterSet for &'static Params {
    type Scheme = SlhDsa;
    fn scheme(self) -> SlhDsa {
        SlhDsa(self)
    }
}

/// A message to be signed with SLH-DSA.
///
/// ```
/// use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
///
/// let engine = Engine::new()?;
/// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
/// let job = SignJob::new(&key, b"Dear reader").context(b"letters").deterministic();
/// engine.sign_batch([job], |_, signature| assert!(signature.is_ok()))?;
/// # Ok::<(), hypergrove::Error>(())
/// ```
pub type SignJob<'a> = jobs::SignJob<'a, SlhDsa>;

/// A signature of SLH-DSA to be verified.
pub type VerifyJob<'a> = jobs::VerifyJob<'a, SlhDsa>;

/// A message as the engine takes it.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A message that was read before, in pieces.
    Read(&'a ReadMessage),
}

impl<'a> Message<'a> {
    /// Bytes that are to be hashed: too many for any device if the message is not there any more.
    pub(super) fn hashed_bytes(self, mode: Mode<'_>) -> usize {
        match self {
            Message::Bytes(message) => MPrime::bytes(mode, message).max(message.len()),
            Message::Read(_) => usize::MAX,
        }
    }

    pub(super) fn m_prime(self, mode: Mode<'a>) -> MPrime<'a> {
        match self {
            Message::Bytes(message) => m_prime(mode, message),
            Message::Read(_) => unreachable!("it has too many bytes for a device that hashes"),
        }
    }
}

/// The message of a job: bytes, which the job borrows or owns, or a message that was read before.
#[derive(Clone, Debug)]
pub enum JobMessage<'a> {
    /// Any number of bytes. If the job owns them, they count against the memory budget.
    Bytes(Cow<'a, [u8]>),
    /// A message of [`Engine::read_to_sign`](crate::Engine::read_to_sign) or [`Engine::read_to_verify`](crate::Engine::read_to_verify), for the
    /// key and the mode that it was read for.
    Read(ReadMessage),
}

impl JobMessage<'_> {
    /// The message.
    pub fn borrowed(&self) -> Message<'_> {
        match self {
            JobMessage::Bytes(bytes) => Message::Bytes(bytes),
            JobMessage::Read(read) => Message::Read(read),
        }
    }
}

impl<'a> From<Message<'a>> for JobMessage<'a> {
    fn from(message: Message<'a>) -> JobMessage<'a> {
        match message {
            Message::Bytes(bytes) => JobMessage::Bytes(bytes.into()),
            Message::Read(read) => JobMessage::Read(read.clone()),
        }
    }
}

from_bytes!(JobMessage);

/// Where the randomness of a signature comes from: opt_rand of FIPS 205, section 9.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomizer<'a> {
    /// The default: n fresh bytes from the operating system.
    #[default]
    Hedged,
    /// PK.seed, so the same message always has the same signature.
    Deterministic,
    /// These n bytes, which must be random.
    Given(&'a [u8]),
}

impl<'a> jobs::SignJob<'a, SlhDsa> {
    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> Self {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> Self {
        self.mode = mode;
        self
    }

    /// Signs without randomness, so that the message always has the same signature: [`Randomizer::Deterministic`].
    #[must_use]
    pub fn deterministic(self) -> Self {
        self.randomizer(Randomizer::Deterministic)
    }

    /// Sets where the randomness comes from.
    #[must_use]
    pub fn randomizer(mut self, randomizer: Randomizer<'a>) -> Self {
        self.randomizer = randomizer;
        self
    }
}

impl<'a> jobs::VerifyJob<'a, SlhDsa> {
    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> Self {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> Self {
        self.mode = mode;
        self
    }
}

/// The seeds that a key is made from, n random bytes each (FIPS 205, Algorithm 18). SK.seed and SK.prf are wiped on drop.
#[derive(Clone)]
pub struct Seeds {
    /// SK.seed.
    pub sk_seed: Zeroizing<Vec<u8>>,
    /// SK.prf.
    pub sk_prf: Zeroizing<Vec<u8>>,
    /// PK.seed.
    pub pk_seed: Vec<u8>,
}

impl Seeds {
    /// Makes seeds from the operating system's randomness. If there is none, the error is [`Error::Randomness`].
    pub fn random(p: &Params) -> Result<Seeds, Error> {
        let mut seeds = Seeds {
            sk_seed: Zeroizing::new(vec![0; p.n]),
            sk_prf: Zeroizing::new(vec![0; p.n]),
            pk_seed: vec![0; p.n],
        };
        for seed in [&mut *seeds.sk_seed, &mut *seeds.sk_prf, &mut seeds.pk_seed] {
            random(seed)?;
        }
        // PK.seed is the first half of the public key.
        declassify(&seeds.pk_seed[..]);
        Ok(seeds)
    }
}

impl std::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

/// Wipes SK.seed and SK.prf. PK.seed is public.
impl Zeroize for Seeds {
    fn zeroize(&mut self) {
        self.sk_seed.zeroize();
        self.sk_prf.zeroize();
    }
}

/// The input of a job.
pub struct Input<'a> {
    pub(super) mode: Mode<'a>,
    pub(super) message: JobMessage<'a>,
    pub(super) randomizer: Randomizer<'a>,
    /// If the input is owned, these replace all that the mode and the randomizer would borrow.
    pub(super) own: Option<Box<Own>>,
}

/// A context, and opt_rand if it is given.
pub(super) struct Own {
    context: Vec<u8>,
    given: Zeroizing<Vec<u8>>,
}

impl Input<'_> {
    pub(super) fn owned(mode: Mode<'_>, message: JobMessage<'_>, randomizer: Randomizer<'_>) -> Input<'static> {
        let given = if let Randomizer::Given(bytes) = randomizer { bytes } else { &[] };
        let own = Own { context: context(&mode).to_vec(), given: Zeroizing::new(given.to_vec()) };
        let mode = match mode {
            Mode::Internal => Mode::Internal,
            with_context => with_context.with_context(&[]),
        };
        let randomizer = match randomizer {
            Randomizer::Hedged => Randomizer::Hedged,
            Randomizer::Deterministic => Randomizer::Deterministic,
            Randomizer::Given(_) => Randomizer::Given(&[]),
        };
        let message = match message {
            JobMessage::Bytes(bytes) => JobMessage::Bytes(bytes.into_owned().into()),
            JobMessage::Read(read) => JobMessage::Read(read),
        };
        Input { mode, message, randomizer, own: Some(Box::new(own)) }
    }

    pub(super) fn read(&self) -> (Mode<'_>, Message<'_>, Randomizer<'_>) {
        let (mut mode, mut randomizer) = (self.mode, self.randomizer);
        if let Some(Own { context, given }) = self.own.as_deref() {
            if mode != Mode::Internal {
                mode = mode.with_context(context);
            }
            if randomizer == Randomizer::Given(&[]) {
                randomizer = Randomizer::Given(given);
            }
        }
        (mode, self.message.borrowed(), randomizer)
    }
}

pub(super) fn context<'a>(mode: &Mode<'a>) -> &'a [u8] {
    match *mode {
        Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. } => context,
        Mode::Internal => &[],
    }
}

/// M′ of a message whose mode was checked.
pub(super) fn m_prime<'a>(mode: Mode<'a>, message: &'a [u8]) -> MPrime<'a> {
    MPrime::new(mode, message).expect("the mode was checked")
}
