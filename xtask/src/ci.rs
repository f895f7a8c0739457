//! CI's steps and their closing table.

use crate::changes::{Change, Reads};
use crate::process;
use crate::step::{Extent, Step, Stop, Tally};
use crate::{
    api, benchmarks, capi, dependent, dist, examples, features, foreign, fuzz, kernels, links, negative, openssl,
    outputs, python, secrets, server, shaders, site, sources, supply_chain, tests, threads, wheels,
};
use clap::builder::PossibleValuesParser;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) struct CiStep {
    pub(crate) name: &'static str,
    about: &'static str,
    run: Run,
    /// The usual run leaves it out if the change touches nothing there. None: whatever changes may break it.
    pub(crate) reads: Option<Reads>,
}

type Run = fn(&mut Tally, Extent) -> Step;

const fn always(name: &'static str, about: &'static str, run: Run) -> CiStep {
    CiStep { name, about, run, reads: None }
}

const fn if_touched(name: &'static str, reads: Reads, about: &'static str, run: Run) -> CiStep {
    CiStep { name, about, run, reads: Some(reads) }
}

/// Cheap ones first. Those that only toolchains, or files that few changes touch, can break say where they read.
#[rustfmt::skip]
pub(crate) const STEPS: &[CiStep] = &[
    always("fmt", "formatting is rustfmt's", |_, _| fmt()),
    always("words", "no path of one machine; plain names, words and sentences", |_, _| sources::words()),
    always("spelling", "no word is misspelt, by typos", |_, _| spelling()),
    always("links", "links between documents lead to files and headings", |_, _| links::check()),
    always("unsafe", "unsafe code is where it may be and nowhere else", |_, _| sources::forbid_unsafe()),
    always("deny", "licences, sources and audits of all dependencies", |_, _| supply_chain::check()),
    always("bench", "BENCHMARKS.md and tables of documents are what bench/runs says", |_, _| benchmarks::current()),
    always("negative", "the negative corpus is what its generator makes", |_, extent| negative::check(extent)),
    always("shaders", "the SPIR-V modules are what glslc made of these kernels; in full, what it makes", |_, extent| shaders::check(extent)),
    always("clippy", "no warning in any target", |_, _| clippy()),
    if_touched("features", "crates/ docs/features.md", "the library with each feature alone and left out; its packages", |_, extent| features::check(extent)),
    if_touched("api", "hypergrove files xtask/api/", "the library's public items are those that are listed", |_, _| api::check()),
    if_touched("overflow", "lanes+tests", "lanes with checks for overflow, on few jobs", |tally, _| overflow(tally)),
    always("test", "all tests on this machine", tests::workspace),
    always("examples", "the library's example programs run", |_, _| examples::check()),
    if_touched("capi", "capi docs/c.md", "the C library: its ABI, its examples, bad input under sanitizers", |_, extent| capi::check(extent)),
    if_touched("openssl", "openssl", "OpenSSL's programs and EVP with the provider; in full, with 3.6 and 4.0", |_, extent| openssl::check(extent)),
    if_touched("secrets", "taint+tests xtask/secrets.supp", "no branch and no address on a secret, as Valgrind sees it", secrets::check),
    if_touched("outputs", "cli+tests bench/definitions/", "a fault at any system call loses no file and leaves none half", outputs::check),
    if_touched("python", "py pyproject.toml docs/python.md docs/tables.md", "the Python package: a wheel in an empty environment, its tests and types", python::check),
    if_touched("kernels", "kernels kernels-host crates/cuda/", "the GPU kernels compile for devices, without a GPU", kernels::check),
    always("doc", "documentation without a warning", |_, _| doc()),
    always("site", "the site of the documents, by mdBook", |_, _| site::check()),
    if_touched("dependent", "hypergrove xtask/dependent/", "a program in Cargo's dev profile uses the library", |_, _| dependent::check()),
    if_touched("server", "hypergrove server/ crates/testkit/ crates/vectors/ docs/server-reference.md", "the signing service, in its own workspace; in full, with other clients", server::check),
    if_touched("no-std", "fips205 zkdilithium", "fips205 and zkdilithium without an operating system", |_, _| foreign::no_std()),
    if_touched("systems", "cli+tests bench/definitions/", "the tool for Windows; in full, for macOS, and its tests under Wine", foreign::systems),
    if_touched("neon", "lanes+tests cpu+tests", "lanes and cpu on aarch64 under qemu", |tally, _| foreign::neon(tally)),
    if_touched("miri", "engine+tests lanes+tests", "the host logic, its threads and the lanes under Miri", foreign::miri),
];

