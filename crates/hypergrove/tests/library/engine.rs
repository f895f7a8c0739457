//! The engine against the oracle of the crate fips205, on toy sets and SLH-DSA-SHA2-128f.

use crate::common::{Mock, OnMock, mock};
use hypergrove::backend::*;
use hypergrove::signature::{RandomizedSigner, SignatureEncoding, Signer, Verifier};
use hypergrove::*;
use hypergrove_fips205::reference::{hash_slh_sign, slh_keygen_internal, slh_sign, slh_sign_internal};
use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHAKE_24, TOYS};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PURE: Mode<'static> = Mode::Pure { context: b"" };
const HASHED: Mode<'static> = Mode::PreHash { context: b"ctx", hash: PreHash::Sha3_256 };

fn toys() -> Vec<&'static Params> {
    TOYS.to_vec()
}

fn sets() -> Vec<&'static Params> {
    [toys(), vec![&SLH_DSA_SHA2_128F]].concat()
}

fn engine(threads: usize) -> Engine {
    Engine::builder().backend(Arc::new(Reference)).threads(threads).build().unwrap()
}

fn within(bytes: u64) -> Engine {
    Engine::builder().backend(Arc::new(Reference)).threads(1).memory_budget(bytes).build().unwrap()
}

fn seeds(p: &Params, of: u8) -> Seeds {
    let seed = |i: u8| (0..p.n).map(|j| of.wrapping_mul(37) ^ (i * 71).wrapping_add(j as u8)).collect::<Vec<u8>>();
    Seeds { sk_seed: seed(1).into(), sk_prf: seed(2).into(), pk_seed: seed(3) }
}

fn raw_key(p: &'static Params, of: u8) -> hypergrove_fips205::SigningKey {
    let Seeds { sk_seed, sk_prf, pk_seed } = seeds(p, of);
    slh_keygen_internal(p, &sk_seed, &sk_prf, &pk_seed)
}

fn key(p: &'static Params, of: u8) -> SigningKey {
    raw_key(p, of).into()
}

fn message(i: usize) -> Vec<u8> {
    format!("message {i}").into_bytes()
}

/// The oracle's signature, deterministic or with `opt_rand`.
fn expected(key: &SigningKey, mode: Mode<'_>, message: &[u8], opt_rand: Option<&[u8]>) -> Vec<u8> {
    let key = key.as_ref();
    match mode {
        Mode::Pure { context } => slh_sign(message, context, key, opt_rand).unwrap(),
        Mode::PreHash { context, hash } => hash_slh_sign(message, context, hash, key, opt_rand).unwrap(),
        Mode::Digest { .. } => unreachable!("the oracle hashes messages itself"),
        Mode::Internal => slh_sign_internal(message, key, opt_rand),
    }
    .into_bytes()
}

fn deterministic<'a>(key: &'a SigningKey, message: impl Into<JobMessage<'a>>) -> SignJob<'a> {
    SignJob::new(key, message).deterministic()
}

/// Runs a batch and sees to it that results come in order, each once.
fn collect<T>(run: impl FnOnce(&mut dyn FnMut(usize, Result<T, Error>)) -> Result<(), Error>) -> Vec<Result<T, Error>> {
    let mut results = Vec::new();
    run(&mut |index, result| {
        assert_eq!(index, results.len(), "results in order, each once");
        results.push(result);
    })
    .unwrap();
    results
}

fn sign_all(engine: &Engine, jobs: Vec<SignJob<'_>>) -> Vec<Result<Vec<u8>, Error>> {
    let signed = collect(|sink| engine.sign_batch(jobs, sink));
    signed.into_iter().map(|result| result.map(Signature::into_bytes)).collect()
}

#[test]
fn keys_are_the_references() {
    for p in sets() {
        for count in [0, 1, 2, 31].into_iter().filter(|count| p.d < 10 || *count < 31) {
            let seeds: Vec<Seeds> = (0..count).map(|i| seeds(p, i)).collect();
            let keys = engine(2).from_seeds(p, &seeds).unwrap();
            assert_eq!(keys, (0..count).map(|i| key(p, i)).collect::<Vec<_>>(), "{p}, {count} keys");
        }
    }
    let short = Seeds { pk_seed: vec![0; 15], ..seeds(&TOY_SHA2_16, 0) };
    let refused = engine(1).from_seeds(&TOY_SHA2_16, &[seeds(&TOY_SHA2_16, 0), short]);
    assert_eq!(refused.unwrap_err(), Error::Length { what: "PK.seed", want: 16, got: 15 });
}

#[test]
fn generated_keys_differ_and_belong_to_their_seeds() {
    let (engine, mut keys) = (engine(2), Vec::new());
    engine
        .generate_batch(&TOY_SHAKE_24, 9, |index, key| {
            assert_eq!(index, keys.len());
            keys.push(key);
        })
        .unwrap();
    keys.push(engine.generate(&TOY_SHAKE_24).unwrap());
    assert_eq!(keys.len(), 10);
    for (i, key) in keys.iter().enumerate() {
        engine.check(key).unwrap();
        assert!(keys[..i].iter().all(|other| other != key));
    }
    let mut bytes = keys[0].to_bytes();
    bytes[0] ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(&TOY_SHAKE_24, &bytes).unwrap();
    assert!(matches!(engine.check(&damaged), Err(Error::KeyDamaged { what }) if what.contains("toy-SHAKE-24")));
}

