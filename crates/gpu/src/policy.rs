//! The axes of tuning for SLH-DSA on a GPU, and defaults that were measured to be good.

use self::Accepted::{Between, Listed, Other, Threads};
use crate::gpu::Facts;
use hypergrove_engine::{Axis, Error, Policy, STAGES, THREADS};
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{Family, Params};
use hypergrove_kernels::{CHAINS_BLOCKS, Config, IMAD, KECCAK_BLOCKS, Kernel, MAX_THREADS, TILE_WORDS, UNROLLED};

/// Choices that change time and memory, never bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GpuPolicy {
    /// Host threads that lay batches out.
    pub threads: usize,
    /// Threads of a block, where there is work for them.
    pub block: u32,
    /// Threads of a block for each kind of kernel, in the order of `KINDS`; 0: as `block`.
    pub of_kind: [u32; KINDS.len()],
    /// Blocks of a launch, at most; 0: as many as its work asks for.
    pub blocks: u32,
    /// How many blocks of 256 threads a compute unit must be able to run at the same time: this limits the registers of the chain kernel.
    pub occupancy: u32,
    /// The additions of a SHA-256 compression that go to the multiply-add pipe, which would be idle otherwise: a bit for each place.
    pub imad: u32,
    /// Whether the rounds of SHA-512 and Keccak are unrolled.
    pub unrolled: u32,
    /// Levels that a launch goes up, in shared memory, where there is plenty of work.
    pub subtree_height: u32,
    /// log2 of the nodes that a block works on at a time, if they fit into its shared memory.
    pub tile: u32,
    /// log2 of the chains that a block sorts by length at a time, at most, so that neighbouring threads end together.
    pub sort: u32,
    /// log2 of the leaves whose chains are grown at a time; 0: as many as a fixed amount of memory takes.
    pub window: u32,
    /// 0: all chain values of revealed leaves are kept until their digits are known; 1: they are computed again.
    pub replay: u32,
    /// Whether a key's WOTS+ signatures of cached roots are stored on the device: 0 never, 1 once making them has cost as much as storing, 2 at once.
    pub stored: u32,
    /// Levels of parallelism: 0 none, 1 trees, 2 also nodes, 3 also chains, 4 also within a hash.
    pub levels: u32,
    /// Whether each layer's root is computed once more, from the signature, to find faults.
    pub check: u32,
    /// Whether FORS runs concurrently with the hypertree.
    pub beside: u32,
    /// Bytes of the longest M′ that the device hashes; 0: it hashes none.
    pub digest: u32,
    /// Whether small batches are submitted as one recording.
    pub record: u32,
    /// Whether each launch runs alone and is timed: then nothing runs concurrently, and nothing is recorded.
    pub stages: u32,
}

impl Default for GpuPolicy {
    fn default() -> GpuPolicy {
        GpuPolicy {
            threads: 1,
            block: 128,
            of_kind: [0; KINDS.len()],
            blocks: 0,
            occupancy: CHAINS_BLOCKS,
            imad: IMAD,
            unrolled: UNROLLED,
            subtree_height: 2,
            tile: 9,
            sort: 11,
            window: 0,
            replay: 0,
            stored: 1,
            levels: 4,
            check: 1,
            beside: 1,
            digest: 0,
            record: 1,
            stages: 0,
        }
    }
}

/// Kinds of kernels that may have their own block size, each with its axis.
const KINDS: [(&str, &[Kernel]); 4] = [
    ("chains_block", &[Kernel::Chains, Kernel::Complete, Kernel::LeafSolo, Kernel::ClimbSolo]),
    ("xmss_block", &[Kernel::Xmss, Kernel::XmssAbove, Kernel::Climb]),
    ("fors_block", &[Kernel::Fors, Kernel::ForsSolo, Kernel::ForsAbove, Kernel::ForsClimb, Kernel::ForsClimbSolo]),
    ("select_block", &[Kernel::Select, Kernel::Links]),
];

/// An axis of a policy `P`, other than [`THREADS`].
pub(crate) struct PolicyAxis<P> {
    name: &'static str,
    /// The values that a tuner may choose, if `tuned`.
    values: &'static [u32],
    accepted: Accepted,
    tuned: bool,
    field: fn(&mut P) -> &mut u32,
}

