//! Columns of Arrow, by the C data interface and its capsules: <https://arrow.apache.org/docs/format/CDataInterface.html>.
//!
//! The interface gives addresses without lengths. Its promises are taken on trust: a producer that lies about its buffers can
//! crash a process, as it can with every consumer. Everything that can be checked is checked: counts, alignment, and each row's
//! offsets, view or index.

use super::memory::ExportedBytes;
use crate::error::{RowFault, bad};
use crate::room::too_many;
use hypergrove::quote::Quote;
use hypergrove::rows::{Column, Offsets};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyTuple};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

/// `ARROW_FLAG_NULLABLE`.
const NULLABLE: i64 = 2;

/// Bytes of a view. A value that fits into the view behind its length has no buffer.
const VIEW: usize = 16;
const INLINE: usize = 12;

/// In place of a number, for rows of a dictionary-encoded column that have no value.
pub(crate) const NO_VALUE: u32 = u32::MAX;

/// `struct ArrowSchema`.
#[repr(C)]
#[derive(Default)]
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
#[derive(Default)]
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
#[derive(Default)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut RawArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// A structure of the interface: whoever has one that is not released, releases it. The default is released already, for a producer to fill.
trait Released: Default {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)>;
}

macro_rules! released {
    ($($structure:ty),+) => {$(
        impl Released for $structure {
            fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
                &mut self.release
            }
        }
    )+};
}

released!(Schema, RawArray, Stream);

/// A structure that is ours to release.
#[repr(transparent)]
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
// SAFETY: as above.
unsafe impl Send for Owned<Schema> {}

/// How values lie.
#[derive(Clone, Copy)]
enum ValueLayout {
    /// Binary and Utf8.
    Offsets32,
    /// LargeBinary and LargeUtf8.
    Offsets64,
    /// BinaryView and Utf8View.
    Views,
    /// FixedSizeBinary, of so many bytes.
    Fixed(usize),
}

impl ValueLayout {
    fn of(format: &str) -> Option<ValueLayout> {
        match format {
            "z" | "u" => Some(ValueLayout::Offsets32),
            "Z" | "U" => Some(ValueLayout::Offsets64),
            "vz" | "vu" => Some(ValueLayout::Views),
            _ => {
                let width = format.strip_prefix("w:")?.parse().ok()?;
                (width <= isize::MAX as usize).then_some(ValueLayout::Fixed(width))
            }
        }
    }
}

/// The indices of a dictionary-encoded column.
#[derive(Clone, Copy)]
struct IndexType {
    width: usize,
    is_signed: bool,
}

impl IndexType {
    fn of(format: &str) -> Option<IndexType> {
        let width = match format {
            "c" | "C" => 1,
            "s" | "S" => 2,
            "i" | "I" => 4,
            "l" | "L" => 8,
            _ => return None,
        };
        Some(IndexType { width, is_signed: format.chars().all(char::is_lowercase) })
    }

    /// The index with these bytes. A negative one is none.
    fn read(self, bytes: &[u8]) -> Option<usize> {
        let index = match *bytes {
            [byte] => u64::from(byte),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        };
        let is_negative = self.is_signed && index >> (8 * self.width - 1) == 1;
        usize::try_from(index).ok().filter(|_| !is_negative)
    }
}

const AS_TEXT: &str =
    "`pc.cast(column, pa.string())`, or in Polars `column.cast(pl.String)`, makes text of it, whose bytes are UTF-8";
const NO_WAY: &str = "nothing casts these to bytes; give a column of binary";

