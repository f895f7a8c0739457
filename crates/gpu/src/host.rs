//! A GPU for tests: kernels run as functions of the host, memory is the host's.
//!
//! The GPU executes steps only when a program waits for them. It panics if the program uses host bytes that are the device's at that time
//! (see [`Gpu::HostMemory`]). So a program that does not wait reads old bytes, or panics.

use crate::gpu::{Facts, Gpu, Queue, SLOTS, Step, WaitLimit};
use crate::mapped::MappedBytes;
use crate::steps::{Access, Allocations, Place, accesses};
use hypergrove_engine::{Error, ReachableMemory, Timing};
use hypergrove_kernels::{Args, Config, Kernel};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct HostGpu {
    pub(crate) facts: Facts,
    /// Bytes of the largest allocation of device memory.
    pub(crate) most: AtomicU64,
    /// Bytes of the largest allocation of pinned memory.
    pub(crate) most_locked: AtomicU64,
    /// How many more submissions succeed.
    pub(crate) submissions: AtomicU64,
    /// Bytes that were copied between the device and programs' own pinned memory.
    pub(crate) staged: AtomicU64,
    /// Microseconds that a wait for a mark takes, at least.
    pub(crate) delay: AtomicU64,
    /// The kernel (its number) after whose next launch one bit of what it wrote is changed; `u32::MAX` for none.
    pub(crate) fault: AtomicU32,
    /// The kernel whose next launch does nothing; `u32::MAX` for none.
    pub(crate) skip: AtomicU32,
    /// A bit that is still to be changed.
    pub(crate) planted: Mutex<Option<Planted>>,
    /// The contents of all freed memory, if `keep_freed`.
    pub(crate) freed: Mutex<Vec<Vec<u8>>>,
    pub(crate) keep_freed: bool,
    /// Queues that were made so far.
    queues: AtomicU64,
    /// Callers' memory that the device reaches.
    reached: Mutex<Allocations<()>>,
    /// Bytes of the host that are the device's now.
    under_way: Mutex<Vec<PendingRange>>,
}

/// A bit that changes once, after the launch of a kernel that follows the first `spared` ones. `word` finds the address of the bit's word in
/// the launch's arguments.
pub(crate) struct Planted {
    pub(crate) kernel: Kernel,
    pub(crate) spared: u32,
    pub(crate) word: fn(&Args) -> u64,
}

/// Bytes of the host that a submission copies.
struct PendingRange {
    queue: u64,
    submission: u64,
    access: Access,
}

impl HostGpu {
    pub(crate) fn new(keep_freed: bool) -> HostGpu {
        HostGpu {
            facts: Facts {
                id: "host:0".into(),
                name: "kernels on the host".into(),
                detail: "no GPU".into(),
                compute_units: 2,
                memory: 1 << 30,
                clock: 0,
                rates: None,
                ecc: true,
                largest: u64::MAX,
                fixed_blocks: false,
                without: &[],
                defaults: &[],
                uuid: None,
                is_cpu: false,
                most_iterations: usize::MAX,
            },
            most: AtomicU64::new(u64::MAX),
            most_locked: AtomicU64::new(u64::MAX),
            submissions: AtomicU64::new(u64::MAX),
            staged: AtomicU64::new(0),
            delay: AtomicU64::new(0),
            fault: AtomicU32::new(u32::MAX),
            skip: AtomicU32::new(u32::MAX),
            planted: Mutex::default(),
            freed: Mutex::default(),
            keep_freed,
            queues: AtomicU64::new(0),
            reached: Mutex::default(),
            under_way: Mutex::default(),
        }
    }

    fn reached(&self) -> MutexGuard<'_, Allocations<()>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<PendingRange>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics if the device copies some of these bytes. Bytes that are only read may be read by the device, too.
    pub(crate) fn check_host(&self, at: u64, bytes: usize, writes: bool) {
        let host = Access { place: Place::Host, at, bytes, writes };
        let under_way = self.under_way();
        if let Some(other) = under_way.iter().find(|other| bytes > 0 && other.access.conflicts(&host)) {
            panic!("{host:x?} while the device has {:x?}", other.access);
        }
    }

