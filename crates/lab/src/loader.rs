//! Where drivers are loaded from.
//!
//! The system's loader finds them, and so does what they load themselves. It looks first into the directories of
//! `LD_LIBRARY_PATH`, then into those that root has configured. Whoever may write to one of the former chooses what a process
//! executes that loads a driver, so that no driver is loaded while another user may.

use hypergrove::backend::{Reference, forward};
use hypergrove::{Backend, Device, Error};
use std::sync::OnceLock;

/// Why no driver is loaded: a sentence without its full stop.
pub(crate) fn distrust() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref()
}

#[cfg(unix)]
fn find() -> Option<String> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let list = std::env::var_os("LD_LIBRARY_PATH").filter(|list| !list.is_empty())?;
    let entries = list.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    let why = entries.map(|entry| std::path::Path::new(OsStr::from_bytes(entry))).find_map(unix::judge)?;
    Some(format!("LD_LIBRARY_PATH {why}; leave that entry out, so that no one else's library is loaded"))
}

/// Elsewhere the system's own directories go first.
#[cfg(not(unix))]
fn find() -> Option<String> {
    None
}

#[cfg(unix)]
mod unix {
    use hypergrove::quote::Quote;
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    const STICKY: u32 = 0o1000;

    /// The fault of an entry of the library path; `None` if the entry has none.
    pub(super) fn judge(entry: &Path) -> Option<String> {
        if !entry.is_absolute() {
            return Some(format!(
                "has the entry {}, which depends on the current directory",
                Quote::new(&*entry.to_string_lossy())
            ));
        }
        // The folder that a missing file would be in decides who may make it.
        let there = entry.ancestors().find_map(|path| fs::canonicalize(path).ok())?;
        let is_open = |(above, path): (usize, &Path)| fs::metadata(path).is_ok_and(|found| is_open(&found, above > 0));
        let open = there.ancestors().enumerate().find(|ancestor| is_open(*ancestor))?.1;
        Some(format!("names {}, and another user may write to {}", Quote::path(entry), open.display()))
    }

    /// Whether somebody may write to a directory who could not change this tool anyway. Where it is sticky, nobody can replace
    /// what others have `below` it.
    fn is_open(found: &Metadata, below: bool) -> bool {
        let tool = std::env::current_exe().and_then(fs::metadata).map(|tool| tool.uid());
        let user = rustix::process::geteuid().as_raw();
        let is_trusted = |owner: u32| owner == 0 || owner == user || tool.as_ref().is_ok_and(|tool| *tool == owner);
        // A group of the owner's number is the owner's alone, as systems number them.
        let others = if found.gid() == found.uid() { 0o002 } else { 0o022 };
        let writable = found.mode() & others != 0 && !(below && found.mode() & STICKY != 0);
        !is_trusted(found.uid()) || writable
    }
}

/// A backend whose driver is not loaded.
pub(crate) struct NotLoaded {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

impl Backend for NotLoaded {
    fn name(&self) -> &'static str {
        self.name
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(Vec::new())
    }
    fn absent(&self) -> Option<String> {
        Some(self.why.into())
    }
    // It has no devices, about which the rest would say something.
    forward!(self => Reference; self_test, fingerprint);
}
