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
