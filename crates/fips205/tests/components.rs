//! The reference's parts against known answers of WOTS+ and FORS, and whole signatures against Botan's and BoringSSL's.

use hypergrove_fips205::digest::MPrime;
use hypergrove_fips205::geometry::Position;
use hypergrove_fips205::reference::{
    base_2b, fors_pk_from_sig, fors_sign, gen_len2, hash_slh_sign, hash_slh_verify, sign_at, slh_keygen,
    slh_keygen_internal, slh_sign, slh_sign_internal, slh_verify, slh_verify_internal, to_byte, to_int, wots_chain,
    wots_pk_from_sig, wots_pk_gen, wots_sign,
};
use hypergrove_fips205::{
    Adrs, AdrsType, Family, MessageError, Params, PreHash, SLH_DSA_SHA2_128S, SetStatus, SigningKey, VerifyingKey,
};
use hypergrove_testkit::vectors::{self, Record};

/// The vectors hash their signatures with the set's family.
fn hash(p: &Params, signature: &[u8]) -> Vec<u8> {
    let hash = if p.family == Family::Sha2 { PreHash::Sha256 } else { PreHash::Sha3_256 };
    hash.hash(&[signature])
}

/// The record's layer, tree and key pair, with a type of address: SPHINCS+ sets the type where it is used.
fn adrs(record: &Record, kind: AdrsType) -> Adrs {
    let words: Vec<u32> =
        record.bytes("Address").chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    Adrs([words[0], words[1], words[2], words[3], kind as u32, words[5], 0, 0])
}

#[test]
fn wots() {
    let Some(records) = vectors::sphincsplus_wots() else { return };
    assert_eq!(records.len(), 12);
    for record in records {
        let (p, adrs) = (record.params(), adrs(&record, AdrsType::WotsHash));
        let (sk_seed, pk_seed, m) = (record.bytes("SecretSeed"), record.bytes("PublicSeed"), record.bytes("Msg"));
        let pk = wots_pk_gen(p, &sk_seed, &pk_seed, adrs);
        assert_eq!(pk, record.bytes("HashedWotsPk"), "{p}");
        let signature = wots_sign(p, &m, &sk_seed, &pk_seed, adrs);
        assert_eq!(hash(p, &signature), record.bytes("HashedWotsSig"), "{p}");
        assert_eq!(wots_pk_from_sig(p, &signature, &m, &pk_seed, adrs), pk, "{p}");
    }
}

/// FIPS 205 takes a FORS index's bits from the most significant end of each byte, SPHINCS+ r3.1's code from the least:
/// md with the bits moved so that FIPS 205 reads the indices that r3.1 read.
fn md_of_sphincs(p: &Params, md: &[u8]) -> Vec<u8> {
    let mut out = vec![0; md.len()];
    for i in 0..p.k {
        for j in 0..p.a {
            let (from, to) = (i * p.a + j, i * p.a + p.a - 1 - j);
            out[to / 8] |= (md[from / 8] >> (from % 8) & 1) << (7 - to % 8);
        }
    }
    out
}

#[test]
fn fors() {
    let Some(records) = vectors::sphincsplus_fors() else { return };
    assert_eq!(records.len(), 12);
    for record in records {
        let (p, adrs) = (record.params(), adrs(&record, AdrsType::ForsTree));
        let (sk_seed, pk_seed) = (record.bytes("SecretSeed"), record.bytes("PublicSeed"));
        let md = md_of_sphincs(p, &record.bytes("Msg"));
        let signature = fors_sign(p, &md, &sk_seed, &pk_seed, adrs);
        assert_eq!(hash(p, &signature), record.bytes("HashSig"), "{p}");
        assert_eq!(fors_pk_from_sig(p, &signature, &md, &pk_seed, adrs), record.bytes("PublicKey"), "{p}");
    }
}

/// Pure with an empty context. `HashSigRand` is left out: its opt_rand is not in the file but comes out of AES-256-CTR-DRBG run on `seed`.
#[test]
fn botan() {
    let Some(records) = vectors::botan() else { return };
    assert_eq!(records.len(), 12);
    for record in records {
        let (p, sk) = (record.params(), record.bytes("sk"));
        let key = slh_keygen_internal(p, &sk[..p.n], &sk[p.n..2 * p.n], &sk[2 * p.n..3 * p.n]);
        assert_eq!(key, SigningKey::from_bytes(p, &sk).unwrap());
        assert_eq!(key.verifying_key().to_bytes(), record.bytes("pk"), "{p}");
        if p.name.ends_with('s') {
            continue; // ACVP has signatures of the s sets; each takes the reference a second or more
        }
        let signature = slh_sign(&record.bytes("msg"), b"", &key, None).unwrap();
        assert_eq!(hash(p, signature.as_bytes()), record.bytes("HashSigDet"), "{p}");
    }
}

