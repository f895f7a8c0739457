//! Keys in files: what others wrote is read, what is written is the same again, and what is wrong is refused.
#![cfg(feature = "pkcs8")]

use hypergrove_fips205::VerifyingKey;
use hypergrove_fips205::reference::{hash_slh_verify, pk_root, slh_verify};
use hypergrove_fips205::{
    KeyError, MessageError, Mode, PARAMETER_SETS, Params, PreHash, SLH_DSA_SHA2_128_24, SLH_DSA_SHA2_128S,
    SLH_DSA_SHAKE_256F, SigningKey,
};
use hypergrove_testkit::forms::forms;
use hypergrove_testkit::vectors;
use pkcs8::der::pem;
use pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, LineEnding, ObjectIdentifier};

/// One element of BER, of definite or indefinite length.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    whole: &'a [u8],
    content: &'a [u8],
}

impl<'a> Element<'a> {
    /// The element at the start, and what follows it.
    fn first(bytes: &'a [u8]) -> (Element<'a>, &'a [u8]) {
        let (tag, first) = (bytes[0], bytes[1]);
        if first == 0x80 {
            let mut rest = &bytes[2..];
            while !rest.starts_with(&[0, 0]) {
                rest = Element::first(rest).1;
            }
            let end = bytes.len() - rest.len();
            return (Element { tag, whole: &bytes[..end + 2], content: &bytes[2..end] }, &rest[2..]);
        }
        let more = if first > 0x80 { usize::from(first & 0x7f) } else { 0 };
        let long = bytes[2..2 + more].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let (start, length) = (2 + more, if more > 0 { long } else { usize::from(first) });
        let (whole, rest) = bytes.split_at(start + length);
        (Element { tag, whole, content: &whole[start..] }, rest)
    }
    fn of(bytes: &'a [u8]) -> Element<'a> {
        let (element, rest) = Element::first(bytes);
        assert!(rest.is_empty());
        element
    }
    fn children(self) -> Vec<Element<'a>> {
        let (mut children, mut rest) = (Vec::new(), self.content);
        while !rest.is_empty() {
            let (child, after) = Element::first(rest);
            children.push(child);
            rest = after;
        }
        children
    }
    fn child(self, i: usize) -> Element<'a> {
        self.children()[i]
    }
}

/// The signed part of an X.509 certificate, its SPKI, its signature algorithm's identifier and its signature.
fn certificate(der: &[u8]) -> (&[u8], &[u8], &[u8], &[u8]) {
    let parts = Element::of(der).children();
    let (tbs, signature) = (parts[0], parts[2]);
    assert_eq!((signature.tag, signature.content[0]), (3, 0));
    (tbs.whole, tbs.child(6).whole, parts[1].content, &signature.content[1..])
}

/// DER of the identifier, as an algorithm identifier without parameters holds it.
fn oid_der(p: &Params) -> Vec<u8> {
    [&[6, 9][..], p.oid().unwrap().as_bytes()].concat()
}

fn pem_to_der(text: &[u8]) -> Vec<u8> {
    pem::decode_vec(text).unwrap().1
}

#[test]
fn rfc9909_example() {
    let Some(files) = vectors::rfc9909() else { return };
    let key = SigningKey::read_pkcs8(&files.private_key).unwrap();
    assert_eq!(key.params(), &SLH_DSA_SHA2_128S);
    assert_eq!(pk_root(key.params(), key.sk_seed(), key.pk_seed()), key.pk_root());
    assert_eq!(key.to_pkcs8_der().unwrap().as_bytes(), pem_to_der(&files.private_key));
    assert_eq!(key.to_pkcs8_pem(LineEnding::LF).unwrap().as_bytes(), files.private_key);
    let public = VerifyingKey::read_spki(&files.public_key).unwrap();
    assert_eq!(public, key.verifying_key());
    assert_eq!(public.to_public_key_pem(LineEnding::LF).unwrap().as_bytes(), files.public_key);
    let der = pem_to_der(&files.certificate);
    let (signed, spki, algorithm, signature) = certificate(&der);
    assert_eq!(VerifyingKey::read_spki(spki).unwrap(), public);
    assert_eq!(algorithm, oid_der(public.params()));
    assert!(slh_verify(signed, signature, b"", &public));
}

