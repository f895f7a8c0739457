//! Pre-hashing with the vector instructions of this CPU.

use hypergrove_fips205::digest::BlockHash;
use hypergrove_fips205::{PreHash, PreHasher};

/// Hashes a message that comes in parts, for [`Mode::Digest`](crate::Mode::Digest). The digest is that of [`PreHash::hasher`]. On x86-64 with
/// AVX2 this hasher is faster, except for SHA-224 and SHA-256, for which CPUs have instructions.
pub fn pre_hasher(hash: PreHash) -> PreHasher {
    match block_hash() {
        Some(by) => hash.hasher_by(by),
        None => hash.hasher(),
    }
}

/// The fastest of AVX-512 and AVX2 that this CPU has. Other CPUs have instructions for SHA-512 and Keccak that the crates behind
/// `PreHash::hasher` use, or no vectors.
#[cfg(target_arch = "x86_64")]
fn block_hash() -> Option<&'static dyn BlockHash> {
    use hypergrove_cpu::{Isa, block_hash};
    use std::sync::LazyLock;
    static FASTEST: LazyLock<Option<Box<dyn BlockHash>>> =
        LazyLock::new(|| [Isa::Avx512, Isa::Avx2].into_iter().find_map(block_hash));
    FASTEST.as_deref()
}

#[cfg(not(target_arch = "x86_64"))]
fn block_hash() -> Option<&'static dyn BlockHash> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_crates_agree() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * i / 3) as u8).collect();
        for hash in PreHash::ALL {
            for length in (0..300).chain((300..2000).step_by(37)) {
                let mut hasher = pre_hasher(hash);
                bytes[..length].chunks(1 + length % 190).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish(), hash.hash(&[&bytes[..length]]), "{hash}, {length} bytes");
            }
        }
    }
}
