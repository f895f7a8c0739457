//! Keys in PEM (RFC 7468). No standard encodes zkDilithium's keys, so the labels are our own and the contents are the raw
//! bytes.

use crate::keys::{KeyError, SigningKey, VerifyingKey};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use pem_rfc7468::{LineEnding, encode_string};
use zeroize::Zeroizing;

/// The PEM label of private keys.
pub const PRIVATE_LABEL: &str = "ZKDILITHIUM PRIVATE KEY";
/// The PEM label of public keys.
pub const PUBLIC_LABEL: &str = "ZKDILITHIUM PUBLIC KEY";
/// Characters of a PEM label that an error quotes.
const LONGEST_LABEL: usize = 64;

fn decode(what: &'static str, label: &str, pem: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let malformed = |why: String| KeyError::Malformed { what, why };
    // Wiped where the decoder gives up halfway, too.
    let mut bytes = Zeroizing::new(vec![0; pem.len()]);
    let (found, decoded) = pem_rfc7468::decode(pem, &mut bytes).map_err(|error| malformed(error.to_string()))?;
    let length = decoded.len();
    bytes.truncate(length);
    if found != label {
        // A label may be as long as the file.
        let found = found.chars().take(LONGEST_LABEL).collect::<String>();
        return Err(malformed(format!("its PEM label is {found:?}, not {label:?}")));
    }
    Ok(bytes)
}

fn encode(label: &str, bytes: &[u8]) -> String {
    encode_string(label, LineEnding::LF, bytes).expect("a key's length fits")
}

impl SigningKey {
    /// Reads a private key in PEM, and [checks](SigningKey::check) it.
    pub fn read_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
        let key = SigningKey::from_bytes(&decode("a zkDilithium private key in PEM", PRIVATE_LABEL, pem)?)?;
        key.check()?;
        Ok(key)
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(encode(PRIVATE_LABEL, &self.to_bytes()))
    }
}

impl VerifyingKey {
    /// Reads a public key in PEM.
    pub fn read_pem(pem: &[u8]) -> Result<VerifyingKey, KeyError> {
        VerifyingKey::from_bytes(&decode("a zkDilithium public key in PEM", PUBLIC_LABEL, pem)?)
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> String {
        encode(PUBLIC_LABEL, self.as_bytes())
    }
}