    fn has_room(&self, bytes: usize, most: &AtomicU64) -> Result<(), Error> {
        let (needs, has) = (bytes as u64, most.load(Ordering::Relaxed));
        if needs <= has { Ok(()) } else { Err(Error::OutOfMemory { device: self.facts.id.clone(), needs, has }) }
    }
}

/// Memory behind a plain pointer: the device uses it by its address while programs have references to parts of it.
pub(crate) struct Memory {
    bytes: MappedBytes,
    gpu: Arc<HostGpu>,
}

impl Memory {
    #[allow(unsafe_code)]
    fn new(gpu: &Arc<HostGpu>, bytes: usize, word: u64) -> Memory {
        let words: Box<[u64]> = vec![0; bytes.div_ceil(8)].into();
        let count = 8 * words.len();
        // SAFETY: the box is this memory's until `drop`. `HostGpu` checks that the memory is used as the trait `Gpu` allows.
        let mut bytes = unsafe { MappedBytes::zeroed(Box::into_raw(words).cast(), count) };
        bytes.slice_mut(0..count).as_chunks_mut().0.fill(word.to_ne_bytes());
        Memory { bytes, gpu: gpu.clone() }
    }

    fn address(&self) -> u64 {
        self.bytes.start() as u64
    }

    /// Panics if the device copies some of these bytes. Bytes that are only read may be read by the device, too.
    fn check(&self, range: &Range<usize>, writes: bool) {
        self.gpu.check_host(self.address() + range.start as u64, range.len(), writes);
    }
}

impl Drop for Memory {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.gpu.keep_freed {
            let bytes = self.bytes.slice(0..self.bytes.count()).to_vec();
            self.gpu.freed.lock().expect("no panic").push(bytes);
        }
        let words = std::ptr::slice_from_raw_parts_mut(self.bytes.start().cast::<u64>(), self.bytes.count() / 8);
        // SAFETY: the pointer came from a box of so many words, which is freed once.
        drop(unsafe { Box::from_raw(words) });
    }
}

/// Memory of a caller, which the device reaches.
struct HostReached {
    memory: Memory,
    bytes: usize,
}

impl ReachableMemory for HostReached {
    fn bytes(&self) -> &[u8] {
        HostGpu::host_view(&self.memory, 0..self.bytes)
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        HostGpu::host_bytes(&mut self.memory, 0..self.bytes)
    }
}

impl Drop for HostReached {
    fn drop(&mut self) {
        self.memory.gpu.reached().remove(self.memory.address());
    }
}

impl Gpu for HostGpu {
    type Memory = Memory;
    type HostMemory = Memory;
    type Kernels = Loaded;
    type Queue = HostQueue;

    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn free(&self) -> Result<u64, Error> {
        Ok(1 << 30)
    }
    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Memory, Error> {
        self.has_room(bytes, &self.most)?;
        // The memory is poisoned, so that tests notice a kernel that reads memory which no step has written.
        Ok(Memory::new(self, bytes, 0xa5a5_5a5a_dead_beef))
    }
    fn address(memory: &Memory) -> u64 {
        memory.address()
    }
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Memory, Error> {
        self.has_room(bytes, &self.most_locked)?;
        Ok(Memory::new(self, bytes, 0))
    }
    fn host_address(memory: &Memory) -> u64 {
        memory.address()
    }
    fn host_bytes(memory: &mut Memory, range: Range<usize>) -> &mut [u8] {
        memory.check(&range, true);
        memory.bytes.slice_mut(range)
    }
    fn host_view(memory: &Memory, range: Range<usize>) -> &[u8] {
        memory.check(&range, false);
        memory.bytes.slice(range)
    }
    fn host_write(memory: &Memory, at: usize, bytes: &[u8]) {
        memory.check(&(at..at + bytes.len()), true);
        memory.bytes.write(at, bytes);
    }
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>> {
        let memory = Memory::new(self, bytes, 0);
        self.reached().insert(memory.address(), bytes, Place::Host, ());
        Some(Ok(Box::new(HostReached { memory, bytes })))
    }
    fn reaches(&self, at: u64, bytes: usize) -> bool {
        self.reached().find(Access { place: Place::Host, at, bytes, writes: false }).is_some()
    }
    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Loaded, Error> {
        Ok((config.clone(), kernels.iter().map(|(kernel, _)| *kernel).collect()))
    }
    fn queue(self: &Arc<Self>) -> Result<HostQueue, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let (submitted, awaited) = (0, 0);
        Ok(HostQueue { gpu: self.clone(), number, pending: VecDeque::new(), submitted, awaited, marks: [0; SLOTS] })
    }
    /// This device never hangs. `hypergrove_testkit::faults` wraps it in a device that does.
    fn hung(&self) -> Option<Error> {
        None
    }
}

