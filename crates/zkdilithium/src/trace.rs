//! Counts of the cases that a run of the reference met: tests read here that every path was taken.

use crate::params::{BETA, GAMMA1, GAMMA2};
use alloc::vec::Vec;

/// Counters that every function of the reference adds to. Of a signature they tell what rejection sampling keeps
/// secret: they are for tests.
#[derive(Clone, Default)]
pub struct Trace {
    /// Poseidon permutations.
    pub permutations: u64,
    /// Zeros that entered a Poseidon S-box.
    pub zero_inputs: u64,
    /// Coefficients of w − c·s₂ that took the wrap branch of Decompose.
    pub wraps: u64,
    /// The attempts at a signature, in order.
    pub attempts: Vec<Attempt>,
}

/// An attempt at a signature. A value behind the test that failed is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// κ: 0, 4, 8, …
    pub kappa: u16,
    /// Whether c̃ gives a challenge.
    pub challenge: bool,
    /// The norm of the low part of w − c·s₂.
    pub r0_norm: Option<u32>,
    /// The norm of z.
    pub z_norm: Option<u32>,
}

impl Attempt {
    /// Whether every test passed.
    pub fn accepted(&self) -> bool {
        self.challenge
            && self.r0_norm.is_some_and(|norm| norm < GAMMA2 - BETA)
            && self.z_norm.is_some_and(|norm| norm < GAMMA1 - BETA)
    }
}
