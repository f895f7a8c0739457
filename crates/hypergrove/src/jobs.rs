//! What the engine is asked to do, and how each kind of job is laid before a backend.

use crate::block::Job;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::run::{Failed, Run, results, room};
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheduler::Place;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Batch, Digests, Error, Key, SlhDsaProgram, wiped};
use hypergrove_fips205::digest::prf_msg;
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{ForsLeaves, KeyError, MPrime, Mode, Params, Position, SigningKey as RawSigningKey};
use hypergrove_taint::{classify, declassified, declassify};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

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

/// The key of a job, which the job borrows, owns or shares. In a batch of SLH-DSA, equal keys count as one key, wherever they lie.
#[derive(Clone, Debug)]
pub enum JobKey<'a, K> {
    /// The job borrows the key.
    Borrowed(&'a K),
    /// The job owns the key.
    Owned(K),
    /// The job shares the key.
    Shared(Arc<K>),
}

impl<K> Deref for JobKey<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        match self {
            JobKey::Borrowed(key) => key,
            JobKey::Owned(key) => key,
            JobKey::Shared(key) => key,
        }
    }
}

impl<'a, K> From<&'a K> for JobKey<'a, K> {
    fn from(key: &'a K) -> JobKey<'a, K> {
        JobKey::Borrowed(key)
    }
}

impl<K> From<K> for JobKey<'_, K> {
    fn from(key: K) -> Self {
        JobKey::Owned(key)
    }
}

impl<K> From<Arc<K>> for JobKey<'_, K> {
    fn from(key: Arc<K>) -> Self {
        JobKey::Shared(key)
    }
}

/// A message to be signed.
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
#[derive(Clone, Debug)]
pub struct SignJob<'a> {
    /// The key that signs.
    pub key: JobKey<'a, SigningKey>,
    /// How the message becomes M′.
    pub mode: Mode<'a>,
    /// The message. If the job owns it, it counts against the memory budget.
    pub message: Cow<'a, [u8]>,
    /// Where the randomness comes from.
    pub randomizer: Randomizer<'a>,
}

impl<'a> SignJob<'a> {
    /// Makes a job with an empty context and fresh randomness, in the mode that the key implies: pure, or pre-hash for a key of
    /// HashSLH-DSA.
    pub fn new(key: impl Into<JobKey<'a, SigningKey>>, message: impl Into<Cow<'a, [u8]>>) -> SignJob<'a> {
        let key = key.into();
        let mode = key.mode(&[]);
        SignJob { key, mode, message: message.into(), randomizer: Randomizer::default() }
    }

    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> SignJob<'a> {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> SignJob<'a> {
        self.mode = mode;
        self
    }

    /// Signs without randomness, so that the message always has the same signature: [`Randomizer::Deterministic`].
    #[must_use]
    pub fn deterministic(self) -> SignJob<'a> {
        self.randomizer(Randomizer::Deterministic)
    }

    /// Sets where the randomness comes from.
    #[must_use]
    pub fn randomizer(mut self, randomizer: Randomizer<'a>) -> SignJob<'a> {
        self.randomizer = randomizer;
        self
    }
}

/// A signature to be verified.
#[derive(Clone, Debug)]
pub struct VerifyJob<'a> {
    /// The key that should have signed.
    pub key: JobKey<'a, VerifyingKey>,
    /// How the message becomes M′.
    pub mode: Mode<'a>,
    /// The message.
    pub message: Cow<'a, [u8]>,
    /// The signature. If the job owns it, it counts against the memory budget.
    pub signature: Cow<'a, [u8]>,
}

