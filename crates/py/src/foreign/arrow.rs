//! Columns of Arrow, by the C data interface and its capsules: <https://arrow.apache.org/docs/format/CDataInterface.html>.
//!
//! The interface gives addresses without lengths. What it promises is taken as it is: a producer that lies about its buffers can
//! crash a process, as it can with every consumer. What can be checked is checked: counts, alignment, nulls, and each row's offsets.

use crate::error::bad;
use hypergrove::rows::{Column, Offsets};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

/// `struct ArrowSchema`.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
struct RawArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut RawArray,
    dictionary: *mut RawArray,
    release: Option<unsafe extern "C" fn(*mut RawArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut RawArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// A structure of the interface: whoever has one that is not released, releases it.
trait Released: Sized {
    /// One that is released already, for a producer to fill.
    const EMPTY: Self;
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)>;
}

impl Released for Schema {
    const EMPTY: Schema = Schema {
        format: ptr::null(),
        name: ptr::null(),
        metadata: ptr::null(),
        flags: 0,
        n_children: 0,
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: None,
        private_data: ptr::null_mut(),
    };
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Schema)> {
        &mut self.release
    }
}

impl Released for RawArray {
    const EMPTY: RawArray = RawArray {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: ptr::null(),
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: None,
        private_data: ptr::null_mut(),
    };
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut RawArray)> {
        &mut self.release
    }
}

impl Released for Stream {
    const EMPTY: Stream =
        Stream { get_schema: None, get_next: None, get_last_error: None, release: None, private_data: ptr::null_mut() };
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Stream)> {
        &mut self.release
    }
}

/// A structure that is ours to release.
struct Owned<T: Released>(T);

impl<T: Released> Owned<T> {
    /// Moves a structure out of a capsule, as the interface describes: what the capsule has is released then.
    fn take(capsule: &Bound<'_, PyAny>, name: &CStr, what: &str) -> PyResult<Owned<T>> {
        let other = || {
            let name = name.to_string_lossy();
            PyTypeError::new_err(format!(
                "{what}: its Arrow interface gave no capsule {name:?}; its package has a fault"
            ))
        };
        let capsule = capsule.cast::<PyCapsule>().map_err(|_| other())?;
        let at: NonNull<T> = capsule.pointer_checked(Some(name)).map_err(|_| other())?.cast();
        // Where threads are free, a capsule can be given to two of them.
        with_critical_section(capsule, || {
            // SAFETY: by its name the capsule has such a structure, and by the critical section nobody else uses it.
            let mut taken = unsafe { Owned(ptr::read(at.as_ptr())) };
            if taken.0.release().is_none() {
                return Err(bad(format!("{what}: the Arrow capsule was used before; ask its object for another")));
            }
            // SAFETY: as above.
            unsafe { *(*at.as_ptr()).release() = None };
            Ok(taken)
        })
    }
}

impl<T: Released> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Some(release) = *self.0.release() {
            // SAFETY: the structure is ours and not released yet; its producer's function takes it.
            unsafe { release(&mut self.0) }
        }
    }
}

// SAFETY: what an array points to does not change until it is released, and any thread may release it.
unsafe impl Send for Owned<RawArray> {}
// SAFETY: as above.
unsafe impl Sync for Owned<RawArray> {}

/// How values lie.
#[derive(Clone, Copy)]
enum ValueLayout {
    /// Binary.
    Offsets32,
    /// LargeBinary.
    Offsets64,
    /// FixedSizeBinary, of so many bytes.
    Fixed(usize),
}

impl ValueLayout {
    fn of(schema: &Schema, what: &str) -> PyResult<ValueLayout> {
        if schema.format.is_null() {
            return Err(bad(format!("{what}: an Arrow array without a format; validate it")));
        }
        // SAFETY: the interface wants a string that ends with a zero.
        let format = unsafe { CStr::from_ptr(schema.format) }.to_string_lossy();
        if schema.dictionary.is_null() {
            match (&*format, format.strip_prefix("w:").map(str::parse)) {
                ("z", _) => return Ok(ValueLayout::Offsets32),
                ("Z", _) => return Ok(ValueLayout::Offsets64),
                (_, Some(Ok(width))) if width <= isize::MAX as usize => return Ok(ValueLayout::Fixed(width)),
                _ => {}
            }
        }
        let kind = if schema.dictionary.is_null() { "the format" } else { "a dictionary with indices of the format" };
        Err(PyTypeError::new_err(format!(
            "{what}: an Arrow array of {kind} {format:?}; cast it to binary, large_binary or fixed-size binary"
        )))
    }
}

