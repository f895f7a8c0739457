#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod benchmarks;
mod figures;
pub mod numbers;
mod peak;
#[cfg_attr(not(feature = "report"), expect(dead_code, reason = "documents have bars alone"))]
mod plot;
pub mod record;
#[cfg(feature = "report")]
pub mod report;
pub mod runs;
mod tables;
