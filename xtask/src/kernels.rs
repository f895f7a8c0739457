//! The GPU kernels without a GPU: compiled by NVRTC out of PyPI's wheel, and read by the host's C++ compiler.

use crate::process::{self, Outcome, Step, Tally, answers, may_install};
use crate::tests;
use hypergrove_fips205::Family;
use hypergrove_kernels::family_number;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wheel's version and checksums, for pip: x86-64's and aarch64's.
const WHEEL: &str = "xtask/nvrtc.txt";
/// The library's folder in it.
const LIBRARIES: &str = "nvidia/cu13/lib";
/// What tests that need NVRTC begin with, and what they say that they skip.
const TESTS: &str = "nvrtc";

/// Parameters and variables that only some kernels use are no fault of a macro or a header.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-but-set-variable"];

pub(crate) fn check(tally: &mut Tally) -> Step {
    let host = host()?;
    let libraries = match ensure_nvrtc() {
        Ok(libraries) => libraries,
        Err(why) => return Ok(Outcome::Skipped(format!("{host}; not for devices: {why}"))),
    };
    let mut command = tests::command(&["--lib", TESTS]);
    let mut path = vec![libraries];
    path.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(path).map_err(|error| error.to_string())?);
    let mut own = Tally::default();
    let result = process::run_tests(command, &mut own);
    let (passed, skipped) = (own.passed, std::mem::take(&mut own.skipped));
    tally.add(own);
    result?;
    if let Some(why) = skipped.iter().find(|what| what.starts_with(TESTS)) {
        return Err(format!("NVRTC was fetched, but {why}"));
    }
    if passed < 2 {
        return Err(format!("of the tests called {TESTS}… only {passed} ran"));
    }
    // What `test` left out for want of the library.
    tally.skipped.retain(|what| !what.starts_with(TESTS));
    Ok(Outcome::Passed(format!("{host}; for devices by NVRTC")))
}

/// The kernels as host C++, without a warning.
fn host() -> Result<String, String> {
    let Some(compiler) = ["c++", "g++", "clang++"].into_iter().find(|name| answers(name, &["--version"])) else {
        return Ok("no C++ compiler, not read as host C++".into());
    };
    let generated = process::target().join("kernels");
    fs::create_dir_all(&generated).map_err(|error| format!("{}: {error}", generated.display()))?;
    for (name, text) in hypergrove_kernels::host_headers() {
        let path = generated.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for family in Family::ALL.iter().copied().map(family_number) {
        for n in [16, 24, 32] {
            let mut command = Command::new(compiler);
            command.args(["-std=c++17", "-fsyntax-only", "-Icrates/kernels", "-DNAME=all", "-DIMAD=0", "-DUNROLLED=0"]);
            command.args([format!("-DFAMILY={family}"), format!("-DN={n}")]).args(WARNINGS);
            command.arg("-I").arg(&generated).arg("crates/kernels/host/kernels.cpp");
            process::run(command)?;
        }
    }
    // zkDilithium's include what is generated: the crate's tests, which run them, compile them.
    Ok(format!("read by {compiler}"))
}

/// The folder with the library, after fetching the wheel if that may be.
fn ensure_nvrtc() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err("NVRTC's pinned wheels are for Linux on x86-64 and aarch64".into());
    }
    let text = fs::read_to_string(WHEEL).map_err(|error| format!("{WHEEL}: {error}"))?;
    let version = text.split_once("==").and_then(|(_, rest)| rest.split_whitespace().next());
    let version = version.ok_or_else(|| format!("{WHEEL}: no version"))?;
    let target = process::target();
    let folder = target.join(format!("nvrtc-{version}"));
    let libraries = folder.join(LIBRARIES);
    if libraries.is_dir() {
        return Ok(libraries);
    }
    if !may_install() {
        return Err(format!("no NVRTC: with CI=true it is fetched (90 MB of PyPI) to {}", target.display()));
    }
    fetch(&folder)?;
    match libraries.is_dir() {
        true => Ok(libraries),
        false => Err(format!("the wheel has no {LIBRARIES}")),
    }
}

/// pip checks the checksums. Whole or not at all: what an earlier run left half done is begun again.
fn fetch(folder: &Path) -> Result<(), String> {
    let beside = |name| folder.with_file_name(format!("nvrtc-{name}"));
    let (new, environment) = (beside("new"), beside("venv"));
    let remove = |path: &Path| match fs::remove_dir_all(path) {
        Err(error) if path.exists() => Err(format!("{}: {error}", path.display())),
        _ => Ok(()),
    };
    remove(&new)?;
    // Debian's Python alone has neither pip nor what makes one.
    let fetches =
        |name: &&str| answers(name, &["-m", "pip", "--version"]) || answers(name, &["-c", "import ensurepip"]);
    let find = || ["python3", "python"].into_iter().find(fetches);
    process::ensure_packages(&["python3-venv"], || find().is_some())?;
    let python = find().ok_or("no Python, whose pip fetches NVRTC")?;
    let pip = match answers(python, &["-m", "pip", "--version"]) {
        true => python.to_owned(),
        false => {
            let place = environment.to_string_lossy().into_owned();
            process::run(process::limited(2, python, &["-m", "venv", "--clear", &place]))
                .map_err(|why| format!("no pip to fetch NVRTC with, nor venv: {why}"))?;
            environment.join("bin/python").to_string_lossy().into_owned()
        }
    };
    let place = new.to_string_lossy().into_owned();
    let mut install = vec!["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"];
    install.extend(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target", &place, "-r", WHEEL]);
    process::fetch(|| process::limited(5, &pip, &install))
        .map_err(|_| "pip could not fetch NVRTC, as it says above")?;
    remove(&environment)?;
    fs::rename(&new, folder).map_err(|error| format!("{}: {error}", folder.display()))
}
