//! Who may sign: a list of names with their public keys, after OpenSSH's `allowed_signers`.
//!
//! ```
//! use hypergrove::signers::AllowedSigners;
//! use hypergrove::{Engine, Mode, SLH_DSA_SHA2_128F};
//! use std::time::SystemTime;
//!
//! let key = Engine::new()?.generate(&SLH_DSA_SHA2_128F)?.verifying_key();
//! let list = format!("alice@example.org valid-after=2026-01-01 namespace=release {}\n", key.to_base64()?);
//! let signers = AllowedSigners::parse(list.as_bytes())?;
//! let release = Mode::Pure { context: b"release" };
//! let alice = signers.iter().find(|signer| signer.may_sign(release, SystemTime::now()));
//! assert_eq!(alice.map(|signer| signer.key()), Some(&key));
//! assert!(signers.iter().all(|signer| !signer.may_sign(Mode::default(), SystemTime::now())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::keys::VerifyingKey;
use hypergrove_fips205::Mode;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::fmt;
use std::time::SystemTime;

/// Characters of a line that an error quotes.
const QUOTED: usize = 64;

/// A list of signers, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedSigners(Vec<AllowedSigner>);

/// A signer: a name, a public key, and what the key may sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedSigner {
    name: String,
    key: VerifyingKey,
    valid_after: Option<SystemTime>,
    valid_before: Option<SystemTime>,
    /// None: all.
    namespaces: Vec<String>,
}

/// The error of a list of signers, or of a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignersError {
    /// The number of the line, from 1; 0 if the error has no line.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for SignersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for SignersError {}

/// A beginning of what was read.
fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED).collect();
    if quoted.len() < text.len() {
        quoted.push('…');
    }
    quoted
}

/// Reads a time: a day, which begins at midnight UTC (`2026-11-23`), or an instant with its offset (`2026-11-23T12:00:00Z`).
pub fn time(text: &str) -> Result<SystemTime, SignersError> {
    let day = |date: Date| date.to_zoned(TimeZone::UTC).map(|midnight: Zoned| midnight.timestamp());
    let instant = match text.contains(['T', 't', ' ']) {
        true => text.parse::<Timestamp>(),
        false => text.parse::<Date>().and_then(day),
    };
    let why = |_| {
        let what = format!("'{}' is no time: write 2026-11-23 or 2026-11-23T12:00:00Z", quoted(text));
        SignersError { line: 0, what }
    };
    instant.map(SystemTime::from).map_err(why)
}

impl AllowedSigners {
    /// Reads a list with one signer on each line. Empty lines and lines that begin with `#` are left out. A line has a name, optionally
    /// `valid-after=TIME`, `valid-before=TIME` and any number of `namespace=CONTEXT`, and the key in the form of
    /// [`VerifyingKey::to_base64`], separated by spaces. One wrong line is an error of the whole list, because a list that is read in
    /// part would refuse or allow the wrong signatures.
    pub fn parse(text: &[u8]) -> Result<AllowedSigners, SignersError> {
        let mut signers = Vec::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |what: String| SignersError { line: number + 1, what };
            let line = str::from_utf8(line).map_err(|_| wrong("it is not UTF-8".into()))?.trim_ascii();
            if !line.is_empty() && !line.starts_with('#') {
                signers.push(signer(line).map_err(wrong)?);
            }
        }
        match signers.is_empty() {
            true => {
                Err(SignersError { line: 0, what: "it has no signers: write a name and a public key on a line".into() })
            }
            false => Ok(AllowedSigners(signers)),
        }
    }

    /// The signers.
    pub fn iter(&self) -> impl Iterator<Item = &AllowedSigner> {
        self.0.iter()
    }
}

impl AllowedSigner {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The public key.
    pub fn key(&self) -> &VerifyingKey {
        &self.key
    }
    /// Whether the signer may sign in this mode at this time: not before `valid-after`, before `valid-before`, and with a namespace as
    /// the context if the signer has namespaces.
    pub fn may_sign(&self, mode: Mode<'_>, at: SystemTime) -> bool {
        let context = match mode {
            Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. } => Some(context),
            Mode::Internal => None,
        };
        let is_named = self.namespaces.iter().any(|namespace| Some(namespace.as_bytes()) == context);
        (self.namespaces.is_empty() || is_named)
            && self.valid_after.is_none_or(|after| at >= after)
            && self.valid_before.is_none_or(|before| at < before)
    }
}

