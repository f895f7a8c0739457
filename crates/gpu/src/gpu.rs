//! The traits through which programs use a GPU. The drivers' crates implement them for GPUs, the tests for kernels that run on the host.

/// The argument of [`Queue::limit`].
pub(crate) use crate::wait::WaitLimit;
use hypergrove_engine::{Error, Policy, ReachableMemory, Timing};
use hypergrove_fips205::plan::Rates;
use hypergrove_kernels::{Args, Config, Kernel, TENSOR_FORMS};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroize;

/// A device as its driver describes it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The device's name in errors, such as `cuda:0`.
    pub id: String,
    /// The maker's name for the device.
    pub name: String,
    /// Compute capability and driver version.
    pub detail: String,
    /// Compute units (SMs of CUDA).
    pub compute_units: u32,
    /// Bytes of device memory.
    pub memory: u64,
    /// Cycles a second, at most; 0 if unknown.
    pub clock: u64,
    /// Compressions and permutations a second that the device's arithmetic allows, if known.
    pub rates: Option<Rates>,
    /// Whether the memory corrects errors.
    pub ecc: bool,
    /// Bytes of the largest allocation that the device allows.
    pub largest: u64,
    /// Whether blocks should have the size that their kernel was prepared for, because the driver compiles a kernel anew for any other size.
    pub fixed_blocks: bool,
    /// Policy axes that mean nothing to this device.
    pub without: &'static [&'static str],
    /// Values of other axes that are better on this device than the defaults.
    pub defaults: &'static [(&'static str, u32)],
    /// An identifier that no other GPU has, and that is the same under every driver.
    pub uuid: Option<[u8; 16]>,
    /// Whether the device is a CPU under a GPU's driver. Engines use such a device only if the caller names it.
    pub is_cpu: bool,
    /// Iterations, at most, of all loops of a thread together; `usize::MAX` without a limit.
    pub most_iterations: usize,
}

impl Facts {
    /// Whether a policy may name this axis.
    pub fn has(&self, axis: &str) -> bool {
        !self.without.contains(&axis)
    }

    /// Refuses a policy that names an axis which this device does not have.
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), Error> {
        match policy.0.iter().find(|(axis, _)| !self.has(axis)) {
            Some((axis, _)) => Err(Error::Value { what: format!("{} has no policy axis {axis:?}", self.id) }),
            None => Ok(()),
        }
    }
}

/// One launch of a kernel. Blocks and threads are the kernel's parallelism: every kernel goes through its jobs in steps
/// of all its threads, so that any shape gives the same bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Launch {
    /// The kernel that runs.
    pub kernel: Kernel,
    /// Blocks of threads.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The kernel's arguments.
    pub args: Args,
}

/// One step of a queue, which runs its steps in order. Addresses are as the device sees them. A host range lies in a [`Gpu::HostMemory`], or
/// in a caller's memory that the device [reaches](Gpu::reaches).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Copies host memory to device memory.
    Upload {
        /// Device address.
        to: u64,
        /// Host address.
        from: u64,
        /// Bytes that are copied.
        bytes: usize,
    },
    /// Copies some columns of rows in host memory to the same columns of rows in device memory. Rows have the same size in both.
    UploadColumns {
        /// Device address.
        to: u64,
        /// Host address.
        from: u64,
        /// Bytes of each row that are copied.
        width: usize,
        /// Bytes from one row to the next.
        pitch: usize,
        /// How many rows.
        rows: usize,
    },
    /// Copies device memory to host memory.
    Download {
        /// Host address.
        to: u64,
        /// Device address.
        from: u64,
        /// Bytes that are copied.
        bytes: usize,
    },
    /// Writes zeros to device memory.
    Zero {
        /// Device address.
        at: u64,
        /// Bytes that are written.
        bytes: usize,
    },
    /// Launches a kernel on the main stream.
    Launch(Launch),
    /// Launches a kernel on the side stream, which runs concurrently with the main stream from `Fork` to `Join`.
    SideLaunch(Launch),
    /// The side stream starts when all steps so far are done.
    Fork,
    /// The main stream goes on when the side stream is done.
    Join,
}

