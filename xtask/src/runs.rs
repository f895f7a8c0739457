//! The records in `bench/runs`: read, checked, and compared with the peaks of their devices.

use crate::disk;
use hypergrove_fips205::{Op, Params, Plan, Rates, Work};
use hypergrove_lab::record::{Record, SHA256_BYTES, sha256_blocks};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) const RUNS: &str = "bench/runs";
/// Backends that compute on the host's cores; all others are GPUs.
const HOSTS: &[&str] = &["cpu", "reference"];
/// The operations of signature schemes. The page has them in this order; others follow.
pub(crate) const OPS: &[&str] = &["keygen", "sign", "verify"];

/// A folder of `bench/runs`.
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) records: Vec<Record>,
}

impl Run {
    /// The day in a run's name, `2026-11-21-h200`.
    fn day(&self) -> &str {
        self.name.get(..10).unwrap_or(&self.name)
    }

    /// Whether a GPU was there: its host is another machine than one that has none.
    pub(crate) fn has_gpu(&self) -> bool {
        self.records.iter().any(uses_gpu)
    }
}

/// All runs, the newest first.
pub(crate) fn runs() -> Result<Vec<Run>, String> {
    let run = |folder: PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let raw = folder.join("raw.jsonl");
        // A run without this file has records of another kind, such as the instructions of kernels.
        let records = if raw.is_file() { records(&disk::read(raw)?) } else { Ok(Vec::new()) };
        let records = records.map_err(|why| format!("{RUNS}/{name}/raw.jsonl: {why}"))?;
        disk::read(folder.join("setup.md"))?;
        Ok::<_, String>(Run { records, name })
    };
    let mut runs: Vec<Run> = disk::entries(RUNS)?.into_iter().rev().map(run).collect::<Result<_, _>>()?;
    at_peak(&mut runs)?;
    Ok(runs)
}

/// Rates of each hash as a record has them.
fn json_of(rates: &Rates) -> Value {
    json!({ "sha256": rates.sha256, "sha512": rates.sha512, "keccak": rates.keccak })
}

/// Rates that all count so many times.
fn times(rates: &Rates, factor: f64) -> Rates {
    rates.zip(&Rates::default(), |rate, _| rate * factor)
}

/// The records of JSON lines; or which line is wrong, and why.
fn records(lines: &str) -> Result<Vec<Record>, String> {
    let numbered = lines.lines().enumerate();
    let found: Vec<_> = numbered
        .map(|(i, line)| read(line).map_err(|why| format!("line {}: {why}", i + 1)))
        .collect::<Result<_, _>>()?;
    if found.is_empty() { Err("no record in it".into()) } else { Ok(found) }
}

/// Compares each record with the peak of its device: for a CPU, with the best rates in that run, since a clock that was slow while one record's rates
/// were measured would make the peak of that record too low; for a GPU, with what its integer pipes and the best of its links allow.
fn at_peak(runs: &mut [Run]) -> Result<(), String> {
    let device = |run: &str, record: &Record| (run.to_string(), record.device.clone(), record.detail.clone());
    let (mut best, mut links) = (BTreeMap::<_, Rates>::new(), BTreeMap::<_, f64>::new());
    for run in &*runs {
        for record in &run.records {
            if let Some(link) = record.link_bytes_per_s {
                let each = link / record.devices.len() as f64;
                links.entry(record.device.clone()).and_modify(|best| *best = best.max(each)).or_insert(each);
            }
            if let Some(reached) = reached(record).filter(|_| !uses_gpu(record)) {
                let best = best.entry(device(&run.name, record)).or_insert(reached);
                *best = best.zip(&reached, f64::max);
            }
        }
    }
    for run in runs {
        for record in &mut run.records {
            let Some(own) = one_device(record) else { continue };
            let work = work(record);
            if uses_gpu(record) {
                let devices = record.devices.len() as f64;
                let all = times(&own, devices);
                if let Some(work) = work {
                    let sending = record.link_bytes_per_s.or(links.get(&record.device).map(|link| link * devices));
                    let sending = sending.map_or(0.0, |link| sent(record) / link);
                    record.kernels_limit_fraction = record.kernels_per_s.map(|rate| rate * work.seconds(&own));
                    record.ideal_s = record.ideal_s.map(|_| (record.batch as f64 * work.seconds(&all)).max(sending));
                }
                record.limit = Some(json_of(&all));
            } else {
                let best = best[&device(&run.name, record)];
                let factor = work.map_or(1.0, |work| work.seconds(&best) / work.seconds(&own));
                record.ideal_s = record.ideal_s.map(|ideal| ideal * factor);
                record.rates = Some(json_of(&best));
            }
            record.limit_fraction = record.ideal_s.map(|ideal| ideal / record.median_s);
            let most = record.limit_fraction.into_iter().chain(record.kernels_limit_fraction).fold(0.0, f64::max);
            if most > 1.0 + 1e-9 {
                let (set, op, percent) = (&record.set, &record.op, 100.0 * most);
                return Err(format!(
                    "{RUNS}/{}: {set} {op}: {percent:.1} % of the peak, so the peak is too low",
                    run.name
                ));
            }
        }
    }
    Ok(())
}

