//! `hypergrove verify --diagnose`: what would have to change for a signature to be valid, and the command that says so.

use crate::args::{Bytes, Verify};
use crate::files::Source;
use crate::verdicts::Advice;
use crate::verify::LeftOut;
use hypergrove::diagnosis::{Diagnosis, KeyChange, MessageChange, MessageHash, SignatureChange, SignedMode};
use hypergrove::{Engine, Mode, PreHash, VerifyingKey};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::{PathDisplay, grouped};
use std::path::{Path, PathBuf};

/// Longer messages are not diagnosed.
const LONGEST_MESSAGE: u64 = 64 << 20;
/// Room for any signature in hexadecimal, and for a signed message of some size.
const LONGEST_SIGNATURE: u64 = 1 << 20;
/// Of more keys, the first ones are tried.
const KEYS: usize = 16;

/// Where a key that may have signed comes from.
pub(crate) enum Origin {
    File {
        path: PathBuf,
        /// Its set is what --set says.
        is_raw: bool,
    },
    /// --public-key.
    Word,
    /// --allowed-signers.
    List,
}

/// A key that may have signed.
pub(crate) struct Suspect<'a> {
    pub(crate) key: &'a VerifyingKey,
    pub(crate) mode: Mode<'a>,
    pub(crate) origin: &'a Origin,
    /// The line of the list that does not allow it to sign this.
    pub(crate) left_out: Option<&'a LeftOut>,
}

