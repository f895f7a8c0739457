//! The TOML file of a deployment.

use crate::audit::Fsync;
use crate::error::Error;
use crate::fields::{section, some_section};
use crate::files::{Readers, read_trusted};
use crate::seal::Source;
use crate::transit::MOST_ITEMS;
use hypergrove::quote::{self, Quote, is_key_for_new_path};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All settings. Each has a default, except the folder of the data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The folder of the database and, by default, of the audit log.
    pub data: PathBuf,
    /// The address to listen on.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Proxies in front of the server, whose connections have no limit, and whose `X-Forwarded-For` says whose requests they send.
    #[serde(default)]
    pub trusted_proxies: Vec<IpAddr>,
    /// The socket for the command `unseal`. By default `unseal.sock` in the folder of the data.
    pub socket: Option<PathBuf>,
    /// TLS. Only a loopback address may go without.
    #[serde(default, deserialize_with = "some_section")]
    pub tls: Option<Tls>,
    /// The source of the secret that unseals the server.
    #[serde(default, deserialize_with = "section")]
    pub seal: Source,
    /// The audit log.
    #[serde(default, deserialize_with = "section")]
    pub audit: Audit,
    /// Bounds.
    #[serde(default, deserialize_with = "section")]
    pub limits: Limits,
    /// The engine that signs.
    #[serde(default, deserialize_with = "section")]
    pub engine: Engine,
    /// Whether keys of the sets of draft SP 800-230 may be made.
    #[serde(default)]
    pub draft_sets: bool,
}

/// A year. Far beyond it, a time from now is none that a clock has, and each connection would panic.
const MOST_SECONDS: u64 = 365 * 24 * 3600;

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8200).into()
}

/// TLS 1.3.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificates, PEM.
    pub certificate: PathBuf,
    /// The private key of the first certificate, PEM.
    pub key: PathBuf,
    /// Certificates of the authorities that sign clients' certificates. If set, each client needs such a certificate besides its token.
    pub client_ca: Option<PathBuf>,
}

/// The audit log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// The file. By default `audit.log` in the folder of the data.
    pub path: Option<PathBuf>,
    /// When lines are on the disk.
    #[serde(default)]
    pub fsync: Fsync,
}

/// Bounds, so that no client takes all of the server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Items of a `batch_input`.
    pub max_batch: usize,
    /// Items that are signed or verified, or wait for it.
    pub queue_jobs: usize,
    /// Bytes of all requests' bodies and results.
    pub memory: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one address at a time, or requests of one address that trusted proxies send. Loopback addresses have no limit.
    pub per_address: usize,
    /// Seconds from a connection's begin to the first byte of its first request, with TLS.
    pub first_byte_seconds: u64,
    /// Seconds for the headers of a request; an idle connection is closed after this time.
    pub header_seconds: u64,
    /// Seconds for the body of a request.
    pub body_seconds: u64,
    /// Seconds that accepted requests have to end when the server is stopped.
    pub stop_seconds: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_body: 32 << 20,
            max_batch: 4096,
            queue_jobs: 16_384,
            memory: 1 << 30,
            connections: 1024,
            per_address: 128,
            first_byte_seconds: 10,
            header_seconds: 60,
            body_seconds: 30,
            stop_seconds: 60,
        }
    }
}

/// The engine that signs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Threads. By default one for each core.
    pub threads: Option<usize>,
    /// Whether everything is computed twice and compared.
    #[serde(default)]
    pub redundant: bool,
}

