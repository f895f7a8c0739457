//! What is to be computed, as data: the stages that every backend executes, and their work.

use crate::params::*;
use alloc::vec;
use alloc::vec::Vec;

/// What a plan makes of each job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Seed → key pair.
    Keygen,
    /// (private key, message) → signature.
    Sign,
    /// (public key, message, signature) → verdict.
    Verify,
}

/// One kind of batched work; the jobs of a stage do not depend on each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// ρ → Â.
    ExpandA,
    /// The seed's hash; ρ′ → s₁, s₂.
    ExpandS,
    /// t = INTT(Â·NTT(s₁)) + s₂.
    PublicKey,
    /// A key's bytes → the transforms of s₁ and s₂ or of t, tr and Poseidon's state after it.
    ExpandKey,
    /// Message → μ, and ρ″ for signing.
    Mu,
    /// The attempts κ = `kappa.0`, `kappa.0` + 4, … below `kappa.1`, each up to the test that it fails. A backend runs
    /// the stage again, with later κ, for the jobs that [`Stage::FirstAccepted`] leaves open.
    Attempt {
        /// First κ, and the κ past the last.
        kappa: (u32, u32),
    },
    /// The smallest κ whose attempt passed all tests: the same as trying one after the other.
    FirstAccepted,
    /// (c̃, z) → w₁ → com(μ, w₁) = c̃.
    Recommit,
    /// Elements → bytes; for a key pair tr too.
    Pack,
}

/// The stages of an operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// What is made of each job.
    pub op: Op,
    /// The stages, in order.
    pub stages: Vec<Stage>,
}

/// That an attempt passes the test of r₀: 1 − 2·BETA/(2·GAMMA2) for each of 1,024 coefficients, nearly.
const P_R0: f64 = 0.28406;
/// That z passes its test.
const P_Z: f64 = 0.53307;
/// That c̃ gives a challenge.
const P_BALL: f64 = 0.99944;
/// That an attempt passes all tests.
pub const P_ACCEPTED: f64 = P_BALL * P_R0 * P_Z;

impl Plan {
    /// The plan of `op` for keys as bytes; signing takes one attempt at a time.
    pub fn new(op: Op) -> Plan {
        use Stage::*;
        let stages = match op {
            Op::Keygen => vec![ExpandA, ExpandS, PublicKey, Pack],
            Op::Sign => vec![ExpandA, ExpandKey, Mu, Attempt { kappa: (0, L as u32) }, FirstAccepted, Pack],
            Op::Verify => vec![ExpandA, ExpandKey, Mu, Recommit],
        };
        Plan { op, stages }
    }

    /// The same for expanded keys.
    #[must_use]
    pub fn with_expanded_key(mut self) -> Plan {
        if self.op != Op::Keygen {
            self.stages.retain(|stage| !matches!(stage, Stage::ExpandA | Stage::ExpandKey));
        }
        self
    }

    /// The same signatures with `width` attempts side by side in each round.
    #[must_use]
    pub fn with_width(mut self, width: u32) -> Plan {
        assert!((1..=1 << 14).contains(&width), "1 to 16,384 attempts can be made");
        for stage in &mut self.stages {
            if let Stage::Attempt { kappa } = stage {
                kappa.1 = kappa.0 + width * L as u32;
            }
        }
        self
    }

