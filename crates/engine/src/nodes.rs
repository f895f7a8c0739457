//! The nodes of a key's top layers, and the place where [`Op::Cache`](hypergrove_fips205::Op) puts each.

use crate::Error;
use hypergrove_fips205::Params;
use hypergrove_fips205::plan::cache_bytes;

/// All nodes of the hypertree's top layers, laid out as [`cache_bytes`] says.
#[derive(Clone, Copy, Debug)]
pub struct CachedNodes<'a> {
    params: &'static Params,
    layers: usize,
    bytes: &'a [u8],
}

impl<'a> CachedNodes<'a> {
    /// The nodes of the top `layers` layers. A wrong length is an error.
    pub fn new(params: &'static Params, layers: usize, bytes: &'a [u8]) -> Result<CachedNodes<'a>, Error> {
        let want = cache_bytes(params, layers).filter(|_| layers <= params.d);
        match want {
            Some(want) if want == bytes.len() => Ok(CachedNodes { params, layers, bytes }),
            _ => Err(Error::Length { what: "the cached nodes", want: want.unwrap_or(0), got: bytes.len() }),
        }
    }

    /// Where the node at `height` and `index` of a tree lies. Trees of one layer follow each other; the layers above
    /// have 1 + 2^h′ + … trees.
    pub fn offset(p: &Params, layer: usize, tree: u64, height: usize, index: usize) -> usize {
        let above: usize = (0..p.d - 1 - layer).map(|i| 1 << (p.hp * i)).sum();
        let lower = (2 << p.hp) - (2 << (p.hp - height));
        ((above + tree as usize) * ((2 << p.hp) - 1) + lower + index) * p.n
    }

    /// The layers whose nodes are here: the first, and one past the last.
    pub fn layers(&self) -> std::ops::Range<usize> {
        self.params.d - self.layers..self.params.d
    }

    /// One node; height 0 holds the leaves. The indices are public: signatures show them.
    pub fn node(&self, layer: usize, tree: u64, height: usize, index: usize) -> &'a [u8] {
        let at = CachedNodes::offset(self.params, layer, tree, height, index);
        &self.bytes[at..at + self.params.n]
    }

    /// The root of a tree.
    pub fn root(&self, layer: usize, tree: u64) -> &'a [u8] {
        self.node(layer, tree, self.params.hp, 0)
    }

    /// The authentication path of a leaf, lowest node first.
    pub fn auth(&self, layer: usize, tree: u64, leaf: u32) -> impl Iterator<Item = &'a [u8]> {
        let nodes = *self;
        (0..self.params.hp).map(move |z| nodes.node(layer, tree, z, (leaf as usize >> z) ^ 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_fips205::SLH_DSA_SHA2_128F;

    #[test]
    fn every_node_has_its_own_place_in_order() {
        let p = &SLH_DSA_SHA2_128F;
        let mut at = 0;
        for (layer, trees) in [(21, 1), (20, 8), (19, 64)] {
            for tree in 0..trees {
                for height in 0..=p.hp {
                    for index in 0..1 << (p.hp - height) {
                        assert_eq!(CachedNodes::offset(p, layer, tree, height, index), at);
                        at += p.n;
                    }
                }
            }
        }
        assert_eq!(Some(at), cache_bytes(p, 3));
    }

    #[test]
    fn lengths_are_checked() {
        let p = &SLH_DSA_SHA2_128F;
        assert!(CachedNodes::new(p, 1, &[0; 15 * 16]).is_ok());
        assert_eq!(
            CachedNodes::new(p, 1, &[0; 15 * 16 - 1]).unwrap_err(),
            Error::Length { what: "the cached nodes", want: 240, got: 239 }
        );
        assert!(CachedNodes::new(p, p.d + 1, &[]).is_err());
    }
}
