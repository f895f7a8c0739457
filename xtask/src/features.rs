//! Features of the library: every one compiles with and without the others, how many packages each brings, and which ones users get:
//! the same as tests have, so that nothing is compiled twice. And which crates are published, in which order.

mod published;

use crate::process;
use crate::step::{Extent, Step, Stop, ensure};
use crate::{capi, disk, install, openssl, wheels};
pub(crate) use published::packages as packages_of_workspace;
use std::collections::{BTreeMap, BTreeSet};

const LIBRARY: &str = "hypergrove";
/// The crate of file formats.
const FILES: &str = "hypergrove-files";
/// Features of both that are neither rows of the page nor combined with others: a list of others, and the one that nvcc compiles.
const LEFT_OUT: [&str; 2] = ["default", "cuda-ready"];
const PAGE: &str = "docs/features.md";
/// Packages at most: without any feature, and with the default ones. One of them is the reader of PEM, which is a package of its own because both
/// schemes have it.
const MOST: [(&str, usize); 2] = [("none", 40), ("default", 71)];
/// The programs and libraries that users build, as the page calls them, and the packages that Cargo builds for them.
const ARTEFACTS: [(&str, &str); 4] = [
    ("the tool", install::CRATE),
    ("the C library", capi::CRATE),
    ("the OpenSSL provider", openssl::CRATE),
    ("the Python package", "hypergrove-py"),
];
/// Features and packages that are for tests and checks alone.
const OF_TESTS: [&str; 3] = ["fuzz", "faults", "valgrind"];
const PACKAGES_OF_TESTS: [&str; 4] =
    ["hypergrove-fuzz-targets", "hypergrove-kernels-host", "hypergrove-testkit", "hypergrove-trials"];
/// How the names of our packages begin.
const OURS: &str = "hypergrove";

/// CI's step.
pub(crate) fn check(extent: Extent) -> Step {
    let published = published::check()?;
    println!("published in this order: {}", published.join(", "));
    let page = disk::read(PAGE)?;
    let stated = rows(&page);
    for wanted in optional()?.iter().map(String::as_str).chain(["none", "default", FILES]) {
        ensure!(stated.iter().any(|(feature, _)| *feature == wanted), "{PAGE} has no row for {wanted}");
    }
    for (feature, stated) in stated {
        let counted = packages(feature)?;
        ensure!(counted == stated, "{PAGE} says {stated} packages of {feature}, there are {counted}");
        if let Some((_, most)) = MOST.iter().find(|(bounded, most)| *bounded == feature && counted > *most) {
            return Err(format!("{counted} packages of {feature}, at most {most} are allowed").into());
        }
    }
    users_builds(&page)?;
    one_set()?;
    lint(&[LIBRARY, "--all-targets"])?;
    lint(&["hypergrove-records", "--no-default-features"])?;
    let mut note = format!("{} crates to publish", published.len());
    if extent == Extent::Full {
        published::build_from_archives(&published)?;
        note += ", built from their archives";
    }
    let words = ["clippy", "--quiet", "--locked", "--release", "--no-deps", "-p", LIBRARY, "-p", FILES];
    let without = |why| Stop::Skipped(format!("{note}; no feature alone: {why}"));
    let mut combined = wheels::cargo("hack", &words).map_err(without)?;
    // No feature and each alone; in full, all combinations.
    combined.arg(if extent == Extent::Full { "--feature-powerset" } else { "--each-feature" });
    combined.args(["--exclude-features", &LEFT_OUT.join(","), "--exclude-all-features", "--", "-D", "warnings"]);
    process::run(combined)?;
    Ok(note)
}

/// The optional features, as the page calls them.
fn optional() -> Result<Vec<String>, String> {
    let packages = packages_of_workspace()?;
    let of = |package: &str, prefix: &str| -> Vec<String> {
        let package = packages.iter().find(|known| known["name"] == package);
        let features = package.and_then(|package| package["features"].as_object()).into_iter().flatten();
        let are_left = features.map(|(name, _)| name.as_str()).filter(|name| !LEFT_OUT.contains(name));
        are_left.map(|name| format!("{prefix}{name}")).collect()
    };
    Ok([of(LIBRARY, ""), of(FILES, &format!("{FILES}/"))].concat())
}

