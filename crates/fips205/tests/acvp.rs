//! The reference against NIST's ACVP vectors.

use hypergrove_fips205::reference::{
    hash_slh_sign, hash_slh_verify, slh_keygen_internal, slh_sign, slh_sign_internal, slh_verify, slh_verify_internal,
};
use hypergrove_fips205::{Family, Mode, Params, PreHash, Signature, SigningKey, VerifyingKey};
use hypergrove_testkit::acvp::{self, CaseGroup, SigGen};
use hypergrove_testkit::all;
use std::collections::BTreeMap;

fn sign(key: &SigningKey, mode: Mode<'_>, message: &[u8], addrnd: Option<&[u8]>) -> Signature {
    match mode {
        Mode::Pure { context } => slh_sign(message, context, key, addrnd).unwrap(),
        Mode::PreHash { context, hash } => hash_slh_sign(message, context, hash, key, addrnd).unwrap(),
        Mode::Digest { .. } => unreachable!("cases hold whole messages"),
        Mode::Internal => slh_sign_internal(message, key, addrnd),
    }
}

fn verify(key: &VerifyingKey, mode: Mode<'_>, message: &[u8], signature: &[u8]) -> bool {
    match mode {
        Mode::Pure { context } => slh_verify(message, signature, context, key),
        Mode::PreHash { context, hash } => hash_slh_verify(message, signature, context, hash, key),
        Mode::Digest { .. } => unreachable!("cases hold whole messages"),
        Mode::Internal => slh_verify_internal(message, signature, key),
    }
}

/// Runs the cases on two threads.
fn in_two_threads<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            test(case);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

/// All cases of the fast sets and one in five of the small ones, whose top trees take long; the engine takes all.
#[test]
fn keygen() {
    let cases = acvp::keygen();
    assert_eq!(cases.len(), 120);
    let chosen: Vec<_> = cases.iter().filter(|(p, case)| all() || is_fast(p) || case.tc_id.is_multiple_of(5)).collect();
    assert_eq!(chosen.len(), if all() { 120 } else { 72 });
    in_two_threads(&chosen, |(p, case)| {
        let key = slh_keygen_internal(p, &case.sk_seed, &case.sk_prf, &case.pk_seed);
        assert_eq!(key.to_bytes()[..], case.sk, "{p} case {}", case.tc_id);
        assert_eq!(key.verifying_key().to_bytes(), case.pk, "{p} case {}", case.tc_id);
    });
}

#[test]
fn sigver() {
    let cases = acvp::sigver();
    assert_eq!((cases.len(), cases.iter().filter(|(_, case)| case.test_passed).count()), (504, 72));
    in_two_threads(&cases, |(group, case)| {
        let valid = verify(&case.key(group), group.mode(), &case.message, &case.signature);
        assert_eq!(valid, case.test_passed, "{} case {}", group.params, case.tc_id);
    });
}

/// Signs, compares and verifies.
fn check_siggen(group: &CaseGroup, case: &SigGen) {
    let (key, mode) = (case.key(group), group.mode());
    let signature = sign(&key, mode, &case.message, case.additional_randomness.as_deref());
    let what = format!("{} case {}", group.params, case.tc_id);
    assert_eq!(PreHash::Sha256.hash(&[signature.as_bytes()]), case.signature_sha256, "{what}");
    assert!(verify(&key.verifying_key(), mode, &case.message, signature.as_bytes()), "{what}");
}

fn siggen(expected: usize, chosen: impl Fn(&Params, u32) -> bool) {
    let cases = acvp::siggen();
    assert_eq!(cases.len(), 624);
    let chosen: Vec<_> = cases.iter().filter(|(group, case)| chosen(group.params, case.tc_id)).collect();
    assert_eq!(chosen.len(), expected);
    in_two_threads(&chosen, |(group, case)| check_siggen(group, case));
}

fn is_fast(p: &Params) -> bool {
    p.name.ends_with('f')
}

/// A quarter of the SHAKE cases, since Keccak-f in portable code takes long, and half of the others; half of these unless all is tested. The
/// engine takes all.
fn is_quick(p: &Params, tc_id: u32) -> bool {
    let share = if p.family == Family::Sha2 { 2 } else { 4 };
    is_fast(p) && tc_id.is_multiple_of(if all() { share } else { 2 * share })
}

#[test]
fn siggen_of_the_fast_sets() {
    siggen(if all() { 116 } else { 58 }, is_quick);
}

/// The first case of each set; of SHAKE's sets if all is tested.
#[test]
fn siggen_of_the_small_sets() {
    let mut first = BTreeMap::new();
    for (group, case) in acvp::siggen() {
        first.entry(group.params.name).or_insert(case.tc_id);
    }
    let is_chosen = |p: &Params| !is_fast(p) && (all() || p.family == Family::Sha2);
    siggen(if all() { 6 } else { 3 }, |p, tc_id| is_chosen(p) && first[p.name] == tc_id);
}

#[test]
#[ignore = "the rest of the SHAKE f sets and of the s sets takes the reference ten minutes"]
fn siggen_of_all_sets() {
    siggen(624, |_, _| true);
}
