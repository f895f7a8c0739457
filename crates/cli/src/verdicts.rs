//! One verdict for each of many files, in the order in which they were given.

use crate::files::{Source, text};
use crate::json::{Counts, FileLine, Line, Word};
use crate::schemes::InTool;
use hypergrove::Fingerprint;
use hypergrove::schemes::SchemeKey;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Bar, Name, Printer, Visible, grouped};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Whose signature it is.
pub(crate) struct SignedBy {
    pub(crate) set: &'static str,
    pub(crate) fingerprint: Fingerprint,
    /// The name of the key in a list of signers.
    pub(crate) name: Option<String>,
}

impl SignedBy {
    pub(crate) fn of<S: InTool>(key: &S::VerifyingKey, name: Option<String>) -> Arc<SignedBy> {
        Arc::new(SignedBy { set: key.scheme().name(), fingerprint: S::fingerprint(key), name })
    }
}

/// The verdict on a file.
pub(crate) enum Verdict {
    /// Signed, or verified.
    Good(Arc<SignedBy>),
    /// The signature was there before.
    Kept,
    /// A file of a manifest has its sum.
    Intact,
    /// A file is not in the manifest.
    Extra,
    /// The signature is not the key's for this file.
    Invalid,
    /// There was nothing to judge, or nothing could be written.
    Error(Failure),
}

impl Verdict {
    /// `good` if the file is what it should be; an error if nobody could tell.
    pub(crate) fn of(is_good: Result<bool, Failure>, good: Verdict) -> Verdict {
        is_good.map_or_else(Verdict::Error, |is_good| if is_good { good } else { Verdict::Invalid })
    }
}

/// Advice on a signature that fails.
pub(crate) struct Advice {
    pub(crate) sentence: String,
    /// A command that would succeed.
    pub(crate) command: Option<String>,
}

/// A remark that is printed with a verdict.
pub(crate) enum Remark {
    /// The fault of a signature that fails.
    Advice(Advice),
    /// The comment that the signer has written into the envelope, and signed.
    Comment(String),
}

impl From<Advice> for Remark {
    fn from(advice: Advice) -> Remark {
        Remark::Advice(advice)
    }
}

/// How verdicts are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictFormat {
    /// Not at all: one file was signed, and a note says so.
    Silent,
    /// A line for each file.
    Lines,
    /// A line for each file on standard error, because a message goes to standard output.
    Notes,
    /// A line of JSON for each file, and a summary.
    Json,
}

/// Collects verdicts as they become known and reports them in order.
pub(crate) struct Verdicts<'a> {
    printer: &'a Printer,
    bar: Bar,
    files: &'a [Source],
    /// The signatures' paths, of those that have one.
    signatures: &'a (dyn Fn(usize) -> Option<String> + Sync),
    format: VerdictFormat,
    good: Word,
    /// Whether the files' names are from a list that somebody has signed: they are no private keys.
    pub(crate) are_names_signed: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<usize, (Verdict, Option<Remark>)>,
    next: usize,
    counts: Counts,
    /// Standard output takes no more.
    lost: Option<Failure>,
}

/// A verdict as people read it.
fn shown(word: Word) -> &'static str {
    match word {
        Word::Ok => "OK",
        Word::Signed => "SIGNED",
        Word::Kept => "KEPT",
        Word::Failed => "FAILED",
        Word::Extra => "EXTRA",
        Word::Error => "ERROR",
    }
}

