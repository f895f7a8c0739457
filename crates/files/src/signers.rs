//! Lists of who may sign: names with their public keys, after OpenSSH's `allowed_signers`.
//!
//! ```
//! use hypergrove_files::signers::AllowedSigners;
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

use crate::text::{Position, is_raw_private_key, private_key, without_mark};
use hypergrove::quote::{Quote, may_be_key};
use hypergrove::{Mode, VerifyingKey};
use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use std::fmt;
use std::time::SystemTime;

/// The conditions of this module and of OpenSSH's lists, in small letters and without hyphens.
const CONDITIONS: [&str; 5] = ["validafter", "validbefore", "namespace", "namespaces", "certauthority"];

/// A list of signers, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedSigners(Vec<AllowedSigner>);

/// A signer: a name, a public key, and what the key may sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedSigner {
    name: String,
    key: VerifyingKey,
    valid_after: Option<Limit>,
    valid_before: Option<Limit>,
    /// The allowed contexts. Without namespaces, all contexts are allowed.
    namespaces: Vec<String>,
}

/// A time, and its text in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Limit {
    at: SystemTime,
    text: String,
}

/// Why a signer may not sign.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotAllowed {
    /// The key is not valid yet.
    Early {
        /// The time of `valid-after`, as the list has it.
        valid_after: String,
    },
    /// The key is no longer valid.
    Late {
        /// The time of `valid-before`, as the list has it.
        valid_before: String,
    },
    /// The context is none of the signer's namespaces.
    Namespace {
        /// The namespaces.
        namespaces: Vec<String>,
    },
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAllowed::Early { valid_after } => write!(f, "the key is valid only from {valid_after} on"),
            NotAllowed::Late { valid_before } => write!(f, "the key was valid only before {valid_before}"),
            NotAllowed::Namespace { namespaces } => {
                let names: Vec<_> = namespaces.iter().map(|name| Quote::new(name).to_string()).collect();
                write!(f, "the key is only for the context {}", names.join(" or "))
            }
        }
    }
}

impl std::error::Error for NotAllowed {}

/// The error of a list of signers, or of a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignersError {
    /// The number of the line, from 1; 0 if the error has no line.
    pub line: usize,
    /// Why the list or the time is wrong, and what to do.
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

/// Reads a time: a day, which begins at midnight UTC (`2026-11-23`), or an instant with its offset (`2026-11-23T12:00:00Z`). The last
/// day is 9999-12-31.
pub fn time(text: &str) -> Result<SystemTime, SignersError> {
    instant(text).map_err(|why| {
        let what = format!("{} is no time{why}: write 2026-11-23 or 2026-11-23T12:00:00Z", Quote::new(text));
        SignersError { line: 0, what }
    })
}

fn instant(text: &str) -> Result<SystemTime, &'static str> {
    const DAY: i64 = 86_400;
    let pieces = Pieces::parse(text).map_err(|_| "")?;
    let offset = match (pieces.time(), pieces.to_numeric_offset()) {
        (None, None) => 0,
        (Some(_), Some(offset)) => i64::from(offset.seconds()),
        (Some(_), None) => return Err(", since it has no offset"),
        (None, Some(_)) => return Err(""),
    };
    if offset.abs() >= DAY {
        return Err(", since its offset is a day or more");
    }
    // jiff's own instants end before the last day does, so this uses jiff's calendar and the system's clock.
    let civil = pieces.date().to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let since = civil.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)) - SignedDuration::from_secs(offset);
    let instant = match since.is_negative() {
        true => SystemTime::UNIX_EPOCH.checked_sub(since.unsigned_abs()),
        false => SystemTime::UNIX_EPOCH.checked_add(since.unsigned_abs()),
    };
    instant.ok_or(", since this system's clock does not know it")
}

