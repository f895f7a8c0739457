//! Bytes of elements and polynomials, all little-endian.

use crate::field::Fe;
use crate::params::{ETA, ETA_BYTES, FE_BYTES, GAMMA1, GAMMA1_BYTES, N, Q};
use crate::ring::RingElement;

/// fe24: three bytes an element.
pub fn pack_fes(elements: &[Fe], out: &mut [u8]) {
    assert_eq!(out.len(), elements.len() * FE_BYTES);
    for (bytes, element) in out.chunks_exact_mut(FE_BYTES).zip(elements) {
        bytes.copy_from_slice(&element.value().to_le_bytes()[..FE_BYTES]);
    }
}

fn fe24(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])
}

/// Elements of fe24, reduced: values from Q to 2²⁴ − 1 are taken too. Bytes of an incomplete element are ignored.
pub fn unpack_fes(bytes: &[u8]) -> impl ExactSizeIterator<Item = Fe> {
    bytes.chunks_exact(FE_BYTES).map(|bytes| Fe::new(fe24(bytes)))
}

/// Whether all values of fe24 are below Q.
pub fn fes_are_canonical(bytes: &[u8]) -> bool {
    bytes.chunks_exact(FE_BYTES).all(|bytes| fe24(bytes) < Q)
}

/// eta3: 3 bits a coefficient, the code of x being ETA − x.
pub fn pack_eta(a: &RingElement, out: &mut [u8]) {
    assert_eq!(out.len(), ETA_BYTES);
    pack_codes::<3>(a, ETA, out);
}

/// A polynomial of eta3. The codes 5 to 7 give −3 to −5.
pub fn unpack_eta(bytes: &[u8]) -> RingElement {
    assert_eq!(bytes.len(), ETA_BYTES);
    unpack_codes::<3>(bytes, ETA)
}

/// g18: 18 bits a coefficient, the code of x being GAMMA1 − x.
pub fn pack_gamma1(a: &RingElement, out: &mut [u8]) {
    assert_eq!(out.len(), GAMMA1_BYTES);
    pack_codes::<18>(a, GAMMA1, out);
}

/// A polynomial of g18: coefficients in (−GAMMA1, GAMMA1\].
pub fn unpack_gamma1(bytes: &[u8]) -> RingElement {
    assert_eq!(bytes.len(), GAMMA1_BYTES);
    unpack_codes::<18>(bytes, GAMMA1)
}

/// Codes of `BITS` bits, lowest first.
fn pack_codes<const BITS: u32>(a: &RingElement, top: u32, out: &mut [u8]) {
    let (mut bits, mut held) = (0u64, 0);
    let mut out = out.iter_mut();
    for x in &a.0 {
        let code = top.wrapping_sub(x.centred() as u32) & ((1 << BITS) - 1);
        bits |= u64::from(code) << held;
        held += BITS;
        while held >= 8 {
            *out.next().expect("the codes fill their bytes") = bits as u8;
            bits >>= 8;
            held -= 8;
        }
    }
}

fn unpack_codes<const BITS: u32>(bytes: &[u8], top: u32) -> RingElement {
    let (mut bits, mut held) = (0u64, 0);
    let mut bytes = bytes.iter();
    let mut a = RingElement([Fe::ZERO; N]);
    for x in &mut a.0 {
        while held < BITS {
            bits |= u64::from(*bytes.next().expect("the codes fill their bytes")) << held;
            held += 8;
        }
        let code = bits as u32 & ((1 << BITS) - 1);
        *x = Fe::from_centred(top as i32 - code as i32);
        bits >>= BITS;
        held -= BITS;
    }
    a
}

/// bytesToFes: two bytes an element, (b₀ + 1) + 257·(b₁ + 1); of a lone last byte b + 1.
pub fn bytes_to_fes(bytes: &[u8]) -> impl ExactSizeIterator<Item = Fe> {
    bytes.chunks(2).map(|pair| {
        let digit = |i: usize| pair.get(i).map_or(0, |byte| u32::from(*byte) + 1);
        Fe::new(digit(0) + 257 * digit(1))
    })
}
