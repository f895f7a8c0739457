//! Keys of SLH-DSA, and calls with one key.

use crate::columns::{
    Bytes, Rows, Signals, booleans, iterate, keys_of, size, too_many, verdicts, write_results, zeros,
};
use crate::engine::{Engine, engine_of};
use crate::error::{Failure, RowFault, bad, exception};
use crate::foreign::array::{Array, Element};
use crate::foreign::arrow::NO_VALUE;
use crate::gaps::RowPolicy;
use crate::parts::{Batch, Out};
use crate::pending::{Answer, Pending, invalid, submitted, verdict};
use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{
    EncryptedSigningKey, Mode, Params, PassphraseKdf, PreHash, Randomizer, SignJob, SigningKey, VerifyJob,
    VerifyingKey, cache_bytes,
};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence, PyTuple};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use zeroize::Zeroizing;

/// The set of the standard with this name.
fn set_of(name: &str) -> PyResult<&'static Params> {
    let set: &'static Params = name.parse().map_err(bad)?;
    match set.signature_limit() {
        None => Ok(set),
        // Nothing here counts a key's signatures.
        Some(limit) => Err(bad(format!(
            "{set} is a set of a draft, whose keys may make {limit} signatures: use the tool, which counts them"
        ))),
    }
}

/// How messages become M′.
struct MessageMode {
    context: Option<Bytes>,
    hash: Option<PreHash>,
}

impl MessageMode {
    fn of(context: Option<&Bound<'_, PyAny>>, prehash: Option<&str>) -> PyResult<MessageMode> {
        let context = context.map(|context| Bytes::of(context, "context")).transpose()?;
        Ok(MessageMode { context, hash: prehash.map(|name| name.parse().map_err(bad)).transpose()? })
    }

    fn mode(&self) -> Mode<'_> {
        let context = self.context.as_deref().unwrap_or_default();
        match self.hash {
            Some(hash) => Mode::PreHash { context, hash },
            None => Mode::Pure { context },
        }
    }
}

fn randomizer(deterministic: bool) -> Randomizer<'static> {
    if deterministic { Randomizer::Deterministic } else { Randomizer::Hedged }
}

/// Whether the bytes are DER by their first two: nothing that follows is looked at.
fn check_der(bytes: &[u8], is_wanted: bool) -> PyResult<()> {
    let is_der = match *bytes {
        [0x30, length, ..] => length >= 0x80 || usize::from(length) + 2 == bytes.len(),
        _ => false,
    };
    match (is_der, is_wanted) {
        (true, false) => Err(bad("the key is DER, not PEM; use from_der")),
        (false, true) => {
            Err(bad("the key is no DER: it does not begin as a sequence of its length; from_pem reads PEM"))
        }
        _ => Ok(()),
    }
}

/// A private key of SLH-DSA. Its memory is wiped when Python lets go of it; it does not pickle, its `repr` shows no secret, and
/// two keys are compared in constant time.
#[pyclass(frozen, eq, module = "hypergrove")]
#[derive(PartialEq)]
pub(crate) struct PrivateKey(Arc<SigningKey>);

#[pymethods]
impl PrivateKey {
    /// A new key of the set, "SLH-DSA-SHA2-128s" for example, from the operating system's randomness.
    #[staticmethod]
    #[pyo3(signature = (set, *, engine=None))]
    fn generate(py: Python<'_>, set: &str, engine: Option<&Bound<'_, Engine>>) -> PyResult<PrivateKey> {
        let (params, engine) = (set_of(set)?, engine_of(engine)?);
        py.detach(|| engine.generate(params)).map(|key| PrivateKey(key.into())).map_err(|why| exception(&why))
    }

    /// Reads PKCS#8 in PEM. `passphrase`: bytes, for a key that is encrypted.
    #[staticmethod]
    #[pyo3(signature = (data, passphrase=None))]
    fn from_pem(data: &Bound<'_, PyAny>, passphrase: Option<&Bound<'_, PyAny>>) -> PyResult<PrivateKey> {
        PrivateKey::read(data, passphrase, false)
    }