/// Those that only a full run has, unless they are named.
#[rustfmt::skip]
pub(crate) const LONG_STEPS: &[CiStep] = &[
    always("faults", "10,000 bits flipped while signing: nothing wrong leaves with redundant", |tally, _| tests::faults(tally)),
    always("fuzz", "runs of the fuzz targets, and the lines that they reach", |tally, _| fuzz::check(tally)),
    always("threads", "calls that share an engine, under ThreadSanitizer and loom", |tally, _| threads::check(tally)),
    always("advisories", "no dependency has a fault that RustSec knows", |_, _| supply_chain::advisories()),
    always("sbom", "the tool's bill of materials names every dependency", |_, _| supply_chain::sbom()),
    always("dist", "a candidate of a release, built twice and installed where users are", |tally, _| dist::check::step(tally)),
    always("reproducible", "two builds in two folders give the same tool", |_, _| supply_chain::reproducible()),
];

/// Every step there is.
pub(crate) fn all_steps() -> impl Iterator<Item = &'static CiStep> {
    STEPS.iter().chain(LONG_STEPS)
}

/// Steps that another process of this program runs meanwhile, if all steps of the usual extent run. They share next to no builds with others, so
/// they have a target folder of their own, and none waits for another's build. A full run measures times, so it runs one step at a time.
const MEANWHILE: [&str; 8] = ["overflow", "secrets", "dependent", "server", "no-std", "systems", "neon", "miri"];

/// The word that asks for [`Extent::Full`].
const FULL: &str = "full";
/// Where a step's name is expected: every step.
const ALL: &str = "all";

/// The arguments of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Request {
    /// Steps, by default all of them; `full` has them at full length
    #[arg(value_name = "STEP", value_parser = names(FULL), hide_possible_values = true)]
    steps: Vec<String>,
    /// Steps whose skip is a failure, or `all`
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names(ALL), hide_possible_values = true)]
    require: Vec<String>,
    /// Leave out steps that read nothing which changed since this commit; by default, since the branch left origin/main
    #[arg(long, value_name = "COMMIT", conflicts_with = "steps")]
    since: Option<String>,
}

/// The names of all steps, and another word.
fn names(also: &'static str) -> PossibleValuesParser {
    all_steps().map(|step| step.name).chain([also]).into()
}

/// The list of all steps.
pub(crate) fn list() -> String {
    let lines = |steps: &[CiStep]| steps.iter().map(|step| format!("\n  {:<12} {}", step.name, step.about)).collect();
    let [usual, long]: [String; 2] = [STEPS, LONG_STEPS].map(lines);
    format!("Steps of ci:{usual}\n\nOf a full run only:{long}")
}

impl Request {
    fn is_full(&self) -> bool {
        self.steps.iter().any(|name| name == FULL)
    }

    /// Those that it names, otherwise all of its extent.
    fn chosen(&self) -> impl Iterator<Item = &'static CiStep> {
        let has_named = self.steps.iter().any(|name| name != FULL);
        let extent = if self.is_full() { STEPS.len() + LONG_STEPS.len() } else { STEPS.len() };
        let is_chosen = move |at: usize, name: &str| match has_named {
            true => self.steps.iter().any(|named| named == name),
            false => at < extent,
        };
        all_steps().enumerate().filter(move |(at, step)| is_chosen(*at, step.name)).map(|(_, step)| step)
    }

    fn requires(&self, name: &str) -> bool {
        self.require.iter().any(|required| required == name || required == ALL)
    }

    /// Those of its steps that read nothing that the change touches, where all steps of the usual extent are to run; and since when.
    fn untouched(&self) -> Result<(Vec<&'static str>, String), String> {
        let change = if self.steps.is_empty() { Change::find(self.since.as_deref())? } else { None };
        let Some(change) = change else { return Ok(Default::default()) };
        let is_named = |step: &CiStep| self.require.iter().any(|name| name == step.name);
        let is_left_out = |step: &&CiStep| !is_named(step) && step.reads.is_some_and(|reads| !change.touches(reads));
        Ok((self.chosen().filter(is_left_out).map(|step| step.name).collect(), change.since))
    }

    /// A skip of a step that is required is a failure.
    fn judge(&self, name: &str, result: Step) -> Step {
        match result {
            Err(Stop::Skipped(why)) if self.requires(name) => {
                Err(Stop::Failed(format!("required, but skipped: {why}")))
            }
            result => result,
        }
    }
}

