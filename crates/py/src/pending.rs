//! Tickets that futures of asyncio wait for.

use crate::error::{InvalidSignature, exception};
use hypergrove::{Error, Ticket};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What a job gives to its future.
pub(crate) enum Answer {
    Signature(Vec<u8>),
    Valid,
    /// The signature of this scheme or set is not valid.
    Invalid(&'static str),
}

/// A job that was submitted: gives its answer, or wakes the waker when there is one. Dropped without its answer, the job is cancelled.
pub(crate) type Submitted = Box<dyn FnMut(&Waker) -> Poll<Result<Answer, Error>> + Send>;

/// A ticket whose result `answer` turns into the answer.
pub(crate) fn submitted<T: Send + 'static>(
    mut ticket: Ticket<T>,
    answer: impl Fn(T) -> Answer + Send + 'static,
) -> Submitted {
    Box::new(move |waker| Pin::new(&mut ticket).poll(&mut Context::from_waker(waker)).map_ok(&answer))
}

/// The answer to a signature by its verdict.
pub(crate) fn verdict(scheme: &'static str) -> impl Fn(bool) -> Answer + Send + 'static {
    move |is_valid| if is_valid { Answer::Valid } else { Answer::Invalid(scheme) }
}

/// A submitted job, and the future that gets its answer. Only threads that are attached to Python look at the job.
#[pyclass(frozen)]
pub(crate) struct Pending {
    job: Mutex<Option<Submitted>>,
    future: Py<PyAny>,
    event_loop: Py<PyAny>,
}

impl Pending {
    /// Submits a job, and gives a future of the running loop.
    pub(crate) fn start(
        py: Python<'_>,
        submit: impl FnOnce() -> PyResult<Submitted> + Send,
    ) -> PyResult<Bound<'_, PyAny>> {
        prepare_for_the_end(py)?;
        let event_loop = py.import("asyncio")?.getattr("get_running_loop")?.call0()?;
        let future = event_loop.call_method0("create_future")?;
        let job = Mutex::new(Some(py.detach(submit)?));
        let pending = Pending { job, future: future.clone().unbind(), event_loop: event_loop.unbind() };
        let pending = Bound::new(py, pending)?;
        future.call_method1("add_done_callback", (pending.getattr("forget")?,))?;
        Pending::poll(&pending)?;
        Ok(future)
    }

    /// Takes the job away: without its answer, it is cancelled.
    fn take(&self) -> Option<Submitted> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The answer, if it is known; otherwise the loop learns when it is.
    fn answer(slf: &Bound<'_, Pending>) -> Option<Result<Answer, Error>> {
        let mut place = slf.get().job.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = Waker::from(Arc::new(PendingWaker(slf.clone().unbind())));
        match place.as_mut()?(&waker) {
            Poll::Ready(answer) => {
                *place = None;
                Some(answer)
            }
            Poll::Pending => None,
        }
    }
}

#[pymethods]
impl Pending {
    /// Called by the loop: gives the answer to the future, if it is known.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, future) = (slf.py(), slf.get().future.bind(slf.py()));
        let Some(answer) = Pending::answer(slf) else { return Ok(()) };
        if future.call_method0("done")?.is_truthy()? {
            return Ok(());
        }
        match answer {
            Ok(Answer::Signature(bytes)) => future.call_method1("set_result", (PyBytes::new(py, &bytes),))?,
            Ok(Answer::Valid) => future.call_method1("set_result", (py.None(),))?,
            Ok(Answer::Invalid(scheme)) => future.call_method1("set_exception", (invalid(scheme),))?,
            Err(why) => future.call_method1("set_exception", (exception(&why),))?,
        };
        Ok(())
    }

    /// The future has this object in a callback, and a closed loop may have one that it never calls: Python finds these circles, and breaks
    /// them there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)?;
        visit.call(&self.event_loop)
    }

    /// Called when the future is done, or cancelled.
    fn forget(&self, _future: &Bound<'_, PyAny>) {
        drop(self.take());
    }
}

/// The exception for a signature that is not valid.
pub(crate) fn invalid(scheme: &str) -> PyErr {
    InvalidSignature::new_err(format!("the {scheme} signature is not valid for this data"))
}

/// Tells the loop that there is an answer.
struct PendingWaker(Py<Pending>);

impl Wake for PendingWaker {
    fn wake(self: Arc<Self>) {
        TELLING.fetch_add(1, SeqCst);
        if !IS_ENDING.load(SeqCst) {
            self.tell();
        }
        TELLING.fetch_sub(1, SeqCst);
    }
}

impl PendingWaker {
    fn tell(&self) {
        Python::try_attach(|py| {
            let pending = self.0.bind(py);
            let told = pending
                .getattr("poll")
                .and_then(|poll| pending.get().event_loop.bind(py).call_method1("call_soon_threadsafe", (poll,)));
            // The loop is closed.
            if told.is_err() {
                drop(pending.get().take());
            }
        });
    }
}

// A thread that waits for Python while Python ends is ended by it, and takes the process along. So Python waits at its exit for
// threads that tell a loop something, and later ones leave it alone. It waits for the engines' threads too.
static TELLING: AtomicUsize = AtomicUsize::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The process that the two are of.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has Python call [`end`] at its exit, once a process: a forked child has none of the threads that its parent counted.
fn prepare_for_the_end(py: Python<'_>) -> PyResult<()> {
    let process = std::process::id();
    if PROCESS.swap(process, SeqCst) != process {
        TELLING.store(0, SeqCst);
        py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, py)?, process))?;
    }
    Ok(())
}

#[pyfunction]
fn end(py: Python<'_>, process: u32) {
    if process != std::process::id() {
        return;
    }
    IS_ENDING.store(true, SeqCst);
    py.detach(|| {
        crate::engine::end();
        while TELLING.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
