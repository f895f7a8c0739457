//! Blocks of zkDilithium's jobs, as the scheduler sees them, and how a device runs them.

use super::{SignJob, Signature, SigningKey, SigningKeys, VerifyJob, VerifyingKey};
use crate::Error;
use hypergrove_engine::programs::{Facts, Kind, Ready};
use hypergrove_engine::scheduler::{Asked, Job, Place};
use hypergrove_engine::{Timing, ZkDilithium, ZkSign, ZkVerify};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{Op, SigningKeyWords};
use rayon::prelude::*;
use std::collections::BTreeMap;
use zeroize::{Zeroize, Zeroizing};

/// Keys that one thread copies together, 62 kB.
const SHARE: usize = 16;

/// Jobs of a block, at most: to schedule a block costs little beside so many.
const MOST: usize = 256;

/// Jobs of a block, given those that fill the smallest device.
pub(super) fn blocks(full: Option<usize>) -> usize {
    full.map_or(1, |full| (full / 8).clamp(1, MOST))
}

/// Seeds, each of which gives a key with memory of its own.
pub(super) struct KeygenBlock<'a>(pub(super) &'a [[u8; SEED_BYTES]]);

/// Seeds, and where their keys go.
pub(super) struct KeygenIntoBlock<'a> {
    pub(super) seeds: &'a [[u8; SEED_BYTES]],
    pub(super) keys: &'a mut [SigningKeyWords],
}

/// Signatures to be made.
pub(super) struct SignBlock<'a>(pub(super) &'a [SignJob<'a>]);

/// Signatures to be judged.
pub(super) struct VerifyBlock<'a>(pub(super) &'a [VerifyJob<'a>]);

/// What the scheduler asks of every block.
macro_rules! block {
    ($op:expr, $self:ident => $count:expr) => {
        fn ask(&self) -> Result<Kind, Error> {
            Ok(Kind::ZkDilithium($op))
        }
        fn count(&$self) -> usize {
            $count
        }
        fn join(&mut self, next: Self) -> Option<Self> {
            Some(next)
        }
        // The jobs and their results are the caller's memory: the call asks for it before it begins.
        fn owned(&self) -> usize {
            0
        }
        fn output(&self, _: &Facts) -> usize {
            0
        }
    };
}

impl Job for KeygenBlock<'_> {
    type Out = Vec<SigningKey>;
    block!(Op::Keygen, self => self.0.len());

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<SigningKey>, Error>>, Error> {
        let seeds = seeds(jobs.iter().map(|(_, asked)| asked.job.0));
        let make = |place: &Place<'_>| {
            let mut keys = Vec::with_capacity(seeds.len());
            program(place, Op::Keygen, seeds.len(), |program| {
                program.keygen(&seeds, &mut |made| match has_threads(place) {
                    false => keys.extend(made.iter().map(SigningKey::from_words)),
                    true => keys.par_extend(made.par_iter().with_min_len(SHARE).map(SigningKey::from_words)),
                })
            })?;
            Ok(keys)
        };
        let mut keys = place.checked(make, |first, second| compare(place, "key", first, &second?))?.into_iter();
        Ok(jobs.iter().map(|(_, asked)| Ok(keys.by_ref().take(asked.count).collect())).collect())
    }

    fn discard(keys: Vec<SigningKey>) {
        drop(keys);
    }
}

impl Job for KeygenIntoBlock<'_> {
    type Out = ();
    block!(Op::Keygen, self => self.seeds.len());

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let seeds = seeds(jobs.iter().map(|(_, asked)| asked.job.seeds));
        {
            let mut rooms = jobs.iter_mut().map(|(_, asked)| &mut *asked.job.keys);
            let mut room: &mut [SigningKeyWords] = &mut [];
            program(place, Op::Keygen, seeds.len(), |program| {
                program.keygen(&seeds, &mut |mut made| {
                    let mut copies = Vec::with_capacity(made.len() / SHARE + 1);
                    while !made.is_empty() {
                        if room.is_empty() {
                            room = rooms.next().expect("room for every seed's key");
                        }
                        let count = made.len().min(room.len());
                        let (to, others) = std::mem::take(&mut room).split_at_mut(count);
                        let (from, later) = made.split_at(count);
                        copies.extend(to.chunks_mut(SHARE).zip(from.chunks(SHARE)));
                        (room, made) = (others, later);
                    }
                    let copy = |(to, from): (&mut [SigningKeyWords], &[SigningKeyWords])| to.copy_from_slice(from);
                    match has_threads(place) {
                        false => copies.into_iter().for_each(copy),
                        true => copies.into_par_iter().for_each(copy),
                    }
                })
            })?;
        }
        if place.scheduler.options.redundant {
            let (mut second, mut at) = (SigningKeys::new(), 0);
            let place = Place { elsewhere: true, ..*place };
            let room = second.room(seeds.len());
            program(&place, Op::Keygen, seeds.len(), |program| {
                program.keygen(&seeds, &mut |made| {
                    room[at..at + made.len()].copy_from_slice(made);
                    at += made.len();
                })
            })?;
            let mut again = second.room_again();
            for (_, asked) in &*jobs {
                let (mine, others) = again.split_at(asked.count);
                compare(&place, "key", asked.job.keys, mine)?;
                again = others;
            }
        }
        Ok(jobs.iter().map(|_| Ok(())).collect())
    }

    fn discard((): ()) {}
}

