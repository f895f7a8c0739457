//! The figures of a run: each study's records as plots and tables, a file a section.

mod cache_depth;
mod callers;
mod compared;
mod cores;
mod crossover;
mod functions;
mod hashing;
mod host;
mod ladder;
mod multi_gpu;
mod roofline;
mod throughput;

use crate::printer::{grouped, percent, seconds, significant};
use crate::record::{Record, StageRecord, short};
use crate::report::best::{OPS, best, stands};
use crate::report::plot::{
    Axis, Bar, BarValue, Bars, Drawing, Look, Plot, Point, Scale, Series, counted, ratio, share, timed,
};
use crate::report::read::RecordedRun;
use crate::stopwatch::Times;
use hypergrove::{Params, known_sets};
use hypergrove_tune::model::adaptive::optimum;
use hypergrove_tune::model::{Fit, Kernel, Sample, Shape, adaptive, regret, staircase};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(crate) use compared::compared;

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
    pub(crate) table: Option<FigureTable>,
}

/// A picture and its name as a file.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) drawing: Drawing,
}

/// Columns that hold numbers are set to the right.
pub(crate) struct FigureTable {
    pub(crate) heads: Vec<&'static str>,
    /// How many columns hold words, from the left.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

const UNKNOWN: &str = "–";

/// The name that studies give the planner's own policy.
pub(crate) const TUNED: &str = "tuned";

/// All sections that a run has records for.
pub(crate) fn sections(run: &RecordedRun) -> Vec<Section> {
    let all = [
        throughput::throughput(run),
        crossover::crossover(run),
        callers::callers(run),
        cores::cores(run),
        ladder::ladder(run),
        functions::functions(run),
        roofline::roofline(run),
        cache_depth::cache_depth(run),
        multi_gpu::multi_gpu(run),
        host::host(run),
        hashing::hashing(run),
    ];
    all.into_iter().filter(|section| !section.groups.is_empty()).collect()
}

impl FigureGroup {
    /// A group whose figures `fill` draws, and whose table it gives; none if the table has no rows.
    fn of(id: &str, title: String, fill: impl FnOnce(&mut FigureGroup) -> FigureTable) -> Option<FigureGroup> {
        let mut group = FigureGroup { title, ..FigureGroup::default() };
        let table = fill(&mut group);
        group.figures.iter_mut().for_each(|figure| figure.name = slug(&[id, &group.title, &figure.name]));
        (!table.rows.is_empty()).then_some(FigureGroup { table: Some(table), ..group })
    }

    /// Adds a figure. `name` has the parts of its name within the group.
    fn draw(&mut self, name: &[&str], drawing: impl Into<Drawing>) {
        self.figures.push(Figure { name: slug(name), drawing: drawing.into() });
    }
}

/// A group for each device of the study with this name.
fn by_device<'a>(
    run: &'a RecordedRun,
    study: &'a str,
    fill: fn(&mut FigureGroup, Vec<&'a Record>) -> FigureTable,
) -> Vec<FigureGroup> {
    let devices = by(of_study(run, study), |record| record.device.clone()).into_iter();
    devices.filter_map(|(device, records)| FigureGroup::of(study, device, |group| fill(group, records))).collect()
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

fn of_study<'a>(run: &'a RecordedRun, name: &'a str) -> impl Iterator<Item = &'a Record> {
    run.records.iter().filter(move |record| record.study.as_deref() == Some(name) && record.op != "rates")
}

/// Letters and figures of a name, for files.
fn slug(parts: &[&str]) -> String {
    let part = |text: &&str| -> String {
        let kept = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        kept.collect::<String>().trim_matches('-').to_string()
    };
    parts.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn axis(title: &str, scale: Scale, shown: fn(f64) -> String) -> Axis {
    Axis { title: title.into(), scale, shown, whole: false }
}

/// Of things that there is no half of.
fn counts(title: &str, scale: Scale) -> Axis {
    Axis { whole: true, ..axis(title, scale, counted) }
}

/// Quartiles of times.
fn quartiles(times: &[f64]) -> Option<(f64, f64)> {
    let last = times.len().checked_sub(1)?;
    Some((times[last / 4], times[last * 3 / 4]))
}

/// Jobs a second over the jobs of a batch.
fn by_batch(name: String, records: &[&Record]) -> Series {
    let points = records.iter().map(|record| rate(record, record.batch as f64)).collect();
    Series { name, look: Look::Joined, points }
}

/// Jobs a second, with quartiles.
fn rate(record: &Record, x: f64) -> Point {
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

fn shape_name(record: &Record) -> String {
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

fn of_peak(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), percent)
}

/// 1 job, 2 jobs.
fn plural(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

/// The key by which measurements of two runs are paired.
fn key(record: &Record) -> String {
    let shape = record.shape.clone().unwrap_or_default();
    let study = record.study.clone().unwrap_or_default();
    // A plain benchmark's batch fills its machine, whatever that takes; or is one job.
    let batch = match (record.study.is_some(), record.batch) {
        (true, batch) => grouped(batch as u64),
        (false, 1) => "1".into(),
        (false, _) => String::new(),
    };
    let batch = if batch.is_empty() { batch } else { format!("batch {batch}") };
    let cached = if record.cached_layers > 0 { format!("{} cached", record.cached_layers) } else { String::new() };
    let redundant = if record.redundant { "redundant" } else { "" };
    let rows = record.rows.as_ref().map_or("", |memory| if memory == "device" { "device rows" } else { "rows" });
    let trial = record.trial.as_ref().map_or(String::new(), |trial| format!("trial {trial}"));
    let several = if record.devices.len() > 1 { format!("{} devices", record.devices.len()) } else { String::new() };
    let parts = [short(&record.set), &record.op, &batch, &shape, &cached, redundant, rows, &several, &study, &trial];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl FigureTable {
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
