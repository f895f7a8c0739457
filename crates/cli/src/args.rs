//! The arguments of the command line.

use crate::files::read_list;
use crate::passphrase::PassphraseOptions;
use clap::builder::TypedValueParser;
use clap::{Arg, ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use hypergrove::{MAX_CONTEXT, Mode, Params, PassphraseKdf, PreHash, VerifyingKey};
use hypergrove_files::signers;
pub(crate) use hypergrove_lab::args::{Bench, MachineOptions, OpName, Redundancy, Scheme, Tune};
use hypergrove_lab::args::{Listed, at_least_one, set, size};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::version::BUILD;
use std::num::NonZeroU64;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// Post-quantum signatures, as fast as the hardware allows: SLH-DSA (FIPS 205) and zkDilithium.
///
/// `hypergrove help COMMAND` explains a command. Exit codes: 0 success, 1 a signature is not valid, 2 an error; docs/automation.md has
/// the details.
#[derive(Parser)]
#[command(
    name = "hypergrove",
    version = BUILD,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that compute nothing. They accept the options of the machine, as all commands do, and do not list them.
const WITHOUT_MACHINE: [&str; 6] = ["completions", "inspect", "ledger", "man", "passwd", "report"];

impl Cli {
    /// The definition of the command line, with all its commands.
    pub(crate) fn definition() -> clap::Command {
        let machine = MachineOptions::augment_args(clap::Command::new("machine"));
        let hidden: Vec<Arg> = machine.get_arguments().map(|arg| arg.clone().hide(true)).collect();
        Cli::command().mut_subcommands(|command| match WITHOUT_MACHINE.contains(&command.get_name()) {
            true => command.args(&hidden),
            false => command,
        })
    }
}

/// The options that every command takes.
#[derive(Args)]
pub(crate) struct Global {
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Report what the tool chose, and why
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    // The last: its heading holds for all that follows.
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Keygen(Keygen),
    Pubkey(Pubkey),
    Passwd(Passwd),
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
    Ledger(Ledger),
    Completions(Completions),
    Man(Man),
}

/// Make a private key
#[derive(Args)]
pub(crate) struct Keygen {
    /// Write NAME.key and NAME.pub, the two keys of the pair. Neither replaces a file that is there. Without NAME, the private key goes
    /// to --output
    #[arg(value_name = "NAME", conflicts_with_all = ["output", "pubout", "count", "table", "force"])]
    pub(crate) name: Option<PathBuf>,
    /// The parameter set of SLH-DSA, for example SLH-DSA-SHA2-128f (fast signing); by default SLH-DSA-SHA2-128s (small signatures)
    #[arg(long, value_name = "SET", value_parser = set(), hide_possible_values = true)]
    pub(crate) set: Option<&'static Params>,
    /// The signature scheme; by default slh-dsa
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<Scheme>,
    /// Write the private key to this file, with mode 0600; `-` is standard output, a terminal too. By default, it goes to standard output
    /// if that is no terminal
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the public key to this file, too; with --count, a table of the public keys. By default, the public key is not written:
    /// `pubkey` makes it later
    #[arg(long, value_name = "FILE")]
    pub(crate) pubout: Option<PathBuf>,
    /// Make N keys of SLH-DSA, and write them to --table; by default, the tool makes one key
    #[arg(long, value_name = "N", requires = "table", conflicts_with_all = ["output", "seeds", "der", "raw", "encrypt"])]
    pub(crate) count: Option<NonZeroUsize>,
    /// Write the keys of --count to this file, with mode 0600. The first line names the columns. Each further line has a key's
    /// fingerprint, its public key (the base64 of its SPKI) and its private key (the base64 of its PKCS#8), separated by tabs. The table
    /// cannot be encrypted by --encrypt: encrypt the file instead
    #[arg(long, value_name = "FILE", requires = "count")]
    pub(crate) table: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    /// Make the key from these bytes instead of the system's randomness: SK.seed ‖ SK.prf ‖ PK.seed, 3n bytes in hexadecimal, or 32
    /// bytes for zkDilithium. Only for tests: other users of the machine can read a command line
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    pub(crate) seeds: Option<Bytes>,
    /// Print a line of JSON about the key, or about the table of --count, and a summary: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
    /// Encrypt the private key with a passphrase, which the tool asks for twice. The format is PKCS#8 with PBES2 and AES-256-CBC, which
    /// OpenSSL reads. By default, the key is not encrypted
    #[arg(long, conflicts_with = "raw")]
    pub(crate) encrypt: bool,
    /// Make a key for HashSLH-DSA (RFC 9909). Such a key names a hash function, and `sign` and `verify` hash every message with it
    /// first
    #[arg(long, conflicts_with = "raw")]
    pub(crate) hash_slh_dsa: bool,
    /// The function that derives the encryption key from the passphrase; it makes guessing expensive
    #[arg(long, value_name = "NAME", default_value = "scrypt", requires = "encrypt")]
    pub(crate) kdf: Kdf,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// How the key that encrypts comes from a passphrase.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Kdf {
    /// N = 16384, r = 8, p = 5
    Scrypt,
    /// HMAC-SHA-256, 600,000 iterations
    Pbkdf2,
}

impl From<Kdf> for PassphraseKdf {
    fn from(kdf: Kdf) -> PassphraseKdf {
        match kdf {
            Kdf::Scrypt => PassphraseKdf::Scrypt,
            Kdf::Pbkdf2 => PassphraseKdf::Pbkdf2,
        }
    }
}

/// Write the public key of a private key
#[derive(Args)]
pub(crate) struct Pubkey {
    /// The file of the private key: PEM, DER or raw; `-` is standard input
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Write the public key to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    /// Write the public key as one word, the base64 of its SPKI, for `verify --public-key` and for lists of allowed signers
    #[arg(long, conflicts_with_all = ["der", "raw"])]
    pub(crate) line: bool,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Change, set or remove the passphrase of a private key
///
/// The file is replaced as a whole or not at all. Its mode and its other contents stay.
#[derive(Args)]
pub(crate) struct Passwd {
    /// The file of the private key: PEM or DER
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Write the private key without a passphrase
    #[arg(long, conflicts_with_all = ["new_passphrase_file", "kdf"])]
    pub(crate) remove: bool,
    /// The function that derives the encryption key from the new passphrase; it makes guessing expensive
    #[arg(long, value_name = "NAME", default_value = "scrypt")]
    pub(crate) kdf: Kdf,
    /// Read the new passphrase from this file, whose only line it is; `-` is standard input. By default, the tool asks on the terminal
    #[arg(long, value_name = "FILE", help_heading = "Passphrase")]
    pub(crate) new_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
}

/// Sign files
///
/// The signature of FILE is written to FILE.sig. It has the bytes of FIPS 205 (R ‖ SIG_FORS ‖ SIG_HT) and nothing else. If FILE is `-`,
/// the signature goes to standard output. An error in one file does not stop the others.
#[derive(Args)]
#[command(group = ArgGroup::new("what").args(["files", "list", "digest", "manifest", "table"]).required(true).multiple(true))]
pub(crate) struct Sign {
    /// The file of the private key: PEM, DER or raw; `-` is standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "table")]
    pub(crate) key: Option<PathBuf>,
    /// Write the signature to this file, if one file is signed; with --manifest, write the manifest to it. `-` is standard output. By
    /// default, FILE.sig
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["out_dir", "list"])]
    pub(crate) output: Option<PathBuf>,
    /// Write the signatures to this directory, each named after its file; by default, next to the files
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Sign all files of each given directory and its subdirectories, except *.sig and links to them. With --out-dir, the signatures have the same
    /// subdirectories. By default, a directory is an error
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Write the SHA-256 of every file below DIR to the file of --output, as sha256sum does, and sign that file: the signature of
    /// release.sums is release.sums.sig. Neither they nor links to them are listed. Any other symbolic link must lead to a file below DIR
    #[arg(long, value_name = "DIR", requires = "output", conflicts_with_all = ["files", "list", "digest", "recursive", "skip_existing"])]
    pub(crate) manifest: Option<PathBuf>,
    /// Sign what this table lists; `-` is standard input. A line has the file of a private key, the file to sign and the file for the
    /// signature, separated by tabs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "files", "list", "digest", "manifest", "recursive", "skip_existing", "output", "out_dir", "cache_layers", "cache_memory"])]
    pub(crate) table: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) message: MessageOptions,
    /// Write each signature as text that names its set, mode, context and key: docs/envelope.md. `verify` recognises this form; other
    /// programs need bare signatures. By default, signatures are bare
    #[arg(long, conflicts_with_all = ["skip_existing", "internal", "table"])]
    pub(crate) armor: bool,
    /// With --armor: add this line to the text; it is signed, too
    #[arg(long, value_name = "TEXT", requires = "armor")]
    pub(crate) comment: Option<String>,
    /// Sign without randomness, so that the same message always has the same signature. By default, signatures are randomized (hedged)
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Compute the key's top N layers once and keep them in memory, so that each signature takes less time. By default 1 if there are
    /// several files, else 0
    #[arg(long, value_name = "N")]
    pub(crate) cache_layers: Option<usize>,
    /// Like --cache-layers, with as many layers as fit SIZE, for example 64M
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "cache_layers")]
    pub(crate) cache_memory: Option<u64>,
    /// Leave out files that have a valid signature already, so that an interrupted run can continue. An invalid signature is an error,
    /// or is replaced with --force. By default, any existing signature is an error
    #[arg(long)]
    pub(crate) skip_existing: bool,
    /// Sign this digest, which another program computed, instead of a file. --prehash, or the key, names the hash function
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with_all = ["files", "list"], requires = "output", help_heading = "Message")]
    pub(crate) digest: Option<Bytes>,
    /// The ledger that counts the signatures of a key of a limited set; by default KEY.ledger
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub(crate) ledger: Option<PathBuf>,
    /// Print a line of JSON for each file, and a summary: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) redundancy: Redundancy,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

