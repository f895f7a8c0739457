//! The example programs of the library run.

use crate::disk;
use crate::process;
use crate::step::Step;
use std::process::Command;

const FOLDER: &str = "crates/hypergrove/examples";

/// Builds the examples as the step `test` does, so that nothing is compiled twice, and runs each without arguments.
pub(crate) fn check() -> Step {
    process::run(process::cargo(&["build", "--release", "--workspace", "--exclude", "xtask", "--examples"]))?;
    let sources = disk::entries(FOLDER)?.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let names: Vec<_> = sources.filter_map(|path| Some(path.file_stem()?.to_os_string())).collect();
    let folder = process::target().join("release/examples");
    for name in &names {
        println!("{}", name.display());
        process::run(Command::new(folder.join(name)))?;
    }
    Ok(format!("{} programs", names.len()))
}