#[test]
fn openssl_trust_anchors() {
    let Some(anchors) = vectors::openssl_trust_anchors() else { return };
    assert_eq!(anchors.len(), 12);
    for anchor in anchors {
        let p = anchor.params;
        let key = SigningKey::from_pkcs8_der(&anchor.private_key).unwrap();
        assert_eq!(key.params(), p);
        assert_eq!(key.to_pkcs8_der().unwrap().as_bytes(), anchor.private_key, "{p}");
        let (signed, spki, algorithm, signature) = certificate(&anchor.certificate);
        let public = VerifyingKey::from_public_key_der(spki).unwrap();
        assert_eq!(public, key.verifying_key(), "{p}");
        assert_eq!(public.to_public_key_der().unwrap().as_bytes(), spki, "{p}");
        assert_eq!(algorithm, oid_der(p));
        assert!(slh_verify(signed, signature, b"", &public), "{p}");
        assert!(!slh_verify(&signed[1..], signature, b"", &public), "{p}");
    }
}

/// The signed attributes are signed as a SET, whatever tag they are sent with (RFC 5652, 5.4).
#[test]
fn cms_signed_attributes() {
    let Some(messages) = vectors::cms() else { return };
    assert_eq!(messages.len(), 36);
    for cms in messages {
        let signed_data = Element::of(&cms.message).child(1).child(0).children();
        let certificates = signed_data.iter().find(|element| element.tag == 0xa0).unwrap();
        let spki = certificates.child(0).child(0).child(6);
        let signer = signed_data.last().unwrap().child(0).children();
        let (attributes, signature) = (signer[3], signer[5]);
        assert_eq!((attributes.tag, signature.tag), (0xa0, 4));
        let signed = [&[0x31], &attributes.whole[1..]].concat();
        match cms.hash {
            None => {
                let key = VerifyingKey::read_spki(spki.whole).unwrap();
                assert_eq!(key.params(), cms.params, "{}", cms.name);
                assert!(slh_verify(&signed, signature.content, b"", &key), "{}", cms.name);
            }
            Some(hash) => {
                let key = VerifyingKey::read_spki(spki.whole).unwrap();
                assert_eq!((key.params(), key.prehash()), (cms.params, Some(hash)), "{}", cms.name);
                assert_eq!(key.write_spki().unwrap().as_bytes(), spki.whole, "{}", cms.name);
                assert!(hash_slh_verify(&signed, signature.content, b"", hash, &key), "{}", cms.name);
            }
        }
    }
}

fn some_key(p: &'static Params) -> SigningKey {
    SigningKey::from_bytes(p, &(0..p.sk_bytes()).map(|i| (i * 7 + 1) as u8).collect::<Vec<_>>()).unwrap()
}

fn assigned() -> impl Iterator<Item = &'static Params> {
    PARAMETER_SETS.iter().copied()
}

#[test]
fn identifiers_are_those_of_rfc_9909() {
    assert_eq!(assigned().count(), 12);
    for (name, arc) in [("SLH-DSA-SHA2-128s", 20), ("SLH-DSA-SHA2-256f", 25), ("SLH-DSA-SHAKE-128s", 26)] {
        let oid = ObjectIdentifier::new(&format!("2.16.840.1.101.3.4.3.{arc}")).unwrap();
        assert_eq!(name.parse::<&Params>().unwrap().oid(), Some(oid));
        assert_eq!(Params::by_oid(oid).unwrap().name, name);
    }
    for other in ["2.16.840.1.101.3.4.3.17", "2.16.840.1.101.3.4.3.35", "2.16.840.1.101.3.4.3", "1.3.101.112"] {
        assert_eq!(Params::by_oid(ObjectIdentifier::new_unwrap(other)), None);
    }
}

