//! The cost of the operations, by primitive.

use crate::params::*;

/// An operation, from a job's input to its result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Seed → key pair.
    Keygen,
    /// (private key, message) → signature.
    Sign,
    /// (public key, message, signature) → verdict.
    Verify,
}

/// That an attempt passes the test of r₀: 1 − 2·BETA/(2·GAMMA2) for each of 1,024 coefficients, nearly.
const P_R0: f64 = 0.28406;
/// That z passes its test.
const P_Z: f64 = 0.53307;
/// That c̃ gives a challenge.
const P_BALL: f64 = 0.99944;
/// That an attempt passes all tests.
const P_ACCEPTED: f64 = P_BALL * P_R0 * P_Z;

impl Op {
    /// The average cost of one job, with an expanded key and a message of 32 bytes; a signature's attempts are made one at
    /// a time.
    pub fn work(self) -> Work {
        match self {
            Op::Keygen => {
                let a = (K * L) as f64 * mean_blocks(56, f64::from(Q) / f64::from(1u32 << 23));
                let s = keccak_blocks(SEED_BYTES, 128) + (K + L) as f64 * mean_blocks(272, 15.0 / 16.0);
                let tr = keccak_blocks(PK_BYTES, HASH_BYTES);
                Work { poseidon: 0.0, keccak: a + s + tr, ntt: (L + K) as f64 }
            }
            Op::Sign => {
                let attempts = 1.0 / P_ACCEPTED;
                let rho2 = keccak_blocks(HASH_BYTES + 32, 64) + keccak_blocks(HASH_BYTES + 64, 64);
                Work {
                    poseidon: MU + attempts * (COM + BALL),
                    keccak: rho2 + attempts * L as f64 * keccak_blocks(66, GAMMA1_BYTES),
                    // y, w, c and c·s₂; c·s₁ where r₀ passes.
                    ntt: attempts * ((L + K + 1 + K) as f64 + P_BALL * P_R0 * L as f64),
                }
            }
            Op::Verify => Work { poseidon: MU + COM + BALL, keccak: 0.0, ntt: (L + 1 + K) as f64 },
        }
    }
}

/// How often an operation calls each primitive.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Poseidon permutations.
    pub poseidon: f64,
    /// Keccak-f\[1600\] permutations.
    pub keccak: f64,
    /// Transforms of 256 coefficients, forth or back.
    pub ntt: f64,
}

/// Permutations of μ: 16 elements after tr; and μ fills the first block of com, whose state all attempts share.
const MU: f64 = 2.0;
/// Permutations of com after μ: w₁ in 42 whole blocks and one of 16 elements.
const COM: f64 = (K * N).div_ceil(RATE) as f64;
/// Permutations of Ball.
const BALL: f64 = (TAU / 8) as f64;

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
        assert!(near(1.0 / P_ACCEPTED, 6.608));
        // The table of docs/zkdilithium.md.
        let work = |op: Op| {
            let Work { poseidon, keccak, ntt } = op.work();
            [poseidon, keccak, ntt].map(|count| (10.0 * count).round() / 10.0)
        };
        assert_eq!(work(Op::Keygen), [0.0, 131.9, 8.0]);
        assert_eq!(work(Op::Sign), [319.2, 134.2, 93.4]);
        assert_eq!(work(Op::Verify), [50.0, 0.0, 9.0]);
    }
}
