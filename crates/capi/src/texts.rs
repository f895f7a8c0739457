//! Texts that C gets: of statuses, of the last failure, and of the release.

use crate::failure::{Status, last};
use crate::pointers::Given;
use hypergrove::rows::RowStatus;
use std::ffi::{CStr, c_char};

#[unsafe(no_mangle)]
extern "C" fn hg_status_text(status: i32) -> Given<c_char> {
    let known = Status::ALL.iter().find(|(known, ..)| *known as i32 == status);
    Given::text(known.map_or(c"unknown status", |(.., text)| text))
}

#[unsafe(no_mangle)]
extern "C" fn hg_error_text() -> Given<c_char> {
    last(Given::text).unwrap_or(Given::text(c""))
}

#[unsafe(no_mangle)]
extern "C" fn hg_version() -> Given<c_char> {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    Given::text(CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or_default())
}

#[unsafe(no_mangle)]
extern "C" fn hg_row_status_text(status: u8) -> Given<c_char> {
    let known = ROWS.iter().find(|(known, ..)| *known as u8 == status);
    Given::text(known.map_or(c"unknown status", |(.., text)| text))
}

/// The statuses of rows, with the header's name and a few words.
pub(crate) const ROWS: [(RowStatus, &str, &CStr); 12] = [
    (RowStatus::NotComputed, "HG_ROW_NOT_COMPUTED", c"not computed"),
    (RowStatus::Signed, "HG_ROW_SIGNED", c"signed"),
    (RowStatus::Valid, "HG_ROW_VALID", c"the signature is valid"),
    (RowStatus::Invalid, "HG_ROW_INVALID", c"the signature is not valid"),
    (RowStatus::BadOffsets, "HG_ROW_BAD_OFFSETS", c"its offsets decrease or lie beyond the column"),
    (RowStatus::SignatureLength, "HG_ROW_SIGNATURE_LENGTH", c"the signature has another length than the set's"),
    (RowStatus::KeyLength, "HG_ROW_KEY_LENGTH", c"the public key has another length than the set's"),
    (RowStatus::NoSuchKey, "HG_ROW_NO_SUCH_KEY", c"its index is beyond the table of keys"),
    (RowStatus::DigestLength, "HG_ROW_DIGEST_LENGTH", c"the digest has another length than the hash function's"),
    (RowStatus::KeyDamaged, "HG_ROW_KEY_DAMAGED", c"the private key is damaged"),
    (RowStatus::OutOfMemory, "HG_ROW_OUT_OF_MEMORY", c"it needs more memory than the engine's budget"),
    (RowStatus::Hashed, "HG_ROW_HASHED", c"hashed"),
];
