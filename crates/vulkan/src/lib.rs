#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod driver;
mod spirv;

use driver::Instance;
/// What of policies differs on its GPUs: tables of measured times depend on it, and a test of `gpu` compares them.
#[doc(hidden)]
pub use driver::{DEFAULTS, WITHOUT};
use hypergrove_engine::Backend;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::{Gpus, Wrapper};
use std::path::Path;
use std::sync::Arc;

/// Who sees to it that Vulkan is used as it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Nobody: what it costs is saved.
    Trusted,
    /// Khronos' validation layer, which must be installed, the order of copies and launches included: for tests. Once it has
    /// remarked on something, all fails with what it said.
    Checked,
}

/// All devices of all Vulkan drivers, perhaps none: [`Backend::absent`] says why. The drivers' compiled pipelines are kept
/// in `cache`, if a directory is given, and read from there unless others can have written them: [`Backend::notices`] tells
/// of those.
///
/// A trait object, so that the programs for this driver are compiled in this crate and not in each crate that makes a backend.
pub fn backend(cache: Option<&Path>, calls: Calls) -> Arc<dyn Backend> {
    let instance = Instance::open(calls == Calls::Checked);
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let devices = instance.and_then(|instance| driver::devices(&instance, cache.as_ref()));
    Arc::new(Gpus::new("vulkan", devices, cache))
}

/// The same with something between programs and the devices: for tests that put faults in.
#[doc(hidden)]
pub fn backend_with<W: Wrapper>(cache: Option<&Path>, calls: Calls, wrapper: &W) -> impl Backend + use<W> {
    let instance = Instance::open(calls == Calls::Checked);
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let gpus = instance.and_then(|instance| driver::devices(&instance, cache.as_ref()));
    let wrapped = gpus.map(|gpus| gpus.into_iter().map(|gpu| Arc::new(wrapper.wrap(gpu))).collect());
    Gpus::new("vulkan", wrapped, cache)
}
