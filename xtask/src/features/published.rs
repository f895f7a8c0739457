//! Crates that are published: each has the fields that readers of crates.io and docs.rs look for, depends on published crates alone,
//! and comes after them.

use crate::{disk, process, server};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The fields of a published crate that Cargo does not ask for.
const FIELDS: [&str; 6] = ["description", "license", "repository", "readme", "rust_version", "metadata"];
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

/// All packages of the workspace, as Cargo describes them.
pub(crate) fn packages() -> Result<Vec<Value>, String> {
    let text = process::text(process::cargo(&["metadata", "--no-deps", "--locked", "--format-version", "1"]))?;
    let mut all: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(all["packages"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// Everything that a package lacks to be published. `files` are those of its archive.
fn faults(package: &Value, files: &[&str]) -> Vec<String> {
    let list = |field: &str| -> Vec<&str> {
        package[field].as_array().into_iter().flatten().flat_map(Value::as_str).collect()
    };
    let (keywords, categories, documentation) = (list("keywords"), list("categories"), &package["documentation"]);
    let is_short = |word: &&str| word.len() <= LONGEST_KEYWORD && word.starts_with(|c: char| c.is_alphabetic());
    let has_script =
        Path::new(package["manifest_path"].as_str().unwrap_or_default()).with_file_name("build.rs").exists();
    let mut faults: Vec<String> = FIELDS
        .iter()
        .filter(|field| package[field].is_null())
        .map(|field| format!("its manifest has no {field}"))
        .collect();
    faults.extend(FILES.iter().filter(|file| !files.contains(file)).map(|file| format!("its archive has no {file}")));
    let limits = format!("crates.io takes up to {MOST_KEYWORDS} keywords of up to {LONGEST_KEYWORD} characters");
    let are_keywords = (1..=MOST_KEYWORDS).contains(&keywords.len()) && keywords.iter().all(is_short);
    let are_categories = !categories.is_empty() && categories.iter().all(|category| CATEGORIES.contains(category));
    let is_on_docs_rs = *documentation == format!("https://docs.rs/{}", name(package));
    let has_tests = files.iter().any(|file| file.starts_with("tests/"));
    let checks = [
        (are_keywords, format!("{limits}: {keywords:?}")),
        (are_categories, format!("one of its categories {categories:?} is none of {CATEGORIES:?}")),
        (is_on_docs_rs, format!("its documentation is on docs.rs, not at {documentation}")),
        (package["metadata"]["docs"]["rs"].is_object(), "there is no [package.metadata.docs.rs]".into()),
        (files.contains(&"build.rs") == has_script, "its archive has a build.rs exactly if its folder has one".into()),
        (!has_tests, "its archive has tests: `include` leaves them out".into()),
    ];
    faults.extend(checks.into_iter().filter(|(is_so, _)| !is_so).map(|(_, why)| why));
    faults.into_iter().map(|why| format!("{}: {why}", name(package))).collect()
}

/// The names of the crates that are published, each after those that it depends on; or all that keeps them from being published.
fn order(packages: &[Value]) -> Result<Vec<String>, Vec<String>> {
    let (mut faults, mut waiting) = (Vec::new(), BTreeMap::<&str, Vec<&str>>::new());
    for package in packages.iter().filter(|package| is_published(package)) {
        let mut before = Vec::new();
        for needed in package["dependencies"].as_array().into_iter().flatten().filter(|it| it["path"].is_string()) {
            // Cargo leaves a dependency of tests that has no version out of the archive.
            if needed["kind"] == "dev" && needed["req"] == "*" {
                continue;
            }
            let (of, other, version) = (name(package), name(needed), &needed["req"]);
            if !packages.iter().any(|package| name(package) == other && is_published(package)) {
                faults.push(format!("{of} depends on {other}, which is not published"));
            } else if *version != format!("={}", package["version"].as_str().unwrap_or_default()) {
                faults.push(format!("{of} depends on {other} {version}, not on exactly its own version"));
            }
            before.push(other);
        }
        waiting.insert(name(package), before);
    }
    let mut order: Vec<String> = Vec::new();
    while faults.is_empty() && !waiting.is_empty() {
        let is_ready = |before: &Vec<&str>| before.iter().all(|name| order.iter().any(|done| done == name));
        match waiting.iter().find(|(_, before)| is_ready(before)).map(|(name, _)| *name) {
            Some(next) => {
                waiting.remove(next);
                order.push(next.into());
            }
            None => faults.push(format!("these depend on each other: {waiting:?}")),
        }
    }
    if faults.is_empty() { Ok(order) } else { Err(faults) }
}

/// Where the release's number stands and Cargo does not put it: the signing service has a workspace of its own. Packages of other
/// workspaces are not published.
fn others(release: &str) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for path in OTHERS {
        let manifest = disk::read_toml(disk::workspace().join(path))?;
        let package = &manifest["package"];
        if package.get("publish").and_then(toml::Value::as_bool) != Some(false) {
            faults.push(format!("{path}: publish = false is missing"));
        }
        if path == server::MANIFEST && package["version"].as_str() != Some(release) {
            faults.push(format!("{path}: the version is not {release}"));
        }
    }
    let description = disk::read(disk::workspace().join("server/src/openapi.json"))?;
    if !description.contains(&format!("\"version\": \"{release}\"")) {
        faults.push(format!("server/src/openapi.json: the version is not {release}"));
    }
    Ok(faults)
}

/// Reads all manifests; the crates that are published, in an order in which a registry takes them.
pub(super) fn check() -> Result<Vec<String>, String> {
    let packages = packages()?;
    let mut found = others(crate::capi::RELEASE)?;
    for package in packages.iter().filter(|package| is_published(package)) {
        let list =
            process::text(process::cargo(&["package", "--list", "--allow-dirty", "--locked", "-p", name(package)]))?;
        found.extend(faults(package, &list.lines().collect::<Vec<_>>()));
    }
    let order = order(&packages).unwrap_or_else(|more| {
        found.extend(more);
        Vec::new()
    });
    match found.first() {
        None => Ok(order),
        Some(first) => {
            found.iter().for_each(|fault| println!("{fault}"));
            Err(format!("{} faults of manifests, first {first}", found.len()))
        }
    }
}

/// Makes each crate's archive as `cargo publish` does, and builds the crate from it.
pub(super) fn build_from_archives(order: &[String]) -> Result<(), String> {
    process::run(process::cargo(&["package", "--locked", "--quiet"]).args(order.iter().flat_map(|name| ["-p", name])))
}

#[cfg(test)]
mod test {
    use super::*;

    fn named<'a>(packages: &'a mut [Value], of: &str) -> &'a mut Value {
        packages.iter_mut().find(|it| name(it) == of).unwrap()
    }

    #[test]
    fn crates_are_published_after_those_that_they_depend_on() {
        let order = check().unwrap();
        let at = |name: &str| order.iter().position(|it| it == name);
        assert_eq!(order.len(), 15);
        assert!(at("hypergrove-fips205") < at("hypergrove-lanes") && at("hypergrove-lanes") < at("hypergrove-cpu"));
        assert!(at("hypergrove-cpu") < at("hypergrove") && at("hypergrove") < at("hypergrove-files"));
        for of_tests in ["hypergrove-testkit", "hypergrove-trials", "xtask"] {
            assert_eq!(at(of_tests), None);
        }
    }

    #[test]
    fn faults_of_manifests_are_found() {
        let mut packages = packages().unwrap();
        let library = named(&mut packages, "hypergrove");
        let files = [&FILES[..], &["src/lib.rs"]].concat();
        assert_eq!(faults(library, &files), Vec::<String>::new());
        library["documentation"] = Value::Null;
        library["readme"] = Value::Null;
        library["keywords"] = vec!["a"; MOST_KEYWORDS + 1].into();
        library["categories"] = vec!["games"].into();
        library["metadata"] = serde_json::json!({});
        let found = faults(library, &["LICENSE-MIT", "LICENSE-APACHE", "build.rs", "tests/a.rs"]).join("\n");
        for fault in [
            "not at null",
            "no readme",
            "up to 5 keywords",
            "[\"games\"]",
            "package.metadata.docs.rs",
            "archive has no README.md",
            "a build.rs exactly",
            "archive has tests",
        ] {
            assert!(found.contains(fault), "{fault}: {found}");
        }
    }

    #[test]
    fn faults_of_dependencies_are_found() {
        let with = |change: fn(&mut [Value])| {
            let mut packages = packages().unwrap();
            change(&mut packages);
            order(&packages).unwrap_err().join("\n")
        };
        let unpublished = with(|all| named(all, "hypergrove-cpu")["publish"] = serde_json::json!([]));
        assert!(unpublished.contains("depends on hypergrove-cpu, which is not published"), "{unpublished}");
        let older = with(|all| named(all, "hypergrove-cpu")["dependencies"][1]["req"] = "^0.9".into());
        assert!(older.contains("\"^0.9\", not on exactly its own version"), "{older}");
        // A dependency of tests that has a version makes a circle.
        let circle = with(|all| {
            let version = format!("={}", crate::capi::RELEASE);
            let tests = serde_json::json!([{ "name": "hypergrove", "kind": "dev", "req": version, "path": "crates/hypergrove" }]);
            named(all, "hypergrove-taint")["dependencies"] = tests;
        });
        assert!(circle.contains("depend on each other"), "{circle}");
    }
}
