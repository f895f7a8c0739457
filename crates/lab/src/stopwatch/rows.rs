//! Rows under the stopwatch: columns in ordinary memory, or in memory that devices reach, packed but for those that are verified,
//! which are slices of fewer signatures. Results go into memory that is used again.

use super::{Answer, Timed, Trial, check, check_key, message, same, wrong};
use crate::args::RowMemory;
use crate::failure::Failure;
use hypergrove::rows::{Column, RowSigningKeys, RowStatus};
use hypergrove::schemes::{MessageRows, RowVerifyingKeys, SchemeKey, SignatureRows};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

fn all_are(status: RowStatus, statuses: &[RowStatus], otherwise: &str) -> Result<(), Failure> {
    if statuses.iter().all(|found| *found == status) { Ok(()) } else { Err(wrong(otherwise)) }
}

impl<S: Timed> Trial<'_, S> {
    /// Memory for rows, of the kind that was asked for.
    fn memory(&self, bytes: usize) -> Result<Box<dyn DerefMut<Target = [u8]>>, Failure> {
        if self.question.rows != Some(RowMemory::Device) {
            return Ok(Box::new(vec![0; bytes]));
        }
        let memory = self.engine.memory(bytes)?;
        if memory.devices().is_empty() {
            return Err(Failure::new("no device reaches memory of the host here; measure --rows host"));
        }
        Ok(Box::new(memory))
    }

    pub(super) fn keygen_in_rows(&self) -> Result<Answer, Failure> {
        let (set, sizes) = (self.question.params, self.question.params.sizes());
        let mut seeds = vec![0; self.batch * sizes.seeds];
        seeds.chunks_mut(sizes.seeds).enumerate().for_each(|(i, to)| S::write_seeds(&set.seeds(i), to));
        let mut private = self.memory(self.batch * sizes.private)?;
        let mut public = (!S::AT_ONCE).then(|| self.memory(self.batch * sizes.public)).transpose()?;
        let mut answer = Vec::new();
        self.timed(None, |jobs| {
            let public = public.as_mut().map(|public| &mut public[..jobs * sizes.public]);
            let private = &mut private[..jobs * sizes.private];
            let start = Instant::now();
            self.engine.keygen_rows_from_seeds(set, &seeds[..jobs * sizes.seeds], private, public)?;
            let time = start.elapsed();
            if answer.is_empty() {
                let last = SchemeKey::of_bytes(set, &private[(jobs - 1) * sizes.private..]);
                check_key::<S>(&last, &set.seeds(jobs - 1))?;
            }
            same(&mut answer, private).map(|()| time)
        })
    }

    /// Signs messages of one length, deterministically; gives the time that it took.
    fn sign_rows(
        &self,
        key: &S::SigningKey,
        (messages, width): (&[u8], usize),
        signatures: &mut [u8],
    ) -> Result<Duration, Failure> {
        let (mode, randomizer) = (S::Mode::default(), S::deterministic());
        let messages = Column::packed(messages, width);
        let rows = MessageRows::<S> { keys: RowSigningKeys::One(key), mode, messages: messages.into(), randomizer };
        let mut statuses = vec![RowStatus::default(); signatures.len() / self.question.params.sizes().signature];
        let start = Instant::now();
        self.engine.sign_rows(&rows, signatures, &mut statuses)?;
        let time = start.elapsed();
        all_are(RowStatus::Signed, &statuses, "a row was not signed").map(|()| time)
    }

    fn check_rows(&self, key: &S::SigningKey, messages: &[Vec<u8>], signatures: &[u8]) -> Result<(), Failure> {
        let set = self.question.params;
        let each = signatures.chunks(set.sizes().signature).map(|bytes| set.signature(bytes.into()));
        check(self.engine, set, key, messages, &each.collect::<Vec<_>>())
    }

    pub(super) fn sign_in_rows(&self) -> Result<Answer, Failure> {
        let size = self.question.params.sizes().signature;
        let (key, build) = self.key(self.question.cached_layers)?;
        let each: Vec<Vec<u8>> = (0..self.batch).map(message).collect();
        let (messages, width) = (each.concat(), each[0].len());
        let mut signatures = self.memory(self.batch * size)?;
        let mut answer = Vec::new();
        self.timed(build, |jobs| {
            let signatures = &mut signatures[..jobs * size];
            let time = self.sign_rows(&key, (&messages[..jobs * width], width), signatures)?;
            if answer.is_empty() {
                self.check_rows(&key, &each, signatures)?;
            }
            same(&mut answer, signatures).map(|()| time)
        })
    }

    /// Verifies valid signatures; gives the time that it took.
    pub(super) fn verify_rows(
        &self,
        key: &S::VerifyingKey,
        messages: &[&[u8]],
        signatures: &[&[u8]],
    ) -> Result<Duration, Failure> {
        let (keys, mode) = (RowVerifyingKeys::One(key), S::Mode::default());
        let mut statuses = vec![RowStatus::default(); messages.len()];
        let (messages, signatures) = (Column::Slices(messages).into(), Column::Slices(signatures));
        let rows = SignatureRows::<S> { keys, mode, messages, signatures };
        let start = Instant::now();
        self.engine.verify_rows(&rows, &mut statuses)?;
        let time = start.elapsed();
        all_are(RowStatus::Valid, &statuses, "a row with a valid signature is not valid").map(|()| time)
    }

    pub(super) fn verify_in_rows(&self) -> Result<Answer, Failure> {
        let size = self.question.params.sizes().signature;
        let (key, each) = self.key_and_messages()?;
        let (messages, width) = (each.concat(), each[0].len());
        let mut signatures = self.memory(each.len() * size)?;
        self.sign_rows(&key, (&messages, width), &mut signatures)?;
        self.check_rows(&key, &each, &signatures)?;
        let messages: Vec<&[u8]> = messages.chunks(width).cycle().take(self.batch).collect();
        let signatures: Vec<&[u8]> = signatures.chunks(size).cycle().take(self.batch).collect();
        let public = S::public(&key);
        self.timed(None, |jobs| self.verify_rows(&public, &messages[..jobs], &signatures[..jobs]))
    }
}
