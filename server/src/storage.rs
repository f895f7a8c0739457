//! The database. The trait [`Storage`] is all that the rest of the server knows of it; [`Sqlite`] keeps it in one file.

use crate::error::Error;
use crate::files::{check_owner, folder_of, make_folder, with_suffix};
use crate::threads::unpoisoned;
use hypergrove::quote;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Options for a file that, if it is made, only its owner reads.
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// The kinds of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The sealed master key, and the head of the audit log.
    Meta,
    /// Keys of transit, with their sealed private keys.
    Key,
    /// Policies.
    Policy,
    /// Tokens, by their accessors.
    Token,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Meta => "meta",
            Kind::Key => "key",
            Kind::Policy => "policy",
            Kind::Token => "token",
        }
    }
}

/// One change of a commit.
#[derive(Clone, Debug)]
pub enum Change {
    /// Writes a record.
    Put(Kind, String, Vec<u8>),
    /// Removes a record, if it is there.
    Delete(Kind, String),
    /// Removes the counters whose name begins with this.
    DeleteCounters(String),
}

/// A database. A call returns when the change is on the disk.
pub trait Storage: Send + Sync {
    /// A record.
    fn get(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, Error>;

    /// All records of a kind.
    fn list(&self, kind: Kind) -> Result<Vec<(String, Vec<u8>)>, Error>;

    /// Makes all of the changes, or none of them.
    fn commit(&self, changes: &[Change]) -> Result<(), Error>;

    /// How many numbers of a counter were leased.
    fn leased(&self, counter: &str) -> Result<u64, Error>;

    /// Leases the next numbers of a counter: at most `want` of them, and none from `limit` on. Nobody else ever gets these numbers.
    fn lease(&self, counter: &str, want: u64, limit: u64) -> Result<Range<u64>, Error>;

    /// Returns the numbers from `from` to `end`, which were not used. Does nothing if a number after them was leased meanwhile.
    fn give_back(&self, counter: &str, unused: Range<u64>) -> Result<(), Error>;
}

/// An SQLite database.
pub struct Sqlite {
    connection: Mutex<Connection>,
    /// The files and locks of a process that alone may write. The locks of SQLite would end if the database were closed before the connection.
    alone: Option<Alone>,
}

/// The path of the database, which files are there, and the locks: of the database, its folder, and the file that servers of version 0.9.0 lock.
struct Alone {
    path: PathBuf,
    files: [Option<Inode>; 3],
    _locks: [File; 3],
}

/// A device and the number of a file there.
type Inode = (u64, u64);

fn inode(it: &Metadata) -> Inode {
    (it.dev(), it.ino())
}

/// The files of a database: itself, the log of its changes, and that log's index.
fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix))
}

/// Which files are in the places of a database's.
fn found(path: &Path) -> [Option<Inode>; 3] {
    files(path).map(|part| part.metadata().ok().map(|it| inode(&it)))
}

/// The lock of a file or a folder. It is one of `flock`, by which no reader is kept out: SQLite has locks of another kind.
fn lock(file: File, path: &Path) -> Result<File, Error> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::at(path, "a server uses this database; stop it first")),
        Err(TryLockError::Error(why)) => Err(Error::at(path, why)),
    }
}

/// Locks a database, which is made if it is not there. It is the first of these files.
fn take_locks(path: &Path) -> Result<[File; 3], Error> {
    let folder = folder_of(path);
    make_folder(folder)?;
    let open = |path: &Path, options: &mut OpenOptions| options.open(path).map_err(|why| Error::at(path, why));
    let private = |path: &Path| open(path, private_file().append(true).create(true));
    let older = path.with_file_name("server.lock");
    let folder = lock(open(folder, OpenOptions::new().read(true))?, folder)?;
    let older = lock(private(&older)?, &older)?;
    let mut database = private(path)?;
    for part in files(path) {
        part.metadata().map_or(Ok(()), |it| check_owner(&part, &it))?;
    }
    // Elsewhere SQLite's locks and this one may exclude each other.
    if cfg!(target_os = "linux") {
        database = lock(database, path)?;
    }
    Ok([database, folder, older])
}

fn failed(why: rusqlite::Error) -> Error {
    Error::internal(format!("the database failed: {why}; nothing was changed"))
}

impl Sqlite {
    /// Opens the database for a process that alone may write, and makes it if it is not there. Others may read meanwhile.
    pub fn open_alone(path: &Path) -> Result<Sqlite, Error> {
        let locks = take_locks(path)?;
        let it = Sqlite::open(path)?;
        let [_, log, index] = found(path);
        let files = [locks[0].metadata().ok().map(|it| inode(&it)), log, index];
        Ok(Sqlite { alone: Some(Alone { path: path.into(), files, _locks: locks }), ..it })
    }

