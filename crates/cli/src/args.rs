//! What was typed.

use crate::files::read_list;
use crate::keys::Encoding;
use crate::passphrase::PassphraseOptions;
use crate::trees;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use hypergrove::signers::{self, SignersError};
use hypergrove::{MAX_CONTEXT, Mode, Params, PassphraseKdf, PreHash, VerifyingKey};
pub(crate) use hypergrove_lab::args::{Bench, MachineOptions, OpName, Redundancy, Scheme, Tune, known_sets};
use hypergrove_lab::args::{at_least_one, size};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::version::BUILD;
#[cfg(feature = "draft-sp800-230")]
use std::num::NonZeroU64;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// SLH-DSA (FIPS 205) and zkDilithium: post-quantum signatures, as fast as the hardware allows.
///
/// Exit codes: 0 all well, 1 a well-formed signature did not verify, 2 an error; docs/automation.md has them all.
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
    #[cfg(feature = "draft-sp800-230")]
    Ledger(Ledger),
    Completions(Completions),
    Man(Man),
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
    /// Where the public key goes as well; with --count, a table of the public keys
    #[arg(long, value_name = "FILE")]
    pub(crate) pubout: Option<PathBuf>,
    /// Make N keys of SLH-DSA, and write them to --table
    #[arg(long, value_name = "N", requires = "table", conflicts_with_all = ["output", "seeds", "json", "der", "raw", "encrypt"])]
    pub(crate) count: Option<NonZeroUsize>,
    /// Where the table of --count goes, mode 0600. A line for each key: its fingerprint, the public key (the base64 of its SPKI) and
    /// the private key (the base64 of its PKCS#8), with tabs between them. Keys under a passphrase take a tenth of a second each and
    /// are not for tables: encrypt the table itself
    #[arg(long, value_name = "FILE", requires = "count")]
    pub(crate) table: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    /// SK.seed ‖ SK.prf ‖ PK.seed, 3n bytes in hexadecimal, instead of the system's randomness; 32 bytes for zkDilithium.
    /// For tests: other users of the machine can read a command line
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    pub(crate) seeds: Option<Bytes>,
    /// Print what was made as a line of JSON: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
    /// Encrypt the private key under a passphrase, which is asked for twice: PKCS#8 with PBES2 and AES-256-CBC, as OpenSSL
    /// reads it
    #[arg(long, conflicts_with = "raw")]
    pub(crate) encrypt: bool,
    /// Make a key of HashSLH-DSA (RFC 9909), which says so itself: whatever it signs is hashed first
    #[arg(long, conflicts_with = "raw")]
    pub(crate) hash_slh_dsa: bool,
    /// What makes guessing the passphrase expensive
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
    /// The private key: PEM, DER or raw; `-` is standard input
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Where the public key goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) encoding: EncodingOptions,
    /// Write the key as one word: the base64 of its SPKI, as `verify --public-key` and lists of signers take it
    #[arg(long, conflicts_with_all = ["der", "raw"])]
    pub(crate) line: bool,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
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
#[command(group = ArgGroup::new("what").args(["files", "list", "digest", "manifest", "table"]).required(true).multiple(true))]
pub(crate) struct Sign {
    /// The private key: PEM, DER or raw; `-` is standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "table")]
    pub(crate) key: Option<PathBuf>,
    /// Where the signature of the one file goes, or the manifest; `-` is standard output
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["out_dir", "list"])]
    pub(crate) output: Option<PathBuf>,
    /// Where the signatures go, each named after its file
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Sign all files of each directory that is given, but for those called *.sig; with --out-dir, the signatures lie there as
    /// the files lie in their directory
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Write the SHA-256 of every file below DIR to --output, in sha256sum's lines, and sign these: the signature of
    /// release.sums is release.sums.sig. Links are read if they lead to a file below DIR, others are errors
    #[arg(long, value_name = "DIR", requires = "output", conflicts_with_all = ["files", "list", "digest", "recursive", "skip_existing"])]
    pub(crate) manifest: Option<PathBuf>,
    /// Sign as a table says: on each line the file of a private key, a file and where its signature goes, with tabs between
    /// them; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "files", "list", "digest", "manifest", "recursive", "skip_existing", "output", "out_dir", "cache_layers", "cache_memory"])]
    pub(crate) table: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) message: MessageOptions,
    /// Write each signature as text that names its set, mode, context and key: docs/envelope.md. `verify` knows it by itself;
    /// other programs take bare signatures alone
    #[arg(long, conflicts_with_all = ["skip_existing", "internal", "manifest", "table"])]
    pub(crate) armor: bool,
    /// A line that goes into the text and is signed as well
    #[arg(long, value_name = "TEXT", requires = "armor")]
    pub(crate) comment: Option<String>,
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
    /// Sign a digest that was computed elsewhere, instead of a file; --prehash or the key says by which hash function
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with_all = ["files", "list"], requires = "output", help_heading = "Message")]
    pub(crate) digest: Option<Bytes>,
    /// The ledger of a key of a limited set; KEY.ledger if not given
    #[cfg(feature = "draft-sp800-230")]
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
/// One verdict a file goes to standard output: `FILE: OK`, `FILE: FAILED`, or `FILE: ERROR` where there was nothing to
/// judge. With --quiet, only bad ones do.
///
/// With --certificate or --cms, the signature is the one in that file, and it alone is checked: no chain, no date, no name.
#[derive(Args)]
#[command(group = ArgGroup::new("what").args(["files", "list", "digest", "manifest", "table", "certificate", "cms"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("whose").args(["key", "public_key", "allowed_signers", "table", "certificate"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("detached").args(["list", "digest", "signature", "signature_dir", "allowed_signers", "context",
    "context_hex", "prehash", "internal", "diagnose", "strict", "manifest", "table", "recursive", "root", "extra"]).multiple(true))]
