//! zkDilithium's jobs, one by one or in blocks, as the scheduler sees them, and how a device runs them.

use super::{SignJob, Signature, SigningKey, SigningKeys, VerifyJob, VerifyingKey};
use crate::Error;
use crate::jobs::{JobKey, owned};
use hypergrove_engine::programs::{Facts, Kind, Ready};
use hypergrove_engine::scheduler::{Asked, Job, Place};
use hypergrove_engine::{Timing, ZkDilithium, ZkSign, ZkVerify};
use hypergrove_zkdilithium::params::{SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SigningKeyWords};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::slice;
use zeroize::{Zeroize, Zeroizing};

/// Keys that one thread copies together, 62 kB.
const SHARE: usize = 16;

/// Seeds of a block.
pub(super) enum BlockSeeds<'a> {
    /// The caller's.
    Borrowed(&'a [[u8; SEED_BYTES]]),
    /// The block's own.
    Owned(Zeroizing<Vec<[u8; SEED_BYTES]>>),
}

impl Deref for BlockSeeds<'_> {
    type Target = [[u8; SEED_BYTES]];

    fn deref(&self) -> &[[u8; SEED_BYTES]] {
        match self {
            BlockSeeds::Borrowed(seeds) => seeds,
            BlockSeeds::Owned(seeds) => seeds,
        }
    }
}

/// Seeds, each of which gives a key with memory of its own.
pub(super) struct KeygenBlock<'a>(pub(super) BlockSeeds<'a>);

/// Seeds, and where their keys go.
pub(super) struct KeygenIntoBlock<'a> {
    pub(super) seeds: &'a [[u8; SEED_BYTES]],
    pub(super) keys: &'a mut [SigningKeyWords],
}

/// A signature to be made or judged: alone or in a block.
pub(super) trait ZkJob: Send + Sync + Sized {
    const OP: Op;
    /// Bytes of the result.
    const OUTPUT: usize;
    /// What comes of the job.
    type Answer: Send;
    /// The same without the error that a job has by itself.
    type Out: Send;
    /// Bytes that the job owns.
    fn owned(&self) -> usize;
    /// An answer for each job, in their order; an error is the device's or the call's.
    fn run(place: &Place<'_>, jobs: &[&[Self]]) -> Result<Vec<Self::Answer>, Error>;
    /// The job's result.
    fn result(answer: Self::Answer) -> Result<Self::Out, Error>;
    /// Does away with a result that nobody gets.
    fn discard(out: Self::Out);
}

/// A job whose result is handed out as soon as it is there, although the source of jobs blocks.
pub(super) struct One<J>(pub(super) J);

/// Jobs at hand.
pub(super) struct Block<'a, J>(pub(super) &'a [J]);

/// What the scheduler asks of blocks whose jobs and results are the caller's memory: the call asks for it before it begins.
macro_rules! block {
    ($op:expr, $self:ident => $count:expr) => {
        fn ask(&self) -> Result<Kind, Error> {
            Ok(Kind::ZkDilithium($op))
        }
        fn count(&$self) -> usize {
            $count
        }
        fn owned(&self) -> usize {
            0
        }
        fn output(&self, _: &Facts) -> usize {
            0
        }
    };
}

impl<J: ZkJob> Job for One<J> {
    type Out = J::Out;

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::ZkDilithium(J::OP))
    }

    fn count(&self) -> usize {
        1
    }

    fn owned(&self) -> usize {
        self.0.owned()
    }

    fn output(&self, _: &Facts) -> usize {
        J::OUTPUT
    }

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<J::Out, Error>>, Error> {
        let jobs: Vec<&[J]> = jobs.iter().map(|(_, asked)| slice::from_ref(&asked.job.0)).collect();
        Ok(answers(place, &jobs)?.into_iter().map(J::result).collect())
    }

    fn discard(out: J::Out) {
        J::discard(out);
    }
}

impl<J: ZkJob> Job for Block<'_, J> {
    type Out = Vec<J::Answer>;
    block!(J::OP, self => self.0.len());

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<J::Answer>, Error>>, Error> {
        let blocks: Vec<&[J]> = jobs.iter().map(|(_, asked)| asked.job.0).collect();
        let mut answers = answers(place, &blocks)?.into_iter();
        Ok(blocks.iter().map(|block| Ok(answers.by_ref().take(block.len()).collect())).collect())
    }

    fn discard(answers: Vec<J::Answer>) {
        answers.into_iter().flat_map(J::result).for_each(J::discard);
    }
}

/// An answer for each job, in their order.
fn answers<J: ZkJob>(place: &Place<'_>, blocks: &[&[J]]) -> Result<Vec<J::Answer>, Error> {
    let (answers, jobs) = (J::run(place, blocks)?, blocks.iter().map(|jobs| jobs.len()).sum::<usize>());
    if answers.len() == jobs {
        return Ok(answers);
    }
    let what = format!("it gave {} results for {jobs} jobs", answers.len());
    answers.into_iter().flat_map(J::result).for_each(J::discard);
    Err(Error::Inconsistent { device: place.worker.device().id(), what })
}

