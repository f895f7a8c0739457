//! The audit log: one line of JSON for each request. Each line has the SHA-256 of the line before it, and an HMAC of its own. The head, which
//! is the number and place of the last line, is stored in the database under an HMAC, so that a cut tail is found too.

use crate::error::Error;
use crate::refused::Summary;
use crate::reserve::Reserve;
use crate::seal::{Master, Secret, hmac};
use crate::storage::{Change, Kind, Storage, private_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The head's record in the database.
const HEAD: &str = "audit_head";

/// When lines are on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Each line by itself, before its request is answered.
    Request,
    /// Before their requests are answered, the lines of all requests that wait at the same time together.
    #[default]
    Batch,
    /// Within a second.
    Second,
}

/// A request, for the log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// Whether this is the line before a change. A second line has its result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The request, as the answer names it.
    pub request: String,
    /// The accessor of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accessor: Option<String>,
    /// The name of the operation.
    pub operation: &'static str,
    /// The path.
    pub path: String,
    /// The key's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The key's parameter set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<&'static str>,
    /// HMACs of the SHA-256 of each message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Items of the request that got an error.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_items: usize,
    /// The status of the answer.
    pub status: u16,
    /// The error of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of requests without a valid token: those for which this line stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Summary>,
    /// Whether the line must not be missing: it may use the last of the reserve.
    #[serde(skip)]
    pub is_vital: bool,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
    prev: &'a str,
}

/// The parts of a line that a reader needs.
#[derive(Deserialize)]
struct ReadLine {
    seq: u64,
    prev: String,
    mac: String,
}

/// The end of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// Lines of the log.
    pub seq: u64,
    /// Where the last line begins.
    start: u64,
    /// Where the log ends.
    end: u64,
    /// SHA-256 of the last line.
    hash: String,
    /// The lines of earlier files, and the hash of the last of them.
    earlier: (u64, String),
}

#[derive(Serialize, Deserialize)]
struct StoredHead {
    head: Head,
    mac: String,
}

/// The keys of the log, made from the master key.
pub struct Keys {
    lines: Secret,
    head: Secret,
    messages: Secret,
}

impl Keys {
    /// The keys that this master key gives.
    pub fn new(master: &Master) -> Keys {
        let [lines, head, messages] =
            ["audit lines", "audit head", "audit messages"].map(|purpose| master.subkey(purpose));
        Keys { lines, head, messages }
    }

    fn head_mac(&self, head: &Head) -> String {
        let (lines, hash) = &head.earlier;
        let text = format!("{} {} {} {} {lines} {hash}", head.seq, head.start, head.end, head.hash);
        hex::encode(hmac(&self.head, &[text.as_bytes()]))
    }

    /// The head in the database, and whether its HMAC is right. Without one, the log must be empty.
    pub fn read_head(&self, storage: &dyn Storage) -> Result<Head, Error> {
        let wrong = || Error::internal("the audit log's head in the database was changed or removed by somebody else");
        storage.get(Kind::Meta, HEAD)?.and_then(|stored| self.open_head(&stored)).ok_or_else(wrong)
    }

    fn open_head(&self, stored: &[u8]) -> Option<Head> {
        let stored: StoredHead = serde_json::from_slice(stored).ok()?;
        (self.head_mac(&stored.head) == stored.mac).then_some(stored.head)
    }

    fn put_head(&self, head: &Head) -> Result<Change, Error> {
        let stored = StoredHead { head: head.clone(), mac: self.head_mac(head) };
        let json = serde_json::to_vec(&stored).map_err(|why| Error::internal(why.to_string()))?;
        Ok(Change::Put(Kind::Meta, HEAD.into(), json))
    }

    /// The head of a log that has no line yet, for a new database.
    pub fn first_head(&self) -> Result<Change, Error> {
        self.put_head(&Head::default())
    }

    fn write_head(&self, storage: &dyn Storage, head: &Head) -> Result<(), Error> {
        storage.commit(&[self.put_head(head)?])
    }

