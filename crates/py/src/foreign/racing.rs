//! Copies of memory that any thread may write meanwhile, by accesses that may race.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Bytes that a thread copies at a time: few threads fill the memory's bandwidth, and each takes the next piece when it has done one.
const PIECE: usize = 1 << 20;

/// How bytes are copied.
#[derive(Clone, Copy)]
pub(crate) struct Copying {
    /// By up to so many threads.
    pub(crate) threads: usize,
    /// For a device alone to read: the copy does not read its target into the processor's caches first, and drives nothing else out of them.
    pub(crate) past_caches: bool,
}

impl Copying {
    /// By the calling thread.
    pub(crate) const ALONE: Copying = Copying { threads: 1, past_caches: false };
}

/// Copies by relaxed loads.
///
/// # Safety
///
/// As for [`load`].
pub(crate) unsafe fn load_all(from: *mut u8, to: &mut [u8], how: Copying) {
    let from = Address(from);
    let one = |piece, to: &mut [u8]| {
        // SAFETY: each piece lies within the bytes that the caller vouches for.
        unsafe {
            match how.past_caches {
                true => load::<true>(from.piece(piece), to),
                false => load::<false>(from.piece(piece), to),
            }
        }
    };
    share_out(to.chunks_mut(PIECE), how.threads, one);
}

/// Writes bytes by relaxed stores, by up to so many threads.
///
/// # Safety
///
/// There are `from.len()` bytes at `to`, which may be written and which nobody frees meanwhile.
pub(crate) unsafe fn store_all(from: &[u8], to: *mut u8, threads: usize) {
    let to = Address(to);
    // SAFETY: each piece lies within the bytes that the caller vouches for, and no two pieces overlap.
    share_out(from.chunks(PIECE), threads, |piece, from| unsafe { store(from, to.piece(piece)) });
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
    /// The piece begins within the memory.
    unsafe fn piece(&self, piece: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(piece * PIECE) }
    }
}

/// Does `work` for all pieces, on this thread and on others as far as they can be had.
pub(crate) fn share_out<T: Send>(
    pieces: impl ExactSizeIterator<Item = T> + Send,
    threads: usize,
    work: impl Fn(usize, T) + Sync,
) {
    let others = threads.min(pieces.len()).saturating_sub(1);
    let pieces = Mutex::new(pieces.enumerate());
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || {
        while let Some((number, piece)) = next() {
            work(number, piece);
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

/// Bytes before the first aligned word, at most all.
fn head(at: *mut u8, len: usize) -> usize {
    at.align_offset(align_of::<AtomicU64>()).min(len)
}

/// Copies by relaxed loads, which may race with writers and work in memory that is read-only. (Python verifies 3.2 million signatures of 128s a
/// second from NumPy's arrays on an H200, and 3.6 million past the caches.)
///
/// # Safety
///
/// There are `to.len()` bytes at `from`, which nobody frees meanwhile.
unsafe fn load<const PAST_CACHES: bool>(from: *mut u8, to: &mut [u8]) {
    let (head, rest) = to.split_at_mut(head(from, to.len()));
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    let mut at = from;
    // SAFETY: `at` passes once over the bytes that the caller vouches for. After the head, words are aligned.
    unsafe {
        for byte in head {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
        if PAST_CACHES && words.as_ptr().addr() % WORD == 0 {
            for word in words {
                store_past_caches(word, AtomicU64::from_ptr(at.cast()).load(Relaxed));
                at = at.add(WORD);
            }
            end_of_stores();
        } else {
            for word in words {
                *word = AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes();
                at = at.add(WORD);
            }
        }
        for byte in tail {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
    }
}

/// Writes a word to memory, where the processor can do so without its caches.
///
/// # Safety
///
/// The word is aligned, and [`end_of_stores`] is called before anyone reads it, this thread too.
#[inline(always)]
unsafe fn store_past_caches(to: &mut [u8; WORD], word: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is there on all such processors, and the word is ours to write.
    unsafe {
        core::arch::x86_64::_mm_stream_si64(to.as_mut_ptr().cast(), word.cast_signed());
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        *to = word.to_ne_bytes();
    }
}

/// Makes what this thread has stored past its caches visible in the order that others rely on.
fn end_of_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is there on all such processors.
    unsafe {
        core::arch::x86_64::_mm_sfence();
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

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: u8 = 0xa5;

    /// Copies `len` bytes from an address to another, both so far behind a multiple of 64, and looks at all bytes around them.
    fn check(len: usize, [from_at, to_at]: [usize; 2], threads: usize) {
        let room = len + 256;
        let mut source: Vec<u8> = (0..room).map(|i| ((i * i) >> 3) as u8 ^ i as u8).collect();
        let begin = source.as_ptr().align_offset(64) + from_at;
        let expected = source[begin..begin + len].to_vec();
        let from = source.as_mut_ptr().wrapping_add(begin);
        for past_caches in [false, true] {
            let mut target = vec![GUARD; room];
            let begin = target.as_ptr().align_offset(64) + to_at;
            // SAFETY: `source` has these bytes, and lives.
            unsafe {
                load_all(from, &mut target[begin..begin + len], Copying { threads, past_caches });
            }
            let case = format!("{len} bytes, {from_at} to {to_at}, {threads} threads, past caches: {past_caches}");
            assert!(target[begin..begin + len] == expected, "{case}");
            let around = target[..begin].iter().chain(&target[begin + len..]);
            assert!(around.into_iter().all(|byte| *byte == GUARD), "{case}");
        }
        let mut target = vec![GUARD; room];
        let begin = target.as_ptr().align_offset(64) + to_at;
        // SAFETY: `target` has these bytes, and nobody else uses them.
        unsafe {
            store_all(&expected, target.as_mut_ptr().add(begin), threads);
        }
        assert!(target[begin..begin + len] == expected);
        assert!(target[..begin].iter().chain(&target[begin + len..]).all(|byte| *byte == GUARD));
    }

    #[test]
    fn every_length_and_alignment() {
        for len in (0..40).chain([63, 64, 65, 1000]) {
            for from in 0..9 {
                (0..9).for_each(|to| check(len, [from, to], 1));
            }
        }
    }

    #[test]
    fn pieces_of_several_threads() {
        for len in [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 77] {
            for at in [[0, 0], [8, 0], [3, 5], [0, 4]] {
                check(len, at, 4);
            }
        }
    }
}
