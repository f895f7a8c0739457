//! Developer commands. `cargo xtask ci` is all of CI.
#![forbid(unsafe_code)]

mod acvp;
mod api;
mod benchmarks;
mod capi;
mod ci;
mod coverage;
mod deb;
mod dependent;
mod disk;
mod dist;
mod examples;
mod features;
mod figures;
mod foreign;
mod fuzz;
mod install;
mod kernels;
mod licences;
mod links;
mod markdown;
mod negative;
mod openssl;
mod outputs;
mod picture;
mod process;
mod prose;
mod python;
mod runs;
mod sass;
mod secrets;
mod server;
mod shaders;
mod site;
mod sources;
mod step;
mod supply_chain;
mod tables;
mod tests;
mod threads;
mod toolchain;
mod wheels;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask ci [STEP…]     every step of CI, or those named; --require STEP,… (or all) makes a skip of these a failure
cargo xtask ci full        every step at full length, and those that take many minutes (`help` lists them)
cargo xtask test [ARG…]    all tests (ARGs go to `cargo test`), then what was skipped and why
cargo xtask fuzz ARG…      `cargo fuzz ARG…` as CI calls it: `cargo xtask fuzz run pkcs8`
cargo xtask coverage       which lines of the decoders the fuzz targets' corpus reaches
cargo xtask shaders        compiles the kernels to SPIR-V, by glslc
cargo xtask acvp FILE…     makes vectors/slh-dsa/acvp of NIST's internalProjection.json files, and compares
cargo xtask negative       makes vectors/slh-dsa/negative
cargo xtask api            writes the listings of the library's public items, in xtask/api
cargo xtask benchmarks     renders BENCHMARKS.md and the tables of README.md and docs from bench/runs
cargo xtask site           makes the site of the documents in the target folder, by mdBook
cargo xtask install --prefix P   builds the tool and the C library; puts them, completions, manual pages, the header and
                           pkg-config's files below the folder P
cargo xtask install --openssl --prefix P   builds the OpenSSL provider; puts it below the folder P
cargo xtask dist --key FILE   a release in dist, signed with this key: archives, Debian packages and wheels for Linux; --target
                           x86_64, aarch64 or all
cargo xtask dist --candidate   the same for trying it, with the version marked and a throwaway key
cargo xtask sass           the instructions of the hash kernels' innermost loops by pipe, as lines of JSON; needs no GPU
cargo xtask sbom           writes the tool's bill of materials (CycloneDX) to the target folder";

fn main() -> ExitCode {
    if let Some(is_done) = api::as_rustdoc() {
        return ExitCode::from(u8::from(!is_done));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = arguments.split_first().map_or(("", &[][..]), |(command, rest)| (command.as_str(), rest));
    if let Err(error) = std::env::set_current_dir(disk::workspace()) {
        eprintln!("error: {}: {error}", disk::workspace().display());
        return ExitCode::from(2);
    }
    let good = match command {
        "ci" => ci::run(rest),
        "test" => tests::run(rest),
        "acvp" => acvp::write(rest),
        "negative" => negative::write().map(|()| true),
        "fuzz" => fuzz::by_hand(rest),
        "coverage" => coverage::run(),
        "shaders" => shaders::write().map(|()| true),
        "site" => site::run(),
        "install" => install::run(rest),
        "dist" => dist::run(rest),
        "sbom" => supply_chain::write_sbom().map(|()| true),
        "api" => api::write().map(|()| true),
        "benchmarks" => benchmarks::write().map(|()| true),
        "sass" => sass::run().map(|()| true),
        "help" | "--help" | "-h" => {
            println!("{USAGE}\n\nSteps of ci:");
            ci::STEPS.iter().for_each(|step| println!("  {:<12} {}", step.name, step.about));
            println!("\nOf a full run only:");
            ci::LONG_STEPS.iter().for_each(|step| println!("  {:<12} {}", step.name, step.about));
            Ok(true)
        }
        other => Err(format!("unknown command '{other}'\n{USAGE}")),
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
