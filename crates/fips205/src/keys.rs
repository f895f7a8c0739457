//! Keys and signatures as bytes, bound to their parameter set.

use crate::digest::{MessageError, Mode, PreHash};
use crate::params::{Family, Params};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use subtle::{Choice, ConstantTimeEq};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// The longest n.
pub const MAX_N: usize = 32;

/// The error of bytes that are not a key or a signature of the set.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The length is not the set's.
    Length {
        /// The kind of data that was read: a private key, for example.
        what: &'static str,
        /// The set's name.
        set: &'static str,
        /// Bytes it must have.
        want: usize,
        /// Bytes it has.
        got: usize,
    },
    /// The object identifier is of no set that this build knows.
    UnknownOid {
        /// The identifier, dotted.
        oid: String,
    },
    /// The set has no object identifier, so no such file can hold its keys.
    NoOid {
        /// The set's name.
        set: &'static str,
    },
    /// The algorithm identifier has parameters (RFC 9909 wants them absent).
    Parameters {
        /// The set's name.
        set: &'static str,
    },
    /// The public key in the private key, or in its file, is not that of the seeds.
    PublicKeyMismatch {
        /// The set's name.
        set: &'static str,
    },
    /// The private key is encrypted, and what reads it was given no passphrase.
    Encrypted,
    /// The passphrase is wrong, or the encrypted data are damaged: nobody can tell which.
    Passphrase,
    /// The private key is encrypted in a way that is not read.
    Encryption {
        /// Its name, or its identifier.
        scheme: String,
    },
    /// Decrypting the private key would take too much time or memory.
    Costly {
        /// The cost that the file asks for.
        cost: String,
        /// The most that is done.
        limit: String,
    },
    /// The operating system gave no randomness to encrypt a private key with.
    Randomness,
    /// Not the encoding that was expected.
    Malformed {
        /// The encoding that was expected.
        what: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// The PEM file cannot be read.
    #[cfg(feature = "pkcs8")]
    Pem(hypergrove_pem::PemError),
    /// Nobody could compute whether PK.root of the private key belongs to the seeds.
    Unchecked {
        /// The reason.
        why: String,
    },
}

#[cfg(feature = "pkcs8")]
impl From<hypergrove_pem::PemError> for KeyError {
    fn from(error: hypergrove_pem::PemError) -> KeyError {
        KeyError::Pem(error)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Length { what, set, want, got } => {
                write!(f, "{what} of {set} has {want} bytes, this one has {got}; check the set and the file")
            }
            KeyError::UnknownOid { oid } => write!(
                f,
                "the key's algorithm {oid} is not SLH-DSA, whose sets are 2.16.840.1.101.3.4.3.20 to 31 (RFC 9909), nor \
                 HashSLH-DSA, 35 to 46; use a key made for one of them"
            ),
            KeyError::NoOid { set } => {
                write!(f, "{set} has no object identifier yet, so PKCS#8 and SPKI cannot hold its keys; use raw bytes")
            }
            KeyError::Parameters { set } => {
                write!(
                    f,
                    "the algorithm identifier of this {set} key has the field `parameters`, which RFC 9909 wants absent, even NULL; re-export it"
                )
            }
            KeyError::PublicKeyMismatch { set } => write!(
                f,
                "the public key with this {set} private key is not that of its seeds: the key is damaged, or the file has keys of two pairs"
            ),
            KeyError::Encrypted => f.write_str("this private key is encrypted; its passphrase is needed"),
            KeyError::Passphrase => f.write_str("the passphrase is wrong, or the encrypted key is damaged"),
            KeyError::Encryption { scheme } => write!(
                f,
                "this private key is encrypted with {scheme}; only PBES2 with scrypt or PBKDF2 (HMAC-SHA-2) and AES-CBC is read"
            ),
            KeyError::Costly { cost, limit } => {
                write!(f, "this encrypted private key asks for {cost}, at most {limit} is computed")
            }
            KeyError::Randomness => {
                f.write_str("the operating system gave no randomness, without which no private key is encrypted")
            }
            KeyError::Malformed { what, why } => write!(f, "this is not {what}: {why}"),
            #[cfg(feature = "pkcs8")]
            KeyError::Pem(error) => error.fmt(f),
            KeyError::Unchecked { why } => write!(f, "the private key could not be checked: {why}"),
        }
    }
}

