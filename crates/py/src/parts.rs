//! Calls part by part: memory that others can write to is copied a part at a time, while the engine computes other parts.

use crate::columns::{Signals, Value, statuses, value_of, zeros};
use crate::engine::SharedEngine;
use crate::error::Failure;
use crate::foreign::array::Reading;
use crate::foreign::buffer::ForeignBytes;
use crate::foreign::racing::{Copying, share_out};
use crate::gaps::Gaps;
use hypergrove::Error;
use hypergrove::rows::{Column, Memory, Offsets, RowStatus};
use pyo3::PyResult;
use std::mem::take;
use std::ops::{ControlFlow, Deref, DerefMut, Range};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, scope};
use std::time::Instant;

/// Bytes of a part's memory, at most: what is copied for it, and results that are copied from it.
const PART: usize = 128 << 20;

/// The smallest part of an engine whose devices reach the copies. Memory for parts comes in multiples of it.
const LEAST_OF_PART: usize = 16 << 20;

/// The number of parts that such a call has, within these two limits. (docs/lab/2026-11-24-numpy.md)
const PARTS: usize = 8;

/// A part of an engine that has the CPU alone, for each thread, at most [`PART`] for all: smaller parts stay in the processor's caches. (Xeon with
/// 2 threads, 32,768 rows of 128s in turns, verifications a second of CPU time: 25,600 to 26,300 with parts of 4 and of 16 MiB, 24,700 and 25,000 with 64.)
const PART_OF_THREAD: usize = 4 << 20;

/// Parts at a time of an engine whose devices reach the copies: one is copied, the engine computes others.
const IN_FLIGHT: usize = 5;

/// Bytes of a part for which memory that devices reach is worth taking.
const REACHED: usize = 1 << 20;

/// Room in a part's memory for its last row, and for gaps between columns.
const ROOM: usize = 1 << 20;

/// Seconds that the rest of a call must take before devices are initialised for it. The engine has the same limit for a call of its
/// own, but it sees one part at a time.
const WAKE: f64 = 0.5;

/// Values of a list that a thread copies at a time.
const VALUES: usize = 64;

/// Copies of columns begin at multiples of this.
const ALIGN: usize = 8;

