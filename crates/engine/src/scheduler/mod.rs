//! The scheduler: all work of an engine goes through it, whatever the scheme.
//!
//! The scheduler's unit of work is a prepared program with a batch in, a batch out and a predicted cost. A client says what its [`Job`]s are and how
//! a device runs them. The scheduler does all the rest: it chooses devices, cuts chunks that fit the memory budget, shares devices among calls,
//! retries jobs that a device lost, and counts. It knows blocks of jobs by their numbers: only the module `blocks`, and the functions that take jobs
//! from a client, are compiled for each type of job.

mod blocks;
mod call;
mod cell;
mod choice;
mod compute;
mod deadlines;
#[cfg(test)]
mod doubles;
mod memory;
mod options;
mod permits;
mod place;
mod producer;
mod stats;
mod threads;
mod tickets;
mod worker;

/// The locks of `cell`, `permits` and `producer`. `xtask/loom` puts loom's in their place.
mod sync {
    pub(super) use std::sync::atomic::AtomicU64;
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
}

pub use blocks::{Failed, Outcomes, QueuedBlock};
pub use call::Sink;
pub use choice::{Booked, DeviceChoice, Wake};
pub use compute::{Compute, Computed, Output, Parts, RESULTS_OF_A_THREAD, Wiped, compute, room};
pub use memory::{ChunkMemory, Memory, zeros};
pub use options::{CancelToken, Checks, Options, WorkOptions};
pub use permits::Waits;
pub use place::{Place, Run, RunProgram};
pub use stats::{DeviceStats, Stats, TicketStats};
pub use tickets::{Canceller, IsWanted, Queue, Queued, Room, Size, Ticket};
pub use worker::{Fault, Scale, Worker, is_fault};

use crate::programs::{Group, GroupFacts};
use crate::scheme::Kind;
use crate::trace::{Observer, Step};
use crate::{Backend, Device, Error, ErrorKind, Knowledge, Places, Policy, Process, Timing};
use blocks::{Blocks, Client, Members};
use call::{BlockSource, Call, Scopes};
use choice::{CallRates, Lazy};
use memory::check_memory;
use options::Ends;
pub(crate) use permits::lock;
use producer::{ProducedJobs, Producer};
use rayon::ThreadPool;
use stats::Counters;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::iter::Fuse;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;
use std::time::Instant;
pub(crate) use threads::outside_pools;
use worker::OpenBlock;

/// The most faults that are kept.
const MOST_FAULTS: usize = 64;

/// If one job needs more bytes than these, the operating system is asked whether it gives them. A caller may choose a large budget, and layers to be
/// cached that take terabytes.
const MUCH: u64 = 256 << 20;

/// Jobs that may be taken ahead before it is known how many fill a chunk.
const FIRST_AHEAD: usize = 1024;

/// A job that a client gives to the scheduler. Jobs of one kind are run together.
pub trait Job: Send + Sync + Sized {
    /// The result of the job.
    type Out: Send;
    /// Whether the scheduler joins jobs of one kind to blocks, so that work done once for a block costs each job little. If not, a job is large
    /// enough to be a block by itself.
    const JOINS: bool;
    /// The kind of program that does the job, or why none can.
    fn kind(&self) -> Result<Kind, Error>;
    /// The number of jobs that it counts for.
    fn count(&self) -> usize {
        1
    }
    /// Bytes of memory that the job owns.
    fn owned(&self) -> usize;
    /// Bytes of the job's output, computed from the facts about its group.
    fn output(&self, facts: &GroupFacts) -> usize;
    /// Runs jobs of one group on a device, and gives a result for each, in their order. A job that is itself to blame has an error of its own; an
    /// error of the whole run is the device's or the call's. `memory` is kept between chunks; after an error it holds nothing of the jobs.
    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<Self::Out>, Error>;
    /// Discards a result that nobody gets.
    fn discard(out: Self::Out) {
        drop(out);
    }
}

/// How much of the host's memory an engine may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryBudget {
    /// So many bytes, which the caller chose.
    Chosen(u64),
    /// By default, so many bytes for `each` device that has memory of its own, and for an engine that has `none`.
    ByDevices {
        /// For each device with memory of its own.
        each: u64,
        /// For all devices, if none has memory of its own.
        none: u64,
    },
}

