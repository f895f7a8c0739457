//! The digests of messages: R and the positions that a message selects, as the host computes them or a device asks for them.

use super::inputs::{Message, Randomizer, SlhDsa, m_prime};
use crate::scheme::{Of, ToSign, ToVerify};
use hypergrove_engine::scheduler::{Parts, Run};
use hypergrove_engine::trace::{self, Step};
use hypergrove_engine::{Digests, Error, Key, Places, wiped};
use hypergrove_fips205::digest::prf_msg;
use hypergrove_fips205::{ForsLeaves, MPrime, Params, Position};
use hypergrove_taint::declassify;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

impl ToSign<'_, SlhDsa> {
    /// Computes the message's R, the first part of its signature, into `r`. Returns the position that the message's digest selects. The caller
    /// wipes the stack.
    ///
    /// FIPS 205, Algorithm 19: lines 1–10.
    fn randomized(&self, i: usize, fresh: &[u8], r: &mut [u8]) -> Position {
        let (p, key) = (self.key.params(), self.key.as_ref());
        let message = match self.message {
            Message::Bytes(message) => message,
            Message::Read(read) => {
                r.copy_from_slice(read.r());
                return read.position();
            }
        };
        let m_prime = m_prime(self.mode, message);
        prf_msg(p, key.sk_prf(), self.opt_rand(i, fresh), &m_prime, r);
        declassify(&*r);
        Position::of(p, r, key.pk_seed(), key.pk_root(), &m_prime)
    }
}

impl<'a> ToSign<'a, SlhDsa> {
    /// opt_rand of message i. `fresh` has n bytes for each message, unless no message is hedged.
    fn opt_rand<'f>(&self, i: usize, fresh: &'f [u8]) -> &'f [u8]
    where
        'a: 'f,
    {
        let n = self.key.params().n;
        match self.randomizer {
            Randomizer::Hedged => &fresh[i * n..][..n],
            Randomizer::Deterministic => self.key.as_ref().pk_seed(),
            Randomizer::Given(bytes) => bytes,
        }
    }
}

/// Jobs of a thread that looks for the longest message, at least.
const LENGTHS_OF_A_THREAD: usize = 1024;

/// Bytes of the longest message of so many jobs.
fn longest_of(run: &Run<'_>, jobs: usize, bytes: &(dyn Fn(usize) -> usize + Sync)) -> usize {
    let longest = AtomicUsize::new(0);
    run.place.ranges(jobs, LENGTHS_OF_A_THREAD, &|range| {
        longest.fetch_max(range.map(bytes).max().unwrap_or(0), Relaxed);
    });
    longest.into_inner()
}

/// Messages to be signed, and their R if the host computes it.
pub(super) struct SignDigests<'s, 'a> {
    pub(super) run: &'s Run<'s>,
    pub(super) of: Of<'s, ToSign<'a, SlhDsa>>,
    /// n bytes for each job, unless no job is hedged.
    pub(super) fresh: &'s [u8],
    pub(super) jobs: usize,
    pub(super) longest: OnceLock<usize>,
    /// R of each job, if the host has computed it; and the positions, if they are computed again.
    pub(super) made: Option<(Vec<u8>, Vec<Position>)>,
}

impl SignDigests<'_, '_> {
    /// Writes R of each signature, if the host has computed it.
    pub(super) fn put_rs(&self, out: Parts<'_, '_>) -> Result<(), Error> {
        let p = self.run.facts.plan().params;
        // Signatures are public; those that fail a check are wiped before anyone sees them.
        out.iter().for_each(|part| declassify(&**part));
        let Some((rs, _)) = &self.made else { return Ok(()) };
        let mut left = &rs[..];
        let parts = out.iter_mut().map(|rows| {
            let rs = left.split_off(..rows.len() / p.sig_bytes() * p.n).expect("an R for each signature");
            (&mut **rows, rs)
        });
        self.run.place.each_of(parts.collect(), &|(rows, rs): (&mut [u8], &[u8])| {
            for (row, r) in rows.chunks_exact_mut(p.sig_bytes()).zip(rs.chunks_exact(p.n)) {
                row[p.r_range()].copy_from_slice(r);
            }
            Ok(())
        })
    }
}

impl Digests for SignDigests<'_, '_> {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        let n = self.run.facts.plan().params.n;
        let mut rs = vec![0; self.jobs * n];
        let positions = randomize(self.run, self.of, self.fresh, &mut rs);
        match &self.made {
            Some(first) => same(n, first, (&rs, &positions))?,
            None if self.run.place.places == Places::Both => self.made = Some((rs, positions.clone())),
            None => self.made = Some((rs, Vec::new())),
        }
        Ok(positions)
    }
    fn longest(&self) -> usize {
        *self.longest.get_or_init(|| {
            longest_of(self.run, self.jobs, &|job| {
                let ToSign { mode, message, .. } = (self.of)(job);
                message.hashed_bytes(mode)
            })
        })
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let ToSign { mode, message, .. } = (self.of)(job);
        message.m_prime(mode)
    }
    fn opt_rand(&self, job: usize) -> &[u8] {
        (self.of)(job).opt_rand(job, self.fresh)
    }
}

