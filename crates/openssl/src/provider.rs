//! A provider in one OSSL_LIB_CTX: its configuration, and the engine that all providers with the same configuration share.

use crate::abi::{Core, Leaked};
use crate::algorithms::ALGORITHMS;
use crate::failure::{Failure, Reason};
use hypergrove::quote::{Quote, may_be_key};
use hypergrove::{Engine, Job, Process, TableSource, devices};
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fs, process};

/// The most bytes of a message that comes in parts, unless the configuration says otherwise: SLH-DSA reads a message twice, so parts are kept.
const MESSAGE_LIMIT: usize = 256 << 20;

/// Jobs that share batches copy their messages. A message of more bytes than this is not copied: it takes so long to hash that a batch gains nothing.
const LARGE: usize = 1 << 20;

/// The engine's part of the configuration.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Settings {
    threads: Option<usize>,
    memory: Option<u64>,
    /// Names of devices. None: the CPU, and GPUs where measurements say that they are faster.
    devices: Option<Vec<String>>,
    redundant: bool,
    verify_after_sign: bool,
    tables: Vec<PathBuf>,
    cache: Option<PathBuf>,
    log: bool,
}

/// A provider. Keys and contexts share it.
pub(crate) struct Provider {
    pub(crate) core: Core,
    pub(crate) message_limit: usize,
    pub(crate) offers_tls: bool,
    shared: Result<&'static Shared, Failure>,
    /// Whether this OpenSSL signs messages by functions of their own.
    pub(crate) has_messages: bool,
    info: Leaked<CString>,
}

/// The engine of all providers of this process with the same settings. It is never dropped: see `build.rs`.
struct Shared {
    settings: Settings,
    engine: Leaked<Running>,
    next: OnceLock<&'static Shared>,
}

/// An engine and its process. A forked process makes its own engine, since it has none of its parent's threads.
pub(crate) struct Running {
    process: Process,
    engine: Engine,
}

/// Names in the provider's section of openssl.cnf.
mod name {
    use std::ffi::CStr;
    pub(super) const THREADS: &CStr = c"threads";
    pub(super) const MEMORY: &CStr = c"memory";
    pub(super) const DEVICES: &CStr = c"devices";
    pub(super) const REDUNDANT: &CStr = c"redundant";
    pub(super) const VERIFY_AFTER_SIGN: &CStr = c"verify-after-sign";
    pub(super) const TABLES: &CStr = c"tables";
    pub(super) const CACHE: &CStr = c"cache";
    pub(super) const LOG: &CStr = c"log";
    pub(super) const MESSAGE_LIMIT: &CStr = c"message-limit";
    pub(super) const TLS: &CStr = c"tls";
    pub(super) const ALL: [&CStr; 10] =
        [THREADS, MEMORY, DEVICES, REDUNDANT, VERIFY_AFTER_SIGN, TABLES, CACHE, LOG, MESSAGE_LIMIT, TLS];
}

/// How a number of bytes is written.
const SIZE: &str = "bytes, such as 512M";

/// A number of bytes, or of bytes with K, M or G behind it.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// Reads names and their texts; a name without a text keeps its default.
struct Section<F>(F);

