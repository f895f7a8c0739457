//! Keys in files: PKCS#8 and SPKI, PEM and DER (RFC 9909).
//!
//! The traits of `pkcs8` and `spki` are implemented; their errors cannot name a set or a length, so each direction
//! also has a method of our own that reports a [`KeyError`].

use crate::fields::{check_nested, check_pkcs8, check_spki, is_encrypted};
use crate::keys::{KeyError, SigningKey, VerifyingKey};
use crate::params::{PARAMETER_SETS, Params};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use der::asn1::{BitStringRef, ObjectIdentifier, OctetStringRef};
use der::pem::PemLabel;
use der::{AnyRef, Decode, Document, SecretDocument};
use hypergrove_pem::{Pem, PemError, is_pem};
use pkcs8::{EncodePrivateKey, PrivateKeyInfoRef};
use spki::{AlgorithmIdentifierRef, EncodePublicKey, SubjectPublicKeyInfoRef};
use zeroize::Zeroizing;

/// sigAlgs, 2.16.840.1.101.3.4.3: the arc above the sets' identifiers.
const SIG_ALGS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3");
/// HashSLH-DSA's identifiers come so many arcs after SLH-DSA's, in the same order.
const HASH_ARCS: u8 = 15;
const PKCS8: &str = "a PKCS#8 private key";
const SPKI: &str = "an SPKI public key";
pub(crate) const PRIVATE: &str = PrivateKeyInfoRef::PEM_LABEL;
pub(crate) const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
const PUBLIC: &str = SubjectPublicKeyInfoRef::PEM_LABEL;

impl Params {
    /// The object identifier of the set's keys and signatures, if it has one.
    pub fn oid(&self) -> Option<ObjectIdentifier> {
        self.oid_arc().map(|arc| SIG_ALGS.push_arc(arc.into()).expect("ten arcs fit"))
    }
    /// The set of this object identifier.
    pub fn by_oid(oid: ObjectIdentifier) -> Option<&'static Params> {
        PARAMETER_SETS.iter().copied().find(|p| p.oid() == Some(oid))
    }
    /// The object identifier of the set's HashSLH-DSA keys, if it has one.
    pub fn hash_oid(&self) -> Option<ObjectIdentifier> {
        self.oid_arc().map(|arc| SIG_ALGS.push_arc(u32::from(arc + HASH_ARCS)).expect("ten arcs fit"))
    }
    fn algorithm(&self, is_hash: bool) -> Result<AlgorithmIdentifierRef<'static>, KeyError> {
        let oid = if is_hash { self.hash_oid() } else { self.oid() };
        Ok(AlgorithmIdentifierRef { oid: oid.ok_or(KeyError::NoOid { set: self.name })?, parameters: None })
    }
    /// The set, and whether it is of HashSLH-DSA.
    fn by_algorithm(algorithm: &AlgorithmIdentifierRef<'_>) -> Result<(&'static Params, bool), KeyError> {
        let oid = algorithm.oid;
        let hashed = || PARAMETER_SETS.iter().copied().find(|p| p.hash_oid() == Some(oid)).map(|p| (p, true));
        let found = Params::by_oid(oid).map(|p| (p, false)).or_else(hashed);
        let (p, is_hash) = found.ok_or_else(|| KeyError::UnknownOid { oid: oid.to_string() })?;
        if algorithm.parameters.is_some() { Err(KeyError::Parameters { set: p.name }) } else { Ok((p, is_hash)) }
    }
}

/// Makes the error of bytes that are not `what`, from the reason.
pub(crate) fn malformed<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> KeyError {
    move |error| KeyError::Malformed { what, why: error.to_string() }
}

/// A key's DER.
pub(crate) enum Der<'a> {
    Given(&'a [u8]),
    Decoded(Zeroizing<Vec<u8>>),
}

impl AsRef<[u8]> for Der<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Der::Given(bytes) => bytes,
            Der::Decoded(bytes) => bytes,
        }
    }
}

/// The DER in `bytes`, which may be PEM with this label. With a private key, there may be its public key in the PEM.
pub(crate) fn der_of<'a>(
    what: &'static str,
    label: &'static str,
    bytes: &'a [u8],
) -> Result<(Der<'a>, Option<VerifyingKey>), KeyError> {
    if !is_pem(bytes) {
        return Ok((Der::Given(bytes), None));
    }
    let pem = Pem::read(bytes)?;
    if pem.has(PRIVATE) && pem.has(ENCRYPTED) {
        return Err(PemError::TwoKeys.into());
    }
    let Some(der) = pem.block(label)? else {
        return Err(match label == PRIVATE && pem.block(ENCRYPTED)?.is_some() {
            true => KeyError::Encrypted,
            false => KeyError::Malformed { what, why: format!("the file holds {}", pem.content()) },
        });
    };
    let public = if label == PUBLIC { None } else { pem.block(PUBLIC)? };
    let public = public.map(|der| VerifyingKey::read_der(&der)).transpose()?;
    Ok((Der::Decoded(der), public))
}

