//! The Python package: built, installed where nothing else is, tested, and its types checked.

use crate::disk;
use crate::process::{self, answers, output};
use crate::step::{Extent, Step, Stop, Tally};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Versions of what builds and tests the package.
const REQUIREMENTS: &str = "crates/py/requirements.txt";
/// A full run's additional packages: another type checker, and Spark.
const IN_FULL: &str = "crates/py/requirements-full.txt";
/// The oldest Python that the package is for, and what it takes to make environments.
const USABLE: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
/// A test that needs no other package: the examples of the modules' own documentation.
const ALONE: &str = "import doctest, hypergrove, sys
for module in (hypergrove, hypergrove.zkdilithium):
    result = doctest.testmod(module)
    sys.exit(1) if result.failed or not result.attempted else None";
/// A Python without a GIL, of a release for which PyO3 is made, and what it takes to make environments.
const FREE_THREADED: &str = "import sys, sysconfig, venv, ensurepip
sys.exit(not sysconfig.get_config_var('Py_GIL_DISABLED') or sys.version_info < (3, 14))";
/// The package takes no GIL back.
const STAYS_FREE: &str = "import hypergrove, sys; sys.exit(sys._is_gil_enabled())";
/// The packages that run the tests; types are checked once.
const OF_TESTS: [&str; 4] = ["hypothesis", "numpy", "pyarrow", "pytest"];
/// Finds an environment's packages.
const PACKAGES: &str = "import sysconfig; print(sysconfig.get_path('purelib'))";

/// CI's step.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    let place = Place::find().map_err(Stop::Skipped)?;
    if extent == Extent::Full {
        place.fetch(IN_FULL)?;
    }
    let passed = place.test(tally, extent == Extent::Full)?;
    place.types()?;
    let mut also = "mypy and stubtest".to_owned();
    if extent == Extent::Full {
        place.types_by_pyright()?;
        place.install_from_source()?;
        also = format!("mypy, stubtest and pyright; pip install .; {}", place.test_free_threaded(tally)?);
    }
    Ok(format!("{passed} tests of a wheel in an empty environment; types by {also}"))
}

/// The tests alone, for `cargo xtask test`; or why there are none.
pub(crate) fn test(tally: &mut Tally) -> Result<(), String> {
    match Place::find() {
        Ok(place) => place.test(tally, false).map(drop),
        Err(why) => {
            tally.skipped.insert(format!("the Python package: {why}"));
            Ok(())
        }
    }
}

/// A Python for which the package is, and which makes environments.
pub(crate) fn interpreter() -> Result<&'static str, String> {
    let usable = |name: &&str| answers(name, &["-c", USABLE]);
    let find = || ["python3", "python3.13", "python3.12", "python3.11"].into_iter().find(usable);
    process::ensure_packages(&["python3-venv"], || find().is_some())
        .map_err(|why| format!("no Python of release 3.11 or newer with venv: {why}"))?;
    find().ok_or("no Python".into())
}

/// An interpreter, and a folder with environments made by it.
struct Place {
    python: &'static str,
    folder: PathBuf,
}

impl Place {
    fn find() -> Result<Place, String> {
        let place = Place { python: interpreter()?, folder: process::target().join("python") };
        place.ensure_tools()?;
        Ok(place)
    }

    /// The program of an environment.
    fn program(&self, environment: &str, name: &str) -> PathBuf {
        let folder = if cfg!(windows) { "Scripts" } else { "bin" };
        self.folder.join(environment).join(folder).join(name)
    }

    fn run(&self, environment: &str, minutes: u32, arguments: &[&str]) -> Result<(), String> {
        process::run(self.command(environment, minutes, arguments))
    }

    fn command(&self, environment: &str, minutes: u32, arguments: &[&str]) -> Command {
        let mut command = process::limited(minutes, &self.program(environment, "python").to_string_lossy(), arguments);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command
    }

    fn make(&self, environment: &str) -> Result<(), String> {
        let place = self.folder.join(environment);
        process::run(process::limited(2, self.python, &["-m", "venv", "--clear", &place.to_string_lossy()]))
    }