/// A key of HashSLH-DSA is another key: it has an identifier of its own, and one mode.
#[test]
fn keys_of_hash_slh_dsa_imply_their_hash() {
    for (name, arc, hash) in [
        ("SLH-DSA-SHA2-128s", 35, PreHash::Sha256),
        ("SLH-DSA-SHA2-192s", 37, PreHash::Sha512),
        ("SLH-DSA-SHA2-256f", 40, PreHash::Sha512),
        ("SLH-DSA-SHAKE-128f", 42, PreHash::Shake128),
        ("SLH-DSA-SHAKE-256f", 46, PreHash::Shake256),
    ] {
        let pure = some_key(name.parse().unwrap());
        let key = pure.clone().into_hash_slh_dsa();
        let public = key.verifying_key();
        assert_eq!((key.prehash(), public.prehash(), pure.prehash()), (Some(hash), Some(hash), None));
        assert!(key != pure && public != pure.verifying_key() && public == pure.verifying_key().into_hash_slh_dsa());
        let oid = ObjectIdentifier::new(&format!("2.16.840.1.101.3.4.3.{arc}")).unwrap();
        assert_eq!(public.params().hash_oid(), Some(oid));
        let spki = public.write_spki().unwrap();
        assert!(spki.as_bytes().windows(9).any(|bytes| bytes == oid.as_bytes()));
        assert_eq!(VerifyingKey::read_spki(spki.as_bytes()), Ok(public.clone()));
        assert_eq!(SigningKey::read_pkcs8(key.write_pkcs8().unwrap().as_bytes()), Ok(key.clone()));
        let (context, other) = (&b"c"[..], PreHash::Sha3_256);
        assert_eq!(key.mode(context), Mode::PreHash { context, hash });
        assert_eq!(pure.mode(context), Mode::Pure { context });
        let refused = Err(MessageError::KeyHash { hash });
        for mode in [Mode::PreHash { context, hash }, Mode::Digest { context, hash }] {
            assert_eq!((key.check_mode(mode), public.check_mode(mode)), (Ok(()), Ok(())));
        }
        for mode in [Mode::Pure { context }, Mode::Internal, Mode::PreHash { context, hash: other }] {
            assert_eq!((key.check_mode(mode), public.check_mode(mode)), (refused, refused));
            assert_eq!(pure.check_mode(mode), Ok(()));
        }
    }
}

#[test]
fn every_set_comes_back() {
    for key in assigned().flat_map(|p| [some_key(p), some_key(p).into_hash_slh_dsa()]) {
        let public = key.verifying_key();
        let (private_der, public_der) = (key.write_pkcs8().unwrap(), public.write_spki().unwrap());
        assert_eq!(SigningKey::read_pkcs8(private_der.as_bytes()).unwrap(), key);
        assert_eq!(SigningKey::from_pkcs8_der(private_der.as_bytes()).unwrap(), key);
        assert_eq!(VerifyingKey::read_spki(public_der.as_bytes()).unwrap(), public);
        let (private_pem, public_pem) =
            (key.to_pkcs8_pem(LineEnding::LF).unwrap(), public.to_public_key_pem(LineEnding::LF).unwrap());
        assert_eq!(SigningKey::read_pkcs8(private_pem.as_bytes()).unwrap(), key);
        assert_eq!(SigningKey::from_pkcs8_pem(&private_pem).unwrap(), key);
        assert_eq!(VerifyingKey::read_spki(public_pem.as_bytes()).unwrap(), public);
        assert_eq!(VerifyingKey::from_public_key_pem(&public_pem).unwrap(), public);
        // A comment before and line ends of another system are fine.
        let sloppy = format!("0 a comment\r\n{}", public_pem.replace('\n', "\r\n"));
        assert_eq!(VerifyingKey::read_spki(sloppy.as_bytes()).unwrap(), public);
    }
}

#[test]
fn sets_without_identifier_are_named() {
    let key = some_key(&hypergrove_testkit::toys::TOY_SHA2_16);
    let error = key.write_pkcs8().unwrap_err();
    assert_eq!(error, KeyError::NoOid { set: "toy-SHA2-16" });
    assert!(error.to_string().starts_with("toy-SHA2-16 has no object identifier"));
    assert_eq!(key.verifying_key().write_spki().unwrap_err(), error);
    assert!(key.to_pkcs8_der().is_err() && key.verifying_key().to_public_key_der().is_err());
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = match content.len() {
        short @ 0..=127 => vec![short as u8],
        long @ 128..=255 => vec![0x81, long as u8],
        longer => [&[0x82][..], &(longer as u16).to_be_bytes()].concat(),
    };
    [&[tag][..], &length, &content].concat()
}

