//! The compilers of the programs and libraries that users install: this machine's, or for a release Zig's, which links for an old glibc.

use crate::{disk, process, supply_chain};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The glibc of RHEL 8 and of the wheels' tag manylinux_2_28. Debian 11 and Ubuntu 20.04 have newer ones.
pub(crate) const GLIBC: (u32, u32) = (2, 28);

/// Compiles for one architecture.
pub(crate) struct Toolchain {
    /// As Rust calls it.
    pub(crate) architecture: &'static str,
    /// The tool for this machine, if the toolchain compiles for another one.
    pub(crate) native_tool: Option<PathBuf>,
    release: Option<Release>,
}

/// A release's builds: where they read and write, so that they contain neither path nor time of the machine.
#[derive(Clone)]
pub(crate) struct Release {
    /// Has Zig, cargo-zigbuild and maturin.
    pub(crate) wheels: PathBuf,
    /// The unpacked source archive.
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// The time of the commit, in seconds.
    pub(crate) epoch: String,
}

impl Toolchain {
    pub(crate) fn of_machine() -> Toolchain {
        Toolchain { architecture: std::env::consts::ARCH, native_tool: None, release: None }
    }

    pub(crate) fn of_release(release: Release, architecture: &'static str, native_tool: Option<PathBuf>) -> Toolchain {
        Toolchain { architecture, native_tool, release: Some(release) }
    }

    /// Builds what `words` name: the files that Cargo makes of this target.
    pub(crate) fn build(&self, words: &[&str], target: &str) -> Result<Vec<PathBuf>, String> {
        let all = ["--release", "--locked"].iter().chain(words);
        let command = match &self.release {
            None => {
                let mut command = process::cargo(&["build"]);
                command.args(all);
                command
            }
            Some(release) => {
                let mut command = release.command("cargo-zigbuild")?;
                command.arg("zigbuild").args(all);
                command.args(["--target", &format!("{}.{}.{}", self.triple(), GLIBC.0, GLIBC.1)]);
                command
            }
        };
        process::made(command, target)
    }

    /// A wheel of the Python project in a folder, in the folder `out`.
    pub(crate) fn wheel(&self, project: &Path, interpreter: Option<&str>, out: &Path) -> Result<(), String> {
        let release = self.release.as_ref().ok_or("wheels are built of a release")?;
        let mut command = release.command("maturin")?;
        command.args(["build", "--quiet", "--release", "--locked", "--zig", "--compatibility"]);
        command.arg(format!("manylinux_{}_{}", GLIBC.0, GLIBC.1)).args(["--target", &self.triple()]);
        command.args(interpreter.iter().flat_map(|interpreter| ["--interpreter", interpreter]));
        command.arg("--out").arg(out).current_dir(project);
        process::run(command)
    }

    /// The C compiler, and the libraries that it has to name where gcc finds them alone.
    pub(crate) fn cc(&self) -> (Command, &'static [&'static str]) {
        match &self.release {
            None => (Command::new("cc"), &[]),
            Some(release) => {
                let mut command = Command::new(release.zig());
                command.args(["cc", "-target", &format!("{}-linux-gnu.{}.{}", self.architecture, GLIBC.0, GLIBC.1)]);
                // Zig links libunwind statically, where gcc links libgcc_s.
                (command, &["-lunwind"])
            }
        }
    }

    /// As Debian calls the architecture.
    pub(crate) fn architecture_of_debian(&self) -> &'static str {
        match self.architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    fn triple(&self) -> String {
        format!("{}-unknown-linux-gnu", self.architecture)
    }
}

impl Release {
    fn zig(&self) -> PathBuf {
        self.wheels.join("ziglang/zig")
    }

    /// A program of the wheels that runs Cargo.
    fn command(&self, program: &str) -> Result<Command, String> {
        let mut command = process::running_cargo(self.wheels.join("bin").join(program));
        let paths = [(&*self.source, "/hypergrove"), (&*self.target, "/hypergrove/target")];
        command.env("RUSTFLAGS", supply_chain::without_paths(&paths)?);
        command.env("CARGO_TARGET_DIR", &self.target).env("SOURCE_DATE_EPOCH", &self.epoch);
        command.env("CARGO_ZIGBUILD_ZIG_PATH", self.zig()).env("XDG_CACHE_HOME", self.target.join("cache"));
        Ok(command)
    }

    /// Packs a folder: names sorted, root as the owner and the commit's time, so that each build gives the same bytes.
    pub(crate) fn pack(&self, folder: &Path, to: &Path) -> Result<(), String> {
        let (parent, name) = folder.parent().zip(folder.file_name()).ok_or("a folder without a name")?;
        let mut tar = Command::new("tar");
        tar.args(["--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
        tar.arg(format!("--mtime=@{}", self.epoch)).arg("--use-compress-program=gzip -9n");
        tar.arg("--directory").arg(parent).arg("--create").arg("--file").arg(to).arg(name);
        process::run(tar)
    }

    /// The source archive of HEAD, which is then unpacked: everything else is built from the archive.
    pub(crate) fn archive(&self, name: &str, to: &Path) -> Result<(), String> {
        let (mut archive, mut gzip, mut unpack) = (Command::new("git"), Command::new("gzip"), Command::new("tar"));
        let tar = to.with_extension("");
        archive.args(["-c", "tar.umask=0022", "archive", "--format=tar", &format!("--prefix={name}/"), "--output"]);
        archive.arg(&tar).arg("HEAD");
        process::run(archive)?;
        gzip.arg("-9n").arg(&tar);
        process::run(gzip)?;
        disk::make_anew(&self.source)?;
        // Files get the time of now: Cargo would take those of an older commit for compiled.
        unpack.args(["--extract", "--touch", "--strip-components=1", "--file"]).arg(to);
        unpack.arg("--directory").arg(&self.source);
        process::run(unpack)
    }
}
