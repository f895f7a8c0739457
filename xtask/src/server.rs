//! The signing service, which has a workspace, a lock file and a target folder of its own.

use crate::process::{self, answers};
use crate::step::{Extent, Step, Tally, ensure};
use crate::toolchain::Toolchain;
use crate::{disk, install};
use std::path::Path;
use std::process::Command;

const NAME: &str = "hypergrove-server";
/// The unit is written for a service that was installed by hand.
const BY_HAND: &str = "/usr/local/bin/";
pub(crate) const MANIFEST: &str = "server/Cargo.toml";

/// Clients of Vault need these: hvac always, node-vault and spring-vault-core in full.
const PYTHON: [&str; 1] = ["python3-venv"];
const NODE_AND_JAVA: [&str; 4] = ["nodejs", "npm", "default-jdk-headless", "maven"];

/// CI's step: no warning, and all of its tests.
pub(crate) fn check(tally: &mut Tally, extent: Extent) -> Step {
    let mut command = command(extent);
    // Whatever is lacking, the tests of the clients say so.
    let _ = process::ensure_packages(&PYTHON, || answers("python3", &["-c", "import ensurepip"]));
    if extent == Extent::Full {
        let there = || ["npm", "java", "mvn"].iter().all(|program| answers(program, &["--version"]));
        let _ = process::ensure_packages(&NODE_AND_JAVA, there);
        command.env("HYPERGROVE_SERVER_TESTS", "all").env("HYPERGROVE_SERVER_KILLS", "1000");
        command.env("HYPERGROVE_SERVER_REQUESTS", "1000000").env("HYPERGROVE_SERVER_FUZZ", "60");
    }
    let passed = process::run_tests(command, tally)?;
    Ok(format!("{passed} tests"))
}

/// The service and its systemd unit, for the Debian package.
pub(crate) fn install(usr: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let made = toolchain.build(&["--manifest-path", MANIFEST], NAME)?;
    let program = made.iter().find(|file| file.file_name().is_some_and(|name| name == NAME));
    disk::copy(
        program.ok_or_else(|| format!("Cargo names no program of {MANIFEST}"))?,
        install::place(usr, &format!("bin/{NAME}"))?,
    )?;
    let unit = disk::read(Path::new("server").join(format!("{NAME}.service")))?;
    ensure!(unit.contains(BY_HAND), "server/{NAME}.service names no program in {BY_HAND}");
    disk::write(install::place(usr, &format!("lib/systemd/system/{NAME}.service"))?, unit.replace(BY_HAND, "/usr/bin/"))
}

/// Makes the folder above a release's source the root of the service's workspace. Cargo hashes the whole path of a crate that lies outside of the root's
/// folder into the names of symbols, and outside of `server` lie all crates of ours: the service's bytes would depend on the folder.
pub(crate) fn widen_workspace(source: &Path) -> Result<(), String> {
    const PARTS: [&str; 3] = ["[workspace]\n", "[package]\n", "\n[profile."];
    let manifest = source.join(MANIFEST);
    let text = disk::read(&manifest)?;
    if let Some(lacking) = PARTS.iter().find(|part| !text.contains(*part)) {
        return Err(format!("{MANIFEST} lacks '{}'", lacking.trim()));
    }
    let [workspace, package, profiles] = PARTS;
    let (own, rest) = text.split_at(text.find(profiles).unwrap_or(text.len()));
    if let Some(line) = rest.lines().find(|line| line.starts_with('[') && !line.starts_with("[profile.")) {
        return Err(format!("{MANIFEST} has '{line}' behind its profiles; put it before them"));
    }
    let (above, name) = source.parent().zip(source.file_name()).ok_or("a source without a folder")?;
    let name = name.to_string_lossy();
    let root =
        format!("{workspace}resolver = \"3\"\nmembers = [\"{name}/server\"]\nexclude = [\"{name}/crates\"]\n{rest}");
    disk::write(above.join("Cargo.toml"), root)?;
    disk::copy(source.join("server/Cargo.lock"), above.join("Cargo.lock"))?;
    let member = format!("{package}workspace = \"../..\"\n");
    disk::write(&manifest, own.replacen(workspace, "", 1).replacen(package, &member, 1))
}

/// Compiles and tests the service: in full as it is shipped, otherwise in a profile that optimises only what hashes. A signature takes seconds without
/// optimisation. Clippy is the compiler of the service itself, so that the packages that it depends on are not checked by clippy and compiled for the
/// tests as well.
fn command(extent: Extent) -> Command {
    let profile = if extent == Extent::Full { "release" } else { "quick" };
    let mut command = process::cargo(&["test", "--locked", "--profile", profile, "--no-fail-fast"]);
    command.args(["--manifest-path", MANIFEST]);
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("RUSTFLAGS", "-D warnings");
    command.args(["--", "--show-output"]).env("CARGO_TARGET_DIR", process::target().join("server"));
    command
}
