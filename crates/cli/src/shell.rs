//! `hypergrove completions` and `hypergrove man`: what a shell and man(1) know of the tool.

use crate::args::{Cli, Completions, Man};
use crate::files::{Access, MAKE_IT, Replace, Target, is_directory};
use clap::CommandFactory;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};

const TOOL: &str = "hypergrove";

pub(crate) fn completions(args: &Completions, printer: &Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), TOOL, &mut script);
    printer.bytes(&script)?;
    Ok(Exit::Good)
}

pub(crate) fn man(args: &Man, printer: &Printer) -> Result<Exit, Failure> {
    is_directory(&args.directory, "write to", MAKE_IT)?;
    let mut tool = Cli::command();
    // Gives commands their names within the tool: `hypergrove-sign`.
    tool.build();
    let commands = tool.get_subcommands().filter(|command| command.get_name() != "help");
    let mut pages = 0;
    for command in std::iter::once(&tool).chain(commands) {
        let (man, mut page) = (clap_mangen::Man::new(command.clone()), Vec::new());
        let path = args.directory.join(man.get_filename());
        man.render(&mut page).map_err(|error| Failure::io("draw", PathDisplay(&path), &error))?;
        Target::File(path).write(&page, Access::Public, Replace::ANYTHING, printer)?;
        pages += 1;
    }
    printer.note(format_args!("wrote {} manual pages to {}", grouped(pages), PathDisplay(&args.directory)));
    Ok(Exit::Good)
}
