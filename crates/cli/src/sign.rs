//! `hypergrove sign`.

use crate::args::{self, MachineOptions, Named, Scheme, Sign};
use crate::files::{Access, MAKE_IT, Replace, Source, Sources, Target, directory, is_directory};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::outputs::{Claims, Outputs, Writing};
use crate::tagged::tagged;
use crate::verdicts::{SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::verify::{judge, read_signature};
use crate::zkdilithium;
use crate::{table, trees};
use hypergrove::backend::Size;
use hypergrove::envelope::{Envelope, EnvelopeError, Header, is_reserved};
use hypergrove::zkdilithium as zk;
use hypergrove::{
    Engine, Error, Fingerprint, Mode, Randomizer, SignJob, Signature, SigningKey, VerifyJob, cache_bytes,
};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine::{self, Watched};
use hypergrove_lab::printer::{PathDisplay, Printer};
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn run(
    args: &Sign,
    mut read: Sources,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let passphrase = args.passphrase.path();
    let given = args.inputs.files.iter().chain(&args.inputs.list);
    args::one_stdin(given.chain(&args.key).chain(&args.table).chain(&passphrase).map(PathBuf::as_path))?;
    args.message.mode()?;
    let path = match (&args.table, &args.key) {
        (Some(table), _) => return table::sign(args, table, read, machine, printer),
        (None, Some(path)) => path,
        (None, None) => unreachable!("the arguments require one of the two"),
    };
    let key_file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
    let key = match key_file.scheme(&args.of)? {
        Scheme::SlhDsa => Signer::SlhDsa(key_file.private(args.of.set)?),
        Scheme::ZkDilithium => Signer::ZkDilithium(zkdilithium::private(&key_file)?),
    };
    let mode = match &key {
        Signer::SlhDsa(key) => {
            args.message.mode_with(&key.verifying_key()).map_err(|failure| failure.of(&key_file.source))?
        }
        Signer::ZkDilithium(_) => Mode::default(),
    };
    let header = header(args, &key, mode)?;
    let ledger = OwnLedger::of(&key, &key_file.source, args, printer)?;
    ledger.add_to(&mut read);
    if let Some(tree) = &args.manifest {
        return trees::sign(args, tree, key, mode, read, &ledger, machine, printer);
    }
    let signed_context = header.as_ref().map(Header::signed_context);
    let mode = match (&header, &signed_context) {
        (Some(header), Some(context)) => header.mode(context),
        _ => mode,
    };
    let named = args.inputs.named(args.digest.as_ref(), args.recursive, printer)?;
    let files: Vec<Source> = named.iter().map(|file| file.path.as_path().into()).collect();
    let targets = targets(args, &named)?;
    files.iter().for_each(|file| read.add(file, file));
    let many = args.inputs.many() || args.recursive;
    let replace = Replace { force: args.overwrite.force, read: &read };
    if args.skip_existing && files.contains(&Source::Stdin) {
        return Err(Failure::new("--skip-existing reads files twice, standard input can be read once")
            .hint("leave it out, or put what is to be signed into a file"));
    }
    let format = format(args, many, &targets)?;
    if !many {
        let kept = Replace { force: replace.force || args.skip_existing, ..replace };
        targets[0].check(Access::Public, header.is_none(), kept)?;
    }
    if !args.skip_existing {
        ledger.check(files.len())?;
    }
    let key = key.ready(args, machine, files.len(), printer)?;
    let messages = Messages::new(machine, args.digest.as_ref());
    let existing = match args.skip_existing {
        true => key.judge_existing(mode, &messages, &files, &targets)?,
        false => Vec::new(),
    };
    let kept = existing.iter().filter(|existing| matches!(existing, Some(Ok(())))).count();
    ledger.reserve(files.len() - kept, printer)?;
    let path_of = |index: usize| Some(targets[index].path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "signing", Word::Signed);
    let outputs = Outputs { files: &files, targets: &targets, replace, verdicts: &verdicts, printer };
    let done = key.sign_all(&outputs, existing, &messages, (mode, args.deterministic), header.as_ref());
    let exit = verdicts.finish(done)?;
    if let (false, Exit::Good, target @ Target::File(_)) = (many, exit, &targets[0]) {
        let done = if kept > 0 { "kept" } else { "wrote" };
        printer.note(format_args!("{done} {target}: a signature of {}", key.signature().0));
    }
    Ok(exit)
}

/// How the files' verdicts are reported.
fn format(args: &Sign, many: bool, targets: &[Target]) -> Result<VerdictFormat, Failure> {
    match (args.json, many) {
        (true, _) if targets.contains(&Target::Stdout) => {
            Err(Failure::new("a signature and JSON would both go to standard output")
                .hint("name a file for the signature with --output"))
        }
        (true, _) => Ok(VerdictFormat::Json),
        (false, true) => Ok(VerdictFormat::Lines),
        (false, false) => Ok(VerdictFormat::Silent),
    }
}

/// What each envelope says; none where signatures stay bare.
fn header(args: &Sign, key: &Signer, mode: Mode<'_>) -> Result<Option<Header>, Failure> {
    match (key, mode) {
        (Signer::ZkDilithium(_), _) => {
            zkdilithium::refuse(&[(args.armor, "--armor")])?;
            Ok(None)
        }
        (Signer::SlhDsa(key), mode) if args.armor => {
            Header::new(&key.verifying_key(), mode, args.comment.as_deref()).map(Some).map_err(unfit)
        }
        (_, mode) => unreserved(mode).map(|_| None),
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

/// A signature as it is written.
fn armored<'s>(header: Option<&Header>, signature: &'s [u8]) -> Result<Cow<'s, [u8]>, Failure> {
    let Some(header) = header else { return Ok(signature.into()) };
    let envelope = Envelope::new(header.clone(), signature).map_err(unfit)?;
    Ok(envelope.to_string().into_bytes().into())
}

/// What does not go into an envelope.
fn unfit(error: EnvelopeError) -> Failure {
    Failure::new(format!("--armor: {error}")).hint("docs/envelope.md says what an envelope holds")
}

/// The ledger of the key that signs, if its set has a limit.
pub(crate) struct OwnLedger {
    ledger: Option<crate::ledger::KeyLedger>,
}

impl OwnLedger {
    fn of(key: &Signer, source: &Source, args: &Sign, printer: &Printer) -> Result<OwnLedger, Failure> {
        let named = args.ledger.as_deref();
        let ledger = match key {
            Signer::SlhDsa(key) => crate::ledger::of(&key.verifying_key(), source, named, printer)?,
            Signer::ZkDilithium(_) => {
                zkdilithium::refuse(&[(named.is_some(), "--ledger")])?;
                None
            }
        };
        Ok(OwnLedger { ledger })
    }
    /// That of a key of a table.
    pub(crate) fn of_key(key: &SigningKey, source: &Source, printer: &Printer) -> Result<OwnLedger, Failure> {
        Ok(OwnLedger { ledger: crate::ledger::of(&key.verifying_key(), source, None, printer)? })
    }
    /// Adds the files that are read.
    pub(crate) fn add_to(&self, read: &mut Sources) {
        self.ledger.iter().for_each(|ledger| ledger.add_to(read));
    }
    /// Refuses more signatures than are left.
    pub(crate) fn check(&self, signatures: usize) -> Result<(), Failure> {
        self.ledger.as_ref().map_or(Ok(()), |ledger| ledger.check(signatures))
    }
    /// Reserves numbers for signatures that are about to be made.
    pub(crate) fn reserve(&self, signatures: usize, printer: &Printer) -> Result<(), Failure> {
        self.ledger.as_ref().map_or(Ok(()), |ledger| ledger.reserve(signatures, printer))
    }
}

/// A private key.
pub(crate) enum Signer {
    SlhDsa(SigningKey),
    ZkDilithium(zk::SigningKey),
}

/// Whether a signature that is there is kept, and if not, why; `None` if there is none.
type Existing = Option<Result<(), Failure>>;

/// A private key with what signs by it.
pub(crate) enum PreparedSigner<'p> {
    SlhDsa(Watched<'p>, SigningKey),
    ZkDilithium(Watched<'p, zk::Engine>, zk::SigningKey),
}

impl Signer {
    /// Makes the engine; refuses what the scheme does not know.
    pub(crate) fn ready<'p>(
        self,
        args: &Sign,
        machine: &MachineOptions,
        files: usize,
        printer: &'p Printer,
    ) -> Result<PreparedSigner<'p>, Failure> {
        match self {
            Signer::SlhDsa(key) => {
                let redundant = args.redundancy.redundant;
                let engine = machine::engine_with(machine, printer, |builder| builder.redundant(redundant))?;
                let key = cache(&engine, key, args, files, printer)?;
                Ok(PreparedSigner::SlhDsa(engine, key))
            }
            Signer::ZkDilithium(key) => {
                zkdilithium::check_message(&args.message)?;
                zkdilithium::refuse(&[
                    (args.digest.is_some(), "--digest"),
                    (args.cache_layers.is_some(), "--cache-layers"),
                    (args.cache_memory.is_some(), "--cache-memory"),
                ])?;
                let redundant = args.redundancy.redundant;
                let engine = zkdilithium::engine_with(machine, printer, |builder| builder.redundant(redundant))?;
                Ok(PreparedSigner::ZkDilithium(engine, key))
            }
        }
    }
}

