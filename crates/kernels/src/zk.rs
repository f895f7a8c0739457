//! Sizes of what zkDilithium's kernels share, in words; `zk/layout.h` is the same, and says what is inside.

/// An expanded key.
pub const KEY_SIZE: usize = 6196;
/// Where tr lies in an expanded key.
pub const KEY_TR: usize = 6179;
/// What a key pair grows from: ρ, ρ′, `key`.
pub const SEED_SIZE: usize = 32;
/// A polynomial of s₁ or s₂ in key generation.
pub const SHORT_SIZE: usize = 32;
/// A job: its key, the first word of its message, its bytes or a kind of elements.
pub const JOB_SIZE: usize = 3;
/// Instead of a message's bytes: 24 elements, to be hashed.
pub const IS_BLOCK: u32 = 0xffff_ffff;
/// Instead of a message's bytes: μ itself.
pub const IS_MU: u32 = 0xffff_fffe;
/// What a job's attempts start from: μ, the state after μ, ρ″.
pub const START_SIZE: usize = 75;
/// An attempt: its job and κ.
pub const TRY_SIZE: usize = 2;
/// What an attempt makes.
pub const MADE_SIZE: usize = 2498;
/// Where c̃ lies in what an attempt makes.
pub const MADE_C: usize = 1856;
/// Where t lies in a private key.
pub const SK_T: usize = 216;
/// Where tr lies in a private key.
pub const SK_TR: usize = 16;
/// Where t lies in a public key.
pub const PK_T: usize = 8;

/// Bits of `Args::flags`.
pub mod flags {
    /// Keys are public ones; signatures are judged, not made.
    pub const OF_PUBLIC: u32 = 1;
    /// `zk_sponge`: 0 and tr, from the beginning.
    pub const OF_TR: u32 = 2;
    /// The message, from the state after tr; then μ from the beginning.
    pub const OF_MU: u32 = 4;
    /// w₁, from the state after μ.
    pub const OF_COM: u32 = 8;
    /// Draws from c̃.
    pub const OF_BALL: u32 = 16;
}
