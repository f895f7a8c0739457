//! Rows as the scheduler sees them: calls, and blocks that it cuts out of them.

use super::foreign::{
    Copied, ForeignColumns, ForeignTarget, copied_bytes, copies_at_a_time, copy_columns, have_widths,
};
use super::{RowMemory, RowStatus};
use crate::{Error, ErrorKind};
use hypergrove_engine::scheduler::{Checks, IsWanted, Job, Outcomes, Run, Scheduler, zeros};
use hypergrove_engine::scheme::GroupFacts;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::trace::{self, Step};
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use zeroize::Zeroize;

/// The fewest rows that a thread reads: reading one row takes less than a microsecond.
const ROWS_OF_A_THREAD: usize = 512;

/// Up to this many rows, the calling thread reads alone: waking other threads would take longer. (Reading 1,024 rows takes 18 µs. Other threads
/// begin after 0.1 ms.)
const FEW_ROWS: usize = 1024;

/// Copies of a row's values in foreign columns.
pub(super) type Copies<'m> = [Option<&'m [u8]>; 3];

/// The columns of a call: what there is to compute, row by row.
pub(crate) trait Rows: Copy + Send + Sync {
    /// Whether the call makes keys. Such a call reads no rows and has no statuses, and the caller gets all keys or none.
    const ARE_KEYS: bool = false;
    /// The values of a row, with a reference to its columns, because a device may run rows of several calls together.
    type Row<'m>: Copy + Send + Sync
    where
        Self: 'm;
    fn kind(&self) -> Kind;
    /// The bytes of a row's results in each of the caller's columns.
    fn widths(&self) -> [usize; 2];
    /// Checks the columns of a call with this number of rows. Errors of a single row are found by [`Rows::reader`] instead.
    fn check(&self, rows: usize) -> Result<(), Error>;
    /// The bytes of memory that the columns occupy.
    fn inputs(&self) -> usize;
    /// The foreign columns, whose rows are copied before they are read.
    fn foreign<'m>(self) -> ForeignColumns<'m>
    where
        Self: 'm,
    {
        [None; 3]
    }
    /// The bytes of memory that a row needs in addition to the caller's. They include what [`Rows::reader`] keeps of the row.
    fn held(&self, facts: &GroupFacts, checks: Checks) -> usize;
    /// Returns a function that reads a row, given the row's number and its copies from foreign columns. The function returns a status for a row that
    /// cannot be computed. Only this function checks lengths and offsets.
    fn reader<'m>(self) -> impl Fn(usize, Copies<'m>) -> Result<Self::Row<'m>, RowStatus> + Sync
    where
        Self: 'm;
    /// Reads and computes rows. Results that passed the checks go to the blocks' memory. That of a row that failed is zero. `memory` is kept between
    /// chunks.
    fn compute<'l>(lent: &mut Lent<'l, Self>, memory: &mut Vec<u8>) -> Result<Computed, Error>
    where
        Self: 'l;
}

/// Blocks that are computed together, all of one group.
pub(crate) struct Lent<'l, C> {
    pub(super) run: &'l Run<'l>,
    pub(super) blocks: Vec<RowBlock<'l, C>>,
    /// For each block, where in `bytes` the copies of its foreign columns are.
    copied: Vec<[Option<Copied<'l>>; 3]>,
    bytes: &'l [u8],
}

/// Statuses of rows that were run.
pub(crate) struct Computed {
    /// For each row, the status if it cannot be computed, else `None`. Empty if all rows can be computed.
    pub(super) refused: Vec<Option<RowStatus>>,
    /// The statuses of all other rows, in order. Empty for keys.
    pub(super) computed: Vec<RowStatus>,
}

