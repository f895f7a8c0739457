//! CI's step `dist`: a candidate is built twice, and installed where users are.

use super::{ALL, ARCH, ARCHITECTURES, Build, RELEASE, Request, SUMS, name_of, size, throwaway_public, verify};
use crate::process::{self, answers};
use crate::step::{Step, Stop, Tally, ensure};
use crate::toolchain::Toolchain;
use crate::{capi, deb, disk, foreign, python};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The architecture that qemu runs here.
const FOREIGN: &str = ARCHITECTURES[1];
/// The release of Debian whose Python qemu runs, and that Python.
const FOREIGN_SUITE: &str = "bookworm";
const FOREIGN_PYTHON: &str = "3.11";
/// Platforms whose wheels pip fetches for it: pip knows no order among those of another architecture.
const FOREIGN_PLATFORMS: [&str; 3] = ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"];
/// Those tests of the package that start no other program and ask for no other package.
const FOREIGN_TESTS: [&str; 2] = ["crates/py/tests/test_keys.py", "crates/py/tests/test_vectors.py"];

/// Debian's releases in which the packages are installed.
const SUITES: [(&str, &str); 2] = [("12", "bookworm"), ("13", "trixie")];

/// CI's step.
pub(crate) fn step(tally: &mut Tally) -> Step {
    let candidate = || {
        let target = if process::ensure_target(foreign::ARM).is_ok() { ALL } else { ARCH };
        Request { is_candidate: true, target: target.into(), key: None }
    };
    let build = Build::prepare(candidate(), "dist-build").map_err(Stop::Skipped)?;
    let dist = process::target().join("dist");
    build.make(&dist)?;
    let sizes = disk::entries(&dist)?.iter().map(|file| size(file)).collect::<Result<Vec<_>, _>>()?;
    let mut notes = vec![format!("{} files of {} bytes", sizes.len(), sizes.iter().sum::<u64>())];
    notes.push(in_environment(&build, &dist)?);
    notes.push(with_compiler(&build, &dist)?);
    notes.push(under_qemu(&build, &dist, tally)?);
    for (number, suite) in SUITES {
        notes.push(match in_root(&dist, suite)? {
            Ok(seconds) => format!("Debian {number}: a verified signature {seconds:.1} s after the empty root"),
            Err(why) => format!("NOT in Debian {number}: {why}"),
        });
    }
    let other = process::target().join("dist-another");
    let again = Build::prepare(candidate(), "dist-build-in-another-folder")?;
    again.make(&other)?;
    let [ours, others] = [&dist, &other].map(|folder| disk::read(folder.join(SUMS)));
    let (ours, others) = (ours?, others?);
    if ours != others {
        let line = others.lines().find(|line| !ours.lines().any(|our| our == *line));
        let line = line.unwrap_or("fewer files");
        return Err(format!("a build in another folder gives other bytes: {line}").into());
    }
    notes.push(format!("{} files built twice with equal bytes", others.lines().count()));
    disk::remove(&again.work)?;
    Ok(notes.join("; "))
}

/// The environment of Python that [`in_environment`] makes.
fn environment(build: &Build) -> PathBuf {
    build.work.join("venv")
}

/// pip installs the wheels in an empty environment; the tool and the package work there.
fn in_environment(build: &Build, dist: &Path) -> Result<String, String> {
    let (python, folder) = (python::interpreter()?, environment(build));
    process::run(process::limited(2, python, &["-m", "venv", "--clear", &folder.to_string_lossy()]))?;
    let program = |name: &str| folder.join("bin").join(name);
    let in_venv = |words: &[&str]| process::limited(5, &program("python").to_string_lossy(), words);
    let projects = ["hypergrove", "hypergrove-tool"].map(|name| format!("{name}=={}", build.versions.python));
    process::run(in_venv(&["-m", "pip", "--quiet", "install", "--no-index", "--find-links"]).arg(dist).args(projects))?;
    process::run(in_venv(&["-m", "hypergrove", "quickstart"]))?;
    let tool = program("hypergrove");
    let version = process::text(Command::new(&tool).arg("--version"))?;
    ensure!(version.contains(RELEASE), "the tool of the wheel reports '{version}'");
    deb::sign_and_verify(|| Command::new(&tool), &build.work.join("tried"))?;
    verify(&tool, &dist.join(throwaway_public(&build.versions)), dist)?;
    Ok("wheels installed by pip".into())
}

/// The C library's archive is unpacked, and programs are linked with it; OpenSSL loads the provider.
fn with_compiler(build: &Build, dist: &Path) -> Result<String, String> {
    let name = format!("libhypergrove-{}-linux-{ARCH}", build.versions.files);
    let folder = build.work.join("unpacked");
    disk::make_anew(&folder)?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(dist.join(format!("{name}.tar.gz"))).arg("--directory").arg(&folder);
    process::run(unpack)?;
    let note = capi::check_installed(&folder.join(name))?;
    if !answers("openssl", &["version"]) {
        return Ok(format!("{note}, provider NOT loaded: there is no openssl"));
    }
    let modules = build.stage().join(ARCH).join(format!("hypergrove-openssl/usr/lib/{ARCH}-linux-gnu/ossl-modules"));
    let mut list = Command::new("openssl");
    // OpenSSL loads a provider as soon as it reads its name: the folder comes first.
    list.args(["list", "-providers", "-provider-path"]).arg(modules).args(["-provider", "hypergrove"]);
    match process::text(list)? {
        text if text.contains("hypergrove") => Ok(format!("{note}, provider loaded by OpenSSL")),
        text => Err(format!("openssl lists no provider hypergrove: {text}")),
    }
}

