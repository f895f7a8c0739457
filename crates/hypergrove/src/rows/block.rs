//! Rows as the scheduler sees them: in blocks.

use super::foreign::{Copied, ForeignColumns, ForeignTarget, copied_bytes, copies_at_a_time, copy_columns};
use super::{RowMemory, RowStatus};
use crate::{Error, ErrorKind, check_length};
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::{Checks, IsWanted, Job, Outcomes, Place, Run, Scheduler, zeros};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::trace::{self, Step};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use zeroize::Zeroize;

/// The fewest rows that a thread reads: reading one row takes less than a microsecond.
const ROWS_OF_A_THREAD: usize = 512;

/// Up to this many rows, the calling thread reads alone: waking other threads would take longer. (Reading 1,024 rows takes 18 µs. Other threads
/// begin after 0.1 ms.)
const FEW_ROWS: usize = 1024;

/// The columns of a call, for any type of rows.
pub(crate) trait RowColumns: Send + Sync {
    fn kind(&self) -> Kind;
    /// Whether the call makes keys. Such a call reads no rows and has no statuses, and the caller gets all keys or none.
    fn are_keys(&self) -> bool {
        false
    }
    /// The bytes of a row's results in each of the caller's columns.
    fn widths(&self) -> [usize; 2];
    /// Checks the columns of a call with this number of rows. Errors of a single row are found by [`Rows::reader`] instead.
    fn check(&self, rows: usize) -> Result<(), Error>;
    /// The bytes of memory that the columns occupy.
    fn inputs(&self) -> usize;
    /// The foreign columns, whose rows are copied before they are read.
    fn foreign(&self) -> ForeignColumns<'_> {
        [None; 3]
    }
    /// The bytes of memory that a row needs in addition to the caller's. They include what [`Rows::reader`] keeps of the row.
    fn held(&self, facts: &GroupFacts, checks: Checks) -> usize;
}

/// Copies of a row's values in foreign columns.
pub(super) type Copies<'m> = [Option<&'m [u8]>; 3];

/// A reference to the columns of a call of rows.
pub(super) trait Rows: RowColumns + Copy {
    /// The values of a row, with a reference to its columns, because a device may run rows of several calls together.
    type Row<'m>: Copy + Send + Sync
    where
        Self: 'm;
    /// Returns a function that reads a row, given the row's number and its copies from foreign columns. The function returns a status for a row that
    /// cannot be computed. Only this function checks lengths and offsets.
    fn reader<'m>(self) -> impl Fn(usize, Copies<'m>) -> Result<Self::Row<'m>, RowStatus> + Sync
    where
        Self: 'm;
}

/// The rows of blocks that are computed together, all of one group.
pub(super) struct LentRows<'l> {
    pub(super) run: &'l Run<'l>,
    pub(super) blocks: Vec<LentBlock<'l>>,
    /// For each block, where in `bytes` the copies of its foreign columns are.
    copied: Vec<[Option<Copied<'l>>; 3]>,
    bytes: &'l [u8],
}

/// Successive rows of a call that are computed, and where their results go.
pub(super) struct LentBlock<'o> {
    /// The index of the call's columns in [`ColumnsOfCalls`].
    pub(super) columns: usize,
    pub(super) rows: Range<usize>,
    pub(super) out: Part<'o>,
}

/// Statuses of rows that were run.
pub(super) struct Computed {
    /// For each row, the status if it cannot be computed, else `None`. Empty if all rows can be computed.
    pub(super) refused: Vec<Option<RowStatus>>,
    /// The statuses of all other rows, in order. Empty for keys.
    pub(super) computed: Vec<RowStatus>,
}

