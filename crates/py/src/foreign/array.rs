//! The arrays that Python gets: results, and memory that devices reach.

use super::racing::{Copying, load_all};
use hypergrove::rows::Memory;
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyBytes, PyMemoryView};
use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an element is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Element {
    Byte,
    Bool,
}

impl Element {
    fn format(self) -> &'static CStr {
        match self {
            Element::Byte => c"B",
            Element::Bool => c"?",
        }
    }
}

/// What holds an array's memory. Nothing but `Array::bytes` reaches into it until it is dropped.
enum Owner {
    Ordinary {
        _bytes: Vec<u8>,
    },
    /// Memory of an engine, which only the process that has the engine can give back.
    Device {
        memory: ManuallyDrop<Memory>,
        process: u32,
    },
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Owner::Device { memory, process } = self
            && *process == std::process::id()
        {
            // SAFETY: this is the drop of what holds it, so nobody uses it again.
            unsafe { ManuallyDrop::drop(memory) }
        }
    }
}

/// Who uses an array's memory now.
#[derive(Default)]
struct Uses {
    /// Buffers that Python has of it; all may be written to.
    views: usize,
    /// Calls that read it as a slice.
    readers: usize,
    /// Who copies from it, with views or without.
    copiers: usize,
    is_written: bool,
}

/// Rows of bytes, or one boolean for each row, in memory that Python shares by the buffer protocol: `numpy.asarray(array)` and
/// `memoryview(array)` copy nothing.
///
/// A call that gets the array itself reads it, or writes to it as `out`, without a copy, unless there are views of it: since
/// other threads could write to those, the call copies then. While a call uses the array, no new view can be had.
#[pyclass(frozen, module = "hypergrove")]
pub(crate) struct Array {
    start: NonNull<u8>,
    len: usize,
    element: Element,
    shape: Vec<isize>,
    strides: Vec<isize>,
    uses: Mutex<Uses>,
    _owner: Owner,
}

// SAFETY: `start` belongs to `_owner`, which any thread may drop. Its bytes are reached through `Reading` and `Writing`, which `uses` keeps
// apart, and through views, which exclude both.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// An array of these bytes.
    pub(crate) fn new(mut bytes: Vec<u8>, element: Element, shape: &[usize]) -> Array {
        let start = NonNull::from(&mut bytes[..]).cast();
        let len = bytes.len();
        Array::of(start, len, Owner::Ordinary { _bytes: bytes }, element, shape)
    }

    /// An array of bytes in an engine's memory.
    pub(crate) fn in_memory(mut memory: Memory, shape: &[usize]) -> Array {
        let start = NonNull::from(&mut memory[..]).cast();
        let len = memory.len();
        let owner = Owner::Device { memory: ManuallyDrop::new(memory), process: std::process::id() };
        Array::of(start, len, owner, Element::Byte, shape)
    }

    fn of(start: NonNull<u8>, len: usize, owner: Owner, element: Element, shape: &[usize]) -> Array {
        assert_eq!(shape.iter().product::<usize>(), len, "an array has as many bytes as its shape says");
        let shape: Vec<isize> = shape.iter().map(|size| isize::try_from(*size).expect("a size of memory")).collect();
        let strides = (1..=shape.len()).map(|at| shape[at..].iter().product()).collect();
        Array { start, len, element, shape, strides, uses: Mutex::default(), _owner: owner }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn element(&self) -> Element {
        self.element
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.shape.iter().map(|size| *size as usize).collect()
    }

    /// Its bytes, to be read; an error while a call writes to it.
    pub(crate) fn read(&self) -> PyResult<Reading<'_>> {
        let mut uses = self.uses();
        if uses.is_written {
            return Err(in_use("a call writes its results to it"));
        }
        let is_alone = uses.views == 0;
        *if is_alone { &mut uses.readers } else { &mut uses.copiers } += 1;
        Ok(Reading { array: self, is_alone })
    }

    /// Its bytes, to be written to. `None` while there are views; an error while a call uses it.
    pub(crate) fn write(&self) -> PyResult<Option<Writing<'_>>> {
        let mut uses = self.uses();
        if uses.is_written || uses.readers > 0 || uses.copiers > 0 {
            return Err(in_use("this call, or another, reads it or writes to it"));
        }
        if uses.views > 0 {
            return Ok(None);
        }
        uses.is_written = true;
        Ok(Some(Writing(self)))
    }
}

fn in_use(why: &str) -> PyErr {
    PyBufferError::new_err(format!("the array is in use: {why}; use another array"))
}

/// An array that is read.
pub(crate) struct Reading<'a> {
    array: &'a Array,
    /// Whether there was no view.
    is_alone: bool,
}

