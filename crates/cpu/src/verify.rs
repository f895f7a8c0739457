//! Recomputing PK.root from signatures, a group of them at a time: all their chains share lanes, sorted by length.

use crate::clock::Clock;
use crate::forest::keys_of;
use crate::program::kept_bytes;
use crate::scratch::{Scratch, sized};
use crate::share::Offer;
use crate::wots;
use hypergrove_engine::trace::{self, Step};
use hypergrove_engine::{Batch, Digests};
use hypergrove_fips205::{Adrs, AdrsType, Params, Position};
use hypergrove_lanes::{KeyState, Keys, Steps, TweakableHash};
use std::ops::Range;

/// Jobs of half a group, at least: smaller groups leave most lanes empty.
const LEAST_HALF: usize = 2;

/// Signatures of a batch that are verified, and the keys and hash for them.
pub(crate) struct Verification<'a> {
    pub p: &'static Params,
    pub hash: &'a dyn TweakableHash,
    pub keys: &'a [KeyState],
    pub batch: &'a Batch<'a>,
    /// Gives the messages, unless the batch has their positions.
    pub digests: Option<&'a dyn Digests>,
}

/// Signatures that are verified together, and how far they are.
pub(crate) struct VerifyGroup<'a> {
    jobs: Range<usize>,
    /// Positions that the messages select, once they are hashed; empty if the batch has them.
    positions: Vec<Position>,
    /// The number of layers whose roots are known. `None` before PK_FORS is.
    layers: Option<usize>,
    /// The root of the last known layer for each job; before the first layer, PK_FORS.
    roots: &'a mut [u8],
    /// [`kept_bytes`] of each job.
    kept: &'a mut [u8],
}

impl<'a> VerifyGroup<'a> {
    pub(crate) fn new(jobs: Range<usize>, roots: &'a mut [u8], kept: &'a mut [u8]) -> VerifyGroup<'a> {
        VerifyGroup { jobs, positions: Vec::new(), layers: None, roots, kept }
    }

    /// Splits off the second half.
    fn split_off_half(&mut self) -> VerifyGroup<'a> {
        let (all, first) = (self.jobs.len(), self.jobs.len() / 2);
        let jobs = self.jobs.start + first..self.jobs.end;
        self.jobs.end = jobs.start;
        let positions = self.positions.split_off(first.min(self.positions.len()));
        let roots = self.roots.len() / all * first;
        let kept = self.kept.len() / all * first;
        let roots = self.roots.split_off_mut(roots..).expect("each job has a root");
        let kept = self.kept.split_off_mut(kept..).expect("each job has a place");
        VerifyGroup { jobs, positions, layers: self.layers, roots, kept }
    }
}

