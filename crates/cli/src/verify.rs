//! `hypergrove verify`.

use crate::args::{self, Encoding, MachineOptions, MessageOptions, Scheme, Verify};
use crate::diagnose::{Origin, Suspect, advice};
use crate::files::{Access, CHECK_IT, Replace, Source, Sources, Target, is_directory};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::{self, Jobs, Messages};
use crate::schemes::{self, InTool, of_scheme};
use crate::signatures::{Candidate, Named, judge, lengths, missing, of_length, signature_of};
use crate::verdicts::{Advice, Remark, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::{certificates, table, trees};
use hypergrove::schemes::SchemeKey;
use hypergrove::{Engine, Error, Mode, VerifyingKey};
use hypergrove_files::envelope::{self, Envelope, MAX_ENVELOPE, Mismatch};
use hypergrove_files::signers::{AllowedSigners, NotAllowed};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

pub(crate) fn run(args: &Verify, read: Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    // clap does not ask for what conflicts with something that is there.
    if args.issuer.is_some() && args.certificate.is_empty() {
        return Err(Failure::new("--issuer is for --certificate").hint("name the key with --key"));
    }
    if !args.certificate.is_empty() || args.cms.is_some() {
        return certificates::verify(args, machine, printer);
    }
    let inputs = &args.inputs;
    let passphrase = args.passphrase.path();
    let given = inputs.files.iter().chain(&inputs.list).chain(&args.signature).chain(&args.key);
    let given = given.chain(&args.allowed_signers).chain(&args.manifest).chain(&args.table).chain(&passphrase);
    args::one_stdin(given.map(PathBuf::as_path))?;
    if let Some(table) = &args.table {
        return table::verify(args, table, machine, printer);
    }
    // Of options that exclude each other clap does not ask that one be there.
    if args.manifest.is_none() && (args.extra || args.root.is_some()) {
        return Err(Failure::new("--root and --extra are about a manifest, and none is given")
            .hint("name it with --manifest, or leave them out"));
    }
    let files = args.key.iter().map(|path| KeyFile::read(path.as_path().into(), Some(&args.passphrase)));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let scheme = files.first().map_or(Ok(Scheme::SlhDsa), |file| file.scheme(&args.of))?;
    of_scheme!(scheme, S => by_keys::<S>(args, &files, read, machine, printer))
}

/// Verifies with keys of one scheme.
fn by_keys<S: InTool>(
    args: &Verify,
    key_files: &[KeyFile<'_>],
    mut read: Sources,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let (keys, left_out) = keys::<S>(args, key_files, printer)?;
    if let Some(manifest) = &args.manifest {
        return trees::verify(args, manifest, &keys, machine, printer);
    }
    let named = args.inputs.named(args.digest.as_ref(), args.recursive, printer)?;
    let files: Vec<Source> = named.iter().map(|file| file.path.as_path().into()).collect();
    let signatures = signatures(args, &named)?;
    if args.diagnose && (signatures.contains(&Source::Stdin) || files.contains(&Source::Stdin)) {
        return Err(Failure::new("--diagnose reads files again, standard input can be read once")
            .hint("put what comes by standard input into a file"));
    }
    let output = args.output.as_deref().map(Target::from);
    let format = match (&output, args.json) {
        (Some(Target::Stdout), true) => {
            return Err(Failure::new("the message and JSON would both go to standard output")
                .hint("name a file for the message with --output"));
        }
        (Some(Target::Stdout), false) => VerdictFormat::Notes,
        (_, true) => VerdictFormat::Json,
        (_, false) => VerdictFormat::Lines,
    };
    let mut messages = Messages::new(machine, args.digest.as_ref());
    // The command line need not name the signature's file.
    signatures.iter().filter(|_| output.is_some()).for_each(|signature| read.add(signature, signature));
    let replace = Replace { force: args.force, read: &read };
    if let Some(output) = &output {
        let [file] = &files[..] else {
            return Err(Failure::new(format!("--output takes one message, {} files are given", files.len()))
                .hint("verify them one by one, or leave it out"));
        };
        output.check(Access::Public, false, replace)?;
        messages.keep(file)?;
    }
    let path_of = |index: usize| Some(signatures[index].path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    let judging = Verification {
        args,
        named: &named,
        files: &files,
        signatures: &signatures,
        keys: &keys,
        lengths: lengths(&keys),
        left_out: &left_out,
        messages: &messages,
        verdicts: &verdicts,
        opened: files.iter().map(|_| OnceLock::new()).collect(),
        failed: Mutex::default(),
        bare: AtomicBool::new(false),
        best: Mutex::default(),
    };
    let engine = machine::engine(machine, printer)?;
    if files.contains(&Source::Stdin) && keys.iter().any(|key| key.mode != keys[0].mode) {
        return Err(Failure::new(
            "some keys are of HashSLH-DSA and others are not, and standard input can be read once",
        )
        .hint("put what was signed into a file, or name keys of one kind"));
    }
    let done = judging.by(&engine);
    // Once for all files: their keys are the same.
    if judging.bare.load(Ordering::Relaxed) {
        note_failure(args, &keys_that_failed(keys.iter().map(|key| &key.by)), printer);
    }
    drop(judging);
    let exit = verdicts.finish(done)?;
    if let (Exit::Good, Some(output)) = (exit, &output) {
        output.write_pieces(replace, printer, |take| messages.hand_out(take))?;
    }
    Ok(exit)
}

/// The files of a run, their signatures, and what is known of them so far.
struct Verification<'a, S: InTool> {
    args: &'a Verify,
    keys: &'a [Candidate<'a, S>],
    named: &'a [Named],
    files: &'a [Source],
    signatures: &'a [Source],
    /// Whose signatures the keys verify, and their bytes.
    lengths: Vec<(&'static str, usize)>,
    /// Who may not sign.
    left_out: &'a [LeftOut],
    messages: &'a Messages<'a>,
    verdicts: &'a Verdicts<'a>,
    /// The envelopes whose signatures are judged.
    opened: Vec<OnceLock<EnvelopeText>>,
    /// The files that failed, with their verdicts. They are diagnosed once all else is known.
    failed: Mutex<Vec<(usize, Verdict)>>,
    /// Whether a file failed, and nothing was said of it but that.
    bare: AtomicBool,
    /// The best verdict on a file so far: one key that made the signature suffices.
    best: Mutex<Option<Verdict>>,
}

/// A message and its signature, once for each key that may have signed it.
type MessageTrials<'m, S> = Vec<(Vec<Trial<'m, S>>, Jobs<'m, S>)>;

impl<S: InTool> Verification<'_, S> {
    fn by(&self, engine: &Engine) -> Result<(), Failure> {
        let jobs = (0..self.files.len()).flat_map(|index| {
            let trials = self.trials(index, engine).map_err(|failure| self.no_verdict(index, failure));
            let trials = trials.unwrap_or_default().into_iter().flat_map(|(tries, jobs)| tries.into_iter().zip(jobs));
            trials.map(|(one, job)| {
                let is_refused = self.args.strict && !S::is_canonical(&one.by.key, &job.signature);
                ((one, is_refused), job)
            })
        });
        let done = if let ([_], [_]) = (self.files, self.keys) {
            // Alone, it takes the engine's quick way: no threads are started.
            jobs.for_each(|(one, job)| self.tell(one, engine.run(job)));
            Ok(())
        } else {
            judge(engine, jobs, |one, valid| self.tell(one, valid))
        };
        self.diagnose(engine);
        done
    }

    /// A file's message and signature with the keys that may have signed it; none if a verdict is known without.
    fn trials(&self, index: usize, engine: &Engine) -> Result<MessageTrials<'_, S>, Failure> {
        let (file, messages, keys) = (&self.files[index], self.messages, self.keys);
        let signature = match Signed::read::<S>(&self.signatures[index], &self.lengths) {
            Ok(Signed::Bare(signature)) => signature,
            Ok(Signed::Envelope(envelope)) => return self.of_envelope(index, &envelope, engine),
            Err(failure) => {
                // Where both are wrong, the message is what was named.
                message::reader(file)?;
                return Err(self.absent(index, failure));
            }
        };
        let fits = |key: &&Candidate<'_, S>| key.key.scheme().sizes().signature == signature.len();
        let fitting: Vec<_> = keys.iter().filter(fits).collect();
        let (mut all, mut trials) = (tries(index, &fitting), Vec::new());
        // Keys of HashSLH-DSA among others: each kind takes a reading of its own.
        for same in fitting.chunk_by(|a, b| a.mode == b.mode) {
            let keys = same.iter().map(|by| &by.key).collect();
            let jobs = messages.to_verify::<S>(engine, keys, file, (same[0].mode, &signature))?;
            trials.push((all.by_ref().take(same.len()).collect(), jobs));
        }
        Ok(trials)
    }

    /// [`Self::trials`] for an envelope, which names its key.
    fn of_envelope(&self, index: usize, envelope: &Envelope, engine: &Engine) -> Result<MessageTrials<'_, S>, Failure> {
        let key = match fitting_key(self.args, envelope, &self.signatures[index], self.keys)? {
            Ok(key) => key,
            Err(why) => {
                self.mismatch(index, self.left_out(&why).unwrap_or_else(|| why.to_string()));
                return Ok(Vec::new());
            }
        };
        let header = envelope.header();
        let opened = self.opened[index].get_or_init(|| EnvelopeText {
            context: header.signed_context(),
            comment: header.comment().map(str::to_owned),
        });
        let of = (header.mode(&opened.context), envelope.signature());
        let jobs = self.messages.to_verify::<S>(engine, vec![&key.key], &self.files[index], of)?;
        Ok(vec![(tries(index, &[key]).collect(), jobs)])
    }

    /// Takes the result of one key; the verdict on a file is known with that on its last key.
    fn tell(&self, (one, is_refused): (Trial<'_, S>, bool), valid: Result<bool, Error>) {
        let Trial { index, by, last } = one;
        let valid = valid.map_err(|error| Failure::from(error).of(&self.files[index]));
        let verdict = Verdict::of(valid.map(|valid| valid && !is_refused), Verdict::Good(Arc::clone(&by.by)));
        let best = &mut *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match (best.take(), verdict) {
            (Some(good @ Verdict::Good(_)), _) | (_, good @ Verdict::Good(_)) => good,
            (Some(error @ Verdict::Error(_)), _) => error,
            (_, verdict) => verdict,
        };
        match last {
            true => self.report(index, kept),
            false => *best = Some(kept),
        }
    }

    /// Takes the verdict on a file.
    fn report(&self, index: usize, verdict: Verdict) {
        match (verdict, self.opened[index].get()) {
            (Verdict::Invalid, Some(_)) => self.mismatch(index, Mismatch::Content.to_string()),
            (verdict @ Verdict::Good(_), Some(EnvelopeText { comment, .. })) => {
                self.verdicts.tell_with(index, verdict, comment.clone().map(Remark::Comment));
            }
            (verdict @ (Verdict::Invalid | Verdict::Error(_)), None) if self.args.diagnose => {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).push((index, verdict));
            }
            (Verdict::Invalid, None) if self.args.json => {
                self.mismatch(index, keys_that_failed(self.keys.iter().map(|key| &key.by)))
            }
            (Verdict::Invalid, None) => {
                self.bare.store(true, Ordering::Relaxed);
                self.verdicts.tell(index, Verdict::Invalid);
            }
            (verdict, _) => self.verdicts.tell(index, verdict),
        }
    }

    fn no_verdict(&self, index: usize, failure: Failure) {
        self.report(index, Verdict::Error(failure));
    }

    /// The remark on the key of an envelope if the list names it, and its signer may not sign.
    fn left_out(&self, mismatch: &Mismatch) -> Option<String> {
        let Mismatch::Key { signed } = mismatch else { return None };
        let lines: Vec<_> = self
            .left_out
            .iter()
            .filter(|left_out| left_out.key.fingerprint() == *signed)
            .map(LeftOut::to_string)
            .collect();
        let why = || format!("signer left out: the envelope is of the key {signed}; {}", lines.join("; "));
        (!lines.is_empty()).then(why)
    }

    fn mismatch(&self, index: usize, sentence: String) {
        let advice = Advice { sentence, command: None };
        self.verdicts.tell_with(index, Verdict::Invalid, Some(advice.into()));
    }

    fn absent(&self, index: usize, failure: Failure) -> Failure {
        missing(failure, &self.named[index].path, &self.signatures[index])
    }

    /// Says of each file that failed why it may have.
    fn diagnose(&self, engine: &Engine) {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        let suspects = self.keys.iter().filter_map(|Candidate { key, mode, origin, .. }| {
            Some(Suspect { key: S::as_slh_dsa(key)?, mode: *mode, origin, left_out: None })
        });
        let suspects: Vec<_> = suspects.chain(self.left_out.iter().flat_map(|one| one.suspects(self.args))).collect();
        for (index, verdict) in failed {
            match advice(engine, self.args, &self.files[index], &self.signatures[index], &suspects) {
                Ok(advice) => self.verdicts.tell_with(index, verdict, advice.map(Remark::from)),
                Err(failure) => self.verdicts.tell(index, Verdict::Error(failure)),
            }
        }
    }
}

