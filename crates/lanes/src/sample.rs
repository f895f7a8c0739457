//! Rejection sampling from streams, in plain Rust: what sets without a way of their own run, and what the others are read
//! against.

use crate::field::Q;
use crate::ntt::N;

/// Numbers beyond the last that [`Lattice`](crate::Lattice)'s samplers may overwrite.
pub const SLACK: usize = 8;

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
        count += usize::from(d < 15);
        if count == N {
            return true;
        }
    }
    false
}
