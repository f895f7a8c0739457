//! The steps of a pass: which kernels, in which order and shapes.

use super::layout::{Part, flag_words};
use super::{GpuProgram, Hashed, MOST_RECORDED, WIDE_CHUNK};
use crate::gpu::{Gpu, Launch, Step};
use crate::nodes;
use hypergrove_fips205::plan::Op;
use hypergrove_kernels::flags::COPY;
use hypergrove_kernels::{Args, BETWEEN, JOB_WORDS, KEY_WORDS, Kernel, SOLO_FORS_LEVELS, flags};

/// What the steps of signing share.
struct Signing {
    jobs: usize,
    /// Whether chain values are kept.
    keep: bool,
    /// Whether signatures are so few that they have kernels of their own.
    few: bool,
    /// Cached layers whose chains are walked: the lowest signs a root that is new.
    walked: usize,
    /// The layers that are grown, and how many (job, layer) pairs there are of them.
    grown: (Args, usize),
    /// The same of the cached layers whose chains are walked.
    above: (Args, usize),
}

impl Signing {
    /// Both groups of layers, without an empty one.
    fn groups(&self) -> impl Iterator<Item = (Args, usize)> {
        [self.grown, self.above].into_iter().filter(|(_, units)| *units > 0)
    }
}

impl<G: Gpu> GpuProgram<G> {
    /// Whether every launch has the blocks of its policy: a smaller one would have to be compiled first.
    pub(super) fn fixed(&self) -> bool {
        self.gpu.facts().fixed_blocks && self.shape.policy.levels > 2
    }

