//! Memory that an engine gives to callers for rows, and to chunks for copies.

use super::permits::lock;
use super::{Memory, Scheduler, Worker, zeros};
use crate::Error;
use std::ops::{Deref, DerefMut};

/// Bytes of copies from which on memory that a device reaches is worth taking.
const WORTH_REACHING: usize = 1 << 20;

/// Memory of chunks that a device reaches comes in multiples of this.
const STEP: usize = 16 << 20;

/// How many blocks of chunk memory are kept, as many as one or two devices have chunks in flight, and the most bytes of each.
const KEPT: (usize, usize) = (5, 128 << 20);

impl Scheduler {
    /// Memory for rows; see [`Memory`]. Devices that are initialised lazily are initialised now.
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        self.others();
        let workers: Vec<&Worker> = self.live().filter(|worker| worker.has_memory()).collect();
        self.memory.get(&workers, bytes, self.memory_budget())
    }

    /// Memory for at least so many bytes of copies that a device works on.
    pub fn chunk_memory(&self, worker: &Worker, bytes: usize) -> Result<ChunkMemory<'_>, Error> {
        let of = |reached, ordinary| ChunkMemory { scheduler: self, reached, ordinary };
        if bytes >= WORTH_REACHING && worker.has_memory() {
            let mut idle = lock(&self.chunk_memory);
            // Takes the smallest block that fits. If none fits, the largest makes way for the new one.
            let fitting = idle.partition_point(|memory| memory.len() < bytes);
            let kept = (fitting < idle.len()).then(|| idle.remove(fitting));
            let too_small = if kept.is_none() { idle.pop() } else { None };
            drop(idle);
            drop(too_small);
            // There may be no more memory that a device reaches.
            let new = || self.memory(bytes.next_multiple_of(STEP)).ok().filter(|memory| !memory.devices().is_empty());
            if let Some(memory) = kept.or_else(new) {
                return Ok(of(Some(memory), Vec::new()));
            }
        }
        zeros(bytes).map(|ordinary| of(None, ordinary))
    }
}

/// Memory for the copies of a chunk, which may still hold bytes of an earlier chunk. On drop, memory that a device reaches is kept for other chunks
/// and calls of the engine: getting such memory takes longer than copying its contents.
pub struct ChunkMemory<'s> {
    scheduler: &'s Scheduler,
    /// Memory that a device reads by itself, or else ordinary memory.
    reached: Option<Memory>,
    ordinary: Vec<u8>,
}

impl ChunkMemory<'_> {
    /// Whether a device reads the memory by itself.
    pub fn is_reached(&self) -> bool {
        self.reached.is_some()
    }
}

impl Deref for ChunkMemory<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.reached.as_deref().unwrap_or(&self.ordinary)
    }
}

impl DerefMut for ChunkMemory<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.reached.as_deref_mut().unwrap_or(&mut self.ordinary)
    }
}

impl Drop for ChunkMemory<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.reached.take()
            && memory.len() <= KEPT.1
        {
            let mut idle = lock(&self.scheduler.chunk_memory);
            let place = idle.partition_point(|other| other.len() < memory.len());
            idle.insert(place, memory);
            // The largest blocks stay.
            let dropped = (idle.len() > KEPT.0).then(|| idle.remove(0));
            drop(idle);
            drop(dropped);
        }
    }
}
