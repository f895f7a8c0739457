//! Classes and functions of zkDilithium.

use crate::calls::{Given, How, Object, PrivateRows, PyScheme};
use crate::columns::{Bytes, Secret};
use crate::engine::{Engine, engine_of};
use crate::error::{bad, exception};
use crate::exit::detach;
use crate::files::GivenPath;
use crate::foreign::array::{Array, iterate};
use crate::keys::{no_pickle, pem};
use hypergrove::zkdilithium::params::{PK_BYTES, SIG_BYTES};
use hypergrove::zkdilithium::{SigningKey, VerifyingKey, ZkDilithium};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::Arc;

impl PyScheme for ZkDilithium {
    type PublicKey = PublicKey;
    const MAKES_TABLES: bool = false;

    fn key<'a>(object: &'a Bound<'_, PublicKey>) -> &'a VerifyingKey {
        &object.get().0
    }
}

/// A module of its own for `hypergrove/zkdilithium.py`, since names are the same.
pub(crate) fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    let module = PyModule::new(py, "zkdilithium")?;
    module.add_class::<PrivateKey>()?;
    module.add_class::<PublicKey>()?;
    module.add_class::<PrivateKeys>()?;
    module.add_function(wrap_pyfunction!(verify_batch, &module)?)?;
    module.add_function(wrap_pyfunction!(keygen_batch, &module)?)?;
    module.add("SIGNATURE_SIZE", SIG_BYTES)?;
    module.add("PUBLIC_KEY_SIZE", PK_BYTES)?;
    Ok(module)
}

/// A private key of zkDilithium. Its memory is wiped when Python lets go of it; it does not pickle, its `repr` shows no secret,
/// and two keys are compared in constant time.
#[pyclass(frozen, eq, module = "hypergrove.zkdilithium")]
#[derive(PartialEq)]
struct PrivateKey(Arc<SigningKey>);

#[pymethods]
impl PrivateKey {
    /// A new key from the operating system's randomness.
    #[staticmethod]
    #[pyo3(signature = (*, engine=None))]
    fn generate(py: Python<'_>, engine: Given<'_, Engine>) -> PyResult<PrivateKey> {
        let engine = engine_of(engine)?;
        detach(py, || engine.generate(ZkDilithium)).map(|key| PrivateKey(key.into())).map_err(|why| exception(&why))
    }

    /// Reads PEM, str or bytes, and checks the key.
    #[staticmethod]
    fn from_pem(py: Python<'_>, data: &Object<'_>) -> PyResult<PrivateKey> {
        let bytes = pem(data)?;
        detach(py, || SigningKey::read_pem(&bytes.0)).map(|key| PrivateKey(key.into())).map_err(bad)
    }

    /// Reads a file of PEM, and checks the key.
    #[staticmethod]
    fn load(path: &Object<'_>) -> PyResult<PrivateKey> {
        let file = GivenPath::of_key(path)?;
        let bytes = file.read_key()?;
        detach(path.py(), || SigningKey::read_pem(&bytes))
            .map(|key| PrivateKey(key.into()))
            .map_err(|why| file.wrong(why))
    }

    /// Writes a file with `to_pem`, which its owner alone may read (mode 0600), whole or not at all. A file that exists stays as it is, unless
    /// `overwrite` is True.
    #[pyo3(signature = (path, *, overwrite=false))]
    fn save(&self, path: &Object<'_>, overwrite: bool) -> PyResult<()> {
        GivenPath::of_key(path)?.write(self.0.to_pem().as_bytes(), true, overwrite)
    }

    /// Reads ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, 3,936 bytes. They are checked before the key signs for the first time.
    #[staticmethod]
    fn from_raw(data: &Object<'_>) -> PyResult<PrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        detach(data.py(), || SigningKey::from_bytes(&bytes.0)).map(|key| PrivateKey(key.into())).map_err(bad)
    }

    /// The key in PEM. Python cannot wipe what is returned.
    fn to_pem<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.to_pem().as_bytes())
    }

    /// ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t. Python cannot wipe what is returned.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The public key's fingerprint, "SHA256:…", as the tool shows it.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.verifying_key().fingerprint().to_string()
    }

    /// The public key.
    fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// The signature of these bytes: a message has one.
    #[pyo3(signature = (data, *, engine=None))]
    fn sign<'py>(&self, data: &Object<'py>, engine: Given<'_, Engine>) -> PyResult<Bound<'py, PyBytes>> {
        ZkDilithium::sign_one(&self.0, data, How::with(engine))
    }

    /// As `sign`, for asyncio: a future of the running loop. Calls that wait at the same time share batches. Cancelling the future
    /// cancels its job, unless the job has begun. If too many jobs wait, the call raises BlockingIOError.
    #[pyo3(signature = (data, *, engine=None))]
    fn sign_async<'py>(&self, data: &Object<'py>, engine: Given<'_, Engine>) -> PyResult<Object<'py>> {
        ZkDilithium::sign_later(&self.0, data, How::with(engine))
    }

    /// A signature for each message: an array of uint8, or `out`, which must have the shape (messages, SIGNATURE_SIZE). If the call fails or
    /// is interrupted, rows of `out` that are not signed are zero.
    #[pyo3(signature = (messages, *, out=None, engine=None))]
    fn sign_batch<'py>(
        &self,
        messages: &Object<'py>,
        out: Option<&Object<'py>>,
        engine: Given<'_, Engine>,
    ) -> PyResult<Object<'py>> {
        ZkDilithium::sign_many(&self.0, messages, out, How::with(engine))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle())
    }

    fn __repr__(&self) -> &'static str {
        "<hypergrove.zkdilithium.PrivateKey>"
    }
}

