#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod compile;
#[allow(unsafe_code)]
mod driver;

/// What of policies differs on its GPUs: tables of measured times depend on it, and a test of `gpu` compares them.
#[doc(hidden)]
pub use driver::{DEFAULTS, WITHOUT};
use hypergrove_engine::Backend;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::{Gpus, Wrapper};
use std::path::Path;
use std::sync::Arc;

/// All GPUs of NVIDIA's driver, perhaps none: [`Backend::absent`] says why. Compiled kernels are kept in `cache`, if a
/// directory is given, and read from there unless others can have written them: [`Backend::notices`] tells of those.
///
/// A trait object, so that the programs for this driver are compiled in this crate and not in each crate that makes a backend.
pub fn backend(cache: Option<&Path>) -> Arc<dyn Backend> {
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    Arc::new(Gpus::new("cuda", driver::devices(cache.as_ref()), cache))
}

/// The same with something between programs and the GPUs: for tests that put faults in.
#[doc(hidden)]
pub fn backend_with<W: Wrapper>(cache: Option<&Path>, wrapper: &W) -> impl Backend + use<W> {
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let gpus = driver::devices(cache.as_ref());
    let wrapped = gpus.map(|gpus| gpus.into_iter().map(|gpu| Arc::new(wrapper.wrap(gpu))).collect());
    Gpus::new("cuda", wrapped, cache)
}
