//! Private keys under a passphrase: PKCS#8 EncryptedPrivateKeyInfo with PBES2 (RFC 5958, section 3, and RFC 8018).
//!
//! Everything here works on the caller's stack and leaves parts of the key there: the crate above wipes it.

use crate::encoding::{ENCRYPTED as LABEL, der_of, malformed};
use crate::fields::is_encrypted;
use crate::keys::{KeyError, SigningKey, VerifyingKey};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use der::asn1::{ObjectIdentifier, OctetStringRef, UintRef};
use der::pem::LineEnding;
use der::{AnyRef, Decode, Document, Reader};
use hypergrove_pem::is_sequence;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5;
use pkcs8::pkcs5::pbes2::{self, EncryptionScheme, Kdf, Parameters, Pbkdf2Params, Pbkdf2Prf, ScryptParams};
use spki::AlgorithmIdentifierRef;
use zeroize::Zeroizing;

const ENCRYPTED: &str = "an encrypted PKCS#8 private key";
/// The block of AES.
const BLOCK: usize = 16;

/// The key derivation function, which makes guessing a passphrase expensive. The costs are those that OWASP recommends (2023).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum PassphraseKdf {
    /// scrypt (RFC 7914) with N = 2^14, r = 8 and p = 5: 16 MiB of memory. OpenSSL reads no larger N.
    #[default]
    Scrypt,
    /// PBKDF2 (RFC 8018) with HMAC-SHA-256 and 600,000 iterations, for readers without scrypt.
    Pbkdf2,
}

impl PassphraseKdf {
    /// scrypt's N, r and p.
    const SCRYPT: (u64, u16, u16) = (1 << 14, 8, 5);
    const ITERATIONS: u32 = 600_000;
}

/// A private key under a passphrase. It is no secret as long as the passphrase is a good one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncryptedSigningKey {
    parameters: Parameters,
    data: Vec<u8>,
    /// The public key that lies next to the private key in its PEM file.
    public: Option<VerifyingKey>,
}

impl EncryptedSigningKey {
    /// scrypt's N·r at most when a key is read: its memory is 128 times that, 256 MiB.
    pub const MAX_SCRYPT_MEMORY: u64 = 1 << 21;
    /// scrypt's N·r·p at most when a key is read: eight times what OWASP recommends, some seconds. By themselves, r and p are at most
    /// 65,535: the decoder has no room for more.
    pub const MAX_SCRYPT_WORK: u64 = 1 << 23;
    /// PBKDF2's iterations at most when a key is read: some seconds.
    pub const MAX_ITERATIONS: u32 = 10_000_000;

    /// Whether the bytes, PEM or DER, are meant as an encrypted private key: they may be damaged.
    pub fn looks_like_it(bytes: &[u8]) -> bool {
        match der_of(ENCRYPTED, LABEL, bytes) {
            Ok((der, _)) => is_encrypted(der.as_ref()),
            Err(_) => false,
        }
    }

    /// Reads an EncryptedPrivateKeyInfo, PEM or DER. Costs above the limits, and schemes other than PBES2 with scrypt or
    /// PBKDF2 and AES-CBC, are refused here, before a passphrase is needed.
    pub fn read(bytes: &[u8]) -> Result<EncryptedSigningKey, KeyError> {
        let (der, public) = der_of(ENCRYPTED, LABEL, bytes)?;
        supported(der.as_ref()).map_err(malformed(ENCRYPTED))??;
        let info = EncryptedPrivateKeyInfoRef::from_der(der.as_ref()).map_err(malformed(ENCRYPTED))?;
        let pkcs5::EncryptionScheme::Pbes2(parameters) = info.encryption_algorithm else {
            return Err(KeyError::Encryption { scheme: String::from("PBES1") });
        };
        check_costs(&parameters)?;
        Ok(EncryptedSigningKey { parameters, data: info.encrypted_data.as_bytes().to_vec(), public })
    }

    /// Encrypts a key with AES-256-CBC. Salt and initialization vector must be random and new for each key and passphrase.
    pub fn encrypt(
        key: &SigningKey,
        passphrase: &[u8],
        kdf: PassphraseKdf,
        salt: &[u8; 16],
        iv: [u8; 16],
    ) -> Result<EncryptedSigningKey, KeyError> {
        let salt = pbes2::Salt::new(salt).map_err(malformed(ENCRYPTED))?;
        let kdf: Kdf = match kdf {
            PassphraseKdf::Scrypt => {
                let (cost_parameter, block_size, parallelization) = PassphraseKdf::SCRYPT;
                ScryptParams { salt, cost_parameter, block_size, parallelization, key_length: None }.into()
            }
            PassphraseKdf::Pbkdf2 => {
                let prf = Pbkdf2Prf::HmacWithSha256;
                Pbkdf2Params { salt, iteration_count: PassphraseKdf::ITERATIONS, key_length: None, prf }.into()
            }
        };
        let parameters = Parameters { kdf, encryption: EncryptionScheme::Aes256Cbc { iv } };
        let document = key.write_pkcs8()?;
        let plain = document.as_bytes();
        // Encrypted where it is: what is left of the room afterwards is wiped.
        let mut room = Zeroizing::new(vec![0; plain.len() + BLOCK]);
        room[..plain.len()].copy_from_slice(plain);
        let data =
            parameters.encrypt_in_place(passphrase, &mut room, plain.len()).map_err(malformed(ENCRYPTED))?.to_vec();
        Ok(EncryptedSigningKey { parameters, data, public: None })
    }

