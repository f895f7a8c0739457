//! How the scheduler runs the jobs of any scheme.

use crate::Op;
use crate::jobs::{GenerateJob, GivenSeeds, JobKey, SignJob, VerifyJob, own_key, owned};
use crate::random::random;
use crate::scheme::{ParameterSet, PublicKey, Scheme, Signing, ToSign, ToVerify, Verifying, check_given, make_keys};
use crate::types::SchemeKey;
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::{Job, Outcomes, RESULTS_OF_A_THREAD, Run, Size, Wiped, room};
use hypergrove_engine::scheme::{GroupFacts, Kind};
use std::borrow::Cow;
use std::mem::take;
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

impl<S: Scheme> GenerateJob<'_, S> {
    /// Makes a key from the operating system's randomness.
    pub fn new(set: impl ParameterSet<Scheme = S>) -> Self {
        GenerateJob { set: set.scheme(), seeds: GivenSeeds::None }
    }

    /// Makes the key that these seeds determine. The seeds must be secret and random.
    pub fn from_seeds(set: impl ParameterSet<Scheme = S>, seeds: S::Seeds) -> Self {
        GenerateJob { set: set.scheme(), seeds: GivenSeeds::Owned(Box::new(Zeroizing::new(seeds))) }
    }

    /// The bytes that the job counts for in a queue.
    pub(crate) fn size(&self) -> usize {
        self.set.sizes().seeds
    }

    fn seeds(&self) -> Option<&S::Seeds> {
        match &self.seeds {
            GivenSeeds::None => None,
            GivenSeeds::Borrowed(seeds) => Some(seeds),
            GivenSeeds::Owned(seeds) => Some(seeds),
        }
    }
}

impl<'a, S: Scheme> GenerateJob<'a, S> {
    pub(crate) fn of_seeds(set: S, seeds: &'a S::Seeds) -> GenerateJob<'a, S> {
        GenerateJob { set, seeds: GivenSeeds::Borrowed(seeds) }
    }
}

/// Makes the result of each job from the job's `size` bytes of `memory`. A single job takes the memory itself instead of a copy.
pub(crate) fn results<T: Send>(
    run: &Run<'_>,
    (jobs, size): (usize, usize),
    memory: &mut Vec<u8>,
    finish: &(dyn Fn(Cow<'_, [u8]>) -> T + Sync),
) -> Vec<T> {
    if jobs == 1 {
        memory.truncate(size);
        return vec![finish(Cow::Owned(take(memory)))];
    }
    let memory = &*memory;
    run.place.map(jobs, RESULTS_OF_A_THREAD, &|nth| finish(Cow::Borrowed(&memory[nth * size..][..size])))
}

/// A [`SignJob`], as the scheduler has it.
pub(crate) struct Sign<'a, S: Scheme> {
    key: JobKey<'a, S::SigningKey>,
    input: S::Input<'a>,
}

impl<'a, S: Scheme> From<SignJob<'a, S>> for Sign<'a, S> {
    fn from(SignJob { key, mode, message, randomizer }: SignJob<'a, S>) -> Self {
        Sign { key, input: S::input(mode, message, randomizer) }
    }
}

impl<S: Scheme> Sign<'_, S> {
    /// Makes a job that borrows nothing.
    pub(crate) fn owned(SignJob { key, mode, message, randomizer }: SignJob<'_, S>) -> Sign<'static, S> {
        Sign { key: own_key(key), input: S::own_input(mode, message, randomizer) }
    }

    fn to_sign(&self) -> ToSign<'_, S> {
        let (mode, message, randomizer) = S::borrow(&self.input);
        ToSign { key: &self.key, mode, message, randomizer }
    }
}

impl<S: Scheme> Job for Sign<'_, S> {
    type Out = S::Signature;
    const JOINS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        let (ToSign { key, mode, message, randomizer }, set) = (self.to_sign(), self.key.scheme());
        key.check_job(mode, message)?;
        check_given(set, randomizer, 1)?;
        Ok(set.kind(Op::Sign, key.cached_layers()))
    }

    fn owned(&self) -> usize {
        S::owned_bytes(&self.input)
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.key.scheme().output(Op::Sign, facts)
    }

    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<S::Signature>, Error> {
        let jobs = &*jobs;
        let Some(first) = jobs.first() else { return Ok(Vec::new().into()) };
        let set = first.key.scheme();
        let of = |i: usize| jobs[i].to_sign();
        let keys = |range: Range<usize>| SchemeKey::distinct(&mut jobs[range].iter().map(|job| &*job.key));
        let work = Signing { jobs: jobs.len(), of: &of, keys: &keys };
        let size = set.sizes().signature;
        if S::HAS_PLACES_FOR_JOBS {
            let mut own: Vec<Vec<u8>> = run.place.map(jobs.len(), RESULTS_OF_A_THREAD, &|_| vec![0; size]);
            let mut places: Vec<&mut [u8]> = own.iter_mut().map(|own| &mut own[..]).collect();
            let failed = work.sign(run, set, true, &mut places, memory)?;
            let results = own.into_iter().map(|own| set.signature(Cow::Owned(own))).collect();
            return Ok(Outcomes { results, failed });
        }
        let out = room(memory, jobs.len() * size);
        let failed = work.sign(run, set, true, &mut [out], &mut Vec::new())?;
        let results = results(run, (jobs.len(), size), memory, &|signature| set.signature(signature));
        Ok(Outcomes { results, failed })
    }

    fn discard(signature: S::Signature) {
        // A faulty signature may reveal the key.
        signature.into().zeroize();
    }
}

