//! zkDilithium: lattice signatures whose verification is cheap to prove in a STARK.
//!
//! Everything is deterministic: a key pair comes from a seed of 32 bytes, and a message has one signature. In columns and in raw files, private keys
//! are ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, and public keys are ρ ‖ t.
//!
//! ```
//! use hypergrove::Engine;
//! use hypergrove::signature::{Signer, Verifier};
//! use hypergrove::zkdilithium::{Message, SignJob, SigningKey, VerifyingKey};
//!
//! let key = SigningKey::generate()?;
//! let signature = key.sign(b"Dear reader");
//! let public = VerifyingKey::from_pem(key.verifying_key().to_pem())?;
//! public.verify(b"Dear reader", &signature)?;
//!
//! // Many at a time: on all threads, or on the devices that `Engine::builder` names.
//! let messages = ["one", "two", "three"];
//! let jobs = messages.map(|text| SignJob::new(&key, text.as_bytes()));
//! let signatures = Engine::new()?.sign_batch_to_vec(jobs)?;
//! let second = signatures[1].as_ref().map_err(Clone::clone)?;
//! assert!(public.is_valid(Message::Bytes(b"two"), second.as_bytes()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use hypergrove_zkdilithium::witness::Witness;
pub use hypergrove_zkdilithium::{
    ExpandedSigningKey, ExpandedVerifyingKey, Fe, KeyError, Message, Op, PRIVATE_LABEL, PUBLIC_LABEL, Signature,
    is_pem_of_zkdilithium, params,
};

mod limits;
mod rows;
mod scheme;

pub use limits::{poseidon_rate, space};
pub use rows::{RowCall, RowMessages, RowVerifyingKeys, SignRows, VerifyRows};

use crate::random::random;
use crate::{Error, Isa};
use hypergrove_cpu::zk::{Sign, Verify, ZkDilithium as Lanes};
use hypergrove_engine::wiped;
use hypergrove_taint::declassified;
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{SigningKey as RawSigningKey, VerifyingKey as RawVerifyingKey};
use signature::{Signer, Verifier};
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// The lanes that compute single operations, on the calling thread and with the instruction set that is fastest here. Most of these operations
/// have no error for a CPU that fails its self-test: they panic.
fn on_this_thread() -> &'static Lanes {
    static LANES: OnceLock<Lanes> = OnceLock::new();
    LANES.get_or_init(|| {
        let lanes = Lanes::with(Isa::fastest()).expect("the fastest instruction set is one that the CPU has");
        self_test(&lanes).unwrap_or_else(|why| panic!("{why}"));
        lanes.alone()
    })
}

/// Compares the results of the CPU's lanes with known answers.
fn self_test(lanes: &Lanes) -> Result<(), Error> {
    hypergrove_engine::test_known_answers(
        "cpu:0",
        |seed| Ok(only(lanes.keygen(&[*seed]))),
        |key, message| Ok(only(lanes.sign(&[Sign { key: &key.expand(), message }]))),
        |key, message, signature| Ok(only(lanes.verify(&[Verify { key: &key.expand(), message, signature }]))),
    )
}

/// The result of a batch of one.
fn only<R>(results: Vec<R>) -> R {
    results.into_iter().next().expect("one result a job")
}

/// A private key. At the first use, the key is checked, and the values that signing needs are computed, once for all its clones. Its
/// secrets are wiped on drop and compared in constant time. `Debug` does not show them.
#[derive(Clone)]
pub struct SigningKey {
    key: RawSigningKey,
    ready: Arc<SigningState>,
}

/// The values that the first signature computes from a private key.
#[derive(Default)]
struct SigningState {
    /// A checksum of the key's bytes, or why the key does not sign. With a wrong ρ, masks that the right key also uses would meet other
    /// challenges, which reveals s₁.
    checked: OnceLock<Result<Zeroizing<u64>, KeyError>>,
    // The values are boxed, because of millions of keys few sign: until then a key holds only a pointer.
    expanded: OnceLock<Box<Expanded>>,
}

