//! Rows under the stopwatch: columns in ordinary memory, or in memory that devices reach, packed but for those that are verified,
//! which are slices of fewer signatures. Results go into memory that is used again.

use super::{Answer, Question, check, distinct, have_memory, kernels, message, seeds, until_used_up, wrong};
use crate::args::RowMemory;
use crate::failure::Failure;
use hypergrove::rows::{Column, Memory, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{Engine, Error, Mode, Op, Randomizer, Signature, SigningKey, VerifyingKey};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

/// Measures. An answer that is wrong is an error.
pub(super) fn measure(
    engine: &Engine,
    question: Question,
    batch: usize,
    program: Option<usize>,
) -> Result<Answer, Failure> {
    match question.op {
        Op::Keygen => keygen(engine, question, batch, program),
        Op::Sign => sign(engine, question, batch, program),
        _ => verify(engine, question, batch, program),
    }
}

/// Memory for rows, of this kind; `reachable` asks an engine for memory that devices reach.
pub(super) fn memory(
    kind: Option<RowMemory>,
    reachable: impl FnOnce(usize) -> Result<Memory, Error>,
    bytes: usize,
) -> Result<Box<dyn DerefMut<Target = [u8]>>, Failure> {
    Ok(match kind {
        Some(RowMemory::Device) => {
            let memory = reachable(bytes)?;
            if memory.devices().is_empty() {
                return Err(Failure::new("no device reaches memory of the host here; measure --rows host"));
            }
            Box::new(memory)
        }
        _ => Box::new(vec![0; bytes]),
    })
}

/// Whether all rows were signed.
pub(super) fn all_signed(statuses: &[RowStatus]) -> Result<(), Failure> {
    all_are(RowStatus::Signed, statuses, "a row was not signed")
}

/// Whether all rows were found valid, as they are.
pub(super) fn all_valid(statuses: &[RowStatus]) -> Result<(), Failure> {
    all_are(RowStatus::Valid, statuses, "a row with a valid signature is not valid")
}

fn all_are(status: RowStatus, statuses: &[RowStatus], otherwise: &str) -> Result<(), Failure> {
    if statuses.iter().all(|found| *found == status) { Ok(()) } else { Err(wrong(otherwise)) }
}

fn keygen(engine: &Engine, question: Question, batch: usize, program: Option<usize>) -> Result<Answer, Failure> {
    let p = question.params;
    let each: Vec<_> = (0..batch).map(|number| seeds(p, number)).collect();
    let bytes: Vec<u8> = each.iter().flat_map(|it| [&it.sk_seed[..], &it.sk_prf, &it.pk_seed].concat()).collect();
    let answer: Vec<u8> = engine.from_seeds(p, &each)?.iter().flat_map(|key| key.to_bytes().to_vec()).collect();
    let mut private = memory(question.rows, |bytes| engine.memory(bytes), batch * p.sk_bytes())?;
    let mut public = memory(question.rows, |bytes| engine.memory(bytes), batch * p.pk_bytes())?;
    let mut keygen = |jobs: usize| {
        let (private, public) = (&mut private[..jobs * p.sk_bytes()], &mut public[..jobs * p.pk_bytes()]);
        let start = Instant::now();
        engine.keygen_rows_from_seeds(p, &bytes[..jobs * 3 * p.n], private, public)?;
        let time = start.elapsed();
        match *private == answer[..jobs * p.sk_bytes()] {
            true => Ok(time),
            false => Err(wrong("rows of keys differ from jobs of the same seeds")),
        }
    };
    keygen(batch)?;
    let times = until_used_up(question.budget, || keygen(batch))?;
    let kernels = kernels(|| engine.timing().execute, program, |jobs| keygen(jobs).map(drop))?;
    Ok(Answer { times, kernels, build: None })
}

/// Signs messages of one length, deterministically.
fn sign_rows(
    engine: &Engine,
    key: &SigningKey,
    messages: &[u8],
    width: usize,
    signatures: &mut [u8],
    statuses: &mut [RowStatus],
) -> Result<(), Failure> {
    let rows = SignRows {
        keys: RowSigningKeys::One(key),
        mode: Mode::default(),
        messages: Column::packed(messages, width),
        randomizer: Randomizer::Deterministic,
    };
    Ok(engine.sign_rows(&rows, signatures, statuses)?)
}

fn sign(engine: &Engine, question: Question, batch: usize, program: Option<usize>) -> Result<Answer, Failure> {
    let (p, size) = (question.params, question.params.sig_bytes());
    let key = engine.from_seeds(p, &[seeds(p, 0)])?.remove(0);
    let start = Instant::now();
    let key = engine.cache(&key, question.cached_layers)?;
    let build = (question.cached_layers > 0).then(|| start.elapsed().as_secs_f64());
    let each: Vec<Vec<u8>> = (0..batch).map(message).collect();
    let (messages, width) = (each.concat(), each[0].len());
    let (mut signatures, mut statuses) =
        (memory(question.rows, |bytes| engine.memory(bytes), batch * size)?, vec![RowStatus::default(); batch]);
    let mut sign = |jobs: usize| {
        let (signatures, statuses) = (&mut signatures[..jobs * size], &mut statuses[..jobs]);
        let start = Instant::now();
        sign_rows(engine, &key, &messages[..jobs * width], width, signatures, statuses)?;
        let time = start.elapsed();
        all_signed(statuses)?;
        Ok((time, signatures.to_vec()))
    };
    let (_, answer) = sign(batch)?;
    let all: Vec<Signature> =
        answer.chunks(size).map(|bytes| Signature::from_bytes(p, bytes)).collect::<Result<_, _>>()?;
    check(engine, &key, &each, &all)?;
    let times = until_used_up(question.budget, || {
        let (time, signatures) = sign(batch)?;
        if signatures == answer { Ok(time) } else { Err(wrong("two runs of the same work differ")) }
    })?;
    let kernels = kernels(|| engine.timing().execute, program, |jobs| sign(jobs).map(drop))?;
    Ok(Answer { times, kernels, build })
}

/// Verifies valid signatures; gives the time that it took.
pub(super) fn verify_all(
    engine: &Engine,
    key: &VerifyingKey,
    messages: &[&[u8]],
    signatures: &[&[u8]],
) -> Result<Duration, Failure> {
    let rows = VerifyRows {
        keys: RowVerifyingKeys::One(key),
        mode: Mode::default(),
        messages: Column::Slices(messages),
        signatures: Column::Slices(signatures),
    };
    let mut statuses = vec![RowStatus::default(); messages.len()];
    let start = Instant::now();
    engine.verify_rows(&rows, &mut statuses)?;
    let time = start.elapsed();
    all_valid(&statuses)?;
    Ok(time)
}

fn verify(engine: &Engine, question: Question, batch: usize, program: Option<usize>) -> Result<Answer, Failure> {
    let p = question.params;
    let key = engine.from_seeds(p, &[seeds(p, 0)])?.remove(0);
    let each: Vec<Vec<u8>> = (0..distinct(have_memory(&engine.devices()), p, batch)).map(message).collect();
    let (messages, width) = (each.concat(), each[0].len());
    let mut signatures = memory(question.rows, |bytes| engine.memory(bytes), each.len() * p.sig_bytes())?;
    let cached = engine.cache(&key, 1)?;
    sign_rows(engine, &cached, &messages, width, &mut signatures, &mut vec![RowStatus::default(); each.len()])?;
    let all: Vec<Signature> =
        signatures.chunks(p.sig_bytes()).map(|bytes| Signature::from_bytes(p, bytes)).collect::<Result<_, _>>()?;
    check(engine, &key, &each, &all)?;
    let messages: Vec<&[u8]> = messages.chunks(width).cycle().take(batch).collect();
    let signatures: Vec<&[u8]> = signatures.chunks(p.sig_bytes()).cycle().take(batch).collect();
    let public = key.verifying_key();
    let verify = |jobs: usize| verify_all(engine, &public, &messages[..jobs], &signatures[..jobs]);
    verify(batch)?;
    let times = until_used_up(question.budget, || verify(batch))?;
    let kernels = kernels(|| engine.timing().execute, program, |jobs| verify(jobs).map(drop))?;
    Ok(Answer { times, kernels, build: None })
}