impl Verification<'_> {
    fn keys<'a>(&'a self, jobs: &Range<usize>, key_of: &'a mut Vec<u32>, per: usize) -> Keys<'a> {
        keys_of(self.keys, key_of, self.batch.key_of[jobs.clone()].iter().copied(), per)
    }

    /// Computes the roots of a group, n bytes a job, and values on the way to them. Before each layer, offers half of the group to other threads, if it is
    /// large enough. Returns the number of jobs that this thread kept.
    pub(crate) fn roots<'g>(
        &self,
        scratch: &mut Scratch,
        mut group: VerifyGroup<'g>,
        offer: Offer<'_, VerifyGroup<'g>>,
        clock: &Clock,
    ) -> usize {
        // Rows of a known length are copied by one or two instructions instead of a call.
        match self.p.n {
            16 => self.roots_n::<16>(scratch, &mut group, offer, clock),
            24 => self.roots_n::<24>(scratch, &mut group, offer, clock),
            _ => self.roots_n::<32>(scratch, &mut group, offer, clock),
        }
        group.jobs.len()
    }

    /// The positions that the messages select. The thread that verifies a group hashes its messages too, so no thread waits between the two.
    ///
    /// FIPS 205, Algorithm 20: lines 4–11.
    fn positions(&self, jobs: Range<usize>, digests: &dyn Digests) -> Vec<Position> {
        let of = |job: usize| {
            let key = &self.batch.keys[self.batch.key_of[job] as usize];
            let r = &self.batch.signatures[job][self.p.r_range()];
            digests.position(self.p, job, r, key)
        };
        jobs.map(of).collect()
    }

    fn roots_n<'g, const N: usize>(
        &self,
        scratch: &mut Scratch,
        group: &mut VerifyGroup<'g>,
        offer: Offer<'_, VerifyGroup<'g>>,
        clock: &Clock,
    ) {
        let first = group.layers.unwrap_or_else(|| {
            if let Some(digests) = self.digests {
                let jobs = group.jobs.clone();
                group.positions = trace::step(Step::HashMessages, jobs.len(), || self.positions(jobs, digests));
            }
            clock.start();
            self.fors_pks::<N>(scratch, group, clock);
            0
        });
        for layer in first..self.p.d {
            group.layers = Some(layer);
            if group.jobs.len() >= 2 * LEAST_HALF {
                offer(&mut || group.split_off_half());
            }
            self.layer::<N>(scratch, group, layer);
        }
        clock.lap("climb");
    }

    /// Computes the roots of FORS trees from the revealed secrets, and PK_FORS of each job (FIPS 205, Algorithm 17).
    fn fors_pks<const N: usize>(&self, scratch: &mut Scratch, group: &mut VerifyGroup<'_>, clock: &Clock) {
        let (p, jobs) = (self.p, &group.jobs);
        let positions = self.positions_of(jobs, &group.positions);
        let signatures = &self.batch.signatures[jobs.clone()];
        let Scratch { adrs, key_of, values, nodes, .. } = scratch;
        let trees = sized(nodes, jobs.len() * p.k * N);
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
        self.hash.f(self.keys(jobs, key_of, p.k), adrs, trees);
        for z in 0..p.a {
            let pairs = sized(values, 2 * trees.len());
            adrs.clear();
            for (((pair, node), part), (tree, index)) in
                rows_mut::<N>(pairs).as_chunks_mut::<2>().0.iter_mut().zip(rows::<N>(trees)).zip(parts()).zip(level(z))
            {
                put_siblings(pair, node, row(part, 1 + z), index);
                adrs.push(tree.node(z as u32 + 1, index >> 1).0);
            }
            self.hash.t_l(self.keys(jobs, key_of, p.k), adrs, 2, pairs, trees);
        }
        clock.lap("fors_climb");
        adrs.clear();
        adrs.extend(positions.iter().map(|at| Adrs::new(0, at.idx_tree, AdrsType::ForsRoots).key_pair(at.idx_leaf).0));
        self.hash.t_l(self.keys(jobs, key_of, 1), adrs, p.k, trees, group.roots);
        clock.lap("fors_pk");
        let kept = group.kept.chunks_mut(kept_bytes(p));
        for ((kept, roots), pk) in kept.zip(trees.chunks(p.k * N)).zip(group.roots.chunks(N)) {
            kept[..p.k * N].copy_from_slice(roots);
            kept[p.k * N..][..N].copy_from_slice(pk);
        }
    }

    /// Computes the roots of a layer from those of the layer below: chains to their ends, T_len, the climb (FIPS 205, Algorithms 8, 11 and 13).
    fn layer<const N: usize>(&self, scratch: &mut Scratch, group: &mut VerifyGroup<'_>, layer: usize) {
        let (p, jobs, len) = (self.p, &group.jobs, self.p.len());
        let positions = self.positions_of(jobs, &group.positions);
        let signatures = &self.batch.signatures[jobs.clone()];
        let job_keys = &self.batch.key_of[jobs.clone()];
        let Scratch { adrs, key_of, digits, order, values, parents, messages, .. } = scratch;
        // The climb works on a copy: neighbouring roots belong to other threads, and cores that write to one cache line slow each other down.
        let messages = sized(messages, group.roots.len());
        messages.copy_from_slice(group.roots);
        let digits = sized(digits, 2 * jobs.len() * len);
        let (digits, sorted) = digits.split_at_mut(jobs.len() * len);
        // The place of each chain among all of them in their sorted order.
        let order = sized(order, jobs.len() * len);
        let one_key = job_keys.iter().all(|key| *key == job_keys[0]);
        let places: Vec<(u64, u32)> = positions.iter().map(|at| at.at_layer(p, layer)).collect();
        let range = p.xmss_range(layer);
        let parts: Vec<&[[u8; N]]> = signatures.iter().map(|s| rows(&s[range.clone()])).collect();
        for (message, digits) in messages.chunks(N).zip(digits.chunks_mut(len)) {
            wots::digits(p, message, digits);
        }
        let mut starts = starts(p.w(), digits);
        let chains = rows_mut::<N>(sized(values, jobs.len() * len * N));
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

        let ends = sized(parents, jobs.len() * len * N);
        for (end, place) in rows_mut::<N>(ends).iter_mut().zip(&*order) {
            *end = chains[*place as usize];
        }
        let at = |kind| places.iter().map(move |(tree, leaf)| (Adrs::new(layer as u32, *tree, kind), *leaf));
        adrs.clear();
        adrs.extend(at(AdrsType::WotsPk).map(|(adrs, leaf)| adrs.key_pair(leaf).0));
        self.hash.t_l(self.keys(jobs, key_of, 1), adrs, len, ends, messages);
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
            self.hash.t_l(self.keys(jobs, key_of, 1), adrs, 2, pairs, messages);
        }
        group.roots.copy_from_slice(messages);
        for (kept, root) in group.kept.chunks_mut(kept_bytes(p)).zip(messages.chunks(N)) {
            kept[(p.k + 1 + layer) * N..][..N].copy_from_slice(root);
        }
    }

    /// The positions of these jobs: `made`, unless the batch has them.
    fn positions_of<'p>(&'p self, jobs: &Range<usize>, made: &'p [Position]) -> &'p [Position] {
        if self.digests.is_some() { made } else { &self.batch.positions[jobs.clone()] }
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

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_fips205::plan::Op;
    use hypergrove_testkit::digests::{DigestJobs, KEYS, text};
    use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHA2_32, TOY_SHAKE_24};
    use std::cell::RefCell;

    /// Divides a group at every offer, and checks that its roots and the values on the way to them are those of the whole group.
    #[test]
    fn halves_of_a_group_have_its_roots() {
        const JOBS: usize = 13;
        let text = text();
        for p in [&TOY_SHA2_16, &TOY_SHAKE_24, &TOY_SHA2_32] {
            let mut digests = DigestJobs::new(p, Op::Verify, (JOBS, 0), &text);
            let positions = digests.positions().unwrap();
            let row = |job: usize| {
                let mut row = text[job..].iter().copied().cycle().take(p.sig_bytes()).collect::<Vec<_>>();
                row[p.r_range()].copy_from_slice(&digests.r(job));
                row
            };
            let rows: Vec<Vec<u8>> = (0..JOBS).map(row).collect();
            let signatures: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
            let keys = digests.keys();
            let states = keys.map(|key| KeyState::new(key.pk_seed, key.sk_seed));
            let key_of: Vec<u32> = (0..JOBS).map(|job| (job % KEYS) as u32).collect();
            let isa = hypergrove_lanes::Isa::fastest();
            let hash = crate::Cpu::with(isa).expect("available").hash(p, isa);
            let compute = |digests: Option<&dyn Digests>, divides: bool| {
                let positions = if digests.is_some() { &[][..] } else { &positions };
                let batch = Batch { keys: &keys, key_of: &key_of, positions, signatures: &signatures };
                let all = Verification { p, hash: &*hash, keys: &states, batch: &batch, digests };
                let (mut roots, mut kept) = (vec![0; JOBS * p.n], vec![0; JOBS * kept_bytes(p)]);
                let groups = RefCell::new(vec![VerifyGroup::new(0..JOBS, &mut roots, &mut kept)]);
                let offer = |half: &mut dyn FnMut() -> _| {
                    if divides {
                        groups.borrow_mut().push(half());
                    }
                };
                let mut counts = Vec::new();
                let next = || groups.borrow_mut().pop();
                while let Some(group) = next() {
                    counts.push(all.roots(&mut Scratch::default(), group, &offer, &Clock::new(false)));
                }
                drop(groups);
                assert_eq!(counts.iter().sum::<usize>(), JOBS);
                (roots, kept, counts.len())
            };
            let (roots, kept, groups) = compute(None, false);
            assert_eq!(groups, 1);
            assert!(roots[..p.n] != roots[p.n..2 * p.n], "{p}");
            for digests in [None, Some(&digests as &dyn Digests)] {
                let divided = compute(digests, true);
                assert!(divided.0 == roots && divided.1 == kept, "{p}");
                // 13 are divided before the first layer alone into 6, 3, 2 and 2; with two layers, 6 into 3 and 3.
                assert_eq!(divided.2, 3 + p.d, "{p}");
            }
        }
    }
}
