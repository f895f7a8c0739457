//! Signatures of SLH-DSA on certificates, certificate requests (RFC 9909) and CMS (RFC 9814).
//!
//! This module checks one signature by one key. It builds no chain, and looks at no date, no name, no extension and no list of revoked
//! certificates: a program that has to trust a certificate needs a validator of chains.
//!
//! ```no_run
//! use hypergrove::Engine;
//! use hypergrove_files::x509::{Certificate, SignedData};
//!
//! let engine = Engine::new()?;
//! let issuer = Certificate::read(&std::fs::read("ca.der")?)?;
//! let leaf = Certificate::read(&std::fs::read("leaf.der")?)?;
//! assert!(leaf.verify(&engine, &issuer.key()?)?);
//! let signed = SignedData::read(&std::fs::read("release.p7s")?)?;
//! signed.verify(&engine, &leaf.key()?, Some(b"the detached message"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData as Cms, SignerInfo};
use der::asn1::{BitStringRef, ContextSpecific, ObjectIdentifier, OctetString, SetOfVec};
use der::{Any, AnyRef, Decode, Encode, EncodingRules, Reader, SliceReader, Tag, TagNumber, Tagged};
use hypergrove::pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use hypergrove::{Engine, Error, KeyError, PARAMETER_SETS, Params, PreHash, VerifyingKey, pre_hasher};
use std::fmt::{self, Display};
use std::ops::Range;
use std::time::SystemTime;
use x509_cert::certificate::Certificate as Parsed;
use x509_cert::request::CertReq;
use x509_cert::time::Time;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
/// The content type of plain data.
const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");
/// The most characters of a name that are shown.
const SHOWN: usize = 256;

/// The error of a certificate, a request or CMS that gets no verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum X509Error {
    /// The bytes are not of the expected form.
    Malformed {
        /// The expected form.
        what: &'static str,
        /// Why the bytes do not have that form.
        why: String,
    },
    /// The public key is not a key of SLH-DSA, or is damaged.
    Key(KeyError),
    /// The algorithm of the signature is not that of the key.
    Algorithm {
        /// The algorithm of the signature: its set, or its object identifier.
        signed: String,
        /// The algorithm of the key.
        key: String,
    },
    /// The message of CMS must be either inside or given, but is neither or both.
    Content {
        /// Whether the message is inside.
        is_inside: bool,
    },
    /// The engine failed.
    Engine(Error),
}

impl Display for X509Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            X509Error::Malformed { what, why } => write!(f, "this is not {what}: {why}"),
            X509Error::Key(error) => error.fmt(f),
            X509Error::Algorithm { signed, key } => write!(f, "it was signed with {signed}, the key is for {key}"),
            X509Error::Content { is_inside: true } => f.write_str("it holds its message, and another one was given"),
            X509Error::Content { is_inside: false } => f.write_str("its message is detached, and none was given"),
            X509Error::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for X509Error {}

impl From<Error> for X509Error {
    fn from(error: Error) -> X509Error {
        X509Error::Engine(error)
    }
}

impl From<KeyError> for X509Error {
    fn from(error: KeyError) -> X509Error {
        X509Error::Key(error)
    }
}

fn malformed(what: &'static str) -> impl Fn(der::Error) -> X509Error {
    move |error| X509Error::Malformed { what, why: error.to_string() }
}

