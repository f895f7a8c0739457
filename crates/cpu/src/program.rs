//! A plan prepared for the CPU.

use crate::clock::Clock;
use crate::forest::{Forest, ForestOutput, Leaves, Tree, run, subtree_height};
use crate::policy::CpuPolicy;
use crate::scratch::{Pool, Scratch, sized};
use crate::share;
use crate::swapped::Swapped;
use crate::verify::{Verification, VerifyGroup};
use crate::wots;
use hypergrove_engine::nodes::CachedNodes;
use hypergrove_engine::trace::{Step, TraceContext};
use hypergrove_engine::{Batch, Digests, Error, Key, Places, Program, Timing, Work, wiped};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::{Adrs, AdrsType, Params, Position};
use hypergrove_lanes::{AdrsWords, KeyState, Keys, Steps, TweakableHash};
use rayon::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct CpuProgram {
    /// The hash in usual lanes, and in other lanes.
    hashes: [Arc<dyn TweakableHash>; 2],
    plan: Plan,
    policy: CpuPolicy,
    pool: Pool,
    /// [`kept_bytes`] of each job of the last run.
    kept: Vec<u8>,
    jobs: usize,
}

/// The fewest keys that a thread prepares.
const KEYS_OF_A_THREAD: usize = 64;

/// Bytes of the values of a job that a program keeps, in the order of [`Slot`]: FORS roots, PK_FORS, XMSS roots.
pub(crate) const fn kept_bytes(p: &Params) -> usize {
    (p.k + 1 + p.d) * p.n
}

/// Bytes that a program holds, at most, by an estimate.
pub(crate) fn bytes(plan: &Plan, batch: usize, policy: &CpuPolicy) -> u64 {
    let p = plan.params;
    let (n, len) = (p.n, p.len());
    // A lane's job has one or more nodes, an address, a key and a place.
    let job = |nodes: usize| nodes * n + size_of::<AdrsWords>() + 8;
    // The bytes of a chunk's leaves, and of the tops that chunks leave to the last step.
    let forest = |leaves: Leaves, trees: usize| {
        let (height, chunk) = match leaves {
            Leaves::Fors => (p.a, policy.fors_leaves),
            Leaves::Xmss => (p.hp, policy.xmss_leaves),
        };
        let s = subtree_height(trees, height, chunk);
        let per_leaf = job(2) + if leaves == Leaves::Xmss { len * job(1) } else { 0 };
        let tops = if s < height { (trees << (height - s)) * job(3) } else { trees * job(2) };
        (chunk.max(1 << s) * per_leaf, tops)
    };
    let sum = |(chunk, tops)| chunk + tops;
    let scratch = match plan.op {
        Op::Verify => policy.verify_group.min(batch.max(1)) * p.k.max(len) * job(4),
        Op::Keygen => sum(forest(Leaves::Xmss, batch.min(4096))),
        Op::Cache => sum(forest(Leaves::Xmss, 1 << (p.hp * (plan.cached_layers - 1)))),
        Op::Sign => {
            // The last step uses the same buffers for one forest after the other, or each thread's own buffers.
            let ((fors, fors_tops), (xmss, xmss_tops)) = (forest(Leaves::Fors, p.k), forest(Leaves::Xmss, p.d));
            p.d * len * (p.w() * n + job(1)) + fors + xmss + fors_tops.max(xmss_tops)
        }
    };
    let kept = if matches!(plan.op, Op::Sign | Op::Verify) { batch * kept_bytes(p) } else { 0 };
    (scratch * policy.threads + kept) as u64
}

impl CpuProgram {
    pub(crate) fn new(hash: Arc<dyn TweakableHash>, plan: Plan, batch: usize, policy: CpuPolicy) -> CpuProgram {
        let signs = matches!(plan.op, Op::Sign | Op::Verify);
        let kept = vec![0; if signs { batch * kept_bytes(plan.params) } else { 0 }];
        let hashes = [hash.clone(), Arc::new(Swapped(hash))];
        CpuProgram { hashes, plan, policy, pool: Pool::default(), kept, jobs: 0 }
    }

