//! Memory that others may write to at any time. Rows are copied from it once, and results are copied to it once they are checked.

use super::column::{Column, ForeignRows};
use crate::Error;
use hypergrove_engine::scheduler::{ChunkMemory, Place};
use hypergrove_engine::trace::{self, Step};
use std::fmt;
use std::ops::Range;

/// The bytes that a thread copies at a time: few threads fill the memory's bandwidth, and each takes the next range when it has done one.
const PIECE: usize = 1 << 20;

/// The values that a thread copies at a time if they have no common length.
const VALUES: usize = 64;

/// The bytes of copies that are made and computed at a time for a device that has memory of its own.
const COPIES: usize = 128 << 20;

/// The bytes of copies that are made and computed at a time on the host, for each thread: fewer bytes stay in the processor's caches. (Xeon with
/// 2 threads, 32,768 rows of 128s in turns, verifications a second of CPU time: 25,600 to 26,300 with 4 and 16 MiB, 24,700 and 25,000 with 64.)
const COPIES_OF_A_THREAD: usize = 4 << 20;

/// Columns begin at multiples of this number of bytes in a chunk's memory.
const ALIGN: usize = 64;

/// Memory for results that others may use during the call.
pub trait ForeignMemory: fmt::Debug + Sync {
    /// The size of the memory in bytes.
    fn size(&self) -> usize;
    /// Copies `from` to the bytes that begin at `at`.
    fn store(&self, at: usize, from: &[u8]);
}

/// Where results go.
#[derive(Debug)]
pub enum RowMemory<'m> {
    /// Memory that only the call uses until it returns.
    Own(&'m mut [u8]),
    /// Memory that others may use: results are copied there once they are computed and checked. It must not overlap the columns.
    Foreign(&'m dyn ForeignMemory),
}

impl RowMemory<'_> {
    pub(crate) fn size(&self) -> usize {
        match self {
            RowMemory::Own(bytes) => bytes.len(),
            RowMemory::Foreign(memory) => memory.size(),
        }
    }
}

impl<'m> From<&'m mut [u8]> for RowMemory<'m> {
    fn from(bytes: &'m mut [u8]) -> RowMemory<'m> {
        RowMemory::Own(bytes)
    }
}

/// Where the next results go, in memory that others may use.
#[derive(Clone, Copy)]
pub(super) struct ForeignTarget<'m> {
    pub(super) memory: &'m dyn ForeignMemory,
    /// The offset of their first byte in the memory.
    pub(super) at: usize,
}

impl ForeignTarget<'_> {
    /// Copies results here, on the threads of `place`.
    pub(super) fn store(self, place: &Place<'_>, from: &[u8]) {
        place.ranges(from.len().div_ceil(PIECE), 1, &|pieces| {
            let bytes = pieces.start * PIECE..from.len().min(pieces.end * PIECE);
            self.memory.store(self.at + bytes.start, &from[bytes]);
        });
    }

    /// Zeroes bytes, which count from the first one of the results.
    pub(super) fn zero(self, bytes: Range<usize>) {
        const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
        for start in bytes.clone().step_by(ZEROS.len()) {
            self.memory.store(self.at + start, &ZEROS[..ZEROS.len().min(bytes.end - start)]);
        }
    }
}

/// A column whose rows are copied.
#[derive(Clone, Copy)]
pub(crate) struct ForeignColumn<'a> {
    rows: &'a dyn ForeignRows,
    /// The length of every row, if it is fixed. Rows of another length are not copied, because they are refused.
    wanted: Option<usize>,
}

/// The columns of a call whose rows are copied: signatures, messages and keys; `None` for a column that is not copied. Readers of rows get copies in
/// this order. A device may read the signatures without the host.
pub(crate) type ForeignColumns<'a> = [Option<ForeignColumn<'a>>; 3];

impl<'a> ForeignColumn<'a> {
    pub(crate) fn of(column: &Column<'a>, wanted: Option<usize>) -> Option<ForeignColumn<'a>> {
        if let Column::Foreign(rows) = column { Some(ForeignColumn { rows: *rows, wanted }) } else { None }
    }

    /// How many bytes of each row are copied, if that is the same for all rows.
    fn width(&self) -> Option<usize> {
        self.rows.width().map(|width| self.copied(width))
    }

    /// The bytes that are copied of a row.
    pub(crate) fn length(&self, row: usize) -> usize {
        self.copied(self.rows.length(row))
    }

    fn copied(&self, length: usize) -> usize {
        if self.wanted.is_none_or(|wanted| wanted == length) { length } else { 0 }
    }
}

/// The bytes that are copied for some rows of columns.
pub(super) fn copied_bytes(columns: &ForeignColumns<'_>, rows: Range<usize>) -> usize {
    let of = |column: &ForeignColumn<'_>| match column.width() {
        Some(width) => rows.len().saturating_mul(width),
        None => rows.clone().map(|row| column.length(row)).fold(0, usize::saturating_add),
    };
    columns.iter().flatten().map(of).fold(0, usize::saturating_add)
}

