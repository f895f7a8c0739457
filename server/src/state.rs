//! The server's state: what is in memory, and how a change of it reaches the database first.

use crate::access::{DEFAULT, Policy, ROOT, Token, TokenRecord, make_token, now};
use crate::audit::{Audit, Keys};
use crate::config::Config;
use crate::error::Error;
use crate::keys::Key;
use crate::limits::Counter;
use crate::places::Places;
use crate::refused::Refused;
use crate::reserve::Reserve;
use crate::seal::{Master, SealedMaster};
use crate::storage::{Change, Kind, Sqlite, Storage};
use crate::threads::unpoisoned;
use crate::unsealing::Turns;
use hypergrove::Engine;
use hypergrove::quote::Quote;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedRwLockReadGuard, Semaphore, watch};
use zeroize::Zeroizing;

const MASTER: &str = "master";

/// Seconds after its end for which a token is kept, and time for which the clock must have run evenly before it deletes a token. So a clock that is
/// wrong for some hours deletes none.
const GRACE: u64 = 24 * 3600;
const EVEN: Duration = Duration::from_secs(12 * 3600);
/// Seconds by which the clock may differ from an even one.
const UNEVEN: u64 = 60;

/// Keys that are made at a time. Whoever wants another one waits, and the wait ends when the server is sealed.
const NEW_KEYS: usize = 16;

/// A time since which the clock has run evenly.
struct Clock {
    wall: u64,
    at: Instant,
}

impl Clock {
    /// Whether the clock has run evenly for long, if it shows `wall` at the time `at`. After it was set, this begins anew.
    fn is_even(&mut self, wall: u64, at: Instant) -> bool {
        let since = at.duration_since(self.at);
        if wall.abs_diff(self.wall.saturating_add(since.as_secs())) > UNEVEN {
            *self = Clock { wall, at };
            return false;
        }
        since >= EVEN
    }
}

/// The half of the server that only an unsealed one has.
pub struct Open {
    /// The master key.
    pub master: Master,
    /// The audit log.
    pub audit: Audit,
    /// The keys by their names.
    keys: RwLock<BTreeMap<String, Arc<Key>>>,
}

/// Tokens and policies.
#[derive(Default)]
pub struct Access {
    /// Policies by their names.
    pub policies: BTreeMap<String, Policy>,
    /// Tokens by their accessors.
    pub tokens: HashMap<String, Arc<Token>>,
}

/// The server.
pub struct Server {
    /// The settings.
    pub config: Config,
    /// The engine that signs.
    pub engine: Engine,
    /// The engine, for keys and policies that ask for more checks: everything is computed twice and compared.
    pub redundant: Engine,
    /// The database.
    pub storage: Arc<dyn Storage>,
    /// Room for items that are signed or verified.
    pub jobs: Arc<Semaphore>,
    /// Room for bodies and results, in KiB.
    pub memory: Arc<Semaphore>,
    /// Room for keys that are made at a time.
    pub new_keys: Arc<Semaphore>,
    /// The task of the connection over which the latest request came.
    latest: Mutex<Option<tokio::task::Id>>,
    sealed: SealedMaster,
    access: RwLock<Access>,
    /// Requests hold this for reading until they are answered, so sealing waits for them.
    open: Arc<tokio::sync::RwLock<Option<Open>>>,
    /// Whether sealing waits, so that requests end early.
    sealing: watch::Sender<bool>,
    /// One change at a time.
    changes: Mutex<()>,
    clock: Mutex<Clock>,
    /// Turns to unseal.
    pub turns: Turns,
    /// Places for connections.
    pub places: Places,
    /// Requests without a valid token that the audit log does not have yet.
    pub refused: Refused,
}

/// An unsealed server, for as long as this is held.
pub type Opened = Arc<OwnedRwLockReadGuard<Option<Open>, Open>>;

fn stored<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|why| Error::internal(why.to_string()))
}

