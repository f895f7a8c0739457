//! Recomputing PK.root from signatures, a group of them at a time: all their chains share lanes, sorted by length.

use crate::scratch::{Scratch, sized};
use crate::wots;
use hypergrove_engine::Batch;
use hypergrove_fips205::{Adrs, AdrsType, Params};
use hypergrove_lanes::{AdrsWords, KeyState, Keys, Steps, TweakableHash};
use std::ops::Range;

/// The signatures of a batch that are verified together, and what the plan needs of the batch.
pub(crate) struct Group<'a> {
    pub p: &'static Params,
    pub hash: &'a dyn TweakableHash,
    pub keys: &'a [KeyState],
    pub batch: &'a Batch<'a>,
    pub jobs: Range<usize>,
}

/// Intermediate values of one job, in the order of `Slot`: FORS roots, PK_FORS, XMSS roots.
pub(crate) struct Kept<'a> {
    p: &'static Params,
    bytes: &'a mut [u8],
}

impl<'a> Kept<'a> {
    pub(crate) const fn bytes(p: &Params) -> usize {
        (p.k + 1 + p.d) * p.n
    }
    pub(crate) fn new(p: &'static Params, bytes: &'a mut [u8]) -> Kept<'a> {
        Kept { p, bytes }
    }
    pub(crate) fn fors_roots(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.p.k * self.p.n]
    }
    pub(crate) fn fors_pk(&mut self) -> &mut [u8] {
        &mut self.bytes[self.p.k * self.p.n..][..self.p.n]
    }
    pub(crate) fn xmss_root(&mut self, layer: usize) -> &mut [u8] {
        &mut self.bytes[(self.p.k + 1 + layer) * self.p.n..][..self.p.n]
    }
}

