//! BENCHMARKS.md, rendered from the records in `bench/runs`: no figure in prose is typed by hand.

use crate::process::{Outcome, Step};
use hypergrove_lab::record::Record;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

const RUNS: &str = "bench/runs";
const PAGE: &str = "BENCHMARKS.md";

/// Backends that compute on the host's cores; all others are GPUs.
const HOSTS: &[&str] = &["cpu", "reference"];
/// What stands for a figure that is not known.
const UNKNOWN: &str = "–";

const INTRODUCTION: &str = "# Benchmarks\n\n\
    Rendered by `cargo xtask benchmarks` from the records in `bench/runs`, JSON lines of `hypergrove bench --json`; every\n\
    measurement verified its own answers. `of limit` is the time that the operation's hash compressions take at the\n\
    machine's own primitive rates, measured in the same run, everything in registers, over the median time. One row is\n\
    the median of at least three runs.\n";

/// Said if there is a GPU among the runs.
const OF_GPUS: &str = "\n\
    A GPU's limit is not measured: it is what the integer pipes of all its multiprocessors allow at the highest clock;\n\
    devices that work together have the sum of theirs. `end to end` is from the host's memory to the host's memory, digests\n\
    of messages included; `kernels alone` is one device at work on one program at a time, its inputs in its memory. Of\n\
    SHA-256 of messages from host to host the limit is what the link carries, measured in the same run. Where\n\
    everything is computed twice and compared (redundant), the limit and the kernels' figures are of computing it once.\n";

/// `cargo xtask benchmarks`: writes the page.
pub(crate) fn write() -> Result<(), String> {
    fs::write(PAGE, page(&runs()?)).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

/// CI's step: the records hold together, and the page is what they say.
pub(crate) fn current() -> Step {
    let runs = runs()?;
    let there = fs::read_to_string(PAGE).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    if there != page(&runs) {
        return Err(format!("{PAGE} is not what {RUNS} says: `cargo xtask benchmarks` renders it"));
    }
    let records: usize = runs.iter().map(|run| run.records.len()).sum();
    Ok(Outcome::Passed(format!("{} runs, {records} records", runs.len())))
}

/// A folder of `bench/runs`.
struct Run {
    name: String,
    setup: String,
    records: Vec<Record>,
}

/// All runs, the newest first.
fn runs() -> Result<Vec<Run>, String> {
    let list = |path: &Path| -> io::Result<Vec<PathBuf>> {
        let mut found: Vec<_> = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        found.sort();
        found.reverse();
        Ok(found)
    };
    let folders = list(Path::new(RUNS)).map_err(|error| format!("cannot read {RUNS}: {error}"))?;
    let run = |folder: PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let read = |file: &str| {
            fs::read_to_string(folder.join(file)).map_err(|error| format!("cannot read {RUNS}/{name}/{file}: {error}"))
        };
        let records = records(&read("raw.jsonl")?).map_err(|why| format!("{RUNS}/{name}/raw.jsonl: {why}"))?;
        Ok(Run { setup: read("setup.md")?, records, name })
    };
    folders.into_iter().map(run).collect()
}

/// Compressions a second.
#[derive(Clone, Copy)]
struct Rates {
    sha256: f64,
    sha512: f64,
    keccak: f64,
}

/// The records of JSON lines; or which line is wrong, and why.
fn records(lines: &str) -> Result<Vec<Record>, String> {
    let numbered = lines.lines().enumerate();
    let found: Vec<_> = numbered
        .map(|(i, line)| read(line).map_err(|why| format!("line {}: {why}", i + 1)))
        .collect::<Result<_, _>>()?;
    if found.is_empty() { Err("no record in it".into()) } else { Ok(found) }
}

/// The rates in a record.
fn rates(field: &Option<Value>) -> Option<Rates> {
    let of = |hash: &str| field.as_ref()?[hash].as_f64().filter(|rate| *rate > 0.0);
    Some(Rates { sha256: of("sha256")?, sha512: of("sha512")?, keccak: of("keccak")? })
}

