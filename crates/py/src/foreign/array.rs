//! The arrays that Python gets: results, and memory that devices reach.

use super::memory::{ArrayOwner, Element, ExportedBytes, Reading, Share, SharedMemory, Writing, in_use};
use super::{arrow, dlpack};
use crate::error::bad;
use crate::gaps::{Gaps, Nulls};
use crate::room::{size, zeros};
use hypergrove::Process;
use hypergrove::rows::Memory;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    IntoPyDict, PyBool, PyByteArray, PyBytes, PyCapsule, PyDict, PyInt, PyList, PyMemoryView, PyRange, PySlice, PyTuple,
};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Rows of bytes, or one boolean for each row, in memory that Python shares by the buffer protocol, DLPack and Arrow:
/// `numpy.asarray(array)`, `memoryview(array)` and `numpy.from_dlpack(array)` copy nothing, `pyarrow.array(array)` copies booleans alone.
///
/// A call that gets the array itself reads it, or writes to it as `out`, without a copy, unless there are views of it: since
/// other threads could write to those, the call copies then. While a call uses the array, no new view can be had.
///
/// Arrow's arrays never change. As long as one shares the array's memory, new views are read-only, and a call cannot write to the array. If there
/// are views already, Arrow gets a copy.
#[pyclass(frozen, sequence, module = "hypergrove")]
pub(crate) struct Array {
    memory: Arc<SharedMemory>,
    element: Element,
    shape: Vec<isize>,
    strides: Vec<isize>,
    nulls: Option<Nulls>,
}

impl Array {
    /// An array of these bytes.
    pub(crate) fn new(mut bytes: Vec<u8>, element: Element, shape: &[usize]) -> Array {
        let start = NonNull::from(&mut bytes[..]).cast();
        let len = bytes.len();
        Array::of(start, len, ArrayOwner::Ordinary { _bytes: bytes }, element, shape)
    }

    /// An array of bytes in an engine's memory.
    pub(crate) fn in_memory(mut memory: Memory, shape: &[usize]) -> Array {
        let start = NonNull::from(&mut memory[..]).cast();
        let len = memory.len();
        let owner = ArrayOwner::Device { memory: ManuallyDrop::new(memory), process: Process::current() };
        Array::of(start, len, owner, Element::Byte, shape)
    }

    fn of(start: NonNull<u8>, len: usize, owner: ArrayOwner, element: Element, shape: &[usize]) -> Array {
        assert_eq!(shape.iter().product::<usize>(), len, "an array has as many bytes as its shape says");
        let shape: Vec<isize> = shape.iter().map(|size| isize::try_from(*size).expect("a size of memory")).collect();
        let strides = (1..=shape.len()).map(|at| shape[at..].iter().product()).collect();
        let memory = Arc::new(SharedMemory { start, len, uses: Mutex::default(), _owner: owner });
        Array { memory, element, shape, strides, nulls: None }
    }

    /// The array with nulls in the rows that a call has left out.
    pub(crate) fn with_gaps(self, gaps: Option<Gaps>) -> Array {
        Array { nulls: gaps.map(|gaps| gaps.nulls), ..self }
    }

    pub(crate) fn element(&self) -> Element {
        self.element
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.shape.iter().map(|size| *size as usize).collect()
    }

    pub(crate) fn nulls(&self) -> Option<&Nulls> {
        self.nulls.as_ref()
    }

