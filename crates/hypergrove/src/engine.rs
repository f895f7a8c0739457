//! The engine: its devices, its threads and its memory budget.

use crate::calls::Sink;
use crate::flow::{Flow, indexed};
use crate::jobs::{self, GenerateJob};
use crate::scheme::{ParameterSet, Scheme};
use crate::types::SchemeTypes;
#[cfg(feature = "tables")]
use hypergrove_engine::Knowledge;
use hypergrove_engine::scheduler::{
    Checks, Fault, KnowledgeSource, MemoryBudget, Options, Queue, Scheduler, Stats, Wake, WorkOptions, Worker,
};
use hypergrove_engine::scheme::Group;
use hypergrove_engine::trace::Observer;
use hypergrove_engine::{Backend, DEVICE_TIMEOUT, Device, Error, Policy, Timing};
use hypergrove_fips205::plan::{Op, Rates};
#[cfg(feature = "tables")]
use hypergrove_tables::table::{Source, TableKnowledge};
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The default memory budget of an engine in bytes, for its programs and running batches; see [`EngineBuilder::memory_budget`].
pub const MEMORY_BUDGET: u64 = 256 << 20;

/// The default memory budget in bytes of an engine that uses devices with memory of their own, for each such device. They need more
/// signatures in flight to stay busy.
///
/// Each device has four programs for verification at a time, of four sizes. (Verifying 128f, four H100: with 4 GiB in all 6.8 M/s; with 2 GiB in
/// all, where programs are made anew for most chunks, 1.4 M/s.)
pub const DEVICE_MEMORY_BUDGET: u64 = 2 << 30;

/// The least default memory budget in bytes, where less than twice as much is free: all that an engine of the CPU needs to work, if slowly.
const LEAST_MEMORY_BUDGET: u64 = 16 << 20;

/// The default number of jobs that an engine's queue of tickets holds; see [`EngineBuilder::queue`].
pub const QUEUED_JOBS: usize = 1 << 16;

/// Signs, verifies and makes keys, on one device or several. A clone is cheap and shares the programs and threads.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

/// Builds an [`Engine`]: devices, threads, memory and checks. See [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    backend: Option<Arc<dyn Backend>>,
    device: u32,
    devices: Option<Vec<(Arc<dyn Backend>, u32)>>,
    threads: Option<usize>,
    memory_budget: Option<u64>,
    queue: Option<(usize, u64)>,
    max_delay: Duration,
    checks: Checks,
    device_timeout: Option<Duration>,
    #[cfg(feature = "tables")]
    tables: Vec<Source>,
    cache: Option<PathBuf>,
    automatic: Option<(Arc<dyn Backend>, Wake)>,
    policy: Policy,
    observer: Option<Observer>,
}

/// Writes setters: each keeps a value that it makes of its arguments in a field.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),+) => $($field:ident).+: $value:expr;)+) => {
        impl EngineBuilder {$(
            $(#[$attribute])*
            pub fn $name(mut self, $($argument: $type),+) -> EngineBuilder {
                self.$($field).+ = $value;
                self
            }
        )+}
    };
}

