//! The one stopwatch: every measurement is checked, and set against what the machine's hash rates allow.

pub(crate) mod callers;
mod rows;

use crate::args::{MachineOptions, RowMemory, op_name};
use crate::failure::Failure;
use crate::machine::{self, Limits};
use crate::version::{COMMIT, VERSION};
use hypergrove::backend::Plan;
use hypergrove::rows::Column;
use hypergrove::schemes::{Scheme, SignJob, VerifyJob};
use hypergrove::{Device, Engine, Error, Op, Params, Randomizer, Seeds, SigningKey, SlhDsa, VerifyingKey, Work};
use hypergrove_fips205::reference;
use hypergrove_records::record::Record;
pub use hypergrove_records::record::Times;
use std::time::{Duration, Instant};

/// Runs that are timed at least.
pub(crate) const LEAST_RUNS: usize = 3;
/// Runs by which kernels alone are timed.
const KERNEL_RUNS: usize = 9;
/// Signatures that a batch which a CPU verifies consists of, over and over: making more would take longer than verifying them.
const DISTINCT: usize = 16;
/// Bytes of a message, as [`Plan::work`] counts them.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// A signature scheme under the stopwatch.
pub trait Timed:
    for<'a> Scheme<
        SigningKey: PartialEq,
        Signature: AsRef<[u8]> + Clone + PartialEq + Sync,
        JobMessage<'a>: From<&'a [u8]>,
        RowMessages<'a>: From<Column<'a>>,
    >
{
    /// Whether the engine is given all jobs of a batch at once, not by an iterator, and makes keys as rows of private keys alone.
    const AT_ONCE: bool;
    /// Bytes of the signatures that a batch which a GPU verifies consists of: more than a server's caches hold.
    const DISTINCT_BYTES: usize;

    /// Distinct seeds; those of benchmarks need not be secret.
    fn seeds(self, number: usize) -> Self::Seeds;
    /// No randomness, if signatures have some.
    fn deterministic<'a>() -> Self::Randomizer<'a>
    where
        'a: 'a;
    /// The public key of a private key.
    fn public(key: &Self::SigningKey) -> Self::VerifyingKey;
    /// Whether the reference makes this key from these seeds.
    fn is_made_from(key: &Self::SigningKey, seeds: &Self::Seeds) -> bool;
    /// Whether the reference accepts a signature.
    fn is_valid(key: &Self::VerifyingKey, message: &[u8], signature: &[u8]) -> bool;
    /// The key with the nodes of its top layers, if it has any.
    fn cache(_: &Engine, key: &Self::SigningKey, _layers: usize) -> Result<Self::SigningKey, Error> {
        Ok(key.clone())
    }
    /// Compressions of a job.
    fn work(question: &Question<Self>) -> Work;
    /// Threads that work on a batch.
    fn threads(self, engine: &Engine, op: Op, batch: usize) -> Result<usize, Error>;
    /// The number of jobs of a batch that fills the machine.
    fn filling(question: &Question<Self>, engine: &Engine, limits: &Limits) -> Result<usize, Error>;
}

impl Timed for SlhDsa {
    const AT_ONCE: bool = false;
    const DISTINCT_BYTES: usize = 1 << 30;

    fn seeds(self, number: usize) -> Seeds {
        let part = |which: u8| -> Vec<u8> {
            (0..self.n).map(|i| (number as u64).to_le_bytes().get(i).copied().unwrap_or(which)).collect()
        };
        Seeds { sk_seed: part(1).into(), sk_prf: part(2).into(), pk_seed: part(3) }
    }

    fn deterministic<'a>() -> Randomizer<'a>
    where
        'a: 'a,
    {
        Randomizer::Deterministic
    }

    fn public(key: &SigningKey) -> VerifyingKey {
        key.verifying_key()
    }

    fn is_made_from(key: &SigningKey, seeds: &Seeds) -> bool {
        key.as_ref().pk_root() == reference::pk_root(key.params(), &seeds.sk_seed, &seeds.pk_seed)
    }

    fn is_valid(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
        reference::slh_verify(message, signature, &[], key.as_ref())
    }

    fn cache(engine: &Engine, key: &SigningKey, layers: usize) -> Result<SigningKey, Error> {
        engine.cache(key, layers)
    }

