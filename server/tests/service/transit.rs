//! Keys, signatures and batches, as clients use them.

use crate::deployment::{Client, Server, encode, error, signature_bytes};
use crate::forms::forms;
use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::{Engine, Mode, PassphraseKdf, PreHash, SLH_DSA_SHA2_128F, VerifyingKey};
use serde_json::{Value, json};
use std::process::Command;

fn public_key(client: &Client, name: &str, version: u32) -> VerifyingKey {
    let (status, body) = client.get(&format!("transit/export/public-key/{name}"));
    assert_eq!(status, 200, "{body}");
    VerifyingKey::from_pem(body["data"]["keys"][version.to_string()].as_str().unwrap()).unwrap()
}

#[test]
fn signatures_are_those_of_the_standard() {
    let server = Server::new("");
    let (client, engine) = (server.root(), Engine::new().unwrap());
    client.make_key("release");
    let key = public_key(&client, "release", 1);
    let valid = |mode: Mode<'_>, message: &[u8], data: &Value| {
        engine.verify(&key, mode, message, &signature_bytes(&data["signature"])).unwrap()
    };
    let sign = |path: &str, body: Value| {
        let (status, body) = client.post(&format!("transit/sign/release{path}"), body);
        assert_eq!(status, 200, "{body}");
        body["data"].clone()
    };
    let verify = |path: &str, body: Value| {
        let (status, body) = client.post(&format!("transit/verify/release{path}"), body);
        assert_eq!(status, 200, "{body}");
        body["data"]["valid"].as_bool().unwrap()
    };
    let message = b"Dear reader";
    let input = encode(message);

    let pure = sign("", json!({ "input": input, "reference": "r" }));
    assert!(valid(Mode::default(), message, &pure));
    assert_eq!((pure["key_version"].as_u64(), pure["reference"].as_str()), (Some(1), Some("r")));
    assert!(pure["signature"].as_str().unwrap().starts_with("vault:v1:"));
    assert!(verify("", json!({ "input": input, "signature": pure["signature"] })));
    assert!(!verify("", json!({ "input": encode("another"), "signature": pure["signature"] })));
    assert!(!verify("", json!({ "input": input, "signature": "vault:v1:AAAA" })));

    let context = &b"letters"[..];
    let with_context = sign("", json!({ "input": input, "signature_context": encode(context) }));
    assert!(valid(Mode::Pure { context }, message, &with_context));
    assert!(verify(
        "",
        json!({ "input": input, "signature_context": encode(context), "signature": with_context["signature"] })
    ));
    assert!(!verify("", json!({ "input": input, "signature": with_context["signature"] })));

    let hash = PreHash::Sha512;
    let digest = encode(hash.hash(&[message]));
    let mode = Mode::PreHash { context: b"", hash };
    for (path, body) in [
        ("", json!({ "input": input, "hash_algorithm": "sha2-512" })),
        ("/sha2-512", json!({ "input": input })),
        ("/sha2-512", json!({ "input": digest, "prehashed": true })),
        ("", json!({ "input": digest, "prehashed": "true", "hash_algorithm": "sha2-512" })),
    ] {
        let signed = sign(path, body.clone());
        assert!(valid(mode, message, &signed), "{body}");
        let mut body = body;
        body["signature"] = signed["signature"].clone();
        assert!(verify(path, body.clone()), "{body}");
    }
    assert!(!verify(
        "/sha2-256",
        json!({ "input": input, "signature": sign("/sha2-512", json!({ "input": input }))["signature"] })
    ));

    for (body, says) in [
        (json!({ "input": "a" }), "base64"),
        (json!({}), "input is missing"),
        (json!({ "input": input, "context": "YQ==" }), "signature_context"),
        (json!({ "input": input, "signature_context": encode([0; 256]) }), "255"),
        (json!({ "input": input, "hash_algorithm": "md5" }), "sha2-256"),
        (json!({ "input": input, "prehashed": true }), "hash_algorithm"),
        (json!({ "input": input, "prehashed": true, "hash_algorithm": "sha2-256" }), "32"),
        (json!({ "input": input, "key_version": 2 }), "latest version is 1"),
        (json!({ "input": input, "batch_input": [] }), "not both"),
        (json!({ "batch_input": [] }), "no items"),
        (json!([]), "JSON object"),
        (json!({ "input": 5 }), "JSON object"),
    ] {
        let (status, answer) = client.post("transit/sign/release", body.clone());
        assert_eq!(status, 400, "{body}");
        assert!(error(&answer).contains(says), "{body}: {answer}");
    }
}

