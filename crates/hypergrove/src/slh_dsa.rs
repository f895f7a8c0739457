//! SLH-DSA as a scheme of the engine: its jobs' modes, randomness and seeds, and how a backend runs each operation.

mod run;

use crate::calls::Calls;
use crate::jobs::{self, from_bytes, results};
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::reading::ReadMessage;
use crate::rows::{Column, RowStatus};
use crate::scheme::{
    Failed, KeyColumns, KeyRef, Of, ParameterSet, PublicKey, Scheme, Signing, Sizes, ToSign, ToVerify, Verifying,
    compute_private,
};
use crate::{check_length, random, random_by_threads};
use hypergrove_engine::programs::{Group, GroupFacts, typed};
use hypergrove_engine::scheduler::{Checks, Computed, Job, Outcomes, Parts, Place, Run, room};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::trace::{self, Step};
use hypergrove_engine::{Accept, Batch, Digests, Error, Key, Places, SlhDsaProgram, Work, wiped};
use hypergrove_fips205::digest::prf_msg;
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{ForsLeaves, MPrime, MessageError, Mode, Params, Position};
use hypergrove_taint::{declassified, declassify};
use run::compare_roots;
pub(crate) use run::host_isa;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zeroize::{Zeroize, Zeroizing};

/// SLH-DSA (FIPS 205) with a parameter set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlhDsa(&'static Params);

impl From<&'static Params> for SlhDsa {
    fn from(params: &'static Params) -> SlhDsa {
        SlhDsa(params)
    }
}

impl Deref for SlhDsa {
    type Target = Params;

    fn deref(&self) -> &Params {
        self.0
    }
}

impl ParameterSet for &'static Params {
    type Scheme = SlhDsa;
    fn scheme(self) -> SlhDsa {
        SlhDsa(self)
    }
}

/// A message to be signed with SLH-DSA.
///
/// ```
/// use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
///
/// let engine = Engine::new()?;
/// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
/// let job = SignJob::new(&key, b"Dear reader").context(b"letters").deterministic();
/// engine.sign_batch([job], |_, signature| assert!(signature.is_ok()))?;
/// # Ok::<(), hypergrove::Error>(())
/// ```
pub type SignJob<'a> = jobs::SignJob<'a, SlhDsa>;

/// A signature of SLH-DSA to be verified.
pub type VerifyJob<'a> = jobs::VerifyJob<'a, SlhDsa>;

/// A message as the engine takes it.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A message that was read before, in pieces.
    Read(&'a ReadMessage),
}

impl<'a> Message<'a> {
    /// Bytes that are to be hashed: too many for any device if the message is not there any more.
    fn hashed_bytes(self, mode: Mode<'_>) -> usize {
        match self {
            Message::Bytes(message) => MPrime::bytes(mode, message).max(message.len()),
            Message::Read(_) => usize::MAX,
        }
    }

    fn m_prime(self, mode: Mode<'a>) -> MPrime<'a> {
        match self {
            Message::Bytes(message) => m_prime(mode, message),
            Message::Read(_) => unreachable!("it has too many bytes for a device that hashes"),
        }
    }
}

/// The message of a job: bytes, which the job borrows or owns, or a message that was read before.
#[derive(Clone, Debug)]
pub enum JobMessage<'a> {
    /// Any number of bytes. If the job owns them, they count against the memory budget.
    Bytes(Cow<'a, [u8]>),
    /// A message of [`Engine::read_to_sign`](crate::Engine::read_to_sign) or [`Engine::read_to_verify`](crate::Engine::read_to_verify), for the
    /// key and the mode that it was read for.
    Read(ReadMessage),
}

impl JobMessage<'_> {
    /// The message.
    pub fn borrowed(&self) -> Message<'_> {
        match self {
            JobMessage::Bytes(bytes) => Message::Bytes(bytes),
            JobMessage::Read(read) => Message::Read(read),
        }
    }
}

impl<'a> From<Message<'a>> for JobMessage<'a> {
    fn from(message: Message<'a>) -> JobMessage<'a> {
        match message {
            Message::Bytes(bytes) => JobMessage::Bytes(bytes.into()),
            Message::Read(read) => JobMessage::Read(read.clone()),
        }
    }
}

from_bytes!(JobMessage);

/// Where the randomness of a signature comes from: opt_rand of FIPS 205, section 9.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomizer<'a> {
    /// The default: n fresh bytes from the operating system.
    #[default]
    Hedged,
    /// PK.seed, so the same message always has the same signature.
    Deterministic,
    /// These n bytes, which must be random.
    Given(&'a [u8]),
}

