//! Why a batch is executed as it is.

use hypergrove_engine::{Device, Policy};
use hypergrove_fips205::plan::{Plan, Work};
use std::time::Duration;

/// Where a policy comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicySource {
    /// The backend's defaults and the engine's number of threads.
    Default,
}

/// How memory is shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
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
    /// Compressions of one job.
    pub work: Work,
    /// Time of the whole batch; `None` until this engine has run the plan, or another of the same hash and n.
    pub predicted: Option<Duration>,
    /// How memory is shared out.
    pub memory: Memory,
}
