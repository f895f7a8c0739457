//! zkDilithium's jobs, as the scheduler sees them, and how a device runs them.

use super::{Message, SignJob, Signature, SigningKey, SigningKeys, VerifyJob, VerifyingKey};
use crate::Error;
use crate::block::Block;
use crate::jobs::{JobKey, owned, random};
use crate::rows::{Cut, in_succession};
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::{self, Job, Place};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Timing, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify};
use hypergrove_zkdilithium::keys::public_parts;
use hypergrove_zkdilithium::params::{PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKey as RawSigningKey, SigningKeyBytes};
use std::mem;
use std::vec::IntoIter;
use zeroize::{Zeroize, optimization_barrier};

/// Jobs that a thread lists for a program, at least: one takes a few nanoseconds.
const JOBS_OF_A_THREAD: usize = 4096;

/// Seeds of a block.
#[derive(Clone, Copy)]
pub(super) enum BlockSeeds<'a> {
    /// The caller's.
    Given(&'a [[u8; SEED_BYTES]]),
    /// So many from the operating system, when a device is about to use them.
    Random(usize),
}

impl BlockSeeds<'_> {
    fn split_at(self, seeds: usize) -> (Self, Self) {
        match self {
            BlockSeeds::Given(all) => {
                let (these, others) = all.split_at(seeds);
                (BlockSeeds::Given(these), BlockSeeds::Given(others))
            }
            BlockSeeds::Random(count) => (BlockSeeds::Random(seeds), BlockSeeds::Random(count - seeds)),
        }
    }

    fn len(&self) -> usize {
        match self {
            BlockSeeds::Given(seeds) => seeds.len(),
            BlockSeeds::Random(count) => *count,
        }
    }
}

/// Seeds, each of which gives a key with memory of its own.
pub(super) struct KeygenBlock<'a>(pub(super) BlockSeeds<'a>);

/// Seeds, and where their keys go.
pub(super) struct KeygenIntoBlock<'a> {
    pub(super) seeds: BlockSeeds<'a>,
    pub(super) keys: &'a mut [SigningKeyBytes],
    /// Where the public keys go, if anybody asks for them.
    pub(super) public: Option<&'a mut [[u8; PK_BYTES]]>,
    /// Bytes of memory for a key besides the caller's.
    pub(super) held: usize,
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
        Ok(Kind::zkdilithium(J::OP))
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

    fn output(&self, _: &GroupFacts) -> usize {
        self.count() * J::OUTPUT
    }

    fn run(
        place: &Place<'_>,
        blocks: &mut [scheduler::Block<Self>],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Self::Out, Error>>, Error> {
        let jobs: Vec<&J> = blocks.iter().flat_map(|block| block.job.0.jobs()).collect();
        let answers = J::run(place, &jobs)?;
        let mut answers = answers.into_iter();
        let mut of_block = |count| Results(answers.by_ref().take(count).collect::<Vec<_>>().into_iter());
        Ok(blocks.iter().map(|block| Ok(of_block(block.count))).collect())
    }

    fn discard(results: Results<J>) {
        results.flatten().for_each(J::discard);
    }
}

impl Job for KeygenBlock<'_> {
    type Out = Vec<SigningKey>;

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::zkdilithium(Op::Keygen))
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn owned(&self) -> usize {
        if matches!(self.0, BlockSeeds::Random(_)) { self.0.len() * SEED_BYTES } else { 0 }
    }

    // The memory for the keys of a caller's seeds is asked for before the call begins.
    fn output(&self, _: &GroupFacts) -> usize {
        if matches!(self.0, BlockSeeds::Random(_)) { self.0.len() * SK_BYTES } else { 0 }
    }

    fn run(
        place: &Place<'_>,
        jobs: &mut [scheduler::Block<Self>],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<Vec<SigningKey>, Error>>, Error> {
        let seeds = seeds(place, jobs.iter().map(|block| block.job.0))?;
        let mut keys = made(place, &seeds.0)?.into_iter();
        Ok(jobs.iter().map(|block| Ok(keys.by_ref().take(block.count).collect())).collect())
    }

    fn discard(keys: Vec<SigningKey>) {
        drop(keys);
    }
}

impl Cut for KeygenIntoBlock<'_> {
    fn cut(&mut self, jobs: usize) -> Self {
        let (seeds, other_seeds) = self.seeds.split_at(jobs);
        let (keys, others) = mem::take(&mut self.keys).split_at_mut(jobs);
        let (public, other_public) = self.public.take().map(|public| public.split_at_mut(jobs)).unzip();
        (self.seeds, self.keys, self.public) = (other_seeds, others, other_public);
        KeygenIntoBlock { seeds, keys, public, held: self.held }
    }
}

