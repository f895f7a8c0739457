//! Manifests: the SHA-256 of every file of a tree in sha256sum's lines, to be signed as one message and checked file by file.
//!
//! ```
//! use hypergrove_files::manifest::Manifest;
//! use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
//!
//! # let tree = std::env::temp_dir().join(format!("hypergrove-manifest-{}", std::process::id()));
//! # std::fs::create_dir_all(tree.join("bin"))?;
//! # std::fs::write(tree.join("bin/tool"), "tool")?;
//! let engine = Engine::new()?;
//! let key = engine.generate(&SLH_DSA_SHA2_128F)?;
//! let text = Manifest::of_tree(&engine, &tree, |_| true)?.to_bytes();
//! assert!(text.ends_with(b"  bin/tool\n"));
//! let signature = engine.sign(&key, Mode::default(), &text, Randomizer::Hedged)?;
//!
//! // Whoever has the tree, the lines and the signature: nothing is read before the signature is right.
//! assert!(engine.verify(&key.verifying_key(), Mode::default(), &text, signature.as_bytes())?);
//! let manifest = Manifest::parse(&text)?;
//! let mut intact = 0;
//! manifest.check(&engine, &tree, |_, matches| intact += usize::from(matches.is_ok_and(|matches| matches)))?;
//! assert_eq!((intact, manifest.extra(&tree, |_| true)?.len()), (1, 0));
//! # std::fs::remove_dir_all(&tree)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Names are relative to the tree and have `/` between their parts. A manifest says nothing about modes, owners, times and empty directories.

use crate::text::without_mark;
use hypergrove::quote::Quote;
use hypergrove::{Engine, Error};
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::{fmt, io};

/// Bytes of a sum in hexadecimal.
const DIGITS: usize = 64;

/// Files and their SHA-256. Each path occurs once, is relative, and has no `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest(Vec<ManifestEntry>);

/// A file of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestEntry {
    path: PathBuf,
    sum: [u8; 32],
}

impl ManifestEntry {
    /// The path, relative to the tree.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The SHA-256 of the file.
    pub fn sum(&self) -> &[u8; 32] {
        &self.sum
    }
}

