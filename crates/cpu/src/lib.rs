#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod forest;
mod hash;
mod policy;
mod program;
mod scratch;
mod share;
mod swapped;
mod verify;
mod wots;
pub mod zk;

pub use hypergrove_lanes::{Isa, Lattice, MessagePart, SHA256_START, Sha256, TweakableHash, block_hash, rates, sha256};
pub use policy::CpuPolicy;

use hypergrove_engine::{
    Axis, Backend, Device, Error, Hasher, Policy, Program, SelfTest, Sha256Programs, SlhDsaPrograms,
    ZkDilithiumPrograms,
};
use hypergrove_fips205::Params;
use hypergrove_fips205::plan::Plan;
use hypergrove_lanes::tweakable_hash;
use std::sync::Arc;

/// The CPU as a backend that computes by one instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    isa: Isa,
    /// Whether the caller chose the instruction set.
    chosen: bool,
}

impl Cpu {
    /// The backend's name.
    pub const NAME: &str = "cpu";

    /// A backend for the instruction set that is fastest here. Finding it takes about a millisecond ([`Isa::fastest`]).
    pub fn new() -> Cpu {
        Cpu { isa: Isa::fastest(), chosen: false }
    }
    /// A backend for this instruction set. `None` if the CPU lacks it.
    pub fn with(isa: Isa) -> Option<Cpu> {
        isa.detect().then_some(Cpu { isa, chosen: true })
    }
    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// A program over this hash in place of the instruction set's own: for tests that put faults in.
    #[doc(hidden)]
    pub fn program(
        hash: Arc<dyn TweakableHash>,
        plan: &Plan,
        batch: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Program>, Error> {
        Ok(Box::new(program::CpuProgram::new(hash, plan.clone(), batch, CpuPolicy::of(policy)?)))
    }

    fn hash(&self, p: &Params, isa: Isa) -> Arc<dyn TweakableHash> {
        Arc::from(tweakable_hash(isa, p.family, p.n).expect("detected, and every row has n of 16, 24 or 32"))
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

/// The maker's name for the CPU, if the operating system reports it.
fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        Cpu::NAME
    }

    fn devices(&self) -> Result<Vec<Device>, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Ok(vec![Device {
            backend: Cpu::NAME,
            index: 0,
            name: model().unwrap_or_else(|| "host CPU".into()),
            detail: self.isa.name().into(),
            cores,
            memory: 0,
            queue: 1,
            uuid: None,
            automatic: true,
        }])
    }

    /// All sets with the same family and n run the same code.
    fn self_test(&self) -> SelfTest {
        SelfTest::SharedCode
    }

    /// The release of this crate, and the default policy.
    fn fingerprint(&self, _: &Device) -> String {
        format!("{} {:?}", env!("CARGO_PKG_VERSION"), CpuPolicy::default())
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
}

impl SlhDsaPrograms for Cpu {
    fn space(&self, _: &Device, _: &Plan) -> Result<Vec<Axis>, Error> {
        Ok(policy::axes(!self.chosen))
    }

    fn bytes(&self, _: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        let policy = CpuPolicy::of(policy).unwrap_or_default();
        program::bytes(plan, batch, &policy)
    }

    fn prepare(&self, _: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let policy = CpuPolicy::of(policy)?;
        let isa = policy.isa()?.unwrap_or(self.isa);
        Ok(Box::new(program::CpuProgram::new(self.hash(plan.params, isa), plan.clone(), batch, policy)))
    }
}

impl Sha256Programs for Cpu {
    fn longest(&self, _: &Device, _: &Policy) -> Result<usize, Error> {
        Ok(usize::MAX)
    }

    fn prepare(&self, _: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        let threads = CpuPolicy::of(policy)?.threads;
        Ok(Box::new(hash::CpuHasher { hash: sha256(self.isa).expect("detected"), threads }))
    }
}
