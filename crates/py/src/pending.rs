//! Tickets that futures of asyncio wait for.
//!
//! A thread of the engine puts a job that ended into the [`List`] of the job's event loop. If the loop does not know of its list, the thread wakes
//! it, and the loop calls the list's [`Delivery`], which gives the answers of all jobs in the list to their futures.
//!
//! To wake the loop, the thread writes to a socket that the loop watches, without waiting for Python. Of a loop that can watch no sockets it
//! calls `call_soon_threadsafe`, for which it has to wait for Python.
//!
//! The futures that wait belong to their loop, not to the engine: the loop keeps its [`Delivery`], and that keeps them. When the loop is closed, or nobody
//! has it any more, the jobs that nobody can await are cancelled. A loop that can watch no sockets keeps nothing. Its jobs are cancelled when the first of
//! them ends and the loop is closed.
//!
//! Waking two threads takes longer than a verification of a small set. So the loop's own thread does short jobs that come one after the other:
//! see [`Lists::calls_alone`].

use crate::error::{InvalidSignature, exception};
use crate::exit::{Inside, detach};
use hypergrove::{Engine, Error, Job, Process};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
#[cfg(unix)]
use std::io::{Read, Write};
use std::mem::{forget, replace, take};
#[cfg(unix)]
use std::os::{fd::AsRawFd, unix::net::UnixStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The answer of a job, for its future.
pub(crate) enum Answer {
    Signature(Vec<u8>),
    /// Whether a signature of this scheme or set is valid.
    Verdict(bool, &'static str),
}

/// A job that was submitted: gives its answer, or wakes the waker when there is one. Dropped without its answer, the job is cancelled.
pub(crate) type Submitted = Box<dyn FnMut(&Waker) -> Poll<Result<Answer, Error>> + Send>;

/// A call is short if its future has its answer after this time.
const SHORT: Duration = Duration::from_micros(500);

/// After so many short calls that came alone, the loop's thread does a job that comes alone.
const CALLS_ALONE: u32 = 2;

/// The exception for a signature that is not valid.
pub(crate) fn invalid(scheme: &str) -> PyErr {
    InvalidSignature::new_err(format!("the {scheme} signature is not valid for this data"))
}

/// Nothing that may panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A submitted job, and the future that gets its answer. It is a callback of the future, so that a cancelled future cancels its job. Only
/// threads that are attached to Python look at the job.
#[pyclass(frozen)]
pub(crate) struct Pending {
    job: Mutex<Option<Submitted>>,
    future: Py<PyAny>,
    event_loop: Py<PyAny>,
    place: Place,
}

/// Where a [`Pending`] waits: under its number in a list.
#[derive(Clone)]
struct Place {
    list: Weak<List>,
    number: u64,
}

impl Place {
    /// Has a job wait. If its loop is gone, the job is cancelled.
    fn enter(&self, pending: Py<Pending>) {
        if let Some(list) = self.list.upgrade() {
            lock(&list.state).waiting.insert(self.number, pending);
        }
    }

    /// Takes a job away that waits.
    fn leave(&self) -> Option<Py<Pending>> {
        // No lock may be held when the job is dropped.
        self.list.upgrade().and_then(|list| lock(&list.state).waiting.remove(&self.number))
    }
}

impl Pending {
    /// Submits a job, and gives a future of the running loop. `answer` makes the answer of the job's result. The loop's thread may do a short job
    /// itself.
    pub(crate) fn start<'py, J: Job + Send>(
        py: Python<'py>,
        engine: &Engine,
        job: J,
        is_short: bool,
        answer: impl Fn(J::Out) -> Answer + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inside = Inside::enter(py);
        let future = Pending::submit(py, engine, job, is_short, answer);
        inside.leave(py);
        future
    }

    fn submit<'py, J: Job + Send>(
        py: Python<'py>,
        engine: &Engine,
        job: J,
        is_short: bool,
        answer: impl Fn(J::Out) -> Answer + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        static GET_RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (lists, began) = (Lists::of_process(), Instant::now());
        let event_loop = GET_RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
        let is_alone = lists.comes_alone();
        let runs_here = is_short && is_alone && lists.calls_alone.load(Relaxed) >= CALLS_ALONE && has_cpu_alone(engine);
        // The engine begins with a queued job meanwhile.
        let (job, is_done) = detach(py, || begin(engine, job, runs_here, answer)).map_err(|why| exception(&why))?;
        let future = event_loop.call_method0(intern!(py, "create_future"))?;
        let place = lists.place(&event_loop)?;
        let (job, event_loop) = (Mutex::new(Some(job)), event_loop.unbind());
        let pending = Pending { job, future: future.clone().unbind(), event_loop, place: place.clone() };
        let pending = Bound::new(py, pending)?;
        future.call_method1(intern!(py, "add_done_callback"), (&pending,))?;
        lists.jobs.fetch_add(1, Relaxed);
        let waker = Arc::new(JobWaker { place, lists, alone: is_alone.then_some(began) });
        if is_done {
            // The loop's other tasks go on before this one.
            waker.place.enter(pending.unbind());
            waker.wake();
        } else {
            waker.give(&pending)?;
        }
        Ok(future)
    }

    /// Takes the job away: without its answer, it is cancelled.
    fn take(&self) -> Option<Submitted> {
        lock(&self.job).take()
    }

    /// The answer, if it is known; otherwise `waker` is woken when it is known. `None` if the job was taken away.
    fn answer(&self, waker: &Waker) -> Option<Poll<Result<Answer, Error>>> {
        let mut job = lock(&self.job);
        let answer = job.as_mut()?(waker);
        if answer.is_ready() {
            *job = None;
        }
        Some(answer)
    }
}

