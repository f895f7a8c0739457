//! The host's share of signing and verifying: M′, R and the message digest.

pub use crate::blockwise::BlockHash;
use crate::blockwise::{Blockwise, Crates};
use crate::geometry::Position;
use crate::keys::MAX_N;
use crate::params::{Family, MAX_M, Params, list};
use crate::quote::Quote;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use digest::{Digest, ExtendableOutput, Update, XofReader};
use sha2::{Sha224, Sha256, Sha512};
use shake::Shake256;
use zeroize::Zeroizing;

/// The longest context string, in bytes.
pub const MAX_CONTEXT: usize = 255;

/// Makes the enum of hash functions from each one's name, the last arc of its object identifier, and the bytes of a hash.
macro_rules! pre_hashes {
    ($($(#[$doc:meta])* $hash:ident $name:literal $arc:literal $bytes:literal;)*) => {
        /// The hash functions of HashSLH-DSA (FIPS 205, section 10.2.2).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum PreHash {
            $($(#[$doc])* $hash,)*
        }

        impl PreHash {
            /// All of them.
            pub const ALL: [PreHash; 12] = [$(PreHash::$hash),*];

            /// The name, as ACVP spells it.
            pub const fn name(self) -> &'static str {
                match self { $(PreHash::$hash => $name,)* }
            }

            /// DER of the hash's object identifier, 2.16.840.1.101.3.4.2.x.
            pub const fn oid_der(self) -> &'static [u8; 11] {
                match self {
                    $(PreHash::$hash => &[0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, $arc],)*
                }
            }

            /// Bytes of a hash.
            pub const fn bytes(self) -> usize {
                match self { $(PreHash::$hash => $bytes,)* }
            }
        }
    };
}

pre_hashes! {
    /// SHA-224.
    Sha224 "SHA2-224" 4 28;
    /// SHA-256.
    Sha256 "SHA2-256" 1 32;
    /// SHA-384.
    Sha384 "SHA2-384" 2 48;
    /// SHA-512.
    Sha512 "SHA2-512" 3 64;
    /// SHA-512/224.
    Sha512_224 "SHA2-512/224" 5 28;
    /// SHA-512/256.
    Sha512_256 "SHA2-512/256" 6 32;
    /// SHA3-224.
    Sha3_224 "SHA3-224" 7 28;
    /// SHA3-256.
    Sha3_256 "SHA3-256" 8 32;
    /// SHA3-384.
    Sha3_384 "SHA3-384" 9 48;
    /// SHA3-512.
    Sha3_512 "SHA3-512" 10 64;
    /// SHAKE128, 32 bytes out.
    Shake128 "SHAKE-128" 11 32;
    /// SHAKE256, 64 bytes out.
    Shake256 "SHAKE-256" 12 64;
}

impl PreHash {
    /// The hash of all parts, one after the other: PH(parts\[0\] ‖ parts\[1\] ‖ …).
    pub fn hash(self, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0; self.bytes()];
        self.hash_into(parts, &mut out);
        out
    }

    /// As [`hash`](PreHash::hash), into the caller's memory of [`bytes`](PreHash::bytes) bytes.
    pub fn hash_into(self, parts: &[&[u8]], out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes(), "{self} gives so many bytes");
        let mut hasher = self.hasher();
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finish_into(out);
    }

    /// PH of a message that comes in pieces, for [`Mode::Digest`].
    pub fn hasher(self) -> PreHasher {
        self.hasher_by(&Crates)
    }

    /// As [`hasher`](PreHash::hasher), but blocks of SHA-384, SHA-512, SHA-512/t, SHA-3 and SHAKE go to `by`: `hypergrove-lanes`
    /// has faster implementations.
    pub fn hasher_by(self, by: &'static dyn BlockHash) -> PreHasher {
        let function = match self {
            PreHash::Sha224 => Function::Sha224(Sha224::new()),
            PreHash::Sha256 => Function::Sha256(Sha256::new()),
            PreHash::Sha384 => Function::Blockwise(Blockwise::sha384(by)),
            PreHash::Sha512 => Function::Blockwise(Blockwise::sha512(by)),
            PreHash::Sha512_224 => Function::Blockwise(Blockwise::sha512_t(by, b"SHA-512/224")),
            PreHash::Sha512_256 => Function::Blockwise(Blockwise::sha512_t(by, b"SHA-512/256")),
            PreHash::Sha3_224 | PreHash::Sha3_256 | PreHash::Sha3_384 | PreHash::Sha3_512 => {
                Function::Blockwise(Blockwise::sha3(by, self.bytes()))
            }
            PreHash::Shake128 => Function::Blockwise(Blockwise::shake(by, 16)),
            PreHash::Shake256 => Function::Blockwise(Blockwise::shake(by, 32)),
        };
        PreHasher { hash: self, function }
    }
}

