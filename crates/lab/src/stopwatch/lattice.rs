//! zkDilithium under the stopwatch.

use super::rows::{all_signed, all_valid, memory};
use super::{DISTINCT, Measurement, Times, have_memory, kernels, message, repeat, until_used_up, wrong};
use crate::args::{MachineOptions, RowMemory};
use crate::failure::Failure;
use crate::machine::{self, Limits};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus};
use hypergrove::zkdilithium::params::{SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{
    Engine, Message, RowVerifyingKeys, SignJob, SignRows, Signature, SigningKey, VerifyJob, VerifyRows, VerifyingKey,
};
use hypergrove::{Error, Op, Work};
use hypergrove_zkdilithium::{Trace, reference};
use std::time::{Duration, Instant};

/// Different signatures among those that a GPU verifies: more than a server's caches hold.
const DISTINCT_ON_GPUS: usize = (1 << 29) / SIG_BYTES;

/// A measurement, and what it says of Poseidon.
pub(crate) struct Measured {
    pub(crate) measurement: Measurement,
    /// Permutations a second, on average, and the bound of what computed them. None for key pairs, which need none.
    pub(crate) poseidon_per_s: Option<f64>,
    pub(crate) poseidon_limit: Option<f64>,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) op: Op,
    /// `None`: enough jobs to fill the devices.
    pub(crate) batch: Option<usize>,
    /// Time for the timed runs.
    pub(crate) budget: Duration,
    /// Rows in memory of this kind, not jobs of an iterator.
    pub(crate) rows: Option<RowMemory>,
}

/// Measures. An answer that is wrong is an error.
pub(crate) fn measure(engine: &Engine, question: Question, options: &MachineOptions) -> Result<Measured, Failure> {
    let Question { op, batch, budget, rows } = question;
    let threads = engine.threads();
    let of_scheme = match op {
        Op::Keygen => hypergrove_zkdilithium::Op::Keygen,
        Op::Sign => hypergrove_zkdilithium::Op::Sign,
        Op::Verify => hypergrove_zkdilithium::Op::Verify,
        Op::Cache => return Err(Failure::new("caching is no operation of this scheme")),
    };
    let before = Limits::of(engine.rates(), options);
    let clock = machine::clock();
    let batch = batch.map_or_else(|| engine.jobs_to_fill(of_scheme), Ok)?;
    // A program's worth of jobs, for the kernels' own time.
    let program = engine.jobs_per_program(of_scheme)?.map(|jobs| jobs.min(batch));
    let (times, kernels) = match (op, rows) {
        (Op::Keygen, None) => keygen(engine, batch, budget, program)?,
        (Op::Sign, None) => sign(engine, batch, budget, program)?,
        (_, None) => verify(engine, batch, budget, program)?,
        (Op::Keygen, Some(rows)) => keygen_rows(engine, rows, batch, budget, program)?,
        (Op::Sign, Some(rows)) => sign_rows(engine, rows, batch, budget, program)?,
        (_, Some(rows)) => verify_rows(engine, rows, batch, budget, program)?,
    };
    // Of several devices each has a time of its own.
    let kernels = kernels.filter(|_| engine.devices().len() == 1);
    let limits = before.best(Limits::of(engine.rates(), options));
    let threads = threads.min(batch);
    // The highest clock that was seen: the bound is that of the cycles there were.
    let clock = clock.zip(machine::clock()).map(|(before, after)| before.max(after));
    // Of a CPU, that of the threads which had jobs.
    let share = if program.is_some() { 1.0 } else { threads as f64 / engine.threads() as f64 };
    let bound = engine.poseidon_rate(clock)?.map(|rate| rate * share);
    let work = of_scheme.work();
    let hashing = limits.seconds(&Work { keccak: work.keccak, ..Work::default() }, threads);
    let hashes = work.poseidon > 0.0;
    let permuting = if hashes { bound.map(|bound| work.poseidon / bound) } else { Some(0.0) };
    let ideal = hashing.zip(permuting).map(|(hashing, permuting)| batch as f64 * (hashing + permuting));
    let measurement = Measurement { times, batch, threads, limits, ideal, kernels, build: None };
    let rate = kernels.map_or(measurement.ops_per_s(), |seconds| 1.0 / seconds);
    Ok(Measured {
        poseidon_per_s: hashes.then_some(work.poseidon * rate),
        poseidon_limit: bound.filter(|_| hashes),
        measurement,
    })
}

/// Distinct seeds; those of benchmarks need not be secret.
fn seed(number: usize) -> [u8; SEED_BYTES] {
    let mut seed = [1; SEED_BYTES];
    seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
    seed
}

