#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod backend;
pub mod cache;
mod gpu;
mod keys;
#[allow(unsafe_code)]
mod mapped;
mod nodes;
mod parts;
mod policy;
mod program;
mod ring;
mod runs;
mod sha256;
pub mod steps;
mod wait;
mod zk;

#[cfg(test)]
#[allow(unsafe_code)]
mod host;
#[cfg(test)]
mod tests;

pub use backend::Gpus;
pub use gpu::{Facts, Gpu, Launch, Queue, SLOTS, Step, Wrapper};
pub use mapped::MappedBytes;
pub use policy::GpuPolicy;
pub use sha256::HashPolicy;
pub use wait::WaitLimit;
pub use zk::ZkPolicy;
