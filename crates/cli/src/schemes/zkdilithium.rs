//! The parts of the command line that are zkDilithium's own: the forms of its keys, and the options that it refuses.

use super::in_tool::{InTool, Passphrase, Secret, Wanted};
use crate::args::{Bytes, Encoding, KeyKind, Keygen, Scheme};
use crate::keys::{Key, KeyFile, LoadedKey};
use crate::layout::{Layout, fields};
use hypergrove::zkdilithium::params::*;
use hypergrove::zkdilithium::{KeyError, PRIVATE_LABEL, SigningKey, VerifyingKey, ZkDilithium, is_pem_of_zkdilithium};
use hypergrove::{Fingerprint, Params};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::zkdilithium::refuse;
use hypergrove_pem::{Pem, PemError, is_pem};
use zeroize::Zeroizing;

/// The kind of a file's content.
#[derive(Clone, Copy)]
enum Kind {
    Private,
    Public,
    Signature,
}

/// A file that is a key or a signature by its form and length: the bytes are those without its PEM.
type RecognisedFile = (Kind, Encoding, Zeroizing<Vec<u8>>);

impl InTool for ZkDilithium {
    const NAME: &str = NAME;
    const SCHEME: Scheme = Scheme::ZkDilithium;

    fn fingerprint(key: &VerifyingKey) -> Fingerprint {
        key.fingerprint()
    }

    fn read(file: &KeyFile<'_>, _: Option<&'static Params>) -> Result<LoadedKey<ZkDilithium>, Failure> {
        let (kind, encoding, bytes) = recognise(file)?;
        let key = match kind {
            Kind::Private => {
                file.warn_of_readers();
                SigningKey::from_bytes(&bytes).map(Key::Private)
            }
            Kind::Public => VerifyingKey::from_bytes(&bytes).map(Key::Public),
            Kind::Signature => {
                return Err(Failure::new(format!("{} has the length of a signature, a key is needed", file.source))
                    .hint("name the file that `keygen` wrote"));
            }
        };
        let key = key.map_err(|error| Failure::from(error).of(&file.source))?;
        Ok(LoadedKey { key, encoding, encryption: None, bytes })
    }

    /// Fields of fixed lengths, one after the other.
    fn inspect(file: &KeyFile<'_>, _: &KeyKind, show_secrets: bool) -> Result<Layout, Failure> {
        let (kind, encoding, bytes) = recognise(file)?;
        let t = ("t", T_BYTES);
        let (kind, names) = match kind {
            Kind::Private => {
                let hashes = [("rho", HASH_BYTES), ("key", HASH_BYTES), ("tr", HASH_BYTES)];
                ("private key", [hashes, [("s1", L * ETA_BYTES), ("s2", K * ETA_BYTES), t]].concat())
            }
            Kind::Public => ("public key", vec![("rho", HASH_BYTES), t]),
            Kind::Signature => ("signature", vec![("c_tilde", C_TILDE_BYTES), ("z", L * GAMMA1_BYTES)]),
        };
        let fingerprint = match kind {
            "signature" => None,
            _ => Some(file.public::<ZkDilithium>(None)?.fingerprint().to_string()),
        };
        let parts = fields(&bytes, 0, &names, |name| ["key", "s1", "s2"].contains(&name) && !show_secrets);
        let (sets, format, bytes) = (vec![NAME], encoding.name(), bytes.len());
        Ok(Layout { kind, sets, fingerprint, format, bytes, parts, ..Layout::default() })
    }

    fn wanted(args: &Keygen) -> Result<Wanted<ZkDilithium>, Failure> {
        if let Some(p) = args.set {
            return Err(has_no_sets(p));
        }
        check_encoding(args.encoding.encoding())?;
        refuse(&[(args.encrypt, "--encrypt"), (args.hash_slh_dsa, "--hash-slh-dsa")])?;
        let seed = |Bytes(seed): &Bytes| {
            let given = <&[u8; SEED_BYTES]>::try_from(&seed[..]).map_err(|_| {
                Failure::new(format!("--seeds has {} bytes, {NAME} takes {SEED_BYTES}", seed.len()))
                    .hint("give the one seed that the whole key pair is made from")
            });
            given.map(|seed| Zeroizing::new(*seed))
        };
        Ok((ZkDilithium, args.seeds.as_ref().map(seed).transpose()?))
    }

    fn encode_private(key: &SigningKey, encoding: Encoding, _: Passphrase<'_>) -> Result<Secret, Failure> {
        check_encoding(encoding)?;
        let pem = || Zeroizing::new(key.to_pem().as_bytes().to_vec());
        Ok(if encoding == Encoding::Raw { key.to_bytes() } else { pem() })
    }

    fn encode_public(key: &VerifyingKey, encoding: Encoding) -> Result<Vec<u8>, Failure> {
        check_encoding(encoding)?;
        Ok(if encoding == Encoding::Raw { key.as_bytes().to_vec() } else { key.to_pem().into_bytes() })
    }

    fn refuse(options: &[(bool, &str)]) -> Result<(), Failure> {
        refuse(options)
    }

    fn is_canonical(key: &VerifyingKey, signature: &[u8]) -> bool {
        key.is_canonical_with(signature)
    }
}

/// Whether the file can be no other scheme's: by its PEM labels, or as raw bytes by its length.
pub(super) fn looks_like_it(bytes: &[u8]) -> Result<bool, Failure> {
    if !is_pem(bytes) {
        return Ok([SK_BYTES, PK_BYTES, SIG_BYTES].contains(&bytes.len()));
    }
    is_pem_of_zkdilithium(bytes).map_err(|error| match error {
        KeyError::Pem(PemError::TwoSchemes) => {
            Failure::from(error).hint("or name the scheme of the one that is meant with --scheme")
        }
        error => error.into(),
    })
}

/// Makes out what this is.
fn recognise(file: &KeyFile<'_>) -> Result<RecognisedFile, Failure> {
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
    Ok((kind, Encoding::Raw, file.bytes.clone()))
}

fn of_pem(bytes: &[u8]) -> Result<RecognisedFile, Failure> {
    let pem = Pem::read(bytes).map_err(KeyError::from)?;
    if pem.has(PRIVATE_LABEL) {
        return Ok((Kind::Private, Encoding::Pem, SigningKey::read_pem(bytes)?.to_bytes()));
    }
    let key = VerifyingKey::read_pem(bytes).map_err(|error| match error {
        error @ KeyError::Malformed { .. } => {
            Failure::from(error).hint("leave --scheme out, or name a key that `keygen --scheme zkdilithium` wrote")
        }
        error => error.into(),
    })?;
    Ok((Kind::Public, Encoding::Pem, Zeroizing::new(key.as_bytes().to_vec())))
}

/// Refuses what has no form.
fn check_encoding(encoding: Encoding) -> Result<(), Failure> {
    if encoding != Encoding::Der {
        return Ok(());
    }
    Err(Failure::new(format!("{NAME} has no object identifier, so DER cannot hold its keys"))
        .hint("leave --der out for PEM, or write the bare bytes with --raw"))
}

/// The error where a set is named.
pub(super) fn has_no_sets(p: &Params) -> Failure {
    Failure::new(format!("{NAME} has no parameter sets, --set says {p}")).hint("leave --set or --scheme out")
}