    /// Reads PKCS#8 in DER. `passphrase`: bytes, for a key that is encrypted.
    #[staticmethod]
    #[pyo3(signature = (data, passphrase=None))]
    fn from_der(data: &Bound<'_, PyAny>, passphrase: Option<&Bound<'_, PyAny>>) -> PyResult<PrivateKey> {
        PrivateKey::read(data, passphrase, true)
    }

    /// Reads SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root.
    #[staticmethod]
    fn from_raw(set: &str, data: &Bound<'_, PyAny>) -> PyResult<PrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        SigningKey::from_bytes(set_of(set)?, &bytes.0).map(|key| PrivateKey(key.into())).map_err(bad)
    }

    /// PKCS#8 in PEM: encrypted by scrypt and AES-256 if there is a `passphrase`, bytes. Python cannot wipe what is returned.
    #[pyo3(signature = (passphrase=None))]
    fn to_pem<'py>(&self, py: Python<'py>, passphrase: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyBytes>> {
        match self.encrypted(passphrase)? {
            Some(key) => Ok(PyBytes::new(py, key.to_pem(LineEnding::LF).map_err(bad)?.as_bytes())),
            None => Ok(PyBytes::new(py, self.0.to_pkcs8_pem(LineEnding::LF).map_err(bad)?.as_bytes())),
        }
    }

    /// PKCS#8 in DER: encrypted by scrypt and AES-256 if there is a `passphrase`, bytes. Python cannot wipe what is returned.
    #[pyo3(signature = (passphrase=None))]
    fn to_der<'py>(&self, py: Python<'py>, passphrase: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyBytes>> {
        match self.encrypted(passphrase)? {
            Some(key) => Ok(PyBytes::new(py, key.to_der().map_err(bad)?.as_bytes())),
            None => Ok(PyBytes::new(py, self.0.to_pkcs8_der().map_err(bad)?.as_bytes())),
        }
    }

