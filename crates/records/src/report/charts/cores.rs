//! One engine with several threads next to as many processes.

use super::elements::*;

pub(super) const CORES: Chart = Chart {
    id: "cores",
    title: "Every core",
    reading: "One engine with several threads, and as many processes with one thread each, which wait for nothing. The last column is the \
        rate of the engine over that of the processes, by the median of the turns.",
    by_device: true,
    words: 2,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        for (threads, pair) in by(&records, |record| record.threads) {
            let of = |is_processes: bool| pair.iter().find(|record| record.processes.is_some() == is_processes);
            let cells = |rate: &'static str, record: Option<&&&Record>| {
                let of = |cell: fn(&Record) -> String| record.map_or(UNKNOWN.into(), |record| cell(record));
                [
                    (rate, of(|record| significant(record.ops_per_s))),
                    ("spread", of(|record| percent(record.spread))),
                    ("% of peak", of(|record| of_peak(record.limit_fraction))),
                ]
            };
            let fraction = of(false).and_then(|record| record.process_fraction);
            let mut row = vec![("set", short(&set).into()), ("op", op.clone()), ("threads", grouped(threads as u64))];
            row.extend(cells("one engine, per second", of(false)));
            row.extend(cells("processes, per second", of(true)));
            row.push(("engine / processes", of_peak(fraction)));
            group.table.row(row);
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
