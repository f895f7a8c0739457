//! zkDilithium's jobs, as the scheduler sees them, and how a device runs them.

use super::{Message, SignJob, Signature, SigningKey, VerifyJob, VerifyingKey};
use crate::Error;
use crate::block::Job;
use crate::jobs::{JobKey, owned, random};
use crate::rows::{KeyColumns, in_succession};
use crate::run::Run;
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::Place;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Timing, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify};
use hypergrove_zkdilithium::keys::public_parts;
use hypergrove_zkdilithium::params::{PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKey as RawSigningKey, SigningKeyBytes};
use std::mem;
use zeroize::{Zeroize, optimization_barrier};

/// Jobs that a thread lists for a program, at least: one takes a few nanoseconds.
const JOBS_OF_A_THREAD: usize = 4096;

/// Seeds of a request to the operating system, where threads make several: 4 KB.
const SEEDS_OF_A_REQUEST: usize = 128;

/// A job of a list. The list and the results are the caller's memory: the call asks for it before it begins.
pub(super) struct Listed<'a, J>(pub(super) &'a J);

impl<J: Job> Job for Listed<'_, J> {
    type Out = J::Out;

    fn kind(&self) -> Result<Kind, Error> {
        self.0.kind()
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(_: &GroupFacts) -> usize {
        0
    }

    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<J::Out, Error>>, Error> {
        J::run(run, &jobs.iter().map(|job| job.0).collect::<Vec<_>>(), memory)
    }

    fn discard(out: J::Out) {
        J::discard(out);
    }
}

impl Job for SignJob<'_> {
    type Out = Signature;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(Kind::zkdilithium(Op::Sign))
    }

    fn owned(&self) -> usize {
        self.message.owned()
    }

    fn output(_: &GroupFacts) -> usize {
        SIG_BYTES + size_of::<Result<Signature, Error>>()
    }

    fn run(
        Run { place, .. }: &Run<'_>,
        jobs: &[&Self],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Signature, Error>>, Error> {
        let (keys, of) = by_key(jobs, |job| &job.key);
        let mut signatures = each(place, jobs, |_| Signature::zeros());
        let places = signatures.iter_mut().map(Signature::bytes_mut).collect();
        let checked = sign(place, &keys, &of, |i| jobs[i].message.borrowed(), places)?;
        let result = |(signature, of): (Signature, u32)| checked[of as usize].clone().map(|()| signature);
        Ok(signatures.into_iter().zip(of).map(result).collect())
    }

    /// A faulty one can tell the key.
    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }
}

/// A key from its seed, or from the operating system's randomness.
pub(super) struct KeygenJob<'a>(pub(super) Option<&'a [u8; SEED_BYTES]>);

impl Job for KeygenJob<'_> {
    type Out = SigningKey;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(Kind::zkdilithium(Op::Keygen))
    }

    fn owned(&self) -> usize {
        if self.0.is_none() { SEED_BYTES } else { 0 }
    }

    fn output(_: &GroupFacts) -> usize {
        SK_BYTES + size_of::<Result<SigningKey, Error>>()
    }

    fn run(
        Run { place, .. }: &Run<'_>,
        jobs: &[&Self],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<SigningKey, Error>>, Error> {
        // Of many keys, a thread draws the seeds of some together.
        let alike = jobs.chunk_by(|a, b| a.0.is_none() && b.0.is_none());
        let parts = alike.flat_map(|alike| alike.chunks(SEEDS_OF_A_REQUEST));
        let parts: Vec<_> = parts.map(|part| (part.len(), part[0].0.map(|seed| &seed[..]))).collect();
        Ok(made(place, &seeds(place, parts.into_iter())?.0)?.into_iter().map(Ok).collect())
    }
}

impl Job for VerifyJob<'_> {
    type Out = bool;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(Kind::zkdilithium(Op::Verify))
    }

    fn owned(&self) -> usize {
        self.message.owned() + owned(&self.signature)
    }

    fn output(_: &GroupFacts) -> usize {
        size_of::<Result<bool, Error>>()
    }

    fn run(Run { place, .. }: &Run<'_>, jobs: &[&Self], _: &mut Vec<u8>) -> Result<Vec<Result<bool, Error>>, Error> {
        let (keys, of) = by_key(jobs, |job| &job.key);
        let verdicts = verify(place, &keys, &of, |i| (jobs[i].message.borrowed(), &jobs[i].signature))?;
        Ok(verdicts.into_iter().map(Ok).collect())
    }
}

/// The keys of jobs, and which of them each job has: one for jobs in succession whose key lies in one place. Each is checked there.
fn by_key<'j, J, K: 'j>(jobs: &[&'j J], key: impl Fn(&'j J) -> &'j JobKey<'j, K>) -> (Vec<&'j K>, Vec<u32>) {
    in_succession(jobs.iter().map(|job| &**key(job)), |a, b| std::ptr::eq(a, b))
}

