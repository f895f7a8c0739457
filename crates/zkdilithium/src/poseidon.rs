//! Poseidon over Z_Q: 35 cells, 21 full rounds, the S-box x⁻¹, and the sponge over it.

use crate::field::{Fe, batch_inverse, reduce};
use crate::params::{Q, RATE, ROUNDS, T};
use crate::trace::Trace;
use alloc::vec;
use alloc::vec::Vec;
use zeroize::Zeroize;

/// The cells of a permutation.
pub type State = [Fe; T];

/// The generator of the round constants: Grain's 80-bit register (Poseidon, appendix F), whose first bits name the
/// instance.
struct Grain(u128);

impl Grain {
    const fn new() -> Grain {
        // From bit 0 on: thirty ones; 0 partial rounds; the numbers of full rounds and cells; the rate that the
        // scheme's authors wrote where other instances have a modulus' bits; the S-box x⁻¹; a one.
        let fields = ((1 << 30) - 1)
            | ((ROUNDS as u128) << 40)
            | ((T as u128) << 50)
            | ((RATE as u128) << 62)
            | (2 << 74)
            | (1 << 78);
        let mut grain = Grain(fields);
        let mut discarded = 0;
        while discarded < 160 {
            grain.step();
            discarded += 1;
        }
        grain
    }
    const fn step(&mut self) -> u32 {
        let s = self.0;
        let bit = (s >> 17 ^ s >> 28 ^ s >> 41 ^ s >> 56 ^ s >> 66 ^ s >> 79) & 1;
        self.0 = (s << 1 | bit) & ((1 << 80) - 1);
        bit as u32
    }
    /// The second of a pair of steps whose first gives 1.
    const fn bit(&mut self) -> u32 {
        loop {
            let (kept, bit) = (self.step(), self.step());
            if kept == 1 {
                return bit;
            }
        }
    }
    const fn element(&mut self) -> Fe {
        loop {
            let (mut x, mut bits) = (0, 0);
            while bits < Q.ilog2() + 1 {
                x = x << 1 | self.bit();
                bits += 1;
            }
            if x < Q {
                return Fe::new(x);
            }
        }
    }
}

/// The constants of each round, cell by cell; generated when the crate is compiled.
pub static ROUND_CONSTANTS: [State; ROUNDS] = {
    let mut constants = [[Fe::ZERO; T]; ROUNDS];
    let mut grain = Grain::new();
    let mut i = 0;
    while i < ROUNDS * T {
        constants[i / T][i % T] = grain.element();
        i += 1;
    }
    constants
};

/// The matrix, M\[i\]\[j\] = 1/(i + j + 1), by its antidiagonals i + j.
pub static ANTIDIAGONALS: [Fe; 2 * T - 1] = {
    let mut antidiagonals = [Fe::ZERO; 2 * T - 1];
    let mut i = 0;
    while i < antidiagonals.len() {
        antidiagonals[i] = Fe::new(i as u32 + 1).inv();
        i += 1;
    }
    antidiagonals
};

/// The matrix for fast products, in 54 Hankel matrices of 3 × 3 by their five antidiagonals each: what is left of M·x
/// after Karatsuba's for two levels of halves and one of thirds. A 36th row and column meet zeros alone. Factors of
/// sums of two parts come first, then those of each part: H₁ of x₀ + x₁ (and H₂ of x₀ + x₂, H₃ of x₁ + x₂), H₀ − H₁ of
/// x₀, H₂ − H₁ of x₁.
pub fn hankel_factors() -> Vec<Fe> {
    let mut matrices = vec![ANTIDIAGONALS.iter().copied().chain([Fe::ZERO; 2]).collect::<Vec<Fe>>()];
    for parts in [2, 2, 3] {
        matrices = matrices.iter().flat_map(|h| split(h, parts)).collect();
    }
    matrices.concat()
}

/// The factors of Karatsuba's products for a Hankel matrix cut into `parts` × `parts` blocks Hᵢ₊ⱼ.
fn split(h: &[Fe], parts: usize) -> Vec<Vec<Fe>> {
    let size = h.len().div_ceil(2) / parts;
    let block = |i: usize| &h[i * size..][..2 * size - 1];
    let sum = |plus: usize, minus: &[usize]| -> Vec<Fe> {
        (0..2 * size - 1).map(|k| minus.iter().fold(block(plus)[k], |sum, i| sum - block(*i)[k])).collect()
    };
    match parts {
        2 => vec![sum(1, &[]), sum(0, &[1]), sum(2, &[1])],
        _ => vec![sum(1, &[]), sum(2, &[]), sum(3, &[]), sum(0, &[1, 2]), sum(2, &[1, 3]), sum(4, &[2, 3])],
    }
}

/// One round: constants, S-boxes, matrix.
pub fn round(state: &mut State, constants: &State, trace: &mut Trace) {
    for i in 0..T {
        state[i] = state[i] + constants[i];
        trace.zero_inputs += u64::from(state[i].is_zero());
    }
    batch_inverse(state);
    // 35 products of 46 bits.
    let row = |i: usize| (0..T).map(|j| u64::from(ANTIDIAGONALS[i + j].value()) * u64::from(state[j].value())).sum();
    *state = core::array::from_fn(|i| Fe::new(reduce(row(i))));
}

/// The permutation.
pub fn permute(state: &mut State, trace: &mut Trace) {
    trace.permutations += 1;
    for constants in &ROUND_CONSTANTS {
        round(state, constants, trace);
    }
}

/// The sponge: elements are added to the first 24 cells in turn. There is no padding, and a full block is permuted at
/// once, so that nothing is left to do where input ends with a block.
pub struct Sponge<'t> {
    state: State,
    index: usize,
    trace: &'t mut Trace,
}

impl<'t> Sponge<'t> {
    /// Starts from a state between two blocks; all zeros is the beginning.
    pub fn new(state: State, trace: &'t mut Trace) -> Sponge<'t> {
        Sponge { state, index: 0, trace }
    }
    /// Adds elements.
    pub fn absorb(&mut self, elements: impl IntoIterator<Item = Fe>) {
        for element in elements {
            self.state[self.index] = self.state[self.index] + element;
            self.index += 1;
            if self.index == RATE {
                permute(&mut self.state, self.trace);
                self.index = 0;
            }
        }
    }
    /// Ends a block that has been begun, and gives the state.
    pub fn flush(&mut self) -> State {
        if self.index != 0 {
            permute(&mut self.state, self.trace);
            self.index = 0;
        }
        self.state
    }
    /// Ends the input and reads elements.
    pub fn squeeze<const COUNT: usize>(mut self) -> [Fe; COUNT] {
        self.flush();
        core::array::from_fn(|i| {
            if i > 0 && i % RATE == 0 {
                permute(&mut self.state, self.trace);
            }
            self.state[i % RATE]
        })
    }
}

impl Drop for Sponge<'_> {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}
