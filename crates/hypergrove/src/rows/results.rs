//! The caller's memory for the results of rows.

use super::foreign::{ForeignTarget, RowMemory};
use super::status::RowStatus;
use crate::Error;
use hypergrove_engine::scheduler::{Place, zeros};
use std::ops::Range;

/// The caller's memory for the results of successive rows: up to two columns, and the rows' statuses.
pub(crate) struct Results<'a> {
    /// Empty where there is no such column. The first one is also empty if it is in memory that others may use, until there are results to be copied.
    pub(super) columns: [&'a mut [u8]; 2],
    /// The bytes of a row in each column.
    pub(super) widths: [usize; 2],
    /// The place of the first column if it is in memory that others may use.
    pub(super) foreign: Option<ForeignTarget<'a>>,
    /// Empty for keys, which have none.
    pub(super) statuses: &'a mut [RowStatus],
}

impl<'a> Results<'a> {
    /// Memory for a column with `width` bytes for each row.
    pub(crate) fn new(out: RowMemory<'a>, width: usize, statuses: &'a mut [RowStatus]) -> Results<'a> {
        let (own, foreign): (&mut [u8], _) = match out {
            RowMemory::Own(bytes) => (bytes, None),
            RowMemory::Foreign(memory) => (&mut [], Some(ForeignTarget { memory, at: 0 })),
        };
        Results { columns: [own, &mut []], widths: [width, 0], foreign, statuses }
    }

    /// The bytes of the first column.
    pub(super) fn size(&self) -> usize {
        self.foreign.map_or(self.columns[0].len(), |to| to.memory.size())
    }

    /// The bytes of a row that are copied to memory that others may use.
    pub(super) fn copied(&self) -> usize {
        self.foreign.map_or(0, |_| self.widths[0])
    }

    /// Splits the memory of the next rows off.
    pub(super) fn split(&mut self, rows: usize) -> Results<'a> {
        let [first, second] = &mut self.columns;
        let columns = [(first, self.widths[0]), (second, self.widths[1])].map(|(column, width)| {
            // A column that is not there has no bytes.
            column.split_off_mut(..column.len().min(rows * width)).expect("no more than there are")
        });
        let statuses = self.statuses.split_off_mut(..self.statuses.len().min(rows)).expect("no more than there are");
        let front = Results { columns, statuses, ..*self };
        self.foreign.iter_mut().for_each(|to| to.at += rows * self.widths[0]);
        front
    }

    /// Reborrows the memory.
    pub(super) fn lend(&mut self) -> Results<'_> {
        let [first, second] = &mut self.columns;
        Results { columns: [first, second], statuses: self.statuses, ..*self }
    }

    /// Gives the first column memory of the engine, from which [`Results::store`] copies.
    pub(super) fn stage(&mut self, rows: usize, memory: &mut &'a mut [u8]) {
        if self.foreign.is_some() {
            self.columns[0] = memory.split_off_mut(..rows * self.widths[0]).expect("memory for all");
        }
    }

    /// Copies the first column to memory that others may use, if it belongs there.
    pub(super) fn store(self, place: &Place<'_>) {
        if let Some(to) = self.foreign {
            to.store(place, self.columns[0]);
        }
    }

    /// The memory of the signatures of rows that can be signed: those whose status is not known yet.
    pub(super) fn unsigned(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (width, mut left) = (self.widths[0], &mut *self.columns[0]);
        let alike = self.statuses.chunk_by(|a, b| a.is_open() == b.is_open());
        let places = alike.map(move |rows| {
            let place = left.split_off_mut(..rows.len() * width).expect("memory for all");
            rows[0].is_open().then_some(place)
        });
        places.flatten()
    }

    /// Gives rows whose status is not known yet the next of `statuses`, and clears the memory of all others.
    pub(super) fn close(&mut self, mut statuses: impl Iterator<Item = RowStatus>) {
        for row in 0..self.statuses.len() {
            if self.statuses[row].is_open() {
                self.statuses[row] = statuses.next().expect("a status for each row that was computed");
            } else {
                self.zero(row..row + 1);
            }
        }
    }

    /// Has `work` write the results of rows into the first column.
    pub(super) fn write(
        &mut self,
        rows: Range<usize>,
        work: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bytes = rows.start * self.widths[0]..rows.end * self.widths[0];
        let Some(ForeignTarget { memory, at }) = self.foreign else { return work(&mut self.columns[0][bytes]) };
        let mut results = zeros(bytes.len())?;
        work(&mut results)?;
        memory.store(at + bytes.start, &results);
        Ok(())
    }

    /// Clears rows, and gives them a status.
    pub(super) fn forget(&mut self, rows: Range<usize>, status: RowStatus) {
        self.zero(rows.clone());
        if let Some(statuses) = self.statuses.get_mut(rows) {
            statuses.fill(status);
        }
    }

    fn zero(&mut self, rows: Range<usize>) {
        let bytes = |width: usize| rows.start * width..rows.end * width;
        match self.foreign {
            Some(to) if self.columns[0].is_empty() => to.zero(bytes(self.widths[0])),
            _ => {}
        }
        for (column, width) in self.columns.iter_mut().zip(self.widths) {
            column.get_mut(bytes(width)).unwrap_or_default().fill(0);
        }
    }
}
