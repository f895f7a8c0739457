//! What is known of plans on one device, and their prepared programs between two runs: a second call prepares nothing.

use crate::backend::THREADS;
use crate::choice::Chosen;
use crate::planner::bucket;
use crate::{Axis, Backend, Choice, Device, Error, Hasher, Knowledge, Policy, PolicySource, Program, ZkDilithium};
use hypergrove_fips205::Params;
use hypergrove_fips205::plan::{Op, Plan, Work, cache_bytes, most_cached_layers};
use hypergrove_zkdilithium::Op as ZkOp;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Idle programs that are kept; the memory budget usually holds fewer.
const MOST_IDLE: usize = 16;

/// Runs with less than a full program's jobs, for want of memory, after which more are tried: whoever held the memory may
/// have given it back, and one refusal costs little compared with so many.
const RUNS_OF_LESS: usize = 32;

/// A chunk of zkDilithium on the host has at most so many times the jobs that fill the host: the end of a chunk, where threads
/// wait for the last one, then costs little.
const CHUNK_OF_HOST: usize = 4;

/// Programs of zkDilithium that a device with a queue has in flight, at most.
const MOST_IN_FLIGHT: usize = 4;

/// What a job without a plan is taken to cost before one ran: about what signing with zkDilithium costs.
const COMPRESSIONS_WITHOUT_PLAN: f64 = 1000.0;

/// A kind of work: what a program is prepared for.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A plan of SLH-DSA.
    SlhDsa {
        /// The set.
        params: &'static Params,
        /// The op.
        op: Op,
        /// Top layers whose nodes come with the keys, or are to be cached.
        cached_layers: usize,
    },
    /// An op of zkDilithium.
    ZkDilithium(ZkOp),
    /// SHA-256 of messages. Its unit of work is a block of 64 bytes.
    Sha256,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        match (self, other) {
            (
                Kind::SlhDsa { params, op, cached_layers },
                Kind::SlhDsa { params: p, op: other_op, cached_layers: other_layers },
            ) => std::ptr::eq(*params, *p) && (op, cached_layers) == (other_op, other_layers),
            (Kind::ZkDilithium(op), Kind::ZkDilithium(other)) => op == other,
            (Kind::Sha256, Kind::Sha256) => true,
            _ => false,
        }
    }
}

impl Kind {
    /// Whether a program for the one serves the other: zkDilithium's serve all ops.
    fn shares_programs(&self, other: &Kind) -> bool {
        self == other || matches!((self, other), (Kind::ZkDilithium(_), Kind::ZkDilithium(_)))
    }
}

/// Jobs that can run in one program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Group {
    /// What they are.
    pub kind: Kind,
    /// Host threads.
    pub threads: usize,
}

impl Group {
    /// Jobs of SLH-DSA.
    pub fn slh_dsa(params: &'static Params, op: Op, cached_layers: usize, threads: usize) -> Group {
        Group { kind: Kind::SlhDsa { params, op, cached_layers }, threads }
    }

    /// A number of jobs that a program for `jobs` is prepared for: programs other than plans take any number.
    fn bucket(&self, jobs: usize) -> usize {
        if matches!(self.kind, Kind::SlhDsa { .. }) { bucket(jobs) } else { 1 }
    }
}

/// A prepared program of any kind.
pub enum AnyProgram {
    /// A plan's.
    SlhDsa(Box<dyn Program>),
    /// zkDilithium's.
    ZkDilithium(Box<dyn ZkDilithium>),
    /// Of SHA-256.
    Sha256(Box<dyn Hasher>),
}

impl AnyProgram {
    /// How long a wait for the device may take from now on: see [`Program::time_limit`].
    pub fn time_limit(&mut self, limit: Option<Duration>) {
        match self {
            AnyProgram::SlhDsa(program) => program.time_limit(limit),
            AnyProgram::ZkDilithium(program) => program.time_limit(limit),
            AnyProgram::Sha256(hasher) => hasher.time_limit(limit),
        }
    }

    /// Whether the next runs put every job in another place: see [`Program::elsewhere`].
    pub fn elsewhere(&mut self, elsewhere: bool) {
        match self {
            AnyProgram::SlhDsa(program) => program.elsewhere(elsewhere),
            AnyProgram::ZkDilithium(program) => program.elsewhere(elsewhere),
            // Digests are computed once.
            AnyProgram::Sha256(_) => {}
        }
    }
}

