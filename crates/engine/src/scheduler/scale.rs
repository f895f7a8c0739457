//! How much time and memory jobs take on a device, and how many of them suit a chunk or a batch of tickets.

use super::{Checks, Scheduler, Worker};
use crate::PolicySource;
use crate::planner::{Bounds, Weigh};
use crate::scheme::Kind;
use crate::scheme::{Group, GroupFacts};
use std::sync::Arc;
use std::time::Duration;

/// The most jobs of a chunk that have no group, because they are bad. They weigh nothing, and must not be gathered for ever.
const BAD_JOBS: usize = 1024;

/// Results of a batch come out at least this often, unless one job takes longer. This does not hold for a device with memory
/// of its own: only a full program is fast there.
const CHUNK_TIME: Duration = Duration::from_millis(500);

/// Time of a batch of tickets that one of the host's threads does, unless one job or few lanes take longer. A verification with 128s takes
/// a fortieth of it.
const BATCH_OF_A_THREAD: Duration = Duration::from_millis(1);

/// The most lanes that a CPU has, where jobs share them: a batch of 17 verifications takes a tenth longer than one of 16.
const LANES: usize = 16;

/// From this quotient of speeds on, devices of one model are not equally fast: one may be shared with another process, or too hot.
const MUCH_FASTER: f64 = 1.5;

impl Worker {
    /// Jobs of a full program; 1,024 if the group is not known.
    pub(super) fn most(&self, group: Option<Group>) -> usize {
        group.and_then(|group| self.programs.facts(group).ok()).map_or(BAD_JOBS, |facts| facts.most())
    }

    /// Jobs a second of this group, as far as is known.
    pub(super) fn speed(&self, group: Group) -> Option<f64> {
        self.programs.facts(group).ok().map(|facts| 1.0 / facts.seconds())
    }

    /// Predicted seconds of a full program.
    pub(super) fn full(&self, group: Group) -> Option<f64> {
        self.programs.facts(group).ok().map(|facts| facts.seconds() * facts.most() as f64)
    }

    /// The time of a job with these checks, as a multiple of its time without checks.
    pub(super) fn cost(&self, group: Group, checks: Checks) -> f64 {
        let seconds = |group| self.programs.facts(group).ok().map(|facts| facts.seconds());
        let verified_by = group.kind.habits().verified_by.filter(|_| checks.verify_signatures);
        let verifies = verified_by.and_then(|kind| Some(seconds(Group { kind, ..group })? / seconds(group)?));
        f64::from(1 + u8::from(checks.redundant)) + verifies.unwrap_or(0.0)
    }

    /// The most jobs of a chunk with these checks, limited so that results come out now and then, and that no chunk takes longer than a full program
    /// without checks.
    fn jobs_of_a_chunk(&self, group: Group, checks: Checks) -> Option<usize> {
        let facts = self.programs.facts(group).ok()?;
        let cost = self.cost(group, checks);
        let of_time = (CHUNK_TIME.as_secs_f64() / facts.seconds() / cost) as usize;
        let most = (facts.most() as f64 / cost) as usize;
        // A device that has memory of its own is not fast with few jobs.
        let least = if self.has_memory() { facts.most().div_ceil(8) } else { 1 };
        Some(of_time.clamp(least, most.max(least)))
    }

    /// Seconds of so many jobs in one call, if that is known.
    pub fn seconds(&self, group: Group, jobs: usize) -> Option<f64> {
        let facts = self.programs.facts(group).ok()?;
        let (program, times) = (jobs.clamp(1, facts.most()), facts.times());
        let total = jobs as f64;
        if let Some(measured) = facts.measured_at(program) {
            return Some(measured * total);
        }
        let by_line = || {
            let estimate = self.programs.knowledge().interpolate(&times, program)?;
            Some(estimate / program as f64 * total)
        };
        if times.len() > 1 {
            return by_line();
        }
        let choice = self.programs.choice(&facts, program);
        let predicted = choice.seconds.filter(|_| choice.source != PolicySource::Default);
        predicted.map(|(seconds, _)| seconds * total).or_else(by_line)
    }
}

/// How many jobs a batch of tickets has at most: with more, others would wait and the batch would be no faster.
#[derive(Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) most: usize,
    /// The most jobs of a batch that one thread of the host does while the others do other batches. This holds if the host alone computes and fewer
    /// than `most` wait: a flood of `most` shows that other devices are worth initialising.
    pub(super) of_thread: Option<usize>,
    /// Jobs that fill the lanes of a CPU together; 1 if each job fills them by itself.
    pub(super) lanes: usize,
    /// The most batches that run at a time: as many as devices have programs for, and one that is ready when a program is.
    pub(super) slots: usize,
    /// Devices of which a batch goes to one. If there are several, no batch has more than its share of all jobs, so that other devices have work too.
    pub(super) devices: usize,
}

