//! zkDilithium: keys, and calls with one key or many.

use crate::columns::{Bytes, Rows, Signals, booleans, iterate, keys_of, size, verdicts, write_results, zeros};
use crate::engine::{Engine, engine_of};
use crate::error::{Failure, bad, exception};
use crate::foreign::array::{Array, Element};
use crate::keys::{Secret, row_of};
use crate::parts::{Batch, Out};
use crate::pending::{Answer, Pending, invalid, submitted, verdict};
use hypergrove::rows::{RowSigningKeys, RowStatus};
use hypergrove::zkdilithium::params::{NAME, PK_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{
    Message, RowVerifyingKeys, SignJob, SignRows, SigningKey, VerifyJob, VerifyRows, VerifyingKey,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use zeroize::Zeroizing;

const NO_PICKLE: &str = "private keys do not pickle; to_pem and from_pem move them where that is meant";

/// A private key of zkDilithium. Its memory is wiped when Python lets go of it; it does not pickle, its `repr` shows no secret,
/// and two keys are compared in constant time.
#[pyclass(frozen, eq, module = "hypergrove.zkdilithium", name = "PrivateKey")]
#[derive(PartialEq)]
pub(crate) struct ZkPrivateKey(SigningKey);

#[pymethods]
impl ZkPrivateKey {
    /// A new key from the operating system's randomness.
    #[staticmethod]
    #[pyo3(signature = (*, engine=None))]
    fn generate(py: Python<'_>, engine: Option<&Bound<'_, Engine>>) -> PyResult<ZkPrivateKey> {
        let engine = engine_of(engine)?.zkdilithium();
        py.detach(|| engine.generate()).map(ZkPrivateKey).map_err(|why| exception(&why))
    }

    /// Reads PEM, and checks the key.
    #[staticmethod]
    fn from_pem(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ZkPrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        py.detach(|| SigningKey::read_pem(&bytes.0)).map(ZkPrivateKey).map_err(bad)
    }

    /// Reads ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, 3,936 bytes. They are checked before the key signs for the first time.
    #[staticmethod]
    fn from_raw(data: &Bound<'_, PyAny>) -> PyResult<ZkPrivateKey> {
        let bytes = Secret(Bytes::of(data, "data")?);
        SigningKey::from_bytes(&bytes.0).map(ZkPrivateKey).map_err(bad)
    }

    /// The key in PEM. Python cannot wipe what is returned.
    fn to_pem<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.to_pem().as_bytes())
    }

    /// ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t. Python cannot wipe what is returned.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The public key.
    fn public_key(&self) -> ZkPublicKey {
        ZkPublicKey(self.0.verifying_key())
    }

    /// The signature of these bytes: a message has one.
    #[pyo3(signature = (data, *, engine=None))]
    fn sign<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (message, engine) = (Bytes::of(data, "data")?, engine_of(engine)?.zkdilithium());
        let signed = py.detach(|| engine.sign(&self.0, &message[..]));
        signed.map(|signature| PyBytes::new(py, signature.as_bytes())).map_err(|why| exception(&why))
    }

    /// As `sign`, for asyncio: a future of the running loop. Calls that wait at the same time share batches. Cancelling the future
    /// cancels its job, unless the job has begun. If too many jobs wait, the call raises BlockingIOError.
    #[pyo3(signature = (data, *, engine=None))]
    fn sign_async<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (message, engine) = (Bytes::of(data, "data")?, engine_of(engine)?.zkdilithium());
        let job = SignJob::new(self.0.clone(), &message[..]);
        Pending::start(py, || match engine.submit(job) {
            Ok(ticket) => Ok(submitted(ticket, |signature| Answer::Signature(signature.into_bytes()))),
            Err(refused) => Err(exception(&refused.why)),
        })
    }

    /// A signature for each message: an array of uint8, or `out`, which must have the shape (messages, SIGNATURE_SIZE). If the call fails or
    /// is interrupted, rows of `out` that are not signed are zero.
    #[pyo3(signature = (messages, *, out=None, engine=None))]
    fn sign_batch<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (messages, engine) = (Rows::without_nulls(messages, "messages")?, engine_of(engine)?);
        let zk = engine.zkdilithium();
        write_results(py, out, (&messages, SIG_BYTES, None), &engine, (RowStatus::Signed, true), |part, check| {
            let rows = SignRows { keys: RowSigningKeys::One(&self.0), messages: part.columns[0].into() };
            zk.sign_rows_with_progress(&rows, part.out, part.statuses, |_| check())
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(NO_PICKLE))
    }

    fn __repr__(&self) -> &'static str {
        "<hypergrove.zkdilithium.PrivateKey>"
    }
}

