//! Keys and signatures: as bytes, and expanded for use.

use crate::digest::state_after_tr;
use crate::field::Fe;
use crate::ntt::{ntt, ntt_in_place};
use crate::pack::{fes_are_canonical, unpack_codes, unpack_eta_to, unpack_fes};
use crate::params::*;
use crate::poseidon::State;
use crate::reference::t_packed;
use crate::ring::{Matrix, NttElement, RingElement, intt_each, norm};
use crate::sample::{expand_a, h};
use crate::trace::Trace;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::{array, fmt};
use hypergrove_taint::declassified;
use subtle::{Choice, ConstantTimeEq};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// The error of bytes that are not a key or a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The length is wrong.
    Length {
        /// The kind of data that was read: a private key, for example.
        what: &'static str,
        /// Bytes it must have.
        want: usize,
        /// Bytes it has.
        got: usize,
    },
    /// A coefficient of the private key's s₁ or s₂ is not in \[−2, 2\].
    OutOfRange,
    /// The private key's t or tr is not that of its secrets.
    PublicKeyMismatch,
    /// Not the encoding that was expected.
    Malformed {
        /// The encoding that was expected.
        what: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// The PEM file cannot be read.
    #[cfg(feature = "pem")]
    Pem(hypergrove_pem::PemError),
}