/// What is known of a group on this device.
#[derive(Debug)]
pub struct GroupFacts {
    /// The group.
    pub group: Group,
    /// Its plan, if it is one of SLH-DSA.
    plan: Option<Plan>,
    /// Programs in flight that keep the device busy.
    pub queue: usize,
    /// The policy of its programs where nothing is known: the number of threads, if that is a choice.
    default: Policy,
    space: Vec<Axis>,
    /// The policies of its programs, by the logarithm of the bucket.
    chosen: Mutex<[Option<Chosen>; usize::BITS as usize]>,
    /// Jobs that fill the device.
    full: usize,
    /// The same, or the fewer that its memory was found to allow.
    most: AtomicUsize,
    /// Runs of that many since then.
    runs: AtomicUsize,
    /// Compressions a second, by guess.
    guess: f64,
    /// Where there is no plan: bytes of a program, and whether it uses expanded keys.
    fixed_bytes: u64,
    uses_expanded_keys: bool,
    /// Seconds a job of a full program, by what is known before anything ran.
    predicted: Option<f64>,
    work: OnceLock<Work>,
    /// Seconds a job, by the logarithm of the bucket; 0 where none ran yet.
    measured: Mutex<[f64; usize::BITS as usize]>,
}

impl PartialEq for GroupFacts {
    fn eq(&self, other: &GroupFacts) -> bool {
        self.group == other.group
    }
}

impl GroupFacts {
    /// The plan. Only SLH-DSA has plans.
    pub fn plan(&self) -> &Plan {
        self.plan.as_ref().expect("a group of SLH-DSA")
    }

    /// Compressions of one job; none where there is no plan.
    pub fn work(&self) -> &Work {
        self.work.get_or_init(|| self.plan.as_ref().map(Plan::work).unwrap_or_default())
    }

    /// Whether a program of zkDilithium uses expanded keys.
    pub fn uses_expanded_keys(&self) -> bool {
        self.uses_expanded_keys
    }

    /// Bytes of memory of the host that a program holds whatever its number of jobs.
    pub fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes
    }

    /// Takes note of a run. After some that went well with what memory allowed, twice as much is tried again.
    pub fn record(&self, jobs: usize, took: Duration) {
        let most = self.most();
        if most < self.full && jobs >= most && self.runs.fetch_add(1, Relaxed) + 1 >= RUNS_OF_LESS {
            self.runs.store(0, Relaxed);
            self.most.store(self.full.min(2 * most), Relaxed);
        }
        let seconds = took.as_secs_f64().max(1e-9) / jobs.max(1) as f64;
        let old = &mut lock(&self.measured)[bucket(jobs).ilog2() as usize];
        *old = if *old == 0.0 { seconds } else { (*old + seconds) / 2.0 };
    }

    /// Whether programs share the engine's threads.
    pub fn uses_threads(&self) -> bool {
        self.default.get(THREADS).is_some()
    }

    /// Seconds a job, as measured in batches of about this size.
    pub fn measured_at(&self, jobs: usize) -> Option<f64> {
        Some(lock(&self.measured)[bucket(jobs).ilog2() as usize]).filter(|seconds| *seconds > 0.0)
    }

    /// Seconds of whole batches, as measured: (jobs, seconds), the smallest first.
    pub fn times(&self) -> Vec<(usize, f64)> {
        let measured = lock(&self.measured);
        let timed = measured.iter().enumerate().filter(|(_, seconds)| **seconds > 0.0);
        timed.map(|(log, seconds)| (1 << log, seconds * (1usize << log) as f64)).collect()
    }

    /// Seconds a job, as measured in batches of about this size, else in the largest that ran.
    pub fn measured(&self, jobs: usize) -> Option<f64> {
        let measured = lock(&self.measured);
        let at = bucket(jobs).ilog2() as usize;
        [measured[at]].into_iter().chain(measured.iter().rev().copied()).find(|seconds| *seconds > 0.0)
    }

    /// Seconds a job of a large batch: measured, predicted, or a guess.
    pub fn seconds(&self) -> f64 {
        self.measured(1 << (usize::BITS - 1)).or(self.predicted).unwrap_or_else(|| {
            (if self.plan.is_some() { self.work().compressions() } else { COMPRESSIONS_WITHOUT_PLAN }) / self.guess
        })
    }

    /// A policy with one thread at least, and no more than the engine has.
    fn within_threads(&self, policy: Policy) -> Policy {
        let Some(all) = self.default.get(THREADS) else { return policy };
        let threads = policy.get(THREADS).map_or(all, |threads| threads.clamp(1, all));
        policy.with(THREADS, threads)
    }

    /// Jobs that one program takes.
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Takes note that the device's memory allows no more than so many jobs.
    pub fn limit(&self, jobs: usize) {
        self.most.fetch_min(jobs.max(1), Relaxed);
        self.runs.store(0, Relaxed);
    }
}

