//! Errors for the user, with the way out.

use hypergrove::ErrorKind;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// An error for the user: what failed, with its value, and if there is one the way out.
#[derive(Clone, Debug)]
pub struct Failure {
    /// After `error:`.
    pub message: String,
    /// After `hint:`.
    pub hint: Option<String>,
    /// The reader of standard output has gone: nobody is left to read on.
    pub silent: bool,
    /// Memory did not suffice: less of the same may do.
    pub is_memory: bool,
}

impl Failure {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: None, silent: false, is_memory: false }
    }
    /// Names the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
    /// Puts the name of the thing before what is wrong with it.
    #[must_use]
    pub fn of(mut self, thing: impl Display) -> Failure {
        self.message = format!("{thing}: {}", self.message);
        self
    }
    /// The action that failed, its file, and the reason that the system gave.
    pub fn io(action: &str, thing: impl Display, error: &io::Error) -> Failure {
        let text = error.to_string();
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file or directory",
            io::ErrorKind::PermissionDenied => "permission denied",
            _ => text.split(" (os error").next().unwrap_or_default(),
        };
        let failure = Failure::new(format!("cannot {action} {thing}: {reason}"));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                failure.hint("free some space or write elsewhere; nothing incomplete was left behind")
            }
            io::ErrorKind::NotFound => failure.hint("check the name; a relative one begins in the current directory"),
            io::ErrorKind::PermissionDenied => failure.hint("check its owner and mode, and those of its directory"),
            _ => failure,
        }
    }
}

impl From<hypergrove::Error> for Failure {
    fn from(error: hypergrove::Error) -> Failure {
        let is_memory = error.kind() == ErrorKind::OutOfMemory;
        let hint = match &error {
            hypergrove::Error::OutOfMemory { needs, .. } => {
                Some(format!("give more with --memory, for example --memory {}", enough(*needs)))
            }
            _ if error.kind() == ErrorKind::Unsupported => Some("`hypergrove devices` lists what there is".into()),
            _ => None,
        };
        Failure { message: error.to_string(), hint, silent: false, is_memory }
    }
}

impl From<hypergrove::KeyError> for Failure {
    fn from(error: hypergrove::KeyError) -> Failure {
        let failure = Failure::new(error.to_string());
        match error {
            hypergrove::KeyError::Malformed { .. } => {
                failure.hint("it may be cut short or have bytes too many; if it is a raw key, name its set with --set")
            }
            hypergrove::KeyError::Passphrase => {
                failure.hint("type it again, or look whether the file that holds it has anything else in it")
            }
            hypergrove::KeyError::Encryption { .. } => {
                failure.hint("encrypt it anew, for example with `openssl pkcs8 -topk8 -scrypt -in FILE`")
            }
            hypergrove::KeyError::Costly { .. } => {
                failure.hint("whoever has the passphrase and the time can encrypt it anew with lower costs")
            }
            _ => failure,
        }
    }
}

/// A round budget for jobs of which the first needs so many bytes: others of the same command may need more.
fn enough(needs: u64) -> String {
    match needs.saturating_mul(2).checked_next_power_of_two().unwrap_or(1 << 63) >> 20 {
        ..64 => "64M".into(),
        mebibytes @ ..1024 => format!("{mebibytes}M"),
        mebibytes => format!("{}G", mebibytes >> 10),
    }
}

/// The exit code, better before worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exit {
    /// All went well; every signature verified.
    Good,
    /// A well-formed signature did not verify.
    Invalid,
    /// Bad input, or the system refused.
    Error,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