impl MemoryBudget {
    /// The bytes for these devices.
    fn of<'d>(self, devices: impl Iterator<Item = &'d Device>) -> u64 {
        match self {
            MemoryBudget::Chosen(bytes) => bytes,
            MemoryBudget::ByDevices { each, none } => match devices.filter(|device| device.memory > 0).count() {
                0 => none,
                devices => devices as u64 * each,
            },
        }
    }
}

/// Gives the knowledge about a device before anything runs on it.
pub type KnowledgeSource = Arc<dyn Fn(&Arc<dyn Backend>, &Device) -> Arc<dyn Knowledge> + Send + Sync>;

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

/// Whether a device that answers with this error must not be used.
fn is_broken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceFailed | ErrorKind::Withheld)
}

/// How a job fails on a device.
enum Failure {
    /// The device failed.
    Device(Error),
    /// No device can do the job.
    Job(Error),
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

    /// Runs one job on the device that suits it, concurrently with the chunks of batches; with `rather` on that device, as long as it works.
    pub fn one<J: Job>(&self, rather: Option<&Worker>, job: J) -> Result<J::Out, Error> {
        self.same_process()?;
        let (kind, size, ends) = (job.kind()?, (job.count(), job.owned()), self.ends());
        let (blocks, mut first) = (Blocks::one(Members::One(job)), None);
        self.trace_of_call().step(Step::Call, size.0, || -> Result<(), Error> {
            loop {
                let (worker, group) = self.device_for_one(rather, kind);
                match self.one_on(worker, size, group, (&blocks, &ends)) {
                    Ok(()) => return Ok(()),
                    Err(why) => self.after(worker, why, 1, &mut first)?,
                }
            }
        })?;
        blocks.only()
    }

    /// Counts so many jobs that failed on a device, so that another device does them. Gives an error if there is no other device, or if the jobs are
    /// to blame. `first` is the first failure of a device.
    fn after(&self, worker: &Worker, why: Failure, jobs: usize, first: &mut Option<Error>) -> Result<(), Error> {
        let why = match why {
            Failure::Job(why) => return Err(why),
            Failure::Device(why) => why,
        };
        let first = first.get_or_insert_with(|| why.clone());
        if !self.fault(worker, why, jobs) {
            return Err(first.clone());
        }
        self.counters.again.add(jobs as u64);
        Ok(())
    }

