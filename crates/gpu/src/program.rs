//! A plan prepared for a GPU: memory, kernels, and the steps of a batch.

mod cached;
#[cfg(test)]
mod digest_tests;
mod launches;
mod layout;

#[cfg(test)]
pub(crate) use layout::device_bytes;
pub(crate) use layout::{host_bytes, least_bytes};

use self::layout::{FEW_KEYS, Layout, Part, Shape, cache_trees, flag_words};
use crate::gpu::{Facts, Gpu, Launch, Queue, Step, WaitLimit, wipe};
use crate::keys;
use crate::nodes::NodesCache;
use crate::policy::GpuPolicy;
use crate::ring::{Ring, each_row, in_threads};
use crate::runs::reached;
use hypergrove_engine::{Accept, Batch, Digests, Error, Key, Program, StageTime, Timing};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::{Family, Params, Position};
use hypergrove_kernels::arguments::JobArguments;
use hypergrove_kernels::{COOPERATIVE_ROWS, CPU_FORS_LEVELS, JOB_WORDS, KEY_WORDS, Kernel};
use rayon::prelude::*;
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
    /// Whether jobs change places: see [`Program::relocated`].
    relocated: bool,
    /// Whether this pass computes signatures for the second time, and the device compares them with the first.
    compares: bool,
    /// Whether the host has laid out the keys of this pass: then kernels read them where they were uploaded to.
    keys_laid_out: bool,
    /// Whether WOTS+ signatures are stored behind the nodes of all keys of this batch.
    stored: bool,
    /// The messages that the device hashes in this pass, if it hashes any.
    hashed: Option<DigestShape>,
    /// Whether the device had this pass's signatures before the host's own work was done: the wait for them took less than `late`.
    is_late: bool,
    late: Duration,
    /// The device hashes the messages of so many more batches of over [`MOST_IN_COLUMNS`] signatures, since the host was late.
    hashes: u32,
    /// How long the program's waits may take.
    limit: WaitLimit,
    /// The key of the last usual pass, and of the last relocated pass, under which it could have been recorded.
    last: [Option<RecordingKey>; 2],
    /// Recorded steps of usual passes, and of relocated passes, each for one [`RecordingKey`].
    recorded: [Option<Recorded<<G::Queue as Queue>::Recording>>; 2],
    /// Roots and FORS roots of the last run, as words.
    kept: RootValues,
}

/// The size of messages that the device hashes: words of a row, bytes of all rows, and bytes of the keys behind the rows.
#[derive(Clone, Copy, PartialEq)]
struct DigestShape {
    words: usize,
    rows: usize,
    keys: usize,
}

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

/// Passes that agree in this can share a recording: jobs, keys, whether signatures are stored, whether they are compared, and the messages
/// that the device hashes.
type RecordingKey = (usize, usize, bool, bool, Option<DigestShape>);

struct Recorded<R> {
    what: RecordingKey,
    recording: R,
}

/// Signatures that a pass verifies.
enum SignatureInput<'a> {
    /// Signatures that are still to be sent; none if the pass signs, or has them among its other inputs.
    Later(&'a [&'a [u8]]),
    /// The device fetches the signatures. The link is this program's until the device has the columns that it fetches first. The steps fetch the
    /// other columns while the device computes.
    UnderWay(MutexGuard<'a, ()>, Vec<Step>),
}

#[derive(Default)]
struct RootValues {
    /// Whether there were several passes. If not, the values of these jobs are still in the host's memory.
    several_passes: bool,
    jobs: usize,
    roots: Vec<u8>,
    fors: Vec<u8>,
}

