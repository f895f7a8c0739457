//! `hypergrove inspect`.

use crate::args::{self, Inspect, KeyKind};
use crate::files::Source;
use crate::keys::{Element, Encoding, Key, KeyFile, LoadedKey, elements};
use crate::schemes::{InTool, of_scheme};
use crate::{pem, x509};
use hypergrove::pkcs8::der::Tag;
use hypergrove::{Params, SlhDsa, known_sets};
use hypergrove_files::envelope::{self, Envelope};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Printer, Table, Visible, grouped};
use serde::Serialize;
use std::ops::Range;

/// Bytes of a value that a table shows.
const SHOWN: usize = 32;

/// The kind of a file, its properties and its parts.
#[derive(Serialize, Default)]
pub(crate) struct Report {
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
    mode: String,
    /// In hexadecimal.
    context: String,
    /// As the envelope has it, if it has it as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    /// The context that is signed, in hexadecimal.
    signed_context: String,
}

/// A stretch of the file.
#[derive(Serialize)]
pub(crate) struct Stretch {
    pub(crate) offset: usize,
    pub(crate) length: usize,
    name: String,
    #[serde(flatten)]
    value: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Value {
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

pub(crate) fn run(args: &Inspect, printer: &Printer) -> Result<Exit, Failure> {
    args::one_stdin([Some(args.file.as_path()), args.passphrase.path().as_deref()].into_iter().flatten())?;
    let source = Source::from(args.file.as_path());
    let file = KeyFile::read_as("a file for `inspect`", source.clone(), Some(&args.passphrase))?;
    // A raw private key needs --set, and is not searched for anything else.
    if args.of.set.is_none()
        && let Some(exit) = x509::inspect(args, &source, &file.bytes, printer)?
    {
        return Ok(exit);
    }
    let report = report(&file, &args.of, args.show_secrets)?;
    if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| Failure::new(error.to_string()))?;
        printer.line(json)?;
        return Ok(Exit::Good);
    }
    printer.line(format_args!("file    {source}"))?;
    printer.line(format_args!("kind    {} of {}", report.kind, report.sets.join(" or ")))?;
    printer.line(format_args!("format  {}, {} bytes", report.format, grouped(report.bytes as u64)))?;
    if let Some(fingerprint) = &report.fingerprint {
        printer.line(format_args!("key     {fingerprint}"))?;
    }
    if let Some(hash) = &report.prehash {
        printer.line(format_args!("mode    HashSLH-DSA with {hash}, no other"))?;
    }
    if let Some(EnvelopeFields { mode, context, context_text, comment, signed_context }) = &report.envelope {
        printer.line(format_args!("mode    {mode}"))?;
        match context_text {
            Some(text) => printer.line(format_args!("context '{}'", Visible(text)))?,
            None if context.is_empty() => printer.line("context empty")?,
            None => printer.line(format_args!("context {context} in hexadecimal"))?,
        }
        printer.line(format_args!("signed  {signed_context}, a context over all that the envelope says"))?;
        if let Some(comment) = comment {
            printer.line(format_args!("comment {}", Visible(comment)))?;
        }
    }
    if let Some(encryption) = &report.encryption {
        printer.line(format_args!("cipher  {encryption}; what follows is decrypted"))?;
    }
    printer.line("")?;
    let mut table = Table::new("rrll", ["offset", "bytes", "part", "value"]);
    for part in &report.parts {
        let value = match &part.value {
            Value::Whole {} => String::new(),
            Value::Means(meaning) => meaning.clone(),
            Value::Hex(digits) if digits.len() > 2 * SHOWN => format!("{}…", &digits[..2 * SHOWN]),
            Value::Hex(digits) => digits.clone(),
            Value::Hidden { .. } => "hidden; --show-secrets shows it".into(),
        };
        table.row([part.offset.to_string(), part.length.to_string(), part.name.clone(), value]);
    }
    printer.line(table)?;
    Ok(Exit::Good)
}

/// Reports the kind of a file, its properties and its parts.
pub(crate) fn report(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Report, Failure> {
    if envelope::looks_like_it(&file.bytes) {
        return of_envelope(file, of);
    }
    of_scheme!(file.scheme(of)?, S => S::inspect(file, of, show_secrets))
}

/// A key of SLH-DSA, or what has the length of a signature of it.
pub(crate) fn of_slh_dsa(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Report, Failure> {
    let KeyFile { source, bytes, .. } = file;
    let fitting: Vec<_> = known_sets().filter(|p| p.sig_bytes() == bytes.len()).collect();
    if fitting.is_empty() || pem::is_pem(bytes) {
        return Ok(key(&SlhDsa::read(file, of.set)?, show_secrets));
    }
    let sets = match of.set {
        None => fitting,
        Some(p) if fitting.contains(&p) => vec![p],
        Some(p) => {
            let (got, want) = (grouped(bytes.len() as u64), grouped(p.sig_bytes() as u64));
            return Err(Failure::new(format!("{source} has {got} bytes, a signature of {p} has {want}"))
                .hint(format!("by its length it is a signature of {}", fitting[0])));
        }
    };
    Ok(signature(bytes, &sets))
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
fn signature(bytes: &[u8], sets: &[&'static Params]) -> Report {
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
    Report { kind: "signature", sets, format: "raw", bytes: bytes.len(), parts, ..Report::default() }
}

fn key(found: &LoadedKey, show_secrets: bool) -> Report {
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
    Report { kind, sets, fingerprint, prehash, envelope: None, format, encryption, bytes, parts }
}

/// A signature with what its envelope says; the parts are those of the bare signature.
fn of_envelope(file: &KeyFile<'_>, of: &KeyKind) -> Result<Report, Failure> {
    let envelope = Envelope::parse(&file.bytes).map_err(|error| {
        Failure::new(error.to_string())
            .of(&file.source)
            .hint("copy the envelope again; docs/envelope.md has its format")
    })?;
    let header = envelope.header();
    if let Some(p) = of.set.filter(|p| *p != header.params()) {
        return Err(Failure::new(format!("{} is an envelope of {}, --set says {p}", file.source, header.params()))
            .hint("leave --set out"));
    }
    let mode = header.prehash().map_or("pure".into(), |hash| format!("pre-hash {hash}"));
    let said = EnvelopeFields {
        mode,
        context: hex::encode(header.context()),
        context_text: header.context_text().map(str::to_owned),
        comment: header.comment().map(str::to_owned),
        signed_context: hex::encode(header.signed_context()),
    };
    Ok(Report {
        envelope: Some(said),
        fingerprint: Some(header.key().to_string()),
        format: "envelope",
        ..signature(envelope.signature(), &[header.params()])
    })
}
