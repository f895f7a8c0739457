//! `hypergrove report`.

mod charts;
mod page;
mod plot;
mod read;

use crate::args::Report;
use crate::failure::{Exit, Failure};
use crate::files::{Access, Shown, Source, Target};
use crate::printer::{Printer, grouped};
use read::Run;
use std::fs;

pub(crate) fn run(args: &Report, printer: &Printer) -> Result<Exit, Failure> {
    let target = Target::from(args.output.as_path());
    target.check(false, args.overwrite.force)?;
    for run in &args.runs {
        target.spare(&Source::File(run.clone()))?;
    }
    let runs = args.runs.iter().map(|run| Run::read(run)).collect::<Result<Vec<_>, _>>()?;
    for bad in runs.iter().flat_map(|run| &run.bad) {
        printer.warning(format_args!("left out: {bad}"));
    }
    let parts = page::parts(&runs);
    // Everything lies ready before anything shows.
    let page = page::page(&runs, &parts);
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).map_err(|error| Failure::io("make", Shown(folder), &error))?;
        let mut files = Vec::new();
        for part in &parts {
            for figure in part.sections.iter().flat_map(|section| &section.groups).flat_map(|group| &group.figures) {
                let path = folder.join(format!("{}{}.svg", part.prefix, figure.name));
                files.push((Target::File(path), plot::file(&figure.picture)));
            }
        }
        let prepare = |(target, text): &'_ (Target, String)| -> Result<(), Failure> {
            target.write(text.as_bytes(), Access::Public, args.overwrite.force, printer)
        };
        for (target, _) in &files {
            target.check(false, args.overwrite.force)?;
        }
        files.iter().try_for_each(prepare)?;
        printer.note(format_args!("{} figures in {}", grouped(files.len() as u64), Shown(folder)));
    }
    target.write(page.as_bytes(), Access::Public, args.overwrite.force, printer)?;
    Ok(Exit::Good)
}
