//! Envelopes: signatures as text that says which set, mode, context and key they are of, and may have a comment.
//!
//! The signature covers the header lines too: `docs/envelope.md` has the format. A signature in an envelope is not valid without the envelope,
//! and a signature that was made without an envelope is not valid in one.
//!
//! ```
//! use hypergrove_files::envelope::{Envelope, Header, Mismatch};
//! use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
//!
//! let engine = Engine::new()?;
//! let key = engine.generate(&SLH_DSA_SHA2_128F)?;
//! let public = key.verifying_key();
//! let header = Header::new(&public, Mode::Pure { context: b"letters" }, Some("to the reader"))?;
//! let context = header.signed_context();
//! let signature = engine.sign(&key, header.mode(&context), b"Dear reader", Randomizer::Hedged)?;
//! let text = Envelope::new(header, signature.as_bytes())?.to_string();
//!
//! let envelope = Envelope::parse(text.as_bytes())?;
//! assert_eq!(envelope.header().comment(), Some("to the reader"));
//! assert_eq!(envelope.verify(&engine, &public, b"letters", b"Dear reader")?, Ok(()));
//! assert_eq!(envelope.verify(&engine, &public, b"letters", b"Dear writer")?, Err(Mismatch::Content));
//! assert!(matches!(envelope.verify(&engine, &public, b"", b"Dear reader")?, Err(Mismatch::Context { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::text::without_mark;
use base64ct::{Base64, Encoding};
use hypergrove::quote::Quote;
use hypergrove::{Engine, Error, Fingerprint, MAX_CONTEXT, Mode, PARAMETER_SETS, Params, PreHash, VerifyingKey};
use std::fmt;

/// The first line of an envelope.
const BEGIN: &str = "-----BEGIN HYPERGROVE SIGNATURE-----";
const END: &str = "-----END HYPERGROVE SIGNATURE-----";
/// The lines that stand in their places in a signature for Git, which finds signatures by them if `gpg.format` is `x509`.
const GIT_BEGIN: &str = "-----BEGIN SIGNED MESSAGE-----";
const GIT_END: &str = "-----END SIGNED MESSAGE-----";
/// The beginning of the contexts with which signatures in envelopes are made. The header's SHA-256 follows.
const DOMAIN: &[u8; 23] = b"hypergrove-envelope-v1:";
/// The bytes of the context that is signed.
pub const SIGNED_CONTEXT: usize = DOMAIN.len() + 32;
/// The most bytes of a comment.
pub const MAX_COMMENT: usize = 512;
/// The most bytes of an envelope. More bytes are an error.
pub const MAX_ENVELOPE: usize = 128 << 10;
/// Characters of a line of base64.
const WIDTH: usize = 64;

/// The header of an envelope: what it says about its signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    params: &'static Params,
    hash: Option<PreHash>,
    context: Vec<u8>,
    key: Fingerprint,
    comment: Option<String>,
}

/// A signature with its header, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    header: Header,
    signature: Vec<u8>,
}

/// The error of an envelope that cannot be read or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvelopeError {
    /// The number of the line, from 1; 0 if the error has no line.
    pub line: usize,
    /// Why the line, or the whole envelope, is wrong.
    pub what: String,
}

/// Why an envelope does not prove that the key has signed a message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mismatch {
    /// Another key has signed.
    Key {
        /// The key that signed.
        signed: Fingerprint,
    },
    /// The context is another one.
    Context {
        /// The context that was signed.
        signed: Vec<u8>,
    },
    /// The mode is not the one that was asked for, or that the key is for.
    Mode {
        /// The pre-hash that was used; `None` in pure mode.
        signed: Option<PreHash>,
    },
    /// The key, the context and the mode are right, but the message or the envelope was changed.
    Content,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for EnvelopeError {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Key { signed } => write!(f, "wrong key: the envelope is of the key {signed}"),
            Mismatch::Context { signed } if signed.is_empty() => {
                f.write_str("wrong context: the envelope's is empty, and another one was asked")
            }
            Mismatch::Context { signed } => match text_of(signed) {
                Some(text) => write!(f, "wrong context: the envelope's is '{text}'"),
                None => write!(f, "wrong context: the envelope's is {} in hexadecimal", hex::encode(signed)),
            },
            Mismatch::Mode { signed: Some(hash) } => write!(f, "wrong mode: the envelope is of the pre-hash {hash}"),
            Mismatch::Mode { signed: None } => f.write_str("wrong mode: the envelope is of pure mode"),
            Mismatch::Content => f.write_str(
                "changed content: key and context are right, the file or the envelope is not what was signed",
            ),
        }
    }
}

