//! `hypergrove kat`: computes known answers of zkDilithium.

use crate::args::{Kat, MachineOptions};
use crate::files::Source;
use hypergrove::zkdilithium::params::NAME;
use hypergrove_kat::zkdilithium::{Answers, answers, parse};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::Printer;

/// Cases computed together: how often the progress bar moves.
const BATCH: usize = 64;

pub(crate) fn run(args: &Kat, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let source = Source::from(args.file.as_path());
    let questions = parse(&source, &source.read()?)?;
    let engine = machine::engine(machine, printer)?;
    let bar = printer.progress(questions.cases.len(), "computing");
    let mut cases = Vec::with_capacity(questions.cases.len());
    for batch in questions.cases.chunks(BATCH) {
        cases.extend(answers(&engine, batch).map_err(|failure| failure.of(&source))?);
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    let answers = Answers { scheme: NAME, cases };
    printer.line(serde_json::to_string_pretty(&answers).map_err(|error| Failure::new(error.to_string()))?)?;
    Ok(Exit::Good)
}
