//! A program of somebody else's that uses the library: it inherits no profile of this workspace.

use crate::disk;
use crate::process;
use crate::step::Step;
use std::path::Path;

pub(crate) const MANIFEST: &str = "xtask/dependent/Cargo.toml";

/// Builds the program in Cargo's dev profile, with the versions of Cargo.lock, and runs it.
pub(crate) fn check() -> Step {
    let lock = Path::new(MANIFEST).with_file_name("Cargo.lock");
    disk::copy("Cargo.lock", &lock)?;
    let mut command = process::cargo(&["run", "--manifest-path", MANIFEST]);
    // Frames are as large without debug information, and the build is quicker.
    command.env("CARGO_TARGET_DIR", process::target().join("dependent")).env("CARGO_PROFILE_DEV_DEBUG", "0");
    process::run(command)?;
    Ok("without optimisation, from threads with 2 MiB of stack".into())
}
