//! Quotes in messages, of texts whose origin nobody knows: a value of a wrong argument, a word of a file, a name in a request.
//!
//! People paste private keys into all of them, and messages end in logs. So a message never quotes such a text. It holds a [`Quote`] of the
//! text, which shows it in three cases: the text has at most seven characters, it nearly is a name that the field accepts, or it is a path
//! of which this much exists. Otherwise the `Quote` says how long the text is and what it looks like.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
#[cfg(feature = "std")]
use std::path::{MAIN_SEPARATOR, Path, is_separator};

/// Characters of an unknown text that a message may show, at most. Eight characters of a key would be 32 to 48 of its bits.
const SHOWN: usize = 7;
/// Insertions, deletions and substitutions between a text and the name that was meant, at most.
const FAR: usize = 2;
/// Characters of hexadecimal or base64 in a row that may be a key: a seed of 16 bytes has 22 in base64.
const KEY: usize = 22;
/// Digits of a SHA-384 sum. The shortest private key has 128.
#[cfg(any(test, feature = "std"))]
const DIGEST: usize = 96;
/// Bytes of a seed, the shortest part of a private key.
#[cfg(feature = "std")]
const RAW: usize = 16;
/// Entries of a folder among which a name that was meant is looked for, at most.
#[cfg(feature = "std")]
const ENTRIES: usize = 4096;

/// The part of a text of unknown origin that messages may show. It does not keep the text.
///
/// ```
/// use hypergrove_fips205::quote::Quote;
///
/// assert_eq!(Quote::new("md5").to_string(), "'md5'");
/// assert_eq!(Quote::new("9f86d081884c7d65").to_string(), "'…' (16 characters of hex, not shown)");
/// let names = ["SHAKE128", "SHAKE256"];
/// assert_eq!(Quote::name("shake-256", names).to_string(), "'shake-256' (did you mean 'SHAKE256'?)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Quote(String);

impl Quote {
    /// A text, or bytes that should be a text.
    pub fn new(text: impl AsRef<[u8]>) -> Quote {
        let text = text.as_ref();
        Quote(match core::str::from_utf8(text) {
            Ok(text) if is_short(text) => quoted(text),
            Ok(text) => format!("'…' ({})", hidden(text)),
            Err(_) => format!("'…' ({} bytes that are no text, not shown)", text.len()),
        })
    }

