//! Files: read whole, written whole.

use crate::staged::{self, Identity, PairMember, Staged, identity};
pub(crate) use crate::staged::{Access, directory};
use hypergrove::backend::free_memory;
use hypergrove::quote::{Quote, may_be_key};
use hypergrove_files::text::{Position, is_raw_private_key, private_key, without_mark};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped, unbuffered};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// No key, certificate or list of signers is longer than this; what is longer is some other file.
const LONGEST_KEY: u64 = 1 << 20;
/// Room that `read_to_end` must find in a buffer, or it reads into one of its own first.
const SPARE: usize = 64;

/// Bytes of a file that are read without asking for the free memory, which takes longer than to read a small file.
const SHORT: u64 = 16 << 20;

/// Where bytes come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        if path.as_os_str() == "-" { Source::Stdin } else { Source::File(path.into()) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Stdin => f.write_str("standard input"),
            Source::File(path) => PathDisplay(path).fmt(f),
        }
    }
}

impl Source {
    /// All of it.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Failure> {
        self.read_up_to(u64::MAX)
    }

    /// The text of a list or a table, all of it. If it holds private keys, it is some other file: it is refused before a message can
    /// show one of them.
    pub(crate) fn read_text(&self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let bytes = Zeroizing::new(self.read()?);
        match private_key(&bytes) {
            Some(place) => Err(self.private(place)),
            None => Ok(bytes),
        }
    }

    /// The error of a private key that stands where none belongs. The key is not shown.
    pub(crate) fn private(&self, place: Position) -> Failure {
        Failure::new(format!("{self}: {place} looks like a private key, which has no place in a list"))
            .hint("name a list of files; if a file has such a name, write ./ before it")
    }

    /// A key, or another file that is as short: `what` says which. All of it.
    pub(crate) fn read_key(&self, what: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let failed = |error: io::Error| Failure::io("read", self, &error);
        let file = self.opened()?;
        // Of what has a length, a byte more shows that it grew; what has none may be as long as keys are. All at once: a
        // buffer that grows would leave copies of the key behind. Windows gives a pipe no metadata.
        let limit = match file.metadata() {
            Ok(there) if there.is_file() && there.len() > 0 => there.len().min(LONGEST_KEY) + 1,
            _ => LONGEST_KEY + 1,
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(limit as usize + SPARE));
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST_KEY {
            let limit = grouped(LONGEST_KEY);
            return Err(Failure::new(format!("{self} has more than {limit} bytes, the most that {what} may have"))
                .hint("check the name: this may be another file"));
        }
        Ok(bytes)
    }

    /// The first `limit` bytes.
    pub(crate) fn read_up_to(&self, limit: u64) -> Result<Vec<u8>, Failure> {
        let (reader, length) = self.reader()?;
        self.take(reader, length, limit)
    }

    /// The first `limit` bytes of this source's reader.
    pub(crate) fn take(&self, reader: impl Read, length: Option<u64>, limit: u64) -> Result<Vec<u8>, Failure> {
        // All at once, from a pipe too: a buffer that grows would leave copies of a key behind.
        let known = length.filter(|length| *length > 0).or((limit <= SHORT).then_some(limit));
        let most = known.map_or(0, |length| length.min(limit).saturating_add(1));
        let mut bytes = Vec::new();
        // A sparse file has any length, and some systems promise more memory than they have.
        let fits = most <= SHORT || free_memory().is_none_or(|free| most <= free);
        if !fits || usize::try_from(most).map_or(true, |most| bytes.try_reserve_exact(most).is_err()) {
            let length = grouped(length.unwrap_or(limit));
            let failure = Failure::new(format!("{self} has {length} bytes, more than there is memory for"));
            return Err(Failure { is_memory: true, ..failure });
        }
        reader.take(limit).read_to_end(&mut bytes).map_err(|error| Failure::io("read", self, &error))?;
        Ok(bytes)
    }

    /// A reader, and how many bytes it gives if that is known.
    pub(crate) fn reader(&self) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
        let Source::File(path) = self else { return Ok((Box::new(io::stdin().lock()), None)) };
        let file = self.file(path)?;
        let length = file.metadata().map_err(|error| Failure::io("read", self, &error))?.len();
        Ok((Box::new(file), Some(length)))
    }

    /// A file, or standard input, and the length of what is a regular file and can be read twice.
    pub(crate) fn file_or_pipe(&self) -> Result<(File, Option<u64>), Failure> {
        let file = self.opened()?;
        // Windows gives a pipe no metadata. A file that the system makes up has no length, whatever it holds.
        let length = file.metadata().ok().filter(|there| there.is_file() && there.len() > 0);
        Ok((file, length.map(|there| there.len())))
    }

    /// A file that is no directory, or standard input as a file.
    fn opened(&self) -> Result<File, Failure> {
        match self {
            Source::Stdin => unbuffered(io::stdin()).map_err(|error| Failure::io("read", self, &error)),
            Source::File(path) => self.file(path),
        }
    }

    /// A file that is no directory.
    fn file(&self, path: &Path) -> Result<File, Failure> {
        let failed = |error: io::Error| Failure::io("read", self, &error);
        let is_directory =
            || Failure::new(format!("{self} is a directory, a file is needed")).hint("name a file in that directory");
        // Windows does not even open a directory.
        let file = File::open(path).map_err(|error| if path.is_dir() { is_directory() } else { failed(error) })?;
        if file.metadata().map_err(failed)?.is_dir() { Err(is_directory()) } else { Ok(file) }
    }
}