/// A public key of zkDilithium.
#[pyclass(frozen, eq, module = "hypergrove.zkdilithium")]
#[derive(PartialEq)]
pub(crate) struct PublicKey(VerifyingKey);

#[pymethods]
impl PublicKey {
    /// Reads PEM, str or bytes.
    #[staticmethod]
    fn from_pem(data: &Object<'_>) -> PyResult<PublicKey> {
        VerifyingKey::read_pem(&pem(data)?.0).map(PublicKey).map_err(bad)
    }

    /// Reads a file of PEM.
    #[staticmethod]
    fn load(path: &Object<'_>) -> PyResult<PublicKey> {
        let file = GivenPath::of_key(path)?;
        VerifyingKey::read_pem(&file.read_key()?).map(PublicKey).map_err(|why| file.wrong(why))
    }

    /// Writes a file with `to_pem`, whole or not at all. A file that exists stays as it is, unless `overwrite` is True.
    #[pyo3(signature = (path, *, overwrite=false))]
    fn save(&self, path: &Object<'_>, overwrite: bool) -> PyResult<()> {
        GivenPath::of_key(path)?.write(self.0.to_pem().as_bytes(), false, overwrite)
    }

    /// Reads ρ ‖ t, 3,104 bytes.
    #[staticmethod]
    fn from_raw(data: &Object<'_>) -> PyResult<PublicKey> {
        VerifyingKey::from_bytes(&Bytes::of(data, "data")?).map(PublicKey).map_err(bad)
    }

    /// The key in PEM.
    fn to_pem<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.to_pem().as_bytes())
    }

    /// The public key's fingerprint, "SHA256:…", as the tool shows it.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    /// ρ ‖ t.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_bytes())
    }

    /// Raises InvalidSignature unless the signature is this key's for the data.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn verify(&self, signature: &Object<'_>, data: &Object<'_>, engine: Given<'_, Engine>) -> PyResult<()> {
        ZkDilithium::verify_one(&self.0, signature, data, How::with(engine))
    }

    /// As `verify`, for asyncio: a future of the running loop, which becomes None, or raises InvalidSignature. See
    /// `PrivateKey.sign_async`.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn verify_async<'py>(
        &self,
        signature: &Object<'_>,
        data: &Object<'py>,
        engine: Given<'_, Engine>,
    ) -> PyResult<Object<'py>> {
        ZkDilithium::verify_later(&self.0, signature, data, How::with(engine))
    }

    /// Whether the signature is this key's for the data. A signature of another length is not.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn is_valid(&self, signature: &Object<'_>, data: &Object<'_>, engine: Given<'_, Engine>) -> PyResult<bool> {
        ZkDilithium::is_valid(&self.0, signature, data, How::with(engine))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.to_raw(py).hash()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        (slf.get_type().getattr("from_raw")?, (slf.get().to_raw(py),)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let hex: String = self.0.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("<hypergrove.zkdilithium.PublicKey {hex}…>")
    }
}

/// The private keys of a batch, in one piece of memory that is wiped in the end: `keys[i]` is a PrivateKey.
#[pyclass(frozen, sequence, module = "hypergrove.zkdilithium")]
struct PrivateKeys(PrivateRows<ZkDilithium>);

#[pymethods]
impl PrivateKeys {
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
        format!("<hypergrove.zkdilithium.PrivateKeys, {}>", self.__len__())
    }
}

/// Whether each signature is valid: an array of booleans. `public_keys`: one PublicKey for all rows, a list of them, or keys as
/// bytes. A signature of the wrong length is not valid; what is wrong with other columns is an exception.
#[pyfunction]
#[pyo3(signature = (public_keys, signatures, messages, *, engine=None))]
fn verify_batch<'py>(
    public_keys: &Object<'py>,
    signatures: &Object<'py>,
    messages: &Object<'py>,
    engine: Given<'_, Engine>,
) -> PyResult<Bound<'py, Array>> {
    ZkDilithium::verify_many([public_keys, signatures, messages], Some(ZkDilithium), How::with(engine))
}

/// New key pairs from the operating system's randomness: PrivateKeys, and an array of the public keys' bytes.
#[pyfunction]
#[pyo3(signature = (count, *, engine=None))]
fn keygen_batch(py: Python<'_>, count: usize, engine: Given<'_, Engine>) -> PyResult<(PrivateKeys, Array)> {
    ZkDilithium.make_many(py, count, engine).map(|(private, public)| (PrivateKeys(private), public))
}
