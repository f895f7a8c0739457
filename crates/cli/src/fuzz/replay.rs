//! The fuzz targets without a fuzzer: they have what cargo-fuzz needs, and their corpus is replayed.

use super::{target, targets};
use peak_alloc::PeakAlloc;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Names in a folder, without their ending.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let stem = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("the folder can be listed").path();
        path.file_stem().expect("an entry has a name").to_string_lossy().into_owned()
    };
    entries.map(stem).collect()
}

/// The inputs of a target's corpus, at least one.
fn inputs(corpus: &Path) -> Vec<(String, Vec<u8>)> {
    let names = names(corpus);
    assert!(!names.is_empty(), "{} is empty: see CONTRIBUTING.md", corpus.display());
    let read = |name: String| {
        let bytes = fs::read(corpus.join(&name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn functions_targets_and_corpora_agree() {
    let functions: BTreeSet<String> = targets().map(|target| target.name.into()).collect();
    assert_eq!(REPLAYED.iter().map(|name| String::from(*name)).collect::<BTreeSet<_>>(), functions, "the tests below");
    assert_eq!(names(&folder().join("fuzz_targets")), functions, "fuzz/fuzz_targets and the functions");
    assert_eq!(names(&folder().join("corpus")), functions, "fuzz/corpus and the functions");
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let manifest: toml::Table = manifest.parse().expect("fuzz/Cargo.toml is TOML");
    let bins =
        manifest["bin"].as_array().expect("targets").iter().map(|bin| bin["name"].as_str().expect("a name").into());
    assert_eq!(bins.collect::<BTreeSet<String>>(), functions, "fuzz/Cargo.toml and the functions");
    for name in &functions {
        let text = fs::read_to_string(folder().join(format!("fuzz_targets/{name}.rs"))).expect("a target");
        assert!(text.contains(&format!("target!(\"{name}\")")), "{name}.rs runs another function");
    }
}

/// Names the target to [`in_a_process_of_its_own`].
const REPLAYED_TARGET: &str = "HYPERGROVE_REPLAYED_TARGET";

/// Replays the corpus of a target, in a process of its own: the heap that is measured is a process's, and other tests run concurrently.
fn replay(name: &str) {
    let mut replay = Command::new(std::env::current_exe().expect("this program"));
    replay.args(["--exact", "fuzz::replay::in_a_process_of_its_own", "--ignored", "--nocapture"]);
    let output = replay.env(REPLAYED_TARGET, name).output().expect("this program starts again");
    let text = String::from_utf8_lossy(&output.stdout);
    let checked = text.lines().find(|line| line.starts_with("checked: "));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && checked.is_some(), "{name}: {}\n{text}{errors}", output.status);
    println!("{}", checked.unwrap_or_default());
}

#[test]
#[ignore = "the other tests run it, once for each target"]
fn in_a_process_of_its_own() {
    let Ok(name) = std::env::var(REPLAYED_TARGET) else { return println!("{REPLAYED_TARGET} names no target") };
    let target = target(&name).expect("a target's name");
    let inputs = inputs(&folder().join("corpus").join(&name));
    for (input, bytes) in &inputs {
        let replayed = catch_unwind(|| target.replay(bytes, &HEAP));
        assert!(replayed.is_ok(), "fuzz/corpus/{name}/{input} fails: the panic above says why");
    }
    println!("checked: {name}: {} inputs replayed", inputs.len());
}

macro_rules! replay {
    ($($name:ident)*) => {
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*
    };
}

replay! {
    control pkcs8 spki key_file zkdilithium_keys zkdilithium_signatures signatures_toy signatures_real signers envelope x509 lists tables
    journal records acvp kat
}

/// Inputs that nobody chose, for the targets that compute: what is altered needs no search, and without a fuzzer's counters
/// they run many times as fast. On all cores.
fn random(name: &str) {
    let runs = std::env::var("HYPERGROVE_FUZZ_RUNS").expect("HYPERGROVE_FUZZ_RUNS says how many inputs");
    let runs: u64 = runs.parse().expect("HYPERGROVE_FUZZ_RUNS is a number");
    let (target, next) = (target(name).expect("a target's name"), AtomicU64::new(0));
    let work = || {
        loop {
            let run = next.fetch_add(1, Relaxed);
            if run >= runs {
                return;
            }
            let mut state = Sha256::digest(run.to_le_bytes());
            let mut input = Vec::new();
            for _ in 0..1 + state[0] % 6 {
                state = Sha256::digest(state);
                input.extend_from_slice(&state);
            }
            let done = catch_unwind(|| target.fuzz(&input, &HEAP));
            assert!(done.is_ok(), "{name} fails for {input:02x?}");
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    println!("checked: {name}: {runs} random inputs");
}

macro_rules! random {
    ($($name:ident = $target:literal),*) => { $(
        #[test]
        #[ignore = "a run of the fuzzer: `cargo xtask ci fuzz`"]
        fn $name() {
            random($target);
        }
    )* };
}

random! {
    random_signatures_toy = "signatures_toy", random_signatures_real = "signatures_real",
    random_zkdilithium_signatures = "zkdilithium_signatures"
}

/// The controls: what the replay and the targets are there to find is found.
mod controls {
    use super::*;

    #[test]
    #[should_panic(expected = "is empty")]
    fn an_empty_corpus_fails() {
        inputs(tempfile::tempdir().expect("a folder").path());
    }

    #[test]
    #[should_panic(expected = "No such file")]
    fn a_missing_corpus_fails() {
        inputs(&folder().join("corpus/none"));
    }

    /// The fault that `cargo xtask ci fuzz` has the fuzzer find.
    #[test]
    #[should_panic(expected = "the planted fault")]
    fn a_fault_fails() {
        target("control").expect("a target").replay(b"fault", &HEAP);
    }

    #[test]
    #[should_panic(expected = "bytes of the heap for an input of 4 bytes")]
    fn a_greedy_reader_fails() {
        target("control").expect("a target").replay(b"heap", &HEAP);
    }
}
