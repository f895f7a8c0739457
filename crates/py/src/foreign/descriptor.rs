//! Files that Python has opened.

use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;
#[cfg(unix)]
use std::os::fd::FromRawFd;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle;

/// Opens a file to be read. Python does it, whose signals have their handlers run meanwhile: a pipe may have no writer yet.
pub(crate) fn open<'py>(path: &Bound<'py, PyAny>) -> PyResult<File> {
    let (py, os) = (path.py(), path.py().import("os")?);
    let mut flags: i32 = os.getattr("O_RDONLY")?.extract()?;
    if let Some(binary) = os.getattr_opt("O_BINARY")? {
        flags |= binary.extract::<i32>()?;
    }
    own(py, &os.call_method1(intern!(py, "open"), (path, flags))?)
}

/// Another descriptor of the file that an object of Python has open.
pub(crate) fn duplicate(file: &Bound<'_, PyAny>) -> PyResult<File> {
    let py = file.py();
    let number = file.call_method0(intern!(py, "fileno"))?;
    own(py, &py.import("os")?.call_method1(intern!(py, "dup"), (number,))?)
}

/// The file of a descriptor that nobody else has.
#[cfg(unix)]
fn own(_: Python<'_>, number: &Bound<'_, PyAny>) -> PyResult<File> {
    let number = number.extract()?;
    // SAFETY: `os.open` and `os.dup` return new descriptors, and nobody else has seen this one.
    Ok(unsafe { File::from_raw_fd(number) })
}

#[cfg(windows)]
fn own(py: Python<'_>, number: &Bound<'_, PyAny>) -> PyResult<File> {
    let handle: isize = py.import("msvcrt")?.call_method1(intern!(py, "get_osfhandle"), (number,))?.extract()?;
    // SAFETY: the handle belongs to C's library, and is open until `os.close`.
    let file = unsafe { BorrowedHandle::borrow_raw(handle as _) }.try_clone_to_owned().map(File::from);
    py.import("os")?.call_method1(intern!(py, "close"), (number,))?;
    Ok(file?)
}
