//! What the compiler is told of a kernel. The build script, which makes ready ones, has this file too.

use crate::kernel::Kernel;

/// The numbers of the hash families, as `family.h` has them, and their names in modules and functions.
pub(crate) const SHA2: u32 = 0;
pub(crate) const SHAKE: u32 = 1;
pub(crate) const FAMILIES: [(u32, &str); 2] = [(SHA2, "sha2"), (SHAKE, "shake")];

/// Threads that a block may have.
pub const MAX_THREADS: u32 = 256;
/// Default of `CHAINS_BLOCKS`.
pub const CHAINS_BLOCKS: u32 = 4;
/// Default of `IMAD` where there is work for all pipes; else it is 0.
pub const IMAD: u32 = 0x1d1;
/// Default of `UNROLLED`.
pub const UNROLLED: u32 = 0;

/// Default of `MIN_BLOCKS` for SHA-256 of messages.
pub const HASH_BLOCKS: u32 = 4;

/// Default of `FP64`: Poseidon in integers, which every GPU multiplies fast.
pub const FP64: u32 = 0;

/// Blocks of [`MAX_THREADS`] that a compute unit must have room for: 80 registers a thread.
const MIN_BLOCKS: u32 = 3;

/// A kernel's definitions: its family's number, n, and what of the choices changes its code.
pub(crate) type Defines = [(&'static str, u32); 7];

/// Choices that make no difference are left at one value, so that the same code is not made twice.
pub(crate) fn defines(kernel: Kernel, family: u32, n: usize, choices: &[(&'static str, u32)]) -> Defines {
    let choice = |name, else_| choices.iter().find(|(other, _)| *other == name).map_or(else_, |(_, value)| *value);
    if kernel.is_zk() {
        // Keccak's state takes 50 words of registers, Poseidon's with its matrix nearly all that a thread can have.
        let fp64 = choice("FP64", FP64);
        let blocks = match kernel {
            Kernel::ZkSponge => 1,
            Kernel::ZkPublic | Kernel::ZkKeys | Kernel::ZkCommit | Kernel::ZkRespond | Kernel::ZkSelect => 4,
            _ => 2,
        };
        return [
            ("FAMILY", SHAKE),
            ("N", 16),
            ("MAX_THREADS", MAX_THREADS),
            ("MIN_BLOCKS", blocks),
            ("IMAD", 0),
            ("UNROLLED", 0),
            ("FP64", if kernel == Kernel::ZkSponge { fp64 } else { 0 }),
        ];
    }
    if kernel == Kernel::Sha256 {
        // One code for all: messages have no family.
        return [
            ("FAMILY", SHA2),
            ("N", 16),
            ("MAX_THREADS", choice("MAX_THREADS", MAX_THREADS)),
            ("MIN_BLOCKS", choice("MIN_BLOCKS", HASH_BLOCKS)),
            ("IMAD", choice("IMAD", 0)),
            ("UNROLLED", 0),
            ("FP64", 0),
        ];
    }
    let sha2 = family == SHA2;
    // No register may spill: what is in them is secret, and would stay in device memory. Keccak's state needs 128,
    // which is faster too (docs/cuda.md).
    let blocks = match kernel {
        _ if !sha2 => 2,
        Kernel::Chains | Kernel::Complete => choice("CHAINS_BLOCKS", MIN_BLOCKS),
        Kernel::Fors if n == 16 => choice("CHAINS_BLOCKS", MIN_BLOCKS),
        Kernel::Digest if n > 16 => 1,
        Kernel::Fors | Kernel::Digest => 2,
        _ => MIN_BLOCKS,
    };
    [
        ("FAMILY", family),
        ("N", n as u32),
        ("MAX_THREADS", MAX_THREADS),
        ("MIN_BLOCKS", blocks),
        // Only SHA-256 has additions by ADD, and only the others have rolled rounds.
        ("IMAD", if sha2 { choice("IMAD", 0) } else { 0 }),
        ("UNROLLED", if sha2 && n == 16 { 0 } else { choice("UNROLLED", 0) }),
        ("FP64", 0),
    ]
}

/// The choices of the default policies: with plenty of work, and with little. zkDilithium's kernels, which know no
/// other choice, come in integers by the first and in doubles by the second.
pub(crate) const DEFAULTS: [[(&str, u32); 4]; 2] = [
    [("CHAINS_BLOCKS", CHAINS_BLOCKS), ("IMAD", IMAD), ("UNROLLED", UNROLLED), ("FP64", 0)],
    [("CHAINS_BLOCKS", CHAINS_BLOCKS), ("IMAD", 0), ("UNROLLED", UNROLLED), ("FP64", 1)],
];
