//! Merkle trees over SHA-256 (RFC 9162, 2.1.1).

use hypergrove::rows::{Column, RowStatus};
use hypergrove::{Engine, Error};

/// The SHA-256 sum of each message of a column.
pub(crate) fn sums(engine: &Engine, messages: Column<'_>) -> Result<Vec<[u8; 32]>, Error> {
    let mut sums = vec![[0; 32]; messages.rows()];
    engine.sha256_rows(messages, sums.as_flattened_mut(), &mut vec![RowStatus::default(); messages.rows()])?;
    Ok(sums)
}

/// The Merkle tree of RFC 9162, section 2.1.1, over any number of entries. It computes the root in memory that grows only with the
/// tree's height. The hash of a leaf is SHA-256(0x00 ‖ entry), that of a node SHA-256(0x01 ‖ left ‖ right). For n > 1 entries, the left
/// subtree has the largest power of two below n. Without entries, the root is SHA-256 of the empty string.
pub(crate) struct MerkleTree<'e> {
    engine: &'e Engine,
    /// The node of each level that has no sibling yet.
    alone: Vec<Option<[u8; 32]>>,
}

impl<'e> MerkleTree<'e> {
    /// The byte before an entry when its leaf is hashed.
    pub(crate) const LEAF: u8 = 0;
    /// The byte before two nodes when their parent is hashed.
    const NODE: u8 = 1;

    /// The tree of no entries.
    pub(crate) fn new(engine: &'e Engine) -> MerkleTree<'e> {
        MerkleTree { engine, alone: Vec::new() }
    }

    /// Appends entries whose leaves have these hashes.
    pub(crate) fn extend(&mut self, mut nodes: Vec<[u8; 32]>) -> Result<(), Error> {
        for level in 0.. {
            if nodes.is_empty() {
                break;
            }
            if self.alone.len() == level {
                self.alone.push(None);
            }
            nodes.splice(0..0, self.alone[level].take());
            self.alone[level] = if nodes.len() % 2 == 1 { nodes.pop() } else { None };
            nodes = parents(self.engine, &nodes)?;
        }
        Ok(())
    }

    /// The root.
    pub(crate) fn root(self) -> Result<[u8; 32], Error> {
        // A node that remains on a lower level lies to the right of the nodes above.
        let mut nodes = self.alone.into_iter().flatten();
        match nodes.next() {
            Some(lowest) => nodes.try_fold(lowest, |right, left| Ok(parents(self.engine, &[left, right])?[0])),
            None => Ok(sums(self.engine, Column::Slices(&[b""]))?[0]),
        }
    }
}

/// The parents of pairs of nodes.
fn parents(engine: &Engine, nodes: &[[u8; 32]]) -> Result<Vec<[u8; 32]>, Error> {
    const EACH: usize = 65;
    let mut bytes = Vec::with_capacity(nodes.len() / 2 * EACH);
    for pair in nodes.as_chunks::<2>().0 {
        bytes.push(MerkleTree::NODE);
        bytes.extend_from_slice(pair.as_flattened());
    }
    sums(engine, Column::packed(&bytes, EACH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn sum(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    fn engine() -> Engine {
        Engine::builder().threads(1).build().unwrap()
    }

    /// Entries and roots that implementations of Certificate Transparency test with.
    #[test]
    fn the_tree_of_rfc_9162() {
        let entries =
            ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let engine = engine();
        for (count, root) in roots.iter().enumerate() {
            let mut tree = MerkleTree::new(&engine);
            for entry in &entries[..count] {
                tree.extend(vec![sum(&[&[MerkleTree::LEAF][..], &hex::decode(entry).unwrap()].concat())]).unwrap();
            }
            assert_eq!(hex::encode(tree.root().unwrap()), *root, "{count} entries");
        }
    }

    /// Many leaves, in batches of odd and even sizes.
    #[test]
    fn large_trees() {
        let engine = engine();
        let leaves: Vec<[u8; 32]> = (0..150_001u32).map(|i| sum(&i.to_le_bytes())).collect();
        let mut level = leaves.clone();
        while level.len() > 1 {
            // A node without a sibling goes up as it is: the same tree, computed from below.
            let pair = |pair: &[[u8; 32]]| match pair {
                [left, right] => sum(&[&[1], &left[..], right].concat()),
                alone => alone[0],
            };
            level = level.chunks(2).map(pair).collect();
        }
        let mut tree = MerkleTree::new(&engine);
        let (some, others) = leaves.split_at(70_001);
        for batch in [some, &[], &others[..2], &others[2..3], &others[3..]] {
            tree.extend(batch.to_vec()).unwrap();
        }
        assert_eq!(tree.root().unwrap(), level[0]);
    }
}