impl Job for SignBlock<'_> {
    type Out = Vec<Result<Signature, Error>>;
    block!(Op::Sign, self => self.0.len());

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<Result<Signature, Error>>, Error>>, Error> {
        let of_keys: Vec<&[SignJob<'_>]> =
            jobs.iter().flat_map(|(_, asked)| asked.job.0.chunk_by(|a, b| std::ptr::eq(a.key, b.key))).collect();
        let expands = uses_expanded_keys(place, Op::Sign)?;
        // Jobs with one key may span blocks.
        let (mut keys, mut key_of) = (Vec::<&SigningKey>::new(), Vec::with_capacity(of_keys.len()));
        for jobs in &of_keys {
            if keys.last().is_none_or(|last| !std::ptr::eq(*last, jobs[0].key)) {
                keys.push(jobs[0].key);
            }
            key_of.push(keys.len() - 1);
        }
        let checked = each(place, &keys, |key| match expands {
            true => key.expanded().map(drop),
            false => key.check_again(),
        });
        let sound = of_keys.iter().zip(&key_of).filter(|(_, key)| checked[**key].is_ok());
        let sound: Vec<SignJob<'_>> = sound.flat_map(|(jobs, _)| jobs.iter().copied()).collect();
        let sign = |place: &Place<'_>| {
            let (mut asked, mut signatures) = (Vec::with_capacity(sound.len()), Vec::with_capacity(sound.len()));
            for &SignJob { key, message } in &sound {
                asked.push(ZkSign { key: key.as_ref(), expanded: expands.then(|| key.made()), message });
            }
            program(place, Op::Sign, sound.len(), |program| program.sign(&asked, &mut signatures))?;
            Ok(signatures)
        };
        let mut signatures = match sound.is_empty() {
            true => Vec::new(),
            false => place.checked(sign, |first, second| {
                let compared = second.and_then(|mut second| {
                    let compared = compare(place, "signature", first, &second);
                    wipe(&mut second);
                    compared
                });
                compared.inspect_err(|_| wipe(first))
            })?,
        };
        if place.scheduler.options.verify_signatures && !sound.is_empty() {
            check(place, &sound, &signatures).inspect_err(|_| wipe(&mut signatures))?;
        }
        let mut signatures = signatures.into_iter();
        let mut results = Vec::with_capacity(jobs.iter().map(|(_, asked)| asked.count).sum());
        for (jobs, key) in of_keys.iter().zip(key_of) {
            match &checked[key] {
                Ok(()) => results.extend(signatures.by_ref().take(jobs.len()).map(Ok)),
                Err(why) => results.extend(std::iter::repeat_n(Err(why.clone()), jobs.len())),
            }
        }
        let mut results = results.into_iter();
        Ok(jobs.iter().map(|(_, asked)| Ok(results.by_ref().take(asked.count).collect())).collect())
    }

    /// A faulty one can tell the key.
    fn discard(signatures: Vec<Result<Signature, Error>>) {
        wipe(&mut signatures.into_iter().flatten().collect());
    }
}