impl Source {
    /// To be read piece by piece.
    pub(crate) fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Source::Stdin => Box::new(io::stdin()),
            Source::File(path) => Box::new(File::open(path)?),
        })
    }
}

/// The paths that a list names, one a line, or each ended by NUL; at least one.
pub(crate) fn read_list(list: &Source, null: bool) -> Result<Vec<PathBuf>, Failure> {
    listed(list, &list.read_text()?, null)
}

/// The paths in the bytes of a list. Where all lines end with CR LF, the CR is no part of a name. Nor is a byte order mark before the
/// first line: editors write it. Nobody edits a list whose names end with NUL.
pub(crate) fn listed(list: &Source, bytes: &[u8], null: bool) -> Result<Vec<PathBuf>, Failure> {
    let end = if null { 0 } else { b'\n' };
    let bytes = if null { bytes } else { without_mark(bytes) };
    if !null && bytes.contains(&0) {
        return Err(Failure::new(format!("{list} has a NUL byte, which no name has"))
            .hint("with -0, each NUL byte ends a name, as `find -print0` writes them"));
    }
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == end).collect();
    let ended = &lines[..lines.len() - 1];
    if !null && !ended.is_empty() && ended.iter().all(|line| line.ends_with(b"\r")) {
        lines.iter_mut().for_each(|line| *line = line.strip_suffix(b"\r").unwrap_or(line));
    }
    let lines: Vec<_> = lines.into_iter().zip(1..).filter(|(line, _)| !line.is_empty()).collect();
    if lines.is_empty() {
        return Err(Failure::new(format!("{list} lists no files")).hint("write the path of a file on each line"));
    }
    lines.into_iter().map(|(name, line)| listed_path(list, name, Position { line, column: 1 })).collect()
}

/// The path that a list or a table has at this place. A raw private key has no form of its own, and a file may be called after its
/// SHA-512: a file that is there is no key.
pub(crate) fn listed_path(list: &Source, name: &[u8], place: Position) -> Result<PathBuf, Failure> {
    let path = path_of(list, name)?;
    match is_raw_private_key(name) && fs::symlink_metadata(&path).is_err() {
        true => Err(list.private(place)),
        false => Ok(path),
    }
}

/// The path with this name.
#[cfg(unix)]
pub(crate) fn path_of(_: &Source, line: &[u8]) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    Ok(std::ffi::OsStr::from_bytes(line).into())
}

#[cfg(not(unix))]
pub(crate) fn path_of(list: &Source, line: &[u8]) -> Result<PathBuf, Failure> {
    let text = str::from_utf8(line).map_err(|_| Failure::new(format!("{list} lists a path that is not UTF-8")))?;
    Ok(text.into())
}

