//! Statuses, and the sentence that goes with the last of them.

use hypergrove::{Error, ErrorKind, KeyError};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
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

/// The sentence of the last failure of this thread. A thread that ends may have lost it.
pub(crate) fn last<R>(read: impl FnOnce(&CStr) -> R) -> Option<R> {
    LAST.try_with(|last| read(&last.borrow())).ok()
}

/// Runs a function that has no status; `fallback` after a panic.
pub(crate) fn value<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(fallback)
}

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

    /// A key that stands in the wrong place is in no sentence for C, and in no `Debug`.
    #[test]
    fn no_text_of_a_caller_is_in_a_sentence() {
        use crate::schemes::{PrivateKey, PublicKey, Set};
        use hypergrove::{EncryptedSigningKey, devices};
        let canaries = hypergrove_testkit::canary::Canaries::read();
        for (form, bytes) in &canaries.forms {
            let check = |what: &str, result: Result<(), Failure>| {
                let shown = format!("{result:?}");
                let status = call(|| result);
                let last = LAST.with(|last| last.borrow().to_str().unwrap().to_string());
                canaries.check(&format!("{form}: {what}: {status:?}"), (shown + &last).as_bytes());
            };
            let text = &*String::from_utf8_lossy(bytes);
            check("set", Set::named(text).map(drop));
            let named = |name: &str| devices::named([name], |name| devices::backend(name, None));
            check("device", named(text).map(drop).map_err(Failure::from));
            check("device of the CPU", named(&format!("cpu:{text}")).map(drop).map_err(Failure::from));
            check("private key", PrivateKey::read(bytes).map(drop));
            check("public key", PublicKey::read(bytes).map(drop));
            check("encrypted key", EncryptedSigningKey::read(bytes).map(drop).map_err(Failure::from));
        }
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
