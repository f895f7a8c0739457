//! Steps for machines that this one is not: without an operating system, with NEON, and Rust's abstract one.

use crate::ci::Extent;
use crate::process::{self, Outcome, Step, Tally, answers, may_install};
use std::path::Path;
use std::process::Command;

const BARE: &str = "thumbv7em-none-eabi";
const ARM: &str = "aarch64-unknown-linux-gnu";
/// Where Debian's cross packages put the C library.
const ARM_ROOT: &str = "/usr/aarch64-linux-gnu";
const ARM_PACKAGES: [&str; 3] = ["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// All of lanes, and of cpu what hashes little: qemu takes ten times as long as a CPU.
const NEON_TESTS: [&str; 5] = [
    "lanes_are_their_rows",
    "instruction_set",
    "neon::toys_exhaustively",
    "neon::cached_layers_give_the_same_bytes",
    "neon::bad_batches_are_refused",
];
/// What lanes' tokens ask of an x86-64 CPU.
const MIRI_FEATURES: &str =
    "-C target-feature=+avx512f,+avx512bw,+avx512vl,+avx2,+fma,+bmi1,+bmi2,+popcnt,+sha,+sse4.1,+ssse3";

/// A bare-metal target has no `std` to link against by mistake.
pub(crate) fn no_std() -> Step {
    let target = process::ensure_target(BARE);
    for (package, encoding) in [("hypergrove-fips205", "pkcs8"), ("hypergrove-zkdilithium", "pem")] {
        for features in [&["--no-default-features"][..], &["--no-default-features", "--features", encoding]] {
            let mut command = process::cargo(&["check", "--release", "-p", package]);
            command.args(features).args(target.is_ok().then_some(["--target", BARE]).iter().flatten());
            process::run(command)?;
        }
    }
    Ok(match target {
        Ok(()) => Outcome::Passed(format!("{BARE}, with and without pkcs8 and pem")),
        Err(why) => Outcome::Skipped(format!("checked for this machine only; {why}")),
    })
}

/// NEON under qemu, where this machine has no NEON itself.
pub(crate) fn neon(tally: &mut Tally) -> Step {
    if cfg!(target_arch = "aarch64") {
        return Ok(Outcome::Passed("this machine has NEON itself: see test".into()));
    }
    if let Err(why) = process::ensure_target(ARM).and_then(|()| ensure_qemu()) {
        return Ok(Outcome::Skipped(why));
    }
    let before = tally.passed;
    // One call, or the features of shared dependencies differ and lanes is compiled twice.
    let mut command = process::limited(15, "cargo", &["test", "--release", "--tests", "--target", ARM]);
    command.args(["-p", "hypergrove-lanes", "-p", "hypergrove-cpu", "--", "--show-output"]).args(NEON_TESTS);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("qemu-aarch64 -L {ARM_ROOT}"));
    process::run_tests(command, tally)?;
    Ok(Outcome::Passed(format!("{} tests", tally.passed - before)))
}

fn ensure_qemu() -> Result<(), String> {
    let there = || {
        answers("qemu-aarch64", &["--version"])
            && answers("aarch64-linux-gnu-gcc", &["--version"])
            && Path::new(ARM_ROOT).join("lib/crt1.o").exists()
    };
    process::ensure_packages(&ARM_PACKAGES, there)
}

/// The host logic, and lanes with the vectors that Miri knows, AVX-512 among them: for a CPU that lacks those this is the
/// only place where they run.
pub(crate) fn miri(tally: &mut Tally, extent: Extent) -> Step {
    let there = || answers("rustup", &["run", "nightly", "cargo", "miri", "--version"]);
    if !there() && may_install() {
        let parts = ["--component", "miri", "--component", "rust-src"];
        let new = ["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update"];
        let _ = answers("rustup", &["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
            || answers("rustup", &[&new[..], &parts].concat());
    }
    if !there() {
        return Ok(Outcome::Skipped("no Miri: `rustup toolchain install nightly -c miri -c rust-src`".into()));
    }
    let nightly = process::output("rustup", &["run", "nightly", "rustc", "--version"]).unwrap_or_default();
    let before = tally.passed;
    // Once, or the runs below would make it at the same time.
    process::run(process::limited(5, "rustup", &["run", "nightly", "cargo", "miri", "setup"]))?;
    // Another target keeps the features from build scripts; under Miri a feature is there if it is compiled in.
    let test = ["run", "nightly", "cargo", "miri", "test", "--target", "x86_64-unknown-linux-gnu", "--all-features"];
    // What those that are skipped hash takes Miri hours.
    let host = ["-p", "hypergrove-fips205", "-p", "hypergrove-engine", "--lib", "--", "--skip", "plan::tests"];
    let host = [&host[..], &["--skip", "self_test::tests"]].concat();
    let lanes = |name| ["-p", "hypergrove-lanes", "--test", name];
    let (minutes, lattice) = if extent == Extent::Full { (40, Some(lanes("lattice"))) } else { (15, None) };
    // Miri has one thread. A folder for each choice of features: neither replaces what the other is reading.
    let command = |packages: &[&str], folder, features| {
        let mut command = process::limited(minutes, "rustup", &[&test, packages].concat());
        command.env("CARGO_TARGET_DIR", process::target().join(folder)).env("RUSTFLAGS", features);
        command
    };
    let of_lanes =
        [lanes("agreement")].into_iter().chain(lattice).map(|test| command(&test, "miri-lanes", MIRI_FEATURES));
    let runs: Vec<Command> = of_lanes.chain([command(&host, "miri-host", "")]).collect();
    process::run_tests_concurrently(runs, tally)?;
    Ok(Outcome::Passed(format!("{} tests, {}", tally.passed - before, nightly.trim())))
}
