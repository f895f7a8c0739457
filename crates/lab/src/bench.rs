//! `hypergrove bench`.

use crate::args::{Bench, MachineOptions, SECONDS, Scheme, op_name};
use crate::failure::{Exit, Failure};
use crate::lines::{head, tell};
use crate::printer::{Printer, grouped, seconds, significant};
use crate::stopwatch::Question;
use crate::stopwatch::callers::{self, CallerKind};
use crate::trace::{Recorded, Recording, observed};
use crate::version::{COMMIT, VERSION};
use crate::{machine, sha256, study, zkdilithium};
use hypergrove::{Op, SlhDsa};
use hypergrove_records::record::Record;
use std::sync::Arc;
use std::time::Duration;

/// Writes the file of a trace. Without bytes it only refuses a file that could not be written.
pub type TraceFile<'w> = &'w dyn Fn(Option<&[u8]>) -> Result<(), Failure>;

/// Measures what the arguments ask for. `write` writes the file of the trace that they name.
pub fn run(args: &Bench, options: &MachineOptions, printer: &Printer, write: TraceFile<'_>) -> Result<Exit, Failure> {
    if args.trace.is_none() {
        return measured(args, options, printer, None);
    }
    write(None)?;
    let recording = Arc::new(Recording::new());
    let exit = measured(args, options, printer, Some(&recording))?;
    let (file, events, left_out) = recording.file();
    write(Some(file.as_bytes()))?;
    let left_out = if left_out > 0 { format!("; {} later ones left out", grouped(left_out)) } else { String::new() };
    printer.note(format_args!("{} events in the trace{left_out}", grouped(events as u64)));
    Ok(exit)
}

fn measured(args: &Bench, options: &MachineOptions, printer: &Printer, into: Recorded<'_>) -> Result<Exit, Failure> {
    if let Some(name) = &args.study {
        return study::run(name, args, options, printer);
    }
    if !args.sha256.is_empty() {
        return sha256::run(args, options, printer);
    }
    match args.scheme {
        None | Some(Scheme::SlhDsa) if !args.axes.is_empty() => {
            Err(Failure::new("--axes are choices for --sha256 and for --scheme zkdilithium").hint("leave --axes out"))
        }
        None | Some(Scheme::SlhDsa) if !args.callers.is_empty() => many_callers(args, options, printer, into),
        None | Some(Scheme::SlhDsa) => slh_dsa(args, options, printer, into),
        Some(Scheme::ZkDilithium) => zkdilithium::bench(args, options, printer, into),
    }
}

fn slh_dsa(args: &Bench, options: &MachineOptions, printer: &Printer, into: Recorded<'_>) -> Result<Exit, Failure> {
    let sets = args.sets();
    if let Some(p) = sets.iter().find(|p| p.d < args.cache_layers) {
        return Err(Failure::new(format!("--cache-layers {}: {p} has {} layers", args.cache_layers, p.d)));
    }
    let redundant = args.redundancy.redundant;
    let build = |builder| observed(builder, into).redundant(redundant);
    let engine = machine::engine_with(options, printer, build)?;
    head(args, printer, &machine::describe(&engine))?;
    for p in sets {
        for op in args.op.iter().flat_map(|ops| ops.0.iter().copied()) {
            let cached_layers = if op == Op::Sign { args.cache_layers } else { 0 };
            let (batch, budget, rows) = (args.batch, args.budget(SECONDS), args.rows);
            let question = Question { params: SlhDsa::from(p), op, batch, cached_layers, budget, rows };
            let measured = study::cores::measure(args, &engine, question, options, printer);
            let measured = measured.map_err(|failure| failure.of(format_args!("{p} {}", op_name(op))))?;
            let record = Record { redundant, ..measured.record(&engine, question) };
            tell(args, printer, &record)?;
        }
    }
    Ok(Exit::Good)
}

/// Callers that bring one job each.
fn many_callers(
    args: &Bench,
    options: &MachineOptions,
    printer: &Printer,
    into: Recorded<'_>,
) -> Result<Exit, Failure> {
    let redundant = args.redundancy.redundant;
    let delay = Duration::from_micros(args.max_delay);
    let build = |builder| observed(builder, into).redundant(redundant).max_delay(delay);
    let engine = machine::engine_with(options, printer, build)?;
    let delayed = if delay.is_zero() { String::new() } else { format!(", delayed by up to {} µs", args.max_delay) };
    let way = match (args.direct, args.held) {
        (true, _) => CallerKind::Direct,
        (_, Some(threads)) => CallerKind::Held(threads),
        _ => CallerKind::Waiting,
    };
    let heads = ["set", "op", "callers", "half", "99 %", "99.9 %", "per second", "batches of"];
    if !args.json {
        let machine = machine::describe(&engine);
        printer.note(format_args!("{machine}; callers: {}{delayed}; hypergrove {VERSION} at {COMMIT}", way.name()));
        printer.line(callers_row(heads))?;
    }
    for params in args.sets() {
        for op in args.op.iter().flat_map(|ops| ops.0.iter().copied()) {
            for callers in args.some(&args.callers) {
                let cached_layers = if op == Op::Sign { args.cache_layers } else { 0 };
                let question =
                    callers::CallersQuestion { params, op, cached_layers, callers, way, budget: args.budget(SECONDS) };
                let record = callers::measure(&engine, question)
                    .map_err(|failure| failure.of(format_args!("{params} {}", op_name(op))))?;
                let shape = record.shape.map(|shape| shape + &delayed);
                let record = Record { redundant, shape, ..record };
                if args.json {
                    printer.line(record.line())?;
                    continue;
                }
                printer.line(callers_row([
                    &record.set,
                    &record.op,
                    &grouped(callers as u64),
                    &seconds(record.median_s),
                    &seconds(record.p99_s.unwrap_or_default()),
                    &seconds(record.p999_s.unwrap_or_default()),
                    &significant(record.ops_per_s),
                    &significant(record.batched.unwrap_or_default()),
                ]))?;
            }
        }
    }
    Ok(Exit::Good)
}

fn callers_row(cells: [&str; 8]) -> String {
    let [set, op, callers, half, p99, p999, rate, batch] = cells;
    format!("{set:<20} {op:<6} {callers:>7} {half:>9} {p99:>9} {p999:>9} {rate:>11} {batch:>10}")
}