#[cfg(feature = "pem")]
impl From<hypergrove_pem::PemError> for KeyError {
    fn from(error: hypergrove_pem::PemError) -> KeyError {
        KeyError::Pem(error)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Length { what, want, got } => {
                write!(f, "{what} of {NAME} has {want} bytes, this one has {got}; check the scheme and the file")
            }
            KeyError::OutOfRange => write!(
                f,
                "s1 or s2 of this zkDilithium private key has a coefficient outside -2 to 2, which no key generation \
                 makes; the file is damaged"
            ),
            KeyError::PublicKeyMismatch => write!(
                f,
                "the public key in this zkDilithium private key is not that of its secrets; the file is damaged"
            ),
            KeyError::Malformed { what, why } => write!(f, "this is not {what}: {why}"),
            #[cfg(feature = "pem")]
            KeyError::Pem(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for KeyError {}

fn check_length(what: &'static str, want: usize, got: usize) -> Result<(), KeyError> {
    if want == got { Ok(()) } else { Err(KeyError::Length { what, want, got }) }
}

fn hash_bytes(bytes: &[u8]) -> &[u8; HASH_BYTES] {
    bytes.try_into().expect("a range of 32 bytes")
}

/// A public key: ρ ‖ t.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifyingKey {
    bytes: Vec<u8>,
}

impl VerifyingKey {
    /// Reads a key from its 3,104 bytes. Elements of t need not be below Q.
    pub fn from_bytes(bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        check_length("a public key", PK_BYTES, bytes.len())?;
        Ok(VerifyingKey { bytes: bytes.to_vec() })
    }
    /// The bytes ρ ‖ t, 3,104 of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// ρ: what A is expanded from.
    pub fn rho(&self) -> &[u8; HASH_BYTES] {
        hash_bytes(&self.bytes[..HASH_BYTES])
    }
    /// t, in fe24.
    pub fn t_bytes(&self) -> &[u8] {
        &self.bytes[HASH_BYTES..]
    }
    /// tr: the hash of the key's bytes as they are.
    pub fn tr(&self) -> [u8; HASH_BYTES] {
        h(&[&self.bytes])
    }
    /// Whether the elements of t are below Q.
    pub fn is_canonical(&self) -> bool {
        fes_are_canonical(self.t_bytes())
    }
    /// Computes the values that verifying needs.
    pub fn expand(&self) -> ExpandedVerifyingKey {
        let mut fes = unpack_fes(self.t_bytes());
        let t_hat: [NttElement; K] =
            array::from_fn(|_| ntt(&RingElement(array::from_fn(|_| fes.next().expect("1,024 elements")))));
        let tr = self.tr();
        ExpandedVerifyingKey {
            a_hat: Box::new(expand_a(self.rho())),
            t_hat: Box::new(t_hat),
            state_after_tr: state_after_tr(&tr, &mut Trace::default()),
            tr,
            canonical: self.is_canonical(),
        }
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Implements `Debug` so that it shows these public bytes of a key or signature, and nothing else.
macro_rules! debug_shows {
    ($($name:ident: $part:literal, |$of:ident| $bytes:expr;)+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $of = self;
                f.debug_struct(stringify!($name)).field($part, &Hex($bytes)).finish_non_exhaustive()
            }
        }
    )+};
}

debug_shows! {
    VerifyingKey: "rho", |key| key.rho();
    SigningKey: "rho", |key| key.rho();
    Signature: "c_tilde", |signature| &signature.bytes[..C_TILDE_BYTES];
    ExpandedSigningKey: "tr", |key| &key.tr;
    ExpandedVerifyingKey: "tr", |key| &key.tr;
}

/// The bytes of a private key: ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t.
pub type SigningKeyBytes = [u8; SK_BYTES];

/// A private key: ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t. It is wiped on drop and compared in constant time. `Debug` shows only ρ.
#[derive(Clone)]
pub struct SigningKey {
    /// Its bytes. In words, for what wipes and compares goes element by element.
    words: Zeroizing<Box<[u64]>>,
}

/// Where the parts of a private key lie.
const RHO: Range<usize> = 0..HASH_BYTES;
const KEY: Range<usize> = RHO.end..RHO.end + HASH_BYTES;
const TR: Range<usize> = KEY.end..KEY.end + HASH_BYTES;
const S1: Range<usize> = TR.end..TR.end + L * ETA_BYTES;
const S2: Range<usize> = S1.end..S1.end + K * ETA_BYTES;
const T_PACKED: Range<usize> = S2.end..SK_BYTES;

/// ρ and t, which the public key is, of a private key's bytes.
pub fn public_parts(private: &[u8]) -> [&[u8]; 2] {
    [&private[RHO], &private[T_PACKED]]
}

impl SigningKey {
    /// Reads a key from its 3,936 bytes. As in every implementation, this accepts the codes 5 to 7 of s₁ and s₂ and any tr: see
    /// [`SigningKey::check`].
    pub fn from_bytes(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        check_length("a private key", SK_BYTES, bytes.len())?;
        let mut key = SigningKey::zeros();
        key.secret_bytes_mut().copy_from_slice(bytes);
        Ok(key)
    }
    /// Memory for a key. Before its [bytes](SigningKey::secret_bytes_mut) are written, [`SigningKey::check`] refuses it.
    pub fn zeros() -> SigningKey {
        SigningKey { words: Zeroizing::new(vec![0; SK_BYTES / 8].into_boxed_slice()) }
    }
    /// Checks that key generation can have made the key: s₁ and s₂ are in their ranges, and t and tr belong to ρ, s₁ and s₂.
    pub fn check(&self) -> Result<(), KeyError> {
        let (s1, s2) = (self.s1(), self.s2());
        // The error of a damaged key is public, and so is that a key is sound.
        if declassified(s1.iter().chain(s2.iter()).fold(0, |norm, s| s.norm().max(norm)) > ETA) {
            return Err(KeyError::OutOfRange);
        }
        let t = t_packed(&expand_a(self.rho()), &s1, &s2);
        let same = t.ct_eq(&self.secret_bytes()[T_PACKED]).unwrap_u8() == 1;
        if declassified(same) && self.verifying_key().tr() == *self.tr() {
            Ok(())
        } else {
            Err(KeyError::PublicKeyMismatch)
        }
    }
    /// The bytes ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, 3,936 of them. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.secret_bytes().to_vec())
    }
    /// The bytes, without a copy. Secret.
    pub fn secret_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
    /// The bytes, for writing.
    pub fn secret_bytes_mut(&mut self) -> &mut SigningKeyBytes {
        bytemuck::cast_slice_mut(&mut self.words).try_into().expect("a key's bytes")
    }
    /// ρ.
    pub fn rho(&self) -> &[u8; HASH_BYTES] {
        hash_bytes(&self.secret_bytes()[RHO])
    }
    /// `key`, from which the masks are derived. Secret.
    pub fn key(&self) -> &[u8; HASH_BYTES] {
        hash_bytes(&self.secret_bytes()[KEY])
    }
    /// tr: the hash of the public key.
    pub fn tr(&self) -> &[u8; HASH_BYTES] {
        hash_bytes(&self.secret_bytes()[TR])
    }
    /// s₁. Secret.
    pub fn s1(&self) -> Box<Zeroizing<[RingElement; L]>> {
        unpack_each(&self.secret_bytes()[S1])
    }
    /// s₂. Secret.
    pub fn s2(&self) -> Box<Zeroizing<[RingElement; K]>> {
        unpack_each(&self.secret_bytes()[S2])
    }
    /// The public key: ρ ‖ t.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey { bytes: public_parts(self.secret_bytes()).concat() }
    }
    /// Computes the values that signing needs.
    pub fn expand(&self) -> ExpandedSigningKey {
        ExpandedSigningKey {
            a_hat: Box::new(expand_a(self.rho())),
            s1_hat: transform_each(&self.s1()),
            s2_hat: transform_each(&self.s2()),
            key: Zeroizing::new(Box::from(&self.secret_bytes()[KEY])),
            tr: *self.tr(),
            state_after_tr: state_after_tr(self.tr(), &mut Trace::default()),
        }
    }
}