/// The fields of an envelope whose signature is judged.
struct EnvelopeText {
    /// The context that is signed.
    context: [u8; envelope::SIGNED_CONTEXT],
    comment: Option<String>,
}

/// The key of an envelope among those that may have signed, if the envelope is of the context and the mode that were requested.
pub(crate) fn fitting_key<'k, 'a, S: InTool>(
    args: &Verify,
    envelope: &Envelope,
    source: &Source,
    keys: &'k [Candidate<'a, S>],
) -> Result<Result<&'k Candidate<'a, S>, Mismatch>, Failure> {
    let header = envelope.header();
    let (Mode::Pure { context } | Mode::PreHash { context, .. }) = args.message.mode()? else {
        return Err(Failure::new(format!("{source} is an envelope, which the internal interface does not have"))
            .hint("leave --internal out"));
    };
    let found = keys.iter().find(|candidate| candidate.by.fingerprint == header.key());
    let Some((candidate, key)) = found.and_then(|candidate| Some((candidate, S::as_slh_dsa(&candidate.key)?))) else {
        return Ok(Err(Mismatch::Key { signed: header.key() }));
    };
    let is_other_hash = args.message.prehash.is_some_and(|hash| header.prehash() != Some(hash));
    Ok(match header.check(key, context) {
        Ok(()) if is_other_hash => Err(Mismatch::Mode { signed: header.prehash() }),
        Ok(()) => Ok(candidate),
        Err(mismatch) => Err(mismatch),
    })
}

