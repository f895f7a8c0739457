//! A plan prepared for a GPU: memory, kernels, and the steps of a batch.

use crate::gpu::{Gpu, Launch, Queue, Step};
use crate::keys;
use crate::nodes::{self, Nodes, NodesCache};
use crate::policy::GpuPolicy;
use crate::ring::{Ring, ring_bytes};
use hypergrove_engine::{Batch, Error, Key, Program, StageTime, Timing};
use hypergrove_fips205::plan::{Op, Plan, Slot, cache_bytes};
use hypergrove_fips205::{Family, Params, Position};
use hypergrove_kernels::flags::COPY;
use hypergrove_kernels::{Args, JOB_WORDS, KEY_WORDS, Kernel, flags};
use rayon::prelude::*;
use std::sync::Arc;
use std::time::Instant;
use zeroize::Zeroize;

/// Device memory for the chain ends of one window of leaves, at most.
const ENDS_BYTES: usize = 512 << 20;

/// Where everything of a pass lies.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// Jobs of a pass.
    jobs: usize,
    /// Leaves whose chains are grown at a time.
    window: usize,
    // In both memories.
    seeds: Part,
    positions: Part,
    flag: Part,
    input: Part,
    roots: Part,
    fors: Part,
    output: Part,
    // The device's alone.
    keys: Part,
    trace: Part,
    cached_trace: Part,
    ends: Part,
    checked_ends: Part,
    leaves: Part,
    nodes: [Part; 2],
    fors_nodes: [Part; 2],
    /// The host's alone: what large copies go through, a slot after the other.
    ring: Part,
    host: usize,
    device: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Offset in the device's memory.
    at: usize,
    bytes: usize,
    /// Offset in the host's memory, and bytes there.
    on_host: usize,
    host_bytes: usize,
}

/// The sizes that a set and a policy ask for.
#[derive(Clone, Copy)]
struct Shape {
    p: &'static Params,
    op: Op,
    /// Layers that are grown, and layers whose nodes come with the key.
    grown: usize,
    cached: usize,
    policy: GpuPolicy,
    /// Bytes for the chain ends of one window, at most.
    ends: usize,
}

impl Shape {
    /// For a device that gives a program so many bytes.
    fn new(plan: &Plan, policy: GpuPolicy, budget: u64) -> Shape {
        let p = plan.params;
        let (grown, cached) = match plan.op {
            Op::Sign => (p.d - plan.cached_layers, plan.cached_layers),
            Op::Verify => (0, 0),
            Op::Keygen => (1, 0),
            Op::Cache => (1, plan.cached_layers),
        };
        let ends = (budget / 4).min(ENDS_BYTES as u64) as usize;
        Shape { p, op: plan.op, grown, cached, policy, ends }
    }
    /// XMSS leaves of a job.
    fn leaves(&self) -> usize {
        self.grown << self.p.hp
    }
    /// Whether the chains of a batch leave multiprocessors short of work: then an addition's latency counts, which is
    /// lower where additions usually go.
    fn is_thin(&self, jobs: usize, multiprocessors: u32) -> bool {
        let units = if self.op == Op::Verify { 1 } else { self.leaves() };
        jobs * units * self.p.len() < 256 * multiprocessors as usize
    }
    /// Nodes that the first launch leaves of each tree, at most.
    fn left(&self, height: usize) -> usize {
        let up = self.policy.subtree_height.min(self.policy.most_chunk(self.p)).min(WIDE_CHUNK) as usize;
        1 << height.saturating_sub(up)
    }

    fn layout(&self, jobs: usize) -> Layout {
        let Shape { p, op, .. } = *self;
        let (n, len) = (p.n, p.len());
        let signs = op == Op::Sign;
        let hashes = signs || op == Op::Verify;
        let (mut at, mut host) = (0, 0);
        let mut both = |bytes: usize, host_bytes: usize| {
            let part = Part { at, bytes, on_host: host, host_bytes };
            at += bytes.next_multiple_of(256);
            host += host_bytes.next_multiple_of(256);
            part
        };
        let when = |yes: bool, bytes: usize| if yes { bytes } else { 0 };
        let leaves = jobs * self.leaves();
        // Windows of whole tiles of the largest chunk.
        let tile = 1usize << self.policy.most_chunk(p);
        let asked = if self.policy.window > 0 { 1 << self.policy.window } else { self.ends / (len * n) };
        let window = asked.next_multiple_of(tile).min(leaves);
        let left = |trees: usize, height: usize| trees * self.left(height) * n;
        let xmss = left(jobs * self.grown, p.hp);
        let fors = left(jobs * p.k, p.a);
        let keep = self.policy.replay == 0;
        let mut shared = |bytes: usize| both(bytes, bytes);
        let mut layout = Layout {
            jobs,
            window,
            seeds: shared((when(op != Op::Cache, jobs).max(1) * (2 * n + 8)).max(FEW_KEYS * KEY_WORDS * 4)),
            positions: shared(when(hashes, jobs * (JOB_WORDS + p.k) * 4)),
            flag: shared(when(signs, flag_words(p, jobs) * 4)),
            roots: shared(if op == Op::Cache { jobs * n } else { when(hashes, jobs * (p.d + 1) * n) }),
            fors: shared(when(hashes, jobs * p.k * n)),
            ..Layout::default()
        };
        // Few signatures are copied as a whole, many through the ring.
        let (signatures, few) = (jobs * p.sig_bytes(), jobs.min(MOST_RECORDED) * p.sig_bytes());
        layout.input = both(when(op == Op::Verify, signatures), when(op == Op::Verify, few));
        layout.output = match op {
            Op::Sign => both(signatures, few),
            Op::Keygen => both(jobs * n, jobs * n),
            Op::Verify => both(0, 0),
            Op::Cache => both(jobs * ((2 << p.hp) - 1) * n, jobs * ((2 << p.hp) - 1) * n),
        };
        layout.ring = both(0, when(hashes && signatures > few, ring_bytes(signatures)));
        let mut part = |bytes: usize| both(bytes, 0);
        layout.keys = part(when(op != Op::Cache && jobs > FEW_KEYS, jobs) * KEY_WORDS * 4);
        layout.trace = part(when(signs && keep, jobs * self.grown * len * p.w() * n));
        layout.cached_trace = part(when(signs && keep, jobs * self.cached * len * p.w() * n));
        layout.ends = part(when(op != Op::Verify, window * len * n));
        let checks = match op {
            Op::Verify => 1,
            Op::Sign => self.grown.max(self.cached).max(when(!keep, p.d)),
            _ => 0,
        };
        layout.checked_ends = part(jobs * checks * len * n);
        layout.leaves = part(when(signs && keep, jobs * p.d * n));
        layout.nodes = [part(when(op != Op::Verify, xmss)), part(when(op != Op::Verify, xmss / 2))];
        layout.fors_nodes = [part(when(signs, fors)), part(when(signs, fors / 2))];
        layout.device = at;
        layout.host = host;
        layout
    }

