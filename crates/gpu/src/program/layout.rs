//! The memory layout of a pass, and how many jobs a pass may have.

use super::{COOPERATIVE_CHUNK, FEW_JOBS};
use crate::gpu::Facts;
use crate::parts::{Part, Parts};
use crate::policy::GpuPolicy;
use crate::ring::Slots;
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::{Family, Params};
use hypergrove_kernels::{BETWEEN, CPU_LEAF_LEVELS, JOB_WORDS, KEY_WORDS};

/// Device memory for the chain ends of one window of leaves, at most.
const ENDS_BYTES: usize = 512 << 20;

/// The memory layout of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// Jobs of a pass.
    pub(super) jobs: usize,
    /// Leaves whose chains are grown at a time.
    pub(super) window: usize,
    // These parts are in both memories.
    pub(super) seeds: Part,
    pub(super) positions: Part,
    /// Memory for the messages that the device hashes: for each job room for the longest M′, and for a key.
    pub(super) messages: Part,
    /// For each job whether its two signatures agree, if signatures are computed twice.
    pub(super) compared: Part,
    pub(super) flag: Part,
    pub(super) input: Part,
    pub(super) roots: Part,
    pub(super) fors: Part,
    pub(super) output: Part,
    // These parts are in the device's memory alone.
    pub(super) keys: Part,
    pub(super) trace: Part,
    pub(super) cached_trace: Part,
    pub(super) ends: Part,
    pub(super) checked_ends: Part,
    pub(super) leaves: Part,
    pub(super) nodes: [Part; 2],
    pub(super) fors_nodes: [Part; 2],
    /// In the host's memory alone: the ring that large copies go through, one slot after the other.
    pub(super) ring: Part,
    pub(crate) host: usize,
    pub(crate) device: usize,
}

/// The sizes that a set and a policy ask for.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(super) p: &'static Params,
    pub(super) op: Op,
    /// How many layers are grown, and of how many the nodes come with the key.
    pub(super) grown: usize,
    pub(super) cached: usize,
    pub(super) policy: GpuPolicy,
    /// Bytes for the chain ends of one window, at most.
    pub(super) ends: usize,
    /// Whether threads are lanes of a CPU's vectors, for which there are other kernels for FIPS 205's lg_w.
    pub(super) on_cpu: bool,
    /// Whether two threads may share a hash of SHA-512.
    pub(super) pairs: bool,
    /// Iterations of all loops of a thread, at most.
    most_iterations: usize,
}

impl Layout {
    /// The slots of the ring.
    pub(super) fn slots(&self, p: &Params) -> Slots {
        Slots::new(self.jobs, p.sig_bytes())
    }
}

impl Shape {
    /// The shape of a plan on a device that gives a program `budget` bytes.
    pub(crate) fn new(plan: &Plan, policy: GpuPolicy, budget: u64, facts: &Facts) -> Shape {
        let p = plan.params;
        let (grown, cached) = match plan.op {
            Op::Sign => (p.d - plan.cached_layers, plan.cached_layers),
            Op::Verify => (0, 0),
            Op::Keygen => (1, 0),
            Op::Cache => (1, plan.cached_layers),
        };
        let ends = (budget / 4).min(ENDS_BYTES as u64) as usize;
        let on_cpu = facts.is_cpu && p.lg_w == 4;
        // Vulkan, whose blocks have a fixed size, lacks the kernel.
        let pairs = p.family == Family::Sha2 && p.n > 16 && policy.levels > 2 && !facts.fixed_blocks && !facts.is_cpu;
        Shape { p, op: plan.op, grown, cached, policy, ends, on_cpu, pairs, most_iterations: facts.most_iterations }
    }
    /// XMSS leaves of a job.
    pub(super) fn leaves(&self) -> usize {
        self.grown << self.p.hp
    }
    /// Whether the chains of a batch leave compute units short of work. Then an addition's latency counts, which is lower in the pipe that
    /// additions usually take.
    pub(super) fn has_low_occupancy(&self, jobs: usize, compute_units: u32) -> bool {
        let units = if self.op == Op::Verify { 1 } else { self.leaves() };
        jobs * units * self.p.len() < 256 * compute_units as usize
    }
    /// Nodes that the first launch leaves of each tree, at most.
    pub(super) fn left(&self, height: usize) -> usize {
        let up = self.policy.subtree_height.min(self.policy.most_chunk(self.p)).min(COOPERATIVE_CHUNK);
        1 << height.saturating_sub(self.leaf_levels_on_cpu().map_or(up, |levels| up.min(levels)) as usize)
    }

