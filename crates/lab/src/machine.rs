//! The machine: what computes, and how fast it can hash at all.

use crate::args::{BackendName, IsaName, MachineOptions, REFERENCE};
use crate::failure::Failure;
use crate::loader::{self, NotLoaded};
use crate::printer::PathDisplay;
use crate::printer::Printer;
use hypergrove::backend::{Policy, Reference};
use hypergrove::{BACKENDS, Backend, BackendEntry, Device, Engine, EngineBuilder, Fault, Rates, Work};
use hypergrove::{Cpu, Isa};
use hypergrove_tables::table::Source;
pub use hypergrove_tables::table::{InUse, Table as PolicyTable, TableKnowledge};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{env, fs};

/// How long the hash rates are measured, for each instruction set.
const RATES_TIME: Duration = Duration::from_millis(60);

/// An engine; once done with it, the user learns which devices failed.
pub struct Watched<'p> {
    engine: Engine,
    printer: &'p Printer,
}

impl<'p> Watched<'p> {
    /// Watches this engine.
    pub fn new(engine: Engine, printer: &'p Printer) -> Watched<'p> {
        Watched { engine, printer }
    }
}

impl Deref for Watched<'_> {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        warnings(&self.engine).into_iter().for_each(|warning| self.printer.warning(warning));
    }
}

/// The warnings about an engine's devices, a line each.
fn warnings(engine: &Engine) -> Vec<String> {
    let working = engine.devices();
    // The failure of the last one is the command's.
    let lost = engine.faults().into_iter().filter(|fault| !working.contains(&fault.device));
    let lost = lost.map(|Fault { device, error, jobs }| {
        format!("{error}; {} is disabled; jobs that other devices do in its place: {jobs}", device.id())
    });
    // Notices of devices that were initialised later too.
    lost.chain(engine.notices()).collect()
}

/// The engine that was asked for.
pub fn engine<'p>(options: &MachineOptions, printer: &'p Printer) -> Result<Watched<'p>, Failure> {
    engine_with(options, printer, |builder| builder)
}

/// The engine that was asked for, with `more` settings.
pub fn engine_with<'p>(
    options: &MachineOptions,
    printer: &'p Printer,
    more: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<Watched<'p>, Failure> {
    let mut builder = more(builder(options));
    if let Some(devices) = devices(options)? {
        builder = builder.devices(devices);
    } else {
        let others = || BACKENDS.iter().filter(|entry| entry.name != Cpu::NAME).map(made).collect();
        builder = builder.automatic(Arc::new(Cpu::new()), Arc::new(others));
    }
    let engine = builder.build()?;
    if printer.verbose {
        printer.detail(describe(&engine));
    }
    Ok(Watched::new(engine, printer))
}

/// The builder with all options that were given but the devices.
pub(crate) fn builder(options: &MachineOptions) -> EngineBuilder {
    let mut builder = Engine::builder().tables(tables()).device_timeout(options.device_timeout);
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    if let Some(memory) = options.memory {
        builder = builder.memory_budget(memory);
    }
    builder
}

