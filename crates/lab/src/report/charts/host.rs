//! The share of the kernels' rate that callers get.

use super::elements::*;

pub(super) fn host(run: &RecordedRun) -> Section {
    Section {
        id: "host",
        title: "The way to the kernels and back",
        reading: "Calls of one thread, one after the other. The kernels' rate is the device's own time for a full program.",
        groups: by_device(run, "host", of_device),
    }
}

fn of_device(group: &mut FigureGroup, records: Vec<&Record>) -> FigureTable {
    let mut rows = Vec::new();
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        // A full program's kernels are the fastest.
        let Some(kernels) = records.iter().filter_map(|record| record.kernels_per_s).reduce(f64::max) else {
            continue;
        };
        let mut series = Vec::new();
        for (name, records) in by(records, |record| through(record)) {
            let point = |record: &&Record| {
                let Point { x, y, range, tooltip } = rate(record, record.batch as f64);
                let range = range.map(|(low, high)| (low / kernels, high / kernels));
                Point { x, y: y / kernels, range, tooltip }
            };
            for record in &records {
                rows.push(vec![
                    short(&set).into(),
                    op.clone(),
                    name.into(),
                    grouped(record.batch as u64),
                    significant(record.ops_per_s),
                    percent(record.ops_per_s / kernels),
                ]);
            }
            let points = records.iter().map(point).collect();
            series.push(Series { name: name.into(), look: Look::Joined, points });
        }
        let (x, y) = (counts("jobs of a call", Scale::Log), axis("share of the kernels' rate", Scale::Linear, share));
        group.draw(&[&set, &op], Plot::new(format!("{} {op}", short(&set)), x, y, series));
    }
    let heads = vec!["set", "op", "through", "jobs of a call", "per second", "of the kernels"];
    FigureTable { heads, words: 3, rows }
}
