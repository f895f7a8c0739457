//! `hypergrove verify`.

use crate::args::{self, MachineOptions, Scheme, Verify, known_sets};
use crate::files::{Source, is_directory};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::sign::signature_path;
use crate::tagged::tagged;
use crate::verdicts::{By, Told, Verdict, Verdicts};
use crate::zkdilithium;
use hypergrove::signers::AllowedSigners;
use hypergrove::zkdilithium as zk;
use hypergrove::{Engine, Error, Fingerprint, Mode, VerifyJob, VerifyingKey};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Printer, Shown, grouped};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

pub(crate) fn run(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let inputs = &args.inputs;
    let passphrase = args.passphrase.path();
    let given = inputs.files.iter().chain(&inputs.list).chain(&args.signature).chain(&args.key);
    let given = given.chain(&args.allowed_signers).chain(&passphrase);
    args::one_stdin(given.map(PathBuf::as_path))?;
    let keys = Keys::read(args, printer)?;
    let paths = inputs.paths_or(args.digest.as_ref())?;
    let files: Vec<Source> = paths.iter().map(|path| path.as_path().into()).collect();
    let signatures = signatures(args, &paths)?;

    let told = if args.json { Told::Json } else { Told::Lines };
    let path_of = |index: usize| signatures[index].path_text();
    let verdicts = Verdicts::new(printer, &files, &path_of, told, "verifying", Word::Ok);
    let lengths = keys.signatures();
    let messages = Messages::new(machine, args.digest.as_ref());
    let signature_of = |index: usize| {
        let signature = read_signature(&signatures[index], &lengths);
        signature.map_err(|failure| missing(failure, &paths[index], &signatures[index]))
    };
    let no_verdict = |index: usize, failure: Failure| verdicts.tell(index, Verdict::Error(failure));
    // One key that made the signature suffices; the verdict on a file is known with that on its last key.
    let best = Mutex::new(None);
    let tell = |Try { index, by, last }: Try, valid: Result<bool, Error>| {
        let verdict = match valid {
            Ok(true) => Verdict::Good(by),
            Ok(false) => Verdict::Invalid,
            Err(error) => Verdict::Error(Failure::from(error).of(&files[index])),
        };
        let best = &mut *best.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match (best.take(), verdict) {
            (Some(good @ Verdict::Good(_)), _) | (_, good @ Verdict::Good(_)) => good,
            (Some(error @ Verdict::Error(_)), _) => error,
            (_, verdict) => verdict,
        };
        match last {
            true => verdicts.tell(index, kept),
            false => *best = Some(kept),
        }
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
            let (messages, no_verdict) = (&messages, &no_verdict);
            let jobs = (0..files.len()).flat_map(|index| {
                let read = || {
                    // The message first: where both are wrong, it is what was named.
                    let first = messages.hash(&files[index], keys[0].mode)?;
                    let signature = signature_of(index)?;
                    let fits = |key: &&Candidate<'_, VerifyingKey>| key.key.params().sig_bytes() == signature.len();
                    let fitting: Vec<_> = keys.iter().filter(fits).collect();
                    let mut first = Some(first).filter(|_| fitting[0].mode == keys[0].mode);
                    let mut jobs = Vec::new();
                    let mut all = tries(index, &fitting);
                    // Keys of HashSLH-DSA beside others: each kind takes a message of its own.
                    for same in fitting.chunk_by(|a, b| a.mode == b.mode) {
                        let (mode, message) = match first.take() {
                            Some(message) => message,
                            None => messages.hash(&files[index], same[0].mode)?,
                        };
                        let both = std::iter::repeat_n((message, signature.clone()), same.len());
                        jobs.push((mode, all.by_ref().take(same.len()).collect::<Vec<_>>(), both));
                    }
                    Ok(jobs)
                };
                let jobs = read().map_err(|failure| no_verdict(index, failure)).unwrap_or_default();
                jobs.into_iter().flat_map(|(mode, tries, both)| {
                    tries.into_iter().zip(both).map(move |((key, one), (message, signature))| {
                        (one, VerifyJob::new(key, message, signature).mode(mode))
                    })
                })
            });
            if let ([_], [_]) = (&files[..], &keys[..]) {
                // Alone, it takes the engine's quick way: no threads are started.
                jobs.for_each(|(one, job)| tell(one, engine.verify(&job.key, job.mode, &job.message, &job.signature)));
                Ok(())
            } else {
                judge(&engine, jobs, tell)
            }
        }
        Keys::ZkDilithium(keys) => {
            let engine = zkdilithium::engine(machine, printer)?;
            let jobs = (0..files.len()).flat_map(|index| {
                let both = messages.read(&files[index]).and_then(|message| Ok((message, signature_of(index)?)));
                let both = both.map_err(|failure| no_verdict(index, failure)).ok();
                both.into_iter().flat_map(move |both| {
                    let tries: Vec<_> = tries(index, &keys.iter().collect::<Vec<_>>()).collect();
                    let both = std::iter::repeat_n(both, tries.len());
                    tries.into_iter().zip(both).map(|((key, one), both)| (one, (key, both)))
                })
            });
            zkdilithium::verify(&engine, args.strict, jobs, tell)
        }
    };
    verdicts.finish(done)
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

/// A file with one of the keys that may have signed it.
struct Try {
    index: usize,
    by: Arc<By>,
    /// No other key follows.
    last: bool,
}

/// A file with each key.
fn tries<'k, K>(index: usize, keys: &[&'k Candidate<'_, K>]) -> impl Iterator<Item = (&'k K, Try)> {
    let count = keys.len();
    keys.iter().enumerate().map(move |(i, Candidate { key, by, .. })| {
        let one = Try { index, by: Arc::clone(by), last: i + 1 == count };
        (key, one)
    })
}

