//! Vulkan's loader and drivers: all of the crate's `unsafe` is here. Vulkan is called through C functions; handles are given
//! back once, when nothing uses them any more, which the owners below see to.

mod device;
mod instance;
mod memory;
mod pipelines;
mod queue;
mod tables;

pub(crate) use device::devices;
pub use device::{DEFAULTS, WITHOUT};
pub(crate) use instance::Instance;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