#[test]
fn batches_keep_their_order_and_each_item_its_error() {
    let server = Server::new("");
    let (client, engine) = (server.root(), Engine::new().unwrap());
    client.make_key("batch");
    let key = public_key(&client, "batch", 1);
    // Tickets, rows, and more rows than one job has.
    for (count, common) in [(5, ""), (40, "common"), (300, "")] {
        let item = |index: usize| match index % 7 {
            3 => json!({ "input": "%%", "reference": index.to_string() }),
            _ => json!({ "input": encode(format!("message {index}")), "reference": index.to_string() }),
        };
        let items: Vec<Value> = (0..count).map(item).collect();
        let context = common.as_bytes();
        let body = json!({ "batch_input": items, "signature_context": encode(context) });
        let (status, answer) = client.post("transit/sign/batch", body);
        assert_eq!(status, 200, "{answer}");
        let results = answer["data"]["batch_results"].as_array().unwrap();
        assert_eq!(results.len(), count);
        let mut checks = Vec::new();
        for (index, result) in results.iter().enumerate() {
            assert_eq!(result["reference"], json!(index.to_string()));
            if index % 7 == 3 {
                assert!(result["error"].as_str().unwrap().contains("base64") && result.get("signature").is_none());
                continue;
            }
            let message = format!("message {index}");
            if index % 5 == 0 {
                let signature = signature_bytes(&result["signature"]);
                assert!(
                    engine.verify(&key, Mode::Pure { context }, message.as_bytes(), &signature).unwrap(),
                    "{index}"
                );
            }
            checks.push(
                json!({ "input": encode(message), "signature": result["signature"], "reference": index.to_string() }),
            );
        }
        let good = checks.len();
        checks[0]["input"] = json!(encode("other"));
        checks.push(json!({ "input": "", "signature": "nonsense" }));
        let body = json!({ "batch_input": checks, "signature_context": encode(context) });
        let (_, answer) = client.post("transit/verify/batch", body);
        let verdicts = answer["data"]["batch_results"].as_array().unwrap();
        let valid = verdicts.iter().filter(|verdict| verdict["valid"] == json!(true)).count();
        assert_eq!((verdicts.len(), valid), (good + 1, good - 1));
        assert_eq!((&verdicts[0]["valid"], verdicts[0]["reference"].as_str()), (&json!(false), Some("0")));
        assert!(verdicts[good]["error"].as_str().unwrap().contains("vault:v1:"));
    }
    // Contexts of their own: each item by itself.
    let items: Vec<Value> =
        (0..20).map(|index| json!({ "input": encode("m"), "signature_context": encode([index]) })).collect();
    let (_, answer) = client.post("transit/sign/batch", json!({ "batch_input": items }));
    for index in 0..20_u8 {
        let signature = signature_bytes(&answer["data"]["batch_results"][usize::from(index)]["signature"]);
        assert!(engine.verify(&key, Mode::Pure { context: &[index] }, b"m", &signature).unwrap());
    }
    // A digest of the wrong length is the error of its item, as tickets and as rows.
    for count in [3, 30] {
        let input = |index: usize| encode(vec![0; if index == 1 { 31 } else { 32 }]);
        let items: Vec<Value> = (0..count).map(|index| json!({ "input": input(index) })).collect();
        let body = json!({ "batch_input": items, "prehashed": true, "hash_algorithm": "sha2-256" });
        let (_, answer) = client.post("transit/sign/batch", body);
        let results = answer["data"]["batch_results"].as_array().unwrap();
        let failed: Vec<bool> = results.iter().map(|result| result.get("error").is_some()).collect();
        assert_eq!(failed, (0..count).map(|index| index == 1).collect::<Vec<_>>(), "{count}");
    }
}

