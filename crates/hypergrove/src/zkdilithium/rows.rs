//! Rows of zkDilithium: batches as columns.

use super::{Fe, Message, ZkDilithium, params::MUSIZE};
use crate::rows::{CallColumns, Column, MessageRows, RowSigningKeys, RowStatus, SignatureRows};

/// One message for each row.
#[derive(Clone, Copy, Debug)]
pub enum RowMessages<'a> {
    /// Any number of bytes.
    Bytes(Column<'a>),
    /// See [`Message::Block`].
    Blocks(&'a [[Fe; MUSIZE]]),
    /// See [`Message::Mu`].
    Mus(&'a [[Fe; MUSIZE]]),
}

impl<'a> From<Column<'a>> for RowMessages<'a> {
    fn from(bytes: Column<'a>) -> RowMessages<'a> {
        RowMessages::Bytes(bytes)
    }
}

impl<'a> RowMessages<'a> {
    pub(super) fn get(&self, row: usize) -> Result<Message<'a>, RowStatus> {
        let message = match self {
            RowMessages::Bytes(column) => column.get(row).map(Message::Bytes),
            RowMessages::Blocks(all) => all.get(row).map(Message::Block),
            RowMessages::Mus(all) => all.get(row).map(Message::Mu),
        };
        message.ok_or(RowStatus::BadOffsets)
    }
}

/// The public keys of [`Engine::verify_rows`](crate::Engine::verify_rows). An encoded key is ρ ‖ t.
pub type RowVerifyingKeys<'a> = crate::rows::RowVerifyingKeys<'a, super::VerifyingKey, ZkDilithium>;

/// Messages to be signed; see [`Engine::sign_rows`](crate::Engine::sign_rows).
///
/// ```
/// use hypergrove::Engine;
/// use hypergrove::rows::{Column, RowSigningKeys, RowStatus};
/// use hypergrove::zkdilithium::{SignRows, SigningKey, params::SIG_BYTES};
///
/// let key = SigningKey::generate()?;
/// // Two messages of eight bytes.
/// let rows = SignRows::new(RowSigningKeys::One(&key), Column::packed(b"message1message2", 8));
/// let mut signatures = vec![0; 2 * SIG_BYTES];
/// let mut statuses = [RowStatus::default(); 2];
/// Engine::new()?.sign_rows(&rows, &mut signatures, &mut statuses)?;
/// assert_eq!(statuses, [RowStatus::Signed; 2]);
/// # Ok::<(), hypergrove::Error>(())
/// ```
pub type SignRows<'a> = MessageRows<'a, ZkDilithium>;

/// Signatures to be verified; see [`Engine::verify_rows`](crate::Engine::verify_rows).
pub type VerifyRows<'a> = SignatureRows<'a, ZkDilithium>;

/// A call of rows, for a [`RowSet`](crate::rows::RowSet).
pub type RowCall<'a> = CallColumns<'a, 'a, ZkDilithium>;

impl<'a> MessageRows<'a, ZkDilithium> {
    /// Messages with the keys that sign them.
    pub fn new(
        keys: RowSigningKeys<'a, super::SigningKey>,
        messages: impl Into<RowMessages<'a>>,
    ) -> MessageRows<'a, ZkDilithium> {
        MessageRows { keys, mode: (), messages: messages.into(), randomizer: () }
    }
}

impl<'a> SignatureRows<'a, ZkDilithium> {
    /// Signatures with the keys that should have made them, and messages.
    pub fn new(
        keys: RowVerifyingKeys<'a>,
        messages: impl Into<RowMessages<'a>>,
        signatures: Column<'a>,
    ) -> SignatureRows<'a, ZkDilithium> {
        SignatureRows { keys, mode: (), messages: messages.into(), signatures }
    }
}
