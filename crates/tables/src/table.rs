//! Tables of measured policies: files of a row for each (family, n, op, set, batch), written by `hypergrove tune`.
//!
//! A table holds for one device, driver and space. Of its rows the most specific match wins: one of the plan's own set
//! before one of any set; the caller's tables go before those that were shipped. Where no row holds, a model of the rows
//! next to it gives an estimate.

use crate::space;
use hypergrove_engine::estimate::{Point, Unmeasured, line};
use hypergrove_engine::{Axis, Backend, Choice, Device, Knowledge, Policy, PolicySource, THREADS};
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::quote::{self, Quote};
use hypergrove_fips205::{Family, PARAMETER_SETS, Params, known_sets};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

/// A file of measured policies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Name of the backend.
    pub backend: String,
    /// The maker's name for the device.
    pub device: String,
    /// [`Device::detail`]: instruction set or driver.
    pub detail: String,
    /// [`space::checksum`].
    pub space: String,
    /// Host threads that there were. A row of the host names its own; to a device they lay batches out, so that with fewer
    /// its times may be longer.
    #[serde(default)]
    pub threads: usize,
    /// Version and commit that measured.
    pub version: String,
    /// The rows.
    #[serde(rename = "policy")]
    pub rows: Vec<Row>,
}

/// The best policy that was found for one question, and its time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// `SHA2` or `SHAKE`.
    pub family: String,
    /// Bytes of a node.
    pub n: usize,
    /// `keygen`, `sign`, `verify` or `cache`.
    pub op: String,
    /// The set; any of this family and n if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The batch sizes that it holds for.
    pub batch: Sizes,
    /// The batch size that was measured.
    pub jobs: usize,
    /// Values of axes; the backend's defaults hold for the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, u32>,
    /// Median of the batch's time.
    pub seconds: f64,
    /// Median of the batch's time with the backend's defaults.
    pub default_seconds: f64,
    /// Standard deviation of `seconds`, as a share of it.
    pub spread: f64,
    /// Runs that were timed for this question, of all policies.
    pub samples: usize,
}

/// Batch sizes from `least` up to `most`, which may be all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sizes {
    /// The smallest.
    pub least: usize,
    /// The largest, `usize::MAX` for no end.
    pub most: usize,
}

impl Sizes {
    fn contain(self, jobs: usize) -> bool {
        (self.least..=self.most).contains(&jobs)
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;
    fn try_from(text: String) -> Result<Sizes, String> {
        let wrong = || format!("batch sizes {}: write 16..=255 or 256.., for example", Quote::new(&text));
        let (least, most) = text.split_once("..").ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| wrong());
        let most = match most.strip_prefix('=') {
            Some(digits) => number(digits)?,
            None if most.is_empty() => usize::MAX,
            None => return Err(wrong()),
        };
        let least = number(least)?;
        if least <= most { Ok(Sizes { least, most }) } else { Err(wrong()) }
    }
}

impl From<Sizes> for String {
    fn from(Sizes { least, most }: Sizes) -> String {
        if most == usize::MAX { format!("{least}..") } else { format!("{least}..={most}") }
    }
}

/// `keygen`, `sign`, `verify` or `cache`.
pub fn op_name(op: Op) -> &'static str {
    match op {
        Op::Keygen => "keygen",
        Op::Sign => "sign",
        Op::Verify => "verify",
        Op::Cache => "cache",
    }
}

/// The name of a device's file, without `.toml`: `NVIDIA H200` → `nvidia-h200`.
pub fn file_name(device: &Device) -> String {
    let words = device.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if name.is_empty() { "device".into() } else { name }
}

impl Table {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Table, String> {
        let table: Table =
            toml::from_str(text).map_err(|why: toml::de::Error| quote::at_line(text, why.span(), why.message()))?;
        for row in &table.rows {
            let timed = [row.seconds, row.default_seconds].iter().all(|s| is_plausible(*s, row.jobs));
            if !(row.batch.contain(row.jobs) && timed && (0.0..=MOST_SPREAD).contains(&row.spread)) {
                let Row { jobs, seconds, default_seconds, spread, .. } = row;
                let figures = format!("{seconds} s, by default {default_seconds} s, spread {spread}");
                return Err(format!("{}: no measurement gives {jobs} jobs in {figures}", row.title()));
            }
        }
        Ok(table)
    }

