//! Why a batch is executed as it is.

use hypergrove_engine::{Device, Policy, PolicySource};
use hypergrove_fips205::plan::{Plan, Work};
use std::time::Duration;

/// How memory is shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// Bytes that there are.
    pub budget: u64,
    /// Bytes of the program for a sub-batch.
    pub program: u64,
    /// Bytes that each job puts out.
    pub output: u64,
    /// Jobs of the first sub-batch; later ones are fitted to the time that it took.
    pub sub_batch: usize,
}

/// How a batch is executed; see [`Engine::explain`](crate::Engine::explain).
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The stages.
    pub plan: Plan,
    /// Where they are executed.
    pub device: Device,
    /// Host threads.
    pub threads: usize,
    /// How they are executed, where that differs from the backend's defaults.
    pub policy: Policy,
    /// Where the policy comes from.
    pub policy_source: PolicySource,
    /// Which row of which table, or what was measured instead; empty where there is nothing to say.
    pub policy_why: String,
    /// Why the device is this one, where the caller left that open.
    pub device_why: String,
    /// Jobs from which on another device is faster than the host, as far as is known by now.
    pub crossover: Option<usize>,
    /// Bytes of the device's own memory that are free; `None` where it has none.
    pub device_free: Option<u64>,
    /// Compressions of one job.
    pub work: Work,
    /// Time of the whole batch; `None` where nothing is known: this engine has not run the plan, or another of the same
    /// hash and n, and neither a table nor the device's rates tell.
    pub predicted: Option<Duration>,
    /// Where `predicted` comes from.
    pub predicted_by: &'static str,
    /// How memory is shared out.
    pub memory: MemoryUse,
}
