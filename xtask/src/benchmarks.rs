//! BENCHMARKS.md, the tables in other documents, and the pictures: rendered from the records in `bench/runs`, so no figure is typed by hand.

use crate::step::{Step, ensure};
use crate::{disk, markdown, sources};
use hypergrove_records::benchmarks::{Files, Folder, rendered, runs};
use hypergrove_records::runs::{RUNS, Run};
use std::path::PathBuf;

struct Workspace;

impl Files for Workspace {
    fn read(&self, path: &str) -> Result<String, String> {
        disk::read(path)
    }
    fn documents(&self) -> Vec<String> {
        sources::documents()
    }
    fn anchor(&self, heading: &str) -> String {
        markdown::slug(heading)
    }
}

/// All runs, the newest first. Each says in `setup.md` how it was made.
fn recorded() -> Result<Vec<Run>, String> {
    let folder = |path: PathBuf| {
        disk::read(path.join("setup.md"))?;
        let raw = path.join("raw.jsonl");
        let text = raw.is_file().then(|| disk::read(raw)).transpose()?;
        Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text))
    };
    runs(disk::entries(RUNS)?.into_iter().rev().map(folder).collect::<Result<Vec<Folder>, String>>()?)
}

/// `cargo xtask benchmarks`: writes the documents.
pub(crate) fn write() -> Result<(), String> {
    for (path, text) in rendered(&recorded()?, &Workspace)? {
        disk::write(&path, text)?;
    }
    Ok(())
}

/// CI's step: the records hold together, and the documents are what they say.
pub(crate) fn current() -> Step {
    let runs = recorded()?;
    for (path, text) in rendered(&runs, &Workspace)? {
        ensure!(disk::read(&path)? == text, "{path} is not what {RUNS} says: `cargo xtask benchmarks` renders it");
    }
    let records: usize = runs.iter().map(|run| run.records.len()).sum();
    Ok(format!("{} runs, {records} records", runs.len()))
}
