//! The parts of the command line that are SLH-DSA's own: sets, encodings, modes and cached layers.

use super::in_tool::{InTool, Passphrase, Secret, Signing, Wanted};
use crate::args::{Encoding, KeyKind, Keygen, MachineOptions, MessageOptions, Scheme, Verify};
use crate::files::Source;
use crate::keys::{self, Key, KeyFile, LoadedKey};
use crate::layout::{self, Layout};
use hypergrove::backend::Size;
use hypergrove::schemes::{SignJob, VerifyJob};
use hypergrove::{
    EncryptedSigningKey, Engine, Error, Fingerprint, KeyError, Mode, Params, Randomizer, ReadError, SLH_DSA_SHA2_128S,
    Seeds, SigningKey, SlhDsa, VerifyingKey, cache_bytes, known_sets,
};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Printer, grouped};
use hypergrove_pem::is_pem;
use std::fs::File;
use std::io::Read;
use zeroize::Zeroizing;

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
        let found = keys::recognise(&file.bytes, set, passphrase).map_err(|failure| failure.of(&file.source))?;
        if let Key::Private(_) = found.key {
            file.warn_of_readers();
        }
        Ok(found)
    }

    /// A wrong root would be handed on as a public key that verifies nothing.
    fn check(key: &SigningKey, source: &Source, options: &MachineOptions, printer: &Printer) -> Result<(), Failure> {
        machine::engine(options, printer)?.check(key).map_err(|error| Failure::from(error).of(source))
    }

    /// A key, or what has the length of a signature.
    fn inspect(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Layout, Failure> {
        let KeyFile { source, bytes, .. } = file;
        let asks = show_secrets || file.passphrase.is_none_or(|options| options.path().is_some());
        if !asks && EncryptedSigningKey::looks_like_it(bytes) {
            return layout::encrypted(file);
        }
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
        let p = args.set.unwrap_or(&SLH_DSA_SHA2_128S);
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

    const IN_PIECES: bool = true;

    fn read_to_sign<'a>(
        engine: &Engine,
        key: &'a SigningKey,
        (mode, deterministic): (Mode<'a>, bool),
        file: &mut File,
    ) -> Result<SignJob<'a, SlhDsa>, ReadError> {
        let randomizer = if deterministic { Randomizer::Deterministic } else { Randomizer::Hedged };
        engine.read_to_sign(key, mode, file, randomizer)
    }

    fn read_to_verify<'a>(
        engine: &Engine,
        keys: &[&'a VerifyingKey],
        (mode, signature): (Mode<'a>, &[u8]),
        from: &mut dyn Read,
    ) -> Result<Vec<VerifyJob<'a, SlhDsa>>, ReadError> {
        engine.read_to_verify(keys.iter().copied(), mode, from, signature.to_vec())
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
