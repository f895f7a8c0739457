//! Where a device overtakes another.

use super::elements::*;

/// Where one row of rates comes to lie above another, between two batch sizes.
fn crossing(below: &[(f64, f64)], above: &[(f64, f64)]) -> Option<f64> {
    let both: Vec<(f64, f64)> = below
        .iter()
        .filter_map(|(x, a)| above.iter().find(|(other, _)| other == x).map(|(_, b)| (*x, (b / a).ln())))
        .collect();
    // From there on to the end.
    let last = both.iter().rposition(|(_, ahead)| *ahead <= 0.0);
    match last {
        None => both.first().map(|(x, _)| *x),
        Some(at) => {
            let ((x0, d0), (x1, d1)) = (both[at], *both.get(at + 1)?);
            Some((x0.ln() + (x1 / x0).ln() * d0 / (d0 - d1)).exp())
        }
    }
}

pub(super) const CROSSOVER: Chart = Chart {
    id: "crossover",
    title: "The crossover",
    reading: "Left of the line the CPU is faster, right of it the GPU, end to end. The engine chooses by this line.",
    by_device: false,
    words: 2,
    fill,
};

fn fill(group: &mut FigureGroup, records: Vec<&Record>) {
    for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
        let devices = by(records, |record| record.devices.join(", "));
        let curve = |wanted: bool| {
            let found = devices.iter().find(|(name, _)| name.starts_with(CPU) == wanted);
            found.map(|(_, records)| {
                records.iter().map(|record| (record.batch as f64, record.ops_per_s)).collect::<Vec<_>>()
            })
        };
        let at = curve(true).zip(curve(false)).map(|(cpu, gpu)| crossing(&cpu, &gpu));
        let from = match at {
            None => "only one of the two was measured".into(),
            Some(None) => "the CPU is faster as far as was measured".into(),
            Some(Some(at)) => plural(at.ceil() as usize, "job"),
        };
        group.table.row(vec![("set", short(&set).into()), ("op", op.clone()), ("the GPU is faster from", from)]);
        let series = devices.into_iter().map(|(name, records)| by_batch(name, &records));
        let plot = Plot {
            title: format!("{} {op}", short(&set)),
            x: counts("jobs of a batch", Scale::Log),
            y: axis("per second, end to end", Scale::Log, counted),
            series: series.collect(),
            rules: at.flatten().map(|at| (at, plural(at.ceil() as usize, "job"))).into_iter().collect(),
        };
        group.draw(&[&set, &op], plot);
    }
}
