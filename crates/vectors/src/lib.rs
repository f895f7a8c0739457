#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod acvp;
pub mod forms;
pub mod hexadecimal;
mod mode;
pub mod negative;
pub mod public;
pub mod zkdilithium;

use std::path::{Path, PathBuf};

/// The path of a file in the workspace's folder `vectors`.
fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file)
}

/// The bytes of a file in the workspace's folder `vectors`.
fn read(file: &str) -> Vec<u8> {
    let path = path(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