/// The beginning of a name.
fn shown(name: &dyn Display) -> String {
    let text = name.to_string();
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The name of an algorithm: the set's name, or the object identifier.
fn name_of(oid: ObjectIdentifier) -> String {
    let hashed = || PARAMETER_SETS.iter().find(|p| p.hash_oid() == Some(oid));
    match (Params::by_oid(oid), hashed()) {
        (Some(p), _) => p.name.into(),
        (_, Some(p)) => format!("{p} with {} (HashSLH-DSA)", p.prehash_of_keys()),
        _ => oid.to_string(),
    }
}

/// The object identifier of a key, which signatures by the key have too.
fn oid_of(key: &VerifyingKey) -> Result<ObjectIdentifier, X509Error> {
    let p = key.params();
    let oid = if key.prehash().is_some() { p.hash_oid() } else { p.oid() };
    Ok(oid.ok_or(KeyError::NoOid { set: p.name })?)
}

/// Refuses a signature that this key's algorithm cannot make: RFC 9909 and RFC 9814 want no parameters, and the length is fixed.
fn check_form(what: &'static str, has_parameters: bool, signature: &[u8], key: &VerifyingKey) -> Result<(), X509Error> {
    let (got, want) = (signature.len(), key.params().sig_bytes());
    let why = match () {
        () if has_parameters => "its algorithm has parameters, SLH-DSA has none".into(),
        () if got != want => format!("its signature has {got} bytes, one of {} has {want}", key.params()),
        () => return Ok(()),
    };
    Err(X509Error::Malformed { what, why })
}

/// Where the parts of a certificate or a request are in its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The bytes that are signed.
    pub signed: Range<usize>,
    /// The algorithm of the signature.
    pub algorithm: Range<usize>,
    /// The signature, without its header.
    pub signature: Range<usize>,
}

impl Parts {
    /// Finds the parts of SEQUENCE { signed bytes, algorithm, BIT STRING }.
    fn of(bytes: &[u8]) -> der::Result<Parts> {
        let mut outer = SliceReader::new(bytes)?;
        let parts = outer.sequence(|reader| {
            let position = |reader: &SliceReader<'_>| usize::try_from(reader.position());
            let start = position(reader)?;
            reader.tlv_bytes()?;
            let middle = position(reader)?;
            reader.tlv_bytes()?;
            let end = position(reader)?;
            let signature = BitStringRef::decode(reader)?.as_bytes().map_or(0, <[u8]>::len);
            let last = position(reader)?;
            Ok::<_, der::Error>(Parts {
                signed: start..middle,
                algorithm: middle..end,
                signature: last - signature..last,
            })
        })?;
        outer.finish()?;
        Ok(parts)
    }

    /// Whether a key has signed the bytes, with an empty context in the mode that the key implies.
    fn verify(&self, engine: &Engine, bytes: &[u8], key: &VerifyingKey, what: &'static str) -> Result<bool, X509Error> {
        let algorithm = AlgorithmIdentifierRef::from_der(&bytes[self.algorithm.clone()]).map_err(malformed(what))?;
        let oid = oid_of(key)?;
        if algorithm.oid != oid {
            return Err(X509Error::Algorithm { signed: name_of(algorithm.oid), key: name_of(oid) });
        }
        let signature = &bytes[self.signature.clone()];
        check_form(what, algorithm.parameters.is_some(), signature, key)?;
        Ok(engine.verify(key, key.mode(&[]), &bytes[self.signed.clone()], signature)?)
    }
}

/// The bytes of the version number with which a request begins, or that a certificate has in a tag; `None` if there is none to read.
fn version(bytes: &[u8], is_tagged: bool) -> Option<Vec<u8>> {
    let inside = |bytes| AnyRef::from_der(bytes).ok().filter(|outer| outer.tag() == Tag::Sequence);
    let first = |bytes| AnyRef::decode(&mut SliceReader::new(bytes).ok()?).ok();
    let signed = first(inside(bytes)?.value())?;
    let number = match first(signed.value())? {
        tagged if is_tagged && tagged.tag().is_context_specific() => first(tagged.value())?,
        number if !is_tagged => number,
        _ => return None,
    };
    (number.tag() == Tag::Integer).then(|| number.value().to_vec())
}

/// A version number as text; of a long number, only its length.
fn shown_number(number: &[u8]) -> String {
    match number {
        [number] => number.to_string(),
        number => format!("one of {} bytes", number.len()),
    }
}

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    bytes: Vec<u8>,
    parsed: Parsed,
    parts: Parts,
}

impl Certificate {
    const WHAT: &'static str = "a certificate";

