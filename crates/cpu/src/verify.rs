//! Recomputing PK.root from signatures, a group of them at a time: all their chains share lanes, sorted by length.

use crate::clock::Clock;
use crate::scratch::{Scratch, sized};
use crate::wots;
use hypergrove_engine::trace::{self, Step};
use hypergrove_engine::{Batch, Digests};
use hypergrove_fips205::{Adrs, AdrsType, Params, Position};
use hypergrove_lanes::{KeyState, Keys, Steps, TweakableHash};
use std::ops::Range;

/// The signatures of a batch that are verified together, and the keys and hash for them.
pub(crate) struct VerifyGroup<'a> {
    pub p: &'static Params,
    pub hash: &'a dyn TweakableHash,
    pub keys: &'a [KeyState],
    pub batch: &'a Batch<'a>,
    pub jobs: Range<usize>,
    /// Gives the messages, unless the batch has their positions.
    pub digests: Option<&'a dyn Digests>,
}

/// Intermediate values of one job, in the order of `Slot`: FORS roots, PK_FORS, XMSS roots.
pub(crate) struct SlotValues<'a> {
    p: &'static Params,
    bytes: &'a mut [u8],
}

impl<'a> SlotValues<'a> {
    pub(crate) const fn bytes(p: &Params) -> usize {
        (p.k + 1 + p.d) * p.n
    }
    pub(crate) fn new(p: &'static Params, bytes: &'a mut [u8]) -> SlotValues<'a> {
        SlotValues { p, bytes }
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

impl VerifyGroup<'_> {
    fn keys<'a>(&'a self, key_of: &'a mut Vec<u32>, per: usize) -> Keys<'a> {
        let of = &self.batch.key_of[self.jobs.clone()];
        if of.iter().all(|key| *key == of[0]) {
            return Keys::One(&self.keys[of[0] as usize]);
        }
        key_of.clear();
        key_of.extend(of.iter().flat_map(|key| std::iter::repeat_n(*key, per)));
        Keys::Of { keys: self.keys, of: key_of }
    }

    /// The roots, n bytes a job.
    pub(crate) fn roots(&self, scratch: &mut Scratch, roots: &mut [u8], kept: &mut [u8], clock: &Clock) {
        // Rows of a known length are copied by one or two instructions instead of a call.
        match self.p.n {
            16 => self.roots_n::<16>(scratch, roots, kept, clock),
            24 => self.roots_n::<24>(scratch, roots, kept, clock),
            _ => self.roots_n::<32>(scratch, roots, kept, clock),
        }
    }

    /// The positions that the messages select. The thread that verifies a group hashes its messages too, so no thread waits between the two.
    ///
    /// FIPS 205, Algorithm 20: lines 4–11.
    fn positions(&self, digests: &dyn Digests) -> Vec<Position> {
        let of = |job: usize| {
            let pk_seed = self.batch.keys[self.batch.key_of[job] as usize].pk_seed;
            let r = &self.batch.signatures[job][self.p.r_range()];
            Position::of(self.p, r, pk_seed, digests.pk_root(job), &digests.m_prime(job))
        };
        self.jobs.clone().map(of).collect()
    }

