//! Calls of rows: their columns, and the caller's memory for their results.

use super::block::RowBlock;
use super::columns::CallColumns;
use super::foreign::RowMemory;
use super::inputs::RowInputs;
use super::results::Results;
use super::status::RowStatus;
use crate::flow::Progress;
use crate::scheme::{ParameterSet, Scheme};
use crate::{Error, ErrorKind};
use hypergrove_engine::scheduler::{Checks, IsWanted, Scheduler};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A call of rows. Results that the scheduler did not hand out are not trusted: they are zeroed on drop, also after a panic.
pub(crate) struct CallOfRows<'m, C> {
    pub(crate) columns: C,
    results: Results<'m>,
    rows: usize,
    /// The number of rows whose results were handed out.
    handed_out: usize,
    /// The first error that kept rows from being computed.
    lost: Result<(), Error>,
}

impl<'m, C> CallOfRows<'m, C> {
    /// A call whose columns were checked.
    pub(crate) fn new(columns: C, rows: usize, results: Results<'m>) -> CallOfRows<'m, C> {
        CallOfRows { columns, results, rows, handed_out: 0, lost: Ok(()) }
    }

    /// The rows that have no results yet.
    pub(crate) fn left(&self) -> Range<usize> {
        self.handed_out..self.rows
    }

    /// Hands out the results of the next rows, which `work` writes.
    pub(crate) fn hand_out(
        &mut self,
        rows: usize,
        status: RowStatus,
        work: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let next = self.handed_out..self.handed_out + rows;
        self.results.write(next.clone(), work)?;
        self.results.statuses[next.clone()].fill(status);
        self.handed_out = next.end;
        Ok(())
    }
}

impl<C> Drop for CallOfRows<'_, C> {
    fn drop(&mut self) {
        self.results.forget(self.left(), RowStatus::NotComputed);
    }
}

impl<'m, 'a, S: Scheme> CallOfRows<'m, RowInputs<'a, S>> {
    /// A call that was not checked, and has no rows yet. Signatures go to the memory `into`, if there is one, in place of the call's.
    pub(super) fn of(call: &'m mut CallColumns<'_, 'a, S>, into: Option<RowMemory<'m>>) -> Self {
        let (columns, results) = match call {
            CallColumns::Sign { rows, signatures, statuses } => {
                (RowInputs::Sign(*rows), Results::new(into.unwrap_or(RowMemory::Own(signatures)), 0, statuses))
            }
            CallColumns::Verify { rows, statuses } => {
                (RowInputs::Verify(*rows), Results::new(RowMemory::Own(&mut []), 0, statuses))
            }
            CallColumns::Keygen { params, seeds, private, public } => {
                let (set, is_wanted) = (params.scheme(), public.is_some());
                let widths = [set.sizes().private, if is_wanted { set.sizes().public } else { 0 }];
                let columns = [&mut **private, public.as_deref_mut().unwrap_or_default()];
                (
                    RowInputs::Keygen { set, seeds: *seeds },
                    Results { columns, widths, foreign: None, statuses: &mut [] },
                )
            }
        };
        CallOfRows::new(columns, 0, results)
    }

    /// Checks the columns. Returns the number of rows.
    pub(super) fn check(&self) -> Result<usize, Error> {
        let Results { columns: [private, public], widths: [of_private, of_public], statuses, .. } = &self.results;
        if let RowInputs::Keygen { .. } = self.columns {
            let rows = private.len() / of_private;
            Error::check_length("the column of private keys", rows * of_private, private.len())?;
            Error::check_length("the column of public keys", rows * of_public, public.len())?;
            return self.columns.check(rows).map(|()| rows);
        }
        self.columns.check(statuses.len())?;
        let wanted = statuses.len().saturating_mul(self.columns.signature());
        Error::check_length("the memory for signatures", wanted, self.results.size())?;
        Ok(statuses.len())
    }

    /// The bytes of memory that the columns and the results occupy.
    pub(super) fn size(&self) -> usize {
        let Results { columns: [first, second], statuses, .. } = &self.results;
        self.columns.size() + first.len() + second.len() + statuses.len()
    }

    /// Begins the call: checks it, and clears what an earlier call has left in the memory for results.
    fn begin(mut self) -> Result<Self, Error> {
        // A status of an earlier call must not look like one of this call.
        self.results.statuses.fill(RowStatus::NotComputed);
        let rows = self.check().inspect_err(|_| {
            // After any error the caller gets no keys.
            if let RowInputs::Keygen { .. } = self.columns {
                self.results.columns.iter_mut().for_each(|column| column.fill(0));
            }
        });
        self.rows = rows?;
        if let RowInputs::Sign(_) = self.columns {
            self.results.widths[0] = self.columns.signature();
        }
        Ok(self)
    }

