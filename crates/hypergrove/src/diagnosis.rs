//! Finds out why a signature fails: tries the mix-ups that people meet, one after the other.
//!
//! ```
//! use hypergrove::diagnosis::MessageChange;
//! use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
//!
//! let engine = Engine::new()?;
//! let key = engine.generate(&SLH_DSA_SHA2_128F)?;
//! let context = Mode::Pure { context: b"letters" };
//! let signature = engine.sign(&key, Mode::default(), b"Dear reader", Randomizer::Hedged)?;
//! let found = engine.diagnose(&key.verifying_key(), context, b"Dear reader\n", signature.as_bytes())?.expect("it was found");
//! assert_eq!(found.message, Some(MessageChange::LineEndRemoved));
//! assert_eq!(found.to_string(), "the signature is valid with an empty context, for the message without its final line end");
//! # Ok::<(), hypergrove::Error>(())
//! ```

use crate::engine::Engine;
use crate::hexadecimal::{from_hex, to_hex};
use crate::keys::VerifyingKey;
use crate::old_hash::{md5, sha1};
use crate::scheme::Scheme;
use crate::slh_dsa::{SlhDsa, VerifyJob};
use base64ct::{Base64, Encoding};
use hypergrove_engine::Error;
use hypergrove_fips205::{MAX_CONTEXT, Mode, Params, PreHash, known_sets};
use std::borrow::Cow;
use std::fmt;

/// UTF-8's byte order mark, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The most bytes of messages that one diagnosis hashes. Beyond it, combinations with more changes are not tried.
const HASHED: usize = 1 << 31;
/// Messages with more bytes than this are not tried in forms that need a copy.
const COPIED: usize = 32 << 20;

/// A combination for which a signature is valid: each field is a difference from what was asked, `None` where nothing differs.
///
/// A signature that is valid in another way shows a mix-up. It does not show that the message is the one that was meant: whoever
/// accepts the signature accepts the change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnosis {
    /// The key, if it is another one.
    pub key: Option<(VerifyingKey, KeyChange)>,
    /// The mode, if it is another one.
    pub mode: Option<SignedMode>,
    /// The context, if it is another one.
    pub context: Option<Vec<u8>>,
    /// How the message must be changed.
    pub message: Option<MessageChange>,
    /// How the signature must be changed.
    pub signature: Option<SignatureChange>,
}

/// A mode without its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignedMode {
    /// [`Mode::Pure`].
    Pure,
    /// [`Mode::PreHash`].
    PreHash(PreHash),
    /// [`Mode::Digest`]: the message is a digest already.
    Digest(PreHash),
    /// [`Mode::Internal`].
    Internal,
}

/// How the key was mistaken for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyChange {
    /// The bytes are a public key of another set.
    Set,
    /// The bytes are a private key of another set, whose last half is the public key.
    PrivateKey,
    /// The key is used without the pre-hash that it implies as a key of HashSLH-DSA.
    WithoutHash,
}

/// How a message must be changed so that the signature is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageChange {
    /// Its last LF or CR LF is taken away.
    LineEndRemoved,
    /// LF is put at its end.
    LfAdded,
    /// CR LF is put at its end.
    CrLfAdded,
    /// Each CR LF becomes LF.
    ToLf,
    /// Each LF becomes CR LF.
    ToCrLf,
    /// UTF-8's byte order mark is taken away.
    ByteOrderMarkRemoved,
    /// UTF-8's byte order mark is put before it.
    ByteOrderMarkAdded,
    /// It is decoded from hexadecimal.
    FromHex,
    /// It is decoded from base64.
    FromBase64,
    /// It is written in hexadecimal, in small letters.
    ToHex,
    /// It is written in base64.
    ToBase64,
    /// The empty message takes its place.
    Empty,
    /// Its digest takes its place.
    ToDigest(MessageHash),
    /// Its digest in hexadecimal takes its place.
    ToHexDigest(MessageHash),
}

/// A hash function with which programs hash a message before they let it be signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageHash {
    /// A hash function of FIPS 205.
    PreHash(PreHash),
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
}

impl MessageHash {
    fn all() -> impl Iterator<Item = MessageHash> {
        PreHash::ALL.into_iter().map(MessageHash::PreHash).chain([MessageHash::Md5, MessageHash::Sha1])
    }

    fn digest(self, message: &[u8]) -> Vec<u8> {
        match self {
            MessageHash::PreHash(hash) => {
                let mut hasher = crate::pre_hasher(hash);
                hasher.update(message);
                hasher.finish()
            }
            MessageHash::Md5 => md5(message),
            MessageHash::Sha1 => sha1(message),
        }
    }
}

