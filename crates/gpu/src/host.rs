//! A GPU for tests: kernels run as functions of the host, memory is the host's.

use crate::gpu::{Facts, Gpu, Queue, Step};
use hypergrove_engine::{Error, Timing};
use hypergrove_kernels::{Args, Config, Kernel};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) struct HostGpu {
    pub(crate) facts: Facts,
    /// Bytes that one allocation may have.
    pub(crate) most: AtomicU64,
    /// The same of page-locked memory.
    pub(crate) most_locked: AtomicU64,
    /// Submissions that may still succeed.
    pub(crate) submissions: AtomicU64,
    /// The kernel (its number) after whose next launch one bit of what it wrote is changed; `u32::MAX` for none.
    pub(crate) fault: AtomicU32,
    /// The kernel whose next launch does nothing; `u32::MAX` for none.
    pub(crate) skip: AtomicU32,
    /// What freed device memory held.
    pub(crate) freed: std::sync::Mutex<Vec<Vec<u8>>>,
    pub(crate) keep_freed: bool,
}

impl HostGpu {
    pub(crate) fn new(keep_freed: bool) -> HostGpu {
        HostGpu {
            facts: Facts {
                id: "host:0".into(),
                name: "kernels on the host".into(),
                detail: "no GPU".into(),
                multiprocessors: 2,
                memory: 1 << 30,
                clock: 0,
                rates: None,
                ecc: true,
                largest: u64::MAX,
                fixed_blocks: false,
                without: &[],
                defaults: Vec::new(),
                uuid: None,
                is_cpu: false,
            },
            most: AtomicU64::new(u64::MAX),
            most_locked: AtomicU64::new(u64::MAX),
            submissions: AtomicU64::new(u64::MAX),
            fault: AtomicU32::new(u32::MAX),
            skip: AtomicU32::new(u32::MAX),
            freed: std::sync::Mutex::default(),
            keep_freed,
        }
    }

    fn has_room(&self, bytes: usize, most: &AtomicU64) -> Result<(), Error> {
        let (needs, has) = (bytes as u64, most.load(Ordering::Relaxed));
        if needs <= has { Ok(()) } else { Err(Error::OutOfMemory { device: self.facts.id.clone(), needs, has }) }
    }
}

pub(crate) struct Memory {
    words: Vec<u64>,
    gpu: Arc<HostGpu>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.gpu.keep_freed {
            let bytes = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.gpu.freed.lock().expect("no panic").push(bytes);
        }
    }
}

impl Gpu for HostGpu {
    type Memory = Memory;
    type HostMemory = Memory;
    type Kernels = (Config, Vec<Kernel>);
    type Queue = HostQueue;

    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn free(&self) -> Result<u64, Error> {
        Ok(1 << 30)
    }
    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Memory, Error> {
        self.has_room(bytes, &self.most)?;
        // Poisoned: what a kernel reads it must have written.
        Ok(Memory { words: vec![0xa5a5_5a5a_dead_beef; bytes.div_ceil(8)], gpu: self.clone() })
    }
    fn address(memory: &Memory) -> u64 {
        memory.words.as_ptr() as u64
    }
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Memory, Error> {
        self.has_room(bytes, &self.most_locked)?;
        Ok(Memory { words: vec![0; bytes.div_ceil(8)], gpu: self.clone() })
    }
    fn host_address(memory: &Memory) -> u64 {
        memory.words.as_ptr() as u64
    }
    #[allow(unsafe_code)]
    fn host_bytes(memory: &mut Memory) -> &mut [u8] {
        let bytes = memory.words.len() * 8;
        // SAFETY: words are plain bytes, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(memory.words.as_mut_ptr().cast(), bytes) }
    }
    #[allow(unsafe_code)]
    fn host_view(memory: &Memory) -> &[u8] {
        // SAFETY: words are plain bytes.
        unsafe { std::slice::from_raw_parts(memory.words.as_ptr().cast(), memory.words.len() * 8) }
    }
    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<(Config, Vec<Kernel>), Error> {
        Ok((config.clone(), kernels.iter().map(|(kernel, _)| *kernel).collect()))
    }
    fn queue(self: &Arc<Self>) -> Result<HostQueue, Error> {
        Ok(HostQueue { gpu: self.clone() })
    }
}

