//! Rules for the text of the sources that no compiler checks.

use crate::process;
use crate::step::{Step, Stop};
use crate::{disk, prose};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where `unsafe` may be: intrinsics, CUDA's and Vulkan's C functions, memory that a device uses too, the page that a fork wipes, pointers from C, memory of
/// Python and Arrow, and for tests the kernels as C functions of the host, a race on purpose, `fork`, and allocators.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/lanes/",
    "crates/taint/src/valgrind.rs",
    "crates/cuda/src/driver/",
    "crates/vulkan/src/driver/",
    "crates/capi/src/pointers.rs",
    "crates/engine/src/process.rs",
    "crates/gpu/src/mapped.rs",
    "crates/gpu/src/host.rs",
    "crates/kernels-host/src/",
    "crates/hypergrove/tests/race.rs",
    "crates/hypergrove/tests/fork.rs",
    "crates/hypergrove/tests/allocations.rs",
    "crates/hypergrove/tests/freed.rs",
    "crates/py/src/foreign/",
    "crates/openssl/src/abi/",
];

/// Beginnings of absolute paths that exist on one machine only; `concat!` keeps this file clean of them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "tmp/"),
    concat!("/", "work/"),
    concat!("/", "Users/"),
];

/// File names that say nothing of what is in them.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager", "context"];

/// Files of git, and those it would take.
pub(crate) fn files() -> Result<Vec<String>, Stop> {
    let list = process::output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])
        .ok_or_else(|| Stop::Skipped("this is no git repository".into()))?;
    Ok(list.lines().filter(|path| Path::new(path).is_file()).map(String::from).collect())
}

pub(crate) fn verdict(faults: &[String], checked: &str) -> Step {
    if faults.is_empty() {
        return Ok(checked.into());
    }
    faults.iter().for_each(|fault| println!("{fault}"));
    Err(format!("{} faults, first {}", faults.len(), faults[0]).into())
}

/// Sources whose comments are part of measured tables' checksums, and the tests of the vocabulary.
const OWN_WORDS: &[&str] = &[
    "crates/kernels/entry/",
    "crates/kernels/hash/",
    "crates/kernels/stage/",
    "crates/kernels/zk/",
    "xtask/src/prose.rs",
];

