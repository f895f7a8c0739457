//! Keys in files: OpenSSL's encoders and decoders (RFC 9909).

use crate::abi::{Bio, Given, Passphrase};
use crate::algorithms::Named;
use crate::failure::{Failure, Reason};
use crate::key::{Key, Material};
use crate::provider::Provider;
use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::quote::Quote;
use hypergrove::{PassphraseKdf, SigningKey, VerifyingKey};
use std::ffi::CStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The structure of a key in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Structure {
    PrivateKey,
    EncryptedPrivateKey,
    PublicKey,
    /// Text for people.
    Text,
}

/// A form in which keys are written.
pub(crate) struct Form {
    pub(crate) structure: Structure,
    pub(crate) is_pem: bool,
    /// OpenSSL's properties of the encoder.
    pub(crate) properties: &'static CStr,
}

/// All forms. Their number here is what `abi` knows them by. Of several that fit, OpenSSL takes the last.
pub(crate) static FORMS: [Form; 7] = {
    const fn form(structure: Structure, is_pem: bool, properties: &'static CStr) -> Form {
        Form { structure, is_pem, properties }
    }
    [
        form(
            Structure::EncryptedPrivateKey,
            false,
            c"provider=hypergrove,output=der,structure=EncryptedPrivateKeyInfo",
        ),
        form(Structure::EncryptedPrivateKey, true, c"provider=hypergrove,output=pem,structure=EncryptedPrivateKeyInfo"),
        form(Structure::PrivateKey, false, c"provider=hypergrove,output=der,structure=PrivateKeyInfo"),
        form(Structure::PrivateKey, true, c"provider=hypergrove,output=pem,structure=PrivateKeyInfo"),
        form(Structure::PublicKey, false, c"provider=hypergrove,output=der,structure=SubjectPublicKeyInfo"),
        form(Structure::PublicKey, true, c"provider=hypergrove,output=pem,structure=SubjectPublicKeyInfo"),
        form(Structure::Text, false, c"provider=hypergrove,output=text"),
    ]
};

/// The structures that are read. Their number here is what `abi` knows them by. OpenSSL's own provider reads PEM and decrypts.
pub(crate) const READ: [(Structure, &CStr); 2] = [
    (Structure::PrivateKey, c"provider=hypergrove,input=der,structure=PrivateKeyInfo"),
    (Structure::PublicKey, c"provider=hypergrove,input=der,structure=SubjectPublicKeyInfo"),
];

impl Structure {
    /// Whether this structure has what is selected.
    pub(crate) fn has(self, private: bool, public: bool) -> bool {
        match self {
            Structure::PrivateKey | Structure::EncryptedPrivateKey => private || !public,
            // OpenSSL wants the private key where it is selected, and not the public one alone.
            Structure::PublicKey => !private,
            Structure::Text => true,
        }
    }
}

/// A key that is to be written.
pub(crate) struct Encoder {
    pub(crate) provider: Arc<Provider>,
    pub(crate) form: &'static Form,
    /// The cipher that the caller names.
    cipher: Option<String>,
}

/// The parameter that names a cipher.
pub(crate) const CIPHER: &CStr = c"cipher";

impl Encoder {
    pub(crate) fn new(provider: Arc<Provider>, form: &'static Form) -> Encoder {
        Encoder { provider, form, cipher: None }
    }

    pub(crate) fn set(&mut self, given: Given<'_>) -> Result<(), Failure> {
        if let Some(cipher) = given.text(CIPHER)? {
            // No name means no cipher.
            self.cipher = Some(cipher.to_string()).filter(|cipher| !cipher.is_empty());
        }
        Ok(())
    }

    /// Writes a key.
    pub(crate) fn encode(&self, key: &Key, private: bool, out: &mut Bio, ask: &Passphrase) -> Result<(), Failure> {
        let material = key.some_material()?;
        let secret = || {
            let public = || Failure::new(Reason::NoKey, "this is a public key; a private key is to be written");
            material.private.as_ref().ok_or_else(public)
        };
        let (public, line_ending) = (&material.public, LineEnding::LF);
        let bytes: Zeroizing<Vec<u8>> = match (self.form.structure, self.form.is_pem, &self.cipher) {
            (Structure::Text, ..) => Zeroizing::new(key.text(private)?.as_bytes().to_vec()),
            (Structure::PublicKey, true, _) => {
                Zeroizing::new(public.to_public_key_pem(line_ending).map_err(unwritten)?.into_bytes())
            }
            (Structure::PublicKey, false, _) => {
                Zeroizing::new(public.to_public_key_der().map_err(unwritten)?.into_vec())
            }
            (Structure::PrivateKey, true, None) => {
                Zeroizing::new(secret()?.to_pkcs8_pem(line_ending).map_err(unwritten)?.as_bytes().to_vec())
            }
            (Structure::PrivateKey, false, None) => secret()?.to_pkcs8_der().map_err(unwritten)?.to_bytes(),
            (Structure::EncryptedPrivateKey, _, None) => {
                return Err(Failure::new(Reason::Encryption, "no cipher is named; name aes-256-cbc"));
            }
            (_, is_pem, Some(cipher)) => Zeroizing::new(encrypted(secret()?, cipher, is_pem, ask)?),
        };
        out.write(&bytes)
    }
}