    /// SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root. Python cannot wipe what is returned.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The parameter set's name.
    #[getter]
    fn set(&self) -> &'static str {
        self.0.params().name
    }

    /// Bytes of a signature.
    #[getter]
    fn signature_size(&self) -> usize {
        self.0.params().sig_bytes()
    }

    /// A copy of the key that keeps the nodes of its top layers: it makes the same signatures in less time. `layers`: how many, by
    /// default one; 0 drops the nodes. `memory`: as many layers as fit into so many bytes, and at most as many as can be
    /// cached; none if not even one fits. The nodes are no secret.
    /// to_pem, to_der and to_raw do not write them.
    #[pyo3(signature = (*, layers=None, memory=None, engine=None))]
    fn cache(
        &self,
        py: Python<'_>,
        layers: Option<usize>,
        memory: Option<usize>,
        engine: Option<&Bound<'_, Engine>>,
    ) -> PyResult<PrivateKey> {
        let engine = engine_of(engine)?;
        let cached = py.detach(|| match (layers, memory) {
            (layers, None) => engine.cache(&self.0, layers.unwrap_or(1)).map_err(Failure::from),
            (None, Some(memory)) => engine.cache_within(&self.0, memory).map_err(Failure::from),
            (Some(layers), Some(memory)) => {
                Err(bad(format!("layers and memory: they are {layers} and {memory}; give one of them")).into())
            }
        });
        Ok(PrivateKey(cached?.into()))
    }

    /// Bytes that the nodes of the top layers take.
    fn cache_size(&self, layers: usize) -> PyResult<usize> {
        let params = self.0.params();
        let size = if layers <= params.d { cache_bytes(params, layers) } else { None };
        size.ok_or_else(|| match layers <= params.d {
            true => bad(format!("layers: the nodes of {layers} are more than memory can have; give fewer")),
            false => bad(format!("layers: {layers}, and {} has {}; give fewer", params.name, params.d)),
        })
    }

    /// The layers whose nodes the key keeps.
    #[getter]
    fn cached_layers(&self) -> usize {
        self.0.cached_layers()
    }

    /// The public key.
    fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// A signature. `context`: at most 255 bytes. `prehash`: the hash function of HashSLH-DSA, "SHA2-256" for example.
    /// `deterministic`: the same message always has the same signature.
    #[pyo3(signature = (data, context=None, *, prehash=None, deterministic=false, engine=None))]
    fn sign<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        deterministic: bool,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (message, how) = (Bytes::of(data, "data")?, MessageMode::of(context, prehash)?);
        let engine = engine_of(engine)?;
        let signed = py.detach(|| engine.sign(&self.0, how.mode(), &message, randomizer(deterministic)));
        signed.map(|signature| PyBytes::new(py, signature.as_bytes())).map_err(|why| exception(&why))
    }

    /// As `sign`, for asyncio: a future of the running loop. Calls that wait at the same time share batches. Cancelling the future
    /// cancels its job, unless the job has begun. If too many jobs wait, the call raises BlockingIOError.
    #[pyo3(signature = (data, context=None, *, prehash=None, deterministic=false, engine=None))]
    fn sign_async<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        deterministic: bool,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (message, how) = (Bytes::of(data, "data")?, MessageMode::of(context, prehash)?);
        let engine = engine_of(engine)?;
        let job = SignJob::new(self.0.clone(), &message[..]).mode(how.mode()).randomizer(randomizer(deterministic));
        Pending::start(py, || match engine.submit(job) {
            Ok(ticket) => Ok(submitted(ticket, |signature| Answer::Signature(signature.into_bytes()))),
            Err(refused) => Err(exception(&refused.why)),
        })
    }

    /// A signature for each message: an array of uint8, of shape (messages, signature_size), or `out`, which must have that shape.
    /// If signing fails or is interrupted, rows of `out` that are not signed are zero. If an argument is refused, `out` stays as it was.
    /// `nulls` and `malformed`: see `verify_batch`.
    #[pyo3(signature = (
        messages, *, context=None, prehash=None, deterministic=false, out=None, engine=None, nulls="error",
        malformed="error"
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn sign_batch<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        deterministic: bool,
        out: Option<&Bound<'py, PyAny>>,
        engine: Option<&Bound<'py, Engine>>,
        nulls: &str,
        malformed: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let policy = RowPolicy::of(nulls, malformed)?;
        let (messages, how) = (Rows::of(messages, "messages")?, MessageMode::of(context, prehash)?);
        let (engine, width) = (engine_of(engine)?, self.signature_size());
        policy.check_out(out)?;
        let gaps = policy.gaps(py, &[(&messages, None)])?;
        write_results(py, out, (&messages, width, gaps), &engine, (RowStatus::Signed, true), |part, check| {
            let rows = SignRows {
                keys: RowSigningKeys::One(&self.0),
                mode: how.mode(),
                messages: part.columns[0],
                randomizer: randomizer(deterministic),
            };
            engine.sign_rows_with_progress(&rows, part.out, part.statuses, |_| check())
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("private keys do not pickle; to_pem and from_pem move them where that is meant"))
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.PrivateKey {}>", self.set())
    }
}

impl PrivateKey {
    fn read(data: &Bound<'_, PyAny>, passphrase: Option<&Bound<'_, PyAny>>, is_der: bool) -> PyResult<PrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        let passphrase = passphrase_of(passphrase)?;
        check_der(&bytes.0, is_der)?;
        let read = match (EncryptedSigningKey::looks_like_it(&bytes.0), passphrase) {
            (false, None) => SigningKey::read_pkcs8(&bytes.0),
            (true, Some(passphrase)) => {
                let key = EncryptedSigningKey::read(&bytes.0).map_err(bad)?;
                data.py().detach(|| SigningKey::decrypt(&key, &passphrase.0))
            }
            (true, None) => return Err(bad("the key is encrypted; give its passphrase")),
            (false, Some(_)) => return Err(bad("the key is not encrypted; leave passphrase out")),
        };
        read.map(|key| PrivateKey(key.into())).map_err(bad)
    }

    fn encrypted(&self, passphrase: Option<&Bound<'_, PyAny>>) -> PyResult<Option<EncryptedSigningKey>> {
        let Some((passphrase, py)) = passphrase_of(passphrase)?.zip(passphrase.map(Bound::py)) else { return Ok(None) };
        py.detach(|| self.0.encrypt(&passphrase.0, PassphraseKdf::Scrypt)).map(Some).map_err(bad)
    }
}