impl core::error::Error for KeyError {}

fn check_length(what: &'static str, p: &Params, want: usize, got: usize) -> Result<(), KeyError> {
    if want == got { Ok(()) } else { Err(KeyError::Length { what, set: p.name, want, got }) }
}

/// n bytes at the start of room for the longest n.
fn widen(bytes: &[u8]) -> [u8; MAX_N] {
    let mut out = [0; MAX_N];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

impl Params {
    /// The hash function of the set's HashSLH-DSA keys (RFC 9909).
    pub fn prehash_of_keys(&self) -> PreHash {
        match (self.family, self.n) {
            (Family::Sha2, ..=16) => PreHash::Sha256,
            (Family::Sha2, _) => PreHash::Sha512,
            (Family::Shake, ..=16) => PreHash::Shake128,
            (Family::Shake, _) => PreHash::Shake256,
        }
    }
}

/// A public key: PK.seed and PK.root.
///
/// A key of HashSLH-DSA (RFC 9909) has an object identifier of its own and implies a hash function: it is for pre-hash
/// mode with that function and for no other mode.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifyingKey {
    params: &'static Params,
    is_hash: bool,
    pk_seed: [u8; MAX_N],
    pk_root: [u8; MAX_N],
}

impl VerifyingKey {
    /// Reads PK.seed ‖ PK.root, 2n bytes.
    pub fn from_bytes(params: &'static Params, bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        check_length("a public key", params, params.pk_bytes(), bytes.len())?;
        let (pk_seed, pk_root) = bytes.split_at(params.n);
        Ok(VerifyingKey { params, is_hash: false, pk_seed: widen(pk_seed), pk_root: widen(pk_root) })
    }
    /// The bytes PK.seed ‖ PK.root, 2n of them.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.pk_seed(), self.pk_root()].concat()
    }
    /// The parameter set.
    pub fn params(&self) -> &'static Params {
        self.params
    }
    /// Turns the key into a key of HashSLH-DSA.
    #[must_use]
    pub fn into_hash_slh_dsa(self) -> VerifyingKey {
        VerifyingKey { is_hash: true, ..self }
    }
    /// The hash function of a key of HashSLH-DSA; `None` for other keys.
    pub fn prehash(&self) -> Option<PreHash> {
        self.is_hash.then(|| self.params.prehash_of_keys())
    }
    /// The mode that the key implies, with this context: pre-hash for a key of HashSLH-DSA, pure for others.
    pub fn mode<'a>(&self, context: &'a [u8]) -> Mode<'a> {
        match self.prehash() {
            Some(hash) => Mode::PreHash { context, hash },
            None => Mode::Pure { context },
        }
    }
    /// Checks that the key is for this mode. A key that is not of HashSLH-DSA is for all modes.
    pub fn check_mode(&self, mode: Mode<'_>) -> Result<(), MessageError> {
        match (self.prehash(), mode) {
            (None, _) => Ok(()),
            (Some(own), Mode::PreHash { hash, .. } | Mode::Digest { hash, .. }) if own == hash => Ok(()),
            (Some(hash), _) => Err(MessageError::KeyHash { hash }),
        }
    }
    /// PK.seed, n bytes.
    pub fn pk_seed(&self) -> &[u8] {
        &self.pk_seed[..self.params.n]
    }
    /// PK.root, n bytes.
    pub fn pk_root(&self) -> &[u8] {
        &self.pk_root[..self.params.n]
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("VerifyingKey");
        shown.field("set", &self.params.name);
        if let Some(hash) = self.prehash() {
            shown.field("hash", &hash);
        }
        shown.field("pk_seed", &Hex(self.pk_seed())).field("pk_root", &Hex(self.pk_root())).finish()
    }
}

