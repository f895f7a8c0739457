//! The engine: its devices, its threads and its memory budget.

use crate::block::one_by_one;
use crate::explain::{Explanation, MemoryUse};
use crate::flow::Flow;
use crate::hash::HostHashing;
use crate::jobs::{CacheJob, CheckJob, Job, KeygenJob, Randomizer, Seeds, SignJob, VerifyJob};
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::run::Slh;
#[cfg(feature = "tables")]
use hypergrove_engine::Knowledge;
use hypergrove_engine::planner::{SubBatch, SubBatches};
use hypergrove_engine::programs::{Group, Kind};
use hypergrove_engine::scheduler::{
    Fault, Know, Options, Queue, QueuedJob, Scale, Scheduler, Stats, Wake, Worker, slots,
};
use hypergrove_engine::{Backend, Device, Error, Policy, PolicySource, Timing};
use hypergrove_fips205::plan::{Op, Work, cache_bytes};
use hypergrove_fips205::{Mode, PARAMETER_SETS, Params};
#[cfg(feature = "tables")]
use hypergrove_tune::table::{Known, Source};
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of the host's memory that an engine takes for its programs and the batches at hand, unless told otherwise.
pub const MEMORY_BUDGET: u64 = 256 << 20;

/// The same, if one of its devices has memory of its own: it takes that many signatures in flight to keep it busy.
pub const DEVICE_MEMORY_BUDGET: u64 = 2 << 30;

/// Jobs that an engine's queue of tickets holds, unless told otherwise.
pub const QUEUED_JOBS: usize = 1 << 16;

/// Signs, verifies and makes keys, on one device or several. Cheap to clone: the clones share programs and threads.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

/// What an engine shall be; see [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    backend: Option<Arc<dyn Backend>>,
    device: u32,
    devices: Option<Vec<(Arc<dyn Backend>, u32)>>,
    threads: Option<usize>,
    memory_budget: Option<u64>,
    queue: Option<(usize, u64)>,
    max_delay: Duration,
    skip_root_check: bool,
    verify_signatures: bool,
    redundant: bool,
    #[cfg(feature = "tables")]
    tables: Vec<Source>,
    cache: Option<PathBuf>,
    automatic: Option<(Arc<dyn Backend>, Wake)>,
    zkdilithium_policy: Policy,
}