/// SEQUENCE { INTEGER version, SEQUENCE algorithm, OCTET STRING key, rest }.
fn pkcs8(version: u8, algorithm: &[u8], key: &[u8], rest: &[u8]) -> Vec<u8> {
    tlv(0x30, &[&[2, 1, version], &tlv(0x30, &[algorithm]), &tlv(4, &[key]), rest])
}

#[test]
fn wrong_private_keys_are_refused() {
    for p in [&SLH_DSA_SHA2_128S, &SLH_DSA_SHAKE_256F] {
        let key = some_key(p);
        let (raw, oid) = (key.to_bytes(), oid_der(p));
        let good = pkcs8(0, &oid, &raw, &[]);
        assert_eq!(key.write_pkcs8().unwrap().as_bytes(), good);
        let refused = |der: &[u8]| {
            assert!(SigningKey::from_pkcs8_der(der).is_err());
            SigningKey::read_pkcs8(der).unwrap_err()
        };
        let length = |got| KeyError::Length { what: "a private key", set: p.name, want: p.sk_bytes(), got };
        let is_malformed = |error| matches!(error, KeyError::Malformed { what: "a PKCS#8 private key", .. });

        assert_eq!(refused(&pkcs8(0, &oid, &raw[1..], &[])), length(4 * p.n - 1));
        assert_eq!(refused(&pkcs8(0, &oid, &[&raw[..], &[0]].concat(), &[])), length(4 * p.n + 1));
        assert_eq!(refused(&pkcs8(0, &oid, &[], &[])), length(0));
        let wrapped = tlv(4, &[&raw]);
        assert!(
            refused(&pkcs8(0, &oid, &wrapped, &[])).to_string().contains("its field `privateKey` holds the key within")
        );
        assert_eq!(refused(&pkcs8(0, &[&oid[..], &[5, 0]].concat(), &raw, &[])), KeyError::Parameters { set: p.name });

        let mut other = oid.clone();
        *other.last_mut().unwrap() = 17;
        assert_eq!(
            refused(&pkcs8(0, &other, &raw, &[])),
            KeyError::UnknownOid { oid: "2.16.840.1.101.3.4.3.17".into() }
        );

        assert!(is_malformed(refused(&[&good[..], &[0]].concat())));
        assert!(is_malformed(refused(&pkcs8(0, &oid, &raw, &[5, 0]))));
        assert!(is_malformed(refused(&pkcs8(2, &oid, &raw, &[]))));
        for end in 0..good.len() {
            assert!(is_malformed(refused(&good[..end])), "the first {end} bytes");
        }
    }
}

/// The errors of `pkcs8` and `spki` say as much as they can.
#[test]
fn errors_of_the_traits_are_the_nearest() {
    use pkcs8::{Error, KeyError as Key, spki};
    let p = &SLH_DSA_SHA2_128S;
    let (bytes, good) = (some_key(p).to_bytes(), oid_der(p));
    let private =
        |algorithm: &[u8], key: &[u8]| SigningKey::from_pkcs8_der(&pkcs8(0, algorithm, key, &[])).unwrap_err();
    let ed25519 = ObjectIdentifier::new_unwrap("1.3.101.112");
    let of_ed25519 = tlv(6, &[ed25519.as_bytes()]);
    let unknown = spki::Error::OidUnknown { oid: ed25519 };
    assert_eq!(private(&of_ed25519, &bytes), Error::PublicKey(unknown));
    assert_eq!(private(&[&good[..], &[5, 0]].concat(), &bytes), Error::ParametersMalformed);
    assert_eq!(private(&good, &bytes[1..]), Error::from(Key::TooShort));
    assert_eq!(private(&good, &[&bytes[..], &[0]].concat()), Error::from(Key::TooLong));
    let draft = some_key(&SLH_DSA_SHA2_128_24);
    assert_eq!(draft.to_pkcs8_der().unwrap_err(), Error::from(Key::Invalid));
    let public = |algorithm: &[u8], key: &[u8]| {
        VerifyingKey::from_public_key_der(&tlv(0x30, &[&tlv(0x30, &[algorithm]), &tlv(3, &[&[0], key])])).unwrap_err()
    };
    assert_eq!(public(&of_ed25519, &bytes[..32]), unknown);
    assert_eq!(public(&good, &bytes[..33]), spki::Error::KeyMalformed);
}

