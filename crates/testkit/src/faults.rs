//! Faults on purpose: one bit of what a device has just computed is flipped, once, or whenever the same lane computes.
//!
//! Where a device can be hit is a list of [`Site`]s, found by a run without faults. The CPU's are calls of its hashes or of its
//! arithmetic, a GPU's are its copies and launches.
//!
//! A GPU can hang too ([`Faults::hang_after`]): it takes work and does none, until it goes on. Or it fails ([`Faults::fail_after`]).

use hypergrove_engine::{Error, ReachableMemory, Timing};
use hypergrove_fips205::AdrsType;
use hypergrove_gpu::steps::{Access, Place, accesses};
use hypergrove_gpu::{Facts, Gpu, Launch, Queue, SLOTS, Step, WaitLimit, Wrapper};
use hypergrove_kernels::{Args, Config, Kernel};
use hypergrove_lanes::{AdrsWords, Factors, Keys, Lattice, Primitive, Shake, Steps, Trace, TweakableHash};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A piece of work whose results can be hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The name of its computation or copy.
    pub stage: &'static str,
    /// Its number among those of the run.
    pub number: usize,
}

/// The fault that is injected, if any, and its state.
#[derive(Clone, Debug, Default)]
enum Mode {
    #[default]
    Sound,
    /// Sites are noted.
    Survey(Vec<Site>),
    /// A bit of what this site gives is flipped: which one, the random number says.
    Flip(usize, u64),
    /// The flip was done, if there was anything to flip.
    Done(bool),
    /// One lane of so many gives a wrong bit whenever it computes.
    Stuck(usize, usize),
    /// As [`Mode::Flip`]; whatever the same kernel writes to the same place afterwards is wrong too. With the place, once known.
    Cell(&'static str, u64, Option<(u64, u32)>),
}

/// Says which fault there is, and counts the sites that were passed.
#[derive(Default)]
pub struct Faults(Mutex<(Mode, usize)>, Mutex<Hang>);

/// Whether a GPU does what it is given.
#[derive(Default)]
struct Hang {
    /// Submissions that it still does, if it is to hang or to fail after them.
    left: Option<u64>,
    /// It refuses submissions then, and does not hang.
    fails: bool,
    /// How long waits for it may take, if their own limits are longer.
    patience: Duration,
    /// Why it was given up, if it was.
    why: Option<Error>,
    /// Accesses to the host's memory that it may still make.
    pending: Vec<Access>,
    /// Waits without a limit so far for a GPU that did nothing.
    endless: usize,
    /// Submissions of queues that were dropped: nobody waits for them any more.
    late: Vec<Box<dyn FnOnce() -> Result<(), Error> + Send>>,
}

impl Faults {
    /// After so many submissions, GPUs take work and do none. Waits that have a limit then end after `patience`, if not before: tests are
    /// not to wait as long as callers do.
    pub fn hang_after(&self, submissions: u64, patience: Duration) {
        let mut hang = self.hang();
        (hang.left, hang.patience) = (Some(submissions), patience);
    }
    /// After so many submissions, GPUs refuse all others.
    pub fn fail_after(&self, submissions: u64) {
        let mut hang = self.hang();
        (hang.left, hang.fails) = (Some(submissions), true);
    }
    /// GPUs go on. Those that were given up do what queues gave them that are gone by now: the number of such queues. An error if they find
    /// memory that was freed.
    pub fn go_on(&self) -> Result<usize, Error> {
        (self.hang().left, self.hang().fails) = (None, false);
        let late = std::mem::take(&mut self.hang().late);
        let count = late.len();
        late.into_iter().try_for_each(|work| work())?;
        Ok(count)
    }
    /// Whether a wait was given up.
    pub fn was_given_up(&self) -> bool {
        self.hang().why.is_some()
    }

    /// Waits without a limit so far for a GPU that did nothing.
    pub fn endless_waits(&self) -> usize {
        self.hang().endless
    }

