//! The sets of draft SP 800-230 against their known answers.

use hypergrove_fips205::digest::{MPrime, prf_msg};
use hypergrove_fips205::reference::{slh_sign_internal, slh_verify_internal};
use hypergrove_fips205::{Family, Params, PreHash, SigningKey};
use hypergrove_testkit::vectors;

#[test]
fn randomizers() {
    let Some(kats) = vectors::sp800_230_draft() else { return };
    assert_eq!(kats.len(), 6);
    for kat in kats {
        let p: &Params = kat.parameter_set.parse().expect("a set of the draft");
        let mut r = vec![0; p.n];
        prf_msg(p, &kat.sk_prf, &kat.additional_randomness, &MPrime::internal(&kat.message), &mut r);
        assert_eq!(r, kat.r, "{p}");
    }
}

fn whole_signature(set: &str) {
    let Some(kats) = vectors::sp800_230_draft() else { return };
    let kat = kats.into_iter().find(|kat| kat.parameter_set == set).expect("there is one of each set");
    let p: &Params = set.parse().unwrap();
    let key = SigningKey::from_parts(p, &kat.sk_seed, &kat.sk_prf, &kat.pk_seed, &kat.pk[p.n..]).unwrap();
    let signature = slh_sign_internal(&kat.message, &key, Some(&kat.additional_randomness));
    assert!(signature.as_bytes().starts_with(&kat.r));
    // With d = 1 the path of a signature leads to PK.root: this checks the key's tree as well.
    assert!(slh_verify_internal(&kat.message, signature.as_bytes(), &key.verifying_key()));
    let hash = if p.family == Family::Sha2 { PreHash::Sha256 } else { PreHash::Shake256 };
    let digest = hash.hash(&[signature.as_bytes()]);
    assert!(kat.signature_digest.is_none_or(|want| want == digest[..32]));
}

macro_rules! whole_signatures {
    ($($test:ident $set:literal;)*) => {$(
        #[test]
        #[ignore = "a signature hashes a tree of 2^21 or 2^22 WOTS+ keys: minutes with the reference"]
        fn $test() {
            whole_signature($set);
        }
    )*};
}

whole_signatures! {
    sha2_128_24 "SLH-DSA-SHA2-128-24";
    shake_128_24 "SLH-DSA-SHAKE-128-24";
    sha2_192_24 "SLH-DSA-SHA2-192-24";
    shake_192_24 "SLH-DSA-SHAKE-192-24";
    sha2_256_24 "SLH-DSA-SHA2-256-24";
    shake_256_24 "SLH-DSA-SHAKE-256-24";
}
