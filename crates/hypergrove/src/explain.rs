//! Why a batch is executed as it is.

use hypergrove_engine::{Device, Policy, PolicySource};
use hypergrove_fips205::plan::{Plan, Work};
use std::time::Duration;

/// How a batch shares the memory; see [`Explanation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// The memory budget in bytes.
    pub budget: u64,
    /// Bytes of the program for one sub-batch.
    pub program: u64,
    /// Bytes of each job's result.
    pub output: u64,
    /// Jobs of the first sub-batch. The engine adapts later ones to the time that it took.
    pub sub_batch: usize,
}

/// How the engine would compute a batch; see [`Engine::explain`](crate::Engine::explain).
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The plan: the stages and their work.
    pub plan: Plan,
    /// The device that would compute it.
    pub device: Device,
    /// The number of CPU threads.
    pub threads: usize,
    /// The policy: what differs from the backend's defaults.
    pub policy: Policy,
    /// Where the policy comes from.
    pub policy_source: PolicySource,
    /// The table and row of the policy, or what was measured instead; empty if there is nothing to report.
    pub policy_why: String,
    /// Why the engine chose this device; empty if the caller chose it.
    pub device_why: String,
    /// The smallest batch for which another device is faster than the CPU, as far as is known.
    pub crossover: Option<usize>,
    /// Free bytes of the device's own memory; `None` if it has none.
    pub device_free: Option<u64>,
    /// Compressions of one job.
    pub work: Work,
    /// The predicted time of the whole batch. `None` if neither runs of this engine, nor a table, nor the device's rates allow a prediction.
    pub predicted: Option<Duration>,
    /// The source of the prediction in words, for example `runs of this engine`.
    pub predicted_by: &'static str,
    /// How a batch shares the memory; see [`Explanation`].
    pub memory: MemoryUse,
}
