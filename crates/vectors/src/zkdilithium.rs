//! The test vectors of zkDilithium, which lie in the workspace (`vectors/zkdilithium`; its README tells their origin).

use crate::hexadecimal::{Hex, bytes};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;

/// The path of a file of vectors.
pub fn path(file: &str) -> PathBuf {
    crate::path("zkdilithium").join(file)
}

fn read(file: &str) -> Vec<u8> {
    crate::read(&format!("zkdilithium/{file}"))
}

fn json<T: DeserializeOwned>(file: &str) -> T {
    serde_json::from_slice(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn cases<T: DeserializeOwned>(file: &str) -> Vec<T> {
    #[derive(Deserialize)]
    struct Cases<T> {
        cases: Vec<T>,
    }
    json::<Cases<T>>(file).cases
}

/// A key pair and a signature, with what the reference that made them met.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// The case's name.
    pub id: String,
    /// The seed of the key pair.
    #[serde(deserialize_with = "bytes")]
    pub seed: Vec<u8>,
    /// The message.
    #[serde(deserialize_with = "bytes")]
    pub msg: Vec<u8>,
    /// The public key.
    #[serde(deserialize_with = "bytes")]
    pub pk: Vec<u8>,
    /// The private key.
    #[serde(deserialize_with = "bytes")]
    pub sk: Vec<u8>,
    /// The signature.
    #[serde(deserialize_with = "bytes")]
    pub sig: Vec<u8>,
    /// μ; given in `e2e_public.json` alone, like what follows.
    #[serde(default)]
    pub mu: Vec<u32>,
    /// ρ″, hexadecimal.
    #[serde(default)]
    pub rho2_y: String,
    /// Poseidon's state after tr.
    #[serde(default)]
    pub state_after_tr: Vec<u32>,
    /// The course of signing.
    pub trace: SigningTrace,
    /// Permutations of a verification, one more than are needed.
    pub verify_perms: u64,
    /// Zeros that entered an S-box in verification.
    pub verify_zero_sbox_inputs: u64,
    /// Altered inputs of verification.
    #[serde(default)]
    pub verify_mutations: Vec<Mutation>,
}

/// The course of signing, as the reference recorded it.
#[derive(Clone, Debug, Deserialize)]
pub struct SigningTrace {
    /// The attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Permutations, one more than are needed.
    pub poseidon_perms: u64,
    /// Zeros that entered an S-box.
    pub zero_sbox_inputs: u64,
}

/// An attempt at a signature.
#[derive(Clone, Debug, Deserialize)]
pub struct Attempt {
    /// κ.
    pub nonce: u16,
    /// Whether c̃ gave a challenge.
    pub c_ok: bool,
    /// The norm of r₀.
    pub r0_norm: Option<u32>,
    /// The norm of z.
    pub z_norm: Option<u32>,
}

/// One altered input of verification.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutation {
    /// The mutation's name.
    pub name: String,
    target: Target,
    #[serde(flatten)]
    alter: Alter,
    /// Whether the altered input verifies.
    pub expect: bool,
}

/// The input that is altered: the public key, the message or the signature, in this order.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Target {
    Pk,
    Msg,
    Sig,
}

/// How bytes are altered.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[expect(missing_docs, reason = "fields that serde names")]
pub enum Alter {
    /// One byte has bits flipped.
    Xor { offset: usize, mask: u8 },
    /// The first bytes are kept.
    Truncate { len: usize },
    /// Bytes follow.
    Append { hex: Hex<false> },
    /// Bytes are replaced.
    Set { offset: usize, hex: Hex<false> },
}

impl Alter {
    /// The altered bytes, or none where there are too few.
    pub fn apply(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match self {
            Alter::Xor { offset, mask } => *bytes.get_mut(*offset)? ^= mask,
            Alter::Truncate { len } if *len > bytes.len() => return None,
            Alter::Truncate { len } => bytes.truncate(*len),
            Alter::Append { hex } => bytes.extend_from_slice(&hex.0),
            Alter::Set { offset, hex } => {
                bytes.get_mut(*offset..offset.checked_add(hex.0.len())?)?.copy_from_slice(&hex.0)
            }
        }
        Some(bytes)
    }
}

impl Mutation {
    /// The case's public key, message and signature, altered.
    pub fn apply(&self, case: &Case) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut inputs = [&case.pk, &case.msg, &case.sig].map(Vec::clone);
        let target = &mut inputs[self.target as usize];
        *target = self.alter.apply(target).unwrap_or_else(|| panic!("{} is beyond the end", self.name));
        let [pk, msg, sig] = inputs;
        (pk, msg, sig)
    }
}

/// 50 cases over many lengths of messages, with mutations.
pub fn public() -> Vec<Case> {
    cases("e2e_public.json")
}

/// 14 cases of rare branches: no challenge, zeros in S-boxes, many attempts.
pub fn special() -> Vec<Case> {
    cases("e2e_special.json")
}

/// 10 cases that a norm exactly at its bound decides.
pub fn boundary() -> Vec<Case> {
    cases("e2e_boundary.json")
}

/// A verification alone.
#[derive(Clone, Debug, Deserialize)]
pub struct Verification {
    /// The case's name.
    pub id: String,
    /// The public key.
    #[serde(deserialize_with = "bytes")]
    pub pk: Vec<u8>,
    /// The message.
    #[serde(deserialize_with = "bytes")]
    pub msg: Vec<u8>,
    /// The signature.
    #[serde(deserialize_with = "bytes")]
    pub sig: Vec<u8>,
    /// Whether it is valid.
    pub expect: bool,
}

/// 9 signatures that no signer makes: five whose z is too long and nothing else wrong, four by a signer that does not
/// check negative r₀.
pub fn verify_only() -> Vec<Verification> {
    cases("verify_only.json")
}

/// SHA-256 of what an independent implementation computes for case `i`.
#[derive(Clone, Debug, Deserialize)]
pub struct Bulk {
    /// The number of the case.
    pub i: usize,
    /// Bytes of the message.
    pub msg_len: usize,
    /// Of the public key.
    #[serde(deserialize_with = "bytes")]
    pub pk: Vec<u8>,
    /// Of the private key.
    #[serde(deserialize_with = "bytes")]
    pub sk: Vec<u8>,
    /// Of the signature.
    #[serde(deserialize_with = "bytes")]
    pub sig: Vec<u8>,
}

impl Bulk {
    /// The input of SHAKE256 that gives the seed, 32 bytes.
    pub fn seed_label(&self) -> String {
        format!("bulk-seed-{}", self.i)
    }
    /// The input of SHAKE256 that gives the message, `msg_len` bytes.
    pub fn msg_label(&self) -> String {
        format!("bulk-msg-{}", self.i)
    }
}

/// 2,000 cases by their digests.
pub fn bulk() -> Vec<Bulk> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("bulk_go_sha256.jsonl: {error}"));
    let lines = String::from_utf8(read("bulk_go_sha256.jsonl")).expect("the lines are text");
    lines.lines().map(parse).collect()
}

/// Inputs and outputs of each primitive, by its name.
pub fn primitives() -> Value {
    json("primitives_public.json")
}

/// The constants, and the SHA-256 of each list.
pub fn constants() -> Value {
    json("constants.json")
}