/// Runs the named steps, or all; whether none failed.
pub(crate) fn run(request: &Request) -> Result<bool, String> {
    let extent = if request.is_full() { Extent::Full } else { Extent::Usual };
    let start = Instant::now();
    let mut tally = Tally::default();
    let (mut rows, mut failed) = (Vec::new(), 0);
    let are_all = request.steps.is_empty();
    let (untouched, since) = request.untouched()?;
    let of_meanwhile: Vec<&str> = MEANWHILE.into_iter().filter(|name| are_all && !untouched.contains(name)).collect();
    let meanwhile = Meanwhile::start(request, &of_meanwhile)?;
    let is_own = |step: &&CiStep| !of_meanwhile.contains(&step.name) && !untouched.contains(&step.name);
    for step in request.chosen().filter(is_own) {
        println!("\n=== {}: {}", step.name, step.about);
        let (start, cpu, failures) = (Instant::now(), process::cpu_time(), tally.failed);
        let (result, note) = match request.judge(step.name, (step.run)(&mut tally, extent)) {
            Ok(note) => ("passed", note),
            Err(Stop::Skipped(why)) => (SKIPPED, why),
            Err(Stop::Failed(why)) => {
                // A failing test has been counted already.
                failed += u64::from(tally.failed == failures);
                (FAILED, why)
            }
        };
        println!(
            "--- {} {result} in {}{}{note}",
            step.name,
            shown(start.elapsed()),
            if note.is_empty() { "" } else { ": " }
        );
        rows.push((step.name, result, start.elapsed(), process::cpu_time().saturating_sub(cpu), note));
    }
    let (mut have_passed, mut closing_lines) = (true, Vec::new());
    if let Some(meanwhile) = meanwhile {
        println!("\n=== meanwhile, waited for: {}", of_meanwhile.join(", "));
        let (passed, text) = meanwhile.finish()?;
        println!("{text}");
        // Its closing lines are to be read at the end.
        let is_verdict = |line: &&str| line.starts_with("FAILED") || line.starts_with("NOT CHECKED");
        closing_lines = text.lines().filter(is_verdict).map(String::from).collect();
        let [its_passed, its_failed, its_skipped] = tests::read_total(&text).unwrap_or([0, 1, 0]);
        tally.passed += its_passed;
        tally.ignored += its_skipped;
        failed += its_failed;
        have_passed = passed;
    }
    tests::print_named(&tally);
    println!("\n=== all steps in {}, {} of CPU time", shown(start.elapsed()), shown(process::cpu_time()));
    println!("{:<12} {:<8} {:>9}  {:>9}", "step", "result", "time", "CPU time");
    for (name, result, time, cpu, note) in &rows {
        let note = note.lines().next().unwrap_or_default();
        println!("{name:<12} {result:<8} {:>9}  {:>9}  {note}", shown(*time), shown(*cpu));
    }
    for name in &untouched {
        println!(
            "{name:<12} {:<8} {:>9}  {:>9}  nothing that it reads was touched since {since:.12}",
            "NOT RUN", "", ""
        );
    }
    let skipped: Vec<&str> = rows.iter().filter(|(_, result, ..)| *result == SKIPPED).map(|(name, ..)| *name).collect();
    tests::print_total(&tally, failed, (skipped.len() + untouched.len()) as u64);
    for (name, .., why) in rows.iter().filter(|(_, result, ..)| *result == FAILED) {
        println!("FAILED {name}: {why}");
    }
    if !skipped.is_empty() {
        println!("NOT CHECKED: {}. The table says why; --require makes a skip a failure.", skipped.join(", "));
    }
    if !untouched.is_empty() {
        println!(
            "NOT RUN, since the change touches nothing that they read: {}. `ci full` runs them, or their names.",
            untouched.join(", ")
        );
    }
    closing_lines.iter().for_each(|line| println!("{line}"));
    Ok(have_passed && rows.iter().all(|(_, result, ..)| *result != FAILED))
}

