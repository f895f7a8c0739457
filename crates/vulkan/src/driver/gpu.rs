//! A device as a `Gpu`: its memory, its kernels and its queues.

use super::device::VulkanGpu;
use super::kernels::Kernels;
use super::memory::{Buffer, HostMemory};
use super::queue::VulkanQueue;
use super::reached::Reached;
use ash::{ext, vk};
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Error, ReachableMemory};
use hypergrove_gpu::steps::{Access, Place};
use hypergrove_gpu::{Facts, Gpu};
use hypergrove_kernels::{Config, Kernel};
use std::ops::Range;
use std::sync::Arc;

impl Gpu for VulkanGpu {
    type Memory = Buffer;
    type HostMemory = HostMemory;
    type Kernels = Kernels;
    type Queue = VulkanQueue;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn free(&self) -> Result<u64, Error> {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default();
        let tells = self.extensions.contains(&ext::memory_budget::NAME);
        if tells {
            memory = memory.push_next(&mut budget);
        }
        // SAFETY: the chain holds structures that the device knows.
        unsafe { self.instance.instance.get_physical_device_memory_properties2(self.physical, &mut memory) };
        let heaps = memory.memory_properties.memory_heaps_as_slice().to_vec();
        let local = (0..heaps.len()).filter(|i| heaps[*i].flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let largest = local.max_by_key(|i| heaps[*i].size);
        Ok(match largest {
            Some(heap) if tells => budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]),
            Some(heap) => heaps[heap].size,
            None => 0,
        })
    }

    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Buffer, Error> {
        Buffer::new(self, bytes, Place::Device)
    }

    fn address(memory: &Buffer) -> u64 {
        memory.address
    }

    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<HostMemory, Error> {
        HostMemory::new(self, bytes)
    }

    fn host_address(memory: &HostMemory) -> u64 {
        memory.buffer.address
    }

    fn host_bytes(memory: &mut HostMemory, range: Range<usize>) -> &mut [u8] {
        memory.bytes.slice_mut(range)
    }

    fn host_view(memory: &HostMemory, range: Range<usize>) -> &[u8] {
        memory.bytes.slice(range)
    }

    fn host_write(memory: &HostMemory, at: usize, bytes: &[u8]) {
        memory.bytes.write(at, bytes);
    }

    /// Other devices of the driver do not reach it: their rows go through staging.
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>> {
        let alignment = self.import_alignment?;
        Some(Reached::new(self, bytes, alignment).map(|memory| Box::new(memory) as _))
    }

    fn reaches(&self, at: u64, bytes: usize) -> bool {
        lock(&self.reached).find(Access { place: Place::Host, at, bytes, writes: false }).is_some()
    }

    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Kernels, Error> {
        Kernels::new(self, config, kernels)
    }

    fn queue(self: &Arc<Self>) -> Result<VulkanQueue, Error> {
        VulkanQueue::new(self)
    }

    fn hung(&self) -> Option<Error> {
        self.hung.get().cloned()
    }
}
