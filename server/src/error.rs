//! The one error type: what a client gets, and what a command prints.

use hypergrove::ErrorKind;
use hypergrove::quote::Quote;
use std::fmt;
use std::path::Path;

/// Why something was refused or failed: a sentence for the client, with the HTTP status that fits. It never holds a secret.
#[derive(Clone, Debug)]
pub struct Error {
    /// The HTTP status.
    pub status: u16,
    /// A sentence: the event, the thing that it concerns, and the remedy. Empty where Vault answers with an empty list of errors.
    pub what: String,
    /// Seconds after which another try may succeed.
    pub retry_after: Option<u64>,
}

impl Error {
    /// An error with this status.
    pub fn new(status: u16, what: impl Into<String>) -> Error {
        Error { status, what: what.into(), retry_after: None }
    }

    /// 400: the request is wrong, and another try will fail too.
    pub fn bad(what: impl Into<String>) -> Error {
        Error::new(400, what)
    }

    /// 500: something of the server's own failed.
    pub fn internal(what: impl Into<String>) -> Error {
        Error::new(500, what)
    }

    /// 500: something failed with this file or folder of the server's own.
    pub fn at(path: &Path, why: impl fmt::Display) -> Error {
        Error::internal(format!("{}: {why}", Quote::path(path)))
    }

    /// 403, with the words that clients of Vault look for.
    pub fn denied() -> Error {
        Error::new(403, "permission denied")
    }

    /// 404 without a sentence, as Vault answers for a thing that is not there.
    pub fn missing() -> Error {
        Error::new(404, "")
    }

    /// 429 with `Retry-After`.
    pub fn busy(what: impl Into<String>, seconds: u64) -> Error {
        Error { status: 429, what: what.into(), retry_after: Some(seconds) }
    }

    /// 503: the server is sealed.
    pub fn sealed() -> Error {
        Error::new(503, "the server is sealed; unseal it with POST /v1/sys/unseal")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what.as_str() {
            "" => f.write_str("not found"),
            what => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<hypergrove::Error> for Error {
    fn from(why: hypergrove::Error) -> Error {
        let status = match why.kind() {
            ErrorKind::BadInput => 400,
            ErrorKind::QueueFull => return Error::busy(why.to_string(), 1),
            ErrorKind::DeadlineExceeded => 504,
            ErrorKind::Cancelled => 503,
            _ => 500,
        };
        Error::new(status, why.to_string())
    }
}

/// A task of the runtime fails if it panicked, or if the runtime is shutting down.
impl From<tokio::task::JoinError> for Error {
    fn from(_: tokio::task::JoinError) -> Error {
        Error::internal("the request was not completed because of an error inside the server; its log has the details")
    }
}
