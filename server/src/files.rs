//! Files and folders that the server trusts: nobody but its user, and root, may change them.

use crate::error::Error;
use hypergrove::quote::Quote;
use rustix::process::geteuid;
use std::fs::{DirBuilder, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The bits of a mode by which a group and all others may write.
const WRITE: u32 = 0o022;
/// The bit of a folder in which everybody may make files, and nobody may remove or replace those of others, as in `/tmp`.
const STICKY: u32 = 0o1000;

/// Who may read a secret file besides its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Nobody; of a file that root owns, its group. Other files, and what is no file, are refused.
    Group,
    /// Anybody, with a warning: the operator has named the file, and decides who reads it.
    Warned,
    /// Anybody: the file is no secret.
    All,
}

fn refused(path: &Path, why: &str) -> Error {
    Error::bad(format!("{}: {why}", Quote::path(path)))
}

/// Refuses a file or a folder that somebody else owns or may write. Root may do everything anyway.
pub fn check_owner(path: &Path, it: &Metadata) -> Result<(), Error> {
    let kind = it.file_type();
    // A pipe belongs to the process that made it, and a terminal to a group, too. In a folder that others may write, a pipe may be anybody's.
    let is_pipe = kind.is_fifo() && folder_of(path).metadata().is_ok_and(|folder| folder.mode() & WRITE == 0);
    if !is_pipe && !kind.is_char_device() && ![0, geteuid().as_raw()].contains(&it.uid()) {
        let owner = it.uid();
        return Err(refused(
            path,
            &format!("it belongs to the user with the number {owner}, who may change it; use chown"),
        ));
    }
    match it.mode() & WRITE != 0 && !kind.is_char_device() {
        true => Err(refused(path, "others than its owner may write it; use chmod go-w")),
        false => Ok(()),
    }
}

/// Makes a folder that only its owner reads, unless there is one, in which nobody else may make files.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let it = made.and_then(|()| folder.metadata()).map_err(|why| refused(folder, &why.to_string()))?;
    check_owner(folder, &it)
}

/// The folder of a file.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path with more behind its name, whatever bytes the name has.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses a folder in which others may put another file in the place of the server's.
fn check_folder(file: &Path) -> Result<(), Error> {
    let folder = folder_of(file);
    let mode = folder.metadata().map_err(|why| refused(folder, &why.to_string()))?.mode();
    match mode & WRITE != 0 && mode & STICKY == 0 {
        true => {
            Err(refused(file, "others may replace it, because they may write its folder; use chmod go-w on the folder"))
        }
        false => Ok(()),
    }
}

/// Reads a file that others may not change, whichever links lead to it.
pub fn read_trusted(path: &Path, readers: Readers) -> Result<Zeroizing<Vec<u8>>, Error> {
    let failed = |why: std::io::Error| refused(path, &why.to_string());
    // Whoever opens a pipe waits for its writer, and a device may have no end.
    if readers == Readers::Group && !path.metadata().map_err(failed)?.is_file() {
        return Err(refused(path, "it is not a file; move it away"));
    }
    // The open file is checked and read, even if another one takes its place now.
    let mut file = File::open(path).map_err(failed)?;
    let it = file.metadata().map_err(failed)?;
    check_owner(path, &it)?;
    check_folder(path)?;
    // A pipe has no path of its own.
    path.canonicalize().map_or(Ok(()), |target| check_owner(&target, &it).and_then(|()| check_folder(&target)))?;
    let is_shared_by_root = it.uid() == 0 && !geteuid().is_root();
    let beyond = if is_shared_by_root { 0o037 } else { 0o077 };
    if it.is_file() && it.mode() & beyond != 0 {
        let why = "others than its owner may read this secret; use chmod 600";
        match readers {
            Readers::Group => return Err(refused(path, why)),
            Readers::Warned => tracing::warn!("{}: {why}", Quote::path(path)),
            Readers::All => {}
        }
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(it.len().min(1 << 20) as usize + 1));
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn only_files_that_others_may_not_change_are_read() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        create_dir(&folder).unwrap();
        let (file, link) = (folder.join("secret"), outer.path().join("link"));
        write(&file, "word").unwrap();
        symlink(&file, &link).unwrap();
        let chmod = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        chmod(&folder, 0o700);
        let read = |readers| [&file, &link].map(|path| read_trusted(path, readers).map(|read| read.to_vec()).ok());
        let (good, none) = ([Some(b"word".to_vec()), Some(b"word".to_vec())], [None, None]);
        for (mode, strict, other) in [
            (0o600, &good, &good),
            (0o400, &good, &good),
            (0o640, &none, &good),
            (0o604, &none, &good),
            (0o620, &none, &none),
            (0o602, &none, &none),
            (0o666, &none, &none),
        ] {
            chmod(&file, mode);
            assert_eq!(
                (&read(Readers::Group), &read(Readers::Warned), &read(Readers::All)),
                (strict, other, other),
                "{mode:o}"
            );
        }
        chmod(&file, 0o600);
        for (mode, expected) in [(0o777, &none), (0o770, &none), (0o702, &none), (0o1777, &good), (0o755, &good)] {
            chmod(&folder, mode);
            assert_eq!(&read(Readers::Group), expected, "{mode:o}");
        }
        // Only root can give a file away.
        if geteuid().is_root() {
            chown(&file, Some(65_534), None).unwrap();
            assert_eq!(read(Readers::All), none);
            // A pipe of another user, which they made in `/tmp` before we wrote our file there.
            let pipe = folder.join("pipe");
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
            chown(&pipe, Some(65_534), None).unwrap();
            let linked = outer.path().join("linked");
            symlink(&pipe, &linked).unwrap();
            for (mode, pipe, is_read) in [(0o1777, &pipe, false), (0o1777, &linked, false), (0o755, &pipe, true)] {
                chmod(&folder, mode);
                let writer = std::thread::spawn({
                    let pipe = pipe.clone();
                    move || write(pipe, "word")
                });
                assert_eq!(read_trusted(pipe, Readers::All).is_ok(), is_read, "{mode:o}");
                drop(writer.join());
            }
        }
    }
}