/// The columns of calls of one kind, which may run together. Only code behind this trait knows the type of a row: all other code is compiled once.
pub(super) trait ColumnsOfCalls: Sync {
    /// The columns of a call.
    fn columns(&self, number: usize) -> &dyn RowColumns;
    /// Reads and computes rows. Results that passed the checks go to the blocks' memory. That of a row that failed is zero. `memory` is kept between
    /// chunks.
    fn compute(&self, lent: &mut LentRows<'_>, memory: &mut Vec<u8>) -> Result<Computed, Error>;
}

/// Reads rows. Returns those that can be computed, and for each row the status if it cannot; no statuses if all can.
pub(super) fn read_rows<'m, R: Rows + 'm>(
    columns: &[R],
    lent: &LentRows<'m>,
) -> (Vec<R::Row<'m>>, Vec<Option<RowStatus>>) {
    let count = lent.blocks.iter().map(|block| block.rows.len()).sum();
    let read = trace::step(Step::ReadRows, count, || read(columns, lent, count));
    // Usually no row is refused. Then the number of rows is known, and collecting them needs no repeated growth.
    if read.iter().all(Result::is_ok) {
        return (read.into_iter().map(|row| row.expect("none is refused")).collect(), Vec::new());
    }
    let refused = read.iter().map(|row| row.as_ref().err().copied()).collect();
    (read.into_iter().filter_map(Result::ok).collect(), refused)
}

/// The caller's memory for the results of successive rows, in up to two columns.
pub(crate) struct Part<'a> {
    pub(super) columns: [&'a mut [u8]; 2],
    /// The bytes of a row in each column; 0 where there is no such column.
    widths: [usize; 2],
    /// The place of the first column if it is in memory that others may use. `columns` is empty then.
    foreign: Option<ForeignTarget<'a>>,
}

impl<'a> Part<'a> {
    fn new(columns: [&'a mut [u8]; 2], widths: [usize; 2]) -> Part<'a> {
        Part { columns, widths, foreign: None }
    }

    /// Memory for one column.
    fn of(out: RowMemory<'a>, width: usize) -> Part<'a> {
        match out {
            RowMemory::Own(bytes) => Part::new([bytes, &mut []], [width, 0]),
            RowMemory::Foreign(memory) => {
                Part { foreign: Some(ForeignTarget { memory, at: 0 }), ..Part::new([&mut [], &mut []], [width, 0]) }
            }
        }
    }

    /// The bytes of a row that are copied to memory that others may use.
    fn copied(&self) -> usize {
        self.foreign.map_or(0, |_| self.widths[0])
    }

    /// Splits the memory of the next rows off.
    fn split(&mut self, rows: usize) -> Part<'a> {
        let foreign = self.foreign;
        if let Some(place) = &mut self.foreign {
            place.at += rows * self.widths[0];
            return Part { foreign, ..Part::new([&mut [], &mut []], self.widths) };
        }
        let [first, second] = &mut self.columns;
        let columns = [(first, self.widths[0]), (second, self.widths[1])];
        let split =
            |(column, width): (&mut &'a mut [u8], _)| column.split_off_mut(..rows * width).expect("rows are left");
        Part::new(columns.map(split), self.widths)
    }

    /// Reborrows the memory.
    fn lend(&mut self) -> Part<'_> {
        let [first, second] = &mut self.columns;
        Part { columns: [first, second], widths: self.widths, foreign: self.foreign }
    }

    fn zero(&mut self, rows: Range<usize>) {
        if let Some(place) = self.foreign {
            place.zero(rows.start * self.widths[0]..rows.end * self.widths[0]);
        }
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            if let Some(bytes) = column.get_mut(rows.start * width..rows.end * width) {
                bytes.fill(0);
            }
        }
    }
}

/// Gets the number of completed rows. Its `Break` ends the call.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// The [`Progress`] of callers that do not ask for it.
pub(crate) fn no_progress(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The caller's memory for results. Results that the scheduler did not hand out are not trusted: they are zeroed on drop, also after a
/// panic.
pub(crate) struct Results<'a> {
    out: Part<'a>,
    statuses: &'a mut [RowStatus],
    rows: usize,
    /// The number of rows whose results were handed out.
    handed_out: usize,
}

impl<'a> Results<'a> {
    /// Memory for results of `size` bytes each.
    pub(crate) fn new(out: RowMemory<'a>, size: usize, statuses: &'a mut [RowStatus]) -> Results<'a> {
        let rows = statuses.len();
        Results { out: Part::of(out, size), statuses, rows, handed_out: 0 }
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
        let size = self.out.widths[0];
        let next = self.handed_out * size..(self.handed_out + rows) * size;
        match self.out.foreign {
            Some(ForeignTarget { memory, at }) => {
                let mut results = zeros(next.len())?;
                work(&mut results)?;
                memory.store(at + next.start, &results);
            }
            None => work(&mut self.out.columns[0][next])?,
        }
        self.statuses[self.handed_out..][..rows].fill(status);
        self.handed_out += rows;
        Ok(())
    }

