//! Runs: the measurements of a file, or of a folder of `bench/runs`.

use crate::record::{HashRates, Record};
use hypergrove_fips205::quote;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The folder of the runs whose figures are in documents.
pub const RUNS: &str = "bench/runs";

/// Measurements that belong together.
#[derive(Clone, Default)]
pub struct Run {
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

impl Run {
    /// The run of a file of [`RUNS`] whose every line is a record that has all that documents show; or which line is wrong, and why.
    pub(crate) fn whole(name: &str, lines: &str) -> Result<Run, String> {
        let complete = |(number, read): (usize, Result<Record, String>)| {
            read.and_then(complete).map_err(|why| format!("line {number}: {why}"))
        };
        let records = numbered(lines.as_bytes()).map(complete).collect::<Result<Vec<_>, _>>()?;
        if records.is_empty() {
            return Err("no record in it".into());
        }
        Ok(Run { name: name.into(), records, ..Run::default() })
    }

    /// Adds the lines of a file. Those that are no records are in [`bad`](Run::bad), with `file`.
    pub fn add(&mut self, file: impl Display, bytes: &[u8]) {
        // Some editors put UTF-8's byte order mark before a text.
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        for (number, read) in numbered(bytes) {
            match read {
                Ok(record) if record.skipped.is_some() => self.skipped.push(record),
                Ok(record) => self.records.push(record),
                Err(why) => self.bad.push(format!("{file}, line {number}: {why}")),
            }
        }
    }

