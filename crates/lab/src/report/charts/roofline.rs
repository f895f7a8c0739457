//! Operations as shares of the peak rate.

use super::elements::*;
use crate::report::best::{OPS, best, stands};
use crate::report::plot::BarValue;
use hypergrove::Cpu;

pub(super) fn roofline(run: &RecordedRun) -> Section {
    let mut groups = Vec::new();
    for record in run.records.iter().filter(|record| record.op == "rates") {
        let Some(rates) = record.rates.as_ref().or(record.limit.as_ref()) else { continue };
        let of = |hash: &str| rates[hash].as_f64().map_or(UNKNOWN.into(), |rate| significant(rate / 1e6));
        let row = vec![record.device.clone(), shape_name(record), of("sha256"), of("sha512"), of("keccak")];
        if groups.is_empty() {
            let heads = &["device", "by", "SHA-256, million a second", "SHA-512", "Keccak"];
            let table = FigureTable { heads, words: 2, rows: Vec::new() };
            groups.push(FigureGroup {
                title: "Compressions of one core, or of a whole GPU at its limit".into(),
                table,
                ..FigureGroup::default()
            });
        }
        groups[0].table.rows.push(row);
    }
    let key = |record: &&Record| {
        let mut parts = vec![record.device.clone(), record.detail.clone()];
        parts.extend((record.backend == Cpu::NAME).then(|| plural(record.threads, "thread")));
        parts.extend((record.devices.len() > 1).then(|| format!("{} devices", record.devices.len())));
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    };
    for (title, records) in by(run.records.iter().filter(|record| stands(record)), key) {
        let sets = by(records, |record| record.set.clone());
        // Their marks are the same on every chart.
        let mut ops: Vec<String> = OPS.iter().map(|(op, _)| (*op).into()).collect();
        let (mut chosen, mut rows) = (Vec::<&Record>::new(), Vec::new());
        for (_, records) in &sets {
            for op in &ops {
                let known = |record: &&Record| record.limit_fraction.is_some();
                chosen.extend(best(records, op, false).filter(known));
                let ways = by(records.iter().copied().filter(|record| record.op == *op), |record| through(record));
                rows.extend(ways.iter().filter_map(|(_, records)| best(records, op, false)).filter(known).map(row));
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
        let heads =
            &["set", "op", "through", "batch", "a job", "per second", "spread", "% of peak", "kernels, % of peak"];
        let table = FigureTable { heads, words: 3, rows };
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
fn row(record: &Record) -> Vec<String> {
    vec![
        short(&record.set).into(),
        record.op.clone(),
        through(record).into(),
        grouped(record.batch as u64),
        seconds(record.median_s / record.batch as f64),
        significant(record.ops_per_s),
        percent(record.spread),
        of_peak(record.limit_fraction),
        of_peak(record.kernels_limit_fraction),
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
    };
    let name = slug(&["roofline", title, heading]);
    (!bars.rows.is_empty()).then(|| Figure { name, drawing: bars.into() })
}