/// Threads of the host: as many as were asked for, or one for each core.
pub(crate) fn host_threads(options: &MachineOptions) -> usize {
    options.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// Devices and threads, in a line.
pub fn describe(engine: &Engine) -> String {
    let device = |device: &Device| format!("{} {}, {}", device.id(), device.name, device.detail);
    let devices: Vec<_> = engine.devices().iter().map(device).collect();
    format!("{}, {} threads", devices.join("; "), engine.threads())
}

/// Devices by backend and index.
pub type Devices = Vec<hypergrove::devices::Chosen>;

/// The devices that were asked for; `None` for the first that there is.
pub fn devices(options: &MachineOptions) -> Result<Option<Devices>, Failure> {
    let first;
    let names = match (options.backend, options.isa) {
        (BackendName(None), IsaName(None)) if options.device.is_empty() => return Ok(None),
        (BackendName(Some(_)), _) if !options.device.is_empty() => {
            return Err(Failure::new("--backend and --device both say what computes").hint("leave one of the two out"));
        }
        (BackendName(None), _) if !options.device.is_empty() => &options.device[..],
        (BackendName(backend), _) => {
            first = [format!("{}:0", backend.unwrap_or(Cpu::NAME))];
            &first[..]
        }
    };
    let chosen = hypergrove::devices::named(names, |name| make(name, options.isa));
    let chosen = chosen.map_err(|why| Failure::from(why).hint(present()))?;
    if options.isa.0.is_some() && !chosen.iter().any(|(backend, _)| backend.name() == Cpu::NAME) {
        let others: Vec<&str> = chosen.iter().map(|(backend, _)| backend.name()).collect();
        let what = format!("--isa chooses the CPU's instruction set, {} has none", others.join(" and "));
        return Err(Failure::new(what).hint("leave --isa out, or have the CPU compute"));
    }
    Ok(Some(chosen))
}

/// A device and its backend.
pub(crate) type Chosen = (Arc<dyn Backend>, Device);

/// The devices that were asked for, the first that there is if none was.
pub(crate) fn chosen(options: &MachineOptions) -> Result<Vec<Chosen>, Failure> {
    let devices = devices(options)?.unwrap_or_else(|| vec![(Arc::new(Cpu::new()), 0)]);
    let device = |(backend, index): (Arc<dyn Backend>, u32)| {
        let device = backend.devices()?.into_iter().find(|device| device.index == index);
        let gone = || Failure::new(format!("there is no device '{}:{index}' any more", backend.name()));
        device.ok_or_else(gone).map(|device| (backend, device))
    };
    devices.into_iter().map(device).collect()
}

/// The backend of this name, if there is one. An instruction set that the CPU lacks is refused as an argument.
fn make(name: &str, isa: IsaName) -> Option<Arc<dyn Backend>> {
    match (name, isa) {
        (Cpu::NAME, IsaName(Some(isa))) => Some(Arc::new(Cpu::with(isa)?)),
        (REFERENCE, _) => Some(Arc::new(Reference)),
        _ => BACKENDS.iter().find(|entry| entry.name == name).map(made),
    }
}

/// All backends of the library.
pub fn backends() -> Vec<Arc<dyn Backend>> {
    BACKENDS.iter().map(made).collect()
}

/// A backend; one without devices if its driver must not be loaded.
fn made(entry: &BackendEntry) -> Arc<dyn Backend> {
    match loader::distrust() {
        Some(why) if entry.name != Cpu::NAME => Arc::new(NotLoaded { name: entry.name, why }),
        _ => (entry.make)(cache().as_deref()),
    }
}

/// Passes on what a backend has left out, once it has done its work outside of an engine.
pub(crate) fn warn(backend: &dyn Backend, printer: &Printer) {
    backend.notices().into_iter().for_each(|notice| printer.warning(notice));
}

/// The devices that could have been named.
fn present() -> String {
    let devices = backends().into_iter().chain([Arc::new(Reference) as Arc<dyn Backend>]);
    let devices = devices.flat_map(|backend| backend.devices().unwrap_or_default());
    format!("the devices are {}", devices.map(|device| device.id()).collect::<Vec<_>>().join(", "))
}

/// The one device that was asked for; the CPU if none was.
pub(crate) fn one_device(options: &MachineOptions) -> Result<(Arc<dyn Backend>, Device), Failure> {
    let named = devices(options)?.unwrap_or_else(|| vec![(Arc::new(Cpu::new()), 0)]);
    let [(backend, index)] = &named[..] else {
        return Err(Failure::new(format!("{} devices were named, one is tuned at a time", named.len()))
            .hint("name one, for example --device cuda:0"));
    };
    let there = backend.devices()?.into_iter().find(|device| device.index == *index);
    let device = there.ok_or_else(|| {
        let why = backend.absent().map_or(String::new(), |why| format!(": {why}"));
        Failure::new(format!("there is no device {}:{index}{why}", backend.name())).hint(present())
    })?;
    Ok((backend.clone(), device))
}

/// Where backends may keep what they compile.
fn cache() -> Option<PathBuf> {
    base("XDG_CACHE_HOME", ".cache")
}

/// Where samples of tunings are kept.
pub(crate) fn state() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|base| base.join("tune"))
}

/// Where the generations of ledgers are noted.
pub fn ledgers() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|base| base.join("ledgers"))
}

/// Where the user's tables are: a directory a backend.
pub(crate) fn tuning() -> Option<PathBuf> {
    base("XDG_CONFIG_HOME", ".config").map(|base| base.join("tuning"))
}

fn base(name: &str, at_home: &str) -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || match cfg!(windows) {
        // In the user's profile, which Windows keeps from other users.
        true => set("LOCALAPPDATA"),
        false => Some(set("HOME")?.join(at_home)),
    };
    // A relative one would be another directory for each command.
    let base = [set(name), usual()].into_iter().flatten().find(|path| path.is_absolute());
    base.map(|base| base.join("hypergrove"))
}