    /// Reads a certificate in DER.
    pub fn read(bytes: &[u8]) -> Result<Certificate, X509Error> {
        if let Some(number) = version(bytes, true).filter(|number| !matches!(number[..], [0..=2])) {
            let why = format!("its version number is {}; v1, v2 and v3 have 0, 1 and 2", shown_number(&number));
            return Err(X509Error::Malformed { what: "a certificate of version v1, v2 or v3", why });
        }
        let parsed = Parsed::from_der(bytes).map_err(malformed(Self::WHAT))?;
        let parts = Parts::of(bytes).map_err(malformed(Self::WHAT))?;
        if parsed.signature_algorithm() != parsed.tbs_certificate().signature() {
            let why = "its two algorithms of the signature differ".into();
            return Err(X509Error::Malformed { what: Self::WHAT, why });
        }
        Ok(Certificate { bytes: bytes.into(), parsed, parts })
    }
    /// The bytes in DER.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Where the parts are in the bytes.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
    /// The public key of the subject.
    pub fn key(&self) -> Result<VerifyingKey, X509Error> {
        subject_key(&self.parsed.tbs_certificate().subject_public_key_info().to_der())
    }
    /// The algorithm of the subject's key.
    pub fn key_algorithm(&self) -> String {
        name_of(self.parsed.tbs_certificate().subject_public_key_info().algorithm.oid)
    }
    /// The algorithm of the signature.
    pub fn signature_algorithm(&self) -> String {
        name_of(self.parsed.signature_algorithm().oid)
    }
    /// The subject (RFC 4514), shortened if it is long.
    pub fn subject(&self) -> String {
        shown(self.parsed.tbs_certificate().subject())
    }
    /// The issuer (RFC 4514), shortened if it is long.
    pub fn issuer(&self) -> String {
        shown(self.parsed.tbs_certificate().issuer())
    }
    /// The serial number, big-endian.
    pub fn serial(&self) -> &[u8] {
        self.parsed.tbs_certificate().serial_number().as_bytes()
    }
    /// The beginning and the end of the validity.
    pub fn validity(&self) -> (SystemTime, SystemTime) {
        let validity = self.parsed.tbs_certificate().validity();
        let time = |time: Time| SystemTime::UNIX_EPOCH + time.to_unix_duration();
        (time(validity.not_before), time(validity.not_after))
    }
    /// Verifies the signature on the certificate by this key, and nothing else.
    pub fn verify(&self, engine: &Engine, issuer: &VerifyingKey) -> Result<bool, X509Error> {
        self.parts.verify(engine, &self.bytes, issuer, Self::WHAT)
    }
}

fn subject_key(spki: &der::Result<Vec<u8>>) -> Result<VerifyingKey, X509Error> {
    let der = spki.as_ref().map_err(|error| malformed("a public key")(*error))?;
    let info = SubjectPublicKeyInfoRef::from_der(der).map_err(malformed("a public key"))?;
    if !name_of(info.algorithm.oid).starts_with("SLH-DSA") {
        return Err(KeyError::UnknownOid { oid: info.algorithm.oid.to_string() }.into());
    }
    Ok(VerifyingKey::read_spki(der)?)
}

/// A certificate request (PKCS#10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    bytes: Vec<u8>,
    parsed: CertReq,
    parts: Parts,
}

impl Request {
    const WHAT: &'static str = "a certificate request";

    /// Reads a request in DER.
    pub fn read(bytes: &[u8]) -> Result<Request, X509Error> {
        if let Some(number) = version(bytes, false).filter(|number| number[..] != [0]) {
            let why =
                format!("its version number is {}; v1, the only version of RFC 2986, has 0", shown_number(&number));
            return Err(X509Error::Malformed { what: "a certificate request of version v1", why });
        }
        let parsed = CertReq::from_der(bytes).map_err(malformed(Self::WHAT))?;
        let parts = Parts::of(bytes).map_err(malformed(Self::WHAT))?;
        Ok(Request { bytes: bytes.into(), parsed, parts })
    }
    /// The bytes in DER.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Where its parts are in the bytes.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
    /// The public key of the subject, which signed the request.
    pub fn key(&self) -> Result<VerifyingKey, X509Error> {
        subject_key(&self.parsed.info.public_key.to_der())
    }
    /// The algorithm of the subject's key.
    pub fn key_algorithm(&self) -> String {
        name_of(self.parsed.info.public_key.algorithm.oid)
    }
    /// The algorithm of the signature.
    pub fn signature_algorithm(&self) -> String {
        name_of(self.parsed.algorithm.oid)
    }
    /// The subject (RFC 4514), shortened if it is long.
    pub fn subject(&self) -> String {
        shown(&self.parsed.info.subject)
    }
    /// Verifies the signature on the request by the key in it.
    pub fn verify(&self, engine: &Engine) -> Result<bool, X509Error> {
        self.parts.verify(engine, &self.bytes, &self.key()?, Self::WHAT)
    }
}

