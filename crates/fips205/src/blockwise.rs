//! SHA-512's family and Keccak's, of messages that come in pieces.

use crate::sha2::IV512;
use ::sha2::block_api::compress512;
use keccak::Keccak;
use zeroize::Zeroize;

/// SHA-384's initial state (FIPS 180-4, 5.3.4).
const SHA384: [u64; 8] = fractions_of_roots([23, 29, 31, 37, 41, 43, 47, 53]);

/// The first 64 bits of the fractions of square roots of primes below 64, digit by digit.
const fn fractions_of_roots(primes: [u8; 8]) -> [u64; 8] {
    let (mut fractions, mut i) = ([0; 8], 0);
    while i < 8 {
        let (mut root, mut remainder, mut digit) = (0u128, 0u128, 0);
        while digit < 3 + 64 {
            let next = if digit < 3 { primes[i] >> (4 - 2 * digit) & 3 } else { 0 };
            remainder = remainder << 2 | next as u128;
            let subtrahend = root << 2 | 1;
            let one = remainder >= subtrahend;
            remainder -= if one { subtrahend } else { 0 };
            root = root << 1 | one as u128;
            digit += 1;
        }
        fractions[i] = root as u64;
        i += 1;
    }
    fractions
}

/// Bytes of the longest block: SHAKE128's.
const MAX_BLOCK: usize = 168;

/// Takes whole blocks of one message into the state of a hash function. Running time depends on lengths alone.
pub trait BlockHash: Send + Sync {
    /// SHA-512's compressions of blocks (FIPS 180-4, 6.4.2).
    fn sha512(&self, state: &mut [u64; 8], blocks: &[[u8; 128]]);
    /// Takes blocks of `rate` bytes, at most 200 and a multiple of eight, into a state of Keccak (FIPS 202, 4).
    /// Bytes of `blocks` behind the last whole block are ignored.
    fn keccak(&self, state: &mut [u64; 25], rate: usize, blocks: &[u8]);
}

/// The crates `sha2` and `keccak`: on every machine, without an operating system too.
pub(crate) struct Crates;

impl BlockHash for Crates {
    fn sha512(&self, state: &mut [u64; 8], blocks: &[[u8; 128]]) {
        compress512(state, blocks);
    }
    fn keccak(&self, state: &mut [u64; 25], rate: usize, blocks: &[u8]) {
        Keccak::new().with_f1600(|permute| {
            for block in blocks.chunks_exact(rate) {
                for (word, bytes) in state.iter_mut().zip(block.as_chunks().0) {
                    *word ^= u64::from_le_bytes(*bytes);
                }
                permute(state);
            }
        });
    }
}

/// A hash function whose state takes a message block by block.
#[derive(Clone)]
pub(crate) struct Blockwise {
    state: State,
    by: &'static dyn BlockHash,
    /// Bytes of a block.
    block: usize,
    /// The start of a block that is not whole yet.
    partial: [u8; MAX_BLOCK],
    held: usize,
    /// Bytes of the message.
    length: u128,
}

#[derive(Clone)]
enum State {
    Sha512([u64; 8]),
    Keccak {
        words: [u64; 25],
        /// The byte that follows the message: domain bits and the first bit of the padding.
        suffix: u8,
    },
}

impl Blockwise {
    pub(crate) fn sha512(by: &'static dyn BlockHash) -> Blockwise {
        Blockwise::new(by, State::Sha512(IV512), 128)
    }
    pub(crate) fn sha384(by: &'static dyn BlockHash) -> Blockwise {
        Blockwise::new(by, State::Sha512(SHA384), 128)
    }
    /// SHA-512/t, by its name (FIPS 180-4, 5.3.6).
    pub(crate) fn sha512_t(by: &'static dyn BlockHash, name: &[u8]) -> Blockwise {
        let mut start = Blockwise::new(by, State::Sha512(IV512.map(|word| word ^ 0xa5a5_a5a5_a5a5_a5a5)), 128);
        start.update(name);
        start.pad();
        match start.state {
            State::Sha512(words) => Blockwise::new(by, State::Sha512(words), 128),
            State::Keccak { .. } => unreachable!("it began as SHA-512"),
        }
    }
    /// SHA-3 with digests of so many bytes (FIPS 202, 6.1).
    pub(crate) fn sha3(by: &'static dyn BlockHash, digest: usize) -> Blockwise {
        Blockwise::new(by, State::Keccak { words: [0; 25], suffix: 0x06 }, 200 - 2 * digest)
    }
    /// SHAKE of a security strength of so many bytes (FIPS 202, 6.2).
    pub(crate) fn shake(by: &'static dyn BlockHash, strength: usize) -> Blockwise {
        Blockwise::new(by, State::Keccak { words: [0; 25], suffix: 0x1f }, 200 - 2 * strength)
    }

    fn new(by: &'static dyn BlockHash, state: State, block: usize) -> Blockwise {
        Blockwise { state, by, block, partial: [0; MAX_BLOCK], held: 0, length: 0 }
    }

    pub(crate) fn update(&mut self, mut piece: &[u8]) {
        self.length += piece.len() as u128;
        if self.held > 0 {
            let (now, later) = piece.split_at(piece.len().min(self.block - self.held));
            self.partial[self.held..][..now.len()].copy_from_slice(now);
            (self.held, piece) = (self.held + now.len(), later);
            if self.held < self.block {
                return;
            }
            self.state.absorb(self.by, self.block, &self.partial[..self.block]);
        }
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % self.block);
        self.state.absorb(self.by, self.block, whole);
        self.partial[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    /// Ends the message with its padding.
    fn pad(&mut self) {
        let (held, last) = (self.held, self.block - 1);
        self.partial[held..].fill(0);
        match self.state {
            State::Sha512(_) => {
                self.partial[held] = 0x80;
                // The length takes 16 bytes; where it does not fit, the block after this one has it.
                if held + 16 > last {
                    self.state.absorb(self.by, self.block, &self.partial[..self.block]);
                    self.partial.fill(0);
                }
                self.partial[self.block - 16..self.block].copy_from_slice(&(8 * self.length).to_be_bytes());
            }
            State::Keccak { suffix, .. } => {
                self.partial[held] = suffix;
                self.partial[last] |= 0x80;
            }
        }
        self.state.absorb(self.by, self.block, &self.partial[..self.block]);
    }

    /// The digest's first bytes, at most a block of Keccak's.
    pub(crate) fn finish(mut self, out: &mut [u8]) {
        self.pad();
        for (i, bytes) in out.chunks_mut(8).enumerate() {
            let word = match &self.state {
                State::Sha512(words) => words[i].to_be_bytes(),
                State::Keccak { words, .. } => words[i].to_le_bytes(),
            };
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}

impl Drop for Blockwise {
    fn drop(&mut self) {
        self.partial.zeroize();
        match &mut self.state {
            State::Sha512(words) => words.zeroize(),
            State::Keccak { words, .. } => words.zeroize(),
        }
    }
}

impl State {
    /// Takes whole blocks of so many bytes.
    fn absorb(&mut self, by: &dyn BlockHash, block: usize, blocks: &[u8]) {
        match self {
            State::Sha512(words) => by.sha512(words, blocks.as_chunks().0),
            State::Keccak { words, .. } => by.keccak(words, block, blocks),
        }
    }
}
