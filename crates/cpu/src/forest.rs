//! Growing Merkle trees from their secret leaves: FORS and XMSS alike.
//!
//! A forest is cut into chunks of whole subtrees. One thread grows a chunk in its cache: leaves, then level by level all subtrees of the chunk
//! together. High trees are reduced from the chunks' tops to their roots at the end.

use crate::scratch::{Pool, Scratch, sized};
use crate::share;
use hypergrove_engine::trace::{Step, TraceContext};
use hypergrove_engine::wiped;
use hypergrove_fips205::{Adrs, AdrsType, Params};
use hypergrove_lanes::{KeyState, Keys, Steps, Trace, TweakableHash};

/// A tree to grow.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub layer: u32,
    pub tree: u64,
    /// The key pair whose FORS tree this is; 0 for an XMSS tree.
    pub key_pair: u32,
    /// Number of the tree's first leaf: FORS trees of a key pair number their leaves consecutively.
    pub first: u32,
    /// The tree's key: an index into the forest's keys.
    pub key: u32,
    /// The leaf that the signature reveals, which is public.
    pub revealed: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    Fors,
    Xmss,
}

/// Trees of one kind and height.
#[derive(Clone, Copy)]
pub(crate) struct Forest<'a> {
    pub p: &'static Params,
    pub hash: &'a dyn TweakableHash,
    pub keys: &'a [KeyState],
    pub leaves: Leaves,
    pub trees: &'a [Tree],
    /// Leaves of a chunk, a power of two.
    pub chunk: usize,
}

/// Where a forest's values go; a slice may be empty if its values are not wanted.
pub(crate) struct ForestOutput<'a> {
    /// The roots, n bytes for each tree.
    pub roots: &'a mut [u8],
    /// A tree's part of the signature: FORS secret or WOTS+ signature (left alone here), and authentication path.
    pub parts: &'a mut [u8],
    /// All values of the revealed leaf's chains, which are secret.
    pub traces: &'a mut [u8],
    /// All nodes, as `cache_bytes` has them.
    pub nodes: &'a mut [u8],
}

/// Subtrees number `sub` of some trees, and where their values go.
struct Subtrees<'a> {
    trees: &'a [Tree],
    sub: usize,
    tops: &'a mut [u8],
    parts: &'a mut [u8],
    traces: &'a mut [u8],
    keep: KeptNodes<'a>,
}