impl Job for KeygenIntoBlock<'_> {
    type Out = ();

    fn ask(&self) -> Result<Kind, Error> {
        Ok(Kind::zkdilithium(Op::Keygen))
    }

    fn count(&self) -> usize {
        self.seeds.len()
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, _: &GroupFacts) -> usize {
        self.count() * self.held
    }

    fn run(
        place: &Place<'_>,
        jobs: &mut [scheduler::Block<Self>],
        _: &mut Vec<u8>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let seeds = seeds(place, jobs.iter().map(|block| block.job.seeds))?;
        keygen(place, &seeds.0, jobs.iter_mut().flat_map(|block| &mut *block.job.keys).collect())?;
        if place.scheduler.options.redundant {
            let mut second = SigningKeys::new();
            let place = Place { elsewhere: true, ..*place };
            keygen(&place, &seeds.0, second.room(seeds.0.len()).iter_mut().collect())?;
            let mut again = second.room_again();
            for block in &*jobs {
                let (mine, others) = again.split_at(block.count);
                compare(&place, "key", block.job.keys, mine)?;
                again = others;
            }
        }
        let with_public = jobs.iter_mut().filter_map(|block| {
            let KeygenIntoBlock { keys, public, .. } = &mut block.job;
            Some((&**keys, public.as_deref_mut()?))
        });
        place.each_of(with_public.collect(), &write_public)?;
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
        let (keys, of) = by_key(jobs, |job| &job.key);
        let mut signatures = each(place, jobs, |_| Signature::zeros());
        let places = signatures.iter_mut().map(Signature::bytes_mut).collect();
        let checked = sign(place, &keys, &of, |i| jobs[i].message.borrowed(), places)?;
        let result = |(signature, of): (Signature, u32)| checked[of as usize].clone().map(|()| signature);
        Ok(signatures.into_iter().zip(of).map(result).collect())
    }

    fn result(answer: Result<Signature, Error>) -> Result<Signature, Error> {
        answer
    }

    /// A faulty one can tell the key.
    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }
}

/// A seed whose key is made with those of other tickets.
pub(super) struct KeygenJob<'a>(pub(super) &'a [u8; SEED_BYTES]);

impl ZkJob for KeygenJob<'_> {
    const OP: Op = Op::Keygen;
    const OUTPUT: usize = SK_BYTES;
    type Answer = SigningKey;
    type Out = SigningKey;

    fn owned(&self) -> usize {
        0
    }

    fn run(place: &Place<'_>, jobs: &[&Self]) -> Result<Vec<SigningKey>, Error> {
        made(place, &seeds(place, jobs.iter().map(|job| BlockSeeds::Given(std::slice::from_ref(job.0))))?.0)
    }

    fn result(key: SigningKey) -> Result<SigningKey, Error> {
        Ok(key)
    }

    fn discard(key: SigningKey) {
        drop(key);
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
        let (keys, of) = by_key(jobs, |job| &job.key);
        verify(place, &keys, &of, |i| (jobs[i].message.borrowed(), &jobs[i].signature))
    }

    fn result(verdict: bool) -> Result<bool, Error> {
        Ok(verdict)
    }

    fn discard(_: bool) {}
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

/// Copies of seeds. On drop, they are wiped by the widest stores there are, where `zeroize` would write byte by byte.
struct Seeds(Vec<[u8; SEED_BYTES]>);

impl Drop for Seeds {
    fn drop(&mut self) {
        self.0.fill([0; SEED_BYTES]);
        optimization_barrier(&self.0[..]);
    }
}

fn seeds<'a>(place: &Place<'_>, blocks: impl Iterator<Item = BlockSeeds<'a>> + Clone) -> Result<Seeds, Error> {
    let mut all = Seeds(vec![[0; SEED_BYTES]; blocks.clone().map(|block| block.len()).sum()]);
    let mut left = &mut all.0[..];
    let mut drawn = Vec::new();
    for block in blocks {
        let (to, others) = std::mem::take(&mut left).split_at_mut(block.len());
        left = others;
        match block {
            BlockSeeds::Given(seeds) => to.copy_from_slice(seeds),
            BlockSeeds::Random(_) => drawn.push(to),
        }
    }
    // A thread takes longer for a full chunk's than a GPU for their keys.
    place.each_of(drawn, &|seeds: &mut [[u8; SEED_BYTES]]| random(seeds.as_flattened_mut()))?;
    Ok(all)
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
