//! Rejection sampling from streams, in plain Rust. Instruction sets without samplers of their own use these samplers, which are the reference
//! for the others. Here is also the packing of samples, which is compiled for every set.

use crate::field::Q;
use crate::ntt::N;
use hypergrove_taint::declassified;

/// Numbers beyond the last that [`Lattice`](crate::Lattice)'s samplers may overwrite.
pub const SLACK: usize = 16;

/// Writes the first 256 numbers below q, of which each is 23 bits of three bytes. Returns whether there are so many.
pub(crate) fn uniform(stream: &[u8], out: &mut [i32]) -> bool {
    let mut count = 0;
    for b in stream.as_chunks::<3>().0 {
        let x = i32::from_le_bytes([b[0], b[1], b[2] & 0x7f, 0]);
        // Every candidate is written, and counted if it is below q.
        out[count] = x;
        count += usize::from(x < Q as i32);
        if count == N {
            return true;
        }
    }
    false
}

/// Writes 2 − (d mod 5) of the first 256 nibbles d below 15, the low one of a byte first. Returns whether there are so many.
pub(crate) fn short(stream: &[u8], out: &mut [i32]) -> bool {
    let mut count = 0;
    for d in stream.iter().flat_map(|byte| [byte & 15, byte >> 4]) {
        // ⌊d/5⌋ = ⌊13·d/64⌋ below 15: no division of a secret.
        out[count] = 2 - (i32::from(d) - 5 * ((13 * i32::from(d)) >> 6));
        // The rejected nibbles reveal nothing about those that are kept.
        count += usize::from(declassified(d < 15));
        if count == N {
            return true;
        }
    }
    false
}

/// Packs numbers x from −2 to 2 as codes 2 − x of three bits each (eta3).
#[inline(always)]
pub(crate) fn pack_short(numbers: &[i32], out: &mut [u8]) {
    for (x, out) in numbers.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<3>().0) {
        let mut bits = 0;
        for i in 0..8 {
            bits |= (2 - x[i]) << (3 * i);
        }
        out.copy_from_slice(&bits.to_le_bytes()[..3]);
    }
}