/// The tool and the wheel for aarch64 under qemu.
fn under_qemu(build: &Build, dist: &Path, tally: &mut Tally) -> Result<String, String> {
    if ARCH == FOREIGN || !build.request.architectures().any(|name| name == FOREIGN) {
        return Ok("no files for another architecture".into());
    }
    if let Err(why) = foreign::ensure_qemu() {
        return Ok(format!("{FOREIGN} NOT run: {why}"));
    }
    let tool = build.stage().join(FOREIGN).join("hypergrove/usr/bin/hypergrove");
    let mut quickstart = process::limited(10, "qemu-aarch64", &["-L", foreign::ARM_ROOT, &tool.to_string_lossy()]);
    quickstart.args(["quickstart", "server/debian"]);
    process::run(quickstart)?;
    let root = build.work.join("root-of-another-architecture");
    if let Err(why) = bootstrap(&root, FOREIGN_SUITE, &["--foreign", "--arch=arm64", "--include=python3"])? {
        return Ok(format!("the tool for {FOREIGN} run under qemu, its wheel NOT: {why}"));
    }
    // debootstrap itself would have programs of the root unpack what is not of the base, which takes long.
    let archives = disk::entries(root.join("var/cache/apt/archives"))?;
    for package in archives.iter().filter(|file| file.extension() == Some("deb".as_ref())) {
        process::run(process::limited(2, "dpkg", &["--extract", &package.to_string_lossy(), &root.to_string_lossy()]))?;
    }
    let packages = root.join("srv");
    let python = environment(build).join("bin/python");
    let words = ["-m", "pip", "--quiet", "install", "--only-binary=:all:"];
    let mut install = process::limited(10, &python.to_string_lossy(), &words);
    install.args(["--python-version", FOREIGN_PYTHON, "--target"]).arg(&packages);
    install.args(FOREIGN_PLATFORMS.iter().flat_map(|platform| ["--platform", platform]));
    let is_it = |file: &&PathBuf| {
        name_of(file).starts_with("hypergrove-")
            && name_of(file).ends_with(&format!("abi3-{}.whl", FOREIGN_PLATFORMS[0]))
    };
    install
        .arg(disk::entries(dist)?.iter().find(is_it).ok_or("no wheel for aarch64")?)
        .args(python::packages_of_tests()?);
    process::run(install)?;
    let interpreter = root.join("usr/bin/python3");
    let mut pytest = process::limited(20, "qemu-aarch64", &["-L", &root.to_string_lossy()]);
    pytest.arg(interpreter).args(["-m", "pytest", "--quiet"]).args(FOREIGN_TESTS);
    pytest.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
    let passed = process::run_tests(pytest, tally)?;
    disk::remove(&root)?;
    Ok(format!("the tool for {FOREIGN}, and {passed} tests of its wheel, run under qemu"))
}

/// Makes a root of a release of Debian in an empty folder; or why there is none.
fn bootstrap(root: &Path, suite: &str, options: &[&str]) -> Result<Result<(), String>, String> {
    if !process::is_root() {
        return Ok(Err("debootstrap is for root alone".into()));
    }
    if let Err(why) = process::ensure_packages(&["debootstrap"], || answers("debootstrap", &["--version"])) {
        return Ok(Err(why));
    }
    disk::make_anew(root)?;
    let mut command = process::limited(15, "debootstrap", &["--variant=minbase"]);
    command.args(options).arg(suite).arg(root);
    Ok(process::run(command).map_err(|_| format!("debootstrap could not fetch {suite}, as it says above")))
}

/// Installs the Debian packages in an empty root without a compiler, signs, verifies, and removes them: the seconds from the root to the
/// verified signature, or why there is no root.
fn in_root(dist: &Path, suite: &str) -> Result<Result<f64, String>, String> {
    let root = process::target().join("dist-root").join(suite);
    if let Err(why) = bootstrap(&root, suite, &[])? {
        return Ok(Err(why));
    }
    let script = |text: &str| {
        let mut command = process::limited(10, "chroot", &[&root.to_string_lossy(), "sh", "-ec", text]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        process::run(command)
    };
    script("for name in cc gcc clang rustc cargo; do if command -v $name; then exit 1; fi; done")
        .map_err(|why| format!("the root of {suite} has a compiler: {why}"))?;
    let usr = root.join("usr");
    let before = deb::files(&usr)?;
    let new =
        || Ok::<_, String>(deb::files(&usr)?.into_iter().filter(|file| !before.contains(file)).collect::<Vec<_>>());
    let architecture = Toolchain::of_machine().architecture_of_debian();
    for file in disk::entries(dist)?.iter().filter(|file| name_of(file).ends_with(&format!("_{architecture}.deb"))) {
        disk::copy(file, root.join("srv").join(name_of(file)))?;
    }
    let start = Instant::now();
    script("dpkg --install /srv/*.deb")?;
    script(
        "cd /srv; hypergrove keygen --set SLH-DSA-SHA2-128f -o key --pubout public; echo message > message; \
         hypergrove sign --key key message; hypergrove verify --key public message",
    )?;
    let seconds = start.elapsed().as_secs_f64();
    deb::look_at(&new()?)?;
    let names = deb::PACKAGES.map(|package| package.name).join(" ");
    script(&format!(
        "hypergrove --version | grep -F {RELEASE}; hypergrove-server --version; getent passwd hypergrove-server"
    ))?;
    script(&format!("dpkg --verify {names}; dpkg --purge {names}"))?;
    if let Some(left) = new()?.first() {
        return Err(format!("dpkg has removed the packages, and {} is left", left.display()));
    }
    disk::remove(&root)?;
    Ok(Ok(seconds))
}