/// The identity of what the name leads to, a directory too.
#[cfg(unix)]
fn identity_at(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

#[cfg(windows)]
fn identity_at(path: &Path) -> Option<Identity> {
    use std::os::windows::fs::OpenOptionsExt;
    /// Without it no directory can be opened.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    // Access to nothing but what is known of it.
    identity(&File::options().access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path).ok()?)
}

/// The identity of a regular file that is standard input or output.
fn redirected(stream: io::Result<File>) -> Option<Identity> {
    let file = stream.ok()?;
    if file.metadata().ok()?.is_file() { identity(&file) } else { None }
}

/// Whether the name leads to a device, a pipe or a socket.
fn is_device(path: &Path) -> bool {
    // For Windows, `NUL`, `CON` and `COM1` are names of devices in every directory.
    #[cfg(windows)]
    {
        use std::path::{Component, Prefix, absolute};
        let is_its_name = |path: PathBuf| match path.components().next() {
            Some(Component::Prefix(prefix)) => matches!(prefix.kind(), Prefix::DeviceNS(_)),
            _ => false,
        };
        if absolute(path).is_ok_and(is_its_name) {
            return true;
        }
    }
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// The files that a command reads, and how each was named: a command replaces none of them, not even by force. [`crate::inputs`]
/// adds those that the command line names; a command adds those that it finds in lists, tables and directories.
pub(crate) struct Sources(BTreeMap<Identity, String>);

impl Sources {
    pub(crate) const fn new() -> Sources {
        Sources(BTreeMap::new())
    }

    /// Adds a file that is read; `name` is what errors call it.
    pub(crate) fn add(&mut self, name: impl fmt::Display, source: &Source) {
        let identity = match source {
            Source::Stdin => redirected(unbuffered(io::stdin())),
            Source::File(path) => identity_at(path),
        };
        if let Some(identity) = identity {
            self.0.entry(identity).or_insert_with(|| name.to_string());
        }
    }
}

/// The files that an output may replace.
#[derive(Clone, Copy)]
pub(crate) struct Replace<'a> {
    /// Whether it may replace a file that exists.
    pub(crate) force: bool,
    /// The files that it never replaces.
    pub(crate) read: &'a Sources,
}

/// For commands that read no files that they could replace.
static NOTHING_READ: Sources = Sources::new();

impl Replace<'_> {
    /// A new file, and no other.
    pub(crate) const NOTHING: Replace<'static> = Replace { force: false, read: &NOTHING_READ };
    /// Whatever is there.
    pub(crate) const ANYTHING: Replace<'static> = Replace { force: true, read: &NOTHING_READ };
}

/// Where bytes go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
}

impl From<&Path> for Target {
    fn from(path: &Path) -> Target {
        if path.as_os_str() == "-" { Target::Stdout } else { Target::File(path.into()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("standard output"),
            Target::File(path) => PathDisplay(path).fmt(f),
        }
    }
}

/// A name in a directory: targets with one entry are one file, whether it exists or not.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry(Option<Identity>, OsString);

/// A path as verdicts and JSON have it, since a script looks for the name that it gave. A private key that stands in place of a path is left out.
pub(crate) fn text(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !may_be_key(text) => text.into(),
        _ if path.symlink_metadata().is_ok() => path.to_string_lossy().into_owned(),
        _ => Quote::path(path).to_string(),
    }
}

impl Source {
    /// The path as JSON has it, `-` for standard input.
    pub(crate) fn path_text(&self) -> String {
        match self {
            Source::Stdin => "-".into(),
            Source::File(path) => text(path),
        }
    }
}

impl Target {
    /// The path as JSON has it, `-` for standard output.
    pub(crate) fn path_text(&self) -> String {
        match self {
            Target::Stdout => "-".into(),
            Target::File(path) => text(path),
        }
    }

