//! Classes and functions of SLH-DSA.

use crate::calls::{Call, Given, How, Object, PrivateRows, PyScheme, results};
use crate::columns::{Bytes, Secret, text};
use crate::engine::{Engine, engine_of};
use crate::error::{Failure, bad, exception};
use crate::exit::detach;
use crate::files::GivenPath;
use crate::foreign::array::{Array, iterate};
use crate::messages::MessageFile;
use crate::policy::RowPolicy;
use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::rows::RowStatus;
use hypergrove::{
    EncryptedSigningKey, KeyError, Mode, Params, PassphraseKdf, Randomizer, SigningKey, SlhDsa, VerifyingKey,
    cache_bytes,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::sync::Arc;

impl PyScheme for SlhDsa {
    type PublicKey = PublicKey;
    const MAKES_TABLES: bool = true;

    fn key<'a>(object: &'a Bound<'_, PublicKey>) -> &'a VerifyingKey {
        &object.get().0
    }

    fn mode(call: &Call) -> (Mode<'_>, Randomizer<'_>) {
        let context = call.context.as_deref().unwrap_or_default();
        let mode = match call.hash {
            Some(hash) => Mode::PreHash { context, hash },
            None => Mode::Pure { context },
        };
        (mode, if call.deterministic { Randomizer::Deterministic } else { Randomizer::Hedged })
    }
}

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

/// The exception that refuses to pickle private keys.
pub(crate) fn no_pickle() -> PyErr {
    PyTypeError::new_err("private keys do not pickle; to_pem and from_pem move them where that is meant")
}

/// A private key of SLH-DSA. Its memory is wiped when Python lets go of it; it does not pickle, its `repr` shows no secret, and
/// two keys are compared in constant time.
#[pyclass(frozen, eq, module = "hypergrove")]
#[derive(PartialEq)]
pub(crate) struct PrivateKey(pub(crate) Arc<SigningKey>);

#[pymethods]
impl PrivateKey {
    /// A new key of the set, "SLH-DSA-SHA2-128s" for example, from the operating system's randomness.
    #[staticmethod]
    #[pyo3(signature = (set, *, engine=None))]
    fn generate(py: Python<'_>, set: &str, engine: Given<'_, Engine>) -> PyResult<PrivateKey> {
        let (params, engine) = (set_of(set)?, engine_of(engine)?);
        detach(py, || engine.generate(params)).map(|key| PrivateKey(key.into())).map_err(|why| exception(&why))
    }

    /// Reads PKCS#8 in PEM, str or bytes. `passphrase`: str or bytes, for a key that is encrypted.
    #[staticmethod]
    #[pyo3(signature = (data, passphrase=None))]
    fn from_pem(data: &Object<'_>, passphrase: Given<'_>) -> PyResult<PrivateKey> {
        let bytes = pem(data)?;
        check_der(&bytes.0, false)?;
        PrivateKey::read(data.py(), &bytes.0, passphrase)
    }

    /// Reads PKCS#8 in DER. `passphrase`: str or bytes, for a key that is encrypted.
    #[staticmethod]
    #[pyo3(signature = (data, passphrase=None))]
    fn from_der(data: &Object<'_>, passphrase: Given<'_>) -> PyResult<PrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        check_der(&bytes.0, true)?;
        PrivateKey::read(data.py(), &bytes.0, passphrase)
    }

    /// Reads a file of PKCS#8, PEM or DER. `passphrase`: str or bytes, for a key that is encrypted.
    #[staticmethod]
    #[pyo3(signature = (path, passphrase=None))]
    fn load(path: &Object<'_>, passphrase: Given<'_>) -> PyResult<PrivateKey> {
        let file = GivenPath::of_key(path)?;
        let read = PrivateKey::read(path.py(), &file.read_key()?, passphrase);
        read.map_err(
            |why| if why.is_instance_of::<PyValueError>(path.py()) { file.wrong(why.value(path.py())) } else { why },
        )
    }

    /// Writes a file with `to_pem`, which its owner alone may read (mode 0600), whole or not at all. A file that exists stays as it is, unless
    /// `overwrite` is True.
    #[pyo3(signature = (path, passphrase=None, *, overwrite=false))]
    fn save(&self, path: &Object<'_>, passphrase: Given<'_>, overwrite: bool) -> PyResult<()> {
        let (file, key) = (GivenPath::of_key(path)?, self.encrypted(passphrase)?);
        let pem = key.map_or_else(
            || self.0.to_pkcs8_pem(LineEnding::LF).map_err(bad),
            |key| key.to_pem(LineEnding::LF).map(Into::into).map_err(bad),
        );
        file.write(pem?.as_bytes(), true, overwrite)
    }

    /// Reads SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root. As whatever reads a private key, this computes PK.root from the seeds, which takes as long as
    /// making the key.
    #[staticmethod]
    fn from_raw(set: &str, data: &Object<'_>) -> PyResult<PrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        let set = set_of(set)?;
        detach(data.py(), || SigningKey::from_bytes(set, &bytes.0)).map(|key| PrivateKey(key.into())).map_err(bad)
    }

    /// PKCS#8 in PEM: encrypted by scrypt and AES-256 if there is a `passphrase`, str or bytes. Python cannot wipe what is returned.
    #[pyo3(signature = (passphrase=None))]
    fn to_pem<'py>(&self, py: Python<'py>, passphrase: Given<'_>) -> PyResult<Bound<'py, PyBytes>> {
        match self.encrypted(passphrase)? {
            Some(key) => Ok(PyBytes::new(py, key.to_pem(LineEnding::LF).map_err(bad)?.as_bytes())),
            None => Ok(PyBytes::new(py, self.0.to_pkcs8_pem(LineEnding::LF).map_err(bad)?.as_bytes())),
        }
    }

    /// PKCS#8 in DER: encrypted by scrypt and AES-256 if there is a `passphrase`, str or bytes. Python cannot wipe what is returned.
    #[pyo3(signature = (passphrase=None))]
    fn to_der<'py>(&self, py: Python<'py>, passphrase: Given<'_>) -> PyResult<Bound<'py, PyBytes>> {
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

    /// The public key's fingerprint, "SHA256:…", as the tool shows it.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.verifying_key().fingerprint().to_string()
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
        engine: Given<'_, Engine>,
    ) -> PyResult<PrivateKey> {
        let engine = engine_of(engine)?;
        let cached = detach(py, || match (layers, memory) {
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
        data: &Object<'py>,
        context: Given<'_>,
        prehash: Option<&str>,
        deterministic: bool,
        engine: Given<'_, Engine>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        SlhDsa::sign_one(&self.0, data, How { context, prehash, deterministic, ..How::with(engine) })
    }

    /// A signature of a file of any size, which is read twice in pieces, or once with `prehash`. `file`: a path, or a file that was opened for
    /// bytes, of which the message begins at its place (`tell`). A file that changes meanwhile is an OSError.
    #[pyo3(signature = (file, context=None, *, prehash=None, deterministic=false, engine=None))]
    fn sign_file<'py>(
        &self,
        file: &Object<'py>,
        context: Given<'_>,
        prehash: Option<&str>,
        deterministic: bool,
        engine: Given<'_, Engine>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let call = How { context, prehash, deterministic, ..How::with(engine) }.call()?;
        let (py, file) = (file.py(), MessageFile::of(file)?);
        if call.hash.is_none() {
            file.check_seek(py)?;
        }
        let (mode, randomizer) = SlhDsa::mode(&call);
        let signature = file.read(py, |from| call.engine.sign_reader(&self.0, mode, from, randomizer))?;
        Ok(PyBytes::new(py, signature.as_bytes()))
    }

    /// As `sign`, for asyncio: a future of the running loop. Calls that wait at the same time share batches. Cancelling the future
    /// cancels its job, unless the job has begun. If too many jobs wait, the call raises BlockingIOError.
    #[pyo3(signature = (data, context=None, *, prehash=None, deterministic=false, engine=None))]
    fn sign_async<'py>(
        &self,
        data: &Object<'py>,
        context: Given<'_>,
        prehash: Option<&str>,
        deterministic: bool,
        engine: Given<'_, Engine>,
    ) -> PyResult<Object<'py>> {
        SlhDsa::sign_later(&self.0, data, How { context, prehash, deterministic, ..How::with(engine) })
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
        messages: &Object<'py>,
        context: Given<'_>,
        prehash: Option<&str>,
        deterministic: bool,
        out: Option<&Object<'py>>,
        engine: Given<'_, Engine>,
        nulls: &str,
        malformed: &str,
    ) -> PyResult<Object<'py>> {
        let policy = RowPolicy::of(nulls, malformed)?;
        SlhDsa::sign_many(&self.0, messages, out, How { context, prehash, deterministic, engine, policy })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle())
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.PrivateKey {}>", self.set())
    }
}

