//! Where every part of a signature lies, and which leaves it reveals.

use crate::params::{MAX_K, Params};
use core::fmt;
use core::ops::{Deref, DerefMut, Range};

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

/// The revealed leaf of each FORS tree. It lies where it is used: a batch has one for every message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ForsLeaves {
    count: u8,
    /// Those that there are not are 0.
    leaves: [u32; MAX_K],
}

impl FromIterator<u32> for ForsLeaves {
    /// Of one tree after the other. Panics if there are more of them than any set has.
    fn from_iter<I: IntoIterator<Item = u32>>(given: I) -> ForsLeaves {
        let mut all = ForsLeaves { count: 0, leaves: [0; MAX_K] };
        for leaf in given {
            all.leaves[usize::from(all.count)] = leaf;
            all.count += 1;
        }
        all
    }
}

impl Deref for ForsLeaves {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.leaves[..usize::from(self.count)]
    }
}

impl DerefMut for ForsLeaves {
    fn deref_mut(&mut self) -> &mut [u32] {
        &mut self.leaves[..usize::from(self.count)]
    }
}

impl fmt::Debug for ForsLeaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The leaves that the message digest selects (FIPS 205, Algorithm 19, lines 6–13): public, since the signature shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The revealed leaf of each FORS tree: md in base 2^a.
    pub fors: ForsLeaves,
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
        let (mut bits, mut have, mut bytes) = (0u64, 0, md.iter());
        let leaf_of_tree = |_| {
            while have < p.a {
                bits = bits << 8 | u64::from(*bytes.next().expect("md has k·a bits"));
                have += 8;
            }
            have -= p.a;
            (bits >> have) as u32 & mask(p.a) as u32
        };
        let fors = (0..p.k).map(leaf_of_tree).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::known_sets;
    use alloc::vec;

    /// R ‖ SIG_FORS ‖ SIG_HT, and what these are made of, leave no byte out.
    #[test]
    fn parts_follow_each_other() {
        for p in known_sets() {
            let mut at = 0;
            let mut follows = |part: Range<usize>, bytes: usize| {
                assert_eq!(part, at..at + bytes, "{p}");
                at += bytes;
                at
            };
            follows(p.r_range(), p.n);
            let fors = (0..p.k).map(|i| follows(p.fors_tree_range(i), (1 + p.a) * p.n)).last();
            let fors = fors.expect("a set has FORS trees");
            let end = (0..p.d).map(|layer| follows(p.xmss_range(layer), (p.len() + p.hp) * p.n)).last();
            assert_eq!(
                (p.fors_range(), p.ht_range(), end),
                (p.n..fors, fors..p.sig_bytes(), Some(p.sig_bytes())),
                "{p}"
            );
        }
    }

    /// The number that these bits of the bytes are, the first bit on top.
    fn number(bytes: &[u8], bits: Range<usize>) -> u128 {
        bits.fold(0, |number, i| number << 1 | u128::from(bytes[i / 8] >> (7 - i % 8) & 1))
    }

    /// Bit by bit: FORS indices are the first k·a bits, the tree and the leaf the last bits of their bytes.
    #[test]
    fn digests_are_split_as_bits() {
        for p in known_sets() {
            let counted = (0..p.m).map(|i| (i * 151 + 43) as u8).collect();
            for digest in [vec![0xff; p.m], vec![0; p.m], vec![0x5a; p.m], counted] {
                let position = Position::split(p, &digest);
                let fors = (0..p.k).map(|i| number(&digest, i * p.a..(i + 1) * p.a));
                assert!(position.fors.iter().map(|index| u128::from(*index)).eq(fors), "{p}");
                let tree_end = 8 * ((p.k * p.a).div_ceil(8) + (p.h - p.hp).div_ceil(8));
                let (tree, leaf) =
                    (number(&digest, tree_end + p.hp - p.h..tree_end), number(&digest, 8 * p.m - p.hp..8 * p.m));
                assert_eq!((u128::from(position.idx_tree), u128::from(position.idx_leaf)), (tree, leaf), "{p}");
                // The path to the top, as one number: each layer takes its leaf off the low end.
                let mut path = tree << p.hp | leaf;
                for layer in 0..p.d {
                    let (of, at) = position.at_layer(p, layer);
                    assert_eq!(
                        (u128::from(of), u128::from(at)),
                        (path >> p.hp, path % (1 << p.hp)),
                        "{p}, layer {layer}"
                    );
                    path >>= p.hp;
                }
            }
        }
    }
}