    /// The device for a single job, and the job's group there. A single verification is a chain of dependent steps, and the host's share of any single
    /// job for a discrete device is small. More threads would only add their hand-over.
    fn device_for_one<'w>(&'w self, rather: Option<&'w Worker>, kind: Kind) -> (&'w Worker, Group) {
        let group = |worker: &Worker| Group { kind, threads: self.threads_for(worker, kind, 1) };
        let takes = |worker: &&Worker| worker.takes(group(worker));
        let rather = rather.filter(|worker| !worker.is_disabled() && takes(worker));
        let faster = rather.or_else(|| self.suited_alone(kind).filter(takes));
        let worker = faster.or_else(|| self.live().find(takes));
        let worker = worker.unwrap_or_else(|| self.first());
        (worker, group(worker))
    }

    /// Threads for so many jobs on a device.
    pub fn threads_for(&self, worker: &Worker, kind: Kind, jobs: usize) -> usize {
        if jobs == 1 && (kind.habits().is_chain || worker.is_discrete()) { 1 } else { self.options.threads }
    }

    /// Runs one block on a device. It is the client's number 0, counts for `count` jobs and owns `owned` bytes.
    fn one_on(
        &self,
        worker: &Worker,
        (count, owned): (usize, usize),
        group: Group,
        (client, ends): (&dyn Client, &Ends<'_>),
    ) -> Result<(), Failure> {
        // With one thread each caller has the host to itself, on a thread of its own.
        let permit = (!self.shares_nothing(worker)).then(|| {
            self.counters.singles.add(1);
            let patience = || ends.check().map(|()| ends.wait(None));
            self.trace_of_call().step(Step::WaitForPermit, count, || worker.permits.single(patience))
        });
        let permit = permit.transpose().map_err(Failure::Job)?;
        ends.check().map_err(Failure::Job)?;
        // While others compute, one thread for each job is as fast, and fair.
        let is_crowded = worker.is_host() && permit.as_ref().is_some_and(|permit| permit.crowded);
        let group = if is_crowded { Group { threads: 1, ..group } } else { group };
        let facts = match worker.programs.facts(group) {
            Ok(facts) => facts,
            Err(why) if is_broken(&why) => return Err(Failure::Device(why)),
            Err(why) => return Err(Failure::Job(why)),
        };
        let held = (owned + client.output(0, &facts) * self.work.checks.copies()) as u64;
        let needs = held.saturating_add(Scale { scheduler: self, worker }.bytes(group, 1));
        let memory = self.memory_alone(owned);
        if needs > memory {
            return Err(Failure::Job(self.out_of_memory(worker, needs)));
        }
        if needs > MUCH
            && let Err(why) = check_memory(needs)
        {
            return Err(Failure::Job(why));
        }
        let room = (memory - held, memory - held);
        let blocks = [(0, QueuedBlock { group: Ok(group), held, count })];
        let trace = self.trace_of_chunk();
        let run = |pool: Option<&ThreadPool>| {
            let place = Place { scheduler: self, worker, room, pool, threads: group.threads, places: Places::Usual };
            trace.step(Step::Chunk, count, || client.run(&place, &blocks, &mut Vec::new()))
        };
        let began = Instant::now();
        let done = match (group.threads, &permit) {
            (_, None) => run(None),
            (1, _) => outside_pools(worker.is_host(), |_| run(None)),
            _ => outside_pools(worker.is_host(), |is_outside| match is_outside {
                true => self.with_pool(worker, 0, run),
                false => run(None),
            }),
        };
        self.counters.chunk(count, began.elapsed());
        drop(permit);
        done.map_err(|why| if is_fault(&why) { Failure::Device(why) } else { Failure::Job(why) })
    }

    /// Jobs of a block that suits every device and the memory, for a client that cuts `total` jobs of one kind itself. `owned` and `output`
    /// are what [`Job::owned`] and [`Job::output`] give for one of them.
    pub fn block_size(
        &self,
        kind: Kind,
        total: usize,
        owned: usize,
        output: impl Fn(&GroupFacts) -> usize,
    ) -> Result<usize, Error> {
        self.same_process()?;
        let mut classifier = Classifier::new(self, self.devices().0, Some(total));
        let group = Group { kind, threads: self.options.threads };
        let Known { facts, block: (jobs, memory) } = classifier.known(group).as_ref().map_err(Clone::clone)?;
        let held = output(facts).saturating_mul(self.work.checks.copies()).saturating_add(owned) as u64;
        let that_fit = usize::try_from(memory / held.max(1)).unwrap_or(usize::MAX);
        Ok((*jobs).min(that_fit).max(1))
    }

    /// Runs any number of jobs that are at hand, whose source does not block: on the device `on` alone, or on all devices. `total` is the number that
    /// the jobs count for, if the client knows it; otherwise all count for as many as the first. Results are handed out in order, on this thread.
    pub fn run<'a, J: Job + 'a>(
        &'a self,
        on: Option<&'a Worker>,
        total: Option<usize>,
        jobs: &mut dyn Iterator<Item = J>,
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<(), Error> {
        self.same_process()?;
        let (devices, may_switch) = on.map_or_else(|| self.devices(), |only| (vec![only], false));
        let mut jobs = jobs.fuse();
        // A single job has permits of its own.
        let first = jobs.next();
        let second = first.as_ref().and_then(|_| jobs.next());
        match (first, second) {
            (Some(job), None)
                if job.count() == 1 && job.kind().is_ok() && [1, self.live().count()].contains(&devices.len()) =>
            {
                let rather = if devices.len() < self.live().count() { Some(devices[0]) } else { None };
                let result = self.one(rather, job);
                if let Err(why) = &result
                    && !why.kind().is_of_job()
                {
                    return Err(why.clone());
                }
                let _ = sink(1, result);
                Ok(())
            }
            (first, second) => {
                let of_first = first.as_ref().map_or((None, 1), |job| (job.kind().ok(), job.count()));
                let mut taken = Vec::with_capacity(2);
                taken.extend(first);
                taken.extend(second);
                let most = jobs.size_hint().1.map(|most| most.saturating_add(taken.len()));
                let Begun { devices, total, each, measured, began } = self.begin(devices, total, most, of_first);
                let blocks = Blocks::default();
                let classifier = Classifier::new(self, devices.clone(), total);
                let mut source = Joined { taken: taken.into_iter(), jobs, classifier, head: None, blocks: &blocks };
                let mut sink = |number, _, refused| blocks.hand_out(number, refused, sink);
                let mut call = Call::new(self, (devices, may_switch), each, &blocks, &mut source, None);
                self.trace_of_call().counted(Step::Call, || call.run(None, &mut sink)).1?;
                // Calls with more checks take longer, which says nothing about the others.
                if let Some((kind, total, with_host)) = measured
                    && self.work.checks.are_plain()
                {
                    self.rates.know(kind, total, with_host, total as f64 / began.elapsed().as_secs_f64().max(1e-9));
                }
                Ok(())
            }
        }
    }

    /// Runs jobs of one kind that waited for each other as a batch of one of the host's threads, if the host alone computes. Other such batches run at
    /// the same time: no thread waits for another one's share. Gives `false` if there are no results, so that [`run`](Scheduler::run) has to do the jobs.
    pub fn run_on_thread<J: Job>(
        &self,
        jobs: impl Iterator<Item = J>,
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<bool, Error> {
        let Some((block, kind, (count, owned))) = self.block_of_thread(jobs) else { return Ok(false) };
        self.same_process()?;
        let (host, blocks, ends) = (self.first(), Blocks::one(block), self.ends());
        match self.one_on(host, (count, owned), Group { kind, threads: 1 }, (&blocks, &ends)) {
            Ok(()) => {
                let _ = blocks.hand_out(0, None, sink);
                return Ok(true);
            }
            // Jobs that do not fit the memory are cut into chunks.
            Err(Failure::Job(Error::OutOfMemory { .. }) | Failure::Device(Error::OutOfMemory { .. })) => {}
            Err(why) => self.after(host, why, count, &mut None)?,
        }
        Ok(false)
    }

    /// These jobs as one block, with their kind, the jobs that they count for and the bytes that they own, if a thread of the host is to do them.
    fn block_of_thread<J: Job>(&self, mut jobs: impl Iterator<Item = J>) -> Option<(Members<J>, Kind, (usize, usize))> {
        if !self.is_host_alone() {
            return None;
        }
        let first = jobs.next()?;
        let (kind, mut size) = (first.kind().ok()?, (first.count(), first.owned()));
        let mut block = Members::One(first);
        for job in jobs {
            size = (size.0 + job.count(), size.1 + job.owned());
            block.push(job);
        }
        let group = Group { kind, threads: self.options.threads };
        // A flood goes to other devices too. It has about as many jobs as was predicted when they were taken out of the queue.
        let is_flood = self.jobs_to_wake(group).is_some_and(|jobs| size.0 >= jobs / 2);
        (size.0 > 1 && !is_flood).then_some((block, kind, size))
    }

    /// Chooses the devices of a call of at most so many blocks, whose first one is of this kind and counts for so many jobs.
    fn begin<'a>(
        &'a self,
        devices: Vec<&'a Worker>,
        total: Option<usize>,
        most: Option<usize>,
        (kind, of_first): (Option<Kind>, usize),
    ) -> Begun<'a> {
        let each = total.zip(most).map_or(of_first, |(total, blocks)| total.div_ceil(blocks.max(1)));
        let total = total.or_else(|| most.and_then(|blocks| blocks.checked_mul(each)));
        let measured = kind
            .zip(total)
            .and_then(|(kind, total)| self.wants_host(&devices, kind, total).map(|with_host| (kind, total, with_host)));
        let devices: Vec<_> = match measured {
            Some((_, _, false)) => devices.into_iter().filter(|worker| worker.is_discrete()).collect(),
            _ => devices,
        };
        Begun { devices, total, each, measured, began: Instant::now() }
    }

    /// Whether a thread of its own should take the jobs of a source that may block, of which there are at most so many; see
    /// [`run_blocking`](Scheduler::run_blocking). If the host has one thread, this thread takes jobs too, a chunk at a time.
    pub fn pulls_ahead(&self, most: Option<usize>) -> bool {
        let is_here = self.devices().0.into_iter().all(|worker| self.works_on_calling_thread(worker));
        !is_here && most.is_none_or(|most| most > 1)
    }

    /// Runs any number of jobs of a source that may block. A thread of its own takes them, so that results are handed out as soon as they are there,
    /// in order, on this thread.
    pub fn run_blocking<'a, J: Job + 'a>(
        &'a self,
        jobs: &mut (dyn Iterator<Item = J> + Send),
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<(), Error> {
        self.same_process()?;
        let (most, (devices, may_switch)) = (jobs.size_hint().1, self.devices());
        let slots = slots(devices.iter().map(|worker| worker.queue() as u64)) + 1;
        let producer = Producer::new(FIRST_AHEAD, self.memory_budget() / slots);
        let jobs = Mutex::new(jobs);
        std::thread::scope(|scope| {
            let mut classifier = Classifier::new(self, devices.clone(), most);
            let (producer, jobs) = (&producer, &jobs);
            let pull = move || producer.pull((&mut **lock(jobs)).map(|job| classifier.classify(job)));
            let thread = Builder::new().name("hypergrove-producer".into()).spawn_scoped(scope, pull);
            if let Err(why) = thread {
                // This thread waits for the source while it computes nothing.
                self.note_threads(1, 0, &why);
                return self.run(None, None, &mut **lock(jobs), sink);
            }
            let blocks = Blocks::default();
            let mut source = ProducedJobs { producer, jobs: VecDeque::new(), most }.map(|job| blocks.add(job));
            let mut sink = |number, _, refused| blocks.hand_out(number, refused, sink);
            let source: &mut BlockSource<'_> = &mut source;
            let mut call = Call::new(self, (devices, may_switch), 1, &blocks, source, Some(producer));
            self.trace_of_call().counted(Step::Call, || call.run(None, &mut sink)).1
        })
    }

    /// Records that so many jobs ran at `latest` jobs a second, with the host or without.
    #[doc(hidden)]
    pub fn know_pace(&self, kind: Kind, jobs: usize, with_host: bool, latest: f64) {
        self.rates.know(kind, jobs, with_host, latest);
    }

    /// The devices that a call begins with, and whether others may take over.
    fn devices(&self) -> (Vec<&Worker>, bool) {
        match self.lazy.is_some() && !self.workers[0].is_disabled() {
            true => (vec![&self.workers[0]], true),
            false => (self.live().collect(), false),
        }
    }

    /// Whether chunks for this device are run by the thread that calls.
    pub(crate) fn works_on_calling_thread(&self, worker: &Worker) -> bool {
        self.shares_nothing(worker) || worker.lacks_threads(&self.pool)
    }

    /// Whether the calls on this device share neither threads nor permits.
    fn shares_nothing(&self, worker: &Worker) -> bool {
        self.options.threads == 1 && worker.is_host()
    }

    /// Runs `work` with the threads of a slot, or with none if the engine has one thread, or the system starts no others.
    ///
    /// All of the host's own programs share one pool. On other devices each slot has a pool of its own, because a program there blocks the thread
    /// that waits for it. A thread that waits for others of its pool may begin with whatever else the pool has to do, such as another such program.
    pub(crate) fn with_pool<R>(
        &self,
        worker: &Worker,
        slot: usize,
        work: impl FnOnce(Option<&ThreadPool>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.options.threads {
            1 => work(None),
            _ => work(worker.pool(self, slot)?),
        }
    }

    /// Threads of a slot of a device other than the host.
    fn threads_of_slot(&self) -> usize {
        threads_of_slot(self.options.threads, self.all().filter(|worker| !worker.is_host()).count())
    }

    /// The host's threads.
    fn pool(&self) -> Result<Option<&ThreadPool>, Error> {
        self.same_process()?;
        // A single thread would do no more than the one that calls.
        Ok(self.pool.get_or_init(|| self.new_pool(self.options.threads, 2)).as_ref())
    }

    /// A place of the host, for work that no program does, such as copies for any device: with one thread, or with all of the engine's if `threads` is more.
    /// Its device has memory of its own, if there is such a device.
    pub fn host_place(&self, threads: usize) -> Result<Place<'_>, Error> {
        let worker = self.live().find(|worker| worker.has_memory()).unwrap_or_else(|| self.first());
        let threads = threads.min(self.options.threads);
        let pool = if threads > 1 { self.pool()? } else { None };
        Ok(Place { scheduler: self, worker, room: (0, 0), pool, threads, places: Places::Usual })
    }

    /// A pool of so many threads, fewer than the engine has; `None` if the system does not start as many.
    fn narrow_pool(&self, threads: usize) -> Option<Arc<ThreadPool>> {
        let mut all = lock(&self.narrow);
        if let Some(pool) = all.iter().find(|pool| pool.current_num_threads() == threads) {
            return Some(pool.clone());
        }
        // The system is not asked again and again.
        let pool = self.notice().is_none().then(|| self.new_pool(threads, threads)).flatten()?;
        all.push_mut(Arc::new(pool)).clone().into()
    }

    /// Gives an error in a forked process. After a fork the child has none of its parent's threads, and permits that they held are never given back.
    /// Calls that run on the calling thread alone need neither.
    fn same_process(&self) -> Result<(), Error> {
        self.same_process_as(Process::current())
    }

    /// Does as [`Scheduler::same_process`] does, for a caller that knows its process. The first process that calls this is the scheduler's, so whoever does
    /// no job must not call it.
    fn same_process_as(&self, process: Process) -> Result<(), Error> {
        if self.all().all(|worker| self.shares_nothing(worker)) {
            return Ok(());
        }
        match *self.process.get_or_init(|| process) {
            first if first != process => Err(Error::of_parent()),
            _ => Ok(()),
        }
    }

    /// Runs `body` with a scope in the threads of every slot of these devices.
    fn with_scopes<'a, R>(
        &'a self,
        devices: &[&'a Worker],
        body: &mut dyn FnMut(&Scopes<'_, 'a>) -> R,
    ) -> Result<R, Error> {
        let mut pools = Vec::new();
        for (device, worker) in devices.iter().enumerate() {
            if !self.works_on_calling_thread(worker) {
                let all =
                    (0..worker.permits.slots()).map(|slot| worker.pool(self, slot)).collect::<Result<Vec<_>, _>>()?;
                // If one slot has no threads, the calling thread runs the chunks of all.
                pools.extend(
                    all.into_iter().collect::<Option<Vec<_>>>().into_iter().flatten().map(|pool| (device, pool)),
                );
            }
        }
        let no_scopes: Vec<Vec<&rayon::Scope<'a>>> = devices.iter().map(|_| Vec::new()).collect();
        Ok(nest(&pools, &no_scopes, body))
    }
}

/// Opens a scope in the first pool, and within it in the others.
fn nest<'a, R>(
    pools: &[(usize, &'a ThreadPool)],
    scopes: &Scopes<'_, 'a>,
    body: &mut dyn FnMut(&Scopes<'_, 'a>) -> R,
) -> R {
    let Some(((device, pool), others)) = pools.split_first() else { return body(scopes) };
    pool.in_place_scope(|scope| {
        let mut scopes: Vec<Vec<&rayon::Scope<'a>>> = scopes.to_vec();
        scopes[*device].push(scope);
        nest(others, &scopes, body)
    })
}

/// A call that begins.
struct Begun<'a> {
    devices: Vec<&'a Worker>,
    /// The number of jobs, if it is known.
    total: Option<usize>,
    /// Jobs of a block, on average.
    each: usize,
    /// The kind and number of jobs if the speed of the call is to be recorded, and whether the host takes part.
    measured: Option<(Kind, usize, bool)>,
    began: Instant,
}

/// Joins jobs that are at hand to blocks.
struct Joined<'a, 'j, J: Job> {
    /// The first jobs, which were looked at already.
    taken: std::vec::IntoIter<J>,
    jobs: Fuse<&'a mut (dyn Iterator<Item = J> + 'j)>,
    classifier: Classifier<'a>,
    /// A job that was taken, and is in no block yet.
    head: Option<OpenBlock<J>>,
    blocks: &'a Blocks<J>,
}

