//! The axes of tuning for SLH-DSA on a GPU, and defaults that were measured to be good.

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

static BLOCK: &[u32] = &[32, 64, 128, 256];
static BLOCK_OF_KIND: &[u32] = &[0, 32, 64, 128, 256];

/// Kinds of kernels that may have their own block size, each with its axis.
const KINDS: [(&str, &[Kernel]); 4] = [
    ("chains_block", &[Kernel::Chains, Kernel::Complete, Kernel::LeafSolo, Kernel::ClimbSolo]),
    ("xmss_block", &[Kernel::Xmss, Kernel::XmssAbove, Kernel::Climb]),
    ("fors_block", &[Kernel::Fors, Kernel::ForsSolo, Kernel::ForsAbove, Kernel::ForsClimb, Kernel::ForsClimbSolo]),
    ("select_block", &[Kernel::Select, Kernel::Links]),
];
static BLOCKS: &[u32] = &[0, 66, 132, 264, 528, 1056, 2112];
static OCCUPANCY: &[u32] = &[2, 3, 4, 5, 6];
static IMADS: &[u32] = &[0, IMAD, 0xfff];
static SUBTREE_HEIGHT: &[u32] = &[2, 3, 4, 6, 9];
static TILE: &[u32] = &[5, 7, 9, 10];
static SORT: &[u32] = &[5, 7, 8, 9, 10, 11];
static WINDOW: &[u32] = &[0, 6, 20];
static SWITCH: &[u32] = &[0, 1];
static STORED: &[u32] = &[0, 1, 2];
static LEVELS: &[u32] = &[0, 1, 2, 3, 4];
static DIGEST: &[u32] = &[0, 256];

/// Bytes of an M′ that a policy may have the device hash, at most: every job of a program gets room for that M′.
const MOST_HASHED: u32 = 4096;

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
    let all = [
        Axis { tuned: false, ..Axis::threads() },
        Axis::new("block", BLOCK),
        Axis::new("blocks", BLOCKS),
        Axis::new(KINDS[0].0, BLOCK_OF_KIND),
        Axis::new(KINDS[1].0, BLOCK_OF_KIND),
        Axis::new(KINDS[2].0, BLOCK_OF_KIND),
        Axis::new(KINDS[3].0, BLOCK_OF_KIND),
        Axis::new("occupancy", OCCUPANCY),
        Axis::new("imad", IMADS),
        Axis::new("unrolled", SWITCH),
        Axis::new("subtree_height", SUBTREE_HEIGHT),
        Axis::new("tile", TILE),
        Axis::new("sort", SORT),
        Axis::new("window", WINDOW),
        Axis::new("replay", SWITCH),
        Axis { tuned: false, ..Axis::new("stored", STORED) },
        // Lower levels exist only for comparison with the last, and a check is not given up for time. A recording saves the host's time, which
        // the kernels' times do not show.
        Axis { tuned: false, ..Axis::new("levels", LEVELS) },
        Axis { tuned: false, ..Axis::new("check", SWITCH) },
        Axis::new("beside", SWITCH),
        // Hashing on the device saves the host's time, too.
        Axis { tuned: false, ..Axis::new("digest", DIGEST) },
        Axis { tuned: false, ..Axis::new("record", SWITCH) },
    ];
    all.into_iter().map(|axis| Axis { tuned: axis.tuned && matters(axis.name, op), ..axis }).collect()
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
        let mut out = GpuPolicy::default();
        for (name, value) in &policy.0 {
            let (field, allowed) = match *name {
                THREADS => {
                    out.threads = (*value).max(1) as usize;
                    continue;
                }
                "block" => (&mut out.block, BLOCK),
                "blocks" => (&mut out.blocks, &[][..]),
                "occupancy" => (&mut out.occupancy, OCCUPANCY),
                "imad" => (&mut out.imad, &[][..]),
                "unrolled" => (&mut out.unrolled, SWITCH),
                "subtree_height" => (&mut out.subtree_height, &[][..]),
                "tile" => (&mut out.tile, &[][..]),
                "sort" => (&mut out.sort, SORT),
                "window" => (&mut out.window, &[][..]),
                "replay" => (&mut out.replay, SWITCH),
                "stored" => (&mut out.stored, STORED),
                "levels" => (&mut out.levels, LEVELS),
                "check" => (&mut out.check, SWITCH),
                "beside" => (&mut out.beside, SWITCH),
                "digest" => (&mut out.digest, &[][..]),
                "record" => (&mut out.record, SWITCH),
                STAGES => (&mut out.stages, SWITCH),
                other => match KINDS.iter().position(|(axis, _)| *axis == other) {
                    Some(kind) => (&mut out.of_kind[kind], BLOCK_OF_KIND),
                    None => return Err(Error::Value { what: format!("a GPU has no policy axis {other:?}") }),
                },
            };
            let fits = match *name {
                "imad" => *value < 1 << 12,
                "blocks" => *value < 1 << 16,
                "digest" => *value <= MOST_HASHED,
                "subtree_height" | "tile" => (1..=10).contains(value),
                "window" => *value == 0 || (4..=24).contains(value),
                _ => allowed.contains(value),
            };
            if !fits {
                let allowed = match *name {
                    "imad" => "below 4096".into(),
                    "blocks" => "below 65536".into(),
                    "digest" => format!("at most {MOST_HASHED}"),
                    name if name.ends_with("block") => {
                        format!("one of {allowed:?}: kernels are built for at most {MAX_THREADS} threads")
                    }
                    "subtree_height" | "tile" => "1 to 10".into(),
                    "window" => "0, or 4 to 24".into(),
                    _ => format!("one of {allowed:?}"),
                };
                return Err(Error::Value { what: format!("policy axis {name} is {value}, must be {allowed}") });
            }
            *field = *value;
        }
        Ok(out)
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
