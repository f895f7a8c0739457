//! Texts that people write or that another program wrote by mistake: lists, tables, files with a byte order mark.
//!
//! A program that reads a list shows parts of the list in messages. So the program calls [`private_key`] first, to learn whether it was given
//! private keys instead.
//!
//! ```
//! use hypergrove_files::text::private_key;
//! use hypergrove::{Engine, SLH_DSA_SHA2_128F};
//!
//! let key = Engine::new()?.generate(&SLH_DSA_SHA2_128F)?;
//! let table = format!("alice\t{}\nbob\t{}\n", key.verifying_key().to_base64()?, *key.to_base64()?);
//! let found = private_key(table.as_bytes()).expect("the second line has a private key");
//! assert_eq!((found.line, found.column), (2, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use base64ct::{Base64UrlUnpadded, Encoding};
use hypergrove::PARAMETER_SETS;
use hypergrove_zkdilithium::params::SK_BYTES;
use std::fmt;

/// UTF-8's byte order mark, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The letters of base64, or the hexadecimal digits, that reveal the beginning of PKCS#8: at least 8 bytes.
const LETTERS: usize = 16;

/// A place in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The number of the line, from 1.
    pub line: usize,
    /// The number of the character in the line, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The text without the byte order mark at its beginning.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Finds the first private key in a text. That is a PEM label, or a word in base64 or hexadecimal that begins as PKCS#8 does or has the length
/// of a raw private key of zkDilithium. If the bytes are no text but a private key itself, in DER or raw, the position is line 1, column 1.
///
/// The algorithm of the key does not matter, nor does the key's end. A path such as `./MFIC…` is no private key.
pub fn private_key(text: &[u8]) -> Option<Position> {
    // Bytes that are UTF-8 are a text, and random bytes hardly ever are UTF-8.
    let has_length = || has_length_of_key(text.len()) || text.len() == SK_BYTES;
    let is_raw = || has_length() && str::from_utf8(text).is_err();
    if begins_as_pkcs8(text) || is_raw() {
        return Some(Position { line: 1, column: 1 });
    }
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    lines.filter_map(|(bytes, line)| column(bytes).map(|column| Position { line, column })).next()
}

/// The column of a line's private key.
fn column(line: &[u8]) -> Option<usize> {
    let find = |wanted: &[u8]| line.windows(wanted.len()).position(|window| window == wanted);
    let is_label = line.trim_ascii_end().ends_with(b"PRIVATE KEY-----");
    let label = if is_label { find(b"-----BEGIN ") } else { None };
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let word = || {
        let mut next = 0;
        line.split(|byte| !is_letter(byte)).find_map(|word| {
            let at = next;
            next += word.len() + 1;
            (is_pkcs8(word) || has_letters_of_zkdilithium(word.len())).then_some(at)
        })
    };
    let at = label.or_else(word)?;
    Some(String::from_utf8_lossy(&line[..at]).chars().count() + 1)
}

/// Whether a word begins as PKCS#8 does in base64 or hexadecimal.
fn is_pkcs8(word: &[u8]) -> bool {
    // A SEQUENCE begins with `M` in base64, and with `3` in hexadecimal.
    if word.len() < LETTERS || !matches!(word[0], b'M' | b'3') {
        return false;
    }
    // These letters reach into no secret: they hold a header, a version, and the identifier of an algorithm.
    let letters: [u8; LETTERS] = std::array::from_fn(|i| match word[i] {
        b'+' => b'-',
        b'/' => b'_',
        letter => letter,
    });
    let is_base64 = Base64UrlUnpadded::decode(letters, &mut [0; LETTERS]).is_ok_and(begins_as_pkcs8);
    is_base64 || hex::decode(letters).is_ok_and(|bytes| begins_as_pkcs8(&bytes))
}

/// Whether a word has as many letters as a raw private key of zkDilithium, in base64 (without padding) or hexadecimal. No path is so long,
/// and no signature has this length.
fn has_letters_of_zkdilithium(letters: usize) -> bool {
    letters == SK_BYTES / 3 * 4 || letters == 2 * SK_BYTES
}

/// Whether bytes begin as PKCS#8 does: SEQUENCE { INTEGER 0 or 1, SEQUENCE …
fn begins_as_pkcs8(bytes: &[u8]) -> bool {
    let header = match bytes {
        [0x30, ..=0x7f, ..] => 2,
        [0x30, length @ 0x81..=0x82, ..] => usize::from(length & 0x7f) + 2,
        _ => return false,
    };
    matches!(bytes.get(header..), Some([2, 1, 0 | 1, 0x30, ..]))
}

/// Whether a raw private key of some set has this number of bytes.
fn has_length_of_key(bytes: usize) -> bool {
    PARAMETER_SETS.iter().any(|p| p.sk_bytes() == bytes)
}

