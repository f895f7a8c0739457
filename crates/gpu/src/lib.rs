//! Runs batches as kernel launches on any GPU whose driver implements [`Gpu`] and [`Queue`].
//!
//! Kernels are those of `hypergrove-kernels`. Programs lay a batch out, and submit all of its stages at once: one upload,
//! the launches, one download. Nothing here calls a driver, and nothing knows its maker. See docs/cuda.md.
#![deny(unsafe_code)]

mod backend;
pub mod cache;
mod gpu;
mod keys;
mod nodes;
mod policy;
mod program;
mod ring;
mod sha256;
pub mod steps;
mod zk;

#[cfg(test)]
#[allow(unsafe_code)]
mod host;
#[cfg(test)]
mod tests;

pub use backend::Gpus;
pub use gpu::{Facts, Gpu, Launch, Queue, SLOTS, Step, Wrapper};
pub use policy::GpuPolicy;
pub use sha256::HashPolicy;
pub use zk::ZkPolicy;