/// No file names a place of one machine, nor has a name without a meaning; documents and comments have the field's words and short
/// sentences.
pub(crate) fn words() -> Step {
    let files = files()?;
    let mut faults = Vec::new();
    let (mut names, mut left) = (BTreeMap::<&str, BTreeSet<String>>::new(), BTreeMap::<&str, [Vec<String>; 3]>::new());
    for path in &files {
        let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        if EMPTY_NAMES.contains(&&*stem) {
            faults.push(format!("{path}: name the file after what it holds"));
        }
        let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let is_source = path.ends_with(".rs") || path.ends_with(".h") || path.ends_with(".c");
        if is_source && !OWN_WORDS.iter().any(|own| path.starts_with(own)) {
            faults.extend(prose::faults_of_source(&text).into_iter().map(|fault| format!("{path}: {fault}")));
        }
        if path.ends_with(".rs") {
            let of_file = prose::names(&text).map_err(|why| format!("{path}: {why}"))?;
            names.entry(crate_of(path)).or_default().extend(of_file);
            let [_, same, what] = left.entry(crate_of(path)).or_default();
            for (begun, words) in [same, what].into_iter().zip(prose::BEGINNINGS) {
                begun.extend(prose::beginning(&text, words).into_iter().map(|fault| format!("{path}: {fault}")));
            }
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(place) = machine_path(line) {
                faults.push(format!("{path}:{}: {place} is a place of one machine", number + 1));
            }
        }
    }
    for (name, names) in names {
        left.entry(name).or_default()[0].extend(names.iter().flat_map(|name| prose::faults_of_name(name)));
    }
    faults.extend(left.iter().flat_map(|(name, found)| against_ratchet(name, found)));
    let texts = texts(&files)?;
    for (name, text) in &texts {
        // Words of sources are known from above.
        let is_new = name.ends_with(".md") || name.ends_with(PYTHON);
        let found = if is_new { prose::faults(text) } else { Vec::from_iter(prose::length_faults(text)) };
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    verdict(&faults, &format!("{} files, {} texts", files.len(), texts.len()))
}

/// The folder of the crate that has a file.
fn crate_of(path: &str) -> &str {
    let depth = usize::from(path.starts_with("crates/"));
    path.match_indices('/').nth(depth).map_or(path, |(end, _)| &path[..end])
}

/// The faults that [`LEFT`] counts.
const COUNTED: [&str; 3] =
    ["names have a word of ours", "comments begin with 'The same'", "comments begin with 'What'"];
/// How many of these faults a crate may have: as many as it has. In a crate without a row, each is an error.
#[rustfmt::skip]
const LEFT: &[(&str, [usize; 3])] = &[
    ("crates/cpu", [2, 0, 0]),
    ("crates/cuda", [1, 0, 0]),
    ("crates/gpu", [8, 0, 0]),
    ("crates/kernels", [7, 0, 0]),
    ("crates/lanes", [5, 0, 0]),
    ("crates/vulkan", [1, 0, 0]),
];

/// The file that has the table, for errors.
const RATCHET: &str = "xtask/src/sources.rs";

/// Where a crate has more of these faults than [`LEFT`] says, or fewer.
fn against_ratchet(name: &str, found: &[Vec<String>; 3]) -> Vec<String> {
    let left = LEFT.iter().find(|(known, _)| *known == name).map_or([0; 3], |(_, left)| *left);
    let mut faults = Vec::new();
    for ((found, left), what) in found.iter().zip(left).zip(COUNTED) {
        let count = found.len();
        match count.cmp(&left) {
            Ordering::Equal => {}
            Ordering::Less => faults.push(format!("{name}: {count} {what}: lower the number {left} in {RATCHET}")),
            Ordering::Greater => {
                faults.push(format!("{name}: {count} {what}, {left} may by {RATCHET}; all of them:"));
                faults.extend(found.iter().cloned());
            }
        }
    }
    faults
}

const HEADER: &str = "crates/capi/include/hypergrove.h";
/// How the name of a crate's Python sources ends.
const PYTHON: &str = " (Python)";
/// Their documentation is the tool's `--help`.
const HELP: [&str; 2] = ["crates/cli/src/args.rs", "crates/lab/src/args.rs"];

/// Names and texts of what people read: documents, the documentation of each crate, in Python too, the tool's help, and the header for C. Logs of the
/// lab and notes on runs are dated and stay as they are; BENCHMARKS.md is rendered.
fn texts(files: &[String]) -> Result<Vec<(String, String)>, String> {
    let is_document = |path: &&String| {
        path.ends_with(".md")
            && !path.starts_with("bench/")
            && !path.starts_with("docs/lab/2")
            && **path != "BENCHMARKS.md"
    };
    let mut found = Vec::new();
    for path in files.iter().filter(is_document) {
        found.push((path.clone(), disk::read(path)?));
    }
    let mut of_crates = BTreeMap::<String, String>::new();
    for path in files.iter().filter(|path| path.ends_with(".py") || path.ends_with(".pyi")) {
        let folder = path.split('/').take(2).collect::<Vec<_>>().join("/");
        let text = prose::comments_of_python(&disk::read(path)?) + "\n\n";
        *of_crates.entry(format!("{folder}{PYTHON}")).or_default() += &text;
    }
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        let documentation = prose::documentation(&disk::read(path)?);
        if HELP.contains(&path.as_str()) {
            found.push((format!("{path} (help)"), documentation));
        } else if let Some((folder, _)) = path.split_once("/src/") {
            *of_crates.entry(format!("{folder} (rustdoc)")).or_default() += &(documentation + "\n\n");
        }
    }
    found.extend(of_crates);
    found.push((HEADER.into(), prose::comments_of_header(&disk::read(HEADER)?)));
    Ok(found)
}

