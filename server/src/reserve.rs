//! Room on the audit log's disk that is kept in reserve, in two files next to the log. When the disk is full, the first one is removed, so that
//! requests have their lines while the operator makes room. The second one is for lines that must not be missing: the results of changes that have
//! begun, and that of sealing. A database on another disk has such files too, for the numbers that keys give back when the server is sealed.

use crate::audit::Entry;
use crate::config::Config;
use crate::files::{folder_of, with_suffix};
use crate::storage::private_file;
use hypergrove::quote::Quote;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The suffixes of the files' names, and their bytes. On a small disk they are smaller: a sixteenth of the disk at most, and a quarter of this.
const FILES: [(&str, u64, u64); 2] = [(".reserve", 12 << 20, 16), (".reserve.last", 4 << 20, 64)];

/// A disk with fewer bytes left is full.
const FULL: u64 = 1 << 20;

/// The reserve next to a file.
pub struct Reserve([PathBuf; 2]);

impl Reserve {
    /// The reserve next to this file.
    pub fn of(file: &Path) -> Reserve {
        Reserve(FILES.map(|(suffix, ..)| with_suffix(file, suffix)))
    }

    /// The reserves of a deployment: next to the log, and next to the database, if it is on another disk.
    pub fn all(config: &Config) -> Vec<Reserve> {
        let files = [config.audit_log(), config.database()];
        let [log, database] = files.each_ref().map(|file| folder_of(file).metadata().map(|folder| folder.dev()).ok());
        files.iter().take(if log == database { 1 } else { 2 }).map(|file| Reserve::of(file)).collect()
    }

    /// Makes the files that are not there, if there is twice the room for them.
    pub fn keep(&self) -> io::Result<()> {
        for (path, (_, most, part)) in self.0.iter().zip(FILES).filter(|(path, _)| !path.exists()) {
            let file = private_file().create_new(true).write(true).open(path)?;
            let made = fstatvfs(&file).and_then(|disk| {
                let size = most.min(disk.f_blocks * disk.f_frsize / part);
                match disk.f_bavail * disk.f_frsize >= 2 * size {
                    true => fallocate(&file, FallocateFlags::empty(), 0, size).map(|()| true),
                    false => Ok(false),
                }
            });
            if !matches!(made, Ok(true)) {
                std::fs::remove_file(path)?;
            }
            made?;
        }
        Ok(())
    }

    /// Makes room for a line that found the disk full. False if nothing is left that this line may use.
    pub fn release_for(&self, entry: &Entry) -> bool {
        // The refused requests of strangers use none of it.
        entry.refused.is_none() && self.remove(entry.is_vital)
    }

    /// Makes room if the disk of the reserve is full: a failure may have another reason, or be that of another disk. False if nothing is left, except for
    /// lines that must not be missing.
    pub fn release(&self, is_vital: bool) -> bool {
        let is_full = self.0.iter().any(|path| {
            let disk = std::fs::File::open(path).ok().and_then(|file| fstatvfs(file).ok());
            disk.is_some_and(|disk| disk.f_bavail * disk.f_frsize < FULL)
        });
        is_full && self.remove(is_vital)
    }

    fn remove(&self, is_vital: bool) -> bool {
        let mut paths = self.0.iter().take(if is_vital { 2 } else { 1 });
        let removed = paths.find(|path| std::fs::remove_file(path).is_ok());
        if let Some(path) = removed {
            tracing::error!("a disk is full: {} made way for what must be written; make room", Quote::path(path));
        }
        removed.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_for_lines_that_must_not_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        let reserve = Reserve::of(&log);
        let vital = Entry { is_vital: true, ..Entry::default() };
        assert!(!reserve.release_for(&vital), "nothing is there yet");
        reserve.keep().unwrap();
        reserve.keep().unwrap();
        let sizes = || reserve.0.each_ref().map(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
        let [first, last] = sizes();
        assert!(first > 0 && first <= 12 << 20 && last > 0 && last <= 4 << 20, "{first} {last}");
        let refused = Entry { refused: Some(crate::refused::Summary::default()), ..vital.clone() };
        assert!(!reserve.release_for(&refused) && sizes() == [first, last]);
        assert!(reserve.release_for(&Entry::default()) && !reserve.release_for(&Entry::default()));
        assert_eq!(sizes(), [0, last]);
        assert!(reserve.release_for(&vital) && !reserve.release_for(&vital));
        assert_eq!(sizes(), [0, 0]);
        reserve.keep().unwrap();
        assert_eq!(sizes(), [first, last]);
    }
}
