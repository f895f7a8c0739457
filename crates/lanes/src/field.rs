//! The field of q = 7340033 = 7·2²⁰ + 1 in doubles.
//!
//! An element is any integer of its class that is smaller than 2⁵³ in absolute value: sums and products need no
//! reduction as long as they stay below. All operations on such integers are exact, with fused multiply-adds or without
//! them. The crate's README says where the bounds are.

use crate::simd::{Doubles, array};

/// q.
pub(crate) const Q: f64 = 7340033.0;
/// Adding and then subtracting this rounds numbers smaller than 2⁵¹ to integers.
pub(crate) const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

#[inline(always)]
fn round_product<V: Doubles>(x: V, by: V) -> V {
    x.mul_add(by, V::splat(ROUND)).sub(V::splat(ROUND))
}

/// x − q·round(x/q): the representative in [−(q + 1)/2, (q + 1)/2], and 0 if q divides x.
#[inline(always)]
pub(crate) fn reduce<V: Doubles>(x: V) -> V {
    round_product(x, V::splat(1.0 / Q)).neg_mul_add(V::splat(Q), x)
}

/// The representative in [0, q).
#[inline(always)]
pub(crate) fn canonical<V: Doubles>(x: V) -> V {
    let x = reduce(x);
    // (x − (q − 1)/2)/q is at least 1/2q away from a half: rounding it is ⌊x/q⌋.
    round_product(x.sub(V::splat((Q - 1.0) / 2.0)), V::splat(1.0 / Q)).neg_mul_add(V::splat(Q), x)
}

/// Decompose (r₀, r₁) of a canonical r: r = r₁·2¹⁷ + r₀ with −2¹⁶ < r₀ ≤ 2¹⁶, but (r − q, 0) from q − 2¹⁶ on.
#[inline(always)]
pub(crate) fn decompose<V: Doubles>(r: V) -> (V, V) {
    const WIDTH: f64 = (1 << 17) as f64;
    // ⌊(r + 2¹⁶ − 1)/2¹⁷⌋ as (r − 1/2)/2¹⁷ rounded, which is never halfway; 56 where it wraps.
    let high = round_product(r.sub(V::splat(0.5)), V::splat(1.0 / WIDTH));
    let wraps = high.sub(V::splat(55.0)).max(V::splat(0.0));
    // q = 56·2¹⁷ + 1
    (high.neg_mul_add(V::splat(WIDTH), r).sub(wraps), wraps.neg_mul_add(V::splat(56.0), high))
}

/// a·b reduced; |a·b| < 2⁵³.
#[inline(always)]
pub(crate) fn mul<V: Doubles>(a: V, b: V) -> V {
    reduce(a.mul(b))
}

/// Reduces several numbers, interleaved step by step: a chain of four dependent operations alone leaves most of a CPU idle.
#[inline(always)]
pub(crate) fn reduce_all<V: Doubles, const N: usize>(x: &[V; N]) -> [V; N] {
    let quotients: [V; N] = array!(|i| x[i].mul_add(V::splat(1.0 / Q), V::splat(ROUND)));
    let quotients: [V; N] = array!(|i| quotients[i].sub(V::splat(ROUND)));
    array!(|i| quotients[i].neg_mul_add(V::splat(Q), x[i]))
}

/// A factor known in advance, with its quotient by q: the product's quotient need not wait for the product.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    value: f64,
    quotient: f64,
}

impl Factor {
    pub(crate) fn new(value: u32) -> Factor {
        let value = reduce(f64::from(value));
        Factor { value, quotient: value / Q }
    }
    #[inline(always)]
    pub(crate) fn mul<V: Doubles>(&self, x: V) -> V {
        let quotient = round_product(x, V::splat(self.quotient));
        quotient.neg_mul_add(V::splat(Q), x.mul(V::splat(self.value)))
    }
}

/// a^(q − 2): the inverse, and 0 for 0. The exponent's bits are 110 1111 1111 1111 1111 1111.
#[inline(always)]
pub(crate) fn inverse<V: Doubles>(a: V) -> V {
    #[inline(always)]
    fn square<V: Doubles>(mut x: V, times: usize) -> V {
        for _ in 0..times {
            x = mul(x, x);
        }
        x
    }
    let a3 = mul(square(a, 1), a);
    let a15 = mul(square(a3, 2), a3);
    let mut power = mul(square(a3, 5), a15);
    for _ in 0..4 {
        power = mul(square(power, 4), a15);
    }
    power
}

/// base^exponent mod q, for tables.
pub(crate) fn power(base: u32, exponent: u32) -> u32 {
    (0..32).rev().fold(1, |power, bit| {
        let factor = if exponent >> bit & 1 == 1 { u64::from(base) } else { 1 };
        power * power % Q as u64 * factor % Q as u64
    }) as u32
}
