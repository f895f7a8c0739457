//! Tables: rows of a key, a file and a signature, for `sign` and `verify`.

use crate::args::{KeyKind, MachineOptions, Scheme, Sign, Verify};
use crate::files::{Replace, Source, Sources, Target, listed_path};
use crate::json::Word;
use crate::keys::KeyFile;
use crate::ledger::{self, KeyLedger};
use crate::message::Messages;
use crate::outputs::{Claims, Outputs, Writing};
use crate::schemes::{InTool, of_scheme};
use crate::signatures::{judge, missing, read_signature, unreserved};
use crate::tagged::tagged;
use crate::verdicts::{Advice, SignedBy, Verdict, VerdictFormat, Verdicts};
use crate::verify::keys_that_failed;
use hypergrove::{Mode, SigningKey, SlhDsa, VerifyingKey};
use hypergrove_files::text::{Position, without_mark};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line of a table. A path `-` is a file of that name.
#[derive(PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) key: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) signature: PathBuf,
}

/// The rows of a table, at least one. One wrong line refuses the table.
pub(crate) fn rows(table: &Source, bytes: &[u8]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (number, line) in without_mark(bytes).split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let cells: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let wrong = |what: String| {
            Failure::new(format!("{table}: line {}: {what}", number + 1))
                .hint("write the file of a key, a file and that of its signature, with one tab between them")
        };
        let path = |index: usize| {
            let before = cells[..index].iter().map(|cell| String::from_utf8_lossy(cell).chars().count() + 1);
            let place = Position { line: number + 1, column: before.sum::<usize>() + 1 };
            listed_path(table, cells[index], place)
        };
        match cells[..] {
            [_, _, _] if cells.iter().all(|cell| !cell.is_empty()) => {
                rows.push(Row { key: path(0)?, file: path(1)?, signature: path(2)? })
            }
            [_, _, _] => return Err(wrong("a cell is empty".into())),
            _ => return Err(wrong(format!("it has {} cells, a row has 3", cells.len()))),
        }
    }
    match rows.is_empty() {
        true => Err(Failure::new(format!("{table} has no rows"))
            .hint("write the file of a key, a file and that of its signature on each line, with tabs between them")),
        false => Ok(rows),
    }
}

/// A key of some rows, what it makes of messages, and what it is called.
type TableKey<'a, K> = (K, Mode<'a>, Arc<SignedBy>);

/// The keys of a table. A key that cannot be read fails its rows alone.
struct TableKeys<'a, K>(BTreeMap<PathBuf, Result<TableKey<'a, K>, Failure>>);

impl<'a, K> TableKeys<'a, K> {
    fn read(
        rows: &[Row],
        of: &KeyKind,
        passphrase: &crate::passphrase::PassphraseOptions,
        key: impl Fn(&KeyFile<'_>) -> Result<(K, VerifyingKey), Failure>,
        mode: impl Fn(&VerifyingKey) -> Result<Mode<'a>, Failure>,
    ) -> TableKeys<'a, K> {
        let read = |path: &Path| {
            let file = KeyFile::read(Source::File(path.into()), Some(passphrase))?;
            let scheme = file.scheme(of)?;
            if scheme != Scheme::SlhDsa {
                let name = of_scheme!(scheme, S => S::NAME);
                return Err(Failure::new(format!("{} is a key of {name}, a table takes keys of SLH-DSA", file.source))
                    .hint("name the key with --key and its files without a table"));
            }
            let (key, public) = key(&file)?;
            let mode = mode(&public).map_err(|failure| failure.of(&file.source))?;
            Ok((key, mode, SignedBy::of::<SlhDsa>(&public, None)))
        };
        let mut keys = BTreeMap::new();
        for Row { key, .. } in rows {
            if !keys.contains_key(key) {
                keys.insert(key.clone(), read(key));
            }
        }
        TableKeys(keys)
    }

    fn of(&self, row: &Row) -> Result<&TableKey<'a, K>, Failure> {
        self.0[&row.key].as_ref().map_err(Failure::clone)
    }
}

/// The files of a table, and where their signatures are.
fn columns(rows: &[Row]) -> (Vec<Source>, Vec<PathBuf>) {
    rows.iter().map(|row| (Source::File(row.file.clone()), row.signature.clone())).unzip()
}