/// Rows of a call, held until it ends.
pub(crate) enum Held<'a> {
    /// Nobody changes them.
    Still(Column<'a>),
    Slices(Vec<&'a [u8]>),
    Read {
        reading: Reading<'a>,
        width: usize,
        rows: usize,
    },
    /// Others may write to them, so they are copied.
    Foreign {
        bytes: &'a ForeignBytes,
        width: usize,
    },
    Seen {
        reading: Reading<'a>,
        width: usize,
    },
    /// Some values are copied.
    Each(&'a [Value]),
}

impl Held<'_> {
    /// Bytes that are copied for each row, where they are as many for all rows.
    fn width(&self) -> usize {
        match self {
            Held::Foreign { width, .. } | Held::Seen { width, .. } => *width,
            _ => 0,
        }
    }

    /// Bytes that are copied for one row of a list.
    fn of_row(&self, row: usize) -> usize {
        match self {
            Held::Each(all) => all[row].foreign().map_or(0, |bytes| aligned(bytes.len())),
            _ => 0,
        }
    }

    /// Whether some of it lies at these addresses. Memory that is not copied may be written through another view: an Arrow array's, say.
    fn overlaps(&self, with: &Range<usize>) -> bool {
        let meets = |other: Range<usize>| other.start < with.end && with.start < other.end;
        let holds = |bytes: &[u8]| meets(addresses(bytes));
        match self {
            Held::Still(Column::Packed { bytes, .. }) => holds(bytes),
            Held::Still(Column::Variable { bytes, offsets }) => {
                holds(bytes)
                    || match offsets {
                        Offsets::I32(all) => meets(addresses(all)),
                        Offsets::I64(all) => meets(addresses(all)),
                    }
            }
            Held::Still(Column::Slices(all)) => all.iter().any(|bytes| holds(bytes)),
            Held::Slices(all) => all.iter().any(|bytes| holds(bytes)),
            Held::Read { reading, .. } | Held::Seen { reading, .. } => meets(reading.addresses()),
            Held::Foreign { bytes, .. } => meets(bytes.addresses()),
            Held::Each(all) => all.iter().any(|value| match value {
                Value::Shared(bytes) => holds(bytes),
                Value::Foreign(bytes) => meets(bytes.addresses()),
                Value::Null => false,
            }),
        }
    }

    /// Some rows, copied into free memory where that is necessary.
    fn some<'m>(&'m self, rows: &Range<usize>, free: &mut &'m mut [u8], how: Copying) -> PartColumn<'m> {
        PartColumn::Column(match self {
            Held::Still(column) => some(*column, rows),
            Held::Slices(all) => Column::Slices(&all[rows.clone()]),
            Held::Read { reading, width, rows: all } => {
                some(packed(reading.bytes().unwrap_or_default(), *width, *all), rows)
            }
            Held::Foreign { bytes, width } => {
                let to = carve(free, rows.len() * width);
                bytes.copy_out(rows.start * width, to, how);
                packed(to, *width, rows.len())
            }
            Held::Seen { reading, width } => {
                let to = carve(free, rows.len() * width);
                reading.copy(rows.start * width, to, how);
                packed(to, *width, rows.len())
            }
            Held::Each(all) => return PartColumn::Slices(copy_each(all[rows.clone()].iter(), free, how)),
        })
    }

    /// As `some`, rows with these numbers.
    fn pick<'m>(&'m self, rows: &'m [usize], free: &mut &'m mut [u8], how: Copying) -> Vec<&'m [u8]> {
        match self {
            Held::Still(column) => rows.iter().map(|row| value_of(*column, *row).unwrap_or_default()).collect(),
            Held::Slices(all) => rows.iter().map(|row| all[*row]).collect(),
            Held::Read { reading, width, .. } => {
                let bytes = reading.bytes().unwrap_or_default();
                rows.iter().map(|row| &bytes[row * width..][..*width]).collect()
            }
            Held::Foreign { bytes, width } => copy_runs(rows, *width, free, |from, to| bytes.copy_out(from, to, how)),
            Held::Seen { reading, width } => copy_runs(rows, *width, free, |from, to| reading.copy(from, to, how)),
            Held::Each(all) => copy_each(rows.iter().map(|row| &all[*row]), free, how),
        }
    }
}

/// The addresses of a slice's bytes.
fn addresses<T>(slice: &[T]) -> Range<usize> {
    let Range { start, end } = slice.as_ptr_range();
    start.addr()..end.addr()
}

/// Copies rows with these numbers, neighbours together. `copy` copies the bytes that begin at a place.
fn copy_runs<'m>(
    rows: &[usize],
    width: usize,
    free: &mut &'m mut [u8],
    copy: impl Fn(usize, &mut [u8]),
) -> Vec<&'m [u8]> {
    let to = carve(free, rows.len() * width);
    let mut rest = &mut *to;
    for run in rows.chunk_by(|row, next| row + 1 == *next) {
        let (next, others) = rest.split_at_mut(run.len() * width);
        copy(run[0] * width, next);
        rest = others;
    }
    let copied = &*to;
    (0..rows.len()).map(|row| &copied[row * width..][..width]).collect()
}

/// Copies the values of a list that others may write to.
fn copy_each<'m>(
    values: impl Iterator<Item = &'m Value> + Clone,
    free: &mut &'m mut [u8],
    how: Copying,
) -> Vec<&'m [u8]> {
    let before = free.len();
    let place = |value: &'m Value| value.foreign().map(|bytes| (bytes, carve(free, bytes.len())));
    let mut places: Vec<_> = values.clone().map(place).collect();
    // A thread is worth starting for about a megabyte.
    let threads = how.threads.min(1 + (before - free.len()) / REACHED);
    share_out(places.chunks_mut(VALUES), threads, |_, places| {
        places.iter_mut().flatten().for_each(|(bytes, to)| bytes.copy_out(0, to, Copying { threads: 1, ..how }));
    });
    let slice = |(value, place): (&'m Value, Option<(_, &'m mut [u8])>)| match place {
        Some((_, copy)) => &*copy,
        None => value.shared().expect("what others may write to has a place"),
    };
    values.zip(places).map(slice).collect()
}