/// A column's type that has no bytes of its rows, by its format: in words, with a way to bytes.
fn unread(format: &str) -> (Cow<'static, str>, &'static str) {
    macro_rules! of_bytes {
        ($polars:literal) => {
            concat!(
                "if they are lists of bytes, `pa.array([None if row is None else bytes(row) for row in column.to_pylist()])`, or in Polars ",
                $polars,
                ", makes rows of them"
            )
        };
    }
    let (kind, way) = match format {
        "n" => ("nulls alone", "`pc.cast(column, pa.large_binary())` gives it a type"),
        "b" => ("booleans", AS_TEXT),
        "c" | "C" | "s" | "S" | "i" | "I" | "l" | "L" => ("integers", AS_TEXT),
        "e" | "f" | "g" => ("floating-point numbers", AS_TEXT),
        "tiM" | "tiD" | "tin" => ("intervals", NO_WAY),
        "+m" => ("maps", NO_WAY),
        "+s" => ("structs", "pass a field of it, `pc.struct_field(column, 0)` for example; of a table, pass a column"),
        "+r" => ("run-end encoded values", "`pc.run_end_decode(column)` gives each row its value"),
        "+l" | "+L" | "+vl" | "+vL" => ("lists", of_bytes!("`column.cast(pl.Binary)`")),
        _ if format.starts_with("+w:") => ("lists of one length", of_bytes!("`column.arr.to_list().cast(pl.Binary)`")),
        _ if format.starts_with("+u") => ("unions", NO_WAY),
        _ if format.starts_with("d:") => ("decimal numbers", AS_TEXT),
        _ if format.starts_with('t') => ("dates or times", AS_TEXT),
        _ => return (format!("an unknown format, {}", Quote::new(format)).into(), "cast it to binary"),
    };
    (kind.into(), way)
}

/// The type of a column.
#[derive(Clone, Copy)]
struct ColumnType {
    values: ValueLayout,
    /// If the column is dictionary-encoded.
    index: Option<IndexType>,
}

impl ColumnType {
    fn of(schema: &Schema, what: &str) -> PyResult<ColumnType> {
        let format = schema.format(what)?;
        let refused = |why: String| PyTypeError::new_err(format!("{what}: {why}"));
        // SAFETY: a dictionary that is not null is the schema of the values, and lives as long as this one.
        let Some(dictionary) = (unsafe { schema.dictionary.as_ref() }) else {
            let other = || {
                let (kind, way) = unread(&format);
                refused(format!("an Arrow column of {kind}; {way}"))
            };
            let values = ValueLayout::of(&format).ok_or_else(other)?;
            return Ok(ColumnType { values, index: None });
        };
        let index = IndexType::of(&format);
        let index = index
            .ok_or_else(|| refused("an Arrow dictionary whose indices are no integers; validate the array".into()))?;
        let format = dictionary.format(what)?;
        let values = ValueLayout::of(&format).filter(|_| dictionary.dictionary.is_null());
        let values = values.ok_or_else(|| {
            let (kind, way) = match dictionary.dictionary.is_null() {
                true => unread(&format),
                false => ("dictionaries".into(), NO_WAY),
            };
            let way = if way == AS_TEXT { way } else { NO_WAY };
            refused(format!("an Arrow dictionary of {kind}; {way}"))
        })?;
        Ok(ColumnType { values, index: Some(index) })
    }
}

impl Schema {
    fn format(&self, what: &str) -> PyResult<String> {
        if self.format.is_null() {
            return Err(bad(format!("{what}: an Arrow array without a format; validate it")));
        }
        // SAFETY: the interface wants a string that ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.format) }.to_string_lossy().into_owned())
    }
}

/// The distinct values of a dictionary-encoded column, and the number of each row's.
pub(crate) type Table<'a> = (Vec<&'a [u8]>, Vec<u32>);

/// A column of Arrow: arrays of one type, whose rows follow one another.
pub(crate) struct ArrowColumn {
    kind: ColumnType,
    chunks: Vec<ArrowChunk>,
    pub(crate) has_nulls: bool,
}

/// An array that was checked.
struct ArrowChunk {
    /// The rows, or their indices in the dictionary.
    rows: Values,
    dictionary: Option<(IndexType, Values)>,
    _array: Owned<RawArray>,
}

/// The values of an array that was checked; good as long as the array is not released.
struct Values {
    layout: ValueLayout,
    count: usize,
    offset: usize,
    buffers: *const *const c_void,
    /// The number of buffers.
    buffer_count: usize,
    /// A bit for each value, set where there is one; null if no value is.
    validity: *const u8,
    /// Bytes of the values, or of their views.
    bytes: usize,
}

