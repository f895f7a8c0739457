//! Runs: rows that follow each other in a caller's memory that the device reaches. The device copies a run by one step.

use crate::gpu::{Gpu, Step};
use std::ops::Range;

/// Rows that one copy of the device must take on average, because every copy costs a call of the driver. Chosen, not measured.
const ROWS_OF_A_COPY: usize = 4;

/// Consecutive bytes of the host, and where they belong in a part of the device's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ByteRun {
    host: u64,
    device: u64,
    bytes: usize,
}

impl ByteRun {
    /// A step that copies the run to the part of the device's memory that begins at `part`.
    pub(crate) fn upload(&self, part: u64) -> Step {
        Step::Upload { to: part + self.device, from: self.host, bytes: self.bytes }
    }
    /// A step that copies these columns of the run's rows, of `row` bytes each, to the same columns on the device.
    pub(crate) fn upload_columns(&self, part: u64, row: usize, columns: Range<usize>) -> Step {
        let (at, width) = (columns.start as u64, columns.len());
        let (to, from) = (part + self.device + at, self.host + at);
        Step::UploadColumns { to, from, width, pitch: row, rows: self.bytes / row }
    }
    /// A step that copies the run back from the device.
    pub(crate) fn download(&self, part: u64) -> Step {
        Step::Download { to: self.host, from: part + self.device, bytes: self.bytes }
    }
}

/// The runs of these rows, of which each is given by its address and size. `None` if the device does not reach them all, or if they would
/// take too many copies. On the device, the first row begins behind `device` bytes.
pub(crate) fn reached<G: Gpu>(
    gpu: &G,
    rows: impl ExactSizeIterator<Item = (u64, usize)>,
    mut device: usize,
) -> Option<Vec<ByteRun>> {
    let (count, mut runs) = (rows.len(), Vec::<ByteRun>::new());
    for (host, bytes) in rows {
        match runs.last_mut() {
            Some(last) if last.host + last.bytes as u64 == host => last.bytes += bytes,
            last => {
                if last.is_some_and(|last| !gpu.reaches(last.host, last.bytes)) || runs.len() * ROWS_OF_A_COPY > count {
                    return None;
                }
                runs.push(ByteRun { host, device: device as u64, bytes });
            }
        }
        device += bytes;
    }
    runs.last().is_some_and(|last| gpu.reaches(last.host, last.bytes)).then_some(runs)
}
