//! `hypergrove devices`.

use crate::args::{Devices, MachineOptions};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::printer::{Printer, Table, significant};
use hypergrove::Device;
use hypergrove_cpu::Isa;
use serde_json::json;

pub(crate) fn run(args: &Devices, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let engine = machine::engine(options, printer)?;
    let (mut devices, mut absent) = (Vec::new(), Vec::new());
    for backend in machine::backends() {
        match backend.devices() {
            Ok(there) if there.is_empty() => {
                absent.push((backend.name(), backend.absent().unwrap_or_else(|| "no reason is known".into())));
            }
            Ok(there) => devices.extend(there),
            Err(why) => absent.push((backend.name(), why.to_string())),
        }
    }
    let used = |isa: &Isa| options.isa.0 == Some(*isa);
    if args.json {
        let devices: Vec<_> = devices
            .iter()
            .map(|device| {
                json!({
                    "backend": device.backend, "index": device.index, "name": device.name, "detail": device.detail,
                    "cores": device.cores, "memory": device.memory, "queue": device.queue, "automatic": device.automatic,
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
    for device in devices {
        let (units, memory) = sizes(&device);
        table.row([device.id(), device.name, device.detail, units, memory]);
    }
    printer.line(table)?;
    for (backend, why) in absent {
        printer.line(format_args!("{backend} has no devices here: {why}"))?;
    }
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

/// Cores and memory.
fn sizes(device: &Device) -> (String, String) {
    match device.memory {
        0 => (format!("{} cores", device.cores), "the host's".into()),
        bytes => {
            let gibibytes = significant(bytes as f64 / f64::from(1 << 30));
            let units = if device.automatic { "multiprocessors" } else { "cores" };
            (format!("{} {units}", device.cores), format!("{gibibytes} GiB"))
        }
    }
}
