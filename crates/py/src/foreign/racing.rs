//! Copies of memory that any thread may write meanwhile, by accesses that may race.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Copies by relaxed loads. With `past_caches` the copy is for a device alone to read: the copy does not read its target into the processor's caches
/// first, and drives nothing else out of them.
///
/// # Safety
///
/// As for [`load_words`].
pub(crate) unsafe fn load(from: *mut u8, to: &mut [u8], past_caches: bool) {
    // SAFETY: as the caller says.
    unsafe {
        match past_caches {
            true => load_words::<true>(from, to),
            false => load_words::<false>(from, to),
        }
    }
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
unsafe fn load_words<const PAST_CACHES: bool>(from: *mut u8, to: &mut [u8]) {
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

/// The reverse of [`load`], by relaxed stores.
///
/// # Safety
///
/// There are `from.len()` bytes at `to`, which may be written and which nobody frees meanwhile.
pub(crate) unsafe fn store(from: &[u8], to: *mut u8) {
    let (head, rest) = from.split_at(head(to, from.len()));
    let (words, tail) = rest.as_chunks::<WORD>();
    let mut at = to;
    // SAFETY: as in `load_words`.
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
    fn check(len: usize, [from_at, to_at]: [usize; 2]) {
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
                load(from, &mut target[begin..begin + len], past_caches);
            }
            let case = format!("{len} bytes, {from_at} to {to_at}, past caches: {past_caches}");
            assert!(target[begin..begin + len] == expected, "{case}");
            let around = target[..begin].iter().chain(&target[begin + len..]);
            assert!(around.into_iter().all(|byte| *byte == GUARD), "{case}");
        }
        let mut target = vec![GUARD; room];
        let begin = target.as_ptr().align_offset(64) + to_at;
        // SAFETY: `target` has these bytes, and nobody else uses them.
        unsafe {
            store(&expected, target.as_mut_ptr().add(begin));
        }
        assert!(target[begin..begin + len] == expected);
        assert!(target[..begin].iter().chain(&target[begin + len..]).all(|byte| *byte == GUARD));
    }

    #[test]
    fn every_length_and_alignment() {
        for len in (0..40).chain([63, 64, 65, 1000]) {
            for from in 0..9 {
                (0..9).for_each(|to| check(len, [from, to]));
            }
        }
    }
}
