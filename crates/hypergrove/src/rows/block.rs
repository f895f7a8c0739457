//! Successive rows of a call as the scheduler sees them, and how they are computed.

use super::foreign::{Copied, copied_bytes, copies_at_a_time, copy_columns, have_widths};
use super::inputs::{Copies, RowInputs};
use super::results::Results;
use super::status::RowStatus;
use crate::Error;
use crate::random::random;
use crate::run::KEYS_OF_A_THREAD;
use crate::scheme::{Failed, Scheme, Signing, Sizes, Verifying, make_keys};
use hypergrove_engine::scheduler::{Checks, IsWanted, Job, Outcomes, Place, Run, Wiped, zeros};
use hypergrove_engine::scheme::{GroupFacts, Kind};
use hypergrove_engine::trace::{self, Step};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;
use zeroize::Zeroize;

/// The fewest rows that a thread reads: reading one row takes less than a microsecond.
const ROWS_OF_A_THREAD: usize = 512;

/// Up to this many rows, the calling thread reads alone: waking other threads would take longer. (Reading 1,024 rows takes 18 µs. Other threads
/// begin after 0.1 ms.)
const FEW_ROWS: usize = 1024;

/// Successive rows of a call, and where their results go.
pub(super) struct RowBlock<'l, 'a, S: Scheme> {
    /// The columns of the rows. Blocks refer to them, because a device may run rows of several calls together.
    inputs: &'l RowInputs<'a, S>,
    rows: Range<usize>,
    results: Results<'l>,
    is_wanted: IsWanted<'l>,
    checks: Checks,
    /// The bytes that are copied for all these rows, from memory that others may use and to it.
    copied: usize,
    /// The copies of the rows of foreign columns, once they are made.
    copies: [Option<Copied<'l>>; 3],
}

impl<'l, 'a, S: Scheme> RowBlock<'l, 'a, S> {
    pub(super) fn new(
        inputs: &'l RowInputs<'a, S>,
        rows: usize,
        results: Results<'l>,
        is_wanted: IsWanted<'l>,
        checks: Checks,
    ) -> RowBlock<'l, 'a, S> {
        let copies = [None, None, None];
        let mut block = RowBlock { inputs, rows: 0..rows, results, is_wanted, checks, copied: 0, copies };
        block.copied = block.copied_bytes();
        block
    }

    /// The bytes that are copied for all rows.
    fn copied_bytes(&self) -> usize {
        let of_columns = copied_bytes(&self.inputs.foreign(), self.rows.clone());
        of_columns.saturating_add(self.rows.len() * self.results.copied())
    }

    /// How many rows need at most so many bytes of copies.
    fn rows_within(&self, bytes: usize) -> usize {
        if self.copied <= bytes {
            return self.rows.len();
        }
        let (columns, mut left) = (self.inputs.foreign(), bytes);
        let of_row = |row: usize| copied_bytes(&columns, row..row + 1).saturating_add(self.results.copied());
        if have_widths(&columns) {
            let each = of_row(self.rows.start);
            return bytes.checked_div(each).unwrap_or(usize::MAX).min(self.rows.len());
        }
        let fits = |row: &usize| left.checked_sub(of_row(*row)).map(|rest| left = rest).is_some();
        self.rows.clone().take_while(fits).count()
    }

    /// Reborrows the block.
    fn lend(&mut self) -> RowBlock<'_, 'a, S> {
        RowBlock { rows: self.rows.clone(), results: self.results.lend(), copies: [None, None, None], ..*self }
    }

    /// The copies of a row's values.
    fn copies_of(&self, row: usize) -> Copies<'l> {
        self.copies.each_ref().map(|column| column.as_ref().map(|column| column.get(row)))
    }
}

impl<S: Scheme> Job for RowBlock<'_, '_, S> {
    type Out = ();
    const JOINS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(self.inputs.kind())
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn cut(&mut self, rows: usize) -> Option<Self> {
        if !(1..self.rows.len()).contains(&rows) {
            return None;
        }
        let front = self.rows.start..self.rows.start + rows;
        self.rows.start = front.end;
        let (results, copies) = (self.results.split(rows), [None, None, None]);
        let mut front = RowBlock { rows: front, results, copies, ..*self };
        front.copied = front.copied_bytes();
        self.copied = self.copied.saturating_sub(front.copied);
        Some(front)
    }

    fn owned(&self) -> usize {
        self.copied
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.rows.len() * self.inputs.held(facts, self.checks)
    }

