//! A signature scheme as the engine sees it: one trait, over which jobs, rows, sets of rows and tickets are written once.

use crate::calls::Calls;
use crate::random::random_by_threads;
use crate::rows::column::Column;
use crate::rows::status::RowStatus;
use crate::types::{SchemeTypes, copied};
use crate::{Error, Op};
pub use hypergrove_engine::scheduler::Failed;
use hypergrove_engine::scheduler::{Checks, Compute, Computed, Output, Parts, Run, compute, room};
use hypergrove_engine::scheme::{Group, GroupFacts, Kind};
use signature::Keypair;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use zeroize::Zeroizing;

/// A parameter set, as callers name it: for SLH-DSA, a reference to [`Params`](crate::Params).
pub trait ParameterSet: Copy + Debug + Send + Sync + 'static {
    /// The scheme of the set.
    type Scheme: Scheme;
    #[doc(hidden)]
    fn scheme(self) -> Self::Scheme;
}

impl<S: Scheme> ParameterSet for S {
    type Scheme = S;
    fn scheme(self) -> S {
        self
    }
}

/// A signature scheme: what its keys, messages and signatures are, and how a device runs its operations. A value of the type is one of its
/// parameter sets. SLH-DSA is [`SlhDsa`](crate::SlhDsa).
pub trait Scheme: SchemeTypes<Set: ParameterSet<Scheme = Self>> {
    /// The parameter set.
    #[doc(hidden)]
    fn set(self) -> Self::Set;
    /// The set's name; that of the scheme if it has only one set.
    #[doc(hidden)]
    fn name(self) -> &'static str;
    /// The bytes of the set's seeds, keys and signatures.
    #[doc(hidden)]
    fn sizes(self) -> Sizes;
    /// The kind of work of an operation, with a key that has so many cached layers if the operation signs.
    #[doc(hidden)]
    fn kind(self, op: Op, cached_layers: usize) -> Kind;

