//! A scheme as the scheduler knows it: data about its kinds of work, and one trait that makes programs for them. The scheduler, and
//! [`programs`](crate::programs), name no scheme.

use crate::Error;
use crate::backend::Backend;
use crate::choice::{Choice, Chosen, Knowledge};
use crate::device::{Abilities, Axis, Device, Policy, THREADS, Timing};
use crate::scheduler::lock;
use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A signature scheme, or another source of work for devices. Each is a static.
pub struct Scheme {
    /// The scheme's name, for people.
    pub name: &'static str,
    /// The factory that makes the scheme's programs.
    pub factory: &'static dyn ProgramFactory,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A kind of work, for which a program is prepared.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// The parameter set, a static of the scheme's.
    pub set: &'static (dyn Any + Send + Sync),
    /// The number of the operation.
    pub op: u8,
    /// Any other difference between programs: for SLH-DSA, the number of layers whose nodes are known or asked for.
    pub variant: usize,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.is_alike(other) && self.op == other.op
    }
}

impl Kind {
    /// The habits of this kind, by which the scheduler decides.
    pub fn habits(&self) -> Habits {
        self.scheme.factory.habits(*self)
    }

    /// Whether the kinds differ by their operation, if at all.
    fn is_alike(&self, other: &Kind) -> bool {
        ptr::eq(self.scheme, other.scheme) && ptr::addr_eq(self.set, other.set) && self.variant == other.variant
    }

    /// Whether a program for the one serves the other.
    pub(crate) fn shares_programs(&self, other: &Kind) -> bool {
        self == other || (self.is_alike(other) && self.habits().serves_all_ops)
    }
}

/// The parameter set of schemes that have only one.
pub(crate) static NO_SET: () = ();

/// Properties of a kind of work by which the scheduler decides, whatever the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// A job is a chain of dependent steps: alone it is no faster with more threads.
    pub is_chain: bool,
    /// Jobs share the lanes of a CPU. If not, each job fills them by itself.
    pub shares_lanes: bool,
    /// How large the first chunks of a long call are.
    pub first_chunks: FirstChunks,
    /// All jobs of a call are of one kind.
    pub comes_alone: bool,
    /// A program is prepared for a number of jobs. If not, it takes any number, and a smaller one needs no less memory.
    pub is_sized: bool,
    /// A program serves all operations of its set.
    pub serves_all_ops: bool,
    /// The kind of work that verifies results of this kind, if an engine verifies them.
    pub verified_by: Option<Kind>,
}

/// How large the first chunks of a long call are, if its jobs keep a device busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FirstChunks {
    /// As large as later ones.
    #[default]
    Full,
    /// Small on a device with memory of its own, and each twice as large as the one before. The device computes once it has a small chunk's inputs,
    /// and fetches larger chunks meanwhile.
    Doubling,
    /// Each chunk in flight is larger than the one before by the same amount. Chunks of one size that began together would also fetch together, and
    /// the device would wait.
    Staggered,
}

/// A device, and the knowledge about it before anything runs there.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The device's backend.
    pub backend: &'a dyn Backend,
    /// The device.
    pub device: &'a Device,
    /// The knowledge from measurements.
    pub knowledge: &'a dyn Knowledge,
    /// The policy of schemes for which nothing is measured.
    pub policy: &'a Policy,
}

/// A factory's facts about a kind of work on a device.
pub struct Facts {
    /// Jobs that fill the device.
    pub jobs: usize,
    /// Programs in flight that keep the device busy.
    pub queue: usize,
    /// The abilities of its programs.
    pub abilities: Abilities,
    /// The policy where nothing is known.
    pub default: Policy,
    /// The axes that a policy can choose.
    pub space: Vec<Axis>,
    /// Compressions that a job takes, exactly or about: its time is guessed from them.
    pub compressions: f64,
    /// Seconds a job of a full program, if they are known.
    pub predicted: Option<f64>,
    /// Facts that only the scheme itself reads.
    pub own: Box<dyn Any + Send + Sync>,
    /// A program, if one had to be prepared to collect the facts: the first jobs use it.
    pub program: Option<Box<dyn Prepared>>,
}

