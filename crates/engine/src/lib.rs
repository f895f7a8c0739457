#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod backend;
mod choice;
mod error;
pub mod estimate;
#[doc(hidden)]
pub mod forward;
pub mod hash;
pub mod nodes;
pub mod planner;
#[allow(unsafe_code)]
mod process;
pub mod programs;
mod reference;
pub mod scheduler;
pub mod scheme;
pub mod self_test;
mod slh_dsa;
mod stack;
pub mod trace;
mod zkdilithium;

pub use backend::{
    Abilities, Accept, Axis, Backend, Batch, DEVICE_TIMEOUT, Device, Digests, HostMemory, Key, Places, Policy, Program,
    ReachableMemory, STAGES, Sha256Programs, SlhDsaPrograms, StageTime, THREADS, Timing, Work, ZkDilithiumPrograms,
    time_limit,
};
pub use choice::{Choice, Knowledge, PolicySource};
pub use error::{Error, ErrorKind, Size};
pub use hash::{HashProgram, Hasher, Messages};
pub use process::Process;
pub use reference::Reference;
pub use self_test::{SelfTest, SelfTested};
pub use slh_dsa::SlhDsaProgram;
pub use stack::wiped;
pub use zkdilithium::{ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify, test_known_answers};