setters! {
    /// Sets the backend. Without this and [`devices`](EngineBuilder::devices), the engine uses the CPU, and adds GPUs for batches where
    /// measurements say they are faster.
    backend(backend: Arc<dyn Backend>) => backend: Some(backend);
    /// Sets which of the backend's devices the engine uses, by index; by default the first.
    device(index: u32) => device: index;
    /// Sets several devices, each by its backend and index. They share each batch by their speed. The first device does the work that cannot be
    /// shared. If a device fails, the engine disables it, and the others do its jobs: see [`Engine::faults`].
    devices(devices: Vec<(Arc<dyn Backend>, u32)>) => devices: Some(devices);
    /// Sets the backend of the CPU, and the backends that the engine may add when a batch is worth it. Without a choice of devices,
    /// these are the backends of this build.
    automatic(host: Arc<dyn Backend>, others: Wake) => automatic: Some((host, others));
    /// Gives the engine tables of measured policies, as `hypergrove tune` writes them, the most trusted first. The engine leaves out
    /// tables that do not fit a device: see [`Engine::notices`].
    #[cfg(feature = "tables")]
    tables(tables: Vec<Source>) => tables: tables;
    /// Sets the directory where the engine's backends keep compiled kernels; by default they keep none. The engine does not use a
    /// directory that other users may write: see [`Engine::notices`].
    cache(directory: PathBuf) => cache: Some(directory);
    /// Sets the number of CPU threads, at most 65,535; by default as many as the operating system offers. With 1, the CPU works on the calling
    /// thread. If the system starts fewer, the engine works with these: see [`Engine::notices`].
    threads(threads: usize) => threads: Some(threads);
    /// Sets the memory budget: bytes of the host's memory for prepared programs, for each call's results, and for the messages that its
    /// jobs own. By default [`MEMORY_BUDGET`], or [`DEVICE_MEMORY_BUDGET`] for each device that has memory of its own, but at most half of the
    /// memory that is free when the engine is built, in the system and in the process's control groups. By default, a
    /// message that is larger than the budget is signed alone; with a budget of the caller's, it is an error.
    memory_budget(bytes: u64) => memory_budget: Some(bytes);
    /// Sets how many jobs the queue of [tickets](Engine::submit) holds, and how many bytes these jobs may own; by default [`QUEUED_JOBS`] and
    /// the memory budget. A [set of rows](crate::rows::RowSet) counts as its rows. A queue with room takes a job of any size, and so does an
    /// empty queue.
    queue(jobs: usize, bytes: u64) => queue: Some((jobs, bytes));
    /// Sets how long the job of a [ticket](Engine::submit) waits at most for other jobs to share its batch; by default it begins at once. Jobs
    /// that are enough for a batch do not wait; a [set of rows](crate::rows::RowSet) counts as its rows. On the CPUs that were measured, no
    /// delay made the rate higher, and with few callers every delay made it lower. GPUs were not measured.
    max_delay(delay: Duration) => max_delay: delay;
    /// Sets whether the engine compares PK.root with the top root that signing computes. By default it does: this costs nothing.
    check_roots(check: bool) => checks.check_roots: check;
    /// Sets whether the engine verifies every signature before it returns it. By default it does not: this costs a verification.
    verify_signatures(verify: bool) => checks.verify_signatures: verify;
    /// Sets whether the engine computes keys, signatures and verdicts (not SHA-256) twice and compares them before it returns them. By
    /// default it does not: this takes twice the time. Both computations begin with the keys and messages. In the second one, every job
    /// has another place on the device (a lane of a vector, a thread of a GPU), so that the comparison also finds a fault that stays in
    /// one place. A GPU compares signatures of rows before it copies them to the caller; nothing checks that copy, unless
    /// [`verify_signatures`](EngineBuilder::verify_signatures) is set too.
    redundant(redundant: bool) => checks.redundant: redundant;
    /// Sets how long the engine waits for a GPU, at least, before the GPU counts as hung; by default [`DEVICE_TIMEOUT`]. If 100 times the
    /// predicted time of the jobs is longer, that is the limit of the wait. To prepare and test a program, a GPU has [`DEVICE_TIMEOUT`]. The
    /// engine disables a GPU that hangs, and other devices do its jobs. The memory that this GPU was given stays allocated until the process
    /// ends. `Duration::MAX` means no limit. The CPU never has a limit, not even under a Vulkan driver. A GPU that writes results into
    /// [`Engine::memory`] has none once all results are computed: the call has lent that memory until the GPU is done with it.
    device_timeout(timeout: Duration) => device_timeout: Some(timeout);
    /// Sets the policy of GPUs for schemes that tables do not cover: all but SLH-DSA. A policy changes the time, never a result.
    policy(policy: Policy) => policy: policy;
    /// Sets the observer of a [trace](crate::trace): it gets an event for each step of the engine's threads. By default there is none, and the
    /// engine looks at no clock for it.
    observer(observer: Observer) => observer: Some(observer);
}

