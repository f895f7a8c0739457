//! `hypergrove passwd`.

use crate::args::{self, Encoding, Passwd, Scheme};
use crate::files::{Access, Replace, Source, Target};
use crate::keys::{Key, KeyFile, recognise};
use crate::passphrase::PassphraseOptions;
use crate::schemes::InTool;
use hypergrove::SlhDsa;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer};
use hypergrove_pem::{is_pem, is_sequence};
use std::fs;
use std::path::Path;
use zeroize::Zeroizing;

pub(crate) fn run(args: &Passwd, printer: &Printer) -> Result<Exit, Failure> {
    let passphrases = [args.passphrase.path(), args.new_passphrase_file.clone()];
    args::one_stdin(passphrases.iter().flatten().map(AsRef::as_ref))?;
    // The file that a link leads to is changed, not the link.
    let path = fs::canonicalize(&args.key).map_err(|error| Failure::io("read", PathDisplay(&args.key), &error))?;
    let source = Source::File(args.key.clone());
    // Not by the name of a link, which may lead elsewhere by now.
    let read = || Source::File(path.clone()).read_key("a key or a certificate");
    let file = KeyFile::new(source.clone(), read()?, Some(&args.passphrase));
    if file.scheme(&args::KeyKind { set: None, scheme: None })? == Scheme::ZkDilithium {
        return Err(Failure::new(format!("{source} is a key of zkDilithium, which has no encrypted form"))
            .hint("encrypt the file with another program"));
    }
    if !is_pem(&file.bytes) && !is_sequence(&file.bytes) {
        return Err(Failure::new(format!(
            "{source} is neither PEM nor DER, and no other file of a key has a passphrase"
        ))
        .hint("name a private key that `keygen` wrote without --raw"));
    }
    let found = SlhDsa::read(&file, None)?;
    let Key::Private(key) = &found.key else {
        return Err(Failure::new(format!("{source} is a public key, which has no passphrase"))
            .hint("name the file of the private key"));
    };
    if args.remove && found.encryption.is_none() {
        return Err(Failure::new(format!("{source} has no passphrase")).hint("leave --remove out to set one"));
    }
    let new = PassphraseOptions::of_file(args.new_passphrase_file.clone());
    let new = (!args.remove).then(|| new.choose(&source)).transpose()?;
    let block = SlhDsa::encode_private(key, found.encoding, new.as_ref().map(|new| (&new[..], args.kdf)))?;
    let bytes = if found.encoding == Encoding::Pem { spliced(&file.bytes, &block) } else { block };
    // Whoever loses the old file keeps the key: what is written is read first.
    let written = recognise(&bytes, None, || Ok(new.clone().unwrap_or_default()))?;
    if !matches!(&written.key, Key::Private(written) if written == key) {
        return Err(Failure::new(format!("{source} cannot be written anew: its text would hold another key"))
            .hint("put the private key alone into a file"));
    }
    // Whoever types a passphrase takes a while, and another run may have made a new key meanwhile.
    if *read()? != *file.bytes {
        return Err(Failure::new(format!("{source} was changed by another program meanwhile, and stays as it is now"))
            .hint("run the command again"));
    }
    replace(&path, &bytes, printer)?;
    let done = match (&found.encryption, &new) {
        (_, None) => "has no passphrase any more",
        (None, Some(_)) => "is encrypted now",
        (Some(_), Some(_)) => "has a new passphrase",
    };
    printer.note(format_args!("{source} {done}; copies of the old file are as they were"));
    Ok(Exit::Good)
}

/// The text with this block in place of that of its private key. All other lines are kept.
fn spliced(text: &[u8], block: &[u8]) -> Zeroizing<Vec<u8>> {
    let is = |line: &[u8], begins: &str| {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        let label = line.strip_prefix(begins.as_bytes());
        label.is_some_and(|label| [&b"PRIVATE KEY-----"[..], b"ENCRYPTED PRIVATE KEY-----"].contains(&label))
    };
    // All at once: a buffer that grows would leave copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() + block.len()));
    let mut is_inside = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if is(line, "-----BEGIN ") {
            is_inside = true;
            bytes.extend_from_slice(block);
        }
        if !is_inside {
            bytes.extend_from_slice(line);
        }
        is_inside &= !is(line, "-----END ");
    }
    bytes
}

/// Replaces a file by these bytes, all of them or none. Its owner and its mode stay.
fn replace(path: &Path, bytes: &[u8], printer: &Printer) -> Result<(), Failure> {
    let target = Target::File(path.into());
    let there = fs::metadata(path).map_err(|error| Failure::io("read", &target, &error))?;
    let prepared = target.prepare(bytes, Access::Private, Replace::ANYTHING)?;
    prepared.resemble(&there)?;
    prepared.commit(printer)
}
