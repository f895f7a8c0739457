#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod driver;
mod spirv;

use driver::Instance;
/// The policy axes that NVIDIA's GPUs lack with Vulkan, and their defaults. Tables of measured times depend on both, and a test of `gpu` compares them.
#[doc(hidden)]
pub use driver::{DEFAULTS, WITHOUT};
use hypergrove_engine::Backend;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::{Gpus, Wrapper};
use std::path::Path;
use std::sync::Arc;

/// Whether calls of Vulkan are checked against its rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Calls are not checked, which saves the cost of checking.
    Trusted,
    /// Khronos' validation layer, which must be installed, checks calls, and the order of copies and launches. This is for tests: after the layer's
    /// first remark, everything fails with that remark.
    Checked,
}

/// All devices of all Vulkan drivers. If there are none, [`Backend::absent`] says why. If `cache` names a directory, the drivers' compiled
/// pipelines are kept there. They are read from there unless other users can have written them: then [`Backend::notices`] says so.
///
/// The backend is a trait object, so that the programs for this driver are compiled in this crate, not in each crate that makes a backend.
pub fn backend(cache: Option<&Path>, calls: Calls) -> Arc<dyn Backend> {
    let instance = Instance::open(calls == Calls::Checked);
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let devices = instance.and_then(|instance| driver::devices(&instance, cache.as_ref()));
    Arc::new(Gpus::new("vulkan", devices, cache))
}

/// All devices of all Vulkan drivers, wrapped: for tests that put faults between programs and devices.
#[doc(hidden)]
pub fn backend_with<W: Wrapper>(cache: Option<&Path>, calls: Calls, wrapper: &W) -> impl Backend + use<W> {
    let instance = Instance::open(calls == Calls::Checked);
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let gpus = instance.and_then(|instance| driver::devices(&instance, cache.as_ref()));
    let wrapped = gpus.map(|gpus| gpus.into_iter().map(|gpu| Arc::new(wrapper.wrap(gpu))).collect());
    Gpus::new("vulkan", wrapped, cache)
}
