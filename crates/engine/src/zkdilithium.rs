//! zkDilithium by the batch: what a backend may do beside plans of SLH-DSA.

use crate::{Axis, Error, Timing};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{Message, Op, Signature, SigningKey, SigningKeyWords, VerifyingKey};

/// A signature to be made.
#[derive(Clone, Copy, Debug)]
pub struct ZkSign<'a> {
    /// Whose.
    pub key: &'a SigningKey,
    /// Of what.
    pub message: Message<'a>,
}

/// A signature to be judged.
#[derive(Clone, Copy, Debug)]
pub struct ZkVerify<'a> {
    /// Whose it should be.
    pub key: &'a VerifyingKey,
    /// Of what.
    pub message: Message<'a>,
    /// The signature, of any length.
    pub signature: &'a [u8],
}

/// A device made ready for zkDilithium. Results are appended in the order of the jobs; after an error there are none.
/// Keys that are the same in memory are made ready once.
pub trait ZkDilithium: Send {
    /// What can be chosen by a policy.
    fn space(&self) -> Vec<Axis>;
    /// Poseidon permutations a second that its arithmetic allows, if that is known.
    fn poseidon_rate(&self) -> Option<f64>;
    /// Jobs of one call that fill the device: more of them make it no faster.
    fn jobs(&self, op: Op) -> usize;
    /// Whether the next calls put every job in another place of the device than usual: see
    /// [`Program::elsewhere`](crate::Program::elsewhere).
    fn elsewhere(&mut self, elsewhere: bool);
    /// The keys of these seeds: handed out some at a time, in their order, from where they arrive. Whoever takes them is
    /// waited for, and forgets them after an error.
    fn keygen(&mut self, seeds: &[[u8; SEED_BYTES]], take: &mut dyn FnMut(&[SigningKeyWords]))
    -> Result<Timing, Error>;
    /// The signatures.
    fn sign(&mut self, jobs: &[ZkSign<'_>], out: &mut Vec<Signature>) -> Result<Timing, Error>;
    /// The verdicts.
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error>;
}