impl Job for VerifyBlock<'_> {
    type Out = Vec<bool>;
    block!(Op::Verify, self => self.0.len());

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<bool>, Error>>, Error> {
        let of_keys: Vec<&[VerifyJob<'_>]> =
            jobs.iter().flat_map(|(_, asked)| asked.job.0.chunk_by(|a, b| std::ptr::eq(a.key, b.key))).collect();
        let judge = |place: &Place<'_>| verify(place, &of_keys);
        let verdicts = place.checked(judge, |first, second| compare(place, "verdict", first, &second?))?;
        let mut verdicts = verdicts.into_iter();
        Ok(jobs.iter().map(|(_, asked)| Ok(verdicts.by_ref().take(asked.count).collect())).collect())
    }

    fn discard(verdicts: Vec<bool>) {
        drop(verdicts);
    }
}

fn seeds<'a>(blocks: impl Iterator<Item = &'a [[u8; SEED_BYTES]]> + Clone) -> Zeroizing<Vec<[u8; SEED_BYTES]>> {
    let mut all = Zeroizing::new(Vec::with_capacity(blocks.clone().map(<[_]>::len).sum()));
    blocks.for_each(|block| all.extend_from_slice(block));
    all
}

fn has_threads(place: &Place<'_>) -> bool {
    place.pool.is_some()
}

/// What `work` makes of each, on the threads of the place.
fn each<T: Sync, R: Send>(place: &Place<'_>, items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    match place.pool {
        Some(pool) if items.len() > 1 => pool.install(|| items.par_iter().map(work).collect()),
        _ => items.iter().map(work).collect(),
    }
}

fn program(
    place: &Place<'_>,
    op: Op,
    jobs: usize,
    work: impl FnOnce(&mut dyn ZkDilithium) -> Result<Timing, Error> + Send,
) -> Result<(), Error> {
    let facts = place.worker.programs.facts(place.group(Kind::ZkDilithium(op)))?;
    place.program(&facts, jobs, |program| {
        let Ready::ZkDilithium(program) = program else { unreachable!("a program of zkDilithium") };
        work(&mut **program).map(|timing| ((), timing))
    })
}

fn uses_expanded_keys(place: &Place<'_>, op: Op) -> Result<bool, Error> {
    Ok(place.worker.programs.facts(place.group(Kind::ZkDilithium(op)))?.uses_expanded_keys())
}

/// An error if results differ from those of the second time.
fn compare<T: PartialEq>(place: &Place<'_>, what: &str, first: &[T], second: &[T]) -> Result<(), Error> {
    let differs = first.iter().zip(second).position(|(a, b)| a != b);
    match differs.or((first.len() != second.len()).then_some(0)) {
        None => Ok(()),
        Some(job) => Err(Error::Inconsistent {
            device: place.worker.device().id(),
            what: format!("the {what} of job {job} differs when it is computed again"),
        }),
    }
}

/// The verdicts, by runs of jobs with one key each.
fn verify(place: &Place<'_>, of_keys: &[&[VerifyJob<'_>]]) -> Result<Vec<bool>, Error> {
    let expands = uses_expanded_keys(place, Op::Verify)?;
    if expands {
        each(place, of_keys, |jobs| {
            jobs[0].key.expanded();
        });
    }
    let count = of_keys.iter().map(|jobs| jobs.len()).sum();
    let (mut verdicts, mut asked) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for &VerifyJob { key, message, signature } in of_keys.iter().copied().flatten() {
        asked.push(ZkVerify { key: key.as_ref(), expanded: expands.then(|| key.expanded()), message, signature });
    }
    program(place, Op::Verify, count, |program| program.verify(&asked, &mut verdicts))?;
    Ok(verdicts)
}

/// An error if one of the signatures does not verify.
fn check(place: &Place<'_>, jobs: &[SignJob<'_>], signatures: &[Signature]) -> Result<(), Error> {
    let mut public: BTreeMap<*const SigningKey, VerifyingKey> = BTreeMap::new();
    for job in jobs {
        public.entry(job.key).or_insert_with(|| job.key.verifying_key());
    }
    let mut checks = Vec::with_capacity(jobs.len());
    for (SignJob { key, message }, signature) in jobs.iter().zip(signatures) {
        let key = &public[&std::ptr::from_ref(*key)];
        checks.push(VerifyJob { key, message: *message, signature: signature.as_bytes() });
    }
    let verdicts = verify(place, &[&checks])?;
    if verdicts.len() == jobs.len() && !verdicts.contains(&false) {
        return Ok(());
    }
    let what = "a signature that it made does not verify".into();
    Err(Error::Inconsistent { device: place.worker.device().id(), what })
}

fn wipe(signatures: &mut Vec<Signature>) {
    signatures.drain(..).for_each(|signature| signature.into_bytes().zeroize());
}
