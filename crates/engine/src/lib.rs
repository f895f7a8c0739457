//! The seam between plans and the things that execute them.
#![forbid(unsafe_code)]

pub mod backend;
mod error;

pub use backend::{Axis, Backend, Batch, Device, Key, Policy, Program, Timing};
pub use error::Error;
