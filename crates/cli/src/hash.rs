//! `hypergrove hash`.

use crate::args::{self, Hash, MachineOptions};
use crate::files::{self, Source, listed_path};
use crate::json::{Counts, FileLine, Line, Word};
use crate::merkle::{self, MerkleTree};
use hypergrove::rows::{Column, Offsets};
use hypergrove::{Engine, Error, MEMORY_BUDGET};
use hypergrove_files::manifest::{escape, unescape};
use hypergrove_files::text::{Position, without_mark};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{Printer, Visible};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) fn run(args: &Hash, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    args::one_stdin(args.inputs.files.iter().chain(&args.inputs.list).map(PathBuf::as_path))?;
    let mut paths = args.inputs.paths()?;
    if !args.inputs.many() && paths.is_empty() {
        paths.push("-".into());
    }
    let engine = machine::engine(machine, printer)?;
    match (args.check, args.records) {
        (true, _) => check(args, &engine, &paths, printer),
        (_, true) => {
            let room = (machine.memory.unwrap_or(MEMORY_BUDGET) / 4).clamp(128 << 10, 256 << 20);
            records(args, room, &engine, &paths, printer)
        }
        _ => sums(args, &engine, &paths, printer),
    }
}

/// Lines on their way to standard output, some at a time.
struct Lines<'p> {
    printer: &'p Printer,
    waiting: Vec<u8>,
    lost: Result<(), Failure>,
}

impl<'p> Lines<'p> {
    /// Bytes that are written together, at least.
    const TOGETHER: usize = 64 << 10;

    fn new(printer: &'p Printer) -> Lines<'p> {
        Lines { printer, waiting: Vec::new(), lost: Ok(()) }
    }

    fn add(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.waiting.extend_from_slice(part));
        if self.printer.shared || self.waiting.len() >= Lines::TOGETHER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.lost.is_ok() && !self.waiting.is_empty() {
            self.lost = match self.printer.shared {
                true => self.printer.bytes(Visible(String::from_utf8_lossy(&self.waiting)).to_string().as_bytes()),
                false => self.printer.bytes(&self.waiting),
            };
        }
        self.waiting.clear();
    }

    /// All are written, or this says why not.
    fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        self.lost
    }
}

/// A name as a line has it, and the backslash that goes before the line if something was escaped.
fn escaped(path: &Path) -> (&'static [u8], Vec<u8>) {
    escape(path.as_os_str().as_encoded_bytes())
}

/// How a line with a sum is written.
#[derive(Clone, Copy)]
pub(crate) struct LineFormat {
    /// As BSD's tools write it.
    pub(crate) tag: bool,
    /// Marked as read in binary.
    pub(crate) binary: bool,
    /// Ended by a zero byte, so that no name has to be escaped.
    pub(crate) zero: bool,
}

/// The line of a file and its sum.
pub(crate) fn line(path: &Path, digest: &[u8; 32], form: LineFormat) -> Vec<u8> {
    let digest = hex::encode(digest);
    let (mark, name) = match form.zero {
        true => (&b""[..], path.as_os_str().as_encoded_bytes().to_vec()),
        false => escaped(path),
    };
    let end: &[u8] = if form.zero { b"\0" } else { b"\n" };
    match form.tag {
        true => [mark, b"SHA256 (", &name, b") = ", digest.as_bytes(), end].concat(),
        false => {
            let kind: &[u8] = if form.binary { b" *" } else { b"  " };
            [mark, digest.as_bytes(), kind, &name, end].concat()
        }
    }
}

/// A sum for each file.
fn sums(args: &Hash, engine: &Engine, paths: &[PathBuf], printer: &Printer) -> Result<Exit, Failure> {
    let bar = printer.progress(paths.len(), "hashing");
    let (mut lines, mut exit) = (Lines::new(printer), Exit::Good);
    let open = |i: usize| Source::from(paths[i].as_path()).open();
    engine.sha256_each(paths.len(), open, |i, digest| {
        bar.inc(1);
        match digest {
            Ok(digest) => {
                let form = LineFormat { tag: args.tag, binary: args.binary, zero: args.zero };
                bar.suspend(|| lines.add(&[&line(&paths[i], &digest, form)]));
            }
            Err(error) => {
                exit = Exit::Invalid;
                bar.suspend(|| unreadable(&paths[i], &error, printer));
            }
        }
    })?;
    bar.finish_and_clear();
    lines.finish()?;
    Ok(exit)
}

