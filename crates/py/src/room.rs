//! Memory for rows, or an exception where there is none.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

/// Zeros, or an exception where there is no memory for them.
pub(crate) fn zeros(len: usize) -> PyResult<Vec<u8>> {
    // Asked first, since `vec!` ends the process where there is none. Its zeros are the system's: nobody has to write them.
    let reserved = Vec::<u8>::new().try_reserve_exact(len);
    reserved.map_err(|_| PyMemoryError::new_err(format!("there is no memory for {len} bytes")))?;
    Ok(vec![0; len])
}

pub(crate) fn too_many(rows: usize) -> PyErr {
    PyMemoryError::new_err(format!("there is no memory for {rows} rows"))
}

/// Bytes of so many rows.
pub(crate) fn size(rows: usize, width: usize) -> PyResult<usize> {
    let bytes = rows.checked_mul(width).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| PyMemoryError::new_err(format!("{rows} rows of {width} bytes are more than memory can have")))
}