/// The error of a manifest or of a tree.
#[derive(Debug)]
pub enum ManifestError {
    /// A line of a manifest is wrong.
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// Why the line is wrong.
        what: String,
    },
    /// The manifest or the tree has no files.
    Empty,
    /// A file of a tree is wrong.
    Path {
        /// The file.
        path: PathBuf,
        /// Why the file is wrong.
        what: &'static str,
    },
    /// A file or directory cannot be read.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The engine failed.
    Engine(Error),
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManifestError::Line { line, what } => write!(f, "line {line}: {what}"),
            ManifestError::Empty => f.write_str("there are no files"),
            ManifestError::Path { path, what } => write!(f, "{}: {what}", Quote::path(path)),
            ManifestError::Io { path, source } => write!(f, "{}: {source}", Quote::path(path)),
            ManifestError::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ManifestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ManifestError::Io { source, .. } => Some(source),
            ManifestError::Engine(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for ManifestError {
    fn from(error: Error) -> ManifestError {
        ManifestError::Engine(error)
    }
}

impl Manifest {
    /// Makes the manifest of all files of a tree that `takes` accepts, sorted by the bytes of their names. `takes` gets paths relative
    /// to the tree; see [`files`] for what a tree may contain.
    pub fn of_tree(engine: &Engine, tree: &Path, takes: impl Fn(&Path) -> bool) -> Result<Manifest, ManifestError> {
        let (root, paths) = (canonical(tree)?, files(tree, takes)?);
        if paths.is_empty() {
            return Err(ManifestError::Empty);
        }
        let (mut entries, mut failed) = (Vec::with_capacity(paths.len()), None);
        engine.sha256_each(
            paths.len(),
            |i| open(&root, &paths[i]),
            |i, sum| match sum {
                Ok(sum) => entries.push(ManifestEntry { path: paths[i].clone(), sum }),
                Err(source) if failed.is_none() => {
                    failed = Some(ManifestError::Io { path: tree.join(&paths[i]), source });
                }
                Err(_) => {}
            },
        )?;
        failed.map_or(Ok(Manifest(entries)), Err)
    }

    /// Reads lines of sha256sum: 64 hexadecimal digits, two spaces or a space and `*`, and a name. After a backslash the name is escaped
    /// ([`unescape`]). Refuses the whole manifest for a line of another form, for a name that leaves the tree because it is absolute or has
    /// `..`, and for a name that occurs twice.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        for (number, line) in text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n').enumerate() {
            if text.is_empty() {
                break;
            }
            let wrong = |what: String| ManifestError::Line { line: number + 1, what };
            if number == 0 && without_mark(line).len() < line.len() {
                return Err(wrong("it begins with a byte order mark, which sha256sum does not skip".into()));
            }
            let entry = entry(line).map_err(wrong)?;
            if !seen.insert(entry.path.clone()) {
                return Err(wrong(format!("{} is listed twice", Quote::new(&*entry.path.to_string_lossy()))));
            }
            entries.push(entry);
        }
        if entries.is_empty() { Err(ManifestError::Empty) } else { Ok(Manifest(entries)) }
    }

    /// The lines, as `sha256sum --check` reads them in the tree's directory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for ManifestEntry { path, sum } in &self.0 {
            let (mark, name) = escape(&name(path));
            text.extend_from_slice(mark);
            text.extend_from_slice(hex::encode(sum).as_bytes());
            // sha256sum takes a lone `-` as standard input.
            text.extend_from_slice(if name == b"-" { b"  ./" } else { b"  " });
            text.extend(name);
            text.push(b'\n');
        }
        text
    }

    /// The files.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.0
    }

    /// Checks each file of the manifest in the tree, in order. `sink` gets the file's number and whether its sum is right, or an error
    /// if the file cannot be read, is not a regular file, or is a link that leads out of the tree.
    ///
    /// Someone who changes the tree during the check can make it read any file. So check a tree that only its owner can write.
    pub fn check(
        &self,
        engine: &Engine,
        tree: &Path,
        mut sink: impl FnMut(usize, io::Result<bool>),
    ) -> Result<(), ManifestError> {
        let root = canonical(tree)?;
        let open = |i: usize| open(&root, &self.0[i].path);
        engine.sha256_each(self.0.len(), open, |i, sum| sink(i, sum.map(|sum| sum == self.0[i].sum)))?;
        Ok(())
    }

    /// The files of the tree that `takes` accepts and that the manifest does not list. Links are not followed.
    pub fn extra(&self, tree: &Path, takes: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, ManifestError> {
        let listed: HashSet<&Path> = self.0.iter().map(ManifestEntry::path).collect();
        let mut extra = Vec::new();
        walk(tree, &mut |path, _| {
            if !listed.contains(path) && takes(path) {
                extra.push(path.to_path_buf());
            }
            Ok(())
        })?;
        extra.sort_by_cached_key(|path| name(path));
        Ok(extra)
    }
}

/// The files of a tree that `takes` accepts, as relative paths sorted by the bytes of their names. A link to a file of the tree counts
/// as a file. It is an error if a link leads out of the tree, to a directory or nowhere, or if something is neither a file nor a
/// directory nor a link.
pub fn files(tree: &Path, takes: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, ManifestError> {
    let (root, mut found) = (canonical(tree)?, Vec::new());
    walk(tree, &mut |path, kind| {
        if !takes(path) {
            return Ok(());
        }
        let wrong = |what| Err(ManifestError::Path { path: tree.join(path), what });
        if kind.is_symlink() {
            match fs::canonicalize(tree.join(path)) {
                Ok(real) if !real.starts_with(&root) => return wrong("this link leads out of the tree"),
                Ok(real) if real.is_dir() => return wrong("this is a link to a directory"),
                Ok(real) if real.is_file() => {}
                Ok(_) => return wrong("this link leads to no regular file"),
                Err(source) => return Err(ManifestError::Io { path: tree.join(path), source }),
            }
        } else if !kind.is_file() {
            return wrong("this is neither a file nor a directory");
        }
        found.push(path.to_path_buf());
        Ok(())
    })?;
    found.sort_by_cached_key(|path| name(path));
    Ok(found)
}

/// Calls `each` for everything in the tree but directories.
fn walk(
    tree: &Path,
    each: &mut dyn FnMut(&Path, fs::FileType) -> Result<(), ManifestError>,
) -> Result<(), ManifestError> {
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let place = tree.join(&directory);
        let failed = |source| ManifestError::Io { path: place.clone(), source };
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (directory.join(entry.file_name()), entry.file_type().map_err(failed)?);
            if kind.is_dir() { open.push(path) } else { each(&path, kind)? }
        }
    }
    Ok(())
}

