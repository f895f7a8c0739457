//! Crates that are published: each has the fields that readers of crates.io and docs.rs look for, depends on published crates alone,
//! and comes after them.

use crate::{disk, process, server};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The fields of a published crate.
const FIELDS: [&str; 13] = [
    "name",
    "version",
    "description",
    "edition",
    "rust-version",
    "license",
    "repository",
    "documentation",
    "keywords",
    "categories",
    "readme",
    "include",
    "metadata",
];
/// Files in each archive, in addition to the sources.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// Limits of crates.io.
const MOST_KEYWORDS: usize = 5;
const LONGEST_KEYWORD: usize = 20;
/// Categories of crates.io that fit.
const CATEGORIES: [&str; 2] = ["cryptography", "no-std"];
/// Workspaces of their own, whose packages are not published.
const OTHERS: [&str; 4] =
    ["server/Cargo.toml", "fuzz/Cargo.toml", "xtask/dependent/Cargo.toml", "xtask/loom/Cargo.toml"];

/// A crate of the workspace.
struct Crate {
    name: String,
    folder: PathBuf,
    manifest: Table,
}

/// A dependency of a crate on another one of the workspace.
struct Dependency {
    name: String,
    /// None: by its path alone. Cargo leaves such a dependency of tests out of the archive.
    version: Option<String>,
    is_for_tests: bool,
}

impl Crate {
    fn is_published(&self) -> bool {
        self.manifest["package"].get("publish").and_then(Value::as_bool) != Some(false)
    }

    /// A field of its package, which it may have from the workspace.
    fn field<'a>(&'a self, workspace: &'a Table, name: &str) -> Option<&'a Value> {
        let own = self.manifest["package"].get(name)?;
        match is_inherited(own) {
            true => workspace["workspace"]["package"].get(name),
            false => Some(own),
        }
    }

    fn dependencies(&self, workspace: &Table, names: &[&str]) -> Vec<Dependency> {
        let targets = self.manifest.get("target").and_then(Value::as_table).into_iter().flatten();
        let tables: Vec<&Table> = targets.filter_map(|(_, of)| of.as_table()).chain([&self.manifest]).collect();
        let mut found = Vec::new();
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let entries = tables.iter().filter_map(|table| table.get(kind)?.as_table()).flatten();
            for (name, entry) in entries.filter(|(name, _)| names.contains(&name.as_str())) {
                let entry = if is_inherited(entry) { &workspace["workspace"]["dependencies"][name] } else { entry };
                let version = entry.get("version").and_then(Value::as_str).map(String::from);
                found.push(Dependency { name: name.clone(), version, is_for_tests: kind == "dev-dependencies" });
            }
        }
        found
    }

    /// The fields and files that it lacks to be published.
    fn faults(&self, workspace: &Table) -> Vec<String> {
        let mut faults: Vec<String> = FIELDS
            .iter()
            .filter(|field| self.field(workspace, field).is_none())
            .map(|field| format!("{}: its manifest has no {field}", self.name))
            .collect();
        let list = |field| self.field(workspace, field).and_then(Value::as_array).cloned().unwrap_or_default();
        let texts = |field| list(field).iter().filter_map(|it| it.as_str().map(String::from)).collect::<Vec<_>>();
        let mut expect = |is_so: bool, why: String| {
            if !is_so {
                faults.push(format!("{}: {why}", self.name));
            }
        };
        let keywords = texts("keywords");
        let is_short = |word: &String| word.len() <= LONGEST_KEYWORD && word.starts_with(|c: char| c.is_alphabetic());
        expect(
            (1..=MOST_KEYWORDS).contains(&keywords.len()) && keywords.iter().all(is_short),
            format!(
                "crates.io takes up to {MOST_KEYWORDS} keywords of up to {LONGEST_KEYWORD} characters: {keywords:?}"
            ),
        );
        let unknown = texts("categories").into_iter().find(|category| !CATEGORIES.contains(&category.as_str()));
        expect(unknown.is_none(), format!("the category {unknown:?} is none of {CATEGORIES:?}"));
        let documentation = self.field(workspace, "documentation").and_then(Value::as_str);
        expect(
            documentation == Some(format!("https://docs.rs/{}", self.name).as_str()),
            format!("its documentation is on docs.rs, not at {documentation:?}"),
        );
        let on_docs_rs = self.field(workspace, "metadata").and_then(|it| it.get("docs")?.get("rs"));
        expect(on_docs_rs.is_some(), "there is no [package.metadata.docs.rs]".into());
        let include = texts("include");
        for pattern in ["/src/**", "/README.md", "/LICENSE-*"] {
            expect(include.iter().any(|it| it == pattern), format!("its list `include` has no {pattern}"));
        }
        expect(
            include.iter().any(|it| it == "/build.rs") == self.folder.join("build.rs").exists(),
            "its list `include` names /build.rs exactly if there is one".into(),
        );
        for file in FILES {
            expect(self.folder.join(file).is_file(), format!("its folder has no {file}"));
        }
        faults
    }
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// The crates of the workspace below `root`, and its own manifest.
fn read(root: &Path) -> Result<(Table, Vec<Crate>), String> {
    let workspace = disk::read_toml(root.join("Cargo.toml"))?;
    let mut folders = disk::entries(root.join("crates"))?;
    folders.push(root.join("xtask"));
    let read = |folder: PathBuf| {
        let manifest = disk::read_toml(folder.join("Cargo.toml"))?;
        let name = manifest["package"]["name"].as_str().ok_or("a package without a name")?.to_string();
        Ok::<_, String>(Crate { name, folder, manifest })
    };
    Ok((workspace, folders.into_iter().map(read).collect::<Result<_, _>>()?))
}

