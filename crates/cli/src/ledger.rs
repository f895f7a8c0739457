//! `hypergrove ledger`, and what signing by keys of limited sets has to do with it.

use crate::args::{self, Ledger, LedgerCommand, LedgerInit, LedgerKey, LedgerLease, LedgerShow};
use crate::files::{Access, Replace, Source, Sources, Target};
use crate::json::{LedgerLine, Line};
use crate::keys::KeyFile;
use hypergrove::{SlhDsa, VerifyingKey};
use hypergrove_files::ledger::{FileLedger, Ledger as _, LedgerError, LedgerState, Reservation, note, witnessed};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The percentages of used signatures at which a warning begins, and at which it becomes urgent.
const WARNINGS: [u64; 2] = [50, 90];

/// The ledger of a key.
pub(crate) struct KeyLedger {
    path: PathBuf,
    ledger: FileLedger,
    /// The state of the ledger when it was opened.
    opened: LedgerState,
}

/// The ledger that a key has to have; none if its set has no limit, or if it is another scheme's key.
pub(crate) fn of(
    key: Option<&VerifyingKey>,
    source: &Source,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Option<KeyLedger>, Failure> {
    let Some(key) = key else { return Ok(None) };
    match key.params().signature_limit() {
        Some(_) => KeyLedger::open(key, path(source, named)?, printer).map(Some),
        None => match named {
            Some(path) => Err(failed(LedgerError::Unlimited { set: key.params().name }, path)),
            None => Ok(None),
        },
    }
}

/// KEY.ledger, unless another file is named.
fn path(source: &Source, named: Option<&Path>) -> Result<PathBuf, Failure> {
    match (named, source) {
        (Some(path), _) => Ok(path.into()),
        (None, Source::File(key)) => {
            let mut path = key.clone().into_os_string();
            path.push(".ledger");
            Ok(path.into())
        }
        (None, Source::Stdin) => Err(Failure::new("the ledger of a key from standard input has no name of its own")
            .hint("name it with --ledger")),
    }
}

/// Where the generation of a ledger is noted: away from the ledger, so that a copy of it that is put back is noticed. The ledgers of
/// leases have notes of their own.
fn witness(state: &LedgerState) -> Option<PathBuf> {
    let name = format!("{}-{}-{}", hex::encode(state.key.as_bytes()), state.start, state.end);
    machine::ledgers().map(|folder| folder.join(name))
}

/// Says once that restored ledgers are not noticed, where no directory for notes is known.
fn warn_without_notes(printer: &Printer) {
    static ONCE: Once = Once::new();
    let name = if cfg!(windows) { "LOCALAPPDATA" } else { "HOME" };
    if machine::ledgers().is_none() {
        ONCE.call_once(|| {
            printer.warning(format_args!(
                "no directory for notes about ledgers is known, so a ledger that is restored from a backup is not noticed: set \
                 XDG_STATE_HOME or {name} to an absolute path"
            ));
        });
    }
}

fn failed(error: LedgerError, path: &Path) -> Failure {
    let error = match error {
        LedgerError::Lost { numbers, error } => return also(failed(*error, path), &lost(&numbers)),
        error => error,
    };
    let shown = PathDisplay(path);
    match &error {
        LedgerError::Io { path: of, source, .. } if of.as_path() == path && source.kind() == ErrorKind::NotFound => {
            Failure::new(format!("{shown}: there is no such ledger, and keys of limited sets sign by one")).hint(
                "name the ledger with --ledger; a new key gets one by `hypergrove ledger init KEY`, a key that has signed by `hypergrove ledger init \
                 KEY --used N`",
            )
        }
        LedgerError::Io { action, path: of, source } => {
            let failure = Failure::io(action, PathDisplay(of), source);
            match source.kind() {
                ErrorKind::InvalidInput if of.as_path() == path => failure.hint("name the ledger with --ledger"),
                ErrorKind::InvalidInput => failure.hint("remove it, if no older copy of the ledger was put back"),
                _ => failure,
            }
        }
        LedgerError::DamagedNote { path } => {
            Failure::new("this note about a ledger is empty or damaged, so nobody can tell whether the ledger is an older copy")
                .of(PathDisplay(path))
                .hint(
                    "if no older copy of the ledger was put back, remove the note: the tool makes it anew; if you are unsure, remove the note \
                     and run `hypergrove ledger init KEY --used N --force` with the number of signatures that were made, at least",
                )
        }
        _ => {
            let failure = Failure::new(error.to_string()).of(shown);
            match error {
                LedgerError::Spent { .. } => {
                    failure.hint("make a new key, or lease numbers of this key on a machine that has some")
                }
                LedgerError::Restored { .. } => failure.hint(
                    "put the newest ledger back; if it is lost, count the key's signatures and run `hypergrove ledger init KEY \
                     --used N --force`",
                ),
                LedgerError::Damaged => failure.hint(
                    "it is cut short or no ledger; if no copy is newer than the last signature, run `hypergrove ledger init KEY \
                     --used N --force` with the number of signatures that were made, at least",
                ),
                LedgerError::OtherKey { .. } => failure.hint("name this key's ledger with --ledger"),
                LedgerError::Unlimited { .. } => failure.hint("sign with this key without a ledger"),
                LedgerError::Busy => failure.hint("wait for the other run, or end it"),
                _ => failure,
            }
        }
    }
}

/// The remark on numbers that nobody gets.
fn lost(numbers: &Range<u64>) -> String {
    format!("the numbers {} to {} are lost", grouped(numbers.start), grouped(numbers.end.saturating_sub(1)))
}

/// Adds to the hint of a failure.
fn also(failure: Failure, what: &str) -> Failure {
    let hint = failure.hint.as_ref().map_or_else(|| what.into(), |hint| format!("{hint}; {what}"));
    failure.hint(hint)
}

impl KeyLedger {
    fn open(key: &VerifyingKey, path: PathBuf, printer: &Printer) -> Result<KeyLedger, Failure> {
        warn_without_notes(printer);
        match FileLedger::open_with_witness(&path, key.fingerprint(), witness) {
            Ok((ledger, opened)) => Ok(KeyLedger { path, ledger, opened }),
            Err(error) => Err(failed(error, &path)),
        }
    }

    /// Adds the ledger and its note to the files that are read.
    pub(crate) fn add_to(&self, read: &mut Sources) {
        let ledger = Source::File(self.path.clone());
        read.add(format_args!("the ledger {ledger}"), &ledger);
        add_note(witness(&self.opened).as_deref(), read);
    }

    /// Refuses, before any work is done, more signatures than are left.
    pub(crate) fn check(&self, signatures: usize) -> Result<(), Failure> {
        self.opened.check(signatures as u64).map_err(|error| failed(error, &self.path))
    }

    /// Reserves numbers for so many signatures, before any of them is made.
    pub(crate) fn reserve(&self, signatures: usize, printer: &Printer) -> Result<(), Failure> {
        if signatures == 0 {
            return Ok(());
        }
        let reserved = self.take(signatures as u64)?;
        warn(&reserved.state, &self.path, printer);
        Ok(())
    }

    /// Reserves numbers; the error says which are lost.
    fn take(&self, count: u64) -> Result<Reservation, Failure> {
        self.ledger.reserve(count).map_err(|error| {
            let is_io = matches!(error, LedgerError::Io { .. });
            let failure = failed(error, &self.path);
            if is_io { also(failure, "no number is lost") } else { failure }
        })
    }
}

/// Adds the note about a ledger to the files that are read.
fn add_note(note: Option<&Path>, read: &mut Sources) {
    if let Some(path) = note {
        read.add(format_args!("the note {}", PathDisplay(path)), &Source::File(path.into()));
    }
}

fn warn(state: &LedgerState, path: &Path, printer: &Printer) {
    let (percent, all) = (state.percent(), grouped(state.end - state.start));
    let advice = match WARNINGS.iter().filter(|warning| percent >= **warning).count() {
        0 => return,
        1 => "plan for a new key",
        _ => "make a new key now",
    };
    printer.warning(format_args!("{}: {percent} % of {all} signatures are used: {advice}", PathDisplay(path)));
}

pub(crate) fn run(args: &Ledger, read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    match &args.command {
        LedgerCommand::Init(args) => init(args, read, printer),
        LedgerCommand::Show(args) => show(args, printer),
        LedgerCommand::Lease(args) => lease(args, read, printer),
    }
}

/// The public key that is named, and the file of its ledger.
fn key(args: &LedgerKey) -> Result<(VerifyingKey, PathBuf), Failure> {
    args::one_stdin([Some(args.key.as_path()), args.passphrase.path().as_deref()].into_iter().flatten())?;
    let source = Source::from(args.key.as_path());
    let path = path(&source, args.ledger.as_deref())?;
    let key = KeyFile::read(source, Some(&args.passphrase))?.public::<SlhDsa>(args.of.set)?;
    Ok((key, path))
}

fn init(args: &LedgerInit, mut read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    let (key, path) = key(&args.key)?;
    let new = LedgerState::new(&key).map_err(|error| failed(error, &path))?;
    if let Some(used) = args.used.filter(|used| *used > new.end) {
        let (used, end) = (grouped(used), grouped(new.end));
        return Err(Failure::new(format!("--used {used}: a key of {} makes at most {end} signatures", key.params()))
            .hint("make a new key"));
    }
    let (target, noted) = (Target::File(path.clone()), witness(&new));
    warn_without_notes(printer);
    add_note(noted.as_deref(), &mut read);
    let replace = Replace { force: args.overwrite.force, read: &read };
    target.check(Access::Public, false, replace)?;
    target.regular("a ledger")?;
    let known = noted.as_deref().map_or(Ok(0), witnessed).map_err(|error| failed(error, &path))?;
    let used = match args.used {
        Some(used) => used,
        None if known > 0 || fs::symlink_metadata(&path).is_ok() => {
            return Err(Failure::new(format!("{target}: this key has had a ledger, so it may have signed"))
                .hint("say with --used how many signatures it has made, at least"));
        }
        None => 0,
    };
    let generation = known.checked_add(1).ok_or_else(|| failed(LedgerError::Damaged, &path))?;
    let state = LedgerState { next: used, generation, ..new };
    // The note comes first: from here on, a ledger that the new one replaces is an older copy.
    if let Some(noted) = &noted {
        note(noted, generation).map_err(|error| failed(error, &path))?;
    }
    target.write(&state.to_bytes(), Access::Public, replace, printer)?;
    printer.note(format_args!("wrote {target}: {} signatures are left", grouped(state.left())));
    Ok(Exit::Good)
}

fn show(args: &LedgerShow, printer: &Printer) -> Result<Exit, Failure> {
    let (key, path) = key(&args.key)?;
    let ledger = KeyLedger::open(&key, path, printer)?;
    let state = &ledger.opened;
    if args.json {
        let line = LedgerLine {
            ledger: Source::File(ledger.path.clone()).path_text(),
            key: state.key.to_string(),
            set: key.params().name,
            generation: state.generation,
            start: state.start,
            next: state.next,
            end: state.end,
            used: state.used(),
            left: state.left(),
        };
        Line::Ledger(line).print(printer)?;
        return Ok(Exit::Good);
    }
    let say = |name: &str, value: String| printer.line(format_args!("{name:<11} {value}"));
    say("key", format!("{} of {}", state.key, key.params()))?;
    say("numbers", format!("{} to {}", grouped(state.start), grouped(state.end.saturating_sub(1))))?;
    say("used", format!("{}, {} %", grouped(state.used()), state.percent()))?;
    say("left", grouped(state.left()))?;
    say("generation", grouped(state.generation))?;
    Ok(Exit::Good)
}

fn lease(args: &LedgerLease, mut read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    let (key, path) = key(&args.key)?;
    let ledger = KeyLedger::open(&key, path, printer)?;
    ledger.add_to(&mut read);
    let (target, replace) = (Target::File(args.output.clone()), Replace { force: args.overwrite.force, read: &read });
    target.check(Access::Public, false, replace)?;
    target.regular("a ledger")?;
    let reserved = ledger.take(args.count.get())?;
    let numbers = reserved.numbers;
    let lease = LedgerState {
        // A lease of all numbers has its parent's note.
        generation: reserved.state.generation,
        start: numbers.start,
        next: numbers.start,
        end: numbers.end,
        ..reserved.state.clone()
    };
    let written = target.write(&lease.to_bytes(), Access::Public, replace, printer);
    written.map_err(|failure| also(failure, &lost(&numbers)))?;
    printer.note(format_args!(
        "wrote {target}: the ledger of {} signatures for another machine; {} are left here",
        grouped(args.count.get()),
        grouped(reserved.state.left())
    ));
    warn(&reserved.state, &ledger.path, printer);
    Ok(Exit::Good)
}
