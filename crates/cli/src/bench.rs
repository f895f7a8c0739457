//! `hypergrove bench`.

use crate::args::{Bench, MachineOptions};
use crate::explain::op_name;
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::printer::{Printer, grouped, seconds, significant};
use crate::record::Record;
use crate::stopwatch::{Question, measure};
use crate::study;
use hypergrove::{Op, Params};
use std::time::Duration;

pub(crate) fn run(args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    if let Some(name) = &args.study {
        return study::run(name, args, options, printer);
    }
    let sets: Vec<&'static Params> = args.set.iter().flat_map(|sets| sets.0.iter().copied()).collect();
    if let Some(p) = sets.iter().find(|p| p.d < args.cache_layers) {
        return Err(Failure::new(format!("--cache-layers {}: {p} has {} layers", args.cache_layers, p.d)));
    }
    let redundant = args.redundancy.redundant;
    let engine = machine::engine_with(options, printer, |builder| builder.redundant(redundant))?;
    if !args.json {
        let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("HYPERGROVE_COMMIT"));
        printer.note(format_args!("{}; hypergrove {version} at {commit}", machine::describe(&engine)));
        printer.line(row(["set", "op", "batch", "median", "min", "spread", "per second", "of limit", "kernels/s"]))?;
    }
    for p in sets {
        for op in args.op.iter().flat_map(|ops| ops.ops()).copied() {
            let cached_layers = if op == Op::Sign { args.cache_layers } else { 0 };
            let budget = Duration::from_secs_f64(args.seconds.unwrap_or(1.0));
            let question = Question { params: p, op, batch: args.batch, cached_layers, budget };
            let measured = measure(&engine, question, options)
                .map_err(|failure| failure.of(format_args!("{p} {}", op_name(op))))?;
            if args.json {
                let record = Record { redundant, ..measured.record(&engine, question) };
                printer.line(record.line())?;
            } else {
                printer.line(row([
                    p.name,
                    op_name(op),
                    &grouped(measured.batch as u64),
                    &seconds(measured.times.median()),
                    &seconds(measured.times.min()),
                    &format!("{:.1} %", 100.0 * measured.times.spread()),
                    &significant(measured.ops_per_s()),
                    &measured.limit_fraction().map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
                    &measured.kernels_per_s().map_or("-".into(), significant),
                ]))?;
            }
        }
    }
    Ok(Exit::Good)
}

/// A row of a table whose rows are told as they become known.
fn row(cells: [&str; 9]) -> String {
    let [set, op, batch, median, min, spread, rate, fraction, kernels] = cells;
    format!("{set:<20} {op:<6} {batch:>6} {median:>9} {min:>9} {spread:>7} {rate:>11} {fraction:>9} {kernels:>11}")
}
