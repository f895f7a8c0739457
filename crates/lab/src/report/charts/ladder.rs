//! One operation by levels of parallelism.

use super::elements::*;

pub(super) fn ladder(run: &RecordedRun) -> Section {
    Section {
        id: "ladder",
        title: "The ladder of parallelism",
        reading: "One job alone, by levels of parallelism. Level 0 is one thread, level 1 one thread for each tree. Level 2 adds the \
            threads of a block over nodes, level 3 over chains, level 4 over the parts of one hash. The widest launch is \
            blocks × threads.",
        groups: by_device(run, "ladder", of_device),
    }
}

fn of_device(group: &mut FigureGroup, records: Vec<&Record>) -> FigureTable {
    let mut rows = Vec::new();
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        let slowest = records.iter().map(|record| record.median_s).fold(0.0, f64::max);
        let bars = records.iter().map(|record| {
            let widest = record.stages.iter().max_by_key(|stage| u64::from(stage.blocks) * u64::from(stage.threads));
            let launch =
                widest.map_or(UNKNOWN.into(), |stage| format!("{} × {}", grouped(stage.blocks.into()), stage.threads));
            let milliseconds = format!("{:.3}", 1e3 * record.median_s);
            rows.push(vec![
                short(&set).into(),
                op.clone(),
                shape_name(record),
                launch.clone(),
                milliseconds,
                percent(record.spread),
                ratio(slowest / record.median_s),
            ]);
            Bar {
                label: shape_name(record),
                values: vec![(0, record.median_s, None)],
                text: seconds(record.median_s),
                tooltip: format!("levels {}: {}, widest launch {launch}", shape_name(record), seconds(record.median_s)),
            }
        });
        let (title, x) = (format!("{}, one {}", short(&set), noun(&op)), axis("time, logarithmic", Scale::Log, timed));
        group.draw(&[&set, &op], Bars::new(title, x, bars.collect()));
    }
    let heads = vec!["set", "op", "levels", "widest launch", "ms", "spread", "against the slowest"];
    FigureTable { heads, words: 3, rows }
}

fn noun(op: &str) -> &str {
    match op {
        "keygen" => "key pair",
        "sign" => "signature",
        "verify" => "verification",
        op => op,
    }
}
