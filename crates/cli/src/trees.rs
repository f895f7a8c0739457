//! Whole trees of files: `--recursive`, and manifests.

use crate::args::{MachineOptions, Named, Sign, Verify};
use crate::files::{Access, CHECK_IT, Replace, Source, Sources, Target, commit_pair, directory, is_directory};
use crate::json::Word;
use crate::sign::{OwnLedger, Signer, signature_path};
use crate::staged::is_temporary;
use crate::verdicts::{SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::verify::{Keys, judge_one, missing, read_signature};
use hypergrove::Mode;
use hypergrove::manifest::{self, Manifest, ManifestEntry, ManifestError};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a directory that are signed one by one: no signatures.
pub(crate) fn files(tree: &Path) -> Result<Vec<Named>, Failure> {
    let takes = |path: &Path| {
        path.extension().is_none_or(|extension| extension != "sig")
            && path.file_name().is_none_or(|name| !is_temporary(name))
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

/// Which files of a tree a manifest can list: neither itself nor its signature.
fn but_for(tree: &Path, files: [&Path; 2]) -> impl Fn(&Path) -> bool + use<> {
    let root = fs::canonicalize(tree).ok();
    let name = |file: &Path| {
        let directory = fs::canonicalize(directory(file)).ok()?;
        Some(directory.strip_prefix(root.as_ref()?).ok()?.join(file.file_name()?))
    };
    let names: Vec<PathBuf> = files.into_iter().filter_map(name).collect();
    move |path| !names.iter().any(|name| name == path)
}

/// Writes the manifest of a tree, and its signature next to it.
#[allow(clippy::too_many_arguments, reason = "what `sign` has read so far")]
pub(crate) fn sign(
    args: &Sign,
    tree: &Path,
    key: Signer,
    mode: Mode<'_>,
    read: Sources,
    ledger: &OwnLedger,
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
    let replace = Replace { force: args.overwrite.force, read: &read };
    for target in [&target, &signature] {
        target.check(Access::Public, false, replace)?;
    }
    let key = key.ready(args, machine, 1, printer)?;
    let hasher = machine::engine(machine, printer)?;
    let others = but_for(tree, [path, &signature_path]);
    // What this tool writes at the same time is no part of the tree.
    let takes = |path: &Path| others(path) && path.file_name().is_none_or(|name| !is_temporary(name));
    let listed = Manifest::of_tree(&hasher, tree, takes);
    let listed = listed.map_err(|error| failed(error, PathDisplay(tree)))?;
    let text = listed.to_bytes();
    ledger.reserve(1, printer)?;
    let bytes = key.sign(mode, &text, args.deterministic)?;
    let first = target.prepare(&text, Access::Public, replace)?;
    let second = signature.prepare(&bytes, Access::Second, replace)?;
    commit_pair(first, second, |_| "sign the manifest by itself, or make it anew".into(), printer)?;
    let (name, _) = key.signature();
    printer.note(format_args!("wrote {target}: the sums of {} files", grouped(listed.entries().len() as u64)));
    printer.note(format_args!("wrote {signature}: a signature of {name}"));
    let files = [Source::File(path.into())];
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Silent };
    let path_of = |_| Some(signature.path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "signing", Word::Signed);
    verdicts.tell(0, Verdict::Good(Arc::new(SignedBy { set: name, fingerprint: key.fingerprint(), name: None })));
    verdicts.finish(Ok(()))
}

/// Verifies a manifest's signature and then its files.
pub(crate) fn verify(
    args: &Verify,
    path: &Path,
    keys: &Keys<'_>,
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
    // What was verified is what is read: neither is looked at again.
    let text = source.read()?;
    let bytes = read_signature(&signature, &keys.signatures());
    let bytes = bytes.map_err(|failure| missing(failure, path, &signature))?;
    let verdict = judge_one(keys, args.strict, &text, &bytes, machine, printer)?;
    let (mut files, mut listed, mut extra) = (vec![source.clone()], None, Vec::new());
    if let Verdict::Good(_) = verdict {
        let manifest = Manifest::parse(&text).map_err(|error| match error {
            ManifestError::Empty => failed(error, &source).hint(ANEW),
            error => failed(error, &source),
        })?;
        if args.extra {
            let takes = but_for(tree, [path, &signature_path]);
            extra = manifest.extra(tree, takes).map_err(|error| failed(error, PathDisplay(tree)))?;
        }
        files.extend(manifest.entries().iter().map(ManifestEntry::path).map(|path| Source::File(path.into())));
        files.extend(extra.iter().map(|path| Source::File(path.clone())));
        listed = Some(manifest);
    }
    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let path_of = |index: usize| (index == 0).then(|| signature.path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    verdicts.tell(0, verdict);
    let done = listed.map_or(Ok(()), |manifest| {
        let engine = machine::engine(machine, printer)?;
        let check = manifest.check(&engine, tree, |index, matches| {
            let index = index + 1;
            let verdict = match matches {
                Ok(true) => Verdict::Intact,
                Ok(false) => Verdict::Invalid,
                Err(error) => Verdict::Error(unreadable(args, &files[index], tree, &error)),
            };
            verdicts.tell(index, verdict);
        });
        check.map_err(|error| failed(error, PathDisplay(tree)))?;
        (files.len() - extra.len()..files.len()).for_each(|index| verdicts.tell(index, Verdict::Extra));
        Ok(())
    });
    verdicts.finish(done)
}

fn unreadable(args: &Verify, file: &Source, tree: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::io("read", file, error);
    match error.kind() {
        std::io::ErrorKind::NotFound if args.root.is_none() => failure
            .hint(format!("the files are looked for in {}; name another directory with --root", PathDisplay(tree))),
        _ => failure,
    }
}
