//! Runs the tests of copies, which need no Python: the library itself cannot be tested without an interpreter.

#[path = "../src/foreign/racing.rs"]
#[allow(unsafe_code, dead_code)]
mod racing;