    /// Whether every index of a pass of this size fits its 32 bits.
    fn indexable(&self, layout: &Layout) -> bool {
        let p = self.p;
        let most = u32::MAX as usize / 2;
        let [nodes, fors_nodes] = [layout.nodes[0], layout.fors_nodes[0]];
        let parts = [
            layout.input,
            layout.output,
            layout.trace,
            layout.cached_trace,
            layout.ends,
            layout.checked_ends,
            nodes,
            fors_nodes,
        ];
        parts.iter().all(|part| part.bytes / 4 <= most)
            && (self.op == Op::Verify || layout.jobs * (p.k << p.a).max(self.leaves()) <= most)
            && layout.window * p.len() <= most
    }
}

/// Bytes of nodes that one pass of a cache puts out.
const CACHE_BYTES: usize = 64 << 20;

/// Words of the check: one for the chains of all, and one for each layer of each job.
fn flag_words(p: &Params, jobs: usize) -> usize {
    1 + jobs * p.d
}

/// Keys that the host lays out itself: with no more of them, a launch would take longer.
const FEW_KEYS: usize = 8;

/// Bytes of device memory for a pass of one job: less cannot be had.
pub(crate) fn least_bytes(plan: &Plan, policy: GpuPolicy, budget: u64) -> u64 {
    Shape::new(plan, policy, budget).layout(1).device as u64
}

/// Bytes of device memory for a pass of `jobs` jobs.
#[cfg(test)]
pub(crate) fn device_bytes(plan: &Plan, jobs: usize, policy: GpuPolicy) -> u64 {
    Shape::new(plan, policy, u64::MAX).layout(jobs).device as u64
}

/// Bytes of host memory for a program of `batch` jobs.
pub(crate) fn host_bytes(plan: &Plan, batch: usize, policy: GpuPolicy) -> u64 {
    let jobs = if plan.op == Op::Cache { cache_trees(plan) } else { batch.clamp(1, 1 << 20) };
    // The ends' window is the device's alone.
    Shape::new(plan, policy, u64::MAX).layout(jobs).host as u64
}

/// Trees of a pass of a cache: as many as there are in its largest layer, and as fit page-locked memory.
fn cache_trees(plan: &Plan) -> usize {
    let p = plan.params;
    let most = (CACHE_BYTES / (((2 << p.hp) - 1) * p.n)).max(1);
    most.min(1usize.checked_shl((p.hp * (plan.cached_layers - 1)) as u32).unwrap_or(most))
}

pub(crate) struct GpuProgram<G: Gpu> {
    plan: Plan,
    shape: Shape,
    layout: Layout,
    gpu: Arc<G>,
    kernels: G::Kernels,
    queue: G::Queue,
    memory: G::Memory,
    host: G::HostMemory,
    cache: Arc<NodesCache<G>>,
    /// Whether the host has laid the keys of this pass out: then they stay where they are uploaded to.
    keys_laid_out: bool,
    /// Whether WOTS+ signatures are stored behind the nodes of all keys of this batch.
    stored: bool,
    /// Steps that were recorded, for some number of jobs and keys.
    recorded: Option<Recorded<<G::Queue as Queue>::Recording>>,
    /// Roots and FORS roots of the last run, as words.
    kept: Kept,
}

struct Recorded<R> {
    /// Jobs, keys, and whether signatures are stored.
    what: (usize, usize, bool),
    steps: R,
}

#[derive(Default)]
struct Kept {
    /// Whether there were several passes; else the values of these jobs are in the host's memory.
    passes: bool,
    jobs: usize,
    roots: Vec<u8>,
    fors: Vec<u8>,
}

impl<G: Gpu> GpuProgram<G> {
    pub(crate) fn new(
        gpu: &Arc<G>,
        cache: &Arc<NodesCache<G>>,
        plan: &Plan,
        batch: usize,
        budget: u64,
        policy: GpuPolicy,
    ) -> Result<GpuProgram<G>, Error> {
        let shape = Shape::new(plan, policy, budget);
        let p = plan.params;
        let wanted: &[Kernel] = match plan.op {
            Op::Keygen | Op::Cache => {
                &[Kernel::Keys, Kernel::Chains, Kernel::Xmss, Kernel::XmssWide, Kernel::XmssAbove]
            }
            Op::Sign => Kernel::ALL,
            Op::Verify => {
                &[Kernel::Keys, Kernel::Complete, Kernel::ForsClimb, Kernel::ForsPk, Kernel::ForsPkWide, Kernel::Climb]
            }
        };
        let wanted: Vec<Kernel> = wanted
            .iter()
            .copied()
            .filter(|kernel| match kernel {
                // Of no plan.
                Kernel::Sha256 => false,
                kernel if kernel.is_zk() => false,
                Kernel::Select => policy.replay == 0,
                Kernel::Cached => shape.cached > 0,
                Kernel::Stored => policy.stored > 0 && shape.cached > 1,
                Kernel::Keys => batch > FEW_KEYS,
                // The last pass of a large batch may be a small one.
                Kernel::XmssWide | Kernel::ForsPkWide | Kernel::LeafWide | Kernel::Links => policy.levels == 4,
                Kernel::ForsClimb => plan.op == Op::Verify,
                Kernel::Climb | Kernel::Complete => plan.op == Op::Verify || policy.check == 1,
                _ => true,
            })
            .collect();
        let wanted: Vec<_> = wanted.into_iter().map(|kernel| (kernel, policy.block(kernel))).collect();
        let kernels = gpu.kernels(&policy.config(p, shape.is_thin(batch, gpu.facts().multiprocessors)), &wanted)?;
        let mut jobs = match plan.op {
            Op::Cache => cache_trees(plan),
            _ => batch.max(1),
        };
        let mut layout = shape.layout(jobs);
        // A batch that one program must not or cannot address takes several passes.
        let largest = gpu.facts().largest;
        while !(shape.indexable(&layout) && layout.device as u64 <= budget && layout.host as u64 <= largest) {
            if jobs == 1 {
                let needs = layout.device as u64;
                return Err(Error::OutOfMemory { device: gpu.facts().id.clone(), needs, has: budget });
            }
            jobs = jobs.div_ceil(2);
            layout = shape.layout(jobs);
        }
        let memory = match gpu.alloc(layout.device) {
            // Keys' nodes make way first.
            Err(Error::OutOfMemory { .. }) if cache.drop_unused() => gpu.alloc(layout.device)?,
            memory => memory?,
        };
        Ok(GpuProgram {
            plan: plan.clone(),
            shape,
            host: gpu.alloc_host(layout.host)?,
            layout,
            gpu: gpu.clone(),
            kernels,
            queue: gpu.queue()?,
            memory,
            cache: cache.clone(),
            keys_laid_out: false,
            stored: false,
            recorded: None,
            kept: Kept::default(),
        })
    }

