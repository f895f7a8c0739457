//! Engines: those that a program makes, and the one that is made for it.

use crate::error::{bad, exception};
use crate::exit::{Inside, detach};
use crate::foreign::array::Array;
use hypergrove::devices::{self, Chosen};
use hypergrove::quote::Quote;
use hypergrove::{BACKENDS, Backend, BackendEntry, CancelToken, EngineBuilder, Process, TableSource};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyString};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Devices, threads and memory that calls share. Calls without an engine use one that is made when it is first needed: the
/// CPU, and GPUs for batches where measurements say they are faster.
///
/// After a fork, the child makes engines of its own: one that the parent has used raises RuntimeError there. The engine that is
/// made for you is made anew.
#[pyclass(frozen, module = "hypergrove")]
pub(crate) struct Engine {
    /// Some until it is dropped.
    engine: Option<hypergrove::Engine>,
    /// In [`LIVING`].
    number: u64,
    process: Process,
}

/// The engines that programs have made and that are not dropped, each with its process: see [`end`].
static LIVING: Mutex<BTreeMap<u64, (Process, hypergrove::Engine)>> = Mutex::new(BTreeMap::new());

/// The engine that is made for calls without one, and its process.
static DEFAULT: Mutex<Option<(Process, hypergrove::Engine)>> = Mutex::new(None);

/// Engines that programs have made so far.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Cancels what waits in the queues of this process's engines, and waits until then for what has begun: a thread may be loading a driver,
/// which must not happen while the process ends.
pub(crate) fn end(until: Instant) {
    // One after the other: no thread waits for one of them while it holds the other.
    let mut all: Vec<_> = LIVING.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
    let default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    all.extend(default);
    all.retain(|(process, _)| *process == Process::current());
    for (_, engine) in &all {
        let _ = engine.drain(Instant::now());
    }
    for (_, engine) in &all {
        let _ = engine.drain(until);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let engine = self.engine.take();
        if self.process == Process::current() {
            let living = LIVING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
            // The last drop waits for tickets that have begun, and whoever gets their results may wait for Python.
            Python::attach(|py| detach(py, || drop((engine, living))));
        } else {
            // A forked child has none of the threads and devices that the engine would give back.
            std::mem::forget(engine);
        }
    }
}

impl Engine {
    /// The object of an engine. It counts as living until it is dropped.
    fn living(engine: hypergrove::Engine) -> Engine {
        let (number, process) = (NUMBER.fetch_add(1, Relaxed), Process::current());
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (process, engine.clone()));
        Engine { engine: Some(engine), number, process }
    }

    fn get(&self) -> &hypergrove::Engine {
        self.engine.as_ref().expect("an engine that is not dropped")
    }
}

/// The engine of a call.
pub(crate) fn engine_of(given: Option<&Bound<'_, Engine>>) -> PyResult<hypergrove::Engine> {
    Loading::check_none()?;
    match given {
        Some(engine) => Ok(engine.get().get().clone()),
        None => default_engine(),
    }
}

thread_local! {
    /// Whether this thread loads NVRTC, maybe under the lock of an engine that adds devices.
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

/// This thread loads NVRTC until it is dropped.
struct Loading;

impl Loading {
    fn begin() -> Loading {
        LOADS.set(true);
        Loading
    }

    /// Refuses to make or use an engine meanwhile: the thread might wait for a lock that it holds itself.
    fn check_none() -> PyResult<()> {
        match LOADS.get() {
            true => Err(PyRuntimeError::new_err(
                "an engine is loading NVRTC on this thread; what Python runs meanwhile, an import hook for example, can use no engine",
            )),
            false => Ok(()),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        LOADS.set(false);
    }
}

/// Makes a backend. If it is CUDA and its driver has found a device, loads the NVRTC that pip has installed, if it has, once a process:
/// the backend finds by its name what is loaded. Python code that runs meanwhile, an import hook for example, gets an error if it makes or
/// uses an engine on this thread. On another thread it waits, so nobody may wait for that thread here.
fn make(entry: &BackendEntry, cache: Option<&Path>) -> Arc<dyn Backend> {
    static DONE: PyOnceLock<()> = PyOnceLock::new();
    let backend = (entry.make)(cache);
    if backend.name() == "cuda" && backend.devices().is_ok_and(|devices| !devices.is_empty()) {
        // The backend says what it lacks once it compiles kernels. No thread of an engine waits for a Python that ends.
        let load = |py: Python<'_>| {
            let _loading = Loading::begin();
            py.import("hypergrove._nvrtc")?.call_method0("load").map(drop)
        };
        if let Some(_inside) = Inside::begin() {
            Python::try_attach(|py| DONE.get_or_try_init(py, || load(py)).is_ok());
        }
    }
    backend
}

/// A builder of engines with these devices; or with the CPU, and others when a batch is worth it.
fn builder(devices: Option<Vec<Chosen>>, cache: Option<PathBuf>) -> EngineBuilder {
    let builder = hypergrove::Engine::builder();
    match (devices, BACKENDS) {
        (Some(devices), _) => builder.devices(devices),
        (None, [host, others @ ..]) => {
            let wake = move || others.iter().map(|entry| make(entry, cache.as_deref())).collect();
            builder.automatic(make(host, None), Arc::new(wake))
        }
        (None, []) => builder,
    }
}

/// The default engine, made once a process.
fn default_engine() -> PyResult<hypergrove::Engine> {
    let mut made = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
    let process = Process::current();
    match &*made {
        Some((of, engine)) if *of == process => return Ok(engine.clone()),
        _ => {}
    }
    let engine = match builder(None, users_cache()).build() {
        Ok(engine) => engine,
        Err(why) => {
            // To make an exception may run code of Python, which may drop an engine.
            drop(made);
            return Err(exception(&why));
        }
    };
    // The parent's: see `Engine::drop`.
    std::mem::forget(made.replace((process, engine.clone())));
    Ok(engine)
}

/// Where compiled kernels are kept: the tool's directory.
fn users_cache() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || if cfg!(windows) { set("LOCALAPPDATA") } else { set("HOME").map(|home| home.join(".cache")) };
    Some(set("XDG_CACHE_HOME").or_else(usual)?.join("hypergrove"))
}

