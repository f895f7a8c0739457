//! Definitions that the compiler gets for a kernel. The build script, which compiles ready kernels, has this file too.

use crate::kernel::Kernel;
use hypergrove_fips205::Family;

/// A family's number in `family.h`.
pub const fn number(family: Family) -> u32 {
    match family {
        Family::Sha2 => 0,
        Family::Shake => 1,
    }
}

/// A family's name in modules and in functions of the host.
pub(crate) fn name(family: Family) -> String {
    family.name().to_ascii_lowercase()
}

/// The family whose code a kernel is made of, where a set has this one: other schemes and messages have one family each. Comparing hashes
/// nothing, and has one code for all sets.
pub(crate) fn family_of(kernel: Kernel, of_set: Family) -> Family {
    match kernel {
        _ if kernel.is_zk() => Family::Shake,
        Kernel::Sha256 | Kernel::Compare => Family::Sha2,
        _ => of_set,
    }
}

/// Threads that a block may have.
pub const MAX_THREADS: u32 = 256;
/// Default of `CHAINS_BLOCKS`.
pub const CHAINS_BLOCKS: u32 = 4;
/// Blocks of [`MAX_THREADS`] that a compute unit must have room for where Keccak's state is in registers: 128 registers a thread.
pub const KECCAK_BLOCKS: u32 = 2;
/// Default of `IMAD` where there is work for all pipes; else it is 0.
pub const IMAD: u32 = 0x1d1;
/// Default of `UNROLLED`.
pub const UNROLLED: u32 = 0;

/// Default of `MIN_BLOCKS` for SHA-256 of messages.
pub const HASH_BLOCKS: u32 = 4;

/// Default of `FP64`: Poseidon in integers, which every GPU multiplies fast.
pub const FP64: u32 = 0;

/// Values of `TENSOR`: Poseidon without tensor cores, with products of one warp (`mma.sync`), with products of four warps (`wgmma`).
pub const TENSOR_FORMS: [u32; 3] = [0, 1, 2];

/// Blocks of [`MAX_THREADS`] that a compute unit must have room for: 80 registers a thread.
const MIN_BLOCKS: u32 = 3;

/// Blocks of [`MAX_THREADS`] for the kernel that compares: as many as every compute unit has threads for.
const COMPARE_BLOCKS: u32 = 4;

/// A kernel's definitions: its family's number, n, and what of the choices changes its code.
pub(crate) type Defines = [(&'static str, u32); 8];

/// Choices that make no difference are left at one value, so that the same code is not made twice.
pub(crate) fn defines(kernel: Kernel, family: Family, n: usize, choices: &[(&'static str, u32)]) -> Defines {
    let choice = |name, else_| choices.iter().find(|(other, _)| *other == name).map_or(else_, |(_, value)| *value);
    let sha256 = kernel == Kernel::Sha256;
    // The code of the others is one for all sets.
    let is_of_set = !sha256 && !kernel.is_zk() && kernel != Kernel::Compare;
    // No register may spill: what is in them is secret, and would stay in device memory. Keccak's and SHA-512's states need more than 80, which
    // is faster too (docs/cuda.md). Keccak's state takes 50 words of registers, Poseidon's with its matrix nearly all that a thread can have.
    let blocks = match (family_of(kernel, family), kernel) {
        (_, Kernel::ZkSponge) => 1,
        (_, Kernel::ZkPublic | Kernel::ZkKeys | Kernel::ZkCommit | Kernel::ZkRespond | Kernel::ZkSelect) => 4,
        (_, Kernel::Sha256) => choice("MIN_BLOCKS", HASH_BLOCKS),
        (_, Kernel::Compare) => COMPARE_BLOCKS,
        (Family::Shake, _) => KECCAK_BLOCKS,
        (Family::Sha2, Kernel::Chains | Kernel::Complete) => choice("CHAINS_BLOCKS", MIN_BLOCKS),
        (Family::Sha2, Kernel::Fors) if n == 16 => choice("CHAINS_BLOCKS", MIN_BLOCKS),
        (Family::Sha2, Kernel::Digest) if n > 16 => 1,
        (Family::Sha2, Kernel::Fors | Kernel::Digest) => 2,
        (Family::Sha2, _) if n > 16 => 2,
        (Family::Sha2, _) => MIN_BLOCKS,
    };
    // Only SHA-256 has additions by ADD, and only the other hashes have rolled rounds.
    let has_imad = sha256 || (is_of_set && family == Family::Sha2);
    let has_rounds = is_of_set && (family, n) != (Family::Sha2, 16);
    [
        ("FAMILY", number(family_of(kernel, family))),
        ("N", if is_of_set { n as u32 } else { 16 }),
        ("MAX_THREADS", if sha256 { choice("MAX_THREADS", MAX_THREADS) } else { MAX_THREADS }),
        ("MIN_BLOCKS", blocks),
        ("IMAD", if has_imad { choice("IMAD", 0) } else { 0 }),
        ("UNROLLED", if has_rounds { choice("UNROLLED", UNROLLED) } else { 0 }),
        ("FP64", if kernel == Kernel::ZkSponge { choice("FP64", FP64) } else { 0 }),
        ("TENSOR", if kernel.needs_tensor_cores() { choice("TENSOR", 1) } else { 0 }),
    ]
}

/// The choices of the default policies: with plenty of work, and with little. Poseidon's kernels, which know `FP64` or `TENSOR` alone,
/// come in integers and by `mma.sync` from the first, in doubles and by `wgmma` from the second.
pub(crate) const DEFAULTS: [[(&str, u32); 5]; 2] = [
    [("CHAINS_BLOCKS", CHAINS_BLOCKS), ("IMAD", IMAD), ("UNROLLED", UNROLLED), ("FP64", 0), ("TENSOR", 1)],
    [("CHAINS_BLOCKS", CHAINS_BLOCKS), ("IMAD", 0), ("UNROLLED", UNROLLED), ("FP64", 1), ("TENSOR", 2)],
];