fn passphrase_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Secret>> {
    let Some(given) = given else { return Ok(None) };
    let passphrase = Secret(Bytes::of(given, "passphrase")?);
    match passphrase.0.is_empty() {
        true => Err(bad("an empty passphrase; give another, or None")),
        false => Ok(Some(passphrase)),
    }
}

/// Bytes of a private key: a copy of them is wiped.
pub(crate) struct Secret(pub(crate) Bytes);

impl Drop for Secret {
    fn drop(&mut self) {
        if let Bytes::Copied(copy) = &mut self.0 {
            zeroize::Zeroize::zeroize(copy);
        }
    }
}

/// A public key of SLH-DSA.
#[pyclass(frozen, eq, hash, module = "hypergrove")]
#[derive(PartialEq, Hash)]
pub(crate) struct PublicKey(VerifyingKey);

#[pymethods]
impl PublicKey {
    /// Reads SPKI in PEM.
    #[staticmethod]
    fn from_pem(data: &Bound<'_, PyAny>) -> PyResult<PublicKey> {
        PublicKey::read(data, false)
    }

    /// Reads SPKI in DER.
    #[staticmethod]
    fn from_der(data: &Bound<'_, PyAny>) -> PyResult<PublicKey> {
        PublicKey::read(data, true)
    }

    /// Reads PK.seed ‖ PK.root.
    #[staticmethod]
    fn from_raw(set: &str, data: &Bound<'_, PyAny>) -> PyResult<PublicKey> {
        VerifyingKey::from_bytes(set_of(set)?, &Bytes::of(data, "data")?).map(PublicKey).map_err(bad)
    }

    /// SPKI in PEM.
    fn to_pem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let pem = self.0.to_public_key_pem(LineEnding::LF).map_err(bad)?;
        Ok(PyBytes::new(py, pem.as_bytes()))
    }

    /// SPKI in DER.
    fn to_der<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.to_public_key_der().map_err(bad)?.as_bytes()))
    }

    /// PK.seed ‖ PK.root.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The parameter set's name.
    #[getter]
    fn set(&self) -> &'static str {
        self.0.params().name
    }

    /// Bytes of a signature.
    #[getter]
    fn signature_size(&self) -> usize {
        self.0.params().sig_bytes()
    }

    /// Raises InvalidSignature unless the signature is this key's for the data.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<()> {
        match self.is_valid(py, signature, data, context, prehash, engine)? {
            true => Ok(()),
            false => Err(invalid(self.set())),
        }
    }

    /// As `verify`, for asyncio: a future of the running loop, which becomes None, or raises InvalidSignature. See
    /// `PrivateKey.sign_async`.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn verify_async<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (signature, message) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?);
        let (how, engine) = (MessageMode::of(context, prehash)?, engine_of(engine)?);
        how.mode().check(b"").map_err(bad)?;
        let set = self.set();
        if signature.len() != self.signature_size() {
            return Pending::start(py, || Ok(Box::new(move |_| Poll::Ready(Ok(Answer::Invalid(set))))));
        }
        let job = VerifyJob::new(&self.0, &message[..], &signature[..]).mode(how.mode());
        Pending::start(py, || match engine.submit(job) {
            Ok(ticket) => Ok(submitted(ticket, verdict(set))),
            Err(refused) => Err(exception(&refused.why)),
        })
    }

    /// Whether the signature is this key's for the data. A signature of another length is not.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn is_valid<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        prehash: Option<&str>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<bool> {
        let (signature, message) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?);
        let (how, engine) = (MessageMode::of(context, prehash)?, engine_of(engine)?);
        how.mode().check(b"").map_err(bad)?;
        if signature.len() != self.signature_size() {
            return Ok(false);
        }
        py.detach(|| engine.verify(&self.0, how.mode(), &message, &signature)).map_err(|why| exception(&why))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (key, py) = (slf.get(), slf.py());
        (slf.get_type().getattr("from_raw")?, (key.set(), key.to_raw(py))).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let hex: String = self.0.to_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("<hypergrove.PublicKey {} {hex}…>", self.set())
    }
}