impl<J: Job> Joined<'_, '_, J> {
    fn next_job(&mut self) -> Option<J> {
        self.taken.next().or_else(|| self.jobs.next())
    }
}

impl<J: Job> Iterator for Joined<'_, '_, J> {
    type Item = QueuedBlock;

    fn next(&mut self) -> Option<QueuedBlock> {
        let mut block = match self.head.take() {
            Some(head) => head,
            None => {
                let job = self.next_job()?;
                self.classifier.classify(job)
            }
        };
        while block.has_room() {
            let Some(job) = self.next_job() else { break };
            if let Some(unjoined) = self.classifier.join(&mut block, job) {
                self.head = Some(unjoined);
                break;
            }
        }
        Some(self.blocks.add(block))
    }

    /// Counts jobs, which are no fewer than blocks.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let taken = self.taken.len() + usize::from(self.head.is_some());
        (0, self.jobs.size_hint().1.map(|most| most.saturating_add(taken)))
    }
}

/// Threads of a slot, at most. The host's work for a chunk is short, and to wake more threads takes longer than it. (One H100 in a host of 64 cores
/// verifies 5.7 million signatures of 128s a second with 8 threads or 16, and 3.2 to 3.6 million with 64.)
const THREADS_OF_A_SLOT: usize = 16;

