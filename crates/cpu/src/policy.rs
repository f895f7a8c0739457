//! What can be tuned, and the values that were measured to be good.

use hypergrove_engine::{Axis, Error, Policy, STAGES, THREADS};
use std::borrow::Cow;

/// Choices that change time and memory, never bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CpuPolicy {
    /// Threads; with 1, everything runs on the calling thread. Else rayon's current pool is used.
    pub threads: usize,
    /// Leaves of an XMSS chunk, a power of two. Its chains, 32·len of them, fill groups of 32 lanes exactly.
    pub xmss_leaves: usize,
    /// Leaves of a FORS chunk, a power of two: their nodes should stay in the first-level cache.
    pub fors_leaves: usize,
    /// Signatures verified together: their chains, of all lengths, share lanes.
    pub verify_group: usize,
    /// 1: each stage runs alone, with all threads that it can use, and is timed.
    pub stages: usize,
}

impl Default for CpuPolicy {
    fn default() -> CpuPolicy {
        CpuPolicy { threads: 1, xmss_leaves: 32, fors_leaves: 1024, verify_group: 32, stages: 0 }
    }
}

static XMSS_LEAVES: &[u32] = &[4, 8, 16, 32, 64, 128];
static FORS_LEAVES: &[u32] = &[64, 128, 256, 512, 1024, 2048, 4096];
static VERIFY_GROUP: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// The space of this backend.
pub(crate) fn axes() -> Vec<Axis> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let axis = |name, values: &'static [u32]| Axis { name, values: Cow::Borrowed(values) };
    vec![
        Axis { name: THREADS, values: Cow::Owned((1..=cores).collect()) },
        axis("xmss_leaves", XMSS_LEAVES),
        axis("fors_leaves", FORS_LEAVES),
        axis("verify_group", VERIFY_GROUP),
    ]
}

impl CpuPolicy {
    /// The named values, defaults for the rest.
    pub fn of(policy: &Policy) -> Result<CpuPolicy, Error> {
        let mut out = CpuPolicy::default();
        for (name, value) in &policy.0 {
            let (field, values) = match *name {
                THREADS => (&mut out.threads, None),
                "xmss_leaves" => (&mut out.xmss_leaves, Some(XMSS_LEAVES)),
                "fors_leaves" => (&mut out.fors_leaves, Some(FORS_LEAVES)),
                "verify_group" => (&mut out.verify_group, Some(VERIFY_GROUP)),
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
}
