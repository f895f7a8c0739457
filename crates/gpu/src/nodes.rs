//! The programs of one device share the cached nodes of keys, which stay in device memory between batches. Here they also take turns at the
//! link to the device, and at making nodes.
//!
//! Behind a key's nodes there may be its WOTS+ signatures of cached trees' roots. The leaves of all cached layers but the lowest sign them:
//! one row for each leaf, the top layer first. A row is the signature's len·n bytes and a word, the sum of these bytes and of the
//! authentication path (`stored.k`).

use crate::gpu::Gpu;
use hypergrove_engine::scheduler::lock;
use hypergrove_fips205::Params;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The layers whose signatures are stored: all but the lowest of the top `cached` layers.
pub(crate) fn stored_layers(p: &Params, cached: usize) -> Range<usize> {
    (p.d + 1 - cached).min(p.d)..p.d
}

/// Leaves of all trees of a layer.
pub(crate) fn leaves(p: &Params, layer: usize) -> usize {
    1 << (p.hp * (p.d - layer))
}

/// Rows of stored signatures if the top `cached` layers are cached.
pub(crate) fn rows(p: &Params, cached: usize) -> usize {
    stored_layers(p, cached).map(|layer| leaves(p, layer)).sum()
}

/// Where the rows begin behind so many bytes of nodes, in units of 256 bytes.
pub(crate) fn rows_at(nodes: usize) -> usize {
    nodes.div_ceil(256)
}

/// Bytes of nodes and rows together.
pub(crate) fn bytes_with_rows(p: &Params, cached: usize, nodes: usize) -> usize {
    rows_at(nodes) * 256 + rows(p, cached) * (p.len() * p.n + 4)
}

/// Nodes of a key in device memory.
pub(crate) struct Nodes<G: Gpu> {
    pub(crate) memory: G::Memory,
    /// Bytes of the nodes alone, and of the nodes with the rows.
    pub(crate) of_nodes: usize,
    pub(crate) bytes: usize,
    /// Whether WOTS+ signatures lie behind the nodes.
    pub(crate) stored: bool,
}

/// Keys' nodes by the key's identity. The nodes that were used last are at the end.
pub(crate) struct NodesCache<G: Gpu> {
    budget: u64,
    held: Mutex<Vec<CacheEntry<G>>>,
    /// Lets one program make nodes at a time: another program may want the same nodes.
    pub(crate) making: Mutex<()>,
    /// Gives one program the link to the device alone. If two programs shared the link, both would begin to compute late, and at the same time.
    pub(crate) sending: Mutex<()>,
}

struct CacheEntry<G: Gpu> {
    id: u64,
    /// Signatures under this key that batches have wanted so far.
    signatures: u64,
    nodes: Arc<Nodes<G>>,
}

impl<G: Gpu> NodesCache<G> {
    pub(crate) fn new(budget: u64) -> NodesCache<G> {
        NodesCache { budget, held: Mutex::default(), making: Mutex::default(), sending: Mutex::default() }
    }

    /// Whether the budget allows so many bytes.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes as u64 <= self.budget
    }

    /// Nodes of that identity and size, if they are cached, and how many signatures batches have wanted with them, `more` included.
    pub(crate) fn get(&self, id: u64, bytes: usize, more: u64) -> Option<(Arc<Nodes<G>>, u64)> {
        let mut held = lock(&self.held);
        let at = held.iter().position(|one| one.id == id && one.nodes.of_nodes == bytes && id != 0)?;
        let mut one = held.remove(at);
        one.signatures += more;
        let found = (one.nodes.clone(), one.signatures);
        held.push(one);
        Some(found)
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.held).retain(|one| one.id != id);
    }

    /// Frees the nodes that no program uses now. Returns whether there were any.
    pub(crate) fn drop_unused(&self) -> bool {
        let mut held = lock(&self.held);
        let before = held.len();
        held.retain(|one| Arc::strong_count(&one.nodes) > 1);
        held.len() < before
    }

    /// Keeps nodes that have an identity and fit the budget, instead of other nodes of that identity. Nodes that were used longest ago make way.
    pub(crate) fn put(&self, id: u64, nodes: Nodes<G>, signatures: u64) -> Arc<Nodes<G>> {
        let nodes = Arc::new(nodes);
        if id != 0 && self.fits(nodes.bytes) {
            let mut held = lock(&self.held);
            held.retain(|one| one.id != id);
            while !self.fits(held.iter().map(|one| one.nodes.bytes).sum::<usize>() + nodes.bytes) {
                held.remove(0);
            }
            held.push(CacheEntry { id, signatures, nodes: nodes.clone() });
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_fips205::{SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S};

    #[test]
    fn rows_are_those_of_leaves_that_sign_cached_roots() {
        let (f, s) = (&SLH_DSA_SHA2_128F, &SLH_DSA_SHA2_128S);
        assert_eq!([0, 1, 2, 3].map(|cached| rows(f, cached)), [0, 0, 8, 8 + 64]);
        assert_eq!(stored_layers(f, 3), 20..22);
        assert_eq!(rows(s, 2), 512);
        assert_eq!(bytes_with_rows(f, 2, 9 * 15 * 16), 2304 + 8 * (35 * 16 + 4));
    }
}
