//! The signing service, which has a workspace, a lock file and a target folder of its own.

use crate::process::{self, Outcome, Step, Tally};
use std::process::Command;

pub(crate) const MANIFEST: &str = "server/Cargo.toml";

/// CI's step: no warning, and all of its tests.
pub(crate) fn check(tally: &mut Tally) -> Step {
    // The service is tested as it is shipped: without optimisation, a signature takes seconds.
    process::run(command(&["clippy", "--all-targets"], &["-D", "warnings"]))?;
    let before = tally.passed;
    process::run_tests(command(&["test", "--no-fail-fast"], &["--show-output"]), tally)?;
    Ok(Outcome::Passed(format!("{} tests", tally.passed - before)))
}

fn command(words: &[&str], last: &[&str]) -> Command {
    let (name, others) = words.split_first().expect("a command has a name");
    let mut command = process::cargo(&[name, "--locked", "--release", "--manifest-path", MANIFEST]);
    command.args(others).arg("--").args(last).env("CARGO_TARGET_DIR", process::target().join("server"));
    command
}