impl fmt::Display for MessageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageHash::PreHash(hash) => hash.fmt(f),
            MessageHash::Md5 => f.write_str("MD5"),
            MessageHash::Sha1 => f.write_str("SHA-1"),
        }
    }
}

/// How a signature must be changed so that it is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureChange {
    /// It is decoded from hexadecimal.
    FromHex,
    /// It is decoded from base64, lines with `-----` left out.
    FromBase64,
    /// Its first bytes, as many as a signature has, are taken.
    First,
    /// Its last bytes, as many as a signature has, are taken.
    Last,
    /// The message is the signature, and the signature the message.
    Exchanged,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<Cow<'_, str>> = Vec::new();
        parts.extend(self.signature.map(|change| {
            Cow::from(match change {
                SignatureChange::FromHex => "once it is decoded from hexadecimal",
                SignatureChange::FromBase64 => "once it is decoded from base64",
                SignatureChange::First => "without the bytes that follow it in its file",
                SignatureChange::Last => "without the bytes before it in its file",
                SignatureChange::Exchanged => "once the message and the signature are exchanged",
            })
        }));
        parts.extend(self.key.as_ref().map(|(key, change)| {
            Cow::from(match change {
                KeyChange::Set => format!("with the key as one of {}", key.params()),
                KeyChange::PrivateKey => format!("with the key as the private key of {} that it is", key.params()),
                KeyChange::WithoutHash => "with the key as one that is not of HashSLH-DSA".into(),
            })
        }));
        parts.extend(self.mode.map(|mode| {
            Cow::from(match mode {
                SignedMode::Pure => "in pure mode, without a pre-hash".into(),
                SignedMode::PreHash(hash) => format!("with the pre-hash {hash}"),
                SignedMode::Digest(hash) => format!("with the message taken for a digest by {hash}"),
                SignedMode::Internal => "through the internal interface".into(),
            })
        }));
        parts.extend(self.context.as_ref().map(|context| match str::from_utf8(context) {
            _ if context.is_empty() => Cow::from("with an empty context"),
            Ok(text) if text.chars().all(|c| c.is_ascii_graphic()) => format!("with the context '{text}'").into(),
            _ => format!("with the context whose hexadecimal is {}", to_hex(context)).into(),
        }));
        parts.extend(self.message.map(|change| {
            Cow::from(match change {
                MessageChange::LineEndRemoved => "for the message without its final line end".into(),
                MessageChange::LfAdded => "for the message with a final newline".into(),
                MessageChange::CrLfAdded => "for the message with a final CR LF".into(),
                MessageChange::ToLf => "for the message whose lines end with LF instead of CR LF".into(),
                MessageChange::ToCrLf => "for the message whose lines end with CR LF instead of LF".into(),
                MessageChange::ByteOrderMarkRemoved => "for the message without its byte order mark".into(),
                MessageChange::ByteOrderMarkAdded => "for the message with a byte order mark".into(),
                MessageChange::FromHex => "for the message decoded from hexadecimal".into(),
                MessageChange::FromBase64 => "for the message decoded from base64".into(),
                MessageChange::ToHex => "for the message written in hexadecimal".into(),
                MessageChange::ToBase64 => "for the message written in base64".into(),
                MessageChange::Empty => "for an empty message".into(),
                MessageChange::ToDigest(hash) => format!("for the message's {hash} digest as a message"),
                MessageChange::ToHexDigest(hash) => {
                    format!("for the message's {hash} digest in hexadecimal as a message")
                }
            })
        }));
        match parts.is_empty() {
            true => f.write_str("the signature is valid as it is"),
            false => write!(f, "the signature is valid {}", parts.join(", ")),
        }
    }
}

impl Diagnosis {
    /// The number of differences from what was asked.
    pub fn changes(&self) -> usize {
        let Diagnosis { key, mode, context, message, signature } = self;
        let differs = [key.is_some(), mode.is_some(), context.is_some(), message.is_some(), signature.is_some()];
        differs.into_iter().filter(|differs| *differs).count()
    }
}

/// Reads digits of either case, with white space between them. `None` for other characters, and for no bytes.
fn from_spaced_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    from_hex(&digits).filter(|bytes| !bytes.is_empty())
}

/// Reads base64 with padding, with white space and PEM's boundaries between its lines. `None` for other text, and for no bytes.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"-----"));
    let letters: Vec<u8> = lines.flatten().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    Base64::decode_vec(str::from_utf8(&letters).ok()?).ok().filter(|bytes| !bytes.is_empty())
}

