//! The signing service, which has a workspace, a lock file and a target folder of its own.

use crate::process::{self, Outcome, Step, Tally};
use std::process::Command;

pub(crate) const MANIFEST: &str = "server/Cargo.toml";

/// CI's step: no warning, and all of its tests.
pub(crate) fn check(tally: &mut Tally) -> Step {
    let before = tally.passed;
    process::run_tests(command(), tally)?;
    Ok(Outcome::Passed(format!("{} tests", tally.passed - before)))
}

/// Compiles and tests the service as it is shipped, since a signature takes seconds without optimisation. Clippy is the compiler of the service itself,
/// so that the packages that it depends on are not checked by clippy and compiled for the tests as well.
fn command() -> Command {
    let mut command = process::cargo(&["test", "--locked", "--release", "--no-fail-fast", "--manifest-path", MANIFEST]);
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("RUSTFLAGS", "-D warnings");
    command.args(["--", "--show-output"]).env("CARGO_TARGET_DIR", process::target().join("server"));
    command
}
