//! How many signatures a key has made. Numbers are leased from the database in blocks before they are used, so a crash loses the rest of a
//! block and never hands a number out twice.

use crate::error::Error;
use crate::storage::Storage;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The block of a key without a limit: one commit for this many signatures.
const BLOCK: u64 = 1 << 16;
/// A counter without a limit ends here, which SQLite's integers still hold.
const NO_LIMIT: u64 = 1 << 62;

/// The signatures of one version of a key.
pub struct Counter {
    id: String,
    lease: Arc<Mutex<Lease>>,
}

#[derive(Clone, Copy)]
struct Lease {
    /// Numbers that the database counts as leased.
    leased: u64,
    /// How many of these, the last ones, are left to use.
    left: u64,
    /// Whether the key was deleted. Its numbers would begin at 0 again.
    is_deleted: bool,
}

impl Lease {
    /// All of these numbers are used.
    fn of(leased: u64) -> Lease {
        Lease { leased, left: 0, is_deleted: false }
    }

    fn used(&self) -> u64 {
        self.leased - self.left
    }
}

/// The numbers of a lease at a time. A crash wastes at most a thousandth of a key's signatures.
fn block(limit: Option<u64>) -> u64 {
    limit.map_or(BLOCK, |limit| (limit / 1024).clamp(1, 1024))
}

impl Counter {
    /// The counter of a version of a key.
    pub fn open(storage: &dyn Storage, id: String) -> Result<Counter, Error> {
        let leased = storage.leased(&id)?;
        Ok(Counter { id, lease: Arc::new(Mutex::new(Lease::of(leased))) })
    }

    /// A counter that begins at 0.
    pub fn new(id: String) -> Counter {
        Counter { id, lease: Arc::new(Mutex::new(Lease::of(0))) }
    }

    /// Takes `count` numbers. Returns how many are used then. If fewer are left, it takes none.
    pub async fn take(&self, storage: &Arc<dyn Storage>, count: u64, limit: Option<u64>) -> Result<u64, Error> {
        let most = limit.unwrap_or(NO_LIMIT);
        let mut lease = self.lease.clone().lock_owned().await;
        if lease.is_deleted {
            return Err(Error::bad("the key was deleted meanwhile"));
        }
        let spent = move |used: u64| {
            let left = most.saturating_sub(used);
            let what = format!(
                "this version of the key may make at most {most} signatures; {left} are left, and the request needs {count}; rotate the key"
            );
            Error::new(412, what)
        };
        if lease.used().saturating_add(count) > most {
            return Err(spent(lease.used()));
        }
        if lease.left >= count {
            lease.left -= count;
            return Ok(lease.used());
        }
        let (storage, id) = (storage.clone(), self.id.clone());
        // The thread keeps the guard: if the client goes away now, what was leased is still counted.
        tokio::task::spawn_blocking(move || {
            let got = storage.lease(&id, count - lease.left + block(limit), most)?;
            lease.leased = got.end;
            lease.left += got.end - got.start;
            if lease.left < count {
                return Err(spent(lease.used()));
            }
            lease.left -= count;
            Ok(lease.used())
        })
        .await?
    }

    /// Returns numbers that were taken for signatures of which none leaves the server.
    pub async fn put_back(&self, count: u64) {
        self.lease.lock().await.left += count;
    }

    /// Calls `delete`, which deletes these counters with their key. Requests that hold the key take no number afterwards. Not for a task.
    pub fn delete<'c>(
        counters: impl Iterator<Item = &'c Counter>,
        delete: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut leases: Vec<_> = counters.map(|counter| counter.lease.blocking_lock()).collect();
        delete()?;
        leases.iter_mut().for_each(|lease| lease.is_deleted = true);
        Ok(())
    }

    /// How many numbers are used.
    pub async fn used(&self) -> u64 {
        self.lease.lock().await.used()
    }

    /// Returns the rest of the lease to the database. Nothing takes a number afterwards without a new lease.
    pub async fn close(&self, storage: &Arc<dyn Storage>) -> Result<(), Error> {
        let mut lease = self.lease.clone().lock_owned().await;
        let (storage, id) = (storage.clone(), self.id.clone());
        tokio::task::spawn_blocking(move || {
            if lease.left > 0 {
                storage.give_back(&id, lease.used()..lease.leased)?;
            }
            *lease = Lease::of(storage.leased(&id)?);
            Ok(())
        })
        .await?
    }
}

/// The sentence for a key that has used much of its limit.
pub fn warning(name: &str, used: u64, limit: u64) -> Option<String> {
    let percent = (u128::from(used) * 100 / u128::from(limit.max(1))) as u64;
    let urgent = match percent {
        0..50 => return None,
        50..90 => "",
        _ => "urgent: ",
    };
    Some(format!("{urgent}key {name} has used {percent} % of its {limit} signatures; rotate it before none are left"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::storage::Sqlite;

    #[tokio::test]
    async fn no_number_comes_twice_and_none_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Sqlite::open(&folder.path().join("db")).unwrap());
        let open = || Counter::open(&*storage, "key/1".into()).unwrap();
        let limit = Some(4096); // blocks of 4
        let counter = open();
        assert_eq!(counter.take(&storage, 3, limit).await.unwrap(), 3);
        assert_eq!(storage.leased("key/1").unwrap(), 7);
        assert_eq!(counter.take(&storage, 4, limit).await.unwrap(), 7);
        assert_eq!(counter.take(&storage, 1, limit).await.unwrap(), 8);
        // As after a kill: what was leased is lost.
        let counter = open();
        assert_eq!(counter.used().await, 12);
        assert_eq!(counter.take(&storage, 1, limit).await.unwrap(), 13);
        // As after an orderly end: nothing is lost.
        counter.close(&storage).await.unwrap();
        assert_eq!(open().used().await, 13);
        let counter = open();
        let refused = counter.take(&storage, 5000, limit).await.unwrap_err();
        assert_eq!((refused.status, counter.used().await), (412, 13));
        assert_eq!(counter.take(&storage, 4083, limit).await.unwrap(), 4096);
        assert_eq!(counter.take(&storage, 1, limit).await.unwrap_err().status, 412);
        // A limit that was lowered holds at once.
        let other = Counter::open(&*storage, "other/1".into()).unwrap();
        assert_eq!(other.take(&storage, 10, None).await.unwrap(), 10);
        assert_eq!(other.take(&storage, 1, Some(10)).await.unwrap_err().status, 412);
    }

    #[test]
    fn warnings_come_at_50_and_90_percent() {
        assert!(warning("k", 49, 100).is_none());
        assert!(warning("k", 50, 100).unwrap().starts_with("key k has used 50 %"));
        assert!(warning("k", 89, 100).unwrap().starts_with("key"));
        assert!(warning("k", 90, 100).unwrap().starts_with("urgent"));
    }
}
