//! Which measurement stands for an operation. The headline, the ratio of two headlines and the chart of shares take the same one.

use crate::record::Record;
use crate::report::charts::elements::{TUNED, by};
use crate::runs::Run;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The operations that a headline has, and what it says of each.
pub(crate) const OPS: &[(&str, &str)] =
    &[("sign", "signatures"), ("verify", "verifications"), ("keygen", "key pairs"), ("hash", "messages")];
/// A batch is small if it has less than this part of the jobs of the largest one.
const SMALL: usize = 4;

/// How near a record is to what a user gets, 0 being nearest. `None`: the record stands for no operation.
fn rank(record: &Record) -> Option<u8> {
    let is_known = OPS.iter().any(|(op, _)| *op == record.op);
    if !is_known || record.callers.is_some() || record.cached_layers > 0 || record.redundant {
        return None;
    }
    match (record.study.as_deref(), record.shape.as_deref()) {
        // An experiment, maybe with code that was not kept.
        _ if record.trial.is_some() => Some(3),
        (None | Some("limits"), _) => Some(0),
        (Some("throughput"), Some(TUNED)) | (Some("crossover" | "host" | "multi-gpu" | "cache-depth"), _) => Some(1),
        (Some("throughput"), _) => Some(2),
        // Other studies go through shapes that nobody would use, and through parts of a batch.
        _ => (record.batch == 1).then_some(4),
    }
}

/// Whether a record may stand for its operation.
pub(crate) fn stands(record: &Record) -> bool {
    rank(record).is_some()
}

/// The record that stands for an operation, of records of one device and set: of batches, or of single jobs. Plain benchmarks go before
/// studies, and studies before trials. Of these the fastest counts whose batch is not small.
pub(crate) fn best<'a>(records: &[&'a Record], op: &str, single: bool) -> Option<&'a Record> {
    let of_op = || {
        let of_op = records.iter().copied().filter(|record| record.op == op && (record.batch == 1) == single);
        of_op.filter_map(|record| Some((rank(record)?, record)))
    };
    let least = of_op().map(|(rank, _)| rank).min()?;
    let nearest = || of_op().filter(|(rank, _)| *rank == least).map(|(_, record)| record);
    let largest = nearest().map(|record| record.batch).max()?;
    let large = nearest().filter(|record| record.batch >= largest / SMALL);
    large.max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s))
}

/// The best rates of a device with one set.
pub(crate) struct Headline<'a> {
    pub(crate) device: String,
    pub(crate) detail: String,
    pub(crate) set: String,
    pub(crate) rates: Vec<HeadlineRate<'a>>,
}

/// The rate of an operation.
pub(crate) struct HeadlineRate<'a> {
    /// The name of the results, such as "signatures".
    pub(crate) noun: &'static str,
    pub(crate) many: Option<&'a Record>,
    pub(crate) one: Option<&'a Record>,
}

/// The name of a device, and what it computes with.
type DeviceName = (String, String);

/// The headlines of each run, one a device. All show the set that most devices have, of several the one with most records, if they can.
pub(crate) fn headlines(runs: &[Run]) -> Vec<Vec<Headline<'_>>> {
    let of_runs: Vec<_> = runs.iter().map(devices).collect();
    let numbered = of_runs.iter().flatten().enumerate();
    let all =
        numbered.flat_map(|(number, (_, records))| records.iter().map(move |record| (number, record.set.clone())));
    let mut sets = by(all, |(_, set)| set.clone());
    // Of sets with as many of both the first stays first.
    sets.sort_by_cached_key(|(_, all)| {
        let devices: BTreeSet<usize> = all.iter().map(|(number, _)| *number).collect();
        Reverse((devices.len(), all.len()))
    });
    let sets: Vec<String> = sets.into_iter().map(|(set, _)| set).collect();
    let of_devices = |devices: Vec<(DeviceName, Vec<_>)>| {
        devices.into_iter().filter_map(|(named, records)| headline(named, records, &sets)).collect()
    };
    of_runs.into_iter().map(of_devices).collect()
}

/// The devices of a run, each with the records that may stand for an operation.
fn devices(run: &Run) -> Vec<(DeviceName, Vec<&Record>)> {
    let alone = run.records.iter().filter(|record| stands(record) && record.devices.len() < 2);
    by(alone, |record| (record.device.clone(), record.detail.clone()))
}

/// The headline of a device with the first of the sets that it has.
fn headline<'a>((device, detail): DeviceName, mut records: Vec<&'a Record>, sets: &[String]) -> Option<Headline<'a>> {
    let set = sets.iter().find(|set| records.iter().any(|record| record.set == **set))?;
    records.retain(|record| record.set == *set);
    let rate = |(op, noun): &(&str, &'static str)| {
        let (many, one) = (best(&records, op, false), best(&records, op, true));
        many.or(one).map(|_| HeadlineRate { noun, many, one })
    };
    let rates = OPS.iter().filter_map(rate).collect();
    Some(Headline { device, detail, set: set.clone(), rates })
}

impl Headline<'_> {
    /// How many times as fast a rate is as that of another run's headline with the same set, of the same device.
    pub(crate) fn ratio(&self, rate: &HeadlineRate<'_>, others: &[Headline<'_>]) -> Option<f64> {
        let other = others.iter().find(|other| (&other.device, &other.set) == (&self.device, &self.set))?;
        let same = other.rates.iter().find(|other| other.noun == rate.noun)?;
        Some(rate.many?.ops_per_s / same.many?.ops_per_s)
    }
}