// SAFETY: what an array points to does not change until it is released.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}

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
            let kind = ColumnType::of(&schema.0, what)?;
            return Ok(Some(ArrowColumn::new(kind, vec![ArrowChunk::of(array, kind, what)?])));
        }
        let Some(export) = object.getattr_opt("__arrow_c_stream__")? else { return Ok(None) };
        ask_producer(object, what)?;
        let mut stream: Owned<Stream> = Owned::take(&export.call0()?, c"arrow_array_stream", what)?;
        let mut schema = Owned(Schema::default());
        let get_schema = stream.0.get_schema;
        // SAFETY: the stream is not released, and its function fills an empty structure.
        let code = get_schema.map(|get| unsafe { get(&mut stream.0, &mut schema.0) });
        stream.check(code, what)?;
        let kind = ColumnType::of(&schema.0, what)?;
        let (mut chunks, mut rows) = (Vec::new(), 0_usize);
        loop {
            let mut array = Owned(RawArray::default());
            let get_next = stream.0.get_next;
            // SAFETY: as above.
            let code = get_next.map(|get| unsafe { get(&mut stream.0, &mut array.0) });
            stream.check(code, what)?;
            // The end.
            if array.0.release.is_none() {
                return Ok(Some(ArrowColumn::new(kind, chunks)));
            }
            let chunk = ArrowChunk::of(array, kind, what)?;
            // Arrays of values without bytes can have any number.
            rows = rows
                .checked_add(chunk.rows.count)
                .ok_or_else(|| bad(format!("{what}: more rows than memory can have")))?;
            chunks.push(chunk);
            // A stream may have no end.
            object.py().check_signals()?;
        }
    }

    fn new(kind: ColumnType, chunks: Vec<ArrowChunk>) -> ArrowColumn {
        let has_nulls = chunks.iter().any(ArrowChunk::has_nulls);
        ArrowColumn { kind, chunks, has_nulls }
    }

    pub(crate) fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows.count).sum()
    }

    /// The width of all values, if they have one.
    pub(crate) fn width(&self) -> Option<usize> {
        if let ValueLayout::Fixed(width) = self.kind.values { Some(width) } else { None }
    }

    /// The rows as the engine takes them, where it can without a look at each of them.
    pub(crate) fn whole(&self) -> Option<Column<'_>> {
        match &self.chunks[..] {
            [chunk] => chunk.plain(),
            _ => None,
        }
    }

    /// The value of each row.
    pub(crate) fn values(&self) -> impl Iterator<Item = Result<&[u8], RowFault>> {
        self.chunks.iter().flat_map(|chunk| {
            let plain = chunk.plain().filter(|_| chunk.rows.validity.is_null());
            (0..chunk.rows.count).map(move |row| match plain {
                Some(column) => column.get(row).ok_or(RowFault::Offsets),
                None => chunk.get(row),
            })
        })
    }

    pub(crate) fn is_dictionary(&self) -> bool {
        self.kind.index.is_some()
    }

    /// The values of a dictionary-encoded column. A row without a value of this length has the number [`NO_VALUE`].
    pub(crate) fn table(&self, length: usize) -> PyResult<Table<'_>> {
        let (mut values, mut known, mut of) = (Vec::new(), HashMap::new(), Vec::new());
        of.try_reserve_exact(self.rows()).map_err(|_| too_many(self.rows()))?;
        for chunk in &self.chunks {
            let Some((_, dictionary)) = &chunk.dictionary else { continue };
            // One more than the number of each entry that was seen. Its zeros are the system's, as those of `room::zeros`.
            let reserved = Vec::<u32>::new().try_reserve_exact(dictionary.count);
            reserved.map_err(|_| too_many(dictionary.count))?;
            let mut seen = vec![0_u32; dictionary.count];
            for row in 0..chunk.rows.count {
                let Ok(index) = chunk.index(row) else {
                    of.push(NO_VALUE);
                    continue;
                };
                if seen[index] == 0
                    && let Ok(value) = dictionary.get(index)
                    && value.len() == length
                {
                    // Chunks may have dictionaries of their own.
                    let number = *known.entry(value).or_insert(values.len() as u32);
                    if number as usize == values.len() {
                        values.push(value);
                    }
                    seen[index] = number + 1;
                }
                // Without a value, it is zero, and becomes NO_VALUE.
                of.push(seen[index].wrapping_sub(1));
            }
        }
        Ok((values, of))
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
    /// Checks the code that a function of the stream has returned.
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