/// A line as a record. Records older than `devices` name the one device by its backend.
fn read(line: &str) -> Result<Record, String> {
    let mut record: Record = serde_json::from_str(line).map_err(|error| error.to_string())?;
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
fn check(record: &Record) -> Result<(), String> {
    let agree = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    let wrong = |field: &str, why: &str| Err(format!("`{field}` {why}"));
    if !record.verified {
        return wrong("verified", "is not true, and what was not verified does not count");
    }
    let texts = [
        ("set", &record.set),
        ("op", &record.op),
        ("backend", &record.backend),
        ("device", &record.device),
        ("detail", &record.detail),
        ("commit", &record.commit),
    ];
    if let Some((field, _)) = texts.into_iter().find(|(_, text)| text.is_empty()) {
        return wrong(field, "is missing or empty");
    }
    if record.batch == 0 || record.threads == 0 {
        return wrong(if record.batch == 0 { "batch" } else { "threads" }, "is 0 or missing");
    }
    let positive = [
        ("median_s", Some(record.median_s)),
        ("min_s", Some(record.min_s)),
        ("ops_per_s", Some(record.ops_per_s)),
        ("limit_fraction", record.limit_fraction),
        ("kernels_per_s", record.kernels_per_s),
        ("kernels_limit_fraction", record.kernels_limit_fraction),
    ];
    if let Some((field, _)) = positive.into_iter().find(|(_, value)| value.is_some_and(|value| value <= 0.0)) {
        return wrong(field, "is missing or no positive number");
    }
    if record.spread < 0.0 {
        return wrong("spread", "is below 0");
    }
    for (field, value) in [("rates", &record.rates), ("limit", &record.limit)] {
        if value.is_some() && rates(value).is_none() {
            return wrong(field, "lacks the rate of a hash");
        }
    }
    if record.min_s > record.median_s {
        return wrong("min_s", "is more than the median");
    }
    if !agree(record.ops_per_s, record.batch as f64 / record.median_s) {
        return wrong("ops_per_s", "is not the batch over the median");
    }
    match (record.ideal_s, record.limit_fraction) {
        (Some(ideal), Some(fraction)) if agree(fraction, ideal / record.median_s) => {}
        (None, None) => {}
        _ => return wrong("limit_fraction", "is not the ideal time over the median"),
    }
    if record.kernels_per_s.is_none() && record.kernels_limit_fraction.is_some() {
        return wrong("kernels_limit_fraction", "is there, but the kernels' time is not known");
    }
    // Hash rates say nothing about zkDilithium.
    if record.scheme != "zkDilithium" && !uses_gpu(record) && record.rates.is_none() {
        return wrong("rates", "is missing, but the host's cores worked");
    }
    Ok(())
}

fn uses_gpu(record: &Record) -> bool {
    let backend = |id: &String| id.split(':').next().is_some_and(|name| HOSTS.contains(&name));
    !record.devices.iter().all(backend)
}

/// Seconds a job.
fn job(record: &Record, seconds: f64) -> String {
    time(seconds / record.batch as f64)
}

fn page(runs: &[Run]) -> String {
    let mut page = String::from(INTRODUCTION);
    if runs.iter().flat_map(|run| &run.records).any(uses_gpu) {
        page += OF_GPUS;
    }
    for run in runs {
        let _ = write!(page, "\n## {}\n\n{}\n", run.name, run.setup.trim());
        for section in sections(&run.records) {
            let _ = write!(page, "\n### {}\n\n", section.heading);
            if section.gpu { gpu(&mut page, &section.records) } else { host(&mut page, &section.records) }
        }
    }
    page
}

/// Records under one heading.
struct Section<'a> {
    heading: String,
    gpu: bool,
    records: Vec<&'a Record>,
}

