//! Lists of files, of sums and of signers.

use super::{Extent, brief, brief_failure};
use crate::files::{Source, listed};
use crate::hash::{LineFormat, SumLine, line, read_sums};
use crate::table::{self, Row};
use hypergrove::Mode;
use hypergrove_files::envelope::{Envelope, looks_like_it};
use hypergrove_files::manifest::Manifest;
use hypergrove_files::signers::{AllowedSigner, AllowedSigners};
use hypergrove_files::text::{Position, private_key};
use std::path::Component;
use std::time::SystemTime;

/// What a list names is written and read again, in every form.
pub(super) fn lists(data: &[u8], _: Extent) {
    sums(data);
    paths(data);
    manifest(data);
    rows(data);
    private(data);
    ledger(data);
}

/// Two records of a ledger.
fn ledger(data: &[u8]) {
    use hypergrove_files::ledger::LedgerState;
    match LedgerState::from_bytes(data) {
        Ok(state) => assert_eq!(LedgerState::from_bytes(&state.to_bytes()).ok(), Some(state)),
        Err(error) => brief(&error),
    }
}

fn manifest(data: &[u8]) {
    let manifest = match Manifest::parse(data) {
        Ok(manifest) => manifest,
        Err(error) => return brief(&error),
    };
    assert!(
        manifest
            .entries()
            .iter()
            .all(|entry| entry.path().components().all(|part| matches!(part, Component::Normal(_))))
    );
    let again = Manifest::parse(&manifest.to_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, manifest);
}

/// A private key that is found lies in the text.
fn private(data: &[u8]) {
    let Some(Position { line, column }) = private_key(data) else { return };
    let found = data.split(|byte| *byte == b'\n').nth(line - 1).expect("a line of the text");
    assert!((1..=found.len()).contains(&column), "column {column} of {} bytes", found.len());
}

fn rows(data: &[u8]) {
    let rows = match table::rows(&Source::Stdin, data) {
        Ok(rows) => rows,
        Err(failure) => return brief_failure(&failure),
    };
    let text =
        |row: &Row| [&row.key, &row.file, &row.signature].map(|path| path.as_os_str().as_encoded_bytes()).join(&b'\t');
    // After an empty line, a byte order mark is part of a name.
    let lines: Vec<Vec<u8>> = std::iter::once(Vec::new()).chain(rows.iter().map(text)).collect();
    let again = table::rows(&Source::Stdin, &lines.join(&b'\n')).unwrap_or_else(|why| panic!("{}", why.message));
    assert_eq!(again.len(), rows.len());
}

fn sums(data: &[u8]) {
    let (listed, improper) = match read_sums(&Source::Stdin, data) {
        Ok(read) => read,
        Err(failure) => return brief_failure(&failure),
    };
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(listed.len() + improper.len() <= lines && improper.iter().all(|number| (1..=lines).contains(number)));
    for (tag, binary) in [(false, false), (false, true), (true, false)] {
        // No file has an empty name.
        let entries: Vec<&SumLine> = listed.iter().filter(|entry| !entry.path.as_os_str().is_empty()).collect();
        let form = LineFormat { tag, binary, zero: false };
        let text: Vec<u8> = entries.iter().flat_map(|entry| line(&entry.path, &entry.digest, form)).collect();
        let (again, improper) = read_sums(&Source::Stdin, &text).unwrap_or_else(|why| panic!("{}", why.message));
        assert!(
            improper.is_empty() && again.iter().eq(entries),
            "{:?} is read otherwise",
            String::from_utf8_lossy(&text)
        );
    }
}

fn paths(data: &[u8]) {
    let paths = match listed(&Source::Stdin, data, false) {
        Ok(paths) => paths,
        Err(failure) => return brief_failure(&failure),
    };
    // After an empty line, a byte order mark is part of a name.
    let lines = paths.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"].concat());
    let text: Vec<u8> = std::iter::once(b'\n').chain(lines).collect();
    // The CR of a list whose lines all end with CR LF is no part of a name.
    if text.split(|byte| *byte == b'\n').any(|line| !line.is_empty() && !line.ends_with(b"\r")) {
        assert_eq!(listed(&Source::Stdin, &text, false).map_err(|failure| failure.message), Ok(paths));
    }
}

/// An envelope that is read is written in one way.
pub(super) fn envelope(data: &[u8], _: Extent) {
    let envelope = match Envelope::parse(data) {
        Ok(envelope) => envelope,
        Err(error) => return brief(&error),
    };
    let text = envelope.to_string();
    assert_eq!(Envelope::parse(text.as_bytes()).as_ref(), Ok(&envelope), "{text}");
    assert!(text.contains(&envelope.header().to_string()) && looks_like_it(text.as_bytes()));
}

/// Who may sign by what is read is a signer without conditions where only names and keys are written again.
pub(super) fn signers(data: &[u8], _: Extent) {
    let signers = match AllowedSigners::parse(data) {
        Ok(signers) => signers,
        Err(error) => return brief(&error),
    };
    assert!(signers.iter().count() <= data.split(|byte| *byte == b'\n').count());
    let line =
        |signer: &AllowedSigner| format!("{} {}\n", signer.name(), signer.key().to_base64().expect("it was read"));
    let text: String = signers.iter().map(line).collect();
    let again = AllowedSigners::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(again.iter().all(|signer| signer.may_sign(Mode::Internal, SystemTime::UNIX_EPOCH)));
    let named = |signers: &AllowedSigners| signers.iter().map(line).collect::<Vec<_>>();
    assert_eq!(named(&again), named(&signers));
}
