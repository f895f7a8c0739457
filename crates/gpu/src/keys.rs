//! Lays out a key as kernels read it, on the host. For many keys the kernel `keys` does this.

use crate::gpu::put_words;
use hypergrove_engine::Key;
use hypergrove_fips205::sha2::{IV256, IV512};
use hypergrove_fips205::{Family, Params};
use hypergrove_kernels::KEY_WORDS;
use sha2::block_api::{compress256, compress512};
use zeroize::Zeroizing;

/// Writes a key as words: PK.seed from word 0, SK.seed from 8, with SHA2 the hash states after PK.seed's block from 16, and the address of the cached nodes
/// in 40 (low) and 41 (high).
pub(crate) fn lay_out(p: &Params, key: &Key<'_>, nodes: u64, to: &mut [u8]) {
    let mut words = Zeroizing::new([0u32; KEY_WORDS]);
    let word_of = match p.family {
        Family::Sha2 => u32::from_be_bytes,
        Family::Shake => u32::from_le_bytes,
    };
    for (seed, at) in [(key.pk_seed, 0), (key.sk_seed, 8)] {
        for (word, bytes) in words[at..].iter_mut().zip(seed.chunks_exact(4)) {
            *word = word_of(bytes.try_into().expect("four bytes"));
        }
    }
    match p.family {
        Family::Sha2 => words[16..40].copy_from_slice(&midstates(key.pk_seed)),
        Family::Shake => {}
    }
    words[40] = nodes as u32;
    words[41] = (nodes >> 32) as u32;
    put_words(to, words.iter().copied());
}

/// The states of SHA-256 and SHA-512 after the block of PK.seed and zeros; 64-bit words are written high, low.
fn midstates(pk_seed: &[u8]) -> [u32; 24] {
    let (mut words, mut block) = ([0; 24], [0; 128]);
    block[..pk_seed.len()].copy_from_slice(pk_seed);
    let mut state = IV256;
    compress256(&mut state, &[block[..64].try_into().expect("64 bytes")]);
    words[..8].copy_from_slice(&state);
    let mut state = IV512;
    compress512(&mut state, &[block]);
    for (pair, word) in words[8..].chunks_exact_mut(2).zip(state) {
        pair.copy_from_slice(&[(word >> 32) as u32, word as u32]);
    }
    words
}
