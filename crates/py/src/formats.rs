//! Envelopes, manifests and lists of signers, by the crate `hypergrove-files`.

use crate::calls::{Call, Given, How, Object, PyScheme};
use crate::columns::{Bytes, text};
use crate::engine::{Engine, engine_of};
use crate::error::{InvalidSignature, bad, exception};
use crate::exit::detach;
use crate::files::{Errors, GivenPath, is_path};
use crate::keys::{PrivateKey, PublicKey};
use crate::messages::MessageFile;
use hypergrove::{Mode, ReadError, SlhDsa, VerifyingKey};
use hypergrove_files::envelope::{self, Header, Mismatch};
use hypergrove_files::manifest::{self, ManifestError};
use hypergrove_files::signers;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A module of its own for `hypergrove/files.py`.
pub(crate) fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    let module = PyModule::new(py, "files")?;
    module.add_class::<Envelope>()?;
    module.add_class::<Manifest>()?;
    module.add_class::<AllowedSigners>()?;
    module.add_function(wrap_pyfunction!(sign_envelope, &module)?)?;
    Ok(module)
}

/// A message: bytes, or a file.
enum Message {
    Bytes(Bytes),
    File(MessageFile),
}

trait Seekable: Read + Seek {}
impl<R: Read + Seek> Seekable for R {}

impl Message {
    fn of(data: &Object<'_>) -> PyResult<Message> {
        let is_file = is_path(data)? || data.hasattr("fileno")?;
        Ok(if is_file { Message::File(MessageFile::of(data)?) } else { Message::Bytes(Bytes::of(data, "data")?) })
    }

    fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Seekable) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        match self {
            Message::File(file) => file.read(py, |from| work(from)),
            Message::Bytes(bytes) => detach(py, || work(&mut Cursor::new(&bytes[..]))).map_err(|why| match why {
                ReadError::Engine(why) => exception(&why),
                why => bad(why),
            }),
        }
    }
}

/// A signature with a header that says which set, mode, context and key it is of. `str(envelope)` is its text, as the tool reads it.
#[pyclass(frozen, eq, module = "hypergrove.files")]
#[derive(PartialEq)]
struct Envelope(envelope::Envelope);

/// Signs a message for an envelope. `data`: bytes, or a file as for `PrivateKey.sign_file`. `comment`: a line that is signed, too.
#[pyfunction]
#[pyo3(signature = (key, data, context=None, *, prehash=None, comment=None, deterministic=false, engine=None))]
fn sign_envelope(
    key: &Bound<'_, PrivateKey>,
    data: &Object<'_>,
    context: Given<'_>,
    prehash: Option<&str>,
    comment: Option<&str>,
    deterministic: bool,
    engine: Given<'_, Engine>,
) -> PyResult<Envelope> {
    let call = How { context, prehash, deterministic, ..How::with(engine) }.call()?;
    let ((mode, randomizer), key, message) = (SlhDsa::mode(&call), &key.get().0, Message::of(data)?);
    if let (Message::File(file), None) = (&message, call.hash) {
        file.check_seek(data.py())?;
    }
    let header = Header::new(&key.verifying_key(), mode, comment).map_err(bad)?;
    let context = header.signed_context();
    let sign = |mut from: &mut dyn Seekable| call.engine.sign_reader(key, header.mode(&context), &mut from, randomizer);
    let signature = message.read(data.py(), sign)?;
    envelope::Envelope::new(header, signature.as_bytes()).map(Envelope).map_err(bad)
}

#[pymethods]
impl Envelope {
    /// Reads an envelope, str or bytes. This verifies nothing.
    #[staticmethod]
    fn parse(data: &Object<'_>) -> PyResult<Envelope> {
        envelope::Envelope::parse(&text(data, "data")?.0).map(Envelope).map_err(bad)
    }

