//! zkDilithium as [`Checked`] compares it: keys, signatures and verdicts of two backends.

use super::{ZkDilithium, ZkSign, ZkVerify, keygen_to_vec, sign_to_vec};
use crate::checked::Pair;
use crate::{Axis, Checked, Device, Error, Places, Policy, Timing, ZkDilithiumPrograms, forward};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKey, SigningKeyBytes};
use zeroize::Zeroize;

impl ZkDilithiumPrograms for Checked {
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(self.pair(device, policy, |of, device, policy| of.zkdilithium_on(device)?.prepare(device, policy))?)
    }
}

impl ZkDilithium for Pair<dyn ZkDilithium> {
    fn space(&self) -> Vec<Axis> {
        self.subject.space()
    }
    fn poseidon_rate(&self, clock: Option<f64>) -> Option<f64> {
        self.subject.poseidon_rate(clock)
    }
    fn uses_expanded_keys(&self) -> bool {
        self.subject.uses_expanded_keys() || self.reference.uses_expanded_keys()
    }
    fn jobs(&self, op: Op) -> usize {
        self.subject.jobs(op)
    }
    fn queue(&self, op: Op) -> u32 {
        self.subject.queue(op)
    }
    fn bytes(&self) -> u64 {
        self.subject.bytes() + self.reference.bytes()
    }
    forward!(self => self.subject; time_limit);
    fn keygen(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let expected = keygen_to_vec(&mut *self.reference, seeds, places)?;
        let timing = self.subject.keygen(seeds, keys, places)?;
        match keys.iter().zip(expected).position(|(key, expected)| SigningKey::from_bytes(&key[..]) != Ok(expected)) {
            None => Ok(timing),
            Some(at) => Err(self.inconsistent(format!("the key of seed {at} differs"))),
        }
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let timing = self.subject.sign(jobs, signatures, places)?;
        let expected = sign_to_vec(&mut *self.reference, jobs, places);
        let compared = expected.and_then(|mut expected| {
            let differs =
                signatures.iter().zip(&expected).position(|(made, expected)| made[..] != *expected.as_bytes());
            let Some(at) = differs else { return Ok(timing) };
            expected.iter_mut().for_each(|signature| signature.bytes_mut().zeroize());
            Err(self.inconsistent(format!("the signature of job {at} differs")))
        });
        // Two signatures of one message that differ may give the private key away: neither may leave.
        compared.inspect_err(|_| signatures.iter_mut().for_each(|signature| signature.zeroize()))
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error> {
        let (before, mut expected) = (out.len(), Vec::with_capacity(jobs.len()));
        let timing = self.subject.verify(jobs, out, places)?;
        let compared =
            self.reference.verify(jobs, &mut expected, places).and_then(|_| match differs(&out[before..], &expected) {
                None => Ok(timing),
                Some(at) => Err(self.inconsistent(format!("the verdict of job {at} differs"))),
            });
        if compared.is_err() {
            out.truncate(before);
        }
        compared
    }
}

/// The first index at which two lists differ; if one list begins the other, the shorter one's length.
fn differs<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    let (least, most) = (a.len().min(b.len()), a.len().max(b.len()));
    a.iter().zip(b).position(|(a, b)| a != b).or((least < most).then_some(least))
}