/// Times of whole runs, and seconds a job of kernels alone.
type Answer = Result<(Times, Option<f64>), Failure>;

fn keygen(engine: &Engine, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let seeds: Vec<_> = (0..batch).map(seed).collect();
    // Nothing here is secret.
    let (mut answer, mut keys) = (vec![0; batch * SK_BYTES], vec![0; batch * SK_BYTES]);
    engine.keygen_rows_from_seeds(&seeds, &mut answer, None)?;
    if answer[(batch - 1) * SK_BYTES..] != **reference::keygen(&seeds[batch - 1]).to_bytes() {
        return Err(wrong("the reference makes another key from the same seed"));
    }
    // The first time takes the memory that all others use again.
    engine.keygen_rows_from_seeds(&seeds, &mut keys, None)?;
    let times = until_used_up(budget, || {
        let start = Instant::now();
        engine.keygen_rows_from_seeds(&seeds, &mut keys, None)?;
        let time = start.elapsed();
        if keys == answer { Ok(time) } else { Err(wrong("two runs of the same work differ")) }
    })?;
    let few = |jobs: usize| Ok(engine.keygen_rows_from_seeds(&seeds[..jobs], &mut keys[..jobs * SK_BYTES], None)?);
    Ok((times, kernels(|| engine.timing().execute, program, few)?))
}

fn sign_all(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>]) -> Result<Vec<Signature>, Failure> {
    let signatures = engine.sign_batch_to_vec(messages.iter().map(|message| SignJob::new(key, message)))?;
    Ok(signatures.into_iter().collect::<Result<_, _>>()?)
}

/// The verdicts on signature i, counted around, of message i.
fn verify_all(
    engine: &Engine,
    key: &VerifyingKey,
    messages: &[Vec<u8>],
    signatures: &[Signature],
) -> Result<Vec<Result<bool, Error>>, Failure> {
    let pairs = messages.iter().zip(signatures.iter().cycle());
    let jobs = pairs.map(|(message, signature)| VerifyJob::new(key, message, signature.as_bytes()));
    Ok(engine.verify_batch_to_vec(jobs)?)
}

/// The engine accepts all of them, the reference accepts the first, and with one bit changed the engine refuses that.
fn check(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>], signatures: &[Signature]) -> Result<(), Failure> {
    let public = key.verifying_key();
    if !verify_all(engine, &public, messages, signatures)?.iter().all(|valid| *valid == Ok(true)) {
        return Err(wrong("a signature that was just made does not verify"));
    }
    let (first, mut bytes) = (Message::Bytes(&messages[0]), signatures[0].as_bytes().to_vec());
    if !reference::verify(public.expanded(), first, &bytes, &mut Trace::default()) {
        return Err(wrong("the reference refuses a signature that was just made"));
    }
    bytes[SIG_BYTES / 2] ^= 1;
    if engine.verify(&public, first, &bytes)? {
        return Err(wrong("a changed signature verifies"));
    }
    Ok(())
}

fn sign(engine: &Engine, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let key = SigningKey::from_seed(&seed(0));
    let messages: Vec<Vec<u8>> = (0..batch).map(message).collect();
    let signatures = sign_all(engine, &key, &messages)?;
    check(engine, &key, &messages, &signatures)?;
    let times = repeat(budget, &signatures, || sign_all(engine, &key, &messages))?;
    Ok((
        times,
        kernels(|| engine.timing().execute, program, |jobs| sign_all(engine, &key, &messages[..jobs]).map(drop))?,
    ))
}

fn verify(engine: &Engine, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let key = SigningKey::from_seed(&seed(0));
    let distinct = if have_memory(&engine.devices()) { DISTINCT_ON_GPUS } else { DISTINCT };
    let distinct: Vec<Vec<u8>> = (0..batch.min(distinct)).map(message).collect();
    let signatures = sign_all(engine, &key, &distinct)?;
    check(engine, &key, &distinct, &signatures)?;
    let messages: Vec<Vec<u8>> = distinct.iter().cycle().take(batch).cloned().collect();
    let public = key.verifying_key();
    let all = |messages: &[Vec<u8>]| verify_all(engine, &public, messages, &signatures);
    let times = repeat(budget, &vec![Ok(true); batch], || all(&messages))?;
    Ok((times, kernels(|| engine.timing().execute, program, |jobs| all(&messages[..jobs]).map(drop))?))
}

