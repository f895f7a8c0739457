//! Messages of any size that SLH-DSA signs and verifies in constant memory: they are read in pieces.

use crate::jobs::JobKey;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::random::random;
use crate::slh_dsa::{JobMessage, Randomizer, ReadMessage, SignJob, VerifyJob};
use crate::{Engine, Error, pre_hasher};
use hypergrove_engine::wiped;
use hypergrove_fips205::digest::{HMsg, PrfMsg};
use hypergrove_fips205::{MPrime, MessageError, Mode, PreHash, PreHasher};
use hypergrove_taint::declassify;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use zeroize::Zeroizing;

/// Bytes of a message that are hashed at a time.
const PIECE: usize = 1 << 20;
/// Pieces that wait to be hashed, at most. One more is hashed and one is read meanwhile, 6 MiB in all.
const AHEAD: usize = 4;

/// Why a message that is read in pieces was not signed or verified.
#[derive(Debug)]
pub enum ReadError {
    /// The reader failed.
    Io(io::Error),
    /// The bytes of the second reading are not those of the first, so there is no signature.
    Changed,
    /// The key, the mode, the randomness or the engine, as for any other message.
    Engine(Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "the message could not be read: {error}"),
            ReadError::Changed => {
                f.write_str("the message changed while it was read; sign it when nothing writes to it any more")
            }
            ReadError::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            ReadError::Changed => None,
            ReadError::Engine(error) => error.source(),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl From<MessageError> for ReadError {
    fn from(error: MessageError) -> ReadError {
        ReadError::Engine(error.into())
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> ReadError {
        ReadError::Engine(error)
    }
}

impl Engine {
    /// Signs a message of any size in constant memory; see [`Engine::read_to_sign`].
    ///
    /// ```
    /// use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
    /// use std::io::{Cursor, Seek};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    /// let mut file = Cursor::new(vec![7; 3 << 20]);
    /// let signature = engine.sign_reader(&key, Mode::default(), &mut file, Randomizer::Hedged)?;
    /// file.rewind()?;
    /// assert!(engine.verify_reader(&key.verifying_key(), Mode::default(), &mut file, signature.as_bytes())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sign_reader(
        &self,
        key: &SigningKey,
        mode: Mode<'_>,
        from: &mut (impl Read + Seek),
        randomizer: Randomizer<'_>,
    ) -> Result<Signature, ReadError> {
        Ok(self.run(self.read_to_sign(key, mode, from, randomizer)?)?)
    }

    /// Verifies the signature of a message of any size in constant memory; see [`Engine::read_to_verify`].
    pub fn verify_reader(
        &self,
        key: &VerifyingKey,
        mode: Mode<'_>,
        from: &mut (impl Read + ?Sized),
        signature: &[u8],
    ) -> Result<bool, ReadError> {
        let jobs = self.read_to_verify([key], mode, from, signature)?;
        jobs.into_iter().try_fold(true, |valid, job| Ok(self.run(job)? && valid))
    }

    /// Reads a message of any size, from the reader's place to its end, in constant memory. Returns the job that signs it, for any of the
    /// engine's calls.
    ///
    /// A message in pure mode is read twice, for PRF_msg and for H_msg (FIPS 205, Algorithm 19, lines 3 and 5); the SHA-256 of both readings is
    /// compared, so that a message that changes is an error ([`ReadError::Changed`]) and not a signature. In pre-hash mode it is read once.
    /// An engine that is redundant or verifies its signatures reads as often again, and compares what was computed.
    pub fn read_to_sign<'a>(
        &self,
        key: impl Into<JobKey<'a, SigningKey>>,
        mode: Mode<'a>,
        from: &mut (impl Read + Seek),
        randomizer: Randomizer<'a>,
    ) -> Result<SignJob<'a>, ReadError> {
        let key = key.into();
        let checks = self.checks();
        let twice = checks.redundant || checks.verify_signatures;
        key.as_ref().check_mode(mode)?;
        if let Mode::Digest { hash, .. } = mode {
            let message = JobMessage::Bytes(digest(from, hash)?.into());
            return Ok(SignJob { key, mode, message, randomizer });
        }
        if let Mode::PreHash { context, hash } = mode {
            mode.check(&[])?;
            // A pipe cannot be read again: each of its pieces is hashed twice.
            let start = if twice { from.stream_position().ok() } else { None };
            let digest = pre_hash(from, hash, if twice && start.is_none() { 2 } else { 1 })?;
            if let Some(start) = start {
                from.seek(SeekFrom::Start(start))?;
                same(&digest, &pre_hash(from, hash, 1)?)?;
            }
            let (message, mode) = (JobMessage::Bytes(digest.into()), Mode::Digest { context, hash });
            return Ok(SignJob { key, mode, message, randomizer });
        }
        let n = key.params().n;
        let drawn;
        let opt_rand = match randomizer {
            Randomizer::Hedged => {
                let mut bytes = Zeroizing::new(vec![0; n]);
                random(&mut bytes)?;
                drawn = bytes;
                &drawn[..]
            }
            Randomizer::Deterministic => key.as_ref().pk_seed(),
            Randomizer::Given(bytes) => bytes,
        };
        Error::check_length("opt_rand", n, opt_rand.len())?;
        let start = from.stream_position()?;
        let mut read = || wiped(|| read_twice(&key, mode, opt_rand, from, start));
        let (r, digest) = read()?;
        if twice {
            let (r_again, digest_again) = read()?;
            same(&r, &r_again)?;
            same(&digest, &digest_again)?;
        }
        let message = JobMessage::Read(ReadMessage::new(key.verifying_key(), true, mode, r, digest)?);
        // The randomness is in R already.
        Ok(SignJob { key, mode, message, randomizer: Randomizer::Deterministic })
    }

    /// Reads a message of any size once, from the reader's place to its end, in constant memory. Returns the jobs that verify a signature of it
    /// with each of these keys, for any of the engine's calls.
    ///
    /// FIPS 205, Algorithm 20, line 8. Redundant work hashes each piece twice, and compares the digests.
    pub fn read_to_verify<'a, K: Into<JobKey<'a, VerifyingKey>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mode: Mode<'a>,
        from: &mut (impl Read + ?Sized),
        signature: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Vec<VerifyJob<'a>>, ReadError> {
        let keys: Vec<JobKey<'a, VerifyingKey>> = keys.into_iter().map(Into::into).collect();
        let signature = signature.into();
        keys.iter().try_for_each(|key| key.as_ref().check_mode(mode))?;
        let times = if self.checks().redundant { 2 } else { 1 };
        let job = |key, mode, message| VerifyJob { key, mode, message, signature: signature.clone() };
        if let Mode::Digest { hash, .. } = mode {
            let digest = digest(from, hash)?;
            return Ok(keys.into_iter().map(|key| job(key, mode, JobMessage::Bytes(digest.clone().into()))).collect());
        }
        if let Mode::PreHash { context, hash } = mode {
            mode.check(&[])?;
            let (digest, mode) = (pre_hash(from, hash, times)?, Mode::Digest { context, hash });
            let of_key = |key| job(key, mode, JobMessage::Bytes(digest.clone().into()));
            return Ok(keys.into_iter().map(of_key).collect());
        }
        let m_prime = MPrime::new(mode, &[])?;
        // A signature of the wrong length has no R, and is invalid whatever the message is.
        let r = |key: &VerifyingKey| {
            let p = key.params();
            (signature.len() == p.sig_bytes()).then(|| &signature[p.r_range()])
        };
        let hasher = |key: &JobKey<'a, VerifyingKey>| {
            Some(HMsg::new(key.params(), r(key)?, key.as_ref().pk_seed(), key.as_ref().pk_root()))
        };
        let mut hashers: Vec<_> = (0..times).flat_map(|_| keys.iter().map(hasher)).collect();
        let mut update = |piece: &[u8]| hashers.iter_mut().flatten().for_each(|hasher| hasher.update(piece));
        m_prime.parts().into_iter().for_each(&mut update);
        pieces(from, |_| (), update)?;
        let mut digests = hashers.into_iter().zip(keys.iter().cycle()).map(|(hasher, key)| {
            let mut digest = vec![0; key.params().m];
            hasher?.finish(&mut digest);
            Some(digest)
        });
        let first: Vec<_> = digests.by_ref().take(keys.len()).collect();
        for (nth, again) in digests.enumerate() {
            same(first[nth].as_deref().unwrap_or_default(), again.as_deref().unwrap_or_default())?;
        }
        let of_key = |(key, digest): (JobKey<'a, VerifyingKey>, Option<Vec<u8>>)| {
            let message = match (r(&key), digest) {
                (Some(r), Some(digest)) => {
                    JobMessage::Read(ReadMessage::new((*key).clone(), false, mode, r.to_vec(), digest)?)
                }
                _ => JobMessage::Bytes(Cow::default()),
            };
            Ok(job(key, mode, message))
        };
        keys.into_iter().zip(first).map(of_key).collect()
    }
}