    /// Its bytes, to be read; an error while a call writes to it.
    pub(crate) fn read(&self) -> PyResult<Reading<'_>> {
        let mut uses = self.memory.uses();
        if uses.is_written {
            return Err(in_use("a call writes its results to it"));
        }
        let is_alone = uses.views == 0;
        *if is_alone { &mut uses.readers } else { &mut uses.copiers } += 1;
        Ok(Reading { memory: &self.memory, is_alone })
    }

    /// Its bytes, to be written to. `None` while there are views; an error while a call uses it, or an Arrow array shares it.
    pub(crate) fn write(&self) -> PyResult<Option<Writing<'_>>> {
        let mut uses = self.memory.uses();
        if uses.is_written || uses.readers > 0 || uses.copiers > 0 {
            return Err(in_use("this call, or another, reads it or writes to it"));
        }
        if uses.frozen > 0 {
            return Err(in_use("an Arrow array shares its memory, which must not change"));
        }
        if self.nulls.is_some() {
            return Err(in_use("it has nulls, which cannot be overwritten"));
        }
        if uses.views > 0 {
            return Ok(None);
        }
        uses.is_written = true;
        Ok(Some(Writing(&self.memory)))
    }

    /// Its bytes for an Arrow array: a copy where there are views.
    fn freeze(&self) -> PyResult<ExportedBytes> {
        let mut uses = self.memory.uses();
        if uses.views > 0 {
            drop(uses);
            return self.copy().map(ExportedBytes::Copied);
        }
        if uses.is_written {
            return Err(in_use("a call writes its results to it"));
        }
        uses.frozen += 1;
        Ok(ExportedBytes::Shared(Share { memory: self.memory.clone(), is_frozen: true }))
    }

    /// A copy of `count` rows: which, `row` tells by their places in the copy.
    fn rows(&self, count: usize, row: impl Fn(usize) -> usize) -> PyResult<Array> {
        let width = self.strides[0] as usize;
        let mut bytes = zeros(size(count, width)?)?;
        let reading = self.read()?;
        let copied = if width == 0 { 0 } else { count };
        (0..copied).for_each(|at| reading.copy(row(at) * width, &mut bytes[at * width..][..width], false));
        let shape: Vec<usize> = [count].into_iter().chain(self.sizes().into_iter().skip(1)).collect();
        let nulls = self.nulls.as_ref().and_then(|nulls| nulls.select(count, &row));
        Ok(Array { nulls, ..Array::new(bytes, self.element, &shape) })
    }

    /// A copy of the verdicts; null is false.
    fn verdicts(&self, what: &str) -> PyResult<Vec<u8>> {
        match self.element {
            Element::Bool => self.copy(),
            Element::Byte => Err(PyTypeError::new_err(format!("{what}: {} has no verdicts", self.__repr__()))),
        }
    }

    /// `all` or `any`. With arguments that only NumPy's functions of these names have, NumPy does it.
    fn reduce<'py>(
        slf: &Bound<'py, Self>,
        what: &str,
        reduced: impl FnOnce(&[u8]) -> bool,
        [axis, out]: [Option<&Bound<'py, PyAny>>; 2],
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if axis.is_none() && out.is_none() && options.is_none() {
            return Ok(PyBool::new(slf.py(), reduced(&slf.get().verdicts(what)?)).to_owned().into_any());
        }
        let all = [("axis", axis), ("out", out)].into_py_dict(slf.py())?;
        options.map_or(Ok(()), |options| all.update(options.as_mapping()))?;
        Array::__array__(slf, None, None)?.call_method(what, (), Some(&all))
    }

    /// A copy of all bytes.
    fn copy(&self) -> PyResult<Vec<u8>> {
        let mut copy = zeros(self.memory.len)?;
        self.read()?.copy(0, &mut copy, false);
        Ok(copy)
    }
}

