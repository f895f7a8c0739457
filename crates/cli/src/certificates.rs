//! The verification of certificates, certificate requests and CMS.

use crate::args::{self, MachineOptions, Verify};
use crate::files::Source;
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::verdicts::{Advice, Remark, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::x509::{Document, failure};
use hypergrove::{Engine, SlhDsa, VerifyingKey};
use hypergrove_files::x509::{CmsVerdict, X509Error};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;
use std::path::PathBuf;
use std::sync::Arc;

/// A note on the checks that a verdict does not include.
const NOT_CHECKED: &str = "only the signature was checked: no chain, no date, no name and no revocation";

/// The keys that are named, with what they are called.
fn keys(args: &Verify) -> Result<Vec<(VerifyingKey, Arc<SignedBy>)>, Failure> {
    let mut keys = Vec::new();
    for path in args.issuer.iter().chain(&args.key) {
        let file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
        keys.push(file.public::<SlhDsa>(args.of.set)?);
    }
    for word in &args.public_key {
        keys.push(VerifyingKey::from_base64(word).map_err(|error| Failure::new(format!("--public-key: {error}")))?);
    }
    Ok(keys.into_iter().map(|key| (key.clone(), SignedBy::of::<SlhDsa>(&key, None))).collect())
}

/// `verify --certificate` and `verify --cms`.
pub(crate) fn verify(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let passphrase = args.passphrase.path();
    let given = args.certificate.iter().chain(&args.cms).chain(&args.issuer).chain(&args.key).chain(&args.inputs.files);
    args::one_stdin(given.chain(&passphrase).map(PathBuf::as_path))?;
    let files: Vec<Source> = args.certificate.iter().chain(&args.cms).map(|path| path.as_path().into()).collect();
    let keys = keys(args)?;
    let engine = machine::engine(machine, printer)?;
    let messages = Messages::new(machine, None);
    // The failure of the only file is the command's error.
    let alone = match &files[..] {
        [source] => Some(judge_file(args, &engine, &messages, source, &keys)?),
        _ => None,
    };
    let path_of = |index: usize| Some(files[index].path_text());
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    if let Some((verdict, remark)) = alone {
        verdicts.tell_with(0, verdict, remark);
    } else {
        for (index, source) in files.iter().enumerate() {
            match judge_file(args, &engine, &messages, source, &keys) {
                Ok((verdict, remark)) => verdicts.tell_with(index, verdict, remark),
                Err(failure) => verdicts.tell(index, Verdict::Error(failure)),
            }
        }
    }
    let exit = verdicts.finish(Ok(()))?;
    match &files[..] {
        [source] => printer.note(format_args!("{source}: {NOT_CHECKED}")),
        _ => printer.note(NOT_CHECKED),
    }
    Ok(exit)
}

/// Reads one file, and judges the signature in it.
fn judge_file(
    args: &Verify,
    engine: &Engine,
    messages: &Messages<'_>,
    source: &Source,
    keys: &[(VerifyingKey, Arc<SignedBy>)],
) -> Result<(Verdict, Option<Remark>), Failure> {
    let bytes =
        if args.cms.is_some() { messages.read(source)? } else { source.read_key("a certificate or request")?.to_vec() };
    let document = Document::read(&bytes).map_err(|failure| failure.of(source))?;
    let what = if args.cms.is_some() { "CMS with signatures" } else { "certificate or request" };
    let Some((document, ..)) =
        document.filter(|(document, ..)| matches!(document, Document::Cms(_)) == args.cms.is_some())
    else {
        return Err(Failure::new(format!("{source} is no {what}")).hint("`hypergrove inspect` shows what it is"));
    };
    let detached = match &args.inputs.files[..] {
        [] => None,
        [file] if args.cms.is_some() => Some(messages.read(&file.as_path().into())?),
        files => {
            return Err(Failure::new(format!(
                "{} files are given with {source}, --cms takes one and --certificate none",
                files.len()
            ))
            .hint("verify them one after the other"));
        }
    };
    let own;
    let keys = match &document {
        Document::Request(request) if keys.is_empty() => {
            let key = request.key().map_err(|error| failure(error).of(source))?;
            let by = SignedBy::of::<SlhDsa>(&key, None);
            own = [(key, by)];
            &own[..]
        }
        Document::Request(_) => {
            return Err(Failure::new(format!("{source} is a certificate request, which its own key has signed"))
                .hint("leave --issuer and --key out"));
        }
        _ if keys.is_empty() => {
            return Err(Failure::new(format!("nobody is named who may have signed {source}"))
                .hint("name the issuer's certificate with --issuer, or a key with --key"));
        }
        _ => keys,
    };
    judge(engine, &document, keys, detached.as_deref()).map_err(|error| failure(error).of(source))
}

/// One of the keys has to have signed.
fn judge(
    engine: &Engine,
    document: &Document,
    keys: &[(VerifyingKey, Arc<SignedBy>)],
    detached: Option<&[u8]>,
) -> Result<(Verdict, Option<Remark>), X509Error> {
    let (mut judged, mut remark, mut other, mut wrong) = (false, None, None, None);
    for (key, by) in keys {
        let valid = match document {
            Document::Certificate(certificate) => certificate.verify(engine, key),
            Document::Request(request) => request.verify(engine),
            Document::Cms(signed) => signed.verify(engine, key, detached).map(|verdict| {
                if verdict == CmsVerdict::Content {
                    let sentence =
                        "changed content: the signature is the key's, and the message is not the one that it is of";
                    remark = Some(Advice { sentence: sentence.into(), command: None }.into());
                }
                verdict == CmsVerdict::Valid
            }),
        };
        match valid {
            Ok(true) => return Ok((Verdict::Good(Arc::clone(by)), None)),
            Ok(false) => judged = true,
            Err(error @ X509Error::Algorithm { .. }) => other = Some(error),
            // Another key may have made a signature that is right.
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    match (wrong, other) {
        (Some(error), _) => Err(error),
        (None, Some(error)) if !judged => Err(error),
        _ => Ok((Verdict::Invalid, remark)),
    }
}
