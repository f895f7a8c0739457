//! A message that was read in pieces.

use crate::keys::VerifyingKey;
use hypergrove_engine::Error;
use hypergrove_fips205::{MPrime, MessageError, Mode, Position};
use std::fmt;
use std::sync::Arc;

/// A message that was read: the digest that one key's signature of it is about. [`Engine::read_to_sign`](crate::Engine::read_to_sign) and [`Engine::read_to_verify`](crate::Engine::read_to_verify) make it.
///
/// Nothing else makes it, because a signature of a digest that somebody chose would reveal parts of the key.
#[derive(Clone)]
pub struct ReadMessage(Arc<Digested>);

/// H_msg(R, PK.seed, PK.root, M′), and its other inputs than the message.
struct Digested {
    /// The key, and whether it is to sign.
    key: VerifyingKey,
    signs: bool,
    /// M′ without the message: the mode and its context.
    mode: Vec<u8>,
    r: Vec<u8>,
    digest: Vec<u8>,
}

impl ReadMessage {
    pub(crate) fn new(
        key: VerifyingKey,
        signs: bool,
        mode: Mode<'_>,
        r: Vec<u8>,
        digest: Vec<u8>,
    ) -> Result<ReadMessage, MessageError> {
        Ok(ReadMessage(Arc::new(Digested { key, signs, mode: without_message(mode)?, r, digest })))
    }

    /// Checks that the message was read for this key and this mode, to be signed or to be verified.
    pub(crate) fn check(&self, key: &VerifyingKey, signs: bool, mode: Mode<'_>) -> Result<(), Error> {
        let is_of_mode = without_message(mode).is_ok_and(|mode| mode == self.0.mode);
        if self.0.key == *key && self.0.signs == signs && is_of_mode {
            return Ok(());
        }
        let what =
            "the message was read for another key, another operation or another mode; read it again for this job";
        Err(Error::Value { what: what.into() })
    }

    pub(crate) fn r(&self) -> &[u8] {
        &self.0.r
    }

    pub(crate) fn position(&self) -> Position {
        Position::split(self.0.key.params(), &self.0.digest)
    }
}

impl fmt::Debug for ReadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadMessage").field("set", &self.0.key.params()).finish_non_exhaustive()
    }
}

/// M′ of an empty message. Those of two modes or two contexts differ.
fn without_message(mode: Mode<'_>) -> Result<Vec<u8>, MessageError> {
    Ok(MPrime::new(mode, &[])?.parts().concat())
}
