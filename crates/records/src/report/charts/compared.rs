//! Two runs compared.

use super::elements::*;

/// Rows of a comparison that one picture shows.
const MOST_ROWS: usize = 28;

/// Two runs: how many times as fast the second is.
pub(crate) fn compared(first: &Run, second: &Run) -> Section {
    let fastest = |run: &Run| {
        let measured = run.records.iter().filter(|record| record.op != "rates").cloned();
        by(measured, key).into_iter().map(|(key, records)| {
            let best = records.into_iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)).expect("not empty");
            (key, best)
        })
    };
    let (a, b): (Vec<_>, Vec<_>) = (fastest(first).collect(), fastest(second).collect());
    let title = format!("{} against {}", second.name, first.name);
    let mut group =
        FigureGroup { title, table: FigureTable { words: 1, ..FigureTable::default() }, figures: Vec::new() };
    let mut bars = Vec::new();
    for (key, one) in &a {
        let Some((_, two)) = b.iter().find(|(other, _)| other == key) else { continue };
        let times = two.ops_per_s / one.ops_per_s;
        let spread = one.spread.hypot(two.spread);
        let tooltip = format!(
            "{key}: {} against {} a second, {:.2} ± {:.1} %",
            significant(two.ops_per_s),
            significant(one.ops_per_s),
            times,
            50.0 * spread
        );
        group.table.row(vec![
            ("measurement", key.clone()),
            ("first, per second", significant(one.ops_per_s)),
            ("second, per second", significant(two.ops_per_s)),
            ("ratio", format!("{times:.2}×")),
            ("spread", format!("± {:.1} %", 50.0 * spread)),
        ]);
        let range = Some((times * (1.0 - spread / 2.0).max(0.05), times * (1.0 + spread / 2.0)));
        bars.push(Bar { label: key.clone(), values: vec![(0, times, range)], text: format!("{times:.2}×"), tooltip });
    }
    while !bars.is_empty() {
        let rest = bars.split_off(bars.len().min(MOST_ROWS));
        let part = group.figures.len() + 1;
        let chart = Bars {
            title: if part == 1 && rest.is_empty() {
                "times as fast".into()
            } else {
                format!("times as fast, part {part}")
            },
            rows: std::mem::replace(&mut bars, rest),
            x: axis(&format!("{} over {}", clipped(&second.name), clipped(&first.name)), Scale::Log, ratio),
            series: Vec::new(),
            dots: true,
            rule: Some(1.0),
            values: None,
        };
        group.figures.push(Figure {
            name: slug(&["compared", &second.name, &first.name, &part.to_string()]),
            drawing: chart.into(),
        });
    }
    let groups = if group.table.rows.is_empty() { Vec::new() } else { vec![group] };
    Section {
        id: "compared",
        title: "Two runs compared",
        reading: "Right of the line the second run is faster. Only measurements of one kind are compared: the same operation, set, study \
            and way of the jobs: rows in ordinary memory, device rows in memory that devices reach, or else an iterator. If a run has one several times, for example by several \
            instruction sets, the fastest counts. A whisker is half the quartile spread of both runs together: if it crosses the \
            line, there is no difference.",
        groups,
    }
}

/// A name for an axis.
fn clipped(name: &str) -> String {
    if name.chars().count() <= 22 { name.into() } else { name.chars().take(21).chain(['…']).collect() }
}

/// The key by which measurements of two runs are paired.
fn key(record: &Record) -> String {
    let shape = record.shape.clone().unwrap_or_default();
    let study = record.study.clone().unwrap_or_default();
    // A plain benchmark's batch fills its machine, whatever that takes; or is one job.
    let batch = match (record.study.is_some(), record.batch) {
        (true, batch) => grouped(batch as u64),
        (false, 1) => "1".into(),
        (false, _) => String::new(),
    };
    let batch = if batch.is_empty() { batch } else { format!("batch {batch}") };
    let cached = if record.cached_layers > 0 { format!("{} cached", record.cached_layers) } else { String::new() };
    let redundant = if record.redundant { "redundant" } else { "" };
    let rows = record.rows.as_ref().map_or("", |memory| if memory == "device" { "device rows" } else { "rows" });
    let trial = record.trial.as_ref().map_or(String::new(), |trial| format!("trial {trial}"));
    let several = if record.devices.len() > 1 { format!("{} devices", record.devices.len()) } else { String::new() };
    let parts = [short(&record.set), &record.op, &batch, &shape, &cached, redundant, rows, &several, &study, &trial];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
