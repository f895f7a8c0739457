#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod journal;
pub mod model;
mod outcome;
pub mod search;
pub mod trial;
pub mod workload;

pub use outcome::{Outcome, find};