    /// The parameter set's name.
    #[getter]
    fn set(&self) -> &'static str {
        self.0.header().params().name
    }

    /// The name of the pre-hash, or None.
    #[getter]
    fn prehash(&self) -> Option<String> {
        self.0.header().prehash().map(|hash| hash.to_string())
    }

    /// The context that the signer named.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.header().context())
    }

    /// The fingerprint of the key that signed.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.header().key().to_string()
    }

    /// The comment, or None. Trust it after `verify` alone.
    #[getter]
    fn comment(&self) -> Option<&str> {
        self.0.header().comment()
    }

    /// Raises InvalidSignature, which says what is wrong, unless the key has signed this message with this context. `data`: bytes, or a file as for
    /// `PrivateKey.sign_file`.
    #[pyo3(signature = (public_key, data, context=None, *, engine=None))]
    fn verify(
        &self,
        public_key: &Bound<'_, PublicKey>,
        data: &Object<'_>,
        context: Given<'_>,
        engine: Given<'_, Engine>,
    ) -> PyResult<()> {
        let (call, key) = (How { context, ..How::with(engine) }.call()?, &public_key.get().0);
        self.check(key, &call)?;
        match valid(&[key], &Message::of(data)?, (Some(&self.0), &[], &call), data.py())? {
            Some(_) => Ok(()),
            None => Err(mismatch(&Mismatch::Content)),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.files.Envelope {} {}>", self.set(), self.fingerprint())
    }
}

impl Envelope {
    fn check(&self, key: &VerifyingKey, call: &Call) -> PyResult<()> {
        self.0.header().check(key, call.context.as_deref().unwrap_or_default()).map_err(|why| mismatch(&why))
    }
}

fn mismatch(why: &Mismatch) -> PyErr {
    InvalidSignature::new_err(why.to_string())
}

/// The number of the first key that has signed a message, in an envelope or without one.
fn valid(
    keys: &[&VerifyingKey],
    message: &Message,
    (envelope, signature, call): (Option<&envelope::Envelope>, &[u8], &Call),
    py: Python<'_>,
) -> PyResult<Option<usize>> {
    let context = envelope.map(|envelope| envelope.header().signed_context());
    let (mode, signature) = match (envelope, &context) {
        (Some(envelope), Some(context)) => (envelope.header().mode(context), envelope.signature()),
        _ => (SlhDsa::mode(call).0, signature),
    };
    message.read(py, |from| {
        for (number, job) in
            call.engine.read_to_verify(keys.iter().copied(), mode, from, signature)?.into_iter().enumerate()
        {
            if call.engine.run(job)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    })
}

/// The SHA-256 of every file of a folder, in the lines of sha256sum. Whoever signs the lines signs the folder.
#[pyclass(frozen, eq, module = "hypergrove.files")]
#[derive(PartialEq)]
struct Manifest(manifest::Manifest);

#[pymethods]
impl Manifest {
    /// Reads all files of a folder. `without`: paths in the folder that are left out, such as the manifest's own.
    #[staticmethod]
    #[pyo3(signature = (folder, *, without=Vec::new(), engine=None))]
    fn of_folder(folder: &Object<'_>, without: Vec<PathBuf>, engine: Given<'_, Engine>) -> PyResult<Manifest> {
        let (folder, py, engine) = (folder_of(folder)?, folder.py(), engine_of(engine)?);
        let takes = |path: &Path| !without.iter().any(|left_out| left_out == path);
        let made = detach(py, || manifest::Manifest::of_tree(&engine, &folder, takes));
        made.map(Manifest).map_err(of_manifest)
    }

    /// Reads the lines, str or bytes. Verify their signature before.
    #[staticmethod]
    fn parse(data: &Object<'_>) -> PyResult<Manifest> {
        manifest::Manifest::parse(&text(data, "data")?.0).map(Manifest).map_err(of_manifest)
    }

    /// The lines: what is signed.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The path of each file, and its SHA-256.
    fn entries<'py>(&self, py: Python<'py>) -> Vec<(OsString, Bound<'py, PyBytes>)> {
        let entry = |entry: &manifest::ManifestEntry| (entry.path().into(), PyBytes::new(py, entry.sum()));
        self.0.entries().iter().map(entry).collect()
    }

    /// The problems of a folder: the path of each file that was changed, cannot be read or is not listed, and why. The list is empty if the
    /// folder is as it was. `without`: paths that may be there although they are not listed.
    #[pyo3(signature = (folder, *, without=Vec::new(), engine=None))]
    fn problems(
        &self,
        folder: &Object<'_>,
        without: Vec<PathBuf>,
        engine: Given<'_, Engine>,
    ) -> PyResult<Vec<(OsString, String)>> {
        let (folder, py, engine) = (folder_of(folder)?, folder.py(), engine_of(engine)?);
        let takes = |path: &Path| !without.iter().any(|left_out| left_out == path);
        let found = detach(py, || {
            let mut found = Vec::new();
            self.0.check(&engine, &folder, |number, sum| {
                let why = match sum {
                    Ok(true) => return,
                    Ok(false) => "it was changed".into(),
                    Err(why) => why.to_string(),
                };
                found.push((self.0.entries()[number].path().into(), why));
            })?;
            let extra = self.0.extra(&folder, takes)?.into_iter();
            found.extend(extra.map(|path| (path.into_os_string(), "it is not listed".to_owned())));
            Ok(found)
        });
        found.map_err(of_manifest)
    }

    fn __len__(&self) -> usize {
        self.0.entries().len()
    }
}