impl<'a> VerifyJob<'a> {
    /// Makes a job with an empty context, in the mode that the key implies: pure, or pre-hash for a key of HashSLH-DSA.
    pub fn new(
        key: impl Into<JobKey<'a, VerifyingKey>>,
        message: impl Into<Cow<'a, [u8]>>,
        signature: impl Into<Cow<'a, [u8]>>,
    ) -> VerifyJob<'a> {
        let key = key.into();
        let mode = key.mode(&[]);
        VerifyJob { key, mode, message: message.into(), signature: signature.into() }
    }

    /// Sets the context string, at most 255 bytes; see [`Mode::with_context`].
    #[must_use]
    pub fn context(mut self, context: &'a [u8]) -> VerifyJob<'a> {
        self.mode = self.mode.with_context(context);
        self
    }

    /// Sets the mode, which includes the context.
    #[must_use]
    pub fn mode(mut self, mode: Mode<'a>) -> VerifyJob<'a> {
        self.mode = mode;
        self
    }
}

/// The seeds that a key is made from, n random bytes each (FIPS 205, Algorithm 18). They are wiped on drop.
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

/// Secret bytes from the operating system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|_| Error::Randomness)?;
    classify(bytes);
    Ok(())
}

/// Random bytes of a request to the operating system, where threads make several: a kernel makes some hundred megabytes a second for each
/// thread, which is less than GPUs use.
const RANDOM_BYTES: usize = 4 << 10;

/// So many one thread draws by itself: others have begun by the time that it is done.
const FEW_BYTES: usize = 16 << 10;

/// The same, by the threads of a place.
pub(crate) fn random_by_threads(place: &Place<'_>, bytes: &mut [u8]) -> Result<(), Error> {
    if bytes.len() <= FEW_BYTES {
        return random(bytes);
    }
    place.each_of(bytes.chunks_mut(RANDOM_BYTES).collect(), &random)
}

/// A message to be signed, of a job or of a row.
#[derive(Clone, Copy)]
pub(crate) struct ToSign<'a> {
    pub(crate) key: &'a SigningKey,
    pub(crate) mode: Mode<'a>,
    pub(crate) message: &'a [u8],
    pub(crate) randomizer: Randomizer<'a>,
}

/// A signature to be verified, of a job or of a row. It has the length of its set's.
#[derive(Clone, Copy)]
pub(crate) struct ToVerify<'a> {
    pub(crate) pk_seed: &'a [u8],
    pub(crate) pk_root: &'a [u8],
    pub(crate) mode: Mode<'a>,
    pub(crate) message: &'a [u8],
    pub(crate) signature: &'a [u8],
}

impl ToSign<'_> {
    /// Makes the message's R, the first part of its signature. Gives what it selects. The caller wipes the stack.
    ///
    /// FIPS 205, Algorithm 19: lines 1–10.
    fn randomized(&self, i: usize, fresh: &[u8], r: &mut [u8]) -> Position {
        let (p, key) = (self.key.params(), self.key.as_ref());
        let m_prime = m_prime(self.mode, self.message);
        prf_msg(p, key.sk_prf(), self.opt_rand(i, fresh), &m_prime, r);
        declassify(&*r);
        Position::of(p, r, key.pk_seed(), key.pk_root(), &m_prime)
    }
}

