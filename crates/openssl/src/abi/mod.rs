//! The interface between OpenSSL's core and its providers (`openssl/core.h` and `openssl/core_dispatch.h`, OpenSSL 3.0 to 4.0), and all
//! `unsafe` code of this crate.

mod core;
pub(crate) mod entries;
mod params;
mod start;
mod types;

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) use core::{Bio, Core, Passphrase};
pub(crate) use params::{Given, Value};
pub(crate) use types::{Algorithm, Dispatch, Param, Table, parameters};

/// A value of this process that is never dropped, so that threads may use it without a lock.
pub(crate) struct Leaked<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Leaked<T> {
    pub(crate) const fn none() -> Leaked<T> {
        Leaked(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value that was set last.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: `replace` has only put addresses of leaked values here.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets a value, unless another thread has set one since `seen` was read: then that one is the result. No lock is taken, since a process
    /// that is forked meanwhile would keep it for ever.
    pub(crate) fn replace(&self, seen: Option<&'static T>, with: T) -> Result<&'static T, &'static T> {
        let (seen, with) =
            (seen.map_or(ptr::null_mut(), |seen| ptr::from_ref(seen).cast_mut()), Box::into_raw(Box::new(with)));
        // SAFETY: both are addresses of values that are never freed, but for `with` where nobody else has it.
        unsafe {
            match self.0.compare_exchange(seen, with, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => Ok(&*with),
                Err(other) => {
                    drop(Box::from_raw(with));
                    Err(&*other)
                }
            }
        }
    }
}
