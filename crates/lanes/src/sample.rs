//! Rejection sampling from streams, in plain Rust: what sets without a way of their own run, and what the others are read
//! against. And the packing of what was sampled, which the compiler lays out for every set.

use crate::field::Q;
use crate::ntt::N;
use hypergrove_taint::declassified;

/// Numbers beyond the last that [`Lattice`](crate::Lattice)'s samplers may overwrite.
pub const SLACK: usize = 16;

/// The first 256 numbers below q, of 23 bits each of three bytes; whether there are as many.
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

/// 2 − (d mod 5) of the first 256 nibbles d below 15, the low one of a byte first; whether there are as many.
pub(crate) fn short(stream: &[u8], out: &mut [i32]) -> bool {
    let mut count = 0;
    for d in stream.iter().flat_map(|byte| [byte & 15, byte >> 4]) {
        // ⌊d/5⌋ = ⌊13·d/64⌋ below 15: no division of a secret.
        out[count] = 2 - (i32::from(d) - 5 * ((13 * i32::from(d)) >> 6));
        // Which nibbles are rejected says nothing of those that are kept.
        count += usize::from(declassified(d < 15));
        if count == N {
            return true;
        }
    }
    false
}

/// eta3: the codes 2 − x of numbers x from −2 to 2, three bits each.
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