    /// A launch of `args.total` threads, or of as many as the policy's levels of parallelism allow.
    pub(super) fn flat(&self, kernel: Kernel, allowed: [usize; 3], args: Args) -> Launch {
        let levels = self.shape.policy.levels as usize;
        let most = if levels < 3 { allowed[levels] } else { usize::MAX };
        let threads = (args.total as usize).min(most).max(1) as u32;
        // Spread thin work over all compute units, evenly: with few large blocks some would get one more than others.
        let even = threads.div_ceil(self.gpu.facts().compute_units).next_multiple_of(32);
        let (block, blocks) = (self.shape.policy.block(kernel), self.shape.policy.blocks);
        let most = if even <= 2048 && blocks == 0 { block.min(64) } else { block };
        let block = if self.fixed() { block } else { even.clamp(32, most).min(threads) };
        Launch { kernel, blocks: threads.div_ceil(block), threads: block, args }
    }
    /// A launch over tiles of `args.count` nodes of trees `height` high; sets chunk and up.
    pub(super) fn tiled(&self, kernel: Kernel, trees: usize, height: u32, mut args: Args) -> Launch {
        let policy = &self.shape.policy;
        let block = policy.block(kernel);
        let (left, most) = (height - args.base, policy.most_chunk(self.p()));
        let each = args.count / self.gpu.facts().compute_units;
        if each >= block {
            // Plenty of work: few levels a launch, so that warps do not run empty towards the top of a tile.
            args.up = left.min(policy.subtree_height).min(most);
            args.chunk = most.min(policy.tile).max(args.up);
        } else {
            // Little of it: as many levels a launch as leave a tile to every compute unit; or all, where levels are
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
    pub(super) fn above(
        &self,
        kernel: Kernel,
        trees: usize,
        height: u32,
        first: Launch,
        nodes: [Part; 2],
    ) -> Vec<Launch> {
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
    pub(super) fn xmss(&self, trees: usize, args: Args, steps: &mut Vec<Step>) {
        let (p, hp) = (self.p(), self.p().hp as u32);
        let leaves = trees << p.hp;
        let args = Args { ends: self.device(self.layout.ends), outs: self.device(self.layout.nodes[0]), ..args };
        let mut last: Option<Launch> = None;
        for skip in (0..leaves).step_by(self.layout.window) {
            let count = self.layout.window.min(leaves - skip);
            let here = Args { skip: skip as u32, count: count as u32, total: (count * p.len()) as u32, ..args };
            if let Some(up) = self.shape.leaf_solo() {
                let total = here.count >> up;
                let here = Args { total, up, ..here };
                let launch = self.flat(Kernel::LeafSolo, [1, trees, total as usize], here);
                steps.push(Step::Launch(launch));
                last = last.or(Some(launch));
                continue;
            }
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

    pub(super) fn fors(&self, jobs: usize, steps: &mut Vec<Step>, on: impl Fn(Launch) -> Step) {
        let (p, trees) = (self.p(), jobs * self.p().k);
        let args = Args {
            count: (trees << p.a) as u32,
            flags: flags::REVEAL,
            outs: self.device(self.layout.fors_nodes[0]),
            roots: self.device(self.layout.fors),
            ..self.args()
        };
        let first = if self.shape.solo && p.a as u32 > SOLO_FORS_LEVELS {
            let args = Args { total: args.count >> SOLO_FORS_LEVELS, up: SOLO_FORS_LEVELS, ..args };
            self.flat(Kernel::ForsSolo, [1, trees, args.total as usize], args)
        } else {
            self.tiled(Kernel::Fors, trees, p.a as u32, args)
        };
        let launches = self.above(Kernel::ForsAbove, trees, p.a as u32, first, self.layout.fors_nodes);
        steps.extend(launches.into_iter().map(&on));
        steps.push(on(self.fors_pk(jobs, Args { nodes: self.device(self.layout.fors), ..self.args() })));
    }

    /// Whether all of a few jobs' hashes at once leave compute units idle: then latency counts, not work.
    pub(super) fn is_few(&self, jobs: usize) -> bool {
        let leaves = jobs * self.shape.leaves().max(1);
        self.shape.policy.levels == 4 && jobs <= MOST_RECORDED && leaves <= 64 * self.gpu.facts().compute_units as usize
    }

    /// PK_FORS of `jobs` jobs from the roots at `args.nodes`.
    pub(super) fn fors_pk(&self, jobs: usize, args: Args) -> Launch {
        let args = Args { total: jobs as u32, ..args };
        if self.is_few(jobs) {
            return Launch { kernel: Kernel::ForsPkWide, blocks: jobs as u32, threads: 32, args };
        }
        self.flat(Kernel::ForsPk, [1, jobs, jobs], args)
    }

    /// Keys to the device, laid out there unless the host has done it.
    pub(super) fn keys(&self, keys: usize) -> Vec<Step> {
        let seeds = self.layout.seeds;
        if self.keys_laid_out {
            return vec![self.upload(seeds, keys * KEY_WORDS * 4)];
        }
        let args = Args { nodes: self.device(seeds), total: keys as u32, ..self.args() };
        let upload = self.upload(seeds, keys * (2 * self.p().n + 8));
        vec![upload, Step::Launch(self.flat(Kernel::Keys, [1, keys, keys], args))]
    }

    /// Positions to the device, or messages that select them there.
    pub(super) fn positions(&self, jobs: usize) -> Vec<Step> {
        let l = &self.layout;
        let Some(Hashed { words, rows, keys }) = self.hashed else {
            return vec![self.upload(l.positions, jobs * (JOB_WORDS + self.p().k) * 4)];
        };
        let (to, from) = (self.device(l.messages) + (jobs * BETWEEN * 4) as u64, self.on_host(l.messages));
        let flags = if self.plan.op == Op::Sign { flags::SIGN } else { 0 };
        let (total, count) = (jobs as u32, words as u32);
        let args = Args { nodes: self.device(l.messages), total, count, flags, ..self.args() };
        vec![
            Step::Upload { to, from, bytes: rows + keys },
            Step::Launch(self.flat(Kernel::Digest, [1, jobs, jobs], args)),
        ]
    }

    /// Chains from digits to ends, in sorted tiles.
    pub(super) fn complete(&self, jobs: usize, mut args: Args) -> Launch {
        let policy = &self.shape.policy;
        let even = (args.total / (8 * self.gpu.facts().compute_units)).max(1).ilog2();
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
    pub(super) fn climb(
        &self,
        jobs: usize,
        args: Args,
        layer0: usize,
        layers: usize,
        compare: bool,
        launches: &mut Vec<Launch>,
    ) {
        let units = jobs * layers;
        if units == 0 {
            return;
        }
        let args = Args { layer0: layer0 as u32, layers: layers as u32, ..args };
        let chains = Args { count: units as u32, total: (units * self.p().len()) as u32, ..args };
        let args = Args { flags: if compare { flags::COMPARE } else { 0 }, total: units as u32, ..args };
        if self.shape.solo {
            launches.push(self.flat(Kernel::ClimbSolo, [1, jobs, units], args));
            return;
        }
        launches.push(self.complete(jobs, chains));
        launches.push(self.flat(Kernel::Climb, [1, jobs, units], args));
    }

    pub(super) fn sign_steps(&self, jobs: usize, keys: usize) -> Vec<Step> {
        let (p, l, signing) = (self.p(), &self.layout, self.signing(jobs));
        let Signing { keep, few, .. } = signing;
        let (beside, check) = (self.shape.policy.beside == 1, self.shape.policy.check == 1);
        let mut steps = self.keys(keys);
        steps.extend(self.positions(jobs));
        if !few {
            steps.push(Step::Zero { at: self.device(l.flag), bytes: flag_words(p, jobs) * 4 });
        }
        if beside {
            steps.push(Step::Fork);
            self.fors(jobs, &mut steps, Step::Beside);
        } else {
            self.fors(jobs, &mut steps, Step::Launch);
        }
        let (grown, trees) = signing.grown;
        if trees > 0 {
            let kept = if keep { flags::TRACE } else { 0 };
            self.xmss(trees, Args { flags: flags::REVEAL | kept, ..grown }, &mut steps);
        }
        if self.shape.cached > 0 {
            self.cached_layers(&signing, &mut steps);
        }
        if few && check {
            self.leaves_again(&signing, &mut steps);
        }
        if beside {
            steps.push(Step::Join);
        }
        if few {
            self.links(&signing, &mut steps);
            return steps;
        }
        self.wots_signatures(&signing, &mut steps);
        if check {
            self.compare_roots(&signing, &mut steps);
        }
        steps.push(self.download(l.flag, flag_words(p, jobs) * 4));
        steps.push(self.download(l.roots, jobs * (p.d + 1) * p.n));
        steps.push(self.download(l.fors, jobs * p.k * p.n));
        if jobs <= MOST_RECORDED {
            steps.push(self.download(l.output, jobs * p.sig_bytes()));
        }
        steps
    }

    fn signing(&self, jobs: usize) -> Signing {
        let (l, keep) = (&self.layout, self.shape.policy.replay == 0);
        let walked = if self.stored { 1 } else { self.shape.cached };
        let (trees, units) = (jobs * self.shape.grown, jobs * walked);
        let grown = Args {
            layers: self.shape.grown.max(1) as u32,
            rows: trees as u32,
            count: trees as u32,
            trace: self.device(l.trace),
            ..self.args()
        };
        let above = Args {
            layer0: self.shape.grown as u32,
            layers: walked.max(1) as u32,
            rows: units as u32,
            count: units as u32,
            trace: self.device(l.cached_trace),
            ends: self.device(l.checked_ends),
            ..self.args()
        };
        let few = keep && self.is_few(jobs);
        Signing { jobs, keep, few, walked, grown: (grown, trees), above: (above, units) }
    }

    /// Paths and roots out of cached nodes, and the chains that are walked there.
    fn cached_layers(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (l, jobs, cached) = (&self.layout, signing.jobs, self.shape.cached);
        let (above, units) = signing.above;
        let all_cached = jobs * cached;
        let args = Args { layers: cached as u32, total: all_cached as u32, ..above };
        steps.push(Step::Launch(self.flat(Kernel::Cached, [1, jobs, all_cached], args)));
        if self.stored {
            let (outs, flag) =
                if signing.few { (self.on_host(l.output), self.on_host(l.flag)) } else { (above.sigs, above.flag) };
            let stored = nodes::stored_layers(self.p(), cached);
            steps.push(Step::Launch(self.rows(jobs, stored, Args { outs, flag, ..self.args() })));
        }
        if signing.keep {
            let args = Args { flags: flags::ONLY | flags::TRACE, total: self.chains_of(units), ..above };
            steps.push(Step::Launch(self.flat(Kernel::Chains, [1, units, units], args)));
        }
    }

    /// The revealed leaves once more, for the check of few signatures: they are grown beside what has the chains to wait for.
    fn leaves_again(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let beside = self.shape.policy.beside == 1;
        let mut leaves: Vec<Step> = Vec::new();
        for (args, units) in signing.groups() {
            let args = Args { outs: self.leaves_of(signing, &args), ..args };
            let launch = Launch { kernel: Kernel::LeafWide, blocks: units as u32, threads: 32, args };
            leaves.push(if beside { Step::Beside(launch) } else { Step::Launch(launch) });
        }
        let after_chains =
            steps.iter().rposition(|step| matches!(step, Step::Launch(Launch { kernel: Kernel::Chains, .. })));
        if let (Some(at), false) = (after_chains, leaves.is_empty()) {
            if beside {
                leaves.insert(0, Step::Fork);
            }
            steps.splice(at + 1..at + 1, leaves);
        }
    }

    /// Few signatures, checked and written to the host's memory by the last launches.
    fn links(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (p, l, check) = (self.p(), &self.layout, self.shape.policy.check == 1);
        let launches = signing.groups().count();
        for (i, (args, units)) in signing.groups().enumerate() {
            let slots = (l.fors.at + l.fors.bytes - l.roots.at) / 4;
            let is_last = i + 1 == launches;
            let (copy, copied) = if is_last { (COPY, slots + signing.jobs * p.sig_bytes() / 4) } else { (0, 0) };
            let (compare, checked) = if check { (flags::COMPARE, units) } else { (0, 0) };
            let args = Args {
                nodes: self.leaves_of(signing, &args),
                ends: self.on_host(l.output),
                outs: self.on_host(l.roots),
                flag: self.on_host(l.flag),
                flags: compare | copy,
                chunk: slots as u32,
                total: self.chains_of(units * p.w()) + (checked + copied) as u32,
                ..args
            };
            steps.push(Step::Launch(self.flat(Kernel::Links, [1, units, units], args)));
        }
    }

    /// WOTS+ signatures: out of the chain values that were kept, or by walking the chains once more.
    fn wots_signatures(&self, signing: &Signing, steps: &mut Vec<Step>) {
        if signing.keep {
            for (args, units) in signing.groups() {
                let args = Args { total: self.chains_of(units), ..args };
                steps.push(Step::Launch(self.flat(Kernel::Select, [1, units, units], args)));
            }
            return;
        }
        let layers = self.shape.grown + signing.walked;
        let units = signing.jobs * layers;
        let args = Args { layers: layers as u32, count: units as u32, total: self.chains_of(units), ..self.args() };
        let args = Args { layer0: 0, flags: flags::REPLAY, ..args };
        steps.push(Step::Launch(self.flat(Kernel::Chains, [1, signing.jobs, units], args)));
    }

    /// The roots that the signatures lead to, compared with those that are there.
    fn compare_roots(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (jobs, keep, grown) = (signing.jobs, signing.keep, self.shape.grown);
        if keep && self.shape.cached > 0 {
            // The cached layers' chains were walked to their ends already.
            let (above, units) = signing.above;
            let args = Args { flags: flags::COMPARE, total: units as u32, ..above };
            steps.push(Step::Launch(self.flat(Kernel::Climb, [1, jobs, units], args)));
        }
        let (layers, mut launches) = (if keep { grown } else { grown + signing.walked }, Vec::new());
        let args = Args { ends: self.device(self.layout.checked_ends), ..self.args() };
        self.climb(jobs, args, 0, layers, true, &mut launches);
        steps.extend(launches.into_iter().map(Step::Launch));
    }

    /// Where the leaves of a group are that are computed once more.
    fn leaves_of(&self, signing: &Signing, args: &Args) -> u64 {
        self.device(self.layout.leaves) + u64::from(args.layer0) * (signing.jobs * self.p().n) as u64
    }

    /// Chains of so many (job, layer) pairs.
    fn chains_of(&self, units: usize) -> u32 {
        (units * self.p().len()) as u32
    }

    pub(super) fn verify_steps(&self, jobs: usize, keys: usize) -> Vec<Step> {
        let (p, l) = (self.p(), &self.layout);
        let mut steps = self.keys(keys);
        steps.extend(self.positions(jobs));
        if jobs <= MOST_RECORDED {
            steps.push(self.upload(l.input, jobs * p.sig_bytes()));
        }
        // Roots of an earlier batch must not pass for those of this one.
        steps.push(Step::Zero { at: self.device(l.roots), bytes: jobs * (p.d + 1) * p.n });
        let args = Args { ends: self.device(l.checked_ends), ..self.args() };
        let climb = Args { roots: self.device(l.fors), total: (jobs * p.k) as u32, ..args };
        let mut launches = vec![
            self.flat(
                if self.shape.solo { Kernel::ForsClimbSolo } else { Kernel::ForsClimb },
                [1, jobs, jobs * p.k],
                climb,
            ),
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

    pub(super) fn keygen_steps(&self, jobs: usize) -> Vec<Step> {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostGpu;
    use crate::nodes::NodesCache;
    use crate::policy::{GpuPolicy, axes, matters};
    use crate::program::layout::Shape;
    use hypergrove_engine::Policy;
    use hypergrove_fips205::plan::{Op, Plan};
    use hypergrove_fips205::{SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S};
    use std::sync::Arc;

    #[test]
    fn axes_that_do_not_matter_change_no_step() {
        const BUDGET: u64 = 64 << 20;
        let (gpu, cache) = (Arc::new(HostGpu::new(false)), Arc::new(NodesCache::new(0)));
        for (p, op) in
            [&SLH_DSA_SHA2_128F, &SLH_DSA_SHA2_128S].into_iter().flat_map(|p| [(p, Op::Keygen), (p, Op::Verify)])
        {
            let plan = Plan::new(p, op);
            for jobs in [1, 40, 2000] {
                let mut program = GpuProgram::new(&gpu, &cache, &plan, jobs, BUDGET, GpuPolicy::default()).unwrap();
                let (pass, largest) = (program.layout.jobs, program.layout.device);
                let steps = |program: &GpuProgram<HostGpu>| match op {
                    Op::Verify => program.verify_steps(pass, 1),
                    _ => program.keygen_steps(pass),
                };
                let by_default = steps(&program);
                let idle = axes(Op::Sign).into_iter().filter(|axis| axis.tuned && !matters(axis.name, op));
                let mut seen = 0;
                for (name, value) in
                    idle.flat_map(|axis| axis.values.to_vec().into_iter().map(move |value| (axis.name, value)))
                {
                    let policy = GpuPolicy::of(&Policy(vec![(name, value)])).unwrap();
                    program.shape = Shape::new(&plan, policy, BUDGET, program.gpu.facts());
                    assert_eq!(program.shape.layout(pass).device, largest, "{p} {op:?} of {jobs}: {name} = {value}");
                    assert_eq!(steps(&program), by_default, "{p} {op:?} of {jobs}: {name} = {value}");
                    seen += 1;
                }
                assert!(seen > 10);
            }
        }
    }
}
