//! Keys in files, whatever their form.

use crate::args::Encoding;
use crate::der::DER_SEQUENCE;
use crate::files::Source;
use crate::passphrase::PassphraseOptions;
use crate::x509;
use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::schemes::SchemeKey;
use hypergrove::{EncryptedSigningKey, KeyError, Params, SigningKey, SlhDsa, VerifyingKey, known_sets};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::Printer;
use hypergrove_lab::stopwatch::Timed;
use hypergrove_pem::{Pem, is_pem};
#[cfg(unix)]
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use zeroize::Zeroizing;

/// The tag of the version of a private key.
const DER_INTEGER: u8 = 0x02;

/// Half of a key pair, or all of it.
pub(crate) enum Key<S: Timed = SlhDsa> {
    Private(S::SigningKey),
    Public(S::VerifyingKey),
}

impl<S: Timed> Key<S> {
    pub(crate) fn params(&self) -> S::Set {
        match self {
            Key::Private(key) => key.scheme().set(),
            Key::Public(key) => key.scheme().set(),
        }
    }
    pub(crate) fn public(&self) -> S::VerifyingKey {
        match self {
            Key::Private(key) => S::public(key),
            Key::Public(key) => key.clone(),
        }
    }
}

/// The content of a file with a key.
pub(crate) struct LoadedKey<S: Timed = SlhDsa> {
    pub(crate) key: Key<S>,
    pub(crate) encoding: Encoding,
    /// How it was encrypted.
    pub(crate) encryption: Option<String>,
    /// The file without its PEM, decrypted.
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

/// A file with a key, of whatever scheme.
pub(crate) struct KeyFile<'a> {
    pub(crate) source: Source,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    /// Where its passphrase comes from, if it has one; None where nobody is to be asked.
    pub(crate) passphrase: Option<&'a PassphraseOptions>,
    /// Whether the user was warned that others may read it.
    warned: AtomicBool,
}

impl KeyFile<'_> {
    pub(crate) fn read(source: Source, passphrase: Option<&PassphraseOptions>) -> Result<KeyFile<'_>, Failure> {
        KeyFile::read_as("a key or a certificate", source, passphrase)
    }

    /// Reads a file that may be something else: `what` names the kind of file that is wanted.
    pub(crate) fn read_as<'a>(
        what: &str,
        source: Source,
        passphrase: Option<&'a PassphraseOptions>,
    ) -> Result<KeyFile<'a>, Failure> {
        let bytes = source.read_key(what)?;
        Ok(KeyFile::new(source, bytes, passphrase))
    }

    pub(crate) fn new(
        source: Source,
        bytes: Zeroizing<Vec<u8>>,
        passphrase: Option<&PassphraseOptions>,
    ) -> KeyFile<'_> {
        KeyFile { source, bytes, passphrase, warned: AtomicBool::new(false) }
    }

    /// Warns, once, if others may read the file, which holds a private key.
    pub(crate) fn warn_of_readers(&self) {
        if self.others_may_read() && !self.warned.swap(true, Ordering::Relaxed) {
            Printer::new(true, false).warning(format_args!(
                "others may read the private key {}: set the file's mode to 600, and make a new key if somebody may have read it",
                self.source
            ));
        }
    }

    /// Whether the file's group or everybody may read it. Pipes have readers of their own.
    #[cfg(unix)]
    fn others_may_read(&self) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let Source::File(path) = &self.source else { return false };
        fs::metadata(path).is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o044 != 0)
    }

    #[cfg(not(unix))]
    fn others_may_read(&self) -> bool {
        false
    }
}

