//! Any GPU with a Vulkan driver of version 1.2 or newer: AMD's, Intel's, NVIDIA's, Apple's through MoltenVK, and CPUs through
//! lavapipe.
//!
//! Kernels are SPIR-V modules that were compiled from `hypergrove-kernels` and lie in `spirv`; what they are launched for
//! is in `hypergrove-gpu`. See docs/vulkan.md.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod driver;
mod spirv;

use driver::Instance;
use hypergrove_engine::Backend;
use hypergrove_gpu::Gpus;
use std::path::Path;
use std::sync::Arc;

/// All devices of all Vulkan drivers, perhaps none: [`Backend::absent`] says why. The drivers' compiled pipelines are kept
/// in `cache`, if a directory is given.
pub fn backend(cache: Option<&Path>) -> impl Backend + use<> {
    Gpus::new("vulkan", Instance::open(false).and_then(|instance| driver::devices(&instance, cache)))
}

/// What Khronos' validation layer had to say.
pub struct Remarks(Arc<Instance>);

impl Remarks {
    /// Its warnings and errors so far.
    pub fn all(&self) -> Vec<String> {
        self.0.remarks()
    }
}

/// As [`backend`], with every call checked by Khronos' validation layer, the order of copies and launches too: for tests. The
/// error is why there is none.
pub fn validated(cache: Option<&Path>) -> Result<(impl Backend + use<>, Remarks), String> {
    let instance = Instance::open(true)?;
    let gpus = driver::devices(&instance, cache)?;
    Ok((Gpus::new("vulkan", Ok(gpus)), Remarks(instance)))
}