    /// Checks the mode of a call, whatever its keys and messages are.
    #[doc(hidden)]
    fn check_mode(_mode: Self::Mode<'_>) -> Result<(), Error> {
        Ok(())
    }
    /// Whether each signature of a list's jobs is written straight into its own memory. Otherwise signatures are copied there from the memory of
    /// their chunk.
    #[doc(hidden)]
    const HAS_PLACES_FOR_JOBS: bool = false;
    /// The randomness that the caller gives, [`Sizes::random`] bytes for each message; `None` if it comes from elsewhere.
    #[doc(hidden)]
    fn given<'a>(_randomizer: Self::Randomizer<'a>) -> Option<&'a [u8]>
    where
        'a: 'a,
    {
        None
    }
    /// Whether the randomness of a message comes from the operating system.
    #[doc(hidden)]
    fn is_fresh(_randomizer: Self::Randomizer<'_>) -> bool {
        false
    }
    /// The messages of rows.
    #[doc(hidden)]
    fn message_column<'m, 'a: 'm>(messages: &Self::RowMessages<'a>) -> MessageColumn<'m>;
    /// The message and the randomness of a row, or the status of a row without a valid message. `copied` is the copy of a message in a foreign column.
    #[doc(hidden)]
    fn row<'m, 'a: 'm>(
        self,
        messages: &Self::RowMessages<'a>,
        mode: Self::Mode<'_>,
        randomizer: Self::Randomizer<'a>,
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<(Self::Message<'m>, Self::Randomizer<'m>), RowStatus>;
    /// Shortens the lifetime of a mode.
    #[doc(hidden)]
    fn shorten<'m, 'a: 'm>(mode: Self::Mode<'a>) -> Self::Mode<'m>;

    /// The input of a job.
    #[doc(hidden)]
    fn input<'a>(
        mode: Self::Mode<'a>,
        message: Self::JobMessage<'a>,
        randomizer: Self::Randomizer<'a>,
    ) -> Self::Input<'a>;
    /// The input of a job that borrows nothing.
    #[doc(hidden)]
    fn own_input(
        mode: Self::Mode<'_>,
        message: Self::JobMessage<'_>,
        randomizer: Self::Randomizer<'_>,
    ) -> Self::Input<'static>;
    /// Borrows the parts of an input.
    #[doc(hidden)]
    fn borrow<'j>(input: &'j Self::Input<'_>) -> (Self::Mode<'j>, Self::Message<'j>, Self::Randomizer<'j>);
    /// The bytes of a message that the input owns.
    #[doc(hidden)]
    fn owned_bytes(input: &Self::Input<'_>) -> usize;
    /// The bytes of a mode and a message that a job in a queue owns.
    #[doc(hidden)]
    fn size_of_input(mode: Self::Mode<'_>, message: &Self::JobMessage<'_>) -> usize;

    /// Checks seeds that the caller gives.
    #[doc(hidden)]
    fn check_seeds(self, _seeds: &Self::Seeds) -> Result<(), Error> {
        Ok(())
    }
    /// Writes seeds in the form that columns have.
    #[doc(hidden)]
    fn write_seeds(seeds: &Self::Seeds, to: &mut [u8]);
    /// A signature of bytes that the engine made.
    #[doc(hidden)]
    fn signature(self, bytes: Cow<'_, [u8]>) -> Self::Signature;
    /// The bytes that the output of a job takes until the caller has it.
    #[doc(hidden)]
    fn output(self, op: Op, facts: &GroupFacts) -> usize;
    /// The bytes of memory that a row of an operation needs in addition to the caller's, without what is kept of the row itself.
    #[doc(hidden)]
    fn held(op: Op, facts: &GroupFacts, checks: Checks) -> usize;
    /// The keys that a thread checks, at least; see [`Scheme::check_signer`].
    #[doc(hidden)]
    const KEYS_OF_A_CHECK: usize = 1;
    /// Checks that a key has not changed in memory, before it signs on the device of `run`. A job whose key has an error fails with it.
    #[doc(hidden)]
    fn check_signer(_run: &Run<'_>, _key: &Self::SigningKey) -> Result<(), Error> {
        Ok(())
    }
    /// Signs messages in the places of [`Run::place`].
    #[doc(hidden)]
    fn sign(run: &Run<'_>, work: &SignBatch<'_, '_, Self>, out: Parts<'_, '_>) -> Result<Computed, Error>;
    /// Finds out why a signature of this key that was just made is not valid. The error is the job's if the key is damaged; else it is the device's,
    /// and ends the run.
    #[doc(hidden)]
    fn blame(run: &Run<'_>, key: &Self::SigningKey, job: usize) -> Result<Error, Error>;
    /// Verifies signatures of the right length in the places of [`Run::place`]: writes the bytes by which [`Scheme::judge`] judges each of them.
    #[doc(hidden)]
    fn verify(run: &Run<'_>, work: &VerifyBatch<'_, '_, '_, Self>, out: Parts<'_, '_>) -> Result<(), Error>;
    /// Whether a signature is valid, by the bytes that [`Scheme::verify`] has written.
    #[doc(hidden)]
    fn judge(job: &ToVerify<'_, '_, Self>, verdict: &[u8]) -> bool;
    /// Makes the private keys of seeds in the places of [`Run::place`].
    #[doc(hidden)]
    fn keygen(run: &Run<'_>, seeds: &[u8], out: Parts<'_, '_>) -> Result<(), Error>;
    /// Writes the public key of a private key.
    #[doc(hidden)]
    fn write_public(private: &[u8], public: &mut [u8]);
    /// The engine's calls for this scheme: always `&Calls::OF`, in a function that is never inlined. Inlined, it would compile the calls again
    /// in every crate that makes one.
    #[doc(hidden)]
    fn calls() -> &'static Calls<Self>;
}

/// The bytes of a set's seeds, keys and signatures.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The seeds of a key.
    pub seeds: usize,
    /// A private key.
    pub private: usize,
    /// A public key.
    pub public: usize,
    /// A signature.
    pub signature: usize,
    /// The randomness of a signature, if it takes any.
    pub random: usize,
    /// The bytes by which a signature is judged.
    pub verdict: usize,
    /// The first bytes of a signature that the host may compute in place of the device: R, if the scheme has it.
    pub r: usize,
}

/// The messages of rows, as far as all schemes know them.
pub enum MessageColumn<'m> {
    /// Bytes.
    Bytes(Column<'m>),
    /// Values of the scheme's own: how many there are, and the bytes of memory that they occupy.
    Own(usize, usize),
}

impl MessageColumn<'_> {
    /// Checks that there are as many messages as rows.
    pub(crate) fn check(&self, rows: usize) -> Result<(), Error> {
        match self {
            MessageColumn::Bytes(column) => column.check("messages", rows),
            MessageColumn::Own(count, _) => Error::check_length("the list of messages", rows, *count),
        }
    }

    /// The bytes of memory that the messages occupy.
    pub(crate) fn size(&self) -> usize {
        match self {
            MessageColumn::Bytes(column) => column.size(),
            MessageColumn::Own(_, bytes) => *bytes,
        }
    }
}

/// Checks the length of the randomness that the caller gives for so many messages.
pub(crate) fn check_given<S: Scheme>(set: S, given: S::Randomizer<'_>, messages: usize) -> Result<(), Error> {
    let wanted = messages.saturating_mul(set.sizes().random);
    S::given(given).map_or(Ok(()), |given| Error::check_length("opt_rand", wanted, given.len()))
}

/// A message to be signed, of a job or of a row.
pub struct ToSign<'m, S: SchemeTypes> {
    /// The key that signs.
    pub key: &'m S::SigningKey,
    /// How the message is signed.
    pub mode: S::Mode<'m>,
    /// The message.
    pub message: S::Message<'m>,
    /// Where the randomness comes from.
    pub randomizer: S::Randomizer<'m>,
}

/// Returns the job of a call with a given index.
pub type Of<'w, T> = &'w (dyn Fn(usize) -> T + Sync);

/// Messages that a program signs together.
pub struct SignBatch<'w, 'm, S: SchemeTypes> {
    /// Returns a message by its index.
    pub of: Of<'w, ToSign<'m, S>>,
    /// The distinct keys of the messages. They were checked.
    pub keys: &'w [&'m S::SigningKey],
    /// The index of each message's key.
    pub key_of: &'w [u32],
    /// Fresh randomness for each message, if a message takes any: see [`Scheme::is_fresh`].
    pub fresh: &'w [u8],
}

