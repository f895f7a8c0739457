//! `hypergrove sign`.

use crate::args::{self, MachineOptions, Scheme, Sign};
use crate::files::{Access, Batch, Fate, Source, Sources, Target, is_directory};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::tagged::tagged;
use crate::verdicts::{By, Told, Verdict, Verdicts};
use crate::verify::{judge, read_signature};
use crate::zkdilithium;
use hypergrove::zkdilithium as zk;
use hypergrove::{Engine, Fingerprint, Mode, Randomizer, SignJob, Signature, SigningKey, VerifyJob, cache_bytes};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine::{self, Watched};
use hypergrove_lab::printer::{Printer, Shown};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn run(args: &Sign, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let inputs = &args.inputs;
    let passphrase = args.passphrase.path();
    let given = inputs.files.iter().chain(&inputs.list).chain([&args.key]).chain(&passphrase);
    args::one_stdin(given.map(PathBuf::as_path))?;
    args.message.mode()?;
    let key_file = KeyFile::read(args.key.as_path().into(), Some(&args.passphrase))?;
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
    let paths = inputs.paths_or(args.digest.as_ref())?;
    let files: Vec<Source> = paths.iter().map(|path| path.as_path().into()).collect();
    let targets = targets(args, &paths)?;
    let force = args.overwrite.force;
    let list = inputs.list.as_deref().map(Source::from);
    let read = Sources::new(files.iter().chain(&list).chain([&key_file.source]));
    if args.skip_existing && files.contains(&Source::Stdin) {
        return Err(Failure::new("--skip-existing reads files twice, standard input can be read once")
            .hint("leave it out, or put what is to be signed into a file"));
    }
    if !inputs.many() {
        targets[0].check(Access::Public, true, force || args.skip_existing)?;
        targets[0].spare(&read)?;
    }
    let key = key.ready(args, machine, files.len(), printer)?;
    let (name, _) = key.signature();
    let by = Arc::new(By { set: name, fingerprint: key.fingerprint(), name: None });
    let messages = Messages::new(machine, args.digest.as_ref());
    let mut existing = match args.skip_existing {
        true => key.judge_existing(mode, &messages, &files, &targets)?,
        false => Vec::new(),
    };

    let told = match (args.json, inputs.many()) {
        (true, _) if targets.contains(&Target::Stdout) => {
            return Err(Failure::new("a signature and JSON would both go to standard output")
                .hint("name a file for the signature with --output"));
        }
        (true, _) => Told::Json,
        (false, true) => Told::Lines,
        (false, false) => Told::Not,
    };
    let path_of = |index: usize| targets[index].path_text();
    let verdicts = Verdicts::new(printer, &files, &path_of, told, "signing", Word::Signed);
    let (mut written, kept) = (BTreeSet::new(), AtomicBool::new(false));
    let mut message = |index: usize| {
        let (file, target) = (&files[index], &targets[index]);
        match existing.get_mut(index).and_then(Option::take) {
            Some(Ok(())) => {
                kept.store(true, Relaxed);
                verdicts.tell(index, Verdict::Kept);
                return None;
            }
            Some(Err(failure)) if !force => {
                verdicts.tell(index, Verdict::Error(failure));
                return None;
            }
            _ => {}
        }
        let unique = if target.entry().is_none_or(|entry| written.insert(entry)) {
            Ok(())
        } else {
            Err(Failure::new(format!("{file} would get the signature {target}, which another file has got"))
                .hint("list each file once, and sign files of the same name into different directories"))
        };
        let message = unique
            .and_then(|()| target.check(Access::Public, false, force))
            .and_then(|()| target.spare(&read))
            .and_then(|()| messages.hash(file, mode));
        message.map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
    };
    let batch = RefCell::new(Batch::default());
    let tell = |(index, written): Fate| {
        let verdict = written.map_or_else(Verdict::Error, |()| Verdict::Good(Arc::clone(&by)));
        verdicts.tell(index, verdict);
    };
    let write = |index: usize, signature: Result<&[u8], Failure>| {
        let signature = signature.map_err(|failure| failure.of(&files[index]));
        match signature.and_then(|bytes| targets[index].prepare(bytes, Access::Public, force)) {
            Ok(prepared) => batch.borrow_mut().add(index, prepared, printer).into_iter().for_each(tell),
            Err(failure) => tell((index, Err(failure))),
        }
    };
    let (messages, indices) = tagged((0..files.len()).filter_map(|index| Some((index, message(index)?))));
    let done = match &key {
        Ready::SlhDsa(engine, key) => {
            let randomizer = if args.deterministic { Randomizer::Deterministic } else { Randomizer::Hedged };
            let jobs = messages.map(|(mode, message)| SignJob::new(key, message).mode(mode).randomizer(randomizer));
            engine.sign_batch(jobs, |_, signature| {
                write(
                    indices.next(),
                    signature.as_ref().map(Signature::as_bytes).map_err(|error| error.clone().into()),
                );
            })
        }
        Ready::ZkDilithium(engine, key) => {
            let jobs = messages.map(|(_, message)| zk::SignJob::new(key, message));
            engine.sign_batch(jobs, |_, signature| {
                write(
                    indices.next(),
                    signature.as_ref().map(zk::Signature::as_bytes).map_err(|error| error.clone().into()),
                );
            })
        }
    };
    let mut batch = batch.into_inner();
    batch.flush(printer).into_iter().for_each(tell);
    let exit = verdicts.finish(done.map_err(Failure::from).and(batch.finish()))?;
    if let (false, Exit::Good, target @ Target::File(_)) = (inputs.many(), exit, &targets[0]) {
        let done = if kept.load(Relaxed) { "kept" } else { "wrote" };
        printer.note(format_args!("{done} {target}: a signature of {name}"));
    }
    Ok(exit)
}

