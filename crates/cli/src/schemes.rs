//! The signature schemes at the command line: in one trait what each has of its own, and the choice between them.

mod zkdilithium;

use crate::args::{Encoding, Kdf, KeyKind, Keygen, MachineOptions, MessageOptions, Scheme, Sign, Verify};
use crate::files::Source;
use crate::keys::{self, Key, KeyFile, LoadedKey};
use crate::layout::{self, Layout};
use crate::pem::is_pem;
use hypergrove::backend::Size;
use hypergrove::scheme::{SignJob, VerifyJob};
use hypergrove::zkdilithium::ZkDilithium;
use hypergrove::zkdilithium::params::SIG_BYTES;
use hypergrove::{
    Engine, Error, Fingerprint, KeyError, Mode, Params, Seeds, SigningKey, SlhDsa, VerifyingKey, cache_bytes,
    known_sets,
};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Printer, grouped};
use hypergrove_lab::stopwatch::Timed;
use zeroize::Zeroizing;

/// A key set and the seeds that are given for a key of it.
pub(crate) type Wanted<S> = (S, Option<Zeroizing<<S as hypergrove::Scheme>::Seeds>>);

/// The content of a private key's file.
pub(crate) type Secret = Zeroizing<Vec<u8>>;
/// A passphrase, and how the key that encrypts comes from it.
pub(crate) type Passphrase<'p> = Option<(&'p [u8], Kdf)>;
/// The arguments of `sign`, and how many files there are.
pub(crate) type Signing<'a> = (&'a Sign, usize, &'a Printer);

/// A signature scheme at the command line.
pub(crate) trait InTool: for<'a> Timed<JobMessage<'a>: From<Vec<u8>>> {
    /// The scheme's name.
    const NAME: &str;
    /// As it is named by --scheme.
    const SCHEME: Scheme;

    /// The fingerprint by which people and programs recognise a public key.
    fn fingerprint(key: &Self::VerifyingKey) -> Fingerprint;
    /// The key in a file.
    fn read(file: &KeyFile<'_>, set: Option<&'static Params>) -> Result<LoadedKey<Self>, Failure>;
    /// Checks a private key, where reading it did not.
    fn check(_: &Self::SigningKey, _: &Source, _: &MachineOptions, _: &Printer) -> Result<(), Failure> {
        Ok(())
    }
    /// The report of `inspect` on a key or a signature.
    fn inspect(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Layout, Failure>;

    /// The key set and the seeds for `keygen`. Refuses, before any work is done, keys that cannot be made or written.
    fn wanted(args: &Keygen) -> Result<Wanted<Self>, Failure>;
    /// The key as --hash-slh-dsa makes it.
    fn hashing(key: Self::SigningKey) -> Self::SigningKey {
        key
    }
    /// The bytes of a private key file, under a passphrase if there is one.
    fn encode_private(
        key: &Self::SigningKey,
        encoding: Encoding,
        passphrase: Passphrase<'_>,
    ) -> Result<Secret, Failure>;
    /// The bytes of a public key file.
    fn encode_public(key: &Self::VerifyingKey, encoding: Encoding) -> Result<Vec<u8>, Failure>;

    /// Refuses options that the scheme does not know.
    fn refuse(_: &[(bool, &str)]) -> Result<(), Failure> {
        Ok(())
    }
    /// Refuses options of `sign` and `verify` that turn a message into another.
    fn check_message(options: &MessageOptions) -> Result<(), Failure> {
        Self::refuse(&[
            (options.context.is_some(), "--context"),
            (options.context_hex.is_some(), "--context-hex"),
            (options.prehash.is_some(), "--prehash"),
            (options.internal, "--internal"),
        ])
    }
    /// Refuses --strict where it says nothing.
    fn check_strict(_: &Verify) -> Result<(), Failure> {
        Ok(())
    }
    /// How a key signs messages.
    fn mode<'a>(options: &'a MessageOptions, _: &Self::VerifyingKey) -> Result<Mode<'a>, Failure> {
        options.mode()
    }
    /// The key with the nodes of its top layers, if that is asked for or worth it.
    fn with_nodes(_: &Engine, key: Self::SigningKey, _: Signing<'_>) -> Result<Self::SigningKey, Failure> {
        Ok(key)
    }
    /// Whether a key and a signature are encoded as the tool writes them.
    fn is_canonical(_: &Self::VerifyingKey, _signature: &[u8]) -> bool {
        true
    }

    /// A key of SLH-DSA, for what only that has: envelopes, ledgers and the like.
    fn as_slh_dsa(_: &Self::VerifyingKey) -> Option<&VerifyingKey> {
        None
    }
    /// The reverse.
    fn of_slh_dsa(_: VerifyingKey) -> Option<Self::VerifyingKey> {
        None
    }

    /// A message to be signed in this mode.
    fn signed<'a>(job: SignJob<'a, Self>, _: Mode<'a>, _deterministic: bool) -> SignJob<'a, Self> {
        job
    }
    /// A signature to be verified in this mode.
    fn verified<'a>(job: VerifyJob<'a, Self>, _: Mode<'a>) -> VerifyJob<'a, Self> {
        job
    }
}

