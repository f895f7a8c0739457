//! `hypergrove acvp`: answers NIST's ACVP tests of SLH-DSA, revision FIPS205.

use crate::args::{Acvp, MachineOptions};
use crate::files::{Access, Replace, Source, Sources, Target};
use hypergrove_kat::acvp::{answer, parse};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;

pub(crate) fn run(args: &Acvp, read: &Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let (source, target) = (Source::from(args.file.as_path()), Target::from(args.output.as_path()));
    let replace = Replace { force: args.overwrite.force, read };
    target.check(Access::Public, false, replace)?;
    let bytes = source.read()?;
    let (version, prompt) = parse(&source, &bytes)?;
    let engine = || machine::engine_with(machine, printer, |builder| builder.redundant(args.redundancy.redundant));
    let results = answer(prompt, engine, printer).map_err(|failure| failure.of(&source))?;
    let written = match version {
        Some(version) => serde_json::to_vec_pretty(&(version, results)),
        None => serde_json::to_vec_pretty(&results),
    };
    let mut bytes = written.map_err(|error| Failure::new(error.to_string()))?;
    bytes.push(b'\n');
    target.write(&bytes, Access::Public, replace, printer)?;
    Ok(Exit::Good)
}