impl<'a> ToSign<'a> {
    /// opt_rand of the i-th message; `fresh` has n bytes for each.
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

/// Messages to be signed, and the R that the host makes if it is asked to.
struct SignDigests<'s, 'a, F> {
    run: &'s Run<'s>,
    of: &'s F,
    messages: PhantomData<&'s ToSign<'a>>,
    fresh: &'s [u8],
    rs: &'s mut [u8],
    /// Whether the host was asked.
    is_made: bool,
}

impl<'a, F: Fn(usize) -> ToSign<'a> + Send + Sync> Digests for SignDigests<'_, 'a, F> {
    fn positions(&mut self) -> Vec<Position> {
        let n = self.run.plan().params.n;
        self.is_made = true;
        randomize(self.run, self.of, self.fresh, (self.rs, n), 0..n)
    }
    fn positions_again(&mut self) -> Result<Vec<Position>, Error> {
        let n = self.run.plan().params.n;
        let mut rs = vec![0; self.rs.len()];
        let positions = randomize(self.run, self.of, self.fresh, (&mut rs, n), 0..n);
        same_rs(n, self.rs, &rs).map(|()| positions)
    }
    fn hashed_bytes(&self, job: usize) -> usize {
        let ToSign { mode, message, .. } = (self.of)(job);
        MPrime::bytes(mode, message).max(message.len())
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let ToSign { mode, message, .. } = (self.of)(job);
        m_prime(mode, message)
    }
    fn opt_rand(&self, job: usize) -> &[u8] {
        (self.of)(job).opt_rand(job, self.fresh)
    }
    fn pk_root(&self, job: usize) -> &[u8] {
        (self.of)(job).key.as_ref().pk_root()
    }
    fn sk_prf(&self, job: usize) -> &[u8] {
        (self.of)(job).key.as_ref().sk_prf()
    }
}

/// An error if a job's R is another when the host makes it again.
fn same_rs(n: usize, first: &[u8], second: &[u8]) -> Result<(), Error> {
    let differs = first.chunks_exact(n).zip(second.chunks_exact(n)).position(|(first, second)| first != second);
    differs.map_or(Ok(()), |job| Err(Error::differs("host".into(), "R", job)))
}

/// Messages whose signatures are to be verified.
struct VerifyDigests<'s, 'a, F> {
    run: &'s Run<'s>,
    of: &'s F,
    messages: PhantomData<&'s ToVerify<'a>>,
    jobs: usize,
}

impl<'a, F: Fn(usize) -> ToVerify<'a> + Send + Sync> Digests for VerifyDigests<'_, 'a, F> {
    /// FIPS 205, Algorithm 20: lines 4–11.
    fn positions(&mut self) -> Vec<Position> {
        let p = self.run.plan().params;
        self.run.place.map(self.jobs, 1, &|i| {
            let ToVerify { pk_seed, pk_root, mode, message, signature } = (self.of)(i);
            Position::of(p, &signature[p.r_range()], pk_seed, pk_root, &m_prime(mode, message))
        })
    }
    fn positions_again(&mut self) -> Result<Vec<Position>, Error> {
        Ok(self.positions())
    }
    fn hashed_bytes(&self, job: usize) -> usize {
        let ToVerify { mode, message, .. } = (self.of)(job);
        MPrime::bytes(mode, message).max(message.len())
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let ToVerify { mode, message, .. } = (self.of)(job);
        m_prime(mode, message)
    }
    fn opt_rand(&self, _: usize) -> &[u8] {
        &[]
    }
    fn pk_root(&self, job: usize) -> &[u8] {
        (self.of)(job).pk_root
    }
    fn sk_prf(&self, _: usize) -> &[u8] {
        &[]
    }
}

/// Messages whose R a thread makes before it wipes its stack, which takes longer than one R.
const MESSAGES_OF_A_WIPE: usize = 16;

/// Makes the R of every message, each at `r` of its `size` bytes of `out`. Gives what they select.
fn randomize<'a>(
    run: &Run<'_>,
    of: impl Fn(usize) -> ToSign<'a> + Send + Sync,
    fresh: &[u8],
    (out, size): (&mut [u8], usize),
    r: Range<usize>,
) -> Vec<Position> {
    let none = Position { fors: ForsLeaves::from_iter([]), idx_tree: 0, idx_leaf: 0 };
    run.place.each(out, (size, MESSAGES_OF_A_WIPE), none, &|first, out, positions| {
        wiped(|| {
            for (nth, (out, position)) in out.chunks_exact_mut(size).zip(positions).enumerate() {
                *position = of(first + nth).randomized(first + nth, fresh, &mut out[r.clone()]);
            }
        });
    })
}

/// What a batch takes of its keys.
fn parts_of<'k>(keys: &'k [&SigningKey]) -> Vec<Key<'k>> {
    let parts = keys.iter().map(|key| Key {
        pk_seed: key.as_ref().pk_seed(),
        sk_seed: key.as_ref().sk_seed(),
        cached_nodes: key.cached_nodes(),
        cached_id: key.cached_id(),
    });
    parts.collect()
}

