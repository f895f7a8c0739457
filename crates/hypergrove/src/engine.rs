//! The engine: one device, its threads, its memory budget and its prepared programs.

use crate::explain::{Explanation, Memory, PolicySource};
use crate::jobs::{CacheJob, Job, KeygenJob, Randomizer, Seeds, SignJob, VerifyJob};
use crate::keys::{Signature, SigningKey, VerifyingKey};
use hypergrove_engine::planner::{Bounds, SubBatch, SubBatches, Weigh};
use hypergrove_engine::programs::{Facts, Group, Programs};
use hypergrove_engine::{Backend, Batch, Device, Error};
use hypergrove_fips205::plan::{Op, Plan, Slot, cache_bytes};
use hypergrove_fips205::{Mode, PARAMETER_SETS, Params};
use rayon::prelude::*;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use zeroize::Zeroize;

/// Bytes that an engine takes for its programs and the batch at hand, unless told otherwise.
pub const MEMORY_BUDGET: u64 = 256 << 20;

/// Results of a batch come out at least this often, as far as one job does not take longer.
const SUB_BATCH_TIME: Duration = Duration::from_millis(500);

/// Jobs of a sub-batch, at most: enough that handing results out between sub-batches costs little, also when every job
/// takes mere microseconds.
const MOST_JOBS: usize = 1024;

/// The same for each thread, where there are many: enough to fill the widest lanes several times over.
const MOST_JOBS_A_THREAD: usize = 64;

/// Signs, verifies and makes keys on one device. Cheap to clone: the clones share programs and threads.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

/// What an engine shall be; see [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    backend: Option<Arc<dyn Backend>>,
    device: u32,
    threads: Option<usize>,
    memory_budget: Option<u64>,
    skip_root_check: bool,
    verify_signatures: bool,
}

impl EngineBuilder {
    /// The backend; otherwise the first of [`backends`](crate::backends) that has a device.
    pub fn backend(mut self, backend: Arc<dyn Backend>) -> EngineBuilder {
        self.backend = Some(backend);
        self
    }
    /// Which of the backend's devices, by index; otherwise the first.
    pub fn device(mut self, index: u32) -> EngineBuilder {
        self.device = index;
        self
    }
    /// Host threads; otherwise as many as the operating system offers. With 1, all work is done on the calling thread.
    pub fn threads(mut self, threads: usize) -> EngineBuilder {
        self.threads = Some(threads);
        self
    }
    /// Bytes for prepared programs, and for each call's outputs and the messages that its jobs own; otherwise
    /// [`MEMORY_BUDGET`].
    pub fn memory_budget(mut self, bytes: u64) -> EngineBuilder {
        self.memory_budget = Some(bytes);
        self
    }
    /// Whether the top root that signing grows anew is compared with PK.root (the default; it costs nothing).
    pub fn check_roots(mut self, check: bool) -> EngineBuilder {
        self.skip_root_check = !check;
        self
    }
    /// Whether every signature is verified before it is handed out (not the default: it costs a verification).
    pub fn verify_signatures(mut self, verify: bool) -> EngineBuilder {
        self.verify_signatures = verify;
        self
    }
    /// The engine. Nothing is prepared and no thread started before the first call.
    pub fn build(self) -> Result<Engine, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::Value { what: "an engine with 0 threads; use 1 or more".into() }),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        let candidates = self.backend.map_or_else(crate::backends, |backend| vec![backend]);
        let mut devices = Vec::new();
        for backend in &candidates {
            devices = backend.devices()?;
            if let Some(device) = devices.iter().find(|device| device.index == self.device) {
                let memory_budget = self.memory_budget.unwrap_or(MEMORY_BUDGET);
                return Ok(Engine(Arc::new(Inner {
                    programs: Programs::new(backend.clone(), device.clone(), memory_budget),
                    pool: OnceLock::new(),
                    threads,
                    memory_budget,
                    check_roots: !self.skip_root_check,
                    verify_signatures: self.verify_signatures,
                })));
            }
        }
        let names: Vec<_> = candidates.iter().map(|backend| backend.name()).collect();
        let what = format!("device {} of {}: it has {} devices", self.device, names.join(", "), devices.len());
        Err(Error::Value { what })
    }
}