impl<'a> jobs::SignJob<'a, SlhDsa> {
    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> Self {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> Self {
        self.mode = mode;
        self
    }

    /// Signs without randomness, so that the message always has the same signature: [`Randomizer::Deterministic`].
    #[must_use]
    pub fn deterministic(self) -> Self {
        self.randomizer(Randomizer::Deterministic)
    }

    /// Sets where the randomness comes from.
    #[must_use]
    pub fn randomizer(mut self, randomizer: Randomizer<'a>) -> Self {
        self.randomizer = randomizer;
        self
    }
}

impl<'a> jobs::VerifyJob<'a, SlhDsa> {
    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> Self {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> Self {
        self.mode = mode;
        self
    }
}

/// The seeds that a key is made from, n random bytes each (FIPS 205, Algorithm 18). SK.seed and SK.prf are wiped on drop.
#[derive(Clone)]
pub struct Seeds {
    /// SK.seed.
    pub sk_seed: Zeroizing<Vec<u8>>,
    /// SK.prf.
    pub sk_prf: Zeroizing<Vec<u8>>,
    /// PK.seed.
    pub pk_seed: Vec<u8>,
}

impl Seeds {
    /// Makes seeds from the operating system's randomness. If there is none, the error is [`Error::Randomness`].
    pub fn random(p: &Params) -> Result<Seeds, Error> {
        let mut seeds = Seeds {
            sk_seed: Zeroizing::new(vec![0; p.n]),
            sk_prf: Zeroizing::new(vec![0; p.n]),
            pk_seed: vec![0; p.n],
        };
        for seed in [&mut *seeds.sk_seed, &mut *seeds.sk_prf, &mut seeds.pk_seed] {
            random(seed)?;
        }
        // PK.seed is the first half of the public key.
        declassify(&seeds.pk_seed[..]);
        Ok(seeds)
    }
}

impl std::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

/// Wipes SK.seed and SK.prf. PK.seed is public.
impl Zeroize for Seeds {
    fn zeroize(&mut self) {
        self.sk_seed.zeroize();
        self.sk_prf.zeroize();
    }
}

/// A mode whose context is stored separately, the context, the message, and the source of opt_rand.
pub struct OwnedInput {
    mode: Mode<'static>,
    context: Box<[u8]>,
    message: JobMessage<'static>,
    randomizer: Randomizer<'static>,
    /// opt_rand, if the randomizer is [`Randomizer::Given`].
    given: Option<Zeroizing<Vec<u8>>>,
}

fn context<'a>(mode: &Mode<'a>) -> &'a [u8] {
    match *mode {
        Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. } => context,
        Mode::Internal => &[],
    }
}

impl Scheme for SlhDsa {
    type Set = &'static Params;
    type SigningKey = SigningKey;
    type VerifyingKey = VerifyingKey;
    type Signature = Signature;
    type Seeds = Seeds;
    type Mode<'a> = Mode<'a>;
    type Randomizer<'a> = Randomizer<'a>;
    type Message<'a> = Message<'a>;
    type JobMessage<'a> = JobMessage<'a>;
    type RowMessages<'a> = Column<'a>;
    type OwnedInput = OwnedInput;

