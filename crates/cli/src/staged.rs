//! How bytes get their name: a file is whole or absent, however the tool ends.
//!
//! On Linux, bytes are written to a file without a name (`O_TMPFILE`). The system removes that file if the tool ends, and the
//! file gets its name once its bytes are on the disk. Replacing a file takes a rename, which needs a temporary name, and
//! other systems have no files without names. A directory has at most one temporary for private keys, one for second
//! files of pairs, and one for the rest. A temporary is locked as long as its writer lives: the next writer removes a temporary that is not locked.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a writer waits for another one that has the same temporary.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long Windows may deny what another run has open, before that is an error.
const MOMENT: Duration = Duration::from_secs(1);
/// Files that wait for the disk together, at most.
const THREADS: usize = 16;
/// The name of the second file of a pair that makes way for another. Whoever has its directory's temporary for public files has this too.
const REPLACED: &str = ".hypergrove-replaced.tmp";

/// Who may read a file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The owner alone.
    Private,
    /// Whom the umask lets.
    Public,
    /// Whom the umask lets, for the second of two public files that belong together.
    Second,
}

impl Access {
    /// The mode of a new file, before the umask.
    #[cfg(unix)]
    pub(crate) fn mode(self) -> u32 {
        if self == Access::Private { 0o600 } else { 0o666 }
    }
}

/// Two names are one file if these are equal: device and inode, or what Windows has for them.
pub(crate) type Identity = (u64, u64);

#[cfg(unix)]
pub(crate) fn identity(file: &File) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|there| (there.dev(), there.ino()))
}

#[cfg(windows)]
pub(crate) fn identity(file: &File) -> Option<Identity> {
    let there = winapi_util::file::information(file).ok()?;
    Some((there.volume_serial_number(), there.file_index()))
}

/// The directory of a file.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that has its bytes and not yet its name; dropped, it leaves nothing behind.
pub(crate) struct Staged {
    path: PathBuf,
    access: Access,
    file: File,
    identity: Option<Identity>,
    temporary: Option<Temporary>,
}

impl Staged {
    /// Makes a file that will be called `path`.
    pub(crate) fn new(path: &Path, access: Access) -> io::Result<Staged> {
        remove_temporaries_at_signals();
        let directory = directory(path);
        // Removes the temporaries of a killed writer; a writer that is alive keeps its temporary.
        for access in [Access::Private, Access::Public, Access::Second] {
            let _ = is_free(&temporary_path(directory, access));
        }
        let (file, temporary) = match unnamed(directory, access) {
            Some(file) => (file, None),
            None => {
                let (file, temporary) = named(&temporary_path(directory, access), access)?;
                (file, Some(temporary))
            }
        };
        let identity = identity(&file);
        Ok(Staged { path: path.into(), access, file, identity, temporary })
    }

    /// Writes more bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives it the mode and the owner of another file.
    #[cfg(unix)]
    pub(crate) fn resemble(&self, other: &fs::Metadata) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, fchown};
        let own = self.file.metadata()?;
        if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
            fchown(&self.file, Some(other.uid()), Some(other.gid()))?;
        }
        self.file.set_permissions(other.permissions())
    }

    /// Who may read it is what the directory hands on.
    #[cfg(windows)]
    pub(crate) fn resemble(&self, _: &fs::Metadata) -> io::Result<()> {
        Ok(())
    }

    /// Whether it has no name at all: others can be staged in the directory meanwhile.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.temporary.is_none()
    }

    /// Waits until the bytes are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Gives the file its name; `replace` says whether a file of that name makes way.
    pub(crate) fn commit(mut self, replace: bool) -> io::Result<()> {
        if replace {
            self.claim()?;
        }
        self.name(replace, &mut live())
    }

    /// Gives the file a name to be renamed from, as soon as no other writer has it.
    fn claim(&mut self) -> io::Result<()> {
        if self.temporary.is_none() {
            // Where there are no locks, the name alone keeps other writers away.
            let _ = self.file.try_lock();
            let path = temporary_path(directory(&self.path), self.access);
            let ((), temporary) = Temporary::make(&path, || link(&self.file, &path))?;
            self.temporary = Some(temporary);
        }
        Ok(())
    }

    fn name(&mut self, replace: bool, live: &mut Vec<PathBuf>) -> io::Result<()> {
        match self.temporary.take() {
            Some(temporary) => temporary.rename(&self.path, replace, live),
            None => link(&self.file, &self.path),
        }
    }
}