/// A program and what it was prepared for.
struct Prepared {
    group: Group,
    policy: Policy,
    program: AnyProgram,
    bucket: usize,
    bytes: u64,
}

/// The programs of a device, between runs and in them.
#[derive(Default)]
struct ProgramPool {
    /// The one that ran last is last.
    idle: Vec<Prepared>,
    running: Vec<Running>,
    /// Programs that someone uses.
    active: usize,
    /// Programs that began to run so far.
    begun: u64,
}

/// A program that runs.
struct Running {
    number: u64,
    group: Group,
    bucket: usize,
    bytes: u64,
    /// Whether one of another group or size ran at the same time. Several of one group and size do by design, and hide
    /// each other's transfers.
    beside: bool,
}

/// A program in use, until this is dropped.
struct InUse<'a> {
    programs: &'a Programs,
    number: u64,
    /// Whether it is there, or still being prepared.
    is_active: bool,
}

impl InUse<'_> {
    fn is_beside_others(&self) -> bool {
        lock(&self.programs.pool).running.iter().any(|running| running.number == self.number && running.beside)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut pool = lock(&self.programs.pool);
        pool.running.retain(|running| running.number != self.number);
        pool.active -= usize::from(self.is_active);
        self.programs.changed.notify_all();
    }
}

/// The programs of one device.
pub struct Programs {
    backend: Arc<dyn Backend>,
    device: Device,
    /// Choices for programs that have no plan.
    without_plan: Policy,
    /// Bytes that programs may hold between two calls.
    budget: u64,
    knowledge: Arc<dyn Knowledge>,
    known: Mutex<Vec<Arc<GroupFacts>>>,
    pool: Mutex<ProgramPool>,
    /// A program is used no more.
    changed: Condvar,
    /// When the last run ended.
    ended: Mutex<Option<Instant>>,
}

impl Programs {
    /// Nothing is prepared yet.
    pub fn new(
        backend: Arc<dyn Backend>,
        device: Device,
        budget: u64,
        knowledge: Arc<dyn Knowledge>,
        without_plan: Policy,
    ) -> Programs {
        let (known, pool, changed, ended) = Default::default();
        Programs { backend, device, without_plan, budget, knowledge, known, pool, changed, ended }
    }

    /// Programs of any kind in flight that keep the device busy, at most.
    pub(crate) fn slots(&self) -> usize {
        let of_zkdilithium =
            if self.backend.zkdilithium().is_some() && self.device.queue > 1 { MOST_IN_FLIGHT } else { 1 };
        (self.device.queue.max(1) as usize).max(of_zkdilithium)
    }

