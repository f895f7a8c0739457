//! The steps of a pass: which kernels, in which order and shapes.

use super::layout::flag_words;
use super::{COOPERATIVE_CHUNK, DigestShape, FEW_JOBS, FEW_KEYS, GpuProgram, Pass, first_layers};
use crate::gpu::{Gpu, Launch, Step};
use crate::nodes;
use crate::parts::Part;
use hypergrove_fips205::plan::Op;
use hypergrove_kernels::arguments::{
    Arguments, ClimbFors, ClimbFromEnds, ClimbFromValues, ClimbInPairs, Climbing, CompareSignatures, CompleteChains,
    Cooperative, Destinations, FetchSignatures, ForsLeaves, ForsLeavesOnCpu, ForsNodes, GrowChains, HashForsRoots,
    HashMessages, JobArguments, KeepChains, KeptChains, LayOutKeys, Layers, LeavesAgain, LinkChains, OnCpu, ReadCached,
    Roots, SelectValues, SignChains, Tiles, Trees, XmssLeaves, XmssNodes, XmssOnCpu,
};
use hypergrove_kernels::{BETWEEN, CPU_FORS_LEVELS, JOB_WORDS, KEY_WORDS, Kernel, PAIRED_ROWS};
use std::ops::{Deref, Range};

/// Values that the steps of signing share.
struct Signing {
    jobs: usize,
    /// Whether chain values are kept.
    keep: bool,
    /// Whether signatures are so few that kernels of their own make them.
    few: bool,
    /// How many cached layers have their chains walked: at least the lowest, which signs a new root.
    walked: usize,
    /// The layers that are grown.
    grown: LayerGroup,
    /// The cached layers whose chains are walked.
    above: LayerGroup,
}

/// Layers whose chain values lie together.
#[derive(Clone, Copy)]
struct LayerGroup {
    layers: Layers,
    /// (job, layer) pairs.
    units: usize,
    /// The address of all values of the layers' chains, if they are kept.
    values: u64,
}

impl Signing {
    /// The groups of layers that are not empty.
    fn groups(&self) -> impl Iterator<Item = LayerGroup> {
        [self.grown, self.above].into_iter().filter(|group| group.units > 0)
    }
}

/// XMSS trees that are grown, the values that are kept of them, and where their nodes go.
#[derive(Clone, Copy)]
pub(super) struct Grown {
    pub(super) trees: Trees,
    pub(super) kept: Option<KeptChains>,
    pub(super) to: Destinations,
}

/// Nodes that a launch reads, and where it writes the nodes that it leaves.
struct Through {
    tiles: Tiles,
    from: u64,
    to: u64,
}

/// Makes the steps of a pass.
pub(super) struct PassSteps<'p, G: Gpu> {
    pub(super) program: &'p GpuProgram<G>,
    pub(super) pass: Pass,
}

impl<G: Gpu> Deref for PassSteps<'_, G> {
    type Target = GpuProgram<G>;
    fn deref(&self) -> &GpuProgram<G> {
        self.program
    }
}

