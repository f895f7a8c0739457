//! Faults on purpose: one bit of what a device has just computed is flipped, once, or whenever the same lane computes.
//!
//! Where a device can be hit is a list of [`Site`]s, found by a run without faults. The CPU's are calls of its hashes or of its
//! arithmetic, a GPU's are its copies and launches.

use hypergrove_engine::{Error, ReachableMemory, Timing};
use hypergrove_fips205::AdrsType;
use hypergrove_gpu::steps::accesses;
use hypergrove_gpu::{Facts, Gpu, Queue, Step, Wrapper};
use hypergrove_kernels::{Config, Kernel};
use hypergrove_lanes::{AdrsWords, Factors, Keys, Lattice, Primitive, Shake, Steps, Trace, TweakableHash};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A piece of work whose results can be hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// What it computes or copies.
    pub stage: &'static str,
    /// Its number among those of the run.
    pub number: usize,
}

/// What happens to the work at hand.
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
pub struct Faults(Mutex<(Mode, usize)>);

impl Faults {
    fn lock(&self) -> MutexGuard<'_, (Mode, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What a run without faults passes.
    pub fn survey<R>(&self, run: impl FnOnce() -> R) -> (Vec<Site>, R) {
        *self.lock() = (Mode::Survey(Vec::new()), 0);
        let done = run();
        match std::mem::take(&mut self.lock().0) {
            Mode::Survey(sites) => (sites, done),
            other => panic!("{other:?} in the middle of a survey"),
        }
    }
    /// A run in which one bit is flipped; whether it was.
    pub fn flip<R>(&self, site: Site, random: u64, run: impl FnOnce() -> R) -> (bool, R) {
        *self.lock() = (Mode::Flip(site.number, random), 0);
        let done = run();
        (matches!(std::mem::take(&mut self.lock().0), Mode::Done(true)), done)
    }
    /// A run in which lane number `lane` of `lanes` is wrong.
    pub fn stuck<R>(&self, lane: usize, lanes: usize, run: impl FnOnce() -> R) -> R {
        *self.lock() = (Mode::Stuck(lane, lanes), 0);
        let done = run();
        self.lock().0 = Mode::Sound;
        done
    }
    /// A run in which a kernel writes one bit of some place wrong, each time. Whether it did.
    pub fn cell<R>(&self, kernel: &'static str, random: u64, run: impl FnOnce() -> R) -> (bool, R) {
        *self.lock() = (Mode::Cell(kernel, random, None), 0);
        let done = run();
        (matches!(std::mem::take(&mut self.lock().0), Mode::Cell(.., Some(_))), done)
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
    /// What computes.
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
    /// What computes.
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

impl Lattice for FaultyLattice {
    fn lanes(&self) -> usize {
        self.lattice.lanes()
    }
    fn rows(&self, columns: &[i32], rows: &mut [f64]) {
        self.lattice.rows(columns, rows);
        self.hit("rows", rows);
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
    fn ntt(&self, polynomials: &mut [f64]) {
        self.lattice.ntt(polynomials);
        self.hit("NTT", polynomials);
    }
    fn intt(&self, polynomials: &mut [f64]) {
        self.lattice.intt(polynomials);
        self.hit("inverse NTT", polynomials);
    }
    fn dot(&self, factors: Factors<'_>, values: &[f64], out: &mut [f64]) {
        self.lattice.dot(factors, values, out);
        self.hit("products", out);
    }
    fn dot_columns(&self, factors: &[i32], values: &[f64], out: &mut [f64]) {
        self.lattice.dot_columns(factors, values, out);
        self.hit("products", out);
    }
    fn add(&self, a: &mut [f64], b: &[f64]) {
        self.lattice.add(a, b);
        self.hit("t", a);
    }
    fn add_norms(&self, a: &mut [f64], b: &[f64], norms: &mut [f64]) {
        self.lattice.add_norms(a, b, norms);
        self.hit("z", a);
        self.hit("norms", norms);
    }
    fn high_parts(&self, polynomials: &[f64], out: &mut [f64]) {
        self.lattice.high_parts(polynomials, out);
        self.hit("w1", out);
    }
    fn low_norms(&self, a: &[f64], b: &[f64], norms: &mut [f64]) {
        self.lattice.low_norms(a, b, norms);
        self.hit("norms", norms);
    }
    fn absorb(&self, instances: usize, states: &mut [f64], elements: &[f64]) {
        self.lattice.absorb(instances, states, elements);
        self.hit("Poseidon", states);
    }
    fn permute(&self, instances: usize, states: &mut [f64]) {
        self.lattice.permute(instances, states);
        self.hit("Poseidon", states);
    }
    fn squeeze(&self, states: &[f64], out: &mut [f64]) {
        self.lattice.squeeze(states, out);
        self.hit("Poseidon's output", out);
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

/// Memory that is known where it lies.
pub struct TrackedMemory<M> {
    memory: M,
    extent: Extent,
    extents: Extents,
}

impl<M> TrackedMemory<M> {
    fn new(memory: M, extent: Extent, extents: &Extents) -> TrackedMemory<M> {
        lock(extents).push(extent);
        TrackedMemory { memory, extent, extents: extents.clone() }
    }
}

impl<M> Drop for TrackedMemory<M> {
    fn drop(&mut self) {
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
        Ok(TrackedMemory::new(memory, extent, &self.extents))
    }
    fn address(memory: &Self::Memory) -> u64 {
        G::address(&memory.memory)
    }
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Self::HostMemory, Error> {
        let memory = self.gpu.alloc_host(bytes)?;
        let extent = Extent { is_host: true, at: G::host_address(&memory), bytes };
        Ok(TrackedMemory::new(memory, extent, &self.extents))
    }
    fn host_address(memory: &Self::HostMemory) -> u64 {
        G::host_address(&memory.memory)
    }
    fn host_bytes(memory: &mut Self::HostMemory, range: Range<usize>) -> &mut [u8] {
        G::host_bytes(&mut memory.memory, range)
    }
    fn host_view(memory: &Self::HostMemory, range: Range<usize>) -> &[u8] {
        G::host_view(&memory.memory, range)
    }
    fn host_write(memory: &Self::HostMemory, at: usize, bytes: &[u8]) {
        G::host_write(&memory.memory, at, bytes);
    }
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>> {
        self.gpu.alloc_reached(bytes)
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
    fn queue(self: &Arc<Self>) -> Result<Self::Queue, Error> {
        let (there, here) = (self.gpu.alloc(COPIED)?, self.gpu.alloc_host(COPIED)?);
        Ok(FaultyQueue { queue: self.gpu.queue()?, there, here, gpu: self.clone() })
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
    queue: G::Queue,
    /// Where memory is read through.
    there: G::Memory,
    here: G::HostMemory,
    gpu: Arc<FaultyGpu<G>>,
}

/// What a step does.
fn stage(step: &Step) -> &'static str {
    match step {
        Step::Upload { .. } => "upload",
        Step::Download { .. } => "download",
        Step::Zero { .. } => "zeros",
        Step::Launch(launch) | Step::Beside(launch) => launch.kernel.name(),
        Step::Fork | Step::Join => "order",
    }
}

impl<G: Gpu> FaultyQueue<G> {
    fn is_sound(&self) -> bool {
        matches!(self.gpu.faults.lock().0, Mode::Sound | Mode::Done(_) | Mode::Stuck(..))
    }

    fn one_by_one(&mut self, kernels: &G::Kernels, steps: &[Step]) -> Result<(), Error> {
        self.queue.wait()?;
        // The memory of the program that these steps are of; others lie idle.
        let touched: Vec<u64> = steps.iter().flat_map(accesses).map(|access| access.at).collect();
        let holds = |e: &Extent| touched.iter().any(|at| (e.at..e.at + e.bytes as u64).contains(at));
        let extents: Vec<Extent> = lock(&self.gpu.extents).iter().copied().filter(holds).collect();
        for step in steps {
            let step = match *step {
                Step::Fork | Step::Join => continue,
                Step::Beside(launch) => Step::Launch(launch),
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
            self.queue.submit(kernels, &[step])?;
            self.queue.wait()?;
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
            self.queue.submit(kernels, &[Step::Upload { to: there, from: at, bytes }])?;
        }
        self.queue.submit(kernels, &[Step::Download { to: here, from, bytes }])?;
        self.queue.wait().map(|_| ())
    }

    fn flip(&mut self, kernels: &G::Kernels, at: u64, is_host: bool, bit: u32) -> Result<(), Error> {
        self.read(kernels, at, is_host, 4)?;
        G::host_bytes(&mut self.here, 0..4)[bit as usize / 8] ^= 1 << (bit % 8);
        let (there, from) = (G::address(&self.there), G::host_address(&self.here));
        let to = if is_host { there } else { at };
        self.queue.submit(kernels, &[Step::Upload { to, from, bytes: 4 }])?;
        if is_host {
            self.queue.submit(kernels, &[Step::Download { to: at, from: there, bytes: 4 }])?;
        }
        self.queue.wait().map(|_| ())
    }

    /// What memory holds.
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

/// What some memory holds.
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
        if self.is_sound() { self.queue.submit(kernels, steps) } else { self.one_by_one(kernels, steps) }
    }
    fn record(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<Self::Recording, Error> {
        Ok((kernels.clone(), steps.to_vec(), self.queue.record(kernels, steps)?))
    }
    fn replay(&mut self, (kernels, steps, recording): &Self::Recording) -> Result<(), Error> {
        if self.is_sound() { self.queue.replay(recording) } else { self.one_by_one(kernels, steps) }
    }
    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.queue.mark(slot)
    }
    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        self.queue.wait_for(slot)
    }
    fn follow(&mut self, kernels: &Arc<G::Kernels>, steps: &[Step]) -> Result<(), Error> {
        self.queue.follow(kernels, steps)
    }
    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.queue.wait()
    }
}