#[test]
fn single_signatures_are_the_references_and_verify() {
    let given = [0x99; 32];
    for p in sets() {
        let (key, other) = (key(p, 1), key(p, 2).verifying_key());
        for threads in [1, 2] {
            let engine = engine(threads);
            for mode in [PURE, Mode::Pure { context: &[7; 255] }, HASHED, Mode::Internal] {
                let same = engine.sign(&key, mode, b"message", Randomizer::Deterministic).unwrap();
                assert_eq!(same.as_bytes(), expected(&key, mode, b"message", None), "{p} {mode:?}");
                let given = &given[..p.n];
                let signature = engine.sign(&key, mode, b"message", Randomizer::Given(given)).unwrap();
                assert_eq!(signature.as_bytes(), expected(&key, mode, b"message", Some(given)));
                let public = key.verifying_key();
                let verify = |key, mode, message| engine.verify(key, mode, message, signature.as_bytes()).unwrap();
                assert!(verify(&public, mode, b"message"));
                assert!(!verify(&public, mode, b"massage"));
                assert!(!verify(&other, mode, b"message"));
                assert!(!verify(&public, Mode::Pure { context: b"elsewhere" }, b"message"));
            }
        }
    }
}

#[test]
fn batches_of_many_sizes_keys_and_sets_are_the_references() {
    let keys: Vec<SigningKey> = toys().into_iter().flat_map(|p| [key(p, 1), key(p, 2)]).collect();
    for threads in [1, 2] {
        let engine = engine(threads);
        for size in [0, 1, 2, 31] {
            let key_of = |i: usize| &keys[(i * i + i / 3) % keys.len()];
            let mode_of = |i: usize| [PURE, HASHED, Mode::Internal][i % 3];
            let jobs = (0..size).map(|i| {
                let job = match i % 4 {
                    0 => SignJob::new(key_of(i).clone(), message(i)),
                    1 => SignJob::new(Arc::new(key_of(i).clone()), message(i)),
                    _ => SignJob::new(key_of(i), message(i)),
                };
                job.mode(mode_of(i)).deterministic()
            });
            let signatures: Vec<Vec<u8>> = sign_all(&engine, jobs.collect()).into_iter().flatten().collect();
            let want: Vec<_> = (0..size).map(|i| expected(key_of(i), mode_of(i), &message(i), None)).collect();
            assert!(signatures == want, "{size} jobs, {threads} threads");

            // Every third signature is given to a verifier with the next message.
            let publics: Vec<VerifyingKey> = (0..size).map(|i| key_of(i).verifying_key()).collect();
            let jobs = (0..size).map(|i| {
                let message = message(i + usize::from(i % 3 == 2));
                let job = match i % 4 {
                    0 => VerifyJob::new(publics[i].clone(), message, &signatures[i]),
                    1 => VerifyJob::new(Arc::new(publics[i].clone()), message, &signatures[i]),
                    _ => VerifyJob::new(&publics[i], message, &signatures[i]),
                };
                job.mode(mode_of(i))
            });
            let verdicts = collect(|sink| engine.verify_batch(jobs, sink));
            assert_eq!(verdicts, (0..size).map(|i| Ok(i % 3 != 2)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn sha2_128f_in_a_batch_with_toys() {
    let keys = [key(&SLH_DSA_SHA2_128F, 1), key(&TOY_SHA2_16, 2), key(&SLH_DSA_SHA2_128F, 3)];
    let jobs = (0..6).map(|i| deterministic(&keys[i % 3], message(i))).collect();
    for (i, signature) in sign_all(&engine(2), jobs).into_iter().enumerate() {
        assert!(signature.unwrap() == expected(&keys[i % 3], PURE, &message(i), None), "job {i}");
    }
}

#[test]
fn a_bad_job_fails_alone() {
    let (p, long) = (&TOY_SHA2_16, [7; 256]);
    let (key, engine) = (key(p, 1), engine(2));
    let context =
        Error::Value { what: "the context has 256 bytes, at most 255 are allowed; shorten or hash it".into() };
    let good = || deterministic(&key, &b"good"[..]);
    let jobs = vec![
        good(),
        good().context(&long),
        good().mode(Mode::PreHash { context: &long, hash: PreHash::Sha256 }),
        good().randomizer(Randomizer::Given(&long[..17])),
        good(),
    ];
    let signature = expected(&key, PURE, b"good", None);
    let opt_rand = Error::Length { what: "opt_rand", want: 16, got: 17 };
    let want =
        [Ok(signature.clone()), Err(context.clone()), Err(context.clone()), Err(opt_rand), Ok(signature.clone())];
    assert_eq!(sign_all(&engine, jobs), want);

    let (public, shake) = (key.verifying_key(), self::key(&TOY_SHAKE_24, 1).verifying_key());
    let longer = [&signature[..], &[0]].concat();
    let mut flipped = signature.clone();
    flipped[p.sig_bytes() / 2] ^= 4;
    let good = || VerifyJob::new(&public, &b"good"[..], &signature);
    let jobs = vec![
        good(),
        good().context(&long),
        VerifyJob { signature: Cow::Borrowed(&longer), ..good() },
        VerifyJob { signature: Cow::Borrowed(&[]), ..good() },
        VerifyJob { key: (&shake).into(), ..good() },
        VerifyJob { signature: Cow::Borrowed(&flipped), ..good() },
        good(),
    ];
    // A signature of another length is not valid.
    let want = [Ok(true), Err(context), Ok(false), Ok(false), Ok(false), Ok(false), Ok(true)];
    assert_eq!(collect(|sink| engine.verify_batch(jobs, sink)), want);
    assert_eq!(engine.verify(&public, PURE, b"good", &longer), Ok(false));
    assert!(engine.sign(&key, Mode::Pure { context: &long }, b"", Randomizer::Hedged).is_err());
}

#[test]
fn a_message_may_be_hashed_before_it_is_signed() {
    let (engine, key) = (engine(1), key(toys()[0], 1));
    let Mode::PreHash { context, hash } = HASHED else { unreachable!() };
    let mut hasher = hash.hasher();
    hasher.update(b"a message");
    std::io::copy(&mut &b" in pieces"[..], &mut hasher).unwrap();
    let digest = hasher.finish();
    let hashed = Mode::Digest { context, hash };
    let want = expected(&key, HASHED, b"a message in pieces", None);
    let job = |digest: &[u8]| deterministic(&key, digest.to_vec()).mode(hashed);
    assert_eq!(engine.sign(&key, hashed, &digest, Randomizer::Deterministic).unwrap().as_bytes(), want);
    // A message that is no hash of that function is an error of its job.
    let signed = sign_all(&engine, vec![job(&digest), job(b"a message"), job(&digest)]);
    assert_eq!(signed[0].as_ref(), Ok(&want));
    let error = signed[1].as_ref().unwrap_err().to_string();
    assert_eq!(error, "a digest of SHA3-256 has 32 bytes, 9 are given; hash the message first");
    assert_eq!(signed[2].as_ref(), Ok(&want));
    let public = key.verifying_key();
    assert!(engine.verify(&public, HASHED, b"a message in pieces", &want).unwrap());
    assert!(engine.verify(&public, hashed, &digest, &want).unwrap());
    assert!(engine.verify(&public, hashed, b"a message", &want).is_err());
    assert!(!engine.verify(&public, hashed, &[0; 32], &want).unwrap());
}

/// A budget that nobody chose is no limit for a message that is in memory already.
#[test]
fn a_message_larger_than_the_default_budget_is_signed() {
    let key = key(toys()[0], 1);
    let large = || vec![7; MEMORY_BUDGET as usize + 1];
    for threads in [1, 2] {
        let jobs = || [message(0), large(), message(2)].map(|message| deterministic(&key, message));
        let chosen = Engine::builder().backend(Arc::new(Reference)).threads(threads).memory_budget(MEMORY_BUDGET);
        let signed: Vec<bool> = sign_all(&engine(threads), jobs().into()).iter().map(Result::is_ok).collect();
        assert_eq!(signed, [true, true, true]);
        let signed = sign_all(&chosen.build().unwrap(), jobs().into());
        assert!(signed[0].is_ok() && signed[2].is_ok());
        assert!(matches!(signed[1], Err(Error::OutOfMemory { .. })));
        if threads == 1 {
            assert_eq!(signed[0].as_ref(), Ok(&expected(&key, PURE, &message(0), None)));
        }
    }
}

#[test]
fn a_long_row_streams_through_a_small_budget() {
    let (p, key) = (&TOY_SHA2_16, key(&TOY_SHA2_16, 1));
    // Room for about ten signatures of some 1,900 bytes and their program.
    let engine = within(25_000);
    let (pulled, mut done) = (AtomicUsize::new(0), Vec::new());
    let mut sub_batches = Vec::new();
    let jobs = (0..200).map(|i| {
        pulled.fetch_add(1, SeqCst);
        deterministic(&key, message(i))
    });
    engine
        .sign_batch(jobs, |index, signature| {
            assert_eq!(index, done.len());
            done.push(signature.unwrap().into_bytes());
            // No job is taken while results are handed out.
            let pulled = pulled.load(SeqCst);
            if sub_batches.last() != Some(&pulled) {
                sub_batches.push(pulled);
            }
        })
        .unwrap();
    assert!(sub_batches.len() >= 10, "{sub_batches:?}");
    let most = 25_000 / p.sig_bytes() + 1;
    assert!(sub_batches.windows(2).all(|pair| pair[1] - pair[0] <= most), "{sub_batches:?}");
    assert!(sub_batches[0] <= most, "the first results came after {} jobs", sub_batches[0]);
    for i in [0, 1, 99, 199] {
        assert!(done[i] == expected(&key, PURE, &message(i), None));
    }
    assert_eq!(done.len(), 200);
}

#[test]
fn an_endless_row_is_taken_lazily() {
    let (key, pulled, seen) = (key(&TOY_SHA2_16, 1), AtomicUsize::new(0), AtomicUsize::new(0));
    let engine = within(20_000);
    let jobs = std::iter::from_fn(|| {
        // The row ends soon after the first results, or never.
        pulled.fetch_add(1, SeqCst);
        (seen.load(SeqCst) == 0).then(|| SignJob::new(&key, &b"again"[..]))
    });
    engine
        .sign_batch(jobs, |_, _| {
            seen.fetch_add(1, SeqCst);
        })
        .unwrap();
    let (pulled, seen) = (pulled.into_inner(), seen.into_inner());
    assert!(seen > 0 && seen + 1 == pulled, "{seen} of {pulled}");
}

#[test]
fn a_job_beyond_the_budget_fails_alone() {
    let (p, key) = (&TOY_SHA2_16, key(&TOY_SHA2_16, 1));
    let engine = within(15_000);
    let big = vec![1; 20_000];
    // Owned, the message is the batch's memory; borrowed, it is the caller's.
    let jobs = vec![
        deterministic(&key, &b"small"[..]),
        deterministic(&key, big.clone()),
        deterministic(&key, &big),
        deterministic(&key, &b"small"[..]),
    ];
    let results = sign_all(&engine, jobs);
    assert!(
        matches!(results[1], Err(Error::OutOfMemory { needs, has: 15_000, .. }) if needs > 20_000 + p.sig_bytes() as u64)
    );
    assert!(results[2].as_ref() == Ok(&expected(&key, PURE, &big, None)));
    assert!(results[0].is_ok() && results[0] == results[3]);

    let poor = within(p.sig_bytes() as u64 + 10);
    let sign = |job| poor.sign(&key, PURE, job, Randomizer::Hedged);
    assert!(matches!(sign(b"x"), Err(Error::OutOfMemory { .. })));
    for count in [1, 3] {
        let all = sign_all(&poor, (0..count).map(|i| deterministic(&key, message(i))).collect());
        assert!(all.len() == count && all.iter().all(|result| matches!(result, Err(Error::OutOfMemory { .. }))));
    }
    assert!(poor.generate(p).is_err(), "the program of a key generation does not fit either");
}

#[test]
fn caching_changes_no_signature() {
    let engine = engine(2);
    for p in toys() {
        let plain = key(p, 5);
        let messages: Vec<_> = (0..7).map(message).collect();
        let want: Vec<_> = messages.iter().map(|message| Ok(expected(&plain, PURE, message, None))).collect();
        for layers in 0..=p.d {
            let cached = engine.cache(&plain, layers).unwrap();
            assert_eq!((cached.cached_layers(), &cached), (layers, &plain));
            let jobs = messages.iter().map(|message| deterministic(&cached, message)).collect();
            assert!(sign_all(&engine, jobs) == want, "{p}, {layers} layers");
            // Keys with and without nodes in one batch.
            let jobs = messages.iter().enumerate();
            let jobs = jobs.map(|(i, message)| deterministic(if i % 2 == 0 { &cached } else { &plain }, message));
            assert!(sign_all(&engine, jobs.collect()) == want);
            assert_eq!(engine.cache(&cached, 0).unwrap().cached_layers(), 0);
        }
        assert!(matches!(engine.cache(&plain, p.d + 1), Err(Error::Value { .. })));
        let bytes = cache_bytes(p, 1).unwrap();
        for (bytes, layers) in [(0, 0), (bytes - 1, 0), (bytes, 1), (usize::MAX, p.d)] {
            assert_eq!(engine.cache_within(&plain, bytes).unwrap().cached_layers(), layers);
        }
    }
    let f = key(&SLH_DSA_SHA2_128F, 1);
    let cached = engine.cache(&f, 1).unwrap();
    let signature = engine.sign(&cached, PURE, b"message", Randomizer::Deterministic).unwrap();
    assert!(signature.as_bytes() == expected(&f, PURE, b"message", None));
    for layers in [10, 12, 22] {
        assert!(matches!(engine.cache(&f, layers), Err(Error::Value { .. } | Error::OutOfMemory { .. })), "{layers}");
    }
    // A large size is no error of its own: the layers that can be cached are what does not fit the engine's memory.
    for bytes in [4 << 40, 1 << 63, usize::MAX] {
        for key in [&f, &key(&SLH_DSA_SHA2_128S, 1)] {
            let why = engine.cache_within(key, bytes).unwrap_err();
            assert!(matches!(why, Error::OutOfMemory { .. }), "{bytes}: {why}");
        }
    }
}

#[test]
fn hedged_signatures_differ_and_verify() {
    let (key, engine) = (key(&TOY_SHAKE_24, 1), engine(2));
    let public = key.verifying_key();
    let mut signatures = sign_all(&engine, (0..5).map(|_| SignJob::new(&key, &b"same"[..])).collect());
    signatures.push(engine.sign(&key, PURE, b"same", Randomizer::Hedged).map(Signature::into_bytes));
    let mut rs: Vec<_> = signatures.iter().map(|signature| &signature.as_ref().unwrap()[..24]).collect();
    rs.sort();
    rs.dedup();
    assert_eq!(rs.len(), 6);
    let jobs = signatures.iter().flatten().map(|signature| VerifyJob::new(&public, &b"same"[..], signature));
    assert_eq!(collect(|sink| engine.verify_batch(jobs, sink)), vec![Ok(true); 6]);
}

#[test]
fn keys_have_the_traits_that_programs_expect() {
    struct Sevens;
    impl signature::rand_core::TryRng for Sevens {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(0x0707_0707)
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(0x0707_0707_0707_0707)
        }
        fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
            out.fill(7);
            Ok(())
        }
    }
    impl signature::rand_core::TryCryptoRng for Sevens {}

    let key = key(&SLH_DSA_SHA2_128F, 9);
    let public = signature::Keypair::verifying_key(&key);
    let signature: Signature = key.sign(b"message");
    public.verify(b"message", &signature).unwrap();
    assert!(public.verify(b"massage", &signature).is_err());
    let toy = self::key(&TOY_SHA2_16, 1);
    assert!(public.verify(b"message", &toy.sign(b"message")).is_err(), "a signature of another set");
    assert_eq!(key.sign_with_rng(&mut Sevens, b"message").to_vec(), expected(&key, PURE, b"message", Some(&[7; 16])));

    assert_eq!(Signature::try_from(&*signature.to_bytes()).unwrap(), signature);
    assert_eq!(signature.encoded_len(), SLH_DSA_SHA2_128F.sig_bytes());
    assert!(Signature::try_from(&signature.as_bytes()[1..]).is_err());

    let with_context = key.sign_with_context(b"message", b"context").unwrap();
    assert_eq!(public.verify_with_context(b"message", b"context", with_context.as_bytes()), Ok(true));
    assert_eq!(public.verify_with_context(b"message", b"", with_context.as_bytes()), Ok(false));
}

/// A set whose verification takes more memory than the engine behind the trait has.
#[test]
fn a_failure_of_the_engine_is_no_invalid_signature() {
    use std::error::Error as _;
    let p: &'static Params = Box::leak(Box::new(Params {
        name: "too large",
        family: Family::Sha2,
        n: 16,
        h: 4,
        d: 2,
        hp: 2,
        a: 0,
        k: 3 << 20,
        lg_w: 4,
        m: 4,
        status: SetStatus::Toy,
    }));
    let public = VerifyingKey::from_bytes(p, &[0; 32]).unwrap();
    let signature = Signature::from_bytes(p, vec![0; p.sig_bytes()]).unwrap();
    let failed = public.verify(b"message", &signature).unwrap_err();
    let engines = failed.source().and_then(|source| source.downcast_ref::<Error>()).map(Error::kind);
    assert_eq!(engines, Some(ErrorKind::OutOfMemory), "{failed:?}");

    let (toy, other) = (key(&TOY_SHA2_16, 1), key(&TOY_SHAKE_24, 1));
    for (message, signature) in [(b"massage", toy.sign(b"message")), (b"message", other.sign(b"message"))] {
        let invalid = toy.verifying_key().verify(message, &signature).unwrap_err();
        assert!(invalid.source().is_none(), "{invalid:?}");
    }
}

