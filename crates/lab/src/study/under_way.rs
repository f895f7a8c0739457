//! A study under way: its devices and its time, the lines that it prints, and what it leaves out.

use super::definition::{Kind, Numbers};
use crate::args::{Bench, MachineOptions, OpName};
use crate::failure::Failure;
use crate::machine;
use crate::printer::{Bar, Printer, grouped, percent, seconds, significant};
use hypergrove::{Backend, Device, Op, PARAMETER_SETS, Params, UnknownSet};
use hypergrove_records::record::{HashRates, Record};
use hypergrove_tune::trial;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device and its backend.
#[derive(Clone)]
pub(super) struct StudyDevice {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) device: Device,
    /// How long a wait for the device may take, at least.
    pub(super) timeout: Duration,
}

impl StudyDevice {
    pub(super) fn kind(&self) -> Kind {
        if self.device.memory > 0 { Kind::Gpu } else { Kind::Cpu }
    }
    pub(super) fn trials(&self) -> trial::Place<'_> {
        trial::Place { backend: &*self.backend, device: &self.device, timeout: self.timeout }
    }
    pub(super) fn clock(&self) -> Option<f64> {
        self.backend.clock(&self.device).or_else(|| if self.kind() == Kind::Cpu { machine::clock() } else { None })
    }
}

/// A study under way.
pub(super) struct Study<'a> {
    pub(super) name: &'a str,
    pub(super) args: &'a Bench,
    pub(super) options: &'a MachineOptions,
    pub(super) printer: &'a Printer,
    pub(super) places: Vec<StudyDevice>,
    /// Why there are no more devices.
    pub(super) absent: String,
    pub(super) bar: Bar,
    pub(super) start: Instant,
    /// Turns that are to come: policies of a set and op over all their batches.
    pub(super) turns: usize,
    /// When the turn is over, after `start`.
    pub(super) until: f64,
    pub(super) skipped: usize,
}

impl Study<'_> {
    /// The next turn begins: each has an equal share of the time that is left.
    pub(super) fn turn(&mut self) {
        let now = self.start.elapsed().as_secs_f64();
        let left = self.args.within.map_or(f64::INFINITY, |within| (within - now).max(0.0));
        self.until = now + left / self.turns.max(1) as f64;
        self.turns = self.turns.saturating_sub(1);
    }

    /// The sets and ops of a row that were not left out by the command line, each op with its numbers of cached layers.
    pub(super) fn subjects(
        &self,
        sets: &[String],
        ops: &[OpName],
        layers: &[usize],
    ) -> Result<Vec<(&'static Params, Op, usize)>, Failure> {
        let mut all: Vec<&'static Params> = Vec::new();
        for name in sets {
            match name.as_str() {
                "all" => all.extend(PARAMETER_SETS),
                name => all.push(name.parse().map_err(|why: UnknownSet| Failure::new(why.to_string()))?),
            }
        }
        all.retain(|p| self.args.set.iter().any(|sets| sets.0.iter().any(|requested| std::ptr::eq(*requested, *p))));
        if self.args.quick {
            all.truncate(1);
        }
        let is_requested = |op: &Op| self.args.op.iter().any(|ops| ops.0.contains(op));
        let ops: Vec<Op> = ops.iter().map(|op| op.op()).filter(is_requested).collect();
        let layers = self.args.some(layers);
        let mut subjects = Vec::new();
        for p in all {
            for op in &ops {
                let with_layers = layers.iter().filter(|layers| **layers == 0 || *op == Op::Sign && **layers <= p.d);
                subjects.extend(with_layers.map(|layers| (p, *op, *layers)));
            }
        }
        Ok(subjects)
    }

    pub(super) fn batches(&self, numbers: &Numbers, full: impl FnOnce() -> usize) -> Vec<usize> {
        self.args.batch.map_or_else(|| self.args.some(&numbers.all(full)), |batch| vec![batch])
    }

    pub(super) fn threads(&self) -> usize {
        machine::host_threads(self.options)
    }

    /// The first device of a kind; if there is none, that is what is left out.
    pub(super) fn place(&mut self, kind: Kind) -> Result<Option<StudyDevice>, Failure> {
        if let Some(place) = self.places.iter().find(|place| place.kind() == kind) {
            return Ok(Some(place.clone()));
        }
        let (what, absent) = (if kind == Kind::Gpu { "GPU" } else { "CPU" }, &self.absent);
        let why =
            if absent.is_empty() { format!("there is no {what}") } else { format!("there is no {what} ({absent})") };
        self.skip(Record::default(), why)?;
        Ok(None)
    }

    /// Whether `--within` is over, for this turn.
    pub(super) fn is_over(&self) -> bool {
        self.start.elapsed().as_secs_f64() >= self.until
    }

    /// Leaves out what is larger than `batch` of the batches that are to come.
    pub(super) fn skip_larger(
        &mut self,
        base: Record,
        why: String,
        batch: usize,
        to_come: &mut VecDeque<usize>,
    ) -> Result<(), Failure> {
        let larger = to_come.iter().copied().filter(|other| *other > batch);
        let (number, first) = (larger.clone().count(), larger.min().unwrap_or(batch));
        to_come.retain(|other| *other <= batch);
        self.skip_many(Record { batch: first, ..base }, why, number)
    }

    /// So many points more.
    pub(super) fn begin(&mut self, points: usize) {
        if self.bar.is_hidden() {
            self.bar = self.printer.progress(points.max(2), "measuring");
            self.bar.set_length(points as u64);
        } else {
            self.bar.inc_length(points as u64);
        }
    }

    pub(super) fn emit(&mut self, record: Record) -> Result<(), Failure> {
        let record = Record { study: Some(self.name.into()), ..record };
        self.bar.inc(1);
        let line = if self.args.json { record.line() } else { table_row(&record) };
        self.bar.suspend(|| self.printer.line(line))
    }

    /// Some of the points that were announced are not measured.
    pub(super) fn skip_many(&mut self, base: Record, why: String, points: usize) -> Result<(), Failure> {
        self.bar.inc(points as u64);
        self.skip(base, why)
    }

    /// Names measurements that are left out, and says why.
    pub(super) fn skip(&mut self, base: Record, why: String) -> Result<(), Failure> {
        self.skipped += 1;
        let what = describe(&base);
        let colon = if what.is_empty() { "" } else { ": " };
        self.bar.suspend(|| self.printer.note(format_args!("skipped: {what}{colon}{why}")));
        if !self.args.json {
            return Ok(());
        }
        let record = Record { study: Some(self.name.into()), skipped: Some(why), ..base };
        self.bar.suspend(|| self.printer.line(record.line()))
    }
}