/// Queues a job. With `runs_here`, this thread does it instead, if the engine has nothing else to do. Says whether the job is done.
fn begin<J: Job>(
    engine: &Engine,
    job: J,
    runs_here: bool,
    answer: impl Fn(J::Out) -> Answer + Send + 'static,
) -> Result<(Submitted, bool), Error> {
    let done = if runs_here { engine.run_if_idle(job) } else { Err(job) };
    match done {
        Ok(out) => {
            let mut out = Some(out.map(answer));
            Ok((Box::new(move |_| out.take().map_or(Poll::Pending, Poll::Ready)), true))
        }
        Err(job) => {
            let mut ticket = engine.submit(job)?;
            let poll = move |waker: &Waker| Pin::new(&mut ticket).poll(&mut Context::from_waker(waker)).map_ok(&answer);
            Ok((Box::new(poll), false))
        }
    }
}

/// Whether the engine computes on the CPU alone: the loop's thread never waits for another device, which may hang.
fn has_cpu_alone(engine: &Engine) -> bool {
    engine.devices().iter().all(|device| device.backend == "cpu")
}

#[pymethods]
impl Pending {
    /// Called by the loop when the future is cancelled, or when someone else has set its result.
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        drop((self.take(), self.place.leave()));
    }

    /// The future has this object as a callback, and a closed loop may have one that it never calls: Python finds these circles, and breaks
    /// them there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)?;
        visit.call(&self.event_loop)
    }
}

/// The waker that the engine has of a job whose future waits. It keeps nothing of Python.
struct JobWaker {
    place: Place,
    lists: Arc<Lists>,
    /// When the call began, if no other job waited then.
    alone: Option<Instant>,
}

impl JobWaker {
    /// Gives the answer to the future, if it is known; otherwise the job comes into its loop's list when it is.
    fn give(self: &Arc<Self>, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let (py, waker) = (pending.py(), Waker::from(self.clone()));
        let Some(mut answer) = pending.get().answer(&waker) else { return Ok(()) };
        if answer.is_pending() {
            // A waker that is woken finds the job there, so the answer may have come before.
            self.place.enter(pending.clone().unbind());
            let Some(second) = pending.get().answer(&waker) else { return Ok(()) };
            answer = second;
        }
        let Poll::Ready(answer) = answer else { return Ok(()) };
        drop(self.place.leave());
        self.lists.count(self.alone);
        let future = pending.get().future.bind(py);
        // A future that is done, or cancelled, has no callbacks any more.
        let removed: usize = future.call_method1(intern!(py, "remove_done_callback"), (pending,))?.extract()?;
        if removed == 0 {
            return Ok(());
        }
        let set_exception = |why: PyErr| future.call_method1(intern!(py, "set_exception"), (why,));
        let set = match answer {
            Ok(Answer::Signature(bytes)) => future.call_method1(intern!(py, "set_result"), (PyBytes::new(py, &bytes),)),
            Ok(Answer::Verdict(true, _)) => future.call_method1(intern!(py, "set_result"), (py.None(),)),
            Ok(Answer::Verdict(false, scheme)) => set_exception(invalid(scheme)),
            Err(why) => set_exception(exception(&why)),
        };
        set.map(drop)
    }
}