impl Engine {
    /// An engine on the default backend, with all threads and [`MEMORY_BUDGET`].
    pub fn new() -> Result<Engine, Error> {
        Engine::builder().build()
    }

    /// Chooses backend, threads and memory.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// The devices of the engine's backend.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        self.0.programs.backend().devices()
    }

    /// The device that this engine uses.
    pub fn device(&self) -> &Device {
        self.0.programs.device()
    }

    /// Host threads.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// A new key, from the operating system's randomness.
    ///
    /// FIPS 205, Algorithm 21.
    pub fn generate(&self, params: &'static Params) -> Result<SigningKey, Error> {
        self.0.one(KeygenJob(params, Seeds::random(params)?))
    }

    /// `count` new keys, handed to `sink` with their number as they become ready.
    pub fn generate_batch(
        &self,
        params: &'static Params,
        count: usize,
        mut sink: impl FnMut(usize, SigningKey),
    ) -> Result<(), Error> {
        // Without randomness there are no more jobs, and this says why.
        let mut failed = None;
        let jobs = (0..count).map_while(|_| match Seeds::random(params) {
            Ok(seeds) => Some(KeygenJob(params, seeds)),
            Err(why) => {
                failed = Some(why);
                None
            }
        });
        let mut lost = None;
        self.0.stream(jobs, |index, key| match key {
            Ok(key) => sink(index, key),
            Err(why) => lost = Some(why),
        })?;
        failed.or(lost).map_or(Ok(()), Err)
    }

    /// Keys from given seeds.
    ///
    /// FIPS 205, Algorithm 18.
    pub fn from_seeds(&self, params: &'static Params, seeds: &[Seeds]) -> Result<Vec<SigningKey>, Error> {
        let mut keys = Vec::with_capacity(seeds.len());
        let mut failed = None;
        self.0.stream(seeds.iter().map(|seeds| KeygenJob(params, seeds.clone())), |_, key| match key {
            Ok(key) => keys.push(key),
            Err(why) => failed = failed.take().or(Some(why)),
        })?;
        failed.map_or(Ok(keys), Err)
    }

    /// Computes PK.root again: an error if it is not the key's own. Keys that were read from a file may be checked once;
    /// signing a batch with a wrong root fails.
    pub fn check(&self, key: &SigningKey) -> Result<(), Error> {
        let raw = key.as_ref();
        let seeds = Seeds {
            sk_seed: raw.sk_seed().to_vec().into(),
            sk_prf: raw.sk_prf().to_vec().into(),
            pk_seed: raw.pk_seed().to_vec(),
        };
        let again = self.0.one(KeygenJob(key.params(), seeds))?;
        if again.as_ref().pk_root() == raw.pk_root() { Ok(()) } else { Err(wrong_root(key)) }
    }

    /// A signature.
    ///
    /// FIPS 205, Algorithms 22 and 23; with [`Mode::Internal`] 19.
    pub fn sign(
        &self,
        key: &SigningKey,
        mode: Mode<'_>,
        message: &[u8],
        randomizer: Randomizer<'_>,
    ) -> Result<Signature, Error> {
        self.0.one(SignJob { key, mode, message: Cow::Borrowed(message), randomizer })
    }

    /// Signs any number of messages in bounded memory. Jobs are taken from the iterator a sub-batch at a time; `sink`
    /// gets every job's index and result, in order, as soon as its sub-batch is done. A job with bad input has an error
    /// of its own; an error of the whole call (a device, or randomness, that fails) ends it, and the jobs whose result
    /// was not handed out are not signed.
    pub fn sign_batch<'a>(
        &self,
        jobs: impl IntoIterator<Item = SignJob<'a>>,
        sink: impl FnMut(usize, Result<Signature, Error>),
    ) -> Result<(), Error> {
        self.0.stream(jobs.into_iter(), sink)
    }

    /// Whether the signature is the key's, for this message. A signature of the wrong length is an error.
    ///
    /// FIPS 205, Algorithms 24 and 25; with [`Mode::Internal`] 20.
    pub fn verify(&self, key: &VerifyingKey, mode: Mode<'_>, message: &[u8], signature: &[u8]) -> Result<bool, Error> {
        let (message, signature) = (Cow::Borrowed(message), Cow::Borrowed(signature));
        self.0.one(VerifyJob { key, mode, message, signature })
    }

    /// Verifies any number of signatures in bounded memory, as [`Engine::sign_batch`] signs.
    pub fn verify_batch<'a>(
        &self,
        jobs: impl IntoIterator<Item = VerifyJob<'a>>,
        sink: impl FnMut(usize, Result<bool, Error>),
    ) -> Result<(), Error> {
        self.0.stream(jobs.into_iter(), sink)
    }

    /// The same key with the nodes of its top `layers` layers, so that signing needs not grow them: the same signatures
    /// with less work. One layer, the top tree, is the usual choice; 0 drops the nodes.
    pub fn cache(&self, key: &SigningKey, layers: usize) -> Result<SigningKey, Error> {
        if layers == 0 {
            return Ok(SigningKey::from(key.as_ref().clone()));
        }
        let nodes = self.0.one(CacheJob(key.as_ref(), layers))?;
        // The root of the top tree follows that tree's other nodes.
        let p = key.params();
        let root = &nodes[((2 << p.hp) - 2) * p.n..][..p.n];
        if root != key.as_ref().pk_root() {
            return Err(wrong_root(key));
        }
        Ok(SigningKey::with_nodes(key.as_ref().clone(), layers, nodes))
    }

    /// The same key with as many of its top layers as fit `bytes`; see [`cache_bytes`].
    pub fn cache_within(&self, key: &SigningKey, bytes: usize) -> Result<SigningKey, Error> {
        let p = key.params();
        let layers = (1..=p.d).take_while(|layers| cache_bytes(p, *layers).is_some_and(|needs| needs <= bytes)).count();
        self.cache(key, layers)
    }

    /// How a batch would be executed, and how long that takes if this engine has timed such work before.
    pub fn explain(&self, params: &'static Params, op: Op, batch: usize) -> Result<Explanation, Error> {
        self.0.explain(params, op, batch)
    }

    /// Times the generation of some keys of the cheapest set with the same hash and n, so that
    /// [`explain`](Engine::explain) can predict.
    pub fn calibrate(&self, params: &'static Params) -> Result<(), Error> {
        let alike = PARAMETER_SETS.iter().filter(|p| (p.family, p.n) == (params.family, params.n));
        let cheapest = alike.min_by_key(|p| p.hp).copied().unwrap_or(params);
        // The first run prepares the program.
        for _ in 0..3 {
            self.generate_batch(cheapest, 16 * self.0.threads, |_, _| {})?;
        }
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Engine");
        shown.field("device", self.device()).field("threads", &self.0.threads);
        shown.field("memory_budget", &self.0.memory_budget).finish_non_exhaustive()
    }
}

