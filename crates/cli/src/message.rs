//! Messages: in memory if they are short or their scheme needs that, else read in pieces.

use crate::args::{Bytes, MachineOptions};
use crate::files::Source;
use crate::schemes::InTool;
use hypergrove::backend::free_memory;
use hypergrove::schemes::{SignJob, VerifyJob};
use hypergrove::{Engine, Mode, ReadError};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::grouped;
use std::io::{self, Read, Seek};
use std::iter;
use std::sync::{Mutex, PoisonError};
use tempfile::SpooledTempFile;

/// Files of so many bytes are read in pieces. Shorter ones are hashed by the engine, on all its threads.
const LONG: u64 = 4 << 20;
/// Bytes of a message that are kept in memory until the verdict is known. More go to a temporary file that has no name.
const KEPT: usize = 64 << 20;

/// The jobs of one message, one for each key.
pub(crate) type Jobs<'j, S> = Box<dyn Iterator<Item = VerifyJob<'j, S>> + Send + 'j>;

/// Reads messages for a command.
pub(crate) struct Messages<'a> {
    /// The limit that --memory sets.
    chosen: Option<u64>,
    /// The digest that is given instead of a message.
    digest: Option<&'a [u8]>,
    /// A copy of the only message, which `verify --output` hands out. It is the copy that is verified.
    copy: Option<Mutex<SpooledTempFile>>,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(machine: &MachineOptions, digest: Option<&'a Bytes>) -> Messages<'a> {
        Messages { chosen: machine.memory, digest: digest.map(|Bytes(digest)| &digest[..]), copy: None }
    }

    /// Copies the only message to where nobody else can change it.
    pub(crate) fn keep(&mut self, source: &Source) -> Result<(), Failure> {
        let (mut reader, _) = reader(source)?;
        let mut copy = SpooledTempFile::new(KEPT);
        io::copy(&mut reader, &mut copy).map_err(|error| Failure::io("copy", source, &error))?;
        self.copy = Some(Mutex::new(copy));
        Ok(())
    }

    /// Gives the copy to `take`, piece by piece.
    pub(crate) fn hand_out(&self, mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(copy) = &self.copy else { return Ok(()) };
        let copy = &mut *copy.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: io::Error| Failure::io("read", "the copy of the message", &error);
        copy.rewind().map_err(failed)?;
        let mut piece = Vec::new();
        loop {
            piece.clear();
            if copy.by_ref().take(1 << 20).read_to_end(&mut piece).map_err(failed)? == 0 {
                return Ok(());
            }
            take(&piece)?;
        }
    }

    /// All of a message.
    pub(crate) fn read(&self, source: &Source) -> Result<Vec<u8>, Failure> {
        let (reader, length) = reader(source)?;
        self.all_of(source, reader, length)
    }

    fn all_of(&self, source: &Source, reader: impl Read, length: Option<u64>) -> Result<Vec<u8>, Failure> {
        const HINT: &str = "sign a file, which is read in pieces, or its hash with --prehash, which SLH-DSA has";
        let most = match (self.chosen, length) {
            (Some(chosen), _) => chosen,
            (None, Some(1..)) => u64::MAX,
            // A pipe, or a file that the system makes up.
            (None, _) => free_memory().unwrap_or(u64::MAX),
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

    /// The digest that was given, if it fits the mode.
    fn digest<'m>(&self, mode: Mode<'m>) -> Result<Option<(Mode<'m>, &'a [u8])>, Failure> {
        let Some(digest) = self.digest else { return Ok(None) };
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
        Ok(Some((mode, digest)))
    }

    /// The job that signs a message.
    pub(crate) fn to_sign<'j, S: InTool>(
        &self,
        engine: &Engine,
        key: &'j S::SigningKey,
        source: &Source,
        (mode, deterministic): (Mode<'j>, bool),
    ) -> Result<SignJob<'j, S>, Failure> {
        if let Some((mode, digest)) = self.digest(mode)? {
            return Ok(S::signed(SignJob::new(key, digest.to_vec()), mode, deterministic));
        }
        let (mut file, length) = source.file_or_pipe().map_err(|failure| of_folder(source, failure))?;
        // A pipe cannot be read twice.
        let in_pieces = S::IN_PIECES && length.map_or(matches!(mode, Mode::PreHash { .. }), |length| length >= LONG);
        if in_pieces {
            let job = S::read_to_sign(engine, key, (mode, deterministic), &mut file);
            return job.map_err(|error| unread(source, error));
        }
        let message = self.all_of(source, file, length)?;
        Ok(S::signed(SignJob::new(key, message), mode, deterministic))
    }

    /// The jobs that verify a message's signature, one for each key. They have one mode. A message in memory is copied when its job is taken.
    pub(crate) fn to_verify<'j, S: InTool>(
        &self,
        engine: &Engine,
        keys: Vec<&'j S::VerifyingKey>,
        source: &Source,
        (mode, signature): (Mode<'j>, &[u8]),
    ) -> Result<Jobs<'j, S>, Failure> {
        let jobs = |keys: Vec<&'j S::VerifyingKey>, message: Vec<u8>, mode| -> Jobs<'j, S> {
            let both = iter::repeat_n((message, signature.to_vec()), keys.len());
            let job = move |(key, (message, signature))| S::verified(VerifyJob::new(key, message, signature), mode);
            Box::new(keys.into_iter().zip(both).map(job))
        };
        if let Some((mode, digest)) = self.digest(mode)? {
            return Ok(jobs(keys, digest.to_vec(), mode));
        }
        let mut kept = self.copy.as_ref().map(|copy| copy.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut reader, length): (Box<dyn Read + '_>, _) = match &mut kept {
            None => reader(source)?,
            Some(copy) => {
                let failed = |error: io::Error| Failure::io("read", source, &error);
                let length = copy.seek(io::SeekFrom::End(0)).map_err(failed)?;
                copy.rewind().map_err(failed)?;
                (Box::new(&mut **copy), Some(length))
            }
        };
        // A pipe or a device may give any number of bytes.
        if S::IN_PIECES && length.is_none_or(|length| length == 0 || length >= LONG) {
            let jobs = S::read_to_verify(engine, &keys, (mode, signature), &mut reader);
            return jobs.map(|jobs| Box::new(jobs.into_iter()) as Jobs<'j, S>).map_err(|error| unread(source, error));
        }
        Ok(jobs(keys, self.all_of(source, reader, length)?, mode))
    }
}

/// A message's reader, and its length if that is known.
pub(crate) fn reader(source: &Source) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
    source.reader().map_err(|failure| of_folder(source, failure))
}

/// The error of a message that was not opened; of a folder, it says how its files are signed and verified.
fn of_folder(source: &Source, failure: Failure) -> Failure {
    match source {
        Source::File(path) if path.is_dir() => {
            failure.hint("--recursive takes every file in it, and --manifest all of them by one signature")
        }
        _ => failure,
    }
}

/// Why a message was not read in pieces.
fn unread(source: &Source, error: ReadError) -> Failure {
    match error {
        ReadError::Io(error) => Failure::io("read", source, &error),
        ReadError::Changed => Failure::new("it changed while it was read, so it is not signed")
            .of(source)
            .hint("sign it when nothing writes to it any more"),
        ReadError::Engine(error) => Failure::from(error).of(source),
    }
}