struct Expanded {
    key: ExpandedSigningKey,
    checksum: Zeroizing<u64>,
}

impl Expanded {
    fn checksum(key: &ExpandedSigningKey) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut add = |fes: &[Fe]| {
            let word = |pair: &[Fe]| pair.iter().fold(0, |word, fe| word << 32 | u64::from(fe.value()));
            fes.chunks(2).for_each(|pair| hasher.write_u64(word(pair)));
        };
        let polynomials = key.a_hat().as_flattened().iter().chain(key.s1_hat()).chain(key.s2_hat());
        polynomials.for_each(|polynomial| add(&polynomial.0));
        add(key.state_after_tr());
        [key.key(), key.tr()].iter().for_each(|part| hasher.write(*part));
        hasher.finish()
    }
}

impl SigningKey {
    /// Makes a key from the operating system's randomness.
    pub fn generate() -> Result<SigningKey, Error> {
        let seed = SigningKey::random_seed()?;
        Ok(SigningKey::from_seed(&seed))
    }
    /// Draws a seed from the operating system's randomness.
    pub fn random_seed() -> Result<Box<Zeroizing<[u8; SEED_BYTES]>>, Error> {
        let mut seed = Box::new(Zeroizing::new([0; SEED_BYTES]));
        random(&mut seed[..])?;
        Ok(seed)
    }
    /// Makes the key of a seed, which must be secret and uniformly random.
    pub fn from_seed(seed: &[u8; SEED_BYTES]) -> SigningKey {
        only(on_this_thread().keygen(std::slice::from_ref(seed))).into()
    }
    /// Reads a key from its 3,936 bytes, and [checks](SigningKey::check) it, as everything does that reads a private key. This takes about as long
    /// as making the key.
    pub fn from_bytes(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        let key = SigningKey::from_bytes_unchecked(bytes)?;
        key.check().map(|()| key)
    }
    /// Reads a key that was checked before from its 3,936 bytes: a program's own store may hold many. They are checked when the key signs for the
    /// first time.
    pub fn from_bytes_unchecked(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        wiped(|| RawSigningKey::from_bytes(bytes)).map(SigningKey::from)
    }
    /// The bytes ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, 3,936 of them. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        wiped(|| self.key.to_bytes())
    }
    /// Reads a private key in PEM, and checks it.
    pub fn read_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
        wiped(|| RawSigningKey::read_pem(pem)).map(SigningKey::from)
    }
    /// Another name of [`read_pem`](SigningKey::read_pem), which also takes text.
    pub fn from_pem(pem: impl AsRef<[u8]>) -> Result<SigningKey, KeyError> {
        SigningKey::read_pem(pem.as_ref())
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> Zeroizing<String> {
        wiped(|| self.key.to_pem())
    }
    /// Checks that the secrets are in their ranges and belong to the public key. The error says what is wrong.
    pub fn check(&self) -> Result<(), KeyError> {
        wiped(|| self.key.check())
    }
    /// The public key.
    pub fn verifying_key(&self) -> VerifyingKey {
        self.key.verifying_key().into()
    }
    /// The values that signing needs. The error is [`Error::KeyDamaged`] if the key does not pass [`SigningKey::check`], which runs
    /// once, or if the key or these values have changed in memory since.
    pub fn expanded(&self) -> Result<&ExpandedSigningKey, Error> {
        wiped(|| {
            let made = self.ready.expanded.get_or_init(|| {
                let key = self.key.expand();
                let checksum = Zeroizing::new(Expanded::checksum(&key));
                Box::new(Expanded { key, checksum })
            });
            // The check comes after the expansion, so that it covers the bytes that were expanded.
            self.check_again()?;
            // The result is public: the jobs of a damaged key fail.
            let unchanged = declassified(Expanded::checksum(&made.key) == *made.checksum);
            unchanged.then_some(&made.key).ok_or_else(|| Error::changed(params::NAME))
        })
    }
    /// Returns the values of [`SigningKey::expanded`] without a check: the caller has just had them checked.
    fn made(&self) -> &ExpandedSigningKey {
        &self.ready.expanded.get().expect("the key was expanded").key
    }
    /// Checks the key before a batch: whether it is damaged, and whether its bytes have changed since the first check.
    fn check_again(&self) -> Result<(), Error> {
        let checksum = || {
            let mut hasher = DefaultHasher::new();
            hasher.write(self.key.secret_bytes());
            Zeroizing::new(hasher.finish())
        };
        match self.ready.checked.get_or_init(|| self.check().map(|()| checksum())) {
            // The result is public: the jobs of a damaged key fail.
            Ok(first) if declassified(*first == checksum()) => Ok(()),
            Ok(_) => Err(Error::changed(params::NAME)),
            Err(why) => Err(Error::KeyDamaged { what: why.to_string() }),
        }
    }
    /// Signs bytes, a block of field elements, or μ, on the calling thread. The error is [`Error::KeyDamaged`] for a damaged key.
    pub fn sign_message(&self, message: Message<'_>) -> Result<Signature, Error> {
        Ok(only(on_this_thread().sign(&[Sign { key: self.expanded()?, message }])))
    }
}

