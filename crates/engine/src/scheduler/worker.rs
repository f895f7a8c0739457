//! The devices of an engine: the memory that each may hold, its permits and threads, and the state of a device that failed.

use super::permits::Permits;
use crate::programs::Programs;
use crate::scheme::Group;
use crate::{Backend, Device, Error, ErrorKind, Knowledge, Policy, SelfTested};
use rayon::ThreadPool;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// Single jobs at a time on a discrete device, as many as programs are kept. (With 3, 16 callers get 21,300 signatures of 128f a
/// second on an H100.)
const SINGLES_OF_A_DEVICE: usize = 16;

/// Single jobs at a time for each thread of the host. With one, a core that is done waits until the next caller wakes: on two cores 16 callers get
/// 1,140 signatures of 128f a second with one, 1,850 with two. More single jobs would make some callers wait longer.
const SINGLES_OF_A_THREAD: usize = 2;

/// Calls of an engine with one thread that may compute at a time, each on its caller's thread: more than there are threads.
const CALLS: usize = 1 << 12;

/// Gives the knowledge about a device before anything runs on it.
pub type KnowledgeSource = Arc<dyn Fn(&Arc<dyn Backend>, &Device) -> Arc<dyn Knowledge> + Send + Sync>;

/// A device's failure. If there was another device, that one did the jobs instead.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The device.
    pub device: Device,
    /// The error that the device reported, or the check that its results failed.
    pub error: Error,
    /// Jobs whose results the device lost.
    pub jobs: usize,
}

/// A device that the engine uses.
pub struct Worker {
    /// The device's programs.
    pub programs: Programs,
    pub(super) permits: Permits,
    /// For each slot the threads that run its chunks; `None` on the host, whose chunks run in the engine's pool.
    pub(super) pools: Option<Vec<OnceLock<Option<ThreadPool>>>>,
    state: AtomicU8,
    /// Predicted nanoseconds of the batches of tickets that the device has.
    pub(super) booked: AtomicU64,
}

/// The state of a device that failed, so that another device does its part.
const FAILED: u8 = 1;
/// The state of a device that failed with wrong results, so that another device does its part again.
const WRONG: u8 = 2;

impl Worker {
    /// A device whose idle programs may take `share` bytes; `is_host` if it computes in the engine's own threads.
    pub(super) fn new(
        (backend, device): (Arc<dyn Backend>, Device),
        share: u64,
        is_host: bool,
        threads: usize,
        know: &KnowledgeSource,
        policy: &Policy,
    ) -> Worker {
        let knowledge = know(&backend, &device);
        let programs = Programs::new(SelfTested::of(backend), device, share, knowledge, policy.clone());
        let slots = programs.slots();
        let pools = (!is_host).then(|| (0..slots).map(|_| OnceLock::new()).collect());
        // With one thread each call computes on the thread that calls: nothing is shared.
        let permits = if is_host && threads == 1 { CALLS } else { slots };
        let permits = Permits::new(permits, if is_host { SINGLES_OF_A_THREAD * threads } else { SINGLES_OF_A_DEVICE });
        Worker { programs, permits, pools, state: AtomicU8::new(0), booked: AtomicU64::new(0) }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.programs.device()
    }

    /// Whether the device failed, so that another device does its part.
    pub fn is_disabled(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// Whether the results that the device has computed cannot be trusted.
    pub(super) fn is_wrong(&self) -> bool {
        self.state.load(Relaxed) == WRONG
    }

    pub(super) fn disable(&self, error: &Error) {
        let state = if matches!(error, Error::Inconsistent { .. }) { WRONG } else { FAILED };
        self.state.fetch_max(state, Relaxed);
    }

    /// Whether the device's chunks run in the engine's own threads.
    pub(super) fn is_host(&self) -> bool {
        self.pools.is_none()
    }

    /// The most chunks that keep the device busy.
    pub fn queue(&self) -> usize {
        self.device().queue.max(1) as usize
    }

    /// The most chunks of one group that keep the device busy; [`queue`](Worker::queue) if the group is not known.
    pub fn queue_of(&self, group: Option<Group>) -> usize {
        group.and_then(|group| self.programs.facts(group).ok()).map_or(self.queue(), |facts| facts.queue)
    }

    /// Whether the device is discrete: the host itself is not.
    pub fn is_discrete(&self) -> bool {
        self.queue() > 1 || self.has_memory()
    }

    /// Whether the device has memory of its own.
    pub fn has_memory(&self) -> bool {
        self.device().memory > 0
    }

    /// Whether the device can do jobs of this group.
    pub fn takes(&self, group: Group) -> bool {
        self.programs.facts(group).is_ok()
    }

    /// Whether the system did not start the device's threads. The host's are those of `host`.
    pub(super) fn lacks_threads(&self, host: &OnceLock<Option<ThreadPool>>) -> bool {
        let lacks = |pool: &OnceLock<Option<ThreadPool>>| pool.get().is_some_and(Option::is_none);
        self.pools.as_ref().map_or_else(|| lacks(host), |pools| pools.iter().any(lacks))
    }
}

/// Gives the backends whose devices are initialised lazily.
pub type Wake = Arc<dyn Fn() -> Vec<Arc<dyn Backend>> + Send + Sync>;

/// Devices that are initialised when a batch is worth it.
pub(super) struct Lazy {
    pub(super) wake: Wake,
    pub(super) workers: OnceLock<Vec<Worker>>,
    /// Held while the devices are initialised. Calls with too little work for them go on with the host meanwhile.
    pub(super) busy: Mutex<()>,
}

impl Lazy {
    pub(super) fn new(wake: Wake) -> Lazy {
        Lazy { wake, workers: OnceLock::new(), busy: Mutex::default() }
    }
}

/// Whether a device that answers with this error must not be used.
pub(super) fn is_broken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceFailed | ErrorKind::Withheld)
}

/// Whether the error is that of a device that failed, not that of the call.
pub fn is_fault(error: &Error) -> bool {
    use ErrorKind::{DeviceFailed, OutOfMemory, Unsupported, Withheld};
    // Other devices may prepare a plan that this one lists and then cannot prepare, for want of a compiler, say.
    matches!(error.kind(), DeviceFailed | OutOfMemory | Unsupported | Withheld)
}
