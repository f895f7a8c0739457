//! What the engine is asked to do, and how each kind of job is laid before a backend.

use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::run::{Failed, Run};
use hypergrove_engine::programs::Group;
use hypergrove_engine::{Batch, Error, Key, wiped};
use hypergrove_fips205::digest::{h_msg, prf_msg};
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{KeyError, MPrime, Mode, Params, Position, SigningKey as RawSigningKey};
use hypergrove_taint::{classify, declassify};
use std::borrow::Cow;
use std::collections::BTreeMap;
use zeroize::{Zeroize, Zeroizing};

/// Where a signature's opt_rand comes from (FIPS 205, 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomizer<'a> {
    /// n fresh bytes from the operating system: the default.
    #[default]
    Hedged,
    /// PK.seed: the same message always has the same signature.
    Deterministic,
    /// These n bytes.
    Given(&'a [u8]),
}

/// A message to be signed.
#[derive(Clone, Debug)]
pub struct SignJob<'a> {
    /// The key that signs.
    pub key: &'a SigningKey,
    /// How the message becomes M′.
    pub mode: Mode<'a>,
    /// The message. One that the job owns counts against the memory budget; a borrowed one is the caller's memory.
    pub message: Cow<'a, [u8]>,
    /// opt_rand.
    pub randomizer: Randomizer<'a>,
}

impl<'a> SignJob<'a> {
    /// Pure mode, empty context, hedged.
    pub fn new(key: &'a SigningKey, message: impl Into<Cow<'a, [u8]>>) -> SignJob<'a> {
        let mode = Mode::Pure { context: &[] };
        SignJob { key, mode, message: message.into(), randomizer: Randomizer::Hedged }
    }
}

/// A signature to be verified.
#[derive(Clone, Debug)]
pub struct VerifyJob<'a> {
    /// The key that should have signed.
    pub key: &'a VerifyingKey,
    /// How the message becomes M′.
    pub mode: Mode<'a>,
    /// The message.
    pub message: Cow<'a, [u8]>,
    /// The signature. Like the message, it counts against the memory budget if the job owns it.
    pub signature: Cow<'a, [u8]>,
}

impl<'a> VerifyJob<'a> {
    /// Pure mode, empty context.
    pub fn new(
        key: &'a VerifyingKey,
        message: impl Into<Cow<'a, [u8]>>,
        signature: impl Into<Cow<'a, [u8]>>,
    ) -> VerifyJob<'a> {
        let mode = Mode::Pure { context: &[] };
        VerifyJob { key, mode, message: message.into(), signature: signature.into() }
    }
}

/// What a key is made from (FIPS 205, Algorithm 18): n random bytes each. Wiped on drop.
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
    /// Seeds from the operating system. There are none without its randomness.
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