impl<G: Gpu> PassSteps<'_, G> {
    /// The addresses of keys and jobs on the device.
    pub(super) fn jobs(&self) -> JobArguments {
        // Few keys are laid out by the host. Then kernels read them where they were uploaded to.
        let keys = self.device(if self.pass.keys <= FEW_KEYS { self.layout.seeds } else { self.layout.keys });
        JobArguments { params: self.p(), keys, jobs: self.device(self.layout.positions) }
    }
    /// The address of the signatures on the device that the pass verifies or makes.
    pub(super) fn signatures(&self) -> u64 {
        match &self.second {
            Some(second) if self.pass.compares => G::address(second),
            _ => self.device(if self.plan.op == Op::Verify { self.layout.input } else { self.layout.output }),
        }
    }

    /// Whether every launch has the policy's size of blocks, since the driver would have to compile a smaller size first.
    pub(super) fn fixed(&self) -> bool {
        self.gpu.facts().fixed_blocks && self.shape.policy.levels > 2
    }

    /// A launch of `total` threads, or of as many as the policy's levels of parallelism allow.
    pub(super) fn flat<A: Arguments>(&self, allowed: [usize; 3], total: usize, arguments: A) -> Launch {
        let levels = self.shape.policy.levels as usize;
        let most = if levels < 3 { allowed[levels] } else { usize::MAX };
        let threads = total.min(most).max(1) as u32;
        // Little work is spread evenly over all compute units: with few large blocks, some units would get one more than others.
        let even = threads.div_ceil(self.gpu.facts().compute_units).next_multiple_of(32);
        let (block, blocks) = (self.shape.policy.block(A::KERNEL), self.shape.policy.blocks);
        let most = if even <= 2048 && blocks == 0 { block.min(64) } else { block };
        let block = if self.fixed() { block } else { even.clamp(32, most).min(threads) };
        let args = arguments.args(total as u32);
        Launch { kernel: A::KERNEL, blocks: threads.div_ceil(block), threads: block, args }
    }

    /// Tiles of `count` nodes of height `base`, of trees `height` high.
    fn tiles(&self, kernel: Kernel, height: u32, base: u32, count: u32) -> Tiles {
        let policy = &self.shape.policy;
        let (left, most) = (height - base, policy.most_chunk(self.p()));
        let each = count / self.gpu.facts().compute_units;
        let (chunk, up) = if each >= policy.block(kernel) {
            // With plenty of work, a launch goes up few levels, so that warps do not run empty towards the top of a tile.
            let up = left.min(policy.subtree_height).min(most);
            (most.min(policy.tile).max(up), up)
        } else {
            // With little work, a launch goes up as many levels as leave a tile to every compute unit; or all levels, where
            // a level takes less time than a launch.
            let even = each.max(1).ilog2();
            let up = if each < 4 { left } else { left.min(even.max(policy.subtree_height)) }.min(most);
            (even.max(up).min(most), up)
        };
        Tiles { base, count, chunk, up }
    }

    /// A launch over these tiles of `trees` trees.
    fn tiled<A: Arguments>(&self, trees: usize, tiles: Tiles, arguments: A) -> Launch {
        let policy = &self.shape.policy;
        let (number, block) = (tiles.count.div_ceil(1 << tiles.chunk), policy.block(A::KERNEL));
        let (blocks, threads) = match policy.levels {
            0 => (1, 1),
            1 => (number.min(trees as u32), 1),
            _ => (number, if self.fixed() { block } else { (1u32 << tiles.chunk).clamp(32, block) }),
        };
        Launch { kernel: A::KERNEL, blocks, threads, args: arguments.args(0) }
    }

    /// Launches up to the roots of `trees` trees of `height`, from nodes of height `base` on.
    fn above<A: Arguments>(
        &self,
        trees: usize,
        height: u32,
        mut base: u32,
        nodes: [Part; 2],
        arguments: impl Fn(Through) -> A,
    ) -> Vec<Launch> {
        let (mut launches, [mut from, mut to]) = (Vec::new(), nodes.map(|part| self.device(part)));
        while base < height {
            let tiles = self.tiles(A::KERNEL, height, base, (trees as u32) << (height - base));
            launches.push(self.tiled(trees, tiles, arguments(Through { tiles, from, to })));
            base += tiles.up;
            (from, to) = (to, from);
        }
        launches
    }

    /// Adds the steps that grow `number` XMSS trees, from chains over leaves to roots.
    pub(super) fn xmss(&self, number: usize, grown: Grown, steps: &mut Vec<Step>) {
        let Grown { trees, kept, to } = grown;
        let (p, jobs, hp) = (self.p(), self.jobs(), self.p().hp as u32);
        let (leaves, ends) = (number << p.hp, self.device(self.layout.ends));
        // All windows go up by as many levels as the first window, which is the largest.
        let mut first: Option<Tiles> = None;
        for skipped in (0..leaves).step_by(self.layout.window) {
            let here = self.layout.window.min(leaves - skipped);
            let (skip, count) = (skipped as u32, here as u32);
            if let Some(up) = self.shape.leaf_levels_on_cpu() {
                let threads = here >> up;
                let leaves = XmssOnCpu { jobs, trees, skip, up, to };
                steps.push(Step::Launch(self.flat([1, number, threads], threads, leaves)));
                first = first.or(Some(Tiles { base: 0, count, chunk: 0, up }));
                continue;
            }
            let chains = GrowChains { jobs, trees, skip, leaves: count, ends, kept };
            steps.push(Step::Launch(self.flat([1, number, here], here * p.len(), chains)));
            let is_few = self.is_few(number.div_ceil(self.shape.grown.max(1)));
            let own = match is_few {
                true => Tiles { base: 0, count, chunk: COOPERATIVE_CHUNK, up: hp.min(COOPERATIVE_CHUNK) },
                false => self.tiles(Kernel::Xmss, hp, 0, count),
            };
            let tiles = first.map_or(own, |first| Tiles { count, ..first });
            let (leaves, most) = (XmssLeaves { jobs, trees, skip, tiles, ends, to }, count.div_ceil(1 << tiles.chunk));
            let launch = match is_few {
                true => self.cooperative(count.div_ceil(1 << COOPERATIVE_CHUNK), 96, 0, Cooperative(leaves)),
                false => self.tiled(number, own, leaves),
            };
            steps.push(Step::Launch(Launch { blocks: launch.blocks.min(most), ..launch }));
            first = Some(tiles);
        }
        let Some(Tiles { up, .. }) = first else { return };
        let more = self.above(number, hp, up, self.layout.nodes, |Through { tiles, from, to: next }| XmssNodes {
            jobs,
            trees,
            tiles,
            nodes: from,
            to: Destinations { nodes: next, ..to },
        });
        steps.extend(more.into_iter().map(Step::Launch));
    }

    /// A launch of blocks whose threads work together.
    fn cooperative<A: Arguments>(&self, blocks: u32, threads: u32, total: usize, arguments: A) -> Launch {
        Launch { kernel: A::KERNEL, blocks, threads, args: arguments.args(total as u32) }
    }

    pub(super) fn fors(&self, jobs: usize, steps: &mut Vec<Step>, on: impl Fn(Launch) -> Step) {
        let (p, trees, of_jobs) = (self.p(), jobs * self.p().k, self.jobs());
        let (height, nodes) = (p.a as u32, self.layout.fors_nodes);
        let (to, roots, signatures) = (self.device(nodes[0]), self.device(self.layout.fors), self.signatures());
        let (first, up) = if self.shape.on_cpu && height > CPU_FORS_LEVELS {
            let (up, threads) = (CPU_FORS_LEVELS, trees << (height - CPU_FORS_LEVELS));
            let leaves = ForsLeavesOnCpu { jobs: of_jobs, up, to, signatures };
            (self.flat([1, trees, threads], threads, leaves), up)
        } else {
            let tiles = self.tiles(Kernel::Fors, height, 0, (trees << height) as u32);
            (self.tiled(trees, tiles, ForsLeaves { jobs: of_jobs, tiles, to, roots, signatures }), tiles.up)
        };
        steps.push(on(first));
        let more = self.above(trees, height, up, nodes, |Through { tiles, from, to }| ForsNodes {
            jobs: of_jobs,
            tiles,
            nodes: from,
            to,
            roots,
            signatures,
        });
        steps.extend(more.into_iter().map(&on));
        steps.push(on(self.fors_pk(jobs)));
    }

    /// Whether the jobs are so few that all their hashes at once leave compute units idle. Then latency counts, not work.
    pub(super) fn is_few(&self, jobs: usize) -> bool {
        let leaves = jobs * self.shape.leaves().max(1);
        self.shape.policy.levels == 4 && jobs <= FEW_JOBS && leaves <= 64 * self.gpu.facts().compute_units as usize
    }

    /// A launch that computes PK_FORS of `jobs` jobs from their FORS roots.
    fn fors_pk(&self, jobs: usize) -> Launch {
        let (fors_roots, roots) = (self.device(self.layout.fors), self.device(self.layout.roots));
        let hash = HashForsRoots { jobs: self.jobs(), fors_roots, roots };
        match self.is_few(jobs) {
            true => self.cooperative(jobs as u32, 32, jobs, Cooperative(hash)),
            false => self.flat([1, jobs, jobs], jobs, hash),
        }
    }

    /// Steps that copy keys to the device, and lay them out there unless the host has done it.
    pub(super) fn keys(&self) -> Vec<Step> {
        let (seeds, keys) = (self.layout.seeds, self.pass.keys);
        if keys <= FEW_KEYS {
            return vec![self.upload(seeds, keys * KEY_WORDS * 4)];
        }
        let lay_out = LayOutKeys { seeds: self.device(seeds), keys: self.jobs().keys };
        let upload = self.upload(seeds, keys * (2 * self.p().n + 8));
        vec![upload, Step::Launch(self.flat([1, keys, keys], keys, lay_out))]
    }

    /// Steps that copy positions to the device, or messages from which it computes positions.
    pub(super) fn positions(&self) -> Vec<Step> {
        let (l, jobs) = (&self.layout, self.pass.jobs);
        let Some(DigestShape { words, rows, keys }) = self.pass.hashed else {
            return vec![self.upload(l.positions, jobs * (JOB_WORDS + self.p().k) * 4)];
        };
        let (to, from) = (self.device(l.messages) + (jobs * BETWEEN * 4) as u64, self.on_host(l.messages));
        let hash = HashMessages {
            jobs: self.jobs(),
            messages: self.device(l.messages),
            row_words: words as u32,
            signatures: self.signatures(),
            makes_r: self.plan.op == Op::Sign,
        };
        vec![Step::Upload { to, from, bytes: rows + keys }, Step::Launch(self.flat([1, jobs, jobs], jobs, hash))]
    }

    /// A launch that walks chains from digits to ends, in sorted tiles. With twice as many tiles as the device has room for, it stays busy until
    /// the end; where tiles would get smaller than a block, each place gets one.
    fn complete(&self, jobs: usize, climbing: &Climbing, units: usize, ends: u64) -> Launch {
        let (policy, total) = (&self.shape.policy, self.chains_of(units) as u32);
        let block = policy.block(Kernel::Complete);
        let places = self.gpu.facts().compute_units * policy.resident(self.p().family, block);
        let half = total / (2 * places);
        let chunk = match half < block {
            true => total.div_ceil(places).next_multiple_of(32),
            false => half / block * block,
        };
        let chunk = chunk.min(1 << policy.sort);
        let tiles = total.div_ceil(chunk);
        let (blocks, threads) = match policy.levels {
            0 => (1, 1),
            1 => (tiles.min(jobs as u32), 1),
            2 => (tiles.min(units as u32), 1),
            _ if self.fixed() => (tiles, block),
            _ => (tiles, block.min(chunk)),
        };
        let Climbing { jobs, layers, signatures, roots, .. } = *climbing;
        let complete = CompleteChains { jobs, layers, units: units as u32, chunk, roots, signatures, ends };
        Launch { kernel: Kernel::Complete, blocks, threads, args: complete.args(total) }
    }

    /// Launches from the digits of signatures' chains to the roots of these layers.
    pub(super) fn climb(&self, jobs: usize, layers: Layers, compares: bool) -> Vec<Launch> {
        let units = jobs * layers.count as usize;
        if units == 0 {
            return Vec::new();
        }
        let (climbing, ends) = (self.climbing(layers, compares), self.device(self.layout.checked_ends));
        if self.shape.on_cpu {
            return vec![self.flat([1, jobs, units], units, ClimbFromValues { climbing })];
        }
        vec![self.complete(jobs, &climbing, units, ends), self.climb_from_ends(jobs, units, climbing, ends)]
    }

    /// A launch that hashes ends of chains, and climbs to the roots. With SHA-512, two threads share each hash if that leaves no more than a warp
    /// to each scheduler of a compute unit. (An H100 verifies 1.04 million signatures of 256f a second in programs of 8,192, and 0.96 million without; of
    /// 192f in programs of 16,384, which is beyond that, 1.20 and 1.21 million.)
    fn climb_from_ends(&self, jobs: usize, units: usize, climbing: Climbing, ends: u64) -> Launch {
        if !self.shape.pairs || units > 64 * self.gpu.facts().compute_units as usize {
            return self.flat([1, jobs, units], units, ClimbFromEnds { climbing, ends });
        }
        let args = ClimbInPairs { climbing, ends }.args(units as u32);
        let blocks = (units as u32).div_ceil(PAIRED_ROWS);
        Launch { kernel: Kernel::ClimbPaired, blocks, threads: 2 * PAIRED_ROWS, args }
    }

    fn climbing(&self, layers: Layers, compares: bool) -> Climbing {
        let puts_out = self.plan.op == Op::Verify && layers.first as usize + 1 == self.p().d;
        Climbing {
            jobs: self.jobs(),
            layers,
            signatures: self.signatures(),
            roots: self.device(self.layout.roots),
            agrees: compares.then(|| self.device(self.layout.flag)),
            tops: puts_out.then(|| self.device(self.layout.output)),
        }
    }

    pub(super) fn sign_steps(&self) -> Vec<Step> {
        let (p, l, jobs) = (self.p(), &self.layout, self.pass.jobs);
        let signing = self.signing(jobs);
        let Signing { keep, few, grown, .. } = signing;
        let (beside, check) = (self.shape.policy.beside == 1, self.shape.policy.check == 1);
        let mut steps = self.keys();
        steps.extend(self.positions());
        if !few {
            steps.push(Step::Zero { at: self.device(l.flag), bytes: flag_words(p, jobs) * 4 });
        }
        if beside {
            steps.push(Step::Fork);
            self.fors(jobs, &mut steps, Step::SideLaunch);
        } else {
            self.fors(jobs, &mut steps, Step::Launch);
        }
        if grown.units > 0 {
            let to = Destinations {
                nodes: self.device(l.nodes[0]),
                roots: Roots::Signed(self.device(l.roots)),
                paths: Some(self.signatures()),
                all: None,
            };
            let kept = keep.then_some(KeptChains { values: grown.values, units: grown.units as u32 });
            self.xmss(grown.units, Grown { trees: Trees::Selected(grown.layers), kept, to }, &mut steps);
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
        if self.pass.compares {
            self.compare_signatures(jobs, &mut steps);
        }
        steps.push(self.download(l.flag, flag_words(p, jobs) * 4));
        let [(roots, bytes), (fors, fors_bytes)] = self.values(jobs);
        steps.push(self.download(roots, bytes));
        if jobs <= FEW_JOBS {
            steps.push(self.download(fors, fors_bytes));
            steps.push(self.download(l.output, jobs * p.sig_bytes()));
        }
        steps
    }

    fn signing(&self, jobs: usize) -> Signing {
        let (l, keep) = (&self.layout, self.shape.policy.replay == 0);
        let walked = if self.pass.stored { 1 } else { self.shape.cached };
        let grown = self.shape.grown;
        let group = |first: usize, count: usize, part: Part| LayerGroup {
            layers: Layers { first: first as u32, count: count.max(1) as u32 },
            units: jobs * count,
            values: self.device(part),
        };
        let few = keep && self.is_few(jobs);
        let (grown, above) = (group(0, grown, l.trace), group(grown, walked, l.cached_trace));
        Signing { jobs, keep, few, walked, grown, above }
    }

    /// Adds the steps that read paths and roots from cached nodes, and walk chains of cached layers.
    fn cached_layers(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (l, jobs, cached) = (&self.layout, signing.jobs, self.shape.cached);
        let LayerGroup { layers, units, values } = signing.above;
        let all_cached = jobs * cached;
        let read = ReadCached {
            jobs: self.jobs(),
            layers: Layers { count: cached as u32, ..layers },
            roots: self.device(l.roots),
            signatures: self.signatures(),
        };
        steps.push(Step::Launch(self.flat([1, jobs, all_cached], all_cached, read)));
        if self.pass.stored {
            let (signatures, agrees) = match signing.few {
                true => (self.on_host(l.output), self.on_host(l.flag)),
                false => (self.signatures(), self.device(l.flag)),
            };
            let stored = nodes::stored_layers(self.p(), cached);
            let fetch = FetchSignatures {
                jobs: self.jobs(),
                layers: Layers { first: stored.start as u32, count: stored.len() as u32 },
                rows_at: self.rows_at(),
                paths: self.signatures(),
                signatures,
                agrees,
            };
            steps.push(Step::Launch(self.rows(jobs * stored.len(), fetch)));
        }
        if signing.keep {
            let kept = KeptChains { values, units: units as u32 };
            let (jobs, ends) = (self.jobs(), self.device(l.checked_ends));
            let keep = KeepChains { jobs, layers, units: units as u32, ends, kept };
            steps.push(Step::Launch(self.flat([1, units, units], self.chains_of(units), keep)));
        }
    }

    /// Adds steps that grow the revealed leaves once more, to check few signatures. They run concurrently with the steps that wait for the chains.
    fn leaves_again(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let beside = self.shape.policy.beside == 1;
        let mut leaves: Vec<Step> = Vec::new();
        for group in signing.groups() {
            let LayerGroup { layers, units, values } = group;
            let (jobs, leaves_at) = (self.jobs(), self.leaves_of(signing, group));
            let again = LeavesAgain { jobs, layers, units: units as u32, values, leaves: leaves_at };
            let launch = self.cooperative(units as u32, 32, units, again);
            leaves.push(if beside { Step::SideLaunch(launch) } else { Step::Launch(launch) });
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

    /// Adds the last launches for few signatures, which check them and write them to the host's memory.
    fn links(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (p, l, check) = (self.p(), &self.layout, self.shape.policy.check == 1);
        let launches = signing.groups().count();
        for (i, group) in signing.groups().enumerate() {
            let LayerGroup { layers, units, values } = group;
            let slots = (l.fors.at + l.fors.bytes - l.roots.at) / 4;
            let is_last = i + 1 == launches;
            // Words of the roots and of the signatures, which the last launch copies.
            let copied = if is_last { slots + signing.jobs * p.sig_bytes() / 4 } else { 0 };
            let checked = if check { units } else { 0 };
            let links = LinkChains {
                jobs: self.jobs(),
                layers,
                units: units as u32,
                values,
                leaves: self.leaves_of(signing, group),
                roots: self.device(l.roots),
                signatures: self.signatures(),
                to: self.on_host(l.output),
                roots_to: self.on_host(l.roots),
                root_words: slots as u32,
                agrees: self.on_host(l.flag),
                compares: check,
            };
            let total = self.chains_of(units * p.w()) + checked + copied;
            steps.push(Step::Launch(self.flat([1, units, units], total, links)));
        }
    }

    /// Adds the launches that make WOTS+ signatures: from the chain values that were kept, or by walking the chains once more.
    fn wots_signatures(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (jobs, roots, signatures) = (self.jobs(), self.device(self.layout.roots), self.signatures());
        if signing.keep {
            for LayerGroup { layers, units, values } in signing.groups() {
                let select = SelectValues { jobs, layers, units: units as u32, values, roots, signatures };
                steps.push(Step::Launch(self.flat([1, units, units], self.chains_of(units), select)));
            }
            return;
        }
        let count = self.shape.grown + signing.walked;
        let (layers, units) = (Layers { first: 0, count: count as u32 }, signing.jobs * count);
        let sign = SignChains { jobs, layers, units: units as u32, roots, signatures };
        steps.push(Step::Launch(self.flat([1, signing.jobs, units], self.chains_of(units), sign)));
    }

    /// Adds the launches that compare the roots that signatures lead to with the roots that were computed.
    fn compare_roots(&self, signing: &Signing, steps: &mut Vec<Step>) {
        let (jobs, keep, grown) = (signing.jobs, signing.keep, self.shape.grown);
        if keep && self.shape.cached > 0 {
            // The cached layers' chains were walked to their ends already.
            let LayerGroup { layers, units, .. } = signing.above;
            let (climbing, ends) = (self.climbing(layers, true), self.device(self.layout.checked_ends));
            steps.push(Step::Launch(self.climb_from_ends(jobs, units, climbing, ends)));
        }
        let count = if keep { grown } else { grown + signing.walked };
        let launches = self.climb(jobs, Layers { first: 0, count: count as u32 }, true);
        steps.extend(launches.into_iter().map(Step::Launch));
    }

    /// Adds the steps that compare the second computation's signatures with the first's, including R if the device has made it.
    fn compare_signatures(&self, jobs: usize, steps: &mut Vec<Step>) {
        let (p, l) = (self.p(), &self.layout);
        let compare = CompareSignatures {
            first: self.device(l.output),
            second: self.signatures(),
            words: p.sig_bytes() as u32 / 4,
            skip: if self.pass.hashed.is_some() { 0 } else { p.n as u32 / 4 },
            agrees: self.device(l.compared),
        };
        steps.push(Step::Zero { at: self.device(l.compared), bytes: jobs * 4 });
        steps.push(Step::Launch(self.rows(jobs, compare)));
        steps.push(self.download(l.compared, jobs * 4));
    }

    /// The address of a group's leaves that are computed once more.
    fn leaves_of(&self, signing: &Signing, group: LayerGroup) -> u64 {
        self.device(self.layout.leaves) + u64::from(group.layers.first) * (signing.jobs * self.p().n) as u64
    }

    /// How many chains so many (job, layer) pairs have.
    fn chains_of(&self, units: usize) -> usize {
        units * self.p().len()
    }

    /// The steps of a pass that verifies. While `fetches` copy the columns behind the first ones, the device computes.
    pub(super) fn verify_steps(&self, fetches: &[Step]) -> Vec<Step> {
        let (p, l, jobs) = (self.p(), &self.layout, self.pass.jobs);
        let mut steps = self.keys();
        steps.extend(self.positions());
        if jobs <= FEW_JOBS {
            steps.push(self.upload(l.input, jobs * p.sig_bytes()));
        }
        // Roots of an earlier batch must not pass for those of this one.
        steps.push(Step::Zero { at: self.device(l.roots), bytes: jobs * (p.d + 1) * p.n });
        steps.push(Step::Zero { at: self.device(l.output), bytes: jobs * p.n });
        let trees = jobs * p.k;
        let climb = ClimbFors { jobs: self.jobs(), signatures: self.signatures(), fors_roots: self.device(l.fors) };
        let mut launches = vec![
            match self.shape.on_cpu {
                true => self.flat([1, jobs, trees], trees, OnCpu(climb)),
                false => self.flat([1, jobs, trees], trees, climb),
            },
            self.fors_pk(jobs),
        ];
        let climb = |layers: Range<usize>| {
            let layers = layers.map(|layer| Layers { first: layer as u32, count: 1 });
            layers.flat_map(|layer| self.climb(jobs, layer, false))
        };
        let first = if fetches.is_empty() { 0 } else { first_layers(p) };
        launches.extend(climb(0..first));
        if fetches.is_empty() {
            steps.extend(launches.into_iter().map(Step::Launch));
        } else {
            steps.push(Step::Fork);
            steps.extend(launches.into_iter().map(Step::SideLaunch));
            steps.extend(fetches);
            steps.push(Step::Join);
        }
        steps.extend(climb(first..p.d).map(Step::Launch));
        if jobs <= FEW_JOBS {
            steps.extend(self.values(jobs).map(|(part, bytes)| self.download(part, bytes)));
        }
        steps.push(self.download(l.output, jobs * p.n));
        steps
    }

    pub(super) fn keygen_steps(&self) -> Vec<Step> {
        let (p, l, jobs) = (self.p(), &self.layout, self.pass.jobs);
        let mut steps = self.keys();
        // If the roots are few, the kernels write them to the host's memory. Others are copied.
        let few = jobs <= FEW_JOBS;
        let roots = Roots::Bytes(if few { self.on_host(l.output) } else { self.device(l.output) });
        let to = Destinations { nodes: self.device(l.nodes[0]), roots, paths: None, all: None };
        let trees = Trees::OfKeys { layer: p.d as u32 - 1 };
        self.xmss(jobs, Grown { trees, kept: None, to }, &mut steps);
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
                let steps = |program: &GpuProgram<HostGpu>| {
                    let keys = if op == Op::Verify { 1 } else { pass };
                    let steps = PassSteps { program, pass: Pass { jobs: pass, keys, ..Pass::default() } };
                    if op == Op::Verify { steps.verify_steps(&[]) } else { steps.keygen_steps() }
                };
                let by_default = steps(&program);
                // Signing has all axes.
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