/// This does not check the key: see [`SigningKey::from_bytes_unchecked`].
impl From<RawSigningKey> for SigningKey {
    fn from(key: RawSigningKey) -> SigningKey {
        SigningKey { key, ready: Arc::default() }
    }
}

wraps_key!(SigningKey, RawSigningKey);
signs!();

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Signer<Signature> for SigningKey {
    fn try_sign(&self, message: &[u8]) -> Result<Signature, signature::Error> {
        self.sign_message(Message::Bytes(message)).map_err(signature::Error::from_source)
    }
}

/// A public key. The values that verifying needs are computed once, at the first use, and shared by its clones.
#[derive(Clone)]
pub struct VerifyingKey {
    key: RawVerifyingKey,
    expanded: Arc<OnceLock<ExpandedVerifyingKey>>,
}

impl VerifyingKey {
    /// The fingerprint, by which people and programs recognise the key.
    pub fn fingerprint(&self) -> crate::Fingerprint {
        crate::Fingerprint::of_raw(params::NAME, self.as_bytes())
    }
    /// Reads a key from its 3,104 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<VerifyingKey, KeyError> {
        RawVerifyingKey::from_bytes(bytes).map(VerifyingKey::from)
    }
    /// The bytes ρ ‖ t, 3,104 of them.
    pub fn as_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }
    /// Reads a public key in PEM.
    pub fn read_pem(pem: &[u8]) -> Result<VerifyingKey, KeyError> {
        RawVerifyingKey::read_pem(pem).map(VerifyingKey::from)
    }
    /// Another name of [`read_pem`](VerifyingKey::read_pem), which also takes text.
    pub fn from_pem(pem: impl AsRef<[u8]>) -> Result<VerifyingKey, KeyError> {
        VerifyingKey::read_pem(pem.as_ref())
    }
    /// The key in PEM.
    pub fn to_pem(&self) -> String {
        self.key.to_pem()
    }
    /// The values that verifying needs. A circuit takes the same values.
    pub fn expanded(&self) -> &ExpandedVerifyingKey {
        self.expanded.get_or_init(|| self.key.expand())
    }
    /// Verifies a signature: `true` if the key signed the message. A signature of the wrong length is not valid. As in all implementations,
    /// field elements need not be reduced, so others can change the bytes of a valid signature without making it invalid.
    pub fn is_valid(&self, message: Message<'_>, signature: &[u8]) -> bool {
        only(on_this_thread().verify(&[Verify { key: self.expanded(), message, signature }]))
    }
    /// Verifies as [`VerifyingKey::is_valid`] does, but returns `false` for a key or a signature in any encoding other than the one that this
    /// library writes.
    pub fn is_strictly_valid(&self, message: Message<'_>, signature: &[u8]) -> bool {
        self.is_canonical_with(signature) && self.is_valid(message, signature)
    }
    /// Whether the key and the signature are encoded as this library writes them. A signature is strictly valid if it is valid and this
    /// is `true`.
    pub fn is_canonical_with(&self, signature: &[u8]) -> bool {
        self.expanded().is_canonical_with(signature)
    }
    /// The values that a proof of possession takes from a signature; `None` if the bytes are not a signature by their length or norm.
    pub fn witness(&self, signature: &[u8]) -> Option<Witness> {
        Witness::new(self.expanded(), signature)
    }
}