#[test]
fn keys_travel_as_der_and_pem() {
    use pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, LineEnding};
    let key = key(&SLH_DSA_SHA2_128F, 3);
    let public = key.verifying_key();
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    assert_eq!(SigningKey::from_pkcs8_pem(&pem).unwrap(), key);
    assert_eq!(SigningKey::read_pkcs8(pem.as_bytes()).unwrap(), key);
    assert_eq!(SigningKey::from_pkcs8_der(key.to_pkcs8_der().unwrap().as_bytes()).unwrap(), key);
    let pem = public.to_public_key_pem(LineEnding::LF).unwrap();
    assert_eq!(VerifyingKey::from_public_key_pem(&pem).unwrap(), public);
    assert_eq!(VerifyingKey::read_spki(public.to_public_key_der().unwrap().as_bytes()).unwrap(), public);
    assert_eq!(SigningKey::from_bytes(&SLH_DSA_SHA2_128F, &key.to_bytes()).unwrap(), key);
    assert_eq!(VerifyingKey::from_bytes(&SLH_DSA_SHA2_128F, &public.to_bytes()).unwrap(), public);
    // Names that programmers expect.
    assert_eq!(VerifyingKey::from_pem(&pem).unwrap(), public);
    assert_eq!(VerifyingKey::from_pem(pem.as_bytes()).unwrap(), public);
    assert_eq!(SigningKey::from_pem(key.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap(), key);
    assert!(VerifyingKey::from_pem(key.to_pkcs8_pem(LineEnding::LF).unwrap()).is_err());
    let zk = zkdilithium::SigningKey::from_seed(&[3; 32]);
    assert!(zkdilithium::SigningKey::from_pem(zk.to_pem()).unwrap() == zk);
    assert!(zkdilithium::VerifyingKey::from_pem(zk.verifying_key().to_pem()).unwrap() == zk.verifying_key());
    assert!(PARAMETER_SETS.iter().all(|p| p.signature_bytes() == p.sig_bytes()));
    let secret = format!("{:?}", key.as_ref().sk_seed());
    assert!(!format!("{key:?} {:?}", seeds(&SLH_DSA_SHA2_128F, 3)).contains(&secret[1..20]));
}

