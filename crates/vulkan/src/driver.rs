//! Vulkan's loader and drivers. All of the crate's `unsafe` is here. Vulkan is called through C functions. The owners below give each handle
//! back once, when nothing uses it any more.

mod device;
mod gpu;
mod imports;
mod instance;
mod kernels;
mod memory;
mod pipelines;
mod queue;
mod reached;
mod tables;

pub(crate) use device::devices;
pub use device::{DEFAULTS, WITHOUT};
pub(crate) use instance::Instance;

#[cfg(test)]
mod tests;
