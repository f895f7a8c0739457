//! Kernels of a device: each has a pipeline for every number of threads that its blocks had.

use super::device::VulkanGpu;
use crate::spirv::Module;
use ash::vk;
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::lock;
use hypergrove_kernels::{Config, Kernel};
use rayon::prelude::*;
use std::sync::Arc;

/// Kernels of one device that may be launched.
pub(crate) struct Kernels {
    pub(super) gpu: Arc<VulkanGpu>,
    config: Config,
    loaded: Vec<Kernel>,
}

impl Kernels {
    /// Makes the pipelines for the predicted blocks, in parallel.
    pub(super) fn new(gpu: &Arc<VulkanGpu>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Kernels, Error> {
        let loaded = kernels.iter().map(|(kernel, _)| *kernel).collect();
        let new = Kernels { gpu: gpu.clone(), config: config.clone(), loaded };
        let opened = gpu.open()?;
        let before = lock(&opened.pipelines.made).len();
        let make = |(kernel, threads): &(Kernel, u32)| new.pipeline(*kernel, *threads).map(drop);
        let make_all = || kernels.par_iter().try_for_each(make);
        match rayon::current_thread_index() {
            Some(_) => make_all(),
            // Rayon's own pool would panic if the system did not start its threads.
            None => match rayon::ThreadPoolBuilder::new().build() {
                Ok(pool) => pool.install(make_all),
                Err(_) => kernels.iter().try_for_each(make),
            },
        }?;
        if lock(&opened.pipelines.made).len() > before {
            opened.pipelines.keep(&opened.device);
        }
        Ok(new)
    }

    /// The pipeline for blocks of so many threads, which is made now unless it exists.
    pub(super) fn pipeline(&self, kernel: Kernel, threads: u32) -> Result<vk::Pipeline, Error> {
        let gpu = &self.gpu;
        if !self.loaded.contains(&kernel) {
            return Err(gpu.error(format!("kernel {} was launched and not loaded", kernel.name())));
        }
        let Some(mut module) = Module::of(kernel, &self.config) else {
            let what = match kernel.other_scheme() {
                Some(scheme) => format!("{scheme}: there are no modules of its kernels"),
                None => format!("kernel {}: its blocks share more memory than every device has", kernel.name()),
            };
            return Err(Error::Unsupported { device: gpu.name(), what });
        };
        if !gpu.facts.has("imad") {
            module.imad = 0;
        }
        let opened = gpu.open()?;
        let threads = threads.clamp(1, gpu.most.0);
        let slot = lock(&opened.pipelines.made).entry((module.clone(), threads)).or_default().clone();
        let mut pipeline = lock(&slot);
        if let Some(pipeline) = *pipeline {
            return Ok(pipeline);
        }
        let code = module.code().map_err(|why| gpu.error(why))?;
        let device = &opened.device;
        let doing = format!("compiling kernel {}", kernel.name());
        // SAFETY: the code is a whole module, as glslc made it.
        let made = unsafe { device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None) };
        let shader = gpu.check(made, &doing)?;
        let entries = [0, 1].map(|id| vk::SpecializationMapEntry { constant_id: id, offset: 4 * id, size: 4 });
        let values = [threads, module.imad].map(u32::to_ne_bytes).concat();
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&values);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader)
            .name(c"main")
            .specialization_info(&constants);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(opened.pipelines.layout);
        // SAFETY: all that the structure points to lives; several threads may use the cache at once.
        let made = unsafe { device.create_compute_pipelines(opened.pipelines.compiled, &[info], None) };
        // SAFETY: a pipeline does not need its module.
        unsafe { device.destroy_shader_module(shader, None) };
        let new = gpu.check(made.map_err(|(_, code)| code), &doing)?[0];
        *pipeline = Some(new);
        Ok(new)
    }
}
