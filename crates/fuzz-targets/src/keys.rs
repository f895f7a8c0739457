//! Keys of SLH-DSA: PKCS#8, SPKI, PEM.

use crate::checks::{Extent, brief, engine, read};
use hypergrove::pkcs8::der::{Decode, SliceReader, Tag, Tagged};
use hypergrove::pkcs8::{LineEnding, PrivateKeyInfoRef};
use hypergrove::{EncryptedSigningKey, Randomizer, Seeds, SigningKey, VerifyingKey};
use hypergrove_fips205::{SigningKey as RawSigningKey, VerifyingKey as RawVerifyingKey};

/// A private key that is read is written, and read again; DER that could be ours is byte for byte what is written.
pub(super) fn pkcs8(data: &[u8], extent: Extent) {
    encrypted(data);
    let Some(key) = read(RawSigningKey::read_pkcs8(data)) else { return };
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
    let Some(key) = read(EncryptedSigningKey::read(data)) else { return };
    assert!(EncryptedSigningKey::looks_like_it(data));
    brief(&key);
    let (der, pem) = (key.to_der().expect("DER"), key.to_pem(LineEnding::LF).expect("PEM"));
    // Without the public key that may have been with it.
    let again = EncryptedSigningKey::read(der.as_bytes()).expect("our DER");
    assert_eq!(again.to_der().expect("DER").as_bytes(), der.as_bytes());
    assert_eq!(EncryptedSigningKey::read(pem.as_bytes()), Ok(again));
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

/// A public key that is read is written, and read again; no signature of zeros is valid.
pub(super) fn spki(data: &[u8], extent: Extent) {
    let Some(key) = read(RawVerifyingKey::read_spki(data)) else { return };
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
