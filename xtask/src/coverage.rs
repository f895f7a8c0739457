//! How much of the decoders the corpus of the fuzz targets reaches, line by line.

use crate::process::{self, answers, may_install};
use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// What the corpus reaches of a decoder's lines, at least, in percent.
const LEAST: usize = 95;

/// What reads bytes that others made: files, and in them the lines that begin what is counted, up to the brace that ends it.
#[rustfmt::skip]
const DECODERS: &[(&str, &[&str])] = &[
    ("crates/fips205/src/encoding.rs", &[
        "fn by_algorithm(", "pub(crate) fn der_of<", "pub fn read_pkcs8(", "fn from_info(", "pub fn write_pkcs8(", "pub fn read_spki(", "pub fn write_spki(",
    ]),
    ("crates/fips205/src/encrypted.rs", &[
        "pub fn looks_like_it(", "pub fn read(", "pub fn to_der(", "pub fn to_pem(", "fn is_encrypted(", "fn supported(", "fn check_costs(",
    ]),
    ("crates/fips205/src/keys.rs", &["fn check_length(", "fn widen(", "pub fn from_bytes(", "pub fn to_bytes(", "impl fmt::Display for KeyError"]),
    ("crates/zkdilithium/src/pem.rs", &["fn decode(", "pub fn read_pem("]),
    ("crates/zkdilithium/src/keys.rs", &[
        "impl fmt::Display for KeyError", "fn check_length(", "pub fn from_bytes(", "pub fn check(", "fn unpack_each<", "impl DecodedSignature {",
        "pub fn is_canonical_with(",
    ]),
    ("crates/zkdilithium/src/pack.rs", &[
        "pub fn unpack_fes(", "pub fn fes_are_canonical(", "pub(crate) fn unpack_eta_to(", "pub fn pack_codes<", "pub fn unpack_codes<", "fn element<",
    ]),
    ("crates/zkdilithium/src/witness.rs", &["pub fn new(", "fn cyclic_w(", "fn scaled_variable("]),
    ("crates/hypergrove/src/manifest.rs", &["pub fn parse(", "pub fn to_bytes(", "fn entry(", "fn quoted(", "pub fn escape(", "pub fn unescape("]),
    ("crates/hypergrove/src/ledger.rs", &["fn of_slot(", "fn newest("]),
    ("crates/hypergrove/src/signers.rs", &["pub fn time(", "fn instant(", "impl AllowedSigners {", "fn is_condition(", "fn check_name(", "fn signer("]),
    ("crates/hypergrove/src/text.rs", &["pub fn without_mark(", "pub fn private_key(", "fn column(", "fn is_pkcs8(", "fn begins_as_pkcs8("]),
    ("crates/tables/src/table.rs", &[
        "impl TryFrom<String> for Sizes {", "impl From<Sizes> for String {", "pub fn parse(", "pub fn take_over(", "pub fn is_plausible(",
        "pub fn shortened(", "fn title(", "fn set(", "fn params(", "pub fn new(", "fn take(", "pub fn in_use(", "fn row(", "fn estimate(", "fn policy(",
        "fn choose(", "pub fn share_out(", "pub fn sizes(",
    ]),
    ("crates/tables/src/space.rs", &["pub fn policy<"]),
    ("crates/tune/src/journal.rs", &["impl Samples {"]),
    ("crates/cli/src/pem.rs", &["pub(crate) fn is_pem(", "impl<'a> Pem<'a> {", "impl Block<'_> {", "fn endless(", "fn damaged(", "pub(crate) fn mixed("]),
    ("crates/cli/src/keys.rs", &[
        "pub(crate) fn recognise(", "fn in_pem(", "fn raw(", "fn private(der", "fn public(der", "fn unknown(", "pub(crate) fn elements(",
    ]),
    ("crates/cli/src/inspect.rs", &[
        "pub(crate) fn report(", "fn part(", "fn hidden(", "pub(crate) fn of_slh_dsa(", "fn signature(", "fn key(",
    ]),
    ("crates/cli/src/schemes/zkdilithium.rs", &["pub(super) fn looks_like_it(", "fn recognise(", "fn of_pem(", "fn inspect("]),
    ("crates/cli/src/hash.rs", &["fn escaped(", "pub(crate) fn line(", "pub(crate) fn read_sums(", "fn parse("]),
    ("crates/cli/src/table.rs", &["pub(crate) fn rows("]),
    ("crates/cli/src/files.rs", &["pub(crate) fn listed("]),
    ("crates/cli/src/hexadecimal.rs", &["impl<'de, const CAPITALS: bool>", "impl<const CAPITALS: bool>"]),
    ("crates/cli/src/acvp.rs", &[
        "impl<'de> Deserialize<'de> for Id {", "pub(crate) fn parse(", "pub(crate) fn answer<", "fn need(", "fn message(", "fn mode(",
        "fn key_gen(", "fn sig_gen(", "fn sig_ver(",
    ]),
    ("crates/cli/src/kat.rs", &["fn apply(", "pub(crate) fn parse(", "pub(crate) fn answers<", "fn verdicts("]),
    ("crates/lab/src/failure.rs", &["impl From<hypergrove::KeyError> for Failure {"]),
    ("crates/lab/src/report/read.rs", &["pub fn record("]),
];

