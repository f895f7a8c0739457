//! One operation by levels of parallelism.

use super::elements::*;

pub(super) const LADDER: Chart = Chart {
    id: "ladder",
    title: "The ladder of parallelism",
    reading: "One job alone, by levels of parallelism. Level 0 is one thread, level 1 one thread for each tree. Level 2 adds the \
        threads of a block over nodes, level 3 over chains, level 4 over the parts of one hash. The widest launch is \
        blocks × threads.",
    by_device: true,
    words: 3,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        let slowest = records.iter().map(|record| record.median_s).fold(0.0, f64::max);
        let bar = |record: &&Record| {
            let widest = record.stages.iter().max_by_key(|stage| u64::from(stage.blocks) * u64::from(stage.threads));
            let launch =
                widest.map_or(UNKNOWN.into(), |stage| format!("{} × {}", grouped(stage.blocks.into()), stage.threads));
            let milliseconds = format!("{:.3}", 1e3 * record.median_s);
            group.table.row(vec![
                ("set", short(&set).into()),
                ("op", op.clone()),
                ("levels", shape_name(record)),
                ("widest launch", launch.clone()),
                ("ms", milliseconds),
                ("spread", percent(record.spread)),
                ("against the slowest", ratio(slowest / record.median_s)),
            ]);
            Bar {
                label: shape_name(record),
                values: vec![(0, record.median_s, None)],
                text: seconds(record.median_s),
                tooltip: format!("levels {}: {}, widest launch {launch}", shape_name(record), seconds(record.median_s)),
            }
        };
        let bars = records.iter().map(bar).collect();
        let (title, x) = (format!("{}, one {}", short(&set), noun(&op)), axis("time, logarithmic", Scale::Log, timed));
        group.draw(&[&set, &op], Bars::new(title, x, bars));
    }
}

fn noun(op: &str) -> &str {
    match op {
        "keygen" => "key pair",
        "sign" => "signature",
        "verify" => "verification",
        op => op,
    }
}
