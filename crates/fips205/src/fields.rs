//! The fields of key files in DER: an error names the field that is wrong. The decoder's errors do not.

use crate::keys::KeyError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use der::asn1::ObjectIdentifier;
use der::{AnyRef, Decode, Header, Reader, SliceReader, Tag, Tagged};

type Checked = Result<(), String>;

/// The elements of a sequence or a set, one after the other.
fn elements(content: &[u8]) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(content).ok()?;
    let mut elements = Vec::new();
    while !reader.is_finished() {
        elements.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(elements)
}

/// The fields of the SEQUENCE that the whole file is.
fn fields(der: &[u8]) -> Result<Vec<AnyRef<'_>>, String> {
    let header = SliceReader::new(der).and_then(|mut reader| {
        Header::decode(&mut reader).map(|header| (header, usize::try_from(reader.remaining_len())))
    });
    let why = match header {
        Ok((header, Ok(rest))) if header.tag() == Tag::Sequence => match usize::try_from(header.length()) {
            Ok(length) if length > rest => {
                format!("it is cut short: its SEQUENCE has {length} bytes, and {rest} are there")
            }
            Ok(length) if length < rest => format!("{} bytes follow the end of its SEQUENCE", rest - length),
            _ => match AnyRef::from_der(der).ok().and_then(|outer| elements(outer.value())) {
                Some(fields) => return Ok(fields),
                None => String::from("its fields are damaged: their lengths do not fill its SEQUENCE"),
            },
        },
        _ => String::from("it is neither PEM nor a SEQUENCE of DER"),
    };
    Err(why)
}

fn wrong(field: &str, why: &str) -> Checked {
    Err(format!("its field `{field}` {why}"))
}

fn check_algorithm(field: &str, algorithm: Option<&AnyRef<'_>>) -> Checked {
    let parts = algorithm.filter(|it| it.tag() == Tag::Sequence).and_then(|it| elements(it.value()));
    match parts.as_deref() {
        Some([oid] | [oid, _]) if oid.decode_as::<ObjectIdentifier>().is_ok() => Ok(()),
        _ => wrong(field, "is no algorithm identifier"),
    }
}

/// Checks the fields of a PrivateKeyInfo (RFC 5958, section 2). Of the private key itself, this looks at nothing.
pub(crate) fn check_pkcs8(der: &[u8]) -> Checked {
    let fields = fields(der)?;
    let version = match fields.first() {
        Some(version) if version.tag() == Tag::Integer => match *version.value() {
            [version @ 0..=1] => version,
            [version @ ..0x80] => {
                return wrong("version", &format!("is {version}; v1 and v2, the versions of RFC 5958, have 0 and 1"));
            }
            _ => return wrong("version", "is neither 0 (v1) nor 1 (v2)"),
        },
        Some(first) if first.tag() == Tag::Sequence => {
            return wrong("version", "is missing: this may be a public key");
        }
        _ => return wrong("version", "is no INTEGER"),
    };
    check_algorithm("privateKeyAlgorithm", fields.get(1))?;
    if fields.get(2).is_none_or(|key| key.tag() != Tag::OctetString) {
        return wrong("privateKey", "is no OCTET STRING");
    }
    let (mut next, mut has_public) = (0, false);
    for field in &fields[3..] {
        let Tag::ContextSpecific { constructed, number } = field.tag() else {
            return Err(String::from("after its field `privateKey` comes a field that RFC 5958 does not have"));
        };
        let number = number.value();
        if number < next {
            return Err(String::from("its fields after `privateKey` are in the wrong order, or there twice"));
        }
        next = number + 1;
        match (number, constructed) {
            (0, true) if is_attributes(field.value()) => {}
            (0, _) => return wrong("attributes", "is no set of attributes"),
            (1, true) => return wrong("publicKey", "has the tag [1] EXPLICIT, RFC 5958 wants it IMPLICIT"),
            (1, false) if field.value().first() != Some(&0) => {
                return wrong("publicKey", "is no BIT STRING of whole bytes");
            }
            (1, false) => has_public = true,
            // Extensions, which readers leave alone.
            _ => {}
        }
    }
    match (version, has_public) {
        (0, true) => wrong("version", "is 0 (v1), and a key with the field `publicKey` has 1 (v2)"),
        (1, false) => wrong("version", "is 1 (v2), and a key without the field `publicKey` has 0 (v1)"),
        _ => Ok(()),
    }
}

/// Whether these are attributes: sequences of an object identifier and a set of values.
fn is_attributes(content: &[u8]) -> bool {
    let is_attribute = |attribute: &AnyRef<'_>| {
        let parts = elements(attribute.value()).filter(|_| attribute.tag() == Tag::Sequence);
        matches!(parts.as_deref(), Some([oid, values])
            if oid.decode_as::<ObjectIdentifier>().is_ok() && values.tag() == Tag::Set && elements(values.value()).is_some())
    };
    elements(content).is_some_and(|all| all.iter().all(is_attribute))
}

/// Checks the fields of a SubjectPublicKeyInfo (RFC 5280, section 4.1).
pub(crate) fn check_spki(der: &[u8]) -> Checked {
    let fields = fields(der)?;
    if fields.first().is_some_and(|first| first.tag() == Tag::Integer) {
        return wrong("algorithm", "is missing: this may be a private key");
    }
    check_algorithm("algorithm", fields.first())?;
    match &fields[1..] {
        [key] if key.tag() == Tag::BitString => Ok(()),
        [_, _, ..] => Err(String::from("after its field `subjectPublicKey` comes a field that RFC 5280 does not have")),
        _ => wrong("subjectPublicKey", "is no BIT STRING"),
    }
}

/// Refuses a key of `want` bytes that is inside another OCTET STRING or BIT STRING. Only bytes of a key with another length are looked at.
pub(crate) fn check_nested(what: &'static str, field: &str, bytes: &[u8], want: usize) -> Result<(), KeyError> {
    let inside = || AnyRef::from_der(bytes).ok();
    match bytes.len() > want && bytes.len() <= want + 5 {
        true if inside().is_some_and(|it| matches!(it.tag(), Tag::OctetString | Tag::BitString)) => {
            let why = format!(
                "its field {field} holds the key within another OCTET STRING or BIT STRING; RFC 9909 wants its bare bytes"
            );
            Err(KeyError::Malformed { what, why })
        }
        _ => Ok(()),
    }
}

/// Whether this is a sequence of a sequence and an octet string. A PrivateKeyInfo begins with a version, an SPKI ends with
/// a bit string.
pub(crate) fn is_encrypted(der: &[u8]) -> bool {
    let tags = || -> der::Result<bool> {
        let outer = AnyRef::from_der(der)?;
        let mut reader = SliceReader::new(outer.value())?;
        let algorithm = AnyRef::decode(&mut reader)?;
        Ok(outer.tag() == Tag::Sequence && algorithm.tag() == Tag::Sequence && Tag::peek(&reader)? == Tag::OctetString)
    };
    tags().unwrap_or(false)
}
