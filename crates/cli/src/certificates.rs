//! The verification of certificates, certificate requests and CMS.

use crate::args::{self, MachineOptions, Verify};
use crate::files::Source;
use crate::json::Word;
use crate::keys::KeyFile;
use crate::message::Messages;
use crate::verdicts::{Advice, Remark, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::verify::keys_that_failed;
use crate::x509::{CERTIFICATE, Document, failure, other, subject_key};
use hypergrove::{Engine, KeyError, SlhDsa, VerifyingKey};
use hypergrove_files::x509::{CmsVerdict, X509Error};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;
use hypergrove_pem::{Pem, is_pem};
use std::path::PathBuf;
use std::sync::Arc;

/// A note on the checks that a verdict does not include.
const NOT_CHECKED: &str = "only the signature was checked: no chain, no date, no name and no revocation";

/// The keys that are named, with what they are called.
fn keys(args: &Verify) -> Result<Vec<(VerifyingKey, Arc<SignedBy>)>, Failure> {
    let mut keys = Vec::new();
    for path in args.issuer.iter().chain(&args.key) {
        let file = KeyFile::read(path.as_path().into(), Some(&args.passphrase))?;
        match issuers(&file.bytes).map_err(|failure| failure.of(&file.source))? {
            all if all.len() > 1 => keys.extend(all),
            _ => keys.push(file.public::<SlhDsa>(args.of.set)?),
        }
    }
    for word in &args.public_key {
        keys.push(VerifyingKey::from_base64(word).map_err(|error| Failure::new(format!("--public-key: {error}")))?);
    }
    Ok(keys.into_iter().map(|key| (key.clone(), SignedBy::of::<SlhDsa>(&key, None))).collect())
}

/// The keys of a PEM file with certificates or public keys and no private key. Any of several may be the issuer's.
fn issuers(bytes: &[u8]) -> Result<Vec<VerifyingKey>, Failure> {
    if !is_pem(bytes) {
        return Ok(Vec::new());
    }
    let pem = Pem::read(bytes).map_err(KeyError::from)?;
    if ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY"].iter().any(|label| pem.has(label)) {
        return Ok(Vec::new());
    }
    let certificates = pem.all(CERTIFICATE).map(|der| subject_key(&der.map_err(KeyError::from)?));
    let keys = pem.all("PUBLIC KEY").map(|der| Ok(VerifyingKey::read_spki(&der.map_err(KeyError::from)?)?));
    certificates.chain(keys).collect()
}

/// A signature to judge: the name of its verdict, and the certificate or request, unless the file is CMS, which is read when its turn comes.
type Unit = (Source, Option<Result<Document, Failure>>);

/// The certificates of each file, in the order in which they are there.
fn units(args: &Verify) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for path in &args.certificate {
        let source = Source::from(path.as_path());
        let read = source.read_key("a certificate or request");
        match read.and_then(|bytes| Ok((Document::all(&bytes).map_err(|failure| failure.of(&source))?, other(&bytes))))
        {
            Ok((all, _)) if all.len() > 1 => {
                let name = |number| PathBuf::from(format!("{}, certificate {number}", source.path_text()));
                units.extend(all.into_iter().zip(1..).map(|(document, number)| {
                    let source = Source::File(name(number));
                    let document = document.map_err(|failure| failure.of(&source));
                    (source, Some(document))
                }));
            }
            Ok((all, other)) => {
                let none = || Err(no_document(&source, "certificate or request", other));
                let is_cms = |document: &Result<Document, Failure>| matches!(document, Ok(Document::Cms(_)));
                let document = all.into_iter().find(|document| !is_cms(document));
                let document = document.map_or_else(none, |document| document.map_err(|failure| failure.of(&source)));
                units.push((source, Some(document)));
            }
            Err(failure) => units.push((source, Some(Err(failure)))),
        }
    }
    units.extend(args.cms.iter().map(|path| (path.as_path().into(), None)));
    units
}

fn no_document(source: &Source, what: &str, other: Option<&str>) -> Failure {
    match other {
        Some(other) => Failure::new(format!("{source} is no {what}: it holds {other}")),
        None => Failure::new(format!("{source} is no {what}")).hint("`hypergrove inspect` shows what it is"),
    }
}

/// `verify --certificate` and `verify --cms`.
pub(crate) fn verify(args: &Verify, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let passphrase = args.passphrase.path();
    let given = args.certificate.iter().chain(&args.cms).chain(&args.issuer).chain(&args.key).chain(&args.inputs.files);
    args::one_stdin(given.chain(&passphrase).map(PathBuf::as_path))?;
    let keys = keys(args)?;
    let (files, documents): (Vec<Source>, Vec<_>) = units(args).into_iter().unzip();
    let mut documents = documents.into_iter();
    let mut next = || documents.next().flatten();
    let engine = machine::engine(machine, printer)?;
    let messages = Messages::new(machine, None);
    // The failure of the only file is the command's error.
    let alone = match &files[..] {
        [source] => Some(judge_file(args, &engine, &messages, (source, next()), &keys)?),
        _ => None,
    };
    let path_of = |index: usize| Some(files[index].path_text());
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    if let Some((verdict, remark)) = alone {
        verdicts.tell_with(0, verdict, remark);
    } else {
        for (index, source) in files.iter().enumerate() {
            match judge_file(args, &engine, &messages, (source, next()), &keys) {
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
    (source, document): (&Source, Option<Result<Document, Failure>>),
    keys: &[(VerifyingKey, Arc<SignedBy>)],
) -> Result<(Verdict, Option<Remark>), Failure> {
    let document = match document {
        Some(document) => document?,
        None => {
            let bytes = messages.read(source)?;
            match Document::read(&bytes).map_err(|failure| failure.of(source))? {
                Some((document @ Document::Cms(_), ..)) => document,
                _ => return Err(no_document(source, "CMS with signatures", other(&bytes))),
            }
        }
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

/// The part of CMS that is wrong.
fn fault(verdict: CmsVerdict) -> Option<&'static str> {
    Some(match verdict {
        CmsVerdict::Valid => return None,
        CmsVerdict::Content => {
            "changed content: the signature is the key's, and the message is not the one that it is of"
        }
        CmsVerdict::LineFeeds => {
            "changed line ends: the signature is the key's, of this message with LF in place of CR LF; `tr -d '\\r' < FILE > NEW` makes it"
        }
        CmsVerdict::CarriageReturns => {
            "changed line ends: the signature is the key's, of this message with CR LF in place of LF; `sed 's/$/\\r/' FILE > NEW` makes it"
        }
        CmsVerdict::DigestLength => {
            "wrong digest: the signature is the key's, of a digest whose length is not that of its hash function"
        }
        CmsVerdict::AttributeOrder => {
            "wrong order: the signature is the key's, of attributes in the order in which they are written, which is not DER's; the signer has to sort them"
        }
        _ => "wrong signature: it is not the key's for this message, or for its attributes if it has some",
    })
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
                if remark.is_none() || verdict != CmsVerdict::Signature {
                    remark = fault(verdict).map(|sentence| Advice { sentence: sentence.into(), command: None }.into());
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
        _ => {
            let failed = || Advice { sentence: keys_that_failed(keys.iter().map(|(_, by)| by)), command: None }.into();
            Ok((Verdict::Invalid, Some(remark.unwrap_or_else(failed))))
        }
    }
}
