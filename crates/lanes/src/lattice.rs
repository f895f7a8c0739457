//! The interface of lattice arithmetic: R_q and Poseidon over groups of instances.

use crate::field::{canonical, decompose, inverse, mul, reduce, reduce_all};
use crate::keccak;
use crate::ntt::{self, N};
use crate::poseidon::{self, RATE, STATE};
use crate::sample::pack_short;
use crate::simd::{Doubles, Simd, vectorize};
use std::marker::PhantomData;
use zeroize::Zeroize;

/// Numbers of the scheme that the arithmetic needs.
#[derive(Clone, Copy)]
pub struct Constants<'a> {
    /// A primitive 512th root of unity.
    pub zeta: u32,
    /// Poseidon's round constants, 35 a round.
    pub round_constants: &'a [u32],
    /// Poseidon's matrix as Karatsuba's products leave it: 54 Hankel matrices of 3 × 3, by their antidiagonals.
    pub matrix: &'a [u32],
    /// Poseidon's matrix as it is, by its 69 antidiagonals.
    pub antidiagonals: &'a [u32],
}

/// Rows of lanes, aligned for every vector and wiped on drop.
pub struct Rows {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f64; 8]);

impl Rows {
    /// So many rows of so many lanes, all of them zeros.
    pub fn new(rows: usize, lanes: usize) -> Rows {
        let len = rows.checked_mul(lanes).expect("as many numbers as a usize holds");
        Rows { lines: vec![Line([0.0; 8]); len.div_ceil(8)], len }
    }
}

