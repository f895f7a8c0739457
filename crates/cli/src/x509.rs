//! Certificates, certificate requests and CMS: how they are read, and what `inspect` shows of them.

use crate::args::Inspect;
use crate::der::{DER_SEQUENCE, elements};
use crate::files::Source;
use hypergrove::pkcs8::der::{DateTime, Tag};
use hypergrove::zkdilithium::{PRIVATE_LABEL, PUBLIC_LABEL};
use hypergrove::{KeyError, VerifyingKey};
use hypergrove_files::x509::{Certificate, Parts, Request, SignedData, X509Error};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Printer, Table, Visible, grouped};
use hypergrove_pem::{Pem, PemError, is_pem};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The object identifier of SignedData, in DER.
const SIGNED_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";
const LABELS: [&str; 5] = [CERTIFICATE, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", "CMS", "PKCS7"];
const KEYS: [&str; 5] = ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "PUBLIC KEY", PRIVATE_LABEL, PUBLIC_LABEL];

/// A file that is no key and no bare signature.
pub(crate) enum Document {
    Certificate(Box<Certificate>),
    Request(Box<Request>),
    Cms(Box<SignedData>),
}

/// The kind of document that bytes in DER or BER look like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DerKind {
    Certificate,
    Request,
    Cms,
    /// A list of revoked certificates.
    Crl,
}

/// Names a file that holds neither a key nor a certificate, with the command that makes another file of it; `None` if nobody can tell.
pub(crate) fn other(bytes: &[u8]) -> Option<&'static str> {
    if is_pem(bytes) {
        return Pem::read(bytes).ok().map(|pem| pem.content());
    }
    // The bytes may be a private key, so nothing is copied.
    let begins = |header: &[u8]| bytes.get(..header.len()).is_some_and(|head| head.eq_ignore_ascii_case(header));
    if [&b"mime-version:"[..], b"content-type:"].into_iter().any(begins) {
        return Some(
            "S/MIME text; `openssl cms -cmsout -inform SMIME -in FILE -outform PEM -out NEW` writes the CMS in it",
        );
    }
    match look(bytes) {
        Some(DerKind::Cms) => {
            return Some(
                "CMS or PKCS#7; `openssl cms -cmsout -inform DER -in FILE -noout -certsout NEW` writes the certificates in it",
            );
        }
        Some(DerKind::Crl) => {
            return Some(
                "a CRL, a list of revoked certificates; `openssl crl -inform DER -in FILE -noout -text` shows it",
            );
        }
        _ => {}
    }
    let all = elements(bytes, 0..bytes.len()).ok()?;
    let inside = elements(bytes, all.first()?.content.clone()).ok()?;
    let version = inside.first().map_or(&[][..], |first| &bytes[first.content.clone()]);
    let tags: Vec<Tag> = inside.iter().map(|element| element.tag).collect();
    match (&all[..], &tags[..]) {
        ([first, _], _) if looks_like_certificate(&bytes[first.whole.clone()]) => Some(
            "a TRUSTED CERTIFICATE, which has OpenSSL's settings of trust; `openssl x509 -inform DER -in FILE -out NEW` writes the certificate alone",
        ),
        // SEQUENCE { version 3, ContentInfo, MacData }
        ([_], [Tag::Integer, Tag::Sequence] | [Tag::Integer, Tag::Sequence, Tag::Sequence]) if version == [3] => {
            Some("PKCS#12; `openssl pkcs12 -in FILE -nodes -out NEW` writes the keys and certificates in it as PEM")
        }
        _ => None,
    }
}

fn look(bytes: &[u8]) -> Option<DerKind> {
    if bytes.first() != Some(&DER_SEQUENCE) {
        return None;
    }
    let header = match bytes.get(1) {
        Some(length @ 0x81..=0x84) => usize::from(length & 0x7f) + 2,
        _ => 2,
    };
    if bytes.get(header..).is_some_and(|rest| rest.starts_with(SIGNED_DATA)) {
        return Some(DerKind::Cms);
    }
    // SEQUENCE { SEQUENCE { version or serial number, … }, algorithm, BIT STRING }, where SPKI has an algorithm first.
    let inside = |range| elements(bytes, range).ok();
    let [outer] = &inside(0..bytes.len())?[..] else { return None };
    let [signed, algorithm, signature] = &inside(outer.content.clone())?[..] else { return None };
    if [signed.tag, algorithm.tag, signature.tag] != [Tag::Sequence, Tag::Sequence, Tag::BitString] {
        return None;
    }
    let parts: Vec<Tag> = inside(signed.content.clone())?.iter().map(|element| element.tag).collect();
    match parts[..] {
        [Tag::Sequence, Tag::Sequence, Tag::UtcTime | Tag::GeneralizedTime, ..]
        | [Tag::Integer, Tag::Sequence, Tag::Sequence, Tag::UtcTime | Tag::GeneralizedTime, ..] => Some(DerKind::Crl),
        // Version, subject, key, and attributes that some leave out. A certificate has more.
        [Tag::Integer, Tag::Sequence, Tag::Sequence] => Some(DerKind::Request),
        [Tag::Integer, Tag::Sequence, Tag::Sequence, Tag::ContextSpecific { .. }, ..] => Some(DerKind::Request),
        [Tag::Integer | Tag::ContextSpecific { .. }, ..] => Some(DerKind::Certificate),
        _ => None,
    }
}

