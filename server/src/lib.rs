#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod access;
pub mod api;
pub mod audit;
mod auth;
pub mod config;
pub mod error;
mod fields;
pub mod files;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod fuzz;
pub mod keys;
pub mod limits;
pub mod log;
mod paths;
pub mod places;
pub mod refused;
pub mod reserve;
pub mod seal;
pub mod serve;
pub mod state;
pub mod storage;
pub mod system;
pub mod telemetry;
pub mod threads;
pub mod transit;
pub mod unsealing;