fn folder_of(folder: &Object<'_>) -> PyResult<PathBuf> {
    GivenPath::of(folder, "folder", "give a str or a pathlib.Path").map(|given| given.path)
}

fn of_manifest(why: ManifestError) -> PyErr {
    match why {
        ManifestError::Io { path, source } => Errors(Some(&path)).failed(&source),
        ManifestError::Engine(why) => exception(&why),
        why => bad(why),
    }
}

/// A list of who may sign: names, public keys and conditions, as the tool reads it.
#[pyclass(frozen, eq, module = "hypergrove.files")]
#[derive(PartialEq)]
struct AllowedSigners(signers::AllowedSigners);

#[pymethods]
impl AllowedSigners {
    /// Reads a list, str or bytes.
    #[staticmethod]
    fn parse(data: &Object<'_>) -> PyResult<AllowedSigners> {
        signers::AllowedSigners::parse(&text(data, "data")?.0).map(AllowedSigners).map_err(bad)
    }

    /// Reads the file of a list.
    #[staticmethod]
    fn load(path: &Object<'_>) -> PyResult<AllowedSigners> {
        let file = GivenPath::of(path, "path", "give a str or a pathlib.Path; parse reads the text of a list")?;
        signers::AllowedSigners::parse(&file.read_key()?).map(AllowedSigners).map_err(|why| file.wrong(why))
    }

    /// A triple for each signer: the name, the public key, and None if the key may sign with this context at this time, otherwise why not.
    /// `at`: a datetime with a time zone, by default now.
    #[pyo3(signature = (context=None, *, at=None))]
    fn check(&self, context: Given<'_>, at: Option<SystemTime>) -> PyResult<Vec<(String, PublicKey, Option<String>)>> {
        let context = context.map(|context| Bytes::of(context, "context")).transpose()?;
        let (mode, at) =
            (Mode::Pure { context: context.as_deref().unwrap_or_default() }, at.unwrap_or_else(SystemTime::now));
        let one = |signer: &signers::AllowedSigner| {
            let why = signer.check(mode, at).err().map(|why| why.to_string());
            (signer.name().into(), PublicKey(signer.key().clone()), why)
        };
        Ok(self.0.iter().map(one).collect())
    }

    /// The name of the signer whose signature, bytes or an Envelope, this is; raises InvalidSignature if it is of none who may sign with this
    /// context at this time (`at`, see `check`). `data`: bytes, or a file as for `PrivateKey.sign_file`.
    #[pyo3(signature = (signature, data, context=None, *, prehash=None, at=None, engine=None))]
    fn verify(
        &self,
        signature: &Object<'_>,
        data: &Object<'_>,
        context: Given<'_>,
        prehash: Option<&str>,
        at: Option<SystemTime>,
        engine: Given<'_, Engine>,
    ) -> PyResult<String> {
        let call = How { context, prehash, ..How::with(engine) }.call()?;
        let envelope = signature.cast::<Envelope>().ok().map(Bound::get);
        if envelope.is_some() && prehash.is_some() {
            return Err(bad("prehash: an envelope names its own; leave it out"));
        }
        let signature = if envelope.is_some() { None } else { Some(Bytes::of(signature, "signature")?) };
        let (mode, at) = (SlhDsa::mode(&call).0, at.unwrap_or_else(SystemTime::now));
        let fits = |key: &VerifyingKey| match envelope {
            Some(envelope) => envelope.check(key, &call).is_ok(),
            None => key.as_ref().check_mode(mode).is_ok(),
        };
        let allowed: Vec<_> = self.0.iter().filter(|one| one.may_sign(mode, at) && fits(one.key())).collect();
        let keys: Vec<_> = allowed.iter().map(|one| one.key()).collect();
        let given = (envelope.map(|envelope| &envelope.0), signature.as_deref().unwrap_or_default(), &call);
        let found = valid(&keys, &Message::of(data)?, given, data.py())?;
        found.map(|number| allowed[number].name().to_owned()).ok_or_else(|| {
            InvalidSignature::new_err(
                "the signature is of none of the signers who may sign with this context at this time",
            )
        })
    }

    fn __len__(&self) -> usize {
        self.0.iter().count()
    }
}