    fn hang(&self) -> MutexGuard<'_, Hang> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Panics where a program uses memory of the host that a GPU which was given up may still use.
    fn check_host(&self, at: u64, bytes: usize, writes: bool) {
        let (host, hang) = (Access { place: Place::Host, at, bytes, writes }, self.hang());
        let used = hang.pending.iter().find(|pending| bytes > 0 && hang.why.is_some() && pending.conflicts(&host));
        if let Some(used) = used {
            panic!("{host:x?} while a device that was given up has {used:x?}");
        }
    }
    /// Whether GPUs do nothing now.
    fn is_still(&self) -> bool {
        self.hang().left == Some(0)
    }
    /// Whether GPUs do not do what is submitted now.
    fn takes_submission(&self) -> bool {
        let mut hang = self.hang();
        let is_still = hang.left == Some(0);
        hang.left = hang.left.map(|left| left.saturating_sub(1));
        is_still
    }

    fn lock(&self) -> MutexGuard<'_, (Mode, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A run in this mode: the state of the mode afterwards, and the run's result.
    fn during<R>(&self, mode: Mode, run: impl FnOnce() -> R) -> (Mode, R) {
        *self.lock() = (mode, 0);
        let done = run();
        (std::mem::take(&mut self.lock().0), done)
    }
    /// The sites that a run without faults passes, and its result.
    pub fn survey<R>(&self, run: impl FnOnce() -> R) -> (Vec<Site>, R) {
        match self.during(Mode::Survey(Vec::new()), run) {
            (Mode::Survey(sites), done) => (sites, done),
            (other, _) => panic!("{other:?} in the middle of a survey"),
        }
    }
    /// A run in which one bit is flipped; whether it was.
    pub fn flip<R>(&self, site: Site, random: u64, run: impl FnOnce() -> R) -> (bool, R) {
        let (mode, done) = self.during(Mode::Flip(site.number, random), run);
        (matches!(mode, Mode::Done(true)), done)
    }
    /// A run in which lane number `lane` of `lanes` is wrong.
    pub fn stuck<R>(&self, lane: usize, lanes: usize, run: impl FnOnce() -> R) -> R {
        self.during(Mode::Stuck(lane, lanes), run).1
    }
    /// A run in which a kernel writes one bit of some place wrong, each time. Whether it did.
    pub fn cell<R>(&self, kernel: &'static str, random: u64, run: impl FnOnce() -> R) -> (bool, R) {
        let (mode, done) = self.during(Mode::Cell(kernel, random, None), run);
        (matches!(mode, Mode::Cell(.., Some(_))), done)
    }

    /// A site is passed: the random number for the bit to be flipped there, if it is the one.
    fn pass(&self, stage: &'static str) -> Option<u64> {
        let (mode, count) = &mut *self.lock();
        let number = std::mem::replace(count, *count + 1);
        match mode {
            Mode::Survey(sites) => sites.push(Site { stage, number }),
            Mode::Flip(at, random) if *at == number => return Some(*random),
            _ => {}
        }
        None
    }
    fn stuck_lane(&self) -> Option<(usize, usize)> {
        match self.lock().0 {
            Mode::Stuck(lane, lanes) => Some((lane, lanes)),
            _ => None,
        }
    }
    fn done(&self, flipped: bool) {
        self.lock().0 = Mode::Done(flipped);
    }

