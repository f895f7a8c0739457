//! Messages: read whole where a scheme needs that, hashed in pieces where a hash is signed.

use crate::args::{Bytes, MachineOptions};
use crate::files::{Source, available};
use hypergrove::Mode;
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::grouped;
use std::io::{self, Read};

/// Bytes of a message that are hashed at a time. Shorter messages are hashed by the engine, on all its threads.
const PIECE: u64 = 1 << 20;

/// Reads messages for a command, as far as they fit into memory.
pub(crate) struct Messages<'a> {
    /// What --memory says.
    chosen: Option<u64>,
    /// The digest that is given instead of a message.
    digest: Option<&'a [u8]>,
}

/// What a job takes: the message, or its hash, and the mode for that.
pub(crate) type Message<'m> = (Mode<'m>, Vec<u8>);

impl<'a> Messages<'a> {
    pub(crate) fn new(machine: &MachineOptions, digest: Option<&'a Bytes>) -> Messages<'a> {
        Messages { chosen: machine.memory, digest: digest.map(|Bytes(digest)| &digest[..]) }
    }

    /// All of a message.
    pub(crate) fn read(&self, source: &Source) -> Result<Vec<u8>, Failure> {
        const HINT: &str = "sign and verify the file's hash with --prehash, which SLH-DSA has";
        let (reader, length) = source.reader()?;
        let most = match (self.chosen, length) {
            (Some(chosen), _) => chosen,
            (None, Some(1..)) => u64::MAX,
            // A pipe, or a file that the system makes up.
            (None, _) => available().unwrap_or(u64::MAX),
        };
        let too_large = |has: &str| {
            let (room, hint) = match self.chosen {
                Some(chosen) => {
                    (format!("--memory allows {}", grouped(chosen)), format!("give more with --memory, or {HINT}"))
                }
                None => ("more than there is memory for".into(), HINT.into()),
            };
            Failure::new(format!("{source} has {has} bytes, {room}")).hint(hint)
        };
        if let Some(length) = length.filter(|length| *length > most) {
            return Err(too_large(&grouped(length)));
        }
        let bytes = source.take(reader, length, most.saturating_add(1)).map_err(|failure| match failure.is_memory {
            true => failure.hint(HINT),
            false => failure,
        })?;
        if bytes.len() as u64 > most {
            return Err(too_large(&format!("more than {}", grouped(most))));
        }
        Ok(bytes)
    }

    /// A message for a job; of one that is long and is to be hashed, the hash.
    pub(crate) fn hash<'m>(&self, source: &Source, mode: Mode<'m>) -> Result<Message<'m>, Failure> {
        if let Some(digest) = self.digest {
            let Mode::PreHash { context, hash } = mode else {
                return Err(Failure::new("--digest holds no message, and without a hash function a message is needed")
                    .hint("name the function with --prehash, for example --prehash SHA2-256"));
            };
            let mode = Mode::Digest { context, hash };
            mode.check(digest).map_err(|_| {
                let (got, want) = (digest.len(), hash.bytes());
                Failure::new(format!("--digest has {got} bytes, a digest of {hash} has {want}"))
                    .hint("name the function that made it with --prehash")
            })?;
            return Ok((mode, digest.to_vec()));
        }
        let Mode::PreHash { context, hash } = mode else { return Ok((mode, self.read(source)?)) };
        let (mut reader, _) = source.reader()?;
        let mut piece = Vec::new();
        let mut next = |piece: &mut Vec<u8>| {
            piece.clear();
            let read = reader.by_ref().take(PIECE).read_to_end(piece);
            read.map_err(|error: io::Error| Failure::io("read", source, &error))
        };
        if (next(&mut piece)? as u64) < PIECE {
            return Ok((mode, piece));
        }
        let mut hasher = hash.hasher();
        while !piece.is_empty() {
            hasher.update(&piece);
            next(&mut piece)?;
        }
        Ok((Mode::Digest { context, hash }, hasher.finish()))
    }
}
