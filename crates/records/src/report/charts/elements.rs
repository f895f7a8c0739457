//! The elements of charts: sections, groups of figures, tables, points and axes, and those of plots.

pub(super) use crate::numbers::{counted, grouped, percent, ratio, seconds, share, significant, timed};
pub(super) use crate::plot::{Axis, Bar, Bars, Drawing, Look, Plot, Point, Scale, Series};
pub(super) use crate::record::{CPU, Record, short};
pub(super) use crate::runs::Run;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Part of a report.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// How to read it.
    pub(crate) reading: &'static str,
    pub(crate) groups: Vec<FigureGroup>,
}

/// Figures under one heading, which may be folded.
#[derive(Default)]
pub(crate) struct FigureGroup {
    pub(crate) title: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) table: FigureTable,
}

/// A picture and its name as a file.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) drawing: Drawing,
}

/// Columns that hold numbers are set to the right.
#[derive(Default)]
pub(crate) struct FigureTable {
    pub(crate) heads: Vec<&'static str>,
    /// How many columns hold words, from the left.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The cells of a row, each with the head of its column.
pub(super) type TableRow = Vec<(&'static str, String)>;

pub(super) const UNKNOWN: &str = "–";

/// The name that studies give the planner's own policy.
pub(crate) const TUNED: &str = "tuned";

/// A section that has one table for all of a study's records, or one for those of each device.
pub(super) struct Chart {
    /// The name of the study, and of the section.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// How to read it.
    pub(super) reading: &'static str,
    /// Whether each device has a group of its own.
    pub(super) by_device: bool,
    /// How many of the table's columns hold words.
    pub(super) words: usize,
    /// Draws the records, and adds the rows of the table.
    pub(super) fill: fn(&mut FigureGroup, Vec<&Record>),
}

impl Chart {
    /// The section of a run. A group whose table has no rows is left out.
    pub(super) fn section(&self, run: &Run) -> Section {
        let Chart { id, title, reading, by_device, words, fill } = *self;
        let devices = by(of_study(run, id), |record| if by_device { record.device.clone() } else { String::new() });
        let group = |(title, records): (String, Vec<&Record>)| {
            let table = FigureTable { words, ..FigureTable::default() };
            let mut group = FigureGroup { title, figures: Vec::new(), table };
            fill(&mut group, records);
            group.figures.iter_mut().for_each(|figure| figure.name = slug(&[id, &group.title, &figure.name]));
            (!group.table.rows.is_empty()).then_some(group)
        };
        Section { id, title, reading, groups: devices.into_iter().filter_map(group).collect() }
    }
}

impl FigureGroup {
    /// Adds a figure. `name` has the parts of its name within the group.
    pub(super) fn draw(&mut self, name: &[&str], drawing: impl Into<Drawing>) {
        self.figures.push(Figure { name: slug(name), drawing: drawing.into() });
    }
}

/// Values in the order of their first appearance, with all that have them.
pub(crate) fn by<T, K: Ord + Clone>(all: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let (mut groups, mut places) = (Vec::<(K, Vec<T>)>::new(), BTreeMap::new());
    for one in all {
        let key = key(&one);
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(one);
    }
    groups
}

pub(super) fn of_study<'a>(run: &'a Run, name: &'a str) -> impl Iterator<Item = &'a Record> {
    run.records.iter().filter(move |record| record.study.as_deref() == Some(name) && record.op != "rates")
}

/// Letters and figures of a name, for files.
pub(super) fn slug(parts: &[&str]) -> String {
    let part = |text: &&str| -> String {
        let kept = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        kept.collect::<String>().trim_matches('-').to_string()
    };
    parts.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

pub(super) fn axis(title: &str, scale: Scale, shown: fn(f64) -> String) -> Axis {
    Axis { title: title.into(), scale, shown, whole: false }
}

/// Of things that there is no half of.
pub(super) fn counts(title: &str, scale: Scale) -> Axis {
    Axis { whole: true, ..axis(title, scale, counted) }
}

/// Quartiles of times.
pub(super) fn quartiles(times: &[f64]) -> Option<(f64, f64)> {
    let last = times.len().checked_sub(1)?;
    Some((times[last / 4], times[last * 3 / 4]))
}

/// Jobs a second over the jobs of a batch.
pub(super) fn by_batch(name: String, records: &[&Record]) -> Series {
    let points = records.iter().map(|record| rate(record, record.batch as f64)).collect();
    Series { name, look: Look::Joined, points }
}

/// Jobs a second, with quartiles.
pub(super) fn rate(record: &Record, x: f64) -> Point {
    let range = quartiles(&record.times_s).map(|(low, high)| (record.batch as f64 / high, record.batch as f64 / low));
    let tooltip = format!(
        "batch {}: {} a second, {} a job, spread {}",
        grouped(record.batch as u64),
        significant(record.ops_per_s),
        seconds(record.median_s / record.batch as f64),
        percent(record.spread)
    );
    Point { x, y: record.ops_per_s, range, tooltip }
}

pub(super) fn shape_name(record: &Record) -> String {
    record.shape.clone().unwrap_or_else(|| record.devices.join(", "))
}

/// How a record's jobs reached the engine.
pub(crate) fn through(record: &Record) -> &'static str {
    match record.rows.as_deref() {
        None => "an iterator",
        Some("device") => "rows, device-reachable memory",
        Some(_) => "rows, ordinary memory",
    }
}

pub(super) fn of_peak(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), percent)
}

/// 1 job, 2 jobs.
pub(super) fn plural(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

impl FigureTable {
    /// Adds a row. All rows of a table have the same heads.
    pub(super) fn row(&mut self, cells: TableRow) {
        let (heads, cells) = cells.into_iter().unzip();
        self.heads = heads;
        self.rows.push(cells);
    }

    pub(crate) fn html(&self) -> Markup {
        html! {
            table {
                thead { tr { @for (i, head) in self.heads.iter().enumerate() { th scope="col" class=[(i >= self.words).then_some("number")] { (head) } } } }
                tbody {
                    @for row in &self.rows {
                        tr { @for (i, cell) in row.iter().enumerate() { td class=[(i >= self.words).then_some("number")] data-head=(self.heads[i]) { (cell) } } }
                    }
                }
            }
        }
    }
}
