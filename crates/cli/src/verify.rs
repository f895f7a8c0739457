//! `hypergrove verify`.

use crate::args::{self, MachineOptions, Verify, known_sets};
use crate::failure::{Exit, Failure};
use crate::files::Source;
use crate::printer::{Printer, grouped};
use crate::sign::signature_path;
use crate::verdicts::{Verdict, Verdicts};
use crate::{keys, machine};
use hypergrove::{Error, Params, VerifyJob};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;

pub(crate) fn run(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let inputs = &args.inputs;
    let given = inputs.files.iter().chain(&inputs.list).chain(&args.signature).chain([&args.key]);
    args::one_stdin(given.map(PathBuf::as_path))?;
    let mode = args.message.mode()?;
    let key = keys::read(&args.key.as_path().into(), args.set.set)?.public();
    let paths = inputs.paths()?;
    let files: Vec<Source> = paths.iter().map(|path| path.as_path().into()).collect();
    let signatures = signatures(args, &paths)?;

    let engine = machine::engine(machine, printer)?;
    let verdicts = Verdicts::new(printer, &files, true, "verifying", "OK");
    let judged = RefCell::new(VecDeque::new());
    let jobs = files.iter().zip(&signatures).enumerate().filter_map(|(index, (file, signature))| {
        match file.read().and_then(|message| Ok((message, read_signature(signature, key.params())?))) {
            Ok((message, signature)) => {
                judged.borrow_mut().push_back(index);
                Some(VerifyJob { key: &key, mode, message: Cow::Owned(message), signature: Cow::Owned(signature) })
            }
            Err(failure) => {
                verdicts.tell(index, Verdict::Error(failure));
                None
            }
        }
    });
    let judge = |valid: Result<bool, Error>| {
        let index = judged.borrow_mut().pop_front().expect("one result a job");
        let verdict = match valid {
            Ok(true) => Verdict::Good,
            Ok(false) => Verdict::Invalid,
            Err(error) => Verdict::Error(Failure::from(error).of(&files[index])),
        };
        verdicts.tell(index, verdict);
    };
    let done = if let [_] = files[..] {
        // Alone, it takes the engine's quick way: no threads are started.
        jobs.for_each(|job| judge(engine.verify(job.key, job.mode, &job.message, &job.signature)));
        Ok(())
    } else {
        engine.verify_batch(jobs, |_, valid| judge(valid))
    };
    let exit = verdicts.finish()?;
    done?;
    Ok(exit)
}

/// Where each signature is.
fn signatures(args: &Verify, paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
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

/// A signature, of the set's length.
pub(crate) fn read_signature(source: &Source, p: &Params) -> Result<Vec<u8>, Failure> {
    let want = p.sig_bytes();
    let longest = known_sets().map(|p| p.sig_bytes()).max().unwrap_or(want);
    let bytes = source.read_up_to(longest as u64 + 1)?;
    if bytes.len() == want {
        return Ok(bytes);
    }
    let got = match bytes.len() {
        length if length > longest => format!("more than {}", grouped(longest as u64)),
        length => grouped(length as u64),
    };
    let failure = Failure::new(format!("{source} has {got} bytes, a signature of {p} has {}", grouped(want as u64)));
    Err(match known_sets().find(|other| other.sig_bytes() == bytes.len()) {
        Some(other) => failure.hint(format!("it has the length of a {other} signature: use the key that made it")),
        None if bytes.len() < want => failure.hint("it is cut short, or no signature: copy it again"),
        None => failure.hint("it has bytes too many, or is no signature: copy it again"),
    })
}
