//! Arguments and results of calls, as columns of the engine.

use crate::error::{Failure, RowFault, bad};
use crate::exit::{Inside, detach};
use crate::foreign::array::Array;
use crate::foreign::arrow::{ArrowColumn, Table};
use crate::foreign::buffer::ForeignBytes;
use crate::foreign::list::ListedBytes;
use crate::foreign::memory::Element;
use crate::gaps::Gaps;
use crate::held::{Held, RacingRows, RowsInMemory, Value};
use crate::room::{size, too_many, zeros};
use hypergrove::Error;
use hypergrove::rows::{Column, ForeignMemory, RowMemory, RowStatus};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PySequence, PyString};
use std::iter::repeat_n;
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
            Value::Null => return Err(bad(format!("{what}: None is not bytes"))),
            Value::Shared(bytes) => Bytes::Shared(bytes),
            Value::Foreign(bytes) => {
                let mut copy = zeros(bytes.len())?;
                bytes.copy_out(0, &mut copy, false);
                Bytes::Copied(copy)
            }
        })
    }
}

/// The text of a key or a passphrase: a str, as UTF-8, or bytes. A copy of it is wiped.
pub(crate) fn text(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Secret> {
    let bytes = match object.cast::<PyString>() {
        // An error of the conversion would quote all of the text.
        Ok(text) => match text.to_str() {
            Ok(text) => Bytes::Copied(text.as_bytes().into()),
            Err(_) => return Err(bad(format!("{what}: a str with characters that UTF-8 does not have; give bytes"))),
        },
        Err(_) => Bytes::of(object, what)?,
    };
    Ok(Secret(bytes))
}

/// Bytes of a private key: a copy of them is wiped.
pub(crate) struct Secret(pub(crate) Bytes);

impl Drop for Secret {
    fn drop(&mut self) {
        if let Bytes::Copied(copy) = &mut self.0 {
            zeroize::Zeroize::zeroize(copy);
        }
    }
}

/// One value for each row, as the caller gave them.
pub(crate) struct Rows {
    /// The argument's name.
    pub(crate) what: &'static str,
    pub(crate) count: usize,
    pub(crate) has_nulls: bool,
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
        let rows = |count, source| {
            let has_nulls = match &source {
                Source::Listed(listed) => !listed.nulls().is_empty(),
                Source::Each(all) => all.iter().any(|value| matches!(value, Value::Null)),
                Source::Foreign(..) => false,
                Source::Array(array, _) => array.get().nulls().is_some(),
                Source::Arrow(column) => column.has_nulls,
            };
            Ok(Rows { what, count, has_nulls, source })
        };
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
                let item = item?;
                all.push(match item.is_none() {
                    true => Value::Null,
                    false => Value::of(&item, || format!("{what}: row {row}"))?,
                });
            }
            return rows(all.len(), Source::Each(all));
        }
        // Of its objects, Polars exports the addresses.
        let is_of_polars = |name: Bound<'_, PyString>| name.to_cow().is_ok_and(|name| name.starts_with("polars."));
        if object.get_type().module().is_ok_and(is_of_polars)
            && let Some(dtype) = object.getattr_opt("dtype")?
            && dtype.str()? == "Object"
        {
            return Rows::of(&object.call_method0("to_list")?, what);
        }
        if let Some(column) = ArrowColumn::of(object, what)? {
            return rows(column.rows(), Source::Arrow(column));
        }
        // NumPy's arrays of objects.
        if let Some(dtype) = object.getattr_opt("dtype")?
            && dtype.getattr_opt("kind")?.is_some_and(|kind| kind.eq("O").unwrap_or(false))
            && let Ok(list) = object.call_method0("tolist")?.cast_into_exact::<PyList>()
        {
            return Rows::of(&list, what);
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

    /// An error that names the first null.
    pub(crate) fn has_null(&self, way: &str) -> PyErr {
        let row = self.lengths().position(|length| length == Err(RowFault::Null)).unwrap_or_default();
        bad(format!("{}: row {row} is null; {way}", self.what))
    }

    pub(crate) fn is_wrong(&self, row: usize, fault: RowFault) -> PyErr {
        bad(format!("{}: row {row}: {}", self.what, fault.text()))
    }

    /// The length of each row's value, or why it has none.
    pub(crate) fn lengths(&self) -> Box<dyn Iterator<Item = Result<usize, RowFault>> + '_> {
        match &self.source {
            Source::Listed(all) => {
                let mut nulls = all.nulls().iter().peekable();
                let length = move |(row, value): (usize, &&[u8])| match nulls.next_if_eq(&&row) {
                    Some(_) => Err(RowFault::Null),
                    None => Ok(value.len()),
                };
                Box::new(all.values().iter().enumerate().map(length))
            }
            Source::Each(all) => Box::new(all.iter().map(Value::length)),
            Source::Foreign(_, width) => Box::new(repeat_n(Ok(*width), self.count)),
            Source::Array(array, width) => {
                let nulls = array.get().nulls();
                let is_null = move |row| nulls.is_some_and(|nulls| nulls.is_null(row));
                Box::new((0..self.count).map(move |row| if is_null(row) { Err(RowFault::Null) } else { Ok(*width) }))
            }
            Source::Arrow(column) => Box::new(column.values().map(|value| value.map(<[u8]>::len))),
        }
    }

    /// See [`ArrowColumn::table`]. `None` if the column has no dictionary.
    pub(crate) fn table(&self, py: Python<'_>, length: usize) -> PyResult<Option<Table<'_>>> {
        match &self.source {
            Source::Arrow(column) if column.is_dictionary() => detach(py, || column.table(length)).map(Some),
            _ => Ok(None),
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

    /// Holds the rows for a call, without the gaps. Python need not be attached.
    pub(crate) fn hold<'a>(&'a self, gaps: Option<&'a Gaps>) -> PyResult<Held<'a>> {
        let picked = gaps.map(|gaps| &gaps.picked[..]);
        let racing = |memory| Held::Racing(RacingRows { memory, rows: self.count, picked });
        let still = |mut all: Vec<&'a [u8]>| {
            if let Some(picked) = picked {
                // No row comes before its place among the picked.
                picked.iter().enumerate().for_each(|(at, row)| all[at] = all[*row]);
                all.truncate(picked.len());
            }
            Held::Slices(all)
        };
        Ok(match &self.source {
            Source::Listed(all) if gaps.is_none() => Held::Still(Column::Slices(all.values())),
            Source::Listed(all) => still(self.slices(all.values().iter().copied().map(Ok))?),
            Source::Each(all) if all.iter().all(|value| value.shared().is_some()) => {
                still(self.slices(all.iter().map(|value| Ok(value.shared().unwrap_or_default())))?)
            }
            Source::Each(all) => racing(RowsInMemory::Each(all)),
            Source::Foreign(bytes, width) => racing(RowsInMemory::Foreign(bytes, *width)),
            Source::Array(array, width) => {
                let reading = array.get().read()?;
                match reading.bytes().is_some() && gaps.is_none() {
                    true => Held::Read { reading, width: *width, rows: self.count },
                    false => racing(RowsInMemory::Array(reading, *width)),
                }
            }
            Source::Arrow(column) => match column.whole() {
                Some(whole) if gaps.is_none() => Held::Still(whole),
                _ => still(self.slices(column.values().enumerate().map(|(row, value)| match value {
                    // Rows with a fault are left out.
                    Err(fault) if gaps.is_none() => Err(self.is_wrong(row, fault)),
                    value => Ok(value.unwrap_or_default()),
                }))?),
            },
        })
    }

    fn slices<'a>(&self, values: impl Iterator<Item = PyResult<&'a [u8]>>) -> PyResult<Vec<&'a [u8]>> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.count).map_err(|_| too_many(self.count))?;
        for value in values {
            all.push(value?);
        }
        Ok(all)
    }

    /// Names the column that a failure is about.
    pub(crate) fn name(columns: &[&Rows], why: Failure) -> Failure {
        if let Failure::Row(row, RowStatus::BadOffsets) = why
            && let Some(column) =
                columns.iter().find(|column| column.lengths().nth(row) == Some(Err(RowFault::Offsets)))
        {
            return Failure::Python(column.is_wrong(row, RowFault::Offsets));
        }
        why
    }
}

