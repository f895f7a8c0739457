//! A device as a [`Gpu`].

use super::device::{CudaGpu, CudaKernels, Function};
use super::lock;
use super::memory::{CudaHostMemory, CudaMemory, Owner};
use super::queue::CudaQueue;
use hypergrove_engine::{Error, ReachableMemory};
use hypergrove_gpu::steps::{Access, Place};
use hypergrove_gpu::{Facts, Gpu};
use hypergrove_kernels::{Config, Kernel, TENSOR_FORMS};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

impl Gpu for CudaGpu {
    type Memory = CudaMemory;
    type HostMemory = CudaHostMemory;
    type Kernels = CudaKernels;
    type Queue = CudaQueue;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn free(&self) -> Result<u64, Error> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        self.check(unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) }, "asking for free memory")?;
        Ok(free as u64)
    }

    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<CudaMemory, Error> {
        CudaMemory::new(self, bytes)
    }

    fn address(memory: &CudaMemory) -> u64 {
        memory.address
    }

    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<CudaHostMemory, Error> {
        CudaHostMemory::new(self, bytes, Owner::Program)
    }

    fn host_address(memory: &CudaHostMemory) -> u64 {
        memory.address()
    }

    fn host_bytes(memory: &mut CudaHostMemory, range: Range<usize>) -> &mut [u8] {
        memory.bytes.slice_mut(range)
    }

    fn host_view(memory: &CudaHostMemory, range: Range<usize>) -> &[u8] {
        memory.bytes.slice(range)
    }

    fn host_write(memory: &CudaHostMemory, at: usize, bytes: &[u8]) {
        memory.bytes.write(at, bytes);
    }

    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>> {
        Some(CudaHostMemory::new(self, bytes, Owner::Caller).map(|memory| Box::new(memory) as _))
    }

    fn reaches(&self, at: u64, bytes: usize) -> bool {
        lock(&self.reached.allocations).find(Access { place: Place::Host, at, bytes, writes: false }).is_some()
    }

    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<CudaKernels, Error> {
        self.bind()?;
        let (mut functions, mut missing) = (Vec::new(), Vec::new());
        // The predicted sizes of blocks do not matter: any launch shape suits these kernels.
        for &(kernel, _) in kernels {
            match *lock(&self.slot(config, kernel)) {
                Some(loaded) => functions.push((kernel, loaded.function)),
                None => missing.push(kernel),
            }
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut functions = Vec::new();
            while let Some(&kernel) = missing.get(next.fetch_add(1, Relaxed)) {
                functions.push((kernel, self.load(config, kernel)?));
            }
            Ok(functions)
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        let loaded: Vec<Result<Vec<(Kernel, Function)>, Error>> = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            // If a thread cannot be started, the others do its work.
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let own = work();
            let panicked = |_| Err(self.error("a thread that loaded kernels panicked".to_owned()));
            others.into_iter().map(|other| other.join().unwrap_or_else(panicked)).chain([own]).collect()
        });
        for part in loaded {
            functions.extend(part?);
        }
        Ok(CudaKernels { gpu: self.clone(), functions })
    }

    /// GPUs for data centres have fast doubles: those of compute capability 8.0, 9.0 and 10.0.
    fn has_fast_doubles(&self) -> bool {
        matches!(self.capability, (8..=10, 0))
    }

    fn tensor_forms(&self) -> &'static [u32] {
        match self.capability {
            (9, 0) => &TENSOR_FORMS,
            (8.., _) => &TENSOR_FORMS[..2],
            _ => &TENSOR_FORMS[..1],
        }
    }

    fn queue(self: &Arc<Self>) -> Result<CudaQueue, Error> {
        CudaQueue::new(self)
    }

    fn hung(&self) -> Option<Error> {
        self.hung.get().cloned()
    }
}
