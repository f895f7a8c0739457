//! Pipelines: modules that the driver compiles for blocks of so many threads, each once, at its first use.

use crate::spirv::Module;
use ash::vk;
use hypergrove_engine::scheduler::lock;
use hypergrove_gpu::cache::Cache;
use hypergrove_kernels::{Args, CPU_FINGERPRINT, FINGERPRINT};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Bytes of the header that Vulkan puts before a driver's compiled pipelines: its length, its version, the maker's and the
/// device's numbers, the driver's identity.
const HEADER: usize = 16 + vk::UUID_SIZE;

/// A module, and threads of a block.
type Key = (Module, u32);

/// A slot is locked while its pipeline is made, so that other threads wait for that pipeline.
type Slot = Arc<Mutex<Option<vk::Pipeline>>>;

/// The properties of a device and its driver on which compiled pipelines depend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) vendor: u32,
    pub(super) device: u32,
    pub(super) uuid: [u8; vk::UUID_SIZE],
    pub(super) driver: String,
}

/// All pipelines of a device.
pub(super) struct Pipelines {
    pub(super) layout: vk::PipelineLayout,
    pub(super) compiled: vk::PipelineCache,
    pub(super) made: Mutex<HashMap<Key, Slot>>,
    file: Option<File>,
}

/// The cached file of compiled pipelines, and how many bytes of them it has.
struct File {
    cache: Arc<Cache>,
    key: [u8; 32],
    bytes: Mutex<usize>,
}

impl Pipelines {
    pub(super) fn new(
        device: &ash::Device,
        tables: vk::DescriptorSetLayout,
        cache: Option<&Arc<Cache>>,
        identity: &Identity,
    ) -> Result<Pipelines, vk::Result> {
        let key = key(identity);
        let kept = cache.and_then(|cache| cache.load(&key)).filter(|kept| is_of(kept, identity));
        let kept = kept.unwrap_or_default();
        let file = cache.map(|cache| File { cache: cache.clone(), key, bytes: Mutex::new(kept.len()) });
        let range = vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: size_of::<Args>() as u32,
        };
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(std::slice::from_ref(&tables))
            .push_constant_ranges(std::slice::from_ref(&range));
        // SAFETY: the structure is whole; `destroy` gives it back.
        let layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&kept);
        // SAFETY: as above. The driver checks the data once more.
        match unsafe { device.create_pipeline_cache(&info, None) } {
            Ok(compiled) => Ok(Pipelines { layout, compiled, made: Mutex::default(), file }),
            Err(code) => {
                // SAFETY: made just now.
                unsafe { device.destroy_pipeline_layout(layout, None) };
                Err(code)
            }
        }
    }

    /// Destroys all pipelines. This must be called once, when nothing uses a pipeline any more.
    pub(super) fn destroy(&self, device: &ash::Device) {
        for slot in std::mem::take(&mut *lock(&self.made)).into_values() {
            if let Some(pipeline) = lock(&slot).take() {
                // SAFETY: made once, and taken out of its slot.
                unsafe { device.destroy_pipeline(pipeline, None) };
            }
        }
        // SAFETY: made by `new`.
        unsafe {
            device.destroy_pipeline_cache(self.compiled, None);
            device.destroy_pipeline_layout(self.layout, None);
        }
    }

    /// Keeps the driver's compiled pipelines for the next process. If the file cannot be written, that process compiles again, and loses only time.
    pub(super) fn keep(&self, device: &ash::Device) {
        let Some(file) = &self.file else { return };
        // SAFETY: the cache is the device's.
        let Ok(data) = (unsafe { device.get_pipeline_cache_data(self.compiled) }) else { return };
        let mut bytes = lock(&file.bytes);
        // Some drivers keep compiled pipelines elsewhere, and return only a header.
        if data.len() > HEADER && data.len() != *bytes {
            file.cache.store(&file.key, &data);
            *bytes = data.len();
        }
    }
}

/// A hash of everything that compiled pipelines depend on, so that another driver's pipelines are not found.
fn key(identity: &Identity) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(FINGERPRINT);
    hash.update(CPU_FINGERPRINT);
    hash.update(format!("{identity:?}"));
    hash.finalize().into()
}

/// Whether the data's header names this device and driver.
fn is_of(data: &[u8], identity: &Identity) -> bool {
    let word = |at: usize| data[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    data.len() >= HEADER
        && word(0) == Some(HEADER as u32)
        && word(4) == Some(vk::PipelineCacheHeaderVersion::ONE.as_raw() as u32)
        && (word(8), word(12)) == (Some(identity.vendor), Some(identity.device))
        && data[16..HEADER] == identity.uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_pipelines_of_others_are_not_taken() {
        let identity = Identity { vendor: 1, device: 2, uuid: [3; vk::UUID_SIZE], driver: "a".into() };
        let mut data = [HEADER as u32, 1, 1, 2].map(u32::to_le_bytes).concat();
        data.extend([3; vk::UUID_SIZE]);
        assert!(is_of(&data, &identity));
        for at in 0..HEADER {
            let mut other = data.clone();
            other[at] ^= 1;
            assert!(!is_of(&other, &identity), "byte {at}");
        }
        assert!(!is_of(&data[1..], &identity) && !is_of(&[], &identity));
        for other in [
            Identity { vendor: 7, ..identity.clone() },
            Identity { uuid: [7; vk::UUID_SIZE], ..identity.clone() },
            Identity { driver: "b".into(), ..identity.clone() },
        ] {
            assert_ne!(key(&other), key(&identity));
        }
    }
}