impl PublicKey {
    fn read(data: &Bound<'_, PyAny>, is_der: bool) -> PyResult<PublicKey> {
        let bytes = Bytes::of(data, "data")?;
        check_der(&bytes, is_der)?;
        VerifyingKey::read_spki(&bytes).map(PublicKey).map_err(bad)
    }
}

/// The private keys of a batch, in one piece of memory that is wiped in the end: `keys[i]` is a PrivateKey.
#[pyclass(frozen, sequence, module = "hypergrove")]
pub(crate) struct PrivateKeys {
    params: &'static Params,
    bytes: Zeroizing<Vec<u8>>,
}

#[pymethods]
impl PrivateKeys {
    /// The parameter set's name.
    #[getter]
    fn set(&self) -> &'static str {
        self.params.name
    }

    fn __len__(&self) -> usize {
        self.bytes.len() / self.params.sk_bytes()
    }

    fn __getitem__(&self, index: isize) -> PyResult<PrivateKey> {
        let at = row_of(index, self.__len__())?;
        let bytes = &self.bytes[at * self.params.sk_bytes()..][..self.params.sk_bytes()];
        SigningKey::from_bytes(self.params, bytes).map(|key| PrivateKey(key.into())).map_err(bad)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf.as_any(), slf.get().__len__())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("private keys do not pickle; to_pem and from_pem move them where that is meant"))
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.PrivateKeys {}, {}>", self.set(), self.__len__())
    }
}

/// The row that an index of Python means.
pub(crate) fn row_of(index: isize, rows: usize) -> PyResult<usize> {
    let row = if index < 0 { index + rows as isize } else { index };
    let row = usize::try_from(row).ok().filter(|row| *row < rows);
    row.ok_or_else(|| PyIndexError::new_err(format!("index {index}, of {rows}")))
}

/// The keys of a call that verifies.
enum Keys {
    One(VerifyingKey),
    Table(Vec<VerifyingKey>, Vec<u32>),
    Packed(&'static Params, Rows),
}

impl Keys {
    fn of(object: &Bound<'_, PyAny>, set: Option<&str>) -> PyResult<Keys> {
        let set = set.map(set_of).transpose()?;
        let fits = |key: &VerifyingKey, what: &str| match set {
            Some(set) if set != key.params() => {
                Err(bad(format!("{what} is of the set {}, and set is {}", key.params().name, set.name)))
            }
            _ => Ok(()),
        };
        if let Ok(key) = object.cast::<PublicKey>() {
            let key = &key.get().0;
            fits(key, "the public key")?;
            return Ok(Keys::One(key.clone()));
        }
        if let Some(items) = keys_of::<PublicKey>(object)? {
            // Objects that are alive have addresses of their own.
            let (mut keys, mut numbers, mut of) = (Vec::<VerifyingKey>::new(), HashMap::new(), Vec::new());
            of.try_reserve_exact(items.len()).map_err(|_| too_many(items.len()))?;
            for (row, item) in items.iter().enumerate() {
                let key = &item.get().0;
                fits(key, &format!("public_keys: row {row}"))?;
                let number = match numbers.entry(item.as_ptr() as usize) {
                    Entry::Occupied(number) => *number.get(),
                    Entry::Vacant(entry) => {
                        if let Some(first) = keys.first().filter(|first| first.params() != key.params()) {
                            let (first, other) = (first.params().name, key.params().name);
                            return Err(bad(format!(
                                "public_keys: row {row} is of the set {other}, row 0 of {first}; make a call for each set"
                            )));
                        }
                        keys.push(key.clone());
                        *entry.insert(keys.len() as u32 - 1)
                    }
                };
                of.push(number);
            }
            return Ok(Keys::Table(keys, of));
        }
        if set.is_none() && object.cast::<PySequence>().is_ok_and(|rows| rows.len().is_ok_and(|count| count == 0)) {
            return Ok(Keys::Table(Vec::new(), Vec::new()));
        }
        let Some(params) = set else {
            return Err(PyTypeError::new_err(
                "public_keys: give a PublicKey, a sequence of PublicKey, or keys as bytes with set=\"SLH-DSA-…\"",
            ));
        };
        Ok(Keys::Packed(params, Rows::of(object, "public_keys")?))
    }

