//! The memory of an array, and who uses it.

use super::racing::load;
use hypergrove::Process;
use hypergrove::rows::Memory;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The type of an array's elements.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Element {
    Byte,
    Bool,
}

impl Element {
    pub(super) fn format(self) -> &'static CStr {
        match self {
            Element::Byte => c"B",
            Element::Bool => c"?",
        }
    }
}

/// The owner of an array's memory. The memory is reached through `SharedMemory` until the owner is dropped.
pub(super) enum ArrayOwner {
    Ordinary {
        _bytes: Vec<u8>,
    },
    /// Memory of an engine, which only the process that has the engine can give back.
    Device {
        memory: ManuallyDrop<Memory>,
        process: Process,
    },
}

impl Drop for ArrayOwner {
    fn drop(&mut self) {
        if let ArrayOwner::Device { memory, process } = self
            && *process == Process::current()
        {
            // SAFETY: this is the drop of what holds it, so nobody uses it again.
            unsafe { ManuallyDrop::drop(memory) }
        }
    }
}

/// Who uses an array's memory now.
#[derive(Default)]
pub(super) struct Uses {
    /// Buffers and tensors that Python has of it; they may be written to, unless they were made while the memory was frozen.
    pub(super) views: usize,
    /// Arrow arrays that share it: their consumers rely on memory that does not change.
    pub(super) frozen: usize,
    /// Calls that read it as a slice.
    pub(super) readers: usize,
    /// Who copies from it, with views or without.
    pub(super) copiers: usize,
    pub(super) is_written: bool,
}

/// The memory of an array, and of what was exported of it, which may live longer.
pub(super) struct SharedMemory {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    pub(super) uses: Mutex<Uses>,
    pub(super) _owner: ArrayOwner,
}

// SAFETY: `start` belongs to `_owner`, which any thread may drop. Its bytes are reached through `Reading` and `Writing`, which `uses` keeps
// apart, through views, which exclude both, and through Arrow arrays, which exclude `Writing` and views that may be written to.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(super) fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a view, and tells whether it may be written to.
    pub(super) fn begin_view(&self, must_write: bool) -> PyResult<bool> {
        let mut uses = self.uses();
        if uses.readers > 0 || uses.is_written {
            return Err(in_use("a call reads it or writes to it, so there is no view until the call ends"));
        }
        if uses.frozen > 0 && must_write {
            return Err(in_use("an Arrow array shares its memory, so that its views are read-only"));
        }
        uses.views += 1;
        Ok(uses.frozen == 0)
    }
}

/// Bytes that were exported.
pub(super) enum ExportedBytes {
    Copied(Vec<u8>),
    Shared(Share),
}

impl ExportedBytes {
    pub(super) fn start(&self) -> *const u8 {
        match self {
            ExportedBytes::Copied(bytes) => bytes.as_ptr(),
            ExportedBytes::Shared(share) => share.memory.start.as_ptr(),
        }
    }
}

/// Memory that is shared: a view that is no buffer, or one that keeps the memory from changes.
pub(super) struct Share {
    pub(super) memory: Arc<SharedMemory>,
    pub(super) is_frozen: bool,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut uses = self.memory.uses();
        *if self.is_frozen { &mut uses.frozen } else { &mut uses.views } -= 1;
    }
}

pub(super) fn in_use(why: &str) -> PyErr {
    PyBufferError::new_err(format!("the array is in use: {why}; use another array"))
}

/// An array that is read.
pub(crate) struct Reading<'a> {
    pub(super) memory: &'a SharedMemory,
    /// Whether there was no view.
    pub(super) is_alone: bool,
}

impl Reading<'_> {
    /// The bytes, where nobody else can write to them.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: `Array::read` found no view and no writer, and there can be none until this is dropped.
        self.is_alone.then(|| unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.len) })
    }

    /// The addresses of the bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.memory.start.addr().get();
        start..start + self.memory.len
    }

    /// Copies bytes, while others may write to views.
    pub(crate) fn copy(&self, from: usize, to: &mut [u8], past_caches: bool) {
        let end = from.checked_add(to.len());
        assert!(end.is_some_and(|end| end <= self.memory.len), "bytes of the array");
        // SAFETY: the bytes are within the array's memory, to which no call writes until this is dropped.
        unsafe { load(self.memory.start.as_ptr().add(from), to, past_caches) };
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut uses = self.memory.uses();
        *if self.is_alone { &mut uses.readers } else { &mut uses.copiers } -= 1;
    }
}

/// An array that a call writes to.
pub(crate) struct Writing<'a>(pub(super) &'a SharedMemory);

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