fn wrong(line: usize, what: impl Into<String>) -> EnvelopeError {
    EnvelopeError { line, what: what.into() }
}

/// Whether a line can hold a text: the text is not empty, and has no control characters and no white space at its ends.
fn is_line(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

/// The context as text, if a line can hold it.
fn text_of(context: &[u8]) -> Option<&str> {
    str::from_utf8(context).ok().filter(|text| is_line(text))
}

/// Whether these bytes begin like an envelope.
pub fn looks_like_it(bytes: &[u8]) -> bool {
    without_mark(bytes).starts_with(BEGIN.as_bytes())
}

/// Whether this context is reserved for signatures in envelopes. Do not sign anything else with such a context.
pub fn is_reserved(context: &[u8]) -> bool {
    context.starts_with(DOMAIN)
}

impl Header {
    /// Makes the header for signatures by this key, in this mode with its context, and with a comment: one line of at most
    /// [`MAX_COMMENT`] bytes.
    pub fn new(key: &VerifyingKey, mode: Mode<'_>, comment: Option<&str>) -> Result<Header, EnvelopeError> {
        let (context, hash) = match mode {
            Mode::Pure { context } => (context, None),
            Mode::PreHash { context, hash } | Mode::Digest { context, hash } => (context, Some(hash)),
            Mode::Internal => return Err(wrong(0, "the internal interface has no context, which an envelope needs")),
        };
        if context.len() > MAX_CONTEXT {
            return Err(wrong(
                0,
                format!("the context has {} bytes, at most {MAX_CONTEXT} are allowed", context.len()),
            ));
        }
        if let Some(comment) = comment {
            check_comment(comment).map_err(|what| wrong(0, what))?;
        }
        let (key, params) = (key.fingerprint(), key.params());
        Ok(Header { params, hash, context: context.into(), key, comment: comment.map(str::to_owned) })
    }
    /// The set.
    pub fn params(&self) -> &'static Params {
        self.params
    }
    /// The pre-hash; `None` in pure mode.
    pub fn prehash(&self) -> Option<PreHash> {
        self.hash
    }
    /// The context that the signer named. The signature is made with [`Header::signed_context`] instead.
    pub fn context(&self) -> &[u8] {
        &self.context
    }
    /// The context as the envelope's line has it; `None` if it is empty, or if the line has hexadecimal.
    pub fn context_text(&self) -> Option<&str> {
        text_of(&self.context)
    }
    /// The fingerprint of the key that signed.
    pub fn key(&self) -> Fingerprint {
        self.key
    }
    /// The comment. Do not trust it before the signature is verified.
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
    /// The context that is signed in place of [`Header::context`]: a prefix, and the SHA-256 of all lines of the header.
    pub fn signed_context(&self) -> [u8; SIGNED_CONTEXT] {
        let mut hasher = PreHash::Sha256.hasher();
        hasher.update(self.to_string().as_bytes());
        let mut context = [0; SIGNED_CONTEXT];
        context[..DOMAIN.len()].copy_from_slice(DOMAIN);
        context[DOMAIN.len()..].copy_from_slice(&hasher.finish());
        context
    }
    /// The mode in which a message is signed for an envelope with this header.
    pub fn mode<'a>(&self, signed_context: &'a [u8; SIGNED_CONTEXT]) -> Mode<'a> {
        let context = &signed_context[..];
        match self.hash {
            Some(hash) => Mode::PreHash { context, hash },
            None => Mode::Pure { context },
        }
    }
    /// Checks that the header names this key and this context, and a mode that the key is for.
    pub fn check(&self, key: &VerifyingKey, context: &[u8]) -> Result<(), Mismatch> {
        if self.key != key.fingerprint() || self.params != key.params() {
            return Err(Mismatch::Key { signed: self.key });
        }
        if self.context != context {
            return Err(Mismatch::Context { signed: self.context.clone() });
        }
        let mode = self.mode(&[0; SIGNED_CONTEXT]);
        key.as_ref().check_mode(mode).map_err(|_| Mismatch::Mode { signed: self.hash })
    }
}

