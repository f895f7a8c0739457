//! `hypergrove report`, and the files that `bench` and `tune` write.

use crate::args::Report;
use crate::files::{Access, FilesToSync, Replace, Source, Sources, Target};
use hypergrove_lab::args::{Bench, MachineOptions};
use hypergrove_lab::bench;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use hypergrove_lab::report::Report as Drawn;
use hypergrove_lab::report::read::{self, RecordedRun};
use std::fs;
use std::path::Path;

pub(crate) fn run(args: &Report, mut read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    let target = Target::from(args.output.as_path());
    for run in &args.runs {
        for file in read::files(run)?.into_iter().chain([read::setup(run)]) {
            read.add(PathDisplay(&file), &Source::File(file.clone()));
        }
    }
    let replace = Replace { force: args.overwrite.force, read: &read };
    target.check(Access::Public, false, replace)?;
    let runs = args.runs.iter().map(|run| RecordedRun::read(run)).collect::<Result<Vec<_>, _>>()?;
    for bad in runs.iter().flat_map(|run| &run.bad) {
        printer.warning(format_args!("left out: {bad}"));
    }
    let drawn = Drawn::new(&runs);
    // Everything lies ready before anything shows.
    let page = drawn.page();
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).map_err(|error| Failure::io("make", PathDisplay(folder), &error))?;
        let file = |(name, text)| (Target::File(folder.join(format!("{name}.svg"))), text);
        let files: Vec<(Target, String)> = drawn.pictures().map(file).collect();
        for (target, _) in &files {
            target.check(Access::Public, false, replace)?;
        }
        let mut batch = FilesToSync::default();
        for (index, (target, text)) in files.iter().enumerate() {
            let prepared = target.prepare(text.as_bytes(), Access::Public, replace)?;
            batch.add(index, prepared, printer).into_iter().try_for_each(|(_, written)| written)?;
        }
        batch.flush(printer).into_iter().try_for_each(|(_, written)| written)?;
        batch.finish()?;
        printer.note(format_args!("{} figures in {}", grouped(files.len() as u64), PathDisplay(folder)));
    }
    target.write(page.as_bytes(), Access::Public, replace, printer)?;
    Ok(Exit::Good)
}

/// Writes a table of the tuner, which has read what it replaces.
pub(crate) fn written(path: &Path, text: &str, printer: &Printer) -> Result<(), Failure> {
    Target::File(path.into()).write(text.as_bytes(), Access::Public, Replace::ANYTHING, printer)
}

/// `hypergrove bench`, which writes a trace whole or not at all.
pub(crate) fn bench(args: &Bench, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let target = Target::File(args.trace.clone().unwrap_or_default());
    let replace = Replace { force: args.force, ..Replace::NOTHING };
    bench::run(args, machine, printer, &|bytes| match bytes {
        Some(bytes) => target.write(bytes, Access::Public, replace, printer),
        None => target.check(Access::Public, false, replace),
    })
}