    fn forest<'a>(&'a self, keys: &'a Prepared<'a>, leaves: Leaves, trees: &'a [Tree], tasks: usize) -> Forest<'a> {
        let p = self.plan.params;
        let (chunk, height) = match leaves {
            Leaves::Fors => (self.policy.fors_leaves, p.a),
            Leaves::Xmss => (self.policy.xmss_leaves, p.hp),
        };
        // Chunks are smaller if there would be too few for the threads.
        let wanted = ((trees.len() << height) / tasks).max(1).next_power_of_two();
        let least = if leaves == Leaves::Fors { 64 } else { 4 };
        let Prepared { hash, keys } = keys;
        Forest { p, hash: *hash, keys, leaves, trees, chunk: chunk.min(wanted.max(least)) }
    }

    /// Grows XMSS trees with all of a batch's threads, for key pairs and for cached nodes.
    fn grow_xmss(&self, keys: &Prepared<'_>, trees: &[Tree], roots: &mut [u8], nodes: &mut [u8]) {
        let parallel = self.policy.threads > 1;
        let tasks = if parallel { 4 * self.policy.threads } else { 1 };
        let forest = self.forest(keys, Leaves::Xmss, trees, tasks);
        self.pool.with(|scratch| {
            forest.grow(&self.pool, scratch, parallel, ForestOutput { roots, parts: &mut [], traces: &mut [], nodes });
        });
    }

    /// Makes one signature.
    fn sign(&self, scratch: &mut Scratch, job: Job<'_>) {
        let (p, n, len) = (self.plan.params, self.plan.params.n, self.plan.params.len());
        let Job { keys, key, cached_nodes, at, signature, kept, clock, is_shared: parallel } = job;
        // The nodes of the layers above the grown ones come with the key.
        let grown = p.d - self.plan.cached_layers;
        // A layer signs PK_FORS or the root of the layer below; nothing signs the last root.
        let (fors_roots, signed) = kept.split_at_mut(p.k * n);
        let (fors_parts, ht) = signature[n..].split_at_mut(p.fors_bytes());
        let (grown_parts, cached_parts) = ht.split_at_mut(grown * p.xmss_bytes());

        let tree = Tree { layer: 0, tree: at.idx_tree, key_pair: 0, first: 0, key, revealed: None };
        let fors: Vec<Tree> = (0..p.k)
            .map(|i| Tree { key_pair: at.idx_leaf, first: (i << p.a) as u32, revealed: Some(at.fors[i]), ..tree })
            .collect();
        let xmss: Vec<Tree> = (0..grown)
            .map(|layer| {
                let (index, leaf) = at.at_layer(p, layer);
                Tree { layer: layer as u32, tree: index, revealed: Some(leaf), ..tree }
            })
            .collect();
        let mut traces = std::mem::take(&mut scratch.traces);
        let trace = len * p.w() * n;
        sized(&mut traces, grown * trace);
        {
            let tasks = if parallel { 4 * self.policy.threads } else { 1 };
            let fors_forest = self.forest(keys, Leaves::Fors, &fors, tasks);
            let xmss_forest = self.forest(keys, Leaves::Xmss, &xmss, tasks);
            let fors_out = ForestOutput { roots: &mut *fors_roots, parts: fors_parts, traces: &mut [], nodes: &mut [] };
            let xmss_out = ForestOutput {
                roots: &mut signed[n..][..grown * n],
                parts: &mut *grown_parts,
                traces: &mut traces[..grown * trace],
                nodes: &mut [],
            };
            if parallel && !clock.runs() {
                let trace = TraceContext::current();
                let grow = |forest: &Forest<'_>, out| {
                    trace.enter(|| self.pool.with(|scratch| forest.grow(&self.pool, scratch, true, out)));
                };
                rayon::join(|| grow(&xmss_forest, xmss_out), || grow(&fors_forest, fors_out));
            } else {
                clock.start();
                fors_forest.grow(&self.pool, scratch, parallel, fors_out);
                clock.lap("fors");
                xmss_forest.grow(&self.pool, scratch, parallel, xmss_out);
                clock.lap("xmss");
            }
        }

