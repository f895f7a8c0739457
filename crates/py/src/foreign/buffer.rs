//! Copies out of and into memory that other threads may write meanwhile.

use pyo3::buffer::PyBuffer;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Copies the bytes of a contiguous buffer of `to.len()` bytes. Python need not be attached. Of what is written to the buffer
/// meanwhile, any part may be in the copy.
pub(crate) fn copy_from(buffer: &PyBuffer<u8>, to: &mut [u8]) {
    let from = start(buffer, to.len());
    // SAFETY: the buffer has as many bytes as `to`, and its exporter keeps them in place until the buffer is released.
    unsafe { load(from, to) }
}

/// Writes all bytes of a contiguous buffer that is not read-only, as [`copy_from`] reads them.
pub(crate) fn copy_into(buffer: &PyBuffer<u8>, from: &[u8]) {
    assert!(!buffer.readonly(), "the caller checked that the buffer may be written");
    let to = start(buffer, from.len());
    // SAFETY: as in `copy_from`; the buffer may be written.
    unsafe { store(from, to) }
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
pub(super) unsafe fn load(from: *mut u8, to: &mut [u8]) {
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
