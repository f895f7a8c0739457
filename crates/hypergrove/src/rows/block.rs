//! Rows as the scheduler sees them: in blocks.

use super::RowStatus;
use crate::Error;
use crate::jobs::check_length;
use crate::run::{Compute, Failed, Run, room};
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheduler::{Block, Job, Options, Place, Scheduler};
use hypergrove_engine::scheme::Kind;
use hypergrove_fips205::Position;
use std::ops::ControlFlow;
use std::{mem, ptr};

/// Rows that a thread reads, at least: reading one takes less than a microsecond.
const ROWS_OF_A_THREAD: usize = 512;

/// Rows that the calling thread reads, and whose statuses it hands over, by itself: to wake others would take longer. (Of 1,024 rows 15 and 5 µs,
/// and 0.1 ms until other threads have begun.)
const FEW_ROWS: usize = 1024;

/// A reference to the columns of a call of rows.
pub(crate) trait Rows: Copy + Send + Sync {
    /// What the columns have of a row, and a reference to the columns: a device may run rows of several calls together.
    type Row: Copy + Send + Sync;
    /// Results of some rows, before the caller gets them.
    type Answers<'m>: Sync;
    fn kind(&self) -> Kind;
    /// Bytes of the caller's memory for a row's result: a signature, or nothing.
    fn out_bytes(&self) -> usize {
        0
    }
    /// What is wrong with the columns of a call of so many rows. What concerns one row alone is [`Rows::read`]'s.
    fn check_columns(&self, rows: usize) -> Result<(), Error>;
    /// The same, and whether the caller's memory for results, `out` bytes, fits the rows.
    fn check(&self, out: usize, rows: usize) -> Result<(), Error> {
        self.check_columns(rows)?;
        check_length("the memory for signatures", rows.saturating_mul(self.out_bytes()), out)
    }
    /// A row, or why it cannot be computed. Lengths and places are looked at here and nowhere else.
    fn read(&self, row: usize) -> Result<Self::Row, RowStatus>;
    /// Results of rows, one at least, that passed the checks. Rows of one call lie together. `memory` is kept between chunks.
    fn compute<'m>(
        place: &Place<'_>,
        group: Group,
        rows: &[Self::Row],
        memory: &'m mut Vec<u8>,
    ) -> Result<Self::Answers<'m>, Error>;
    /// Whether [`compute_held`](Rows::compute_held) takes rows between which others were left out.
    const TAKES_GAPS: bool = false;
    /// The same where all checks of results come before they leave the device, or there are none: results go to `out` at once, the
    /// caller's memory for these rows in as many parts as there are. Gives each row's status; what was not signed is overwritten
    /// with zeros. `None` where results are checked later, or where something is wrong with a row.
    fn compute_held(
        _: &Place<'_>,
        _: Group,
        _: &[Self::Row],
        _out: &mut [&mut [u8]],
        _memory: &mut Vec<u8>,
    ) -> Option<Result<Vec<RowStatus>, Error>> {
        None
    }
    /// Takes the result of row `nth` of those.
    fn finish(answers: &Self::Answers<'_>, nth: usize, row: &Self::Row, to: &mut [u8]) -> RowStatus;
    /// Bytes of memory for a row's output, unless that is the caller's, and for what is kept of the row meanwhile.
    fn held(facts: &GroupFacts, options: &Options) -> usize;
}

/// Output of a program of SLH-DSA.
pub(crate) struct Output<'m> {
    bytes: &'m [u8],
    /// Bytes of a row.
    size: usize,
    /// The rows that have none.
    failed: Failed,
}

impl<'m> Output<'m> {
    /// Computes so many rows of a group of SLH-DSA.
    pub(super) fn new(
        place: &Place<'_>,
        group: Group,
        (rows, is_hedged): (usize, bool),
        memory: &'m mut Vec<u8>,
        compute: Compute<'_>,
    ) -> Result<Output<'m>, Error> {
        let facts = place.worker.programs.facts(group)?;
        let size = facts.plan().out_bytes();
        let bytes = room(memory, rows * size);
        let failed = (Run { place: *place, facts: &facts }).output(0..rows, is_hedged, compute, bytes)?;
        Ok(Output { bytes, size, failed })
    }

    /// A row's share.
    pub(super) fn of(&self, nth: usize) -> Result<&[u8], RowStatus> {
        match self.failed.contains_key(&nth) {
            true => Err(RowStatus::KeyDamaged),
            false => Ok(&self.bytes[nth * self.size..][..self.size]),
        }
    }

    /// Bytes of memory for a row of a type, and for what is kept of it meanwhile.
    pub(super) fn held<R>(facts: &GroupFacts) -> usize {
        facts.plan().out_bytes() + size_of::<(R, RowStatus, Position, &[u8], u32)>()
    }
}

