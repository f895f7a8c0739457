//! Runs the tests of devices' names, which need no Python: the library itself cannot be tested without an interpreter.

#[path = "../src/devices.rs"]
#[allow(dead_code)]
mod devices;