impl PrivateKey {
    fn read(py: Python<'_>, bytes: &[u8], passphrase: Given<'_>) -> PyResult<PrivateKey> {
        let passphrase = passphrase_of(passphrase)?;
        let read = match (detach(py, || SigningKey::read_pkcs8(bytes)), passphrase) {
            (Err(KeyError::Encrypted), Some(passphrase)) => {
                let key = EncryptedSigningKey::read(bytes).map_err(bad)?;
                detach(py, || SigningKey::decrypt(&key, &passphrase.0))
            }
            (Err(KeyError::Encrypted), None) => return Err(bad("the key is encrypted; give its passphrase")),
            (Ok(_), Some(_)) => return Err(bad("the key is not encrypted; leave passphrase out")),
            (read, _) => read,
        };
        read.map(|key| PrivateKey(key.into())).map_err(bad)
    }

    fn encrypted(&self, passphrase: Given<'_>) -> PyResult<Option<EncryptedSigningKey>> {
        let Some((passphrase, py)) = passphrase_of(passphrase)?.zip(passphrase.map(Bound::py)) else { return Ok(None) };
        // A key that others encrypted with an empty passphrase is still read.
        if passphrase.0.is_empty() {
            return Err(bad("an empty passphrase; give another, or None"));
        }
        detach(py, || self.0.encrypt(&passphrase.0, PassphraseKdf::Scrypt)).map(Some).map_err(bad)
    }
}

