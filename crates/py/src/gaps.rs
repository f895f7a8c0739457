//! Rows that a call leaves out, because they are null or malformed. The engine never sees them.

/// The rows of a call that are left out.
pub(crate) struct Gaps {
    /// The rows of the call.
    pub(crate) rows: usize,
    /// The others, in order.
    pub(crate) picked: Vec<usize>,
    pub(crate) nulls: Nulls,
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
}

/// The reason of a row that was given as null.
const NULL: &str = "null";

/// The rows of results that are null.
pub(crate) struct Nulls {
    /// A bit for each row, set where it is null.
    pub(crate) missing: Vec<u8>,
    pub(crate) count: usize,
    /// Those that are null because something is wrong with them, and what, in order.
    pub(crate) malformed: Vec<(usize, String)>,
}

impl Nulls {
    /// Adds a row, which may be null already.
    pub(crate) fn add(&mut self, row: usize) {
        self.count += usize::from(!self.is_null(row));
        self.missing[row / 8] |= 1 << (row % 8);
    }

    /// The nulls of an array with so many rows, by the reasons that [`Nulls::reasons`] gave; none if there are no reasons.
    pub(crate) fn of(rows: usize, reasons: impl Iterator<Item = (usize, String)>) -> Option<Nulls> {
        let mut reasons = reasons.peekable();
        // An array of rows without bytes may have any number of them, and has no nulls.
        reasons.peek()?;
        let mut nulls = Nulls { missing: vec![0; rows.div_ceil(8)], count: 0, malformed: Vec::new() };
        for (row, why) in reasons {
            nulls.add(row);
            if why != NULL {
                nulls.malformed.push((row, why));
            }
        }
        Some(nulls)
    }

    /// Those of the rows that an array takes from this one.
    pub(crate) fn select(&self, count: usize, row: impl Fn(usize) -> usize) -> Option<Nulls> {
        let why =
            |row| self.malformed.binary_search_by_key(&row, |(row, _)| *row).map_or(NULL, |at| &self.malformed[at].1);
        let nulls = (0..count).filter(|at| self.is_null(row(*at)));
        Nulls::of(count, nulls.map(|at| (at, why(row(at)).into())))
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.missing[row / 8] >> (row % 8) & 1 == 1
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
            None => (row, NULL),
        })
    }
}
