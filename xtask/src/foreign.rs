//! Steps for machines that this one is not: without an operating system, with another one, with NEON, and Rust's abstract one.

use crate::disk;
use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, Tally};
use std::path::{Path, PathBuf};
use std::process::Command;

const BARE: &str = "thumbv7em-none-eabi";
pub(crate) const ARM: &str = "aarch64-unknown-linux-gnu";
/// Where Debian's cross packages put the C library.
pub(crate) const ARM_ROOT: &str = "/usr/aarch64-linux-gnu";
const ARM_PACKAGES: [&str; 3] = ["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MAC: &str = "aarch64-apple-darwin";
const MINGW: &str = "x86_64-w64-mingw32-gcc";
const WINDOWS_PACKAGES: [&str; 2] = ["gcc-mingw-w64-x86-64", "wine64"];
/// Where Debian puts what its package `wine` starts.
const WINE: &str = "/usr/lib/wine/wine64";
const WINE_SERVER: &str = "/usr/lib/wine/wineserver64";
/// The source of a library that Windows has and Wine 8 lacks.
const PRIMITIVES: &str = "xtask/wine/bcryptprimitives.c";

/// All of lanes, and of cpu what hashes little: qemu takes ten times as long as a CPU.
const NEON_TESTS: [&str; 5] = [
    "lanes_are_their_rows",
    "instruction_set",
    "neon::toys_exhaustively",
    "neon::cached_layers_give_the_same_bytes",
    "neon::bad_batches_are_refused",
];
/// The engine's tests whose calls share devices or threads, in threads of rayon's.
const SHARING: [&str; 2] = ["scheduler::doubles", "scheduler::place"];
/// The features that lanes' tokens ask of an x86-64 CPU.
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
    target.map_err(|why| Stop::Skipped(format!("checked for this machine only; {why}")))?;
    Ok(format!("{BARE}, with and without pkcs8 and pem"))
}

/// The tool and its tests compile for Windows without a warning; in full, they run under Wine, and compile for macOS, which differs less from
/// Linux. No C compiler takes part in the former: what needs one is the kernels for the host, which are tests of other crates.
pub(crate) fn systems(tally: &mut Tally, extent: Extent) -> Step {
    let targets = if extent == Extent::Full { &[WINDOWS, MAC][..] } else { &[WINDOWS] };
    targets.iter().try_for_each(|target| process::ensure_target(target)).map_err(Stop::Skipped)?;
    let mut command = process::cargo(&["clippy", "--locked", "--release", "-p", "hypergrove-cli", "--all-targets"]);
    command.args(targets.iter().flat_map(|target| ["--target", target])).args(["--", "-D", "warnings"]);
    process::run(command)?;
    let compiled = format!("compiled for {}", targets.join(" and "));
    if extent == Extent::Usual {
        return Ok(compiled);
    }
    process::ensure_packages(&WINDOWS_PACKAGES, || answers(MINGW, &["--version"]) && Path::new(WINE).exists())
        .map_err(|why| Stop::Skipped(format!("{compiled}; {why}")))?;
    let prefix = wine_prefix()?;
    let mut command = process::limited(40, "cargo", &["test", "--release", "--no-fail-fast", "--target", WINDOWS]);
    command.args(["-p", "hypergrove-cli", "--", "--show-output"]);
    command
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", MINGW)
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", WINE);
    let result = process::run_tests(in_wine(command, &prefix), tally);
    let mut server = Command::new(WINE_SERVER);
    server.args(["--kill", "--wait"]);
    let _ = process::run(in_wine(server, &prefix));
    Ok(format!("{compiled}; {} tests under Wine", result?))
}

/// A new folder for Wine's Windows, with all that the tool needs there.
fn wine_prefix() -> Result<PathBuf, String> {
    let prefix = process::target().join("wine");
    disk::make_anew(&prefix)?;
    let prefix = prefix.canonicalize().map_err(|error| format!("{}: {error}", prefix.display()))?;
    process::run(in_wine(process::limited(5, WINE, &["wineboot", "--init"]), &prefix))?;
    let library = prefix.join("drive_c/windows/system32/bcryptprimitives.dll");
    if !library.exists() {
        let mut command = Command::new(MINGW);
        command.args(["-shared", "-O1", "-Wall", "-Werror", PRIMITIVES, "-o"]).arg(library).arg("-ladvapi32");
        process::run(command)?;
    }
    Ok(prefix)
}

/// Without a screen, and without the questions that a new prefix asks on one.
fn in_wine(mut command: Command, prefix: &Path) -> Command {
    command.env("WINEPREFIX", prefix).env("WINEDEBUG", "-all").env("WINEDLLOVERRIDES", "mscoree,mshtml=");
    command.env_remove("DISPLAY");
    command
}