/// The PEM of a key, str or bytes; not the path of its file.
pub(crate) fn pem(data: &Object<'_>) -> PyResult<Secret> {
    if data.hasattr("__fspath__")? {
        let kind = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!("data: {kind} is the path of a file; load reads it")));
    }
    let pem = text(data, "data")?;
    match data.is_instance_of::<PyString>() && !pem.0.windows(BEGIN.len()).any(|window| window == BEGIN) {
        true => Err(bad("data: this str has no line '-----BEGIN …', so it is no PEM; load reads the file of a path")),
        false => Ok(pem),
    }
}

/// How a block of PEM begins.
const BEGIN: &[u8] = b"-----BEGIN ";

fn passphrase_of(given: Given<'_>) -> PyResult<Option<Secret>> {
    given.map(|given| text(given, "passphrase")).transpose()
}

/// A public key of SLH-DSA.
#[pyclass(frozen, eq, hash, module = "hypergrove")]
#[derive(PartialEq, Hash)]
pub(crate) struct PublicKey(pub(crate) VerifyingKey);

#[pymethods]
impl PublicKey {
    /// Reads SPKI in PEM, str or bytes.
    #[staticmethod]
    fn from_pem(data: &Object<'_>) -> PyResult<PublicKey> {
        let bytes = pem(data)?;
        check_der(&bytes.0, false)?;
        VerifyingKey::read_spki(&bytes.0).map(PublicKey).map_err(bad)
    }

    /// Reads SPKI in DER.
    #[staticmethod]
    fn from_der(data: &Object<'_>) -> PyResult<PublicKey> {
        let bytes = Bytes::of(data, "data")?;
        check_der(&bytes, true)?;
        VerifyingKey::read_spki(&bytes).map(PublicKey).map_err(bad)
    }

    /// Reads a file of SPKI, PEM or DER.
    #[staticmethod]
    fn load(path: &Object<'_>) -> PyResult<PublicKey> {
        let file = GivenPath::of_key(path)?;
        VerifyingKey::read_spki(&file.read_key()?).map(PublicKey).map_err(|why| file.wrong(why))
    }

    /// Writes a file with `to_pem`, whole or not at all. A file that exists stays as it is, unless `overwrite` is True.
    #[pyo3(signature = (path, *, overwrite=false))]
    fn save(&self, path: &Object<'_>, overwrite: bool) -> PyResult<()> {
        let pem = self.0.to_public_key_pem(LineEnding::LF).map_err(bad)?;
        GivenPath::of_key(path)?.write(pem.as_bytes(), false, overwrite)
    }

    /// Reads PK.seed ‖ PK.root.
    #[staticmethod]
    fn from_raw(set: &str, data: &Object<'_>) -> PyResult<PublicKey> {
        VerifyingKey::from_bytes(set_of(set)?, &Bytes::of(data, "data")?).map(PublicKey).map_err(bad)
    }

