//! Hashes of keys and messages: μ, c̃ and ρ″.

use crate::field::Fe;
use crate::pack::{bytes_to_fes, pack_fes};
use crate::params::{CSIZE, FE_BYTES, HASH_BYTES, K, MUSIZE, N, T};
use crate::poseidon::{Sponge, State};
use crate::sample::{h, h_to};
use crate::trace::Trace;
use alloc::boxed::Box;
use zeroize::Zeroizing;

/// A message in one of three forms.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Any number of bytes.
    Bytes(&'a [u8]),
    /// The one block that a circuit hashes on top of [`state_after_tr`]: 12 elements of a message and 12 of a blinding
    /// commitment. For 1 to 48 bytes it is the same μ as that of their elements, filled up with zeros.
    Block(&'a [Fe; MUSIZE]),
    /// μ itself. Whoever chooses it must have hashed the public key with the message.
    Mu(&'a [Fe; MUSIZE]),
}

impl<'a> From<&'a [u8]> for Message<'a> {
    fn from(bytes: &'a [u8]) -> Message<'a> {
        Message::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Message<'a> {
    fn from(bytes: &'a [u8; N]) -> Message<'a> {
        Message::Bytes(bytes)
    }
}

/// Poseidon's state after 0 ‖ tr: where every μ of a key starts.
pub fn state_after_tr(tr: &[u8; HASH_BYTES], trace: &mut Trace) -> State {
    let mut sponge = Sponge::new([Fe::ZERO; T], trace);
    sponge.absorb([Fe::ZERO]);
    sponge.absorb(bytes_to_fes(tr));
    sponge.flush()
}

impl Message<'_> {
    /// μ.
    pub fn mu(&self, state_after_tr: &State, trace: &mut Trace) -> [Fe; MUSIZE] {
        let mut sponge = Sponge::new(*state_after_tr, trace);
        match *self {
            Message::Bytes(bytes) => sponge.absorb(bytes_to_fes(bytes)),
            Message::Block(block) => sponge.absorb(*block),
            Message::Mu(mu) => return *mu,
        }
        sponge.squeeze()
    }

    /// ρ″, the seed of the masks: H(key ‖ H(tr ‖ message, 64), 64) for bytes, H(key ‖ fe24(μ), 64) for elements.
    ///
    /// Two different challenges must never meet the same masks, or s₁ can be solved for. The inputs of the two hashes
    /// have 96 and 104 bytes, so no message gives the masks of a μ.
    pub fn rho2(&self, key: &[u8; HASH_BYTES], tr: &[u8; HASH_BYTES], mu: &[Fe; MUSIZE]) -> Box<Zeroizing<[u8; 64]>> {
        let mut rho2 = Box::new(Zeroizing::new([0; 64]));
        match self {
            Message::Bytes(bytes) => h_to(&[key, &h::<64>(&[tr, bytes])], &mut rho2[..]),
            Message::Block(_) | Message::Mu(_) => {
                let mut packed = [0; MUSIZE * FE_BYTES];
                pack_fes(mu, &mut packed);
                h_to(&[key, &packed], &mut rho2[..]);
            }
        }
        rho2
    }
}

/// com: c̃ of μ and w₁, whose coefficients are taken row by row within a column.
pub fn com(mu: &[Fe; MUSIZE], w1: &[[u32; N]; K], trace: &mut Trace) -> [Fe; CSIZE] {
    let mut sponge = Sponge::new([Fe::ZERO; T], trace);
    sponge.absorb(*mu);
    for j in 0..N {
        sponge.absorb((0..K).map(|i| Fe::new(w1[i][j])));
    }
    sponge.squeeze()
}
