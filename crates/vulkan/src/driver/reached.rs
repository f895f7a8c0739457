//! Memory of the host that a caller has and a device copies from and to by itself: pages of this process that the device imports
//! (VK_EXT_external_memory_host).

use super::device::VulkanGpu;
use super::imports::{BY, COPIED};
use super::memory::{buffer_info, is_for_memory};
use ash::{ext, vk};
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Error, ReachableMemory};
use hypergrove_gpu::steps::Place;
use hypergrove_gpu::{Gpu, MappedBytes};
use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;

/// Bytes of a buffer, at most: devices limit the size of a buffer (NVIDIA's to 4 GiB). A copy that crosses from one buffer to the next goes
/// through staging. Tests have small ones.
const MOST_OF_BUFFER: usize = if cfg!(test) { 64 << 10 } else { 2 << 30 };

/// Part of the pages, as the device knows it.
#[derive(Default)]
struct Import {
    at: u64,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

/// Pages and their imports. A hung device may use them for ever, so then they are neither freed nor released.
pub(super) struct Reached {
    gpu: Arc<VulkanGpu>,
    bytes: MappedBytes,
    pages: Layout,
    imports: Vec<Import>,
}

impl Reached {
    /// Zeroed memory. `alignment` is that of pages which the device imports.
    pub(super) fn new(gpu: &Arc<VulkanGpu>, bytes: usize, alignment: usize) -> Result<Reached, Error> {
        gpu.open()?;
        let too_much = || {
            let device = format!("{} (host memory)", gpu.name());
            Error::OutOfMemory { device, needs: bytes as u64, has: 0 }
        };
        let whole = bytes.max(1).checked_next_multiple_of(alignment).ok_or_else(too_much)?;
        let pages = Layout::from_size_align(whole, alignment).map_err(|_| too_much())?;
        // SAFETY: the layout has at least one page.
        let start = unsafe { alloc(pages) };
        if start.is_null() {
            return Err(too_much());
        }
        // SAFETY: the pages were allocated just now with at least this many bytes, last as long as this value, and nothing else knows of them.
        let bytes = unsafe { MappedBytes::zeroed(start, bytes) };
        let mut reached = Reached { gpu: gpu.clone(), bytes, pages, imports: Vec::new() };
        let most = (MOST_OF_BUFFER as u64).min(gpu.facts().largest) as usize / alignment * alignment;
        let most = most.max(alignment);
        for first in (0..whole).step_by(most) {
            reached.import(first, most.min(whole - first), too_much)?;
        }
        Ok(reached)
    }

    /// Imports some of the pages. After an error, `drop` destroys all that was made.
    fn import(&mut self, first: usize, bytes: usize, too_much: impl Fn() -> Error) -> Result<(), Error> {
        let gpu = self.gpu.clone();
        let device = &gpu.open()?.device;
        // Then the caller gets ordinary memory.
        let refuses = |what: String| Error::Unsupported { device: gpu.name(), what };
        let made = |answer: Result<(), vk::Result>, doing: &str| match answer {
            Err(code) if is_for_memory(code) => Err(too_much()),
            Err(code) if code != vk::Result::ERROR_DEVICE_LOST => Err(refuses(format!("{doing}: {code}"))),
            answer => gpu.check(answer, doing),
        };
        // SAFETY: `new` takes parts of the pages alone.
        let start = unsafe { self.bytes.start().add(first) };
        let at = start as u64;
        self.imports.push(Import { at, ..Import::default() });
        let part = self.imports.last_mut().expect("it was pushed just now");
        let families = gpu.families.all();
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(BY);
        let info = buffer_info(&families, bytes, COPIED).push_next(&mut external);
        // SAFETY: the structure is whole; `drop` destroys the buffer.
        let answer = gpu.call(|| unsafe { device.create_buffer(&info, None) });
        made(answer.map(|buffer| part.buffer = buffer), "making a buffer")?;
        // SAFETY: the buffer was made just now.
        let needs = unsafe { device.get_buffer_memory_requirements(part.buffer) };
        let mut can = vk::MemoryHostPointerPropertiesEXT::default();
        let extension = ext::external_memory_host::Device::new(&gpu.instance.instance, device);
        let ask = extension.fp().get_memory_host_pointer_properties_ext;
        // SAFETY: the pages live, and one structure is written.
        let answer = unsafe { ask(extension.device(), BY, start.cast(), &mut can) };
        made(answer.result(), "asking how to import memory")?;
        let kind = gpu.coherent(needs.memory_type_bits & can.memory_type_bits);
        let Some(kind) = kind.filter(|_| needs.size <= bytes as u64) else {
            return Err(refuses("memory of the host that is not made for it".to_owned()));
        };
        let mut pages = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(BY).host_pointer(start.cast());
        let info = vk::MemoryAllocateInfo::default().allocation_size(bytes as u64).memory_type_index(kind);
        let info = info.push_next(&mut pages);
        // SAFETY: the pages have the alignment and the size that the device asks for, and live until `drop` has freed this.
        let answer = gpu.call(|| unsafe { device.allocate_memory(&info, None) });
        made(answer.map(|memory| part.memory = memory), "importing memory")?;
        // SAFETY: both were made just now, for each other.
        made(unsafe { device.bind_buffer_memory(part.buffer, part.memory, 0) }, "binding memory")?;
        // Both lists stay locked, so that no staging memory of these addresses comes in between.
        let (allocations, mut reached) = (lock(&gpu.allocations), lock(&gpu.reached));
        if allocations.overlaps(at, bytes) {
            return Err(refuses(format!("memory of the host at {at:x}, where it has memory of its own")));
        }
        reached.insert(at, bytes.min(self.bytes.count() - first), Place::Host, part.buffer);
        Ok(())
    }
}

impl ReachableMemory for Reached {
    fn bytes(&self) -> &[u8] {
        self.bytes.slice(0..self.bytes.count())
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.slice_mut(0..self.bytes.count())
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if self.gpu.is_hung() {
            return;
        }
        let device = &self.gpu.opened().device;
        for Import { at, buffer, memory } in self.imports.drain(..) {
            // From now on no step is accepted that uses the buffer.
            lock(&self.gpu.reached).remove(at);
            // SAFETY: made by `import` or null, destroyed once, the buffer before its memory.
            unsafe {
                device.destroy_buffer(buffer, None);
                device.free_memory(memory, None);
            }
        }
        // SAFETY: allocated by `new` with this layout; the device has nothing of it any more.
        unsafe { dealloc(self.bytes.start(), self.pages) };
    }
}
