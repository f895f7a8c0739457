//! zkDilithium in batches, which a backend may compute in addition to plans of SLH-DSA.

use crate::Error;
use crate::device::{Axis, Device, Places, Policy, Timing};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{
    ExpandedSigningKey, ExpandedVerifyingKey, Message, Op, SignatureBytes, SigningKey, SigningKeyBytes, VerifyingKey,
};
use std::time::Duration;

/// A signature to be made.
#[derive(Clone, Copy, Debug)]
pub struct ZkSign<'a> {
    /// The key to sign with.
    pub key: &'a SigningKey,
    /// The expanded form of `key`, if the caller has it and the program [uses it](ZkDilithium::uses_expanded_keys).
    pub expanded: Option<&'a ExpandedSigningKey>,
    /// The message to sign.
    pub message: Message<'a>,
}

impl<'a> ZkSign<'a> {
    /// A signature to be made with a key that is not expanded.
    pub fn new(key: &'a SigningKey, message: Message<'a>) -> ZkSign<'a> {
        ZkSign { key, expanded: None, message }
    }
}

/// A signature to be verified.
#[derive(Clone, Copy, Debug)]
pub struct ZkVerify<'a> {
    /// The key to verify with.
    pub key: &'a VerifyingKey,
    /// The expanded form of `key`, if the caller has it and the program [uses it](ZkDilithium::uses_expanded_keys).
    pub expanded: Option<&'a ExpandedVerifyingKey>,
    /// The message that was signed.
    pub message: Message<'a>,
    /// The signature, of any length.
    pub signature: &'a [u8],
}

impl<'a> ZkVerify<'a> {
    /// A signature to be verified with a key that is not expanded.
    pub fn new(key: &'a VerifyingKey, message: Message<'a>, signature: &'a [u8]) -> ZkVerify<'a> {
        ZkVerify { key, expanded: None, message, signature }
    }
}

/// A device prepared for zkDilithium. Results are in the order of the jobs; verdicts are appended, and after an error there are none. Keys that are
/// the same in memory are prepared once. In [`Places::Other`], a program expands signing keys anew, whatever the caller passes. So a batch that is run
/// in both places has its expansions compared as well. No program computes in [`Places::Both`].
pub trait ZkDilithium: Send {
    /// The axes that a policy can choose.
    fn space(&self) -> Vec<Axis>;
    /// Poseidon permutations a second that the device's arithmetic allows, if known. `clock` has cycles a second, for a device that does not know its
    /// own clock.
    fn poseidon_rate(&self, clock: Option<f64>) -> Option<f64>;
    /// Whether a caller that has expanded keys, or computes many jobs with the same keys, should pass the keys expanded too. A
    /// program that uses them expands keys itself where they are not passed.
    fn uses_expanded_keys(&self) -> bool;
    /// Jobs of one call that fill the device: more jobs make it no faster.
    fn jobs(&self, op: Op) -> usize;
    /// Programs in flight that keep the device busy.
    fn queue(&self, op: Op) -> u32;
    /// Bytes of the host's memory that the program works in, on all its threads; after the first run in other places, those in both. A GPU's
    /// pinned memory does not count.
    fn bytes(&self) -> u64;
    /// Sets how long a wait for the device may take from now on: see [`Program::time_limit`](crate::Program::time_limit).
    fn time_limit(&mut self, limit: Option<Duration>);
    /// Writes the key of each seed to its place in the caller's memory. There are as many places as seeds. After an error, the caller
    /// wipes them.
    fn keygen(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error>;
    /// Writes the signature of each job to its place in the caller's memory, as [`keygen`](ZkDilithium::keygen) writes keys.
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error>;
    /// Appends the verdict on each signature to `out`.
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error>;
}

/// The fewest jobs that a thread lists or lays out for a program: one takes a few nanoseconds.
pub const ZK_JOBS_OF_A_THREAD: usize = 4096;

/// Prepares the devices of a backend for zkDilithium, whose keys and stages differ from those of plans.
pub trait ZkDilithiumPrograms: Send + Sync {
    /// Prepares zkDilithium on a device. `Err(Unsupported)` declines the device.
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error>;
}
