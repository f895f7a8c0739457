//! zkDilithium's keys and signatures, and its cases with known answers.

use crate::checks::{Extent, brief, engine, of_tool, read};
use crate::documents::SOURCE;
use arbitrary::Unstructured;
use hypergrove::Isa;
use hypergrove_cpu::zk::{Sign, Verify, ZkDilithium};
use hypergrove_kat::zkdilithium;
use hypergrove_zkdilithium::keys::DecodedSignature;
use hypergrove_zkdilithium::pack::{fes_are_canonical, pack_eta, pack_fes, pack_gamma1, unpack_fes};
use hypergrove_zkdilithium::params::{
    C_TILDE_BYTES, ETA, ETA_BYTES, FE_BYTES, GAMMA1_BYTES, L, SIG_BYTES, SK_BYTES, T_BYTES,
};
use hypergrove_zkdilithium::reference;
use hypergrove_zkdilithium::witness::Witness;
use hypergrove_zkdilithium::{ExpandedVerifyingKey, Fe, Message, SigningKey, Trace, VerifyingKey};
use std::sync::LazyLock;

/// The lanes of every instruction set of this CPU.
static LANES: LazyLock<Vec<ZkDilithium>> = LazyLock::new(|| {
    let lanes = Isa::available().into_iter().filter_map(ZkDilithium::with);
    lanes.map(ZkDilithium::alone).collect()
});

/// Whatever is a key, raw or in PEM, is written and read again; used, a private key that was checked signs alike everywhere.
pub(super) fn keys(data: &[u8], extent: Extent) {
    let private = [SigningKey::from_bytes(data), SigningKey::read_pem(data)];
    for key in private.into_iter().filter_map(read) {
        assert!(SigningKey::from_bytes(&key.to_bytes()) == Ok(key.clone()));
        let (s1, s2) = (key.s1(), key.s2());
        // Codes that no key generation writes are read as coefficients beyond −2.
        if s1.iter().chain(s2.iter()).all(|s| s.norm() <= ETA) {
            let mut packed = vec![0; SK_BYTES - T_BYTES];
            packed[..96].copy_from_slice(&key.to_bytes()[..96]);
            s1.iter()
                .chain(s2.iter())
                .zip(packed[96..].chunks_exact_mut(ETA_BYTES))
                .for_each(|(s, to)| pack_eta(s, to));
            assert_eq!(packed, key.to_bytes()[..packed.len()]);
        }
        // A check that needs a public key is made only if the key is used.
        if extent == Extent::Use {
            match key.check() {
                Ok(()) => {
                    assert!(SigningKey::read_pem(key.to_pem().as_bytes()) == Ok(key.clone()));
                    signs(&key);
                }
                Err(error) => {
                    brief(&error);
                    assert_eq!(SigningKey::read_pem(key.to_pem().as_bytes()).err(), Some(error));
                }
            }
        }
        public(&key.verifying_key());
    }
    let public_keys = [VerifyingKey::from_bytes(data), VerifyingKey::read_pem(data)];
    public_keys.into_iter().filter_map(read).for_each(|key| public(&key));
}

fn public(key: &VerifyingKey) {
    assert_eq!(VerifyingKey::from_bytes(key.as_bytes()), Ok(key.clone()));
    assert_eq!(VerifyingKey::read_pem(key.to_pem().as_bytes()), Ok(key.clone()));
    let elements: Vec<Fe> = unpack_fes(key.t_bytes()).collect();
    let mut packed = vec![0; T_BYTES];
    pack_fes(&elements, &mut packed);
    assert_eq!(key.is_canonical(), packed == key.t_bytes());
}

/// By the reference and by all lanes.
fn signs(key: &SigningKey) {
    let (expanded, public) = (key.expand(), key.verifying_key().expand());
    let message = Message::Bytes(b"message");
    let signature = reference::sign(&expanded, message, &mut Trace::default());
    assert!(reference::verify_strict(&public, message, signature.as_bytes(), &mut Trace::default()));
    for lanes in LANES.iter() {
        let made = lanes.sign(&[Sign { key: &expanded, message }]);
        assert!(matches!(&made[..], [made] if *made == signature), "by {}", lanes.isa().name());
    }
}

/// A key, and what it has signed.
struct Signed {
    key: ExpandedVerifyingKey,
    message: Vec<u8>,
    signature: Vec<u8>,
}

static SIGNED: LazyLock<Vec<Signed>> = LazyLock::new(|| {
    let lengths = [0, 1, 7, 48, 49, 200];
    let signed = |(number, length): (usize, &usize)| {
        let key = reference::keygen(&[number as u8 / 3; 32]);
        let message = vec![number as u8; *length];
        let signature = reference::sign(&key.expand(), Message::Bytes(&message), &mut Trace::default());
        Signed { key: key.verifying_key().expand(), message, signature: signature.into_bytes() }
    };
    lengths.iter().enumerate().map(signed).collect()
});