        let adrs = Adrs::new(0, at.idx_tree, AdrsType::ForsRoots).key_pair(at.idx_leaf);
        let one = Keys::One(&keys.keys[key as usize]);
        clock.start();
        keys.hash.t_l(one, &[adrs.0], p.k, fors_roots, &mut signed[..n]);
        clock.lap("fors_pk");

        let digits = sized(&mut scratch.digits, len);
        let parts = grown_parts.chunks_mut(p.xmss_bytes());
        for ((part, trace), message) in parts.zip(traces.chunks(trace)).zip(signed.chunks(n)) {
            wots::digits(p, message, digits);
            wots::select(p, digits, trace, &mut part[..len * n]);
        }
        clock.lap("wots_select");
        scratch.traces = traces;
        if self.plan.cached_layers > 0 {
            self.sign_cached(scratch, (keys.hash, one), cached_nodes, at, cached_parts, signed);
            clock.lap("cached");
        }
    }

    /// Makes the signatures of the layers whose nodes came with the key: walks the chains of WOTS+ signatures, and copies authentication paths.
    /// Each layer signs the root of the tree below, which is cached too except below the first of these layers. `signed` is PK_FORS and the layers' roots.
    fn sign_cached(
        &self,
        scratch: &mut Scratch,
        (hash, key): (&dyn TweakableHash, Keys<'_>),
        nodes: &[u8],
        at: &Position,
        parts: &mut [u8],
        signed: &mut [u8],
    ) {
        let (p, n, len) = (self.plan.params, self.plan.params.n, self.plan.params.len());
        let nodes = CachedNodes::new(p, self.plan.cached_layers, nodes).expect("the batch was checked");
        let Scratch { adrs, digits, values, .. } = scratch;
        adrs.clear();
        let all_digits = sized(digits, self.plan.cached_layers * len);
        for (layer, digits) in nodes.layers().zip(all_digits.chunks_mut(len)) {
            let (tree, leaf) = at.at_layer(p, layer);
            signed[(layer + 1) * n..][..n].copy_from_slice(nodes.root(layer, tree));
            wots::digits(p, &signed[layer * n..][..n], digits);
            let prf = Adrs::new(layer as u32, tree, AdrsType::WotsPrf).key_pair(leaf);
            adrs.extend((0..len as u32).map(|i| prf.chain(i).0));
        }
        let chains = sized(values, adrs.len() * n);
        hash.prf(key, adrs, chains);
        for a in adrs.iter_mut() {
            a[4] = AdrsType::WotsHash as u32;
        }
        hash.chain(key, adrs, p.w(), Steps::To(all_digits), chains, None);
        let parts = parts.chunks_mut(p.xmss_bytes()).zip(chains.chunks(len * n));
        for (layer, (part, chains)) in nodes.layers().zip(parts) {
            let (tree, leaf) = at.at_layer(p, layer);
            let (signature, auth) = part.split_at_mut(len * n);
            signature.copy_from_slice(chains);
            for (out, node) in auth.chunks_mut(n).zip(nodes.auth(layer, tree, leaf)) {
                out.copy_from_slice(node);
            }
        }
    }

    /// Runs a batch, which must have been checked.
    #[expect(clippy::too_many_lines, reason = "the stages of an operation, in their order")]
    fn execute(
        &mut self,
        batch: &Batch<'_>,
        digests: Option<&dyn Digests>,
        places: Places,
        out: &mut [&mut [u8]],
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        let p: &'static Params = self.plan.params;
        let (jobs, threads) = (batch.len(), self.policy.threads);
        let state = |key: &Key<'_>| KeyState::new(key.pk_seed, key.sk_seed);
        let keys: Vec<KeyState> = match threads {
            1 => batch.keys.iter().map(state).collect(),
            _ => batch.keys.par_iter().with_min_len(KEYS_OF_A_THREAD).map(state).collect(),
        };
        let hash = self.hashes[usize::from(places != Places::Usual)].clone();
        let keys = Prepared { hash: &*hash, keys };
        let mut kept = std::mem::take(&mut self.kept);
        let each = kept_bytes(p);
        if matches!(self.plan.op, Op::Sign | Op::Verify) {
            sized(&mut kept, jobs * each);
        }
        let top = Tree { layer: p.d as u32 - 1, tree: 0, key_pair: 0, first: 0, key: 0, revealed: None };
        let trace = TraceContext::current();
        let clock = Clock::new(self.policy.stages == 1);
        // If stages are timed, one thread verifies all groups.
        let alone = if self.plan.op == Op::Verify { 1 } else { threads };
        match self.plan.op {
            Op::Keygen => {
                // Many keys at once share lanes. Their number in a pass is bounded, to bound memory.
                let mut left = batch.key_of;
                for roots in out.iter_mut().flat_map(|part| part.chunks_mut(4096 * p.n)) {
                    let of = left.split_off(..roots.len() / p.n).expect("a key for each root");
                    let trees: Vec<Tree> = of.iter().map(|key| Tree { key: *key, ..top }).collect();
                    clock.start();
                    trace.step(Step::Group, of.len(), || self.grow_xmss(&keys, &trees, roots, &mut []));
                    clock.lap("xmss");
                }
            }
            Op::Cache => {
                for (key, nodes) in batch.key_of.iter().zip(rows(out, self.plan.out_bytes())) {
                    let mut rest = nodes;
                    for layer in (0..p.d).rev().take(self.plan.cached_layers) {
                        let trees: Vec<Tree> = (0..1u64 << (p.hp * (p.d - 1 - layer)))
                            .map(|tree| Tree { layer: layer as u32, tree, key: *key, ..top })
                            .collect();
                        let size = trees.len() * ((2 << p.hp) - 1) * p.n;
                        let these = rest.split_off_mut(..size).expect("a place for each tree");
                        let mut roots = vec![0; trees.len() * p.n];
                        clock.start();
                        self.grow_xmss(&keys, &trees, &mut roots, these);
                        clock.lap("xmss");
                    }
                }
            }
            Op::Sign => {
                // With few messages, the threads share the trees of each message. With many, each thread takes a message, and they share the trees
                // of the last messages, so that all end at about the same time.
                let are_few = jobs < 2 * threads || clock.runs();
                let tasks =
                    rows(out, p.sig_bytes()).zip(kept.chunks_mut(each)).enumerate().map(|(job, (signature, kept))| {
                        Job {
                            is_shared: threads > 1 && (are_few || jobs - job <= threads),
                            keys: &keys,
                            key: batch.key_of[job],
                            cached_nodes: batch.keys[batch.key_of[job] as usize].cached_nodes,
                            at: &batch.positions[job],
                            signature,
                            kept,
                            clock: &clock,
                        }
                    });
                self.pool.with(|scratch| {
                    run(threads > 1 && !are_few, &self.pool, scratch, tasks, |scratch, job| {
                        trace.step(Step::Group, 1, || wiped(|| self.sign(scratch, job)));
                    });
                });
            }
            Op::Verify => {
                let [out] = out else {
                    return Err(Error::Value { what: "roots of signatures go to one part of memory".into() });
                };
                let (mut roots, mut kept, mut next) = (&mut **out, &mut kept[..jobs * each], 0);
                let groups = self.policy.groups(jobs, p.d).map(|size| {
                    let of_roots = roots.split_off_mut(..size * p.n).expect("a root for each job");
                    let of_kept = kept.split_off_mut(..size * each).expect("memory for each job");
                    let jobs = next..next + size;
                    next = jobs.end;
                    VerifyGroup::new(jobs, of_roots, of_kept)
                });
                let all = Verification { p, hash: keys.hash, keys: &keys.keys, batch, digests };
                let groups: Vec<_> = groups.collect();
                let threads = if clock.runs() { 1 } else { threads };
                share::by_threads(threads, groups, |next, offer| {
                    self.pool.with(|scratch| {
                        while let Some(group) = next() {
                            trace.counted(Step::Group, || (all.roots(scratch, group, offer, &clock), ()));
                        }
                    });
                });
            }
        }
        self.kept = kept;
        self.jobs = jobs;
        Ok(Timing { execute: start.elapsed(), stages: clock.stages(alone), ..Timing::default() })
    }
}

