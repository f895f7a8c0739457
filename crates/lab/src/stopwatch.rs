//! The one stopwatch: every measurement is checked, and set against what the machine's hash rates allow.

pub(crate) mod callers;
pub(crate) mod lattice;
mod rows;

use crate::args::{MachineOptions, RowMemory, op_name};
use crate::failure::Failure;
use crate::machine::{self, Limits, rates_json};
use crate::record::Record;
use crate::version::{COMMIT, VERSION};
use hypergrove::backend::Plan;
use hypergrove::{Device, Engine, Op, Params, Seeds, SignJob, Signature, SigningKey, VerifyJob, VerifyingKey};
use hypergrove_fips205::reference;
use std::time::{Duration, Instant};

/// Runs that are timed at least.
const LEAST_RUNS: usize = 3;
/// Runs by which kernels alone are timed.
const KERNEL_RUNS: usize = 9;
/// Signatures that a batch which a CPU verifies consists of, over and over: making more would take longer than verifying them.
const DISTINCT: usize = 16;
/// Bytes of the signatures that a batch which a GPU verifies consists of: more than a server's caches hold.
const DISTINCT_BYTES: usize = 1 << 30;
/// Bytes of a message, as [`Plan::work`] counts them.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// What is measured.
#[derive(Clone, Copy)]
pub struct Question {
    /// The parameter set.
    pub params: &'static Params,
    /// The operation.
    pub op: Op,
    /// `None`: enough jobs to fill the machine.
    pub batch: Option<usize>,
    /// Signing with this many cached layers.
    pub cached_layers: usize,
    /// Time for the timed runs.
    pub budget: Duration,
    /// Rows in memory of this kind, not jobs of an iterator.
    pub rows: Option<RowMemory>,
}

impl Question {
    /// As many jobs as fill lanes and threads, and as take a tenth of a second at these rates if it can be had; or as keep
    /// devices with memory of their own busy.
    fn filling(&self, engine: &Engine, limits: &Limits) -> Result<usize, Failure> {
        let threads = engine.threads();
        let host = engine.devices().iter().all(|device| device.memory == 0);
        let Some(job) = limits.seconds(&self.plan().work(), threads).filter(|_| host) else {
            return Ok(engine.jobs_to_fill(self.params, self.op, self.cached_layers_of_keys())?);
        };
        let least = match self.op {
            // Verification has lanes across signatures alone.
            Op::Verify => 64,
            _ => 2,
        };
        Ok(((0.1 / job) as usize).next_power_of_two().clamp(least * threads, 1024.max(least * threads)))
    }

    /// Jobs of one program of the first device.
    fn program(&self, engine: &Engine) -> Result<usize, Failure> {
        Ok(engine.jobs_per_program(self.params, self.op, self.cached_layers_of_keys())?)
    }

    fn cached_layers_of_keys(&self) -> usize {
        if self.op == Op::Sign { self.cached_layers } else { 0 }
    }

    fn plan(&self) -> Plan {
        let plan = Plan::new(self.params, self.op);
        if self.op == Op::Sign { plan.with_cached_layers(self.cached_layers_of_keys()) } else { plan }
    }
}

/// Seconds of some runs, ascending; at least one.
#[derive(Clone)]
pub struct Times(Vec<f64>);

impl Times {
    pub(crate) fn new(mut seconds: Vec<f64>) -> Times {
        seconds.sort_by(f64::total_cmp);
        Times(seconds)
    }
    /// All of them.
    pub fn all(&self) -> &[f64] {
        &self.0
    }
    /// Half of the runs take longer.
    pub fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        if self.0.len() % 2 == 1 { self.0[middle] } else { (self.0[middle - 1] + self.0[middle]) / 2.0 }
    }
    /// The shortest run.
    pub fn min(&self) -> f64 {
        self.0[0]
    }
    /// From the first quartile to the third, as a share of the median.
    pub fn spread(&self) -> f64 {
        let last = self.0.len() - 1;
        (self.0[last * 3 / 4] - self.0[last / 4]) / self.median()
    }
}