/// Signs messages into `rows`, in as many parts as there are, on a device that holds signatures back until the roots of their top
/// trees were compared with the keys'; and in a redundant engine until the device has computed them twice and compared both.
/// `None` where that is not all that is to be checked, where the device does not, or where
/// something does not fit: [`sign`] is to do it then, and to say what it is. After an error rows may hold some of it. The host
/// makes R in `memory`, unless the device does.
pub(crate) fn sign_held<'a>(
    run: &Run<'_>,
    of: impl Fn(usize) -> ToSign<'a> + Send + Sync,
    keys: &[&SigningKey],
    key_of: &[u32],
    rows: &mut [&mut [u8]],
    memory: &mut Vec<u8>,
) -> Option<Result<(), Error>> {
    let (p, options) = (run.plan().params, run.place.scheduler.options);
    let is_changed = || keys.iter().any(|key| !key.is_unchanged());
    if options.verify_signatures || !run.place.worker.has_memory() || is_changed() {
        return None;
    }
    let is_hedged = (0..key_of.len()).any(|i| of(i).randomizer == Randomizer::Hedged);
    let mut fresh = Zeroizing::new(vec![0; if is_hedged { key_of.len() * p.n } else { 0 }]);
    if let Err(why) = random_by_threads(&run.place, &mut fresh) {
        return Some(Err(why));
    }
    let rs = room(memory, key_of.len() * p.n);
    let mut digests = SignDigests { run, of: &of, messages: PhantomData, fresh: &fresh, rs, is_made: false };
    let batch = Batch { keys: &parts_of(keys), key_of, positions: &[], signatures: &[] };
    let compares = options.check_roots && run.plan().cached_layers == 0;
    let of_key = |key: &u32| keys[*key as usize];
    let mut refused = None;
    let mut accept = |roots: &[u8]| {
        declassify(roots);
        let is_right = |(root, key): (&[u8], &u32)| root == of_key(key).as_ref().pk_root();
        if !compares || roots.chunks_exact(p.n).zip(key_of).all(is_right) {
            return Ok(());
        }
        refused = Some(roots.to_vec());
        Err(Error::Value { what: "the top tree's root is not its key's PK.root".into() })
    };
    let times = if options.redundant { 2 } else { 1 };
    let done = run.place.program_if(run.facts, (key_of.len(), times), |SlhDsaProgram(program)| {
        program
            .run_held(&batch, &mut digests, rows, &mut accept, options.redundant)
            .transpose()
            .map(|timing| timing.map(|timing| ((), timing)))
    });
    match done {
        Ok(Some(())) => {}
        Ok(None) | Err(Error::OutOfMemory { .. }) => return None,
        Err(why) => {
            let Some(roots) = refused else { return Some(Err(why)) };
            // A device that is wrong is blamed, also if it would be right the next time; damaged keys are named by `sign`.
            let compared = run.compare_roots(roots.chunks_exact(p.n), key_of.iter().map(of_key), "the top tree's root");
            return compared.err().map(Err);
        }
    }
    let SignDigests { rs, is_made, .. } = digests;
    if !is_made {
        // The device has made R, as a part of each signature.
        rows.iter().for_each(|rows| declassify(&**rows));
        return Some(Ok(()));
    }
    let mut left = &*rs;
    let parts = rows.iter_mut().map(|rows| {
        let (rs, others) = left.split_at(rows.len() / p.sig_bytes() * p.n);
        left = others;
        (&mut **rows, rs)
    });
    let put = |(rows, rs): (&mut [u8], &[u8])| {
        for (row, r) in rows.chunks_exact_mut(p.sig_bytes()).zip(rs.chunks_exact(p.n)) {
            declassify(&*row);
            row[p.r_range()].copy_from_slice(r);
        }
        Ok(())
    };
    Some(run.place.each_of(parts.collect(), &put))
}

