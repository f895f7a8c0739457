//! The audit log: one line of JSON for each request. Each line has the SHA-256 of the line before it, and an HMAC of its own. The head, which
//! is the number and place of the last line, is stored in the database under an HMAC, so that a cut tail is found too.

use crate::error::Error;
use crate::files::{folder_of, with_suffix};
use crate::refused::Summary;
use crate::reserve::Reserve;
use crate::seal::{Master, Secret, hmac};
use crate::storage::{Change, Kind, Storage, private_file};
use crate::threads::unpoisoned;
use hypergrove::quote::{self, Quote};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
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
    /// HashSLH-DSA's function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_algorithm: Option<String>,
    /// Whether the messages are digests of this function already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prehashed: bool,
    /// The context string of the messages, in base64, if it is not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_context: Option<String>,
    /// The context strings of messages that have their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signature_contexts: Vec<Option<String>>,
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
    /// Lines before this one that are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
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

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { line, time, lines, hash, found, kept, reason } = self;
        write!(
            f,
            "LOSS accepted by line {line} at {time}: the log had {lines} lines, the last one with the SHA-256 {hash:?}. "
        )?;
        let kept = kept.as_deref().unwrap_or("nothing");
        write!(f, "Found instead: {found:?}. Kept as evidence: {kept}. Reason: {reason:?}")
    }
}

/// The parts of a line that a reader needs.
#[derive(Deserialize)]
struct ReadLine {
    seq: u64,
    prev: String,
    mac: String,
    loss: Option<Loss>,
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
    /// The losses of lines that an operator accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    losses: Vec<Loss>,
}

/// Lines that are lost. The log has this for ever, and so has its head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// The number of the line that says it.
    pub line: u64,
    /// When it was said.
    pub time: String,
    /// How many lines the log had, by the database.
    pub lines: u64,
    /// SHA-256 of the last of them.
    pub hash: String,
    /// How the log was found.
    pub found: String,
    /// Where the damaged file is now.
    pub kept: Option<String>,
    /// The operator's reason.
    pub reason: String,
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
        let mut text = format!("{} {} {} {} {lines} {hash}", head.seq, head.start, head.end, head.hash);
        if !head.losses.is_empty() {
            text += &serde_json::json!(head.losses).to_string();
        }
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

    /// The line of an entry behind this head, with its line break.
    fn line(&self, head: &Head, entry: &Entry) -> Result<Vec<u8>, Error> {
        let time = jiff::Timestamp::now().to_string();
        let line = Line { seq: head.seq + 1, time: &time, entry, prev: &head.hash };
        let mut line = serde_json::to_vec(&line).map_err(|why| Error::internal(why.to_string()))?;
        line.pop();
        let mac = hex::encode(hmac(&self.lines, &[&line]));
        line.extend_from_slice(format!(",\"mac\":\"{mac}\"}}\n").as_bytes());
        Ok(line)
    }

    /// Checks a line, which has no line break, against the head of the lines before it. Returns the head after it.
    fn check(&self, before: &Head, line: &[u8]) -> Result<Head, String> {
        let read: ReadLine = serde_json::from_slice(line)
            .map_err(|why| format!("is not a line of this log: {}", quote::message(&why.to_string())))?;
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
        Ok(before.after(line, read.loss))
    }
}

impl Head {
    /// The head after a line, which has no line break.
    fn after(&self, line: &[u8], loss: Option<Loss>) -> Head {
        let end = self.end + line.len() as u64 + 1;
        let losses = self.losses.iter().cloned().chain(loss).collect();
        let hash = hex::encode(Sha256::digest(line));
        Head { seq: self.seq + 1, start: self.end, end, hash, earlier: self.earlier.clone(), losses }
    }

    /// The head of an empty file that goes on after these lines.
    fn next_file((seq, hash): (u64, String), losses: Vec<Loss>) -> Head {
        Head { seq, start: 0, end: 0, hash: hash.clone(), earlier: (seq, hash), losses }
    }

    /// The head of the file that follows this one.
    fn ended(&self) -> Head {
        Head::next_file((self.seq, self.hash.clone()), self.losses.clone())
    }

    /// The head of this file when it was empty.
    fn begun(&self) -> Head {
        let losses = self.losses.iter().filter(|loss| loss.line <= self.earlier.0).cloned().collect();
        Head::next_file(self.earlier.clone(), losses)
    }
}

/// The file and the head of what was written.
#[derive(Default)]
struct Log {
    /// The file. After a rotation there is none until it can be made.
    file: Option<Arc<File>>,
    head: Head,
    /// The number of the last line that the database's head has.
    synced: u64,
    /// The number of the last line that must not be missing.
    vital: u64,
    /// Where those lines end that are on the disk.
    on_disk: u64,
    /// Whether the log's thread knows that there is something to bring to the disk.
    is_notified: bool,
    /// Whether the file may have a part of a line behind the head.
    is_torn: bool,
    /// Whether the last line could not be written.
    is_unwritten: bool,
    /// Whether lines could not be brought to the disk, or their head not to the database.
    is_unsynced: bool,
}

