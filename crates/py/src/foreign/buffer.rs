//! Memory of other owners, which any thread may write at any time: buffers of Python objects and tensors of DLPack. It is copied, in
//! and out, by accesses that may race.

use super::dlpack::Managed;
use crate::error::bad;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Bytes that a thread copies at a time: few threads fill the memory's bandwidth, and each takes the next piece when it has done one.
const PIECE: usize = 1 << 20;

/// Dimensions that a buffer or a tensor may have (`PyBUF_MAX_NDIM`).
pub(super) const MOST_DIMENSIONS: usize = 64;

/// Bytes of another owner without gaps, checked as far as they can be: neither buffers nor tensors come with a length that their
/// exporter could not get wrong.
pub(crate) struct ForeignBytes {
    /// Good for `len` bytes until the owner is dropped.
    start: *mut u8,
    len: usize,
    shape: Vec<usize>,
    /// Why they must not be written, where they must not.
    read_only: Option<&'static str>,
    _owner: Owner,
}

/// Keeps the bytes in place.
pub(super) enum Owner {
    Buffer(#[expect(dead_code, reason = "it is released when it is dropped")] PyUntypedBuffer),
    Tensor(#[expect(dead_code, reason = "it is deleted when it is dropped")] Managed),
}

// SAFETY: the bytes are reached by atomic accesses alone, and any thread may release a buffer or delete a tensor.
unsafe impl Send for ForeignBytes {}
// SAFETY: as above.
unsafe impl Sync for ForeignBytes {}

impl ForeignBytes {
    /// The bytes of an object that has a buffer or is a tensor of DLPack, or None. `what` is the argument's name.
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<Option<ForeignBytes>> {
        // SAFETY: Python is attached, and the object lives.
        match unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } {
            0 => ForeignBytes::of_tensor(object, what),
            _ => ForeignBytes::of_buffer(object, what).map(Some),
        }
    }

    fn of_buffer(object: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<ForeignBytes> {
        let buffer = PyUntypedBuffer::get(object).map_err(|why| {
            if !why.is_instance_of::<PyException>(object.py()) {
                return why;
            }
            let kind = object.get_type().name().map_or_else(|_| "the object".into(), |name| name.to_string());
            PyBufferError::new_err(format!("{}: {kind} gives no buffer ({why}); copy it to bytes", what()))
        })?;
        let wrong = |why: &str| Err(bad(format!("{}: a buffer that {why}; copy it to bytes", what())));
        // Before its shape is read: a negative number is a huge one here.
        if buffer.dimensions() > MOST_DIMENSIONS {
            return wrong("has a negative number of dimensions, or more than 64");
        }
        let shape = buffer.shape().to_vec();
        if shape.iter().any(|size| isize::try_from(*size).is_err()) {
            return wrong("has a negative size");
        }
        let format = buffer.format().to_string_lossy().into_owned();
        // A byte has no order of bytes. Characters of `ctypes` are bytes too.
        let code = format.strip_prefix(['@', '=', '<', '>', '!']).unwrap_or(&format);
        if buffer.item_size() != 1 || !["B", "c"].contains(&code) {
            return Err(PyTypeError::new_err(format!(
                "{}: a buffer whose elements have the format {format:?}; the elements must be uint8 (\"B\")",
                what()
            )));
        }
        let len = bytes_of(&shape).filter(|len| *len == buffer.len_bytes());
        let Some(len) = len else { return wrong("has another length than its shape says") };
        if !buffer.is_c_contiguous() {
            return Err(bad(format!(
                "{}: the array is not contiguous; copy it, by numpy.ascontiguousarray for example",
                what()
            )));
        }
        let start = buffer.buf_ptr().cast();
        if len > 0 && NonNull::new(start).is_none() {
            return wrong("has bytes and no address");
        }
        let read_only = buffer.readonly().then_some("is read-only; give an array that may be written");
        // SAFETY: the exporter says that so many bytes are there, and keeps them in place until the buffer is released.
        Ok(unsafe { ForeignBytes::new(start, len, shape, read_only, Owner::Buffer(buffer)) })
    }

    /// # Safety
    ///
    /// There are `len` bytes at `start` until the owner is dropped, and they may be written unless they are read-only.
    pub(super) unsafe fn new(
        start: *mut u8,
        len: usize,
        shape: Vec<usize>,
        read_only: Option<&'static str>,
        owner: Owner,
    ) -> ForeignBytes {
        ForeignBytes { start, len, shape, read_only, _owner: owner }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.start.addr()..self.start.addr() + self.len
    }

    /// Why they must not be written, where they must not: the end of a sentence.
    pub(crate) fn read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    /// Copies the bytes that begin at `from` to `to`. Python need not be attached. Of what is written meanwhile, any part may be in the
    /// copy.
    pub(crate) fn copy_out(&self, from: usize, to: &mut [u8], how: Copying) {
        self.check(from, to.len());
        // SAFETY: there are as many bytes as `to` has, and their owner is not dropped.
        unsafe { load_all(self.start.add(from), to, how) }
    }

    /// Writes bytes from `at` on, as [`copy_out`](Self::copy_out) reads them, by up to so many threads.
    pub(crate) fn copy_in(&self, at: usize, from: &[u8], threads: usize) {
        assert!(self.read_only.is_none(), "the caller checked that these bytes may be written");
        self.check(at, from.len());
        // SAFETY: the bytes begin within the memory.
        let to = Address(unsafe { self.start.add(at) });
        // SAFETY: as in `copy_out`; the bytes may be written, and no two pieces overlap.
        share_out(from.chunks(PIECE), threads, |piece, from| unsafe { store(from, to.piece(piece)) });
    }

    /// Writes so many zeros from `at` on.
    pub(crate) fn zero(&self, at: usize, len: usize) {
        const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
        for from in (0..len).step_by(ZEROS.len()) {
            self.copy_in(at + from, &ZEROS[..ZEROS.len().min(len - from)], 1);
        }
    }

    fn check(&self, from: usize, len: usize) {
        let end = from.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "bytes of the memory");
    }
}

/// Bytes of an array of bytes, where memory can have so many.
pub(super) fn bytes_of(shape: &[usize]) -> Option<usize> {
    let bytes = shape.iter().try_fold(1_usize, |bytes, size| bytes.checked_mul(*size));
    bytes.filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// How bytes are copied.
#[derive(Clone, Copy)]
pub(crate) struct Copying {
    /// By up to so many threads.
    pub(crate) threads: usize,
    /// For a device, which does not read them from the processor's caches: where they go is not read into these first.
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
pub(super) unsafe fn load_all(from: *mut u8, to: &mut [u8], how: Copying) {
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
/// second from NumPy's arrays on an H200, and 3.6 past the caches.)
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

/// Writes an aligned word to memory, where the processor can do so without its caches. [`end_of_stores`] comes before anyone else reads it.
#[inline(always)]
fn store_past_caches(to: &mut [u8; WORD], word: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is there on all such processors, and the word is ours to write. No other thread reads it before `end_of_stores`.
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
