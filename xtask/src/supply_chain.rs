//! The supply chain: who vouches for the dependencies, which faults are known of them, what a release is made of, and
//! whether another build of the same source gives the same bytes.

use crate::disk;
use crate::process::{self, answers};
use crate::step::{Step, Stop};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// The workspaces that are shipped: the tool with all that shares its lock file, and the signing service.
pub(crate) const WORKSPACES: [&str; 2] = [".", "server"];
/// cargo-vet's folder.
const VETTED: &str = "supply-chain";
const TOOL: &str = "hypergrove-cli";
/// The command of Cargo's that makes bills of materials.
pub(crate) const CYCLONEDX: &str = "cyclonedx";

/// A package and its version.
type Package = (String, String);

/// Those packages of Cargo.lock that come from a registry; all come from crates.io.
fn dependencies(lock: &toml::Table) -> Result<BTreeSet<Package>, String> {
    let mut found = BTreeSet::new();
    for package in lock.get("package").and_then(toml::Value::as_array).into_iter().flatten() {
        let word = |key| package.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        match word("source") {
            "" => {}
            CRATES_IO => drop(found.insert((word("name").to_owned(), word("version").to_owned()))),
            source => return Err(format!("Cargo.lock: {source}: only crates.io is allowed")),
        }
    }
    Ok(found)
}

/// The versions that `section` of one of cargo-vet's files names: of audits those of whole versions.
fn versions(file: &toml::Table, section: &str) -> BTreeSet<Package> {
    let packages = file.get(section).and_then(toml::Value::as_table).into_iter().flatten();
    packages
        .flat_map(|(name, entries)| entries.as_array().into_iter().flatten().map(move |entry| (name, entry)))
        .filter_map(|(name, entry)| Some((name.clone(), entry.get("version")?.as_str()?.to_owned())))
        .collect()
}

/// Every dependency has an audit or an exemption of ours: a new one, or a new version, is a decision that somebody makes. By
/// cargo-vet, or without it by our own reading of its files.
pub(crate) fn vetted(workspace: &str) -> Result<String, String> {
    let workspace = Path::new(workspace);
    let packages = dependencies(&disk::read_toml(workspace.join("Cargo.lock"))?)?;
    let (audits, exemptions) = (
        versions(&disk::read_toml(workspace.join(VETTED).join("audits.toml"))?, "audits"),
        versions(&disk::read_toml(workspace.join(VETTED).join("config.toml"))?, "exemptions"),
    );
    let by = if answers("cargo", &["vet", "--version"]) {
        let mut command = process::cargo(&["vet", "--locked", "--frozen", "--manifest-path"]);
        command.arg(workspace.join("Cargo.toml"));
        process::run(command)?;
        "cargo-vet"
    } else {
        if let Some((name, version)) = packages.iter().find(|it| !audits.contains(it) && !exemptions.contains(it)) {
            let list = workspace.join(VETTED);
            return Err(format!(
                "{name} {version} has neither audit nor exemption in {}: see CONTRIBUTING.md",
                list.display()
            ));
        }
        "without cargo-vet"
    };
    let audited = packages.intersection(&audits).count();
    Ok(format!("{audited} audited and {} exempted, {by}", packages.len() - audited))
}

/// cargo-deny's checks of these names, by the rules of deny.toml.
pub(crate) fn deny(workspace: &str, checks: &[&str]) -> Result<(), String> {
    let manifest = format!("{workspace}/Cargo.toml");
    let words = ["deny", "--manifest-path", &manifest, "--offline", "--all-features", "check", "--config", "deny.toml"];
    process::run(process::cargo(&[&words[..], checks].concat()))
}

/// Known faults of the dependencies, by RustSec's database, which is fetched.
pub(crate) fn advisories() -> Step {
    process::ensure_command("deny", None).map_err(Stop::Skipped)?;
    if process::run(process::cargo(&["deny", "--all-features", "fetch", "db"])).is_err() {
        return Err(Stop::Skipped("RustSec's database could not be fetched: no way to it from this machine".into()));
    }
    WORKSPACES.iter().try_for_each(|workspace| deny(workspace, &["advisories"]))?;
    Ok("by cargo-deny and RustSec's database of today".into())
}

/// The bill of materials of the tool, as CycloneDX in JSON, and how many dependencies it names.
pub(crate) fn make_sbom(epoch: Option<&str>) -> Result<(PathBuf, usize), String> {
    // It writes a file next to each manifest of the workspace.
    const NAME: &str = "cyclonedx.tmp";
    let mut command = process::cargo(&[CYCLONEDX, "--manifest-path", "crates/cli/Cargo.toml", "--format", "json"]);
    command.args(["--target", "all", "--override-filename", NAME]);
    // Without a time of its own, each bill would have the time of now and a random number.
    command.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)));
    process::run(command)?;
    let made = Path::new("crates/cli").join(format!("{NAME}.json"));
    let text = disk::read(&made);
    let manifests = disk::entries("crates")?.into_iter().chain([PathBuf::from("xtask")]);
    manifests.for_each(|folder| drop(fs::remove_file(folder.join(format!("{NAME}.json")))));
    // Which folder the source was in is nobody's business.
    let folder = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let text = text?.replace(&format!("{}/", folder.display()), "");
    let sbom: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", made.display()))?;
    let named: BTreeSet<Package> =
        sbom["components"].as_array().into_iter().flatten().filter_map(of_component).collect();
    let tree = ["tree", "--package", TOOL, "--edges", "normal,build", "--target", "all", "--prefix", "none"];
    let tree = process::output("cargo", &[&tree[..], &["--format", "{p}"]].concat()).ok_or("cargo tree failed")?;
    let used: BTreeSet<Package> = tree.lines().filter_map(of_tree).collect();
    if let Some((name, version)) = used.iter().find(|it| it.0 != TOOL && !named.contains(it)) {
        return Err(format!("the bill of materials leaves out {name} {version}"));
    }
    let path = process::target().join("hypergrove.cdx.json");
    disk::write(&path, text)?;
    Ok((path, named.len()))
}

