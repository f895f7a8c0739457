//! Hash addresses (FIPS 205, 4.2–4.3 and 11.2).

/// The seven kinds of address (FIPS 205, Table 1 and Figures 3–9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum AdrsType {
    /// WOTS_HASH: a step of a WOTS+ chain.
    WotsHash = 0,
    /// WOTS_PK: compression of a WOTS+ public key.
    WotsPk = 1,
    /// TREE: a node of an XMSS tree.
    Tree = 2,
    /// FORS_TREE: a leaf or node of a FORS tree.
    ForsTree = 3,
    /// FORS_ROOTS: compression of the FORS roots.
    ForsRoots = 4,
    /// WOTS_PRF: the secret start of a WOTS+ chain.
    WotsPrf = 5,
    /// FORS_PRF: a FORS secret.
    ForsPrf = 6,
}

/// An address, as eight big-endian words: layer, tree (three words), type, and three words of the type's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Adrs(pub [u32; 8]);

impl Adrs {
    /// An address in `tree` of `layer`; the type's own words are zero (setTypeAndClear).
    pub const fn new(layer: u32, tree: u64, kind: AdrsType) -> Adrs {
        Adrs([layer, 0, (tree >> 32) as u32, tree as u32, kind as u32, 0, 0, 0])
    }
    /// setKeyPairAddress.
    #[must_use]
    pub const fn key_pair(mut self, i: u32) -> Adrs {
        self.0[5] = i;
        self
    }
    /// setChainAddress.
    #[must_use]
    pub const fn chain(mut self, i: u32) -> Adrs {
        self.0[6] = i;
        self
    }
    /// setHashAddress.
    #[must_use]
    pub const fn hash(mut self, i: u32) -> Adrs {
        self.0[7] = i;
        self
    }
    /// setTreeHeight and setTreeIndex.
    #[must_use]
    pub const fn node(mut self, height: u32, index: u32) -> Adrs {
        self.0[6] = height;
        self.0[7] = index;
        self
    }
    /// The 32 bytes that SHAKE absorbs.
    pub fn bytes(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for (bytes, word) in out.chunks_exact_mut(4).zip(self.0) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        out
    }
    /// ADRS^c, the 22 bytes that SHA-2 absorbs (FIPS 205, 11.2).
    pub fn compressed(&self) -> [u8; 22] {
        let b = self.bytes();
        let mut out = [0; 22];
        out[0] = b[3];
        out[1..9].copy_from_slice(&b[8..16]);
        out[9] = b[19];
        out[10..].copy_from_slice(&b[20..]);
        out
    }
}