/// A public key that may have signed.
struct Candidate<'a, K> {
    key: K,
    mode: Mode<'a>,
    by: Arc<By>,
}

/// The public keys that may have signed, of one scheme.
enum Keys<'a> {
    SlhDsa(Vec<Candidate<'a, VerifyingKey>>),
    ZkDilithium(Vec<Candidate<'a, zk::VerifyingKey>>),
}

impl Keys<'_> {
    /// All that the arguments name.
    fn read<'a>(args: &'a Verify, printer: &Printer) -> Result<Keys<'a>, Failure> {
        let mode = args.message.mode()?;
        let (mut slh_dsa, mut zkdilithium) = (Vec::new(), Vec::new());
        let by = |set, fingerprint: Fingerprint, name| Arc::new(By { set, fingerprint, name });
        let of_slh_dsa = |key: VerifyingKey, name: Option<String>| -> Result<_, Failure> {
            let by = by(key.params().name, key.fingerprint(), name);
            let of = || by.name.clone().unwrap_or_else(|| by.fingerprint.to_string());
            let mode = args.message.mode_with(&key).map_err(|failure| failure.of(of()))?;
            Ok(Candidate { key, mode, by })
        };
        for path in &args.key {
            let file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
            match file.scheme(&args.of)? {
                Scheme::SlhDsa if args.strict => {
                    return Err(
                        Failure::new("--strict is for zkDilithium: SLH-DSA has one encoding").hint("leave it out")
                    );
                }
                Scheme::SlhDsa => slh_dsa.push(of_slh_dsa(file.key(args.of.set)?.public(), None)?),
                Scheme::ZkDilithium => {
                    let key = zkdilithium::key(&file)?.public();
                    let by = by(zk::params::NAME, key.fingerprint(), None);
                    zkdilithium.push(Candidate { key, mode, by });
                }
            }
        }
        for word in &args.public_key {
            let key = VerifyingKey::from_base64(word).map_err(|error| {
                Failure::new(format!("--public-key: {error}"))
                    .hint("give the word that `hypergrove pubkey --line` prints, or name a file with --key")
            })?;
            slh_dsa.push(of_slh_dsa(key, None)?);
        }
        if let Some(path) = &args.allowed_signers {
            let source = Source::from(path.as_path());
            let signers = AllowedSigners::parse(&source.read_key()?).map_err(|error| {
                Failure::new(error.to_string()).of(&source).hint("mend the line, or comment it out with #")
            })?;
            let at = args.at.unwrap_or_else(SystemTime::now);
            let (allowed, others): (Vec<_>, Vec<_>) = signers.iter().partition(|signer| signer.may_sign(mode, at));
            for signer in others {
                printer.detail(format_args!("left out: {}, at this time or with this context", signer.name()));
            }
            if allowed.is_empty() && slh_dsa.is_empty() && zkdilithium.is_empty() {
                return Err(Failure::new(format!("{source} allows nobody to sign at this time with this context"))
                    .hint("name the signer's context with --context, or another time with --at; --verbose lists who is left out"));
            }
            for signer in allowed {
                slh_dsa.push(of_slh_dsa(signer.key().clone(), Some(signer.name().into()))?);
            }
        }
        match (slh_dsa.is_empty(), zkdilithium.is_empty()) {
            (false, false) => {
                Err(Failure::new("the keys are of SLH-DSA and of zkDilithium, one run takes one scheme's")
                    .hint("verify twice, with the keys of one scheme each"))
            }
            (true, _) => {
                zkdilithium::check_message(&args.message)?;
                zkdilithium::refuse(&[(args.digest.is_some(), "--digest")])?;
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
        }
    }

    /// Whose signatures they verify, and their bytes.
    fn signatures(&self) -> Vec<(&'static str, usize)> {
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
fn signatures(args: &Verify, paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    if let Some(directory) = &args.signature_dir {
        is_directory(directory, "read from")?;
    }
    if let Some(signature) = &args.signature {
        if let [_] = paths {
            return Ok(vec![signature.as_path().into()]);
        }
        return Err(Failure::new(format!("--signature names one signature, {} files are given", paths.len()))
            .hint("name their directory with --signature-dir, or leave it out: the signature of FILE is FILE.sig"));
    }
    let signature = |path: &PathBuf| match Source::from(path.as_path()) {
        Source::Stdin => Err(Failure::new("the signature of standard input has no name of its own")
            .hint("verify standard input alone, and name its signature with --signature")),
        Source::File(path) => Ok(Source::File(signature_path(&path, args.signature_dir.as_deref()))),
    };
    paths.iter().map(signature).collect()
}

/// Says where a signature that is not there was looked for.
fn missing(failure: Failure, file: &Path, signature: &Source) -> Failure {
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    match signature {
        Source::File(path) if !is_there(path) && file.extension().is_some_and(|extension| extension == "sig") => {
            let signed = file.with_extension("");
            failure.hint(format!("name the file that was signed; if {} is its signature, that is {}", Shown(file), Shown(&signed)))
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
    let known = || known_sets().map(|p| (p.name, p.sig_bytes())).chain([(zk::params::NAME, zk::params::SIG_BYTES)]);
    let wanted = |length: usize| of.iter().any(|(_, bytes)| *bytes == length);
    let longest = known().map(|(_, bytes)| bytes).chain(of.iter().map(|(_, bytes)| *bytes)).max().unwrap_or_default();
    let bytes = source.read_up_to(longest as u64 + 1)?;
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
