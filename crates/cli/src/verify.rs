//! `hypergrove verify`.

use crate::args::{self, MachineOptions, Named, Scheme, Verify};
use crate::diagnose::{Advice, Origin, Suspect, advice};
use crate::files::{CHECK_IT, Source, is_directory};
use crate::json::Word;
use crate::keys::{Encoding, KeyFile};
use crate::message::Messages;
use crate::sign::signature_of;
use crate::tagged::tagged;
use crate::verdicts::{Remark, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::{table, trees, x509, zkdilithium};
use hypergrove::envelope::{self, Envelope, MAX_ENVELOPE, Mismatch};
use hypergrove::signers::{AllowedSigners, NotAllowed};
use hypergrove::zkdilithium as zk;
use hypergrove::{Engine, Error, Fingerprint, Mode, VerifyJob, VerifyingKey, known_sets};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::fmt;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

pub(crate) fn run(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    // clap does not ask for what conflicts with something that is there.
    if args.issuer.is_some() && args.certificate.is_empty() {
        return Err(Failure::new("--issuer is for --certificate").hint("name the key with --key"));
    }
    if !args.certificate.is_empty() || args.cms.is_some() {
        return x509::verify(args, machine, printer);
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
    let (keys, left_out) = Keys::read(args, printer)?;
    if let Some(manifest) = &args.manifest {
        return trees::verify(args, manifest, &keys, machine, printer);
    }
    let named = inputs.named(args.digest.as_ref(), args.recursive, printer)?;
    let files: Vec<Source> = named.iter().map(|file| file.path.as_path().into()).collect();
    let signatures = signatures(args, &named)?;
    if args.diagnose && (signatures.contains(&Source::Stdin) || files.contains(&Source::Stdin)) {
        return Err(Failure::new("--diagnose reads files again, standard input can be read once")
            .hint("put what comes by standard input into a file"));
    }
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let path_of = |index: usize| Some(signatures[index].path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    let judging = Verification {
        args,
        named: &named,
        files: &files,
        signatures: &signatures,
        lengths: keys.signatures(),
        left_out: &left_out,
        messages: Messages::new(machine, args.digest.as_ref()),
        verdicts: &verdicts,
        opened: files.iter().map(|_| OnceLock::new()).collect(),
        failed: Mutex::default(),
        best: Mutex::default(),
    };
    let done = match &keys {
        Keys::SlhDsa(keys) => {
            let engine = machine::engine(machine, printer)?;
            if files.contains(&Source::Stdin) && keys.iter().any(|key| key.mode != keys[0].mode) {
                return Err(Failure::new(
                    "some keys are of HashSLH-DSA and others are not, and standard input can be read once",
                )
                .hint("put what was signed into a file, or name keys of one kind"));
            }
            judging.by_slh_dsa(keys, &engine)
        }
        Keys::ZkDilithium(keys) => {
            let engine = zkdilithium::engine(machine, printer)?;
            judging.by_zkdilithium(keys, &engine)
        }
    };
    drop(judging);
    verdicts.finish(done)
}

/// The files of a run, their signatures, and what is known of them so far.
struct Verification<'a> {
    args: &'a Verify,
    named: &'a [Named],
    files: &'a [Source],
    signatures: &'a [Source],
    /// Whose signatures the keys verify, and their bytes.
    lengths: Vec<(&'static str, usize)>,
    /// Who may not sign.
    left_out: &'a [LeftOut],
    messages: Messages<'a>,
    verdicts: &'a Verdicts<'a>,
    /// The envelopes whose signatures are judged.
    opened: Vec<OnceLock<EnvelopeText>>,
    /// What is diagnosed once all else is known.
    failed: Mutex<Vec<(usize, Verdict)>>,
    /// The best verdict on a file so far: one key that made the signature suffices.
    best: Mutex<Option<Verdict>>,
}

/// A message and its signature, once for each key that may have signed it.
type Group<'m> = (Mode<'m>, Vec<(&'m VerifyingKey, Trial)>, iter::RepeatN<(Vec<u8>, Vec<u8>)>);

impl Verification<'_> {
    fn by_slh_dsa(&self, keys: &[Candidate<'_, VerifyingKey>], engine: &Engine) -> Result<(), Failure> {
        let jobs = (0..self.files.len()).flat_map(|index| {
            let groups = self.groups(index, keys).map_err(|failure| self.no_verdict(index, failure));
            groups.unwrap_or_default().into_iter().flat_map(|(mode, tries, both)| {
                tries.into_iter().zip(both).map(move |((key, one), (message, signature))| {
                    (one, VerifyJob::new(key, message, signature).mode(mode))
                })
            })
        });
        let done = if let ([_], [_]) = (self.files, keys) {
            // Alone, it takes the engine's quick way: no threads are started.
            jobs.for_each(|(one, job)| self.tell(one, engine.verify(&job.key, job.mode, &job.message, &job.signature)));
            Ok(())
        } else {
            judge(engine, jobs, |one, valid| self.tell(one, valid))
        };
        self.diagnose(keys, engine);
        done
    }

    fn by_zkdilithium(&self, keys: &[Candidate<'_, zk::VerifyingKey>], engine: &zk::Engine) -> Result<(), Failure> {
        let signature_of = |index: usize| {
            let signature = read_signature(&self.signatures[index], &self.lengths);
            signature.map_err(|failure| self.absent(index, failure))
        };
        let jobs = (0..self.files.len()).flat_map(|index| {
            let message = self.messages.read(&self.files[index]);
            let both = message.and_then(|message| Ok((message, signature_of(index)?)));
            let both = both.map_err(|failure| self.no_verdict(index, failure)).ok();
            both.into_iter().flat_map(move |both| {
                let tries: Vec<_> = tries(index, &keys.iter().collect::<Vec<_>>()).collect();
                let both = iter::repeat_n(both, tries.len());
                tries.into_iter().zip(both).map(|((key, one), both)| (one, (key, both)))
            })
        });
        zkdilithium::verify(engine, self.args.strict, jobs, |one, valid| self.tell(one, valid))
    }

    /// A file's message and signature with the keys that may have signed it; none if a verdict is known without.
    fn groups<'m>(&'m self, index: usize, keys: &'m [Candidate<'m, VerifyingKey>]) -> Result<Vec<Group<'m>>, Failure> {
        let (file, messages) = (&self.files[index], &self.messages);
        let signature = match Signed::read(&self.signatures[index], &self.lengths) {
            Ok(Signed::Bare(signature)) => signature,
            Ok(Signed::Envelope(envelope)) => return self.of_envelope(index, &envelope, keys),
            Err(failure) => {
                // Where both are wrong, the message is what was named.
                messages.hash(file, keys[0].mode)?;
                return Err(self.absent(index, failure));
            }
        };
        let first = messages.hash(file, keys[0].mode)?;
        let fits = |key: &&Candidate<'_, VerifyingKey>| key.key.params().sig_bytes() == signature.len();
        let fitting: Vec<_> = keys.iter().filter(fits).collect();
        let mut first = Some(first).filter(|_| fitting[0].mode == keys[0].mode);
        let mut groups = Vec::new();
        let mut all = tries(index, &fitting);
        // Keys of HashSLH-DSA among others: each kind takes a message of its own.
        for same in fitting.chunk_by(|a, b| a.mode == b.mode) {
            let (mode, message) = match first.take() {
                Some(message) => message,
                None => messages.hash(file, same[0].mode)?,
            };
            let both = iter::repeat_n((message, signature.clone()), same.len());
            groups.push((mode, all.by_ref().take(same.len()).collect::<Vec<_>>(), both));
        }
        Ok(groups)
    }

    /// The same of an envelope, which names its key.
    fn of_envelope<'m>(
        &'m self,
        index: usize,
        envelope: &Envelope,
        keys: &'m [Candidate<'m, VerifyingKey>],
    ) -> Result<Vec<Group<'m>>, Failure> {
        let key = match fitting_key(self.args, envelope, &self.signatures[index], keys)? {
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
        let (mode, message) = self.messages.hash(&self.files[index], header.mode(&opened.context))?;
        let both = iter::repeat_n((message, envelope.signature().to_vec()), 1);
        Ok(vec![(mode, tries(index, &[key]).collect(), both)])
    }

    /// Takes the result of one key; the verdict on a file is known with that on its last key.
    fn tell(&self, Trial { index, by, last }: Trial, valid: Result<bool, Error>) {
        let verdict = match valid {
            Ok(true) => Verdict::Good(by),
            Ok(false) => Verdict::Invalid,
            Err(error) => Verdict::Error(Failure::from(error).of(&self.files[index])),
        };
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
            (verdict, _) => self.verdicts.tell(index, verdict),
        }
    }

    fn no_verdict(&self, index: usize, failure: Failure) {
        self.report(index, Verdict::Error(failure));
    }

    /// What is said of the key of an envelope if the list names it, and its signer may not sign.
    fn left_out(&self, mismatch: &Mismatch) -> Option<String> {
        let Mismatch::Key { signed } = mismatch else { return None };
        let lines: Vec<_> =
            self.left_out.iter().filter(|left_out| left_out.key == *signed).map(LeftOut::to_string).collect();
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
    fn diagnose(&self, keys: &[Candidate<'_, VerifyingKey>], engine: &Engine) {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        let suspects: Vec<_> =
            keys.iter().map(|Candidate { key, mode, origin, .. }| Suspect { key, mode: *mode, origin }).collect();
        for (index, verdict) in failed {
            match advice(engine, self.args, &self.files[index], &self.signatures[index], &suspects) {
                Ok(advice) => self.verdicts.tell_with(index, verdict, advice.map(Remark::from)),
                Err(failure) => self.verdicts.tell(index, Verdict::Error(failure)),
            }
        }
    }
}

/// What one message's signature is, by the keys that may have signed it.
pub(crate) fn judge_one(
    keys: &Keys<'_>,
    strict: bool,
    message: &[u8],
    signature: &[u8],
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Verdict, Failure> {
    match keys {
        Keys::SlhDsa(keys) => {
            let engine = machine::engine(machine, printer)?;
            for Candidate { key, mode, by, .. } in keys {
                if key.params().sig_bytes() == signature.len() && engine.verify(key, *mode, message, signature)? {
                    return Ok(Verdict::Good(Arc::clone(by)));
                }
            }
        }
        Keys::ZkDilithium(keys) => {
            let engine = zkdilithium::engine(machine, printer)?;
            for Candidate { key, by, .. } in keys {
                let is_acceptable = !strict || key.is_canonical_with(signature);
                if is_acceptable && engine.verify(key, message, signature)? {
                    return Ok(Verdict::Good(Arc::clone(by)));
                }
            }
        }
    }
    Ok(Verdict::Invalid)
}

/// Judges signatures of SLH-DSA, each with what it is of.
pub(crate) fn judge<'a, T: Send>(
    engine: &Engine,
    jobs: impl Iterator<Item = (T, VerifyJob<'a>)> + Send,
    judged: impl Fn(T, Result<bool, Error>),
) -> Result<(), Failure> {
    let (jobs, tags) = tagged(jobs);
    Ok(engine.verify_batch(jobs, |_, valid| judged(tags.next(), valid))?)
}

/// What was read of an envelope whose signature is judged.
struct EnvelopeText {
    /// The context that is signed.
    context: [u8; envelope::SIGNED_CONTEXT],
    comment: Option<String>,
}

/// The key of an envelope among those that may have signed, if the envelope is of the context and the mode that were asked.
fn fitting_key<'k, 'a>(
    args: &Verify,
    envelope: &Envelope,
    source: &Source,
    keys: &'k [Candidate<'a, VerifyingKey>],
) -> Result<Result<&'k Candidate<'a, VerifyingKey>, Mismatch>, Failure> {
    let header = envelope.header();
    let (Mode::Pure { context } | Mode::PreHash { context, .. }) = args.message.mode()? else {
        return Err(Failure::new(format!("{source} is an envelope, which the internal interface does not have"))
            .hint("leave --internal out"));
    };
    let Some(candidate) = keys.iter().find(|candidate| candidate.by.fingerprint == header.key()) else {
        return Ok(Err(Mismatch::Key { signed: header.key() }));
    };
    let is_other_hash = args.message.prehash.is_some_and(|hash| header.prehash() != Some(hash));
    Ok(match header.check(&candidate.key, context) {
        Ok(()) if is_other_hash => Err(Mismatch::Mode { signed: header.prehash() }),
        Ok(()) => Ok(candidate),
        Err(mismatch) => Err(mismatch),
    })
}

/// A signature as it is found.
enum Signed {
    Bare(Vec<u8>),
    Envelope(Envelope),
}

impl Signed {
    /// An envelope, or a signature of the length of those of one of these.
    fn read(source: &Source, of: &[(&str, usize)]) -> Result<Signed, Failure> {
        let bytes = source.read_up_to(MAX_ENVELOPE as u64 + 1)?;
        if !envelope::looks_like_it(&bytes) {
            return of_length(source, bytes, of).map(Signed::Bare);
        }
        Envelope::parse(&bytes).map(Signed::Envelope).map_err(|error| {
            Failure::new(error.to_string()).of(source).hint("copy the envelope again; docs/envelope.md has its format")
        })
    }
}

/// A file with one of the keys that may have signed it.
struct Trial {
    index: usize,
    by: Arc<SignedBy>,
    /// No other key follows.
    last: bool,
}

/// A file with each key.
fn tries<'k, K>(index: usize, keys: &[&'k Candidate<'_, K>]) -> impl Iterator<Item = (&'k K, Trial)> {
    let count = keys.len();
    keys.iter().enumerate().map(move |(i, Candidate { key, by, .. })| {
        let one = Trial { index, by: Arc::clone(by), last: i + 1 == count };
        (key, one)
    })
}