impl InTool for SlhDsa {
    const NAME: &str = "SLH-DSA";
    const SCHEME: Scheme = Scheme::SlhDsa;

    fn fingerprint(key: &VerifyingKey) -> Fingerprint {
        key.fingerprint()
    }

    fn read(file: &KeyFile<'_>, set: Option<&'static Params>) -> Result<LoadedKey, Failure> {
        let passphrase = || match file.passphrase {
            Some(passphrase) => passphrase.get(&file.source),
            None => Err(Failure::from(KeyError::Encrypted)),
        };
        keys::recognise(&file.bytes, set, passphrase).map_err(|failure| failure.of(&file.source))
    }

    /// A wrong root would be handed on as a public key that verifies nothing.
    fn check(key: &SigningKey, source: &Source, options: &MachineOptions, printer: &Printer) -> Result<(), Failure> {
        machine::engine(options, printer)?.check(key).map_err(|error| Failure::from(error).of(source))
    }

    /// A key, or what has the length of a signature.
    fn inspect(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Layout, Failure> {
        let KeyFile { source, bytes, .. } = file;
        let fitting: Vec<_> = known_sets().filter(|p| p.sig_bytes() == bytes.len()).collect();
        if fitting.is_empty() || is_pem(bytes) {
            return Ok(layout::key(&SlhDsa::read(file, of.set)?, show_secrets));
        }
        let sets = match of.set {
            None => fitting,
            Some(p) if fitting.contains(&p) => vec![p],
            Some(p) => {
                let (got, want) = (grouped(bytes.len() as u64), grouped(p.sig_bytes() as u64));
                return Err(Failure::new(format!("{source} has {got} bytes, a signature of {p} has {want}"))
                    .hint(format!("by its length it is a signature of {}", fitting[0])));
            }
        };
        Ok(layout::signature(bytes, &sets))
    }

    fn wanted(args: &Keygen) -> Result<Wanted<SlhDsa>, Failure> {
        let p = args.set.ok_or_else(|| {
            Failure::new("SLH-DSA has many parameter sets, and none is named")
                .hint("name one with --set, for example --set SLH-DSA-SHA2-128f")
        })?;
        let seeds = args.seeds.as_ref().map(|bytes| seeds(p, &bytes.0)).transpose()?;
        keys::check_encoding(p, args.encoding.encoding())?;
        Ok((p.into(), seeds))
    }

    fn hashing(key: SigningKey) -> SigningKey {
        key.into_hash_slh_dsa()
    }

    fn encode_private(key: &SigningKey, encoding: Encoding, passphrase: Passphrase<'_>) -> Result<Secret, Failure> {
        match passphrase {
            Some((passphrase, kdf)) => keys::encode_encrypted(&key.encrypt(passphrase, kdf.into())?, encoding),
            None => keys::encode_private(key, encoding),
        }
    }

    fn encode_public(key: &VerifyingKey, encoding: Encoding) -> Result<Vec<u8>, Failure> {
        keys::encode_public(key, encoding)
    }

    fn check_strict(args: &Verify) -> Result<(), Failure> {
        let failure = || Failure::new("--strict is for zkDilithium: SLH-DSA has one encoding").hint("leave it out");
        if args.strict { Err(failure()) } else { Ok(()) }
    }

    fn mode<'a>(options: &'a MessageOptions, key: &VerifyingKey) -> Result<Mode<'a>, Failure> {
        options.mode_with(key)
    }

    fn with_nodes(
        engine: &Engine,
        key: SigningKey,
        (args, files, printer): Signing<'_>,
    ) -> Result<SigningKey, Failure> {
        let p = key.params();
        // Layers that were asked for and do not fit: fewer are a way out too.
        let fewer = |error: Error| match error {
            Error::OutOfMemory { .. } => Failure::from(error)
                .hint("ask for fewer layers with --cache-layers or --cache-memory, or give more memory with --memory"),
            error => error.into(),
        };
        let key = match (args.cache_layers, args.cache_memory) {
            (_, Some(bytes)) => {
                engine.cache_within(&key, usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(fewer)?
            }
            (Some(layers), _) if layers > p.d => {
                return Err(Failure::new(format!("--cache-layers {layers}: {p} has {} layers", p.d))
                    .hint("1 saves the most for its memory"));
            }
            (Some(layers), _) => engine.cache(&key, layers).map_err(fewer)?,
            // The top tree is grown once instead of once for each file, if it fits the memory.
            _ if files > 1 => match engine.cache(&key, 1) {
                Err(Error::OutOfMemory { needs, .. }) => {
                    let needs = Size(needs);
                    printer.note(format_args!(
                        "each signature grows the key's top tree again: to keep it needs {needs}, give more with --memory"
                    ));
                    key
                }
                cached => cached?,
            },
            _ => key,
        };
        if let layers @ 1.. = key.cached_layers() {
            let bytes = cache_bytes(p, layers).unwrap_or_default();
            printer.detail(format_args!("the nodes of the top {layers} of {} layers are kept: {bytes} bytes", p.d));
        }
        Ok(key)
    }

    fn as_slh_dsa(key: &VerifyingKey) -> Option<&VerifyingKey> {
        Some(key)
    }

    fn of_slh_dsa(key: VerifyingKey) -> Option<VerifyingKey> {
        Some(key)
    }

    fn signed<'a>(job: SignJob<'a, SlhDsa>, mode: Mode<'a>, deterministic: bool) -> SignJob<'a, SlhDsa> {
        let job = job.mode(mode);
        if deterministic { job.deterministic() } else { job }
    }

    fn verified<'a>(job: VerifyJob<'a, SlhDsa>, mode: Mode<'a>) -> VerifyJob<'a, SlhDsa> {
        job.mode(mode)
    }
}

