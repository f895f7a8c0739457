//! A plan prepared for a GPU: memory, kernels, and the steps of a batch.

mod cached;
#[cfg(test)]
mod digest_tests;
mod launches;
mod layout;

pub(crate) use layout::{Shape, host_bytes};

use self::launches::PassSteps;
use self::layout::{FEW_KEYS, Layout, cache_trees, flag_words};
use crate::gpu::{Facts, Gpu, Launch, Queue, Step, WaitLimit, put_words, wipe};
use crate::keys;
use crate::nodes::NodesCache;
use crate::parts::Part;
use crate::policy::GpuPolicy;
use crate::ring::{Chunk, Ring, chunks, copy_rows, each_row, in_threads};
use crate::runs::reached;
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Batch, Digests, Error, Places, Program, StageTime, Timing, Work};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::{Family, Params, Position};
use hypergrove_kernels::{COOPERATIVE_ROWS, CPU_FORS_LEVELS, JOB_WORDS, KEY_WORDS, Kernel};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) struct GpuProgram<G: Gpu> {
    plan: Plan,
    shape: Shape,
    layout: Layout,
    gpu: Arc<G>,
    kernels: G::Kernels,
    queue: G::Queue,
    memory: G::Memory,
    /// Signatures of the second computation, allocated at the first run that computes twice.
    second: Option<G::Memory>,
    host: G::HostMemory,
    cache: Arc<NodesCache<G>>,
    /// Bytes of device memory that the program may take.
    budget: u64,
    /// How long the program's waits may take.
    limit: WaitLimit,
    /// The last usual pass and the last moved pass.
    last: [Option<Pass>; 2],
    /// A usual pass and a moved pass whose steps are recorded.
    recorded: [Option<(Pass, <G::Queue as Queue>::Recording)>; 2],
    /// The jobs of the last run whose roots and FORS roots can be read. Those of several passes cannot.
    kept: Option<usize>,
}

/// The size of messages that the device hashes: words of a row, bytes of all rows, and bytes of the keys behind the rows.
#[derive(Clone, Copy, PartialEq)]
struct DigestShape {
    words: usize,
    rows: usize,
    keys: usize,
}

/// All that the steps of a pass depend on: passes that are equal share a recording.
#[derive(Clone, Copy, Default, PartialEq)]
struct Pass {
    /// Jobs that are computed, each in a place of its own.
    jobs: usize,
    /// Distinct keys.
    keys: usize,
    /// Whether WOTS+ signatures are stored behind the nodes of all keys.
    stored: bool,
    /// As in [`PassJobs`].
    moved: bool,
    /// As in [`PassJobs`].
    compares: bool,
    /// The messages that the device hashes, if it hashes any.
    hashed: Option<DigestShape>,
}

/// Jobs of a batch that one pass computes.
struct PassJobs {
    jobs: Range<usize>,
    /// Whether every job is in its neighbour's place, so that a fault of a place hits another job than usual. A single job is computed twice then,
    /// and the result in the second place counts.
    moved: bool,
    /// Whether the pass before has computed the signatures too, and the device compares both.
    compares: bool,
}

impl PassJobs {
    /// Jobs in their usual places.
    fn of(jobs: Range<usize>) -> PassJobs {
        PassJobs { jobs, moved: false, compares: false }
    }
    fn places(&self) -> usize {
        if self.moved { self.jobs.len().max(2) } else { self.jobs.len() }
    }
    /// The job in a place. If the jobs are moved, the first place is the second job's, and the last place the first job's.
    fn at(&self, place: usize) -> usize {
        let job = self.jobs.start + place + usize::from(self.moved);
        if job < self.jobs.end { job } else { self.jobs.start }
    }
}

/// All that passes compute from.
#[derive(Clone, Copy)]
struct Inputs<'r> {
    batch: Batch<'r>,
    /// The addresses of the keys' nodes, and whether WOTS+ signatures are stored behind all of them.
    nodes: &'r [u64],
    stored: bool,
    /// The messages that the device hashes, and the words of a row of them. Without these the batch has positions.
    messages: Option<(&'r dyn Digests, usize)>,
}

/// Positions of jobs for the run's places, of which there may be two. Or if the device hashes the messages, the words of a row of them.
type Prepared<'r> = ([Cow<'r, [Position]>; 2], Option<usize>);

/// A program's work, as errors name it.
fn work(op: Op) -> &'static str {
    match op {
        Op::Keygen => "key pairs",
        Op::Sign => "signatures",
        Op::Verify => "verifications",
        Op::Cache => "cached layers",
    }
}

/// A limit for waits on a device. A CPU gets no limit, since it does not hang.
pub(crate) fn wait_limit(work: &'static str, time: Option<Duration>, facts: &Facts) -> WaitLimit {
    WaitLimit { work, time: time.filter(|_| !facts.is_cpu) }
}

/// Signatures that a pass verifies.
enum SignatureInput<'a> {
    /// Signatures that are still to be sent; none if the pass signs, or has them among its other inputs.
    Later(Cow<'a, [&'a [u8]]>),
    /// The device fetches the signatures. The link is this program's until the device has the columns that it fetches first. The steps fetch the
    /// other columns while the device computes.
    UnderWay(MutexGuard<'a, ()>, Vec<Step>),
}