/// Threads of each slot, where so many threads work for so many devices other than the host.
fn threads_of_slot(threads: usize, devices: usize) -> usize {
    match threads {
        1 => 1,
        _ => threads.div_ceil(devices.max(1)).clamp(2, THREADS_OF_A_SLOT),
    }
}

/// The most jobs of a block.
const MOST_OF_A_BLOCK: usize = 256;
/// The fewest blocks of a device's chunk, so that it is not much longer than it should be.
const BLOCKS_OF_A_CHUNK: usize = 8;

/// The fewest shares of the memory if devices may take over that are initialised lazily. A block must then fit a chunk's share with eight GPUs, which
/// have 25 chunks between source and sink.
const SLOTS_OF_MANY: u64 = 4;

/// Jobs of a block, given those of a chunk.
fn block_of(chunk: usize) -> usize {
    (chunk / BLOCKS_OF_A_CHUNK).clamp(1, MOST_OF_A_BLOCK)
}

/// Finds out for each job the facts that the planner needs.
struct Classifier<'a> {
    scheduler: &'a Scheduler,
    devices: Vec<&'a Worker>,
    /// Jobs of the call, at most.
    total: Option<usize>,
    /// Bytes of a block's jobs and their outputs, at most.
    memory: u64,
    /// The facts about the last job's group, which the next job most often shares.
    last: Option<(Group, Result<Known, Error>)>,
}

