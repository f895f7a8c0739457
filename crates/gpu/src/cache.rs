//! Compiled code on disk: a file for each, whole or not there, with a checksum.
//!
//! What is read here is executed, by a GPU and, as a driver's compiled pipelines, by the driver in this process. A checksum
//! finds damage, no intent. So the directory and each file must be ones that nobody but this process's user can have
//! written: others are left out, and a notice says so.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The first bytes of a cached file. A change of the format changes them.
pub const MAGIC: &[u8; 16] = b"hypergrove-code1";
/// Bytes of the checksum that follows them.
pub const CHECKSUM: usize = 32;

/// A directory of compiled code.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    /// `None` if it cannot be used.
    folder: OnceLock<Option<Folder>>,
    notices: Mutex<Vec<String>>,
}

/// Over the key too: a file under another's name is not taken for it.
fn checksum(key: &[u8; 32], code: &[u8]) -> [u8; CHECKSUM] {
    Sha256::new().chain_update(key).chain_update(code).finalize().into()
}

/// Why something is not read: it is not there or cannot be had, or others can have written it.
#[derive(Debug)]
enum Refusal {
    Missing,
    #[cfg_attr(not(unix), allow(dead_code))]
    Untrusted(String),
}

impl From<std::io::Error> for Refusal {
    fn from(_: std::io::Error) -> Refusal {
        Refusal::Missing
    }
}

impl Cache {
    /// Nothing is touched before the first [`load`](Cache::load) or [`store`](Cache::store), which makes the directory if it
    /// is not there: for its user alone.
    pub fn new(path: &Path) -> Cache {
        Cache { path: path.into(), folder: OnceLock::new(), notices: Mutex::default() }
    }

    /// What was left out, and why: a line each.
    pub fn notices(&self) -> Vec<String> {
        self.lines().clone()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line down, once.
    fn notice(&self, path: &Path, why: &str) {
        let line = format!("{}: {why}; compiled code is not read from there", path.display());
        let mut lines = self.lines();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    fn folder(&self) -> Option<&Folder> {
        let open = || match Folder::open(&self.path) {
            Ok(folder) => Some(folder),
            Err(Refusal::Missing) => None,
            Err(Refusal::Untrusted(why)) => {
                self.notice(&self.path, &why);
                None
            }
        };
        self.folder.get_or_init(open).as_ref()
    }

    /// The code in a cached file; `None` if there is none, it is damaged, or others can have written it.
    pub fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let name = file_name(key);
        match self.folder()?.read(&name) {
            Ok(bytes) => {
                let (sum, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(CHECKSUM)?;
                (sum == checksum(key, code)).then(|| code.to_vec())
            }
            Err(Refusal::Missing) => None,
            Err(Refusal::Untrusted(why)) => {
                self.notice(&self.path.join(name), &why);
                None
            }
        }
    }

    /// Keeps code for other processes, which see the whole file or none. Where that cannot be done, they compile again.
    pub fn store(&self, key: &[u8; 32], code: &[u8]) {
        if let Some(folder) = self.folder() {
            let _ = folder.write(&file_name(key), &[MAGIC, &checksum(key, code), code]);
        }
    }
}

fn file_name(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).chain([".bin".into()]).collect()
}

#[cfg(unix)]
use unix::Folder;
#[cfg(unix)]
mod unix {
    use super::Refusal;
    use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, renameat, unlinkat};
    use rustix::io::Errno;
    use std::fs::{DirBuilder, File};
    use std::hash::{BuildHasher, Hasher, RandomState};
    use std::io::{Read, Result, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::DirBuilderExt;
    use std::path::Path;

    /// An open directory: what takes its path's place later is not looked at.
    #[derive(Debug)]
    pub(super) struct Folder(OwnedFd);

    /// Whether others can have written it. Access lists, too, show in the group's bits.
    fn check(stat: &Stat) -> std::result::Result<(), Refusal> {
        let (owner, user, mode) = (stat.st_uid, rustix::process::geteuid().as_raw(), stat.st_mode & 0o7777);
        if owner != user {
            return Err(Refusal::Untrusted(format!("it belongs to user {owner}, not to user {user}")));
        }
        if mode & 0o022 != 0 {
            return Err(Refusal::Untrusted(format!("others may write it (mode {mode:o}): `chmod go-w` ends that")));
        }
        Ok(())
    }

    impl Folder {
        pub(super) fn open(path: &Path) -> std::result::Result<Folder, Refusal> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = match open(path, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    // Whoever comes first, its owner is judged below.
                    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
                    open(path, flags, Mode::empty())
                }
                found => found,
            };
            let folder = match found {
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(Refusal::Untrusted("it is a symbolic link, or no directory".into()));
                }
                found => found.map_err(|_| Refusal::Missing)?,
            };
            check(&fstat(&folder).map_err(|_| Refusal::Missing)?)?;
            Ok(Folder(folder))
        }

        pub(super) fn read(&self, name: &str) -> std::result::Result<Vec<u8>, Refusal> {
            // Without waiting for a pipe's writer.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match openat(&self.0, name, flags, Mode::empty()) {
                Err(Errno::LOOP) => return Err(Refusal::Untrusted("it is a symbolic link".into())),
                file => file.map_err(|_| Refusal::Missing)?,
            };
            let stat = fstat(&file).map_err(|_| Refusal::Missing)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(Refusal::Untrusted("it is no file".into()));
            }
            check(&stat)?;
            let mut bytes = Vec::new();
            File::from(file).read_to_end(&mut bytes)?;
            Ok(bytes)
        }

        pub(super) fn write(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
            // Processes may share the directory, and their numbers where they are on several machines.
            let new = format!("{name}.{:016x}", RandomState::new().build_hasher().finish());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&self.0, &new, flags, Mode::RUSR | Mode::WUSR)?);
            let written = parts.iter().try_for_each(|part| file.write_all(part));
            let done = written.and_then(|()| Ok(renameat(&self.0, &new, &self.0, name)?));
            if done.is_err() {
                let _ = unlinkat(&self.0, &new, AtFlags::empty());
            }
            done
        }
    }
}

#[cfg(not(unix))]
use elsewhere::Folder;
/// Where files have no owner and mode of that kind, the directory is its user's, as the operating system makes it.
#[cfg(not(unix))]
mod elsewhere {
    use super::Refusal;
    use std::io::{Result, Write};
    use std::path::{Path, PathBuf};

    #[derive(Debug)]
    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn open(path: &Path) -> std::result::Result<Folder, Refusal> {
            std::fs::create_dir_all(path)?;
            Ok(Folder(path.into()))
        }

        pub(super) fn read(&self, name: &str) -> std::result::Result<Vec<u8>, Refusal> {
            Ok(std::fs::read(self.0.join(name))?)
        }

        pub(super) fn write(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
            let mut new = tempfile::NamedTempFile::new_in(&self.0)?;
            parts.iter().try_for_each(|part| new.write_all(part))?;
            new.persist(self.0.join(name))?;
            Ok(())
        }
    }
}
