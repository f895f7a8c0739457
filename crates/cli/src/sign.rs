//! `hypergrove sign`.

use crate::args::{self, MachineOptions, Sign};
use crate::files::{Access, MAKE_IT, Replace, Source, Sources, Target, directory, is_directory};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::outputs::{Claims, Outputs, Writing};
use crate::schemes::{InTool, of_scheme};
use crate::signatures::{Named, Signer, judge, read_signature, signature_of, unreserved};
use crate::tagged::tagged;
use crate::verdicts::{SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::{ledger, table, trees};
use hypergrove::Mode;
use hypergrove::schemes::SchemeKey;
use hypergrove_files::envelope::{Envelope, EnvelopeError, Header};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer};
use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn run(args: &Sign, read: Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let passphrase = args.passphrase.path();
    let given = args.inputs.files.iter().chain(&args.inputs.list);
    args::one_stdin(given.chain(&args.key).chain(&args.table).chain(&passphrase).map(PathBuf::as_path))?;
    args.message.mode()?;
    let path = match (&args.table, &args.key) {
        (Some(table), _) => return table::sign(args, table, read, machine, printer),
        (None, Some(path)) => path,
        (None, None) => unreachable!("the arguments require one of the two"),
    };
    let file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
    of_scheme!(file.scheme(&args.of)?, S => by_key::<S>(args, &file, read, machine, printer))
}

/// Signs with the key of a file.
fn by_key<S: InTool>(
    args: &Sign,
    key_file: &KeyFile<'_>,
    mut read: Sources,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let key = key_file.private::<S>(args.of.set)?;
    S::refuse(&[(args.armor, "--armor"), (args.ledger.is_some(), "--ledger")])?;
    S::check_message(&args.message)?;
    S::refuse(&[
        (args.digest.is_some(), "--digest"),
        (args.cache_layers.is_some(), "--cache-layers"),
        (args.cache_memory.is_some(), "--cache-memory"),
    ])?;
    let public = S::public(&key);
    let mode = S::mode(&args.message, &public).map_err(|failure| failure.of(&key_file.source))?;
    let header = match S::as_slh_dsa(&public) {
        Some(public) if args.armor => Some(Header::new(public, mode, args.comment.as_deref()).map_err(unfit)?),
        _ => unreserved(mode).map(|_| None)?,
    };
    let ledger = ledger::of(S::as_slh_dsa(&public), &key_file.source, args.ledger.as_deref(), printer)?;
    ledger.iter().for_each(|ledger| ledger.add_to(&mut read));
    let signed_context = header.as_ref().map(Header::signed_context);
    let mode = match (&header, &signed_context) {
        (Some(header), Some(context)) => header.mode(context),
        _ => mode,
    };
    if let Some(tree) = &args.manifest {
        return trees::sign::<S>(args, tree, key, (mode, header.as_ref()), read, ledger.as_ref(), machine, printer);
    }
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
        ledger.iter().try_for_each(|ledger| ledger.check(files.len()))?;
    }
    let signer = Signer::<S>::new(key, args, machine, files.len(), printer)?;
    let messages = Messages::new(machine, args.digest.as_ref());
    let existing = match args.skip_existing {
        true => signer.judge_existing(mode, &messages, &files, &targets)?,
        false => Vec::new(),
    };
    let kept = existing.iter().filter(|existing| matches!(existing, Some(Ok(())))).count();
    ledger.iter().try_for_each(|ledger| ledger.reserve(files.len() - kept, printer))?;
    let path_of = |index: usize| Some(targets[index].path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "signing", Word::Signed);
    let outputs = Outputs { files: &files, targets: &targets, replace, verdicts: &verdicts, printer };
    let done = signer.sign_all(&outputs, existing, &messages, (mode, args.deterministic), header.as_ref());
    let exit = verdicts.finish(done)?;
    if let (false, Exit::Good, target @ Target::File(_)) = (many, exit, &targets[0]) {
        let done = if kept > 0 { "kept" } else { "wrote" };
        printer.note(format_args!("{done} {target}: a signature of {}", public.scheme().name()));
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

/// A signature as it is written.
pub(crate) fn armored<'s>(header: Option<&Header>, signature: &'s [u8]) -> Result<Cow<'s, [u8]>, Failure> {
    let Some(header) = header else { return Ok(signature.into()) };
    let envelope = Envelope::new(header.clone(), signature).map_err(unfit)?;
    Ok(envelope.to_string().into_bytes().into())
}

/// The error of an input that does not go into an envelope.
fn unfit(error: EnvelopeError) -> Failure {
    Failure::new(format!("--armor: {error}")).hint("docs/envelope.md says what an envelope holds")
}

/// Whether a signature that is there is kept, and if not, why; `None` if there is none.
type Existing = Option<Result<(), Failure>>;

impl<S: InTool> Signer<'_, S> {
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
        let mut job = |index: usize| {
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
            let job = claims
                .claim(index)
                .and_then(|()| messages.to_sign::<S>(&self.engine, &self.key, &files[index], (mode, deterministic)));
            job.map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
        };
        let (jobs, indices) = tagged((0..files.len()).filter_map(|index| Some((index, job(index)?))));
        let by = SignedBy::of::<S>(&S::public(&self.key), None);
        let mut writing = Writing::new(outputs);
        let done = self.engine.sign_batch(jobs, |_, signature| {
            let index = indices.next();
            let signature = signature.as_ref().map_err(|error| Failure::from(error.clone()).of(&files[index]));
            writing.write(index, Arc::clone(&by), signature.and_then(|signature| armored(header, signature.as_ref())));
        });
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
        let key = &S::public(&self.key);
        let set = key.scheme();
        let length = (set.name(), set.sizes().signature);
        let existing: Vec<_> = files.iter().map(|_| Mutex::new(None)).collect();
        let tell = |index: usize, valid: Result<bool, Failure>| {
            let invalid = || {
                Failure::new(format!("{} exists, and is no signature of {} by this key", targets[index], files[index]))
                    .hint("replace it with --force, or sign into another directory with --out-dir")
            };
            let kept = valid.and_then(|valid| if valid { Ok(()) } else { Err(invalid()) });
            *existing[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        };
        let jobs = |index: usize| {
            let Target::File(path) = &targets[index] else { return None };
            fs::symlink_metadata(path).ok()?;
            let job = read_signature(&path.as_path().into(), &[length]).and_then(|signature| {
                messages.to_verify::<S>(&self.engine, vec![key], &files[index], (mode, &signature))
            });
            job.map_err(|failure| tell(index, Err(failure))).ok()
        };
        let jobs = (0..files.len()).flat_map(|index| jobs(index).into_iter().flatten().map(move |job| (index, job)));
        judge::<S, _>(&self.engine, jobs, |index, valid| tell(index, valid.map_err(Failure::from)))?;
        Ok(existing.into_iter().map(|of_file| of_file.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
    }
}

/// Where each signature goes.
fn targets(args: &Sign, files: &[Named]) -> Result<Vec<Target>, Failure> {
    // With --recursive, folders are made as they are needed: here the last one.
    match &args.out_dir {
        Some(out) if args.recursive && !out.exists() => is_directory(directory(out), "write to", MAKE_IT)?,
        Some(out) => is_directory(out, "write to", MAKE_IT)?,
        None => {}
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