/// The messages come hashed, so M′ is put together here.
#[test]
fn boringssl_prehash() {
    let Some(records) = vectors::boringssl_prehash() else { return };
    let p = &SLH_DSA_SHA2_128S;
    assert_eq!(records.len(), 2);
    for record in records {
        let key = VerifyingKey::from_bytes(p, &record.bytes("pub")).unwrap();
        let hash: PreHash = record.text("hash").parse().unwrap();
        let (context, hashed, signature) = (record.bytes("context"), record.bytes("msg"), record.bytes("sig"));
        assert_eq!(hashed.len(), hash.hash(&[]).len());
        let m_prime = |hash: PreHash| [&[1, context.len() as u8], &context[..], hash.oid_der(), &hashed].concat();
        assert!(slh_verify_internal(&m_prime(hash), &signature, &key), "{hash}");
        assert!(!slh_verify_internal(&m_prime(PreHash::Sha3_256), &signature, &key));
    }
}

/// FIPS 205, Table 2.
#[test]
fn sets_have_their_categories_and_names() {
    for (name, category) in [
        ("SLH-DSA-SHA2-128s", 1),
        ("SLH-DSA-SHAKE-128f", 1),
        ("SLH-DSA-SHAKE-192s", 3),
        ("SLH-DSA-SHA2-192f", 3),
        ("SLH-DSA-SHA2-256s", 5),
        ("SLH-DSA-SHAKE-256f", 5),
    ] {
        let p: &Params = name.parse().expect("a set");
        assert_eq!((p.category(), p.to_string().as_str()), (category, name));
    }
}

fn toys() -> impl Iterator<Item = &'static Params> {
    hypergrove_testkit::toys::TOYS.iter().copied()
}

/// FIPS 205, Algorithm 21.
#[test]
fn a_new_key_takes_three_seeds() {
    for p in toys() {
        let (mut requested, mut next) = (Vec::new(), 0);
        let key = slh_keygen(p, |seed| {
            requested.push(seed.len());
            next += 1;
            seed.fill(next);
            Ok::<(), ()>(())
        });
        assert_eq!(
            (requested, key),
            (vec![p.n; 3], Ok(slh_keygen_internal(p, &vec![1; p.n], &vec![2; p.n], &vec![3; p.n])))
        );
        assert_eq!(slh_keygen(p, |_| Err("no randomness")).unwrap_err(), "no randomness");
    }
}

/// FIPS 205, Algorithms 22 to 25: a context has at most 255 bytes.
#[test]
fn contexts_and_both_variants() {
    for p in toys() {
        let key = slh_keygen_internal(p, &vec![1; p.n], &vec![2; p.n], &vec![3; p.n]);
        let public = key.verifying_key();
        for length in [0, 255, 256, 300] {
            let ctx = vec![7; length];
            let (pure, hashed) =
                (slh_sign(b"m", &ctx, &key, None), hash_slh_sign(b"m", &ctx, PreHash::Sha512, &key, None));
            if length > 255 {
                assert_eq!(
                    (pure, hashed),
                    (Err(MessageError::Context { got: length }), Err(MessageError::Context { got: length }))
                );
                continue;
            }
            let (pure, hashed) = (pure.unwrap(), hashed.unwrap());
            for (m, valid) in [(b"m", true), (b"n", false)] {
                assert_eq!(slh_verify(m, pure.as_ref(), &ctx, &public), valid, "{p}");
                assert_eq!(hash_slh_verify(m, hashed.as_ref(), &ctx, PreHash::Sha512, &public), valid, "{p}");
            }
            assert!(!slh_verify(b"m", pure.as_ref(), &[7; 300], &public));
            assert!(!hash_slh_verify(b"m", hashed.as_ref(), &[7; 300], PreHash::Sha512, &public));
        }
    }
}

/// FIPS 205, Algorithm 19: after the digest a signature depends on its position alone.
#[test]
fn a_position_is_signed_as_its_message_is() {
    for p in toys() {
        let key = slh_keygen_internal(p, &vec![1; p.n], &vec![2; p.n], &vec![3; p.n]);
        for message in 0..20u8 {
            let signature = slh_sign_internal(&[message], &key, None);
            let (r, rest) = AsRef::<[u8]>::as_ref(&signature).split_at(p.n);
            let at = Position::of(p, r, key.pk_seed(), key.pk_root(), &MPrime::internal(&[message]));
            assert_eq!(sign_at(p, &at, key.sk_seed(), key.pk_seed()), rest, "{p}");
        }
    }
}

