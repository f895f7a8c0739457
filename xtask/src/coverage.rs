//! How much of the decoders the corpus of the fuzz targets reaches, line by line.

use crate::disk;
use crate::process::{self, answers};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files that read bytes which others made, how many of their functions the corpus enters, at least, and how much of the lines of these
/// functions it reaches, at least, in percent. Functions that it does not enter read no such bytes. A share below 95 % is that of a file
/// whose functions also write, or have errors that no input causes.
#[rustfmt::skip]
const DECODERS: &[(&str, usize, usize)] = &[
    ("crates/fips205/src/encoding.rs", 19, 95),
    ("crates/fips205/src/fields.rs", 9, 95),
    ("crates/fips205/src/encrypted.rs", 10, 88),
    ("crates/fips205/src/keys.rs", 27, 93),
    ("crates/zkdilithium/src/pem.rs", 7, 95),
    ("crates/zkdilithium/src/keys.rs", 46, 95),
    ("crates/zkdilithium/src/pack.rs", 12, 95),
    ("crates/zkdilithium/src/witness.rs", 3, 95),
    ("crates/files/src/manifest.rs", 10, 94),
    ("crates/files/src/ledger.rs", 8, 79),
    ("crates/files/src/signers.rs", 14, 88),
    ("crates/files/src/text.rs", 8, 86),
    ("crates/tables/src/table.rs", 23, 95),
    ("crates/tables/src/space.rs", 2, 95),
    ("crates/tune/src/journal.rs", 1, 95),
    ("crates/pem/src/lib.rs", 15, 95),
    ("crates/cli/src/der.rs", 1, 95),
    ("crates/cli/src/keys.rs", 10, 93),
    ("crates/cli/src/layout.rs", 5, 95),
    ("crates/cli/src/inspect.rs", 2, 93),
    ("crates/cli/src/schemes/zkdilithium.rs", 6, 95),
    ("crates/cli/src/hash.rs", 4, 95),
    ("crates/cli/src/table.rs", 1, 95),
    ("crates/cli/src/files.rs", 4, 93),
    ("crates/vectors/src/hexadecimal.rs", 2, 95),
    ("crates/vectors/src/acvp/prompt.rs", 2, 95),
    ("crates/vectors/src/zkdilithium.rs", 1, 95),
    ("crates/kat/src/acvp.rs", 9, 95),
    ("crates/kat/src/zkdilithium.rs", 3, 95),
    ("crates/lab/src/failure.rs", 5, 86),
    ("crates/records/src/runs.rs", 1, 95),
];

/// `cargo xtask coverage`: whether the corpus reaches enough of each decoder.
pub(crate) fn run() -> Result<bool, String> {
    let summary = check()?;
    println!("{summary}");
    Ok(true)
}

/// Builds the replay with counters, runs it, and counts the decoders' functions and lines.
pub(crate) fn check() -> Result<String, String> {
    let tools = llvm_tools()?;
    let folder = process::target().join("coverage");
    let raw = folder.join("raw");
    disk::make_anew(&raw)?;
    // Lines are those of the source: without optimisation none is moved. A build of its own, for everything is counted.
    let test = ["test", "--profile", "checked", "-p", "hypergrove-cli", "--lib"];
    let instrumented = |more: &[&str]| {
        let mut command = process::cargo(&[&test[..], more].concat());
        command.env("RUSTFLAGS", "-C instrument-coverage").env("CARGO_TARGET_DIR", &folder);
        command.env("LLVM_PROFILE_FILE", raw.join("%p-%m.profraw")).env("CARGO_PROFILE_CHECKED_OPT_LEVEL", "1");
        command
    };
    let made = process::made(instrumented(&["--no-run"]), "hypergrove_cli")?;
    let program = made.iter().find(|file| file.extension().is_none()).ok_or("cargo names no tests of the tool")?;
    // Computations of the standard's sets reach no decoder, and take minutes here.
    process::run(instrumented(&["--", "fuzz::", "--skip", "signatures_"]))?;

    let merged = folder.join("fuzz.profdata");
    let mut merge = std::process::Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "-sparse", "-o"]).arg(&merged);
    merge.args(disk::entries(&raw)?);
    process::run(merge)?;
    let mut export = std::process::Command::new(tools.join("llvm-cov"));
    export.args(["export", "--format=lcov"]).arg("--instr-profile").arg(&merged).arg(program);
    export.args(["--sources"]).args(DECODERS.iter().map(|(file, ..)| *file));
    judge(&counts(&process::text(export)?))
}

/// LLVM's tools of the toolchain that compiles.
fn llvm_tools() -> Result<PathBuf, String> {
    let root = process::output("rustc", &["--print", "sysroot"]).ok_or("no rustc")?;
    let host = process::output("rustc", &["-vV"]).ok_or("no rustc")?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let tools = Path::new(root.trim()).join("lib/rustlib").join(host).join("bin");
    let there = || tools.join("llvm-cov").exists();
    let install = || answers("rustup", &["component", "add", "llvm-tools"]);
    process::ensure(there, install, || "no llvm-cov: `rustup component add llvm-tools`".into())?;
    Ok(tools)
}

