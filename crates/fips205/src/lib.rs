//! SLH-DSA, the stateless hash-based signature standard (FIPS 205).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adrs;
pub mod geometry;
pub mod params;
pub mod plan;

pub use adrs::{Adrs, AdrsType};
pub use geometry::Position;
pub use params::*;
pub use plan::{Op, Plan, Work};
