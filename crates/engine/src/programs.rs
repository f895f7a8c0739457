//! The facts about kinds of work on one device, and their prepared programs, which are kept between two runs so that a second call prepares nothing.

use crate::choice::Chosen;
use crate::scheduler::lock;
use crate::scheme::{Facts, Group, GroupFacts, Prepared, Site};
use crate::{Backend, Choice, Device, Error, Knowledge, Places, Policy, PolicySource, Timing};
use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most idle programs that are kept; the memory budget usually holds fewer.
const MOST_IDLE: usize = 16;

/// A program that nobody uses, and the arguments that it was prepared with.
struct IdleProgram {
    group: Group,
    policy: Policy,
    program: Box<dyn Prepared>,
    bucket: usize,
    bytes: u64,
}

/// The programs of a device, idle or running.
#[derive(Default)]
struct ProgramPool {
    /// Idle programs, the one that ran last at the end.
    idle: Vec<IdleProgram>,
    /// Programs that are ready and in use.
    running: Vec<Running>,
    /// Programs that are in use, or that are being prepared.
    active: usize,
    /// Threads that wait until a program is no longer in use.
    waiting: usize,
    /// Programs that began to run so far.
    begun: u64,
}

/// A program that runs.
struct Running {
    /// The program's number in the order in which programs began.
    number: u64,
    group: Group,
    bucket: usize,
    bytes: u64,
    /// Whether a program of another group or size ran at the same time, so that the time of this one says little. Several programs of one group and size
    /// do not count: they run concurrently by design, and hide each other's transfers.
    overlapped: bool,
}

/// A program in use, until this is dropped.
struct InUse<'a> {
    programs: &'a Programs,
    number: u64,
    /// Whether the pool counts the program as active: it is there, or is being prepared.
    is_active: bool,
}

impl InUse<'_> {
    fn has_overlapped(&self) -> bool {
        lock(&self.programs.pool).running.iter().any(|running| running.number == self.number && running.overlapped)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut pool = lock(&self.programs.pool);
        pool.running.retain(|running| running.number != self.number);
        pool.active -= usize::from(self.is_active);
        self.programs.notify(&pool);
    }
}

/// A program that nobody else uses. If it is dropped, as after an error or a panic, it is not used again.
pub struct LentProgram<'a> {
    /// The program.
    pub program: Box<dyn Prepared>,
    /// The policy by which it was prepared.
    pub policy: Policy,
    facts: &'a GroupFacts,
    /// The jobs for which it was lent.
    jobs: usize,
    bucket: usize,
    bytes: u64,
    since: Instant,
    run: InUse<'a>,
}

impl LentProgram<'_> {
    /// Makes the tests that a batch needs. Their time is none of the batch's.
    pub(crate) fn prove(&mut self) -> Result<(), Error> {
        self.program.prove(self.jobs)?;
        self.since = Instant::now();
        Ok(())
    }

    /// Gives the program back after it has computed its jobs in these places, and records the time that this took. In other places than usual it
    /// takes longer, so that time is not recorded.
    pub fn give_back(self, places: Places, timing: &Timing) {
        self.facts.note_lateness(timing);
        let (programs, facts, jobs, bucket) = (self.run.programs, self.facts, self.jobs, self.bucket);
        let times = match places {
            Places::Usual => 1,
            Places::Both => 2,
            Places::Other => return self.make_idle(),
        };
        let (took, overlapped) = (programs.took(self.since) / times, self.run.has_overlapped());
        let policy = self.policy.clone();
        self.make_idle();
        programs.with_chosen(facts, jobs, |chosen| {
            // If the program is for many more jobs, each job takes longer, which says nothing about the prediction.
            if chosen.choice.policy == policy && 4 * jobs >= 3 * bucket {
                chosen.record(took.as_secs_f64() / jobs.max(1) as f64, overlapped);
            }
        });
        facts.record(jobs, took);
    }

    /// Gives the program back as it is.
    pub(crate) fn make_idle(self) {
        let LentProgram { program, policy, facts, bucket, bytes, run, .. } = self;
        let programs = run.programs;
        lock(&programs.pool).idle.push(IdleProgram { group: facts.group, policy, program, bucket, bytes });
        drop(run);
        let dropped = lock(&programs.pool).shrink(programs.budget);
        drop(dropped);
    }
}