impl Config {
    /// The settings of a folder, all others as they are by default.
    pub fn of_folder(data: PathBuf) -> Config {
        Config {
            data,
            listen: default_listen(),
            trusted_proxies: Vec::new(),
            socket: None,
            tls: None,
            seal: Source::default(),
            audit: Audit::default(),
            limits: Limits::default(),
            engine: Engine::default(),
            draft_sets: false,
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let named = |why: &dyn std::fmt::Display| Error::bad(format!("{}: {why}", Quote::path(path)));
        // Whoever may change the settings may have a command of theirs run.
        let text = read_trusted(path, Readers::All)?;
        Config::parse(str::from_utf8(&text).map_err(|why| named(&why))?).map_err(|why| named(&why))
    }

    fn parse(text: &str) -> Result<Config, Error> {
        let config: Config = toml::from_str(text)
            .map_err(|why: toml::de::Error| Error::bad(quote::at_line(text, why.span(), why.message())))?;
        config.check().map(|()| config)
    }

    /// The error of settings that contradict each other or are outside their limits, or of a private key in place of a path.
    pub fn check(&self) -> Result<(), Error> {
        let paths =
            [("data", Some(&self.data)), ("socket", self.socket.as_ref()), ("[audit] path", self.audit.path.as_ref())];
        for (setting, path) in paths.into_iter().filter_map(|(setting, path)| Some((setting, path?))) {
            if is_key_for_new_path(path) {
                let shown = Quote::path(path);
                return Err(Error::bad(format!("{setting}: {shown}: this looks like a private key; name a path")));
            }
        }
        let limits = &self.limits;
        let positive = [
            limits.max_body,
            limits.max_batch,
            limits.queue_jobs,
            limits.memory,
            limits.connections,
            limits.per_address,
        ];
        let times = [limits.first_byte_seconds, limits.header_seconds, limits.body_seconds];
        if positive.contains(&0) || times.contains(&0) {
            return Err(Error::bad("[limits]: each must be at least 1"));
        }
        if times.iter().chain([&limits.stop_seconds]).any(|time| *time > MOST_SECONDS) {
            return Err(Error::bad(format!("[limits]: seconds must be at most {MOST_SECONDS}")));
        }
        if limits.queue_jobs < limits.max_batch || limits.memory < limits.max_body {
            return Err(Error::bad("[limits]: queue_jobs must be at least max_batch, and memory at least max_body"));
        }
        if limits.max_batch > MOST_ITEMS {
            return Err(Error::bad(format!("[limits]: max_batch must be at most {MOST_ITEMS}")));
        }
        if limits.memory >> 10 > tokio::sync::Semaphore::MAX_PERMITS.min(u32::MAX as usize) {
            return Err(Error::bad("[limits]: memory is too large"));
        }
        if limits.queue_jobs > u32::MAX as usize || limits.connections > u32::MAX as usize {
            return Err(Error::bad("[limits]: queue_jobs and connections must be below 2^32"));
        }
        if self.tls.is_none() && !self.listen.ip().is_loopback() {
            return Err(Error::bad(format!(
                "listen = {}: without [tls] only a loopback address is allowed",
                self.listen
            )));
        }
        Ok(())
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.data.join("server.db")
    }

    /// The audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.audit.path.clone().unwrap_or_else(|| self.data.join("audit.log"))
    }