    fn p(&self) -> &'static Params {
        self.plan.params
    }
    fn device(&self, part: Part) -> u64 {
        G::address(&self.memory) + part.at as u64
    }
    fn on_host(&self, part: Part) -> u64 {
        G::host_address(&self.host) + part.on_host as u64
    }
    fn bytes(&mut self, part: Part) -> &mut [u8] {
        &mut G::host_bytes(&mut self.host)[part.on_host..part.on_host + part.host_bytes]
    }
    fn upload(&self, part: Part, bytes: usize) -> Step {
        Step::Upload { to: self.device(part), from: self.on_host(part), bytes }
    }
    fn download(&self, part: Part, bytes: usize) -> Step {
        Step::Download { to: self.on_host(part), from: self.device(part), bytes }
    }
    /// What all launches have in common.
    fn args(&self) -> Args {
        Args {
            keys: self.device(if self.keys_laid_out { self.layout.seeds } else { self.layout.keys }),
            jobs: self.device(self.layout.positions),
            roots: self.device(self.layout.roots),
            sigs: self.device(if self.plan.op == Op::Verify { self.layout.input } else { self.layout.output }),
            flag: self.device(self.layout.flag),
            ..Args::new(self.p())
        }
    }

    /// Whether every launch has the blocks of its policy: a smaller one would have to be compiled first.
    fn fixed(&self) -> bool {
        self.gpu.facts().fixed_blocks && self.shape.policy.levels > 2
    }

    /// A launch of `args.total` threads, or of as many as the policy's levels of parallelism allow.
    fn flat(&self, kernel: Kernel, allowed: [usize; 3], args: Args) -> Launch {
        let levels = self.shape.policy.levels as usize;
        let most = if levels < 3 { allowed[levels] } else { usize::MAX };
        let threads = (args.total as usize).min(most).max(1) as u32;
        // Spread thin work over all multiprocessors, evenly: with few large blocks some would get one more than others.
        let even = threads.div_ceil(self.gpu.facts().multiprocessors).next_multiple_of(32);
        let (block, blocks) = (self.shape.policy.block(kernel), self.shape.policy.blocks);
        let most = if even <= 2048 && blocks == 0 { block.min(64) } else { block };
        let block = if self.fixed() { block } else { even.clamp(32, most).min(threads) };
        Launch { kernel, blocks: threads.div_ceil(block), threads: block, args }
    }
    /// A launch over tiles of `args.count` nodes of trees `height` high; sets chunk and up.
    fn tiled(&self, kernel: Kernel, trees: usize, height: u32, mut args: Args) -> Launch {
        let policy = &self.shape.policy;
        let block = policy.block(kernel);
        let (left, most) = (height - args.base, policy.most_chunk(self.p()));
        let each = args.count / self.gpu.facts().multiprocessors;
        if each >= block {
            // Plenty of work: few levels a launch, so that warps do not run empty towards the top of a tile.
            args.up = left.min(policy.subtree_height).min(most);
            args.chunk = most.min(policy.tile).max(args.up);
        } else {
            // Little of it: as many levels a launch as leave a tile to every multiprocessor; or all, where levels are
            // shorter than launches.
            let even = each.max(1).ilog2();
            args.up = if each < 4 { left } else { left.min(even.max(policy.subtree_height)) }.min(most);
            args.chunk = even.max(args.up).min(most);
        }
        let tiles = args.count.div_ceil(1 << args.chunk);
        let threads = if self.fixed() { block } else { (1u32 << args.chunk).clamp(32, block) };
        let (blocks, threads) = match policy.levels {
            0 => (1, 1),
            1 => (tiles.min(trees as u32), 1),
            _ => (tiles, threads),
        };
        Launch { kernel, blocks, threads, args }
    }

    /// Trees of `trees` and `height`: the first launch is given, the others go up from what it leaves.
    fn above(&self, kernel: Kernel, trees: usize, height: u32, first: Launch, nodes: [Part; 2]) -> Vec<Launch> {
        let mut launches = vec![first];
        let mut last = first.args;
        let mut into = 1;
        while last.base + last.up < height {
            let base = last.base + last.up;
            let count = (trees as u32) << (height - base);
            let args = Args { base, count, skip: 0, nodes: last.outs, outs: self.device(nodes[into]), ..last };
            let launch = self.tiled(kernel, trees, height, args);
            launches.push(launch);
            last = launch.args;
            into = 1 - into;
        }
        launches
    }

    /// Chains, leaves and trees of XMSS: `trees` of them.
    fn xmss(&self, trees: usize, args: Args, steps: &mut Vec<Step>) {
        let (p, hp) = (self.p(), self.p().hp as u32);
        let leaves = trees << p.hp;
        let args = Args { ends: self.device(self.layout.ends), outs: self.device(self.layout.nodes[0]), ..args };
        let mut last: Option<Launch> = None;
        for skip in (0..leaves).step_by(self.layout.window) {
            let count = self.layout.window.min(leaves - skip);
            let here = Args { skip: skip as u32, count: count as u32, total: (count * p.len()) as u32, ..args };
            steps.push(Step::Launch(self.flat(Kernel::Chains, [1, trees, count], here)));
            let up = Args { flags: here.flags & !flags::TRACE, ..here };
            let up = if here.flags & flags::KEEP == 0 { up } else { Args { trace: args.trace, ..up } };
            let mut launch = self.tiled(Kernel::Xmss, trees, hp, up);
            if self.is_few(trees.div_ceil(self.shape.grown.max(1))) {
                let up = hp.min(WIDE_CHUNK);
                let args = Args { chunk: WIDE_CHUNK, up, ..launch.args };
                let blocks = args.count.div_ceil(1 << WIDE_CHUNK);
                launch = Launch { kernel: Kernel::XmssWide, blocks, threads: 96, args };
            }
            // All windows go up by the same number of levels: by that of the first, the largest.
            if let Some(Launch { args: Args { chunk, up, .. }, .. }) = last {
                let tiles = launch.args.count.div_ceil(1 << chunk);
                launch = Launch { blocks: launch.blocks.min(tiles), args: Args { chunk, up, ..launch.args }, ..launch };
            }
            steps.push(Step::Launch(launch));
            last = last.or(Some(launch));
        }
        let Some(first) = last else { return };
        let more = self.above(Kernel::XmssAbove, trees, hp, first, self.layout.nodes);
        steps.extend(more.into_iter().skip(1).map(Step::Launch));
    }

    fn fors(&self, jobs: usize, steps: &mut Vec<Step>, on: impl Fn(Launch) -> Step) {
        let (p, trees) = (self.p(), jobs * self.p().k);
        let args = Args {
            count: (trees << p.a) as u32,
            flags: flags::REVEAL,
            outs: self.device(self.layout.fors_nodes[0]),
            roots: self.device(self.layout.fors),
            ..self.args()
        };
        let first = self.tiled(Kernel::Fors, trees, p.a as u32, args);
        let launches = self.above(Kernel::ForsAbove, trees, p.a as u32, first, self.layout.fors_nodes);
        steps.extend(launches.into_iter().map(&on));
        steps.push(on(self.fors_pk(jobs, Args { nodes: self.device(self.layout.fors), ..self.args() })));
    }

    /// Whether all of a few jobs' hashes at once leave multiprocessors idle: then latency counts, not work.
    fn is_few(&self, jobs: usize) -> bool {
        let leaves = jobs * self.shape.leaves().max(1);
        self.shape.policy.levels == 4
            && jobs <= MOST_RECORDED
            && leaves <= 64 * self.gpu.facts().multiprocessors as usize
    }

    /// PK_FORS of `jobs` jobs from the roots at `args.nodes`.
    fn fors_pk(&self, jobs: usize, args: Args) -> Launch {
        let args = Args { total: jobs as u32, ..args };
        if self.is_few(jobs) {
            return Launch { kernel: Kernel::ForsPkWide, blocks: jobs as u32, threads: 32, args };
        }
        self.flat(Kernel::ForsPk, [1, jobs, jobs], args)
    }

    /// Keys to the device, laid out there unless the host has done it.
    fn keys(&self, keys: usize) -> Vec<Step> {
        let seeds = self.layout.seeds;
        if self.keys_laid_out {
            return vec![self.upload(seeds, keys * KEY_WORDS * 4)];
        }
        let args = Args { nodes: self.device(seeds), total: keys as u32, ..self.args() };
        let upload = self.upload(seeds, keys * (2 * self.p().n + 8));
        vec![upload, Step::Launch(self.flat(Kernel::Keys, [1, keys, keys], args))]
    }

    /// Chains from digits to ends, in sorted tiles.
    fn complete(&self, jobs: usize, mut args: Args) -> Launch {
        let policy = &self.shape.policy;
        let even = (args.total / (8 * self.gpu.facts().multiprocessors)).max(1).ilog2();
        args.chunk = even.clamp(5, policy.sort.max(5));
        let tiles = args.total.div_ceil(1 << args.chunk);
        let (blocks, threads) = match policy.levels {
            0 => (1, 1),
            1 => (tiles.min(jobs as u32), 1),
            2 => (tiles.min(args.count), 1),
            _ if self.fixed() => (tiles, policy.block(Kernel::Complete)),
            _ => (tiles, policy.block(Kernel::Complete).min(1 << args.chunk)),
        };
        Launch { kernel: Kernel::Complete, blocks, threads, args }
    }

    /// Chains from digits to ends at `args.ends`, and on to the roots, for `layers` from `layer0` on.
    fn climb(&self, jobs: usize, args: Args, layer0: usize, layers: usize, compare: bool, launches: &mut Vec<Launch>) {
        let units = jobs * layers;
        if units == 0 {
            return;
        }
        let args = Args { layer0: layer0 as u32, layers: layers as u32, ..args };
        let chains = Args { count: units as u32, total: (units * self.p().len()) as u32, ..args };
        launches.push(self.complete(jobs, chains));
        let args = Args { flags: if compare { flags::COMPARE } else { 0 }, total: units as u32, ..args };
        launches.push(self.flat(Kernel::Climb, [1, jobs, units], args));
    }

    fn sign_steps(&self, jobs: usize, keys: usize) -> Vec<Step> {
        let (p, l, policy) = (self.p(), &self.layout, self.shape.policy);
        let (grown, cached, keep) = (self.shape.grown, self.shape.cached, policy.replay == 0);
        let few = keep && self.is_few(jobs);
        let mut steps = self.keys(keys);
        steps.push(self.upload(l.positions, jobs * (JOB_WORDS + p.k) * 4));
        let flag_bytes = flag_words(p, jobs) * 4;
        if !few {
            steps.push(Step::Zero { at: self.device(l.flag), bytes: flag_bytes });
        }
        if policy.beside == 1 {
            steps.push(Step::Fork);
            self.fors(jobs, &mut steps, Step::Beside);
        } else {
            self.fors(jobs, &mut steps, Step::Launch);
        }
        let kept = if keep { flags::TRACE } else { 0 };
        let trees = jobs * grown;
        let xmss = Args { layers: grown.max(1) as u32, rows: trees as u32, trace: self.device(l.trace), ..self.args() };
        if grown > 0 {
            self.xmss(trees, Args { flags: flags::REVEAL | kept, ..xmss }, &mut steps);
        }
        // Cached layers whose chains are walked: the lowest signs a root that is new.
        let walked = if self.stored { 1 } else { cached };
        let units = jobs * walked;
        let above = Args {
            layer0: grown as u32,
            layers: walked.max(1) as u32,
            rows: units as u32,
            count: units as u32,
            trace: self.device(l.cached_trace),
            ends: self.device(l.checked_ends),
            ..self.args()
        };
        let all = |units: usize| (units * p.len()) as u32;
        let mut chained = Vec::new();
        if cached > 0 {
            let all_cached = jobs * cached;
            let args = Args { layers: cached as u32, total: all_cached as u32, ..above };
            steps.push(Step::Launch(self.flat(Kernel::Cached, [1, jobs, all_cached], args)));
            if self.stored {
                let (sigs, flag) =
                    if few { (self.on_host(l.output), self.on_host(l.flag)) } else { (above.sigs, above.flag) };
                let stored = nodes::stored_layers(p, cached);
                steps.push(Step::Launch(self.rows(jobs, stored, Args { sigs, flag, ..self.args() })));
            }
            if keep {
                let args = Args { flags: flags::ONLY | flags::TRACE, total: all(units), ..above };
                steps.push(Step::Launch(self.flat(Kernel::Chains, [1, units, units], args)));
            }
        }
        let compare = if policy.check == 1 { flags::COMPARE } else { 0 };
        let both = [(Args { count: trees as u32, ..xmss }, trees), (above, units)];
        let both = both.into_iter().filter(|(_, units)| *units > 0);
        // Where the leaves of each of the two are, computed once more for the check.
        let again = |args: &Args| self.device(l.leaves) + u64::from(args.layer0) * (jobs * p.n) as u64;
        if few && policy.check == 1 {
            for (args, units) in both.clone() {
                let args = Args { outs: again(&args), ..args };
                let launch = Launch { kernel: Kernel::LeafWide, blocks: units as u32, threads: 32, args };
                if policy.beside == 1 {
                    chained.push(Step::Beside(launch));
                } else {
                    chained.push(Step::Launch(launch));
                }
            }
        }
        // The leaves are grown beside what has the chains to wait for.
        let after_chains =
            steps.iter().rposition(|step| matches!(step, Step::Launch(Launch { kernel: Kernel::Chains, .. })));
        if let (Some(at), false) = (after_chains, chained.is_empty()) {
            if policy.beside == 1 {
                chained.insert(0, Step::Fork);
            }
            steps.splice(at + 1..at + 1, chained);
        }
        if policy.beside == 1 {
            steps.push(Step::Join);
        }
        if few {
            let launches = both.clone().count();
            for (i, (args, units)) in both.enumerate() {
                let slots = (l.fors.at + l.fors.bytes - l.roots.at) / 4;
                let (copy, copied) = if i + 1 == launches { (COPY, slots + jobs * p.sig_bytes() / 4) } else { (0, 0) };
                let checked = if policy.check == 1 { units } else { 0 };
                let args = Args {
                    nodes: again(&args),
                    ends: self.on_host(l.output),
                    outs: self.on_host(l.roots),
                    flag: self.on_host(l.flag),
                    flags: compare | copy,
                    chunk: slots as u32,
                    total: all(units * p.w()) + (checked + copied) as u32,
                    ..args
                };
                steps.push(Step::Launch(self.flat(Kernel::Links, [1, units, units], args)));
            }
        } else if keep {
            for (args, units) in both {
                let args = Args { total: all(units), ..args };
                steps.push(Step::Launch(self.flat(Kernel::Select, [1, units, units], args)));
            }
        } else {
            let units = jobs * (grown + walked);
            let layers = (grown + walked) as u32;
            let args = Args { layer0: 0, layers, count: units as u32, total: all(units), ..self.args() };
            let args = Args { flags: flags::REPLAY, ..args };
            steps.push(Step::Launch(self.flat(Kernel::Chains, [1, jobs, units], args)));
        }
        if policy.check == 1 && !few {
            if keep && cached > 0 {
                // The cached layers' chains were walked to their ends already.
                let args = Args { flags: flags::COMPARE, total: units as u32, ..above };
                steps.push(Step::Launch(self.flat(Kernel::Climb, [1, jobs, units], args)));
            }
            let (layers, mut launches) = (if keep { grown } else { grown + walked }, Vec::new());
            let args = Args { ends: self.device(l.checked_ends), ..self.args() };
            self.climb(jobs, args, 0, layers, true, &mut launches);
            steps.extend(launches.into_iter().map(Step::Launch));
        }
        if !few {
            steps.push(self.download(l.flag, flag_bytes));
            steps.push(self.download(l.roots, jobs * (p.d + 1) * p.n));
            steps.push(self.download(l.fors, jobs * p.k * p.n));
            if jobs <= MOST_RECORDED {
                steps.push(self.download(l.output, jobs * p.sig_bytes()));
            }
        }
        steps
    }

    /// WOTS+ signatures to their rows behind the nodes, or from there.
    fn rows(&self, jobs: usize, layers: std::ops::Range<usize>, args: Args) -> Launch {
        let units = (jobs * layers.len()) as u32;
        let base = nodes::rows_at(self.node_bytes()) as u32;
        let args = Args { layer0: layers.start as u32, layers: layers.len() as u32, total: units, base, ..args };
        let (blocks, threads) = if self.shape.policy.levels == 0 { (1, 1) } else { (units, 64) };
        Launch { kernel: Kernel::Stored, blocks, threads, args }
    }

    /// Wipes what was secret in device memory.
    fn wipes(&self) -> Vec<Step> {
        let l = &self.layout;
        let secrets = [l.seeds, l.keys, l.trace, l.cached_trace];
        let secrets = secrets.into_iter().filter(|part| part.bytes > 0 && self.plan.op != Op::Verify);
        secrets.map(|part| Step::Zero { at: self.device(part), bytes: part.bytes }).collect()
    }

    fn verify_steps(&self, jobs: usize, keys: usize) -> Vec<Step> {
        let (p, l) = (self.p(), &self.layout);
        let mut steps = self.keys(keys);
        steps.push(self.upload(l.positions, jobs * (JOB_WORDS + p.k) * 4));
        if jobs <= MOST_RECORDED {
            steps.push(self.upload(l.input, jobs * p.sig_bytes()));
        }
        // Roots of an earlier batch must not pass for those of this one.
        steps.push(Step::Zero { at: self.device(l.roots), bytes: jobs * (p.d + 1) * p.n });
        let args = Args { ends: self.device(l.checked_ends), ..self.args() };
        let climb = Args { roots: self.device(l.fors), total: (jobs * p.k) as u32, ..args };
        let mut launches = vec![
            self.flat(Kernel::ForsClimb, [1, jobs, jobs * p.k], climb),
            self.fors_pk(jobs, Args { nodes: self.device(l.fors), ..args }),
        ];
        for layer in 0..p.d {
            self.climb(jobs, args, layer, 1, false, &mut launches);
        }
        steps.extend(launches.into_iter().map(Step::Launch));
        steps.push(self.download(l.roots, jobs * (p.d + 1) * p.n));
        steps.push(self.download(l.fors, jobs * p.k * p.n));
        steps
    }

    fn keygen_steps(&self, jobs: usize) -> Vec<Step> {
        let (p, l) = (self.p(), &self.layout);
        let mut steps = self.keys(jobs);
        // A few roots are written to the host's memory at once.
        let few = jobs <= MOST_RECORDED;
        let roots = if few { self.on_host(l.output) } else { self.device(l.output) };
        let args = Args { layer0: p.d as u32 - 1, roots, ..self.args() };
        self.xmss(jobs, Args { flags: flags::EACH_KEY | flags::TOPS, ..args }, &mut steps);
        if !few {
            steps.push(self.download(l.output, jobs * p.n));
        }
        steps
    }

    /// All nodes of `trees` trees of a layer.
    fn cache_steps(&self, layer: usize, first: usize, trees: usize) -> Vec<Step> {
        let (p, l) = (self.p(), &self.layout);
        let mut steps = self.keys(1);
        let args = Args {
            layer0: layer as u32,
            first: first as u32,
            trace: self.device(l.output),
            flags: flags::ALL_TREES | flags::TOPS | flags::KEEP,
            ..self.args()
        };
        self.xmss(trees, args, &mut steps);
        steps.push(self.download(l.output, trees * ((2 << p.hp) - 1) * p.n));
        steps
    }

    /// Submits steps; or with `record` replays what was recorded for the same. Gives the time of each launch
    /// if they are timed alone.
    fn submit(
        &mut self,
        steps: impl Fn(&Self) -> Vec<Step>,
        record: Option<(usize, usize, bool)>,
    ) -> Result<Vec<StageTime>, Error> {
        let steps = |program: &Self| merged(&program.bounded(steps(program)));
        let Some(what) = record.filter(|_| self.shape.policy.stages == 0) else {
            let steps = steps(self);
            if self.shape.policy.stages == 1 {
                return self.one_by_one(&steps);
            }
            return self.queue.submit(&self.kernels, &steps).map(|()| Vec::new());
        };
        let recorded = self.recorded.take().filter(|recorded| recorded.what == what);
        let recorded = match recorded {
            Some(recorded) => recorded,
            None => {
                let steps = self.queue.record(&self.kernels, &steps(self))?;
                Recorded { what, steps }
            }
        };
        let done = self.queue.replay(&recorded.steps);
        self.recorded = Some(recorded);
        done.map(|()| Vec::new())
    }

    /// The same steps in no more blocks than the policy allows.
    fn bounded(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let most = self.shape.policy.blocks;
        for step in &mut steps {
            if let (Step::Launch(launch) | Step::Beside(launch), 1..) = (step, most) {
                launch.blocks = launch.blocks.min(most);
            }
        }
        steps
    }

    /// Submits step after step, waiting for each: the times of the launches.
    fn one_by_one(&mut self, steps: &[Step]) -> Result<Vec<StageTime>, Error> {
        let mut stages = Vec::new();
        self.queue.wait()?;
        for step in steps {
            let (step, launch) = match *step {
                Step::Fork | Step::Join => continue,
                Step::Launch(launch) | Step::Beside(launch) => (Step::Launch(launch), Some(launch)),
                step => (step, None),
            };
            let start = Instant::now();
            self.queue.submit(&self.kernels, &[step])?;
            let waited = self.queue.wait()?;
            if let Some(Launch { kernel, blocks, threads, .. }) = launch {
                let time = waited.map_or(start.elapsed(), |timing| timing.execute);
                stages.push(StageTime { name: kernel.name(), blocks, threads, time });
            }
        }
        Ok(stages)
    }

    /// Has the device work on a pass, and wipes what was secret. What is on the host of the keys is wiped in any case.
    fn go(
        &mut self,
        steps: impl Fn(&Self) -> Vec<Step>,
        record: Option<(usize, usize, bool)>,
        signatures: &[&[u8]],
        out: Option<&mut [u8]>,
    ) -> Result<Timing, Error> {
        let mut done = self.send(signatures).and_then(|()| self.submit(steps, record));
        if let (Some(out), Ok(_)) = (out, &done) {
            done = self.receive(out).and(done);
        }
        let wiped = if done.is_ok() { self.queue.follow(&self.kernels, &self.wipes()) } else { Ok(()) };
        let waited = self.queue.wait();
        let seeds = self.layout.seeds;
        self.bytes(seeds).zeroize();
        if done.is_err() {
            self.forget();
        }
        let stages = done?;
        wiped?;
        let timing = waited?.unwrap_or_default();
        if stages.is_empty() {
            return Ok(timing);
        }
        // What was waited for at the end were copies.
        let execute = stages.iter().map(|stage| stage.time).sum();
        Ok(Timing { execute, download: timing.execute, upload: timing.upload, stages })
    }

    /// Wipes all memory: of a failed pass nothing stays, since a signature that failed its check would help an attacker.
    fn forget(&mut self) {
        let all = Step::Zero { at: G::address(&self.memory), bytes: self.layout.device };
        let wiped = self.queue.follow(&self.kernels, &[all]);
        // A device that fails now has nothing that could be wiped any more.
        let _ = wiped.and_then(|()| self.queue.wait());
        G::host_bytes(&mut self.host).zeroize();
        self.kept = Kept::default();
    }

    /// Signatures to the device.
    fn send(&mut self, signatures: &[&[u8]]) -> Result<(), Error> {
        if signatures.is_empty() {
            return Ok(());
        }
        let (shared, part, to) = (self.cache.clone(), self.layout.ring, self.device(self.layout.input));
        let (mut ring, host) = self.ring();
        let _turn = shared.turn();
        ring.send(&mut G::host_bytes(host)[part.on_host..][..part.host_bytes], signatures, to)
    }

    /// Signatures from the device, all but R; none of them if a check failed.
    fn receive(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let (p, part, from) = (self.p(), self.layout.ring, self.device(self.layout.output));
        self.queue.mark(0)?;
        self.queue.wait_for(0)?;
        self.checked(out.len() / p.sig_bytes())?;
        let (mut ring, host) = self.ring();
        ring.receive(&G::host_view(host)[part.on_host..][..part.host_bytes], out, p.n, from)
    }

    fn ring(&mut self) -> (Ring<'_, G::Queue>, &mut G::HostMemory) {
        let (row, parallel, part) = (self.p().sig_bytes(), self.shape.policy.threads > 1, self.layout.ring);
        let (address, bytes) = (self.on_host(part), part.host_bytes);
        let (queue, kernels) = (&mut self.queue, &self.kernels);
        (Ring { queue, kernels, address, bytes, row, parallel }, &mut self.host)
    }

    /// Whether every layer of every job of the pass at hand passed its root-consistency check: what was not checked has not.
    fn checked(&self, jobs: usize) -> Result<(), Error> {
        if self.shape.policy.check == 0 {
            return Ok(());
        }
        let mut words = self.view(self.layout.flag, flag_words(self.p(), jobs) * 4).chunks_exact(4);
        if words.next() == Some(&[0; 4]) && words.all(|word| word == 1u32.to_le_bytes()) {
            return Ok(());
        }
        Err(self.inconsistent())
    }

    fn inconsistent(&self) -> Error {
        let what = "a layer's root is not the one that its signature leads to".into();
        Error::Inconsistent { device: self.gpu.facts().id.clone(), what }
    }

    /// Lays the keys of a pass out; gives their number, and the number of each in `numbers`.
    fn put_keys(&mut self, batch: &Batch<'_>, of: &[u32], numbers: &mut [u32], nodes: &[u64]) -> usize {
        let each = self.plan.op == Op::Keygen;
        let mut distinct = Vec::new();
        for key in of {
            if each || numbers[*key as usize] == u32::MAX {
                numbers[*key as usize] = distinct.len() as u32;
                distinct.push(*key as usize);
            }
        }
        let (p, few, seeds) = (self.p(), distinct.len() <= FEW_KEYS, self.layout.seeds);
        let row = if few { KEY_WORDS * 4 } else { 2 * p.n + 8 };
        let parallel = self.shape.policy.threads > 1 && distinct.len() >= 1024;
        let put = |(to, key): (&mut [u8], &usize)| {
            let (key, nodes) = (&batch.keys[*key], nodes.get(*key).copied().unwrap_or(0));
            if few {
                keys::lay_out(p, key, nodes, to);
            } else {
                to[..p.n].copy_from_slice(key.pk_seed);
                to[p.n..2 * p.n].fill(0);
                to[p.n..p.n + key.sk_seed.len()].copy_from_slice(key.sk_seed);
                to[2 * p.n..].copy_from_slice(&nodes.to_le_bytes());
            }
        };
        let rows = &mut self.bytes(seeds)[..distinct.len() * row];
        if parallel {
            rows.par_chunks_exact_mut(row).zip(&distinct).with_min_len(256).for_each(put);
        } else {
            rows.chunks_exact_mut(row).zip(&distinct).for_each(put);
        }
        self.keys_laid_out = few;
        distinct.len()
    }

    fn put_positions(&mut self, of: &[u32], numbers: &[u32], positions: &[Position]) {
        let (k, part, parallel) = (self.p().k, self.layout.positions, self.shape.policy.threads > 1);
        let row = (JOB_WORDS + k) * 4;
        let put = |((to, key), at): ((&mut [u8], &u32), &Position)| {
            let head = [numbers[*key as usize], (at.idx_tree >> 32) as u32, at.idx_tree as u32, at.idx_leaf];
            for (to, word) in to.chunks_exact_mut(4).zip(head.iter().chain(&at.fors)) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        };
        let rows = &mut self.bytes(part)[..of.len() * row];
        if parallel && of.len() >= 256 {
            rows.par_chunks_exact_mut(row).zip(of).zip(positions).with_min_len(64).for_each(put);
        } else {
            rows.chunks_exact_mut(row).zip(of).zip(positions).for_each(put);
        }
    }

    /// Of a batch of several passes, every pass's values are kept; of a single one they stay where they are.
    fn keep(&mut self, jobs: usize) {
        if !self.kept.passes {
            self.kept.jobs = jobs;
            return;
        }
        let (p, roots, fors) = (self.p(), self.layout.roots, self.layout.fors);
        let (roots, fors) = (self.view(roots, jobs * (p.d + 1) * p.n), self.view(fors, jobs * p.k * p.n));
        let (roots, fors) = (roots.to_vec(), fors.to_vec());
        self.kept.roots.extend(roots);
        self.kept.fors.extend(fors);
    }

    fn view(&self, part: Part, bytes: usize) -> &[u8] {
        &G::host_view(&self.host)[part.on_host..part.on_host + bytes]
    }

    /// Bytes of a key's cached nodes.
    fn node_bytes(&self) -> usize {
        cache_bytes(self.p(), self.shape.cached).expect("checked when the plan was made")
    }

    /// The cached nodes of the batch's keys in device memory.
    fn hold_nodes(&mut self, batch: &Batch<'_>) -> Result<Vec<Arc<Nodes<G>>>, Error> {
        let mut signatures = vec![0; batch.keys.len()];
        batch.key_of.iter().for_each(|key| signatures[*key as usize] += 1);
        batch.keys.iter().zip(signatures).map(|(key, signatures)| self.nodes_of(key, signatures)).collect()
    }

    /// A key's nodes, of which the batch wants so many signatures: uploaded, unless they are there from an earlier batch.
    fn nodes_of(&mut self, key: &Key<'_>, signatures: u64) -> Result<Arc<Nodes<G>>, Error> {
        let (cache, id) = (self.cache.clone(), key.cached_id);
        let is_enough = |program: &Self, nodes: &Nodes<G>, all| nodes.stored || !program.stores(all);
        if let Some((nodes, all)) = cache.get(id, signatures)
            && is_enough(self, &nodes, all)
        {
            return Ok(nodes);
        }
        let _turn = cache.turn_to_make();
        // Another program may have made them meanwhile.
        let found = cache.get(id, 0);
        let all = found.as_ref().map_or(signatures, |(_, all)| *all);
        if let Some((nodes, all)) = &found
            && is_enough(self, nodes, *all)
        {
            return Ok(nodes.clone());
        }
        if id != 0 && self.stores(all) {
            match self.make_nodes(key, true) {
                // Signing does without, where there is no memory for them.
                Err(Error::OutOfMemory { .. }) => {}
                made => return Ok(cache.put(id, made?, all)),
            }
        }
        match found {
            Some((nodes, _)) => Ok(nodes),
            None => Ok(cache.put(id, self.make_nodes(key, false)?, all)),
        }
    }

    /// Whether a key of which so many signatures were asked for gets its WOTS+ signatures of cached roots stored: when making
    /// those signatures has cost as much as storing would, so that all together never costs twice of what it could.
    fn stores(&self, signatures: u64) -> bool {
        let (p, cached) = (self.p(), self.shape.cached);
        let rows = nodes::rows(p, cached);
        let can = rows > 0 && self.cache.fits(nodes::bytes_with_rows(p, cached, self.node_bytes()));
        can && match self.shape.policy.stored {
            0 => false,
            1 => rows.div_ceil(self.layout.jobs) <= MOST_PASSES && signatures as usize * (cached - 1) >= rows,
            _ => true,
        }
    }

    /// Nodes in new device memory, with signatures behind them if so.
    fn make_nodes(&mut self, key: &Key<'_>, stored: bool) -> Result<Nodes<G>, Error> {
        let Layout { output, ring, .. } = self.layout;
        let staging = if ring.host_bytes > output.host_bytes { ring } else { output };
        let nodes = key.cached_nodes.len();
        let bytes = if stored { nodes::bytes_with_rows(self.p(), self.shape.cached, nodes) } else { nodes };
        let memory = match self.gpu.alloc(bytes) {
            Err(Error::OutOfMemory { .. }) if !stored && self.cache.drop_unused() => self.gpu.alloc(bytes)?,
            memory => memory?,
        };
        for (i, part) in key.cached_nodes.chunks(staging.host_bytes).enumerate() {
            self.bytes(staging)[..part.len()].copy_from_slice(part);
            let to = G::address(&memory) + (i * staging.host_bytes) as u64;
            let step = Step::Upload { to, from: self.on_host(staging), bytes: part.len() };
            self.queue.submit(&self.kernels, &[step])?;
            self.queue.wait()?;
        }
        if stored {
            self.store(key, G::address(&memory))?;
        }
        Ok(Nodes { memory, bytes, stored })
    }

    /// Signs the roots of all cached trees, a job each, checks the signatures, and stores them behind the key's nodes.
    fn store(&mut self, key: &Key<'_>, nodes: u64) -> Result<(), Error> {
        let (p, l) = (self.p(), self.layout);
        let batch = Batch { keys: std::slice::from_ref(key), key_of: &[0], positions: &[], signatures: &[] };
        for layer in nodes::stored_layers(p, self.shape.cached) {
            let leaves = nodes::leaves(p, layer);
            for first in (0..leaves).step_by(l.jobs) {
                let count = l.jobs.min(leaves - first);
                self.put_keys(&batch, batch.key_of, &mut [u32::MAX], &[nodes]);
                // The tree below each leaf; its own leaf and FORS do not matter.
                let row = (JOB_WORDS + p.k) * 4;
                for (to, leaf) in self.bytes(l.positions).chunks_exact_mut(row).zip(first..first + count) {
                    let tree = (leaf as u64) << (p.hp * (layer - 1));
                    for (to, word) in to.chunks_exact_mut(4).zip([0, (tree >> 32) as u32, tree as u32, 0]) {
                        to.copy_from_slice(&word.to_le_bytes());
                    }
                }
                let done = self.go(|program| program.store_steps(layer, count), None, &[], None);
                let flags = self.view(l.flag, flag_words(p, count) * 4);
                let agrees = |job: usize| flags[4 * (1 + job * p.d + layer)..][..4] == 1u32.to_le_bytes();
                if done.is_ok() && !(0..count).all(agrees) {
                    self.forget();
                    return Err(self.inconsistent());
                }
                done?;
            }
        }
        Ok(())
    }

    fn store_steps(&self, layer: usize, jobs: usize) -> Vec<Step> {
        let (p, l) = (self.p(), &self.layout);
        let flag_bytes = flag_words(p, jobs) * 4;
        let mut steps = self.keys(1);
        steps.push(self.upload(l.positions, jobs * (JOB_WORDS + p.k) * 4));
        steps.push(Step::Zero { at: self.device(l.flag), bytes: flag_bytes });
        let args = Args { ends: self.device(l.checked_ends), ..self.args() };
        // The root that is signed, then that of the layer itself.
        let both = Args { layer0: layer as u32 - 1, layers: 2, total: 2 * jobs as u32, ..args };
        let one = Args { layer0: layer as u32, count: jobs as u32, total: (jobs * p.len()) as u32, ..args };
        let mut launches = vec![
            self.flat(Kernel::Cached, [1, jobs, 2 * jobs], both),
            self.flat(Kernel::Chains, [1, jobs, jobs], Args { flags: flags::REPLAY, ..one }),
        ];
        self.climb(jobs, args, layer, 1, true, &mut launches);
        launches.push(self.rows(jobs, layer..layer + 1, Args { flags: flags::KEEP, ..args }));
        steps.extend(launches.into_iter().map(Step::Launch));
        steps.push(self.download(l.flag, flag_bytes));
        steps
    }

    /// A pass of a batch that signs, verifies or makes keys.
    fn pass(
        &mut self,
        batch: &Batch<'_>,
        jobs: std::ops::Range<usize>,
        nodes: &[u64],
        out: &mut [u8],
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        let (p, op, count) = (self.p(), self.plan.op, jobs.len());
        let of = &batch.key_of[jobs.clone()];
        let mut numbers = vec![u32::MAX; batch.keys.len()];
        let keys = self.put_keys(batch, of, &mut numbers, nodes);
        let flag = self.layout.flag;
        self.bytes(flag).fill(0);
        if op != Op::Keygen {
            self.put_positions(of, &numbers, &batch.positions[jobs.clone()]);
        }
        let (few, row) = (count <= MOST_RECORDED, p.sig_bytes());
        let mut sent: &[&[u8]] = if op == Op::Verify { &batch.signatures[jobs.clone()] } else { &[] };
        if few {
            let input = self.layout.input;
            for (to, from) in self.bytes(input).chunks_exact_mut(row).zip(std::mem::take(&mut sent)) {
                to.copy_from_slice(from);
            }
        }
        let record = (self.shape.policy.record == 1 && few).then_some((count, keys, self.stored));
        let laid_out = start.elapsed();
        let steps = |program: &Self| match op {
            Op::Keygen => program.keygen_steps(count),
            Op::Sign => program.sign_steps(count, keys),
            _ => program.verify_steps(count, keys),
        };
        let received = if op == Op::Sign && !few { Some(&mut *out) } else { None };
        let mut timing = self.go(steps, record, sent, received)?;
        let start = Instant::now();
        match op {
            Op::Keygen => {
                let part = self.layout.output;
                out.copy_from_slice(&self.bytes(part)[..out.len()]);
            }
            Op::Sign => {
                if few {
                    if let Err(why) = self.checked(count) {
                        self.forget();
                        return Err(why);
                    }
                    let output = self.layout.output;
                    for (to, from) in out.chunks_exact_mut(row).zip(self.bytes(output).chunks_exact(row)) {
                        to[p.n..].copy_from_slice(&from[p.n..]);
                    }
                }
                self.keep(count);
            }
            _ => {
                self.keep(count);
                let row = (p.d + 1) * p.n;
                let roots = self.view(self.layout.roots, count * row);
                for (to, roots) in out.chunks_exact_mut(p.n).zip(roots.chunks_exact(row)) {
                    to.copy_from_slice(&roots[p.d * p.n..]);
                    in_bytes(p, to);
                }
            }
        }
        timing.upload += laid_out;
        timing.download += start.elapsed();
        Ok(timing)
    }

    fn cache(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        let (p, mut timing) = (self.p(), Timing::default());
        let tree = ((2 << p.hp) - 1) * p.n;
        for (key, mut rest) in batch.key_of.iter().zip(out.chunks_exact_mut(self.plan.out_bytes())) {
            for layer in (0..p.d).rev().take(self.plan.cached_layers) {
                let trees = 1usize << (p.hp * (p.d - 1 - layer));
                let mut numbers = vec![u32::MAX; batch.keys.len()];
                for first in (0..trees).step_by(self.layout.jobs) {
                    let count = self.layout.jobs.min(trees - first);
                    numbers.fill(u32::MAX);
                    self.put_keys(batch, &[*key], &mut numbers, &[]);
                    timing.execute +=
                        self.go(|program| program.cache_steps(layer, first, count), None, &[], None)?.execute;
                    let (to, left) = std::mem::take(&mut rest).split_at_mut(count * tree);
                    let part = self.layout.output;
                    to.copy_from_slice(&self.bytes(part)[..count * tree]);
                    rest = left;
                }
            }
        }
        Ok(timing)
    }
}

