//! Data races and lost wake-ups: tests that share an engine between threads, under ThreadSanitizer; the queues of the
//! scheduler under loom.

use crate::foreign;
use crate::process::{self, Outcome, Step, Tally};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Those of an engine's devices, of calls that share them, and of what the crates have of their own.
const TESTS: [&str; 7] = ["--lib", "--test", "sharing", "--test", "devices", "--test", "tickets"];
/// What those that are skipped hash takes minutes, and they share nothing.
const SKIPPED: &str = "zkdilithium::tests::batches_are_the";
/// The test whose race must be reported, and what the report looks like.
const CONTROL: [&str; 2] = ["--test", "race"];
const REPORT: &str = "WARNING: ThreadSanitizer: data race";

/// The models of the scheduler's queues.
pub(crate) const MODELS: &str = "xtask/loom/Cargo.toml";

pub(crate) fn check(tally: &mut Tally) -> Step {
    let before = tally.passed;
    let mut models = process::limited(15, "cargo", &["run", "--release", "--manifest-path", MODELS]);
    models.env("CARGO_TARGET_DIR", process::target().join("loom"));
    process::run_tests(models, tally)?;
    let models = format!("{} models", tally.passed - before);
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Outcome::Skipped(format!("{models}; ThreadSanitizer is run on Linux on x86-64 alone")));
    }
    if let Err(why) = foreign::ensure_nightly(foreign::has_sources) {
        return Ok(Outcome::Skipped(format!("{models}; {why}")));
    }
    let before = tally.passed;
    let mut command = sanitized(&TESTS);
    command.args(["--", "--show-output", "--skip", SKIPPED]);
    process::run_tests(command, tally)?;
    let output = sanitized(&CONTROL).output().map_err(|error| format!("the planted race: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !text.contains(REPORT) {
        return Err(format!("ThreadSanitizer did not report the planted race:\n{text}"));
    }
    let tests = tally.passed - before;
    Ok(Outcome::Passed(format!("{models}; {tests} tests without a race, and a planted one was reported")))
}

/// Tests that report data races and then fail. The standard library is compiled anew, or its own synchronisation would go
/// unseen. In the profile `checked`, hash kernels take seconds to compile.
fn sanitized(tests: &[&str]) -> Command {
    let test = ["run", "nightly", "cargo", "test", "--profile", "checked", "-Zbuild-std", "--target", TARGET];
    let packages = ["-p", "hypergrove-engine", "-p", "hypergrove", "--no-fail-fast"];
    let mut command = process::limited(30, "rustup", &[&test[..], &packages, tests].concat());
    command.env("CARGO_TARGET_DIR", process::target().join("threads")).env("RUSTFLAGS", "-Zsanitizer=thread");
    command
}