/// Secret polynomials of eta3, where they stay: a move would leave copies of them.
fn unpack_each<const COUNT: usize>(packed: &[u8]) -> Box<Zeroizing<[RingElement; COUNT]>> {
    let mut s = Box::new(Zeroizing::new([const { RingElement::ZERO }; COUNT]));
    s.iter_mut().zip(packed.chunks_exact(ETA_BYTES)).for_each(|(s, packed)| unpack_eta_to(packed, s));
    s
}

/// Their transforms, likewise.
pub(crate) fn transform_each<const COUNT: usize>(s: &[RingElement; COUNT]) -> Box<Zeroizing<[NttElement; COUNT]>> {
    let mut transformed = Box::new(Zeroizing::new([const { NttElement([Fe::ZERO; N]) }; COUNT]));
    for (out, s) in transformed.iter_mut().zip(s) {
        out.0.copy_from_slice(&s.0);
        ntt_in_place(&mut out.0);
    }
    transformed
}

impl ConstantTimeEq for SigningKey {
    fn ct_eq(&self, other: &SigningKey) -> Choice {
        self.words.ct_eq(&other.words)
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &SigningKey) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for SigningKey {}

impl ZeroizeOnDrop for SigningKey {}

/// A signature: c̃ ‖ z.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    bytes: Vec<u8>,
}

/// The bytes of a signature.
pub type SignatureBytes = [u8; SIG_BYTES];

