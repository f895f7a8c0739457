//! Keys and signatures with the traits that Rust programs expect of them.

use base64ct::{Base64, Encoding};
use hypergrove_engine::{Error, wiped};
#[cfg(feature = "encryption")]
use hypergrove_fips205::{EncryptedSigningKey, PassphraseKdf};
use hypergrove_fips205::{KeyError, Mode, Params, PreHash, known_sets};
use hypergrove_fips205::{SigningKey as RawSigningKey, VerifyingKey as RawVerifyingKey};
use hypergrove_taint::declassified;
use pkcs8::spki::{Document, EncodePublicKey, SubjectPublicKeyInfoRef};
use pkcs8::{EncodePrivateKey, SecretDocument};
use signature::SignatureEncoding;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// Implements what a key has by the raw key in its field `key`.
macro_rules! wraps_key {
    ($key:ident, $raw:ty) => {
        impl AsRef<$raw> for $key {
            fn as_ref(&self) -> &$raw {
                &self.key
            }
        }

        impl PartialEq for $key {
            fn eq(&self, other: &$key) -> bool {
                self.key == other.key
            }
        }

        impl Eq for $key {}
    };
}

/// Implements what all private keys are.
macro_rules! signs {
    () => {
        /// The fields that hold secrets wipe themselves on drop.
        impl zeroize::ZeroizeOnDrop for SigningKey {}

        impl signature::Keypair for SigningKey {
            type VerifyingKey = VerifyingKey;
            fn verifying_key(&self) -> VerifyingKey {
                self.verifying_key()
            }
        }
    };
}

/// A private key, which may hold the nodes of its top layers (see [`Engine::cache`](crate::Engine::cache)). Its secrets are wiped on drop and compared in
/// constant time. `Debug` does not show them.
///
/// As a [`Signer`](signature::Signer), the key signs on the calling thread, with an empty context and fresh randomness, in the mode that the key implies:
/// pure, or pre-hash for a key of HashSLH-DSA. [`Engine`](crate::Engine) does all else.
#[derive(Clone)]
pub struct SigningKey {
    key: RawSigningKey,
    /// Checksum of the key as it was made or read.
    digest: Zeroizing<u64>,
    /// Whether PK.root belongs to the seeds, once the host has computed it.
    is_sound: OnceLock<bool>,
    cached: Option<Arc<Nodes>>,
}

/// A checksum of the key's bytes, which reveals memory that went bad. It does not stop an attacker who chooses which bits flip.
fn digest(key: &RawSigningKey) -> u64 {
    let mut digest = DefaultHasher::new();
    [key.sk_seed(), key.sk_prf(), key.pk_seed(), key.pk_root()].iter().for_each(|part| digest.write(part));
    digest.finish()
}

/// The nodes of the hypertree's top layers. They are public: signatures show them.
struct Nodes {
    layers: usize,
    /// A number that no other nodes of this process have.
    id: u64,
    bytes: Vec<u8>,
}

impl SigningKey {
    /// Reads SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, 4n bytes, of a key that was checked before: a program's own store may hold many. Signing
    /// finds a wrong root, and [`Engine::check`](crate::Engine::check) does. The public key of a damaged key verifies nothing.
    pub fn from_bytes_unchecked(params: &'static Params, bytes: &[u8]) -> Result<SigningKey, KeyError> {
        wiped(|| RawSigningKey::from_bytes(params, bytes)).map(SigningKey::from)
    }
    /// The bytes SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, 4n of them.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        wiped(|| self.key.to_bytes())
    }
    /// The key as one word: the base64 of its PKCS#8 in DER, without line breaks. Secret.
    pub fn to_base64(&self) -> Result<Zeroizing<String>, KeyError> {
        wiped(|| Ok(Zeroizing::new(Base64::encode_string(self.key.write_pkcs8()?.as_bytes()))))
    }
    /// Encrypts the key with a passphrase.
    #[cfg(feature = "encryption")]
    pub fn encrypt(&self, passphrase: &[u8], kdf: PassphraseKdf) -> Result<EncryptedSigningKey, KeyError> {
        let (mut salt, mut iv) = ([0; 16], [0; 16]);
        for random in [&mut salt, &mut iv] {
            getrandom::fill(random).map_err(|_| KeyError::Randomness)?;
        }
        wiped(|| EncryptedSigningKey::encrypt(&self.key, passphrase, kdf, &salt, iv))
    }
    /// The parameter set.
    pub fn params(&self) -> &'static Params {
        self.key.params()
    }
    /// The public key.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.key.verifying_key())
    }
    /// Returns this key as a key of HashSLH-DSA (RFC 9909), which has another object identifier and signs only in pre-hash mode with
    /// [`Params::prehash_of_keys`].
    #[must_use]
    pub fn into_hash_slh_dsa(self) -> SigningKey {
        SigningKey { key: self.key.into_hash_slh_dsa(), ..self }
    }
    /// The hash function of a key of HashSLH-DSA; `None` for other keys.
    pub fn prehash(&self) -> Option<PreHash> {
        self.key.prehash()
    }
    /// The mode that the key implies, with this context: pre-hash for a key of HashSLH-DSA, pure for others.
    pub fn mode<'a>(&self, context: &'a [u8]) -> Mode<'a> {
        self.key.mode(context)
    }
    /// The number of top layers whose nodes the key holds.
    pub fn cached_layers(&self) -> usize {
        self.cached.as_ref().map_or(0, |nodes| nodes.layers)
    }
    pub(crate) fn cached_nodes(&self) -> &[u8] {
        self.cached.as_ref().map_or(&[], |nodes| &nodes.bytes)
    }
    pub(crate) fn cached_id(&self) -> u64 {
        self.cached.as_ref().map_or(0, |nodes| nodes.id)
    }
    pub(crate) fn with_nodes(&self, layers: usize, bytes: Vec<u8>) -> SigningKey {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Relaxed) + 1;
        SigningKey { cached: Some(Arc::new(Nodes { layers, id, bytes })), ..self.clone() }
    }
    pub(crate) fn without_nodes(&self) -> SigningKey {
        SigningKey { cached: None, ..self.clone() }
    }
    /// Whether the key's bytes have not changed since the key was made or read.
    pub(crate) fn is_unchanged(&self) -> bool {
        // The result is public: the jobs of a damaged key fail.
        declassified(digest(&self.key) == *self.digest)
    }
    /// Whether PK.root belongs to the seeds. `root` computes the root of the seeds, once for each key.
    pub(crate) fn is_sound(&self, root: impl FnOnce() -> Result<Vec<u8>, Error>) -> Result<bool, Error> {
        if let Some(known) = self.is_sound.get() {
            return Ok(*known);
        }
        let sound = *root()? == *self.key.pk_root();
        Ok(*self.is_sound.get_or_init(|| sound))
    }
}

