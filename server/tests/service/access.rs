//! Who may do what, and what hostile clients get.

use crate::deployment::{Client, PASSPHRASE, Server, encode, error};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn a_sealed_server_does_nothing() {
    let mut server = Server::stopped("");
    server.start();
    let client = server.root();
    assert_eq!(client.get("sys/health").0, 503);
    assert_eq!(client.get("sys/seal-status").1["sealed"], json!(true));
    assert_eq!(client.get("transit/keys/a").0, 503);
    assert_eq!(client.post("sys/unseal", json!({ "key": "wrong" })).0, 400);
    assert_eq!(client.post("sys/unseal", json!({})).0, 400);
    assert_eq!(client.get("sys/seal-status").1["sealed"], json!(true));
    server.unseal();
    assert_eq!(client.get("sys/health").0, 200);
    client.make_key("a");
    client.sign("a", b"m");
    assert_eq!(client.post("sys/seal", json!({})).0, 204);
    assert_eq!(client.get("sys/health").0, 503);
    assert_eq!(client.post("transit/sign/a", json!({ "input": "" })).0, 503);
    server.unseal();
    client.sign("a", b"m");
    // Sealing gave the rest of the lease back.
    assert_eq!(client.get("transit/keys/a").1["data"]["keys"]["1"]["signatures"], json!(2));
    assert_eq!(server.stop(), Some(0));
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn tokens_are_needed_expire_and_can_be_revoked() {
    let mut server = Server::new("");
    let root = server.root();
    root.make_key("a");
    for token in ["", "s.abcdef", "hgs.0.0", &root.token[..root.token.len() - 2], &root.token.replace("hgs.", "hgs.0")]
    {
        let client = Client::new(&server, token);
        assert_eq!(client.get("transit/keys/a"), (403, json!({ "errors": ["permission denied"] })), "{token}");
    }
    let bearer = format!("Bearer {}", root.token);
    let answer = Client::new(&server, "").request("GET", "transit/keys/a", None, &[("Authorization", &bearer)]);
    // An empty X-Vault-Token comes first, as it does in Vault.
    assert_eq!(answer.status, 403);
    let raw =
        format!("GET /v1/transit/keys/a HTTP/1.1\r\nHost: a\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n");
    assert!(server.raw(raw.as_bytes()).starts_with("HTTP/1.1 200"));

    let policy = json!({ "path": {
        "transit/keys/*": { "capabilities": ["read"] },
        "auth/token/create": { "capabilities": ["update"] },
    } });
    let parent = server.with_policy("reader", policy);
    let create = |body| parent.post("auth/token/create", body);
    assert_eq!(create(json!({ "policies": ["root"] })).0, 400);
    assert_eq!(create(json!({ "no_parent": true })).0, 403);
    assert_eq!(create(json!({ "num_uses": 3 })).0, 400);
    let (_, short) = create(json!({ "ttl": "3s", "display_name": "short" }));
    let (_, long) = create(json!({ "ttl": "99h" }));
    let [short, child] =
        [&short, &long].map(|made| Client::new(&server, made["auth"]["client_token"].as_str().unwrap()));
    assert!(long["auth"]["lease_duration"].as_u64().unwrap() <= 3600, "{long}");
    let (_, own) = short.get("auth/token/lookup-self");
    assert_eq!(own["data"]["policies"], json!(["default", "reader"]));
    assert_eq!(own["data"]["display_name"], json!("token-short"));
    std::thread::sleep(Duration::from_millis(3100));
    assert_eq!(short.get("transit/keys/a").0, 403);
    // Tokens are there after a restart, and a parent takes its children along.
    assert_eq!(server.stop(), Some(0));
    server.start();
    server.unseal();
    let again = |client: &Client| Client::new(&server, &client.token);
    let (root, parent, child) = (again(&root), again(&parent), again(&child));
    assert_eq!(child.get("transit/keys/a").0, 200);
    assert_eq!(root.post("auth/token/revoke", json!({ "token": "hgs.1.2" })).0, 400);
    assert_eq!(parent.post("auth/token/revoke", json!({ "token": child.token })).0, 403);
    assert_eq!(root.post("auth/token/revoke", json!({ "token": parent.token })).0, 204);
    assert_eq!((parent.get("transit/keys/a").0, child.get("transit/keys/a").0), (403, 403));
    assert_eq!(root.post("auth/token/revoke-self", json!({})).0, 204);
    assert_eq!(root.get("transit/keys/a").0, 403);
    // No token is in a file as it is.
    let database = std::fs::read(server.path("data/server.db")).unwrap();
    let secret = root.token.rsplit('.').next().unwrap().as_bytes();
    assert!(!database.windows(secret.len()).any(|window| window == secret));
    server.stop();
    let made = server.command(&["root-token"]);
    server.start();
    server.unseal();
    let root = Client::new(&server, String::from_utf8(made.stdout).unwrap().trim());
    assert_eq!(root.get("transit/keys/a").0, 200);
}

#[test]
fn policies_refuse_what_they_do_not_allow() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("allowed");
    root.make_key("other");
    let policy = json!({ "path": {
        "transit/sign/allowed": { "capabilities": ["update"], "allowed_sets": ["slh-dsa-sha2-128f"] },
        "transit/sign/other": { "capabilities": ["update"], "allowed_sets": ["slh-dsa-sha2-256s"] },
        "transit/verify/allowed": { "capabilities": ["update"], "rate_limit": 2 },
        "transit/keys/new-*": { "capabilities": ["create"], "allowed_sets": ["slh-dsa-sha2-128f"] },
    } });
    let client = server.with_policy("signer", policy);
    let signed = client.sign("allowed", b"m");
    let input = json!({ "input": encode("m") });
    assert_eq!(client.post("transit/sign/other", input.clone()).0, 403);
    // The path of the key decides, as it does with `hash_algorithm` in the body.
    assert_eq!(client.post("transit/sign/allowed/sha2-256", input.clone()).0, 200);
    assert_eq!(client.post("transit/keys/allowed/rotate", json!({})).0, 403);
    assert_eq!(client.delete("transit/keys/allowed").0, 403);
    assert_eq!(client.get("transit/keys/allowed").0, 403);
    assert_eq!(client.get("transit/keys?list=true").0, 403);
    assert_eq!(client.get("sys/metrics").0, 403);
    assert_eq!(client.post("sys/seal", json!({})).0, 403);
    assert_eq!(client.post("sys/policies/acl/signer", json!({ "policy": "{\"path\": {}}" })).0, 403);
    let make = |name: &str, set: &str| {
        client.post(&format!("transit/keys/{name}"), json!({ "type": "slh-dsa", "parameter_set": set })).0
    };
    assert_eq!(make("new-a", "slh-dsa-sha2-128f"), 200);
    assert_eq!((make("new-b", "slh-dsa-sha2-128s"), make("old", "slh-dsa-sha2-128f")), (403, 403));
    let check = json!({ "input": encode("m"), "signature": signed["signature"] });
    let answers: Vec<_> = (0..3)
        .map(|_| client.request("POST", "transit/verify/allowed", Some(check.to_string().as_bytes()), &[]))
        .collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 429]);
    assert_eq!(answers[2].retry_after.as_deref(), Some("1"));
    // A policy that is changed or deleted holds at once.
    assert_eq!(root.get("sys/policies/acl?list=true").1["data"]["keys"], json!(["default", "root", "signer"]));
    assert!(root.get("sys/policies/acl/signer").1["data"]["policy"].as_str().unwrap().contains("allowed_sets"));
    assert_eq!(root.delete("sys/policies/acl/signer").0, 204);
    assert_eq!(client.post("transit/sign/allowed", input).0, 403);
    assert_eq!(root.get("sys/policies/acl/signer").0, 404);
    let (status, body) =
        root.post("sys/policies/acl/hcl", json!({ "policy": "path \"a\" { capabilities = [\"read\"] }" }));
    assert!(status == 400 && error(&body).contains("JSON"), "{body}");
    assert_eq!(root.post("sys/policies/acl/root", json!({ "policy": "{\"path\": {}}" })).0, 400);
    let metrics = root.request("GET", "sys/metrics", None, &[]).text;
    assert!(metrics.contains("hypergrove_requests_total{operation=\"sign\",status=\"403\"}"), "{metrics}");
}