/// A [`VerifyJob`], as the scheduler has it.
pub(crate) struct Verify<'a, S: Scheme> {
    key: JobKey<'a, S::VerifyingKey>,
    input: S::Input<'a>,
    signature: Cow<'a, [u8]>,
}

impl<'a, S: Scheme> From<VerifyJob<'a, S>> for Verify<'a, S> {
    fn from(VerifyJob { key, mode, message, signature }: VerifyJob<'a, S>) -> Self {
        Verify { key, input: S::input(mode, message, S::Randomizer::default()), signature }
    }
}

impl<S: Scheme> Verify<'_, S> {
    /// Makes a job that borrows nothing.
    pub(crate) fn owned(VerifyJob { key, mode, message, signature }: VerifyJob<'_, S>) -> Verify<'static, S> {
        let input = S::own_input(mode, message, S::Randomizer::default());
        Verify { key: own_key(key), input, signature: signature.into_owned().into() }
    }
}

impl<S: Scheme> Job for Verify<'_, S> {
    type Out = bool;
    const JOINS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        let (mode, message, _) = S::borrow(&self.input);
        self.key.check_job(mode, message)?;
        Ok(self.key.scheme().kind(Op::Verify, 0))
    }

    fn owned(&self) -> usize {
        S::owned_bytes(&self.input) + owned(&self.signature)
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.key.scheme().output(Op::Verify, facts)
    }

    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<bool>, Error> {
        let Some(first) = jobs.first() else { return Ok(Vec::new().into()) };
        let size = first.key.scheme().sizes().signature;
        // A signature of the wrong length is invalid, so no device gets it.
        let fits = |job: &Self| job.signature.len() == size;
        let fitting: Vec<&Self> = jobs.iter().map(|job| &**job).filter(|job| fits(job)).collect();
        let of = |i: usize| {
            let Verify { key, input, signature } = fitting[i];
            let (mode, message, _) = S::borrow(input);
            ToVerify { key: PublicKey::Key(&**key), mode, message, signature }
        };
        let keys = |range: Range<usize>| {
            let (keys, of) = SchemeKey::distinct(&mut fitting[range].iter().map(|job| &*job.key));
            (keys.into_iter().map(Cow::Borrowed).collect(), of)
        };
        let work = Verifying { jobs: fitting.len(), of: &of, keys: &keys };
        let verdicts = if fitting.is_empty() { Vec::new() } else { work.verify(run, first.key.scheme(), memory)? };
        let mut verdicts = verdicts.into_iter();
        let mut verdict = || verdicts.next().expect("a verdict on each");
        Ok(jobs.iter().map(|job| fits(job) && verdict()).collect::<Vec<_>>().into())
    }
}

impl<S: Scheme> Job for GenerateJob<'_, S> {
    type Out = S::SigningKey;
    const JOINS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        self.seeds().map_or(Ok(()), |seeds| self.set.check_seeds(seeds))?;
        Ok(self.set.kind(Op::Keygen, 0))
    }

    fn owned(&self) -> usize {
        if matches!(self.seeds, GivenSeeds::Borrowed(_)) { 0 } else { self.set.sizes().seeds }
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.set.sizes().private + self.set.output(Op::Keygen, facts)
    }

    fn run(run: &Run<'_>, jobs: &mut [&mut Self], _: &mut Vec<u8>) -> Result<Outcomes<S::SigningKey>, Error> {
        let Some(first) = jobs.first() else { return Ok(Vec::new().into()) };
        let (set, sizes) = (first.set, first.set.sizes());
        let mut seeds = Wiped(vec![0; jobs.len() * sizes.seeds]);
        let parts = jobs.chunks(KEYS_OF_A_THREAD).zip(seeds.0.chunks_mut(KEYS_OF_A_THREAD * sizes.seeds));
        run.place.each_of(parts.collect(), &|(jobs, to): (&[&mut Self], &mut [u8])| {
            // One request draws the seeds of all these keys.
            if jobs.iter().any(|job| job.seeds().is_none()) {
                random(to)?;
            }
            let each = jobs.iter().zip(to.chunks_exact_mut(sizes.seeds));
            each.for_each(|(job, to)| job.seeds().into_iter().for_each(|seeds| S::write_seeds(seeds, to)));
            Ok(())
        })?;
        let mut private = Wiped(vec![0; jobs.len() * sizes.private]);
        make_keys(run, set, &seeds.0, &mut [&mut private.0])?;
        let private = &private.0;
        let key = |i: usize| S::SigningKey::of_bytes(set, &private[i * sizes.private..][..sizes.private]);
        Ok(run.place.map(jobs.len(), RESULTS_OF_A_THREAD, &key).into())
    }
}

/// The most keys of a list whose seeds one thread draws or copies at a time.
pub(crate) const KEYS_OF_A_THREAD: usize = 128;

/// The queue size of one job that owns this many bytes.
pub(crate) fn one_of(bytes: usize) -> Size {
    Size { jobs: 1, bytes: bytes as u64 }
}