impl<F: Fn(&CStr) -> Option<String>> Section<F> {
    fn read<T>(&self, name: &CStr, read: impl FnOnce(&str) -> Option<T>, expected: &str) -> Result<Option<T>, Failure> {
        let Some(text) = (self.0)(name) else { return Ok(None) };
        let unclear = || {
            let name = name.to_string_lossy();
            Failure::new(
                Reason::Configuration,
                format!("openssl.cnf, hypergrove: {name} = {}; write {expected}", Quote::new(&text)),
            )
        };
        read(text.trim()).map(Some).ok_or_else(unclear)
    }
    fn switch(&self, name: &CStr) -> Result<bool, Failure> {
        let read = |text: &str| match text {
            "yes" | "on" | "true" | "1" => Some(true),
            "no" | "off" | "false" | "0" => Some(false),
            _ => None,
        };
        Ok(self.read(name, read, "yes or no")?.unwrap_or(false))
    }
    fn settings(&self) -> Result<Settings, Failure> {
        let paths = |text: &str| Some(text.split(',').map(|path| PathBuf::from(path.trim())).collect());
        let names = |text: &str| Some(text.split(',').map(|name| name.trim().into()).collect());
        let log = |text: &str| match text {
            "none" => Some(false),
            "devices" => Some(true),
            _ => None,
        };
        let threads = |text: &str| text.parse().ok().filter(|threads| *threads > 0);
        Ok(Settings {
            threads: self.read(name::THREADS, threads, "a number of 1 or more")?,
            memory: self.read(name::MEMORY, bytes, SIZE)?,
            devices: self.read(name::DEVICES, names, "names of devices")?,
            redundant: self.switch(name::REDUNDANT)?,
            verify_after_sign: self.switch(name::VERIFY_AFTER_SIGN)?,
            tables: self.read(name::TABLES, paths, "paths")?.unwrap_or_default(),
            cache: self.read(name::CACHE, |text| Some(PathBuf::from(text)), "a path")?,
            log: self.read(name::LOG, log, "none or devices")?.unwrap_or(false),
        })
    }
}

impl Settings {
    fn engine(&self) -> Result<Engine, Failure> {
        let mut builder = Engine::builder()
            .redundant(self.redundant)
            .verify_signatures(self.verify_after_sign)
            .tables(self.tables()?);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(bytes) = self.memory {
            builder = builder.memory_budget(bytes);
        }
        if let Some(names) = &self.devices {
            let chosen = devices::named(names, |name| devices::backend(name, self.cache.as_deref()));
            let wrong = |why| Failure::new(Reason::Configuration, format!("openssl.cnf, hypergrove: devices: {why}"));
            builder = builder.devices(chosen.map_err(wrong)?);
        } else if let Some(cache) = &self.cache {
            builder = builder.cache(cache.clone());
        }
        Ok(builder.build()?)
    }

    fn tables(&self) -> Result<Vec<TableSource>, Failure> {
        let read = |path: &PathBuf| {
            let shown = Quote::path(path);
            let wrong = |why: String| {
                Failure::new(Reason::Configuration, format!("openssl.cnf, hypergrove: tables: {shown}: {why}"))
            };
            let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            Ok(TableSource { name: shown.to_string(), text })
        };
        self.tables.iter().map(read).collect()
    }
}

impl Shared {
    /// That of these settings. There are as many as a process has configurations, which are few.
    fn of(settings: &Settings) -> &'static Shared {
        static FIRST: OnceLock<&'static Shared> = OnceLock::new();
        let make = || &*Box::leak(Box::new(Shared::new(settings.clone())));
        let mut at: &'static Shared = FIRST.get_or_init(make);
        while at.settings != *settings {
            at = at.next.get_or_init(make);
        }
        at
    }

    fn new(settings: Settings) -> Shared {
        Shared { settings, engine: Leaked::none(), next: OnceLock::new() }
    }

    /// The engine of this process, made at the first call. No lock is held meanwhile, since a fork would keep it for ever.
    fn running(&self) -> Result<&'static Running, Failure> {
        let process = Process::current();
        let found = self.engine.get();
        if let Some(running) = found.filter(|running| running.process == process) {
            return Ok(running);
        }
        let engine = self.settings.engine()?;
        let log = self.settings.log.then(|| description(&engine));
        match self.engine.replace(found, Running { process, engine }) {
            Ok(running) => {
                if let Some(line) = log {
                    eprintln!("hypergrove: process {}: {line}", process::id());
                }
                Ok(running)
            }
            // Another thread was faster. An engine that nobody has used has no threads.
            Err(other) => Ok(other),
        }
    }
}