    fn run(run: &Run<'_>, blocks: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<()>, Error> {
        let done = Outcomes::from(vec![(); blocks.len()]);
        if blocks.first().is_some_and(|block| !(block.is_wanted)()) {
            return Err(Error::Cancelled { what: "nobody wants these rows any more".into() });
        }
        let place = &run.place;
        // Rows are copied and computed in groups, so that the copies take at most `most` bytes at a time, or one row.
        let most = copies_at_a_time(place.worker.has_memory(), place.threads);
        let mut left: VecDeque<RowBlock<'_, '_, S>> = blocks.iter_mut().map(|block| block.lend()).collect();
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
            let columns = group.iter().map(|block| (block.inputs.foreign(), block.rows.clone())).collect();
            let copied = copy_columns(place, columns, &mut copies)?;
            // These results are not in memory that a device reaches: if the device hung while it writes there, the wait for it would have no limit.
            let mut results = zeros(group.iter().map(|block| block.rows.len() * block.results.copied()).sum())?;
            let mut free = &mut results[..];
            for (block, copied) in group.iter_mut().zip(copied) {
                block.results.stage(block.rows.len(), &mut free);
                block.copies = copied;
            }
            let done = match group[0].inputs {
                RowInputs::Sign(_) => sign(run, &mut group, memory),
                RowInputs::Verify(_) => verify(run, &mut group, memory),
                RowInputs::Keygen { set, .. } => generate(run, *set, &mut group),
            };
            if let Err(why) = done {
                drop(group);
                // Results that no caller gets may reveal a key.
                results.zeroize();
                return Err(why);
            }
            group.into_iter().for_each(|block| block.results.store(place));
        }
        Ok(done)
    }
}

