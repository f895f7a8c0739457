//! Bytes of elements and polynomials, all little-endian.

use crate::field::Fe;
use crate::params::{ETA, ETA_BYTES, FE_BYTES, GAMMA1, GAMMA1_BYTES, N, Q};
use crate::ring::RingElement;
use zeroize::Zeroizing;

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
    pack_codes::<3>(&*Zeroizing::new(a.centred()), |x| ETA.wrapping_sub(x as u32), out);
}

/// A polynomial of eta3. The codes 5 to 7 give −3 to −5.
pub fn unpack_eta(bytes: &[u8]) -> RingElement {
    let mut a = RingElement::ZERO;
    unpack_eta_to(bytes, &mut a);
    a
}

/// As [`unpack_eta`], into the caller's memory.
pub(crate) fn unpack_eta_to(bytes: &[u8], a: &mut RingElement) {
    assert_eq!(bytes.len(), ETA_BYTES);
    element::<3>(bytes, ETA, a);
}

/// g18: 18 bits a coefficient, the code of x being GAMMA1 − x.
pub fn pack_gamma1(a: &RingElement, out: &mut [u8]) {
    assert_eq!(out.len(), GAMMA1_BYTES);
    pack_codes::<18>(&*Zeroizing::new(a.centred()), |x| GAMMA1.wrapping_sub(x as u32), out);
}

/// A polynomial of g18: coefficients in (−GAMMA1, GAMMA1\].
pub fn unpack_gamma1(bytes: &[u8]) -> RingElement {
    assert_eq!(bytes.len(), GAMMA1_BYTES);
    let mut a = RingElement::ZERO;
    element::<18>(bytes, GAMMA1, &mut a);
    a
}

fn element<const BITS: usize>(bytes: &[u8], top: u32, a: &mut RingElement) {
    let mut centred = Zeroizing::new([0; N]);
    unpack_codes::<BITS>(bytes, |code| top as i32 - code as i32, &mut *centred);
    a.0.iter_mut().zip(&*centred).for_each(|(a, x)| *a = Fe::from_centred(*x));
}

/// Codes of `BITS` bits, lowest first; eight of them are `BITS` bytes. Values after the last whole eight are left out.
#[inline(always)]
pub fn pack_codes<const BITS: usize>(values: &[i32], code: impl Fn(i32) -> u32, out: &mut [u8]) {
    for (values, out) in values.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<BITS>().0) {
        let (mut bits, mut held, mut at) = (0u64, 0, 0);
        for x in values {
            let code = u64::from(code(*x) & ((1 << BITS) - 1));
            bits |= code << held;
            held += BITS;
            if held >= 64 {
                out[at..at + 8].copy_from_slice(&bits.to_le_bytes());
                (held, at) = (held - 64, at + 8);
                bits = code >> (BITS - held);
            }
        }
        out[at..].copy_from_slice(&bits.to_le_bytes()[..BITS - at]);
    }
}

/// The inverse of [`pack_codes`]: `value` gives the value of each code.
#[inline(always)]
pub fn unpack_codes<const BITS: usize>(bytes: &[u8], value: impl Fn(u32) -> i32, out: &mut [i32]) {
    for (bytes, out) in bytes.as_chunks::<BITS>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let (mut bits, mut held, mut at) = (0u64, 0, 0);
        for x in out {
            if held < BITS {
                let word = &bytes[at..BITS.min(at + 4)];
                bits |= word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) << held;
                (held, at) = (held + 32, at + 4);
            }
            *x = value(bits as u32 & ((1 << BITS) - 1));
            (bits, held) = (bits >> BITS, held - BITS);
        }
    }
}

/// bytesToFes: two bytes an element, (b₀ + 1) + 257·(b₁ + 1); of a lone last byte b + 1.
pub fn bytes_to_fes(bytes: &[u8]) -> impl ExactSizeIterator<Item = Fe> {
    bytes.chunks(2).map(|pair| {
        let digit = |i: usize| pair.get(i).map_or(0, |byte| u32::from(*byte) + 1);
        Fe::new(digit(0) + 257 * digit(1))
    })
}