impl Drop for JobWaker {
    fn drop(&mut self) {
        self.lists.jobs.fetch_sub(1, Relaxed);
    }
}

impl Wake for JobWaker {
    fn wake(self: Arc<Self>) {
        let lists = self.lists.clone();
        let Some(list) = self.place.list.upgrade().and_then(|list| lists.add(list, self)) else { return };
        if let Some(_inside) = Inside::begin() {
            Delivery::announce(list, lists);
        }
    }
}

/// Jobs of one loop that wait, and those that ended, until the loop delivers their answers.
struct List {
    state: Mutex<Jobs>,
    /// Wakes the loop. Without it, the list ends when it is delivered, and its jobs have waited in the list of loops that watch nothing.
    notifier: Option<Notifier>,
}

#[derive(Default)]
struct Jobs {
    waiting: BTreeMap<u64, Py<Pending>>,
    ended: Vec<EndedJob>,
    /// The loop was woken, and will look.
    is_known: bool,
}

type EndedJob = (Arc<JobWaker>, Py<Pending>);

/// The lists of all loops, each with its loop's address. A list belongs to its [`Delivery`], and the delivery to the loop. So nothing here
/// keeps a loop that nobody runs any more. When the delivery is dropped, its list leaves: another loop may get the address then.
struct Lists {
    process: Process,
    all: Mutex<Vec<(usize, Weak<List>)>>,
    /// Jobs that wait, of all loops that watch no sockets.
    unwatched: Arc<List>,
    /// Jobs so far.
    count: AtomicU64,
    /// Jobs whose futures wait, of all loops.
    jobs: AtomicUsize,
    /// How many calls in succession came alone and were short, up to the last one. Such a job shares no batch, and keeps the loop's other tasks waiting
    /// for a short time only.
    calls_alone: AtomicU32,
}

impl Lists {
    /// Those of this process: a forked child has none of the threads that hold its parent's locks, or that its parent counted.
    fn of_process() -> Arc<Lists> {
        static ALL: Mutex<Option<(Process, Arc<Lists>)>> = Mutex::new(None);
        let (process, mut all) = (Process::current(), lock(&ALL));
        match &*all {
            Some((of, lists)) if *of == process => return lists.clone(),
            _ => {}
        }
        let lists = Arc::new(Lists {
            process,
            all: Mutex::default(),
            unwatched: Arc::new(List { state: Mutex::default(), notifier: None }),
            count: AtomicU64::new(0),
            jobs: AtomicUsize::new(0),
            calls_alone: AtomicU32::new(0),
        });
        // The lists of the parent's threads belong to the parent.
        forget(all.replace((process, lists.clone())));
        lists
    }

    /// Whether a new job comes while no other waits.
    fn comes_alone(&self) -> bool {
        let is_alone = self.jobs.load(Relaxed) == 0;
        if !is_alone {
            self.calls_alone.store(0, Relaxed);
        }
        is_alone
    }

    /// Counts a call that has its answer now. It began at `alone`, if no other job waited then.
    fn count(&self, alone: Option<Instant>) {
        if alone.is_some_and(|began| began.elapsed() < SHORT) && self.jobs.load(Relaxed) == 1 {
            let counted = self.calls_alone.load(Relaxed);
            self.calls_alone.store(counted.saturating_add(1), Relaxed);
        } else {
            self.calls_alone.store(0, Relaxed);
        }
    }

