//! Developer commands. `cargo xtask ci` is all of CI.
#![forbid(unsafe_code)]

mod acvp;
mod api;
mod benchmarks;
mod capi;
mod changes;
mod ci;
mod coverage;
mod deb;
mod dependent;
mod disk;
mod dist;
mod examples;
mod features;
mod foreign;
mod fuzz;
mod install;
mod kernels;
mod links;
mod markdown;
mod negative;
mod openssl;
mod outputs;
mod process;
mod prose;
mod python;
mod sass;
mod secrets;
mod server;
mod shaders;
mod site;
mod sources;
mod step;
mod supply_chain;
mod tests;
mod threads;
mod toolchain;
mod wheels;

use clap::Parser;
use std::process::ExitCode;

/// Developer commands of hypergrove
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = ci::list())]
enum Command {
    /// Run every step of CI, or those named; `full`: at full length, and those that take many minutes
    Ci(ci::Request),
    /// Run all tests (ARGs go to `cargo test`), then say what was skipped and why
    Test {
        #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Run `cargo fuzz ARG…` as CI calls it: `cargo xtask fuzz run pkcs8`
    Fuzz {
        #[arg(value_name = "ARG", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Show which lines of the decoders the fuzz targets' corpus reaches
    Coverage,
    /// Compile the kernels to SPIR-V, by glslc
    Shaders,
    /// Make vectors/slh-dsa/acvp of NIST's internalProjection.json files of keyGen, sigGen and sigVer, and compare
    Acvp {
        #[arg(required = true)]
        files: Vec<String>,
    },
    /// Make vectors/slh-dsa/negative
    Negative,
    /// Write the listings of the library's public items, in xtask/api
    Api,
    /// Render BENCHMARKS.md and the tables of README.md and docs from bench/runs
    Benchmarks,
    /// Make the site of the documents in the target folder, by mdBook
    Site,
    /// Build the tool and the C library; put them, completions, manual pages, the header and pkg-config's files below a folder
    Install(install::Request),
    /// Make a release in dist: archives, Debian packages and wheels for Linux
    Dist(dist::Request),
    /// Show the instructions of the hash kernels' innermost loops by pipe, as lines of JSON; needs no GPU
    Sass,
    /// Write the tool's bill of materials (CycloneDX) to the target folder
    Sbom,
}

fn main() -> ExitCode {
    if let Some(is_done) = api::as_rustdoc() {
        return ExitCode::from(u8::from(!is_done));
    }
    let command = Command::parse();
    if let Err(error) = std::env::set_current_dir(disk::workspace()) {
        eprintln!("error: {}: {error}", disk::workspace().display());
        return ExitCode::from(2);
    }
    let good = match command {
        Command::Ci(request) => ci::run(&request),
        Command::Test { words } => tests::run(&words),
        Command::Acvp { files } => acvp::write(&files),
        Command::Negative => negative::write().map(|()| true),
        Command::Fuzz { words } => fuzz::by_hand(&words),
        Command::Coverage => coverage::run(),
        Command::Shaders => shaders::write().map(|()| true),
        Command::Site => site::run(),
        Command::Install(request) => install::run(&request).map(|()| true),
        Command::Dist(request) => dist::run(request),
        Command::Sbom => supply_chain::write_sbom().map(|()| true),
        Command::Api => api::write().map(|()| true),
        Command::Benchmarks => benchmarks::write().map(|()| true),
        Command::Sass => sass::run().map(|()| true),
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn words_for_other_programs_stay_as_they_are() {
        Command::command().debug_assert();
        let typed = ["run", "pkcs8", "--", "-runs=1000000", "--help"];
        let command = Command::try_parse_from(["cargo xtask", "fuzz"].into_iter().chain(typed));
        assert!(matches!(command, Ok(Command::Fuzz { words }) if words == typed));
        let command = Command::try_parse_from(["cargo xtask", "test", "fork", "--", "--nocapture"]);
        assert!(matches!(command, Ok(Command::Test { words }) if words == ["fork", "--", "--nocapture"]));
    }
}
