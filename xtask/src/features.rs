//! Features of the library: every one compiles with and without the others, and how many packages each brings.

use crate::process::{self, Outcome, Step};
use std::collections::BTreeSet;
use std::fs;

/// What can be left out.
const FEATURES: [&str; 8] =
    ["cuda", "vulkan", "zkdilithium", "draft-sp800-230", "tables", "encryption", "signers", "x509"];
const PAGE: &str = "docs/features.md";
/// Packages at most: without any feature, and with the default ones.
const MOST: [(&str, usize); 2] = [("none", 40), ("default", 70)];

/// CI's step.
pub(crate) fn check() -> Step {
    let page = fs::read_to_string(PAGE).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let stated = rows(&page);
    let names: Vec<&str> = stated.iter().map(|(feature, _)| *feature).collect();
    if !FEATURES.iter().chain(&["none", "default"]).all(|feature| names.contains(feature)) {
        return Err(format!("{PAGE} lacks a row: it has {}", names.join(", ")));
    }
    for (feature, stated) in stated {
        let counted = packages(feature)?;
        if counted != stated {
            return Err(format!("{PAGE} says {stated} packages of {feature}, there are {counted}"));
        }
        if let Some((_, most)) = MOST.iter().find(|(bounded, most)| *bounded == feature && counted > *most) {
            return Err(format!("{counted} packages of {feature}, at most {most} are allowed"));
        }
    }
    let sets = combinations();
    for features in &sets {
        lint(&["hypergrove", "--no-default-features", "--features", &features.join(",")])?;
    }
    lint(&["hypergrove", "--all-targets"])?;
    lint(&["hypergrove-tune"])?;
    lint(&["hypergrove-lab", "--no-default-features"])?;
    Ok(Outcome::Passed(format!("{} combinations of the library's features", sets.len())))
}

/// None, each alone, all but each, and all.
fn combinations() -> BTreeSet<Vec<&'static str>> {
    let without = |left_out: &str| FEATURES.into_iter().filter(|feature| *feature != left_out).collect::<Vec<_>>();
    let alone = FEATURES.iter().map(|feature| vec![*feature]);
    alone.chain(FEATURES.iter().map(|feature| without(feature))).chain([vec![], FEATURES.to_vec()]).collect()
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

/// How many packages a build of the library compiles on Linux, its own included.
fn packages(feature: &str) -> Result<usize, String> {
    let mut arguments = vec!["tree", "--locked", "-p", "hypergrove", "-e", "normal", "--prefix", "none"];
    arguments.extend(["--target", "x86_64-unknown-linux-gnu"]);
    match feature {
        "default" => {}
        "none" => arguments.push("--no-default-features"),
        feature => arguments.extend(["--no-default-features", "--features", feature]),
    }
    let output = process::cargo(&arguments).output().map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let named: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(named.len())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_feature_is_there_alone_and_left_out() {
        let sets = combinations();
        assert_eq!(sets.len(), 2 * FEATURES.len() + 2);
        for feature in FEATURES {
            assert!(sets.contains(&vec![feature]));
            assert!(sets.iter().any(|set| set.len() == FEATURES.len() - 1 && !set.contains(&feature)), "{feature}");
        }
    }

    #[test]
    fn the_pages_table_is_read() {
        let page =
            "| feature | adds | packages |\n| --- | --- | ---: |\n| none | much, of 2 | 39 |\n| `a-b` | c | 4 |\n";
        assert_eq!(rows(page), [("none", 39), ("a-b", 4)]);
    }
}