/// A public key of zkDilithium.
#[pyclass(frozen, eq, module = "hypergrove.zkdilithium", name = "PublicKey")]
#[derive(PartialEq)]
pub(crate) struct ZkPublicKey(VerifyingKey);

#[pymethods]
impl ZkPublicKey {
    /// Reads PEM.
    #[staticmethod]
    fn from_pem(data: &Bound<'_, PyAny>) -> PyResult<ZkPublicKey> {
        VerifyingKey::read_pem(&Bytes::of(data, "data")?).map(ZkPublicKey).map_err(bad)
    }

    /// Reads ρ ‖ t, 3,104 bytes.
    #[staticmethod]
    fn from_raw(data: &Bound<'_, PyAny>) -> PyResult<ZkPublicKey> {
        VerifyingKey::from_bytes(&Bytes::of(data, "data")?).map(ZkPublicKey).map_err(bad)
    }

    /// The key in PEM.
    fn to_pem<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.to_pem().as_bytes())
    }

    /// ρ ‖ t.
    fn to_raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_bytes())
    }

    /// Raises InvalidSignature unless the signature is this key's for the data.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<()> {
        match self.is_valid(py, signature, data, engine)? {
            true => Ok(()),
            false => Err(invalid(NAME)),
        }
    }

    /// As `verify`, for asyncio: a future of the running loop, which becomes None, or raises InvalidSignature. See
    /// `PrivateKey.sign_async`.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn verify_async<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (signature, message) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?);
        let engine = engine_of(engine)?.zkdilithium();
        let job = VerifyJob::new(self.0.clone(), &message[..], &signature[..]);
        Pending::start(py, || match engine.submit(job) {
            Ok(ticket) => Ok(submitted(ticket, verdict(NAME))),
            Err(refused) => Err(exception(&refused.why)),
        })
    }

    /// Whether the signature is this key's for the data. A signature of another length is not.
    #[pyo3(signature = (signature, data, *, engine=None))]
    fn is_valid<'py>(
        &self,
        py: Python<'py>,
        signature: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        engine: Option<&Bound<'py, Engine>>,
    ) -> PyResult<bool> {
        let (signature, message) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?);
        let engine = engine_of(engine)?.zkdilithium();
        py.detach(|| engine.verify(&self.0, Message::Bytes(&message), &signature)).map_err(|why| exception(&why))
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
#[pyclass(frozen, sequence, module = "hypergrove.zkdilithium", name = "PrivateKeys")]
pub(crate) struct ZkPrivateKeys(Zeroizing<Vec<u8>>);

#[pymethods]
impl ZkPrivateKeys {
    fn __len__(&self) -> usize {
        self.0.len() / SK_BYTES
    }

    fn __getitem__(&self, index: isize) -> PyResult<ZkPrivateKey> {
        let at = row_of(index, self.__len__())?;
        SigningKey::from_bytes(&self.0[at * SK_BYTES..][..SK_BYTES]).map(ZkPrivateKey).map_err(bad)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf.as_any(), slf.get().__len__())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(NO_PICKLE))
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.zkdilithium.PrivateKeys, {}>", self.__len__())
    }
}

/// The keys of a call that verifies.
enum Keys {
    One(VerifyingKey),
    /// In succession, equal keys are made ready once.
    Table(Vec<VerifyingKey>),
    Packed(Rows),
}

