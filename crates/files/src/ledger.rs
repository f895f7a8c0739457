//! Ledgers: how many signatures a key of a limited set has made (draft SP 800-230).
//!
//! A key of a limited set keeps its security for 2²⁴ signatures and loses it beyond
//! ([`Params::signature_limit`](hypergrove::Params::signature_limit)). A ledger counts signatures before they are made: whoever signs reserves
//! numbers first, and no number is handed out twice, whatever happens to the process. Numbers that were reserved and not used are lost.
//!
//! ```
//! use hypergrove_files::ledger::{Blocks, FileLedger, Ledger, LedgerState};
//! use hypergrove::{SLH_DSA_SHA2_128_24, VerifyingKey};
//!
//! # let directory = std::env::temp_dir().join(format!("hypergrove-ledger-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! let key = VerifyingKey::from_bytes(&SLH_DSA_SHA2_128_24, &[7; 32])?;
//! let path = directory.join("key.ledger");
//! # let _ = std::fs::remove_file(&path);
//! FileLedger::create(&path, &LedgerState::new(&key)?)?;
//! let ledger = FileLedger::open(&path, key.fingerprint())?;
//! assert_eq!(ledger.reserve(3)?.numbers, 0..3);
//! // Whoever makes one signature after the other reserves many at once: each reservation waits for the disk.
//! let blocks = Blocks::new(ledger, 1024);
//! assert_eq!((blocks.next()?, blocks.next()?), (3, 4));
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! docs/ledger.md says what a ledger cannot notice: cloned machines above all.

use hypergrove::quote::Quote;
use hypergrove::{Fingerprint, PreHash, VerifyingKey};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The bytes of a record. A ledger has two records; the newest record that is whole counts.
const SLOT: usize = 512;
/// How long a process waits for another process's lock on the ledger.
const PATIENCE: Duration = Duration::from_secs(10);
const MAGIC: &str = "hypergrove ledger 1";

/// A ledger: it gives out the numbers of a key's signatures.
pub trait Ledger: Send + Sync {
    /// Reserves `count` numbers. Nobody else gets them, even if the process or the machine stops at any moment.
    fn reserve(&self, count: u64) -> Result<Reservation, LedgerError>;
    /// The current state.
    fn state(&self) -> Result<LedgerState, LedgerError>;
}

/// Reserved numbers, one for each signature, and the state after the reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The numbers.
    pub numbers: Range<u64>,
    /// The state after the reservation.
    pub state: LedgerState,
}

/// The state of a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerState {
    /// The fingerprint of the key.
    pub key: Fingerprint,
    /// The number of changes so far. An old copy of a ledger has a smaller one.
    pub generation: u64,
    /// The first number of this ledger. It is 0, except for a lease.
    pub start: u64,
    /// The next number to give out.
    pub next: u64,
    /// The number after the last.
    pub end: u64,
}

impl LedgerState {
    /// The state of a new key's ledger, with all numbers that its set allows.
    pub fn new(key: &VerifyingKey) -> Result<LedgerState, LedgerError> {
        let end = key.params().signature_limit().ok_or(LedgerError::Unlimited { set: key.params().name })?;
        Ok(LedgerState { key: key.fingerprint(), generation: 1, start: 0, next: 0, end })
    }
    /// How many numbers were given out.
    pub fn used(&self) -> u64 {
        self.next.saturating_sub(self.start)
    }
    /// How many numbers are left.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }
    /// The used part of the numbers in whole percent. Warn at 50 and at 90.
    pub fn percent(&self) -> u64 {
        match self.end.saturating_sub(self.start) {
            0 => 100,
            all => (u128::from(self.used()) * 100 / u128::from(all)) as u64,
        }
    }

    /// Whether `count` numbers are left.
    pub fn check(&self, count: u64) -> Result<(), LedgerError> {
        self.after(count).map(drop)
    }

