//! Constant time: Valgrind follows secrets through the library.

use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, Tally};
use crate::{disk, tests};
use std::process::Command;

/// Memcheck, which reports all that it finds: the tests count it. Traces are deep enough to name the library's caller.
const VALGRIND: &str = "valgrind --quiet --error-limit=no --num-callers=30 --leak-check=no --suppressions=";
/// Branches in crates of others.
const SUPPRESSIONS: &str = "xtask/secrets.supp";
/// Those of the tests that Valgrind runs that take long.
const LONG: &str = "every_";
/// The tests that measure what Valgrind does not know; they need a machine that does nothing else.
const TIMED: &str = "timing";

/// Runs the crate hypergrove under Valgrind and, in full, times the crate lanes.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Stop::Skipped("the requests to Valgrind are those of Linux on x86-64; run it there".into()));
    }
    process::ensure_packages(&["valgrind"], || answers("valgrind", &["--version"])).map_err(Stop::Skipped)?;
    let passed = match extent {
        Extent::Usual => process::run_tests(followed(&["--skip", LONG]), tally)?,
        Extent::Full => {
            // Valgrind has one thread.
            let followed = vec![followed(&["sha2_"]), followed(&["--skip", "sha2_"])];
            process::run_tests_concurrently(followed, tally)?
                + process::run_tests(alone(&["--test", TIMED], &[]), tally)?
        }
    };
    Ok(format!("{passed} tests"))
}

fn followed(filter: &[&str]) -> Command {
    let mut command = alone(&["-p", "hypergrove-taint", "--features", "valgrind", "--test", "secrets"], filter);
    let valgrind = format!("{VALGRIND}{}", disk::workspace().join(SUPPRESSIONS).display());
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", valgrind);
    command
}

/// One program of tests, one test at a time.
fn alone(program: &[&str], filter: &[&str]) -> Command {
    tests::command(&[program, &["--", "--test-threads=1"], filter].concat())
}