    /// Takes over rows of an older table for the same space that ask something else than the new ones. If the new ones are
    /// of a whole `ladder` of sizes, rows that lie between two of them are left out. Batch sizes are shared out anew between the
    /// rows of a set and op.
    pub fn take_over(&mut self, old: Vec<Row>, ladder: bool) {
        let mut measured: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for row in &self.rows {
            measured.entry(asks(row)).or_default().insert(row.jobs);
        }
        let stays = |row: &Row| {
            measured.get(&asks(row)).is_none_or(|sizes| {
                let lies_between = sizes.first() < Some(&row.jobs) && sizes.last() > Some(&row.jobs);
                !(sizes.contains(&row.jobs) || ladder && lies_between)
            })
        };
        let kept: Vec<Row> = old.into_iter().filter(stays).collect();
        self.rows.extend(kept);
        share_out(&mut self.rows);
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let body = toml::to_string(self).expect("a table has nothing that TOML lacks");
        format!("# Measured by `hypergrove tune`; seconds are of a whole batch of `jobs` jobs.\n{body}")
    }
}

/// Seconds of a job that a measurement can give: from a hash on the fastest device to the slowest set, emulated.
const JOB_SECONDS: RangeInclusive<f64> = 1e-10..=1e6;

/// Jobs of a batch, at most.
const MOST_JOBS: usize = u32::MAX as usize;

/// A spread that a measurement can have, at most.
const MOST_SPREAD: f64 = 1e3;

/// Threads that a row may name, at most: the engine uses no more than it has.
const MOST_THREADS: u32 = 1 << 16;

/// Whether a batch of so many jobs can have taken so many seconds: others would mislead whatever plans by them.
pub fn is_plausible(seconds: f64, jobs: usize) -> bool {
    (1..=MOST_JOBS).contains(&jobs) && JOB_SECONDS.contains(&(seconds / jobs as f64))
}

impl Row {
    /// Names the row in errors. Its words may be anything.
    fn title(&self) -> String {
        let op = Quote::name(&self.op, [Op::Keygen, Op::Sign, Op::Verify].map(op_name));
        let set = match &self.set {
            Some(set) => Quote::name(set, PARAMETER_SETS.iter().map(|p| p.name)).to_string(),
            None => {
                format!("{}, n = {}", Quote::name(&self.family, Family::ALL.iter().map(|family| family.name())), self.n)
            }
        };
        format!("the row of {op} {set} for {} jobs", self.jobs)
    }

    /// The set's name, or family and n.
    fn set(&self) -> String {
        self.set.clone().unwrap_or_else(|| format!("{}, n = {}", self.family, self.n))
    }

    fn params(&self) -> Option<&'static Params> {
        let of_set = |p: &&Params| self.set.as_ref().is_none_or(|set| set == p.name);
        let mut alike = known_sets().filter(of_set);
        alike.find(|p| (p.family.name(), p.n) == (&*self.family, self.n))
    }
}

/// A table and where it comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// A path, or `shipped …`: for notices.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A row that holds for the device at hand.
#[derive(Debug)]
struct Entry {
    row: Row,
    policy: Policy,
    plan: Plan,
    /// Compressions of one job.
    work: f64,
    source: String,
}

/// The rows in use of one table, in summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InUse {
    /// [`Source::name`].
    pub table: String,
    /// Its rows.
    pub rows: usize,
    /// The sets that it has rows of, each once; family and n for any of them.
    pub sets: Vec<String>,
    /// The ops that it has rows of, each once.
    pub ops: Vec<String>,
}

/// The rows that the tables have for one device.
#[derive(Debug, Default)]
pub struct TableKnowledge {
    entries: Vec<Entry>,
    /// Tables that were left out, and why: a line each.
    pub notices: Vec<String>,
}

impl TableKnowledge {
    /// The rows that these tables have for a device, the most trusted first. Tables of other devices are passed over; a stale or
    /// corrupt one is left out with a notice.
    pub fn new(tables: &[Source], backend: &dyn Backend, device: &Device) -> TableKnowledge {
        let mut known = TableKnowledge::default();
        for source in tables {
            // A file that is not even of this backend may be as it likes.
            match Table::parse(&source.text) {
                Err(why) => known.notices.push(format!("{} is damaged and was left out: {why}", source.name)),
                Ok(table) if table.backend != device.backend || table.device != device.name => {}
                Ok(table) => match known.take(&table, source, backend, device) {
                    Ok(()) => {}
                    Err(why) => known.notices.push(format!("{} was left out: {why}", source.name)),
                },
            }
        }
        known
    }

