//! The locks of `cell`, `permits` and `producer`. `xtask/loom` puts loom's in their place.

pub(super) use std::sync::atomic::AtomicU64;
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
