//! The arguments of `bench` and `tune`, and those that all commands take to choose the machine.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use hypergrove::{BACKENDS, Isa, Op, PARAMETER_SETS, Params, UnknownSet};
use hypergrove_tune::search::{SEARCHES, Search};
use std::path::PathBuf;
use std::time::Duration;

/// Where and how the work is done.
#[derive(Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineOptions {
    /// Threads; all cores if not given
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    /// Memory for the work at hand, for example 256M or 1G
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// What computes: the first device of a backend
    #[arg(long, global = true, value_name = "NAME", value_parser = backend(), default_value = "auto")]
    pub backend: BackendName,
    /// What computes: one device or several, for example cuda:0 or cuda:0,cuda:1,cpu. Work is split by speed. A backend's
    /// name alone means all of its devices; `hypergrove devices` lists them
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',', value_parser = device)]
    pub device: Vec<DeviceName>,
    /// The CPU's instruction set: auto, or one that `hypergrove devices` lists
    #[arg(long, global = true, value_name = "NAME", value_parser = isa, default_value = "auto")]
    pub isa: IsaName,
}

/// The backend that is no product of the library's list.
pub const REFERENCE: &str = "reference";

/// A backend, `None` for the first that has a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackendName(pub Option<&'static str>);

/// A device as it is named: `cuda:1`, or a backend's name for all of its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceName {
    /// The backend's name.
    pub backend: String,
    /// None: all devices of the backend.
    pub index: Option<u32>,
}

/// Computing twice.
#[derive(Args)]
pub struct Redundancy {
    /// Compute everything twice, the second time in other places of the device, and compare before anything comes out
    #[arg(long)]
    pub redundant: bool,
}

/// `None`: chosen by measured preference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IsaName(pub Option<Isa>);

/// Measure, against what the machine's own hash rates allow
///
/// Every measurement checks its answers: what was signed is verified, what verifies has to fail with one bit changed,
/// and a key is made again by the reference.
#[derive(Args)]
pub struct Bench {
    /// Parameter sets, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = sets, default_value = "all")]
    pub set: Vec<Sets>,
    /// The scheme; SLH-DSA if not given
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub scheme: Option<Scheme>,
    /// Operations, or all
    #[arg(long, value_name = "OP", value_delimiter = ',', default_value = "all")]
    pub op: Vec<OpsName>,
    /// Jobs submitted together; if not given, enough of them to fill the machine
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub batch: Option<usize>,
    /// Time for each measurement: 1 if not given, or what the study says; at least three runs are timed
    #[arg(long, value_name = "S", value_parser = positive)]
    pub seconds: Option<f64>,
    /// Measure SHA-256 of messages of these sizes instead, for example 64,1K,128K, end to end and in a device's memory
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size)]
    pub sha256: Vec<u64>,
    /// With --sha256, or zkDilithium on a GPU: choices to try, for example block=256,blocks=128 or fp64=0; given again,
    /// measured again
    #[arg(long, value_name = "AXES")]
    pub axes: Vec<String>,
    /// Sign with keys that hold the nodes of their top N layers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cache_layers: usize,
    /// Measure rows (columns in memory of this kind, and results in memory that is used again) instead of an iterator's jobs
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["study", "sha256"])]
    pub rows: Option<RowMemory>,
    /// Measure so many callers that bring one job each and share batches by tickets, a thread each
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one, conflicts_with_all = ["study", "sha256", "rows", "batch", "scheme"])]
    pub callers: Vec<usize>,
    /// With --callers: their tickets are held by so many threads; one if no number is given
    #[arg(long, value_name = "THREADS", value_parser = at_least_one, num_args = 0..=1, default_missing_value = "1", requires = "callers")]
    pub held: Option<usize>,
    /// With --callers: each calls the engine without a ticket, for comparison
    #[arg(long, requires = "callers", conflicts_with = "held")]
    pub direct: bool,
    /// With --callers: a job waits so many microseconds for others, at most, before it begins
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, requires = "callers", conflicts_with = "direct")]
    pub max_delay: u64,
    /// Whether everything is computed twice.
    #[command(flatten)]
    pub redundancy: Redundancy,
    /// A study instead: throughput, ladder, functions, sha256, crossover, callers, cache-depth, multi-gpu, host or limits. What there is no
    /// device for is named and left out; --set, --op and --batch leave out the rest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cache_layers", "redundant"])]
    pub study: Option<String>,
    /// Of the study one set, and of each list the first, the middle and the last
    #[arg(long, requires = "study")]
    pub quick: bool,
    /// Begin no measurement of the study after so many seconds
    #[arg(long, value_name = "S", value_parser = positive, requires = "study")]
    pub within: Option<f64>,
    /// Print a line of JSON for each measurement
    #[arg(long)]
    pub json: bool,
}

