//! The gain and the cost of cached layers.

use super::elements::*;

pub(super) const CACHE_DEPTH: Chart = Chart {
    id: "cache-depth",
    title: "Cached layers",
    reading: "Bars are signatures a second, by the number of a key's top layers that are cached; next to each bar is the memory of \
        the nodes. Each further layer takes 2^h′ times the memory of the one above, and saves one of d trees.",
    by_device: true,
    words: 1,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for (set, records) in by(records, |record| record.set.clone()) {
        let none = records.iter().find(|record| record.cached_layers == 0).map(|record| record.ops_per_s);
        let bar = |record: &&Record| {
            let layers = record.cached_layers;
            let bytes = record.cache_bytes.map_or("none".into(), bytes);
            let rate = significant(record.ops_per_s);
            let gain = none.map_or(UNKNOWN.into(), |none| ratio(record.ops_per_s / none));
            group.table.row(vec![
                ("set", short(&set).into()),
                ("layers", layers.to_string()),
                ("memory", bytes.clone()),
                ("built in", record.build_s.map_or(UNKNOWN.into(), seconds)),
                ("per second", rate.clone()),
                ("gain", gain),
            ]);
            let tooltip = format!("{layers} layers, {bytes}: {rate} a second");
            Bar { label: layers.to_string(), values: vec![(0, record.ops_per_s, None)], text: bytes, tooltip }
        };
        let bars = records.iter().map(bar).collect();
        let x = axis("signatures a second", Scale::Linear, counted);
        let title = format!("{} by cached layers, and their memory", short(&set));
        group.draw(&[&set], Bars::new(title, x, bars));
    }
}

fn bytes(count: usize) -> String {
    match count as f64 {
        b if b >= 1e9 => format!("{} GB", significant(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", significant(b / 1e6)),
        b if b >= 1e3 => format!("{} kB", significant(b / 1e3)),
        b => format!("{b} B"),
    }
}
