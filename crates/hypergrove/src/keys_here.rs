//! Keys of SLH-DSA on the calling thread: they are checked when they are read, and they sign and verify.

use crate::engine::Engine;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::slh_dsa::Randomizer;
use hypergrove_engine::{Error, wiped};
#[cfg(feature = "encryption")]
use hypergrove_fips205::EncryptedSigningKey;
use hypergrove_fips205::{KeyError, Params, SigningKey as RawSigningKey};
use pkcs8::PrivateKeyInfoRef;
use signature::rand_core::TryCryptoRng;
use signature::{RandomizedSigner, Signer, Verifier};
use std::sync::OnceLock;
use zeroize::Zeroizing;

/// The engine behind the traits, whose methods take no engine. It works on the calling thread.
fn on_this_thread() -> Result<&'static Engine, Error> {
    static ENGINE: OnceLock<Result<Engine, Error>> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::builder().threads(1).build()).as_ref().map_err(Clone::clone)
}

impl SigningKey {
    /// Reads SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, 4n bytes.
    ///
    /// Like everything that reads a private key, this computes PK.root from the seeds, so that nobody gets the public key of a damaged key. It
    /// takes as long as making the key, on the calling thread: milliseconds for the sets of the standard, but minutes for those of a draft.
    pub fn from_bytes(params: &'static Params, bytes: &[u8]) -> Result<SigningKey, KeyError> {
        SigningKey::from_bytes_unchecked(params, bytes)?.checked()
    }
    /// The key, if PK.root belongs to the seeds.
    fn checked(self) -> Result<SigningKey, KeyError> {
        match on_this_thread().and_then(|engine| engine.check(&self)) {
            Ok(()) => Ok(self),
            Err(Error::KeyDamaged { .. }) => Err(KeyError::PublicKeyMismatch { set: self.params().name }),
            Err(why) => Err(KeyError::Unchecked { why: why.to_string() }),
        }
    }
    /// Reads a PKCS#8 private key in PEM or DER, and checks it as [`from_bytes`](SigningKey::from_bytes) does. The error says what is wrong with
    /// the bytes; it is [`KeyError::Encrypted`] for a key under a passphrase.
    pub fn read_pkcs8(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        SigningKey::from(wiped(|| RawSigningKey::read_pkcs8(bytes))?).checked()
    }
    /// Another name of [`read_pkcs8`](SigningKey::read_pkcs8), which also takes text.
    pub fn from_pem(pem: impl AsRef<[u8]>) -> Result<SigningKey, KeyError> {
        SigningKey::read_pkcs8(pem.as_ref())
    }
    /// Decrypts a key, and checks it as [`from_bytes`](SigningKey::from_bytes) does. The time depends on the costs that the writer chose; it is
    /// at most some seconds.
    #[cfg(feature = "encryption")]
    pub fn decrypt(encrypted: &EncryptedSigningKey, passphrase: &[u8]) -> Result<SigningKey, KeyError> {
        SigningKey::from(wiped(|| encrypted.decrypt(passphrase))?).checked()
    }
    /// Signs on the calling thread, with this context and fresh randomness, in the mode that the key implies.
    pub fn sign_with_context(&self, message: &[u8], context: &[u8]) -> Result<Signature, Error> {
        on_this_thread()?.sign(self, self.mode(context), message, Randomizer::Hedged)
    }
}

impl Signer<Signature> for SigningKey {
    fn try_sign(&self, message: &[u8]) -> Result<Signature, signature::Error> {
        self.sign_with_context(message, &[]).map_err(signature::Error::from_source)
    }
}

impl RandomizedSigner<Signature> for SigningKey {
    fn try_sign_with_rng<R: TryCryptoRng + ?Sized>(
        &self,
        rng: &mut R,
        message: &[u8],
    ) -> Result<Signature, signature::Error> {
        let mut opt_rand = Zeroizing::new(vec![0; self.params().n]);
        rng.try_fill_bytes(&mut opt_rand).map_err(|_| signature::Error::from_source(Error::Randomness))?;
        on_this_thread()
            .and_then(|engine| engine.sign(self, self.mode(&[]), message, Randomizer::Given(&opt_rand)))
            .map_err(signature::Error::from_source)
    }
}

impl TryFrom<PrivateKeyInfoRef<'_>> for SigningKey {
    type Error = pkcs8::Error;
    fn try_from(info: PrivateKeyInfoRef<'_>) -> pkcs8::Result<SigningKey> {
        let key = SigningKey::from(wiped(|| RawSigningKey::try_from(info))?);
        key.checked().map_err(|_| pkcs8::KeyError::Invalid.into())
    }
}

impl VerifyingKey {
    /// Verifies on the calling thread, with this context, in the mode that the key implies: `true` if the signature is valid, `false` also for a
    /// signature of the wrong length.
    pub fn verify_with_context(&self, message: &[u8], context: &[u8], signature: &[u8]) -> Result<bool, Error> {
        on_this_thread()?.verify(self, self.mode(context), message, signature)
    }
}

/// The error of an invalid signature has no source. If the engine failed, nothing is known about the signature, and the source is the
/// engine's [`Error`].
impl Verifier<Signature> for VerifyingKey {
    fn verify(&self, message: &[u8], signature: &Signature) -> Result<(), signature::Error> {
        match self.verify_with_context(message, &[], signature.as_bytes()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(signature::Error::new()),
            Err(why) => Err(signature::Error::from_source(why)),
        }
    }
}
