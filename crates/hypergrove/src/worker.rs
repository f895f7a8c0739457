//! The devices of an engine: what each may hold, and what becomes of one that fails.

use crate::engine::Inner;
use crate::hash::Hashing;
use hypergrove_engine::planner::{Bounds, Weigh};
use hypergrove_engine::programs::{Facts, Group, Programs};
use hypergrove_engine::{Device, Error, ErrorKind};
use hypergrove_fips205::plan::Op;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Results of a batch come out at least this often, as far as one job does not take longer. Does not hold for a device
/// with memory of its own: only a full one is fast.
const SUB_BATCH_TIME: Duration = Duration::from_millis(500);

/// Faults that are kept.
const MOST_FAULTS: usize = 64;

/// A device's failure, after which its part was done elsewhere if there was another device.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The device.
    pub device: Device,
    /// What it said, or which check its results failed.
    pub error: Error,
    /// Jobs that were lost by it.
    pub jobs: usize,
}

/// A device that the engine uses.
pub(crate) struct Worker {
    pub(crate) programs: Programs,
    pub(crate) hashing: Hashing,
    state: AtomicU8,
}

/// It failed, and another one took its part.
const LOST: u8 = 1;
/// The same, and it was by wrong results.
const WRONG: u8 = 2;

impl Worker {
    pub(crate) fn new(programs: Programs) -> Worker {
        Worker { programs, hashing: Hashing::default(), state: AtomicU8::new(0) }
    }

    pub(crate) fn device(&self) -> &Device {
        self.programs.device()
    }

    /// Whether it failed, and another one took its part.
    pub(crate) fn is_aside(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// Whether what it has computed cannot be trusted.
    pub(crate) fn is_wrong(&self) -> bool {
        self.state.load(Relaxed) == WRONG
    }

    /// Sub-batches that keep it busy, at most.
    pub(crate) fn queue(&self) -> usize {
        self.device().queue.max(1) as usize
    }

    /// The same of one group.
    pub(crate) fn queue_of(&self, group: Option<Group>) -> usize {
        group.and_then(|group| self.programs.facts(group).ok()).map_or(self.queue(), |facts| facts.queue)
    }

    /// Whether it is not the host itself that computes.
    pub(crate) fn is_apart(&self) -> bool {
        self.queue() > 1 || self.has_memory()
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.device().memory > 0
    }

    pub(crate) fn takes(&self, group: Group) -> bool {
        self.programs.facts(group).is_ok()
    }

    /// Jobs a second of this group, as far as is known.
    pub(crate) fn speed(&self, group: Group) -> Option<f64> {
        self.programs.facts(group).ok().map(|facts| 1.0 / facts.seconds())
    }

    /// Predicted time of a full program.
    fn full(&self, group: Group) -> Option<f64> {
        self.programs.facts(group).ok().map(|facts| facts.seconds() * facts.most() as f64)
    }
}

/// How jobs weigh on one device.
#[derive(Clone, Copy)]
pub(crate) struct Scale<'a> {
    pub(crate) engine: &'a Inner,
    pub(crate) worker: &'a Worker,
}

impl Scale<'_> {
    fn facts(&self, group: Group) -> Option<Arc<Facts>> {
        self.worker.programs.facts(group).ok()
    }

    /// Bytes of the largest program that jobs of this group need.
    pub(crate) fn bytes(&self, group: Group, jobs: usize) -> u64 {
        let bytes =
            |group| self.facts(group).map_or(0, |facts| self.worker.programs.bytes(&facts, self.engine.room_for(jobs)));
        // The verification that follows a signing has a program of its own.
        let follows = self.engine.verify_signatures && group.op == Op::Sign;
        let verify = Group { op: Op::Verify, cached_layers: 0, ..group };
        bytes(group).max(if follows { bytes(verify) } else { 0 })
    }

    /// What a sub-batch that begins with a job of `group` may not exceed, on this device among `others`.
    pub(crate) fn bounds<'w>(
        &self,
        memory: u64,
        group: Option<Group>,
        others: impl Iterator<Item = &'w Worker>,
    ) -> Bounds {
        let most = group.and_then(|group| self.facts(group)).map_or(1024, |facts| facts.most());
        // The results of several devices are put in order: none should take much longer for its sub-batch than another.
        let shortest = group.and_then(|group| others.filter_map(|other| other.full(group)).reduce(f64::min));
        let shortest = shortest.and_then(|seconds| Duration::try_from_secs_f64(2.0 * seconds).ok());
        let (longest, least) = match (self.worker.has_memory(), shortest) {
            (true, None) => (Duration::MAX, most),
            (true, Some(_)) => (Duration::MAX, most.div_ceil(8)),
            (false, _) => (SUB_BATCH_TIME, self.engine.threads),
        };
        // Bad jobs weigh nothing, but must not be gathered for ever.
        let jobs = if group.is_some() { most.max(1024) } else { most };
        Bounds { memory, jobs, time: shortest.map_or(longest, |shortest| shortest.min(longest)), least }
    }
}

/// A job on its way, with what the planner must know of it.
pub(crate) struct Asked<J> {
    pub(crate) job: J,
    pub(crate) group: Result<Group, Error>,
    pub(crate) held: u64,
}

impl<J> Weigh<Asked<J>> for Scale<'_> {
    type Group = Group;
    fn group(&self, asked: &Asked<J>) -> Option<Group> {
        asked.group.as_ref().ok().copied()
    }
    fn held(&self, asked: &Asked<J>) -> u64 {
        asked.held
    }
    fn takes(&self, group: &Group) -> bool {
        self.worker.takes(*group)
    }
    fn most(&self, group: &Group) -> usize {
        self.facts(*group).map_or(usize::MAX, |facts| facts.most())
    }
    fn program(&self, group: &Group, jobs: usize) -> u64 {
        self.bytes(*group, jobs)
    }
    fn seconds(&self, group: &Group) -> f64 {
        self.facts(*group).map_or(0.0, |facts| facts.seconds())
    }
}

/// Whether it is the device that failed, not the call.
pub(crate) fn is_fault(error: &Error) -> bool {
    use ErrorKind::{DeviceFailed, OutOfMemory, Unsupported, Withheld};
    // A plan that it lists and then cannot prepare, for want of a compiler say, others may.
    matches!(error.kind(), DeviceFailed | OutOfMemory | Unsupported | Withheld)
}

impl Inner {
    /// The devices that work, in the caller's order: at least one.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().chain(self.awake()).filter(|worker| !worker.is_aside())
    }

    /// The device for work that only one can do.
    pub(crate) fn first(&self) -> &Worker {
        self.live().next().unwrap_or(&self.workers[0])
    }

    /// Jobs that a program for so many has room for: a single one has another place beside a second one.
    pub(crate) fn room_for(&self, jobs: usize) -> usize {
        if self.redundant { jobs.max(2) } else { jobs }
    }

    /// Takes note of a failure. Whether the device is set aside: the last one is not, and its failure ends the call.
    pub(crate) fn fault(&self, worker: &Worker, error: Error, jobs: usize) -> bool {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let state = if matches!(error, Error::Inconsistent { .. }) { WRONG } else { LOST };
        // An engine may outlive any number of failures.
        if faults.len() == MOST_FAULTS {
            faults.remove(0);
        }
        faults.push(Fault { device: worker.device().clone(), error, jobs });
        // Under the lock: of two that fail at once, one stays.
        let others = self.live().any(|other| !std::ptr::eq(other, worker));
        if others {
            worker.state.fetch_max(state, Relaxed);
        }
        others
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
