//! Buffers that kernels find by their addresses.

use super::device::VulkanGpu;
use super::imports::COPIED;
use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::lock;
use hypergrove_gpu::steps::Place;
use hypergrove_gpu::{Gpu, MappedBytes};
use std::sync::Arc;

/// Bytes from which on a buffer has memory of its own.
const LARGE: usize = 1 << 20;

/// Whether a driver returns this code for want of memory.
pub(super) fn is_for_memory(code: vk::Result) -> bool {
    matches!(code, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY)
}

/// Whether an allocator fails for want of memory. It has codes that it does not expect of a driver only in its error's words. Memory that cannot
/// be mapped finds no addresses.
fn lacks_memory(why: &AllocationError) -> bool {
    match why {
        AllocationError::OutOfMemory | AllocationError::FailedToMap(_) => true,
        AllocationError::Internal(said) => said.ends_with(&format!("{:?}", vk::Result::ERROR_OUT_OF_HOST_MEMORY)),
        _ => false,
    }
}

/// A description of a buffer that the queues of all these families use.
pub(super) fn buffer_info(families: &[u32], bytes: usize, usage: vk::BufferUsageFlags) -> vk::BufferCreateInfo<'_> {
    let info = vk::BufferCreateInfo::default().size(bytes as u64).usage(usage);
    match families.len() {
        1 => info,
        _ => info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families),
    }
}

/// A buffer and its memory. Whoever drops it has waited for the queues that use it. Memory of a hung device is never freed.
///
/// Device memory comes as the last owner left it, and is not wiped when it is freed: programs wipe it by [`Step::Zero`](hypergrove_gpu::Step).
pub(crate) struct Buffer {
    gpu: Arc<VulkanGpu>,
    buffer: vk::Buffer,
    pub(super) address: u64,
    /// `None` only while the buffer is made or dropped.
    allocation: Option<Allocation>,
}

impl Buffer {
    pub(super) fn new(gpu: &Arc<VulkanGpu>, bytes: usize, place: Place) -> Result<Buffer, Error> {
        let opened = gpu.open()?;
        let facts = gpu.facts();
        let (location, whose) = match place {
            Place::Device => (MemoryLocation::GpuOnly, ""),
            // The host reads the device's results from this memory, through the host's caches.
            Place::Host => (MemoryLocation::GpuToCpu, " (host memory)"),
        };
        // A buffer has whole words, and at least one.
        let bytes = bytes.next_multiple_of(4).max(4);
        let too_much = |has| Error::OutOfMemory { device: facts.id.clone() + whose, needs: bytes as u64, has };
        if bytes as u64 > facts.largest {
            return Err(too_much(facts.largest));
        }
        let families = gpu.families.all();
        let by_kernels = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        let info = buffer_info(&families, bytes, COPIED | by_kernels);
        let device = &opened.device;
        // SAFETY: the structure is whole, and the buffer is destroyed by `drop`.
        let made = gpu.call(|| unsafe { device.create_buffer(&info, None) });
        let there_is_none = || too_much(gpu.free().unwrap_or(0));
        let buffer = match made {
            Err(code) if is_for_memory(code) => return Err(there_is_none()),
            made => gpu.check(made, "making a buffer")?,
        };
        let mut made = Buffer { gpu: gpu.clone(), buffer, address: 0, allocation: None };
        // SAFETY: the buffer was made just now.
        let requirements = unsafe { device.get_buffer_memory_requirements(buffer) };
        let own = bytes >= LARGE;
        let description = AllocationCreateDesc {
            name: "hypergrove",
            requirements,
            location,
            linear: true,
            allocation_scheme: match own {
                true => AllocationScheme::DedicatedBuffer(buffer),
                false => AllocationScheme::GpuAllocatorManaged,
            },
        };
        let allocated = match &mut *lock(&opened.allocator) {
            Some(allocator) => allocator.allocate(&description),
            None => Err(AllocationError::Internal("the device is closed".into())),
        };
        let allocation = match allocated {
            Ok(allocation) => allocation,
            Err(why) if lacks_memory(&why) => return Err(there_is_none()),
            Err(why) => return Err(gpu.error(format!("{why} while allocating memory"))),
        };
        // SAFETY: the allocation was made for this buffer, with its requirements, and is freed after it.
        let bound = unsafe { device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) };
        made.allocation = Some(allocation);
        match bound {
            Err(code) if is_for_memory(code) => return Err(there_is_none()),
            bound => gpu.check(bound, "binding memory")?,
        }
        // SAFETY: the buffer has memory and was made to have an address.
        made.address =
            unsafe { device.get_buffer_device_address(&vk::BufferDeviceAddressInfo::default().buffer(buffer)) };
        // These locks end before the drop of `made`, which takes the first.
        let (mut allocations, reached) = (lock(&gpu.allocations), lock(&gpu.reached));
        if place == Place::Host && reached.overlaps(made.address, bytes) {
            return Err(gpu.error(format!("its memory at {:x} has addresses of a caller's", made.address)));
        }
        allocations.insert(made.address, bytes, place, buffer);
        Ok(made)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.gpu.is_hung() {
            return;
        }
        // From now on no step is accepted that uses the buffer.
        lock(&self.gpu.allocations).remove(self.address);
        let opened = self.gpu.opened();
        // SAFETY: made by `new`, destroyed once, before its memory is freed.
        unsafe { opened.device.destroy_buffer(self.buffer, None) };
        if let (Some(allocation), Some(allocator)) = (self.allocation.take(), &mut *lock(&opened.allocator)) {
            // If the allocator cannot free the memory, nothing can be done about that here.
            let _ = allocator.free(allocation);
        }
    }
}

/// Host memory that the device sees. Whoever drops it has wiped it. Memory that a hung device may still use is wiped here.
pub(crate) struct HostMemory {
    pub(super) buffer: Buffer,
    pub(super) bytes: MappedBytes,
}

impl HostMemory {
    pub(super) fn new(gpu: &Arc<VulkanGpu>, bytes: usize) -> Result<HostMemory, Error> {
        let buffer = Buffer::new(gpu, bytes, Place::Host)?;
        let mapped = buffer.allocation.as_ref().and_then(Allocation::mapped_ptr);
        let start = mapped.ok_or_else(|| gpu.error("its host memory is not mapped".to_owned()))?.as_ptr().cast::<u8>();
        // SAFETY: the memory was allocated and mapped just now with this many bytes, lasts as long as the buffer, and nothing else knows
        // of it. It is used as the trait demands.
        let bytes = unsafe { MappedBytes::zeroed(start, bytes) };
        Ok(HostMemory { buffer, bytes })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.buffer.gpu.is_hung() {
            self.bytes.overwrite();
        }
    }
}
