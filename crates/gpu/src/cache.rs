//! A cache of compiled code on disk: one file for each code, with a checksum. A file is there as a whole or not at all.
//!
//! Code that is read here is executed by a GPU. A driver's compiled pipelines are also executed by the driver in this process. A checksum finds
//! damage, but no intent. So nobody but this process's user may be able to write the directory and each file. Other directories and files
//! are not read, and a notice says so.

use hypergrove_engine::scheduler::lock;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// The first bytes of a cached file. A change of the format changes them.
pub const MAGIC: &[u8; 16] = b"hypergrove-code1";
/// Bytes of the checksum that follows them.
pub const CHECKSUM_BYTES: usize = 32;

/// A directory of compiled code.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    /// The open directory; `None` if it cannot be used.
    folder: OnceLock<Option<Folder>>,
    notices: Mutex<Vec<String>>,
}

/// The checksum covers the key too, so that a file under another file's name is not accepted.
fn checksum(key: &[u8; 32], code: &[u8]) -> [u8; CHECKSUM_BYTES] {
    Sha256::new().chain_update(key).chain_update(code).finalize().into()
}

/// Why a directory or file is not read: it is missing or cannot be opened, or other users can have written it.
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
    /// A cache in this directory. The first [`load`](Cache::load) or [`store`](Cache::store) makes the directory, for its user alone, if it is
    /// missing. Nothing is touched before.
    pub fn new(path: &Path) -> Cache {
        Cache { path: path.into(), folder: OnceLock::new(), notices: Mutex::default() }
    }

    /// The directories and files that were not read, each with the reason in one line.
    pub fn notices(&self) -> Vec<String> {
        lock(&self.notices).clone()
    }

    /// Adds a notice, unless there is the same one already.
    fn notice(&self, path: &Path, why: &str) {
        let line = format!("{}: {why}; compiled code is not read from there", path.display());
        let mut lines = lock(&self.notices);
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

    /// The code in a cached file. `None` if there is no file, if it is damaged, or if other users can have written it.
    pub fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let name = file_name(key);
        match self.folder()?.read(&name) {
            Ok(bytes) => {
                let (sum, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(CHECKSUM_BYTES)?;
                (sum == checksum(key, code)).then(|| code.to_vec())
            }
            Err(Refusal::Missing) => None,
            Err(Refusal::Untrusted(why)) => {
                self.notice(&self.path.join(name), &why);
                None
            }
        }
    }

    /// Keeps code for other processes, which see the whole file or none. If the file cannot be written, they compile again.
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

    /// An open directory. Another directory that takes its place at the path later is not read.
    #[derive(Debug)]
    pub(super) struct Folder(OwnedFd);

    /// Refuses a directory or file that other users can have written. Access lists, too, show in the group's bits.
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
                    // Another process may make the directory first. Its owner is checked below.
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
            // With `NONBLOCK`, opening a pipe does not wait for its writer.
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
            // The name is random: processes may share the directory, and on several machines they may have the same number.
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
use portable::Folder;
/// Where files have no such owner and mode, the operating system makes the directory its user's.
#[cfg(not(unix))]
mod portable {
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