/// The forms that the message may have had when it was signed, with the change that leads to each.
fn messages(message: &[u8]) -> Vec<(Option<MessageChange>, Cow<'_, [u8]>)> {
    let mut all = vec![(None, Cow::from(message))];
    if message.is_empty() {
        return all;
    }
    let without = |end: &[u8]| message.strip_suffix(end);
    all.extend(without(b"\r\n").or(without(b"\n")).map(|rest| (Some(MessageChange::LineEndRemoved), rest.into())));
    let rest = message.strip_prefix(BYTE_ORDER_MARK);
    all.extend(rest.map(|rest| (Some(MessageChange::ByteOrderMarkRemoved), rest.into())));
    all.push((Some(MessageChange::Empty), Cow::from(&[][..])));
    for hash in MessageHash::all().filter(|_| message.len() <= COPIED) {
        let digest = hash.digest(message);
        all.push((Some(MessageChange::ToHexDigest(hash)), to_hex(&digest).into_bytes().into()));
        all.push((Some(MessageChange::ToDigest(hash)), digest.into()));
    }
    if message.len() > COPIED {
        return all;
    }
    let mut add = |change: MessageChange, bytes: Vec<u8>| all.push((Some(change), bytes.into()));
    add(MessageChange::LfAdded, [message, b"\n"].concat());
    add(MessageChange::CrLfAdded, [message, b"\r\n"].concat());
    let lines = |end: &[u8]| {
        let mut lines = Vec::with_capacity(message.len());
        for line in message.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(line) => lines.extend([line.strip_suffix(b"\r").unwrap_or(line), end].concat()),
                None => lines.extend(line),
            }
        }
        Some(lines).filter(|lines| lines != message)
    };
    lines(b"\n").into_iter().for_each(|lines| add(MessageChange::ToLf, lines));
    lines(b"\r\n").into_iter().for_each(|lines| add(MessageChange::ToCrLf, lines));
    add(MessageChange::ByteOrderMarkAdded, [BYTE_ORDER_MARK, message].concat());
    from_spaced_hex(message).into_iter().for_each(|bytes| add(MessageChange::FromHex, bytes));
    from_base64(message).into_iter().for_each(|bytes| add(MessageChange::FromBase64, bytes));
    add(MessageChange::ToHex, to_hex(message).into_bytes());
    add(MessageChange::ToBase64, Base64::encode_string(message).into_bytes());
    all
}

/// The forms that the signature may have and whose length is accepted, with the change that leads to each.
fn signatures(signature: &[u8], is_length: impl Fn(usize) -> bool) -> Vec<(Option<SignatureChange>, Cow<'_, [u8]>)> {
    let mut all = vec![(None, Cow::from(signature))];
    all.extend(from_spaced_hex(signature).map(|bytes| (Some(SignatureChange::FromHex), bytes.into())));
    all.extend(from_base64(signature).map(|bytes| (Some(SignatureChange::FromBase64), bytes.into())));
    for length in (0..signature.len()).filter(|length| is_length(*length)) {
        all.push((Some(SignatureChange::First), signature[..length].into()));
        all.push((Some(SignatureChange::Last), signature[signature.len() - length..].into()));
    }
    all.retain(|(_, bytes)| is_length(bytes.len()));
    all
}

/// The keys that may be meant, with the change that leads to each. These keys imply no mode, because the modes are tried separately.
fn keys(key: &VerifyingKey) -> Vec<(Option<KeyChange>, VerifyingKey)> {
    let bytes = key.to_bytes();
    let as_one_of = |p: &'static Params| {
        let change = if p == key.params() { None } else { Some(KeyChange::Set) };
        let whole = VerifyingKey::from_bytes(p, &bytes).map(|key| (change, key));
        let half =
            || VerifyingKey::from_bytes(p, &bytes[bytes.len() / 2..]).map(|key| (Some(KeyChange::PrivateKey), key));
        whole.or_else(|_| half()).ok()
    };
    known_sets().filter_map(as_one_of).collect()
}

/// The contexts with which the message may have been signed.
fn contexts(context: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut all = vec![Cow::from(context)];
    if !context.is_empty() {
        all.push(Cow::from(&[][..]));
        all.extend(from_spaced_hex(context).map(Cow::from));
        all.push(to_hex(context).into_bytes().into());
    }
    all.retain(|context| context.len() <= MAX_CONTEXT);
    all
}

