//! The hashing of an operation, as data: its stages, the bytes that it puts out, and its cost.
//!
//! A plan names an operation for backends ([`Plan::params`], [`Plan::op`], [`Plan::cached_layers`]), says what flows between
//! its stages, and counts its work. Backends do not interpret the list of stages: each has code of its own for them.
//!
//! After the message digest, (md, idx_tree, idx_leaf) fixes all that will be hashed: the k FORS trees and the d XMSS
//! trees are independent of each other, and "layer j signs the root of layer j − 1" touches only the selection of
//! WOTS+ chain values that were computed anyway. See docs/plan.md.

use crate::params::{Family, Params};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// An operation: what a plan computes for each job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// (SK.seed, PK.seed) → PK.root.
    Keygen,
    /// (SK.seed, PK.seed, position) → SIG_FORS ‖ SIG_HT.
    Sign,
    /// (PK.seed, position, signature) → the candidate for PK.root.
    Verify,
    /// (SK.seed, PK.seed) → all nodes of the hypertree's top layers.
    Cache,
}

/// A set of Merkle trees that one stage computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forest {
    /// The k FORS trees of one key pair.
    Fors,
    /// XMSS trees, one of each layer in `layers.0..layers.1`; for [`Op::Cache`] all trees of those layers.
    Xmss {
        /// First layer and one past the last.
        layers: (u32, u32),
    },
}

/// One kind of work on a batch. The jobs of a stage do not depend on each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Grow `trees` Merkle trees from their secret leaves. With `reveal`, keep of one leaf a tree its authentication
    /// path and its FORS secret, or all the values of its WOTS+ chains.
    Treehash {
        /// Which trees.
        forest: Forest,
        /// Trees a job.
        trees: u32,
        /// Levels of a tree.
        height: u32,
        /// Whether one leaf of each is revealed.
        reveal: bool,
    },
    /// T_k over the FORS roots: the message of layer 0.
    ForsPk,
    /// Pick the WOTS+ signatures of the lowest `layers` layers out of the kept chain values: no hashing.
    WotsSelect {
        /// Layers, from 0.
        layers: u32,
    },
    /// For layers whose nodes are cached: compute the one WOTS+ signature, copy the authentication path.
    WotsSign {
        /// First layer and one past the last.
        layers: (u32, u32),
    },
    /// Climb from the revealed FORS leaves to their roots.
    ForsRoots {
        /// Trees a job.
        trees: u32,
        /// Levels of a tree.
        height: u32,
    },
    /// WOTS+ chains to their ends, T_len, and the climb to the root of `layer`.
    XmssRoot {
        /// The layer.
        layer: u32,
    },
}

/// Values between stages that a program may keep for checks. They are no secrets: signatures imply them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// Roots of the FORS trees: k·n bytes a job.
    ForsRoots,
    /// PK_FORS: n bytes a job.
    ForsPk,
    /// Roots of the XMSS trees, layer by layer: n bytes each.
    XmssRoots,
}

/// An operation on jobs of one set: its stages, their sizes and their work.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// The parameter set.
    pub params: &'static Params,
    /// The operation.
    pub op: Op,
    /// The stages. Each one takes the results of those before it.
    pub stages: Vec<Stage>,
    /// The number of top layers whose nodes the key brings, so that they are not computed.
    pub cached_layers: usize,
}

impl Plan {
    /// The plan of `op`, nothing cached. [`Op::Cache`] keeps the top tree alone: see [`Plan::cache`].
    pub fn new(params: &'static Params, op: Op) -> Plan {
        let p = params;
        let (d, hp) = (p.d as u32, p.hp as u32);
        let stages = match op {
            Op::Keygen => {
                vec![Stage::Treehash {
                    forest: Forest::Xmss { layers: (d - 1, d) },
                    trees: 1,
                    height: hp,
                    reveal: false,
                }]
            }
            Op::Sign => vec![
                Stage::Treehash { forest: Forest::Fors, trees: p.k as u32, height: p.a as u32, reveal: true },
                Stage::ForsPk,
                Stage::Treehash { forest: Forest::Xmss { layers: (0, d) }, trees: d, height: hp, reveal: true },
                Stage::WotsSelect { layers: d },
            ],
            Op::Verify => {
                let mut stages = vec![Stage::ForsRoots { trees: p.k as u32, height: p.a as u32 }, Stage::ForsPk];
                stages.extend((0..d).map(|layer| Stage::XmssRoot { layer }));
                stages
            }
            Op::Cache => return Plan::cache(p, 1),
        };
        Plan { params, op, stages, cached_layers: 0 }
    }

