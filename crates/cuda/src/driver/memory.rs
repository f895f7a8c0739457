//! Memory of a device, and of the host for it.

use super::device::{CudaGpu, OUT_OF_MEMORY};
use super::lock;
use cudarc::driver::sys::{self, CUdeviceptr};
use hypergrove_engine::{Error, ReachableMemory};
use hypergrove_gpu::Gpu;
use hypergrove_gpu::steps::{Allocations, Place};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};

/// Device memory. Whoever drops it has waited for the queues that use it; that of a hung device is never freed. It comes as the last owner left it, and is not
/// wiped when it goes: programs do that, by [`Step::Zero`].
pub(crate) struct CudaMemory {
    gpu: Arc<CudaGpu>,
    address: CUdeviceptr,
}

impl CudaMemory {
    pub(super) fn new(gpu: &Arc<CudaGpu>, bytes: usize) -> Result<CudaMemory, Error> {
        gpu.bind()?;
        // CUDA refuses to allocate nothing.
        let bytes = bytes.max(1);
        let mut address = 0;
        // SAFETY: it writes one address.
        match unsafe { (gpu.driver.cuMemAlloc_v2)(&mut address, bytes) } {
            OUT_OF_MEMORY => {
                let has = gpu.free().unwrap_or(0);
                Err(Error::OutOfMemory { device: gpu.facts.id.clone(), needs: bytes as u64, has })
            }
            code => {
                gpu.check(code, "allocating memory")?;
                lock(&gpu.allocations).insert(address, bytes, Place::Device, ());
                Ok(CudaMemory { gpu: gpu.clone(), address })
            }
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if self.gpu.hung().is_some() {
            return;
        }
        lock(&self.gpu.allocations).remove(self.address);
        // SAFETY: allocated by `new` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}

/// Pinned host memory. Whoever drops it has waited for the queues that use it, and has wiped it. What a hung device may still use is
/// wiped here, and never freed.
pub(crate) struct CudaHostMemory {
    gpu: Arc<CudaGpu>,
    start: *mut u8,
    bytes: usize,
    owner: Owner,
}

/// Whose pinned memory it is.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// A program's: its device alone copies from it and to it.
    Program,
    /// A caller's: all devices do.
    Caller,
}
// SAFETY: it owns its memory, which lasts until it is dropped, in whatever thread.
unsafe impl Send for CudaHostMemory {}
// SAFETY: as above; through `&` bytes are read, or written that nothing else uses, as the trait demands.
unsafe impl Sync for CudaHostMemory {}

impl CudaHostMemory {
    pub(super) fn new(gpu: &Arc<CudaGpu>, bytes: usize, owner: Owner) -> Result<CudaHostMemory, Error> {
        gpu.bind()?;
        let bytes = bytes.max(1);
        let mut start = null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it writes one address.
        let code = unsafe { (gpu.driver.cuMemHostAlloc)(&mut start, bytes, flags) };
        if code == OUT_OF_MEMORY {
            let device = format!("{} (pinned host memory)", gpu.facts.id);
            return Err(Error::OutOfMemory { device, needs: bytes as u64, has: 0 });
        }
        gpu.check(code, "allocating pinned host memory")?;
        let memory = CudaHostMemory { gpu: gpu.clone(), start: start.cast(), bytes, owner };
        lock(memory.allocations()).insert(start as u64, bytes, Place::Host, ());
        let mut seen = 0;
        // SAFETY: the memory was allocated just now, as mapped; one address is written.
        let code = unsafe { (gpu.driver.cuMemHostGetDevicePointer_v2)(&mut seen, start, 0) };
        gpu.check(code, "mapping host memory")?;
        if seen != start as u64 {
            return Err(gpu.error("host memory does not have the same address on the device".to_owned()));
        }
        // SAFETY: the memory was allocated just now with this many bytes, and nothing else knows of it.
        unsafe { memory.start.write_bytes(0, bytes) };
        Ok(memory)
    }

    pub(super) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Where it is entered.
    fn allocations(&self) -> &Mutex<Allocations<()>> {
        match self.owner {
            Owner::Program => &self.gpu.allocations,
            Owner::Caller => &self.gpu.reached.allocations,
        }
    }

    /// The start of a range, which must lie inside.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        // SAFETY: the offset was checked just now.
        unsafe { self.start.add(range.start) }
    }

    pub(super) fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: the bytes are inside, were zeroed when they were allocated, and live as long as `self`, which is borrowed.
        // While a step that copies them is under way nobody asks for them, as the trait demands.
        unsafe { std::slice::from_raw_parts_mut(self.at(&range), range.len()) }
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: as in `slice_mut`; what is borrowed is not written, by the device or by `write`.
        unsafe { std::slice::from_raw_parts(self.at(&range), range.len()) }
    }

    /// Zeros, in memory that the device may use at the same time.
    fn overwrite(&mut self) {
        for at in 0..self.bytes {
            // SAFETY: the byte is inside and lives. No reference to it exists: what is dropped is borrowed by nobody. The device is no
            // thread of this program; a volatile store is right for memory that others use.
            unsafe { self.start.add(at).write_volatile(0) };
        }
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(&(at..at.saturating_add(bytes.len())));
        // SAFETY: the bytes are inside and live; neither the device nor another thread uses them, as the trait demands, so
        // that no reference to them exists, which could overlap.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

impl ReachableMemory for CudaHostMemory {
    fn bytes(&self) -> &[u8] {
        self.slice(0..self.bytes)
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        self.slice_mut(0..bytes)
    }
}

impl Drop for CudaHostMemory {
    fn drop(&mut self) {
        match self.owner {
            Owner::Program if self.gpu.hung().is_some() => return self.overwrite(),
            // Its owner has wiped it.
            Owner::Caller if self.gpu.reached.is_kept.load(Acquire) => return,
            _ => {}
        }
        lock(self.allocations()).remove(self.start as u64);
        // SAFETY: allocated by `new` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFreeHost)(self.start.cast()) });
    }
}