/// One job of a batch.
struct Job {
    of: &'static Signed,
    message: Vec<u8>,
    signature: Vec<u8>,
}

/// Signatures that were altered: the reference and every instruction set judge alike.
pub(super) fn signatures(data: &[u8], _: Extent) {
    let mut input = Unstructured::new(data);
    let mut jobs = Vec::new();
    while jobs.len() < 9 && !input.is_empty() {
        let Ok(job) = job(&mut input) else { break };
        jobs.push(job);
    }
    let wanted: Vec<bool> = jobs.iter().map(verdict).collect();
    agree(&jobs, &wanted);
}

fn agree(jobs: &[Job], wanted: &[bool]) {
    for lanes in LANES.iter() {
        let jobs = jobs.iter().map(|Job { of, message, signature }| {
            let message = Message::Bytes(message);
            Verify { key: &of.key, message, signature }
        });
        let verdicts = lanes.verify(&jobs.collect::<Vec<_>>());
        assert_eq!(verdicts, wanted, "by {}", lanes.isa().name());
    }
}

fn job(input: &mut Unstructured<'_>) -> arbitrary::Result<Job> {
    let of = &SIGNED[input.choose_index(SIGNED.len())?];
    let mut job = Job { of, message: of.message.clone(), signature: of.signature.clone() };
    for _ in 0..input.int_in_range(0..=3)? {
        let at = input.int_in_range(0..=SIG_BYTES - 1)?;
        let length = job.signature.len();
        match input.int_in_range(0..=6)? {
            0 => job.signature.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1),
            1 => {
                let value = input.arbitrary()?;
                job.signature.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
            }
            2 => job.signature.resize(at, 0),
            3 => job.signature.resize(length + at % 40, 0xff),
            // An element of c̃ from Q on, which is another encoding of one below.
            4 => {
                let at = at % C_TILDE_BYTES / FE_BYTES * FE_BYTES;
                if let Some(bytes) = job.signature.get_mut(at..at + FE_BYTES) {
                    let mut element = [0; 4];
                    element[..FE_BYTES].copy_from_slice(bytes);
                    let above = u32::from_le_bytes(element).saturating_add(hypergrove_zkdilithium::params::Q);
                    if above < 1 << 24 {
                        bytes.copy_from_slice(&above.to_le_bytes()[..FE_BYTES]);
                    }
                }
            }
            5 => {
                let other = &SIGNED[input.choose_index(SIGNED.len())?].signature;
                let from = at.min(job.signature.len());
                job.signature[from..].iter_mut().zip(&other[from.min(SIG_BYTES)..]).for_each(|(to, byte)| *to = *byte);
            }
            _ => job.message = input.arbitrary::<Vec<u8>>()?,
        }
    }
    Ok(job)
}

/// The verdict of the reference; the parts of the signature are written again.
fn verdict(job: &Job) -> bool {
    let Job { of, message, signature } = job;
    let valid = reference::verify(&of.key, Message::Bytes(message), signature, &mut Trace::default());
    let strict = reference::verify_strict(&of.key, Message::Bytes(message), signature, &mut Trace::default());
    assert_eq!(strict, valid && of.key.is_canonical_with(signature));
    if *signature == of.signature && *message == of.message {
        assert!(strict, "a signature that nobody has altered");
    }
    if let Some(opened) = DecodedSignature::new(signature) {
        let (c_tilde, z) = signature.split_at(C_TILDE_BYTES);
        let mut packed = vec![0; C_TILDE_BYTES];
        pack_fes(&opened.c_tilde, &mut packed);
        assert_eq!(packed == c_tilde, fes_are_canonical(c_tilde));
        let mut packed = vec![0; L * GAMMA1_BYTES];
        opened.z().iter().zip(packed.chunks_exact_mut(GAMMA1_BYTES)).for_each(|(z, to)| pack_gamma1(z, to));
        assert_eq!(packed, z);
    }
    let witness = Witness::new(&of.key, signature);
    assert!(witness.is_some() || !valid, "a valid signature without a witness");
    valid
}

/// Cases of zkDilithium are read; used, they are answered.
pub(super) fn kat(data: &[u8], extent: Extent) {
    let Some(questions) = of_tool(zkdilithium::parse(SOURCE, data)) else { return };
    if extent == Extent::Read || questions.cases.len() > 4 {
        return;
    }
    let Some(answers) = of_tool(zkdilithium::answers(engine(), &questions.cases)) else { return };
    assert_eq!(answers.len(), questions.cases.len());
    serde_json::to_string(&answers).expect("answers have a form in JSON");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict of the lanes that differs from the one that is wanted is found.
    #[test]
    #[should_panic(expected = "by ")]
    fn a_wrong_verdict_is_found() {
        let of = &SIGNED[0];
        let mut job = Job { of, message: of.message.clone(), signature: of.signature.clone() };
        agree(std::slice::from_ref(&job), &[verdict(&job)]);
        job.signature[100] ^= 1;
        agree(&[job], &[true]);
    }
}