/// The documents that lead: those at the root but the page of benchmarks and the list of changes, and those in `docs`.
pub(crate) fn documents() -> Vec<String> {
    let mut found = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"].map(String::from).to_vec();
    let mut pages = disk::entries("docs").unwrap_or_default();
    pages.retain(|path| path.extension().is_some_and(|it| it == "md"));
    found.extend(pages.iter().map(|path| path.to_string_lossy().into_owned()).filter(|path| path != "docs/SUMMARY.md"));
    found
}

/// The first machine path that starts in the line: not one inside a longer path or an address.
fn machine_path(line: &str) -> Option<&'static str> {
    let inside = |c: char| c.is_alphanumeric() || "._-~/}{*".contains(c);
    MACHINE_PATHS.iter().copied().find(|path| line.match_indices(path).any(|(at, _)| !line[..at].ends_with(inside)))
}

/// Every crate root outside MAY_BE_UNSAFE forbids unsafe code, or denies it if one of the crate's files may hold it; and no
/// other file (test, bench or build script) uses it.
pub(crate) fn forbid_unsafe() -> Step {
    let files = files()?;
    let rust = files
        .iter()
        .filter(|path| path.ends_with(".rs") && !MAY_BE_UNSAFE.iter().any(|crate_| path.starts_with(crate_)));
    let (mut faults, mut count) = (Vec::new(), 0);
    for path in rust {
        count += 1;
        let text = disk::read(path)?;
        let root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/");
        if root && !text.lines().any(|line| forbids(line, holds_exceptions(path))) {
            faults.push(format!("{path}: a crate root without #![forbid(unsafe_code)]"));
        }
        if let Some(number) = text.lines().position(uses_unsafe) {
            faults.push(format!("{path}:{}: unsafe code outside {}", number + 1, MAY_BE_UNSAFE.join(", ")));
        }
    }
    verdict(&faults, &format!("{count} files"))
}

