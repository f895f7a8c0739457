//! Fingerprints of public keys, and public keys as single words.

use crate::keys::VerifyingKey;
use base64ct::{Base64, Base64Unpadded, Encoding};
use hypergrove_fips205::{KeyError, PreHash};
use pkcs8::spki::EncodePublicKey;
use std::fmt;
use std::str::FromStr;

/// The name of a public key: the SHA-256 of its SPKI in DER, which other tools can compute from a key file. It is shown as `SHA256:`
/// and base64 without padding, as OpenSSH shows its keys.
///
/// A key without SPKI (of a scheme or set that has no object identifier) has the SHA-256 of its set's name, a zero byte and the raw key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = PreHash::Sha256.hasher();
        parts.iter().for_each(|part| hasher.update(part));
        Fingerprint(hasher.finish().try_into().expect("SHA-256 has 32 bytes"))
    }
    /// The fingerprint of a key without SPKI.
    pub(crate) fn of_raw(name: &str, key: &[u8]) -> Fingerprint {
        Fingerprint::of(&[name.as_bytes(), &[0], key])
    }
    /// The hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", Base64Unpadded::encode_string(&self.0))
    }
}

/// Reads a fingerprint as it is shown, and in no other spelling.
impl FromStr for Fingerprint {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Fingerprint, KeyError> {
        let why = |why: String| KeyError::Malformed { what: "a fingerprint", why };
        let letters = text.strip_prefix("SHA256:").ok_or_else(|| why("it does not begin with SHA256:".into()))?;
        let mut bytes = [0; 32];
        let length = Base64Unpadded::decode(letters, &mut bytes).map_err(|error| why(error.to_string()))?.len();
        match length == bytes.len() {
            true => Ok(Fingerprint(bytes)),
            false => Err(why(format!("it has {length} bytes, SHA-256 has 32"))),
        }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl VerifyingKey {
    /// The fingerprint, by which people and programs recognise the key.
    pub fn fingerprint(&self) -> Fingerprint {
        match self.to_public_key_der() {
            Ok(spki) => Fingerprint::of(&[spki.as_bytes()]),
            Err(_) => Fingerprint::of_raw(self.params().name, &self.to_bytes()),
        }
    }
    /// The key as one word: the base64 of its SPKI in DER, without line breaks.
    pub fn to_base64(&self) -> Result<String, KeyError> {
        Ok(Base64::encode_string(self.as_ref().write_spki()?.as_bytes()))
    }
    /// Reads a key that [`VerifyingKey::to_base64`] has written.
    pub fn from_base64(word: &str) -> Result<VerifyingKey, KeyError> {
        let why =
            |error: base64ct::Error| KeyError::Malformed { what: "a public key in base64", why: error.to_string() };
        VerifyingKey::read_spki(&Base64::decode_vec(word).map_err(why)?)
    }
}
