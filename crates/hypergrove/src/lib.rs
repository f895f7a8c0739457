#![doc = include_str!("../README.md")]
//!
//! To sign a message that is too long for memory, hash it from a reader and sign the digest. The signature is the same as that of
//! [`Mode::PreHash`] for the whole message:
//!
//! ```
//! use hypergrove::{Engine, Mode, PreHash, Randomizer, SLH_DSA_SHA2_128F, pre_hasher};
//!
//! let engine = Engine::new()?;
//! let key = engine.generate(&SLH_DSA_SHA2_128F)?;
//! let mut reader = &b"a long message"[..];
//! let (context, hash) = (&b"backups"[..], PreHash::Sha512);
//! let mut hasher = pre_hasher(hash);
//! std::io::copy(&mut reader, &mut hasher)?;
//! let digest = hasher.finish();
//! let signature = engine.sign(&key, Mode::Digest { context, hash }, &digest, Randomizer::Hedged)?;
//! let whole = Mode::PreHash { context, hash };
//! assert!(engine.verify(&key.verifying_key(), whole, b"a long message", signature.as_bytes())?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The keys implement the traits of the crate [`signature`]:
//!
//! ```
//! use hypergrove::signature::{Signer, Verifier};
//! use hypergrove::{Engine, SLH_DSA_SHA2_128F};
//!
//! let key = Engine::new()?.generate(&SLH_DSA_SHA2_128F)?;
//! key.verifying_key().verify(b"message", &key.sign(b"message"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An error of these traits is opaque. Only its source tells the two cases apart: if the engine failed, the source is an [`Error`]; if the
//! signature is invalid, there is no source.
//!
//! ```
//! use hypergrove::signature::Verifier;
//! use hypergrove::{Error, Signature, VerifyingKey};
//! use std::error::Error as _;
//!
//! /// Whether a signature is valid; an error if the engine could not tell.
//! fn is_valid(key: &VerifyingKey, message: &[u8], signature: &Signature) -> Result<bool, Error> {
//!     let Err(why) = key.verify(message, signature) else { return Ok(true) };
//!     match why.source().and_then(|source| source.downcast_ref::<Error>()) {
//!         Some(failure) => Err(failure.clone()),
//!         None => Ok(false),
//!     }
//! }
//! ```
//!
#![cfg_attr(
    feature = "encryption",
    doc = "A private key can be encrypted with a passphrase, in PKCS#8's EncryptedPrivateKeyInfo, which OpenSSL reads and writes (feature `encryption`):

```
use hypergrove::pkcs8::LineEnding;
use hypergrove::{EncryptedSigningKey, Engine, PassphraseKdf, SLH_DSA_SHA2_128F, SigningKey};

let key = Engine::new()?.generate(&SLH_DSA_SHA2_128F)?;
let pem = key.encrypt(b\"correct horse\", PassphraseKdf::Scrypt)?.to_pem(LineEnding::LF)?;
assert!(pem.starts_with(\"-----BEGIN ENCRYPTED PRIVATE KEY-----\"));
let encrypted = EncryptedSigningKey::read(pem.as_bytes())?;
assert_eq!(SigningKey::decrypt(&encrypted, b\"correct horse\")?, key);
assert!(SigningKey::decrypt(&encrypted, b\"wrong\").is_err());
# Ok::<(), Box<dyn std::error::Error>>(())
```
"
)]
//! # In Cargo's dev profile
//!
//! Without optimisation the library works but is far slower, and each batch of hashes runs on a
//! thread of its own with a large stack. Cargo reads profiles only from your program's own `Cargo.toml`. These lines
//! optimise the hash functions in every build:
//!
//! ```toml
//! [profile.dev.package.hypergrove-lanes]
//! opt-level = 3
//! debug = false
//! debug-assertions = false
//! overflow-checks = false
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod calls;
mod calls_of;
pub mod devices;
pub mod diagnosis;
mod engine;
mod explain;
mod flow;
mod hash;
mod hexadecimal;
mod identity;
mod jobs;
#[macro_use]
mod keys;
mod keys_here;
mod old_hash;
mod pre_hash;
mod random;
mod reading;
pub mod rows;
mod run;
mod scheme;
mod slh_dsa;
mod tickets;
mod types;
#[cfg(feature = "zkdilithium")]
pub mod zkdilithium;

/// The examples in the documents compile and run as documentation tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/rows.md")]
    struct Rows;
    #[doc = include_str!("../../../docs/tickets.md")]
    struct Tickets;
}

pub use engine::{DEVICE_MEMORY_BUDGET, Engine, EngineBuilder, MEMORY_BUDGET, QUEUED_JOBS};
pub use explain::{Explanation, MemoryUse};
pub use flow::Flow;
pub use hypergrove_cpu::{Cpu, Isa};
pub use hypergrove_engine::scheduler::{
    CancelToken, Canceller, Checks, DeviceStats, Fault, Room, Stats, Ticket, TicketStats, Waits, Wake, WorkOptions,
};
pub use hypergrove_engine::{Backend, DEVICE_TIMEOUT, Device, Error, ErrorKind, PolicySource, Process, Timing};
pub use hypergrove_fips205::params::*;
pub use hypergrove_fips205::plan::{Op, Rates, Work, cache_bytes};
#[doc(hidden)]
pub use hypergrove_fips205::quote;
#[cfg(feature = "encryption")]
pub use hypergrove_fips205::{EncryptedSigningKey, PassphraseKdf};
pub use hypergrove_fips205::{KeyError, MAX_CONTEXT, Mode, PreHash, PreHasher, UnknownHash};
#[cfg(feature = "tables")]
pub use hypergrove_tables::table::Source as TableSource;
pub use identity::Fingerprint;
pub use jobs::{GenerateJob, JobKey, Refused};
pub use keys::{Signature, SigningKey, VerifyingKey};
pub use pre_hash::pre_hasher;
pub use reading::ReadError;