/// Signatures that a program verifies together.
pub struct VerifyBatch<'w, 'k, 'm, S: SchemeTypes> {
    /// Returns a signature by its index.
    pub of: Of<'w, ToVerify<'k, 'm, S>>,
    /// The distinct keys of the signatures.
    pub keys: &'w [Cow<'k, S::VerifyingKey>],
    /// The index of each signature's key.
    pub key_of: &'w [u32],
}

/// Messages to be signed.
pub(crate) struct Signing<'w, 'm, S: SchemeTypes> {
    /// The number of messages.
    pub(crate) jobs: usize,
    /// Returns a message by its index.
    pub(crate) of: Of<'w, ToSign<'m, S>>,
    /// Returns the distinct keys of a range of messages, and the index of each message's key.
    pub(crate) keys: &'w (dyn Fn(Range<usize>) -> (Vec<&'m S::SigningKey>, Vec<u32>) + Sync),
}

impl<S: Scheme> Signing<'_, '_, S> {
    /// Signs all messages into `out`, with all checks of the engine. `is_private` says that nobody but the engine sees `out` before the call has
    /// ended. `memory` is kept between chunks.
    pub(crate) fn sign(
        &self,
        run: &Run<'_>,
        set: S,
        is_private: bool,
        out: Parts<'_, '_>,
        memory: &mut Vec<u8>,
    ) -> Result<Failed, Error> {
        let check = |run: &Run<'_>, range: Range<usize>, failed: &Failed, made: &[u8]| {
            self.check(run, set, range, failed, made)
        };
        let Sizes { signature, random, r, .. } = set.sizes();
        let takes_any = random > 0 && (0..self.jobs).any(|job| S::is_fresh((self.of)(job).randomizer));
        // Both computations of redundant work take the same randomness.
        let mut fresh = Zeroizing::new(vec![0; if takes_any { self.jobs * random } else { 0 }]);
        random_by_threads(&run.place, &mut fresh)?;
        let output = Output {
            jobs: self.jobs,
            size: signature,
            what: "the output of Sign",
            by_host: 0..r,
            is_private,
            compute: &|run, range, left_out, out| self.sign_range(run, set, (&fresh, range), left_out, out),
            check: if run.place.scheduler.work.checks.verify_signatures { Some(&check) } else { None },
        };
        compute(run, &output, out, memory)
    }

    /// Signs a range of messages once, with `fresh` randomness for all messages, without those that are left out and those whose keys are damaged; see [`Output::compute`].
    fn sign_range(
        &self,
        run: &Run<'_>,
        set: S,
        (fresh, range): (&[u8], Range<usize>),
        left_out: &Failed,
        out: Parts<'_, '_>,
    ) -> Result<Computed, Error> {
        let (keys, key_of) = (self.keys)(range.clone());
        let of = |job: usize| (self.of)(range.start + job);
        let each = fresh.len() / self.jobs;
        let fresh = &fresh[range.start * each..range.end * each];
        let is_damaged = |key: usize| S::check_signer(run, keys[key]).is_err();
        if left_out.is_empty() && run.place.find(keys.len(), S::KEYS_OF_A_CHECK, &is_damaged).is_none() {
            return S::sign(run, &SignBatch { of: &of, keys: &keys, key_of: &key_of, fresh }, out);
        }
        let checked = run.place.map(keys.len(), S::KEYS_OF_A_CHECK, &|key| S::check_signer(run, keys[key]));
        let error = |(job, key): (usize, &u32)| Some((job, checked[*key as usize].clone().err()?));
        let mut failed: Failed = key_of.iter().enumerate().filter_map(error).collect();
        let is_sound = |job: &usize| !failed.contains_key(job) && !left_out.contains_key(job);
        let sound: Vec<usize> = (0..key_of.len()).filter(is_sound).collect();
        if sound.is_empty() {
            return Ok(Computed::All(failed));
        }
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let mut of_sound = Zeroizing::new(Vec::with_capacity(fresh.len()));
        sound.iter().for_each(|job| of_sound.extend_from_slice(&fresh[job * each..][..each]));
        let places = out.iter_mut().flat_map(|part| part.chunks_exact_mut(set.sizes().signature)).enumerate();
        let places = places.filter(|(job, _)| sound.binary_search(job).is_ok());
        let mut places: Vec<&mut [u8]> = places.map(|(_, place)| place).collect();
        let work = SignBatch { of: &|i| of(sound[i]), keys: &keys, key_of: &key_of, fresh: &of_sound };
        let of_range = |more: Failed| more.into_iter().map(|(i, why)| (sound[i], why));
        Ok(match S::sign(run, &work, &mut places)? {
            Computed::All(more) => {
                failed.extend(of_range(more));
                Computed::All(failed)
            }
            Computed::Damaged(more) => Computed::Damaged(of_range(more).collect()),
        })
    }

    /// Verifies a range of signatures that were just made, but for jobs that failed. Returns the jobs whose keys are damaged.
    fn check(
        &self,
        run: &Run<'_>,
        set: S,
        range: Range<usize>,
        failed: &Failed,
        signatures: &[u8],
    ) -> Result<Failed, Error> {
        let sound: Vec<usize> = (0..range.len()).filter(|job| !failed.contains_key(job)).collect();
        if sound.is_empty() {
            return Ok(Failed::new());
        }
        let Sizes { signature: size, verdict, .. } = set.sizes();
        let group = Group { kind: set.kind(Op::Verify, 0), ..run.facts.group };
        let run = Run { place: run.place, facts: &run.place.worker.programs.facts(group)? };
        let (keys, key_of) = (self.keys)(range.clone());
        let public: Vec<Cow<'_, S::VerifyingKey>> = keys.iter().map(|key| Cow::Owned(key.verifying_key())).collect();
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let of = |i: usize| {
            let ToSign { mode, message, .. } = (self.of)(range.start + sound[i]);
            let key = PublicKey::Key(&*public[key_of[i] as usize]);
            ToVerify { key, mode, message, signature: &signatures[sound[i] * size..][..size] }
        };
        let mut verdicts = vec![0; sound.len() * verdict];
        S::verify(&run, &VerifyBatch { of: &of, keys: &public, key_of: &key_of }, &mut [&mut verdicts])?;
        let wrong = (0..sound.len()).filter(|i| !S::judge(&of(*i), &verdicts[i * verdict..][..verdict]));
        wrong.map(|i| Ok((sound[i], S::blame(&run, keys[key_of[i] as usize], i)?))).collect()
    }
}

