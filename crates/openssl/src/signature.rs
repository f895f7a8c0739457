//! Signing and verifying: OpenSSL's signature operation.

use crate::abi::{Core, Given, Value};
use crate::algorithms::Named;
use crate::failure::{Failure, Reason};
use crate::key::{Key, Material};
use crate::provider::Provider;
use hypergrove::quote::Quote;
use hypergrove::{MAX_CONTEXT, Mode, PreHash, PreHasher, Randomizer, SignJob, VerifyJob, pre_hasher};
use std::ffi::CStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Names of parameters.
pub(crate) mod name {
    use std::ffi::CStr;
    pub(crate) const CONTEXT: &CStr = c"context-string";
    pub(crate) const DIGEST: &CStr = c"digest";
    pub(crate) const DETERMINISTIC: &CStr = c"deterministic";
    pub(crate) const ENTROPY: &CStr = c"test-entropy";
    pub(crate) const ENCODING: &CStr = c"message-encoding";
    pub(crate) const SIGNATURE: &CStr = c"signature";
    pub(crate) const ALGORITHM_ID: &CStr = c"algorithm-id";
}

/// A signature that is made or checked.
#[derive(Clone)]
pub(crate) struct Context {
    provider: Arc<Provider>,
    named: &'static Named,
    material: Option<Material>,
    /// The context string, at most 255 bytes.
    context: Vec<u8>,
    is_deterministic: bool,
    /// opt_rand for tests: n bytes.
    entropy: Option<Zeroizing<Vec<u8>>>,
    /// Whether the caller gives M′ itself (FIPS 205, Algorithms 19 and 20).
    is_internal: bool,
    /// The signature that VERIFY_MESSAGE_FINAL checks.
    signature: Vec<u8>,
    parts: Parts,
    has_parts: bool,
}

/// A message that comes in parts.
#[derive(Clone)]
enum Parts {
    /// SLH-DSA reads the whole message twice.
    Kept(Arc<Vec<u8>>),
    /// HashSLH-DSA needs its digest alone.
    Hashed(Box<PreHasher>),
}

/// A message as [`Mode`] wants it.
enum Message<'a> {
    Whole(&'a [u8]),
    Digest(Vec<u8>),
}

impl Context {
    pub(crate) fn new(provider: Arc<Provider>, named: &'static Named) -> Context {
        Context {
            provider,
            named,
            material: None,
            context: Vec::new(),
            is_deterministic: false,
            entropy: None,
            is_internal: false,
            signature: Vec::new(),
            parts: Parts::Kept(Arc::default()),
            has_parts: false,
        }
    }

    /// Begins an operation with a key, or with the last one. A digest has no place here: the message itself is signed.
    pub(crate) fn begin(&mut self, key: Option<&Key>, digest: &str, given: Given<'_>) -> Result<(), Failure> {
        self.provider.usable()?;
        self.refuse(digest)?;
        if let Some(key) = key {
            if !std::ptr::eq(key.named, self.named) {
                let what = format!("a key of {} is given to {}", key.named.name(), self.named.name());
                return Err(Failure::new(Reason::Key, what));
            }
            self.material = Some(key.some_material()?.clone());
        }
        let material = self.material()?;
        self.parts = match material.public.prehash() {
            Some(hash) => Parts::Hashed(Box::new(pre_hasher(hash))),
            None => Parts::Kept(Arc::default()),
        };
        self.has_parts = false;
        self.set(given)
    }

    pub(crate) fn takes_no_digest(&self) -> Failure {
        let name = self.named.name();
        let what = format!(
            "{name} takes no digest, and this program hashes the message before it is signed or verified; give the message itself to \
             EVP_DigestSign or EVP_DigestVerify without a digest (pkeyutl -rawin)"
        );
        Failure::new(Reason::Parameter, what)
    }

    fn refuse(&self, digest: &str) -> Result<(), Failure> {
        if digest.is_empty() || digest.eq_ignore_ascii_case("UNDEF") {
            return Ok(());
        }
        let digest = Quote::name(digest, PreHash::ALL.map(PreHash::name));
        let what = format!("{} takes no digest, and {digest} is given; leave it out", self.named.name());
        Err(Failure::new(Reason::Parameter, what))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.provider.core
    }

    fn material(&self) -> Result<&Material, Failure> {
        self.material.as_ref().ok_or_else(|| Failure::new(Reason::NoKey, "no key is set; give one when you begin"))
    }

    pub(crate) fn set(&mut self, given: Given<'_>) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::new(Reason::Parameter, what));
        // EVP_PKEY_CTX_set_signature_md names a digest after the operation has begun without one.
        self.refuse(given.text(name::DIGEST)?.unwrap_or_default())?;
        if let Some(context) = given.octets(name::CONTEXT)? {
            if context.len() > MAX_CONTEXT {
                return wrong(format!("a context has at most {MAX_CONTEXT} bytes; {} are given", context.len()));
            }
            self.context = context.to_vec();
        }
        if let Some(entropy) = given.octets(name::ENTROPY)? {
            let (n, name) = (self.named.set.n, self.named.name());
            if entropy.len() != n {
                return wrong(format!("test-entropy of {name} has {n} bytes; {} are given", entropy.len()));
            }
            self.entropy = Some(Zeroizing::new(entropy.to_vec()));
        }
        if let Some(number) = given.number(name::DETERMINISTIC)? {
            self.is_deterministic = number != 0;
        }
        match given.number(name::ENCODING)? {
            None => {}
            Some(0) if self.named.is_hash => {
                return wrong(format!("message-encoding 0 gives M′ itself, which {} does not take", self.named.name()));
            }
            Some(number @ 0..=1) => self.is_internal = number == 0,
            Some(other) => return wrong(format!("message-encoding {other} means nothing; give 0 (raw) or 1 (pure)")),
        }
        if let Some(signature) = given.octets(name::SIGNATURE)? {
            self.signature = signature.to_vec();
        }
        Ok(())
    }

