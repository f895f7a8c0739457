//! The compact form of NIST's ACVP cases: `vectors/slh-dsa/acvp`, whose README describes it.

use hypergrove_fips205::PreHash;
use serde_json::Value;

/// A file of cases, its columns, and a field by which its JSON is recognised.
struct Table {
    file: &'static str,
    columns: &'static str,
    marker: &'static str,
}

/// The first whose field a file has: only key generations have `skSeed`, only they and signature generations have `sk`.
const TABLES: [Table; 3] = [
    Table { file: "keygen.bin", columns: "tcId parameterSet skSeed skPrf pkSeed sk pk", marker: "skSeed" },
    Table {
        file: "siggen.bin",
        columns: "tcId parameterSet interface hashAlg sk message context additionalRandomness signatureSha256",
        marker: "sk",
    },
    Table {
        file: "sigver.bin",
        columns: "tcId parameterSet interface hashAlg pk message context signature testPassed",
        marker: "pk",
    },
];

/// The compact form of a file of NIST's.
pub struct Compact {
    /// The name of the file.
    pub file: &'static str,
    /// The number of cases.
    pub cases: usize,
    /// The bytes of the file.
    pub bytes: Vec<u8>,
}

/// Makes the compact form of NIST's `internalProjection.json`.
pub fn compact(json: &[u8]) -> Result<Compact, String> {
    let file: Value = serde_json::from_slice(json).map_err(|why| why.to_string())?;
    let list = |value: &'_ Value, name: &str| value[name].as_array().cloned();
    let groups = list(&file, "testGroups").or_else(|| list(&file, "groups")).ok_or("it has no testGroups")?;
    let tests = |group: &Value| list(group, "tests").ok_or("a group has no tests");
    let first = groups.first().map(tests).transpose()?.and_then(|tests| tests.first().cloned()).unwrap_or_default();
    let table = TABLES.iter().find(|table| first.get(table.marker).is_some());
    let table = table.ok_or("its tests have neither skSeed, sk nor pk: take internalProjection.json")?;
    let (mut out, mut cases) = (Vec::new(), 0);
    append(&mut out, table.columns.as_bytes());
    for group in &groups {
        for test in tests(group)? {
            for column in table.columns.split(' ') {
                let value = value(column, group, &test).map_err(|why| format!("case {}: {why}", test["tcId"]))?;
                append(&mut out, &value);
            }
            cases += 1;
        }
    }
    Ok(Compact { file: table.file, cases, bytes: out })
}

/// The strings of a file, each behind four bytes with its length; nothing for one that is cut short.
pub(crate) fn strings(mut left: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let cut = || {
            let (length, rest) = left.split_first_chunk()?;
            rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        };
        (!left.is_empty()).then(|| {
            let cut = cut();
            left = cut.map_or(&[][..], |(_, rest)| rest);
            cut.map(|(value, _)| value)
        })
    })
}

fn append(out: &mut Vec<u8>, value: &[u8]) {
    out.extend((value.len() as u32).to_le_bytes());
    out.extend(value);
}

/// The value of a column for a case; empty where NIST gives nothing.
fn value(column: &str, group: &Value, test: &Value) -> Result<Vec<u8>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_hash = text(&test["hashAlg"]);
    let given = |name: &str| text(&test[name]);
    let needed = |name: &str| test[name].as_str().ok_or(format!("it has no {name}"));
    Ok(match column {
        "tcId" => test["tcId"].as_u64().ok_or("it has no number")?.to_string().into(),
        "parameterSet" => group["parameterSet"].as_str().ok_or("its group has no parameterSet")?.into(),
        "interface" => match (group["signatureInterface"].as_str(), group["preHash"].as_str()) {
            (Some("internal"), _) => "internal".into(),
            (Some("external"), Some(kind @ ("pure" | "preHash"))) => kind.into(),
            other => return Err(format!("its group has the interface {other:?}")),
        },
        // NIST writes "none" for cases without.
        "hashAlg" => Some(of_hash).filter(|name| name != "none").unwrap_or_default().into(),
        "testPassed" => test["testPassed"].as_bool().ok_or("it has no testPassed")?.to_string().into(),
        "signatureSha256" => match test.get("signatureSha256") {
            Some(digest) => bytes(&text(digest))?,
            None => PreHash::Sha256.hash(&[&bytes(needed("signature")?)?]),
        },
        "additionalRandomness" if group["deterministic"] == true => Vec::new(),
        "context" | "additionalRandomness" => bytes(&given(column))?,
        _ => bytes(needed(column)?)?,
    })
}

/// Hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    hex::decode(digits).map_err(|why| format!("hexadecimal digits: {why}"))
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::json;

    /// As NIST writes it: whole signatures, `none` for what is not there.
    #[test]
    fn nists_fields_become_columns() {
        let test = json!({
            "tcId": 7, "deferred": false, "sk": "00FF", "message": "", "context": "AB", "hashAlg": "none",
            "additionalRandomness": "11", "signature": "616263",
        });
        let group = |deterministic: bool| {
            json!({
                "tgId": 1, "parameterSet": "SLH-DSA-SHA2-128s", "deterministic": deterministic,
                "signatureInterface": "external", "preHash": "pure", "tests": [test],
            })
        };
        let file = json!({ "testGroups": [group(true), group(false)] }).to_string();
        let made = compact(file.as_bytes()).expect("a table");
        assert_eq!((made.file, made.cases), ("siggen.bin", 2));
        let strings: Vec<&[u8]> = strings(&made.bytes).map(|string| string.expect("it is whole")).collect();
        assert_eq!(strings[0], TABLES[1].columns.as_bytes());
        let digest = PreHash::Sha256.hash(&[b"abc"]);
        let row = |randomness: &'static [u8]| {
            [&b"7"[..], b"SLH-DSA-SHA2-128s", b"pure", b"", &[0, 255], b"", &[0xab], randomness, &digest].concat()
        };
        assert_eq!(strings.len(), 1 + 2 * TABLES[1].columns.split(' ').count());
        assert_eq!(strings[1..10].concat(), row(&[]));
        assert_eq!(strings[10..].concat(), row(&[0x11]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |file: Value| compact(file.to_string().as_bytes()).err().expect("an error");
        assert!(refused(json!({})).contains("testGroups"));
        assert!(refused(json!({ "testGroups": [{ "tests": [{ "tcId": 1 }] }] })).contains("internalProjection"));
        let group = |test: Value| json!({ "testGroups": [{ "parameterSet": "x", "signatureInterface": "internal", "tests": [test] }] });
        let why = refused(group(json!({ "tcId": 3, "pk": "0", "message": "", "signature": "" })));
        assert!(why.contains("case 3") && why.contains("Odd number"), "{why}");
        let why = refused(group(json!({ "tcId": 3, "pk": "00", "message": "", "signature": "" })));
        assert!(why.contains("case 3: it has no testPassed"), "{why}");
    }
}
