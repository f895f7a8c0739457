//! Signatures of files: where they are, and how they are made, read and judged.

use crate::args::{MachineOptions, Sign};
use crate::diagnose::Origin;
use crate::files::Source;
use crate::schemes::{self, InTool};
use crate::tagged::tagged;
use crate::verdicts::{SignedBy, Verdict};
use hypergrove::schemes::{SchemeKey, VerifyJob};
use hypergrove::{Engine, Error, Mode};
use hypergrove_files::envelope::{MAX_ENVELOPE, is_reserved};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::machine::{self, Watched};
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A private key with what signs by it.
pub(crate) struct Signer<'p, S: InTool> {
    pub(crate) engine: Watched<'p>,
    pub(crate) key: S::SigningKey,
}

impl<'p, S: InTool> Signer<'p, S> {
    pub(crate) fn new(
        key: S::SigningKey,
        args: &Sign,
        machine: &MachineOptions,
        files: usize,
        printer: &'p Printer,
    ) -> Result<Signer<'p, S>, Failure> {
        let redundant = args.redundancy.redundant;
        let engine = machine::engine_with(machine, printer, |builder| builder.redundant(redundant))?;
        let key = S::with_nodes(&engine, key, (args, files, printer))?;
        Ok(Signer { engine, key })
    }
}

/// The mode of a signature without an envelope.
pub(crate) fn unreserved(mode: Mode<'_>) -> Result<Mode<'_>, Failure> {
    match mode {
        Mode::Pure { context } | Mode::PreHash { context, .. } | Mode::Digest { context, .. }
            if is_reserved(context) =>
        {
            Err(Failure::new("this context is kept for signatures in envelopes")
                .hint("sign with --armor, or choose another"))
        }
        mode => Ok(mode),
    }
}

/// A file, and what it is called below a directory of signatures.
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) name: PathBuf,
}

/// FILE.sig.
pub(crate) fn signature_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// Where the signature of a file lies: next to its file, or in `directory`.
pub(crate) fn signature_of(file: &Named, directory: Option<&Path>) -> PathBuf {
    signature_path(&directory.map_or_else(|| file.path.clone(), |directory| directory.join(&file.name)))
}

/// A public key that may have signed.
pub(crate) struct Candidate<'a, S: InTool> {
    pub(crate) key: S::VerifyingKey,
    pub(crate) mode: Mode<'a>,
    pub(crate) by: Arc<SignedBy>,
    pub(crate) origin: Origin,
}

/// Whose signatures keys verify, and their bytes.
pub(crate) fn lengths<S: InTool>(keys: &[Candidate<'_, S>]) -> Vec<(&'static str, usize)> {
    let sets = keys.iter().map(|candidate| candidate.key.scheme());
    let mut all: Vec<_> = sets.map(|set| (set.name(), set.sizes().signature)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The verdict on one message's signature, by the keys that may have signed it.
pub(crate) fn judge_one<S: InTool>(
    keys: &[Candidate<'_, S>],
    strict: bool,
    message: &[u8],
    signature: &[u8],
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Verdict, Failure> {
    let engine = machine::engine(machine, printer)?;
    for Candidate { key, mode, by, .. } in keys {
        let is_refused = strict && !S::is_canonical(key, signature);
        if !is_refused && engine.run(S::verified(VerifyJob::new(key, message, signature), *mode))? {
            return Ok(Verdict::Good(Arc::clone(by)));
        }
    }
    Ok(Verdict::Invalid)
}

/// Judges signatures, each with what it is of.
pub(crate) fn judge<'a, S: InTool, T: Send>(
    engine: &Engine,
    jobs: impl Iterator<Item = (T, VerifyJob<'a, S>)> + Send,
    judged: impl Fn(T, Result<bool, Error>),
) -> Result<(), Failure> {
    let (jobs, tags) = tagged(jobs);
    Ok(engine.verify_batch(jobs, |_, valid| judged(tags.next(), valid))?)
}

/// Says where a signature that is not there was looked for.
pub(crate) fn missing(failure: Failure, file: &Path, signature: &Source) -> Failure {
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    match signature {
        Source::File(path) if !is_there(path) && file.extension().is_some_and(|extension| extension == "sig") => {
            let signed = file.with_extension("");
            failure.hint(format!("name the file that was signed; if {} is its signature, that is {}", PathDisplay(file), PathDisplay(&signed)))
        }
        Source::File(path) if !is_there(path) => failure.hint(
            "the signature of FILE is looked for in FILE.sig; name another file with --signature, or another directory with \
             --signature-dir",
        ),
        _ => failure,
    }
}

/// A signature, of the length of those of one of these.
pub(crate) fn read_signature(source: &Source, of: &[(&str, usize)]) -> Result<Vec<u8>, Failure> {
    let bytes = source.read_up_to(MAX_ENVELOPE as u64 + 1)?;
    of_length(source, bytes, of)
}

pub(crate) fn of_length(source: &Source, bytes: Vec<u8>, of: &[(&str, usize)]) -> Result<Vec<u8>, Failure> {
    let wanted = |length: usize| of.iter().any(|(_, bytes)| *bytes == length);
    let longest = schemes::signatures()
        .map(|(_, bytes)| bytes)
        .chain(of.iter().map(|(_, bytes)| *bytes))
        .max()
        .unwrap_or_default();
    if wanted(bytes.len()) {
        return Ok(bytes);
    }
    let got = match bytes.len() {
        length if length > longest => format!("more than {}", grouped(longest as u64)),
        length => grouped(length as u64),
    };
    let want = of.iter().map(|(name, bytes)| format!("a signature of {name} has {}", grouped(*bytes as u64)));
    let failure = Failure::new(format!("{source} has {got} bytes, {}", want.collect::<Vec<_>>().join(", ")));
    Err(match schemes::signatures().find(|(_, length)| *length == bytes.len()) {
        Some((other, _)) => failure.hint(format!("it has the length of a {other} signature: use the key that made it")),
        None if of.iter().all(|(_, want)| bytes.len() < *want) => {
            failure.hint("it is cut short, or no signature: copy it again")
        }
        None => failure.hint("it has bytes too many, or is no signature: copy it again"),
    })
}