impl<'l, C: Rows + 'l> Lent<'l, C> {
    /// Reads rows. Returns those that can be computed, and for each row the status if it cannot; no statuses if all can.
    pub(super) fn read(&self) -> (Vec<C::Row<'l>>, Vec<Option<RowStatus>>) {
        let count = self.blocks.iter().map(|block| block.rows.len()).sum();
        let read = trace::step(Step::ReadRows, count, || self.read_all(count));
        // Usually no row is refused. Then the number of rows is known, and collecting them needs no repeated growth.
        if read.iter().all(Result::is_ok) {
            return (read.into_iter().map(|row| row.expect("none is refused")).collect(), Vec::new());
        }
        let refused = read.iter().map(|row| row.as_ref().err().copied()).collect();
        (read.into_iter().filter_map(Result::ok).collect(), refused)
    }

    /// Reads `count` rows, on the threads of their place.
    fn read_all(&self, count: usize) -> Vec<Result<C::Row<'l>, RowStatus>> {
        let Lent { run: Run { place, .. }, blocks, copied, bytes } = self;
        let bytes = *bytes;
        let readers: Vec<_> = blocks.iter().map(|block| block.columns.reader()).collect();
        let of_block = |nth: usize, row| {
            let copy = |column: &Option<Copied<'_>>| column.as_ref().map(|column| &bytes[column.place(row)]);
            readers[nth](row, copied[nth].each_ref().map(copy))
        };
        let are_few = place.pool.is_none() || count <= FEW_ROWS;
        if let ([block], [reader], [[None, None, None]]) = (&blocks[..], &readers[..], &copied[..]) {
            if are_few {
                return block.rows.clone().map(|row| reader(row, [None; 3])).collect();
            }
            return place.map_in_place(count, ROWS_OF_A_THREAD, &|nth| reader(block.rows.start + nth, [None; 3]));
        }
        let mut read = Vec::with_capacity(count);
        if are_few {
            for (nth, block) in blocks.iter().enumerate() {
                read.extend(block.rows.clone().map(|row| of_block(nth, row)));
            }
            return read;
        }
        let mut end = 0;
        let ends: Vec<usize> = blocks
            .iter()
            .map(|block| {
                end += block.rows.len();
                end
            })
            .collect();
        place.map_in_place(count, ROWS_OF_A_THREAD, &|i| {
            let nth = ends.partition_point(|end| *end <= i);
            of_block(nth, blocks[nth].rows.end - (ends[nth] - i))
        })
    }

    /// The memory of the rows that are computed. It is split where `refused` leaves rows out; an empty `refused` leaves none out.
    pub(super) fn parts(&mut self, refused: &[Option<RowStatus>]) -> Vec<Part<'_>> {
        let (mut parts, mut start) = (Vec::with_capacity(self.blocks.len()), 0);
        for RowBlock { rows, out, .. } in &mut self.blocks {
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

    /// Gives rows their statuses, now that the checks have passed, and copies results to memory that others may use: for each block the one in `to`,
    /// if there is one.
    fn hand_over(self, Computed { refused, computed }: Computed, to: Vec<Option<ForeignTarget<'_>>>) {
        let (mut computed, mut start) = (computed.into_iter(), 0);
        let mut computed = || computed.next().expect("a status for each row that was computed");
        for (RowBlock { rows, statuses, mut out, .. }, to) in self.blocks.into_iter().zip(to) {
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
                to.store(&self.run.place, out.columns[0]);
            }
        }
    }
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
pub(super) fn check_rows(rows: impl Rows, out: usize, count: usize) -> Result<(), Error> {
    rows.check(count)?;
    Error::check_length("the memory for signatures", count.saturating_mul(rows.widths()[0]), out)
}

/// Checks the columns of a call that makes keys, given their lengths in bytes. Returns the number of keys.
pub(super) fn check_keys(rows: impl Rows, private: usize, public: Option<usize>) -> Result<usize, Error> {
    let [of_private, of_public] = rows.widths();
    let count = private / of_private;
    Error::check_length("the column of private keys", count * of_private, private)?;
    public.map_or(Ok(()), |bytes| Error::check_length("the column of public keys", count * of_public, bytes))?;
    rows.check(count)?;
    Ok(count)
}

/// A call of rows, with the memory for its results.
pub(super) struct CallOfRows<'a, C> {
    columns: C,
    results: Results<'a>,
    /// The first error that kept rows from being computed.
    lost: Result<(), Error>,
}

impl<'a, C: Rows> CallOfRows<'a, C> {
    /// A call that signs or verifies. The memory for signatures is empty for verification.
    pub(super) fn new(columns: C, out: RowMemory<'a>, statuses: &'a mut [RowStatus]) -> Result<Self, Error> {
        // A status of an earlier call must not look like one of this call.
        statuses.fill(RowStatus::NotComputed);
        check_rows(columns, out.size(), statuses.len())?;
        Ok(CallOfRows { columns, results: Results::new(out, columns.widths()[0], statuses), lost: Ok(()) })
    }