    fn set(self) -> &'static Params {
        self.0
    }

    fn name(self) -> &'static str {
        self.0.name
    }

    /// A private key is SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root. The seeds are the first three of these.
    fn sizes(self) -> Sizes {
        Sizes { seeds: 3 * self.n, private: self.sk_bytes(), public: self.pk_bytes(), signature: self.sig_bytes() }
    }

    fn kind(self, op: Op, cached_layers: usize) -> Kind {
        Kind::slh_dsa(self.0, op, cached_layers)
    }

    fn variant(key: &SigningKey) -> usize {
        key.cached_layers()
    }

    fn of_private(key: &SigningKey) -> SlhDsa {
        SlhDsa(key.params())
    }

    fn of_public(key: &VerifyingKey) -> SlhDsa {
        SlhDsa(key.params())
    }

    fn usual_mode<'a>(key: KeyRef<'_, SlhDsa>) -> Mode<'a>
    where
        'a: 'a,
    {
        match key {
            KeyRef::Private(key) => key.mode(&[]),
            KeyRef::Public(key) => key.mode(&[]),
        }
    }

    fn check_keys<'k>(keys: &mut dyn Iterator<Item = KeyRef<'k, SlhDsa>>, mode: Mode<'_>) -> Result<(), Error> {
        // Only the context concerns the whole call, so no message is needed here. A digest of the wrong length is an error of its message alone.
        if let Err(why @ MessageError::Context { .. }) = mode.check(b"") {
            return Err(why.into());
        }
        let mut first = None;
        for key in keys {
            let (set, layers) = match key {
                KeyRef::Private(key) => {
                    key.as_ref().check_mode(mode)?;
                    (key.params(), key.cached_layers())
                }
                KeyRef::Public(key) => {
                    key.as_ref().check_mode(mode)?;
                    (key.params(), 0)
                }
            };
            let (first_set, of_first) = *first.get_or_insert((set, layers));
            if set != first_set {
                let what = format!("a table with keys of {first_set} and of {set}; make a call for each set");
                return Err(Error::Value { what });
            }
            if layers != of_first {
                let what = format!(
                    "a table whose keys have {of_first} and {layers} cached layers; give all keys the same number"
                );
                return Err(Error::Value { what });
            }
        }
        Ok(())
    }

    fn check_job(key: KeyRef<'_, SlhDsa>, mode: Mode<'_>, message: &JobMessage<'_>) -> Result<(), Error> {
        match (message, &key) {
            (JobMessage::Bytes(message), _) => mode.check(message)?,
            (JobMessage::Read(read), KeyRef::Private(key)) => read.check(&key.verifying_key(), true, mode)?,
            (JobMessage::Read(read), KeyRef::Public(key)) => read.check(key, false, mode)?,
        }
        match key {
            KeyRef::Private(key) => Ok(key.as_ref().check_mode(mode)?),
            KeyRef::Public(key) => Ok(key.as_ref().check_mode(mode)?),
        }
    }

    fn check_randomizer(self, randomizer: Randomizer<'_>, messages: usize) -> Result<(), Error> {
        match randomizer {
            Randomizer::Given(bytes) => check_length("opt_rand", messages.saturating_mul(self.n), bytes.len()),
            _ => Ok(()),
        }
    }

    fn randomizer_of_row<'a>(self, randomizer: Randomizer<'a>, row: usize) -> Randomizer<'a>
    where
        'a: 'a,
    {
        match randomizer {
            Randomizer::Given(bytes) => Randomizer::Given(&bytes[row * self.n..][..self.n]),
            other => other,
        }
    }

    fn check_messages(messages: &Column<'_>, rows: usize) -> Result<(), Error> {
        messages.check("messages", rows)
    }

    fn bytes_of_rows<'m, 'a: 'm>(messages: &Column<'a>) -> Option<Column<'m>> {
        Some(*messages)
    }

    fn message_of_row<'m, 'a: 'm>(
        messages: &Column<'a>,
        mode: Mode<'_>,
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<Message<'m>, RowStatus> {
        let message = copied.or_else(|| messages.get(row)).ok_or(RowStatus::BadOffsets)?;
        mode.check(message).map_err(|_| RowStatus::DigestLength)?;
        Ok(Message::Bytes(message))
    }

    fn size_of_rows(messages: &Column<'_>, randomizer: Randomizer<'_>) -> usize {
        messages.size() + if let Randomizer::Given(bytes) = randomizer { bytes.len() } else { 0 }
    }

    fn shorten_lifetimes<'m, 'a: 'm>(mode: Mode<'a>, randomizer: Randomizer<'a>) -> (Mode<'m>, Randomizer<'m>) {
        (mode, randomizer)
    }

    fn borrow<'j, 'a: 'j>(
        mode: Mode<'a>,
        message: &'j JobMessage<'a>,
        randomizer: Randomizer<'a>,
    ) -> (Mode<'j>, Message<'j>, Randomizer<'j>) {
        (mode, message.borrowed(), randomizer)
    }

    fn owned_bytes(message: &JobMessage<'_>) -> usize {
        if let JobMessage::Bytes(bytes) = message { jobs::owned(bytes) } else { 0 }
    }

    fn into_owned(mode: Mode<'_>, message: JobMessage<'_>, randomizer: Randomizer<'_>) -> OwnedInput {
        let context = context(&mode).into();
        let mode = match mode {
            Mode::Internal => Mode::Internal,
            with_context => with_context.with_context(&[]),
        };
        let (randomizer, given) = match randomizer {
            Randomizer::Hedged => (Randomizer::Hedged, None),
            Randomizer::Deterministic => (Randomizer::Deterministic, None),
            Randomizer::Given(bytes) => (Randomizer::Given(&[]), Some(Zeroizing::new(bytes.to_vec()))),
        };
        let message = match message {
            JobMessage::Bytes(bytes) => JobMessage::Bytes(bytes.into_owned().into()),
            JobMessage::Read(read) => JobMessage::Read(read),
        };
        OwnedInput { mode, context, message, randomizer, given }
    }

    fn size_of_input(mode: Mode<'_>, message: &JobMessage<'_>) -> usize {
        let message = if let JobMessage::Bytes(bytes) = message { bytes.len() } else { 0 };
        message + context(&mode).len()
    }

    fn lend(owned: &OwnedInput) -> (Mode<'_>, JobMessage<'_>, Randomizer<'_>) {
        let mode = match owned.mode {
            Mode::Internal => Mode::Internal,
            mode => mode.with_context(&owned.context),
        };
        let randomizer = owned.given.as_ref().map_or(owned.randomizer, |given| Randomizer::Given(given));
        (mode, owned.message.borrowed().into(), randomizer)
    }

    fn check_seeds(self, Seeds { sk_seed, sk_prf, pk_seed }: &Seeds) -> Result<(), Error> {
        let parts = [("SK.seed", &**sk_seed), ("SK.prf", &**sk_prf), ("PK.seed", pk_seed)];
        parts.into_iter().try_for_each(|(what, seed)| check_length(what, self.n, seed.len()))
    }

    fn write_seeds(Seeds { sk_seed, sk_prf, pk_seed }: &Seeds, to: &mut [u8]) {
        for (to, part) in to.chunks_exact_mut(pk_seed.len()).zip([&**sk_seed, &**sk_prf, pk_seed]) {
            to.copy_from_slice(part);
        }
    }

    fn private_key(self, bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(self.0, bytes).expect("as many bytes as a key has")
    }

    fn public_key(self, bytes: &[u8]) -> VerifyingKey {
        VerifyingKey::from_bytes(self.0, bytes).expect("as many bytes as a key has")
    }

    fn signature(self, bytes: Cow<'_, [u8]>) -> Signature {
        Signature::from_bytes(self.0, bytes).expect("as many bytes as a signature has")
    }

    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }

    fn distinct_private<'k>(keys: &mut dyn Iterator<Item = &'k SigningKey>) -> (Vec<&'k SigningKey>, Vec<u32>) {
        let public = |key: &'k SigningKey| (key.as_ref().pk_seed(), key.as_ref().pk_root(), key.cached_id());
        // The result is public: only a damaged key makes a difference.
        distinct(keys, public, |a, b| declassified(a == b))
    }

    fn distinct_public<'k>(keys: &mut dyn Iterator<Item = &'k VerifyingKey>) -> (Vec<&'k VerifyingKey>, Vec<u32>) {
        distinct(keys, |key| (key.as_ref().pk_seed(), key.as_ref().pk_root(), 0), |_, _| true)
    }

    fn output(self, _: Op, facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn held(op: Op, facts: &GroupFacts, _: Checks) -> usize {
        let meanwhile = match op {
            Op::Keygen => size_of::<(&[u8], Key<'_>, u32)>(),
            _ => size_of::<(Position, &[u8], u32)>(),
        };
        facts.plan().out_bytes() + meanwhile
    }

    fn draw(place: &Place<'_>, jobs: usize, of: Of<'_, ToSign<'_, SlhDsa>>) -> Result<Zeroizing<Vec<u8>>, Error> {
        let hedged = (0..jobs).map(of).find(|job| job.randomizer == Randomizer::Hedged);
        let mut fresh = Zeroizing::new(vec![0; hedged.map_or(0, |job| jobs * job.key.params().n)]);
        random_by_threads(place, &mut fresh)?;
        Ok(fresh)
    }

    fn r_range(self) -> Range<usize> {
        self.0.r_range()
    }

    /// FIPS 205, Algorithm 19: lines 1–10 in `ToSign::randomized`, the others in the program.
    fn sign(
        run: &Run<'_>,
        work: &Signing<'_, '_, SlhDsa>,
        range: Range<usize>,
        left_out: &Failed,
        out: Parts<'_, '_>,
    ) -> Result<Computed, Error> {
        let p = run.facts.plan().params;
        let (keys, key_of) = (work.keys)(range.clone());
        let fresh = work.fresh.get(range.start * p.n..range.end * p.n).unwrap_or_default();
        let of = |job: usize| (work.of)(range.start + job);
        if left_out.is_empty() && keys.iter().all(|key| key.is_unchanged()) {
            return sign(run, &of, (&keys, &key_of), fresh, out);
        }
        let changed: Vec<bool> = keys.iter().map(|key| !key.is_unchanged()).collect();
        let of_changed = key_of.iter().enumerate().filter(|(_, key)| changed[**key as usize]);
        let mut failed: Failed = of_changed.map(|(job, _)| (job, Error::changed(p.name))).collect();
        let sound: Vec<usize> =
            (0..key_of.len()).filter(|job| !failed.contains_key(job) && !left_out.contains_key(job)).collect();
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let mut of_sound = Zeroizing::new(Vec::with_capacity(fresh.len()));
        for job in sound.iter().filter(|_| !fresh.is_empty()) {
            of_sound.extend_from_slice(&fresh[job * p.n..][..p.n]);
        }
        let rows = out.iter_mut().flat_map(|part| part.chunks_exact_mut(p.sig_bytes())).enumerate();
        let mut rows: Vec<&mut [u8]> =
            rows.filter(|(job, _)| sound.binary_search(job).is_ok()).map(|(_, row)| row).collect();
        let computed = sign(run, &|i| of(sound[i]), (&keys, &key_of), &of_sound, &mut rows)?;
        let of_range = |more: Failed| more.into_iter().map(|(i, why)| (sound[i], why));
        Ok(match computed {
            Computed::All(more) => {
                failed.extend(of_range(more));
                Computed::All(failed)
            }
            Computed::Damaged(more) => Computed::Damaged(of_range(more).collect()),
        })
    }

    /// Verifies signatures that were just made.
    fn check_signatures(
        run: &Run<'_>,
        work: &Signing<'_, '_, SlhDsa>,
        range: Range<usize>,
        failed: &Failed,
        signatures: &[u8],
    ) -> Result<Failed, Error> {
        let p = run.facts.plan().params;
        let group = Group { kind: Kind::slh_dsa(p, Op::Verify, 0), ..run.facts.group };
        let facts = run.place.worker.programs.facts(group)?;
        let (keys, key_of) = (work.keys)(range.clone());
        let sound: Vec<usize> = (0..range.len()).filter(|job| !failed.contains_key(job)).collect();
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let public: Vec<Cow<'_, VerifyingKey>> = keys.iter().map(|key| Cow::Owned(key.verifying_key())).collect();
        let mut roots = vec![0; key_of.len() * p.n];
        let of = |i: usize| {
            let ToSign { mode, message, .. } = (work.of)(range.start + sound[i]);
            let key = PublicKey::Key(&*public[key_of[i] as usize]);
            ToVerify { key, mode, message, signature: &signatures[sound[i] * p.sig_bytes()..][..p.sig_bytes()] }
        };
        verify(&Run { place: run.place, facts: &facts }, &of, &public, &key_of, &mut [&mut roots])?;
        let of_key = key_of.iter().map(|key| keys[*key as usize]);
        let refused = compare_roots(run, roots.chunks_exact(p.n), of_key, "the root implied by the signature")?;
        Ok(refused.into_iter().map(|(i, why)| (sound[i], why)).collect())
    }

    fn verify(run: &Run<'_>, work: &Verifying<'_, '_, SlhDsa>, memory: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let n = run.facts.plan().params.n;
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, roots: Parts<'_, '_>| {
            let (keys, key_of) = (work.keys)(range.clone());
            verify(run, &|i| (work.of)(range.start + i), &keys, &key_of, roots)?;
            Ok(Computed::All(Failed::new()))
        };
        let roots = room(memory, work.jobs * n);
        compute_private(run, ("the output of Verify", work.jobs, n), &compute, &mut [&mut *roots])?;
        let roots = &*roots;
        let is_valid = |i: usize| {
            let ToVerify { key, message, signature, .. } = (work.of)(i);
            // A message that was read has the digest of one R.
            let of_this_r = if let Message::Read(read) = message { signature.starts_with(read.r()) } else { true };
            of_this_r && roots[i * n..][..n] == *key.parts()[1]
        };
        Ok(run.place.map_in_place(work.jobs, VERDICTS_OF_A_THREAD, &is_valid))
    }

    /// FIPS 205, Algorithm 18.
    fn keygen(self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], memory: &mut Vec<u8>) -> Result<(), Error> {
        let (n, place) = (self.n, &run.place);
        // One thread takes a few milliseconds for the seeds of a full chunk, and the device would wait for them.
        place.each_of(keys.iter_mut().collect(), &|keys: &mut KeyColumns<'_>| {
            match keys.seeds {
                // One request fills the whole column, because PK.root is written later.
                None => random(keys.private)?,
                Some(seeds) => {
                    for (to, from) in keys.private.chunks_exact_mut(4 * n).zip(seeds.chunks_exact(3 * n)) {
                        to[..3 * n].copy_from_slice(from);
                    }
                }
            }
            // PK.seed is the first half of the public key.
            keys.private.chunks_exact(4 * n).for_each(|key| declassify(&key[2 * n..3 * n]));
            Ok(())
        })?;
        let private: Vec<&[u8]> = keys.iter().flat_map(|keys| keys.private.chunks_exact(4 * n)).collect();
        let roots = room(memory, private.len() * n);
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, roots: Parts<'_, '_>| {
            let seeds = private[range].iter().map(|key| (&key[..n], &key[2 * n..3 * n]));
            grow(run, seeds, roots).map(|()| Computed::All(Failed::new()))
        };
        compute_private(run, ("the output of Keygen", private.len(), n), &compute, &mut [&mut *roots])?;
        drop(private);
        let mut left = &*roots;
        let with_roots = keys.iter_mut().map(|keys| {
            let roots = left.split_off(..keys.private.len() / 4).expect("a root for each key");
            (keys, roots)
        });
        place.each_of(with_roots.collect(), &|(keys, roots): (&mut KeyColumns<'_>, &[u8])| {
            for (private, root) in keys.private.chunks_exact_mut(4 * n).zip(roots.chunks_exact(n)) {
                private[3 * n..].copy_from_slice(root);
            }
            for (public, key) in keys.public.chunks_exact_mut(2 * n).zip(keys.private.chunks_exact(4 * n)) {
                public.copy_from_slice(&key[2 * n..]);
            }
            Ok(())
        })
    }

    #[inline(never)]
    fn calls() -> &'static Calls<SlhDsa> {
        &Calls::OF
    }
}