/// Hashes a message piece by piece; see [`PreHash::hasher`]. With the feature `std`, as in the crate `hypergrove`, it is a
/// `std::io::Write`, so that `std::io::copy` hashes what a reader gives.
///
/// ```
/// use hypergrove_fips205::{MPrime, Mode, PreHash};
///
/// let (context, hash) = (&b"letters"[..], PreHash::Sha256);
/// let mut hasher = hash.hasher();
/// hasher.update(b"mess");
/// hasher.update(b"age");
/// let digest = hasher.finish();
/// // Both are the same to a signer and a verifier.
/// let of_digest = MPrime::new(Mode::Digest { context, hash }, &digest)?;
/// assert_eq!(of_digest, MPrime::new(Mode::PreHash { context, hash }, b"message")?);
/// # Ok::<(), hypergrove_fips205::MessageError>(())
/// ```
#[derive(Clone)]
pub struct PreHasher {
    hash: PreHash,
    function: Function,
}

/// A hash function under way.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "short messages are hashed without memory of the heap")]
enum Function {
    Sha224(Sha224),
    Sha256(Sha256),
    Blockwise(Blockwise),
}

impl PreHasher {
    /// Appends a piece of the message.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.function {
            Function::Sha224(hash) => Digest::update(hash, piece),
            Function::Sha256(hash) => Digest::update(hash, piece),
            Function::Blockwise(hash) => hash.update(piece),
        }
    }
    /// The digest of all pieces.
    pub fn finish(self) -> Vec<u8> {
        let mut out = vec![0; self.hash.bytes()];
        self.finish_into(&mut out);
        out
    }
    fn finish_into(self, out: &mut [u8]) {
        match self.function {
            Function::Sha224(hash) => out.copy_from_slice(&hash.finalize()),
            Function::Sha256(hash) => out.copy_from_slice(&hash.finalize()),
            Function::Blockwise(hash) => hash.finish(out),
        }
    }
}

/// Never fails.
#[cfg(feature = "std")]
impl std::io::Write for PreHasher {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.update(piece);
        Ok(piece.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for PreHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreHasher").finish_non_exhaustive()
    }
}

impl fmt::Display for PreHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function of this name, whatever the case and the separators; SHA-2's may lack the 2: `SHA2-256`, `SHA-256`,
/// `sha256`, `SHA-512/256`, `sha3_256`, `SHAKE128`.
impl FromStr for PreHash {
    type Err = UnknownHash;

    fn from_str(name: &str) -> Result<PreHash, UnknownHash> {
        let letters = |s: &str| s.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase()).collect();
        let given: Vec<u8> = letters(name);
        let known = PreHash::ALL.into_iter().find(|hash| {
            let full: Vec<u8> = letters(hash.name());
            given == full || full.strip_prefix(b"sha2").is_some_and(|size| given.strip_prefix(b"sha") == Some(size))
        });
        known.ok_or_else(|| UnknownHash { name: Quote::name(name, PreHash::ALL.into_iter().map(PreHash::name)) })
    }
}

/// HashSLH-DSA has no hash function of this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownHash {
    name: Quote,
}

impl fmt::Display for UnknownHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no hash function {} for HashSLH-DSA; use one of ", self.name)?;
        list(f, PreHash::ALL.into_iter().map(PreHash::name))
    }
}

impl core::error::Error for UnknownHash {}

/// How a message becomes M′.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode<'a> {
    /// SLH-DSA: the message itself, after a context string.
    Pure {
        /// The context, at most 255 bytes.
        context: &'a [u8],
    },
    /// HashSLH-DSA: the message's hash, after a context string.
    PreHash {
        /// The context, at most 255 bytes.
        context: &'a [u8],
        /// The hash function.
        hash: PreHash,
    },
    /// HashSLH-DSA of a message that the caller has hashed: the digest takes the message's place. Signatures are the same as
    /// those of [`Mode::PreHash`].
    Digest {
        /// The context, at most 255 bytes.
        context: &'a [u8],
        /// The function that the message was hashed with; see [`PreHash::hasher`].
        hash: PreHash,
    },
    /// The internal interface: the message is M′.
    Internal,
}

