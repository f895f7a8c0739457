//! `hypergrove-git`: the program that Git calls to sign and to verify if `gpg.format` is `x509`.
//!
//! Git gives its program no arguments of the user's, so all settings are Git's. A signature is an envelope between the lines that Git looks for.

use crate::args::{KeyKind, MachineOptions, Scheme};
use crate::files::{Source, path_of};
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::passphrase::PassphraseOptions;
use crate::verify::signers;
use crate::{in_brief, unquoted, with_key_in_arguments};
use clap::Parser;
use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
use hypergrove::backend::wiped;
use hypergrove::{Fingerprint, Mode, Randomizer, SlhDsa};
use hypergrove_files::envelope::{Envelope, Header};
use hypergrove_files::signers::NotAllowed;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Name, PathDisplay, Printer, Visible};
use hypergrove_lab::version::BUILD;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

/// The name by which the tool is this program.
const NAME: &str = "hypergrove-git";
/// The context of Git's signatures. A signature that the key has made for something else is none for Git, and the reverse.
const CONTEXT: &[u8] = b"git";
/// The way out where Git calls the tool by its own name.
pub(crate) const WRONG_NAME: &str = "Git calls the tool by the name hypergrove-git: make a link of that name to the tool, and write `git config \
                                     gpg.x509.program hypergrove-git`; docs/git.md has all settings";

/// Signs commits and tags for Git, and verifies them
///
/// Git calls this program, nobody else. These settings make Git do so:
///
///   git config gpg.format x509
///   git config gpg.x509.program hypergrove-git
///   git config hypergrove.key FILE                 (to sign: a private key of SLH-DSA)
///   git config hypergrove.allowedSigners FILE      (to verify: the list of those who may sign)
///
/// docs/git.md has the other settings.
#[derive(Parser)]
#[command(name = NAME, version = BUILD, max_term_width = 100, verbatim_doc_comment)]
struct Call {
    /// Where status lines go: 1 is standard output, 2 is standard error
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    status_fd: u8,
    /// Write a signature that is apart from what is signed; Git always asks for one
    #[arg(short = 'b')]
    detached: bool,
    /// Sign standard input
    #[arg(short = 's', requires_all = ["detached", "armored", "signer"], conflicts_with = "verify")]
    sign: bool,
    /// Write the signature as text; Git always asks for it
    #[arg(short = 'a')]
    armored: bool,
    /// Whose signature it is. If this is a fingerprint, it has to be the key's; other names are for other programs
    #[arg(short = 'u', value_name = "KEY", allow_hyphen_values = true)]
    signer: Option<String>,
    /// How other programs show keys
    #[arg(long, hide = true)]
    keyid_format: Option<String>,
    /// Verify the signature in this file, of standard input
    #[arg(long, value_name = "SIGNATURE", requires = "signed", required_unless_present = "sign")]
    verify: Option<PathBuf>,
    /// `-`, which is standard input
    #[arg(value_parser = ["-"])]
    signed: Option<String>,
    #[command(flatten)]
    machine: MachineOptions,
}

/// Whether the tool was called by this program's name, or by a path that ends with it.
pub(crate) fn is_name(called: &OsStr) -> bool {
    Path::new(called).file_stem() == Some(OsStr::new(NAME))
}

/// Whether this is an argument that Git gives its program.
pub(crate) fn is_of_git(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with("--status-fd="))
}

/// Runs the program by this process's arguments.
pub(crate) fn main() -> ExitCode {
    let printer = Printer::new(false, false);
    let call = Call::try_parse().map_err(|error| match error.kind() {
        DisplayHelp | DisplayVersion => error.exit(),
        _ => with_key_in_arguments(
            in_brief(&unquoted(error).render().to_string(), None)
                .hint(format!("Git calls this program, with its own arguments; `{NAME} --help` says how to set it up")),
        ),
    });
    let done = call.and_then(|call| {
        let status = Status(call.status_fd);
        match (&call.verify, &call.signer) {
            (Some(signature), _) => wiped(|| verify(&call, signature, status, &printer)).inspect_err(|_| {
                // Git takes what has no status for unsigned.
                let _ = status.unknown("0000000000000000", 4);
            }),
            (None, signer) => {
                wiped(|| sign(&call, signer.as_deref().unwrap_or_default(), status, &printer)).inspect_err(on_terminal)
            }
        }
    });
    done.unwrap_or_else(|failure| {
        printer.failure(&failure);
        Exit::Error
    })
    .into()
}