    /// Names the devices of records of trials, which have ids alone. The name is that of other records of the run, else the ids.
    pub fn name_devices(&mut self) {
        let (named, nameless): (Vec<&mut Record>, Vec<_>) =
            self.records.iter_mut().partition(|record| !record.device.is_empty());
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

    /// The day in a run's name, `2026-11-21-h200`.
    fn day(&self) -> &str {
        self.name.get(..10).unwrap_or(&self.name)
    }

    /// Whether a GPU was there: its host is another machine than one that has none.
    pub(crate) fn has_gpu(&self) -> bool {
        self.records.iter().any(Record::uses_gpu)
    }
}

/// The lines that are not blank, each with its number, as records that hold together; or why they do not.
fn numbered(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<Record, String>)> {
    let lines = (1..).zip(bytes.split(|byte| *byte == b'\n'));
    lines.filter(|(_, line)| !line.trim_ascii().is_empty()).map(|(number, line)| (number, record(line)))
}

/// A line as a record that holds together; or why it does not.
pub fn record(line: &[u8]) -> Result<Record, String> {
    let record: Record = serde_json::from_slice(line).map_err(|why| quote::message(&why.to_string()))?;
    if record.skipped.is_none() {
        record.check()?;
    }
    Ok(record)
}

/// A record as documents show it. Records older than `devices` name the one device by its backend.
fn complete(mut record: Record) -> Result<Record, String> {
    if record.devices.is_empty() {
        record.devices = vec![format!("{}:0", record.backend)];
    }
    if record.scheme == "SHA-256" {
        record.set = format!("SHA-256 of {} B", record.message_bytes);
    }
    check(&record)?;
    Ok(record)
}

/// Whether everything is there that the page shows, and the figures agree with one another.
pub(crate) fn check(record: &Record) -> Result<(), String> {
    record.check()?;
    let (missing, not_positive) = ("is missing or empty", "is missing or no positive number");
    let agree = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    let positive = |value: Option<f64>| value.is_none_or(|value| value > 0.0);
    let rates = |known: Option<HashRates>| {
        known.is_none_or(|of| [of.sha256, of.sha512, of.keccak].iter().all(|rate| *rate > 0.0))
    };
    let is_share = match (record.ideal_s, record.limit_fraction) {
        (Some(ideal), Some(fraction)) => agree(fraction, ideal / record.median_s),
        (ideal, fraction) => ideal.is_none() && fraction.is_none(),
    };
    let has_kernels = record.kernels_per_s.is_some() || record.kernels_limit_fraction.is_none();
    // Hash rates say nothing about zkDilithium.
    let has_rates = record.scheme == "zkDilithium" || record.uses_gpu() || record.rates.is_some();
    let checks = [
        ("set", !record.set.is_empty(), missing),
        ("backend", !record.backend.is_empty(), missing),
        ("device", !record.device.is_empty(), missing),
        ("detail", !record.detail.is_empty(), missing),
        ("commit", !record.commit.is_empty(), missing),
        ("threads", record.threads > 0, "is 0 or missing"),
        ("min_s", record.min_s > 0.0, not_positive),
        ("limit_fraction", positive(record.limit_fraction), not_positive),
        ("kernels_per_s", positive(record.kernels_per_s), not_positive),
        ("kernels_limit_fraction", positive(record.kernels_limit_fraction), not_positive),
        ("rates", rates(record.rates), not_positive),
        ("limit", rates(record.limit), not_positive),
        ("min_s", record.min_s <= record.median_s, "is more than the median"),
        (
            "ops_per_s",
            agree(record.ops_per_s, record.batch as f64 / record.median_s),
            "is not the batch over the median",
        ),
        ("limit_fraction", is_share, "is not the ideal time over the median"),
        ("kernels_limit_fraction", has_kernels, "is there, but the kernels' time is not known"),
        ("rates", has_rates, "is missing, but the host's cores worked"),
    ];
    match checks.iter().find(|(_, holds, _)| !holds) {
        Some((field, _, why)) => Err(format!("`{field}` {why}")),
        None => Ok(()),
    }
}

/// A record and its run.
#[derive(Clone, Copy)]
pub(crate) struct RunRecord<'a> {
    pub(crate) run: &'a Run,
    pub(crate) record: &'a Record,
}

/// The record of each key that counts: from the newest day that has the key, the fastest. Of several records in one run with one key and
/// one size of call the last one counts, since runs in turns begin with the older tool. Records of many callers, or of several
/// processes, are of studies.
pub(crate) fn newest<K: Ord + Clone>(
    runs: &[Run],
    key: impl Fn(&Run, &Record) -> Option<K>,
) -> BTreeMap<K, RunRecord<'_>> {
    let mut best = BTreeMap::<K, RunRecord<'_>>::new();
    let is_call = |record: &&Record| record.callers.is_none() && record.processes.is_none();
    for run in runs {
        let mut last = BTreeMap::new();
        for record in run.records.iter().filter(is_call) {
            if let Some(key) = key(run, record) {
                last.insert((key, record.batch), record);
            }
        }
        for ((key, _), record) in last {
            let found = RunRecord { run, record };
            let replaces = best.get(&key).is_none_or(|old| {
                let days = run.day().cmp(old.run.day());
                days.is_gt() || days.is_eq() && record.ops_per_s > old.record.ops_per_s
            });
            if replaces {
                best.insert(key, found);
            }
        }
    }
    best
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;
    use serde_json::{Value, json};

    /// A record of before there were GPUs.
    pub(crate) fn cpu() -> Value {
        json!({
            "scheme": "SLH-DSA", "set": "A", "op": "sign", "batch": 4, "backend": "cpu", "device": "A CPU", "detail": "isa",
            "threads": 2, "median_s": 0.5, "min_s": 0.25, "spread": 0.125, "runs": 3, "ops_per_s": 8.0, "ideal_s": 0.25,
            "limit_fraction": 0.5, "verified": true, "cached_layers": 0, "message_bytes": 32,
            "rates": { "sha256": 8e7, "sha512": 3e7, "keccak": 2e7 }, "version": "0.1.0", "commit": "c0ffee",
        })
    }

    /// A record of one GPU's throughput.
    pub(crate) fn gpu() -> Value {
        let limit = json!({ "sha256": 1.63e10, "sha512": 5.08e9, "keccak": 3.4e9 });
        with(
            cpu(),
            json!({
                "backend": "cuda", "device": "A GPU", "detail": "driver", "devices": ["cuda:0"], "threads": 16,
                "batch": 65536, "ops_per_s": 131072.0, "kernels_per_s": 140000.0, "kernels_limit_fraction": 0.75,
                "redundant": false, "rates": null, "limit": limit,
            }),
        )
    }