    /// A place for a new job of a loop. Has the loop watch the notifier of its list, if it can.
    fn place(self: &Arc<Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<Place> {
        let (py, address) = (event_loop.py(), event_loop.as_ptr().addr());
        let number = self.count.fetch_add(1, Relaxed);
        let unwatched = Place { list: Arc::downgrade(&self.unwatched), number };
        let known = lock(&self.all).iter().find(|(of, _)| *of == address).and_then(|(_, list)| list.upgrade());
        if let Some(list) = known.filter(|list| list.notifier.is_some()) {
            return Ok(Place { list: Arc::downgrade(&list), number });
        }
        let Some(notifier) = Notifier::new() else { return Ok(unwatched) };
        let file = notifier.file();
        let list = Arc::new(List { state: Mutex::default(), notifier: Some(notifier) });
        let delivery = Delivery { list: list.clone(), lists: self.clone(), event_loop: event_loop.clone().unbind() };
        // The loop keeps the context of this call, which is not to be the caller's.
        let context = py.import("contextvars")?.getattr("Context")?.call0()?;
        let add = event_loop.getattr(intern!(py, "add_reader"));
        if add.and_then(|add| context.call_method1("run", (add, file, delivery))).is_err() {
            return Ok(unwatched);
        }
        enter(&mut lock(&self.all), address, &list);
        Ok(Place { list: Arc::downgrade(&list), number })
    }

    /// Moves a job that waits in `list` to those of its loop that ended. Gives their list if it is new: the loop has none.
    fn add(&self, list: Arc<List>, job: Arc<JobWaker>) -> Option<Arc<List>> {
        // A job that nobody can await any more is not there.
        let mut state = lock(&list.state);
        let pending = state.waiting.remove(&job.place.number)?;
        if list.notifier.is_some() {
            return end_in(&list, state, (job, pending));
        }
        drop(state);
        let (mut all, address) = (lock(&self.all), pending.get().event_loop.as_ptr().addr());
        let known = all.iter().find(|(of, _)| *of == address).and_then(|(_, list)| list.upgrade());
        if let Some(list) = known {
            let state = lock(&list.state);
            drop(all);
            return end_in(&list, state, (job, pending));
        }
        let state = Jobs { ended: vec![(job, pending)], is_known: true, ..Jobs::default() };
        let list = Arc::new(List { state: Mutex::new(state), notifier: None });
        enter(&mut all, address, &list);
        Some(list)
    }

    /// Takes the jobs of a list that ended, and whether the loop is to look at the list again: the jobs of a batch end one after the other, and the
    /// first one woke the loop.
    fn take(&self, list: &Arc<List>) -> (Vec<EndedJob>, bool) {
        let mut all = lock(&self.all);
        let mut state = lock(&list.state);
        let jobs = take(&mut state.ended);
        state.is_known = !jobs.is_empty() && self.jobs.load(Relaxed) > jobs.len();
        match (&list.notifier, state.is_known) {
            (_, true) => {}
            (Some(notifier), false) => notifier.clear(),
            (None, false) => remove(&mut all, list),
        }
        (jobs, state.is_known)
    }

    /// Ends a list that its loop does not deliver. Gives its jobs, without those that wait.
    fn end(&self, list: &Arc<List>) -> Jobs {
        remove(&mut lock(&self.all), list);
        take(&mut lock(&list.state))
    }
}

/// Adds a job to those of a list that ended, and wakes the list's loop.
fn end_in(list: &List, mut state: MutexGuard<'_, Jobs>, job: EndedJob) -> Option<Arc<List>> {
    state.ended.push(job);
    let is_known = replace(&mut state.is_known, true);
    drop(state);
    if let Some(notifier) = list.notifier.as_ref().filter(|_| !is_known) {
        notifier.notify();
    }
    None
}

fn enter(all: &mut Vec<(usize, Weak<List>)>, address: usize, list: &Arc<List>) {
    all.retain(|(of, _)| *of != address);
    all.push((address, Arc::downgrade(list)));
}

fn remove(all: &mut Vec<(usize, Weak<List>)>, list: &Arc<List>) {
    all.retain(|(_, other)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(list)));
}

/// Two sockets, one of which a loop watches. There is a byte for the loop to read as long as it is to look at its list.
#[cfg(unix)]
struct Notifier {
    loops: UnixStream,
    others: UnixStream,
}