pub(crate) struct Verify {
    /// The public key, the private key, or a certificate whose subject's key it is: PEM, DER or raw; `-` is standard input. Of
    /// several keys, one has to have signed
    #[arg(short, long, value_name = "FILE")]
    pub(crate) key: Vec<PathBuf>,
    /// A public key as one word, as `pubkey --line` prints it
    #[arg(long, value_name = "BASE64")]
    pub(crate) public_key: Vec<String>,
    /// A file that lists who may sign, one a line: NAME [valid-after=TIME] [valid-before=TIME] [namespace=CONTEXT]… BASE64
    #[arg(long, value_name = "FILE")]
    pub(crate) allowed_signers: Option<PathBuf>,
    /// When the signers have to be valid, for example 2026-11-23 or 2026-11-23T12:00:00Z; now if not given
    #[arg(long, value_name = "TIME", requires = "allowed_signers", value_parser = time)]
    pub(crate) at: Option<SystemTime>,
    /// Verify the signature on a certificate, or on a certificate request, which its own key signs: PEM or DER
    #[arg(long, value_name = "FILE", conflicts_with_all = ["detached", "files", "cms"], help_heading = "Certificates")]
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate, or the key, of the issuer
    #[arg(long, value_name = "FILE", help_heading = "Certificates")]
    pub(crate) issuer: Option<PathBuf>,
    /// Verify CMS (.p7s): the message is inside, or FILE
    #[arg(long, value_name = "FILE", conflicts_with = "detached", help_heading = "Certificates")]
    pub(crate) cms: Option<PathBuf>,
    /// The signature of the one file; FILE.sig if not given; `-` is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["signature_dir", "list"])]
    pub(crate) signature: Option<PathBuf>,
    /// Where the signatures are, each named after its file
    #[arg(long, value_name = "DIR")]
    pub(crate) signature_dir: Option<PathBuf>,
    /// Verify all files of each directory that is given, but for those called *.sig; with --signature-dir, the signatures lie
    /// there as the files lie in their directory
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Verify the signature of FILE, which lists files with their SHA-256, and then each of these files: none may be missing or
    /// lie outside. The signature is FILE.sig if --signature does not say otherwise
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "list", "digest", "recursive", "signature_dir"])]
    pub(crate) manifest: Option<PathBuf>,
    /// Where the files of the manifest are; where the manifest is, if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Refuse files that are there and not in the manifest, too
    #[arg(long)]
    pub(crate) extra: bool,
    /// Verify as a table says: on each line the file of a public key, a file and its signature, with tabs between them; `-` is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "public_key", "allowed_signers", "files", "list", "digest", "manifest", "recursive", "signature", "signature_dir", "strict"])]
    pub(crate) table: Option<PathBuf>,
    /// Verify a digest that was computed elsewhere, instead of a file; --prehash or the key says by which hash function
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with_all = ["files", "list"], requires = "signature", help_heading = "Message")]
    pub(crate) digest: Option<Bytes>,
    /// Of a signature that fails, try what people mix up (modes, contexts, sets, line ends, encodings), and say with what it is
    /// valid and which command shows that. Verdicts and exit codes stay as they are
    #[arg(long, conflicts_with_all = ["manifest", "table"])]
    pub(crate) diagnose: bool,
    /// Of zkDilithium: refuse other encodings of a valid signature or key than the one that is written, which all
    /// implementations accept
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
    /// Print verdicts as lines of JSON, and a summary: docs/automation.md
    #[arg(long, requires = "check", conflicts_with = "status")]
    pub(crate) json: bool,
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
    /// A key (PEM, DER or raw), a signature, bare or in an envelope, a certificate, a certificate request or CMS; `-` is standard
    /// input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
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

