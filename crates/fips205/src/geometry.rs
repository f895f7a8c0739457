//! Where every part of a signature lies, and which leaves it reveals.

use crate::params::Params;
use alloc::vec::Vec;
use core::ops::Range;

impl Params {
    /// R.
    pub const fn r_range(&self) -> Range<usize> {
        0..self.n
    }
    /// SIG_FORS: for each of the k trees the revealed secret and its authentication path.
    pub const fn fors_range(&self) -> Range<usize> {
        self.n..self.n + self.fors_bytes()
    }
    /// Bytes of one FORS tree's part: the secret and `a` nodes.
    pub const fn fors_tree_bytes(&self) -> usize {
        (1 + self.a) * self.n
    }
    /// The secret and path of FORS tree `i`.
    pub const fn fors_tree_range(&self, i: usize) -> Range<usize> {
        let at = self.n + i * self.fors_tree_bytes();
        at..at + self.fors_tree_bytes()
    }
    /// SIG_HT: d times SIG_XMSS.
    pub const fn ht_range(&self) -> Range<usize> {
        self.n + self.fors_bytes()..self.sig_bytes()
    }
    /// SIG_XMSS of a layer: the WOTS+ signature and the authentication path.
    pub const fn xmss_range(&self, layer: usize) -> Range<usize> {
        let at = self.n + self.fors_bytes() + layer * self.xmss_bytes();
        at..at + self.xmss_bytes()
    }
}

/// What the message digest selects (FIPS 205, Algorithm 19, lines 6–13): public, since the signature shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The revealed leaf of each FORS tree: md in base 2^a.
    pub fors: Vec<u32>,
    /// The tree of layer 0.
    pub idx_tree: u64,
    /// The leaf of that tree.
    pub idx_leaf: u32,
}

impl Position {
    /// Splits H_msg's m bytes.
    pub fn split(p: &Params, digest: &[u8]) -> Position {
        assert_eq!(digest.len(), p.m, "H_msg gives m bytes");
        let (md, rest) = digest.split_at((p.k * p.a).div_ceil(8));
        let (tree, leaf) = rest.split_at((p.h - p.hp).div_ceil(8));
        let (mut fors, mut bits, mut have) = (Vec::with_capacity(p.k), 0u64, 0);
        let mut bytes = md.iter();
        for _ in 0..p.k {
            while have < p.a {
                bits = bits << 8 | u64::from(*bytes.next().expect("md has k·a bits"));
                have += 8;
            }
            have -= p.a;
            fors.push((bits >> have) as u32 & mask(p.a) as u32);
        }
        Position { fors, idx_tree: to_int(tree) & mask(p.h - p.hp), idx_leaf: (to_int(leaf) & mask(p.hp)) as u32 }
    }
    /// The tree of `layer` on the path to the top, and the leaf there that signs the layer below.
    pub fn at_layer(&self, p: &Params, layer: usize) -> (u64, u32) {
        if layer == 0 {
            return (self.idx_tree, self.idx_leaf);
        }
        let below = self.idx_tree >> (p.hp * (layer - 1));
        (below.checked_shr(p.hp as u32).unwrap_or(0), (below & mask(p.hp)) as u32)
    }
}

/// toInt (FIPS 205, Algorithm 2).
fn to_int(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |x, b| x << 8 | u64::from(*b))
}

/// The lowest `bits` bits, also for 0 and 64 of them.
fn mask(bits: usize) -> u64 {
    1u64.checked_shl(bits as u32).map_or(u64::MAX, |x| x - 1)
}