/// The fewest roots that one thread compares.
const VERDICTS_OF_A_THREAD: usize = 1024;

impl<'m> PublicKey<'m, SlhDsa> {
    /// PK.seed and PK.root.
    fn parts(self) -> [&'m [u8]; 2] {
        match self {
            PublicKey::Key(key) => [key.as_ref().pk_seed(), key.as_ref().pk_root()],
            PublicKey::Bytes(bytes) => bytes.split_at(bytes.len() / 2).into(),
        }
    }
}

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

/// M′ of a message whose mode was checked.
fn m_prime<'a>(mode: Mode<'a>, message: &'a [u8]) -> MPrime<'a> {
    MPrime::new(mode, message).expect("the mode was checked")
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
struct SignDigests<'s, 'a> {
    run: &'s Run<'s>,
    of: Of<'s, ToSign<'a, SlhDsa>>,
    /// n bytes for each job, unless no job is hedged.
    fresh: &'s [u8],
    jobs: usize,
    longest: OnceLock<usize>,
    /// R of each job, if the host has computed it; and the positions, if they are computed again.
    made: Option<(Vec<u8>, Vec<Position>)>,
}

impl SignDigests<'_, '_> {
    /// Writes R of each signature, if the host has computed it.
    fn put_rs(&self, out: Parts<'_, '_>) -> Result<(), Error> {
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
struct VerifyDigests<'s, 'a> {
    run: &'s Run<'s>,
    of: Of<'s, ToVerify<'a, SlhDsa>>,
    keys: &'s [Key<'s>],
    key_of: &'s [u32],
    longest: OnceLock<usize>,
}

impl Digests for VerifyDigests<'_, '_> {
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

/// The parts of the keys that a batch needs.
fn parts_of<'k>(keys: &'k [&SigningKey]) -> Vec<Key<'k>> {
    let parts = keys.iter().map(|key| Key {
        pk_root: key.as_ref().pk_root(),
        sk_prf: key.as_ref().sk_prf(),
        cached_nodes: key.cached_nodes(),
        cached_id: key.cached_id(),
        ..Key::of_seeds(key.as_ref().pk_seed(), key.as_ref().sk_seed())
    });
    parts.collect()
}

/// Signs jobs whose keys are unchanged. `key_of` has the index in `keys` of each job's key, and `fresh` n bytes for each job if any is hedged.
///
/// Where the program grows the top trees, their roots must be PK.root of the keys, before any signature leaves the device: one-time keys sign the
/// roots of the lower layers, and a wrong root now and the right one later would use such a key twice.
fn sign(
    run: &Run<'_>,
    of: Of<'_, ToSign<'_, SlhDsa>>,
    (keys, key_of): (&[&SigningKey], &[u32]),
    fresh: &[u8],
    out: Parts<'_, '_>,
) -> Result<Computed, Error> {
    let (plan, n) = (run.facts.plan(), run.facts.plan().params.n);
    if key_of.is_empty() {
        return Ok(Computed::All(Failed::new()));
    }
    let mut digests = SignDigests { run, of, fresh, jobs: key_of.len(), longest: OnceLock::new(), made: None };
    let of_key = |key: &u32| keys[*key as usize];
    let batch = Batch { keys: &parts_of(keys), key_of, positions: &[], signatures: &[] };
    // The bytes of a second computation must equal those of the first, which was checked.
    let is_second = run.place.places == Places::Other;
    let compares = run.place.scheduler.work.checks.check_roots && plan.cached_layers == 0 && !is_second;
    let (mut damaged, holds) = (Failed::new(), run.facts.abilities.holds);
    // A wrong device is blamed at once, even if its next attempt would be right.
    let mut accept = |first: usize, roots: &[u8]| {
        declassify(roots);
        let of_jobs = key_of[first..].iter().map(of_key);
        let found = compare_roots(run, roots.chunks_exact(n), of_jobs, "the top tree's root")?;
        damaged.extend(found.into_iter().map(|(job, why)| (first + job, why)));
        match holds && !damaged.is_empty() {
            true => Err(Error::Value { what: "the top tree's root is not its key's PK.root".into() }),
            false => Ok(()),
        }
    };
    let done = run.place.program(run.facts, key_of.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        if program.hashes() == 0 {
            let _ = digests.longest.set(usize::MAX);
        }
        let accept: Option<Accept<'_>> = if compares { Some(&mut accept) } else { None };
        program.run(Work { batch, digests: Some(&mut digests), accept, places }, out)
    });
    match done {
        Ok(()) => digests.put_rs(out).map(|()| Computed::All(damaged)),
        Err(_) if !damaged.is_empty() && holds => Ok(Computed::Damaged(damaged)),
        Err(why) => Err(why),
    }
}

