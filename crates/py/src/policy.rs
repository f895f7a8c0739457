//! How a call treats rows that are null or malformed.

use crate::columns::Rows;
use crate::error::{RowFault, bad};
use crate::exit::detach;
use crate::gaps::{Gaps, Nulls};
use crate::room::{too_many, zeros};
use hypergrove::quote::Quote;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Whether such rows are an exception, or have a null as their result.
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
            _ => Err(bad(format!("{what}: {}; give \"error\" or {other:?}", Quote::name(value, ["error", other])))),
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
