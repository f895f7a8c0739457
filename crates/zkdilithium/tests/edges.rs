//! Tests beyond signing and verifying bytes: elements instead of bytes, the witness, strictness, and damaged input.

use hypergrove_testkit::forms::forms;
use hypergrove_testkit::zkdilithium::{primitives, public};
use hypergrove_zkdilithium::ntt::{intt, ntt};
use hypergrove_zkdilithium::pack::{bytes_to_fes, unpack_fes};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::reference::{keygen, sign, verify, verify_strict};
use hypergrove_zkdilithium::ring::RingElement;
use hypergrove_zkdilithium::trace::Trace;
use hypergrove_zkdilithium::witness::Witness;
use hypergrove_zkdilithium::{Fe, KeyError, Message, Signature, SigningKey, VerifyingKey};
use shake::Shake128;
use shake::digest::{ExtendableOutput, Update, XofReader};

/// A stream of bytes that is the same in every run.
fn stream(label: &str) -> impl XofReader {
    Shake128::default().chain(label).finalize_xof()
}

fn trace() -> Trace {
    Trace::default()
}

#[test]
fn elements_are_signed_like_bytes() {
    let sk = keygen(&[7; 32]);
    let (signer, verifier) = (sk.expand(), sk.verifying_key().expand());
    let bytes = b"a message of up to 48 bytes";
    let mut block = [Fe::ZERO; MUSIZE];
    block.iter_mut().zip(bytes_to_fes(bytes)).for_each(|(cell, element)| *cell = element);
    let mu = Message::Bytes(bytes).mu(signer.state_after_tr(), &mut trace());
    let messages = [Message::Bytes(bytes), Message::Block(&block), Message::Mu(&mu)];
    let signatures = messages.map(|message| sign(&signer, message, &mut trace()));
    // One μ, so every signature is valid for every form of the message.
    for message in messages {
        for signature in &signatures {
            assert!(verify_strict(&verifier, message, signature.as_bytes(), &mut trace()));
        }
    }
    // The masks of bytes are others than those of elements.
    assert_ne!(signatures[0], signatures[1]);
    assert_eq!(signatures[1], signatures[2]);
    let mut other = mu;
    other[23] = other[23] + Fe::ONE;
    assert!(!verify(&verifier, Message::Mu(&other), signatures[0].as_bytes(), &mut trace()));
    // A block is no message of 72 bytes, though its own bytes are.
    let mut packed = [0; 72];
    hypergrove_zkdilithium::pack::pack_fes(&mu, &mut packed);
    let of_bytes = Message::Bytes(&packed).rho2(sk.key(), sk.tr(), &mu);
    assert_ne!(of_bytes, Message::Mu(&mu).rho2(sk.key(), sk.tr(), &mu));
}

/// A·z − t·c = w + (X²⁵⁶ + 1)·quotient, multiplied out.
#[test]
fn the_witness_holds_as_plain_polynomials() {
    let sk = keygen(&[9; 32]);
    let pk = sk.verifying_key().expand();
    let signature = sign(&sk.expand(), Message::Bytes(b"possession"), &mut trace());
    let witness = Witness::new(&pk, signature.as_bytes()).expect("a signature");
    let add = |sum: &mut [Fe; 2 * N], a: &RingElement, b: &RingElement, sign: Fe| {
        for (i, x) in a.0.iter().enumerate() {
            b.0.iter().enumerate().for_each(|(j, y)| sum[i + j] = sum[i + j] + sign * *x * *y);
        }
    };
    let (a, t) = (pk.a(), pk.t());
    assert!(t.iter().flat_map(|t| t.0).eq(unpack_fes(sk.verifying_key().t_bytes())));
    for i in 0..K {
        let mut plain = [Fe::ZERO; 2 * N];
        (0..L).for_each(|j| add(&mut plain, &a[i][j], &witness.z[j], Fe::ONE));
        add(&mut plain, &t[i], &witness.c, -Fe::ONE);
        assert_eq!(plain[N..], witness.quotient[i].0);
        let w: Vec<Fe> = (0..N).map(|k| plain[k] - plain[N + k]).collect();
        assert_eq!(w, witness.w[i].0);
    }
    // The ranges that the circuit demands.
    assert!(witness.z.iter().flat_map(|z| z.0).all(|z| (-130992..=131071).contains(&z.centred())));
    assert!(Witness::new(&pk, &signature.as_bytes()[1..]).is_none());
}

