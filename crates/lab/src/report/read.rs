//! Runs: folders or files of JSON lines.

use crate::failure::Failure;
use crate::printer::PathDisplay;
use crate::record::Record;
use hypergrove::quote;
use std::fs;
use std::path::{Path, PathBuf};

/// The file, or all `.jsonl` files of the folder in the order of their names.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |why| failed(path, &why);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let entries: Result<Vec<PathBuf>, _> =
        fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files = entries.map_err(failed)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    Ok(files)
}

/// The path of the file that describes the run in a folder. The file need not exist.
pub fn setup(path: &Path) -> PathBuf {
    path.join("setup.md")
}

fn failed(path: &Path, why: &std::io::Error) -> Failure {
    Failure::io("read", PathDisplay(path), why)
}

/// Measurements that belong together.
pub struct RecordedRun {
    /// The name of its file or folder.
    pub name: String,
    /// The text of `setup.md`; empty if there is none.
    pub setup: String,
    /// The measurements.
    pub records: Vec<Record>,
    /// Measurements that a study left out, each with the reason.
    pub skipped: Vec<Record>,
    /// Lines that are no records: file, line number and reason.
    pub bad: Vec<String>,
}

impl RecordedRun {
    /// Reads the files that [`files`] names.
    pub fn read(path: &Path) -> Result<RecordedRun, Failure> {
        let files = files(path)?;
        let setup = fs::read_to_string(setup(path)).unwrap_or_default();
        let whole = fs::canonicalize(path).map_err(|why| failed(path, &why))?;
        let name = whole.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut run = RecordedRun { name, setup, records: Vec::new(), skipped: Vec::new(), bad: Vec::new() };
        for file in files {
            let bytes = fs::read(&file).map_err(|why| failed(&file, &why))?;
            // Some editors put UTF-8's byte order mark before a text.
            let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
            for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match record(line) {
                    Ok(record) if record.skipped.is_some() => run.skipped.push(record),
                    Ok(record) => run.records.push(record),
                    Err(why) => run.bad.push(format!("{}, line {}: {why}", PathDisplay(&file), number + 1)),
                }
            }
        }
        if run.records.is_empty() {
            let bad = run.bad.first().map_or(String::new(), |first| format!("; {first}"));
            return Err(Failure::new(format!("{} has no record of a measurement{bad}", PathDisplay(path)))
                .hint("`hypergrove bench --json` and `hypergrove bench --study NAME --json` write records"));
        }
        name_devices(&mut run.records);
        Ok(run)
    }
}

/// Records of trials have the ids of their devices and no name. The name is that of other records of the run, else the ids.
fn name_devices(records: &mut [Record]) {
    let (named, nameless): (Vec<&mut Record>, Vec<_>) =
        records.iter_mut().partition(|record| !record.device.is_empty());
    for record in nameless {
        match named.iter().find(|other| other.devices == record.devices) {
            Some(other) => {
                record.backend.clone_from(&other.backend);
                record.device.clone_from(&other.device);
                record.detail.clone_from(&other.detail);
            }
            None if record.devices.is_empty() => record.device = "a device without a name".into(),
            None => record.device = record.devices.join(", "),
        }
    }
}

/// A line as a record that holds together; or why it does not.
pub fn record(line: &[u8]) -> Result<Record, String> {
    let record: Record = serde_json::from_slice(line).map_err(|why| quote::message(&why.to_string()))?;
    if record.skipped.is_none() {
        record.check()?;
    }
    Ok(record)
}