/// Signs messages whose modes were checked. `key_of` says which of `keys` signs each; `of` gives each message.
///
/// FIPS 205, Algorithm 19: lines 1–10 in [`ToSign::randomized`], the others in the program.
pub(crate) fn sign<'a>(
    run: &Run<'_>,
    of: impl Fn(usize) -> ToSign<'a> + Send + Sync,
    keys: &[&SigningKey],
    key_of: &[u32],
    fresh: &[u8],
    out: &mut [u8],
) -> Result<Failed, Error> {
    let (p, of_key) = (run.plan().params, || key_of.iter().map(|key| keys[*key as usize]));
    let changed: Vec<bool> = keys.iter().map(|key| !key.is_unchanged()).collect();
    let of_changed = key_of.iter().enumerate().filter(|(_, key)| changed[**key as usize]);
    let mut failed: Failed = of_changed.map(|(job, _)| (job, Error::changed(p.name))).collect();
    let positions = randomize(run, &of, fresh, (out, p.sig_bytes()), p.r_range());
    let batch = Batch { keys: &parts_of(keys), key_of, positions: &positions, signatures: &[] };
    // The second time, all bytes must be those of the first, which was checked.
    let checks = !run.is_second();
    let roots = run.program(&batch, out, checks && run.place.scheduler.options.check_roots)?;
    // The lower layers are signed with one-time keys: a wrong root now and a right one later would use them twice.
    if let Some(roots) = roots.filter(|_| run.plan().cached_layers == 0) {
        let top = roots.chunks_exact(p.d * p.n).map(|roots| &roots[(p.d - 1) * p.n..]);
        failed.extend(run.compare_roots(top, of_key(), "the top tree's root")?);
    }
    if checks && run.place.scheduler.options.verify_signatures {
        let group = Group { kind: Kind::slh_dsa(p, Op::Verify, 0), ..run.facts.group };
        let facts = run.place.worker.programs.facts(group)?;
        let pk_seeds: Vec<&[u8]> = keys.iter().map(|key| key.as_ref().pk_seed()).collect();
        let (mut roots, signatures) = (vec![0; key_of.len() * p.n], &*out);
        let of = |i: usize| {
            let ToSign { key, mode, message, .. } = of(i);
            let (pk_seed, pk_root) = (key.as_ref().pk_seed(), key.as_ref().pk_root());
            ToVerify { pk_seed, pk_root, mode, message, signature: &signatures[i * p.sig_bytes()..][..p.sig_bytes()] }
        };
        verify(&Run { place: run.place, facts: &facts }, of, &pk_seeds, key_of, &mut roots)?;
        failed.extend(run.compare_roots(roots.chunks_exact(p.n), of_key(), "the root implied by the signature")?);
    }
    Ok(failed)
}

/// The root that each signature implies, n bytes each: PK.root if it is valid. `key_of` says which of `pk_seeds` is whose.
///
/// FIPS 205, Algorithm 20: the others in the program than those of [`VerifyDigests`].
pub(crate) fn verify<'a>(
    run: &Run<'_>,
    of: impl Fn(usize) -> ToVerify<'a> + Send + Sync,
    pk_seeds: &[&[u8]],
    key_of: &[u32],
    roots: &mut [u8],
) -> Result<(), Error> {
    let mut digests = VerifyDigests { run, of: &of, messages: PhantomData, jobs: key_of.len() };
    let keys: Vec<Key<'_>> =
        pk_seeds.iter().map(|pk_seed| Key { pk_seed, sk_seed: &[], cached_nodes: &[], cached_id: 0 }).collect();
    let signatures: Vec<&[u8]> = (0..key_of.len()).map(|i| of(i).signature).collect();
    let batch = Batch { keys: &keys, key_of, positions: &[], signatures: &signatures };
    run.place.program(run.facts, key_of.len(), |SlhDsaProgram(program)| {
        let done = match program.run_fetched(&batch, &mut digests, roots) {
            Some(done) => done,
            None => program.run(&Batch { positions: &digests.positions(), ..batch }, roots),
        };
        declassify(&*roots);
        done.map(|timing| ((), timing))
    })
}

