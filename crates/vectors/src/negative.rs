//! The negative corpus of SLH-DSA, which lies in the workspace (`vectors/slh-dsa/negative`; its README describes the fields).

pub mod encoded;
pub mod make;

use crate::mode::CaseMode;
use hypergrove_fips205::{Mode, Params};
use serde_json::Value;

fn json(file: &str) -> Value {
    serde_json::from_slice(&crate::read(&format!("slh-dsa/negative/{file}")))
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number") as usize
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value)).expect("hexadecimal digits")
}

fn set(value: &Value) -> &'static Params {
    text(value).parse().unwrap_or_else(|why| panic!("{why}"))
}

fn is_valid(case: &Value) -> bool {
    match text(&case["result"]) {
        "valid" => true,
        "invalid" => false,
        other => panic!("the result {other}"),
    }
}

/// A verification.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number and what is special of it.
    pub name: String,
    /// The set.
    pub params: &'static Params,
    /// The public key, of any length.
    pub key: Vec<u8>,
    mode: CaseMode,
    /// The message; M′ through the internal interface.
    pub message: Vec<u8>,
    /// The signature, of any length.
    pub signature: Vec<u8>,
    /// Whether it is valid.
    pub is_valid: bool,
}

impl Case {
    /// The case's mode.
    pub fn mode(&self) -> Mode<'_> {
        self.mode.mode()
    }

    fn new(group: &Value, case: &Value) -> Case {
        let field = |name: &str| case.get(name).unwrap_or(&group["defaults"][name]);
        let piece = |name: &Value| bytes(&group["pieces"][text(name)]);
        let mut signature = piece(field("sig"));
        for edit in list(field("edits")) {
            let at = number(&edit[1]);
            match text(&edit[0]) {
                "xor" => signature[at] ^= number(&edit[2]) as u8,
                "resize" => signature.resize(at, 0),
                "copy" => {
                    let (from, count) = (number(&edit[3]), number(&edit[4]));
                    signature[at..at + count].copy_from_slice(&piece(&edit[2])[from..from + count]);
                }
                other => panic!("the edit {other}"),
            }
        }
        Case {
            name: format!("case {}, {}: {}", case["tcId"], text(&group["parameterSet"]), text(&case["comment"])),
            params: set(field("parameterSet")),
            key: bytes(field("key")),
            mode: CaseMode::new(text(field("interface")), text(field("hashAlg")), &bytes(field("ctx"))),
            message: bytes(field("msg")),
            signature,
            is_valid: is_valid(case),
        }
    }
}

/// The cases of each set whose name is `taken`; those of a set together.
pub fn signatures(taken: impl Fn(&str) -> bool) -> Vec<(&'static Params, Vec<Case>)> {
    let file = json("signatures.json");
    let groups = list(&file["testGroups"]);
    let count = groups.iter().map(|group| list(&group["tests"]).len()).sum::<usize>();
    assert_eq!((groups.len(), number(&file["numberOfTests"])), (12, count), "signatures.json is whole");
    let cases = |group: &Value| list(&group["tests"]).iter().map(|case| Case::new(group, case)).collect();
    let its = groups.iter().filter(|group| taken(text(&group["parameterSet"])));
    its.map(|group| (set(&group["parameterSet"]), cases(group))).collect()
}

/// A key in DER.
#[derive(Clone, Debug)]
pub struct KeyCase {
    /// Its number and what is special of it.
    pub name: String,
    /// PKCS#8, not SPKI.
    pub is_private: bool,
    /// The set that the key is of, if it is valid.
    pub params: &'static Params,
    /// The bytes.
    pub der: Vec<u8>,
    /// Whether it is valid.
    pub is_valid: bool,
}

/// All keys.
pub fn keys() -> Vec<KeyCase> {
    let file = json("keys.json");
    let case = |case: &Value| KeyCase {
        name: format!("case {}, {}: {}", case["tcId"], text(&case["kind"]), text(&case["comment"])),
        is_private: text(&case["kind"]) == "pkcs8",
        params: set(&case["parameterSet"]),
        der: bytes(&case["der"]),
        is_valid: is_valid(case),
    };
    let all: Vec<_> = list(&file["tests"]).iter().map(case).collect();
    assert_eq!(number(&file["numberOfTests"]), all.len(), "keys.json is whole");
    all
}