/// A column of a part.
enum PartColumn<'m> {
    Column(Column<'m>),
    Slices(Vec<&'m [u8]>),
}

impl PartColumn<'_> {
    fn column(&self) -> Column<'_> {
        match self {
            PartColumn::Column(column) => *column,
            PartColumn::Slices(all) => Column::Slices(all),
        }
    }
}

/// Not `Column::packed`, which counts no rows of width 0.
fn packed(bytes: &[u8], width: usize, rows: usize) -> Column<'_> {
    Column::Packed { bytes, width, stride: width, rows }
}

/// Some rows of a column.
fn some<'a>(column: Column<'a>, rows: &Range<usize>) -> Column<'a> {
    match column {
        Column::Packed { bytes, width, stride, .. } => {
            let bytes = bytes.get(rows.start * stride..).unwrap_or_default();
            Column::Packed { bytes, width, stride, rows: rows.len() }
        }
        Column::Variable { bytes, offsets: Offsets::I32(all) } => {
            Column::Variable { bytes, offsets: Offsets::I32(&all[rows.start..=rows.end]) }
        }
        Column::Variable { bytes, offsets: Offsets::I64(all) } => {
            Column::Variable { bytes, offsets: Offsets::I64(&all[rows.start..=rows.end]) }
        }
        Column::Slices(all) => Column::Slices(&all[rows.clone()]),
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Takes memory for a copy.
fn carve<'m>(free: &mut &'m mut [u8], bytes: usize) -> &'m mut [u8] {
    let (taken, rest) = take(free).split_at_mut(aligned(bytes));
    *free = rest;
    &mut taken[..bytes]
}

/// Where results go.
pub(crate) enum Out<'a> {
    /// Into memory of the call, which the engine writes to.
    Own(&'a mut [u8]),
    /// Into memory that others can write to: results are copied there from this byte on.
    Foreign(&'a ForeignBytes, usize),
}

impl<'a> Out<'a> {
    /// No results but the statuses.
    pub(crate) fn none() -> Out<'a> {
        Out::Own(&mut [])
    }

    /// Takes the place of the next `bytes` away.
    fn split(&mut self, bytes: usize) -> Out<'a> {
        match self {
            Out::Own(rest) => {
                let (next, others) = take(rest).split_at_mut(bytes);
                *rest = others;
                Out::Own(next)
            }
            Out::Foreign(memory, at) => {
                let next = Out::Foreign(memory, *at);
                *at += bytes;
                next
            }
        }
    }

    /// Writes zeros to so many bytes.
    fn zero(self, bytes: usize) {
        match self {
            Out::Own(out) => out[..bytes].fill(0),
            Out::Foreign(memory, at) => memory.zero(at, bytes),
        }
    }
}

/// Some rows of a batch, for the engine.
pub(crate) struct Part<'p> {
    pub(crate) rows: Range<usize>,
    /// The batch's columns.
    pub(crate) columns: &'p [Column<'p>],
    pub(crate) statuses: &'p mut [RowStatus],
    pub(crate) out: &'p mut [u8],
}

/// Says whether a call goes on.
pub(crate) type Check<'c> = &'c mut dyn FnMut() -> ControlFlow<()>;

/// The rows of a call.
pub(crate) struct Batch<'a> {
    pub(crate) engine: &'a SharedEngine,
    pub(crate) columns: &'a [Held<'a>],
    pub(crate) rows: usize,
    /// The numbers of these rows in the columns, if the columns have others too.
    pub(crate) picked: Option<&'a [usize]>,
    /// Bytes of a result.
    pub(crate) width: usize,
    /// The number of the column that devices fetch by themselves, if there is one.
    pub(crate) fetched: Option<usize>,
    /// Whether the engine may initialise devices for such work.
    pub(crate) may_wake: bool,
}

/// What comes next.
struct Line<'a> {
    next: usize,
    is_begun: bool,
    /// Bytes of a part.
    most: usize,
    statuses: &'a mut [RowStatus],
    out: Out<'a>,
}