impl Scheduler {
    /// Jobs a second of this group, as far as is known, for a comparison with other devices. Devices of one model whose times differ little count as
    /// equally fast, because the times of chunks that overlap vary by a quarter. (Verifying 1,048,576 rows of 128f, four H100: 7.03 M/s, and
    /// 6.78 M/s if each device counts as fast as its latest chunks were.)
    pub(super) fn speed_of_model(&self, worker: &Worker, group: Group) -> Option<f64> {
        let is_alike = |other: &&Worker| {
            let (it, other) = (worker.device(), other.device());
            (it.backend, &it.name, it.cores) == (other.backend, &other.name, other.cores)
        };
        let own = worker.speed(group)?;
        let speeds = self.live().filter(is_alike).filter_map(|other| other.speed(group));
        let near = speeds.filter(|speed| (own / MUCH_FASTER..own * MUCH_FASTER).contains(speed));
        let (sum, count) = near.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
        Some(if count > 0.0 { sum / count } else { own })
    }

    /// Whether the host is the only device, as far as is known.
    pub(super) fn is_host_alone(&self) -> bool {
        let mut live = self.live();
        live.next().is_some_and(Worker::is_host) && live.next().is_none()
    }

    /// How many jobs of this kind pay, with the checks of the work; see [`BatchLimits`]. Batches of jobs with more checks have fewer jobs, so that
    /// lines that take turns get the same time.
    pub(super) fn batch_limits(&self, kind: Kind) -> BatchLimits {
        let group = Group { kind, threads: self.options.threads };
        let checks = self.work.checks;
        if self.is_host_alone() {
            let (host, alone) = (self.first(), Group { kind, threads: 1 });
            let cost = host.cost(alone, checks);
            let of_time =
                host.speed(alone).map_or(1, |speed| (BATCH_OF_A_THREAD.as_secs_f64() * speed / cost) as usize);
            let (lanes, least) = match kind.habits().shares_lanes {
                true => (LANES, ((2 * LANES) as f64 / cost) as usize),
                false => (1, 1),
            };
            let least = least.max(lanes);
            let most = self.jobs_to_wake(group).unwrap_or(usize::MAX);
            let (of_thread, slots) = (Some(of_time.max(least)), self.options.threads);
            return BatchLimits { most, of_thread, lanes, slots, devices: 1 };
        }
        let able = || self.live().filter(|worker| worker.takes(group));
        let jobs = able().filter_map(|worker| worker.jobs_of_a_chunk(group, checks)).max().unwrap_or(1);
        let of = |worker: &Worker| if worker.is_host() { 1 } else { worker.queue_of(Some(group)) };
        let slots = able().map(of).sum::<usize>() + 1;
        let devices = able().filter(|worker| worker.is_discrete()).count().max(1);
        let most = jobs.max(self.jobs_to_wake(group).unwrap_or(1));
        BatchLimits { most, of_thread: None, lanes: 1, slots, devices }
    }
}

/// Weighs jobs on one device.
#[derive(Clone, Copy)]
pub struct Scale<'a> {
    /// The scheduler that has the device.
    pub scheduler: &'a Scheduler,
    /// The device.
    pub worker: &'a Worker,
}

impl Scale<'_> {
    fn facts(&self, group: Group) -> Option<Arc<GroupFacts>> {
        self.worker.programs.facts(group).ok()
    }

    /// Bytes of the largest program that jobs of this group need.
    pub fn bytes(&self, group: Group, jobs: usize) -> u64 {
        let room = self.scheduler.work.checks.room_for(jobs);
        let of = |group| self.facts(group).map_or(0, |facts| self.worker.programs.bytes(&facts, room));
        // The verification that follows has a program of its own.
        let verifies = self.scheduler.work.checks.verify_signatures;
        let verified_by = if verifies { group.kind.habits().verified_by } else { None };
        verified_by.map_or(0, |kind| of(Group { kind, ..group })).max(of(group))
    }

    /// The limits of a chunk that begins with a job of `group`, on this device among `others`.
    pub fn bounds<'w>(&self, memory: u64, group: Option<Group>, others: impl Iterator<Item = &'w Worker>) -> Bounds {
        let most = self.worker.most(group);
        // The results of several devices are put in order: none should take much longer for its chunk than another.
        let fastest = group.and_then(|group| others.filter_map(|other| other.full(group)).reduce(f64::min));
        let allowed = fastest.and_then(|seconds| Duration::try_from_secs_f64(2.0 * seconds).ok());
        // A GPU by itself takes full programs. Next to other devices an eighth of one must suffice. A CPU needs a job a thread.
        let (longest, least) = match (self.worker.has_memory(), allowed) {
            (true, None) => (Duration::MAX, most),
            (true, Some(_)) => (Duration::MAX, most.div_ceil(8)),
            (false, _) => (CHUNK_TIME, self.scheduler.options.threads),
        };
        // The jobs of a program are limited by the program. This is the limit of a chunk with bad jobs in it.
        let jobs = most.max(BAD_JOBS);
        Bounds { memory, jobs, time: allowed.map_or(longest, |allowed| allowed.min(longest)), least }
    }
}

impl Weigh for Scale<'_> {
    fn takes(&self, group: Group) -> bool {
        self.worker.takes(group)
    }
    fn most(&self, group: Group) -> usize {
        self.facts(group).map_or(usize::MAX, |facts| facts.most())
    }
    fn program(&self, group: Group, rows: usize) -> u64 {
        self.bytes(group, rows)
    }
    fn seconds(&self, group: Group) -> f64 {
        self.facts(group).map_or(0.0, |facts| facts.seconds())
    }
}
