//! What calls take and give, as columns of the engine.

use crate::error::{Failure, bad};
use crate::foreign::array::{Array, Element};
use crate::foreign::arrow::ArrowColumn;
use crate::foreign::buffer::ForeignBytes;
use crate::foreign::list::ListedBytes;
use crate::foreign::racing::Copying;
use crate::parts::{Held, Out};
use hypergrove::rows::{Column, Offsets, RowStatus};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyRange, PySequence, PyString};
use std::ops::{ControlFlow, Deref};
use std::time::{Duration, Instant};

/// Bytes that a call was given.
pub(crate) enum Bytes {
    /// `bytes`, which never change.
    Shared(PyBackedBytes),
    /// A copy of what may change.
    Copied(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Shared(bytes) => bytes,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// The bytes of an argument.
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Bytes> {
        Ok(match Value::of(object, || what.into())? {
            Value::Shared(bytes) => Bytes::Shared(bytes),
            Value::Foreign(bytes) => {
                let mut copy = zeros(bytes.len())?;
                bytes.copy_out(0, &mut copy, Copying::ALONE);
                Bytes::Copied(copy)
            }
        })
    }
}

/// One value, where the caller has it.
pub(crate) enum Value {
    /// `bytes`, which never change.
    Shared(PyBackedBytes),
    /// Memory that others may write to.
    Foreign(Box<ForeignBytes>),
}

impl Value {
    fn of(object: &Bound<'_, PyAny>, what: impl Fn() -> String) -> PyResult<Value> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Value::Shared(PyBackedBytes::from(bytes.clone())));
        }
        let Some(bytes) = ForeignBytes::of(object, &what)? else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{}: {kind} is not bytes, and has no buffer of bytes", what())));
        };
        let dimensions = bytes.shape().len();
        if dimensions > 1 {
            return Err(bad(format!("{}: a buffer with {dimensions} dimensions, where one is wanted", what())));
        }
        Ok(Value::Foreign(bytes.into()))
    }

    fn shared(&self) -> Option<&[u8]> {
        match self {
            Value::Shared(bytes) => Some(bytes),
            Value::Foreign(_) => None,
        }
    }

    pub(crate) fn foreign(&self) -> Option<&ForeignBytes> {
        match self {
            Value::Shared(_) => None,
            Value::Foreign(bytes) => Some(bytes),
        }
    }
}

/// Zeros, or an exception where there is no memory for them.
pub(crate) fn zeros(len: usize) -> PyResult<Vec<u8>> {
    // Asked first, since `vec!` ends the process where there is none. Its zeros are the system's: nobody has to write them.
    let asked = Vec::<u8>::new().try_reserve_exact(len);
    asked.map_err(|_| PyMemoryError::new_err(format!("there is no memory for {len} bytes")))?;
    Ok(vec![0; len])
}

/// Statuses of rows that are not computed.
pub(crate) fn statuses(rows: usize) -> PyResult<Vec<RowStatus>> {
    let mut all = Vec::new();
    all.try_reserve_exact(rows).map_err(|_| too_many(rows))?;
    all.resize(rows, RowStatus::default());
    Ok(all)
}

pub(crate) fn too_many(rows: usize) -> PyErr {
    PyMemoryError::new_err(format!("there is no memory for {rows} rows"))
}

/// Bytes of so many rows.
pub(crate) fn size(rows: usize, width: usize) -> PyResult<usize> {
    let bytes = rows.checked_mul(width).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| PyMemoryError::new_err(format!("{rows} rows of {width} bytes are more than memory can have")))
}

/// One value for each row, as the caller gave them.
pub(crate) struct Rows {
    /// The argument's name.
    what: &'static str,
    pub(crate) count: usize,
    source: Source,
}

enum Source {
    Listed(ListedBytes),
    Each(Vec<Value>),
    Foreign(ForeignBytes, usize),
    Array(Py<Array>, usize),
    Arrow(ArrowColumn),
}