impl PreparedSigner<'_> {
    /// Signs one message.
    pub(crate) fn sign(&self, mode: Mode<'_>, message: &[u8], deterministic: bool) -> Result<Vec<u8>, Failure> {
        let randomizer = if deterministic { Randomizer::Deterministic } else { Randomizer::Hedged };
        Ok(match self {
            PreparedSigner::SlhDsa(engine, key) => engine.sign(key, mode, message, randomizer)?.as_bytes().to_vec(),
            PreparedSigner::ZkDilithium(engine, key) => engine.sign(key, message)?.as_bytes().to_vec(),
        })
    }

    /// Whose signatures it makes, and their bytes.
    pub(crate) fn signature(&self) -> (&'static str, usize) {
        match self {
            PreparedSigner::SlhDsa(_, key) => (key.params().name, key.params().sig_bytes()),
            PreparedSigner::ZkDilithium(..) => (zk::params::NAME, zk::params::SIG_BYTES),
        }
    }

    /// What its public key is called.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        match self {
            PreparedSigner::SlhDsa(_, key) => key.verifying_key().fingerprint(),
            PreparedSigner::ZkDilithium(_, key) => key.verifying_key().fingerprint(),
        }
    }

    /// Signs all files that have no signature to be kept, and writes the signatures.
    fn sign_all(
        &self,
        outputs: &Outputs<'_>,
        mut existing: Vec<Existing>,
        messages: &Messages<'_>,
        (mode, deterministic): (Mode<'_>, bool),
        header: Option<&Header>,
    ) -> Result<(), Failure> {
        let Outputs { files, replace: Replace { force, .. }, verdicts, .. } = *outputs;
        let mut claims =
            Claims::new(outputs, "list each file once, and sign files of the same name into different directories");
        let mut message = |index: usize| {
            match existing.get_mut(index).and_then(Option::take) {
                Some(Ok(())) => {
                    verdicts.tell(index, Verdict::Kept);
                    return None;
                }
                Some(Err(failure)) if !force => {
                    verdicts.tell(index, Verdict::Error(failure));
                    return None;
                }
                _ => {}
            }
            let message = claims.claim(index).and_then(|()| messages.hash(&files[index], mode));
            message.map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
        };
        let (messages, indices) = tagged((0..files.len()).filter_map(|index| Some((index, message(index)?))));
        let by = Arc::new(SignedBy { set: self.signature().0, fingerprint: self.fingerprint(), name: None });
        let mut writing = Writing::new(outputs);
        let mut write = |signature: Result<&[u8], &Error>| {
            let index = indices.next();
            let signature = signature.map_err(|error| Failure::from(error.clone()).of(&files[index]));
            let bytes = signature.and_then(|bytes| armored(header, bytes));
            writing.write(index, Arc::clone(&by), bytes);
        };
        let done = match self {
            PreparedSigner::SlhDsa(engine, key) => {
                let randomizer = if deterministic { Randomizer::Deterministic } else { Randomizer::Hedged };
                let jobs = messages.map(|(mode, message)| SignJob::new(key, message).mode(mode).randomizer(randomizer));
                engine.sign_batch(jobs, |_, signature| write(signature.as_ref().map(Signature::as_bytes)))
            }
            PreparedSigner::ZkDilithium(engine, key) => {
                let jobs = messages.map(|(_, message)| zk::SignJob::new(key, message));
                engine.sign_batch(jobs, |_, signature| write(signature.as_ref().map(zk::Signature::as_bytes)))
            }
        };
        let written = writing.finish();
        done.map_err(Failure::from).and(written)
    }

    /// Whether the signatures that are there are those of the files; `None` where there is none.
    fn judge_existing(
        &self,
        mode: Mode<'_>,
        messages: &Messages<'_>,
        files: &[Source],
        targets: &[Target],
    ) -> Result<Vec<Existing>, Failure> {
        let (name, bytes) = self.signature();
        let existing: Vec<_> = files.iter().map(|_| Mutex::new(None)).collect();
        let tell = |index: usize, valid: Result<bool, Failure>| {
            let invalid = || {
                Failure::new(format!("{} exists, and is no signature of {} by this key", targets[index], files[index]))
                    .hint("replace it with --force, or sign into another directory with --out-dir")
            };
            let kept = valid.and_then(|valid| if valid { Ok(()) } else { Err(invalid()) });
            *existing[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        };
        let both = |index: usize| {
            let Target::File(path) = &targets[index] else { return None };
            fs::symlink_metadata(path).ok()?;
            let message = messages.hash(&files[index], mode);
            let both =
                message.and_then(|message| Ok((message, read_signature(&path.as_path().into(), &[(name, bytes)])?)));
            both.map_err(|failure| tell(index, Err(failure))).ok()
        };
        let both = (0..files.len()).filter_map(|index| Some((index, both(index)?)));
        match self {
            PreparedSigner::SlhDsa(engine, key) => {
                let key = &key.verifying_key();
                let jobs = both.map(|(index, ((mode, message), signature))| {
                    (index, VerifyJob::new(key, message, signature).mode(mode))
                });
                judge(engine, jobs, |index, valid| tell(index, valid.map_err(Failure::from)))?;
            }
            PreparedSigner::ZkDilithium(engine, key) => {
                let key = &key.verifying_key();
                let both = both.map(|(index, ((_, message), signature))| (index, (key, (message, signature))));
                zkdilithium::verify(engine, false, both, |index, valid| {
                    tell(index, valid.map_err(Failure::from));
                })?;
            }
        }
        Ok(existing.into_iter().map(|of_file| of_file.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
    }
}

/// Where each signature goes.
fn targets(args: &Sign, files: &[Named]) -> Result<Vec<Target>, Failure> {
    if let Some(directory) = &args.out_dir {
        is_directory(directory, "write to", MAKE_IT)?;
    }
    if let Some(output) = &args.output {
        if let [_] = files {
            return Ok(vec![output.as_path().into()]);
        }
        return Err(Failure::new(format!(
            "--output {} takes one signature, {} files are given",
            PathDisplay(output),
            files.len()
        ))
        .hint("name a directory with --out-dir, or leave it out: the signature of FILE goes to FILE.sig"));
    }
    let target = |file: &Named| match Source::from(file.path.as_path()) {
        Source::Stdin if args.out_dir.is_none() && files.len() == 1 => Ok(Target::Stdout),
        Source::Stdin => Err(Failure::new("the signature of standard input has no name")
            .hint("sign standard input alone, and name its signature with --output")),
        Source::File(_) => Ok(Target::File(signature_of(file, args.out_dir.as_deref()))),
    };
    let targets = files.iter().map(target).collect::<Result<Vec<_>, _>>()?;
    for target in targets.iter().filter(|_| args.recursive && args.out_dir.is_some()) {
        let Target::File(path) = target else { continue };
        let directory = directory(path);
        fs::create_dir_all(directory).map_err(|error| Failure::io("make", PathDisplay(directory), &error))?;
    }
    Ok(targets)
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

/// The key with the nodes of its top layers, if that is asked for or worth it.
fn cache(
    engine: &Engine,
    key: SigningKey,
    args: &Sign,
    files: usize,
    printer: &Printer,
) -> Result<SigningKey, Failure> {
    let p = key.params();
    // Layers that were asked for and do not fit: fewer are a way out too.
    let fewer = |error: Error| match error {
        Error::OutOfMemory { .. } => Failure::from(error)
            .hint("ask for fewer layers with --cache-layers or --cache-memory, or give more memory with --memory"),
        error => error.into(),
    };
    let key = match (args.cache_layers, args.cache_memory) {
        (_, Some(bytes)) => engine.cache_within(&key, usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(fewer)?,
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