    fn forget(&mut self, rows: Range<usize>, status: RowStatus) {
        self.out.zero(rows.clone());
        if let Some(statuses) = self.statuses.get_mut(rows) {
            statuses.fill(status);
        }
    }
}

impl Drop for Results<'_> {
    fn drop(&mut self) {
        self.forget(self.left(), RowStatus::NotComputed);
    }
}

/// Checks the columns of a call that signs or verifies `count` rows, and that the memory for signatures has the right length, `out`.
pub(super) fn check_rows(rows: &dyn RowColumns, out: usize, count: usize) -> Result<(), Error> {
    rows.check(count)?;
    check_length("the memory for signatures", count.saturating_mul(rows.widths()[0]), out)
}

/// Checks the columns of a call that makes keys, given their lengths in bytes. Returns the number of keys.
pub(super) fn check_keys(rows: &dyn RowColumns, private: usize, public: Option<usize>) -> Result<usize, Error> {
    let [of_private, of_public] = rows.widths();
    let count = private / of_private;
    check_length("the column of private keys", count * of_private, private)?;
    public.map_or(Ok(()), |bytes| check_length("the column of public keys", count * of_public, bytes))?;
    rows.check(count)?;
    Ok(count)
}

/// The caller's memory that a call fills.
pub(super) enum Wanted<'a> {
    /// Memory for signatures, which is empty for verification, and for the status of each row.
    Rows(RowMemory<'a>, &'a mut [RowStatus]),
    /// Memory for private keys, and for public keys if the caller wants them.
    Keys(&'a mut [u8], Option<&'a mut [u8]>),
}

/// A call of rows, with the memory for its results.
pub(super) struct CallOfRows<'a> {
    columns: &'a dyn RowColumns,
    /// The index of these columns in [`ColumnsOfCalls`].
    number: usize,
    results: Results<'a>,
    /// The first error that kept rows from being computed.
    lost: Result<(), Error>,
}

impl<'a> CallOfRows<'a> {
    /// Makes a call for the columns with the index `number`.
    pub(super) fn new(number: usize, all: &'a dyn ColumnsOfCalls, wanted: Wanted<'a>) -> Result<Self, Error> {
        let columns = all.columns(number);
        let results = match wanted {
            Wanted::Rows(out, statuses) => {
                // A status of an earlier call must not look like one of this call.
                statuses.fill(RowStatus::NotComputed);
                check_rows(columns, out.size(), statuses.len())?;
                Results::new(out, columns.widths()[0], statuses)
            }
            Wanted::Keys(private, public) => {
                let rows = match check_keys(columns, private.len(), public.as_ref().map(|public| public.len())) {
                    Ok(rows) => rows,
                    Err(why) => {
                        // After any error the caller gets no keys.
                        private.fill(0);
                        public.unwrap_or_default().fill(0);
                        return Err(why);
                    }
                };
                let mut widths = columns.widths();
                widths[1] *= usize::from(public.is_some());
                let out = Part::new([private, public.unwrap_or_default()], widths);
                Results { out, statuses: &mut [], rows, handed_out: 0 }
            }
        };
        Ok(CallOfRows { columns, number, results, lost: Ok(()) })
    }