/// A process that runs [`MEANWHILE`], and the file that has its output.
struct Meanwhile(Child, PathBuf);

impl Meanwhile {
    /// None if there is nothing to run.
    fn start(request: &Request, steps: &[&str]) -> Result<Option<Meanwhile>, String> {
        if steps.is_empty() {
            return Ok(None);
        }
        let (target, path) = (process::target().join("meanwhile"), process::target().join("meanwhile.log"));
        let failed = |why| format!("{}: {why}", path.display());
        fs::create_dir_all(&target).map_err(failed)?;
        let file = fs::File::create(&path).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("ci").args(steps).env("CARGO_TARGET_DIR", target);
        for name in steps.iter().filter(|name| request.requires(name)) {
            command.args(["--require", name]);
        }
        let child = command.stdout(file.try_clone().map_err(failed)?).stderr(file).spawn().map_err(failed)?;
        Ok(Some(Meanwhile(child, path)))
    }

    /// Waits for it: whether all passed, and what it printed.
    fn finish(mut self) -> Result<(bool, String), String> {
        let failed = |why| format!("{}: {why}", self.1.display());
        let status = self.0.wait().map_err(failed)?;
        Ok((status.success(), String::from_utf8_lossy(&fs::read(&self.1).map_err(failed)?).into_owned()))
    }
}

const SKIPPED: &str = "SKIPPED";
const FAILED: &str = "FAILED";

fn fmt() -> Step {
    process::run(process::cargo(&["fmt", "--all", "--check", "--", "-l"]))?;
    for manifest in [dependent::MANIFEST, fuzz::MANIFEST, threads::MODELS, server::MANIFEST] {
        process::run(process::cargo(&["fmt", "--manifest-path", manifest, "--check", "--", "-l"]))?;
    }
    Ok(String::new())
}

/// typos.toml has the words that typos does not know.
fn spelling() -> Step {
    process::run(Command::new(wheels::tool("typos").map_err(Stop::Skipped)?))?;
    Ok(String::new())
}

/// `--locked`, once: Cargo.lock is current. `--release`, as all steps: macros and build scripts, the kernels for the host
/// among them, are compiled once.
fn clippy() -> Step {
    let mut command =
        process::cargo(&["clippy", "--locked", "--release", "--workspace", "--all-targets", "--all-features"]);
    command.args(["--", "-D", "warnings"]);
    process::run(command)?;
    Ok(String::new())
}

/// A build of its own, which without optimisation takes seconds: the shipped one has no such checks and is not built twice.
fn overflow(tally: &mut Tally) -> Step {
    let tests = ["--test", "agreement", "--test", "lattice", "--test", "lengths"];
    let mut command = process::limited(10, "cargo", &["test", "--profile", "checked", "-p", "hypergrove-lanes"]);
    command.args(tests).args(["--", "--show-output"]);
    let passed = process::run_tests(command, tally)?;
    Ok(format!("{passed} tests"))
}

