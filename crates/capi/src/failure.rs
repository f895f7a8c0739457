//! Statuses, and the sentence that goes with the last of them.

use crate::pointers::Given;
use hypergrove::rows::RowStatus;
use hypergrove::{Error, ErrorKind, KeyError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `hg_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    InvalidSignature = 1,
    BadInput = 2,
    BufferTooSmall = 3,
    KeyDamaged = 4,
    Withheld = 5,
    DeviceFailed = 6,
    OutOfMemory = 7,
    Unsupported = 8,
    NoRandomness = 9,
    Io = 10,
    Internal = 11,
    Passphrase = 12,
    QueueFull = 13,
    Cancelled = 14,
}

impl Status {
    /// All of them, with the header's name and a few words.
    pub(crate) const ALL: [(Status, &str, &CStr); 15] = [
        (Status::Ok, "HG_OK", c"done"),
        (Status::InvalidSignature, "HG_INVALID_SIGNATURE", c"the signature is not valid"),
        (Status::BadInput, "HG_BAD_INPUT", c"bad input"),
        (Status::BufferTooSmall, "HG_BUFFER_TOO_SMALL", c"the memory for the result is too small"),
        (Status::KeyDamaged, "HG_KEY_DAMAGED", c"the private key is damaged"),
        (Status::Withheld, "HG_WITHHELD", c"a wrong result was withheld"),
        (Status::DeviceFailed, "HG_DEVICE_FAILED", c"a device failed"),
        (Status::OutOfMemory, "HG_OUT_OF_MEMORY", c"out of memory"),
        (Status::Unsupported, "HG_UNSUPPORTED", c"not supported"),
        (Status::NoRandomness, "HG_NO_RANDOMNESS", c"no randomness"),
        (Status::Io, "HG_IO", c"refused by the operating system"),
        (Status::Internal, "HG_INTERNAL", c"a fault of the library"),
        (Status::Passphrase, "HG_PASSPHRASE", c"no passphrase, or a wrong one"),
        (Status::QueueFull, "HG_QUEUE_FULL", c"the queue is full"),
        (Status::Cancelled, "HG_CANCELLED", c"cancelled"),
    ];
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    pub(crate) fn bad_input(text: String) -> Failure {
        Failure { status: Status::BadInput, text }
    }

    pub(crate) fn unsupported(text: String) -> Failure {
        Failure { status: Status::Unsupported, text }
    }

    pub(crate) fn too_small(needs: usize, has: usize) -> Failure {
        let text =
            format!("the result has {needs} bytes, the memory for it {has}; ask for the size first, with NULL and 0");
        Failure { status: Status::BufferTooSmall, text }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Error> for Failure {
    fn from(why: Error) -> Failure {
        let status = match why.kind() {
            ErrorKind::BadInput => Status::BadInput,
            ErrorKind::KeyDamaged => Status::KeyDamaged,
            ErrorKind::Withheld => Status::Withheld,
            ErrorKind::DeviceFailed => Status::DeviceFailed,
            ErrorKind::OutOfMemory => Status::OutOfMemory,
            ErrorKind::Unsupported => Status::Unsupported,
            ErrorKind::Randomness => Status::NoRandomness,
            ErrorKind::Io => Status::Io,
            ErrorKind::QueueFull => Status::QueueFull,
            ErrorKind::Cancelled | ErrorKind::DeadlineExceeded => Status::Cancelled,
            // Kinds of later releases.
            _ => Status::Internal,
        };
        Failure { status, text: why.to_string() }
    }
}

impl From<KeyError> for Failure {
    fn from(why: KeyError) -> Failure {
        let needs_passphrase = matches!(why, KeyError::Encrypted | KeyError::Passphrase);
        let failure = Failure::from(Error::from(why));
        if needs_passphrase { Failure { status: Status::Passphrase, ..failure } } else { failure }
    }
}

thread_local! {
    /// The text that `hg_error_text` points to.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a function of the library. No panic leaves it: C cannot catch one.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    verdict(|| work().map(|()| true))
}

/// As [`call`], for a function that finds a signature valid or not.
pub(crate) fn verdict(work: impl FnOnce() -> Result<bool, Failure>) -> Status {
    judge(catch_unwind(AssertUnwindSafe(work)))
}

/// The status of what became of a call; keeps the sentence of a failure for this thread.
pub(crate) fn judge(done: std::thread::Result<Result<bool, Failure>>) -> Status {
    let failure = match done {
        Ok(Ok(true)) => return Status::Ok,
        Ok(Ok(false)) => Failure { status: Status::InvalidSignature, text: "the signature is not valid".into() },
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let why = panic.downcast_ref::<&str>().copied();
            let why = why.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            Failure { status: Status::Internal, text: format!("a fault of hypergrove, please report it: {why}") }
        }
    };
    let text = CString::new(failure.text.replace('\0', "\\0")).unwrap_or_default();
    // A thread that ends may have lost its texts.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    failure.status
}

/// Runs a function that has no status; `fallback` after a panic.
pub(crate) fn value<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(fallback)
}

#[unsafe(no_mangle)]
extern "C" fn hg_status_text(status: i32) -> Given<c_char> {
    let known = Status::ALL.iter().find(|(known, ..)| *known as i32 == status);
    Given::text(known.map_or(c"unknown status", |(.., text)| text))
}

#[unsafe(no_mangle)]
extern "C" fn hg_error_text() -> Given<c_char> {
    LAST.try_with(|last| Given::text(&last.borrow())).unwrap_or(Given::text(c""))
}

#[unsafe(no_mangle)]
extern "C" fn hg_version() -> Given<c_char> {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    Given::text(CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or_default())
}

#[unsafe(no_mangle)]
extern "C" fn hg_row_status_text(status: u8) -> Given<c_char> {
    let known = ROWS.iter().find(|(known, ..)| *known as u8 == status);
    Given::text(known.map_or(c"unknown status", |(.., text)| text))
}

/// The statuses of rows, with the header's name and a few words.
pub(crate) const ROWS: [(RowStatus, &str, &CStr); 12] = [
    (RowStatus::NotComputed, "HG_ROW_NOT_COMPUTED", c"not computed"),
    (RowStatus::Signed, "HG_ROW_SIGNED", c"signed"),
    (RowStatus::Valid, "HG_ROW_VALID", c"the signature is valid"),
    (RowStatus::Invalid, "HG_ROW_INVALID", c"the signature is not valid"),
    (RowStatus::BadOffsets, "HG_ROW_BAD_OFFSETS", c"its offsets decrease or lie beyond the column"),
    (RowStatus::SignatureLength, "HG_ROW_SIGNATURE_LENGTH", c"the signature has another length than the set's"),
    (RowStatus::KeyLength, "HG_ROW_KEY_LENGTH", c"the public key has another length than the set's"),
    (RowStatus::NoSuchKey, "HG_ROW_NO_SUCH_KEY", c"its index is beyond the table of keys"),
    (RowStatus::DigestLength, "HG_ROW_DIGEST_LENGTH", c"the digest has another length than the hash function's"),
    (RowStatus::KeyDamaged, "HG_ROW_KEY_DAMAGED", c"the private key is damaged"),
    (RowStatus::OutOfMemory, "HG_ROW_OUT_OF_MEMORY", c"it needs more memory than the engine's budget"),
    (RowStatus::Hashed, "HG_ROW_HASHED", c"hashed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_with_a_sentence() {
        let last = || LAST.with(|last| last.borrow().to_str().unwrap().to_string());
        assert_eq!(call(|| panic!("of {}", "test")), Status::Internal);
        assert_eq!(last(), "a fault of hypergrove, please report it: of test");
        assert_eq!(call(|| Err(Failure::bad_input("a\0b".into()))), Status::BadInput);
        assert_eq!(last(), "a\\0b");
        assert_eq!((verdict(|| Ok(false)), call(|| Ok(()))), (Status::InvalidSignature, Status::Ok));
        assert_eq!(last(), "the signature is not valid", "what succeeds says nothing");
        assert_eq!(value(7, || panic!("of test")), 7);
        let other = std::thread::spawn(|| LAST.with(|last| last.borrow().is_empty()));
        assert!(other.join().unwrap(), "a sentence is its thread's");
    }

    #[test]
    fn kinds_of_errors_have_statuses_of_their_own() {
        let status = |why: Error| Failure::from(why).status;
        let device = || "cpu:0".to_string();
        let all = [
            (Error::Value { what: device() }, Status::BadInput),
            (Error::KeyDamaged { what: device() }, Status::KeyDamaged),
            (Error::Inconsistent { device: device(), what: device() }, Status::Withheld),
            (Error::Device { device: device(), what: device() }, Status::DeviceFailed),
            (Error::OutOfMemory { device: device(), needs: 1, has: 0 }, Status::OutOfMemory),
            (Error::Unsupported { device: device(), what: device() }, Status::Unsupported),
            (Error::Randomness, Status::NoRandomness),
            (Error::Io { what: device() }, Status::Io),
        ];
        for (why, expected) in all {
            assert_eq!(status(why), expected);
        }
    }
}
