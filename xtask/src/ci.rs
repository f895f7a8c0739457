//! CI's steps and their closing table.

use crate::process::{self, Outcome, Step, Tally};
use crate::{benchmarks, foreign, kernels, licences, magic, shaders, sources, tests};
use std::time::{Duration, Instant};

pub(crate) struct CiStep {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Tally) -> Step,
}

/// Cheap ones first.
#[rustfmt::skip]
pub(crate) const STEPS: &[CiStep] = &[
    CiStep { name: "fmt",    about: "formatting is rustfmt's",                                     run: |_| fmt() },
    CiStep { name: "words",  about: "no path of one machine, no file name without a meaning",      run: |_| sources::words() },
    CiStep { name: "unsafe", about: "unsafe code is where it may be and nowhere else",              run: |_| sources::forbid_unsafe() },
    CiStep { name: "magic",  about: "constants of SHA-2 and Keccak recomputed from their origin",  run: |_| magic::check() },
    CiStep { name: "deny",   about: "licences and sources of all dependencies",                    run: |_| licences::check() },
    CiStep { name: "bench",  about: "BENCHMARKS.md is what bench/runs says",                         run: |_| benchmarks::current() },
    CiStep { name: "shaders", about: "the SPIR-V modules are what glslc makes of the kernels",        run: |_| shaders::check() },
    CiStep { name: "clippy", about: "no warning in any target",                                    run: |_| clippy() },
    CiStep { name: "test",   about: "all tests on this machine",                                   run: tests::workspace },
    CiStep { name: "kernels", about: "the GPU kernels compile for all architectures, without a GPU",   run: kernels::check },
    CiStep { name: "doc",    about: "documentation without a warning",                             run: |_| doc() },
    CiStep { name: "no-std", about: "fips205 and zkdilithium without an operating system",              run: |_| foreign::no_std() },
    CiStep { name: "neon",   about: "lanes and cpu on aarch64 under qemu",                         run: foreign::neon },
    CiStep { name: "miri",   about: "the host logic under Miri",                                   run: foreign::miri },
];

/// Runs the named steps, or all; whether none failed.
pub(crate) fn run(names: &[String]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != *name)) {
        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step '{unknown}'; the steps are {}", known.join(", ")));
    }
    let start = Instant::now();
    let mut tally = Tally::default();
    let (mut rows, mut failed, mut skipped) = (Vec::new(), 0, 0);
    for step in STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)) {
        println!("\n=== {}: {}", step.name, step.about);
        let (start, failures) = (Instant::now(), tally.failed);
        let outcome = (step.run)(&mut tally);
        let (result, note) = match outcome {
            Ok(Outcome::Passed(note)) => ("passed", note),
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                ("skipped", why)
            }
            Err(why) => {
                // A failing test has been counted already.
                failed += u64::from(tally.failed == failures);
                ("FAILED", why)
            }
        };
        println!(
            "--- {} {result} in {}{}{note}",
            step.name,
            shown(start.elapsed()),
            if note.is_empty() { "" } else { ": " }
        );
        rows.push((step.name, result, start.elapsed(), note));
    }
    tests::print_skipped(&tally);
    println!("\n=== all steps in {}", shown(start.elapsed()));
    for (name, result, time, note) in &rows {
        println!("{name:<8} {result:<8} {:>9}  {}", shown(*time), note.lines().next().unwrap_or_default());
    }
    tests::print_total(&tally, failed, skipped);
    Ok(rows.iter().all(|(_, result, ..)| *result != "FAILED"))
}

fn fmt() -> Step {
    process::run(process::cargo(&["fmt", "--all", "--check", "--", "-l"]))?;
    Ok(Outcome::Passed(String::new()))
}

/// `--locked`, once: Cargo.lock is current.
fn clippy() -> Step {
    let arguments = ["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    process::run(process::cargo(&arguments))?;
    Ok(Outcome::Passed(String::new()))
}

/// `--lib`: the tool and the library share a name, and a tool has no documentation to publish.
fn doc() -> Step {
    let mut command = process::cargo(&["doc", "--workspace", "--lib", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    process::run(command)?;
    Ok(Outcome::Passed(String::new()))
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} m {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}