/// `--lib`: the tool and the library share a name, and a tool has no documentation to publish. Then private and hidden items are documented too, and
/// xtask: otherwise nobody would know of references there that lead nowhere. Published documentation comes first, since it may not refer to private
/// items.
fn doc() -> Step {
    let all = ["doc", "--release", "--workspace", "--lib", "--no-deps", "--all-features"];
    let mut command = process::cargo(&all);
    command.env("RUSTDOCFLAGS", "-D warnings");
    process::run(command)?;
    let mut command = process::cargo(&all);
    command.args(["--bin", "xtask", "--document-private-items"]);
    api::allow_unstable_rustdoc(&mut command)?;
    command.env("RUSTDOCFLAGS", "-D warnings -Z unstable-options --document-hidden-items");
    process::run(command)?;
    Ok(String::new())
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} m {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::changes::READ_BY_ALL;
    use crate::disk;
    use clap::Parser;
    use std::path::Path;

    fn request(line: &str) -> Result<Request, clap::Error> {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            request: Request,
        }
        Typed::try_parse_from(["ci"].into_iter().chain(line.split_whitespace())).map(|typed| typed.request)
    }

    #[test]
    fn arguments_name_steps_and_what_is_required() {
        let chosen = |line: &str| {
            let request = request(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let required = all_steps().map(|step| step.name).filter(|name| request.requires(name)).collect::<Vec<_>>();
            (request.is_full(), request.chosen().map(|step| step.name).collect::<Vec<_>>(), required)
        };
        let all = |steps: &[CiStep]| steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(chosen(""), (false, all(STEPS), vec![]));
        assert_eq!(chosen("full fmt test"), (true, vec!["fmt", "test"], vec![]));
        let required = chosen("miri --require neon,miri --require fmt");
        assert_eq!(required, (false, vec!["miri"], vec!["fmt", "neon", "miri"]));
        assert_eq!(chosen("--require all").2.len(), all_steps().count());
        for wrong in ["fnt", "--require", "--require neno", "--require fmt,"] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn long_steps_run_in_full_or_when_named() {
        let chosen =
            |line: &str| request(line).expect("known steps").chosen().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!((chosen("").len(), chosen("full").len()), (STEPS.len(), all_steps().count()));
        assert_eq!(chosen("sbom fmt"), ["fmt", "sbom"]);
    }

    #[test]
    fn a_skip_fails_where_it_is_required() {
        let request = request("--require neon").expect("a known step");
        let skip = || Err(Stop::Skipped("no qemu".into()));
        let required = request.judge("neon", skip());
        assert!(matches!(required, Err(Stop::Failed(why)) if why == "required, but skipped: no qemu"));
        assert!(matches!(request.judge("miri", skip()), Err(Stop::Skipped(_))));
        assert!(request.judge("neon", Ok(String::new())).is_ok());
    }

    fn run_for(file: &str) -> Vec<&'static str> {
        let change = Change::new(String::new(), [file].into_iter()).expect("cargo describes the workspace");
        all_steps().filter(|step| step.reads.is_some_and(|reads| change.touches(reads))).map(|step| step.name).collect()
    }

    #[test]
    fn steps_read_places_that_are_there() {
        for word in all_steps().filter_map(|step| step.reads).chain([READ_BY_ALL]).flat_map(|reads| reads.split(' ')) {
            let place = match word.contains(['/', '.']) {
                true => PathBuf::from(word),
                false => Path::new("crates").join(word.trim_end_matches("+tests")).join("Cargo.toml"),
            };
            assert!(disk::workspace().join(&place).exists(), "{word}: there is no {}", place.display());
        }
    }

    #[test]
    fn a_change_runs_the_steps_that_read_it() {
        let all = all_steps().filter(|step| step.reads.is_some()).count();
        for read_by_all in ["Cargo.lock", "xtask/src/ci.rs", "vectors/new/file.json"] {
            assert_eq!(run_for(read_by_all).len(), all, "{read_by_all}");
        }
        assert_eq!(run_for("docs/lanes.md"), Vec::<&str>::new());
        assert_eq!(run_for("server/src/api.rs"), ["server"]);
        // Other crates are built on this one.
        let lanes = run_for("crates/lanes/src/lib.rs");
        for step in ["overflow", "capi", "openssl", "secrets", "python", "server", "systems", "neon", "miri"] {
            assert!(lanes.contains(&step), "{step}: {lanes:?}");
        }
        assert!(!lanes.contains(&"no-std") && !lanes.contains(&"kernels"), "{lanes:?}");
        // Tests alone depend on it.
        let testkit = run_for("crates/testkit/src/lib.rs");
        assert!(testkit.contains(&"neon") && !testkit.contains(&"openssl"), "{testkit:?}");
    }
}
