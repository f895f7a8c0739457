//! Tests of the service as a child process, which clients drive over HTTP. One program, so that it is compiled and linked once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod attacks;
mod audit;
mod canary;
mod clients;
mod deployment;
mod floods;
#[path = "../../../crates/vectors/src/forms.rs"]
#[allow(unreachable_pub, reason = "a file of the crate vectors")]
mod forms;
mod reliability;
mod store;
mod transit;
