//! PEM as it is met: text around it, several blocks in a file, a byte order mark, lines of any length.

use hypergrove::pkcs8::der::pem;
use hypergrove_files::text::without_mark;
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::brief;
use std::fmt::Display;
use zeroize::Zeroizing;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// The characters of a line of strict PEM.
const WIDTH: usize = 64;

/// Whether there is a PEM boundary. The bytes may be a private key in DER: the search branches on none of them.
pub(crate) fn is_pem(bytes: &[u8]) -> bool {
    let differs = |window: &[u8]| window.iter().zip(BEGIN).fold(0, |differs, (a, b)| differs | (a ^ b));
    bytes.windows(BEGIN.len()).fold(false, |found, window| found | (differs(window) == 0))
}

/// The blocks of a file, at least one.
pub(crate) struct Pem<'a>(Vec<Block<'a>>);

struct Block<'a> {
    label: &'a str,
    /// The text between the boundaries.
    text: &'a [u8],
}

impl<'a> Pem<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Pem<'a>, Failure> {
        let bytes = without_mark(bytes);
        let label = |line: &'a [u8], boundary: &[u8]| {
            let label = line.strip_prefix(boundary)?.strip_suffix(DASHES)?;
            str::from_utf8(label).ok().filter(|label| !label.is_empty())
        };
        let (mut blocks, mut open, mut at) = (Vec::new(), None, 0);
        for whole in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, start) = (whole.trim_ascii(), at);
            at += whole.len();
            open = match open {
                None => label(line, BEGIN).map(|label| (label, at)),
                Some((begun, from)) if line.starts_with(END) => {
                    if label(line, END) != Some(begun) {
                        return Err(damaged(format_args!("the block '{}' ends as another one", brief(begun))));
                    }
                    blocks.push(Block { label: begun, text: &bytes[from..start] });
                    None
                }
                Some((begun, _)) if line.starts_with(BEGIN) => {
                    return Err(endless(begun));
                }
                open => open,
            };
        }
        match open {
            Some((begun, _)) => Err(endless(begun)),
            None if blocks.is_empty() => Err(damaged("no line is a boundary '-----BEGIN LABEL-----'")),
            None => Ok(Pem(blocks)),
        }
    }

    /// The labels, in order.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|block| block.label)
    }

    /// The bytes of the block with this label, if there is one. Of several nobody could tell which one is meant.
    pub(crate) fn block(&self, label: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
        let mut found = self.0.iter().filter(|block| block.label == label);
        match (found.next(), found.count()) {
            (None, _) => Ok(None),
            (Some(block), 0) => block.decode().map(Some),
            (_, more) => Err(Failure::new(format!("this PEM file has {} blocks '{label}', one is needed", more + 1))
                .hint("put the key that is meant into a file of its own")),
        }
    }
}

impl Block<'_> {
    fn decode(&self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        // The decoder reads nothing but strict PEM. A buffer that grew would leave parts of a key behind.
        let most = self.text.len() * (WIDTH + 1) / WIDTH + 2 * (self.label.len() + 32);
        let mut strict = Zeroizing::new(Vec::with_capacity(most));
        strict.extend([BEGIN, self.label.as_bytes(), DASHES].concat());
        let text = self.text.iter().filter(|byte| !byte.is_ascii_whitespace());
        for (i, byte) in text.enumerate() {
            if i % WIDTH == 0 {
                strict.push(b'\n');
            }
            strict.push(*byte);
        }
        strict.extend([b"\n", END, self.label.as_bytes(), DASHES, b"\n"].concat());
        // Wiped where the decoder gives up halfway, too.
        let mut bytes = Zeroizing::new(vec![0; strict.len()]);
        let length = pem::decode(&strict, &mut bytes).map_err(damaged)?.1.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn endless(label: &str) -> Failure {
    damaged(format_args!("the block '{}' has no end", brief(label)))
}

fn damaged(why: impl Display) -> Failure {
    Failure::new(format!("this is damaged PEM: {why}")).hint("compare it with a copy, or make it again")
}

/// The message about a public key that lies next to a private key of another pair.
pub(crate) fn mixed() -> Failure {
    Failure::new("this PEM file has a private key and the public key of another pair")
        .hint("find out which of the two is meant; `hypergrove pubkey` writes the public key of a private key")
}