#[test]
fn keys_have_versions_and_settings() {
    let server = Server::new("");
    let client = server.root();
    assert_eq!(client.request("LIST", "transit/keys", None, &[]).status, 404);
    client.make_key("b");
    client.make_key("a");
    let listed = json!(["a", "b"]);
    assert_eq!(client.request("LIST", "transit/keys", None, &[]).body["data"]["keys"], listed);
    assert_eq!(client.get("transit/keys?list=true").1["data"]["keys"], listed);
    assert_eq!(client.get("transit/keys").0, 405);
    let first = client.sign("a", b"m");
    let (status, body) = client.post("transit/keys/a/rotate", json!({}));
    assert_eq!((status, &body["data"]["latest_version"]), (200, &json!(2)));
    assert!(client.sign("a", b"m")["signature"].as_str().unwrap().starts_with("vault:v2:"));
    let old = client.post("transit/sign/a", json!({ "input": encode("m"), "key_version": "1" })).1;
    assert!(old["data"]["signature"].as_str().unwrap().starts_with("vault:v1:"));
    let check = json!({ "input": encode("m"), "signature": first["signature"] });
    assert_eq!(client.post("transit/verify/a", check.clone()).1["data"]["valid"], json!(true));
    assert_eq!(client.post("transit/keys/a/config", json!({ "min_signing_version": 2 })).0, 200);
    let (status, body) = client.post("transit/sign/a", json!({ "input": encode("m"), "key_version": 1 }));
    assert!(status == 400 && error(&body).contains("minimum version 2"), "{body}");
    assert_eq!(client.post("transit/verify/a", check.clone()).1["data"]["valid"], json!(true));
    assert_eq!(client.post("transit/keys/a/config", json!({ "min_decryption_version": 2 })).0, 200);
    assert_eq!(client.post("transit/verify/a", check).0, 400);
    for wrong in [
        json!({ "min_signing_version": 3 }),
        json!({ "min_decryption_version": 0 }),
        json!({ "min_encryption_version": 1 }),
        json!({ "exportable": true }),
        json!({ "auto_rotate_period": "24h" }),
    ] {
        assert_eq!(client.post("transit/keys/a/config", wrong.clone()).0, 400, "{wrong}");
    }
    let (_, body) = client.get("transit/keys/a");
    let data = &body["data"];
    assert_eq!((&data["type"], &data["parameter_set"]), (&json!("slh-dsa"), &json!("slh-dsa-sha2-128f")));
    assert_eq!((&data["min_signing_version"], &data["min_decryption_version"]), (&json!(2), &json!(2)));
    assert_eq!((&data["keys"]["1"]["signatures"], data["keys"].as_object().unwrap().len()), (&json!(2), 2));

    // Making a key again changes nothing.
    let again = client.post("transit/keys/a", json!({ "type": "slh-dsa", "parameter_set": "SLH-DSA-SHA2-128f" })).1;
    assert!(again["warnings"][0].as_str().unwrap().contains("existed"));
    assert_eq!(again["data"]["latest_version"], json!(2));
    for wrong in [
        json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128s" }),
        json!({ "type": "rsa-2048" }),
        json!({ "type": "slh-dsa" }),
        json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "exportable": true }),
        json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "derived": true }),
        json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128-24" }),
    ] {
        assert_eq!(client.post("transit/keys/a", wrong.clone()).0, 400, "{wrong}");
    }

    let (status, body) = client.delete("transit/keys/b");
    assert!(status == 400 && error(&body).contains("deletion_allowed"), "{body}");
    assert_eq!(client.post("transit/keys/b/config", json!({ "deletion_allowed": true })).0, 200);
    assert_eq!(client.delete("transit/keys/b").0, 204);
    assert_eq!(client.get("transit/keys/b"), (404, json!({ "errors": [] })));
    assert_eq!(client.post("transit/sign/b", json!({ "input": "" })).0, 400);
    assert_eq!(client.get("transit/export/public-key/b").0, 404);
    assert_eq!(client.get("transit/export/public-key/a/7").0, 404);
    assert_eq!(client.get("transit/export/public-key/a/latest").1["data"]["keys"].as_object().unwrap().len(), 1);
    assert_eq!(client.get("transit/export/signing-key/a").0, 404);
}