/// log2 of the leaves that a block of the wide kernels works on at a time.
const WIDE_CHUNK: u32 = 3;

/// Passes in which signatures are stored, at most: a program of few jobs leaves that to another.
const MOST_PASSES: usize = 1024;

/// Jobs of a batch that is submitted as a recording: with more, the launches cost nothing beside the work.
const MOST_RECORDED: usize = 16;

/// Words of a node, as the device keeps them, become bytes.
fn in_bytes(p: &Params, words: &mut [u8]) {
    if p.family == Family::Sha2 {
        words.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
}

/// Copies that follow each other on both sides become one.
fn merged(steps: &[Step]) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        match (out.last_mut(), *step) {
            (Some(Step::Upload { to, from, bytes: have }), Step::Upload { to: to2, from: from2, bytes })
            | (Some(Step::Download { to, from, bytes: have }), Step::Download { to: to2, from: from2, bytes })
                if near(*to, *from, *have, to2, from2) =>
            {
                *have = (to2 - *to) as usize + bytes;
            }
            _ => out.push(*step),
        }
    }
    out
}

/// Whether the gap after one copy is no more than alignment, and the same on both sides.
fn near(to: u64, from: u64, have: usize, to2: u64, from2: u64) -> bool {
    let end = to + have as u64;
    to2 >= end && to2 - end < 256 && to2 - to == from2.wrapping_sub(from)
}