    /// The set, if there is a key.
    fn params(&self) -> Option<&'static Params> {
        match self {
            Keys::One(key) => Some(key.params()),
            Keys::Table(keys, _) => keys.first().map(VerifyingKey::params),
            Keys::Packed(params, _) => Some(params),
        }
    }

    fn rows(&self) -> Option<usize> {
        match self {
            Keys::One(_) => None,
            Keys::Table(_, of) => Some(of.len()),
            Keys::Packed(_, rows) => Some(rows.count),
        }
    }

    /// Takes the keys of a dictionary-encoded column out of its dictionary, each once, and leaves the rows of a table out that are not
    /// `picked`.
    fn prepare(&mut self, py: Python<'_>, picked: Option<&[usize]>) -> PyResult<()> {
        if let Keys::Packed(params, rows) = &*self
            && let Some((values, of)) = rows.table(py, params.pk_bytes())?
        {
            if picked.is_none()
                && let Some(row) = of.iter().position(|number| *number == NO_VALUE)
            {
                let fault = rows.lengths().nth(row).and_then(Result::err);
                return Err(rows.is_wrong(row, fault.unwrap_or(RowFault::KeyLength)));
            }
            // The engine wants a key in its table.
            if !values.is_empty() {
                let keys = values.iter().map(|value| VerifyingKey::from_bytes(params, value).map_err(bad));
                *self = Keys::Table(keys.collect::<PyResult<_>>()?, of);
            }
        }
        if let (Keys::Table(_, of), Some(picked)) = (self, picked) {
            *of = picked.iter().map(|row| of[*row]).collect();
        }
        Ok(())
    }

    /// The column of keys that are bytes.
    fn packed(&self) -> Option<(&'static Params, &Rows)> {
        if let Keys::Packed(params, rows) = self { Some((params, rows)) } else { None }
    }

    /// The keys of a part; `packed` are those that are bytes.
    fn column<'a>(&'a self, rows: Range<usize>, packed: Option<&Column<'a>>) -> RowVerifyingKeys<'a> {
        match (self, packed) {
            (Keys::One(key), _) => RowVerifyingKeys::One(key),
            (Keys::Table(keys, of), _) => RowVerifyingKeys::Table { keys, of: &of[rows] },
            (Keys::Packed(params, _), packed) => {
                RowVerifyingKeys::Encoded { params, keys: *packed.expect("packed keys are a column") }
            }
        }
    }
}

