//! What zkDilithium has of its own at the command line: the forms of its keys, and its engine.

use crate::args::{MachineOptions, MessageOptions};
use crate::keys::{Encoding, KeyFile};
use crate::pem::{Pem, is_pem, mixed};
use crate::tagged::tagged;
use hypergrove::zkdilithium::params::{NAME, PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove::zkdilithium::{Engine, KeyError, PRIVATE_LABEL, PUBLIC_LABEL, SigningKey, VerifyJob, VerifyingKey};
use hypergrove::{Error, Params};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::{Printer, brief};
pub(crate) use hypergrove_lab::zkdilithium::{engine, engine_with, refuse};
use zeroize::Zeroizing;

/// Half of a key pair, or all of it.
pub(crate) enum Key {
    Private(SigningKey),
    Public(VerifyingKey),
}

impl Key {
    pub(crate) fn public(&self) -> VerifyingKey {
        match self {
            Key::Private(key) => key.verifying_key(),
            Key::Public(key) => key.clone(),
        }
    }
}

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Private,
    Public,
    Signature,
}

/// A file that is a key or a signature by its form and length.
pub(crate) struct RecognisedFile {
    pub(crate) kind: Kind,
    pub(crate) pem: bool,
    /// The file without its PEM.
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

/// Whether the file can be no other scheme's: by its PEM labels, or as raw bytes by its length.
pub(crate) fn looks_like_it(bytes: &[u8]) -> Result<bool, Failure> {
    if !is_pem(bytes) {
        return Ok([SK_BYTES, PK_BYTES, SIG_BYTES].contains(&bytes.len()));
    }
    let pem = Pem::read(bytes)?;
    let any = |labels: &[&str]| pem.labels().any(|label| labels.contains(&label));
    match (any(&[PRIVATE_LABEL, PUBLIC_LABEL]), any(&["PRIVATE KEY", "PUBLIC KEY", "ENCRYPTED PRIVATE KEY"])) {
        (true, true) => Err(Failure::new("this PEM file has keys of zkDilithium and others")
            .hint("name the scheme of the one that is meant with --scheme")),
        (is_it, _) => Ok(is_it),
    }
}

/// Makes out what this is.
pub(crate) fn recognise(file: &KeyFile<'_>) -> Result<RecognisedFile, Failure> {
    if is_pem(&file.bytes) {
        return of_pem(&file.bytes).map_err(|failure| failure.of(&file.source));
    }
    let kind = match file.bytes.len() {
        SK_BYTES => Kind::Private,
        PK_BYTES => Kind::Public,
        SIG_BYTES => Kind::Signature,
        got => {
            return Err(Failure::new(format!(
                "{}: this is no PEM, and {got} bytes are nothing of {NAME}: a private key has {SK_BYTES}, a public key \
                 {PK_BYTES}, a signature {SIG_BYTES}",
                file.source
            ))
            .hint("check --scheme, and whether the file is cut short or has bytes too many"));
        }
    };
    Ok(RecognisedFile { kind, pem: false, bytes: file.bytes.clone() })
}

fn of_pem(bytes: &[u8]) -> Result<RecognisedFile, Failure> {
    let pem = Pem::read(bytes)?;
    let of_length = |what, want, bytes: Zeroizing<Vec<u8>>| match bytes.len() {
        got if got == want => Ok(bytes),
        got => Err(Failure::from(KeyError::Length { what, want, got })),
    };
    let private = pem.block(PRIVATE_LABEL)?.map(|bytes| of_length("a private key", SK_BYTES, bytes)).transpose()?;
    let public = pem.block(PUBLIC_LABEL)?.map(|bytes| of_length("a public key", PK_BYTES, bytes)).transpose()?;
    match (private, public) {
        (Some(private), Some(public))
            if SigningKey::from_bytes(&private)?.verifying_key().as_bytes() != public.as_slice() =>
        {
            Err(mixed())
        }
        (Some(bytes), _) => Ok(RecognisedFile { kind: Kind::Private, pem: true, bytes }),
        (None, Some(bytes)) => Ok(RecognisedFile { kind: Kind::Public, pem: true, bytes }),
        (None, None) => {
            let (label, labels) =
                (brief(&pem.labels().collect::<Vec<_>>().join("', '")), [PRIVATE_LABEL, PUBLIC_LABEL]);
            Err(Failure::new(format!("its PEM label is '{label}', not '{}'", labels.join("' or '")))
                .hint("leave --scheme out, or name a key that `keygen --scheme zkdilithium` wrote"))
        }
    }
}

/// A key of either kind; a private one is checked.
pub(crate) fn key(file: &KeyFile<'_>) -> Result<Key, Failure> {
    let RecognisedFile { kind, bytes, .. } = recognise(file)?;
    let read = match kind {
        Kind::Private => SigningKey::from_bytes(&bytes).and_then(|key| key.check().map(|()| Key::Private(key))),
        Kind::Public => VerifyingKey::from_bytes(&bytes).map(Key::Public),
        Kind::Signature => {
            return Err(Failure::new(format!("{} has the length of a signature, a key is needed", file.source))
                .hint("name the file that `keygen` wrote"));
        }
    };
    read.map_err(|error| Failure::from(error).of(&file.source))
}

/// A key that signs.
pub(crate) fn private(file: &KeyFile<'_>) -> Result<SigningKey, Failure> {
    match key(file)? {
        Key::Private(key) => Ok(key),
        Key::Public(_) => Err(file.is_public()),
    }
}

/// A key from the system's randomness, or from a seed.
pub(crate) fn generate(
    seed: Option<&Vec<u8>>,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<SigningKey, Failure> {
    let seed = match seed {
        None => SigningKey::random_seed()?,
        Some(seed) => {
            let seed: &[u8; SEED_BYTES] = seed[..].try_into().map_err(|_| {
                Failure::new(format!("--seeds has {} bytes, {NAME} takes {SEED_BYTES}", seed.len()))
                    .hint("give the one seed that the whole key pair is made from")
            })?;
            Box::new(Zeroizing::new(*seed))
        }
    };
    Ok(engine(machine, printer)?.from_seeds(std::slice::from_ref(&**seed))?.remove(0))
}

/// Refuses what has no form.
pub(crate) fn check_encoding(encoding: Encoding) -> Result<(), Failure> {
    if encoding != Encoding::Der {
        return Ok(());
    }
    Err(Failure::new(format!("{NAME} has no object identifier, so DER cannot hold its keys"))
        .hint("leave --der out for PEM, or write the bare bytes with --raw"))
}

/// The bytes of a private key file.
pub(crate) fn encode_private(key: &SigningKey, encoding: Encoding) -> Zeroizing<Vec<u8>> {
    if encoding == Encoding::Raw { key.to_bytes() } else { Zeroizing::new(key.to_pem().as_bytes().to_vec()) }
}

/// The bytes of a public key file.
pub(crate) fn encode_public(key: &VerifyingKey, encoding: Encoding) -> Vec<u8> {
    if encoding == Encoding::Raw { key.as_bytes().to_vec() } else { key.to_pem().into_bytes() }
}

/// What is said where a set is named.
pub(crate) fn has_no_sets(p: &Params) -> Failure {
    Failure::new(format!("{NAME} has no parameter sets, --set says {p}")).hint("leave --set or --scheme out")
}

/// Refuses what turns a message into another.
pub(crate) fn check_message(options: &MessageOptions) -> Result<(), Failure> {
    refuse(&[
        (options.context.is_some(), "--context"),
        (options.context_hex.is_some(), "--context-hex"),
        (options.prehash.is_some(), "--prehash"),
        (options.internal, "--internal"),
    ])
}

/// A key, and a message with its signature.
type Pair<'k> = (&'k VerifyingKey, (Vec<u8>, Vec<u8>));

/// Judges messages and signatures, each with what it is of; strictly, other encodings than those that are written are
/// refused.
pub(crate) fn verify<'k, T: Send>(
    engine: &Engine,
    strict: bool,
    pairs: impl Iterator<Item = (T, Pair<'k>)> + Send,
    judged: impl Fn(T, Result<bool, Error>),
) -> Result<(), Failure> {
    let (jobs, tags) = tagged(pairs.map(|(of, (key, (message, signature)))| {
        let is_acceptable = !strict || key.is_canonical_with(&signature);
        ((of, is_acceptable), VerifyJob::new(key, message, signature))
    }));
    Ok(engine.verify_batch(jobs, |_, valid| {
        let (of, is_acceptable) = tags.next();
        judged(of, valid.map(|valid| valid && is_acceptable));
    })?)
}