/// A private key: SK.seed, SK.prf and the public key. Its secrets are wiped on drop and compared in constant time. `Debug` does not
/// show them.
#[derive(Clone)]
pub struct SigningKey {
    /// SK.seed ‖ SK.prf. In a box, which stays where it is when the key is moved: a move leaves its source as it was.
    secret: Zeroizing<Box<[u8]>>,
    public: VerifyingKey,
}

impl SigningKey {
    /// Reads SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, 4n bytes. This does not compute PK.root again.
    pub fn from_bytes(params: &'static Params, bytes: &[u8]) -> Result<SigningKey, KeyError> {
        check_length("a private key", params, params.sk_bytes(), bytes.len())?;
        let (secret, public) = bytes.split_at(2 * params.n);
        let public = VerifyingKey::from_bytes(params, public)?;
        Ok(SigningKey { secret: Zeroizing::new(Box::from(secret)), public })
    }
    /// Makes a key from its four parts, n bytes each.
    pub fn from_parts(
        params: &'static Params,
        sk_seed: &[u8],
        sk_prf: &[u8],
        pk_seed: &[u8],
        pk_root: &[u8],
    ) -> Result<SigningKey, KeyError> {
        for (what, part) in [("SK.seed", sk_seed), ("SK.prf", sk_prf), ("PK.seed", pk_seed), ("PK.root", pk_root)] {
            check_length(what, params, params.n, part.len())?;
        }
        let public = VerifyingKey { params, is_hash: false, pk_seed: widen(pk_seed), pk_root: widen(pk_root) };
        Ok(SigningKey { secret: Zeroizing::new([sk_seed, sk_prf].concat().into_boxed_slice()), public })
    }
    /// The bytes SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, 4n of them. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([self.sk_seed(), self.sk_prf(), self.pk_seed(), self.pk_root()].concat())
    }
    /// The parameter set.
    pub fn params(&self) -> &'static Params {
        self.public.params
    }
    /// SK.seed, n bytes. Secret.
    pub fn sk_seed(&self) -> &[u8] {
        &self.secret[..self.params().n]
    }
    /// SK.prf, n bytes. Secret.
    pub fn sk_prf(&self) -> &[u8] {
        &self.secret[self.params().n..]
    }
    /// PK.seed, n bytes.
    pub fn pk_seed(&self) -> &[u8] {
        self.public.pk_seed()
    }
    /// PK.root, n bytes.
    pub fn pk_root(&self) -> &[u8] {
        self.public.pk_root()
    }
    /// The public key.
    pub fn verifying_key(&self) -> VerifyingKey {
        self.public.clone()
    }
    /// Turns the key into a key of HashSLH-DSA.
    #[must_use]
    pub fn into_hash_slh_dsa(mut self) -> SigningKey {
        self.public.is_hash = true;
        self
    }
    /// The hash function of a key of HashSLH-DSA; `None` for other keys.
    pub fn prehash(&self) -> Option<PreHash> {
        self.public.prehash()
    }
    /// The mode that the key implies, with this context: pre-hash for a key of HashSLH-DSA, pure for others.
    pub fn mode<'a>(&self, context: &'a [u8]) -> Mode<'a> {
        self.public.mode(context)
    }
    /// Whether the key is for this mode; see [`VerifyingKey::check_mode`].
    pub fn check_mode(&self, mode: Mode<'_>) -> Result<(), MessageError> {
        self.public.check_mode(mode)
    }
}

