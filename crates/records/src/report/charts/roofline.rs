//! Operations as shares of the peak rate.

use super::elements::*;
use crate::plot::BarValue;
use crate::report::best::{OPS, best, stands};

pub(super) fn roofline(run: &Run) -> Section {
    let mut groups = Vec::new();
    let mut of_cores = FigureTable { words: 2, ..FigureTable::default() };
    for record in run.records.iter().filter(|record| record.op == "rates") {
        let Some(rates) = record.rates.or(record.limit) else { continue };
        let millions = |rate: f64| significant(rate / 1e6);
        of_cores.row(vec![
            ("device", record.device.clone()),
            ("by", shape_name(record)),
            ("SHA-256, million a second", millions(rates.sha256)),
            ("SHA-512", millions(rates.sha512)),
            ("Keccak", millions(rates.keccak)),
        ]);
    }
    if !of_cores.rows.is_empty() {
        let title = "Compressions of one core, or of a whole GPU at its limit".into();
        groups.push(FigureGroup { title, figures: Vec::new(), table: of_cores });
    }
    let key = |record: &&Record| {
        let mut parts = vec![record.device.clone(), record.detail.clone()];
        parts.extend((record.backend == CPU).then(|| plural(record.threads, "thread")));
        parts.extend((record.devices.len() > 1).then(|| format!("{} devices", record.devices.len())));
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    };
    for (title, records) in by(run.records.iter().filter(|record| stands(record)), key) {
        let sets = by(records, |record| record.set.clone());
        // Their marks are the same on every chart.
        let mut ops: Vec<String> = OPS.iter().map(|(op, _)| (*op).into()).collect();
        let (mut chosen, mut table) = (Vec::<&Record>::new(), FigureTable { words: 3, ..FigureTable::default() });
        for (_, records) in &sets {
            for op in &ops {
                let known = |record: &&Record| record.limit_fraction.is_some();
                chosen.extend(best(records, op, false).filter(known));
                let ways = by(records.iter().copied().filter(|record| record.op == *op), |record| through(record));
                let fastest = ways.iter().filter_map(|(_, records)| best(records, op, false)).filter(known);
                fastest.for_each(|record| table.row(row(record)));
            }
        }
        ops.retain(|op| chosen.iter().any(|record| record.op == *op));
        if chosen.is_empty() {
            continue;
        }
        let figures = [
            chart("end to end", &title, &chosen, &ops, |record| record.limit_fraction),
            chart("kernels alone", &title, &chosen, &ops, |record| record.kernels_limit_fraction),
        ];
        groups.push(FigureGroup { title, figures: figures.into_iter().flatten().collect(), table });
    }
    Section {
        id: "roofline",
        title: "Shares of the peak rate",
        reading: "100 % is the peak: the operation's hash compressions at the highest rate of the device, and nothing else. A CPU's \
            peak is measured with each operation. A GPU's is computed from its integer pipes, its clock and the integer operations that \
            the hashes need at least. The peak of a verification from the host's memory is the link's rate where that is lower. A share above 100 % \
            means that something slowed the CPU down while its peak was measured. A dot is the measurement that a headline takes: the \
            fastest, in whatever way the jobs came. The table has the fastest of each way.",
        groups,
    }
}

/// A line of the table.
fn row(record: &Record) -> TableRow {
    vec![
        ("set", short(&record.set).into()),
        ("op", record.op.clone()),
        ("through", through(record).into()),
        ("batch", grouped(record.batch as u64)),
        ("a job", seconds(record.median_s / record.batch as f64)),
        ("per second", significant(record.ops_per_s)),
        ("spread", percent(record.spread)),
        ("% of peak", of_peak(record.limit_fraction)),
        ("kernels, % of peak", of_peak(record.kernels_limit_fraction)),
    ]
}

/// A row of dots for each set, a dot for each operation whose share is known.
fn chart(
    heading: &str,
    title: &str,
    records: &[&Record],
    ops: &[String],
    of: fn(&Record) -> Option<f64>,
) -> Option<Figure> {
    let rows = by(records.iter().copied(), |record| record.set.clone()).into_iter().map(|(set, records)| {
        let known = || records.iter().filter_map(|record| Some((*record, of(record)?)));
        let at = |op: &str| ops.iter().position(|other| other == op).unwrap_or(0);
        let values: Vec<BarValue> = known().map(|(record, fraction)| (at(&record.op), fraction, None)).collect();
        let tooltip: Vec<String> = known().map(|(r, fraction)| format!("{} {:.0} %", r.op, 100.0 * fraction)).collect();
        let tooltip = format!("{}: {}", short(&set), tooltip.join(", "));
        Bar { label: short(&set).into(), values, text: String::new(), tooltip }
    });
    let rows: Vec<Bar> = rows.filter(|row| !row.values.is_empty()).collect();
    let bars = Bars {
        title: format!("{heading}, % of peak"),
        rows,
        x: axis("% of peak", Scale::Linear, share),
        series: ops.to_vec(),
        dots: true,
        rule: Some(1.0),
        values: None,
    };
    let name = slug(&["roofline", title, heading]);
    (!bars.rows.is_empty()).then(|| Figure { name, drawing: bars.into() })
}