/// Whether each signature is valid: an array of booleans. `public_keys`: one PublicKey for all rows, a list of them, or keys as
/// bytes. A signature of the wrong length is not valid; what is wrong with other columns is an exception.
#[pyfunction(name = "verify_batch")]
#[pyo3(signature = (public_keys, signatures, messages, *, engine=None))]
pub(crate) fn zk_verify_batch<'py>(
    py: Python<'py>,
    public_keys: &Bound<'py, PyAny>,
    signatures: &Bound<'py, PyAny>,
    messages: &Bound<'py, PyAny>,
    engine: Option<&Bound<'py, Engine>>,
) -> PyResult<Bound<'py, Array>> {
    let (signatures, messages) =
        (Rows::without_nulls(signatures, "signatures")?, Rows::without_nulls(messages, "messages")?);
    let engine = engine_of(engine)?;
    let keys = if let Ok(key) = public_keys.cast::<ZkPublicKey>() {
        Keys::One(key.get().0.clone())
    } else if let Some(items) = keys_of::<ZkPublicKey>(public_keys)? {
        let keys: Vec<_> = items.iter().map(|key| key.get().0.clone()).collect();
        if keys.len() != messages.count {
            return Err(uneven(keys.len(), messages.count));
        }
        Keys::Table(keys)
    } else {
        let rows = Rows::without_nulls(public_keys, "public_keys")?;
        rows.check_width(PK_BYTES, "a public key of zkDilithium")?;
        rows.check_count(messages.count, "messages")?;
        Keys::Packed(rows)
    };
    signatures.check_width(SIG_BYTES, "a signature of zkDilithium")?;
    signatures.check_count(messages.count, "messages")?;
    let zk = engine.zkdilithium();
    let packed = if let Keys::Packed(keys) = &keys { Some(keys) } else { None };
    let given: Vec<&Rows> = [&signatures, &messages].into_iter().chain(packed).collect();
    let verdicts = py.detach(|| {
        let columns = given.iter().map(|rows| rows.hold(None)).collect::<PyResult<Vec<_>>>()?;
        let batch = Batch { fetched: Some(0), ..Batch::of(&engine, &columns, messages.count, None) };
        let statuses = batch.run(Out::none(), |part, check| {
            let of: Vec<u32>;
            let keys = match &keys {
                Keys::One(key) => RowVerifyingKeys::One(key),
                Keys::Table(keys) => {
                    of = (0..part.rows.len() as u32).collect();
                    RowVerifyingKeys::Table { keys: &keys[part.rows], of: &of }
                }
                Keys::Packed(_) => RowVerifyingKeys::Encoded(part.columns[2]),
            };
            let rows = VerifyRows { keys, messages: part.columns[1].into(), signatures: part.columns[0] };
            zk.verify_rows_with_progress(&rows, part.statuses, |_| check())
        })?;
        verdicts(&statuses, None)
    });
    booleans(py, verdicts.map_err(|why| Rows::name(&given, why))?, None)
}

fn uneven(keys: usize, messages: usize) -> PyErr {
    bad(format!("public_keys has {keys} rows, messages has {messages}; give one for each row"))
}

/// New key pairs from the operating system's randomness: PrivateKeys, and an array of the public keys' bytes.
#[pyfunction(name = "keygen_batch")]
#[pyo3(signature = (count, *, engine=None))]
pub(crate) fn zk_keygen_batch<'py>(
    py: Python<'py>,
    count: usize,
    engine: Option<&Bound<'py, Engine>>,
) -> PyResult<(ZkPrivateKeys, Array)> {
    let engine = engine_of(engine)?.zkdilithium();
    let mut private = Zeroizing::new(zeros(size(count, SK_BYTES)?)?);
    let mut public = zeros(size(count, PK_BYTES)?)?;
    let done = py.detach(|| {
        let mut signals = Signals::new();
        engine.keygen_rows_with_progress(&mut private, Some(&mut public), |_| signals.check())?;
        signals.finish().map_err(Failure::from)
    });
    done.map_err(PyErr::from)?;
    Ok((ZkPrivateKeys(private), Array::new(public, Element::Byte, &[count, PK_BYTES])))
}
