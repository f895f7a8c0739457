//! The gain and the cost of cached layers.

use super::elements::*;

pub(super) fn cache_depth(run: &RecordedRun) -> Section {
    Section {
        id: "cache-depth",
        title: "Cached layers",
        reading: "Bars are signatures a second, by the number of a key's top layers that are cached; next to each bar is the memory of \
            the nodes. Each further layer takes 2^h′ times the memory of the one above, and saves one of d trees.",
        groups: by_device(run, "cache-depth", of_device),
    }
}

fn of_device(group: &mut FigureGroup, records: Vec<&Record>) -> FigureTable {
    let mut rows = Vec::new();
    for (set, records) in by(records, |record| record.set.clone()) {
        let none = records.iter().find(|record| record.cached_layers == 0).map(|record| record.ops_per_s);
        let bars: Vec<Bar> = records
            .iter()
            .map(|record| {
                let bytes = record.cache_bytes.map_or("none".into(), bytes);
                let gain = none.map_or(UNKNOWN.into(), |none| ratio(record.ops_per_s / none));
                rows.push(vec![
                    short(&set).into(),
                    record.cached_layers.to_string(),
                    bytes.clone(),
                    record.build_s.map_or(UNKNOWN.into(), seconds),
                    significant(record.ops_per_s),
                    gain,
                ]);
                Bar {
                    label: format!("{}", record.cached_layers),
                    values: vec![(0, record.ops_per_s, None)],
                    text: bytes.clone(),
                    tooltip: format!(
                        "{} layers, {bytes}: {} a second",
                        record.cached_layers,
                        significant(record.ops_per_s)
                    ),
                }
            })
            .collect();
        let x = axis("signatures a second", Scale::Linear, counted);
        let title = format!("{} by cached layers, and their memory", short(&set));
        group.draw(&[&set], Bars::new(title, x, bars));
    }
    let heads = vec!["set", "layers", "memory", "built in", "per second", "gain"];
    FigureTable { heads, words: 1, rows }
}

fn bytes(count: usize) -> String {
    match count as f64 {
        b if b >= 1e9 => format!("{} GB", significant(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", significant(b / 1e6)),
        b if b >= 1e3 => format!("{} kB", significant(b / 1e3)),
        b => format!("{b} B"),
    }
}
