//! Vectors and tokens, one instruction set a file; the only `unsafe` of the CPU side.

pub(crate) mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod sha_ni;
#[cfg(target_arch = "x86_64")]
mod x86;