    /// What is known of the device before anything runs.
    pub fn knowledge(&self) -> &dyn Knowledge {
        &*self.knowledge
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What is known of a group, from its first mention on. `Unsupported` if the backend declines it.
    pub fn facts(&self, group: Group) -> Result<Arc<GroupFacts>, Error> {
        if let Some(facts) = lock(&self.known).iter().find(|facts| facts.group == group) {
            return Ok(facts.clone());
        }
        // Not under the lock: a program may have to be prepared. Whoever else asks meanwhile learns the same.
        let facts = Arc::new(match group.kind {
            Kind::SlhDsa { .. } => self.facts_of_plan(group)?,
            Kind::ZkDilithium(op) => self.facts_of_zkdilithium(group, op)?,
            Kind::Sha256 => {
                self.backend.sha256_on(&self.device)?;
                self.facts_without_plan(group, usize::MAX, 1, 0)
            }
        });
        let mut known = lock(&self.known);
        if let Some(facts) = known.iter().find(|facts| facts.group == group) {
            return Ok(facts.clone());
        }
        known.push(facts.clone());
        Ok(facts)
    }

    fn facts_of_plan(&self, group: Group) -> Result<GroupFacts, Error> {
        let plan = plan(group)?;
        let programs = self.backend.slh_dsa_on(&self.device)?;
        let space = programs.space(&self.device, &plan)?;
        let threads = space.iter().any(|axis| axis.name == THREADS).then_some((THREADS, group.threads as u32));
        let default = Policy(threads.into_iter().collect());
        let full = programs.jobs(&self.device, &plan, &default).max(1);
        let queue = programs.queue(&self.device, &plan).clamp(1, self.device.queue.max(1)) as usize;
        let known_already = self.knowledge.choose(&*self.backend, &self.device, &plan, full);
        let measured_once = known_already.filter(|choice| choice.source != PolicySource::Default);
        let predicted = measured_once.and_then(|choice| choice.seconds).map(|(seconds, _)| seconds);
        let facts = self.facts_without_plan(group, full, queue, 0);
        Ok(GroupFacts { plan: Some(plan), default, space, predicted, ..facts })
    }

    /// Only a program knows, so one is prepared; the first jobs use it.
    fn facts_of_zkdilithium(&self, group: Group, op: ZkOp) -> Result<GroupFacts, Error> {
        let policy = self.policy_without_plan(group);
        let program = self.backend.zkdilithium_on(&self.device)?.prepare(&self.device, &policy)?;
        // Results of the host come out by the time that they take, not by their number.
        let times = if self.device.memory == 0 { CHUNK_OF_HOST } else { 1 };
        let (jobs, queue, bytes) =
            (times * program.jobs(op).max(1), program.queue(op).max(1) as usize, program.bytes());
        let uses_expanded_keys = program.uses_expanded_keys();
        let facts = GroupFacts { uses_expanded_keys, ..self.facts_without_plan(group, jobs, queue, bytes) };
        let program = AnyProgram::ZkDilithium(program);
        lock(&self.pool).idle.push(Prepared { group, policy, program, bucket: group.bucket(jobs), bytes });
        Ok(facts)
    }

    /// What a program of zkDilithium answers: an idle one, or one that is prepared.
    pub fn ask_zkdilithium<T>(&self, group: Group, ask: impl FnOnce(&dyn ZkDilithium) -> T) -> Result<T, Error> {
        let facts = self.facts(group)?;
        self.with_untimed(&facts, |program| match program {
            AnyProgram::ZkDilithium(program) => ask(&**program),
            _ => unreachable!("a program of zkDilithium"),
        })
    }

    /// Bytes that a message may have which the device hashes.
    pub fn longest_message(&self, group: Group) -> Result<usize, Error> {
        let facts = self.facts(group)?;
        self.with_untimed(&facts, |program| match program {
            AnyProgram::Sha256(hasher) => hasher.longest(),
            _ => unreachable!("a program of SHA-256"),
        })
    }

    /// Runs `work` with a program of a group that has no plan; the time that it takes says nothing of the device.
    fn with_untimed<T>(&self, facts: &GroupFacts, work: impl FnOnce(&mut AnyProgram) -> T) -> Result<T, Error> {
        let (group, bucket, bytes) = (facts.group, facts.group.bucket(1), facts.fixed_bytes);
        let policy = self.policy_without_plan(group);
        let mut run = InUse { programs: self, number: lock(&self.pool).begin(group, bucket, bytes), is_active: false };
        let mut program = self.ready(facts, bucket, &policy, u64::MAX, &mut run)?;
        let done = work(&mut program);
        lock(&self.pool).idle.push(Prepared { group, policy, program, bucket, bytes });
        Ok(done)
    }

    fn policy_without_plan(&self, group: Group) -> Policy {
        self.without_plan.with(THREADS, group.threads as u32)
    }

    fn facts_without_plan(&self, group: Group, full: usize, queue: usize, fixed_bytes: u64) -> GroupFacts {
        GroupFacts {
            group,
            plan: None,
            queue,
            default: self.policy_without_plan(group),
            space: Vec::new(),
            chosen: Mutex::new([const { None }; usize::BITS as usize]),
            full,
            most: AtomicUsize::new(full),
            runs: AtomicUsize::new(0),
            guess: self.device.guessed_rate(group.threads),
            fixed_bytes,
            uses_expanded_keys: false,
            predicted: None,
            work: OnceLock::new(),
            measured: Mutex::new([0.0; usize::BITS as usize]),
        }
    }

    /// All groups that were planned so far.
    pub fn known(&self) -> Vec<Arc<GroupFacts>> {
        lock(&self.known).clone()
    }

    /// The policy of a program for up to `jobs` jobs: looked up at the first mention of their bucket.
    pub fn choice(&self, facts: &GroupFacts, jobs: usize) -> Choice {
        self.with_chosen(facts, jobs, |chosen| chosen.told())
    }

    fn with_chosen<T>(&self, facts: &GroupFacts, jobs: usize, look: impl FnOnce(&mut Chosen) -> T) -> T {
        let bucket = facts.group.bucket(jobs);
        let mut all = lock(&facts.chosen);
        look(all[bucket.ilog2() as usize].get_or_insert_with(|| {
            let choose = |plan| self.knowledge.choose(&*self.backend, &self.device, plan, bucket);
            let found = facts.plan.as_ref().and_then(choose);
            let bytes = |policy: &Policy| self.bytes_by(facts, bucket, policy);
            let choice = match found {
                Some(choice) => Choice { policy: facts.within_threads(choice.policy), ..choice },
                None => {
                    let (policy, source) = (facts.default.clone(), PolicySource::Default);
                    Choice { policy, source, seconds: None, why: String::new() }
                }
            };
            let most = bytes(&choice.policy);
            Chosen::new(choice, &facts.space, |policy| bytes(policy) <= most)
        }))
    }

    /// Bytes of a program for up to `jobs` jobs.
    pub fn bytes(&self, facts: &GroupFacts, jobs: usize) -> u64 {
        self.with_chosen(facts, jobs, |chosen| self.bytes_of(facts, jobs, chosen))
    }

    /// The same by the policy that was chosen. The bytes are computed once for each policy, since that takes as long as a launch.
    fn bytes_of(&self, facts: &GroupFacts, jobs: usize, chosen: &mut Chosen) -> u64 {
        let policy = &chosen.choice.policy;
        *chosen.bytes.get_or_insert_with(|| self.bytes_by(facts, facts.group.bucket(jobs), policy))
    }

    fn bytes_by(&self, facts: &GroupFacts, bucket: usize, policy: &Policy) -> u64 {
        match (&facts.plan, self.backend.slh_dsa()) {
            (Some(plan), Some(programs)) => programs.bytes(&self.device, plan, bucket, policy),
            _ => facts.fixed_bytes,
        }
    }

    /// Runs `work` with exclusive use of a program for `jobs` jobs: an idle program, or a new one of at most `room` bytes. `work` computes the
    /// jobs `times` times.
    /// The program's policy is passed along. Idle programs make way until all of the device together take at most `all` bytes.
    /// A program that failed is not used again.
    pub fn with<T>(
        &self,
        facts: &Arc<GroupFacts>,
        (jobs, times): (usize, u32),
        (room, all): (u64, u64),
        work: impl FnOnce(&mut AnyProgram, &Policy) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let group = facts.group;
        let bucket = group.bucket(jobs);
        let (policy, bytes) = self.with_chosen(facts, jobs, |chosen| {
            let bytes = self.bytes_of(facts, jobs, chosen);
            (chosen.choice.policy.clone(), bytes)
        });
        if bytes > room {
            return Err(Error::OutOfMemory { device: self.device.id(), needs: bytes, has: room });
        }
        let mut run = InUse { programs: self, number: lock(&self.pool).begin(group, bucket, bytes), is_active: false };
        let mut program = self.ready(facts, bucket, &policy, all, &mut run)?;
        let start = Instant::now();
        let done = work(&mut program, &policy)?;
        let took = self.took(start) / times;
        let beside = run.is_beside_others();
        let mut pool = lock(&self.pool);
        pool.idle.push(Prepared { group, policy: policy.clone(), program, bucket, bytes });
        drop(pool);
        drop(run);
        let dropped = lock(&self.pool).shrink(self.budget);
        drop(dropped);
        if done.is_none() {
            return Ok(None);
        }
        self.with_chosen(facts, jobs, |chosen| {
            // Much fewer jobs than the program is for take longer each: they tell nothing of the prediction.
            if chosen.choice.policy == policy && 4 * jobs >= 3 * bucket {
                chosen.record(took.as_secs_f64() / jobs.max(1) as f64, beside);
            }
        });
        facts.record(jobs, took);
        Ok(done)
    }

    /// A program that nobody uses, or a new one. Where the device's memory does not suffice, idle programs make way first.
    /// Batches of plans can be made smaller after that; of others, whoever needs a program waits until those that run are done.
    fn ready(
        &self,
        facts: &GroupFacts,
        bucket: usize,
        policy: &Policy,
        all: u64,
        run: &mut InUse<'_>,
    ) -> Result<AnyProgram, Error> {
        let group = facts.group;
        let fits = |old: &Prepared| {
            old.bucket == bucket
                && old.group.kind.shares_programs(&group.kind)
                && old.group.threads == group.threads
                && old.policy == *policy
        };
        loop {
            let (found, dropped) = {
                let mut pool = lock(&self.pool);
                let at = pool.idle.iter().rposition(fits);
                let found = at.map(|at| pool.idle.remove(at));
                // A program that is being prepared counts too: whoever finds no room waits for it.
                pool.active += 1;
                run.is_active = true;
                (found, pool.shrink(all))
            };
            // Wiping takes a while: not under the lock.
            drop(dropped);
            if let Some(found) = found {
                return Ok(found.program);
            }
            let mut made = self.prepare(facts, bucket, policy);
            if matches!(made, Err(Error::OutOfMemory { .. })) {
                let dropped = std::mem::take(&mut lock(&self.pool).idle);
                if !dropped.is_empty() {
                    drop(dropped);
                    made = self.prepare(facts, bucket, policy);
                }
            }
            let why = match made {
                Ok(made) => return Ok(made),
                Err(why) => why,
            };
            let mut pool = lock(&self.pool);
            pool.active -= 1;
            run.is_active = false;
            match why {
                Error::OutOfMemory { .. } if facts.plan.is_none() && pool.active > 0 => {
                    drop(self.changed.wait(pool));
                }
                // One became idle since.
                Error::OutOfMemory { .. } if facts.plan.is_none() && !pool.idle.is_empty() => {}
                why => {
                    self.changed.notify_all();
                    return Err(why);
                }
            }
        }
    }

    fn prepare(&self, facts: &GroupFacts, bucket: usize, policy: &Policy) -> Result<AnyProgram, Error> {
        let (backend, device) = (&self.backend, &self.device);
        Ok(match facts.group.kind {
            Kind::SlhDsa { .. } => {
                AnyProgram::SlhDsa(backend.slh_dsa_on(device)?.prepare(device, facts.plan(), bucket, policy)?)
            }
            Kind::ZkDilithium(_) => AnyProgram::ZkDilithium(backend.zkdilithium_on(device)?.prepare(device, policy)?),
            Kind::Sha256 => AnyProgram::Sha256(backend.sha256_on(device)?.prepare(device, policy)?),
        })
    }

    /// The device's time for a run that ends now: of runs that overlap, the later one's begins where the other ended.
    fn took(&self, start: Instant) -> Duration {
        let mut ended = lock(&self.ended);
        let now = Instant::now();
        let before = ended.replace(now);
        now.duration_since(before.map_or(start, |before| before.max(start)))
    }
}

impl ProgramPool {
    /// A program begins to run; gives its number.
    fn begin(&mut self, group: Group, bucket: usize, bytes: u64) -> u64 {
        let mut beside = false;
        for other in self.running.iter_mut().filter(|other| (other.group, other.bucket) != (group, bucket)) {
            (other.beside, beside) = (true, true);
        }
        self.begun += 1;
        self.running.push(Running { number: self.begun, group, bucket, bytes, beside });
        self.begun
    }

