//! Keys: their records, how these are sealed, and their versions in use.

use crate::access::now;
use crate::error::Error;
use crate::limits::Counter;
use crate::seal::Master;
use crate::storage::{Change, Kind, Storage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hypergrove::pkcs8::{EncodePublicKey, LineEnding};
use hypergrove::quote::{Quote, may_be_key};
use hypergrove::{Params, SigningKey, VerifyingKey, known_sets};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The parameter set of this name, in capitals or not.
pub fn set_of(name: &str) -> Option<&'static Params> {
    known_sets().find(|set| set.name.eq_ignore_ascii_case(name))
}

/// Bytes of the name of a key or a policy, at most.
pub const LONGEST_NAME: usize = 128;

/// Whether this may be the name of a key or a policy.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.') {
        true => Ok(()),
        false => Err(Error::bad("a name has 1 to 128 letters, digits, '-', '_' and '.', and does not begin with '.'")),
    }
}

/// Whether a new key or policy may have this name, which everybody sees.
pub fn check_new(name: &str) -> Result<(), Error> {
    check_name(name)?;
    check_shown(name)
}

/// Refuses a private key in place of a name.
pub fn check_shown(name: &str) -> Result<(), Error> {
    match may_be_key(name) {
        true => {
            Err(Error::bad(format!("the name {} looks like a private key; names are no secrets", Quote::new(name))))
        }
        false => Ok(()),
    }
}

/// A version of a key, as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct VersionRecord {
    /// Seconds since 1970.
    created: u64,
    /// Whether it is a key of HashSLH-DSA, which signs in this mode only.
    hash_slh_dsa: bool,
    /// The private key, sealed.
    sealed: String,
}

/// A key, as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub struct Record {
    name: String,
    set: String,
    versions: Vec<VersionRecord>,
    /// Whether a version was imported.
    imported: bool,
    /// The oldest version that signs, from 1, or 0.
    pub min_signing_version: u32,
    /// The oldest version that verifies, from 1.
    pub min_verification_version: u32,
    /// Whether the key may be deleted.
    pub deletion_allowed: bool,
    /// The most signatures of each version.
    pub max_signatures: Option<u64>,
    /// Whether everything with this key is computed twice and compared.
    #[serde(default)]
    pub redundant: bool,
}

impl Record {
    /// The key's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A version of a key in use.
pub struct Version {
    /// The private key.
    pub signing: Arc<SigningKey>,
    /// The public key.
    pub verifying: Arc<VerifyingKey>,
    /// How many signatures it has made.
    pub counter: Counter,
    /// Microseconds that the latest signature took, of those that were computed on the thread of their request.
    pub took: AtomicU64,
}

/// A key in use.
#[derive(Clone)]
pub struct Key {
    /// The stored half.
    pub record: Record,
    /// Its parameter set.
    pub set: &'static Params,
    versions: Vec<Arc<Version>>,
}

/// Leaves the private keys out.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.record.name).finish_non_exhaustive()
    }
}

/// The name of a sealed private key, to which it is bound: it opens as no other version, and as no other key.
fn bound(name: &str, version: usize, set: &Params, hash_slh_dsa: bool) -> Vec<u8> {
    format!("{name}\0{version}\0{}\0{hash_slh_dsa}", set.name).into_bytes()
}

fn counter_id(name: &str, version: usize) -> String {
    format!("{name}/{version}")
}

impl Key {
    /// A key without a version, which [`Key::with_version`] adds.
    pub fn new(name: &str, set: &'static Params, max_signatures: Option<u64>) -> Key {
        let record = Record {
            name: name.into(),
            set: set.name.to_ascii_lowercase(),
            versions: Vec::new(),
            imported: false,
            min_signing_version: 0,
            min_verification_version: 1,
            deletion_allowed: false,
            max_signatures,
            redundant: false,
        };
        Key { record, set, versions: Vec::new() }
    }

    /// The key with another version.
    pub fn with_version(&self, signing: SigningKey, imported: bool, master: &Master) -> Result<Key, Error> {
        let mut record = self.record.clone();
        let version = record.versions.len() + 1;
        let hash_slh_dsa = signing.prehash().is_some();
        let sealed = master.seal(&bound(&record.name, version, self.set, hash_slh_dsa), &signing.to_bytes())?;
        record.versions.push(VersionRecord { created: now(), hash_slh_dsa, sealed: STANDARD.encode(sealed) });
        record.imported |= imported;
        let mut versions = self.versions.clone();
        versions.push(Arc::new(Version::new(signing, Counter::new(counter_id(&record.name, version)))));
        Ok(Key { record, set: self.set, versions })
    }