impl Group<'_> {
    fn keys<'a>(&'a self, key_of: &'a mut Vec<u32>, per: usize) -> Keys<'a> {
        let of = &self.batch.key_of[self.jobs.clone()];
        if of.iter().all(|key| *key == of[0]) {
            return Keys::One(&self.keys[of[0] as usize]);
        }
        key_of.clear();
        key_of.extend(of.iter().flat_map(|key| std::iter::repeat_n(*key, per)));
        Keys::Of { keys: self.keys, of: key_of }
    }

    /// One level up for every node: the sibling from the signature, to the left or right as the index says.
    fn climb(&self, hash_level: HashLevel<'_>, per: usize, sibling: impl Fn(usize) -> (bool, AdrsWords, Range<usize>)) {
        let n = self.p.n;
        let HashLevel { adrs, key_of, pairs, nodes } = hash_level;
        adrs.clear();
        let pairs = sized(pairs, 2 * nodes.len());
        for (i, (pair, node)) in pairs.chunks_mut(2 * n).zip(nodes.chunks(n)).enumerate() {
            let (is_right, address, at) = sibling(i);
            let (left, right) = pair.split_at_mut(n);
            let auth = &self.batch.signatures[self.jobs.start + i / per][at];
            let (own, other) = if is_right { (right, left) } else { (left, right) };
            own.copy_from_slice(node);
            other.copy_from_slice(auth);
            adrs.push(address);
        }
        self.hash.t_l(self.keys(key_of, per), adrs, 2, pairs, nodes);
    }

    /// The roots, n bytes a job.
    pub(crate) fn roots(&self, scratch: &mut Scratch, roots: &mut [u8], kept: &mut [u8]) {
        let (p, n, jobs) = (self.p, self.p.n, self.jobs.len());
        let (first, len) = (self.jobs.start, p.len());
        let position = |job: usize| &self.batch.positions[first + job];
        let signature = |job: usize| self.batch.signatures[first + job];
        let kept_of = |kept: &mut [u8], job: usize, f: &mut dyn FnMut(&mut Kept<'_>)| {
            let each = Kept::bytes(p);
            f(&mut Kept::new(p, &mut kept[job * each..][..each]));
        };
        let Scratch { adrs, key_of, digits, order, wide, nodes, parents, messages, .. } = scratch;

        // FORS leaves from the revealed secrets, then the climb (FIPS 205, Algorithm 17).
        let fors = |job: usize, i: usize| {
            let at = position(job);
            let tree = Adrs::new(0, at.idx_tree, AdrsType::ForsTree).key_pair(at.idx_leaf);
            (tree, (i << p.a) as u32 + at.fors[i])
        };
        adrs.clear();
        let trees = sized(nodes, jobs * p.k * n);
        for (x, node) in trees.chunks_mut(n).enumerate() {
            let (job, i) = (x / p.k, x % p.k);
            let (tree, leaf) = fors(job, i);
            node.copy_from_slice(&signature(job)[p.fors_tree_range(i)][..n]);
            adrs.push(tree.node(0, leaf).0);
        }
        self.hash.f(self.keys(key_of, p.k), adrs, trees);
        for z in 0..p.a {
            let level = HashLevel { adrs, key_of, pairs: wide, nodes: trees };
            self.climb(level, p.k, |x| {
                let (tree, leaf) = fors(x / p.k, x % p.k);
                let at = p.fors_tree_range(x % p.k).start + (1 + z) * n;
                (leaf >> z & 1 == 1, tree.node(z as u32 + 1, leaf >> (z + 1)).0, at..at + n)
            });
        }
        let messages = sized(messages, jobs * n);
        adrs.clear();
        adrs.extend((0..jobs).map(|job| {
            let at = position(job);
            Adrs::new(0, at.idx_tree, AdrsType::ForsRoots).key_pair(at.idx_leaf).0
        }));
        self.hash.t_l(self.keys(key_of, 1), adrs, p.k, trees, messages);
        for (job, (roots, message)) in trees.chunks(p.k * n).zip(messages.chunks(n)).enumerate() {
            kept_of(kept, job, &mut |k| {
                k.fors_roots().copy_from_slice(roots);
                k.fors_pk().copy_from_slice(message);
            });
        }

        // Layer by layer: chains to their ends, T_len, the climb (FIPS 205, Algorithms 8, 11 and 13).
        let digits = sized(digits, 2 * jobs * len);
        let (digits, sorted) = digits.split_at_mut(jobs * len);
        for layer in 0..p.d {
            for (message, digits) in messages.chunks(n).zip(digits.chunks_mut(len)) {
                wots::digits(p, message, digits);
            }
            sort(p.w(), digits, order);
            adrs.clear();
            key_of.clear();
            let chains = sized(wide, jobs * len * n);
            for ((x, chain), digit) in order.iter().zip(chains.chunks_mut(n)).zip(sorted.iter_mut()) {
                let (job, i) = (*x as usize / len, *x as usize % len);
                let (tree, leaf) = position(job).at_layer(p, layer);
                chain.copy_from_slice(&signature(job)[p.xmss_range(layer).start + i * n..][..n]);
                *digit = digits[*x as usize];
                adrs.push(Adrs::new(layer as u32, tree, AdrsType::WotsHash).key_pair(leaf).chain(i as u32).0);
                key_of.push(self.batch.key_of[first + job]);
            }
            let keys = if key_of.iter().all(|key| *key == key_of[0]) {
                Keys::One(&self.keys[key_of[0] as usize])
            } else {
                Keys::Of { keys: self.keys, of: key_of }
            };
            self.hash.chain(keys, adrs, p.w(), Steps::From(sorted), chains, None);

            let ends = sized(parents, jobs * len * n);
            for (x, chain) in order.iter().zip(chains.chunks(n)) {
                ends[*x as usize * n..][..n].copy_from_slice(chain);
            }
            adrs.clear();
            adrs.extend((0..jobs).map(|job| {
                let (tree, leaf) = position(job).at_layer(p, layer);
                Adrs::new(layer as u32, tree, AdrsType::WotsPk).key_pair(leaf).0
            }));
            self.hash.t_l(self.keys(key_of, 1), adrs, len, ends, messages);
            for z in 0..p.hp {
                self.climb(HashLevel { adrs, key_of, pairs: wide, nodes: messages }, 1, |job| {
                    let (tree, leaf) = position(job).at_layer(p, layer);
                    let at = p.xmss_range(layer).start + (len + z) * n;
                    let node = Adrs::new(layer as u32, tree, AdrsType::Tree).node(z as u32 + 1, leaf >> (z + 1));
                    (leaf >> z & 1 == 1, node.0, at..at + n)
                });
            }
            for (job, root) in messages.chunks(n).enumerate() {
                kept_of(kept, job, &mut |k| k.xmss_root(layer).copy_from_slice(root));
            }
        }
        roots.copy_from_slice(messages);
    }
}

/// The buffers of one level's H.
struct HashLevel<'a> {
    adrs: &'a mut Vec<AdrsWords>,
    key_of: &'a mut Vec<u32>,
    pairs: &'a mut Vec<u8>,
    nodes: &'a mut [u8],
}

/// The numbers of all chains, those with the fewest steps left last: lanes of a group then stop together. A counting
/// sort; digits are public.
fn sort(w: usize, digits: &[u8], order: &mut Vec<u32>) {
    let mut starts = [0u32; 257];
    for digit in digits {
        starts[usize::from(*digit) + 1] += 1;
    }
    for digit in 0..w {
        starts[digit + 1] += starts[digit];
    }
    order.clear();
    order.resize(digits.len(), 0);
    for (x, digit) in digits.iter().enumerate() {
        let at = &mut starts[usize::from(*digit)];
        order[*at as usize] = x as u32;
        *at += 1;
    }
}
