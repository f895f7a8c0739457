//! Throughput over batch sizes.

use super::elements::*;

pub(super) const THROUGHPUT: Chart = Chart {
    id: "throughput",
    title: "Throughput over batch size",
    reading: "Each mark is one batch size, with its quartiles. Teeth of a curve are waves of blocks: the last wave is \
        partly empty. The distance between the tuned policy and the other shapes is what tuning gains.",
    by_device: true,
    words: 3,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), mut records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        // A study whose time was bounded goes through its batches in another order.
        records.sort_by_key(|record| record.batch);
        let series = by(records.iter().copied(), |record| shape_name(record));
        let peak = |records: &[&Record]| records.iter().map(|record| record.ops_per_s).fold(0.0, f64::max);
        let best_fixed =
            series.iter().filter(|(name, _)| name != TUNED).map(|(_, records)| peak(records)).fold(0.0, f64::max);
        for (name, records) in &series {
            let most = records.iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)).expect("not empty");
            let gain =
                if name == TUNED && best_fixed > 0.0 { ratio(most.ops_per_s / best_fixed) } else { UNKNOWN.into() };
            let kernels = most.kernels_per_s.map_or(UNKNOWN.into(), significant);
            let limit = most.limit_fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.0} %", 100.0 * fraction));
            let batch = grouped(most.batch as u64);
            group.table.row(vec![
                ("set", short(&set).into()),
                ("op", op.clone()),
                ("shape", name.clone()),
                ("best batch", batch),
                ("per second", significant(most.ops_per_s)),
                ("kernels alone", kernels),
                ("% of peak", limit),
                ("over the best fixed", gain),
            ]);
        }
        let (from, to) = records.iter().fold((usize::MAX, 0), |(low, high), r| (low.min(r.batch), high.max(r.batch)));
        // Equal steps are seen best on an even axis, doublings on a logarithmic one.
        let steps = from * 4 >= to || records.iter().any(|record| !record.batch.is_power_of_two());
        let scale = if steps { Scale::Linear } else { Scale::Log };
        let series = series.into_iter().map(|(name, records)| by_batch(name, &records)).collect();
        let (x, y) = (counts("jobs of a batch", scale), axis("per second", Scale::Linear, counted));
        group.draw(&[&set, &op], Plot::new(format!("{} {op}", short(&set)), x, y, series));
    }
}
