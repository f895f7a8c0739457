//! The files that signatures are written to: none twice, none that is read, and many on their way to the disk together.

use crate::files::{Access, Entry, FileOutcome, FilesToSync, Replace, Source, Target};
use crate::verdicts::{SignedBy, Verdict, Verdicts};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::Printer;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The files that are signed, and where the signatures go.
#[derive(Clone, Copy)]
pub(crate) struct Outputs<'a> {
    pub(crate) files: &'a [Source],
    /// One for each file.
    pub(crate) targets: &'a [Target],
    /// The files that signatures may replace.
    pub(crate) replace: Replace<'a>,
    pub(crate) verdicts: &'a Verdicts<'a>,
    pub(crate) printer: &'a Printer,
}

/// The targets that files got so far.
pub(crate) struct Claims<'a> {
    outputs: &'a Outputs<'a>,
    /// The way out where two files have one target.
    hint: &'static str,
    taken: BTreeSet<Entry>,
}

impl<'a> Claims<'a> {
    pub(crate) fn new(outputs: &'a Outputs<'a>, hint: &'static str) -> Claims<'a> {
        Claims { outputs, hint, taken: BTreeSet::new() }
    }

    /// Whether a file's signature may be written, before it is made.
    pub(crate) fn claim(&mut self, index: usize) -> Result<(), Failure> {
        let (file, target) = (&self.outputs.files[index], &self.outputs.targets[index]);
        if target.entry().is_some_and(|entry| !self.taken.insert(entry)) {
            let what = format!("{file} would get the signature {target}, which another file has got");
            return Err(Failure::new(what).hint(self.hint));
        }
        target.check(Access::Public, false, self.outputs.replace)
    }
}

/// Signatures on their way to the disk, and who made them.
pub(crate) struct Writing<'a> {
    outputs: &'a Outputs<'a>,
    batch: FilesToSync,
    signers: BTreeMap<usize, Arc<SignedBy>>,
}

impl<'a> Writing<'a> {
    pub(crate) fn new(outputs: &'a Outputs<'a>) -> Writing<'a> {
        Writing { outputs, batch: FilesToSync::default(), signers: BTreeMap::new() }
    }

    /// Takes the signature of file number `index`, or why there is none.
    pub(crate) fn write(&mut self, index: usize, by: Arc<SignedBy>, signature: Result<Cow<'_, [u8]>, Failure>) {
        let Outputs { targets, replace, printer, .. } = *self.outputs;
        self.signers.insert(index, by);
        match signature.and_then(|bytes| targets[index].prepare(&bytes, Access::Public, replace)) {
            Ok(prepared) => {
                let outcomes = self.batch.add(index, prepared, printer);
                self.tell(outcomes);
            }
            Err(failure) => self.tell(vec![(index, Err(failure))]),
        }
    }

    /// Writes what waits.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let outcomes = self.batch.flush(self.outputs.printer);
        self.tell(outcomes);
        self.batch.finish()
    }

    fn tell(&mut self, outcomes: Vec<FileOutcome>) {
        for (index, written) in outcomes {
            let by = self.signers.remove(&index).expect("whoever signed it");
            self.outputs.verdicts.tell(index, written.map_or_else(Verdict::Error, |()| Verdict::Good(by)));
        }
    }
}
