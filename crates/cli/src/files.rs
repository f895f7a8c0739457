//! Files: read whole, written to a temporary name and renamed.

use crate::failure::Failure;
use crate::printer::{Printer, grouped};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
#[cfg(unix)]
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};
use zeroize::Zeroizing;

/// No key or list entry is longer than this; what is longer is some other file.
const LONGEST_KEY: u64 = 1 << 20;
/// Room that `read_to_end` must find in a buffer, or it reads into one of its own first.
const SPARE: usize = 64;

/// A path as it is shown: control characters, which could forge a verdict, are escaped.
pub(crate) struct Shown<'a>(pub(crate) &'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string_lossy().chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

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
            Source::File(path) => Shown(path).fmt(f),
        }
    }
}

impl Source {
    /// All of it.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Failure> {
        self.read_up_to(u64::MAX)
    }

    /// A key, all of it.
    pub(crate) fn read_key(&self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let failed = |error: io::Error| Failure::io("read", self, &error);
        let file = match self {
            // Not through its buffer, which nobody wipes.
            #[cfg(unix)]
            Source::Stdin => io::stdin().as_fd().try_clone_to_owned().map(File::from).map_err(failed)?,
            #[cfg(not(unix))]
            Source::Stdin => return self.read().map(Zeroizing::new),
            Source::File(path) => self.file(path)?,
        };
        // Of what has a length, a byte more shows that it grew; what has none may be as long as keys are. All at once: a
        // buffer that grows would leave copies of the key behind.
        let limit = match file.metadata().map_err(failed)? {
            there if there.is_file() && there.len() > 0 => there.len().min(LONGEST_KEY) + 1,
            _ => LONGEST_KEY + 1,
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(limit as usize + SPARE));
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST_KEY {
            let limit = grouped(LONGEST_KEY);
            return Err(Failure::new(format!("{self} has more than {limit} bytes, which no key has"))
                .hint("name the file that holds the key"));
        }
        Ok(bytes)
    }

    /// The first `limit` bytes.
    pub(crate) fn read_up_to(&self, limit: u64) -> Result<Vec<u8>, Failure> {
        let failed = |error: io::Error| Failure::io("read", self, &error);
        let mut bytes = Vec::new();
        match self {
            Source::Stdin => io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(failed)?,
            Source::File(path) => {
                let file = self.file(path)?;
                let length = file.metadata().map_err(failed)?.len();
                bytes.reserve_exact(length.min(limit).try_into().unwrap_or(0) + 1);
                file.take(limit).read_to_end(&mut bytes).map_err(failed)?
            }
        };
        Ok(bytes)
    }

    /// A file that is no directory.
    fn file(&self, path: &Path) -> Result<File, Failure> {
        let failed = |error: io::Error| Failure::io("read", self, &error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Failure::new(format!("{self} is a directory, a file is needed"))
                .hint("many files can be given, or listed: find DIR -type f | hypergrove … --list -"));
        }
        Ok(file)
    }
}

impl Source {
    /// To be read piece by piece.
    pub(crate) fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Source::Stdin => Box::new(io::stdin()),
            Source::File(path) => Box::new(File::open(path)?),
        })
    }
}

/// The paths that a list names, one a line.
pub(crate) fn read_list(list: &Source) -> Result<Vec<PathBuf>, Failure> {
    let bytes = list.read()?;
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| path_of(list, line)).collect()
}

/// The path with this name.
#[cfg(unix)]
pub(crate) fn path_of(_: &Source, line: &[u8]) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    Ok(std::ffi::OsStr::from_bytes(line).into())
}

#[cfg(not(unix))]
pub(crate) fn path_of(list: &Source, line: &[u8]) -> Result<PathBuf, Failure> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = str::from_utf8(line).map_err(|_| Failure::new(format!("{list} lists a path that is not UTF-8")))?;
    Ok(text.into())
}

/// Who may read a file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The owner alone.
    Private,
    /// Whom the umask lets.
    Public,
}

/// Where bytes go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
            Target::File(path) => Shown(path).fmt(f),
        }
    }
}

