#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// An exported name is `#[unsafe(no_mangle)]`: nothing else in the process is called `hg_…`. CI sees to it that these modules have no
// other unsafe code.
#[cfg(test)]
mod abi;
#[allow(unsafe_code)]
mod engine;
mod failure;
#[allow(unsafe_code)]
mod keys;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod messages;
mod options;
#[allow(unsafe_code)]
mod pointers;
#[allow(unsafe_code)]
mod queue;
#[allow(unsafe_code)]
mod rows;
mod schemes;
#[allow(unsafe_code)]
mod sets;
#[allow(unsafe_code)]
mod texts;