fn unreadable(path: &Path, error: &io::Error, printer: &Printer) {
    let failure = Failure::io("read", Source::from(path), error);
    printer.failure(&match path.is_dir() {
        true => failure.hint("list its files: find DIR -type f | hypergrove hash --list -"),
        false => failure,
    });
}

/// A file and the sum it should have.
#[derive(PartialEq, Debug)]
pub(crate) struct SumLine {
    pub(crate) path: PathBuf,
    pub(crate) digest: [u8; 32],
}

/// Warns of the faults in a list of sums, in sha256sum's words.
fn warn([improper, unreadable, wrong]: [u64; 3], printer: &Printer) {
    for (count, one, many) in [
        (improper, "line is improperly formatted", "lines are improperly formatted"),
        (unreadable, "listed file could not be read", "listed files could not be read"),
        (wrong, "computed checksum did NOT match", "computed checksums did NOT match"),
    ] {
        match count {
            0 => {}
            1 => printer.warning(format_args!("1 {one}")),
            _ => printer.warning(format_args!("{count} {many}")),
        }
    }
}

/// The sums that the files list.
fn check(args: &Hash, engine: &Engine, lists: &[PathBuf], printer: &Printer) -> Result<Exit, Failure> {
    let (mut lines, mut exit, mut counts) = (Lines::new(printer), Exit::Good, Counts::default());
    for list in lists {
        let source = Source::from(list.as_path());
        let text = match source.read_text() {
            Ok(text) => text,
            Err(failure) => {
                printer.failure(&failure);
                exit = Exit::Invalid;
                continue;
            }
        };
        if !check_list(args, engine, &source, &text, printer, &mut lines, &mut counts)? {
            exit = Exit::Invalid;
        }
        lines.flush();
    }
    if args.json {
        lines.add(&[Line::summary(counts, exit).text().as_bytes(), b"\n"]);
    }
    lines.finish()?;
    Ok(exit)
}

/// Whether all is well with one list.
fn check_list(
    args: &Hash,
    engine: &Engine,
    source: &Source,
    text: &[u8],
    printer: &Printer,
    lines: &mut Lines<'_>,
    counts: &mut Counts,
) -> Result<bool, Failure> {
    let (listed, improper) = read_sums(source, text)?;
    let before = *counts;
    counts.improper += improper.len() as u64;
    for number in improper.iter().filter(|_| args.warn) {
        printer.warning(format_args!("{source}: {number}: no properly formatted SHA-256 line"));
    }
    args::one_stdin(listed.iter().map(|entry| entry.path.as_path()))?;
    if listed.is_empty() {
        printer.failure(&Failure::new(format!("{source}: no properly formatted SHA-256 lines found")));
        return Ok(false);
    }

    let bar = printer.progress(listed.len(), "checking");
    engine.sha256_each(
        listed.len(),
        |i| Source::from(listed[i].path.as_path()).open(),
        |i, digest| {
            bar.inc(1);
            let SumLine { path, digest: want } = &listed[i];
            let unread = digest.as_ref().err().map(|error| Failure::io("read", Source::from(path.as_path()), error));
            let (verdict, word): (_, &[u8]) = match digest {
                Ok(digest) if digest == *want => (Word::Ok, b": OK\n"),
                Ok(_) => (Word::Failed, b": FAILED\n"),
                Err(error) if args.ignore_missing && error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => {
                    if !args.json {
                        bar.suspend(|| unreadable(path, &error, printer));
                    }
                    (Word::Error, b": FAILED open or read\n")
                }
            };
            counts.add(verdict);
            if verdict == Word::Ok && printer.quiet {
                return;
            }
            if args.json {
                let line = FileLine::new(Source::from(path.as_path()).path_text(), verdict);
                let line = unread.as_ref().into_iter().fold(line, |line, failure| line.because(failure));
                bar.suspend(|| lines.add(&[Line::File(line).text().as_bytes(), b"\n"]));
            } else if !args.status {
                let hidden = unread.map(|_| PathBuf::from(files::text(path)));
                let path = hidden.as_deref().unwrap_or(path);
                let name = path.as_os_str().as_encoded_bytes();
                // A line's end in a name could forge a verdict.
                let forges = name.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
                let (mark, name) = if forges { escaped(path) } else { (&b""[..], name.to_vec()) };
                bar.suspend(|| lines.add(&[mark, &name, word]));
            }
        },
    )?;
    bar.finish_and_clear();
    lines.flush();
    let [right, wrong, unreadable] =
        [counts.ok - before.ok, counts.failed - before.failed, counts.error - before.error];
    if args.ignore_missing && right + wrong == 0 {
        printer.failure(&Failure::new(format!("{source}: no file was verified")));
    }
    if !args.status && !args.json {
        warn([improper.len() as u64, unreadable, wrong], printer);
    }
    Ok(wrong + unreadable == 0 && right > 0 && (improper.is_empty() || !args.strict))
}

