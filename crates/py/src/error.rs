//! Errors of the engine as exceptions of Python.

use hypergrove::rows::RowStatus;
use hypergrove::{Error, ErrorKind};
use pyo3::exceptions::{PyBlockingIOError, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(hypergrove, InvalidSignature, pyo3::exceptions::PyException, "The signature is not valid.");

/// Why a row has no value that a call can use.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum RowFault {
    Null,
    Offsets,
    View,
    Index,
    KeyLength,
}

impl RowFault {
    /// A sentence about the row.
    pub(crate) fn text(self) -> &'static str {
        match self {
            RowFault::Null => "it is null",
            RowFault::Offsets => {
                "its offsets decrease, are negative or lie beyond the column's bytes; validate the array"
            }
            RowFault::View => "its view has a negative length, or lies beyond the column's buffers; validate the array",
            RowFault::Index => "its index is negative or lies beyond the dictionary; validate the array",
            RowFault::KeyLength => "its public key has another length than the set's",
        }
    }
}

/// Why a call failed.
pub(crate) enum Failure {
    /// The engine's error.
    Engine(Error),
    /// A row could not be computed.
    Row(usize, RowStatus),
    /// An exception that Python raised, `KeyboardInterrupt` for example.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(why: Error) -> Failure {
        Failure::Engine(why)
    }
}

impl From<PyErr> for Failure {
    fn from(why: PyErr) -> Failure {
        Failure::Python(why)
    }
}

impl From<Failure> for PyErr {
    fn from(why: Failure) -> PyErr {
        match why {
            Failure::Engine(why) => exception(&why),
            Failure::Row(row, status) => of_row(row, status),
            Failure::Python(why) => why,
        }
    }
}

/// The exception that a program can act on.
pub(crate) fn exception(why: &Error) -> PyErr {
    let what = why.to_string();
    match why.kind() {
        ErrorKind::BadInput | ErrorKind::KeyDamaged => PyValueError::new_err(what),
        ErrorKind::OutOfMemory => PyMemoryError::new_err(what),
        ErrorKind::Randomness => PyOSError::new_err(what),
        ErrorKind::DeadlineExceeded => PyTimeoutError::new_err(what),
        // Python cannot wait for room, and its engines have no other queue.
        ErrorKind::QueueFull => {
            PyBlockingIOError::new_err("the engine's queue is full; wait for some of the futures first")
        }
        _ => PyRuntimeError::new_err(what),
    }
}

/// Text of something that is not what the call takes.
pub(crate) fn bad(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

/// The fault of a row, where its columns are to blame.
fn fault_of(status: RowStatus) -> Option<&'static str> {
    match status {
        RowStatus::BadOffsets => Some(RowFault::Offsets.text()),
        RowStatus::KeyLength => Some(RowFault::KeyLength.text()),
        RowStatus::KeyDamaged => Some(
            "the private key is damaged: its parts do not belong together, or it changed in memory; read it from a copy",
        ),
        _ => None,
    }
}

fn of_row(row: usize, status: RowStatus) -> PyErr {
    match (fault_of(status), status) {
        (Some(what), _) => PyValueError::new_err(format!("row {row}: {what}")),
        (None, RowStatus::OutOfMemory) => {
            PyMemoryError::new_err(format!("row {row}: it needs more memory than Engine(memory=…) allows"))
        }
        (None, _) => PyRuntimeError::new_err(format!("row {row} was not computed ({status:?})")),
    }
}
