//! The parts of keys and signatures, as `inspect` shows them.

use crate::args::Encoding;
use crate::der::{Element, elements};
use crate::keys::{Key, KeyFile, LoadedKey};
use hypergrove::pkcs8::der::Tag;
use hypergrove::{EncryptedSigningKey, KeyError, Params, VerifyingKey};
use hypergrove_lab::failure::Failure;
use hypergrove_pem::{Pem, is_pem};
use serde::Serialize;
use std::ops::Range;

/// The kind of a file, its properties and its parts.
#[derive(Serialize, Default)]
pub(crate) struct Layout {
    /// `private key`, `public key` or `signature`.
    pub(crate) kind: &'static str,
    /// The sets that it may be of: a signature's length fits two.
    pub(crate) sets: Vec<&'static str>,
    /// Of a key's public half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// The hash function that a key of HashSLH-DSA implies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prehash: Option<String>,
    /// The fields of an envelope.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) envelope: Option<EnvelopeFields>,
    /// `PEM`, `DER`, `raw` or `envelope`.
    pub(crate) format: &'static str,
    /// How it was encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encryption: Option<String>,
    /// Bytes, without the PEM around them; of what was encrypted, those that were decrypted.
    pub(crate) bytes: usize,
    pub(crate) parts: Vec<Stretch>,
}

/// The fields of an envelope. None of them is verified.
#[derive(Serialize)]
pub(crate) struct EnvelopeFields {
    pub(crate) mode: String,
    /// In hexadecimal.
    pub(crate) context: String,
    /// As the envelope has it, if it has it as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    /// The context that is signed, in hexadecimal.
    pub(crate) signed_context: String,
}

/// A stretch of the file.
#[derive(Serialize)]
pub(crate) struct Stretch {
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) value: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Value {
    /// The meaning of the bytes.
    Means(String),
    /// The bytes.
    Hex(String),
    /// The bytes are not shown.
    #[serde(untagged)]
    Hidden { hidden: bool },
    /// It consists of the parts that follow.
    #[serde(untagged)]
    Whole {},
}

fn part(bytes: &[u8], range: Range<usize>, name: &str) -> Stretch {
    let value = Value::Hex(hex::encode(&bytes[range.clone()]));
    Stretch { offset: range.start, length: range.len(), name: name.into(), value }
}

/// A part whose bytes are not read: what is not shown is not copied.
fn hidden(_: &[u8], range: Range<usize>, name: &str) -> Stretch {
    Stretch { offset: range.start, length: range.len(), name: name.into(), value: Value::Hidden { hidden: true } }
}

/// Fields one after the other, from a place on; those that are hidden are not read.
pub(crate) fn fields(
    bytes: &[u8],
    mut at: usize,
    fields: &[(&str, usize)],
    is_hidden: impl Fn(&str) -> bool,
) -> Vec<Stretch> {
    let field = |(name, length): &(&str, usize)| {
        at += length;
        let of = if is_hidden(name) { hidden } else { part };
        of(bytes, at - length..at, name)
    };
    fields.iter().map(field).collect()
}

