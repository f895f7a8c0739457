//! zkDilithium's jobs, as the scheduler sees them, and how a device runs them.

use super::{SignJob, Signature, SigningKey, SigningKeys, VerifyJob, VerifyingKey};
use crate::Error;
use crate::block::Block;
use crate::jobs::{JobKey, owned};
use hypergrove_engine::programs::{Facts, Kind, Ready};
use hypergrove_engine::scheduler::{Asked, Job, Place};
use hypergrove_engine::{Timing, ZkDilithium, ZkSign, ZkVerify};
use hypergrove_zkdilithium::params::{SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SigningKey as RawSigningKey, SigningKeyBytes};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::vec::IntoIter;
use zeroize::{Zeroize, Zeroizing};

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
    pub(super) keys: &'a mut [SigningKeyBytes],
}

/// A signature to be made or judged.
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
    fn run(place: &Place<'_>, jobs: &[&Self]) -> Result<Vec<Self::Answer>, Error>;
    /// The job's result.
    fn result(answer: Self::Answer) -> Result<Self::Out, Error>;
    /// Does away with a result that nobody gets.
    fn discard(out: Self::Out);
}

/// A job of a list. The list and the results are the caller's memory: the call asks for it before it begins.
impl<J: ZkJob> ZkJob for &J {
    const OP: Op = J::OP;
    const OUTPUT: usize = 0;
    type Answer = J::Answer;
    type Out = J::Out;

    fn owned(&self) -> usize {
        0
    }

    fn run(place: &Place<'_>, jobs: &[&Self]) -> Result<Vec<J::Answer>, Error> {
        J::run(place, &jobs.iter().map(|job| **job).collect::<Vec<_>>())
    }

    fn result(answer: J::Answer) -> Result<J::Out, Error> {
        J::result(answer)
    }

    fn discard(out: J::Out) {
        J::discard(out);
    }
}

/// The results of a block: its answers, which may be far smaller.
pub(super) struct Results<J: ZkJob>(IntoIter<J::Answer>);

impl<J: ZkJob> Iterator for Results<J> {
    type Item = Result<J::Out, Error>;

    fn next(&mut self) -> Option<Result<J::Out, Error>> {
        self.0.next().map(J::result)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// Signatures to be made or judged, as the scheduler sees them.
pub(super) struct Zk<J>(Block<J>);

impl<J> Zk<J> {
    pub(super) fn one(job: J) -> Zk<J> {
        Zk(Block::One(job))
    }
}

impl<J: ZkJob> Job for Zk<J> {
    type Out = Results<J>;

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::ZkDilithium(J::OP))
    }

    fn count(&self) -> usize {
        self.0.jobs().len()
    }

    fn join(&mut self, next: Self) -> Option<Self> {
        self.0.join(next.0);
        None
    }

    fn owned(&self) -> usize {
        self.0.jobs().iter().map(J::owned).sum()
    }

    fn output(&self, _: &Facts) -> usize {
        self.count() * J::OUTPUT
    }

    fn run(
        place: &Place<'_>,
        blocks: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Self::Out, Error>>, Error> {
        let jobs: Vec<&J> = blocks.iter().flat_map(|(_, asked)| asked.job.0.jobs()).collect();
        let answers = J::run(place, &jobs)?;
        if answers.len() != jobs.len() {
            let what = format!("it gave {} results for {} jobs", answers.len(), jobs.len());
            Self::discard(Results(answers.into_iter()));
            return Err(Error::Inconsistent { device: place.worker.device().id(), what });
        }
        let mut answers = answers.into_iter();
        let mut of_block = |count| Results(answers.by_ref().take(count).collect::<Vec<_>>().into_iter());
        Ok(blocks.iter().map(|(_, asked)| Ok(of_block(asked.count))).collect())
    }

    fn discard(results: Results<J>) {
        results.flatten().for_each(J::discard);
    }
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
            let mut keys = each(place, &seeds, |_| RawSigningKey::zeros());
            keygen(place, &seeds, keys.iter_mut().map(RawSigningKey::secret_bytes_mut).collect())?;
            Ok(keys)
        };
        let keys = place.checked(make, |first, second| compare(place, "key", first, &second?))?;
        let mut keys = keys.into_iter().map(SigningKey::from);
        Ok(jobs.iter().map(|(_, asked)| Ok(keys.by_ref().take(asked.count).collect())).collect())
    }

    fn discard(keys: Vec<SigningKey>) {
        drop(keys);
    }
}