#[cfg(unix)]
impl Notifier {
    fn new() -> Option<Notifier> {
        let (loops, others) = UnixStream::pair().ok()?;
        loops.set_nonblocking(true).ok()?;
        others.set_nonblocking(true).ok()?;
        Some(Notifier { loops, others })
    }

    fn file(&self) -> i32 {
        self.loops.as_raw_fd()
    }

    fn notify(&self) {
        // There is room for the only byte.
        let _ = (&self.others).write_all(&[0]);
    }

    fn clear(&self) {
        let _ = (&self.loops).read(&mut [0]);
    }
}

/// On this system loops cannot watch sockets of Rust's standard library.
#[cfg(not(unix))]
struct Notifier(std::convert::Infallible);

#[cfg(not(unix))]
impl Notifier {
    fn new() -> Option<Notifier> {
        None
    }

    fn file(&self) -> i32 {
        match self.0 {}
    }

    fn notify(&self) {
        match self.0 {}
    }

    fn clear(&self) {
        match self.0 {}
    }
}

/// The callback by which a loop delivers the answers of a list.
#[pyclass(frozen)]
struct Delivery {
    list: Arc<List>,
    lists: Arc<Lists>,
    event_loop: Py<PyAny>,
}

impl Drop for Delivery {
    /// Nobody awaits the jobs of a loop that is closed, or gone.
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the lock for ever.
        if self.lists.process == Process::current() {
            let Jobs { waiting, ended, .. } = self.lists.end(&self.list);
            waiting.values().chain(ended.iter().map(|(_, pending)| pending)).for_each(|job| drop(job.get().take()));
        }
    }
}

impl Delivery {
    /// Gives the answers of a list's jobs. An error of one future is raised when the others have their answers.
    fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, Delivery { list, lists, event_loop }) = (slf.py(), slf.get());
        let (jobs, looks_again) = lists.take(list);
        let all = jobs.into_iter().map(|(job, pending)| job.give(pending.bind(py))).fold(Ok(()), Result::and);
        // A notifier that is not cleared has the loop call this again.
        if !looks_again || list.notifier.is_some() {
            return all;
        }
        let again = event_loop.bind(py).call_method1(intern!(py, "call_soon"), (slf,));
        if again.is_err() {
            for (job, pending) in lists.end(list).ended {
                job.place.enter(pending);
                job.wake();
            }
        }
        all.and(again.map(drop))
    }

    /// Has the loop deliver a list that has no notifier.
    fn announce(list: Arc<List>, lists: Arc<Lists>) {
        Python::try_attach(|py| {
            let first = lock(&list.state).ended.first().map(|(_, job)| job.get().event_loop.clone_ref(py));
            let Some(event_loop) = first else { return };
            let unwatched = lists.unwatched.clone();
            let announced = Bound::new(py, Delivery { list, lists, event_loop: event_loop.clone_ref(py) })
                .and_then(|new| event_loop.bind(py).call_method1(intern!(py, "call_soon_threadsafe"), (new,)));
            // The loop is closed. The jobs of the list ended with the delivery.
            if announced.is_err() {
                let is_its = |_: &u64, job: &mut Py<Pending>| job.get().event_loop.is(&event_loop);
                let left: Vec<_> = lock(&unwatched.state).waiting.extract_if(.., is_its).collect();
                left.iter().for_each(|(_, job)| drop(job.get().take()));
            }
        });
    }
}

#[pymethods]
impl Delivery {
    /// Called by the loop.
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let inside = Inside::enter(slf.py());
        let delivered = Delivery::deliver(slf);
        inside.leave(slf.py());
        delivered
    }

    /// The loop has this object, and may be gone before it calls it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        // In a forked child, a thread of the parent may hold the lock for ever.
        if self.lists.process != Process::current() {
            return Ok(());
        }
        // Nobody who holds this lock waits for Python. Python visits twice, and must see the jobs both times or never.
        let state = lock(&self.list.state);
        let ended = state.ended.iter().map(|(_, pending)| pending);
        state.waiting.values().chain(ended).try_for_each(|pending| visit.call(pending))
    }
}