    /// Levels that a thread of `LeafSolo` goes up, as many as its iterations allow: Keccak has a loop of 24 rounds. `None` where another kernel
    /// grows leaves: if chain values are kept, or threads are no lanes.
    pub(super) fn leaf_levels_on_cpu(&self) -> Option<u32> {
        let p = self.p;
        let most = self.policy.subtree_height.min(CPU_LEAF_LEVELS).min(p.hp as u32);
        let rounds = match p.family {
            Family::Sha2 => 0,
            Family::Shake => 24,
        };
        let loops = p.len() * (p.w() * (rounds + 2) + 8);
        let is_in_use = self.on_cpu && !self.keeps() && self.op != Op::Verify;
        (1..=most).rev().find(|up| is_in_use && loops << up <= self.most_iterations)
    }

    /// Whether chain values of signatures are kept.
    fn keeps(&self) -> bool {
        self.op == Op::Sign && self.policy.replay == 0
    }

    pub(crate) fn layout(&self, jobs: usize) -> Layout {
        let Shape { p, op, .. } = *self;
        let (n, len) = (p.n, p.len());
        let signs = op == Op::Sign;
        let hashes = signs || op == Op::Verify;
        let mut parts = Parts::default();
        let mut both = |bytes: usize, host_bytes: usize| parts.add(bytes, host_bytes);
        let when = |yes: bool, bytes: usize| if yes { bytes } else { 0 };
        let leaves = jobs * self.leaves();
        // Windows consist of whole tiles of the largest chunk.
        let tile = 1usize << self.policy.most_chunk(p);
        let requested = match self.policy.window {
            // `LeafSolo` stores nothing in a window.
            _ if self.leaf_levels_on_cpu().is_some() => leaves,
            0 => self.ends / (len * n),
            window => 1 << window,
        };
        let window = requested.next_multiple_of(tile).min(leaves);
        let left = |trees: usize, height: usize| trees * self.left(height) * n;
        let xmss = left(jobs * self.grown, p.hp);
        let fors = left(jobs * p.k, p.a);
        let (keep, keeps) = (self.policy.replay == 0, self.keeps());
        let mut shared = |bytes: usize| both(bytes, bytes);
        let mut layout = Layout {
            jobs,
            window,
            seeds: shared((when(op != Op::Cache, jobs).max(1) * (2 * n + 8)).max(FEW_KEYS * KEY_WORDS * 4)),
            positions: shared(when(hashes, jobs * (JOB_WORDS + p.k) * 4)),
            compared: shared(when(signs, jobs * 4)),
            flag: shared(when(signs, flag_words(p, jobs) * 4)),
            roots: shared(if op == Op::Cache { jobs * n } else { when(hashes, jobs * (p.d + 1) * n) }),
            fors: shared(when(hashes, jobs * p.k * n)),
            ..Layout::default()
        };
        // Few signatures are copied as a whole, many through the ring.
        let (signatures, few) = (jobs * p.sig_bytes(), jobs.min(FEW_JOBS) * p.sig_bytes());
        layout.output = match op {
            Op::Sign => both(signatures, few),
            Op::Keygen | Op::Verify => both(jobs * n, jobs * n),
            Op::Cache => both(jobs * ((2 << p.hp) - 1) * n, jobs * ((2 << p.hp) - 1) * n),
        };
        layout.input = both(when(op == Op::Verify, signatures), when(op == Op::Verify, few));
        let of_job = when(hashes && self.most_hashed() > 0, 4 * self.message_words(self.most_hashed()) + 3 * n);
        layout.messages = both(jobs * (of_job + when(of_job > 0, 4 * BETWEEN)), jobs * of_job);
        layout.ring = both(0, when(hashes && signatures > few, layout.slots(p).all_bytes()));
        let mut part = |bytes: usize| both(bytes, 0);
        layout.keys = part(when(op != Op::Cache && jobs > FEW_KEYS, jobs) * KEY_WORDS * 4);
        layout.trace = part(when(keeps, jobs * self.grown * len * p.w() * n));
        layout.cached_trace = part(when(keeps, jobs * self.cached * len * p.w() * n));
        layout.ends = part(when(op != Op::Verify && self.leaf_levels_on_cpu().is_none(), window * len * n));
        let checks = match op {
            // `ClimbSolo` keeps chain ends in the thread.
            _ if self.on_cpu && !keeps => 0,
            Op::Verify => 1,
            Op::Sign => self.grown.max(self.cached).max(when(!keep, p.d)),
            _ => 0,
        };
        layout.checked_ends = part(jobs * checks * len * n);
        layout.leaves = part(when(keeps, jobs * p.d * n));
        layout.nodes = [part(when(op != Op::Verify, xmss)), part(when(op != Op::Verify, xmss / 2))];
        layout.fors_nodes = [part(when(signs, fors)), part(when(signs, fors / 2))];
        layout.device = parts.device;
        layout.host = parts.host;
        layout
    }