/// A measurement whose answers were right.
pub struct Measurement {
    /// Of whole runs.
    pub times: Times,
    /// Jobs of a run.
    pub batch: usize,
    /// Threads that worked.
    pub threads: usize,
    /// How fast the machine hashes, measured before and after.
    pub limits: Limits,
    /// Seconds at these rates, if they are known.
    pub ideal: Option<f64>,
    /// Seconds a job of a device's kernels alone, its inputs being in its memory: median, with one program at a time.
    pub kernels: Option<f64>,
    /// Seconds that growing the nodes of cached layers took, if there are some.
    pub build: Option<f64>,
}

impl Measurement {
    /// As a record.
    pub(crate) fn record(&self, engine: &Engine, question: Question) -> Record {
        let (device, times) = (engine.device(), &self.times);
        let clock = if device.memory == 0 { machine::clock() } else { None };
        Record {
            set: question.params.name.into(),
            op: op_name(question.op).into(),
            batch: self.batch,
            devices: engine.devices().iter().map(Device::id).collect(),
            threads: self.threads,
            ops_per_s: self.ops_per_s(),
            ideal_s: self.ideal,
            limit_fraction: self.limit_fraction(),
            kernels_per_s: self.kernels_per_s(),
            kernels_limit_fraction: self.kernels_limit_fraction(),
            verified: true,
            cached_layers: question.cached_layers_of_keys(),
            rows: question.rows.map(|memory| memory.name().into()),
            build_s: self.build,
            rates: self.limits.core.as_ref().map(rates_json),
            limit: self.limits.all(self.threads).as_ref().map(rates_json),
            clock_hz: clock,
            ..Record::of(device).timed(times)
        }
    }
    /// Jobs a second, by the median.
    pub fn ops_per_s(&self) -> f64 {
        self.batch as f64 / self.times.median()
    }
    pub(crate) fn kernels_per_s(&self) -> Option<f64> {
        self.kernels.map(|seconds| 1.0 / seconds)
    }
    pub(crate) fn kernels_limit_fraction(&self) -> Option<f64> {
        Some(self.ideal? / self.batch as f64 / self.kernels?)
    }
    /// The ideal time over the median.
    pub fn limit_fraction(&self) -> Option<f64> {
        self.ideal.map(|ideal| ideal / self.times.median())
    }
}

impl Record {
    /// With what every record has.
    pub(crate) fn of(device: &Device) -> Record {
        Record {
            scheme: "SLH-DSA".into(),
            backend: device.backend.into(),
            device: device.name.clone(),
            detail: device.detail.clone(),
            devices: vec![device.id()],
            message_bytes: MESSAGE_BYTES,
            cores: Some(device.cores),
            version: VERSION.into(),
            commit: COMMIT.into(),
            ..Record::default()
        }
    }

    /// With what was timed.
    #[must_use]
    pub(crate) fn timed(self, times: &Times) -> Record {
        let (median_s, min_s, spread, runs) = (times.median(), times.min(), times.spread(), times.all().len());
        Record { median_s, min_s, spread, runs, times_s: times.all().to_vec(), ..self }
    }
}

/// Measures. An answer that is wrong is an error.
pub fn measure(engine: &Engine, question: Question, options: &MachineOptions) -> Result<Measurement, Failure> {
    let Question { params, op, budget, cached_layers, .. } = question;
    let before = Limits::measure(engine, options);
    let batch = question.batch.map_or_else(|| question.filling(engine, &before), Ok)?;
    let threads = engine.explain(params, op, batch)?.threads;
    // A program's worth of jobs, for the kernels' own time.
    let apart = have_memory(&engine.devices()) && engine.devices().len() == 1;
    let program = if apart { Some(question.program(engine)?.min(batch)) } else { None };
    let Answer { times, kernels, build } = match op {
        _ if question.rows.is_some() => rows::measure(engine, question, batch, program)?,
        Op::Keygen => keygen(engine, params, batch, budget, program)?,
        Op::Sign => sign(engine, params, batch, budget, (cached_layers, program))?,
        Op::Verify => verify(engine, params, batch, budget, program)?,
        Op::Cache => return Err(Failure::new("caching is no operation that is measured")),
    };
    let limits = before.best(Limits::measure(engine, options));
    let ideal = limits.seconds(&question.plan().work(), threads).map(|seconds| seconds * batch as f64);
    Ok(Measurement { times, batch, threads, limits, ideal, kernels, build })
}