/// Makes out what key this is; the passphrase is asked for if it is encrypted.
pub(crate) fn recognise(
    bytes: &[u8],
    set: Option<&'static Params>,
    passphrase: impl FnOnce() -> Result<Zeroizing<Vec<u8>>, Failure>,
) -> Result<LoadedKey, Failure> {
    if bytes.is_empty() {
        return Err(Failure::new("the file is empty, a key was expected"));
    }
    let mut encryption = None;
    let decrypt = |bytes: &[u8]| -> Result<Zeroizing<Vec<u8>>, Failure> {
        let encrypted = EncryptedSigningKey::read(bytes)?;
        encryption = Some(encrypted.to_string());
        let passphrase = passphrase()?;
        Ok(encrypted.decrypt_der(&passphrase, |der| Ok(Zeroizing::new(der.to_vec())))?)
    };
    let (encoding, key, bytes) = if is_pem(bytes) {
        let (key, der) = in_pem(bytes, decrypt)?;
        (Encoding::Pem, key, der)
    } else if let Some(key) = set.and_then(|p| raw(bytes, p)) {
        (Encoding::Raw, key?, Zeroizing::new(bytes.to_vec()))
    } else if EncryptedSigningKey::looks_like_it(bytes) {
        let der = decrypt(bytes)?;
        (Encoding::Der, private(&der)?, der)
    } else if x509::looks_like_certificate(bytes) {
        let key = x509::subject_key(bytes)?;
        let der = encode_public(&key, Encoding::Der)?;
        (Encoding::Der, Key::Public(key), Zeroizing::new(der))
    } else if let Some(other) = x509::other(bytes) {
        return Err(Failure::new(format!("this is no key: it is {other}")));
    } else if bytes[0] == DER_SEQUENCE {
        // PKCS#8 begins with a version, SPKI has none; a file that is cut short shows it as well.
        let header = match bytes.get(1) {
            Some(length @ 0x81..=0x84) => usize::from(length & 0x7f) + 2,
            _ => 2,
        };
        let is_private = bytes.get(header) == Some(&DER_INTEGER);
        let key = if is_private { private(bytes)? } else { public(bytes)? };
        (Encoding::Der, key, Zeroizing::new(bytes.to_vec()))
    } else {
        return Err(unknown(bytes.len(), set));
    };
    match set {
        Some(p) if p != key.params() => Err(Failure::new(format!("this is a key of {}, --set says {p}", key.params()))
            .hint("leave --set out, or name the right key")),
        _ => Ok(LoadedKey { key, encoding, encryption, bytes }),
    }
}

/// The key of a PEM file, and its DER.
fn in_pem(
    bytes: &[u8],
    decrypt: impl FnOnce(&[u8]) -> Result<Zeroizing<Vec<u8>>, Failure>,
) -> Result<(Key, Zeroizing<Vec<u8>>), Failure> {
    let pem = Pem::read(bytes).map_err(KeyError::from)?;
    let der = |label| pem.block(label).map(Option::unwrap_or_default).map_err(KeyError::from);
    if pem.has("PRIVATE KEY") {
        Ok((private(bytes)?, der("PRIVATE KEY")?))
    } else if pem.has("ENCRYPTED PRIVATE KEY") {
        let der = decrypt(bytes)?;
        let key = SigningKey::read_pkcs8(&der)?;
        if pem.has("PUBLIC KEY") && VerifyingKey::read_spki(bytes)? != key.verifying_key() {
            return Err(KeyError::PublicKeyMismatch { set: key.params().name }.into());
        }
        Ok((Key::Private(key), der))
    } else if pem.has("PUBLIC KEY") {
        Ok((public(bytes)?, der("PUBLIC KEY")?))
    } else if pem.has("CERTIFICATE") {
        let key = x509::subject_key(&der("CERTIFICATE")?)?;
        Ok((Key::Public(key.clone()), Zeroizing::new(encode_public(&key, Encoding::Der)?)))
    } else {
        Err(Failure::new(format!("this is no key of SLH-DSA: the file holds {}", pem.content()))
            .hint("use a PKCS#8 private key or an SPKI public key, or name its scheme with --scheme"))
    }
}

fn raw(bytes: &[u8], p: &'static Params) -> Option<Result<Key, Failure>> {
    let key = match bytes.len() {
        // For a set of a draft, the check takes minutes: `pubkey` does it with the whole machine, and signing does.
        len if len == p.sk_bytes() && p.signature_limit().is_some() => {
            SigningKey::from_bytes_unchecked(p, bytes).map(Key::Private)
        }
        len if len == p.sk_bytes() => SigningKey::from_bytes(p, bytes).map(Key::Private),
        len if len == p.pk_bytes() => VerifyingKey::from_bytes(p, bytes).map(Key::Public),
        _ => return None,
    };
    Some(key.map_err(Failure::from))
}