impl Job for KeygenBlock<'_> {
    type Out = Vec<SigningKey>;

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::ZkDilithium(Op::Keygen))
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn owned(&self) -> usize {
        if matches!(self.0, BlockSeeds::Owned(_)) { self.0.len() * SEED_BYTES } else { 0 }
    }

    // The memory for the keys of a caller's seeds is asked for before the call begins.
    fn output(&self, _: &Facts) -> usize {
        if matches!(self.0, BlockSeeds::Owned(_)) { self.0.len() * SK_BYTES } else { 0 }
    }

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<SigningKey>, Error>>, Error> {
        let seeds = seeds(jobs.iter().map(|(_, asked)| &*asked.job.0));
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

impl ZkJob for SignJob<'_> {
    const OP: Op = Op::Sign;
    const OUTPUT: usize = SIG_BYTES + size_of::<Result<Signature, Error>>();
    type Answer = Result<Signature, Error>;
    type Out = Signature;

    fn owned(&self) -> usize {
        self.message.owned()
    }

    fn run(place: &Place<'_>, jobs: &[&[Self]]) -> Result<Vec<Result<Signature, Error>>, Error> {
        let of_keys = by_key(jobs, |job| &job.key);
        let expands = uses_expanded_keys(place, Op::Sign)?;
        // Jobs with one key may span blocks.
        let (mut keys, mut key_of) = (Vec::<&SigningKey>::new(), Vec::with_capacity(of_keys.len()));
        for jobs in &of_keys {
            let key = &*jobs[0].key;
            if keys.last().is_none_or(|last| !std::ptr::eq(*last, key)) {
                keys.push(key);
            }
            key_of.push(keys.len() - 1);
        }
        let checked = each(place, &keys, |key| match expands {
            true => key.expanded().map(drop),
            false => key.check_again(),
        });
        let sound = of_keys.iter().zip(&key_of).filter(|(_, key)| checked[**key].is_ok());
        let sound: Vec<&SignJob<'_>> = sound.flat_map(|(jobs, _)| jobs.iter()).collect();
        let sign = |place: &Place<'_>| {
            let (mut asked, mut signatures) = (Vec::with_capacity(sound.len()), Vec::with_capacity(sound.len()));
            for SignJob { key, message } in &sound {
                let expanded = expands.then(|| key.made());
                asked.push(ZkSign { key: key.as_ref(), expanded, message: message.borrowed() });
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
        let mut results = Vec::with_capacity(jobs.iter().map(|jobs| jobs.len()).sum());
        for (jobs, key) in of_keys.iter().zip(key_of) {
            match &checked[key] {
                Ok(()) => results.extend(signatures.by_ref().take(jobs.len()).map(Ok)),
                Err(why) => results.extend(std::iter::repeat_n(Err(why.clone()), jobs.len())),
            }
        }
        Ok(results)
    }

    fn result(answer: Result<Signature, Error>) -> Result<Signature, Error> {
        answer
    }

    /// A faulty one can tell the key.
    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }
}

impl ZkJob for VerifyJob<'_> {
    const OP: Op = Op::Verify;
    const OUTPUT: usize = size_of::<Result<bool, Error>>();
    type Answer = bool;
    type Out = bool;

    fn owned(&self) -> usize {
        self.message.owned() + owned(&self.signature)
    }

    fn run(place: &Place<'_>, jobs: &[&[Self]]) -> Result<Vec<bool>, Error> {
        let of_keys = by_key(jobs, |job| &job.key);
        let judge = |place: &Place<'_>| verify(place, &of_keys);
        place.checked(judge, |first, second| compare(place, "verdict", first, &second?))
    }

    fn result(verdict: bool) -> Result<bool, Error> {
        Ok(verdict)
    }

    fn discard(_: bool) {}
}

/// Runs of jobs with one key each. Keys are told apart by where they lie: each is checked there.
fn by_key<'a, J, K: 'a>(jobs: &[&'a [J]], key: impl Fn(&J) -> &JobKey<'_, K> + Copy) -> Vec<&'a [J]> {
    jobs.iter().flat_map(|jobs| jobs.chunk_by(move |a, b| std::ptr::eq(&**key(a), &**key(b)))).collect()
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
    for VerifyJob { key, message, signature } in of_keys.iter().copied().flatten() {
        let expanded = expands.then(|| key.expanded());
        asked.push(ZkVerify { key: key.as_ref(), expanded, message: message.borrowed(), signature });
    }
    program(place, Op::Verify, count, |program| program.verify(&asked, &mut verdicts))?;
    Ok(verdicts)
}

/// An error if one of the signatures does not verify.
fn check(place: &Place<'_>, jobs: &[&SignJob<'_>], signatures: &[Signature]) -> Result<(), Error> {
    let mut public: BTreeMap<*const SigningKey, VerifyingKey> = BTreeMap::new();
    for job in jobs {
        public.entry(&raw const *job.key).or_insert_with(|| job.key.verifying_key());
    }
    let mut checks = Vec::with_capacity(jobs.len());
    for (SignJob { key, message }, signature) in jobs.iter().copied().zip(signatures) {
        checks.push(VerifyJob::new(&public[&(&raw const **key)], message.borrowed(), signature.as_bytes()));
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
