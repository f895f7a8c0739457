#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;
use base64ct::{Base64, Encoding};
use core::fmt;
use hypergrove_taint::declassified;
use zeroize::Zeroizing;

/// UTF-8's byte order mark, with which some editors begin a file.
const MARK: &[u8] = b"\xef\xbb\xbf";
const DASHES: &[u8] = b"-----";
const BEGIN: &[u8] = b"-----BEGIN ";
/// The beginning of a block in UTF-16 of either byte order, without the zero at one end.
const BEGIN_UTF16: &[u8] = b"-\0-\0-\0-\0-\0B\0E\0G\0I\0N\0 ";

/// Labels of blocks: the contents that they announce, and the command that makes another file of them.
const KNOWN: [(&str, &str); 16] = [
    ("PRIVATE KEY", "a private key"),
    ("ENCRYPTED PRIVATE KEY", "an encrypted private key"),
    ("PUBLIC KEY", "a public key"),
    ("ZKDILITHIUM PRIVATE KEY", "a private key of zkDilithium"),
    ("ZKDILITHIUM PUBLIC KEY", "a public key of zkDilithium"),
    ("CERTIFICATE", "a certificate; `openssl x509 -in FILE -noout -pubkey` writes its public key"),
    ("CERTIFICATE REQUEST", "a certificate request; `openssl req -in FILE -noout -pubkey` writes its public key"),
    ("NEW CERTIFICATE REQUEST", "a certificate request; `openssl req -in FILE -noout -pubkey` writes its public key"),
    (
        "TRUSTED CERTIFICATE",
        "a TRUSTED CERTIFICATE, which has OpenSSL's settings of trust; `openssl x509 -in FILE -out NEW` writes the certificate alone",
    ),
    (
        "X509 CRL",
        "an X509 CRL, a list of revoked certificates; `openssl crl -in FILE -noout -text` shows it, and nothing makes a key or a certificate of it",
    ),
    ("PKCS7", "PKCS#7; `openssl pkcs7 -in FILE -print_certs -out NEW` writes the certificates in it"),
    ("CMS", "CMS; `openssl cms -cmsout -inform PEM -in FILE -noout -certsout NEW` writes the certificates in it"),
    (
        "X509 CERTIFICATE",
        "a certificate under an old label; `openssl x509 -in FILE -out NEW` writes it under the new one",
    ),
    ("OPENSSH PRIVATE KEY", "a private key in the format of OpenSSH"),
    ("RSA PRIVATE KEY", "a private key of RSA"),
    ("EC PRIVATE KEY", "a private key of elliptic curves"),
];

/// The error of a PEM file that is not read. Its text names the way out, and quotes nothing of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PemError {
    /// A boundary is not alone on its line.
    LineBreaks,
    /// Lines end in CR alone.
    CarriageReturns,
    /// Line breaks are written as a backslash and a letter.
    Escapes,
    /// The text is UTF-16.
    Utf16,
    /// No line begins a block.
    NoBlock,
    /// A block has no end.
    NoEnd,
    /// A block ends with another label than it begins with.
    OtherEnd,
    /// A block has headers, as in RFC 1421.
    Headers,
    /// A block's text is not Base64.
    Base64,
    /// Several blocks have the label of which one is needed.
    Several {
        /// The label.
        label: &'static str,
        /// The number of blocks.
        count: usize,
    },
    /// There are a private key and an encrypted one.
    TwoKeys,
    /// There are keys of zkDilithium and of another scheme.
    TwoSchemes,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PemError::LineBreaks => {
                "this PEM file has lost line breaks, as happens in variables and in YAML; \
                 `sed -E 's/-----(BEGIN|END) [^-]*-----/\\n&\\n/g' FILE > NEW` puts them back"
            }
            PemError::CarriageReturns => {
                "the lines of this PEM file end in CR alone; `tr '\\r' '\\n' < FILE > NEW` makes line feeds of them"
            }
            PemError::Escapes => {
                "this PEM file has a backslash and a letter in place of each line break; \
                 `sed 's/\"//g; s/\\\\r//g; s/\\\\n/\\n/g' FILE > NEW` makes line breaks of them"
            }
            PemError::Utf16 => "this PEM file is UTF-16; `iconv -f UTF-16 -t UTF-8 FILE > NEW` converts it",
            PemError::NoBlock => {
                "this is damaged PEM: no line is a boundary '-----BEGIN LABEL-----'; begin the line with its dashes"
            }
            PemError::NoEnd => "this is damaged PEM: a block has no end; the file may be cut short, so compare it with a copy",
            PemError::OtherEnd => "this is damaged PEM: a block ends as another one; compare it with a copy",
            PemError::Headers => {
                "a block of this PEM file has headers, which keys of OpenSSL's old encryption have; \
                 `openssl pkey -in FILE -out NEW` writes a key without them"
            }
            PemError::Base64 => {
                "this is damaged PEM: the text of a block is not Base64, or is cut short; compare it with a copy"
            }
            PemError::Several { label, count } => {
                return write!(
                    f,
                    "this PEM file has {count} blocks '{label}', one is needed; put the one that is meant into a file of its own"
                );
            }
            PemError::TwoKeys => {
                "this PEM file has a private key and an encrypted one; put the one that is meant into a file of its own"
            }
            PemError::TwoSchemes => {
                "this PEM file has keys of zkDilithium and others; put the one that is meant into a file of its own"
            }
        })
    }
}