/// Writes a signature of each message, by the key that `of` names, to its place. What is there passed the engine's checks, and is zero
/// after an error and for a damaged key. Says of each key whether it is sound.
pub(super) fn sign<'m>(
    place: &Place<'_>,
    keys: &[&SigningKey],
    of: &[u32],
    message: impl Fn(usize) -> Message<'m>,
    places: Vec<&mut SignatureBytes>,
) -> Result<Vec<Result<(), Error>>, Error> {
    let expands = uses_expanded_keys(place, Op::Sign)?;
    let checked = each(place, keys, |key| match expands {
        true => key.expanded().map(drop),
        false => key.check_again(),
    });
    let (mut sound, mut signatures) = (Vec::with_capacity(of.len()), Vec::with_capacity(of.len()));
    for ((i, of), signature) in of.iter().enumerate().zip(places) {
        match &checked[*of as usize] {
            Ok(()) => {
                sound.push((keys[*of as usize], *of, message(i)));
                signatures.push(signature);
            }
            Err(_) => signature.fill(0),
        }
    }
    if !sound.is_empty() {
        let made = sign_sound(place, keys, &sound, expands, &mut signatures);
        made.inspect_err(|_| signatures.iter_mut().for_each(|signature| signature.zeroize()))?;
    }
    Ok(checked)
}

/// The same of sound keys, each with its number.
fn sign_sound(
    place: &Place<'_>,
    keys: &[&SigningKey],
    jobs: &[(&SigningKey, u32, Message<'_>)],
    expands: bool,
    signatures: &mut [&mut SignatureBytes],
) -> Result<(), Error> {
    let make = |place: &Place<'_>, signatures: &mut [&mut SignatureBytes]| {
        let mut asked = Vec::with_capacity(jobs.len());
        for &(key, _, message) in jobs {
            asked.push(ZkSign { key: key.as_ref(), expanded: expands.then(|| key.made()), message });
        }
        program(place, Op::Sign, jobs.len(), |program| program.sign(&asked, signatures))
    };
    make(place, signatures)?;
    if place.scheduler.options.redundant {
        let place = Place { elsewhere: true, ..*place };
        let mut second = vec![[0; SIG_BYTES]; jobs.len()];
        let compared = make(&place, &mut second.iter_mut().collect::<Vec<_>>()).and_then(|()| {
            let second: Vec<_> = second.iter_mut().collect();
            compare(&place, "signature", signatures, &second)
        });
        second.as_flattened_mut().zeroize();
        compared?;
    }
    if place.scheduler.options.verify_signatures {
        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let of: Vec<u32> = jobs.iter().map(|(_, of, _)| *of).collect();
        let made = |i: usize| (jobs[i].2, &signatures[i][..]);
        all_valid(place, &judge(place, &public.iter().collect::<Vec<_>>(), &of, made)?)?;
    }
    Ok(())
}

/// A verdict on each signature of a message, by the key that `of` names, that passed the engine's checks.
pub(super) fn verify<'m>(
    place: &Place<'_>,
    keys: &[&VerifyingKey],
    of: &[u32],
    job: impl Fn(usize) -> (Message<'m>, &'m [u8]) + Sync,
) -> Result<Vec<bool>, Error> {
    let work = |place: &Place<'_>| judge(place, keys, of, &job);
    place.checked(work, |first, second| compare(place, "verdict", first, &second?))
}

/// Secrets of `N` bytes each. On drop, they are wiped by the widest stores there are, where `zeroize` would write byte by byte.
struct Wiped<const N: usize>(Vec<[u8; N]>);

impl<const N: usize> Drop for Wiped<N> {
    fn drop(&mut self) {
        self.0.fill([0; N]);
        optimization_barrier(&self.0[..]);
    }
}

/// Seeds, so many of each part: the caller's, or from the operating system now that a device is about to use them.
fn seeds<'a>(
    place: &Place<'_>,
    parts: impl Iterator<Item = (usize, Option<&'a [u8]>)> + Clone,
) -> Result<Wiped<SEED_BYTES>, Error> {
    let mut all = Wiped(vec![[0; SEED_BYTES]; parts.clone().map(|(count, _)| count).sum()]);
    let mut left = &mut all.0[..];
    let mut drawn = Vec::new();
    for (count, given) in parts {
        let (to, others) = mem::take(&mut left).split_at_mut(count);
        left = others;
        match given {
            Some(seeds) => to.as_flattened_mut().copy_from_slice(seeds),
            None => drawn.push(to),
        }
    }
    // A thread takes longer for a full chunk's than a GPU for their keys.
    place.each_of(drawn, &|seeds: &mut [[u8; SEED_BYTES]]| random(seeds.as_flattened_mut()))?;
    Ok(all)
}

