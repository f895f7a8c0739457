//! The number-theoretic transform: value i is a(ZETA^(2·brv(i) + 1)), brv reversing 8 bits.

use crate::field::Fe;
use crate::params::{N, ZETA};
use crate::ring::{NttElement, RingElement};

/// ZETA^brv(k).
pub static ZETAS: [Fe; N] = {
    let mut zetas = [Fe::ONE; N];
    let mut k = 0;
    while k < N {
        zetas[k] = Fe::new(ZETA).pow((k as u8).reverse_bits() as u32);
        k += 1;
    }
    zetas
};

/// The values of a ring element.
pub fn ntt(a: &RingElement) -> NttElement {
    let mut a = a.0;
    ntt_in_place(&mut a);
    NttElement(a)
}

/// Coefficients to values.
pub(crate) fn ntt_in_place(a: &mut [Fe; N]) {
    let mut k = 0;
    for len in (0..8).rev().map(|level| 1 << level) {
        for start in (0..N).step_by(2 * len) {
            k += 1;
            for j in start..start + len {
                let t = ZETAS[k] * a[j + len];
                (a[j], a[j + len]) = (a[j] + t, a[j] - t);
            }
        }
    }
}

/// The ring element of these values.
pub fn intt(a: &NttElement) -> RingElement {
    let mut a = a.0;
    intt_in_place(&mut a);
    RingElement(a)
}

/// Values to coefficients.
pub(crate) fn intt_in_place(a: &mut [Fe; N]) {
    const INVERSE_OF_N: Fe = Fe::new(N as u32).inv();
    let mut k = N;
    for len in (0..8).map(|level| 1 << level) {
        for start in (0..N).step_by(2 * len).rev() {
            k -= 1;
            // The roots of a level pair up: brv(k) + brv(3·2^m − 1 − k) = 256 for 2^m ≤ k < 2^(m+1), and
            // ZETA²⁵⁶ = −1.
            let inverse = -ZETAS[3 * (N / 2 / len) - 1 - k];
            for j in (start..start + len).rev() {
                (a[j], a[j + len]) = (a[j] + a[j + len], inverse * (a[j] - a[j + len]));
            }
        }
    }
    a.iter_mut().for_each(|x| *x = *x * INVERSE_OF_N);
}