/// The quotient's sign and place, as the vectors have them.
#[test]
fn a_quotient_is_half_the_difference() {
    for case in primitives()["poly_mul"].as_array().expect("a list") {
        let element = |name: &str| {
            let bytes = hex::decode(case[name].as_str().expect("a string")).expect("hexadecimal digits");
            let mut fes = unpack_fes(&bytes);
            RingElement(std::array::from_fn(|_| fes.next().unwrap_or_default()))
        };
        let (a, b, quotient) = (element("a"), element("b"), element("quotient"));
        let negacyclic = intt(&ntt(&a).times(&ntt(&b)));
        let at_one = |a: &RingElement| a.0.iter().copied().sum::<Fe>();
        // At X = 1: a·b = w + 2·quotient.
        assert_eq!(at_one(&a) * at_one(&b), at_one(&negacyclic) + Fe::new(2) * at_one(&quotient));
    }
}

#[test]
fn keys_travel_as_bytes_and_pem() {
    let case = &public()[0];
    let sk = SigningKey::from_bytes(&case.sk).expect("a private key");
    let pk = VerifyingKey::from_bytes(&case.pk).expect("a public key");
    assert_eq!(SigningKey::read_pem(sk.to_pem().as_bytes()), Ok(sk.clone()));
    assert_eq!(VerifyingKey::read_pem(pk.to_pem().as_bytes()), Ok(pk.clone()));
    assert!(sk.to_pem().starts_with("-----BEGIN ZKDILITHIUM PRIVATE KEY-----\n"));
    assert!(pk.to_pem().starts_with("-----BEGIN ZKDILITHIUM PUBLIC KEY-----\n"));
    let error = SigningKey::read_pem(pk.to_pem().as_bytes()).expect_err("a public key");
    assert!(error.to_string().contains("the file holds a public key of zkDilithium"), "{error}");
    for form in forms(&sk.to_pem(), &pk.to_pem()) {
        match (SigningKey::read_pem(&form.file), form.refused) {
            (Ok(read), None) => assert!(read == sk, "{}", form.name),
            (read, why) => assert!(read.unwrap_err().to_string().contains(why.expect("refused")), "{}", form.name),
        }
    }
    for form in forms(&pk.to_pem(), &sk.to_pem()) {
        match (VerifyingKey::read_pem(&form.file), form.refused) {
            (Ok(read), None) => assert!(read == pk, "{}", form.name),
            (read, why) => assert!(read.unwrap_err().to_string().contains(why.expect("refused")), "{}", form.name),
        }
    }
    let mut bytes = case.pk.clone();
    bytes[0] ^= 1;
    let other = VerifyingKey::from_bytes(&bytes).expect("a public key");
    let both = format!("{}{}", *sk.to_pem(), other.to_pem());
    assert_eq!(SigningKey::read_pem(both.as_bytes()), Err(KeyError::PublicKeyMismatch));
    assert_eq!(VerifyingKey::read_pem(both.as_bytes()), Err(KeyError::PublicKeyMismatch));
    let shown = format!("{sk:?} {:?}", sk.expand());
    assert!(!shown.contains(&hex::encode(sk.key())) && shown.contains(&hex::encode(sk.rho())));
}

#[test]
fn lengths_are_named() {
    for bytes in [0, 1, PK_BYTES - 1, PK_BYTES + 1, SK_BYTES - 1, SK_BYTES + 1, SIG_BYTES - 1, SIG_BYTES + 1] {
        let (zeros, got) = (vec![0; bytes], bytes);
        let length = |what, want| KeyError::Length { what, want, got };
        assert_eq!(VerifyingKey::from_bytes(&zeros), Err(length("a public key", PK_BYTES)));
        assert_eq!(SigningKey::from_bytes(&zeros), Err(length("a private key", SK_BYTES)));
        assert_eq!(Signature::from_bytes(zeros), Err(length("a signature", SIG_BYTES)));
    }
    let text = Signature::from_bytes(vec![0; 5]).expect_err("too short").to_string();
    assert_eq!(text, "a signature of zkDilithium has 2340 bytes, this one has 5; check the scheme and the file");
}