/// The devices that an engine uses now.
fn description(engine: &Engine) -> String {
    let devices: Vec<String> =
        engine.devices().iter().map(|device| format!("{} {}", device.id(), device.name)).collect();
    let gpu = match engine.devices().iter().any(|device| !device.id().starts_with("cpu")) {
        true => "a GPU is used",
        false => "no GPU is used",
    };
    let mut text = format!("devices: {}; {gpu}; threads: {}", devices.join(", "), engine.threads());
    for fault in engine.faults() {
        text += &format!("; failed: {}: {}", fault.device.id(), fault.error);
    }
    for notice in engine.notices() {
        text += &format!("; {notice}");
    }
    text
}

/// Makes the algorithms' object identifiers known. OpenSSL 3.0 does not take them from two threads at the same time.
fn add_names(core: &Core) -> Result<(), Failure> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // The first look at a name makes OpenSSL read its configuration, which may load this provider again, on this thread.
    core.find_a_name();
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for named in &ALGORITHMS {
        // Another provider may have added it between the core's look and its own addition. Then the core finds it the second time.
        let add = || core.name(named.oid, named.short, named.long);
        if !add() && !add() {
            let what = format!("OpenSSL does not take the object identifier of {}", named.name());
            return Err(Failure::new(Reason::Internal, what));
        }
    }
    Ok(())
}

/// The first release of OpenSSL that has functions for messages.
const FIRST_WITH_MESSAGES: (u32, u32) = (3, 4);

