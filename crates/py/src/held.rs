//! Rows of a call, held until it ends, as columns of the engine.

use crate::error::{RowFault, bad};
use crate::foreign::buffer::ForeignBytes;
use crate::foreign::memory::Reading;
use hypergrove::rows::{Column, ForeignRows, Offsets};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::fmt;
use std::ops::Range;

/// One value, where the caller has it.
pub(crate) enum Value {
    /// `bytes`, which never change.
    Shared(PyBackedBytes),
    /// Memory that others may write to.
    Foreign(Box<ForeignBytes>),
    /// None in a sequence.
    Null,
}

impl Value {
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: impl Fn() -> String) -> PyResult<Value> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Value::Shared(PyBackedBytes::from(bytes.clone())));
        }
        let Some(bytes) = ForeignBytes::of(object, &what)? else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{}: {kind} is not bytes, and has no buffer of bytes", what())));
        };
        let dimensions = bytes.shape().len();
        if dimensions > 1 {
            return Err(bad(format!("{}: a buffer with {dimensions} dimensions, where one is wanted", what())));
        }
        Ok(Value::Foreign(bytes.into()))
    }

    /// The bytes, if nobody can write to them; none for a null.
    pub(crate) fn shared(&self) -> Option<&[u8]> {
        match self {
            Value::Shared(bytes) => Some(bytes),
            Value::Foreign(_) => None,
            Value::Null => Some(&[]),
        }
    }

    pub(crate) fn foreign(&self) -> Option<&ForeignBytes> {
        if let Value::Foreign(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn length(&self) -> Result<usize, RowFault> {
        match self {
            Value::Shared(bytes) => Ok(bytes.len()),
            Value::Foreign(bytes) => Ok(bytes.len()),
            Value::Null => Err(RowFault::Null),
        }
    }
}

/// See the module.
pub(crate) enum Held<'a> {
    /// Nobody changes them.
    Still(Column<'a>),
    Slices(Vec<&'a [u8]>),
    Read {
        reading: Reading<'a>,
        width: usize,
        rows: usize,
    },
    /// Others may write to them: the engine has them copied.
    Racing(RacingRows<'a>),
}

impl Held<'_> {
    pub(crate) fn column(&self) -> Column<'_> {
        match self {
            Held::Still(column) => *column,
            Held::Slices(all) => Column::Slices(all),
            // Not `Column::packed`, which counts no rows of width 0.
            Held::Read { reading, width, rows } => {
                let bytes = reading.bytes().unwrap_or_default();
                Column::Packed { bytes, width: *width, stride: *width, rows: *rows }
            }
            Held::Racing(rows) => Column::Foreign(rows),
        }
    }

    /// Whether some of it lies at these addresses. Memory that is not copied may be written through another view: an Arrow array's, say.
    pub(crate) fn overlaps(&self, with: &Range<usize>) -> bool {
        let meets = |other: Range<usize>| other.start < with.end && with.start < other.end;
        let holds = |bytes: &[u8]| meets(addresses(bytes));
        match (self, self.column()) {
            (Held::Racing(RacingRows { memory, .. }), _) => match memory {
                RowsInMemory::Foreign(bytes, _) => meets(bytes.addresses()),
                RowsInMemory::Array(reading, _) => meets(reading.addresses()),
                RowsInMemory::Each(all) => all.iter().any(|value| match (value.foreign(), value.shared()) {
                    (Some(bytes), _) => meets(bytes.addresses()),
                    (None, shared) => holds(shared.unwrap_or_default()),
                }),
            },
            (_, Column::Variable { bytes, offsets }) => {
                let of_offsets = match offsets {
                    Offsets::I32(all) => addresses(all),
                    Offsets::I64(all) => addresses(all),
                };
                holds(bytes) || meets(of_offsets)
            }
            (_, Column::Packed { bytes, .. }) => holds(bytes),
            (_, Column::Slices(all)) => all.iter().any(|bytes| holds(bytes)),
            (_, Column::Foreign(_)) => unreachable!("racing rows come first"),
        }
    }
}

/// The addresses of a slice's bytes.
fn addresses<T>(slice: &[T]) -> Range<usize> {
    let Range { start, end } = slice.as_ptr_range();
    start.addr()..end.addr()
}

/// Rows that others may write to while they are copied.
pub(crate) struct RacingRows<'a> {
    pub(crate) memory: RowsInMemory<'a>,
    /// As many as there are.
    pub(crate) rows: usize,
    /// The numbers of those that the call takes, if it leaves some out.
    pub(crate) picked: Option<&'a [usize]>,
}

/// Where such rows are; arrays with the bytes of a row.
pub(crate) enum RowsInMemory<'a> {
    Foreign(&'a ForeignBytes, usize),
    Array(Reading<'a>, usize),
    /// Some values never change.
    Each(&'a [Value]),
}

impl RacingRows<'_> {
    fn number(&self, row: usize) -> usize {
        self.picked.map_or(row, |picked| picked[row])
    }
}

impl ForeignRows for RacingRows<'_> {
    fn rows(&self) -> usize {
        self.picked.map_or(self.rows, <[usize]>::len)
    }

    fn length(&self, row: usize) -> usize {
        match &self.memory {
            RowsInMemory::Foreign(_, width) | RowsInMemory::Array(_, width) => *width,
            RowsInMemory::Each(all) => all[self.number(row)].length().unwrap_or(0),
        }
    }

    fn width(&self) -> Option<usize> {
        match &self.memory {
            RowsInMemory::Foreign(_, width) | RowsInMemory::Array(_, width) => Some(*width),
            RowsInMemory::Each(_) => None,
        }
    }

    fn copy(&self, first: usize, mut to: &mut [u8], past_caches: bool) {
        let mut row = first;
        while !to.is_empty() {
            let number = self.number(row);
            // Neighbours of an array together.
            let rows = match (self.width(), self.picked) {
                (None, _) => 1,
                (Some(width), None) => to.len() / width,
                (Some(width), Some(picked)) => {
                    let consecutive = picked[row..].iter().zip(number..).take(to.len() / width);
                    consecutive.take_while(|(picked, next)| *picked == next).count()
                }
            };
            let (next, others) = to.split_at_mut(rows * self.length(row));
            match &self.memory {
                RowsInMemory::Foreign(bytes, width) => bytes.copy_out(number * width, next, past_caches),
                RowsInMemory::Array(reading, width) => reading.copy(number * width, next, past_caches),
                RowsInMemory::Each(all) => match (all[number].foreign(), all[number].shared()) {
                    (Some(bytes), _) => bytes.copy_out(0, next, past_caches),
                    (None, shared) => next.copy_from_slice(shared.unwrap_or_default()),
                },
            }
            (row, to) = (row + rows, others);
        }
    }
}

/// Without the rows.
impl fmt::Debug for RacingRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RacingRows").field("rows", &self.rows()).finish_non_exhaustive()
    }
}