impl Log {
    fn has_failed(&self) -> bool {
        self.is_unwritten || self.is_unsynced
    }

    /// The file, which is made if there is none.
    fn file(&mut self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(private_file().read(true).write(true).create(true).truncate(false).open(path)?);
        if file.metadata()?.len() > 0 {
            return Err(io::Error::other("another file that is not empty has its name"));
        }
        sync_folder(path)?;
        Ok(self.file.insert(file).clone())
    }

    /// Writes a line behind the head.
    fn write(&mut self, path: &Path, line: &[u8]) -> io::Result<()> {
        let file = self.file(path)?;
        self.mend(&file)?;
        // Whatever happens now, what is behind the head is no line.
        self.is_torn = true;
        let written = file.write_all_at(line, self.head.end);
        if written.is_err() {
            drop(self.mend(&file));
        }
        written
    }

    /// Removes a part of a line. If that fails, it is tried again before the next line.
    fn mend(&mut self, file: &File) -> io::Result<()> {
        if self.is_torn {
            file.set_len(self.head.end)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

struct Shared {
    log: Mutex<Log>,
    /// Heads reach the database one after the other: an older one never comes after a newer one. To be locked before `log`.
    syncing: Mutex<()>,
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
        let failed = |why: &dyn std::fmt::Display| {
            let next = "`audit verify` checks it, and `audit accept-loss` goes on without lines that are lost";
            Error::internal(format!("audit log {}: {why}; {next}", Quote::path(path)))
        };
        let stored = keys.read_head(&*storage)?;
        let head = complete_rotation(path, &keys, stored.clone()).map_err(|why| failed(&why))?;
        let mut options = private_file();
        let options = options.read(true).write(true).create(head.end == 0);
        let file = options.open(path).map_err(|why| failed(&why))?;
        if head.end == 0 {
            sync_folder(path).map_err(|why| failed(&why))?;
        }
        let head = recovered(&file, &keys, head).map_err(|why| failed(&why))?;
        if head != stored {
            keys.write_head(&*storage, &head)?;
        }
        let log =
            Mutex::new(Log { file: Some(Arc::new(file)), synced: head.seq, on_disk: head.end, head, ..Log::default() });
        let reserve = Reserve::of(path);
        let shared = Arc::new(Shared { log, syncing: Mutex::new(()), path: path.into(), reserve, keys, storage });
        let (waiters, receiver) = channel();
        let thread = std::thread::Builder::new().name("audit".into()).spawn({
            let shared = shared.clone();
            move || shared.sync_all(fsync, &receiver)
        });
        let thread = thread.map_err(|why| Error::internal(format!("the audit log's thread: {why}")))?;
        Ok(Audit { shared, fsync, waiters, thread: Some(thread), retrying: Mutex::new(()) })
    }

    /// The HMAC that the log has for a message.
    pub fn message(&self, message: &[u8]) -> String {
        hex::encode(hmac(&self.shared.keys.messages, &[&Sha256::digest(message)]))
    }

    /// Fails if the log cannot be written. After a failure, this tries again.
    pub fn ready(&self) -> Result<(), Error> {
        if !self.shared.lock().has_failed() {
            return Ok(());
        }
        // Others are refused meanwhile: the disk may take long.
        let Ok(_alone) = self.retrying.try_lock() else { return Err(unwritable()) };
        tokio::task::block_in_place(|| {
            // A line that says that the log works is written when it does.
            self.shared.sync()?;
            let entry = Entry { operation: "audit log works again", ..Entry::default() };
            self.shared.append(&mut self.shared.lock(), &entry)?;
            self.shared.sync()
        })
    }

    /// Ends the log's file, and goes on in another one. Returns the old file's name now, unless somebody else had renamed it to a name that is not
    /// known.
    pub fn rotate(&self) -> Result<Option<PathBuf>, Error> {
        self.shared.rotate()
    }

    /// Writes a line that nobody waits for. If that fails, this is false, and the server's own log says so.
    pub fn note(&self, entry: &Entry) -> bool {
        let mut log = self.shared.lock();
        let is_written = self.shared.append(&mut log, entry).is_ok();
        if is_written && !std::mem::replace(&mut log.is_notified, true) {
            drop(log);
            drop(self.waiters.send(None));
        }
        is_written
    }

    /// Writes the line of a request. Returns when it is as safe as the policy says.
    pub async fn append(&self, entry: &Entry) -> Result<(), Error> {
        let (was_notified, is_unsynced) = {
            let mut log = self.shared.lock();
            self.shared.append(&mut log, entry)?;
            (std::mem::replace(&mut log.is_notified, true), log.is_unsynced)
        };
        let ended = || Error::new(503, "the audit log was closed");
        if self.fsync == Fsync::Second {
            return match was_notified {
                _ if is_unsynced => Err(unwritable()),
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

fn text(why: io::Error) -> String {
    why.to_string()
}

fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn unwritable() -> Error {
    Error::new(503, "the audit log cannot be written, so nothing is signed or changed; ask the server's operator")
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        unpoisoned(self.log.lock())
    }

    /// Notes that a line could not be written or brought to the disk. Returns the error for a client; the server's own log has the reason.
    fn fail(&self, log: &mut Log, is_written: bool, why: &dyn std::fmt::Display) -> Error {
        let is_news = !log.has_failed();
        *(if is_written { &mut log.is_unsynced } else { &mut log.is_unwritten }) = true;
        if is_news {
            tracing::error!("audit log {}: {why}; nothing is signed until it can be written", Quote::path(&self.path));
        }
        unwritable()
    }

    fn append(&self, log: &mut Log, entry: &Entry) -> Result<(), Error> {
        let line = self.keys.line(&log.head, entry)?;
        let mut written = log.write(&self.path, &line);
        while written.as_ref().is_err_and(is_full) && self.reserve.release_for(entry) {
            written = log.write(&self.path, &line);
        }
        if let Err(why) = written {
            return Err(self.fail(log, false, &why));
        }
        log.head = log.head.after(&line[..line.len() - 1], entry.loss.clone());
        (log.is_torn, log.is_unwritten) = (false, false);
        if entry.is_vital {
            log.vital = log.head.seq;
        }
        Ok(())
    }

    /// Brings what was written to the disk, then the head to the database.
    fn sync(&self) -> Result<(), Error> {
        let _one = unpoisoned(self.syncing.lock());
        let (file, mut on_disk, is_unsynced, head, is_vital) = {
            let mut log = self.lock();
            log.is_notified = false;
            let Some(file) = log.file.clone().filter(|_| log.synced != log.head.seq) else { return Ok(()) };
            (file, log.on_disk, log.is_unsynced, log.head.clone(), log.vital > log.synced)
        };
        // Without the lock, so that others go on writing.
        let mut synced = self.bring(&file, &mut on_disk, is_unsynced, &head);
        // The database may be on the same disk.
        while synced.is_err() && self.reserve.release(is_vital) {
            synced = self.bring(&file, &mut on_disk, true, &head);
        }
        let mut log = self.lock();
        log.on_disk = on_disk;
        self.synced(&mut log, &head, synced)
    }

    fn synced(&self, log: &mut Log, head: &Head, synced: Result<(), String>) -> Result<(), Error> {
        synced.map_err(|why| self.fail(log, true, &why))?;
        (log.synced, log.is_unsynced) = (head.seq, false);
        Ok(())
    }

    /// Brings the lines before this head to the disk, then the head to the database.
    fn bring(&self, file: &File, on_disk: &mut u64, is_retry: bool, head: &Head) -> Result<(), String> {
        // A kernel forgets what it could not bring to the disk, and reports that once. So the same bytes are written again.
        let mut at = if is_retry { *on_disk } else { head.end };
        let mut bytes = vec![0; (head.end - at).min(1 << 16) as usize];
        while at < head.end {
            bytes.truncate((head.end - at) as usize);
            file.read_exact_at(&mut bytes, at).and_then(|()| file.write_all_at(&bytes, at)).map_err(text)?;
            at += bytes.len() as u64;
        }
        file.sync_data().map_err(text)?;
        *on_disk = head.end;
        self.keys.write_head(&*self.storage, head).map_err(|why| why.to_string())
    }

    fn rotate(&self) -> Result<Option<PathBuf>, Error> {
        let failed = |why: &str| Error::internal(format!("audit log {}: not rotated: {why}", Quote::path(&self.path)));
        let _one = unpoisoned(self.syncing.lock());
        let mut log = self.lock();
        let Some(file) = log.file.clone().filter(|_| log.head.end > 0) else {
            return Err(Error::bad(format!("audit log {}: not rotated: it is empty", Quote::path(&self.path))));
        };
        // The file ends with its last line, which is on the disk.
        log.mend(&file).map_err(|why| self.fail(&mut log, false, &why))?;
        let (head, is_unsynced) = (log.head.clone(), log.is_unsynced);
        let synced = self.bring(&file, &mut log.on_disk, is_unsynced, &head);
        self.synced(&mut log, &head, synced)?;
        let old = end_file(&self.path, &file, &head).map_err(|why| failed(&why))?;
        let next = head.ended();
        if let Err(why) = self.keys.write_head(&*self.storage, &next) {
            // If the name cannot be given back, the next start knows the file by its lines.
            drop(old.map(|old| std::fs::rename(old, &self.path)));
            return Err(failed(&why.what));
        }
        *log = Log { file: None, synced: next.seq, on_disk: 0, head: next, ..*log };
        // If this fails, the next line tries it again.
        drop(log.file(&self.path));
        drop(log);
        Ok(old.or_else(|| moved(&self.path, &head)))
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

/// Whether a file has the last line of this head where it belongs.
fn has_last_line(file: &File, head: &Head) -> io::Result<bool> {
    let mut line = vec![0; (head.end - head.start) as usize];
    file.read_exact_at(&mut line, head.start)?;
    Ok(line.pop() == Some(b'\n') && hex::encode(Sha256::digest(&line)) == head.hash)
}

/// Checks the last line of the head, and reads on from there.
fn recovered(mut file: &File, keys: &Keys, mut head: Head) -> Result<Head, String> {
    let length = file.metadata().map_err(text)?.len();
    if length < head.end {
        return Err(format!("it has {length} bytes, and had {}: its tail was cut", head.end));
    }
    if head.end > 0 && !has_last_line(file, &head).map_err(text)? {
        return Err(format!("line {} was edited", head.seq));
    }
    file.seek(SeekFrom::Start(head.end)).map_err(text)?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(text)? > 0 {
        if line.pop() != Some(b'\n') {
            break;
        }
        head = keys.check(&head, &line).map_err(|why| format!("line {} {why}", head.seq + 1))?;
        line.clear();
    }
    if length > head.end {
        tracing::warn!("audit log: the last line was cut by a crash, and is removed");
        file.set_len(head.end).map_err(text)?;
    }
    file.sync_all().map_err(text)?;
    Ok(head)
}

/// Brings the names in the log's folder to the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Behind the log's name, what the name of a damaged file begins with.
const DAMAGED: &str = ".damaged.";

/// The name of a file that has ended with this line.
fn rotated(path: &Path, seq: u64) -> PathBuf {
    with_suffix(path, &format!(".{seq:012}"))
}

/// Gives a file that has this head the name of one that has ended, and returns this name; `None` if somebody else has renamed it, as logrotate does.
fn end_file(path: &Path, file: &File, head: &Head) -> Result<Option<PathBuf>, String> {
    let (open, old) = (file.metadata().map_err(text)?, rotated(path, head.seq));
    let old = match std::fs::metadata(path) {
        Ok(named) if (named.dev(), named.ino()) == (open.dev(), open.ino()) => {
            if old.exists() {
                return Err(format!("{} is there", Quote::path(&old)));
            }
            std::fs::rename(path, &old).map_err(text)?;
            Some(old)
        }
        Ok(named) if named.len() > 0 => return Err("another file that is not empty has its name".into()),
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(text(why)),
        _ if open.nlink() == 0 => return Err("somebody deleted it; `audit accept-loss` goes on without it".into()),
        _ => None,
    };
    sync_folder(path).map_err(text)?;
    Ok(old)
}

/// The file with the lines of this head, if the log was renamed, and neither it nor another one has its name.
fn moved(path: &Path, head: &Head) -> Option<PathBuf> {
    let is_there = std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let name = path.file_name()?.to_string_lossy();
    let mut others = std::fs::read_dir(folder_of(path)).ok()?.flatten().filter(|other| {
        let has_lines = || has_last_line(&File::open(other.path())?, head);
        let of_log = other.file_name().to_string_lossy().strip_prefix(&*name).map(|rest| !rest.starts_with(DAMAGED));
        of_log == Some(true) && has_lines().unwrap_or(false)
    });
    if is_there || head.end == 0 { None } else { others.next().map(|other| other.path()) }
}

/// Completes a rotation that a crash has interrupted, or that was only a rename. Returns the head of the file that has the log's name then.
fn complete_rotation(path: &Path, keys: &Keys, head: Head) -> Result<Head, String> {
    if let Some(old) = moved(path, &head) {
        let file = File::options().read(true).write(true).open(&old).map_err(text)?;
        let head = recovered(&file, keys, head)?;
        tracing::warn!("audit log: {} has ended, and the log goes on in another file", Quote::path(&old));
        return Ok(head.ended());
    }
    let old = rotated(path, head.seq);
    let has_earlier = || verify(path, keys, None).is_ok_and(|it| (it.last, &it.hash) == (head.seq, &head.hash));
    if head.end == 0 && head.seq > 0 && !old.exists() && has_earlier() {
        std::fs::rename(path, &old).and_then(|()| sync_folder(path)).map_err(text)?;
    }
    Ok(head)
}

/// Goes on without lines that are lost: with another file, whose first line says what the database knows of them and why. A damaged file is kept.
/// No server may run. Returns the loss.
pub fn accept_loss(path: &Path, master: &Master, storage: &Arc<dyn Storage>, reason: &str) -> Result<Loss, Error> {
    let failed = |why: &str| Error::internal(format!("audit log {}: {why}; no loss was accepted", Quote::path(path)));
    let io = |why: io::Error| failed(&why.to_string());
    if reason.trim().is_empty() || reason.chars().count() > 500 {
        return Err(Error::bad("--reason: 1 to 500 letters must say why the lines are lost"));
    }
    // A crash is no loss: the log is opened first, which mends it, as at the server's start.
    let opened = Audit::open(path, Fsync::Batch, Keys::new(master), storage.clone()).map(drop);
    let keys = Keys::new(master);
    let is_well = || Error::bad("no line is lost: `audit verify` finds no fault, and the server can start");
    let found = match verify_log(path, &keys, &**storage) {
        Ok(_) => return Err(opened.err().unwrap_or_else(is_well)),
        Err(why) => why.what,
    };
    // A file that this user may not read has lost nothing.
    match File::open(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(io(why)),
        _ => {}
    }
    // A head that somebody changed or removed is lost too. One that cannot be read is not.
    storage.get(Kind::Meta, HEAD)?;
    let known = keys.read_head(&**storage).unwrap_or_default();
    let damaged = with_suffix(path, &format!("{DAMAGED}{:012}", known.seq));
    let is_there = path.try_exists().map_err(io)?;
    if is_there && damaged.exists() {
        return Err(failed(&format!("{} is there; move it away", Quote::path(&damaged))));
    }
    let loss = Loss {
        line: known.seq + 1,
        time: jiff::Timestamp::now().to_string(),
        lines: known.seq,
        hash: known.hash.clone(),
        found: found.chars().take(500).collect(),
        kept: (is_there || damaged.exists()).then(|| damaged.display().to_string()),
        reason: reason.into(),
    };
    let before = known.ended();
    let entry = Entry { operation: "audit-accept-loss", status: 200, loss: Some(loss.clone()), ..Entry::default() };
    let line = keys.line(&before, &entry)?;
    let head = before.after(&line[..line.len() - 1], Some(loss.clone()));
    // Until the last step this has the name of a file that has ended: after a crash, the server's start goes on behind it.
    let begun = rotated(path, head.seq);
    let is_loss = |line: &[u8]| keys.check(&before, line).is_ok_and(|head| head.losses.len() > before.losses.len());
    if std::fs::read(&begun).is_ok_and(|left| left.strip_suffix(b"\n").map_or(!left.contains(&b'\n'), is_loss)) {
        // This command left it, interrupted by a crash before the head was written.
        std::fs::remove_file(&begun).map_err(io)?;
    }
    let mut options = private_file();
    let file = options.write(true).create_new(true).open(&begun);
    let file = file.map_err(|why| failed(&format!("{}: {why}", Quote::path(&begun))))?;
    let prepared = file
        .write_all_at(&line, 0)
        .and_then(|()| file.sync_all())
        .and_then(|()| if is_there { std::fs::rename(path, &damaged) } else { Ok(()) });
    let prepared = prepared.and_then(|()| sync_folder(path)).map_err(io);
    if let Err(why) = prepared.and_then(|()| keys.write_head(&**storage, &head)) {
        drop(std::fs::remove_file(&begun));
        return Err(why);
    }
    // If this fails, the server's start goes on behind this file all the same.
    drop(std::fs::rename(&begun, path).and_then(|()| sync_folder(path)));
    Ok(loss)
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
    /// Lines that are lost, which the log and its head say.
    pub losses: Vec<Loss>,
}

/// Checks the log of a server that may run and may go on in another file meanwhile.
pub fn verify_log(path: &Path, keys: &Keys, storage: &dyn Storage) -> Result<Verified, Error> {
    let length = || std::fs::metadata(path).map_or(0, |file| file.len());
    let mut tries = 0;
    loop {
        let (head, before) = (keys.read_head(storage)?, length());
        let verified = match moved(path, &head) {
            Some(old) => verify(&old, keys, Some(&head)),
            None => verify(path, keys, Some(&head)),
        };
        tries += 1;
        let is_same = before == length() && keys.read_head(storage)?.earlier == head.earlier;
        // A line may have been half written, or the file renamed.
        if verified.is_ok() || is_same || tries == 4 {
            return verified;
        }
    }
}

/// Checks all lines of a log. Returns how many it has, and how many of these came after the head. Of an earlier file, without a head, the first
/// line alone says which lines came before it.
pub fn verify(path: &Path, keys: &Keys, stored: Option<&Head>) -> Result<Verified, Error> {
    let failed = |why: String| Error::at(path, why);
    let is_empty = stored.is_some_and(|stored| stored.end == 0);
    let file: Box<dyn Read> = match File::open(path) {
        // After `rotate`, the server makes the file at its start.
        Err(why) if why.kind() == io::ErrorKind::NotFound && is_empty => Box::new(io::empty()),
        file => Box::new(file.map_err(|why| failed(why.to_string()))?),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut head = stored.map_or_else(Head::default, Head::begun);
    let mut is_known = stored.is_some();
    while reader.read_until(b'\n', &mut line).map_err(|why| failed(why.to_string()))? > 0 {
        if line.pop() != Some(b'\n') {
            return Err(failed(format!("line {} has no end: it is being written, or was cut", head.seq + 1)));
        }
        if !std::mem::replace(&mut is_known, true)
            && let Ok(first) = serde_json::from_slice::<ReadLine>(&line)
        {
            head = Head::next_file((first.seq.saturating_sub(1), first.prev), Vec::new());
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
            losses: head.losses,
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests {
    use super::*;
    use crate::storage::Sqlite;
    use std::io::Write;
    use std::ops::Range;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A database whose disk is full at times.
    struct Full {
        inner: Sqlite,
        is_full: AtomicBool,
    }

    impl Storage for Full {
        fn get(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, Error> {
            self.inner.get(kind, id)
        }
        fn list(&self, kind: Kind) -> Result<Vec<(String, Vec<u8>)>, Error> {
            self.inner.list(kind)
        }
        fn commit(&self, changes: &[Change]) -> Result<(), Error> {
            match self.is_full.load(Relaxed) {
                true => Err(Error::internal("the disk is full")),
                false => self.inner.commit(changes),
            }
        }
        fn leased(&self, counter: &str) -> Result<u64, Error> {
            self.inner.leased(counter)
        }
        fn lease(&self, counter: &str, want: u64, limit: u64) -> Result<Range<u64>, Error> {
            self.inner.lease(counter, want, limit)
        }
        fn give_back(&self, counter: &str, unused: Range<u64>) -> Result<(), Error> {
            self.inner.give_back(counter, unused)
        }
    }

    fn counted(verified: Result<Verified, Error>) -> Result<(u64, u64), Error> {
        verified.map(|verified| (verified.lines, verified.after))
    }

    /// An empty log and its database.
    pub(crate) struct Fixture {
        _folder: tempfile::TempDir,
        path: PathBuf,
        master: Master,
        storage: Arc<dyn Storage>,
    }

    impl Fixture {
        pub(crate) fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let storage: Arc<dyn Storage> = Arc::new(Sqlite::open(&folder.path().join("db")).unwrap());
            let path = folder.path().join("audit.log");
            let master = Master::random().unwrap();
            storage.commit(&[Keys::new(&master).first_head().unwrap()]).unwrap();
            Fixture { _folder: folder, path, master, storage }
        }

        pub(crate) fn open(&self, fsync: Fsync) -> Result<Audit, Error> {
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
                    let file = File::options().read(true).write(true).open(&it.path).unwrap();
                    if recovered(&file, &keys, early.clone()).is_ok() {
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
        assert!(it.open(Fsync::Batch).unwrap().rotate().is_err(), "there is no line yet");
        it.write(Fsync::Batch, 3).await;
        let audit = it.open(Fsync::Batch).unwrap();
        let old = audit.rotate().unwrap().unwrap();
        assert!(audit.rotate().is_err(), "the next file is empty");
        drop(audit);
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

    /// While the database is full, nothing passes in any mode, and no line says that the log works. Afterwards all goes on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_database_stops_everything_until_it_has_room() {
        for fsync in [Fsync::Request, Fsync::Batch, Fsync::Second] {
            let it = Fixture::new();
            let inner = Sqlite::open(&it._folder.path().join("db")).unwrap();
            let full = Arc::new(Full { inner, is_full: AtomicBool::new(false) });
            let audit = Audit::open(&it.path, fsync, Keys::new(&it.master), full.clone()).unwrap();
            let entry = Entry { operation: "sign", ..Entry::default() };
            audit.append(&entry).await.unwrap();
            full.is_full.store(true, Relaxed);
            if fsync == Fsync::Second {
                audit.append(&entry).await.unwrap();
                audit.shared.sync().unwrap_err();
            }
            // Requests that had begun meanwhile.
            for _ in 0..3 {
                assert_eq!(audit.append(&entry).await.unwrap_err().status, 503, "{fsync:?}");
            }
            for _ in 0..3 {
                assert_eq!(audit.ready().unwrap_err().status, 503, "{fsync:?}");
            }
            assert!(audit.rotate().is_err() && it.path.exists(), "{fsync:?}");
            let log = std::fs::read_to_string(&it.path).unwrap();
            assert!(!log.contains("works again"), "{log}");
            full.is_full.store(false, Relaxed);
            audit.ready().unwrap();
            audit.append(&entry).await.unwrap();
            drop(audit);
            let lines = if fsync == Fsync::Second { 7 } else { 6 };
            assert_eq!(it.verify().unwrap(), (lines, 0), "{fsync:?}");
        }
    }

    /// Syncs of a thread and of requests run at the same time: the database never gets an older head after a newer one.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_rotation_among_requests_breaks_no_chain() {
        for fsync in [Fsync::Request, Fsync::Batch, Fsync::Second] {
            let it = Fixture::new();
            let keys = Keys::new(&it.master);
            let audit = Arc::new(it.open(fsync).unwrap());
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let audit = audit.clone();
                    tokio::spawn(async move {
                        let mut old = Vec::new();
                        for _ in 0..8 {
                            audit.append(&Entry::default()).await.unwrap();
                            if task < 2 {
                                let audit = audit.clone();
                                // The next file may have no line yet.
                                old.extend(tokio::task::spawn_blocking(move || audit.rotate().ok().flatten()).await);
                            }
                        }
                        old
                    })
                })
                .collect();
            let (mut old, mut lines) = (Vec::new(), 0);
            for task in tasks {
                old.extend(task.await.unwrap().into_iter().flatten());
            }
            audit.append(&Entry::default()).await.unwrap();
            drop(audit);
            assert!(old.len() > 3, "{old:?}");
            for old in &old {
                lines += verify(old, &keys, None).unwrap().lines;
            }
            assert_eq!(lines + it.verify().unwrap().0, 65);
        }
    }

    /// As if the server had been killed between two steps of a rotation, or logrotate had renamed the file while no server ran.
    #[tokio::test]
    async fn a_crash_within_a_rotation_repairs_itself() {
        type Crash = fn(&Fixture, &Path, &Path);
        let states: [(&str, Crash); 5] = [
            ("renamed, and the head is the old one", |_, _, _| {}),
            ("renamed by somebody else", |it, old, _| {
                std::fs::rename(old, with_suffix(&it.path, "-20261128")).unwrap()
            }),
            ("and another file was made", |it, _, _| std::fs::write(&it.path, "").unwrap()),
            ("a part of a line was written", |_, old, _| {
                File::options().append(true).open(old).unwrap().write_all(b"{\"seq").unwrap();
            }),
            ("the head is the new one, and the name is the old one", |it, old, next| {
                std::fs::rename(old, &it.path).unwrap();
                let head: Vec<u8> = std::fs::read(next).unwrap();
                it.storage.commit(&[Change::Put(Kind::Meta, HEAD.into(), head)]).unwrap();
            }),
        ];
        for (what, crash) in states {
            let it = Fixture::new();
            it.write(Fsync::Batch, 3).await;
            let head = it.storage.get(Kind::Meta, HEAD).unwrap().unwrap();
            let audit = it.open(Fsync::Batch).unwrap();
            let old = audit.rotate().unwrap().unwrap();
            drop(audit);
            let next = it._folder.path().join("next");
            std::fs::write(&next, it.storage.get(Kind::Meta, HEAD).unwrap().unwrap()).unwrap();
            std::fs::remove_file(&it.path).unwrap();
            it.storage.commit(&[Change::Put(Kind::Meta, HEAD.into(), head)]).unwrap();
            crash(&it, &old, &next);
            let (keys, master) = (Keys::new(&it.master), &it.master);
            if !what.contains("part of a line") && !what.contains("new one") {
                assert_eq!(verify_log(&it.path, &keys, &*it.storage).unwrap().last, 3, "{what}");
            }
            it.write(Fsync::Batch, 2).await;
            let now = verify_log(&it.path, &keys, &*it.storage).unwrap();
            assert_eq!((now.lines, now.last, now.losses.len()), (2, 5, 0), "{what}");
            let refused = accept_loss(&it.path, master, &it.storage, "nothing").unwrap_err();
            assert!(refused.what.contains("no line is lost"), "{what}: {refused}");
            let old: Vec<_> = std::fs::read_dir(it._folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
            let old = old
                .iter()
                .find(|file| file.to_string_lossy().contains("audit.log.") || file.ends_with("audit.log-20261128"));
            assert_eq!(verify(old.unwrap(), &keys, None).unwrap().lines, 3, "{what}");
        }
    }

    /// Whatever is lost, the log goes on after `accept_loss`, and says for ever what was lost.
    #[tokio::test]
    async fn an_accepted_loss_stays_in_the_log() {
        type Damage = fn(&Path, &str);
        let lose: [(&str, Damage); 6] = [
            ("no such file", |log, _| std::fs::remove_file(log).unwrap()),
            ("tail was cut", |log, text| std::fs::write(log, text.split_inclusive('\n').next().unwrap()).unwrap()),
            ("tail was cut", |log, _| std::fs::write(log, "").unwrap()),
            ("line 4 is not a line", |log, text| std::fs::write(log, format!("{text}garbage\n")).unwrap()),
            ("line 3 has no end", |log, text| {
                let at = text.trim_end().rfind('\n').unwrap() + 1;
                std::fs::write(log, format!("{}{}", &text[..at], "x".repeat(text.len() - at))).unwrap();
            }),
            ("line 2 was edited", |log, text| std::fs::write(log, text.replace("key-1", "key-9")).unwrap()),
        ];
        for (what, lose) in lose {
            let it = Fixture::new();
            let keys = Keys::new(&it.master);
            it.write(Fsync::Batch, 3).await;
            let text = std::fs::read_to_string(&it.path).unwrap();
            lose(&it.path, &text);
            let damaged = std::fs::read(&it.path).ok();
            assert!(it.verify().is_err(), "{what}");
            assert!(accept_loss(&it.path, &it.master, &it.storage, " ").unwrap_err().what.contains("--reason"));
            let loss = accept_loss(&it.path, &it.master, &it.storage, "the disk broke").unwrap();
            assert_eq!((loss.line, loss.lines, &*loss.reason), (4, 3, "the disk broke"), "{what}");
            assert!(loss.found.to_lowercase().contains(what), "{what}: {}", loss.found);
            assert_eq!(loss.hash, hex::encode(Sha256::digest(text.lines().last().unwrap())));
            assert_eq!(loss.kept.as_ref().map(|kept| std::fs::read(kept).unwrap()), damaged, "{what}");
            it.write(Fsync::Batch, 2).await;
            assert!(accept_loss(&it.path, &it.master, &it.storage, "again").is_err(), "{what}");
            assert_eq!(
                verify_log(&it.path, &keys, &*it.storage).unwrap().losses,
                std::slice::from_ref(&loss),
                "{what}"
            );
            // Neither another file nor another loss hides it.
            let audit = it.open(Fsync::Batch).unwrap();
            audit.rotate().unwrap();
            drop(audit);
            it.write(Fsync::Batch, 1).await;
            std::fs::remove_file(&it.path).unwrap();
            let second = accept_loss(&it.path, &it.master, &it.storage, "somebody deleted it").unwrap();
            let verified = verify_log(&it.path, &keys, &*it.storage).unwrap();
            assert_eq!((verified.lines, verified.losses), (1, vec![loss, second]), "{what}");
            // Who removes a loss from the head is found.
            let head = String::from_utf8(it.storage.get(Kind::Meta, HEAD).unwrap().unwrap()).unwrap();
            let other = head.replacen("the disk broke", "nothing at all", 1).into_bytes();
            assert_ne!(head.as_bytes(), &other[..]);
            it.storage.commit(&[Change::Put(Kind::Meta, HEAD.into(), other)]).unwrap();
            assert!(keys.read_head(&*it.storage).is_err());
        }
    }

    /// As if the command had been killed after each of its steps.
    #[tokio::test]
    async fn a_crash_while_a_loss_is_accepted_hides_nothing() {
        let it = Fixture::new();
        let keys = Keys::new(&it.master);
        it.write(Fsync::Batch, 3).await;
        let head = it.storage.get(Kind::Meta, HEAD).unwrap().unwrap();
        std::fs::write(&it.path, "garbage").unwrap();
        let loss = accept_loss(&it.path, &it.master, &it.storage, "the disk broke").unwrap();
        let (begun, damaged) = (rotated(&it.path, 4), PathBuf::from(loss.kept.as_ref().unwrap()));
        let accepted = it.storage.get(Kind::Meta, HEAD).unwrap().unwrap();
        // The head was written, and the new file has not the log's name yet.
        std::fs::rename(&it.path, &begun).unwrap();
        it.write(Fsync::Batch, 1).await;
        let verified = verify_log(&it.path, &keys, &*it.storage).unwrap();
        assert_eq!((verified.last, verified.losses), (5, vec![loss.clone()]));
        assert_eq!(verify(&begun, &keys, None).unwrap().losses, [loss]);
        // The damaged file was renamed, and the head was not written: the server does not start, and the command goes on.
        let left = std::fs::read(&begun).unwrap();
        for left in [&b""[..], &left[..left.len() / 2], &left] {
            std::fs::remove_file(&it.path).unwrap();
            it.storage.commit(&[Change::Put(Kind::Meta, HEAD.into(), head.clone())]).unwrap();
            assert!(it.open(Fsync::Batch).is_err());
            // A file of other lines is nobody's to remove.
            std::fs::write(&begun, "another\n").unwrap();
            let refused = accept_loss(&it.path, &it.master, &it.storage, "the disk broke").unwrap_err();
            assert!(refused.what.contains(&*begun.to_string_lossy()), "{refused}");
            std::fs::write(&begun, left).unwrap();
            let loss = accept_loss(&it.path, &it.master, &it.storage, "the disk broke").unwrap();
            assert_eq!(loss.kept, Some(damaged.display().to_string()));
            assert!(it.storage.get(Kind::Meta, HEAD).unwrap().unwrap() != accepted && it.open(Fsync::Batch).is_ok());
        }
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