impl EngineBuilder {
    /// The backend. If neither this nor [`devices`](EngineBuilder::devices) is said, it is the host's processor, and for
    /// batches that other devices do sooner, as was measured, all of those.
    pub fn backend(mut self, backend: Arc<dyn Backend>) -> EngineBuilder {
        self.backend = Some(backend);
        self
    }
    /// Which of the backend's devices, by index; otherwise the first.
    pub fn device(mut self, index: u32) -> EngineBuilder {
        self.device = index;
        self
    }
    /// Several devices, each by its backend and index, instead of one. Batches are split over them by their speed; what
    /// cannot be split is done by the first. A device that fails is disabled, and its part is done by the
    /// others: see [`Engine::faults`].
    pub fn devices(mut self, devices: Vec<(Arc<dyn Backend>, u32)>) -> EngineBuilder {
        self.devices = Some(devices);
        self
    }
    /// A host, and backends to bring in when a batch is worth it: what is done with the backends of this build if nothing is
    /// said of devices.
    pub fn automatic(mut self, host: Arc<dyn Backend>, others: Wake) -> EngineBuilder {
        self.automatic = Some((host, others));
        self
    }
    /// Tables of measured policies, as `hypergrove tune` writes them, the most trusted first. Those that do not hold for
    /// a device are left out: see [`Engine::notices`].
    #[cfg(feature = "tables")]
    pub fn tables(mut self, tables: Vec<Source>) -> EngineBuilder {
        self.tables = tables;
        self
    }
    /// Where backends that the engine makes itself may keep what they compile; otherwise nowhere.
    /// A directory that other users may write is not used: see [`Engine::notices`].
    pub fn cache(mut self, directory: PathBuf) -> EngineBuilder {
        self.cache = Some(directory);
        self
    }
    /// Host threads; otherwise as many as the operating system offers. With 1, the CPU works on the calling thread.
    pub fn threads(mut self, threads: usize) -> EngineBuilder {
        self.threads = Some(threads);
        self
    }
    /// Bytes of the host's memory for prepared programs, and for each call's outputs and the messages that its jobs own;
    /// otherwise [`MEMORY_BUDGET`], or [`DEVICE_MEMORY_BUDGET`] with a device that has memory of its own, and a message that
    /// is larger than that is worked on alone.
    pub fn memory_budget(mut self, bytes: u64) -> EngineBuilder {
        self.memory_budget = Some(bytes);
        self
    }
    /// What the queue of [tickets](Engine::submit) holds: jobs, and bytes that they own; otherwise [`QUEUED_JOBS`], and as much as
    /// the memory budget. One job is never too large.
    pub fn queue(mut self, jobs: usize, bytes: u64) -> EngineBuilder {
        self.queue = Some((jobs, bytes));
        self
    }
    /// How long the job of a [ticket](Engine::submit) waits for others, at most, though it could begin; otherwise it begins at once. Jobs that
    /// are enough for a batch do not wait. On the CPUs that were measured no delay made the rate higher, and with few callers each made it
    /// lower. On GPUs it was not measured.
    pub fn max_delay(mut self, delay: Duration) -> EngineBuilder {
        self.max_delay = delay;
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
    /// Whether keys, signatures and verdicts (not SHA-256) are computed twice and compared before they are handed out (not
    /// the default: it takes twice the time). Both times begin with the keys and the messages. The second time, every job
    /// has another place on the device (a lane of a vector, a thread of a GPU), so that a fault that stays in one place
    /// shows too.
    pub fn redundant(mut self, redundant: bool) -> EngineBuilder {
        self.redundant = redundant;
        self
    }
    /// Choices for zkDilithium that change the time which GPUs take, never bytes.
    #[cfg(feature = "zkdilithium")]
    pub(crate) fn zkdilithium_policy(mut self, policy: Policy) -> EngineBuilder {
        self.zkdilithium_policy = policy;
        self
    }
    /// The engine. Nothing is prepared and no thread started before the first call.
    pub fn build(mut self) -> Result<Engine, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::Value { what: "an engine with 0 threads; use 1 or more".into() }),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        let wake = self.take_automatic()?;
        let devices = match self.devices.take() {
            Some(devices) => devices
                .into_iter()
                .map(|(backend, index)| {
                    Ok((find(&backend, index)?.map_err(|has| none(&[backend.name()], index, has))?, backend))
                })
                .collect::<Result<Vec<_>, Error>>()?,
            None => vec![self.one_device()?],
        };
        for (i, (device, _)) in devices.iter().enumerate() {
            if devices[..i].iter().any(|(other, _)| other.id() == device.id()) {
                return Err(Error::Value { what: format!("{} is named twice; name each device once", device.id()) });
            }
        }
        if devices.is_empty() {
            return Err(Error::Value { what: "an engine without a device; name at least one".into() });
        }
        let has_memory = devices.iter().any(|(device, _)| device.memory > 0);
        let memory_budget = self.memory_budget.unwrap_or(if has_memory { DEVICE_MEMORY_BUDGET } else { MEMORY_BUDGET });
        let notices = Arc::new(Mutex::default());
        #[cfg(feature = "tables")]
        let know: Know = {
            let (tables, notices) = (self.tables, notices.clone());
            Arc::new(move |backend, device| know(&tables, backend, device, &notices))
        };
        #[cfg(not(feature = "tables"))]
        let know: Know = Arc::new(|_, _| Arc::new(hypergrove_engine::estimate::Unmeasured));
        let options = Options {
            threads,
            memory_budget,
            memory_budget_with_others: self.memory_budget.unwrap_or(DEVICE_MEMORY_BUDGET),
            is_memory_chosen: self.memory_budget.is_some(),
            check_roots: !self.skip_root_check,
            verify_signatures: self.verify_signatures,
            redundant: self.redundant,
        };
        let devices = devices.into_iter().map(|(device, backend)| (backend, device)).collect();
        let scheduler = Arc::new(Scheduler::new(devices, wake, options, know, self.zkdilithium_policy));
        let (jobs, bytes) = self.queue.unwrap_or((QUEUED_JOBS, memory_budget));
        let queue = Queue::new(scheduler.clone(), jobs, bytes, self.max_delay);
        Ok(Engine(Arc::new(Inner { queue, scheduler, notices, host_hashing: HostHashing::default() })))
    }

    /// Makes the host the only device at first, unless the caller said which.
    fn take_automatic(&mut self) -> Result<Option<Wake>, Error> {
        let said = self.backend.is_some() || self.devices.is_some() || self.device > 0;
        let (host, wake): (Arc<dyn Backend>, Wake) = match self.automatic.take() {
            Some(automatic) => automatic,
            None if said => return Ok(None),
            None => {
                let (Some((host, others)), cache) = (crate::BACKENDS.split_first(), self.cache.clone()) else {
                    return Ok(None);
                };
                let made = move || others.iter().map(|entry| (entry.make)(cache.as_deref())).collect();
                ((host.make)(None), Arc::new(made))
            }
        };
        self.backend = Some(host);
        Ok(Some(wake))
    }

    fn one_device(&mut self) -> Result<(Device, Arc<dyn Backend>), Error> {
        let (mut names, mut had) = (Vec::new(), 0);
        // One after the other: to ask a driver that is not needed takes time.
        let cache = self.cache.take();
        let all = || crate::BACKENDS.iter().map(|entry| (entry.make)(cache.as_deref()));
        let candidates: Box<dyn Iterator<Item = _>> = match self.backend.take() {
            Some(backend) => Box::new(std::iter::once((backend, true))),
            None => Box::new(all().map(|backend| (backend, false))),
        };
        for (backend, named) in candidates {
            match find(&backend, self.device)? {
                Ok(device) if named || device.automatic => return Ok((device, backend)),
                Ok(_) => had = 0,
                Err(has) => had = has,
            }
            names.push(backend.name());
        }
        Err(none(&names, self.device, had))
    }
}