/// Tables that came with the tool: (`backend/device.toml`, text).
static SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The files of the user's tables.
pub fn table_files() -> Vec<PathBuf> {
    let directories = tuning().into_iter().flat_map(|tuning| BACKENDS.iter().map(move |entry| tuning.join(entry.name)));
    let files = directories.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

/// The user's tables, and after them those that came with the tool.
pub fn tables() -> Vec<Source> {
    let paths = table_files();
    // A file that is no text is no table: a notice reports it later.
    let text =
        |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let own = paths.iter().map(|path| Source { name: PathDisplay(path).to_string(), text: text(path) });
    let shipped = SHIPPED.iter().map(|(name, text)| Source { name: format!("the table {name}"), text: (*text).into() });
    own.chain(shipped).collect()
}

/// How fast what is used can hash.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Compressions a second of one core, if cores are used.
    pub core: Option<Rates>,
    /// Compressions a second of all other devices together, if that is known.
    others: Option<Rates>,
}

impl Limits {
    /// Measures.
    pub fn measure(engine: &Engine, options: &MachineOptions) -> Limits {
        Limits::of(engine.rates(), options)
    }

    /// The limits of these devices, given what their backends know; measures the host's.
    pub(crate) fn of(devices: Vec<(Device, Option<Rates>)>, options: &MachineOptions) -> Limits {
        let mut limits = Limits { core: None, others: Some(Rates::default()) };
        for (device, known) in devices {
            // A device without memory of its own is the host.
            if device.memory == 0 && known.is_none() {
                limits.core = Some(rates(options));
            } else {
                limits.others = limits.others.zip(known).map(|(a, b)| a.zip(&b, |a, b| a + b));
            }
        }
        limits
    }

    /// The better of two measurements, for each hash: whatever else runs can only slow one down.
    pub(crate) fn best(self, other: Limits) -> Limits {
        let core = self.core.zip(other.core).map(|(a, b)| a.zip(&b, f64::max));
        let others = self.others.zip(other.others).map(|(a, b)| a.zip(&b, f64::max));
        Limits { core, others }
    }

    /// Compressions a second of so many threads and all other devices.
    pub fn all(&self, threads: usize) -> Option<Rates> {
        let threads = threads as f64;
        let core = self.core.unwrap_or_default();
        self.others.map(|others| core.zip(&others, |core, others| core * threads + others))
    }

    /// Seconds that this work takes at these rates, nothing else being done: the host and the other devices take what each can do in that time.
    pub fn seconds(&self, work: &Work, threads: usize) -> Option<f64> {
        let core = self.core.map_or(0.0, |core| threads as f64 / work.seconds(&core));
        Some(1.0 / (core + 1.0 / work.seconds(&self.others?)))
    }
}

/// Bytes a second over the links from the host's memory to these devices, the best run of each while others copy too, measured once a program; `None` if one of them
/// needs no link, or its backend does not measure it.
pub(crate) fn links(devices: &[Device]) -> Option<f64> {
    static MEASURED: Mutex<BTreeMap<Vec<String>, Option<f64>>> = Mutex::new(BTreeMap::new());
    let prepare = |device: &Device| {
        let backend = make(device.backend, IsaName(None)).filter(|_| device.memory > 0)?;
        backend.sha256_on(device).ok()?.prepare(device, &Policy::default()).ok()
    };
    let measure = || {
        let mut programs = devices.iter().map(prepare).collect::<Option<Vec<_>>>()?;
        thread::scope(|scope| {
            let copying = programs
                .iter_mut()
                .map(|program| thread::Builder::new().spawn_scoped(scope, || program.link().ok()?));
            let copying: Vec<_> = copying.collect();
            copying.into_iter().map(|thread| thread.ok()?.join().ok()?).sum()
        })
    };
    let mut known = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(devices.iter().map(Device::id).collect()).or_insert_with(measure)
}

/// How long this process's threads have computed, and how long they have waited for a core.
pub struct Waits {
    ran: u64,
    waited: u64,
}

impl Waits {
    /// Until now, where the system reports it: Linux does.
    pub fn now() -> Option<Waits> {
        let mut waits = Waits { ran: 0, waited: 0 };
        for thread in fs::read_dir("/proc/self/task").ok()? {
            // A thread may have ended meanwhile.
            let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
            let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok());
            waits.ran += numbers.next()??;
            waits.waited += numbers.next()??;
        }
        (waits.ran > 0).then_some(waits)
    }

    /// Since then: which part of their time the threads have waited. On a machine that does nothing else it is next to nothing.
    pub fn share_since(before: Option<Waits>) -> Option<f64> {
        let (before, now) = (before?, Waits::now()?);
        let (ran, waited) = (now.ran.saturating_sub(before.ran), now.waited.saturating_sub(before.waited));
        (ran > 0).then(|| waited as f64 / (ran + waited) as f64)
    }
}

/// Cycles a second of the host's first core now, where the system tells.
pub(crate) fn clock() -> Option<f64> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let megahertz =
        cpuinfo.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1)?.trim().parse().ok());
    megahertz.map(|megahertz: f64| 1e6 * megahertz)
}