    /// Clears the results of rows that the scheduler did not compute, and keeps the error.
    fn lose(&mut self, rows: Range<usize>, why: Error) {
        let status = match why.kind() {
            ErrorKind::OutOfMemory => RowStatus::OutOfMemory,
            _ => RowStatus::NotComputed,
        };
        if status == RowStatus::NotComputed || self.columns.are_keys() {
            self.lost = self.lost.clone().and(Err(why));
        }
        self.results.forget(rows, status);
    }

    /// The rows of calls of one kind, in blocks that suit the scheduler, and for each call the number of its rows whose results were handed out. `all` has
    /// the columns of the calls.
    fn blocks<'b>(
        scheduler: &Scheduler,
        is_wanted: IsWanted<'b>,
        all: &'b dyn ColumnsOfCalls,
        calls: &'b mut [Self],
    ) -> Result<(impl Iterator<Item = RowBlock<'b>>, Vec<&'b mut usize>), Error> {
        let (first, checks) = (calls[0].columns, scheduler.work.checks);
        let counts: Vec<usize> = calls.iter().map(|call| call.results.rows).collect();
        let lent = calls.iter_mut().map(|CallOfRows { columns, number, results, .. }| {
            let Results { out, statuses, rows: count, handed_out } = results;
            let (columns, number, count, statuses) = (*columns, *number, *count, &mut **statuses);
            let out = out.lend();
            (RowBlock { columns, number, all, is_wanted, checks, first: 0, count, statuses, out }, handed_out)
        });
        let (blocks, handed_out): (Vec<_>, Vec<_>) = lent.unzip();
        let each = blocks.iter().map(|call| call.copied().1).max().unwrap_or(0);
        let held = |facts: &GroupFacts| first.held(facts, checks);
        let mut block = scheduler.block_size(first.kind(), counts.iter().sum(), each, held)?;
        while block > 1 && block.saturating_mul(each) > copies_at_a_time(false, scheduler.options.threads) {
            block = block.div_ceil(2);
        }
        let blocks_of_all = counts.iter().map(|rows| rows.div_ceil(block)).sum::<usize>();
        let mut waiting = blocks.into_iter().filter(|call| call.count > 0);
        let mut left = None;
        let blocks = (0..blocks_of_all).map(move |_| {
            let mut call: RowBlock<'_> =
                left.take().or_else(|| waiting.next()).expect("as many blocks as the calls have");
            let next = call.cut(block.min(call.count));
            left = Some(call).filter(|call| call.count > 0);
            next
        });
        Ok((blocks, handed_out))
    }

    /// Returns the result of this call. The error of `all` calls does not concern a call that is complete.
    fn result(self, all: &Result<(), Error>) -> Result<(), Error> {
        let are_done = self.results.rows > 0 && self.results.left().is_empty();
        let all = if are_done { Ok(()) } else { all.clone() };
        all.and(self.lost.clone())
    }
}

/// Calls of rows of one kind that run together.
pub(crate) struct CallsOfRows<'c> {
    pub(super) all: Box<dyn ColumnsOfCalls + 'c>,
    /// The memory that each call fills, or why the call was not lent.
    pub(super) wanted: Vec<Result<Wanted<'c>, Error>>,
}