/// The programs that a probe prepared: op, batch and threads.
type Prepared = Arc<Mutex<Vec<(Op, usize, Option<u32>)>>>;

/// The reference with an axis and a log, which declines to sign with SHAKE.
fn probe() -> (Mock, Prepared) {
    let prepared = Prepared::default();
    let log = prepared.clone();
    let space = |_: &Device, plan: &Plan| match plan.op == Op::Sign && plan.params.family == Family::Shake {
        true => Err(Error::Unsupported { device: "probe".into(), what: "SHAKE".into() }),
        false => Ok(vec![Axis { name: THREADS, values: Cow::Borrowed(&[1, 2]), tuned: true }]),
    };
    let probe = Mock { name: "probe", jobs: 1 << 10, delay: [Duration::ZERO; 4], ..mock(1, 1) };
    let probe = probe.with_space(space).preparing(move |it| {
        log.lock().unwrap().push((it.plan.unwrap().op, it.batch, it.policy.get(THREADS)));
        Ok(())
    });
    (probe, prepared)
}

fn unplugged() -> (Mock, Prepared) {
    let (probe, prepared) = probe();
    (probe.answering(|call| call.fails("unplugged")), prepared)
}

/// A probe that flips a bit of the last signature.
fn flips() -> Mock {
    probe().0.answering(|call| {
        *call.out.last_mut().unwrap() ^= u8::from(call.op == Some(Op::Sign));
        Ok(())
    })
}

