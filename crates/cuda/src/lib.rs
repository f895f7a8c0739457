//! Executes plans on NVIDIA GPUs of compute capability 7.5 and newer.
//!
//! Kernels are those of `hypergrove-kernels`, compiled for the device at their first use. Programs lay a batch out, and
//! submit all of its stages at once: one upload, one row of launches, one download. See docs/cuda.md.
#![deny(unsafe_code)]

mod backend;
mod compile;
mod cuda;
#[allow(unsafe_code)]
mod driver;
mod gpu;
mod keys;
mod nodes;
mod policy;
mod program;
mod ring;
mod sha256;

#[cfg(test)]
#[allow(unsafe_code)]
mod host;
#[cfg(test)]
mod tests;

pub use cuda::Cuda;
pub use policy::CudaPolicy;
pub use sha256::HashPolicy;