    fn work(question: &Question) -> Work {
        let plan = Plan::new(question.params.set(), question.op);
        let layers = question.cached_layers_of_keys();
        if question.op == Op::Sign { plan.with_cached_layers(layers).work() } else { plan.work() }
    }

    fn threads(self, engine: &Engine, op: Op, batch: usize) -> Result<usize, Error> {
        Ok(engine.explain(self.set(), op, batch)?.threads)
    }

    /// As many jobs as fill lanes and threads, and as take a tenth of a second at these rates if it can be had; or as keep
    /// devices with memory of their own busy.
    fn filling(question: &Question, engine: &Engine, limits: &Limits) -> Result<usize, Error> {
        let threads = engine.threads();
        let host = engine.devices().iter().all(|device| device.memory == 0);
        let Some(job) = limits.seconds(&SlhDsa::work(question), threads).filter(|_| host) else {
            return engine.jobs_to_fill(question.params, question.op, question.cached_layers_of_keys());
        };
        let least = match question.op {
            // Verification has lanes across signatures alone.
            Op::Verify => 64,
            _ => 2,
        };
        Ok(((0.1 / job) as usize).next_power_of_two().clamp(least * threads, 1024.max(least * threads)))
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub struct Question<S = SlhDsa> {
    /// The parameter set.
    pub params: S,
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

impl<S: Timed> Question<S> {
    fn cached_layers_of_keys(&self) -> usize {
        if self.op == Op::Sign { self.cached_layers } else { 0 }
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
    /// Of a verification by devices with memory of their own: bytes a second of their links, and seconds that the signatures take on them.
    pub link: Option<(f64, f64)>,
    /// Seconds a job of a device's kernels alone, its inputs being in its memory: median, with one program at a time.
    pub kernels: Option<f64>,
    /// Seconds that growing the nodes of cached layers took, if there are some.
    pub build: Option<f64>,
}

impl Measurement {
    /// As a record.
    pub(crate) fn record<S: Timed>(&self, engine: &Engine, question: Question<S>) -> Record {
        let (device, times) = (engine.device(), &self.times);
        let clock = if device.memory == 0 { machine::clock() } else { None };
        Record {
            set: question.params.name().into(),
            op: op_name(question.op).into(),
            batch: self.batch,
            devices: engine.devices().iter().map(Device::id).collect(),
            threads: self.threads,
            ops_per_s: self.ops_per_s(),
            ideal_s: self.ideal_end_to_end(),
            limit_fraction: self.limit_fraction(),
            kernels_per_s: self.kernels_per_s(),
            kernels_limit_fraction: self.kernels_limit_fraction(),
            link_bytes_per_s: self.link.map(|(rate, _)| rate),
            verified: true,
            cached_layers: question.cached_layers_of_keys(),
            rows: question.rows.map(|memory| memory.name().into()),
            build_s: self.build,
            rates: self.limits.core.map(Into::into),
            limit: self.limits.all(self.threads).map(Into::into),
            clock_hz: clock,
            ..record_of(device).timed(times)
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
    /// Seconds at the limit: signatures cross the link while the device computes.
    fn ideal_end_to_end(&self) -> Option<f64> {
        self.ideal.map(|ideal| self.link.map_or(ideal, |(_, sending)| ideal.max(sending)))
    }
    /// The ideal time over the median.
    pub fn limit_fraction(&self) -> Option<f64> {
        self.ideal_end_to_end().map(|ideal| ideal / self.times.median())
    }
}

/// With what every record of a device has.
pub(crate) fn record_of(device: &Device) -> Record {
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

/// With what every record of an operation on a set of FIPS 205 has.
pub(crate) fn record_of_op(device: &Device, set: &Params, op: Op) -> Record {
    Record { set: set.name.into(), op: op_name(op).into(), ..record_of(device) }
}

/// Measures. An answer that is wrong is an error.
pub fn measure<S: Timed>(
    engine: &Engine,
    question: Question<S>,
    options: &MachineOptions,
) -> Result<Measurement, Failure> {
    measure_at(engine, question, options, &|run| until_used_up(LEAST_RUNS, question.budget, run))
}

/// Measures as [`measure`] does. `pace` decides how often the jobs run.
pub(crate) fn measure_at<S: Timed>(
    engine: &Engine,
    question: Question<S>,
    options: &MachineOptions,
    pace: Pace<'_>,
) -> Result<Measurement, Failure> {
    let Question { params, op, .. } = question;
    let before = Limits::measure(engine, options);
    let by_default = || Ok(S::filling(&question, engine, &before)? * longer(&question, &engine.devices()));
    let batch = question.batch.map_or_else(by_default, Ok::<_, Error>)?;
    let threads = params.threads(engine, op, batch)?;
    // A program's worth of jobs, for the kernels' own time.
    let is_discrete = have_memory(&engine.devices()) && engine.devices().len() == 1;
    let most = || engine.jobs_per_program(params, op, question.cached_layers_of_keys());
    let program = if is_discrete { Some(most()?.min(batch)) } else { None };
    let (trial, in_rows) = (Trial { engine, question, batch, program, pace }, question.rows.is_some());
    let Answer { times, kernels, build } = match op {
        Op::Keygen if in_rows || S::AT_ONCE => trial.keygen_in_rows()?,
        Op::Sign if in_rows => trial.sign_in_rows()?,
        Op::Verify if in_rows => trial.verify_in_rows()?,
        Op::Keygen => trial.keygen()?,
        Op::Sign => trial.sign()?,
        Op::Verify => trial.verify()?,
        Op::Cache => return Err(Failure::new("caching is no operation that is measured")),
    };
    let limits = before.best(Limits::measure(engine, options));
    let ideal = limits.seconds(&S::work(&question), threads).map(|seconds| seconds * batch as f64);
    // Results, and the inputs of other operations, take less time on the link than the devices compute.
    let link = Some(op).filter(|op| *op == Op::Verify).and_then(|_| machine::links(&engine.devices()));
    let link = link.map(|rate| (rate, (batch * params.sizes().signature) as f64 / rate));
    Ok(Measurement { times, batch, threads, limits, ideal, link, kernels, build })
}

/// Has `run` time itself until the budget is used up, and so many times at least.
pub(crate) fn until_used_up(
    least: usize,
    budget: Duration,
    mut run: impl FnMut() -> Result<Duration, Failure>,
) -> Result<Times, Failure> {
    let (mut times, mut used) = (Vec::new(), Duration::ZERO);
    while times.len() < least || used < budget {
        let time = run()?;
        used += time;
        times.push(time.as_secs_f64());
    }
    Ok(Times::new(times))
}

/// Has a run time itself several times.
pub(crate) type Pace<'p> = &'p dyn Fn(&mut dyn FnMut() -> Result<Duration, Failure>) -> Result<Times, Failure>;

pub(crate) fn wrong(what: &str) -> Failure {
    Failure::new(format!("a wrong answer: {what}")).hint("distrust this machine, and report the fault")
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

/// How many batches that fill the machine a call has by default. Several GPUs share the links of their host, and nothing overlaps with the
/// first chunk's copy and the last chunk's computation. Rows that the links limit therefore come in calls that are as many times as long as
/// there are GPUs (docs/lab/2026-11-27-four-gpus.md), but not so long that their rows take more than a large host's memory.
fn longer<S>(question: &Question<S>, devices: &[Device]) -> usize {
    const LONGEST: usize = 4;
    let gpus = devices.iter().filter(|device| device.memory > 0).count();
    let limited_by_links = question.rows.is_some() && question.op != Op::Sign;
    if limited_by_links { gpus.clamp(1, LONGEST) } else { 1 }
}

/// Different signatures among `jobs` that are verified. GPUs make them soon, and their host's memory would be spared too
/// much by what stays in caches.
pub(crate) fn distinct<S: Timed>(gpus: bool, set: S, jobs: usize) -> usize {
    jobs.min(if gpus { S::DISTINCT_BYTES / set.sizes().signature } else { DISTINCT })
}

/// Times of whole runs, seconds a job of kernels alone, and seconds that growing the cached nodes took.
struct Answer {
    times: Times,
    kernels: Option<f64>,
    build: Option<f64>,
}

/// A measurement that has begun.
struct Trial<'e, S: Timed> {
    engine: &'e Engine,
    question: Question<S>,
    /// Jobs of a run.
    batch: usize,
    /// Jobs of a run by which kernels alone are timed.
    program: Option<usize>,
    pace: Pace<'e>,
}

/// Checks that this is the answer of the first run, or a beginning of it.
fn same<T: Clone + PartialEq>(answer: &mut Vec<T>, got: &[T]) -> Result<(), Failure> {
    if answer.is_empty() {
        answer.extend_from_slice(got);
    }
    if *got == answer[..got.len()] { Ok(()) } else { Err(wrong("two runs of the same work differ")) }
}

impl<S: Timed> Trial<'_, S> {
    /// Has `run` time itself at the trial's pace, and then for the kernels alone.
    fn timed(
        &self,
        build: Option<f64>,
        mut run: impl FnMut(usize) -> Result<Duration, Failure>,
    ) -> Result<Answer, Failure> {
        // The first time prepares programs, and takes the memory that all others use again.
        run(self.batch)?;
        let times = (self.pace)(&mut || run(self.batch))?;
        Ok(Answer { times, kernels: self.kernels(run)?, build })
    }

    /// Seconds a job of the kernels alone, in runs of one program.
    fn kernels(&self, mut run: impl FnMut(usize) -> Result<Duration, Failure>) -> Result<Option<f64>, Failure> {
        let Some(jobs) = self.program else { return Ok(None) };
        let mut times = Vec::new();
        // The first run prepares the program.
        for round in 0..=KERNEL_RUNS {
            let before = self.engine.timing().execute;
            run(jobs)?;
            if round > 0 {
                times.push((self.engine.timing().execute - before).as_secs_f64());
            }
        }
        Ok(Some(Times::new(times).median() / jobs as f64))
    }

    /// A key with cached layers, and the seconds that growing these took.
    fn key(&self, layers: usize) -> Result<(S::SigningKey, Option<f64>), Failure> {
        let set = self.question.params;
        let key = self.engine.from_seeds(set, &[set.seeds(0)])?.remove(0);
        let start = Instant::now();
        let key = S::cache(self.engine, &key, layers)?;
        Ok((key, (layers > 0).then(|| start.elapsed().as_secs_f64())))
    }

    /// The key whose signatures are verified, and the different messages among those of a batch.
    fn key_and_messages(&self) -> Result<(S::SigningKey, Vec<Vec<u8>>), Failure> {
        let count = distinct(have_memory(&self.engine.devices()), self.question.params, self.batch);
        Ok((self.key(1)?.0, (0..count).map(message).collect()))
    }

    fn keygen(&self) -> Result<Answer, Failure> {
        let set = self.question.params;
        let seeds: Vec<S::Seeds> = (0..self.batch).map(|number| set.seeds(number)).collect();
        let mut answer = Vec::new();
        self.timed(None, |jobs| {
            let start = Instant::now();
            let keys = self.engine.from_seeds(set, &seeds[..jobs])?;
            let time = start.elapsed();
            if answer.is_empty() {
                check_key::<S>(&keys[jobs - 1], &seeds[jobs - 1])?;
            }
            same(&mut answer, &keys).map(|()| time)
        })
    }

    fn sign(&self) -> Result<Answer, Failure> {
        let (key, build) = self.key(self.question.cached_layers)?;
        let messages: Vec<Vec<u8>> = (0..self.batch).map(message).collect();
        let mut answer = Vec::new();
        self.timed(build, |jobs| {
            let start = Instant::now();
            let signatures = sign_all::<S>(self.engine, &key, &messages[..jobs])?;
            let time = start.elapsed();
            if answer.is_empty() {
                check(self.engine, self.question.params, &key, &messages, &signatures)?;
            }
            same(&mut answer, &signatures).map(|()| time)
        })
    }

    fn verify(&self) -> Result<Answer, Failure> {
        let (key, distinct) = self.key_and_messages()?;
        let signatures = sign_all::<S>(self.engine, &key, &distinct)?;
        check(self.engine, self.question.params, &key, &distinct, &signatures)?;
        let messages: Vec<Vec<u8>> = distinct.iter().cycle().take(self.batch).cloned().collect();
        let public = S::public(&key);
        let answer = Trial { program: None, ..*self }.timed(None, |_| {
            let start = Instant::now();
            let verdicts = verify_all::<S>(self.engine, &public, &messages, &signatures)?;
            let time = start.elapsed();
            same(&mut vec![true; self.batch], &verdicts).map(|()| time)
        })?;
        // As rows: a program's worth of them is one chunk, while an iterator's first chunks are small ones, which overlap.
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let signatures: Vec<&[u8]> = signatures.iter().map(AsRef::as_ref).cycle().take(self.batch).collect();
        let alone = |jobs: usize| self.verify_rows(&public, &messages[..jobs], &signatures[..jobs]);
        Ok(Answer { kernels: self.kernels(alone)?, ..answer })
    }
}

/// The reference makes this key from these seeds.
fn check_key<S: Timed>(key: &S::SigningKey, seeds: &S::Seeds) -> Result<(), Failure> {
    match S::is_made_from(key, seeds) {
        true => Ok(()),
        false => Err(wrong("the reference makes another key from the same seeds")),
    }
}

/// The results of jobs, if all went well; `run` hands them to a sink.
fn gathered<T>(
    jobs: usize,
    run: impl FnOnce(&mut dyn FnMut(usize, Result<T, Error>)) -> Result<(), Error>,
) -> Result<Vec<T>, Failure> {
    let (mut results, mut failed) = (Vec::with_capacity(jobs), None);
    run(&mut |_, result| match result {
        Ok(result) => results.push(result),
        Err(error) => failed = Some(error),
    })?;
    failed.map_or(Ok(results), |error| Err(error.into()))
}

/// Signs the messages, deterministically.
fn sign_all<S: Timed>(
    engine: &Engine,
    key: &S::SigningKey,
    messages: &[Vec<u8>],
) -> Result<Vec<S::Signature>, Failure> {
    let jobs = messages
        .iter()
        .map(|message| SignJob::<S> { randomizer: S::deterministic(), ..SignJob::new(key, message.as_slice()) });
    match S::AT_ONCE {
        true => Ok(engine.sign_batch_to_vec(jobs)?.into_iter().collect::<Result<_, _>>()?),
        false => gathered(messages.len(), |sink| engine.sign_batch(jobs, sink)),
    }
}

/// The verdicts on signature i, counted around, of message i.
fn verify_all<S: Timed>(
    engine: &Engine,
    key: &S::VerifyingKey,
    messages: &[Vec<u8>],
    signatures: &[S::Signature],
) -> Result<Vec<bool>, Failure> {
    let jobs = messages.iter().zip(signatures.iter().cycle());
    let jobs = jobs.map(|(message, signature)| VerifyJob::<S>::new(key, message.as_slice(), signature.as_ref()));
    match S::AT_ONCE {
        true => Ok(engine.verify_batch_to_vec(jobs)?.into_iter().collect::<Result<_, _>>()?),
        false => gathered(messages.len(), |sink| engine.verify_batch(jobs, sink)),
    }
}

/// The engine accepts all of them, the reference accepts the first, and with one bit changed the engine refuses that.
fn check<S: Timed>(
    engine: &Engine,
    set: S,
    key: &S::SigningKey,
    messages: &[Vec<u8>],
    signatures: &[S::Signature],
) -> Result<(), Failure> {
    let public = S::public(key);
    if !verify_all::<S>(engine, &public, messages, signatures)?.iter().all(|valid| *valid) {
        return Err(wrong("a signature that was just made does not verify"));
    }
    let mut bytes = signatures[0].as_ref().to_vec();
    if !S::is_valid(&public, &messages[0], &bytes) {
        return Err(wrong("the reference refuses a signature that was just made"));
    }
    bytes[set.sizes().signature / 2] ^= 1;
    if verify_all::<S>(engine, &public, &messages[..1], &[set.signature(bytes.into())])? != [false] {
        return Err(wrong("a changed signature verifies"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::options;

    #[test]
    fn the_limit_of_a_verification_is_the_lower_of_kernels_and_link() {
        let limits = Limits::of(Vec::new(), &options(&[]));
        let of = |link| {
            let (times, ideal, kernels) = (Times::new(vec![8.0]), Some(2.0), Some(0.5));
            let measured = Measurement { times, batch: 8, threads: 1, limits, ideal, link, kernels, build: None };
            (measured.limit_fraction(), measured.kernels_limit_fraction())
        };
        assert_eq!(of(None), (Some(0.25), Some(0.5)));
        assert_eq!(of(Some((1e9, 1.0))), (Some(0.25), Some(0.5)));
        assert_eq!(of(Some((1e9, 4.0))), (Some(0.5), Some(0.5)));
    }
}