/// Private keys alone, which contain ρ and t.
fn keygen_rows(engine: &Engine, rows: RowMemory, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let seeds: Vec<_> = (0..batch).map(seed).collect();
    let mut answer = vec![0; batch * SK_BYTES];
    engine.keygen_rows_from_seeds(&seeds, &mut answer, None)?;
    let mut private = memory(Some(rows), |bytes| engine.memory(bytes), batch * SK_BYTES)?;
    let mut keygen = |jobs: usize| {
        let private = &mut private[..jobs * SK_BYTES];
        let start = Instant::now();
        engine.keygen_rows_from_seeds(&seeds[..jobs], private, None)?;
        let time = start.elapsed();
        match *private == answer[..jobs * SK_BYTES] {
            true => Ok(time),
            false => Err(wrong("rows of keys differ from jobs of the same seeds")),
        }
    };
    keygen(batch)?;
    let times = until_used_up(budget, || keygen(batch))?;
    Ok((times, kernels(|| engine.timing().execute, program, |jobs| keygen(jobs).map(drop))?))
}

/// Signs messages of one length; gives the time that it took.
fn sign_packed(
    engine: &Engine,
    key: &SigningKey,
    messages: &[Vec<u8>],
    signatures: &mut [u8],
) -> Result<Duration, Failure> {
    let (packed, width) = (messages.concat(), messages[0].len());
    let mut statuses = vec![RowStatus::default(); messages.len()];
    let rows = SignRows { keys: RowSigningKeys::One(key), messages: Column::packed(&packed, width).into() };
    let start = Instant::now();
    engine.sign_rows(&rows, signatures, &mut statuses)?;
    let time = start.elapsed();
    all_signed(&statuses)?;
    Ok(time)
}

/// Signatures as the other calls take them.
fn unpacked(signatures: &[u8]) -> Result<Vec<Signature>, Failure> {
    let each = signatures.chunks(SIG_BYTES).map(Signature::from_bytes);
    Ok(each.collect::<Result<_, _>>()?)
}

fn sign_rows(engine: &Engine, rows: RowMemory, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let key = SigningKey::from_seed(&seed(0));
    let messages: Vec<Vec<u8>> = (0..batch).map(message).collect();
    let mut signatures = memory(Some(rows), |bytes| engine.memory(bytes), batch * SIG_BYTES)?;
    sign_packed(engine, &key, &messages, &mut signatures)?;
    let answer = signatures.to_vec();
    check(engine, &key, &messages, &unpacked(&answer)?)?;
    let mut sign = |jobs: usize| {
        let signatures = &mut signatures[..jobs * SIG_BYTES];
        let time = sign_packed(engine, &key, &messages[..jobs], signatures)?;
        match *signatures == answer[..jobs * SIG_BYTES] {
            true => Ok(time),
            false => Err(wrong("two runs of the same work differ")),
        }
    };
    let times = until_used_up(budget, || sign(batch))?;
    Ok((times, kernels(|| engine.timing().execute, program, |jobs| sign(jobs).map(drop))?))
}

/// Slices of fewer signatures, as of SLH-DSA.
fn verify_rows(engine: &Engine, rows: RowMemory, batch: usize, budget: Duration, program: Option<usize>) -> Answer {
    let key = SigningKey::from_seed(&seed(0));
    let distinct = if have_memory(&engine.devices()) { DISTINCT_ON_GPUS } else { DISTINCT };
    let messages: Vec<Vec<u8>> = (0..batch.min(distinct)).map(message).collect();
    let mut signatures = memory(Some(rows), |bytes| engine.memory(bytes), messages.len() * SIG_BYTES)?;
    sign_packed(engine, &key, &messages, &mut signatures)?;
    check(engine, &key, &messages, &unpacked(&signatures)?)?;
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).cycle().take(batch).collect();
    let signatures: Vec<&[u8]> = signatures.chunks(SIG_BYTES).cycle().take(batch).collect();
    let public = key.verifying_key();
    let verify = |jobs: usize| {
        let rows = VerifyRows {
            keys: RowVerifyingKeys::One(&public),
            messages: Column::Slices(&messages[..jobs]).into(),
            signatures: Column::Slices(&signatures[..jobs]),
        };
        let mut statuses = vec![RowStatus::default(); jobs];
        let start = Instant::now();
        engine.verify_rows(&rows, &mut statuses)?;
        let time = start.elapsed();
        all_valid(&statuses)?;
        Ok(time)
    };
    verify(batch)?;
    let times = until_used_up(budget, || verify(batch))?;
    Ok((times, kernels(|| engine.timing().execute, program, |jobs| verify(jobs).map(drop))?))
}
