//! `hypergrove devices`.

use crate::args::{Devices, MachineOptions};
use hypergrove::{Device, Isa, TableSource};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine::{self, InUse, PolicyTable, TableKnowledge};
use hypergrove_lab::printer::{Printer, Table, significant};

use serde_json::json;

pub(crate) fn run(args: &Devices, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    // Nobody knows what device a damaged table is of: the engine warns of it.
    let is_whole = |table: &TableSource| PolicyTable::parse(&table.text).is_ok();
    let (tables, damaged): (Vec<_>, Vec<_>) = machine::tables().into_iter().partition(is_whole);
    let engine = machine::engine_with(options, printer, |builder| builder.tables(damaged))?;
    let (mut devices, mut absent) = (Vec::new(), Vec::new());
    for backend in machine::backends() {
        match backend.devices() {
            Ok(there) if there.is_empty() => {
                absent.push((backend.name(), backend.absent().unwrap_or_else(|| "no reason is known".into())));
            }
            Ok(there) => devices.extend(there.into_iter().map(|device| {
                let known = TableKnowledge::new(&tables, &*backend, &device);
                (device, known)
            })),
            Err(why) => absent.push((backend.name(), why.to_string())),
        }
    }
    let used = |isa: &Isa| options.isa.0 == Some(*isa);
    if args.json {
        let devices: Vec<_> = devices
            .iter()
            .map(|(device, known)| {
                let tables: Vec<_> = known
                    .in_use()
                    .into_iter()
                    .map(|InUse { table, rows, sets, ops }| {
                        json!({ "table": table, "rows": rows, "sets": sets, "ops": ops })
                    })
                    .collect();
                json!({
                    "backend": device.backend, "index": device.index, "name": device.name, "detail": device.detail,
                    "cores": device.cores, "memory": device.memory, "queue": device.queue, "automatic": device.automatic,
                    "tuning": { "tables": tables, "left_out": known.notices },
                })
            })
            .collect();
        let isas: Vec<_> =
            Isa::ALL.iter().map(|isa| json!({ "name": isa.name(), "available": isa.detect() })).collect();
        let absent: Vec<_> = absent.iter().map(|(backend, why)| json!({ "backend": backend, "reason": why })).collect();
        printer.line(json!({
            "devices": devices, "absent": absent, "isas": isas, "threads": engine.threads(),
        }))?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new("lllrr", ["device", "name", "by", "of", "memory"]);
    let mut tuning = Table::new("ll", ["device", "what the tuner knows"]);
    for (device, known) in devices {
        let (units, memory) = sizes(&device);
        for (i, line) in tuning_lines(&device, &known).into_iter().enumerate() {
            tuning.row([if i == 0 { device.id() } else { String::new() }, line]);
        }
        table.row([device.id(), device.name, device.detail, units, memory]);
    }
    printer.line(table)?;
    for (backend, why) in absent {
        printer.line(format_args!("{backend} has no devices here: {why}"))?;
    }
    printer.line(format_args!("\n{tuning}"))?;
    let mut table = Table::new("ll", ["isa", "this CPU"]);
    for isa in Isa::ALL {
        let state = match isa.detect() {
            true if used(isa) => "chosen",
            true => "has it",
            false => "lacks it",
        };
        table.row([isa.name().into(), state.into()]);
    }
    printer.line(format_args!("\n{table}"))?;
    Ok(Exit::Good)
}

/// The lines on a device's tables: one for each that is in use, and for each that was left out, with the reason.
fn tuning_lines(device: &Device, known: &TableKnowledge) -> Vec<String> {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let line = |InUse { table, rows, sets, ops }: InUse| {
        let (rows, ops) = (count(rows, "row"), ops.join(", "));
        let sets = if let [set] = &sets[..] { set.clone() } else { count(sets.len(), "set") };
        format!("{rows} of {sets}, {ops}: {table}")
    };
    let mut lines: Vec<_> = known.in_use().into_iter().map(line).chain(known.notices.iter().cloned()).collect();
    if lines.is_empty() {
        lines.push(format!("nothing, defaults hold; `hypergrove tune --device {}` measures", device.id()));
    }
    lines
}

/// Cores and memory.
fn sizes(device: &Device) -> (String, String) {
    match device.memory {
        0 => (format!("{} cores", device.cores), "the host's".into()),
        bytes => {
            let gibibytes = significant(bytes as f64 / f64::from(1 << 30));
            let units = if device.automatic { "compute_units" } else { "cores" };
            (format!("{} {units}", device.cores), format!("{gibibytes} GiB"))
        }
    }
}
