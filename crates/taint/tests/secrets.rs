//! Constant time, as Valgrind sees it: secrets count as undefined, and each branch and each address that depends on one is
//! reported. `cargo xtask ci secrets` runs these tests under Valgrind, one at a time.
//!
//! The library itself says where secrets come into being and where something computed from them becomes public: see the
//! crate `taint`. These tests only use the library.
#![forbid(unsafe_code)]

use hypergrove::pkcs8::EncodePrivateKey;
use hypergrove::pkcs8::der::pem::LineEnding;
use hypergrove::*;
use hypergrove_taint::{classify, declassified, declassify, is_secret, reports};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

const MODE: Mode<'static> = Mode::Pure { context: b"context" };
const MESSAGE: &[u8] = b"message";
/// Where a private key of zkDilithium holds `key`, and s1 and s2.
const SECRETS: [Range<usize>; 2] = [32..64, 96..864];

/// The result of the work, which must have no branch and no address that depends on a secret.
fn silent<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let before = counted();
    let done = work();
    assert_eq!(counted() - before, 0, "{what}: reports of Valgrind, see above");
    done
}

/// The number of Valgrind's reports so far.
fn counted() -> u64 {
    reports().expect("Valgrind runs these tests: `cargo xtask ci secrets`")
}

fn slh_dsa(isa: Isa, p: &'static Params, change: impl FnOnce(EngineBuilder) -> EngineBuilder) {
    let what = |does: &str| format!("{p}, {}: {does}", isa.name());
    println!("{}", what("key generation, key files, signing"));
    let engine = change(engine(isa)).build().expect("an engine");
    let key = silent(&what("key generation"), || engine.generate(p).expect("a key"));
    assert!(!is_secret(&key.verifying_key().to_bytes()));
    let key = key_files(&key, what);
    signs(&engine, &key, what);
}

fn engine(isa: Isa) -> EngineBuilder {
    Engine::builder().backend(Arc::new(Cpu::with(isa).expect("available"))).threads(1)
}

fn signs(engine: &Engine, key: &SigningKey, what: impl Fn(&str) -> String) {
    let public = key.verifying_key();
    let hashed = Mode::PreHash { context: b"", hash: PreHash::Sha512 };
    for (mode, randomizer) in [(MODE, Randomizer::Hedged), (hashed, Randomizer::Deterministic)] {
        let sign = || engine.sign(key, mode, MESSAGE, randomizer).expect("a signature");
        let signature = silent(&what("signing"), sign);
        assert!(!is_secret(signature.as_bytes()), "what leaves is public");
        assert!(engine.verify(&public, mode, MESSAGE, signature.as_bytes()).expect("a verdict"));
    }
}

/// The key, through each of its encodings: it is as secret as before.
fn key_files(key: &SigningKey, what: impl Fn(&str) -> String) -> SigningKey {
    let p = key.params();
    let is_as_secret = |key: &SigningKey| {
        let bytes = key.to_bytes();
        (0..2 * p.n).all(|at| is_secret(&bytes[at..=at])) && !is_secret(&bytes[2 * p.n..])
    };
    assert!(is_as_secret(key), "seeds are secret, the public key is not");
    let key = silent(&what("raw bytes"), || SigningKey::from_bytes(p, &key.to_bytes()).expect("a key"));
    let der = silent(&what("writing DER"), || key.to_pkcs8_der().expect("a key file"));
    let key = silent(&what("reading DER"), || SigningKey::read_pkcs8(der.as_bytes()).expect("a key"));
    let pem = silent(&what("writing PEM"), || key.to_pkcs8_pem(LineEnding::LF).expect("a key file"));
    let private = der.as_bytes().len() - p.sk_bytes();
    let pem = secret_only_in(pem.as_bytes(), &[private..private + 2 * p.n]);
    let again = silent(&what("reading PEM"), || SigningKey::read_pkcs8(&pem).expect("a key"));
    assert!(is_as_secret(&again));
    assert!(silent(&what("comparing keys"), || declassified(again == key)));
    again
}

/// A PEM file as it comes from a disk, of which the characters are secret that hold bits of these bytes alone. A character
/// that holds bits of public bytes too would have Valgrind take those for secret.
fn secret_only_in(pem: &[u8], secret: &[Range<usize>]) -> Vec<u8> {
    declassify(pem);
    let mut pem = pem.to_vec();
    let mut characters = 0;
    for line in pem.split_mut(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"-----")) {
        for character in line {
            let bytes = characters * 6 / 8..=(characters * 6 + 5) / 8;
            if secret.iter().any(|secret| secret.contains(bytes.start()) && secret.contains(bytes.end())) {
                classify(character);
            }
            characters += 1;
        }
    }
    pem
}

#[test]
fn slh_dsa_of_each_family() {
    for isa in Isa::available() {
        for p in [&SLH_DSA_SHA2_128F, &SLH_DSA_SHAKE_128F] {
            slh_dsa(isa, p, |builder| builder);
        }
    }
}

/// A batch recognises copies of a key, by comparing the keys.
#[test]
fn slh_dsa_with_copies_of_a_key() {
    let engine = engine(Isa::fastest()).build().expect("an engine");
    let key = engine.generate(&SLH_DSA_SHA2_128F).expect("a key");
    let jobs = [SignJob::new(&key, MESSAGE), SignJob::new(key.clone(), MESSAGE), SignJob::new(&key, MESSAGE)];
    silent("signing with copies of a key", || {
        engine.sign_batch(jobs, |_, signature| assert!(signature.is_ok())).expect("a batch");
    });
}

