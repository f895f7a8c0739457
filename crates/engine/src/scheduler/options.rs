//! Options of an engine, and of the work that its callers bring.

use crate::{Device, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The options of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Host threads.
    pub threads: usize,
    /// The host's memory for prepared programs, and for each call's jobs and outputs at hand.
    pub memory: MemoryBudget,
    /// How long a wait for a device may take, at least; `Duration::MAX` for no limit. See [`Program::time_limit`](crate::Program::time_limit).
    pub device_timeout: Duration,
}

/// How much of the host's memory an engine may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryBudget {
    /// So many bytes, which the caller chose.
    Chosen(u64),
    /// By default, so many bytes for `each` device that has memory of its own, and for an engine that has `none`, but `most` at most.
    ByDevices {
        /// For each device with memory of its own.
        each: u64,
        /// For all devices, if none has memory of its own.
        none: u64,
        /// The upper limit, whatever the devices.
        most: u64,
    },
}

impl MemoryBudget {
    /// The bytes for these devices.
    pub(super) fn of<'d>(self, devices: impl Iterator<Item = &'d Device>) -> u64 {
        match self {
            MemoryBudget::Chosen(bytes) => bytes,
            MemoryBudget::ByDevices { each, none, most } => match devices.filter(|device| device.memory > 0).count() {
                0 => none.min(most),
                devices => most.min(devices as u64 * each),
            },
        }
    }
}

/// The checks of results. Jobs share a batch only if their checks are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// Whether signing compares the top root that it grows anew with the key's.
    pub check_roots: bool,
    /// Whether every signature is verified before it is handed out.
    pub verify_signatures: bool,
    /// Whether everything is computed twice and compared.
    pub redundant: bool,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { check_roots: true, verify_signatures: false, redundant: false }
    }
}

impl Checks {
    /// Jobs that a program for so many has room for: with redundancy at least two, so that a single job has another place.
    pub(crate) fn room_for(self, jobs: usize) -> usize {
        if self.redundant { jobs.max(2) } else { jobs }
    }

    /// Whether everything is computed once, and nothing is computed to check it.
    pub(crate) fn are_plain(self) -> bool {
        !self.redundant && !self.verify_signatures
    }

    /// How many copies of a chunk's outputs are in memory: also those that results are taken from, and those that are compared.
    pub fn copies(self) -> usize {
        2 + usize::from(self.redundant)
    }
}

/// Cancels the work of those calls that have it among their options, from any thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Cancels the work, once and for all: no chunk and no queued job begins any more. Work that no device has begun ends with
    /// [`Error::Cancelled`]. A ticket's job that has begun goes on: its ticket has the result. A set of rows ends after the chunks that run if
    /// nobody wants any result of its batch. A queued job keeps its place
    /// until a device is free next, and its ticket gets the error then.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the work is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.is_cancelled() {
            true => Err(CancelToken::error()),
            false => Ok(()),
        }
    }

    /// The error of work that is cancelled.
    pub(super) fn error() -> Error {
        Error::Cancelled { what: "its caller cancelled it".into() }
    }
}

/// The options of the work that a caller brings.
#[derive(Clone, Debug, Default)]
pub struct WorkOptions {
    /// The checks of results.
    pub checks: Checks,
    /// How long a call may take before no more of its work begins; see [`Error::DeadlineExceeded`]. The call returns when the chunks that have begun
    /// are done. A call that takes its jobs from an iterator also waits until the iterator's `next` has returned, however long that blocks.
    pub timeout: Option<Duration>,
    /// Cancels the work.
    pub cancel: Option<CancelToken>,
}

/// How often a call that waits looks whether it was cancelled.
const LOOKS: Duration = Duration::from_millis(10);

/// When a call's work ends, whatever is left of it.
pub(crate) struct Ends<'w> {
    at: Option<Instant>,
    cancel: Option<&'w CancelToken>,
}

impl WorkOptions {
    /// When the time of a call that began at `start` is over.
    pub(super) fn until(&self, start: Instant) -> Option<Instant> {
        // A time that is too far away for the clock is no limit.
        self.timeout.and_then(|timeout| start.checked_add(timeout))
    }

    /// When the work of a call ends whose time is over at `until`.
    pub(super) fn ends(&self, until: Option<Instant>) -> Ends<'_> {
        Ends { at: until, cancel: self.cancel.as_ref() }
    }
}

impl Ends<'_> {
    /// Fails if no more work may begin.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.cancel.map_or(Ok(()), CancelToken::check)?;
        match self.at {
            Some(at) if at <= Instant::now() => Err(Error::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// How long a call may wait before it checks again, given how long it would.
    pub(crate) fn wait(&self, most: Option<Duration>) -> Option<Duration> {
        let until = self.at.map(|at| at.saturating_duration_since(Instant::now()));
        [most, until, self.cancel.map(|_| LOOKS)].into_iter().flatten().min()
    }
}
