//! The structures of DLPack, and tensors that are taken from their capsules.

use crate::error::bad;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

/// The version that producers are asked for, and whose structures these are.
pub(super) const VERSION: (u32, u32) = (1, 0);

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub(super) const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
pub(super) const IS_COPIED: u64 = 2;

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(super) struct ElementType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// `DLTensor`, with its `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawTensor {
    pub(super) data: *mut u8,
    pub(super) device: i32,
    pub(super) device_number: i32,
    pub(super) dimensions: i32,
    pub(super) element: ElementType,
    pub(super) shape: *const i64,
    /// Null where there are no gaps.
    pub(super) strides: *const i64,
    pub(super) byte_offset: u64,
}

/// `DLManagedTensor`: before DLPack 1.0.
#[repr(C)]
pub(super) struct Unversioned {
    pub(super) tensor: RawTensor,
    pub(super) manager: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

/// `DLManagedTensorVersioned`. Of another major version, only what comes before the flags is the same.
#[repr(C)]
pub(super) struct Versioned {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) manager: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(super) flags: u64,
    pub(super) tensor: RawTensor,
}

/// A tensor that is ours to delete.
pub(super) enum Managed {
    Unversioned(NonNull<Unversioned>),
    Versioned(NonNull<Versioned>),
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken from its capsule, so that nobody else deletes it. Any thread may call its deleter.
        unsafe {
            match self {
                Managed::Unversioned(at) => {
                    if let Some(delete) = (*at.as_ptr()).deleter {
                        delete(at.as_ptr());
                    }
                }
                Managed::Versioned(at) => {
                    if let Some(delete) = (*at.as_ptr()).deleter {
                        delete(at.as_ptr());
                    }
                }
            }
        }
    }
}

impl Managed {
    /// Takes a tensor out of its capsule, which is renamed, as the specification asks.
    pub(super) fn take(capsule: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<Managed> {
        let Ok(capsule) = capsule.cast::<PyCapsule>() else {
            let kind = capsule.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "{}: its __dlpack__ gives {kind}, where a capsule is wanted",
                what()
            )));
        };
        // No other thread of ours takes it meanwhile, where threads are free.
        with_critical_section(capsule, || {
            let take = |name, used: &CStr| {
                if !capsule.is_valid_checked(Some(name)) {
                    return Ok(None);
                }
                let at = capsule.pointer_checked(Some(name))?;
                // SAFETY: Python is attached, the capsule lives, and the name is a constant.
                match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } {
                    0 => Ok(Some(at)),
                    _ => Err(PyErr::fetch(capsule.py())),
                }
            };
            if let Some(at) = take(c"dltensor_versioned", c"used_dltensor_versioned")? {
                return Ok(Managed::Versioned(at.cast()));
            }
            if let Some(at) = take(c"dltensor", c"used_dltensor")? {
                return Ok(Managed::Unversioned(at.cast()));
            }
            Err(bad(format!(
                "{}: its __dlpack__ gives a capsule without a tensor, or one that was used before; ask for another",
                what()
            )))
        })
    }

    /// The tensor, and why it must not be written, where it must not.
    pub(super) fn tensor(&self, what: &dyn Fn() -> String) -> PyResult<(RawTensor, Option<&'static str>)> {
        match self {
            Managed::Unversioned(at) => {
                // SAFETY: by its name the capsule had such a structure, which is not deleted.
                let tensor = unsafe { ptr::read(&raw const (*at.as_ptr()).tensor) };
                Ok((
                    tensor,
                    Some("is a tensor of DLPack before 1.0, which may be read-only; give an array with a buffer"),
                ))
            }
            Managed::Versioned(at) => {
                // SAFETY: as above; every version begins with these numbers.
                let (major, minor) = unsafe { ((*at.as_ptr()).major, (*at.as_ptr()).minor) };
                if major != VERSION.0 {
                    return Err(bad(format!(
                        "{}: a tensor of DLPack {major}.{minor}, where {}.x is understood; give an array with a buffer",
                        what(),
                        VERSION.0
                    )));
                }
                // SAFETY: as above; the version is that of the structure.
                let (tensor, flags) = unsafe { (ptr::read(&raw const (*at.as_ptr()).tensor), (*at.as_ptr()).flags) };
                let read_only = match () {
                    () if flags & READ_ONLY != 0 => Some("is read-only; give an array that may be written"),
                    () if flags & IS_COPIED != 0 => {
                        Some("gives a copy of itself by DLPack; give an array with a buffer")
                    }
                    () => None,
                };
                Ok((tensor, read_only))
            }
        }
    }
}
