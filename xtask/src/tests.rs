//! The one test command.

use crate::capi;
use crate::ci::Extent;
use crate::process::{self, Outcome, Step, Tally};
use crate::{python, vectors};
use std::process::Command;

/// `cargo xtask test`: whether all passed.
pub(crate) fn run(arguments: &[String]) -> Result<bool, String> {
    let mut tally = Tally::default();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut result = process::run_tests(command(&arguments), &mut tally);
    // Arguments choose tests of Rust.
    if arguments.is_empty() {
        result = result.and(python::test(&mut tally));
    }
    if let Err(why) = &result {
        println!("FAILED {why}");
    }
    let mut failed = u64::from(result.is_err() && tally.failed == 0);
    // Who names tests wants these alone.
    if arguments.is_empty() {
        match capi::check(Extent::Usual) {
            Ok(Outcome::Passed(note)) => println!("the C library: {note}"),
            Ok(Outcome::Skipped(why)) => drop(tally.skipped.insert(format!("the C library: {why}"))),
            Err(why) => {
                println!("FAILED the C library: {why}");
                failed += 1;
            }
        }
    }
    vectors::print();
    print_named(&tally);
    print_total(&tally, failed, 0);
    Ok(tally.failed + failed == 0)
}

/// CI's step.
pub(crate) fn workspace(tally: &mut Tally, extent: Extent) -> Step {
    let mut command = command(&[]);
    if extent == Extent::Full {
        command.env("HYPERGROVE_ACVP", "all").env("HYPERGROVE_TICKETS", "10000000");
    }
    let result = process::run_tests(command, tally);
    vectors::print();
    result?;
    Ok(Outcome::Passed(format!("{} tests", tally.passed)))
}

/// Bits flipped while signing and places that are always wrong: in a full run until `redundant` has caught 10,000 flips that
/// change a signature on the CPU, and as many on the kernels on the host.
pub(crate) fn faults(tally: &mut Tally, extent: Extent) -> Step {
    let flips = if extent == Extent::Full { "10000" } else { "400" };
    let mut command = command(&["--test", "faults"]);
    command.env("HYPERGROVE_FLIPS", flips);
    let before = tally.passed;
    process::run_tests(command, tally)?;
    Ok(Outcome::Passed(format!("{} tests with {flips} flips", tally.passed - before)))
}

/// `--release`, because unoptimised hash kernels take hours and the tool is built already; `--show-output`, because tests print what
/// they skip; `--no-fail-fast`, so that one run finds every failure.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = process::cargo(&["test", "--release", "--all-features", "--no-fail-fast"]);
    if !arguments.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package")) {
        command.arg("--workspace");
    }
    let at = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    command.args(&arguments[..at]).args(["--", "--show-output"]).args(arguments.iter().skip(at + 1));
    command
}

/// What tests have left out, and why; and which failed.
pub(crate) fn print_named(tally: &Tally) {
    if !tally.skipped.is_empty() {
        println!("\n=== skipped by tests");
        tally.skipped.iter().for_each(|what| println!("{what}"));
    }
    if !tally.failures.is_empty() {
        println!("\n=== FAILED tests");
        tally.failures.iter().for_each(|name| println!("{name}"));
    }
}

/// The closing line: tests, and steps or suites that failed or were skipped as a whole.
pub(crate) fn print_total(tally: &Tally, failed: u64, skipped: u64) {
    let skipped = tally.ignored + tally.skipped.len() as u64 + skipped;
    println!("\n{} passed, {} failed, {skipped} skipped", tally.passed, tally.failed + failed);
}
