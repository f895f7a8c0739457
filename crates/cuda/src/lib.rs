//! NVIDIA GPUs of compute capability 7.5 and newer, through their maker's driver.
//!
//! Kernels are compiled for the device at their first use, by NVRTC, and kept. What they are launched for is in
//! `hypergrove-gpu`. See docs/cuda.md.
#![deny(unsafe_code)]

mod compile;
#[allow(unsafe_code)]
mod driver;

use hypergrove_engine::Backend;
use hypergrove_gpu::Gpus;
use hypergrove_gpu::cache::Cache;
use std::path::Path;
use std::sync::Arc;

/// All GPUs of NVIDIA's driver, perhaps none: [`Backend::absent`] says why. Compiled kernels are kept in `cache`, if a
/// directory is given, and read from there unless others can have written them: [`Backend::notices`] tells of those.
pub fn backend(cache: Option<&Path>) -> impl Backend + use<> {
    let cache = cache.map(|path| Arc::new(Cache::new(path)));
    Gpus::new("cuda", driver::devices(cache.as_ref()), cache)
}