/// The values that a policy may have for an axis.
pub(crate) enum Accepted {
    /// The values of the axis.
    Listed,
    /// The values of the axis, which are numbers of threads.
    Threads,
    /// All from the first to the second.
    Between(u32, u32),
    /// Those for which the function is true, which the text describes.
    Other(fn(u32) -> bool, &'static str),
}

impl<P> PolicyAxis<P> {
    /// An axis that a tuner may choose.
    pub(crate) const fn new(
        name: &'static str,
        values: &'static [u32],
        accepted: Accepted,
        field: fn(&mut P) -> &mut u32,
    ) -> PolicyAxis<P> {
        PolicyAxis { name, values, accepted, tuned: true, field }
    }

    /// Fails unless a policy may have this value.
    fn check(&self, value: u32) -> Result<(), Error> {
        let PolicyAxis { name, values, accepted, .. } = self;
        let (fits, wanted) = match *accepted {
            Listed => (values.contains(&value), format!("one of {values:?}")),
            Threads => {
                let most = format!("kernels are built for at most {MAX_THREADS} threads");
                (values.contains(&value), format!("one of {values:?}: {most}"))
            }
            Between(least, most) => ((least..=most).contains(&value), format!("{least} to {most}")),
            Other(fits, wanted) => (fits(value), wanted.into()),
        };
        let wrong = || Error::Value { what: format!("policy axis {name} is {value}, must be {wanted}") };
        fits.then_some(()).ok_or_else(wrong)
    }
}

/// The axes of a policy, with that of threads.
pub(crate) fn with_threads<P>(axes: &[PolicyAxis<P>]) -> impl Iterator<Item = Axis> {
    let axes = axes.iter().map(|axis| Axis { tuned: axis.tuned, ..Axis::new(axis.name, axis.values) });
    [Axis::threads()].into_iter().chain(axes)
}

/// The policy `out` with the named values. `threads` is where its number of threads is, and errors about unknown axes begin with `user`.
pub(crate) fn with_values<P>(
    mut out: P,
    threads: fn(&mut P) -> &mut usize,
    axes: &[PolicyAxis<P>],
    policy: &Policy,
    user: &str,
) -> Result<P, Error> {
    for &(name, value) in &policy.0 {
        if name == THREADS {
            *threads(&mut out) = value.max(1) as usize;
            continue;
        }
        let axis = axes.iter().find(|axis| axis.name == name);
        let axis = axis.ok_or_else(|| Error::Value { what: format!("{user} has no policy axis {name:?}") })?;
        axis.check(value)?;
        *(axis.field)(&mut out) = value;
    }
    Ok(out)
}

/// The axis that has the name of its field.
macro_rules! axis {
    ($field:ident, $values:expr, $accepted:expr) => {
        $crate::policy::PolicyAxis::new(stringify!($field), &$values, $accepted, |policy| &mut policy.$field)
    };
}
pub(crate) use axis;

const fn untuned<P>(axis: PolicyAxis<P>) -> PolicyAxis<P> {
    PolicyAxis { tuned: false, ..axis }
}

static BLOCK_OF_KIND: [u32; 5] = [0, 32, 64, 128, 256];
static SWITCH: [u32; 2] = [0, 1];

/// All axes, [`STAGES`] too, which no space has.
static AXES: [PolicyAxis<GpuPolicy>; 21] = [
    axis!(block, [32, 64, 128, 256], Threads),
    axis!(blocks, [0, 66, 132, 264, 528, 1056, 2112], Other(|blocks| blocks < 1 << 16, "below 65536")),
    PolicyAxis::new(KINDS[0].0, &BLOCK_OF_KIND, Threads, |policy| &mut policy.of_kind[0]),
    PolicyAxis::new(KINDS[1].0, &BLOCK_OF_KIND, Threads, |policy| &mut policy.of_kind[1]),
    PolicyAxis::new(KINDS[2].0, &BLOCK_OF_KIND, Threads, |policy| &mut policy.of_kind[2]),
    PolicyAxis::new(KINDS[3].0, &BLOCK_OF_KIND, Threads, |policy| &mut policy.of_kind[3]),
    axis!(occupancy, [2, 3, 4, 5, 6], Listed),
    axis!(imad, [0, IMAD, 0xfff], Other(|mask| mask < 1 << 12, "below 4096")),
    axis!(unrolled, SWITCH, Listed),
    axis!(subtree_height, [2, 3, 4, 6, 9], Between(1, 10)),
    axis!(tile, [5, 7, 9, 10], Between(1, 10)),
    axis!(sort, [5, 7, 8, 9, 10, 11], Listed),
    axis!(window, [0, 6, 20], Other(|log| matches!(log, 0 | 4..=24), "0, or 4 to 24")),
    axis!(replay, SWITCH, Listed),
    untuned(axis!(stored, [0, 1, 2], Listed)),
    // Lower levels exist only for comparison with the last, and a check is not given up for time. A recording saves the host's time, which
    // the kernels' times do not show.
    untuned(axis!(levels, [0, 1, 2, 3, 4], Listed)),
    untuned(axis!(check, SWITCH, Listed)),
    axis!(beside, SWITCH, Listed),
    // Hashing on the device saves the host's time, too. Every job of a program gets room for the longest M′.
    untuned(axis!(digest, [0, 256], Other(|bytes| bytes <= 4096, "at most 4096"))),
    untuned(axis!(record, SWITCH, Listed)),
    axis!(stages, SWITCH, Listed),
];

/// Whether any of an op's launches depends on an axis: where none does, nothing is to be tuned.
pub(crate) fn matters(axis: &str, op: Op) -> bool {
    let idle: &[&str] = match op {
        Op::Sign => &[],
        Op::Keygen | Op::Cache => &["fors_block", "select_block", "sort", "replay", "beside"],
        Op::Verify => &["select_block", "subtree_height", "tile", "window", "replay", "beside"],
    };
    !idle.contains(&axis)
}

/// This backend's axes for an op.
pub(crate) fn axes(op: Op) -> Vec<Axis> {
    let axes = with_threads(&AXES).filter(|axis| axis.name != STAGES);
    axes.map(|axis| Axis { tuned: axis.tuned && axis.name != THREADS && matters(axis.name, op), ..axis }).collect()
}

impl GpuPolicy {
    /// The policy with the named values, on a GPU that may lack some axes and have defaults of its own.
    pub(crate) fn on(facts: &Facts, policy: &Policy) -> Result<GpuPolicy, Error> {
        facts.check(policy)?;
        let defaults = facts.defaults.iter().copied();
        GpuPolicy::of(&Policy(defaults.chain(policy.0.iter().copied()).collect()))
    }

