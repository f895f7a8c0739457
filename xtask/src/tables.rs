//! Tables of records in Markdown, and the texts of their cells.

use crate::runs::RunRecord;
use hypergrove_lab::record::grouped;
use std::collections::BTreeMap;

/// Stands for a figure that is not known.
pub(crate) const UNKNOWN: &str = "–";

/// The text that a table shows for a record.
pub(crate) type Shown<'a> = dyn Fn(RunRecord<'_>) -> String + 'a;
/// A column of a table: its heading, its records by row, and their texts.
pub(crate) type Column<'a, K> = (&'a str, &'a BTreeMap<K, RunRecord<'a>>, &'a Shown<'a>);

/// A table, whose rows begin with words; words stand left, figures right.
pub(crate) fn table<'k, K: Ord + 'k>(
    words: &[&str],
    columns: &[Column<'_, K>],
    rows: impl Iterator<Item = (Vec<String>, &'k K)>,
) -> String {
    let headings: Vec<&str> = words.iter().copied().chain(columns.iter().map(|(heading, ..)| *heading)).collect();
    let align = |heading: &&str| if words.contains(heading) || *heading == "run" { "---" } else { "---:" };
    let mut lines = vec![headings.join(" | "), headings.iter().map(align).collect::<Vec<_>>().join(" | ")];
    for (mut cells, key) in rows {
        let cell = |(_, found, shown): &Column<'_, K>| found.get(key).map_or(UNKNOWN.into(), |found| shown(*found));
        cells.extend(columns.iter().map(cell));
        lines.push(cells.join(" | "));
    }
    lines.iter().map(|line| format!("| {line} |\n")).collect()
}

pub(crate) fn share(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.0} %", 100.0 * fraction))
}

/// Seconds, in a unit that suits.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} µs", significant(s * 1e6)),
        s if s < 1.0 => format!("{} ms", significant(s * 1e3)),
        s => format!("{} s", significant(s)),
    }
}

/// Three digits of a rate, in millions and billions where those suit.
pub(crate) fn per_second(x: f64) -> String {
    match x {
        x if x >= 0.9995e9 => format!("{} billion", significant(x / 1e9)),
        x if x >= 0.9995e6 => format!("{} million", significant(x / 1e6)),
        x => significant(x),
    }
}

/// Three digits.
fn significant(x: f64) -> String {
    let rounded = format!("{x:.2e}");
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match rounded.parse::<f64>() {
        Ok(rounded) if exponent > 2 => grouped(rounded as u64),
        _ => format!("{x:.*}", (2 - exponent).clamp(0, 4) as usize),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn three_digits() {
        let rates = [0.0123, 1.0, 12.34, 999.6, 1234.5, 131_072.0, 999_400.0, 999_600.0, 2.035e6, 1.63e10];
        let texts = [
            "0.0123",
            "1.00",
            "12.3",
            "1,000",
            "1,230",
            "131,000",
            "999,000",
            "1.00 million",
            "2.04 million",
            "16.3 billion",
        ];
        assert_eq!(rates.map(per_second), texts);
        assert_eq!([7, 4096, 1_048_576].map(grouped), ["7", "4,096", "1,048,576"]);
    }
}