/// CMS with signatures (RFC 5652, SignedData).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedData {
    parsed: Cms,
    content: Option<Vec<u8>>,
}

/// The verdict on CMS. All but the first say which part is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmsVerdict {
    /// One of the signatures is valid for this key and this message.
    Valid,
    /// The signature is not the key's.
    Signature,
    /// The message is not the one that was signed.
    Content,
    /// The message that was signed has LF where this one has CR LF.
    LineFeeds,
    /// The message that was signed has CR LF where this one has LF.
    CarriageReturns,
    /// The signature is the key's. It is of a digest whose length is not that of the hash function.
    DigestLength,
    /// The signature is the key's. It is of attributes in another order than that of DER.
    AttributeOrder,
}

/// A signer of CMS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signer {
    /// The algorithm of the signature.
    pub algorithm: String,
    /// The digest: the name of its hash function, or an object identifier that this library does not know.
    pub digest: String,
    /// Whether the signer signed attributes with the digest of the message, instead of the message itself.
    pub has_attributes: bool,
    /// The length of the signature in bytes.
    pub signature: usize,
}

impl SignedData {
    const WHAT: &'static str = "CMS with signatures";

    /// Reads SignedData, in DER or with indefinite lengths (BER).
    pub fn read(bytes: &[u8]) -> Result<SignedData, X509Error> {
        let wrong = malformed(Self::WHAT);
        let info = ContentInfo::from_ber(bytes).map_err(&wrong)?;
        if info.content_type != SIGNED_DATA {
            let why = format!("its content is of the type {}", info.content_type);
            return Err(X509Error::Malformed { what: Self::WHAT, why });
        }
        let parsed: Cms = info.content.decode_as_encoding(EncodingRules::Ber).map_err(&wrong)?;
        let content = inside(bytes).map_err(&wrong)?;
        if content.is_some() != parsed.encap_content_info.econtent.is_some() {
            return Err(X509Error::Malformed { what: Self::WHAT, why: "its message is no OCTET STRING".into() });
        }
        Ok(SignedData { parsed, content })
    }
    /// The message, if it is inside.
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }
    /// The signers.
    pub fn signers(&self) -> impl Iterator<Item = Signer> {
        self.parsed.signer_infos.0.iter().map(|signer| Signer {
            algorithm: name_of(signer.signature_algorithm.oid),
            digest: digest_of(signer.digest_alg.oid).map_or(signer.digest_alg.oid.to_string(), |hash| hash.to_string()),
            has_attributes: signer.signed_attrs.is_some(),
            signature: signer.signature.as_bytes().len(),
        })
    }
    /// The X.509 certificates inside.
    pub fn certificates(&self) -> impl Iterator<Item = Result<Certificate, X509Error>> {
        let all = self.parsed.certificates.iter().flat_map(|set| set.0.iter());
        all.filter_map(|choice| match choice {
            cms::cert::CertificateChoices::Certificate(certificate) => {
                Some(certificate.to_der().map_err(malformed(Certificate::WHAT)).and_then(|der| Certificate::read(&der)))
            }
            cms::cert::CertificateChoices::Other(_) => None,
        })
    }

    /// The attributes that a signer signed; `None` if the signer signed the message itself.
    fn attributes(&self, signer: &SignerInfo) -> Result<Option<Attributes>, X509Error> {
        let wrong = |why: &str| X509Error::Malformed { what: Self::WHAT, why: why.into() };
        let Some(attributes) = &signer.signed_attrs else { return Ok(None) };
        let only = |oid| {
            let mut found = attributes.iter().filter(|attribute| attribute.oid == oid);
            match (found.next().map(|attribute| attribute.values.as_slice()), found.next()) {
                (Some([value]), None) => Ok(value),
                _ => Err(wrong("its signed attributes lack the digest or the type of the content, or have it twice")),
            }
        };
        let kind: ObjectIdentifier = only(CONTENT_TYPE)?.decode_as().map_err(malformed(Self::WHAT))?;
        if kind != self.parsed.encap_content_info.econtent_type {
            return Err(wrong("its signed attributes are of content of another type"));
        }
        let digest: OctetString = only(MESSAGE_DIGEST)?.decode_as().map_err(malformed(Self::WHAT))?;
        // The signature covers the DER of the attributes, sorted and with the tag of a SET, however they are written.
        let sorted = SetOfVec::try_from(attributes.iter().cloned().collect::<Vec<_>>());
        let der = sorted.and_then(|sorted| sorted.to_der()).map_err(malformed(Self::WHAT))?;
        let written = attributes.iter().map(Encode::to_der).collect::<der::Result<Vec<_>>>();
        let written =
            written.and_then(|all| Any::new(Tag::Set, all.concat())?.to_der()).map_err(malformed(Self::WHAT))?;
        Ok(Some(Attributes { digest: digest.as_bytes().to_vec(), der, written }))
    }

    /// The verdict if a signer signed this content, the bytes that the signer signed then, and, of attributes, those bytes in the order in which
    /// they are written.
    fn message(&self, signer: &SignerInfo, content: &[u8]) -> Result<Message, X509Error> {
        let wrong = |why: String| X509Error::Malformed { what: Self::WHAT, why };
        let Some(Attributes { digest, der, written }) = self.attributes(signer)? else {
            // Without attributes, nothing signs the type of the content (RFC 5652, 5.3). And attributes that a signer signed are no message,
            // even if somebody shows them as a message.
            if self.parsed.encap_content_info.econtent_type != DATA || is_attributes(content) {
                return Err(wrong("it has no signed attributes, which this content needs".into()));
            }
            return Ok((CmsVerdict::Valid, content.to_vec(), None));
        };
        let oid = signer.digest_alg.oid;
        let hash = digest_of(oid).ok_or_else(|| {
            let weak = TOO_WEAK.iter().find(|(weak, _)| *weak == oid);
            wrong(match weak {
                Some((_, name)) => {
                    format!("its digest {name} is too weak, anyone can make two messages with one digest")
                }
                None => format!("its digest {oid} is none that SLH-DSA goes with"),
            })
        })?;
        let digest_of = |content: &[u8]| {
            let mut hasher = pre_hasher(hash);
            hasher.update(content);
            hasher.finish()
        };
        let own = digest_of(content);
        let verdict = match () {
            () if own == digest => CmsVerdict::Valid,
            () if own.len() != digest.len() => CmsVerdict::DigestLength,
            () => {
                let signed = other_line_ends(content).into_iter().find(|(_, other)| digest_of(other) == digest);
                signed.map_or(CmsVerdict::Content, |(verdict, _)| verdict)
            }
        };
        Ok((verdict, der, Some(written)))
    }
}

