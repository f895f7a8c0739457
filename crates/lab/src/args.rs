//! The arguments of `bench` and `tune`, and those that all commands take to choose the machine.

use crate::study::list;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use hypergrove::quote::Quote;
use hypergrove::{BACKENDS, Isa, Op, PARAMETER_SETS, Params, UnknownSet};
pub use hypergrove_tables::table::op_name;
use hypergrove_tune::search::{SEARCHES, Search};
use serde::Deserialize;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// Seconds for each measurement by default.
pub(crate) const SECONDS: f64 = 1.0;
/// Seconds for each measurement of `--quick`.
const QUICK_SECONDS: f64 = 0.02;

/// Where and how the work is done.
#[derive(Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineOptions {
    /// How many threads of the CPU work; by default, as many as there are cores
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    /// How much memory of the host prepared programs and running batches may take, for example 512M or 1G; K, M, G and T are powers of
    /// 1024. By default 256M, or 2G for each GPU in use
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Use the first device of this backend. By default, the CPU, and GPUs for batches where measurements say they are faster
    #[arg(long, global = true, value_name = "NAME", value_parser = backend(), default_value = "auto")]
    pub backend: BackendName,
    /// Use these devices, for example cuda:0 or cuda:0,cuda:1,cpu; they share each batch by their speed. A backend's name alone means
    /// all of its devices, and a UUID can replace a number: cuda:GPU-5c01d2e7. `hypergrove devices` lists them. By default, --backend
    /// decides
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Compute on the CPU with this instruction set: one that `hypergrove devices` lists, or auto for the fastest
    #[arg(long, global = true, value_name = "NAME", value_parser = Listed::new(isa, isas), hide_possible_values = true, default_value = "auto")]
    pub isa: IsaName,
    /// How long the tool waits for a GPU, at least, before it gives the GPU up, for example 90s or 5m. If 100 times the predicted time
    /// of the jobs is longer, the tool waits that long
    #[arg(long, global = true, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub device_timeout: Duration,
}

/// The backend that is no product of the library's list.
pub const REFERENCE: &str = "reference";

/// A backend, `None` for the first that has a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackendName(pub Option<&'static str>);

/// Computing twice.
#[derive(Args)]
pub struct Redundancy {
    /// Compute everything twice, the second time in other places of the device, and give out only results that agree. It takes twice
    /// the time; by default, everything is computed once
    #[arg(long)]
    pub redundant: bool,
}

/// `None`: chosen by measured preference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IsaName(pub Option<Isa>);