fn canonical(tree: &Path) -> Result<PathBuf, ManifestError> {
    let failed = |source| ManifestError::Io { path: tree.into(), source };
    let root = fs::canonicalize(tree).map_err(failed)?;
    match root.is_dir() {
        true => Ok(root),
        false => Err(ManifestError::Path { path: tree.into(), what: "this is no directory" }),
    }
}

/// Opens a regular file of the tree by its path without links, which must not lead out of the tree.
fn open(root: &Path, path: &Path) -> io::Result<File> {
    let real = fs::canonicalize(root.join(path))?;
    if !real.starts_with(root) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a link leads out of the tree"));
    }
    // Opening a pipe would block.
    if !fs::metadata(&real)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(real)
}

/// A relative path without `.` and `..`, in the form that a line has.
fn name(path: &Path) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.iter().map(|part| part.as_encoded_bytes()).collect();
    parts.join(&b'/')
}

fn entry(line: &[u8]) -> Result<ManifestEntry, String> {
    const FORM: &str = "this is no line of sha256sum: a sum of 64 digits, two spaces and a name";
    let (is_escaped, rest) = line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest));
    let (digits, rest) = rest.split_at_checked(DIGITS).ok_or(FORM)?;
    let name = rest.strip_prefix(b"  ").or(rest.strip_prefix(b" *")).ok_or(FORM)?;
    let sum = hex::decode(digits).ok().and_then(|sum| sum.try_into().ok()).ok_or(FORM)?;
    // sha256sum escapes a CR in a name.
    if name.contains(&b'\r') {
        return Err("the line ends with CR LF, or has a CR in it; sha256sum writes LF alone".into());
    }
    let name = if is_escaped { unescape(name).ok_or("the name's backslashes are no escapes")? } else { name.to_vec() };
    if name.contains(&0) {
        return Err("the name has a NUL".into());
    }
    let given = path(name)?;
    let shown = || Quote::new(&*given.to_string_lossy());
    let mut path = PathBuf::new();
    for part in given.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => return Err(format!("{} has '..' in it", shown())),
            Component::RootDir | Component::Prefix(_) => return Err(format!("{} is absolute", shown())),
        }
    }
    if path.as_os_str().is_empty() { Err("the name is empty".into()) } else { Ok(ManifestEntry { path, sum }) }
}

#[cfg(unix)]
fn path(name: Vec<u8>) -> Result<PathBuf, String> {
    use std::os::unix::ffi::OsStringExt;
    Ok(std::ffi::OsString::from_vec(name).into())
}

#[cfg(not(unix))]
fn path(name: Vec<u8>) -> Result<PathBuf, String> {
    Ok(String::from_utf8(name).map_err(|_| "the name is not UTF-8")?.into())
}

/// Escapes a name as sha256sum does. Returns the prefix of the line, a backslash if something was escaped, and the name.
pub fn escape(name: &[u8]) -> (&'static [u8], Vec<u8>) {
    let (mut mark, mut escaped) = (&b""[..], Vec::with_capacity(name.len()));
    for &byte in name {
        let letter = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            _ => {
                escaped.push(byte);
                continue;
            }
        };
        mark = b"\\";
        escaped.extend([b'\\', letter]);
    }
    (mark, escaped)
}

/// Reverses [`escape`]; `None` for a backslash that escapes nothing.
pub fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::new(), name.iter());
    while let Some(&byte) = bytes.next() {
        out.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            (byte, false) => byte,
        });
    }
    Some(out)
}
