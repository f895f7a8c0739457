//! The share of the kernels' rate that callers get.

use super::elements::*;

pub(super) const HOST: Chart = Chart {
    id: "host",
    title: "The way to the kernels and back",
    reading: "Calls of one thread, one after the other. The kernels' rate is the device's own time for a full program.",
    by_device: true,
    words: 3,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
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
                group.table.row(vec![
                    ("set", short(&set).into()),
                    ("op", op.clone()),
                    ("through", name.into()),
                    ("jobs of a call", grouped(record.batch as u64)),
                    ("per second", significant(record.ops_per_s)),
                    ("of the kernels", percent(record.ops_per_s / kernels)),
                ]);
            }
            let points = records.iter().map(point).collect();
            series.push(Series { name: name.into(), look: Look::Joined, points });
        }
        let (x, y) = (counts("jobs of a call", Scale::Log), axis("share of the kernels' rate", Scale::Linear, share));
        group.draw(&[&set, &op], Plot::new(format!("{} {op}", short(&set)), x, y, series));
    }
}