/// Measure rates, and compare them with the peak rate of the machine
///
/// The peak is the rate at which the machine computes hash compressions and nothing else. Every measurement checks its answers:
/// signatures must verify, a signature with one changed bit must fail, and the reference must make the same key.
#[derive(Args)]
pub struct Bench {
    /// Parameter sets, separated by commas; `all` means the twelve of FIPS 205
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Listed::new(sets, || ["all"].into_iter().chain(set_names())), hide_possible_values = true, default_value = "all")]
    pub set: Vec<Sets>,
    /// The signature scheme; by default slh-dsa
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub scheme: Option<Scheme>,
    /// Operations, separated by commas
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = ops(), default_value = "all")]
    pub op: Vec<Ops>,
    /// How many jobs a batch has; by default, as many as fill the machine, or several times as many if several GPUs make keys or verify
    /// rows
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub batch: Option<usize>,
    /// How many seconds each measurement takes, for example 0.5; at least three runs are timed. By default 1, or what the study says
    #[arg(long, value_name = "S", value_parser = positive)]
    pub seconds: Option<f64>,
    /// Measure SHA-256 of messages instead, of these sizes in bytes, for example 64,1K,128K: end to end, and in a device's own memory
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size)]
    pub sha256: Vec<u64>,
    /// Try this policy, for example block=256,blocks=128 or fp64=0; repeat the option to try several. For --sha256, and for zkDilithium
    /// on a GPU. By default, the device's own policy
    #[arg(long, value_name = "AXES")]
    pub axes: Vec<String>,
    /// Sign with keys that keep the nodes of their top N layers in memory
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cache_layers: usize,
    /// Measure calls of rows, whose columns lie in this kind of memory. By default, an iterator brings the jobs
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["study", "sha256"])]
    pub rows: Option<RowMemory>,
    /// Measure N callers that share batches by tickets. Each caller is a thread and brings one job at a time. Several numbers are
    /// measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one, conflicts_with_all = ["study", "sha256", "rows", "batch", "scheme"])]
    pub callers: Vec<usize>,
    /// With --callers: this many threads hold the tickets of all callers; 1 if the option has no number. By default, each caller is a
    /// thread and waits for its own ticket
    #[arg(long, value_name = "THREADS", value_parser = at_least_one, num_args = 0..=1, default_missing_value = "1", requires = "callers")]
    pub held: Option<usize>,
    /// With --callers: each caller calls the engine directly, without a ticket, for comparison
    #[arg(long, requires = "callers", conflicts_with = "held")]
    pub direct: bool,
    /// With --callers: a job waits so many microseconds for others, at most, before it begins
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, requires = "callers", conflicts_with = "direct")]
    pub max_delay: u64,
    /// Whether everything is computed twice.
    #[command(flatten)]
    pub redundancy: Redundancy,
    /// Measure a study: throughput, ladder, functions, sha256, crossover, callers, cores, cache-depth, multi-gpu, host or
    /// limits. A measurement that has no device is named and left out. --set, --op and --batch narrow the study
    #[arg(long, value_name = "NAME", value_parser = Listed::new(study_name, list::names), hide_possible_values = true, conflicts_with_all = ["cache_layers", "redundant"])]
    pub study: Option<String>,
    /// Measure only one set, the first, and of each list of a study, of --sha256 and of --callers only the first, the middle and the last
    /// value. Without --seconds, measurements are as short as three runs allow
    #[arg(long)]
    pub quick: bool,
    /// Begin no measurement of the study after this many seconds; by default, there is no limit
    #[arg(long, value_name = "S", value_parser = positive, requires = "study")]
    pub within: Option<f64>,
    /// Print a line of JSON for each measurement
    #[arg(long)]
    pub json: bool,
    /// Write a trace of the engine's threads to this file: the steps of each call, chunk and group of jobs, with their times. It is JSON in
    /// Chrome's trace event format, which chrome://tracing and ui.perfetto.dev draw
    #[arg(long, value_name = "FILE", conflicts_with_all = ["study", "sha256"])]
    pub trace: Option<PathBuf>,
    /// With --trace: replace a file that exists; by default, it is an error
    #[arg(long, requires = "trace")]
    pub force: bool,
    /// Measure in turns: each line of standard input begins one, as the study `cores` does
    #[arg(long, requires = "json", conflicts_with_all = ["study", "sha256", "callers", "trace"], hide = true)]
    pub turns: bool,
}

impl Bench {
    /// Time for a measurement that takes so many seconds if nothing else is asked.
    pub(crate) fn budget(&self, seconds: f64) -> Duration {
        let quick = if self.quick { seconds.min(QUICK_SECONDS) } else { seconds };
        Duration::from_secs_f64(self.seconds.unwrap_or(quick))
    }

    /// The sets, or of `--quick` the first.
    pub(crate) fn sets(&self) -> Vec<&'static Params> {
        let sets = self.set.iter().flat_map(|sets| sets.0.iter().copied());
        sets.take(if self.quick { 1 } else { usize::MAX }).collect()
    }

    /// All values of a list, or of `--quick` the first, the middle and the last.
    pub(crate) fn some<T: Clone>(&self, list: &[T]) -> Vec<T> {
        if self.quick { first_middle_last(list) } else { list.to_vec() }
    }
}

