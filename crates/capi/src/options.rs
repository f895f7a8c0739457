//! The options of a message, and what SLH-DSA reads from them.

use crate::engine::check_flags;
use crate::failure::Failure;
use crate::pointers::{In, Span, c_structs};
use hypergrove::{Mode, PreHash, Randomizer};

c_structs! {
    /// `hg_message_options`.
    MessageOptions is "hg_message_options" {
        size: usize,
        context: In<u8>,
        context_length: usize,
        randomizer: In<u8>,
        randomizer_length: usize,
        prehash: u32,
        flags: u32,
    }
}

pub(crate) const DETERMINISTIC: u32 = 1;
pub(crate) const MESSAGE_IS_DIGEST: u32 = 2;
pub(crate) const INTERNAL_INTERFACE: u32 = 4;
/// All of them.
pub(crate) const FLAGS: u32 = DETERMINISTIC | MESSAGE_IS_DIGEST | INTERNAL_INTERFACE;
/// In place of a hash function's number: the message is not hashed first.
pub(crate) const PURE: u32 = 0;

/// The hash function of a number: the last arc of its object identifier.
pub(crate) fn prehash(number: u32) -> Result<PreHash, Failure> {
    let known = PreHash::ALL.into_iter().find(|hash| u32::from(hash.oid_der()[10]) == number);
    known.ok_or_else(|| Failure::bad_input(format!("prehash {number}: there is no such hash function")))
}

/// A value that a scheme reads from message options.
pub(crate) trait OfOptions<'a>: Sized {
    fn of(options: &'a MessageOptions) -> Result<Self, Failure>;
}

/// How messages of SLH-DSA become M′.
impl<'a> OfOptions<'a> for Mode<'a> {
    fn of(options: &'a MessageOptions) -> Result<Mode<'a>, Failure> {
        check_flags(options.flags, FLAGS)?;
        let context = options.context.slice(options.context_length, "context")?;
        let is_digest = options.flags & MESSAGE_IS_DIGEST != 0;
        if options.flags & INTERNAL_INTERFACE != 0 {
            if !context.is_empty() || options.prehash != PURE || is_digest {
                let text = "flags: FIPS 205's internal interface has neither context nor pre-hash; leave them out";
                return Err(Failure::bad_input(text.into()));
            }
            return Ok(Mode::Internal);
        }
        match (options.prehash, is_digest) {
            (PURE, false) => Ok(Mode::Pure { context }),
            (PURE, true) => {
                Err(Failure::bad_input("flags: a digest of which hash function? name it in prehash".into()))
            }
            (hash, false) => Ok(Mode::PreHash { context, hash: prehash(hash)? }),
            (hash, true) => Ok(Mode::Digest { context, hash: prehash(hash)? }),
        }
    }
}

/// Where opt_rand of SLH-DSA comes from.
impl<'a> OfOptions<'a> for Randomizer<'a> {
    fn of(options: &'a MessageOptions) -> Result<Randomizer<'a>, Failure> {
        let is_deterministic = options.flags & DETERMINISTIC != 0;
        match (options.randomizer.is_null() && options.randomizer_length == 0, is_deterministic) {
            (true, false) => Ok(Randomizer::Hedged),
            (true, true) => Ok(Randomizer::Deterministic),
            (false, false) => Ok(Randomizer::Given(options.randomizer.slice(options.randomizer_length, "randomizer")?)),
            (false, true) => Err(Failure::bad_input(
                "randomizer: a deterministic signature takes none; give one or the other".into(),
            )),
        }
    }
}

impl MessageOptions {
    /// The memory that is read besides the structure.
    pub(crate) fn spans(&self) -> [Span; 2] {
        [self.context.span(self.context_length, "context"), self.randomizer.span(self.randomizer_length, "randomizer")]
    }
}
