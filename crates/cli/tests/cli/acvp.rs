//! ACVP: prompts as NIST's server writes them, answers as it expects them.

use crate::place::Place;
use hypergrove_testkit::acvp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slh_dsa::{Sha2_128f, SigningKey};
use std::time::{Duration, Instant};

/// The cases of a mode as the server groups them, with questions and answers; of `set` alone if it is named.
fn groups(name: &str, set: Option<&str>, fields: &[&str]) -> Vec<Value> {
    let mut groups: Vec<Value> = Vec::new();
    for row in acvp::rows(name).iter().filter(|row| set.is_none_or(|set| row.text("parameterSet") == set)) {
        let mut head = json!({ "parameterSet": row.text("parameterSet"), "tests": [] });
        let mut test = json!({ "tcId": row.text("tcId").parse::<u32>().unwrap() });
        if name != "keygen" {
            let interface = row.text("interface");
            head["signatureInterface"] = json!(if interface == "internal" { interface } else { "external" });
            if interface != "internal" {
                head["preHash"] = json!(interface);
                test["context"] = json!(hex_of(row.bytes("context")));
            }
            if interface == "preHash" {
                test["hashAlg"] = json!(row.text("hashAlg"));
            }
        }
        if name == "siggen" {
            let randomness = row.bytes("additionalRandomness");
            head["deterministic"] = json!(randomness.is_empty());
            if !randomness.is_empty() {
                test["additionalRandomness"] = json!(hex_of(randomness));
            }
        }
        if name == "sigver" {
            test["testPassed"] = json!(row.text("testPassed") == "true");
        }
        fields.iter().for_each(|field| test[*field] = json!(hex_of(row.bytes(field))));
        let is_its = |group: &&mut Value| {
            head.as_object().unwrap().iter().all(|(field, value)| field == "tests" || group[field] == *value)
        };
        let group = match groups.last_mut().filter(is_its) {
            Some(group) => group,
            None => groups.push_mut(head),
        };
        group["tests"].as_array_mut().unwrap().push(test);
    }
    groups
}

/// The server's prompt: the vectors without `answers`.
fn prompt(mode: &str, groups: &[Value], answers: &[&str]) -> Value {
    let groups: Vec<Value> = groups
        .iter()
        .enumerate()
        .map(|(i, group)| {
            let mut group = group.clone();
            group["tgId"] = json!(i + 1);
            group["testType"] = json!("AFT");
            for test in group["tests"].as_array_mut().unwrap() {
                answers.iter().for_each(|answer| drop(test.as_object_mut().unwrap().remove(*answer)));
            }
            group
        })
        .collect();
    json!({
        "vsId": 53, "algorithm": "SLH-DSA", "mode": mode, "revision": "FIPS205", "isSample": true,
        "testGroups": groups,
    })
}

/// The answers, paired with the vectors that they answer.
fn answer(place: &Place, prompt: &Value, groups: &[Value]) -> Vec<(Value, Value)> {
    place.write("prompt.json", prompt.to_string());
    let results: Value = serde_json::from_slice(&place.run(&["acvp", "prompt.json"]).good().stdout).unwrap();
    for field in ["vsId", "algorithm", "mode", "revision", "isSample"] {
        assert_eq!(results[field], prompt[field]);
    }
    let mut pairs = Vec::new();
    let answered = results["testGroups"].as_array().unwrap();
    assert_eq!(answered.len(), groups.len());
    for (i, (group, answered)) in std::iter::zip(groups, answered).enumerate() {
        assert_eq!(answered["tgId"], i + 1);
        let (tests, answers) = (group["tests"].as_array().unwrap(), answered["tests"].as_array().unwrap());
        assert_eq!(tests.len(), answers.len());
        pairs.extend(std::iter::zip(tests.clone(), answers.clone()));
    }
    assert!(pairs.iter().all(|(test, answer)| test["tcId"] == answer["tcId"]));
    pairs
}

#[test]
fn key_generation() {
    let groups = groups("keygen", None, &["skSeed", "skPrf", "pkSeed", "sk", "pk"]);
    let place = Place::new();
    let pairs = answer(&place, &prompt("keyGen", &groups, &["sk", "pk"]), &groups);
    assert_eq!(pairs.len(), 120);
    for (test, answer) in pairs {
        let only = json!({ "tcId": test["tcId"], "sk": test["sk"], "pk": test["pk"] });
        assert_eq!(answer, only);
    }
}