/// The rates with which a record compares one core, or one GPU. Those of a GPU follow from the rate of whole SHA-256 compressions, which older records
/// have as well: they have lower rates of other hashes.
fn one_device(record: &Record) -> Option<Rates> {
    if !uses_gpu(record) {
        return rates(&record.rates);
    }
    let alike = record.devices.iter().all(|id| id.starts_with(&record.backend));
    let sha256 = rates(&record.limit).filter(|_| alike)?.sha256 / record.devices.len() as f64;
    let compression = Work { sha256: 1.0, ..Work::default() };
    Some(Rates::of_integers(sha256 * compression.integers()))
}

/// The rates of one core, or the rate that the operation itself reached, if that is more and the operation has one kind of hash.
fn reached(record: &Record) -> Option<Rates> {
    let own = one_device(record)?;
    let one_hash = work(record).is_some_and(|work| work.sha512 == 0.0);
    let more = record.limit_fraction.unwrap_or(0.0).max(1.0);
    let keccak = record.set.contains("SHAKE");
    Some(match one_hash {
        true if keccak => Rates { keccak: own.keccak * more, ..own },
        true => Rates { sha256: own.sha256 * more, ..own },
        false => own,
    })
}

/// Bytes of a record's jobs on the link to a device, at least: messages and digests, which share it, or the signatures to be verified.
fn sent(record: &Record) -> f64 {
    let each = match record.set.parse::<&Params>() {
        _ if record.scheme == "SHA-256" => record.message_bytes.max(SHA256_BYTES),
        Ok(params) if record.op == "verify" => params.sig_bytes(),
        _ => 0,
    };
    (record.batch * each) as f64
}

/// The compressions of a record's operation: of one message, or of one job on a set of FIPS 205.
fn work(record: &Record) -> Option<Work> {
    if record.scheme == "SHA-256" {
        let compressions = sha256_blocks(record.message_bytes) as f64;
        return Some(Work { sha256: compressions, ..Work::default() });
    }
    let params = record.set.parse::<&Params>().ok()?;
    let op = [Op::Keygen, Op::Sign, Op::Verify].into_iter().zip(OPS).find(|(_, name)| **name == record.op)?.0;
    let plan = Plan::new(params, op);
    Some(if op == Op::Sign { plan.with_cached_layers(record.cached_layers) } else { plan }.work())
}