    /// A text where one of these names belongs, in any case.
    pub fn name<'n>(text: impl AsRef<[u8]>, names: impl IntoIterator<Item = &'n str>) -> Quote {
        let near = core::str::from_utf8(text.as_ref()).ok().and_then(|text| Some((text, nearest(text, names)?)));
        match near {
            Some((text, meant)) if text == meant => Quote(quoted(text)),
            Some((text, meant)) => Quote(format!("{} (did you mean '{meant}'?)", quoted(text))),
            None => Quote::new(text),
        }
    }

    /// Without quotation marks and advice, for a message that brings its own.
    pub fn bare(&self) -> String {
        let text = self.0.split(" (did you mean ").next().unwrap_or_default();
        match text.strip_prefix("'…' ") {
            Some(hidden) => format!("… {hidden}"),
            None => text.trim_matches('\'').into(),
        }
    }

    /// The path of a file that may not exist: as much as exists, without quotation marks.
    #[cfg(feature = "std")]
    pub fn path(path: impl AsRef<Path>) -> Quote {
        let path = path.as_ref();
        // A path that has no parent on the file system begins in the working folder, whose name is empty.
        let exists = |path: &&Path| path.as_os_str().is_empty() || path.symlink_metadata().is_ok();
        let there = path.ancestors().find(exists).unwrap_or(Path::new(""));
        let visible = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
        let mut shown: String = there.to_string_lossy().chars().map(visible).collect();
        let missing = path.strip_prefix(there).unwrap_or(path);
        if missing.as_os_str().is_empty() {
            return Quote(shown);
        }
        if !shown.is_empty() && !shown.ends_with(is_separator) {
            shown.push(MAIN_SEPARATOR);
        }
        let text = missing.to_string_lossy();
        // A path of which a folder is missing, too, is near no name.
        let folder = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES);
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // The signature of an existing file has the file's name with an ending.
        let is_ending = |rest: &str| rest.starts_with('.') && is_short(rest);
        let is_known = is_short(&text) || names.iter().any(|name| text.strip_prefix(&**name).is_some_and(is_ending));
        shown += &match nearest(&text, names.iter().map(|name| &**name)) {
            _ if is_known => text.chars().map(visible).collect(),
            Some(meant) => format!("{} (did you mean '{meant}'?)", text.chars().map(visible).collect::<String>()),
            None => format!("… ({})", hidden(&text)),
        };
        Quote(shown)
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The message of another library, such as serde's or clap's, in which texts that it quotes become [`Quote`]s. Names that it says it expected
/// stay, and a text that nearly is one of them is shown.
///
/// ```
/// let why = "unknown field `paramter`, expected `parameter` at line 1 column 9";
/// assert_eq!(
///     hypergrove_fips205::quote::message(why),
///     "unknown field 'paramter' (did you mean 'parameter'?), expected `parameter` at line 1 column 9"
/// );
/// let why = "invalid type: string \"TUZJQ0FRQXdDd1lK\", expected u64";
/// assert_eq!(
///     hypergrove_fips205::quote::message(why),
///     "invalid type: string '…' (16 characters of base64, not shown), expected u64"
/// );
/// ```
pub fn message(text: &str) -> String {
    if ["missing field `", "duplicate field `"].iter().any(|known| text.starts_with(known)) {
        return text.into();
    }
    let (before, expected) = match text.rfind(", expected ") {
        // A text that is quoted may have these words in it.
        Some(at) if !may_be_key(&text[at..]) => text.split_at(at),
        _ => (text, ""),
    };
    let names: Vec<&str> = expected.split(['`', '"', '\'']).skip(1).step_by(2).collect();
    let mut shown = String::with_capacity(text.len());
    let mut rest = before;
    while let Some((start, mark)) = rest.char_indices().find(|(at, c)| is_opening(rest, *at, *c)) {
        let inside = &rest[start + 1..];
        let is_escaped = |at: usize| mark == '"' && (at - inside[..at].trim_end_matches('\\').len()) % 2 == 1;
        // serde escapes no mark in the name of a field or variant, which is the last text in such marks.
        let is_unescaped = mark == '`' && (rest[..start].ends_with("field ") || rest[..start].ends_with("variant "));
        let mut ends = inside.match_indices(mark).map(|(at, _)| at);
        let end = if is_unescaped { ends.next_back() } else { ends.find(|at| !is_escaped(*at)) };
        let end = end.unwrap_or(inside.len());
        plain(&rest[..start], &mut shown);
        shown += &Quote::name(&inside[..end], names.iter().copied()).0;
        rest = inside.get(end + 1..).unwrap_or_default();
    }
    plain(rest, &mut shown);
    shown + expected
}

/// The error of a reader of a text with lines, with the line of its place. The line itself is not shown.
pub fn at_line(text: &str, place: Option<core::ops::Range<usize>>, why: &str) -> String {
    let before = place.and_then(|place| text.get(..place.start)).unwrap_or_default();
    format!("line {}: {}", before.matches('\n').count() + 1, message(why))
}

/// Whether a text may be a private key or hold one: `PRIVATE KEY`, or many letters of hexadecimal or base64 in a row, whatever separates
/// their lines and bytes. A message about it says who else may have read it.
pub fn may_be_key(text: &str) -> bool {
    holds_key(text, KEY)
}

/// Whether a private key may stand in place of a path: no file has this name.
#[cfg(feature = "std")]
pub fn is_key_for_path(path: impl AsRef<Path>) -> bool {
    path.as_ref().symlink_metadata().is_err() && (may_be_key(&path.as_ref().to_string_lossy()) || is_raw(path.as_ref()))
}

