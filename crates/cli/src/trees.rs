//! Whole trees of files: `--recursive`, and manifests.

use crate::args::{Bytes, Inputs, MachineOptions, Sign, Verify};
use crate::diagnose::Origin;
use crate::files::{Access, CHECK_IT, Replace, Source, Sources, Target, commit_pair, directory, is_directory};
use crate::json::Word;
use crate::ledger::KeyLedger;
use crate::schemes::InTool;
use crate::sign::armored;
use crate::signatures::{Candidate, Named, Signer, judge_one, lengths, missing, signature_path};
use crate::staged::is_temporary;
use crate::verdicts::{Advice, Remark, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::verify::{Signed, fitting_key, keys_that_failed, note_failure};
use hypergrove::Mode;
use hypergrove::schemes::SignJob;
use hypergrove_files::envelope::{Envelope, Header, Mismatch};
use hypergrove_files::manifest::{self, Manifest, ManifestEntry, ManifestError};
use hypergrove_files::text::private_key;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Name, PathDisplay, Printer, grouped};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

impl Inputs {
    /// All files with the names that their signatures have in a directory of signatures; directories become what is in them.
    pub(crate) fn named(
        &self,
        digest: Option<&Bytes>,
        recursive: bool,
        printer: &Printer,
    ) -> Result<Vec<Named>, Failure> {
        let mut all = Vec::new();
        for path in self.paths_or(digest)? {
            if recursive && path.is_dir() {
                all.extend(files(&path, printer)?);
            } else {
                let name = path.file_name().unwrap_or(path.as_os_str()).into();
                all.push(Named { path, name });
            }
        }
        Ok(all)
    }
}

/// The files of a directory that are signed one by one: no signatures, and no links to them, which would change with them.
fn files(tree: &Path, printer: &Printer) -> Result<Vec<Named>, Failure> {
    let is_signature = |path: &Path| path.extension().is_some_and(|extension| extension == "sig");
    let takes = |path: &Path| {
        if is_signature(path) || is_being_written(path) {
            return false;
        }
        let leads_to_one = links(tree.join(path)).any(|path| is_signature(&path));
        if leads_to_one {
            printer.note(format_args!("{} is left out: it is a link to a signature", PathDisplay(&tree.join(path))));
        }
        !leads_to_one
    };
    let names = manifest::files(tree, takes).map_err(|error| failed(error, PathDisplay(tree)))?;
    if names.is_empty() {
        return Err(failed(ManifestError::Empty, PathDisplay(tree)));
    }
    Ok(names.into_iter().map(|name| Named { path: tree.join(&name), name }).collect())
}

/// The way out of a manifest that nobody should use.
const ANEW: &str = "make the manifest anew with `hypergrove sign --manifest DIR`, and check nothing by this one";

fn failed(error: ManifestError, thing: impl std::fmt::Display) -> Failure {
    match error {
        ManifestError::Line { .. } => Failure::new(error.to_string()).of(thing).hint(ANEW),
        ManifestError::Empty => Failure::new(format!("{thing} has no files"))
            .hint("name a directory that has some; signatures do not count"),
        ManifestError::Path { path, what } => Failure::new(what)
            .of(PathDisplay(&path))
            .hint("take it out of the tree, or put a copy of what it leads to in its place"),
        ManifestError::Io { path, source } => Failure::io("read", PathDisplay(&path), &source),
        ManifestError::Engine(error) => error.into(),
    }
}

/// The targets of a link: the path that it names, the next one if that is a link too, and so on to the end, which need not exist.
fn links(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    /// As many as Linux follows.
    const MOST: usize = 40;
    let next = |path: &PathBuf| Some(directory(path).join(fs::read_link(path).ok()?));
    std::iter::successors(next(&path), next).take(MOST)
}

/// The path of a file whose directory's path has no links.
fn place(file: &Path) -> Option<PathBuf> {
    Some(fs::canonicalize(directory(file)).ok()?.join(file.file_name()?))
}

/// A manifest and its signature, as far as they are in the tree. The manifest lists neither them nor links to them.
struct OwnFiles {
    tree: PathBuf,
    places: Vec<PathBuf>,
}

impl OwnFiles {
    fn new(tree: &Path, files: [&Path; 2]) -> OwnFiles {
        let root = fs::canonicalize(tree).unwrap_or_else(|_| tree.into());
        let places = files.into_iter().filter_map(place).filter(|place| place.starts_with(&root)).collect();
        OwnFiles { tree: root, places }
    }

    /// Why a file of the tree is not listed, if it is not; its path begins in the tree.
    fn leaves_out(&self, path: &Path) -> Option<&'static str> {
        if self.places.is_empty() {
            return None;
        }
        let (path, is_own) = (self.tree.join(path), |path: &PathBuf| self.places.contains(path));
        if is_own(&path) {
            return Some("a manifest lists neither itself nor its signature");
        }
        let leads_to_one = links(path).any(|step| place(&step).is_some_and(|place| is_own(&place)));
        leads_to_one.then_some("it is a link to the manifest or to its signature")
    }
}