    /// The socket for the command `unseal`.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.data.join("unseal.sock"))
    }

    /// The time for headers.
    pub fn header_time(&self) -> Duration {
        Duration::from_secs(self.limits.header_seconds)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Settings that are read are those of the file, and a server can be started with them.
    #[test]
    fn fuzz_settings() {
        let seeds: [&[u8]; 3] = [
            b"data = '/d'\nlisten = '0.0.0.0:8200'\ndraft_sets = true\n[tls]\ncertificate = 'a'\nkey = 'b'\nclient_ca = 'c'\n",
            b"data = '/d'\n[seal]\nkind = 'command'\ncommand = ['a', 'b']\n[audit]\npath = '/l'\nfsync = 'second'\n[engine]\nredundant = true\nthreads = 2",
            b"data = '/d'\nlisten = '[::1]:1'\nsocket = '/s'\ntrusted_proxies = ['::1', '10.0.0.1']\n[limits]\nmax_body = 1\nmax_batch = 2\nqueue_jobs = 3\nmemory = 4\nconnections = 5\nper_address = 9\nfirst_byte_seconds = 10\nheader_seconds = 6\nbody_seconds = 7\nstop_seconds = 8",
        ];
        let words =
            "[limits]\n max_body= queue_jobs= memory= connections= header_seconds= stop_seconds= [tls] kind='file'";
        crate::fuzz::fuzz(10_000, &seeds, words, |input| {
            let text = String::from_utf8_lossy(input);
            let config = match Config::parse(&text) {
                Ok(config) => config,
                Err(why) => return why.to_string().lines().last().unwrap_or_default().into(),
            };
            let limits = &config.limits;
            // Beyond these bounds, semaphores and times panic.
            for permits in [limits.queue_jobs, limits.memory >> 10, limits.connections] {
                assert!(permits <= tokio::sync::Semaphore::MAX_PERMITS);
            }
            for seconds in [limits.first_byte_seconds, limits.header_seconds, limits.body_seconds, limits.stop_seconds]
            {
                assert!(std::time::Instant::now().checked_add(Duration::from_secs(seconds)).is_some(), "{seconds}");
            }
            let Ok(table) = text.parse::<toml::Table>() else { return "numbers that no table holds".into() };
            assert_eq!(Path::new(table["data"].as_str().unwrap()), config.data);
            assert!(table.contains_key("tls") || config.listen.ip().is_loopback());
            assert_eq!(table.get("draft_sets").and_then(toml::Value::as_bool).unwrap_or(false), config.draft_sets);
            let limits = format!("{:?}", config.limits);
            for (name, value) in table.get("limits").and_then(toml::Value::as_table).into_iter().flatten() {
                assert!(limits.contains(&format!(" {name}: {value}")), "{limits}");
            }
            String::new()
        });
    }

    #[test]
    fn the_reference_has_all_settings() {
        let page = include_str!("../../docs/server-reference.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let text = rest.split_once("```").unwrap().0;
        let shown = Config::parse(text).unwrap();
        let default = Config::of_folder(shown.data.clone());
        assert_eq!(format!("{:?}", shown.limits), format!("{:?}", default.limits));
        assert_eq!((shown.audit.fsync, shown.draft_sets), (default.audit.fsync, default.draft_sets));
        // Each field stands in the page with a value, so none is missing there.
        let whole = format!("{shown:?}");
        let fields = whole.split([' ', '{']).filter_map(|word| word.strip_suffix(':')).filter(|word| !word.is_empty());
        let written = |field: &str| text.lines().any(|line| line.starts_with(&format!("{field} = ")));
        for field in fields.filter(|field| field.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
            assert!(written(field) || text.contains(&format!("[{field}]")), "{field}");
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Config::read(&path)
        };
        let good = read("data = '/d'\n[seal]\nkind = 'file'\npath = '/k'\n[audit]\nfsync = 'second'\n").unwrap();
        assert_eq!((good.audit.fsync, good.listen.port()), (Fsync::Second, 8200));
        assert_eq!(good.audit_log(), Path::new("/d/audit.log"));
        for (text, says) in [
            ("", "data"),
            ("data = '/d'\nlisten = '0.0.0.0:8200'", "loopback"),
            ("data = '/d'\nlimit = 1", "limit"),
            ("data = '/d'\n[limits]\nmax_body = 0", "at least 1"),
            ("data = '/d'\n[limits]\nper_address = 0", "at least 1"),
            ("data = '/d'\n[limits]\nfirst_byte_seconds = 0", "at least 1"),
            ("data = '/d'\ntrusted_proxies = ['proxy']", "line 2: invalid IP address"),
            ("data = '/d'\n[limits]\nmax_batch = 100000", "queue_jobs"),
            ("data = '/d'\n[limits]\nheader_seconds = 18446744073709551615", "at most 31536000"),
            ("data = '/d'\n[seal]\nkind = 'magic'", "magic"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.contains(says) && why.contains("server.toml"), "{why}");
        }
    }
}
