//! zkDilithium under the stopwatch.

use super::{DISTINCT, Measurement, Times, message, repeat, wrong};
use crate::failure::Failure;
use crate::machine::Limits;
use hypergrove::Op;
use hypergrove::zkdilithium::params::{SEED_BYTES, SIG_BYTES};
use hypergrove::zkdilithium::{Engine, Message, SignJob, Signature, SigningKey, VerifyJob, VerifyingKey};
use hypergrove_zkdilithium::{Trace, reference};
use std::time::Duration;

/// Jobs for each thread where no number is given: enough to fill lanes and refill them.
const JOBS: usize = 512;

/// Measures. An answer that is wrong is an error.
pub(crate) fn measure(engine: &Engine, op: Op, batch: Option<usize>, budget: Duration) -> Result<Measurement, Failure> {
    let threads = engine.threads();
    let batch = batch.unwrap_or(JOBS * threads);
    let times = match op {
        Op::Keygen => keygen(engine, batch, budget)?,
        Op::Sign => sign(engine, batch, budget)?,
        Op::Verify => verify(engine, batch, budget)?,
        Op::Cache => return Err(Failure::new("caching is no operation of this scheme")),
    };
    let threads = threads.min(batch);
    Ok(Measurement { times, batch, threads, limits: Limits::UNKNOWN, ideal: None, kernels: None, build: None })
}

/// Distinct seeds; those of benchmarks need not be secret.
fn seed(number: usize) -> [u8; SEED_BYTES] {
    let mut seed = [1; SEED_BYTES];
    seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
    seed
}

fn keygen(engine: &Engine, batch: usize, budget: Duration) -> Result<Times, Failure> {
    let seeds: Vec<_> = (0..batch).map(seed).collect();
    let keys = engine.keygen_batch(&seeds);
    if *keys[batch - 1].as_ref() != reference::keygen(&seeds[batch - 1]) {
        return Err(wrong("the reference makes another key from the same seed"));
    }
    repeat(budget, &keys, || Ok(engine.keygen_batch(&seeds)))
}

fn sign_all(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>]) -> Vec<Signature> {
    let job = |message| SignJob { key, message: Message::Bytes(message) };
    engine.sign_batch(&messages.iter().map(|message| job(message)).collect::<Vec<_>>())
}

/// The verdicts on signature i, counted around, of message i.
fn verify_all<'a>(
    engine: &Engine,
    key: &'a VerifyingKey,
    messages: &'a [Vec<u8>],
    signatures: &'a [Signature],
) -> Vec<bool> {
    let pairs = messages.iter().zip(signatures.iter().cycle());
    let job = |(message, signature): (&'a Vec<u8>, &'a Signature)| VerifyJob {
        key,
        message: Message::Bytes(message),
        signature: signature.as_bytes(),
    };
    engine.verify_batch(&pairs.map(job).collect::<Vec<_>>())
}

/// The engine accepts all of them, the reference accepts the first, and with one bit changed the engine refuses that.
fn check(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>], signatures: &[Signature]) -> Result<(), Failure> {
    let public = key.verifying_key();
    if !verify_all(engine, &public, messages, signatures).iter().all(|valid| *valid) {
        return Err(wrong("a signature that was just made does not verify"));
    }
    let (first, mut bytes) = (Message::Bytes(&messages[0]), signatures[0].as_bytes().to_vec());
    if !reference::verify(public.expanded(), first, &bytes, &mut Trace::default()) {
        return Err(wrong("the reference refuses a signature that was just made"));
    }
    bytes[SIG_BYTES / 2] ^= 1;
    let changed = VerifyJob { key: &public, message: first, signature: &bytes };
    if engine.verify_batch(&[changed]) != [false] {
        return Err(wrong("a changed signature verifies"));
    }
    Ok(())
}

fn sign(engine: &Engine, batch: usize, budget: Duration) -> Result<Times, Failure> {
    let key = SigningKey::from_seed(&seed(0));
    let messages: Vec<Vec<u8>> = (0..batch).map(message).collect();
    let signatures = sign_all(engine, &key, &messages);
    check(engine, &key, &messages, &signatures)?;
    repeat(budget, &signatures, || Ok(sign_all(engine, &key, &messages)))
}

fn verify(engine: &Engine, batch: usize, budget: Duration) -> Result<Times, Failure> {
    let key = SigningKey::from_seed(&seed(0));
    let distinct: Vec<Vec<u8>> = (0..batch.min(DISTINCT)).map(message).collect();
    let signatures = sign_all(engine, &key, &distinct);
    check(engine, &key, &distinct, &signatures)?;
    let messages: Vec<Vec<u8>> = distinct.iter().cycle().take(batch).cloned().collect();
    let public = key.verifying_key();
    repeat(budget, &vec![true; batch], || Ok(verify_all(engine, &public, &messages, &signatures)))
}
