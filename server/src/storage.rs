//! The database. The trait [`Storage`] is all that the rest of the server knows of it; [`Sqlite`] keeps it in one file.

use crate::error::Error;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
}

fn failed(why: rusqlite::Error) -> Error {
    Error::internal(format!("the database failed: {why}; nothing was changed"))
}

impl Sqlite {
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
            Error::internal(format!(
                "{}: {why}; is it a database of this server, and may it be written?",
                path.display()
            ))
        })?;
        Ok(Sqlite { connection: Mutex::new(connection) })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // SQLite rolls an interrupted transaction back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut connection = self.connection();
        let commit = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
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
            transaction.commit()
        };
        commit(&mut connection).map_err(failed)
    }

    fn leased(&self, counter: &str) -> Result<u64, Error> {
        leased(&self.connection(), counter).map_err(failed)
    }

    fn lease(&self, counter: &str, want: u64, limit: u64) -> Result<Range<u64>, Error> {
        let mut connection = self.connection();
        let lease = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let from = leased(&transaction, counter)?;
            let to = from.saturating_add(want).min(limit).max(from);
            set_leased(&transaction, counter, to)?;
            transaction.commit()?;
            Ok(from..to)
        };
        lease(&mut connection).map_err(failed)
    }

    fn give_back(&self, counter: &str, unused: Range<u64>) -> Result<(), Error> {
        let mut connection = self.connection();
        let give_back = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if leased(&transaction, counter)? == unused.end {
                set_leased(&transaction, counter, unused.start)?;
            }
            transaction.commit()
        };
        give_back(&mut connection).map_err(failed)
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
}