    /// Checks a line, which has no line break, against the head of the lines before it. Returns the head after it.
    fn check(&self, before: &Head, line: &[u8]) -> Result<Head, String> {
        let read: ReadLine = serde_json::from_slice(line).map_err(|why| format!("is not a line of this log: {why}"))?;
        if read.seq != before.seq + 1 {
            return Err(format!(
                "has the number {} where {} must follow: lines were removed or added",
                read.seq,
                before.seq + 1
            ));
        }
        if read.prev != before.hash {
            return Err("does not follow the line before it: that line was edited, or lines were removed".into());
        }
        let suffix = format!(",\"mac\":\"{}\"}}", read.mac);
        let body = line.strip_suffix(suffix.as_bytes()).ok_or("has its parts in another order: it was edited")?;
        if hex::encode(hmac(&self.lines, &[body])) != read.mac {
            return Err("was edited: its HMAC is wrong".into());
        }
        Ok(before.after(line))
    }
}

impl Head {
    fn after(&self, line: &[u8]) -> Head {
        let end = self.end + line.len() as u64 + 1;
        Head {
            seq: self.seq + 1,
            start: self.end,
            end,
            hash: hex::encode(Sha256::digest(line)),
            earlier: self.earlier.clone(),
        }
    }

    /// The head of an empty file that goes on after these lines.
    fn next_file((seq, hash): (u64, String)) -> Head {
        Head { seq, start: 0, end: 0, hash: hash.clone(), earlier: (seq, hash) }
    }
}

/// The file and the head of what was written.
struct Log {
    file: File,
    head: Head,
    /// The head that the database has.
    synced: u64,
    /// The number of the last line that must not be missing.
    vital: u64,
    /// Whether the log's thread knows that there is something to bring to the disk.
    is_notified: bool,
    /// Why the last write failed.
    failed: Option<String>,
}

struct Shared {
    log: Mutex<Log>,
    path: PathBuf,
    reserve: Reserve,
    keys: Keys,
    storage: Arc<dyn Storage>,
}

/// Somebody who waits for a line to be on the disk; in the mode of seconds nobody does.
type Waiter = Option<oneshot::Sender<Result<(), Error>>>;

/// The open log.
pub struct Audit {
    shared: Arc<Shared>,
    fsync: Fsync,
    waiters: Sender<Waiter>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// One attempt at a time to write again after a failure.
    retrying: Mutex<()>,
}

impl Audit {
    /// Opens the log, and checks that it ends as the head in the database says. Lines after this head are those of a crash: they are kept if
    /// they are whole and ours. A line that a crash cut is removed.
    pub fn open(path: &Path, fsync: Fsync, keys: Keys, storage: Arc<dyn Storage>) -> Result<Audit, Error> {
        let failed = |why: io::Error| Error::internal(format!("audit log {}: {why}", path.display()));
        let head = keys.read_head(&*storage)?;
        let mut file = private_file().read(true).append(true).create(head.end == 0).open(path).map_err(failed)?;
        let head = recovered(&mut file, &keys, head)
            .map_err(|why| Error::internal(format!("audit log {}: {why}; see `audit verify`", path.display())))?;
        keys.write_head(&*storage, &head)?;
        let synced = head.seq;
        let log = Mutex::new(Log { file, head, synced, vital: 0, is_notified: false, failed: None });
        let shared = Arc::new(Shared { log, path: path.into(), reserve: Reserve::of(path), keys, storage });
        let (waiters, receiver) = channel();
        let thread = std::thread::Builder::new().name("audit".into()).spawn({
            let shared = shared.clone();
            move || shared.sync_all(fsync, &receiver)
        });
        Ok(Audit { shared, fsync, waiters, thread: Some(thread.map_err(failed)?), retrying: Mutex::new(()) })
    }

    /// The HMAC that the log has for a message.
    pub fn message(&self, message: &[u8]) -> String {
        hex::encode(hmac(&self.shared.keys.messages, &[&Sha256::digest(message)]))
    }

    /// Fails if the log cannot be written. After a failure, this tries again.
    pub fn ready(&self) -> Result<(), Error> {
        if self.shared.lock().failed.is_none() {
            return Ok(());
        }
        // Others are refused meanwhile: the disk may take long.
        let Ok(_alone) = self.retrying.try_lock() else { return Err(unwritable()) };
        tokio::task::block_in_place(|| {
            let entry = Entry { operation: "audit log works again", ..Entry::default() };
            self.shared.append(&mut self.shared.lock(), &entry)?;
            self.shared.sync()
        })
    }

    /// Writes the line of a request that nobody waits for any more. If that fails, the server's own log says so.
    pub fn note(&self, entry: &Entry) {
        let mut log = self.shared.lock();
        if self.shared.append(&mut log, entry).is_ok() && !std::mem::replace(&mut log.is_notified, true) {
            drop(log);
            drop(self.waiters.send(None));
        }
    }

