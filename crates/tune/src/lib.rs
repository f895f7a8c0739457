#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "search")]
pub mod journal;
#[cfg(feature = "search")]
pub mod model;
#[cfg(feature = "search")]
mod outcome;
#[cfg(feature = "search")]
pub mod search;
pub mod space;
pub mod table;
#[cfg(feature = "search")]
pub mod trial;
#[cfg(feature = "search")]
pub mod workload;

#[cfg(feature = "search")]
pub use outcome::{Outcome, find};
