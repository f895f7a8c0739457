//! Parameter sets by number.

use crate::failure::{Failure, Status, call, value};
use crate::pointers::{Given, In, Out};
use crate::schemes::Set;
use hypergrove::cache_bytes;
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// Numbers and names of sets, as C has them.
pub(crate) static NAMES: LazyLock<Vec<(u32, CString)>> = LazyLock::new(|| {
    let named = |set: Set| (set.number(), CString::new(set.name()).expect("no zero is in a name"));
    let mut all: Vec<(u32, CString)> = Set::all().map(named).collect();
    all.sort_unstable();
    all
});

#[unsafe(no_mangle)]
extern "C" fn hg_set_by_name(name: In<c_char>, mut set: Out<u32>) -> Status {
    call(|| {
        set.put(0, "set")?;
        let named = Set::named(name.text("name")?)?;
        match named.number() {
            0 => {
                let text = format!("{}: it has no object identifier, so C has no number for it", named.name());
                Err(Failure::unsupported(text))
            }
            number => set.put(number, "set"),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_set_name(set: u32) -> Given<c_char> {
    let known = NAMES.iter().find(|(number, _)| *number == set);
    known.map_or(Given::NULL, |(_, name)| Given::text(name))
}

/// A size of a set; 0 if there is no such set.
fn size(set: u32, of: impl FnOnce(Set) -> usize) -> usize {
    value(0, || Set::of(set).map_or(0, of))
}

#[unsafe(no_mangle)]
extern "C" fn hg_signature_size(set: u32) -> usize {
    size(set, |set| set.sizes().signature)
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_size(set: u32) -> usize {
    size(set, |set| set.sizes().public)
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_size(set: u32) -> usize {
    size(set, |set| set.sizes().private)
}

#[unsafe(no_mangle)]
extern "C" fn hg_seed_size(set: u32) -> usize {
    size(set, |set| set.sizes().seeds)
}

#[unsafe(no_mangle)]
extern "C" fn hg_cache_size(set: u32, layers: u32) -> usize {
    // 0 if the set has no such layers, or too many nodes.
    size(set, |set| match set.slh_dsa() {
        Some(p) if layers as usize <= p.d => cache_bytes(p, layers as usize).unwrap_or(0),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::prehash;

    #[test]
    fn every_set_with_an_identifier_has_a_number_and_a_name() {
        assert_eq!(NAMES.len(), 13);
        for (number, name) in NAMES.iter() {
            let set = Set::of(*number).unwrap();
            assert_eq!((set.number(), set.name()), (*number, name.to_str().unwrap()));
        }
        assert!([0, 1, 19, 32, 276, 1001].into_iter().all(|number| Set::of(number).is_err()));
        assert!((1..=12).all(|number| prehash(number).is_ok()) && prehash(0).is_err() && prehash(13).is_err());
    }
}