    /// Decrypts the key. A wrong passphrase and damaged data cannot be distinguished. A public key in the same PEM file must be the private
    /// key's own.
    pub fn decrypt(&self, passphrase: &[u8]) -> Result<SigningKey, KeyError> {
        self.decrypt_der(passphrase, SigningKey::read_der)?.with(self.public.clone())
    }

    /// Hands the DER of the decrypted PrivateKeyInfo, which is a SEQUENCE, to `read`, and wipes it afterwards.
    pub fn decrypt_der<R>(
        &self,
        passphrase: &[u8],
        read: impl FnOnce(&[u8]) -> Result<R, KeyError>,
    ) -> Result<R, KeyError> {
        let mut room = Zeroizing::new(self.data.clone());
        let der = self.parameters.decrypt_in_place(passphrase, &mut room).map_err(|error| match error {
            pkcs5::Error::DecryptFailed => KeyError::Passphrase,
            error => KeyError::Encryption { scheme: error.to_string() },
        })?;
        // One of 256 wrong passphrases gives bytes that end as padding does.
        if is_sequence(der) { read(der) } else { Err(KeyError::Passphrase) }
    }

    /// The key as a document; [`Document::to_pem`] makes PEM of it.
    pub fn to_der(&self) -> Result<Document, KeyError> {
        Document::encode_msg(&EncryptedPrivateKeyInfoRef {
            encryption_algorithm: self.parameters.clone().into(),
            encrypted_data: OctetStringRef::new(&self.data).map_err(malformed(ENCRYPTED))?,
        })
        .map_err(malformed(ENCRYPTED))
    }

    /// The key as PEM, `ENCRYPTED PRIVATE KEY`.
    pub fn to_pem(&self, line_ending: LineEnding) -> Result<String, KeyError> {
        self.to_der()?.to_pem(LABEL, line_ending).map_err(malformed(ENCRYPTED))
    }
}

/// How it is encrypted, for example `scrypt (N = 16384, r = 8, p = 5), AES-256-CBC`.
impl fmt::Display for EncryptedSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parameters.kdf {
            Kdf::Scrypt(ScryptParams { cost_parameter, block_size, parallelization, .. }) => {
                write!(f, "scrypt (N = {cost_parameter}, r = {block_size}, p = {parallelization})")?;
            }
            Kdf::Pbkdf2(Pbkdf2Params { iteration_count, prf, .. }) => {
                let bits = match prf {
                    Pbkdf2Prf::HmacWithSha224 => 224,
                    Pbkdf2Prf::HmacWithSha384 => 384,
                    Pbkdf2Prf::HmacWithSha512 => 512,
                    _ => 256,
                };
                write!(f, "PBKDF2 (HMAC-SHA-{bits}, {iteration_count} iterations)")?;
            }
            _ => f.write_str("PBES2")?,
        }
        write!(f, ", AES-{}-CBC", 8 * self.parameters.encryption.key_size())
    }
}

/// Refuses, by name, the schemes that nobody reads here. The decoder does not name them.
fn supported(der: &[u8]) -> der::Result<Result<(), KeyError>> {
    fn algorithm<'a>(bytes: AnyRef<'a>) -> der::Result<AlgorithmIdentifierRef<'a>> {
        bytes.decode_as()
    }
    let unsupported = |oid: ObjectIdentifier| Ok(Err(KeyError::Encryption { scheme: scheme_name(oid) }));
    let outer = AnyRef::from_der(der)?;
    outer.sequence(|reader| {
        let scheme = algorithm(reader.decode()?)?;
        let _data: AnyRef<'_> = reader.decode()?;
        if scheme.oid != pbes2::PBES2_OID {
            return unsupported(scheme.oid);
        }
        let Some(parameters) = scheme.parameters else { return Ok(Ok(())) };
        parameters.sequence(|reader| {
            let (kdf, cipher) = (algorithm(reader.decode()?)?, algorithm(reader.decode()?)?);
            if ![pbes2::PBKDF2_OID, pbes2::SCRYPT_OID].contains(&kdf.oid) {
                return unsupported(kdf.oid);
            }
            if ![pbes2::AES_128_CBC_OID, pbes2::AES_192_CBC_OID, pbes2::AES_256_CBC_OID].contains(&cipher.oid) {
                return unsupported(cipher.oid);
            }
            check_room(&kdf)
        })
    })
}