/// The first, the middle and the last.
fn first_middle_last<T: Clone>(list: &[T]) -> Vec<T> {
    match list {
        [] | [_] | [_, _] => list.to_vec(),
        [first, .., last] => vec![first.clone(), list[list.len() / 2].clone(), last.clone()],
    }
}

/// Find the fastest policies of a device, and keep them
///
/// A policy is how a device divides the work. The tuner measures policies and compares their answers. It writes the fastest ones to a
/// table in the user's configuration directory, where all commands find them. It stores each sample at once: after an interruption, the
/// same command continues.
#[derive(Args)]
pub struct Tune {
    /// Parameter sets, separated by commas; `all` means the twelve of FIPS 205
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Listed::new(sets, || ["all"].into_iter().chain(set_names())), hide_possible_values = true, default_value = "all")]
    pub set: Vec<Sets>,
    /// Operations, separated by commas
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = ops(), default_value = "all")]
    pub op: Vec<Ops>,
    /// Tune for batches of these sizes, in jobs; by default, for some sizes from one job to as many as fill the device
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one)]
    pub batch: Vec<usize>,
    /// How long the tuning may take in all, for example 60s, 10m or 1h; by default, one minute for each set
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// How the tuner chooses the policies that it measures
    #[arg(long, value_name = "NAME", default_value = "descent", value_parser = search())]
    pub search: &'static Search,
    /// Tune only these axes of a policy; by default, all that the device has
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub axis: Vec<String>,
    /// Write the table to this file; by default, to the user's configuration directory under the device's name
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print each row of the table as a line of JSON, instead of text
    #[arg(long)]
    pub json: bool,
}

/// Where rows lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RowMemory {
    /// Ordinary memory
    Host,
    /// Memory that devices reach by themselves
    Device,
}

impl RowMemory {
    /// As a record and the command line name it.
    pub fn name(self) -> &'static str {
        match self {
            RowMemory::Host => "host",
            RowMemory::Device => "device",
        }
    }
}

/// A signature scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Scheme {
    /// FIPS 205
    SlhDsa,
    /// zkDilithium, the norm-fixed variant
    #[value(name = "zkdilithium")]
    ZkDilithium,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "`--help` would list what is said here")]
pub enum OpName {
    Keygen,
    Sign,
    Verify,
}

impl OpName {
    /// As the library names it.
    pub fn op(self) -> Op {
        match self {
            OpName::Keygen => Op::Keygen,
            OpName::Sign => Op::Sign,
            OpName::Verify => Op::Verify,
        }
    }
}

/// One operation, or all.
#[derive(Clone)]
pub struct Ops(pub Vec<Op>);

fn ops() -> impl TypedValueParser<Value = Ops> {
    let all = [Op::Keygen, Op::Sign, Op::Verify];
    PossibleValuesParser::new(all.map(op_name).into_iter().chain(["all"]))
        .map(move |name| Ops(all.into_iter().filter(|op| name == "all" || name == op_name(*op)).collect()))
}

/// One set, or all of the standard.
#[derive(Clone)]
pub struct Sets(pub Vec<&'static Params>);

/// A parser of names, which are listed so that completions offer them. It may know more names than the list has, such as short ones.
#[derive(Clone)]
pub struct Listed<P> {
    parser: P,
    names: Vec<&'static str>,
}

impl<P> Listed<P> {
    /// Parses as `parser` does, and lists these names.
    pub fn new<I: IntoIterator<Item = &'static str>>(parser: P, names: impl FnOnce() -> I) -> Listed<P> {
        Listed { parser, names: names().into_iter().collect() }
    }
}

impl<P: TypedValueParser> TypedValueParser for Listed<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().copied().map(PossibleValue::new)))
    }
}

fn set_names() -> impl Iterator<Item = &'static str> {
    PARAMETER_SETS.iter().map(|p| p.name)
}