/// Whether DER is a certificate or a request, as far as one can tell without reading it.
pub(crate) fn looks_like_certificate(bytes: &[u8]) -> bool {
    matches!(look(bytes), Some(DerKind::Certificate | DerKind::Request))
}

/// The key of a certificate's subject, from DER. Whoever made a request says alone whose key it is.
pub(crate) fn subject_key(der: &[u8]) -> Result<VerifyingKey, Failure> {
    if look(der) == Some(DerKind::Request) {
        return Err(Failure::new("this is a certificate request, a key or a certificate is needed")
            .hint("name the certificate that was issued for the request, or the key"));
    }
    Certificate::read(der).and_then(|certificate| certificate.key()).map_err(failure)
}

/// An error with the way out.
pub(crate) fn failure(error: X509Error) -> Failure {
    let hint = match error {
        X509Error::Engine(error) => return error.into(),
        X509Error::Key(error) => return error.into(),
        X509Error::Malformed { .. } => "compare it with a copy; `openssl asn1parse` shows what it is",
        X509Error::Algorithm { .. } => "name the key, or the certificate, of the issuer or signer",
        X509Error::Content { is_inside: true } => "leave the file out: the message inside is verified",
        X509Error::Content { is_inside: false } => "name the file that was signed as well",
        error => return Failure::new(error.to_string()),
    };
    Failure::new(error.to_string()).hint(hint)
}

impl Document {
    /// PEM or DER; None if it is something else. The second tells whether it was PEM, the last how long it is without.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Document, bool, usize)>, Failure> {
        let of_der = |der: &[u8]| -> Result<Option<Document>, Failure> {
            Ok(match look(der) {
                None | Some(DerKind::Crl) => None,
                Some(DerKind::Cms) => Some(Document::Cms(Box::new(SignedData::read(der).map_err(failure)?))),
                Some(DerKind::Request) => Some(Document::Request(Box::new(Request::read(der).map_err(failure)?))),
                Some(DerKind::Certificate) => {
                    Some(Document::Certificate(Box::new(Certificate::read(der).map_err(failure)?)))
                }
            })
        };
        if !is_pem(bytes) {
            return Ok(of_der(bytes)?.map(|document| (document, false, bytes.len())));
        }
        let pem = Pem::read(bytes).map_err(KeyError::from)?;
        if KEYS.iter().any(|label| pem.has(label)) {
            return Ok(None);
        }
        for label in LABELS {
            if let Some(der) = pem.block(label).map_err(KeyError::from)? {
                let document = of_der(&der)?.ok_or_else(|| Failure::new(format!("the block '{label}' holds none")))?;
                return Ok(Some((document, true, der.len())));
            }
        }
        Ok(None)
    }

    /// The certificates of a chain in PEM, each with what is wrong with it, or the only document.
    pub(crate) fn all(bytes: &[u8]) -> Result<Vec<Result<Document, Failure>>, Failure> {
        if is_pem(bytes) {
            let pem = Pem::read(bytes).map_err(KeyError::from)?;
            let read = |der: Result<Zeroizing<Vec<u8>>, PemError>| {
                let certificate = Certificate::read(&der.map_err(KeyError::from)?).map_err(failure)?;
                Ok(Document::Certificate(Box::new(certificate)))
            };
            if pem.has(CERTIFICATE) {
                return Ok(pem.all(CERTIFICATE).map(read).collect());
            }
        }
        Ok(Document::read(bytes)?.map(|(document, ..)| Ok(document)).into_iter().collect())
    }

    /// The fields of the document and of each of the things in it, and the places of its parts.
    pub(crate) fn shown(&self) -> Inspection {
        let parts = |parts: &Parts, first: &'static str| {
            let parts =
                [(first, &parts.signed), ("signatureAlgorithm", &parts.algorithm), ("signature", &parts.signature)];
            parts.map(|(name, range)| (name, range.start, range.len())).to_vec()
        };
        match self {
            Document::Certificate(certificate) => {
                let parts = parts(certificate.parts(), "tbsCertificate");
                Inspection { known: fields(certificate), lists: Vec::new(), parts }
            }
            Document::Request(request) => {
                let mut known = vec![
                    ("subject", request.subject()),
                    ("key of", request.key_algorithm()),
                    ("signed with", request.signature_algorithm()),
                ];
                known.extend(request.key().ok().map(|key| ("key", key.fingerprint().to_string())));
                Inspection { known, lists: Vec::new(), parts: parts(request.parts(), "certificationRequestInfo") }
            }
            Document::Cms(signed) => {
                let content = signed
                    .content()
                    .map_or("detached".into(), |content| format!("inside, {} bytes", grouped(content.len() as u64)));
                let signers = signed.signers().map(|signer| {
                    vec![
                        ("signed with", signer.algorithm),
                        ("digest", signer.digest),
                        (
                            "signs",
                            if signer.has_attributes { "attributes".into() } else { "the message itself".into() },
                        ),
                        ("signature bytes", signer.signature.to_string()),
                    ]
                });
                let certificates = signed.certificates().map(|certificate| match certificate {
                    Ok(certificate) => fields(&certificate),
                    Err(error) => vec![("error", error.to_string())],
                });
                let lists = vec![("signers", signers.collect::<Vec<_>>()), ("certificates", certificates.collect())];
                Inspection { known: vec![("message", content)], lists, parts: Vec::new() }
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Document::Certificate(_) => "certificate",
            Document::Request(_) => "certificate request",
            Document::Cms(_) => "CMS with signatures",
        }
    }
}

