//! Tensors on the host, by DLPack and its capsules: <https://dmlc.github.io/dlpack/latest/python_spec.html>.
//!
//! A tensor is an address and a shape. As with Arrow, a producer that lies about them can crash a process, as it can with every
//! consumer. Everything that can be checked is checked: version, device, elements, dimensions, sizes and strides.

use super::buffer::{ForeignBytes, MOST_DIMENSIONS, Owner, bytes_of};
use super::memory::{Element, ExportedBytes};
use super::tensor::{ElementType, IS_COPIED, Managed, READ_ONLY, RawTensor, Unversioned, VERSION, Versioned};
use crate::error::bad;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::CStr;
use std::ptr::{self, NonNull};

/// `kDLCPU`.
const HOST: i32 = 1;

/// Where arrays of ours are.
pub(super) const DEVICE: (i32, i32) = (HOST, 0);

/// `kDLUInt` of 8 bits, one to an element.
const UINT8: ElementType = ElementType { code: 1, bits: 8, lanes: 1 };

/// `kDLBool`.
const BOOL: ElementType = ElementType { code: 6, ..UINT8 };

impl ForeignBytes {
    /// The bytes of an object that has `__dlpack__`, or None.
    pub(super) fn of_tensor(object: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<Option<ForeignBytes>> {
        let Some(export) = object.getattr_opt("__dlpack__")? else { return Ok(None) };
        let py = object.py();
        let failed = |why: PyErr| {
            if !why.is_instance_of::<PyException>(py) {
                return why;
            }
            let error = PyValueError::new_err(format!("{}: its __dlpack__ failed: {why}", what()));
            error.set_cause(py, Some(why));
            error
        };
        if let Some(device) = object.getattr_opt("__dlpack_device__")? {
            let device = device.call0().map_err(failed)?;
            let Ok((kind, number)) = device.extract() else {
                return Err(PyTypeError::new_err(format!(
                    "{}: its __dlpack_device__ gives no pair of numbers; give an array with a buffer",
                    what()
                )));
            };
            check_device(kind, number, what)?;
        }
        let options = PyDict::new(py);
        options.set_item("max_version", VERSION)?;
        let capsule = match export.call((), Some(&options)) {
            // Producers from before DLPack 1.0 know no versions.
            Err(why) if why.is_instance_of::<PyTypeError>(py) => export.call0(),
            capsule => capsule,
        };
        let managed = Managed::take(&capsule.map_err(failed)?, what)?;
        let (tensor, read_only) = managed.tensor(what)?;
        let (start, len, shape) = tensor.bytes(what)?;
        // SAFETY: the producer says that so many bytes are there, and keeps them in place until the tensor is deleted.
        Ok(Some(unsafe { ForeignBytes::new(start, len, shape, read_only, Owner::Tensor(managed)) }))
    }
}

impl RawTensor {
    /// Where the bytes begin, how many there are, and their shape.
    fn bytes(&self, what: &dyn Fn() -> String) -> PyResult<(*mut u8, usize, Vec<usize>)> {
        let wrong = |why: &str| bad(format!("{}: a tensor of DLPack that {why}; copy it to bytes", what()));
        check_device(self.device, self.device_number, what)?;
        if self.element != UINT8 {
            return Err(PyTypeError::new_err(format!(
                "{}: a tensor of DLPack of {}; the elements must be uint8",
                what(),
                self.element.name()
            )));
        }
        let dimensions = usize::try_from(self.dimensions).ok().filter(|count| *count <= MOST_DIMENSIONS);
        let dimensions = dimensions.ok_or_else(|| wrong("has a negative number of dimensions, or more than 64"))?;
        if dimensions > 0 && self.shape.is_null() {
            return Err(wrong("has no shape"));
        }
        // SAFETY: a shape that is not null has a number for each dimension.
        let sizes = (0..dimensions).map(|at| unsafe { self.shape.add(at).read_unaligned() });
        let shape = sizes.map(|size| usize::try_from(size).ok().filter(|size| isize::try_from(*size).is_ok()));
        let shape = shape.collect::<Option<Vec<usize>>>().ok_or_else(|| wrong("has a negative size"))?;
        let len = bytes_of(&shape).ok_or_else(|| wrong("has more bytes than memory can have"))?;
        if len == 0 {
            return Ok((NonNull::dangling().as_ptr(), 0, shape));
        }
        if !self.strides.is_null() {
            let mut step = 1;
            for at in (0..dimensions).rev() {
                // SAFETY: strides that are not null have a number for each dimension.
                let stride = unsafe { self.strides.add(at).read_unaligned() };
                if shape[at] > 1 && stride != step {
                    return Err(bad(format!(
                        "{}: the tensor is not contiguous; copy it, by .contiguous() for example",
                        what()
                    )));
                }
                // No more than all bytes.
                step *= shape[at] as i64;
            }
        }
        // No memory has more bytes than an `isize` can count.
        let end = usize::try_from(self.byte_offset).ok().and_then(|offset| offset.checked_add(len));
        let end = end.filter(|end| isize::try_from(*end).is_ok());
        if end.and_then(|end| self.data.addr().checked_add(end)).is_none() {
            return Err(wrong("ends beyond the address space"));
        }
        if self.data.is_null() {
            return Err(wrong("has bytes and no address"));
        }
        Ok((self.data.wrapping_add(self.byte_offset as usize), len, shape))
    }
}

impl ElementType {
    fn name(self) -> String {
        let ElementType { code, bits, lanes } = self;
        let kind = match code {
            0 => "int",
            1 => "uint",
            2 => "float",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            _ => return format!("elements of the type code {code}, {bits} bits"),
        };
        if lanes == 1 { format!("{kind}{bits}") } else { format!("{kind}{bits}, {lanes} to an element") }
    }
}

/// Refuses what is not in the host's memory.
fn check_device(kind: i32, number: i32, what: &dyn Fn() -> String) -> PyResult<()> {
    let name = match kind {
        HOST => return Ok(()),
        2 => format!("cuda:{number}"),
        3 => "pinned CUDA memory".to_owned(),
        7 => format!("vulkan:{number}"),
        8 => format!("metal:{number}"),
        10 => format!("rocm:{number}"),
        13 => "managed CUDA memory".to_owned(),
        _ => format!("a device of DLPack's type {kind}"),
    };
    Err(bad(format!("{}: a tensor on {name}; copy it to the host's memory, by .cpu() for example", what())))
}

/// A tensor that we export, with what it keeps. It begins with the structure that the consumer gets.
#[repr(C)]
struct Exported<T> {
    managed: T,
    _shape: [Vec<i64>; 2],
    _bytes: ExportedBytes,
}

/// The capsule of a tensor of bytes or booleans of ours, with its shape and its strides.
pub(super) fn export<'py>(
    py: Python<'py>,
    bytes: ExportedBytes,
    element: Element,
    [shape, strides]: [Vec<i64>; 2],
    is_versioned: bool,
    may_write: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let tensor = RawTensor {
        data: bytes.start().cast_mut(),
        device: DEVICE.0,
        device_number: DEVICE.1,
        dimensions: shape.len() as i32,
        element: if element == Element::Bool { BOOL } else { UINT8 },
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        byte_offset: 0,
    };
    let manager = ptr::null_mut();
    let flags = match (may_write, &bytes) {
        (false, _) => READ_ONLY,
        (true, ExportedBytes::Copied(_)) => IS_COPIED,
        (true, _) => 0,
    };
    let shape = [shape, strides];
    if is_versioned {
        let ((major, minor), deleter) = (VERSION, Some(delete as unsafe extern "C" fn(*mut Versioned)));
        let managed = Versioned { major, minor, manager, deleter, flags, tensor };
        return capsule(py, Exported { managed, _shape: shape, _bytes: bytes }, c"dltensor_versioned");
    }
    let managed = Unversioned { tensor, manager, deleter: Some(delete) };
    capsule(py, Exported { managed, _shape: shape, _bytes: bytes }, c"dltensor")
}

fn capsule<'py, T>(py: Python<'py>, exported: Exported<T>, name: &'static CStr) -> PyResult<Bound<'py, PyCapsule>> {
    let at = NonNull::from(Box::leak(Box::new(exported))).cast();
    // SAFETY: the pointer is good until `delete`, which the destructor calls unless a consumer has taken the tensor.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, at, name, Some(delete_unused::<T>)) }
}

/// # Safety
///
/// The structure is one of [`capsule`]'s, and not deleted. Any thread may delete it.
unsafe extern "C" fn delete<T>(managed: *mut T) {
    // SAFETY: as the caller says; the structure is the first field.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<T>>()) });
}

/// Deletes the tensor of a capsule, unless a consumer has taken the tensor and put "used_" before the capsule's name.
///
/// # Safety
///
/// The capsule is one of [`capsule`]'s, and Python is attached.
unsafe extern "C" fn delete_unused<T>(capsule: *mut ffi::PyObject) {
    // SAFETY: as the caller says.
    unsafe {
        let name = ffi::PyCapsule_GetName(capsule);
        if !name.is_null() && !CStr::from_ptr(name).to_bytes().starts_with(b"used_") {
            delete::<T>(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
