//! The library's tests, one module a topic. They are one program, because linking the library takes longer than most tests.
//!
//! Tests that need a process, an allocator or limits of their own are programs of their own, in the folder above.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/rows_suite.rs"]
mod rows_suite;
include!("../common/on_host.rs");

mod acvp;
mod devices;
mod engine;
mod faults;
mod foreign;
mod hang;
mod hash;
mod memory;
mod negative;
mod one_of_several;
mod options;
mod reading;
mod rows;
mod self_test;
mod sets;
mod sharing;
mod tickets;
mod trace;
mod zk_rows;
mod zkdilithium;
