//! The readable oracle: key generation, signing and verification step by step, with every step in the scheme's names.
//!
//! Everything fast is tested against this module. A [`Trace`] counts the cases that it meets.

use crate::digest::{Message, com};
use crate::field::Fe;
use crate::keys::{DecodedSignature, ExpandedSigningKey, ExpandedVerifyingKey, Signature, SigningKey, transform_each};
use crate::ntt::{intt, intt_in_place, ntt};
use crate::pack::{pack_eta, pack_fes, pack_gamma1};
use crate::params::*;
use crate::ring::{
    Matrix, NttElement, RingElement, decompose, intt_each, norm, ntt_each, product, product_at, scaled, wraps,
};
use crate::sample::{ball, expand_a, expand_s, expand_y, h};
use crate::trace::{Attempt, Trace};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::array;
use zeroize::{Zeroize, Zeroizing};

/// Gen: a key pair from its seed.
pub fn keygen(seed: &[u8; SEED_BYTES]) -> SigningKey {
    // ρ ‖ ρ′ ‖ key = H(seed, 128)
    let e = Zeroizing::new(h::<128>(&[seed]));
    let (rho, rest) = e.split_at(HASH_BYTES);
    let (rho_prime, key) = rest.split_at(64);
    // Â = ExpandA(ρ);  (s₁, s₂) = ExpandS(ρ′)
    let a_hat = expand_a(rho);
    let (mut s1, mut s2) = expand_s(rho_prime);
    // t = INTT(Â·NTT(s₁)) + s₂
    let t_packed = t_packed(&a_hat, &s1, &s2);
    // pk = ρ ‖ fe24(t);  tr = H(pk, 32)
    let tr: [u8; HASH_BYTES] = h(&[rho, &t_packed]);
    // sk = ρ ‖ key ‖ tr ‖ eta3(s₁) ‖ eta3(s₂) ‖ fe24(t)
    let mut s_packed = Zeroizing::new([0; (L + K) * ETA_BYTES]);
    for (s, out) in s1.iter().chain(&s2).zip(s_packed.chunks_exact_mut(ETA_BYTES)) {
        pack_eta(s, out);
    }
    let sk = Zeroizing::new([rho, key, &tr, &s_packed[..], &t_packed].concat());
    s1.zeroize();
    s2.zeroize();
    SigningKey::from_bytes(&sk).expect("a private key has its length")
}

/// fe24(t) with t = INTT(Â·NTT(s₁)) + s₂. The secrets are transformed and added up where they lie: a move would leave
/// copies of them.
pub(crate) fn t_packed(a_hat: &Matrix, s1: &[RingElement; L], s2: &[RingElement; K]) -> Vec<u8> {
    let s1_hat = transform_each(s1);
    let mut t = Box::new(Zeroizing::new([Fe::ZERO; N]));
    let mut packed = vec![0; T_BYTES];
    for (i, out) in packed.chunks_exact_mut(N * FE_BYTES).enumerate() {
        t.iter_mut().enumerate().for_each(|(at, t)| *t = product_at(&a_hat[i], &s1_hat, at));
        intt_in_place(&mut t);
        t.iter_mut().zip(&s2[i].0).for_each(|(t, s2)| *t = *t + *s2);
        pack_fes(&t[..], out);
    }
    packed
}

/// Sign: the first attempt κ = 0, 4, 8, … that passes all tests.
pub fn sign(sk: &ExpandedSigningKey, message: Message<'_>, trace: &mut Trace) -> Signature {
    // μ and ρ″
    let mu = message.mu(&sk.state_after_tr, trace);
    let rho2 = message.rho2(sk.key(), &sk.tr, &mu);
    let attempts = (0..=u16::MAX).step_by(L);
    attempts
        .map(|kappa| attempt(sk, &mu, &rho2, kappa, trace))
        .find_map(|signature| signature)
        .expect("that all 16,384 attempts fail has the probability 2^-3877")
}

/// One attempt: the signature, or none where a test fails.
fn attempt(
    sk: &ExpandedSigningKey,
    mu: &[Fe; MUSIZE],
    rho2: &[u8; 64],
    kappa: u16,
    trace: &mut Trace,
) -> Option<Signature> {
    let mut seen = Attempt { kappa, challenge: false, r0_norm: None, z_norm: None };
    let signature = attempt_seen(sk, mu, rho2, &mut seen, trace);
    trace.attempts.push(seen);
    signature
}