    /// The key with other settings.
    pub fn with_record(&self, record: Record) -> Key {
        Key { record, set: self.set, versions: self.versions.clone() }
    }

    /// Opens the stored key of this name.
    pub fn open(name: &str, stored: &[u8], master: &Master, storage: &dyn Storage) -> Result<Key, Error> {
        let unreadable = |why: &dyn fmt::Display| {
            Error::internal(format!("the key {name} in the database is damaged: {why}; restore a backup"))
        };
        let record: Record = serde_json::from_slice(stored).map_err(|why| unreadable(&why))?;
        // The private keys are bound to the name in the record, and policies, requests and the audit log know the record's place.
        if record.name != name {
            return Err(unreadable(&format_args!("its record is that of the key {}", record.name)));
        }
        let set = set_of(&record.set).ok_or_else(|| unreadable(&record.set))?;
        if record.versions.is_empty() {
            return Err(unreadable(&"it has no version"));
        }
        let open = |(index, stored): (usize, &VersionRecord)| {
            let version = index + 1;
            let what = || format!("version {version} of {}", record.name);
            let sealed = STANDARD.decode(&stored.sealed).map_err(|_| unreadable(&what()))?;
            let bytes = master.open(&bound(&record.name, version, set, stored.hash_slh_dsa), &sealed);
            let bytes = bytes.ok_or_else(|| unreadable(&what()))?;
            // It was checked when it was made or imported, and the seal shows that it has not changed since.
            let signing = SigningKey::from_bytes_unchecked(set, &bytes).map_err(|_| unreadable(&what()))?;
            let signing = if stored.hash_slh_dsa { signing.into_hash_slh_dsa() } else { signing };
            let counter = Counter::open(storage, counter_id(&record.name, version))?;
            Ok(Arc::new(Version::new(signing, counter)))
        };
        let versions = record.versions.iter().enumerate().map(open).collect::<Result<_, Error>>()?;
        Ok(Key { record, set, versions })
    }

    /// The change that stores this key.
    pub fn put(&self) -> Result<Change, Error> {
        let json = serde_json::to_vec(&self.record).map_err(|why| Error::internal(why.to_string()))?;
        Ok(Change::Put(Kind::Key, self.record.name.clone(), json))
    }

    /// The changes that delete it.
    pub fn delete(&self) -> [Change; 2] {
        let name = &self.record.name;
        [Change::Delete(Kind::Key, name.clone()), Change::DeleteCounters(format!("{name}/"))]
    }

    /// The most signatures of each version: by its settings, or by its set's own limit.
    pub fn limit(&self) -> Option<u64> {
        [self.record.max_signatures, self.set.signature_limit()].into_iter().flatten().min()
    }

    /// The number of the newest version.
    pub fn latest(&self) -> u32 {
        self.versions.len() as u32
    }

    /// The version of this number, if it is at least `min`. `None` and 0 are the latest.
    pub fn version(&self, number: Option<u32>, min: u32) -> Result<(u32, &Arc<Version>), Error> {
        let number = number.filter(|number| *number > 0).unwrap_or(self.latest());
        if number < min {
            return Err(Error::bad(format!("version {number} of this key is below its minimum version {min}")));
        }
        let version = self.versions.get(number as usize - 1).ok_or_else(|| {
            Error::bad(format!("this key has no version {number}; its latest version is {}", self.latest()))
        })?;
        Ok((number, version))
    }

    /// All versions.
    pub fn versions(&self) -> &[Arc<Version>] {
        &self.versions
    }

    /// Public keys of the versions: all, or one.
    pub fn public_keys(&self, only: Option<u32>) -> Result<Map<String, Value>, Error> {
        let versions = self.versions.iter().enumerate().map(|(index, version)| (index as u32 + 1, version));
        versions
            .filter(|(number, _)| only.is_none_or(|only| only == *number))
            .map(|(number, version)| Ok((number.to_string(), Value::String(public_text(&version.verifying)?))))
            .collect()
    }