impl Reading<'_> {
    /// The bytes, where nobody else can write to them.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: `Array::read` found no view and no writer, and there can be none until this is dropped.
        self.is_alone.then(|| unsafe { std::slice::from_raw_parts(self.array.start.as_ptr(), self.array.len) })
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.array.start.addr().get();
        start..start + self.array.len
    }

    /// Copies bytes, while others may write to views.
    pub(crate) fn copy(&self, from: usize, to: &mut [u8], how: Copying) {
        let end = from.checked_add(to.len());
        assert!(end.is_some_and(|end| end <= self.array.len), "bytes of the array");
        // SAFETY: the bytes are within the array's memory, to which no call writes until this is dropped.
        unsafe { load_all(self.array.start.as_ptr().add(from), to, how) };
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut uses = self.array.uses();
        *if self.is_alone { &mut uses.readers } else { &mut uses.copiers } -= 1;
    }
}

/// An array that a call writes to.
pub(crate) struct Writing<'a>(&'a Array);

impl Writing<'_> {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `Array::write` found nobody who uses the memory, and there can be nobody until this is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.uses().is_written = false;
    }
}

#[pymethods]
impl Array {
    /// Rows, and bytes of a row if the elements are bytes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// The element's code in the module `struct`: "B" or "?".
    #[getter]
    fn format(&self) -> &'static str {
        self.element.format().to_str().expect("a letter")
    }

    fn __len__(&self) -> usize {
        self.shape[0] as usize
    }

    /// A row's bytes, or the row's boolean.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, row: isize) -> PyResult<Bound<'py, PyAny>> {
        let array = slf.get();
        let (rows, index) = (array.shape[0], row);
        let row = if row < 0 { row + rows } else { row };
        if !(0..rows).contains(&row) {
            return Err(PyIndexError::new_err(format!("row {index} of an array with {rows}")));
        }
        let width = array.strides[0] as usize;
        let mut copy = vec![0; width];
        array.read()?.copy(row as usize * width, &mut copy, Copying::ALONE);
        match array.element {
            Element::Byte => Ok(PyBytes::new(slf.py(), &copy).into_any()),
            Element::Bool => Ok(PyBool::new(slf.py(), copy[0] != 0).to_owned().into_any()),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::columns::iterate(slf.as_any(), slf.get().__len__())
    }

    /// All bytes, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let reading = self.read()?;
        PyBytes::new_with(py, self.len, |to| {
            reading.copy(0, to, Copying::ALONE);
            Ok(())
        })
    }

    /// As `numpy.array(memoryview(array), …)`. NumPy asks for this when it gets no buffer, and would make an array of one object otherwise.
    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, view) = (slf.py(), PyMemoryView::from(slf.as_any())?);
        let options = [("dtype", dtype), ("copy", copy)].into_py_dict(py)?;
        py.import("numpy")?.call_method("array", (view,), Some(&options))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("arrays do not pickle; use bytes(array) or numpy.array(array)"))
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(isize::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let kind = if self.element == Element::Byte { "uint8" } else { "bool" };
        format!("<hypergrove.Array of {kind}, shape ({}{comma})>", shape.join(", "))
    }

    /// # Safety
    ///
    /// `view` is a `Py_buffer` to be filled, or null.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to be filled"));
        }
        let array = slf.get();
        let mut uses = array.uses();
        if uses.readers > 0 || uses.is_written {
            // SAFETY: Python asks that `obj` be null after an error.
            unsafe { (*view).obj = std::ptr::null_mut() };
            return Err(in_use("a call reads it or writes to it, so there is no view until the call ends"));
        }
        uses.views += 1;
        drop(uses);
        let asks = |what| flags & what == what;
        // Who asks for no shape gets bytes in a row.
        let dimensions = if asks(ffi::PyBUF_ND) { array.shape.len() as c_int } else { 1 };
        let null = std::ptr::null_mut::<c_void>();
        // SAFETY: the caller gave a `Py_buffer`. The array owns the memory, the shape and the strides, never moves them, and lives
        // as long as `obj`. Nobody writes through the pointers to shape, strides and format (PEP 3118).
        unsafe {
            (*view).buf = array.start.as_ptr().cast();
            (*view).len = array.len as isize;
            (*view).readonly = 0;
            (*view).itemsize = 1;
            (*view).ndim = dimensions;
            (*view).format =
                if asks(ffi::PyBUF_FORMAT) { array.element.format().as_ptr().cast_mut() } else { null.cast() };
            (*view).shape = if asks(ffi::PyBUF_ND) { array.shape.as_ptr().cast_mut() } else { null.cast() };
            (*view).strides = if asks(ffi::PyBUF_STRIDES) { array.strides.as_ptr().cast_mut() } else { null.cast() };
            (*view).suboffsets = null.cast();
            (*view).internal = null;
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `_view` was filled by `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.uses().views -= 1;
    }
}