/// Git before 2.41 keeps to itself why its program did not sign, so the terminal gets the reason.
fn on_terminal(failure: &Failure) {
    let hint = failure.hint.as_deref().unwrap_or("docs/git.md has all settings");
    let terminal = || std::fs::File::options().write(true).open("/dev/tty");
    if let (true, Ok(mut terminal)) = (cfg!(unix) && !io::stderr().is_terminal(), terminal()) {
        // Without a terminal, Git's own message has to do.
        let _ = writeln!(terminal, "{NAME}: {}\n hint: {}", Visible(&failure.message), Visible(hint));
    }
}

/// Where Git reads what became of its call: in lines of the form that GnuPG's programs write.
#[derive(Clone, Copy)]
struct Status(u8);

impl Status {
    fn line(self, line: impl Display) -> Result<(), Failure> {
        let text = format!("[GNUPG:] {line}\n");
        let written = match self.0 {
            1 => io::stdout().write_all(text.as_bytes()),
            _ => io::stderr().write_all(text.as_bytes()),
        };
        written.map_err(|error| Failure::io("write to", "the descriptor of --status-fd", &error))
    }

    /// There is a signature, and nothing is said of it; `why` is GnuPG's number.
    fn unknown(self, key: impl Display, why: u8) -> Result<(), Failure> {
        self.line(format_args!("ERRSIG {key} 0 0 00 0 {why}"))
    }
}

fn sign(call: &Call, signer: &str, status: Status, printer: &Printer) -> Result<Exit, Failure> {
    let path = needed("hypergrove.key", "the file of a private key in PEM or DER")?;
    let passphrase = PassphraseOptions::of_file(file("hypergrove.passphraseFile")?);
    let refused = |failure: Failure| {
        failure.hint(
            "hypergrove.key names a private key of SLH-DSA in PEM or DER; if it is encrypted, Git's user is asked on the terminal, or \
             hypergrove.passphraseFile names the file of the passphrase",
        )
    };
    let key_file = KeyFile::read(Source::File(path), Some(&passphrase)).map_err(refused)?;
    if key_file.scheme(&KeyKind { set: None, scheme: None })? == Scheme::ZkDilithium {
        return Err(refused(Failure::new(format!("{} is a key of zkDilithium", key_file.source))));
    }
    let key = key_file.private::<SlhDsa>(None).map_err(refused)?;
    let public = key.verifying_key();
    let fingerprint = public.fingerprint();
    if signer.parse::<Fingerprint>().is_ok_and(|wanted| wanted != fingerprint) {
        return Err(Failure::new(format!(
            "the key {signer} is to sign, and {} has the key {fingerprint}",
            key_file.source
        ))
        .hint("name the file of the key that is to sign with hypergrove.key, or leave the fingerprint out"));
    }
    let unfit = |error: hypergrove_files::envelope::EnvelopeError| Failure::new(error.to_string());
    let header = Header::new(&public, public.mode(CONTEXT), None).map_err(unfit)?;
    let payload = Messages::new(&call.machine, None).read(&Source::Stdin)?;
    let redundant = setting("hypergrove.redundant", "bool")?.as_deref() == Some(b"true");
    let engine =
        machine::engine_with(&call.machine, printer, |builder| builder.redundant(redundant).verify_signatures(true))?;
    let context = header.signed_context();
    let signature = engine.sign(&key, header.mode(&context), &payload, Randomizer::Hedged)?;
    let envelope = Envelope::new(header.clone(), signature.as_bytes()).map_err(unfit)?;
    printer.bytes(envelope.to_git().as_bytes())?;
    // Git before 2.40 finds the line of the signature only after another line.
    status.line("BEGIN_SIGNING H0")?;
    status.line(format_args!("SIG_CREATED D 0 0 00 0 {fingerprint}"))?;
    Ok(Exit::Good)
}

