//! Columns: one value for each row, in the caller's memory.

use super::RowStatus;
use crate::Error;
use std::fmt;
use std::ops::Range;

/// Rows in memory that others may write to during the call, as other threads of a Python program may: a [`Column::Foreign`]. The engine copies
/// the rows of a chunk before it works on them, and reads each byte once. A device that has to do another device's chunk again copies the rows
/// again.
pub trait ForeignRows: fmt::Debug + Sync {
    /// The number of rows.
    fn rows(&self) -> usize;
    /// The length of a row in bytes, which must stay the same during the call.
    fn length(&self, row: usize) -> usize;
    /// The length of every row, if all have the same.
    fn width(&self) -> Option<usize>;
    /// Copies the rows that begin with `first`, one after the other, until they have filled `to`. With `past_caches` the CPU will not read
    /// the copy.
    fn copy(&self, first: usize, to: &mut [u8], past_caches: bool);
}

/// One value for each row.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// Values of `width` bytes each. From the beginning of one value to the next there are `stride` bytes. The engine does not read the
    /// bytes between `width` and `stride`: they belong to the caller.
    Packed {
        /// The values.
        bytes: &'a [u8],
        /// The length of a value, in bytes.
        width: usize,
        /// The distance between the beginnings of two values in bytes, at least `width`.
        stride: usize,
        /// The number of values.
        rows: usize,
    },
    /// Values of any length: value i is `bytes[offsets[i]..offsets[i + 1]]`, so there is one offset more than there are values.
    /// This is how Arrow lays out Binary and LargeBinary. A row whose offsets decrease, or end beyond the bytes, has the status
    /// [`RowStatus::BadOffsets`].
    Variable {
        /// The values.
        bytes: &'a [u8],
        /// The offsets at which the values begin and end.
        offsets: Offsets<'a>,
    },
    /// A slice for each value.
    Slices(&'a [&'a [u8]]),
    /// Values in memory that others may write to during the call.
    Foreign(&'a dyn ForeignRows),
}

