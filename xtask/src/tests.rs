//! The one test command.

use crate::process;
use crate::step::{Extent, Step, Stop, Tally};
use crate::{capi, disk, openssl, python};
use std::path::{Path, PathBuf};
use std::process::Command;

/// This program. It has been built already, with its own few dependencies.
const XTASK: &str = "xtask";
/// Programs of tests, and the tests inside the crates. Examples are not among them: the step `examples` builds and runs those.
const PROGRAMS: [&str; 3] = ["--lib", "--bins", "--tests"];
/// Tests that mostly wait, and the program that has them: they run while others compute.
const WAITING: &str = "hang::";
const LIBRARY: &str = "library";
/// The package that has most tests of the library.
const TRIALS: &str = "hypergrove-trials";

/// `cargo xtask test`: whether all passed.
pub(crate) fn run(arguments: &[String]) -> Result<bool, String> {
    let mut tally = Tally::default();
    let chosen = chosen(arguments)?;
    // Who names tests wants these alone.
    let is_whole = chosen.is_empty();
    let (result, others) = match is_whole {
        true => whole(&mut tally),
        false => {
            let run = |arguments: &Vec<String>, tally: &mut Tally| {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                process::run_tests(command(&arguments), tally).map(drop)
            };
            // All of them, whatever fails.
            (chosen.iter().map(|arguments| run(arguments, &mut tally)).fold(Ok(()), Result::and), Vec::new())
        }
    };
    if let Err(why) = &result {
        println!("FAILED {why}");
    }
    let mut failed = u64::from(result.is_err() && tally.failed == 0);
    for (name, step) in others {
        match step {
            Ok(note) => println!("{name}: {note}"),
            Err(Stop::Skipped(why)) => drop(tally.skipped.insert(format!("{name}: {why}"))),
            Err(Stop::Failed(why)) => {
                println!("FAILED {name}: {why}");
                failed += 1;
            }
        }
    }
    print_named(&tally);
    print_total(&tally, failed, 0);
    Ok(tally.failed + failed == 0)
}

/// All tests: what became of those in Rust and in Python, and of the C library and the OpenSSL provider. Tests of Python and C mostly have one
/// thread, so they run while Rust's do.
fn whole(tally: &mut Tally) -> (Result<(), String>, Vec<(&'static str, Step)>) {
    if let Err(why) = build() {
        return (Err(why), Vec::new());
    }
    let others = || {
        let mut tally = Tally::default();
        let steps = vec![
            ("the C library", capi::check(Extent::Usual)),
            ("the OpenSSL provider", openssl::check(Extent::Usual)),
        ];
        (python::test(&mut tally), steps, tally)
    };
    std::thread::scope(|scope| {
        let others = scope.spawn(others);
        let rust = rust(tally, Extent::Usual);
        let (python, steps, own) = others.join().expect("a thread that does not panic");
        tally.add(own);
        (rust.and(python), steps)
    })
}

/// CI's step.
pub(crate) fn workspace(tally: &mut Tally, extent: Extent) -> Step {
    build().and_then(|()| rust(tally, extent))?;
    Ok(format!("{} tests", tally.passed))
}

/// Compiles all of Rust's tests.
fn build() -> Result<(), String> {
    process::run(command(&[&PROGRAMS[..], &["--no-run"]].concat()))
}

/// Runs all of Rust's tests, which are compiled. Those that wait run concurrently with those that compute.
fn rust(tally: &mut Tally, extent: Extent) -> Result<(), String> {
    let tests = |arguments: &[&str]| {
        let mut command = command(arguments);
        if extent == Extent::Full {
            command.env("HYPERGROVE_TESTS", "all").env("HYPERGROVE_TICKETS", "10000000");
        }
        command
    };
    let waiting = tests(&["--test", LIBRARY, "--", WAITING]);
    let computing = tests(&[&PROGRAMS[..], &["--", "--skip", WAITING]].concat());
    let programs = process::run_tests_concurrently(vec![waiting, computing], tally);
    let documents = process::run_tests(tests(&["--doc"]), tally);
    let own = process::run_tests(tests(&["-p", XTASK]), tally);
    programs.and(documents).and(own).map(drop)
}

/// Flips of bits that change a signature and that `redundant` must catch, on the CPU and as many on the kernels on the host. The usual
/// tests make a few.
const FLIPS: &str = "10000";

/// Bits flipped while signing, and places that are always wrong.
pub(crate) fn faults(tally: &mut Tally) -> Step {
    let mut command = command(&["--test", LIBRARY, "--", "faults::"]);
    command.env("HYPERGROVE_FLIPS", FLIPS);
    let passed = process::run_tests(command, tally)?;
    Ok(format!("{passed} tests with {FLIPS} flips"))
}

/// `cargo test` of the whole workspace, with the features that the tool is built with: nothing is compiled twice. `--release`, because
/// unoptimised hash kernels take hours; `--show-output`, because tests print what they skip; `--no-fail-fast`, so that one run finds
/// every failure.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = process::cargo(&["test", "--release", "--no-fail-fast"]);
    if !arguments.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package")) {
        command.args(["--workspace", "--exclude", XTASK]);
    }
    let at = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    command.args(&arguments[..at]).args(["--", "--show-output"]).args(arguments.iter().skip(at + 1));
    command
}

