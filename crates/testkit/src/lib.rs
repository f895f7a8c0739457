//! What proves every backend: the test vectors and the conformance suite.
#![forbid(unsafe_code)]

pub mod suite;
pub mod vectors;
pub mod zk_suite;
pub mod zkdilithium;