/// A signature as it is found.
pub(crate) enum Signed {
    Bare(Vec<u8>),
    Envelope(Envelope),
}

impl Signed {
    /// An envelope, or a signature of the length of those of one of these.
    pub(crate) fn read<S: InTool>(source: &Source, of: &[(&str, usize)]) -> Result<Signed, Failure> {
        let bytes = source.read_up_to(MAX_ENVELOPE as u64 + 1)?;
        if S::SCHEME != Scheme::SlhDsa || !envelope::looks_like_it(&bytes) {
            return of_length(source, bytes, of).map(Signed::Bare);
        }
        Envelope::parse(&bytes).map(Signed::Envelope).map_err(|error| {
            Failure::new(error.to_string()).of(source).hint("copy the envelope again; docs/envelope.md has its format")
        })
    }
}

/// A file with one of the keys that may have signed it.
struct Trial<'k, S: InTool> {
    index: usize,
    by: &'k Candidate<'k, S>,
    /// No other key follows.
    last: bool,
}

/// A file with each key.
fn tries<'k, S: InTool>(index: usize, keys: &[&'k Candidate<'k, S>]) -> impl Iterator<Item = Trial<'k, S>> {
    let count = keys.len();
    keys.iter().enumerate().map(move |(i, by)| Trial { index, by, last: i + 1 == count })
}