    /// Writes the line of a request. Returns when it is as safe as the policy says.
    pub async fn append(&self, entry: &Entry) -> Result<(), Error> {
        let was_notified = {
            let mut log = self.shared.lock();
            self.shared.append(&mut log, entry)?;
            std::mem::replace(&mut log.is_notified, true)
        };
        let ended = || Error::new(503, "the audit log was closed");
        if self.fsync == Fsync::Second {
            return match was_notified {
                true => Ok(()),
                false => self.waiters.send(None).map_err(|_| ended()),
            };
        }
        let (waiter, done) = oneshot::channel();
        self.waiters.send(Some(waiter)).map_err(|_| ended())?;
        done.await.map_err(|_| ended())?
    }
}

/// Brings all lines to the disk, and ends the log's thread.
impl Drop for Audit {
    fn drop(&mut self) {
        drop(std::mem::replace(&mut self.waiters, channel().0));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        // An error was logged.
        drop(self.shared.sync());
    }
}

fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn unwritable() -> Error {
    Error::new(503, "the audit log cannot be written, so nothing is signed or changed; ask the server's operator")
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a client. The log's own messages have the reason.
    fn fail(&self, log: &mut Log, why: &dyn std::fmt::Display) -> Error {
        if log.failed.is_none() {
            tracing::error!("audit log {}: {why}; nothing is signed until it can be written", self.path.display());
        }
        log.failed = Some(why.to_string());
        unwritable()
    }

    fn append(&self, log: &mut Log, entry: &Entry) -> Result<(), Error> {
        let time = jiff::Timestamp::now().to_string();
        let line = Line { seq: log.head.seq + 1, time: &time, entry, prev: &log.head.hash };
        let mut line = serde_json::to_vec(&line).map_err(|why| Error::internal(why.to_string()))?;
        line.pop();
        let mac = hex::encode(hmac(&self.keys.lines, &[&line]));
        line.extend_from_slice(format!(",\"mac\":\"{mac}\"}}\n").as_bytes());
        // A part of a line that failed may be there.
        let cut = if log.failed.is_some() { log.file.set_len(log.head.end) } else { Ok(()) };
        let mut written = cut.and_then(|()| log.file.write_all(&line));
        while written.as_ref().is_err_and(is_full) && self.reserve.release_for(entry) {
            written = log.file.set_len(log.head.end).and_then(|()| log.file.write_all(&line));
        }
        if let Err(why) = written {
            return Err(self.fail(log, &why));
        }
        log.head = log.head.after(&line[..line.len() - 1]);
        log.failed = None;
        if entry.is_vital {
            log.vital = log.head.seq;
        }
        Ok(())
    }

    /// Brings what was written to the disk, then the head to the database.
    fn sync(&self) -> Result<(), Error> {
        let (file, head, is_vital) = {
            let mut log = self.lock();
            log.is_notified = false;
            if log.synced == log.head.seq {
                return Ok(());
            }
            (log.file.try_clone(), log.head.clone(), log.vital > log.synced)
        };
        // Without the lock, so that others go on writing.
        let bring = || {
            let synced = file.as_ref().map(|file| file.sync_data()).map_err(|why| why.to_string())?;
            synced.map_err(|why| why.to_string())?;
            self.keys.write_head(&*self.storage, &head).map_err(|why| why.to_string())
        };
        let mut synced = bring();
        // The database may be on the same disk.
        while synced.is_err() && self.reserve.release(is_vital) {
            synced = bring();
        }
        let mut log = self.lock();
        match synced {
            Ok(()) => log.synced = log.synced.max(head.seq),
            Err(why) => return Err(self.fail(&mut log, &why)),
        }
        Ok(())
    }

    /// The log's thread. It sleeps while nothing was written.
    fn sync_all(&self, fsync: Fsync, waiters: &Receiver<Waiter>) {
        while let Ok(first) = waiters.recv() {
            let mut waiting = vec![first];
            match fsync {
                Fsync::Request => {}
                Fsync::Batch => waiting.extend(waiters.try_iter()),
                Fsync::Second => {
                    let until = Instant::now() + Duration::from_secs(1);
                    let left = || until.saturating_duration_since(Instant::now());
                    while !matches!(
                        waiters.recv_timeout(left()),
                        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)
                    ) {}
                }
            }
            let result = self.sync();
            for waiter in waiting.into_iter().flatten() {
                drop(waiter.send(result.clone()));
            }
        }
    }
}

