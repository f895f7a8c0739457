//! Vulkan's loader and drivers. All of the crate's `unsafe` is here. Vulkan is called through C functions. The owners below give each handle
//! back once, when nothing uses it any more.

mod device;
mod instance;
mod memory;
mod pipelines;
mod queue;
mod reached;
mod tables;

pub(crate) use device::devices;
pub use device::{DEFAULTS, WITHOUT};
pub(crate) use instance::Instance;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic: nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