/// What the tables know of a device.
#[cfg(feature = "tables")]
fn know(
    tables: &[Source],
    backend: &Arc<dyn Backend>,
    device: &Device,
    notices: &Mutex<Vec<String>>,
) -> Arc<dyn Knowledge> {
    let mut known = Known::new(tables, &**backend, device);
    let mut all = notices.lock().unwrap_or_else(PoisonError::into_inner);
    for notice in std::mem::take(&mut known.notices) {
        if !all.contains(&notice) {
            all.push(notice);
        }
    }
    Arc::new(known)
}

/// A backend's device, or how many devices it has instead.
fn find(backend: &Arc<dyn Backend>, index: u32) -> Result<Result<Device, usize>, Error> {
    let devices = backend.devices()?;
    let has = devices.len();
    Ok(devices.into_iter().find(|device| device.index == index).ok_or(has))
}

fn none(backends: &[&str], index: u32, has: usize) -> Error {
    Error::Value { what: format!("device {index} of {}: it has {has} devices", backends.join(", ")) }
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

    /// The devices that work is split over: those that the engine was built with or initialised since, but for those that it
    /// disabled. The first leads.
    pub fn devices(&self) -> Vec<Device> {
        self.0.scheduler.live().map(|worker| worker.device().clone()).collect()
    }

    /// The device that the engine was built with: the first, if there are several.
    pub fn device(&self) -> &Device {
        self.0.scheduler.workers()[0].device()
    }

    /// What is to be said of the tables that the engine was built with, a line for each that is stale or damaged, and of
    /// what its [backends](Backend::notices) have left out so far.
    pub fn notices(&self) -> Vec<String> {
        let mut all = self.0.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let backends = self.0.scheduler.all().map(|worker| worker.programs.backend());
        for notice in backends.flat_map(|backend| backend.notices()) {
            if !all.contains(&notice) {
                all.push(notice);
            }
        }
        all
    }

    /// What devices failed so far, and how, in order: the latest 64. After a failure the work went on elsewhere, or the
    /// call ended with an error if there was no other device. Whoever keeps an engine for long should look here now and
    /// then.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.scheduler.faults()
    }

    /// Where the devices' time went, summed over all programs that ran so far; of those that ran concurrently each counts.
    pub fn timing(&self) -> Timing {
        self.0.scheduler.timing()
    }

    /// What the engine did so far, and what it does now: chunks and their sizes, waits, faults, retries. Counting costs nothing
    /// that could be measured, and is always on.
    pub fn stats(&self) -> Stats {
        Stats { tickets: self.0.queue.stats(), ..self.0.scheduler.stats() }
    }

    /// What each of the [`devices`](Engine::devices) devices could do at most, if its backend knows: compressions a
    /// second.
    pub fn rates(&self) -> Vec<(Device, Option<Work>)> {
        let rates = |worker: &Worker| worker.programs.backend().rates(worker.device());
        self.0.scheduler.live().map(|worker| (worker.device().clone(), rates(worker))).collect()
    }

    /// Host threads.
    pub fn threads(&self) -> usize {
        self.0.scheduler.options.threads
    }

    /// A new key, from the operating system's randomness.
    ///
    /// FIPS 205, Algorithm 21.
    pub fn generate(&self, params: &'static Params) -> Result<SigningKey, Error> {
        self.0.one(KeygenJob(params, Cow::Owned(Seeds::random(params)?)))
    }

    /// `count` new keys, handed to `sink` with their number as they become ready. The sink may stop the call by
    /// [`ControlFlow::Break`].
    pub fn generate_batch<F: Flow>(
        &self,
        params: &'static Params,
        count: usize,
        mut sink: impl FnMut(usize, SigningKey) -> F,
    ) -> Result<(), Error> {
        self.0.generate_all(params, count, &mut |index, key| sink(index, key).flow())
    }

    /// Keys from given seeds.
    ///
    /// FIPS 205, Algorithm 18.
    pub fn from_seeds(&self, params: &'static Params, seeds: &[Seeds]) -> Result<Vec<SigningKey>, Error> {
        let mut keys = Vec::with_capacity(seeds.len());
        let mut failed = None;
        let mut jobs = seeds.iter().map(|seeds| Slh::one(KeygenJob(params, Cow::Borrowed(seeds))));
        let mut take = |_, key| {
            match key {
                Ok(key) => keys.push(key),
                Err(why) => failed = failed.take().or(Some(why)),
            }
            ControlFlow::Continue(())
        };
        self.0.scheduler.run(&mut jobs, &mut one_by_one(KeygenJob::discard, &mut take))?;
        failed.map_or(Ok(keys), Err)
    }

    /// Computes PK.root again: [`Error::KeyDamaged`] if it is not the key's own. Keys that were read from a file may be
    /// checked once; signing finds a wrong root too.
    pub fn check(&self, key: &SigningKey) -> Result<(), Error> {
        self.0.one(CheckJob(key))
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
        self.0.one(SignJob::new(key, message).mode(mode).randomizer(randomizer))
    }

    /// Signs any number of messages in bounded memory. `sink` gets every job's index and result, in order, on this thread, as
    /// soon as the result and those before it are there; it may stop the call by [`ControlFlow::Break`]. A thread of its own
    /// takes jobs from the iterator, at most a chunk ahead of the devices, so that an iterator that blocks holds no result
    /// back. With one thread and the CPU alone this thread takes them, a chunk at a time.
    ///
    /// A job with bad input or a damaged key has an error of its own. An error of the whole call (the last device fails, or
    /// there is no randomness) ends the call, and the jobs whose result was not handed out are not signed. The call returns
    /// when the iterator's `next` has returned that was called last.
    pub fn sign_batch<'a, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = SignJob<'a>, IntoIter: Send>,
        mut sink: impl FnMut(usize, Result<Signature, Error>) -> F,
    ) -> Result<(), Error> {
        self.0.sign_all(&mut jobs.into_iter(), &mut |index, signature| sink(index, signature).flow())
    }

    /// The same for jobs that are at hand: a result for each, in their order.
    pub fn sign_batch_to_vec<'a>(
        &self,
        jobs: impl IntoIterator<Item = SignJob<'a>>,
    ) -> Result<Vec<Result<Signature, Error>>, Error> {
        self.0.to_vec(jobs.into_iter().map(Slh::one).collect())
    }

    /// Whether the signature is the key's, for this message. A signature of the wrong length is an error.
    ///
    /// FIPS 205, Algorithms 24 and 25; with [`Mode::Internal`] 20.
    pub fn verify(&self, key: &VerifyingKey, mode: Mode<'_>, message: &[u8], signature: &[u8]) -> Result<bool, Error> {
        self.0.one(VerifyJob::new(key, message, signature).mode(mode))
    }

    /// Verifies any number of signatures in bounded memory, as [`Engine::sign_batch`] signs.
    pub fn verify_batch<'a, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = VerifyJob<'a>, IntoIter: Send>,
        mut sink: impl FnMut(usize, Result<bool, Error>) -> F,
    ) -> Result<(), Error> {
        self.0.verify_all(&mut jobs.into_iter(), &mut |index, verdict| sink(index, verdict).flow())
    }

    /// The same for jobs that are at hand: a verdict for each, in their order.
    pub fn verify_batch_to_vec<'a>(
        &self,
        jobs: impl IntoIterator<Item = VerifyJob<'a>>,
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        self.0.to_vec(jobs.into_iter().map(Slh::one).collect())
    }

    /// The same key with the nodes of its top `layers` layers, so that signing needs not grow them: the same signatures
    /// with less work. One layer, the top tree, is the usual choice; 0 drops the nodes.
    pub fn cache(&self, key: &SigningKey, layers: usize) -> Result<SigningKey, Error> {
        if layers == 0 {
            return Ok(key.without_nodes());
        }
        let nodes = self.0.one(CacheJob(key, layers))?;
        // A wrong node below the top tree would be signed with a one-time key that signs the right one elsewhere.
        let is_discrete = self.0.scheduler.live().any(Worker::is_discrete);
        if is_discrete && self.0.one(CacheJob(key, layers))? != nodes {
            let what = format!("the nodes of {layers} layers differ when they are computed again");
            return Err(Error::Inconsistent { device: self.device().id(), what });
        }
        Ok(key.with_nodes(layers, nodes))
    }

    /// The same key with as many of its top layers as fit `bytes`; see [`cache_bytes`].
    pub fn cache_within(&self, key: &SigningKey, bytes: usize) -> Result<SigningKey, Error> {
        let p = key.params();
        let layers = (1..=p.d).take_while(|layers| cache_bytes(p, *layers).is_some_and(|needs| needs <= bytes)).count();
        self.cache(key, layers)
    }

    /// Jobs of a batch that keeps all devices busy for a while: twice as many as they have in flight.
    pub fn jobs_to_fill(&self, params: &'static Params, op: Op, cached_layers: usize) -> Result<usize, Error> {
        let group = Group::slh_dsa(params, op, cached_layers, self.threads());
        let programs = |worker: &Worker| Ok(worker.programs.facts(group)?.most() * worker.queue_of(Some(group)));
        Ok(2 * self.0.scheduler.live().map(programs).sum::<Result<usize, Error>>()?)
    }

    /// Jobs that the first device takes together, at most.
    pub fn jobs_per_program(&self, params: &'static Params, op: Op, cached_layers: usize) -> Result<usize, Error> {
        let group = Group::slh_dsa(params, op, cached_layers, self.threads());
        Ok(self.0.scheduler.first().programs.facts(group)?.most())
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
        let scheduler = &self.0.scheduler;
        for worker in scheduler.live() {
            let group = Group::slh_dsa(cheapest, Op::Keygen, 0, self.threads());
            let count = match worker.programs.facts(group) {
                Ok(facts) if worker.has_memory() => facts.most(),
                _ => 16 * self.threads(),
            };
            let seeds = (0..count).map(|_| Seeds::random(cheapest)).collect::<Result<Vec<_>, _>>()?;
            // The first run prepares the program.
            for _ in 0..3 {
                let mut lost = Ok(());
                let mut jobs = seeds.iter().map(|seeds| Slh::one(KeygenJob(cheapest, Cow::Borrowed(seeds))));
                let mut take = |_, key: Result<SigningKey, Error>| {
                    lost = std::mem::replace(&mut lost, Ok(())).and(key.map(drop));
                    ControlFlow::Continue(())
                };
                scheduler.run_on(vec![worker], false, &mut jobs, &mut one_by_one(KeygenJob::discard, &mut take))?;
                lost?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Engine");
        shown.field("devices", &self.devices()).field("threads", &self.threads());
        shown.field("memory_budget", &self.0.scheduler.memory_budget()).finish_non_exhaustive()
    }
}

pub(crate) fn wrong_root(key: &SigningKey) -> Error {
    let set = key.params().name;
    Error::KeyDamaged {
        what: format!(
            "PK.root of this {set} private key does not follow from its seeds; the key is damaged: read it again from a copy"
        ),
    }
}

pub(crate) struct Inner {
    /// Its threads end before all else does.
    pub(crate) queue: Queue,
    pub(crate) scheduler: Arc<Scheduler>,
    notices: Arc<Mutex<Vec<String>>>,
    pub(crate) host_hashing: HostHashing,
}

/// The calls that take jobs from a caller's iterator. They are not generic, so that the scheduler's code is compiled once, in
/// this crate, and not again in every program for every iterator.
impl Inner {
    fn sign_all<'a>(
        &self,
        jobs: &mut (dyn Iterator<Item = SignJob<'a>> + Send),
        sink: &mut dyn FnMut(usize, Result<Signature, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.scheduler.run_blocking(&mut jobs.map(Slh::one), &mut one_by_one(SignJob::discard, sink))
    }

    fn verify_all<'a>(
        &self,
        jobs: &mut (dyn Iterator<Item = VerifyJob<'a>> + Send),
        sink: &mut dyn FnMut(usize, Result<bool, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.scheduler.run_blocking(&mut jobs.map(Slh::one), &mut one_by_one(VerifyJob::discard, sink))
    }

    /// The jobs are all made before the first one runs: an iterator that makes them may use the engine.
    fn to_vec<J: Job>(&self, jobs: Vec<Slh<J>>) -> Result<Vec<Result<J::Out, Error>>, Error> {
        let mut results = Vec::with_capacity(jobs.len());
        let mut take = |_, result| {
            results.push(result);
            ControlFlow::Continue(())
        };
        self.scheduler.run(&mut jobs.into_iter(), &mut one_by_one(J::discard, &mut take))?;
        Ok(results)
    }

    fn one<J: Job>(&self, job: J) -> Result<J::Out, Error> {
        self.scheduler.one(Slh::one(job))?.pop().expect("a result for the job")
    }

    fn generate_all(
        &self,
        params: &'static Params,
        count: usize,
        sink: &mut dyn FnMut(usize, SigningKey) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // Without randomness there are no more jobs, and this says why.
        let mut failed = None;
        let mut jobs = (0..count).map_while(|_| match Seeds::random(params) {
            Ok(seeds) => Some(Slh::one(KeygenJob(params, Cow::Owned(seeds)))),
            Err(why) => {
                failed = Some(why);
                None
            }
        });
        let mut lost = None;
        let mut take = |index, key| match key {
            Ok(key) => sink(index, key),
            Err(why) => {
                lost = Some(why);
                ControlFlow::Continue(())
            }
        };
        self.scheduler.run(&mut jobs, &mut one_by_one(KeygenJob::discard, &mut take))?;
        failed.or(lost).map_or(Ok(()), Err)
    }
}

impl Inner {
    fn explain(&self, params: &'static Params, op: Op, batch: usize) -> Result<Explanation, Error> {
        let cached_layers = usize::from(op == Op::Cache);
        let scheduler = &self.scheduler;
        let kind = Kind::SlhDsa { params, op, cached_layers };
        let of = |worker: &Worker| Group { kind, threads: scheduler.threads_for(worker, kind, batch) };
        let wide = Group { kind, threads: scheduler.options.threads };
        let suited = scheduler.suited((batch > 1 && scheduler.may_choose()).then_some(wide), Some(batch));
        let (live, device_why) = (suited.workers, suited.why);
        let worker = match scheduler.suited_alone(kind).filter(|_| batch == 1) {
            Some(other) => other,
            None if batch == 1 || live.is_empty() => scheduler.first(),
            None => live[0],
        };
        let group = of(worker);
        let facts = worker.programs.facts(group)?;
        let scale = Scale { scheduler, worker };
        let memory = scheduler.memory_budget() / slots(live.iter().map(|worker| worker.queue() as u64));
        let held = (scheduler.copies() * facts.plan().out_bytes()) as u64;
        let mut jobs =
            SubBatches::new((0..batch).map(|_| QueuedJob { job: (), group: Ok(group), held, count: 1, block: (1, 0) }));
        let others = live.iter().filter(|other| !std::ptr::eq(**other, worker)).copied();
        let bounds = scale.bounds(memory, Some(group), others);
        let sub_batch = match jobs.cut(&scale, bounds) {
            Some(SubBatch::Run(jobs, _)) => jobs.len(),
            Some(SubBatch::TooLarge(.., needs)) if needs > scheduler.memory_budget() => {
                return Err(scheduler.out_of_memory(worker, needs));
            }
            Some(SubBatch::TooLarge(..)) => 1,
            None => 0,
        };
        // One job is one device's.
        let sharing = if batch > 1 { &live[..] } else { &[worker][..] };
        let predicted: Option<Vec<(f64, &'static str)>> =
            sharing.iter().filter(|w| w.takes(group)).map(|w| self.jobs_a_second(w, group, sub_batch.max(1))).collect();
        let times = f64::from(1 + u8::from(scheduler.options.redundant));
        let speed = predicted.as_ref().map(|all| all.iter().map(|(speed, _)| speed).sum::<f64>() / times);
        let choice = worker.programs.choice(&facts, sub_batch.max(1));
        Ok(Explanation {
            plan: facts.plan().clone(),
            device: worker.device().clone(),
            threads: group.threads,
            policy: choice.policy,
            policy_source: choice.source,
            policy_why: choice.why,
            device_why,
            crossover: scheduler.crossover(group),
            device_free: worker.programs.backend().free(worker.device()),
            work: *facts.work(),
            predicted: speed.and_then(|speed| Duration::try_from_secs_f64(batch as f64 / speed).ok()),
            predicted_by: predicted.and_then(|all| Some(all.first()?.1)).unwrap_or("nothing"),
            memory: MemoryUse {
                budget: scheduler.memory_budget(),
                program: worker.programs.bytes(&facts, sub_batch.max(1)),
                output: facts.plan().out_bytes() as u64,
                sub_batch,
            },
        })
    }

    /// Jobs a second in sub-batches of this size, and how that is known: measured by this engine, by a table's row or its
    /// model, by jobs with the same hash and n, or at the device's rates.
    fn jobs_a_second(&self, worker: &Worker, group: Group, sub_batch: usize) -> Option<(f64, &'static str)> {
        let facts = worker.programs.facts(group).ok()?;
        if facts.measured_at(sub_batch).is_some() {
            return worker.seconds(group, sub_batch).map(|s| (sub_batch as f64 / s, "runs of this engine"));
        }
        let choice = worker.programs.choice(&facts, sub_batch);
        if let (Some((seconds, _)), true) = (choice.seconds, choice.source != PolicySource::Default) {
            let by = if choice.source == PolicySource::Table { "a table's row" } else { "a model of a table's rows" };
            return Some((1.0 / seconds, by));
        }
        if let Some(seconds) = facts.measured(sub_batch) {
            return Some((1.0 / seconds, "runs of this engine"));
        }
        let (known, work) = (worker.programs.known(), facts.work());
        let alike = known.iter().filter(|other| {
            let (Kind::SlhDsa { params: a, .. }, Kind::SlhDsa { params: b, .. }) = (other.group.kind, group.kind)
            else {
                return false;
            };
            (a.family, a.n, other.group.threads) == (b.family, b.n, group.threads)
        });
        let each = alike.filter_map(|other| Some(other.measured(sub_batch)? / other.work().compressions()));
        let by_work = each.reduce(f64::min).map(|seconds| seconds * work.compressions());
        let by_rates = || choice.seconds.map(|(seconds, _)| (1.0 / seconds, "the device's rates alone"));
        by_work.map(|seconds| (1.0 / seconds, "keys generated now")).or_else(by_rates)
    }
}
