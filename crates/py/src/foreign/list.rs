//! Lists and tuples of `bytes`, and of None for nulls.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyTuple};

/// The values of a list or tuple that has nothing but `bytes`, which never change, and None.
pub(crate) struct ListedBytes {
    /// The bytes of `items`, none for a null; not to be used without `items`.
    values: Vec<&'static [u8]>,
    /// The rows that are None, in order.
    nulls: Vec<usize>,
    /// The tuple, or a copy of the list: it keeps the objects. (To count 131,072 references up and down one by one, each object in memory of its own,
    /// took 5.3 ms of an H200's host; to make and drop two tuples takes 1.5 ms.)
    _items: Py<PyTuple>,
}

impl ListedBytes {
    /// `None` for any other object, and where an item is neither `bytes` nor None.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<ListedBytes>> {
        // Of a class derived from them, iteration may be anything.
        let is_one = object.cast_exact::<PyList>().is_ok() || object.cast_exact::<PyTuple>().is_ok();
        if !is_one {
            return Ok(None);
        }
        let items = object.cast::<PySequence>()?.to_tuple()?;
        let (mut values, mut nulls) = (Vec::new(), Vec::new());
        values.try_reserve_exact(items.len()).map_err(|_| crate::room::too_many(items.len()))?;
        for item in items.iter_borrowed() {
            let bytes: *const [u8] = match item.cast::<PyBytes>() {
                Ok(item) => item.as_bytes(),
                Err(_) if item.is_none() => {
                    nulls.push(values.len());
                    &[]
                }
                Err(_) => return Ok(None),
            };
            // SAFETY: `bytes` have their values in themselves and never change. The tuple, which never changes either, keeps the object as
            // long as this value exists, and `values` gives the slices out for no longer.
            values.push(unsafe { &*bytes });
        }
        Ok(Some(ListedBytes { values, nulls, _items: items.unbind() }))
    }

    pub(crate) fn values(&self) -> &[&[u8]] {
        &self.values
    }

    pub(crate) fn nulls(&self) -> &[usize] {
        &self.nulls
    }
}
