//! One engine with several threads next to as many processes.

use super::elements::*;

pub(super) const CORES: Chart = Chart {
    id: "cores",
    title: "Every core",
    reading: "One engine with several threads, and as many processes with one thread each, which wait for nothing. The last column is the \
        rate of the engine over that of the processes, by the median of the turns.",
    by_device: true,
    heads: &[
        "set",
        "op",
        "threads",
        "one engine, per second",
        "spread",
        "% of peak",
        "processes, per second",
        "spread",
        "% of peak",
        "engine / processes",
    ],
    words: 2,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        for (threads, pair) in by(&records, |record| record.threads) {
            let of = |is_processes: bool| pair.iter().find(|record| record.processes.is_some() == is_processes);
            let cells = |record: Option<&&&Record>| match record {
                Some(record) => [significant(record.ops_per_s), percent(record.spread), of_peak(record.limit_fraction)],
                None => [UNKNOWN; 3].map(String::from),
            };
            let fraction = of(false).and_then(|record| record.process_fraction);
            let mut row = vec![short(&set).into(), op.clone(), grouped(threads as u64)];
            row.extend(cells(of(false)).into_iter().chain(cells(of(true))));
            row.push(of_peak(fraction));
            group.table.rows.push(row);
        }
        let series = |name: &str, is_processes: bool| {
            let these = records.iter().filter(|record| record.processes.is_some() == is_processes);
            let points = these.map(|record| rate(record, record.threads as f64)).collect();
            Series { name: name.into(), look: Look::Joined, points }
        };
        let (x, y) = (counts("threads or processes", Scale::Linear), axis("per second", Scale::Linear, counted));
        let series = vec![series("one engine", false), series("processes", true)];
        group.draw(&[&set, &op], Plot::new(format!("{} {op}", short(&set)), x, y, series));
    }
}
