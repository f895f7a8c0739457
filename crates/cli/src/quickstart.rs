//! `hypergrove quickstart`: the whole of it, on one's own files.

use crate::args::{Encoding, MachineOptions, Quickstart};
use crate::files::{Access, FilesToSync, Replace, Source, Target, commit_pair};
use crate::keygen::public_is_missing;
use crate::keys::{encode_private, encode_public};
use crate::message::Messages;
use crate::signatures::signature_path;
use crate::tagged::tagged;
use hypergrove::{Engine, Op, Params, Rates, SignJob, SigningKey, SlhDsa, VerifyJob};
use hypergrove_lab::args::op_name;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, Table, grouped, seconds, significant};
use hypergrove_lab::stopwatch::{Question, measure};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for each measurement of the table.
const MEASURE: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &Quickstart, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let files = files_in(&args.dir)?;
    if files.is_empty() {
        return Err(Failure::new(format!("there are no files to sign in {}", PathDisplay(&args.dir)))
            .hint("name another directory: hypergrove quickstart DIR"));
    }
    if let Some(keep) = &args.keep {
        fs::create_dir(keep).map_err(|error| {
            Failure::io("make the directory", PathDisplay(keep), &error)
                .hint("give --keep a directory that does not exist yet")
        })?;
    }
    let engine = machine::engine(options, printer)?;
    let messages = Messages::new(options, None);
    let p = args.set;
    let say = |name: &str, text: String| printer.line(format_args!("{name:<9} {text}"));
    say("machine", machine::describe(&engine))?;

    let start = Instant::now();
    let key = engine.generate(p)?;
    say("key", format!("a new one of {p}, in {}", seconds(start.elapsed().as_secs_f64())))?;
    let keeper = args.keep.as_deref().map(|keep| Keeper { keep, dir: &args.dir, printer });
    if let Some(keeper) = &keeper {
        keeper.keys(&key)?;
    }
    // The top tree is grown once instead of once for each file.
    let key = engine.cache(&key, 1)?;

    let mut signatures = Signatures::new(p)?;
    let start = Instant::now();
    let (signed, bytes) = sign(&engine, &key, &files, &messages, &mut signatures, keeper.as_ref(), printer)?;
    let (count, time) = (signed.len() as u64, start.elapsed().as_secs_f64());
    let (rate, bytes) = (significant(count as f64 / time), grouped(bytes));
    say("signed", format!("{} files, {bytes} bytes, in {}: {rate} a second", grouped(count), seconds(time)))?;

    let start = Instant::now();
    let verified = verify(&engine, &key, &signed, &messages, &mut signatures, printer)?;
    let time = start.elapsed().as_secs_f64();
    let rate = significant(count as f64 / time);
    say("verified", format!("{} of {} in {}: {rate} a second", grouped(verified), grouped(count), seconds(time)))?;

    let refused = change(&engine, &key, &signed, &messages, &mut signatures)?;
    let (file, verdict) = (below(&args.dir, signed[0]), if refused { "refused" } else { "ACCEPTED" });
    let file = PathDisplay(file);
    say("changed", format!("one bit of {file}: its signature is {verdict}"))?;
    if verified < count || !refused {
        return Err(Failure::new("a signature was judged wrongly, or a file changed meanwhile")
            .hint("run it again; if that does not help, distrust this machine and report the fault"));
    }
    rates(&engine, p, options, printer)?;
    if let Some(keep) = &args.keep {
        let keep = PathDisplay(keep);
        printer.note(format_args!("\nkey and signatures are in {keep}; hypergrove verify --key {keep}/public.pem …"));
    } else {
        printer.note("\nnothing was kept: --keep DIR keeps key and signatures");
    }
    Ok(Exit::Good)
}

/// The files below a directory, in order: no hidden ones, none of what Cargo builds, no links.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut files, mut open) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = open.pop() {
        let failed = |error: io::Error| Failure::io("list the directory", PathDisplay(&dir), &error);
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && name != "target" {
                open.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A file's path without the directory's.
fn below<'f>(dir: &Path, file: &'f Path) -> &'f Path {
    file.strip_prefix(dir).unwrap_or(file)
}

/// Signatures of one set in a file without a name, which goes when the tool does.
struct Signatures {
    file: File,
    bytes: usize,
}

impl Signatures {
    fn new(p: &Params) -> Result<Signatures, Failure> {
        let file = tempfile::tempfile().map_err(|error| Failure::io("make", "a temporary file", &error))?;
        Ok(Signatures { file, bytes: p.sig_bytes() })
    }
    fn push(&mut self, signature: &[u8]) -> Result<(), Failure> {
        self.file.write_all(signature).map_err(|error| Failure::io("write", "a temporary file", &error))
    }
    fn get(&mut self, index: usize) -> Result<Vec<u8>, Failure> {
        let mut signature = vec![0; self.bytes];
        let at = SeekFrom::Start(index as u64 * self.bytes as u64);
        let read = self.file.seek(at).and_then(|_| self.file.read_exact(&mut signature));
        read.map(|()| signature).map_err(|error| Failure::io("read", "a temporary file", &error))
    }
}

/// Writes what shall be kept.
struct Keeper<'a> {
    keep: &'a Path,
    dir: &'a Path,
    printer: &'a Printer,
}