/// This does not check the key: see [`SigningKey::from_bytes_unchecked`].
impl From<RawSigningKey> for SigningKey {
    fn from(key: RawSigningKey) -> SigningKey {
        let digest = Zeroizing::new(digest(&key));
        SigningKey { key, digest, is_sound: OnceLock::new(), cached: None }
    }
}

wraps_key!(SigningKey, RawSigningKey);
signs!();

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SigningKey");
        shown.field("public", &self.verifying_key()).field("cached_layers", &self.cached_layers());
        shown.finish_non_exhaustive()
    }
}

impl EncodePrivateKey for SigningKey {
    fn to_pkcs8_der(&self) -> pkcs8::Result<SecretDocument> {
        wiped(|| self.key.to_pkcs8_der())
    }
}

/// A public key.
///
/// As a [`Verifier`](signature::Verifier), the key verifies on the calling thread, with an empty context, in the mode that the key implies. [`Engine`](crate::Engine) does
/// all else.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifyingKey(RawVerifyingKey);

impl VerifyingKey {
    /// Reads PK.seed ‖ PK.root, 2n bytes.
    pub fn from_bytes(params: &'static Params, bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        RawVerifyingKey::from_bytes(params, bytes).map(VerifyingKey)
    }
    /// The bytes PK.seed ‖ PK.root, 2n of them.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
    /// Reads an SPKI public key in PEM or DER. The error says what is wrong with the bytes.
    pub fn read_spki(bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        RawVerifyingKey::read_spki(bytes).map(VerifyingKey)
    }
    /// Another name of [`read_spki`](VerifyingKey::read_spki), which also takes text.
    pub fn from_pem(pem: impl AsRef<[u8]>) -> Result<VerifyingKey, KeyError> {
        VerifyingKey::read_spki(pem.as_ref())
    }
    /// The parameter set.
    pub fn params(&self) -> &'static Params {
        self.0.params()
    }
    /// Returns this key as a key of HashSLH-DSA: see [`SigningKey::into_hash_slh_dsa`].
    #[must_use]
    pub fn into_hash_slh_dsa(self) -> VerifyingKey {
        VerifyingKey(self.0.into_hash_slh_dsa())
    }
    /// The hash function of a key of HashSLH-DSA; `None` for other keys.
    pub fn prehash(&self) -> Option<PreHash> {
        self.0.prehash()
    }
    /// The mode that the key implies, with this context: pre-hash for a key of HashSLH-DSA, pure for others.
    pub fn mode<'a>(&self, context: &'a [u8]) -> Mode<'a> {
        self.0.mode(context)
    }
}

impl From<RawVerifyingKey> for VerifyingKey {
    fn from(key: RawVerifyingKey) -> VerifyingKey {
        VerifyingKey(key)
    }
}

impl AsRef<RawVerifyingKey> for VerifyingKey {
    fn as_ref(&self) -> &RawVerifyingKey {
        &self.0
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<SubjectPublicKeyInfoRef<'_>> for VerifyingKey {
    type Error = pkcs8::spki::Error;
    fn try_from(info: SubjectPublicKeyInfoRef<'_>) -> pkcs8::spki::Result<VerifyingKey> {
        RawVerifyingKey::try_from(info).map(VerifyingKey)
    }
}

impl EncodePublicKey for VerifyingKey {
    fn to_public_key_der(&self) -> pkcs8::spki::Result<Document> {
        self.0.to_public_key_der()
    }
}

/// A signature: R ‖ SIG_FORS ‖ SIG_HT. It does not name its set: a SHA2 set and a SHAKE set have signatures of the same length.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Signature(Vec<u8>);

impl Signature {
    /// Makes a signature of a set from bytes. This checks only their number.
    pub fn from_bytes(params: &'static Params, bytes: impl Into<Vec<u8>>) -> Result<Signature, KeyError> {
        hypergrove_fips205::Signature::from_bytes(params, bytes).map(|signature| Signature(signature.into_bytes()))
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl AsRef<[u8]> for Signature {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Makes a signature from bytes. Their number must be that of a signature of some set.
impl TryFrom<&[u8]> for Signature {
    type Error = signature::Error;
    fn try_from(bytes: &[u8]) -> Result<Signature, signature::Error> {
        let known = known_sets().any(|p| p.sig_bytes() == bytes.len());
        if known { Ok(Signature(bytes.to_vec())) } else { Err(signature::Error::new()) }
    }
}

impl From<Signature> for Vec<u8> {
    fn from(signature: Signature) -> Vec<u8> {
        signature.0
    }
}

impl SignatureEncoding for Signature {
    type Repr = Vec<u8>;
    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}
