//! What was typed.

use crate::failure::Failure;
use crate::files::read_list;
use crate::keys::Encoding;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use hypergrove::{BACKENDS, Mode, Op, PARAMETER_SETS, Params, PreHash, UnknownSet};
use hypergrove_cpu::Isa;
use hypergrove_fips205::digest::MAX_CONTEXT;
use hypergrove_tune::search::{SEARCHES, Search};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// SLH-DSA (FIPS 205) and zkDilithium: post-quantum signatures, as fast as the hardware allows.
///
/// Exit codes: 0 all well, 1 a well-formed signature did not verify, 2 an error.
#[derive(Parser)]
#[command(
    name = "hypergrove",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HYPERGROVE_COMMIT"), ")"),
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args)]
pub(crate) struct Global {
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Print results and errors alone
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say what was chosen, and why
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

/// Where and how the work is done.
#[derive(Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineOptions {
    /// Threads; all cores if not given
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
    /// Memory for the work at hand, for example 256M or 1G
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// What computes: the first device of a backend
    #[arg(long, global = true, value_name = "NAME", value_parser = backend(), default_value = "auto")]
    pub(crate) backend: BackendName,
    /// What computes: one device or several, for example cuda:0 or cuda:0,cuda:1,cpu. Work is split by speed. A backend's
    /// name alone means all of its devices; `hypergrove devices` lists them
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',', value_parser = device)]
    pub(crate) device: Vec<DeviceName>,
    /// The CPU's instruction set: auto, or one that `hypergrove devices` lists
    #[arg(long, global = true, value_name = "NAME", value_parser = isa, default_value = "auto")]
    pub(crate) isa: IsaName,
}

/// The backend that is no product of the library's list.
pub(crate) const REFERENCE: &str = "reference";

/// A backend, `None` for the first that has a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackendName(pub(crate) Option<&'static str>);

/// A device as it is named: `cuda:1`, or a backend's name for all of its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeviceName {
    pub(crate) backend: String,
    pub(crate) index: Option<u32>,
}

/// Computing twice.
#[derive(Args)]
pub(crate) struct Redundancy {
    /// Compute everything twice, the second time in other places of the device, and compare before anything comes out
    #[arg(long)]
    pub(crate) redundant: bool,
}

/// `None`: chosen by measured preference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsaName(pub(crate) Option<Isa>);

#[derive(Subcommand)]
pub(crate) enum Command {
    Keygen(Keygen),
    Pubkey(Pubkey),
    Sign(Sign),
    Verify(Verify),
    Inspect(Inspect),
    Devices(Devices),
    Explain(Explain),
    Bench(Bench),
    Hash(Hash),
    Tune(Tune),
    Report(Report),
    Acvp(Acvp),
    Kat(Kat),
    Quickstart(Quickstart),
}