    pub(crate) fn with(mut record: Value, changes: Value) -> Value {
        for (field, value) in changes.as_object().unwrap() {
            record[field] = value.clone();
        }
        record
    }

    /// A record of a single job.
    pub(crate) fn one(record: Value) -> Value {
        let changes = json!({
            "batch": 1, "threads": 1, "median_s": 0.001, "min_s": 0.0005, "ops_per_s": 1000.0, "ideal_s": 0.0005,
        });
        with(record, changes)
    }

    fn read_all(name: &str, all: &[Value]) -> Result<Run, String> {
        Run::whole(name, &all.iter().map(|record| format!("{record}\n")).collect::<String>())
    }

    pub(crate) fn run(name: &str, all: &[Value]) -> Run {
        read_all(name, all).unwrap()
    }

    /// The newest day counts; of one day the fastest run; of one run the last record of a size.
    #[test]
    fn the_newest_record_counts() {
        let of = |rate: f64| {
            with(
                cpu(),
                json!({ "threads": 1, "ops_per_s": rate, "median_s": 4.0 / rate, "min_s": 0.01, "ideal_s": 2.0 / rate }),
            )
        };
        let runs = [
            run("2026-01-03-b", &[of(30.0), of(20.0)]),
            run("2026-01-03-a", &[of(10.0)]),
            run("2026-01-02-a", &[of(40.0)]),
        ];
        for runs in [&runs[..], &[&runs[2], &runs[1], &runs[0]].map(Clone::clone)] {
            let found = newest(runs, |_, record| Some(record.set.clone()));
            let rates: Vec<_> = found.values().map(|found| (found.record.ops_per_s, &*found.run.name)).collect();
            assert_eq!(rates, [(20.0, "2026-01-03-b")]);
        }
    }

    #[test]
    fn records_that_do_not_hold_together() {
        for (changes, why) in [
            (json!({ "verified": false }), "what was not verified does not count"),
            (json!({ "set": null }), "invalid type: null, expected a string"),
            (json!({ "batch": 0 }), "`batch` is missing or makes no sense"),
            (json!({ "median_s": 0 }), "`median_s` is missing or makes no sense"),
            (json!({ "spread": -0.5 }), "`spread` is missing or makes no sense"),
            (json!({ "min_s": 0.75 }), "`min_s` is more than the median"),
            (json!({ "ops_per_s": 9.0 }), "`ops_per_s` is not the batch"),
            (json!({ "limit_fraction": 0.75 }), "`limit_fraction` is not the ideal"),
            (json!({ "limit_fraction": null }), "`limit_fraction` is not the ideal"),
            (json!({ "kernels_limit_fraction": 0.5 }), "`kernels_limit_fraction` is there, but"),
            (json!({ "kernels_per_s": "many" }), "invalid type: string 'many', expected f64"),
            (json!({ "device": "" }), "`device` is missing or empty"),
            (json!({ "rates": null }), "`rates` is missing, but the host's cores worked"),
            (json!({ "rates": { "sha256": 1.0 } }), "missing field `sha512`"),
            (
                json!({ "rates": { "sha256": 1.0, "sha512": 0.0, "keccak": 1.0 } }),
                "`rates` is missing or no positive number",
            ),
        ] {
            let error = read_all("", &[cpu(), with(cpu(), changes)]).err().unwrap_or_default();
            assert!(error.starts_with(&format!("line 2: {why}")), "{error}");
        }
        assert!(["", "[]\n", "{\n"].iter().all(|lines| Run::whole("", lines).is_err()));
        assert!(read_all("", &[cpu(), gpu(), one(gpu())]).is_ok());
        let lattice = json!({ "scheme": "zkDilithium", "rates": null, "ideal_s": null, "limit_fraction": null });
        assert!(read_all("", &[with(cpu(), lattice)]).is_ok());
    }
}