impl CallsOfRows<'_> {
    /// Runs the calls as [`run_while`](CallsOfRows::run_while) does, to their end.
    pub(crate) fn run(self, scheduler: &Scheduler, progress: Option<Progress<'_>>) -> Vec<Result<(), Error>> {
        self.run_while(&|| true, scheduler, progress)
    }

    /// Runs the calls as one call of the scheduler, so that rows of several calls may share a chunk. Once they are not wanted any more, no chunk begins.
    /// Returns the result of each call. Without `progress` a panic is an error of all calls that are not complete.
    pub(crate) fn run_while(
        self,
        is_wanted: IsWanted<'_>,
        scheduler: &Scheduler,
        mut progress: Option<Progress<'_>>,
    ) -> Vec<Result<(), Error>> {
        let CallsOfRows { all, wanted } = self;
        let (mut calls, mut numbers) = (Vec::with_capacity(wanted.len()), 0..);
        let made = wanted.into_iter().map(|wanted| -> Result<(), Error> {
            let wanted = wanted?;
            let number = numbers.next().expect("they do not end");
            calls.push(CallOfRows::new(number, &*all, wanted)?);
            Ok(())
        });
        let made: Vec<Result<(), Error>> = made.collect();
        let Some(first) = calls.first() else { return made };
        let are_keys = first.columns.are_keys();
        let counts: Vec<usize> = calls.iter().map(|call| call.results.rows).collect();
        let rows = counts.iter().sum();
        let mut waiting = counts.into_iter().enumerate().filter(|(_, rows)| *rows > 0).peekable();
        let (mut completed, mut refused, mut failed) = (0, Vec::new(), Ok(()));
        let done = caught(|| {
            let (mut blocks, mut handed_out) = CallOfRows::blocks(scheduler, is_wanted, &*all, &mut calls)?;
            scheduler.run(None, Some(rows), &mut blocks, &mut |count, done| {
                let (call, rows) = waiting.peek_mut().expect("its call has rows left");
                let call = *call;
                *rows -= count;
                if *rows == 0 {
                    waiting.next();
                }
                let of_call = &mut *handed_out[call];
                if let Err(why) = done {
                    refused.push((call, *of_call..*of_call + count, why.clone()));
                    if are_keys {
                        failed = Err(why);
                        return ControlFlow::Break(());
                    }
                }
                *of_call += count;
                completed += count;
                let flow = progress.as_mut().map_or(ControlFlow::Continue(()), |progress| progress(completed));
                if are_keys && flow.is_break() {
                    *of_call = 0;
                }
                flow
            })
        });
        // This also runs after a panic: completed calls keep their results.
        refused.into_iter().for_each(|(call, rows, why)| calls[call].lose(rows, why));
        for call in calls.iter_mut().filter(|call| are_keys && !call.results.left().is_empty()) {
            call.results.handed_out = 0;
        }
        let done = done.unwrap_or_else(|panic| match progress {
            Some(_) => resume_unwind(panic),
            None => Err(scheduler.panicked("this set of rows")),
        });
        let (done, mut calls) = (done.and(failed), calls.into_iter());
        let mut result = |()| calls.next().expect("a call for each that was made").result(&done);
        made.into_iter().map(|made| made.and_then(&mut result)).collect()
    }
}

/// Catches a panic of `work`. Nothing that `work` leaves unfinished may be used afterwards.
pub(super) fn caught<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(work))
}

/// Successive rows of a call, and where their results go.
struct RowBlock<'a> {
    columns: &'a dyn RowColumns,
    /// The index of these columns in `all`.
    number: usize,
    all: &'a dyn ColumnsOfCalls,
    is_wanted: IsWanted<'a>,
    checks: Checks,
    first: usize,
    count: usize,
    /// Empty for keys.
    statuses: &'a mut [RowStatus],
    out: Part<'a>,
}

impl<'a> RowBlock<'a> {
    /// Splits this many rows off the front.
    fn cut(&mut self, rows: usize) -> Self {
        let statuses = self.statuses.split_off_mut(..rows.min(self.statuses.len())).expect("no more than are left");
        let first = self.first;
        (self.first, self.count) = (first + rows, self.count - rows);
        RowBlock { first, count: rows, statuses, out: self.out.split(rows), ..*self }
    }