/// Makes the programs of a scheme.
pub trait ProgramFactory: Send + Sync {
    /// The habits of this kind of work, by which the scheduler decides.
    fn habits(&self, kind: Kind) -> Habits;
    /// The facts about a group's work on a device. `Unsupported` if the device declines it.
    fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error>;
    /// The policy for programs of so many jobs, if anything is known.
    fn choose(&self, _site: &Site<'_>, _facts: &GroupFacts, _jobs: usize) -> Option<Choice> {
        None
    }
    /// Bytes of the host's memory that a program for so many jobs holds.
    fn bytes(&self, site: &Site<'_>, facts: &GroupFacts, jobs: usize, policy: &Policy) -> u64;
    /// Prepares a program for up to so many jobs.
    fn prepare(
        &self,
        site: &Site<'_>,
        facts: &GroupFacts,
        jobs: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Prepared>, Error>;
}

/// A prepared program of some scheme, which knows its type.
pub trait Prepared: Any + Send {
    /// Sets how long a wait for the device may take from now on: see [`Program::time_limit`](crate::Program::time_limit).
    fn time_limit(&mut self, limit: Option<Duration>);
    /// Makes tests of the device that were not made yet: see [`Program::prove`](crate::Program::prove). Other schemes test a device when they
    /// prepare a program.
    fn prove(&mut self, _jobs: usize) -> Result<(), Error> {
        Ok(())
    }
}

/// The number of jobs for which a program is prepared: the next power of two, so that few different programs are used again.
pub fn bucket(jobs: usize) -> usize {
    jobs.next_power_of_two()
}

/// Runs with less than a full program's jobs, for want of memory, after which a program of more jobs is tried. Whoever held the memory may have given
/// it back, and one refusal costs little compared with so many runs.
const RUNS_BEFORE_MORE: usize = 32;

/// A group of jobs: those of one kind and one number of threads can run in one program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Group {
    /// The kind of the jobs.
    pub kind: Kind,
    /// Host threads.
    pub threads: usize,
}

/// The facts about a group on this device.
pub struct GroupFacts {
    /// The group.
    pub group: Group,
    /// The habits of the group's kind, by which the scheduler decides.
    pub habits: Habits,
    /// The abilities of the group's programs.
    pub abilities: Abilities,
    /// Programs in flight that keep the device busy.
    pub queue: usize,
    /// The policy of the group's programs where nothing is known: the number of threads, if that is a choice.
    pub(crate) default: Policy,
    pub(crate) space: Vec<Axis>,
    /// The policies of the group's programs, by the logarithm of the bucket.
    pub(crate) chosen: Mutex<[Option<Chosen>; usize::BITS as usize]>,
    /// Jobs that fill the device.
    pub(crate) full: usize,
    /// Jobs that one program takes: `full`, or fewer if the device's memory was found to allow no more.
    pub(crate) most: AtomicUsize,
    /// Runs of at least `most` jobs since `most` was set.
    pub(crate) runs_at_most: AtomicUsize,
    /// Guessed seconds a job.
    pub(crate) guess: f64,
    /// Facts that only the group's scheme reads.
    pub(crate) own: Box<dyn Any + Send + Sync>,
    /// Seconds a job of a full program, as predicted before anything ran.
    pub(crate) predicted: Option<f64>,
    /// Measured seconds a job, by the logarithm of the bucket; 0 if no such batch ran yet.
    pub(crate) measured: Mutex<[f64; usize::BITS as usize]>,
    /// Batches whose messages the device shall hash although the host could do so meanwhile, because the host was late.
    pub(crate) late: AtomicU32,
}

/// Batches after which a host that was late hashes again, and may be in time. (docs/lab/2026-11-24-numpy.md compares 15 and 63.)
const HASHED_AFTER_LATE: u32 = 63;

impl GroupFacts {
    /// The size of the program that takes `jobs` jobs. Programs have few sizes, or a single one if the size does not matter.
    pub(crate) fn bucket(&self, jobs: usize) -> usize {
        if self.habits.is_sized { bucket(jobs) } else { 1 }
    }