#[test]
fn zkdilithium_signs() {
    for isa in Isa::available() {
        let what = |does: &str| format!("zkDilithium, {}: {does}", isa.name());
        let engine = engine(isa).build().expect("an engine");
        let seeds: Vec<[u8; 32]> = (0..2).map(|_| **zkdilithium::SigningKey::random_seed().expect("a seed")).collect();
        assert!(seeds.iter().all(|seed| is_secret(seed)));
        let keys =
            silent(&what("key generation"), || engine.from_seeds(zkdilithium::ZkDilithium, &seeds).expect("keys"));
        let message = zkdilithium::Message::Bytes(MESSAGE);
        let jobs = [0, 1].map(|i| zkdilithium::SignJob::new(&keys[i], message));
        for jobs in [&jobs[..], &jobs[..1]] {
            let signatures = silent(&what("signing"), || engine.sign_batch_to_vec(jobs.to_vec()).expect("signatures"));
            for (signature, job) in signatures.iter().zip(jobs) {
                let signature = signature.as_ref().expect("a sound key").as_bytes();
                assert!(!is_secret(signature) && job.key.verifying_key().is_valid(message, signature));
            }
        }
        let bytes = keys[0].to_bytes();
        assert!(SECRETS.into_iter().flatten().all(|at| is_secret(&bytes[at..=at])), "key, s1 and s2");
        assert!(!is_secret(keys[0].verifying_key().as_bytes()));
        let pem = silent(&what("writing PEM"), || keys[0].to_pem());
        let pem = secret_only_in(pem.as_bytes(), &SECRETS);
        let again = silent(&what("reading PEM"), || zkdilithium::SigningKey::read_pem(&pem).expect("a key"));
        assert!(silent(&what("comparing keys"), || declassified(again == keys[0])));
    }
}

/// The other sets: many minutes, for Valgrind computes slowly.
macro_rules! every_set {
    ($($name:ident: $p:ident;)*) => {
        mod every_set {
            use super::*;
            $(#[test]
            fn $name() {
                Isa::available().into_iter().for_each(|isa| slh_dsa(isa, &$p, |builder| builder));
            })*
        }
    };
}
every_set! {
    sha2_128s: SLH_DSA_SHA2_128S;
    sha2_192s: SLH_DSA_SHA2_192S;
    sha2_192f: SLH_DSA_SHA2_192F;
    sha2_256s: SLH_DSA_SHA2_256S;
    sha2_256f: SLH_DSA_SHA2_256F;
    shake_128s: SLH_DSA_SHAKE_128S;
    shake_192s: SLH_DSA_SHAKE_192S;
    shake_192f: SLH_DSA_SHAKE_192F;
    shake_256s: SLH_DSA_SHAKE_256S;
    shake_256f: SLH_DSA_SHAKE_256F;
}

/// Further checks and options that a caller can ask for.
#[test]
fn every_check_and_cached_layers() {
    for isa in Isa::available() {
        slh_dsa(isa, &SLH_DSA_SHA2_128F, |builder| builder.verify_signatures(true).redundant(true));
        let what = |does: &str| format!("cached layers, {}: {does}", isa.name());
        let engine = engine(isa).build().expect("an engine");
        let key = engine.generate(&SLH_DSA_SHA2_128F).expect("a key");
        let key = silent(&what("growing"), || engine.cache(&key, 2).expect("a sound key"));
        signs(&engine, &key, what);
    }
}

/// The controls: what these tests are to find, Valgrind reports.
#[test]
fn planted_leaks_are_found() {
    let table = black_box([1u8; 256]);
    let mut secret = [black_box(7u8); 2];
    classify(&mut secret);
    let found = |work: &dyn Fn()| {
        let before = counted();
        work();
        counted() - before
    };
    println!("what Valgrind reports below is planted");
    let harmless = || {
        black_box(secret[0] ^ secret[1]);
    };
    assert_eq!(found(&harmless), 0, "neither a branch nor an address");
    let branch = || {
        if black_box(secret)[0] > 9 {
            black_box(());
        }
    };
    assert!(found(&branch) > 0, "a branch on a secret");
    let address = || {
        black_box(table[usize::from(black_box(secret)[1])]);
    };
    assert!(found(&address) > 0, "a secret address");

    // Secrets are followed through the library: were PK.seed or ρ a secret, it would branch on them.
    for isa in Isa::available() {
        let p = &SLH_DSA_SHA2_128F;
        let engine = engine(isa).build().expect("an engine");
        let mut bytes = engine.generate(p).expect("a key").to_bytes();
        classify(&mut bytes[2 * p.n..3 * p.n]);
        let key = SigningKey::from_bytes_unchecked(p, &bytes).expect("a key");
        let sign = || drop(engine.sign(&key, MODE, MESSAGE, Randomizer::Hedged).expect("a signature"));
        assert!(found(&sign) > 0, "a digest that stays secret");
    }
    let mut bytes = zkdilithium::SigningKey::from_seed(&[7; 32]).to_bytes();
    classify(&mut bytes[..32]);
    let key = zkdilithium::SigningKey::from_bytes_unchecked(&bytes).expect("a key");
    assert!(found(&|| key.check().expect("sound")) > 0, "a matrix that is secret");
}