impl Job for SignJob<'_> {
    type Out = Signature;

    fn kind(&self) -> Result<Kind, Error> {
        self.mode.check(&self.message)?;
        self.key.as_ref().check_mode(self.mode)?;
        let p = self.key.params();
        if let Randomizer::Given(bytes) = self.randomizer {
            check_length("opt_rand", p.n, bytes.len())?;
        }
        Ok(Kind::slh_dsa(p, Op::Sign, self.key.cached_layers()))
    }

    fn owned(&self) -> usize {
        owned(&self.message)
    }

    fn output(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<Signature, Error>>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, fresh: &[u8], out: &mut [u8]| {
            let jobs = &jobs[range];
            let of = |i: usize| {
                let SignJob { key, mode, message, randomizer } = jobs[i];
                ToSign { key, mode: *mode, message, randomizer: *randomizer }
            };
            let (keys, key_of) = distinct(jobs.iter().map(|job| &*job.key));
            sign(run, of, &keys, &key_of, fresh, out)
        };
        let finish = |job: &Self, out: Cow<'_, [u8]>| {
            Signature::from_bytes(job.key.params(), out).expect("the output has a signature's length")
        };
        let is_hedged = jobs.iter().any(|job| job.randomizer == Randomizer::Hedged);
        results(run, (jobs, is_hedged), memory, &compute, &finish)
    }

    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }
}

impl Job for VerifyJob<'_> {
    type Out = bool;

    fn kind(&self) -> Result<Kind, Error> {
        self.mode.check(&self.message)?;
        self.key.as_ref().check_mode(self.mode)?;
        let (p, got) = (self.key.params(), self.signature.len());
        if got != p.sig_bytes() {
            return Err(KeyError::Length { what: "a signature", set: p.name, want: p.sig_bytes(), got }.into());
        }
        Ok(Kind::slh_dsa(p, Op::Verify, 0))
    }

    fn owned(&self) -> usize {
        owned(&self.message) + owned(&self.signature)
    }

    fn output(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<bool, Error>>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], out: &mut [u8]| {
            let jobs = &jobs[range];
            let of = |i: usize| {
                let VerifyJob { key, mode, message, signature } = jobs[i];
                let key = key.as_ref();
                ToVerify { pk_seed: key.pk_seed(), pk_root: key.pk_root(), mode: *mode, message, signature }
            };
            let (keys, key_of) = distinct(jobs.iter().map(|job| &*job.key));
            let pk_seeds: Vec<&[u8]> = keys.into_iter().map(|key| key.as_ref().pk_seed()).collect();
            verify(run, of, &pk_seeds, &key_of, out)?;
            Ok(Failed::new())
        };
        let finish = |job: &Self, root: Cow<'_, [u8]>| *root == *job.key.as_ref().pk_root();
        results(run, (jobs, false), memory, &compute, &finish)
    }
}

/// A key from its seeds.
pub(crate) struct KeygenJob<'a>(pub(crate) &'static Params, pub(crate) Cow<'a, Seeds>);

impl Job for KeygenJob<'_> {
    type Out = SigningKey;

    fn kind(&self) -> Result<Kind, Error> {
        let KeygenJob(p, seeds) = self;
        let Seeds { sk_seed, sk_prf, pk_seed } = &**seeds;
        for (what, seed) in [("SK.seed", &**sk_seed), ("SK.prf", &**sk_prf), ("PK.seed", pk_seed)] {
            check_length(what, p.n, seed.len())?;
        }
        Ok(Kind::slh_dsa(p, Op::Keygen, 0))
    }

    fn owned(&self) -> usize {
        if matches!(self.1, Cow::Owned(_)) { 3 * self.0.n } else { 0 }
    }

    fn output(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    /// FIPS 205, Algorithm 18.
    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<SigningKey, Error>>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], out: &mut [u8]| {
            let seeds = jobs[range].iter().map(|KeygenJob(_, seeds)| (&seeds.sk_seed[..], &seeds.pk_seed[..]));
            run.grow(seeds, out).map(|()| Failed::new())
        };
        let finish = |KeygenJob(p, seeds): &Self, root: Cow<'_, [u8]>| {
            let Seeds { sk_seed, sk_prf, pk_seed } = &**seeds;
            RawSigningKey::from_parts(p, sk_seed, sk_prf, pk_seed, &root).expect("the lengths were checked").into()
        };
        results(run, (jobs, false), memory, &compute, &finish)
    }
}