#[test]
fn a_second_call_prepares_nothing() {
    let ((probe, prepared), key) = (probe(), key(&TOY_SHA2_16, 1));
    let engine = probe.engine();
    for _ in 0..3 {
        let signature = engine.sign(&key, PURE, b"message", Randomizer::Hedged).unwrap();
        assert!(engine.clone().verify(&key.verifying_key(), PURE, b"message", signature.as_bytes()).unwrap());
        for size in [5, 8, 7] {
            sign_all(&engine, (0..size).map(|i| deterministic(&key, message(i))).collect());
        }
    }
    // One signature on all threads, one verification on the caller's, and all batches of 5 to 8 in one program.
    let want = [(Op::Sign, 1, Some(2)), (Op::Verify, 1, Some(1)), (Op::Sign, 8, Some(2))];
    assert_eq!(*prepared.lock().unwrap(), want);
}

#[test]
fn idle_programs_make_way_for_others() {
    let key = key(&TOY_SHA2_16, 1);
    let prepared = |budget| {
        let (probe, prepared) = probe();
        let engine = Mock { bytes: 10_000_000, ..probe }.builder().memory_budget(budget).build().unwrap();
        for _ in 0..3 {
            let signature = engine.sign(&key, PURE, b"message", Randomizer::Hedged).unwrap();
            engine.verify(&key.verifying_key(), PURE, b"message", signature.as_bytes()).unwrap();
        }
        prepared.lock().unwrap().len()
    };
    assert_eq!(prepared(25_000_000), 2);
    assert_eq!(prepared(15_000_000), 6);
}