    /// The scheme's own facts about the group, whose type is `T`.
    pub(crate) fn own<T: 'static>(&self) -> &T {
        self.own.downcast_ref().expect("the facts are this scheme's")
    }

    /// Records a run. After `RUNS_BEFORE_MORE` runs with as many jobs as the memory allowed, the limit doubles, up to a full program: the memory may be
    /// free again.
    pub fn record(&self, jobs: usize, took: Duration) {
        let most = self.most();
        if most < self.full && jobs >= most && self.runs_at_most.fetch_add(1, Relaxed) + 1 >= RUNS_BEFORE_MORE {
            self.runs_at_most.store(0, Relaxed);
            // If another thread has lowered the limit meanwhile, that one holds.
            let _ = self.most.compare_exchange(most, self.full.min(2 * most), Relaxed, Relaxed);
        }
        // Not 0, which stands for a size that was not measured.
        let seconds = took.as_secs_f64().max(1e-9) / jobs.max(1) as f64;
        let old = &mut lock(&self.measured)[bucket(jobs).ilog2() as usize];
        *old = if *old == 0.0 { seconds } else { (*old + seconds) / 2.0 };
    }

    /// Whether the host had not computed the positions of a recent batch when the device had fetched its signatures.
    pub fn host_is_late(&self) -> bool {
        self.late.load(Relaxed) > 0
    }

    pub(crate) fn note_lateness(&self, timing: &Timing) {
        match timing.host_was_late {
            Some(true) => self.late.store(HASHED_AFTER_LATE, Relaxed),
            Some(false) => drop(self.late.try_update(Relaxed, Relaxed, |late| late.checked_sub(1))),
            None => {}
        }
    }

    /// Whether programs share the engine's threads.
    pub fn uses_threads(&self) -> bool {
        self.default.get(THREADS).is_some()
    }

    /// Seconds a job, as measured in batches of about this size.
    pub fn measured_at(&self, jobs: usize) -> Option<f64> {
        Some(lock(&self.measured)[bucket(jobs).ilog2() as usize]).filter(|seconds| *seconds > 0.0)
    }

    /// Seconds of whole batches, by the measured seconds a job: (jobs, seconds), the smallest first.
    pub fn times(&self) -> Vec<(usize, f64)> {
        let measured = lock(&self.measured);
        let timed = measured.iter().enumerate().filter(|(_, seconds)| **seconds > 0.0);
        timed.map(|(log, seconds)| (1 << log, seconds * (1usize << log) as f64)).collect()
    }

    /// Seconds a job, as measured in batches of about this size, else in the largest batches that ran.
    pub fn measured(&self, jobs: usize) -> Option<f64> {
        let measured = lock(&self.measured);
        let at = bucket(jobs).ilog2() as usize;
        [measured[at]].into_iter().chain(measured.iter().rev().copied()).find(|seconds| *seconds > 0.0)
    }

    /// Seconds a job of a large batch: measured, predicted, or a guess.
    pub fn seconds(&self) -> f64 {
        // No batch is so large, so this is the time in the largest batches that ran.
        self.measured(1 << (usize::BITS - 1)).or(self.predicted).unwrap_or(self.guess)
    }

    /// The policy with one thread or more, but with no more than the default has, which are all of the engine's. If it names no number, it gets all. The
    /// policy of a group whose programs use no threads stays as it is.
    pub(crate) fn within_threads(&self, policy: Policy) -> Policy {
        let Some(all) = self.default.get(THREADS) else { return policy };
        let threads = policy.get(THREADS).map_or(all, |threads| threads.clamp(1, all));
        policy.with(THREADS, threads)
    }

    /// The most jobs that one program takes.
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Records that the device's memory allows no more than so many jobs. [`record`](GroupFacts::record) raises the limit again.
    pub fn limit(&self, jobs: usize) {
        self.most.fetch_min(jobs.max(1), Relaxed);
        self.runs_at_most.store(0, Relaxed);
    }
}