    /// The next `count` numbers, and the state of the ledger after them.
    fn after(&self, count: u64) -> Result<Reservation, LedgerError> {
        if count > self.left() {
            let limit = self.end.saturating_sub(self.start);
            return Err(LedgerError::Spent { wanted: count, left: self.left(), limit });
        }
        let generation = self.generation.checked_add(1).ok_or(LedgerError::Damaged)?;
        let next = self.next + count;
        Ok(Reservation { numbers: self.next..next, state: LedgerState { generation, next, ..self.clone() } })
    }

    /// The bytes of a ledger's file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.slot().to_vec();
        bytes.resize(2 * SLOT, b'\n');
        bytes
    }

    /// Reads a ledger's file.
    pub fn from_bytes(bytes: &[u8]) -> Result<LedgerState, LedgerError> {
        newest(bytes).map(|(_, state)| state)
    }

    fn text(&self) -> String {
        let LedgerState { key, generation, start, next, end } = self;
        format!("{MAGIC}\nkey {key}\ngeneration {generation}\nstart {start}\nnext {next}\nend {end}\n")
    }

    /// A record: the text, its SHA-256, and newlines up to the record's length.
    fn slot(&self) -> [u8; SLOT] {
        let text = self.text();
        let text = format!("{text}sum {}\n", sum(&text));
        let mut slot = [b'\n'; SLOT];
        slot[..text.len()].copy_from_slice(text.as_bytes());
        slot
    }

    /// Reads the record in a slot; `None` if the record is not whole.
    fn of_slot(slot: &[u8]) -> Option<LedgerState> {
        let text = str::from_utf8(slot).ok()?.trim_end_matches('\n');
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if value("hypergrove")? != &MAGIC["hypergrove ".len()..] {
            return None;
        }
        let key = value("key")?.parse().ok()?;
        let mut number = |name: &str| value(name)?.parse().ok();
        let state = LedgerState {
            key,
            generation: number("generation")?,
            start: number("start")?,
            next: number("next")?,
            end: number("end")?,
        };
        let is_whole = state.slot() == *slot && state.start <= state.next && state.next <= state.end;
        is_whole.then_some(state)
    }
}

/// The newest record that is whole, and the index of its slot.
fn newest(bytes: &[u8]) -> Result<(usize, LedgerState), LedgerError> {
    if bytes.len() != 2 * SLOT {
        return Err(LedgerError::Damaged);
    }
    let whole = bytes.chunks_exact(SLOT).map(LedgerState::of_slot).enumerate();
    let whole = whole.filter_map(|(slot, state)| Some((slot, state?)));
    whole.max_by_key(|(_, state)| state.generation).ok_or(LedgerError::Damaged)
}

fn sum(text: &str) -> String {
    hex::encode(PreHash::Sha256.hash(&[text.as_bytes()]))
}