/// A signer of the list who may not sign at this time, or with this context.
pub(crate) struct LeftOut {
    name: String,
    key: VerifyingKey,
    why: NotAllowed,
}

impl LeftOut {
    /// Whether the list names the key, and not for this time.
    pub(crate) fn is_of_another_time(&self) -> bool {
        matches!(self.why, NotAllowed::Early { .. } | NotAllowed::Late { .. })
    }

    /// The signer as one who may have signed nevertheless: with a context of the list, or at another time.
    fn suspects<'a>(&'a self, args: &'a Verify) -> Vec<Suspect<'a>> {
        let requested = args.message.mode_with(&self.key);
        let with = |context| match requested {
            Ok(Mode::PreHash { hash, .. }) => Some(Mode::PreHash { context, hash }),
            Ok(Mode::Pure { .. }) => Some(Mode::Pure { context }),
            _ => None,
        };
        let modes: Vec<_> = match &self.why {
            NotAllowed::Namespace { namespaces } => {
                namespaces.iter().filter_map(|name| with(name.as_bytes())).collect()
            }
            _ => requested.into_iter().collect(),
        };
        let of = |mode| Suspect { key: &self.key, mode, origin: &Origin::Word, left_out: Some(self) };
        modes.into_iter().map(of).collect()
    }
}

/// Notes why files fail that have no reason of their own. Whoever forgets the context would think that a release is forged.
pub(crate) fn note_failure(args: &Verify, sentence: &str, printer: &Printer) {
    let MessageOptions { context, context_hex, internal, .. } = &args.message;
    let advice = match context.is_none() && context_hex.is_none() && !internal {
        true => "; if the signer gave a context, name it with --context",
        false => "",
    };
    printer.note(format_args!("FAILED: {sentence}{advice}"));
}