impl Rows {
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &'static str) -> PyResult<Rows> {
        let rows = |count, source| Ok(Rows { what, count, source });
        if let Ok(array) = object.cast::<Array>() {
            return match (array.get().element(), &array.get().sizes()[..]) {
                (Element::Byte, [count, width]) => rows(*count, Source::Array(array.clone().unbind(), *width)),
                _ => Err(bad(format!("{what}: {} has no rows of bytes", array.repr()?))),
            };
        }
        let is_one = object.is_instance_of::<PyBytes>()
            || object.is_instance_of::<PyByteArray>()
            || object.is_instance_of::<PyString>();
        if is_one {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "{what}: {kind} is one value; give a sequence of values, a two-dimensional array of uint8 or an Arrow array"
            )));
        }
        if let Some(listed) = ListedBytes::of(object)? {
            return rows(listed.values().len(), Source::Listed(listed));
        }
        // A view is a sequence too, of numbers.
        if let Ok(sequence) = object.cast::<PySequence>()
            && !object.is_instance_of::<PyMemoryView>()
        {
            let (mut all, count) = (Vec::new(), sequence.len()?);
            all.try_reserve_exact(count).map_err(|_| too_many(count))?;
            for (row, item) in sequence.try_iter()?.enumerate() {
                // It may have no end.
                if row == count {
                    return Err(bad(format!("{what}: the sequence has more than its {count} rows; give a list")));
                }
                all.push(Value::of(&item?, || format!("{what}: row {row}"))?);
            }
            return rows(all.len(), Source::Each(all));
        }
        if let Some(column) = ArrowColumn::of(object, what)? {
            return rows(column.rows(), Source::Arrow(column));
        }
        let Some(bytes) = ForeignBytes::of(object, &|| what.into())? else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "{what}: {kind} is no column; give a sequence of bytes, a two-dimensional array of uint8 or an Arrow array"
            )));
        };
        match *bytes.shape() {
            [count, width] => rows(count, Source::Foreign(bytes, width)),
            ref shape => Err(bad(format!(
                "{what}: an array with {} dimensions; rows are two-dimensional, of shape (rows, bytes of a row)",
                shape.len()
            ))),
        }
    }

    /// Bytes of each row, where the column says so once for all.
    pub(crate) fn width(&self) -> Option<usize> {
        match &self.source {
            Source::Foreign(_, width) | Source::Array(_, width) => Some(*width),
            Source::Arrow(column) => column.width(),
            Source::Listed(_) | Source::Each(_) => None,
        }
    }

    /// Refuses a column whose rows all have another width.
    pub(crate) fn check_width(&self, width: usize, of: &str) -> PyResult<()> {
        match self.width() {
            Some(other) if other != width && self.count > 0 => {
                Err(bad(format!("{}: rows of {other} bytes; {of} has {width}", self.what)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses columns of different lengths.
    pub(crate) fn check_count(&self, count: usize, of: &str) -> PyResult<()> {
        if self.count == count {
            return Ok(());
        }
        Err(bad(format!("{} has {} rows, {of} has {count}; give one for each row", self.what, self.count)))
    }

    /// Holds the rows for a call. Python need not be attached.
    pub(crate) fn hold(&self) -> PyResult<Held<'_>> {
        Ok(match &self.source {
            Source::Listed(all) => Held::Still(Column::Slices(all.values())),
            Source::Each(all) => {
                all.iter().map(Value::shared).collect::<Option<Vec<_>>>().map_or(Held::Each(all), Held::Slices)
            }
            Source::Foreign(bytes, width) => Held::Foreign { bytes, width: *width },
            Source::Array(array, width) => {
                let (reading, width, rows) = (array.get().read()?, *width, self.count);
                match reading.bytes().is_some() {
                    true => Held::Read { reading, width, rows },
                    false => Held::Seen { reading, width },
                }
            }
            Source::Arrow(column) => {
                let mut chunks = column.columns();
                match (chunks.next(), chunks.next()) {
                    (None, _) => Held::Slices(Vec::new()),
                    (Some(only), None) => Held::Still(only),
                    _ => Held::Slices(self.join(column)?),
                }
            }
        })
    }

    /// Whether the offsets of a row are wrong.
    fn has_bad_offsets(&self, row: usize) -> bool {
        let Source::Arrow(column) = &self.source else { return false };
        let mut first = 0;
        column.columns().any(|chunk| {
            let place = row.checked_sub(first);
            first += chunk.rows();
            place.is_some_and(|row| row < chunk.rows() && value_of(chunk, row).is_none())
        })
    }

    /// Names the column that a failure is about.
    pub(crate) fn name(columns: &[&Rows], why: Failure) -> Failure {
        if let Failure::Row(row, RowStatus::BadOffsets) = why
            && let Some(column) = columns.iter().find(|column| column.has_bad_offsets(row))
        {
            return why.of_column(column.what);
        }
        why
    }

    /// The values of all arrays of a column.
    fn join<'a>(&self, column: &'a ArrowColumn) -> PyResult<Vec<&'a [u8]>> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.count).map_err(|_| too_many(self.count))?;
        for chunk in column.columns() {
            for row in 0..chunk.rows() {
                let value = value_of(chunk, row);
                all.push(value.ok_or_else(|| Failure::Row(all.len(), RowStatus::BadOffsets).of_column(self.what))?);
            }
        }
        Ok(all)
    }
}

/// A value of a column of Arrow.
fn value_of(column: Column<'_>, row: usize) -> Option<&[u8]> {
    fn between<T: Copy + TryInto<usize>>(offsets: &[T], row: usize) -> Option<std::ops::Range<usize>> {
        Some((*offsets.get(row)?).try_into().ok()?..(*offsets.get(row + 1)?).try_into().ok()?)
    }
    match column {
        Column::Packed { bytes, width, stride, .. } => bytes.get(row * stride..)?.get(..width),
        Column::Variable { bytes, offsets: Offsets::I32(offsets) } => bytes.get(between(offsets, row)?),
        Column::Variable { bytes, offsets: Offsets::I64(offsets) } => bytes.get(between(offsets, row)?),
        Column::Slices(all) => all.get(row).copied(),
    }
}

/// Where a call writes its rows.
pub(crate) enum Target<'py> {
    New,
    Array(Bound<'py, Array>),
    Foreign(Bound<'py, PyAny>, ForeignBytes),
}

impl<'py> Target<'py> {
    /// Checks `out`, if it is given: it must have the results' shape.
    pub(crate) fn of(out: Option<&Bound<'py, PyAny>>, rows: usize, width: usize) -> PyResult<Target<'py>> {
        let fits = |shape: &[usize]| match shape == [rows, width] {
            true => Ok(()),
            false => Err(bad(format!("out has the shape {shape:?}; the results have [{rows}, {width}]"))),
        };
        let Some(out) = out else { return Ok(Target::New) };
        if let Ok(array) = out.cast::<Array>() {
            if array.get().element() != Element::Byte {
                return Err(PyTypeError::new_err("out: an array of booleans; the results are uint8"));
            }
            fits(&array.get().sizes())?;
            return Ok(Target::Array(array.clone()));
        }
        let bytes = foreign_out(out)?;
        fits(bytes.shape())?;
        match bytes.read_only() {
            Some(why) => Err(bad(format!("out {why}"))),
            None => Ok(Target::Foreign(out.clone(), bytes)),
        }
    }

    /// Gives `work` a place for `rows` results of `width` bytes, with Python detached, and makes an array of it where the caller has none.
    pub(crate) fn fill(
        self,
        py: Python<'py>,
        (rows, width): (usize, usize),
        work: impl FnOnce(Out<'_>) -> Result<(), Failure> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Target::New => {
                let mut bytes = zeros(size(rows, width)?)?;
                py.detach(|| work(Out::Own(&mut bytes)))?;
                Ok(Bound::new(py, Array::new(bytes, Element::Byte, &[rows, width]))?.into_any())
            }
            Target::Array(array) => {
                let Some(mut writing) = array.get().write()? else {
                    // Others can see it.
                    let bytes = foreign_out(&array)?;
                    return Target::Foreign(array.into_any(), bytes).fill(py, (rows, width), work);
                };
                py.detach(|| work(Out::Own(writing.bytes())))?;
                drop(writing);
                Ok(array.into_any())
            }
            Target::Foreign(out, memory) => {
                py.detach(|| work(Out::Foreign(&memory, 0)))?;
                Ok(out)
            }
        }
    }
}

/// The bytes of `out`, which is no array of ours.
fn foreign_out(out: &Bound<'_, PyAny>) -> PyResult<ForeignBytes> {
    let bytes = ForeignBytes::of(out, &|| "out".into())?;
    let kind = out.get_type().name()?;
    bytes.ok_or_else(|| PyTypeError::new_err(format!("out: {kind} has no buffer of bytes; give an array of uint8")))
}

/// Lets a call end by Ctrl-C.
pub(crate) struct Signals {
    next: Instant,
    raised: Option<PyErr>,
    /// Whether handlers of signals run on this thread, as far as that is known.
    is_main: Option<bool>,
}

impl Signals {
    /// To attach Python may take as long as another thread keeps it.
    pub(crate) const PAUSE: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Signals {
        Signals { next: Instant::now() + Signals::PAUSE, raised: None, is_main: None }
    }

    /// Asks Python now and then, if its main thread has called us: no other runs handlers, and one that attaches to a Python that ends
    /// takes the process along. Called on the thread that called us.
    pub(crate) fn check(&mut self) -> ControlFlow<()> {
        if self.is_main == Some(false) || Instant::now() < self.next {
            return ControlFlow::Continue(());
        }
        let asked = Python::try_attach(|py| {
            let is_main = match self.is_main {
                Some(is_main) => is_main,
                None => is_main(py)?,
            };
            self.is_main = Some(is_main);
            if is_main { py.check_signals() } else { Ok(()) }
        });
        self.next = Instant::now() + Signals::PAUSE;
        match asked {
            Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(why)) => {
                self.raised = Some(why);
                ControlFlow::Break(())
            }
            // Python ends.
            None => {
                self.is_main = Some(false);
                ControlFlow::Continue(())
            }
        }
    }

    /// What a signal's handler raised.
    pub(crate) fn finish(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}

/// Whether this is Python's main thread.
fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}

/// The keys of a sequence that begins with one; `None` for anything else.
pub(crate) fn keys_of<'py, K: PyTypeInfo>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, K>>>> {
    let Ok(sequence) = object.cast::<PySequence>() else { return Ok(None) };
    let count = sequence.len()?;
    if count == 0 || !sequence.get_item(0).is_ok_and(|first| first.is_instance_of::<K>()) {
        return Ok(None);
    }
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| too_many(count))?;
    for (row, item) in sequence.try_iter()?.take(count.saturating_add(1)).enumerate() {
        let item = item?;
        let kind = item.get_type();
        let key = item.cast_into::<K>().map_err(|_| {
            let kind = kind.name().map_or_else(|_| "no key".into(), |name| name.to_string());
            PyTypeError::new_err(format!("public_keys: row {row} is {kind}, not PublicKey"))
        });
        all.push(key?);
    }
    match all.len() == count {
        true => Ok(Some(all)),
        // It may have no end, or have changed.
        false => {
            Err(bad(format!("public_keys: the sequence has other rows than the {count} of its length; give a list")))
        }
    }
}