/// Allocates memory. If it does not suffice, cached nodes of keys that no program uses make way.
fn alloc<G: Gpu>(gpu: &Arc<G>, cache: &NodesCache<G>, bytes: usize) -> Result<G::Memory, Error> {
    match gpu.alloc(bytes) {
        Err(Error::OutOfMemory { .. }) if cache.drop_unused() => gpu.alloc(bytes),
        memory => memory,
    }
}

fn lacks_memory(facts: &Facts, needs: usize, has: u64) -> Error {
    Error::OutOfMemory { device: facts.id.clone(), needs: needs as u64, has }
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
        let shape = Shape::new(plan, policy, budget, gpu.facts());
        let kernels = GpuProgram::kernels(gpu, plan, batch, &shape)?;
        let mut jobs = match plan.op {
            Op::Cache => cache_trees(plan),
            _ => batch.max(1),
        };
        let mut layout = shape.layout(jobs);
        // A batch takes several passes if one pass would exceed the budget of the device, the largest allocation of the host's memory, or 32-bit indices.
        let largest = gpu.facts().largest;
        while !(shape.indexable(&layout) && layout.device as u64 <= budget && layout.host as u64 <= largest) {
            if jobs == 1 {
                let of_host = layout.host as u64 > largest;
                let (needs, has) = if of_host { (layout.host, largest) } else { (layout.device, budget) };
                return Err(lacks_memory(gpu.facts(), needs, has));
            }
            jobs = jobs.div_ceil(2);
            layout = shape.layout(jobs);
        }
        let memory = alloc(gpu, cache, layout.device)?;
        let (mut queue, limit) = (gpu.queue()?, wait_limit(work(plan.op), WaitLimit::default().time, gpu.facts()));
        queue.limit(limit);
        // Where programs take turns, one computes at a time while the others copy. Programs that sign or make keys take turns: without, all would compute
        // together, end together, and then copy together. (An H200 makes 3.39 million key pairs a second in turns, and 3.13 million without.) Programs
        // that verify take none. They fetch one after the other, so they begin at different times, and together they leave no compute unit idle. (An
        // H200 verifies 2.04 million signatures of 128f a second without turns, and 1.94 million in turns; 846,000 and 734,000 of 256f.)
        queue.takes_turns(plan.op != Op::Verify);
        if plan.op == Op::Sign {
            // Signatures are copied whole, but the host may be the one that writes R. So R's place is cleared once: nothing that earlier programs left in this
            // memory is copied.
            let (at, bytes) = (G::address(&memory) + layout.output.at as u64, layout.output.bytes);
            queue.submit(&kernels, &[Step::Zero { at, bytes }])?;
            queue.wait()?;
        }
        Ok(GpuProgram {
            plan: plan.clone(),
            shape,
            host: gpu.alloc_host(layout.host)?,
            layout,
            gpu: gpu.clone(),
            kernels,
            queue,
            memory,
            cache: cache.clone(),
            second: None,
            budget,
            limit,
            last: [None, None],
            recorded: [None, None],
            kept: None,
        })
    }

    /// The kernels that a program needs for up to `batch` jobs, compiled if they have to be.
    pub(crate) fn kernels(gpu: &Arc<G>, plan: &Plan, batch: usize, shape: &Shape) -> Result<G::Kernels, Error> {
        let p = plan.params;
        let wanted: &[Kernel] = match plan.op {
            Op::Keygen | Op::Cache => {
                &[Kernel::Keys, Kernel::Chains, Kernel::LeafSolo, Kernel::Xmss, Kernel::XmssWide, Kernel::XmssAbove]
            }
            Op::Sign => Kernel::ALL,
            Op::Verify => &[
                Kernel::Keys,
                Kernel::Digest,
                Kernel::Complete,
                Kernel::ForsClimb,
                Kernel::ForsClimbSolo,
                Kernel::ForsPk,
                Kernel::ForsPkWide,
                Kernel::Climb,
                Kernel::ClimbPaired,
                Kernel::ClimbSolo,
            ],
        };
        let (on_cpu, leaves_on_cpu) = (shape.on_cpu, shape.leaf_levels_on_cpu().is_some());
        let wanted: Vec<Kernel> = wanted
            .iter()
            .copied()
            .filter(|kernel| match kernel {
                // No plan uses these kernels.
                Kernel::Sha256 => false,
                kernel if kernel.is_zk() => false,
                Kernel::Select => shape.policy.replay == 0,
                Kernel::Chains => !leaves_on_cpu || plan.op == Op::Sign,
                Kernel::Xmss => !leaves_on_cpu,
                Kernel::LeafSolo => leaves_on_cpu,
                Kernel::Fors => !on_cpu || p.a as u32 <= CPU_FORS_LEVELS,
                Kernel::ForsSolo => on_cpu && p.a as u32 > CPU_FORS_LEVELS,
                Kernel::ForsClimb => !on_cpu && plan.op == Op::Verify,
                Kernel::ForsClimbSolo => on_cpu && plan.op == Op::Verify,
                Kernel::Cached => shape.cached > 0,
                Kernel::Stored => shape.policy.stored > 0 && shape.cached > 1,
                Kernel::Keys => batch > FEW_KEYS,
                Kernel::Compare => batch > FEW_JOBS,
                Kernel::Digest => shape.most_hashed() > 0 && batch > FEW_JOBS,
                // The last pass of a large batch may be a small one.
                Kernel::XmssWide | Kernel::ForsPkWide | Kernel::LeafWide | Kernel::Links => shape.policy.levels == 4,
                // With kept chain values cached layers are checked by `Climb` alone.
                Kernel::Climb if on_cpu => plan.op == Op::Sign && shape.policy.replay == 0 && shape.cached > 0,
                Kernel::Complete if on_cpu => false,
                Kernel::ClimbSolo if !on_cpu => false,
                Kernel::ClimbPaired if !shape.pairs => false,
                Kernel::Climb | Kernel::ClimbPaired | Kernel::Complete | Kernel::ClimbSolo => {
                    plan.op == Op::Verify || shape.policy.check == 1 || (shape.policy.stored > 0 && shape.cached > 1)
                }
                _ => true,
            })
            .collect();
        let wanted: Vec<_> = wanted.into_iter().map(|kernel| (kernel, shape.policy.block(kernel))).collect();
        gpu.kernels(&shape.policy.config(p, shape.has_low_occupancy(batch, gpu.facts().compute_units)), &wanted)
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
        G::host_bytes(&mut self.host, part.on_host..part.on_host + part.host_bytes)
    }
    fn upload(&self, part: Part, bytes: usize) -> Step {
        Step::Upload { to: self.device(part), from: self.on_host(part), bytes }
    }
    fn download(&self, part: Part, bytes: usize) -> Step {
        Step::Download { to: self.on_host(part), from: self.device(part), bytes }
    }

    /// Steps that wipe secrets in device memory.
    fn wipes(&self, pass: Pass) -> Vec<Step> {
        let l = &self.layout;
        // The part for messages is in use only if the device hashes this pass's messages.
        let messages = if pass.hashed.is_some() { l.messages } else { Part::default() };
        let secrets = [l.seeds, l.keys, messages, l.trace, l.cached_trace];
        let secrets = secrets.into_iter().filter(|part| part.bytes > 0 && self.plan.op != Op::Verify);
        secrets.map(|part| Step::Zero { at: self.device(part), bytes: part.bytes }).collect()
    }

    /// Submits a pass's steps. With `may_record`, replays their recording, which is made first if there is none. Returns the time of each launch if
    /// launches are timed alone.
    fn submit(
        &mut self,
        pass: Pass,
        steps: impl Fn(&PassSteps<'_, G>) -> Vec<Step>,
        may_record: bool,
    ) -> Result<Vec<StageTime>, Error> {
        let steps = |program: &Self| merged(&program.bounded(steps(&PassSteps { program, pass })));
        if self.shape.policy.stages == 1 {
            let steps = steps(self);
            return self.one_by_one(&steps);
        }
        if !may_record {
            let steps = steps(self);
            return self.queue.submit(&self.kernels, &steps).map(|()| Vec::new());
        }
        let recording = match self.recorded[usize::from(pass.moved)].take_if(|(of, _)| *of == pass) {
            Some((_, recording)) => recording,
            None => self.queue.record(&self.kernels, &steps(self))?,
        };
        let done = self.queue.replay(&recording);
        self.recorded[usize::from(pass.moved)] = Some((pass, recording));
        done.map(|()| Vec::new())
    }

    /// Limits the blocks of each launch to the policy's number, unless that is 0. Each block then does the work of several.
    fn bounded(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let most = self.shape.policy.blocks;
        for step in &mut steps {
            if let (Step::Launch(launch) | Step::SideLaunch(launch), 1..) = (step, most) {
                launch.blocks = launch.blocks.min(most);
            }
        }
        steps
    }

    /// Submits one step after the other and waits for each. Returns the launches' times.
    fn one_by_one(&mut self, steps: &[Step]) -> Result<Vec<StageTime>, Error> {
        let mut stages = Vec::new();
        self.queue.wait()?;
        for step in steps {
            let (step, launch) = match *step {
                Step::Fork | Step::Join => continue,
                Step::Launch(launch) | Step::SideLaunch(launch) => (Step::Launch(launch), Some(launch)),
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

    /// Has the device compute a pass that is not recorded, with no signatures to send and nothing to receive.
    fn go_alone(&mut self, pass: Pass, steps: impl Fn(&PassSteps<'_, G>) -> Vec<Step>) -> Result<Timing, Error> {
        self.go(pass, steps, false, SignatureInput::Later(Cow::default()), |_| Ok(()))
    }

    /// Has the device compute a pass, and wipes secrets. The keys in the host's memory are wiped also after an error.
    fn go(
        &mut self,
        pass: Pass,
        steps: impl Fn(&PassSteps<'_, G>) -> Vec<Step>,
        may_record: bool,
        signatures: SignatureInput<'_>,
        receive: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<Timing, Error> {
        let (sent, turn) = match signatures {
            SignatureInput::Later(signatures) => (self.send(&signatures), None),
            SignatureInput::UnderWay(turn, _) => (Ok(()), Some(turn)),
        };
        let mut done = sent.and_then(|()| self.submit(pass, steps, may_record));
        let mut host_was_late = None;
        if let (Ok(_), Some(_turn)) = (&done, turn) {
            let start = Instant::now();
            // The turn ends after this wait. This pass's other copies to the device are ahead of the next program's signatures.
            done = self.queue.wait_for(0).and(done);
            // With launches that are timed alone, the program has waited already.
            host_was_late = Some(self.shape.policy.stages == 0 && start.elapsed() < LATE);
        }
        if done.is_ok() {
            done = receive(self).and(done);
        }
        let wiped = if done.is_ok() { self.queue.follow(&self.kernels, &self.wipes(pass)) } else { Ok(()) };
        let waited = self.queue.wait();
        self.queue.limit(self.limit);
        // The driver overwrites memory that a hung device may still use.
        if self.gpu.hung().is_none() {
            let (seeds, messages) = (self.layout.seeds, self.layout.messages);
            wipe(self.bytes(seeds));
            if let (Some(DigestShape { rows, keys, .. }), Op::Sign) = (pass.hashed, self.plan.op) {
                // The keys have SK.prf, the rows opt_rand.
                wipe(&mut self.bytes(messages)[..rows + keys]);
            }
        }
        if done.is_err() || waited.is_err() {
            self.forget();
        }
        let stages = done?;
        wiped?;
        let timing = Timing { host_was_late, ..waited?.unwrap_or_default() };
        if stages.is_empty() {
            return Ok(timing);
        }
        // Launches were timed alone, so the last wait was for copies.
        let execute = stages.iter().map(|stage| stage.time).sum();
        Ok(Timing { execute, download: timing.execute, stages, ..timing })
    }

    /// Wipes all memory: nothing of a failed pass stays, since a signature that failed its check would help an attacker.
    fn forget(&mut self) {
        let mut all = vec![Step::Zero { at: G::address(&self.memory), bytes: self.layout.device }];
        all.extend(
            self.second.iter().map(|second| Step::Zero { at: G::address(second), bytes: self.layout.output.bytes }),
        );
        // If the device fails now, nothing on it can be wiped any more.
        let _ = self.queue.follow(&self.kernels, &all);
        let _ = self.queue.wait();
        if self.gpu.hung().is_none() {
            wipe(G::host_bytes(&mut self.host, 0..self.layout.host));
        }
        self.kept = None;
    }

    /// Sends signatures to the device, through the ring.
    fn send(&mut self, signatures: &[&[u8]]) -> Result<(), Error> {
        if signatures.is_empty() {
            return Ok(());
        }
        let (shared, to) = (self.cache.clone(), self.device(self.layout.input));
        let _turn = lock(&shared.sending);
        self.ring().send(signatures, to)
    }

    /// Steps that copy signatures which the device reaches: before it computes, and while it does. `None` unless most rows follow each other.
    fn fetches(&self, rows: &[&[u8]]) -> Option<[Vec<Step>; 2]> {
        let (row, to) = (self.p().sig_bytes(), self.device(self.layout.input));
        let runs = reached(&*self.gpu, rows.iter().map(|signature| (signature.as_ptr() as u64, row)), 0)?;
        let is_split = (LEAST_IN_COLUMNS..=MOST_IN_COLUMNS).contains(&rows.len());
        let first = if is_split { first_columns(self.p()) } else { row };
        // A set with a single tree has no other columns.
        if first == row {
            return Some([runs.iter().map(|run| run.upload(to)).collect(), Vec::new()]);
        }
        let columns = |columns: Range<usize>| {
            let steps = runs.iter().map(|run| run.upload_columns(to, row, columns.clone()));
            steps.collect()
        };
        Some([columns(0..first), columns(first..row)])
    }

    /// Copies signatures into several parts, without the first `skip` bytes of each signature. The device itself writes parts that it reaches, and
    /// writes all bytes there.
    fn receive(&mut self, parts: Vec<&mut [u8]>, skip: usize) -> Result<(), Error> {
        let mut from = self.device(self.layout.output);
        // Parts that the device does not reach, collected as long as they follow each other.
        let (mut others, mut from_others): (Vec<&mut [u8]>, u64) = (Vec::new(), from);
        for part in parts {
            let (to, bytes) = (part.as_mut_ptr() as u64, part.len());
            if self.gpu.reaches(to, bytes) {
                self.ring().receive(std::mem::take(&mut others), skip, from_others)?;
                // The wait has no limit: the caller has lent this memory until the device is done with it. The device has only copies left to do.
                self.queue.limit(WaitLimit { time: None, ..self.limit });
                self.queue.submit(&self.kernels, &[Step::Download { to, from, bytes }])?;
            } else {
                if others.is_empty() {
                    from_others = from;
                }
                others.push(part);
            }
            from += bytes as u64;
        }
        self.ring().receive(others, skip, from_others)
    }

    /// For each job, the root of the highest tree that was grown.
    fn highest_roots(&self, jobs: &PassJobs) -> Vec<u8> {
        let (p, grown) = (self.p(), self.shape.grown);
        let row = (p.d + 1) * p.n;
        let of_places = self.view(self.layout.roots, jobs.places() * row).chunks_exact(row);
        let mut roots = Vec::with_capacity(jobs.places() * p.n);
        of_places.for_each(|of_place| roots.extend_from_slice(&of_place[grown * p.n..][..p.n]));
        in_bytes(p, &mut roots);
        if jobs.moved {
            roots.rotate_right(p.n);
        }
        roots.truncate(jobs.jobs.len() * p.n);
        roots
    }

    fn ring(&mut self) -> Ring<'_, G> {
        let (slots, parallel) = (self.layout.slots(self.p()), in_threads(self.shape.policy.threads));
        let (queue, kernels, host) = (&mut self.queue, &self.kernels, &self.host);
        Ring { queue, kernels, host, at: self.layout.ring.on_host, slots, parallel }
    }

    /// Fails unless every layer of every job of the current pass passed its root-consistency check. A layer that was not checked has not passed.
    fn checked(&self, jobs: usize) -> Result<(), Error> {
        if self.shape.policy.check == 0 {
            return Ok(());
        }
        let words = self.view(self.layout.flag, flag_words(self.p(), jobs) * 4).as_chunks::<4>().0;
        // All words are compared, several at a time.
        let agree = |words: &[[u8; 4]]| words.iter().fold(0, |bad, word| bad | (u32::from_le_bytes(*word) ^ 1)) == 0;
        match words.split_first() {
            Some(([0, 0, 0, 0], words)) if agree(words) => Ok(()),
            _ => Err(self.inconsistent()),
        }
    }

    fn inconsistent(&self) -> Error {
        let what = "a layer's root is not the one that its signature leads to".into();
        Error::Inconsistent { device: self.gpu.facts().id.clone(), what }
    }

    /// Lays out the keys of a pass. Returns the distinct keys, and their numbers among these.
    fn put_keys(&mut self, batch: &Batch<'_>, jobs: &PassJobs, nodes: &[u64]) -> (Vec<usize>, Vec<u32>) {
        let each = self.plan.op == Op::Keygen;
        let (mut distinct, mut numbers) = (Vec::new(), vec![u32::MAX; batch.keys.len()]);
        for place in 0..jobs.places() {
            let key = batch.key_of[jobs.at(place)] as usize;
            if each || numbers[key] == u32::MAX {
                numbers[key] = distinct.len() as u32;
                distinct.push(key);
            }
        }
        // If the jobs are moved, the last place's key gets the last number: jobs that share this key may have left it its usual number.
        if jobs.moved && !each {
            let at = numbers[batch.key_of[jobs.at(jobs.places() - 1)] as usize];
            distinct[at as usize..].rotate_left(1);
            distinct[at as usize..].iter().zip(at..).for_each(|(key, number)| numbers[*key] = number);
        }
        let (p, few, seeds) = (self.p(), distinct.len() <= FEW_KEYS, self.layout.seeds);
        let row = if few { KEY_WORDS * 4 } else { 2 * p.n + 8 };
        let parallel = in_threads(self.shape.policy.threads) && distinct.len() >= 1024;
        let rows = &mut self.bytes(seeds)[..distinct.len() * row];
        each_row(rows, row, parallel.then_some(256), |number, to| {
            let key = distinct[number];
            let (key, nodes) = (&batch.keys[key], nodes.get(key).copied().unwrap_or(0));
            if few {
                keys::lay_out(p, key, nodes, to);
            } else {
                to[..p.n].copy_from_slice(key.pk_seed);
                to[p.n..2 * p.n].fill(0);
                to[p.n..p.n + key.sk_seed.len()].copy_from_slice(key.sk_seed);
                to[2 * p.n..].copy_from_slice(&nodes.to_le_bytes());
            }
        });
        (distinct, numbers)
    }

    fn put_positions(&mut self, batch: &Batch<'_>, jobs: &PassJobs, numbers: &[u32]) {
        let (k, part, parallel) = (self.p().k, self.layout.positions, in_threads(self.shape.policy.threads));
        let row = (JOB_WORDS + k) * 4;
        let rows = &mut self.bytes(part)[..jobs.places() * row];
        each_row(rows, row, (parallel && jobs.places() >= 256).then_some(64), |place, to| {
            let job = jobs.at(place);
            let (at, number) = (&batch.positions[job], numbers[batch.key_of[job] as usize]);
            let head = [number, (at.idx_tree >> 32) as u32, at.idx_tree as u32, at.idx_leaf];
            put_words(to, head.iter().chain(&*at.fors).copied());
        });
    }

    /// Lays out messages in rows of so many words, and their keys behind the rows.
    fn put_messages(
        &mut self,
        batch: &Batch<'_>,
        jobs: &PassJobs,
        (distinct, numbers): (&[usize], &[u32]),
        (digests, words): (&dyn Digests, usize),
    ) -> DigestShape {
        let (n, part, parallel) = (self.p().n, self.layout.messages, in_threads(self.shape.policy.threads));
        let hashed = DigestShape { words, rows: jobs.places() * words * 4, keys: distinct.len() * 3 * n };
        let (rows, of_keys) = self.bytes(part)[..hashed.rows + hashed.keys].split_at_mut(hashed.rows);
        let parallel = parallel && jobs.places() >= 256;
        each_row(of_keys, 3 * n, parallel.then_some(256), |number, to| {
            let key = &batch.keys[distinct[number]];
            to[..key.sk_prf.len()].copy_from_slice(key.sk_prf);
            to[n..2 * n].copy_from_slice(key.pk_seed);
            to[2 * n..].copy_from_slice(key.pk_root);
        });
        each_row(rows, 4 * words, parallel.then_some(64), |place, to| {
            let job = jobs.at(place);
            let (m_prime, opt_rand) = (digests.m_prime(job), digests.opt_rand(job));
            let bytes: usize = m_prime.parts().iter().map(|part| part.len()).sum();
            to[..4].copy_from_slice(&numbers[batch.key_of[job] as usize].to_le_bytes());
            to[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
            to[8..][..opt_rand.len()].copy_from_slice(opt_rand);
            // R's place is between opt_rand and M′.
            let mut at = 8 + opt_rand.len() + n;
            for part in m_prime.parts() {
                to[at..][..part.len()].copy_from_slice(part);
                at += part.len();
            }
        });
        hashed
    }

    /// Where so many jobs have PK_FORS and their roots, and their FORS roots, and how many bytes.
    fn values(&self, jobs: usize) -> [(Part, usize); 2] {
        let (p, l) = (self.p(), &self.layout);
        [(l.roots, jobs * (p.d + 1) * p.n), (l.fors, jobs * p.k * p.n)]
    }

    fn view(&self, part: Part, bytes: usize) -> &[u8] {
        G::host_view(&self.host, part.on_host..part.on_host + bytes)
    }

    /// Lays out keys of a pass, and positions or messages.
    fn lay_out(&mut self, inputs: &Inputs<'_>, jobs: &PassJobs) -> Pass {
        let Inputs { batch, nodes, stored, messages } = inputs;
        let (distinct, numbers) = self.put_keys(batch, jobs, nodes);
        for part in [self.layout.compared, self.layout.flag] {
            self.bytes(part).fill(0);
        }
        let hashed = messages.map(|messages| self.put_messages(batch, jobs, (&distinct, &numbers), messages));
        if hashed.is_none() && self.plan.op != Op::Keygen {
            self.put_positions(batch, jobs, &numbers);
        }
        let PassJobs { moved, compares, .. } = *jobs;
        Pass { jobs: jobs.places(), keys: distinct.len(), stored: *stored, moved, compares, hashed }
    }

    /// Makes sure that jobs can be computed in these places, by passes of at least so many jobs. The program keeps the memory for second signatures.
    fn make_room(&mut self, places: Places, least: usize) -> Result<(), Error> {
        let Layout { jobs, device, output, .. } = self.layout;
        let lacks = |needs: usize| Err(lacks_memory(self.gpu.facts(), needs, device as u64));
        match places {
            Places::Other if jobs < 2 => lacks(self.shape.layout(2).device),
            Places::Both => {
                let (needs, compares) = (device + output.bytes, self.plan.op == Op::Sign && least > FEW_JOBS);
                if !compares || needs as u64 > self.budget {
                    return lacks(needs);
                }
                if self.second.is_none() {
                    self.second = Some(alloc(&self.gpu, &self.cache, output.bytes)?);
                }
                Ok(())
            }
            Places::Usual | Places::Other => Ok(()),
        }
    }

    /// Fails unless both computations gave the same signatures, as the device has found, and the same roots. Signatures that were not compared
    /// count as different.
    fn same(&self, jobs: &PassJobs, first: &[u8], second: &[u8]) -> Result<(), Error> {
        let (n, start) = (self.p().n, jobs.jobs.start);
        let words = self.view(self.layout.compared, first.len() / n * 4);
        let signature = words.chunks_exact(4).position(|word| word != 1u32.to_le_bytes());
        let root = first.chunks_exact(n).zip(second.chunks_exact(n)).position(|(first, second)| first != second);
        let (result, job) = match (signature, root) {
            (Some(job), _) => ("the output of Sign", job),
            (None, Some(job)) => ("the top tree's root", job),
            (None, None) => return Ok(()),
        };
        Err(Error::differs(self.gpu.facts().id.clone(), result, start + job))
    }

    /// Whether a pass is to be recorded: always if its jobs are few, and with more jobs if the last pass was equal.
    fn may_record(&mut self, pass: Pass) -> bool {
        let last = self.last[usize::from(pass.moved)].replace(pass);
        let is_again = last == Some(pass) && pass.jobs <= MOST_RECORDED_AGAIN;
        self.shape.policy.record == 1 && (pass.jobs <= FEW_JOBS || is_again)
    }

    /// The signatures that a pass verifies. If there are more than a few, and the device reaches them, it begins to fetch them.
    fn signatures<'r>(
        &mut self,
        link: &'r NodesCache<G>,
        batch: &Batch<'r>,
        jobs: &PassJobs,
    ) -> Result<SignatureInput<'r>, Error> {
        let signatures = match jobs.moved && self.plan.op == Op::Verify {
            true => (0..jobs.places()).map(|place| batch.signatures[jobs.at(place)]).collect(),
            false => Cow::Borrowed(batch.signatures.get(jobs.jobs.clone()).unwrap_or_default()),
        };
        let fetches = if signatures.len() > FEW_JOBS { self.fetches(&signatures) } else { None };
        let Some([first, others]) = fetches else { return Ok(SignatureInput::Later(signatures)) };
        let turn = lock(&link.sending);
        self.queue.submit(&self.kernels, &first)?;
        self.queue.mark(0)?;
        Ok(SignatureInput::UnderWay(turn, others))
    }

    /// Decides whether the device hashes the messages. If not, gets the positions, and checks them.
    fn positions<'r>(&self, work: &mut Work<'r>, are_large: bool, is_fetched: bool) -> Result<Prepared<'r>, Error> {
        // While the device fetches many signatures, the host has time to hash, unless its threads have other work. (An H200 verifies 5.4 million
        // signatures of 128s a second, and 4.5 million if the device hashes their messages.)
        let has_time = is_fetched && work.batch.len() > MOST_IN_COLUMNS;
        let most = if are_large { self.shape.most_hashed() } else { 0 };
        let hashed = work.digests.as_ref().filter(|digests| most > 0 && (!has_time || digests.host_is_late()));
        if let Some(longest) = hashed.map(|digests| digests.longest()).filter(|longest| *longest <= most) {
            return Ok((Default::default(), Some(self.shape.message_words(longest))));
        }
        let mut all = [Cow::default(), Cow::default()];
        for positions in &mut all[..if work.places == Places::Both { 2 } else { 1 }] {
            *positions = work.positions()?;
            Batch { positions, ..work.batch }.check_positions(&self.plan)?;
        }
        Ok((all, None))
    }

    /// Runs a pass that signs, verifies or makes keys. If it signs, `accept` comes before its results leave.
    fn pass(
        &mut self,
        inputs: &Inputs<'_>,
        jobs: &PassJobs,
        mut signatures: SignatureInput<'_>,
        accept: &mut dyn FnMut(&Self) -> Result<(), Error>,
        mut parts: Vec<&mut [u8]>,
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        let (p, op, each, output) = (self.p(), self.plan.op, self.plan.out_bytes(), self.layout.output);
        let pass = self.lay_out(inputs, jobs);
        let few = pass.jobs <= FEW_JOBS;
        if let (SignatureInput::Later(few), true) = (&mut signatures, few) {
            let input = self.layout.input;
            for (to, from) in self.bytes(input).chunks_exact_mut(p.sig_bytes()).zip(std::mem::take(few).iter()) {
                to.copy_from_slice(from);
            }
        }
        let fetches = match &mut signatures {
            SignatureInput::UnderWay(_, others) => std::mem::take(others),
            SignatureInput::Later(_) => Vec::new(),
        };
        // A recording would fetch from the same addresses again.
        let may_record = self.may_record(pass) && fetches.is_empty();
        // The parts are put into the order of the places. After a comparison, the first pass's signatures leave, which are in their usual places.
        if let (true, Some(part)) = (jobs.moved && !jobs.compares, parts.first_mut()) {
            let of_first = part.split_off_mut(..each);
            parts.extend(of_first);
            parts.retain(|part| !part.is_empty());
        }
        // If the host makes R, the host also writes it.
        let skip = if op == Op::Sign && pass.hashed.is_none() { p.n } else { 0 };
        let (is_held, laid_out) = (op == Op::Sign && !few, start.elapsed());
        let steps = |steps: &PassSteps<'_, G>| match op {
            Op::Keygen => steps.keygen_steps(),
            Op::Sign => steps.sign_steps(),
            _ => steps.verify_steps(&fetches),
        };
        let mut timing = self.go(pass, steps, may_record, signatures, |program| {
            if !is_held {
                return Ok(());
            }
            program.queue.mark(0)?;
            program.queue.wait_for(0)?;
            program.checked(pass.jobs)?;
            accept(program)?;
            program.receive(std::mem::take(&mut parts), skip)
        })?;
        let start = Instant::now();
        if op == Op::Sign && few {
            self.checked(pass.jobs)?;
            accept(self)?;
        }
        if !is_held {
            let places = self.view(output, pass.jobs * each);
            copy_rows(parts, &places[(pass.jobs - jobs.jobs.len()) * each..], each, skip);
        }
        timing.upload += laid_out;
        timing.download += start.elapsed();
        Ok(timing)
    }

    /// Runs all passes of a batch, one for each chunk of the results.
    fn passes(
        &mut self,
        mut work: Work<'_>,
        out: Vec<Chunk<'_>>,
        (nodes, stored): (&[u64], bool),
    ) -> Result<Timing, Error> {
        let (batch, each, link) = (work.batch, self.plan.out_bytes(), self.cache.clone());
        // The last pass is the smallest.
        let are_large = out.last().is_some_and(|chunk| chunk.bytes > FEW_JOBS * each);
        let (is_both, is_other) = (work.places == Places::Both, work.places == Places::Other);
        let (mut timing, mut prepared, mut end) = (Timing::default(), None, 0);
        for mut chunk in out {
            let (start, mut roots) = (end, Vec::new());
            end += chunk.bytes / each;
            for compares in [false, true].into_iter().take(if is_both { 2 } else { 1 }) {
                let jobs = PassJobs { jobs: start..end, moved: compares || is_other, compares };
                let signatures = self.signatures(&link, &batch, &jobs)?;
                let is_fetched = matches!(signatures, SignatureInput::UnderWay(..));
                let (positions, words) = match &mut prepared {
                    Some(prepared) => prepared,
                    none => none.insert(self.positions(&mut work, are_large, is_fetched)?),
                };
                let by_host = work.digests.is_some() && words.is_none();
                let batch = Batch { positions: &positions[usize::from(compares)], ..batch };
                let inputs = Inputs { batch, nodes, stored, messages: work.digests.as_deref().zip(*words) };
                let mut accept = |program: &Self| {
                    let more = program.highest_roots(&jobs);
                    if compares {
                        return program.same(&jobs, &roots, &more);
                    }
                    roots = more;
                    work.accept.as_mut().map_or(Ok(()), |accept| accept(start, &roots))
                };
                // The results of the first of two passes stay on the device.
                let parts = if compares == is_both { std::mem::take(&mut chunk.places) } else { Vec::new() };
                let pass = self.pass(&inputs, &jobs, signatures, &mut accept, parts)?;
                timing += &pass;
                timing.stages.extend(pass.stages);
                let was_late = pass.host_was_late.filter(|_| batch.len() > MOST_IN_COLUMNS);
                timing.host_was_late = timing.host_was_late.or(was_late.map(|was_late| was_late && by_host));
            }
        }
        Ok(timing)
    }
}

/// log2 of the leaves that a block of the cooperative kernels works on at a time.
const COOPERATIVE_CHUNK: u32 = COOPERATIVE_ROWS.ilog2();

/// Jobs, at most, that are few. A batch of few is always submitted as a recording: with more, the launches cost nothing compared with the work. And its
/// results are written to the host's memory by the kernels; more results are copied.
pub(crate) const FEW_JOBS: usize = 16;

/// Jobs, at most, of a batch that is submitted as a recording if the batch before was like it: a recording is made to be used again. (A
/// replay of 64 signatures of 128f is submitted in 35 µs on an H200, the same launches in 125 µs. This number is chosen, not measured.)
const MOST_RECORDED_AGAIN: usize = 1024;

/// The device fetches a batch of so many signatures in two parts: they are too few to keep it busy, so it should begin early. It begins with
/// [`first_columns`], and hashes the messages. (An H200 verifies 430,000 signatures of 128f a second in calls of 1,024, and 409,000 if it
/// fetches all columns first; in calls of 64, 46,000 and 48,000, since those are recorded. The greatest number is chosen, not measured.)
/// Tests of this crate take both ways with few signatures.
const LEAST_IN_COLUMNS: usize = if cfg!(test) { FEW_JOBS + 1 } else { 256 };
const MOST_IN_COLUMNS: usize = if cfg!(test) { 48 } else { 2048 };

/// If the wait for signatures is shorter, the device had them before the host was done. Then the wait takes 4 to 7 µs on an H200.
const LATE: Duration = Duration::from_micros(50);

/// Bytes of a signature that the device works on first: R, FORS, and as many layers of XMSS as take about as long as the other layers'
/// copies.
fn first_columns(p: &Params) -> usize {
    p.n * (1 + p.k * (1 + p.a) + first_layers(p) * (p.len() + p.hp))
}

/// How many layers, from the lowest on, are in [`first_columns`].
fn first_layers(p: &Params) -> usize {
    p.d.div_ceil(8)
}

/// Turns words of nodes, as the device keeps them, into bytes.
fn in_bytes(p: &Params, words: &mut [u8]) {
    match p.family {
        Family::Sha2 => words.chunks_exact_mut(4).for_each(<[u8]>::reverse),
        Family::Shake => {}
    }
}

/// Merges copies that follow each other on both sides.
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
    /// The caller may have rejected the results after they were computed, so nothing of them may stay.
    fn drop(&mut self) {
        self.forget();
    }
}