/// The nodes that are kept, and where.
enum KeptNodes<'a> {
    None,
    /// All nodes of whole trees, one tree after the other.
    Trees(&'a mut [u8]),
    /// The nodes of a part of one tree: a slice for each level, from the leaves up.
    Levels(Vec<&'a mut [u8]>),
}

/// Nodes, at most, that the chunks of a forest leave to the last step: if there would be more, chunks are made higher. This keeps the scratch
/// of the draft sets with 2^25 leaves a tree below 8 MiB.
const MOST_TOPS: usize = 1 << 15;

/// Height of the subtrees that chunks of `chunk` leaves are made of.
pub(crate) fn subtree_height(trees: usize, height: usize, chunk: usize) -> usize {
    let mut s = height.min(chunk.ilog2() as usize);
    while trees << (height - s) > MOST_TOPS && s < height {
        s += 1;
    }
    s
}

impl Forest<'_> {
    fn height(&self) -> usize {
        if self.leaves == Leaves::Fors { self.p.a } else { self.p.hp }
    }
    /// Bytes of a tree's part of the signature, and the bytes before its authentication path.
    fn part_bytes(&self) -> (usize, usize) {
        match self.leaves {
            Leaves::Fors => (self.p.fors_tree_bytes(), self.p.n),
            Leaves::Xmss => (self.p.xmss_bytes(), self.p.len() * self.p.n),
        }
    }

    /// Grows all trees; chunks run on rayon's threads if `parallel`.
    pub(crate) fn grow(&self, pool: &Pool, scratch: &mut Scratch, parallel: bool, out: ForestOutput<'_>) {
        let (n, height, trees) = (self.p.n, self.height(), self.trees.len());
        if trees == 0 {
            return;
        }
        let s = subtree_height(trees, height, self.chunk);
        let ((part, _), tree_nodes) = (self.part_bytes(), ((2 << height) - 1) * n);
        let trace = self.p.len() * self.p.w() * n;
        let context = TraceContext::current();
        // Another thread may take the chunk.
        let share = |scratch: &mut Scratch, chunk: Subtrees<'_>| wiped(|| self.grow_chunk(scratch, s, chunk));
        let work = |scratch: &mut Scratch, chunk: Subtrees<'_>| match (parallel, chunk.trees.len()) {
            (true, trees) => context.step(Step::Trees, trees, || share(scratch, chunk)),
            (false, _) => self.grow_chunk(scratch, s, chunk),
        };
        if s == height {
            let chunks = trees.div_ceil((self.chunk >> s).max(1));
            let each = trees.div_ceil(chunks);
            let (mut parts, mut traces) = (out.parts.chunks_mut(each * part), out.traces.chunks_mut(each * trace));
            let mut nodes = out.nodes.chunks_mut(each * tree_nodes);
            let chunks = self.trees.chunks(each).zip(out.roots.chunks_mut(each * n)).map(|(trees, tops)| Subtrees {
                trees,
                sub: 0,
                tops,
                parts: parts.next().unwrap_or_default(),
                traces: traces.next().unwrap_or_default(),
                keep: nodes.next().map_or(KeptNodes::None, KeptNodes::Trees),
            });
            return run(parallel, pool, scratch, chunks, work);
        }

        let subs = 1 << (height - s);
        let mut tops = std::mem::take(&mut scratch.tops);
        let all_tops = sized(&mut tops, trees * subs * n);
        {
            let (mut parts, mut traces) = (out.parts.chunks_mut(part), out.traces.chunks_mut(trace));
            let mut nodes = out.nodes.chunks_mut(tree_nodes);
            let chunks = self.trees.iter().zip(all_tops.chunks_mut(subs * n)).flat_map(|(tree, tops)| {
                // Only the chunk with the revealed leaf gets the tree's part and trace.
                let (mut part, mut trace) = (parts.next().unwrap_or_default(), traces.next().unwrap_or_default());
                let mut levels: Vec<_> = match nodes.next() {
                    Some(mut rest) => (0..=s)
                        .map(|z| {
                            let level = rest.split_off_mut(..n << (height - z)).expect("a place for each node");
                            level.chunks_mut(n << (s - z))
                        })
                        .collect(),
                    None => Vec::new(),
                };
                tops.chunks_mut(n)
                    .enumerate()
                    .map(|(sub, tops)| {
                        let reveals = tree.revealed.is_some_and(|leaf| leaf as usize >> s == sub);
                        let slices: Vec<_> = levels.iter_mut().filter_map(Iterator::next).collect();
                        Subtrees {
                            trees: std::slice::from_ref(tree),
                            sub,
                            tops,
                            parts: if reveals { std::mem::take(&mut part) } else { &mut [] },
                            traces: if reveals { std::mem::take(&mut trace) } else { &mut [] },
                            keep: if slices.is_empty() { KeptNodes::None } else { KeptNodes::Levels(slices) },
                        }
                    })
                    .collect::<Vec<_>>()
            });
            run(parallel, pool, scratch, chunks, work);
        }
        // The rest of each tree is reduced: many trees together, as far as their tops are no more than a chunk.
        let together = (MOST_TOPS / subs / 4).clamp(1, trees);
        let (mut parts, mut nodes) =
            (out.parts.chunks_mut(together * part), out.nodes.chunks_mut(together * tree_nodes));
        for ((trees, tops), roots) in self
            .trees
            .chunks(together)
            .zip(all_tops.chunks(together * subs * n))
            .zip(out.roots.chunks_mut(together * n))
        {
            sized(&mut scratch.nodes, tops.len()).copy_from_slice(tops);
            let mut keep = nodes.next().map_or(KeptNodes::None, KeptNodes::Trees);
            self.reduce(scratch, trees, s, height - s, 0, parts.next().unwrap_or_default(), &mut keep);
            roots.copy_from_slice(&scratch.nodes[..roots.len()]);
        }
        scratch.tops = tops;
    }

    /// Grows a chunk's leaves and the s levels above them.
    fn grow_chunk(&self, scratch: &mut Scratch, s: usize, mut chunk: Subtrees<'_>) {
        match self.leaves {
            Leaves::Fors => self.fors_leaves(scratch, s, &mut chunk),
            Leaves::Xmss => self.xmss_leaves(scratch, s, &mut chunk),
        }
        self.reduce(scratch, chunk.trees, 0, s, chunk.sub, chunk.parts, &mut chunk.keep);
        chunk.tops.copy_from_slice(&scratch.nodes[..chunk.tops.len()]);
    }

    /// Computes the secrets by PRF, and the leaves by F (FIPS 205, Algorithms 14 and 15).
    fn fors_leaves(&self, scratch: &mut Scratch, s: usize, chunk: &mut Subtrees<'_>) {
        let (n, (part, _)) = (self.p.n, self.part_bytes());
        let Scratch { adrs, key_of, nodes, .. } = scratch;
        adrs.clear();
        for t in chunk.trees {
            let prf = Adrs::new(t.layer, t.tree, AdrsType::ForsPrf).key_pair(t.key_pair);
            let first = t.first + (chunk.sub << s) as u32;
            adrs.extend((first..first + (1 << s)).map(|i| prf.node(0, i).0));
        }
        let keys = keys_of(self.keys, key_of, chunk.trees.iter().map(|t| t.key), 1 << s);
        let nodes = sized(nodes, adrs.len() * n);
        self.hash.prf(keys, adrs, nodes);
        for (i, (t, part)) in chunk.trees.iter().zip(chunk.parts.chunks_mut(part)).enumerate() {
            let leaf = t.revealed.expect("a part is of a revealed leaf") as usize - (chunk.sub << s);
            part[..n].copy_from_slice(&nodes[((i << s) + leaf) * n..][..n]);
        }
        for a in adrs.iter_mut() {
            a[4] = AdrsType::ForsTree as u32;
        }
        self.hash.f(keys, adrs, nodes);
    }

    /// Computes the leaves: WOTS+ public keys (FIPS 205, Algorithm 6).
    fn xmss_leaves(&self, scratch: &mut Scratch, s: usize, chunk: &mut Subtrees<'_>) {
        let (n, len) = (self.p.n, self.p.len());
        let Scratch { adrs, key_of, chains, values, nodes, .. } = scratch;
        let leaves = || {
            let first = (chunk.sub << s) as u32;
            chunk.trees.iter().flat_map(move |t| (first..first + (1 << s)).map(move |leaf| (t, leaf)))
        };
        adrs.clear();
        for (t, leaf) in leaves() {
            let prf = Adrs::new(t.layer, t.tree, AdrsType::WotsPrf).key_pair(leaf);
            adrs.extend((0..len as u32).map(|i| prf.chain(i).0));
        }
        let values = sized(values, adrs.len() * n);
        {
            let keys = keys_of(self.keys, key_of, chunk.trees.iter().map(|t| t.key), len << s);
            self.hash.prf(keys, adrs, values);
            for a in adrs.iter_mut() {
                a[4] = AdrsType::WotsHash as u32;
            }
            let trace = if chunk.traces.is_empty() {
                None
            } else {
                chains.clear();
                chains.resize(adrs.len(), Trace::NONE);
                for (i, t) in chunk.trees.iter().enumerate() {
                    let leaf = t.revealed.expect("a trace is of a revealed leaf") as usize - (chunk.sub << s);
                    let kept = &mut chains[((i << s) + leaf) * len..][..len];
                    kept.iter_mut().zip((i * len) as u32..).for_each(|(chain, at)| *chain = at);
                }
                Some(Trace { chains, out: chunk.traces })
            };
            self.hash.chain(keys, adrs, self.p.w(), Steps::All, values, trace);
        }
        adrs.clear();
        adrs.extend(leaves().map(|(t, leaf)| Adrs::new(t.layer, t.tree, AdrsType::WotsPk).key_pair(leaf).0));
        let keys = keys_of(self.keys, key_of, chunk.trees.iter().map(|t| t.key), 1 << s);
        self.hash.t_l(keys, adrs, len, values, sized(nodes, adrs.len() * n));
    }

    /// Reduces `scratch.nodes`, 2^`up` nodes a tree at height `base`, by `up` levels; authentication nodes go to `parts`.
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        scratch: &mut Scratch,
        trees: &[Tree],
        base: usize,
        up: usize,
        sub: usize,
        parts: &mut [u8],
        keep: &mut KeptNodes<'_>,
    ) {
        let (n, (part, head)) = (self.p.n, self.part_bytes());
        let kind = if self.leaves == Leaves::Fors { AdrsType::ForsTree } else { AdrsType::Tree };
        let Scratch { adrs, key_of, nodes, parents, .. } = scratch;
        for z in base..=base + up {
            let left = base + up - z;
            self.keep_level(keep, z, &nodes[..(trees.len() << left) * n], base);
            if left == 0 {
                break;
            }
            for (i, (t, part)) in trees.iter().zip(parts.chunks_mut(part)).enumerate() {
                let leaf = t.revealed.expect("a part is of a revealed leaf");
                let sibling = ((leaf >> z) as usize ^ 1) - (sub << left);
                part[head + z * n..][..n].copy_from_slice(&nodes[((i << left) + sibling) * n..][..n]);
            }
            adrs.clear();
            for t in trees {
                let a = Adrs::new(t.layer, t.tree, kind).key_pair(t.key_pair);
                let first = (t.first >> (z + 1)) + (sub << (left - 1)) as u32;
                adrs.extend((first..first + (1 << (left - 1))).map(|i| a.node(z as u32 + 1, i).0));
            }
            let keys = keys_of(self.keys, key_of, trees.iter().map(|t| t.key), 1 << (left - 1));
            let above = sized(parents, adrs.len() * n);
            self.hash.t_l(keys, adrs, 2, &nodes[..2 * adrs.len() * n], above);
            std::mem::swap(nodes, parents);
        }
    }

    /// Copies a level's nodes to where they are kept. Levels up to `base` were kept by the chunks.
    fn keep_level(&self, keep: &mut KeptNodes<'_>, z: usize, nodes: &[u8], base: usize) {
        let (n, height) = (self.p.n, self.height());
        match keep {
            KeptNodes::None => {}
            KeptNodes::Levels(levels) => levels[z].copy_from_slice(nodes),
            KeptNodes::Trees(_) if base > 0 && z == base => {}
            KeptNodes::Trees(all) => {
                let (tree, level) = (((2 << height) - 1) * n, n << (height - z));
                let at = ((2 << height) - (2 << (height - z))) * n;
                for (tree, level) in all.chunks_mut(tree).zip(nodes.chunks(level)) {
                    tree[at..at + level.len()].copy_from_slice(level);
                }
            }
        }
    }
}

/// The keys of `per` hashes for each of these numbers of a key.
pub(crate) fn keys_of<'a>(
    keys: &'a [KeyState],
    key_of: &'a mut Vec<u32>,
    mut numbers: impl Iterator<Item = u32> + Clone,
    per: usize,
) -> Keys<'a> {
    let all = numbers.clone();
    let first = numbers.next().expect("a tree or a signature");
    if numbers.all(|number| number == first) {
        return Keys::One(&keys[first as usize]);
    }
    key_of.clear();
    key_of.extend(all.flat_map(|number| std::iter::repeat_n(number, per)));
    Keys::Of { keys, of: key_of }
}

/// Runs tasks one after the other, or shares them out among rayon's threads, with a scratch each.
pub(crate) fn run<T: Send>(
    parallel: bool,
    pool: &Pool,
    scratch: &mut Scratch,
    tasks: impl Iterator<Item = T>,
    work: impl Fn(&mut Scratch, T) + Sync,
) {
    match parallel {
        true => share::each(tasks.collect(), |task| pool.with(|scratch| work(scratch, task))),
        false => tasks.for_each(|task| work(scratch, task)),
    }
}