/// Has `run` time itself until the budget is used up, and three times at least.
pub(crate) fn until_used_up(
    budget: Duration,
    mut run: impl FnMut() -> Result<Duration, Failure>,
) -> Result<Times, Failure> {
    let (mut times, mut used) = (Vec::new(), Duration::ZERO);
    while times.len() < LEAST_RUNS || used < budget {
        let time = run()?;
        used += time;
        times.push(time.as_secs_f64());
    }
    Ok(Times::new(times))
}

/// Times `run` until the budget is used up; every run must give the same right answer.
fn repeat<A: PartialEq>(
    budget: Duration,
    answer: &A,
    mut run: impl FnMut() -> Result<A, Failure>,
) -> Result<Times, Failure> {
    until_used_up(budget, || {
        let start = Instant::now();
        let got = run()?;
        let time = start.elapsed();
        if got == *answer { Ok(time) } else { Err(wrong("two runs of the same work differ")) }
    })
}

/// Seconds a job of the kernels alone, in runs of one program; `execute` tells how long kernels ran so far.
fn kernels(
    execute: impl Fn() -> Duration,
    program: Option<usize>,
    mut run: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Option<f64>, Failure> {
    let Some(jobs) = program else { return Ok(None) };
    let mut times = Vec::new();
    // The first run prepares the program.
    for round in 0..=KERNEL_RUNS {
        let before = execute();
        run(jobs)?;
        if round > 0 {
            times.push((execute() - before).as_secs_f64());
        }
    }
    Ok(Some(Times::new(times).median() / jobs as f64))
}

pub(crate) fn wrong(what: &str) -> Failure {
    Failure::new(format!("a wrong answer: {what}")).hint("distrust this machine, and report the fault")
}

/// Distinct seeds; those of benchmarks need not be secret.
fn seeds(p: &Params, number: usize) -> Seeds {
    let part = |which: u8| -> Vec<u8> {
        (0..p.n).map(|i| (number as u64).to_le_bytes().get(i).copied().unwrap_or(which)).collect()
    };
    Seeds { sk_seed: part(1).into(), sk_prf: part(2).into(), pk_seed: part(3) }
}

fn message(number: usize) -> Vec<u8> {
    let mut message = vec![0; MESSAGE_BYTES];
    message[..8].copy_from_slice(&(number as u64).to_le_bytes());
    message
}

/// Whether each of these devices has memory of its own.
fn have_memory(devices: &[Device]) -> bool {
    devices.iter().all(|device| device.memory > 0)
}

/// Different signatures among `jobs` that are verified. GPUs make them soon, and their host's memory would be spared too
/// much by what stays in caches.
pub(crate) fn distinct(gpus: bool, p: &Params, jobs: usize) -> usize {
    jobs.min(if gpus { DISTINCT_BYTES / p.sig_bytes() } else { DISTINCT })
}

/// Times of whole runs, seconds a job of kernels alone, and seconds that growing the cached nodes took.
struct Answer {
    times: Times,
    kernels: Option<f64>,
    build: Option<f64>,
}

fn keygen(
    engine: &Engine,
    p: &'static Params,
    batch: usize,
    budget: Duration,
    program: Option<usize>,
) -> Result<Answer, Failure> {
    let seeds: Vec<Seeds> = (0..batch).map(|number| seeds(p, number)).collect();
    let keys = engine.from_seeds(p, &seeds)?;
    let last = &seeds[batch - 1];
    let root = reference::pk_root(p, &last.sk_seed, &last.pk_seed);
    if keys[batch - 1].as_ref().pk_root() != root {
        return Err(wrong("the reference makes another key from the same seeds"));
    }
    let times = repeat(budget, &keys, || Ok(engine.from_seeds(p, &seeds)?))?;
    let kernels =
        kernels(|| engine.timing().execute, program, |jobs| Ok(engine.from_seeds(p, &seeds[..jobs]).map(drop)?))?;
    Ok(Answer { times, kernels, build: None })
}

/// Signs the messages, deterministically.
fn sign_all(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>]) -> Result<Vec<Signature>, Failure> {
    let (mut signatures, mut failed) = (Vec::with_capacity(messages.len()), None);
    let jobs = messages.iter().map(|message| SignJob::new(key, message).deterministic());
    engine.sign_batch(jobs, |_, signature| match signature {
        Ok(signature) => signatures.push(signature),
        Err(error) => failed = Some(error),
    })?;
    failed.map_or(Ok(signatures), |error| Err(error.into()))
}