/// The rates in a record.
pub(crate) fn rates(field: &Option<Value>) -> Option<Rates> {
    let of = |hash: &str| field.as_ref()?[hash].as_f64().filter(|rate| *rate > 0.0);
    Some(Rates { sha256: of("sha256")?, sha512: of("sha512")?, keccak: of("keccak")?, integers: 0.0 })
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
    record.check()?;
    let (missing, not_positive, lacks) =
        ("is missing or empty", "is missing or no positive number", "lacks the rate of a hash");
    let agree = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    let positive = |value: Option<f64>| value.is_none_or(|value| value > 0.0);
    let is_whole = |field: &Option<Value>| field.is_none() || rates(field).is_some();
    let is_share = match (record.ideal_s, record.limit_fraction) {
        (Some(ideal), Some(fraction)) => agree(fraction, ideal / record.median_s),
        (ideal, fraction) => ideal.is_none() && fraction.is_none(),
    };
    let has_kernels = record.kernels_per_s.is_some() || record.kernels_limit_fraction.is_none();
    // Hash rates say nothing about zkDilithium.
    let has_rates = record.scheme == "zkDilithium" || uses_gpu(record) || record.rates.is_some();
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
        ("rates", is_whole(&record.rates), lacks),
        ("limit", is_whole(&record.limit), lacks),
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

pub(crate) fn uses_gpu(record: &Record) -> bool {
    let backend = |id: &String| id.split(':').next().is_some_and(|name| HOSTS.contains(&name));
    !record.devices.iter().all(backend)
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
    use serde_json::json;

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

    fn read_all(all: &[Value]) -> Result<Vec<Record>, String> {
        records(&all.iter().map(|record| format!("{record}\n")).collect::<String>())
    }

    pub(crate) fn run(name: &str, all: &[Value]) -> Run {
        Run { name: name.into(), records: read_all(all).unwrap() }
    }

    /// No figure of a CPU is above 100 %: a peak that was measured too low is replaced by the best that the device reached.
    #[test]
    fn the_peak_of_a_cpu_is_its_best() {
        let slow =
            json!({ "rates": { "sha256": 4e7, "sha512": 3e7, "keccak": 2e7 }, "ideal_s": 0.5, "limit_fraction": 1.0 });
        let set = json!({ "set": "SLH-DSA-SHA2-128f" });
        let mut runs = [run("2026-01-02-host", &[with(cpu(), set.clone()), with(with(cpu(), set), slow)])];
        at_peak(&mut runs).unwrap();
        let of = |record: &Record| record.limit_fraction.unwrap();
        assert_eq!(runs[0].records.iter().map(of).collect::<Vec<_>>(), [0.5, 0.5]);
        assert!(runs[0].records.iter().all(|record| check(record).is_ok()));
    }

    /// A record of one GPU that does so many whole SHA-256 compressions a second.
    fn at_rate(set: &str, op: &str, rate: f64, kernels: f64) -> Value {
        let limit = json!({ "sha256": rate, "sha512": 1.0, "keccak": 1.0 });
        with(
            gpu(),
            json!({ "set": set, "op": op, "batch": 4, "ops_per_s": 8.0, "kernels_per_s": kernels, "limit": limit }),
        )
    }

    /// The recorded rates of SHA-512 and Keccak do not count, two devices have twice the peak of one, and a figure above 100 % is an error.
    #[test]
    fn the_peak_of_a_gpu_follows_from_integer_operations() {
        let integers = Plan::new(&hypergrove_fips205::SLH_DSA_SHAKE_128F, Op::Keygen).work().integers();
        let of = |kernels| at_rate("SLH-DSA-SHAKE-128f", "keygen", integers / 64.0, kernels);
        let pair = with(of(8.0), json!({ "devices": ["cuda:0", "cuda:1"] }));
        let mut runs = [run("2026-01-02-gpu", &[of(8.0), pair, of(17.0)])];
        assert!(at_peak(&mut runs).unwrap_err().contains("SLH-DSA-SHAKE-128f keygen: 106.2 % of the peak"));
        runs[0].records.pop();
        at_peak(&mut runs).unwrap();
        let shares = |record: &Record| {
            [record.limit_fraction, record.kernels_limit_fraction].map(|share| (1000.0 * share.unwrap()).round())
        };
        assert_eq!(runs[0].records.iter().map(shares).collect::<Vec<_>>(), [[500.0, 500.0], [500.0, 1000.0]]);
        assert!(runs[0].records.iter().all(|record| check(record).is_ok()));
    }

    /// The link of a device, which one run measured, limits verifications in all runs; of messages it still is the limit.
    #[test]
    fn the_link_is_a_limit() {
        // 1,000 messages of two blocks take 0.4 s of the link, and of kernels 0.1 s.
        let hash = json!({
            "scheme": "SHA-256", "set": "SHA-256", "op": "hash", "batch": 1000, "message_bytes": 64, "median_s": 1.0, "min_s": 1.0,
            "ops_per_s": 1000.0, "ideal_s": 0.8, "limit_fraction": 0.8, "kernels_per_s": 5000.0, "kernels_limit_fraction": 0.5,
            "link_bytes_per_s": 160_000.0, "limit": { "sha256": 20_000.0, "sha512": 1.0, "keccak": 1.0 },
        });
        let verify = at_rate("SLH-DSA-SHA2-128f", "verify", 6e5, 8.0);
        let mut runs = [run("2026-01-03-gpu", &[verify]), run("2026-01-02-gpu", &[with(gpu(), hash)])];
        at_peak(&mut runs).unwrap();
        let of = |run: &Run| (run.records[0].ideal_s.unwrap(), run.records[0].kernels_limit_fraction.unwrap());
        assert_eq!(of(&runs[1]), (0.4, 0.5));
        assert_eq!(of(&runs[0]).0, 4.0 * 17_088.0 / 160_000.0);
        assert!((0.07..0.08).contains(&of(&runs[0]).1));
        assert!(runs.iter().flat_map(|run| &run.records).all(|record| check(record).is_ok()));
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
        for runs in [
            &runs[..],
            &[&runs[2], &runs[1], &runs[0]].map(|run| Run { name: run.name.clone(), records: run.records.clone() }),
        ] {
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
