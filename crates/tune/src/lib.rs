//! Policy as knowledge: how time depends on parallelism, modelled; the best policy, searched; and what was found, kept.
#![forbid(unsafe_code)]

pub mod journal;
pub mod model;
mod outcome;
pub mod search;
pub mod space;
pub mod table;
pub mod trial;
pub mod workload;

pub use outcome::{Outcome, find};
