//! The files that a change touches: a step that reads none of them need not run.

use crate::features;
use crate::{disk, process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where a step reads, in words: files and folders, which have a dot or a slash; and crates with all that they depend on, as `CRATE`, or as
/// `CRATE+tests` with what their tests depend on, too.
pub(crate) type Reads = &'static str;

/// Changes here may break any step. Crates include the tables and vectors in the last two folders.
pub(crate) const READ_BY_ALL: Reads =
    "Cargo.toml Cargo.lock rust-toolchain.toml .cargo/ .ci/ xtask/Cargo.toml xtask/src/ tuning/ vectors/";
const MAIN: &str = "origin/main";

/// The files that differ between a commit and the working tree.
pub(crate) struct Change {
    pub(crate) since: String,
    files: Vec<PathBuf>,
    packages: Vec<Value>,
}

impl Change {
    /// The change since a commit, or since the branch left [`MAIN`]. None if no such commit is known, as in a shallow clone, or if HEAD is on
    /// [`MAIN`]: there the changes of several people meet, and everything has to run.
    pub(crate) fn find(since: Option<&str>) -> Result<Option<Change>, String> {
        // Git would write names that are not ASCII in a form of its own.
        let plain = &["-c", "core.quotePath=false"][..];
        let git = |words: &[&str]| process::output("git", &[plain, words].concat()).map(|text| text.trim().to_owned());
        let base = match since {
            Some(commit) => {
                let base = git(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")]);
                Some(base.ok_or_else(|| format!("--since {commit}: git knows no such commit"))?)
            }
            None => {
                git(&["merge-base", "HEAD", MAIN]).filter(|base| git(&["rev-parse", "HEAD"]).as_ref() != Some(base))
            }
        };
        let Some(since) = base else { return Ok(None) };
        let (changed, new) = git(&["diff", "--name-only", "--no-renames", &since])
            .zip(git(&["ls-files", "--others", "--exclude-standard"]))
            .ok_or_else(|| format!("git cannot compare the working tree with {since}"))?;
        Change::new(since, changed.lines().chain(new.lines())).map(Some)
    }

    /// A change of these files.
    pub(crate) fn new<'a>(since: String, files: impl Iterator<Item = &'a str>) -> Result<Change, String> {
        let files = files.map(|file| disk::workspace().join(file)).collect();
        Ok(Change { since, files, packages: features::packages_of_workspace()? })
    }

    /// Whether it touches a file that a step reads there.
    pub(crate) fn touches(&self, reads: Reads) -> bool {
        let place = |word: &str| match word.contains(['/', '.']) {
            true => BTreeSet::from([disk::workspace().join(word)]),
            false => self.folders(word),
        };
        let places: BTreeSet<PathBuf> = reads.split(' ').chain(READ_BY_ALL.split(' ')).flat_map(place).collect();
        self.files.iter().any(|file| places.iter().any(|place| file.starts_with(place)))
    }

    /// The folders of a crate and of all crates of ours that it depends on.
    fn folders(&self, word: &str) -> BTreeSet<PathBuf> {
        let name = word.strip_suffix("+tests").unwrap_or(word);
        let root = disk::workspace().join("crates").join(name);
        let (mut found, mut waiting) = (BTreeSet::new(), vec![root.clone()]);
        while let Some(folder) = waiting.pop() {
            if !found.insert(folder.clone()) {
                continue;
            }
            let manifest = folder.join("Cargo.toml");
            let is_it = |package: &&Value| package["manifest_path"].as_str().map(Path::new) == Some(&manifest);
            let dependencies = self.packages.iter().find(is_it).and_then(|package| package["dependencies"].as_array());
            let has_tests = folder == root && name != word;
            let used = dependencies.into_iter().flatten().filter(|it| has_tests || it["kind"] != "dev");
            waiting.extend(used.filter_map(|it| it["path"].as_str()).map(PathBuf::from));
        }
        found
    }
}