/// Tries what people mix up. None where the file or its signature cannot be read: that is said already.
pub(crate) fn advice(
    engine: &Engine,
    args: &Verify,
    file: &Source,
    signature: &Source,
    suspects: &[Suspect<'_>],
) -> Result<Option<Advice>, Failure> {
    let message = match &args.digest {
        Some(Bytes(digest)) => digest.to_vec(),
        None => match file.read_up_to(LONGEST_MESSAGE + 1) {
            Ok(message) => message,
            Err(_) => return Ok(None),
        },
    };
    if message.len() as u64 > LONGEST_MESSAGE {
        let limit = grouped(LONGEST_MESSAGE);
        let sentence =
            format!("nothing was tried: only files of at most {limit} bytes are diagnosed, so try with a small file");
        return Ok(Some(Advice { sentence, command: None }));
    }
    let Ok(bytes) = signature.read_up_to(LONGEST_SIGNATURE) else { return Ok(None) };
    let mut best: Option<(Diagnosis, &Suspect<'_>)> = None;
    for suspect in suspects.iter().take(KEYS) {
        let mode = match (suspect.mode, &args.digest) {
            (Mode::PreHash { context, hash }, Some(_)) => Mode::Digest { context, hash },
            (mode, _) => mode,
        };
        if mode.check(&message).is_err() {
            return Ok(None);
        }
        let found = engine.diagnose(suspect.key, mode, &message, &bytes)?;
        if let Some(found) = found
            && best.as_ref().is_none_or(|(best, _)| found.changes() < best.changes())
        {
            best = Some((found, suspect));
        }
    }
    Ok(Some(match best {
        Some((found, suspect)) => {
            // A command without the list would accept what the key signs after its end.
            let command = match suspect.left_out {
                Some(left_out) if left_out.is_of_another_time() => None,
                _ => command(args, (file, &message), signature, suspect, &found),
            };
            let sentence = match suspect.left_out {
                Some(left_out) if found.changes() == 0 => {
                    format!("signer left out: {left_out}; the signature is that signer's")
                }
                Some(left_out) => format!("signer left out: {left_out}; {found}"),
                None => found.to_string(),
            };
            Advice { sentence, command }
        }
        None => Advice {
            sentence:
                "nothing that was tried fits: another key has signed, another file or context was signed, or one of \
                       them was changed"
                    .into(),
            command: None,
        },
    }))
}

/// A word of a shell's command line.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Whether a name is shown as it is: a command with any other name would lead to another file, or look like another line.
fn is_printable(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains('\n') && PathDisplay(path).to_string() == text)
}

fn path(path: &Path) -> String {
    let text = path.to_string_lossy();
    // A name that looks like an option leads to the file all the same.
    if text.starts_with('-') { word(&format!("./{text}")) } else { word(&text) }
}

fn name(source: &Source) -> String {
    match source {
        Source::Stdin => "-".into(),
        Source::File(file) => path(file),
    }
}

const FROM_HEX: &str = "tr a-f A-F | basenc -d -i --base16";

/// A filter from what is there to what was signed.
fn message_filter(change: MessageChange, message: &[u8]) -> String {
    let digest = |hash: MessageHash| {
        let name = hash.to_string().to_ascii_lowercase().replace("sha2-", "sha").replace('/', "-");
        match hash {
            MessageHash::PreHash(hash @ (PreHash::Shake128 | PreHash::Shake256)) => {
                format!("openssl dgst -{} -xoflen {} -binary", name.replace('-', ""), hash.bytes())
            }
            MessageHash::Sha1 => "openssl dgst -sha1 -binary".into(),
            _ => format!("openssl dgst -{name} -binary"),
        }
    };
    match change {
        MessageChange::LineEndRemoved if message.ends_with(b"\r\n") => "head -c -2".into(),
        MessageChange::LineEndRemoved => "head -c -1".into(),
        MessageChange::LfAdded => "(cat; echo)".into(),
        MessageChange::CrLfAdded => r"(cat; printf '\r\n')".into(),
        MessageChange::ToLf => r"perl -pe 's/\r\n/\n/'".into(),
        MessageChange::ToCrLf => r"perl -pe 's/\r?\n/\r\n/'".into(),
        MessageChange::ByteOrderMarkRemoved => "tail -c +4".into(),
        MessageChange::ByteOrderMarkAdded => r"(printf '\357\273\277'; cat)".into(),
        MessageChange::FromHex => FROM_HEX.into(),
        MessageChange::FromBase64 => "base64 -d -i".into(),
        MessageChange::ToHex => r"od -An -v -tx1 | tr -d ' \n'".into(),
        MessageChange::ToBase64 => "base64 -w 0".into(),
        MessageChange::Empty => "head -c 0".into(),
        MessageChange::ToDigest(hash) => digest(hash),
        MessageChange::ToHexDigest(hash) => format!(r"{} | od -An -v -tx1 | tr -d ' \n'", digest(hash)),
    }
}

/// Whose signature it is.
fn key_words(args: &Verify, suspect: &Suspect<'_>, found: &Diagnosis) -> Option<Vec<String>> {
    let mut words = Vec::new();
    match (&found.key, suspect.origin) {
        (Some((key, KeyChange::Set | KeyChange::PrivateKey)), Origin::File { path: file, is_raw: true }) => {
            words.push(format!("--key {} --set {}", path(file), key.params()));
        }
        (Some((key, _)), _) => words.push(format!("--public-key {}", key.to_base64().ok()?)),
        (None, Origin::File { path: file, is_raw }) => {
            words.push(format!("--key {}", path(file)));
            words.extend(args.of.set.filter(|_| *is_raw).map(|p| format!("--set {p}")));
            words.extend(args.passphrase.path().map(|file| format!("--passphrase-file {}", path(&file))));
        }
        // A list has its own conditions on contexts.
        (None, Origin::List) if found.context.is_none() && args.at.is_none() => {
            words.push(format!("--allowed-signers {}", path(args.allowed_signers.as_deref()?)));
        }
        (None, Origin::List | Origin::Word) => words.push(format!("--public-key {}", suspect.key.to_base64().ok()?)),
    }
    Some(words)
}

/// How the message becomes M'.
fn mode_words(args: &Verify, suspect: &Suspect<'_>, found: &Diagnosis) -> (SignedMode, Vec<String>) {
    let mut words = Vec::new();
    let (requested, context) = match suspect.mode {
        Mode::Pure { context } => (SignedMode::Pure, context),
        Mode::PreHash { context, hash } | Mode::Digest { context, hash } if args.digest.is_some() => {
            (SignedMode::Digest(hash), context)
        }
        Mode::PreHash { context, hash } | Mode::Digest { context, hash } => (SignedMode::PreHash(hash), context),
        Mode::Internal => (SignedMode::Internal, &[][..]),
    };
    let mode = found.mode.unwrap_or(requested);
    match mode {
        SignedMode::Pure => {}
        SignedMode::PreHash(hash) | SignedMode::Digest(hash) => {
            words.push(format!("--prehash {}", word(&hash.to_string())))
        }
        SignedMode::Internal => words.push("--internal".into()),
    }
    let context = found.context.as_deref().unwrap_or(context);
    match str::from_utf8(context) {
        _ if context.is_empty() || mode == SignedMode::Internal => {}
        Ok(text) if !text.starts_with('-') && !text.contains(char::is_control) => {
            words.push(format!("--context {}", word(text)));
        }
        _ => words.push(format!("--context-hex {}", hex::encode(context))),
    }
    (mode, words)
}

/// The command line that verifies it; none where none would do.
fn command(
    args: &Verify,
    (file, message): (&Source, &[u8]),
    signature: &Source,
    suspect: &Suspect<'_>,
    found: &Diagnosis,
) -> Option<String> {
    let files = [file, signature].into_iter().filter_map(|source| match source {
        Source::File(path) => Some(path.as_path()),
        Source::Stdin => None,
    });
    let mut named = files.chain(args.key.iter().map(PathBuf::as_path)).chain(args.allowed_signers.as_deref());
    if !named.all(is_printable) {
        return None;
    }
    let (mode, mode_words) = mode_words(args, suspect, found);
    let mut words = vec!["hypergrove verify".to_owned()];
    words.extend(key_words(args, suspect, found)?);
    words.extend(mode_words);
    // The signature, and what was signed.
    let (signature, file) = match found.signature {
        Some(SignatureChange::Exchanged) => (name(file), name(signature)),
        _ => (name(signature), name(file)),
    };
    let bytes = found.key.as_ref().map_or(suspect.key, |(key, _)| key).params().sig_bytes();
    let filter = match found.signature {
        None | Some(SignatureChange::Exchanged) => None,
        Some(SignatureChange::FromHex) => Some(FROM_HEX.into()),
        Some(SignatureChange::FromBase64) => Some("grep -v -e ----- | base64 -d -i".into()),
        Some(SignatureChange::First) => Some(format!("head -c {bytes}")),
        Some(SignatureChange::Last) => Some(format!("tail -c {bytes}")),
    };
    let (before, signature) = match filter {
        Some(filter) => {
            (format!("set -C; cat {signature} | {filter} > {signature}.bare && "), format!("{signature}.bare"))
        }
        None => (String::new(), signature),
    };
    words.push(format!("--signature {signature}"));
    let source = match &args.digest {
        Some(Bytes(digest)) => format!("printf {} | {FROM_HEX}", hex::encode(digest)),
        None => format!("cat {file}"),
    };
    let last = match (found.message, mode, &args.digest) {
        (_, SignedMode::Digest(_), Some(Bytes(digest))) => format!("--digest {}", hex::encode(digest)),
        (_, SignedMode::Digest(_), None) => format!(r"--digest $({source} | od -An -v -tx1 | tr -d ' \n')"),
        (None, _, None) => file,
        (change, ..) => {
            let filter = change.map_or(String::new(), |change| format!(" | {}", message_filter(change, message)));
            return Some(format!("{before}{source}{filter} | {} -", words.join(" ")));
        }
    };
    words.push(last);
    Some(format!("{before}{}", words.join(" ")))
}