    /// Refuses, before any work is done, what [`Target::prepare`] would refuse after it.
    pub(crate) fn check(&self, access: Access, binary: bool, replace: Replace<'_>) -> Result<(), Failure> {
        self.spare(replace.read)?;
        match self {
            Target::Stdout if binary && io::stdout().is_terminal() => {
                Err(Failure::new("binary data would garble the terminal").hint("name a file with --output"))
            }
            Target::Stdout => Ok(()),
            // Whoever made a pipe or a socket would get the key.
            Target::File(path) if access == Access::Private && is_device(path) => {
                Err(Failure::new(format!("{self} is no regular file, and a private key goes to no other"))
                    .hint("name a new file, or `-` for standard output"))
            }
            // A device or a pipe is written to, not replaced.
            Target::File(path) if is_device(path) => Ok(()),
            Target::File(path) => match fs::metadata(path) {
                Ok(there) if there.is_dir() => Err(Failure::new(format!("{self} is a directory, a file is needed"))
                    .hint("name a file in that directory")),
                _ if !replace.force && fs::symlink_metadata(path).is_ok() => Err(self.exists()),
                _ => is_directory(directory(path), "write to", MAKE_IT),
            },
        }
    }

    /// Refuses, even by force, to replace a file that is read.
    pub(crate) fn spare(&self, read: &Sources) -> Result<(), Failure> {
        let Target::File(_) = self else { return Ok(()) };
        match self.identity().and_then(|identity| read.0.get(&identity)) {
            Some(name) => {
                Err(Failure::new(format!("{self} would be replaced, and it is read: {name} is the same file"))
                    .hint("choose another name for what is written"))
            }
            None => Ok(()),
        }
    }

    /// Whether both are one file, or would be.
    pub(crate) fn is(&self, other: &Target) -> bool {
        let (a, b) = (self.identity(), other.identity());
        self == other || (a.is_some() && a == b) || self.entry().is_some_and(|entry| other.entry() == Some(entry))
    }

    /// The file that is there; none for what is written to instead of being replaced.
    fn identity(&self) -> Option<Identity> {
        match self {
            Target::Stdout => redirected(unbuffered(io::stdout())),
            Target::File(path) => fs::metadata(path).ok().filter(Metadata::is_file).and_then(|_| identity_at(path)),
        }
    }

    /// The name that a new file gets.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let Target::File(path) = self else { return None };
        let directory = identity_at(directory(path));
        // Without an identity the whole path has to do.
        let name = if directory.is_some() { path.file_name()? } else { path.as_os_str() };
        Some(Entry(directory, name.into()))
    }

    fn exists(&self) -> Failure {
        let link = match self {
            Target::File(path) if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) => {
                " and is a symbolic link, which would be replaced, not followed"
            }
            _ => "",
        };
        Failure::new(format!("{self} exists{link}")).hint("replace it with --force, or choose another name")
    }

    /// Writes the bytes where they do not show yet.
    pub(crate) fn prepare(&self, bytes: &[u8], access: Access, replace: Replace<'_>) -> Result<Prepared, Failure> {
        self.check(access, false, replace)?;
        let held = || Zeroizing::new(bytes.to_vec());
        let bytes = match self {
            Target::Stdout => Destination::Stdout(held()),
            // A device that has come since the check gets no private key.
            Target::File(path) if access != Access::Private && is_device(path) => {
                Destination::Device(path.clone(), held())
            }
            Target::File(path) => {
                let mut prepared = self.stage(path, access, replace.force)?;
                prepared.append(bytes)?;
                return Ok(prepared);
            }
        };
        Ok(Prepared { target: self.clone(), bytes })
    }

    /// A file that gets its bytes part by part; it is at `path`, which is this target's.
    fn stage(&self, path: &Path, access: Access, force: bool) -> Result<Prepared, Failure> {
        let staged = Staged::new(path, access).map_err(|error| self.failed(&error))?;
        Ok(Prepared { target: self.clone(), bytes: Destination::File { path: path.into(), staged, force } })
    }

    /// Prepares a regular file that gets its bytes part by part.
    pub(crate) fn begin(&self, access: Access, replace: Replace<'_>) -> Result<Prepared, Failure> {
        self.check(access, false, replace)?;
        self.stage(self.regular("a table")?, access, replace.force)
    }

    /// The path of what is a regular file, or will be one; `what` is to be written.
    pub(crate) fn regular(&self, what: &str) -> Result<&Path, Failure> {
        match self {
            Target::File(path) if !is_device(path) => Ok(path),
            _ => {
                Err(Failure::new(format!("{self} is no regular file, and {what} goes to no other"))
                    .hint("name a new file"))
            }
        }
    }

    /// Writes the bytes: all of them, or none.
    pub(crate) fn write(
        &self,
        bytes: &[u8],
        access: Access,
        replace: Replace<'_>,
        printer: &Printer,
    ) -> Result<(), Failure> {
        self.prepare(bytes, access, replace)?.commit(printer)
    }

    /// Writes what `give` gives, piece by piece: a file is whole or absent, other targets keep what they got.
    pub(crate) fn write_pieces(
        &self,
        replace: Replace<'_>,
        printer: &Printer,
        give: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Target::Stdout => give(&mut |piece| printer.bytes(piece)).map_err(|lost| Failure { silent: false, ..lost }),
            Target::File(path) if is_device(path) => {
                let failed = |error: io::Error| Failure::io("write", self, &error);
                let mut device = File::options().write(true).open(path).map_err(failed)?;
                give(&mut |piece| device.write_all(piece).map_err(failed))
            }
            Target::File(_) => {
                let mut prepared = self.begin(Access::Public, replace)?;
                give(&mut |piece| prepared.append(piece))?;
                prepared.commit(printer)
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::AlreadyExists { self.exists() } else { Failure::io("write", self, error) }
    }
}