/// The offsets of a [`Column::Variable`].
#[derive(Clone, Copy, Debug)]
pub enum Offsets<'a> {
    /// Arrow's Binary.
    I32(&'a [i32]),
    /// Arrow's LargeBinary.
    I64(&'a [i64]),
}

impl Offsets<'_> {
    fn len(&self) -> usize {
        match self {
            Offsets::I32(all) => all.len(),
            Offsets::I64(all) => all.len(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Offsets::I32(all) => size_of_val(*all),
            Offsets::I64(all) => size_of_val(*all),
        }
    }

    fn get(&self, at: usize) -> Option<usize> {
        match self {
            Offsets::I32(all) => usize::try_from(*all.get(at)?).ok(),
            Offsets::I64(all) => usize::try_from(*all.get(at)?).ok(),
        }
    }
}

impl<'a> Column<'a> {
    /// A column of values of `width` bytes without gaps. It has as many rows as there are whole values. A width of 0 gives no rows.
    pub fn packed(bytes: &'a [u8], width: usize) -> Column<'a> {
        Column::Packed { bytes, width, stride: width, rows: bytes.len().checked_div(width).unwrap_or(0) }
    }

    /// The number of values.
    pub fn rows(&self) -> usize {
        match self {
            Column::Packed { rows, .. } => *rows,
            Column::Variable { offsets, .. } => offsets.len().saturating_sub(1),
            Column::Slices(all) => all.len(),
            Column::Foreign(all) => all.rows(),
        }
    }

    /// The bytes of memory that the column occupies.
    #[doc(hidden)]
    pub fn size(&self) -> usize {
        match self {
            Column::Packed { bytes, .. } => bytes.len(),
            Column::Variable { bytes, offsets } => bytes.len() + offsets.size(),
            Column::Slices(all) => size_of_val(*all) + all.iter().map(|value| value.len()).sum::<usize>(),
            Column::Foreign(all) => match all.width() {
                Some(width) => width.saturating_mul(all.rows()),
                None => (0..all.rows()).map(|row| all.length(row)).sum(),
            },
        }
    }

    /// Checks that the column has this number of values, and memory for all of them. Only offsets are left to be checked row by row.
    #[doc(hidden)]
    pub fn check(&self, what: &str, rows: usize) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Value { what: format!("the column of {what}: {why}") });
        if let Column::Variable { offsets, .. } = self
            && offsets.len() == 0
        {
            return wrong("it has no offsets; give one more than there are rows".into());
        }
        if self.rows() != rows {
            return wrong(format!("it has {} rows, the call has {rows}", self.rows()));
        }
        let Column::Packed { bytes, width, stride, .. } = self else { return Ok(()) };
        if stride < width {
            return wrong(format!("a stride of {stride} bytes is less than the width of {width}: the rows overlap"));
        }
        let needs = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(*stride).and_then(|last| last.checked_add(*width)),
        };
        match needs {
            Some(needs) if needs <= bytes.len() => Ok(()),
            _ => wrong(format!(
                "{rows} rows of {width} bytes with a stride of {stride} do not fit the {} bytes that are given",
                bytes.len()
            )),
        }
    }

    /// A value of a column that was checked. `None` if its offsets are wrong, if there is no such row, or if the column is foreign.
    #[doc(hidden)]
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Column::Packed { rows, .. } if row >= *rows => None,
            Column::Packed { bytes, width, stride, .. } => bytes.get(row * stride..)?.get(..*width),
            Column::Variable { bytes, offsets } => bytes.get(offsets.get(row)?..offsets.get(row + 1)?),
            Column::Slices(all) => all.get(row).copied(),
            Column::Foreign(_) => None,
        }
    }

    /// A value of a column that was checked, or the row's copy from a foreign column. The error is `otherwise` if the value does not have this
    /// length.
    pub(crate) fn get_exact<'m>(
        &self,
        row: usize,
        copied: Option<&'m [u8]>,
        length: usize,
        otherwise: RowStatus,
    ) -> Result<&'m [u8], RowStatus>
    where
        'a: 'm,
    {
        match copied.or_else(|| self.get(row)) {
            Some(value) if value.len() == length => Ok(value),
            Some(_) => Err(otherwise),
            None => Err(RowStatus::BadOffsets),
        }
    }

    /// The bytes of successive values, if these lie one after the other in memory.
    pub(crate) fn span(&self, rows: Range<usize>) -> Option<&'a [u8]> {
        match self {
            Column::Packed { bytes, width, stride, .. } if width == stride => {
                bytes.get(rows.start * width..rows.end * width)
            }
            Column::Variable { bytes, offsets } => bytes.get(offsets.get(rows.start)?..offsets.get(rows.end)?),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_the_column_says() {
        let bytes = b"abcdefgh";
        let slices = [&b"x"[..], b""];
        let packed = Column::packed(bytes, 3);
        let strided = Column::Packed { bytes, width: 2, stride: 3, rows: 3 };
        let small = Column::Variable { bytes, offsets: Offsets::I32(&[0, 3, 3, 8]) };
        let large = Column::Variable { bytes, offsets: Offsets::I64(&[0, 3, 3, 8]) };
        let expected: [(Column<'_>, &[&[u8]]); 6] = [
            (packed, &[b"abc", b"def"]),
            (strided, &[b"ab", b"de", b"gh"]),
            (small, &[b"abc", b"", b"defgh"]),
            (large, &[b"abc", b"", b"defgh"]),
            (Column::Slices(&slices), &slices),
            (Column::packed(b"", 0), &[]),
        ];
        for (column, values) in expected {
            assert_eq!(column.check("messages", values.len()), Ok(()));
            assert_eq!(column.rows(), values.len());
            assert!((0..values.len()).map(|row| column.get(row).unwrap()).eq(values.iter().copied()));
            assert_eq!(column.get(values.len()), None);
            let span = column.span(0..values.len());
            assert!(span.is_none_or(|span| span == values.concat()), "{column:?}");
            let is_scattered = matches!(column, Column::Slices(_) | Column::Packed { width: 2, stride: 3, .. });
            assert_eq!(span.is_none(), is_scattered, "{column:?}");
        }
    }

    #[test]
    fn columns_that_lie_are_found_out() {
        let bytes = b"abcdefgh";
        for (column, rows, why) in [
            (Column::packed(bytes, 3), 3, "it has 2 rows, the call has 3"),
            (Column::Packed { bytes, width: 3, stride: 2, rows: 3 }, 3, "the rows overlap"),
            (Column::Packed { bytes, width: 3, stride: 3, rows: 3 }, 3, "do not fit the 8 bytes"),
            (Column::Packed { bytes, width: 9, stride: 9, rows: 1 }, 1, "do not fit the 8 bytes"),
            (Column::Packed { bytes, width: 1, stride: usize::MAX, rows: 3 }, 3, "do not fit the 8 bytes"),
            (Column::Packed { bytes, width: 1, stride: 1, rows: 1 << 32 }, 1 << 32, "do not fit the 8 bytes"),
            (Column::Variable { bytes, offsets: Offsets::I32(&[]) }, 0, "it has no offsets"),
            (Column::Slices(&[]), 1, "it has 0 rows"),
        ] {
            let error = column.check("messages", rows).unwrap_err().to_string();
            assert!(error.contains("the column of messages: ") && error.contains(why), "{error}");
        }
        // A wrong offset is an error of its row alone.
        let offsets = [0, 5, 3, 9, -1, 0, i32::MIN, i32::MAX];
        let as_i64 = offsets.map(i64::from);
        for offsets in [Offsets::I32(&offsets), Offsets::I64(&as_i64), Offsets::I64(&[0, 5, 3, i64::MAX, i64::MIN])] {
            let column = Column::Variable { bytes, offsets };
            assert_eq!(column.check("messages", column.rows()), Ok(()));
            assert_eq!(column.get(0), Some(&b"abcde"[..]));
            assert!((1..column.rows()).all(|row| column.get(row).is_none()));
        }
    }
}
