//! The field Z_Q. Values are canonical, 0 ≤ x < Q; no operation branches on one.

use crate::params::Q;
use core::iter::Sum;
use core::ops::{Add, Mul, Neg, Sub};
use zeroize::Zeroize;

/// An element of Z_Q, plain (not in Montgomery form).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Fe(u32);

/// x mod Q for any x.
pub(crate) const fn reduce(x: u64) -> u32 {
    // Barrett: the quotient is ⌊x/Q⌋ or one less, as x·⌊2⁶⁴/Q⌋/2⁶⁴ > x/Q − 1.
    const FLOOR: u128 = (1 << 64) / Q as u128;
    let quotient = ((x as u128 * FLOOR) >> 64) as u64;
    subtract_once((x - quotient * Q as u64) as u32)
}

/// x mod Q for x < 2Q.
const fn subtract_once(x: u32) -> u32 {
    let d = x.wrapping_sub(Q);
    d.wrapping_add(Q & ((d as i32) >> 31) as u32)
}

impl Fe {
    /// 0.
    pub const ZERO: Fe = Fe(0);
    /// 1.
    pub const ONE: Fe = Fe(1);

    /// x mod Q.
    pub const fn new(x: u32) -> Fe {
        Fe(reduce(x as u64))
    }
    /// The canonical representative.
    pub const fn value(self) -> u32 {
        self.0
    }
    /// The element of a representative in \[−Q, Q).
    pub const fn from_centred(x: i32) -> Fe {
        Fe((x + (Q as i32 & (x >> 31))) as u32)
    }
    /// The representative in \[−(Q − 1)/2, (Q − 1)/2\].
    pub const fn centred(self) -> i32 {
        let x = self.0 as i32;
        x - (Q as i32 & (((Q as i32 - 1) / 2 - x) >> 31))
    }
    /// self · other.
    pub const fn times(self, other: Fe) -> Fe {
        Fe(reduce(self.0 as u64 * other.0 as u64))
    }
    /// self^exponent; the exponent is public.
    pub const fn pow(self, exponent: u32) -> Fe {
        let (mut power, mut bit) = (Fe::ONE, 32);
        while bit > 0 {
            bit -= 1;
            power = power.times(power);
            if exponent >> bit & 1 == 1 {
                power = power.times(self);
            }
        }
        power
    }
    /// self^(Q − 2): the inverse, and 0 for 0.
    pub const fn inv(self) -> Fe {
        self.pow(Q - 2)
    }
    /// 1 for 0, and 0 for everything else.
    pub(crate) const fn is_zero(self) -> u32 {
        self.0.wrapping_sub(1) >> 31
    }
}

impl Add for Fe {
    type Output = Fe;
    fn add(self, other: Fe) -> Fe {
        Fe(subtract_once(self.0 + other.0))
    }
}

impl Sub for Fe {
    type Output = Fe;
    fn sub(self, other: Fe) -> Fe {
        Fe(subtract_once(self.0 + Q - other.0))
    }
}

impl Neg for Fe {
    type Output = Fe;
    fn neg(self) -> Fe {
        Fe::ZERO - self
    }
}

impl Mul for Fe {
    type Output = Fe;
    fn mul(self, other: Fe) -> Fe {
        self.times(other)
    }
}

impl Sum for Fe {
    fn sum<I: Iterator<Item = Fe>>(terms: I) -> Fe {
        terms.fold(Fe::ZERO, |sum, term| sum + term)
    }
}

impl Zeroize for Fe {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

/// Inverts every element with one inversion (Montgomery's trick); zeros stay zero and do not disturb the others.
pub fn batch_inverse<const COUNT: usize>(xs: &mut [Fe; COUNT]) {
    // A zero takes part as a one, and its result is wiped at the end.
    let mut before = [Fe::ONE; COUNT];
    let mut product = Fe::ONE;
    for i in 0..COUNT {
        before[i] = product;
        product = product * Fe(xs[i].0 + xs[i].is_zero());
    }
    let mut inverse = product.inv();
    for i in (0..COUNT).rev() {
        let x = Fe(xs[i].0 + xs[i].is_zero());
        let keep = xs[i].is_zero().wrapping_sub(1);
        xs[i] = Fe((inverse * before[i]).0 & keep);
        inverse = inverse * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_holds_at_the_ends() {
        for x in [0, 1, u64::from(Q) - 1, u64::from(Q), 2 * u64::from(Q) - 1, 35 << 46, u64::MAX - 1, u64::MAX] {
            assert_eq!(u64::from(reduce(x)), x % u64::from(Q), "{x}");
        }
        for multiple in (0..u64::MAX / u64::from(Q)).step_by(usize::MAX / (1 << 27)) {
            let x = multiple * u64::from(Q);
            assert_eq!((reduce(x), reduce(x + 1), reduce(x + u64::from(Q) - 1)), (0, 1, Q - 1));
        }
    }

    #[test]
    fn centred_values_come_back() {
        let half = (Q as i32 - 1) / 2;
        for x in [-half, -half + 1, -1, 0, 1, half - 1, half] {
            assert_eq!(Fe::from_centred(x).centred(), x);
        }
        assert_eq!(Fe::new(half as u32 + 1).centred(), -half);
        assert_eq!(-Fe::ONE, Fe::new(Q - 1));
        assert_eq!(-Fe::ZERO, Fe::ZERO);
    }

    #[test]
    fn a_batch_is_inverted_around_its_zeros() {
        for zeros in 0..1u32 << 6 {
            let mut xs: [Fe; 6] =
                core::array::from_fn(|i| if zeros >> i & 1 == 1 { Fe::ZERO } else { Fe::new(Q - 1 - 77 * i as u32) });
            let expected = xs.map(Fe::inv);
            batch_inverse(&mut xs);
            assert_eq!(xs, expected, "{zeros:06b}");
        }
    }
}