    fn range(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// The bytes that are copied for all rows, and the most that are copied for one row.
    fn copied(&self) -> (usize, usize) {
        let (all, each) = copied_bytes(&self.columns.foreign(), self.range());
        (all.saturating_add(self.count * self.out.copied()), each.saturating_add(self.out.copied()))
    }
}

/// Gives rows their statuses, now that the checks have passed, and copies results to memory that others may use. `of_caller` has the caller's statuses
/// and that memory, for each block.
fn hand_over(
    place: &Place<'_>,
    Computed { refused, computed }: Computed,
    blocks: Vec<LentBlock<'_>>,
    of_caller: Vec<(&mut [RowStatus], Option<ForeignTarget<'_>>)>,
) {
    let (mut computed, mut start) = (computed.into_iter(), 0);
    let mut computed = || computed.next().expect("a status for each row that was computed");
    for (LentBlock { rows, mut out, .. }, (statuses, to)) in blocks.into_iter().zip(of_caller) {
        let of_block = refused.get(start..start + rows.len());
        start += rows.len();
        for (row, status) in statuses.iter_mut().enumerate() {
            let why = of_block.and_then(|of_block| of_block[row]);
            if why.is_some() {
                out.zero(row..row + 1);
            }
            *status = why.unwrap_or_else(&mut computed);
        }
        if let Some(to) = to {
            to.store(place, out.columns[0]);
        }
    }
}

impl Job for RowBlock<'_> {
    type Out = ();
    const JOINS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(self.columns.kind())
    }

    fn count(&self) -> usize {
        self.count
    }

    fn owned(&self) -> usize {
        self.copied().0
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.count * self.columns.held(facts, self.checks)
    }

    fn run(run: &Run<'_>, blocks: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<()>, Error> {
        assert!(blocks.is_sorted_by_key(|block| block.number), "blocks of a call lie together");
        let done = Outcomes::from(vec![(); blocks.len()]);
        let Some(RowBlock { all, is_wanted, .. }) = blocks.first() else { return Ok(done) };
        if !is_wanted() {
            return Err(Error::Cancelled { what: "nobody wants these rows any more".into() });
        }
        let (all, place) = (*all, &run.place);
        // Blocks are copied and computed in groups, so that the copies take at most `most` bytes at a time, or one block.
        let most = copies_at_a_time(place.worker.has_memory(), place.threads);
        let (mut left, mut copies) = (blocks, None);
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |block: &&&mut Self| {
                bytes += block.owned();
                bytes <= most
            };
            let count = left.iter().take_while(fits).count().max(1);
            let blocks = left.split_off_mut(..count).expect("no more than are left");
            let columns: Vec<_> = blocks.iter().map(|block| (block.columns.foreign(), block.range())).collect();
            let copied = copy_columns(place, columns, &mut copies)?;
            // These results are not in memory that a device reaches: if the device hung while it writes there, the wait for it would have no limit.
            let of_foreign = |block: &&mut Self| block.count * block.out.copied();
            let mut results = zeros(blocks.iter().map(of_foreign).sum())?;
            let mut free = &mut results[..];
            let (mut to_compute, mut of_caller) = (Vec::with_capacity(blocks.len()), Vec::with_capacity(blocks.len()));
            for block in blocks {
                let (bytes, rows) = (of_foreign(block), block.range());
                let RowBlock { number, out, statuses, .. } = &mut **block;
                of_caller.push((&mut **statuses, out.foreign));
                let out = match out.foreign {
                    Some(_) => Part::new([free.split_off_mut(..bytes).expect("memory for all"), &mut []], out.widths),
                    None => out.lend(),
                };
                to_compute.push(LentBlock { columns: *number, rows, out });
            }
            let bytes = copies.as_deref().unwrap_or_default();
            let mut lent = LentRows { run, blocks: to_compute, copied, bytes };
            match all.compute(&mut lent, memory) {
                Ok(computed) => hand_over(place, computed, lent.blocks, of_caller),
                Err(why) => {
                    drop(lent);
                    // Results that no caller gets may reveal a key.
                    results.zeroize();
                    return Err(why);
                }
            }
        }
        Ok(done)
    }
}

