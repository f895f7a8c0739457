//! `hypergrove report`.

mod charts;
pub(crate) mod page;
mod plot;
pub(crate) mod read;

use crate::args::Report;
use crate::failure::{Exit, Failure};
use crate::files::{Access, Batch, Shown, Source, Sources, Target};
use crate::printer::{Printer, grouped};
use read::Run;
use std::fs;

pub(crate) fn run(args: &Report, printer: &Printer) -> Result<Exit, Failure> {
    let target = Target::from(args.output.as_path());
    let force = args.overwrite.force;
    target.check(Access::Public, false, force)?;
    let runs = args.runs.iter().map(|run| read::files(run)).collect::<Result<Vec<_>, _>>()?;
    let sources: Vec<Source> = runs.into_iter().flatten().map(Source::File).collect();
    let read = Sources::new(&sources);
    target.spare(&read)?;
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
        for (target, _) in &files {
            target.check(Access::Public, false, force)?;
            target.spare(&read)?;
        }
        let mut batch = Batch::default();
        for (index, (target, text)) in files.iter().enumerate() {
            let prepared = target.prepare(text.as_bytes(), Access::Public, force)?;
            batch.add(index, prepared, printer).into_iter().try_for_each(|(_, written)| written)?;
        }
        batch.flush(printer).into_iter().try_for_each(|(_, written)| written)?;
        batch.finish()?;
        printer.note(format_args!("{} figures in {}", grouped(files.len() as u64), Shown(folder)));
    }
    target.write(page.as_bytes(), Access::Public, force, printer)?;
    Ok(Exit::Good)
}