/// A column of Arrow: arrays of one type, whose rows follow one another.
pub(crate) struct ArrowColumn {
    layout: ValueLayout,
    chunks: Vec<Chunk>,
}

/// An array that was checked.
struct Chunk {
    array: Owned<RawArray>,
    rows: usize,
    offset: usize,
    /// Bytes of its values.
    bytes: usize,
}

impl ArrowColumn {
    /// The column that an object exports, if it has one of the methods of the interface. `what` is the argument's name.
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<ArrowColumn>> {
        if let Some(export) = object.getattr_opt("__arrow_c_array__")? {
            ask_producer(object, what)?;
            let pair = export.call0()?;
            let pair = pair.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(|| {
                PyTypeError::new_err(format!("{what}: __arrow_c_array__ gave no two capsules; its package has a fault"))
            })?;
            let schema: Owned<Schema> = Owned::take(&pair.get_item(0)?, c"arrow_schema", what)?;
            let array: Owned<RawArray> = Owned::take(&pair.get_item(1)?, c"arrow_array", what)?;
            let layout = ValueLayout::of(&schema.0, what)?;
            let chunk = Chunk::of(array, layout, 0, what)?;
            return Ok(Some(ArrowColumn { layout, chunks: vec![chunk] }));
        }
        let Some(export) = object.getattr_opt("__arrow_c_stream__")? else { return Ok(None) };
        ask_producer(object, what)?;
        let mut stream: Owned<Stream> = Owned::take(&export.call0()?, c"arrow_array_stream", what)?;
        let mut schema = Owned(Schema::EMPTY);
        let get_schema = stream.0.get_schema;
        // SAFETY: the stream is not released, and its function fills an empty structure.
        let code = get_schema.map(|get| unsafe { get(&mut stream.0, &mut schema.0) });
        stream.check(code, what)?;
        let layout = ValueLayout::of(&schema.0, what)?;
        let (mut chunks, mut rows) = (Vec::new(), 0);
        loop {
            let mut array = Owned(RawArray::EMPTY);
            let get_next = stream.0.get_next;
            // SAFETY: as above.
            let code = get_next.map(|get| unsafe { get(&mut stream.0, &mut array.0) });
            stream.check(code, what)?;
            // The end.
            if array.0.release.is_none() {
                return Ok(Some(ArrowColumn { layout, chunks }));
            }
            let chunk = Chunk::of(array, layout, rows, what)?;
            // Arrays of values without bytes can have any number.
            rows =
                rows.checked_add(chunk.rows).ok_or_else(|| bad(format!("{what}: more rows than memory can have")))?;
            chunks.push(chunk);
            // A stream may have no end.
            object.py().check_signals()?;
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows).sum()
    }

    /// The width of all values, if they have one.
    pub(crate) fn width(&self) -> Option<usize> {
        if let ValueLayout::Fixed(width) = self.layout { Some(width) } else { None }
    }

    /// The columns of the arrays, one after the other.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Column<'_>> {
        self.chunks.iter().map(|chunk| chunk.column(self.layout))
    }
}

/// An exporter that can check itself, as those of pyarrow can, knows its buffers' lengths, which the interface does not tell.
fn ask_producer(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let Some(validate) = object.getattr_opt("validate")?.filter(|it| it.is_callable()) else { return Ok(()) };
    validate.call0().map(drop).map_err(|why| match why.is_instance_of::<PyException>(object.py()) {
        true => PyValueError::new_err(format!("{what}: {}", why.value(object.py()))),
        // An interrupt, for example.
        false => why,
    })
}

impl Owned<Stream> {
    /// What a function of the stream has returned.
    fn check(&mut self, code: Option<c_int>, what: &str) -> PyResult<()> {
        if code == Some(0) {
            return Ok(());
        }
        // SAFETY: the stream is not released; it gives null, or a string until its next call.
        let why = self.0.get_last_error.and_then(|get| unsafe {
            let text = get(&mut self.0);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        });
        Err(bad(format!("{what}: the Arrow stream failed: {}", why.as_deref().unwrap_or("it does not say why"))))
    }
}