/// The memory of the rows that are computed. It is split where `refused` leaves rows out; an empty `refused` leaves none out.
pub(super) fn parts<'o>(blocks: &'o mut [LentBlock<'_>], refused: &[Option<RowStatus>]) -> Vec<Part<'o>> {
    let (mut parts, mut start) = (Vec::with_capacity(blocks.len()), 0);
    for LentBlock { rows, out, .. } in blocks {
        let mut out = out.lend();
        let Some(of_block) = refused.get(start..start + rows.len()) else {
            parts.push(out);
            continue;
        };
        start += rows.len();
        for rows in of_block.chunk_by(|a, b| a.is_none() == b.is_none()) {
            let part = out.split(rows.len());
            if rows[0].is_none() {
                parts.push(part);
            }
        }
    }
    parts
}

/// Reads `count` rows of successive blocks, on the threads of their place.
fn read<'m, R: Rows + 'm>(
    columns: &[R],
    LentRows { run, blocks, copied, bytes }: &LentRows<'m>,
    count: usize,
) -> Vec<Result<R::Row<'m>, RowStatus>> {
    let (place, bytes) = (&run.place, *bytes);
    let (head, tail) = (&blocks[0], &blocks[blocks.len() - 1]);
    // Blocks come in the order of their calls.
    let readers: Vec<_> = columns[head.columns..=tail.columns].iter().map(|columns| columns.reader()).collect();
    let of_block = |nth: usize, row| {
        let copy = |column: &Option<Copied<'_>>| column.as_ref().map(|column| &bytes[column.place(row)]);
        readers[blocks[nth].columns - head.columns](row, copied[nth].each_ref().map(copy))
    };
    let are_few = place.pool.is_none() || count <= FEW_ROWS;
    let are_adjacent = head.columns == tail.columns && tail.rows.end.checked_sub(head.rows.start) == Some(count);
    if are_adjacent && copied.iter().flatten().all(Option::is_none) {
        let (reader, start) = (&readers[0], head.rows.start);
        if are_few {
            return (start..start + count).map(|row| reader(row, [None; 3])).collect();
        }
        return place.map_in_place(count, ROWS_OF_A_THREAD, &|nth| reader(start + nth, [None; 3]));
    }
    let mut read = Vec::with_capacity(count);
    if are_few {
        for (nth, LentBlock { rows, .. }) in blocks.iter().enumerate() {
            read.extend(rows.clone().map(|row| of_block(nth, row)));
        }
        return read;
    }
    let mut end = 0;
    let ends: Vec<usize> = blocks
        .iter()
        .map(|LentBlock { rows, .. }| {
            end += rows.len();
            end
        })
        .collect();
    place.map_in_place(count, ROWS_OF_A_THREAD, &|i| {
        let nth = ends.partition_point(|end| *end <= i);
        of_block(nth, blocks[nth].rows.end - (ends[nth] - i))
    })
}

/// Joins the results of `distinct` for the rows of each call: the distinct keys of all rows, and the index of each row's key. Rows of one call
/// are adjacent. `call` returns the columns of a row.
pub(super) fn of_calls<'c, C: 'c, T, K>(
    rows: &[T],
    call: impl Fn(&T) -> &'c C,
    distinct: impl Fn(&'c C, &[T]) -> (Vec<K>, Vec<u32>),
) -> (Vec<K>, Vec<u32>) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return (Vec::new(), Vec::new()) };
    // Nearly always, all rows are of one call.
    if ptr::eq(call(first), call(last)) {
        return distinct(call(first), rows);
    }
    let (mut keys, mut key_of) = (Vec::new(), Vec::with_capacity(rows.len()));
    for rows in rows.chunk_by(|a, b| ptr::eq(call(a), call(b))) {
        let (more, of) = distinct(call(&rows[0]), rows);
        key_of.extend(of.into_iter().map(|key| keys.len() as u32 + key));
        keys.extend(more);
    }
    (keys, key_of)
}
