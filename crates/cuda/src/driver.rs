//! NVIDIA's driver and NVRTC. Both are loaded when they are first asked for; where they are missing, that is said. All of
//! the crate's `unsafe` is here: CUDA is called through C functions, and knows memory by addresses.

mod device;
mod library;
mod memory;
mod nvrtc;
mod queue;

pub(crate) use device::devices;
pub use device::{DEFAULTS, WITHOUT};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
