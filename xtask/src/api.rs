//! The public items of the library's crates, as listings that are committed: a change to the interface shows in a commit.

use crate::process;
use crate::step::Step;
use crate::{disk, sources};
use public_api::Builder;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library, the crate of its file formats, and the crates whose items it gives on, with the features that tests alone have left out. Each crate has those too that
/// another of them asks for.
const CRATES: [(&str, &str); 6] = [
    ("hypergrove", "encryption"),
    ("hypergrove-files", ""),
    ("hypergrove-engine", ""),
    ("hypergrove-fips205", "std,encryption"),
    ("hypergrove-pem", ""),
    ("hypergrove-zkdilithium", ""),
];
const FOLDER: &str = "xtask/api";

/// CI's step.
pub(crate) fn check() -> Step {
    let mut faults = Vec::new();
    for (name, listing) in listings()? {
        let committed = disk::read(path(name))?;
        faults.extend(differences(&committed, &listing));
    }
    if !faults.is_empty() {
        faults.push("if the change is meant: `cargo xtask api`, and a line in CHANGELOG.md".into());
    }
    sources::verdict(&faults, &format!("{} crates", CRATES.len()))
}

/// The lines that are gone, then those that are new.
fn differences(old: &str, new: &str) -> Vec<String> {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = old.difference(&new).map(|line| format!("-{line}"));
    gone.chain(new.difference(&old).map(|line| format!("+{line}"))).collect()
}

/// Writes the listings.
pub(crate) fn write() -> Result<(), String> {
    disk::make(FOLDER)?;
    listings()?.into_iter().try_for_each(|(name, listing)| disk::write(path(name), listing))
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}.txt")
}

fn listings() -> Result<Vec<(&'static str, String)>, String> {
    let folder = describe()?;
    let json = |name: &str| folder.join(format!("{}.json", name.replace('-', "_")));
    CRATES.into_iter().map(|(name, _)| Ok((name, listing(&json(name))?))).collect()
}

/// Tells this program to be rustdoc.
const IS_RUSTDOC: &str = "XTASK_IS_RUSTDOC";

/// Has Cargo take this program for rustdoc, so that rustdoc takes unstable options: the pinned compiler takes them here, so that all machines get the
/// same and none needs nightly. This program lets rustdoc alone take them: build scripts that see the setting make other packages, and all of those
/// would be checked again.
pub(crate) fn allow_unstable_rustdoc(cargo: &mut Command) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    cargo.env("RUSTDOC", program).env(IS_RUSTDOC, "1");
    Ok(())
}

/// If Cargo has started this program as rustdoc: whether rustdoc has done what the arguments say.
pub(crate) fn as_rustdoc() -> Option<bool> {
    std::env::var_os(IS_RUSTDOC)?;
    let mut rustdoc = Command::new("rustdoc");
    let status = rustdoc.env("RUSTC_BOOTSTRAP", "1").args(std::env::args_os().skip(1)).status();
    Some(status.inspect_err(|error| eprintln!("error: rustdoc: {error}")).is_ok_and(|status| status.success()))
}

/// Makes rustdoc's descriptions of the crates in one call, which checks once what they depend on; the folder that they are in. Only unstable
/// options give descriptions.
fn describe() -> Result<PathBuf, String> {
    let mut command: Command = process::cargo(&["doc", "--quiet", "--locked", "--release", "--lib", "--no-deps"]);
    for (name, features) in CRATES {
        command.args(["-p", name]);
        command.args(features.split_terminator(',').flat_map(|of| ["--features".into(), format!("{name}/{of}")]));
    }
    allow_unstable_rustdoc(&mut command)?;
    command.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    process::run(command)?;
    Ok(process::target().join("doc"))
}

/// One item a line, without what the compiler derives.
fn listing(json: &Path) -> Result<String, String> {
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .sorted(true)
        .build()
        .map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_change_is_what_is_gone_and_what_is_new() {
        assert!(differences("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b()\n").is_empty());
        let changed = differences("pub fn a()\npub fn b()\n", "pub fn a(u32)\npub fn b()\npub fn c()\n");
        assert_eq!(changed, ["-pub fn a()", "+pub fn a(u32)", "+pub fn c()"]);
    }
}
