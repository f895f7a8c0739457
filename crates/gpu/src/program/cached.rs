//! Keys whose top layers are cached: nodes and WOTS+ signatures in device memory, and how they are made.

use super::launches::{Grown, PassSteps};
use super::layout::{Layout, flag_words};
use super::{GpuProgram, Pass, PassJobs};
use crate::gpu::{Gpu, Launch, Queue, Step, put_words};
use crate::nodes::{self, Nodes};
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Batch, Error, Key, Timing};
use hypergrove_fips205::plan::cache_bytes;
use hypergrove_kernels::JOB_WORDS;
use hypergrove_kernels::arguments::{
    Arguments, Destinations, Layers, ReadCached, Roots, SignChains, StoreSignatures, Trees,
};
use std::sync::Arc;

/// Passes, at most, for storing signatures: a program of few jobs leaves storing to another program.
const MOST_PASSES: usize = 1024;

/// References that hold the nodes of a batch's keys in device memory, the nodes' addresses, and whether WOTS+ signatures are stored behind all of
/// them.
type HeldNodes<G> = (Vec<Arc<Nodes<G>>>, Vec<u64>, bool);

impl<G: Gpu> GpuProgram<G> {
    /// Bytes of a key's cached nodes.
    pub(super) fn node_bytes(&self) -> usize {
        cache_bytes(self.p(), self.shape.cached).expect("checked when the plan was made")
    }

    /// Holds the nodes of the batch's keys in device memory, if layers are cached, and finds their addresses.
    pub(super) fn nodes_of_keys(&mut self, batch: &Batch<'_>) -> Result<HeldNodes<G>, Error> {
        let mut held = Vec::new();
        if self.shape.cached > 0 {
            let mut signatures = vec![0; batch.keys.len()];
            batch.key_of.iter().for_each(|key| signatures[*key as usize] += 1);
            // A batch holds the nodes of all its keys at once.
            for (key, signatures) in batch.keys.iter().zip(signatures) {
                held.push(self.nodes_of(key, signatures, batch.keys.len())?);
            }
        }
        let addresses = held.iter().map(|nodes| G::address(&nodes.memory)).collect();
        let stored = !held.is_empty() && self.shape.policy.stored > 0 && held.iter().all(|nodes| nodes.stored);
        Ok((held, addresses, stored))
    }

    /// The nodes of a key, under which a batch of `keys` keys wants `signatures` signatures. They are uploaded, unless they are there from an
    /// earlier batch.
    fn nodes_of(&mut self, key: &Key<'_>, signatures: u64, keys: usize) -> Result<Arc<Nodes<G>>, Error> {
        let (cache, id) = (self.cache.clone(), key.cached_id);
        let is_enough = |program: &Self, nodes: &Nodes<G>, all| nodes.stored || !program.stores(all, keys);
        if let Some((nodes, all)) = cache.get(id, key.cached_nodes.len(), signatures)
            && is_enough(self, &nodes, all)
        {
            return Ok(nodes);
        }
        let _turn = lock(&cache.making);
        // Another program may have made the nodes meanwhile.
        let found = cache.get(id, key.cached_nodes.len(), 0);
        let all = found.as_ref().map_or(signatures, |(_, all)| *all);
        if let Some((nodes, all)) = &found
            && is_enough(self, nodes, *all)
        {
            return Ok(nodes.clone());
        }
        if id != 0 && self.stores(all, keys) {
            match self.make_nodes(key, true) {
                // Without memory for stored signatures, signing does without them.
                Err(Error::OutOfMemory { .. }) => {}
                made => return Ok(cache.put(id, made?, all)),
            }
        }
        match found {
            Some((nodes, _)) => Ok(nodes),
            None => Ok(cache.put(id, self.make_nodes(key, false)?, all)),
        }
    }

    /// Whether to store a key's WOTS+ signatures of cached roots, after batches have wanted so many signatures under it. They are stored when
    /// making them has cost as much as storing would: so the total is never twice the least possible cost. There must also be room for the
    /// stored signatures of all keys of the batch, which uses those of all keys or none.
    fn stores(&self, signatures: u64, keys: usize) -> bool {
        let (p, cached) = (self.p(), self.shape.cached);
        let rows = nodes::rows(p, cached);
        let can = rows > 0 && self.cache.fits(keys * nodes::bytes_with_rows(p, cached, self.node_bytes()));
        can && match self.shape.policy.stored {
            0 => false,
            1 => rows.div_ceil(self.layout.jobs) <= MOST_PASSES && signatures as usize * (cached - 1) >= rows,
            _ => true,
        }
    }

    /// Uploads a key's nodes into new device memory. With `stored`, makes and stores signatures behind them.
    fn make_nodes(&mut self, key: &Key<'_>, stored: bool) -> Result<Nodes<G>, Error> {
        let Layout { output, ring, .. } = self.layout;
        let staging = if ring.host_bytes > output.host_bytes { ring } else { output };
        let nodes = key.cached_nodes.len();
        let bytes = if stored { nodes::bytes_with_rows(self.p(), self.shape.cached, nodes) } else { nodes };
        let memory = match self.gpu.alloc(bytes) {
            Err(Error::OutOfMemory { .. }) if !stored && self.cache.drop_unused() => self.gpu.alloc(bytes)?,
            memory => memory?,
        };
        for (i, part) in key.cached_nodes.chunks(staging.host_bytes).enumerate() {
            self.bytes(staging)[..part.len()].copy_from_slice(part);
            let to = G::address(&memory) + (i * staging.host_bytes) as u64;
            let step = Step::Upload { to, from: self.on_host(staging), bytes: part.len() };
            self.queue.submit(&self.kernels, &[step])?;
            self.queue.wait()?;
        }
        if stored {
            self.store(key, G::address(&memory))?;
        }
        Ok(Nodes { memory, of_nodes: nodes, bytes, stored })
    }