/// The database of a deployment, if there is one. Whoever only looks for it does not make it.
pub fn existing_database(config: &Config) -> Result<PathBuf, Error> {
    let path = config.database();
    let missing = "there is no such database; check the settings or the folder, or make one with `init`";
    match path.try_exists() {
        Ok(true) => Ok(path),
        Ok(false) => Err(Error::bad(format!("{}: {missing}", Quote::path(path)))),
        Err(why) => Err(Error::at(&path, why)),
    }
}

/// The sealed master key of a database.
pub fn sealed_master(storage: &dyn Storage) -> Result<Option<SealedMaster>, Error> {
    let Some(sealed) = storage.get(Kind::Meta, MASTER)? else { return Ok(None) };
    let damaged = |_| Error::internal("the sealed master key in the database is damaged; restore a backup");
    serde_json::from_slice(&sealed).map(Some).map_err(damaged)
}

impl Server {
    /// Makes the database of a deployment with a master key under this secret, and a root token, which is returned.
    pub fn init(config: &Config, secret: &[u8]) -> Result<Zeroizing<String>, Error> {
        let storage = Sqlite::open_alone(&config.database())?;
        if sealed_master(&storage)?.is_some() {
            return Err(Error::bad(format!("{}: there is a database already", Quote::path(&config.data))));
        }
        let master = Master::random()?;
        let sealed = SealedMaster::new(&master, secret)?;
        let (record, text) = root_token()?;
        storage.commit(&[
            Keys::new(&master).first_head()?,
            Change::Put(Kind::Meta, MASTER.into(), stored(&sealed)?),
            Change::Put(Kind::Token, record.accessor.clone(), stored(&record)?),
        ])?;
        Ok(text)
    }

    /// Opens the database of a deployment, sealed.
    pub fn start(config: Config) -> Result<Arc<Server>, Error> {
        let storage = Sqlite::open_alone(&existing_database(&config)?)?;
        let sealed = sealed_master(&storage)?.ok_or_else(|| {
            Error::bad(format!("{}: there is no database; make one with `init`", Quote::path(&config.data)))
        })?;
        let mut access = Access::default();
        for (name, text) in storage.list(Kind::Policy)? {
            let policy = Policy::stored(&String::from_utf8_lossy(&text));
            let then = if policy.is_closed { "; its tokens may do nothing until it is written again" } else { "" };
            policy.faults.iter().for_each(|fault| tracing::warn!("policy {name}: {fault}{then}"));
            access.policies.insert(name, policy);
        }
        for (accessor, record) in storage.list(Kind::Token)? {
            let damaged =
                || Error::internal(format!("the token {accessor} in the database is damaged, or another one's"));
            let record: TokenRecord = serde_json::from_slice(&record).map_err(|_| damaged())?;
            // Under another accessor, it would outlive its revocation.
            if record.accessor != accessor {
                return Err(damaged());
            }
            access.tokens.insert(accessor, Arc::new(Token::new(record)));
        }
        let limits = &config.limits;
        let engine =
            Engine::builder().queue(limits.queue_jobs, limits.memory as u64).redundant(config.engine.redundant);
        let engine = match config.engine.threads {
            Some(threads) => engine.threads(threads).build()?,
            None => engine.build()?,
        };
        let mut twice = engine.work_options();
        twice.checks.redundant = true;
        let redundant = engine.with(twice);
        Ok(Arc::new(Server {
            engine,
            redundant,
            storage: Arc::new(storage),
            jobs: Arc::new(Semaphore::new(limits.queue_jobs)),
            memory: Arc::new(Semaphore::new(limits.memory >> 10)),
            new_keys: Arc::new(Semaphore::new(NEW_KEYS)),
            latest: Mutex::default(),
            sealed,
            access: RwLock::new(access),
            open: Arc::default(),
            sealing: watch::Sender::default(),
            changes: Mutex::new(()),
            clock: Mutex::new(Clock { wall: now(), at: Instant::now() }),
            turns: Turns::default(),
            places: Places::new(&config),
            refused: Refused::default(),
            config,
        }))
    }

