//! Throughput over the number of devices.

use super::elements::*;

pub(super) const MULTI_GPU: Chart = Chart {
    id: "multi-gpu",
    title: "Several GPUs",
    reading: "The dashed line is the rate of this many GPUs if none waited for another or for the host.",
    by_device: false,
    words: 3,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    let key = |record: &&Record| (record.set.clone(), record.op.clone(), through(record));
    for ((set, op, through), records) in by(records, key) {
        let Some(one) = records.iter().find(|record| record.devices.len() == 1).map(|record| record.ops_per_s) else {
            continue;
        };
        let points: Vec<Point> = records.iter().map(|record| rate(record, record.devices.len() as f64)).collect();
        let most = records.iter().map(|record| record.devices.len()).max().unwrap_or(1);
        for record in &records {
            let devices = record.devices.len();
            let (times, each) = (record.ops_per_s / one, record.ops_per_s / one / devices as f64);
            group.table.row(vec![
                ("set", short(&set).into()),
                ("op", op.clone()),
                ("through", through.into()),
                ("GPUs", devices.to_string()),
                ("per second", significant(record.ops_per_s)),
                ("of one", ratio(times)),
                ("a GPU's share of that", format!("{:.0} %", 100.0 * each)),
            ]);
        }
        let ideal = (1..=most).map(|n| Point { x: n as f64, y: one * n as f64, range: None, tooltip: String::new() });
        let series = vec![
            Series { name: "measured".into(), look: Look::Joined, points },
            Series { name: "in proportion".into(), look: Look::Dashed, points: ideal.collect() },
        ];
        let (x, y) = (counts("GPUs", Scale::Linear), axis("per second", Scale::Linear, counted));
        group.draw(&[&set, &op, through], Plot::new(format!("{} {op}, {through}", short(&set)), x, y, series));
    }
}