/// SK.seed ‖ SK.prf ‖ PK.seed.
fn seeds(p: &Params, bytes: &[u8]) -> Result<Zeroizing<Seeds>, Failure> {
    if bytes.len() != 3 * p.n {
        let (got, want) = (bytes.len(), 3 * p.n);
        return Err(Failure::new(format!("--seeds has {got} bytes, {p} takes {want}"))
            .hint(format!("give SK.seed, SK.prf and PK.seed, {} bytes each, one after the other", p.n)));
    }
    let part = |i: usize| bytes[i * p.n..(i + 1) * p.n].to_vec();
    Ok(Zeroizing::new(Seeds { sk_seed: part(0).into(), sk_prf: part(1).into(), pk_seed: part(2) }))
}

/// Does the work with `$S` as the type of the scheme, whichever it is.
macro_rules! of_scheme {
    ($scheme:expr, $S:ident => $work:expr) => {
        match $scheme {
            $crate::args::Scheme::SlhDsa => {
                type $S = hypergrove::SlhDsa;
                $work
            }
            $crate::args::Scheme::ZkDilithium => {
                type $S = hypergrove::zkdilithium::ZkDilithium;
                $work
            }
        }
    };
}
pub(crate) use of_scheme;

impl KeyFile<'_> {
    /// The scheme of the key: the one that was named, or the one that the file looks like.
    pub(crate) fn scheme(&self, of: &KeyKind) -> Result<Scheme, Failure> {
        let looks = || zkdilithium::looks_like_it(&self.bytes).map_err(|failure| failure.of(&self.source));
        let scheme = match of.scheme {
            Some(scheme) => scheme,
            None if looks()? => Scheme::ZkDilithium,
            None => Scheme::SlhDsa,
        };
        match (scheme, of.set) {
            (Scheme::ZkDilithium, Some(p)) => Err(zkdilithium::has_no_sets(p).of(&self.source)),
            (scheme, _) => Ok(scheme),
        }
    }

    /// A key that signs.
    pub(crate) fn private<S: InTool>(&self, set: Option<&'static Params>) -> Result<S::SigningKey, Failure> {
        match S::read(self, set)?.key {
            Key::Private(key) => Ok(key),
            Key::Public(_) => {
                Err(Failure::new(format!("{} is a public key, signing takes the private key", self.source))
                    .hint("name the file that `keygen` wrote with --output"))
            }
        }
    }

    /// A public key, or that of a private one.
    pub(crate) fn public<S: InTool>(&self, set: Option<&'static Params>) -> Result<S::VerifyingKey, Failure> {
        Ok(S::read(self, set)?.key.public())
    }
}

/// The sets, or schemes, whose signatures are known, and the bytes of a signature.
pub(crate) fn signatures() -> impl Iterator<Item = (&'static str, usize)> {
    known_sets().map(|p| (p.name, p.sig_bytes())).chain([(ZkDilithium::NAME, SIG_BYTES)])
}

/// The error where keys are of several schemes.
pub(crate) fn mixed() -> Failure {
    Failure::new("the keys are of SLH-DSA and of zkDilithium, one run takes one scheme's")
        .hint("verify twice, with the keys of one scheme each")
}