impl EngineBuilder {
    /// Builds the engine. It prepares programs and starts threads at the first call.
    pub fn build(mut self) -> Result<Engine, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::Value { what: "an engine with 0 threads; use 1 or more".into() }),
            Some(threads) if threads > rayon::max_num_threads() => {
                let what = format!("an engine with {threads} threads; use at most {}", rayon::max_num_threads());
                return Err(Error::Value { what });
            }
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
        let notices = Arc::new(Mutex::default());
        #[cfg(feature = "tables")]
        let know: KnowledgeSource = {
            let (tables, notices) = (self.tables, notices.clone());
            Arc::new(move |backend, device| know(&tables, backend, device, &notices))
        };
        #[cfg(not(feature = "tables"))]
        let know: KnowledgeSource = Arc::new(|_, _| Arc::new(hypergrove_engine::estimate::Unmeasured));
        let options = Options {
            threads,
            memory: match self.memory_budget {
                Some(bytes) => MemoryBudget::Chosen(bytes),
                None => {
                    let most = hypergrove_engine::free_memory().map_or(u64::MAX, |free| free / 2);
                    let most = most.max(LEAST_MEMORY_BUDGET);
                    MemoryBudget::ByDevices { each: DEVICE_MEMORY_BUDGET, none: MEMORY_BUDGET, most }
                }
            },
            device_timeout: self.device_timeout.unwrap_or(DEVICE_TIMEOUT),
        };
        let work = WorkOptions { checks: self.checks, ..WorkOptions::default() };
        let devices = devices.into_iter().map(|(device, backend)| (backend, device)).collect();
        let scheduler = Scheduler::new(devices, wake, (options, work), know, (self.policy, self.observer));
        let scheduler = Arc::new(scheduler);
        let (jobs, bytes) = self.queue.unwrap_or((QUEUED_JOBS, scheduler.memory_budget()));
        let queue = Queue::new(scheduler.clone(), jobs, bytes, self.max_delay);
        let (queue, host_hashing) = (Arc::new(queue), Arc::default());
        Ok(Engine(Arc::new(Inner { queue, scheduler, notices, host_hashing })))
    }

    /// Makes the CPU the only device at first, unless the caller chose devices. Returns the backends that may be added later.
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
        // Backends are asked one after the other, because asking a driver that is not needed takes time.
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

/// The knowledge that the tables have of a device. Notices about the tables are added to `notices`.
#[cfg(feature = "tables")]
fn know(
    tables: &[Source],
    backend: &Arc<dyn Backend>,
    device: &Device,
    notices: &Mutex<Vec<String>>,
) -> Arc<dyn Knowledge> {
    let mut known = TableKnowledge::new(tables, &**backend, device);
    let mut all = notices.lock().unwrap_or_else(PoisonError::into_inner);
    for notice in std::mem::take(&mut known.notices) {
        if !all.contains(&notice) {
            all.push(notice);
        }
    }
    Arc::new(known)
}

/// The backend's device with this index, or the number of its devices if there is no such device.
fn find(backend: &Arc<dyn Backend>, index: u32) -> Result<Result<Device, usize>, Error> {
    let devices = backend.devices()?;
    let has = devices.len();
    Ok(devices.into_iter().find(|device| device.index == index).ok_or(has))
}

fn none(backends: &[&str], index: u32, has: usize) -> Error {
    Error::Value { what: format!("device {index} of {}: it has {has} devices", backends.join(", ")) }
}

impl Engine {
    /// Makes an engine with default devices, all threads and the default memory budget.
    pub fn new() -> Result<Engine, Error> {
        Engine::builder().build()
    }

    /// Begins to build an engine with chosen devices, threads, memory and checks.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// The devices that the engine uses now: those of [`EngineBuilder`] and those that it added since, without those that it disabled. The first
    /// device does the work that cannot be shared.
    pub fn devices(&self) -> Vec<Device> {
        self.0.scheduler.live().map(|worker| worker.device().clone()).collect()
    }

    /// The first device that the engine was built with.
    pub fn device(&self) -> &Device {
        self.0.scheduler.workers()[0].device()
    }

    /// Warnings, one line each: tables that are stale or damaged, threads that the system did not start, and the [notices](Backend::notices) of the
    /// backends so far.
    pub fn notices(&self) -> Vec<String> {
        let mut all = self.0.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(self.0.scheduler.notice().map(String::from));
        let backends = self.0.scheduler.all().map(|worker| worker.programs.backend());
        for notice in backends.flat_map(|backend| backend.notices()) {
            if !all.contains(&notice) {
                all.push(notice);
            }
        }
        all
    }