impl SigningKey {
    /// Reads a PKCS#8 private key, PEM or DER. A public key in it (version 2), or in the same PEM file, must be the private key's own.
    pub fn read_pkcs8(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        let (der, public) = der_of(PKCS8, PRIVATE, bytes)?;
        SigningKey::read_der(der.as_ref())?.with(public)
    }
    /// Reads DER.
    pub(crate) fn read_der(der: &[u8]) -> Result<SigningKey, KeyError> {
        if is_encrypted(der) {
            return Err(KeyError::Encrypted);
        }
        check_pkcs8(der).map_err(malformed(PKCS8))?;
        SigningKey::from_info(&PrivateKeyInfoRef::from_der(der).map_err(malformed(PKCS8))?)
    }
    /// The key, if this is its public key.
    pub(crate) fn with(self, public: Option<VerifyingKey>) -> Result<SigningKey, KeyError> {
        match public {
            Some(public) if public != self.verifying_key() => {
                Err(KeyError::PublicKeyMismatch { set: self.params().name })
            }
            _ => Ok(self),
        }
    }
    fn from_info(info: &PrivateKeyInfoRef<'_>) -> Result<SigningKey, KeyError> {
        let (p, is_hash) = Params::by_algorithm(&info.algorithm)?;
        let bytes = info.private_key.as_bytes();
        check_nested(PKCS8, "`privateKey`", bytes, p.sk_bytes())?;
        let key = SigningKey::from_bytes(p, bytes)?;
        let key = if is_hash { key.into_hash_slh_dsa() } else { key };
        match &info.public_key {
            Some(public) if public.as_bytes() != Some(&key.verifying_key().to_bytes()) => {
                Err(KeyError::PublicKeyMismatch { set: p.name })
            }
            _ => Ok(key),
        }
    }
    /// The key as a PKCS#8 document, version 1; [`SecretDocument::to_pem`] makes PEM of it.
    pub fn write_pkcs8(&self) -> Result<SecretDocument, KeyError> {
        let (algorithm, bytes) = (self.params().algorithm(self.prehash().is_some())?, self.to_bytes());
        let key = OctetStringRef::new(&bytes).map_err(malformed(PKCS8))?;
        SecretDocument::encode_msg(&PrivateKeyInfoRef::new(algorithm, key)).map_err(malformed(PKCS8))
    }
}

impl VerifyingKey {
    /// Reads an SPKI public key, PEM or DER. A private key in the same PEM file must have this public key, unless it is encrypted.
    pub fn read_spki(bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        let (der, _) = der_of(SPKI, PUBLIC, bytes)?;
        let key = VerifyingKey::read_der(der.as_ref())?;
        match &der {
            Der::Decoded(_) if Pem::read(bytes)?.has(PRIVATE) => SigningKey::read_pkcs8(bytes).map(|_| key),
            _ => Ok(key),
        }
    }
    /// Reads DER.
    fn read_der(der: &[u8]) -> Result<VerifyingKey, KeyError> {
        check_spki(der).map_err(malformed(SPKI))?;
        VerifyingKey::from_info(&SubjectPublicKeyInfoRef::from_der(der).map_err(malformed(SPKI))?)
    }
    fn from_info(info: &SubjectPublicKeyInfoRef<'_>) -> Result<VerifyingKey, KeyError> {
        let (p, is_hash) = Params::by_algorithm(&info.algorithm)?;
        let odd_bits = || KeyError::Malformed {
            what: SPKI,
            why: String::from("the bits of its field `subjectPublicKey` are no whole bytes"),
        };
        let bytes = info.subject_public_key.as_bytes().ok_or_else(odd_bits)?;
        check_nested(SPKI, "`subjectPublicKey`", bytes, p.pk_bytes())?;
        let key = VerifyingKey::from_bytes(p, bytes)?;
        Ok(if is_hash { key.into_hash_slh_dsa() } else { key })
    }
    /// The key as an SPKI document; [`Document::to_pem`] makes PEM of it.
    pub fn write_spki(&self) -> Result<Document, KeyError> {
        let (algorithm, bytes) = (self.params().algorithm(self.prehash().is_some())?, self.to_bytes());
        let subject_public_key = BitStringRef::from_bytes(&bytes).map_err(malformed(SPKI))?;
        let info = spki::SubjectPublicKeyInfo::<AnyRef<'_>, _> { algorithm, subject_public_key };
        Document::encode_msg(&info).map_err(malformed(SPKI))
    }
}

impl TryFrom<PrivateKeyInfoRef<'_>> for SigningKey {
    type Error = pkcs8::Error;
    fn try_from(info: PrivateKeyInfoRef<'_>) -> pkcs8::Result<SigningKey> {
        SigningKey::from_info(&info).map_err(|error| match error {
            KeyError::UnknownOid { .. } => spki::Error::OidUnknown { oid: info.algorithm.oid }.into(),
            error => pkcs8_error(&error),
        })
    }
}

impl EncodePrivateKey for SigningKey {
    fn to_pkcs8_der(&self) -> pkcs8::Result<SecretDocument> {
        self.write_pkcs8().map_err(|error| pkcs8_error(&error))
    }
}

impl TryFrom<SubjectPublicKeyInfoRef<'_>> for VerifyingKey {
    type Error = spki::Error;
    fn try_from(info: SubjectPublicKeyInfoRef<'_>) -> spki::Result<VerifyingKey> {
        VerifyingKey::from_info(&info).map_err(|error| match error {
            KeyError::UnknownOid { .. } => spki::Error::OidUnknown { oid: info.algorithm.oid },
            _ => spki::Error::KeyMalformed,
        })
    }
}

impl EncodePublicKey for VerifyingKey {
    fn to_public_key_der(&self) -> spki::Result<Document> {
        self.write_spki().map_err(|_| spki::Error::KeyMalformed)
    }
}

/// The nearest that `pkcs8` has.
fn pkcs8_error(error: &KeyError) -> pkcs8::Error {
    match error {
        KeyError::Parameters { .. } => pkcs8::Error::ParametersMalformed,
        KeyError::Length { want, got, .. } if got < want => pkcs8::KeyError::TooShort.into(),
        KeyError::Length { .. } => pkcs8::KeyError::TooLong.into(),
        _ => pkcs8::KeyError::Invalid.into(),
    }
}
