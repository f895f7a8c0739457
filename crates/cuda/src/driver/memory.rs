//! Memory of a device, and of the host for it.

use super::device::{CudaGpu, OUT_OF_MEMORY};
use super::lock;
use cudarc::driver::sys::{self, CUdeviceptr};
use hypergrove_engine::Error;
use hypergrove_gpu::Gpu;
use hypergrove_gpu::steps::Place;
use std::ptr::null_mut;
use std::sync::Arc;

/// Device memory. Whoever drops it has waited for the queues that use it. It comes as the last owner left it, and is not
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
        lock(&self.gpu.allocations).remove(self.address);
        // SAFETY: allocated by `new` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}

/// Page-locked host memory. Whoever drops it has waited for the queues that use it, and has wiped it.
pub(crate) struct CudaHostMemory {
    gpu: Arc<CudaGpu>,
    start: *mut u8,
    bytes: usize,
}
// SAFETY: it owns its memory, which lasts until it is dropped, in whatever thread; bytes are handed out by `&mut` alone.
unsafe impl Send for CudaHostMemory {}
// SAFETY: as above; through `&` there is only the address.
unsafe impl Sync for CudaHostMemory {}

impl CudaHostMemory {
    pub(super) fn new(gpu: &Arc<CudaGpu>, bytes: usize) -> Result<CudaHostMemory, Error> {
        gpu.bind()?;
        let bytes = bytes.max(1);
        let mut start = null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it writes one address.
        let code = unsafe { (gpu.driver.cuMemHostAlloc)(&mut start, bytes, flags) };
        if code == OUT_OF_MEMORY {
            let device = format!("{} (page-locked host memory)", gpu.facts.id);
            return Err(Error::OutOfMemory { device, needs: bytes as u64, has: 0 });
        }
        gpu.check(code, "allocating page-locked host memory")?;
        lock(&gpu.allocations).insert(start as u64, bytes, Place::Host, ());
        let memory = CudaHostMemory { gpu: gpu.clone(), start: start.cast(), bytes };
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

    /// Only while no queue works on the memory.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the bytes were zeroed when they were allocated and live as long as `self`, which is borrowed; while
        // a queue works on them nobody asks for them, as the trait demands.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// As [`bytes`](CudaHostMemory::bytes).
    pub(super) fn view(&self) -> &[u8] {
        // SAFETY: as in `bytes`; what is borrowed is not written.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl Drop for CudaHostMemory {
    fn drop(&mut self) {
        lock(&self.gpu.allocations).remove(self.start as u64);
        // SAFETY: allocated by `new` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFreeHost)(self.start.cast()) });
    }
}
