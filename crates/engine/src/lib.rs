#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod backend;
mod choice;
mod device;
mod error;
pub mod estimate;
#[doc(hidden)]
pub mod forward;
mod free_memory;
pub mod hash;
pub mod nodes;
pub mod planner;
#[allow(unsafe_code)]
mod process;
pub mod programs;
mod reference;
pub mod scheduler;
pub mod scheme;
mod schemes;
pub mod self_test;
#[doc(hidden)]
pub mod slh_dsa;
mod stack;
pub mod trace;
mod zkdilithium;

pub use backend::{Backend, HostMemory, ReachableMemory, SelfTest};
pub use choice::{Choice, Knowledge, PolicySource};
pub use device::{
    Abilities, Axis, DEVICE_TIMEOUT, Device, Places, Policy, STAGES, StageTime, THREADS, Timing, time_limit,
};
pub use error::{Error, ErrorKind, Size};
pub use free_memory::free_memory;
pub use hash::{Hasher, Messages, Sha256Programs};
pub use process::Process;
pub use reference::Reference;
pub use schemes::{HashProgram, SlhDsaProgram, ZkDilithiumProgram};
pub use self_test::{SelfTested, test_known_answers};
pub use slh_dsa::{Accept, Batch, Digests, Key, Program, SlhDsaPrograms, Work};
pub use stack::wiped;
pub use zkdilithium::{ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkDilithiumPrograms, ZkSign, ZkVerify};