fn check_comment(comment: &str) -> Result<(), String> {
    match comment.len() {
        length if length > MAX_COMMENT => {
            Err(format!("the comment has {length} bytes, at most {MAX_COMMENT} are allowed"))
        }
        _ if !is_line(comment) => {
            Err("a comment is one line without control characters, and has no white space at its ends".into())
        }
        _ => Ok(()),
    }
}

/// Writes the lines of the header, as they are hashed.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Version: 1\nSet: {}", self.params)?;
        match self.hash {
            Some(hash) => writeln!(f, "Mode: pre-hash {hash}")?,
            None => writeln!(f, "Mode: pure")?,
        }
        match text_of(&self.context) {
            _ if self.context.is_empty() => {}
            Some(text) => writeln!(f, "Context: {text}")?,
            None => writeln!(f, "Context-Hex: {}", hex::encode(&self.context))?,
        }
        writeln!(f, "Key: {}", self.key)?;
        self.comment.iter().try_for_each(|comment| writeln!(f, "Comment: {comment}"))
    }
}

impl Envelope {
    /// Makes an envelope from a signature that was made in [`Header::mode`]. This checks only the length.
    pub fn new(header: Header, signature: impl Into<Vec<u8>>) -> Result<Envelope, EnvelopeError> {
        let signature = signature.into();
        let (got, want) = (signature.len(), header.params.sig_bytes());
        match got == want {
            true => Ok(Envelope { header, signature }),
            false => Err(wrong(0, format!("the signature has {got} bytes, one of {} has {want}", header.params))),
        }
    }
    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }
    /// The bare signature, which was made in [`Header::mode`].
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }
    /// Reads an envelope. Only line ends (LF or CR LF), white space at line ends, a byte order mark and the width of the base64 lines
    /// may differ from what this library writes.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        Envelope::between(BEGIN, END, bytes)
    }
    /// Reads what [`Envelope::to_git`] writes.
    pub fn parse_git(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        Envelope::between(GIT_BEGIN, GIT_END, bytes)
    }
    /// The envelope as a signature for Git (`gpg.format=x509`): its first and its last line are those that Git looks for.
    pub fn to_git(&self) -> String {
        let text = self.to_string();
        let inside = text.trim_start_matches(BEGIN).trim_end().trim_end_matches(END);
        format!("{GIT_BEGIN}{inside}{GIT_END}\n")
    }
    /// Reads an envelope between these lines.
    fn between(begin: &str, end_line: &str, bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        if bytes.len() > MAX_ENVELOPE {
            return Err(wrong(0, format!("an envelope has at most {MAX_ENVELOPE} bytes")));
        }
        let bytes = without_mark(bytes);
        let text = str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            wrong(line, "it is not UTF-8")
        })?;
        let mut lines = text.lines().map(str::trim_end).zip(1..);
        if lines.next().is_none_or(|(line, _)| line != begin) {
            return Err(wrong(1, format!("an envelope begins with '{begin}'")));
        }
        let header = header(&mut lines)?;
        let (mut letters, mut end) = (String::with_capacity(text.len()), None);
        for (line, number) in lines {
            match (line, end) {
                ("", Some(_)) => {}
                (_, Some(_)) => return Err(wrong(number, "there is more after the end of the envelope")),
                (line, None) if line == end_line => end = Some(number),
                (line, None) => letters.push_str(line),
            }
        }
        let end = end.ok_or_else(|| wrong(0, format!("it is cut short: the line '{end_line}' is missing")))?;
        let signature = Base64::decode_vec(&letters)
            .map_err(|error| wrong(end, format!("the lines before are no base64: {error}")))?;
        Envelope::new(header, signature).map_err(|error| wrong(end, error.what))
    }
    /// Verifies the envelope of a message by a key. The signer must have named this context. If the envelope is not valid, the
    /// [`Mismatch`] says what is wrong.
    pub fn verify(
        &self,
        engine: &Engine,
        key: &VerifyingKey,
        context: &[u8],
        message: &[u8],
    ) -> Result<Result<(), Mismatch>, Error> {
        if let Err(mismatch) = self.header.check(key, context) {
            return Ok(Err(mismatch));
        }
        let context = self.header.signed_context();
        let valid = engine.verify(key, self.header.mode(&context), message, &self.signature)?;
        Ok(if valid { Ok(()) } else { Err(Mismatch::Content) })
    }
}

