//! One message: its signature, its verdict, its sum.

use crate::engine::{Engine, check_flags};
use crate::failure::{Failure, Status, call, verdict};
use crate::keys::{PrivateKey, PublicKey};
use crate::pointers::{In, Out, Span, c_structs};
use crate::sets::{Set, prehash};
use hypergrove::{Messages, Mode, Randomizer};

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

const DETERMINISTIC: u32 = 1;
const MESSAGE_IS_DIGEST: u32 = 2;
const INTERNAL_INTERFACE: u32 = 4;

impl MessageOptions {
    /// How messages of SLH-DSA become M′.
    pub(crate) fn mode(&self) -> Result<Mode<'_>, Failure> {
        check_flags(self.flags, DETERMINISTIC | MESSAGE_IS_DIGEST | INTERNAL_INTERFACE)?;
        let context = self.context.slice(self.context_length, "context")?;
        let is_digest = self.flags & MESSAGE_IS_DIGEST != 0;
        if self.flags & INTERNAL_INTERFACE != 0 {
            if !context.is_empty() || self.prehash != 0 || is_digest {
                let text = "flags: FIPS 205's internal interface has neither context nor pre-hash; leave them out";
                return Err(Failure::bad_input(text.into()));
            }
            return Ok(Mode::Internal);
        }
        match (self.prehash, is_digest) {
            (0, false) => Ok(Mode::Pure { context }),
            (0, true) => Err(Failure::bad_input("flags: a digest of which hash function? name it in prehash".into())),
            (hash, false) => Ok(Mode::PreHash { context, hash: prehash(hash)? }),
            (hash, true) => Ok(Mode::Digest { context, hash: prehash(hash)? }),
        }
    }

    /// Where opt_rand of SLH-DSA comes from.
    pub(crate) fn randomizer(&self) -> Result<Randomizer<'_>, Failure> {
        let is_deterministic = self.flags & DETERMINISTIC != 0;
        match (self.randomizer.is_null() && self.randomizer_length == 0, is_deterministic) {
            (true, false) => Ok(Randomizer::Hedged),
            (true, true) => Ok(Randomizer::Deterministic),
            (false, false) => Ok(Randomizer::Given(self.randomizer.slice(self.randomizer_length, "randomizer")?)),
            (false, true) => Err(Failure::bad_input(
                "randomizer: a deterministic signature takes none; give one or the other".into(),
            )),
        }
    }

    /// What zkDilithium's calls ask for: nothing.
    pub(crate) fn check_none(&self) -> Result<(), Failure> {
        check_flags(self.flags, DETERMINISTIC | MESSAGE_IS_DIGEST | INTERNAL_INTERFACE)?;
        let is_plain = self.context_length == 0 && self.randomizer_length == 0 && self.prehash == 0 && self.flags == 0;
        match is_plain && self.randomizer.is_null() {
            true => Ok(()),
            false => Err(Failure::unsupported("zkDilithium has no message options; give NULL".into())),
        }
    }

    /// What is read besides the structure.
    pub(crate) fn spans(&self) -> [Span; 2] {
        [self.context.span(self.context_length, "context"), self.randomizer.span(self.randomizer_length, "randomizer")]
    }
}

/// Refuses a signature of another length than the set's.
pub(crate) fn check_signature(set: Set, length: usize) -> Result<(), Failure> {
    match set.signature_size() {
        size if size == length => Ok(()),
        size => {
            Err(Failure::bad_input(format!("a signature of {} has {size} bytes, this one has {length}", set.name())))
        }
    }
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
        match key {
            PrivateKey::SlhDsa(key) => {
                let signed = engine.slh_dsa.sign(key, options.mode()?, message, options.randomizer()?)?;
                out.copy_from_slice(signed.as_bytes());
            }
            PrivateKey::ZkDilithium(key) => {
                options.check_none()?;
                out.copy_from_slice(engine.zkdilithium.sign(key, message)?.as_bytes());
            }
        }
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
        match key {
            PublicKey::SlhDsa(key) => Ok(engine.slh_dsa.verify(key, options.mode()?, message, signature)?),
            PublicKey::ZkDilithium(key) => {
                options.check_none()?;
                Ok(engine.zkdilithium.verify(key, message, signature)?)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_sha256(engine: In<Engine>, message: In<u8>, message_length: usize, mut sum: Out<u8>) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let out = sum.slice(32, "sum", &[message.span(message_length, "message")])?;
        let message = message.slice(message_length, "message")?;
        let mut digest = [[0; 32]];
        engine.slh_dsa.sha256_batch(Messages::new(message, &[message_length])?, &mut digest)?;
        out.copy_from_slice(&digest[0]);
        Ok(())
    })
}