/// Make a private key
#[derive(Args)]
pub(crate) struct Keygen {
    /// The parameter set of SLH-DSA, for example SLH-DSA-SHA2-128s (small signatures) or SLH-DSA-SHA2-128f (fast signing)
    #[arg(long, value_name = "NAME", required_unless_present = "scheme")]
    pub(crate) set: Option<&'static Params>,
    /// The scheme; SLH-DSA if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<Scheme>,
    /// Where the private key goes, mode 0600; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Where the public key goes as well
    #[arg(long, value_name = "FILE")]
    pub(crate) pubout: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    /// SK.seed ‖ SK.prf ‖ PK.seed, 3n bytes in hexadecimal, instead of the system's randomness; 32 bytes for zkDilithium.
    /// For tests: other users of the machine can read a command line
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    pub(crate) seeds: Option<Bytes>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Write the public key of a private key
#[derive(Args)]
pub(crate) struct Pubkey {
    /// The private key: PEM, DER or raw; `-` is standard input
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Where the public key goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Sign files
///
/// The signature of FILE is written to FILE.sig: R ‖ SIG_FORS ‖ SIG_HT, as it is. Standard input is signed to standard
/// output. Of many files, a bad one does not stop the others.
#[derive(Args)]
#[command(group = ArgGroup::new("what").args(["files", "list"]).required(true).multiple(true))]
pub(crate) struct Sign {
    /// The private key: PEM, DER or raw; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Where the signature of the one file goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["out_dir", "list"])]
    pub(crate) output: Option<PathBuf>,
    /// Where the signatures go, each named after its file
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) message: MessageOptions,
    /// Sign without randomness: the same message always has the same signature
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Keep the nodes of the key's top N layers in memory, so that signing need not grow them; 1 if many files are
    /// signed
    #[arg(long, value_name = "N")]
    pub(crate) cache_layers: Option<usize>,
    /// Keep as many of the key's top layers in memory as fit SIZE
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "cache_layers")]
    pub(crate) cache_memory: Option<u64>,
    /// Keep signatures that are there and verify, so that an interrupted run can be taken up again; others that are
    /// there are errors, or with --force replaced
    #[arg(long)]
    pub(crate) skip_existing: bool,
    #[command(flatten)]
    pub(crate) redundancy: Redundancy,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

/// Verify the signatures of files
///
/// One verdict a file goes to standard output: `FILE: OK`, `FILE: FAILED`, or `FILE: ERROR` where there was nothing to
/// judge. With --quiet, only bad ones do.
#[derive(Args)]
#[command(group = ArgGroup::new("what").args(["files", "list"]).required(true).multiple(true))]
pub(crate) struct Verify {
    /// The public key, or the private key: PEM, DER or raw; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The signature of the one file; FILE.sig if not given; `-` is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["signature_dir", "list"])]
    pub(crate) signature: Option<PathBuf>,
    /// Where the signatures are, each named after its file
    #[arg(long, value_name = "DIR")]
    pub(crate) signature_dir: Option<PathBuf>,
    /// Of zkDilithium: refuse other encodings of a valid signature or key than the one that is written, which all
    /// implementations accept
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) message: MessageOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

/// Print or check SHA-256 sums of files, as sha256sum does
///
/// Lines, escapes and exit codes are sha256sum's: 1 if a file cannot be read or a sum does not match. Differences: wrong
/// usage exits with 2, like everywhere in this tool, and so is told from a wrong sum; --quiet is allowed without --check;
/// standard input can be named once; a line with a NUL is no sum; a verdict escapes a carriage return in a name, which
/// could hide the name on a terminal.
///
/// With --records, input is a sequence of records: the length, a big-endian number of four bytes, and as many bytes. The
/// line of a record is its sum alone.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Hash {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Read sums from the files, and check them
    #[arg(short, long)]
    pub(crate) check: bool,
    /// Mark names as those of binary files
    #[arg(short, long, conflicts_with = "check", overrides_with = "text")]
    pub(crate) binary: bool,
    /// Mark names as those of text files, as by default: all files are read alike
    #[arg(short, long, conflicts_with_all = ["check", "tag"])]
    pub(crate) text: bool,
    /// Write BSD's lines
    #[arg(long, conflicts_with = "check")]
    pub(crate) tag: bool,
    /// End lines with NUL instead of a newline, and escape no names
    #[arg(short, long, conflicts_with = "check")]
    pub(crate) zero: bool,
    /// Pass over listed files that are not there
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,
    /// Print no verdicts: the exit code tells
    #[arg(long, requires = "check", overrides_with_all = ["warn", "quiet"])]
    pub(crate) status: bool,
    /// Fail for lines that are no sums, too
    #[arg(long, requires = "check")]
    pub(crate) strict: bool,
    /// Name every line that is no sum
    #[arg(short, long, requires = "check", overrides_with_all = ["status", "quiet"])]
    pub(crate) warn: bool,
    /// Hash the records in the input instead of whole files
    #[arg(long, conflicts_with_all = ["check", "binary", "text", "tag"])]
    pub(crate) records: bool,
    /// Print the root of the Merkle tree over all records (RFC 9162, 2.1.1) instead of their sums
    #[arg(long, requires = "records")]
    pub(crate) merkle_root: bool,
}