#[test]
fn a_public_key_with_the_private_key_must_be_its_own() {
    let p = &SLH_DSA_SHA2_128S;
    let key = some_key(p);
    let (raw, oid, public) = (key.to_bytes(), oid_der(p), key.verifying_key().to_bytes());
    let with_public = |version, unused: u8, public: &[u8]| {
        let field = tlv(0x81, &[&[unused], public]);
        SigningKey::read_pkcs8(&pkcs8(version, &oid, &raw, &field))
    };
    assert_eq!(with_public(1, 0, &public), Ok(key.clone()));
    let mismatch = KeyError::PublicKeyMismatch { set: p.name };
    for at in [0, p.n - 1, p.n, 2 * p.n - 1] {
        let mut other = public.clone();
        other[at] ^= 1;
        assert_eq!(with_public(1, 0, &other), Err(mismatch.clone()), "byte {at}");
    }
    assert_eq!(with_public(1, 0, &public[1..]), Err(mismatch.clone()));
    assert_eq!(with_public(1, 0, &[&public[..], &[0]].concat()), Err(mismatch.clone()));
    assert!(with_public(1, 4, &public).is_err());
    // Version 1 has no public key, and version 2 has one.
    assert!(with_public(0, 0, &public).is_err());
    assert!(SigningKey::read_pkcs8(&pkcs8(1, &oid, &raw, &[])).is_err());
    // Attributes are allowed, and ignored.
    let attributes = tlv(0xa0, &[&tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(0x31, &[&[5, 0]])])]);
    assert_eq!(SigningKey::read_pkcs8(&pkcs8(0, &oid, &raw, &attributes)), Ok(key));
}

#[test]
fn wrong_public_keys_are_refused() {
    for p in [&SLH_DSA_SHA2_128S, &SLH_DSA_SHAKE_256F] {
        let key = some_key(p).verifying_key();
        let (raw, oid) = (key.to_bytes(), oid_der(p));
        let spki = |algorithm: &[u8], unused: u8, key: &[u8]| {
            tlv(0x30, &[&tlv(0x30, &[algorithm]), &tlv(3, &[&[unused], key])])
        };
        let good = spki(&oid, 0, &raw);
        assert_eq!(key.write_spki().unwrap().as_bytes(), good);
        let refused = |der: &[u8]| {
            assert!(VerifyingKey::from_public_key_der(der).is_err());
            VerifyingKey::read_spki(der).unwrap_err()
        };
        let length = |got| KeyError::Length { what: "a public key", set: p.name, want: p.pk_bytes(), got };
        let is_malformed = |error| matches!(error, KeyError::Malformed { what: "an SPKI public key", .. });

        assert_eq!(refused(&spki(&oid, 0, &raw[1..])), length(2 * p.n - 1));
        assert_eq!(refused(&spki(&oid, 0, &[&raw[..], &[0]].concat())), length(2 * p.n + 1));
        assert_eq!(refused(&spki(&[&oid[..], &[5, 0]].concat(), 0, &raw)), KeyError::Parameters { set: p.name });
        let ed25519 = [6, 3, 0x2b, 0x65, 0x70];
        assert_eq!(refused(&spki(&ed25519, 0, &raw)), KeyError::UnknownOid { oid: "1.3.101.112".into() });
        let mut even = raw.clone();
        *even.last_mut().unwrap() = 0;
        assert!(is_malformed(refused(&spki(&oid, 1, &even))));
        assert!(is_malformed(refused(&[&good[..], &[0]].concat())));
        for end in 0..good.len() {
            assert!(is_malformed(refused(&good[..end])), "the first {end} bytes");
        }
    }
}