    /// SPKI in PEM.
    fn to_pem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.to_public_key_pem(LineEnding::LF).map_err(bad)?.as_bytes()))
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

    /// The public key's fingerprint, "SHA256:…", as the tool shows it.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    /// Bytes of a signature.
    #[getter]
    fn signature_size(&self) -> usize {
        self.0.params().sig_bytes()
    }

    /// Raises InvalidSignature unless the signature is this key's for the data.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn verify(
        &self,
        signature: &Object<'_>,
        data: &Object<'_>,
        context: Given<'_>,
        prehash: Option<&str>,
        engine: Given<'_, Engine>,
    ) -> PyResult<()> {
        SlhDsa::verify_one(&self.0, signature, data, How { context, prehash, ..How::with(engine) })
    }

    /// As `verify`, for asyncio: a future of the running loop, which becomes None, or raises InvalidSignature. See
    /// `PrivateKey.sign_async`.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn verify_async<'py>(
        &self,
        signature: &Object<'_>,
        data: &Object<'py>,
        context: Given<'_>,
        prehash: Option<&str>,
        engine: Given<'_, Engine>,
    ) -> PyResult<Object<'py>> {
        SlhDsa::verify_later(&self.0, signature, data, How { context, prehash, ..How::with(engine) })
    }

    /// Whether the signature is this key's for the data. A signature of another length is not.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, engine=None))]
    fn is_valid(
        &self,
        signature: &Object<'_>,
        data: &Object<'_>,
        context: Given<'_>,
        prehash: Option<&str>,
        engine: Given<'_, Engine>,
    ) -> PyResult<bool> {
        SlhDsa::is_valid(&self.0, signature, data, How { context, prehash, ..How::with(engine) })
    }

    /// Whether the signature is this key's for a file of any size, which is read once in pieces; `file` as for `PrivateKey.sign_file`. A
    /// signature that is not valid is no exception, but False.
    #[pyo3(signature = (file, signature, context=None, *, prehash=None, engine=None))]
    fn verify_file(
        &self,
        file: &Object<'_>,
        signature: &Object<'_>,
        context: Given<'_>,
        prehash: Option<&str>,
        engine: Given<'_, Engine>,
    ) -> PyResult<bool> {
        let (signature, call) =
            (Bytes::of(signature, "signature")?, How { context, prehash, ..How::with(engine) }.call()?);
        let mode = SlhDsa::mode(&call).0;
        MessageFile::of(file)?.read(file.py(), |from| call.engine.verify_reader(&self.0, mode, from, &signature))
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

/// The private keys of a batch, in one piece of memory that is wiped in the end: `keys[i]` is a PrivateKey.
#[pyclass(frozen, sequence, module = "hypergrove")]
pub(crate) struct PrivateKeys(PrivateRows<SlhDsa>);

#[pymethods]
impl PrivateKeys {
    /// The parameter set's name.
    #[getter]
    fn set(&self) -> &'static str {
        self.0.set.name
    }

    fn __len__(&self) -> usize {
        self.0.count()
    }

    fn __getitem__(&self, index: isize) -> PyResult<PrivateKey> {
        self.0.get(index).map(PrivateKey)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Object<'py>> {
        iterate(slf.as_any(), slf.get().__len__())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle())
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.PrivateKeys {}, {}>", self.set(), self.__len__())
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
    public_keys: &Object<'py>,
    signatures: &Object<'py>,
    messages: &Object<'py>,
    set: Option<&str>,
    context: Given<'_>,
    prehash: Option<&str>,
    engine: Given<'_, Engine>,
    nulls: &str,
    malformed: &str,
) -> PyResult<Bound<'py, Array>> {
    let policy = RowPolicy::of(nulls, malformed)?;
    let (set, how) =
        (set.map(set_of).transpose()?.map(SlhDsa::from), How { context, prehash, policy, ..How::with(engine) });
    SlhDsa::verify_many([public_keys, signatures, messages], set, how)
}

/// New key pairs of a set from the operating system's randomness: PrivateKeys, and an array of the public keys' bytes.
#[pyfunction]
#[pyo3(signature = (set, count, *, engine=None))]
pub(crate) fn keygen_batch(
    py: Python<'_>,
    set: &str,
    count: usize,
    engine: Given<'_, Engine>,
) -> PyResult<(PrivateKeys, Array)> {
    SlhDsa::from(set_of(set)?).make_many(py, count, engine).map(|(private, public)| (PrivateKeys(private), public))
}

/// SHA-256 of each message: an array of uint8, of shape (messages, 32), or `out`. `nulls` and `malformed`: see `verify_batch`.
#[pyfunction]
#[pyo3(signature = (messages, *, out=None, engine=None, nulls="error", malformed="error"))]
pub(crate) fn sha256_batch<'py>(
    messages: &Object<'py>,
    out: Option<&Object<'py>>,
    engine: Given<'_, Engine>,
    nulls: &str,
    malformed: &str,
) -> PyResult<Object<'py>> {
    let how = How { policy: RowPolicy::of(nulls, malformed)?, ..How::with(engine) };
    results(messages, out, 32, how, RowStatus::Hashed, |call, messages, out, statuses, check| {
        call.engine.sha256_rows_into(messages, out, statuses, |_| check())
    })
}
