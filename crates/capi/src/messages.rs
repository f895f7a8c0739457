//! One message: its signature, its verdict, its sum.

use crate::failure::{Failure, Status, call, verdict};
use crate::options::{MessageOptions, OfOptions};
use crate::pointers::{In, Out};
use crate::schemes::{InC, Key, PrivateKey, PublicKey, Set, of_scheme};
use hypergrove::Engine;
use hypergrove::rows::{Column, RowStatus};
use hypergrove::schemes::{SignJob, VerifyJob};

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