/// The rows of memory for results, over its parts.
fn rows<'o>(out: &'o mut [&mut [u8]], size: usize) -> impl Iterator<Item = &'o mut [u8]> {
    out.iter_mut().flat_map(move |part| part.chunks_mut(size.max(1)))
}

/// The keys of a batch, prepared for a hash in the lanes that the batch is computed in.
struct Prepared<'a> {
    hash: &'a dyn TweakableHash,
    keys: Vec<KeyState>,
}

/// The inputs and outputs of signing one message.
struct Job<'a> {
    keys: &'a Prepared<'a>,
    key: u32,
    cached_nodes: &'a [u8],
    at: &'a Position,
    signature: &'a mut [u8],
    kept: &'a mut [u8],
    clock: &'a Clock,
    /// Whether the threads share its trees.
    is_shared: bool,
}

impl Program for CpuProgram {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A thread hashes the messages of the signatures that it verifies, of any length. When signing, the host's threads hash them before.
    fn hashes(&self) -> usize {
        if self.plan.op == Op::Verify { usize::MAX } else { 0 }
    }

    fn run(&mut self, mut work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        let bytes = out.iter().map(|part| part.len()).sum();
        if self.plan.op == Op::Verify {
            // Verification has no secrets: signatures and public keys are public.
            let Work { batch, digests, places, .. } = work;
            match &digests {
                Some(_) => batch.check_all_but_positions(&self.plan, bytes)?,
                None => batch.check(&self.plan, bytes)?,
            }
            return self.execute(&batch, digests.as_deref(), places, out);
        }
        let positions = work.positions()?;
        let batch = Batch { positions: &positions, ..work.batch };
        batch.check(&self.plan, bytes)?;
        let timing = wiped(|| self.execute(&batch, None, work.places, out))?;
        if let (Op::Sign, Some(_)) = (self.plan.op, &work.accept)
            && let Some(roots) = self.read(Slot::XmssRoots)?
        {
            work.accept_top_roots(self.plan.params, &roots)?;
        }
        Ok(timing)
    }