    /// Flips a bit of bytes that a site gave, if that is asked for.
    fn hit(&self, stage: &'static str, bytes: &mut [u8]) {
        if let Some(random) = self.pass(stage) {
            if !bytes.is_empty() {
                let bit = (random % (8 * bytes.len() as u64)) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.done(!bytes.is_empty());
        }
    }
    /// Flips a bit of each of the stuck lane's rows.
    fn stick(&self, rows: &mut [u8], row: usize) {
        if let Some((lane, lanes)) = self.stuck_lane() {
            rows.chunks_exact_mut(row).skip(lane).step_by(lanes).for_each(|row| row[0] ^= 4);
        }
    }
}

/// The next of a row of numbers without structure (SplitMix64).
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes with faults.
pub struct FaultyHash {
    /// The hash that computes.
    pub hash: Box<dyn TweakableHash>,
    /// Which faults.
    pub faults: Arc<Faults>,
}

impl FaultyHash {
    fn hit(&self, adrs: &[AdrsWords], stage: impl FnOnce(u32) -> &'static str, rows: &mut [u8]) {
        let Some(adrs) = adrs.first() else { return };
        self.faults.hit(stage(adrs[4]), rows);
        self.faults.stick(rows, self.hash.n());
    }
}

impl TweakableHash for FaultyHash {
    fn n(&self) -> usize {
        self.hash.n()
    }
    fn lanes(&self) -> usize {
        self.hash.lanes()
    }
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]) {
        self.hash.prf(keys, adrs, out);
        let stage = |kind| if kind == AdrsType::ForsPrf as u32 { "FORS secrets" } else { "WOTS+ secrets" };
        self.hit(adrs, stage, out);
    }
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]) {
        self.hash.f(keys, adrs, nodes);
        self.hit(adrs, |_| "FORS leaves", nodes);
    }
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]) {
        self.hash.t_l(keys, adrs, l, nodes, out);
        let stage = |kind| match kind {
            _ if kind == AdrsType::ForsTree as u32 => "FORS nodes",
            _ if kind == AdrsType::ForsRoots as u32 => "PK_FORS",
            _ if kind == AdrsType::WotsPk as u32 => "XMSS leaves",
            _ => "XMSS nodes",
        };
        self.hit(adrs, stage, out);
    }
    fn chain(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        w: usize,
        steps: Steps<'_>,
        nodes: &mut [u8],
        trace: Option<Trace<'_>>,
    ) {
        match trace {
            None => self.hash.chain(keys, adrs, w, steps, nodes, None),
            Some(Trace { chains, out }) => {
                self.hash.chain(keys, adrs, w, steps, nodes, Some(Trace { chains, out: &mut *out }));
                self.hit(adrs, |_| "WOTS+ kept values", out);
            }
        }
        self.hit(adrs, |_| "WOTS+ chain ends", nodes);
    }
    fn primitive(&self, which: Primitive, calls: u64) -> u64 {
        self.hash.primitive(which, calls)
    }
}

/// Arithmetic with faults.
pub struct FaultyLattice {
    /// The arithmetic that computes.
    pub lattice: Box<dyn Lattice>,
    /// Which faults.
    pub faults: Arc<Faults>,
}

impl FaultyLattice {
    /// Lowest bits are flipped: numbers stay what the arithmetic can work with.
    fn hit(&self, stage: &'static str, rows: &mut [f64]) {
        let lanes = self.lattice.lanes();
        let flip = |x: &mut f64| *x = (*x as i64 ^ 1) as f64;
        if let Some(random) = self.faults.pass(stage) {
            if !rows.is_empty() {
                flip(&mut rows[random as usize % rows.len()]);
            }
            self.faults.done(!rows.is_empty());
        }
        if let Some((lane, of)) = self.faults.stuck_lane() {
            rows.chunks_exact_mut(lanes).for_each(|row| row.iter_mut().skip(lane).step_by(of).for_each(flip));
        }
    }
}

/// Methods of the arithmetic, each with the numbers that can be hit once it has computed.
macro_rules! hit_afterwards {
    ($self:ident => $($name:ident($($input:ident: $kind:ty),*): $($stage:literal in $rows:ident),*;)*) => { $(
        fn $name(&$self, $($input: $kind),*) {
            $self.lattice.$name($($input),*);
            $($self.hit($stage, $rows);)*
        }
    )* };
}