/// A host's records keep the order in which they were measured; a GPU's come together.
fn sections(records: &[Record]) -> Vec<Section<'_>> {
    let mut sections = Vec::<Section<'_>>::new();
    for record in records {
        let gpu = uses_gpu(record);
        let mut heading = format!("{}, {}", record.device, record.detail);
        if !gpu {
            let _ = write!(heading, ", threads {}", record.threads);
        }
        let last = sections.len().saturating_sub(1);
        let mut open = sections.iter_mut().enumerate().filter(|(i, _)| gpu || *i == last).map(|(_, section)| section);
        match open.find(|section| section.gpu == gpu && section.heading == heading) {
            Some(section) => section.records.push(record),
            None => sections.push(Section { heading, gpu, records: vec![record] }),
        }
    }
    sections
}

/// Adds a host's section.
fn host(page: &mut String, records: &[&Record]) {
    if let Some(Record { commit, rates, .. }) = records.first() {
        let _ = write!(page, "Commit {commit}.");
        if let Some(rates) = self::rates(rates) {
            let [sha256, sha512, keccak] = [rates.sha256, rates.sha512, rates.keccak].map(|rate| rate / 1e6);
            let _ = write!(
                page,
                " One core: SHA-256 {sha256:.1}, SHA-512 {sha512:.1}, Keccak {keccak:.1} million a second."
            );
        }
        page.push_str("\n\n");
    }
    let columns = ["set", "op", "batch", "median", "per second", "spread", "of limit"];
    table(page, columns, records, |record| {
        let mut op = op_of(record);
        if record.cached_layers > 0 {
            let _ = write!(op, ", {} cached", record.cached_layers);
        }
        if record.redundant {
            op += ", redundant";
        }
        [
            record.set.clone(),
            op,
            record.batch.to_string(),
            job(record, record.median_s),
            significant(record.ops_per_s),
            spread(record),
            share(record.limit_fraction),
        ]
    });
}

/// The operation, and where its rows lay, if it was rows.
fn op_of(record: &Record) -> String {
    match &record.rows {
        Some(memory) => format!("{}, rows in {memory} memory", record.op),
        None => record.op.clone(),
    }
}

