//! The status of a row.

/// The status of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum RowStatus {
    /// The call ended before this row was computed, or the device's result was withdrawn.
    #[default]
    NotComputed = 0,
    /// The message was signed.
    Signed = 1,
    /// The signature is valid.
    Valid = 2,
    /// The signature is not valid.
    Invalid = 3,
    /// The row's offsets are wrong: they decrease, are negative, or lie beyond the column's bytes.
    BadOffsets = 4,
    /// The signature does not have the length of the set.
    SignatureLength = 5,
    /// The public key does not have the length of the set.
    KeyLength = 6,
    /// The row's index is beyond the table of keys.
    NoSuchKey = 7,
    /// The digest does not have the length of the pre-hash function ([`Mode::Digest`](crate::Mode::Digest)).
    DigestLength = 8,
    /// The private key is damaged: its PK.root does not follow from its seeds, or it changed in memory.
    KeyDamaged = 9,
    /// The row needs more memory than the engine's budget.
    OutOfMemory = 10,
    /// The message was hashed.
    Hashed = 11,
}

impl RowStatus {
    /// Whether the row is still to be computed.
    pub(super) fn is_open(self) -> bool {
        self == RowStatus::NotComputed
    }
}
