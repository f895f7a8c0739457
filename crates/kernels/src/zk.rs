//! Sizes of what zkDilithium's kernels share, in words; `zk/layout.h` is the same, and says what is inside.
#![allow(missing_docs)]

pub const KEY_SIZE: usize = 6196;
pub const KEY_TR: usize = 6179;
pub const SEED_SIZE: usize = 32;
pub const SHORT_SIZE: usize = 32;
pub const JOB_SIZE: usize = 3;
pub const IS_BLOCK: u32 = 0xffff_ffff;
pub const IS_MU: u32 = 0xffff_fffe;
pub const START_SIZE: usize = 75;
pub const TRY_SIZE: usize = 2;
pub const MADE_SIZE: usize = 2498;
pub const MADE_C: usize = 1856;
pub const SK_T: usize = 216;
pub const SK_TR: usize = 16;
pub const PK_T: usize = 8;

/// Bits of `Args::flags`.
pub mod flags {
    pub const OF_PUBLIC: u32 = 1;
    pub const OF_TR: u32 = 2;
    pub const OF_MU: u32 = 4;
    pub const OF_COM: u32 = 8;
    pub const OF_BALL: u32 = 16;
}
