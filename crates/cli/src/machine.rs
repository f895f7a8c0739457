//! The machine: what computes, and how fast it can hash at all.

use crate::args::{BackendName, IsaName, MachineOptions};
use crate::failure::Failure;
use crate::printer::Printer;
use hypergrove::{Backend, Device, Engine, Reference, Work};
use hypergrove_cpu::{Cpu, Isa, Rates};
use std::sync::Arc;
use std::time::Duration;

/// How long the hash rates are measured, for each instruction set.
const RATES_TIME: Duration = Duration::from_millis(60);

/// The engine that was asked for.
pub(crate) fn engine(options: &MachineOptions, printer: &Printer) -> Result<Engine, Failure> {
    let mut builder = Engine::builder();
    if let Some(backend) = backend(options)? {
        builder = builder.backend(backend);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    if let Some(memory) = options.memory {
        builder = builder.memory_budget(memory);
    }
    let engine = builder.build()?;
    if printer.verbose {
        printer.detail(describe(&engine));
    }
    Ok(engine)
}

/// Device and threads, in a line.
pub(crate) fn describe(engine: &Engine) -> String {
    let device = engine.device();
    let (backend, index, threads) = (device.backend, device.index, engine.threads());
    format!("{backend}:{index} {}, {}, {threads} threads", device_name(device), device.detail)
}

/// What the maker calls the device; of a host CPU, the operating system knows.
pub(crate) fn device_name(device: &Device) -> String {
    let model = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    match device.backend {
        "cpu" => model().unwrap_or_else(|| device.name.clone()),
        _ => device.name.clone(),
    }
}

fn backend(options: &MachineOptions) -> Result<Option<Arc<dyn Backend>>, Failure> {
    Ok(match (options.backend, options.isa) {
        (BackendName::Reference, IsaName(None)) => Some(Arc::new(Reference)),
        (BackendName::Reference, _) => {
            return Err(Failure::new("--isa chooses the CPU's instruction set, --backend reference has none")
                .hint("leave one of the two out"));
        }
        (_, IsaName(Some(isa))) => {
            let lacking = || Failure::new(format!("this CPU lacks {}", isa.name()));
            Some(Arc::new(Cpu::with(isa).ok_or_else(lacking)?))
        }
        (BackendName::Cpu, IsaName(None)) => Some(Arc::new(Cpu::new())),
        (BackendName::Auto, IsaName(None)) => None,
    })
}

/// Compressions a second of one core, measured now: with the instruction set that was asked for, or with the best for
/// each hash.
pub(crate) fn rates(options: &MachineOptions) -> Rates {
    let sets = match options.isa {
        IsaName(Some(isa)) => vec![isa],
        IsaName(None) => match Isa::available() {
            only if only.len() == 1 => only,
            // What is there for any CPU is not the best of one that has more.
            several => several.into_iter().filter(|isa| *isa != Isa::Portable).collect(),
        },
    };
    let measured = sets.into_iter().filter_map(|isa| hypergrove_cpu::rates(isa, RATES_TIME));
    measured.fold(Rates { sha256: 0.0, sha512: 0.0, keccak: 0.0 }, |a, b| best(&a, &b))
}

/// The better of two measurements, for each hash: whatever else runs can only slow one down.
pub(crate) fn best(a: &Rates, b: &Rates) -> Rates {
    Rates { sha256: a.sha256.max(b.sha256), sha512: a.sha512.max(b.sha512), keccak: a.keccak.max(b.keccak) }
}

/// Seconds that this work takes at these rates on one core, nothing else being done.
pub(crate) fn ideal_seconds(work: &Work, rates: &Rates) -> f64 {
    work.sha256 / rates.sha256 + work.sha512 / rates.sha512 + work.keccak / rates.keccak
}