fn time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).ok();
    since
        .and_then(|since| DateTime::from_unix_duration(since).ok())
        .map_or("before 1970".into(), |time| time.to_string())
}

/// The fields of a certificate, in the order in which they are shown.
fn fields(certificate: &Certificate) -> Fields {
    let (from, until) = certificate.validity();
    let fingerprint = certificate.key().ok().map(|key| ("key", key.fingerprint().to_string()));
    let mut fields = vec![
        ("subject", certificate.subject()),
        ("issuer", certificate.issuer()),
        ("serial", hex::encode(certificate.serial())),
        ("valid from", time(from)),
        ("valid until", time(until)),
        ("key of", certificate.key_algorithm()),
        ("signed with", certificate.signature_algorithm()),
    ];
    fields.extend(fingerprint);
    fields
}

/// Names and values, in the order in which they are shown.
type Fields = Vec<(&'static str, String)>;

/// The content of a document, as `inspect` shows it.
pub(crate) struct Inspection {
    pub(crate) known: Fields,
    /// The things in it, by their kind.
    pub(crate) lists: Vec<(&'static str, Vec<Fields>)>,
    /// Parts with their offsets and lengths.
    pub(crate) parts: Vec<(&'static str, usize, usize)>,
}

fn object(fields: &[(&'static str, String)]) -> Value {
    fields.iter().map(|(name, value)| (name.replace(' ', "_"), json!(value))).collect()
}

/// `inspect` of a certificate, a request or CMS; None of other files.
pub(crate) fn inspect(
    args: &Inspect,
    source: &Source,
    bytes: &[u8],
    printer: &Printer,
) -> Result<Option<Exit>, Failure> {
    let read = Document::read(bytes).map_err(|failure| failure.of(source))?;
    let Some((document, pem, length)) = read else { return Ok(None) };
    let Inspection { mut known, lists, parts } = document.shown();
    let format = if pem { "PEM" } else { "DER" };
    if args.json {
        let mut json = object(&known);
        json["kind"] = json!(document.kind());
        json["format"] = json!(format);
        json["bytes"] = json!(length);
        for (name, list) in lists {
            json[name] = list.iter().map(|fields| object(fields)).collect();
        }
        if !parts.is_empty() {
            let part = |(name, offset, length)| json!({"name": name, "offset": offset, "length": length});
            json["parts"] = parts.into_iter().map(part).collect();
        }
        printer.line(serde_json::to_string_pretty(&json).map_err(|error| Failure::new(error.to_string()))?)?;
        return Ok(Some(Exit::Good));
    }
    let mut head = vec![
        ("file", source.to_string()),
        ("kind", document.kind().into()),
        ("format", format!("{format}, {} bytes", grouped(length as u64))),
    ];
    head.append(&mut known);
    let print = |fields: &[(&str, String)]| {
        fields.iter().try_for_each(|(name, value)| printer.line(format_args!("{name:<16}{}", Visible(value))))
    };
    print(&head)?;
    for (name, list) in lists {
        for (i, fields) in list.iter().enumerate() {
            printer.line(format_args!("\n{} {}", name.trim_end_matches('s'), i + 1))?;
            print(fields)?;
        }
    }
    if !parts.is_empty() {
        let mut table = Table::new("rrl", ["offset", "bytes", "part"]);
        parts.into_iter().for_each(|(name, offset, length)| {
            table.row([offset.to_string(), length.to_string(), name.to_owned()]);
        });
        printer.line(format_args!("\n{table}"))?;
    }
    Ok(Some(Exit::Good))
}