/// The files of a tree that a manifest is to list; says which are left out.
fn to_list(tree: &Path, own: &OwnFiles, printer: &Printer) -> Result<Vec<PathBuf>, Failure> {
    let takes = |path: &Path| {
        let why = own.leaves_out(path);
        if let Some(why) = why {
            printer.note(format_args!("{} is left out: {why}", PathDisplay(&tree.join(path))));
        }
        why.is_none() && !is_being_written(path)
    };
    manifest::files(tree, takes).map_err(|error| failed(error, PathDisplay(tree)))
}

/// Whether a path is that of a temporary. The tree does not include files that the tool is writing.
fn is_being_written(path: &Path) -> bool {
    path.file_name().is_some_and(is_temporary)
}

/// Writes the manifest of a tree, and its signature next to it.
#[allow(clippy::too_many_arguments, reason = "what `sign` has read so far")]
pub(crate) fn sign<S: InTool>(
    args: &Sign,
    tree: &Path,
    key: S::SigningKey,
    (mode, header): (Mode<'_>, Option<&Header>),
    mut read: Sources,
    ledger: Option<&KeyLedger>,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let Some(path) = args.output.as_deref().filter(|path| path.as_os_str() != "-") else {
        return Err(Failure::new("a manifest and its signature are two files, standard output takes one")
            .hint("name a file for the manifest with --output; its signature goes next to it"));
    };
    let signature_path = signature_path(path);
    is_directory(tree, "read", CHECK_IT)?;
    let (target, signature) = (Target::File(path.into()), Target::File(signature_path.clone()));
    let own = OwnFiles::new(tree, [path, &signature_path]);
    for path in to_list(tree, &own, printer)? {
        let file = Source::File(tree.join(path));
        read.add(&file, &file);
    }
    let replace = Replace { force: args.overwrite.force, read: &read };
    for target in [&target, &signature] {
        target.check(Access::Public, false, replace)?;
    }
    let signer = Signer::<S>::new(key, args, machine, 1, printer)?;
    let hasher = machine::engine(machine, printer)?;
    let takes = |path: &Path| own.leaves_out(path).is_none() && !is_being_written(path);
    let listed = Manifest::of_tree(&hasher, tree, takes);
    let listed = listed.map_err(|error| failed(error, PathDisplay(tree)))?;
    warn_of_twins(&listed, printer);
    let text = listed.to_bytes();
    ledger.map_or(Ok(()), |ledger| ledger.reserve(1, printer))?;
    let job = S::signed(SignJob::new(&signer.key, &text[..]), mode, args.deterministic);
    let bytes = signer.engine.run(job)?;
    let first = target.prepare(&text, Access::Public, replace)?;
    let second = signature.prepare(&armored(header, bytes.as_ref())?, Access::Second, replace)?;
    commit_pair(first, second, |_| "sign the manifest by itself, or make it anew".into(), printer)?;
    let by = SignedBy::of::<S>(&S::public(&signer.key), None);
    printer.note(format_args!("wrote {target}: the sums of {} files", grouped(listed.entries().len() as u64)));
    printer.note(format_args!("wrote {signature}: a signature of {}", by.set));
    let files = [Source::File(path.into())];
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Silent };
    let path_of = |_| Some(signature.path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "signing", Word::Signed);
    verdicts.tell(0, Verdict::Good(by));
    verdicts.finish(Ok(()))
}