fn attempt_seen(
    sk: &ExpandedSigningKey,
    mu: &[Fe; MUSIZE],
    rho2: &[u8; 64],
    seen: &mut Attempt,
    trace: &mut Trace,
) -> Option<Signature> {
    // y = ExpandY(ρ″, κ);  w = INTT(Â·NTT(y));  w₁ = HighPart(w)
    let y = Zeroizing::new(expand_y(rho2, seen.kappa));
    let y_hat = Zeroizing::new(ntt_each(&y));
    let w = Zeroizing::new(intt_each(&product(&sk.a_hat, &y_hat)));
    let w1 = Zeroizing::new(high_part(&w));
    // c̃ = com(μ, w₁);  c = Ball(c̃)
    let c_tilde = com(mu, &w1, trace);
    let c = ball(&c_tilde, trace)?;
    seen.challenge = true;
    let c_hat = ntt(&c);
    // r₀ = LowPart(w − c·s₂);  ‖r₀‖ < GAMMA2 − BETA
    let c_s2 = Zeroizing::new(scaled(&c_hat, &sk.s2_hat));
    let r = Zeroizing::new(array::from_fn::<_, K, _>(|i| w[i].minus(&c_s2[i])));
    let r0_norm = norm(r.iter().flat_map(|r| r.0).map(|x| decompose(x).0));
    trace.wraps += r.iter().flat_map(|r| r.0).map(|x| u64::from(wraps(x))).sum::<u64>();
    seen.r0_norm = Some(r0_norm);
    if r0_norm >= GAMMA2 - BETA {
        return None;
    }
    // z = y + c·s₁;  ‖z‖ < GAMMA1 − BETA
    let c_s1 = Zeroizing::new(scaled(&c_hat, &sk.s1_hat));
    let z = Zeroizing::new(array::from_fn::<_, L, _>(|i| y[i].plus(&c_s1[i])));
    let z_norm = norm(z.iter().flat_map(|z| z.0).map(Fe::centred));
    seen.z_norm = Some(z_norm);
    if z_norm >= GAMMA1 - BETA {
        return None;
    }
    // fe24(c̃) ‖ g18(z)
    let mut bytes = vec![0; SIG_BYTES];
    let (c_packed, z_packed) = bytes.split_at_mut(C_TILDE_BYTES);
    pack_fes(&c_tilde, c_packed);
    for (z, out) in z.iter().zip(z_packed.chunks_exact_mut(GAMMA1_BYTES)) {
        pack_gamma1(z, out);
    }
    Some(Signature::from_bytes(bytes).expect("a signature has its length"))
}

/// The high parts of all coefficients.
fn high_part(w: &[RingElement; K]) -> [[u32; N]; K] {
    array::from_fn(|i| w[i].0.map(|x| decompose(x).1))
}

/// INTT(Â·NTT(z) − NTT(c)·NTT(t)): the w that a signature implies.
pub(crate) fn implied_w(pk: &ExpandedVerifyingKey, z: &[RingElement; L], c: &RingElement) -> [RingElement; K] {
    let (a_z, c_hat) = (product(&pk.a_hat, &ntt_each(z)), ntt(c));
    let w_hat = |i: usize| -> NttElement { a_z[i].minus(&c_hat.times(&pk.t_hat[i])) };
    array::from_fn(|i| intt(&w_hat(i)))
}

/// Verify. A signature of the wrong length is invalid; values of c̃ and of the key's t from Q on are reduced, so that
/// others can alter the bytes of a valid signature: see [`verify_strict`].
pub fn verify(pk: &ExpandedVerifyingKey, message: Message<'_>, signature: &[u8], trace: &mut Trace) -> bool {
    // ‖z‖ < GAMMA1 − BETA
    let Some(opened) = DecodedSignature::new(signature) else { return false };
    let (c_tilde, z) = (opened.c_tilde, opened.z());
    // c = Ball(c̃)
    let Some(c) = ball(&c_tilde, trace) else { return false };
    // w₁ = HighPart(INTT(Â·NTT(z) − NTT(c)·NTT(t)))
    let w1 = high_part(&implied_w(pk, &z, &c));
    // com(μ, w₁) = c̃
    let mu = message.mu(&pk.state_after_tr, trace);
    com(&mu, &w1, trace) == c_tilde
}

/// Verify, and refuse whatever is not in the one encoding that signing and key generation write.
pub fn verify_strict(pk: &ExpandedVerifyingKey, message: Message<'_>, signature: &[u8], trace: &mut Trace) -> bool {
    pk.is_canonical_with(signature) && verify(pk, message, signature, trace)
}