    /// A call that makes private keys, and public keys if the caller wants them.
    pub(super) fn of_keys(columns: C, private: &'a mut [u8], public: Option<&'a mut [u8]>) -> Result<Self, Error> {
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
        Ok(CallOfRows { columns, results: Results { out, statuses: &mut [], rows, handed_out: 0 }, lost: Ok(()) })
    }

    /// All rows of the call as one block, and the number of its rows whose results were handed out.
    fn block<'b>(&'b mut self, is_wanted: IsWanted<'b>, checks: Checks) -> (RowBlock<'b, C>, &'b mut usize) {
        let Results { out, statuses, rows, handed_out } = &mut self.results;
        let mut block =
            RowBlock { columns: self.columns, rows: 0..*rows, is_wanted, checks, statuses, out: out.lend(), copied: 0 };
        block.copied = block.copied_bytes();
        (block, handed_out)
    }

    /// Clears the results of rows that the scheduler did not compute, and keeps the error.
    fn lose(&mut self, rows: Range<usize>, why: Error) {
        let status = match why.kind() {
            ErrorKind::OutOfMemory => RowStatus::OutOfMemory,
            _ => RowStatus::NotComputed,
        };
        if status == RowStatus::NotComputed || C::ARE_KEYS {
            self.lost = self.lost.clone().and(Err(why));
        }
        self.results.forget(rows, status);
    }

    /// Returns the result of this call. The error of `all` calls does not concern a call that is complete.
    fn result(self, all: &Result<(), Error>) -> Result<(), Error> {
        let are_done = self.results.rows > 0 && self.results.left().is_empty();
        let all = if are_done { Ok(()) } else { all.clone() };
        all.and(self.lost.clone())
    }
}

/// Runs calls of one kind as one call of the scheduler, so that their rows may share a chunk. A call that was not made keeps its error. Once the calls
/// are not wanted any more, no chunk begins. Returns the result of each call. Without `progress` a panic is an error of all calls that are not complete.
pub(super) fn run_calls<C: Rows>(
    scheduler: &Scheduler,
    made: Vec<Result<CallOfRows<'_, C>, Error>>,
    is_wanted: IsWanted<'_>,
    mut progress: Option<Progress<'_>>,
) -> Vec<Result<(), Error>> {
    let mut calls = Vec::with_capacity(made.len());
    let made: Vec<Result<(), Error>> = made.into_iter().map(|made| made.map(|call| calls.push(call))).collect();
    let counts: Vec<usize> = calls.iter().map(|call| call.results.rows).collect();
    let rows = counts.iter().sum();
    let mut waiting = counts.into_iter().enumerate().filter(|(_, rows)| *rows > 0).peekable();
    let (mut completed, mut refused, mut failed) = (0, Vec::new(), Ok(()));
    let kind = calls.first().map(|call| call.columns.kind());
    let done = caught(|| {
        // A kind that no device takes is an error of the calls, not of their rows.
        kind.map_or(Ok(()), |kind| scheduler.check_kind(kind))?;
        let lent = calls.iter_mut().map(|call| call.block(is_wanted, scheduler.work.checks));
        let (blocks, mut handed_out): (Vec<_>, Vec<_>) = lent.unzip();
        let mut blocks = blocks.into_iter().filter(|block| !block.rows.is_empty());
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
                if C::ARE_KEYS {
                    failed = Err(why);
                    return ControlFlow::Break(());
                }
            }
            *of_call += count;
            completed += count;
            let flow = progress.as_mut().map_or(ControlFlow::Continue(()), |progress| progress(completed));
            if C::ARE_KEYS && flow.is_break() {
                *of_call = 0;
            }
            flow
        })
    });
    // This also runs after a panic: completed calls keep their results.
    refused.into_iter().for_each(|(call, rows, why)| calls[call].lose(rows, why));
    for call in calls.iter_mut().filter(|call| C::ARE_KEYS && !call.results.left().is_empty()) {
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

/// Catches a panic of `work`. Nothing that `work` leaves unfinished may be used afterwards.
pub(super) fn caught<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(work))
}

/// Successive rows of a call, and where their results go.
pub(crate) struct RowBlock<'a, C> {
    pub(super) columns: C,
    pub(super) rows: Range<usize>,
    is_wanted: IsWanted<'a>,
    checks: Checks,
    /// Empty for keys.
    statuses: &'a mut [RowStatus],
    pub(super) out: Part<'a>,
    /// The bytes that are copied for all these rows, from memory that others may use and to it.
    copied: usize,
}