/// A private key.
enum Signer {
    SlhDsa(SigningKey),
    ZkDilithium(zk::SigningKey),
}

/// Whether a signature that is there is kept, and if not, why; `None` if there is none.
type Existing = Option<Result<(), Failure>>;

/// A private key with what signs by it.
enum Ready<'p> {
    SlhDsa(Watched<'p>, SigningKey),
    ZkDilithium(Watched<'p, zk::Engine>, zk::SigningKey),
}

impl Signer {
    /// Makes the engine; refuses what the scheme does not know.
    fn ready<'p>(
        self,
        args: &Sign,
        machine: &MachineOptions,
        files: usize,
        printer: &'p Printer,
    ) -> Result<Ready<'p>, Failure> {
        match self {
            Signer::SlhDsa(key) => {
                let redundant = args.redundancy.redundant;
                let engine = machine::engine_with(machine, printer, |builder| builder.redundant(redundant))?;
                let key = cache(&engine, key, args, files, printer)?;
                Ok(Ready::SlhDsa(engine, key))
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
                Ok(Ready::ZkDilithium(engine, key))
            }
        }
    }
}

impl Ready<'_> {
    /// Whose signatures it makes, and their bytes.
    fn signature(&self) -> (&'static str, usize) {
        match self {
            Ready::SlhDsa(_, key) => (key.params().name, key.params().sig_bytes()),
            Ready::ZkDilithium(..) => (zk::params::NAME, zk::params::SIG_BYTES),
        }
    }

    /// What its public key is called.
    fn fingerprint(&self) -> Fingerprint {
        match self {
            Ready::SlhDsa(_, key) => key.verifying_key().fingerprint(),
            Ready::ZkDilithium(_, key) => key.verifying_key().fingerprint(),
        }
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
            Ready::SlhDsa(engine, key) => {
                let key = &key.verifying_key();
                let jobs = both.map(|(index, ((mode, message), signature))| {
                    (index, VerifyJob::new(key, message, signature).mode(mode))
                });
                judge(engine, jobs, |index, valid| tell(index, valid.map_err(Failure::from)))?;
            }
            Ready::ZkDilithium(engine, key) => {
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
fn targets(args: &Sign, paths: &[PathBuf]) -> Result<Vec<Target>, Failure> {
    if let Some(directory) = &args.out_dir {
        is_directory(directory, "write to")?;
    }
    if let Some(output) = &args.output {
        if let [_] = paths {
            return Ok(vec![output.as_path().into()]);
        }
        return Err(Failure::new(format!(
            "--output {} takes one signature, {} files are given",
            Shown(output),
            paths.len()
        ))
        .hint("name a directory with --out-dir, or leave it out: the signature of FILE goes to FILE.sig"));
    }
    let target = |path: &PathBuf| match Source::from(path.as_path()) {
        Source::Stdin if args.out_dir.is_none() && paths.len() == 1 => Ok(Target::Stdout),
        Source::Stdin => Err(Failure::new("the signature of standard input has no name")
            .hint("sign standard input alone, and name its signature with --output")),
        Source::File(path) => Ok(Target::File(signature_path(&path, args.out_dir.as_deref()))),
    };
    paths.iter().map(target).collect()
}

/// FILE.sig, beside its file or in `directory`.
pub(crate) fn signature_path(file: &Path, directory: Option<&Path>) -> PathBuf {
    let mut name = match (directory, file.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => file.into(),
    }
    .into_os_string();
    name.push(".sig");
    name.into()
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
    let key = match (args.cache_layers, args.cache_memory) {
        (_, Some(bytes)) => engine.cache_within(&key, usize::try_from(bytes).unwrap_or(usize::MAX))?,
        (Some(layers), _) if layers > p.d => {
            return Err(Failure::new(format!("--cache-layers {layers}: {p} has {} layers", p.d))
                .hint("1 saves the most for its memory"));
        }
        (Some(layers), _) => engine.cache(&key, layers)?,
        // The top tree is grown once instead of once for each file.
        _ if files > 1 => engine.cache(&key, 1)?,
        _ => key,
    };
    if let layers @ 1.. = key.cached_layers() {
        let bytes = cache_bytes(p, layers).unwrap_or_default();
        printer.detail(format_args!("the nodes of the top {layers} of {} layers are kept: {bytes} bytes", p.d));
    }
    Ok(key)
}
