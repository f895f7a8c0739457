#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod calls;
mod columns;
mod engine;
mod error;
mod exit;
mod files;
mod foreign;
mod formats;
mod gaps;
mod held;
mod keys;
mod labels;
mod messages;
mod pending;
mod policy;
mod room;
mod zkdilithium;

use engine::Engine;
use error::InvalidSignature;
use foreign::array::{Array, restored};
use foreign::interpreter;
use hypergrove::PARAMETER_SETS;
use hypergrove::quote::{Quote, is_key_for_path};
use keys::{PrivateKey, PrivateKeys, PublicKey};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;

/// A text of unknown origin, as messages of the package's modules show it.
#[pyfunction(name = "_quote")]
fn quote_name(text: &str, names: Vec<String>) -> String {
    Quote::name(text, names.iter().map(|name| &**name)).to_string()
}

/// A path of a file that could not be read, as messages show it, and whether it may be a private key itself.
#[pyfunction(name = "_quote_path")]
fn quote_path(path: PathBuf) -> (String, bool) {
    let is_key = is_key_for_path(&path);
    (Quote::path(path).to_string(), is_key)
}

/// The extension module behind `hypergrove` and `hypergrove.zkdilithium`; import those.
#[pymodule(gil_used = false)]
fn _hypergrove(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Before anything of the first interpreter is made: Python itself refuses only interpreters with a GIL of their own. Classes, engines
    // and what runs at the exit belong to the process, and would be those of the interpreter that comes first.
    if !interpreter::is_main(py) {
        return Err(PyImportError::new_err(
            "hypergrove does not work in a sub-interpreter: import it in the main interpreter, or start a process (multiprocessing)",
        ));
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SETS", PyTuple::new(py, PARAMETER_SETS.iter().map(|set| set.name))?)?;
    module.add("InvalidSignature", py.get_type::<InvalidSignature>())?;
    module.add_class::<Array>()?;
    module.add_class::<Engine>()?;
    module.add_class::<PrivateKey>()?;
    module.add_class::<PrivateKeys>()?;
    module.add_class::<PublicKey>()?;
    module.add_function(wrap_pyfunction!(engine::all_devices, module)?)?;
    module.add_function(wrap_pyfunction!(keys::keygen_batch, module)?)?;
    module.add_function(wrap_pyfunction!(keys::sha256_batch, module)?)?;
    module.add_function(wrap_pyfunction!(keys::verify_batch, module)?)?;
    module.add_function(wrap_pyfunction!(restored, module)?)?;
    module.add_function(wrap_pyfunction!(quote_name, module)?)?;
    module.add_function(wrap_pyfunction!(quote_path, module)?)?;
    exit::register(py, engine::end)?;
    module.add_submodule(&formats::module(py)?)?;
    module.add_submodule(&zkdilithium::module(py)?)
}