    /// The key as `GET keys/NAME` shows it.
    pub async fn describe(&self) -> Result<Value, Error> {
        let mut keys = self.public_keys(None)?;
        for (index, (version, stored)) in self.versions.iter().zip(&self.record.versions).enumerate() {
            let created = jiff::Timestamp::from_second(stored.created as i64).unwrap_or_default().to_string();
            if let Some(shown) = keys.get_mut(&(index + 1).to_string()) {
                let used = version.counter.used().await;
                *shown = json!({
                    "creation_time": created, "name": self.record.set, "public_key": shown.take(), "signatures": used,
                });
            }
        }
        let record = &self.record;
        Ok(json!({
            "name": record.name, "type": "slh-dsa", "parameter_set": record.set, "keys": keys,
            "latest_version": self.latest(), "min_available_version": 0,
            "min_signing_version": record.min_signing_version, "min_decryption_version": record.min_verification_version,
            "max_signatures": self.limit(), "deletion_allowed": record.deletion_allowed, "imported_key": record.imported,
            "redundant": record.redundant,
            "exportable": false, "allow_plaintext_backup": false, "derived": false, "supports_signing": true,
            "supports_encryption": false, "supports_decryption": false, "supports_derivation": false,
        }))
    }
}

impl Version {
    fn new(signing: SigningKey, counter: Counter) -> Version {
        let verifying = Arc::new(signing.verifying_key());
        Version { signing: Arc::new(signing), verifying, counter, took: AtomicU64::new(u64::MAX) }
    }
}

/// A public key as PEM. Draft sets have no object identifier, so their keys are raw bytes in base64.
fn public_text(key: &VerifyingKey) -> Result<String, Error> {
    if key.params().oid_arc().is_none() {
        return Ok(STANDARD.encode(key.to_bytes()));
    }
    key.to_public_key_pem(LineEnding::LF).map_err(|why| Error::internal(format!("a public key: {why}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::storage::Sqlite;
    use hypergrove::{Engine, SLH_DSA_SHA2_128F};

    /// A record that opens has the private keys that were sealed, in their order, at least one.
    #[test]
    fn fuzz_records_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Sqlite::open(&folder.path().join("db")).unwrap();
        let (master, engine) = (Master::random().unwrap(), Engine::new().unwrap());
        let signing = [(); 2].map(|()| engine.generate(&SLH_DSA_SHA2_128F).unwrap());
        let [first, second] = signing.clone();
        let key = Key::new("a", &SLH_DSA_SHA2_128F, Some(100)).with_version(first, false, &master).unwrap();
        let key = key.with_version(second.into_hash_slh_dsa(), true, &master).unwrap();
        let stored = serde_json::to_vec(&key.record).unwrap();
        let none = serde_json::to_vec(&Record { versions: Vec::new(), ..key.record.clone() }).unwrap();
        let words =
            "\"versions\":[] \"slh-dsa-sha2-128s\" \"hash_slh_dsa\":true {\"created\":0 \"min_signing_version\":";
        crate::fuzz::fuzz(5_000, &[&stored, &none], words, |input| {
            let opened = match Key::open("a", input, &master, &storage) {
                Ok(opened) => opened,
                Err(why) => return why.to_string(),
            };
            assert_eq!((opened.record.name(), opened.set.name), ("a", key.set.name));
            assert!((1..=2).contains(&opened.latest()) && opened.version(None, 0).is_ok());
            for (version, original) in opened.versions.iter().zip(&key.versions) {
                assert!(*version.signing == *original.signing);
            }
            drop(opened.public_keys(None).unwrap());
            format!("{} versions", "i".repeat(opened.versions.len()))
        });
    }

    /// A name is one part of a path, and stands there as it is.
    #[test]
    fn fuzz_names() {
        crate::fuzz::fuzz(20_000, &[b"release-1.2_a", b".", &[b'a'; 128]], "a .a", |input| {
            let name = String::from_utf8_lossy(input);
            if let Err(why) = check_name(&name) {
                return why.to_string();
            }
            assert!(
                !name.contains(|letter: char| letter.is_control() || "/%?#\0 ".contains(letter)) && name.is_ascii()
            );
            assert!(!name.starts_with('.') && (1..=128).contains(&name.len()));
            let path: hyper::Uri = format!("/v1/transit/keys/{name}").parse().unwrap();
            assert_eq!(path.path().rsplit('/').next(), Some(&*name));
            String::new()
        });
    }
}