/// Whether a private key stands in place of the path of a new file, which messages would show. A file may be named by a digest: hexadecimal that
/// is not longer than a SHA-384 sum is no key.
#[cfg(feature = "std")]
pub fn is_key_for_new_path(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    path.symlink_metadata().is_err() && (holds_key(&path.to_string_lossy(), DIGEST + 1) || is_raw(path))
}

/// Whether a path may be the bytes of a key: names in an older encoding are not UTF-8 either, but have no control characters.
#[cfg(feature = "std")]
fn is_raw(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.len() >= RAW && core::str::from_utf8(bytes).is_err() && bytes.iter().any(u8::is_ascii_control)
}

/// Whether there is a label of PEM, base64, or this many digits of hexadecimal.
fn holds_key(text: &str, digits: usize) -> bool {
    let (mut hex, mut base64) = (Run::default(), Run::default());
    // Nothing is copied: the text may be a secret, and nobody would wipe the copy.
    let mut letters = text.split("\\n").flat_map(str::chars).filter(|c| !c.is_whitespace() && *c != ':');
    let mut pairs = 0;
    // As some write bytes: `5C-FA`, `\x5c\xfa`.
    let mut groups = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|group| !group.is_empty());
    text.contains("PRIVATE KEY")
        || letters.any(|c| {
            hex.add(c, c.is_ascii_hexdigit());
            base64.add(c, c.is_ascii_alphanumeric() || "+/=_-".contains(c));
            hex.length >= digits && hex.kinds & DIGIT != 0 || base64.is_random()
        })
        || groups.any(|group| {
            pairs = if group.len() == 2 { pairs + 1 } else { 0 };
            2 * pairs >= digits
        })
}

/// The bit of digits among kinds of letters.
const DIGIT: u8 = 1;

/// Letters in a row.
#[derive(Default)]
struct Run {
    length: usize,
    /// The kind of the last one, a bit: a digit, a capital or a small letter.
    kind: u8,
    kinds: u8,
    /// A bit for each of the last letters: whether it is of another kind than the letter before.
    changes: u32,
}

impl Run {
    fn add(&mut self, c: char, belongs: bool) {
        if !belongs {
            *self = Run::default();
            return;
        }
        let kind = match c {
            '0'..='9' => DIGIT,
            'A'..='Z' => 2,
            'a'..='z' => 4,
            _ => self.kind,
        };
        self.length += 1;
        self.kinds |= kind;
        self.changes = ((self.changes << 1) & ((1 << KEY) - 1)) | u32::from(kind != self.kind);
        self.kind = kind;
    }

    /// Whether the last letters may be of base64, where 14 in 22 are of another kind than the letter before. In names, such as
    /// `MyProject_Release-2026_x86_64`, these are 7.
    fn is_random(&self) -> bool {
        self.length >= KEY && self.kinds == 7 && self.changes.count_ones() >= 9
    }
}

/// Whether a text has letters of both cases and digits, as words have rarely.
fn is_mixed(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.bytes().any(|byte| is(&byte));
    has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit)
}

/// Adds words between quoted texts; a word that may be a key is left out.
fn plain(text: &str, shown: &mut String) {
    for word in text.split_inclusive(char::is_whitespace) {
        let end = word.trim_end();
        match may_be_key(end) {
            true => *shown += &format!("{}{}", Quote::new(end), &word[end.len()..]),
            false => *shown += word,
        }
    }
}

/// Whether a quoted text begins here; an apostrophe follows a letter.
fn is_opening(text: &str, at: usize, c: char) -> bool {
    matches!(c, '`' | '"') || c == '\'' && !text[..at].ends_with(char::is_alphanumeric)
}

fn is_short(text: &str) -> bool {
    text.chars().nth(SHOWN).is_none()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.chars().flat_map(char::escape_debug).collect::<String>())
}

