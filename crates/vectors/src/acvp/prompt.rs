//! NIST's ACVP tests of SLH-DSA as its server asks them, and their answers.

#![expect(missing_docs, reason = "fields have the names that NIST gives them")]

use crate::hexadecimal;
use hypergrove_fips205::quote::Quote;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt::{self, Display};

/// Bytes, in the capitals that ACVP writes.
pub type Hex = hexadecimal::Hex<true>;

/// A whole number that names something, kept as it is written: no integer type holds all of them.
#[derive(Clone, Serialize)]
pub struct Id(Box<RawValue>);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let number = Box::<RawValue>::deserialize(deserializer)?;
        match number.get().bytes().all(|digit| digit.is_ascii_digit()) {
            true => Ok(Id(number)),
            false => {
                Err(D::Error::custom(format!("an identifier is a whole number, not {}", Quote::new(number.get()))))
            }
        }
    }
}

impl Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get() {
            number if number.len() <= 7 => f.write_str(number),
            number => Quote::new(number).fmt(f),
        }
    }
}

/// A prompt: the tests that a server asks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub vs_id: Option<Id>,
    pub algorithm: String,
    pub mode: String,
    pub revision: String,
    pub is_sample: Option<bool>,
    /// The tests, in groups.
    pub test_groups: Vec<TestGroup>,
}

/// Tests of one parameter set in one mode.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestGroup {
    pub tg_id: Id,
    pub parameter_set: String,
    pub deterministic: Option<bool>,
    pub signature_interface: Option<String>,
    pub pre_hash: Option<String>,
    /// The tests.
    pub tests: Vec<Test>,
}

/// A test.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Test {
    pub tc_id: Id,
    pub sk_seed: Option<Hex>,
    pub sk_prf: Option<Hex>,
    pub pk_seed: Option<Hex>,
    pub sk: Option<Hex>,
    pub pk: Option<Hex>,
    pub message: Option<Hex>,
    pub context: Option<Hex>,
    pub hash_alg: Option<String>,
    pub additional_randomness: Option<Hex>,
    pub signature: Option<Hex>,
}

/// The answers to a prompt.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vs_id: Option<Id>,
    pub algorithm: String,
    pub mode: String,
    pub revision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_sample: Option<bool>,
    pub test_groups: Vec<AnsweredGroup>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
/// Answers to a group.
pub struct AnsweredGroup {
    pub tg_id: Id,
    pub tests: Vec<AnsweredTest>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
/// The answer to a test.
pub struct AnsweredTest {
    pub tc_id: Id,
    #[serde(flatten)]
    pub answer: Answer,
}

#[derive(Serialize)]
#[serde(untagged)]
/// An answer, by its mode.
pub enum Answer {
    KeyGen {
        sk: Hex,
        pk: Hex,
    },
    SigGen {
        signature: Hex,
    },
    #[serde(rename_all = "camelCase")]
    SigVer {
        test_passed: bool,
    },
}