/// Count the signatures of a key of a limited set (draft SP 800-230)
///
/// Such a key makes at most 2^24 signatures, and `sign` reserves a number in the key's ledger before each. docs/ledger.md says what a
/// ledger cannot notice.
#[cfg(feature = "draft-sp800-230")]
#[derive(Args)]
pub(crate) struct Ledger {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[cfg(feature = "draft-sp800-230")]
#[derive(Subcommand)]
pub(crate) enum LedgerCommand {
    Init(LedgerInit),
    Show(LedgerShow),
    Lease(LedgerLease),
}

/// A key and its ledger.
#[cfg(feature = "draft-sp800-230")]
#[derive(Args)]
pub(crate) struct LedgerKey {
    /// The private or the public key: raw; `-` is standard input
    #[arg(value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// The ledger; KEY.ledger if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) of: KeyKind,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseOptions,
}

/// Make the ledger of a key
#[cfg(feature = "draft-sp800-230")]
#[derive(Args)]
pub(crate) struct LedgerInit {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// How many signatures the key has made, at least; 0 if not given, but for a key that has had a ledger
    #[arg(long, value_name = "N")]
    pub(crate) used: Option<u64>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Show how many signatures are left
#[cfg(feature = "draft-sp800-230")]
#[derive(Args)]
pub(crate) struct LedgerShow {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// Print a line of JSON: docs/automation.md
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a ledger for another machine that has the same key, with numbers of this ledger
#[cfg(feature = "draft-sp800-230")]
#[derive(Args)]
pub(crate) struct LedgerLease {
    #[command(flatten)]
    pub(crate) key: LedgerKey,
    /// How many signatures the other machine may make
    #[arg(long, value_name = "N")]
    pub(crate) count: NonZeroU64,
    /// Where the other machine's ledger goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
}

/// Print the completions of a shell, for its folder of completions
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages, one for each command
#[derive(Args)]
pub(crate) struct Man {
    /// The folder, for example share/man/man1; pages that are there are replaced
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
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
    /// In the list, names end with NUL instead of a newline, as `find -print0` writes them
    #[arg(short = '0', long, requires = "list")]
    pub(crate) null: bool,
}

/// A file, and what it is called below a directory of signatures.
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) name: PathBuf,
}

/// How a file becomes M′.
#[derive(Args)]
pub(crate) struct MessageOptions {
    /// Context string, at most 255 bytes
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["context_hex", "internal"], help_heading = "Message")]
    pub(crate) context: Option<String>,
    /// Context string in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = bytes, conflicts_with = "internal", help_heading = "Message")]
    pub(crate) context_hex: Option<Bytes>,
    /// Hash the file first (HashSLH-DSA), for example with SHA2-256 or SHAKE-128
    #[arg(long, value_name = "HASH", conflicts_with = "internal", help_heading = "Message")]
    pub(crate) prehash: Option<PreHash>,
    /// The internal interface: the file is M′ itself
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
}

impl MessageOptions {
    /// The same with a key: one of HashSLH-DSA implies its hash.
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
    /// All files with the names that their signatures have in a directory of signatures; directories become what is in them.
    pub(crate) fn named(&self, digest: Option<&Bytes>, recursive: bool) -> Result<Vec<Named>, Failure> {
        let mut all = Vec::new();
        for path in self.paths_or(digest)? {
            if recursive && path.is_dir() {
                all.extend(trees::files(&path)?);
            } else {
                let name = path.file_name().unwrap_or(path.as_os_str()).into();
                all.push(Named { path, name });
            }
        }
        Ok(all)
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

fn time(text: &str) -> Result<SystemTime, SignersError> {
    signers::time(text)
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
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