/// R, the FORS trees and the layers of the hypertree. Sets of one length have one layout.
pub(crate) fn signature(bytes: &[u8], sets: &[&'static Params]) -> Layout {
    let p = sets[0];
    let mut parts = vec![part(bytes, p.r_range(), "R")];
    for i in 0..p.k {
        let Range { start, end } = p.fors_tree_range(i);
        parts.push(part(bytes, start..start + p.n, &format!("FORS tree {i}: secret")));
        parts.push(part(bytes, start + p.n..end, &format!("FORS tree {i}: authentication path")));
    }
    for layer in 0..p.d {
        let Range { start, end } = p.xmss_range(layer);
        let path = start + p.len() * p.n;
        parts.push(part(bytes, start..path, &format!("layer {layer}: WOTS+ signature")));
        parts.push(part(bytes, path..end, &format!("layer {layer}: authentication path")));
    }
    let sets = sets.iter().map(|p| p.name).collect();
    Layout { kind: "signature", sets, format: "raw", bytes: bytes.len(), parts, ..Layout::default() }
}

/// The properties of an encrypted private key that need no passphrase. The public key next to it, if there is one, names the set.
pub(crate) fn encrypted(file: &KeyFile<'_>) -> Result<Layout, Failure> {
    let failed = |error: KeyError| Failure::from(error).of(&file.source);
    let encrypted = EncryptedSigningKey::read(&file.bytes).map_err(failed)?;
    let public = match is_pem(&file.bytes) && Pem::read(&file.bytes).is_ok_and(|pem| pem.has("PUBLIC KEY")) {
        true => Some(VerifyingKey::read_spki(&file.bytes).map_err(failed)?),
        false => None,
    };
    file.warn_of_readers();
    Ok(Layout {
        kind: "encrypted private key",
        sets: public.iter().map(|key| key.params().name).collect(),
        fingerprint: public.map(|key| key.fingerprint().to_string()),
        format: if is_pem(&file.bytes) { "PEM" } else { "DER" },
        encryption: Some(encrypted.to_string()),
        bytes: encrypted.to_der().map_err(failed)?.as_bytes().len(),
        ..Layout::default()
    })
}

pub(crate) fn key(found: &LoadedKey, show_secrets: bool) -> Layout {
    let LoadedKey { key, encoding, encryption, bytes } = found;
    let (p, prehash) = (key.params(), key.public().prehash());
    let (kind, names): (_, &[&str]) = match key {
        Key::Private(_) => ("private key", &["SK.seed", "SK.prf", "PK.seed", "PK.root"]),
        Key::Public(_) => ("public key", &["PK.seed", "PK.root"]),
    };
    let each: Vec<_> = names.iter().map(|name| (*name, p.n)).collect();
    let fields = |parts: &mut Vec<Stretch>, start: usize| {
        parts.extend(fields(bytes, start, &each, |name| name.starts_with("SK") && !show_secrets));
    };
    let mut parts = Vec::new();
    match encoding {
        Encoding::Raw => fields(&mut parts, 0),
        Encoding::Pem | Encoding::Der => {
            let whole = if names.len() == 4 { "PrivateKeyInfo (PKCS#8)" } else { "SubjectPublicKeyInfo" };
            parts.push(Stretch { offset: 0, length: bytes.len(), name: whole.into(), value: Value::Whole {} });
            // The key was decoded from these bytes before, so they are DER.
            let inside = |range| elements(bytes, range).unwrap_or_default();
            for element in inside(0..bytes.len()).into_iter().flat_map(|outer| inside(outer.content)) {
                let Element { tag, whole, content } = element;
                let (name, value) = match tag {
                    Tag::Integer => {
                        ("version", Value::Means(bytes[content.clone()].iter().map(u8::to_string).collect()))
                    }
                    Tag::Sequence => {
                        let meaning = match (prehash, p.oid(), p.hash_oid()) {
                            (Some(hash), _, Some(oid)) => format!("{oid} ({p}, HashSLH-DSA with {hash})"),
                            (_, Some(oid), _) => format!("{oid} ({p})"),
                            _ => String::new(),
                        };
                        ("algorithm", Value::Means(meaning))
                    }
                    Tag::OctetString => ("privateKey", Value::Whole {}),
                    Tag::BitString => ("subjectPublicKey", Value::Whole {}),
                    Tag::ContextSpecific { number, .. } if number.value() == 1 => ("publicKey", Value::Whole {}),
                    _ => ("attributes", Value::Whole {}),
                };
                parts.push(Stretch { offset: whole.start, length: whole.len(), name: name.into(), value });
                match tag {
                    Tag::OctetString => fields(&mut parts, content.start),
                    // The first byte counts the unused bits.
                    Tag::BitString => fields(&mut parts, content.start + 1),
                    _ => {}
                }
            }
        }
    }
    let fingerprint = Some(key.public().fingerprint().to_string());
    let (prehash, encryption) = (prehash.map(|hash| hash.to_string()), encryption.clone());
    let (sets, format, bytes) = (vec![p.name], encoding.name(), bytes.len());
    Layout { kind, sets, fingerprint, prehash, envelope: None, format, encryption, bytes, parts }
}
