//! Which files a command reads: all that its command line names, but for those that it writes; and arguments that name none.

use crate::files::{Source, Sources};
#[cfg(unix)]
use crate::passphrase::descriptor;
use clap::{Arg, ArgMatches, Command};
use hypergrove::quote::is_key_for_new_path;
use hypergrove_lab::machine;
use hypergrove_lab::printer::PathDisplay;
use std::path::PathBuf;

/// The arguments that name what is written, with their commands. Every other path is read: a new option is safe before it is listed here.
const WRITTEN: [(&str, &str); 16] = [
    ("keygen", "name"),
    ("keygen", "output"),
    ("keygen", "pubout"),
    ("keygen", "table"),
    ("pubkey", "output"),
    ("sign", "output"),
    ("sign", "out_dir"),
    ("verify", "output"),
    ("acvp", "output"),
    ("report", "output"),
    ("report", "svg"),
    ("tune", "output"),
    ("quickstart", "keep"),
    ("man", "directory"),
    ("init", "ledger"),
    ("lease", "output"),
];

/// The error of a private key in place of a path, before a file of that name is made and named. Of several paths, each has a verdict.
pub(crate) fn key_in_place_of_path(command: &Command, matches: &ArgMatches) -> Option<String> {
    let found = command.get_arguments().find_map(|arg| {
        let mut paths = paths(arg, matches);
        paths.next().filter(|path| paths.next().is_none() && is_key_for_new_path(path))
    });
    match (found, matches.subcommand()) {
        (Some(path), _) => {
            Some(format!("{}: this looks like a private key, and no file has this name", PathDisplay(path)))
        }
        (None, Some((name, of_it))) => key_in_place_of_path(command.find_subcommand(name)?, of_it),
        (None, None) => None,
    }
}

/// The paths that an argument names. Arguments that are no paths name no files.
fn paths<'m>(arg: &Arg, matches: &'m ArgMatches) -> impl Iterator<Item = &'m PathBuf> {
    matches.try_get_many::<PathBuf>(arg.get_id().as_str()).ok().flatten().into_iter().flatten()
}

/// The files that a command that was typed reads; none of a command that writes none.
pub(crate) fn named(mut command: &Command, mut matches: &ArgMatches) -> Sources {
    let mut sources = Sources::new();
    while let Some((name, of_it)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, of_it);
        if !WRITTEN.iter().any(|(of, _)| *of == name) {
            continue;
        }
        for arg in command.get_arguments().filter(|arg| !WRITTEN.contains(&(name, arg.get_id().as_str()))) {
            add(&mut sources, arg, matches);
        }
        for table in machine::table_files() {
            sources.add(format_args!("the tuning table {}", PathDisplay(&table)), &Source::File(table.clone()));
        }
    }
    sources
}

/// Adds what an argument names.
fn add(sources: &mut Sources, arg: &Arg, matches: &ArgMatches) {
    for path in paths(arg, matches) {
        let source = Source::from(path.as_path());
        match arg.get_long() {
            Some(option) => sources.add(format_args!("--{option} {source}"), &source),
            None => sources.add(&source, &source),
        }
    }
    #[cfg(unix)]
    if let ("passphrase_fd", Ok(Some(number))) = (arg.get_id().as_str(), matches.try_get_one::<u16>("passphrase_fd")) {
        sources.add(format_args!("--passphrase-fd {number}"), &Source::from(descriptor(*number).as_path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use std::any::TypeId;

    /// The paths that the commands take, all commands and those of `ledger`.
    fn paths(command: &Command) -> Vec<(String, String)> {
        let is_path = |arg: &&Arg| arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let named = |arg: &Arg| (command.get_name().to_owned(), arg.get_id().to_string());
        let own = command.get_arguments().filter(is_path).map(named);
        own.chain(command.get_subcommands().flat_map(paths)).collect()
    }

    /// Each file is named by a path, and not by a text: only paths are found.
    #[test]
    fn what_is_written_is_a_path_of_its_command() {
        let paths = paths(&Cli::definition());
        let is_known = |(command, id): &(&str, &str)| paths.contains(&(command.to_string(), id.to_string()));
        for written in WRITTEN {
            assert!(is_known(&written), "{written:?}");
        }
        for read in
            [("keygen", "passphrase_file"), ("sign", "key"), ("sign", "table"), ("sign", "files"), ("report", "runs")]
        {
            assert!(is_known(&read) && !WRITTEN.contains(&read), "{read:?}");
        }
    }
}
