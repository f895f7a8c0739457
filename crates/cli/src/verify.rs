//! `hypergrove verify`.

use crate::args::{self, MachineOptions, Scheme, Verify, known_sets};
use crate::files::{Source, is_directory};
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::sign::signature_path;
use crate::tagged::tagged;
use crate::verdicts::{Verdict, Verdicts};
use crate::zkdilithium;
use hypergrove::zkdilithium as zk;
use hypergrove::{Engine, Error, VerifyJob, VerifyingKey};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Printer, Shown, grouped};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let inputs = &args.inputs;
    let passphrase = args.passphrase.path();
    let given = inputs.files.iter().chain(&inputs.list).chain(&args.signature).chain([&args.key]).chain(&passphrase);
    args::one_stdin(given.map(PathBuf::as_path))?;
    let mode = args.message.mode()?;
    let key_file = KeyFile::read(args.key.as_path().into(), Some(&args.passphrase))?;
    let key = match key_file.scheme(&args.of)? {
        Scheme::SlhDsa if args.strict => {
            return Err(Failure::new("--strict is for zkDilithium: SLH-DSA has one encoding").hint("leave it out"));
        }
        Scheme::SlhDsa => Verifier::SlhDsa(key_file.key(args.of.set)?.public()),
        Scheme::ZkDilithium => {
            zkdilithium::check_message(&args.message)?;
            Verifier::ZkDilithium(zkdilithium::key(&key_file)?.public())
        }
    };
    let paths = inputs.paths()?;
    let files: Vec<Source> = paths.iter().map(|path| path.as_path().into()).collect();
    let signatures = signatures(args, &paths)?;

    let verdicts = Verdicts::new(printer, &files, true, "verifying", "OK");
    let (name, bytes) = key.signature();
    let messages = Messages::new(machine);
    let read = |index: usize| {
        let both = messages.hash(&files[index], mode).and_then(|message| {
            let signature = read_signature(&signatures[index], name, bytes);
            Ok((message, signature.map_err(|failure| missing(failure, &paths[index], &signatures[index]))?))
        });
        both.map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
    };
    let tell = |index: usize, valid: Result<bool, Error>| {
        let verdict = match valid {
            Ok(true) => Verdict::Good,
            Ok(false) => Verdict::Invalid,
            Err(error) => Verdict::Error(Failure::from(error).of(&files[index])),
        };
        verdicts.tell(index, verdict);
    };
    let done = match &key {
        Verifier::SlhDsa(key) => {
            let engine = machine::engine(machine, printer)?;
            let jobs = (0..files.len()).filter_map(|index| {
                let ((mode, message), signature) = read(index)?;
                Some((index, VerifyJob::new(key, message, signature).mode(mode)))
            });
            if let [_] = files[..] {
                // Alone, it takes the engine's quick way: no threads are started.
                jobs.for_each(|(index, job)| {
                    tell(index, engine.verify(&job.key, job.mode, &job.message, &job.signature))
                });
                Ok(())
            } else {
                judge(&engine, jobs, tell)
            }
        }
        Verifier::ZkDilithium(key) => {
            let engine = zkdilithium::engine(machine, printer)?;
            let jobs = (0..files.len()).filter_map(|index| {
                let ((_, message), signature) = read(index)?;
                Some((index, (message, signature)))
            });
            zkdilithium::verify(&engine, key, args.strict, jobs, tell)
        }
    };
    let exit = verdicts.finish()?;
    done?;
    Ok(exit)
}

/// Judges signatures of SLH-DSA, each with its index.
pub(crate) fn judge<'a>(
    engine: &Engine,
    jobs: impl Iterator<Item = (usize, VerifyJob<'a>)> + Send,
    judged: impl Fn(usize, Result<bool, Error>),
) -> Result<(), Failure> {
    let (jobs, indices) = tagged(jobs);
    Ok(engine.verify_batch(jobs, |_, valid| judged(indices.next(), valid))?)
}

/// A public key.
enum Verifier {
    SlhDsa(VerifyingKey),
    ZkDilithium(zk::VerifyingKey),
}

impl Verifier {
    /// Whose signatures it verifies, and their bytes.
    fn signature(&self) -> (&'static str, usize) {
        match self {
            Verifier::SlhDsa(key) => (key.params().name, key.params().sig_bytes()),
            Verifier::ZkDilithium(_) => (zk::params::NAME, zk::params::SIG_BYTES),
        }
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

/// A signature, of the length of those of `name`.
pub(crate) fn read_signature(source: &Source, name: &str, want: usize) -> Result<Vec<u8>, Failure> {
    let known = || known_sets().map(|p| (p.name, p.sig_bytes())).chain([(zk::params::NAME, zk::params::SIG_BYTES)]);
    let longest = known().map(|(_, bytes)| bytes).max().unwrap_or(want);
    let bytes = source.read_up_to(longest as u64 + 1)?;
    if bytes.len() == want {
        return Ok(bytes);
    }
    let got = match bytes.len() {
        length if length > longest => format!("more than {}", grouped(longest as u64)),
        length => grouped(length as u64),
    };
    let failure = Failure::new(format!("{source} has {got} bytes, a signature of {name} has {}", grouped(want as u64)));
    Err(match known().find(|(_, length)| *length == bytes.len()) {
        Some((other, _)) => failure.hint(format!("it has the length of a {other} signature: use the key that made it")),
        None if bytes.len() < want => failure.hint("it is cut short, or no signature: copy it again"),
        None => failure.hint("it has bytes too many, or is no signature: copy it again"),
    })
}
