//! Mutexes that outlive panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic: nothing is left half done under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