    /// What one job costs on average, for messages of 32 bytes.
    pub fn work(&self) -> Work {
        let mut work = Work::default();
        for stage in &self.stages {
            match *stage {
                Stage::ExpandA => work.keccak += (K * L) as f64 * mean_blocks(56, f64::from(Q) / f64::from(1u32 << 23)),
                Stage::ExpandS => {
                    work.keccak += keccak_blocks(SEED_BYTES, 128) + (K + L) as f64 * mean_blocks(272, 15.0 / 16.0)
                }
                Stage::PublicKey => work.ntt += (L + K) as f64,
                Stage::ExpandKey => {
                    // s₁ and s₂, or t; tr comes with a private key.
                    work.ntt += if self.op == Op::Sign { L + K } else { K } as f64;
                    work.keccak += if self.op == Op::Sign { 0.0 } else { keccak_blocks(PK_BYTES, HASH_BYTES) };
                    work.poseidon += 1.0;
                }
                Stage::Mu => {
                    // 16 elements after tr; and μ fills the first block of com, whose state all attempts share.
                    work.poseidon += 2.0;
                    if self.op == Op::Sign {
                        work.keccak += keccak_blocks(HASH_BYTES + 32, 64) + keccak_blocks(HASH_BYTES + 64, 64);
                    }
                }
                Stage::Attempt { kappa } => {
                    let attempts = mean_attempts((kappa.1 - kappa.0) / L as u32);
                    work.keccak += attempts * L as f64 * keccak_blocks(66, GAMMA1_BYTES);
                    work.poseidon += attempts * (COM + BALL);
                    // y, w, c and c·s₂; c·s₁ where r₀ passes.
                    work.ntt += attempts * ((L + K + 1 + K) as f64 + P_BALL * P_R0 * L as f64);
                }
                Stage::Recommit => {
                    work.poseidon += COM + BALL;
                    work.ntt += (L + 1 + K) as f64;
                }
                Stage::FirstAccepted => {}
                Stage::Pack => {
                    work.keccak += if self.op == Op::Keygen { keccak_blocks(PK_BYTES, HASH_BYTES) } else { 0.0 };
                }
            }
        }
        work
    }
}

/// What an operation computes, by primitive.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Poseidon permutations.
    pub poseidon: f64,
    /// Keccak-f\[1600\] permutations.
    pub keccak: f64,
    /// Transforms of 256 coefficients, forth or back.
    pub ntt: f64,
}

/// Permutations of com after μ: w₁ in 42 whole blocks and one of 16 elements.
const COM: f64 = (K * N).div_ceil(RATE) as f64;
/// Permutations of Ball.
const BALL: f64 = (TAU / 8) as f64;

/// Attempts that a signature takes where `width` are made in each round: width/(1 − (1 − p)^width).
fn mean_attempts(width: u32) -> f64 {
    let failed = (0..width).fold(1.0, |failed, _| failed * (1.0 - P_ACCEPTED));
    f64::from(width) / (1.0 - failed)
}

/// SHAKE256 permutations for so many bytes in and out.
fn keccak_blocks(input: usize, output: usize) -> f64 {
    (input / 136 + output.div_ceil(136)) as f64
}

/// Blocks read until 256 candidates are accepted.
fn mean_blocks(candidates: usize, accept: f64) -> f64 {
    // kept[i] = probability that i have been accepted.
    let mut kept = [0.0; N + 1];
    kept[0] = 1.0;
    let mut mean = 0.0;
    while kept[N] < 1.0 - 1e-12 {
        mean += 1.0 - kept[N];
        for _ in 0..candidates {
            kept[N] += kept[N - 1] * accept;
            for i in (1..N).rev() {
                kept[i] = kept[i] * (1.0 - accept) + kept[i - 1] * accept;
            }
            kept[0] *= 1.0 - accept;
        }
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.005 * b
    }

    #[test]
    fn work_is_that_of_the_description() {
        // Tails of the binomial distribution: 5 blocks give A's 256 elements in 2.5 % of cases, one gives those of s in
        // 46.5 %.
        assert!(near(mean_blocks(56, 0.875), 5.975) && near(mean_blocks(272, 0.9375), 1.5354));
        assert!(near(mean_attempts(1), 6.608) && near(mean_attempts(8), 8.0 / 0.731));
        // The table of docs/zkdilithium.md.
        let work = |op| {
            let Work { poseidon, keccak, ntt } = Plan::new(op).with_expanded_key().work();
            [poseidon, keccak, ntt].map(|count| (10.0 * count).round() / 10.0)
        };
        assert_eq!(work(Op::Keygen), [0.0, 131.9, 8.0]);
        assert_eq!(work(Op::Sign), [319.2, 134.2, 93.4]);
        assert_eq!(work(Op::Verify), [50.0, 0.0, 9.0]);
    }

    #[test]
    fn a_wider_plan_has_other_attempts_alone() {
        let plan = Plan::new(Op::Sign).with_expanded_key().with_width(16);
        assert_eq!(plan.stages[1], Stage::Attempt { kappa: (0, 64) });
        assert_eq!(plan.clone().with_width(1), Plan::new(Op::Sign).with_expanded_key());
        assert!(plan.work().poseidon > Plan::new(Op::Sign).with_expanded_key().work().poseidon);
    }
}
