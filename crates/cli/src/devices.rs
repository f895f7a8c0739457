//! `hypergrove devices`.

use crate::args::{Devices, MachineOptions};
use crate::failure::{Exit, Failure};
use crate::machine::{self, device_name};
use crate::printer::{Printer, Table};
use hypergrove_cpu::Isa;
use serde_json::json;

pub(crate) fn run(args: &Devices, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let engine = machine::engine(options, printer)?;
    let mut devices = Vec::new();
    for backend in hypergrove::backends() {
        devices.extend(backend.devices()?);
    }
    let used = |isa: &Isa| options.isa.0 == Some(*isa);
    if args.json {
        let devices: Vec<_> = devices
            .iter()
            .map(|device| {
                json!({
                    "backend": device.backend, "index": device.index, "name": device_name(device), "detail": device.detail,
                    "cores": device.cores, "memory": device.memory,
                })
            })
            .collect();
        let isas: Vec<_> =
            Isa::ALL.iter().map(|isa| json!({ "name": isa.name(), "available": isa.detect() })).collect();
        printer.line(json!({ "devices": devices, "isas": isas, "threads": engine.threads() }))?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new("lllr", ["backend", "device", "by", "cores"]);
    for device in devices {
        let backend = format!("{}:{}", device.backend, device.index);
        table.row([backend, device_name(&device), device.detail, device.cores.to_string()]);
    }
    printer.line(table)?;
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