#[test]
fn unsupported_plans_fail_alone() {
    let (key, shake) = (key(&TOY_SHA2_16, 1), key(&TOY_SHAKE_24, 1));
    let engine = probe().0.engine();
    let jobs = [&key, &shake, &key].map(|key| deterministic(key, &b"x"[..])).to_vec();
    let results = sign_all(&engine, jobs);
    let declined = Error::Unsupported { device: "probe".into(), what: "SHAKE".into() };
    assert!(results[0].is_ok() && results[2].is_ok() && results[1] == Err(declined.clone()));
    assert_eq!(engine.explain(&TOY_SHAKE_24, Op::Sign, 1).unwrap_err(), declined);
}

#[test]
fn a_device_that_fails_ends_the_call() {
    let failure = || Error::Device { device: "probe:0".into(), what: "unplugged".into() };
    let key = key(&TOY_SHA2_16, 1);
    let (probe, prepared) = unplugged();
    let engine = probe.engine();
    let jobs = (0..4).map(|i| deterministic(&key, message(i)));
    assert_eq!(engine.sign_batch(jobs, |_, _| -> () { panic!("nothing was signed") }), Err(failure()));
    assert_eq!(engine.sign(&key, PURE, b"x", Randomizer::Hedged), Err(failure()));
    assert_eq!(engine.sign(&key, PURE, b"x", Randomizer::Hedged), Err(failure()));
    assert_eq!(prepared.lock().unwrap().len(), 3, "a program that failed is not used again");
}

/// A key of which one bit is flipped: the lowest of its last byte but so many.
fn flipped(key: &SigningKey, from_the_end: usize) -> SigningKey {
    let mut bytes = key.to_bytes();
    let at = bytes.len() - 1 - from_the_end;
    bytes[at] ^= 1;
    SigningKey::from_bytes_unchecked(key.params(), &bytes).unwrap()
}

#[test]
fn a_key_with_a_wrong_root_signs_nothing() {
    // In PK.root, PK.seed and SK.seed.
    for from_the_end in [0, 16, 63] {
        let damaged = flipped(&key(&TOY_SHA2_16, 1), from_the_end);
        let engine = engine(1);
        let signed = engine.sign(&damaged, PURE, b"x", Randomizer::Hedged);
        assert!(matches!(&signed, Err(Error::KeyDamaged { what }) if what.contains("PK.root")), "{signed:?}");
        assert!(matches!(engine.cache(&damaged, 1), Err(Error::KeyDamaged { .. })));
        assert!(matches!(engine.check(&damaged), Err(Error::KeyDamaged { .. })));
        assert_eq!(engine.faults(), [], "no device is to blame");
    }
    let damaged = flipped(&key(&TOY_SHA2_16, 1), 0);
    let sign = |verifies| {
        let lenient = Engine::builder().backend(Arc::new(Reference)).check_roots(false).verify_signatures(verifies);
        lenient.build().unwrap().sign(&damaged, PURE, b"x", Randomizer::Hedged)
    };
    assert!(sign(false).is_ok());
    assert!(matches!(sign(true), Err(Error::KeyDamaged { .. })), "the signature does not verify");
}

#[test]
fn a_damaged_key_fails_alone() {
    let sets = [&TOY_SHA2_16, &TOY_SHAKE_24, &SLH_DSA_SHA2_128F];
    for (p, verify) in sets.into_iter().zip([false, true, false]) {
        let (good, damaged) = (key(p, 1), flipped(&key(p, 1), 0));
        let engine = Engine::builder().threads(2).verify_signatures(verify).build().unwrap();
        let cached = engine.cache(&good, 1).unwrap();
        // The damaged key's jobs share their batch with another one's, whose nodes are cached or not.
        let key_of = |i: usize| [&good, &damaged, &cached][i % 3];
        let jobs = (0..40).map(|i| deterministic(key_of(i), message(i))).collect();
        for (i, signature) in sign_all(&engine, jobs).into_iter().enumerate() {
            match std::ptr::eq(key_of(i), &damaged) {
                true => assert_eq!(signature.unwrap_err().kind(), ErrorKind::KeyDamaged, "{p} {i}"),
                // The oracle takes its time.
                false if i > 3 && p.d > 2 => assert!(signature.is_ok()),
                false => assert!(signature.unwrap() == expected(&good, PURE, &message(i), None), "{p} {i}"),
            }
        }
        let alone = sign_all(&engine, vec![deterministic(&damaged, message(0))]);
        assert!(matches!(alone[..], [Err(Error::KeyDamaged { .. })]));
        assert_eq!(engine.faults(), []);
    }
}