/// The f set of category 1: the others take long, and each backend answers all of them in its own tests.
const QUICK: Option<&str> = Some("SLH-DSA-SHA2-128f");

#[test]
fn signature_generation() {
    let groups = groups("siggen", QUICK, &["sk", "message", "signatureSha256"]);
    let place = Place::new();
    let pairs = answer(&place, &prompt("sigGen", &groups, &["signatureSha256"]), &groups);
    assert_eq!(pairs.len(), 52);
    for (test, answer) in pairs {
        assert_eq!(answer.as_object().unwrap().len(), 2);
        let digits = answer["signature"].as_str().unwrap();
        assert_eq!(digits, digits.to_uppercase());
        let digest = hex_of(&Sha256::digest(hex::decode(digits).unwrap()));
        assert_eq!(test["signatureSha256"], digest, "test {}", test["tcId"]);
    }
}

#[test]
fn signature_verification() {
    let groups = groups("sigver", QUICK, &["pk", "message", "signature"]);
    let place = Place::new();
    let pairs = answer(&place, &prompt("sigVer", &groups, &["testPassed"]), &groups);
    assert_eq!(pairs.len(), 42);
    for (test, answer) in pairs {
        assert_eq!(answer, json!({ "tcId": test["tcId"], "testPassed": test["testPassed"] }));
    }
}

fn hex_of(bytes: &[u8]) -> String {
    hex::encode_upper(bytes)
}

/// Without vectors: an independent crate knows the answers.
#[test]
fn answers_are_those_of_an_independent_crate() {
    let place = Place::new();
    let seeds: Vec<u8> = (0..48).collect();
    let key = SigningKey::<Sha2_128f>::slh_keygen_internal(&seeds[..16], &seeds[16..32], &seeds[32..]);
    let (sk, pk) = (key.to_bytes(), key.as_ref().to_bytes());
    let group = |fields: Value| {
        let mut group = json!({ "parameterSet": "SLH-DSA-SHA2-128f" });
        group.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        vec![group]
    };

    let keygen = group(json!({ "tests": [{
        "tcId": 7, "skSeed": hex_of(&seeds[..16]), "skPrf": hex_of(&seeds[16..32]), "pkSeed": hex_of(&seeds[32..]),
    }]}));
    let pairs = answer(&place, &prompt("keyGen", &keygen, &[]), &keygen);
    assert_eq!(pairs[0].1, json!({ "tcId": 7, "sk": hex_of(&sk), "pk": hex_of(&pk) }));

    let signature = key.try_sign_with_context(b"message", b"context", Some(&[9; 16])).unwrap().to_bytes();
    let fields = json!({ "message": hex_of(b"message"), "context": hex_of(b"context") });
    let test = |more: Value| {
        let mut test = fields.clone();
        test.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        test
    };
    let external = json!({ "signatureInterface": "external", "preHash": "pure", "deterministic": false });
    let mut siggen = group(external.clone());
    siggen[0]["tests"] =
        json!([test(json!({ "tcId": 1, "sk": hex_of(&sk), "additionalRandomness": hex_of(&[9; 16]) }))]);
    let pairs = answer(&place, &prompt("sigGen", &siggen, &[]), &siggen);
    assert_eq!(pairs[0].1, json!({ "tcId": 1, "signature": hex_of(&signature) }));

    // A signature of the wrong length and a context too long fail the test, not the tool.
    let mut sigver = group(external);
    let case =
        |id: u32, signature: &[u8]| test(json!({ "tcId": id, "pk": hex_of(&pk), "signature": hex_of(signature) }));
    let mut long = case(5, &signature);
    long["context"] = json!("00".repeat(256));
    sigver[0]["tests"] = json!([
        case(1, &signature),
        case(2, &signature[1..]),
        case(3, &[&signature[..], b"x"].concat()),
        case(4, b""),
        long
    ]);
    let pairs = answer(&place, &prompt("sigVer", &sigver, &[]), &sigver);
    let passed: Vec<bool> = pairs.iter().map(|(_, answer)| answer["testPassed"].as_bool().unwrap()).collect();
    assert_eq!(passed, [true, false, false, false, false]);

    // The protocol's array, through standard input, into a file.
    let body = prompt("sigVer", &sigver, &[]);
    let wrapped = json!([{ "acvVersion": "1.0" }, body]);
    place.run_with(&["acvp", "-", "-o", "results.json"], wrapped.to_string().as_bytes()).good();
    let results: Value = serde_json::from_slice(&place.read("results.json")).unwrap();
    assert_eq!(results[0], json!({ "acvVersion": "1.0" }));
    assert_eq!(results[1]["testGroups"][0]["tests"][0], json!({ "tcId": 1, "testPassed": true }));
    place.run(&["acvp", "prompt.json", "-o", "results.json"]).refuses(&["results.json exists"]);
}