    #[expect(clippy::too_many_lines, reason = "the stages of verification, in one scratch")]
    fn roots_n<const N: usize>(&self, scratch: &mut Scratch, roots: &mut [u8], kept: &mut [u8], clock: &Clock) {
        let (p, jobs, len) = (self.p, self.jobs.len(), self.p.len());
        let made;
        let positions = match self.digests {
            Some(digests) => {
                made = trace::step(Step::HashMessages, jobs, || self.positions(digests));
                &made[..]
            }
            None => &self.batch.positions[self.jobs.clone()],
        };
        clock.start();
        let signatures = &self.batch.signatures[self.jobs.clone()];
        let job_keys = &self.batch.key_of[self.jobs.clone()];
        let Scratch { adrs, key_of, digits, order, values, nodes, parents, messages, .. } = scratch;
        let kept = kept.chunks_mut(SlotValues::bytes(p));

        // FORS leaves from the revealed secrets, then the climb (FIPS 205, Algorithm 17).
        let trees = sized(nodes, jobs * p.k * N);
        let fors = || positions.iter().map(|at| Adrs::new(0, at.idx_tree, AdrsType::ForsTree).key_pair(at.idx_leaf));
        // For each node on a path at height z: its tree's address, and its index among the nodes of all of the key pair's trees.
        let level = |z: usize| {
            fors().zip(positions).flat_map(move |(tree, at)| {
                at.fors.iter().enumerate().map(move |(i, leaf)| (tree, ((i << p.a) as u32 + leaf) >> z))
            })
        };
        adrs.clear();
        adrs.extend(level(0).map(|(tree, leaf)| tree.node(0, leaf).0));
        let parts = || signatures.iter().flat_map(|s| s[p.fors_range()].chunks_exact(p.fors_tree_bytes()));
        for (node, part) in rows_mut::<N>(trees).iter_mut().zip(parts()) {
            *node = *row(part, 0);
        }
        self.hash.f(self.keys(key_of, p.k), adrs, trees);
        for z in 0..p.a {
            let pairs = sized(values, 2 * trees.len());
            adrs.clear();
            for (((pair, node), part), (tree, index)) in
                rows_mut::<N>(pairs).as_chunks_mut::<2>().0.iter_mut().zip(rows::<N>(trees)).zip(parts()).zip(level(z))
            {
                put_siblings(pair, node, row(part, 1 + z), index);
                adrs.push(tree.node(z as u32 + 1, index >> 1).0);
            }
            self.hash.t_l(self.keys(key_of, p.k), adrs, 2, pairs, trees);
        }
        clock.lap("fors_climb");
        let messages = sized(messages, jobs * N);
        adrs.clear();
        adrs.extend(positions.iter().map(|at| Adrs::new(0, at.idx_tree, AdrsType::ForsRoots).key_pair(at.idx_leaf).0));
        self.hash.t_l(self.keys(key_of, 1), adrs, p.k, trees, messages);
        clock.lap("fors_pk");
        let mut kept: Vec<SlotValues<'_>> = kept.map(|bytes| SlotValues::new(p, bytes)).collect();
        for ((kept, roots), message) in kept.iter_mut().zip(trees.chunks(p.k * N)).zip(messages.chunks(N)) {
            kept.fors_roots().copy_from_slice(roots);
            kept.fors_pk().copy_from_slice(message);
        }

        // Layer by layer: chains to their ends, T_len, the climb (FIPS 205, Algorithms 8, 11 and 13).
        let digits = sized(digits, 2 * jobs * len);
        let (digits, sorted) = digits.split_at_mut(jobs * len);
        // The place of each chain among all of them in their sorted order.
        let order = sized(order, jobs * len);
        let one_key = job_keys.iter().all(|key| *key == job_keys[0]);
        for layer in 0..p.d {
            let places: Vec<(u64, u32)> = positions.iter().map(|at| at.at_layer(p, layer)).collect();
            let range = p.xmss_range(layer);
            let parts: Vec<&[[u8; N]]> = signatures.iter().map(|s| rows(&s[range.clone()])).collect();
            for (message, digits) in messages.chunks(N).zip(digits.chunks_mut(len)) {
                wots::digits(p, message, digits);
            }
            let mut starts = starts(p.w(), digits);
            let chains = rows_mut::<N>(sized(values, jobs * len * N));
            adrs.resize(chains.len(), [0; 8]);
            key_of.resize(if one_key { 0 } else { chains.len() }, 0);
            // Values are read in the order of the signatures, which are too large for the caches.
            let mut sources = digits.iter().zip(&mut *order);
            for ((part, (tree, leaf)), key) in parts.iter().zip(&places).zip(job_keys) {
                let of_job = Adrs::new(layer as u32, *tree, AdrsType::WotsHash).key_pair(*leaf);
                for ((value, i), (digit, place)) in part.iter().zip(0..len as u32).zip(&mut sources) {
                    let next = &mut starts[usize::from(*digit)];
                    *place = *next;
                    *next += 1;
                    let at = *place as usize;
                    chains[at] = *value;
                    sorted[at] = *digit;
                    adrs[at] = of_job.chain(i).0;
                    if !one_key {
                        key_of[at] = *key;
                    }
                }
            }
            let keys = if one_key {
                Keys::One(&self.keys[job_keys[0] as usize])
            } else {
                Keys::Of { keys: self.keys, of: key_of }
            };
            self.hash.chain(keys, adrs, p.w(), Steps::From(sorted), chains.as_flattened_mut(), None);

            let ends = sized(parents, jobs * len * N);
            for (end, place) in rows_mut::<N>(ends).iter_mut().zip(&*order) {
                *end = chains[*place as usize];
            }
            let at = |kind| places.iter().map(move |(tree, leaf)| (Adrs::new(layer as u32, *tree, kind), *leaf));
            adrs.clear();
            adrs.extend(at(AdrsType::WotsPk).map(|(adrs, leaf)| adrs.key_pair(leaf).0));
            self.hash.t_l(self.keys(key_of, 1), adrs, len, ends, messages);
            for z in 0..p.hp {
                let pairs = sized(values, 2 * messages.len());
                adrs.clear();
                for (((pair, node), part), (tree, leaf)) in rows_mut::<N>(pairs)
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .zip(rows::<N>(messages))
                    .zip(&parts)
                    .zip(at(AdrsType::Tree))
                {
                    put_siblings(pair, node, &part[len + z], leaf >> z);
                    adrs.push(tree.node(z as u32 + 1, leaf >> (z + 1)).0);
                }
                self.hash.t_l(self.keys(key_of, 1), adrs, 2, pairs, messages);
            }
            for (kept, root) in kept.iter_mut().zip(messages.chunks(N)) {
                kept.xmss_root(layer).copy_from_slice(root);
            }
        }
        clock.lap("climb");
        roots.copy_from_slice(messages);
    }
}

fn rows<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks().0
}
fn rows_mut<const N: usize>(bytes: &mut [u8]) -> &mut [[u8; N]] {
    bytes.as_chunks_mut().0
}
/// Row `i` of a part of a signature.
fn row<const N: usize>(part: &[u8], i: usize) -> &[u8; N] {
    &rows(part)[i]
}

/// Puts a node and its sibling in the order in which H takes them. The index is public.
fn put_siblings<const N: usize>(pair: &mut [[u8; N]; 2], node: &[u8; N], sibling: &[u8; N], index: u32) {
    let side = (index & 1) as usize;
    pair[side] = *node;
    pair[side ^ 1] = *sibling;
}

/// The place of the first chain of each digit, if all chains are sorted and those with the fewest steps left are last, so that the lanes of a group stop
/// together. Digits are public.
fn starts(w: usize, digits: &[u8]) -> [u32; 257] {
    let mut starts = [0u32; 257];
    for digit in digits {
        starts[usize::from(*digit) + 1] += 1;
    }
    for digit in 0..w {
        starts[digit + 1] += starts[digit];
    }
    starts
}
