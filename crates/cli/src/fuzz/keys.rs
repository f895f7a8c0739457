//! Keys of SLH-DSA: PKCS#8, SPKI, PEM, and whatever a file with a key may be.

use super::{Extent, brief, brief_failure, engine};
use crate::args::{KeyKind, Scheme};
use crate::files::Source;
use crate::inspect;
use crate::keys::{Encoding, Key, KeyFile, encode_private, encode_public, recognise};
use crate::schemes::InTool;
use crate::x509::{Document, Inspection};
use hypergrove::pkcs8::der::{Decode, SliceReader, Tag, Tagged};
use hypergrove::pkcs8::{LineEnding, PrivateKeyInfoRef};
use hypergrove::{EncryptedSigningKey, Params, Randomizer, Seeds, SigningKey, SlhDsa, VerifyingKey, known_sets};
use hypergrove_fips205::{SigningKey as RawSigningKey, VerifyingKey as RawVerifyingKey};
use zeroize::Zeroizing;

/// A private key that is read is written, and read again; DER that could be ours is byte for byte what is written.
pub(super) fn pkcs8(data: &[u8], extent: Extent) {
    encrypted(data);
    let key = match RawSigningKey::read_pkcs8(data) {
        Ok(key) => key,
        Err(error) => return brief(&error),
    };
    let document = key.write_pkcs8().expect("the set of a key that was read has an identifier");
    let written = document.as_bytes();
    assert!(RawSigningKey::read_pkcs8(written).expect("what was written") == key);
    // Attributes and a public key are read and not written.
    if PrivateKeyInfoRef::from_der(data).is_ok() && last_tag(data) == Some(Tag::OctetString) {
        assert!(written == data, "DER has one form");
    }
    let pem = document.to_pem("PRIVATE KEY", LineEnding::LF).expect("PEM");
    assert!(RawSigningKey::read_pkcs8(pem.as_bytes()).expect("our PEM") == key);
    if extent == Extent::Use {
        signs(key.into());
    }
}

/// An encrypted key that is read is written, and read again. It is not decrypted, which takes as long as the file says.
fn encrypted(data: &[u8]) {
    match EncryptedSigningKey::read(data) {
        Ok(key) => {
            assert!(EncryptedSigningKey::looks_like_it(data));
            brief(&key);
            let (der, pem) = (key.to_der().expect("DER"), key.to_pem(LineEnding::LF).expect("PEM"));
            assert_eq!(EncryptedSigningKey::read(der.as_bytes()).as_ref(), Ok(&key));
            assert_eq!(EncryptedSigningKey::read(pem.as_bytes()).as_ref(), Ok(&key));
        }
        Err(error) => brief(&error),
    }
}

/// The tag of the last element inside the outermost one.
fn last_tag(der: &[u8]) -> Option<Tag> {
    let outer = hypergrove::pkcs8::der::AnyRef::from_der(der).ok()?;
    let mut reader = SliceReader::new(outer.value()).ok()?;
    let mut last = None;
    while !hypergrove::pkcs8::der::Reader::is_finished(&reader) {
        last = Some(hypergrove::pkcs8::der::AnyRef::decode(&mut reader).ok()?.tag());
    }
    last
}

/// A key signs if its root is that of its seeds, and is refused otherwise. The sets of small signatures, which take a
/// hundred times as long, have no code of their own.
fn signs(key: SigningKey) {
    if !key.params().name.ends_with('f') {
        return;
    }
    let (raw, mode): (&RawSigningKey, _) = (key.as_ref(), key.mode(b"fuzz"));
    let seeds = Seeds {
        sk_seed: raw.sk_seed().to_vec().into(),
        sk_prf: raw.sk_prf().to_vec().into(),
        pk_seed: raw.pk_seed().to_vec(),
    };
    let is_sound = engine().from_seeds(key.params(), &[seeds]).expect("a key")[0].to_bytes() == key.to_bytes();
    match engine().sign(&key, mode, b"message", Randomizer::Deterministic) {
        Ok(signature) => {
            assert!(is_sound, "a key whose root is wrong has signed");
            let valid = engine().verify(&key.verifying_key(), mode, b"message", signature.as_bytes());
            assert_eq!(valid, Ok(true));
        }
        Err(error) => {
            assert!(!is_sound, "{error}");
            brief(&error);
        }
    }
}

/// The same for public keys; no signature of zeros is valid.
pub(super) fn spki(data: &[u8], extent: Extent) {
    let key = match RawVerifyingKey::read_spki(data) {
        Ok(key) => key,
        Err(error) => return brief(&error),
    };
    let document = key.write_spki().expect("the set of a key that was read has an identifier");
    assert_eq!(RawVerifyingKey::read_spki(document.as_bytes()), Ok(key.clone()));
    // Text with PEM in it can be DER of another tag by chance.
    if hypergrove::pkcs8::der::AnyRef::from_der(data).is_ok_and(|outer| outer.tag() == Tag::Sequence) {
        assert!(document.as_bytes() == data, "DER has one form");
    }
    let pem = document.to_pem("PUBLIC KEY", LineEnding::LF).expect("PEM");
    assert_eq!(RawVerifyingKey::read_spki(pem.as_bytes()), Ok(key.clone()));
    if extent == Extent::Use {
        let zeros = vec![0; key.params().sig_bytes()];
        let valid = engine().verify(&VerifyingKey::from(key.clone()), key.mode(b"fuzz"), b"message", &zeros);
        assert_eq!(valid, Ok(false));
    }
}

/// A certificate, a request or CMS that is read is shown; the parts of the first two lie within it.
pub(super) fn x509(data: &[u8], _: Extent) {
    match Document::read(data) {
        Ok(Some((document, ..))) => {
            let Inspection { known, lists, parts } = document.shown();
            assert!(parts.iter().all(|(_, offset, length)| offset + length <= data.len()), "a part beyond the end");
            let fields = known.iter().chain(lists.iter().flat_map(|(_, list)| list.iter().flatten()));
            fields.for_each(|(_, value)| brief(value));
        }
        Ok(None) => {}
        Err(failure) => brief_failure(&failure),
    }
}

/// The first byte chooses what the user says of the set or the scheme, the others are the file.
pub(super) fn key_file(data: &[u8], _: Extent) {
    let Some((choice, data)) = data.split_first() else { return };
    let set = known_sets().nth(usize::from(*choice));
    let file = KeyFile { source: Source::Stdin, bytes: Zeroizing::new(data.to_vec()), passphrase: None };
    let scheme = match choice {
        0xfd => Some(Scheme::SlhDsa),
        0xfe => Some(Scheme::ZkDilithium),
        _ => None,
    };
    match inspect::report(&file, &KeyKind { set, scheme }, false) {
        Ok(report) => {
            assert!(report.bytes <= data.len());
            assert!(report.parts.iter().all(|part| part.offset + part.length <= report.bytes), "a part beyond the end");
            serde_json::to_string(&report).expect("a report has a form in JSON");
        }
        Err(failure) => brief_failure(&failure),
    }
    match SlhDsa::read(&file, set) {
        Ok(found) => {
            assert!(found.bytes.len() <= data.len());
            assert!(set.is_none_or(|set| set == found.key.params()));
            let again = [Encoding::Pem, Encoding::Der, Encoding::Raw].into_iter().filter(|encoding| {
                // Toy sets and drafts have raw keys alone.
                found.key.params().oid().is_some() || *encoding == Encoding::Raw
            });
            again.for_each(|encoding| is_same(&found.key, encoding));
        }
        Err(failure) => brief_failure(&failure),
    }
}

/// What is written in this encoding is read as the same key.
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
