//! Digits of a WOTS+ message, and the signatures made of them.

use hypergrove_fips205::Params;
use hypergrove_taint::declassify;

/// The len digits of a message and its checksum (FIPS 205, Algorithm 7, lines 1–7). They are public: signatures show them.
pub(crate) fn digits(p: &Params, message: &[u8], out: &mut [u8]) {
    // The message is a FORS public key or the root of a tree: whoever has the signature can compute it.
    declassify(message);
    let (values, checksum) = out.split_at_mut(p.len1());
    base_2b(message, p.lg_w, values);
    let sum: usize = values.iter().map(|digit| p.w() - 1 - usize::from(*digit)).sum();
    let bits = p.len2() * p.lg_w;
    // The checksum's digits are the first ones of its bytes, so it is shifted up to a whole number of bytes.
    let shifted = (sum << (bits.div_ceil(8) * 8 - bits)) as u64;
    base_2b(&shifted.to_be_bytes()[8 - bits.div_ceil(8)..], p.lg_w, checksum);
}

/// base_2^b (FIPS 205, Algorithm 4).
fn base_2b(bytes: &[u8], b: usize, out: &mut [u8]) {
    let (mut bits, mut have, mut next) = (0u32, 0, bytes.iter());
    for digit in out {
        while have < b {
            bits = bits << 8 | u32::from(*next.next().expect("8n is a multiple of lg_w"));
            have += 8;
        }
        have -= b;
        *digit = (bits >> have & ((1 << b) - 1)) as u8;
    }
}

/// Picks the signature out of the chains' kept values: value `digit` of each chain.
pub(crate) fn select(p: &Params, digits: &[u8], trace: &[u8], out: &mut [u8]) {
    for ((chain, digit), value) in trace.chunks_exact(p.w() * p.n).zip(digits).zip(out.chunks_exact_mut(p.n)) {
        value.copy_from_slice(&chain[usize::from(*digit) * p.n..][..p.n]);
    }
}