impl Lattice for FaultyLattice {
    fn lanes(&self) -> usize {
        self.lattice.lanes()
    }
    hit_afterwards! { self =>
        rows(columns: &[i32], rows: &mut [f64]): "rows" in rows;
        ntt(polynomials: &mut [f64]): "NTT" in polynomials;
        intt(polynomials: &mut [f64]): "inverse NTT" in polynomials;
        dot(factors: Factors<'_>, values: &[f64], out: &mut [f64]): "products" in out;
        dot_columns(factors: &[i32], values: &[f64], out: &mut [f64]): "products" in out;
        add(a: &mut [f64], b: &[f64]): "t" in a;
        add_norms(a: &mut [f64], b: &[f64], norms: &mut [f64]): "z" in a, "norms" in norms;
        high_parts(polynomials: &[f64], out: &mut [f64]): "w1" in out;
        low_norms(a: &[f64], b: &[f64], norms: &mut [f64]): "norms" in norms;
        absorb(instances: usize, states: &mut [f64], elements: &[f64]): "Poseidon" in states;
        permute(instances: usize, states: &mut [f64]): "Poseidon" in states;
        squeeze(states: &[f64], out: &mut [f64]): "Poseidon's output" in out;
    }
    fn columns(&self, rows: &[f64], columns: &mut [i32]) {
        self.lattice.columns(rows, columns);
    }
    fn uniform(&self, stream: &[u8], out: &mut [i32]) -> bool {
        self.lattice.uniform(stream, out)
    }
    fn short(&self, stream: &[u8], out: &mut [i32]) -> bool {
        self.lattice.short(stream, out)
    }
    fn pack_short(&self, numbers: &[i32], out: &mut [u8]) {
        self.lattice.pack_short(numbers, out);
        self.faults.hit("packed s1, s2", out);
    }
    fn shake(&self, shake: Shake, inputs: &[u8], input_bytes: usize, outputs: &mut [u8], blocks: usize) {
        self.lattice.shake(shake, inputs, input_bytes, outputs, blocks);
        self.faults.hit("SHAKE", outputs);
        self.faults.stick(outputs, blocks * shake.rate());
    }
}

/// GPUs with faults in the place of a driver's own.
pub struct WithFaults(pub Arc<Faults>);

impl Wrapper for WithFaults {
    type Gpu<G: Gpu> = FaultyGpu<G>;
    fn wrap<G: Gpu>(&self, gpu: Arc<G>) -> FaultyGpu<G> {
        FaultyGpu { gpu, faults: self.0.clone(), extents: Arc::default() }
    }
}

/// GPUs that each have faults of their own: those of the first GPU come first.
#[derive(Default)]
pub struct WithFaultsOfEach(pub Mutex<Vec<Arc<Faults>>>);

impl Wrapper for WithFaultsOfEach {
    type Gpu<G: Gpu> = FaultyGpu<G>;
    fn wrap<G: Gpu>(&self, gpu: Arc<G>) -> FaultyGpu<G> {
        let faults = Arc::<Faults>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(faults.clone());
        WithFaults(faults).wrap(gpu)
    }
}

/// Device or host memory that lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Extent {
    is_host: bool,
    at: u64,
    bytes: usize,
}

type Extents = Arc<Mutex<Vec<Extent>>>;

fn lock(extents: &Extents) -> MutexGuard<'_, Vec<Extent>> {
    extents.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU whose memory can be hit between two steps.
pub struct FaultyGpu<G: Gpu> {
    gpu: Arc<G>,
    faults: Arc<Faults>,
    extents: Extents,
}

/// Memory that is known where it lies. That of a GPU that was given up is kept for ever.
pub struct TrackedMemory<M> {
    /// `None` only while it is dropped.
    memory: Option<M>,
    extent: Extent,
    extents: Extents,
    faults: Arc<Faults>,
}

impl<M> TrackedMemory<M> {
    fn new(memory: M, extent: Extent, (extents, faults): (&Extents, &Arc<Faults>)) -> TrackedMemory<M> {
        lock(extents).push(extent);
        TrackedMemory { memory: Some(memory), extent, extents: extents.clone(), faults: faults.clone() }
    }
    fn get(&self) -> &M {
        self.memory.as_ref().expect("it is not dropped")
    }
    fn check(&self, range: &Range<usize>, writes: bool) {
        self.faults.check_host(self.extent.at + range.start as u64, range.len(), writes);
    }
    fn get_mut(&mut self) -> &mut M {
        self.memory.as_mut().expect("it is not dropped")
    }
}

impl ReachableMemory for TrackedMemory<Box<dyn ReachableMemory>> {
    fn bytes(&self) -> &[u8] {
        self.get().bytes()
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.get_mut().bytes_mut()
    }
}