/// Computes the root that each signature implies, n bytes each: PK.root if the signature is valid. `key_of` has the index in `keys` of each
/// job's key.
///
/// FIPS 205, Algorithm 20: lines 4–11 in [`VerifyDigests`], the others in the program.
fn verify(
    run: &Run<'_>,
    of: Of<'_, ToVerify<'_, SlhDsa>>,
    keys: &[Cow<'_, VerifyingKey>],
    key_of: &[u32],
    roots: Parts<'_, '_>,
) -> Result<(), Error> {
    if key_of.is_empty() {
        return Ok(());
    }
    let parts = keys.iter().map(|key| {
        let key = (**key).as_ref();
        Key { pk_root: key.pk_root(), ..Key::of_seeds(key.pk_seed(), &[]) }
    });
    let keys: Vec<Key<'_>> = parts.collect();
    let signatures: Vec<&[u8]> = (0..key_of.len()).map(|i| of(i).signature).collect();
    let batch = Batch { keys: &keys, key_of, positions: &[], signatures: &signatures };
    let mut digests = VerifyDigests { run, of, keys: &keys, key_of, longest: OnceLock::new() };
    run.place.program(run.facts, key_of.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        if program.hashes() == 0 {
            let _ = digests.longest.set(usize::MAX);
        }
        let done = program.run(Work { batch, digests: Some(&mut digests), accept: None, places }, roots);
        roots.iter().for_each(|roots| declassify(&**roots));
        done
    })
}