/// NEON under qemu, where this machine has no NEON itself.
pub(crate) fn neon(tally: &mut Tally) -> Step {
    if cfg!(target_arch = "aarch64") {
        return Ok("this machine has NEON itself: see test".into());
    }
    process::ensure_target(ARM).and_then(|()| ensure_qemu()).map_err(Stop::Skipped)?;
    // One call, or the features of shared dependencies differ and lanes is compiled twice.
    let mut command = process::limited(15, "cargo", &["test", "--release", "--tests", "--target", ARM]);
    command.args(["-p", "hypergrove-lanes", "-p", "hypergrove-cpu", "--", "--show-output"]).args(NEON_TESTS);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("qemu-aarch64 -L {ARM_ROOT}"));
    let passed = process::run_tests(command, tally)?;
    Ok(format!("{passed} tests"))
}

pub(crate) fn ensure_qemu() -> Result<(), String> {
    let there = || {
        answers("qemu-aarch64", &["--version"])
            && answers("aarch64-linux-gnu-gcc", &["--version"])
            && Path::new(ARM_ROOT).join("lib/crt1.o").exists()
    };
    process::ensure_packages(&ARM_PACKAGES, there)
}

/// Sees to nightly with Miri and the sources of the standard library, or says how to get them.
pub(crate) fn ensure_nightly(there: impl Fn() -> bool) -> Result<(), String> {
    let new = ["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update"];
    let install = || {
        answers("rustup", &["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
            || answers("rustup", &[&new[..], &["--component", "miri", "--component", "rust-src"]].concat())
    };
    let how = "not all is there of what `rustup toolchain install nightly -c miri -c rust-src` would bring";
    process::ensure(there, install, || how.into())
}

/// Whether the standard library can be compiled anew.
pub(crate) fn has_sources() -> bool {
    let root = process::output("rustup", &["run", "nightly", "rustc", "--print", "sysroot"]);
    root.is_some_and(|root| Path::new(root.trim()).join("lib/rustlib/src/rust/library/std").exists())
}

/// The host logic, and lanes with the vectors that Miri knows, AVX-512 among them: for a CPU that lacks those this is the
/// only place where they run.
pub(crate) fn miri(tally: &mut Tally, extent: Extent) -> Step {
    ensure_nightly(|| answers("rustup", &["run", "nightly", "cargo", "miri", "--version"])).map_err(Stop::Skipped)?;
    let nightly = process::output("rustup", &["run", "nightly", "rustc", "--version"]).unwrap_or_default();
    // Once, or the runs below would make it at the same time.
    process::run(process::limited(5, "rustup", &["run", "nightly", "cargo", "miri", "setup"]))?;
    // Another target keeps the features from build scripts; under Miri a feature is there if it is compiled in.
    let test = ["run", "nightly", "cargo", "miri", "test", "--target", "x86_64-unknown-linux-gnu", "--all-features"];
    // Miri looks for what unsafe code does wrong. fips205 has none, so its own tests run in full only.
    let oracle = if extent == Extent::Full { &["-p", "hypergrove-fips205"][..] } else { &[] };
    let host = [oracle, &["-p", "hypergrove-engine", "--lib", "--"]].concat();
    // Miri would take hours for the hashes of the tests of plans and of known answers, and gives no program files.
    let [doubles, place] = SHARING;
    let skipped = ["plan::tests", "self_test::", "free_memory::", doubles, place].map(|name| ["--skip", name]).concat();
    let (sharing, host) = ([&host[..], &SHARING].concat(), [host, skipped].concat());
    let lanes = |name| ["-p", "hypergrove-lanes", "--test", name];
    let lattice = (extent == Extent::Full).then(|| lanes("lattice"));
    // Miri has one thread. A folder for each choice of features: neither replaces what the other is reading.
    let command = |packages: &[&str], folder, features| {
        let mut command = process::limited(40, "rustup", &[&test, packages].concat());
        command.env("CARGO_TARGET_DIR", process::target().join(folder)).env("RUSTFLAGS", features);
        command
    };
    let of_lanes =
        [lanes("agreement")].into_iter().chain(lattice).map(|test| command(&test, "miri-lanes", MIRI_FEATURES));
    // rayon's threads outlive their pools, and crossbeam, on which rayon stands, breaks the rules of stacked borrows.
    let mut sharing = command(&sharing, "miri-host", "");
    sharing.env("MIRIFLAGS", "-Zmiri-ignore-leaks -Zmiri-disable-stacked-borrows -Zmiri-permissive-provenance");
    let runs: Vec<Command> = of_lanes.chain([command(&host, "miri-host", ""), sharing]).collect();
    let passed = process::run_tests_concurrently(runs, tally)?;
    Ok(format!("{passed} tests, {}", nightly.trim()))
}