impl Job for KeygenIntoBlock<'_> {
    type Out = ();

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::ZkDilithium(Op::Keygen))
    }

    fn count(&self) -> usize {
        self.seeds.len()
    }

    // Seeds and keys are the caller's memory: the call asks for it before it begins.
    fn owned(&self) -> usize {
        0
    }

    fn output(&self, _: &Facts) -> usize {
        0
    }

    fn run(
        place: &Place<'_>,
        jobs: &mut [(usize, Asked<Self>)],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let seeds = seeds(jobs.iter().map(|(_, asked)| asked.job.seeds));
        keygen(place, &seeds, jobs.iter_mut().flat_map(|(_, asked)| &mut *asked.job.keys).collect())?;
        if place.scheduler.options.redundant {
            let mut second = SigningKeys::new();
            let place = Place { elsewhere: true, ..*place };
            keygen(&place, &seeds, second.room(seeds.len()).iter_mut().collect())?;
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

    fn run(place: &Place<'_>, jobs: &[&Self]) -> Result<Vec<Result<Signature, Error>>, Error> {
        let of_keys = by_key(jobs, |job| &job.key);
        let expands = uses_expanded_keys(place, Op::Sign)?;
        let checked = each(place, &of_keys, |jobs| match expands {
            true => jobs[0].key.expanded().map(drop),
            false => jobs[0].key.check_again(),
        });
        let sound = of_keys.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let sound: Vec<&SignJob<'_>> = sound.flat_map(|(jobs, _)| *jobs).copied().collect();
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
        let mut results = Vec::with_capacity(jobs.len());
        for (jobs, checked) in of_keys.iter().zip(checked) {
            match checked {
                Ok(()) => results.extend(signatures.by_ref().take(jobs.len()).map(Ok)),
                Err(why) => results.extend(std::iter::repeat_n(Err(why), jobs.len())),
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

    fn run(place: &Place<'_>, jobs: &[&Self]) -> Result<Vec<bool>, Error> {
        let judge = |place: &Place<'_>| verify(place, jobs);
        place.checked(judge, |first, second| compare(place, "verdict", first, &second?))
    }

    fn result(verdict: bool) -> Result<bool, Error> {
        Ok(verdict)
    }

    fn discard(_: bool) {}
}

/// Runs of jobs with one key each. Keys are told apart by where they lie: each is checked there.
fn by_key<'a, 'j, J, K: 'j>(jobs: &'a [&'j J], key: impl Fn(&J) -> &JobKey<'_, K>) -> Vec<&'a [&'j J]> {
    jobs.chunk_by(|a, b| std::ptr::eq(&**key(a), &**key(b))).collect()
}

fn seeds<'a>(blocks: impl Iterator<Item = &'a [[u8; SEED_BYTES]]> + Clone) -> Zeroizing<Vec<[u8; SEED_BYTES]>> {
    let mut all = Zeroizing::new(Vec::with_capacity(blocks.clone().map(<[_]>::len).sum()));
    blocks.for_each(|block| all.extend_from_slice(block));
    all
}

/// Writes the key of each seed to its place.
fn keygen(place: &Place<'_>, seeds: &[[u8; SEED_BYTES]], mut places: Vec<&mut SigningKeyBytes>) -> Result<(), Error> {
    program(place, Op::Keygen, seeds.len(), |program| program.keygen(seeds, &mut places))
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

/// The verdicts.
fn verify(place: &Place<'_>, jobs: &[&VerifyJob<'_>]) -> Result<Vec<bool>, Error> {
    let expands = uses_expanded_keys(place, Op::Verify)?;
    if expands {
        each(place, &by_key(jobs, |job| &job.key), |jobs| {
            jobs[0].key.expanded();
        });
    }
    let (mut verdicts, mut asked) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
    for VerifyJob { key, message, signature } in jobs {
        let expanded = expands.then(|| key.expanded());
        asked.push(ZkVerify { key: key.as_ref(), expanded, message: message.borrowed(), signature });
    }
    program(place, Op::Verify, jobs.len(), |program| program.verify(&asked, &mut verdicts))?;
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
    let verdicts = verify(place, &checks.iter().collect::<Vec<_>>())?;
    if verdicts.len() == jobs.len() && !verdicts.contains(&false) {
        return Ok(());
    }
    let what = "a signature that it made does not verify".into();
    Err(Error::Inconsistent { device: place.worker.device().id(), what })
}

fn wipe(signatures: &mut Vec<Signature>) {
    signatures.drain(..).for_each(|signature| signature.into_bytes().zeroize());
}
