//! GPUs as a backend.

use crate::gpu::{Facts, Gpu};
use crate::nodes::NodesCache;
use crate::policy::{self, CudaPolicy};
use crate::program::{self, GpuProgram};
use crate::sha256::{GpuHasher, HashPolicy};
use hypergrove_engine::{Axis, Device, Error, Hasher, Policy, Program};
use hypergrove_fips205::plan::{Op, Plan, Work};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Compressions of one program: about 30 ms of work for a large GPU, so that launches and tails are a small part of it.
const PROGRAM_WORK: f64 = 5e8;

/// Bytes of one program's signatures, at most: the copies of the first and the computing of the last have nothing beside them.
const PROGRAM_BYTES: usize = 640 << 20;

/// Programs in flight: one computes, one is copied, and of verifications, which take the host as long as the device, two more
/// are laid out (docs/cuda.md).
const QUEUE: u32 = 4;
const QUEUE_OF_OTHERS: u32 = 2;

/// The share of a device's memory that one program may take: two are in flight, and keys are cached beside them.
pub(crate) const PROGRAM_SHARE: u64 = 3;

/// The share for cached nodes.
const CACHE_SHARE: u64 = 4;

/// Cycles of one multiprocessor for a compression, at least: 64 lanes of the integer pipe a cycle, all additions moved
/// elsewhere. SHA-256 has 1,024 rotations, shifts and logic operations that only that pipe can do. The other two are
/// from the best rates reached on an H200 (docs/cuda.md).
const SHA256: f64 = 16.0;
const SHA512: f64 = 51.4;
const KECCAK: f64 = 76.9;

/// The GPUs of one driver.
pub(crate) struct Gpus<G: Gpu> {
    gpus: Vec<(Arc<G>, Arc<NodesCache<G>>)>,
}

impl<G: Gpu> Gpus<G> {
    pub(crate) fn new(gpus: Vec<Arc<G>>) -> Gpus<G> {
        let with_cache = |gpu: Arc<G>| {
            let cache = Arc::new(NodesCache::new(gpu.facts().memory / CACHE_SHARE));
            (gpu, cache)
        };
        Gpus { gpus: gpus.into_iter().map(with_cache).collect() }
    }

    pub(crate) fn devices(&self, backend: &'static str) -> Vec<Device> {
        let device = |(index, (gpu, _)): (usize, &(Arc<G>, _))| {
            let Facts { name, mut detail, multiprocessors, memory, ecc, .. } = gpu.facts().clone();
            if !ecc {
                detail += ", memory without error correction";
            }
            Device { backend, index: index as u32, name, detail, cores: multiprocessors, memory, queue: QUEUE }
        };
        self.gpus.iter().enumerate().map(device).collect()
    }

    fn gpu(&self, device: &Device) -> Result<&(Arc<G>, Arc<NodesCache<G>>), Error> {
        self.gpus.get(device.index as usize).ok_or_else(|| Error::Device {
            device: device.id(),
            what: format!("there is no such device; there are {}", self.gpus.len()),
        })
    }

    pub(crate) fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        let (gpu, _) = self.gpu(device)?;
        let budget = gpu.facts().memory / PROGRAM_SHARE;
        let needs = program::least_bytes(plan, CudaPolicy::default());
        if needs > budget {
            return Err(Error::OutOfMemory { device: device.id(), needs, has: budget });
        }
        Ok(policy::axes())
    }

    pub(crate) fn jobs(&self, plan: &Plan) -> usize {
        if plan.op == Op::Cache {
            return 1;
        }
        let work = plan.work();
        // A SHA-512 compression costs three of SHA-256, a Keccak permutation five (measured, see docs/cuda.md).
        let work = work.sha256 + 3.0 * work.sha512 + 5.0 * work.keccak;
        let bytes = if plan.op == Op::Keygen { plan.params.n } else { plan.params.sig_bytes() };
        let jobs = ((PROGRAM_WORK / work) as usize).min(PROGRAM_BYTES / bytes).max(1);
        1 << jobs.ilog2()
    }

    pub(crate) fn queue(&self, plan: &Plan) -> u32 {
        if plan.op == Op::Verify { QUEUE } else { QUEUE_OF_OTHERS }
    }

    /// What the integer pipes of all multiprocessors allow, at the highest clock.
    pub(crate) fn rates(&self, device: &Device) -> Option<Work> {
        let facts = self.gpu(device).ok()?.0.facts();
        let cycles = facts.clock as f64 * f64::from(facts.multiprocessors);
        let rate = |a_compression: f64| cycles / a_compression;
        (facts.clock > 0).then(|| Work { sha256: rate(SHA256), sha512: rate(SHA512), keccak: rate(KECCAK) })
    }

    pub(crate) fn clock(&self, device: &Device) -> Option<f64> {
        let clock = self.gpu(device).ok()?.0.facts().clock;
        (clock > 0).then_some(clock as f64)
    }

    /// The kernels' sources and the defaults.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for (path, text) in hypergrove_kernels::sources() {
            hash.update(format!("{path} {} {text}", text.len()));
        }
        hash.update(format!("{:?}", CudaPolicy::default()));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn free(&self, device: &Device) -> Option<u64> {
        self.gpu(device).ok()?.0.free().ok()
    }

    pub(crate) fn bytes(&self, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        program::host_bytes(plan, batch, CudaPolicy::of(policy).unwrap_or_default())
    }

    pub(crate) fn prepare(
        &self,
        device: &Device,
        plan: &Plan,
        batch: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Program>, Error> {
        let (gpu, cache) = self.gpu(device)?;
        let policy = CudaPolicy::of(policy)?;
        let budget = gpu.facts().memory / PROGRAM_SHARE;
        Ok(Box::new(GpuProgram::new(gpu, cache, plan, batch, budget, policy)?))
    }

    pub(crate) fn hasher(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(Box::new(GpuHasher::new(&self.gpu(device)?.0, HashPolicy::of(policy)?)?))
    }
}
