//! The table of `hypergrove bench`, which is printed row by row.

use crate::args::Bench;
use crate::failure::Failure;
use crate::printer::{Printer, grouped, percent, seconds, significant};
use crate::version::{COMMIT, VERSION};
use hypergrove_records::record::Record;

/// Prints the machine and the heads of the columns; nothing for JSON.
pub(crate) fn head(args: &Bench, printer: &Printer, machine: &str) -> Result<(), Failure> {
    if args.json {
        return Ok(());
    }
    printer.note(format_args!("{machine}; hypergrove {VERSION} at {COMMIT}"));
    printer.line(row(["set", "op", "batch", "median", "min", "spread", "per second", "% of peak", "kernels/s"]))
}

/// Prints a measurement.
pub(crate) fn tell(args: &Bench, printer: &Printer, record: &Record) -> Result<(), Failure> {
    if args.json {
        return printer.line(record.line());
    }
    printer.line(row([
        &record.set,
        &record.op,
        &grouped(record.batch as u64),
        &seconds(record.median_s),
        &seconds(record.min_s),
        &percent(record.spread),
        &significant(record.ops_per_s),
        &record.limit_fraction.map_or("-".into(), percent),
        &record.kernels_per_s.map_or("-".into(), significant),
    ]))
}

/// A row of a table that is printed row by row.
fn row(cells: [&str; 9]) -> String {
    let [set, op, batch, median, min, spread, rate, fraction, kernels] = cells;
    format!("{set:<20} {op:<6} {batch:>6} {median:>9} {min:>9} {spread:>7} {rate:>11} {fraction:>9} {kernels:>11}")
}