/// Whether a key's PK.root is that of its seeds.
pub(crate) struct CheckJob<'a>(pub(crate) &'a SigningKey);

impl Job for CheckJob<'_> {
    type Out = ();

    fn kind(&self) -> Result<Kind, Error> {
        Ok(Kind::slh_dsa(self.0.params(), Op::Keygen, 0))
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<(), Error>>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], out: &mut [u8]| {
            run.grow_of_keys(&jobs[range].iter().map(|CheckJob(key)| *key).collect::<Vec<_>>(), 0, out)
        };
        results(run, (jobs, false), memory, &compute, &|_, _| ())
    }
}

/// The nodes of a key's top layers.
pub(crate) struct CacheJob<'a>(pub(crate) &'a SigningKey, pub(crate) usize);

impl Job for CacheJob<'_> {
    type Out = Vec<u8>;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(Kind::slh_dsa(self.0.params(), Op::Cache, self.1))
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<Vec<u8>, Error>>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], out: &mut [u8]| {
            // The root of the top tree follows that tree's other nodes.
            let p = run.plan().params;
            let keys: Vec<&SigningKey> = jobs[range].iter().map(|CacheJob(key, _)| *key).collect();
            run.grow_of_keys(&keys, ((2 << p.hp) - 2) * p.n, out)
        };
        results(run, (jobs, false), memory, &compute, &|_, nodes| nodes.into_owned())
    }
}

impl Run<'_> {
    /// Runs a program that needs no more than (SK.seed, PK.seed), a key of its own for every job.
    pub(crate) fn grow<'k>(
        &self,
        seeds: impl Iterator<Item = (&'k [u8], &'k [u8])>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let key = |(sk_seed, pk_seed)| Key { pk_seed, sk_seed, cached_nodes: &[], cached_id: 0 };
        let keys: Vec<Key<'_>> = seeds.map(key).collect();
        let key_of: Vec<u32> = (0..keys.len() as u32).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
        self.program(&batch, out, false).map(drop)
    }

    /// The same for these keys, whose roots are at so many bytes of each output. Says which keys are damaged.
    fn grow_of_keys(&self, keys: &[&SigningKey], root: usize, out: &mut [u8]) -> Result<Failed, Error> {
        self.grow(keys.iter().map(|key| (key.as_ref().sk_seed(), key.as_ref().pk_seed())), out)?;
        let (n, size) = (self.plan().params.n, self.plan().out_bytes());
        let roots = out.chunks_exact(size).map(|out| &out[root..][..n]);
        let mut failed = self.compare_roots(roots, keys.iter().copied(), "the top tree's root")?;
        failed.extend(changed(keys.iter().copied()));
        Ok(failed)
    }
}

pub(crate) fn check_length(what: &'static str, want: usize, got: usize) -> Result<(), Error> {
    if want == got { Ok(()) } else { Err(Error::Length { what, want, got }) }
}

#[expect(clippy::ptr_arg, reason = "whether the bytes are owned is the question")]
pub(crate) fn owned(bytes: &Cow<'_, [u8]>) -> usize {
    match bytes {
        Cow::Borrowed(_) => 0,
        Cow::Owned(bytes) => bytes.capacity(),
    }
}

/// The jobs whose keys are not what they were when they were made.
fn changed<'a>(keys: impl Iterator<Item = &'a SigningKey>) -> Failed {
    let (mut failed, mut last) = (Failed::new(), None::<(&SigningKey, bool)>);
    for (job, key) in keys.enumerate() {
        let is_unchanged = match last {
            Some((same, known)) if ptr::eq(same, key) => known,
            _ => last.insert((key, key.is_unchanged())).1,
        };
        if !is_unchanged {
            failed.insert(job, Error::changed(key.params().name));
        }
    }
    failed
}