    fn take(&mut self, table: &Table, source: &Source, backend: &dyn Backend, device: &Device) -> Result<(), String> {
        let again = "`hypergrove tune` measures again";
        if table.detail != device.detail {
            let detail = Quote::name(&table.detail, [&*device.detail]);
            return Err(format!("it was measured with {detail}, here is {}; {again}", device.detail));
        }
        let here = space::checksum(backend, device).map_err(|why| why.to_string())?;
        if table.space != here {
            return Err(format!(
                "kernels or axes have changed since (space {}, here {here}); {again}",
                Quote::new(&table.space)
            ));
        }
        let mut entries = Vec::new();
        for row in &table.rows {
            let ops = [Op::Keygen, Op::Sign, Op::Verify];
            let op = ops.into_iter().find(|op| op_name(*op) == row.op);
            // A set that this build leaves out.
            let (Some(op), Some(params)) = (op, row.params()) else { continue };
            let plan = Plan::new(params, op);
            let space = backend.slh_dsa_on(device).and_then(|programs| programs.space(device, &plan));
            let policy =
                policy(row, &space.map_err(|why| why.to_string())?).map_err(|why| format!("{}: {why}", row.title()))?;
            let work = plan.work().in_sha256();
            entries.push(Entry { row: row.clone(), policy, plan, work, source: source.name.clone() });
        }
        self.entries.extend(entries);
        Ok(())
    }

    /// Rows in use.
    pub fn rows(&self) -> usize {
        self.entries.len()
    }

    /// The tables that these rows are of, the most trusted first.
    pub fn in_use(&self) -> Vec<InUse> {
        let each = |mut names: Vec<String>| {
            names.sort();
            names.dedup();
            names
        };
        let of = |entries: &[Entry]| InUse {
            table: entries[0].source.clone(),
            rows: entries.len(),
            sets: each(entries.iter().map(|entry| entry.row.set()).collect()),
            ops: each(entries.iter().map(|entry| entry.row.op.clone()).collect()),
        };
        self.entries.chunk_by(|a, b| a.source == b.source).map(of).collect()
    }

    /// The row for a plan and a batch size: of the first table that has one; the set's own before any set's.
    fn row(&self, plan: &Plan, jobs: usize) -> Option<&Entry> {
        let holds = |entry: &&Entry| entry.is_like(plan) && entry.row.batch.contain(jobs);
        let own = |entry: &Entry| entry.row.set.as_deref() == Some(plan.params.name);
        let mut found: Option<&Entry> = None;
        for entry in self.entries.iter().filter(holds) {
            let same_table = found.is_none_or(|old| old.source == entry.source);
            if same_table && (own(entry) || entry.row.set.is_none()) && found.is_none_or(|old| own(entry) && !own(old))
            {
                found = Some(entry);
            }
        }
        found.filter(|_| plan.cached_layers == 0)
    }

    /// The nearest row's policy, and the time by the law T = α + τ · compressions of all rows of the op.
    fn estimate(&self, plan: &Plan, jobs: usize) -> Option<Choice> {
        let work = plan.work().in_sha256();
        let alike = || self.entries.iter().filter(|entry| entry.is_like(plan));
        let far = |entry: &&Entry| {
            let (a, b) = (entry.row.jobs as f64, jobs as f64);
            let set = f64::from(u8::from(entry.plan.params.name != plan.params.name));
            (a / b).log2().abs() + (entry.work / work).log2().abs() + set
        };
        let nearest = alike().min_by(|a, b| far(a).total_cmp(&far(b)))?;
        // Rows of the set itself tell more than those of others, if there are some.
        let own = |entry: &&Entry| entry.row.set.as_deref() == Some(plan.params.name);
        let only_own = alike().filter(own).count() > 1;
        let seen: Vec<Point> = alike()
            .filter(|entry| !only_own || own(entry))
            .map(|Entry { row, work, .. }| {
                let sigma = row.spread * row.seconds;
                Point { x: row.jobs as f64 * work, seconds: row.seconds, sigma }
            })
            .collect();
        let estimate = line(&seen, jobs as f64 * work)?;
        Some(Choice {
            policy: nearest.policy.clone(),
            source: PolicySource::Model,
            seconds: Some((estimate.seconds / jobs as f64, estimate.sigma / jobs as f64)),
            why: format!(
                "{}: {} {} of {} jobs is nearest",
                nearest.source,
                nearest.row.set(),
                nearest.row.op,
                nearest.row.jobs
            ),
        })
    }
}

