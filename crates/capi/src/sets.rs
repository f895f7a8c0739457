//! Parameter sets and hash functions by number.

use crate::failure::{Failure, Status, call, value};
use crate::pointers::{Given, In, Out};
use hypergrove::zkdilithium::params as zk;
use hypergrove::{PARAMETER_SETS, Params, PreHash, cache_bytes};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// `HG_ZKDILITHIUM`.
pub(crate) const ZKDILITHIUM: u32 = 1000;

/// What keys and signatures are of.
#[derive(Clone, Copy)]
pub(crate) enum Set {
    SlhDsa(&'static Params),
    ZkDilithium,
}

/// Numbers and names of sets, as C has them: those with an object identifier, and zkDilithium.
pub(crate) static NAMES: LazyLock<Vec<(u32, CString)>> = LazyLock::new(|| {
    let numbered = PARAMETER_SETS.iter().filter_map(|p| Some((p.oid_arc()?.into(), p.name)));
    let mut all: Vec<(u32, &str)> = numbered.chain([(ZKDILITHIUM, zk::NAME)]).collect();
    all.sort_unstable();
    all.into_iter().map(|(number, name)| (number, CString::new(name).expect("no zero is in a name"))).collect()
});

impl Set {
    /// The set of a number. Sets without an object identifier have none.
    pub(crate) fn of(number: u32) -> Result<Set, Failure> {
        if number == ZKDILITHIUM {
            return Ok(Set::ZkDilithium);
        }
        let known = PARAMETER_SETS.iter().find(|p| p.oid_arc().map(u32::from) == Some(number));
        known.map(|p| Set::SlhDsa(p)).ok_or_else(|| Failure::bad_input(format!("set {number}: there is no such set")))
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            // No set without an identifier becomes a `Set`.
            Set::SlhDsa(p) => p.oid_arc().map_or(0, u32::from),
            Set::ZkDilithium => ZKDILITHIUM,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Set::SlhDsa(p) => p.name,
            Set::ZkDilithium => zk::NAME,
        }
    }

    pub(crate) fn signature_size(self) -> usize {
        match self {
            Set::SlhDsa(p) => p.sig_bytes(),
            Set::ZkDilithium => zk::SIG_BYTES,
        }
    }

    pub(crate) fn public_key_size(self) -> usize {
        match self {
            Set::SlhDsa(p) => p.pk_bytes(),
            Set::ZkDilithium => zk::PK_BYTES,
        }
    }

    pub(crate) fn private_key_size(self) -> usize {
        match self {
            Set::SlhDsa(p) => p.sk_bytes(),
            Set::ZkDilithium => zk::SK_BYTES,
        }
    }

    /// Bytes of the nodes of the top layers; 0 if the set has no such layers, or too many nodes.
    fn cache_size(self, layers: u32) -> usize {
        match self {
            Set::SlhDsa(p) if layers as usize <= p.d => cache_bytes(p, layers as usize).unwrap_or(0),
            Set::SlhDsa(_) | Set::ZkDilithium => 0,
        }
    }

    pub(crate) fn seed_size(self) -> usize {
        match self {
            Set::SlhDsa(p) => 3 * p.n,
            Set::ZkDilithium => zk::SEED_BYTES,
        }
    }
}

/// The hash function of a number: the last arc of its object identifier.
pub(crate) fn prehash(number: u32) -> Result<PreHash, Failure> {
    let known = PreHash::ALL.into_iter().find(|hash| u32::from(hash.oid_der()[10]) == number);
    known.ok_or_else(|| Failure::bad_input(format!("prehash {number}: there is no such hash function")))
}

#[unsafe(no_mangle)]
extern "C" fn hg_set_by_name(name: In<c_char>, mut set: Out<u32>) -> Status {
    call(|| {
        set.put(0, "set")?;
        let name = name.text("name")?;
        if name.eq_ignore_ascii_case(zk::NAME) {
            return set.put(ZKDILITHIUM, "set");
        }
        let p: &Params = name.parse().map_err(|why: hypergrove::UnknownSet| Failure::bad_input(why.to_string()))?;
        match p.oid_arc() {
            None => {
                Err(Failure::unsupported(format!("{}: it has no object identifier, so C has no number for it", p.name)))
            }
            Some(arc) => set.put(arc.into(), "set"),
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
    size(set, Set::signature_size)
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_size(set: u32) -> usize {
    size(set, Set::public_key_size)
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_size(set: u32) -> usize {
    size(set, Set::private_key_size)
}

#[unsafe(no_mangle)]
extern "C" fn hg_seed_size(set: u32) -> usize {
    size(set, Set::seed_size)
}

#[unsafe(no_mangle)]
extern "C" fn hg_cache_size(set: u32, layers: u32) -> usize {
    size(set, |set| set.cache_size(layers))
}

#[cfg(test)]
mod tests {
    use super::*;

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