/// The names of the crates that are published, each after those that it depends on; or all that keeps them from being published.
fn order(workspace: &Table, crates: &[Crate]) -> Result<Vec<String>, Vec<String>> {
    let names: Vec<&str> = crates.iter().map(|it| it.name.as_str()).collect();
    let release = workspace["workspace"]["package"]["version"].as_str().unwrap_or_default();
    let is_published = |name: &str| crates.iter().any(|it| it.name == name && it.is_published());
    let (mut faults, mut waiting) = (Vec::new(), BTreeMap::<&str, Vec<String>>::new());
    for it in crates.iter().filter(|it| it.is_published()) {
        faults.extend(it.faults(workspace));
        let mut before = Vec::new();
        for Dependency { name, version, is_for_tests } in it.dependencies(workspace, &names) {
            match version {
                None if is_for_tests => continue,
                None => faults.push(format!("{} depends on {name} without a version", it.name)),
                Some(_) if !is_published(&name) => {
                    faults.push(format!("{} depends on {name}, which is not published", it.name));
                }
                Some(version) if version != format!("={release}") => {
                    faults.push(format!("{} depends on {name} {version}, not on ={release}", it.name));
                }
                Some(_) => before.push(name),
            }
        }
        waiting.insert(&it.name, before);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut order: Vec<String> = Vec::new();
    while !waiting.is_empty() {
        let is_ready = |before: &Vec<String>| before.iter().all(|name| order.contains(name));
        let Some(next) = waiting.iter().find(|(_, before)| is_ready(before)).map(|(name, _)| *name) else {
            return Err(vec![format!("these depend on each other: {waiting:?}")]);
        };
        waiting.remove(next);
        order.push(next.into());
    }
    Ok(order)
}

/// Where the release's number stands and Cargo does not put it: the signing service has a workspace of its own. Packages of other
/// workspaces are not published.
fn others(root: &Path, workspace: &Table) -> Vec<String> {
    let release = workspace["workspace"]["package"]["version"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    for path in OTHERS {
        match disk::read_toml(root.join(path)) {
            Err(why) => faults.push(why),
            Ok(manifest) => {
                let package = &manifest["package"];
                if package.get("publish").and_then(Value::as_bool) != Some(false) {
                    faults.push(format!("{path}: publish = false is missing"));
                }
                if path == server::MANIFEST && package["version"].as_str() != Some(release) {
                    faults.push(format!("{path}: the version is not {release}"));
                }
            }
        }
    }
    let description = disk::read(root.join("server/src/openapi.json")).unwrap_or_default();
    if !description.contains(&format!("\"version\": \"{release}\"")) {
        faults.push(format!("server/src/openapi.json: the version is not {release}"));
    }
    faults
}

/// Reads all manifests; the crates that are published, in an order in which a registry takes them.
pub(super) fn check() -> Result<Vec<String>, String> {
    let root = crate::workspace();
    let (workspace, crates) = read(root)?;
    let mut faults = others(root, &workspace);
    let order = order(&workspace, &crates).unwrap_or_else(|found| {
        faults.extend(found);
        Vec::new()
    });
    match faults.first() {
        None => Ok(order),
        Some(first) => {
            faults.iter().for_each(|fault| println!("{fault}"));
            Err(format!("{} faults of manifests, first {first}", faults.len()))
        }
    }
}

/// Makes each crate's archive as `cargo publish` does, and builds the crate from it.
pub(super) fn build_from_archives(order: &[String]) -> Result<(), String> {
    let mut command = process::cargo(&["package", "--locked", "--quiet"]);
    command.args(order.iter().flat_map(|name| ["-p", name]));
    process::run(command)
}

#[cfg(test)]
mod test {
    use super::*;

    fn named<'a>(crates: &'a mut [Crate], name: &str) -> &'a mut Crate {
        crates.iter_mut().find(|it| it.name == name).unwrap()
    }

    fn package(it: &mut Crate) -> &mut Table {
        it.manifest["package"].as_table_mut().unwrap()
    }

    #[test]
    fn crates_are_published_after_those_that_they_depend_on() {
        let order = check().unwrap();
        let at = |name: &str| order.iter().position(|it| it == name);
        assert_eq!(order.len(), 14);
        assert!(at("hypergrove-fips205") < at("hypergrove-lanes") && at("hypergrove-lanes") < at("hypergrove-cpu"));
        assert!(at("hypergrove-cpu") < at("hypergrove") && at("hypergrove") < at("hypergrove-files"));
        for of_tests in ["hypergrove-testkit", "hypergrove-trials", "xtask"] {
            assert_eq!(at(of_tests), None);
        }
    }

    #[test]
    fn faults_of_manifests_are_found() {
        let (workspace, mut crates) = read(crate::workspace()).unwrap();
        let library = "hypergrove";
        package(named(&mut crates, library)).remove("documentation");
        package(named(&mut crates, library)).insert("keywords".into(), vec!["a"; MOST_KEYWORDS + 1].into());
        package(named(&mut crates, "hypergrove-cpu")).insert("publish".into(), false.into());
        let faults = order(&workspace, &crates).unwrap_err().join("\n");
        for fault in ["no documentation", "takes up to 5 keywords", "depends on hypergrove-cpu, which is not published"]
        {
            assert!(faults.contains(fault), "{fault}: {faults}");
        }
        // A dependency of tests that has a version makes a circle.
        let (workspace, mut crates) = read(crate::workspace()).unwrap();
        let release = workspace["workspace"]["package"]["version"].as_str().unwrap();
        let tests = format!("hypergrove = {{ path = \"../hypergrove\", version = \"={release}\" }}");
        let tests: Table = tests.parse().unwrap();
        named(&mut crates, "hypergrove-taint").manifest.insert("dev-dependencies".into(), tests.into());
        assert!(order(&workspace, &crates).unwrap_err()[0].contains("depend on each other"));
    }
}
