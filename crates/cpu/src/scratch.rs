//! Working memory, which is allocated once and wiped when it is freed.

use hypergrove_lanes::AdrsWords;
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroize;

/// The buffers of one thread at work. They grow to the size that a program needs at their first use, and stay.
#[derive(Default)]
pub(crate) struct Scratch {
    pub adrs: Vec<AdrsWords>,
    pub key_of: Vec<u32>,
    pub chains: Vec<u32>,
    pub digits: Vec<u8>,
    pub order: Vec<u32>,
    /// Values of n bytes: of chains, or pairs of siblings; nodes of a level and of the level above it, and messages. Some are secret.
    pub values: Vec<u8>,
    pub nodes: Vec<u8>,
    pub parents: Vec<u8>,
    pub messages: Vec<u8>,
    /// All values of revealed leaves' chains, which are secret.
    pub traces: Vec<u8>,
    /// The chunks' tops, from which the upper levels of trees start.
    pub tops: Vec<u8>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for secret in [&mut self.values, &mut self.nodes, &mut self.parents, &mut self.traces] {
            secret.zeroize();
        }
    }
}

/// `buffer[..len]`, grown if necessary. If it does not grow, old values stay in it.
pub(crate) fn sized<T: Copy + Default + Zeroize>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        // Growing in place could leave a copy of secrets behind.
        buffer.zeroize();
        *buffer = vec![T::default(); len];
    }
    &mut buffer[..len]
}

/// The scratch of all threads of a program.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Scratch>>);

impl Pool {
    /// Calls `work` with a scratch that no other thread has meanwhile.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.lock().pop().unwrap_or_default();
        let out = work(&mut scratch);
        self.lock().push(scratch);
        out
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pool {
        /// Bytes of all scratch together.
        pub(crate) fn bytes(&self) -> usize {
            let bytes = |s: &Scratch| {
                let nodes = [&s.digits, &s.values, &s.nodes, &s.parents, &s.messages, &s.traces, &s.tops];
                let words = 4 * (s.key_of.capacity() + s.chains.capacity() + s.order.capacity());
                32 * s.adrs.capacity() + words + nodes.iter().map(|buffer| buffer.capacity()).sum::<usize>()
            };
            self.lock().iter().map(bytes).sum()
        }
    }
}
