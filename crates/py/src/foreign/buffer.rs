//! Copies out of and into memory that other threads may write meanwhile.

use pyo3::buffer::PyBuffer;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Bytes that a thread copies at a time: few threads fill the memory's bandwidth, and each takes the next part when it has done one.
const PART: usize = 4 << 20;

/// Copies the bytes of a contiguous buffer of `to.len()` bytes, by up to so many threads. Python need not be attached. Of what is
/// written to the buffer meanwhile, any part may be in the copy.
pub(crate) fn copy_from(buffer: &PyBuffer<u8>, to: &mut [u8], threads: usize) {
    let from = start(buffer, to.len());
    // SAFETY: the buffer has as many bytes as `to`, and its exporter keeps them in place until the buffer is released.
    unsafe { load_all(from, to, threads) }
}

/// Writes all bytes of a contiguous buffer that is not read-only, as [`copy_from`] reads them.
pub(crate) fn copy_into(buffer: &PyBuffer<u8>, from: &[u8], threads: usize) {
    assert!(!buffer.readonly(), "the caller checked that the buffer may be written");
    let to = Address(start(buffer, from.len()));
    // SAFETY: as in `copy_from`; the buffer may be written, and no two parts overlap.
    by_parts(from.chunks(PART), threads, |part, from| unsafe { store(from, to.part(part)) });
}

/// Copies by relaxed loads, by up to so many threads.
///
/// # Safety
///
/// As for [`load`].
pub(super) unsafe fn load_all(from: *mut u8, to: &mut [u8], threads: usize) {
    let from = Address(from);
    // SAFETY: each part lies within the bytes that the caller vouches for.
    by_parts(to.chunks_mut(PART), threads, |part, to| unsafe { load(from.part(part), to) });
}

/// Where bytes begin that several threads copy.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: what is done with the address is for the functions that get it, `load` and `store`, whose accesses are atomic.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// # Safety
    ///
    /// The part begins within the memory.
    unsafe fn part(&self, part: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(part * PART) }
    }
}

/// Does `work` for all parts, on this thread and on others as far as they can be had.
fn by_parts<T: Send>(parts: impl ExactSizeIterator<Item = T> + Send, threads: usize, work: impl Fn(usize, T) + Sync) {
    let others = threads.min(parts.len()).saturating_sub(1);
    let parts = Mutex::new(parts.enumerate());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || {
        while let Some((part, bytes)) = next() {
            work(part, bytes);
        }
    };
    scope(|scope| {
        for _ in 0..others {
            if Builder::new().spawn_scoped(scope, some).is_err() {
                break;
            }
        }
        some();
    });
}

/// Where the buffer's bytes begin.
fn start(buffer: &PyBuffer<u8>, len: usize) -> *mut u8 {
    let all = buffer.as_slice_ptr().expect("the caller checked that the buffer is contiguous");
    assert_eq!(all.len(), len, "bytes of the buffer");
    all.cast().as_ptr()
}

/// Bytes before the first aligned word, at most all.
fn head(at: *mut u8, len: usize) -> usize {
    at.align_offset(align_of::<AtomicU64>()).min(len)
}

/// Copies by relaxed loads, which may race with writers and work in memory that is read-only.
///
/// # Safety
///
/// There are `to.len()` bytes at `from`, which nobody frees meanwhile.
unsafe fn load(from: *mut u8, to: &mut [u8]) {
    let (head, rest) = to.split_at_mut(head(from, to.len()));
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    let mut at = from;
    // SAFETY: `at` passes once over the bytes that the caller vouches for. After the head, words are aligned.
    unsafe {
        for byte in head {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
        for word in words {
            *word = AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes();
            at = at.add(WORD);
        }
        for byte in tail {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
    }
}

/// The reverse of [`load`].
///
/// # Safety
///
/// There are `from.len()` bytes at `to`, which may be written and which nobody frees meanwhile.
unsafe fn store(from: &[u8], to: *mut u8) {
    let (head, rest) = from.split_at(head(to, from.len()));
    let (words, tail) = rest.as_chunks::<WORD>();
    let mut at = to;
    // SAFETY: as in `load`.
    unsafe {
        for byte in head {
            AtomicU8::from_ptr(at).store(*byte, Relaxed);
            at = at.add(1);
        }
        for word in words {
            AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*word), Relaxed);
            at = at.add(WORD);
        }
        for byte in tail {
            AtomicU8::from_ptr(at).store(*byte, Relaxed);
            at = at.add(1);
        }
    }
}
