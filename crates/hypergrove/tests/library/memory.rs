//! The library leaves no secret of a key on the stack of the thread that calls it. The tool's tests search other
//! memory.
#![cfg(target_os = "linux")]

use hypergrove::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use hypergrove::signature::Signer;
use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_192F, SLH_DSA_SHAKE_128F, Seeds, SigningKey, zkdilithium};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{File, read_to_string};
use std::io::{Read, Seek, SeekFrom};
use std::sync::mpsc::channel;
use std::thread;

/// The whole stack of a thread that does this, once it is done.
fn stack_after(work: impl FnOnce() + Send) -> Vec<u8> {
    // The thread must not end before its stack was read.
    let ((done, is_done), (end, may_end)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        scope.spawn(move || {
            let here = 0u8;
            work();
            done.send(&raw const here as usize).unwrap();
            let _ = may_end.recv();
        });
        let address = is_done.recv().expect("the work is done");
        let maps = read_to_string("/proc/self/maps").unwrap();
        let bounds = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        };
        let (start, stop) =
            maps.lines().filter_map(bounds).find(|(start, end)| (*start..*end).contains(&address)).unwrap();
        let (mut memory, mut stack) = (File::open("/proc/self/mem").unwrap(), vec![0; stop - start]);
        memory.seek(SeekFrom::Start(start as u64)).unwrap();
        memory.read_exact(&mut stack).unwrap();
        drop(end);
        stack
    })
}

/// How often eight bytes in a row of a secret are there.
fn found(stack: &[u8], secrets: &[&[u8]]) -> usize {
    let windows: HashSet<&[u8]> = secrets.iter().flat_map(|secret| secret.windows(8)).collect();
    // A stack has millions of windows, and to hash one takes ten times as long as to look at its first byte.
    let mut begins = [false; 256];
    windows.iter().for_each(|window| begins[usize::from(window[0])] = true);
    stack.windows(8).filter(|window| begins[usize::from(window[0])] && windows.contains(window)).count()
}

/// Bytes that are nowhere by chance.
fn secret(length: usize, of: u8) -> Vec<u8> {
    Sha256::digest([of])[..length].to_vec()
}

#[test]
fn what_is_on_the_stack_is_found() {
    let left = secret(32, 77);
    let copy = stack_after(|| {
        let array: [u8; 32] = left[..].try_into().unwrap();
        std::hint::black_box(&array);
    });
    assert!(found(&copy, &[&left]) > 0);
    assert_eq!(found(&copy, &[&secret(32, 78)]), 0);
}

#[test]
fn keys_of_slh_dsa_leave_nothing_on_the_stack() {
    for p in [&SLH_DSA_SHA2_192F, &SLH_DSA_SHAKE_128F] {
        let engine = Engine::builder().threads(1).build().unwrap();
        let (sk_seed, sk_prf) = (secret(p.n, 3), secret(p.n, 90));
        let seeds = Seeds { sk_seed: sk_seed.clone().into(), sk_prf: sk_prf.clone().into(), pk_seed: secret(p.n, 5) };
        let key = engine.from_seeds(p, std::slice::from_ref(&seeds)).unwrap().remove(0);
        let (bytes, der) = (key.to_bytes(), key.to_pkcs8_der().unwrap());
        type Work<'a> = Box<dyn Fn() + Send + Sync + 'a>;
        let works: [(&str, Work<'_>); 9] = [
            ("from_seeds", Box::new(|| drop(engine.from_seeds(p, std::slice::from_ref(&seeds)).unwrap()))),
            ("from_bytes", Box::new(|| drop(SigningKey::from_bytes(p, &bytes).unwrap()))),
            ("to_bytes", Box::new(|| drop(key.to_bytes()))),
            ("from_pkcs8_der", Box::new(|| drop(SigningKey::from_pkcs8_der(der.as_bytes()).unwrap()))),
            ("to_pkcs8_der", Box::new(|| drop(key.to_pkcs8_der().unwrap()))),
            ("check", Box::new(|| engine.check(&key).unwrap())),
            ("sign", Box::new(|| drop(engine.sign(&key, Mode::Internal, b"m", Randomizer::Deterministic).unwrap()))),
            ("cache", Box::new(|| drop(engine.cache(&key, 1).unwrap().sign(b"m")))),
            ("==", Box::new(|| assert!([key.clone()][0] == key))),
        ];
        let left = works.iter().filter(|(_, work)| found(&stack_after(work), &[&sk_seed, &sk_prf]) > 0);
        assert_eq!(left.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0], "{p}");
    }
}

#[test]
fn keys_of_zkdilithium_leave_nothing_on_the_stack() {
    let seed = Box::new([7; 32]);
    let key = zkdilithium::SigningKey::from_seed(&seed);
    let (raw, s1, s2) = (key.to_bytes(), key.as_ref().s1(), key.as_ref().s2());
    // `key`, then s₁ and s₂ after tr, which is public.
    let packed = [&raw[32..64], &raw[96..96 + 768]];
    let mut elements: Vec<Vec<u8>> = Vec::new();
    for s in s1.iter().chain(s2.iter()) {
        // Enough of them that none is there by chance.
        elements.extend(s.0.chunks(16).map(|run| run.iter().flat_map(|x| x.value().to_le_bytes()).collect()));
        elements.extend(s.0.chunks(16).map(|run| run.iter().flat_map(|x| x.centred().to_le_bytes()).collect()));
    }
    let stack = stack_after(|| {
        let key = zkdilithium::SigningKey::from_seed(&seed);
        let read = zkdilithium::SigningKey::read_pem(key.to_pem().as_bytes()).unwrap();
        let raw = zkdilithium::SigningKey::from_bytes(&read.to_bytes()).unwrap();
        raw.check().unwrap();
        raw.sign(b"message");
        assert!(raw == key);
    });
    assert_eq!(found(&stack, &packed), 0);
    let elements: HashSet<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    assert_eq!(stack.windows(64).step_by(4).filter(|window| elements.contains(window)).count(), 0);
}