/// The devices with these names: `cpu`, `cuda`, `cuda:1`, `cuda:GPU-…`.
fn chosen(names: &[String], cache: Option<&PathBuf>) -> PyResult<Vec<Chosen>> {
    let make = |name: &str| {
        let entry = BACKENDS.iter().find(|entry| entry.name == name)?;
        Some(make(entry, cache.map(PathBuf::as_path)))
    };
    devices::named(names, make).map_err(|why| exception(&why))
}

/// The devices of this machine that an Engine can have: for each its name, "cuda:0" for example, its model, and its UUID or None. The
/// UUID can stand in the place of the number: "cuda:GPU-…".
#[pyfunction(name = "devices")]
pub(crate) fn all_devices(py: Python<'_>) -> PyResult<Vec<(String, String, Option<String>)>> {
    Loading::check_none()?;
    Ok(detach(py, || {
        let backends = BACKENDS.iter().map(|entry| (entry.make)(None));
        let all = backends.flat_map(|backend| backend.devices().unwrap_or_default());
        all.map(|device| (device.id(), device.name.clone(), devices::uuid(&device))).collect()
    }))
}

/// Seconds of an argument.
fn seconds(seconds: f64, what: &str) -> PyResult<Duration> {
    let finite = || Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    let time = if seconds == f64::INFINITY { Some(Duration::MAX) } else { finite() };
    time.ok_or_else(|| bad(format!("{what}: {seconds:?}; give seconds, more than 0, or math.inf for no limit")))
}