impl Chunk {
    /// Checks an array. `before` rows of the column come before its own.
    fn of(array: Owned<RawArray>, layout: ValueLayout, before: usize, what: &str) -> PyResult<Chunk> {
        let wrong = |why: &str| bad(format!("{what}: an Arrow array that {why}; validate it"));
        let raw = &array.0;
        let size = |number: i64, why| usize::try_from(number).map_err(|_| wrong(why));
        let rows = size(raw.length, "has a negative length")?;
        let offset = size(raw.offset, "has a negative offset")?;
        let end = offset.checked_add(rows).filter(|end| *end < isize::MAX as usize / 16);
        let end = end.ok_or_else(|| wrong("has more rows than memory can have"))?;
        let buffers = if matches!(layout, ValueLayout::Fixed(_)) { 2 } else { 3 };
        if raw.n_buffers != buffers || raw.buffers.is_null() || raw.n_children != 0 {
            return Err(wrong("has another number of buffers than its type"));
        }
        let mut chunk = Chunk { rows, offset, bytes: 0, array };
        // Of no rows, buffers may be null.
        if rows == 0 {
            return Ok(chunk);
        }
        if chunk.array.0.null_count > 0 && chunk.buffer(0).is_null() {
            return Err(wrong("has nulls and does not say where"));
        }
        if let Some(row) = chunk.first_null() {
            return Err(bad(format!("{what}: row {} is null; drop the nulls or fill them", before + row)));
        }
        chunk.bytes = match layout {
            ValueLayout::Fixed(width) => end.checked_mul(width).filter(|bytes| isize::try_from(*bytes).is_ok()),
            ValueLayout::Offsets32 => chunk.offsets::<i32>().and_then(|all| usize::try_from(*all.last()?).ok()),
            ValueLayout::Offsets64 => chunk
                .offsets::<i64>()
                .and_then(|all| isize::try_from(*all.last()?).ok())
                .and_then(|end| usize::try_from(end).ok()),
        }
        .ok_or_else(|| wrong("has offsets that are not there, not aligned or negative"))?;
        let values = chunk.buffer(buffers as usize - 1);
        if chunk.bytes > 0 && values.is_null() {
            return Err(wrong("has no bytes"));
        }
        // No process has the upper half of 64-bit addresses.
        let end = values.addr().checked_add(chunk.bytes);
        if end.is_none_or(|end| usize::BITS == 64 && isize::try_from(end).is_err()) {
            return Err(wrong("ends beyond the address space"));
        }
        Ok(chunk)
    }

    fn buffer(&self, number: usize) -> *const c_void {
        // SAFETY: `Chunk::of` checked that there are so many buffers.
        unsafe { *self.array.0.buffers.add(number) }
    }

    /// The first row without a value.
    fn first_null(&self) -> Option<usize> {
        let bits: *const u8 = self.buffer(0).cast();
        if self.array.0.null_count == 0 || bits.is_null() {
            return None;
        }
        // SAFETY: the array has one bit of validity for each row up to its last.
        let is_valid = |at: usize| unsafe { *bits.add(at / 8) } >> (at % 8) & 1 == 1;
        (0..self.rows).find(|row| !is_valid(self.offset + row))
    }

    /// The offsets of its rows, one more than there are rows, if they are there and aligned.
    fn offsets<T>(&self) -> Option<&[T]> {
        let all: *const T = self.buffer(1).cast();
        // SAFETY: the array has one offset more than it has rows up to its last, and they do not change. Their type is the layout's.
        (!all.is_null() && all.is_aligned())
            .then(|| unsafe { std::slice::from_raw_parts(all.add(self.offset), self.rows + 1) })
    }

    fn column(&self, layout: ValueLayout) -> Column<'_> {
        let bytes = |buffer| match self.bytes {
            0 => &[][..],
            // SAFETY: the array's values have so many bytes, by its type's width or by its last offset, and do not change.
            len => unsafe { std::slice::from_raw_parts(self.buffer(buffer).cast::<u8>(), len) },
        };
        match layout {
            _ if self.rows == 0 => Column::Slices(&[]),
            ValueLayout::Fixed(width) => {
                Column::Packed { bytes: &bytes(1)[self.offset * width..], width, stride: width, rows: self.rows }
            }
            ValueLayout::Offsets32 => {
                Column::Variable { bytes: bytes(2), offsets: Offsets::I32(self.offsets().unwrap_or_default()) }
            }
            ValueLayout::Offsets64 => {
                Column::Variable { bytes: bytes(2), offsets: Offsets::I64(self.offsets().unwrap_or_default()) }
            }
        }
    }
}
