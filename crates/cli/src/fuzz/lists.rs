//! Lists of files, of sums and of signers.

use super::{Extent, brief, brief_failure};
use crate::files::{Source, listed};
use crate::hash::{Form, Listed, line, read_sums};
use hypergrove::Mode;
use hypergrove::signers::{AllowedSigner, AllowedSigners};
use std::time::SystemTime;

/// What a list names is written and read again, in every form.
pub(super) fn lists(data: &[u8], _: Extent) {
    sums(data);
    paths(data);
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
        let entries: Vec<&Listed> = listed.iter().filter(|entry| !entry.path.as_os_str().is_empty()).collect();
        let form = Form { tag, binary, zero: false };
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
    let paths = match listed(&Source::Stdin, data) {
        Ok(paths) => paths,
        Err(failure) => return brief_failure(&failure),
    };
    let text: Vec<u8> = paths.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"].concat()).collect();
    // The CR of a list whose lines all end with CR LF is no part of a name.
    if text.split(|byte| *byte == b'\n').any(|line| !line.is_empty() && !line.ends_with(b"\r")) {
        assert_eq!(listed(&Source::Stdin, &text).map_err(|failure| failure.message), Ok(paths));
    }
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