/// Makes keys in the caller's memory.
pub(super) fn keygen_into(place: &Place<'_>, keys: &mut [KeyColumns<'_>]) -> Result<(), Error> {
    fn places<'k>(keys: &'k mut [KeyColumns<'_>]) -> impl Iterator<Item = &'k mut SigningKeyBytes> {
        keys.iter_mut().flat_map(|keys| keys.private.as_chunks_mut().0)
    }
    let seeds = seeds(place, keys.iter().map(|keys| (keys.private.len() / SK_BYTES, keys.seeds)))?;
    keygen(place, &seeds.0, places(keys).collect())?;
    if place.scheduler.options.redundant {
        let mut second = Wiped(vec![[0; SK_BYTES]; seeds.0.len()]);
        let place = Place { elsewhere: true, ..*place };
        keygen(&place, &seeds.0, second.0.iter_mut().collect())?;
        let again: Vec<_> = second.0.iter_mut().collect();
        compare(&place, "key", &places(keys).collect::<Vec<_>>(), &again)?;
    }
    let with_public = keys.iter_mut().filter_map(|keys| {
        let KeyColumns { private, public, .. } = keys;
        Some((private.as_chunks().0, public.as_deref_mut()?.as_chunks_mut().0))
    });
    place.each_of(with_public.collect(), &write_public)
}

/// The key of each seed.
fn made(place: &Place<'_>, seeds: &[[u8; SEED_BYTES]]) -> Result<Vec<SigningKey>, Error> {
    let make = |place: &Place<'_>| {
        let mut keys = each(place, seeds, |_| RawSigningKey::zeros());
        keygen(place, seeds, keys.iter_mut().map(RawSigningKey::secret_bytes_mut).collect())?;
        Ok(keys)
    };
    let keys = place.checked(make, |first, second| compare(place, "key", first, &second?))?;
    Ok(keys.into_iter().map(SigningKey::from).collect())
}

/// Writes the key of each seed to its place.
fn keygen(place: &Place<'_>, seeds: &[[u8; SEED_BYTES]], mut places: Vec<&mut SigningKeyBytes>) -> Result<(), Error> {
    program(place, Op::Keygen, seeds.len(), |program| program.keygen(seeds, &mut places))
}

/// Writes the public keys of private keys.
fn write_public((private, public): (&[SigningKeyBytes], &mut [[u8; PK_BYTES]])) -> Result<(), Error> {
    for (public, private) in public.iter_mut().zip(private) {
        let [rho, t] = public_parts(private);
        let (to_rho, to_t) = public.split_at_mut(rho.len());
        to_rho.copy_from_slice(rho);
        to_t.copy_from_slice(t);
    }
    Ok(())
}

/// What `work` makes of each, on the threads of the place.
fn each<T: Sync, R: Send>(place: &Place<'_>, items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    place.map(items.len(), 1, &|i| work(&items[i]))
}

fn program(
    place: &Place<'_>,
    op: Op,
    jobs: usize,
    work: impl FnOnce(&mut dyn ZkDilithium) -> Result<Timing, Error> + Send,
) -> Result<(), Error> {
    let facts = place.worker.programs.facts(place.group(Kind::zkdilithium(op)))?;
    place.program(&facts, jobs, |ZkDilithiumProgram(program)| work(&mut **program).map(|timing| ((), timing)))
}

fn uses_expanded_keys(place: &Place<'_>, op: Op) -> Result<bool, Error> {
    Ok(place.worker.programs.facts(place.group(Kind::zkdilithium(op)))?.uses_expanded_keys())
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

/// The verdicts, as the device gives them.
fn judge<'m>(
    place: &Place<'_>,
    keys: &[&VerifyingKey],
    of: &[u32],
    job: impl Fn(usize) -> (Message<'m>, &'m [u8]) + Sync,
) -> Result<Vec<bool>, Error> {
    let expands = uses_expanded_keys(place, Op::Verify)?;
    if expands {
        each(place, keys, |key| {
            key.expanded();
        });
    }
    let one = |i: usize| {
        let (key, (message, signature)) = (keys[of[i] as usize], job(i));
        ZkVerify { key: key.as_ref(), expanded: expands.then(|| key.expanded()), message, signature }
    };
    let asked = place.map(of.len(), JOBS_OF_A_THREAD, &one);
    let mut verdicts = Vec::with_capacity(of.len());
    program(place, Op::Verify, of.len(), |program| program.verify(&asked, &mut verdicts))?;
    match verdicts.len() == of.len() {
        true => Ok(verdicts),
        false => Err(too_few(place, verdicts.len(), of.len())),
    }
}

fn too_few(place: &Place<'_>, results: usize, jobs: usize) -> Error {
    let what = format!("it gave {results} results for {jobs} jobs");
    Error::Inconsistent { device: place.worker.device().id(), what }
}

/// An error if one of the signatures does not verify.
fn all_valid(place: &Place<'_>, verdicts: &[bool]) -> Result<(), Error> {
    if !verdicts.contains(&false) {
        return Ok(());
    }
    let what = "a signature that it made does not verify".into();
    Err(Error::Inconsistent { device: place.worker.device().id(), what })
}
