//! Known answers of zkDilithium, which [`SelfTested`] asks a device for before it is used.

use super::{Subject, half_digest, wrong};
use crate::{
    Device, Error, Places, Policy, SelfTest, SelfTested, THREADS, ZkDilithium, ZkDilithiumPrograms, ZkSign, ZkVerify,
};
use hypergrove_zkdilithium::params::{NAME, SEED_BYTES};
use hypergrove_zkdilithium::{Message, Signature, SigningKey, VerifyingKey};

/// Case 1 of `bulk_go_sha256.jsonl` among the vectors, by an independent implementation: seed and message, and the first half
/// of SHA-256 of the private key and of the signature.
const ZK_SEED: [u8; SEED_BYTES] = [
    0xa8, 0x83, 0xe3, 0xb2, 0x29, 0xb8, 0xdf, 0x4d, 0x35, 0x11, 0x1a, 0xc4, 0x20, 0x03, 0xf0, 0x32, 0x11, 0x26, 0xf0,
    0x19, 0x7c, 0x58, 0x83, 0xa2, 0x53, 0x35, 0x11, 0xf6, 0xa9, 0xed, 0x9b, 0xb8,
];
const ZK_MESSAGE: [u8; 7] = [0x97, 0x6c, 0x6b, 0xa2, 0xe8, 0x5d, 0x33];
const ZK_KEY: u128 = 0xd1cc3da1dc8f6eb3687a9a2a295cb2cd;
const ZK_SIGNATURE: u128 = 0x5369faa5eb3881b2338621ce1076d32e;

/// Tests zkDilithium's known answers with functions that make a key from a seed, sign, and verify.
pub fn test_known_answers(
    device: &str,
    keygen: impl FnOnce(&[u8; SEED_BYTES]) -> Result<SigningKey, Error>,
    sign: impl FnOnce(&SigningKey, Message<'_>) -> Result<Signature, Error>,
    mut verify: impl FnMut(&VerifyingKey, Message<'_>, &[u8]) -> Result<bool, Error>,
) -> Result<(), Error> {
    let right = |is_right, what| if is_right { Ok(()) } else { Err(wrong(device, what)) };
    let (key, message) = (keygen(&ZK_SEED)?, Message::Bytes(&ZK_MESSAGE));
    right(half_digest(&key.to_bytes()) == ZK_KEY, "key generation for zkDilithium")?;
    let signature = sign(&key, message)?;
    right(half_digest(signature.as_bytes()) == ZK_SIGNATURE, "signing for zkDilithium")?;
    let (public, mut changed) = (key.verifying_key(), signature.as_bytes().to_vec());
    changed[100] ^= 1;
    let verdicts = [verify(&public, message, signature.as_bytes())?, verify(&public, message, &changed)?];
    right(verdicts == [true, false], "verification for zkDilithium")
}

/// Tests zkDilithium's known answers on a device.
fn zkdilithium_of(device: &str, zk: &mut dyn ZkDilithium) -> Result<(), Error> {
    let zk = std::cell::RefCell::new(zk);
    test_known_answers(
        device,
        |seed| {
            let mut key = SigningKey::zeros();
            zk.borrow_mut().keygen(&[*seed], &mut [key.secret_bytes_mut()], Places::Usual)?;
            Ok(key)
        },
        |key, message| {
            let mut signature = Signature::zeros();
            zk.borrow_mut().sign(&[ZkSign::new(key, message)], &mut [signature.bytes_mut()], Places::Usual)?;
            Ok(signature)
        },
        |key, message, signature| {
            let mut verdicts = Vec::new();
            zk.borrow_mut().verify(&[ZkVerify::new(key, message, signature)], &mut verdicts, Places::Usual)?;
            verdicts.pop().ok_or_else(|| wrong(device, "zkDilithium"))
        },
    )
}

impl ZkDilithiumPrograms for SelfTested {
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        let programs = self.subject.zkdilithium_on(device)?;
        let is_alone = self.mode == SelfTest::SharedCode;
        self.results(device).settle(&Subject::new(NAME, policy), is_alone, || {
            zkdilithium_of(&device.id(), &mut *programs.prepare(device, &policy.with(THREADS, 1))?).map(|()| true)
        })?;
        programs.prepare(device, policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_answers_are_the_references() {
        let mut trace = hypergrove_zkdilithium::Trace::default();
        use hypergrove_zkdilithium::reference;
        let flips = |at: usize| {
            let mut trace = hypergrove_zkdilithium::Trace::default();
            test_known_answers(
                "cpu:0",
                |seed| Ok(reference::keygen(&if at == 0 { [9; SEED_BYTES] } else { *seed })),
                |key, message| {
                    let message = if at == 1 { Message::Bytes(b"other") } else { message };
                    Ok(reference::sign(&key.expand(), message, &mut trace))
                },
                |_, _, _| Ok(at == 2),
            )
        };
        for (at, what) in ["key generation", "signing", "verification", "verification"].into_iter().enumerate() {
            let why = flips(at).unwrap_err().to_string();
            assert!(why.contains(&format!("its self-test, {what} for zkDilithium, gave a wrong answer")), "{why}");
        }
        let judge = |key: &VerifyingKey, message: Message<'_>, signature: &[u8]| {
            Ok(reference::verify(&key.expand(), message, signature, &mut hypergrove_zkdilithium::Trace::default()))
        };
        let sign = |key: &SigningKey, message: Message<'_>| Ok(reference::sign(&key.expand(), message, &mut trace));
        test_known_answers("cpu:0", |seed| Ok(reference::keygen(seed)), sign, judge).unwrap();
    }
}