/// Cargo's arguments for what the command line chooses, one command each: a crate's or a suite's name, or arguments of Cargo's own.
fn chosen(arguments: &[String]) -> Result<Vec<Vec<String>>, String> {
    let Some(name) = arguments.first() else { return Ok(Vec::new()) };
    if name.starts_with('-') {
        return Ok(vec![arguments.to_vec()]);
    }
    let (options, words) = match arguments[1..].iter().position(|argument| argument == "--") {
        Some(at) => (&arguments[1..=at], &arguments[at + 2..]),
        None => (&arguments[1..], &[][..]),
    };
    let command = |(mut command, filter): Suite| {
        command.extend_from_slice(options);
        command.push("--".into());
        command.extend(filter);
        command.extend_from_slice(words);
        command
    };
    Ok(suites(name)?.into_iter().map(command).collect())
}

/// Cargo's arguments, and which of the tests there.
type Suite = (Vec<String>, Option<String>);

/// A crate's own tests; or all programs of this name and all modules of programs.
fn suites(name: &str) -> Result<Vec<Suite>, String> {
    if Path::new("crates").join(name).join("Cargo.toml").is_file() {
        let package = if name == "hypergrove" { name.into() } else { format!("hypergrove-{name}") };
        let others = if name == "hypergrove" { &["-p", TRIALS][..] } else { &[] };
        // The last has no tests, and the features of the whole workspace.
        let packages = [&["-p", &package[..]], others, &["-p", "hypergrove-unified"]].concat();
        return Ok(vec![(packages.into_iter().map(String::from).collect(), None)]);
    }
    let program = |program: &str| ["--test", program].map(String::from).to_vec();
    let mut found = Vec::new();
    for folder in folders(Path::new("crates")).iter().map(|folder| folder.join("tests")) {
        if folder.join(format!("{name}.rs")).is_file() || folder.join(name).join("main.rs").is_file() {
            found.push((program(name), None));
        }
        for several in folders(&folder).iter().filter(|several| several.join("main.rs").is_file()) {
            if several.join(format!("{name}.rs")).is_file() {
                let several = several.file_name().unwrap_or_default().to_string_lossy();
                found.push((program(&several), Some(format!("{name}::"))));
            }
        }
    }
    // Cargo runs all programs of one name.
    found.dedup();
    match found.is_empty() {
        true => Err(format!("no suite '{name}': name a crate, or a file or a module in crates/*/tests")),
        false => Ok(found),
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders = disk::entries(path).unwrap_or_default();
    folders.retain(|path| path.is_dir());
    folders
}

/// Prints which tests were left out, and why; and which failed.
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

/// The numbers of the last such line of an output.
pub(crate) fn read_total(output: &str) -> Option<[u64; 3]> {
    let of_line = |line: &str| {
        let numbers: Vec<u64> = line.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
        <[u64; 3]>::try_from(numbers).ok().filter(|_| line.ends_with(" skipped"))
    };
    output.lines().rev().find_map(of_line)
}

#[cfg(test)]
mod test {
    use super::*;

    fn chosen_by(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        chosen(&words).map(|chosen| chosen.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn a_total_is_read_from_an_output() {
        let output = "3 passed, 0 failed, 1 skipped\n\n12 passed, 3 failed, 4 skipped\nNOT CHECKED: neon.\n";
        assert_eq!(read_total(output), Some([12, 3, 4]));
        assert_eq!(read_total("it was killed, 2, 3"), None);
    }

    #[test]
    fn suites_are_chosen_by_name() {
        std::env::set_current_dir(disk::workspace()).expect("the repository is there");
        for (line, arguments) in [
            ("", ""),
            ("--test cli", "--test cli"),
            ("cli", "-p hypergrove-cli -p hypergrove-unified --"),
            ("tickets", "--test library -- tickets::"),
            ("fork", "--test fork --"),
            ("acvp", "--test cli -- acvp::; --test acvp --; --test library -- acvp::"),
            ("negative", "--test negative --; --test library -- negative::"),
            ("tickets -- --ignored", "--test library -- tickets:: --ignored"),
            ("engine", "-p hypergrove-engine -p hypergrove-unified --"),
            ("hypergrove", "-p hypergrove -p hypergrove-trials -p hypergrove-unified --"),
        ] {
            assert_eq!(chosen_by(line).as_deref(), Ok(arguments), "{line}");
        }
        assert!(chosen_by("tickts").is_err());
    }
}