/// Checks the last line of the head, and reads on from there.
fn recovered(file: &mut File, keys: &Keys, mut head: Head) -> Result<Head, String> {
    let io = |why: io::Error| why.to_string();
    let length = file.metadata().map_err(io)?.len();
    if length < head.end {
        return Err(format!("it has {length} bytes, and had {}: its tail was cut", head.end));
    }
    if head.end > 0 {
        file.seek(SeekFrom::Start(head.start)).map_err(io)?;
        let mut line = vec![0; (head.end - head.start) as usize];
        file.read_exact(&mut line).map_err(io)?;
        if line.pop() != Some(b'\n') || hex::encode(Sha256::digest(&line)) != head.hash {
            return Err(format!("line {} was edited", head.seq));
        }
    }
    file.seek(SeekFrom::Start(head.end)).map_err(io)?;
    let mut reader = BufReader::new(&mut *file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(io)? > 0 {
        if line.pop() != Some(b'\n') {
            break;
        }
        head = keys.check(&head, &line).map_err(|why| format!("line {} {why}", head.seq + 1))?;
        line.clear();
    }
    if length > head.end {
        tracing::warn!("audit log: the last line was cut by a crash, and is removed");
        file.set_len(head.end).map_err(io)?;
    }
    file.sync_all().map_err(io)?;
    Ok(head)
}

/// Ends the log's file, and begins another one that goes on with its chain. The log must not be open. Returns where the old file is now.
pub fn rotate(path: &Path, keys: &Keys, storage: &dyn Storage) -> Result<PathBuf, Error> {
    let head = keys.read_head(storage)?;
    let old = PathBuf::from(format!("{}.{:012}", path.display(), head.seq));
    let failed = |why: io::Error| Error::internal(format!("audit log {}: {why}", path.display()));
    if head.end == 0 || old.exists() {
        return Err(Error::bad(format!("audit log {}: it is empty, or {} is there", path.display(), old.display())));
    }
    std::fs::rename(path, &old).map_err(failed)?;
    let next = Head::next_file((head.seq, head.hash));
    if let Err(why) = keys.write_head(storage, &next) {
        std::fs::rename(&old, path).map_err(failed)?;
        return Err(why);
    }
    Ok(old)
}

/// A log whose lines were checked.
#[derive(Debug)]
pub struct Verified {
    /// Its lines.
    pub lines: u64,
    /// Those that came after the head.
    pub after: u64,
    /// The number of the last line. An operator compares it and its hash with a copy on another machine: nothing on this one shows that somebody put
    /// an older database and an older log back.
    pub last: u64,
    /// SHA-256 of the last line.
    pub hash: String,
}

/// Checks all lines of a log. Returns how many it has, and how many of these came after the head. Of an earlier file, without a head, the first
/// line alone says which lines came before it.
pub fn verify(path: &Path, keys: &Keys, stored: Option<&Head>) -> Result<Verified, Error> {
    let failed = |why: String| Error::internal(format!("{}: {why}", path.display()));
    let is_empty = stored.is_some_and(|stored| stored.end == 0);
    let file: Box<dyn Read> = match File::open(path) {
        // After `rotate`, the server makes the file at its start.
        Err(why) if why.kind() == io::ErrorKind::NotFound && is_empty => Box::new(io::empty()),
        file => Box::new(file.map_err(|why| failed(why.to_string()))?),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut head = Head::next_file(stored.map(|stored| stored.earlier.clone()).unwrap_or_default());
    let mut is_known = stored.is_some();
    while reader.read_until(b'\n', &mut line).map_err(|why| failed(why.to_string()))? > 0 {
        if line.pop() != Some(b'\n') {
            return Err(failed(format!("line {} has no end: it is being written, or was cut", head.seq + 1)));
        }
        if !std::mem::replace(&mut is_known, true)
            && let Ok(first) = serde_json::from_slice::<ReadLine>(&line)
        {
            head = Head::next_file((first.seq.saturating_sub(1), first.prev));
        }
        head = keys.check(&head, &line).map_err(|why| failed(format!("line {} {why}", head.seq + 1)))?;
        if stored.is_some_and(|stored| head.seq == stored.seq && head != *stored) {
            return Err(failed(format!("line {} is not the one of which the database has the hash", head.seq)));
        }
        line.clear();
    }
    match head.seq.checked_sub(stored.map_or(0, |stored| stored.seq)) {
        None => Err(failed(format!(
            "it ends with line {}, and had {}: its tail was cut",
            head.seq,
            stored.map_or(0, |it| it.seq)
        ))),
        Some(after) => Ok(Verified {
            lines: head.seq - head.earlier.0,
            after: if stored.is_some() { after } else { 0 },
            last: head.seq,
            hash: head.hash,
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::storage::Sqlite;

    fn counted(verified: Result<Verified, Error>) -> Result<(u64, u64), Error> {
        verified.map(|verified| (verified.lines, verified.after))
    }

    struct Fixture {
        _folder: tempfile::TempDir,
        path: PathBuf,
        master: Master,
        storage: Arc<dyn Storage>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let storage: Arc<dyn Storage> = Arc::new(Sqlite::open(&folder.path().join("db")).unwrap());
            let path = folder.path().join("audit.log");
            let master = Master::random().unwrap();
            storage.commit(&[Keys::new(&master).first_head().unwrap()]).unwrap();
            Fixture { _folder: folder, path, master, storage }
        }

        fn open(&self, fsync: Fsync) -> Result<Audit, Error> {
            Audit::open(&self.path, fsync, Keys::new(&self.master), self.storage.clone())
        }

        fn verify(&self) -> Result<(u64, u64), Error> {
            let keys = Keys::new(&self.master);
            counted(verify(&self.path, &keys, Some(&keys.read_head(&*self.storage)?)))
        }

        async fn write(&self, fsync: Fsync, lines: usize) {
            let audit = self.open(fsync).unwrap();
            for line in 0..lines {
                let entry = Entry {
                    path: format!("transit/sign/key-{line}"),
                    operation: "sign",
                    status: 200,
                    ..Entry::default()
                };
                audit.append(&entry).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn every_change_of_the_log_is_found() {
        let it = Fixture::new();
        for fsync in [Fsync::Request, Fsync::Batch, Fsync::Second] {
            it.write(fsync, 4).await;
        }
        assert_eq!(it.verify().unwrap(), (12, 0));
        let text = std::fs::read_to_string(&it.path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut tampered: Vec<(&str, String)> = vec![
            ("an edit", text.replace("sign/key-2", "sign/key-9")),
            ("a cut tail", lines[..11].join("\n") + "\n"),
            ("a cut in a line", text[..text.len() - 5].into()),
            ("nothing left", String::new()),
            ("a line twice", text.clone() + lines[11] + "\n"),
            ("a space", text.replacen("{\"seq\":5,", "{ \"seq\":5,", 1)),
        ];
        for removed in 0..12 {
            let left: Vec<&str> = (0..12).filter(|line| *line != removed).map(|line| lines[line]).collect();
            tampered.push(("a removed line", left.join("\n") + "\n"));
        }
        // An edited last line whose HMAC is left out, and one that an attacker without the key chains on.
        let forged = format!("{{\"seq\":13,\"prev\":\"{}\",\"mac\":\"00\"}}\n", hex::encode(Sha256::digest(lines[11])));
        tampered.push(("an added line", text.clone() + &forged));
        for (what, tampered) in tampered {
            std::fs::write(&it.path, &tampered).unwrap();
            assert!(it.verify().is_err(), "{what}");
            if what == "a cut tail" || what == "an added line" {
                assert!(it.open(Fsync::Batch).is_err(), "{what}");
            }
        }
        std::fs::write(&it.path, &text).unwrap();
        assert_eq!(it.verify().unwrap(), (12, 0));
        let other = Master::random().unwrap();
        assert!(verify(&it.path, &Keys::new(&other), Some(&Head::default())).is_err());
        assert!(Keys::new(&other).read_head(&*it.storage).is_err());
    }

    /// Without the keys nobody makes another log or another head that passes: only whole lines after the head may be missing.
    #[tokio::test]
    async fn fuzz_logs_and_heads() {
        let it = Fixture::new();
        let keys = Keys::new(&it.master);
        it.write(Fsync::Batch, 3).await;
        let early = keys.read_head(&*it.storage).unwrap();
        it.write(Fsync::Batch, 3).await;
        let late = keys.read_head(&*it.storage).unwrap();
        let log = std::fs::read(&it.path).unwrap();
        let is_whole = |part: &[u8]| part.is_empty() || part.ends_with(b"\n");
        let is_kept = |part: &[u8]| log.starts_with(part) && part.len() >= early.end as usize && is_whole(part);
        let mut executions = 0;
        crate::fuzz::fuzz(
            1_000,
            &[&log, &log[..early.end as usize], &log[early.end as usize..]],
            "\"mac\":\" \"seq\": \n",
            |input| {
                std::fs::write(&it.path, input).unwrap();
                let by_late = verify(&it.path, &keys, Some(&late));
                assert_eq!(by_late.is_ok(), input == log);
                assert_eq!(verify(&it.path, &keys, Some(&early)).is_ok(), is_kept(input));
                // Of an earlier file nobody knows where it begins and ends.
                let starts = input.is_empty()
                    || log.windows(input.len()).enumerate().any(|(at, part)| part == input && is_whole(&log[..at]));
                assert_eq!(verify(&it.path, &keys, None).is_ok(), starts && is_whole(input));
                executions += 1;
                // The disk makes this slow.
                if executions % 16 == 1 {
                    let mut file = File::options().read(true).write(true).open(&it.path).unwrap();
                    if recovered(&mut file, &keys, early.clone()).is_ok() {
                        let left = std::fs::read(&it.path).unwrap();
                        // Earlier lines are those that `verify` checks.
                        let start = early.start as usize;
                        assert!(left.len() >= early.end as usize && is_whole(&left));
                        assert!(left[start..] == log[start..left.len()] && input.starts_with(&left));
                    }
                }
                by_late.err().map_or(String::new(), |why| why.what.rsplit_once(".log").unwrap().1.into())
            },
        );
        let stored = it.storage.get(Kind::Meta, HEAD).unwrap().unwrap();
        crate::fuzz::fuzz(20_000, &[&stored], "\"seq\": \"earlier\":[ \"hash\":", |input| {
            let opened = keys.open_head(input);
            assert!(opened.as_ref().is_none_or(|opened| *opened == late));
            format!("{}", opened.is_some())
        });
    }

    #[tokio::test]
    async fn the_chain_goes_on_in_the_next_file() {
        let it = Fixture::new();
        let keys = Keys::new(&it.master);
        assert!(rotate(&it.path, &keys, &*it.storage).is_err(), "there is no file yet");
        it.write(Fsync::Batch, 3).await;
        let old = rotate(&it.path, &keys, &*it.storage).unwrap();
        assert!(rotate(&it.path, &keys, &*it.storage).is_err(), "the next file is empty");
        it.write(Fsync::Batch, 2).await;
        assert_eq!((it.verify().unwrap(), counted(verify(&old, &keys, None)).unwrap()), ((2, 0), (3, 0)));
        // Neither file passes as the other one, or without its first line.
        let text = std::fs::read_to_string(&it.path).unwrap();
        std::fs::write(&it.path, text.split_once('\n').unwrap().1).unwrap();
        assert!(it.verify().is_err());
        std::fs::copy(&old, &it.path).unwrap();
        assert!(it.verify().is_err());
        std::fs::write(&it.path, text).unwrap();
        it.write(Fsync::Batch, 1).await;
        assert_eq!(it.verify().unwrap(), (3, 0));
        let text = std::fs::read_to_string(&old).unwrap();
        std::fs::write(&old, text.replacen("key-1", "key-2", 1)).unwrap();
        assert!(verify(&old, &keys, None).is_err());
    }

    #[tokio::test]
    async fn a_crash_loses_no_whole_line() {
        let it = Fixture::new();
        it.write(Fsync::Batch, 3).await;
        let early = it.storage.get(Kind::Meta, HEAD).unwrap().unwrap();
        it.write(Fsync::Batch, 2).await;
        // As if the head had not been written, and half a line had been.
        it.storage.commit(&[Change::Put(Kind::Meta, HEAD.into(), early)]).unwrap();
        File::options().append(true).open(&it.path).unwrap().write_all(b"{\"seq\":6,\"ti").unwrap();
        it.write(Fsync::Batch, 1).await;
        assert_eq!(it.verify().unwrap(), (6, 0));
    }

    #[tokio::test]
    async fn many_requests_share_a_sync_and_keep_the_chain() {
        let it = Fixture::new();
        let audit = Arc::new(it.open(Fsync::Batch).unwrap());
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let audit = audit.clone();
                tokio::spawn(async move { audit.append(&Entry::default()).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(it.verify().unwrap(), (200, 0));
    }
}
