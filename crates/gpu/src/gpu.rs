//! What programs need of a GPU: a driver's crate has the real ones; tests have one that runs the same kernels on the host.

/// With what it limits.
pub(crate) use crate::wait::WaitLimit;
use hypergrove_engine::{Error, Policy, ReachableMemory, Timing};
use hypergrove_fips205::plan::Rates;
use hypergrove_kernels::{Args, Config, Kernel};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroize;

/// A device as its driver describes it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `cuda:0`, as errors name it.
    pub id: String,
    /// What the maker calls it.
    pub name: String,
    /// Compute capability and driver version.
    pub detail: String,
    /// Compute units (SMs of CUDA).
    pub compute_units: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Cycles a second, at most; 0 if it is not known.
    pub clock: u64,
    /// Compressions and permutations a second that its arithmetic allows, if that is known.
    pub rates: Option<Rates>,
    /// Whether memory corrects errors.
    pub ecc: bool,
    /// Bytes that one allocation may have.
    pub largest: u64,
    /// Whether blocks should have the threads that their kernel was made ready for: any other number is compiled anew.
    pub fixed_blocks: bool,
    /// Policy axes that mean nothing to it.
    pub without: &'static [&'static str],
    /// Values for other axes that are better here than the defaults.
    pub defaults: &'static [(&'static str, u32)],
    /// What tells it from all other GPUs, whatever driver it is reached by.
    pub uuid: Option<[u8; 16]>,
    /// Whether it is a CPU under a GPU's driver: nothing to choose unless it is asked for.
    pub is_cpu: bool,
    /// Iterations that all loops of a thread may have together; `usize::MAX` without a limit.
    pub most_iterations: usize,
}

impl Facts {
    /// Whether a policy may name an axis.
    pub(crate) fn has(&self, axis: &str) -> bool {
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
    /// What runs.
    pub kernel: Kernel,
    /// Blocks of threads.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The kernel's arguments.
    pub args: Args,
}

/// What a queue does, in order. Addresses are the device's; a host range is a part of a [`Gpu::HostMemory`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Host memory to device memory.
    Upload {
        /// Device address.
        to: u64,
        /// Host address.
        from: u64,
        /// How many.
        bytes: usize,
    },
    /// Some columns of rows in host memory to the same columns of rows in device memory, which have the same size.
    UploadColumns {
        /// Device address.
        to: u64,
        /// Host address.
        from: u64,
        /// Bytes of each row that are copied.
        width: usize,
        /// Bytes from one row to the next.
        pitch: usize,
        /// How many.
        rows: usize,
    },
    /// Device memory to host memory.
    Download {
        /// Host address.
        to: u64,
        /// Device address.
        from: u64,
        /// How many.
        bytes: usize,
    },
    /// Zeros.
    Zero {
        /// Device address.
        at: u64,
        /// How many.
        bytes: usize,
    },
    /// On the main stream.
    Launch(Launch),
    /// On the side stream, which runs concurrently with the main stream from `Fork` to `Join`.
    Beside(Launch),
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
    /// From the submission of a step that copies to or from some of its bytes until that step is waited for, those bytes are
    /// the device's: no reference to them may exist, since the device writes without the compiler's knowledge. References
    /// to other bytes of the same memory may. No function gives a reference to more than it is asked for.
    type HostMemory: Send + Sync;
    /// Kernels ready to launch.
    type Kernels: Send + Sync;
    /// An ordered stream of work, with a second stream that runs concurrently.
    type Queue: Queue<Kernels = Self::Kernels>;

