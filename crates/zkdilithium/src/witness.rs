//! The witness of a proof of possession of a signature: of A·z − t·c = w over the integers' polynomials.

use crate::field::Fe;
use crate::keys::{DecodedSignature, ExpandedVerifyingKey};
use crate::ntt::{intt, ntt};
use crate::params::{CSIZE, K, L, N, ZETA};
use crate::reference::implied_w;
use crate::ring::{RingElement, ntt_each};
use crate::sample::ball;
use crate::trace::Trace;
use core::array;

/// A signature in the form that a circuit takes. With A, z, t and c as plain polynomials, A·z − t·c = w + (X²⁵⁶ + 1)·quotient.
#[derive(Clone)]
pub struct Witness {
    /// c̃.
    pub c_tilde: [Fe; CSIZE],
    /// c = Ball(c̃).
    pub c: RingElement,
    /// z.
    pub z: [RingElement; L],
    /// w = A·z − t·c mod X²⁵⁶ + 1.
    pub w: [RingElement; K],
    /// The quotient of A·z − t·c by X²⁵⁶ + 1: its coefficients 256 to 511.
    pub quotient: [RingElement; K],
}

impl Witness {
    /// The witness of a signature's bytes; none where verification would fail before it hashes. Whether the signature
    /// is valid is [`verify`](crate::reference::verify)'s to say.
    pub fn new(pk: &ExpandedVerifyingKey, signature: &[u8]) -> Option<Witness> {
        let opened = DecodedSignature::new(signature)?;
        let (c_tilde, z) = (opened.c_tilde, opened.z());
        let c = ball(&c_tilde, &mut Trace::default())?;
        let w = implied_w(pk, &z, &c);
        // Modulo X²⁵⁶ − 1 the polynomial is w + 2·quotient.
        let cyclic = cyclic_w(pk, &z, &c);
        const HALF: Fe = Fe::new(2).inv();
        let quotient = array::from_fn(|i| RingElement(cyclic[i].minus(&w[i]).0.map(|x| x * HALF)));
        Some(Witness { c_tilde, c, z, w, quotient })
    }
}

/// A·z − t·c modulo X²⁵⁶ − 1: with X replaced by X/ZETA, whose 256th power is −X²⁵⁶, the ring's own product.
fn cyclic_w(pk: &ExpandedVerifyingKey, z: &[RingElement; L], c: &RingElement) -> [RingElement; K] {
    let to_ring = |a: &RingElement| scaled_variable(a, Fe::new(ZETA).inv());
    let a = pk.a().map(|row| row.map(|a| ntt(&to_ring(&a))));
    let z = ntt_each(&array::from_fn(|j| to_ring(&z[j])));
    let (t, c) = (pk.t().map(|t| ntt(&to_ring(&t))), ntt(&to_ring(c)));
    let a_z = crate::ring::product(&a, &z);
    array::from_fn(|i| scaled_variable(&intt(&a_z[i].minus(&c.times(&t[i]))), Fe::new(ZETA)))
}

/// a(factor·X).
fn scaled_variable(a: &RingElement, factor: Fe) -> RingElement {
    let mut power = Fe::ONE;
    let mut scaled = RingElement([Fe::ZERO; N]);
    for (out, x) in scaled.0.iter_mut().zip(a.0) {
        *out = x * power;
        power = power * factor;
    }
    scaled
}