/// The programs of one device.
pub struct Programs {
    backend: Arc<dyn Backend>,
    device: Device,
    /// The policy of schemes for which nothing is measured.
    policy: Policy,
    /// Bytes that programs may hold between two calls.
    budget: u64,
    knowledge: Arc<dyn Knowledge>,
    known: Mutex<Vec<Arc<GroupFacts>>>,
    pool: Mutex<ProgramPool>,
    /// Notified when a program is no longer in use.
    changed: Condvar,
    /// When the last run ended.
    ended: Mutex<Option<Instant>>,
}

impl Programs {
    /// The programs of a device. None is prepared yet.
    pub fn new(
        backend: Arc<dyn Backend>,
        device: Device,
        budget: u64,
        knowledge: Arc<dyn Knowledge>,
        policy: Policy,
    ) -> Programs {
        let (known, pool, changed, ended) = Default::default();
        Programs { backend, device, policy, budget, knowledge, known, pool, changed, ended }
    }

    /// The most programs in flight, of any kind, that keep the device busy.
    pub(crate) fn slots(&self) -> usize {
        self.backend.most_in_flight(&self.device)
    }

    fn site(&self) -> Site<'_> {
        let Programs { backend, device, knowledge, policy, .. } = self;
        Site { backend: &**backend, device, knowledge: &**knowledge, policy }
    }

    /// The knowledge about the device before anything runs.
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

    /// The facts about a group. The first call for a group collects them. `Unsupported` if the backend declines the group.
    pub fn facts(&self, group: Group) -> Result<Arc<GroupFacts>, Error> {
        if let Some(facts) = lock(&self.known).iter().find(|facts| facts.group == group) {
            return Ok(facts.clone());
        }
        // Not under the lock, because a program may have to be prepared. Other threads that ask meanwhile get the same facts.
        let Facts { jobs, queue, abilities, default, space, compressions, predicted, own, program } =
            group.kind.scheme.factory.facts(&self.site(), group)?;
        let facts = Arc::new(GroupFacts {
            group,
            habits: group.kind.habits(),
            abilities,
            queue,
            default,
            space,
            chosen: Mutex::new([const { None }; usize::BITS as usize]),
            full: jobs,
            most: AtomicUsize::new(jobs),
            runs_at_most: AtomicUsize::new(0),
            guess: compressions / self.device.guessed_rate(group.threads),
            own,
            predicted,
            measured: Mutex::new([0.0; usize::BITS as usize]),
            late: AtomicU32::new(0),
        });
        if let Some(program) = program {
            let (bucket, policy) = (facts.bucket(jobs), facts.default.clone());
            let bytes = self.bytes_by(&facts, bucket, &policy);
            lock(&self.pool).idle.push(IdleProgram { group, policy, program, bucket, bytes });
        }
        let mut known = lock(&self.known);
        if let Some(facts) = known.iter().find(|facts| facts.group == group) {
            return Ok(facts.clone());
        }
        known.push(facts.clone());
        Ok(facts)
    }

    /// Asks a program of a group whose programs take any number of jobs: an idle program, or one that is prepared for this. The time is not recorded,
    /// because it says nothing about the device.
    pub fn ask<P: Prepared, T>(&self, group: Group, ask: impl FnOnce(&P) -> T) -> Result<T, Error> {
        let facts = self.facts(group)?;
        let policy = facts.default.clone();
        let bytes = self.bytes_by(&facts, facts.bucket(1), &policy);
        let mut lent = self.lend_by(&facts, 1, (policy, bytes), u64::MAX)?;
        let answer = ask(typed(&mut *lent.program));
        lent.make_idle();
        Ok(answer)
    }

    /// The facts about all groups that were planned so far.
    pub fn known(&self) -> Vec<Arc<GroupFacts>> {
        lock(&self.known).clone()
    }

    /// The policy of a program for up to `jobs` jobs. The first call for a bucket of jobs looks the policy up.
    pub fn choice(&self, facts: &GroupFacts, jobs: usize) -> Choice {
        self.with_chosen(facts, jobs, |chosen| chosen.reported())
    }

    fn with_chosen<T>(&self, facts: &GroupFacts, jobs: usize, look: impl FnOnce(&mut Chosen) -> T) -> T {
        let bucket = facts.bucket(jobs);
        let mut all = lock(&facts.chosen);
        look(all[bucket.ilog2() as usize].get_or_insert_with(|| {
            let found = facts.group.kind.scheme.factory.choose(&self.site(), facts, bucket);
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

    /// Bytes of a program by the chosen policy. They are computed once for each policy, since that takes as long as a launch.
    fn bytes_of(&self, facts: &GroupFacts, jobs: usize, chosen: &mut Chosen) -> u64 {
        let policy = &chosen.choice.policy;
        *chosen.bytes.get_or_insert_with(|| self.bytes_by(facts, facts.bucket(jobs), policy))
    }

    fn bytes_by(&self, facts: &GroupFacts, bucket: usize, policy: &Policy) -> u64 {
        facts.group.kind.scheme.factory.bytes(&self.site(), facts, bucket, policy)
    }

    /// Lends a program for `jobs` jobs: an idle program, or a new one of at most `room` bytes. Idle programs are dropped until all programs of the
    /// device together take at most `all` bytes.
    pub fn lend<'a>(
        &'a self,
        facts: &'a GroupFacts,
        jobs: usize,
        (room, all): (u64, u64),
    ) -> Result<LentProgram<'a>, Error> {
        let (policy, bytes) = self.with_chosen(facts, jobs, |chosen| {
            let bytes = self.bytes_of(facts, jobs, chosen);
            (chosen.choice.policy.clone(), bytes)
        });
        if bytes > room {
            return Err(Error::OutOfMemory { device: self.device.id(), needs: bytes, has: room });
        }
        self.lend_by(facts, jobs, (policy, bytes), all)
    }

    /// Lends a program of this policy and size.
    fn lend_by<'a>(
        &'a self,
        facts: &'a GroupFacts,
        jobs: usize,
        (policy, bytes): (Policy, u64),
        all: u64,
    ) -> Result<LentProgram<'a>, Error> {
        let bucket = facts.bucket(jobs);
        let number = lock(&self.pool).begin(facts.group, bucket, bytes);
        let mut run = InUse { programs: self, number, is_active: false };
        let program = self.ready(facts, bucket, &policy, all, &mut run)?;
        Ok(LentProgram { program, policy, facts, jobs, bucket, bytes, since: Instant::now(), run })
    }

    /// An idle program, or a new one. If the device's memory does not suffice, idle programs are dropped first. If that does not suffice for a sized
    /// program, this is an error, and the caller asks for a smaller one. For other programs this waits until running programs are done.
    fn ready(
        &self,
        facts: &GroupFacts,
        bucket: usize,
        policy: &Policy,
        all: u64,
        run: &mut InUse<'_>,
    ) -> Result<Box<dyn Prepared>, Error> {
        let group = facts.group;
        let fits = |old: &IdleProgram| {
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
                // A program that is being prepared counts too: another thread that finds no room waits for it.
                pool.active += 1;
                run.is_active = true;
                (found, pool.shrink(all))
            };
            // Not under the lock, because wiping takes a while.
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
                Error::OutOfMemory { .. } if !facts.habits.is_sized && pool.active > 0 => {
                    pool.waiting += 1;
                    pool = self.changed.wait(pool).unwrap_or_else(PoisonError::into_inner);
                    pool.waiting -= 1;
                }
                // A program became idle since, and makes way in the next round.
                Error::OutOfMemory { .. } if !facts.habits.is_sized && !pool.idle.is_empty() => {}
                why => {
                    self.notify(&pool);
                    return Err(why);
                }
            }
        }
    }

    /// Wakes the threads that wait for running programs. If there are none, this makes no system call, which single jobs would notice.
    fn notify(&self, pool: &ProgramPool) {
        if pool.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn prepare(&self, facts: &GroupFacts, bucket: usize, policy: &Policy) -> Result<Box<dyn Prepared>, Error> {
        facts.group.kind.scheme.factory.prepare(&self.site(), facts, bucket, policy)
    }

    /// The device's time for a run that ends now. If runs overlap, the later run's time begins where the other run ended.
    fn took(&self, start: Instant) -> Duration {
        let mut ended = lock(&self.ended);
        let now = Instant::now();
        let before = ended.replace(now);
        now.duration_since(before.map_or(start, |before| before.max(start)))
    }
}

impl ProgramPool {
    /// Records that a program begins to run; gives its number.
    fn begin(&mut self, group: Group, bucket: usize, bytes: u64) -> u64 {
        let mut overlapped = false;
        for other in self.running.iter_mut().filter(|other| (other.group, other.bucket) != (group, bucket)) {
            (other.overlapped, overlapped) = (true, true);
        }
        self.begun += 1;
        self.running.push(Running { number: self.begun, group, bucket, bytes, overlapped });
        self.begun
    }

    /// Takes out the idle programs that ran longest ago, until at most [`MOST_IDLE`] are left and all programs hold at most `bytes`.
    fn shrink(&mut self, bytes: u64) -> Vec<IdleProgram> {
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

/// The program as its scheme's own type.
pub fn typed<P: Prepared>(program: &mut dyn Prepared) -> &mut P {
    let program: &mut dyn Any = program;
    program.downcast_mut().expect("the program is its group's")
}