/// Pure, with an empty context.
impl Default for Mode<'_> {
    fn default() -> Self {
        Mode::Pure { context: &[] }
    }
}

impl Mode<'_> {
    /// Replaces the context of the mode. [`Mode::Internal`] has no place for one and becomes [`Mode::Pure`], so that a context
    /// is never lost.
    #[must_use]
    pub fn with_context(self, context: &[u8]) -> Mode<'_> {
        match self {
            Mode::Pure { .. } | Mode::Internal => Mode::Pure { context },
            Mode::PreHash { hash, .. } => Mode::PreHash { context, hash },
            Mode::Digest { hash, .. } => Mode::Digest { context, hash },
        }
    }

    /// Checks that a message has an M′ in this mode.
    pub fn check(self, message: &[u8]) -> Result<(), MessageError> {
        let (context, hashed) = match self {
            Mode::Internal => return Ok(()),
            Mode::Pure { context } | Mode::PreHash { context, .. } => (context, None),
            Mode::Digest { context, hash } => (context, Some(hash)),
        };
        if context.len() > MAX_CONTEXT {
            return Err(MessageError::Context { got: context.len() });
        }
        match hashed.filter(|hash| hash.bytes() != message.len()) {
            Some(hash) => Err(MessageError::Digest { hash, got: message.len() }),
            None => Ok(()),
        }
    }
}

/// The error of a message that has no M′ in a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// The context string is too long.
    Context {
        /// The length of the context in bytes.
        got: usize,
    },
    /// The digest does not have the length of the function.
    Digest {
        /// The hash function.
        hash: PreHash,
        /// The length of the digest in bytes.
        got: usize,
    },
    /// The key is of HashSLH-DSA, and the mode is not pre-hash with its function.
    KeyHash {
        /// The key's hash function.
        hash: PreHash,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Context { got } => {
                write!(f, "the context has {got} bytes, at most {MAX_CONTEXT} are allowed; shorten or hash it")
            }
            MessageError::KeyHash { hash } => {
                write!(
                    f,
                    "this is a key of HashSLH-DSA with {hash}: sign and verify in pre-hash mode with {hash}, no other"
                )
            }
            MessageError::Digest { hash, got } => {
                write!(f, "a digest of {hash} has {} bytes, {got} are given; hash the message first", hash.bytes())
            }
        }
    }
}

impl core::error::Error for MessageError {}

/// M′, the bytes that are signed: in parts, so that a long message is not copied.
#[derive(Clone, Debug)]
pub struct MPrime<'a> {
    /// Domain separator and length of the context.
    header: Option<[u8; 2]>,
    context: &'a [u8],
    oid: &'static [u8],
    body: Body<'a>,
}

/// The last part of M′.
#[derive(Clone, Debug)]
enum Body<'a> {
    Message(&'a [u8]),
    /// The message's hash.
    Hash(PreHash, [u8; MAX_HASH]),
}

/// Bytes of a hash, at most.
const MAX_HASH: usize = 64;