/// A block that is cut from a larger one: at first from a whole call's.
pub(crate) trait Cut: Job<Out = ()> {
    /// Takes so many jobs from the front.
    fn cut(&mut self, jobs: usize) -> Self;
}

/// Runs calls of one kind, each given as a block of all its rows, as one call of the scheduler. So rows of several calls may share a chunk. `take`
/// gets the number of the call and of the rows of each block that is done, in order.
pub(crate) fn run_calls<B: Cut>(
    scheduler: &Scheduler,
    calls: Vec<B>,
    block: usize,
    take: &mut dyn FnMut(usize, usize, Result<(), Error>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let rows: Vec<usize> = calls.iter().map(Job::count).collect();
    let (total, blocks) = (rows.iter().sum(), rows.iter().map(|rows| rows.div_ceil(block)).sum::<usize>());
    let mut calls = calls.into_iter().filter(|call| call.count() > 0);
    let mut left = None;
    let mut blocks = (0..blocks).map(|_| {
        let mut call: B = left.take().or_else(|| calls.next()).expect("as many blocks as the calls have");
        let next = call.cut(block.min(call.count()));
        left = Some(call).filter(|call| call.count() > 0);
        next
    });
    let mut waiting = rows.into_iter().enumerate().filter(|(_, rows)| *rows > 0).peekable();
    scheduler.run_blocks(total, &mut blocks, &mut |count, done| {
        let (call, rows) = waiting.peek_mut().expect("its call has rows left");
        let call = *call;
        *rows -= count;
        if *rows == 0 {
            waiting.next();
        }
        take(call, count, done)
    })
}

/// Successive rows of a call, and where their results go.
pub(crate) struct RowBlock<'a, R> {
    pub(super) rows: R,
    /// The number of the call.
    pub(super) call: usize,
    pub(super) options: Options,
    pub(super) first: usize,
    pub(super) statuses: &'a mut [RowStatus],
    pub(super) out: &'a mut [u8],
}

impl<R: Rows> Cut for RowBlock<'_, R> {
    fn cut(&mut self, jobs: usize) -> Self {
        let (statuses, others) = mem::take(&mut self.statuses).split_at_mut(jobs);
        let (out, other_outs) = mem::take(&mut self.out).split_at_mut(jobs * self.rows.out_bytes());
        let first = self.first;
        (self.first, self.statuses, self.out) = (first + jobs, others, other_outs);
        RowBlock { first, statuses, out, ..*self }
    }
}