fn wrong_root(key: &SigningKey) -> Error {
    let set = key.params().name;
    Error::Value {
        what: format!("PK.root of this {set} private key does not follow from its seeds; the key is damaged"),
    }
}

pub(crate) struct Inner {
    pub(crate) programs: Programs,
    /// Started at the first call that has use for it.
    pool: OnceLock<Result<rayon::ThreadPool, String>>,
    threads: usize,
    memory_budget: u64,
    pub(crate) check_roots: bool,
    pub(crate) verify_signatures: bool,
}

/// Jobs of one group being worked on.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) engine: &'a Inner,
    pub(crate) facts: &'a Arc<Facts>,
    /// Bytes for programs, idle ones included.
    pub(crate) room: u64,
}

impl Run<'_> {
    pub(crate) fn plan(&self) -> &Plan {
        &self.facts.plan
    }

    /// Does the host's share of every job, given its index and its `size` bytes of the output.
    pub(crate) fn each<J: Sync, T: Send>(
        &self,
        jobs: &[&J],
        out: &mut [u8],
        size: usize,
        work: impl Fn(usize, &J, &mut [u8]) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        if self.facts.group.threads == 1 || jobs.len() == 1 {
            jobs.iter().zip(out.chunks_exact_mut(size)).enumerate().map(|(i, (job, out))| work(i, job, out)).collect()
        } else {
            let pairs = jobs.par_iter().zip(out.par_chunks_exact_mut(size));
            pairs.enumerate().map(|(i, (job, out))| work(i, job, out)).collect()
        }
    }

    /// Runs the group's program. With `roots`, gives the roots of the trees that it grew, if the program keeps them.
    pub(crate) fn program(&self, batch: &Batch<'_>, out: &mut [u8], roots: bool) -> Result<Option<Vec<u8>>, Error> {
        let programs = &self.engine.programs;
        let mut prepared = programs.take(self.facts, batch.len(), self.room)?;
        let start = Instant::now();
        prepared.program.run(batch, out)?;
        self.facts.record(batch.len(), start.elapsed());
        let roots = if roots { prepared.program.read(Slot::XmssRoots) } else { None };
        programs.put(prepared);
        Ok(roots)
    }
}

