//! Keys: OpenSSL's keymgmt.

use crate::abi::{Given, Value};
use crate::algorithms::Named;
use crate::failure::{Failure, Reason};
use crate::provider::Provider;
use hypergrove::backend::wiped;
use hypergrove::{Seeds, SigningKey, VerifyingKey};
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// The parts of a key.
#[derive(Clone)]
pub(crate) struct Material {
    pub(crate) private: Option<Arc<SigningKey>>,
    pub(crate) public: Arc<VerifyingKey>,
}

impl From<SigningKey> for Material {
    fn from(key: SigningKey) -> Material {
        Material { public: Arc::new(key.verifying_key()), private: Some(Arc::new(key)) }
    }
}

impl From<VerifyingKey> for Material {
    fn from(key: VerifyingKey) -> Material {
        Material { public: Arc::new(key), private: None }
    }
}

/// A key of OpenSSL's. It is empty until something is imported.
pub(crate) struct Key {
    pub(crate) provider: Arc<Provider>,
    pub(crate) named: &'static Named,
    material: OnceLock<Material>,
}

/// Names of parameters.
pub(crate) mod name {
    use std::ffi::CStr;
    pub(crate) const PRIVATE: &CStr = c"priv";
    pub(crate) const PUBLIC: &CStr = c"pub";
    pub(crate) const SEED: &CStr = c"seed";
    pub(crate) const BITS: &CStr = c"bits";
    pub(crate) const SECURITY_BITS: &CStr = c"security-bits";
    pub(crate) const SECURITY_CATEGORY: &CStr = c"security-category";
    pub(crate) const MAX_SIZE: &CStr = c"max-size";
    pub(crate) const MANDATORY_DIGEST: &CStr = c"mandatory-digest";
}

impl Named {
    fn signing_key(&self, bytes: &[u8]) -> Result<SigningKey, Failure> {
        let key = SigningKey::from_bytes(self.set, bytes)?;
        Ok(if self.is_hash { key.into_hash_slh_dsa() } else { key })
    }
    fn verifying_key(&self, bytes: &[u8]) -> Result<VerifyingKey, Failure> {
        let key = VerifyingKey::from_bytes(self.set, bytes)?;
        Ok(if self.is_hash { key.into_hash_slh_dsa() } else { key })
    }
}

impl Key {
    pub(crate) fn empty(provider: Arc<Provider>, named: &'static Named) -> Key {
        Key { provider, named, material: OnceLock::new() }
    }

    pub(crate) fn new(provider: Arc<Provider>, named: &'static Named, material: Material) -> Key {
        Key { provider, named, material: material.into() }
    }

    pub(crate) fn material(&self) -> Option<&Material> {
        self.material.get()
    }

    /// The key's copy, with these parts.
    pub(crate) fn copy(&self, private: bool) -> Key {
        let material = match self.material() {
            None => OnceLock::new(),
            Some(material) if private => material.clone().into(),
            Some(material) => Material { private: None, public: material.public.clone() }.into(),
        };
        Key { provider: self.provider.clone(), named: self.named, material }
    }

    pub(crate) fn has(&self, private: bool, public: bool) -> bool {
        match self.material() {
            Some(material) => !private || material.private.is_some(),
            None => !private && !public,
        }
    }

    /// Whether the keys are of one kind, and their selected parts agree. The public key tells the private keys apart: it ends with their root.
    pub(crate) fn matches(&self, other: &Key, private: bool, public: bool) -> bool {
        if !std::ptr::eq(self.named, other.named) {
            return false;
        }
        match (self.material(), other.material()) {
            _ if !private && !public => true,
            (Some(a), Some(b)) if public || a.private.is_none() || b.private.is_none() => a.public == b.public,
            (Some(a), Some(b)) => a.private == b.private,
            _ => false,
        }
    }

    /// Takes the parts that the caller gives. If it gives both, they must belong together.
    pub(crate) fn import(&self, given: Given<'_>, private: bool) -> Result<(), Failure> {
        let public = given.octets(name::PUBLIC)?;
        let n = self.named.set.n;
        let material = match (given.octets(name::PRIVATE)?.filter(|_| private), public) {
            // SK.seed and SK.prf alone, and the rest of the private key, which is the public key, apart.
            (Some(secret), Some(public)) if secret.len() == 2 * n && public.len() == 2 * n => {
                Material::from(self.named.signing_key(&Zeroizing::new([secret, public].concat()))?)
            }
            (Some(bytes), _) => Material::from(self.named.signing_key(bytes)?),
            (None, _) => {
                let none = || Failure::new(Reason::NoKey, format!("no key of {} is given", self.named.name()));
                Material::from(self.named.verifying_key(public.ok_or_else(none)?)?)
            }
        };
        if public.is_some_and(|bytes| material.public.to_bytes() != bytes) {
            let what = format!("the public key of {} does not belong to the private key", self.named.name());
            return Err(Failure::new(Reason::Key, what));
        }
        let twice = |_| Failure::new(Reason::Internal, "the key has been imported already");
        self.material.set(material).map_err(twice)
    }