fn signer(line: &str) -> Result<AllowedSigner, String> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (name, key) = match (words.len(), words.pop()) {
        (2.., Some(key)) => (words.remove(0), key),
        _ => return Err(format!("'{}' is a name without a key, or a key without a name", quoted(line))),
    };
    if name.chars().any(char::is_control) {
        return Err("the name has control characters".into());
    }
    let key = VerifyingKey::from_base64(key).map_err(|error| format!("the key of {}: {error}", quoted(name)))?;
    let mut signer =
        AllowedSigner { name: name.into(), key, valid_after: None, valid_before: None, namespaces: Vec::new() };
    for word in words {
        let once =
            |place: &mut Option<SystemTime>, text: &str| match place.replace(time(text).map_err(|error| error.what)?) {
                Some(_) => Err(format!("'{}' says a second time what was said before", quoted(word))),
                None => Ok(()),
            };
        match word.split_once('=') {
            Some(("valid-after", text)) => once(&mut signer.valid_after, text)?,
            Some(("valid-before", text)) => once(&mut signer.valid_before, text)?,
            Some(("namespace", namespace)) if !namespace.is_empty() => signer.namespaces.push(namespace.into()),
            _ => {
                let what = format!("'{}' is none of valid-after=, valid-before= and namespace=", quoted(word));
                return Err(format!("{what}; a name has no spaces, and the key is the last word"));
            }
        }
    }
    match (signer.valid_after, signer.valid_before) {
        (Some(after), Some(before)) if after >= before => {
            Err("the key is valid at no time: valid-before is not after valid-after".into())
        }
        _ => Ok(signer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PreHash, SLH_DSA_SHA2_128F};
    use std::time::Duration;

    fn key() -> VerifyingKey {
        VerifyingKey::from_bytes(&SLH_DSA_SHA2_128F, &[7; 32]).unwrap()
    }

    #[test]
    fn times_are_days_and_instants() {
        let after = |seconds| Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(time("1970-01-02"), after(86_400));
        assert_eq!(time("1970-01-01T00:00:07Z"), after(7));
        assert_eq!(time("1970-01-01T02:00:00+01:00"), after(3600));
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-30", "2026-11-23T12:00:00", "20261123T", "1763900000"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_signer_may_sign_in_its_time_and_namespace() {
        let word = key().to_base64().unwrap();
        let text = format!(
            "# who\n\nalice {word}\r\n  bob valid-after=2026-01-01 valid-before=2026-02-01T00:00:00Z {word}\ncarol \
             namespace=a namespace=b\t{word}"
        );
        let signers = AllowedSigners::parse(text.as_bytes()).unwrap();
        assert_eq!(signers.iter().map(AllowedSigner::name).collect::<Vec<_>>(), ["alice", "bob", "carol"]);
        let may = |mode, at: &str| signers.iter().map(|s| s.may_sign(mode, time(at).unwrap())).collect::<Vec<_>>();
        let with = |context| Mode::PreHash { context, hash: PreHash::Sha256 };
        assert_eq!(may(Mode::default(), "2026-01-01"), [true, true, false]);
        assert_eq!(may(Mode::Internal, "2025-12-31T23:59:59Z"), [true, false, false]);
        assert_eq!(may(with(b"b"), "2026-01-31T23:59:59Z"), [true, true, true]);
        assert_eq!(may(with(b"ab"), "2026-02-01"), [true, false, false]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let word = key().to_base64().unwrap();
        let wrong = |line: &str, words: &str| {
            let text = format!("alice {word}\n{line}\n").replace("KEY", &word);
            let error = AllowedSigners::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(words), "{error}");
            assert!(error.len() < 400, "{error}");
        };
        wrong("alice", "a name without a key");
        wrong("KEY", "a key without a name");
        wrong("alice bob KEY", "'bob' is none of");
        wrong("alice valid-after=now KEY", "'now' is no time");
        wrong("alice valid-after=2026-01-01 valid-after=2026-01-02 KEY", "a second time");
        wrong("alice valid-after=2026-01-01 valid-before=2026-01-01 KEY", "valid at no time");
        wrong("alice namespace= KEY", "'namespace=' is none of");
        wrong("alice KEY=", "the key of alice: ");
        wrong(&format!("alice {}", &word[..word.len() - 4]), "the key of alice: ");
        wrong("al\u{7}ice KEY", "control characters");
        wrong(&"x".repeat(10_000), "a name without a key");
        let text = [b"alice ".as_slice(), &[0xff], word.as_bytes()].concat();
        assert_eq!(AllowedSigners::parse(&text).unwrap_err().to_string(), "line 1: it is not UTF-8");
        assert!(AllowedSigners::parse(b"# none\n").unwrap_err().to_string().contains("no signers"));
    }
}