/// Checks a package without building it; a warning is an error.
fn lint(package: &[&str]) -> Result<(), String> {
    let mut command = process::cargo(&["clippy", "--quiet", "--locked", "--release", "--no-deps", "-p"]);
    command.args(package).args(["--", "-D", "warnings"]);
    process::run(command)
}

/// Features and numbers of packages in the page's table.
fn rows(page: &str) -> Vec<(&str, usize)> {
    fn row(line: &str) -> Option<(&str, usize)> {
        let (feature, cells) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (_, packages) = cells.strip_suffix(" |")?.rsplit_once(" | ")?;
        Some((feature.trim_matches('`'), packages.parse().ok()?))
    }
    page.lines().filter_map(row).collect()
}

/// How many packages a build of the library compiles on Linux, its own included, or a build of [`FILES`].
fn packages(feature: &str) -> Result<usize, String> {
    let package = if feature.starts_with(FILES) { FILES } else { LIBRARY };
    let mut arguments = vec!["-p", package, "-e", "normal"];
    match feature {
        "default" => {}
        "none" | FILES => arguments.push("--no-default-features"),
        feature => arguments.extend(["--no-default-features", "--features", feature]),
    }
    Ok(tree(&arguments)?.len())
}

/// The different lines of `cargo tree` for Linux.
fn tree(arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let mut command = process::cargo(&["tree", "--locked", "--prefix", "none", "--target", "x86_64-unknown-linux-gnu"]);
    command.args(arguments);
    Ok(process::text(command)?.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

/// Users' builds have the features that the page lists, and none that is for tests.
fn users_builds(page: &str) -> Result<(), String> {
    for (name, package) in ARTEFACTS {
        let packages = features(package)?;
        if let Some(package) = PACKAGES_OF_TESTS.iter().find(|package| packages.contains_key(**package)) {
            return Err(format!("{name} contains {package}, which is for tests"));
        }
        for (of, features) in &packages {
            if let Some(feature) = OF_TESTS.iter().find(|feature| features.contains(**feature)) {
                return Err(format!("{name} has the feature {feature} of {of}, which is for tests"));
            }
        }
        let of_library = packages.get(LIBRARY).ok_or_else(|| format!("{name} does not contain the library"))?;
        let of_files = packages.get(FILES).into_iter().flatten().map(|feature| format!("{FILES}/{feature}"));
        let files = packages.contains_key(FILES).then(|| FILES.into());
        let has: BTreeSet<String> = of_library.iter().cloned().chain(of_files).chain(files).collect();
        let listed = listed(page, name).ok_or_else(|| format!("{PAGE} has no row for {name}"))?;
        ensure!(has == listed, "{PAGE} says that {name} has {listed:?}, it has {has:?}");
    }
    Ok(())
}

/// The packages of what users build have the features that they have in tests. Otherwise they, and all that depends on them, would be
/// compiled twice.
fn one_set() -> Result<(), String> {
    let read = |arguments: &[&str], edges| tree(&[arguments, &["--format", "{p} [{f}]", "--edges", edges]].concat());
    let of_tests = |edges| read(&["--workspace", "--exclude", "xtask"], edges);
    let (tests, with_scripts) = (of_tests("normal,dev")?, of_tests("normal,dev,build")?);
    for (name, package) in ARTEFACTS {
        let own = other_features(&read(&["-p", package], "normal")?, &tests);
        // Packages that build scripts use are compiled for them alone, and may be there with other features, too.
        let scripts = read(&["-p", package], "normal,build")?;
        let scripts = scripts.difference(&with_scripts).next().cloned();
        if let Some(why) = own.or(scripts) {
            return Err(format!("{name}: {why} is compiled again for tests; see crates/unified"));
        }
    }
    Ok(())
}

/// A package of `build` that has other features in `tests`; both have lines such as `name v1.2.3 [feature,feature]`.
fn other_features(build: &BTreeSet<String>, tests: &BTreeSet<String>) -> Option<String> {
    let package = |line: &str| line.rsplit_once(" [").map(|(package, _)| package.to_owned());
    let differs = |line: &&String| {
        let mut same = tests.iter().filter(|other| package(other) == package(line)).peekable();
        same.peek().is_none() || same.any(|other| other != *line)
    };
    build.iter().find(differs).cloned()
}

/// Our packages in a build of this one, and the features of each.
fn features(package: &str) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut packages = BTreeMap::<String, BTreeSet<String>>::new();
    for line in tree(&["-p", package, "-e", "normal,build", "--format", "{p};{f}"])? {
        let Some((package, features)) = line.split_once(';') else { continue };
        let name = package.split(' ').next().unwrap_or_default();
        if name.starts_with(OURS) {
            let features = features.split_terminator(',').filter(|feature| *feature != "default");
            packages.entry(name.into()).or_default().extend(features.map(String::from));
        }
    }
    Ok(packages)
}

/// The features in this row of the page.
fn listed(page: &str, name: &str) -> Option<BTreeSet<String>> {
    let row = page.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(name)?.strip_prefix(" | "))?;
    let (_, features) = row.strip_suffix(" |")?.rsplit_once(" | ")?;
    Some(features.split(", ").map(|feature| feature.trim_matches('`').to_owned()).collect())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn optional_features_are_those_of_the_manifests() {
        let features = optional().unwrap();
        assert!(["cuda", "zkdilithium", "hypergrove-files/x509"].iter().all(|one| features.iter().any(|it| it == one)));
        assert!(features.iter().all(|feature| !LEFT_OUT.contains(&feature.as_str())), "{features:?}");
    }

    fn read(file: &str) -> String {
        disk::read(disk::workspace().join(file)).unwrap()
    }

    #[test]
    fn what_is_compiled_twice_is_named() {
        let lines = |lines: &[&str]| lines.iter().map(|line| String::from(*line)).collect::<BTreeSet<_>>();
        let tests = lines(&["a v1.0.0 [std]", "b v0.1.0 [x]"]);
        assert_eq!(other_features(&lines(&["a v1.0.0 [std]"]), &tests), None);
        for (line, tests) in [
            ("a v1.0.0 []", &tests),
            ("c v1.0.0 []", &tests),
            ("a v1.0.0 [std]", &lines(&["a v1.0.0 [std]", "a v1.0.0 [alloc,std]"])),
        ] {
            assert_eq!(other_features(&lines(&[line]), tests).as_deref(), Some(line));
        }
    }

    #[test]
    fn users_builds_have_the_listed_features_and_none_of_tests() {
        assert_eq!(users_builds(&read(PAGE)), Ok(()));
        // With all features, there is what users must not have.
        let all = tree(&["-p", "hypergrove-cli", "--all-features", "-e", "normal", "--format", "{p};{f}"]).unwrap();
        assert!(all.iter().any(|line| line.starts_with("hypergrove-cli ") && line.contains("fuzz")));
        assert!(all.iter().any(|line| line.starts_with("hypergrove-testkit ")));
    }

    #[test]
    fn features_of_tests_are_there() {
        let crates = disk::entries(disk::workspace().join("crates")).unwrap();
        let manifests: Vec<toml::Table> =
            crates.iter().map(|folder| disk::read_toml(folder.join("Cargo.toml")).unwrap()).collect();
        let has =
            |feature: &str| manifests.iter().any(|of| of.get("features").is_some_and(|it| it.get(feature).is_some()));
        assert!(OF_TESTS.iter().all(|feature| has(feature)));
    }

    /// maturin builds the wheel with the features that Cargo would choose.
    #[test]
    fn pyproject_chooses_no_features() {
        let project: toml::Table = read("pyproject.toml").parse().unwrap();
        let maturin = project["tool"]["maturin"].as_table().unwrap();
        assert_eq!(maturin["manifest-path"].as_str(), Some("crates/py/Cargo.toml"));
        for key in ["features", "all-features", "no-default-features", "cargo-extra-args", "rustc-args"] {
            assert!(!maturin.contains_key(key), "{key}");
        }
    }

    #[test]
    fn the_pages_table_is_read() {
        let page =
            "| feature | adds | packages |\n| --- | --- | ---: |\n| none | much, of 2 | 39 |\n| `a-b` | c | 4 |\n";
        assert_eq!(rows(page), [("none", 39), ("a-b", 4)]);
        let page = "| built | by | features |\n| the tool | `cargo` | `a-b`, `c` |\n";
        assert_eq!(listed(page, "the tool"), Some(["a-b", "c"].map(String::from).into()));
        assert_eq!(listed(page, "the wheel"), None);
    }
}