/// Part by part.
impl PartialEq for MPrime<'_> {
    fn eq(&self, other: &MPrime<'_>) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for MPrime<'_> {}

impl<'a> MPrime<'a> {
    /// M′ of a message.
    ///
    /// FIPS 205, Algorithms 22 to 25.
    pub fn new(mode: Mode<'a>, message: &'a [u8]) -> Result<MPrime<'a>, MessageError> {
        mode.check(message)?;
        let (separator, context, oid, body) = match mode {
            Mode::Internal => return Ok(MPrime::internal(message)),
            Mode::Pure { context } => (0, context, &[][..], Body::Message(message)),
            Mode::PreHash { context, hash } => {
                let mut bytes = [0; MAX_HASH];
                hash.hash_into(&[message], &mut bytes[..hash.bytes()]);
                (1, context, &hash.oid_der()[..], Body::Hash(hash, bytes))
            }
            Mode::Digest { context, hash } => (1, context, &hash.oid_der()[..], Body::Message(message)),
        };
        let length = context.len() as u8;
        Ok(MPrime { header: Some([separator, length]), context, oid, body })
    }
    /// M′ as the caller put it together.
    pub fn internal(m_prime: &'a [u8]) -> MPrime<'a> {
        MPrime { header: None, context: &[], oid: &[], body: Body::Message(m_prime) }
    }
    /// Bytes that M′ of a message has.
    pub fn bytes(mode: Mode<'_>, message: &[u8]) -> usize {
        match mode {
            Mode::Internal => message.len(),
            Mode::Pure { context } => 2 + context.len() + message.len(),
            Mode::PreHash { context, hash } | Mode::Digest { context, hash } => {
                2 + context.len() + hash.oid_der().len() + hash.bytes()
            }
        }
    }
    /// The parts, in order; some may be empty.
    pub fn parts(&self) -> [&[u8]; 4] {
        let body = match &self.body {
            Body::Message(message) => message,
            Body::Hash(hash, bytes) => &bytes[..hash.bytes()],
        };
        [self.header.as_ref().map_or(&[], |header| &header[..]), self.context, self.oid, body]
    }
}

/// PRF_msg: R, into n bytes (FIPS 205, 11.1 and 11.2).
pub fn prf_msg(p: &Params, sk_prf: &[u8], opt_rand: &[u8], m_prime: &MPrime<'_>, r: &mut [u8]) {
    let mut hasher = PrfMsg::new(p, sk_prf, opt_rand);
    m_prime.parts().into_iter().for_each(|part| hasher.update(part));
    hasher.finish(r);
}

/// PRF_msg of an M′ that comes in pieces. The state is secret, and is wiped on drop.
pub struct PrfMsg<'p> {
    p: &'p Params,
    inner: MessageHash,
    /// The key of HMAC (RFC 2104) in the block that the outer hash begins with; SHAKE needs none.
    outer: Zeroizing<[u8; 128]>,
}

impl<'p> PrfMsg<'p> {
    /// Begins with SK.prf and opt_rand, n bytes each.
    pub fn new(p: &'p Params, sk_prf: &[u8], opt_rand: &[u8]) -> PrfMsg<'p> {
        let (mut inner, mut outer) = (MessageHash::new(p), Zeroizing::new([0x36; 128]));
        let block = inner.block();
        if block == 0 {
            inner.update(sk_prf);
        } else {
            // The key is no longer than a block of the hash function.
            outer.iter_mut().zip(sk_prf).for_each(|(byte, key)| *byte ^= key);
            inner.update(&outer[..block]);
            outer.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        }
        inner.update(opt_rand);
        PrfMsg { p, inner, outer }
    }

    /// Appends a piece of M′.
    pub fn update(&mut self, piece: &[u8]) {
        self.inner.update(piece);
    }

    /// R, into n bytes.
    pub fn finish(self, r: &mut [u8]) {
        let PrfMsg { p, inner, outer } = self;
        assert_eq!(r.len(), p.n, "R has n bytes");
        let block = inner.block();
        if block == 0 {
            return inner.finish(r);
        }
        let (mut hash, mut hashed) = (MessageHash::new(p), Zeroizing::new([0; MAX_HASH]));
        let hashed = &mut hashed[..block / 2];
        inner.finish(hashed);
        hash.update(&outer[..block]);
        hash.update(hashed);
        hash.finish(r);
    }
}

impl Position {
    /// The position that a message's digest selects (FIPS 205, Algorithm 19, lines 5 to 10).
    pub fn of(p: &Params, r: &[u8], pk_seed: &[u8], pk_root: &[u8], m_prime: &MPrime<'_>) -> Position {
        let mut digest = [0; MAX_M];
        let digest = &mut digest[..p.m];
        h_msg(p, r, pk_seed, pk_root, m_prime, digest);
        Position::split(p, digest)
    }
}

/// H_msg: the m bytes that [`Position::split`] takes (FIPS 205, 11.1 and 11.2).
pub fn h_msg(p: &Params, r: &[u8], pk_seed: &[u8], pk_root: &[u8], m_prime: &MPrime<'_>, out: &mut [u8]) {
    let mut hasher = HMsg::new(p, r, pk_seed, pk_root);
    m_prime.parts().into_iter().for_each(|part| hasher.update(part));
    hasher.finish(out);
}

/// H_msg of an M′ that comes in pieces.
pub struct HMsg<'p> {
    p: &'p Params,
    inner: MessageHash,
    /// R ‖ PK.seed, which MGF1 hashes once more.
    seed: [u8; 2 * MAX_N],
}