/// One name, or several.
fn names(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<String>> {
    if object.is_instance_of::<PyString>() {
        return Ok(vec![object.extract()?]);
    }
    object.extract().map_err(|_| PyTypeError::new_err(format!("{what}: give a string or a sequence of strings")))
}

#[pymethods]
impl Engine {
    /// `devices`: names such as "cpu", "cuda" (all of CUDA's GPUs), "vulkan:1" or "cuda:GPU-5c01d2e7" (a UUID or its first 8 digits or
    /// more; `hypergrove.devices()` lists them). `threads`: of the host. `memory`: bytes of the
    /// host's memory for programs and results. `cache`: where compiled kernels are kept; None is the user's cache directory, as for
    /// the command-line tool, and False is nowhere. `tables`: files of `hypergrove tune`. `redundant`: everything is computed twice
    /// and compared. `device_timeout`: seconds that the engine waits for a GPU, at least, before the GPU counts as hung.
    #[new]
    #[pyo3(signature = (
        devices=None, threads=None, memory=None, cache=None, tables=None, redundant=false, device_timeout=None
    ))]
    fn new(
        devices: Option<&Bound<'_, PyAny>>,
        threads: Option<usize>,
        memory: Option<u64>,
        cache: Option<&Bound<'_, PyAny>>,
        tables: Option<Vec<PathBuf>>,
        redundant: bool,
        device_timeout: Option<f64>,
    ) -> PyResult<Engine> {
        Loading::check_none()?;
        let cache = match cache {
            None => users_cache(),
            Some(no) if no.is_instance_of::<PyBool>() && !no.is_truthy()? => None,
            Some(path) => Some(path.extract().map_err(|_| {
                PyTypeError::new_err("cache: give a directory, False for none, or None for the user's cache directory")
            })?),
        };
        let devices = devices.map(|devices| chosen(&names(devices, "devices")?, cache.as_ref())).transpose()?;
        let mut builder = builder(devices, cache).redundant(redundant);
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        if let Some(memory) = memory {
            builder = builder.memory_budget(memory);
        }
        if let Some(time) = device_timeout {
            builder = builder.device_timeout(seconds(time, "device_timeout")?);
        }
        if let Some(paths) = tables {
            let read = |path: PathBuf| {
                let text = std::fs::read_to_string(&path)
                    .map_err(|why| std::io::Error::new(why.kind(), format!("tables: {}: {why}", Quote::path(&path))))?;
                Ok(TableSource { name: Quote::path(&path).to_string(), text })
            };
            builder = builder.tables(paths.into_iter().map(read).collect::<PyResult<Vec<_>>>()?);
        }
        Ok(Engine::living(builder.build().map_err(|why| exception(&why))?))
    }

    /// This engine for work with other options: both share devices, threads and memory. `redundant`: everything is computed twice and
    /// compared. `verify_signatures`: each signature is verified before it is returned. `timeout`: seconds after which no more of a call's
    /// work begins; the call raises TimeoutError when the work that has begun is done. Options that are None stay as they are.
    #[pyo3(signature = (*, redundant=None, verify_signatures=None, timeout=None))]
    fn with_options(
        &self,
        redundant: Option<bool>,
        verify_signatures: Option<bool>,
        timeout: Option<f64>,
    ) -> PyResult<Engine> {
        Loading::check_none()?;
        let mut work = self.get().work_options();
        work.checks.redundant = redundant.unwrap_or(work.checks.redundant);
        work.checks.verify_signatures = verify_signatures.unwrap_or(work.checks.verify_signatures);
        if let Some(given) = timeout {
            work.timeout = Some(seconds(given, "timeout")?);
        }
        work.cancel = Some(CancelToken::default());
        Ok(Engine::living(self.get().with(work)))
    }

    /// Ends all calls of an engine that `with_options` returned, from any thread: no more of their work begins. Such calls, and later
    /// ones, raise RuntimeError. Single calls that share a batch and have begun go on.
    fn cancel(&self) -> PyResult<()> {
        let work = self.get().work_options().cancel;
        let work = work.ok_or_else(|| bad("cancel an engine of with_options: only its work ends"))?;
        work.cancel();
        Ok(())
    }

    /// The devices that work is split over, but for those that failed.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.get().devices().iter().map(|device| device.id()).collect()
    }

    /// Threads of the host.
    #[getter]
    fn threads(&self) -> usize {
        self.get().threads()
    }

    /// Seconds that the engine waits for a GPU, at least, before the GPU counts as hung; math.inf if there is no limit.
    #[getter]
    fn device_timeout(&self) -> f64 {
        match self.get().device_timeout() {
            Duration::MAX => f64::INFINITY,
            time => time.as_secs_f64(),
        }
    }

    /// The latest 64 failures of devices, in order: a line each.
    fn faults(&self) -> Vec<String> {
        self.get().faults().iter().map(|fault| format!("{}: {}", fault.device.id(), fault.error)).collect()
    }

    /// Warnings, of a table that is stale for example: a line each.
    fn notices(&self) -> Vec<String> {
        self.get().notices()
    }

    /// An array of zeros, of shape `(rows, bytes of a row)` or `bytes`, in memory that this engine's devices reach by themselves.
    /// To get such memory takes long, and to give it back the time to wipe it: use it for many calls.
    fn empty(&self, py: Python<'_>, shape: &Bound<'_, PyAny>) -> PyResult<Array> {
        let shape = match shape.extract::<usize>() {
            Ok(bytes) => vec![bytes],
            Err(_) => shape.extract::<Vec<usize>>().map_err(|_| {
                bad("shape: give a number of bytes, or (rows, bytes of a row); neither can be negative or more than memory has")
            })?,
        };
        if !(1..=2).contains(&shape.len()) {
            return Err(bad(format!(
                "shape: {} dimensions; give a number of bytes, or (rows, bytes of a row)",
                shape.len()
            )));
        }
        let bytes = crate::room::size(shape[0], shape.get(1).copied().unwrap_or(1))?;
        Loading::check_none()?;
        let memory = detach(py, || self.get().memory(bytes)).map_err(|why| exception(&why))?;
        Ok(Array::in_memory(memory, &shape))
    }

    fn __repr__(&self) -> String {
        format!("<hypergrove.Engine on {}, {} threads>", self.devices().join(", "), self.threads())
    }
}