/// The modes in which this form of the message may have been signed.
fn modes(change: Option<MessageChange>, message: &[u8], requested: SignedMode) -> Vec<SignedMode> {
    let mut all = vec![SignedMode::Pure, SignedMode::Internal];
    match change {
        // A digest that was made by hand was hashed once more only where the mode that was asked does so.
        Some(MessageChange::ToDigest(_) | MessageChange::ToHexDigest(_)) => {
            all.extend(Some(requested).filter(|mode| matches!(mode, SignedMode::PreHash(_))));
        }
        _ => {
            all.extend(PreHash::ALL.map(SignedMode::PreHash));
            all.extend(PreHash::ALL.into_iter().filter(|hash| hash.bytes() == message.len()).map(SignedMode::Digest));
        }
    }
    all
}

impl SignedMode {
    /// The mode with this context.
    pub fn with_context(self, context: &[u8]) -> Mode<'_> {
        match self {
            SignedMode::Pure => Mode::Pure { context },
            SignedMode::PreHash(hash) => Mode::PreHash { context, hash },
            SignedMode::Digest(hash) => Mode::Digest { context, hash },
            SignedMode::Internal => Mode::Internal,
        }
    }
}

impl Engine {
    /// Finds out what an invalid signature is valid for. It tries other modes, an empty context, a context that was not decoded, and
    /// other sets whose keys have this length. It tries the message with other line ends, not decoded, or hashed, and the signature not
    /// decoded or with extra bytes. Of several ways, it returns the one with the fewest changes, and `None` if nothing fits.
    ///
    /// It verifies at most some thousand signatures. For long messages it tries fewer combinations, because it hashes at most two
    /// gibibytes.
    pub fn diagnose(
        &self,
        key: &VerifyingKey,
        mode: Mode<'_>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<Option<Diagnosis>, Error> {
        let keys = keys(key);
        let is_length = |length: usize| keys.iter().any(|(_, key)| key.params().sig_bytes() == length);
        let (requested, context) = match mode {
            Mode::Pure { context } => (SignedMode::Pure, context),
            Mode::PreHash { context, hash } => (SignedMode::PreHash(hash), context),
            Mode::Digest { context, hash } => (SignedMode::Digest(hash), context),
            Mode::Internal => (SignedMode::Internal, &[][..]),
        };
        let contexts = contexts(context);
        let forms = match requested {
            // A digest has one form, because nobody edits a digest.
            SignedMode::Digest(_) => vec![(None, Cow::from(message))],
            _ => messages(message),
        };
        let decoded = signatures(signature, is_length);
        let mut pairs: Vec<_> =
            decoded.iter().flat_map(|s| forms.iter().map(move |m| (s.0, &*s.1, m.0, &*m.1))).collect();
        if is_length(message.len()) {
            pairs.push((Some(SignatureChange::Exchanged), message, None, signature));
        }

        let mut ways = Vec::new();
        for (signature_change, signature, message_change, message) in pairs {
            for (key_change, other) in keys.iter().filter(|(_, key)| key.params().sig_bytes() == signature.len()) {
                for mode in modes(message_change, message, requested) {
                    let implied = match key_change {
                        None if key.as_ref().check_mode(mode.with_context(&[])).is_err() => {
                            Some(KeyChange::WithoutHash)
                        }
                        key_change => *key_change,
                    };
                    // The internal interface has no contexts.
                    let count = if mode == SignedMode::Internal { 1 } else { contexts.len() };
                    for (i, context) in contexts.iter().enumerate().take(count) {
                        let found = Diagnosis {
                            key: implied.map(|change| (other.clone(), change)),
                            mode: (mode != requested).then_some(mode),
                            context: (i > 0).then(|| context.to_vec()),
                            message: message_change,
                            signature: signature_change,
                        };
                        let job = VerifyJob::new(other, message, signature).mode(mode.with_context(context));
                        ways.push((found, job));
                    }
                }
            }
        }
        // The simplest explanation is the likeliest, so fewer changes come first.
        ways.sort_by_key(|(found, _)| found.changes());
        let mut left = HASHED;
        for ways in ways.chunk_by(|(a, _), (b, _)| a.changes() == b.changes()) {
            let bytes = |job: &VerifyJob<'_>| SlhDsa::size_of_input(job.mode, &job.message);
            let hashed = ways.iter().map(|(_, job)| bytes(job)).fold(0, usize::saturating_add);
            let Some(rest) = left.checked_sub(hashed) else { break };
            left = rest;
            let verdicts = self.verify_batch_to_vec(ways.iter().map(|(_, job)| job.clone()))?;
            for ((found, _), verdict) in ways.iter().zip(verdicts) {
                if verdict? {
                    return Ok(Some(found.clone()));
                }
            }
        }
        Ok(None)
    }
}
