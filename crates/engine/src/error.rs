//! What a caller cannot foresee.

use hypergrove_fips205::digest::ContextTooLong;
use hypergrove_fips205::keys::KeyError;

/// Why a plan could not be executed. Bad signatures are not errors.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot execute this plan.
    Unsupported {
        /// The device's name.
        device: String,
        /// What it declined and why.
        what: String,
    },
    /// The memory budget, or the device's memory, is too small.
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes that one job needs.
        needs: u64,
        /// Bytes that there are.
        has: u64,
    },
    /// An argument has the wrong length.
    Length {
        /// What.
        what: &'static str,
        /// Bytes it must have.
        want: usize,
        /// Bytes it has.
        got: usize,
    },
    /// An argument has a value that cannot be.
    Value {
        /// What, with its value and the way out.
        what: String,
    },
    /// Bytes are no key or signature of the set.
    Key(KeyError),
    /// The device failed.
    Device {
        /// The device's name.
        device: String,
        /// What it said.
        what: String,
    },
    /// A result failed its consistency check and was withheld.
    Inconsistent {
        /// The device's name.
        device: String,
        /// Which check.
        what: String,
    },
    /// The operating system gave no randomness.
    Randomness,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::Unsupported { device, what } => write!(f, "{device} cannot execute {what}"),
            Error::OutOfMemory { device, needs, has } => write!(
                f,
                "{device} has {:.1} MiB for this, one job needs {:.1} MiB; raise the memory budget or use another device",
                *has as f64 / 1048576.0,
                *needs as f64 / 1048576.0
            ),
            Error::Length { what, want, got } => write!(f, "{what} has {got} bytes, must have {want}"),
            Error::Value { what } => f.write_str(what),
            Error::Key(why) => why.fmt(f),
            Error::Device { device, what } => write!(f, "{device} failed: {what}"),
            Error::Inconsistent { device, what } => {
                write!(f, "{device} computed an inconsistent result ({what}); it was withheld: distrust the device")
            }
            Error::Randomness => f.write_str("the operating system gave no randomness; nothing was signed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<KeyError> for Error {
    fn from(why: KeyError) -> Error {
        Error::Key(why)
    }
}

impl From<ContextTooLong> for Error {
    fn from(why: ContextTooLong) -> Error {
        Error::Value { what: why.to_string() }
    }
}
