//! A caller's number may ask for more memory than there is: that is an error, and does not end the process.
#![cfg(target_os = "linux")]

use hypergrove::{Engine, Error, ErrorKind, SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S, SigningKey, cache_bytes};
use std::process::Command;

/// Says to the test that it runs in a process with little memory.
const IS_CHILD: &str = "HYPERGROVE_LITTLE_MEMORY";

/// Runs a test of this file again, in a process that gets no more than 2 GB.
fn with_little_memory(test: &str, work: impl FnOnce()) {
    if std::env::var_os(IS_CHILD).is_some() {
        return work();
    }
    let limited = r#"ulimit -v 2000000 && exec "$0" --exact "$1""#;
    let child = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", limited]).arg(child).arg(test).env(IS_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory && error.to_string().starts_with("the host gives no ")
}

#[test]
fn layers_that_are_too_many_are_an_error() {
    with_little_memory("layers_that_are_too_many_are_an_error", || {
        let p = &SLH_DSA_SHA2_128S;
        let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).memory_budget(u64::MAX);
        let engine = engine.threads(2).build().unwrap();
        let key = SigningKey::from_bytes_unchecked(p, &[7; 64]).unwrap();
        for layers in [3, 4] {
            let why = engine.cache(&key, layers).unwrap_err();
            assert!(is_refused(&why), "{layers} layers of {:?} bytes: {why}", cache_bytes(p, layers));
            let why = engine.cache_within(&key, cache_bytes(p, layers).unwrap()).unwrap_err();
            assert!(is_refused(&why), "{why}");
        }
        assert_eq!(engine.cache(&key, 5).unwrap_err().kind(), ErrorKind::BadInput);
        // The engine is as before.
        assert!(engine.faults().is_empty());
        let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
        assert_eq!(engine.cache(&key, 2).unwrap().cached_layers(), 2);
    });
}

#[test]
fn memory_that_is_too_large_is_an_error() {
    with_little_memory("memory_that_is_too_large_is_an_error", || {
        let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).build().unwrap();
        for bytes in [3 << 30, 1 << 62, usize::MAX] {
            assert!(is_refused(&engine.memory(bytes).unwrap_err()));
        }
        assert_eq!(engine.memory(1 << 20).unwrap().len(), 1 << 20);
    });
}

#[test]
fn threads_that_are_too_many_are_an_error() {
    for threads in [rayon::max_num_threads() + 1, usize::MAX] {
        let why = Engine::builder().threads(threads).build().unwrap_err();
        assert!(why.kind() == ErrorKind::BadInput && why.to_string().contains(&format!("{threads} threads")), "{why}");
    }
}

/// Nothing is computed: no number that is explained may end the process either.
#[test]
fn any_batch_is_explained() {
    let engine = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).build().unwrap();
    for op in [hypergrove::Op::Sign, hypergrove::Op::Verify, hypergrove::Op::Keygen] {
        assert!(engine.explain(&SLH_DSA_SHA2_128F, op, usize::MAX).is_ok());
    }
}