#[test]
fn hostile_requests_get_an_error_and_do_no_harm() {
    let server = Server::new("[limits]\nmax_body = 100_000\nmax_batch = 10\nheader_seconds = 2\nbody_seconds = 1\n");
    let client = server.root();
    client.make_key("a");
    let post = |body: &[u8]| client.request("POST", "transit/sign/a", Some(body), &[]);
    for body in [
        &b"{"[..],
        b"null",
        b"\"input\"",
        b"{\"input\":\"YQ==\",\"input\":\"YQ==\"}",
        b"{\"input\":\"\xff\xfe\"}",
        b"{\"batch_input\":{}}",
        b"{\"batch_input\":[1]}",
        b"{\"key_version\":-1,\"input\":\"\"}",
        b"{\"key_version\":1e99,\"input\":\"\"}",
        "[".repeat(50_000).as_bytes(),
        ("{\"a\":".repeat(5_000) + "1" + &"}".repeat(5_000)).as_bytes(),
    ] {
        let answer = post(body);
        assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(&body[..body.len().min(80)]));
        assert!(!error(&answer.body).is_empty());
    }
    let long = format!("{{\"input\":\"{}\"}}", "A".repeat(100_000));
    assert_eq!(post(long.as_bytes()).status, 413);
    let items = vec![json!({ "input": "" }); 11];
    assert_eq!(client.post("transit/sign/a", json!({ "batch_input": items })).0, 413);

    let head = |path: &str, more: &str| {
        format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Vault-Token: {}\r\n{more}\r\n",
            client.token
        )
    };
    let status = |answer: &str| answer.split(' ').nth(1).unwrap_or("none").to_string();
    let raw = |path: &str, more: &str, body: &str| status(&server.raw((head(path, more) + body).as_bytes()));
    // A body that is announced as too long is not waited for; other bodies are counted.
    assert_eq!(raw("transit/sign/a", "Content-Length: 1000000000\r\n", ""), "413");
    let chunk = format!("4000\r\n{}\r\n", "A".repeat(0x4000));
    assert_eq!(raw("transit/sign/a", "Transfer-Encoding: chunked\r\n", &chunk.repeat(7)), "413");
    assert_eq!(raw("transit/sign/a", "Transfer-Encoding: chunked\r\n", "zz\r\n"), "400");
    assert_eq!(raw("transit/sign/a", "Content-Length: 5\r\nContent-Length: 6\r\n", "{}    "), "400");
    let both = raw("transit/sign/a", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n");
    assert_eq!(both, "400");
    // A slow body, and slow headers.
    let begun = Instant::now();
    assert_eq!(raw("transit/sign/a", "Content-Length: 50\r\n", "{"), "408");
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /v1/sys/health HTTP/1.1\r\nHo").unwrap();
    drop(slow.read_to_end(&mut Vec::new()));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let long = raw("transit/sign/a", &format!("A: {}\r\n", "a".repeat(100_000)), "");
    assert_eq!(long, "431");
    for path in [
        "transit/keys/../../sys/seal",
        "transit/keys/..%2f..%2fetc",
        "transit/keys/%2e%2e",
        "transit/keys/a%00b",
        "transit/keys/a'b",
        "transit/keys/",
        "transit//keys/a",
        &format!("transit/keys/{}", "a".repeat(129)),
    ] {
        let body = "{\"type\":\"slh-dsa\",\"parameter_set\":\"slh-dsa-sha2-128f\"}";
        let answer = raw(path, &format!("Content-Length: {}\r\n", body.len()), body);
        assert!(["400", "404", "405"].contains(&answer.as_str()), "{path}: {answer}");
    }
    assert_eq!(client.get("transit/keys?list=true").1["data"]["keys"], json!(["a"]));
    assert_eq!(client.get("nothing/here").0, 404);
    for deadline in ["-1", "soon", "99999999999999999999"] {
        let answer = client.request("POST", "transit/sign/a", Some(b"{}"), &[("X-Hypergrove-Deadline-Ms", deadline)]);
        assert_eq!(answer.status, 400, "{deadline}");
    }
    client.sign("a", b"it works still");
    // No secret is in an error or in the log.
    let log = std::fs::read_to_string(server.audit_log()).unwrap();
    assert!(!log.contains(&client.token) && !log.contains(PASSPHRASE) && !log.contains("it works still"));
}