impl<M> Drop for TrackedMemory<M> {
    fn drop(&mut self) {
        if self.faults.was_given_up() {
            return std::mem::forget(self.memory.take());
        }
        let mut extents = lock(&self.extents);
        let at = extents.iter().position(|extent| *extent == self.extent).expect("it was held");
        extents.swap_remove(at);
    }
}

impl<G: Gpu> Gpu for FaultyGpu<G> {
    type Memory = TrackedMemory<G::Memory>;
    type HostMemory = TrackedMemory<G::HostMemory>;
    type Kernels = Arc<G::Kernels>;
    type Queue = FaultyQueue<G>;

    fn facts(&self) -> &Facts {
        self.gpu.facts()
    }
    fn free(&self) -> Result<u64, Error> {
        self.gpu.free()
    }
    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Self::Memory, Error> {
        let memory = self.gpu.alloc(bytes + GUARD)?;
        let extent = Extent { is_host: false, at: G::address(&memory), bytes };
        Ok(self.tracked(memory, extent))
    }
    fn address(memory: &Self::Memory) -> u64 {
        G::address(memory.get())
    }
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Self::HostMemory, Error> {
        let memory = self.gpu.alloc_host(bytes)?;
        let extent = Extent { is_host: true, at: G::host_address(&memory), bytes };
        Ok(self.tracked(memory, extent))
    }
    fn host_address(memory: &Self::HostMemory) -> u64 {
        G::host_address(memory.get())
    }
    fn host_bytes(memory: &mut Self::HostMemory, range: Range<usize>) -> &mut [u8] {
        memory.check(&range, true);
        G::host_bytes(memory.get_mut(), range)
    }
    fn host_view(memory: &Self::HostMemory, range: Range<usize>) -> &[u8] {
        memory.check(&range, false);
        G::host_view(memory.get(), range)
    }
    fn host_write(memory: &Self::HostMemory, at: usize, bytes: &[u8]) {
        memory.check(&(at..at + bytes.len()), true);
        G::host_write(memory.get(), at, bytes);
    }
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>> {
        let memory = self.gpu.alloc_reached(bytes)?.map(|memory| {
            let extent = Extent { is_host: true, at: memory.bytes().as_ptr() as u64, bytes };
            Box::new(self.tracked(memory, extent)) as _
        });
        Some(memory)
    }
    fn reaches(&self, at: u64, bytes: usize) -> bool {
        self.gpu.reaches(at, bytes)
    }
    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Self::Kernels, Error> {
        self.gpu.kernels(config, kernels).map(Arc::new)
    }
    fn has_fast_doubles(&self) -> bool {
        self.gpu.has_fast_doubles()
    }
    fn tensor_forms(&self) -> &'static [u32] {
        self.gpu.tensor_forms()
    }
    fn queue(self: &Arc<Self>) -> Result<Self::Queue, Error> {
        self.hung().map_or(Ok(()), Err)?;
        let (there, here) = (self.gpu.alloc(COPIED)?, self.gpu.alloc_host(COPIED)?);
        let (queue, limit) = (Some(self.gpu.queue()?), WaitLimit::default());
        let (late, given, awaited, marks) = (Vec::new(), 0, 0, [0; SLOTS]);
        Ok(FaultyQueue { queue, there, here, limit, late, given, awaited, marks, gpu: self.clone() })
    }
    fn hung(&self) -> Option<Error> {
        self.faults.hang().why.clone().or_else(|| self.gpu.hung())
    }
}

impl<G: Gpu> FaultyGpu<G> {
    fn tracked<M>(&self, memory: M, extent: Extent) -> TrackedMemory<M> {
        TrackedMemory::new(memory, extent, (&self.extents, &self.faults))
    }

    /// That what steps copy or clear was not freed.
    fn check_lives(&self, steps: &[Step]) -> Result<(), Error> {
        let extents = lock(&self.extents);
        for access in steps.iter().flat_map(accesses) {
            let end = access.at + access.bytes as u64;
            if !extents.iter().any(|e| e.at <= access.at && end <= e.at + e.bytes as u64) {
                let what = format!("memory was freed that it still uses: {access:x?}");
                return Err(Error::Device { device: self.facts().id.clone(), what });
            }
        }
        Ok(())
    }
}