/// How often each line of a file ran, and each function, by its first line.
#[derive(Default)]
struct Counts {
    lines: BTreeMap<usize, u64>,
    functions: BTreeMap<usize, u64>,
}

/// The counts by file. A function that is compiled several times is entered if one of these is; a closure belongs to its function.
fn counts(lcov: &str) -> BTreeMap<String, Counts> {
    let is_closure = |name: &str| name.starts_with("_RNC") || name.starts_with("_RINC");
    let mut files = BTreeMap::<String, Counts>::new();
    for record in lcov.split("end_of_record\n") {
        let Some(file) = record.lines().find_map(|line| line.strip_prefix("SF:")) else { continue };
        let (counts, mut begins) = (files.entry(file.into()).or_default(), BTreeMap::new());
        for (kind, values) in record.lines().filter_map(|line| line.split_once(':')) {
            let Some((number, value)) = values.split_once(',') else { continue };
            let number: u64 = number.parse().unwrap_or_default();
            match kind {
                "FN" if !is_closure(value) => drop(begins.insert(value, number as usize)),
                "FNDA" => begins.get(value).into_iter().for_each(|line| add(&mut counts.functions, *line, number)),
                "DA" => add(&mut counts.lines, number as usize, value.parse().unwrap_or_default()),
                _ => {}
            }
        }
    }
    files
}

fn add(counts: &mut BTreeMap<usize, u64>, line: usize, count: u64) {
    *counts.entry(line).or_default() += count;
}

fn judge(counts: &BTreeMap<String, Counts>) -> Result<String, String> {
    let (mut all, mut reached, mut faults) = (0, 0, Vec::new());
    for (file, least, percent) in DECODERS {
        let Counts { lines, functions } = counts
            .iter()
            .find_map(|(path, counts)| path.ends_with(file).then_some(counts))
            .ok_or(format!("no line of {file} was counted"))?;
        let entered = functions.values().filter(|count| **count > 0).count();
        let is_entered = |line: &usize| functions.range(..=line).next_back().is_some_and(|(_, count)| *count > 0);
        let counted = lines.iter().filter(|(line, _)| is_entered(line));
        let missed: Vec<String> =
            counted.clone().filter(|(_, count)| **count == 0).map(|(line, _)| line.to_string()).collect();
        let (of, hit) = (counted.clone().count(), counted.count() - missed.len());
        let share = 100.0 * hit as f64 / of as f64;
        println!("{file:<38} {entered:>2} functions, {hit:>4} of {of:>4} lines, {share:>5.1} %  {}", missed.join(" "));
        if entered < *least || 100 * hit < percent * of {
            faults.push(format!("{file}: at least {least} functions and {percent} % of their lines are expected"));
        }
        (all, reached) = (all + of, reached + hit);
    }
    match faults.is_empty() {
        true => Ok(format!("{:.1} % of {all} lines of decoders", 100.0 * reached as f64 / all as f64)),
        false => Err(format!("{}; add inputs to fuzz/corpus", faults.join("; "))),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn decoders_are_where_they_are_said_to_be() {
        assert!(DECODERS.iter().all(|(file, ..)| disk::workspace().join(file).is_file()));
    }

    #[test]
    fn counts_of_several_programs_add_up() {
        let lcov = "SF:a.rs\nFN:1,_RNvA\nFN:1,_RINvA\nFN:2,_RNCNvA\nFNDA:0,_RNvA\nFNDA:2,_RINvA\nFNDA:0,_RNCNvA\nDA:1,2\n\
                    DA:2,0\nend_of_record\nSF:b.rs\nDA:7,1\nend_of_record\nSF:a.rs\nDA:2,3\nend_of_record\n";
        let counted = counts(lcov);
        assert_eq!(counted["a.rs"].functions, BTreeMap::from([(1, 2)]));
        assert_eq!(counted["a.rs"].lines, BTreeMap::from([(1, 2), (2, 3)]));
    }

    /// A file that the corpus does not reach is a fault, and so is a file of which nothing was counted, or fewer functions than before.
    #[test]
    fn files_below_their_numbers_are_faults() {
        assert!(judge(&BTreeMap::new()).is_err_and(|why| why.starts_with("no line of")));
        let all = |functions: usize, hit: usize| {
            let counts = || Counts {
                functions: (1..=functions).map(|number| (10 * number, 1)).chain([(2000, 0)]).collect(),
                lines: (1000..1100).map(|line| (line, u64::from(line < 1000 + hit))).chain([(2001, 0)]).collect(),
            };
            judge(&DECODERS.iter().map(|(file, ..)| (String::from(*file), counts())).collect())
        };
        assert!(all(0, 100).is_err_and(|why| why.contains("at least 19 functions and 95 % of their lines")));
        assert!(all(99, 94).is_err_and(|why| why.contains("at least 19 functions and 95 % of their lines")));
        assert!(all(99, 95).is_ok_and(|what| what.starts_with("95.0 %")));
    }
}