/// Fails if the host's second computation of a job's R or position differs from the first.
fn same(n: usize, (rs, positions): &(Vec<u8>, Vec<Position>), again: (&[u8], &[Position])) -> Result<(), Error> {
    let differs = |what, job: Option<usize>| job.map_or(Ok(()), |job| Err(Error::differs("host".into(), what, job)));
    differs("R", rs.chunks_exact(n).zip(again.0.chunks_exact(n)).position(|(first, second)| first != second))?;
    differs("the digest", positions.iter().zip(again.1).position(|(first, second)| first != second))
}

/// Messages whose signatures are to be verified.
pub(super) struct VerifyDigests<'s, 'k, 'a> {
    pub(super) run: &'s Run<'s>,
    pub(super) of: Of<'s, ToVerify<'k, 'a, SlhDsa>>,
    pub(super) keys: &'s [Key<'s>],
    pub(super) key_of: &'s [u32],
    pub(super) longest: OnceLock<usize>,
}

impl Digests for VerifyDigests<'_, '_, '_> {
    /// FIPS 205, Algorithm 20: lines 4–11. A second computation is compared by the roots that follow from it.
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        let (p, jobs) = (self.run.facts.plan().params, self.key_of.len());
        let position = |i: usize| {
            let key = &self.keys[self.key_of[i] as usize];
            self.position(p, i, &(self.of)(i).signature[p.r_range()], key)
        };
        Ok(trace::step(Step::HashMessages, jobs, || self.run.place.map_in_place(jobs, 1, &position)))
    }
    fn longest(&self) -> usize {
        *self.longest.get_or_init(|| {
            longest_of(self.run, self.key_of.len(), &|job| {
                let ToVerify { mode, message, .. } = (self.of)(job);
                message.hashed_bytes(mode)
            })
        })
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let ToVerify { mode, message, .. } = (self.of)(job);
        message.m_prime(mode)
    }
    fn position(&self, p: &Params, job: usize, r: &[u8], key: &Key<'_>) -> Position {
        let ToVerify { mode, message, .. } = (self.of)(job);
        match message {
            Message::Bytes(message) => Position::of(p, r, key.pk_seed, key.pk_root, &m_prime(mode, message)),
            Message::Read(read) => read.position(),
        }
    }
    fn opt_rand(&self, _: usize) -> &[u8] {
        &[]
    }
    fn host_is_late(&self) -> bool {
        self.run.facts.host_is_late()
    }
}

/// The messages whose R a thread computes before it wipes its stack. Wiping takes longer than computing one R.
const MESSAGES_OF_A_WIPE: usize = 16;

/// Computes R of every message, n bytes each. Returns the positions that the digests select.
fn randomize(run: &Run<'_>, of: Of<'_, ToSign<'_, SlhDsa>>, fresh: &[u8], rs: &mut [u8]) -> Vec<Position> {
    let n = run.facts.plan().params.n;
    let none = Position { fors: ForsLeaves::from_iter([]), idx_tree: 0, idx_leaf: 0 };
    let jobs = rs.len() / n;
    let mut positions = vec![none; jobs];
    let chunks = rs.chunks_mut(MESSAGES_OF_A_WIPE * n).zip(positions.chunks_mut(MESSAGES_OF_A_WIPE)).enumerate();
    let hash = |(chunk, (rs, positions)): (usize, (&mut [u8], &mut [Position]))| {
        wiped(|| {
            for (job, (r, position)) in (chunk * MESSAGES_OF_A_WIPE..).zip(rs.chunks_exact_mut(n).zip(positions)) {
                *position = of(job).randomized(job, fresh, r);
            }
        });
        Ok(())
    };
    let hash_all = || run.place.each_of(chunks.collect(), &hash).expect("none of them fails");
    trace::step(Step::HashMessages, jobs, hash_all);
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_blamed_for_an_r_or_a_position_that_differs() {
        let position = Position { fors: [1, 2, 3, 4].into_iter().collect(), idx_tree: 5, idx_leaf: 6 };
        let first = ((0..48).collect::<Vec<u8>>(), vec![position; 3]);
        assert_eq!(same(16, &first, (&first.0, &first.1)), Ok(()));
        for at in [0, 20, 47] {
            let (mut rs, mut positions) = first.clone();
            rs[at] ^= 0x80;
            positions[at / 16].idx_leaf ^= 1;
            for (what, again) in [("R", (&rs, &first.1)), ("the digest", (&first.0, &positions))] {
                let why = Error::differs("host".into(), what, at / 16);
                assert_eq!(same(16, &first, (again.0, again.1)), Err(why));
            }
        }
    }
}
