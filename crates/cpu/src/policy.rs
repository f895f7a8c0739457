//! The axes of tuning for SLH-DSA on a CPU, and defaults that were measured to be good.

use crate::share;
use hypergrove_engine::{Axis, Error, Policy, STAGES, THREADS};
use hypergrove_lanes::Isa;

/// Choices that change time and memory, never bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CpuPolicy {
    /// Threads. With 1, everything runs on the calling thread; with more, on rayon's current pool.
    pub threads: usize,
    /// Leaves of an XMSS chunk, a power of two. Its chains, 32·len of them, fill groups of 32 lanes exactly.
    pub xmss_leaves: usize,
    /// Leaves of a FORS chunk, a power of two: their nodes should stay in the first-level cache.
    pub fors_leaves: usize,
    /// Signatures verified together: their chains, of all lengths, share lanes.
    pub verify_group: usize,
    /// The instruction set: 1 and up are those of [`Isa::ALL`] in order, 0 is the backend's own.
    pub isa: usize,
    /// 1: each stage runs alone, with all threads that it can use, and is timed.
    pub stages: usize,
}

impl Default for CpuPolicy {
    fn default() -> CpuPolicy {
        CpuPolicy { threads: 1, xmss_leaves: 32, fors_leaves: 1024, verify_group: 32, isa: 0, stages: 0 }
    }
}

static XMSS_LEAVES: &[u32] = &[4, 8, 16, 32, 64, 128];
static FORS_LEAVES: &[u32] = &[64, 128, 256, 512, 1024, 2048, 4096];
static VERIFY_GROUP: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// This backend's axes. With `isas`, the instruction set is tuned, since the caller did not choose it.
pub(crate) fn axes(isas: bool) -> Vec<Axis> {
    let there = |(number, isa): (usize, &Isa)| isa.detect().then_some(number as u32 + 1);
    let isas: Vec<u32> = Isa::ALL.iter().enumerate().filter_map(there).filter(|_| isas).collect();
    vec![
        Axis::threads(),
        Axis::new("xmss_leaves", XMSS_LEAVES),
        Axis::new("fors_leaves", FORS_LEAVES),
        Axis::new("verify_group", VERIFY_GROUP),
        Axis { name: "isa", values: std::iter::once(0).chain(isas).collect(), tuned: true },
    ]
}

impl CpuPolicy {
    /// The sizes of the groups of so many signatures, which have so many layers. A thread can give away half of a group only before a layer. So sets with few
    /// layers need small last groups, and sets with many keep groups that fill lanes: the least size is the number of layers, rounded up to a power of two.
    /// (Measured in docs/lab/2026-11-28-divided-groups.md.)
    pub(crate) fn groups(&self, jobs: usize, layers: usize) -> impl Iterator<Item = usize> + use<> {
        share::sizes(jobs, self.threads, layers.next_power_of_two(), self.verify_group)
    }

    /// The policy with the named values, and defaults for the rest.
    pub fn of(policy: &Policy) -> Result<CpuPolicy, Error> {
        let mut out = CpuPolicy::default();
        for (name, value) in &policy.0 {
            let (field, values) = match *name {
                THREADS => (&mut out.threads, None),
                "xmss_leaves" => (&mut out.xmss_leaves, Some(XMSS_LEAVES)),
                "fors_leaves" => (&mut out.fors_leaves, Some(FORS_LEAVES)),
                "verify_group" => (&mut out.verify_group, Some(VERIFY_GROUP)),
                "isa" => {
                    out.isa = *value as usize;
                    out.isa()?;
                    continue;
                }
                STAGES => (&mut out.stages, Some(&[0, 1][..])),
                other => return Err(Error::Value { what: format!("the CPU has no policy axis {other:?}") }),
            };
            if values.map_or(*value == 0, |values| !values.contains(value)) {
                let allowed = values.map_or("1 or more".into(), |values| format!("one of {values:?}"));
                return Err(Error::Value { what: format!("policy axis {name} is {value}, must be {allowed}") });
            }
            *field = *value as usize;
        }
        Ok(out)
    }

    /// The instruction set that the policy names, if it names one. Fails if this CPU lacks it.
    pub(crate) fn isa(&self) -> Result<Option<Isa>, Error> {
        let Some(number) = self.isa.checked_sub(1) else { return Ok(None) };
        let isa = Isa::ALL.get(number).copied();
        isa.filter(|isa| isa.detect()).map(Some).ok_or_else(|| Error::Value {
            what: format!("policy axis isa is {}, which is no instruction set of this CPU", self.isa),
        })
    }
}