/// The best rates of each instruction set since the program began. A clock that is slow for a moment must not lower the peak.
static BEST: Mutex<BTreeMap<&str, Rates>> = Mutex::new(BTreeMap::new());

/// Compressions a second of one core: with the instruction set that was asked for, or with the best for each hash. Measures them again,
/// and returns the best of all measurements until now.
fn rates(options: &MachineOptions) -> Rates {
    let sets = match options.isa {
        IsaName(Some(isa)) => vec![isa],
        IsaName(None) => match Isa::available() {
            only if only.len() == 1 => only,
            // The instruction set that any CPU has is not the best of a CPU that has more.
            several => several.into_iter().filter(|isa| *isa != Isa::Portable).collect(),
        },
    };
    let measured = sets.into_iter().filter_map(|isa| {
        let now = hypergrove::backend::rates(isa, RATES_TIME)?;
        let mut all = BEST.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(isa.name()).or_insert(now);
        *known = known.zip(&now, f64::max);
        Some(*known)
    });
    measured.fold(Rates::default(), |a, b| a.zip(&b, f64::max))
}

/// Compressions by hash.
pub fn work_json(work: &Work) -> Value {
    json!({ "sha256": work.sha256, "sha512": work.sha512, "keccak": work.keccak })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::options;
    use hypergrove::{DEVICE_TIMEOUT, Error, SLH_DSA_SHA2_128F};
    use hypergrove_tables::table::{Table, file_name};
    use hypergrove_testkit::mock::{Mock, Preparation, mock};

    /// A file of the backend and the device that it is named after, or nobody would know whose it is.
    #[test]
    fn all_tables_in_the_repository_are_shipped() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tuning");
        let backends = fs::read_dir(folder).unwrap().map(|backend| backend.unwrap().path());
        let files: Vec<_> = backends.flat_map(|backend| fs::read_dir(backend).unwrap()).collect();
        assert_eq!(SHIPPED.len(), files.len());
        for (name, text) in SHIPPED {
            let table = Table::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
            let device = Device { name: table.device, ..Reference.devices().unwrap().remove(0) };
            assert_eq!(*name, format!("{}/{}.toml", table.backend, file_name(&device)));
            assert!(BACKENDS.iter().any(|entry| entry.name == table.backend), "{name}");
        }
    }

    #[test]
    fn the_user_learns_which_devices_failed() {
        // It was there when it was listed.
        let refuses = |it: Preparation<'_>| Err(Error::Device { device: it.device.id(), what: "no answer".into() });
        let unplugged: Arc<dyn Backend> = Arc::new(Mock { name: "unplugged", ..mock(1, 1) }.preparing(refuses));
        let engine = Engine::builder().devices(vec![(unplugged.clone(), 0), (Arc::new(Reference), 0)]).build().unwrap();
        engine.generate(&SLH_DSA_SHA2_128F).unwrap();
        engine.generate(&SLH_DSA_SHA2_128F).unwrap();
        let said = "unplugged:0 failed: no answer; unplugged:0 is disabled; jobs that other devices do in its place: 1";
        assert_eq!(warnings(&engine), [said]);

        let alone = Engine::builder().backend(unplugged).build().unwrap();
        assert!(alone.generate(&SLH_DSA_SHA2_128F).is_err());
        assert!(warnings(&alone).is_empty());
    }

    #[test]
    fn a_host_and_a_gpu_share_the_work() {
        // 10⁶ integer operations: a millisecond of this GPU, and of one thread of this host.
        let work = Work { sha256: 1000.0, saved: 24_000.0, ..Work::default() };
        let core = Some(Rates { sha256: 1e6, ..Rates::default() });
        let (gpu, none) = (Some(Rates::of_integers(1e9)), Some(Rates::default()));
        let seconds = |core, others| Limits { core, others }.seconds(&work, 3).map(|seconds| (1e6 * seconds).round());
        let all = [(None, gpu), (core, none), (core, gpu), (core, None)].map(|(core, others)| seconds(core, others));
        assert_eq!(all, [Some(1000.0), Some(333.0), Some(250.0), None]);
    }

    #[test]
    fn device_timeouts_reach_the_engine() {
        let printer = Printer::new(true, false);
        let of_cpu = ["--backend", "cpu"];
        for (typed, timeout) in [(&[][..], DEVICE_TIMEOUT), (&["--device-timeout", "5m"], Duration::from_secs(300))] {
            let options = options(&[&of_cpu, typed].concat());
            let engine = engine(&options, &printer).unwrap_or_else(|why| panic!("{}", why.message));
            assert_eq!(engine.device_timeout(), timeout);
        }
    }
}