fn of_component(component: &serde_json::Value) -> Option<Package> {
    Some((component["name"].as_str()?.into(), component["version"].as_str()?.into()))
}

/// `name v1.2.3 (…)`.
fn of_tree(line: &str) -> Option<Package> {
    let mut words = line.split_whitespace();
    Some((words.next()?.into(), words.next()?.strip_prefix('v')?.into()))
}

/// `cargo xtask sbom`.
pub(crate) fn write_sbom() -> Result<(), String> {
    process::ensure_command(CYCLONEDX, None)?;
    let (path, packages) = make_sbom(None)?;
    println!("{}: {packages} packages", path.display());
    Ok(())
}

/// CI's step: the bill of materials names every dependency of the tool.
pub(crate) fn sbom() -> Step {
    process::ensure_command(CYCLONEDX, None).map_err(Stop::Skipped)?;
    let (_, packages) = make_sbom(None)?;
    Ok(format!("CycloneDX, {packages} packages"))
}

/// Cargo's own folder, which has the sources of dependencies.
pub(crate) fn cargo_home() -> Result<String, String> {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    home.map_err(|_| "neither CARGO_HOME nor HOME is set".into())
}

/// The compiler's flags that replace these folders and Cargo's own, so that no program contains a path of this machine.
pub(crate) fn without_paths(folders: &[(&Path, &str)]) -> Result<String, String> {
    let flag = |from: &str, to: &str| format!("--remap-path-prefix={from}={to}");
    let flags = folders.iter().map(|(from, to)| flag(&from.to_string_lossy(), to));
    Ok(flags.chain([flag(&cargo_home()?, "/cargo")]).collect::<Vec<_>>().join(" "))
}

/// Builds the tool twice, in folders of other names and lengths, from what git has at HEAD and as SECURITY.md says; the bytes
/// are the same and name no folder.
pub(crate) fn reproducible() -> Step {
    let home = cargo_home()?;
    let folders = ["one", "another-folder"].map(|name| process::target().join("reproducible").join(name));
    // Both before the first build, during which HEAD may move.
    for folder in &folders {
        disk::remove(folder)?;
        let mut clone = std::process::Command::new("git");
        clone
            .args(["clone", "--quiet", "--depth", "1"])
            .arg(format!("file://{}", disk::workspace().display()))
            .arg(folder);
        process::run(clone)?;
    }
    let mut digests = Vec::new();
    for folder in &folders {
        let place = folder.to_string_lossy().into_owned();
        let mut build = process::cargo(&["build", "--quiet", "--release", "--locked", "--package", TOOL]);
        build.current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
        build.env("RUSTFLAGS", without_paths(&[(folder.as_path(), "/hypergrove")])?);
        process::run(build)?;
        let tool = folder.join("target/release/hypergrove");
        let bytes = fs::read(&tool).map_err(|error| format!("{}: {error}", tool.display()))?;
        for path in [&place, &home] {
            if bytes.windows(path.len()).any(|window| window == path.as_bytes()) {
                return Err(format!("{} names the folder {path}", tool.display()).into());
            }
        }
        digests.push(hex::encode(Sha256::digest(&bytes)));
    }
    match &digests[..] {
        [one, another] if one == another => {
            folders.iter().try_for_each(disk::remove)?;
            Ok(format!("SHA-256 of the tool, twice: {one}"))
        }
        _ => Err(format!("the builds in {} and {} differ", folders[0].display(), folders[1].display()).into()),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_what_is_vetted() {
        let lock = "[[package]]\nname = \"own\"\nversion = \"1.0.0\"\n\
                    [[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        let found = dependencies(&lock.parse().unwrap()).unwrap();
        assert_eq!(found, BTreeSet::from([("a".into(), "1.2.3".into())]));
        let foreign = lock.replace("rust-lang/crates.io-index", "somebody/else");
        assert!(dependencies(&foreign.parse().unwrap()).unwrap_err().contains("somebody/else"));
        let audits = "[[audits.a]]\nwho = \"x\"\nversion = \"1.2.3\"\n[[audits.a]]\ndelta = \"1.2.3 -> 1.2.4\"\n[[audits.b]]\nversion = \"2.0.0\"\n";
        let found = versions(&audits.parse().unwrap(), "audits");
        assert_eq!(found, BTreeSet::from([("a".into(), "1.2.3".into()), ("b".into(), "2.0.0".into())]));
        assert!(versions(&audits.parse().unwrap(), "exemptions").is_empty());
    }

    #[test]
    fn reads_trees_and_components() {
        assert_eq!(of_tree("der v0.8.0 (*)"), Some(("der".into(), "0.8.0".into())));
        assert_eq!(of_tree(""), None);
        let component = serde_json::json!({ "name": "der", "version": "0.8.0", "type": "library" });
        assert_eq!(of_component(&component), Some(("der".into(), "0.8.0".into())));
    }
}
