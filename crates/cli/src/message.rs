//! Messages: read whole where a scheme needs that, hashed in pieces where a hash is signed.

use crate::args::{Bytes, MachineOptions};
use crate::files::{Source, available};
use hypergrove::{Mode, PreHash};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::grouped;
use std::io::Read;
use std::sync::mpsc;
use std::thread;

/// Bytes of a message that are hashed at a time. Shorter messages are hashed by the engine, on all its threads.
const PIECE: u64 = 1 << 20;
/// Pieces that wait to be hashed, at most. One more is hashed and one is read meanwhile, 6 MiB in all.
const AHEAD: usize = 4;

/// Reads messages for a command, as far as they fit into memory.
pub(crate) struct Messages<'a> {
    /// The limit that --memory sets.
    chosen: Option<u64>,
    /// The digest that is given instead of a message.
    digest: Option<&'a [u8]>,
}

/// The input of a job: the mode, and the message or its hash.
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
        let mut first = Vec::new();
        next(&mut reader, &mut first, source)?;
        if (first.len() as u64) < PIECE {
            return Ok((mode, first));
        }
        Ok((Mode::Digest { context, hash }, digest(&mut reader, first, hash, source)?))
    }
}

/// Reads a piece; at the end it is empty.
fn next(reader: &mut dyn Read, piece: &mut Vec<u8>, source: &Source) -> Result<(), Failure> {
    piece.clear();
    let read = reader.take(PIECE).read_to_end(piece);
    read.map(|_| ()).map_err(|error| Failure::io("read", source, &error))
}

/// The hash of a message whose first piece was read. Another thread hashes while this one reads on.
fn digest(reader: &mut dyn Read, first: Vec<u8>, hash: PreHash, source: &Source) -> Result<Vec<u8>, Failure> {
    let (full, pieces) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    let (empty, spares) = mpsc::channel();
    thread::scope(|scope| {
        let work = move || {
            let mut hasher = hypergrove::pre_hasher(hash);
            for piece in pieces {
                hasher.update(&piece);
                // The reader may have come to its end.
                let _ = empty.send(piece);
            }
            hasher.finish()
        };
        let hashing = thread::Builder::new().name("prehash".into()).spawn_scoped(scope, work);
        // Without a thread, this one hashes too.
        let mut here = hashing.is_err().then(|| hypergrove::pre_hasher(hash));
        let mut piece = first;
        while !piece.is_empty() {
            piece = match &mut here {
                Some(hasher) => {
                    hasher.update(&piece);
                    piece
                }
                None => {
                    full.send(piece).expect("the other thread takes pieces until there are no more");
                    spares.try_recv().unwrap_or_default()
                }
            };
            next(reader, &mut piece, source)?;
        }
        drop(full);
        Ok(match (here, hashing) {
            (Some(hasher), _) => hasher.finish(),
            (None, Ok(hashing)) => hashing.join().expect("hash functions do not panic"),
            (None, Err(_)) => unreachable!("without the thread there is a hasher here"),
        })
    })
}
