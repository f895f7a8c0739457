//! Memory of other owners, which any thread may write at any time: buffers of Python objects and tensors of DLPack. It is copied, in
//! and out, by accesses that may race.

use super::racing::{load, store};
use super::tensor::Managed;
use crate::error::bad;
use hypergrove::rows::ForeignMemory;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

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
    pub(crate) fn copy_out(&self, from: usize, to: &mut [u8], past_caches: bool) {
        self.check(from, to.len());
        // SAFETY: there are as many bytes as `to` has, and their owner is not dropped.
        unsafe { load(self.start.add(from), to, past_caches) }
    }

    fn check(&self, from: usize, len: usize) {
        let end = from.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "bytes of the memory");
    }
}

impl ForeignMemory for ForeignBytes {
    fn size(&self) -> usize {
        self.len
    }

    fn store(&self, at: usize, from: &[u8]) {
        assert!(self.read_only.is_none(), "the caller checked that these bytes may be written");
        self.check(at, from.len());
        // SAFETY: as in `copy_out`; the bytes may be written.
        unsafe { store(from, self.start.add(at)) }
    }
}

/// Without the bytes.
impl fmt::Debug for ForeignBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignBytes").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Bytes of an array of bytes, where memory can have so many.
pub(super) fn bytes_of(shape: &[usize]) -> Option<usize> {
    let bytes = shape.iter().try_fold(1_usize, |bytes, size| bytes.checked_mul(*size));
    bytes.filter(|bytes| isize::try_from(*bytes).is_ok())
}