/// The leaf that the first job reveals in its first tree. Tests put faults into its chains. A fault in another leaf's chain changes the tree's root and the
/// root that the signature leads to alike, so no comparison of the two finds it: only computing twice does.
pub(crate) const REVEALED: u64 = 3;

/// The first job's tree in layer 0.
pub(crate) const TREE: u64 = 2;

/// Where the WOTS+ signature of the first job's lowest layer begins.
fn wots_offset(args: &Args) -> u32 {
    let [k, a, ..] = args.shape0.to_le_bytes().map(u32::from);
    16 * (1 + k * (1 + a))
}

/// The address of the top layer's stored signature of the first job's tree, if there are two layers.
#[allow(unsafe_code)]
fn stored_row(args: &Args, n: usize) -> u64 {
    // SAFETY: the kernel that was launched has read the same words, the address of the first key's nodes.
    let nodes = unsafe { ((args.keys + 4 * 40) as *const u64).read_unaligned() };
    nodes + 256 * u64::from(args.base) + TREE * (u64::from(args.shape1 & 255) * n as u64 + 4)
}

/// Kernels that may be launched.
type Loaded = (Config, Vec<Kernel>);

pub(crate) struct HostQueue {
    gpu: Arc<HostGpu>,
    number: u64,
    /// Submissions that are not done yet, each with its number.
    pending: VecDeque<(u64, Loaded, Vec<Step>)>,
    /// The last submission's number, that of the last submission that [`Queue::wait`] waits for, and those of the last before each mark.
    submitted: u64,
    awaited: u64,
    marks: [u64; SLOTS],
}

impl HostQueue {
    /// Executes what was submitted, up to the submission with this number.
    fn work(&mut self, most: u64) {
        while let Some((number, kernels, steps)) = self.pending.pop_front_if(|(number, ..)| *number <= most) {
            self.execute(&kernels, &steps);
            self.gpu.under_way().retain(|other| (other.queue, other.submission) != (self.number, number));
        }
    }

