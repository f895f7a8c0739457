//! NIST's ACVP cases of SLH-DSA, which lie in the workspace (`vectors/slh-dsa/acvp`; its README describes the format).

pub mod compact;
pub mod prompt;

use crate::mode::CaseMode;
use hypergrove_fips205::{Mode, Params, SigningKey, VerifyingKey};
use std::collections::BTreeMap;
use std::{iter, str};

/// The values of a case, by their columns' names. A value that NIST does not give is empty.
#[derive(Clone, Debug)]
pub struct Row(BTreeMap<String, Vec<u8>>);

impl Row {
    /// A value.
    pub fn bytes(&self, column: &str) -> &[u8] {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column} in {:?}", self.0.keys()))
    }
    /// A value that is text.
    pub fn text(&self, column: &str) -> &str {
        str::from_utf8(self.bytes(column)).unwrap_or_else(|error| panic!("{column}: {error}"))
    }
    fn number(&self, column: &str) -> u32 {
        self.text(column).parse().unwrap_or_else(|error| panic!("{column}: {error}"))
    }
    fn params(&self) -> &'static Params {
        let name = self.text("parameterSet");
        name.parse().unwrap_or_else(|why| panic!("{why}"))
    }
}

/// All cases of a file: `keygen`, `siggen` or `sigver`.
pub fn rows(name: &str) -> Vec<Row> {
    let bytes = crate::read(&format!("slh-dsa/acvp/{name}.bin"));
    let mut strings = compact::strings(&bytes).map(|string| string.unwrap_or_else(|| panic!("{name} is cut short")));
    let columns = str::from_utf8(strings.next().expect("columns")).expect("the columns' names are text");
    let mut rows = Vec::new();
    while let Some(first) = strings.next() {
        let values = iter::once(first).chain(&mut strings);
        rows.push(Row(columns.split(' ').map(String::from).zip(values.map(<[u8]>::to_vec)).collect()));
    }
    rows
}

/// A key generation.
#[derive(Clone, Debug)]
pub struct KeyGen {
    /// The number of the case.
    pub tc_id: u32,
    /// SK.seed.
    pub sk_seed: Vec<u8>,
    /// SK.prf.
    pub sk_prf: Vec<u8>,
    /// PK.seed.
    pub pk_seed: Vec<u8>,
    /// The private key.
    pub sk: Vec<u8>,
    /// The public key.
    pub pk: Vec<u8>,
}

/// The 120 key generations, each with its set.
pub fn keygen() -> Vec<(&'static Params, KeyGen)> {
    let case = |row: &Row| KeyGen {
        tc_id: row.number("tcId"),
        sk_seed: row.bytes("skSeed").into(),
        sk_prf: row.bytes("skPrf").into(),
        pk_seed: row.bytes("pkSeed").into(),
        sk: row.bytes("sk").into(),
        pk: row.bytes("pk").into(),
    };
    rows("keygen").iter().map(|row| (row.params(), case(row))).collect()
}

/// The set and the mode of a case.
#[derive(Clone, Debug)]
pub struct CaseGroup {
    /// The set.
    pub params: &'static Params,
    mode: CaseMode,
}

impl CaseGroup {
    fn of(row: &Row) -> CaseGroup {
        let mode = CaseMode::new(row.text("interface"), row.text("hashAlg"), row.bytes("context"));
        CaseGroup { params: row.params(), mode }
    }
    /// The mode.
    pub fn mode(&self) -> Mode<'_> {
        self.mode.mode()
    }
}

/// A signature generation.
#[derive(Clone, Debug)]
pub struct SigGen {
    /// The number of the case.
    pub tc_id: u32,
    sk: Vec<u8>,
    /// The message; M′ through the internal interface.
    pub message: Vec<u8>,
    /// opt_rand; none in the deterministic cases.
    pub additional_randomness: Option<Vec<u8>>,
    /// SHA-256 of the signature.
    pub signature_sha256: Vec<u8>,
}

impl SigGen {
    /// The case's key.
    pub fn key(&self, group: &CaseGroup) -> SigningKey {
        SigningKey::from_bytes(group.params, &self.sk).unwrap_or_else(|error| panic!("case {}: {error}", self.tc_id))
    }
}

/// The 624 signature generations.
pub fn siggen() -> Vec<(CaseGroup, SigGen)> {
    let case = |row: &Row| SigGen {
        tc_id: row.number("tcId"),
        sk: row.bytes("sk").into(),
        message: row.bytes("message").into(),
        additional_randomness: Some(row.bytes("additionalRandomness").to_vec()).filter(|bytes| !bytes.is_empty()),
        signature_sha256: row.bytes("signatureSha256").into(),
    };
    rows("siggen").iter().map(|row| (CaseGroup::of(row), case(row))).collect()
}

/// A verification.
#[derive(Clone, Debug)]
pub struct SigVer {
    /// The number of the case.
    pub tc_id: u32,
    pk: Vec<u8>,
    /// The message; M′ through the internal interface.
    pub message: Vec<u8>,
    /// The signature, some with a length that is not the set's.
    pub signature: Vec<u8>,
    /// Whether it is valid.
    pub test_passed: bool,
}

impl SigVer {
    /// The case's key.
    pub fn key(&self, group: &CaseGroup) -> VerifyingKey {
        VerifyingKey::from_bytes(group.params, &self.pk).unwrap_or_else(|error| panic!("case {}: {error}", self.tc_id))
    }
}

/// The 504 verifications.
pub fn sigver() -> Vec<(CaseGroup, SigVer)> {
    let case = |row: &Row| SigVer {
        tc_id: row.number("tcId"),
        pk: row.bytes("pk").into(),
        message: row.bytes("message").into(),
        signature: row.bytes("signature").into(),
        test_passed: row.text("testPassed") == "true",
    };
    rows("sigver").iter().map(|row| (CaseGroup::of(row), case(row))).collect()
}