    /// Opens the database, and makes it if it is not there.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        // SQLite gives its other files the mode of this one, and says itself why a file cannot be opened.
        drop(private_file().append(true).create(true).open(path));
        let open = || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // Each commit waits for the disk.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.execute_batch(
                "CREATE TABLE IF NOT EXISTS records (kind TEXT, id TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID, STRICT;
                 CREATE TABLE IF NOT EXISTS counters (id TEXT PRIMARY KEY, leased INTEGER NOT NULL) WITHOUT ROWID, STRICT;",
            )?;
            Ok(connection)
        };
        let connection = open().map_err(|why: rusqlite::Error| {
            // SQLite's own sentence repeats the path.
            let why = why.sqlite_error().map_or_else(|| quote::message(&why.to_string()), ToString::to_string);
            Error::at(path, format_args!("{why}; is it a database of this server, and may it be written?"))
        })?;
        Ok(Sqlite { connection: Mutex::new(connection), alone: None })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // SQLite rolls an interrupted transaction back.
        unpoisoned(self.connection.lock())
    }

    /// The connection, for a change. A change in a file that was removed would be lost with it, and numbers would come twice. Until SQLite has moved
    /// it into the database, a change is in the log of changes alone.
    fn writer(&self) -> Result<MutexGuard<'_, Connection>, Error> {
        if let Some(Alone { path, files, .. }) = &self.alone
            && found(path) != *files
        {
            let what = "the database, or its -wal or -shm, was removed or replaced while the server runs; stop the server, and put the file back";
            return Err(Error::at(path, what));
        }
        Ok(self.connection())
    }

    /// Makes all of a change, or nothing of it.
    fn change<T>(&self, change: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>) -> Result<T, Error> {
        let mut connection = self.writer()?;
        let change = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = change(&transaction)?;
            transaction.commit().map(|()| result)
        };
        change().map_err(failed)
    }
}

fn leased(connection: &Connection, counter: &str) -> Result<u64, rusqlite::Error> {
    let value: Option<i64> = connection
        .prepare_cached("SELECT leased FROM counters WHERE id = ?1")?
        .query_row([counter], |row| row.get(0))
        .optional()?;
    Ok(value.unwrap_or(0).unsigned_abs())
}

fn set_leased(connection: &Connection, counter: &str, leased: u64) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO counters VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET leased = ?2";
    connection.prepare_cached(sql)?.execute(params![counter, leased as i64]).map(drop)
}

impl Storage for Sqlite {
    fn get(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, Error> {
        let connection = self.connection();
        let mut get =
            connection.prepare_cached("SELECT value FROM records WHERE kind = ?1 AND id = ?2").map_err(failed)?;
        get.query_row([kind.name(), id], |row| row.get(0)).optional().map_err(failed)
    }

    fn list(&self, kind: Kind) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let connection = self.connection();
        let mut list =
            connection.prepare("SELECT id, value FROM records WHERE kind = ?1 ORDER BY id").map_err(failed)?;
        let rows = list.query_map([kind.name()], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Error> {
        self.change(|transaction| {
            for change in changes {
                match change {
                    Change::Put(kind, id, value) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)")?
                        .execute(params![kind.name(), id, value])?,
                    Change::Delete(kind, id) => transaction
                        .prepare_cached("DELETE FROM records WHERE kind = ?1 AND id = ?2")?
                        .execute([kind.name(), id])?,
                    Change::DeleteCounters(prefix) => transaction
                        .prepare_cached("DELETE FROM counters WHERE substr(id, 1, length(?1)) = ?1")?
                        .execute([prefix])?,
                };
            }
            Ok(())
        })
    }

    fn leased(&self, counter: &str) -> Result<u64, Error> {
        leased(&self.connection(), counter).map_err(failed)
    }

    fn lease(&self, counter: &str, want: u64, limit: u64) -> Result<Range<u64>, Error> {
        self.change(|transaction| {
            let from = leased(transaction, counter)?;
            let to = from.saturating_add(want).min(limit).max(from);
            set_leased(transaction, counter, to).map(|()| from..to)
        })
    }

    fn give_back(&self, counter: &str, unused: Range<u64>) -> Result<(), Error> {
        self.change(|transaction| match leased(transaction, counter)? == unused.end {
            true => set_leased(transaction, counter, unused.start),
            false => Ok(()),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn records_and_leases_are_there_after_the_database_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.db");
        let storage = Sqlite::open(&path).unwrap();
        let put = |id: &str| Change::Put(Kind::Key, id.into(), id.as_bytes().to_vec());
        storage.commit(&[put("a"), put("b"), put("c"), Change::Delete(Kind::Key, "b".into())]).unwrap();
        assert_eq!(storage.lease("a/1", 10, 15).unwrap(), 0..10);
        drop(storage);
        let storage = Sqlite::open(&path).unwrap();
        let all = storage.list(Kind::Key).unwrap();
        assert_eq!(all, [("a".into(), b"a".to_vec()), ("c".into(), b"c".to_vec())]);
        assert_eq!(storage.get(Kind::Policy, "a").unwrap(), None);
        assert_eq!(storage.lease("a/1", 10, 15).unwrap(), 10..15);
        assert_eq!(storage.lease("a/1", 10, 15).unwrap(), 15..15);
        // A limit below what was leased changes nothing.
        assert_eq!(storage.lease("a/1", 10, 3).unwrap(), 15..15);
        assert_eq!(storage.leased("a/1").unwrap(), 15);
        storage.give_back("a/1", 5..10).unwrap();
        assert_eq!(storage.leased("a/1").unwrap(), 15);
        storage.give_back("a/1", 12..15).unwrap();
        assert_eq!(storage.leased("a/1").unwrap(), 12);
        assert_eq!(storage.lease("ab/1", 1, 9).unwrap(), 0..1);
        storage.commit(&[Change::DeleteCounters("a/".into())]).unwrap();
        assert_eq!((storage.leased("a/1").unwrap(), storage.leased("ab/1").unwrap()), (0, 1));
    }

    /// The names of SQLite's other files are found whatever bytes the folder's name has.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_may_have_any_name() {
        let outer = tempfile::tempdir().unwrap();
        let folder: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"da\xffta");
        let path = outer.path().join(folder).join("server.db");
        let storage = Sqlite::open_alone(&path).unwrap();
        storage.lease("a/1", 1, 2).unwrap();
        std::fs::remove_file(with_suffix(&path, "-wal")).unwrap();
        assert!(storage.lease("a/1", 1, 2).is_err());
    }
}
