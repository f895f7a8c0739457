#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "measure")]
pub mod args;
#[cfg(feature = "measure")]
pub mod bench;
#[cfg(feature = "measure")]
pub mod failure;
#[cfg(feature = "measure")]
mod lines;
#[cfg(feature = "measure")]
mod loader;
#[cfg(feature = "measure")]
pub mod machine;
#[cfg(feature = "measure")]
pub mod printer;
pub mod record;
#[cfg(feature = "measure")]
pub mod report;
#[cfg(feature = "measure")]
mod sha256;
#[cfg(feature = "measure")]
pub mod stopwatch;
#[cfg(feature = "measure")]
mod study;
#[cfg(feature = "measure")]
mod trace;
#[cfg(feature = "measure")]
pub mod tune;
#[cfg(feature = "measure")]
pub mod version;
#[cfg(feature = "measure")]
pub mod zkdilithium;