/// Computes the nodes of a key's top layers and compares their root with PK.root. With 0 layers, the output is the root alone, for that check.
pub(crate) struct NodesJob<'a>(pub(crate) &'a SigningKey, pub(crate) usize);

impl Job for NodesJob<'_> {
    type Out = Vec<u8>;
    const JOINS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        let NodesJob(key, layers) = *self;
        Ok(Kind::slh_dsa(key.params(), if layers == 0 { Op::Keygen } else { Op::Cache }, layers))
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<Vec<u8>>, Error> {
        let plan = run.facts.plan();
        let (p, size) = (plan.params, plan.out_bytes());
        // The root of the top tree follows that tree's other nodes.
        let root =
            if jobs.first().is_none_or(|NodesJob(_, layers)| *layers == 0) { 0 } else { ((2 << p.hp) - 2) * p.n };
        let keys: Vec<&SigningKey> = jobs.iter().map(|NodesJob(key, _)| *key).collect();
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, out: Parts<'_, '_>| {
            let keys = &keys[range];
            grow(run, keys.iter().map(|key| (key.as_ref().sk_seed(), key.as_ref().pk_seed())), out)?;
            let rows = out.iter().flat_map(|part| part.chunks_exact(size));
            let roots = rows.map(|out| &out[root..][..p.n]);
            let mut failed = compare_roots(run, roots, keys.iter().copied(), "the top tree's root")?;
            let changed = keys.iter().enumerate().filter(|(_, key)| !key.is_unchanged());
            failed.extend(changed.map(|(job, _)| (job, Error::changed(p.name))));
            Ok(Computed::All(failed))
        };
        let what = format!("the output of {:?}", plan.op);
        let out = room(memory, keys.len() * size);
        let failed = compute_private(run, (&what, keys.len(), size), &compute, &mut [out])?;
        Ok(Outcomes { results: results(run, (keys.len(), size), memory, &|nodes| nodes.into_owned()), failed })
    }
}

