//! No code: this package has the tests of `hypergrove` that are compiled without optimisation, see Cargo.toml.
#![forbid(unsafe_code)]