impl AllowedSigners {
    /// Reads a list with one signer on each line. Empty lines and lines that begin with `#` are left out. A line has a name, optionally
    /// `valid-after=TIME`, `valid-before=TIME` and any number of `namespace=CONTEXT`, and the key in the form of
    /// [`VerifyingKey::to_base64`], separated by spaces. A byte order mark at the beginning is skipped. One wrong line is an error of the
    /// whole list, because a list that is read in part would refuse or allow the wrong signatures.
    ///
    /// A line without a name is wrong, even if its first word could be a name: no name begins as a condition does. A name has no white
    /// space of any script. It may have characters that nobody sees: escape them where you show the name.
    ///
    /// If the list holds private keys, the error shows nothing of the list.
    pub fn parse(text: &[u8]) -> Result<AllowedSigners, SignersError> {
        if let Some(Position { line, column }) = private_key(text) {
            return Err(SignersError { line, what: is_private(column) });
        }
        let text = without_mark(text);
        let mut signers = Vec::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |what: String| SignersError { line: number + 1, what };
            let line = str::from_utf8(line).map_err(|_| wrong("it is not UTF-8".into()))?;
            if !matches!(line.trim_ascii().bytes().next(), None | Some(b'#')) {
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
        self.check(mode, at).is_ok()
    }
    /// Checks whether the key may sign in this mode at this time. The error says why not.
    pub fn check(&self, mode: Mode<'_>, at: SystemTime) -> Result<(), NotAllowed> {
        let context = match mode {
            Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. } => Some(context),
            Mode::Internal => None,
        };
        let is_named = self.namespaces.iter().any(|namespace| Some(namespace.as_bytes()) == context);
        match (&self.valid_after, &self.valid_before) {
            _ if !self.namespaces.is_empty() && !is_named => {
                Err(NotAllowed::Namespace { namespaces: self.namespaces.clone() })
            }
            (Some(after), _) if at < after.at => Err(NotAllowed::Early { valid_after: after.text.clone() }),
            (_, Some(before)) if at >= before.at => Err(NotAllowed::Late { valid_before: before.text.clone() }),
            _ => Ok(()),
        }
    }
}

/// The error for a private key in a list. The error does not show the key.
fn is_private(column: usize) -> String {
    format!(
        "column {column} looks like a private key; the list takes public keys, as `hypergrove pubkey --line` prints them"
    )
}

/// Whether a word is a condition, however it is written: in capitals, in quotes, with a list of others, or without its value.
fn is_condition(word: &str) -> bool {
    word.split(',').any(|part| {
        let name = part.split(['=', ':']).next().unwrap_or(part);
        let letters: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        CONDITIONS.contains(&letters.as_str())
    })
}

/// A condition, as errors show it: without its value.
fn condition(word: &str) -> Quote {
    let name = word.split_inclusive('=').next().unwrap_or(word);
    Quote::name(name, ["valid-after", "valid-after=", "valid-before", "valid-before=", "namespace", "namespace="])
}

/// Checks a name. A wrong name could be a condition that would be lost, so it makes the whole list wrong.
fn check_name(name: &str) -> Result<(), String> {
    let shown = condition(name);
    if is_condition(name) {
        return Err(format!("{shown} is a condition, and no name is before it; write the signer's name first"));
    }
    // In OpenSSH's lists, `!` keeps a signer out.
    if name.starts_with('!') {
        return Err(format!("{shown} begins with '!', and names are no patterns; write the signer's name"));
    }
    // Verdicts show names.
    if may_be_key(name) {
        return Err(format!("the name {shown} looks like a private key; write the signer's name"));
    }
    if name.chars().any(char::is_control) {
        return Err("the name has control characters".into());
    }
    // Only spaces and tabs end a word. Behind another space, a condition would be a part of the name.
    match name.chars().find(|c| c.is_whitespace() || *c == '\u{feff}') {
        Some(space) => {
            let code = u32::from(space);
            Err(format!("the name {shown} has white space that is no space (U+{code:04X}); write a space or nothing"))
        }
        None => Ok(()),
    }
}