pub use crate::scheme::{ParameterSet, Scheme};
pub use slh_dsa::{JobMessage, Message, Randomizer, ReadMessage, Seeds, SignJob, SlhDsa, VerifyJob};
pub use tickets::Job;
pub use {pkcs8, signature};

use std::path::Path;
use std::sync::Arc;

/// A scheme's description and types, for programs that bring a scheme of their own, and for those that are written for any scheme.
#[doc(hidden)]
pub mod schemes {
    pub use crate::calls::Calls;
    pub use crate::jobs::{SignJob, VerifyJob};
    pub use crate::rows::{CallColumns, MessageRows, RowVerifyingKeys, SignatureRows};
    pub use crate::scheme::{
        Failed, MessageColumn, Of, PublicKey, Scheme, SignBatch, Sizes, ToSign, ToVerify, VerifyBatch,
    };
    pub use crate::types::{SchemeKey, SchemeTypes};
}

/// The traits and types for programs that bring their own backend, or choose a policy by hand.
pub mod backend {
    pub use hypergrove_cpu::rates;
    pub use hypergrove_engine::{
        Abilities, Accept, Axis, Batch, Digests, Hasher, HostMemory, Key, Messages, Places, Policy, Program,
        ReachableMemory, Reference, SelfTest, Sha256Programs, Size, SlhDsaPrograms, THREADS, Work, ZkDilithium,
        ZkDilithiumPrograms, ZkSign, ZkVerify, forward, free_memory, wiped,
    };
    pub use hypergrove_fips205::plan::{Forest, Plan, Slot, Stage};
}

/// A trace: which thread of an engine does what, when and for how long. See [`EngineBuilder::observer`].
pub mod trace {
    pub use hypergrove_engine::trace::{Event, Observer, Step};
}

/// A backend of this build.
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    /// The name: [`Backend::name`].
    pub name: &'static str,
    /// A short description for people.
    pub description: &'static str,
    /// Makes the backend. If a directory is given, the backend may keep compiled kernels there.
    pub make: fn(Option<&Path>) -> Arc<dyn Backend>,
}

/// All backends of this build, the preferred one first. This is the only list of them.
pub static BACKENDS: &[BackendEntry] = &[
    BackendEntry { name: Cpu::NAME, description: "SIMD lanes and threads", make: |_| Arc::new(Cpu::new()) },
    #[cfg(feature = "cuda")]
    BackendEntry { name: "cuda", description: "NVIDIA GPUs", make: hypergrove_cuda::backend },
    #[cfg(feature = "vulkan")]
    BackendEntry {
        name: "vulkan",
        description: "any GPU with a Vulkan driver",
        make: |cache| hypergrove_vulkan::backend(cache, hypergrove_vulkan::Calls::Trusted),
    },
];

/// Makes all backends of this build, the preferred one first.
pub fn backends() -> Vec<Arc<dyn Backend>> {
    BACKENDS.iter().map(|entry| (entry.make)(None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shared<T: Send + Sync>() {}

    /// Threads may share every type of the library: otherwise this does not compile.
    #[test]
    fn threads_share_every_type() {
        is_shared::<(Engine, EngineBuilder)>();
        is_shared::<(Fingerprint, SigningKey, VerifyingKey, Signature, Seeds, PreHasher)>();
        is_shared::<(JobKey<'_, SigningKey>, SignJob<'_>, VerifyJob<'_>, Mode<'_>, Randomizer<'_>)>();
        is_shared::<(Error, ErrorKind, KeyError, UnknownSet, UnknownHash, Fault, Explanation, Timing)>();
        is_shared::<diagnosis::Diagnosis>();
        is_shared::<(Ticket<Signature>, Canceller, Room, Refused<SignJob<'_>>, GenerateJob<'_, SlhDsa>)>();
        is_shared::<(BackendEntry, Device, Rates, Work, Params, Wake, Box<dyn Backend>, Cpu, Isa)>();
        is_shared::<(backend::Axis, backend::Policy, backend::Plan, backend::Reference)>();
        #[cfg(feature = "tables")]
        is_shared::<TableSource>();
        #[cfg(feature = "encryption")]
        is_shared::<(EncryptedSigningKey, PassphraseKdf)>();
    }

    #[cfg(feature = "zkdilithium")]
    #[test]
    fn threads_share_every_type_of_zkdilithium() {
        use zkdilithium as zk;
        is_shared::<(zk::SignJob<'_>, zk::VerifyJob<'_>, zk::JobMessage<'_>, zk::Message<'_>)>();
        is_shared::<(zk::SigningKey, zk::VerifyingKey, zk::Signature, zk::Witness, zk::KeyError)>();
        is_shared::<(zk::ExpandedSigningKey, zk::ExpandedVerifyingKey, zk::Fe)>();
    }
}