    /// The policy with the named values, and defaults for the rest.
    pub fn of(policy: &Policy) -> Result<GpuPolicy, Error> {
        with_values(GpuPolicy::default(), |out| &mut out.threads, &AXES, policy, "a GPU")
    }

    /// Threads of a block of this kernel, where there is work for them.
    pub(crate) fn block(&self, kernel: Kernel) -> u32 {
        let kind = KINDS.iter().position(|(_, kernels)| kernels.contains(&kernel));
        kind.map(|kind| self.of_kind[kind]).filter(|block| *block > 0).unwrap_or(self.block)
    }

    /// Blocks of so many threads that a compute unit has room for at the same time, if they walk chains.
    pub(crate) fn resident(&self, family: Family, threads: u32) -> u32 {
        let blocks = match family {
            Family::Sha2 => self.occupancy,
            Family::Shake => KECCAK_BLOCKS,
        };
        (blocks * MAX_THREADS / threads).max(1)
    }

    /// log2 of the nodes that a block's tile may hold for this set, and that a window may be cut into.
    pub(crate) fn most_chunk(&self, p: &Params) -> u32 {
        let fit = (TILE_WORDS / (p.n / 4)).ilog2();
        if self.window > 0 { fit.min(self.window) } else { fit }
    }

    /// The configuration that kernels are compiled for. `low_occupancy` comes from `Shape::has_low_occupancy`.
    pub(crate) fn config(&self, p: &Params, low_occupancy: bool) -> Config {
        let imad = if low_occupancy { 0 } else { self.imad };
        let defines = vec![("CHAINS_BLOCKS", self.occupancy), ("IMAD", imad), ("UNROLLED", self.unrolled)];
        Config { family: p.family, n: p.n, defines }
    }
}
