//! Runs: folders or files of JSON lines.

use crate::failure::Failure;
use crate::files::Shown;
use crate::record::Record;
use std::fs;
use std::path::{Path, PathBuf};

/// Measurements that belong together.
pub(crate) struct Run {
    pub(crate) name: String,
    /// What is said of it in `setup.md`.
    pub(crate) setup: String,
    pub(crate) records: Vec<Record>,
    /// What a study left out.
    pub(crate) skipped: Vec<Record>,
    /// Lines that are no records: file, line number and reason.
    pub(crate) bad: Vec<String>,
}

impl Run {
    /// Reads a file, or all `.jsonl` files of a folder in the order of their names.
    pub(crate) fn read(path: &Path) -> Result<Run, Failure> {
        let failed = |path: &Path, why: &std::io::Error| Failure::io("read", Shown(path), why);
        let mut files = vec![path.to_path_buf()];
        let mut setup = String::new();
        if fs::metadata(path).map_err(|why| failed(path, &why))?.is_dir() {
            let entries: Result<Vec<PathBuf>, _> =
                fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
            files = entries.map_err(|why| failed(path, &why))?;
            files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
            files.sort();
            setup = fs::read_to_string(path.join("setup.md")).unwrap_or_default();
        }
        let whole = fs::canonicalize(path).map_err(|why| failed(path, &why))?;
        let name = whole.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut run = Run { name, setup, records: Vec::new(), skipped: Vec::new(), bad: Vec::new() };
        for file in files {
            let bytes = fs::read(&file).map_err(|why| failed(&file, &why))?;
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match record(line) {
                    Ok(record) if record.skipped.is_some() => run.skipped.push(record),
                    Ok(record) => run.records.push(record),
                    Err(why) => run.bad.push(format!("{}, line {}: {why}", Shown(&file), number + 1)),
                }
            }
        }
        if run.records.is_empty() {
            let bad = run.bad.first().map_or(String::new(), |first| format!("; {first}"));
            return Err(Failure::new(format!("{} has no record of a measurement{bad}", Shown(path)))
                .hint("`hypergrove bench --json` and `hypergrove bench --study NAME --json` write records"));
        }
        Ok(run)
    }
}

/// A line as a record that holds together; or why it does not.
fn record(line: &[u8]) -> Result<Record, String> {
    let record: Record = serde_json::from_slice(line).map_err(|why| why.to_string())?;
    if record.skipped.is_some() {
        return Ok(record);
    }
    let positive = |value: f64| value > 0.0 && value.is_finite();
    let missing = |field: &str| Err(format!("`{field}` is missing or makes no sense"));
    if !record.verified {
        return Err("what was not verified does not count".into());
    }
    if record.op.is_empty() {
        return missing("op");
    }
    if record.op == "rates" {
        return Ok(record);
    }
    if record.set.is_empty() {
        return missing("set");
    }
    if record.batch == 0 {
        return missing("batch");
    }
    if !positive(record.median_s) {
        return missing("median_s");
    }
    if !positive(record.ops_per_s) {
        return missing("ops_per_s");
    }
    if !(record.times_s.iter().chain(&record.execute_s).all(|s| positive(*s)) && record.spread >= 0.0) {
        return missing("times_s");
    }
    if record.stages.iter().any(|stage| stage.times_s.is_empty() || !stage.times_s.iter().all(|s| *s >= 0.0)) {
        return missing("stages");
    }
    Ok(record)
}