/// Computes results that need no further check, `size` bytes for each of so many jobs, into memory that nobody else sees. `what` is the result, as
/// errors name it. `each` computes a range.
#[expect(clippy::type_complexity, reason = "a name would say no more")]
pub(crate) fn compute_private(
    run: &Run<'_>,
    (what, jobs, size): (&str, usize, usize),
    each: &(dyn Fn(&Run<'_>, Range<usize>, Parts<'_, '_>) -> Result<Failed, Error> + Sync),
    out: Parts<'_, '_>,
) -> Result<Failed, Error> {
    let each: Compute<'_> = &|run, range, _, out| each(run, range, out).map(Computed::All);
    let output = Output { jobs, size, what, by_host: 0..0, is_private: true, compute: each, check: None };
    compute(run, &output, out, &mut Vec::new())
}

/// Makes the private keys of seeds, with all checks of the engine.
pub(crate) fn make_keys<S: Scheme>(run: &Run<'_>, set: S, seeds: &[u8], private: Parts<'_, '_>) -> Result<(), Error> {
    let Sizes { seeds: of_key, private: size, .. } = set.sizes();
    let compute = |run: &Run<'_>, range: Range<usize>, out: Parts<'_, '_>| {
        S::keygen(run, &seeds[range.start * of_key..range.end * of_key], out)?;
        Ok(Failed::new())
    };
    compute_private(run, ("the output of Keygen", seeds.len() / of_key, size), &compute, private).map(drop)
}

/// A signature to be verified, of a job, of a row, or one that was just made. Its length is that of the set.
pub struct ToVerify<'k, 'm, S: SchemeTypes> {
    /// The key that should have signed.
    pub key: PublicKey<'k, S>,
    /// How the message was signed.
    pub mode: S::Mode<'m>,
    /// The message.
    pub message: S::Message<'m>,
    /// The signature.
    pub signature: &'k [u8],
}

/// Signatures to be verified.
pub(crate) struct Verifying<'w, 'm, S: SchemeTypes> {
    /// The number of signatures.
    pub(crate) jobs: usize,
    /// Returns a signature by its index.
    pub(crate) of: Of<'w, ToVerify<'m, 'm, S>>,
    /// Returns the distinct keys of a range of signatures, and the index of each signature's key. Keys in a column are copied.
    #[expect(clippy::type_complexity, reason = "a name would say no more")]
    pub(crate) keys: &'w (dyn Fn(Range<usize>) -> (Vec<Cow<'m, S::VerifyingKey>>, Vec<u32>) + Sync),
}

