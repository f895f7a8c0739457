//! `hypergrove report`, and the files that `bench` and `tune` write.

use crate::args::Report;
use crate::files::{Access, FilesToSync, Replace, Source, Sources, Target};
use hypergrove_lab::args::{Bench, MachineOptions};
use hypergrove_lab::bench;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use hypergrove_records::report::Report as Drawn;
use hypergrove_records::runs::Run;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &Report, mut read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    let target = Target::from(args.output.as_path());
    for run in &args.runs {
        for file in files(run)?.into_iter().chain([setup(run)]) {
            read.add(PathDisplay(&file), &Source::File(file.clone()));
        }
    }
    let replace = Replace { force: args.overwrite.force, read: &read };
    target.check(Access::Public, false, replace)?;
    let runs = args.runs.iter().map(|run| recorded(run)).collect::<Result<Vec<_>, _>>()?;
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

fn failed(path: &Path, why: &io::Error) -> Failure {
    Failure::io("read", PathDisplay(path), why)
}

/// The file, or all `.jsonl` files of the folder in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |why| failed(path, &why);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files: Vec<PathBuf> = entries.map_err(failed)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    Ok(files)
}

/// The path of the file that describes the run in a folder. The file need not exist.
fn setup(path: &Path) -> PathBuf {
    path.join("setup.md")
}

/// Reads the files that [`files`] names.
fn recorded(path: &Path) -> Result<Run, Failure> {
    let whole = fs::canonicalize(path).map_err(|why| failed(path, &why))?;
    let name = whole.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut run = Run { name, setup: fs::read_to_string(setup(path)).unwrap_or_default(), ..Run::default() };
    for file in files(path)? {
        run.add(PathDisplay(&file), &fs::read(&file).map_err(|why| failed(&file, &why))?);
    }
    if run.records.is_empty() {
        let bad = run.bad.first().map_or(String::new(), |first| format!("; {first}"));
        return Err(Failure::new(format!("{} has no record of a measurement{bad}", PathDisplay(path)))
            .hint("`hypergrove bench --json` and `hypergrove bench --study NAME --json` write records"));
    }
    run.name_devices();
    Ok(run)
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