impl<'a> Verdicts<'a> {
    /// For these files, whose signatures have these paths; `doing` and `good` are the words for what is done and for its success.
    pub(crate) fn new(
        printer: &'a Printer,
        files: &'a [Source],
        signatures: &'a (dyn Fn(usize) -> Option<String> + Sync),
        format: VerdictFormat,
        doing: &'static str,
        good: Word,
    ) -> Verdicts<'a> {
        let bar = printer.progress(files.len(), doing);
        Verdicts { printer, bar, files, signatures, format, good, are_names_signed: false, state: Mutex::default() }
    }

    /// Reports the verdict on file number `index`.
    pub(crate) fn tell(&self, index: usize, verdict: Verdict) {
        self.tell_with(index, verdict, None);
    }

    /// Reports a verdict, and a remark on it.
    pub(crate) fn tell_with(&self, index: usize, verdict: Verdict, remark: Option<Remark>) {
        self.bar.inc(1);
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.insert(index, (verdict, remark));
        while let Some((verdict, remark)) = state.waiting.remove(&state.next) {
            self.say(state, state.next, &verdict, remark);
            state.next += 1;
        }
    }

    /// A file's name in its verdict. Of a file that nobody has read, the name may be a private key.
    fn name(&self, index: usize, verdict: &Verdict) -> String {
        match (&self.files[index], verdict) {
            (Source::File(path), Verdict::Invalid | Verdict::Error(_)) if !self.are_names_signed => text(path),
            (Source::File(path), _) => path.to_string_lossy().into_owned(),
            (Source::Stdin, _) if self.format == VerdictFormat::Json => "-".into(),
            (Source::Stdin, _) => Source::Stdin.to_string(),
        }
    }

    fn say(&self, state: &mut State, index: usize, verdict: &Verdict, remark: Option<Remark>) {
        let word = match verdict {
            Verdict::Good(_) => self.good,
            Verdict::Kept => Word::Kept,
            Verdict::Intact => Word::Ok,
            Verdict::Extra => Word::Extra,
            Verdict::Invalid => Word::Failed,
            Verdict::Error(_) => Word::Error,
        };
        state.counts.add(word);
        let name = self.name(index, verdict);
        let file = Name(&name);
        let is_bad = matches!(word, Word::Failed | Word::Extra | Word::Error);
        let line = match (self.format, verdict) {
            (VerdictFormat::Json, verdict) => {
                let line = FileLine::new(name.clone(), word);
                let line = FileLine { signature: (self.signatures)(index), ..line };
                let line = match verdict {
                    Verdict::Good(by) => {
                        let (key, signer) = (Some(by.fingerprint.to_string()), by.name.clone());
                        FileLine { set: Some(by.set), key, signer, ..line }
                    }
                    Verdict::Error(failure) => line.because(failure),
                    _ => line,
                };
                Line::File(match remark {
                    Some(Remark::Advice(Advice { sentence, command })) => {
                        FileLine { diagnosis: Some(sentence), command, ..line }
                    }
                    Some(Remark::Comment(comment)) => FileLine { comment: Some(comment), ..line },
                    None => line,
                })
                .text()
            }
            (_, Verdict::Good(by)) => {
                let SignedBy { set, fingerprint, name } = &**by;
                let line = format!("{file}: {}", shown(word));
                let detail = format_args!("{line}, with the key {fingerprint} of {set}");
                self.bar.suspend(|| self.printer.detail(detail));
                if let Some(Remark::Comment(comment)) = remark {
                    let comment = format_args!("{file}: comment: {comment}");
                    self.bar.suspend(|| self.printer.note(comment));
                }
                name.as_ref().map_or(line.clone(), |name| format!("{line} ({})", Visible(name)))
            }
            (_, verdict) => {
                if let Verdict::Error(failure) = verdict {
                    self.bar.suspend(|| self.printer.failure(failure));
                }
                if let Some(Remark::Advice(Advice { sentence, command })) = remark {
                    let sentence = format_args!("{file}: {sentence}");
                    self.bar.suspend(|| self.printer.diagnosis(sentence, command.as_deref()));
                }
                format!("{file}: {}", shown(word))
            }
        };
        if self.format == VerdictFormat::Notes && (is_bad || !self.printer.quiet) {
            self.printer.verdict(&line);
        } else if self.format != VerdictFormat::Silent && (is_bad || !self.printer.quiet) && state.lost.is_none() {
            let print = || self.printer.line(&line).err();
            state.lost = if self.printer.shared { self.bar.suspend(print) } else { print() };
        }
    }

    /// All verdicts are known, or no more can be: `done` says whether the work ended as it should.
    pub(crate) fn finish(self, done: Result<(), Failure>) -> Result<Exit, Failure> {
        let mut state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        for (index, (verdict, remark)) in std::mem::take(&mut state.waiting) {
            self.say(&mut state, index, &verdict, remark);
        }
        self.bar.finish_and_clear();
        let counts = state.counts;
        let exit = match counts {
            Counts { error: 1.., .. } => Exit::Error,
            Counts { failed: 1.., .. } | Counts { extra: 1.., .. } => Exit::Invalid,
            _ => Exit::Good,
        };
        if self.format == VerdictFormat::Json {
            let exit = if done.is_ok() { exit } else { Exit::Error };
            if state.lost.is_none() {
                state.lost = Line::summary(counts, exit).print(self.printer).err();
            }
        } else if self.files.len() > 1 {
            let Counts { ok, signed, kept, failed, extra, error, .. } = counts;
            let counts = [
                (ok, Word::Ok),
                (signed, Word::Signed),
                (kept, Word::Kept),
                (failed, Word::Failed),
                (extra, Word::Extra),
                (error, Word::Error),
            ];
            let counted = counts.iter().filter(|(count, _)| *count > 0);
            let counted: Vec<_> =
                counted.map(|(count, word)| format!("{} {}", grouped(*count), shown(*word))).collect();
            self.printer.note(counted.join(", "));
        }
        match state.lost {
            // Whoever read the verdicts has gone; the exit code still tells.
            Some(lost) if !lost.silent => Err(lost),
            _ => done.map(|()| exit),
        }
    }
}