impl ArrowChunk {
    /// Checks an array.
    fn of(array: Owned<RawArray>, kind: ColumnType, what: &str) -> PyResult<ArrowChunk> {
        let wrong = |why: &str| bad(format!("{what}: an Arrow array that {why}; validate it"));
        let Some(index) = kind.index else {
            let rows = Values::of(&array.0, kind.values, &wrong)?;
            return Ok(ArrowChunk { rows, dictionary: None, _array: array });
        };
        let rows = Values::of(&array.0, ValueLayout::Fixed(index.width), &wrong)?;
        // SAFETY: a dictionary that is not null is the array of the values, which is released with this one.
        let dictionary = unsafe { array.0.dictionary.as_ref() }.ok_or_else(|| wrong("has no dictionary"))?;
        let wrong = |why: &str| bad(format!("{what}: an Arrow array whose dictionary {why}; validate it"));
        let dictionary = Values::of(dictionary, kind.values, &wrong)?;
        Ok(ArrowChunk { rows, dictionary: Some((index, dictionary)), _array: array })
    }

    /// The rows, if they are neither views nor in a dictionary.
    fn plain(&self) -> Option<Column<'_>> {
        if self.dictionary.is_none() { self.rows.column() } else { None }
    }

    fn get(&self, row: usize) -> Result<&[u8], RowFault> {
        match &self.dictionary {
            None => self.rows.get(row),
            Some((_, dictionary)) => dictionary.get(self.index(row)?),
        }
    }

    /// The entry of the dictionary that a row has.
    fn index(&self, row: usize) -> Result<usize, RowFault> {
        let Some((kind, dictionary)) = &self.dictionary else { return Err(RowFault::Index) };
        let index = kind.read(self.rows.get(row)?);
        index.filter(|index| *index < dictionary.count).ok_or(RowFault::Index)
    }

    fn has_nulls(&self) -> bool {
        let dictionary = self.dictionary.as_ref().map(|(_, values)| values);
        let may_have = !self.rows.validity.is_null() || dictionary.is_some_and(|values| !values.validity.is_null());
        may_have && (0..self.rows.count).any(|row| self.get(row) == Err(RowFault::Null))
    }
}