impl std::ops::Deref for Rows {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        // SAFETY: lines are eight f64s each, without padding, and there are enough of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}
impl std::ops::DerefMut for Rows {
    fn deref_mut(&mut self) -> &mut [f64] {
        // SAFETY: see deref.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
impl Zeroize for Rows {
    fn zeroize(&mut self) {
        // This writes whole lines; `zeroize` would write number by number.
        self.lines.fill(Line([0.0; 8]));
        zeroize::optimization_barrier(&*self.lines);
    }
}
impl Drop for Rows {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// Arithmetic of R_q = Z_q\[X\]/(X²⁵⁶ + 1) and Poseidon, q = 7340033, for [`lanes`](Self::lanes) instances in parallel,
/// and the streams that they sample from.
///
/// Element i of an instance stands in row i, its instance's column: `rows[i * lanes + instance]`. Slices are of [`Rows`]
/// and begin at whole rows. Elements are integers of their class, |x| ≤ q if nothing else is said; results called
/// reduced lie in \[−(q + 1)/2, (q + 1)/2\], canonical ones in \[0, q). A polynomial has 256 rows. Running time depends on
/// lengths alone if nothing else is said.
pub trait Lattice: Send + Sync {
    /// Instances in parallel.
    fn lanes(&self) -> usize;
    /// Writes rows of integers that are given as columns, one instance's after the other. The number of rows is a multiple of eight.
    fn rows(&self, columns: &[i32], rows: &mut [f64]);
    /// The inverse of [`rows`](Self::rows).
    fn columns(&self, rows: &[f64], columns: &mut [i32]);
    /// Samples a polynomial of ExpandA from its stream: the first 256 numbers below q, of which each is 23 bits of three bytes. Returns false if
    /// there are fewer. Overwrites [`SLACK`](crate::SLACK) places more. Running time depends on the stream.
    fn uniform(&self, stream: &[u8], out: &mut [i32]) -> bool;
    /// Samples a polynomial of ExpandS likewise: 2 − (d mod 5) of the first 256 nibbles d below 15, the low one of a byte first. Running time
    /// depends on which nibbles are 15.
    fn short(&self, stream: &[u8], out: &mut [i32]) -> bool;
    /// Packs numbers x of [`short`](Self::short) as codes 2 − x, of three bits each.
    fn pack_short(&self, numbers: &[i32], out: &mut [u8]);
    /// Transforms polynomials to their values, |value| ≤ 6q.
    fn ntt(&self, polynomials: &mut [f64]);
    /// Transforms values to their polynomials, both reduced.
    fn intt(&self, polynomials: &mut [f64]);
    /// Σ factorᵢ·valueᵢ over up to eight polynomials' values, those of [`ntt`](Self::ntt): reduced.
    fn dot(&self, factors: Factors<'_>, values: &[f64], out: &mut [f64]);
    /// [`dot`](Self::dot) with factors as [`uniform`](Self::uniform) leaves them: for each polynomial the columns of all instances.
    fn dot_columns(&self, factors: &[i32], values: &[f64], out: &mut [f64]);
    /// a + b, canonical, in place of a.
    fn add(&self, a: &mut [f64], b: &[f64]);
    /// a + b in place of a, for small numbers that need no reduction; and the largest |a + b| of each instance.
    fn add_norms(&self, a: &mut [f64], b: &[f64], norms: &mut [f64]);
    /// High parts of Decompose of these polynomials, column by column: coefficient 0 of each polynomial, coefficient 1 of each, and so on.
    fn high_parts(&self, polynomials: &[f64], out: &mut [f64]);
    /// The largest |low part| of Decompose of a − b, of each instance.
    fn low_norms(&self, a: &[f64], b: &[f64], norms: &mut [f64]);
    /// Absorbs rows of elements, 24 a permutation, into states of 36 rows: 35 cells and their common denominator. The last block may be short.
    /// Only the first `instances` states are needed: a single one is computed in another way.
    fn absorb(&self, instances: usize, states: &mut [f64], elements: &[f64]);
    /// Permutes states, of which the first `instances` are needed.
    fn permute(&self, instances: usize, states: &mut [f64]);
    /// The first cells of states, canonical: as many rows as `out` has.
    fn squeeze(&self, states: &[f64], out: &mut [f64]);
    /// Computes SHAKE of inputs that follow each other, of `input_bytes` each, at least one. Each output has `blocks` whole blocks.
    fn shake(&self, shake: Shake, inputs: &[u8], input_bytes: usize, outputs: &mut [u8], blocks: usize);
}

/// The two extendable-output functions of FIPS 202.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shake {
    /// SHAKE128, blocks of 168 bytes.
    Shake128,
    /// SHAKE256, blocks of 136 bytes.
    Shake256,
}

impl Shake {
    /// Bytes of a block.
    pub const fn rate(self) -> usize {
        match self {
            Shake::Shake128 => 168,
            Shake::Shake256 => 136,
        }
    }
}

/// Factors by which rows of values are multiplied.
#[derive(Clone, Copy)]
pub enum Factors<'a> {
    /// One number for all instances of a row.
    Same(&'a [f64]),
    /// A row of numbers.
    Each(&'a [f64]),
}

pub(crate) struct VectorLattice<T, V> {
    token: T,
    ntt: ntt::Tables,
    poseidon: poseidon::Tables,
    vector: PhantomData<fn() -> V>,
}

impl<T: Simd, V: Doubles> VectorLattice<T, V> {
    pub(crate) fn new(token: T, constants: &Constants<'_>) -> VectorLattice<T, V> {
        VectorLattice {
            token,
            ntt: ntt::Tables::new(constants.zeta),
            poseidon: poseidon::Tables::new(constants.round_constants, constants.matrix, constants.antidiagonals),
            vector: PhantomData,
        }
    }
}

impl<T: Simd, V: Doubles> VectorLattice<T, V> {
    /// Adds 24 elements to each state and permutes it, `blocks` times. If no elements are left, this only permutes.
    #[inline(never)]
    fn sponge(&self, instances: usize, rows: &mut [f64], elements: &[f64], blocks: usize) {
        if instances == 1 && V::LANES > 1 {
            return self.sponge_alone(rows, elements, blocks);
        }
        vectorize!(self.token, || {
            let state = states::<V>(rows);
            let mut elements = V::of(elements).chunks(RATE);
            for _ in 0..blocks {
                let d = state[STATE - 1];
                for (cell, element) in state.iter_mut().zip(elements.next().unwrap_or_default()) {
                    *cell = element.mul_add(d, *cell);
                }
                poseidon::permute(&self.poseidon, state);
            }
        });
    }
    /// [`sponge`](Self::sponge) for the first state alone.
    #[inline(never)]
    fn sponge_alone(&self, rows: &mut [f64], elements: &[f64], blocks: usize) {
        vectorize!(self.token, || {
            let mut state = poseidon::AloneState::new(rows.iter().copied().step_by(V::LANES));
            let mut elements = elements.chunks(RATE * V::LANES);
            for _ in 0..blocks {
                state.absorb(elements.next().unwrap_or_default().iter().copied().step_by(V::LANES));
                poseidon::permute_alone::<V::Vector>(&self.poseidon, &mut state);
            }
            rows.iter_mut().step_by(V::LANES).zip(state.rows()).for_each(|(row, x)| *row = *x);
        });
    }
}

#[inline(always)]
fn polynomials<V: Doubles>(rows: &mut [f64]) -> &mut [[V; N]] {
    let (polynomials, rest) = V::of_mut(rows).as_chunks_mut();
    assert!(rest.is_empty(), "polynomials of 256 rows");
    polynomials
}

#[inline(always)]
fn states<V: Doubles>(rows: &mut [f64]) -> &mut [V; STATE] {
    V::of_mut(rows).try_into().expect("36 rows")
}

#[inline(always)]
fn dot<V: Doubles>(factor: impl Fn(usize) -> V, values: &[V], out: &mut [V; N]) {
    for i in 0..N {
        let mut sum = factor(i).mul(values[i]);
        for at in (i + N..values.len()).step_by(N) {
            sum = factor(at).mul_add(values[at], sum);
        }
        out[i] = reduce(sum);
    }
}

impl<T: Simd, V: Doubles> Lattice for VectorLattice<T, V> {
    fn lanes(&self) -> usize {
        V::LANES
    }
    fn rows(&self, columns: &[i32], rows: &mut [f64]) {
        vectorize!(self.token, || {
            let (rows, rest) = V::of_mut(rows).as_chunks_mut::<8>();
            let stride = 8 * rows.len();
            assert!(rest.is_empty() && columns.len() == V::LANES * stride, "columns of as many numbers as rows");
            for (i, rows) in rows.iter_mut().enumerate() {
                *rows = V::load_columns(&columns[8 * i..], stride);
            }
        });
    }
    fn columns(&self, rows: &[f64], columns: &mut [i32]) {
        vectorize!(self.token, || {
            let (rows, rest) = V::of(rows).as_chunks::<8>();
            let stride = 8 * rows.len();
            assert!(rest.is_empty() && columns.len() == V::LANES * stride, "columns of as many numbers as rows");
            for (i, rows) in rows.iter().enumerate() {
                V::store_columns(rows, &mut columns[8 * i..], stride);
            }
        });
    }
    fn uniform(&self, stream: &[u8], out: &mut [i32]) -> bool {
        vectorize!(self.token, || self.token.uniform(stream, out))
    }
    fn short(&self, stream: &[u8], out: &mut [i32]) -> bool {
        vectorize!(self.token, || self.token.short(stream, out))
    }
    fn pack_short(&self, numbers: &[i32], out: &mut [u8]) {
        vectorize!(self.token, || pack_short(numbers, out));
    }
    fn ntt(&self, rows: &mut [f64]) {
        vectorize!(self.token, || {
            for a in polynomials::<V>(rows) {
                ntt::ntt(&self.ntt, a);
            }
        });
    }
    fn intt(&self, rows: &mut [f64]) {
        vectorize!(self.token, || {
            for a in polynomials::<V>(rows) {
                ntt::intt(&self.ntt, a);
            }
        });
    }
    fn dot(&self, factors: Factors<'_>, values: &[f64], out: &mut [f64]) {
        vectorize!(self.token, || {
            let (values, out) = (V::of(values), &mut polynomials::<V>(out)[0]);
            match factors {
                Factors::Same(same) => dot(
                    #[inline(always)]
                    |i| V::splat(same[i]),
                    values,
                    out,
                ),
                Factors::Each(each) => {
                    let each = V::of(each);
                    dot(
                        #[inline(always)]
                        |i| each[i],
                        values,
                        out,
                    );
                }
            }
        });
    }
    fn dot_columns(&self, factors: &[i32], values: &[f64], out: &mut [f64]) {
        vectorize!(self.token, || {
            let (values, out) = (V::of(values), &mut polynomials::<V>(out)[0]);
            assert_eq!(factors.len(), values.len() * V::LANES, "columns of as many numbers as rows");
            for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let mut sums = [V::splat(0.0); 8];
                for at in (8 * i..values.len()).step_by(N) {
                    let polynomial = at / N * N;
                    let rows = V::load_columns(&factors[polynomial * V::LANES + at % N..], N);
                    for (sum, (factor, value)) in sums.iter_mut().zip(rows.iter().zip(&values[at..at + 8])) {
                        *sum = factor.mul_add(*value, *sum);
                    }
                }
                *out = reduce_all(&sums);
            }
        });
    }
    fn add(&self, a: &mut [f64], b: &[f64]) {
        vectorize!(self.token, || {
            for (a, b) in V::of_mut(a).iter_mut().zip(V::of(b)) {
                *a = canonical(a.add(*b));
            }
        });
    }
    fn add_norms(&self, a: &mut [f64], b: &[f64], norms: &mut [f64]) {
        vectorize!(self.token, || {
            let mut norm = V::splat(0.0);
            for (a, b) in V::of_mut(a).iter_mut().zip(V::of(b)) {
                *a = a.add(*b);
                norm = norm.max(a.abs());
            }
            V::of_mut(norms)[0] = norm;
        });
    }
    fn high_parts(&self, rows: &[f64], out: &mut [f64]) {
        vectorize!(self.token, || {
            let (polynomials, _) = V::of(rows).as_chunks::<N>();
            let out = V::of_mut(out).chunks_exact_mut(polynomials.len());
            for (i, out) in out.enumerate() {
                for (out, a) in out.iter_mut().zip(polynomials) {
                    *out = decompose(canonical(a[i])).1;
                }
            }
        });
    }
    fn low_norms(&self, a: &[f64], b: &[f64], norms: &mut [f64]) {
        vectorize!(self.token, || {
            let mut norm = V::splat(0.0);
            for (a, b) in V::of(a).iter().zip(V::of(b)) {
                norm = norm.max(decompose(canonical(a.sub(*b))).0.abs());
            }
            V::of_mut(norms)[0] = norm;
        });
    }
    fn absorb(&self, instances: usize, rows: &mut [f64], elements: &[f64]) {
        self.sponge(instances, rows, elements, elements.len().div_ceil(RATE * V::LANES));
    }
    fn permute(&self, instances: usize, rows: &mut [f64]) {
        self.sponge(instances, rows, &[], 1);
    }
    fn squeeze(&self, rows: &[f64], out: &mut [f64]) {
        vectorize!(self.token, || {
            let (state, out) = (V::of(rows), V::of_mut(out));
            let scale = inverse(state[STATE - 1]);
            for (out, cell) in out.iter_mut().zip(state) {
                *out = canonical(mul(reduce(*cell), scale));
            }
        });
    }
    fn shake(&self, shake: Shake, inputs: &[u8], input_bytes: usize, outputs: &mut [u8], blocks: usize) {
        match shake {
            Shake::Shake128 => keccak::shake::<T, 21>(self.token, inputs, input_bytes, outputs, blocks),
            Shake::Shake256 => keccak::shake::<T, 17>(self.token, inputs, input_bytes, outputs, blocks),
        }
    }
}
