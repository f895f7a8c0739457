//! The reference and the readers of keys against the negative corpus.
#![cfg(feature = "pkcs8")]

use hypergrove_fips205::reference::{hash_slh_verify, slh_verify, slh_verify_internal};
use hypergrove_fips205::{Mode, SigningKey, VerifyingKey};
use hypergrove_testkit::negative;
use pkcs8::{DecodePrivateKey, DecodePublicKey};

/// Those of one set; with HYPERGROVE_TESTS=all (`cargo xtask ci full`) of all.
#[test]
fn verdicts_of_the_reference() {
    let groups = negative::signatures(|set| hypergrove_testkit::all() || set == "SLH-DSA-SHA2-128s");
    let cases: Vec<_> = groups.iter().flat_map(|(_, cases)| cases).collect();
    let half = |odd: usize| {
        for case in cases.iter().skip(odd).step_by(2) {
            let verdict = VerifyingKey::from_bytes(case.params, &case.key).is_ok_and(|key| match case.mode() {
                Mode::Pure { context } => slh_verify(&case.message, &case.signature, context, &key),
                Mode::PreHash { context, hash } => hash_slh_verify(&case.message, &case.signature, context, hash, &key),
                Mode::Digest { .. } => unreachable!("cases hold whole messages"),
                Mode::Internal => slh_verify_internal(&case.message, &case.signature, &key),
            });
            assert_eq!(verdict, case.is_valid, "{}", case.name);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| half(1));
        half(0);
    });
    println!("checked: negative corpus: {} verdicts by the reference", cases.len());
}

#[test]
fn keys_are_read_or_refused() {
    let cases = negative::keys();
    for case in &cases {
        // Both ways in: ours, which names what is wrong, and the traits'.
        let read = match case.is_private {
            true => [
                SigningKey::read_pkcs8(&case.der).ok().map(|key| key.params()),
                SigningKey::from_pkcs8_der(&case.der).ok().map(|key| key.params()),
            ],
            false => [
                VerifyingKey::read_spki(&case.der).ok().map(|key| key.params()),
                VerifyingKey::from_public_key_der(&case.der).ok().map(|key| key.params()),
            ],
        };
        assert_eq!(read, [case.is_valid.then_some(case.params); 2], "{}", case.name);
    }
    println!("checked: negative corpus: {} encoded keys", cases.len());
}
