//! GPUs as a backend.

use crate::cache::Cache;
use crate::gpu::{Facts, Gpu};
use crate::nodes::NodesCache;
use crate::policy::{self, GpuPolicy};
use crate::program::{self, FEW_JOBS, GpuProgram, Shape};
use crate::sha256::{GpuHasher, HashPolicy};
use hypergrove_engine::{
    Abilities, Axis, Backend, Device, Error, Hasher, HostMemory, Policy, Program, ReachableMemory, SelfTest,
    Sha256Programs, SlhDsaPrograms, ZkDilithiumPrograms,
};
use hypergrove_fips205::plan::{Op, Plan, Rates};
use hypergrove_kernels::{CPU_FINGERPRINT, FINGERPRINT};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Compressions of one program: about 30 ms of work for a large GPU, so that launches and tails are a small part of it.
const PROGRAM_WORK: f64 = 5e8;

/// Compressions of one program that makes key pairs. They are fewer: the host draws the first program's seeds, and completes the last
/// program's keys, while the device waits. (An H200 makes 3.48 million key pairs of 128f a second in calls of 262,144, 3.46 with twice and
/// 3.39 with four times the work.)
const PROGRAM_WORK_OF_KEYS: f64 = 1.25e8;

/// Compressions of one program for each core of a CPU under a GPU's driver: some tenths of a second, in lanes that a single signature fills.
const PROGRAM_WORK_OF_A_CORE: f64 = 5e6;

/// Bytes of one program's signatures, at most: the first program's copies and the last program's computation overlap with nothing.
const PROGRAM_BYTES: usize = 640 << 20;

/// Programs in flight: one computes and one is copied. Two more are laid out if they verify, which takes the host as long as the device
/// (docs/cuda.md).
const QUEUE: u32 = 4;
const QUEUE_OF_OTHERS: u32 = 2;

/// One program may take one part in so many of a device's memory: two that sign are in flight, and cached keys need the rest.
pub(crate) const PROGRAM_SHARE: u64 = 3;

/// Cached nodes may take one part in so many of a device's memory.
const CACHE_SHARE: u64 = 4;

/// Bytes of device memory for one program.
fn budget(facts: &Facts) -> u64 {
    (facts.memory / PROGRAM_SHARE).min(facts.largest)
}

/// The GPUs of one driver, as a backend.
pub struct Gpus<G: Gpu> {
    name: &'static str,
    gpus: Vec<(Arc<G>, Arc<NodesCache<G>>)>,
    absent: Option<String>,
    cache: Option<Arc<Cache>>,
}

impl<G: Gpu> Gpus<G> {
    /// A backend of these GPUs, numbered by their places; or the reason why there are none. `cache` keeps their compiled code.
    pub fn new(name: &'static str, gpus: Result<Vec<Arc<G>>, String>, cache: Option<Arc<Cache>>) -> Gpus<G> {
        let with_nodes = |gpu: Arc<G>| {
            let nodes = Arc::new(NodesCache::new(gpu.facts().memory / CACHE_SHARE));
            (gpu, nodes)
        };
        let (gpus, absent) = match gpus {
            Ok(gpus) => (gpus.into_iter().map(with_nodes).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Gpus { name, gpus, absent, cache }
    }

    pub(crate) fn gpu(&self, device: &Device) -> Result<&(Arc<G>, Arc<NodesCache<G>>), Error> {
        self.gpus.get(device.index as usize).ok_or_else(|| Error::Device {
            device: device.id(),
            what: format!("there is no such device; there are {}", self.gpus.len()),
        })
    }
}

impl<G: Gpu> Backend for Gpus<G> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        let device = |(index, (gpu, _)): (usize, &(Arc<G>, _))| {
            let Facts { name, mut detail, compute_units, memory, ecc, uuid, is_cpu, .. } = gpu.facts().clone();
            if !ecc {
                detail += ", memory without error correction";
            }
            let index = index as u32;
            let (cores, automatic) = (compute_units, !is_cpu);
            Device { backend: self.name, index, name, detail, cores, memory, queue: QUEUE, uuid, automatic }
        };
        Ok(self.gpus.iter().enumerate().map(device).collect())
    }
    /// Every set is tested, since kernels are compiled for each.
    fn self_test(&self) -> SelfTest {
        SelfTest::EverySet
    }
    fn absent(&self) -> Option<String> {
        self.absent.clone()
    }
    fn notices(&self) -> Vec<String> {
        self.cache.as_ref().map_or(Vec::new(), |cache| cache.notices())
    }
    fn rates(&self, device: &Device) -> Option<Rates> {
        self.gpu(device).ok()?.0.facts().rates
    }
    fn clock(&self, device: &Device) -> Option<f64> {
        let clock = self.gpu(device).ok()?.0.facts().clock;
        (clock > 0).then_some(clock as f64)
    }
    /// A checksum of the sources of the kernels that the device runs, and of its default policy.
    fn fingerprint(&self, device: &Device) -> String {
        let mut hash = Sha256::new();
        hash.update(FINGERPRINT);
        if self.gpu(device).is_ok_and(|(gpu, _)| gpu.facts().is_cpu) {
            hash.update(CPU_FINGERPRINT);
        }
        let policy = self.gpu(device).and_then(|(gpu, _)| GpuPolicy::on(gpu.facts(), &Policy::default()));
        hash.update(format!("{:?}", policy.unwrap_or_default()));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
    fn free(&self, device: &Device) -> Option<u64> {
        self.gpu(device).ok()?.0.free().ok()
    }
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        Some(self)
    }
    fn sha256(&self) -> Option<&dyn Sha256Programs> {
        Some(self)
    }
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms> {
        Some(self)
    }
    fn host_memory(&self) -> Option<&dyn HostMemory> {
        Some(self)
    }
}

