//! Faults of system calls while the tool writes files.

use crate::process::{self, answers};
use crate::step::{Extent, Outcome, Step, Tally};
use crate::tests;

/// The tests that take seconds.
const USUAL: &str = "usual::";

/// Fails system calls of the tool in turn, and looks at what files are there afterwards.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("strace injects the faults, on Linux alone".into()));
    }
    let there = || answers("strace", &["-V"]) && answers("prlimit", &["--version"]);
    if let Err(why) = process::ensure_packages(&["strace", "util-linux"], there) {
        return Ok(Outcome::Skipped(why));
    }
    if !answers("strace", &["-o", "/dev/null", "true"]) {
        return Ok(Outcome::Skipped("strace may not trace here; a container needs --cap-add=SYS_PTRACE for it".into()));
    }
    let before = tally.passed;
    let filter: &[&str] = if extent == Extent::Usual { &[USUAL] } else { &[] };
    process::run_tests(tests::command(&[&["--test", "outputs", "--"], filter].concat()), tally)?;
    Ok(Outcome::Passed(format!("{} tests", tally.passed - before)))
}