/// Which keys have not made a signature that fails.
pub(crate) fn keys_that_failed<'a>(keys: impl IntoIterator<Item = &'a Arc<SignedBy>>) -> String {
    /// So many have room in a line.
    const SHOWN: usize = 3;
    let names: Vec<_> = keys.into_iter().map(|by| format!("{} of {}", by.fingerprint, by.set)).collect();
    match &names[..] {
        [key] => format!("no valid signature by the key {key}"),
        keys if keys.len() <= SHOWN => format!("no valid signature by any of the keys {}", keys.join(", ")),
        keys => format!("no valid signature by any of the {} keys", keys.len()),
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

/// The signers of a list.
pub(crate) fn signers(source: &Source) -> Result<AllowedSigners, Failure> {
    AllowedSigners::parse(&source.read_key("a list of signers")?)
        .map_err(|error| Failure::new(error.to_string()).of(source).hint("mend the line, or comment it out with #"))
}

/// All keys that the arguments name, at least one, and the signers of the list who may not sign.
fn keys<'a, S: InTool>(
    args: &'a Verify,
    files: &[KeyFile<'_>],
    printer: &Printer,
) -> Result<(Vec<Candidate<'a, S>>, Vec<LeftOut>), Failure> {
    let mode = args.message.mode()?;
    S::check_strict(args)?;
    let (mut keys, mut left_out) = (Vec::new(), Vec::new());
    let candidate = |key: S::VerifyingKey, name: Option<String>, origin: Origin| -> Result<_, Failure> {
        let by = SignedBy::of::<S>(&key, name);
        let of = || by.name.clone().unwrap_or_else(|| by.fingerprint.to_string());
        let mode = S::mode(&args.message, &key).map_err(|failure| failure.of(of()))?;
        Ok(Candidate { key, mode, by, origin })
    };
    let of_slh_dsa = |key: VerifyingKey, name: Option<String>, origin: Origin| {
        candidate(S::of_slh_dsa(key).ok_or_else(schemes::mixed)?, name, origin)
    };
    for (path, file) in args.key.iter().zip(files) {
        if file.scheme(&args.of)? != S::SCHEME {
            return Err(schemes::mixed());
        }
        let found = S::read(file, args.of.set)?;
        let origin = Origin::File { path: path.clone(), is_raw: found.encoding == Encoding::Raw };
        keys.push(candidate(found.key.public(), None, origin)?);
    }
    for word in &args.public_key {
        let key = VerifyingKey::from_base64(word).map_err(|error| {
            Failure::new(format!("--public-key: {error}"))
                .hint("give the word that `hypergrove pubkey --line` prints, or name a file with --key")
        })?;
        keys.push(of_slh_dsa(key, None, Origin::Word)?);
    }
    if let Some(path) = &args.allowed_signers {
        let source = Source::from(path.as_path());
        let signers = signers(&source)?;
        let at = args.at.unwrap_or_else(SystemTime::now);
        for signer in signers.iter() {
            let (name, key) = (signer.name().to_owned(), signer.key());
            match signer.check(mode, at) {
                Ok(()) => keys.push(of_slh_dsa(key.clone(), Some(name), Origin::List)?),
                Err(why) => left_out.push(LeftOut { name, key: key.clone(), why }),
            }
        }
        left_out.iter().for_each(|signer| printer.detail(format_args!("left out: {signer}")));
        if keys.is_empty() {
            let first = left_out.first().map_or(String::new(), |signer| format!("; {signer}"));
            return Err(Failure::new(format!("{source} allows nobody to sign at this time with this context{first}"))
                .hint("name the signer's context with --context, or another time with --at; --verbose lists who is left out"));
        }
    }
    S::check_message(&args.message)?;
    S::refuse(&[(args.digest.is_some(), "--digest"), (args.diagnose, "--diagnose")])?;
    // Keys of one mode together.
    keys.sort_by_key(|candidate: &Candidate<'_, S>| {
        S::as_slh_dsa(&candidate.key).is_some_and(|key| key.prehash().is_some())
    });
    Ok((keys, left_out))
}

/// Where each signature is.
fn signatures(args: &Verify, files: &[Named]) -> Result<Vec<Source>, Failure> {
    if let Some(directory) = &args.signature_dir {
        is_directory(directory, "read from", CHECK_IT)?;
    }
    if let Some(signature) = &args.signature {
        if let [_] = files {
            return Ok(vec![signature.as_path().into()]);
        }
        return Err(Failure::new(format!("--signature names one signature, {} files are given", files.len()))
            .hint("name their directory with --signature-dir, or leave it out: the signature of FILE is FILE.sig"));
    }
    let signature = |file: &Named| match Source::from(file.path.as_path()) {
        Source::Stdin => Err(Failure::new("the signature of standard input has no name of its own")
            .hint("verify standard input alone, and name its signature with --signature")),
        Source::File(_) => Ok(Source::File(signature_of(file, args.signature_dir.as_deref()))),
    };
    files.iter().map(signature).collect()
}
