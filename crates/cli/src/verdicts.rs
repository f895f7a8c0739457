//! One verdict for each of many files, in the order in which they were given.

use crate::files::Source;
use hypergrove::Fingerprint;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Bar, Printer, grouped};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const KEPT: &str = "KEPT";

/// Whose signature it is.
pub(crate) struct By {
    pub(crate) set: &'static str,
    pub(crate) fingerprint: Fingerprint,
    /// What a list of signers calls the key.
    pub(crate) name: Option<String>,
}

/// What became of a file.
pub(crate) enum Verdict {
    /// Signed, or verified.
    Good(Arc<By>),
    /// The signature was there before.
    Kept,
    /// The signature is not the key's for this file.
    Invalid,
    /// There was nothing to judge, or nothing could be written.
    Error(Failure),
}

/// Collects verdicts as they become known and tells them in order.
pub(crate) struct Verdicts<'a> {
    printer: &'a Printer,
    bar: Bar,
    files: &'a [Source],
    /// Whether verdicts are told on standard output.
    lines: bool,
    good: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<usize, Verdict>,
    next: usize,
    good: u64,
    kept: u64,
    invalid: u64,
    errors: u64,
    /// Standard output takes no more.
    lost: Option<Failure>,
}

impl<'a> Verdicts<'a> {
    /// For these files; `doing` and `good` are the words for what is done and for its success.
    pub(crate) fn new(
        printer: &'a Printer,
        files: &'a [Source],
        lines: bool,
        doing: &'static str,
        good: &'static str,
    ) -> Verdicts<'a> {
        let bar = printer.progress(files.len(), doing);
        Verdicts { printer, bar, files, lines, good, state: Mutex::default() }
    }

    /// What became of file number `index`.
    pub(crate) fn tell(&self, index: usize, verdict: Verdict) {
        self.bar.inc(1);
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.insert(index, verdict);
        while let Some(verdict) = state.waiting.remove(&state.next) {
            self.say(state, state.next, &verdict);
            state.next += 1;
        }
    }

    fn say(&self, state: &mut State, index: usize, verdict: &Verdict) {
        let (word, count, quiet) = match verdict {
            Verdict::Good(_) => (self.good, &mut state.good, self.printer.quiet),
            Verdict::Kept => (KEPT, &mut state.kept, self.printer.quiet),
            Verdict::Invalid => ("FAILED", &mut state.invalid, false),
            Verdict::Error(_) => ("ERROR", &mut state.errors, false),
        };
        *count += 1;
        if let Verdict::Error(failure) = verdict {
            self.bar.suspend(|| self.printer.failure(failure));
        }
        let name = match verdict {
            Verdict::Good(by) => {
                let By { set, fingerprint, .. } = &**by;
                let detail = format_args!("{}: {word}, with the key {fingerprint} of {set}", self.files[index]);
                self.bar.suspend(|| self.printer.detail(detail));
                by.name.as_ref().map_or(String::new(), |name| format!(" ({name})"))
            }
            _ => String::new(),
        };
        if self.lines && !quiet && state.lost.is_none() {
            let line = || self.printer.line(format_args!("{}: {word}{name}", self.files[index])).err();
            state.lost = if self.printer.shared { self.bar.suspend(line) } else { line() };
        }
    }

    /// All verdicts are known, or no more can be.
    pub(crate) fn finish(self) -> Result<Exit, Failure> {
        let mut state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        for (index, verdict) in std::mem::take(&mut state.waiting) {
            self.say(&mut state, index, &verdict);
        }
        self.bar.finish_and_clear();
        if self.files.len() > 1 {
            let word = self.good;
            let counts = [(state.good, word), (state.kept, KEPT), (state.invalid, "FAILED"), (state.errors, "ERROR")];
            let told = counts.iter().filter(|(count, _)| *count > 0);
            let told: Vec<_> = told.map(|(count, word)| format!("{} {word}", grouped(*count))).collect();
            self.printer.note(told.join(", "));
        }
        match state.lost {
            // Whoever read the verdicts has gone; the exit code still tells.
            Some(lost) if !lost.silent => Err(lost),
            _ if state.errors > 0 => Ok(Exit::Error),
            _ if state.invalid > 0 => Ok(Exit::Invalid),
            _ => Ok(Exit::Good),
        }
    }
}
