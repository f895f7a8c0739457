//! NVIDIA's driver and NVRTC. Both are loaded at their first use; an error says if one is missing. All of the crate's `unsafe` is here: CUDA is
//! called through C functions, and knows memory by addresses.

mod device;
mod gpu;
mod library;
mod memory;
mod nvrtc;
mod queue;

pub(crate) use device::devices;
pub use device::{DEFAULTS, WITHOUT};

use hypergrove_engine::scheduler::lock;

#[cfg(test)]
mod tests;