fn private(der: &[u8]) -> Result<Key, Failure> {
    Ok(Key::Private(SigningKey::read_pkcs8(der)?))
}

fn public(der: &[u8]) -> Result<Key, Failure> {
    Ok(Key::Public(VerifyingKey::read_spki(der)?))
}

/// Neither PEM nor DER, and no raw key of the set.
fn unknown(got: usize, set: Option<&'static Params>) -> Failure {
    if let Some(p) = set {
        let (private, public) = (p.sk_bytes(), p.pk_bytes());
        return Failure::new(format!(
            "this is neither PEM nor DER, and {got} bytes are no raw key of {p}: a private key has {private}, a public \
             key {public}"
        ))
        .hint("check --set, and whether the file is cut short or has bytes too many");
    }
    let names = |bytes: fn(&Params) -> usize| {
        let fitting = known_sets().filter(|p| bytes(p) == got);
        fitting.map(|p| p.name).collect::<Vec<_>>().join(", ")
    };
    let (private, public) = (names(Params::sk_bytes), names(Params::pk_bytes));
    match (private.is_empty(), public.is_empty()) {
        (true, true) => Failure::new(format!("this is neither PEM nor DER, and no raw key has {got} bytes"))
            .hint("check the file: it may be no key, be cut short or have bytes too many"),
        (private_fits_none, public_fits_none) => {
            let mut fits = Vec::new();
            if !private_fits_none {
                fits.push(format!("a private key of {private}"));
            }
            if !public_fits_none {
                fits.push(format!("a public key of {public}"));
            }
            Failure::new(format!("these {got} raw bytes do not name their set"))
                .hint(format!("name it with --set; by its length this is {}", fits.join(", or ")))
        }
    }
}

/// Refuses, before any work is done, what has no encoding.
pub(crate) fn check_encoding(p: &Params, encoding: Encoding) -> Result<(), Failure> {
    if p.oid().is_some() || encoding == Encoding::Raw {
        return Ok(());
    }
    Err(Failure::new(format!("{p} has no object identifier yet, so PEM and DER cannot hold its keys"))
        .hint("write the bare bytes with --raw"))
}

/// The bytes of the file of a private key under a passphrase.
pub(crate) fn encode_encrypted(
    encrypted: &EncryptedSigningKey,
    encoding: Encoding,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    Ok(Zeroizing::new(match encoding {
        Encoding::Der => encrypted.to_der()?.into_vec(),
        Encoding::Pem | Encoding::Raw => encrypted.to_pem(LineEnding::LF)?.into_bytes(),
    }))
}

/// The bytes of a private key file.
pub(crate) fn encode_private(key: &SigningKey, encoding: Encoding) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failed = |error: hypergrove::pkcs8::Error| cannot_encode(key.params(), &error);
    Ok(match encoding {
        Encoding::Raw => key.to_bytes(),
        Encoding::Der => key.to_pkcs8_der().map_err(failed)?.to_bytes(),
        Encoding::Pem => Zeroizing::new(key.to_pkcs8_pem(LineEnding::LF).map_err(failed)?.as_bytes().to_vec()),
    })
}

/// The bytes of a public key file.
pub(crate) fn encode_public(key: &VerifyingKey, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let failed = |error: hypergrove::pkcs8::spki::Error| cannot_encode(key.params(), &error);
    Ok(match encoding {
        Encoding::Raw => key.to_bytes(),
        Encoding::Der => key.to_public_key_der().map_err(failed)?.into_vec(),
        Encoding::Pem => key.to_public_key_pem(LineEnding::LF).map_err(failed)?.into_bytes(),
    })
}

fn cannot_encode(p: &Params, error: &dyn std::fmt::Display) -> Failure {
    check_encoding(p, Encoding::Pem)
        .err()
        .unwrap_or_else(|| Failure::new(format!("a key of {p} could not be encoded: {error}")))
}
