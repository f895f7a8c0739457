//! Operations as shares of the peak rate.

use super::*;
use hypergrove::Cpu;

pub(super) fn roofline(run: &Run) -> Section {
    let mut groups = Vec::new();
    for record in run.records.iter().filter(|record| record.op == "rates") {
        let Some(rates) = record.rates.as_ref().or(record.limit.as_ref()) else { continue };
        let of = |hash: &str| rates[hash].as_f64().map_or(UNKNOWN.into(), |rate| significant(rate / 1e6));
        let row = vec![record.device.clone(), shape_name(record), of("sha256"), of("sha512"), of("keccak")];
        if groups.is_empty() {
            let heads = vec!["device", "by", "SHA-256, million a second", "SHA-512", "Keccak"];
            let table = Some(Table { heads, words: 2, rows: Vec::new() });
            groups.push(Group {
                title: "Compressions of one core, or of a whole GPU at its limit".into(),
                table,
                ..Group::default()
            });
        }
        groups[0].table.iter_mut().for_each(|table| table.rows.push(row.clone()));
    }
    let plain = |record: &&Record| {
        let of_all = record.study.as_deref().is_none_or(|study| study == "limits");
        of_all
            && record.batch > 1
            && record.cached_layers == 0
            && !record.redundant
            && record.rows.is_none()
            && record.limit_fraction.is_some()
    };
    let key = |record: &&Record| {
        let mut parts = vec![record.device.clone(), record.detail.clone()];
        parts.extend((record.backend == Cpu::NAME).then(|| plural(record.threads, "thread")));
        parts.extend((record.devices.len() > 1).then(|| format!("{} devices", record.devices.len())));
        parts.join(", ")
    };
    for (title, records) in by(run.records.iter().filter(plain), key) {
        let series: Vec<String> =
            by(records.iter().copied(), |record| record.op.clone()).into_iter().map(|(op, _)| op).collect();
        let chart = |heading: &str, of: fn(&Record) -> Option<f64>| {
            let rows = by(records.iter().copied(), |record| record.set.clone()).into_iter().map(|(set, records)| {
                let known = || records.iter().filter_map(|record| Some((*record, of(record)?)));
                let at = |op: &str| series.iter().position(|other| other == op).unwrap_or(0);
                let values: Vec<Value> = known().map(|(record, fraction)| (at(&record.op), fraction, None)).collect();
                let told: Vec<String> =
                    known().map(|(r, fraction)| format!("{} {:.0} %", r.op, 100.0 * fraction)).collect();
                Bar {
                    label: short(&set).into(),
                    values,
                    text: String::new(),
                    told: format!("{}: {}", short(&set), told.join(", ")),
                }
            });
            let rows: Vec<Bar> = rows.filter(|row| !row.values.is_empty()).collect();
            let bars = Bars {
                title: format!("{heading}, % of peak"),
                rows,
                x: axis("% of peak", Scale::Linear, share),
                series: series.clone(),
                dots: true,
                rule: Some(1.0),
            };
            let name = slug(&["roofline", &title, heading]);
            (!bars.rows.is_empty()).then(|| Figure { name, drawing: bars.into() })
        };
        let figures = [
            chart("end to end", |record| record.limit_fraction),
            chart("kernels alone", |record| record.kernels_limit_fraction),
        ];
        let rows = records.iter().map(|record| {
            vec![
                short(&record.set).into(),
                record.op.clone(),
                grouped(record.batch as u64),
                seconds(record.median_s / record.batch as f64),
                significant(record.ops_per_s),
                percent(record.spread),
                of_limit(record.limit_fraction),
                of_limit(record.kernels_limit_fraction),
            ]
        });
        let heads = vec!["set", "op", "batch", "a job", "per second", "spread", "% of peak", "kernels, % of peak"];
        let table = Some(Table { heads, words: 2, rows: rows.collect() });
        groups.push(Group { title, figures: figures.into_iter().flatten().collect(), table });
    }
    Section {
        id: "roofline",
        title: "Shares of the peak rate",
        reading: "100 % is the peak: the operation's hash compressions at the highest rate of the device, and nothing else. A CPU's \
            peak is measured with each operation, a GPU's is computed from its integer pipes and its clock. A share above 100 % \
            means that something slowed the CPU down while its peak was measured.",
        groups,
    }
}