/// Reads the rows of blocks. A row that cannot be computed gets its status; the status of the others stays open. `reader` makes the function that
/// reads a row of some columns.
fn read<'l, 'a, S: Scheme, T: Send, R>(
    place: &Place<'_>,
    blocks: &mut [RowBlock<'l, 'a, S>],
    reader: impl Fn(&'l RowInputs<'a, S>) -> R,
) -> Vec<T>
where
    R: Fn(usize, Copies<'l>) -> Result<T, RowStatus> + Sync,
{
    let count = blocks.iter().map(|block| block.rows.len()).sum();
    let readers: Vec<R> = blocks.iter().map(|block| reader(block.inputs)).collect();
    let read = trace::step(Step::ReadRows, count, || read_all(place, count, blocks, &readers));
    let mut left = &read[..];
    for RowBlock { rows, results, .. } in blocks {
        let of_block = left.split_off(..rows.len()).expect("all rows were read");
        for (status, row) in results.statuses.iter_mut().zip(of_block) {
            *status = row.as_ref().err().copied().unwrap_or_default();
        }
    }
    // Usually no row is refused. Then the number of rows is known, and collecting them needs no repeated growth.
    match read.iter().all(Result::is_ok) {
        true => read.into_iter().map(|row| row.expect("none is refused")).collect(),
        false => read.into_iter().filter_map(Result::ok).collect(),
    }
}

/// Reads `count` rows, on the threads of their place. Each block has its reader.
fn read_all<'l, S: Scheme, T: Send>(
    place: &Place<'_>,
    count: usize,
    blocks: &[RowBlock<'l, '_, S>],
    readers: &[impl Fn(usize, Copies<'l>) -> Result<T, RowStatus> + Sync],
) -> Vec<Result<T, RowStatus>> {
    let are_few = place.pool.is_none() || count <= FEW_ROWS;
    if let ([RowBlock { rows, copies: [None, None, None], .. }], [reader]) = (blocks, readers) {
        if are_few {
            return rows.clone().map(|row| reader(row, [None; 3])).collect();
        }
        return place.map_in_place(count, ROWS_OF_A_THREAD, &|nth| reader(rows.start + nth, [None; 3]));
    }
    let of_block = |nth: usize, row| readers[nth](row, blocks[nth].copies_of(row));
    if are_few {
        let mut read = Vec::with_capacity(count);
        for (nth, block) in blocks.iter().enumerate() {
            read.extend(block.rows.clone().map(|row| of_block(nth, row)));
        }
        return read;
    }
    let mut end = 0;
    let ends = blocks.iter().map(|block| {
        end += block.rows.len();
        end
    });
    let ends: Vec<usize> = ends.collect();
    place.map_in_place(count, ROWS_OF_A_THREAD, &|i| {
        let nth = ends.partition_point(|end| *end <= i);
        of_block(nth, blocks[nth].rows.end - (ends[nth] - i))
    })
}

/// Ends the statuses of blocks: `statuses` are those of the rows that were computed, in order.
fn close<S: Scheme>(blocks: &mut [RowBlock<'_, '_, S>], mut statuses: impl Iterator<Item = RowStatus>) {
    blocks.iter_mut().for_each(|block| block.results.close(&mut statuses));
}

/// Signs rows. Signatures that passed the checks go to the blocks' memory. That of a row that failed is zero. `memory` is kept between chunks.
fn sign<S: Scheme>(run: &Run<'_>, blocks: &mut [RowBlock<'_, '_, S>], memory: &mut Vec<u8>) -> Result<(), Error> {
    let rows = read(&run.place, blocks, |inputs| match inputs {
        RowInputs::Sign(rows) => rows.reader(),
        _ => unreachable!("blocks that run together are of one kind"),
    });
    let failed = match rows.first() {
        None => Failed::new(),
        Some(first) => {
            let of = |i: usize| rows[i].to_sign();
            let keys = |range: Range<usize>| of_calls(&rows[range], |row| row.of, |of, rows| of.keys_of(rows));
            let work = Signing { jobs: rows.len(), of: &of, keys: &keys };
            let mut places: Vec<&mut [u8]> = blocks.iter_mut().flat_map(|block| block.results.unsigned()).collect();
            work.sign(run, first.of.set(), false, &mut places, memory)?
        }
    };
    let statuses = (0..rows.len()).map(|row| match failed.contains_key(&row) {
        true => RowStatus::KeyDamaged,
        false => RowStatus::Signed,
    });
    close(blocks, statuses);
    Ok(())
}

/// Verifies the signatures of rows. `memory` is kept between chunks.
fn verify<S: Scheme>(run: &Run<'_>, blocks: &mut [RowBlock<'_, '_, S>], memory: &mut Vec<u8>) -> Result<(), Error> {
    let rows = read(&run.place, blocks, |inputs| match inputs {
        RowInputs::Verify(rows) => rows.reader(),
        _ => unreachable!("blocks that run together are of one kind"),
    });
    let mut verdicts = Vec::new();
    if let Some(first) = rows.first() {
        let of = |i: usize| rows[i].to_verify();
        let keys = |range: Range<usize>| of_calls(&rows[range], |row| row.of, |of, rows| of.keys_of(rows));
        verdicts = Verifying { jobs: rows.len(), of: &of, keys: &keys }.verify(run, first.of.set(), memory)?;
    }
    close(blocks, verdicts.into_iter().map(|valid| if valid { RowStatus::Valid } else { RowStatus::Invalid }));
    Ok(())
}

/// Makes the keys of rows.
fn generate<S: Scheme>(run: &Run<'_>, set: S, blocks: &mut [RowBlock<'_, '_, S>]) -> Result<(), Error> {
    let Sizes { seeds: of_seeds, private: of_private, public: of_public, .. } = set.sizes();
    let mut seeds = Wiped(vec![0; blocks.iter().map(|block| block.rows.len()).sum::<usize>() * of_seeds]);
    let mut left = &mut seeds.0[..];
    let parts = blocks.iter().flat_map(|RowBlock { inputs, rows, .. }| {
        let given = if let RowInputs::Keygen { seeds, .. } = inputs { *seeds } else { None };
        let to = left.split_off_mut(..rows.len() * of_seeds).expect("memory for all seeds");
        let given = given.map(|given| &given[rows.start * of_seeds..rows.end * of_seeds]);
        let size = KEYS_OF_A_THREAD * of_seeds;
        to.chunks_mut(size).enumerate().map(move |(nth, to)| (given.map(|given| &given[nth * size..][..to.len()]), to))
    });
    // One thread takes a few milliseconds for the seeds of a full chunk, and the device would wait for them.
    run.place.each_of(parts.collect(), &|(given, to): (Option<&[u8]>, &mut [u8])| match given {
        None => random(to),
        Some(seeds) => {
            to.copy_from_slice(seeds);
            Ok(())
        }
    })?;
    let mut private: Vec<&mut [u8]> = blocks.iter_mut().map(|block| &mut *block.results.columns[0]).collect();
    make_keys(run, set, &seeds.0, &mut private)?;
    let columns =
        blocks.iter_mut().flat_map(|RowBlock { results: Results { columns: [private, public], .. }, .. }| {
            private.chunks(KEYS_OF_A_THREAD * of_private).zip(public.chunks_mut(KEYS_OF_A_THREAD * of_public))
        });
    run.place.each_of(columns.collect(), &|(private, public): (&[u8], &mut [u8])| {
        let keys = private.chunks_exact(of_private).zip(public.chunks_exact_mut(of_public));
        keys.for_each(|(private, public)| S::write_public(private, public));
        Ok(())
    })
}

/// Joins the results of `distinct` for the rows of each call: the distinct keys of all rows, and the index of each row's key. Rows of one call
/// are adjacent. `call` returns the columns of a row.
fn of_calls<'c, C: 'c, T, K>(
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