#[pymethods]
impl Array {
    /// Rows, and bytes of a row if the elements are bytes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The element's code in the module `struct`: "B" or "?".
    #[getter]
    fn format(&self) -> &'static str {
        self.element.format().to_str().expect("a letter")
    }

    fn __len__(&self) -> usize {
        self.shape[0] as usize
    }

    /// The truth of the only element, and of no other array: its length would say nothing of its verdicts. A null is false.
    fn __bool__(&self) -> PyResult<bool> {
        let mut element = [0];
        if self.memory.len != element.len() {
            let count = self.memory.len;
            return Err(bad(format!(
                "an array of {count} elements is neither true nor false; use array.all() or array.any()"
            )));
        }
        self.read()?.copy(0, &mut element, false);
        Ok(element[0] != 0)
    }

    /// `==` and `!=` of each row, as an array of booleans. The other side has as many rows, or is one value, which is compared with each row.
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, rows) = (slf.py(), slf.len()?);
        if !matches!(how, CompareOp::Eq | CompareOp::Ne) {
            return Ok(py.NotImplemented().into_bound(py));
        }
        // Series and arrays that NumPy knows compare by themselves.
        if other.hasattr("__array_ufunc__")? {
            return Array::__array__(slf, None, None)?.rich_compare(other, how);
        }
        let has_rows =
            other.is_instance_of::<Array>() || other.is_instance_of::<PyList>() || other.is_instance_of::<PyTuple>();
        let is_value = other.is_none()
            || other.is_instance_of::<PyInt>()
            || other.is_instance_of::<PyBytes>()
            || other.is_instance_of::<PyByteArray>();
        if !has_rows && !is_value {
            let kind = other.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "an array does not compare with {kind}; make a list of its rows"
            )));
        }
        if has_rows && other.len()? != rows {
            return Err(bad(format!("an array of {rows} rows does not compare with {} rows", other.len()?)));
        }
        let compare = |row: usize| {
            let value = if has_rows { other.get_item(row)? } else { other.clone() };
            slf.get_item(row)?.rich_compare(value, how)?.is_truthy().map(u8::from)
        };
        let verdicts = (0..rows).map(compare).collect::<PyResult<Vec<u8>>>()?;
        Ok(Bound::new(py, Array::new(verdicts, Element::Bool, &[rows]))?.into_any())
    }

    /// The number of rows that are null.
    #[getter]
    fn null_count(&self) -> usize {
        self.nulls.as_ref().map_or(0, |nulls| nulls.count)
    }

    /// A pair for each row that is null, in order: the row's number, and why it has no result. The reason is "null" if the call was given a null, and
    /// otherwise a sentence.
    fn reasons(&self) -> Vec<(usize, &str)> {
        self.nulls.as_ref().map_or_else(Vec::new, |nulls| nulls.reasons().collect())
    }

    /// A row's bytes, or the row's boolean; None if the row is null. The rows of a slice are an array, a copy.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, row: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = row.cast::<PySlice>() {
            let part = slice.indices(slf.get().shape[0])?;
            let row = |at: usize| (part.start + at as isize * part.step) as usize;
            return Ok(Bound::new(slf.py(), slf.get().rows(part.slicelength, row)?)?.into_any());
        }
        let Ok(index) = row.extract::<isize>() else {
            return Err(match row.is_instance_of::<PyInt>() {
                true => PyIndexError::new_err("no array has a row of such a number"),
                false => PyTypeError::new_err(
                    "an array takes the number of a row or a slice; numpy.asarray(array) takes masks, too",
                ),
            });
        };
        let array = slf.get();
        let rows = array.shape[0];
        let row = if index < 0 { index + rows } else { index };
        if !(0..rows).contains(&row) {
            return Err(PyIndexError::new_err(format!("row {index} of an array with {rows}")));
        }
        if array.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row as usize)) {
            return Ok(slf.py().None().into_bound(slf.py()));
        }
        let width = array.strides[0] as usize;
        let mut copy = vec![0; width];
        array.read()?.copy(row as usize * width, &mut copy, false);
        match array.element {
            Element::Byte => Ok(PyBytes::new(slf.py(), &copy).into_any()),
            Element::Bool => Ok(PyBool::new(slf.py(), copy[0] != 0).to_owned().into_any()),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf.as_any(), slf.get().__len__())
    }

    /// All bytes, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let reading = self.read()?;
        PyBytes::new_with(py, self.memory.len, |to| {
            reading.copy(0, to, false);
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

    /// NumPy's type of the elements.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = py
            .import("numpy")
            .map_err(|_| PyAttributeError::new_err("dtype: it is NumPy's, which is not installed"))?;
        numpy.call_method1("dtype", (self.format(),))
    }

    /// 2 for rows of bytes, otherwise 1.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// As `numpy.asarray(array, dtype)`, or a copy.
    #[pyo3(signature = (dtype=None, copy=false))]
    fn to_numpy<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let copy = copy.then(|| PyBool::new(slf.py(), true).to_owned().into_any());
        Array::__array__(slf, dtype, copy.as_ref())
    }

    /// How pandas knows what wraps an array of NumPy. Without this name, it takes verdicts for a list of labels, or of row numbers.
    #[classattr]
    fn _typ() -> &'static str {
        "npy_extension"
    }

    /// Whether all verdicts are true. A null is false.
    #[pyo3(signature = (axis=None, out=None, **options))]
    fn all<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Array::reduce(slf, "all", |verdicts| verdicts.iter().all(|verdict| *verdict != 0), [axis, out], options)
    }

    /// Whether a verdict is true. A null is false.
    #[pyo3(signature = (axis=None, out=None, **options))]
    fn any<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Array::reduce(slf, "any", |verdicts| verdicts.iter().any(|verdict| *verdict != 0), [axis, out], options)
    }

    /// The rows: bytes or booleans, and None for nulls.
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().get_type::<PyList>().call1((slf,))
    }

    /// How many rows have this value.
    fn count<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Array::tolist(slf)?.call_method1("count", (value,))
    }

    /// The first row with this value.
    #[pyo3(signature = (value, start=0, stop=isize::MAX))]
    fn index<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        start: isize,
        stop: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        Array::tolist(slf)?.call_method1("index", (value, start, stop))
    }

    /// The opposite verdicts. A null stays null.
    fn __invert__(&self) -> PyResult<Array> {
        let rows = self.__len__();
        let mut verdicts = self.verdicts("~")?;
        for (row, verdict) in verdicts.iter_mut().enumerate() {
            *verdict = u8::from(*verdict == 0 && self.nulls.as_ref().is_none_or(|nulls| !nulls.is_null(row)));
        }
        let nulls = self.nulls.as_ref().and_then(|nulls| nulls.select(rows, |row| row));
        Ok(Array { nulls, ..Array::new(verdicts, Element::Bool, &[rows]) })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, array) = (slf.py(), slf.get());
        let restored = py.import("hypergrove._hypergrove")?.getattr("_array")?;
        (restored, (array.tobytes(py)?, array.format(), array.sizes(), array.reasons())).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(isize::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let kind = if self.element == Element::Byte { "uint8" } else { "bool" };
        let nulls = self.nulls.as_ref().map_or_else(String::new, |nulls| format!(", nulls: {}", nulls.count));
        format!("<hypergrove.Array of {kind}, shape ({}{comma}){nulls}>", shape.join(", "))
    }

    /// Capsules of Arrow's C data interface: FixedSizeBinary for rows of bytes, otherwise UInt8 or Boolean. The requested schema has no effect.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        #[expect(unused_variables, reason = "a producer may leave it unread")] requested_schema: Option<
            &Bound<'py, PyAny>,
        >,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let (format, bytes) = match (self.element, &self.shape[..]) {
            (Element::Bool, _) => {
                let bits = |eight: &[u8]| eight.iter().rev().fold(0, |bits, byte| bits << 1 | u8::from(*byte != 0));
                ("b".into(), ExportedBytes::Copied(self.copy()?.chunks(8).map(bits).collect()))
            }
            (Element::Byte, [_, width]) => (format!("w:{width}"), self.freeze()?),
            (Element::Byte, _) => ("C".into(), self.freeze()?),
        };
        let nulls = (self.null_count(), self.nulls.as_ref().map(Nulls::validity));
        arrow::export(py, format, self.__len__(), nulls, bytes)
    }

    /// A tensor of DLPack in the host's memory, of uint8 or bool. Of Arrow's nulls it knows nothing: they are zeros.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("stream: the array is in the host's memory, which has none; give None"));
        }
        if dl_device.is_some_and(|device| device != dlpack::DEVICE) {
            return Err(PyBufferError::new_err("dl_device: the array is in the host's memory; ask for a copy there"));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let (bytes, may_write) = match copy {
            Some(true) => (ExportedBytes::Copied(self.copy()?), true),
            // Tensors of earlier versions cannot say that they are read-only.
            _ => {
                let may_write = self.memory.begin_view(!is_versioned)?;
                (ExportedBytes::Shared(Share { memory: self.memory.clone(), is_frozen: false }), may_write)
            }
        };
        let shape = [&self.shape, &self.strides].map(|all| all.iter().map(|size| *size as i64).collect());
        dlpack::export(py, bytes, self.element, shape, is_versioned, may_write)
    }

    /// DLPack's type and number of the host's memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::DEVICE
    }

    /// # Safety
    ///
    /// `view` is a `Py_buffer` to be filled, or null.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to be filled"));
        }
        let array = slf.get();
        let asks = |what| flags & what == what;
        let may_write = match array.memory.begin_view(asks(ffi::PyBUF_WRITABLE)) {
            Ok(may_write) => may_write,
            Err(why) => {
                // SAFETY: Python asks that `obj` be null after an error.
                unsafe { (*view).obj = std::ptr::null_mut() };
                return Err(why);
            }
        };
        // Who asks for no shape gets bytes in a row.
        let dimensions = if asks(ffi::PyBUF_ND) { array.shape.len() as c_int } else { 1 };
        let null = std::ptr::null_mut::<c_void>();
        // SAFETY: the caller gave a `Py_buffer`. The array owns the memory, the shape and the strides, never moves them, and lives
        // as long as `obj`. Nobody writes through the pointers to shape, strides and format (PEP 3118).
        unsafe {
            (*view).buf = array.memory.start.as_ptr().cast();
            (*view).len = array.memory.len as isize;
            (*view).readonly = c_int::from(!may_write);
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
        self.memory.uses().views -= 1;
    }
}

