//! Keys in PEM (RFC 7468). No standard encodes zkDilithium's keys, so the labels are our own and the contents are the raw
//! bytes.

use crate::keys::{KeyError, SigningKey, VerifyingKey};
use alloc::format;
use alloc::string::String;
use hypergrove_pem::{Pem, PemError, is_pem};
use pem_rfc7468::{LineEnding, encode_string};
use zeroize::Zeroizing;

/// The PEM label of private keys.
pub const PRIVATE_LABEL: &str = "ZKDILITHIUM PRIVATE KEY";
/// The PEM label of public keys.
pub const PUBLIC_LABEL: &str = "ZKDILITHIUM PUBLIC KEY";

/// Whether a file is PEM with keys of zkDilithium.
pub fn is_pem_of_zkdilithium(bytes: &[u8]) -> Result<bool, KeyError> {
    if !is_pem(bytes) {
        return Ok(false);
    }
    let pem = Pem::read(bytes)?;
    let any = |labels: &[&str]| labels.iter().any(|label| pem.has(label));
    match (any(&[PRIVATE_LABEL, PUBLIC_LABEL]), any(&["PRIVATE KEY", "PUBLIC KEY", "ENCRYPTED PRIVATE KEY"])) {
        (true, true) => Err(PemError::TwoSchemes.into()),
        (is_it, _) => Ok(is_it),
    }
}

fn none(what: &'static str, pem: &Pem<'_>) -> KeyError {
    KeyError::Malformed { what, why: format!("the file holds {}", pem.content()) }
}

fn encode(label: &str, bytes: &[u8]) -> String {
    encode_string(label, LineEnding::LF, bytes).expect("a key's length fits")
}

impl SigningKey {
    /// Reads a private key in PEM, and [checks](SigningKey::check) it. A public key in the same file must be the private key's own.
    pub fn read_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
        let pem = Pem::read(pem)?;
        let bytes = pem.block(PRIVATE_LABEL)?.ok_or_else(|| none("a zkDilithium private key in PEM", &pem))?;
        let key = SigningKey::from_bytes(&bytes)?;
        key.check()?;
        match pem.block(PUBLIC_LABEL)? {
            Some(public) if key.verifying_key().as_bytes() != public.as_slice() => Err(KeyError::PublicKeyMismatch),
            _ => Ok(key),
        }
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(encode(PRIVATE_LABEL, &self.to_bytes()))
    }
}

impl VerifyingKey {
    /// Reads a public key in PEM. A private key in the same file must have this public key.
    pub fn read_pem(pem: &[u8]) -> Result<VerifyingKey, KeyError> {
        let blocks = Pem::read(pem)?;
        let bytes = blocks.block(PUBLIC_LABEL)?.ok_or_else(|| none("a zkDilithium public key in PEM", &blocks))?;
        if blocks.has(PRIVATE_LABEL) {
            SigningKey::read_pem(pem)?;
        }
        VerifyingKey::from_bytes(&bytes)
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> String {
        encode(PUBLIC_LABEL, self.as_bytes())
    }
}