#[test]
fn damaged_private_keys_are_noticed() {
    let good = keygen(&[1; 32]).to_bytes();
    let check = |at: usize, mask: u8| {
        let mut bytes = good.to_vec();
        bytes[at] ^= mask;
        SigningKey::from_bytes(&bytes).expect("its length is right").check()
    };
    assert_eq!(check(0, 1), Err(KeyError::PublicKeyMismatch));
    assert_eq!(check(64, 1), Err(KeyError::PublicKeyMismatch));
    assert_eq!(check(SK_BYTES - 3, 1), Err(KeyError::PublicKeyMismatch));
    // A coefficient of s₁, and one of s₂, changed by one: neither code is the last, 4.
    assert_eq!(check(96, 1), Err(KeyError::PublicKeyMismatch));
    assert_eq!(check(96 + 4 * ETA_BYTES, 1), Err(KeyError::PublicKeyMismatch));
    // Three bits 111.
    let mut bytes = good.to_vec();
    bytes[96] |= 7;
    let odd = SigningKey::from_bytes(&bytes).expect("its length is right");
    assert_eq!(odd.check(), Err(KeyError::OutOfRange));
    // It signs all the same, as every implementation does.
    let signature = sign(&odd.expand(), Message::Bytes(b""), &mut trace());
    assert_eq!(signature.as_bytes().len(), SIG_BYTES);
}

/// No bytes make a decoder panic, and no altered signature verifies.
#[test]
fn random_damage() {
    let mut random = stream("damage");
    let mut draw = |below: usize| {
        let mut bytes = [0; 8];
        random.read(&mut bytes);
        (u64::from_le_bytes(bytes) % below as u64) as usize
    };
    let sk = keygen(&[3; 32]);
    let pk = sk.verifying_key().expand();
    let signature = sign(&sk.expand(), Message::Bytes(b"whole"), &mut trace()).into_bytes();
    for _ in 0..300 {
        let mut bytes = signature.clone();
        (0..1 + draw(3)).for_each(|_| bytes[draw(SIG_BYTES)] ^= 1 << draw(8));
        if bytes != signature {
            assert!(!verify_strict(&pk, Message::Bytes(b"whole"), &bytes, &mut trace()));
        }
        Witness::new(&pk, &bytes);
    }
    let pem = sk.to_pem();
    for round in 0..3000 {
        let mut bytes = vec![0; if round % 2 == 0 { draw(5000) } else { [PK_BYTES, SK_BYTES, SIG_BYTES][draw(3)] }];
        bytes.iter_mut().for_each(|byte| *byte = draw(256) as u8);
        let expected = |length| bytes.len() == length;
        assert_eq!(VerifyingKey::from_bytes(&bytes).is_ok(), expected(PK_BYTES));
        assert_eq!(SigningKey::from_bytes(&bytes).is_ok(), expected(SK_BYTES));
        if let Ok(key) = SigningKey::from_bytes(&bytes) {
            assert!(key.check().is_err());
        }
        assert!(Witness::new(&pk, &bytes).is_none() || expected(SIG_BYTES));
        assert!(!verify(&pk, Message::Bytes(&bytes), &bytes, &mut trace()));
        let mut damaged = pem.as_bytes().to_vec();
        let at = draw(damaged.len());
        damaged[at] = draw(256) as u8;
        damaged.truncate(damaged.len() - draw(2) * draw(100));
        match SigningKey::read_pem(&damaged) {
            // Any 32 bytes are a `key`; whatever else is altered shows.
            Ok(key) => assert_eq!(key.to_bytes()[64..], sk.to_bytes()[64..]),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