/// Verifies a manifest's signature and then its files.
pub(crate) fn verify<S: InTool>(
    args: &Verify,
    path: &Path,
    keys: &[Candidate<'_, S>],
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    if let Some(root) = &args.root {
        is_directory(root, "read", CHECK_IT)?;
    }
    let source = Source::from(path);
    let signature_path = match (&args.signature, &source) {
        (Some(path), _) => path.clone(),
        (None, Source::File(path)) => signature_path(path),
        (None, Source::Stdin) => {
            return Err(Failure::new("the signature of standard input has no name of its own")
                .hint("name the signature with --signature"));
        }
    };
    let tree = match (&args.root, &source) {
        (Some(root), _) => root.as_path(),
        (None, Source::File(path)) => directory(path),
        (None, Source::Stdin) => Path::new("."),
    };
    let signature = Source::from(signature_path.as_path());
    // The bytes that are verified are those that are read: neither file is looked at again.
    let text = source.read()?;
    let signed = Signed::read::<S>(&signature, &lengths(keys)).map_err(|failure| missing(failure, path, &signature))?;
    let (verdict, remark) = match &signed {
        Signed::Bare(bytes) => {
            let verdict = judge_one(keys, args.strict, &text, bytes, machine, printer)?;
            let is_invalid = matches!(verdict, Verdict::Invalid);
            let sentence = keys_that_failed(keys.iter().map(|key| &key.by));
            if is_invalid && !args.json {
                note_failure(args, &sentence, printer);
            }
            (verdict, (is_invalid && args.json).then(|| Advice { sentence, command: None }.into()))
        }
        Signed::Envelope(envelope) => of_envelope(args, envelope, &signature, keys, &text, machine, printer)?,
    };
    let (mut files, mut listed, mut extra) = (vec![source.clone()], None, Vec::new());
    if let Verdict::Good(_) = verdict {
        if let Some(place) = private_key(&text) {
            return Err(source.private(place));
        }
        let manifest = Manifest::parse(&text).map_err(|error| match error {
            ManifestError::Empty => failed(error, &source).hint(ANEW),
            error => failed(error, &source),
        })?;
        warn_of_twins(&manifest, printer);
        if args.extra {
            let own = OwnFiles::new(tree, [path, &signature_path]);
            extra = manifest
                .extra(tree, |path| own.leaves_out(path).is_none())
                .map_err(|error| failed(error, PathDisplay(tree)))?;
        }
        files.extend(manifest.entries().iter().map(ManifestEntry::path).map(|path| Source::File(path.into())));
        files.extend(extra.iter().map(|path| Source::File(path.clone())));
        listed = Some(manifest);
    }
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let path_of = |index: usize| (index == 0).then(|| signature.path_text());
    let mut verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    verdicts.are_names_signed = listed.is_some();
    verdicts.tell_with(0, verdict, remark);
    let done = listed.map_or(Ok(()), |manifest| {
        let engine = machine::engine(machine, printer)?;
        let check = manifest.check(&engine, tree, |index, matches| {
            let index = index + 1;
            let matches = matches.map_err(|error| unreadable(args, &files[index], tree, &error));
            verdicts.tell(index, Verdict::of(matches, Verdict::Intact));
        });
        check.map_err(|error| failed(error, PathDisplay(tree)))?;
        (files.len() - extra.len()..files.len()).for_each(|index| verdicts.tell(index, Verdict::Extra));
        Ok(())
    });
    verdicts.finish(done)
}

/// Warns of names that differ as bytes and are one name in Unicode's composed form (NFC): they look alike, and some systems have one file for
/// both of them.
fn warn_of_twins(manifest: &Manifest, printer: &Printer) {
    let mut by_form: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in manifest.entries().iter().filter_map(|entry| entry.path().to_str()) {
        by_form.entry(name.nfc().collect()).or_default().push(name);
    }
    for twins in by_form.values().filter(|names| names.len() > 1) {
        let names: Vec<_> = twins.iter().map(|name| format!("'{}'", name.escape_default())).collect();
        printer.warning(format_args!(
            "names that are equal after Unicode normalisation (NFC), so that some systems take them for one file: {}",
            names.join(", ")
        ));
    }
}

/// The verdict on the envelope of a manifest, with its comment or with what is wrong.
fn of_envelope<S: InTool>(
    args: &Verify,
    envelope: &Envelope,
    signature: &Source,
    keys: &[Candidate<'_, S>],
    text: &[u8],
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<(Verdict, Option<Remark>), Failure> {
    let wrong = |why: Mismatch| Some(Advice { sentence: why.to_string(), command: None }.into());
    let candidate = match fitting_key(args, envelope, signature, keys)? {
        Ok(candidate) => candidate,
        Err(why) => return Ok((Verdict::Invalid, wrong(why))),
    };
    let (header, context) = (envelope.header(), envelope.header().signed_context());
    let (key, by) = (candidate.key.clone(), Arc::clone(&candidate.by));
    let only: Candidate<'_, S> = Candidate { key, mode: header.mode(&context), by, origin: Origin::Word };
    let verdict = judge_one(&[only], args.strict, text, envelope.signature(), machine, printer)?;
    let remark = match verdict {
        Verdict::Good(_) => header.comment().map(|comment| Remark::Comment(comment.into())),
        _ => wrong(Mismatch::Content),
    };
    Ok((verdict, remark))
}

fn unreadable(args: &Verify, file: &Source, tree: &Path, error: &std::io::Error) -> Failure {
    let failure = match file {
        // Somebody has signed the name.
        Source::File(path) => Failure::io("read", Name(&path.to_string_lossy()), error),
        Source::Stdin => Failure::io("read", file, error),
    };
    match error.kind() {
        std::io::ErrorKind::NotFound if args.root.is_none() => failure
            .hint(format!("the files are looked for in {}; name another directory with --root", PathDisplay(tree))),
        std::io::ErrorKind::NotFound => failure.hint(format!("it is missing in {}", PathDisplay(tree))),
        _ => failure,
    }
}