/// `cargo xtask coverage`: whether the corpus reaches enough of each decoder.
pub(crate) fn run() -> Result<bool, String> {
    let summary = check()?;
    println!("{summary}");
    Ok(true)
}

/// Builds the replay with counters, runs it, and counts the decoders' lines.
pub(crate) fn check() -> Result<String, String> {
    let tools = llvm_tools()?;
    let folder = process::target().join("coverage");
    let raw = folder.join("raw");
    let _ = fs::remove_dir_all(&raw);
    fs::create_dir_all(&raw).map_err(|why| format!("{}: {why}", raw.display()))?;
    // Lines are those of the source: without optimisation none is moved. A build of its own, for everything is counted.
    let test = ["test", "--profile", "checked", "-p", "hypergrove-cli", "--lib"];
    let instrumented = |more: &[&str]| {
        let mut command = process::cargo(&[&test[..], more].concat());
        command.env("RUSTFLAGS", "-C instrument-coverage").env("CARGO_TARGET_DIR", &folder);
        command.env("LLVM_PROFILE_FILE", raw.join("%p-%m.profraw")).env("CARGO_PROFILE_CHECKED_OPT_LEVEL", "1");
        command
    };
    let built = instrumented(&["--no-run", "--message-format", "json"]).output().map_err(|why| why.to_string())?;
    if !built.status.success() {
        return Err(format!("the replay could not be built: {}", String::from_utf8_lossy(&built.stderr)));
    }
    let program = executable(&String::from_utf8_lossy(&built.stdout)).ok_or("cargo names no tests of the tool")?;
    // What the standard's sets compute reaches no decoder, and takes minutes here.
    process::run(instrumented(&["--", "fuzz::", "--skip", "signatures_"]))?;

    let merged = folder.join("fuzz.profdata");
    let mut merge = std::process::Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "-sparse", "-o"]).arg(&merged);
    let profiles = fs::read_dir(&raw).map_err(|why| why.to_string())?;
    merge.args(profiles.filter_map(|entry| Some(entry.ok()?.path())));
    process::run(merge)?;
    let mut export = std::process::Command::new(tools.join("llvm-cov"));
    export.args(["export", "--format=lcov"]).arg("--instr-profile").arg(&merged).arg(&program);
    let export = export.args(["--sources"]).args(DECODERS.iter().map(|(file, _)| *file)).output();
    let export = export.map_err(|why| format!("llvm-cov: {why}"))?;
    if !export.status.success() {
        return Err(format!("llvm-cov: {}", String::from_utf8_lossy(&export.stderr)));
    }
    judge(&lines(&String::from_utf8_lossy(&export.stdout)))
}

/// LLVM's tools of the toolchain that compiles.
fn llvm_tools() -> Result<PathBuf, String> {
    let root = process::output("rustc", &["--print", "sysroot"]).ok_or("no rustc")?;
    let host = process::output("rustc", &["-vV"]).ok_or("no rustc")?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let tools = Path::new(root.trim()).join("lib/rustlib").join(host).join("bin");
    if !tools.join("llvm-cov").exists() && may_install() {
        let _ = answers("rustup", &["component", "add", "llvm-tools"]);
    }
    if tools.join("llvm-cov").exists() {
        Ok(tools)
    } else {
        Err("no llvm-cov: `rustup component add llvm-tools`".into())
    }
}

/// The test program that cargo's messages name.
fn executable(messages: &str) -> Option<String> {
    let values = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut tests = values.filter(|value| value["target"]["name"] == "hypergrove_cli");
    tests.find_map(|value| value["executable"].as_str().map(String::from))
}