/// One kind of job: how it is checked, laid before a program, and read from the program's output.
pub(crate) trait Job: Send + Sync + Sized {
    const OP: Op;
    type Out: Send;
    /// Set and cached layers of the job, or why it cannot be done.
    fn ask(&self) -> Result<(&'static Params, usize), Error>;
    /// Bytes that the job owns.
    fn owned(&self) -> usize;
    /// Whether the job needs n fresh random bytes.
    fn is_hedged(&self) -> bool {
        false
    }
    /// Works on jobs of one group; `fresh` has n random bytes for each that signs. The jobs that are to blame themselves fail
    /// alone; an error is that of all.
    fn run(run: &Run<'_>, jobs: &[&Self], fresh: &[u8], out: &mut [u8]) -> Result<Failed, Error>;
    /// What the job's share of the output says.
    fn finish(&self, out: Cow<'_, [u8]>) -> Self::Out;
    /// Does away with a result that nobody gets.
    fn discard(out: Self::Out) {
        drop(out);
    }
}

impl Job for SignJob<'_> {
    const OP: Op = Op::Sign;
    type Out = Signature;

    fn ask(&self) -> Result<(&'static Params, usize), Error> {
        self.mode.check(&self.message)?;
        let p = self.key.params();
        if let Randomizer::Given(bytes) = self.randomizer {
            check_length("opt_rand", p.n, bytes.len())?;
        }
        Ok((p, self.key.cached_layers()))
    }

    fn owned(&self) -> usize {
        owned(&self.message)
    }

    fn is_hedged(&self) -> bool {
        self.randomizer == Randomizer::Hedged
    }

    /// FIPS 205, Algorithm 19: lines 1–10 here, the others in the program.
    fn run(run: &Run<'_>, jobs: &[&Self], fresh: &[u8], out: &mut [u8]) -> Result<Failed, Error> {
        let (p, keys) = (run.plan().params, || jobs.iter().map(|job| job.key));
        let mut failed = changed(keys());
        let positions = run.each(jobs, out, p.sig_bytes(), |i, job, sig| {
            let key = job.key.as_ref();
            let opt_rand = match job.randomizer {
                Randomizer::Hedged => &fresh[i * p.n..][..p.n],
                Randomizer::Deterministic => key.pk_seed(),
                Randomizer::Given(bytes) => bytes,
            };
            let m_prime = MPrime::new(job.mode, &job.message)?;
            let r = wiped(|| prf_msg(p, key.sk_prf(), opt_rand, &m_prime));
            // R is the first part of the signature.
            declassify(&r[..]);
            sig[p.r_range()].copy_from_slice(&r);
            Ok(Position::split(p, &h_msg(p, &r, key.pk_seed(), key.pk_root(), &m_prime)))
        })?;
        let (distinct, key_of) = distinct(keys(), |key| Key {
            pk_seed: key.as_ref().pk_seed(),
            sk_seed: key.as_ref().sk_seed(),
            cached_nodes: key.cached_nodes(),
            cached_id: key.cached_id(),
        });
        let batch = Batch { keys: &distinct, key_of: &key_of, positions: &positions, signatures: &[] };
        // The second time, all bytes must be those of the first, which was checked.
        let checks = !run.is_second();
        let roots = run.program(&batch, out, checks && run.place.scheduler.options.check_roots)?;
        // The lower layers are signed with one-time keys: a wrong root now and a right one later would use them twice.
        if let Some(roots) = roots.filter(|_| run.plan().cached_layers == 0) {
            let top = roots.chunks_exact(p.d * p.n).map(|roots| &roots[(p.d - 1) * p.n..]);
            failed.extend(run.compare_roots(top, keys(), "the top tree's root")?);
        }
        if checks && run.place.scheduler.options.verify_signatures {
            let public: Vec<VerifyingKey> = keys().map(SigningKey::verifying_key).collect();
            let verify: Vec<VerifyJob<'_>> = std::iter::zip(jobs, &public)
                .zip(out.chunks_exact(p.sig_bytes()))
                .map(|((job, key), signature)| VerifyJob {
                    key,
                    mode: job.mode,
                    message: Cow::Borrowed(&job.message),
                    signature: Cow::Borrowed(signature),
                })
                .collect();
            let group = Group::slh_dsa(p, Op::Verify, 0, run.facts.group.threads);
            let facts = run.place.worker.programs.facts(group)?;
            let mut roots = vec![0; jobs.len() * p.n];
            VerifyJob::run(
                &Run { place: run.place, facts: &facts },
                &verify.iter().collect::<Vec<_>>(),
                &[],
                &mut roots,
            )?;
            failed.extend(run.compare_roots(roots.chunks_exact(p.n), keys(), "the root implied by the signature")?);
        }
        Ok(failed)
    }

    fn finish(&self, out: Cow<'_, [u8]>) -> Signature {
        Signature::from_bytes(self.key.params(), out).expect("the output has a signature's length")
    }

    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }
}

impl Job for VerifyJob<'_> {
    const OP: Op = Op::Verify;
    type Out = bool;