    /// Bytes of the longest message that the device hashes.
    pub(super) fn most_hashed(&self) -> usize {
        match self.op {
            Op::Sign | Op::Verify => self.policy.digest as usize,
            Op::Keygen | Op::Cache => 0,
        }
    }

    /// Words of a job's row of `Kernel::Digest`, for an M′ of so many bytes.
    pub(super) fn message_words(&self, bytes: usize) -> usize {
        let nodes = if self.op == Op::Sign { 2 } else { 1 };
        2 + nodes * self.p.n / 4 + bytes.div_ceil(4)
    }

    /// Whether every index of a pass of this size fits its 32 bits.
    pub(super) fn indexable(&self, layout: &Layout) -> bool {
        let p = self.p;
        let most = u32::MAX as usize / 2;
        let [nodes, fors_nodes] = [layout.nodes[0], layout.fors_nodes[0]];
        let parts = [
            layout.input,
            layout.output,
            layout.messages,
            layout.trace,
            layout.cached_trace,
            layout.ends,
            layout.checked_ends,
            nodes,
            fors_nodes,
        ];
        parts.iter().all(|part| part.bytes / 4 <= most)
            && (self.op == Op::Verify || layout.jobs * (p.k << p.a).max(self.leaves()) <= most)
            && (layout.ends.bytes == 0 || layout.window * p.len() <= most)
    }
}

/// Bytes of nodes that one pass outputs when it makes cached nodes.
const CACHE_BYTES: usize = 64 << 20;

/// Words of the check's flags: one for the chains of all jobs, and one for each layer of each job.
pub(super) fn flag_words(p: &Params, jobs: usize) -> usize {
    1 + jobs * p.d
}

/// Keys, at most, that the host lays out itself: for so few, a launch would take longer.
pub(super) const FEW_KEYS: usize = 8;

/// Bytes of host memory for a program of `batch` jobs.
pub(crate) fn host_bytes(plan: &Plan, batch: usize, policy: GpuPolicy, facts: &Facts) -> u64 {
    let jobs = if plan.op == Op::Cache { cache_trees(plan) } else { batch.clamp(1, 1 << 20) };
    // The budget only limits the window of chain ends, which is in the device's memory alone.
    Shape::new(plan, policy, u64::MAX, facts).layout(jobs).host as u64
}

/// Trees of a pass that makes cached nodes: as many as the largest cached layer has, and as fit [`CACHE_BYTES`] of pinned memory.
pub(super) fn cache_trees(plan: &Plan) -> usize {
    let p = plan.params;
    let most = (CACHE_BYTES / (((2 << p.hp) - 1) * p.n)).max(1);
    most.min(1usize.checked_shl((p.hp * (plan.cached_layers - 1)) as u32).unwrap_or(most))
}
