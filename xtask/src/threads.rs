//! Data races and lost wake-ups: tests that share an engine between threads, under ThreadSanitizer; the queues of the
//! scheduler under loom.

use crate::foreign;
use crate::process;
use crate::step::{Step, Stop, Tally};
use std::process::Command;

pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The library's tests of an engine's devices and of calls that share them.
const MODULES: [&str; 4] = ["sharing::", "devices::", "tickets::", "faults::"];
/// Flips of bits in the test `faults`: fewer than usual, which that test says the meaning of, and enough that some are seen.
const FLIPS: &str = "39";
/// The tests of how work is shared out by the devices' speeds, and of predicted times. Under ThreadSanitizer the doubles of devices compute for longer than
/// they wait.
const TIMED: [&str; 2] =
    ["devices::work_is_split_by_speed", "devices::a_table_is_followed_and_doubted_where_its_time_is_far_off"];
/// Tests that hash for minutes, and share nothing.
const SKIPPED: &str = "zkdilithium::tests::batches_are_the";
/// The test whose race must be reported.
const CONTROL: [&str; 4] = ["-p", "hypergrove", "--test", "race"];
/// How a report begins.
pub(crate) const REPORT: &str = "WARNING: ThreadSanitizer: data race";

/// The models of the scheduler's queues.
pub(crate) const MODELS: &str = "xtask/loom/Cargo.toml";

pub(crate) fn check(tally: &mut Tally) -> Step {
    let mut models = process::limited(15, "cargo", &["run", "--release", "--manifest-path", MODELS]);
    models.env("CARGO_TARGET_DIR", process::target().join("loom"));
    let models = format!("{} models", process::run_tests(models, tally)?);
    ensure_sanitizer().map_err(|why| Stop::Skipped(format!("{models}; {why}")))?;
    let mut own = tests(&["-p", "hypergrove-engine", "-p", "hypergrove", "--lib"]);
    own.args(["--", "--show-output", "--skip", SKIPPED]);
    let of_own = process::run_tests(own, tally)?;
    let mut shared = tests(&["-p", "hypergrove-trials", "--test", "library"]);
    shared
        .args(["--", "--show-output"])
        .args(TIMED.iter().flat_map(|test| ["--skip", test]))
        .args(MODULES)
        .env("HYPERGROVE_FLIPS", FLIPS);
    let of_shared = process::run_tests(shared, tally)?;
    let output = tests(&CONTROL).output().map_err(|error| format!("the planted race: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !text.contains(REPORT) {
        return Err(format!("ThreadSanitizer did not report the planted race:\n{text}").into());
    }
    let tests = of_own + of_shared;
    Ok(format!("{models}; {tests} tests without a race, and a planted one was reported"))
}

/// Sees to what [`sanitized`] needs, or says how to get it.
pub(crate) fn ensure_sanitizer() -> Result<(), String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("ThreadSanitizer is run on Linux on x86-64 alone".into());
    }
    foreign::ensure_nightly(foreign::has_sources)
}

/// Tests that report data races and then fail.
fn tests(tests: &[&str]) -> Command {
    sanitized("test", &[&["--no-fail-fast"], tests].concat())
}

/// A command of Cargo's that builds for ThreadSanitizer. The standard library is compiled anew, or its own synchronisation would go
/// unseen. In the profile `checked`, hash kernels take seconds to compile.
pub(crate) fn sanitized(command: &str, arguments: &[&str]) -> Command {
    let build = ["run", "nightly", "cargo", command, "--profile", "checked", "-Zbuild-std", "--target", TARGET];
    let mut command = process::limited(30, "rustup", &[&build, arguments].concat());
    command.env("CARGO_TARGET_DIR", process::target().join("threads")).env("RUSTFLAGS", "-Zsanitizer=thread");
    command
}