/// Verify the signatures of files
///
/// Standard output gets one verdict for each file: `FILE: OK`, `FILE: FAILED`, or `FILE: ERROR` if there is no signature to check. With
/// --quiet, it gets only the bad ones.
///
/// --certificate and --cms check the signature that is inside each given file, and only this signature: no chain, no dates, no names.
#[derive(Args)]
#[command(group = ArgGroup::new("what").args(["files", "list", "digest", "manifest", "table", "certificate", "cms"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("whose").args(["key", "public_key", "allowed_signers", "table", "certificate"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("detached").args(["list", "digest", "signature", "signature_dir", "allowed_signers", "context",
    "context_hex", "prehash", "internal", "diagnose", "strict", "manifest", "table", "recursive", "root", "extra"]).multiple(true))]
pub(crate) struct Verify {
    /// The file of the public key, of the private key, or of a certificate that holds the public key: PEM, DER or raw; `-` is standard
    /// input. Repeat the option for several keys: the signature must be from one of them
    #[arg(short, long, value_name = "FILE")]
    pub(crate) key: Vec<PathBuf>,
    /// A public key as one word, as `pubkey --line` prints it; repeat the option for several keys
    #[arg(long, value_name = "BASE64")]
    pub(crate) public_key: Vec<String>,
    /// A file that lists who may sign. A line is NAME [valid-after=TIME] [valid-before=TIME] [namespace=CONTEXT]… BASE64: docs/keys.md
    #[arg(long, value_name = "FILE")]
    pub(crate) allowed_signers: Option<PathBuf>,
    /// The time at which the signers must be valid, for example 2026-11-23 or 2026-11-23T12:00:00Z (UTC); by default now
    #[arg(long, value_name = "TIME", requires = "allowed_signers", value_parser = signers::time)]
    pub(crate) at: Option<SystemTime>,
    /// Verify the signatures on these certificates, with the key of --issuer or --key, and on these certificate requests, each with its
    /// own key: PEM or DER. Of several files, or several certificates in a file, each has a verdict
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["detached", "files", "cms"], help_heading = "Certificates")]
    pub(crate) certificate: Vec<PathBuf>,
    /// The file of the issuer's certificate or public key, or of several, any of which may have signed. --certificate needs it, or --key; a
    /// certificate request needs neither
    #[arg(long, value_name = "FILE", help_heading = "Certificates")]
    pub(crate) issuer: Option<PathBuf>,
    /// Verify this CMS signature (.p7s). The message is inside, or it is FILE
    #[arg(long, value_name = "FILE", conflicts_with = "detached", help_heading = "Certificates")]
    pub(crate) cms: Option<PathBuf>,
    /// The file of the signature, if one file is verified; `-` is standard input. By default FILE.sig
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["signature_dir", "list"])]
    pub(crate) signature: Option<PathBuf>,
    /// Once the signature is valid, write the message to this file; `-` is standard output. Nothing is written before, and nothing if the
    /// signature is invalid: what runs the message runs nothing else. For one file, or standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["list", "digest", "recursive", "manifest", "table", "certificate", "cms"])]
    pub(crate) output: Option<PathBuf>,
    /// Let --output replace a file that exists, but for those that the command reads; by default, that is an error
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Read the signatures from this directory, where each is named after its file; by default, they are next to the files
    #[arg(long, value_name = "DIR")]
    pub(crate) signature_dir: Option<PathBuf>,
    /// Verify all files of each given directory and its subdirectories, except *.sig and links to them. With --signature-dir, the signatures have the
    /// same subdirectories. By default, a directory is an error
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Verify the signature of FILE, a list of files with their SHA-256, and then each of these files. A missing file is an
    /// ERROR (exit code 2), a changed one has FAILED (1). The signature is FILE.sig, or the file of --signature
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "list", "digest", "recursive", "signature_dir"])]
    pub(crate) manifest: Option<PathBuf>,
    /// The directory of the files that the manifest lists; by default, the directory of the manifest
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// With --manifest: files that the manifest does not list fail; by default, they are ignored
    #[arg(long)]
    pub(crate) extra: bool,
    /// Verify what this table lists; `-` is standard input. A line has the file of a public key, the file that was signed and the file
    /// of the signature, separated by tabs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "public_key", "allowed_signers", "files", "list", "digest", "manifest", "recursive", "signature", "signature_dir", "strict"])]
    pub(crate) table: Option<PathBuf>,
    /// Verify the signature of this digest, which another program computed, instead of a file. --prehash, or the key, names the hash
    /// function
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with_all = ["files", "list"], requires = "signature", help_heading = "Message")]
    pub(crate) digest: Option<Bytes>,
    /// If a signature fails, try what people mix up (modes, contexts, sets, line ends, encodings), and report what the signature is
    /// valid for and which command shows it. Verdicts and exit codes do not change
    #[arg(long, conflicts_with_all = ["manifest", "table"])]
    pub(crate) diagnose: bool,
    /// For zkDilithium: accept a signature or a key only in the encoding that the tool writes. By default, other encodings of a valid
    /// signature pass, as in other implementations
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print a line of JSON for each file, and a summary: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) message: MessageOptions,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

