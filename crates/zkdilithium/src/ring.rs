//! R = Z_Q\[X\]/(X²⁵⁶ + 1): its elements by coefficients and by values, norms, and Decompose.

use crate::field::{Fe, reduce};
use crate::ntt::{intt, ntt};
use crate::params::{GAMMA2, K, L, N, Q};
use core::array;
use zeroize::Zeroize;

/// A ring element by its coefficients, the constant one first.
#[derive(Clone, PartialEq, Eq)]
pub struct RingElement(pub [Fe; N]);

/// A ring element by its values at the roots of X²⁵⁶ + 1, in the order of [`ntt`].
#[derive(Clone, PartialEq, Eq)]
pub struct NttElement(pub [Fe; N]);

impl Zeroize for RingElement {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Zeroize for NttElement {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

/// Â, row by row.
pub type Matrix = [[NttElement; L]; K];

impl RingElement {
    /// 0.
    pub const ZERO: RingElement = RingElement([Fe::ZERO; N]);

    /// self + other.
    pub fn plus(&self, other: &RingElement) -> RingElement {
        RingElement(array::from_fn(|i| self.0[i] + other.0[i]))
    }
    /// self − other.
    pub fn minus(&self, other: &RingElement) -> RingElement {
        RingElement(array::from_fn(|i| self.0[i] - other.0[i]))
    }
    /// The centred coefficients.
    pub fn centred(&self) -> [i32; N] {
        self.0.map(Fe::centred)
    }
    /// The largest absolute value of the centred coefficients.
    pub fn norm(&self) -> u32 {
        norm(self.0.iter().map(|x| x.centred()))
    }
}

impl NttElement {
    /// self · other.
    pub fn times(&self, other: &NttElement) -> NttElement {
        NttElement(array::from_fn(|i| self.0[i] * other.0[i]))
    }
    /// self − other.
    pub fn minus(&self, other: &NttElement) -> NttElement {
        NttElement(array::from_fn(|i| self.0[i] - other.0[i]))
    }
}

/// A·v with both sides transformed.
pub fn product(a_hat: &Matrix, v_hat: &[NttElement; L]) -> [NttElement; K] {
    array::from_fn(|row| NttElement(array::from_fn(|i| product_at(&a_hat[row], v_hat, i))))
}

/// Value i of a row's product with v.
pub(crate) fn product_at(row: &[NttElement; L], v_hat: &[NttElement; L], i: usize) -> Fe {
    // Four products of 46 bits.
    let sum = (0..L).map(|j| u64::from(row[j].0[i].value()) * u64::from(v_hat[j].0[i].value())).sum();
    Fe::new(reduce(sum))
}

/// c·v for each element of v.
pub fn scaled<const COUNT: usize>(c_hat: &NttElement, v_hat: &[NttElement; COUNT]) -> [RingElement; COUNT] {
    array::from_fn(|i| intt(&c_hat.times(&v_hat[i])))
}

/// Each element transformed.
pub fn ntt_each<const COUNT: usize>(v: &[RingElement; COUNT]) -> [NttElement; COUNT] {
    array::from_fn(|i| ntt(&v[i]))
}

/// Each element transformed back.
pub fn intt_each<const COUNT: usize>(v: &[NttElement; COUNT]) -> [RingElement; COUNT] {
    array::from_fn(|i| intt(&v[i]))
}

/// The largest absolute value, without a branch on any.
pub(crate) fn norm(values: impl Iterator<Item = i32>) -> u32 {
    values.fold(0, |largest, x| largest.max(x.unsigned_abs()))
}

/// (r₀, r₁) with r = r₀ + r₁·2·GAMMA2, r₀ in \[−GAMMA2, GAMMA2\] and r₁ in \[0, 55\]: the last half interval, from
/// Q − GAMMA2 on, wraps round to r₁ = 0.
pub const fn decompose(r: Fe) -> (i32, u32) {
    let r = r.value();
    let h = (r + GAMMA2 - 1) >> 17;
    // All ones for the interval that wraps, h = 56. There r₀ = r − Q, which is r − h·2·GAMMA2 − 1.
    let wraps = ((55 - h as i32) >> 31) as u32;
    ((r as i32 - (h << 17) as i32) - (wraps & 1) as i32, h & !wraps)
}

/// Whether [`decompose`] wraps.
pub(crate) const fn wraps(r: Fe) -> bool {
    r.value() >= Q - GAMMA2
}