impl Values {
    /// Checks the buffers of an array, or of a dictionary. `wrong` makes an error of what is wrong.
    fn of(raw: &RawArray, layout: ValueLayout, wrong: &dyn Fn(&str) -> PyErr) -> PyResult<Values> {
        let size = |number: i64, why| usize::try_from(number).map_err(|_| wrong(why));
        let count = size(raw.length, "has a negative length")?;
        let offset = size(raw.offset, "has a negative offset")?;
        let end = offset.checked_add(count).filter(|end| *end < isize::MAX as usize / VIEW);
        let end = end.ok_or_else(|| wrong("has more rows than memory can have"))?;
        let has_all = match layout {
            ValueLayout::Fixed(_) => raw.n_buffers == 2,
            ValueLayout::Offsets32 | ValueLayout::Offsets64 => raw.n_buffers == 3,
            // The views' own, and the lengths of others.
            ValueLayout::Views => raw.n_buffers >= 3,
        };
        if !has_all || raw.buffers.is_null() || raw.n_children != 0 {
            return Err(wrong("has another number of buffers than its type"));
        }
        let (buffers, buffer_count) = (raw.buffers, raw.n_buffers as usize);
        let mut values = Values { layout, count, offset, buffers, buffer_count, validity: ptr::null(), bytes: 0 };
        // Of no rows, buffers may be null.
        if count == 0 {
            return Ok(values);
        }
        if raw.null_count != 0 {
            values.validity = values.buffer(0).cast();
        }
        if raw.null_count > 0 && values.validity.is_null() {
            return Err(wrong("has nulls and does not say where"));
        }
        values.bytes = match layout {
            ValueLayout::Fixed(width) => end.checked_mul(width).filter(|bytes| isize::try_from(*bytes).is_ok()),
            ValueLayout::Views => Some(end * VIEW),
            ValueLayout::Offsets32 => values.offsets::<i32>().and_then(|all| usize::try_from(*all.last()?).ok()),
            ValueLayout::Offsets64 => values
                .offsets::<i64>()
                .and_then(|all| isize::try_from(*all.last()?).ok())
                .and_then(|end| usize::try_from(end).ok()),
        }
        .ok_or_else(|| wrong("has offsets that are not there, not aligned or negative"))?;
        let check = |buffer: *const c_void, bytes: usize| {
            if bytes > 0 && buffer.is_null() {
                return Err(wrong("has no bytes"));
            }
            // No process has the upper half of 64-bit addresses.
            let end = buffer.addr().checked_add(bytes);
            match end.is_none_or(|end| usize::BITS == 64 && isize::try_from(end).is_err()) {
                true => Err(wrong("ends beyond the address space")),
                false => Ok(()),
            }
        };
        check(values.buffer(values.first()), values.bytes)?;
        for number in 0..values.shared_buffers() {
            let bytes = values.length(number).ok_or_else(|| wrong("does not say how long its buffers are"))?;
            check(values.buffer(2 + number), bytes)?;
        }
        Ok(values)
    }

    fn buffer(&self, number: usize) -> *const c_void {
        // SAFETY: `Values::of` checked that there are so many buffers.
        unsafe { *self.buffers.add(number) }
    }

    /// The number of the buffer with the values, or with their views.
    fn first(&self) -> usize {
        if matches!(self.layout, ValueLayout::Fixed(_) | ValueLayout::Views) { 1 } else { 2 }
    }

    /// How many buffers views point to.
    fn shared_buffers(&self) -> usize {
        if let ValueLayout::Views = self.layout { self.buffer_count - 3 } else { 0 }
    }

    /// Bytes of a buffer that views point to.
    fn length(&self, number: usize) -> Option<usize> {
        let all: *const i64 = self.buffer(self.buffer_count - 1).cast();
        // SAFETY: the last buffer of views has the lengths of those that they point to.
        let length = (!all.is_null()).then(|| unsafe { all.add(number).read_unaligned() });
        length.and_then(|length| isize::try_from(length).ok()).and_then(|length| usize::try_from(length).ok())
    }

    fn is_null(&self, row: usize) -> bool {
        let at = self.offset + row;
        // SAFETY: the array has one bit of validity for each row up to its last.
        !self.validity.is_null() && unsafe { *self.validity.add(at / 8) } >> (at % 8) & 1 == 0
    }

    fn get(&self, row: usize) -> Result<&[u8], RowFault> {
        if self.is_null(row) {
            return Err(RowFault::Null);
        }
        match self.column() {
            Some(column) => column.get(row).ok_or(RowFault::Offsets),
            None => self.view(row).ok_or(RowFault::View),
        }
    }

    /// The bytes that a row's view points to.
    fn view(&self, row: usize) -> Option<&[u8]> {
        let view = self.buffer(1).cast::<[u8; VIEW]>().wrapping_add(self.offset + row);
        // SAFETY: the array has a view for each row up to its last. Length, first bytes, number of the buffer, offset in it.
        let [length, _, buffer, offset] = unsafe { view.cast::<[i32; 4]>().read_unaligned() };
        let length = usize::try_from(length).ok()?;
        if length <= INLINE {
            // SAFETY: as above; such a value lies in its view, and does not change.
            return Some(unsafe { std::slice::from_raw_parts(view.cast::<u8>().add(VIEW - INLINE), length) });
        }
        let (buffer, offset) = (usize::try_from(buffer).ok()?, usize::try_from(offset).ok()?);
        let size = if buffer < self.shared_buffers() { self.length(buffer)? } else { return None };
        let is_within = offset.checked_add(length).is_some_and(|end| end <= size);
        // SAFETY: the buffer has `size` bytes, which do not change.
        is_within
            .then(|| unsafe { std::slice::from_raw_parts(self.buffer(2 + buffer).cast::<u8>().add(offset), length) })
    }