/// How often each line ran, by file.
type Lines = BTreeMap<String, BTreeMap<usize, u64>>;

fn lines(lcov: &str) -> Lines {
    let (mut files, mut file) = (Lines::new(), String::new());
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.into();
        } else if let Some((number, count)) = line.strip_prefix("DA:").and_then(|rest| rest.split_once(','))
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
        {
            *files.entry(file.clone()).or_default().entry(number).or_default() += count;
        }
    }
    files
}

fn judge(lines: &Lines) -> Result<String, String> {
    let (mut all, mut reached, mut poor) = (0, 0, Vec::new());
    for (file, parts) in DECODERS {
        let text = fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
        let ranges = ranges(&text, parts).map_err(|part| format!("{file} has no line that begins with `{part}`"))?;
        let counts = lines.iter().find(|(path, _)| path.ends_with(file)).map(|(_, counts)| counts);
        let counts = counts.ok_or(format!("no line of {file} was counted"))?;
        let inside = |number: &usize| ranges.iter().any(|range| range.contains(number));
        let counted: Vec<(usize, u64)> =
            counts.iter().filter(|(number, _)| inside(number)).map(|(number, count)| (*number, *count)).collect();
        let missed: Vec<String> =
            counted.iter().filter(|(_, count)| *count == 0).map(|(number, _)| number.to_string()).collect();
        let (of, hit) = (counted.len(), counted.len() - missed.len());
        println!(
            "{file:<38} {hit:>4} of {of:>4} lines, {:>5.1} %  {}",
            100.0 * hit as f64 / of as f64,
            missed.join(" ")
        );
        if 100 * hit < LEAST * of {
            poor.push(*file);
        }
        (all, reached) = (all + of, reached + hit);
    }
    let share = 100.0 * reached as f64 / all as f64;
    match poor.is_empty() {
        true => Ok(format!("{share:.1} % of {all} lines of decoders")),
        false => Err(format!("below {LEAST} % of the lines: {}; add inputs to fuzz/corpus", poor.join(", "))),
    }
}

/// The lines of what begins so, each up to the brace that ends it; or what none begins.
fn ranges<'p>(text: &str, parts: &[&'p str]) -> Result<Vec<RangeInclusive<usize>>, &'p str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut ranges = Vec::new();
    for part in parts {
        let found = ranges.len();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with(part)) {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let length = lines[at..].iter().position(|line| *line == end).unwrap_or(0);
            ranges.push(at + 1..=at + 1 + length);
        }
        if ranges.len() == found {
            return Err(part);
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn parts_end_with_their_brace() {
        let text = "impl A {\n    fn b() {\n        c();\n    }\n}\nfn d() {\n}\n";
        assert_eq!(ranges(text, &["impl A", "fn b("]), Ok(vec![1..=5, 2..=4]));
        assert_eq!(ranges(text, &["fn d", "fn e"]), Err("fn e"));
    }

    #[test]
    fn decoders_are_where_they_are_said_to_be() {
        for (file, parts) in DECODERS {
            let text = fs::read_to_string(crate::workspace().join(file)).expect("a source");
            assert!(ranges(&text, parts).is_ok(), "{file}: {:?}", ranges(&text, parts));
        }
    }

    #[test]
    fn lines_of_several_programs_add_up() {
        let counted = lines("SF:a.rs\nDA:1,2\nDA:2,0\nend_of_record\nSF:a.rs\nDA:2,3\nend_of_record\n");
        assert_eq!(counted["a.rs"], BTreeMap::from([(1, 2), (2, 3)]));
    }

    /// A decoder that the corpus does not reach fails, and one that nothing was counted of.
    #[test]
    fn what_is_not_reached_fails() {
        std::env::set_current_dir(crate::workspace()).expect("the workspace");
        assert!(judge(&Lines::new()).is_err_and(|why| why.starts_with("no line of")));
        let all = |count| -> Lines {
            let counts = || (1..1000).map(|number| (number, count)).collect();
            DECODERS.iter().map(|(file, _)| (String::from(*file), counts())).collect()
        };
        assert!(judge(&all(0)).is_err_and(|why| why.starts_with("below 95 %")));
        assert!(judge(&all(1)).is_ok_and(|what| what.starts_with("100.0 %")));
    }
}
