#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod compile;
#[allow(unsafe_code)]
mod driver;

/// The policy axes that CUDA's GPUs lack, and their defaults. Tables of measured times depend on both, and a test of `gpu` compares them.
#[doc(hidden)]
pub use driver::{DEFAULTS, WITHOUT};
use hypergrove_engine::Backend;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::{Gpus, Wrapper};
use std::path::Path;
use std::sync::Arc;

/// All GPUs of NVIDIA's driver. If there are none, [`Backend::absent`] says why. If `cache` names a directory, compiled kernels are kept there.
/// They are read from there unless other users can have written them: then [`Backend::notices`] says so.
///
/// The backend is a trait object, so that the programs for this driver are compiled in this crate, not in each crate that makes a backend.
pub fn backend(cache: Option<&Path>) -> Arc<dyn Backend> {
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    Arc::new(Gpus::new("cuda", driver::devices(cache.as_ref()), cache))
}

/// All GPUs of NVIDIA's driver, wrapped: for tests that put faults between programs and GPUs.
#[doc(hidden)]
pub fn backend_with<W: Wrapper>(cache: Option<&Path>, wrapper: &W) -> impl Backend + use<W> {
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    let gpus = driver::devices(cache.as_ref());
    let wrapped = gpus.map(|gpus| gpus.into_iter().map(|gpu| Arc::new(wrapper.wrap(gpu))).collect());
    Gpus::new("cuda", wrapped, cache)
}
