//! The C library: `include/hypergrove.h` says what its functions do, `docs/c.md` how to use it.
//!
//! Each function takes its arguments as `In`, `Out` or numbers, and runs in `call`, which turns errors and panics into statuses. Nothing but the
//! module `pointers` looks behind a pointer.
#![deny(unsafe_code)]

// An exported name is `#[unsafe(no_mangle)]`: nothing else in the process is called `hg_…`. CI sees to it that these modules have no
// other unsafe code.
#[cfg(test)]
mod abi;
#[allow(unsafe_code)]
mod engine;
#[allow(unsafe_code)]
mod failure;
#[allow(unsafe_code)]
mod keys;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod messages;
#[allow(unsafe_code)]
mod pointers;
#[allow(unsafe_code)]
mod queue;
#[allow(unsafe_code)]
mod rows;
#[allow(unsafe_code)]
mod sets;