    /// What its driver says of it.
    fn facts(&self) -> &Facts;
    /// Bytes of device memory that are free now.
    fn free(&self) -> Result<u64, Error>;
    /// Uninitialised memory. `Error::OutOfMemory` if there is not enough.
    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Self::Memory, Error>;
    /// Its address on the device.
    fn address(memory: &Self::Memory) -> u64;
    /// Zeroed host memory.
    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<Self::HostMemory, Error>;
    /// The same for host memory.
    fn host_address(memory: &Self::HostMemory) -> u64;
    /// Some bytes to change, none of which is the device's now (see [`Gpu::HostMemory`]). Panics beyond the end.
    fn host_bytes(memory: &mut Self::HostMemory, range: Range<usize>) -> &mut [u8];
    /// Some bytes to read, none of which a step under way writes. Panics beyond the end.
    fn host_view(memory: &Self::HostMemory, range: Range<usize>) -> &[u8];
    /// Copies bytes to an offset, none of which is the device's now or used by another thread: several threads may fill
    /// different bytes of the memory. Panics beyond the end.
    fn host_write(memory: &Self::HostMemory, at: usize, bytes: &[u8]);
    /// Zeroed memory of the host that every device of the driver reaches at its address. `None` where there is no such memory.
    ///
    /// Whoever calls an engine owns it and has references to it, also while a device copies from it or to it: he has lent
    /// the engine what is copied from, and lent it alone what is copied to.
    fn alloc_reached(self: &Arc<Self>, bytes: usize) -> Option<Result<Box<dyn ReachableMemory>, Error>>;
    /// Whether all of these bytes of the host lie in such memory.
    fn reaches(&self, at: u64, bytes: usize) -> bool;
    /// Compiles what is neither loaded nor in the cache. With each kernel come the threads that most of its blocks will have.
    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<Self::Kernels, Error>;
    /// Whether doubles are multiplied half as fast as words, and not a 32nd part.
    fn has_fast_doubles(&self) -> bool {
        false
    }
    /// A stream of its own.
    fn queue(self: &Arc<Self>) -> Result<Self::Queue, Error>;
    /// Why the device was given up, if a wait for it took longer than its limit. The device may still read and write all that it was
    /// given: the driver frees none of its memory. Memory of the host that steps of a failed wait copy stays the device's: no
    /// reference to it may exist any more. The driver overwrites [`Gpu::HostMemory`] when it is dropped, and callers' memory stays.
    fn hung(&self) -> Option<Error>;
}

/// Numbers that a queue remembers states of its work under.
pub const SLOTS: usize = 16;

/// An ordered stream of work on one device. A wait that takes longer than its limit ends with an error, and the device is
/// [hung](Gpu::hung).
pub trait Queue: Send {
    /// What [`Gpu::kernels`] gives.
    type Kernels;
    /// Steps that are submitted at once.
    type Recording: Send;
    /// Submits steps; returns before they are done. After an error nothing that was submitted is under way, unless the device is
    /// [hung](Gpu::hung).
    fn submit(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<(), Error>;
    /// Prepares steps to be submitted again and again at little cost.
    fn record(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<Self::Recording, Error>;
    /// Submits what was recorded.
    fn replay(&mut self, recording: &Self::Recording) -> Result<(), Error>;
    /// Remembers under a number below [`SLOTS`] all that was submitted so far.
    fn mark(&mut self, slot: usize) -> Result<(), Error>;
    /// Waits until what was remembered under that number is done, if anything was.
    fn wait_for(&mut self, slot: usize) -> Result<(), Error>;
    /// Submits steps that [`Queue::wait`] does not wait for; what is submitted later does. An error of theirs shows then.
    fn follow(&mut self, kernels: &Self::Kernels, steps: &[Step]) -> Result<(), Error>;
    /// Sets whether launches that fill the device take turns with those of other queues that do: while one queue's run, the copies of others
    /// do. At first they take turns.
    fn takes_turns(&mut self, takes_turns: bool);
    /// Sets how long waits may take from now on, those of a drop included. At first it is [`WaitLimit::default`]. A wait without a limit ends
    /// when the device is done, also when others have given the device up.
    fn limit(&mut self, limit: WaitLimit);
    /// Waits until all is done that was submitted or replayed. The device's times for it, as far as they were measured:
    /// up to the first launch, launches, and after the last; a recording's as a whole.
    fn wait(&mut self) -> Result<Option<Timing>, Error>;
}

/// What puts something between programs and a driver's GPUs: faults, for tests.
#[doc(hidden)]
pub trait Wrapper {
    /// What a GPU becomes.
    type Gpu<G: Gpu>: Gpu;
    /// Makes it of one.
    fn wrap<G: Gpu>(&self, gpu: Arc<G>) -> Self::Gpu<G>;
}

/// Overwrites memory of the host. Word by word: `zeroize` takes a store for each element, and what programs hold is megabytes.
pub(crate) fn wipe(bytes: &mut [u8]) {
    let (head, words, tail) = bytemuck::pod_align_to_mut::<u8, u64>(bytes);
    head.zeroize();
    words.zeroize();
    tail.zeroize();
}
