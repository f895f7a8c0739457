//! Public test vectors of SLH-DSA, read from `HYPERGROVE_VECTORS` or `../shared/vectors` next to the workspace; never copied
//! into it. NIST's own are in the workspace: [`acvp`](crate::acvp).
//!
//! A missing file gives `None`, and a line on standard error that names the suite that is skipped. A damaged file
//! panics: a test that silently reads half of its vectors proves nothing.

use crate::hexadecimal::{Hex, bytes};
use hypergrove_fips205::{Params, PreHash};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::{env, fs, str};

/// The directory of the vectors.
pub fn directory() -> PathBuf {
    let shared = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    env::var_os("HYPERGROVE_VECTORS").map_or_else(shared, PathBuf::from)
}

/// Says on standard error, which the test harness does not swallow, that a suite is not run.
fn skip(suite: &str, path: &str) {
    let path = directory().join(path);
    let line = format!("skipped: {suite}: no vectors at {} (set HYPERGROVE_VECTORS)", path.display());
    writeln!(std::io::stderr(), "{line}").expect("standard error takes a line");
}

/// A file below the vectors' directory.
pub fn read(suite: &str, path: &str) -> Option<Vec<u8>> {
    match fs::read(directory().join(path)) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(suite, path);
            None
        }
        Err(error) => panic!("{suite}: cannot read {path}: {error}"),
    }
}

/// The files of a directory below the vectors' whose names end so, sorted by name.
pub fn read_all(suite: &str, path: &str, ending: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let Ok(entries) = fs::read_dir(directory().join(path)) else {
        skip(suite, path);
        return None;
    };
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("the directory can be listed").path())
        .filter(|file| file.to_string_lossy().ends_with(ending))
        .map(|file| {
            let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{suite}: no file in {path} ends with {ending}");
    Some(files)
}

fn json<T: DeserializeOwned>(suite: &str, path: &str) -> Option<T> {
    let text = read(suite, path)?;
    Some(serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{suite}: {path}: {error}")))
}

fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    Ok(Option::<Hex<false>>::deserialize(from)?.map(|Hex(bytes)| bytes))
}

/// One block of `name = value` or `name: value` lines.
#[derive(Clone, Debug)]
pub struct Record(BTreeMap<String, String>);

impl Record {
    /// The text of a field.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0.keys()))
    }
    /// A field's bytes.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        hex::decode(self.text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
    /// The set, also by the name it had in SPHINCS+, round 3.1 (`SphincsPlus-shake-128s-r3.1`).
    pub fn params(&self) -> &'static Params {
        let name = self.text("SphincsParameterSet");
        let name = name.replace("SphincsPlus", "SLH-DSA").replace("-r3.1", "");
        name.parse().unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Blocks of lines with a blank line between them; `#` starts a comment.
fn records(suite: &str, path: &str, separator: char) -> Option<Vec<Record>> {
    let file = read(suite, path)?;
    let text = str::from_utf8(&file).unwrap_or_else(|error| panic!("{suite}: {path}: {error}"));
    let mut blocks = vec![BTreeMap::new()];
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        match line.split_once(separator) {
            Some((name, value)) => {
                let last = blocks.last_mut().expect("there is always a block");
                let twice = last.insert(name.trim().to_string(), value.trim().to_string());
                assert!(twice.is_none(), "{suite}: {path} gives {name} twice in a block");
            }
            None => {
                assert!(line.is_empty(), "{suite}: {path}: {line}");
                blocks.push(BTreeMap::new());
            }
        }
    }
    Some(blocks.into_iter().filter(|block| !block.is_empty()).map(Record).collect())
}

/// Botan's known answers, pure with an empty context: `seed`, `msg`, `pk`, `sk`, `HashSigDet`, `HashSigRand`.
pub fn botan() -> Option<Vec<Record>> {
    records("Botan", "slh-dsa/slh_dsa.vec", '=')
}

/// Known answers of WOTS+ (SPHINCS+, round 3.1): `Address`, `SecretSeed`, `PublicSeed`, `HashedWotsPk`, `Msg`,
/// `HashedWotsSig`.
pub fn sphincsplus_wots() -> Option<Vec<Record>> {
    records("SPHINCS+ WOTS+", "slh-dsa/sphincsplus_wots.vec", '=')
}

/// Known answers of FORS (SPHINCS+, round 3.1): `Address`, `SecretSeed`, `PublicSeed`, `PublicKey`, `Msg`, `HashSig`.
pub fn sphincsplus_fors() -> Option<Vec<Record>> {
    records("SPHINCS+ FORS", "slh-dsa/sphincsplus_fors.vec", '=')
}

/// BoringSSL's HashSLH-DSA-SHA2-128s: `pub`, `hash`, `msg` (hashed already), `context`, `sig`.
pub fn boringssl_prehash() -> Option<Vec<Record>> {
    records("BoringSSL HashSLH-DSA", "slh-dsa/slhdsa_sha2_128s_prehash.txt", ':')
}