impl<C: Rows> RowBlock<'_, C> {
    /// The bytes that are copied for all rows.
    fn copied_bytes(&self) -> usize {
        let of_columns = copied_bytes(&self.columns.foreign(), self.rows.clone());
        of_columns.saturating_add(self.rows.len() * self.out.copied())
    }

    /// How many rows need at most so many bytes of copies.
    fn rows_within(&self, bytes: usize) -> usize {
        if self.copied <= bytes {
            return self.rows.len();
        }
        let (columns, mut left) = (self.columns.foreign(), bytes);
        let of_row = |row: usize| copied_bytes(&columns, row..row + 1).saturating_add(self.out.copied());
        if have_widths(&columns) {
            let each = of_row(self.rows.start);
            return bytes.checked_div(each).unwrap_or(usize::MAX).min(self.rows.len());
        }
        let fits = |row: &usize| left.checked_sub(of_row(*row)).map(|rest| left = rest).is_some();
        self.rows.clone().take_while(fits).count()
    }

    /// Reborrows the block.
    fn lend(&mut self) -> RowBlock<'_, C> {
        let RowBlock { rows, statuses, out, .. } = self;
        RowBlock { rows: rows.clone(), statuses, out: out.lend(), ..*self }
    }
}

impl<C: Rows> Job for RowBlock<'_, C> {
    type Out = ();
    const JOINS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(self.columns.kind())
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn cut(&mut self, rows: usize) -> Option<Self> {
        if !(1..self.rows.len()).contains(&rows) {
            return None;
        }
        let statuses = self.statuses.split_off_mut(..rows.min(self.statuses.len())).expect("no more than are left");
        let front = self.rows.start..self.rows.start + rows;
        self.rows.start = front.end;
        let mut front = RowBlock { rows: front, statuses, out: self.out.split(rows), ..*self };
        front.copied = front.copied_bytes();
        self.copied = self.copied.saturating_sub(front.copied);
        Some(front)
    }

    fn owned(&self) -> usize {
        self.copied
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.rows.len() * self.columns.held(facts, self.checks)
    }

    fn run(run: &Run<'_>, blocks: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<()>, Error> {
        let done = Outcomes::from(vec![(); blocks.len()]);
        if blocks.first().is_some_and(|block| !(block.is_wanted)()) {
            return Err(Error::Cancelled { what: "nobody wants these rows any more".into() });
        }
        let place = &run.place;
        // Rows are copied and computed in groups, so that the copies take at most `most` bytes at a time, or one row.
        let most = copies_at_a_time(place.worker.has_memory(), place.threads);
        let mut left: VecDeque<RowBlock<'_, C>> = blocks.iter_mut().map(|block| block.lend()).collect();
        let mut copies = None;
        while !left.is_empty() {
            let (mut group, mut bytes) = (Vec::with_capacity(left.len()), 0);
            while let Some(mut next) = left.pop_front() {
                let rows = next.rows_within(most.saturating_sub(bytes)).max(usize::from(group.is_empty()));
                if rows < next.rows.len() {
                    group.extend(next.cut(rows));
                    left.push_front(next);
                    break;
                }
                bytes += next.copied;
                group.push(next);
            }
            let columns: Vec<_> = group.iter().map(|block| (block.columns.foreign(), block.rows.clone())).collect();
            let copied = copy_columns(place, columns, &mut copies)?;
            // These results are not in memory that a device reaches: if the device hung while it writes there, the wait for it would have no limit.
            let mut results = zeros(group.iter().map(|block| block.rows.len() * block.out.copied()).sum())?;
            let mut free = &mut results[..];
            let to = group.iter_mut().map(|RowBlock { rows, out, .. }| {
                let to = out.foreign.take()?;
                let bytes = free.split_off_mut(..rows.len() * out.widths[0]).expect("memory for all");
                out.columns[0] = bytes;
                Some(to)
            });
            let to = to.collect();
            let bytes = copies.as_deref().unwrap_or_default();
            let mut lent = Lent { run, blocks: group, copied, bytes };
            match C::compute(&mut lent, memory) {
                Ok(computed) => lent.hand_over(computed, to),
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