/// Whether a word has the form of a raw private key: in hexadecimal, or in base64 with its padding, it has as many bytes as a private key of
/// some set. The SHA-512 of a file has this form too, and so has a raw public key of a longer set: call this only where neither can occur.
pub fn is_raw_private_key(word: &[u8]) -> bool {
    let is_hex = word.len().is_multiple_of(2) && word.iter().all(u8::is_ascii_hexdigit);
    if is_hex && has_length_of_key(word.len() / 2) {
        return true;
    }
    let letters = word.strip_suffix(b"==").or(word.strip_suffix(b"=")).unwrap_or(word);
    // Four letters hold three bytes. Random letters are of all kinds; the letters of paths rarely are.
    let bytes = (word.len() / 4 * 3).checked_sub(word.len() - letters.len());
    let has = |is: fn(&u8) -> bool| letters.iter().any(is);
    word.len().is_multiple_of(4)
        && bytes.is_some_and(has_length_of_key)
        && letters.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte))
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64ct::Base64;
    use hypergrove::{Params, SLH_DSA_SHA2_128F, SLH_DSA_SHA2_192S, SLH_DSA_SHAKE_256F, SigningKey};

    fn keys() -> Vec<SigningKey> {
        let key = |p: &'static Params| {
            let bytes: Vec<u8> = (0..p.sk_bytes()).map(|i| (i * 37 + 11) as u8).collect();
            SigningKey::from_bytes_unchecked(p, &bytes).unwrap()
        };
        [&SLH_DSA_SHA2_128F, &SLH_DSA_SHA2_192S, &SLH_DSA_SHAKE_256F].map(key).into()
    }

    #[test]
    fn private_keys_are_found_in_any_form() {
        for key in keys() {
            let word = key.to_base64().unwrap();
            let der = Base64::decode_vec(&word).unwrap();
            let at = |text: &[u8]| private_key(text).map(|at| (at.line, at.column));
            for word in [&word[..], &hex::encode(&der), &hex::encode(&der).to_uppercase(), &word[..40]] {
                assert_eq!(at(word.as_bytes()), Some((1, 1)));
                assert_eq!(at(format!("# größe\r\nä\t{word}\r\n").as_bytes()), Some((2, 3)), "{word}");
                for before in ["key=", "\"", "a,b,", "SHA256:", "a\0"] {
                    let text = format!("{before}{word}");
                    assert_eq!(at(text.as_bytes()), Some((1, before.len() + 1)), "{text}");
                }
                // These words are paths, which lead to files of such names.
                assert_eq!(at(format!("./{word}\ndir/{word}").as_bytes()), None);
            }
            assert_eq!(at(&der), Some((1, 1)));
            let raw = key.to_bytes();
            assert_eq!(at(&raw), Some((1, 1)));
            // The last byte of a raw key may look like a line end.
            assert_eq!(at(&[&raw[..raw.len() - 1], b"\n"].concat()), Some((1, 1)));
            let raw = [hex::encode(key.to_bytes()), Base64::encode_string(&key.to_bytes())];
            raw.iter().for_each(|raw| assert!(is_raw_private_key(raw.as_bytes()), "{raw}"));
            let public = key.verifying_key();
            for harmless in [public.to_base64().unwrap(), public.fingerprint().to_string()] {
                assert_eq!(at(harmless.as_bytes()), None, "{harmless}");
                assert!(!is_raw_private_key(harmless.as_bytes()), "{harmless}");
            }
        }
        for label in ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "ZKDILITHIUM PRIVATE KEY", "OPENSSH PRIVATE KEY"] {
            let text = format!("text\n-----BEGIN {label}-----\r\nAAAA\n");
            assert_eq!(private_key(text.as_bytes()), Some(Position { line: 2, column: 1 }));
        }
    }

    #[test]
    fn a_raw_key_of_zkdilithium_is_found() {
        assert_eq!(private_key(&[0xa5; SK_BYTES]), Some(Position { line: 1, column: 1 }));
        assert_eq!(private_key(&[0xa5; SK_BYTES - 1]), None);
        for word in [Base64::encode_string(&[0xa5; SK_BYTES]), hex::encode([0xa5; SK_BYTES])] {
            let text = format!("key\tfile\t{word}\n");
            assert_eq!(private_key(text.as_bytes()), Some(Position { line: 1, column: 10 }));
            assert_eq!(private_key(&text.as_bytes()[..word.len()]), None);
        }
    }

    #[test]
    fn names_digests_and_public_keys_are_none() {
        let path = "home/user/projects/signatures/data/".repeat(4);
        for text in ["", "M", "3", "MFICAQAwCwYJYIZ", "a\nb", "-----BEGIN PUBLIC KEY-----", &path[..128], &path[..88]] {
            assert_eq!(private_key(text.as_bytes()), None, "{text}");
            assert!(!is_raw_private_key(text.as_bytes()), "{text}");
        }
        // A SHA-512 sum has the form of a raw key, but is no PKCS#8.
        let sum = "ab".repeat(64);
        assert!(is_raw_private_key(sum.as_bytes()) && private_key(sum.as_bytes()).is_none());
        assert!(!is_raw_private_key("ab".repeat(32).as_bytes()));
        assert_eq!(without_mark("\u{feff}a".as_bytes()), b"a");
        assert_eq!(without_mark(b"a"), b"a");
    }
}