/// The verdict on a signature of these bytes, the bytes, and others that may have been signed.
type Message = (CmsVerdict, Vec<u8>, Option<Vec<u8>>);

/// Hash functions for which anybody finds two messages with one digest.
const TOO_WEAK: [(ObjectIdentifier, &str); 2] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.2.5"), "MD5"),
    (ObjectIdentifier::new_unwrap("1.3.14.3.2.26"), "SHA-1"),
];

/// The message with LF and with CR LF at the ends of all lines, and the verdict if that is the one that was signed.
fn other_line_ends(content: &[u8]) -> [(CmsVerdict, Vec<u8>); 2] {
    let lines = || content.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let joined = |end: &[u8]| lines().collect::<Vec<_>>().join(end);
    [(CmsVerdict::LineFeeds, joined(b"\n")), (CmsVerdict::CarriageReturns, joined(b"\r\n"))]
}

/// Whether bytes look like attributes that a signer signs: a SET, with the type of a message's digest in it.
fn is_attributes(content: &[u8]) -> bool {
    let digest = MESSAGE_DIGEST.as_bytes();
    content.first() == Some(&0x31) && content.windows(digest.len()).any(|window| window == digest)
}

/// The attributes that are signed in place of a message.
struct Attributes {
    /// The message's digest.
    digest: Vec<u8>,
    /// All attributes, as they are signed.
    der: Vec<u8>,
    /// All attributes, in the order in which they are written.
    written: Vec<u8>,
}