/// Print or check SHA-256 sums of files, as sha256sum does
///
/// Lines, escapes and exit codes are those of sha256sum: the exit code is 1 if a file cannot be read or a sum does not match. There are
/// seven differences. Wrong usage exits with 2, as everywhere in this tool. --quiet is allowed without --check. Standard input can be
/// named only once. A line with a NUL is not a sum. A verdict escapes a carriage return in a file name, which could hide the name on a
/// terminal. A byte order mark before the first line is skipped. A list with a private key in it is not read.
///
/// With --records, the input is a sequence of records. A record is its length, a big-endian number of four bytes, and then its bytes.
/// The output has one line for each record, with only its sum.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Hash {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Read sums and file names from FILE, and check them; by default, sums are computed and printed
    #[arg(short, long)]
    pub(crate) check: bool,
    /// Mark names as binary files (`*`); the sum is the same
    #[arg(short, long, conflicts_with = "check", overrides_with = "text")]
    pub(crate) binary: bool,
    /// Mark names as text files (a space); this is the default, and the sum is the same
    #[arg(short, long, conflicts_with_all = ["check", "tag"])]
    pub(crate) text: bool,
    /// Print lines as BSD's sha256 does: SHA256 (FILE) = SUM
    #[arg(long, conflicts_with = "check")]
    pub(crate) tag: bool,
    /// End lines with NUL instead of a newline, and do not escape names
    #[arg(short, long, conflicts_with = "check")]
    pub(crate) zero: bool,
    /// With --check: ignore listed files that do not exist; by default, they fail
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,
    /// With --check: print no verdicts, only set the exit code
    #[arg(long, requires = "check", overrides_with_all = ["warn", "quiet"])]
    pub(crate) status: bool,
    /// With --check: fail if a line is not a sum; by default, such lines are only counted
    #[arg(long, requires = "check")]
    pub(crate) strict: bool,
    /// With --check: print verdicts as lines of JSON, and a summary: docs/automation.md
    #[arg(long, requires = "check", conflicts_with = "status")]
    pub(crate) json: bool,
    /// With --check: name every line that is not a sum
    #[arg(short, long, requires = "check", overrides_with_all = ["status", "quiet"])]
    pub(crate) warn: bool,
    /// Hash each record of the input, instead of whole files
    #[arg(long, conflicts_with_all = ["check", "binary", "text", "tag"])]
    pub(crate) records: bool,
    /// With --records: print only the root of the Merkle tree over all records (RFC 9162, section 2.1.1)
    #[arg(long, requires = "records")]
    pub(crate) merkle_root: bool,
}