/// Whether each signature is valid: an array of booleans. `public_keys`: one PublicKey for all rows, a list of them, or keys as
/// bytes with the name of their `set`. A signature of the wrong length is not valid; what is wrong with other columns is an
/// exception.
///
/// `nulls`: with "propagate", rows with a null (of Arrow, or None in a list) have null verdicts; with "error" they are an
/// exception. `malformed`: with "null", rows with wrong offsets or a public key of the wrong length have null verdicts too, and
/// `reasons` of the result says why.
#[pyfunction]
#[pyo3(signature = (
    public_keys, signatures, messages, *, set=None, context=None, prehash=None, engine=None, nulls="error",
    malformed="error"
))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn verify_batch<'py>(
    py: Python<'py>,
    public_keys: &Bound<'py, PyAny>,
    signatures: &Bound<'py, PyAny>,
    messages: &Bound<'py, PyAny>,
    set: Option<&str>,
    context: Option<&Bound<'py, PyAny>>,
    prehash: Option<&str>,
    engine: Option<&Bound<'py, Engine>>,
    nulls: &str,
    malformed: &str,
) -> PyResult<Bound<'py, Array>> {
    let policy = RowPolicy::of(nulls, malformed)?;
    let mut keys = Keys::of(public_keys, set)?;
    let (signatures, messages) = (Rows::of(signatures, "signatures")?, Rows::of(messages, "messages")?);
    let (how, engine) = (MessageMode::of(context, prehash)?, engine_of(engine)?);
    if let Some((params, packed)) = keys.packed()
        && !policy.permits_malformed
    {
        packed.check_width(params.pk_bytes(), &format!("a public key of {}", params.name))?;
    }
    if let Some(params) = keys.params() {
        signatures.check_width(params.sig_bytes(), &format!("a signature of {}", params.name))?;
    }
    signatures.check_count(messages.count, "messages")?;
    if let Some(count) = keys.rows().filter(|count| *count != messages.count) {
        return Err(bad(format!(
            "public_keys has {count} rows, messages has {}; give one for each row",
            messages.count
        )));
    }
    if keys.params().is_none() {
        return booleans(py, Vec::new(), None);
    }
    let packed = keys.packed().map(|(params, rows)| (rows, Some(params.pk_bytes())));
    let columns: Vec<_> = [(&signatures, None), (&messages, None)].into_iter().chain(packed).collect();
    let gaps = policy.gaps(py, &columns)?;
    keys.prepare(py, gaps.as_ref().map(|gaps| &gaps.picked[..]))?;
    let packed = keys.packed().map(|(_, rows)| rows);
    let given: Vec<&Rows> = [&signatures, &messages].into_iter().chain(packed).collect();
    let verdicts = py.detach(|| {
        let gaps = gaps.as_ref();
        let columns = given.iter().map(|rows| rows.hold(gaps)).collect::<PyResult<Vec<_>>>()?;
        let batch = Batch { fetched: Some(0), ..Batch::of(&engine, &columns, messages.count, gaps) };
        let statuses = batch.run(Out::none(), |part, check| {
            let rows = VerifyRows {
                keys: keys.column(part.rows, part.columns.get(2)),
                mode: how.mode(),
                messages: part.columns[1],
                signatures: part.columns[0],
            };
            engine.verify_rows_with_progress(&rows, part.statuses, |_| check())
        })?;
        verdicts(&statuses, gaps)
    });
    booleans(py, verdicts.map_err(|why| Rows::name(&given, why))?, gaps)
}

/// New key pairs of a set from the operating system's randomness: PrivateKeys, and an array of the public keys' bytes.
#[pyfunction]
#[pyo3(signature = (set, count, *, engine=None))]
pub(crate) fn keygen_batch<'py>(
    py: Python<'py>,
    set: &str,
    count: usize,
    engine: Option<&Bound<'py, Engine>>,
) -> PyResult<(PrivateKeys, Array)> {
    let (params, engine) = (set_of(set)?, engine_of(engine)?);
    let mut private = Zeroizing::new(zeros(size(count, params.sk_bytes())?)?);
    let mut public = zeros(size(count, params.pk_bytes())?)?;
    let done = py.detach(|| {
        let mut signals = Signals::new();
        engine.keygen_rows_with_progress(params, &mut private, &mut public, |_| signals.check())?;
        signals.finish().map_err(Failure::from)
    });
    done.map_err(PyErr::from)?;
    let public = Array::new(public, Element::Byte, &[count, params.pk_bytes()]);
    Ok((PrivateKeys { params, bytes: private }, public))
}

/// SHA-256 of each message: an array of uint8, of shape (messages, 32), or `out`. `nulls` and `malformed`: see `verify_batch`.
#[pyfunction]
#[pyo3(signature = (messages, *, out=None, engine=None, nulls="error", malformed="error"))]
pub(crate) fn sha256_batch<'py>(
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    engine: Option<&Bound<'py, Engine>>,
    nulls: &str,
    malformed: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let policy = RowPolicy::of(nulls, malformed)?;
    let (messages, engine) = (Rows::of(messages, "messages")?, engine_of(engine)?);
    policy.check_out(out)?;
    let gaps = policy.gaps(py, &[(&messages, None)])?;
    write_results(py, out, (&messages, 32, gaps), &engine, (RowStatus::Hashed, false), |part, _| {
        engine.sha256_rows(part.columns[0], part.out, part.statuses)
    })
}
