//! zkDilithium through the tool: keys, signatures, known answers, and what it refuses.

use crate::place::Place;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The vectors of `e2e_public.json`.
fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/zkdilithium/e2e_public.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

/// A directory with the key pair of the case, the message as `m`.
fn place_of(case: &Value) -> Place {
    let place = Place::new();
    let seed = case["seed"].as_str().unwrap();
    let made = place.run(&["keygen", "--scheme", "zkdilithium", "--seeds", seed, "-o", "k.pem", "--pubout", "p.pem"]);
    let readers = if cfg!(unix) { "for its owner's eyes alone" } else { "for whom its directory lets read it" };
    let reported = format!("wrote k.pem: a private key of zkDilithium, {readers}\nwrote p.pem: its public key\n");
    let run = made.good();
    assert!(run.stderr.starts_with(&format!("{reported}its fingerprint is SHA256:")), "{}", run.stderr);
    place.write("m", bytes(&case["msg"]));
    place
}

#[test]
fn a_case_of_the_vectors() {
    let case = &vectors()["cases"][7];
    let place = place_of(case);
    assert!(place.read("k.pem").starts_with(b"-----BEGIN ZKDILITHIUM PRIVATE KEY-----\n"));
    assert!(place.read("p.pem").starts_with(b"-----BEGIN ZKDILITHIUM PUBLIC KEY-----\n"));
    assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
    assert_eq!(place.run(&["pubkey", "--raw", "k.pem"]).good().stdout, bytes(&case["pk"]));
    // The form of the file decides; naming the scheme does not change the result.
    let run = place.run(&["sign", "--key", "k.pem", "m"]).good();
    assert_eq!((run.stdout.len(), run.stderr.as_str()), (0, "wrote m.sig: a signature of zkDilithium\n"));
    assert_eq!(place.read("m.sig"), bytes(&case["sig"]));
    place.write("raw", bytes(&case["sk"]));
    let again = place.run_with(&["sign", "--scheme", "zkdilithium", "--key", "raw", "-"], &bytes(&case["msg"])).good();
    assert_eq!(again.stdout, bytes(&case["sig"]));
    let twice = ["sign", "--redundant", "--key", "raw", "--scheme", "zkdilithium", "-"];
    assert_eq!(place.run_with(&twice, &bytes(&case["msg"])).good().stdout, bytes(&case["sig"]));
    for key in ["k.pem", "p.pem", "raw"] {
        assert_eq!(place.run(&["verify", "--key", key, "m"]).good().text(), "m: OK\n");
    }
    place.write("m", "another");
    assert_eq!(place.run(&["verify", "--key", "p.pem", "m"]).exits(1).text(), "m: FAILED\n");
}

/// An element of c~ that is not reduced: the same signature in other bytes.
#[test]
fn strict_verification_knows_one_encoding() {
    let place = place_of(&vectors()["cases"][1]);
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    place.run(&["verify", "--strict", "--key", "p.pem", "m"]).good();
    let mut signature = place.read("m.sig");
    let element = u32::from_le_bytes([signature[0], signature[1], signature[2], 0]) + 7_340_033;
    signature[..3].copy_from_slice(&element.to_le_bytes()[..3]);
    place.write("m.sig", signature);
    assert_eq!(place.run(&["verify", "--key", "p.pem", "m"]).good().text(), "m: OK\n");
    assert_eq!(place.run(&["verify", "--strict", "--key", "p.pem", "m"]).exits(1).text(), "m: FAILED\n");
}