impl Provider {
    pub(crate) fn new(core: Core) -> Result<Provider, Failure> {
        add_names(&core)?;
        let section = Section(|name: &CStr| core.configured(name));
        let limit = |text: &str| usize::try_from(bytes(text)?).ok();
        let read = || {
            let limit = section.read(name::MESSAGE_LIMIT, limit, SIZE)?.unwrap_or(MESSAGE_LIMIT);
            Ok((Shared::of(&section.settings()?), limit, section.switch(name::TLS)?))
        };
        // OpenSSL says nothing if a provider that its configuration names does not load, and goes on without it. So the provider loads, and
        // each operation tells the mistake.
        let (shared, message_limit, offers_tls) = match read() {
            Ok((shared, limit, tls)) => (Ok(shared), limit, tls),
            Err(mistake) => (Err(mistake), MESSAGE_LIMIT, false),
        };
        let version = core.configured(c"openssl-version").unwrap_or_default();
        let mut numbers = version.split('.').map_while(|number| number.parse().ok());
        let has_messages = numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_WITH_MESSAGES);
        Ok(Provider { core, message_limit, offers_tls, has_messages, shared, info: Leaked::none() })
    }

    /// An error if there is no engine: the configuration has a mistake, or a device is missing. Each operation begins with this.
    pub(crate) fn usable(&self) -> Result<(), Failure> {
        self.running().map(drop)
    }

    fn running(&self) -> Result<&'static Running, Failure> {
        self.shared.as_ref().map_err(Clone::clone)?.running()
    }

    /// `openssl list -providers -verbose` shows this: version, the devices in use now, and what openssl.cnf says. A caller may keep the text, so
    /// each one that differs from the last stays.
    pub(crate) fn info(&self) -> &'static CStr {
        let devices = match self.running() {
            Ok(running) => description(&running.engine),
            Err(why) => why.what,
        };
        let mut text = format!("hypergrove {}; {devices}", env!("CARGO_PKG_VERSION"));
        for name in name::ALL {
            if let Some(value) = self.core.configured(name) {
                let value = if may_be_key(&value) { Quote::new(&value).bare() } else { value };
                text += &format!("; {} = {value}", name.to_string_lossy());
            }
        }
        let text = CString::new(text.replace('\0', "")).unwrap_or_default();
        match self.info.get() {
            Some(known) if *known == text => known,
            last => self.info.replace(last, text).unwrap_or_else(|other| other),
        }
    }

    pub(crate) fn engine(&self) -> Result<&'static Engine, Failure> {
        Ok(&self.running()?.engine)
    }

    /// Does one job, whose message has so many bytes. Callers at the same time share batches, and a caller that is alone does the work itself. So it
    /// does for a large message.
    pub(crate) fn run<J: Job>(&self, bytes: usize, job: J) -> Result<J::Out, Failure> {
        let engine = self.engine()?;
        Ok(if bytes <= LARGE { engine.share(job) } else { engine.run(job) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn section(pairs: &[(&'static CStr, &'static str)]) -> Section<impl Fn(&CStr) -> Option<String>> {
        let pairs = pairs.to_vec();
        Section(move |name: &CStr| Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_string()))
    }

    #[test]
    fn a_section_is_read() {
        assert_eq!(section(&[]).settings().unwrap(), Settings::default());
        let pairs = [
            (name::THREADS, "3"),
            (name::MEMORY, "64 M"),
            (name::DEVICES, "cpu:0"),
            (name::REDUNDANT, "yes"),
            (name::VERIFY_AFTER_SIGN, "on"),
            (name::LOG, "devices"),
            (name::TABLES, "a.toml, b.toml"),
            (name::CACHE, "kernels"),
        ];
        let settings = section(&pairs).settings().unwrap();
        assert_eq!((settings.threads, settings.memory), (Some(3), Some(64 << 20)));
        assert_eq!(settings.devices.as_deref(), Some(&["cpu:0".to_string()][..]));
        assert!(settings.redundant && settings.verify_after_sign && settings.log);
        assert_eq!(settings.tables, ["a.toml", "b.toml"].map(PathBuf::from));
        assert!(settings.tables().unwrap_err().what.contains("a.toml"));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_the_way_out() {
        let wrong = [
            (name::THREADS, "0", "a number of 1 or more"),
            (name::MEMORY, "lots", "bytes, such as 512M"),
            (name::MEMORY, "99999999999G", "bytes, such as 512M"),
            (name::REDUNDANT, "maybe", "yes or no"),
            (name::LOG, "all", "none or devices"),
        ];
        for (name, text, way_out) in wrong {
            let failure = section(&[(name, text)]).settings().unwrap_err();
            assert_eq!(failure.reason, Reason::Configuration);
            let said = failure.what;
            assert!(
                said.contains(name.to_str().unwrap())
                    && said.contains(&Quote::new(text).to_string())
                    && said.contains(way_out),
                "{said}"
            );
        }
    }

    /// A key that stands in place of a setting is in no error.
    #[test]
    fn no_setting_is_shown_that_may_be_a_key() {
        let canaries = hypergrove_testkit::canary::Canaries::read();
        for (form, bytes) in &canaries.forms {
            let text = String::from_utf8_lossy(bytes);
            for name in name::ALL {
                let given = Section(|wanted: &CStr| (wanted == name).then(|| text.to_string()));
                let settings = given.settings();
                let failure = match &settings {
                    Ok(settings) => settings.engine().map(drop).err(),
                    Err(why) => Some(why.clone()),
                };
                canaries.check(&format!("{form} in {name:?}"), format!("{failure:?}").as_bytes());
            }
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named_when_it_is_needed() {
        let settings = section(&[(name::DEVICES, "cpu, gpu:0")]).settings().unwrap();
        let failure = settings.engine().err().unwrap();
        assert_eq!(failure.reason, Reason::Configuration);
        assert!(failure.what.contains("devices: there is no backend 'gpu'"), "{}", failure.what);
    }

    #[test]
    fn equal_settings_share_an_engine() {
        let settings = |threads| Settings { threads: Some(threads), ..Settings::default() };
        assert!(ptr::eq(Shared::of(&settings(1)), Shared::of(&settings(1))));
        assert!(!ptr::eq(Shared::of(&settings(1)), Shared::of(&settings(2))));
        let running = Shared::of(&settings(1)).running().unwrap();
        assert!(ptr::eq(running, Shared::of(&settings(1)).running().unwrap()));
    }
}