/// Whether each column copies equally many bytes for all its rows.
pub(super) fn have_widths(columns: &ForeignColumns<'_>) -> bool {
    columns.iter().flatten().all(|column| column.width().is_some())
}

/// The bytes of copies that are made and computed at a time.
pub(crate) fn copies_at_a_time(has_memory: bool, threads: usize) -> usize {
    if has_memory { COPIES } else { threads.saturating_mul(COPIES_OF_A_THREAD).min(COPIES) }
}

/// Copies of a column's successive rows.
pub(crate) struct Copied<'a> {
    column: ForeignColumn<'a>,
    rows: Range<usize>,
    start: usize,
    width: Option<usize>,
    /// The end of each row's copy, if the rows have no common width.
    ends: Vec<usize>,
    /// The memory that all copies of a chunk lie in.
    bytes: &'a [u8],
}

impl<'a> Copied<'a> {
    /// Places the copies at `end`, rounded up to [`ALIGN`], and moves `end` behind them.
    fn new(column: ForeignColumn<'a>, rows: Range<usize>, end: &mut usize) -> Copied<'a> {
        let (start, width) = (end.next_multiple_of(ALIGN), column.width());
        *end = start + width.map_or(0, |width| rows.len() * width);
        let ends = rows.clone().filter(|_| width.is_none()).map(|row| {
            *end += column.length(row);
            *end
        });
        let ends = ends.collect();
        Copied { column, rows, start, width, ends, bytes: &[] }
    }

    /// The copy of a row.
    pub(super) fn get(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.place(row)]
    }

    /// The place of a row's copy.
    fn place(&self, row: usize) -> Range<usize> {
        let nth = row - self.rows.start;
        match self.width {
            Some(width) => self.start + nth * width..self.start + (nth + 1) * width,
            None => nth.checked_sub(1).map_or(self.start, |before| self.ends[before])..self.ends[nth],
        }
    }

    /// Copies some rows.
    fn copy(&self, rows: Range<usize>, mut to: &mut [u8], past_caches: bool) {
        if self.width.is_some_and(|width| width > 0) {
            return self.column.rows.copy(rows.start, to, past_caches);
        }
        // Rows of the wrong length have no copy.
        for row in rows {
            let next = to.split_off_mut(..self.place(row).len()).expect("memory for all");
            if !next.is_empty() {
                self.column.rows.copy(row, next, past_caches);
            }
        }
    }
}

/// Copies columns of successive rows, on the threads of `place`, into `memory`, which is replaced if it is too small.
pub(crate) fn copy_columns<'s, 'c>(
    place: &Place<'s>,
    all: Vec<(ForeignColumns<'c>, Range<usize>)>,
    memory: &'c mut Option<ChunkMemory<'s>>,
) -> Result<Vec<[Option<Copied<'c>>; 3]>, Error> {
    let count = all.iter().map(|(_, rows)| rows.len()).sum();
    let mut end = 0;
    let of = |(columns, rows): (ForeignColumns<'c>, Range<usize>)| {
        columns.map(|column| column.map(|column| Copied::new(column, rows.clone(), &mut end)))
    };
    let mut all: Vec<_> = all.into_iter().map(of).collect();
    if end > 0 && memory.as_ref().is_none_or(|memory| memory.len() < end) {
        *memory = None;
        *memory = Some(place.scheduler.chunk_memory(place.worker, end)?);
    }
    let Some(memory) = memory else { return Ok(all) };
    let is_reached = memory.is_reached();
    let (mut free, mut at, mut pieces) = (&mut memory[..], 0, Vec::new());
    for (number, copied) in all.iter().flat_map(|columns| columns.iter().enumerate()) {
        let Some(copied) = copied else { continue };
        let together = copied.width.map_or(VALUES, |width| (PIECE / width.max(1)).max(1));
        for first in copied.rows.clone().step_by(together) {
            let rows = first..copied.rows.end.min(first + together);
            let (start, end) = (copied.place(first).start, copied.place(rows.end - 1).end);
            let to = &mut free.split_off_mut(..end - at).expect("memory for all")[start - at..];
            pieces.push((copied, rows, to, is_reached && number == 0));
            at = end;
        }
    }
    let copy = |(copied, rows, to, past_caches): (&Copied<'_>, _, &mut [u8], _)| {
        copied.copy(rows, to, past_caches);
        Ok(())
    };
    trace::step(Step::CopyRows, count, || place.each_of(pieces, &copy))?;
    let bytes = &memory[..];
    all.iter_mut().flatten().flatten().for_each(|copied| copied.bytes = bytes);
    Ok(all)
}