fn verify(call: &Call, signature: &Path, status: Status, printer: &Printer) -> Result<Exit, Failure> {
    let list = Source::File(needed("hypergrove.allowedSigners", "a list of those who may sign")?);
    let signers = signers(&list)?;
    let payload = Messages::new(&call.machine, None).read(&Source::Stdin)?;
    let envelope =
        Envelope::parse_git(&Source::File(signature.into()).read_key("a signature of Git")?).map_err(|error| {
            Failure::new(format!("the signature cannot be read: {error}")).hint("another program may have made it")
        })?;
    // Git looks for its word after the end of a line.
    status.line("NEWSIG")?;
    let key = envelope.header().key();
    let of_key: Vec<_> = signers.iter().filter(|signer| signer.key().fingerprint() == key).collect();
    let invalid = |why: String| {
        printer.failure(&Failure::new(why));
        Ok(Exit::Invalid)
    };
    let Some(first) = of_key.first() else {
        status.unknown(key, 9)?;
        status.line(format_args!("NO_PUBKEY {key}"))?;
        return invalid(format!("nobody in {list} has the key {key}, which the signature names"));
    };
    // A list has names that a status line can hold, but for characters that nobody sees.
    let at = signed_at(&payload).unwrap_or_else(SystemTime::now);
    let refusal =
        |signer: &&hypergrove_files::signers::AllowedSigner| signer.check(Mode::Pure { context: CONTEXT }, at).err();
    let allowed = of_key.iter().find(|signer| refusal(signer).is_none());
    let name = Name(allowed.unwrap_or(first).name());
    let engine = machine::engine(&call.machine, printer)?;
    if let Err(mismatch) = envelope.verify(&engine, first.key(), CONTEXT, &payload)? {
        status.line(format_args!("BADSIG {key} {name}"))?;
        return invalid(format!("BAD signature by {name}: {mismatch}"));
    }
    match allowed.map_or_else(|| refusal(first), |_| None) {
        None => {
            status.line(format_args!("GOODSIG {key} {name}"))?;
            status.line(format_args!("VALIDSIG {key} 0 0 0 0 - 0 0 00 {key}"))?;
            status.line("TRUST_FULLY 0 shell")?;
            printer.note(format_args!("Good signature by {name} with the key {key} of {}", first.key().params()));
            Ok(Exit::Good)
        }
        Some(why) => {
            match why {
                NotAllowed::Late { .. } => status.line(format_args!("EXPKEYSIG {key} {name}"))?,
                _ => status.unknown(key, 4)?,
            }
            invalid(format!("{name} may not sign this: {why}"))
        }
    }
}

/// When a commit, a tag or a push was made, by its own account: Git's signatures by SSH are compared with that time too.
fn signed_at(payload: &[u8]) -> Option<SystemTime> {
    let fields = [&b"committer "[..], b"tagger ", b"pusher "];
    let mut header = payload.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let line = header.find(|line| fields.iter().any(|field| line.starts_with(field)))?;
    let seconds = str::from_utf8(line.rsplit(|byte| *byte == b' ').nth(1)?).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))
}

/// The file that a setting must name; `what` is in it.
fn needed(name: &str, what: &str) -> Result<PathBuf, Failure> {
    file(name)?.ok_or_else(|| {
        Failure::new(format!("Git's setting {name} is missing, which names {what}"))
            .hint(format!("write `git config {name} FILE`; docs/git.md has all settings"))
    })
}

/// The file that a setting names. A relative name begins at the top of the working tree, or in a bare repository.
fn file(name: &str) -> Result<Option<PathBuf>, Failure> {
    let Some(value) = setting(name, "path")?.filter(|value| !value.is_empty()) else { return Ok(None) };
    let path = path_of(&Source::Stdin, &value)?;
    if path.is_absolute() {
        return Ok(Some(path));
    }
    for top in ["--show-toplevel", "--absolute-git-dir"] {
        if let (0, folder) = git(&["rev-parse", top])? {
            let folder = folder.strip_suffix(b"\n").unwrap_or(&folder);
            return Ok(Some(path_of(&Source::Stdin, folder)?.join(path)));
        }
    }
    Err(Failure::new(format!(
        "Git's setting {name} is {}, and there is no repository in which it begins",
        PathDisplay(&path)
    ))
    .hint("write the whole path of the file"))
}

/// The value of a setting of Git.
fn setting(name: &str, kind: &str) -> Result<Option<Vec<u8>>, Failure> {
    match git(&["config", "--null", &format!("--type={kind}"), "--get", name])? {
        (0, value) => Ok(Some(value.strip_suffix(b"\0").unwrap_or(&value).to_vec())),
        (1, _) => Ok(None),
        _ => Err(Failure::new(format!("Git cannot read its setting {name}"))
            .hint(format!("`git config --get --type={kind} {name}` says why"))),
    }
}

/// The exit code and the output of a command of Git.
fn git(arguments: &[&str]) -> Result<(i32, Vec<u8>), Failure> {
    let output = Command::new("git").args(arguments).output();
    let output = output.map_err(|error| Failure::io("start", "git", &error))?;
    Ok((output.status.code().unwrap_or(-1), output.stdout))
}