/// Words below this may be indices, of which the lowest [`GUARDED`] bits are flipped; behind device memory lie so many bytes more for
/// what they then reach.
const SMALL: u32 = 1 << 16;
const GUARDED: u32 = 3;
const GUARD: usize = 1 << 20;

/// Bytes that are read at a time.
const COPIED: usize = 1 << 16;

/// A queue that does one step after the other while there are faults.
pub struct FaultyQueue<G: Gpu> {
    /// `None` only while it is dropped.
    queue: Option<G::Queue>,
    limit: WaitLimit,
    /// The submissions that a GPU which hangs was given, with their numbers; submissions so far, those up to which [`Queue::wait`] waits, and
    /// those that were marked.
    late: Vec<Late<G>>,
    given: u64,
    awaited: u64,
    marks: [u64; SLOTS],
    /// Where memory is read through.
    there: G::Memory,
    here: G::HostMemory,
    gpu: Arc<FaultyGpu<G>>,
}

/// A submission that was not done.
type Late<G> = (u64, Arc<<G as Gpu>::Kernels>, Vec<Step>);

impl<G: Gpu> Drop for FaultyQueue<G> {
    fn drop(&mut self) {
        // An error has been reported before.
        let _ = self.catch_up(u64::MAX);
        let (late, gpu, queue) = (std::mem::take(&mut self.late), self.gpu.clone(), self.queue.take());
        if let (false, Some(mut queue)) = (late.is_empty(), queue) {
            self.gpu.faults.hang().late.push(Box::new(move || {
                for (_, kernels, steps) in late {
                    gpu.check_lives(&steps)?;
                    queue.submit(&kernels, &steps)?;
                }
                queue.wait().map(drop)
            }));
        }
    }
}

/// The name of a step.
fn stage(step: &Step) -> &'static str {
    match step {
        Step::Upload { .. } | Step::UploadColumns { .. } => "upload",
        Step::Download { .. } => "download",
        Step::Zero { .. } => "zeros",
        Step::Launch(launch) | Step::SideLaunch(launch) => launch.kernel.name(),
        Step::Fork | Step::Join => "order",
    }
}

/// The addresses that a launch may read and write.
fn addresses(step: &Step) -> Vec<u64> {
    match step {
        Step::Launch(Launch { args, .. }) | Step::SideLaunch(Launch { args, .. }) => {
            let Args { keys, jobs, ends, trace, nodes, outs, roots, sigs, flag, .. } = *args;
            vec![keys, jobs, ends, trace, nodes, outs, roots, sigs, flag]
        }
        _ => Vec::new(),
    }
}

impl<G: Gpu> FaultyQueue<G> {
    fn is_sound(&self) -> bool {
        matches!(self.gpu.faults.lock().0, Mode::Sound | Mode::Done(_) | Mode::Stuck(..))
    }

    fn queue(&mut self) -> &mut G::Queue {
        self.queue.as_mut().expect("it is not dropped")
    }