impl<R: Rows> Job for RowBlock<'_, R> {
    type Out = ();

    fn ask(&self) -> Result<Kind, Error> {
        Ok(self.rows.kind())
    }

    fn count(&self) -> usize {
        self.statuses.len()
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.count() * R::held(facts, &self.options)
    }

    fn run(
        place: &Place<'_>,
        blocks: &mut [Block<Self>],
        memory: &mut Vec<u8>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        // All blocks are of one kind, and so of one group.
        let (to_size, group) = match blocks.first() {
            Some(Block { job, group: Ok(group), .. }) => (job.rows.out_bytes(), *group),
            _ => return Ok(blocks.iter().map(|block| block.group.clone().map(drop)).collect()),
        };
        let count = blocks.iter().map(|block| block.count).sum();
        assert!(blocks.is_sorted_by_key(|block| block.job.call), "blocks of a call lie together");
        let read = read(place, blocks, count);
        // The status of every row if some cannot be computed, and where each block begins among those that can and among all.
        let statuses: Vec<RowStatus> = match read.iter().all(Result::is_ok) {
            true => Vec::new(),
            false => read.iter().map(|row| row.map_or_else(|why| why, |_| RowStatus::NotComputed)).collect(),
        };
        let (mut starts, mut start) = (Vec::with_capacity(blocks.len()), (0, 0));
        for block in &*blocks {
            starts.push(start);
            let computed = statuses.get(start.1..start.1 + block.count);
            let computed = computed.map(|all| all.iter().filter(|status| **status == RowStatus::NotComputed).count());
            start = (start.0 + computed.unwrap_or(block.count), start.1 + block.count);
        }
        let rows: Vec<R::Row> = read.into_iter().filter_map(Result::ok).collect();
        let statuses = &statuses;
        let mut held = None;
        if !rows.is_empty() && to_size > 0 && (R::TAKES_GAPS || rows.len() == count) {
            let out = blocks.iter_mut().map(|block| &mut *block.job.out);
            let mut out = parts(out, statuses, to_size);
            held = R::compute_held(place, group, &rows, &mut out, memory).transpose()?;
        }
        let answers = match rows.is_empty() || held.is_some() {
            true => None,
            false => Some(R::compute(place, group, &rows, memory)?),
        };
        // Only now that the checks have passed are results written to the caller, or given a status.
        let hand_over = |(block, (mut nth, start)): (&mut Block<Self>, (usize, usize))| {
            let RowBlock { statuses: to_statuses, out: to, .. } = &mut block.job;
            for (i, to_status) in to_statuses.iter_mut().enumerate() {
                let mut status = statuses.get(start + i).copied().unwrap_or(RowStatus::NotComputed);
                let to = &mut to[i * to_size..][..to_size];
                if status == RowStatus::NotComputed {
                    status = match (&held, &answers) {
                        (Some(held), _) => held[nth],
                        (None, Some(answers)) => R::finish(answers, nth, &rows[nth], to),
                        (None, None) => status,
                    };
                    nth += 1;
                }
                if status != RowStatus::Signed {
                    to.fill(0);
                }
                *to_status = status;
            }
        };
        let shares = blocks.iter_mut().zip(starts);
        // Results that are still to be copied are more than their statuses.
        if count > FEW_ROWS || (answers.is_some() && to_size > 0) {
            place.each_of(shares.collect(), &|share| {
                hand_over(share);
                Ok(())
            })?;
        } else {
            shares.for_each(hand_over);
        }
        Ok(blocks.iter().map(|_| Ok(())).collect())
    }

    fn discard((): ()) {}
}

/// The memory of rows that are computed, as blocks have it: where rows are left out, as `statuses` says unless it is empty, it is cut.
fn parts<'o>(blocks: impl Iterator<Item = &'o mut [u8]>, statuses: &[RowStatus], size: usize) -> Vec<&'o mut [u8]> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for mut out in blocks {
        let Some(of_block) = statuses.get(start..start + out.len() / size).filter(|_| !statuses.is_empty()) else {
            parts.push(out);
            continue;
        };
        start += of_block.len();
        for rows in of_block.chunk_by(|a, b| (*a == RowStatus::NotComputed) == (*b == RowStatus::NotComputed)) {
            let (part, others) = out.split_at_mut(rows.len() * size);
            out = others;
            if rows[0] == RowStatus::NotComputed {
                parts.push(part);
            }
        }
    }
    parts
}

/// Reads the rows of successive blocks, in the threads that there are.
fn read<R: Rows>(place: &Place<'_>, blocks: &[Block<RowBlock<'_, R>>], count: usize) -> Vec<Result<R::Row, RowStatus>> {
    let jobs = || blocks.iter().map(|block| &block.job);
    if place.pool.is_none() || count <= FEW_ROWS {
        return jobs().flat_map(|job| (0..job.statuses.len()).map(|nth| job.rows.read(job.first + nth))).collect();
    }
    let (first, last) = (&blocks[0].job, &blocks[blocks.len() - 1].job);
    if first.call == last.call {
        // A chunk's blocks follow each other.
        let (of, all) = (first.rows, first.first..last.first + last.statuses.len());
        return place.map(all.len(), ROWS_OF_A_THREAD, &|nth| of.read(all.start + nth));
    }
    let ends = jobs().scan(0, |end, job| {
        *end += job.statuses.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let of = |i: usize| {
        let nth = ends.partition_point(|end| *end <= i);
        let job = &blocks[nth].job;
        job.rows.read(job.first + job.statuses.len() - (ends[nth] - i))
    };
    place.map(count, ROWS_OF_A_THREAD, &of)
}

/// Joins what `distinct` gives for the rows of each call: the distinct keys of some rows, and which of them each row has. Rows of one call lie
/// together; `call` gives the columns of a row.
pub(crate) fn of_calls<'r, C: 'r, T, K>(
    rows: &'r [T],
    call: impl Fn(&T) -> &'r C,
    distinct: impl Fn(&'r C, &'r [T]) -> (Vec<K>, Vec<u32>),
) -> (Vec<K>, Vec<u32>) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return (Vec::new(), Vec::new()) };
    // Nearly always.
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
