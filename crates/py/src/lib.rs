#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod columns;
mod engine;
mod error;
mod foreign;
mod keys;
mod parts;
mod pending;
mod zkdilithium;

use pyo3::prelude::*;

/// What `hypergrove` and `hypergrove.zkdilithium` are made of; import those.
#[pymodule(gil_used = false)]
mod _hypergrove {
    use super::*;

    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::error::InvalidSignature;
    #[pymodule_export]
    use super::foreign::array::Array;
    #[pymodule_export]
    use super::keys::{PrivateKey, PrivateKeys, PublicKey, keygen_batch, sha256_batch, verify_batch};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        use hypergrove::PARAMETER_SETS;
        use hypergrove::zkdilithium::params::{PK_BYTES, SIG_BYTES};

        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        let sets = PARAMETER_SETS.iter().map(|set| set.name);
        module.add("SETS", pyo3::types::PyTuple::new(module.py(), sets)?)?;
        // A module of its own for `hypergrove/zkdilithium.py`, since names are the same.
        let zk = PyModule::new(module.py(), "zkdilithium")?;
        zk.add_class::<zkdilithium::ZkPrivateKey>()?;
        zk.add_class::<zkdilithium::ZkPublicKey>()?;
        zk.add_class::<zkdilithium::ZkPrivateKeys>()?;
        zk.add_function(wrap_pyfunction!(zkdilithium::zk_verify_batch, &zk)?)?;
        zk.add_function(wrap_pyfunction!(zkdilithium::zk_keygen_batch, &zk)?)?;
        zk.add("SIGNATURE_SIZE", SIG_BYTES)?;
        zk.add("PUBLIC_KEY_SIZE", PK_BYTES)?;
        module.add_submodule(&zk)
    }
}