/// PRF_msg and H_msg of a message, each by a reading of its own. The caller wipes the stack.
fn read_twice(
    key: &SigningKey,
    mode: Mode<'_>,
    opt_rand: &[u8],
    from: &mut (impl Read + Seek),
    start: u64,
) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
    let (p, key, m_prime) = (key.params(), key.as_ref(), MPrime::new(mode, &[])?);
    let mut read = |update: &mut (dyn FnMut(&[u8]) + Send)| {
        let mut sum = PreHash::Sha256.hasher();
        from.seek(SeekFrom::Start(start))?;
        m_prime.parts().into_iter().for_each(&mut *update);
        pieces(from, |piece| sum.update(piece), update)?;
        Ok::<_, ReadError>(sum.finish())
    };
    let mut prf = PrfMsg::new(p, key.sk_prf(), opt_rand);
    let first = read(&mut |piece| prf.update(piece))?;
    let (mut r, mut digest) = (vec![0; p.n], vec![0; p.m]);
    prf.finish(&mut r);
    declassify(&r[..]);
    let mut h_msg = HMsg::new(p, &r, key.pk_seed(), key.pk_root());
    let second = read(&mut |piece| h_msg.update(piece))?;
    h_msg.finish(&mut digest);
    if first == second { Ok((r, digest)) } else { Err(ReadError::Changed) }
}

