//! Fuzzing: random inputs, and cargo-fuzz's runs of each target. Their corpus is replayed by the tests of the tool.

use crate::process::{self, answers};
use crate::step::{Step, Stop, Tally};
use crate::{disk, tests, wheels};
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";
const CARGO_FUZZ: &str = "cargo-fuzz";
const CORPUS: &str = "fuzz/corpus";
/// The target whose fault is there to be found.
const CONTROL: &str = "control";

/// Executions of a target by the fuzzer in `ci full`; some of those that compute.
const RUNS: u32 = 300_000;
const COMPUTING: u32 = 300;
/// Random inputs of the targets that compute, which the tests run many times as fast as the fuzzer.
const RANDOM: &[(&str, u32)] =
    &[("signatures_toy", 100_000), ("signatures_real", 1_000), ("zkdilithium_signatures", 10_000)];
/// Executions after which the planted fault is found: some ten thousand suffice.
const CONTROL_RUNS: u32 = 5_000_000;

pub(crate) fn check(tally: &mut Tally) -> Step {
    let covered = crate::coverage::check()?;
    let mut runs = 0;
    for (name, inputs) in RANDOM {
        let mut command = tests::command(&["--lib", "--", "--ignored", &format!("random_{name}")]);
        command.env("HYPERGROVE_FUZZ_RUNS", inputs.to_string());
        process::run_tests(command, tally)?;
        runs += inputs;
    }
    ensure_fuzzer().map_err(|why| Stop::Skipped(format!("{covered}, {runs} random inputs; no fuzzer ran: {why}")))?;
    let targets = targets()?;
    for name in &targets {
        runs += run(name)?;
    }
    Ok(format!("{covered}, {runs} executions of {} targets", targets.len()))
}

/// The targets: the test checks that these folders are those of the functions.
fn targets() -> Result<Vec<String>, String> {
    let folders = disk::entries(CORPUS)?;
    Ok(folders.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
}

/// cargo-fuzz, and the compiler that it needs.
fn ensure_fuzzer() -> Result<(), String> {
    let nightly = || answers("rustup", &["run", "nightly", "cargo", "--version"]);
    let new = ["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update"];
    let how = || "no nightly compiler: `rustup toolchain install nightly`".into();
    process::ensure(nightly, || answers("rustup", &new), how)?;
    wheels::tool(CARGO_FUZZ).map(drop)
}

/// Runs a target from its corpus; new inputs go to the target folder. The number of executions.
fn run(name: &str) -> Result<u32, String> {
    let runs = match name {
        CONTROL => CONTROL_RUNS,
        name if RANDOM.iter().any(|(computing, _)| *computing == name) => COMPUTING,
        _ => RUNS,
    };
    let found = process::target().join("fuzz-corpus").join(name);
    disk::make(&found)?;
    let (found, corpus) = (found.to_string_lossy().into_owned(), format!("{CORPUS}/{name}"));
    let mut command = cargo_fuzz(&["run", name, &found, &corpus])?;
    command.args(["--", &format!("-runs={runs}"), "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    // Words of the format, which the fuzzer would have to find letter by letter.
    let words = format!("fuzz/dictionaries/{name}.dict");
    if Path::new(&words).exists() {
        command.arg(format!("-dict={words}"));
    }
    if name != CONTROL {
        return process::run(command).map(|()| runs);
    }
    let crashes = Path::new("fuzz/artifacts").join(CONTROL);
    disk::remove(&crashes)?;
    let ended = process::run(command);
    // It may have failed for another reason.
    match disk::entries(&crashes).is_ok_and(|crashes| !crashes.is_empty()) {
        true => Ok(0),
        false => Err(format!("the fault in the target {CONTROL} was not found in {runs} executions: {ended:?}")),
    }
}

/// `cargo fuzz …` of nightly. Without a sanitizer: all code that reads is safe Rust, where one finds little and takes half
/// of the time. With the versions of Cargo.lock.
fn cargo_fuzz(arguments: &[&str]) -> Result<Command, String> {
    let _ = fs::copy("Cargo.lock", "fuzz/Cargo.lock");
    let (subcommand, rest) = arguments.split_first().expect("a subcommand of cargo-fuzz");
    let program = wheels::tool(CARGO_FUZZ)?;
    let mut command = process::limited(60, "rustup", &["run", "nightly", &program, "fuzz", subcommand]);
    command.args(["--release", "--sanitizer", "none", "--no-cfg-fuzzing", "--target-dir"]);
    command.arg(process::target().join("fuzz")).args(rest);
    // The cargo that runs us is not nightly's, and cargo-fuzz would call it.
    command.env("HYPERGROVE_NVCC", "none").env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.current_dir(disk::workspace());
    Ok(command)
}

/// `cargo xtask fuzz …`: `cargo fuzz …` as CI calls it.
pub(crate) fn by_hand(arguments: &[String]) -> Result<bool, String> {
    ensure_fuzzer()?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    process::run(cargo_fuzz(&arguments)?).map(|()| true)
}
