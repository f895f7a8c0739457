//! A signature scheme as the engine sees it: one trait, over which jobs, rows, sets of rows and tickets are written once.

use crate::calls::Calls;
use crate::rows::column::Column;
use crate::rows::status::RowStatus;
use crate::types::{SchemeTypes, copied};
use crate::{Error, Op};
pub use hypergrove_engine::scheduler::Failed;
use hypergrove_engine::scheduler::{Checks, Compute, Computed, Output, Parts, Place, Run, compute};
use hypergrove_engine::scheme::{GroupFacts, Kind};
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
    /// Checks the randomness that the caller gives for this number of messages.
    #[doc(hidden)]
    fn check_randomizer(self, _randomizer: Self::Randomizer<'_>, _messages: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Checks that there are as many messages as rows.
    #[doc(hidden)]
    fn check_messages(messages: &Self::RowMessages<'_>, rows: usize) -> Result<(), Error>;
    /// The messages of rows, if they are bytes.
    #[doc(hidden)]
    fn bytes_of_rows<'m, 'a: 'm>(messages: &Self::RowMessages<'a>) -> Option<Column<'m>>;
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
    /// The bytes of memory that the messages of rows and the caller's randomness occupy.
    #[doc(hidden)]
    fn size_of_rows(messages: &Self::RowMessages<'_>, randomizer: Self::Randomizer<'_>) -> usize;

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
    /// Makes an input that borrows nothing.
    #[doc(hidden)]
    fn into_owned(input: Self::Input<'_>) -> Self::Input<'static>;
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
    /// Wipes a signature that no caller gets: a faulty signature may reveal the key.
    #[doc(hidden)]
    fn discard(signature: Self::Signature);

    /// The bytes that the output of a job takes until the caller has it.
    #[doc(hidden)]
    fn output(self, op: Op, facts: &GroupFacts) -> usize;
    /// The bytes of memory that a row of an operation needs in addition to the caller's, without what is kept of the row itself.
    #[doc(hidden)]
    fn held(op: Op, facts: &GroupFacts, checks: Checks) -> usize;
    /// Draws the randomness that messages take, for [`Signing::fresh`]; nothing if no message takes any.
    #[doc(hidden)]
    fn draw(_place: &Place<'_>, _jobs: usize, _of: Of<'_, ToSign<'_, Self>>) -> Result<Zeroizing<Vec<u8>>, Error> {
        Ok(Zeroizing::default())
    }
    /// Signs a range of messages in the places of [`Run::place`], without those that are left out; see [`Output::compute`].
    #[doc(hidden)]
    fn sign(
        run: &Run<'_>,
        work: &Signing<'_, '_, Self>,
        range: Range<usize>,
        left_out: &Failed,
        out: Parts<'_, '_>,
    ) -> Result<Computed, Error>;
    /// Verifies a range of signatures that were just made, but for jobs that failed. Returns the jobs whose keys are damaged.
    #[doc(hidden)]
    fn check_signatures(
        run: &Run<'_>,
        work: &Signing<'_, '_, Self>,
        range: Range<usize>,
        failed: &Failed,
        signatures: &[u8],
    ) -> Result<Failed, Error>;
    /// Verifies signatures of the right length. Each verdict has passed the engine's checks. `memory` is kept between chunks.
    #[doc(hidden)]
    fn verify(run: &Run<'_>, work: &Verifying<'_, '_, Self>, memory: &mut Vec<u8>) -> Result<Vec<bool>, Error>;
    /// Makes the keys of columns. They have passed the engine's checks, as verdicts have. `memory` is kept between chunks; it holds no secret
    /// afterwards.
    #[doc(hidden)]
    fn keygen(self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], memory: &mut Vec<u8>) -> Result<(), Error>;
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
    /// The first bytes of a signature that the host may compute in place of the device: R, if the scheme has it.
    pub r: usize,
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

/// Messages to be signed.
pub struct Signing<'w, 'm, S: SchemeTypes> {
    /// The number of messages.
    pub jobs: usize,
    /// Returns a message by its index.
    pub of: Of<'w, ToSign<'m, S>>,
    /// Returns the distinct keys of a range of messages, and the index of each message's key.
    pub keys: &'w (dyn Fn(Range<usize>) -> (Vec<&'m S::SigningKey>, Vec<u32>) + Sync),
    /// Randomness for each message, if a message takes any. Both computations of redundant work take the same.
    pub fresh: &'w [u8],
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
            S::check_signatures(run, self, range, failed, made)
        };
        let output = Output {
            jobs: self.jobs,
            size: set.sizes().signature,
            what: "the output of Sign",
            by_host: 0..set.sizes().r,
            is_private,
            compute: &|run, range, left_out, out| S::sign(run, self, range, left_out, out),
            check: if run.place.scheduler.work.checks.verify_signatures { Some(&check) } else { None },
        };
        compute(run, &output, out, memory)
    }
}

/// Computes results that need no further check, `size` bytes for each of so many jobs, into memory that nobody else sees. `what` is the result, as
/// errors name it.
#[doc(hidden)]
pub fn compute_private(
    run: &Run<'_>,
    (what, jobs, size): (&str, usize, usize),
    each: Compute<'_>,
    out: Parts<'_, '_>,
) -> Result<Failed, Error> {
    let output = Output { jobs, size, what, by_host: 0..0, is_private: true, compute: each, check: None };
    compute(run, &output, out, &mut Vec::new())
}

/// A signature to be verified, of a job or of a row. Its length is that of the set.
pub struct ToVerify<'m, S: SchemeTypes> {
    /// The key that should have signed.
    pub key: PublicKey<'m, S>,
    /// How the message was signed.
    pub mode: S::Mode<'m>,
    /// The message.
    pub message: S::Message<'m>,
    /// The signature.
    pub signature: &'m [u8],
}

/// Signatures to be verified.
pub struct Verifying<'w, 'm, S: SchemeTypes> {
    /// The number of signatures.
    pub jobs: usize,
    /// Returns a signature by its index.
    pub of: Of<'w, ToVerify<'m, S>>,
    /// Returns the distinct keys of a range of signatures, and the index of each signature's key. Keys in a column are copied.
    #[expect(clippy::type_complexity, reason = "a name would say no more")]
    pub keys: &'w (dyn Fn(Range<usize>) -> (Vec<Cow<'m, S::VerifyingKey>>, Vec<u32>) + Sync),
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
    ['m] ToVerify<'m, S>;
    ['m] PublicKey<'m, S>;
}

/// Successive keys to be made: their seeds, and the memory that the keys go to.
pub struct KeyColumns<'a> {
    /// Their seeds, one after the other. Without them the keys come from the operating system's randomness.
    pub seeds: Option<&'a [u8]>,
    /// Memory for the private keys.
    pub private: &'a mut [u8],
    /// Memory for the public keys; empty if they are not wanted.
    pub public: &'a mut [u8],
}