/// Adds a GPU's section: many jobs, one job, and whatever is not one device's plain work.
fn gpu(page: &mut String, records: &[&Record]) {
    let distinct = |of: &dyn Fn(&Record) -> String, among: &mut dyn Iterator<Item = &&Record>| {
        let mut found = Vec::new();
        for value in among.map(|record| of(record)) {
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found
    };
    let commits = distinct(&|record| record.commit.clone(), &mut records.iter());
    let _ = write!(page, "Commit{} {}.", if commits.len() > 1 { "s" } else { "" }, commits.join(", "));
    // The host's share of one job is done by one thread.
    let threads = distinct(&|record| record.threads.to_string(), &mut records.iter().filter(|record| record.batch > 1));
    if !threads.is_empty() {
        let _ = write!(page, " Host threads: {}.", threads.join(", "));
    }
    let alone = records.iter().filter(|record| record.devices.len() == 1);
    if let Some(limit) = alone.clone().find_map(|record| rates(&record.limit)) {
        let [sha256, sha512, keccak] = [limit.sha256, limit.sha512, limit.keccak].map(|rate| significant(rate / 1e9));
        let _ =
            write!(page, " The limit: SHA-256 {sha256}, SHA-512 {sha512}, Keccak {keccak} thousand million a second.");
    } else if alone.count() > 0 {
        *page += " Its limit is not known.";
    }
    *page += "\n";

    let op = |record: &Record| {
        let mut op = op_of(record);
        if threads.len() > 1 && record.batch > 1 {
            let _ = write!(op, ", {} threads", record.threads);
        }
        if commits.len() > 1 {
            let _ = write!(op, ", {}", record.commit.get(..7).unwrap_or(&record.commit));
        }
        op
    };
    let per_second = |rate: Option<f64>| rate.map_or(UNKNOWN.into(), significant);
    let special = |record: &Record| record.cached_layers > 0 || record.redundant || record.devices.len() > 1;
    let (special, plain): (Vec<&Record>, Vec<&Record>) = records.iter().partition(|record| special(record));
    let (one, many): (Vec<&Record>, Vec<&Record>) = plain.iter().partition(|record| record.batch == 1);

    let (ours, kernels) = ("end to end, per second", "kernels alone, per second");
    if !many.is_empty() {
        *page += "\nThroughput:\n\n";
        let columns = ["set", "op", "batch", ours, "spread", "of limit", kernels, "of limit"];
        table(page, columns, &many, |record| {
            [
                record.set.clone(),
                op(record),
                record.batch.to_string(),
                significant(record.ops_per_s),
                spread(record),
                share(record.limit_fraction),
                per_second(record.kernels_per_s),
                share(record.kernels_limit_fraction),
            ]
        });
    }
    if !one.is_empty() {
        *page += "\nLatency of one job:\n\n";
        table(page, ["set", "op", "median", "min"], &one, |record| {
            [record.set.clone(), op(record), job(record, record.median_s), job(record, record.min_s)]
        });
    }
    if !special.is_empty() {
        *page += "\nWith layers cached, redundant, or by several devices; the median is a job's share of the time:\n\n";
        let columns = [
            "set",
            "op",
            "cached layers",
            "redundant",
            "devices",
            "batch",
            "median",
            ours,
            "spread",
            "of limit",
            kernels,
            "of limit",
        ];
        table(page, columns, &special, |record| {
            [
                record.set.clone(),
                op(record),
                record.cached_layers.to_string(),
                if record.redundant { "yes" } else { "no" }.into(),
                record.devices.join(", "),
                record.batch.to_string(),
                job(record, record.median_s),
                significant(record.ops_per_s),
                spread(record),
                share(record.limit_fraction),
                per_second(record.kernels_per_s),
                share(record.kernels_limit_fraction),
            ]
        });
    }
}

/// Adds a table; words stand left, figures right.
fn table<const N: usize>(
    page: &mut String,
    columns: [&str; N],
    records: &[&Record],
    row: impl Fn(&Record) -> [String; N],
) {
    let words = ["set", "op", "redundant", "devices"];
    let align = columns.map(|column| if words.contains(&column) { "---" } else { "---:" });
    let _ = write!(page, "| {} |\n| {} |\n", columns.join(" | "), align.join(" | "));
    for record in records {
        let _ = writeln!(page, "| {} |", row(record).join(" | "));
    }
}

fn spread(record: &Record) -> String {
    format!("{:.1} %", 100.0 * record.spread)
}

fn share(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.0} %", 100.0 * fraction))
}

/// Seconds a job, in a unit that suits.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} µs", significant(s * 1e6)),
        s if s < 1.0 => format!("{} ms", significant(s * 1e3)),
        s => format!("{} s", significant(s)),
    }
}