impl Signature {
    /// Memory for a signature, whose [bytes](Signature::bytes_mut) the caller writes.
    pub fn zeros() -> Signature {
        Signature { bytes: vec![0; SIG_BYTES] }
    }
    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut SignatureBytes {
        (&mut self.bytes[..]).try_into().expect("a signature's bytes")
    }
    /// Makes a signature from bytes. This checks only their number.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Signature, KeyError> {
        let bytes = bytes.into();
        check_length("a signature", SIG_BYTES, bytes.len())?;
        Ok(Signature { bytes })
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

impl TryFrom<&[u8]> for Signature {
    type Error = KeyError;
    fn try_from(bytes: &[u8]) -> Result<Signature, KeyError> {
        Signature::from_bytes(bytes)
    }
}

impl From<Signature> for Vec<u8> {
    fn from(signature: Signature) -> Vec<u8> {
        signature.bytes
    }
}

#[cfg(feature = "signature")]
impl signature::SignatureEncoding for Signature {
    type Repr = Vec<u8>;
    fn encoded_len(&self) -> usize {
        SIG_BYTES
    }
}

/// A private key with the values that do not depend on the message: Â, the transforms of s₁ and s₂, and Poseidon's state after tr. It
/// has 25 KiB and is wiped on drop.
#[derive(Clone)]
pub struct ExpandedSigningKey {
    pub(crate) a_hat: Box<Matrix>,
    pub(crate) s1_hat: Box<Zeroizing<[NttElement; L]>>,
    pub(crate) s2_hat: Box<Zeroizing<[NttElement; K]>>,
    key: Zeroizing<Box<[u8]>>,
    pub(crate) tr: [u8; HASH_BYTES],
    pub(crate) state_after_tr: State,
}

impl ExpandedSigningKey {
    /// Â: A transformed.
    pub fn a_hat(&self) -> &Matrix {
        &self.a_hat
    }
    /// The transform of s₁. Secret.
    pub fn s1_hat(&self) -> &[NttElement; L] {
        &self.s1_hat
    }
    /// The transform of s₂. Secret.
    pub fn s2_hat(&self) -> &[NttElement; K] {
        &self.s2_hat
    }
    /// `key`, from which the masks are derived. Secret.
    pub fn key(&self) -> &[u8; HASH_BYTES] {
        hash_bytes(&self.key)
    }
    /// tr: the hash of the public key.
    pub fn tr(&self) -> &[u8; HASH_BYTES] {
        &self.tr
    }
    /// Poseidon's state after 0 ‖ tr.
    pub fn state_after_tr(&self) -> &State {
        &self.state_after_tr
    }
}

impl ZeroizeOnDrop for ExpandedSigningKey {}

/// A public key with the values that do not depend on the signature: Â, the transform of t, tr, and Poseidon's state after tr. It has
/// 21 KiB.
#[derive(Clone)]
pub struct ExpandedVerifyingKey {
    pub(crate) a_hat: Box<Matrix>,
    pub(crate) t_hat: Box<[NttElement; K]>,
    pub(crate) tr: [u8; HASH_BYTES],
    pub(crate) state_after_tr: State,
    pub(crate) canonical: bool,
}

impl ExpandedVerifyingKey {
    /// Â: A transformed.
    pub fn a_hat(&self) -> &Matrix {
        &self.a_hat
    }
    /// A by coefficients, as a circuit takes it.
    pub fn a(&self) -> [[RingElement; L]; K] {
        array::from_fn(|i| intt_each(&self.a_hat[i]))
    }
    /// The transform of t.
    pub fn t_hat(&self) -> &[NttElement; K] {
        &self.t_hat
    }
    /// t by coefficients.
    pub fn t(&self) -> [RingElement; K] {
        intt_each(&self.t_hat)
    }
    /// tr: the hash of the public key.
    pub fn tr(&self) -> &[u8; HASH_BYTES] {
        &self.tr
    }
    /// Poseidon's state after 0 ‖ tr: where a circuit's hash of the message starts.
    pub fn state_after_tr(&self) -> &State {
        &self.state_after_tr
    }
    /// Whether the elements of t in the key's bytes and of c̃ in the signature's bytes are below Q. Strict verification checks this
    /// first.
    pub fn is_canonical_with(&self, signature: &[u8]) -> bool {
        self.canonical && fes_are_canonical(signature.get(..C_TILDE_BYTES).unwrap_or_default())
    }
}

/// c̃ and z of a signature's bytes.
#[derive(Clone)]
pub struct DecodedSignature {
    /// c̃, reduced.
    pub c_tilde: [Fe; CSIZE],
    /// z by its coefficients.
    pub z: [[i32; N]; L],
}

impl DecodedSignature {
    /// Reads a signature; `None` if its length is wrong or z is too long.
    pub fn new(signature: &[u8]) -> Option<DecodedSignature> {
        if signature.len() != SIG_BYTES {
            return None;
        }
        let (c_tilde, z) = signature.split_at(C_TILDE_BYTES);
        let mut c_tilde = unpack_fes(c_tilde);
        let c_tilde = array::from_fn(|_| c_tilde.next().expect("12 elements"));
        let mut opened = DecodedSignature { c_tilde, z: [[0; N]; L] };
        unpack_codes::<18>(z, |code| GAMMA1 as i32 - code as i32, opened.z.as_flattened_mut());
        let norm = norm(opened.z.as_flattened().iter().copied());
        (norm < GAMMA1 - BETA).then_some(opened)
    }
    /// z.
    pub fn z(&self) -> [RingElement; L] {
        self.z.map(|z| RingElement(z.map(Fe::from_centred)))
    }
}
