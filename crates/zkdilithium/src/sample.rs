//! Sampling from SHAKE, and the challenge polynomial from Poseidon.

use crate::field::Fe;
use crate::pack::unpack_gamma1;
use crate::params::{CSIZE, ETA, GAMMA1_BYTES, K, L, N, Q, T, TAU};
use crate::poseidon::permute;
use crate::ring::{Matrix, NttElement, RingElement};
use crate::trace::Trace;
use core::array;
use digest::{ExtendableOutput, Update, XofReader};
use shake::{Shake128, Shake256};
use zeroize::Zeroize;

/// The first bytes of SHAKE256 over the parts.
pub(crate) fn h<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    h_to(parts, &mut out);
    out
}

/// As [`h`], into the caller's memory.
pub(crate) fn h_to(parts: &[&[u8]], out: &mut [u8]) {
    let mut hash = Shake256::default();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize_xof().read(out);
}

/// ExpandA: Â from ρ, in the transformed domain.
pub fn expand_a(rho: &[u8]) -> Matrix {
    array::from_fn(|i| array::from_fn(|j| uniform(rho, i as u8, j as u8)))
}

/// Uniform values: 23 bits at a time, kept below Q.
fn uniform(rho: &[u8], i: u8, j: u8) -> NttElement {
    let mut stream = Shake128::default().chain(rho).chain([j, i]).finalize_xof();
    let mut values = [Fe::ZERO; N];
    // 56 candidates a block.
    let (mut block, mut kept) = ([0; 168], 0);
    while kept < N {
        stream.read(&mut block);
        for b in block.chunks_exact(3) {
            let d = u32::from_le_bytes([b[0], b[1], b[2] & 0x7f, 0]);
            if d < Q && kept < N {
                values[kept] = Fe::new(d);
                kept += 1;
            }
        }
    }
    NttElement(values)
}

/// ExpandS: (s₁, s₂) from ρ′.
pub fn expand_s(rho_prime: &[u8]) -> ([RingElement; L], [RingElement; K]) {
    let small = |m: usize| short(rho_prime, m as u8);
    (array::from_fn(small), array::from_fn(|i| small(L + i)))
}

/// Coefficients in \[−ETA, ETA\]: a nibble at a time, 15 rejected. Which nibbles are 15 says nothing of the others.
fn short(rho_prime: &[u8], m: u8) -> RingElement {
    let mut stream = Shake256::default().chain(rho_prime).chain([m, 0]).finalize_xof();
    let mut a = RingElement([Fe::ZERO; N]);
    let (mut block, mut kept) = ([0; 136], 0);
    while kept < N {
        stream.read(&mut block);
        for nibble in block.iter().flat_map(|byte| [byte & 15, byte >> 4]).map(u32::from) {
            if nibble < 15 && kept < N {
                // ⌊d/5⌋ = ⌊13·d/64⌋ below 15: no division of a secret.
                let d = nibble - 5 * ((13 * nibble) >> 6);
                a.0[kept] = Fe::from_centred(ETA as i32 - d as i32);
                kept += 1;
            }
        }
    }
    block.zeroize();
    a
}

/// ExpandY: the mask y of attempt κ from ρ″.
pub fn expand_y(rho2: &[u8], kappa: u16) -> [RingElement; L] {
    array::from_fn(|i| {
        let mut bytes: [u8; GAMMA1_BYTES] = h(&[rho2, &kappa.wrapping_add(i as u16).to_le_bytes()]);
        let y = unpack_gamma1(&bytes);
        bytes.zeroize();
        y
    })
}

/// Ball: the challenge c of c̃, with TAU coefficients ±1, or none where a draw would be biased (5.65·10⁻⁴ of all).
pub fn ball(c_tilde: &[Fe; CSIZE], trace: &mut Trace) -> Option<RingElement> {
    const GROUP: usize = 8;
    // 2 separates this use of the permutation from the sponges.
    let mut state = [Fe::ZERO; T];
    state[0] = Fe::new(2);
    state[1..=CSIZE].copy_from_slice(c_tilde);
    let mut c = RingElement::ZERO;
    for group in 0..TAU / GROUP {
        permute(&mut state, trace);
        let signs = fair(state[GROUP], 256)?;
        for b in 0..GROUP {
            let base = N - TAU + GROUP * group + b;
            let p = fair(state[b], base as u32 + 1)? as usize;
            c.0[base] = c.0[p];
            c.0[p] = if signs >> b & 1 == 0 { Fe::ONE } else { -Fe::ONE };
        }
    }
    Some(c)
}

/// x mod d, or none for the last values of the field, of which there are too few to be one of each remainder.
fn fair(x: Fe, d: u32) -> Option<u32> {
    (x.value() / d != Q / d).then_some(x.value() % d)
}