impl<G: Gpu> Program for GpuProgram<G> {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn hashes(&self) -> usize {
        self.shape.most_hashed()
    }

    fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        self.gpu.hung().map_or(Ok(()), Err)?;
        let (batch, each) = (work.batch, self.plan.out_bytes());
        batch.check_all_but_positions(&self.plan, out.iter().map(|part| part.len()).sum())?;
        if let Some(got) = out.iter().map(|part| part.len()).find(|bytes| bytes % each != 0) {
            return Err(Error::Length { what: "a part of the output", want: got.next_multiple_of(each), got });
        }
        let passes = batch.len().div_ceil(self.layout.jobs).max(1);
        self.kept = None;
        if self.plan.op == Op::Cache {
            let [out] = out else { return Err(Error::Value { what: "cached nodes need one part of memory".into() }) };
            return self.cache(&batch, out);
        }
        // Passes are of one size, so that the last one is not much smaller than the others.
        let out = chunks(out.iter_mut().map(|part| &mut **part), batch.len().div_ceil(passes) * each);
        self.make_room(work.places, out.last().map_or(0, |chunk| chunk.bytes / each))?;
        let (_held, nodes, stored) = self.nodes_of_keys(&batch)?;
        let done = self.passes(work, out, (&nodes, stored));
        self.kept = Some(batch.len()).filter(|_| passes == 1 && done.is_ok());
        if done.is_err() {
            // This waits, too: when this returns, all memory of the caller is the caller's again, and no copy may be under way.
            self.forget();
            // Nodes that are damaged would fail every batch of their key.
            batch.keys.iter().for_each(|key| self.cache.remove(key.cached_id));
        }
        done
    }

    fn time_limit(&mut self, limit: Option<Duration>) {
        self.limit = wait_limit(self.limit.work, limit, self.gpu.facts());
        self.queue.limit(self.limit);
    }

    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        let p = self.p();
        if !matches!(self.plan.op, Op::Sign | Op::Verify) {
            return Ok(None);
        }
        let (Some(jobs), row) = (self.kept, (p.d + 1) * p.n) else { return Ok(None) };
        let values = self.values(jobs);
        // The steps of a pass copy the values from the device if its jobs are few.
        if jobs > FEW_JOBS {
            self.queue.submit(&self.kernels, &values.map(|(part, bytes)| self.download(part, bytes)))?;
            self.queue.wait()?;
        }
        let [roots, fors] = values.map(|(part, bytes)| self.view(part, bytes));
        let jobs = || roots.chunks_exact(row);
        let mut bytes = match slot {
            Slot::ForsRoots => fors.to_vec(),
            Slot::ForsPk => jobs().flat_map(|roots| &roots[..p.n]).copied().collect(),
            Slot::XmssRoots => {
                jobs().flat_map(|roots| &roots[p.n..row - self.plan.cached_layers * p.n]).copied().collect()
            }
        };
        in_bytes(p, &mut bytes);
        Ok(Some(bytes))
    }
}
