//! The scheduler: all work of an engine goes through it, whatever the scheme.
//!
//! The scheduler's unit of work is a prepared program with a batch in, a batch out and a predicted cost. A client says what its [`Job`]s are and how
//! a device runs them. The scheduler does all the rest: it chooses devices, cuts chunks that fit the memory budget, shares devices among calls,
//! retries jobs that a device lost, and counts. It knows blocks of jobs by their numbers: only the module `blocks`, and the functions that take jobs
//! from a client, are compiled for each type of job.

mod batch;
mod blocks;
mod call;
mod cell;
mod choice;
mod chunk_memory;
mod compute;
#[cfg(test)]
mod doubles;
mod job;
mod joining;
mod memory;
mod options;
mod outside;
mod permits;
mod place;
mod producer;
mod rates;
mod scale;
mod single;
mod stats;
mod sync;
mod threads;
mod tickets;
mod worker;

pub use choice::DeviceChoice;
pub use chunk_memory::ChunkMemory;
pub use compute::{Compute, Computed, Output, Parts, RESULTS_OF_A_THREAD, Wiped, compute, room};
pub use job::{Failed, Job, Outcomes, Sink};
pub use memory::{Memory, zeros};
pub use options::{CancelToken, Checks, MemoryBudget, Options, WorkOptions};
pub use permits::{Waits, lock};
pub use place::{Place, Run, RunProgram};
pub use scale::Scale;
pub use stats::{DeviceStats, Stats, TicketStats};
pub use tickets::{Canceller, IsWanted, Queue, Queued, Room, Size, Ticket};
pub use worker::{Fault, KnowledgeSource, Wake, Worker, is_fault};

use crate::scheme::{Group, GroupFacts};
use crate::trace::{Observer, TraceContext};
use crate::{Backend, Device, Error, Policy, Process, Timing};
use options::Ends;
pub(crate) use outside::outside_pools;
use rates::CallRates;
use rayon::ThreadPool;
use stats::Counters;
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use worker::{Lazy, is_broken};

/// The most faults that are kept.
const MOST_FAULTS: usize = 64;

/// The devices of an engine and all that its calls share, for work with some options. A clone is cheap.
#[derive(Clone)]
pub struct Scheduler {
    /// The options of the work that comes this way.
    pub work: WorkOptions,
    /// When the time of the call is over, if the call has begun already.
    until: Option<Instant>,
    core: Arc<Core>,
}

impl Deref for Scheduler {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// All that the calls of an engine share, whatever their options.
pub struct Core {
    /// The options of the engine.
    pub options: Options,
    /// The devices, at least one. If others are initialised lazily, the host alone.
    workers: Vec<Worker>,
    lazy: Option<Lazy>,
    know: KnowledgeSource,
    /// The policy of schemes for which nothing is measured.
    policy: Policy,
    rates: CallRates,
    /// Held while a batch's device is chosen.
    choosing: Mutex<()>,
    faults: Mutex<Vec<Fault>>,
    /// The sums over all programs that ran.
    timing: Mutex<Timing>,
    pub(crate) counters: Counters,
    /// Memory of callers that devices reach.
    memory: Arc<memory::Pool>,
    /// Memory for copies of chunks that devices reach, in order of size.
    chunk_memory: Mutex<Vec<Memory>>,
    /// The host's threads, started at the first call that has use for them; `None` if the host works on the calling threads, for want of others.
    pool: OnceLock<Option<ThreadPool>>,
    /// Pools for the host's own programs whose policy has fewer threads than the engine.
    narrow: Mutex<Vec<Arc<ThreadPool>>>,
    /// The notice that threads could not be started.
    notice: OnceLock<String>,
    /// The process that used the engine first.
    process: OnceLock<Process>,
    /// Gets the events of all work, and the number of chunks that it was shown.
    pub(crate) observer: Option<Observer>,
    pub(crate) chunks_observed: AtomicU64,
}

/// Shares of the memory budget: one for each chunk in flight. If there may be several chunks at a time, also one a device for results that wait to be
/// handed out.
pub fn slots(queues: impl Iterator<Item = u64>) -> u64 {
    let (devices, queues) = queues.fold((0, 0), |(devices, queues), queue| (devices + 1, queues + queue));
    if queues == 1 { 1 } else { devices + queues }
}

impl Scheduler {
    /// A scheduler over these devices, one at least. Nothing is prepared and no thread started before the first call. With
    /// `wake` there is one device, the host, and others are initialised when a batch is worth it. `policy` is that of
    /// schemes for which nothing is measured. The observer gets the events of all work.
    pub fn new(
        devices: Vec<(Arc<dyn Backend>, Device)>,
        wake: Option<Wake>,
        (options, work): (Options, WorkOptions),
        know: KnowledgeSource,
        (policy, observer): (Policy, Option<Observer>),
    ) -> Scheduler {
        let slots = slots(devices.iter().map(|(_, device)| u64::from(device.queue.max(1))));
        let memory = options.memory.of(devices.iter().map(|(_, device)| device));
        let mut has_host = false;
        let mut workers = Vec::new();
        for (backend, device) in devices {
            let share = memory / slots * u64::from(device.queue.max(1));
            // Chunks of two devices in one pool could wait for each other.
            let is_host = !has_host && device.memory == 0 && device.queue <= 1;
            has_host |= is_host;
            workers.push(Worker::new((backend, device), share, is_host, options.threads, &know, &policy));
        }
        let core = Core {
            options,
            workers,
            lazy: wake.map(Lazy::new),
            know,
            policy,
            rates: CallRates::default(),
            choosing: Mutex::default(),
            faults: Mutex::default(),
            timing: Mutex::default(),
            counters: Counters::default(),
            memory: Arc::default(),
            chunk_memory: Mutex::default(),
            pool: OnceLock::new(),
            narrow: Mutex::default(),
            notice: OnceLock::new(),
            process: OnceLock::new(),
            observer,
            chunks_observed: AtomicU64::new(0),
        };
        Scheduler { work, until: None, core: Arc::new(core) }
    }