/// The distinct keys of a batch, and which of them each job uses. Keys are told apart by their content: jobs bring copies.
fn distinct<'a, K: Content>(keys: impl Iterator<Item = &'a K>) -> (Vec<&'a K>, Vec<u32>) {
    // Not a hash map, whose random seed the system may refuse.
    let (mut distinct, mut known) = (Vec::<&K>::new(), BTreeMap::<Public<'_>, Vec<u32>>::new());
    let mut last: Option<(&K, u32)> = None;
    let key_of = keys
        .map(|key| match last {
            // Most batches have one key, which their jobs borrow.
            Some((same, number)) if ptr::eq(same, key) => number,
            _ => {
                let numbers = known.entry(key.public()).or_default();
                let number = numbers.iter().copied().find(|number| distinct[*number as usize].is_same(key));
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

/// The beginning of PK.seed, which most comparisons need alone; PK.seed, PK.root, and the number of the cached nodes.
type Public<'a> = ([u8; 8], &'a [u8], &'a [u8], u64);

/// A key of some set, by what a batch takes of it.
trait Content {
    /// What is public. No address depends on anything else.
    fn public(&self) -> Public<'_>;
    /// Whether a key of equal public parts is the same.
    fn is_same(&self, other: &Self) -> bool;
}

impl Content for SigningKey {
    fn public(&self) -> Public<'_> {
        let (pk_seed, pk_root) = (self.as_ref().pk_seed(), self.as_ref().pk_root());
        (*pk_seed.first_chunk().expect("n is 16 or more"), pk_seed, pk_root, self.cached_id())
    }

    fn is_same(&self, other: &SigningKey) -> bool {
        // Public: only a damaged key makes a difference.
        declassified(self == other)
    }
}

impl Content for VerifyingKey {
    fn public(&self) -> Public<'_> {
        let (pk_seed, pk_root) = (self.as_ref().pk_seed(), self.as_ref().pk_root());
        (*pk_seed.first_chunk().expect("n is 16 or more"), pk_seed, pk_root, 0)
    }

    fn is_same(&self, _: &VerifyingKey) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_testkit::toys::TOY_SHA2_16;

    fn signing(bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes(&TOY_SHA2_16, bytes).unwrap()
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
        let (distinct, key_of) = super::distinct(keys.into_iter());
        assert_eq!(key_of, [0, 0, 1, 0, 2, 0, 3, 2, 4, 5, 1]);
        let first = [&key, &others[0], &with_nodes, &others[1], &others[2], &others[3]];
        assert!(std::iter::zip(&distinct, first).all(|(a, b)| ptr::eq(*a, b)) && distinct.len() == 6);

        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let (distinct, key_of) = super::distinct(public.iter());
        // The secret part makes no difference.
        assert_eq!((distinct.len(), &key_of[..]), (3, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0][..]));
    }

    #[test]
    fn the_host_is_blamed_for_an_r_that_differs() {
        let rs: Vec<u8> = (0..48).collect();
        assert_eq!(same_rs(16, &rs, &rs), Ok(()));
        for at in [0, 20, 47] {
            let mut other = rs.clone();
            other[at] ^= 0x80;
            let what = format!("R of job {} differs when it is computed again", at / 16);
            assert_eq!(same_rs(16, &rs, &other), Err(Error::Inconsistent { device: "host".into(), what }));
        }
    }

    #[test]
    fn a_job_borrows_owns_or_shares_its_key() {
        let key = signing(&[7; 64]);
        let shared = Arc::new(key.clone());
        for job in [SignJob::new(&key, b"m"), SignJob::new(key.clone(), b"m"), SignJob::new(shared.clone(), b"m")] {
            assert_eq!((&*job.key, &*job.message, job.mode), (&key, &b"m"[..], Mode::default()));
        }
        let job = SignJob::new(shared, b"m").mode(Mode::Internal).context(b"c").deterministic();
        assert_eq!((job.mode, job.randomizer), (Mode::Pure { context: b"c" }, Randomizer::Deterministic));
        let public = key.verifying_key();
        let job = VerifyJob::new(public.clone(), b"m", vec![1]).context(b"c").mode(Mode::Internal);
        assert_eq!((&*job.key, job.mode), (&public, Mode::Internal));
    }
}