/// The way out if there is no directory to write to.
pub(crate) const MAKE_IT: &str = "make the directory first";
/// The way out if there is no directory to read from.
pub(crate) const CHECK_IT: &str = "check the name";

/// Refuses, before any work is done, what is no directory; `action` is what is to be done there, and
/// `way_out` what helps if there is nothing of that name.
pub(crate) fn is_directory(path: &Path, action: &str, way_out: &str) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => Err(Failure::new(format!("{} is not a directory", PathDisplay(path))).hint("name a directory")),
        Err(error) => {
            let failure = Failure::io(action, PathDisplay(path), &error);
            Err(match error.kind() {
                std::io::ErrorKind::NotFound => failure.hint(format!("{way_out}, or choose another")),
                _ => failure,
            })
        }
    }
}

/// Bytes on their way to a target; dropped, they leave nothing behind.
pub(crate) struct Prepared {
    target: Target,
    bytes: Destination,
}

enum Destination {
    Stdout(Zeroizing<Vec<u8>>),
    Device(PathBuf, Zeroizing<Vec<u8>>),
    File { path: PathBuf, staged: Staged, force: bool },
}

impl Prepared {
    fn staged(&self) -> Option<&Staged> {
        if let Destination::File { staged, .. } = &self.bytes { Some(staged) } else { None }
    }

    /// Writes more bytes to a file.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.bytes {
            Destination::File { staged, .. } => staged.write(bytes).map_err(|error| self.target.failed(&error)),
            Destination::Stdout(_) | Destination::Device(..) => unreachable!("these get their bytes at once"),
        }
    }

    /// Gives a file that will replace another one the same mode, and the same owner.
    pub(crate) fn resemble(&self, other: &Metadata) -> Result<(), Failure> {
        let done = self.staged().map_or(Ok(()), |staged| staged.resemble(other));
        done.map_err(|error| Failure::io("keep the owner and the mode of", &self.target, &error))
    }

    /// Puts the bytes on the disk, and then gives them their name.
    pub(crate) fn commit(self, printer: &Printer) -> Result<(), Failure> {
        self.sync()?;
        let target = self.target.clone();
        let directory = self.name(printer)?;
        sync(&target, directory)
    }

    fn sync(&self) -> Result<(), Failure> {
        self.staged().map_or(Ok(()), |staged| staged.sync().map_err(|error| self.target.failed(&error)))
    }

    /// Gives bytes that are on the disk their name; returns the directory that got a new entry.
    fn name(self, printer: &Printer) -> Result<Option<PathBuf>, Failure> {
        let Prepared { target, bytes } = self;
        match bytes {
            // Unlike a line of a table, a key or signature that nobody took is lost.
            Destination::Stdout(bytes) => {
                printer.bytes(&bytes).map_err(|lost| Failure { silent: false, ..lost })?;
                Ok(None)
            }
            Destination::Device(path, bytes) => {
                let written = File::options().write(true).open(path).and_then(|mut device| device.write_all(&bytes));
                written.map(|()| None).map_err(|error| Failure::io("write", &target, &error))
            }
            Destination::File { path, staged, force } => {
                staged.commit(force).map_err(|error| target.failed(&error))?;
                Ok(Some(directory(&path).into()))
            }
        }
    }
}

