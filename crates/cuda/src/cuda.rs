//! NVIDIA's GPUs as a backend.

use crate::backend::Gpus;
use crate::driver::{self, CudaGpu};
use hypergrove_engine::{Axis, Backend, Device, Error, Hasher, Policy, Program};
use hypergrove_fips205::plan::{Plan, Work};
use std::path::Path;

/// All GPUs of NVIDIA's driver.
pub struct Cuda {
    gpus: Gpus<CudaGpu>,
    absent: Option<String>,
}

impl Cuda {
    /// The GPUs that are there, perhaps none: [`Backend::absent`] says why. Compiled kernels are kept in `cache`, if a
    /// directory is given.
    pub fn new(cache: Option<&Path>) -> Cuda {
        let (gpus, absent) = match driver::devices(cache) {
            Ok(gpus) => (gpus, None),
            Err(why) => (Vec::new(), Some(why.to_string())),
        };
        Cuda { gpus: Gpus::new(gpus), absent }
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(self.gpus.devices(self.name()))
    }
    fn absent(&self) -> Option<String> {
        self.absent.clone()
    }
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        self.gpus.space(device, plan)
    }
    fn rates(&self, device: &Device) -> Option<Work> {
        self.gpus.rates(device)
    }
    fn clock(&self, device: &Device) -> Option<f64> {
        self.gpus.clock(device)
    }
    fn fingerprint(&self, _: &Device) -> String {
        self.gpus.fingerprint()
    }
    fn free(&self, device: &Device) -> Option<u64> {
        self.gpus.free(device)
    }
    fn jobs(&self, _: &Device, plan: &Plan, _: &Policy) -> usize {
        self.gpus.jobs(plan)
    }
    fn queue(&self, _: &Device, plan: &Plan) -> u32 {
        self.gpus.queue(plan)
    }
    fn bytes(&self, _: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        self.gpus.bytes(plan, batch, policy)
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        self.gpus.prepare(device, plan, batch, policy)
    }
    fn hasher(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        self.gpus.hasher(device, policy)
    }
}