/// What the threads of a call share besides.
struct Progress {
    began: Instant,
    done: AtomicUsize,
    is_stopped: AtomicBool,
    has_woken: AtomicBool,
    /// The first failure, by rows.
    failure: Mutex<Option<(usize, Failure)>>,
}

impl Progress {
    fn check(&self) -> ControlFlow<()> {
        if self.is_stopped.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn fail(&self, row: usize, why: Failure) {
        self.is_stopped.store(true, Relaxed);
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| row < *first) {
            *failure = Some((row, why));
        }
    }
}

impl<'a> Batch<'a> {
    /// The rows of a call for `all` rows that its gaps leave, without results and without a column that devices fetch.
    pub(crate) fn of(
        engine: &'a SharedEngine,
        columns: &'a [Held<'a>],
        all: usize,
        gaps: Option<&'a Gaps>,
    ) -> Batch<'a> {
        let (rows, picked) = gaps.map_or((all, None), |gaps| (gaps.picked.len(), Some(&gaps.picked[..])));
        Batch { engine, columns, rows, picked, width: 0, fetched: None, may_wake: true }
    }

    /// Has `compute` do all rows, part by part, and gives their statuses. After an error, or what a signal's handler raised, rows of `out`
    /// that were not computed are zero. Python need not be attached.
    pub(crate) fn run(
        &self,
        out: Out<'_>,
        compute: impl Fn(Part<'_>, Check<'_>) -> Result<(), Error> + Sync,
    ) -> Result<Vec<RowStatus>, Failure> {
        let mut all = statuses(self.rows)?;
        let bytes = self.of_rows(0..self.rows, &out);
        // Results would go to where columns are read from later.
        let is_whole = match &out {
            Out::Foreign(memory, _) => self.columns.iter().any(|column| column.overlaps(&memory.addresses())),
            Out::Own(_) => false,
        };
        let part = match self.engine.reaches_memory() {
            true => (bytes / PARTS).clamp(LEAST_OF_PART, PART),
            false => self.engine.threads().saturating_mul(PART_OF_THREAD).min(PART),
        };
        let part = part - ROOM;
        let parts = if is_whole { 1 } else { bytes.div_ceil(part).max(1) };
        let most = bytes.div_ceil(parts);
        let line = Mutex::new(Line { next: 0, is_begun: false, most, statuses: &mut all, out });
        let progress = Progress {
            began: Instant::now(),
            done: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            has_woken: AtomicBool::new(false),
            failure: Mutex::default(),
        };
        let mut signals = Signals::new();
        let mut check = || {
            if signals.check().is_break() {
                progress.is_stopped.store(true, Relaxed);
            }
            progress.check()
        };
        scope(|scope| {
            let (works, ends) = channel::<()>();
            let at_once = match (self.engine.reaches_memory(), self.engine.threads()) {
                (true, _) => IN_FLIGHT,
                // Without a pool to share, each thread of ours would compute, and the engine has leave for one.
                (false, 1) => 1,
                // One is copied, another computed.
                (false, _) => 2,
            };
            // Others compute if there are several, so that this thread can ask for signals.
            let others = match parts.min(at_once) {
                1 => 0,
                several => several,
            };
            let mut is_begun = false;
            for _ in 0..others {
                let (works, line, progress, compute) = (works.clone(), &line, &progress, &compute);
                let work = move || {
                    self.work(line, progress, compute, &mut || progress.check());
                    drop(works);
                };
                if Builder::new().name("hypergrove-part".into()).spawn_scoped(scope, work).is_err() {
                    break;
                }
                is_begun = true;
            }
            drop(works);
            if !is_begun {
                self.work(&line, &progress, &compute, &mut check);
            }
            while ends.recv_timeout(Signals::PAUSE) == Err(RecvTimeoutError::Timeout) {
                let _ = check();
            }
        });
        let line = line.into_inner().unwrap_or_else(PoisonError::into_inner);
        line.out.zero((self.rows - line.next) * self.width);
        // What a handler raised is not to be lost behind another error.
        signals.finish()?;
        match progress.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, why)) => Err(why),
            None => Ok(all),
        }
    }

    /// Bytes that are copied for rows.
    fn of_rows(&self, rows: Range<usize>, out: &Out<'_>) -> usize {
        let of_lists = if self.has_list() { rows.clone().map(|row| self.of_row(row)).sum() } else { 0 };
        rows.len().saturating_mul(self.width(out)).saturating_add(of_lists)
    }

    /// Bytes of lists that are copied for a row.
    fn of_row(&self, row: usize) -> usize {
        let row = self.picked.map_or(row, |picked| picked[row]);
        self.columns.iter().map(|column| column.of_row(row)).sum()
    }

    fn has_list(&self) -> bool {
        self.columns.iter().any(|column| matches!(column, Held::Each(_)))
    }

    /// Bytes that are copied for each row, without those of lists.
    fn width(&self, out: &Out<'_>) -> usize {
        let of_out = if matches!(out, Out::Foreign(..)) { self.width } else { 0 };
        self.columns.iter().map(Held::width).sum::<usize>() + of_out
    }

    /// The next part's rows.
    fn next(&self, line: &mut Line<'_>) -> Option<Range<usize>> {
        // Of no rows, the engine says whether all else is right.
        if line.next == self.rows && line.is_begun {
            return None;
        }
        let (first, width, mut bytes) = (line.next, self.width(&line.out), 0);
        let left = self.rows - first;
        let count = match (self.has_list(), width) {
            (false, 0) => left,
            (false, width) => line.most.div_ceil(width).min(left),
            (true, width) => {
                let rows = (first..self.rows).take_while(|row| {
                    let has_room = bytes < line.most;
                    bytes += width + self.of_row(*row);
                    has_room
                });
                rows.count()
            }
        };
        // Values without bytes take none of a part.
        let count = if line.most == 0 { left } else { count };
        (line.is_begun, line.next) = (true, first + count);
        Some(first..first + count)
    }

    /// Computes parts until there are no more.
    fn work(
        &self,
        line: &Mutex<Line<'_>>,
        progress: &Progress,
        compute: &(impl Fn(Part<'_>, Check<'_>) -> Result<(), Error> + Sync),
        check: Check<'_>,
    ) {
        let (mut memory, mut results) = (PartMemory::default(), Vec::new());
        let threads = self.engine.threads();
        while check().is_continue() {
            // One part is copied at a time, by all threads: so the first is ready early.
            let mut next = lock(line);
            let Some(rows) = self.next(&mut next) else { break };
            let (statuses, others) = take(&mut next.statuses).split_at_mut(rows.len());
            next.statuses = others;
            let (first, out_bytes) = (rows.start, rows.len() * self.width);
            let mut out = next.out.split(out_bytes);
            let copied = self.copy(&rows, &mut memory).and_then(|columns| {
                // Ordinary memory: a device that hangs while it writes to other memory is waited for without a limit.
                if matches!(out, Out::Foreign(..)) && results.len() < out_bytes {
                    results = Vec::new();
                    results = zeros(out_bytes)?;
                }
                Ok(columns)
            });
            drop(next);
            let columns = match copied {
                Ok(columns) => columns,
                Err(why) => {
                    out.zero(out_bytes);
                    progress.fail(first, why.into());
                    break;
                }
            };
            let columns: Vec<Column<'_>> = columns.iter().map(PartColumn::column).collect();
            let to = match &mut out {
                Out::Own(out) => &mut **out,
                Out::Foreign(..) => &mut results[..out_bytes],
            };
            let done = compute(Part { rows: rows.clone(), columns: &columns, statuses, out: &mut *to }, &mut *check);
            if done.is_err() {
                // An earlier part's results may be there still.
                to.fill(0);
            }
            if let Out::Foreign(memory, at) = out {
                memory.copy_in(at, &results[..out_bytes], threads);
            }
            if let Err(why) = done {
                progress.fail(first, why.into());
                break;
            }
            progress.done.fetch_add(rows.len(), Relaxed);
            self.wake(progress);
        }
        self.engine.memories().give_back(memory);
    }

    /// Copies a part's columns, as far as others may write to them.
    fn copy<'m>(&'m self, rows: &Range<usize>, memory: &'m mut PartMemory) -> PyResult<Vec<PartColumn<'m>>> {
        let gaps = ALIGN * self.columns.len();
        let needs = match self.of_rows(rows.clone(), &Out::none()) {
            0 => 0,
            bytes => bytes + gaps,
        };
        if memory.len() < needs || needs >= REACHED && memory.is_ordinary() && self.engine.reaches_memory() {
            self.engine.memories().give_back(take(memory));
            *memory = self.engine.memories().take(self.engine, needs)?;
        }
        let (is_reached, threads) = (!memory.is_ordinary(), self.engine.threads());
        let mut free = &mut memory[..];
        let columns = self.columns.iter().enumerate().map(|(number, column)| {
            let past_caches = is_reached && self.fetched == Some(number);
            let how = Copying { threads, past_caches };
            match self.picked {
                None => column.some(rows, &mut free, how),
                Some(picked) => PartColumn::Slices(column.pick(&picked[rows.clone()], &mut free, how)),
            }
        });
        Ok(columns.collect())
    }

    /// Has the engine initialise its devices if the rows that are left are worth that, at the pace so far.
    fn wake(&self, progress: &Progress) {
        if !self.may_wake || progress.has_woken.load(Relaxed) || self.engine.reaches_memory() {
            return;
        }
        let done = progress.done.load(Relaxed);
        let pace = progress.began.elapsed().as_secs_f64() / done as f64;
        if pace * (self.rows - done) as f64 > WAKE && !progress.has_woken.swap(true, Relaxed) {
            // Where there are none, or where they fail, the call goes on without them.
            let _ = self.engine.memory(1);
        }
    }
}

