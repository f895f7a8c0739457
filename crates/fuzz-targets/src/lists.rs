//! Envelopes, lists of signers, manifests, ledgers, and private keys in texts.

use crate::checks::{Extent, read};
use hypergrove::Mode;
use hypergrove_files::envelope::{Envelope, looks_like_it};
use hypergrove_files::ledger::LedgerState;
use hypergrove_files::manifest::Manifest;
use hypergrove_files::signers::{AllowedSigner, AllowedSigners};
use hypergrove_files::text::{Position, private_key};
use std::path::Component;
use std::time::SystemTime;

/// Lists that are read are written and read again: manifests and ledgers. A private key in a text is found in its place.
pub fn lists(data: &[u8]) {
    manifest(data);
    private(data);
    ledger(data);
}

/// Two records of a ledger.
fn ledger(data: &[u8]) {
    let Some(state) = read(LedgerState::from_bytes(data)) else { return };
    assert_eq!(LedgerState::from_bytes(&state.to_bytes()).ok(), Some(state));
}

fn manifest(data: &[u8]) {
    let Some(manifest) = read(Manifest::parse(data)) else { return };
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

/// An envelope that is read is written in one way.
pub(super) fn envelope(data: &[u8], _: Extent) {
    let Some(envelope) = read(Envelope::parse(data)) else { return };
    let text = envelope.to_string();
    assert_eq!(Envelope::parse(text.as_bytes()).as_ref(), Ok(&envelope), "{text}");
    assert!(text.contains(&envelope.header().to_string()) && looks_like_it(text.as_bytes()));
}

/// Who may sign by what is read is a signer without conditions where only names and keys are written again.
pub(super) fn signers(data: &[u8], _: Extent) {
    let Some(signers) = read(AllowedSigners::parse(data)) else { return };
    assert!(signers.iter().count() <= data.split(|byte| *byte == b'\n').count());
    let line =
        |signer: &AllowedSigner| format!("{} {}\n", signer.name(), signer.key().to_base64().expect("it was read"));
    let text: String = signers.iter().map(line).collect();
    let again = AllowedSigners::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(again.iter().all(|signer| signer.may_sign(Mode::Internal, SystemTime::UNIX_EPOCH)));
    let named = |signers: &AllowedSigners| signers.iter().map(line).collect::<Vec<_>>();
    assert_eq!(named(&again), named(&signers));
}
