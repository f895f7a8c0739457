//! The reference against two independent implementations, which also stand in where there are no vectors.

use fips205::traits::{KeyGen, SerDes, Signer, Verifier};
use hypergrove_fips205::reference::{hash_slh_sign, slh_keygen_internal, slh_sign, slh_sign_internal, slh_verify};
use hypergrove_fips205::{MAX_CONTEXT, Params, PreHash};

/// Bytes that depend on a label.
fn bytes(label: &str, length: usize) -> Vec<u8> {
    let blocks =
        (0..length.div_ceil(64) as u32).flat_map(|i| PreHash::Shake256.hash(&[label.as_bytes(), &i.to_le_bytes()]));
    blocks.take(length).collect()
}

/// A random bit generator that gives these bytes.
struct Given(Vec<u8>);

impl fips205::RngCore for Given {
    fn next_u32(&mut self) -> u32 {
        unreachable!("only bytes are asked for")
    }
    fn next_u64(&mut self) -> u64 {
        unreachable!("only bytes are asked for")
    }
    fn fill_bytes(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), fips205::RngError> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl fips205::CryptoRng for Given {}

macro_rules! sets {
    ($($test:ident $name:literal $rustcrypto:ident $fips205:ident $n:literal $rounds:literal;)*) => {$(
        #[test]
        fn $test() {
            let p: &Params = $name.parse().unwrap();
            for round in 0..$rounds {
                let some = |what: &str, length| bytes(&format!("{p} {round} {what}"), length);
                let seeds: [[u8; $n]; 3] = ["SK.seed", "SK.prf", "PK.seed"].map(|s| some(s, $n).try_into().unwrap());
                let [sk_seed, sk_prf, pk_seed] = &seeds;
                let (addrnd, message) = (some("addrnd", $n), some("message", 61 * round));
                let context = some("context", [0, 1, 17, MAX_CONTEXT][round % 4]);
                let hash = PreHash::ALL[(usize::from(p.oid_arc().unwrap()) + 5 * round) % 12];

                let key = slh_keygen_internal(p, sk_seed, sk_prf, pk_seed);
                let (public, raw) = (key.verifying_key(), key.to_bytes());
                let rustcrypto = slh_dsa::SigningKey::<slh_dsa::$rustcrypto>::slh_keygen_internal(sk_seed, sk_prf, pk_seed);
                let (fips205_public, fips205) = fips205::$fips205::KG::keygen_from_seed(sk_seed, sk_prf, pk_seed);
                assert_eq!(rustcrypto.to_bytes()[..], raw[..]);
                assert_eq!(fips205.clone().into_bytes()[..], raw[..]);

                let hedged = slh_sign(&message, &context, &key, Some(&addrnd)).unwrap();
                let theirs = rustcrypto.try_sign_with_context(&message, &context, Some(&addrnd)).unwrap();
                assert_eq!(hedged.as_bytes(), theirs.to_vec());
                let theirs = fips205.try_sign_with_rng(&mut Given(addrnd.clone()), &message, &context, true).unwrap();
                assert_eq!(hedged.as_bytes(), theirs);

                let internal = slh_sign_internal(&message, &key, None);
                assert_eq!(internal.as_bytes(), rustcrypto.slh_sign_internal(&[&message], None).to_vec());

                let hashed = hash_slh_sign(&message, &context, hash, &key, None).unwrap();
                let digest = hash.hash(&[&message]);
                let oid = hash.oid_der();
                let theirs = fips205.try_hash_sign_with_rng(&mut Given(addrnd), &digest, &context, oid, false).unwrap();
                assert_eq!(hashed.as_bytes(), theirs, "{hash}");

                assert!(slh_verify(&message, hedged.as_bytes(), &context, &public));
                let rustcrypto_public: &slh_dsa::VerifyingKey<_> = rustcrypto.as_ref();
                for at in (0..p.sig_bytes()).step_by(p.sig_bytes() / 5) {
                    let mut changed: [u8; fips205::$fips205::SIG_LEN] = hedged.as_bytes().try_into().unwrap();
                    changed[at] ^= 0x10;
                    let theirs = slh_dsa::Signature::try_from(&changed[..]).unwrap();
                    let verdicts = [
                        slh_verify(&message, &changed, &context, &public),
                        rustcrypto_public.try_verify_with_context(&message, &context, &theirs).is_ok(),
                        fips205_public.verify(&message, &changed, &context),
                    ];
                    assert_eq!(verdicts, [false; 3], "byte {at}");
                }
            }
        }
    )*};
}

sets! {
    sha2_128f "SLH-DSA-SHA2-128f" Sha2_128f slh_dsa_sha2_128f 16 8;
    shake_128f "SLH-DSA-SHAKE-128f" Shake128f slh_dsa_shake_128f 16 5;
    sha2_192f "SLH-DSA-SHA2-192f" Sha2_192f slh_dsa_sha2_192f 24 5;
    shake_192f "SLH-DSA-SHAKE-192f" Shake192f slh_dsa_shake_192f 24 3;
    sha2_256f "SLH-DSA-SHA2-256f" Sha2_256f slh_dsa_sha2_256f 32 3;
    shake_256f "SLH-DSA-SHAKE-256f" Shake256f slh_dsa_shake_256f 32 2;
    sha2_128s "SLH-DSA-SHA2-128s" Sha2_128s slh_dsa_sha2_128s 16 1;
}