    pub(crate) fn answer(&self, key: &CStr) -> Option<Value<'_>> {
        (key == name::ALGORITHM_ID).then_some(Value::Octets(&self.named.identifier))
    }

    pub(crate) fn signature_bytes(&self) -> usize {
        self.named.set.sig_bytes()
    }

    /// A signature of another length is not valid. It is told apart, since it is another mistake.
    fn check_length(&self, signature: &[u8]) -> Result<(), Failure> {
        let (want, got) = (self.signature_bytes(), signature.len());
        if want == got {
            return Ok(());
        }
        let what = format!("a signature of {} has {want} bytes; {got} are given", self.named.name());
        Err(Failure::new(Reason::Parameter, what))
    }

    fn mode(&self, message: &Message<'_>) -> Result<Mode<'_>, Failure> {
        let context = &self.context;
        Ok(match (self.material()?.public.prehash(), message) {
            (Some(hash), Message::Digest(_)) => Mode::Digest { context, hash },
            (Some(hash), Message::Whole(_)) => Mode::PreHash { context, hash },
            (None, _) if self.is_internal => Mode::Internal,
            (None, _) => Mode::Pure { context },
        })
    }

    fn sign_message(&self, message: &Message<'_>) -> Result<Vec<u8>, Failure> {
        let public = || Failure::new(Reason::Key, "this is a public key; sign with the private key");
        let key = self.material()?.private.as_ref().ok_or_else(public)?;
        let randomizer = match &self.entropy {
            Some(bytes) => Randomizer::Given(bytes),
            None if self.is_deterministic => Randomizer::Deterministic,
            None => Randomizer::Hedged,
        };
        let bytes = message.bytes();
        let job = SignJob::new(key.clone(), bytes).mode(self.mode(message)?).randomizer(randomizer);
        Ok(self.provider.run(bytes.len(), job)?.into_bytes())
    }

    fn verify_message(&self, message: &Message<'_>, signature: &[u8]) -> Result<bool, Failure> {
        self.check_length(signature)?;
        let bytes = message.bytes();
        let job = VerifyJob::new(self.material()?.public.clone(), bytes, signature).mode(self.mode(message)?);
        self.provider.run(bytes.len(), job)
    }

    /// A message is given in one piece or in parts.
    fn check_whole(&self) -> Result<(), Failure> {
        match self.has_parts {
            true => {
                let what = "parts of a message were given; end it with the function for that, or begin again";
                Err(Failure::new(Reason::Message, what))
            }
            false => Ok(()),
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        self.check_whole()?;
        self.sign_message(&Message::Whole(message))
    }

    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<bool, Failure> {
        self.check_whole()?;
        self.verify_message(&Message::Whole(message), signature)
    }

    /// Takes a part of the message.
    pub(crate) fn update(&mut self, part: &[u8]) -> Result<(), Failure> {
        let limit = self.provider.message_limit;
        self.has_parts = true;
        match &mut self.parts {
            Parts::Hashed(hasher) => hasher.update(part),
            Parts::Kept(message) if part.len() > limit.saturating_sub(message.len()) => {
                let what = format!(
                    "a message in parts has at most {limit} bytes, since {} reads it twice; give it in one piece, raise message-limit in \
                     openssl.cnf, or use a key of HashSLH-DSA",
                    self.named.name()
                );
                return Err(Failure::new(Reason::Message, what));
            }
            Parts::Kept(message) => {
                let full = |_| Failure::new(Reason::Message, "there is no memory for this message");
                // A copy of the context has this message too, and each gets its own now.
                if Arc::get_mut(message).is_none() {
                    let mut own = Vec::new();
                    own.try_reserve(message.len() + part.len()).map_err(full)?;
                    own.extend_from_slice(message);
                    *message = Arc::new(own);
                }
                let message = Arc::get_mut(message).expect("nobody else has it");
                message.try_reserve(part.len()).map_err(full)?;
                message.extend_from_slice(part);
            }
        }
        Ok(())
    }

    fn whole(&self) -> Message<'_> {
        match &self.parts {
            Parts::Kept(message) => Message::Whole(message),
            Parts::Hashed(hasher) => Message::Digest(PreHasher::clone(hasher).finish()),
        }
    }

    /// Signs the parts.
    pub(crate) fn sign_parts(&self) -> Result<Vec<u8>, Failure> {
        self.sign_message(&self.whole())
    }

    /// Checks a signature of the parts, or else the signature that was set before.
    pub(crate) fn verify_parts(&self, signature: Option<&[u8]>) -> Result<bool, Failure> {
        self.verify_message(&self.whole(), signature.unwrap_or(&self.signature))
    }
}

impl Message<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Message::Whole(bytes) => bytes,
            Message::Digest(bytes) => bytes,
        }
    }
}