/// A GPU. Dropping its memory frees it.
pub trait Gpu: Send + Sync + Sized + 'static {
    /// Device memory.
    type Memory: Send + Sync;
    /// Host memory that the device reads and writes: pinned, and mapped at the same address.
    ///
    /// Bytes that a step copies from or to are the device's from the step's submission until the step is waited for. Then no reference to them may
    /// exist, since the device writes without the compiler's knowledge. References to other bytes of the same memory may exist. No function of
    /// this trait gives a reference to more bytes than its caller named.
    type HostMemory: Send + Sync;
    /// Kernels ready to launch.
    type Kernels: Send + Sync;
    /// An ordered stream of work, with a second stream that runs concurrently.
    type Queue: Queue<Kernels = Self::Kernels>;

    /// The device as its driver describes it.
    fn facts(&self) -> &Facts;
    /// Bytes of device memory that are free now.
    fn free(&self) -> Result<u64, Error>;
    /// Allocates uninitialised device memory. `Error::OutOfMemory` if there is not enough.
    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Self::Memory, Error>;
    /// The memory's address on the device.
    fn address(memory: &Self::Memory) -> u64;
    /// Allocates zeroed host memory.
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Self::HostMemory, Error>;
    /// The memory's address, the same on the host and on the device.
    fn host_address(memory: &Self::HostMemory) -> u64;
    /// Bytes of a range, to change. None of them may be the device's now (see [`Gpu::HostMemory`]). Panics if the range exceeds the memory.
    fn host_bytes(memory: &mut Self::HostMemory, range: Range<usize>) -> &mut [u8];
    /// Bytes of a range, to read. No step under way may write any of them. Panics if the range exceeds the memory.
    fn host_view(memory: &Self::HostMemory, range: Range<usize>) -> &[u8];
    /// Copies bytes to an offset of the memory. Neither the device nor another thread may use the bytes there now, but several threads may fill
    /// different bytes. Panics if the bytes exceed the memory.
    fn host_write(memory: &Self::HostMemory, at: usize, bytes: &[u8]);
    /// Allocates zeroed host memory that the device reaches at its address. `None` where the driver has no such memory.
    ///
    /// An engine's caller owns this memory, and may have references to it while a device copies. The caller lends the engine bytes that a device
    /// reads by a shared reference, and bytes that it writes by an exclusive one.
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>>;
    /// Whether all of these host bytes lie in memory from [`alloc_reached`](Gpu::alloc_reached).
    fn reaches(&self, at: u64, bytes: usize) -> bool;
    /// Loads kernels, and compiles those that are neither loaded nor in the cache. Each kernel comes with the number of threads that most of its
    /// blocks will have.
    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Self::Kernels, Error>;
    /// Whether the device multiplies doubles at half the rate of words, and not at a 32nd of that rate.
    fn has_fast_doubles(&self) -> bool {
        false
    }
    /// The forms of Poseidon that the device can run, from the slowest to the fastest: a beginning of
    /// [`TENSOR_FORMS`].
    fn tensor_forms(&self) -> &'static [u32] {
        &TENSOR_FORMS[..1]
    }
    /// Makes a queue, with streams of its own.
    fn queue(self: &Arc<Self>) -> Result<Self::Queue, Error>;
    /// Why the device was given up, if a wait for it took longer than its limit. The device may still read and write all memory that it was
    /// given, so the driver frees none of it. Host memory that steps of the failed wait copy stays the device's: no reference to it may exist any
    /// more. The driver overwrites a [`Gpu::HostMemory`] when it is dropped; it neither overwrites nor frees callers' memory.
    fn hung(&self) -> Option<Error>;
}

/// How many states of its work a queue can remember, each under a number: see [`Queue::mark`].
pub const SLOTS: usize = 16;

/// An ordered stream of work on one device. A wait that takes longer than its limit ends with an error, and the device is
/// [hung](Gpu::hung).
pub trait Queue: Send {
    /// Kernels ready to launch, made by [`Gpu::kernels`].
    type Kernels;
    /// Recorded steps, which are submitted at once.
    type Recording: Send;
    /// Submits steps; returns before they are done. After an error nothing that was submitted is under way, unless the device is
    /// [hung](Gpu::hung).
    fn submit(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<(), Error>;
    /// Prepares steps to be submitted again and again at little cost.
    fn record(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<Self::Recording, Error>;
    /// Submits recorded steps.
    fn replay(&mut self, recording: &Self::Recording) -> Result<(), Error>;
    /// Remembers under a number below [`SLOTS`] all that was submitted so far.
    fn mark(&mut self, slot: usize) -> Result<(), Error>;
    /// Waits until the steps that [`mark`](Queue::mark) remembered under that number are done, if there are any.
    fn wait_for(&mut self, slot: usize) -> Result<(), Error>;
    /// Submits steps that [`Queue::wait`] does not wait for. Steps that are submitted later wait for them, and then report their errors.
    fn follow(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<(), Error>;
    /// Sets whether launches that fill the device take turns with such launches of other queues: while the launches of one queue run, so do the
    /// copies of others. Initially they take turns.
    fn takes_turns(&mut self, takes_turns: bool);
    /// Sets how long waits may take from now on, those of a drop included. The initial limit is [`WaitLimit::default`]. A wait without a limit
    /// ends when the device is done, even if other waits have given the device up.
    fn limit(&mut self, limit: WaitLimit);
    /// Waits until all submitted and replayed steps are done. Returns the device's times, as far as they were measured: before the first launch,
    /// during the launches, and after the last one. A recording has one time for all of its steps.
    fn wait(&mut self) -> Result<Option<Timing>, Error>;
}

/// Wraps a driver's GPUs: tests put faults between programs and GPUs in this way.
#[doc(hidden)]
pub trait Wrapper {
    /// The wrapped GPU.
    type Gpu<G: Gpu>: Gpu;
    /// Wraps a GPU.
    fn wrap<G: Gpu>(&self, gpu: Arc<G>) -> Self::Gpu<G>;
}

/// Writes words as the device reads them.
pub(crate) fn put_words(to: &mut [u8], words: impl IntoIterator<Item = u32>) {
    for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// Bytes that one thread copies or wipes at a time.
pub(crate) const BYTES_OF_A_THREAD: usize = 64 << 10;

/// Overwrites host memory with zeros, word by word: `zeroize` takes a store for each element, and programs hold megabytes.
pub(crate) fn wipe(bytes: &mut [u8]) {
    let (head, words, tail) = bytemuck::pod_align_to_mut::<u8, u64>(bytes);
    head.zeroize();
    words.zeroize();
    tail.zeroize();
}
