//! Series of pandas, whose rows have labels.

use crate::error::bad;
use pyo3::prelude::*;

/// Refuses series whose labels differ. pandas pairs rows by their labels, and calls of this package pair them by their places: a series that was
/// sorted or filtered would get the verdicts of other rows.
pub(crate) fn check(columns: [(&str, &Bound<'_, PyAny>); 3]) -> PyResult<()> {
    let mut first: Option<(&str, Bound<'_, PyAny>)> = None;
    for (what, column) in columns {
        // Lists have a function of this name.
        let index = column.getattr_opt("index")?.filter(|index| !index.is_callable());
        let Some(index) = index.filter(|index| index.hasattr("equals").unwrap_or(false)) else { continue };
        let Some((other, labels)) = &first else {
            first = Some((what, index));
            continue;
        };
        if !labels.call_method1("equals", (index,))?.is_truthy()? {
            return Err(bad(format!(
                "{other} and {what}: these series have different indices, and the call pairs rows by their places; align them, or \
                 call reset_index(drop=True) on each if the places are right"
            )));
        }
    }
    Ok(())
}