#[test]
fn keys_are_imported_by_a_command() {
    let mut server = Server::stopped("");
    let engine = Engine::new().unwrap();
    let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
    let encrypted = key.encrypt(b"open sesame", PassphraseKdf::Pbkdf2).unwrap();
    std::fs::write(server.path("key.der"), encrypted.to_der().unwrap().as_bytes()).unwrap();
    std::fs::write(server.path("word"), "open sesame\n").unwrap();
    let [file, word] = ["key.der", "word"].map(|name| server.path(name).display().to_string());
    let import = ["import", "imported", &file, "--key-passphrase-file", &word];
    let done = server.command(&import);
    assert!(done.status.success(), "{done:?}");
    let again = String::from_utf8(server.command(&import).stderr).unwrap();
    assert!(again.contains("already"), "{again}");
    // A passphrase, and a key, that come through a pipe: each is read once.
    let mut piped = Command::new("bash");
    piped.args(["-c", "exec \"$0\" \"$@\" <(cat \"$KEY\") --key-passphrase-file <(cat \"$WORD\")"]);
    piped.arg(env!("CARGO_BIN_EXE_hypergrove-server")).args(["import", "--config"]).arg(server.path("server.toml"));
    piped.arg("--passphrase-file").arg(server.path("passphrase")).arg("piped");
    let piped = piped.env("KEY", &file).env("WORD", &word).output().unwrap();
    assert!(piped.status.success(), "{piped:?}");
    let fifo = server.path("fifo").display().to_string();
    assert!(Command::new("mkfifo").args(["-m", "600", &fifo]).status().unwrap().success());
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::write(fifo, "open sesame\n")
    });
    let named = server.command(&["import", "named", &file, "--key-passphrase-file", &fifo]);
    assert!(named.status.success(), "{named:?}");
    writer.join().unwrap().unwrap();
    std::fs::write(server.path("word"), "wrong\n").unwrap();
    assert!(!server.command(&import).status.success());
    server.start();
    server.unseal();
    let running = String::from_utf8(server.command(&import).stderr).unwrap();
    assert!(!running.is_empty());
    let client = server.root();
    let signature = signature_bytes(&client.sign("imported", b"m")["signature"]);
    assert!(engine.verify(&key.verifying_key(), Mode::default(), b"m", &signature).unwrap());
    assert_eq!(client.get("transit/keys/imported").1["data"]["imported_key"], json!(true));
    // The private key is in no file as it is.
    for file in ["server.db", "server.db-wal", "audit.log"] {
        let bytes = std::fs::read(server.path("data").join(file)).unwrap();
        let secret = &key.to_bytes()[..16];
        assert!(!bytes.windows(16).any(|window| window == secret), "{file}");
    }
}

/// `import` reads or refuses each form of a PEM file as every other reader does, and refuses keys whose parts do not fit together.
#[test]
fn every_form_of_pem_is_imported_or_refused() {
    let server = Server::stopped("");
    let engine = Engine::new().unwrap();
    let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
    let public = key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
    let plain = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let encrypted = key.encrypt(b"", PassphraseKdf::Pbkdf2).unwrap().to_pem(LineEnding::LF).unwrap();
    // An empty passphrase is one that others choose.
    std::fs::write(server.path("word"), "\n").unwrap();
    let [file, word] = ["key.pem", "word"].map(|name| server.path(name).display().to_string());
    let import = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let done = server.command(&["import", "imported", &file, "--key-passphrase-file", &word]);
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    assert!(import(plain.as_bytes()).0);
    // The first of an encrypted key's forms stand for all: each takes as long as the passphrase.
    let locked = forms(&encrypted, &public).into_iter().step_by(6);
    for form in forms(&plain, &public).into_iter().chain(locked) {
        let (_, said) = import(&form.file);
        let expected = form.refused.unwrap_or("has this private key already");
        assert!(said.contains(expected), "{}: {said}", form.name);
    }
    let mut raw = key.to_pkcs8_der().unwrap().as_bytes().to_vec();
    *raw.last_mut().unwrap() ^= 1;
    let (done, said) = import(&raw);
    assert!(!done && said.contains("damaged"), "{said}");
}