/// The fewest verdicts that a thread judges.
const VERDICTS_OF_A_THREAD: usize = 1024;

impl<S: Scheme> Verifying<'_, '_, S> {
    /// Verifies all signatures, with all checks of the engine. `memory` is kept between chunks.
    pub(crate) fn verify(&self, run: &Run<'_>, set: S, memory: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, out: Parts<'_, '_>| {
            let (keys, key_of) = (self.keys)(range.clone());
            let of = |i: usize| (self.of)(range.start + i);
            S::verify(run, &VerifyBatch { of: &of, keys: &keys, key_of: &key_of }, out)?;
            Ok(Failed::new())
        };
        let size = set.sizes().verdict;
        let verdicts = room(memory, self.jobs * size);
        compute_private(run, ("the output of Verify", self.jobs, size), &compute, &mut [&mut *verdicts])?;
        let verdicts = &*verdicts;
        let is_valid = |i: usize| S::judge(&(self.of)(i), &verdicts[i * size..][..size]);
        Ok(run.place.map_in_place(self.jobs, VERDICTS_OF_A_THREAD, &is_valid))
    }
}

/// A public key, or its bytes in the caller's column, which may change.
pub enum PublicKey<'m, S: SchemeTypes> {
    /// A key.
    Key(&'m S::VerifyingKey),
    /// As many bytes as a key of the set has.
    Bytes(&'m [u8]),
}

copied! {
    ['m] ToSign<'m, S>;
    ['k 'm] ToVerify<'k, 'm, S>;
    ['m] PublicKey<'m, S>;
}