/// A signer of the list who may not sign at this time, or with this context.
pub(crate) struct LeftOut {
    name: String,
    key: Fingerprint,
    why: NotAllowed,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

/// A public key that may have signed.
pub(crate) struct Candidate<'a, K> {
    key: K,
    mode: Mode<'a>,
    by: Arc<SignedBy>,
    origin: Origin,
}

/// The public keys that may have signed, of one scheme.
pub(crate) enum Keys<'a> {
    SlhDsa(Vec<Candidate<'a, VerifyingKey>>),
    ZkDilithium(Vec<Candidate<'a, zk::VerifyingKey>>),
}

impl Keys<'_> {
    /// All that the arguments name, and the signers of the list who may not sign.
    fn read<'a>(args: &'a Verify, printer: &Printer) -> Result<(Keys<'a>, Vec<LeftOut>), Failure> {
        let mode = args.message.mode()?;
        let (mut slh_dsa, mut zkdilithium, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        let by = |set, fingerprint: Fingerprint, name| Arc::new(SignedBy { set, fingerprint, name });
        let of_slh_dsa = |key: VerifyingKey, name: Option<String>, origin: Origin| -> Result<_, Failure> {
            let by = by(key.params().name, key.fingerprint(), name);
            let of = || by.name.clone().unwrap_or_else(|| by.fingerprint.to_string());
            let mode = args.message.mode_with(&key).map_err(|failure| failure.of(of()))?;
            Ok(Candidate { key, mode, by, origin })
        };
        for path in &args.key {
            let file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
            match file.scheme(&args.of)? {
                Scheme::SlhDsa if args.strict => {
                    return Err(
                        Failure::new("--strict is for zkDilithium: SLH-DSA has one encoding").hint("leave it out")
                    );
                }
                Scheme::SlhDsa => {
                    let found = file.found(args.of.set)?;
                    let origin = Origin::File { path: path.clone(), is_raw: found.encoding == Encoding::Raw };
                    slh_dsa.push(of_slh_dsa(found.key.public(), None, origin)?);
                }
                Scheme::ZkDilithium => {
                    let key = zkdilithium::key(&file)?.public();
                    let by = by(zk::params::NAME, key.fingerprint(), None);
                    let origin = Origin::File { path: path.clone(), is_raw: false };
                    zkdilithium.push(Candidate { key, mode, by, origin });
                }
            }
        }
        for word in &args.public_key {
            let key = VerifyingKey::from_base64(word).map_err(|error| {
                Failure::new(format!("--public-key: {error}"))
                    .hint("give the word that `hypergrove pubkey --line` prints, or name a file with --key")
            })?;
            slh_dsa.push(of_slh_dsa(key, None, Origin::Word)?);
        }
        if let Some(path) = &args.allowed_signers {
            let source = Source::from(path.as_path());
            let signers = AllowedSigners::parse(&source.read_key("a list of signers")?).map_err(|error| {
                Failure::new(error.to_string()).of(&source).hint("mend the line, or comment it out with #")
            })?;
            let at = args.at.unwrap_or_else(SystemTime::now);
            for signer in signers.iter() {
                let (name, key) = (signer.name().to_owned(), signer.key());
                match signer.check(mode, at) {
                    Ok(()) => slh_dsa.push(of_slh_dsa(key.clone(), Some(name), Origin::List)?),
                    Err(why) => left_out.push(LeftOut { name, key: key.fingerprint(), why }),
                }
            }
            left_out.iter().for_each(|signer| printer.detail(format_args!("left out: {signer}")));
            if slh_dsa.is_empty() && zkdilithium.is_empty() {
                let first = left_out.first().map_or(String::new(), |signer| format!("; {signer}"));
                return Err(Failure::new(format!("{source} allows nobody to sign at this time with this context{first}"))
                    .hint("name the signer's context with --context, or another time with --at; --verbose lists who is left out"));
            }
        }
        let keys = match (slh_dsa.is_empty(), zkdilithium.is_empty()) {
            (false, false) => {
                Err(Failure::new("the keys are of SLH-DSA and of zkDilithium, one run takes one scheme's")
                    .hint("verify twice, with the keys of one scheme each"))
            }
            (true, _) => {
                zkdilithium::check_message(&args.message)?;
                zkdilithium::refuse(&[(args.digest.is_some(), "--digest"), (args.diagnose, "--diagnose")])?;
                Ok(Keys::ZkDilithium(zkdilithium))
            }
            (false, true) if args.strict => {
                Err(Failure::new("--strict is for zkDilithium: SLH-DSA has one encoding").hint("leave it out"))
            }
            (false, true) => {
                // Keys of one mode together.
                slh_dsa.sort_by_key(|candidate: &Candidate<'_, VerifyingKey>| candidate.key.prehash().is_some());
                Ok(Keys::SlhDsa(slh_dsa))
            }
        };
        Ok((keys?, left_out))
    }

    /// Whose signatures they verify, and their bytes.
    pub(crate) fn signatures(&self) -> Vec<(&'static str, usize)> {
        let mut all: Vec<_> = match self {
            Keys::SlhDsa(keys) => keys.iter().map(|c| (c.key.params().name, c.key.params().sig_bytes())).collect(),
            Keys::ZkDilithium(_) => vec![(zk::params::NAME, zk::params::SIG_BYTES)],
        };
        all.sort_unstable();
        all.dedup();
        all
    }
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

fn of_length(source: &Source, bytes: Vec<u8>, of: &[(&str, usize)]) -> Result<Vec<u8>, Failure> {
    let known = || known_sets().map(|p| (p.name, p.sig_bytes())).chain([(zk::params::NAME, zk::params::SIG_BYTES)]);
    let wanted = |length: usize| of.iter().any(|(_, bytes)| *bytes == length);
    let longest = known().map(|(_, bytes)| bytes).chain(of.iter().map(|(_, bytes)| *bytes)).max().unwrap_or_default();
    if wanted(bytes.len()) {
        return Ok(bytes);
    }
    let got = match bytes.len() {
        length if length > longest => format!("more than {}", grouped(longest as u64)),
        length => grouped(length as u64),
    };
    let want = of.iter().map(|(name, bytes)| format!("a signature of {name} has {}", grouped(*bytes as u64)));
    let failure = Failure::new(format!("{source} has {got} bytes, {}", want.collect::<Vec<_>>().join(", ")));
    Err(match known().find(|(_, length)| *length == bytes.len()) {
        Some((other, _)) => failure.hint(format!("it has the length of a {other} signature: use the key that made it")),
        None if of.iter().all(|(_, want)| bytes.len() < *want) => {
            failure.hint("it is cut short, or no signature: copy it again")
        }
        None => failure.hint("it has bytes too many, or is no signature: copy it again"),
    })
}
