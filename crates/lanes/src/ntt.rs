//! The number-theoretic transform of Z_q\[X\]/(X²⁵⁶ + 1) in lanes: value i is a(ζ^(2·brv(i) + 1)), brv reversing 8 bits.
//!
//! A pass computes two layers. Twiddle factors form a heap: block k of a layer splits into blocks 2k and 2k + 1 of the next.

use crate::field::{Factor, Q, power};
use crate::simd::Doubles;

/// Coefficients of a polynomial.
pub(crate) const N: usize = 256;

pub(crate) struct Tables {
    /// ζ^brv(k), k = 1…255.
    forward: Box<[Factor]>,
    /// The inverses of `forward`, of which number 1 is divided by 256.
    inverse: Box<[Factor]>,
    /// 1/256.
    scale: Factor,
}

impl Tables {
    /// Tables from a primitive 512th root of unity.
    pub(crate) fn new(zeta: u32) -> Tables {
        let root = |k: usize| power(zeta, (k as u8).reverse_bits().into());
        let inverse = |x: u32| power(x, Q as u32 - 2);
        let scale = inverse(N as u32);
        let product = |a: u32, b: u32| (u64::from(a) * u64::from(b) % Q as u64) as u32;
        Tables {
            forward: (0..N).map(|k| Factor::new(root(k))).collect(),
            inverse: (0..N).map(|k| Factor::new(product(inverse(root(k)), if k == 1 { scale } else { 1 }))).collect(),
            scale: Factor::new(scale),
        }
    }
}

/// Values of a polynomial: |coefficient| ≤ B gives |value| ≤ B + 8·(q + 1)/2, where B ≤ 600·q/2.
#[inline(always)]
pub(crate) fn ntt<V: Doubles>(tables: &Tables, a: &mut [V; N]) {
    for (blocks, h) in [(1, 64), (4, 16), (16, 4), (64, 1)] {
        for block in 0..blocks {
            let k = blocks + block;
            let (z, z0, z1) = (&tables.forward[k], &tables.forward[2 * k], &tables.forward[2 * k + 1]);
            let a = &mut a[4 * h * block..][..4 * h];
            for j in 0..h {
                let (t0, t1) = (z.mul(a[j + 2 * h]), z.mul(a[j + 3 * h]));
                let (b0, b1, b2, b3) = (a[j].add(t0), a[j + h].add(t1), a[j].sub(t0), a[j + h].sub(t1));
                let (t0, t1) = (z0.mul(b1), z1.mul(b3));
                (a[j], a[j + h], a[j + 2 * h], a[j + 3 * h]) = (b0.add(t0), b0.sub(t0), b2.add(t1), b2.sub(t1));
            }
        }
    }
}

/// The polynomial of these values, reduced. Sums are left to grow, so |value| ≤ q + 1 must hold.
#[inline(always)]
pub(crate) fn intt<V: Doubles>(tables: &Tables, a: &mut [V; N]) {
    for (blocks, h) in [(64, 1), (16, 4), (4, 16), (1, 64)] {
        for block in 0..blocks {
            let k = blocks + block;
            let (z, z0, z1) = (&tables.inverse[k], &tables.inverse[2 * k], &tables.inverse[2 * k + 1]);
            let a = &mut a[4 * h * block..][..4 * h];
            for j in 0..h {
                let (b0, b1) = (a[j].add(a[j + h]), z0.mul(a[j].sub(a[j + h])));
                let (b2, b3) = (a[j + 2 * h].add(a[j + 3 * h]), z1.mul(a[j + 2 * h].sub(a[j + 3 * h])));
                (a[j + 2 * h], a[j + 3 * h]) = (z.mul(b0.sub(b2)), z.mul(b1.sub(b3)));
                (a[j], a[j + h]) = (b0.add(b2), b1.add(b3));
            }
        }
    }
    for x in &mut a[..N / 2] {
        *x = tables.scale.mul(*x);
    }
}