/// The entries of a list of sums, and the numbers of its lines that are not properly formatted.
pub(crate) fn read_sums(source: &Source, text: &[u8]) -> Result<(Vec<SumLine>, Vec<usize>), Failure> {
    let (mut listed, mut improper, mut bare) = (Vec::new(), Vec::new(), None);
    for (number, line) in without_mark(text).split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        match parse(line, &mut bare) {
            Some((name, digest)) => {
                let column = line.windows(name.len().max(1)).position(|part| part == name).map_or(1, |at| at + 1);
                let path = listed_path(source, &name, Position { line: number + 1, column })?;
                listed.push(SumLine { path, digest });
            }
            None => improper.push(number + 1),
        }
    }
    Ok((listed, improper))
}

/// Name and sum of a line: `SUM  NAME`, `SUM *NAME`, `SUM NAME`, or `SHA256 (NAME) = SUM`. After a backslash the name is
/// escaped. `bare` says whether the first line of the former kinds had no second mark before its name: where some have
/// and some have not, nobody could tell whether a name begins with a space.
fn parse(line: &[u8], bare: &mut Option<bool>) -> Option<(Vec<u8>, [u8; 32])> {
    let line = line.trim_ascii_start();
    let (is_escaped, line) = line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest));
    let (name, digest) = match line.strip_prefix(b"SHA256") {
        Some(rest) => {
            let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
            let close = rest.iter().rposition(|byte| *byte == b')')?;
            let digest = rest[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
            (&rest[..close], digest)
        }
        None => {
            // A line that ends before a name could begin says nothing about the others.
            let is_sum = |(digest, rest): &(&[u8], &[u8])| digest.iter().all(u8::is_ascii_hexdigit) && rest.len() > 1;
            let (digest, rest) = line.split_at_checked(64).filter(is_sum)?;
            let name = rest.strip_prefix(b" ").or(rest.strip_prefix(b"\t"))?;
            let marked = name.strip_prefix(b" ").or(name.strip_prefix(b"*")).filter(|name| !name.is_empty());
            let name = match (marked, *bare) {
                (None, Some(false)) => return None,
                (Some(marked), None | Some(false)) => marked,
                (_, _) => name,
            };
            *bare = Some(*bare == Some(true) || marked.is_none());
            (name, digest)
        }
    };
    let mut sum = [0; 32];
    hex::decode_to_slice(digest, &mut sum).ok()?;
    let name = if is_escaped { unescape(name)? } else { name.to_vec() };
    (!name.contains(&0)).then_some((name, sum))
}

/// The bytes of a record, all of them or an error.
struct Record<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Record<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes = self.reader.read(&mut to[..most])?;
        if bytes == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= bytes as u64;
        Ok(bytes)
    }
}

/// Records that are hashed together. `sink` gets the sums of each batch.
struct Records<'e, F> {
    engine: &'e Engine,
    sink: F,
    /// The most bytes of a batch.
    room: u64,
    bytes: Vec<u8>,
    /// Where the records lie in the bytes.
    offsets: Vec<i64>,
}

impl<F: FnMut(Vec<[u8; 32]>) -> Result<(), Error>> Records<'_, F> {
    /// Adds a record, which is `prefix` and the bytes of the reader. A record whose reader fails is left out.
    fn add(&mut self, prefix: &[u8], mut record: Record<impl Read + Send>) -> Result<io::Result<()>, Error> {
        if record.left > self.room {
            // It is hashed while it is read.
            self.flush()?;
            let (record, mut sum) = (Mutex::new(Some(prefix.chain(record))), None);
            let open = |_| Ok(record.lock().ok().and_then(|mut record| record.take()).expect("it is opened once"));
            self.engine.sha256_each(1, open, |_, read| sum = Some(read))?;
            return sum.expect("one sum").map_or_else(|error| Ok(Err(error)), |sum| (self.sink)(vec![sum]).map(Ok));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(prefix);
        if let Err(error) = record.read_to_end(&mut self.bytes) {
            self.bytes.truncate(start);
            return Ok(Err(error));
        }
        self.offsets.push(self.bytes.len() as i64);
        // An offset and a sum count as bytes too, because records may be empty.
        if (self.bytes.len() + 40 * self.offsets.len()) as u64 >= self.room { self.flush().map(Ok) } else { Ok(Ok(())) }
    }

    /// Hashes the records that were added since the last batch.
    fn flush(&mut self) -> Result<(), Error> {
        let records = Column::Variable { bytes: &self.bytes, offsets: Offsets::I64(&self.offsets) };
        (self.sink)(merkle::sums(self.engine, records)?)?;
        self.bytes.clear();
        self.offsets.truncate(1);
        Ok(())
    }
}

