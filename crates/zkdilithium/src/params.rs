//! The one parameter set, in the symbols of the scheme.

/// The scheme's name.
pub const NAME: &str = "zkDilithium";

/// The prime modulus, 7·2²⁰ + 1 = 2²³ − 2²⁰ + 1.
pub const Q: u32 = 7_340_033;
/// Coefficients of a ring element: R = Z_Q\[X\]/(X²⁵⁶ + 1).
pub const N: usize = 256;
/// Rows of A.
pub const K: usize = 4;
/// Columns of A.
pub const L: usize = 4;
/// Coefficients of the secrets s₁ and s₂ lie in \[−ETA, ETA\].
pub const ETA: u32 = 2;
/// Coefficients ±1 of the challenge c.
pub const TAU: usize = 40;
/// The largest coefficient of c·s₁ and c·s₂.
pub const BETA: u32 = TAU as u32 * ETA;
/// Coefficients of y lie in (−GAMMA1, GAMMA1\].
pub const GAMMA1: u32 = 1 << 17;
/// Half the width of the intervals that Decompose rounds to.
pub const GAMMA2: u32 = (Q - 1) / 112;
/// A 512th primitive root of unity: 3^((Q − 1)/512).
pub const ZETA: u32 = 3_483_618;

/// Cells of the Poseidon state.
pub const T: usize = 35;
/// Cells that the sponge absorbs into and squeezes from.
pub const RATE: usize = 24;
/// Rounds of the permutation, all of them full.
pub const ROUNDS: usize = 21;
/// Field elements of c̃.
pub const CSIZE: usize = 12;
/// Field elements of μ, and of the block that a circuit hashes in its place.
pub const MUSIZE: usize = 24;

/// Bytes of the seed that a key pair is made from.
pub const SEED_BYTES: usize = 32;
/// Bytes of tr, ρ and the signing key's `key`.
pub const HASH_BYTES: usize = 32;
/// Bytes of a packed field element.
pub const FE_BYTES: usize = 3;
/// Bytes of a packed polynomial of s₁ or s₂, 3 bits a coefficient.
pub const ETA_BYTES: usize = 3 * N / 8;
/// Bytes of a packed polynomial of y or z, 18 bits a coefficient.
pub const GAMMA1_BYTES: usize = 18 * N / 8;
/// Bytes of the packed t.
pub const T_BYTES: usize = K * N * FE_BYTES;
/// Bytes of a public key: ρ ‖ t.
pub const PK_BYTES: usize = HASH_BYTES + T_BYTES;
/// Bytes of a private key: ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t.
pub const SK_BYTES: usize = 3 * HASH_BYTES + (L + K) * ETA_BYTES + T_BYTES;
/// Bytes of the packed c̃.
pub const C_TILDE_BYTES: usize = CSIZE * FE_BYTES;
/// Bytes of a signature: c̃ ‖ z.
pub const SIG_BYTES: usize = C_TILDE_BYTES + L * GAMMA1_BYTES;

const _: () = {
    assert!(PK_BYTES == 3104 && SK_BYTES == 3936 && SIG_BYTES == 2340);
    assert!(Q == (1 << 23) - (1 << 20) + 1 && (Q - 1).is_multiple_of(2 * GAMMA2));
    assert!(MUSIZE == RATE, "absorbing mu fills the rate");
};
