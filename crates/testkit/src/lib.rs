#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod canary;
pub mod digests;
#[cfg(feature = "faults")]
pub mod faults;
pub mod mock;
pub mod suite;
pub mod toys;
pub mod zk_suite;

pub use hypergrove_vectors::{acvp, forms, negative, public as vectors, zkdilithium};

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether tests try all that they know, as in `cargo xtask ci full`: every set on every device, every kernel for every architecture. That
/// takes many minutes. Otherwise a share stands for all.
pub fn all() -> bool {
    std::env::var("HYPERGROVE_TESTS").is_ok_and(|share| share == "all")
}

/// Has other tests that ask for it wait until this test's thread ends.
pub fn one_at_a_time() {
    static TURN: Mutex<()> = Mutex::new(());
    thread_local! {
        static HELD: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
    }
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    });
}
