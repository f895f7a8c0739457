//! Rows of the caller's that the device reaches: it copies those that follow each other by one step.

use crate::gpu::{Gpu, Step};
use std::ops::Range;

/// Rows that one copy of the device takes, on average at least: every copy takes a call of the driver. Chosen, not measured.
const ROWS_OF_A_COPY: usize = 4;

/// Bytes of the host that follow each other, and where they belong in a part of the device's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    host: u64,
    device: u64,
    bytes: usize,
}

impl Run {
    /// Copies it to a part of the device's memory that begins there.
    pub(crate) fn upload(&self, part: u64) -> Step {
        Step::Upload { to: part + self.device, from: self.host, bytes: self.bytes }
    }
    /// Copies these columns of its rows, of `row` bytes each, to the same columns there.
    pub(crate) fn upload_columns(&self, part: u64, row: usize, columns: Range<usize>) -> Step {
        let (at, width) = (columns.start as u64, columns.len());
        let (to, from) = (part + self.device + at, self.host + at);
        Step::UploadColumns { to, from, width, pitch: row, rows: self.bytes / row }
    }
    /// Copies it from there.
    pub(crate) fn download(&self, part: u64) -> Step {
        Step::Download { to: self.host, from: part + self.device, bytes: self.bytes }
    }
}

/// Runs of these rows, each given by its address and bytes, if the device reaches them and few copies take them all. On the device, the
/// first begins behind `device` bytes.
pub(crate) fn reached<G: Gpu>(
    gpu: &G,
    rows: impl ExactSizeIterator<Item = (u64, usize)>,
    mut device: usize,
) -> Option<Vec<Run>> {
    let (count, mut runs) = (rows.len(), Vec::<Run>::new());
    for (host, bytes) in rows {
        match runs.last_mut() {
            Some(last) if last.host + last.bytes as u64 == host => last.bytes += bytes,
            last => {
                if last.is_some_and(|last| !gpu.reaches(last.host, last.bytes)) || runs.len() * ROWS_OF_A_COPY > count {
                    return None;
                }
                runs.push(Run { host, device: device as u64, bytes });
            }
        }
        device += bytes;
    }
    runs.last().is_some_and(|last| gpu.reaches(last.host, last.bytes)).then_some(runs)
}
