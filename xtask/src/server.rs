//! The signing service, which has a workspace, a lock file and a target folder of its own.

use crate::ci::Extent;
use crate::process::{self, Outcome, Step, Tally, answers};
use std::process::Command;

pub(crate) const MANIFEST: &str = "server/Cargo.toml";

/// Clients of Vault need these: hvac always, node-vault and spring-vault-core in full.
const PYTHON: [&str; 1] = ["python3-venv"];
const NODE_AND_JAVA: [&str; 4] = ["nodejs", "npm", "default-jdk-headless", "maven"];

/// CI's step: no warning, and all of its tests.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    let before = tally.passed;
    let mut command = command();
    // Whatever is lacking, the tests of the clients say so.
    let _ = process::ensure_packages(&PYTHON, || answers("python3", &["-c", "import ensurepip"]));
    if extent == Extent::Full {
        let there = || ["npm", "java", "mvn"].iter().all(|program| answers(program, &["--version"]));
        let _ = process::ensure_packages(&NODE_AND_JAVA, there);
        command.env("HYPERGROVE_SERVER_TESTS", "all").env("HYPERGROVE_SERVER_KILLS", "1000");
        command.env("HYPERGROVE_SERVER_REQUESTS", "1000000");
    }
    process::run_tests(command, tally)?;
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