/// The leaf that the first job reveals in its first tree, where a fault is asked for. One in another leaf's chain would
/// show in no root that a signature leads to: that is what computing twice is for.
pub(crate) const REVEALED: u64 = 3;

/// The first job's tree in layer 0.
pub(crate) const TREE: u64 = 2;

/// Where the WOTS+ signature of the first job's lowest layer begins.
fn wots_offset(args: &Args) -> u32 {
    let [k, a, ..] = args.shape0.to_le_bytes().map(u32::from);
    16 * (1 + k * (1 + a))
}

/// Where the signature that the top layer has of the first job's tree is stored, if there are two layers.
#[allow(unsafe_code)]
fn stored_row(args: &Args, n: usize) -> u64 {
    // SAFETY: the kernel that was launched has read the same words, the address of the first key's nodes.
    let nodes = unsafe { ((args.keys + 4 * 40) as *const u64).read_unaligned() };
    nodes + 256 * u64::from(args.base) + TREE * (u64::from(args.shape1 & 255) * n as u64 + 4)
}

pub(crate) struct HostQueue {
    gpu: Arc<HostGpu>,
}

impl Queue for HostQueue {
    type Kernels = (Config, Vec<Kernel>);
    type Recording = ((Config, Vec<Kernel>), Vec<Step>);

    #[allow(unsafe_code)]
    fn submit(&mut self, (config, loaded): &(Config, Vec<Kernel>), steps: &[Step]) -> Result<(), Error> {
        let left = &self.gpu.submissions;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err() {
            let what = "the device was lost (a test said so)".into();
            return Err(Error::Device { device: self.gpu.facts.id.clone(), what });
        }
        for step in steps {
            // SAFETY: the program under test gives addresses inside memory that it holds; that it does is what tests
            // under a sanitizer would notice, as on a GPU.
            unsafe {
                match *step {
                    Step::Upload { to, from, bytes } | Step::Download { to, from, bytes } => {
                        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
                    }
                    Step::Zero { at, bytes } => std::ptr::write_bytes(at as *mut u8, 0, bytes),
                    Step::Launch(l) | Step::Beside(l) => {
                        assert!(loaded.contains(&l.kernel), "{:?} was launched and not loaded", l.kernel);
                        let skip = &self.gpu.skip;
                        if skip.load(Ordering::Relaxed) == l.kernel as u32 {
                            skip.store(u32::MAX, Ordering::Relaxed);
                            continue;
                        }
                        hypergrove_kernels::host::launch(config, l.kernel, l.blocks, l.threads, &l.args);
                        let fault = &self.gpu.fault;
                        if fault.load(Ordering::Relaxed) == l.kernel as u32 {
                            fault.store(u32::MAX, Ordering::Relaxed);
                            // The end of a chain of the revealed leaf, a stored signature, a signature's WOTS+ value, or
                            // the root of layer 0.
                            let word = match l.kernel {
                                Kernel::Chains => l.args.ends + 4 * REVEALED,
                                Kernel::Stored => stored_row(&l.args, config.n),
                                Kernel::Select => l.args.sigs + u64::from(wots_offset(&l.args)),
                                _ => l.args.roots + config.n as u64,
                            };
                            *(word as *mut u32) ^= 1;
                        }
                    }
                    Step::Fork | Step::Join => {}
                }
            }
        }
        Ok(())
    }
    fn record(&mut self, kernels: &(Config, Vec<Kernel>), steps: &[Step]) -> Result<Self::Recording, Error> {
        Ok((kernels.clone(), steps.to_vec()))
    }
    fn replay(&mut self, (kernels, steps): &Self::Recording) -> Result<(), Error> {
        self.submit(kernels, steps)
    }
    fn mark(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }
    fn wait_for(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }
    fn follow(&mut self, kernels: &(Config, Vec<Kernel>), steps: &[Step]) -> Result<(), Error> {
        self.submit(kernels, steps)
    }
    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        Ok(None)
    }
}
