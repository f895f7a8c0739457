//! What zkDilithium has of its own at the command line: its engine, and options that it does not know.

use crate::args::MachineOptions;
use crate::failure::Failure;
use crate::machine::{self, Warns, Watched};
use crate::printer::Printer;
use hypergrove::zkdilithium::params::NAME;
use hypergrove::zkdilithium::{Engine, EngineBuilder};

/// Refuses options that are another scheme's.
pub fn refuse(options: &[(bool, &str)]) -> Result<(), Failure> {
    match options.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::new(format!("{NAME} knows no {option}")).hint("leave it out")),
    }
}

impl Warns for Engine {
    fn warnings(&self) -> Vec<String> {
        self.faults().into_iter().map(machine::set_aside).chain(self.notices()).collect()
    }
}

/// The engine that was asked for.
pub fn engine<'p>(options: &MachineOptions, printer: &'p Printer) -> Result<Watched<'p, Engine>, Failure> {
    engine_with(options, printer, |builder| builder)
}

/// The same, with more asked for.
pub fn engine_with<'p>(
    options: &MachineOptions,
    printer: &'p Printer,
    more: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<Watched<'p, Engine>, Failure> {
    let mut builder = more(Engine::builder()).devices(machine::devices(options)?.unwrap_or_default());
    builder = builder.device_timeout(options.device_timeout);
    if let Some(isa) = options.isa.0 {
        builder = builder.isa(isa);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    if let Some(memory) = options.memory {
        builder = builder.memory_budget(memory);
    }
    Ok(Watched::new(builder.build()?, printer))
}