/// A job on its way, with what the planner must know of it.
struct Asked<J> {
    job: J,
    facts: Result<Arc<Facts>, Error>,
    held: u64,
}

impl<J> Weigh<Asked<J>> for &Inner {
    type Group = Arc<Facts>;
    fn group(&self, asked: &Asked<J>) -> Option<Arc<Facts>> {
        asked.facts.as_ref().ok().cloned()
    }
    fn held(&self, asked: &Asked<J>) -> u64 {
        asked.held
    }
    fn program(&self, facts: &Arc<Facts>, jobs: usize) -> u64 {
        let own = self.programs.bytes(facts, jobs);
        match self.verifying(facts) {
            Some(verify) => own.max(self.programs.bytes(&verify, jobs)),
            None => own,
        }
    }
    fn seconds(&self, facts: &Arc<Facts>) -> f64 {
        facts.seconds()
    }
}

impl Inner {
    /// What is known of the verification that follows this signing, if there is one.
    fn verifying(&self, facts: &Facts) -> Option<Arc<Facts>> {
        let follows = self.verify_signatures && facts.group.op == Op::Sign;
        follows.then(|| self.programs.facts(Group { op: Op::Verify, cached_layers: 0, ..facts.group }).ok()).flatten()
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            memory: self.memory_budget,
            jobs: MOST_JOBS.max(MOST_JOBS_A_THREAD * self.threads),
            time: SUB_BATCH_TIME,
            least: self.threads,
        }
    }

    fn ask<J: Job>(&self, job: J, threads: usize) -> Asked<J> {
        let facts = job.ask().and_then(|(params, cached_layers)| {
            self.programs.facts(Group { params, op: J::OP, cached_layers, threads })
        });
        let out = facts.as_ref().map_or(0, |facts| facts.plan.out_bytes());
        Asked { held: (job.owned() + out) as u64, facts, job }
    }

    /// Runs `work` where the group's threads are.
    fn inside<R: Send>(&self, threads: usize, work: impl FnOnce() -> R + Send) -> Result<R, Error> {
        if threads == 1 {
            return Ok(work());
        }
        let start = || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
            pool.thread_name(|i| format!("hypergrove-{i}")).build().map_err(|why| why.to_string())
        };
        match self.pool.get_or_init(start) {
            Ok(pool) => Ok(pool.install(work)),
            Err(why) => Err(Error::Device {
                device: "the host".into(),
                what: format!("{} threads could not be started: {why}", self.threads),
            }),
        }
    }

    /// The output of jobs of one group. What a failed run left behind is wiped.
    fn execute<J: Job>(&self, facts: &Arc<Facts>, jobs: &[&J], held: u64) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; jobs.len() * facts.plan.out_bytes()];
        let run = Run { engine: self, facts, room: self.memory_budget.saturating_sub(held) };
        let done = self.inside(facts.group.threads, || J::run(&run, jobs, &mut out)).flatten();
        match done {
            Ok(()) => Ok(out),
            Err(why) => {
                out.zeroize();
                Err(why)
            }
        }
    }

    fn out_of_memory(&self, needs: u64) -> Error {
        Error::OutOfMemory { device: self.programs.device().name.clone(), needs, has: self.memory_budget }
    }

    /// A single verification is a row of dependent stages: more threads would only add their hand-over to it.
    fn threads_for(&self, op: Op, jobs: usize) -> usize {
        if op == Op::Verify && jobs == 1 { 1 } else { self.threads }
    }

    /// One job.
    fn one<J: Job>(&self, job: J) -> Result<J::Out, Error> {
        let Asked { job, facts, held } = self.ask(job, self.threads_for(J::OP, 1));
        let facts = facts?;
        if held > self.memory_budget {
            return Err(self.out_of_memory(held));
        }
        let out = self.execute(&facts, &[&job], held)?;
        Ok(job.finish(Cow::Owned(out)))
    }

    /// Any number of jobs.
    fn stream<J: Job>(
        &self,
        jobs: impl Iterator<Item = J>,
        mut sink: impl FnMut(usize, Result<J::Out, Error>),
    ) -> Result<(), Error> {
        let asked = jobs.map(|job| self.ask(job, self.threads));
        for sub_batch in SubBatches::new(asked, self, self.bounds()) {
            let (jobs, held) = match sub_batch {
                SubBatch::Run(jobs, held) => (jobs, held),
                SubBatch::TooLarge(index, asked, needs) => {
                    sink(index, Err(asked.facts.err().unwrap_or_else(|| self.out_of_memory(needs))));
                    continue;
                }
            };
            let mut groups: Vec<(&Arc<Facts>, Vec<&J>)> = Vec::new();
            for (_, asked) in &jobs {
                let Ok(facts) = &asked.facts else { continue };
                match groups.iter_mut().find(|(other, _)| *other == facts) {
                    Some((_, members)) => members.push(&asked.job),
                    None => groups.push((facts, vec![&asked.job])),
                }
            }
            let outputs: Vec<(&Arc<Facts>, Vec<u8>)> = groups
                .into_iter()
                .map(|(facts, members)| Ok((facts, self.execute(facts, &members, held)?)))
                .collect::<Result<_, Error>>()?;
            let mut results: Vec<_> =
                outputs.iter().map(|(facts, out)| (*facts, out.chunks_exact(facts.plan.out_bytes()))).collect();
            for (index, asked) in &jobs {
                let result = match &asked.facts {
                    Err(why) => Err(why.clone()),
                    Ok(facts) => {
                        let (_, shares) = results.iter_mut().find(|(other, _)| *other == facts).expect("it was run");
                        let share = shares.next().expect("one share a job");
                        Ok(asked.job.finish(Cow::Borrowed(share)))
                    }
                };
                sink(*index, result);
            }
        }
        Ok(())
    }

    fn explain(&self, params: &'static Params, op: Op, batch: usize) -> Result<Explanation, Error> {
        let cached_layers = usize::from(op == Op::Cache);
        let facts = self.programs.facts(Group { params, op, cached_layers, threads: self.threads_for(op, batch) })?;
        let job = || Asked { job: (), facts: Ok(facts.clone()), held: facts.plan.out_bytes() as u64 };
        let jobs = (0..batch).map(|_| job());
        let sub_batch = match SubBatches::new(jobs, self, self.bounds()).next() {
            Some(SubBatch::Run(jobs, _)) => jobs.len(),
            Some(SubBatch::TooLarge(.., needs)) => return Err(self.out_of_memory(needs)),
            None => 0,
        };
        let work = *facts.work();
        let compressions = |work: &hypergrove_fips205::Work| work.sha256 + work.sha512 + work.keccak;
        let seconds = facts.measured(sub_batch.max(1)).or_else(|| {
            let known = self.programs.known();
            let alike = known.iter().filter(|other| {
                let (a, b) = (other.group.params, params);
                (a.family, a.n, other.group.threads) == (b.family, b.n, facts.group.threads)
            });
            let per_compression =
                alike.filter_map(|other| Some(other.measured(sub_batch.max(1))? / compressions(other.work())));
            per_compression.reduce(f64::min).map(|seconds| seconds * compressions(&work))
        });
        Ok(Explanation {
            plan: facts.plan.clone(),
            device: self.programs.device().clone(),
            threads: facts.group.threads,
            policy: facts.policy.clone(),
            policy_source: PolicySource::Default,
            work,
            predicted: seconds.map(|seconds| Duration::from_secs_f64(seconds * batch as f64)),
            memory: Memory {
                budget: self.memory_budget,
                program: self.programs.bytes(&facts, sub_batch.max(1)),
                output: facts.plan.out_bytes() as u64,
                sub_batch,
            },
        })
    }
}