    /// Tokens and policies, for a moment.
    pub fn access(&self) -> RwLockReadGuard<'_, Access> {
        unpoisoned(self.access.read())
    }

    /// Notes a request of this task, which is that of its connection. Gives whether the request before it came over the same connection.
    pub fn note_connection(&self) -> bool {
        let task = tokio::task::try_id();
        std::mem::replace(&mut *unpoisoned(self.latest.lock()), task) == task
    }

    /// The unsealed server.
    pub async fn opened(&self) -> Result<Opened, Error> {
        let guard = self.open.clone().read_owned().await;
        OwnedRwLockReadGuard::try_map(guard, Option::as_ref).map(Arc::new).map_err(|_| Error::sealed())
    }

    /// Whether the server is sealed, or is being sealed.
    pub fn is_sealed(&self) -> bool {
        self.open.try_read().map_or(true, |open| open.is_none())
    }

    /// Opens the master key with the secret, then all keys and the audit log.
    pub async fn unseal(self: &Arc<Server>, secret: Zeroizing<Vec<u8>>) -> Result<(), Error> {
        let mut open = self.open.clone().write_owned().await;
        if open.is_some() {
            return Ok(());
        }
        let server = self.clone();
        *open = tokio::task::spawn_blocking(move || {
            let master = server.sealed.open(&secret)?;
            let mut keys = BTreeMap::new();
            for (name, record) in server.storage.list(Kind::Key)? {
                let key = Key::open(&name, &record, &master, &*server.storage)?;
                keys.insert(name, Arc::new(key));
            }
            let (path, fsync) = (server.config.audit_log(), server.config.audit.fsync);
            let audit = Audit::open(&path, fsync, Keys::new(&master), server.storage.clone())?;
            Ok::<_, Error>(Some(Open { master, audit, keys: RwLock::new(keys) }))
        })
        .await??;
        Ok(())
    }

    /// The master key, for a command that works on a sealed server.
    pub fn master(&self, secret: &[u8]) -> Result<Master, Error> {
        self.sealed.open(secret)
    }

    /// Does `work` for a request, unless the server is sealed meanwhile. Then `work` is dropped, and with it the tickets of jobs that have not begun.
    pub async fn unless_sealed<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.is_being_sealed() => Err(Error::sealed()),
        }
    }

    /// Ends when somebody seals the server.
    async fn is_being_sealed(&self) {
        let mut sealing = self.sealing.subscribe();
        while !*sealing.borrow_and_update() && sealing.changed().await.is_ok() {}
    }

    /// Ends the requests that are being answered, and forgets all secrets. Jobs that have not begun are cancelled.
    pub async fn seal(&self) -> Result<(), Error> {
        self.sealing.send_replace(true);
        // Nobody unseals before the audit log is closed.
        let mut sealed = self.open.write().await;
        self.sealing.send_replace(false);
        let Some(open) = sealed.take() else { return Ok(()) };
        self.refused.write(&open, true);
        let reserves = Reserve::all(&self.config);
        for key in open.keys() {
            for version in key.versions() {
                let mut returned = version.counter.close(&self.storage).await;
                // A disk may be full.
                while returned.is_err() && reserves.iter().any(|reserve| reserve.release(true)) {
                    returned = version.counter.close(&self.storage).await;
                }
                if let Err(why) = returned {
                    let name = Quote::name(key.record.name(), [key.record.name()]);
                    tracing::error!(
                        "key {name}: numbers that it has leased and not used are lost, as by a crash: {why}"
                    );
                }
                // A job of a request that is over may still run, for as long as one signature takes. The private key is forgotten after it.
                while Arc::strong_count(&version.signing) > 1 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        // The audit log is brought to the disk.
        Ok(tokio::task::spawn_blocking(move || drop(open)).await?)
    }

    /// Runs a change on a thread of its own, alone. A client that goes away does not interrupt it.
    pub async fn change<T: Send + 'static>(
        self: &Arc<Server>,
        change: impl FnOnce(&Server) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let server = self.clone();
        tokio::task::spawn_blocking(move || {
            let _one: MutexGuard<'_, ()> = unpoisoned(server.changes.lock());
            change(&server)
        })
        .await?
    }

    /// Stores a policy. To be called in a change, as all that follow.
    pub fn put_policy(&self, name: &str, policy: Policy) -> Result<(), Error> {
        self.storage.commit(&[Change::Put(Kind::Policy, name.into(), policy.text.clone().into_bytes())])?;
        unpoisoned(self.access.write()).policies.insert(name.into(), policy);
        Ok(())
    }

    /// Deletes a policy.
    pub fn delete_policy(&self, name: &str) -> Result<(), Error> {
        self.storage.commit(&[Change::Delete(Kind::Policy, name.into())])?;
        unpoisoned(self.access.write()).policies.remove(name);
        Ok(())
    }

    /// The accessors of tokens whose time has long been over, if the clock shows `wall` at the time `at`.
    fn tokens_over(&self, wall: u64, at: Instant) -> Vec<String> {
        if !unpoisoned(self.clock.lock()).is_even(wall, at) {
            return Vec::new();
        }
        let is_over = |token: &&Arc<Token>| token.record.expires.is_some_and(|end| end.saturating_add(GRACE) <= wall);
        self.access().tokens.values().filter(is_over).map(|token| token.record.accessor.clone()).collect()
    }

    /// Stores a token, and deletes those whose time has long been over.
    pub fn put_token(&self, record: TokenRecord) -> Result<(), Error> {
        let over = self.tokens_over(now(), Instant::now());
        let mut changes: Vec<Change> = over.iter().map(|over| Change::Delete(Kind::Token, over.clone())).collect();
        changes.push(Change::Put(Kind::Token, record.accessor.clone(), stored(&record)?));
        self.storage.commit(&changes)?;
        let mut access = unpoisoned(self.access.write());
        over.iter().for_each(|over| drop(access.tokens.remove(over)));
        access.tokens.insert(record.accessor.clone(), Arc::new(Token::new(record)));
        Ok(())
    }

    /// Revokes a token and those that it made.
    pub fn revoke(&self, accessor: &str) -> Result<(), Error> {
        let mut revoked = vec![accessor.to_string()];
        {
            let access = self.access();
            let mut children = HashMap::<&str, Vec<&str>>::new();
            for token in access.tokens.values() {
                if let Some(parent) = &token.record.parent {
                    children.entry(parent).or_default().push(&token.record.accessor);
                }
            }
            let mut next = 0;
            while next < revoked.len() {
                let of = children.remove(&*revoked[next]).unwrap_or_default();
                revoked.extend(of.into_iter().map(String::from));
                next += 1;
            }
        }
        let deleted: Vec<Change> =
            revoked.iter().map(|accessor| Change::Delete(Kind::Token, accessor.clone())).collect();
        self.storage.commit(&deleted)?;
        let mut access = unpoisoned(self.access.write());
        revoked.iter().for_each(|accessor| drop(access.tokens.remove(accessor)));
        Ok(())
    }

    /// Makes a root token.
    pub fn new_root_token(&self) -> Result<Zeroizing<String>, Error> {
        let (record, text) = root_token()?;
        self.put_token(record)?;
        Ok(text)
    }

    /// Stores a key that is new, or whose settings or versions changed.
    pub fn put_key(&self, open: &Open, key: Key) -> Result<Arc<Key>, Error> {
        self.storage.commit(&[key.put()?])?;
        let key = Arc::new(key);
        unpoisoned(open.keys.write()).insert(key.record.name().into(), key.clone());
        Ok(key)
    }

    /// Deletes a key.
    pub fn delete_key(&self, open: &Open, key: &Key) -> Result<(), Error> {
        let counters = key.versions().iter().map(|version| &version.counter);
        Counter::delete(counters, || self.storage.commit(&key.delete()))?;
        unpoisoned(open.keys.write()).remove(key.record.name());
        Ok(())
    }
}