/// Three digits, or all of a large whole number.
fn significant(x: f64) -> String {
    let digits = (2 - x.log10().floor() as i32).clamp(0, 4);
    format!("{x:.*}", digits as usize)
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::json;

    /// A record of before there were GPUs.
    fn cpu() -> Value {
        json!({
            "scheme": "SLH-DSA", "set": "A", "op": "sign", "batch": 4, "backend": "cpu", "device": "A CPU", "detail": "isa",
            "threads": 2, "median_s": 0.5, "min_s": 0.25, "spread": 0.125, "runs": 3, "ops_per_s": 8.0, "ideal_s": 0.25,
            "limit_fraction": 0.5, "verified": true, "cached_layers": 0, "message_bytes": 32,
            "rates": { "sha256": 8e7, "sha512": 3e7, "keccak": 2e7 }, "version": "0.1.0", "commit": "c0ffee",
        })
    }

    /// A record of one GPU's throughput.
    fn gpu() -> Value {
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

    fn with(mut record: Value, changes: Value) -> Value {
        for (field, value) in changes.as_object().unwrap() {
            record[field] = value.clone();
        }
        record
    }

    /// The same of a single job.
    fn one(record: Value) -> Value {
        let changes = json!({
            "batch": 1, "threads": 1, "median_s": 0.001, "min_s": 0.0005, "ops_per_s": 1000.0, "ideal_s": 0.0005,
        });
        with(record, changes)
    }

    fn read_all(all: &[Value]) -> Result<Vec<Record>, String> {
        records(&all.iter().map(|record| format!("{record}\n")).collect::<String>())
    }

    fn rendered(all: &[Value]) -> String {
        page(&[Run { name: "day-machine".into(), setup: "What it is.\n".into(), records: read_all(all).unwrap() }])
    }

    #[test]
    fn hosts_of_old_and_new() {
        let new = with(
            cpu(),
            json!({
                "devices": ["cpu:0"], "limit": { "sha256": 1.6e8, "sha512": 6e7, "keccak": 4e7 }, "kernels_per_s": null,
                "kernels_limit_fraction": null, "redundant": true, "cached_layers": 2, "ideal_s": null, "limit_fraction": null,
            }),
        );
        let other = with(cpu(), json!({ "threads": 1 }));
        let section = "\n### A CPU, isa, threads 2\n\n\
            Commit c0ffee. One core: SHA-256 80.0, SHA-512 30.0, Keccak 20.0 million a second.\n\n\
            | set | op | batch | median | per second | spread | of limit |\n\
            | --- | --- | ---: | ---: | ---: | ---: | ---: |\n\
            | A | sign | 4 | 125 ms | 8.00 | 12.5 % | 50 % |\n";
        let expected = [
            INTRODUCTION,
            "\n## day-machine\n\nWhat it is.\n",
            section,
            "| A | sign, 2 cached, redundant | 4 | 125 ms | 8.00 | 12.5 % | – |\n",
            &section.replace("threads 2", "threads 1"),
            section,
        ];
        assert_eq!(rendered(&[cpu(), new, other, cpu()]), expected.concat());
    }

    #[test]
    fn gpus_have_a_table_of_each_kind() {
        let plain = with(gpu(), json!({ "kernels_per_s": null, "kernels_limit_fraction": null }));
        let all = [
            one(gpu()),
            cpu(),
            gpu(),
            with(gpu(), json!({ "op": "sign", "cached_layers": 8, "commit": "decaf" })),
            with(gpu(), json!({ "redundant": true, "rows": "host", "ideal_s": null, "limit_fraction": null })),
            with(
                plain,
                json!({ "devices": ["cuda:0", "cuda:1"], "limit": { "sha256": 9e10, "sha512": 9e10, "keccak": 9e10 } }),
            ),
            with(one(gpu()), json!({ "cached_layers": 1, "kernels_limit_fraction": null })),
        ];
        let page = rendered(&all);
        assert!(page.starts_with(&[INTRODUCTION, OF_GPUS, "\n## day-machine\n"].concat()));
        let (_, section) = page.split_once("\n### A GPU, driver\n\n").unwrap();
        let (section, cpu) = section.split_once("\n### ").unwrap();
        assert_eq!(
            section,
            "Commits c0ffee, decaf. Host threads: 16. \
             The limit: SHA-256 16.3, SHA-512 5.08, Keccak 3.40 thousand million a second.\n\n\
             Throughput:\n\n\
             | set | op | batch | end to end, per second | spread | of limit | kernels alone, per second | of limit |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n\
             | A | sign, c0ffee | 65536 | 131072 | 12.5 % | 50 % | 140000 | 75 % |\n\n\
             Latency of one job:\n\n\
             | set | op | median | min |\n\
             | --- | --- | ---: | ---: |\n\
             | A | sign, c0ffee | 1.00 ms | 500 µs |\n\n\
             With layers cached, redundant, or by several devices; the median is a job's share of the time:\n\n\
             | set | op | cached layers | redundant | devices | batch | median | end to end, per second | spread | of limit \
             | kernels alone, per second | of limit |\n\
             | --- | --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n\
             | A | sign, decaf | 8 | no | cuda:0 | 65536 | 7.63 µs | 131072 | 12.5 % | 50 % | 140000 | 75 % |\n\
             | A | sign, rows in host memory, c0ffee | 0 | yes | cuda:0 | 65536 | 7.63 µs | 131072 | 12.5 % | – | 140000 | 75 % |\n\
             | A | sign, c0ffee | 0 | no | cuda:0, cuda:1 | 65536 | 7.63 µs | 131072 | 12.5 % | 50 % | – | – |\n\
             | A | sign, c0ffee | 1 | no | cuda:0 | 1 | 1.00 ms | 1000 | 12.5 % | 50 % | 140000 | – |\n"
        );
        assert!(cpu.starts_with("A CPU, isa, threads 2\n"));
    }

    #[test]
    fn gpus_with_less_known() {
        let less = json!({ "limit": null, "ideal_s": null, "limit_fraction": null });
        let page = rendered(&[with(gpu(), less.clone())]);
        assert!(page.contains("Commit c0ffee. Host threads: 16. Its limit is not known.\n\nThroughput:"), "{page}");
        assert!(!page.contains("Latency") && !page.contains("redundant, or"), "{page}");
        // Of one job the host's threads say nothing, and of a CPU's help the limit of one device is not told.
        let helped = with(one(gpu()), json!({ "devices": ["cpu:0", "cuda:0"], "rates": cpu()["rates"] }));
        let page = rendered(&[helped]);
        assert!(page.contains("Commit c0ffee.\n\nWith layers cached") && !page.contains("Throughput"), "{page}");
        let page = rendered(&[gpu(), with(gpu(), json!({ "threads": 8 }))]);
        assert!(page.contains("| A | sign, 16 threads |") && page.contains("| A | sign, 8 threads |"), "{page}");
    }

    #[test]
    fn records_that_do_not_hold_together() {
        for (changes, why) in [
            (json!({ "verified": false }), "`verified` is not true"),
            (json!({ "set": null }), "invalid type: null, expected a string"),
            (json!({ "batch": 0 }), "`batch` is 0"),
            (json!({ "median_s": 0 }), "`median_s` is missing or no positive number"),
            (json!({ "spread": -0.5 }), "`spread` is below 0"),
            (json!({ "min_s": 0.75 }), "`min_s` is more than the median"),
            (json!({ "ops_per_s": 9.0 }), "`ops_per_s` is not the batch"),
            (json!({ "limit_fraction": 0.75 }), "`limit_fraction` is not the ideal"),
            (json!({ "limit_fraction": null }), "`limit_fraction` is not the ideal"),
            (json!({ "kernels_limit_fraction": 0.5 }), "`kernels_limit_fraction` is there, but"),
            (json!({ "kernels_per_s": "many" }), "invalid type: string \"many\", expected f64"),
            (json!({ "device": "" }), "`device` is missing or empty"),
            (json!({ "rates": null }), "`rates` is missing, but the host's cores worked"),
            (json!({ "rates": { "sha256": 1.0 } }), "`rates` lacks the rate of a hash"),
        ] {
            let error = read_all(&[cpu(), with(cpu(), changes)]).err().unwrap_or_default();
            assert!(error.starts_with(&format!("line 2: {why}")), "{error}");
        }
        assert!(records("").is_err() && records("[]\n").is_err() && records("{\n").is_err());
        assert!(read_all(&[cpu(), gpu(), one(gpu())]).is_ok());
        let lattice = json!({ "scheme": "zkDilithium", "rates": null, "ideal_s": null, "limit_fraction": null });
        assert!(read_all(&[with(cpu(), lattice)]).is_ok());
    }
}
