//! Tables of records in Markdown, and the texts of their cells.

use crate::runs::RunRecord;
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
