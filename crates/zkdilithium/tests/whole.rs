//! Keys, signatures and verdicts of the reference against the vectors, and the paths that it takes.

use hypergrove_testkit::zkdilithium::{Bulk, Case, boundary, bulk, public, special, verify_only};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::reference::{keygen, sign, verify, verify_strict};
use hypergrove_zkdilithium::trace::{Attempt, Trace};
use hypergrove_zkdilithium::{Message, VerifyingKey};
use sha2::{Digest, Sha256};
use shake::Shake256;
use shake::digest::{ExtendableOutput, Update, XofReader};

/// The verdict on bytes, whatever their lengths.
fn verdict(pk: &[u8], msg: &[u8], sig: &[u8]) -> bool {
    let pk = VerifyingKey::from_bytes(pk);
    pk.is_ok_and(|pk| verify(&pk.expand(), Message::Bytes(msg), sig, &mut Trace::default()))
}

/// Key, signature and trace are the case's; what signing met.
fn check(case: &Case) -> Trace {
    let sk = keygen(case.seed[..].try_into().expect("32 bytes"));
    assert_eq!(*sk.to_bytes(), case.sk, "{}", case.id);
    assert_eq!(sk.verifying_key().as_bytes(), case.pk, "{}", case.id);
    sk.check().expect("a key that was generated");

    let mut trace = Trace::default();
    let sig = sign(&sk.expand(), Message::Bytes(&case.msg), &mut trace);
    assert_eq!(sig.as_bytes(), case.sig, "{}", case.id);
    let seen: Vec<Attempt> = (case.trace.attempts.iter())
        .map(|a| Attempt { kappa: a.nonce, challenge: a.c_ok, r0_norm: a.r0_norm, z_norm: a.z_norm })
        .collect();
    assert_eq!(trace.attempts, seen, "{}", case.id);
    assert_eq!(trace.zero_inputs, case.trace.zero_sbox_inputs, "{}", case.id);
    // The vectors count the permutations of the state after tr, which comes with the key here, and one after μ whose
    // result nobody reads.
    assert_eq!(trace.permutations + 2, case.trace.poseidon_perms, "{}", case.id);

    let (pk, mut of_verify) = (sk.verifying_key().expand(), Trace::default());
    assert!(verify(&pk, Message::Bytes(&case.msg), &case.sig, &mut of_verify), "{}", case.id);
    assert!(verify_strict(&pk, Message::Bytes(&case.msg), &case.sig, &mut Trace::default()), "{}", case.id);
    assert_eq!(of_verify.zero_inputs, case.verify_zero_sbox_inputs, "{}", case.id);
    assert_eq!(of_verify.permutations + 2, case.verify_perms, "{}", case.id);
    trace
}

#[test]
fn public_cases() {
    for case in public() {
        check(&case);
        let pk = VerifyingKey::from_bytes(&case.pk).expect("a public key").expand();
        assert_eq!(pk.state_after_tr().map(|x| x.value())[..], case.state_after_tr);
        let mu = Message::Bytes(&case.msg).mu(pk.state_after_tr(), &mut Trace::default());
        assert_eq!(mu.map(|x| x.value())[..], case.mu);
        let sk = keygen(case.seed[..].try_into().expect("32 bytes"));
        let rho2 = Message::Bytes(&case.msg).rho2(sk.key(), sk.tr(), &mu);
        assert_eq!(hex::encode(*rho2), case.rho2_y);
    }
}

#[test]
fn mutations() {
    let mut malleable = 0;
    for case in public() {
        for mutation in &case.verify_mutations {
            let (pk, msg, sig) = mutation.apply(&case);
            assert_eq!(verdict(&pk, &msg, &sig), mutation.expect, "{}: {}", case.id, mutation.name);
            // Altered input that verifies is an encoding that the strict mode refuses.
            if let (true, Ok(pk)) = (mutation.expect, VerifyingKey::from_bytes(&pk)) {
                assert!(!verify_strict(&pk.expand(), Message::Bytes(&msg), &sig, &mut Trace::default()));
                malleable += 1;
            }
        }
    }
    assert!(malleable >= 40, "{malleable}");
}

#[test]
fn verifications_that_no_signer_makes() {
    for case in verify_only() {
        assert_eq!(verdict(&case.pk, &case.msg, &case.sig), case.expect, "{}", case.id);
    }
}

/// The vectors of rare branches reach all of them, by what the reference itself counts.
#[test]
fn every_path_is_taken() {
    let traces: Vec<Trace> = special().iter().chain(&boundary()).map(check).collect();
    let attempts: Vec<Attempt> = traces.iter().flat_map(|trace| trace.attempts.clone()).collect();
    let count = |path: fn(&Attempt) -> bool| attempts.iter().filter(|attempt| path(attempt)).count();
    assert_eq!(count(|a| !a.challenge), 3);
    assert!(count(|a| a.z_norm.is_none() && a.challenge) > 100, "r0 rejects");
    assert!(count(|a| a.z_norm.is_some() && !a.accepted()) > 20, "z rejects");
    assert_eq!(count(Attempt::accepted), traces.len());
    // At the bounds, one below is accepted.
    assert!(count(|a| a.r0_norm == Some(GAMMA2 - BETA)) >= 3);
    assert!(count(|a| a.r0_norm == Some(GAMMA2 - BETA - 1) && a.accepted()) >= 2);
    assert!(count(|a| a.z_norm == Some(GAMMA1 - BETA)) >= 2);
    assert!(count(|a| a.z_norm == Some(GAMMA1 - BETA - 1) && a.accepted()) >= 3);
    assert!(attempts.iter().any(|a| a.kappa > 255), "the second byte of kappa");
    assert_eq!(traces.iter().filter(|trace| trace.zero_inputs > 0).count(), 9);
    assert!(traces.iter().all(|trace| trace.wraps > 0));
}

fn xof(label: &str, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    Shake256::default().chain(label).finalize_xof().read(&mut out);
    out
}

fn check_bulk(case: &Bulk) {
    let (seed, msg) = (xof(&case.seed_label(), SEED_BYTES), xof(&case.msg_label(), case.msg_len));
    let sk = keygen(seed[..].try_into().expect("32 bytes"));
    let sig = sign(&sk.expand(), Message::Bytes(&msg), &mut Trace::default());
    assert_eq!(Sha256::digest(&*sk.to_bytes())[..], case.sk, "{}", case.i);
    assert_eq!(Sha256::digest(sk.verifying_key().as_bytes())[..], case.pk, "{}", case.i);
    assert_eq!(Sha256::digest(&sig)[..], case.sig, "{}", case.i);
}

#[test]
fn some_of_the_bulk_digests() {
    bulk().iter().step_by(40).for_each(check_bulk);
}

/// About 20 s: the backends do all of them in less.
#[test]
#[ignore = "long: cargo test --release -p hypergrove-zkdilithium -- --ignored"]
fn all_bulk_digests() {
    assert_eq!(bulk().len(), 2000);
    bulk().iter().for_each(check_bulk);
}
