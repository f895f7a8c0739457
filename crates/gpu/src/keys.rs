//! A key as kernels want it, laid out by the host: what the kernel `keys` does for many.

use hypergrove_engine::Key;
use hypergrove_fips205::{Family, Params};
use hypergrove_kernels::KEY_WORDS;
use sha2::block_api::{compress256, compress512};
use zeroize::Zeroizing;

/// PK.seed and SK.seed as words, the hash states after PK.seed's block, the address of the cached nodes.
pub(crate) fn lay_out(p: &Params, key: &Key<'_>, nodes: u64, to: &mut [u8]) {
    let mut words = Zeroizing::new([0u32; KEY_WORDS]);
    for (seed, at) in [(key.pk_seed, 0), (key.sk_seed, 8)] {
        for (word, bytes) in words[at..].iter_mut().zip(seed.chunks_exact(4)) {
            let bytes = bytes.try_into().expect("four bytes");
            *word = if p.family == Family::Sha2 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        }
    }
    if p.family == Family::Sha2 {
        let mut block = [0; 128];
        block[..p.n].copy_from_slice(key.pk_seed);
        let mut state = IV512.map(|word| (word >> 32) as u32);
        compress256(&mut state, &[block[..64].try_into().expect("64 bytes")]);
        words[16..24].copy_from_slice(&state);
        let mut state = IV512;
        compress512(&mut state, &[block]);
        for (pair, word) in words[24..40].chunks_exact_mut(2).zip(state) {
            pair.copy_from_slice(&[(word >> 32) as u32, word as u32]);
        }
    }
    words[40] = nodes as u32;
    words[41] = (nodes >> 32) as u32;
    for (to, word) in to.chunks_exact_mut(4).zip(words.iter()) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// FIPS 180-4, 5.3.5; the upper halves are SHA-256's.
const IV512: [u64; 8] = [
    0x6a09e667f3bcc908,
    0xbb67ae8584caa73b,
    0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1,
    0x510e527fade682d1,
    0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b,
    0x5be0cd19137e2179,
];