/// Identifiers come back as they were, however large, and nothing takes long.
#[test]
fn identifiers_may_have_any_size() {
    let place = Place::new();
    let large = "340282366920938463463374607431768211456";
    let prompt = format!(
        r#"[{{"acvVersion": "1.0", "n": {large}}}, {{"vsId": {large}, "algorithm": "SLH-DSA", "mode": "keyGen",
            "revision": "FIPS205", "testGroups": [{{"tgId": {large}, "parameterSet": "SLH-DSA-SHA2-128f", "tests": [
            {{"tcId": {large}, "skSeed": "{zero}", "skPrf": "{zero}", "pkSeed": "{zero}"}}]}}]}}]"#,
        zero = "00".repeat(16),
    );
    place.write("prompt.json", &prompt);
    let results = place.run(&["acvp", "prompt.json"]).good();
    let compact: String = results.text().split_whitespace().collect();
    for id in ["n", "vsId", "tgId", "tcId"] {
        assert!(compact.contains(&format!("\"{id}\":{large}")), "{id}: {}", results.text());
    }
    for (id, wrong) in [("vsId", "1.5"), ("tgId", "-1"), ("tcId", "\"7\""), ("tcId", "{}")] {
        place.write("prompt.json", prompt.replace(&format!("\"{id}\": {large}"), &format!("\"{id}\": {wrong}")));
        place.run(&["acvp", "prompt.json"]).refuses(&["no ACVP prompt", "an identifier is a whole number"]);
    }
}

#[test]
fn a_name_of_megabytes_is_refused_at_once() {
    let place = Place::new();
    let name = "SLH-DSA-".to_string() + &"x".repeat(8 << 20);
    let groups = [json!({ "parameterSet": name, "tests": [] })];
    place.write("prompt.json", prompt("keyGen", &groups, &[]).to_string());
    let start = Instant::now();
    let run = place
        .run(&["acvp", "prompt.json"])
        .refuses(&["test group 1: there is no set '…' (8388616 characters, not shown); the sets are "]);
    assert!(run.stderr.len() < 1000, "{} bytes", run.stderr.len());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn bad_prompts() {
    let place = Place::new();
    let refused = |prompt: &str, words: &[&str]| {
        place.write("prompt.json", prompt);
        place.run(&["acvp", "prompt.json"]).refuses(&[&["prompt.json"], words].concat());
    };
    refused("", &["not JSON"]);
    refused("{", &["not JSON"]);
    refused("{}", &["no ACVP prompt", "missing field"]);
    refused("[1, 2]", &["no ACVP prompt"]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut prompt = prompt(
            "keyGen",
            &[json!({ "parameterSet": "SLH-DSA-SHA2-128f", "tests": [
                { "tcId": 5, "skSeed": "00".repeat(16), "skPrf": "00".repeat(16), "pkSeed": "00".repeat(16) },
            ]})],
            &[],
        );
        change(&mut prompt);
        prompt.to_string()
    };
    refused(&with(&|p| p["algorithm"] = json!("ML-DSA")), &["ML-DSA"]);
    refused(&with(&|p| p["revision"] = json!("FIPS204")), &["FIPS204"]);
    refused(&with(&|p| p["mode"] = json!("sigHash")), &["'sigHash'"]);
    refused(
        &with(&|p| p["testGroups"][0]["parameterSet"] = json!("SHA2-1")),
        &["test group 1", "'SHA2-1'", "the sets are"],
    );
    refused(&with(&|p| p["testGroups"][0]["tests"][0]["skPrf"] = json!("0")), &["no ACVP prompt", "Odd"]);
    refused(
        &with(&|p| p["testGroups"][0]["tests"][0]["skPrf"] = json!("00")),
        &["group 1, test 5", "skPrf has 1 bytes"],
    );
    refused(&with(&|p| p["mode"] = json!("sigGen")), &["group 1, test 5", "sk is missing"]);
    refused(&with(&|p| p["mode"] = json!("sigVer")), &["group 1, test 5", "pk is missing"]);
    place.run(&["acvp", "missing"]).refuses(&["cannot read missing"]);
    place.run(&["acvp", "."]).refuses(&["directory"]);
}