impl core::error::Error for PemError {}

/// Whether the bytes are text with a boundary of PEM in it. They may be a private key: the search branches on none of them, but for those that
/// DER begins with.
pub fn is_pem(bytes: &[u8]) -> bool {
    let has = |wanted: &[u8]| {
        let differs = |window: &[u8]| window.iter().zip(wanted).fold(0, |differs, (a, b)| differs | (a ^ b));
        bytes.windows(wanted.len()).fold(false, |found, window| found | (differs(window) == 0))
    };
    !is_sequence(bytes) && declassified(has(BEGIN) | has(BEGIN_UTF16))
}

/// Whether the bytes are one SEQUENCE of DER from end to end, by the first of them: no text is, and those that follow may be secret.
pub fn is_sequence(bytes: &[u8]) -> bool {
    match *bytes {
        [0x30, length @ 0..=0x7f, ref rest @ ..] => rest.len() == length.into(),
        [0x30, 0x81, length @ 0x80..=0xff, ref rest @ ..] => rest.len() == length.into(),
        [0x30, 0x82, high @ 1..=0xff, low, ref rest @ ..] => rest.len() == usize::from(high) << 8 | usize::from(low),
        [0x30, 0x83, high @ 1..=0xff, middle, low, ref rest @ ..] => {
            rest.len() == usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
        }
        _ => false,
    }
}

/// `A` for the characters of Base64, and the byte itself for others, which are public.
fn class(byte: u8) -> u8 {
    let within = |first: u8, last: u8| {
        let [byte, first, last] = [byte, first, last].map(i16::from);
        // All bits are set if both differences are negative.
        (((first - 1 - byte) & (byte - last - 1)) >> 8) as u8
    };
    let letter = within(b'A', b'Z') | within(b'a', b'z') | within(b'/', b'9') | within(b'+', b'+') | within(b'=', b'=');
    declassified(byte & !letter | b'A' & letter)
}

/// The blocks of a PEM file, at least one.
pub struct Pem<'a>(Vec<Block<'a>>);

/// A block.
struct Block<'a> {
    label: &'a [u8],
    /// The text between the boundaries.
    text: &'a [u8],
}