/// Which file of a pair an error is about.
pub(crate) enum PairMember {
    First,
    Second,
    /// The first file has been replaced already.
    SecondAlone,
}

/// Gives two files their names, so that nobody finds the first next to another writer's second, or next to an old one.
pub(crate) fn commit_pair(mut first: Staged, mut second: Staged, replace: bool) -> Result<(), (PairMember, io::Error)> {
    let (of_first, of_second) = (|error| (PairMember::First, error), |error| (PairMember::Second, error));
    let alone = |error| (if replace { PairMember::SecondAlone } else { PairMember::Second }, error);
    if replace {
        // All writers take the temporaries in one order, private, public, second: none waits for one that waits for it.
        first.claim().map_err(of_first)?;
        second.claim().map_err(of_second)?;
    }
    let mut live = live();
    // A kill between the two renames must not leave the old second file next to the new first.
    let aside = directory(&second.path).join(REPLACED);
    let is_aside = replace && move_away(&second.path, &aside).map_err(of_second)?;
    if let Err(error) = first.name(replace, &mut live) {
        if is_aside {
            let _ = fs::rename(&aside, &second.path);
        }
        return Err(of_first(error));
    }
    if replace {
        // A killed run may have left one.
        let _ = fs::remove_file(&aside);
    }
    if replace && is_at(first.identity, &second.path) {
        // As in a directory that does not tell capital letters from small ones.
        let error = io::Error::new(ErrorKind::InvalidInput, "this is another name of the file that was just written");
        return Err(alone(error));
    }
    second.name(replace, &mut live).map_err(|error| {
        if !replace && is_at(first.identity, &first.path) {
            let _ = fs::remove_file(&first.path);
        }
        alone(error)
    })
}

/// Renames a file, which comes back if what it makes way for fails; returns whether there was one.
fn move_away(path: &Path, aside: &Path) -> io::Result<bool> {
    match patiently(|| fs::rename(path, aside)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        renamed => renamed.map(|()| true),
    }
}

