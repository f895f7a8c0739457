//! Files: keys are read and written whole.

use crate::calls::Object;
use crate::columns::Signals;
use crate::error::bad;
use crate::exit::detach;
use crate::foreign::descriptor;
use hypergrove::quote::{Quote, is_key_for_new_path};
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Bytes that the file of a key may have.
const LONGEST_KEY: u64 = 1 << 20;

/// A path that a call was given.
pub(crate) struct GivenPath<'py> {
    /// A string, for functions of Python.
    object: Object<'py>,
    pub(crate) path: PathBuf,
}

/// The errors of a file, by its path if that is known. They show as much of the path as exists.
pub(crate) struct Errors<'a>(pub(crate) Option<&'a Path>);

impl<'py> GivenPath<'py> {
    /// A path ([`is_path`]). `instead` says what takes other objects.
    pub(crate) fn of(object: &Object<'py>, what: &str, instead: &str) -> PyResult<GivenPath<'py>> {
        if !is_path(object)? {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{what}: {kind} is no path; {instead}")));
        }
        // An error of the conversion would quote all of the text.
        let text = object.py().import("os")?.call_method1("fsdecode", (object,));
        let path = text.as_ref().ok().and_then(|text| text.extract::<PathBuf>().ok());
        match (text, path.filter(|path| !path.as_os_str().as_encoded_bytes().contains(&0))) {
            (Ok(object), Some(path)) => Ok(GivenPath { object, path }),
            _ => Err(bad(format!("{what}: it has a character that no path has; give another path"))),
        }
    }

    /// The path of a key's file: not the key.
    pub(crate) fn of_key(object: &Object<'py>) -> PyResult<GivenPath<'py>> {
        let given = GivenPath::of(object, "path", "give a str or a pathlib.Path; from_pem and from_der read bytes")?;
        // A raw key is no text.
        let is_text = given.path.file_name().is_none_or(|name| name.to_str().is_some());
        if is_key_for_new_path(&given.path) || (!is_text && given.path.symlink_metadata().is_err()) {
            let shown = Quote::path(&given.path);
            return Err(bad(format!(
                "path: this looks like a key, not like the path of a file: {shown}; from_pem reads the text of a key"
            )));
        }
        Ok(given)
    }

    /// Opens the file to be read.
    pub(crate) fn open(&self) -> PyResult<File> {
        let number = |why: &PyErr, name| why.value(self.object.py()).getattr_opt(name).ok()??.extract().ok();
        descriptor::open(&self.object).map_err(|why| match number(&why, "errno") {
            // Python's error quotes the path.
            Some(errno) => {
                let text = why
                    .value(self.object.py())
                    .getattr("strerror")
                    .map_or_else(|_| String::new(), |text| text.to_string());
                self.errors().error(errno, text, number(&why, "winerror"))
            }
            None => why,
        })
    }

    /// Reads the file of a key.
    pub(crate) fn read_key(&self) -> PyResult<Zeroizing<Vec<u8>>> {
        let file = self.open()?;
        // All at once: a buffer that grows would leave copies of the key behind. A byte more shows that the file is longer.
        let most = match file.metadata() {
            Ok(there) if there.is_file() && there.len() > 0 => there.len().min(LONGEST_KEY),
            _ => LONGEST_KEY,
        };
        let mut bytes = Zeroizing::new(vec![0; most as usize + 1]);
        let read = interruptible(self.object.py(), |signals| {
            let (mut reader, mut length) = (Interruptible { file: &file, at: None, signals }, 0);
            while length < bytes.len() {
                match reader.read(&mut bytes[length..]) {
                    Ok(0) => break,
                    Ok(more) => length += more,
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Err(why) => return Err(why),
                }
            }
            Ok(length)
        });
        let length = read?.map_err(|why| self.errors().failed(&why))?;
        if length as u64 > LONGEST_KEY {
            return Err(self.wrong("more than 1,048,576 bytes, the most that a file of keys may have; check its name"));
        }
        if length > most as usize {
            return Err(self.wrong("the file grew while it was read; read it again"));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Writes a new file, whole or not at all. `is_private`: its owner alone may read it. With `overwrite` it takes the place of a file.
    pub(crate) fn write(&self, bytes: &[u8], is_private: bool, overwrite: bool) -> PyResult<()> {
        let (py, path) = (self.object.py(), &self.path);
        let there = path.symlink_metadata().ok();
        if overwrite && there.is_some_and(|there| !there.is_file() && !there.is_symlink()) {
            return Err(self.errors().named(py, "EEXIST", "this is no regular file, and no other is overwritten"));
        }
        detach(py, || write(path, bytes, is_private, overwrite)).map_err(|why| match why.kind() {
            ErrorKind::AlreadyExists if !overwrite => {
                self.errors().named(py, "EEXIST", "the file exists; overwrite=True replaces it")
            }
            _ => self.errors().failed(&why),
        })
    }

    fn errors(&self) -> Errors<'_> {
        Errors(Some(&self.path))
    }

    /// The exception for what a file holds.
    pub(crate) fn wrong(&self, why: impl fmt::Display) -> PyErr {
        bad(format!("{}: {why}", self.errors()))
    }
}

/// Whether an object is a path: a str, or what has one (`os.PathLike`).
pub(crate) fn is_path(object: &Object<'_>) -> PyResult<bool> {
    Ok(object.is_instance_of::<PyString>() || object.hasattr("__fspath__")?)
}

impl Errors<'_> {
    /// The exception for a failure of the system.
    pub(crate) fn failed(&self, why: &io::Error) -> PyErr {
        let text = why.to_string();
        match why.raw_os_error() {
            Some(number) => {
                self.error(number, text.split(" (os error").next().unwrap_or_default().into(), Some(number))
            }
            None => PyOSError::new_err(format!("{self}: {text}")),
        }
    }

    /// An OSError with a number of the module `errno`.
    pub(crate) fn named(&self, py: Python<'_>, number: &str, text: &str) -> PyErr {
        match py.import("errno").and_then(|errno| errno.getattr(number)?.extract()) {
            Ok(number) => self.error(number, text.into(), None),
            Err(why) => why,
        }
    }

    /// The OSError of a number, which is Python's subclass for it. Windows has numbers of its own.
    fn error(&self, errno: i32, text: String, of_windows: Option<i32>) -> PyErr {
        PyOSError::new_err((errno, text, self.to_string(), of_windows))
    }
}

impl fmt::Display for Errors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => Quote::path(path).fmt(f),
            None => f.write_str("the file"),
        }
    }
}

