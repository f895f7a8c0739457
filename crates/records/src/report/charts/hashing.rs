//! SHA-256 of messages over their size.

use super::elements::*;

/// Messages a second, if that is known.
type Rate = fn(&Record) -> Option<f64>;

/// Bytes a second over the size of messages: end to end, and in the device's own memory.
pub(super) const HASHING: Chart = Chart {
    id: "sha256",
    title: "SHA-256 of many messages",
    reading: "Short messages are mostly padding. Of long messages, fewer fit into memory, which leaves threads without work. The peak \
              is the rate at which the device computes compressions; end to end it is also the rate of the link.",
    by_device: true,
    words: 1,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    let bytes_a_second = |record: &Record, rate: f64| rate * record.message_bytes as f64;
    let y = || axis("bytes a second", Scale::Log, counted);
    let mut draw = |kind: &str, x: Axis, series: Vec<(String, Vec<Point>)>| {
        let series: Vec<Series> = series
            .into_iter()
            .filter(|(_, points)| !points.is_empty())
            .map(|(name, points)| Series { name, look: Look::Joined, points })
            .collect();
        if !series.is_empty() {
            group.draw(&[kind], Plot::new(format!("SHA-256, {kind}"), x, y(), series));
        }
    };
    let (streams, shapes): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|record| record.policy.contains_key("streams"));
    let kinds: [(&str, Rate); 2] =
        [("end to end", |record| Some(record.ops_per_s)), ("in the device's memory", |record| record.kernels_per_s)];
    for (kind, rate) in kinds {
        let point = |record: &&Record| {
            let (x, y) = (record.message_bytes as f64, bytes_a_second(record, rate(record)?));
            let tooltip =
                format!("{} B, {} messages: {}B/s", record.message_bytes, grouped(record.batch as u64), counted(y));
            Some(Point { x, y, range: None, tooltip })
        };
        let series = by(shapes.iter().copied(), |record| shape_name(record));
        let series = series.into_iter().map(|(name, records)| (name, records.iter().filter_map(point).collect()));
        draw(kind, counts("bytes of a message", Scale::Log), series.collect());
    }
    let point = |record: &&Record| {
        let y = bytes_a_second(record, record.ops_per_s);
        let x = record.policy["streams"];
        Point { x: x.into(), y, range: None, tooltip: format!("{x} streams: {}B/s", counted(y)) }
    };
    // Pieces of other sizes are in the table.
    let plain = streams.iter().copied().filter(|record| !record.policy.contains_key("piece"));
    let series = by(plain, |record| record.message_bytes).into_iter();
    let series = series.map(|(bytes, of)| (format!("{} B", grouped(bytes as u64)), of.iter().map(point).collect()));
    draw("end to end by streams", counts("streams", Scale::Linear), series.collect());

    let row = |record: &&Record| {
        let rate = |rate: Option<f64>| {
            rate.map_or(UNKNOWN.into(), |rate| format!("{}B/s", counted(bytes_a_second(record, rate))))
        };
        vec![
            ("shape", shape_name(record)),
            ("bytes", grouped(record.message_bytes as u64)),
            ("messages", grouped(record.batch as u64)),
            ("end to end", rate(Some(record.ops_per_s))),
            ("% of peak", of_peak(record.limit_fraction)),
            ("in the device's memory", rate(record.kernels_per_s)),
            ("% of peak", of_peak(record.kernels_limit_fraction)),
        ]
    };
    records.iter().map(row).for_each(|row| group.table.row(row));
}