    /// The plan that grows all trees of the top `layers` layers and keeps their nodes (see [`cache_bytes`]).
    pub fn cache(params: &'static Params, layers: usize) -> Plan {
        let p = params;
        assert!((1..=p.d).contains(&layers), "1 to d layers can be cached");
        let stages = (p.d - layers..p.d)
            .rev()
            .map(|layer| Stage::Treehash {
                forest: Forest::Xmss { layers: (layer as u32, layer as u32 + 1) },
                trees: 1u32.checked_shl((p.hp * (p.d - 1 - layer)) as u32).expect("at most 2^31 trees can be cached"),
                height: p.hp as u32,
                reveal: false,
            })
            .collect();
        Plan { params, op: Op::Cache, stages, cached_layers: layers }
    }

    /// Equal signatures with less work, for keys that bring the nodes of their top `layers` layers.
    #[must_use]
    pub fn with_cached_layers(mut self, layers: usize) -> Plan {
        let p = self.params;
        assert!(self.op == Op::Sign && layers <= p.d, "only signing skips layers, and at most d of them");
        if layers > 0 {
            let (grown, d) = ((p.d - layers) as u32, p.d as u32);
            self.stages.truncate(2);
            if grown > 0 {
                let forest = Forest::Xmss { layers: (0, grown) };
                self.stages.push(Stage::Treehash { forest, trees: grown, height: p.hp as u32, reveal: true });
                self.stages.push(Stage::WotsSelect { layers: grown });
            }
            self.stages.push(Stage::WotsSign { layers: (grown, d) });
            self.cached_layers = layers;
        }
        self
    }

    /// Bytes that one job puts out: n for keygen and verify, a whole signature (R left to the host) for sign, the
    /// nodes for cache.
    pub fn out_bytes(&self) -> usize {
        match self.op {
            Op::Keygen | Op::Verify => self.params.n,
            Op::Sign => self.params.sig_bytes(),
            Op::Cache => cache_bytes(self.params, self.cached_layers).expect("checked when the plan was made"),
        }
    }

    /// Compression calls of one job, on average over messages; exact but for [`Op::Verify`] and cached layers.
    /// The host's share (R and the digest) is counted for a 32-byte message with an empty context.
    pub fn work(&self) -> Work {
        let p = self.params;
        let mut work = Work::default();
        // Layers whose chains are stepped from their starts to a message's digits, and from there to their ends.
        let (mut signed, mut completed) = (0.0, 0.0);
        for stage in &self.stages {
            match *stage {
                Stage::Treehash { forest, trees, height, .. } => {
                    let (trees, leaves) = (f64::from(trees), f64::from(trees) * (1u64 << height) as f64);
                    match forest {
                        Forest::Fors => {
                            work.prf(p, leaves);
                            work.t(p, 1, leaves);
                        }
                        Forest::Xmss { .. } => {
                            let chains = leaves * p.len() as f64;
                            work.prf(p, chains);
                            work.step(p, chains * (p.w() - 1) as f64);
                            work.t(p, p.len(), leaves);
                        }
                    }
                    work.t(p, 2, leaves - trees);
                }
                Stage::ForsPk => work.t(p, p.k, 1.0),
                Stage::WotsSelect { .. } => {}
                Stage::WotsSign { layers } => signed += f64::from(layers.1 - layers.0),
                Stage::ForsRoots { trees, height } => {
                    work.t(p, 1, f64::from(trees));
                    work.t(p, 2, f64::from(trees * height));
                }
                Stage::XmssRoot { .. } => {
                    completed += 1.0;
                    work.t(p, p.len(), 1.0);
                    work.t(p, 2, p.hp as f64);
                }
            }
        }
        if signed + completed > 0.0 {
            let steps = mean_digit_sum(p);
            work.prf(p, signed * p.len() as f64);
            work.step(p, signed * steps + completed * ((p.len() * (p.w() - 1)) as f64 - steps));
        }
        work.host(p, self.op);
        work
    }
}