    fn ask(&self) -> Result<(&'static Params, usize), Error> {
        self.mode.check(&self.message)?;
        let (p, got) = (self.key.params(), self.signature.len());
        if got != p.sig_bytes() {
            return Err(KeyError::Length { what: "a signature", set: p.name, want: p.sig_bytes(), got }.into());
        }
        Ok((p, 0))
    }

    fn owned(&self) -> usize {
        owned(&self.message) + owned(&self.signature)
    }

    /// FIPS 205, Algorithm 20: lines 4–13 here, the others in the program.
    fn run(run: &Run<'_>, jobs: &[&Self], _: &[u8], out: &mut [u8]) -> Result<Failed, Error> {
        let p = run.plan().params;
        let positions = run.each(jobs, out, p.n, |_, job, _| {
            let (key, r) = (job.key.as_ref(), &job.signature[p.r_range()]);
            let m_prime = MPrime::new(job.mode, &job.message)?;
            Ok(Position::split(p, &h_msg(p, r, key.pk_seed(), key.pk_root(), &m_prime)))
        })?;
        let (keys, key_of) = distinct(jobs.iter().map(|job| job.key), |key| Key {
            pk_seed: key.as_ref().pk_seed(),
            sk_seed: &[],
            cached_nodes: &[],
            cached_id: 0,
        });
        let signatures: Vec<&[u8]> = jobs.iter().map(|job| &*job.signature).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &positions, signatures: &signatures };
        run.program(&batch, out, false)?;
        Ok(Failed::new())
    }

    fn finish(&self, root: Cow<'_, [u8]>) -> bool {
        *root == *self.key.as_ref().pk_root()
    }
}

/// A key from its seeds.
pub(crate) struct KeygenJob<'a>(pub(crate) &'static Params, pub(crate) Cow<'a, Seeds>);

impl Job for KeygenJob<'_> {
    const OP: Op = Op::Keygen;
    type Out = SigningKey;

    fn ask(&self) -> Result<(&'static Params, usize), Error> {
        let KeygenJob(p, seeds) = self;
        let Seeds { sk_seed, sk_prf, pk_seed } = &**seeds;
        for (what, seed) in [("SK.seed", &**sk_seed), ("SK.prf", &**sk_prf), ("PK.seed", pk_seed)] {
            check_length(what, p.n, seed.len())?;
        }
        Ok((p, 0))
    }

    fn owned(&self) -> usize {
        if matches!(self.1, Cow::Owned(_)) { 3 * self.0.n } else { 0 }
    }

    /// FIPS 205, Algorithm 18.
    fn run(run: &Run<'_>, jobs: &[&Self], _: &[u8], out: &mut [u8]) -> Result<Failed, Error> {
        run.grow(jobs.iter().map(|KeygenJob(_, seeds)| (seeds.sk_seed.as_slice(), seeds.pk_seed.as_slice())), out)?;
        Ok(Failed::new())
    }

    fn finish(&self, root: Cow<'_, [u8]>) -> SigningKey {
        let KeygenJob(p, seeds) = self;
        let Seeds { sk_seed, sk_prf, pk_seed } = &**seeds;
        RawSigningKey::from_parts(p, sk_seed, sk_prf, pk_seed, &root).expect("the lengths were checked").into()
    }
}

/// Whether a key's PK.root is that of its seeds.
pub(crate) struct CheckJob<'a>(pub(crate) &'a SigningKey);

impl Job for CheckJob<'_> {
    const OP: Op = Op::Keygen;
    type Out = ();

    fn ask(&self) -> Result<(&'static Params, usize), Error> {
        Ok((self.0.params(), 0))
    }

    fn owned(&self) -> usize {
        0
    }

    fn run(run: &Run<'_>, jobs: &[&Self], _: &[u8], out: &mut [u8]) -> Result<Failed, Error> {
        run.grow(jobs.iter().map(|CheckJob(key)| seeds(key)), out)?;
        let (roots, keys) = (out.chunks_exact(run.plan().out_bytes()), || jobs.iter().map(|CheckJob(key)| *key));
        let mut failed = run.compare_roots(roots, keys(), "the top tree's root")?;
        failed.extend(changed(keys()));
        Ok(failed)
    }

    fn finish(&self, _: Cow<'_, [u8]>) {}
}