/// Writes two files that belong together: no run finds one of them next to another pair's. `way_out` says what to do where the first
/// was replaced and the second could not be.
pub(crate) fn commit_pair(
    first: Prepared,
    second: Prepared,
    way_out: impl Fn(&Target) -> String,
    printer: &Printer,
) -> Result<(), Failure> {
    match (first, second) {
        (
            Prepared { target: first, bytes: Destination::File { staged: a, force, .. } },
            Prepared { target: second, bytes: Destination::File { staged: b, .. } },
        ) => {
            a.sync().map_err(|error| first.failed(&error))?;
            b.sync().map_err(|error| second.failed(&error))?;
            staged::commit_pair(a, b, force).map_err(|(about, error)| match about {
                PairMember::First => first.failed(&error),
                PairMember::Second => second.failed(&error),
                PairMember::SecondAlone => second.failed(&error).hint(way_out(&first)),
            })?;
            for target in [first, second] {
                let Target::File(path) = &target else { continue };
                sync(&target, Some(directory(path).into()))?;
            }
            Ok(())
        }
        (first, second) => {
            first.commit(printer)?;
            second.commit(printer)
        }
    }
}

/// Puts the entries of a directory on the disk.
fn sync(what: &Target, directory: Option<PathBuf>) -> Result<(), Failure> {
    let synced = directory.map_or(Ok(()), |directory| staged::sync_directory(&directory));
    synced.map_err(|error| Failure::io("put on the disk", what, &error))
}

/// The index of a file, and whether it was written.
pub(crate) type FileOutcome = (usize, Result<(), Failure>);

/// Files that wait for the disk together: waiting for many takes hardly longer than for one.
#[derive(Default)]
pub(crate) struct FilesToSync {
    waiting: Vec<(usize, Prepared)>,
    since: Option<Instant>,
    directories: BTreeSet<PathBuf>,
}

impl FilesToSync {
    /// How long the first waits for others.
    const LONGEST: Duration = Duration::from_millis(50);

    /// How many files wait together, at most: each one is open.
    fn most() -> usize {
        #[cfg(unix)]
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        #[cfg(not(unix))]
        let limit = None::<u64>;
        limit.map_or(64, |limit| (limit / 4).clamp(1, 64) as usize)
    }

    /// Takes file number `index`; returns the fates of the files that are done.
    pub(crate) fn add(&mut self, index: usize, prepared: Prepared, printer: &Printer) -> Vec<FileOutcome> {
        let waits = prepared.staged().is_some_and(Staged::is_unnamed);
        self.waiting.push((index, prepared));
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_due = !waits || self.waiting.len() >= FilesToSync::most() || since.elapsed() > FilesToSync::LONGEST;
        if is_due { self.flush(printer) } else { Vec::new() }
    }

    /// Gives all files their names; returns their fates.
    pub(crate) fn flush(&mut self, printer: &Printer) -> Vec<FileOutcome> {
        self.since = None;
        let staged: Vec<&Staged> = self.waiting.iter().filter_map(|(_, prepared)| prepared.staged()).collect();
        let mut synced = staged::sync_all(&staged).into_iter();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let fates = waiting.map(|(index, prepared)| {
            let synced = prepared.staged().and_then(|_| synced.next()).unwrap_or(Ok(()));
            let synced = synced.map_err(|error| prepared.target.failed(&error));
            let named = synced.and_then(|()| prepared.name(printer));
            (index, named.map(|directory| self.directories.extend(directory)))
        });
        fates.collect()
    }

    /// Puts the names of all files on the disk.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.directories.into_iter().try_for_each(|path| {
            let synced = staged::sync_directory(&path);
            synced.map_err(|error| Failure::io("put on the disk", PathDisplay(&path), &error))
        })
    }
}
