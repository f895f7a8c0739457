//! The example programs of the library run.

use crate::process::{self, Outcome, Step};
use std::fs;
use std::process::Command;

const FOLDER: &str = "crates/hypergrove/examples";

/// Builds the examples as the step `test` does, so that nothing is compiled twice, and runs each without arguments.
pub(crate) fn check() -> Step {
    process::run(process::cargo(&["build", "--release", "--workspace", "--exclude", "xtask", "--examples"]))?;
    let list = fs::read_dir(FOLDER).map_err(|error| format!("cannot read {FOLDER}: {error}"))?;
    let sources = list.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let mut names: Vec<_> = sources.filter_map(|path| Some(path.file_stem()?.to_os_string())).collect();
    names.sort();
    let folder = process::target().join("release/examples");
    for name in &names {
        println!("{}", name.display());
        process::run(Command::new(folder.join(name)))?;
    }
    Ok(Outcome::Passed(format!("{} programs", names.len())))
}