#[test]
fn a_memory_budget_is_kept() {
    let place = place_of(&vectors()["cases"][2]);
    let names: Vec<String> = (0..40).map(|i| format!("f{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|name| place.write(name, vec![7; 40_000]));
    let sign = |memory| [&["sign", "--key", "k.pem", "--threads", "1", "--memory", memory], &names[..]].concat();
    place.run(&sign("64K")).exits(2).says(&["cpu:0 has", "hint: give more with --memory"]);
    let keygen = ["keygen", "--scheme", "zkdilithium", "--threads", "1", "--memory", "64K"];
    place.run(&keygen).exits(2).says(&["cpu:0 has"]);
    // In several batches: what a thread works in takes most of it.
    place.run(&sign("8M")).good();
    place.run(&[&["verify", "--key", "p.pem", "--threads", "1", "--memory", "8M"], &names[..]].concat()).good();
}

#[test]
fn many_files() {
    let place = place_of(&vectors()["cases"][3]);
    let names: Vec<String> = (0..5).map(|i| format!("f{i}")).collect();
    names.iter().for_each(|name| place.write(name, name));
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = place.run(&[&["sign", "--threads", "2", "--key", "k.pem", "missing"], &files[..]].concat()).exits(2);
    let mut reported: String = files.iter().map(|name| format!("{name}: SIGNED\n")).collect();
    assert_eq!(run.text(), format!("missing: ERROR\n{reported}"));
    place.write("f3", "altered");
    place.write("f4.sig", "short");
    reported = "f0: OK\nf1: OK\nf2: OK\nf3: FAILED\nf4: ERROR\n".into();
    let run = place.run(&[&["verify", "--key", "p.pem"], &files[..]].concat()).exits(2);
    assert_eq!(run.text(), reported);
    run.says(&["f4.sig has 5 bytes, a signature of zkDilithium has 2,340", "1 FAILED, 1 ERROR"]);
}

#[test]
fn parts_are_shown_and_secrets_hidden() {
    let case = &vectors()["cases"][0];
    let place = place_of(case);
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    let shown = place.run(&["inspect", "k.pem"]).good();
    let secret = &case["sk"].as_str().unwrap()[64..96];
    for part in ["private key of zkDilithium", "PEM, 3,936 bytes", "rho", "tr", "s1", "s2", "hidden; --show-secrets"] {
        assert!(shown.text().contains(part), "{part}");
    }
    assert!(!shown.text().contains(secret));
    assert!(place.run(&["inspect", "--show-secrets", "k.pem"]).good().text().contains(secret));
    let report: Value = serde_json::from_slice(&place.run(&["inspect", "--json", "m.sig"]).good().stdout).unwrap();
    assert_eq!((&report["kind"], &report["sets"]), (&json!("signature"), &json!(["zkDilithium"])));
    assert_eq!(report["parts"][1]["offset"], 36);
    assert_eq!(report["parts"][0]["hex"], case["sig"].as_str().unwrap()[..72]);
    assert!(place.run(&["inspect", "p.pem"]).good().text().contains("public key of zkDilithium"));
}

/// The tool's answers from seeds and messages alone agree with the vectors.
#[test]
fn known_answers() {
    let vectors = vectors();
    let given: Vec<&Value> = vectors["cases"].as_array().unwrap().iter().step_by(5).collect();
    let place = Place::new();
    let bare = |case: &&Value| {
        let mutations = case["verify_mutations"].as_array().unwrap().iter().cloned().map(|mut mutation| {
            mutation.as_object_mut().unwrap().remove("expect");
            mutation
        });
        let mutations: Vec<Value> = mutations.collect();
        json!({"id": case["id"], "seed": case["seed"], "msg": case["msg"], "verify_mutations": mutations})
    };
    let questions = json!({"cases": given.iter().map(bare).collect::<Vec<_>>()}).to_string();
    let run = place.run_with(&["kat", "-"], questions.as_bytes()).good();
    let answers: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(answers["scheme"], "zkDilithium");
    assert_eq!(answers["cases"].as_array().unwrap().len(), given.len());
    for (answer, case) in answers["cases"].as_array().unwrap().iter().zip(given) {
        for field in ["id", "pk", "sk", "sig", "verify"] {
            assert_eq!(answer[field], case[field], "{} of {}", field, case["id"]);
        }
        let expected: Vec<Value> = (case["verify_mutations"].as_array().unwrap().iter())
            .map(|mutation| json!({"name": mutation["name"], "verify": mutation["expect"]}))
            .collect();
        assert_eq!(answer["verify_mutations"], json!(expected));
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let place = place_of(&vectors()["cases"][0]);
    let zk = |args: &[&'static str]| [&["keygen", "--scheme", "zkdilithium"], args].concat();
    place.run(&zk(&["--set", "sha2-128f"])).refuses(&["has no parameter sets", "--set"]);
    place.run(&zk(&["--der"])).refuses(&["no object identifier", "--raw"]);
    place.run(&zk(&["--seeds", "00"])).refuses(&["--seeds has 1 bytes, zkDilithium takes 32"]);
    place.run(&zk(&["--device", "reference:0"])).refuses(&["reference:0 cannot execute zkDilithium"]);
    place
        .run(&["verify", "--strict", "--scheme", "slh-dsa", "--key", "p.pem", "m"])
        .refuses(&["--strict is for zkDil"]);
    let run = place.run(&["keygen", "--scheme", "slh-dsa"]).good();
    assert!(run.stderr.contains("choose --set SLH-DSA-SHA2-128f"), "{}", run.stderr);
    place.run(&["sign", "--key", "k.pem", "m", "--context", "x"]).refuses(&["knows no --context", "leave it out"]);
    place.run(&["sign", "--key", "k.pem", "m", "--cache-layers", "1"]).refuses(&["knows no --cache-layers"]);
    place.run(&["verify", "--key", "p.pem", "m", "--internal"]).refuses(&["knows no --internal"]);
    place.run(&["sign", "--key", "p.pem", "m"]).refuses(&["p.pem is a public key"]);
    place.run(&["sign", "--scheme", "slh-dsa", "--key", "k.pem", "m"]).refuses(&["holds a private key of zkDilithium"]);
    // One flipped bit of s1.
    let mut raw = place.run(&["pubkey", "--raw", "k.pem"]).good().stdout;
    raw.truncate(3000);
    place.write("cut", &raw);
    place.run(&["verify", "--scheme", "zkdilithium", "--key", "cut", "m"]).refuses(&["3000 bytes are nothing of"]);
    let mut damaged = bytes(&vectors()["cases"][0]["sk"]);
    damaged[200] ^= 1;
    place.write("damaged", &damaged);
    place.run(&["sign", "--key", "damaged", "m"]).refuses(&["damaged: ", "the file is damaged"]);
    for (file, why) in [
        ("{}", "missing field `cases`"),
        (r#"{"cases": [{"id": "x", "seed": "00", "msg": ""}]}"#, "the seed of case 'x' has 1 bytes"),
    ] {
        place.run_with(&["kat", "-"], file.as_bytes()).refuses(&["standard input", why]);
    }
    assert_eq!(place.names(), ["cut", "damaged", "k.pem", "m", "p.pem"]);
}

#[test]
fn measurements_are_checked_records() {
    let place = Place::new();
    let args = ["bench", "--scheme", "zkdilithium", "--batch", "3", "--seconds", "0.001", "--json"];
    for rows in [None, Some("host")] {
        let run = place.run(&[&args[..], rows.map_or(&[], |_| &["--rows", "host"])].concat()).good();
        let records: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.iter().map(|record| &record["op"]).collect::<Vec<_>>(), ["keygen", "sign", "verify"]);
        for record in &records {
            assert_eq!((&record["scheme"], &record["batch"]), (&json!("zkDilithium"), &json!(3)));
            assert!(record["ops_per_s"].as_f64().unwrap() > 0.0 && record["runs"].as_u64().unwrap() >= 3);
            assert_eq!(record["rows"].as_str(), rows);
            let permutations = record["poseidon_per_s"].as_f64();
            assert_eq!(permutations.is_some_and(|rate| rate > 0.0), record["op"] != "keygen");
        }
    }
    place.run(&["bench", "--scheme", "zkdilithium", "--redundant"]).refuses(&["knows no --redundant"]);
    place.run(&["bench", "--scheme", "zkdilithium", "--axes", "fp64=1"]).refuses(&["there is no axis 'fp64' here"]);
    place.run(&["bench", "--axes", "fp64=1"]).refuses(&["--axes are choices for"]);
}
