//! A step of CI: how much it checks, and its result.

use std::collections::BTreeSet;

/// How much a run checks.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    /// The checks that every change must pass.
    Usual,
    /// With checks that take many minutes more, such as all of ACVP on every instruction set and on lavapipe.
    Full,
}

/// The result of a step that has ended: a note for the table, or why there is none.
pub(crate) type Step = Result<String, Stop>;

/// Why a step did not pass.
pub(crate) enum Stop {
    /// There was nothing to run, for example because this machine lacks a tool.
    Skipped(String),
    /// A check failed, or could not be made.
    Failed(String),
}

impl<T: Into<String>> From<T> for Stop {
    fn from(why: T) -> Stop {
        Stop::Failed(why.into())
    }
}

/// Ends a function with an error in these words, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+).into());
        }
    };
}
pub(crate) use ensure;

/// The test runners' reports so far. cargo-nextest would not spare this: it runs no examples of documentation, and tests under
/// Miri, qemu and Wine, the models of loom and Python's tests report here too, with what they skipped and why.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// The lines that tests print as `skipped: what: why`.
    pub(crate) skipped: BTreeSet<String>,
    /// The names of the tests that failed.
    pub(crate) failures: BTreeSet<String>,
}

impl Tally {
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(skipped) = line.strip_prefix("skipped: ") {
            self.skipped.insert(skipped.into());
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.insert(name.into());
        } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) {
            for count in counts.split("; ") {
                match count.split_once(' ').and_then(|(number, what)| Some((number.parse::<u64>().ok()?, what))) {
                    Some((number, "passed")) => self.passed += number,
                    Some((number, "failed")) => self.failed += number,
                    Some((number, "ignored")) => self.ignored += number,
                    _ => {}
                }
            }
        }
    }

    /// Adds what other test runners have reported.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn counts_results_and_names_skips() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s",
            "test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "skipped: avx512: no such CPU",
            "skipped: avx512: no such CPU",
            "test engine::signs ... FAILED",
            "test engine::verifies ... ok",
        ] {
            tally.read(line);
        }
        assert_eq!((tally.passed, tally.failed, tally.ignored), (43, 2, 1));
        assert_eq!(tally.skipped.iter().collect::<Vec<_>>(), ["avx512: no such CPU"]);
        assert_eq!(tally.failures.iter().collect::<Vec<_>>(), ["engine::signs"]);
    }
}