/// Show what a key or a signature is, every part with its offset
#[derive(Args)]
pub(crate) struct Inspect {
    /// A key (PEM, DER or raw) or a signature; `-` is standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    /// Show the secrets of a private key as well
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// Print JSON, values in full
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the devices and the instruction sets
#[derive(Args)]
pub(crate) struct Devices {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how a batch would be executed: plan, device, policy, work and predicted time
#[derive(Args)]
pub(crate) struct Explain {
    /// The parameter set
    #[arg(long, value_name = "NAME")]
    pub(crate) set: &'static Params,
    /// The operation
    #[arg(long, value_name = "OP", default_value = "sign")]
    pub(crate) op: OpName,
    /// Jobs
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub(crate) batch: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure, against what the machine's own hash rates allow
///
/// Every measurement checks its answers: what was signed is verified, what verifies has to fail with one bit changed,
/// and a key is made again by the reference.
#[derive(Args)]
pub(crate) struct Bench {
    /// Parameter sets, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = sets, default_value = "all")]
    pub(crate) set: Vec<Sets>,
    /// The scheme; SLH-DSA if not given
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub(crate) scheme: Option<Scheme>,
    /// Operations, or all
    #[arg(long, value_name = "OP", value_delimiter = ',', default_value = "all")]
    pub(crate) op: Vec<OpsName>,
    /// Jobs submitted together; if not given, enough of them to fill the machine
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) batch: Option<usize>,
    /// Time for each measurement: 1 if not given, or what the study says; at least three runs are timed
    #[arg(long, value_name = "S", value_parser = positive)]
    pub(crate) seconds: Option<f64>,
    /// Measure SHA-256 of messages of these sizes instead, for example 64,1K,128K, from host to host and in a device's memory
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size)]
    pub(crate) sha256: Vec<u64>,
    /// With --sha256, or zkDilithium on a GPU: choices to try, for example block=256,blocks=128 or fp64=0; given again,
    /// measured again
    #[arg(long, value_name = "AXES")]
    pub(crate) axes: Vec<String>,
    /// Sign with keys that hold the nodes of their top N layers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cache_layers: usize,
    /// Measure rows (columns in memory of this kind, and results in memory that is used again) instead of an iterator's jobs
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["study", "sha256"])]
    pub(crate) rows: Option<RowMemory>,
    #[command(flatten)]
    pub(crate) redundancy: Redundancy,
    /// A study instead: throughput, ladder, functions, sha256, crossover, cache-depth, multi-gpu or limits. What there is no
    /// device for is named and left out; --set, --op and --batch leave out the rest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cache_layers", "redundant"])]
    pub(crate) study: Option<String>,
    /// Of the study one set, and of each list the first, the middle and the last
    #[arg(long, requires = "study")]
    pub(crate) quick: bool,
    /// Begin no measurement of the study after so many seconds
    #[arg(long, value_name = "S", value_parser = positive, requires = "study")]
    pub(crate) within: Option<f64>,
    /// Print a line of JSON for each measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Draw what was measured, as one HTML page that needs nothing else
