//! The tool `hypergrove`: all of it is in the library next to it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hypergrove_cli::main()
}
