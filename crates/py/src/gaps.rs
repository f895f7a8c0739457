//! Rows that a call leaves out, because they are null or malformed. The engine never sees them.

use crate::columns::{Rows, too_many, zeros};
use crate::error::{RowFault, bad};
use crate::exit::detach;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// How a call treats such rows: an exception, or a null as their result.
#[derive(Clone, Copy, Default)]
pub(crate) struct RowPolicy {
    /// Whether the call has these keywords.
    is_chosen: bool,
    propagates_nulls: bool,
    pub(crate) permits_malformed: bool,
}

impl RowPolicy {
    /// Reads the keywords `nulls` and `malformed`.
    pub(crate) fn of(nulls: &str, malformed: &str) -> PyResult<RowPolicy> {
        let choose = |what: &str, value: &str, other: &str| match value {
            "error" => Ok(false),
            _ if value == other => Ok(true),
            _ => Err(bad(format!("{what}: {value:?}; give \"error\" or {other:?}"))),
        };
        Ok(RowPolicy {
            is_chosen: true,
            propagates_nulls: choose("nulls", nulls, "propagate")?,
            permits_malformed: choose("malformed", malformed, "null")?,
        })
    }

    /// Refuses `out` where results may be null, since `out` cannot hold nulls.
    pub(crate) fn check_out(self, out: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        match out.is_some() && (self.propagates_nulls || self.permits_malformed) {
            true => Err(PyTypeError::new_err(
                "out cannot hold nulls; leave it out, or leave out nulls=\"propagate\" and malformed=\"null\"",
            )),
            false => Ok(()),
        }
    }

    /// The rows to be left out of a call with these columns, if there are any. All values of a column that comes with a length must have it.
    pub(crate) fn gaps(self, py: Python<'_>, columns: &[(&Rows, Option<usize>)]) -> PyResult<Option<Gaps>> {
        let with_null = columns.iter().map(|(column, _)| column).find(|column| column.has_nulls);
        match with_null {
            Some(column) if !self.is_chosen => Err(column.has_null("drop the nulls or fill them")),
            Some(column) if !self.propagates_nulls => {
                Err(column.has_null("drop the nulls, fill them, or pass nulls=\"propagate\""))
            }
            None if !self.permits_malformed => Ok(None),
            _ => detach(py, || self.find(columns)),
        }
    }

    fn find(self, columns: &[(&Rows, Option<usize>)]) -> PyResult<Option<Gaps>> {
        let rows = columns.iter().map(|(column, _)| column.count).next().unwrap_or(0);
        let mut nulls = Nulls { missing: zeros(rows.div_ceil(8))?, count: 0, malformed: Vec::new() };
        for (column, _) in columns.iter().filter(|(column, _)| column.has_nulls) {
            let is_null = |(_, length): &(usize, Result<usize, RowFault>)| *length == Err(RowFault::Null);
            column.lengths().enumerate().filter(is_null).for_each(|(row, _)| nulls.add(row));
        }
        for (column, wanted) in columns {
            for (row, length) in column.lengths().enumerate() {
                let fault = match length {
                    Err(fault) => fault,
                    Ok(length) if wanted.is_some_and(|wanted| wanted != length) => RowFault::KeyLength,
                    Ok(_) => continue,
                };
                if nulls.is_null(row) {
                    continue;
                }
                if !self.permits_malformed {
                    return Err(column.is_wrong(row, fault));
                }
                nulls.malformed.push((row, format!("{}: {}", column.what, fault.text())));
                nulls.add(row);
            }
        }
        if nulls.count == 0 {
            return Ok(None);
        }
        nulls.malformed.sort_unstable();
        let mut picked = Vec::new();
        picked.try_reserve_exact(rows - nulls.count).map_err(|_| too_many(rows))?;
        picked.extend((0..rows).filter(|row| !nulls.is_null(*row)));
        Ok(Some(Gaps { rows, picked, nulls }))
    }
}

/// The rows of a call that are left out.
pub(crate) struct Gaps {
    /// The rows of the call.
    pub(crate) rows: usize,
    /// The others, in order.
    pub(crate) picked: Vec<usize>,
    nulls: Nulls,
}

impl Gaps {
    /// Moves results of `width` bytes, which lie one after the other, to their rows. Those of rows that were left out are zeros.
    pub(crate) fn spread(&self, results: &mut [u8], width: usize) {
        // From the last on: no row comes before its place among the picked.
        for (at, row) in self.picked.iter().enumerate().rev() {
            results.copy_within(at * width..(at + 1) * width, row * width);
        }
        for row in (0..self.rows).filter(|row| self.nulls.is_null(*row)) {
            results[row * width..][..width].fill(0);
        }
    }

    pub(crate) fn into_nulls(self) -> Nulls {
        self.nulls
    }
}

/// The rows of results that are null.
pub(crate) struct Nulls {
    /// A bit for each row, set where it is null.
    missing: Vec<u8>,
    count: usize,
    /// Those that are null because something is wrong with them, and what, in order.
    malformed: Vec<(usize, String)>,
}

impl Nulls {
    /// Adds a row, which may be null already.
    fn add(&mut self, row: usize) {
        self.count += usize::from(!self.is_null(row));
        self.missing[row / 8] |= 1 << (row % 8);
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.missing[row / 8] >> (row % 8) & 1 == 1
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Arrow's bitmap.
    pub(crate) fn validity(&self) -> Vec<u8> {
        self.missing.iter().map(|byte| !byte).collect()
    }

    /// The rows, and why they are null.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut malformed = self.malformed.iter().peekable();
        let rows = (0..8 * self.missing.len()).filter(|row| self.is_null(*row));
        rows.map(move |row| match malformed.next_if(|(other, _)| *other == row) {
            Some((_, why)) => (row, &why[..]),
            None => (row, "null"),
        })
    }
}
