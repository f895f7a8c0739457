//! The GPU kernels without a GPU: compiled by NVRTC out of PyPI's wheel, and read by the host's C++ compiler.

use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, Tally, ensure};
use crate::wheels::{self, Wheel};
use crate::{disk, tests};
use hypergrove_fips205::Family;
use hypergrove_kernels::family_number;
use std::path::PathBuf;
use std::process::Command;

const WHEEL: &Wheel = &Wheel { what: "NVRTC", name: "nvrtc", pinned: "xtask/nvrtc.txt", megabytes: 90 };
/// The library's folder in it.
const LIBRARIES: &str = "nvidia/cu13/lib";
/// How the names of tests that need NVRTC begin, and their lines about what they skip.
const TESTS: &str = "nvrtc";

/// Parameters and variables that only some kernels use are no fault of a macro or a header.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-but-set-variable"];

pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    let host = host()?;
    let libraries = ensure_nvrtc().map_err(|why| Stop::Skipped(format!("{host}; not for devices: {why}")))?;
    let mut command = tests::command(&["--lib", TESTS]);
    if extent == Extent::Full {
        command.env("HYPERGROVE_TESTS", "all");
    }
    let mut path = vec![libraries];
    path.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(path).map_err(|error| error.to_string())?);
    let mut own = Tally::default();
    let passed = process::run_tests(command, &mut own);
    let skipped = std::mem::take(&mut own.skipped);
    tally.add(own);
    let passed = passed?;
    if let Some(why) = skipped.iter().find(|what| what.starts_with(TESTS)) {
        return Err(format!("NVRTC was fetched, but {why}").into());
    }
    if passed < 2 {
        return Err(format!("of the tests called {TESTS}… only {passed} ran").into());
    }
    // The step `test` left these out for want of the library.
    tally.skipped.retain(|what| !what.starts_with(TESTS));
    Ok(format!("{host}; for devices by NVRTC"))
}

/// The kernels as host C++, without a warning.
fn host() -> Result<String, String> {
    let Some(compiler) = ["c++", "g++", "clang++"].into_iter().find(|name| answers(name, &["--version"])) else {
        return Ok("no C++ compiler, not read as host C++".into());
    };
    let generated = process::target().join("kernels");
    disk::make(&generated)?;
    for (name, text) in hypergrove_kernels::host_headers() {
        let path = generated.join(name);
        disk::write(&path, text)?;
    }
    for family in Family::ALL.iter().copied().map(family_number) {
        for n in [16, 24, 32] {
            let mut command = Command::new(compiler);
            command.args([
                "-std=c++17",
                "-fsyntax-only",
                "-Icrates/kernels",
                "-Icrates/kernels-host",
                "-DNAME=all",
                "-DIMAD=0",
                "-DUNROLLED=0",
            ]);
            command.args([format!("-DFAMILY={family}"), format!("-DN={n}")]).args(WARNINGS);
            command.arg("-I").arg(&generated).arg("crates/kernels-host/host/kernels.cpp");
            process::run(command)?;
        }
    }
    // zkDilithium's include what is generated: the crate's tests, which run them, compile them.
    Ok(format!("read by {compiler}"))
}

/// The folder with the library, after fetching the wheel if that may be.
pub(crate) fn ensure_nvrtc() -> Result<PathBuf, String> {
    let libraries = wheels::ensure(WHEEL)?.join(LIBRARIES);
    ensure!(libraries.is_dir(), "the wheel has no {LIBRARIES}");
    Ok(libraries)
}