impl<G: Gpu> Drop for GpuProgram<G> {
    /// What was computed may have been rejected later, by the caller: nothing of it stays.
    fn drop(&mut self) {
        self.forget();
    }
}

impl<G: Gpu> Program for GpuProgram<G> {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn run(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        batch.check(&self.plan, out)?;
        self.kept = Kept { passes: batch.len() > self.layout.jobs, ..Kept::default() };
        if self.plan.op == Op::Cache {
            return self.cache(batch, out);
        }
        let held = if self.shape.cached > 0 { self.hold_nodes(batch)? } else { Vec::new() };
        let nodes: Vec<u64> = held.iter().map(|nodes| G::address(&nodes.memory)).collect();
        self.stored = !held.is_empty() && self.shape.policy.stored > 0 && held.iter().all(|nodes| nodes.stored);
        let (each, mut timing) = (self.plan.out_bytes(), Timing::default());
        for first in (0..batch.len()).step_by(self.layout.jobs) {
            let jobs = first..(first + self.layout.jobs).min(batch.len());
            let out = &mut out[jobs.start * each..jobs.end * each];
            let pass = self.pass(batch, jobs, &nodes, out).inspect_err(|_| {
                // Nodes that are damaged would fail every batch of their key.
                batch.keys.iter().for_each(|key| self.cache.remove(key.cached_id));
            })?;
            timing.upload += pass.upload;
            timing.execute += pass.execute;
            timing.download += pass.download;
            timing.stages.extend(pass.stages);
        }
        Ok(timing)
    }

    fn read(&self, slot: Slot) -> Option<Vec<u8>> {
        let p = self.p();
        if !matches!(self.plan.op, Op::Sign | Op::Verify) {
            return None;
        }
        let (kept, row, each) = (&self.kept, (p.d + 1) * p.n, p.k * p.n);
        let (roots, fors) = match kept.passes {
            true => (&kept.roots[..], &kept.fors[..]),
            false => (self.view(self.layout.roots, kept.jobs * row), self.view(self.layout.fors, kept.jobs * each)),
        };
        let jobs = || roots.chunks_exact(row);
        let mut bytes = match slot {
            Slot::ForsRoots => fors.to_vec(),
            Slot::ForsPk => jobs().flat_map(|roots| &roots[..p.n]).copied().collect(),
            Slot::XmssRoots => {
                jobs().flat_map(|roots| &roots[p.n..row - self.plan.cached_layers * p.n]).copied().collect()
            }
            Slot::Positions | Slot::WotsChains | Slot::Signature => return None,
        };
        in_bytes(p, &mut bytes);
        Some(bytes)
    }
}
