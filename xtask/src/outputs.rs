//! Faults of system calls while the tool writes files.

use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, Tally};
use crate::tests;

/// The tests that take seconds.
const USUAL: &str = "usual::";

/// Fails system calls of the tool in turn, and looks at what files are there afterwards.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    if !cfg!(target_os = "linux") {
        return Err(Stop::Skipped("strace injects the faults, on Linux alone".into()));
    }
    let there = || answers("strace", &["-V"]) && answers("prlimit", &["--version"]);
    process::ensure_packages(&["strace", "util-linux"], there).map_err(Stop::Skipped)?;
    if !answers("strace", &["-o", "/dev/null", "true"]) {
        return Err(Stop::Skipped("strace may not trace here; a container needs --cap-add=SYS_PTRACE for it".into()));
    }
    let filter: &[&str] = if extent == Extent::Usual { &[USUAL] } else { &[] };
    let passed = process::run_tests(tests::command(&[&["--test", "outputs", "--"], filter].concat()), tally)?;
    Ok(format!("{passed} tests"))
}