fn root_token() -> Result<(TokenRecord, Zeroizing<String>), Error> {
    make_token("root".into(), vec![ROOT.into()], None, None)
}

/// The policies of a new token: those that are asked for, or its parent's. Nobody grants what they do not have.
pub fn granted(wanted: Option<Vec<String>>, parent: &Token) -> Result<Vec<String>, Error> {
    let mut policies = wanted.unwrap_or_else(|| parent.record.policies.clone());
    policies.retain(|policy| policy != DEFAULT);
    if !parent.is_root()
        && let Some(beyond) = policies.iter().find(|policy| !parent.record.policies.contains(policy))
    {
        let beyond = Quote::name(beyond, parent.record.policies.iter().map(String::as_str));
        return Err(Error::bad(format!("a token may hand on its own policies alone, and {beyond} is none of them")));
    }
    policies.sort();
    policies.dedup();
    Ok(policies)
}

impl Open {
    /// A key.
    pub fn key(&self, name: &str) -> Option<Arc<Key>> {
        unpoisoned(self.keys.read()).get(name).cloned()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<Arc<Key>> {
        unpoisoned(self.keys.read()).values().cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests {
    use super::*;

    /// A new server with these settings, and its runtime.
    pub(crate) fn unsealed(config: Config) -> (tokio::runtime::Runtime, Arc<Server>, Opened) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Server::init(&config, b"secret").unwrap();
        let (server, open) = runtime.block_on(async {
            let server = Server::start(config).unwrap();
            server.unseal(b"secret".to_vec().into()).await.unwrap();
            let open = server.opened().await.unwrap();
            (server, open)
        });
        (runtime, server, open)
    }

    /// A new key of this server.
    pub(crate) fn make_key(server: &Server, open: &Open, name: &str, limit: Option<u64>) -> Arc<Key> {
        let set = crate::keys::set_of("slh-dsa-sha2-128f").unwrap();
        let signing = server.engine.generate(set).unwrap();
        let key = Key::new(name, set, limit).with_version(signing, false, &open.master).unwrap();
        server.put_key(open, key).unwrap()
    }

    #[test]
    fn a_clock_that_is_wrong_for_hours_deletes_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let (_runtime, server, _open) = unsealed(Config::of_folder(folder.path().into()));
        let make = |ttl| make_token("t".into(), vec![], ttl, None).unwrap().0;
        // As if the clock were two days, or a year, ahead now.
        let ended = [2, 365].map(|days: u64| {
            let mut token = make(None);
            token.expires = Some(now() - days * 24 * 3600);
            token
        });
        for token in ended.iter().cloned().chain([make(Some(60)), make(None)]) {
            server.put_token(token).unwrap();
        }
        let is_there = |token: &TokenRecord| server.access().tokens.contains_key(&token.accessor);
        assert!(ended.iter().all(is_there));
        let (wall, at, hour) = (now(), Instant::now(), Duration::from_secs(3600));
        let over = |hours: u64, ahead: u64| {
            server.tokens_over(wall + hours * 3600 + ahead * 3600, at + hour * hours as u32).len()
        };
        assert_eq!([over(1, 0), over(11, 0), over(12, 0)], [0, 0, 2]);
        // The clock is set, and set back: from then on it must run evenly again.
        assert_eq!([over(13, 90_000), over(24, 90_000), over(24, 0), over(35, 0), over(36, 0)], [0, 0, 0, 0, 3]);
    }

    #[test]
    fn who_holds_a_deleted_key_signs_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let (runtime, server, open) = unsealed(Config::of_folder(folder.path().into()));
        let key = make_key(&server, &open, "few", Some(4096));
        let counter = &key.version(None, 0).unwrap().1.counter;
        let take = |count| runtime.block_on(counter.take(&server.storage, count, key.limit()));
        // Of a block of four numbers, none is used yet. Without its counter, the key would begin at 0 again after them.
        assert_eq!(take(3).unwrap(), 3);
        server.delete_key(&open, &key).unwrap();
        for count in [5, 1] {
            let why = take(count).unwrap_err();
            assert!(why.what.contains("deleted"), "{why}");
        }
        assert_eq!(server.storage.leased("few/1").unwrap(), 0);
    }
}
