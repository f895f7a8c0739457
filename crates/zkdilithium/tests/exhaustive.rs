//! The decoders, tried on everything: each length, and each code of each encoding. An encoding treats its elements alike, one
//! after the other, so that one element among others, tried with all its codes, stands for all of them.

use hypergrove_zkdilithium::pack::{
    fes_are_canonical, pack_eta, pack_fes, pack_gamma1, unpack_eta, unpack_fes, unpack_gamma1,
};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::{Fe, Signature, SigningKey, VerifyingKey};

#[test]
fn one_length_is_taken() {
    let bytes = vec![0; 3 * SK_BYTES];
    let mut taken = Vec::new();
    for length in 0..=bytes.len() {
        let bytes = &bytes[..length];
        VerifyingKey::from_bytes(bytes).into_iter().for_each(|key| taken.push(key.as_bytes().len()));
        SigningKey::from_bytes(bytes).into_iter().for_each(|key| taken.push(key.to_bytes().len()));
        Signature::from_bytes(bytes).into_iter().for_each(|signature| taken.push(signature.as_bytes().len()));
    }
    let mut lengths = [PK_BYTES, SK_BYTES, SIG_BYTES];
    lengths.sort_unstable();
    assert_eq!(taken, lengths);
}

#[test]
fn every_element_of_fe24() {
    let mut again = [0; 3 * FE_BYTES];
    for code in 0u32..1 << 24 {
        let code_bytes = &code.to_le_bytes()[..FE_BYTES];
        let bytes = [&[1, 0, 0], code_bytes, &[2, 0, 0]].concat();
        let mut elements = [Fe::ZERO; 3];
        elements.iter_mut().zip(unpack_fes(&bytes)).for_each(|(cell, element)| *cell = element);
        assert_eq!(elements.map(|element| element.value()), [1, code % Q, 2]);
        assert_eq!(fes_are_canonical(&bytes), code < Q, "{code}");
        pack_fes(&elements, &mut again);
        assert_eq!(again[..] == bytes, code < Q, "{code}");
    }
}

/// Codes of `bits` bits at a place of a polynomial in which all other codes are alike.
fn with_code(bytes: &mut [u8], bits: usize, at: usize, code: u32) {
    for bit in 0..bits {
        let place = at * bits + bit;
        let mask = 1 << (place % 8);
        bytes[place / 8] = bytes[place / 8] & !mask | if code >> bit & 1 == 1 { mask } else { 0 };
    }
}

#[test]
fn every_code_of_eta3_and_of_g18() {
    // Eight codes share bytes: each of these places, at both ends of the polynomial.
    let places = || (0..8).chain(N - 8..N);
    for at in places() {
        for code in 0..8 {
            let (mut bytes, mut again) = ([0x49; ETA_BYTES], [0; ETA_BYTES]);
            with_code(&mut bytes, 3, at, code);
            let element = unpack_eta(&bytes);
            assert_eq!(element.centred()[at], ETA as i32 - code as i32);
            // The codes 5 to 7 are no coefficients of a key, which its check says.
            if code <= 2 * ETA {
                pack_eta(&element, &mut again);
                assert_eq!(again, bytes, "code {code} at {at}");
            }
        }
    }
    let (mut bytes, mut again) = ([0; GAMMA1_BYTES], [0; GAMMA1_BYTES]);
    for code in 0..1 << 18 {
        // Each polynomial has N codes that follow each other.
        let at = code as usize % N;
        with_code(&mut bytes, 18, at, code);
        if code as usize % N == N - 1 {
            let element = unpack_gamma1(&bytes);
            for (at, x) in element.centred().into_iter().enumerate() {
                assert_eq!(x, GAMMA1 as i32 - (code as usize - (N - 1) + at) as i32);
            }
            pack_gamma1(&element, &mut again);
            assert_eq!(again, bytes);
        }
    }
}