/// Runs a program that computes nodes of trees from SK.seed and PK.seed alone. Every job has a key of its own.
fn grow<'k>(run: &Run<'_>, seeds: impl Iterator<Item = (&'k [u8], &'k [u8])>, out: Parts<'_, '_>) -> Result<(), Error> {
    let keys: Vec<Key<'_>> = seeds.map(|(sk_seed, pk_seed)| Key::of_seeds(pk_seed, sk_seed)).collect();
    let key_of: Vec<u32> = (0..keys.len() as u32).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    run.place.program(run.facts, batch.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        let timing = program.run(Work { places, ..Work::of(&batch) }, out)?;
        // Nodes and roots are public; those that fail a check are wiped before anyone sees them.
        out.iter().for_each(|part| declassify(&**part));
        Ok(timing)
    })
}

/// The public parts of a key by which a batch tells keys apart: PK.seed, PK.root, and the number that names the cached nodes (`Key::cached_id`).
type Public<'a> = (&'a [u8], &'a [u8], u64);

/// The distinct keys of a batch, and the index of each job's key. Keys are compared by their content, because jobs bring copies: by their public
/// parts, and where these are equal by `is_same`. Secret parts choose no place in memory, so the time of a search says nothing about them.
fn distinct<'a, K>(
    keys: impl Iterator<Item = &'a K>,
    public: fn(&'a K) -> Public<'a>,
    is_same: fn(&K, &K) -> bool,
) -> (Vec<&'a K>, Vec<u32>) {
    // A hash map would need a random seed, which the system may refuse. A copy of the first 8 bytes of PK.seed decides most comparisons, without a look at
    // the key itself.
    let (mut distinct, mut known) = (Vec::<&K>::new(), BTreeMap::<([u8; 8], Public<'_>), Vec<u32>>::new());
    let mut last: Option<(&K, u32)> = None;
    let key_of = keys
        .map(|key| match last {
            // Most batches have one key, which their jobs borrow.
            Some((same, number)) if ptr::eq(same, key) => number,
            _ => {
                let public = public(key);
                let numbers = known.entry((*public.0.first_chunk().expect("n is 16 or more"), public)).or_default();
                let number = numbers.iter().copied().find(|number| is_same(distinct[*number as usize], key));
                let number = number.unwrap_or_else(|| {
                    distinct.push(key);
                    numbers.push(distinct.len() as u32 - 1);
                    distinct.len() as u32 - 1
                });
                last.insert((key, number)).1
            }
        })
        .collect();
    (distinct, key_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_testkit::toys::TOY_SHA2_16;
    use std::sync::Arc;

    fn signing(bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(&TOY_SHA2_16, bytes).unwrap()
    }

    #[test]
    fn keys_are_told_apart_by_their_content() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let key = signing(&bytes);
        let with_nodes = key.with_nodes(1, vec![0; 7 * 16]);
        let others: Vec<SigningKey> = [0, 31, 32, 63]
            .map(|at| {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                signing(&bytes)
            })
            .into();
        let copies = [key.clone(), with_nodes.clone(), signing(&bytes), others[0].clone()];
        let keys = [
            &key,
            &copies[0],
            &others[0],
            &key,
            &with_nodes,
            &copies[2],
            &others[1],
            &copies[1],
            &others[2],
            &others[3],
            &copies[3],
        ];
        let (distinct, key_of) = SlhDsa::distinct_private(&mut keys.into_iter());
        assert_eq!(key_of, [0, 0, 1, 0, 2, 0, 3, 2, 4, 5, 1]);
        let first = [&key, &others[0], &with_nodes, &others[1], &others[2], &others[3]];
        assert!(std::iter::zip(&distinct, first).all(|(a, b)| ptr::eq(*a, b)) && distinct.len() == 6);

        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let (distinct, key_of) = SlhDsa::distinct_public(&mut public.iter());
        // The secret part makes no difference.
        assert_eq!((distinct.len(), &key_of[..]), (3, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0][..]));
    }

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

    #[test]
    fn a_job_borrows_owns_or_shares_its_key() {
        let key = signing(&[7; 64]);
        let shared = Arc::new(key.clone());
        for job in [SignJob::new(&key, b"m"), SignJob::new(key.clone(), b"m"), SignJob::new(shared.clone(), b"m")] {
            assert_eq!((&*job.key, job.mode), (&key, Mode::default()));
            assert!(matches!(job.message, JobMessage::Bytes(message) if *message == *b"m"));
        }
        let job = SignJob::new(shared, b"m").mode(Mode::Internal).context(b"c").deterministic();
        assert_eq!((job.mode, job.randomizer), (Mode::Pure { context: b"c" }, Randomizer::Deterministic));
        let public = key.verifying_key();
        let job = VerifyJob::new(public.clone(), b"m", vec![1]).context(b"c").mode(Mode::Internal);
        assert_eq!((&*job.key, job.mode), (&public, Mode::Internal));
    }
}