/// Tries again for a moment what Windows denies. There a file that another run has open, if only to look at it, is not replaced,
/// and its name is not free before the last of those that had it open has closed it.
fn patiently<T>(mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match action() {
            Err(error) if cfg!(windows) && error.kind() == ErrorKind::PermissionDenied && start.elapsed() < MOMENT => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// Waits until the bytes of all files are on the disk. Several waits at once take hardly longer than one.
pub(crate) fn sync_all(files: &[&Staged]) -> Vec<io::Result<()>> {
    let (next, synced) = (AtomicUsize::new(0), files.iter().map(|_| OnceLock::new()).collect::<Vec<_>>());
    let work = || {
        while let Some((file, done)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| files.get(i).zip(synced.get(i)))
        {
            let _ = done.set(file.sync());
        }
    };
    thread::scope(|scope| {
        for _ in 1..files.len().min(THREADS) {
            // This thread does what others cannot be had for.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    synced.into_iter().map(|done| done.into_inner().expect("every file was synced")).collect()
}

/// Waits until the names in a directory are on the disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // A directory that cannot be read cannot be synced, and some file systems sync no directories.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// The temporaries of this process, which the thread that waits for signals removes. While the list is locked, no signal
/// ends the process.
fn live() -> MutexGuard<'static, Vec<PathBuf>> {
    static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that is removed unless it is changed.
struct Temporary(Option<PathBuf>);

impl Temporary {
    /// Has `make` make the file, once the name is free.
    fn make<T>(path: &Path, mut make: impl FnMut() -> io::Result<T>) -> io::Result<(T, Temporary)> {
        let start = Instant::now();
        loop {
            {
                let mut live = live();
                match patiently(&mut make) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                    Ok(made) => {
                        live.push(path.into());
                        return Ok((made, Temporary(Some(path.into()))));
                    }
                }
            }
            if !is_free(path)? {
                if start.elapsed() > PATIENCE {
                    let name = path.file_name().unwrap_or_default().display();
                    let what =
                        format!("another run has {name} there; wait for it, or remove that file if no run is left");
                    return Err(io::Error::new(ErrorKind::ResourceBusy, what));
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn rename(mut self, to: &Path, replace: bool, live: &mut Vec<PathBuf>) -> io::Result<()> {
        let Some(path) = self.0.take() else { return Ok(()) };
        live.retain(|other| *other != path);
        let renamed = patiently(|| if replace { fs::rename(&path, to) } else { rename_to_new(&path, to) });
        if renamed.is_err() {
            let _ = fs::remove_file(&path);
        }
        renamed
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let mut live = live();
            live.retain(|other| *other != path);
            let _ = fs::remove_file(path);
        }
    }
}

fn temporary_path(directory: &Path, access: Access) -> PathBuf {
    directory.join(match access {
        Access::Private => ".hypergrove-private.tmp",
        Access::Public => ".hypergrove-public.tmp",
        Access::Second => ".hypergrove-second.tmp",
    })
}

/// Whether a file of this name is a writer's, and goes with it.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let names = [Access::Private, Access::Public, Access::Second].map(|access| temporary_path(Path::new(""), access));
    name == REPLACED || names.iter().any(|temporary| temporary == name)
}

/// Whether nothing has this name of a temporary; removes what a killed writer left.
fn is_free(path: &Path) -> io::Result<bool> {
    let file = match patiently(|| open_without_following(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Ok(file) if is_our_own(&file) => file,
        _ => {
            let name = path.file_name().unwrap_or_default().display();
            let what = format!("{name} is in the way there, and is no temporary of this user; remove it");
            return Err(io::Error::other(what));
        }
    };
    match file.try_lock() {
        // The lock's last owner may have renamed the file, and another writer have made a new one.
        Ok(()) if is_at(identity(&file), path) => patiently(|| fs::remove_file(path)).map(|()| true),
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Ok(false),
    }
}

/// A new temporary, where files without a name cannot be had.
fn named(path: &Path, access: Access) -> io::Result<(File, Temporary)> {
    Temporary::make(path, || {
        let file = create(path, access)?;
        match file.try_lock() {
            Err(TryLockError::Error(_)) => Ok(file),
            Ok(()) if is_at(identity(&file), path) => Ok(file),
            // Another writer took it for one that was left.
            _ => Err(ErrorKind::AlreadyExists.into()),
        }
    })
}

/// Whether the name, which is no link, leads to this file.
fn is_at(file: Option<Identity>, path: &Path) -> bool {
    #[cfg(unix)]
    let there = {
        use std::os::unix::fs::MetadataExt;
        fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
    };
    #[cfg(windows)]
    let there = open_without_following(path).ok().and_then(|there| identity(&there));
    file.is_some() && file == there
}

/// Renames a file unless the new name is taken.
#[cfg(windows)]
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    tempfile::TempPath::try_from_path(from)?.persist_noclobber(to).map_err(|kept| kept.error)
}

#[cfg(unix)]
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems cannot.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => return Ok(renamed?),
        }
    }
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

#[cfg(unix)]
fn create(path: &Path, access: Access) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create_new(true).mode(access.mode()).open(path)
}

/// Who may read it is what the directory hands on.
#[cfg(windows)]
fn create(path: &Path, _: Access) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn open_without_following(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

#[cfg(windows)]
fn open_without_following(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
    File::options().read(true).write(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)
}

#[cfg(unix)]
fn is_our_own(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|there| there.is_file() && there.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(windows)]
fn is_our_own(file: &File) -> bool {
    file.metadata().is_ok_and(|there| there.is_file())
}

/// A file without a name, which can be given one.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path, access: Access) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // The name is given by way of /proc.
    let file = Path::new("/proc/self/fd").exists().then(|| open(directory, flags, Mode::from_raw_mode(access.mode())));
    file?.ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: Access) -> Option<File> {
    None
}

/// Gives a file without a name this one; nothing is replaced.
#[cfg(target_os = "linux")]
fn link(file: &File, to: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let file = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, file, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Has SIGINT and SIGTERM remove temporaries before they end the process.
#[cfg(unix)]
fn remove_temporaries_at_signals() {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use std::sync::{Once, mpsc};
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (ready, wait) = mpsc::sync_channel(1);
        let watch = move || {
            // Whoever started the tool may have had it ignore a signal, as shells do for what runs in the background.
            let signals = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
            let signals = Signals::new(signals);
            let _ = ready.send(());
            let Ok(mut signals) = signals else { return };
            for signal in signals.forever() {
                let live = live();
                live.iter().for_each(|path| drop(fs::remove_file(path)));
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        // Without this thread a signal leaves no more behind than SIGKILL, and the next writer removes that.
        if thread::Builder::new().name("signals".into()).spawn(watch).is_ok() {
            let _ = wait.recv();
        }
    });
}

/// On Windows Ctrl-C leaves what SIGKILL leaves elsewhere, and the next writer removes that.
#[cfg(windows)]
fn remove_temporaries_at_signals() {}

/// Whether the process ignores the signal, as far as the system tells.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.unwrap_or(0) >> (signal - 1) & 1 == 1
}