/// Runs `work` without Python. An exception that a handler of signals raised comes before its result.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&mut Signals) -> T + Send) -> PyResult<T> {
    detach(py, || {
        let mut signals = Signals::new();
        let done = work(&mut signals);
        signals.finish().map(|()| done)
    })
}

/// A file whose reading ends by Ctrl-C.
pub(crate) struct Interruptible<'a> {
    pub(crate) file: &'a File,
    /// The next byte's place; without one, the system knows it.
    pub(crate) at: Option<u64>,
    pub(crate) signals: &'a mut Signals,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.signals.check().is_break() {
            return Err(io::Error::other("a signal's handler raised an exception"));
        }
        let read = match &mut self.at {
            Some(at) => read_at(self.file, to, *at).inspect(|read| *at += *read as u64),
            None => self.file.read(to),
        };
        read.inspect_err(|why| {
            if why.kind() == ErrorKind::Interrupted {
                self.signals.hurry();
            }
        })
    }
}

/// To read a file at a place leaves the place where Python's object is.
#[cfg(unix)]
fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, at)
}

#[cfg(windows)]
fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, to, at)
}

/// Writes a file in the path's folder, waits until it is on the disk, and renames it.
fn write(path: &Path, bytes: &[u8], is_private: bool, overwrite: bool) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(if is_private { 0o600 } else { 0o666 });
    // Who may read it is what the folder hands on.
    #[cfg(not(unix))]
    let _ = is_private;
    let mut new =
        tempfile::Builder::new().prefix(".hypergrove-").suffix(".tmp").make_in(folder, |path| options.open(path))?;
    // Not through `new`, whose errors have no number of the system's.
    new.as_file_mut().write_all(bytes)?;
    new.as_file().sync_all()?;
    let named = if overwrite { new.persist(path) } else { new.persist_noclobber(path) };
    named.map_err(|kept| kept.error)?;
    sync(folder)
}

/// Waits until the names in a folder are on the disk.
#[cfg(unix)]
fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some folders cannot be read, and some file systems sync no folders.
        Err(why)
            if matches!(why.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        done => done,
    }
}

#[cfg(not(unix))]
fn sync(_: &Path) -> io::Result<()> {
    Ok(())
}