    /// The offsets of its rows, one more than there are rows, if they are there and aligned.
    fn offsets<T>(&self) -> Option<&[T]> {
        let all: *const T = self.buffer(1).cast();
        // SAFETY: the array has one offset more than it has rows up to its last, and they do not change. Their type is the layout's.
        (!all.is_null() && all.is_aligned())
            .then(|| unsafe { std::slice::from_raw_parts(all.add(self.offset), self.count + 1) })
    }

    /// All values, if they are no views.
    fn column(&self) -> Option<Column<'_>> {
        let bytes = || match self.bytes {
            0 => &[][..],
            // SAFETY: the array's values have so many bytes, by its type's width or by its last offset, and do not change.
            len => unsafe { std::slice::from_raw_parts(self.buffer(self.first()).cast::<u8>(), len) },
        };
        Some(match self.layout {
            _ if self.count == 0 => Column::Slices(&[]),
            ValueLayout::Views => return None,
            ValueLayout::Fixed(width) => {
                let bytes = &bytes()[self.offset * width..];
                Column::Packed { bytes, width, stride: width, rows: self.count }
            }
            ValueLayout::Offsets32 => {
                Column::Variable { bytes: bytes(), offsets: Offsets::I32(self.offsets().unwrap_or_default()) }
            }
            ValueLayout::Offsets64 => {
                Column::Variable { bytes: bytes(), offsets: Offsets::I64(self.offsets().unwrap_or_default()) }
            }
        })
    }
}

/// The data that an array that we export keeps until it is released.
struct Exported {
    buffers: [*const c_void; 2],
    _validity: Option<Vec<u8>>,
    _bytes: ExportedBytes,
}

/// The capsules of an array of ours: `rows` elements of a format, without those whose bit in `validity` is not set.
pub(super) fn export<'py>(
    py: Python<'py>,
    format: String,
    rows: usize,
    (nulls, validity): (usize, Option<Vec<u8>>),
    bytes: ExportedBytes,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let format = CString::new(format).map_err(bad)?.into_raw();
    let schema =
        Schema { format, name: c"".as_ptr(), flags: NULLABLE, release: Some(release_schema), ..Schema::default() };
    let bits = validity.as_ref().map_or(ptr::null(), |bits| bits.as_ptr());
    let buffers = [bits.cast(), bytes.start().cast()];
    let exported = Box::into_raw(Box::new(Exported { buffers, _validity: validity, _bytes: bytes }));
    let array = RawArray {
        length: rows as i64,
        null_count: nulls as i64,
        n_buffers: 2,
        // SAFETY: it is not released before the array is.
        buffers: unsafe { (*exported).buffers.as_ptr() },
        release: Some(release_array),
        private_data: exported.cast(),
        ..RawArray::default()
    };
    let (schema, array) = (Owned(schema), Owned(array));
    // A capsule that nobody takes anything from releases what it has.
    Ok((PyCapsule::new_with_value(py, schema, c"arrow_schema")?, PyCapsule::new_with_value(py, array, c"arrow_array")?))
}

/// # Safety
///
/// The schema is one of [`export`]'s, and not released.
unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: as the caller says; `export` made the format of a `CString`.
    unsafe {
        drop(CString::from_raw((*schema).format.cast_mut()));
        (*schema).release = None;
    }
}

/// # Safety
///
/// The array is one of [`export`]'s, and not released. Any thread may release it.
unsafe extern "C" fn release_array(array: *mut RawArray) {
    // SAFETY: as the caller says; `export` made `private_data` of a `Box`.
    unsafe {
        drop(Box::from_raw((*array).private_data.cast::<Exported>()));
        (*array).release = None;
    }
}