/// A known answer of a draft set, through the internal interface.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DraftKat {
    /// The set's name.
    pub parameter_set: String,
    /// M′.
    #[serde(deserialize_with = "bytes")]
    pub message: Vec<u8>,
    /// SK.seed.
    #[serde(deserialize_with = "bytes")]
    pub sk_seed: Vec<u8>,
    /// SK.prf.
    #[serde(deserialize_with = "bytes")]
    pub sk_prf: Vec<u8>,
    /// PK.seed.
    #[serde(deserialize_with = "bytes")]
    pub pk_seed: Vec<u8>,
    /// opt_rand.
    #[serde(deserialize_with = "bytes")]
    pub additional_randomness: Vec<u8>,
    /// The public key.
    #[serde(deserialize_with = "bytes")]
    pub pk: Vec<u8>,
    /// R.
    #[serde(rename = "R", deserialize_with = "bytes")]
    pub r: Vec<u8>,
    /// SHA-256, or 32 bytes of SHAKE256 for the SHAKE sets, of the signature, where a right one is known.
    #[serde(deserialize_with = "some_bytes")]
    pub signature_digest: Option<Vec<u8>>,
}

/// Known answers of the sets of draft SP 800-230.
pub fn sp800_230_draft() -> Option<Vec<DraftKat>> {
    json("draft SP 800-230", "slh-dsa/sp800-230-draft-kat.json")
}

/// The example of RFC 9909, in PEM.
#[derive(Clone, Debug)]
pub struct Rfc9909 {
    /// The private key, PKCS#8.
    pub private_key: Vec<u8>,
    /// The public key, SPKI.
    pub public_key: Vec<u8>,
    /// The self-signed certificate.
    pub certificate: Vec<u8>,
}

/// The example of RFC 9909.
pub fn rfc9909() -> Option<Rfc9909> {
    let file = |ending| read("RFC 9909", &format!("slh-dsa/rfc9909/id-slh-dsa-sha2-128s.{ending}"));
    Some(Rfc9909 { private_key: file("priv")?, public_key: file("pub")?, certificate: file("pem")? })
}

/// A trust anchor made by OpenSSL 3.5, in DER.
#[derive(Clone, Debug)]
pub struct TrustAnchor {
    /// The set.
    pub params: &'static Params,
    /// The private key, PKCS#8.
    pub private_key: Vec<u8>,
    /// The self-signed certificate.
    pub certificate: Vec<u8>,
}

/// The set, and for HashSLH-DSA the hash, in a name such as `slh-dsa-sha2-128s-2.16.840.1.101.3.4.3.20_ta.der` or
/// `slh-dsa-shake-128f-with-shake128-2.16.840.1.101.3.4.3.42_signed_attrs.der`.
fn of_file(name: &str) -> (&'static Params, Option<PreHash>) {
    let (algorithm, _) = name.split_once("-2.16.").unwrap_or_else(|| panic!("{name} names no identifier"));
    let (set, hash) = algorithm.split_once("-with-").map_or((algorithm, None), |(set, hash)| (set, Some(hash)));
    let params = set.parse().unwrap_or_else(|why| panic!("{name}: {why}"));
    (params, hash.map(|hash| hash.parse().unwrap_or_else(|why| panic!("{name}: {why}"))))
}

/// The trust anchors made by OpenSSL 3.5, one for each set of FIPS 205.
pub fn openssl_trust_anchors() -> Option<Vec<TrustAnchor>> {
    let files = |ending| read_all("OpenSSL trust anchors", "slh-dsa/ossl35_artifacts_certs_r5", ending);
    let pairs = files("_priv.der")?.into_iter().zip(files("_ta.der")?);
    let anchors = pairs.map(|((name, private_key), (other, certificate))| {
        let (params, _) = of_file(&name);
        assert_eq!(params, of_file(&other).0, "{name} and {other} are no pair");
        TrustAnchor { params, private_key, certificate }
    });
    Some(anchors.collect())
}

/// A CMS SignedData message with signed attributes, in BER.
#[derive(Clone, Debug)]
pub struct Cms {
    /// The file's name.
    pub name: String,
    /// The set.
    pub params: &'static Params,
    /// The hash of HashSLH-DSA, which RFC 9814 leaves out; none for SLH-DSA.
    pub hash: Option<PreHash>,
    /// The message.
    pub message: Vec<u8>,
}

/// CMS messages by OpenSSL 3.5 and by Bouncy Castle.
pub fn cms() -> Option<Vec<Cms>> {
    let mut all = Vec::new();
    for path in ["slh-dsa/ossl35_artifacts_cms_v3", "slh-dsa/bc_artifacts_cms_v3"] {
        for (name, message) in read_all("CMS", path, "_signed_attrs.der")? {
            let (params, hash) = of_file(&name);
            all.push(Cms { name, params, hash, message });
        }
    }
    Some(all)
}