/// Memory for results.
pub(crate) enum Out<'a> {
    Own(&'a mut [u8]),
    Foreign(&'a ForeignBytes),
}

impl Out<'_> {
    /// Has `work` write results that are computed from `held`.
    pub(crate) fn write<T>(self, held: &Held<'_>, work: impl FnOnce(RowMemory<'_>) -> T) -> PyResult<T> {
        match self {
            Out::Own(bytes) => Ok(work(RowMemory::Own(bytes))),
            // Results would go to where rows are read from later.
            Out::Foreign(memory) if held.overlaps(&memory.addresses()) => {
                let mut results = zeros(memory.len())?;
                let done = work(RowMemory::Own(&mut results));
                memory.store(0, &results);
                Ok(done)
            }
            Out::Foreign(memory) => Ok(work(RowMemory::Foreign(memory))),
        }
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
        Ok(Target::Foreign(out.clone(), foreign_out(out, fits)?))
    }

    /// Gives `work` a place for `rows` results of `width` bytes, with Python detached, and makes an array of it where the caller has none. Where
    /// there are gaps, which `RowPolicy::check_out` permits in new arrays alone, `work` gets a place for the other rows' results.
    pub(crate) fn fill(
        self,
        py: Python<'py>,
        (rows, width): (usize, usize),
        gaps: Option<Gaps>,
        work: impl FnOnce(Out<'_>, Option<&Gaps>) -> Result<(), Failure> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Target::New => {
                let mut bytes = zeros(size(rows, width)?)?;
                detach(py, || match &gaps {
                    None => work(Out::Own(&mut bytes), None),
                    Some(gaps) => {
                        work(Out::Own(&mut bytes[..gaps.picked.len() * width]), Some(gaps))?;
                        gaps.spread(&mut bytes, width);
                        Ok(())
                    }
                })?;
                let array = Array::new(bytes, Element::Byte, &[rows, width]).with_gaps(gaps);
                Ok(Bound::new(py, array)?.into_any())
            }
            Target::Array(array) => {
                let Some(mut writing) = array.get().write()? else {
                    // Others can see it.
                    let bytes = foreign_out(&array, |_| Ok(()))?;
                    return Target::Foreign(array.into_any(), bytes).fill(py, (rows, width), gaps, work);
                };
                detach(py, || work(Out::Own(writing.bytes()), None))?;
                drop(writing);
                Ok(array.into_any())
            }
            Target::Foreign(out, memory) => {
                detach(py, || work(Out::Foreign(&memory), None))?;
                Ok(out)
            }
        }
    }
}