/// The facts about a group, and the size of its blocks.
struct Known {
    facts: Arc<GroupFacts>,
    /// Jobs and bytes of a block, at most.
    block: (usize, u64),
}

impl<'a> Classifier<'a> {
    fn new(scheduler: &'a Scheduler, devices: Vec<&'a Worker>, total: Option<usize>) -> Classifier<'a> {
        // Many lazily initialised devices may take over.
        let least = if scheduler.lazy.is_some() { SLOTS_OF_MANY } else { 1 };
        let slots = (slots(scheduler.sharing(&devices).map(|worker| worker.queue() as u64)) + 1).max(least);
        let memory = scheduler.memory_budget() / slots / BLOCKS_OF_A_CHUNK as u64;
        Classifier { scheduler, devices, total, memory, last: None }
    }

    fn classify<J: Job>(&mut self, job: J) -> OpenBlock<J> {
        let (group, held, limits) = self.classify_kind(job.kind(), job.owned(), &|facts| job.output(facts));
        let count = job.count();
        OpenBlock { jobs: Members::One(job), group, held, count, limits }
    }

    /// The group of a job, the bytes that it and its output take, and the most jobs and bytes of a block of such jobs.
    fn classify_kind(
        &mut self,
        kind: Result<Kind, Error>,
        owned: usize,
        output: &dyn Fn(&GroupFacts) -> usize,
    ) -> (Result<Group, Error>, u64, (usize, u64)) {
        let threads = self.scheduler.options.threads;
        let known = kind.and_then(|kind| {
            let group = Group { kind, threads };
            let Known { facts, block } = self.known(group).as_ref().map_err(Clone::clone)?;
            Ok((group, output(facts), *block))
        });
        match known {
            Ok((group, output, block)) => (Ok(group), self.held(owned, output), block),
            Err(why) => (Err(why), self.held(owned, 0), (1, 0)),
        }
    }

    /// Bytes that a job and its output take.
    fn held(&self, owned: usize, output: usize) -> u64 {
        (owned + output * self.scheduler.work.checks.copies()) as u64
    }

    /// Adds a job to the block whose jobs were classified last; gives it back if it does not join. A job that joins needs no [`OpenBlock`] of its
    /// own: making one takes longer than all else that is done for a job of a list.
    fn join<J: Job>(&mut self, block: &mut OpenBlock<J>, job: J) -> Option<OpenBlock<J>> {
        let job = match &self.last {
            Some((group, Ok(known))) if job.kind().is_ok_and(|kind| kind == group.kind) => {
                let held = self.held(job.owned(), job.output(&known.facts));
                block.take(job, held)?
            }
            _ => job,
        };
        Some(self.classify(job))
    }

    /// The facts about a group. If all devices decline it, the error is the first device's.
    fn known(&mut self, group: Group) -> &Result<Known, Error> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != group) {
            let known = self.learn(group).map(|facts| Known { facts, block: self.block(group) });
            self.last = Some((group, known));
        }
        &self.last.as_ref().expect("it was learned").1
    }

    /// Jobs and bytes of a block that suits every device: a share of a chunk. The block and a program for so many jobs fit what a chunk
    /// may take.
    fn block(&self, group: Group) -> (usize, u64) {
        let of = |worker: &&Worker| {
            let scale = Scale { scheduler: self.scheduler, worker };
            let bounds = scale.bounds(0, Some(group), std::iter::empty());
            let of_time = bounds.time.as_secs_f64() / worker.speed(group).map_or(1.0, |speed| 1.0 / speed);
            let chunk = (of_time as usize).min(worker.most(Some(group)));
            let mut block = block_of(chunk);
            // Programs that are not sized are as large for one job as for many.
            let program = self.memory.max(scale.bytes(group, 1));
            while block > 1 && scale.bytes(group, block) > program {
                block /= 2;
            }
            let room = (self.memory * BLOCKS_OF_A_CHUNK as u64).saturating_sub(scale.bytes(group, block));
            (block, room.min(self.memory))
        };
        let of_devices = self.scheduler.live().filter(|worker| worker.takes(group)).map(|worker| of(&worker));
        let (block, memory) = of_devices.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap_or((1, 0));
        // Few jobs are shared out among the devices too.
        let share = self.total.map_or(usize::MAX, |total| total / self.devices.len() / BLOCKS_OF_A_CHUNK);
        (block.min(share).max(1), memory)
    }

    fn learn(&self, group: Group) -> Result<Arc<GroupFacts>, Error> {
        self.scheduler.disable_broken(&self.devices, group);
        let mut known = self.scheduler.facts(&self.devices, group);
        if known.is_err() {
            // Devices that were initialised meanwhile may take the group.
            known = self.scheduler.facts(&self.scheduler.live().collect::<Vec<_>>(), group).or(known);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;
    use crate::scheme::{Facts, FirstChunks, Habits, Prepared, ProgramFactory, Scheme, Site};

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
        let by_default = MemoryBudget::ByDevices { each: 20, none: 3 };
        assert_eq!(by_default.of([&cpu].into_iter()), 3);
        assert_eq!(by_default.of([&gpu, &cpu, &gpu].into_iter()), 40);
        assert_eq!(MemoryBudget::Chosen(7).of([&gpu, &gpu].into_iter()), 7);
    }

    pub(super) fn scheduler(threads: usize) -> Scheduler {
        let backend: Arc<dyn Backend> = Arc::new(Reference);
        let device = backend.devices().unwrap().remove(0);
        let options = (options(threads, 1 << 20), WorkOptions::default());
        Scheduler::new(vec![(backend, device)], None, options, Arc::new(|_, _| Arc::new(Nothing)), Default::default())
    }

    #[test]
    fn a_forked_process_gets_an_error_as_it_has_no_threads() {
        let scheduler = scheduler(2);
        // As if the parent process had started the threads.
        scheduler.process.set(Process(u64::MAX)).unwrap();
        let why = scheduler.pool().unwrap_err();
        assert!(why.to_string().contains("make a new engine"), "{why}");
        assert!(scheduler.with_pool(&scheduler.workers[0], 0, |_| Ok(())).is_err());
        // An engine that needs no threads goes on.
        let alone = self::scheduler(1);
        assert_eq!(alone.with_pool(&alone.workers[0], 0, |pool| Ok(pool.is_none())), Ok(true));
    }

    #[test]
    fn devices_share_the_threads_and_none_has_too_many() {
        let shares = [(1, 1), (2, 4), (16, 1), (64, 1), (64, 4), (64, 8)];
        assert_eq!(shares.map(|(threads, devices)| threads_of_slot(threads, devices)), [1, 2, 16, 16, 16, 8]);
    }

    #[test]
    fn memory_is_shared_out_among_what_is_in_flight() {
        assert_eq!([&[1][..], &[2], &[1, 1], &[2, 2]].map(|queues| slots(queues.iter().copied())), [1, 3, 4, 6]);
    }
}