/// Reads the header from the lines up to the first empty one.
fn header<'t>(lines: &mut impl Iterator<Item = (&'t str, usize)>) -> Result<Header, EnvelopeError> {
    let (mut params, mut hash, mut context, mut key, mut comment) = (None, None, None, None, None);
    let (mut text, mut last) = (String::new(), 1);
    for (line, number) in lines.take_while(|(line, _)| !line.is_empty()) {
        let wrong = |what: String| wrong(number, what);
        last = number;
        let (field, value) = line
            .split_once(": ")
            .ok_or_else(|| wrong(format!("{} is no field: the header ends with an empty line", Quote::new(line))))?;
        if number == 2 && (field, value) != ("Version", "1") {
            return Err(wrong(format!(
                "{}: this is no envelope of version 1, and no other is known",
                Quote::name(line, ["Version: 1"])
            )));
        }
        let names = || PARAMETER_SETS.iter().map(|p| p.name).chain(["pure", "pre-hash SHA2-256"]);
        let unknown = || wrong(format!("there is no {} {}", field.to_lowercase(), Quote::name(value, names())));
        match field {
            "Version" => {}
            "Set" => params = Some(value.parse::<&'static Params>().map_err(|_| unknown())?),
            "Mode" if value == "pure" => hash = Some(None),
            "Mode" => {
                let name = value.strip_prefix("pre-hash ").ok_or_else(unknown)?;
                hash = Some(Some(name.parse::<PreHash>().map_err(|_| unknown())?));
            }
            "Context" => context = Some(value.as_bytes().to_vec()),
            "Context-Hex" => context = Some(hex::decode(value).map_err(|_| wrong("it is no hexadecimal".into()))?),
            "Key" => key = Some(value.parse::<Fingerprint>().map_err(|_| wrong("it is no fingerprint".into()))?),
            "Comment" => {
                check_comment(value).map_err(wrong)?;
                comment = Some(value.to_owned());
            }
            _ => {
                return Err(wrong(format!(
                    "version 1 has no field {}",
                    Quote::name(field, ["Version", "Set", "Mode", "Context", "Context-Hex", "Key", "Comment"])
                )));
            }
        }
        if context.as_ref().is_some_and(|context| context.len() > MAX_CONTEXT) {
            return Err(wrong(format!("a context has at most {MAX_CONTEXT} bytes")));
        }
        text.extend([line, "\n"]);
    }
    let missing = |field: &str| wrong(last, format!("the header ends without the field '{field}'"));
    let header = Header {
        params: params.ok_or_else(|| missing("Set"))?,
        hash: hash.ok_or_else(|| missing("Mode"))?,
        context: context.unwrap_or_default(),
        key: key.ok_or_else(|| missing("Key"))?,
        comment,
    };
    // A header has only one text: if two texts had one meaning, they would be signed with two contexts.
    let written = header.to_string();
    if written == text {
        return Ok(header);
    }
    let same = written.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
    let want = written.lines().nth(same).map_or("nothing more".into(), |line| {
        // The value is of unknown origin, the field is not.
        let field = line.split(": ").next().unwrap_or_default();
        format!("the field '{field}' in the form that docs/envelope.md gives")
    });
    Err(wrong(same + 2, format!("the header is not written as version 1 writes it: {want} belongs here")))
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{BEGIN}\n{}", self.header)?;
        let letters = Base64::encode_string(&self.signature);
        for line in letters.as_bytes().chunks(WIDTH) {
            writeln!(f, "{}", str::from_utf8(line).expect("base64 is ASCII"))?;
        }
        writeln!(f, "{END}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::{SLH_DSA_SHA2_128F, SLH_DSA_SHA2_256F, SLH_DSA_SHAKE_128F};

    fn key() -> VerifyingKey {
        VerifyingKey::from_bytes(&SLH_DSA_SHA2_128F, &[7; 32]).unwrap()
    }

    fn envelope(mode: Mode<'_>, comment: Option<&str>) -> Envelope {
        Envelope::new(Header::new(&key(), mode, comment).unwrap(), vec![42; 17_088]).unwrap()
    }

    fn all() -> Vec<Envelope> {
        let mut all = Vec::new();
        for context in [&b""[..], b"release", "größe 1".as_bytes(), b"\x00\xff", b" ends ", &[7; 255], b"a\nKey: b"] {
            for comment in [None, Some("a"), Some("Comment: x"), Some("ein Kommentar, mit Umlauten: äöü")] {
                all.push(envelope(Mode::Pure { context }, comment));
                let modes = PreHash::ALL.map(|hash| Mode::PreHash { context, hash });
                all.extend(modes.map(|mode| envelope(mode, comment)));
            }
        }
        all
    }

    #[test]
    fn what_is_written_is_read_and_means_one_thing() {
        let all = all();
        let contexts: std::collections::BTreeSet<_> = all.iter().map(|one| one.header.signed_context()).collect();
        assert_eq!(contexts.len(), all.len());
        for one in &all {
            let text = one.to_string();
            assert!(looks_like_it(text.as_bytes()) && text.len() <= MAX_ENVELOPE);
            assert_eq!(Envelope::parse(text.as_bytes()).as_ref(), Ok(one), "{text}");
            let for_git = one.to_git();
            assert_eq!(Envelope::parse_git(for_git.as_bytes()).as_ref(), Ok(one), "{for_git}");
            assert!(Envelope::parse(for_git.as_bytes()).is_err() && Envelope::parse_git(text.as_bytes()).is_err());
            let mailed = format!("\u{feff}{}\r\n", text.replace('\n', " \r\n"));
            assert_eq!(Envelope::parse(mailed.as_bytes()).as_ref(), Ok(one), "{text}");
            assert!(is_reserved(&one.header.signed_context()) && !is_reserved(one.header.context()));
        }
        let longest = VerifyingKey::from_bytes(&SLH_DSA_SHA2_256F, &[1; 64]).unwrap();
        let header = Header::new(&longest, Mode::Pure { context: &[0; 255] }, Some(&"x".repeat(MAX_COMMENT))).unwrap();
        let longest = Envelope::new(header, vec![0; 49_856]).unwrap().to_string();
        assert!(
            longest.len() * 3 / 2 < MAX_ENVELOPE && Envelope::parse(longest.as_bytes()).is_ok(),
            "{}",
            longest.len()
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = envelope(Mode::Pure { context: b"release" }, Some("comment")).to_string();
        let refuses = |text: &str, words: &str| {
            let error = Envelope::parse(text.as_bytes()).expect_err(words).to_string();
            assert!(error.contains(words) && error.lines().count() == 1 && error.len() < 400, "{words}: {error}");
        };
        let with = |from: &str, to: &str, words: &str| {
            assert!(text.contains(from), "{from}");
            refuses(&text.replacen(from, to, 1), words);
        };
        refuses("", "line 1: an envelope begins with");
        with("-----BEGIN", "-----BEGUN", "line 1: an envelope begins with");
        with(
            "Version: 1",
            "Version: 2",
            "line 2: 'Version: 2' (did you mean 'Version: 1'?): this is no envelope of version 1",
        );
        with("Version: 1\n", "", "line 2: '…' (22 characters of base64, not shown): this is no envelope of version 1");
        with("Version: 1\n", "Version: 1\nVersion: 1\n", "line 3: the header is not written as version 1 writes it");
        with("SHA2-128f", "SHA2-128x", "line 3: there is no");
        with("SHA2-128f", "sha2-128f", "line 3: the header is not written");
        with("SHA2-128f", "SHA2-128s", "the signature has 17088 bytes, one of SLH-DSA-SHA2-128s has 7856");
        with("Mode: pure", "Mode: internal", "line 4: there is no mode '…' (8 characters, not shown)");
        with("Mode: pure", "Mode: pre-hash MD5", "line 4: there is no mode '…' (12 characters of base64, not shown)");
        with("Mode: pure", "Mode: pre-hash sha256", "line 4: the header is not written");
        with("Mode: pure\n", "", "the header ends without the field 'Mode'");
        with("Context: release", "Context-Hex: 72656c65617365", "line 5: the header is not written");
        with("Context: release", "Context-Hex: 0", "line 5: it is no hexadecimal");
        with("Context: release", &format!("Context: {}", "x".repeat(256)), "line 5: a context has at most 255 bytes");
        with("Context: release\n", "Context: release\nContext: release\n", "line 6: the header is not written");
        with("Key: SHA256:", "Key: SHA512:", "line 6: it is no fingerprint");
        with("Key: SHA256:", "Key: SHA256:AA", "line 6: it is no fingerprint");
        with("Comment: comment", "Comment:", "line 7: '…' (8 characters, not shown) is no field");
        with("Comment: comment", "Comment: a\u{7}b", "line 7: a comment is one line");
        with("Comment: comment", &format!("Comment: {}", "x".repeat(513)), "line 7: the comment has 513 bytes");
        with(
            "Comment: comment",
            "Commend: comment",
            "line 7: version 1 has no field 'Commend' (did you mean 'Comment'?)",
        );
        with("Comment: comment\n", "Comment: comment\nKey: x\n", "line 8: it is no fingerprint");
        with("Comment: comment\n\n", "Comment: comment\n", "is no field: the header ends with an empty line");
        with("KioqKioq", "Kioq*ioq", "the lines before are no base64");
        with("KioqKioq", "", "the signature has 17082 bytes");
        with("-----END", "-----ENDE", "it is cut short");
        refuses(&text[..text.len() / 2], "it is cut short");
        refuses(&format!("{text}{text}"), "there is more after the end");
        refuses(&format!("{text}{}", " ".repeat(MAX_ENVELOPE)), "at most 131072 bytes");
        let (before, after) = text.as_bytes().split_at(60);
        let latin1 = Envelope::parse(&[before, b"\xff", after].concat()).unwrap_err();
        assert_eq!((latin1.line, latin1.what.as_str()), (3, "it is not UTF-8"));
    }

    #[test]
    fn what_does_not_fit_is_told_apart() {
        let header = Header::new(&key(), Mode::Pure { context: b"release" }, None).unwrap();
        assert_eq!(header.check(&key(), b"release"), Ok(()));
        let signed = key().fingerprint();
        let others = [
            VerifyingKey::from_bytes(&SLH_DSA_SHA2_128F, &[8; 32]).unwrap(),
            VerifyingKey::from_bytes(&SLH_DSA_SHAKE_128F, &[7; 32]).unwrap(),
            key().into_hash_slh_dsa(),
        ];
        for other in others {
            assert_eq!(header.check(&other, b"release"), Err(Mismatch::Key { signed }));
        }
        assert_eq!(header.check(&key(), b""), Err(Mismatch::Context { signed: b"release".to_vec() }));
        let of_hash = Header::new(&key().into_hash_slh_dsa(), Mode::Pure { context: b"" }, None).unwrap();
        assert_eq!(of_hash.check(&key().into_hash_slh_dsa(), b""), Err(Mismatch::Mode { signed: None }));
        assert!(Header::new(&key(), Mode::Internal, None).is_err());
        for comment in ["", " a", "a ", "a\nb", "a\tb", &"x".repeat(513)] {
            assert!(Header::new(&key(), Mode::default(), Some(comment)).is_err(), "{comment:?}");
        }
    }
}