/// A row's policy. It holds axes that a tuner may choose, and no others: a file must not switch a check off.
fn policy(row: &Row, space: &[Axis]) -> Result<Policy, String> {
    if let Some(axis) = space.iter().find(|axis| !axis.tuned && row.axes.contains_key(axis.name)) {
        return Err(format!("it sets {}, which is not tuned", axis.name));
    }
    match row.axes.get(THREADS) {
        Some(threads) if !(1..=MOST_THREADS).contains(threads) => {
            return Err(format!("{THREADS} = {threads}: it is 1 to {MOST_THREADS}"));
        }
        _ => {}
    }
    let named = row.axes.iter().map(|(name, value)| (name.as_str(), *value));
    space::policy(space, named).map_err(|why| why.to_string())
}

impl Entry {
    fn is_like(&self, plan: &Plan) -> bool {
        let (mine, p) = (self.plan.params, plan.params);
        (mine.family, mine.n, self.plan.op) == (p.family, p.n, plan.op)
    }
}

impl Knowledge for TableKnowledge {
    fn choose(&self, backend: &dyn Backend, device: &Device, plan: &Plan, jobs: usize) -> Option<Choice> {
        let jobs = jobs.max(1);
        if let Some(entry) = self.row(plan, jobs) {
            let Row { seconds, spread, jobs: of, .. } = entry.row;
            // The row's policy holds for all of its sizes, its time for the one that was measured.
            let near = of.div_ceil(2) <= jobs && jobs.div_ceil(2) <= of;
            let scaled = || self.estimate(plan, jobs).and_then(|choice| choice.seconds);
            let a_job = seconds / of as f64;
            let seconds = if near { Some((a_job, spread * a_job)) } else { scaled() };
            let why = format!("{}: {} {} of {of} jobs", entry.source, entry.row.set(), entry.row.op);
            return Some(Choice { policy: entry.policy.clone(), source: PolicySource::Table, seconds, why });
        }
        self.estimate(plan, jobs).or_else(|| Unmeasured.choose(backend, device, plan, jobs))
    }

    fn interpolate(&self, times: &[(usize, f64)], jobs: usize) -> Option<f64> {
        Unmeasured.interpolate(times, jobs)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

/// The question that a row answers, batch sizes aside.
fn asks(row: &Row) -> (Option<String>, String, usize, String) {
    (row.set.clone(), row.family.clone(), row.n, row.op.clone())
}

/// Puts rows in order, one for each size that was measured, and shares all batch sizes out between the rows of a set and op.
pub fn share_out(rows: &mut Vec<Row>) {
    rows.sort_by_key(|row| (asks(row), row.jobs));
    rows.dedup_by_key(|row| (asks(row), row.jobs));
    for rows in rows.chunk_by_mut(|a, b| asks(a) == asks(b)) {
        let measured: Vec<usize> = rows.iter().map(|row| row.jobs).collect();
        rows.iter_mut().zip(sizes(&measured)).for_each(|(row, holds)| row.batch = holds);
    }
}

/// The batch sizes that each of these measured sizes, ascending, holds for: from half way to the one before, by logarithm, to half
/// way to the one after; the first from 1, the last without end.
pub fn sizes(measured: &[usize]) -> Vec<Sizes> {
    let middle = |a: usize, b: usize| ((a as f64 * b as f64).sqrt() as usize).clamp(a, b - 1);
    let least = |i: usize| if i == 0 { 1 } else { middle(measured[i - 1], measured[i]) + 1 };
    let most = |i: usize| measured.get(i + 1).map_or(usize::MAX, |next| middle(measured[i], *next));
    (0..measured.len()).map(|i| Sizes { least: least(i), most: most(i) }).collect()
}