    /// A scheduler of the same devices, for work with other options.
    #[must_use]
    pub fn with(&self, work: WorkOptions) -> Scheduler {
        Scheduler { work, until: None, core: self.core.clone() }
    }

    /// This scheduler for a call that runs jobs several times, one after the other. The call's time begins now.
    pub fn of_call(&self) -> Cow<'_, Scheduler> {
        match self.until.is_none() && self.work.timeout.is_some() {
            true => Cow::Owned(Scheduler { until: self.work.until(Instant::now()), ..self.clone() }),
            false => Cow::Borrowed(self),
        }
    }

    /// When the work of a call ends that begins now, or began before.
    fn ends(&self) -> Ends<'_> {
        self.work.ends(self.until.or_else(|| self.work.until(Instant::now())))
    }

    /// Fails if no more work of a call may begin, for a client that does some of the work itself.
    pub fn check(&self) -> Result<(), Error> {
        self.ends().check()
    }

    /// The devices that the engine was built with.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// All devices that are initialised.
    pub fn all(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().chain(self.initialised())
    }

    /// The devices that are initialised lazily, if they are initialised already.
    fn initialised(&self) -> &[Worker] {
        self.lazy.as_ref().and_then(|lazy| lazy.workers.get()).map_or(&[], Vec::as_slice)
    }

    /// The devices that work, in the caller's order: at least one.
    pub fn live(&self) -> impl Iterator<Item = &Worker> {
        self.all().filter(|worker| !worker.is_disabled())
    }

    /// The device for work that only one can do.
    pub fn first(&self) -> &Worker {
        self.live().next().unwrap_or(&self.workers[0])
    }

    /// The error of jobs that ended with a panic: nobody knows on which device.
    pub fn panicked(&self, what: &str) -> Error {
        let devices: Vec<String> = self.all().map(|worker| worker.device().id()).collect();
        let device = match &devices[..] {
            [only] => only.clone(),
            several => format!("one of {}", several.join(", ")),
        };
        Error::Device { device, what: format!("a thread that ran {what} panicked") }
    }

    /// Records a failure, and gives whether the device is disabled. The last device is not, and its failure ends the call.
    pub fn fault(&self, worker: &Worker, error: Error, jobs: usize) -> bool {
        let mut faults = lock(&self.faults);
        // An engine may outlive any number of failures.
        if faults.len() == MOST_FAULTS {
            faults.remove(0);
        }
        faults.push(Fault { device: worker.device().clone(), error: error.clone(), jobs });
        self.counters.faults.add(1);
        // Under the lock, so that of two devices that fail together one stays.
        let others = self.live().any(|other| !std::ptr::eq(other, worker));
        if others {
            worker.disable(&error);
        }
        others
    }

    /// The latest failures of devices.
    pub fn faults(&self) -> Vec<Fault> {
        lock(&self.faults).clone()
    }

    /// Where the devices' time went, summed over all programs that ran so far.
    pub fn timing(&self) -> Timing {
        lock(&self.timing).clone()
    }

    /// The counters of this engine, without those of its tickets.
    pub fn stats(&self) -> Stats {
        let it = &self.counters;
        let device = |worker: &Worker| {
            let (running, waiting) = worker.permits.load();
            let (device, waits) = (worker.device().clone(), worker.permits.waits());
            DeviceStats { device, is_disabled: worker.is_disabled(), running, waiting, waits }
        };
        let (memory_in_use, memory_idle) = self.memory.stats();
        Stats {
            memory_in_use,
            memory_idle,
            chunks: it.chunks.read(),
            jobs: it.jobs.read(),
            chunk_sizes: it.sizes.read(),
            single_jobs: it.singles.read(),
            run_time: Duration::from_nanos(it.nanoseconds.read()),
            device: self.timing(),
            faults: it.faults.read(),
            retried_jobs: it.again.read(),
            redundant_jobs: it.twice.read(),
            devices: self.all().map(device).collect(),
            tickets: TicketStats::default(),
        }
    }

    /// The context of a call.
    pub(crate) fn trace_of_call(&self) -> TraceContext {
        TraceContext(self.observer.clone().map(|observer| (observer, None)))
    }

    /// The context of the next chunk.
    pub(crate) fn trace_of_chunk(&self) -> TraceContext {
        let number = |observer| (observer, Some(self.chunks_observed.fetch_add(1, Relaxed)));
        TraceContext(self.observer.clone().map(number))
    }

    /// Bytes of the host's memory for programs and jobs at hand.
    pub fn memory_budget(&self) -> u64 {
        let devices = match self.initialised() {
            [] => &self.workers[..],
            others => others,
        };
        self.options.memory.of(devices.iter().map(Worker::device))
    }

    /// The devices among which a call on these devices shares the memory budget. If batches go to one of several discrete devices each, such calls run on
    /// all of them at the same time.
    fn sharing<'w>(&'w self, devices: &[&'w Worker]) -> impl Iterator<Item = &'w Worker> {
        let is_booked = matches!(devices, [only] if only.is_discrete());
        let others = self.live().filter(move |worker| is_booked && worker.is_discrete());
        let is_new = |worker: &&Worker| !devices.iter().any(|known| std::ptr::eq(*known, *worker));
        devices.iter().copied().chain(others.filter(is_new).collect::<Vec<_>>())
    }

    /// Bytes for one job that is done alone and owns `owned` bytes. A budget that nobody chose refuses no message for its size if the message is in
    /// memory already.
    pub fn memory_alone(&self, owned: usize) -> u64 {
        self.memory_budget() + if matches!(self.options.memory, MemoryBudget::Chosen(_)) { 0 } else { owned as u64 }
    }

    /// The error for a job that needs too much memory.
    pub fn out_of_memory(&self, worker: &Worker, needs: u64) -> Error {
        Error::OutOfMemory { device: worker.device().id(), needs, has: self.memory_budget() }
    }

    /// The facts of the first device that executes the group, or why the first device does not.
    pub(crate) fn facts(&self, live: &[&Worker], group: Group) -> Result<Arc<GroupFacts>, Error> {
        let mut declined = None;
        for worker in live {
            match worker.programs.facts(group) {
                Ok(facts) => return Ok(facts),
                Err(why) => declined = declined.or(Some(why)),
            }
        }
        Err(declined.unwrap_or(Error::Value { what: "there is no device".into() }))
    }

    /// Disables devices that fail, or fail their self-test, when they are asked for the facts about a group.
    pub(super) fn disable_broken(&self, devices: &[&Worker], group: Group) {
        for worker in devices.iter().filter(|worker| !worker.is_disabled()) {
            if let Err(why) = worker.programs.facts(group)
                && is_broken(&why)
            {
                self.fault(worker, why, 0);
            }
        }
    }

    /// The devices that a call begins with, and whether others may take over.
    fn devices(&self) -> (Vec<&Worker>, bool) {
        match self.lazy.is_some() && !self.workers[0].is_disabled() {
            true => (vec![&self.workers[0]], true),
            false => (self.live().collect(), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{Facts, FirstChunks, Habits, Kind, Prepared, ProgramFactory, Scheme, Site};
    use crate::{Knowledge, Reference};

    /// Kinds of work whose facts take no time, where those of SLH-DSA take Miri twenty seconds. They have the habits of verification.
    static LIGHT: Scheme = Scheme { name: "light work", factory: &Light };
    struct Light;

    /// Operations of light work: one for which nothing is measured, and two with the times of a job that a measurement would give.
    pub(super) const UNMEASURED: u8 = 0;
    pub(super) const MICROSECOND: u8 = 1;
    pub(super) const FOUR_SECONDS: u8 = 2;
    const PREDICTED: [Option<f64>; 3] = [None, Some(1e-6), Some(4.0)];

    pub(super) fn light(op: u8) -> Kind {
        Kind { scheme: &LIGHT, set: &(), op, variant: 0 }
    }

    impl ProgramFactory for Light {
        fn habits(&self, _: Kind) -> Habits {
            let first_chunks = FirstChunks::Doubling;
            Habits { is_chain: true, shares_lanes: true, first_chunks, is_sized: true, ..Habits::default() }
        }
        fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error> {
            Ok(Facts {
                jobs: group.threads,
                queue: site.device.queue as usize,
                default: Policy::default(),
                space: Vec::new(),
                compressions: 1000.0,
                abilities: crate::Abilities::NONE,
                predicted: PREDICTED[usize::from(group.kind.op)],
                own: Box::new(()),
                program: None,
            })
        }
        fn bytes(&self, _: &Site<'_>, _: &GroupFacts, _: usize, _: &Policy) -> u64 {
            0
        }
        fn prepare(&self, _: &Site<'_>, _: &GroupFacts, _: usize, _: &Policy) -> Result<Box<dyn Prepared>, Error> {
            unreachable!("jobs of these kinds use no program")
        }
    }

    pub(super) struct Nothing;

    impl Knowledge for Nothing {
        fn choose(
            &self,
            _: &dyn Backend,
            _: &Device,
            _: &hypergrove_fips205::plan::Plan,
            _: usize,
        ) -> Option<crate::Choice> {
            None
        }
        fn interpolate(&self, _: &[(usize, f64)], _: usize) -> Option<f64> {
            None
        }
    }

    pub(super) fn options(threads: usize, memory_budget: u64) -> Options {
        Options { threads, memory: MemoryBudget::Chosen(memory_budget), device_timeout: crate::DEVICE_TIMEOUT }
    }

    #[test]
    fn devices_with_memory_raise_the_default_budget() {
        let cpu = Reference.devices().unwrap().remove(0);
        let gpu = Device { memory: 1 << 30, ..cpu.clone() };
        let by_default = MemoryBudget::ByDevices { each: 20, none: 3, most: 30 };
        assert_eq!(by_default.of([&cpu].into_iter()), 3);
        assert_eq!(by_default.of([&gpu, &cpu].into_iter()), 20);
        assert_eq!(by_default.of([&gpu, &cpu, &gpu].into_iter()), 30);
        assert_eq!(MemoryBudget::Chosen(7).of([&gpu, &gpu].into_iter()), 7);
    }

    pub(super) fn scheduler(threads: usize) -> Scheduler {
        let backend: Arc<dyn Backend> = Arc::new(Reference);
        let device = backend.devices().unwrap().remove(0);
        let options = (options(threads, 1 << 20), WorkOptions::default());
        Scheduler::new(vec![(backend, device)], None, options, Arc::new(|_, _| Arc::new(Nothing)), Default::default())
    }

    #[test]
    fn memory_is_shared_out_among_what_is_in_flight() {
        assert_eq!([&[1][..], &[2], &[1, 1], &[2, 2]].map(|queues| slots(queues.iter().copied())), [1, 3, 4, 6]);
    }
}