/// Bytes of the nodes of the top `layers` layers of one key: every tree has 2^(h′+1) − 1 nodes, leaves first, root
/// last; trees in order of their index, the top layer first. `None` if that does not fit a `usize`.
pub fn cache_bytes(p: &Params, layers: usize) -> Option<usize> {
    let mut trees = 0usize;
    for above in 0..layers {
        trees = trees.checked_add(1usize.checked_shl((p.hp * above) as u32)?)?;
    }
    trees.checked_mul((2usize << p.hp) - 1)?.checked_mul(p.n)
}

/// The most layers that [`Plan::cache`] takes: of the lowest one the trees' number fits 32 bits, and all nodes fit a `usize`.
pub fn most_cached_layers(p: &Params) -> usize {
    (1..=p.d).take_while(|layers| p.hp * (layers - 1) < 32 && cache_bytes(p, *layers).is_some()).count()
}

macro_rules! of_each_primitive {
    ($($(#[$doc:meta])* $name:ident { $(#[$more_doc:meta])* $more:ident })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub struct $name {
            /// SHA-256 compressions (64-byte blocks).
            pub sha256: f64,
            /// SHA-512 compressions (128-byte blocks).
            pub sha512: f64,
            /// Keccak-f\[1600\] permutations.
            pub keccak: f64,
            $(#[$more_doc])*
            pub $more: f64,
        }

        impl $name {
            /// The primitives' names, and the number of each.
            pub fn each(&self) -> [(&'static str, f64); 3] {
                let $name { sha256, sha512, keccak, .. } = *self;
                [("SHA-256", sha256), ("SHA-512", sha512), ("Keccak", keccak)]
            }
            /// Combines each number with that of `other`.
            pub fn zip(&self, other: &$name, of: impl Fn(f64, f64) -> f64) -> $name {
                let $name { sha256, sha512, keccak, $more } = *other;
                $name {
                    sha256: of(self.sha256, sha256),
                    sha512: of(self.sha512, sha512),
                    keccak: of(self.keccak, keccak),
                    $more: of(self.$more, $more),
                }
            }
        }
    )*};
}

of_each_primitive! {
    /// How often an operation calls each primitive.
    Work {
        /// Integer operations ([`Work::integers`]) that these calls need less than as many whole ones: words that are constant, rounds that depend
        /// only on an address, output that nobody reads.
        saved
    }
    /// How often a second each primitive is called, by one core or one device.
    Rates {
        /// Integer operations a second of a device whose peak they limit ([`Rates::of_integers`]); otherwise 0.
        integers
    }
}

/// Integer operations of a whole call of SHA-256, SHA-512 and Keccak.
const INTEGERS: [f64; 3] = [1024.0, 3072.0, KECCAK_INTEGERS as f64];

impl Rates {
    /// The peak of a GPU that does so many integer operations a second. The rates of primitives are those of whole calls; [`Work::seconds`] also
    /// counts what an operation's calls save.
    pub fn of_integers(integers: f64) -> Rates {
        let [sha256, sha512, keccak] = INTEGERS.map(|each| integers / each);
        Rates { sha256, sha512, keccak, integers }
    }
}

impl Work {
    /// All calls.
    pub fn compressions(&self) -> f64 {
        self.each().map(|(_, calls)| calls).iter().sum()
    }
    /// The number of SHA-256 compressions that take a GPU as long: a SHA-512 compression costs three, a Keccak permutation five
    /// (measured, see docs/cuda.md).
    pub fn in_sha256(&self) -> f64 {
        let Work { sha256, sha512, keccak, .. } = self;
        sha256 + 3.0 * sha512 + 5.0 * keccak
    }
    /// Operations that only the integer pipe of a GPU can do: rotations, shifts and logic of 32 bits, and additions that carry to a higher word
    /// (docs/cuda.md). No kernel needs fewer. The words of an address that a whole tree has are not counted.
    pub fn integers(&self) -> f64 {
        self.each().iter().zip(INTEGERS).map(|((_, calls), each)| calls * each).sum::<f64>() - self.saved
    }
    /// Seconds at these rates, nothing else being done.
    pub fn seconds(&self, rates: &Rates) -> f64 {
        if rates.integers > 0.0 {
            return self.integers() / rates.integers;
        }
        let each = self.each().into_iter().zip(rates.each());
        each.filter(|((_, calls), _)| *calls > 0.0).map(|((_, calls), (_, rate))| calls / rate).sum()
    }
    /// PRF. All calls of a key have the same SK.seed.
    fn prf(&mut self, p: &Params, calls: f64) {
        let adrs = adrs_bytes(p);
        self.hash(p, 1, calls, 3 * adrs / 4..adrs);
    }
    /// F along a WOTS+ chain, where only the last bytes of the address change.
    fn step(&mut self, p: &Params, calls: f64) {
        let adrs = adrs_bytes(p);
        self.hash(p, 1, calls, adrs..adrs + p.n);
        if p.family == Family::Sha2 {
            // The address ends amid a word, so each word of the node is shifted.
            self.saved -= calls * (p.n / 4) as f64;
        }
    }
    /// F (l = 1), H (l = 2) and T_l.
    fn t(&mut self, p: &Params, l: usize, calls: f64) {
        let adrs = adrs_bytes(p);
        self.hash(p, l, calls, 3 * adrs / 4..adrs + l * p.n);
    }
    /// Hashes of PK.seed, an address and `l` values of n bytes. Of the bytes after PK.seed, those outside of `varying` are the same in many calls.
    fn hash(&mut self, p: &Params, l: usize, calls: f64, varying: Range<usize>) {
        let bytes = adrs_bytes(p) + l * p.n;
        let (number, whole, each, needed) = match p.family {
            Family::Sha2 if p.n == 16 || l == 1 => {
                (&mut self.sha256, INTEGERS[0], sha256_blocks(bytes), SHA256.integers(bytes, varying))
            }
            Family::Sha2 => (&mut self.sha512, INTEGERS[1], sha512_blocks(bytes), SHA512.integers(bytes, varying)),
            Family::Shake => {
                let (bytes, varying) = (p.n + bytes, p.n + varying.start..p.n + varying.end);
                (&mut self.keccak, INTEGERS[2], keccak_blocks(bytes), keccak_integers(bytes, varying, p.n))
            }
        };
        *number += calls * each;
        self.saved += calls * (each * whole - needed as f64);
    }
    /// R (signing) and H_msg, for M′ of 34 bytes.
    fn host(&mut self, p: &Params, op: Op) {
        let signs = f64::from(u8::from(op == Op::Sign));
        if !matches!(op, Op::Sign | Op::Verify) {
            return;
        }
        let (n, m_prime) = (p.n, 34);
        match p.family {
            Family::Shake => {
                self.keccak += signs * keccak_blocks(2 * n + m_prime) + keccak_blocks(3 * n + m_prime);
            }
            Family::Sha2 if n == 16 => {
                let hmac = sha256_blocks(64 + n + m_prime) + sha256_blocks(64 + 32);
                let mgf1 = p.m.div_ceil(32) as f64 * sha256_blocks(2 * n + 32 + 4);
                self.sha256 += signs * hmac + sha256_blocks(3 * n + m_prime) + mgf1;
            }
            Family::Sha2 => {
                let hmac = sha512_blocks(128 + n + m_prime) + sha512_blocks(128 + 64);
                let mgf1 = p.m.div_ceil(64) as f64 * sha512_blocks(2 * n + 64 + 4);
                self.sha512 += signs * hmac + sha512_blocks(3 * n + m_prime) + mgf1;
            }
        }
    }
}

/// Blocks after the absorbed PK.seed block: the padding adds a bit and a length.
fn sha256_blocks(bytes: usize) -> f64 {
    (bytes + 9).div_ceil(64) as f64
}
fn sha512_blocks(bytes: usize) -> f64 {
    (bytes + 17).div_ceil(128) as f64
}
fn keccak_blocks(bytes: usize) -> f64 {
    (bytes / 136 + 1) as f64
}

/// Bytes of an address, as SHA-2 compresses it or as SHAKE reads it. All but the last quarter is the same for a whole tree, or for a key pair's
/// chains.
fn adrs_bytes(p: &Params) -> usize {
    match p.family {
        Family::Sha2 => 22,
        Family::Shake => 32,
    }
}

/// One of SHA-2's compressions: bytes of a word, rounds, and the integer operations of a round, of a sigma of the message schedule, and of
/// a sum there.
struct Sha2 {
    word: usize,
    rounds: usize,
    round: usize,
    sigma: usize,
    sum: usize,
}

/// A round rotates six times and has four logic operations, a sigma has three shifts and one logic operation.
const SHA256: Sha2 = Sha2 { word: 4, rounds: 64, round: 10, sigma: 4, sum: 0 };
/// Everything twice, since a word has two halves. A sum of up to three values carries once into the higher half: in a round there are four such sums,
/// in a word of the schedule two.
const SHA512: Sha2 = Sha2 { word: 8, rounds: 80, round: 2 * 10 + 4, sigma: 2 * 4, sum: 2 };

impl Sha2 {
    /// Integer operations of `bytes` bytes, of which those outside of `varying` are known before, as is the state.
    fn integers(&self, bytes: usize, varying: Range<usize>) -> usize {
        let of_block = |block: usize| {
            let at = |i: usize| self.word * (16 * block + i);
            // Bit t: whether word t varies.
            let mut varies: u128 =
                (0..16).filter(|i| at(*i) + self.word > varying.start && at(*i) < varying.end).map(|i| 1 << i).sum();
            for t in 16..self.rounds {
                let depends = [2, 7, 15, 16].iter().any(|before| varies >> (t - before) & 1 == 1);
                varies |= u128::from(depends) << t;
            }
            let number = |words: Range<usize>| (varies >> words.start & ((1 << words.len()) - 1)).count_ones() as usize;
            // Until a word that varies has been added.
            let known = if block == 0 { varies.trailing_zeros() as usize + 1 } else { 0 };
            let sigmas = number(14..self.rounds - 2) + number(1..self.rounds - 15);
            (self.rounds - known) * self.round + sigmas * self.sigma + number(16..self.rounds) * self.sum
        };
        (0..(bytes + 2 * self.word + 1).div_ceil(16 * self.word)).map(of_block).sum()
    }
}

/// Integer operations of a round of Keccak but for the constant: θ has 20 logic operations for the columns' sums, 10 shifts and 50 logic operations, ρ has 48
/// shifts, χ has 50 logic operations.
const KECCAK_ROUND: usize = 20 + 10 + 50 + 48 + 50;
/// Those of the constants: of 24 low halves none is zero, of 24 high halves 11 are.
const KECCAK_INTEGERS: usize = 24 * KECCAK_ROUND + 24 + 13;

/// Integer operations of SHAKE256 for `bytes` bytes, of which those outside of `varying` are known before, and `out` bytes of output: in the first round, most
/// lanes are zero or known, and in the last one few are needed.
fn keccak_integers(bytes: usize, varying: Range<usize>, out: usize) -> usize {
    // The padding begins and ends a lane of the last block, and the first block has the lanes of the rate.
    let is_zero = |lane: usize| lane > 16 || lane > bytes / 8 && lane < 16;
    let varies = |lane: usize| lane < 17 && 8 * lane + 8 > varying.start && 8 * lane < varying.end;
    let column = |x: usize| (x % 5..25).step_by(5);
    let sum_varies = |x: usize| column(x).any(varies);
    let first = |x: usize| {
        let sum = column(x).filter(|lane| varies(*lane)).count();
        let known = column(x).any(|lane| !varies(lane) && !is_zero(lane));
        let of_sum = if sum > 0 { (sum + usize::from(known)) / 2 + 1 } else { 0 };
        let changed = sum_varies(x + 4) || sum_varies(x + 1);
        let lanes = || column(x).filter(|lane| changed || varies(*lane));
        // Lanes of zeros are alike until they are rotated, and lane 0 is not rotated.
        let zeros = usize::from(lanes().any(is_zero));
        let others = lanes().filter(|lane| !is_zero(*lane)).count();
        2 * (of_sum + zeros + others + lanes().filter(|lane| *lane > 0).count())
    };
    let first: usize = (0..5).map(first).sum::<usize>() + 50;
    // Each of the lanes depends on the next two in its row.
    let lanes = out / 8;
    let read = (lanes + 2).min(5);
    let last = 20 + 2 * read + 2 * read + 2 * (read - 1) + 2 * lanes;
    (bytes / 136 + 1) * KECCAK_INTEGERS - (KECCAK_ROUND - first) - (KECCAK_ROUND - last)
}

/// E[Σ digits] of a WOTS+ message with uniform digits, its checksum included: the steps that signing takes.
fn mean_digit_sum(p: &Params) -> f64 {
    let (w, len1) = (p.w(), p.len1());
    let top = len1 * (w - 1);
    // sums[s] = probability that some of the len₁ message digits add up to s; below[s] = that they add up to less.
    let (mut sums, mut below) = (vec![0.0; top + 1], vec![0.0; top + 2]);
    sums[0] = 1.0;
    for _ in 0..len1 {
        for s in 0..=top {
            below[s + 1] = below[s] + sums[s];
        }
        for s in 0..=top {
            sums[s] = (below[s + 1] - below[(s + 1).saturating_sub(w)]) / w as f64;
        }
    }
    sums.iter()
        .enumerate()
        .map(|(s, probability)| {
            let (mut checksum, mut digits) = (top - s, s);
            for _ in 0..p.len2() {
                digits += checksum % w;
                checksum /= w;
            }
            probability * digits as f64
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::*;

    /// Compressions of key generation, signing and verification as a script of its own counts them: in SHA-256 or Keccak, and in
    /// SHA-512. Of a verification it is the mean over all messages, from the exact distribution of the digits' sum.
    #[test]
    #[rustfmt::skip]
    fn work_agrees_with_an_independent_count() {
        let counts = [
            (&SLH_DSA_SHA2_128S, [(292_351.0, 0.0), (2_218_487.0, 0.0), (2_192.860, 0.0)]),
            (&SLH_DSA_SHA2_128F, [(4_567.0, 0.0), (106_796.0, 0.0), (6_408.704, 0.0)]),
            (&SLH_DSA_SHA2_192S, [(417_792.0, 5_631.0), (3_481_600.0, 317_939.0), (2_750.231, 378.0)]),
            (&SLH_DSA_SHA2_192F, [(6_528.0, 87.0), (160_512.0, 10_343.0), (8_623.153, 560.0)]),
            (&SLH_DSA_SHA2_256S, [(274_432.0, 4_863.0), (2_916_352.0, 399_344.0), (4_069.381, 526.0)]),
            (&SLH_DSA_SHA2_256F, [(17_152.0, 303.0), (327_424.0, 23_054.0), (8_635.685, 703.0)]),
            (&SLH_DSA_SHAKE_128S, [(289_791.0, 0.0), (2_200_560.0, 0.0), (2_153.860, 0.0)]),
            (&SLH_DSA_SHAKE_128F, [(4_527.0, 0.0), (105_904.0, 0.0), (6_289.704, 0.0)]),
            (&SLH_DSA_SHAKE_192S, [(423_423.0, 0.0), (3_799_534.0, 0.0), (3_126.231, 0.0)]),
            (&SLH_DSA_SHAKE_192F, [(6_615.0, 0.0), (170_850.0, 0.0), (9_181.153, 0.0)]),
            (&SLH_DSA_SHAKE_256S, [(279_039.0, 0.0), (3_313_642.0, 0.0), (4_584.381, 0.0)]),
            (&SLH_DSA_SHAKE_256F, [(17_439.0, 0.0), (350_199.0, 0.0), (9_317.685, 0.0)]),
        ];
        for (p, counts) in counts {
            for (op, (short, sha512)) in [Op::Keygen, Op::Sign, Op::Verify].into_iter().zip(counts) {
                let (sha256, keccak) = match p.family {
                    Family::Sha2 => (short, 0.0),
                    Family::Shake => (0.0, short),
                };
                let work = Plan::new(p, op).work();
                let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-3;
                let same = near(work.sha256, sha256) && near(work.sha512, sha512) && near(work.keccak, keccak);
                assert!(same, "{p}, {op:?}: {work:?}");
            }
        }
    }

    /// Operations of single calls as a script of its own counts them, which follows each value through the rounds.
    #[test]
    fn integer_operations_agree_with_an_independent_count() {
        fn of(p: &Params, call: impl Fn(&mut Work, &Params)) -> f64 {
            let mut work = Work::default();
            call(&mut work, p);
            work.integers()
        }
        let counts = [
            (&SLH_DSA_SHA2_128F, [904.0, 890.0, 922.0, 946.0]),
            (&SLH_DSA_SHAKE_128F, [4121.0, 4089.0, 4139.0, 4151.0]),
            (&SLH_DSA_SHAKE_192F, [4151.0, 4097.0, 4155.0, 4165.0]),
            (&SLH_DSA_SHAKE_256F, [4161.0, 4103.0, 4165.0, 4171.0]),
        ];
        for (p, [step, prf, f, h]) in counts {
            let of = [
                of(p, |work, p| work.step(p, 1.0)),
                of(p, |work, p| work.prf(p, 1.0)),
                of(p, |work, p| work.t(p, 1, 1.0)),
                of(p, |work, p| work.t(p, 2, 1.0)),
            ];
            assert_eq!(of, [step, prf, f, h], "{p}");
        }
        let step = |p| of(p, |work, p| work.step(p, 1.0));
        assert_eq!([&SLH_DSA_SHA2_192F, &SLH_DSA_SHA2_256F].map(step), [930.0, 940.0]);
        // A block whose words all vary saves nothing.
        let (two, three) = (SHA256.integers(64 + 55, 0..128), SHA256.integers(128 + 55, 0..192));
        assert_eq!(
            (three - two, SHA512.integers(256 + 111, 0..384) - SHA512.integers(128 + 111, 0..256)),
            (1024, 3072)
        );
    }

    /// Every operation takes a GPU at its peak less time than as many whole calls, and a CPU as long as before.
    #[test]
    fn a_gpu_saves_what_a_cpu_computes() {
        let gpu = Rates::of_integers(1e12);
        let cpu = Rates { integers: 0.0, ..gpu };
        for p in PARAMETER_SETS {
            for op in [Op::Keygen, Op::Sign, Op::Verify] {
                let work = Plan::new(p, op).work();
                let share = work.seconds(&gpu) / work.seconds(&cpu);
                assert!((0.87..0.97).contains(&share), "{p}, {op:?}: {share}");
            }
        }
        let whole = Work { sha256: 1.0, sha512: 1.0, keccak: 1.0, saved: 0.0 };
        assert_eq!((whole.integers(), whole.seconds(&gpu)), (8405.0, 8405.0 / 1e12));
    }

    /// A digit and its checksum always add up to w − 1. All sets have an even number of digits; here it is one.
    #[test]
    fn one_digit_and_its_checksum_have_one_sum() {
        assert_eq!(mean_digit_sum(&Params { n: 1, lg_w: 8, ..SLH_DSA_SHA2_128F }), 255.0);
    }

    #[test]
    fn caching_drops_exactly_the_top_trees() {
        let p = &SLH_DSA_SHA2_128F;
        let plan = Plan::new(p, Op::Sign).with_cached_layers(2);
        let tree = Plan::new(p, Op::Keygen).work().sha256;
        let replay = 2.0 * (p.len() as f64 + mean_digit_sum(p));
        let left = Plan::new(p, Op::Sign).work().sha256 - 2.0 * tree + replay;
        assert!((plan.work().sha256 - left).abs() < 1e-6);
        assert_eq!(plan.stages.len(), 5);
        assert_eq!(Plan::new(p, Op::Sign).with_cached_layers(0), Plan::new(p, Op::Sign));
        assert_eq!(cache_bytes(p, 2), Some((1 + 8) * 15 * 16));
        assert_eq!(cache_bytes(p, 22), None);
    }

    /// The sizes of more layers fit a `usize`, but no plan has so many trees.
    #[test]
    fn no_set_caches_more_layers_than_it_has_or_a_plan_takes() {
        assert_eq!([most_cached_layers(&SLH_DSA_SHA2_128F), most_cached_layers(&SLH_DSA_SHA2_192F)], [11, 11]);
        for p in PARAMETER_SETS {
            let most = most_cached_layers(p);
            assert!((1..=p.d).contains(&most), "{p}");
            assert_eq!(Plan::cache(p, most).stages.len(), most, "{p}");
        }
        #[cfg(target_pointer_width = "64")]
        assert!(cache_bytes(&SLH_DSA_SHA2_128F, 19).is_some());
    }

    #[test]
    fn signing_grows_every_tree_and_caching_keeps_the_top_ones() {
        let p = &SLH_DSA_SHA2_192F;
        let grow =
            |layers, trees, reveal| Stage::Treehash { forest: Forest::Xmss { layers }, trees, height: 3, reveal };
        let fors = Stage::Treehash { forest: Forest::Fors, trees: 33, height: 8, reveal: true };
        assert_eq!(Plan::new(p, Op::Keygen).stages, [grow((21, 22), 1, false)]);
        let signing = [fors, Stage::ForsPk, grow((0, 22), 22, true), Stage::WotsSelect { layers: 22 }];
        assert_eq!(Plan::new(p, Op::Sign).stages, signing);
        let verifying = Plan::new(p, Op::Verify).stages;
        assert_eq!(verifying[..2], [Stage::ForsRoots { trees: 33, height: 8 }, Stage::ForsPk]);
        assert!(verifying[2..].iter().copied().eq((0..22).map(|layer| Stage::XmssRoot { layer })));
        let cached = Plan::cache(p, 3);
        assert_eq!(cached.stages, [grow((21, 22), 1, false), grow((20, 21), 8, false), grow((19, 20), 64, false)]);
        assert_eq!((cached.cached_layers, Plan::new(p, Op::Cache)), (3, Plan::cache(p, 1)));
        let short = Plan::new(p, Op::Sign).with_cached_layers(3);
        let left = [grow((0, 19), 19, true), Stage::WotsSelect { layers: 19 }, Stage::WotsSign { layers: (19, 22) }];
        assert_eq!((&short.stages[..2], &short.stages[2..], short.cached_layers), (&signing[..2], &left[..], 3));
        let none = Plan::new(p, Op::Sign).with_cached_layers(22).stages;
        assert_eq!(none[2..], [Stage::WotsSign { layers: (0, 22) }]);
    }

    #[test]
    #[should_panic(expected = "1 to d layers")]
    fn no_layer_is_not_cached() {
        let _ = Plan::cache(&SLH_DSA_SHA2_128F, 0);
    }

    #[test]
    #[should_panic(expected = "at most d of them")]
    fn more_layers_than_there_are_cannot_be_skipped() {
        let _ = Plan::new(&SLH_DSA_SHA2_128F, Op::Sign).with_cached_layers(23);
    }

    #[test]
    #[should_panic(expected = "only signing skips layers")]
    fn verification_skips_no_layer() {
        let _ = Plan::new(&SLH_DSA_SHA2_128F, Op::Verify).with_cached_layers(1);
    }

    #[test]
    fn jobs_put_out_what_the_standard_says() {
        let p = &SLH_DSA_SHAKE_192S;
        let bytes = [Op::Keygen, Op::Sign, Op::Verify, Op::Cache].map(|op| Plan::new(p, op).out_bytes());
        assert_eq!(bytes, [24, 16_224, 24, 1023 * 24]);
        assert_eq!(cache_bytes(p, 0), Some(0));
        assert_eq!(cache_bytes(p, 2), Some((1 + 512) * 1023 * 24));
    }
}
