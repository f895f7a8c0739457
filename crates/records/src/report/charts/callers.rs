//! Rates and waiting times of many callers that bring one job each.

use super::elements::*;

/// The way of a record: its shape without the number of callers.
fn way(record: &Record) -> String {
    let shape = shape_name(record);
    shape.split_once("callers, ").map_or(shape.clone(), |(_, way)| way.into())
}

pub(super) const CALLERS: Chart = Chart {
    id: "callers",
    title: "Many callers",
    reading: "Callers bring one job at a time. Without tickets each job is a batch of its own; with tickets callers share batches.",
    by_device: true,
    words: 3,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        for record in &records {
            let time = |time: Option<f64>| time.map_or(UNKNOWN.into(), seconds);
            group.table.row(vec![
                ("set", short(&set).into()),
                ("op", op.clone()),
                ("tickets", way(record)),
                ("callers", grouped(record.batch as u64)),
                ("per second", significant(record.ops_per_s)),
                ("jobs of a batch", record.batched.map_or(UNKNOWN.into(), significant)),
                ("half", seconds(record.median_s)),
                ("99 %", time(record.p99_s)),
                ("99.9 %", time(record.p999_s)),
            ]);
        }
        let ways = by(records, |record| way(record));
        let series = |y: &dyn Fn(&Record) -> Option<f64>| {
            let of = |(name, records): &(String, Vec<&Record>)| {
                let point = |record: &&Record| {
                    let tooltip = format!(
                        "{} callers: {} a second, half wait {}",
                        grouped(record.batch as u64),
                        significant(record.ops_per_s),
                        seconds(record.median_s)
                    );
                    Some(Point { x: record.batch as f64, y: y(record)?, range: None, tooltip })
                };
                let points = records.iter().filter_map(point).collect();
                Series { name: name.clone(), look: Look::Joined, points }
            };
            ways.iter().map(of).collect()
        };
        let pictures = [
            ("rate", axis("per second", Scale::Log, counted), series(&|record| Some(record.ops_per_s))),
            ("p99", axis("99 % wait no longer than", Scale::Log, timed), series(&|record| record.p99_s)),
        ];
        for (name, y, series) in pictures {
            let (title, x) = (format!("{} {op}", short(&set)), counts("callers", Scale::Log));
            group.draw(&[&set, &op, name], Plot::new(title, x, y, series));
        }
    }
}
