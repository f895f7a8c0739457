//! Messages in files, which are read in pieces.

use crate::calls::Object;
use crate::error::exception;
use crate::files::{Errors, GivenPath, Interruptible, interruptible, is_path};
use crate::foreign::descriptor;
use hypergrove::ReadError;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::SystemTime;

/// A file with a message.
pub(crate) struct MessageFile {
    file: File,
    path: Option<PathBuf>,
    /// The message's place in the file; none in a pipe.
    start: Option<u64>,
}

impl MessageFile {
    /// A path, or a file that Python has opened: its message begins at the file's place.
    pub(crate) fn of(object: &Object<'_>) -> PyResult<MessageFile> {
        if !is_path(object)?
            && let Some(file) = opened(object)?
        {
            return Ok(file);
        }
        let given = GivenPath::of(
            object,
            "file",
            "give a path or what open(path, \"rb\") returns; sign and is_valid take bytes",
        )?;
        let mut file = given.open()?;
        // A pipe has no place, and is read as it comes.
        let start = file.stream_position().ok();
        Ok(MessageFile { file, path: Some(given.path), start })
    }

    /// Refuses a file that cannot be read twice.
    pub(crate) fn check_seek(&self, py: Python<'_>) -> PyResult<()> {
        const WHY: &str =
            "a signature reads its message twice, and this cannot be read twice; read it and call sign, or use prehash";
        match self.start {
            Some(_) => Ok(()),
            None => Err(Errors(self.path.as_deref()).named(py, "ESPIPE", WHY)),
        }
    }

    /// Gives the message to `work`. It is an error if the file changes meanwhile.
    pub(crate) fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut MessageReader<'_>) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        const CHANGED: &str = "the file changed while it was read; try again when nothing writes to it any more";
        let done = interruptible(py, |signals| {
            let before = self.state()?;
            let done = work(&mut MessageReader(Interruptible { file: &self.file, at: self.start, signals }))?;
            if self.state()? == before { Ok(done) } else { Err(ReadError::Changed) }
        });
        let errors = Errors(self.path.as_deref());
        done?.map_err(|why| match why {
            ReadError::Io(why) => errors.failed(&why),
            ReadError::Changed => errors.named(py, "EBUSY", CHANGED),
            ReadError::Engine(why) => exception(&why),
        })
    }

    /// The length of a regular file, and when it was written to.
    fn state(&self) -> io::Result<Option<(u64, SystemTime)>> {
        let there = self.file.metadata()?;
        if there.is_file() { Ok(Some((there.len(), there.modified()?))) } else { Ok(None) }
    }
}

/// The file of an object that `open` has returned for bytes, if this is one. Others that have a descriptor may give
/// other bytes than the descriptor does: what is compressed, for example.
fn opened(object: &Object<'_>) -> PyResult<Option<MessageFile>> {
    let io = object.py().import("io")?;
    let is = |object: &Object<'_>, name| object.is_instance(&io.getattr(name)?);
    // Its named files are objects that have one of `open`.
    let is_wrapped = object.get_type().module().is_ok_and(|name| name == "tempfile");
    let inner = if is_wrapped { object.getattr_opt("file")? } else { None };
    let object = inner.as_ref().unwrap_or(object);
    let is_buffered = is(object, "BufferedReader")? || is(object, "BufferedRandom")?;
    if !is(&if is_buffered { object.getattr("raw")? } else { object.clone() }, "FileIO")? {
        return Ok(None);
    }
    let path = object.getattr("name")?.extract().ok();
    object.call_method0("flush")?;
    let start = match object.call_method0("seekable")?.is_truthy()? {
        true => Some(object.call_method0("tell")?.extract()?),
        false if is_buffered => {
            return Err(PyTypeError::new_err(
                "file: a pipe with a buffer, which may have begun to read; give its path, or open it with buffering=0",
            ));
        }
        false => None,
    };
    Ok(Some(MessageFile { file: descriptor::duplicate(object)?, path, start }))
}

/// Reads a message from its place on.
pub(crate) struct MessageReader<'a>(Interruptible<'a>);

impl Read for MessageReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

impl Seek for MessageReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.0.at.as_mut().ok_or(io::ErrorKind::NotSeekable)?;
        match to {
            SeekFrom::Start(place) => *at = place,
            SeekFrom::Current(0) => {}
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(*at)
    }
}