/// The error of a ledger that gives no number.
#[derive(Debug)]
pub enum LedgerError {
    /// The set has no limit, so its keys need no ledger.
    Unlimited {
        /// The set.
        set: &'static str,
    },
    /// Fewer numbers are left than are asked for.
    Spent {
        /// How many numbers were asked for.
        wanted: u64,
        /// How many numbers are left.
        left: u64,
        /// How many numbers the ledger had at its beginning.
        limit: u64,
    },
    /// The ledger belongs to another key.
    OtherKey {
        /// The fingerprint of the ledger's key.
        ledger: Fingerprint,
        /// The fingerprint of the key for which the ledger was opened.
        key: Fingerprint,
    },
    /// No record of the file is whole.
    Damaged,
    /// The note of the ledger's generation is empty or damaged, so nobody can tell whether the ledger is an older copy.
    DamagedNote {
        /// The file of the note.
        path: PathBuf,
    },
    /// The ledger is older than at its last use: somebody restored a copy.
    Restored {
        /// The generation of the ledger.
        generation: u64,
        /// The generation at its last use.
        known: u64,
    },
    /// Another process has locked the ledger for too long.
    Busy,
    /// These numbers were reserved, and then something failed: nobody gets them.
    Lost {
        /// The numbers.
        numbers: Range<u64>,
        /// The error that followed the reservation.
        error: Box<LedgerError>,
    },
    /// The file cannot be read, locked or written. No number was reserved.
    Io {
        /// The operation that failed, for example `read the ledger`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerError::Unlimited { set } => write!(f, "keys of {set} have no limit of signatures, and no ledger"),
            LedgerError::Spent { wanted, left, limit } => {
                write!(f, "{wanted} signatures are asked for, {left} of {limit} are left")
            }
            LedgerError::OtherKey { ledger, key } => write!(f, "this is the ledger of {ledger}, not of {key}"),
            LedgerError::Damaged => f.write_str("no record of this ledger is whole"),
            LedgerError::DamagedNote { path } => {
                write!(f, "{}: this note of a ledger's generation is empty or damaged", Quote::path(path))
            }
            LedgerError::Lost { numbers, error } => {
                write!(f, "{error}; the numbers {} to {} are lost", numbers.start, numbers.end.saturating_sub(1))
            }
            LedgerError::Restored { generation, known } => write!(
                f,
                "this ledger is at generation {generation}, and was at {known} before: an older copy was put back"
            ),
            LedgerError::Busy => f.write_str("another process has this ledger locked"),
            LedgerError::Io { action, path, source } => write!(f, "cannot {action} {}: {source}", Quote::path(path)),
        }
    }
}

