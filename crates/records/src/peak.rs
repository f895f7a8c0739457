//! Records compared with the peaks of their devices.

use crate::record::{OPS, Record, SHA256_BYTES, sha256_blocks};
use crate::runs::{RUNS, Run};
use hypergrove_fips205::{Op, Params, Plan, Rates, Work};
use std::collections::BTreeMap;

/// Rates that all count so many times.
fn times(rates: &Rates, factor: f64) -> Rates {
    rates.zip(&Rates::default(), |rate, _| rate * factor)
}

/// Compares each record with the peak of its device: for a CPU, with the best rates in that run, since a clock that was slow while one record's rates
/// were measured would make the peak of that record too low; for a GPU, with what its integer pipes and the best of its links allow.
pub(crate) fn at_peak(runs: &mut [Run]) -> Result<(), String> {
    let device = |run: &str, record: &Record| (run.to_string(), record.device.clone(), record.detail.clone());
    let (mut best, mut links) = (BTreeMap::<_, Rates>::new(), BTreeMap::<_, f64>::new());
    for run in &*runs {
        for record in &run.records {
            if let Some(link) = record.link_bytes_per_s {
                let each = link / record.devices.len() as f64;
                links.entry(record.device.clone()).and_modify(|best| *best = best.max(each)).or_insert(each);
            }
            if let Some(reached) = reached(record).filter(|_| !record.uses_gpu()) {
                let best = best.entry(device(&run.name, record)).or_insert(reached);
                *best = best.zip(&reached, f64::max);
            }
        }
    }
    for run in runs {
        for record in &mut run.records {
            let Some(own) = one_device(record) else { continue };
            let work = work(record);
            if record.uses_gpu() {
                let devices = record.devices.len() as f64;
                let all = times(&own, devices);
                if let Some(work) = work {
                    let sending = record.link_bytes_per_s.or(links.get(&record.device).map(|link| link * devices));
                    let sending = sending.map_or(0.0, |link| sent(record) / link);
                    record.kernels_limit_fraction = record.kernels_per_s.map(|rate| rate * work.seconds(&own));
                    record.ideal_s = record.ideal_s.map(|_| (record.batch as f64 * work.seconds(&all)).max(sending));
                }
                record.limit = Some(all.into());
            } else {
                let best = best[&device(&run.name, record)];
                let factor = work.map_or(1.0, |work| work.seconds(&best) / work.seconds(&own));
                record.ideal_s = record.ideal_s.map(|ideal| ideal * factor);
                record.rates = Some(best.into());
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
    if !record.uses_gpu() {
        return record.rates.map(Rates::from);
    }
    let alike = record.devices.iter().all(|id| id.starts_with(&record.backend));
    let sha256 = record.limit.filter(|_| alike)?.sha256 / record.devices.len() as f64;
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

#[cfg(test)]
mod test {
    use super::*;
    use crate::runs::check;
    use crate::runs::test::{cpu, gpu, run, with};
    use serde_json::{Value, json};

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
}
