//! Uses the library as a program in Cargo's dev profile does, without optimisation and from threads with the usual stack
//! of 2 MiB. Whatever the library needs beyond that, it must find itself.
#![forbid(unsafe_code)]

use hypergrove::rows::{Column, RowStatus};
use hypergrove::signature::{Signer, Verifier};
use hypergrove::zkdilithium::ZkDilithium;
use hypergrove::{
    Cpu, Engine, Isa, Mode, Params, Randomizer, SLH_DSA_SHA2_128F, SLH_DSA_SHA2_192F, SLH_DSA_SHAKE_128F, SignJob,
    SigningKey, VerifyJob, VerifyingKey, zkdilithium,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The stack that a thread has unless its maker says otherwise; a test's thread has it, too.
const STACK: usize = 2 << 20;
const MODE: Mode<'static> = Mode::Pure { context: b"" };

fn main() {
    for threads in [None, Some(1)] {
        let name = threads.map_or("default threads".into(), |threads: usize| format!("{threads} thread"));
        let engine = || {
            let builder = Engine::builder();
            threads.into_iter().fold(builder, |builder, threads| builder.threads(threads)).build().expect("an engine")
        };
        on_small_stack(&format!("SHA2-128f, {name}"), || signs_and_verifies(&engine(), &SLH_DSA_SHA2_128F));
        on_small_stack(&format!("SHA-256, {name}"), || hashes(&engine()));
        on_small_stack(&format!("zkDilithium, {name}"), || zkdilithium(&engine()));
    }
    for isa in Isa::available() {
        for p in [&SLH_DSA_SHA2_192F, &SLH_DSA_SHAKE_128F] {
            on_small_stack(&format!("key pair and verification of {p}, {}", isa.name()), || {
                let cpu = Arc::new(Cpu::with(isa).expect("available"));
                let engine = Engine::builder().backend(cpu).threads(1).build().expect("an engine");
                makes_keys_and_refuses(&engine, p);
            });
        }
    }
    on_small_stack("the traits Signer and Verifier", || {
        let key = Engine::new().and_then(|engine| engine.generate(&SLH_DSA_SHA2_128F)).expect("a key");
        key.verifying_key().verify(b"message", &key.sign(b"message")).expect("valid");
        let key = zkdilithium::SigningKey::generate().expect("a key");
        key.verifying_key().verify(b"message", &key.sign(b"message")).expect("valid");
    });
    on_small_stack("rates", || {
        hypergrove::backend::rates(Isa::fastest(), Duration::from_millis(10)).expect("available");
    });
}

fn on_small_stack(what: &str, work: impl FnOnce() + Send) {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.expect("a thread").join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{what}: {:.1?}", start.elapsed());
}

fn signs_and_verifies(engine: &Engine, p: &'static Params) {
    let key = engine.generate(p).expect("a key");
    let public = key.verifying_key();
    let signature = engine.sign(&key, MODE, b"one", Randomizer::Hedged).expect("a signature");
    assert!(engine.verify(&public, MODE, b"one", signature.as_bytes()).expect("a verdict"));
    batches(engine, &key, &public);
    let mut keys = 0;
    engine.generate_batch(p, 3, |_, _| keys += 1).expect("a batch");
    assert_eq!(keys, 3);
}

fn batches(engine: &Engine, key: &SigningKey, public: &VerifyingKey) {
    let messages = [&b"one"[..], b"two"];
    let mut signatures = Vec::new();
    let jobs = messages.map(|message| SignJob::new(key, message));
    engine.sign_batch(jobs, |_, signature| signatures.push(signature.expect("a signature"))).expect("a batch");
    let jobs = messages.iter().zip(&signatures);
    let jobs = jobs.map(|(message, signature)| VerifyJob::new(public, *message, signature.as_bytes()));
    let mut valid = 0;
    engine.verify_batch(jobs, |_, verdict| valid += usize::from(verdict.expect("a verdict"))).expect("a batch");
    assert_eq!(valid, messages.len());
}

/// A key pair and the verification of what is no signature: every function of a family and n, at the least cost.
fn makes_keys_and_refuses(engine: &Engine, p: &'static Params) {
    let key = engine.generate(p).expect("a key");
    let zeros = vec![0; p.sig_bytes()];
    assert!(!engine.verify(&key.verifying_key(), MODE, b"one", &zeros).expect("a verdict"));
}

fn hashes(engine: &Engine) {
    let messages = vec![7; 64 * 40];
    let (mut digests, mut statuses) = ([[0; 32]; 40], [RowStatus::default(); 40]);
    engine.sha256_rows(Column::packed(&messages, 64), digests.as_flattened_mut(), &mut statuses).expect("digests");
    assert!(digests.iter().all(|digest| *digest == digests[0] && *digest != [0; 32]));
}

fn zkdilithium(engine: &Engine) {
    let keys = engine.from_seeds(ZkDilithium, &[[7; 32], [8; 32]]).expect("keys");
    let job = |key| zkdilithium::SignJob::new(key, b"one");
    let signatures = engine.sign_batch_to_vec(keys.iter().map(job)).expect("signatures");
    for (key, signature) in keys.iter().zip(signatures) {
        let signature = signature.expect("a signature");
        assert!(key.verifying_key().is_valid(zkdilithium::Message::Bytes(b"one"), signature.as_bytes()));
    }
}
