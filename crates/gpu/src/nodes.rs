//! What the programs of one device share: cached nodes of keys in device memory, kept between batches, and turns.

use crate::gpu::Gpu;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nodes by the identity of their key, the one that was used last at the end.
pub(crate) struct NodesCache<G: Gpu> {
    budget: u64,
    held: Mutex<Vec<Held<G>>>,
    sending: Mutex<()>,
}

struct Held<G: Gpu> {
    id: u64,
    bytes: u64,
    nodes: Arc<G::Memory>,
}

impl<G: Gpu> NodesCache<G> {
    pub(crate) fn new(budget: u64) -> NodesCache<G> {
        NodesCache { budget, held: Mutex::default(), sending: Mutex::default() }
    }

    /// The link to the device for one program alone: sharing it, two would begin to compute late and together.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes of that identity and size.
    pub(crate) fn get(&self, id: u64, bytes: u64) -> Option<Arc<G::Memory>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|one| (one.id, one.bytes) == (id, bytes) && id != 0)?;
        let one = held.remove(at);
        let nodes = one.nodes.clone();
        held.push(one);
        Some(nodes)
    }

    pub(crate) fn remove(&self, id: u64) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.id != id);
    }

    /// Gives back what no program uses now; whether there was any.
    pub(crate) fn drop_unused(&self) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = held.len();
        held.retain(|one| Arc::strong_count(&one.nodes) > 1);
        held.len() < before
    }

    /// Keeps nodes, if they have an identity and fit the budget; those used longest ago make way.
    pub(crate) fn put(&self, id: u64, nodes: G::Memory, bytes: u64) -> Arc<G::Memory> {
        let nodes = Arc::new(nodes);
        if id != 0 && bytes <= self.budget {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            while held.iter().map(|one| one.bytes).sum::<u64>() + bytes > self.budget {
                held.remove(0);
            }
            held.push(Held { id, bytes, nodes: nodes.clone() });
        }
        nodes
    }
}