/// The nodes of a key's top layers.
pub(crate) struct CacheJob<'a>(pub(crate) &'a SigningKey, pub(crate) usize);

impl Job for CacheJob<'_> {
    const OP: Op = Op::Cache;
    type Out = Vec<u8>;

    fn ask(&self) -> Result<(&'static Params, usize), Error> {
        Ok((self.0.params(), self.1))
    }

    fn owned(&self) -> usize {
        0
    }

    fn run(run: &Run<'_>, jobs: &[&Self], _: &[u8], out: &mut [u8]) -> Result<Failed, Error> {
        run.grow(jobs.iter().map(|CacheJob(key, _)| seeds(key)), out)?;
        // The root of the top tree follows that tree's other nodes.
        let p = run.plan().params;
        let roots = out.chunks_exact(run.plan().out_bytes()).map(|nodes| &nodes[((2 << p.hp) - 2) * p.n..][..p.n]);
        let keys = || jobs.iter().map(|CacheJob(key, _)| *key);
        let mut failed = run.compare_roots(roots, keys(), "the top tree's root")?;
        failed.extend(changed(keys()));
        Ok(failed)
    }

    fn finish(&self, nodes: Cow<'_, [u8]>) -> Vec<u8> {
        nodes.into_owned()
    }
}

fn seeds(key: &SigningKey) -> (&[u8], &[u8]) {
    (key.as_ref().sk_seed(), key.as_ref().pk_seed())
}

impl Run<'_> {
    /// Runs a program that needs no more than (SK.seed, PK.seed), a key of its own for every job.
    fn grow<'k>(&self, seeds: impl Iterator<Item = (&'k [u8], &'k [u8])>, out: &mut [u8]) -> Result<(), Error> {
        let key = |(sk_seed, pk_seed)| Key { pk_seed, sk_seed, cached_nodes: &[], cached_id: 0 };
        let keys: Vec<Key<'_>> = seeds.map(key).collect();
        let key_of: Vec<u32> = (0..keys.len() as u32).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
        self.program(&batch, out, false).map(drop)
    }
}

fn check_length(what: &'static str, want: usize, got: usize) -> Result<(), Error> {
    if want == got { Ok(()) } else { Err(Error::Length { what, want, got }) }
}

#[expect(clippy::ptr_arg, reason = "whether the bytes are owned is the question")]
fn owned(bytes: &Cow<'_, [u8]>) -> usize {
    match bytes {
        Cow::Borrowed(_) => 0,
        Cow::Owned(bytes) => bytes.capacity(),
    }
}

/// The jobs whose keys are not what they were when they were made.
fn changed<'a>(keys: impl Iterator<Item = &'a SigningKey>) -> Failed {
    let (why, key_of) = distinct(keys, |key| (!key.is_unchanged()).then(|| Error::changed(key.params().name)));
    let failed = key_of.iter().enumerate();
    failed.filter_map(|(job, key)| Some((job, why[*key as usize].clone()?))).collect()
}

/// Of the distinct keys of a batch, told apart by where they lie, what is asked of each, and which of them each job uses.
fn distinct<'a, K: 'a, T>(jobs: impl Iterator<Item = &'a K>, parts: impl Fn(&'a K) -> T) -> (Vec<T>, Vec<u32>) {
    let (mut keys, mut numbers) = (Vec::new(), BTreeMap::new());
    let mut last = (std::ptr::null(), 0);
    let key_of = jobs
        .map(|key| {
            let place = std::ptr::from_ref(key);
            if place != last.0 {
                let number = *numbers.entry(place).or_insert_with(|| {
                    keys.push(parts(key));
                    keys.len() as u32 - 1
                });
                last = (place, number);
            }
            last.1
        })
        .collect();
    (keys, key_of)
}
