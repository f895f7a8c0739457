//! The arguments of zkDilithium's kernels.

use super::arguments;
use crate::zk::flags::{OF_BALL, OF_COM, OF_MU, OF_PUBLIC, OF_TR};

arguments! {
    /// ρ, ρ′ and `key` of seeds. A thread a seed.
    Grow for ZkSeed => {
        /// 8 words each.
        seeds: u64 => jobs,
        /// `SEED_SIZE` words each.
        grown: u64 => outs,
    }
    /// ExpandA. A thread a polynomial, 16 a key.
    ExpandA for ZkMatrix => {
        /// Of each key, ρ first.
        raw: u64 => jobs,
        /// Words from a key's ρ to the next.
        raw_words: u32 => count,
        /// Expanded keys, whose A is written.
        keys: u64 => keys,
    }
    /// ExpandS. A thread a polynomial, 8 a key.
    ExpandS for ZkShort => {
        /// `SEED_SIZE` words a key.
        grown: u64 => jobs,
        /// `SHORT_SIZE` words a polynomial.
        short: u64 => outs,
    }
    /// t, and private keys but for tr. A block a key.
    ComputeT for ZkPublic => {
        /// Expanded keys, whose A is there.
        keys: u64 => keys,
        /// `SEED_SIZE` words a key.
        grown: u64 => jobs,
        /// `8·SHORT_SIZE` words a key.
        short: u64 => nodes,
        /// Private keys.
        private: u64 => outs,
    }
    /// tr, the hash of a public key. A thread a key.
    HashPublic for ZkTr => {
        /// Of each key ρ, and t somewhere behind it.
        raw: u64 => jobs,
        /// Words from a key's ρ to the next.
        raw_words: u32 => count,
        /// Words from ρ to t.
        t_at: u32 => skip,
        /// Where tr goes.
        to: u64 => outs,
        /// Words from one `to` to the next.
        to_words: u32 => rows,
        /// Words from `to` to its tr.
        tr_at: u32 => first,
    }
    /// s₁ and s₂, or of public keys t, transformed. A block a key.
    PrepareKeys for ZkKeys => {
        /// Keys as they are.
        raw: u64 => jobs,
        /// Expanded keys.
        keys: u64 => keys,
        /// `OF_PUBLIC` for public keys, otherwise 0.
        flags: u32 => flags,
    }
    /// The state of the sponge after 0 and tr. A thread a key.
    AbsorbTr for ZkSponge, flags of _it: OF_TR => {
        /// Expanded keys, whose tr is read and whose state is written.
        keys: u64 => keys + roots,
    }
    /// μ, and the state after it. A thread a job.
    AbsorbMessage for ZkSponge, flags of _it: OF_MU => {
        /// Expanded keys.
        keys: u64 => keys,
        /// Jobs.
        jobs: u64 => jobs,
        /// Their messages.
        messages: u64 => nodes,
        /// The starts of the jobs' attempts: μ and the state after it are written.
        starts: u64 => outs + roots,
    }
    /// c̃ of attempts to sign. A thread an attempt.
    HashCommitment for ZkSponge, flags of _it: OF_COM => {
        /// Attempts.
        attempts: u64 => trace,
        /// Their jobs' starts: the state after μ is read.
        starts: u64 => nodes,
        /// The attempts' results: w₁ becomes c̃.
        made: u64 => outs + roots,
    }
    /// Whether c̃ of signatures is that of their w₁. A thread a job.
    CompareCommitment for ZkSponge, flags of _it: OF_COM | OF_PUBLIC => {
        /// μ of each job.
        starts: u64 => nodes,
        /// The jobs' results: w₁ becomes c̃.
        made: u64 => outs + roots,
        /// Signatures.
        signatures: u64 => sigs,
        /// Whether anything else was wrong; becomes the verdict.
        verdicts: u64 => flag,
    }
    /// Draws from the c̃ that attempts made. A thread an attempt.
    Draw for ZkSponge, flags of _it: OF_BALL => {
        /// The attempts' results: c̃ becomes draws.
        made: u64 => outs + roots,
    }
    /// Draws from the c̃ of signatures. A thread a job.
    DrawOfSignatures for ZkSponge, flags of _it: OF_BALL | OF_PUBLIC => {
        /// The jobs' results: the draws are written.
        made: u64 => outs + roots,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// ρ″. A thread a job.
    SeedMasks for ZkRho2 => {
        /// Expanded keys.
        keys: u64 => keys,
        /// Jobs.
        jobs: u64 => jobs,
        /// Their messages.
        messages: u64 => nodes,
        /// The starts of the jobs' attempts: μ is there, ρ″ is written.
        starts: u64 => outs,
    }
    /// ExpandY. A thread a polynomial, 4 an attempt.
    ExpandY for ZkMask => {
        /// Attempts.
        attempts: u64 => trace,
        /// Their jobs' starts: ρ″ is read.
        starts: u64 => nodes,
        /// The attempts' results: y is written.
        made: u64 => outs,
    }
    /// w and w₁ of attempts. A block an attempt.
    Commit for ZkCommit => {
        /// Expanded keys.
        keys: u64 => keys,
        /// Jobs.
        jobs: u64 => jobs,
        /// Attempts.
        attempts: u64 => trace,
        /// The attempts' results: y is read, w and w₁ are written.
        made: u64 => outs,
    }
    /// w₁ as signatures give it. A block a job.
    Recompute for ZkCommit, flags of _it: OF_PUBLIC => {
        /// Expanded keys, public ones.
        keys: u64 => keys,
        /// Jobs.
        jobs: u64 => jobs,
        /// The jobs' results: the draws are read, w₁ is written.
        made: u64 => outs,
        /// Signatures.
        signatures: u64 => sigs,
        /// Whether z is too long or there is no c.
        verdicts: u64 => flag,
    }
    /// Both norms, and the signature if they pass. A block an attempt.
    Respond for ZkRespond => {
        /// Expanded keys.
        keys: u64 => keys,
        /// Jobs.
        jobs: u64 => jobs,
        /// Attempts.
        attempts: u64 => trace,
        /// The attempts' results: the signature is written.
        made: u64 => outs,
        /// 1 for those that pass.
        passes: u64 => flag,
    }
    /// The signature of each job that has an attempt which passes. A block an attempt.
    Select for ZkSelect => {
        /// Attempts, those of a job one after the other with rising κ.
        attempts: u64 => trace,
        /// The attempts' results: the signature is read.
        made: u64 => outs,
        /// Which pass.
        passes: u64 => flag,
        /// Signatures of jobs.
        signatures: u64 => sigs,
    }
}