impl Target {
    /// Refuses, before any work is done, what [`Target::prepare`] would refuse after it.
    pub(crate) fn check(&self, binary: bool, force: bool) -> Result<(), Failure> {
        match self {
            Target::Stdout if binary && io::stdout().is_terminal() => {
                Err(Failure::new("binary data would garble the terminal").hint("name a file with --output"))
            }
            Target::Stdout => Ok(()),
            Target::File(path) => match fs::metadata(path) {
                Ok(there) if there.is_dir() => Err(Failure::new(format!("{self} is a directory, a file is needed"))
                    .hint("name a file in that directory")),
                // A device or a pipe is written to, not replaced.
                Ok(there) if !there.is_file() => Ok(()),
                _ if !force && fs::symlink_metadata(path).is_ok() => Err(self.exists()),
                _ => match fs::metadata(directory(path)) {
                    Ok(there) if there.is_dir() => Ok(()),
                    Ok(_) => Err(Failure::new(format!("{} is not a directory", Shown(directory(path))))),
                    Err(error) => Err(Failure::io("write to", Shown(directory(path)), &error)
                        .hint("make the directory first, or choose another")),
                },
            },
        }
    }

    /// Refuses, even by force, to replace a file that is read.
    pub(crate) fn spare(&self, source: &Source) -> Result<(), Failure> {
        let (Target::File(target), Source::File(source)) = (self, source) else { return Ok(()) };
        match (fs::canonicalize(target), fs::canonicalize(source)) {
            (Ok(a), Ok(b)) if a == b && b.is_file() => {
                Err(Failure::new(format!("{self} would be replaced, and it is read"))
                    .hint("choose another name for what is written"))
            }
            _ => Ok(()),
        }
    }

    fn exists(&self) -> Failure {
        Failure::new(format!("{self} exists")).hint("replace it with --force, or choose another name")
    }

    /// Writes the bytes where they do not show yet.
    pub(crate) fn prepare(&self, bytes: &[u8], access: Access, force: bool) -> Result<Prepared<'_>, Failure> {
        self.check(false, force)?;
        let held = || Zeroizing::new(bytes.to_vec());
        let path = match self {
            Target::Stdout => return Ok(Prepared::Stdout(held())),
            Target::File(path) if fs::metadata(path).is_ok_and(|there| !there.is_file()) => {
                return Ok(Prepared::Device(self, path, held()));
            }
            Target::File(path) => path,
        };
        let failed = |error: io::Error| Failure::io("write", self, &error);
        let mut file = temporary(directory(path), access).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        if access == Access::Private {
            // A key that a crash could still take away is no key yet.
            file.as_file().sync_all().map_err(failed)?;
        }
        Ok(Prepared::File { target: self, path, force, file: file.into_temp_path() })
    }

    /// Writes the bytes: all of them, or none.
    pub(crate) fn write(&self, bytes: &[u8], access: Access, force: bool, printer: &Printer) -> Result<(), Failure> {
        self.prepare(bytes, access, force)?.commit(printer)
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary(directory: &Path, access: Access) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".hypergrove-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(if access == Access::Private { 0o600 } else { 0o666 }));
    }
    #[cfg(not(unix))]
    let _ = access;
    builder.tempfile_in(directory)
}

/// Bytes on their way to a target; dropped, they leave nothing behind.
pub(crate) enum Prepared<'a> {
    Stdout(Zeroizing<Vec<u8>>),
    Device(&'a Target, &'a Path, Zeroizing<Vec<u8>>),
    File { target: &'a Target, path: &'a Path, force: bool, file: TempPath },
}

impl Prepared<'_> {
    /// Gives the bytes their name.
    pub(crate) fn commit(self, printer: &Printer) -> Result<(), Failure> {
        match self {
            // Unlike a line of a table, a key or signature that nobody took is lost.
            Prepared::Stdout(bytes) => printer.bytes(&bytes).map_err(|lost| Failure { silent: false, ..lost }),
            Prepared::Device(target, path, bytes) => {
                let written = File::options().write(true).open(path).and_then(|mut device| device.write_all(&bytes));
                written.map_err(|error| Failure::io("write", target, &error))
            }
            Prepared::File { target, path, force, file } => {
                let renamed = if force { file.persist(path) } else { file.persist_noclobber(path) };
                renamed.map_err(|failed| match failed.error.kind() {
                    io::ErrorKind::AlreadyExists => target.exists(),
                    _ => Failure::io("write", target, &failed.error),
                })
            }
        }
    }
}