/// Flips a bit of what lies in memory, as a fault of the memory would.
#[cfg(target_os = "linux")]
fn corrupt(bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    memory.write_all_at(&[bytes[5] ^ 4], bytes.as_ptr() as u64 + 5).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_key_that_changes_in_memory_signs_nothing() {
    type Part = fn(&SigningKey) -> &[u8];
    let parts: [Part; 4] = [
        |key| key.as_ref().sk_seed(),
        |key| key.as_ref().sk_prf(),
        |key| key.as_ref().pk_seed(),
        |key| key.as_ref().pk_root(),
    ];
    let (engine, good) = (engine(1), key(&TOY_SHA2_16, 1));
    let changed = |error: Error| error.kind() == ErrorKind::KeyDamaged && error.to_string().contains("in memory");
    for part in parts {
        for cached in [0, 1] {
            let key = engine.cache(&key(&TOY_SHA2_16, 2), cached).unwrap();
            let jobs = || [&good, &key, &good].map(|key| deterministic(key, &b"x"[..])).to_vec();
            assert!(sign_all(&engine, jobs()).iter().all(Result::is_ok));
            corrupt(part(&key));
            let key = std::hint::black_box(&key);
            let signed = sign_all(&engine, jobs());
            assert!(signed[0].is_ok() && signed[2].is_ok());
            assert!(signed[1].clone().is_err_and(changed), "{:?}", signed[1]);
            assert!(engine.sign(key, PURE, b"x", Randomizer::Hedged).is_err_and(changed));
            assert!(engine.check(key).is_err_and(changed) && engine.cache(key, 2).is_err_and(changed));
            assert!(key.try_sign(b"x").is_err());
        }
    }
    assert_eq!(engine.faults(), [], "no device is to blame");
}

/// Where it is the device that gets the root wrong, its result is withheld, and the key is not blamed.
#[test]
fn a_wrong_root_of_a_sound_key_is_the_devices() {
    let wrong = probe().0.answering(|call| {
        if matches!(call.op, Some(Op::Keygen | Op::Cache)) {
            *call.out.last_mut().unwrap() ^= 1;
        }
        Ok(())
    });
    let (key, engine) = (key(&TOY_SHA2_16, 1), wrong.engine());
    for _ in 0..2 {
        assert!(matches!(engine.check(&key), Err(Error::Inconsistent { .. })));
        assert!(matches!(engine.cache(&key, 1), Err(Error::Inconsistent { .. })));
    }
    assert!(matches!(engine.check(&flipped(&key, 1)), Err(Error::KeyDamaged { .. })));
}

#[test]
fn the_list_of_faults_is_bounded() {
    let (key, engine) = (key(&TOY_SHA2_16, 1), unplugged().0.engine());
    for _ in 0..200 {
        engine.sign(&key, PURE, b"x", Randomizer::Hedged).unwrap_err();
    }
    assert_eq!(engine.faults().len(), 64);
}

#[test]
fn verified_signing_withholds_faulty_signatures() {
    let key = key(&TOY_SHA2_16, 1);
    let sign = |verify| {
        let device = flips();
        let engine = device.builder().verify_signatures(verify).build().unwrap();
        let (mut signed, jobs) = (0, (0..3).map(|i| deterministic(&key, message(i))));
        let outcome = engine.sign_batch(jobs, |_, _| signed += 1);
        let runs: Vec<usize> = device.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect();
        (outcome, signed, runs)
    };
    let (outcome, signed, _) = sign(false);
    assert_eq!((outcome, signed), (Ok(()), 3));
    let (outcome, signed, runs) = sign(true);
    // All three messages are one chunk, unless the machine is so busy that the first ones are signed before the others are read.
    let is_last = |what: &str| runs.iter().any(|jobs| what.contains(&format!("the signature of job {} ", jobs - 1)));
    assert!(matches!(&outcome, Err(Error::Inconsistent { what, .. }) if is_last(what)), "{outcome:?}, {runs:?}");
    assert_eq!(signed, 0);
    let sound = probe().0.builder().verify_signatures(true).build().unwrap();
    assert!(sign_all(&sound, (0..3).map(|i| deterministic(&key, message(i))).collect()).iter().all(Result::is_ok));
}

#[test]
fn explanations_tell_plan_memory_and_time() {
    let engine = within(30_000);
    let explained = engine.explain(&TOY_SHA2_16, Op::Sign, 1_000_000).unwrap();
    assert_eq!((&explained.plan, explained.work), (&Plan::new(&TOY_SHA2_16, Op::Sign), explained.plan.work()));
    assert_eq!((explained.predicted, explained.threads), (None, 1));
    let MemoryUse { budget, program, output, sub_batch } = explained.memory;
    assert!(sub_batch > 1 && program + sub_batch as u64 * output <= budget, "{:?}", explained.memory);
    engine.calibrate(&TOY_SHA2_16).unwrap();
    let predict = |batch| engine.explain(&TOY_SHA2_16, Op::Sign, batch).unwrap().predicted.unwrap();
    assert!(predict(1000) > predict(10) && predict(10).as_nanos() > 0);
    let poor = within(100).explain(&TOY_SHA2_16, Op::Sign, 1);
    assert!(matches!(poor, Err(Error::OutOfMemory { has: 100, .. })));
}

/// Errors and kinds that programs may match from release to release.
#[test]
fn errors_have_kinds() {
    let (p, key) = (&TOY_SHA2_16, key(&TOY_SHA2_16, 1));
    let (plain, public) = (engine(1), key.verifying_key());
    let kind = |error: Error| error.kind();
    let long = Mode::Pure { context: &[0; 256] };
    assert_eq!(plain.sign(&key, long, b"", Randomizer::Hedged).map_err(kind), Err(ErrorKind::BadInput));
    assert_eq!(plain.sign(&key, PURE, b"", Randomizer::Given(&[1])).map_err(kind), Err(ErrorKind::BadInput));
    assert_eq!(plain.verify(&public, long, b"", &[0; 9]).map_err(kind), Err(ErrorKind::BadInput));
    assert_eq!(plain.verify(&public, PURE, b"", &[0; 9]), Ok(false));
    assert_eq!(plain.cache(&key, 9).map(drop).map_err(kind), Err(ErrorKind::BadInput));
    let short = SigningKey::from_bytes(p, &[0; 63]).map(drop);
    assert_eq!(short.map_err(|why| Error::from(why).kind()), Err(ErrorKind::BadInput));
    let mixed = KeyError::PublicKeyMismatch { set: p.name };
    assert_eq!(Error::from(mixed).kind(), ErrorKind::KeyDamaged);
    let mut bytes = key.to_bytes();
    bytes[0] ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(p, &bytes).unwrap();
    assert_eq!(plain.check(&damaged).map_err(kind), Err(ErrorKind::KeyDamaged));
    assert_eq!(within(100).generate(p).map(drop).map_err(kind), Err(ErrorKind::OutOfMemory));

    let probe = unplugged().0.engine();
    assert_eq!(probe.generate(p).map(drop).map_err(kind), Err(ErrorKind::DeviceFailed));
    let shake = self::key(&TOY_SHAKE_24, 1);
    assert_eq!(probe.sign(&shake, PURE, b"", Randomizer::Hedged).map_err(kind), Err(ErrorKind::Unsupported));
    let wrong = flips().builder().verify_signatures(true).build().unwrap();
    assert_eq!(wrong.sign(&key, PURE, b"", Randomizer::Hedged).map_err(kind), Err(ErrorKind::Withheld));
    // It speaks of keys too, which no engine signs with.
    assert!(!Error::Randomness.to_string().contains("nothing was signed"));
    assert_eq!(Error::Randomness.kind(), ErrorKind::Randomness);
}

#[test]
fn impossible_engines_are_refused() {
    let refused = |builder: EngineBuilder| builder.build().unwrap_err().to_string();
    assert!(refused(Engine::builder().threads(0)).contains("0 threads"));
    let said = refused(Engine::builder().backend(Arc::new(Reference)).device(7));
    assert!(said.contains("device 7 of reference") && said.contains("1 device"), "{said}");
}

/// A key of HashSLH-DSA signs and verifies in its own pre-hash mode, which traits and jobs take by themselves, and in no other.
#[test]
fn a_key_of_hash_slh_dsa_has_one_mode() {
    use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
    let p = &SLH_DSA_SHA2_128F;
    let (engine, pure) = (engine(1), key(p, 1));
    let key = pure.clone().into_hash_slh_dsa();
    let public = key.verifying_key();
    let (context, hash) = (&b"ctx"[..], PreHash::Sha256);
    let mode = Mode::PreHash { context, hash };
    let signature = engine.sign(&key, mode, b"message", Randomizer::Deterministic).unwrap();
    assert_eq!(signature.as_bytes(), expected(&pure, mode, b"message", None));
    assert_eq!(public.verify_with_context(b"message", context, signature.as_bytes()), Ok(true));
    assert!(public.verify(b"message", &key.sign(b"message")).is_ok());
    let job = SignJob::new(&key, b"message").context(context).deterministic();
    assert_eq!(engine.sign_batch_to_vec([job]).unwrap()[0].as_ref(), Ok(&signature));
    let job = VerifyJob::new(&public, b"message", signature.as_bytes()).context(context);
    assert_eq!(engine.verify_batch_to_vec([job]).unwrap(), [Ok(true)]);
    for other in [PURE, Mode::Internal, HASHED] {
        let refused = engine.sign(&key, other, b"message", Randomizer::Hedged).unwrap_err();
        assert!(refused.kind() == ErrorKind::BadInput && refused.to_string().contains("HashSLH-DSA with SHA2-256"));
        assert_eq!(engine.verify(&public, other, b"message", signature.as_bytes()), Err(refused.clone()));
        let messages = Column::packed(b"message", 7);
        let rows = SignRows { keys: RowSigningKeys::One(&key), mode: other, messages, randomizer: Randomizer::Hedged };
        let (mut signatures, mut statuses) = (vec![0; p.sig_bytes()], [RowStatus::default()]);
        assert_eq!(engine.sign_rows(&rows, &mut signatures, &mut statuses), Err(refused.clone()));
        let signatures = Column::packed(signature.as_bytes(), p.sig_bytes());
        let keys = RowVerifyingKeys::One(&public);
        let rows = VerifyRows { keys, mode: other, messages, signatures };
        assert_eq!(engine.verify_rows(&rows, &mut [RowStatus::default()]), Err(refused));
    }
}