    /// All rows of the call as one block, and the number of its rows whose results were handed out.
    fn block<'l>(&'l mut self, is_wanted: IsWanted<'l>, checks: Checks) -> (RowBlock<'l, 'a, S>, &'l mut usize) {
        let CallOfRows { columns, results, rows, handed_out, .. } = self;
        (RowBlock::new(columns, *rows, results.lend(), is_wanted, checks), handed_out)
    }

    /// Clears the results of rows that the scheduler did not compute, and keeps the error.
    fn lose(&mut self, rows: Range<usize>, why: Error) {
        let status = match why.kind() {
            ErrorKind::OutOfMemory => RowStatus::OutOfMemory,
            _ => RowStatus::NotComputed,
        };
        if status == RowStatus::NotComputed {
            self.lost = self.lost.clone().and(Err(why));
        }
        self.results.forget(rows, status);
    }

    /// Returns the result of this call. The error of `all` calls does not concern a call that is complete.
    fn result(self, all: &Result<(), Error>) -> Result<(), Error> {
        let are_done = self.rows > 0 && self.left().is_empty();
        let all = if are_done { Ok(()) } else { all.clone() };
        all.and(self.lost.clone())
    }
}

/// Runs calls of one kind as one call of the scheduler, so that their rows may share a chunk. A call that was not lent keeps its error. Signatures go to
/// the memory `into`, if there is one, in place of the call's. Once the calls are not wanted any more, no chunk begins. Returns the result of each call.
/// Without `progress` a panic is an error of all calls that are not complete.
pub(crate) fn run_calls<S: Scheme>(
    scheduler: &Scheduler,
    lent: &mut [Result<CallColumns<'_, '_, S>, Error>],
    mut into: Option<RowMemory<'_>>,
    is_wanted: IsWanted<'_>,
    mut progress: Option<Progress<'_>>,
) -> Vec<Result<(), Error>> {
    let mut calls = Vec::with_capacity(lent.len());
    let begun = lent.iter_mut().map(|lent| {
        let lent = lent.as_mut().map_err(|why| why.clone())?;
        CallOfRows::of(lent, into.take()).begin().map(|call| calls.push(call))
    });
    let begun: Vec<Result<(), Error>> = begun.collect();
    let kind = calls.first().map(|call| call.columns.kind());
    let make_keys = calls.first().is_some_and(|call| matches!(call.columns, RowInputs::Keygen { .. }));
    let (mut completed, mut refused, mut failed) = (0, Vec::new(), Ok(()));
    let done = caught(|| {
        // A kind that no device takes is an error of the calls, not of their rows.
        kind.map_or(Ok(()), |kind| scheduler.check_kind(kind))?;
        let open = calls.iter_mut().enumerate().filter(|(_, call)| call.rows > 0);
        let open = open.map(|(nth, call)| {
            let rows = call.rows;
            let (block, handed_out) = call.block(is_wanted, scheduler.work.checks);
            (block, (nth, rows, handed_out))
        });
        let (blocks, open): (Vec<_>, Vec<_>) = open.unzip();
        let (rows, mut open) = (open.iter().map(|(_, rows, _)| rows).sum(), open.into_iter().peekable());
        scheduler.run(None, Some(rows), &mut blocks.into_iter(), &mut |count, done| {
            let (nth, rows, handed_out) = open.peek_mut().expect("its call has rows left");
            let these = **handed_out..**handed_out + count;
            match done {
                Err(why) if make_keys => {
                    failed = Err(why);
                    return ControlFlow::Break(());
                }
                Err(why) => refused.push((*nth, these.clone(), why)),
                Ok(()) => {}
            }
            **handed_out = these.end;
            completed += count;
            let flow = progress.as_mut().map_or(ControlFlow::Continue(()), |progress| progress(completed));
            if make_keys && flow.is_break() {
                **handed_out = 0;
            }
            if these.end == *rows {
                open.next();
            }
            flow
        })
    });
    // This also runs after a panic: completed calls keep their results.
    refused.into_iter().for_each(|(nth, rows, why)| calls[nth].lose(rows, why));
    for call in calls.iter_mut().filter(|call| make_keys && !call.left().is_empty()) {
        call.handed_out = 0;
    }
    let done = done.unwrap_or_else(|panic| match progress {
        Some(_) => resume_unwind(panic),
        None => Err(scheduler.panicked("this set of rows")),
    });
    let (done, mut calls) = (done.and(failed), calls.into_iter());
    let mut result = |()| calls.next().expect("a call for each that was begun").result(&done);
    begun.into_iter().map(|begun| begun.and_then(&mut result)).collect()
}

/// Catches a panic of `work`. Nothing that `work` leaves unfinished may be used afterwards.
pub(super) fn caught<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(work))
}