/// A sum for each record, or the root of the tree over them. A batch of records has up to `room` bytes.
fn records(args: &Hash, room: u64, engine: &Engine, paths: &[PathBuf], printer: &Printer) -> Result<Exit, Failure> {
    let mut lines = Lines::new(printer);
    let mut tree = args.merkle_root.then(|| MerkleTree::new(engine));
    let prefix: &[u8] = if args.merkle_root { &[MerkleTree::LEAF] } else { &[] };
    let sink = |sums: Vec<[u8; 32]>| match &mut tree {
        Some(tree) => tree.extend(sums),
        None => {
            let end = if args.zero { b"\0" } else { b"\n" };
            sums.iter().for_each(|sum| lines.add(&[hex::encode(sum).as_bytes(), end]));
            Ok(())
        }
    };
    let mut batch = Records { engine, sink, room, bytes: Vec::new(), offsets: vec![0] };
    let mut wrong = Ok(());
    for path in paths {
        let source = Source::from(path.as_path());
        let read = source.open().map_err(|error| Failure::io("read", &source, &error));
        wrong = read.and_then(|reader| {
            let mut reader = BufReader::with_capacity(1 << 20, reader);
            let failed = |error: io::Error| Failure::io("read", &source, &error);
            for number in 0u64.. {
                let cut = |at: &str| {
                    Failure::new(format!("{source}: record {number}, counted from 0, ends within its {at}"))
                        .hint("a record is its length, four bytes of which the first is the highest, and as many bytes")
                };
                let mut length = Vec::new();
                reader.by_ref().take(4).read_to_end(&mut length).map_err(failed)?;
                let Ok(bytes) = <[u8; 4]>::try_from(length.as_slice()) else {
                    return if length.is_empty() { Ok(()) } else { Err(cut("length")) };
                };
                let left = u64::from(u32::from_be_bytes(bytes));
                batch.add(prefix, Record { reader: &mut reader, left })?.map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => cut("bytes"),
                    _ => failed(error),
                })?;
            }
            Ok(())
        });
        if wrong.is_err() {
            break;
        }
    }
    if wrong.is_err() && args.merkle_root {
        return wrong.map(|()| Exit::Good);
    }
    batch.flush()?;
    if let Some(tree) = tree {
        lines.add(&[hex::encode(tree.root()?).as_bytes(), b"\n"]);
    }
    lines.finish()?;
    wrong.map(|()| Exit::Good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn records_stay_in_order_and_within_memory() {
        let data: Vec<u8> = (0..1usize << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
        let engine = Engine::builder().memory_budget(1 << 20).build().unwrap();
        // Batches, and records that are longer than any.
        let lengths: Vec<usize> = (0..600).map(|i| if i % 97 == 5 { 300_000 + i } else { i * i % 3000 }).collect();
        let prefix = |i: usize| if i.is_multiple_of(2) { &b""[..] } else { b"prefix" };
        let mut sums = Vec::new();
        let sink = |batch: Vec<[u8; 32]>| {
            sums.extend(batch);
            Ok(())
        };
        let mut records = Records { engine: &engine, sink, room: 256 << 10, bytes: Vec::new(), offsets: vec![0] };
        for (i, &length) in lengths.iter().enumerate() {
            let record = Record { reader: &data[i..], left: length as u64 };
            records.add(prefix(i), record).unwrap().unwrap();
            assert!(records.bytes.len() <= 256 << 10);
            let short = Record { reader: &data[..i * 1000], left: i as u64 * 1000 + 1 };
            let lost = records.add(b"lost", short).unwrap().unwrap_err();
            assert_eq!(lost.kind(), io::ErrorKind::UnexpectedEof, "and left out");
        }
        records.flush().unwrap();
        assert_eq!(sums.len(), lengths.len());
        for (i, &length) in lengths.iter().enumerate() {
            let sum: [u8; 32] = Sha256::digest([prefix(i), &data[i..i + length]].concat()).into();
            assert_eq!(sums[i], sum, "{i}");
        }
    }
}