/// Show the parts of a key or a signature, with their offsets
#[derive(Args)]
pub(crate) struct Inspect {
    /// The file: a key (PEM, DER or raw), a signature (bare or in an envelope), a certificate, a certificate request or CMS, of at most
    /// 1 MiB; `-` is standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    /// Show the secret parts of a private key, too; by default, they are hidden, and an encrypted key stays encrypted unless an option
    /// names its passphrase
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// Print JSON, with all values in full; by default, long values are shortened
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the devices and the CPU's instruction sets
#[derive(Args)]
pub(crate) struct Devices {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how the engine would compute a batch: plan, device, policy, work and predicted time
#[derive(Args)]
pub(crate) struct Explain {
    /// The parameter set, for example SLH-DSA-SHA2-128f
    #[arg(long, value_name = "NAME", value_parser = set(), hide_possible_values = true)]
    pub(crate) set: &'static Params,
    /// The operation to explain
    #[arg(long, value_name = "OP", default_value = "sign")]
    pub(crate) op: OpName,
    /// How many jobs the batch has
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub(crate) batch: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Draw measurements as one HTML page
///
/// The page needs no network and no other file. It has curves over threads and batch sizes with their fits, the levels of parallelism,
/// and rates as parts of the peak. For two runs it shows how many times as fast the second one is. docs/studies.md explains the
/// pictures.
#[derive(Args)]
pub(crate) struct Report {
    /// Files that `bench --json` wrote, or directories of such files. The first run is the base: the others are compared with it
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Write the page to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Write every picture as an SVG file to this directory, too
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Answer NIST's ACVP tests of SLH-DSA: prompt.json in, expectedResults.json out
///
/// The modes are keyGen, sigGen and sigVer, revision FIPS205. The prompt is the bare object, or the array with acvVersion.
#[derive(Args)]
pub(crate) struct Acvp {
    /// The file of the prompt; `-` is standard input
    pub(crate) file: PathBuf,
    /// Write the answers to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) redundancy: Redundancy,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Compute known answers of zkDilithium: seeds and messages in, keys, signatures and verdicts out
///
/// The file is a JSON object whose `cases` have `seed`, `msg` and `verify_mutations`, as in vectors/zkdilithium/e2e_public.json. Other
/// fields are ignored.
#[derive(Args)]
pub(crate) struct Kat {
    /// The file of the cases; `-` is standard input
    pub(crate) file: PathBuf,
}

/// Try it: make a key, sign and verify every file of a directory, and measure
#[derive(Args)]
pub(crate) struct Quickstart {
    /// The directory to sign, without hidden files and without target/. Nothing is written there
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The parameter set of the key
    #[arg(long, value_name = "NAME", value_parser = set(), hide_possible_values = true, default_value = "SLH-DSA-SHA2-128f")]
    pub(crate) set: &'static Params,
    /// Write the key and the signatures to this new directory; by default, nothing is kept
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Count the signatures of a key of a limited set (draft SP 800-230)
///
/// Such a key may make at most 2^24 signatures. `sign` reserves a number in the key's ledger before each signature. docs/ledger.md
/// explains what a ledger cannot notice.
#[derive(Args)]
pub(crate) struct Ledger {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Subcommand)]
pub(crate) enum LedgerCommand {
    Init(LedgerInit),
    Show(LedgerShow),
    Lease(LedgerLease),
}

/// A key and its ledger.
#[derive(Args)]
pub(crate) struct LedgerKey {
    /// The file of the private or the public key: raw; `-` is standard input
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// The file of the ledger; by default KEY.ledger
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
}

/// Make the ledger of a key
#[derive(Args)]
pub(crate) struct LedgerInit {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// How many signatures the key has already made; if you are unsure, give a higher number. By default 0. Required if the key has had
    /// a ledger
    #[arg(long, value_name = "N")]
    pub(crate) used: Option<u64>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Show how many signatures a key may still make
#[derive(Args)]
pub(crate) struct LedgerShow {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// Print a line of JSON: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
}

/// Give numbers of this ledger to another machine that has the same key, as a ledger of its own
#[derive(Args)]
pub(crate) struct LedgerLease {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// How many signatures the other machine may make
    #[arg(long, value_name = "N")]
    pub(crate) count: NonZeroU64,
    /// Write the other machine's ledger to this file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Print the completions for a shell; docs/automation.md says where they belong
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell that reads them
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages, one for each command
#[derive(Args)]
pub(crate) struct Man {
    /// The directory for the pages, for example ~/.local/share/man/man1. The tool makes it if it is missing; existing pages are replaced
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Which files.
#[derive(Args)]
pub(crate) struct Inputs {
    /// The files; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Read the names of files from this file, one on each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,
    /// In the file of --list, names end with NUL instead of a newline, as `find -print0` writes them
    #[arg(short = '0', long, requires = "list")]
    pub(crate) null: bool,
}

/// How a file becomes M′.
#[derive(Args)]
pub(crate) struct MessageOptions {
    /// The context string, at most 255 bytes of UTF-8; signer and verifier must use the same. By default empty
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["context_hex", "internal"], help_heading = "Message")]
    pub(crate) context: Option<String>,
    /// The context string in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with = "internal", help_heading = "Message")]
    pub(crate) context_hex: Option<Bytes>,
    /// Hash the file first (HashSLH-DSA), with this function, for example SHA2-256 or SHAKE-128. Signer and verifier must use the same.
    /// By default, the message is the file itself, or the key names the function
    #[arg(long, value_name = "HASH", value_parser = hash(), hide_possible_values = true, conflicts_with = "internal", help_heading = "Message")]
    pub(crate) prehash: Option<PreHash>,
    /// Use the internal interface of FIPS 205 (Algorithms 19 and 20): the file is M′ itself. For tests
    #[arg(long, help_heading = "Message")]
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
    /// The mode with a key: a key of HashSLH-DSA implies its hash.
    pub(crate) fn mode_with(&self, key: &VerifyingKey) -> Result<Mode<'_>, Failure> {
        let mode = match self.mode()? {
            Mode::Pure { context } => key.mode(context),
            mode => mode,
        };
        let check = key.as_ref().check_mode(mode);
        check.map_err(|error| {
            Failure::new(error.to_string()).hint("leave --prehash and --internal out: the key says it")
        })?;
        Ok(mode)
    }
}

impl Inputs {
    /// All files, given and listed; of a digest that is given instead, what it is called.
    pub(crate) fn paths_or(&self, digest: Option<&Bytes>) -> Result<Vec<PathBuf>, Failure> {
        match digest {
            Some(Bytes(digest)) => Ok(vec![format!("digest:{}", hex::encode(digest)).into()]),
            None => self.paths(),
        }
    }

