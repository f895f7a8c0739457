//! The space of policies that a table's times belong to. A checksum distinguishes it from any other.

use hypergrove_engine::{Axis, Backend, Device, Error, Policy, THREADS};
use hypergrove_fips205::SLH_DSA_SHA2_128F;
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::quote::Quote;
use sha2::{Digest, Sha256};

/// Checksum of the axes that are tuned with their values, and of the backend's [fingerprint](Backend::fingerprint): kernels
/// and defaults. The number of threads that there are is no part of it; a table says for how many it holds.
pub fn checksum(backend: &dyn Backend, device: &Device) -> Result<String, Error> {
    let mut hash = Sha256::new();
    let mut word = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    word(backend.name());
    word(&backend.fingerprint(device));
    let space = backend.slh_dsa_on(device)?.space(device, &Plan::new(&SLH_DSA_SHA2_128F, Op::Sign))?;
    for Axis { name, values, .. } in space.into_iter().filter(|axis| axis.tuned) {
        word(name);
        if name != THREADS {
            word(&format!("{values:?}"));
        }
    }
    Ok(hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A policy by its axes' names. An axis or a value that the space does not have is an error that names it.
pub fn policy<'a>(space: &[Axis], named: impl IntoIterator<Item = (&'a str, u32)>) -> Result<Policy, Error> {
    let value = |(name, value): (&str, u32)| {
        let Some(axis) = space.iter().find(|axis| axis.name == name) else {
            let names: Vec<_> = space.iter().map(|axis| axis.name).collect();
            return Err(Error::Value {
                what: {
                    let name = Quote::name(name, names.iter().copied());
                    format!("there is no axis {name}; there are {}", names.join(", "))
                },
            });
        };
        if name != THREADS && !axis.values.contains(&value) {
            return Err(Error::Value { what: format!("{name} = {value}: it is one of {:?}", axis.values) });
        }
        Ok((axis.name, value))
    };
    named.into_iter().map(value).collect::<Result<_, _>>().map(Policy)
}