/// Reads the message in CMS. The parser's `econtent` no longer knows whether the message came in segments (BER), so that two messages would be
/// the same bytes.
fn inside(bytes: &[u8]) -> der::Result<Option<Vec<u8>>> {
    /// SignedData up to its message.
    struct Message(Option<OctetString>);
    impl<'a> Decode<'a> for Message {
        type Error = der::Error;

        fn decode<R: Reader<'a>>(reader: &mut R) -> der::Result<Message> {
            reader.sequence(|reader| {
                Any::decode(reader)?; // version
                Any::decode(reader)?; // digestAlgorithms
                let message = reader.sequence(|reader| {
                    Any::decode(reader)?; // eContentType
                    ContextSpecific::<OctetString>::decode_explicit(reader, TagNumber(0))
                })?;
                while !reader.is_finished() {
                    Any::decode(reader)?;
                }
                Ok(Message(message.map(|tagged| tagged.value)))
            })
        }
    }
    let mut reader = SliceReader::new_with_encoding_rules(bytes, EncodingRules::Ber)?;
    let found = reader.sequence(|reader| {
        Any::decode(reader)?; // contentType
        ContextSpecific::<Message>::decode_explicit(reader, TagNumber(0))
    })?;
    Ok(found.and_then(|tagged| tagged.value.0).map(OctetString::into_bytes).map(Vec::from))
}

/// The hash function of this object identifier.
fn digest_of(oid: ObjectIdentifier) -> Option<PreHash> {
    PreHash::ALL.into_iter().find(|hash| ObjectIdentifier::from_der(hash.oid_der()) == Ok(oid))
}

impl SignedData {
    /// Verifies CMS by this key, which must be one of the signers, and nothing else. `detached` is the message if it is not inside.
    pub fn verify(
        &self,
        engine: &Engine,
        key: &VerifyingKey,
        detached: Option<&[u8]>,
    ) -> Result<CmsVerdict, X509Error> {
        let content = match (self.content(), detached) {
            (Some(content), None) | (None, Some(content)) => content,
            (inside, _) => return Err(X509Error::Content { is_inside: inside.is_some() }),
        };
        let oid = oid_of(key)?;
        let by_key = |signer: &&SignerInfo| signer.signature_algorithm.oid == oid;
        let signers: Vec<_> = self.parsed.signer_infos.0.iter().filter(by_key).collect();
        if signers.is_empty() {
            let mut others: Vec<_> = self.signers().map(|signer| signer.algorithm).take(8).collect();
            others.dedup();
            let signed = if others.is_empty() { "no signature".into() } else { others.join(", ") };
            return Err(X509Error::Algorithm { signed, key: name_of(oid) });
        }
        let (mut verdict, mut unread) = (CmsVerdict::Signature, None);
        for signer in signers {
            let signature = signer.signature.as_bytes();
            let has_parameters = signer.signature_algorithm.parameters.is_some();
            let form = check_form(SignedData::WHAT, has_parameters, signature, key);
            // One valid signer suffices: an error of another signer counts only if no signer is valid.
            let (of, message, written) = match form.and_then(|()| self.message(signer, content)) {
                Ok(message) => message,
                Err(why) => {
                    unread.get_or_insert(why);
                    continue;
                }
            };
            match (engine.verify(key, key.mode(&[]), &message, signature)?, of) {
                (true, CmsVerdict::Valid) => return Ok(CmsVerdict::Valid),
                (true, of) => verdict = of,
                (false, _) => {
                    let unsorted = |written| vec![(CmsVerdict::AttributeOrder, written)];
                    for (of, other) in written.map_or_else(|| other_line_ends(content).into(), unsorted) {
                        if engine.verify(key, key.mode(&[]), &other, signature)? {
                            verdict = of;
                        }
                    }
                }
            }
        }
        unread.map_or(Ok(verdict), Err)
    }
}