    /// All files, given and listed.
    pub(crate) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut paths = self.files.clone();
        if let Some(list) = &self.list {
            paths.extend(read_list(&list.as_path().into(), self.null)?);
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

/// Properties of a key that its file may not name.
#[derive(Args)]
pub(crate) struct KeyKind {
    /// The parameter set of the key. Required for raw keys of SLH-DSA; other keys name their set, and the tool compares
    #[arg(long, value_name = "NAME", value_parser = set(), hide_possible_values = true)]
    pub(crate) set: Option<&'static Params>,
    /// The signature scheme of the key; by default, the tool recognises it by the file
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<Scheme>,
}

/// How a key is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Pem,
    Der,
    Raw,
}

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Pem => "PEM",
            Encoding::Der => "DER",
            Encoding::Raw => "raw",
        }
    }
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

/// Permission to replace files.
#[derive(Args)]
pub(crate) struct Overwrite {
    /// Replace files that exist, except those that the command reads; by default, they are errors
    #[arg(long)]
    pub(crate) force: bool,
}

fn hash() -> impl TypedValueParser<Value = PreHash> {
    Listed::new(str::parse::<PreHash>, || PreHash::ALL.map(PreHash::name))
}

/// Bytes given in hexadecimal: one argument, not a list of them.
#[derive(Clone)]
pub(crate) struct Bytes(pub(crate) Zeroizing<Vec<u8>>);

fn bytes(digits: &str) -> Result<Bytes, String> {
    // In place: a buffer that grows leaves copies of seeds behind.
    let mut bytes = Zeroizing::new(vec![0; digits.len() / 2]);
    hex::decode_to_slice(digits, &mut bytes).map_err(|error| format!("not hexadecimal: {error}"))?;
    Ok(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::definition().debug_assert();
    }
}