/// The parser of a set's name.
pub fn set() -> impl TypedValueParser<Value = &'static Params> {
    Listed::new(str::parse::<&'static Params>, set_names)
}

fn isas() -> impl Iterator<Item = &'static str> {
    ["auto"].into_iter().chain(Isa::available().into_iter().map(Isa::name))
}

/// Whether there is such a study is found out later.
fn study_name(name: &str) -> Result<String, Infallible> {
    Ok(name.into())
}

fn sets(name: &str) -> Result<Sets, UnknownSet> {
    // The draft's trees have millions of leaves.
    if name.eq_ignore_ascii_case("all") {
        Ok(Sets(PARAMETER_SETS.to_vec()))
    } else {
        name.parse().map(|p| Sets(vec![p]))
    }
}

fn backend() -> impl TypedValueParser<Value = BackendName> {
    let listed = BACKENDS.iter().map(|entry| (entry.name, entry.description));
    let all = [("auto", "The CPU, and GPUs for batches where they are faster")].into_iter().chain(listed);
    let all = all.chain([(REFERENCE, "FIPS 205 to the letter, slow")]);
    PossibleValuesParser::new(all.map(|(name, what)| PossibleValue::new(name).help(what))).map(|name| {
        let known = BACKENDS.iter().map(|entry| entry.name).chain([REFERENCE]);
        BackendName(known.into_iter().find(|known| **known == *name))
    })
}

fn isa(name: &str) -> Result<IsaName, String> {
    if name.eq_ignore_ascii_case("auto") {
        return Ok(IsaName(None));
    }
    match Isa::by_name(name) {
        Some(isa) if isa.detect() => Ok(IsaName(Some(isa))),
        known => {
            let has = Isa::available().into_iter().map(Isa::name).collect::<Vec<_>>().join(", ");
            let why = if known.is_some() { "this CPU lacks it" } else { "there is no such instruction set" };
            Err(format!("{why}; use auto or one of {has}"))
        }
    }
}

/// `4096`, `64K`, `256M`, `1G`, `1GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("{} is no unit of memory; use K, M, G or T, for example 256M", Quote::new(unit))),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size; give a whole number, for example 256M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more memory than can be addressed".into())
}

fn message_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|bytes| if (1..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("1 to 1G".into()) })
}

/// `90`, `60s`, `10m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "ms" => 1e-3,
        unit => return Err(format!("{} is no unit of time; use s, m or h, for example 60s", Quote::new(unit))),
    };
    positive(digits).map(|number| Duration::from_secs_f64(number * unit))
}

fn search() -> impl TypedValueParser<Value = &'static Search> {
    let names = SEARCHES.iter().map(|search| PossibleValue::new(search.name).help(search.what));
    PossibleValuesParser::new(names).map(|name| SEARCHES.iter().find(|s| s.name == name).expect("a possible value"))
}

/// A whole number from 1 on.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a whole number".into()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s: &f64| *s > 0.0 && *s <= 86_400.0)
        .ok_or_else(|| "give a number of seconds above 0 and at most 86400, a day".into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    /// The options that all commands take, parsed as they are typed.
    pub(crate) fn options(typed: &[&str]) -> MachineOptions {
        #[derive(Parser)]
        struct Typed {
            #[command(flatten)]
            options: MachineOptions,
        }
        Typed::try_parse_from([&["hypergrove"], typed].concat()).unwrap_or_else(|why| panic!("{why}")).options
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("90", 90.0), ("60s", 60.0), ("10m", 600.0), ("0.5h", 1800.0), ("250ms", 0.25)] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "-1s", "0", "1d", "1 fortnight", "nan"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64K", 65_536), ("256MiB", 256 << 20), ("1g", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "12 parsecs", "99999999999T", "1é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn some_values_stand_for_all() {
        assert_eq!((first_middle_last(&[1, 2, 3, 4, 5]), first_middle_last(&[1, 2])), (vec![1, 3, 5], vec![1, 2]));
    }
}