impl ConstantTimeEq for SigningKey {
    fn ct_eq(&self, other: &SigningKey) -> Choice {
        let public = Choice::from(u8::from(self.public == other.public));
        public & self.secret.ct_eq(&other.secret)
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &SigningKey) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for SigningKey {}

impl ZeroizeOnDrop for SigningKey {}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// A signature: R ‖ SIG_FORS ‖ SIG_HT. Where its parts lie: [`Params::r_range`] and its neighbours.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    params: &'static Params,
    bytes: Vec<u8>,
}

impl Signature {
    /// Makes a signature of a set from bytes. This checks only their number.
    pub fn from_bytes(params: &'static Params, bytes: impl Into<Vec<u8>>) -> Result<Signature, KeyError> {
        let bytes = bytes.into();
        check_length("a signature", params, params.sig_bytes(), bytes.len())?;
        Ok(Signature { params, bytes })
    }
    /// The parameter set.
    pub fn params(&self) -> &'static Params {
        self.params
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl AsRef<[u8]> for Signature {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = Hex(&self.bytes[self.params.r_range()]);
        f.debug_struct("Signature").field("set", &self.params.name).field("r", &r).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::*;
    use alloc::format;
    use alloc::vec;

    fn key(p: &'static Params) -> SigningKey {
        let bytes: Vec<u8> = (0..p.sk_bytes()).map(|i| i as u8 + 1).collect();
        SigningKey::from_bytes(p, &bytes).unwrap()
    }

    #[test]
    fn a_signature_shows_its_set_and_r() {
        let signature = Signature::from_bytes(&SLH_DSA_SHA2_128S, vec![0xab; 7856]).unwrap();
        assert_eq!(signature.as_ref(), [0xab; 7856]);
        assert_eq!(
            format!("{signature:?}"),
            "Signature { set: \"SLH-DSA-SHA2-128s\", r: abababababababababababababababab, .. }"
        );
    }

    #[test]
    fn bytes_and_parts_come_back() {
        for p in known_sets() {
            let (key, n) = (key(p), p.n);
            let bytes = key.to_bytes();
            assert_eq!(bytes[..], (1..=4 * n as u8).collect::<Vec<u8>>()[..]);
            assert_eq!(key.sk_prf(), &bytes[n..2 * n]);
            let parts = bytes.chunks(n).collect::<Vec<_>>();
            assert_eq!(SigningKey::from_parts(p, parts[0], parts[1], parts[2], parts[3]).unwrap(), key);
            let public = key.verifying_key();
            assert_eq!(public.to_bytes(), bytes[2 * n..]);
            assert_eq!(VerifyingKey::from_bytes(p, &public.to_bytes()).unwrap(), public);
        }
    }

    #[test]
    fn every_part_decides_equality() {
        let p = &SLH_DSA_SHAKE_192F;
        let bytes = key(p).to_bytes();
        for i in 0..bytes.len() {
            let mut other = bytes.clone();
            other[i] ^= 0x80;
            assert_ne!(SigningKey::from_bytes(p, &other).unwrap(), key(p), "byte {i}");
        }
        assert_ne!(key(&SLH_DSA_SHA2_192F), key(p));
    }

    #[test]
    fn wrong_lengths_are_named() {
        let p = &SLH_DSA_SHA2_128S;
        let error = SigningKey::from_bytes(p, &[0; 63]).unwrap_err();
        assert_eq!(error, KeyError::Length { what: "a private key", set: p.name, want: 64, got: 63 });
        assert!(format!("{error}").starts_with("a private key of SLH-DSA-SHA2-128s has 64 bytes, this one has 63"));
        assert!(VerifyingKey::from_bytes(p, &[0; 33]).is_err());
        assert!(Signature::from_bytes(p, vec![0; 7857]).is_err());
        assert!(SigningKey::from_parts(p, &[0; 16], &[0; 16], &[0; 17], &[0; 16]).is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", key(&SLH_DSA_SHA2_128S));
        assert!(shown.contains("2122232425") && !shown.contains("0102") && !shown.contains("1112"), "{shown}");
    }
}