impl<G: Gpu> SlhDsaPrograms for Gpus<G> {
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        let facts = self.gpu(device)?.0.facts();
        let budget = budget(facts);
        let policy = GpuPolicy::on(facts, &Policy::default())?;
        let needs = Shape::new(plan, policy, budget, facts).layout(1).device as u64;
        if needs > budget {
            return Err(Error::OutOfMemory { device: device.id(), needs, has: budget });
        }
        Ok(policy::axes(plan.op).into_iter().filter(|axis| facts.has(axis.name)).collect())
    }
    fn jobs(&self, device: &Device, plan: &Plan, _: &Policy) -> usize {
        if plan.op == Op::Cache {
            return 1;
        }
        let is_cpu = self.gpu(device).is_ok_and(|(gpu, _)| gpu.facts().is_cpu);
        let fills = match plan.op {
            _ if is_cpu => PROGRAM_WORK_OF_A_CORE * f64::from(device.cores),
            Op::Keygen => PROGRAM_WORK_OF_KEYS,
            _ => PROGRAM_WORK,
        };
        let work = plan.work().in_sha256();
        let bytes = if plan.op == Op::Keygen { plan.params.n } else { plan.params.sig_bytes() };
        let jobs = ((fills / work) as usize).min(PROGRAM_BYTES / bytes).max(1);
        1 << jobs.ilog2()
    }
    fn compile(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) {
        let compile = || {
            let (gpu, _) = self.gpu(device)?;
            let policy = GpuPolicy::on(gpu.facts(), policy)?;
            let shape = Shape::new(plan, policy, budget(gpu.facts()), gpu.facts());
            GpuProgram::kernels(gpu, plan, batch, &shape).map(drop)
        };
        // `prepare` reports the error.
        let _: Result<(), Error> = compile();
    }
    fn queue(&self, _: &Device, plan: &Plan) -> u32 {
        if plan.op == Op::Verify { QUEUE } else { QUEUE_OF_OTHERS }
    }
    /// Roots and nodes leave at the end of a run, so that nothing holds them back.
    fn abilities(&self, _: &Device, plan: &Plan) -> Abilities {
        let compares = if plan.op == Op::Sign { FEW_JOBS + 1 } else { usize::MAX };
        Abilities { holds: true, compares }
    }
    fn bytes(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        // `prepare` reports that there is no such device or policy.
        let Ok((gpu, _)) = self.gpu(device) else { return 0 };
        let facts = gpu.facts();
        program::host_bytes(plan, batch, GpuPolicy::on(facts, policy).unwrap_or_default(), facts)
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let (gpu, cache) = self.gpu(device)?;
        let policy = GpuPolicy::on(gpu.facts(), policy)?;
        Ok(Box::new(GpuProgram::new(gpu, cache, plan, batch, budget(gpu.facts()), policy)?))
    }
}

impl<G: Gpu> HostMemory for Gpus<G> {
    fn allocate(&self, device: &Device, bytes: usize) -> Result<Box<dyn ReachableMemory>, Error> {
        let none =
            || Error::Unsupported { device: self.name.into(), what: "memory of the host that devices reach".into() };
        self.gpu(device)?.0.alloc_reached(bytes).unwrap_or_else(|| Err(none()))
    }

    fn reaches(&self, device: &Device, memory: &dyn ReachableMemory) -> bool {
        // A device reaches all of such a memory, or nothing.
        self.gpu(device).is_ok_and(|(gpu, _)| gpu.reaches(memory.bytes().as_ptr() as u64, 1))
    }
}

impl<G: Gpu> Sha256Programs for Gpus<G> {
    fn longest(&self, device: &Device, policy: &Policy) -> Result<usize, Error> {
        Ok(HashPolicy::of(policy)?.longest(self.gpu(device)?.0.facts()))
    }

    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        let (gpu, _) = self.gpu(device)?;
        gpu.facts().check(policy)?;
        Ok(Box::new(GpuHasher::new(gpu, HashPolicy::of(policy)?)?))
    }
}