///
/// Curves over threads and batch sizes with their fits, the ladder of parallelism, fractions of the limit; of two runs, how
/// many times as fast the second is. docs/studies.md says how to read it.
#[derive(Args)]
pub(crate) struct Report {
    /// Files of JSON lines as `bench --json` writes them, or folders of such files; the first is what others are compared
    /// with
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where the page goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Write every picture to this directory as well
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Find the fastest policies of a device, and keep them
///
/// Every policy's answers are compared. The table goes to the user's configuration directory, where all commands find it.
/// Samples are written down as they come in: an interrupted tuning goes on where it was.
#[derive(Args)]
pub(crate) struct Tune {
    /// Parameter sets, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = sets, default_value = "all")]
    pub(crate) set: Vec<Sets>,
    /// Operations, or all
    #[arg(long, value_name = "OP", value_delimiter = ',', default_value = "all")]
    pub(crate) op: Vec<OpsName>,
    /// Batch sizes; if not given, some from one job to as many as fill the device
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one)]
    pub(crate) batch: Vec<usize>,
    /// Time for all of it, for example 60s or 10m; a minute a set if not given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// How policies are looked for: descent, or grid for every one of the axes given
    #[arg(long, value_name = "NAME", default_value = "descent", value_parser = search())]
    pub(crate) search: &'static Search,
    /// Axes to be tuned; all of the device if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) axis: Vec<String>,
    /// Where the table goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print a line of JSON for each row instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Answer a NIST ACVP SLH-DSA test: prompt.json in, expectedResults.json out
///
/// Modes keyGen, sigGen and sigVer, revision FIPS205; the bare object, or the array with acvVersion.
#[derive(Args)]
pub(crate) struct Acvp {
    /// The prompt; `-` is standard input
    pub(crate) file: PathBuf,
    /// Where the answers go; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) redundancy: Redundancy,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Compute known answers of zkDilithium: seeds and messages in, keys, signatures and verdicts out
///
/// The file is a JSON object whose `cases` have `seed`, `msg` and `verify_mutations`, as in
/// vectors/zkdilithium/e2e_public.json; what else they have is not looked at.
#[derive(Args)]
pub(crate) struct Kat {
    /// The cases; `-` is standard input
    pub(crate) file: PathBuf,
}

/// See it work: make a key, sign every file of a directory, verify all, and measure
#[derive(Args)]
pub(crate) struct Quickstart {
    /// The directory; hidden files and those in target/ are left out, and nothing is written there
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The parameter set
    #[arg(long, value_name = "NAME", default_value = "SLH-DSA-SHA2-128f")]
    pub(crate) set: &'static Params,
    /// Keep key and signatures in a new directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Which files.
#[derive(Args)]
pub(crate) struct Inputs {
    /// Files; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A file that lists files, one a line, at least one; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,
}

/// How a file becomes M′.
#[derive(Args)]
#[command(next_help_heading = "Message")]
pub(crate) struct MessageOptions {
    /// Context string, at most 255 bytes
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["context_hex", "internal"])]
    pub(crate) context: Option<String>,
    /// Context string in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with = "internal")]
    pub(crate) context_hex: Option<Bytes>,
    /// Hash the file first (HashSLH-DSA), for example with SHA2-256 or SHAKE-128
    #[arg(long, value_name = "HASH", conflicts_with = "internal")]
    pub(crate) prehash: Option<PreHash>,
    /// The internal interface: the file is M′ itself
    #[arg(long)]
    pub(crate) internal: bool,
}

impl MessageOptions {
    pub(crate) fn mode(&self) -> Result<Mode<'_>, Failure> {
        let context = match (&self.context, &self.context_hex) {
            (Some(text), _) => text.as_bytes(),
            (_, Some(Bytes(bytes))) => bytes,
            _ => &[],
        };
        if context.len() > MAX_CONTEXT {
            return Err(Failure::new(format!(
                "the context has {} bytes, at most {MAX_CONTEXT} are allowed",
                context.len()
            ))
            .hint("shorten it, or give its hash with --context-hex"));
        }
        Ok(match self.prehash {
            _ if self.internal => Mode::Internal,
            Some(hash) => Mode::PreHash { context, hash },
            None => Mode::Pure { context },
        })
    }
}

impl Inputs {
    /// All files, given and listed.
    pub(crate) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut paths = self.files.clone();
        if let Some(list) = &self.list {
            paths.extend(read_list(&list.as_path().into())?);
        }
        Ok(paths)
    }
    /// Whether each file gets a verdict of its own.
    pub(crate) fn many(&self) -> bool {
        self.files.len() > 1 || self.list.is_some()
    }
}