impl Keeper<'_> {
    fn keys(&self, key: &SigningKey) -> Result<(), Failure> {
        let prepare = |name: &str, bytes: &[u8], access| {
            Target::File(self.keep.join(name)).prepare(bytes, access, Replace::NOTHING)
        };
        let private = prepare("private.pem", &encode_private(key, Encoding::Pem)?, Access::Private)?;
        let public = prepare("public.pem", &encode_public(&key.verifying_key(), Encoding::Pem)?, Access::Public)?;
        commit_pair(private, public, public_is_missing, self.printer)
    }
    /// In the same place below the kept directory as the file below its own.
    fn signature(&self, file: &Path, signature: &[u8], batch: &mut FilesToSync) -> Result<(), Failure> {
        let path = self.keep.join("signatures").join(below(self.dir, file));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .map_err(|error| Failure::io("make the directory", PathDisplay(parent), &error))?;
        }
        let prepared = Target::File(signature_path(&path)).prepare(signature, Access::Public, Replace::NOTHING)?;
        batch.add(0, prepared, self.printer).into_iter().try_for_each(|(_, written)| written)
    }
}

/// Signs the files that can be read; gives them, and their bytes.
fn sign<'f>(
    engine: &Engine,
    key: &SigningKey,
    files: &'f [PathBuf],
    messages: &Messages,
    signatures: &mut Signatures,
    keeper: Option<&Keeper<'_>>,
    printer: &Printer,
) -> Result<(Vec<&'f Path>, u64), Failure> {
    let bar = printer.progress(files.len(), "signing");
    let (mut signed, mut failed, mut bytes) = (Vec::with_capacity(files.len()), None, 0);
    let mut batch = FilesToSync::default();
    let (jobs, tags) = tagged(files.iter().filter_map(|file| match messages.read(&Source::File(file.clone())) {
        Ok(message) => {
            bytes += message.len() as u64;
            Some((file.as_path(), SignJob::new(key, message)))
        }
        Err(failure) => {
            bar.suspend(|| printer.failure(&failure));
            None
        }
    }));
    engine.sign_batch(jobs, |_, signature| {
        let file = tags.next();
        let done = signature.map_err(|error| Failure::from(error).of(PathDisplay(file))).and_then(|signature| {
            signatures.push(signature.as_bytes())?;
            keeper.map_or(Ok(()), |keeper| keeper.signature(file, signature.as_bytes(), &mut batch))
        });
        match done {
            Ok(()) => signed.push(file),
            Err(failure) => failed = Some(failure),
        }
        bar.inc(1);
    })?;
    batch.flush(printer).into_iter().try_for_each(|(_, written)| written)?;
    batch.finish()?;
    bar.finish_and_clear();
    match failed {
        Some(failure) => Err(failure),
        None if signed.is_empty() => Err(Failure::new("none of the files could be read")),
        None => Ok((signed, bytes)),
    }
}

/// How many of the files have their signature.
fn verify(
    engine: &Engine,
    key: &SigningKey,
    files: &[&Path],
    messages: &Messages,
    signatures: &mut Signatures,
    printer: &Printer,
) -> Result<u64, Failure> {
    let bar = printer.progress(files.len(), "verifying");
    let public = key.verifying_key();
    let (mut good, mut failed) = (0, None);
    let jobs = files.iter().enumerate().map_while(|(index, file)| {
        let read =
            messages.read(&Source::File(file.to_path_buf())).and_then(|message| Ok((message, signatures.get(index)?)));
        match read {
            Ok((message, signature)) => Some(VerifyJob::new(&public, message, signature)),
            Err(failure) => {
                failed = Some(failure);
                None
            }
        }
    });
    engine.verify_batch(jobs, |_, verdict| {
        good += u64::from(verdict == Ok(true));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    failed.map_or(Ok(good), Err)
}

/// Whether the first file is refused with one bit changed.
fn change(
    engine: &Engine,
    key: &SigningKey,
    files: &[&Path],
    messages: &Messages,
    signatures: &mut Signatures,
) -> Result<bool, Failure> {
    let mut message = messages.read(&Source::File(files[0].into()))?;
    match message.first_mut() {
        Some(byte) => *byte ^= 1,
        None => message.push(1),
    }
    let public = key.verifying_key();
    let job = VerifyJob::new(&public, message, signatures.get(0)?);
    Ok(!engine.run(job)?)
}

/// Rates, and their share of what the machine's hash rates allow.
fn rates(engine: &Engine, p: &'static Params, options: &MachineOptions, printer: &Printer) -> Result<(), Failure> {
    let bar = printer.progress(3, "measuring");
    let mut table = Table::new("lrrrr", ["measured", "batch", "each", "a second", "of this machine's hash rate"]);
    let mut last: Option<Rates> = None;
    for op in [Op::Keygen, Op::Sign, Op::Verify] {
        let question =
            Question { params: SlhDsa::from(p), op, batch: None, cached_layers: 0, budget: MEASURE, rows: None };
        let measured = measure(engine, question, options)?;
        table.row([
            op_name(op).into(),
            grouped(measured.batch as u64),
            seconds(measured.times.median() / measured.batch as f64),
            significant(measured.ops_per_s()),
            measured.limit_fraction().map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
        ]);
        bar.inc(1);
        last = measured.limits.core;
    }
    bar.finish_and_clear();
    printer.line(format_args!("\n{table}"))?;
    let Some(rates) = last else { return Ok(()) };
    let work = hypergrove::backend::Plan::new(p, Op::Sign).work();
    let used = rates.each().into_iter().zip(work.each()).filter(|(_, (_, calls))| *calls > 0.0);
    let rates: Vec<_> = used.map(|((hash, rate), _)| format!("{} million {hash}", significant(rate / 1e6))).collect();
    printer.line(format_args!("one core of it does {} compressions a second", rates.join(", ")))
}
