#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod failure;
mod lines;
mod loader;
pub mod machine;
pub mod printer;
mod sha256;
pub mod stopwatch;
mod study;
mod trace;
pub mod tune;
pub mod version;
pub mod zkdilithium;