/// Standard input can be read once.
pub(crate) fn one_stdin<'a>(given: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    if given.into_iter().filter(|path| path.as_os_str() == "-").count() < 2 {
        return Ok(());
    }
    Err(Failure::new("standard input is given twice, it can be read once").hint("put one of the two into a file"))
}

/// What a key does not say itself.
#[derive(Args)]
pub(crate) struct KeyKind {
    /// The key's set: needed for raw keys of SLH-DSA, checked for others
    #[arg(long, value_name = "NAME")]
    pub(crate) set: Option<&'static Params>,
    /// The key's scheme; if not given, what the file looks like
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<Scheme>,
}

/// Where rows lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RowMemory {
    /// Ordinary memory
    Host,
    /// Memory that devices reach by themselves
    Device,
}

impl RowMemory {
    /// As a record and the command line name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RowMemory::Host => "host",
            RowMemory::Device => "device",
        }
    }
}

/// A signature scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Scheme {
    /// FIPS 205
    SlhDsa,
    /// zkDilithium, the norm-fixed variant
    #[value(name = "zkdilithium")]
    ZkDilithium,
}

/// How keys are written.
#[derive(Args)]
pub(crate) struct EncodingOptions {
    /// Write DER (PKCS#8 or SPKI) instead of PEM
    #[arg(long, conflicts_with = "raw")]
    der: bool,
    /// Write the bare bytes instead of PEM
    #[arg(long)]
    raw: bool,
}

impl EncodingOptions {
    pub(crate) fn encoding(&self) -> Encoding {
        match (self.der, self.raw) {
            (true, _) => Encoding::Der,
            (_, true) => Encoding::Raw,
            _ => Encoding::Pem,
        }
    }
}

/// What may be replaced.
#[derive(Args)]
pub(crate) struct Overwrite {
    /// Replace files that exist
    #[arg(long)]
    pub(crate) force: bool,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpName {
    Keygen,
    Sign,
    Verify,
}

impl OpName {
    pub(crate) fn op(self) -> Op {
        match self {
            OpName::Keygen => Op::Keygen,
            OpName::Sign => Op::Sign,
            OpName::Verify => Op::Verify,
        }
    }
}

/// An operation or all.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpsName {
    Keygen,
    Sign,
    Verify,
    All,
}

impl OpsName {
    pub(crate) fn ops(self) -> &'static [Op] {
        match self {
            OpsName::Keygen => &[Op::Keygen],
            OpsName::Sign => &[Op::Sign],
            OpsName::Verify => &[Op::Verify],
            OpsName::All => &[Op::Keygen, Op::Sign, Op::Verify],
        }
    }
}

/// Bytes given in hexadecimal: one argument, not a list of them.
#[derive(Clone)]
pub(crate) struct Bytes(pub(crate) Zeroizing<Vec<u8>>);

/// One set, or all of the standard.
#[derive(Clone)]
pub(crate) struct Sets(pub(crate) Vec<&'static Params>);

/// The sets that may be used: toy sets are there only where tests built them in.
pub(crate) fn known_sets() -> impl Iterator<Item = &'static Params> {
    PARAMETER_SETS.iter().copied().filter(|p| p.name.starts_with("SLH-DSA-"))
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

fn bytes(digits: &str) -> Result<Bytes, String> {
    // In place: a buffer that grows leaves copies of seeds behind.
    let mut bytes = Zeroizing::new(vec![0; digits.len() / 2]);
    hex::decode_to_slice(digits, &mut bytes).map_err(|error| format!("not hexadecimal: {error}"))?;
    Ok(Bytes(bytes))
}

/// `4096`, `64K`, `256M`, `1G`, `1GiB`.
fn size(text: &str) -> Result<u64, String> {
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

fn at_least_one(text: &str) -> Result<usize, String> {
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
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

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
