//! Which of the process's interpreters runs.

use pyo3::{Python, ffi};

/// The main interpreter's number; sub-interpreters have larger ones.
const MAIN: i64 = 0;

/// Whether Python has ended, or never began.
pub(crate) fn has_ended() -> bool {
    // SAFETY: any thread may call this at any time.
    unsafe { ffi::Py_IsInitialized() == 0 }
}

/// Whether this thread runs the interpreter that Python began with.
pub(crate) fn is_main(_py: Python<'_>) -> bool {
    // SAFETY: the token shows that this thread is attached to an interpreter, which is there until the thread is detached.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) == MAIN }
}
