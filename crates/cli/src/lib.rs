#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acvp;
mod args;
mod devices;
mod diagnose;
mod explain;
mod files;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod hexadecimal;
mod inspect;
mod json;
mod kat;
mod keygen;
mod keys;
#[cfg(feature = "draft-sp800-230")]
mod ledger;
mod message;
mod passphrase;
mod pem;
mod pubkey;
mod quickstart;
mod report;
mod shell;
mod sign;
mod staged;
mod table;
mod tagged;
mod trees;
mod verdicts;
mod verify;
mod x509;
mod zkdilithium;

use args::{Cli, Command};
use clap::Parser;
use hypergrove::backend::wiped;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Printer, Shown};
use hypergrove_lab::{bench, tune};
use std::process::ExitCode;

/// Runs the tool by this process's arguments.
pub fn main() -> ExitCode {
    // Past a limit on files' sizes, writing shall fail: by itself, the signal ends the process and may dump its memory.
    #[cfg(unix)]
    {
        static PAST_LIMIT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, &PAST_LIMIT);
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        // What the error quotes may be a file's name.
        let shown = std::env::args_os().map(|argument| Shown(argument.as_ref()).to_string());
        match Cli::try_parse_from(shown) {
            Err(shown) => shown.exit(),
            Ok(_) => error.exit(),
        }
    });
    let printer = Printer::new(cli.global.quiet, cli.global.verbose);
    // What the library does not know of: keys on their way from files and to them.
    wiped(|| run(&cli, &printer))
        .unwrap_or_else(|failure| {
            if failure.silent {
                return Exit::Good;
            }
            printer.failure(&failure);
            Exit::Error
        })
        .into()
}

fn run(cli: &Cli, printer: &Printer) -> Result<Exit, Failure> {
    let machine = &cli.global.machine;
    match &cli.command {
        Command::Keygen(args) => keygen::run(args, machine, printer),
        Command::Pubkey(args) => pubkey::run(args, machine, printer),
        Command::Sign(args) => sign::run(args, machine, printer),
        Command::Verify(args) => verify::run(args, machine, printer),
        Command::Inspect(args) => inspect::run(args, printer),
        Command::Devices(args) => devices::run(args, machine, printer),
        Command::Explain(args) => explain::run(args, machine, printer),
        Command::Bench(args) => bench::run(args, machine, printer),
        Command::Hash(args) => hash::run(args, machine, printer),
        Command::Report(args) => report::run(args, printer),
        Command::Tune(args) => tune::run(args, machine, printer, &report::written),
        Command::Acvp(args) => acvp::run(args, machine, printer),
        Command::Kat(args) => kat::run(args, machine, printer),
        Command::Completions(args) => shell::completions(args, printer),
        #[cfg(feature = "draft-sp800-230")]
        Command::Ledger(args) => ledger::run(args, printer),
        Command::Man(args) => shell::man(args, printer),
        Command::Quickstart(args) => quickstart::run(args, machine, printer),
    }
}