pub(crate) fn sign(
    args: &Sign,
    path: &Path,
    mut read: Sources,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let table = Source::from(path);
    let rows = rows(&table, &table.read_text()?)?;
    let keys: TableKeys<'_, (SigningKey, Option<KeyLedger>)> = TableKeys::read(
        &rows,
        &args.of,
        &args.passphrase,
        |file| {
            let key = file.private::<SlhDsa>(args.of.set)?;
            let public = key.verifying_key();
            let ledger = ledger::of(Some(&public), &file.source, None, printer)?;
            Ok(((key, ledger), public))
        },
        |key| args.message.mode_with(key).and_then(unreserved),
    );
    let (files, signatures) = columns(&rows);
    let targets: Vec<Target> = signatures.into_iter().map(Target::File).collect();
    let key_files = keys.0.keys().map(|path| Source::File(path.clone()));
    key_files.chain(files.iter().cloned()).for_each(|file| read.add(&file, &file));
    keys.0
        .values()
        .flatten()
        .filter_map(|((_, ledger), ..)| ledger.as_ref())
        .for_each(|ledger| ledger.add_to(&mut read));
    let replace = Replace { force: args.overwrite.force, read: &read };
    let mut counts = BTreeMap::<&Path, usize>::new();
    rows.iter().for_each(|row| *counts.entry(&row.key).or_default() += 1);
    let limited =
        || keys.0.iter().filter_map(|(path, key)| Some((key.as_ref().ok()?.0.1.as_ref()?, counts[path.as_path()])));
    // If one ledger has too few numbers, the others lose none.
    limited().try_for_each(|(ledger, count)| ledger.check(count))?;
    let engine = machine::engine_with(machine, printer, |builder| builder.redundant(args.redundancy.redundant))?;
    limited().try_for_each(|(ledger, count)| ledger.reserve(count, printer))?;
    let messages = Messages::new(machine, None);

    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let path_of = |index: usize| Some(targets[index].path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "signing", Word::Signed);
    let outputs = Outputs { files: &files, targets: &targets, replace, verdicts: &verdicts, printer };
    let mut claims = Claims::new(&outputs, "name another file for the signature in this row");
    let mut job = |index: usize| {
        let message = claims.claim(index).and_then(|()| keys.of(&rows[index])).and_then(|((key, _), mode, by)| {
            let job = messages.to_sign::<SlhDsa>(&engine, key, &files[index], (*mode, args.deterministic))?;
            Ok(((index, Arc::clone(by)), job))
        });
        message.map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
    };
    let (jobs, tags) = tagged((0..rows.len()).filter_map(&mut job));
    let mut writing = Writing::new(&outputs);
    let done = engine.sign_batch(jobs, |_, signature| {
        let (index, by) = tags.next();
        let bytes = signature.as_ref().map(|signature| signature.as_bytes().into());
        writing.write(index, by, bytes.map_err(|error| Failure::from(error.clone()).of(&files[index])));
    });
    let written = writing.finish();
    verdicts.finish(done.map_err(Failure::from).and(written))
}

pub(crate) fn verify(args: &Verify, path: &Path, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let table = Source::from(path);
    let rows = rows(&table, &table.read_text()?)?;
    let keys: TableKeys<'_, VerifyingKey> = TableKeys::read(
        &rows,
        &args.of,
        &args.passphrase,
        |file| file.public::<SlhDsa>(args.of.set).map(|key| (key.clone(), key)),
        |key| args.message.mode_with(key),
    );
    let (files, signatures) = columns(&rows);
    let engine = machine::engine(machine, printer)?;
    let messages = Messages::new(machine, None);

    let format = if args.json { VerdictFormat::Json } else { VerdictFormat::Lines };
    let path_of = |index: usize| Some(Source::File(signatures[index].clone()).path_text());
    let verdicts = Verdicts::new(printer, &files, &path_of, format, "verifying", Word::Ok);
    let job = |index: usize| {
        let read = || {
            let (key, mode, by) = keys.of(&rows[index])?;
            let source = Source::File(signatures[index].clone());
            let p = key.params();
            let signature = read_signature(&source, &[(p.name, p.sig_bytes())]);
            let signature = signature.map_err(|failure| missing(failure, &rows[index].file, &source))?;
            let jobs = messages.to_verify::<SlhDsa>(&engine, vec![key], &files[index], (*mode, &signature))?;
            Ok(jobs.map(move |job| ((index, Arc::clone(by)), job)))
        };
        read().map_err(|failure| verdicts.tell(index, Verdict::Error(failure))).ok()
    };
    let done = judge::<SlhDsa, _>(&engine, (0..rows.len()).filter_map(job).flatten(), |(index, by), valid| {
        let valid = valid.map_err(|error| Failure::from(error).of(&files[index]));
        // Each line has a key of its own.
        let failed = || Advice { sentence: keys_that_failed([&by]), command: None }.into();
        let remark = matches!(valid, Ok(false)).then(failed);
        verdicts.tell_with(index, Verdict::of(valid, Verdict::Good(by)), remark);
    });
    verdicts.finish(done)
}