    fn time_limit(&mut self, _: Option<Duration>) {}

    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        let (p, each) = (self.plan.params, kept_bytes(self.plan.params));
        let range = match slot {
            Slot::ForsRoots => 0..p.k,
            Slot::ForsPk => p.k..p.k + 1,
            Slot::XmssRoots => p.k + 1..p.k + 1 + p.d,
        };
        let jobs = self.kept.chunks(each).take(self.jobs);
        let values = || jobs.flat_map(|job| &job[range.start * p.n..range.end * p.n]).copied().collect();
        Ok((!self.kept.is_empty()).then(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_testkit::toys::every_set;

    /// A signature of any set takes less than 8 MiB of scratch a thread, as docs/supported.md promises, and no more than `bytes` estimates.
    #[test]
    fn scratch_is_bounded_and_estimated_from_above() {
        for p in every_set() {
            let plan = Plan::new(p, Op::Sign);
            let estimate = bytes(&plan, 1, &CpuPolicy::default());
            assert!(estimate < 8 << 20, "{p}: {estimate}");
            if p.hp > 9 {
                continue;
            }
            let isa = hypergrove_lanes::Isa::fastest();
            let hash: Arc<dyn TweakableHash> = crate::Cpu::with(isa).expect("available").hash(p, isa);
            let mut program = CpuProgram::new(hash, plan.clone(), 1, CpuPolicy::default());
            let seed = vec![7; p.n];
            let keys = [Key::of_seeds(&seed, &seed)];
            let positions = [Position::split(p, &vec![0x5a; p.m])];
            let batch = Batch { keys: &keys, key_of: &[0], positions: &positions, signatures: &[] };
            program.run(Work::of(&batch), &mut [&mut vec![0; p.sig_bytes()]]).expect("signs");
            let held = program.pool.bytes() + program.kept.len();
            assert!(held as u64 <= estimate, "{p}: holds {held}, estimated {estimate}");
        }
    }
    /// Groups hash their messages themselves: the roots are those of positions that the caller computed, for numbers of signatures that threads share
    /// in groups of every size.
    #[test]
    fn messages_are_hashed_by_the_thread_that_verifies() {
        use hypergrove_testkit::digests::{DigestJobs, KEYS, text};
        let text = text();
        for p in [&hypergrove_testkit::toys::TOY_SHA2_16, &hypergrove_testkit::toys::TOY_SHAKE_24] {
            for (jobs, threads) in [(1, 1), (40, 1), (1, 3), (2, 3), (40, 3), (150, 3)] {
                let mut digests = DigestJobs::new(p, Op::Verify, (jobs, 0), &text);
                let rows: Vec<Vec<u8>> = (0..jobs)
                    .map(|job| {
                        let mut row = text[job..].iter().copied().cycle().take(p.sig_bytes()).collect::<Vec<_>>();
                        row[p.r_range()].copy_from_slice(&digests.r(job));
                        row
                    })
                    .collect();
                let signatures: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
                let (keys, key_of) =
                    ([0, 1, 2].map(|of| digests.key(of)), (0..jobs).map(|job| (job % KEYS) as u32).collect::<Vec<_>>());
                let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &signatures };
                let isa = hypergrove_lanes::Isa::fastest();
                let hash = crate::Cpu::with(isa).expect("available").hash(p, isa);
                let policy = CpuPolicy { threads, ..CpuPolicy::default() };
                let mut program = CpuProgram::new(hash, Plan::new(p, Op::Verify), jobs, policy);
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                let (mut expected, mut got) = (vec![0; jobs * p.n], vec![0; jobs * p.n]);
                let positions = digests.positions().expect("positions");
                let with_positions = Batch { positions: &positions, ..batch };
                pool.install(|| program.run(Work::of(&with_positions), &mut [&mut expected])).expect("verified");
                digests.is_queried = false;
                let work = Work { digests: Some(&mut digests), ..Work::of(&batch) };
                pool.install(|| program.run(work, &mut [&mut got])).expect("verified");
                assert!(got == expected && !digests.is_queried, "{p}, {jobs} jobs, {threads} threads");
                // Different messages give different roots.
                assert!(jobs == 1 || got[..p.n] != got[p.n..2 * p.n], "{p}");
                let groups = program.policy.groups(jobs, p.d).count();
                assert!(groups >= threads.min(jobs), "{jobs}: {groups}");
            }
        }
    }

    #[test]
    fn stages_are_timed_where_that_is_asked_for() {
        let p = &hypergrove_fips205::SLH_DSA_SHA2_128F;
        let hash = || crate::Cpu::new().hash(p, hypergrove_lanes::Isa::fastest());
        let seed = vec![7; p.n];
        let keys = [Key::of_seeds(&seed, &seed)];
        let positions = [Position::split(p, &vec![0x5a; p.m])];
        let batch = Batch { keys: &keys, key_of: &[0], positions: &positions, signatures: &[] };
        let sign = |stages, threads| {
            let policy = CpuPolicy { stages, threads, ..CpuPolicy::default() };
            let mut program = CpuProgram::new(hash(), Plan::new(p, Op::Sign), 1, policy);
            let mut signature = vec![0; p.sig_bytes()];
            let timing = program.run(Work::of(&batch), &mut [&mut signature]).expect("signs");
            (signature, timing)
        };
        let (right, plain) = sign(0, 1);
        assert!(plain.stages.is_empty());
        for threads in [1, 2] {
            let (signature, timing) = sign(1, threads);
            assert!(signature == right);
            let names: Vec<_> = timing.stages.iter().map(|stage| stage.name).collect();
            assert_eq!(names, ["fors", "xmss", "fors_pk", "wots_select"]);
            assert!(timing.stages.iter().all(|stage| stage.threads == threads as u32));
            assert!(timing.stages.iter().map(|stage| stage.time).sum::<std::time::Duration>() <= timing.execute);
        }
    }
}
