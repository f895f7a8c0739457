//! Exhaustive tests of the decoders, in place of a prover of programs: lengths, and the bytes of DER that are structure.
//!
//! Why this is enough: a decoder of raw bytes compares the length with one constant of the set before it looks at a byte, and does no
//! arithmetic on it, so lengths behave alike on either side of that constant; those around the constants of all sets, of all parts
//! and of powers of two are tried. A DER document of ours is structure, at most 30 bytes, and a key, whose bytes have no meaning
//! to the decoder; every value of every byte of the structure is tried, and every length.
#![cfg(feature = "pkcs8")]

use hypergrove_fips205::{KeyError, PARAMETER_SETS, Params, Signature, SigningKey, VerifyingKey};
use hypergrove_testkit::toys::every_set;
use std::collections::BTreeSet;

/// Numbers that a length could be mistaken for: all up to four of the longest part, all multiples of parts, the lengths of
/// every set's keys and signatures, powers of two; each with its neighbours.
fn lengths(p: &Params) -> BTreeSet<usize> {
    let most = 2 * p.sig_bytes();
    let of_sets = every_set().flat_map(|p| [p.pk_bytes(), p.sk_bytes(), p.sig_bytes(), 2 * p.sig_bytes()]);
    let powers = (0..17).map(|bits| 1usize << bits);
    let multiples = (0..).map(|i| i * p.n).take_while(|length| *length <= most);
    let around =
        of_sets.chain(powers).chain(multiples).flat_map(|length| [length.saturating_sub(1), length, length + 1]);
    around.chain(0..=256).collect()
}

#[test]
fn one_length_is_taken() {
    for p in every_set() {
        let bytes = vec![7; 2 * 49_856 + 2];
        let (mut count, mut taken) = (0, Vec::new());
        for length in lengths(p) {
            let bytes = &bytes[..length.min(bytes.len())];
            let wrong = |error: KeyError| assert!(matches!(error, KeyError::Length { .. }), "{error}");
            match VerifyingKey::from_bytes(p, bytes) {
                Ok(key) => taken.push((length, key.to_bytes() == bytes)),
                Err(error) => wrong(error),
            }
            match SigningKey::from_bytes(p, bytes) {
                Ok(key) => taken.push((length, *key.to_bytes() == bytes)),
                Err(error) => wrong(error),
            }
            match Signature::from_bytes(p, bytes) {
                Ok(signature) => taken.push((length, signature.as_bytes() == bytes)),
                Err(error) => wrong(error),
            }
            count += 1;
        }
        assert_eq!(taken, [(p.pk_bytes(), true), (p.sk_bytes(), true), (p.sig_bytes(), true)], "{p}, {count} lengths");
    }
}

/// A document, and what reading it and writing the result again gives.
type Rewrite = fn(&[u8]) -> Option<Vec<u8>>;

fn rewrite_spki(der: &[u8]) -> Option<Vec<u8>> {
    Some(VerifyingKey::read_spki(der).ok()?.write_spki().unwrap().into_vec())
}

fn rewrite_pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    Some(SigningKey::read_pkcs8(der).ok()?.write_pkcs8().unwrap().as_bytes().to_vec())
}

/// The documents of a set, the number of bytes that are structure, and what reads them.
fn documents(p: &'static Params) -> [(Vec<u8>, usize, Rewrite); 2] {
    let key = SigningKey::from_bytes(p, &vec![0x5a; p.sk_bytes()]).unwrap();
    let spki = key.verifying_key().write_spki().unwrap().into_vec();
    let pkcs8 = key.write_pkcs8().unwrap().as_bytes().to_vec();
    let (of_spki, of_pkcs8) = (spki.len() - p.pk_bytes(), pkcs8.len() - p.sk_bytes());
    [(spki, of_spki, rewrite_spki), (pkcs8, of_pkcs8, rewrite_pkcs8)]
}

/// A decoder reads only what an encoder would write: nothing has two encodings. Only a changed object identifier can be read, as a set
/// whose keys have the same length.
#[test]
fn der_has_one_encoding() {
    let with_oid = || PARAMETER_SETS.iter().copied();
    for p in with_oid() {
        let same_length = with_oid().filter(|other| other.n == p.n).count();
        for (der, structure, rewrite) in documents(p) {
            assert_eq!(rewrite(&der).as_ref(), Some(&der), "{p}");
            assert!(structure <= 30, "{structure}");
            // Every value of every byte.
            let mut read = BTreeSet::new();
            for at in 0..structure {
                for value in 0..=255 {
                    let mut other = der.clone();
                    other[at] = value;
                    if let Some(again) = rewrite(&other) {
                        assert!(again == other, "{p}: byte {at} = {value:#x} is read, and written in another way");
                        read.insert(other);
                    }
                }
            }
            assert_eq!(
                read.len(),
                2 * same_length,
                "{p}: the sets with the same n, with a hash and without, and nothing else"
            );
            // Every length, shorter and longer, and every byte that could be put in.
            for length in 0..der.len() {
                assert_eq!(rewrite(&der[..length]), None, "{p}: {length} of {} bytes", der.len());
            }
            for at in (0..=structure).chain([der.len()]) {
                for value in 0..=255 {
                    let mut other = der.clone();
                    other.insert(at, value);
                    assert_eq!(rewrite(&other), None, "{p}: {value:#x} put in at {at}");
                }
                if at < structure {
                    let mut other = der.clone();
                    other.remove(at);
                    assert_eq!(rewrite(&other), None, "{p}: without byte {at}");
                }
            }
        }
    }
}