/// hyper itself answers these, without a body.
#[test]
fn heads_that_are_not_http_are_refused() {
    let server = Server::new("");
    for (head, status) in [
        ("GARBAGE".into(), "400"),
        ("GET /v1/sys/health HTTP/9.9".into(), "400"),
        ("GET /v1/sys/health HTTP/1.1\r\nA B: c".into(), "400"),
        (format!("GET /{} HTTP/1.1", "a".repeat(65_535)), "431"),
        (format!("GET /v1/sys/health HTTP/1.1{}", "\r\nA: b".repeat(101)), "431"),
    ] {
        let answer = server.raw(format!("{head}\r\n\r\n").as_bytes());
        let is_alone = answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with("\r\n\r\n");
        assert!(is_alone, "{answer}");
    }
    assert_eq!(server.root().get("sys/health").0, 200);
}

#[test]
fn the_description_is_served() {
    let server = Server::new("");
    let (status, body) = Client::new(&server, "").get("sys/internal/specs/openapi");
    assert_eq!((status, &body["openapi"]), (200, &json!("3.0.3")));
}

#[test]
fn methods_are_those_of_vault_and_a_wrong_one_is_refused_with_the_right_ones() {
    let server = Server::new("");
    let client = server.root();
    client.make_key("a");
    for (method, path) in [("LIST", "transit/keys"), ("GET", "transit/keys?list=true"), ("GET", "transit/keys?list=1")]
    {
        assert_eq!(client.request(method, path, None, &[]).body["data"]["keys"], json!(["a"]), "{method} {path}");
    }
    let head = client.request("HEAD", "sys/health", None, &[]);
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    for (method, path, allowed) in [
        ("PATCH", "transit/keys/a", "POST, PUT, GET, HEAD, DELETE"),
        ("GET", "transit/keys", "LIST"),
        ("DELETE", "transit/sign/a", "POST, PUT"),
    ] {
        let answer = server.raw(
            format!("{method} /v1/{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains(&format!("allow: {allowed}\r\n")), "{answer}");
    }
}

/// Rules that no request could match were accepted, and a list slipped past the rules of its keys.
#[test]
fn rules_hold_for_requests_or_are_refused() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    let write = |policy: serde_json::Value| root.post("sys/policies/acl/p", json!({ "policy": policy }));
    for (path, nearest) in [
        ("v1/transit/keys", "transit/keys"),
        ("/transit/keys", "transit/keys"),
        ("transit/keys ", "transit/keys"),
        ("Transit/Keys", "transit/keys"),
        ("transit//keys", "transit/keys"),
        ("transit/keys//", "transit/keys"),
        ("transit/sign/a/sha2-256", "transit/sign/NAME"),
        ("transit/sign/a/*", "transit/sign/NAME"),
        ("transit/sign/%61", "transit/sign/NAME"),
        ("transit/sign/../keys/a", "transit/keys/NAME"),
        ("transit/sign/\u{430}", "transit/sign/NAME"),
        ("transit/sign/a\0", "transit/sign/NAME"),
        ("transit/keys/a/rotate/now", "transit/keys/NAME/rotate"),
        ("sys/polices/acl", "sys/policies/acl"),
        ("transit/+/a", "transit/sign/NAME"),
    ] {
        let rules = json!({ "path": { path: { "capabilities": ["deny"] } } });
        for policy in [rules.clone(), json!(rules.to_string())] {
            let (status, body) = write(policy);
            assert!(status == 400 && error(&body).contains("the nearest path is \""), "{path:?}: {body}");
            let is_near = error(&body).contains(&format!("nearest path is \"{nearest}\""));
            assert!(is_near || path.contains(['+', '.', '%', '\0', '\u{430}']), "{path:?}: {body}");
        }
    }
    // As in Vault, each of these rules forbids the list.
    for path in ["transit/keys", "transit/keys/", "transit/keys/*", "transit/keys*"] {
        let rules = json!({ "path": { "transit/*": { "capabilities": ["list", "read"] }, path: { "capabilities": ["deny"] } } });
        let client = server.with_policy("p", rules);
        for (method, path) in [("LIST", "transit/keys"), ("LIST", "transit/keys/"), ("GET", "transit/keys/?list=true")]
        {
            assert_eq!(client.request(method, path, None, &[]).status, 403, "{method} {path}");
        }
        assert_eq!(client.get("transit/export/public-key/a").0, 200);
        let allowed = server.with_policy("q", json!({ "path": { path: { "capabilities": ["list"] } } }));
        assert_eq!(allowed.request("LIST", "transit/keys", None, &[]).status, 200, "{path}");
    }
    // A version has one name.
    let client = server.with_policy(
        "p",
        json!({ "path": {
        "transit/export/*": { "capabilities": ["read"] }, "transit/export/public-key/a/1": { "capabilities": ["deny"] },
    } }),
    );
    for (version, status) in [("1", 403), ("01", 400), ("+1", 400), ("latest", 200)] {
        assert_eq!(client.get(&format!("transit/export/public-key/a/{version}")).0, status, "{version}");
    }
    // Of two rules with one path, the last one won.
    let (deny, update) = (r#"{"capabilities": ["deny"]}"#, r#"{"capabilities": ["update"]}"#);
    for second in ["transit/sign/a", "transit/sign/a/"] {
        let policy = format!(r#"{{"path": {{"transit/sign/a": {deny}, "{second}": {update}}}}}"#);
        for body in [json!({ "policy": policy }).to_string(), format!(r#"{{"policy": {policy}}}"#)] {
            let answer = root.request("POST", "sys/policies/acl/p", Some(body.as_bytes()), &[]);
            assert!(answer.status == 400 && answer.text.contains("rule 2"), "{body}: {}", answer.text);
        }
    }
    let own = json!({ "path": { "auth/token/revoke-self": { "capabilities": ["deny"] } } });
    assert_eq!(server.with_policy("p", own).post("auth/token/revoke-self", json!({})).0, 403);
}

#[test]
fn fields_that_are_not_known_are_refused_and_defaults_of_vault_are_not() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    let policy = json!({ "path": { "transit/sign/a": { "capabilities": ["update"], "allowed_parameters": {}, "min_wrapping_ttl": "0s" } } });
    let signature = root.sign("a", b"m")["signature"].clone();
    let input = encode("m");
    // For each path: a right body, what may be in it besides, and what may not, with a part of the answer.
    let cases = json!([
        ["auth/token/create", { "policies": ["p"] },
            { "meta": {}, "num_uses": 0, "period": "0s", "id": null, "renewable": true, "type": "service", "entity_alias": "", "no_default_policy": false,
              "lease": "", "explicit_max_ttl": "" },
            [["policy", ["q"], "`policies`"], ["no_default_policy", true, "no_default_policy"], ["type", "batch", "type"], ["meta", { "a": "b" }, "meta"],
             ["num_uses", 3, "num_uses"], ["period", "1h", "period"], ["renewable", [true], "renewable"]]],
        ["transit/keys/b", { "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" },
            { "name": "b", "derived": false, "exportable": "false", "key_size": 0, "auto_rotate_period": "0", "managed_key_name": "", "context": "" },
            [["max_signature", 2, "'max_signatures'"], ["key_size", 32, "key_size"], ["name", "c", "name"], ["derived", true, "derived"],
             ["max_signatures", "", "not the number"], ["auto_rotate_period", "1h", "scheduler"]]],
        ["transit/keys/a/rotate", {}, { "name": "a", "managed_key_id": "" }, [["version", 1, "no fields"], ["name", "b", "name"]]],
        ["transit/keys/a/config", { "max_signatures": 1000 },
            { "name": "a", "min_encryption_version": 0, "exportable": false, "auto_rotate_period": 0 },
            [["max_signature", 2, "'max_signatures'"], ["min_encryption_version", 1, "min_signing_version"], ["deletion_alowed", true, "'deletion_allowed'"]]],
        ["transit/sign/a", { "input": input },
            { "name": "a", "signature_algorithm": "pss", "marshaling_algorithm": "asn1", "salt_length": "auto", "context": "", "hmac": "", "prehashed": false },
            [["hash_algoritm", "sha2-256", "'hash_algorithm'"], ["marshaling_algorithm", "jws", "base64"], ["signature_algorithm", "pkcs1v15", "signature_algorithm"],
             ["signature", signature, "transit/verify"], ["salt_length", 20, "salt_length"], ["name", "b", "name"], ["algorithm", "md5", "hash_algorithm"]]],
        ["transit/verify/a", { "input": input, "signature": signature }, { "name": "a", "key_version": 0, "hmac": "", "mac_length": 0 },
            [["key_version", 1, "key_version"], ["signatur", "", "'signature'"], ["mac_length", 16, "mac_length"]]],
        ["transit/sign/a", { "batch_input": [{ "input": input }] }, { "input": null, "hmac": "", "hash_algorithm": "" },
            [["signature_context", "%", "base64"], ["hmac", "a", "batch_input"], ["reference", "a", "batch_input"], ["batch_inputs", [], "'batch_input'"]]],
        ["sys/policies/acl/p", { "policy": policy }, { "name": "p" },
            [["policies", "", "`policy`"], ["name", "q", "name"], ["rules", "", "duplicate"]]],
        ["sys/audit/rotate", {}, {}, [["name", "a", "no fields"]]],
        ["sys/unseal", { "key": "a" }, { "migrate": false, "reset": null },
            [["migrate", true, "migrate"], ["passphrase", "correct horse", "(10 characters, not shown)"]]],
    ]);
    for case in cases.as_array().unwrap() {
        let (path, right, allowed) = (case[0].as_str().unwrap(), &case[1], &case[2]);
        let with = |more: &serde_json::Value| {
            let mut body = right.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            root.post(path, body)
        };
        for refused in case[3].as_array().unwrap() {
            let (field, says) = (refused[0].as_str().unwrap(), refused[2].as_str().unwrap());
            let (status, body) = with(&json!({ field: refused[1] }));
            assert!(status == 400 && error(&body).contains(says), "{path} {field}: {status} {body}");
            assert!(!error(&body).contains("correct horse"));
        }
        let (status, body) = with(allowed);
        assert!([200, 204].contains(&status), "{path} {allowed}: {status} {body}");
        if let Some((field, value)) = right.as_object().unwrap().iter().next() {
            let twice = right.to_string().replacen('{', &format!("{{{field:?}: {value}, "), 1);
            let answer = root.request("POST", path, Some(twice.as_bytes()), &[]);
            assert!(answer.status == 400 && answer.text.contains("duplicate field"), "{twice}: {}", answer.text);
        }
        if path == "transit/sign/a" && right["batch_input"].is_array() {
            for (field, value) in
                [("hash_algorithm", json!("sha2-256")), ("prehashed", json!(true)), ("key_version", json!(1))]
            {
                let mut item = json!({ "input": input });
                item[field] = value;
                let (status, body) = root.post(path, json!({ "batch_input": [item] }));
                assert!(status == 400 && error(&body).contains("next to batch_input"), "{field}: {status} {body}");
            }
            let item = json!({ "input": input, "prehashed": false, "hash_algorithm": "" });
            assert_eq!(root.post(path, json!({ "batch_input": [item] })).0, 200);
            // An item as a list of the fields' values.
            let list = json!({ "batch_input": [[input, null, null, null, null, null, null]] });
            assert_eq!(root.post(path, list).0, 400);
        }
        let list = json!(right.as_object().unwrap().values().collect::<Vec<_>>());
        assert_eq!(root.post(path, list).0, 400, "{path}");
    }
}

#[test]
fn bodies_without_a_known_meaning_are_refused_and_repeat_no_secret() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    let input = encode("m");
    for (path, body) in [
        // By root, this gave a root token.
        ("auth/token/create", json!({ "policy": ["q"] })),
        ("transit/sign/a", json!({ "batch_input": [{ "input": input, "prehashed": true }] })),
        ("auth/token/revoke", json!({ "token": root.token, "accessor": "a" })),
        ("auth/token/revoke-accessor", json!({ "accesor": "a" })),
        ("auth/token/revoke-self", json!({ "token": "hgs.0.0" })),
        ("sys/seal", json!({ "reason": "none" })),
    ] {
        let (status, answer) = root.post(path, body);
        assert!(status == 400 && error(&answer).contains("field"), "{path}: {answer}");
    }
    // Nothing above ended the token or sealed the server, and the old name of a field does what it says.
    let hashed =
        root.post("transit/sign/a", json!({ "input": input, "algorithm": "sha2-256" })).1["data"]["signature"].clone();
    let verdict = root.post("transit/verify/a/sha2-256", json!({ "input": input, "signature": hashed }));
    assert_eq!(verdict.1["data"]["valid"], json!(true), "{verdict:?}");
    let (status, body) = root.post("transit/keys/c", json!({ "type": "slh-dsa" }));
    assert!(status == 400 && error(&body).starts_with("parameter_set is missing"), "{body}");
    let secret = "hgs.0123456789.S3cr3t-S3cr3t";
    for body in [json!({ secret: 1 }), json!({ "type": secret }), json!({ "type": "slh-dsa", "parameter_set": secret })]
    {
        let (status, body) = root.post("transit/keys/c", body);
        assert!(status == 400 && error(&body).contains("(28 characters, not shown)"), "{body}");
    }
    let log = std::fs::read_to_string(server.audit_log()).unwrap();
    assert!(!log.contains("S3cr3t") && !log.contains("correct horse"));
}

/// Requests without fields of their own refuse those of a body, and headers that would change a request's meaning.
#[test]
fn what_would_change_the_meaning_is_not_ignored() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    assert_eq!(root.post("transit/keys/a/config", json!({ "deletion_allowed": true })).0, 200);
    let send = |method: &str, path: &str, body: Option<&[u8]>, head: &[(&str, &str)]| {
        let answer = root.request(method, path, body, head);
        (answer.status, answer.text)
    };
    for (method, path) in [
        ("DELETE", "transit/keys/a"),
        ("GET", "transit/keys/a"),
        ("LIST", "transit/keys"),
        ("GET", "auth/token/lookup-self"),
        ("POST", "auth/token/revoke-self"),
        ("POST", "sys/seal"),
    ] {
        let (status, text) = send(method, path, Some(br#"{"version": 3}"#), &[]);
        assert!(status == 400 && text.contains("there are no fields"), "{method} {path}: {status} {text}");
    }
    assert_eq!(send("GET", "transit/keys/a", Some(b"{}"), &[]).0, 200);
    let paths =
        [("GET", "transit/keys/a"), ("DELETE", "transit/keys/a"), ("GET", "sys/health"), ("POST", "sys/unseal")];
    for (name, value) in [
        ("X-Vault-Namespace", "team"),
        ("X-Vault-Namespace", "root/team/"),
        ("X-Vault-Wrap-TTL", "60"),
        ("X-Vault-Wrap-TTL", "1h"),
        ("X-Vault-Wrap-TTL", "-1"),
        ("x-vault-wrap-ttl", "soon"),
        ("X-Hypergrove-Deadline", "5"),
    ] {
        for (method, path) in paths {
            let (status, text) = send(method, path, None, &[(name, value)]);
            assert!(status == 400 && text.contains("leave it out"), "{method} {path} {name} {value}: {status} {text}");
        }
        let twice = send("GET", "transit/keys/a", None, &[(name, ""), (name, value)]);
        assert_eq!(twice.0, 400, "{name}: {}", twice.1);
    }
    for query in ["version=1", "list=true&version=1", "list=maybe", "hash_algorithm=sha2-256"] {
        let (status, text) = send("GET", &format!("transit/keys?{query}"), None, &[]);
        assert!([400, 405].contains(&status), "{query}: {status} {text}");
        let (status, text) = send("POST", &format!("transit/sign/a?{query}"), Some(br#"{"input": "bQ=="}"#), &[]);
        assert!(status == 400 && text.contains("list=true alone"), "{query}: {status} {text}");
    }
    assert_eq!(send("GET", "transit/keys?list=true", None, &[]).0, 200);
    for head in [
        ("X-Vault-Namespace", ""),
        ("X-Vault-Namespace", "root/"),
        ("X-Vault-Wrap-TTL", "0s"),
        ("X-Vault-Wrap-TTL", "0"),
    ] {
        assert_eq!(send("GET", "transit/keys/a", None, &[head]).0, 200, "{head:?}");
    }
}

/// Vault takes the names of policies in small letters. Here a name is what it is, so one that is nearly another one's is refused: that one may forbid something.
#[test]
fn a_token_has_no_policy_of_nearly_the_same_name() {
    let server = Server::new("");
    let root = server.root();
    let rules = |capability: &str| json!({ "path": { "transit/*": { "capabilities": [capability] } } }).to_string();
    for (name, capability) in [("sign", "update"), ("no-secret", "deny")] {
        assert_eq!(root.post(&format!("sys/policies/acl/{name}"), json!({ "policy": rules(capability) })).0, 204);
    }
    for (name, says) in [
        ("No-Secret", "but for capitals"),
        ("ROOT", "but for capitals"),
        ("Default", "but for capitals"),
        (" no-secret", "a name has"),
        ("no-secret\n", "a name has"),
        ("", "a name has"),
    ] {
        let (status, body) = root.post("auth/token/create", json!({ "policies": ["sign", name] }));
        assert!(status == 400 && error(&body).contains(says), "{name:?}: {status} {body}");
    }
    let (status, body) = root.post("auth/token/create", json!({ "policies": ["sign", "later"] }));
    assert_eq!((status, body["warnings"].as_array().map(Vec::len)), (200, Some(1)), "{body}");
    let (status, body) = root.post("auth/token/create", json!({ "policies": ["sign", "no-secret", "default"] }));
    assert_eq!((status, &body["warnings"]), (200, &json!(null)), "{body}");
}

#[test]
fn a_policy_of_an_older_server_is_reported_and_does_not_fail_open() {
    let mut server = Server::new("");
    server.root().make_key("a");
    let rules = json!({ "path": { "transit/*": { "capabilities": ["update"] } } });
    let [closed, open] = ["closed", "open"].map(|name| server.with_policy(name, rules.clone()));
    assert_eq!(server.stop(), Some(0));
    let database = rusqlite::Connection::open(server.path("data/server.db")).unwrap();
    let more = |rule: &str| format!(r#"{{"path": {{"transit/*": {{"capabilities": ["update"]}}, {rule}}}}}"#);
    for (name, rule) in [
        ("closed", r#""v1/transit/sign/a": {"capabilities": ["deny"]}"#),
        ("open", r#""v1/transit/sign/a": {"capabilities": ["read"]}"#),
    ] {
        let changed = database.execute("UPDATE records SET value = ?1 WHERE id = ?2", (more(rule).into_bytes(), name));
        assert_eq!(changed.unwrap(), 1);
    }
    drop(database);
    server.start();
    server.unseal();
    let again = |client: &Client| Client::new(&server, &client.token);
    let input = json!({ "input": encode("m") });
    assert_eq!(again(&closed).post("transit/sign/a", input.clone()).0, 403);
    assert_eq!(again(&closed).get("auth/token/lookup-self").0, 200);
    assert_eq!(again(&open).post("transit/sign/a", input.clone()).0, 200);
    let root = server.root();
    for name in ["closed", "open"] {
        let (status, body) = root.get(&format!("sys/policies/acl/{name}"));
        assert!(status == 200 && body["warnings"][0].as_str().unwrap().contains("transit/sign/NAME"), "{body}");
    }
    let metrics = root.request("GET", "sys/metrics", None, &[]).text;
    assert!(metrics.contains("hypergrove_policy_faults 2\n"), "{metrics}");
    assert_eq!(root.post("sys/policies/acl/closed", json!({ "policy": rules.to_string() })).0, 204);
    assert_eq!(again(&closed).post("transit/sign/a", input).0, 200);
}

#[test]
fn settings_that_are_not_known_are_refused_with_the_nearest_name() {
    for (settings, says) in [
        ("[seal]\nkind = 'passphrase'\npath = '/k'", "there are no fields"),
        ("[seal]\nkind = 'file'\npath = '/k'\ncommand = ['a']", "unknown field 'command', expected `path`"),
        ("[seal]\nkind = 'fil'", "did you mean 'file'?"),
        ("[limits]\nmax_bodies = 1", "unknown field '…' (10 characters, not shown), expected one of `max_body`"),
        ("[tls]\ncertificat = 'a'", "did you mean 'certificate'?"),
        ("[audit]\nfsnc = 'batch'", "did you mean 'fsync'?"),
        ("[engine]\nredundent = true", "'redundent' (did you mean 'redundant'?)"),
        ("draft_set = true", "did you mean 'draft_sets'?"),
        // Lists of the fields' values.
        ("limits = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "invalid type: sequence"),
        ("engine = []", "invalid type: sequence"),
        ("audit = ['/l']", "invalid type: sequence"),
        ("tls = ['a', 'b', 'c']", "invalid type: sequence"),
        ("seal = ['file', '/k']", "invalid type: sequence"),
        ("[[engine]]", "invalid type: sequence"),
        // Twice.
        ("[limits]\nmax_body = 1\nmax_body = 1", "duplicate key"),
        ("[audit]\n[audit]", "duplicate key"),
        ("seal = { kind = 'passphrase', kind = 'file' }", "duplicate key"),
    ] {
        let server = Server::stopped("");
        let path = server.path("server.toml");
        let text = std::fs::read_to_string(&path).unwrap() + settings;
        std::fs::write(&path, text).unwrap();
        let output = server.command(&["root-token"]);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && why.contains(says), "{settings}: {why}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_terminal_the_option_for_the_passphrase_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("server.toml");
    std::fs::write(&config, format!("data = {:?}\n", folder.path().join("data"))).unwrap();
    // In a session of its own, the command has no terminal.
    let mut command = std::process::Command::new("setsid");
    command.args(["--wait", env!("CARGO_BIN_EXE_hypergrove-server"), "init", "--config"]).arg(&config);
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("--passphrase-file FILE"), "{why}");
}