    /// Hands the selected parts to `take`, and returns its answer.
    pub(crate) fn export(
        &self,
        private: bool,
        public: bool,
        take: impl FnOnce(&[(&CStr, Value<'_>)]) -> bool,
    ) -> Result<bool, Failure> {
        let material = self.some_material()?;
        let private = material.private.as_ref().filter(|_| private).map(|key| key.to_bytes());
        let public = public.then(|| material.public.to_bytes());
        let mut parts = Vec::new();
        if let Some(bytes) = &private {
            parts.push((name::PRIVATE, Value::Octets(bytes)));
        }
        if let Some(bytes) = &public {
            parts.push((name::PUBLIC, Value::Octets(bytes)));
        }
        Ok(take(&parts))
    }

    /// The parts of the key; an error if it is empty.
    pub(crate) fn some_material(&self) -> Result<&Material, Failure> {
        self.material()
            .ok_or_else(|| Failure::new(Reason::NoKey, format!("this key of {} is empty", self.named.name())))
    }

    /// Hands `put` the answer to a question about the key, if there is one.
    pub(crate) fn answer(&self, key: &CStr, put: impl FnOnce(Value<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let (params, material) = (self.named.set, self.material());
        let (public, private);
        let value = match key {
            // The bits of the public key are the size that OpenSSL's own keys tell.
            _ if key == name::BITS => Some(Value::Number(8 * params.pk_bytes() as u64)),
            _ if key == name::SECURITY_BITS => Some(Value::Number(8 * params.n as u64)),
            _ if key == name::SECURITY_CATEGORY => Some(Value::Number(params.category().into())),
            _ if key == name::MAX_SIZE => Some(Value::Number(params.sig_bytes() as u64)),
            // No digest is chosen: the message itself is signed.
            _ if key == name::MANDATORY_DIGEST => Some(Value::Text(c"")),
            _ if key == name::PUBLIC => {
                public = material.map(|material| material.public.to_bytes());
                public.as_deref().map(Value::Octets)
            }
            _ if key == name::PRIVATE => {
                private = material.and_then(|material| material.private.as_ref()).map(|key| key.to_bytes());
                private.as_ref().map(|bytes| Value::Octets(bytes))
            }
            _ => None,
        };
        value.map_or(Ok(()), put)
    }

    /// Checks that PK.root belongs to the seeds, if the private key is selected. This takes as long as making the key.
    pub(crate) fn validate(&self, private: bool, public: bool) -> Result<bool, Failure> {
        if !self.has(private, public) {
            return Ok(false);
        }
        if let (true, Some(key)) = (private, self.some_material()?.private.as_ref()) {
            self.provider.engine()?.check(key)?;
        }
        Ok(true)
    }

    /// The key as text, as OpenSSL prints its own keys.
    pub(crate) fn text(&self, private: bool) -> Result<Zeroizing<String>, Failure> {
        let material = self.some_material()?;
        Ok(wiped(|| self.text_of(material, private)))
    }

    fn text_of(&self, material: &Material, private: bool) -> Zeroizing<String> {
        let bytes = material.private.as_ref().filter(|_| private).map(|key| key.to_bytes());
        // Twice the bytes, colons, margins and headings: the string is not moved while it grows, which would leave a copy.
        let mut text = Zeroizing::new(String::with_capacity(1024));
        let kind = if bytes.is_some() { "Private" } else { "Public" };
        let _ = writeln!(text, "{} {kind}-Key:", self.named.name());
        if let Some(bytes) = &bytes {
            print(&mut text, "priv", bytes);
        }
        print(&mut text, "pub", &material.public.to_bytes());
        text
    }
}

/// Bytes in lines of 15, as OpenSSL prints them.
fn print(text: &mut String, name: &str, bytes: &[u8]) {
    let _ = writeln!(text, "{name}:");
    for (i, line) in bytes.chunks(15).enumerate() {
        text.push_str("    ");
        for (j, byte) in line.iter().enumerate() {
            let colon = if 15 * i + j + 1 < bytes.len() { ":" } else { "" };
            let _ = write!(text, "{byte:02x}{colon}");
        }
        text.push('\n');
    }
}

/// A key that is to be made.
pub(crate) struct Generation {
    pub(crate) provider: Arc<Provider>,
    named: &'static Named,
    seed: Option<Zeroizing<Vec<u8>>>,
}

impl Generation {
    pub(crate) fn new(provider: Arc<Provider>, named: &'static Named) -> Generation {
        Generation { provider, named, seed: None }
    }

    /// SK.seed, SK.prf and PK.seed, for keys that must be the same again.
    pub(crate) fn set(&mut self, given: Given<'_>) -> Result<(), Failure> {
        let Some(seed) = given.octets(name::SEED)? else { return Ok(()) };
        let needed = 3 * self.named.set.n;
        if seed.len() != needed {
            let what = format!("the seed of {} has {needed} bytes; {} are given", self.named.name(), seed.len());
            return Err(Failure::new(Reason::Parameter, what));
        }
        self.seed = Some(Zeroizing::new(seed.to_vec()));
        Ok(())
    }

    pub(crate) fn generate(&self) -> Result<Key, Failure> {
        let (engine, set) = (self.provider.engine()?, self.named.set);
        let key = match &self.seed {
            None => engine.generate(set)?,
            Some(seed) => {
                let part = |i: usize| seed[i * set.n..][..set.n].to_vec();
                let seeds =
                    Seeds { sk_seed: Zeroizing::new(part(0)), sk_prf: Zeroizing::new(part(1)), pk_seed: part(2) };
                let none = || Failure::new(Reason::Internal, "no key was made");
                engine.from_seeds(set, &[seeds])?.into_iter().next().ok_or_else(none)?
            }
        };
        let key = if self.named.is_hash { key.into_hash_slh_dsa() } else { key };
        Ok(Key::new(self.provider.clone(), self.named, key.into()))
    }
}