    #[allow(unsafe_code)]
    fn execute(&self, (config, loaded): &Loaded, steps: &[Step]) {
        for step in steps {
            // SAFETY: the program under test gives addresses inside memory that it holds. If it did not, tests
            // under a sanitizer would notice, as on a GPU.
            unsafe {
                match *step {
                    Step::Upload { to, from, bytes } | Step::Download { to, from, bytes } => {
                        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
                    }
                    Step::UploadColumns { to, from, width, pitch, rows } => {
                        for row in 0..rows {
                            let (from, to) = (from as usize + row * pitch, to as usize + row * pitch);
                            std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, width);
                        }
                    }
                    Step::Zero { at, bytes } => std::ptr::write_bytes(at as *mut u8, 0, bytes),
                    Step::Launch(l) | Step::SideLaunch(l) => {
                        assert!(loaded.contains(&l.kernel), "{:?} was launched and not loaded", l.kernel);
                        let skip = &self.gpu.skip;
                        if skip.load(Ordering::Relaxed) == l.kernel as u32 {
                            skip.store(u32::MAX, Ordering::Relaxed);
                            continue;
                        }
                        hypergrove_kernels_host::launch(config, l.kernel, l.blocks, l.threads, &l.args);
                        let fault = &self.gpu.fault;
                        if fault.load(Ordering::Relaxed) == l.kernel as u32 {
                            fault.store(u32::MAX, Ordering::Relaxed);
                            // One bit is changed: in the first word of the end of a chain of the revealed leaf (first words of all leaves
                            // follow each other), of a stored signature, of a signature's WOTS+ value, or of the root of layer 0, which the
                            // FORS public key precedes.
                            let at = match l.kernel {
                                Kernel::Chains => l.args.ends + 4 * REVEALED,
                                Kernel::Stored => stored_row(&l.args, config.n),
                                Kernel::Select => l.args.sigs + u64::from(wots_offset(&l.args)),
                                _ => l.args.roots + config.n as u64,
                            };
                            *(at as *mut u32) ^= 1;
                        }
                        let mut planted = self.gpu.planted.lock().unwrap_or_else(PoisonError::into_inner);
                        match &mut *planted {
                            Some(Planted { kernel, spared: spared @ 1.., .. }) if *kernel == l.kernel => *spared -= 1,
                            Some(Planted { kernel, word, .. }) if *kernel == l.kernel => {
                                *(word(&l.args) as *mut u32) ^= 1;
                                *planted = None;
                            }
                            _ => {}
                        }
                    }
                    Step::Fork | Step::Join => {}
                }
            }
        }
    }
}

impl Drop for HostQueue {
    /// A device does what was submitted, even if nobody waits for it.
    fn drop(&mut self) {
        self.work(u64::MAX);
    }
}

impl Queue for HostQueue {
    type Kernels = Loaded;
    type Recording = (Loaded, Vec<Step>);

    fn submit(&mut self, kernels: &Loaded, steps: &[Step]) -> Result<(), Error> {
        self.follow(kernels, steps)?;
        self.awaited = self.submitted;
        Ok(())
    }
    fn record(&mut self, kernels: &Loaded, steps: &[Step]) -> Result<Self::Recording, Error> {
        Ok((kernels.clone(), steps.to_vec()))
    }
    fn replay(&mut self, (kernels, steps): &Self::Recording) -> Result<(), Error> {
        self.submit(kernels, steps)
    }
    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.marks[slot] = self.submitted;
        Ok(())
    }
    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        std::thread::sleep(Duration::from_micros(self.gpu.delay.load(Ordering::Relaxed)));
        self.work(self.marks[slot]);
        Ok(())
    }
    fn follow(&mut self, kernels: &Loaded, steps: &[Step]) -> Result<(), Error> {
        let left = &self.gpu.submissions;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err() {
            // After an error nothing is under way.
            self.work(u64::MAX);
            let what = "the device was lost (a test said so)".into();
            return Err(Error::Device { device: self.gpu.facts.id.clone(), what });
        }
        self.submitted += 1;
        let (queue, submission) = (self.number, self.submitted);
        let of_host: Vec<_> = steps.iter().flat_map(accesses).filter(|access| access.place == Place::Host).collect();
        let staged = of_host.iter().filter(|access| !self.gpu.reaches(access.at, access.bytes));
        self.gpu.staged.fetch_add(staged.map(|access| access.bytes as u64).sum(), Ordering::Relaxed);
        self.gpu.under_way().extend(of_host.into_iter().map(|access| PendingRange { queue, submission, access }));
        self.pending.push_back((submission, kernels.clone(), steps.to_vec()));
        Ok(())
    }
    fn takes_turns(&mut self, _: bool) {}
    fn limit(&mut self, _: WaitLimit) {}
    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.work(self.awaited);
        Ok(None)
    }
}
