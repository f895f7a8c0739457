//! `hypergrove bench`.

use crate::args::{Bench, MachineOptions, Scheme};
use crate::explain::{op_name, rates_json, work_json};
use crate::failure::{Exit, Failure};
use crate::printer::{Printer, grouped, seconds, significant};
use crate::stopwatch::{MESSAGE_BYTES, Measurement, Question, lattice, measure};
use crate::{machine, sha256, zkdilithium};
use hypergrove::zkdilithium::params::NAME;
use hypergrove::{Device, Op, Params};
use serde::Serialize;
use std::time::Duration;

pub(crate) fn run(args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    if !args.sha256.is_empty() {
        return sha256::run(args, options, printer);
    }
    match args.scheme {
        None | Some(Scheme::SlhDsa) => slh_dsa(args, options, printer),
        Some(Scheme::ZkDilithium) => of_zkdilithium(args, options, printer),
    }
}

fn slh_dsa(args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let sets: Vec<&'static Params> = args.set.iter().flat_map(|sets| sets.0.iter().copied()).collect();
    if let Some(p) = sets.iter().find(|p| p.d < args.cache_layers) {
        return Err(Failure::new(format!("--cache-layers {}: {p} has {} layers", args.cache_layers, p.d)));
    }
    let redundant = args.redundancy.redundant;
    let engine = machine::engine_with(options, printer, |builder| builder.redundant(redundant))?;
    let device = engine.device().clone();
    head(args, printer, &machine::describe(&engine))?;
    for p in sets {
        for op in args.op.iter().flat_map(|ops| ops.ops()).copied() {
            let cached_layers = if op == Op::Sign { args.cache_layers } else { 0 };
            let budget = Duration::from_secs_f64(args.seconds);
            let question = Question { params: p, op, batch: args.batch, cached_layers, budget };
            let measured = measure(&engine, question, options)
                .map_err(|failure| failure.of(format_args!("{p} {}", op_name(op))))?;
            let devices = engine.working().iter().map(Device::id).collect();
            let subject =
                Subject { scheme: "SLH-DSA", set: p.name, op, device: &device, devices, cached_layers, redundant };
            tell(args, printer, subject, &measured)?;
        }
    }
    Ok(Exit::Good)
}

fn of_zkdilithium(args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    zkdilithium::refuse(&[(args.cache_layers > 0, "--cache-layers"), (args.redundancy.redundant, "--redundant")])?;
    let engine = zkdilithium::engine(options)?;
    let device = zkdilithium::device(&engine)?;
    head(args, printer, &format!("{} {}, {}, {} threads", device.id(), device.name, device.detail, engine.threads()))?;
    for op in args.op.iter().flat_map(|ops| ops.ops()).copied() {
        let measured = lattice::measure(&engine, op, args.batch, Duration::from_secs_f64(args.seconds))
            .map_err(|failure| failure.of(format_args!("{NAME} {}", op_name(op))))?;
        let devices = vec![device.id()];
        let subject =
            Subject { scheme: NAME, set: NAME, op, device: &device, devices, cached_layers: 0, redundant: false };
        tell(args, printer, subject, &measured)?;
    }
    Ok(Exit::Good)
}

/// What is measured, and where.
struct Subject<'a> {
    scheme: &'static str,
    set: &'static str,
    op: Op,
    device: &'a Device,
    /// All that worked.
    devices: Vec<String>,
    cached_layers: usize,
    redundant: bool,
}

/// What stands above the rows.
fn head(args: &Bench, printer: &Printer, machine: &str) -> Result<(), Failure> {
    if args.json {
        return Ok(());
    }
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("HYPERGROVE_COMMIT"));
    printer.note(format_args!("{machine}; hypergrove {version} at {commit}"));
    printer.line(row(["set", "op", "batch", "median", "min", "spread", "per second", "of limit", "kernels/s"]))
}

/// A row of the table, or a record.
fn tell(args: &Bench, printer: &Printer, subject: Subject<'_>, measured: &Measurement) -> Result<(), Failure> {
    let Subject { scheme, set, op, device, devices, cached_layers, redundant } = subject;
    if args.json {
        let record = Record {
            scheme,
            set,
            op: op_name(op),
            batch: measured.batch,
            backend: device.backend,
            device: &device.name,
            detail: &device.detail,
            devices,
            threads: measured.threads,
            median_s: measured.median(),
            min_s: measured.min(),
            spread: measured.spread(),
            runs: measured.runs(),
            ops_per_s: measured.ops_per_s(),
            ideal_s: measured.ideal,
            limit_fraction: measured.limit_fraction(),
            kernels_per_s: measured.kernels_per_s(),
            kernels_limit_fraction: measured.kernels_limit_fraction(),
            verified: true,
            cached_layers,
            message_bytes: MESSAGE_BYTES,
            redundant,
            rates: measured.limits.core.as_ref().map(rates_json),
            limit: measured.limits.all(measured.threads).as_ref().map(work_json),
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("HYPERGROVE_COMMIT"),
        };
        return printer.line(serde_json::to_string(&record).map_err(|error| Failure::new(error.to_string()))?);
    }
    printer.line(row([
        set,
        op_name(op),
        &grouped(measured.batch as u64),
        &seconds(measured.median()),
        &seconds(measured.min()),
        &format!("{:.1} %", 100.0 * measured.spread()),
        &significant(measured.ops_per_s()),
        &measured.limit_fraction().map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
        &measured.kernels_per_s().map_or("-".into(), significant),
    ]))
}

/// One measurement.
#[derive(Serialize)]
struct Record<'a> {
    scheme: &'static str,
    set: &'static str,
    op: &'static str,
    batch: usize,
    backend: &'static str,
    device: &'a str,
    detail: &'a str,
    /// All that worked.
    devices: Vec<String>,
    threads: usize,
    median_s: f64,
    min_s: f64,
    spread: f64,
    runs: usize,
    ops_per_s: f64,
    /// At the limit; null where that is not known.
    ideal_s: Option<f64>,
    limit_fraction: Option<f64>,
    /// Of a GPU's kernels alone; null elsewhere.
    kernels_per_s: Option<f64>,
    kernels_limit_fraction: Option<f64>,
    /// Always: a wrong answer ends the benchmark with an error.
    verified: bool,
    cached_layers: usize,
    message_bytes: usize,
    /// Whether everything was computed twice and compared.
    redundant: bool,
    /// Compressions a second of one core, measured before and after; null where no cores were used.
    rates: Option<serde_json::Value>,
    /// Compressions a second of all devices together.
    limit: Option<serde_json::Value>,
    version: &'static str,
    commit: &'static str,
}

/// A row of a table whose rows are told as they become known.
fn row(cells: [&str; 9]) -> String {
    let [set, op, batch, median, min, spread, rate, fraction, kernels] = cells;
    format!("{set:<20} {op:<6} {batch:>6} {median:>9} {min:>9} {spread:>7} {rate:>11} {fraction:>9} {kernels:>11}")
}