/// Statuses of a call that gives each row a result.
pub(crate) fn check_statuses(statuses: &[RowStatus], good: RowStatus) -> Result<(), Failure> {
    match statuses.iter().position(|status| *status != good) {
        Some(row) => Err(Failure::Row(row, statuses[row])),
        None => Ok(()),
    }
}

/// Verdicts of a call: a signature of another length is not valid.
pub(crate) fn verdicts(statuses: &[RowStatus]) -> Result<Vec<u8>, Failure> {
    let verdict = |(row, status): (usize, &RowStatus)| match status {
        RowStatus::Valid => Ok(1),
        RowStatus::Invalid | RowStatus::SignatureLength => Ok(0),
        other => Err(Failure::Row(row, *other)),
    };
    statuses.iter().enumerate().map(verdict).collect()
}

/// An array of booleans.
pub(crate) fn booleans(py: Python<'_>, verdicts: Vec<u8>) -> PyResult<Bound<'_, Array>> {
    let rows = verdicts.len();
    Bound::new(py, Array::new(verdicts, Element::Bool, &[rows]))
}

/// An iterator over the rows of an object of ours: each is made when it is asked for.
pub(crate) fn iterate<'py>(object: &Bound<'py, PyAny>, rows: usize) -> PyResult<Bound<'py, PyAny>> {
    let numbers = PyRange::new(object.py(), 0, rows as isize)?;
    object.py().import("builtins")?.getattr("map")?.call1((object.getattr("__getitem__")?, numbers))
}