    /// Signs the roots of all cached trees, one in each job, checks the signatures, and stores them behind the key's nodes.
    fn store(&mut self, key: &Key<'_>, nodes: u64) -> Result<(), Error> {
        let (p, l) = (self.p(), self.layout);
        let batch = Batch { keys: std::slice::from_ref(key), key_of: &[0], positions: &[], signatures: &[] };
        for layer in nodes::stored_layers(p, self.shape.cached) {
            let leaves = nodes::leaves(p, layer);
            for first in (0..leaves).step_by(l.jobs) {
                let count = l.jobs.min(leaves - first);
                self.put_keys(&batch, &PassJobs::of(0..1), &[nodes]);
                // A job's position is the tree below its leaf. The position's own leaf and FORS indices do not matter.
                let row = (JOB_WORDS + p.k) * 4;
                for (to, leaf) in self.bytes(l.positions).chunks_exact_mut(row).zip(first..first + count) {
                    let tree = (leaf as u64) << (p.hp * (layer - 1));
                    put_words(to, [0, (tree >> 32) as u32, tree as u32, 0]);
                }
                self.go_alone(Pass { jobs: count, keys: 1, ..Pass::default() }, |steps| steps.store_steps(layer))?;
                let flags = self.view(l.flag, flag_words(p, count) * 4);
                let agrees = |job: usize| flags[4 * (1 + job * p.d + layer)..][..4] == 1u32.to_le_bytes();
                if !(0..count).all(agrees) {
                    self.forget();
                    return Err(self.inconsistent());
                }
            }
        }
        Ok(())
    }

    pub(super) fn cache(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        let (p, mut timing) = (self.p(), Timing::default());
        let tree = ((2 << p.hp) - 1) * p.n;
        for (job, mut rest) in out.chunks_exact_mut(self.plan.out_bytes()).enumerate() {
            for layer in (0..p.d).rev().take(self.plan.cached_layers) {
                let trees = 1usize << (p.hp * (p.d - 1 - layer));
                for first in (0..trees).step_by(self.layout.jobs) {
                    let count = self.layout.jobs.min(trees - first);
                    self.put_keys(batch, &PassJobs::of(job..job + 1), &[]);
                    let pass = Pass { jobs: count, keys: 1, ..Pass::default() };
                    timing.execute += self.go_alone(pass, |steps| steps.cache_steps(layer, first))?.execute;
                    let to = rest.split_off_mut(..count * tree).expect("a place for each tree");
                    let part = self.layout.output;
                    to.copy_from_slice(&self.bytes(part)[..count * tree]);
                }
            }
        }
        Ok(timing)
    }
}

impl<G: Gpu> PassSteps<'_, G> {
    fn store_steps(&self, layer: usize) -> Vec<Step> {
        let (p, l, jobs) = (self.p(), &self.layout, self.pass.jobs);
        let flag_bytes = flag_words(p, jobs) * 4;
        let mut steps = self.keys();
        steps.push(self.upload(l.positions, jobs * (JOB_WORDS + p.k) * 4));
        steps.push(Step::Zero { at: self.device(l.flag), bytes: flag_bytes });
        let (roots, signatures) = (self.device(l.roots), self.signatures());
        // The root that is signed, and the root of the layer itself.
        let both = Layers { first: layer as u32 - 1, count: 2 };
        let read = ReadCached { jobs: self.jobs(), layers: both, roots, signatures };
        let layers = Layers { first: layer as u32, count: 1 };
        let sign = SignChains { jobs: self.jobs(), layers, units: jobs as u32, roots, signatures };
        let mut launches = vec![
            self.flat([1, jobs, 2 * jobs], 2 * jobs, read),
            self.flat([1, jobs, jobs], jobs * p.len(), sign),
            // The roots are read once more, so that signatures are checked against another reading.
            self.flat([1, jobs, 2 * jobs], 2 * jobs, read),
        ];
        launches.extend(self.climb(jobs, layers, true));
        let store = StoreSignatures { jobs: self.jobs(), layers, rows_at: self.rows_at(), signatures };
        launches.push(self.rows(jobs, store));
        steps.extend(launches.into_iter().map(Step::Launch));
        steps.push(self.download(l.flag, flag_bytes));
        steps
    }

    /// Steps that compute all nodes of trees of a layer, from tree `first` on, one in place of each job.
    fn cache_steps(&self, layer: usize, first: usize) -> Vec<Step> {
        let (p, l, trees) = (self.p(), &self.layout, self.pass.jobs);
        let mut steps = self.keys();
        let to = Destinations {
            nodes: self.device(l.nodes[0]),
            roots: Roots::Bytes(self.device(l.roots)),
            paths: None,
            all: Some(self.device(l.output)),
        };
        let of = Trees::OfLayer { layer: layer as u32, first: first as u32 };
        self.xmss(trees, Grown { trees: of, kept: None, to }, &mut steps);
        steps.push(self.download(l.output, trees * ((2 << p.hp) - 1) * p.n));
        steps
    }

    /// Where the rows of stored signatures begin behind the nodes, in units of 64 words.
    pub(super) fn rows_at(&self) -> u32 {
        nodes::rows_at(self.node_bytes()) as u32
    }

    /// A launch with a block for each row: it stores, fetches or compares signatures.
    pub(super) fn rows<A: Arguments>(&self, units: usize, arguments: A) -> Launch {
        let (units, threads) = (units as u32, self.shape.policy.block(A::KERNEL));
        let (blocks, threads) = if self.shape.policy.levels == 0 { (1, 1) } else { (units, threads) };
        Launch { kernel: A::KERNEL, blocks, threads, args: arguments.args(units) }
    }
}