/// Allocates memory. If it does not suffice, cached nodes of keys that no program uses make way.
fn alloc<G: Gpu>(gpu: &Arc<G>, cache: &NodesCache<G>, bytes: usize) -> Result<G::Memory, Error> {
    match gpu.alloc(bytes) {
        Err(Error::OutOfMemory { .. }) if cache.drop_unused() => gpu.alloc(bytes),
        memory => memory,
    }
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
                let (needs, has) = match layout.host as u64 {
                    host if host > largest => (host, largest),
                    _ => (layout.device as u64, budget),
                };
                return Err(Error::OutOfMemory { device: gpu.facts().id.clone(), needs, has });
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
            relocated: false,
            compares: false,
            keys_laid_out: false,
            stored: false,
            hashed: None,
            is_late: false,
            late: LATE,
            hashes: 0,
            limit,
            last: [None, None],
            recorded: [None, None],
            kept: RootValues::default(),
        })
    }

    /// Compiles the kernels that [`new`](GpuProgram::new) would compile.
    pub(crate) fn compile(
        gpu: &Arc<G>,
        plan: &Plan,
        batch: usize,
        budget: u64,
        policy: GpuPolicy,
    ) -> Result<(), Error> {
        GpuProgram::kernels(gpu, plan, batch, &Shape::new(plan, policy, budget, gpu.facts())).map(drop)
    }

    /// The kernels that a program needs for up to `batch` jobs, compiled if they have to be.
    fn kernels(gpu: &Arc<G>, plan: &Plan, batch: usize, shape: &Shape) -> Result<G::Kernels, Error> {
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
    /// The addresses of keys and jobs on the device.
    fn jobs(&self) -> JobArguments {
        let keys = self.device(if self.keys_laid_out { self.layout.seeds } else { self.layout.keys });
        JobArguments { params: self.p(), keys, jobs: self.device(self.layout.positions) }
    }
    /// The address of the signatures on the device that this pass verifies or makes.
    fn signatures(&self) -> u64 {
        match &self.second {
            Some(second) if self.compares => G::address(second),
            _ => self.device(if self.plan.op == Op::Verify { self.layout.input } else { self.layout.output }),
        }
    }

    /// Steps that wipe secrets in device memory.
    fn wipes(&self) -> Vec<Step> {
        let l = &self.layout;
        // The part for messages is in use only if the device hashes this pass's messages.
        let messages = if self.hashed.is_some() { l.messages } else { Part::default() };
        let secrets = [l.seeds, l.keys, messages, l.trace, l.cached_trace];
        let secrets = secrets.into_iter().filter(|part| part.bytes > 0 && self.plan.op != Op::Verify);
        secrets.map(|part| Step::Zero { at: self.device(part), bytes: part.bytes }).collect()
    }

    /// Submits steps. With `record`, replays the recording with this key, which is made first if there is none.
    /// Returns the time of each launch if launches are timed alone.
    fn submit(
        &mut self,
        steps: impl Fn(&Self) -> Vec<Step>,
        record: Option<RecordingKey>,
    ) -> Result<Vec<StageTime>, Error> {
        let steps = |program: &Self| merged(&program.bounded(steps(program)));
        let Some(what) = record.filter(|_| self.shape.policy.stages == 0) else {
            let steps = steps(self);
            if self.shape.policy.stages == 1 {
                return self.one_by_one(&steps);
            }
            return self.queue.submit(&self.kernels, &steps).map(|()| Vec::new());
        };
        let place = usize::from(self.relocated);
        let recorded = self.recorded[place].take().filter(|recorded| recorded.what == what);
        let recorded = match recorded {
            Some(recorded) => recorded,
            None => {
                let recording = self.queue.record(&self.kernels, &steps(self))?;
                Recorded { what, recording }
            }
        };
        let done = self.queue.replay(&recorded.recording);
        self.recorded[place] = Some(recorded);
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
    fn go_alone(&mut self, steps: impl Fn(&Self) -> Vec<Step>) -> Result<Timing, Error> {
        self.go(steps, None, SignatureInput::Later(&[]), |_| Ok(()))
    }

    /// Has the device compute a pass, and wipes secrets. The keys in the host's memory are wiped also after an error.
    fn go(
        &mut self,
        steps: impl Fn(&Self) -> Vec<Step>,
        record: Option<RecordingKey>,
        signatures: SignatureInput<'_>,
        receive: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<Timing, Error> {
        let (sent, turn) = match signatures {
            SignatureInput::Later(signatures) => (self.send(signatures), None),
            SignatureInput::UnderWay(turn, _) => (Ok(()), Some(turn)),
        };
        let mut done = sent.and_then(|()| self.submit(steps, record));
        if let (Ok(_), Some(_turn)) = (&done, turn) {
            let start = Instant::now();
            // The turn ends after this wait. This pass's other copies to the device are ahead of the next program's signatures.
            done = self.queue.wait_for(0).and(done);
            // With launches that are timed alone, the program has waited already.
            self.is_late = done.is_ok() && self.shape.policy.stages == 0 && start.elapsed() < self.late;
        }
        if done.is_ok() {
            done = receive(self).and(done);
        }
        let wiped = if done.is_ok() { self.queue.follow(&self.kernels, &self.wipes()) } else { Ok(()) };
        let waited = self.queue.wait();
        self.queue.limit(self.limit);
        // The driver overwrites memory that a hung device may still use.
        if self.gpu.hung().is_none() {
            let (seeds, messages) = (self.layout.seeds, self.layout.messages);
            wipe(self.bytes(seeds));
            if let (Some(DigestShape { rows, keys, .. }), Op::Sign) = (self.hashed, self.plan.op) {
                // The keys have SK.prf, the rows opt_rand.
                wipe(&mut self.bytes(messages)[..rows + keys]);
            }
        }
        if done.is_err() || waited.is_err() {
            self.forget();
        }
        let stages = done?;
        wiped?;
        let timing = waited?.unwrap_or_default();
        if stages.is_empty() {
            return Ok(timing);
        }
        // Launches were timed alone, so the last wait was for copies.
        let execute = stages.iter().map(|stage| stage.time).sum();
        Ok(Timing { execute, download: timing.execute, upload: timing.upload, stages })
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
        self.kept = RootValues::default();
    }

    /// Sends signatures to the device, through the ring.
    fn send(&mut self, signatures: &[&[u8]]) -> Result<(), Error> {
        if signatures.is_empty() {
            return Ok(());
        }
        let (shared, to) = (self.cache.clone(), self.device(self.layout.input));
        let _turn = shared.turn();
        self.ring().send(signatures, to)
    }

    /// Steps that copy signatures which the device reaches: before it computes, and while it does. `None` unless most rows follow each other.
    fn fetches(&self, rows: &[&[u8]]) -> Option<[Vec<Step>; 2]> {
        let (row, to) = (self.p().sig_bytes(), self.device(self.layout.input));
        let runs = reached(&*self.gpu, rows.iter().map(|signature| (signature.as_ptr() as u64, row)), 0)?;
        if !(LEAST_IN_COLUMNS..=MOST_IN_COLUMNS).contains(&rows.len()) {
            return Some([runs.iter().map(|run| run.upload(to)).collect(), Vec::new()]);
        }
        let first = first_columns(self.p());
        if first == row {
            // A set with a single tree has no other columns.
            return Some([runs.iter().map(|run| run.upload(to)).collect(), Vec::new()]);
        }
        let columns = |columns: Range<usize>| {
            let steps = runs.iter().map(|run| run.upload_columns(to, row, columns.clone()));
            steps.collect()
        };
        Some([columns(0..first), columns(first..row)])
    }

    /// Waits for the signatures of so many jobs; an error if a check failed.
    fn wait_for_signatures(&mut self, jobs: usize) -> Result<(), Error> {
        self.queue.mark(0)?;
        self.queue.wait_for(0)?;
        self.checked(jobs)
    }

    /// Copies signatures without R from the device, unless a check failed. In a relocated pass, the device's first signature is the second job's,
    /// and its last one the first job's.
    fn receive(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let (p, from) = (self.p(), self.device(self.layout.output));
        self.wait_for_signatures(out.len() / p.sig_bytes())?;
        let (last, first) = out.split_at_mut(if self.relocated { p.sig_bytes() } else { 0 });
        self.ring().receive([first, last], p.n, from)
    }

    /// Copies signatures into several parts. The device itself writes parts that it reaches; there R is undefined if the host makes it.
    fn receive_held(&mut self, rows: &mut [&mut [u8]]) -> Result<(), Error> {
        let (p, mut from) = (self.p(), self.device(self.layout.output));
        // If the host makes R, the host also writes it.
        let skip = if self.hashed.is_some() { 0 } else { p.n };
        // Parts that the device does not reach, collected as long as they follow each other.
        let (mut others, mut from_others): (Vec<&mut [u8]>, u64) = (Vec::new(), from);
        for rows in rows {
            let (to, bytes) = (rows.as_mut_ptr() as u64, rows.len());
            if self.gpu.reaches(to, bytes) {
                self.ring().receive(std::mem::take(&mut others), skip, from_others)?;
                // The wait has no limit: the caller has lent this memory until the device is done with it. The device has only copies left to do.
                self.queue.limit(WaitLimit { time: None, ..self.limit });
                self.queue.submit(&self.kernels, &[Step::Download { to, from, bytes }])?;
            } else {
                if others.is_empty() {
                    from_others = from;
                }
                others.push(rows);
            }
            from += bytes as u64;
        }
        self.ring().receive(others, skip, from_others)
    }

    /// For each job of the current pass, the root of the highest tree that was grown.
    fn highest_roots(&self, jobs: usize) -> Vec<u8> {
        let (p, grown) = (self.p(), self.shape.grown);
        let row = (p.d + 1) * p.n;
        let of_jobs = self.view(self.layout.roots, jobs * row).chunks_exact(row);
        let mut roots = Vec::with_capacity(jobs * p.n);
        of_jobs.for_each(|of_job| roots.extend_from_slice(&of_job[grown * p.n..][..p.n]));
        in_bytes(p, &mut roots);
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

    /// Lays out the keys of a pass. Returns the first job of each key, and writes the keys' numbers to `numbers`.
    fn put_keys(&mut self, batch: &Batch<'_>, of: &[u32], numbers: &mut [u32], nodes: &[u64]) -> Vec<usize> {
        let each = self.plan.op == Op::Keygen;
        let (mut distinct, mut firsts) = (Vec::new(), Vec::new());
        for (job, key) in of.iter().enumerate() {
            if each || numbers[*key as usize] == u32::MAX {
                numbers[*key as usize] = distinct.len() as u32;
                distinct.push(*key as usize);
                firsts.push(job);
            }
        }
        // In a relocated pass, the last job's key gets the last place: jobs that share this key may have left it in its usual place.
        if self.relocated
            && !each
            && let Some(last) = of.last()
        {
            let at = numbers[*last as usize];
            distinct[at as usize..].rotate_left(1);
            firsts[at as usize..].rotate_left(1);
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
        self.keys_laid_out = few;
        firsts
    }

    fn put_positions(&mut self, of: &[u32], numbers: &[u32], positions: &[Position]) {
        let (k, part, parallel) = (self.p().k, self.layout.positions, in_threads(self.shape.policy.threads));
        let row = (JOB_WORDS + k) * 4;
        let rows = &mut self.bytes(part)[..of.len() * row];
        each_row(rows, row, (parallel && of.len() >= 256).then_some(64), |job, to| {
            let at = &positions[job];
            let head = [numbers[of[job] as usize], (at.idx_tree >> 32) as u32, at.idx_tree as u32, at.idx_leaf];
            for (to, word) in to.chunks_exact_mut(4).zip(head.iter().chain(&*at.fors)) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        });
    }

    /// Words of a row of the messages that the device is to hash. `None` if it hashes none, if a message is too long for it, or if jobs of one key
    /// differ in PK.root: the device gets one PK.root for each key.
    fn message_words(&self, digests: &dyn Digests, batch: &Batch<'_>) -> Option<usize> {
        let most = self.shape.most_hashed();
        if most == 0 {
            return None;
        }
        let (key_of, mut firsts) = (batch.key_of, vec![usize::MAX; batch.keys.len()]);
        for (job, key) in key_of.iter().enumerate() {
            // A key that does not exist is an error of the batch, which the batch's check reports.
            let first = firsts.get_mut(*key as usize)?;
            *first = job.min(*first);
        }
        let fits = |job: usize| {
            let (bytes, first) = (digests.hashed_bytes(job), firsts[key_of[job] as usize]);
            let has_root = first == job || digests.pk_root(first) == digests.pk_root(job);
            (has_root && bytes <= most).then_some(bytes)
        };
        let longest = if in_threads(self.shape.policy.threads) && key_of.len() >= 256 {
            (0..key_of.len()).into_par_iter().with_min_len(64).map(fits).try_reduce(|| 0, |a, b| Some(a.max(b)))
        } else {
            (0..key_of.len()).try_fold(0, |longest, job| Some(fits(job)?.max(longest)))
        };
        Some(self.shape.message_words(longest?))
    }

    /// Lays out messages in rows of so many words, and their keys behind the rows. Each key has its first job's values.
    fn put_messages(
        &mut self,
        of: &[u32],
        (numbers, firsts): (&[u32], &[usize]),
        (digests, words): (&dyn Digests, usize),
        keys: &[Key<'_>],
    ) {
        let (n, part, parallel) = (self.p().n, self.layout.messages, in_threads(self.shape.policy.threads));
        // In a relocated pass, the first place is the second job's, and the last place the first job's.
        let moved = usize::from(self.relocated);
        let hashed = DigestShape { words, rows: of.len() * words * 4, keys: firsts.len() * 3 * n };
        let (rows, of_keys) = self.bytes(part)[..hashed.rows + hashed.keys].split_at_mut(hashed.rows);
        let job_at = |place: usize| (place + moved) % of.len();
        let parallel = parallel && of.len() >= 256;
        each_row(of_keys, 3 * n, parallel.then_some(256), |key, to| {
            let job = job_at(firsts[key]);
            let sk_prf = digests.sk_prf(job);
            to[..sk_prf.len()].copy_from_slice(sk_prf);
            to[n..2 * n].copy_from_slice(keys[of[firsts[key]] as usize].pk_seed);
            to[2 * n..].copy_from_slice(digests.pk_root(job));
        });
        each_row(rows, 4 * words, parallel.then_some(64), |place, to| {
            let job = job_at(place);
            let (m_prime, opt_rand) = (digests.m_prime(job), digests.opt_rand(job));
            let bytes: usize = m_prime.parts().iter().map(|part| part.len()).sum();
            to[..4].copy_from_slice(&numbers[of[place] as usize].to_le_bytes());
            to[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
            to[8..][..opt_rand.len()].copy_from_slice(opt_rand);
            // R's place is between opt_rand and M′.
            let mut at = 8 + opt_rand.len() + n;
            for part in m_prime.parts() {
                to[at..][..part.len()].copy_from_slice(part);
                at += part.len();
            }
        });
        self.hashed = Some(hashed);
    }

    /// Where so many jobs have PK_FORS and their roots, and their FORS roots, and how many bytes.
    fn values(&self, jobs: usize) -> [(Part, usize); 2] {
        let (p, l) = (self.p(), &self.layout);
        [(l.roots, jobs * (p.d + 1) * p.n), (l.fors, jobs * p.k * p.n)]
    }

    /// The values of the last pass, as words. The steps of a pass copy them from the device if its jobs are few.
    fn read_values(&mut self, jobs: usize) -> Result<[Vec<u8>; 2], Error> {
        let values = self.values(jobs);
        if jobs > FEW_JOBS {
            self.queue.submit(&self.kernels, &values.map(|(part, bytes)| self.download(part, bytes)))?;
            self.queue.wait()?;
        }
        Ok(values.map(|(part, bytes)| self.view(part, bytes).to_vec()))
    }

    /// Keeps this pass's values if the batch takes several passes. The values of a single pass stay in the program's memory.
    fn keep(&mut self, jobs: usize) -> Result<(), Error> {
        if !self.kept.several_passes {
            self.kept.jobs = jobs;
            return Ok(());
        }
        let [roots, fors] = self.read_values(jobs)?;
        self.kept.roots.extend(roots);
        self.kept.fors.extend(fors);
        Ok(())
    }

    fn view(&self, part: Part, bytes: usize) -> &[u8] {
        G::host_view(&self.host, part.on_host..part.on_host + bytes)
    }

    /// Runs a pass with every job in its neighbour's place, so that a fault of a place hits another job than the first time. A single job is computed twice,
    /// and the result in the second place counts.
    fn relocated_pass(
        &mut self,
        batch: &Batch<'_>,
        jobs: std::ops::Range<usize>,
        nodes: &[u64],
        out: &mut [u8],
    ) -> Result<Timing, Error> {
        let (first, each) = (jobs.start, self.plan.out_bytes());
        let order: Vec<usize> = match jobs.len() {
            1 => vec![first; 2],
            _ => (first + 1..jobs.end).chain([first]).collect(),
        };
        if order.len() > self.layout.jobs {
            let needs = self.shape.layout(order.len()).device as u64;
            return Err(Error::OutOfMemory {
                device: self.gpu.facts().id.clone(),
                needs,
                has: self.layout.device as u64,
            });
        }
        let key_of: Vec<u32> = order.iter().map(|job| batch.key_of[*job]).collect();
        let positions: Vec<Position> = order.iter().filter_map(|job| batch.positions.get(*job)).cloned().collect();
        let signatures: Vec<&[u8]> = order.iter().filter_map(|job| batch.signatures.get(*job)).copied().collect();
        let moved = Batch { keys: batch.keys, key_of: &key_of, positions: &positions, signatures: &signatures };
        let signatures = SignatureInput::Later(moved.signatures);
        if self.plan.op == Op::Sign && order.len() > FEW_JOBS {
            // `receive` knows that the jobs are relocated, and puts each signature where it belongs.
            return self.pass(&moved, 0..order.len(), nodes, None, signatures, out);
        }
        // The rows become the caller's if all goes well. After an error they may hold secrets, and are wiped.
        let mut rows = vec![0; order.len() * each];
        let timing =
            self.pass(&moved, 0..order.len(), nodes, None, signatures, &mut rows).inspect_err(|_| wipe(&mut rows))?;
        // The host has already written R to `out`.
        let r_bytes = if self.plan.op == Op::Sign { self.p().n } else { 0 };
        // For a single job, the second place counts.
        let moved_to = |i: usize| if jobs.len() == 1 { 1 } else { (i + jobs.len() - 1) % jobs.len() };
        each_row(out, each, in_threads(self.shape.policy.threads).then_some(ROWS_OF_A_TASK), |job, out| {
            out[r_bytes..].copy_from_slice(&rows[moved_to(job) * each..][r_bytes..each]);
        });
        Ok(timing)
    }

    /// Lays out keys of a pass, and positions, or messages in rows of so many words. Returns the number of distinct keys.
    fn lay_out(
        &mut self,
        batch: &Batch<'_>,
        jobs: std::ops::Range<usize>,
        nodes: &[u64],
        messages: Option<(&dyn Digests, usize)>,
    ) -> usize {
        let of = &batch.key_of[jobs.clone()];
        let mut numbers = vec![u32::MAX; batch.keys.len()];
        let firsts = self.put_keys(batch, of, &mut numbers, nodes);
        for part in [self.layout.compared, self.layout.flag] {
            self.bytes(part).fill(0);
        }
        self.hashed = None;
        match messages {
            Some(messages) => self.put_messages(of, (&numbers, &firsts), messages, batch.keys),
            None if self.plan.op == Op::Keygen => {}
            None => self.put_positions(of, &numbers, &batch.positions[jobs]),
        }
        firsts.len()
    }

    /// Runs a pass that signs. `receive` gets the roots of the highest trees when the layers have passed their checks.
    fn pass_held(
        &mut self,
        batch: &Batch<'_>,
        nodes: &[u64],
        messages: Option<(&dyn Digests, usize)>,
        receive: impl FnOnce(&mut Self, Vec<u8>) -> Result<(), Error>,
    ) -> Result<Timing, Error> {
        let (start, count) = (Instant::now(), batch.len());
        let keys = self.lay_out(batch, 0..count, nodes, messages);
        let record = self.recordable(count, keys);
        let laid_out = start.elapsed();
        let steps = |program: &Self| program.sign_steps(count, keys);
        let mut timing = self.go(steps, record, SignatureInput::Later(&[]), |program| {
            program.wait_for_signatures(count)?;
            program.keep(count)?;
            let roots = program.highest_roots(count);
            receive(program, roots)
        })?;
        timing.upload += laid_out;
        Ok(timing)
    }

    /// Runs two passes that sign. The first pass's signatures stay on the device. In the second pass, every job is in its neighbour's place: the
    /// first signature is the second job's, the last one the first job's. The device compares both passes, and only then hands out the first's.
    fn held_twice(
        &mut self,
        batch: &Batch<'_>,
        nodes: &[u64],
        (digests, words): (&mut dyn Digests, Option<usize>),
        rows: &mut [&mut [u8]],
        accept: Accept<'_>,
    ) -> Result<Timing, Error> {
        let mut first = Vec::new();
        let mut timing = self.pass_held(batch, nodes, words.map(|words| (&*digests, words)), |_, roots| {
            accept(&roots)?;
            first = roots;
            Ok(())
        })?;
        let mut key_of = batch.key_of.to_vec();
        key_of.rotate_left(1);
        let mut positions = Vec::new();
        if words.is_none() {
            positions = positions_again(digests, batch.positions).inspect_err(|_| self.forget())?;
            positions.rotate_left(1);
        }
        let moved = Batch { key_of: &key_of, positions: &positions, ..*batch };
        (self.relocated, self.compares) = (true, true);
        let messages = words.map(|words| (&*digests, words));
        let second = self.pass_held(&moved, nodes, messages, |program, mut roots| {
            roots.rotate_right(program.p().n);
            program.same(&first, &roots)?;
            program.receive_held(rows)
        });
        (self.relocated, self.compares, self.kept) = (false, false, RootValues::default());
        let second = second?;
        timing += &second;
        timing.stages.extend(second.stages);
        Ok(timing)
    }

    /// Whether there is memory for the second computation's signatures. The program keeps it from then on.
    fn has_room_for_second(&mut self) -> Result<bool, Error> {
        let bytes = self.layout.output.bytes;
        if self.second.is_none() && (self.layout.device + bytes) as u64 <= self.budget {
            self.second = match alloc(&self.gpu, &self.cache, bytes) {
                Ok(memory) => Some(memory),
                Err(Error::OutOfMemory { .. }) => None,
                Err(why) => return Err(why),
            };
        }
        Ok(self.second.is_some())
    }

    /// Fails unless both computations gave the same signatures, as the device has found, and the same roots. Signatures that were not compared
    /// count as different.
    fn same(&self, first: &[u8], second: &[u8]) -> Result<(), Error> {
        let n = self.p().n;
        let words = self.view(self.layout.compared, first.len() / n * 4);
        let signature = words.chunks_exact(4).position(|word| word != 1u32.to_le_bytes());
        let root = first.chunks_exact(n).zip(second.chunks_exact(n)).position(|(first, second)| first != second);
        let (result, job) = match (signature, root) {
            (Some(job), _) => ("the output of Sign", job),
            (None, Some(job)) => ("the top tree's root", job),
            (None, None) => return Ok(()),
        };
        Err(Error::differs(self.gpu.facts().id.clone(), result, job))
    }

    /// The key under which a pass is to be recorded: always for few jobs, and for more jobs if the last pass had the same key.
    fn recordable(&mut self, jobs: usize, keys: usize) -> Option<RecordingKey> {
        let what = (jobs, keys, self.stored, self.compares, self.hashed);
        let last = &mut self.last[usize::from(self.relocated)];
        let is_again = last.replace(what) == Some(what) && jobs <= MOST_RECORDED_AGAIN;
        (self.shape.policy.record == 1 && (jobs <= FEW_JOBS || is_again)).then_some(what)
    }

    /// Whether a batch is one pass of more than a few jobs, in their usual places.
    fn is_one_large_pass(&self, batch: &Batch<'_>) -> bool {
        !self.relocated && batch.len() > FEW_JOBS && batch.len() <= self.layout.jobs
    }

    /// Runs a pass that verifies the signatures that `uploads` and `others` fetch.
    fn verify_fetched(
        &mut self,
        batch: &Batch<'_>,
        [uploads, others]: [Vec<Step>; 2],
        digests: &mut dyn Digests,
        out: &mut [u8],
    ) -> Result<Timing, Error> {
        self.kept = RootValues::default();
        // While the device fetches many signatures, the host has time to hash, unless its threads have other work. (An H200 verifies 5.4 million
        // signatures of 128s a second, and 4.5 million if the device hashes their messages.)
        let are_few = batch.len() <= MOST_IN_COLUMNS;
        let words = if are_few || self.hashes > 0 { self.message_words(digests, batch) } else { None };
        self.is_late = false;
        let shared = self.cache.clone();
        let turn = shared.turn();
        let under_way = self.queue.submit(&self.kernels, &uploads).and_then(|()| self.queue.mark(0));
        let positions = if words.is_none() { digests.positions() } else { Vec::new() };
        let batch = &Batch { positions: &positions, ..*batch };
        if let Err(why) = under_way.and_then(|()| self.check(batch, words, out.len())) {
            // When this returns, the signatures are the caller's again: no copy may be under way.
            let _ = self.queue.wait();
            return Err(why);
        }
        let messages = words.map(|words| (&*digests, words));
        let done = self.pass(batch, 0..batch.len(), &[], messages, SignatureInput::UnderWay(turn, others), out);
        if !are_few {
            self.hashes =
                if words.is_none() && self.is_late { HASHED_AFTER_LATE } else { self.hashes.saturating_sub(1) };
        }
        done
    }

    /// Checks a batch. If `words` are given (of a message's row), the device computes the positions.
    fn check(&self, batch: &Batch<'_>, words: Option<usize>, out: usize) -> Result<(), Error> {
        self.gpu.hung().map_or(Ok(()), Err)?;
        match words {
            Some(_) => batch.check_all_but_positions(&self.plan, out),
            None => batch.check(&self.plan, out),
        }
    }

    /// Runs a pass that signs, verifies or makes keys.
    fn pass(
        &mut self,
        batch: &Batch<'_>,
        jobs: std::ops::Range<usize>,
        nodes: &[u64],
        messages: Option<(&dyn Digests, usize)>,
        mut signatures: SignatureInput<'_>,
        out: &mut [u8],
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        let (p, op, count) = (self.p(), self.plan.op, jobs.len());
        let keys = self.lay_out(batch, jobs.clone(), nodes, messages);
        let (few, row) = (count <= FEW_JOBS, p.sig_bytes());
        if let (SignatureInput::Later(few), true) = (&mut signatures, few) {
            let input = self.layout.input;
            for (to, from) in self.bytes(input).chunks_exact_mut(row).zip(std::mem::take(few)) {
                to.copy_from_slice(from);
            }
        }
        let fetches = match &mut signatures {
            SignatureInput::UnderWay(_, others) => std::mem::take(others),
            SignatureInput::Later(_) => Vec::new(),
        };
        // A recording would fetch from the same addresses again.
        let record = self.recordable(count, keys).filter(|_| fetches.is_empty());
        let laid_out = start.elapsed();
        let steps = |program: &Self| match op {
            Op::Keygen => program.keygen_steps(count),
            Op::Sign => program.sign_steps(count, keys),
            _ => program.verify_steps(count, keys, &fetches),
        };
        let mut timing = self.go(steps, record, signatures, |program| match op {
            Op::Sign if !few => program.receive(out),
            _ => Ok(()),
        })?;
        let start = Instant::now();
        let output = self.layout.output;
        match op {
            Op::Sign if few => {
                if let Err(why) = self.checked(count) {
                    self.forget();
                    return Err(why);
                }
                for (to, from) in out.chunks_exact_mut(row).zip(self.bytes(output).chunks_exact(row)) {
                    to[p.n..].copy_from_slice(&from[p.n..]);
                }
            }
            Op::Sign => {}
            _ => out.copy_from_slice(self.view(output, out.len())),
        }
        if op != Op::Keygen {
            self.keep(count)?;
        }
        timing.upload += laid_out;
        timing.download += start.elapsed();
        Ok(timing)
    }
}

/// log2 of the leaves that a block of the cooperative kernels works on at a time.
const COOPERATIVE_CHUNK: u32 = COOPERATIVE_ROWS.ilog2();

/// Jobs, at most, that are few. A batch of few is always submitted as a recording: with more, the launches cost nothing compared with the work. And its
/// results are written to the host's memory by the kernels; more results are copied.
const FEW_JOBS: usize = 16;

/// Jobs, at most, of a batch that is submitted as a recording if the batch before was like it: a recording is made to be used again. (A
/// replay of 64 signatures of 128f is submitted in 35 µs on an H200, the same launches in 125 µs. This number is chosen, not measured.)
const MOST_RECORDED_AGAIN: usize = 1024;

/// The device fetches a batch of so many signatures in two parts: they are too few to keep it busy, so it should begin early. It begins with
/// [`first_columns`], and hashes the messages. (An H200 verifies 417,000 signatures of 128f a second in calls of 1,024, and 409,000 if it
/// fetches all columns first; in calls of 64, 46,000 and 48,000, since those are recorded. The greatest number is chosen, not measured.)
/// Tests of this crate take both ways with few signatures.
const LEAST_IN_COLUMNS: usize = if cfg!(test) { FEW_JOBS + 1 } else { 256 };
const MOST_IN_COLUMNS: usize = if cfg!(test) { 48 } else { 2048 };

/// If the wait for signatures is shorter, the device had them before the host was done. Then the wait takes 4 to 7 µs on an H200.
const LATE: Duration = Duration::from_micros(50);

/// Batches after which a host that was late hashes again, and may be in time. (docs/lab/2026-11-24-numpy.md compares 15 and 63.)
const HASHED_AFTER_LATE: u32 = 63;

/// Bytes of a signature that the device works on first: R, FORS, and as many layers of XMSS as take about as long as the other layers'
/// copies.
fn first_columns(p: &Params) -> usize {
    p.n * (1 + p.k * (1 + p.a) + first_layers(p) * (p.len() + p.hp))
}

/// How many layers, from the lowest on, are in [`first_columns`].
fn first_layers(p: &Params) -> usize {
    p.d.div_ceil(8)
}

/// Rows that a thread copies back from other places, at least.
const ROWS_OF_A_TASK: usize = 64;

/// The positions that the host computes a second time from the messages. Fails if they differ from the first.
fn positions_again(digests: &mut dyn Digests, first: &[Position]) -> Result<Vec<Position>, Error> {
    let again = digests.positions_again()?;
    let differs = (0..first.len().max(again.len())).find(|job| first.get(*job) != again.get(*job));
    differs.map_or(Ok(again), |job| Err(Error::differs("host".into(), "the digest", job)))
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

    fn run(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        self.check(batch, None, out.len())?;
        self.kept = RootValues { several_passes: batch.len() > self.layout.jobs, ..RootValues::default() };
        if self.plan.op == Op::Cache {
            return self.cache(batch, out);
        }
        let (_held, nodes) = self.nodes_of_keys(batch)?;
        let (each, mut timing) = (self.plan.out_bytes(), Timing::default());
        for first in (0..batch.len()).step_by(self.layout.jobs) {
            let jobs = first..(first + self.layout.jobs).min(batch.len());
            let out = &mut out[jobs.start * each..jobs.end * each];
            let pass = match self.relocated {
                true => self.relocated_pass(batch, jobs, &nodes, out),
                false => {
                    let signatures = SignatureInput::Later(batch.signatures.get(jobs.clone()).unwrap_or_default());
                    self.pass(batch, jobs, &nodes, None, signatures, out)
                }
            };
            let pass = pass.inspect_err(|_| self.drop_nodes(batch))?;
            timing += &pass;
            timing.stages.extend(pass.stages);
        }
        Ok(timing)
    }

    fn run_held(
        &mut self,
        batch: &Batch<'_>,
        digests: &mut dyn Digests,
        rows: &mut [&mut [u8]],
        accept: Accept<'_>,
        twice: bool,
    ) -> Option<Result<Timing, Error>> {
        // Signatures stay on the device until the roots are accepted. If a batch has only a few, the kernels write them to the host's memory at once.
        if self.plan.op != Op::Sign || !self.is_one_large_pass(batch) {
            return None;
        }
        self.kept = RootValues::default();
        if twice {
            match self.has_room_for_second() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(why) => return Some(Err(why)),
            }
        }
        let words = self.message_words(digests, batch);
        let positions = if words.is_none() { digests.positions() } else { Vec::new() };
        let batch = &Batch { positions: &positions, ..*batch };
        let checked = self.check(batch, words, rows.iter().map(|rows| rows.len()).sum());
        let done = checked.and_then(|()| self.nodes_of_keys(batch)).and_then(|(_held, nodes)| {
            let done = if twice {
                self.held_twice(batch, &nodes, (digests, words), rows, accept)
            } else {
                self.pass_held(batch, &nodes, words.map(|words| (&*digests, words)), |program, roots| {
                    accept(&roots)?;
                    program.receive_held(rows)
                })
            };
            done.inspect_err(|_| self.drop_nodes(batch))
        });
        Some(done)
    }

    fn run_fetched(
        &mut self,
        batch: &Batch<'_>,
        digests: &mut dyn Digests,
        out: &mut [u8],
    ) -> Option<Result<Timing, Error>> {
        let row = self.p().sig_bytes();
        // Signatures of another length are left to `run`, which refuses them.
        let fits = self.is_one_large_pass(batch) && batch.signatures.iter().all(|signature| signature.len() == row);
        if self.plan.op != Op::Verify || !fits {
            return None;
        }
        if let Some(uploads) = self.fetches(batch.signatures) {
            return Some(self.verify_fetched(batch, uploads, digests, out));
        }
        let words = self.message_words(digests, batch)?;
        self.kept = RootValues::default();
        let signatures = SignatureInput::Later(batch.signatures);
        let done = self.check(batch, Some(words), out.len());
        Some(done.and_then(|()| self.pass(batch, 0..batch.len(), &[], Some((&*digests, words)), signatures, out)))
    }

    fn most_hashed(&self) -> usize {
        self.shape.most_hashed()
    }

    fn relocated(&mut self, relocated: bool) {
        self.relocated = relocated;
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
        let (kept, row) = (&self.kept, (p.d + 1) * p.n);
        let [roots, fors] = match kept.several_passes {
            true => [kept.roots.clone(), kept.fors.clone()],
            false => self.read_values(kept.jobs)?,
        };
        let jobs = || roots.chunks_exact(row);
        let mut bytes = match slot {
            Slot::ForsRoots => fors,
            Slot::ForsPk => jobs().flat_map(|roots| &roots[..p.n]).copied().collect(),
            Slot::XmssRoots => {
                jobs().flat_map(|roots| &roots[p.n..row - self.plan.cached_layers * p.n]).copied().collect()
            }
        };
        in_bytes(p, &mut bytes);
        Ok(Some(bytes))
    }
}