/// Memory for the copies of a part.
enum PartMemory {
    Ordinary(Vec<u8>),
    /// Of the engine.
    Reached(Memory),
}

impl Default for PartMemory {
    fn default() -> PartMemory {
        PartMemory::Ordinary(Vec::new())
    }
}

impl PartMemory {
    fn is_ordinary(&self) -> bool {
        matches!(self, PartMemory::Ordinary(_))
    }
}

impl Deref for PartMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PartMemory::Ordinary(bytes) => bytes,
            PartMemory::Reached(memory) => memory,
        }
    }
}

impl DerefMut for PartMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            PartMemory::Ordinary(bytes) => bytes,
            PartMemory::Reached(memory) => memory,
        }
    }
}

/// Memory of an engine for parts, kept between calls: to get it takes longer than to copy a part.
pub(crate) struct PartMemories {
    process: u32,
    /// In order of their sizes.
    idle: Mutex<Vec<Memory>>,
}

impl PartMemories {
    pub(crate) fn new() -> PartMemories {
        PartMemories { process: process::id(), idle: Mutex::default() }
    }

    fn take(&self, engine: &SharedEngine, bytes: usize) -> PyResult<PartMemory> {
        // A forked child may share its parent's memory.
        if bytes >= REACHED && engine.reaches_memory() && self.process == process::id() {
            let mut idle = lock(&self.idle);
            // The smallest that fits. If none does, the largest makes way for the new one.
            let fitting = idle.partition_point(|memory| memory.len() < bytes);
            let kept = if fitting < idle.len() { Some(idle.remove(fitting)) } else { None };
            let too_small = if kept.is_none() { idle.pop() } else { None };
            drop(idle);
            drop(too_small);
            // There may be no more memory that devices reach.
            let new = || {
                let memory = engine.memory(bytes.next_multiple_of(LEAST_OF_PART)).ok();
                memory.filter(|memory| !memory.devices().is_empty())
            };
            if let Some(memory) = kept.or_else(new) {
                return Ok(PartMemory::Reached(memory));
            }
        }
        zeros(bytes).map(PartMemory::Ordinary)
    }

    fn give_back(&self, memory: PartMemory) {
        if let PartMemory::Reached(memory) = memory
            && memory.len() <= PART
        {
            let mut idle = lock(&self.idle);
            let place = idle.partition_point(|other| other.len() < memory.len());
            idle.insert(place, memory);
            // The largest stay.
            let dropped = if idle.len() > IN_FLIGHT { Some(idle.remove(0)) } else { None };
            drop(idle);
            drop(dropped);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