    /// Tools in an environment of their own, made anew where the pinned versions have changed.
    fn ensure_tools(&self) -> Result<(), String> {
        let wanted = disk::read(REQUIREMENTS)?;
        let stamp = self.folder.join("tools").join("requirements.txt");
        if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted)
            && answers(&self.tool(), &["-c", "import pytest"])
        {
            return Ok(());
        }
        self.make("tools")?;
        self.fetch(REQUIREMENTS)?;
        disk::write(&stamp, wanted)
    }

    fn fetch(&self, list: &str) -> Result<(), String> {
        // No wheel of pyspark is published.
        let wheels = ["--only-binary=:all:", "--no-binary=pyspark"];
        let install = [&["-m", "pip", "--quiet", "--no-input", "install"], &wheels[..], &["-r", list]].concat();
        process::fetch(|| self.command("tools", 10, &install))
            .map_err(|_| format!("pip could not fetch what {list} lists, as it says above"))
    }

    fn tool(&self) -> String {
        self.program("tools", "python").to_string_lossy().into_owned()
    }

    /// Builds a wheel for an interpreter.
    fn wheel(&self, folder: &str, interpreter: &str) -> Result<PathBuf, String> {
        let wheels = self.folder.join(folder);
        disk::remove(&wheels)?;
        let build = ["-m", "maturin", "build", "--quiet", "--release", "--locked", "--interpreter", interpreter];
        let mut command = self.command("tools", 20, &build);
        command.arg("--out").arg(&wheels);
        if std::env::var_os("HYPERGROVE_NVCC").is_none() {
            command.env("HYPERGROVE_NVCC", "none");
        }
        process::run(command)?;
        only_file(&wheels)
    }

    /// The tests with a Python without a GIL, where there is one; what was done, or why it was not.
    fn test_free_threaded(&self, tally: &mut Tally) -> Result<String, String> {
        let is_free = |name: &&str| answers(name, &["-c", FREE_THREADED]);
        let Some(python) = ["python3.14t", "python3.15t", "python3"].into_iter().find(is_free) else {
            let why = "no Python of release 3.14 or newer without a GIL (python3.14t)";
            tally.skipped.insert(format!("the Python package, free-threaded: {why}"));
            return Ok(format!("free-threaded NOT TESTED: {why}"));
        };
        let wheel = self.wheel("wheels-free", python)?;
        let free = Place { python, folder: self.folder.clone() };
        free.make("free")?;
        let packages = packages_of_tests()?;
        let mut install = vec!["-m", "pip", "--quiet", "--no-input", "install", "--only-binary=:all:"];
        install.extend(packages.iter().map(String::as_str));
        process::fetch(|| free.command("free", 10, &install)).map_err(|_| "pip could not fetch the tests' packages")?;
        free.run("free", 2, &["-m", "pip", "--quiet", "install", "--no-index", &wheel.to_string_lossy()])?;
        free.run("free", 2, &["-c", STAYS_FREE]).map_err(|why| format!("the package takes the GIL back: {why}"))?;
        let passed = process::run_tests(free.command("free", 20, &["-m", "pytest", "--quiet"]), tally)?;
        Ok(format!("{passed} tests without a GIL"))
    }

    /// Builds a wheel, installs it where nothing else is, and tests it there; how many tests passed.
    fn test(&self, tally: &mut Tally, is_whole: bool) -> Result<u64, String> {
        let wheel = self.wheel("wheels", &self.tool())?;
        self.make("venv")?;
        self.run("venv", 2, &["-m", "pip", "--quiet", "install", "--no-index", &wheel.to_string_lossy()])?;
        self.run("venv", 2, &["-c", ALONE])?;
        // From here on, its Python finds the tools too.
        let packages = |environment: &str| {
            let python = self.program(environment, "python").to_string_lossy().into_owned();
            output(&python, &["-c", PACKAGES]).map(|path| path.trim().to_owned())
        };
        let (own, tools) = packages("venv").zip(packages("tools")).ok_or("an environment without packages")?;
        let link = Path::new(&own).join("tools.pth");
        disk::write(&link, tools + "\n")?;
        let mut pytest = self.command("venv", if is_whole { 45 } else { 15 }, &["-m", "pytest", "--quiet"]);
        if is_whole {
            pytest.env("HYPOTHESIS_PROFILE", "full").env("HYPERGROVE_TESTS", "all");
        }
        process::run_tests(pytest, tally)
    }

    /// The stubs: that they say what the package has, and that checkers take them and whoever uses them.
    fn types(&self) -> Result<(), String> {
        let stubtest = ["-m", "mypy.stubtest", "hypergrove", "--ignore-unused-allowlist"];
        // With the settings of mypy: without them it would read the types of all data engines.
        let settings = ["--allowlist", "crates/py/tests/stubtest.txt", "--mypy-config-file", "pyproject.toml"];
        self.run("venv", 5, &[&stubtest[..], &settings].concat())?;
        self.run("venv", 5, &["-m", "mypy"])
    }

    fn types_by_pyright(&self) -> Result<(), String> {
        let python = self.program("venv", "python").to_string_lossy().into_owned();
        self.run("venv", 5, &["-m", "pyright", "--warnings", "--pythonpath", &python])
    }

    /// The one command for users of the sources.
    fn install_from_source(&self) -> Result<(), String> {
        self.make("source")?;
        self.run("source", 30, &["-m", "pip", "--quiet", "install", "."])?;
        self.run("source", 2, &["-c", ALONE])
    }
}

/// The packages that run the tests, with their versions, for pip.
pub(crate) fn packages_of_tests() -> Result<Vec<String>, String> {
    let is_of_tests = |line: &&str| OF_TESTS.iter().any(|name| line.split("==").next() == Some(name));
    Ok(disk::read(REQUIREMENTS)?.lines().filter(is_of_tests).map(str::to_owned).collect())
}

fn only_file(folder: &Path) -> Result<PathBuf, String> {
    let files = disk::entries(folder)?;
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => Err(format!("{}: {} files, where one wheel was to be", folder.display(), files.len())),
    }
}