/// A boundary, by its line: whether it begins a block, and its label.
fn boundary<'a>(line: &'a [u8], classes: &[u8]) -> Result<Option<(bool, &'a [u8])>, PemError> {
    if !classes.starts_with(DASHES) {
        return if contains(classes, DASHES) { Err(PemError::LineBreaks) } else { Ok(None) };
    }
    let text = &line[DASHES.len()..];
    let (begins, from) = match () {
        () if text.starts_with(b"BEGIN ") => (true, BEGIN.len()),
        () if text.starts_with(b"END ") => (false, BEGIN.len() - 2),
        () => return Ok(None),
    };
    let cut = if begins { PemError::NoBlock } else { PemError::NoEnd };
    // A label may have hyphens in it (RFC 7468, section 3).
    let length = classes[from..].windows(DASHES.len()).position(|window| window == DASHES).ok_or(cut)?;
    match &classes[from + length..] {
        rest if rest == DASHES && length > 0 => Ok(Some((begins, &line[from..from + length]))),
        _ => Err(PemError::LineBreaks),
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

impl<'a> Pem<'a> {
    /// Reads a file that [`is_pem`].
    pub fn read(bytes: &'a [u8]) -> Result<Pem<'a>, PemError> {
        let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
        let classes: Vec<u8> = bytes.iter().copied().map(class).collect();
        Pem::blocks(bytes, &classes).map_err(|error| match error {
            PemError::LineBreaks | PemError::NoBlock | PemError::NoEnd => lost(&classes, error),
            error => error,
        })
    }

    fn blocks(bytes: &'a [u8], classes: &[u8]) -> Result<Pem<'a>, PemError> {
        let (mut blocks, mut open, mut at) = (Vec::new(), None, 0);
        let mut odd = None;
        for whole in classes.split_inclusive(|class| *class == b'\n') {
            let start = at + whole.len() - whole.trim_ascii_start().len();
            let classes = whole.trim_ascii();
            at += whole.len();
            open = match (boundary(&bytes[start..start + classes.len()], classes), open) {
                // Text around blocks may have dashes in it.
                (Err(error), None) if !classes.starts_with(DASHES) => {
                    odd = Some(error);
                    None
                }
                (Err(error), _) => return Err(error),
                (Ok(Some((true, _))), Some(_)) => return Err(PemError::NoEnd),
                (Ok(Some((true, label))), None) => Some((label, at)),
                (Ok(Some((false, label))), Some((begun, from))) => {
                    if label != begun {
                        return Err(PemError::OtherEnd);
                    }
                    blocks.push(Block { label, text: &bytes[from..at - whole.len()] });
                    None
                }
                (Ok(_), open) => open,
            };
        }
        match open {
            Some(_) => Err(PemError::NoEnd),
            None if blocks.is_empty() => Err(odd.filter(|_| is_flat(classes)).unwrap_or(PemError::NoBlock)),
            None => Ok(Pem(blocks)),
        }
    }

    /// Whether there is a block with this label.
    pub fn has(&self, label: &str) -> bool {
        self.0.iter().any(|block| block.label == label.as_bytes())
    }

    /// The bytes of the only block with this label; `None` if there is none.
    pub fn block(&self, label: &'static str) -> Result<Option<Zeroizing<Vec<u8>>>, PemError> {
        let mut all = self.all(label);
        match (all.next(), all.count()) {
            (None, _) => Ok(None),
            (Some(bytes), 0) => bytes.map(Some),
            (_, more) => Err(PemError::Several { label, count: more + 1 }),
        }
    }

    /// The bytes of each block with this label.
    pub fn all(&self, label: &str) -> impl Iterator<Item = Result<Zeroizing<Vec<u8>>, PemError>> {
        self.0.iter().filter(move |block| block.label == label.as_bytes()).map(Block::decode)
    }

    /// The contents of the first block whose label is known, and the command that makes another file of it.
    pub fn content(&self) -> &'static str {
        let known = |block: &Block<'_>| KNOWN.iter().find(|(label, _)| block.label == label.as_bytes());
        self.0.iter().find_map(known).map_or("a block with another label", |(_, content)| content)
    }
}

impl Block<'_> {
    fn decode(&self) -> Result<Zeroizing<Vec<u8>>, PemError> {
        if self.text.iter().any(|byte| class(*byte) == b':') {
            return Err(PemError::Headers);
        }
        let mut letters = Zeroizing::new(Vec::with_capacity(self.text.len()));
        for byte in self.text {
            match class(*byte) {
                b'A' => letters.push(*byte),
                blank if blank.is_ascii_whitespace() => {}
                _ => return Err(PemError::Base64),
            }
        }
        // Wiped where the decoder gives up halfway, too.
        let mut bytes = Zeroizing::new(vec![0; letters.len()]);
        let length = Base64::decode(&*letters, &mut bytes).map_err(|_| PemError::Base64)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Whether a line has more than one boundary.
fn is_flat(classes: &[u8]) -> bool {
    let boundaries = |line: &[u8]| line.windows(DASHES.len()).filter(|window| *window == DASHES).count();
    classes.split(|class| *class == b'\n').any(|line| boundaries(line) > 2)
}

/// The error of a file whose line breaks are gone, by what stands in their place.
fn lost(classes: &[u8], error: PemError) -> PemError {
    if contains(classes, b"-----\\A") || contains(classes, b"\\A-----") {
        PemError::Escapes
    } else if contains(classes, b"-----\rA") || contains(classes, b"A\r-----") {
        PemError::CarriageReturns
    } else if contains(classes, b"-\0-\0-\0-") {
        PemError::Utf16
    } else {
        error
    }
}