#[test]
fn pem_of_something_else_is_refused() {
    let key = some_key(&SLH_DSA_SHA2_128S);
    let private = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let public = key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
    let why = |error: KeyError| error.to_string();
    let error = why(SigningKey::read_pkcs8(public.as_bytes()).unwrap_err());
    assert_eq!(error, "this is not a PKCS#8 private key: the file holds a public key");
    assert!(VerifyingKey::read_spki(private.as_bytes()).is_err());
    let encrypted = private.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert_eq!(SigningKey::read_pkcs8(encrypted.as_bytes()), Err(KeyError::Encrypted));
    assert!(SigningKey::read_pkcs8(&private.as_bytes()[..private.len() - 30]).is_err());
    assert!(SigningKey::read_pkcs8(private.replace("MFIC", "MF!C").as_bytes()).is_err());
    assert!(SigningKey::read_pkcs8(format!("{}{}", *private, *private).as_bytes()).is_err());
}

/// Nothing of the file is quoted, and every form is read or refused as in every other reader.
#[test]
fn forms_of_pem_are_read_or_refused() {
    let key = some_key(&SLH_DSA_SHA2_128S);
    let public = key.verifying_key();
    let private_pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let public_pem = public.to_public_key_pem(LineEnding::LF).unwrap();
    let quotes = |text: &str, pem: &str| {
        let letters: Vec<char> = pem.lines().nth(1).unwrap().chars().skip(40).collect();
        letters.windows(8).any(|part| text.contains(&part.iter().collect::<String>()))
    };
    for form in forms(&private_pem, &public_pem) {
        let read = SigningKey::read_pkcs8(&form.file);
        match form.refused {
            None => assert_eq!(read, Ok(key.clone()), "{}", form.name),
            Some(why) => {
                let text = read.unwrap_err().to_string();
                assert!(text.contains(why) && !quotes(&text, &private_pem), "{}: {text}", form.name);
            }
        }
    }
    for form in forms(&public_pem, &private_pem) {
        match (VerifyingKey::read_spki(&form.file), form.refused) {
            (Ok(read), None) => assert_eq!(read, public, "{}", form.name),
            (read, why) => {
                let text = read.unwrap_err().to_string();
                assert!(text.contains(why.expect("refused")), "{}: {text}", form.name);
            }
        }
    }
    // Both halves are there, of two pairs.
    let mut bytes = key.to_bytes();
    bytes[60] ^= 1;
    let other = SigningKey::from_bytes(key.params(), &bytes).unwrap().verifying_key();
    let both = format!("{}{}", *private_pem, other.to_public_key_pem(LineEnding::LF).unwrap());
    let mismatch = KeyError::PublicKeyMismatch { set: key.params().name };
    assert_eq!(SigningKey::read_pkcs8(both.as_bytes()), Err(mismatch.clone()));
    assert_eq!(VerifyingKey::read_spki(both.as_bytes()), Err(mismatch));
}

