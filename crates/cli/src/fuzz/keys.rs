//! Files of keys and certificates, as the tool recognises them.

use crate::args::{Encoding, KeyKind, Scheme};
use crate::files::Source;
use crate::inspect;
use crate::keys::{Key, KeyFile, encode_private, encode_public, recognise};
use crate::schemes::InTool;
use crate::x509::{Document, Inspection};
use clap::ValueEnum;
use hypergrove::{Params, SlhDsa, known_sets};
use hypergrove_fuzz_targets::{Extent, brief, of_tool};
use zeroize::Zeroizing;

/// A certificate, a request or CMS that is read is shown; the parts of the first two lie within it.
pub(super) fn x509(data: &[u8], _: Extent) {
    let Some((document, ..)) = of_tool(Document::read(data)).flatten() else { return };
    let Inspection { known, lists, parts } = document.shown();
    assert!(parts.iter().all(|(_, offset, length)| offset + length <= data.len()), "a part beyond the end");
    let fields = known.iter().chain(lists.iter().flat_map(|(_, list)| list.iter().flatten()));
    fields.for_each(|(_, value)| brief(value));
}

/// The first byte chooses what the user says of the set or the scheme, the others are the file.
pub(super) fn key_file(data: &[u8], _: Extent) {
    let Some((choice, data)) = data.split_first() else { return };
    let set = known_sets().nth(usize::from(*choice));
    let file = KeyFile::new(Source::Stdin, Zeroizing::new(data.to_vec()), None);
    // The numbers from 0xfd on are schemes.
    let scheme = choice.checked_sub(0xfd).and_then(|number| Scheme::value_variants().get(usize::from(number))).copied();
    if let Some(report) = of_tool(inspect::report(&file, &KeyKind { set, scheme }, false)) {
        assert!(report.bytes <= data.len());
        assert!(report.parts.iter().all(|part| part.offset + part.length <= report.bytes), "a part beyond the end");
        serde_json::to_string(&report).expect("a report has a form in JSON");
    }
    if let Some(found) = of_tool(SlhDsa::read(&file, set)) {
        assert!(found.bytes.len() <= data.len());
        assert!(set.is_none_or(|set| set == found.key.params()));
        let again = [Encoding::Pem, Encoding::Der, Encoding::Raw].into_iter().filter(|encoding| {
            // Toy sets and drafts have raw keys alone.
            found.key.params().oid().is_some() || *encoding == Encoding::Raw
        });
        again.for_each(|encoding| is_same(&found.key, encoding));
    }
}

/// A key is the same after it is written in this encoding and read.
fn is_same(key: &Key, encoding: Encoding) {
    let params: &'static Params = key.params();
    let read = |bytes: &[u8]| {
        recognise(bytes, Some(params), || unreachable!()).unwrap_or_else(|failure| panic!("{}", failure.message))
    };
    match key {
        Key::Private(key) => {
            let found = read(&encode_private(key, encoding).expect("it has this encoding"));
            assert!(found.encoding == encoding && matches!(found.key, Key::Private(again) if again == *key));
        }
        Key::Public(key) => {
            let found = read(&encode_public(key, encoding).expect("it has this encoding"));
            assert!(found.encoding == encoding && matches!(found.key, Key::Public(again) if again == *key));
        }
    }
}