impl std::error::Error for LedgerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LedgerError::Io { source, .. } => Some(source),
            LedgerError::Lost { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

/// A ledger in memory, for tests and for programs that keep the numbers elsewhere.
#[derive(Debug)]
pub struct MemoryLedger(Mutex<LedgerState>);

impl MemoryLedger {
    /// Makes a ledger that continues from this state.
    pub fn new(state: LedgerState) -> MemoryLedger {
        MemoryLedger(Mutex::new(state))
    }
}

impl Ledger for MemoryLedger {
    fn reserve(&self, count: u64) -> Result<Reservation, LedgerError> {
        let mut state = unpoisoned(&self.0);
        let reservation = state.after(count)?;
        *state = reservation.state.clone();
        Ok(reservation)
    }
    fn state(&self) -> Result<LedgerState, LedgerError> {
        Ok(unpoisoned(&self.0).clone())
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ledger in a file. The file has two records: each change overwrites the older one and waits for the disk. Processes lock the file
/// to take turns.
#[derive(Debug)]
pub struct FileLedger {
    path: PathBuf,
    key: Fingerprint,
    /// The file that notes the highest generation, away from the ledger.
    witness: Option<PathBuf>,
    /// The highest generation that this process saw.
    seen: Mutex<u64>,
}

impl FileLedger {
    /// Creates the file of a ledger. It is an error if the file exists.
    pub fn create(path: &Path, state: &LedgerState) -> Result<(), LedgerError> {
        let failed = |source| LedgerError::Io { action: "make the ledger", path: path.into(), source };
        let mut file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
        let written = file.write_all(&state.to_bytes()).and_then(|()| file.sync_all()).and_then(|()| sync_folder(path));
        written.map_err(|source| {
            // An error of the removal does not count: the first error is returned. Half a ledger would stop the next attempt.
            let _ = fs::remove_file(path);
            failed(source)
        })
    }

    /// Opens the ledger of this key.
    pub fn open(path: &Path, key: Fingerprint) -> Result<FileLedger, LedgerError> {
        FileLedger::open_with_witness(path, key, |_| None).map(|(ledger, _)| ledger)
    }

    /// Opens the ledger of this key, and notes its generation in the file that `witness` names, so that an older copy of the ledger is detected.
    /// That file is created if needed; a damaged one is an error. Put the file where no backup restores it together with the ledger. Returns the
    /// ledger's state too.
    pub fn open_with_witness(
        path: &Path,
        key: Fingerprint,
        witness: impl FnOnce(&LedgerState) -> Option<PathBuf>,
    ) -> Result<(FileLedger, LedgerState), LedgerError> {
        let mut ledger = FileLedger { path: path.into(), key, witness: None, seen: Mutex::new(0) };
        let mut state = ledger.state()?;
        ledger.witness = witness(&state);
        // A process that reserves may have changed the ledger and the note after this process read the ledger.
        if ledger.witnessed()? > state.generation {
            state = ledger.state()?;
        }
        Ok((ledger, state))
    }

    /// Locks, checks and reads the ledger, and reserves `count` numbers if there is a count. The reservation that is returned is on the disk.
    fn locked(&self, count: Option<u64>) -> Result<Reservation, LedgerError> {
        let mut seen = unpoisoned(&self.seen);
        let failed = |action| move |source| LedgerError::Io { action, path: self.path.clone(), source };
        let mut file = loop {
            let opened = open_regular(File::options().read(true).write(count.is_some()), &self.path);
            let file = opened.map_err(failed("open the ledger"))?;
            self.lock(&file)?;
            // Another file may have taken this file's place during the wait for the lock.
            if is_at(&file, &self.path) {
                break file;
            }
        };
        let mut bytes = Vec::with_capacity(2 * SLOT + 1);
        (&file).take(2 * SLOT as u64 + 1).read_to_end(&mut bytes).map_err(failed("read the ledger"))?;
        let (slot, state) = newest(&bytes)?;
        if state.key != self.key {
            return Err(LedgerError::OtherKey { ledger: state.key, key: self.key });
        }
        let known = self.witnessed()?.max(*seen);
        if state.generation < known {
            return Err(LedgerError::Restored { generation: state.generation, known });
        }
        let Some(count) = count else {
            *seen = state.generation;
            return Ok(Reservation { numbers: state.next..state.next, state });
        };
        let reservation = state.after(count)?;
        // The note is written before a number is reserved: if there is no room for the note, no number is lost.
        let note = self.witness.as_deref().map(|witness| Note::open(witness, state.generation));
        let note = note.transpose()?;
        // The change overwrites the older record. The newest record stays until the next change, because a record that is written in part does
        // not count.
        let at = SeekFrom::Start(((1 - slot) * SLOT) as u64);
        let written = file.seek(at).and_then(|_| file.write_all(&reservation.state.slot()));
        written.map_err(failed("write the ledger"))?;
        let lost = |error| match reservation.numbers.is_empty() {
            true => error,
            false => LedgerError::Lost { numbers: reservation.numbers.clone(), error: Box::new(error) },
        };
        file.sync_data().map_err(failed("write the ledger")).map_err(lost)?;
        *seen = reservation.state.generation;
        note.map_or(Ok(()), |note| note.set(reservation.state.generation)).map_err(lost)?;
        Ok(reservation)
    }

    fn lock(&self, file: &File) -> Result<(), LedgerError> {
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::WouldBlock) => return Err(LedgerError::Busy),
                Err(TryLockError::Error(source)) if source.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(source)) => {
                    return Err(LedgerError::Io { action: "lock the ledger", path: self.path.clone(), source });
                }
            }
        }
    }

    /// The generation that is noted; 0 if there is no note.
    fn witnessed(&self) -> Result<u64, LedgerError> {
        self.witness.as_deref().map_or(Ok(0), witnessed)
    }
}

/// Notes a generation in this file, whole or not at all: see [`FileLedger::open_with_witness`]. To replace a ledger by a newer one, note the
/// newer generation first: from then on the old ledger is an older copy.
pub fn note(witness: &Path, generation: u64) -> Result<(), LedgerError> {
    Note::open(witness, generation)?.set(generation)
}

/// The text of a note. All notes have one length, so that a note is overwritten in place: that needs no room, and no crash leaves the note empty.
fn note_text(generation: u64) -> String {
    format!("{generation:020}\n")
}

/// A note that exists, open to be written.
struct Note<'a> {
    path: &'a Path,
    file: File,
}