/// Refuses costs that the decoder's numbers have no room for. The decoder would say that this is no key.
fn check_room(kdf: &AlgorithmIdentifierRef<'_>) -> der::Result<Result<(), KeyError>> {
    // The name of each number, its bytes at most, and the limit.
    let numbers = match kdf.oid {
        pbes2::SCRYPT_OID => vec![
            ("scrypt with N", 8, format!("N·r = {}", EncryptedSigningKey::MAX_SCRYPT_MEMORY)),
            ("scrypt with r", 2, format!("r = {}", u16::MAX)),
            ("scrypt with p", 2, format!("p = {}", u16::MAX)),
        ],
        _ => vec![("PBKDF2 with iterations", 4, format!("{}", EncryptedSigningKey::MAX_ITERATIONS))],
    };
    let Some(parameters) = kdf.parameters else { return Ok(Ok(())) };
    parameters.sequence(|reader| {
        let _salt: AnyRef<'_> = reader.decode()?;
        let mut checked = Ok(());
        for (name, room, limit) in numbers {
            let number = UintRef::decode(reader)?;
            if number.as_bytes().len() > room && checked.is_ok() {
                let value = number
                    .as_bytes()
                    .iter()
                    .try_fold(0u128, |value, byte| value.checked_mul(256).map(|value| value | u128::from(*byte)));
                let value = value.map_or("a number above 2^128".into(), |value| value.to_string());
                checked = Err(KeyError::Costly { cost: format!("{name} = {value}"), limit });
            }
        }
        while !reader.is_finished() {
            AnyRef::decode(reader)?;
        }
        Ok(checked)
    })
}

/// A scheme that others write and nobody should need any more, by its name.
fn scheme_name(oid: ObjectIdentifier) -> String {
    let name = match oid.to_string().as_str() {
        "1.2.840.113549.3.7" => "DES-EDE3-CBC",
        "1.3.14.3.2.7" => "DES-CBC",
        "2.16.840.1.101.3.4.1.6" => "AES-128-GCM",
        "2.16.840.1.101.3.4.1.26" => "AES-192-GCM",
        "2.16.840.1.101.3.4.1.46" => "AES-256-GCM",
        "1.2.840.113549.1.12.1.3" => "PKCS#12's SHA-1 and 3DES",
        _ => return format!("the algorithm {oid}"),
    };
    name.into()
}

/// A hostile file could ask for hours and for all memory.
fn check_costs(parameters: &Parameters) -> Result<(), KeyError> {
    let costly = |cost: String, limit: String| Err(KeyError::Costly { cost, limit });
    match &parameters.kdf {
        Kdf::Pbkdf2(params) => {
            if params.prf == Pbkdf2Prf::HmacWithSha1 {
                return Err(KeyError::Encryption { scheme: String::from("PBKDF2 with HMAC-SHA-1") });
            }
            let most = EncryptedSigningKey::MAX_ITERATIONS;
            match params.iteration_count {
                0 => Err(KeyError::Malformed { what: ENCRYPTED, why: String::from("PBKDF2 has no iterations") }),
                count if count > most => costly(format!("{count} iterations of PBKDF2"), format!("{most}")),
                _ => Ok(()),
            }
        }
        Kdf::Scrypt(ScryptParams { cost_parameter: n, block_size: r, parallelization: p, .. }) => {
            if !n.is_power_of_two() || *n < 2 || *r == 0 || *p == 0 {
                let why = format!("scrypt does not know N = {n}, r = {r}, p = {p}");
                return Err(KeyError::Malformed { what: ENCRYPTED, why });
            }
            let memory = n.saturating_mul((*r).into());
            let work = memory.saturating_mul((*p).into());
            let cost = || format!("scrypt with N = {n}, r = {r}, p = {p}");
            if memory > EncryptedSigningKey::MAX_SCRYPT_MEMORY {
                return costly(cost(), format!("N·r = {}", EncryptedSigningKey::MAX_SCRYPT_MEMORY));
            }
            if work > EncryptedSigningKey::MAX_SCRYPT_WORK {
                return costly(cost(), format!("N·r·p = {}", EncryptedSigningKey::MAX_SCRYPT_WORK));
            }
            Ok(())
        }
        _ => Err(KeyError::Encryption { scheme: parameters.kdf.oid().to_string() }),
    }
}
