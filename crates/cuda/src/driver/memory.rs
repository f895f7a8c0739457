//! Memory of a device, and of the host for it.

use super::device::{CudaGpu, OUT_OF_MEMORY};
use super::lock;
use cudarc::driver::sys::{self, CUdeviceptr};
use hypergrove_engine::{Error, ReachableMemory};
use hypergrove_gpu::steps::{Allocations, Place};
use hypergrove_gpu::{Gpu, MappedBytes};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};

/// Device memory. Whoever drops it has waited for the queues that use it. Memory of a hung device is never freed. It comes as the last owner
/// left it, and is not wiped when it is freed: programs wipe it by [`Step::Zero`](hypergrove_gpu::Step).
pub(crate) struct CudaMemory {
    gpu: Arc<CudaGpu>,
    pub(super) address: CUdeviceptr,
}

impl CudaMemory {
    pub(super) fn new(gpu: &Arc<CudaGpu>, bytes: usize) -> Result<CudaMemory, Error> {
        gpu.bind()?;
        // CUDA refuses to allocate no bytes.
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

/// Pinned host memory. Whoever drops it has waited for the queues that use it, and has wiped it. Memory that a hung device may still use is
/// never freed; a program's memory is wiped here then.
pub(crate) struct CudaHostMemory {
    gpu: Arc<CudaGpu>,
    pub(super) bytes: MappedBytes,
    owner: Owner,
}

/// The owner of pinned memory.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// A program: its device alone copies from the memory and to it.
    Program,
    /// A caller: all devices copy from the memory and to it.
    Caller,
}

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
        // SAFETY: the memory was allocated just now with this many bytes, lasts until `drop`, and nothing else knows of it. It is used
        // as the trait demands.
        let mapped = unsafe { MappedBytes::zeroed(start.cast(), bytes) };
        let memory = CudaHostMemory { gpu: gpu.clone(), bytes: mapped, owner };
        lock(memory.allocations()).insert(memory.address(), bytes, Place::Host, ());
        let mut seen = 0;
        // SAFETY: the memory was allocated just now, as mapped; one address is written.
        let code = unsafe { (gpu.driver.cuMemHostGetDevicePointer_v2)(&mut seen, start, 0) };
        gpu.check(code, "mapping host memory")?;
        if seen != memory.address() {
            return Err(gpu.error("host memory does not have the same address on the device".to_owned()));
        }
        Ok(memory)
    }

    pub(super) fn address(&self) -> u64 {
        self.bytes.start() as u64
    }

    /// The list of allocations in which this memory is entered.
    fn allocations(&self) -> &Mutex<Allocations<()>> {
        match self.owner {
            Owner::Program => &self.gpu.allocations,
            Owner::Caller => &self.gpu.reached.allocations,
        }
    }
}

impl ReachableMemory for CudaHostMemory {
    fn bytes(&self) -> &[u8] {
        self.bytes.slice(0..self.bytes.count())
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.slice_mut(0..self.bytes.count())
    }
}

impl Drop for CudaHostMemory {
    fn drop(&mut self) {
        match self.owner {
            Owner::Program if self.gpu.hung().is_some() => return self.bytes.overwrite(),
            // The caller has wiped the memory.
            Owner::Caller if self.gpu.reached.is_kept.load(Acquire) => return,
            _ => {}
        }
        lock(self.allocations()).remove(self.address());
        // SAFETY: allocated by `new` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFreeHost)(self.bytes.start().cast()) });
    }
}