/// The verdicts on signature i, counted around, of message i.
fn verify_all(
    engine: &Engine,
    key: &VerifyingKey,
    messages: &[Vec<u8>],
    signatures: &[Signature],
) -> Result<Vec<bool>, Failure> {
    let (mut verdicts, mut failed) = (Vec::with_capacity(messages.len()), None);
    let jobs = messages.iter().zip(signatures.iter().cycle());
    let jobs = jobs.map(|(message, signature)| VerifyJob::new(key, message.as_slice(), signature.as_bytes()));
    engine.verify_batch(jobs, |_, verdict| match verdict {
        Ok(verdict) => verdicts.push(verdict),
        Err(error) => failed = Some(error),
    })?;
    failed.map_or(Ok(verdicts), |error| Err(error.into()))
}

/// The engine accepts all of them, the reference accepts the first, and with one bit changed the engine refuses that.
fn check(engine: &Engine, key: &SigningKey, messages: &[Vec<u8>], signatures: &[Signature]) -> Result<(), Failure> {
    let public = key.verifying_key();
    if !verify_all(engine, &public, messages, signatures)?.iter().all(|valid| *valid) {
        return Err(wrong("a signature that was just made does not verify"));
    }
    let (p, mut bytes) = (key.params(), signatures[0].as_bytes().to_vec());
    if !reference::slh_verify(&messages[0], &bytes, &[], public.as_ref()) {
        return Err(wrong("the reference refuses a signature that was just made"));
    }
    bytes[p.sig_bytes() / 2] ^= 1;
    let changed = Signature::from_bytes(p, bytes)?;
    if verify_all(engine, &public, &messages[..1], &[changed])? != [false] {
        return Err(wrong("a changed signature verifies"));
    }
    Ok(())
}

fn sign(
    engine: &Engine,
    params: &'static Params,
    batch: usize,
    budget: Duration,
    (cached_layers, program): (usize, Option<usize>),
) -> Result<Answer, Failure> {
    let key = engine.from_seeds(params, &[seeds(params, 0)])?.remove(0);
    let start = Instant::now();
    let key = engine.cache(&key, cached_layers)?;
    let build = (cached_layers > 0).then(|| start.elapsed().as_secs_f64());
    let messages: Vec<Vec<u8>> = (0..batch).map(message).collect();
    let signatures = sign_all(engine, &key, &messages)?;
    check(engine, &key, &messages, &signatures)?;
    let times = repeat(budget, &signatures, || sign_all(engine, &key, &messages))?;
    let kernels =
        kernels(|| engine.timing().execute, program, |jobs| sign_all(engine, &key, &messages[..jobs]).map(drop))?;
    Ok(Answer { times, kernels, build })
}

fn verify(
    engine: &Engine,
    p: &'static Params,
    batch: usize,
    budget: Duration,
    program: Option<usize>,
) -> Result<Answer, Failure> {
    let key = engine.from_seeds(p, &[seeds(p, 0)])?.remove(0);
    let distinct: Vec<Vec<u8>> = (0..distinct(have_memory(&engine.devices()), p, batch)).map(message).collect();
    let signatures = sign_all(engine, &engine.cache(&key, 1)?, &distinct)?;
    check(engine, &key, &distinct, &signatures)?;
    let messages: Vec<Vec<u8>> = distinct.iter().cycle().take(batch).cloned().collect();
    let public = key.verifying_key();
    // Once untimed: the program for a batch of this size is prepared.
    verify_all(engine, &public, &messages, &signatures)?;
    let times = repeat(budget, &vec![true; batch], || verify_all(engine, &public, &messages, &signatures))?;
    // As rows: a program's worth of them is one chunk, while an iterator's first chunks are small ones, which overlap.
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let signatures: Vec<&[u8]> = signatures.iter().map(|signature| signature.as_bytes()).cycle().take(batch).collect();
    let alone = |jobs: usize| rows::verify_all(engine, &public, &messages[..jobs], &signatures[..jobs]).map(drop);
    Ok(Answer { times, kernels: kernels(|| engine.timing().execute, program, alone)?, build: None })
}