/// Whether files next to or below this crate root may hold `unsafe`.
fn holds_exceptions(root: &str) -> bool {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    MAY_BE_UNSAFE.iter().any(|place| place.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// Whether the line is the attribute; where there are exceptions a module can be let out of a denial, or the whole crate of
/// a prohibition by a feature.
fn forbids(line: &str, exceptions: bool) -> bool {
    let line = line.trim();
    let conditional = || line.starts_with("#![cfg_attr(not(feature = ") && line.ends_with(", forbid(unsafe_code))]");
    line == "#![forbid(unsafe_code)]" || exceptions && (line == "#![deny(unsafe_code)]" || conditional())
}

/// Whether the keyword is followed by what makes it one: in strings and comments it seldom is.
fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let uses = ["{", "fn ", "impl ", "impl<", "trait ", "extern "];
    code.split("unsafe ").skip(1).any(|rest| uses.iter().any(|next| rest.starts_with(next)))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn finds_paths_of_one_machine() {
        for (before, found) in
            [("see ", true), ("\"", true), ("", true), ("https://example.org", false), ("..", false), ("$x/a", false)]
        {
            for path in MACHINE_PATHS {
                assert_eq!(machine_path(&format!("{before}{path}x")), found.then_some(*path), "{before}{path}");
            }
        }
    }

    #[test]
    fn crates_have_as_many_faults_as_the_table_says() {
        assert_eq!(crate_of("crates/a/src/b.rs"), "crates/a");
        assert_eq!(crate_of("xtask/src/b.rs"), "xtask");
        let found = |counts: [usize; 3]| counts.map(|count| vec!["a fault".to_string(); count]);
        // A crate without a row.
        assert!(against_ratchet("none", &found([0; 3])).is_empty());
        assert_eq!(against_ratchet("none", &found([0, 2, 0])).len(), 3);
        let Some((name, left)) = LEFT.first() else { return };
        assert!(against_ratchet(name, &found(*left)).is_empty());
        assert_eq!(against_ratchet(name, &found(left.map(|left| left + 1))).len(), 3 + left.iter().sum::<usize>() + 3);
        let fewer = against_ratchet(name, &found([0; 3]));
        assert!(fewer.iter().all(|fault| fault.contains("lower the number")), "{fewer:?}");
    }

    /// ARCHITECTURE.md: a crate depends on crates before it in this order, tests aside; the tool on the facade, files and
    /// the lab, its fuzz targets aside.
    #[test]
    fn dependencies_point_left() {
        let order = [
            "taint",
            "pem",
            "fips205",
            "zkdilithium",
            "vectors",
            "lanes",
            "engine",
            "kernels",
            "kernels-host",
            "cpu",
            "gpu",
            "cuda",
            "vulkan",
            "tables",
            "tune",
            "records",
            "hypergrove",
            "files",
            "unified",
            "capi",
            "openssl",
            "lab",
            "kat",
            "cli",
            "py",
            "testkit",
            "fuzz-targets",
            "trials",
        ];
        let at = |name: &str| {
            let folder = name.strip_prefix("hypergrove-").unwrap_or(name);
            order.iter().position(|known| *known == folder).unwrap_or_else(|| panic!("{name} is not in the order"))
        };
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let folders: Vec<_> = fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(folders.len(), order.len());
        for folder in folders {
            let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
            let name = manifest["package"]["name"].as_str().unwrap();
            let is_always = |entry: &toml::Value| entry.get("optional").is_none_or(|it| it.as_bool() == Some(false));
            let targets = manifest.get("target").and_then(|it| it.as_table()).into_iter().flatten();
            let tables = targets.map(|(_, target)| target.get("dependencies")).chain([manifest.get("dependencies")]);
            let ours = tables.flatten().filter_map(|it| it.as_table()).flatten();
            let ours: Vec<_> = ours.filter(|(other, _)| other.starts_with("hypergrove")).collect();
            let for_targets = |entry: &toml::Value| name == "hypergrove-cli" && !is_always(entry);
            for (other, _) in ours.iter().filter(|(_, entry)| !for_targets(entry)) {
                assert!(at(other) < at(name), "{name} depends on {other}, which is to the right of it");
            }
            if name == "hypergrove-cli" {
                let always: Vec<_> =
                    ours.iter().filter(|(_, entry)| is_always(entry)).map(|(other, _)| *other).collect();
                assert_eq!(
                    always,
                    [
                        "hypergrove",
                        "hypergrove-files",
                        "hypergrove-kat",
                        "hypergrove-lab",
                        "hypergrove-pem",
                        "hypergrove-records",
                        "hypergrove-unified"
                    ]
                );
            }
        }
    }

    #[test]
    fn roots_forbid_or_deny() {
        assert!(holds_exceptions("crates/cuda/src/lib.rs") && holds_exceptions("crates/vulkan/src/lib.rs"));
        assert!(!holds_exceptions("crates/cpu/src/lib.rs") && !holds_exceptions("xtask/src/main.rs"));
        let conditional = "#![cfg_attr(not(feature = \"valgrind\"), forbid(unsafe_code))]";
        for (line, without, with) in [
            ("#![forbid(unsafe_code)]", true, true),
            ("#![deny(unsafe_code)]", false, true),
            (conditional, false, true),
            ("#![allow(unsafe_code)]", false, false),
            ("// #![forbid(unsafe_code)]", false, false),
        ] {
            assert_eq!((forbids(line, false), forbids(line, true)), (without, with), "{line}");
        }
    }

    #[test]
    fn finds_unsafe_code() {
        let keyword = "unsafe";
        assert!(uses_unsafe(&format!("    let x = {keyword} {{ y() }};")));
        assert!(uses_unsafe(&format!("pub {keyword} fn y() {{")));
        assert!(!uses_unsafe(&format!("// {keyword} {{")));
        assert!(!uses_unsafe("#![forbid(unsafe_code)]"));
    }
}
