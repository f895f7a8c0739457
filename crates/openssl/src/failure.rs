//! Errors for OpenSSL's queue: a reason, which is a number there, and a sentence.

use hypergrove::{Error, KeyError};
use std::ffi::CStr;

/// The reason of an error. OpenSSL prints its text before the sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Reason {
    Configuration = 1,
    Parameter = 2,
    Key = 3,
    NoKey = 4,
    Message = 5,
    Buffer = 6,
    Encryption = 7,
    Engine = 8,
    Internal = 9,
    Bio = 10,
}

impl Reason {
    pub(crate) const ALL: [(Reason, &CStr); 10] = [
        (Reason::Configuration, c"invalid configuration"),
        (Reason::Parameter, c"invalid parameter"),
        (Reason::Key, c"invalid key"),
        (Reason::NoKey, c"no key set"),
        (Reason::Message, c"invalid message"),
        (Reason::Buffer, c"buffer too small"),
        (Reason::Encryption, c"encryption failed"),
        (Reason::Engine, c"engine failed"),
        (Reason::Internal, c"internal error"),
        (Reason::Bio, c"reading or writing failed"),
    ];
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) what: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, what: impl Into<String>) -> Failure {
        Failure { reason, what: what.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let reason = match error {
            Error::KeyDamaged { .. } => Reason::Key,
            Error::Value { .. } | Error::Length { .. } => Reason::Parameter,
            _ => Reason::Engine,
        };
        Failure::new(reason, error.to_string())
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::new(Reason::Key, error.to_string())
    }
}
