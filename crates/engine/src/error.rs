//! Errors that a caller cannot predict.

use hypergrove_fips205::digest::MessageError;
use hypergrove_fips205::keys::KeyError;

/// The kind of an [`Error`], by which a program can decide what to do. An error keeps its kind from release to release, while its
/// variant and text may change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument, a job, a key or a signature does not fit the operation. Another try of the call will fail too.
    BadInput,
    /// The parts of a private key do not belong together, or the key changed in memory. The key must not sign.
    KeyDamaged,
    /// A check found a wrong result, and the engine withheld it. Do not trust the device that computed it.
    Withheld,
    /// A device failed or does not answer. Another device may be able to do the work.
    DeviceFailed,
    /// The memory budget, or a device's memory, is too small.
    OutOfMemory,
    /// The device, or this build, cannot do what was asked.
    Unsupported,
    /// The operating system gave no randomness.
    Randomness,
    /// The operating system refused something else: a thread, a file.
    Io,
    /// The queue of tickets has no room for the job now.
    QueueFull,
    /// The deadline passed before the job was done.
    DeadlineExceeded,
    /// The job was cancelled before it began: its engine was drained or dropped.
    Cancelled,
}

impl ErrorKind {
    /// Whether the error is that of one job of a batch, so that the other jobs go on.
    pub(crate) fn is_of_job(self) -> bool {
        matches!(self, ErrorKind::BadInput | ErrorKind::OutOfMemory | ErrorKind::KeyDamaged)
    }
}

/// Why an operation failed; [`Error::kind`] says what a program can do about it. A signature that does not verify is no error.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot execute this plan.
    Unsupported {
        /// The device's name.
        device: String,
        /// The work that the device declined, and why.
        what: String,
    },
    /// The memory budget, or the device's memory, is too small.
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes that the work needs; if jobs can be done one after the other, those of one job.
        needs: u64,
        /// Bytes that are available; 0 if the operating system refuses them.
        has: u64,
    },
    /// An argument has the wrong length.
    Length {
        /// The argument.
        what: &'static str,
        /// Bytes it must have.
        want: usize,
        /// Bytes it has.
        got: usize,
    },
    /// An argument has a value that is not possible.
    Value {
        /// The argument with its value, and the remedy.
        what: String,
    },
    /// Bytes are not a key or a signature of the set.
    Key(KeyError),
    /// The parts of a private key do not fit together. Signing with it would be useless or dangerous.
    KeyDamaged {
        /// The key, the sign of the damage, and the remedy.
        what: String,
    },
    /// The device failed.
    Device {
        /// The device's name.
        device: String,
        /// The failure, as the device or its driver describes it.
        what: String,
    },
    /// A result failed its consistency check and was withheld.
    Inconsistent {
        /// The device's name.
        device: String,
        /// The check that failed.
        what: String,
    },
    /// The operating system gave no randomness.
    Randomness,
    /// The operating system refused something else.
    Io {
        /// The request, the system's answer, and the remedy.
        what: String,
    },
    /// The queue of tickets has no room for the job now.
    QueueFull {
        /// Jobs that the queue holds at most.
        jobs: usize,
        /// Bytes that these jobs may own at most.
        bytes: u64,
    },
    /// The deadline passed before the job was done.
    DeadlineExceeded,
    /// The job was cancelled before it began.
    Cancelled {
        /// Why the job was cancelled.
        what: String,
    },
}

impl Error {
    /// Checks a length that the caller gives.
    pub fn check_length(what: &'static str, want: usize, got: usize) -> Result<(), Error> {
        if want == got { Ok(()) } else { Err(Error::Length { what, want, got }) }
    }

    /// The error for threads that could not be started, and why.
    pub fn no_threads(threads: usize, why: impl core::fmt::Display) -> Error {
        Error::Io { what: format!("{threads} threads could not be started: {why}; use fewer") }
    }

    /// The error for memory of the host that the operating system refuses.
    pub fn no_memory(needs: u64) -> Error {
        Error::OutOfMemory { device: "the host".into(), needs, has: 0 }
    }

    /// The error for an engine whose threads belong to the process that this one was forked from.
    pub(crate) fn of_parent() -> Error {
        let what = "this engine's threads belong to the process that this one was forked from; make a new engine";
        Error::Io { what: what.into() }
    }

    /// The error for a private key of this scheme or set that changed in memory.
    pub fn changed(set: &str) -> Error {
        let out = "read it again, and have the machine's memory tested";
        Error::KeyDamaged {
            what: format!("this {set} private key changed in memory, so nothing is signed with it: {out}"),
        }
    }

    /// The error for a job's result that differs when it is computed again.
    pub fn differs(device: String, result: &str, job: usize) -> Error {
        Error::Inconsistent { device, what: format!("{result} of job {job} differs when it is computed again") }
    }

    /// The kind of this failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Key(KeyError::PublicKeyMismatch { .. }) | Error::KeyDamaged { .. } => ErrorKind::KeyDamaged,
            Error::Key(_) | Error::Length { .. } | Error::Value { .. } => ErrorKind::BadInput,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Error::Device { .. } => ErrorKind::DeviceFailed,
            Error::Inconsistent { .. } => ErrorKind::Withheld,
            Error::Randomness => ErrorKind::Randomness,
            Error::Io { .. } => ErrorKind::Io,
            Error::QueueFull { .. } => ErrorKind::QueueFull,
            Error::DeadlineExceeded => ErrorKind::DeadlineExceeded,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::Unsupported { device, what } => write!(f, "{device} cannot execute {what}"),
            Error::OutOfMemory { device, needs, has: 0 } => {
                write!(
                    f,
                    "{device} gives no {} of memory for this; ask for less, or give the engine a larger memory budget",
                    Size(*needs)
                )
            }
            Error::OutOfMemory { device, needs, has } => write!(
                f,
                "{device} has {} for this, which needs {}; raise the memory budget or use another device",
                Size(*has),
                Size(*needs)
            ),
            Error::Length { what, want, got } => write!(f, "{what} has {got} bytes, must have {want}"),
            Error::Value { what } | Error::KeyDamaged { what } | Error::Io { what } => f.write_str(what),
            Error::Key(why) => why.fmt(f),
            Error::Device { device, what } => write!(f, "{device} failed: {what}"),
            Error::Inconsistent { device, what } => {
                write!(f, "{device} computed an inconsistent result ({what}); it was withheld: distrust the device")
            }
            Error::Randomness => f.write_str(
                "the operating system gave no randomness, without which no key and no hedged signature is made",
            ),
            Error::QueueFull { jobs, bytes } => write!(
                f,
                "the engine's queue is full, which holds {jobs} jobs and {} of theirs; wait for `ready`, or make it larger",
                Size(*bytes)
            ),
            Error::DeadlineExceeded => f.write_str("the deadline passed before the job was done"),
            Error::Cancelled { what } => write!(f, "cancelled: {what}"),
        }
    }
}

/// Bytes, shown in a unit in which the number is at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl core::fmt::Display for Size {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")];
        let (unit, name) = units.into_iter().find(|(unit, _)| self.0 >= *unit).unwrap_or((1, "bytes"));
        let name = if self.0 == 1 { "byte" } else { name };
        match self.0.is_multiple_of(unit) {
            true => write!(f, "{} {name}", self.0 / unit),
            false => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
        }
    }
}

impl std::error::Error for Error {}

impl From<KeyError> for Error {
    fn from(why: KeyError) -> Error {
        Error::Key(why)
    }
}

impl From<MessageError> for Error {
    fn from(why: MessageError) -> Error {
        Error::Value { what: why.to_string() }
    }
}