    /// The latest 64 failures of devices, in order. After a failure, another device did the work, or the call ended with an error. A
    /// program that keeps an engine for long should look here now and then.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.scheduler.faults()
    }

    /// Where the devices' time went, summed over all programs so far. Programs that ran concurrently count one by one.
    pub fn timing(&self) -> Timing {
        self.0.scheduler.timing()
    }

    /// Counters: chunks and their sizes, waits, faults and retries so far, and what runs now. Counting is always on, and costs nothing
    /// that could be measured.
    pub fn stats(&self) -> Stats {
        Stats { tickets: self.0.queue.stats(), ..self.0.scheduler.stats() }
    }

    /// The peak rate of each device, in compressions a second; `None` if its backend does not know.
    pub fn rates(&self) -> Vec<(Device, Option<Rates>)> {
        let rates = |worker: &Worker| worker.programs.backend().rates(worker.device());
        self.0.scheduler.live().map(|worker| (worker.device().clone(), rates(worker))).collect()
    }

    /// A handle of the same engine, for work with other options: its devices, threads, memory and queue are shared. Calls of both compute concurrently, and
    /// jobs of both that have the same checks share batches. So [`drain`](Engine::drain) on one handle stops the queue of all handles.
    ///
    /// ```
    /// use hypergrove::{Engine, Mode, SLH_DSA_SHA2_128F, WorkOptions};
    /// use std::time::Duration;
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    /// let mut options = engine.work_options();
    /// options.checks.redundant = true;
    /// options.timeout = Some(Duration::from_secs(60));
    /// let careful = engine.with(options);
    /// let signature = careful.sign(&key, Mode::default(), b"Dear reader", Default::default())?;
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, work: WorkOptions) -> Engine {
        let Inner { queue, scheduler, notices, host_hashing } = &*self.0;
        Engine(Arc::new(Inner {
            queue: queue.clone(),
            scheduler: Arc::new(scheduler.with(work)),
            notices: notices.clone(),
            host_hashing: host_hashing.clone(),
        }))
    }

    /// The options of the work that comes by this handle of the engine: those of its builder, or of [`Engine::with`].
    pub fn work_options(&self) -> WorkOptions {
        self.0.scheduler.work.clone()
    }

    /// The checks of results.
    pub(crate) fn checks(&self) -> Checks {
        self.0.scheduler.work.checks
    }

    /// The number of CPU threads.
    pub fn threads(&self) -> usize {
        self.0.scheduler.options.threads
    }

    /// How long the engine waits for a GPU, at least: see [`EngineBuilder::device_timeout`].
    pub fn device_timeout(&self) -> Duration {
        self.0.scheduler.options.device_timeout
    }

    /// Makes a key of a set from the operating system's randomness.
    ///
    /// FIPS 205, Algorithm 21.
    pub fn generate<P: ParameterSet>(&self, set: P) -> Result<<P::Scheme as SchemeTypes>::SigningKey, Error> {
        (P::Scheme::calls().generate)(&self.0.scheduler, GenerateJob::new(set))
    }

    /// Makes `count` keys from the operating system's randomness. `sink` gets each key with its number. It may stop the call by
    /// [`ControlFlow::Break`].
    pub fn generate_batch<P: ParameterSet, F: Flow>(
        &self,
        set: P,
        count: usize,
        mut sink: impl FnMut(usize, <P::Scheme as SchemeTypes>::SigningKey) -> F,
    ) -> Result<(), Error> {
        let mut jobs = (0..count).map(|_| GenerateJob::new(set));
        let (mut failed, all) = (Ok(()), P::Scheme::calls().generate_all);
        all(
            &self.0.scheduler,
            &mut jobs,
            &mut indexed(|index, key| match key {
                Ok(key) => sink(index, key).flow(),
                Err(why) => {
                    failed = Err(why);
                    ControlFlow::Break(())
                }
            }),
            false,
        )?;
        failed
    }

    /// Makes a key from each of these seeds. Each key has memory of its own, whose allocation limits a GPU:
    /// [`keygen_rows_from_seeds`](Engine::keygen_rows_from_seeds) makes many keys faster.
    ///
    /// FIPS 205, Algorithm 18.
    pub fn from_seeds<P: ParameterSet>(
        &self,
        set: P,
        seeds: &[<P::Scheme as SchemeTypes>::Seeds],
    ) -> Result<Vec<<P::Scheme as SchemeTypes>::SigningKey>, Error> {
        let mut jobs = seeds.iter().map(|seeds| GenerateJob::of_seeds(set.scheme(), seeds));
        to_vec(seeds.len(), |sink| (P::Scheme::calls().generate_all)(&self.0.scheduler, &mut jobs, sink, false))?
            .into_iter()
            .collect()
    }

    /// Signs any number of messages in bounded memory.
    ///
    /// `sink` gets the index and the result of each job, in order, on this thread, as soon as they are known. It may stop the call by
    /// [`ControlFlow::Break`]. A thread of its own takes jobs from the iterator, at most one chunk before the devices need them, so an
    /// iterator that blocks delays no result. With one thread and only the CPU, this thread takes the jobs, a chunk at a time.
    ///
    /// A job with bad input or a damaged key gets an error, and the others go on. An error of the whole call means that the last device
    /// failed, or that there is no randomness: then all jobs without a result are unsigned. The call waits until the iterator's `next`
    /// has returned.
    pub fn sign_batch<'a, S: Scheme, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = jobs::SignJob<'a, S>, IntoIter: Send>,
        sink: impl FnMut(usize, Result<S::Signature, Error>) -> F,
    ) -> Result<(), Error> {
        let (mut jobs, sign_all) = (jobs.into_iter(), S::calls().sign_all);
        sign_all(&self.0.scheduler, &mut jobs, &mut indexed(sink), true)
    }

    /// Signs all these jobs, and returns a result for each, in their order. See [`Engine::sign_batch`].
    pub fn sign_batch_to_vec<'a, S: Scheme>(
        &self,
        jobs: impl IntoIterator<Item = jobs::SignJob<'a, S>>,
    ) -> Result<Vec<Result<S::Signature, Error>>, Error> {
        // All jobs are made before the first one runs, because the iterator that makes them may use the engine.
        let jobs: Vec<_> = jobs.into_iter().collect();
        to_vec(jobs.len(), |sink| (S::calls().sign_all)(&self.0.scheduler, &mut jobs.into_iter(), sink, false))
    }

    /// Verifies any number of signatures in bounded memory. `sink` gets the index and the verdict of each job, in order; all else is as
    /// in [`Engine::sign_batch`].
    pub fn verify_batch<'a, S: Scheme, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = jobs::VerifyJob<'a, S>, IntoIter: Send>,
        sink: impl FnMut(usize, Result<bool, Error>) -> F,
    ) -> Result<(), Error> {
        let (mut jobs, verify_all) = (jobs.into_iter(), S::calls().verify_all);
        verify_all(&self.0.scheduler, &mut jobs, &mut indexed(sink), true)
    }

    /// Verifies all these jobs, and returns a verdict for each, in their order. See [`Engine::verify_batch`].
    pub fn verify_batch_to_vec<'a, S: Scheme>(
        &self,
        jobs: impl IntoIterator<Item = jobs::VerifyJob<'a, S>>,
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        let jobs: Vec<_> = jobs.into_iter().collect();
        to_vec(jobs.len(), |sink| (S::calls().verify_all)(&self.0.scheduler, &mut jobs.into_iter(), sink, false))
    }

    /// The number of jobs that keeps all devices busy: twice as many as they have in flight.
    pub fn jobs_to_fill(&self, set: impl ParameterSet, op: Op, cached_layers: usize) -> Result<usize, Error> {
        let group = Group { kind: set.scheme().kind(op, cached_layers), threads: self.threads() };
        let programs = |worker: &Worker| Ok(worker.programs.facts(group)?.most() * worker.queue_of(Some(group)));
        Ok(2 * self.0.scheduler.live().map(programs).sum::<Result<usize, Error>>()?)
    }

    /// The largest number of jobs that the first device computes together.
    pub fn jobs_per_program(&self, set: impl ParameterSet, op: Op, cached_layers: usize) -> Result<usize, Error> {
        let group = Group { kind: set.scheme().kind(op, cached_layers), threads: self.threads() };
        Ok(self.0.scheduler.first().programs.facts(group)?.most())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Engine");
        shown.field("devices", &self.devices()).field("threads", &self.threads());
        shown.field("memory_budget", &self.0.scheduler.memory_budget()).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    /// The queue is the first field, so that its threads end before anything else is dropped.
    pub(crate) queue: Arc<Queue>,
    pub(crate) scheduler: Arc<Scheduler>,
    notices: Arc<Mutex<Vec<String>>>,
    /// Whether the lanes of the host hash correctly, tested at the first use.
    pub(crate) host_hashing: Arc<OnceLock<Result<(), Error>>>,
}

/// Collects the results of a call of this number of jobs. `run` hands them to a sink.
fn to_vec<T>(jobs: usize, run: impl FnOnce(Sink<'_, T>) -> Result<(), Error>) -> Result<Vec<Result<T, Error>>, Error> {
    let mut results = Vec::with_capacity(jobs);
    run(&mut |_, result| {
        results.push(result);
        ControlFlow::Continue(())
    })?;
    Ok(results)
}
