//! Work that is done on the calling thread starts no other thread. The test counts threads in a process that does nothing else.
#![cfg(target_os = "linux")]

use hypergrove::signature::{Signer, Verifier};
use hypergrove::zkdilithium::params::SK_BYTES;
use hypergrove::zkdilithium::{self, Message, ZkDilithium};
use hypergrove::{Cpu, Engine, SLH_DSA_SHA2_128F, SignJob, VerifyJob};
use std::sync::Arc;

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let names = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    names.map(|name| std::fs::read_to_string(name).unwrap_or_default()).collect()
}

/// Hundredths of a second that this process has computed.
fn cpu_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which may have spaces: the twelfth and the thirteenth field.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn one_thread_is_the_callers() {
    let before = threads();
    let is_alone = |what| assert_eq!(threads(), before, "{what}");

    let key = zkdilithium::SigningKey::generate().unwrap();
    let signature = key.sign(b"m");
    key.verifying_key().verify(b"m", &signature).unwrap();
    assert!(key.verifying_key().witness(signature.as_bytes()).is_some());
    is_alone("zkDilithium's keys and their traits");

    let engine = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
    // More than a thread takes at a time.
    let seeds: Vec<[u8; 32]> = (0..300u16).map(|i| [i as u8 ^ (i >> 8) as u8; 32]).collect();
    let (keys, mut rows) = (engine.from_seeds(ZkDilithium, &seeds).unwrap(), vec![0; seeds.len() * SK_BYTES]);
    engine.keygen_rows_from_seeds(ZkDilithium, seeds.as_flattened(), &mut rows, None).unwrap();
    assert!(rows.chunks(SK_BYTES).eq(keys.iter().map(|key| key.to_bytes().to_vec())));
    let messages: Vec<_> = (0..300u32).map(u32::to_le_bytes).collect();
    let mut jobs = Vec::new();
    for (i, text) in messages.iter().enumerate() {
        jobs.push(zkdilithium::SignJob::new(&keys[i % 7], text));
    }
    let mut signatures = Vec::new();
    engine.sign_batch(jobs.clone(), |_, signature| signatures.push(signature.unwrap())).unwrap();
    assert!(engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().eq(signatures.iter().cloned()));
    let public: Vec<_> = keys[..7].iter().map(zkdilithium::SigningKey::verifying_key).collect();
    let mut jobs = Vec::new();
    for (i, (text, signature)) in messages.iter().zip(&signatures).enumerate() {
        let (key, message, signature) = (&public[i % 7], Message::Bytes(text), signature.as_bytes());
        jobs.push(zkdilithium::VerifyJob::new(key, message, signature));
    }
    let mut verdicts = Vec::new();
    engine.verify_batch(jobs.clone(), |_, verdict| verdicts.push(verdict)).unwrap();
    assert_eq!(verdicts, [const { Ok(true) }; 300]);
    assert_eq!(engine.verify_batch_to_vec(jobs).unwrap(), [const { Ok(true) }; 300]);
    let key = engine.generate(ZkDilithium).unwrap();
    assert_eq!(engine.run(zkdilithium::SignJob::new(&key, b"m")), key.sign_message(Message::Bytes(b"m")));
    engine.generate_batch(ZkDilithium, 300, |_, _| ()).unwrap();
    is_alone("zkDilithium's engine");

    let engine = Engine::builder().threads(1).build().unwrap();
    let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
    key.verifying_key().verify(b"m", &key.sign(b"m")).unwrap();
    let (public, mut signatures, mut verdicts) = (key.verifying_key(), Vec::new(), Vec::new());
    let jobs = (0..20u8).map(|i| SignJob::new(&key, vec![i]));
    engine.sign_batch(jobs, |_, signature| signatures.push(signature.unwrap())).unwrap();
    let jobs = (0..20u8).map(|i| VerifyJob::new(&public, vec![i], signatures[i as usize].as_bytes()));
    engine.verify_batch(jobs, |_, verdict| verdicts.push(verdict)).unwrap();
    assert_eq!(verdicts, [const { Ok(true) }; 20]);
    is_alone("SLH-DSA's engine");
    // Tickets start threads, which sleep when there is nothing to do.
    let tickets: Vec<_> = (0..20u8).map(|i| engine.submit(SignJob::new(&key, vec![i])).unwrap()).collect();
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    assert!(threads().iter().any(|name| name.starts_with("hypergrove-tick")), "{:?}", threads());
    let before = cpu_time();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(cpu_time() <= before + 1, "an idle engine uses no CPU time");
    drop(engine);
    is_alone("the end of an engine");
}