/// A text's length and what it looks like.
fn hidden(text: &str) -> String {
    let is_blank = |c: char| c.is_whitespace() || c == ':';
    let start = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c) || is_blank(c);
    let kind = match () {
        () if text.contains("-----BEGIN ") => " of PEM",
        () if text.starts_with(['{', '[']) => " of JSON",
        () if start.chars().all(|c| c.is_ascii_hexdigit() || is_blank(c)) => " of hex",
        () if is_mixed(text) && text.chars().all(is_base64) => " of base64",
        () => "",
    };
    format!("{} characters{kind}, not shown", text.chars().count())
}

/// The name that was meant by a text, if more than half of the text is right.
fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let length = text.chars().count();
    let is_near = |name: &&str| name.chars().count().abs_diff(length) <= FAR;
    let near = names.into_iter().filter(is_near).map(|name| (distance(name, text), name));
    let (far, name) = near.min_by_key(|(far, _)| *far)?;
    (far <= FAR && 2 * far < length).then_some(name)
}

/// Levenshtein's distance, whatever the case: insertions, deletions and substitutions of characters that make one name of
/// the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let substituted = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_text_is_shown_up_to_seven_characters() {
        for (text, quote) in [
            ("", "''"),
            ("größe-7", "'größe-7'"),
            ("a\n\u{202e}", "'a\\n\\u{202e}'"),
            ("größe-78", "'…' (8 characters, not shown)"),
            ("0x9f86d081", "'…' (10 characters of hex, not shown)"),
            ("9f:86:d0:81", "'…' (11 characters of hex, not shown)"),
            ("MFICAQAwCwYJYIZI", "'…' (16 characters, not shown)"),
            ("MFICaQAwCwYJYIZI1", "'…' (17 characters of base64, not shown)"),
            ("-----BEGIN PRIVATE KEY----- MFIC", "'…' (32 characters of PEM, not shown)"),
            ("{\"key\":\"MFIC\"}", "'…' (14 characters of JSON, not shown)"),
        ] {
            assert_eq!(Quote::new(text).to_string(), quote);
            assert_eq!(format!("{:?}", Quote::new(text)), quote);
        }
        assert_eq!(Quote::new([0xff, 1]).to_string(), "'…' (2 bytes that are no text, not shown)");
    }

    #[test]
    fn a_text_is_shown_that_nearly_is_a_name() {
        let name = |text: &str| Quote::name(text, ["SLH-DSA-SHA2-128s", "SLH-DSA-SHA2-128f", "json"]).to_string();
        assert_eq!(name("slh-dsa-sha2128"), "'slh-dsa-sha2128' (did you mean 'SLH-DSA-SHA2-128s'?)");
        assert_eq!(name("SLH-DSA-SHA2-128f"), "'SLH-DSA-SHA2-128f'");
        assert_eq!(name("slhdsa-sha2128"), "'…' (14 characters, not shown)");
        assert_eq!(name("jsonl"), "'jsonl' (did you mean 'json'?)");
        assert_eq!(name("on"), "'on'");
        assert_eq!(Quote::name("jsonl", ["json"]).bare(), "jsonl");
        assert_eq!(Quote::new("0x9f86d081").bare(), "… (10 characters of hex, not shown)");
        assert_eq!(name(&"x\n".repeat(1_000_000)), "'…' (2000000 characters, not shown)");
    }

    #[test]
    fn other_libraries_messages_lose_what_they_quote() {
        for (text, shown) in [
            ("missing field `parameter_set` at line 3", "missing field `parameter_set` at line 3"),
            (
                "invalid type: string \"a \\\" b c\\\\\" at line 3",
                "invalid type: string '…' (10 characters, not shown) at line 3",
            ),
            ("can't read `abc", "can't read 'abc'"),
            (
                "unknown variant `tru`, expected one of `true`, `false`",
                "unknown variant 'tru' (did you mean 'true'?), expected one of `true`, `false`",
            ),
            (
                "unknown field `ty`6S3cr3t-S3cr3t`, expected `type`",
                "unknown field '…' (17 characters, not shown), expected `type`",
            ),
            (
                "unknown field `a`S3cr3t``, there are no fields",
                "unknown field '…' (9 characters, not shown), there are no fields",
            ),
            ("bad 9f86d081884c7d659a2feaa0c55ad0 at 1", "bad '…' (30 characters of hex, not shown) at 1"),
            ("bad name `a, expected 9f86d081884c7d659a2feaa0c55ad0`", "bad name '…' (42 characters, not shown)"),
        ] {
            assert_eq!(message(text), shown);
        }
    }

    #[test]
    fn keys_are_suspected() {
        let base64 = "MFICAQAwCwYJYIZIAWUDBAMVBEBc/hhb6VxvKUDXt9Tte";
        let hex = "9f:86:d0:81:88:4c:7d:65:9a:2f:ea:a0";
        for key in [
            base64,
            "-----BEGIN PRIVATE KEY-----",
            hex,
            "x='9f86d081884c7d659a2feaa0'",
            &hex.replace(':', "-"),
            &hex.replace(':', "\\x"),
        ] {
            assert!(may_be_key(key), "{key}");
        }
        let name = "MyProject_Release-2026_x86_64-linux-gnu";
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        for other in [
            "release-engineering-team-2026",
            name,
            uuid,
            "home/User1/signatures/x86_64/Data",
            "2026-11-23 02:03:04.05",
            "",
        ] {
            assert!(!may_be_key(other), "{other}");
        }
        let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert!(may_be_key(digest) && !holds_key(digest, DIGEST + 1) && holds_key(&digest.repeat(2), DIGEST + 1));
    }

    #[cfg(feature = "std")]
    #[test]
    #[cfg_attr(miri, ignore = "it reads folders")]
    fn as_much_of_a_path_is_shown_as_exists() {
        let path = |text: &str| Quote::path(text).to_string();
        let root = env!("CARGO_MANIFEST_DIR");
        for (rest, shown) in [
            ("src/lib.rs", "src/lib.rs"),
            ("src/new", "src/new"),
            ("src/liv.rs", "src/liv.rs"),
            ("src/keys.rs.sig", "src/keys.rs.sig"),
            ("src/keys.rs.ledger", "src/keys.rs.ledger"),
            ("src/keys.rssig", "src/… (10 characters, not shown)"),
            ("Cargo.tom", "Cargo.tom (did you mean 'Cargo.toml'?)"),
            ("src/SGVsbG8-d29ybGQ1/Zm.v", "src/… (21 characters, not shown)"),
            ("src/lib.rs/SGVsbG8gd29ybGQ1", "src/lib.rs/… (16 characters of base64, not shown)"),
        ] {
            assert_eq!(path(&format!("{root}/{rest}")), format!("{root}/{shown}"));
        }
        assert_eq!(path("SGVsbG8gd29ybGQ1"), "… (16 characters of base64, not shown)");
        assert_eq!(path("src/SGVsbG8gd29ybGQ1"), "src/… (16 characters of base64, not shown)");
        assert_eq!(path(""), "");
        let (digest, base64) = ("9f86d081884c7d659a2feaa0c55ad015", "MFICAQAwCwYJYIZIAWUDBAMVBEBc+hhb6VxvKUDXt9Tte");
        assert!(is_key_for_path(digest) && !is_key_for_new_path(digest) && is_key_for_new_path(base64));
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            let of = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
            let (raw, latin) =
                (of(b"\x9a\x03\xf7Q\x88\xe0w\x1bz\xc4L\x91\xd2\x7fi\xb5"), of(b"Pr\xfcfung der Gr\xf6\xdfe.sig"));
            assert!(is_key_for_path(raw) && is_key_for_new_path(raw));
            assert!(!is_key_for_path(latin) && !is_key_for_new_path(latin));
        }
        assert!(!is_key_for_path(root) && !is_key_for_new_path(format!("{root}/src")));
    }

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("kitten", "SITTING", 3), ("abc", "abc", 0), ("abc", "bc", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }
}