impl<'p> HMsg<'p> {
    /// Begins with R, PK.seed and PK.root, n bytes each.
    pub fn new(p: &'p Params, r: &[u8], pk_seed: &[u8], pk_root: &[u8]) -> HMsg<'p> {
        let (mut inner, mut seed) = (MessageHash::new(p), [0; 2 * MAX_N]);
        seed[..p.n].copy_from_slice(r);
        seed[p.n..2 * p.n].copy_from_slice(pk_seed);
        inner.update(&seed[..2 * p.n]);
        inner.update(pk_root);
        HMsg { p, inner, seed }
    }

    /// Appends a piece of M′.
    pub fn update(&mut self, piece: &[u8]) {
        self.inner.update(piece);
    }

    /// The m bytes.
    pub fn finish(self, out: &mut [u8]) {
        let HMsg { p, inner, seed } = self;
        assert_eq!(out.len(), p.m, "H_msg gives m bytes");
        let size = inner.block() / 2;
        if size == 0 {
            return inner.finish(out);
        }
        let mut hashed = [0; MAX_HASH];
        inner.finish(&mut hashed[..size]);
        // MGF1 (RFC 8017, B.2.1).
        for (counter, out) in (0u32..).zip(out.chunks_mut(size)) {
            let mut hash = MessageHash::new(p);
            hash.update(&seed[..2 * p.n]);
            hash.update(&hashed[..size]);
            hash.update(&counter.to_be_bytes());
            hash.finish(out);
        }
    }
}

/// The function with which a set hashes messages.
enum MessageHash {
    Sha256(Sha256),
    Sha512(Sha512),
    Shake256(Shake256),
}

impl MessageHash {
    fn new(p: &Params) -> MessageHash {
        match p.family {
            Family::Shake => MessageHash::Shake256(Shake256::default()),
            Family::Sha2 if p.n == 16 => MessageHash::Sha256(Sha256::new()),
            Family::Sha2 => MessageHash::Sha512(Sha512::new()),
        }
    }
    /// Bytes of a block of SHA-2, two hashes long; none for SHAKE, whose output is as long as it is asked for.
    fn block(&self) -> usize {
        match self {
            MessageHash::Sha256(_) => 64,
            MessageHash::Sha512(_) => 128,
            MessageHash::Shake256(_) => 0,
        }
    }
    fn update(&mut self, piece: &[u8]) {
        match self {
            MessageHash::Sha256(hash) => Digest::update(hash, piece),
            MessageHash::Sha512(hash) => Digest::update(hash, piece),
            MessageHash::Shake256(hash) => Update::update(hash, piece),
        }
    }
    /// As many of the first bytes of the hash as `out` takes.
    fn finish(self, out: &mut [u8]) {
        match self {
            MessageHash::Sha256(hash) => out.copy_from_slice(&hash.finalize()[..out.len()]),
            MessageHash::Sha512(hash) => out.copy_from_slice(&hash.finalize()[..out.len()]),
            MessageHash::Shake256(hash) => hash.finalize_xof().read(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn hashes_have_their_names() {
        for hash in PreHash::ALL {
            assert_eq!(hash.to_string().parse(), Ok(hash));
            assert_eq!(hash.name().to_lowercase().replace(['-', '/'], "_").parse(), Ok(hash));
        }
        assert_eq!(format!("{:?}", PreHash::Sha256.hasher()), "PreHasher { .. }");
        for (name, hash) in [
            ("SHA-256", PreHash::Sha256),
            ("sha256", PreHash::Sha256),
            ("SHA-512/256", PreHash::Sha512_256),
            ("sha512-224", PreHash::Sha512_224),
            ("SHAKE128", PreHash::Shake128),
            ("sha3_512", PreHash::Sha3_512),
        ] {
            assert_eq!(name.parse(), Ok(hash), "{name}");
        }
        for name in ["", "256", "SHA", "SHA-1", "SHA3", "SHAKE", "SHA2", "SHA-3-256x", "MD5"] {
            let error = name.parse::<PreHash>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("there is no hash function '{name}'")), "{error}");
            assert!(error.contains(" for HashSLH-DSA; use one of SHA2-224, SHA2-256, "), "{error}");
            assert!(error.ends_with(", SHAKE-256"), "{error}");
        }
    }

    /// The digest by a crate of its own, for each function.
    fn by_crates(hash: PreHash, message: &[u8]) -> Vec<u8> {
        use sha2::{Sha384, Sha512_224, Sha512_256};
        use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};
        let squeeze = |mut reader: Box<dyn XofReader>, bytes| {
            let mut out = vec![0; bytes];
            reader.read(&mut out);
            out
        };
        match hash {
            PreHash::Sha224 => Sha224::digest(message).to_vec(),
            PreHash::Sha256 => Sha256::digest(message).to_vec(),
            PreHash::Sha384 => Sha384::digest(message).to_vec(),
            PreHash::Sha512 => Sha512::digest(message).to_vec(),
            PreHash::Sha512_224 => Sha512_224::digest(message).to_vec(),
            PreHash::Sha512_256 => Sha512_256::digest(message).to_vec(),
            PreHash::Sha3_224 => Sha3_224::digest(message).to_vec(),
            PreHash::Sha3_256 => Sha3_256::digest(message).to_vec(),
            PreHash::Sha3_384 => Sha3_384::digest(message).to_vec(),
            PreHash::Sha3_512 => Sha3_512::digest(message).to_vec(),
            PreHash::Shake128 => squeeze(Box::new(shake::Shake128::default().chain(message).finalize_xof()), 32),
            PreHash::Shake256 => squeeze(Box::new(Shake256::default().chain(message).finalize_xof()), 64),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "hours, and no unsafe code is in it")]
    fn digests_are_those_of_the_crates() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * i / 5) as u8).collect();
        for hash in PreHash::ALL {
            // Around all borders of blocks, and of groups of four of them.
            let borders =
                [64, 72, 104, 128, 136, 144, 168].into_iter().flat_map(|block| [1, 2, 4, 5, 8].map(|n| n * block));
            let around = borders.flat_map(|border| border - 20..border + 3);
            for length in (0..300).chain(around) {
                assert_eq!(hash.hash(&[&bytes[..length]]), by_crates(hash, &bytes[..length]), "{hash}, {length} bytes");
            }
            // Pieces of all lengths.
            let expected = by_crates(hash, &bytes);
            for piece in (1..300).chain([511, 512, 1000, 1999, 2000]) {
                let mut hasher = hash.hasher();
                bytes.chunks(piece).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish(), expected, "{hash}, pieces of {piece} bytes");
            }
            let mut hasher = hash.hasher();
            let mut rest = &bytes[..];
            for length in 0.. {
                let (piece, later) = rest.split_at(rest.len().min(length * 7 % 190));
                hasher.update(piece);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            assert_eq!(hasher.finish(), expected, "{hash}, pieces of mixed lengths");
        }
    }

    #[test]
    fn identifiers_differ_in_the_last_byte_alone() {
        let mut arcs = PreHash::ALL.map(|hash| hash.oid_der()[10]);
        arcs.sort();
        assert_eq!(arcs, core::array::from_fn(|i| i as u8 + 1));
        assert!(PreHash::ALL.iter().all(|h| h.oid_der()[..10] == PreHash::Sha256.oid_der()[..10]));
    }

    #[test]
    fn m_prime_is_the_standards() {
        let join = |mode| MPrime::new(mode, b"message").unwrap().parts().concat();
        assert_eq!(join(Mode::Internal), b"message");
        assert_eq!(join(Mode::default()), b"\0\0message");
        assert_eq!(join(Mode::Pure { context: b"ctx" }), b"\0\x03ctxmessage");
        let hashed = join(Mode::PreHash { context: b"ctx", hash: PreHash::Shake128 });
        assert_eq!(hashed[..16], *b"\x01\x03ctx\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x0b");
        assert_eq!(hashed[16..], PreHash::Shake128.hash(&[b"mess", b"age"]));
    }

    #[test]
    fn a_message_may_be_hashed_before() {
        for hash in PreHash::ALL {
            let digest = hash.hash(&[b"message"]);
            let (context, join) = (&b"ctx"[..], |m_prime: MPrime<'_>| m_prime.parts().concat());
            let hashed = Mode::Digest { context, hash };
            let whole = MPrime::new(Mode::PreHash { context, hash }, b"message").unwrap();
            assert_eq!(join(MPrime::new(hashed, &digest).unwrap()), join(whole), "{hash}");
            for wrong in [&digest[1..], b"message"] {
                assert_eq!(MPrime::new(hashed, wrong), Err(MessageError::Digest { hash, got: wrong.len() }));
            }
            #[cfg(feature = "std")]
            {
                let mut hasher = hash.hasher();
                assert_eq!(std::io::copy(&mut &b"message"[..], &mut hasher).unwrap(), 7);
                assert_eq!(hasher.finish(), digest, "{hash}");
            }
        }
    }

    #[test]
    fn a_context_is_never_lost() {
        let (hash, context) = (PreHash::Sha512, &b"ctx"[..]);
        for (mode, expected) in [
            (Mode::default(), Mode::Pure { context }),
            (Mode::Internal, Mode::Pure { context }),
            (Mode::PreHash { context: b"other", hash }, Mode::PreHash { context, hash }),
            (Mode::Digest { context: b"", hash }, Mode::Digest { context, hash }),
        ] {
            assert_eq!(mode.with_context(context), expected);
        }
    }

    #[test]
    fn a_context_of_256_bytes_is_refused() {
        assert!(MPrime::new(Mode::Pure { context: &[7; 255] }, b"").is_ok());
        let hash = PreHash::Sha256;
        for mode in [Mode::Pure { context: &[7; 256] }, Mode::PreHash { context: &[7; 256], hash }] {
            let error = MPrime::new(mode, b"").unwrap_err();
            assert_eq!(format!("{error}"), "the context has 256 bytes, at most 255 are allowed; shorten or hash it");
        }
    }

    /// HMAC and MGF1 as RFC 2104 and RFC 8017 write them, and SHAKE, of the whole M′ at once.
    #[test]
    fn pieces_of_m_prime_hash_as_the_whole() {
        fn whole<D: Digest>(p: &Params, [sk_prf, opt_rand, pk_seed, pk_root, m]: [&[u8]; 5]) -> (Vec<u8>, Vec<u8>) {
            let hash = |parts: &[&[u8]]| D::digest(parts.concat()).to_vec();
            let pad = |byte: u8| {
                let mut block = vec![byte; 2 * <D as Digest>::output_size()];
                block.iter_mut().zip(sk_prf).for_each(|(byte, key)| *byte ^= key);
                block
            };
            let r = hash(&[&pad(0x5c), &hash(&[&pad(0x36), opt_rand, m])])[..p.n].to_vec();
            let inner = hash(&[&r, pk_seed, pk_root, m]);
            let blocks: Vec<u8> = (0..4u32).flat_map(|i| hash(&[&r, pk_seed, &inner, &i.to_be_bytes()])).collect();
            (r, blocks[..p.m].to_vec())
        }
        for p in crate::known_sets() {
            let bytes = |of: u8, length: usize| (0..length).map(|i| (i * 7) as u8 ^ of).collect::<Vec<u8>>();
            let [sk_prf, opt_rand, pk_seed, pk_root] = [1, 2, 3, 4].map(|of| bytes(of, p.n));
            for length in [0, 1, 63, 64, 65, 135, 136, 137, 1000] {
                let m = bytes(5, length);
                let parts = [&sk_prf[..], &opt_rand, &pk_seed, &pk_root, &m];
                let (r, digest) = match p.family {
                    Family::Shake => {
                        let shake = |parts: &[&[u8]], length: usize| {
                            let mut out = vec![0; length];
                            Shake256::default().chain(parts.concat()).finalize_xof().read(&mut out);
                            out
                        };
                        let r = shake(&[&sk_prf, &opt_rand, &m], p.n);
                        let digest = shake(&[&r, &pk_seed, &pk_root, &m], p.m);
                        (r, digest)
                    }
                    Family::Sha2 if p.n == 16 => whole::<Sha256>(p, parts),
                    Family::Sha2 => whole::<Sha512>(p, parts),
                };
                for step in [1, 7, 64, 1001] {
                    let (mut prf, mut h) = (PrfMsg::new(p, &sk_prf, &opt_rand), HMsg::new(p, &r, &pk_seed, &pk_root));
                    for piece in m.chunks(step) {
                        prf.update(piece);
                        h.update(piece);
                    }
                    let mut made = (vec![0; p.n], vec![0; p.m]);
                    prf.finish(&mut made.0);
                    h.finish(&mut made.1);
                    assert_eq!(made, (r.clone(), digest.clone()), "{p}, {length} bytes in pieces of {step}");
                }
            }
        }
    }
}
