//! One message: its signature, its verdict, its sum.

use crate::engine::check_flags;
use crate::failure::{Failure, Status, call, verdict};
use crate::pointers::{In, Out, Span, c_structs};
use crate::schemes::{InC, Key, PrivateKey, PublicKey, Set, of_scheme};
use crate::sets::prehash;
use hypergrove::rows::{Column, RowStatus};
use hypergrove::scheme::{SignJob, VerifyJob};
use hypergrove::{Engine, Mode, Randomizer};

c_structs! {
    /// `hg_message_options`.
    MessageOptions is "hg_message_options" {
        size: usize,
        context: In<u8>,
        context_length: usize,
        randomizer: In<u8>,
        randomizer_length: usize,
        prehash: u32,
        flags: u32,
    }
}

pub(crate) const DETERMINISTIC: u32 = 1;
pub(crate) const MESSAGE_IS_DIGEST: u32 = 2;
pub(crate) const INTERNAL_INTERFACE: u32 = 4;
/// All of them.
pub(crate) const FLAGS: u32 = DETERMINISTIC | MESSAGE_IS_DIGEST | INTERNAL_INTERFACE;
/// In place of a hash function's number: the message is not hashed first.
pub(crate) const PURE: u32 = 0;

/// A value that a scheme reads from message options.
pub(crate) trait OfOptions<'a>: Sized {
    fn of(options: &'a MessageOptions) -> Result<Self, Failure>;
}

/// How messages of SLH-DSA become M′.
impl<'a> OfOptions<'a> for Mode<'a> {
    fn of(options: &'a MessageOptions) -> Result<Mode<'a>, Failure> {
        check_flags(options.flags, FLAGS)?;
        let context = options.context.slice(options.context_length, "context")?;
        let is_digest = options.flags & MESSAGE_IS_DIGEST != 0;
        if options.flags & INTERNAL_INTERFACE != 0 {
            if !context.is_empty() || options.prehash != PURE || is_digest {
                let text = "flags: FIPS 205's internal interface has neither context nor pre-hash; leave them out";
                return Err(Failure::bad_input(text.into()));
            }
            return Ok(Mode::Internal);
        }
        match (options.prehash, is_digest) {
            (PURE, false) => Ok(Mode::Pure { context }),
            (PURE, true) => {
                Err(Failure::bad_input("flags: a digest of which hash function? name it in prehash".into()))
            }
            (hash, false) => Ok(Mode::PreHash { context, hash: prehash(hash)? }),
            (hash, true) => Ok(Mode::Digest { context, hash: prehash(hash)? }),
        }
    }
}

/// Where opt_rand of SLH-DSA comes from.
impl<'a> OfOptions<'a> for Randomizer<'a> {
    fn of(options: &'a MessageOptions) -> Result<Randomizer<'a>, Failure> {
        let is_deterministic = options.flags & DETERMINISTIC != 0;
        match (options.randomizer.is_null() && options.randomizer_length == 0, is_deterministic) {
            (true, false) => Ok(Randomizer::Hedged),
            (true, true) => Ok(Randomizer::Deterministic),
            (false, false) => Ok(Randomizer::Given(options.randomizer.slice(options.randomizer_length, "randomizer")?)),
            (false, true) => Err(Failure::bad_input(
                "randomizer: a deterministic signature takes none; give one or the other".into(),
            )),
        }
    }
}

impl MessageOptions {
    /// The memory that is read besides the structure.
    pub(crate) fn spans(&self) -> [Span; 2] {
        [self.context.span(self.context_length, "context"), self.randomizer.span(self.randomizer_length, "randomizer")]
    }
}

/// Refuses a signature of another length than the set's.
pub(crate) fn check_signature(set: Set, length: usize) -> Result<(), Failure> {
    match set.sizes().signature {
        size if size == length => Ok(()),
        size => {
            Err(Failure::bad_input(format!("a signature of {} has {size} bytes, this one has {length}", set.name())))
        }
    }
}

/// The job of signing a message, which shares the key.
pub(crate) fn sign_job<'a, S: InC>(
    of: &Key<S, S::SigningKey>,
    options: &'a MessageOptions,
    message: &'a [u8],
) -> Result<SignJob<'a, S>, Failure> {
    let (mode, randomizer) = (OfOptions::of(options)?, OfOptions::of(options)?);
    Ok(SignJob { key: of.key.clone().into(), mode, message: message.into(), randomizer })
}

/// The job of verifying a signature, likewise.
pub(crate) fn verify_job<'a, S: InC>(
    of: &Key<S, S::VerifyingKey>,
    options: &'a MessageOptions,
    message: &'a [u8],
    signature: &'a [u8],
) -> Result<VerifyJob<'a, S>, Failure> {
    let (key, mode) = (of.key.clone().into(), OfOptions::of(options)?);
    Ok(VerifyJob { key, mode, message: message.into(), signature: signature.into() })
}

#[unsafe(no_mangle)]
extern "C" fn hg_sign(
    engine: In<Engine>,
    key: In<PrivateKey>,
    options: In<MessageOptions>,
    message: In<u8>,
    message_length: usize,
    mut signature: Out<u8>,
    signature_length: usize,
) -> Status {
    call(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        check_signature(key.set(), signature_length)?;
        let [context, randomizer] = options.spans();
        let others = [message.span(message_length, "message"), context, randomizer];
        let out = signature.slice(signature_length, "signature", &others)?;
        let message = message.slice(message_length, "message")?;
        of_scheme!(key, key => out.copy_from_slice(engine.run(sign_job(key, &options, message)?)?.as_ref()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_verify(
    engine: In<Engine>,
    key: In<PublicKey>,
    options: In<MessageOptions>,
    message: In<u8>,
    message_length: usize,
    signature: In<u8>,
    signature_length: usize,
) -> Status {
    verdict(|| {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let message = message.slice(message_length, "message")?;
        let signature = signature.slice(signature_length, "signature")?;
        check_signature(key.set(), signature_length)?;
        Ok(of_scheme!(key, key => engine.run(verify_job(key, &options, message, signature)?)?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_sha256(engine: In<Engine>, message: In<u8>, message_length: usize, mut sum: Out<u8>) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let out = sum.slice(32, "sum", &[message.span(message_length, "message")])?;
        let message = message.slice(message_length, "message")?;
        Ok(engine.sha256_rows(Column::Slices(&[message]), out, &mut [RowStatus::default()])?)
    })
}