impl From<RawVerifyingKey> for VerifyingKey {
    fn from(key: RawVerifyingKey) -> VerifyingKey {
        VerifyingKey { key, expanded: Arc::default() }
    }
}

wraps_key!(VerifyingKey, RawVerifyingKey);

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Verifier<Signature> for VerifyingKey {
    fn verify(&self, message: &[u8], signature: &Signature) -> Result<(), signature::Error> {
        let valid = self.is_valid(Message::Bytes(message), signature.as_bytes());
        if valid { Ok(()) } else { Err(signature::Error::new()) }
    }
}

/// The message of a job: bytes, which the job borrows or owns, or another form of [`Message`].
#[derive(Clone, Debug)]
pub enum JobMessage<'a> {
    /// Any number of bytes. If the job owns them, they count against the memory budget.
    Bytes(Cow<'a, [u8]>),
    /// See [`Message::Block`].
    Block(&'a [Fe; params::MUSIZE]),
    /// See [`Message::Mu`].
    Mu(&'a [Fe; params::MUSIZE]),
}

impl JobMessage<'_> {
    /// The message.
    pub fn borrowed(&self) -> Message<'_> {
        match self {
            JobMessage::Bytes(bytes) => Message::Bytes(bytes),
            JobMessage::Block(block) => Message::Block(block),
            JobMessage::Mu(mu) => Message::Mu(mu),
        }
    }
}

impl<'a> From<Message<'a>> for JobMessage<'a> {
    fn from(message: Message<'a>) -> JobMessage<'a> {
        match message {
            Message::Bytes(bytes) => JobMessage::Bytes(bytes.into()),
            Message::Block(block) => JobMessage::Block(block),
            Message::Mu(mu) => JobMessage::Mu(mu),
        }
    }
}

crate::jobs::from_bytes!(JobMessage);

/// The parameter set of zkDilithium, which has only one.
///
/// ```
/// use hypergrove::Engine;
/// use hypergrove::zkdilithium::ZkDilithium;
///
/// let key = Engine::new()?.generate(ZkDilithium)?;
/// # Ok::<(), hypergrove::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZkDilithium;

/// A message to be signed. Before a batch signs, each key is checked for damage in memory. A key that several jobs borrow or share is checked once, and
/// each clone by itself.
///
/// ```
/// use hypergrove::Engine;
/// use hypergrove::zkdilithium::{SignJob, SigningKey};
///
/// let key = SigningKey::generate()?;
/// let jobs = (0..3u8).map(|i| SignJob::new(&key, vec![i]));
/// Engine::new()?.sign_batch(jobs, |_, signature| assert!(signature.is_ok()))?;
/// # Ok::<(), hypergrove::Error>(())
/// ```
pub type SignJob<'a> = crate::jobs::SignJob<'a, ZkDilithium>;

/// A signature to be verified.
pub type VerifyJob<'a> = crate::jobs::VerifyJob<'a, ZkDilithium>;