/// The bytes of `out`, which is no array of ours, or has views.
fn foreign_out(out: &Bound<'_, PyAny>, check_shape: impl Fn(&[usize]) -> PyResult<()>) -> PyResult<ForeignBytes> {
    let bytes = ForeignBytes::of(out, &|| "out".into())?;
    let kind = out.get_type().name()?;
    let no_bytes = || PyTypeError::new_err(format!("out: {kind} has no buffer of bytes; give an array of uint8"));
    let bytes = bytes.ok_or_else(no_bytes)?;
    check_shape(bytes.shape())?;
    match bytes.read_only() {
        Some(why) => Err(bad(format!("out {why}"))),
        None => Ok(bytes),
    }
}

/// Runs a call of so many rows, with memory for their statuses, which asks whether it goes on.
pub(crate) fn run_rows(
    rows: usize,
    call: impl FnOnce(&mut [RowStatus], &mut dyn FnMut() -> ControlFlow<()>) -> Result<(), Error>,
) -> Result<Vec<RowStatus>, Failure> {
    let mut statuses = Vec::new();
    statuses.try_reserve_exact(rows).map_err(|_| too_many(rows))?;
    statuses.resize(rows, RowStatus::default());
    let mut signals = Signals::new();
    let done = call(&mut statuses, &mut || signals.check());
    // An exception of a handler is not to be lost behind another error.
    signals.finish()?;
    done?;
    Ok(statuses)
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
    const PAUSE: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Signals {
        Signals { next: Instant::now() + Signals::PAUSE, raised: None, is_main: None }
    }

    /// Asks Python now and then, if its main thread has called us: no other runs handlers, and one that attaches to a Python that ends
    /// takes the process along. Called on the thread that called us.
    pub(crate) fn check(&mut self) -> ControlFlow<()> {
        if self.is_main == Some(false) || Instant::now() < self.next {
            return ControlFlow::Continue(());
        }
        let checked = Inside::begin().and_then(|_inside| {
            Python::try_attach(|py| {
                let is_main = match self.is_main {
                    Some(is_main) => is_main,
                    None => is_main(py)?,
                };
                self.is_main = Some(is_main);
                if is_main { py.check_signals() } else { Ok(()) }
            })
        });
        self.next = Instant::now() + Signals::PAUSE;
        match checked {
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

    /// A signal came: the next check asks Python.
    pub(crate) fn hurry(&mut self) {
        self.next = Instant::now();
    }

    /// Fails with the exception that a signal's handler raised, if one did.
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
pub(crate) fn check_statuses(statuses: &[RowStatus], good: RowStatus, gaps: Option<&Gaps>) -> Result<(), Failure> {
    match statuses.iter().position(|status| *status != good) {
        Some(at) => Err(failure(at, statuses[at], gaps)),
        None => Ok(()),
    }
}

/// Verdicts of a call: a signature of another length is not valid.
pub(crate) fn verdicts(statuses: &[RowStatus], gaps: Option<&Gaps>) -> Result<Vec<u8>, Failure> {
    let verdict = |(at, status): (usize, &RowStatus)| match status {
        RowStatus::Valid => Ok(1),
        RowStatus::Invalid | RowStatus::SignatureLength => Ok(0),
        other => Err(failure(at, *other, gaps)),
    };
    statuses.iter().enumerate().map(verdict).collect()
}

/// A failure at a row of the engine's call.
fn failure(at: usize, status: RowStatus, gaps: Option<&Gaps>) -> Failure {
    Failure::Row(gaps.map_or(at, |gaps| gaps.picked[at]), status)
}

/// An array of booleans.
pub(crate) fn booleans(py: Python<'_>, mut verdicts: Vec<u8>, gaps: Option<Gaps>) -> PyResult<Bound<'_, Array>> {
    if let Some(gaps) = &gaps {
        verdicts.resize(gaps.rows, 0);
        gaps.spread(&mut verdicts, 1);
    }
    let rows = verdicts.len();
    Bound::new(py, Array::new(verdicts, Element::Bool, &[rows]).with_gaps(gaps))
}