    /// Whether these steps are for a GPU that hangs: they are done later, or never. An error if it is to fail.
    fn is_late(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<bool, Error> {
        self.gpu.hung().map_or(Ok(()), Err)?;
        if self.gpu.faults.is_still() && self.gpu.faults.hang().fails {
            return Err(Error::Device { device: self.gpu.facts().id.clone(), what: "a test has it fail".into() });
        }
        self.given += 1;
        let is_late = self.gpu.faults.takes_submission() || !self.late.is_empty();
        if is_late {
            let of_host = steps.iter().flat_map(accesses).filter(|access| access.place == Place::Host);
            self.gpu.faults.hang().pending.extend(of_host);
            self.late.push((self.given, kernels.clone(), steps.to_vec()));
        }
        Ok(is_late)
    }

    /// Gives the GPU these steps, by `whole` where there are no faults. [`Queue::wait`] waits for them.
    fn give(
        &mut self,
        kernels: &Arc<G::Kernels>,
        steps: &[Step],
        whole: impl FnOnce(&mut G::Queue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let is_late = self.is_late(kernels, steps)?;
        self.awaited = self.given;
        match is_late {
            true => Ok(()),
            false if self.is_sound() => whole(self.queue()),
            false => self.one_by_one(kernels, steps),
        }
    }

    /// Waits until the GPU goes on, if it has what was submitted up to a number, and does all of that; or gives it up.
    fn catch_up(&mut self, number: u64) -> Result<(), Error> {
        if let (Some(_), Some(why)) = (self.limit.time, self.gpu.hung()) {
            return Err(why);
        }
        if self.late.first().is_none_or(|(first, ..)| *first > number) {
            return Ok(());
        }
        let faults = self.gpu.faults.clone();
        let patience = faults.hang().patience;
        faults.hang().endless += usize::from(self.limit.time.is_none() && faults.is_still());
        let limit = WaitLimit { time: self.limit.time.map(|time| time.min(patience)), ..self.limit };
        if !limit.poll(|| Ok::<_, Error>(!faults.is_still()))? {
            let why = limit.error(&self.gpu.facts().id);
            return Err(faults.hang().why.get_or_insert(why).clone());
        }
        for (_, kernels, steps) in std::mem::take(&mut self.late) {
            self.queue().submit(&kernels, &steps)?;
        }
        faults.hang().pending.clear();
        self.queue().wait().map(drop)
    }

    fn one_by_one(&mut self, kernels: &G::Kernels, steps: &[Step]) -> Result<(), Error> {
        self.queue().wait()?;
        // The memory of the program that these steps are of; others lie idle.
        let copied = steps.iter().flat_map(accesses).map(|access| access.at);
        let touched: Vec<u64> = copied.chain(steps.iter().flat_map(addresses)).collect();
        let holds = |e: &Extent| touched.iter().any(|at| (e.at..e.at + e.bytes as u64).contains(at));
        let extents: Vec<Extent> = lock(&self.gpu.extents).iter().copied().filter(holds).collect();
        for step in steps {
            let step = match *step {
                Step::Fork | Step::Join => continue,
                Step::SideLaunch(launch) => Step::Launch(launch),
                step => step,
            };
            let name = stage(&step);
            let cell = match self.gpu.faults.lock().0 {
                Mode::Cell(kernel, random, place) if kernel == name => Some((random, place)),
                _ => None,
            };
            let once = self.gpu.faults.pass(name);
            let looks = once.or(cell.filter(|(_, place)| place.is_none()).map(|(random, _)| random));
            let before = looks.map(|_| self.snapshot(kernels, &extents)).transpose()?.unwrap_or_default();
            self.queue().submit(kernels, &[step])?;
            self.queue().wait()?;
            if let Some(random) = looks {
                let after = self.snapshot(kernels, &extents)?;
                let changed: Vec<Word> = before.iter().zip(&after).flat_map(|(a, b)| a.changed(b)).collect();
                let place = (!changed.is_empty()).then(|| changed[random as usize % changed.len()]);
                // An index that became very large would end the process: one that is a little wrong reaches the guard.
                let is_small = cell.is_some() || place.is_some_and(|word| word.value < SMALL);
                let bit = (random >> 40) as u32 % if is_small { GUARDED } else { 32 };
                if let Some(Word { at, is_host, .. }) = place {
                    self.flip(kernels, at, is_host, bit)?;
                }
                let mut state = self.gpu.faults.lock();
                state.0 = match (&state.0, place) {
                    (Mode::Cell(kernel, random, _), Some(Word { at, is_host: false, .. })) => {
                        Mode::Cell(kernel, *random, Some((at, bit)))
                    }
                    (Mode::Cell(kernel, random, _), _) => Mode::Cell(kernel, *random, None),
                    _ => Mode::Done(place.is_some()),
                };
            } else if let Some((_, Some((at, bit)))) = cell {
                // Memory that went meanwhile is no place any more.
                let lives = lock(&self.gpu.extents).iter().any(|e| e.at <= at && at + 4 <= e.at + e.bytes as u64);
                if lives {
                    self.flip(kernels, at, false, bit)?;
                }
            }
        }
        Ok(())
    }

    /// Copies device memory to here.
    fn read(&mut self, kernels: &G::Kernels, at: u64, is_host: bool, bytes: usize) -> Result<(), Error> {
        let (there, here) = (G::address(&self.there), G::host_address(&self.here));
        let from = if is_host { there } else { at };
        if is_host {
            self.queue().submit(kernels, &[Step::Upload { to: there, from: at, bytes }])?;
        }
        self.queue().submit(kernels, &[Step::Download { to: here, from, bytes }])?;
        self.queue().wait().map(drop)
    }

    fn flip(&mut self, kernels: &G::Kernels, at: u64, is_host: bool, bit: u32) -> Result<(), Error> {
        self.read(kernels, at, is_host, 4)?;
        G::host_bytes(&mut self.here, 0..4)[bit as usize / 8] ^= 1 << (bit % 8);
        let (there, from) = (G::address(&self.there), G::host_address(&self.here));
        let to = if is_host { there } else { at };
        self.queue().submit(kernels, &[Step::Upload { to, from, bytes: 4 }])?;
        if is_host {
            self.queue().submit(kernels, &[Step::Download { to: at, from: there, bytes: 4 }])?;
        }
        self.queue().wait().map(drop)
    }

    /// The contents of these extents of memory.
    fn snapshot(&mut self, kernels: &G::Kernels, extents: &[Extent]) -> Result<Vec<Content>, Error> {
        let mut all = Vec::new();
        for extent in extents.iter().copied().filter(|extent| extent.bytes >= 4) {
            let whole = extent.bytes / 4 * 4;
            let mut bytes = Vec::with_capacity(whole);
            for first in (0..whole).step_by(COPIED) {
                let count = COPIED.min(whole - first);
                self.read(kernels, extent.at + first as u64, extent.is_host, count)?;
                bytes.extend_from_slice(G::host_view(&self.here, 0..count));
            }
            all.push(Content { extent, bytes });
        }
        Ok(all)
    }
}

/// A word of memory.
#[derive(Clone, Copy)]
struct Word {
    at: u64,
    is_host: bool,
    value: u32,
}

/// The content of an extent of memory.
#[derive(Default)]
struct Content {
    extent: Extent,
    bytes: Vec<u8>,
}

impl Content {
    /// The words that are others afterwards.
    fn changed<'a>(&'a self, after: &'a Content) -> impl Iterator<Item = Word> + 'a {
        let words = self.bytes.as_chunks().0.iter().zip(after.bytes.as_chunks().0).enumerate();
        let Extent { at, is_host, .. } = self.extent;
        let word = move |(i, value): (usize, &[u8; 4])| Word {
            at: at + 4 * i as u64,
            is_host,
            value: u32::from_le_bytes(*value),
        };
        words.filter(|(_, (a, b))| a != b).map(move |(i, (_, b))| word((i, b)))
    }
}

impl<G: Gpu> Queue for FaultyQueue<G> {
    type Kernels = Arc<G::Kernels>;
    type Recording = (Arc<G::Kernels>, Vec<Step>, <G::Queue as Queue>::Recording);

    fn submit(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<(), Error> {
        self.give(kernels, steps, |queue| queue.submit(kernels, steps))
    }
    fn record(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<Self::Recording, Error> {
        Ok((kernels.clone(), steps.to_vec(), self.queue().record(kernels, steps)?))
    }
    fn replay(&mut self, (kernels, steps, recording): &Self::Recording) -> Result<(), Error> {
        self.give(kernels, steps, |queue| queue.replay(recording))
    }
    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.marks[slot] = self.given;
        self.queue().mark(slot)
    }
    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        self.catch_up(self.marks[slot])?;
        self.queue().wait_for(slot)
    }
    fn follow(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<(), Error> {
        match self.is_late(kernels, steps)? {
            true => Ok(()),
            false => self.queue().follow(kernels, steps),
        }
    }
    fn takes_turns(&mut self, takes_turns: bool) {
        self.queue().takes_turns(takes_turns);
    }
    fn limit(&mut self, limit: WaitLimit) {
        self.limit = limit;
        self.queue().limit(limit);
    }
    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.catch_up(self.awaited)?;
        self.queue().wait()
    }
}