/// The errors of key files in DER name the field that is wrong.
#[test]
fn wrong_fields_are_named() {
    let p = &SLH_DSA_SHA2_128S;
    let key = some_key(p);
    let (raw, oid, public) = (key.to_bytes(), oid_der(p), key.verifying_key().to_bytes());
    let bits = [&[0][..], &public].concat();
    let attributes = |content: &[u8]| tlv(0xa0, &[content]);
    let null = [5, 0];
    let with =
        |version: &[u8], algorithm: &[u8], field: &[u8], rest: &[u8]| tlv(0x30, &[version, algorithm, field, rest]);
    let (v1, v2, algorithm, private) = (&[2, 1, 0][..], &[2, 1, 1][..], tlv(0x30, &[&oid]), tlv(4, &[&raw]));
    let good = |rest: &[u8]| with(v1, &algorithm, &private, rest);
    for (der, part) in [
        (with(&[2, 1, 2], &algorithm, &private, &[]), "`version` is 2;"),
        (with(&[2, 1, 0xff], &algorithm, &private, &[]), "`version` is neither"),
        (with(&[2, 2, 1, 0], &algorithm, &private, &[]), "`version` is neither"),
        (with(&[], &algorithm, &private, &[]), "is encrypted"),
        (with(&[], &algorithm, &tlv(3, &[&bits]), &[]), "`version` is missing"),
        (with(&null, &algorithm, &private, &[]), "`version` is no INTEGER"),
        (with(v1, &tlv(0x30, &[&null]), &private, &[]), "`privateKeyAlgorithm` is no"),
        (with(v1, &oid, &private, &[]), "`privateKeyAlgorithm` is no"),
        (with(v1, &tlv(0x30, &[&oid, &null]), &private, &[]), "the field `parameters`"),
        (with(v1, &algorithm, &tlv(3, &[&raw]), &[]), "`privateKey` is no OCTET STRING"),
        (with(v1, &algorithm, &[], &[]), "`privateKey` is no OCTET STRING"),
        (with(v1, &algorithm, &tlv(4, &[&private]), &[]), "`privateKey` holds the key within another OCTET STRING"),
        (good(&attributes(&null)), "`attributes` is no set"),
        (good(&attributes(&tlv(0x30, &[&[6, 3, 0x55, 4, 3], &null]))), "`attributes` is no set"),
        (good(&attributes(&[0x30, 9])), "`attributes` is no set"),
        (good(&attributes(&tlv(0x31, &[]))), "`attributes` is no set"),
        (good(&tlv(0x80, &[&null])), "`attributes` is no set"),
        (good(&tlv(0x81, &[&bits])), "`version` is 0 (v1)"),
        (with(v2, &algorithm, &private, &[]), "`version` is 1 (v2)"),
        (with(v2, &algorithm, &private, &tlv(0xa1, &[&tlv(3, &[&bits])])), "`publicKey` has the tag [1] EXPLICIT"),
        (with(v2, &algorithm, &private, &tlv(0x81, &[&[7], &public])), "`publicKey` is no BIT STRING of whole bytes"),
        (good(&null), "after its field `privateKey`"),
        (with(v2, &algorithm, &private, &[tlv(0x81, &[&bits]), attributes(&[])].concat()), "in the wrong order"),
        ([good(&[]), vec![0, 0]].concat(), "2 bytes follow the end"),
        (good(&[])[..70].to_vec(), "cut short"),
        (raw.to_vec(), "neither PEM nor a SEQUENCE"),
    ] {
        let text = SigningKey::read_pkcs8(&der).expect_err(part).to_string();
        assert!(text.contains(part), "{part}: {text}");
    }
    let spki = |algorithm: &[u8], key: &[u8], rest: &[u8]| tlv(0x30, &[algorithm, key, rest]);
    let key = tlv(3, &[&bits]);
    for (der, part) in [
        (good(&[]), "`algorithm` is missing: this may be a private key"),
        (spki(&oid, &key, &[]), "`algorithm` is no algorithm identifier"),
        (spki(&tlv(0x30, &[&oid, &null]), &key, &[]), "the field `parameters`"),
        (spki(&algorithm, &tlv(4, &[&public]), &[]), "`subjectPublicKey` is no BIT STRING"),
        (
            spki(&algorithm, &tlv(3, &[&[0], &tlv(4, &[&public])]), &[]),
            "`subjectPublicKey` holds the key within another",
        ),
        (spki(&algorithm, &key, &null), "after its field `subjectPublicKey`"),
        (spki(&algorithm, &key, &[])[..40].to_vec(), "cut short"),
    ] {
        let text = VerifyingKey::read_spki(&der).expect_err(part).to_string();
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_a_key_holds_decides_nothing() {
    let p = &SLH_DSA_SHA2_128S;
    let mut bytes = some_key(p).to_bytes();
    bytes[3..14].copy_from_slice(b"-----BEGIN ");
    let key = SigningKey::from_bytes(p, &bytes).unwrap();
    assert_eq!(SigningKey::read_pkcs8(key.write_pkcs8().unwrap().as_bytes()).unwrap(), key);
    // Text may begin as a sequence does.
    let pem = format!("0 is the first byte\n{}", *key.to_pkcs8_pem(LineEnding::LF).unwrap());
    assert_eq!(SigningKey::read_pkcs8(pem.as_bytes()).unwrap(), key);
}
