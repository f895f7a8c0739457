#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acvp;
mod args;
mod certificates;
mod der;
mod devices;
mod diagnose;
mod explain;
mod files;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod git;
mod hash;
mod inputs;
mod inspect;
mod json;
mod kat;
mod keygen;
mod keys;
mod layout;
mod ledger;
mod merkle;
mod message;
mod outputs;
mod passphrase;
mod passwd;
mod pubkey;
mod quickstart;
mod report;
mod schemes;
mod shell;
mod sign;
mod signatures;
mod staged;
mod table;
mod tagged;
mod trees;
mod verdicts;
mod verify;
mod x509;

use args::{Cli, Command};
use clap::FromArgMatches;
use clap::error::ErrorKind;
use files::Sources;
use hypergrove::backend::wiped;
use hypergrove::quote::{Quote, is_key_for_path};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::Printer;
use hypergrove_lab::tune;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the tool by this process's arguments.
pub fn main() -> ExitCode {
    // Past a limit on files' sizes, writing shall fail: by itself, the signal ends the process and may dump its memory.
    #[cfg(unix)]
    {
        static PAST_LIMIT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, &PAST_LIMIT);
    }
    if std::env::args_os().next().is_some_and(|name| git::is_name(&name)) {
        return git::main();
    }
    let (cli, read) = typed(std::env::args_os()).unwrap_or_else(|error| usage(unquoted(error)));
    let printer = Printer::new(cli.global.quiet, cli.global.verbose);
    // Wipes secrets that the library does not know of: keys on their way from files and to them.
    wiped(|| run(&cli, read, &printer))
        .unwrap_or_else(|failure| {
            if failure.silent {
                return Exit::Good;
            }
            printer.failure(&with_key_in_arguments(failure));
            Exit::Error
        })
        .into()
}

/// Reads what was typed, and finds the files that the command reads.
fn typed<T: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = T>) -> Result<(Cli, Sources), clap::Error> {
    let mut command = Cli::definition();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    if let Some(why) = inputs::key_in_place_of_path(&command, &matches) {
        return Err(command.error(ErrorKind::ValueValidation, why));
    }
    let read = inputs::named(&command, &matches);
    let cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, read))
}

/// Ends with the help that was asked for, or with an error like all others: a line, and the way out.
fn usage(error: clap::Error) -> ! {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        error.exit();
    }
    let failure = in_brief(&error.render().to_string(), command_of(std::env::args_os()));
    let failure =
        if std::env::args_os().any(|word| git::is_of_git(&word)) { failure.hint(git::WRONG_NAME) } else { failure };
    Printer::new(false, false).failure(&with_key_in_arguments(failure));
    std::process::exit(Exit::Error as i32)
}

/// The error without the words that were typed: one of them may be a private key.
fn unquoted(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind as Kind, ContextValue as Value};
    let texts = |error: &clap::Error, kind| match error.get(kind) {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let known = [Kind::ValidValue, Kind::ValidSubcommand, Kind::SuggestedArg, Kind::SuggestedSubcommand];
    let known: Vec<String> = known.into_iter().flat_map(|kind| texts(&error, kind)).collect();
    let mut unknown = vec![Kind::InvalidValue, Kind::InvalidSubcommand, Kind::TrailingArg];
    // Of other errors, this is the name of the argument whose value is wrong.
    unknown.extend((error.kind() == ErrorKind::UnknownArgument).then_some(Kind::InvalidArg));
    for kind in unknown {
        if let [text] = &texts(&error, kind)[..] {
            let shown = Quote::name(text, known.iter().map(|name| &**name)).bare();
            if shown != *text {
                // Tips repeat the word.
                error.remove(Kind::Suggested);
            }
            error.insert(kind, Value::String(shown));
        }
    }
    error
}

/// Adds to an error who else may have read a private key in the arguments, and where the key belongs.
fn with_key_in_arguments(failure: Failure) -> Failure {
    if !std::env::args_os().skip(1).any(is_key_for_path) {
        return failure;
    }
    let advice = "an argument looks like a private key, and other users of this machine may see arguments; put the key into a file that you \
                  alone may read, and name it with --key FILE; a key in the variable KEY is read by `printenv KEY | hypergrove … --key -`";
    let hint = failure.hint.as_ref().map_or_else(|| advice.into(), |hint| format!("{advice}; {hint}"));
    failure.hint(hint)
}

/// The command that was typed, if there is one of that name.
fn command_of(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let commands = Cli::definition();
    arguments.filter_map(|argument| argument.into_string().ok()).find(|word| commands.find_subcommand(word).is_some())
}

/// An error in brief: of clap's paragraphs the message and the tips, without the usage, and where to read more.
fn in_brief(text: &str, command: Option<String>) -> Failure {
    let line = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.trim_end().split("\n\n");
    let message = line(paragraphs.next().unwrap_or_default().trim_start_matches("error: "));
    let tips = paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let help = match command {
        Some(command) => format!("`hypergrove help {command}` explains it"),
        None => "`hypergrove help` lists the commands".into(),
    };
    Failure::new(message).hint(tips.map(String::from).chain([help]).collect::<Vec<_>>().join("; "))
}

fn run(cli: &Cli, read: Sources, printer: &Printer) -> Result<Exit, Failure> {
    let machine = &cli.global.machine;
    match &cli.command {
        Command::Keygen(args) => keygen::run(args, &read, machine, printer),
        Command::Pubkey(args) => pubkey::run(args, &read, machine, printer),
        Command::Passwd(args) => passwd::run(args, printer),
        Command::Sign(args) => sign::run(args, read, machine, printer),
        Command::Verify(args) => verify::run(args, read, machine, printer),
        Command::Inspect(args) => inspect::run(args, printer),
        Command::Devices(args) => devices::run(args, machine, printer),
        Command::Explain(args) => explain::run(args, machine, printer),
        Command::Bench(args) => report::bench(args, machine, printer),
        Command::Hash(args) => hash::run(args, machine, printer),
        Command::Report(args) => report::run(args, read, printer),
        Command::Tune(args) => tune::run(args, machine, printer, &report::written),
        Command::Acvp(args) => acvp::run(args, &read, machine, printer),
        Command::Kat(args) => kat::run(args, machine, printer),
        Command::Completions(args) => shell::completions(args, printer),
        Command::Ledger(args) => ledger::run(args, read, printer),
        Command::Man(args) => shell::man(args, printer),
        Command::Quickstart(args) => quickstart::run(args, machine, printer),
    }
}