#[test]
fn digits() {
    assert_eq!(to_int(&[1, 2, 3]), 0x010203);
    assert_eq!(to_byte(0x0102_0304, 3), [2, 3, 4]);
    assert_eq!(to_byte(1, 3), [0, 0, 1]);
    // 0001 0010 1010 1011 in digits of 2, 3, 4, 8 and 12 bits.
    let x = [0x12, 0xab];
    assert_eq!(base_2b(&x, 2, 8), [0, 1, 0, 2, 2, 2, 2, 3]);
    assert_eq!(base_2b(&x, 3, 5), [0, 4, 5, 2, 5]);
    assert_eq!(base_2b(&x, 4, 4), [1, 2, 10, 11]);
    assert_eq!(base_2b(&x, 8, 2), [0x12, 0xab]);
    assert_eq!(base_2b(&x, 12, 1), [0x12a]);
    assert_eq!(base_2b(&[0xff; 13], 25, 4), [(1 << 25) - 1; 4]);
    for p in hypergrove_testkit::toys::every_set() {
        assert_eq!(gen_len2(p.n, p.lg_w), p.len2(), "{p}");
    }
    assert_eq!([16, 24, 32].map(|n| gen_len2(n, 4)), [3; 3]);
    assert_eq!((gen_len2(16, 2), gen_len2(24, 3), gen_len2(32, 2)), (4, 3, 5));
}

/// A set as small as a toy, with the digits of the draft sets and one tree only.
const fn one_tree(n: usize, lg_w: usize) -> Params {
    let (h, a, k) = (3, 5, 4);
    Params { name: "one tree", family: Family::Sha2, n, h, d: 1, hp: h, a, k, lg_w, m: 4, status: SetStatus::Toy }
}

static ONE_TREE: [Params; 4] = [one_tree(16, 2), one_tree(24, 3), one_tree(32, 2), one_tree(24, 4)];

/// Wherever a byte is changed, the signature no longer verifies: for digits of 2, 3 and 4 bits, and d = 1.
#[test]
fn every_changed_byte_is_refused() {
    for p in &ONE_TREE {
        let key = slh_keygen_internal(p, &vec![1; p.n], &vec![2; p.n], &vec![3; p.n]);
        let public = key.verifying_key();
        for m in 0..3 {
            let signature = slh_sign_internal(&[m], &key, None).into_bytes();
            assert!(slh_verify_internal(&[m], &signature, &public), "lg_w {}", p.lg_w);
            assert!(!slh_verify_internal(&[m + 1], &signature, &public));
            assert!(!slh_verify_internal(&[m], &signature[1..], &public));
            assert!(!slh_verify_internal(&[m], &[&signature[..], &[0]].concat(), &public));
            for at in 0..signature.len() {
                let mut changed = signature.clone();
                changed[at] ^= 1 << (at % 8);
                assert!(!slh_verify_internal(&[m], &changed, &public), "lg_w {}, byte {at}", p.lg_w);
            }
        }
    }
}

/// Every part of a WOTS+ signature is its chain's start, hashed as often as the digit says: the digits of the checksum
/// are those of the number itself, most significant first, whatever lg_w.
#[test]
fn checksum_digits_are_the_numbers_own() {
    for p in &ONE_TREE {
        let adrs = Adrs::new(0, 0, AdrsType::WotsHash);
        let (sk_seed, pk_seed) = (vec![1; p.n], vec![2; p.n]);
        for m in [vec![0; p.n], (1..=p.n as u8).collect(), vec![0xff; p.n]] {
            let mut digits = base_2b(&m, p.lg_w, p.len1());
            let mut checksum: usize = digits.iter().map(|digit| p.w() - 1 - *digit as usize).sum();
            let mut low_first = vec![0; p.len2()];
            for digit in &mut low_first {
                (*digit, checksum) = ((checksum % p.w()) as u32, checksum / p.w());
            }
            assert_eq!(checksum, 0);
            digits.extend(low_first.iter().rev());
            let signature = wots_sign(p, &m, &sk_seed, &pk_seed, adrs);
            for (i, (digit, part)) in digits.into_iter().zip(signature.chunks(p.n)).enumerate() {
                let secret = Adrs::new(0, 0, AdrsType::WotsPrf).chain(i as u32).compressed();
                let start = PreHash::Sha256.hash(&[&pk_seed, &[0; 64][p.n..], &secret, &sk_seed]);
                let chain = wots_chain(p, &start[..p.n], 0, digit as usize, &pk_seed, adrs.chain(i as u32));
                assert_eq!(part, &chain[..], "lg_w {}, chain {i}", p.lg_w);
            }
        }
    }
}