/// The hash of all that is read, which is computed so many times in one reading and compared.
fn pre_hash(from: &mut (impl Read + ?Sized), hash: PreHash, times: usize) -> Result<Vec<u8>, ReadError> {
    let mut hashers = vec![pre_hasher(hash); times];
    pieces(from, |_| (), |piece| hashers.iter_mut().for_each(|hasher| hasher.update(piece)))?;
    let digests: Vec<_> = hashers.into_iter().map(PreHasher::finish).collect();
    digests.iter().try_for_each(|digest| same(&digests[0], digest))?;
    Ok(digests.into_iter().next().unwrap_or_default())
}

/// A digest that is read; one of another length is an error of its job.
fn digest(from: &mut (impl Read + ?Sized), hash: PreHash) -> Result<Vec<u8>, ReadError> {
    let (mut digest, most) = (Vec::new(), hash.bytes() as u64 + 1);
    from.take(most).read_to_end(&mut digest)?;
    Ok(digest)
}

/// Fails if this host computed two different results from the same message.
fn same(first: &[u8], second: &[u8]) -> Result<(), Error> {
    if first == second { Ok(()) } else { Err(Error::differs("host".into(), "the message's digest", 0)) }
}

/// Reads to the end. Each piece goes to `here`, on this thread, and to `there`, on another thread that works while this one reads on.
fn pieces(
    from: &mut (impl Read + ?Sized),
    mut here: impl FnMut(&[u8]),
    there: impl FnMut(&[u8]) + Send,
) -> Result<(), ReadError> {
    let there = Mutex::new(there);
    let take = |piece: &[u8]| (there.lock().unwrap_or_else(PoisonError::into_inner))(piece);
    let mut piece = Vec::new();
    if next(from, &mut piece)? < PIECE {
        here(&piece);
        take(&piece);
        return Ok(());
    }
    let (full, filled) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    let (empty, spares) = mpsc::channel();
    let work = || {
        wiped(|| {
            for piece in filled {
                take(&piece);
                // The reader may have come to its end.
                let _ = empty.send(piece);
            }
        });
    };
    thread::scope(|scope| {
        let started = thread::Builder::new().name("read".into()).spawn_scoped(scope, work).is_ok();
        while !piece.is_empty() {
            here(&piece);
            piece = match started {
                // Without a thread, this one does both.
                false => {
                    take(&piece);
                    piece
                }
                true => {
                    full.send(piece).expect("the other thread takes pieces until there are no more");
                    spares.try_recv().unwrap_or_default()
                }
            };
            next(from, &mut piece)?;
        }
        drop(full);
        Ok(())
    })
}

/// Reads a piece, and returns its length; at the end it is empty.
fn next(from: &mut (impl Read + ?Sized), piece: &mut Vec<u8>) -> io::Result<usize> {
    piece.clear();
    from.take(PIECE as u64).read_to_end(piece)
}