#[cfg(test)]
mod devices_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Engine};
    use hypergrove_testkit::zkdilithium::{boundary, bulk, public, special, verify_only};
    use sha2::{Digest, Sha256};
    use shake::Shake256;
    use shake::digest::{ExtendableOutput, Update, XofReader};
    use signature::{Keypair, SignatureEncoding};

    /// Every case with a key, a signature and verdicts, rare branches included, on every instruction set.
    #[test]
    fn batches_are_the_vectors() {
        let cases = [public(), special(), boundary()].concat();
        let alone = verify_only();
        for isa in Isa::available() {
            let engine = Engine::builder()
                .backend(Arc::new(Cpu::with(isa).unwrap()))
                .threads(2)
                .verify_signatures(true)
                .build()
                .unwrap();
            let seeds: Vec<[u8; 32]> = cases.iter().map(|case| case.seed[..].try_into().unwrap()).collect();
            let keys = engine.from_seeds(ZkDilithium, &seeds).unwrap();
            let jobs = cases.iter().zip(&keys).map(|(case, key)| SignJob::new(key, &case.msg));
            let signatures: Vec<_> = engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().collect();
            assert_eq!(signatures.len(), cases.len());
            for ((case, key), signature) in cases.iter().zip(&keys).zip(&signatures) {
                assert_eq!(*key.to_bytes(), case.sk, "{}: {}", isa.name(), case.id);
                assert_eq!(signature.as_bytes(), case.sig, "{}: {}", isa.name(), case.id);
            }
            // Public key, message, signature, verdict.
            let whole = cases.iter().map(|case| ((case.pk.clone(), case.msg.clone(), case.sig.clone()), true));
            let altered =
                cases.iter().flat_map(|case| case.verify_mutations.iter().map(move |m| (m.apply(case), m.expect)));
            let alone = alone.iter().map(|v| ((v.pk.clone(), v.msg.clone(), v.sig.clone()), v.expect));
            let all: Vec<_> = whole.chain(altered).chain(alone).collect();
            // Public keys of other lengths are no keys; reading them is tested elsewhere.
            let known: Vec<_> = all
                .iter()
                .filter_map(|((pk, msg, sig), expect)| Some((VerifyingKey::from_bytes(pk).ok()?, msg, sig, *expect)))
                .collect();
            let jobs = known.iter().map(|(key, msg, sig, _)| VerifyJob::new(key, *msg, *sig));
            let expected: Vec<_> = known.iter().map(|(.., expect)| Ok(*expect)).collect();
            assert_eq!(engine.verify_batch_to_vec(jobs).unwrap(), expected, "{}", isa.name());
        }
    }

    /// The 2,000 cases that another implementation computed.
    #[test]
    fn batches_are_the_bulk_digests() {
        let cases = bulk();
        assert_eq!(cases.len(), 2000);
        let xof = |label: String, bytes: usize| {
            let mut out = vec![0; bytes];
            Shake256::default().chain(label).finalize_xof().read(&mut out);
            out
        };
        let engine = Engine::new().unwrap();
        let seeds: Vec<[u8; 32]> = cases.iter().map(|case| xof(case.seed_label(), 32).try_into().unwrap()).collect();
        let messages: Vec<_> = cases.iter().map(|case| xof(case.msg_label(), case.msg_len)).collect();
        let keys = engine.from_seeds(ZkDilithium, &seeds).unwrap();
        let jobs = keys.iter().zip(&messages).map(|(key, message)| SignJob::new(key, message));
        let signatures: Vec<_> = engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().collect();
        assert_eq!(signatures.len(), cases.len());
        for ((case, key), signature) in cases.iter().zip(&keys).zip(&signatures) {
            assert_eq!(Sha256::digest(&*key.to_bytes())[..], case.sk, "{}", case.i);
            assert_eq!(Sha256::digest(key.verifying_key().as_bytes())[..], case.pk, "{}", case.i);
            assert_eq!(Sha256::digest(signature)[..], case.sig, "{}", case.i);
        }
    }

    #[test]
    fn the_traits_agree_with_the_methods() {
        let key = SigningKey::from_seed(&[5; 32]);
        let signature = key.try_sign(b"message").unwrap();
        assert_eq!(Ok(&signature), key.sign_message(Message::Bytes(b"message")).as_ref());
        let public = Keypair::verifying_key(&key);
        assert!(public.verify(b"message", &signature).is_ok() && public.verify(b"massage", &signature).is_err());
        assert_eq!(Signature::try_from(&signature.to_vec()[..]).unwrap(), signature);
        assert!(public.is_strictly_valid(Message::Bytes(b"message"), signature.as_bytes()));
        assert!(public.witness(signature.as_bytes()).is_some());
        assert_ne!(SigningKey::generate().unwrap(), key);
        assert!(Engine::builder().threads(0).build().is_err());
    }
}
