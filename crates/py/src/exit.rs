//! Python's exit, which threads survive without coming back to a Python that has ended.
//!
//! Before 3.14, Python unwinds a thread that waits for Python while Python ends. A frame of Rust on the thread's stack aborts the process then.
//! So Python calls [`end()`] at its exit: that stops the engines, and waits for the threads that are [`Inside`]. A thread that comes later sleeps
//! until the process is gone. If Python has not ended a moment later, its exit runs other handlers, which may wait for the thread: the thread goes on.
//!
//! Code of the caller, such as the methods of a sequence, may wait for ever. It does not run inside, and is not guarded.

#![expect(clippy::disallowed_methods, reason = "here is what other modules use")]

use crate::foreign::interpreter;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// How many of [`Inside`] there are.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Whether [`end()`] has begun, where Python unwinds threads.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Whether [`end()`] has returned.
static HAS_WAITED: AtomicBool = AtomicBool::new(false);

/// Stops the engines.
static STOP: OnceLock<fn(Instant)> = OnceLock::new();

thread_local! {
    /// How many of [`Inside`] this thread has.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread ends Python. It goes on.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// From the return of [`end()`] to Python's end, if there is no other handler: it takes much less.
const MOMENT: Duration = Duration::from_millis(20);

/// How long Python waits at its exit for batches that have begun, and for threads that are inside.
const LAST_BATCH: Duration = Duration::from_secs(60);

/// A thread with frames of Rust that waits for Python, or that runs code of asyncio. Python's exit waits for it.
pub(crate) struct Inside(());

impl Inside {
    fn new() -> Inside {
        INSIDE.fetch_add(1, SeqCst);
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }

    /// Nothing if Python ends, and the thread has to leave Python alone.
    pub(crate) fn begin() -> Option<Inside> {
        let inside = Inside::new();
        (DEPTH.get() > 1 || ENDS.get() || !IS_ENDING.load(SeqCst)).then_some(inside)
    }

    /// Does not return if Python ends.
    pub(crate) fn enter(py: Python<'_>) -> Inside {
        Inside::begin().unwrap_or_else(|| py.detach(Inside::begin_late))
    }

    /// Does not return if Python ends: what happened inside may be that the engines were stopped, and code of the caller would print this.
    pub(crate) fn leave(self, py: Python<'_>) {
        drop(self);
        drop(Inside::enter(py));
    }

    /// For a thread that comes while Python ends.
    fn begin_late() -> Inside {
        while !HAS_WAITED.load(SeqCst) {
            thread::sleep(MOMENT);
        }
        thread::sleep(MOMENT);
        while interpreter::has_ended() {
            thread::park();
        }
        Inside::new()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        INSIDE.fetch_sub(1, SeqCst);
    }
}

/// Runs `work` while other threads may run Python's code. Does not return if Python ends meanwhile.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (out, _inside) = py.detach(|| (work(), Inside::begin().unwrap_or_else(Inside::begin_late)));
    out
}

/// Has Python call [`end()`] at its exit, after what programs register once they have imported this package. `stop` stops the engines, and waits
/// for them until a time.
pub(crate) fn register(py: Python<'_>, stop: fn(Instant)) -> PyResult<()> {
    STOP.get_or_init(|| stop);
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, py)?,))?;
    // Where there is no fork, there is no such function.
    if let Ok(register) = py.import("os")?.getattr("register_at_fork") {
        let keywords = [("after_in_child", wrap_pyfunction!(forget_threads, py)?)].into_py_dict(py)?;
        register.call((), Some(&keywords))?;
    }
    Ok(())
}

/// A forked child has none of the parent's threads but the one that forked. It is ending only if that thread ends Python.
#[pyfunction]
fn forget_threads() {
    INSIDE.store(DEPTH.get(), SeqCst);
    IS_ENDING.fetch_and(ENDS.get(), SeqCst);
}

/// Stops the engines, and waits for threads that are inside.
#[pyfunction]
fn end(py: Python<'_>) {
    ENDS.set(true);
    // Later releases have a thread wait for ever that comes back to a Python that has ended.
    IS_ENDING.store(py.version_info() < (3, 14), SeqCst);
    let own = DEPTH.get();
    py.detach(|| {
        let until = Instant::now() + LAST_BATCH;
        STOP.get().iter().for_each(|stop| stop(until));
        while INSIDE.load(SeqCst) > own && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    });
    HAS_WAITED.store(true, SeqCst);
}