/// The failure to write a key, from its reason.
fn unwritten(error: impl std::fmt::Display) -> Failure {
    Failure::new(Reason::Key, error.to_string())
}

fn encrypted(key: &SigningKey, cipher: &str, is_pem: bool, ask: &Passphrase) -> Result<Vec<u8>, Failure> {
    if !["aes-256-cbc", "aes256"].iter().any(|known| cipher.eq_ignore_ascii_case(known)) {
        let known = ["aes-128-cbc", "aes-192-cbc", "aes-256-gcm", "des-ede3-cbc"];
        let named = Quote::name(cipher, known);
        let what = format!(
            "private keys are encrypted with aes-256-cbc alone, and {named} is named; name aes-256-cbc, or write the key without a cipher and \
             encrypt it by `openssl pkcs8 -topk8 -v2 CIPHER`"
        );
        return Err(Failure::new(Reason::Encryption, what));
    }
    // OpenSSL reads this by default, and so do its older releases.
    let encrypted = key.encrypt(&ask.ask()?, PassphraseKdf::Pbkdf2)?;
    Ok(match is_pem {
        true => encrypted.to_pem(LineEnding::LF)?.into_bytes(),
        false => encrypted.to_der()?.into_vec(),
    })
}

/// A key that is to be read.
pub(crate) struct Decoder {
    pub(crate) provider: Arc<Provider>,
    named: &'static Named,
    structure: Structure,
}

/// More than any key of any set in DER, with room for attributes.
const LONGEST: usize = 1 << 14;

impl Decoder {
    pub(crate) fn new(provider: Arc<Provider>, named: &'static Named, structure: Structure) -> Decoder {
        Decoder { provider, named, structure }
    }

    pub(crate) fn named(&self) -> &'static Named {
        self.named
    }

    /// Reads a key. `None` if the input is something else, which another decoder may know.
    pub(crate) fn decode(&self, from: &mut Bio) -> Result<Option<Key>, Failure> {
        let Some(der) = one_sequence(from) else { return Ok(None) };
        if !self.is_meant(&der) {
            return Ok(None);
        }
        let material: Material = match self.structure {
            Structure::PublicKey => VerifyingKey::read_spki(&der)?.into(),
            _ => SigningKey::read_pkcs8(&der)?.into(),
        };
        Ok(Some(Key::new(self.provider.clone(), self.named, material)))
    }

    /// Whether the DER is this structure with this algorithm, by its first bytes: a sequence that begins with the algorithm, or with a version,
    /// even one that does not exist, and the algorithm.
    fn is_meant(&self, der: &[u8]) -> bool {
        let Some(content) = header(der).map(|(header, _)| &der[header..]) else { return false };
        let content = match (self.structure, content) {
            (Structure::PublicKey, content) => content,
            (_, [2, 1, _, content @ ..]) => content,
            _ => return false,
        };
        // Parameters are an error of this algorithm's key, so the sequence's length is not compared.
        let identifier = &self.named.identifier;
        content.first() == Some(&identifier[0]) && content.get(2..identifier.len()) == Some(&identifier[2..])
    }
}

/// The bytes of a sequence's header and of its content.
fn header(der: &[u8]) -> Option<(usize, usize)> {
    match *der {
        [0x30, short @ 0..=0x7f, ..] => Some((2, short.into())),
        [0x30, 0x81, length, ..] => Some((3, length.into())),
        [0x30, 0x82, high, low, ..] => Some((4, usize::from(high) << 8 | usize::from(low))),
        _ => None,
    }
}

/// Reads one sequence of DER, and no byte after it, which belongs to the next reader.
fn one_sequence(from: &mut Bio) -> Option<Zeroizing<Vec<u8>>> {
    let mut der = Zeroizing::new(vec![0; 4]);
    if from.read(&mut der[..2]) < 2 || der[0] != 0x30 {
        return None;
    }
    let long = match der[1] {
        0..=0x7f => 0,
        0x81 => 1,
        0x82 => 2,
        _ => return None,
    };
    if from.read(&mut der[2..2 + long]) < long {
        return None;
    }
    let (header, content) = header(&der)?;
    if header + content > LONGEST {
        return None;
    }
    let mut whole = Zeroizing::new(vec![0; header + content]);
    whole[..header].copy_from_slice(&der[..header]);
    (from.read(&mut whole[header..]) == content).then_some(whole)
}