    /// The programs that ran longest ago are taken out until all hold at most `bytes`.
    fn shrink(&mut self, bytes: u64) -> Vec<Prepared> {
        let (mut held, mut kept) = (self.running.iter().map(|running| running.bytes).sum::<u64>(), 0);
        for program in self.idle.iter().rev().take(MOST_IDLE) {
            held += program.bytes;
            if held > bytes {
                break;
            }
            kept += 1;
        }
        let surplus = self.idle.len() - kept;
        self.idle.drain(..surplus).collect()
    }
}

/// A panic in another thread leaves these lists whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plan(group: Group) -> Result<Plan, Error> {
    let Kind::SlhDsa { params: p, op, cached_layers: layers } = group.kind else { unreachable!("a group of SLH-DSA") };
    let most = most_cached_layers(p);
    let possible = match op {
        Op::Sign => layers == 0 || layers <= p.d && cache_bytes(p, layers).is_some(),
        Op::Cache => (1..=most).contains(&layers),
        Op::Keygen | Op::Verify => layers == 0,
    };
    if !possible {
        let what =
            format!("{layers} cached layers of {p}, of which at most {most} can be cached; ask for so many or fewer");
        return Err(Error::Value { what });
    }
    Ok(match op {
        Op::Cache => Plan::cache(p, layers),
        Op::Sign => Plan::new(p, op).with_cached_layers(layers),
        Op::Keygen | Op::Verify => Plan::new(p, op),
    })
}