fn signer(line: &str) -> Result<AllowedSigner, String> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    if let Some(word) = words.iter().find(|word| is_raw_private_key(word.as_bytes())) {
        let before = line.find(word).map_or(0, |at| line[..at].chars().count());
        return Err(is_private(before + 1));
    }
    let (name, key) = match (words.len(), words.pop()) {
        (2.., Some(key)) => (words.remove(0), key),
        _ => return Err(format!("{} is a name without a key, or a key without a name", Quote::new(line.trim_ascii()))),
    };
    check_name(name)?;
    let key = VerifyingKey::from_base64(key).map_err(|error| format!("the key of {}: {error}", Quote::new(name)))?;
    let mut signer =
        AllowedSigner { name: name.into(), key, valid_after: None, valid_before: None, namespaces: Vec::new() };
    for word in words {
        let once = |place: &mut Option<Limit>, text: &str| {
            let limit = Limit { at: time(text).map_err(|error| error.what)?, text: text.into() };
            match place.replace(limit) {
                Some(_) => Err(format!("{} says a second time what was said before", condition(word))),
                None => Ok(()),
            }
        };
        match word.split_once('=') {
            Some(("valid-after", text)) => once(&mut signer.valid_after, text)?,
            Some(("valid-before", text)) => once(&mut signer.valid_before, text)?,
            Some(("namespace", namespace)) if !namespace.is_empty() => signer.namespaces.push(namespace.into()),
            _ => {
                let what = format!("{} is none of valid-after=, valid-before= and namespace=", condition(word));
                return Err(format!("{what}; a name has no spaces, and the key is the last word"));
            }
        }
    }
    match (&signer.valid_after, &signer.valid_before) {
        (Some(after), Some(before)) if after.at >= before.at => {
            Err("the key is valid at no time: valid-before is not after valid-after".into())
        }
        _ => Ok(signer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::{PreHash, SLH_DSA_SHA2_128F, SigningKey};
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
        assert_eq!(time("1970-01-02T00:00:00+23:59"), after(60));
        // The last day of all, which many write for ever.
        assert_eq!(time("9999-12-31"), after(253_402_214_400));
        assert_eq!(time("9999-12-31T23:59:59Z"), after(253_402_300_799));
        assert_eq!(time("9999-12-31T23:59:59-01:00"), after(253_402_304_399));
        assert_eq!(time("1969-12-31T23:59:59Z"), Ok(SystemTime::UNIX_EPOCH - Duration::from_secs(1)));
        for wrong in
            ["", "yesterday", "2026-13-01", "2026-02-30", "2026-11-23Z", "20261123T", "1763900000", "10000-01-01"]
        {
            let error = time(wrong).expect_err(wrong).to_string();
            assert!(error.ends_with(" is no time: write 2026-11-23 or 2026-11-23T12:00:00Z"), "{wrong}: {error}");
        }
        for (wrong, why) in [
            ("2026-11-23T12:00:00", "it has no offset"),
            ("2026-11-23T12:00:00+24:00", "its offset is a day or more"),
            ("2026-11-23T12:00:00-25:59", "its offset is a day or more"),
        ] {
            let error = time(wrong).expect_err(wrong).to_string();
            assert!(error.contains(&format!(" is no time, since {why}: write ")), "{wrong}: {error}");
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
        let why = |index: usize, mode, at: &str| {
            let signer = signers.iter().nth(index).unwrap();
            signer.check(mode, time(at).unwrap()).expect_err("not allowed").to_string()
        };
        assert_eq!(why(1, Mode::default(), "2025-12-31"), "the key is valid only from 2026-01-01 on");
        assert_eq!(why(1, Mode::default(), "2027-01-01"), "the key was valid only before 2026-02-01T00:00:00Z");
        assert_eq!(why(2, with(b"c"), "2026-01-01"), "the key is only for the context 'a' or 'b'");
        // A byte order mark is no part of the first name, nor does it hide a comment.
        for text in [format!("\u{feff}{text}"), format!("\u{feff}alice {word}\n{}", text.replacen("alice", "#", 1))] {
            let names: Vec<String> =
                AllowedSigners::parse(text.as_bytes()).unwrap().iter().map(|s| s.name().into()).collect();
            assert_eq!(names, ["alice", "bob", "carol"]);
        }
        let last = AllowedSigners::parse(format!("dora valid-before=9999-12-31 {word}").as_bytes()).unwrap();
        assert!(last.iter().all(|signer| signer.may_sign(Mode::default(), time("9999-12-30T23:00:00Z").unwrap())));
    }

    /// Without its name, a line would name a signer after a condition, which would then limit nothing.
    #[test]
    fn a_condition_without_a_name_refuses_the_list() {
        let word = key().to_base64().unwrap();
        let refused = |name: &str| {
            let text = format!("alice {word}\n{name} {word}\n");
            let error = AllowedSigners::parse(text.as_bytes()).expect_err(name);
            assert_eq!(error.line, 2, "{name}");
            error.what
        };
        for name in [
            "valid-before=2020-01-01",
            "valid-after=2030-01-01",
            "namespace=release",
            "namespaces=\"release\"",
            "cert-authority",
            "CERT-AUTHORITY",
            "Valid-Before=2020-01-01",
            "\"valid-before=2020-01-01\"",
            "'valid-before'=2020-01-01",
            "valid_before=2020-01-01",
            "valid\u{2011}before=2020-01-01",
            "valid-before:2020-01-01",
            "valid-before",
            "namespace=",
            "namespace",
            "cert-authority,namespaces=release",
            "alice,valid-before=2020-01-01",
        ] {
            let what = refused(name);
            assert!(what.contains("is a condition, and no name is before it"), "{name}: {what}");
        }
        // With spaces around `=`, the first word is a condition as well; the other words are not.
        assert!(refused("valid-before = 2020-01-01").contains("'valid-before' is a condition"));
        assert!(refused("!mallory").contains("names are no patterns"));
        // These texts look like a name and a condition, and would be one long name.
        for space in ['\u{a0}', '\u{2003}', '\u{3000}', '\u{2028}', '\u{feff}'] {
            let what = refused(&format!("alice{space}valid-before=2020-01-01"));
            assert!(what.contains("white space that is no space (U+"), "{what}");
        }
        assert!(refused("alice Valid-Before=2020-01-01").contains("is none of valid-after="));
        // Names may hold `=`, or a word of a condition.
        for name in ["bounce+user=example.com@example.org", "namespace@example.org", "validator", "=", "a,b", "Zoë"] {
            let text = format!("{name} {word}\n");
            let signers = AllowedSigners::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(signers.iter().next().map(AllowedSigner::name), Some(name));
        }
    }

    #[test]
    fn private_keys_are_refused_and_not_shown() {
        let private: Vec<u8> = (100..164).collect();
        let private = SigningKey::from_bytes_unchecked(&SLH_DSA_SHA2_128F, &private).unwrap();
        let (word, public) = (private.to_base64().unwrap(), key().to_base64().unwrap());
        let raw = hex::encode(&*private.to_bytes());
        for (text, place) in [
            (format!("alice {}", *word), "line 1: column 7 "),
            (word.to_string(), "line 1: column 1 "),
            (format!("alice {public}\n  SHA256:x {public} {}\n", *word), "line 2: column 81 "),
            (format!("alice {public}\n {raw} {public}\n"), "line 2: column 2 "),
            (format!("alice namespace={} {public}\n", *word), "line 1: column 17 "),
            ("# a\n-----BEGIN PRIVATE KEY-----\n".into(), "line 2: column 1 "),
        ] {
            let error = AllowedSigners::parse(text.as_bytes()).expect_err(place).to_string();
            assert!(error.starts_with(place) && error.contains("looks like a private key"), "{place}: {error}");
            assert!(!error.contains(&word[..24]) && !error.contains(&raw[..24]), "{error}");
        }
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
        wrong("alice KEY=", "the key of 'alice': ");
        wrong(&format!("alice {}", &word[..word.len() - 4]), "the key of 'alice': ");
        wrong("al\u{7}ice KEY", "control characters");
        wrong(&"x".repeat(10_000), "a name without a key");
        let text = [b"alice ".as_slice(), &[0xff], word.as_bytes()].concat();
        assert_eq!(AllowedSigners::parse(&text).unwrap_err().to_string(), "line 1: it is not UTF-8");
        assert!(AllowedSigners::parse(b"# none\n").unwrap_err().to_string().contains("no signers"));
    }
}
