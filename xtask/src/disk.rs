//! Files and folders, with errors that name them.

use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

/// The repository's folder.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

pub(crate) fn failed(path: &Path) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, String> {
    fs::read_to_string(&path).map_err(failed(path.as_ref()))
}

pub(crate) fn read_toml(path: impl AsRef<Path>) -> Result<toml::Table, String> {
    read(&path)?.parse().map_err(|error| format!("{}: {error}", path.as_ref().display()))
}

pub(crate) fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(&path, text).map_err(failed(path.as_ref()))
}

pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), String> {
    let (from, to) = (from.as_ref(), to.as_ref());
    fs::copy(from, to).map(drop).map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

/// Makes a folder and those above it, if they are not there.
pub(crate) fn make(folder: impl AsRef<Path>) -> Result<(), String> {
    fs::create_dir_all(&folder).map_err(failed(folder.as_ref()))
}

/// Makes a folder without what was in it before.
pub(crate) fn make_anew(folder: impl AsRef<Path>) -> Result<(), String> {
    remove(&folder)?;
    make(folder)
}

/// Removes a folder, if it is there.
pub(crate) fn remove(folder: impl AsRef<Path>) -> Result<(), String> {
    match fs::remove_dir_all(&folder) {
        Err(error) if folder.as_ref().exists() => Err(failed(folder.as_ref())(error)),
        _ => Ok(()),
    }
}

/// The files and folders in a folder, sorted.
pub(crate) fn entries(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, String> {
    let folder = folder.as_ref();
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed(folder))?;
    paths.sort();
    Ok(paths)
}