/// The subject of a record, as far as it is known: devices, set, op, cached layers, shape and batch.
pub(super) fn describe(record: &Record) -> String {
    let mut parts = Vec::new();
    parts.extend((!record.devices.is_empty()).then(|| record.devices.join(", ")));
    parts.extend((!record.set.is_empty()).then(|| record.set.clone()));
    parts.extend((!record.op.is_empty()).then(|| record.op.clone()));
    parts.extend((record.cached_layers > 0).then(|| format!("{} layers cached", record.cached_layers)));
    parts.extend(record.shape.clone());
    parts.extend((record.batch > 0).then(|| format!("batch {}", grouped(record.batch as u64))));
    parts.join(", ")
}

/// A row of a table that is printed row by row.
pub(super) fn row(cells: [&str; 8]) -> String {
    let [set, op, batch, shape, median, spread, rate, fraction] = cells;
    format!("{set:<20} {op:<6} {batch:>7}  {shape:<24} {median:>9} {spread:>7} {rate:>11} {fraction:>9}")
}

pub(super) fn table_row(record: &Record) -> String {
    if record.op == "rates" {
        let millions =
            |rates: HashRates| [rates.sha256, rates.sha512, rates.keccak].map(|rate| significant(rate / 1e6));
        let [sha256, sha512, keccak] = record.rates.or(record.limit).map_or(["-"; 3].map(String::from), millions);
        let (device, shape) = (&record.devices[0], record.shape.as_deref().unwrap_or_default());
        return format!("{device} {shape}: SHA-256 {sha256}, SHA-512 {sha512}, Keccak {keccak} million a second");
    }
    let mut shape = record.shape.clone().unwrap_or_else(|| record.devices.join(","));
    if record.cached_layers > 0 {
        shape = format!("{shape}, {} cached", record.cached_layers);
    }
    if let Some(fraction) = record.process_fraction {
        shape = format!("{shape}, {} of processes", percent(fraction));
    }
    if record.op == "hash" {
        shape = format!("{shape}, {} B", record.message_bytes);
    }
    let [median, spread] = [seconds(record.median_s), percent(record.spread)];
    let fraction = record.limit_fraction.map_or("-".into(), percent);
    row([
        &record.set,
        &record.op,
        &grouped(record.batch as u64),
        &shape,
        &median,
        &spread,
        &significant(record.ops_per_s),
        &fraction,
    ])
}