impl Note<'_> {
    /// Opens a note. A note that does not exist, or that has another length, is made with this generation.
    fn open(path: &Path, generation: u64) -> Result<Note<'_>, LedgerError> {
        let text = note_text(generation);
        if !fs::metadata(path).is_ok_and(|there| there.len() == text.len() as u64) {
            make_note(path, &text)?;
        }
        let file = open_regular(File::options().write(true), path).map_err(|source| failed_note(path, source))?;
        Ok(Note { path, file })
    }

    fn set(mut self, generation: u64) -> Result<(), LedgerError> {
        let written = self.file.write_all(note_text(generation).as_bytes());
        written.map_err(|source| failed_note(self.path, source))
    }
}

/// Makes a note, or leaves nothing behind.
fn make_note(path: &Path, text: &str) -> Result<(), LedgerError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let failed = |source| failed_note(&new, source);
    fs::create_dir_all(folder(path)).map_err(failed)?;
    // A process that was killed may have left this file.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).open(&new).map_err(failed)?;
    // The bytes go to the disk before the name: otherwise a crash could leave the name of an empty note.
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).and_then(|()| fs::rename(&new, path));
    written.map_err(|source| {
        // An error of the removal does not count: the first error is returned.
        let _ = fs::remove_file(&new);
        failed(source)
    })
}

fn failed_note(path: &Path, source: io::Error) -> LedgerError {
    LedgerError::Io { action: "write the ledger's note", path: path.into(), source }
}

/// Opens a regular file. Any other file is an error: opening a pipe would block.
fn open_regular(options: &OpenOptions, path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    options.open(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until a new file's name is on the disk. Windows has no such call.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder(path))?.sync_all() } else { Ok(()) }
}

/// Whether the path still leads to this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |there: &fs::Metadata| (there.dev(), there.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(open), Ok(named)) if id(&open) == id(&named))
}

/// On other systems than Unix, an open file is not replaced.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Reads the generation that this file notes, see [`FileLedger::open_with_witness`]; 0 if there is no such file. A text that is no number is an
/// error.
pub fn witnessed(witness: &Path) -> Result<u64, LedgerError> {
    /// More bytes than any number has.
    const LONGEST: u64 = 32;
    let mut text = Vec::new();
    let read = open_regular(File::options().read(true), witness);
    match read.and_then(|file| file.take(LONGEST).read_to_end(&mut text)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(source) => return Err(LedgerError::Io { action: "read the ledger's note", path: witness.into(), source }),
        Ok(_) => {}
    }
    let digits = text.trim_ascii_end();
    // `parse` alone would accept a sign.
    let number = digits.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(digits).ok()?.parse().ok());
    number.flatten().ok_or_else(|| LedgerError::DamagedNote { path: witness.into() })
}

impl Ledger for FileLedger {
    fn reserve(&self, count: u64) -> Result<Reservation, LedgerError> {
        self.locked(Some(count))
    }
    fn state(&self) -> Result<LedgerState, LedgerError> {
        self.locked(None).map(|reservation| reservation.state)
    }
}

/// Single numbers from a ledger that reserves many at once. At the end, and after a crash, the rest of a block is lost.
#[derive(Debug)]
pub struct Blocks<L> {
    ledger: L,
    block: u64,
    left: Mutex<Range<u64>>,
}

impl<L: Ledger> Blocks<L> {
    /// Makes a source of single numbers that reserves this many at once.
    pub fn new(ledger: L, block: u64) -> Blocks<L> {
        Blocks { ledger, block: block.max(1), left: Mutex::new(0..0) }
    }
    /// The number for the next signature.
    pub fn next(&self) -> Result<u64, LedgerError> {
        let (mut left, mut count) = (unpoisoned(&self.left), self.block);
        loop {
            if let Some(number) = left.next() {
                return Ok(number);
            }
            match self.ledger.reserve(count) {
                // Near the end, less than a block is left.
                Err(LedgerError::Spent { left: rest @ 1.., .. }) => count = rest,
                reserved => *left = reserved?.numbers,
            }
        }
    }
    /// The ledger.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }
}
