//! Memory that an engine's devices reach by themselves.

use super::Worker;
use super::permits::lock;
use crate::{Error, ReachableMemory};
use std::fmt;
use std::hint::black_box;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use zeroize::Zeroize;

/// An idle block serves a request if the block is at most so many times as large as the request.
const SHARE_OF_A_BLOCK: usize = 2;

/// Memory for rows, zeroed at first. The devices that [`devices`](Memory::devices) names copy from it and to it by themselves, without
/// a thread of the CPU. It does not count against the memory budget.
///
/// On drop, it is wiped, because it may hold keys, and kept for the next [`Engine::memory`](super::Scheduler::memory): getting such memory
/// takes as long as copying it several times. It may outlive its engine.
pub struct Memory {
    /// Memory that the devices of the named backend reach; `None` if no device reaches memory of the host.
    reachable: Option<(&'static str, Box<dyn ReachableMemory>)>,
    /// Ordinary memory, if there is no other.
    ordinary: Vec<u8>,
    /// Bytes that were asked for.
    bytes: usize,
    devices: Vec<String>,
    pool: Weak<Pool>,
}

/// The bytes of memory that callers have, and the memory that is kept for them.
#[derive(Default)]
pub(super) struct Pool {
    /// Memory that is kept, with the name of its backend.
    idle: Mutex<Vec<(&'static str, Box<dyn ReachableMemory>)>>,
    in_use: AtomicU64,
    /// Bytes that may be kept.
    most: AtomicU64,
}

impl Pool {
    /// Takes the smallest idle block of a backend that serves a request, and that `reaches` accepts.
    fn take(
        &self,
        backend: &str,
        bytes: usize,
        reaches: impl Fn(&dyn ReachableMemory) -> bool,
    ) -> Option<Box<dyn ReachableMemory>> {
        let mut idle = lock(&self.idle);
        let serves = |(of, block): &(&str, Box<dyn ReachableMemory>)| {
            let fits = (bytes..=bytes.saturating_mul(SHARE_OF_A_BLOCK)).contains(&block.bytes().len());
            *of == backend && fits && reaches(&**block)
        };
        let fitting = idle.iter().enumerate().filter(|(_, it)| serves(it));
        let at = fitting.min_by_key(|(_, (_, block))| block.bytes().len()).map(|(at, _)| at)?;
        Some(idle.swap_remove(at).1)
    }

    /// Memory that the first of these devices reaches for which there is any, or else ordinary memory. Keeps no more than `most` bytes afterwards.
    pub(super) fn get(self: &Arc<Pool>, workers: &[&Worker], bytes: usize, most: u64) -> Result<Memory, Error> {
        let (mut reachable, mut devices) = (None, Vec::new());
        for worker in workers {
            let backend = worker.programs.backend();
            let Some(memory) = backend.host_memory() else { continue };
            // Each worker may have its backend in a wrapper of its own.
            let of_backend = |other: &&&Worker| other.programs.backend().name() == backend.name();
            let taken = self.take(backend.name(), bytes, |block| memory.reaches(worker.device(), block));
            let made = match taken.map_or_else(|| memory.allocate(worker.device(), bytes), Ok) {
                Err(Error::Unsupported { .. }) => continue,
                made => made?,
            };
            let reaching = workers.iter().filter(of_backend).filter(|other| memory.reaches(other.device(), &*made));
            devices = reaching.map(|worker| worker.device().id()).collect();
            reachable = Some((backend.name(), made));
            break;
        }
        let ordinary = zeros(if reachable.is_none() { bytes } else { 0 })?;
        self.most.store(most, Relaxed);
        self.in_use.fetch_add(bytes as u64, Relaxed);
        Ok(Memory { reachable, ordinary, bytes, devices, pool: Arc::downgrade(self) })
    }

    fn idle_bytes(&self) -> u64 {
        lock(&self.idle).iter().map(|(_, block)| block.bytes().len() as u64).sum()
    }

    /// Bytes that callers have, and bytes that are kept.
    pub(super) fn stats(&self) -> (u64, u64) {
        (self.in_use.load(Relaxed), self.idle_bytes())
    }
}

/// An error if the operating system refuses so many bytes now. A caller's number may ask for any number of bytes, and an allocation that fails
/// ends the process.
pub(super) fn check_memory(bytes: u64) -> Result<(), Error> {
    let mut all = Vec::<u8>::new();
    let is_given = usize::try_from(bytes).is_ok_and(|bytes| all.try_reserve_exact(bytes).is_ok());
    // Otherwise the compiler would leave out an allocation that has no use.
    black_box(&mut all);
    if is_given { Ok(()) } else { Err(Error::no_memory(bytes)) }
}

/// Zeros, or an error if the operating system has no memory for them. No thread writes the zeros, because the system gives zeroed memory.
pub fn zeros(bytes: usize) -> Result<Vec<u8>, Error> {
    check_memory(bytes as u64)?;
    Ok(vec![0; bytes])
}

impl Memory {
    /// The devices that reach this memory, as [`Device::id`](crate::Device::id) names them. If there are none, it is ordinary memory.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.reachable.as_ref().map_or(&self.ordinary, |(_, block)| &block.bytes()[..self.bytes])
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.reachable {
            Some((_, block)) => &mut block.bytes_mut()[..self.bytes],
            None => &mut self.ordinary,
        }
    }
}

/// Shows the size and the devices, but no contents, which may be keys.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).field("devices", &self.devices).finish_non_exhaustive()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.ordinary.zeroize();
        if let Some((_, block)) = &mut self.reachable {
            // Others may look at the driver's memory, so no compiler leaves these stores out.
            block.bytes_mut()[..self.bytes].fill(0);
        }
        let Some(pool) = self.pool.upgrade() else { return };
        pool.in_use.fetch_sub(self.bytes as u64, Relaxed);
        if let Some((backend, block)) = self.reachable.take()
            && pool.idle_bytes() + block.bytes().len() as u64 <= pool.most.load(Relaxed)
        {
            lock(&pool.idle).push((backend, block));
        }
    }
}