/// Find the fastest policies of a device, and keep them
///
/// Every policy's answers are compared. The table goes to the user's configuration directory, where all commands find it.
/// Samples are written down as they come in: an interrupted tuning goes on where it was.
#[derive(Args)]
pub struct Tune {
    /// Parameter sets, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = sets, default_value = "all")]
    pub set: Vec<Sets>,
    /// Operations, or all
    #[arg(long, value_name = "OP", value_delimiter = ',', default_value = "all")]
    pub op: Vec<OpsName>,
    /// Batch sizes; if not given, some from one job to as many as fill the device
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one)]
    pub batch: Vec<usize>,
    /// Time for all of it, for example 60s or 10m; a minute a set if not given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// How policies are looked for: descent, or grid for every one of the axes given
    #[arg(long, value_name = "NAME", default_value = "descent", value_parser = search())]
    pub search: &'static Search,
    /// Axes to be tuned; all of the device if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub axis: Vec<String>,
    /// Where the table goes
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print a line of JSON for each row instead
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
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// An operation, as it is typed.
pub fn op_name(op: Op) -> &'static str {
    match op {
        Op::Keygen => "keygen",
        Op::Sign => "sign",
        Op::Verify => "verify",
        Op::Cache => "cache",
    }
}

/// An operation or all.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "`--help` would list what is said here")]
pub enum OpsName {
    Keygen,
    Sign,
    Verify,
    All,
}

impl OpsName {
    /// As the library names them.
    pub fn ops(self) -> &'static [Op] {
        match self {
            OpsName::Keygen => &[Op::Keygen],
            OpsName::Sign => &[Op::Sign],
            OpsName::Verify => &[Op::Verify],
            OpsName::All => &[Op::Keygen, Op::Sign, Op::Verify],
        }
    }
}

/// One set, or all of the standard.
#[derive(Clone)]
pub struct Sets(pub Vec<&'static Params>);

/// The sets that may be used: toy sets are there only where tests built them in.
pub fn known_sets() -> impl Iterator<Item = &'static Params> {
    PARAMETER_SETS.iter().copied().filter(|p| !p.is_toy())
}

fn sets(name: &str) -> Result<Sets, UnknownSet> {
    // Drafts have no object identifier yet; their trees have millions of leaves.
    if name.eq_ignore_ascii_case("all") {
        Ok(Sets(known_sets().filter(|p| p.oid().is_some()).collect()))
    } else {
        name.parse().map(|p| Sets(vec![p]))
    }
}

fn backend() -> impl TypedValueParser<Value = BackendName> {
    let listed = BACKENDS.iter().map(|entry| (entry.name, entry.description));
    let all = [("auto", "The first of these that has a device")].into_iter().chain(listed);
    let all = all.chain([(REFERENCE, "FIPS 205 to the letter, slow")]);
    PossibleValuesParser::new(all.map(|(name, what)| PossibleValue::new(name).help(what))).map(|name| {
        let known = BACKENDS.iter().map(|entry| entry.name).chain([REFERENCE]);
        BackendName(known.into_iter().find(|known| **known == *name))
    })
}

/// Whether there is such a device is found out later.
fn device(name: &str) -> Result<DeviceName, String> {
    let (backend, index) = match name.split_once(':') {
        None => (name, None),
        Some((backend, index)) => {
            let number =
                index.parse().map_err(|_| format!("'{index}' is no number of a device, for example cuda:0"))?;
            (backend, Some(number))
        }
    };
    Ok(DeviceName { backend: backend.to_ascii_lowercase(), index })
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
        unit => return Err(format!("'{unit}' is no unit of memory; use K, M, G or T, for example 256M")),
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
        unit => return Err(format!("'{unit}' is no unit of time; use s, m or h, for example 60s")),
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
        .ok_or_else(|| "give a number of seconds above 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        let named = |backend: &str, index| Ok(DeviceName { backend: backend.into(), index });
        assert_eq!(device("cuda:1"), named("cuda", Some(1)));
        assert_eq!(device("CPU"), named("cpu", None));
        for text in ["cuda:", "cuda:x", "cuda:-1", "cuda:0:1"] {
            assert!(device(text).is_err(), "{text}");
        }
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
}