/// The array that was pickled. A pickle may hold anything.
#[pyfunction(name = "_array")]
pub(crate) fn restored(
    data: &Bound<'_, PyBytes>,
    format: &str,
    shape: Vec<usize>,
    reasons: Vec<(usize, String)>,
) -> PyResult<Array> {
    let mut bytes = data.as_bytes().to_vec();
    let element = match (format, shape.len()) {
        ("B", 1 | 2) => Element::Byte,
        ("?", 1) => Element::Bool,
        _ => return Err(bad("the pickle of an array is damaged: it is of no such shape and type")),
    };
    // Results alone have nulls, and no result has rows without bytes.
    let may_have_nulls = reasons.is_empty() || !bytes.is_empty();
    let is_full = may_have_nulls && size(shape[0], shape.get(1).copied().unwrap_or(1))? == bytes.len();
    if !is_full || reasons.iter().any(|(row, _)| *row >= shape[0]) || !reasons.is_sorted() {
        return Err(bad("the pickle of an array is damaged: it has other rows than its shape"));
    }
    if element == Element::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Ok(Array { nulls: Nulls::of(shape[0], reasons.into_iter()), ..Array::new(bytes, element, &shape) })
}

/// An iterator over the rows of an object of ours: each is made when it is asked for.
pub(crate) fn iterate<'py>(object: &Bound<'py, PyAny>, rows: usize) -> PyResult<Bound<'py, PyAny>> {
    let numbers = PyRange::new(object.py(), 0, rows as isize)?;
    object.py().import("builtins")?.getattr("map")?.call1((object.getattr("__getitem__")?, numbers))
}
