//! Attacks that once succeeded, or came near.

use crate::deployment::{Client, Server, encode, error, lines};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn the_name_of_a_hash_function_behind_the_path_evades_no_policy() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    root.make_key("b");
    let client = server.with_policy(
        "some",
        json!({ "path": {
            "transit/*": { "capabilities": ["update"] },
            "transit/sign/a": { "capabilities": ["deny"] },
            "transit/sign/b": { "capabilities": ["update"], "allowed_sets": ["slh-dsa-sha2-256s"] },
        } }),
    );
    for key in ["a", "b"] {
        for suffix in ["", "/", "/none", "/NONE", "/sha2-256"] {
            let (status, body) = client.post(&format!("transit/sign/{key}{suffix}"), json!({ "input": encode("m") }));
            assert_eq!(status, 403, "{key}{suffix}: {body}");
        }
        let (status, body) = client.post(&format!("transit/sign/{key}//"), json!({ "input": encode("m") }));
        assert_eq!(status, 404, "{body}");
    }
}

#[test]
fn the_older_path_of_a_policy_evades_no_policy() {
    let server = Server::new("");
    let rules = json!({ "path": {
        "sys/*": { "capabilities": ["update", "list", "read", "delete"] },
        "sys/policies/acl/own": { "capabilities": ["deny"] },
        "sys/policies/acl": { "capabilities": ["deny"] },
    } });
    let client = server.with_policy("own", rules.clone());
    let policy = json!({ "policy": json!({ "path": { "*": { "capabilities": ["update"] } } }).to_string() });
    for path in ["sys/policies/acl", "sys/policy", "sys/policy/"] {
        assert_eq!(client.post(&format!("{}/own", path.trim_end_matches('/')), policy.clone()).0, 403, "{path}");
        assert_eq!(client.request("GET", &format!("{path}?list=false"), None, &[]).status / 100, 4, "{path}");
    }
    assert_eq!((client.get("sys/policy/own").0, client.delete("sys/policy/own").0), (403, 403));
    assert_eq!(client.post("sys/policy/other", policy).0, 204);
    assert_eq!(client.get("sys/policy/other").0, 200);
    // A rule on the older path is one on the newer path.
    let client = server.with_policy(
        "older",
        json!({ "path": { "sys/*": { "capabilities": ["read", "delete"] }, "sys/policy/own": { "capabilities": ["deny"] } } }),
    );
    for path in ["sys/policy/own", "sys/policies/acl/own"] {
        assert_eq!((client.get(path).0, client.delete(path).0), (403, 403), "{path}");
    }
    assert_eq!(client.get("sys/policies/acl/older").0, 200);
    assert_eq!(server.root().get("sys/policy/own").1["data"]["rules"], json!(rules.to_string()));
}

/// The address of the server, with a request whose body has begun.
fn half_sent(server: &Server, token: &str, path: &str, body: &str, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/{path} HTTP/1.1\r\nHost: a\r\nX-Vault-Token: {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((head + &body[..sent]).as_bytes()).unwrap();
    stream
}

#[test]
fn a_token_that_ends_before_its_body_signs_nothing() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    let client = server.with_policy("sign", json!({ "path": { "transit/sign/a": { "capabilities": ["update"] } } }));
    let body = json!({ "input": encode("m") }).to_string();
    let mut stream = half_sent(&server, &client.token, "transit/sign/a", &body, 5);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(root.post("auth/token/revoke", json!({ "token": client.token })).0, 204);
    stream.write_all(&body.as_bytes()[5..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn a_client_that_goes_away_leaves_a_line_in_the_audit_log() {
    let server = Server::new("");
    let root = server.root();
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-192s" });
    assert_eq!(root.post("transit/keys/slow", make).0, 200);
    let body = json!({ "batch_input": vec![json!({ "input": encode("m") }); 200] }).to_string();
    let stream = half_sent(&server, &root.token, "transit/sign/slow", &body, body.len());
    std::thread::sleep(Duration::from_millis(500));
    drop(stream);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let line = lines(&server.audit_log()).into_iter().find(|line| line["operation"] == "sign");
        if let Some(line) = line {
            assert_eq!((&line["status"], line["messages"].as_array().unwrap().len()), (&json!(499), 200), "{line}");
            break;
        }
        assert!(Instant::now() < until, "no line");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_change_has_a_line_before_it_begins() {
    let server = Server::new("");
    server.root().make_key("a");
    let log = lines(&server.audit_log());
    let of_key: Vec<_> = log.iter().filter(|line| line["operation"] == "key-create").collect();
    assert_eq!(of_key.len(), 2);
    assert!(of_key[0]["begun"] == true && of_key[1].get("begun").is_none() && of_key[1]["status"] == 200);
}

#[test]
fn no_text_of_a_request_fills_the_log_or_shows_a_secret() {
    let server = Server::new("");
    let root = server.root();
    let long = "a".repeat(20_000);
    assert_eq!(Client::new(&server, "").post(&format!("transit/sign/{long}"), json!({})).0, 403);
    assert_eq!(root.post("transit/keys/a", json!({ "parameter_set": long, "type": "slh-dsa" })).0, 400);
    let (status, body) = root.post("auth/token/revoke", json!(root.token));
    assert!(status == 400 && !error(&body).contains(&root.token), "{body}");
    let text = std::fs::read_to_string(server.audit_log()).unwrap();
    assert!(!text.contains(root.token.rsplit('.').next().unwrap()));
    assert!(text.lines().all(|line| line.len() < 2500), "{text}");
}

#[test]
fn a_head_that_was_removed_is_found() {
    let mut server = Server::new("");
    server.root().make_key("a");
    server.stop();
    let database = rusqlite::Connection::open(server.path("data/server.db")).unwrap();
    assert_eq!(database.execute("DELETE FROM records WHERE id = 'audit_head'", []).unwrap(), 1);
    drop(database);
    std::fs::write(server.audit_log(), "").unwrap();
    let verified = server.command(&["audit", "verify"]);
    let why = String::from_utf8_lossy(&verified.stderr);
    assert!(!verified.status.success() && why.contains("changed or removed"), "{why}");
    server.start();
    server.unseal_fails("changed or removed");
}

#[test]
fn files_are_the_owners_alone() {
    let server = Server::new("");
    server.root().make_key("a");
    let mode = |name: &str| std::fs::metadata(server.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("data"), 0o700);
    for name in ["server.db", "server.db-wal", "server.lock", "audit.log"] {
        assert_eq!(mode(&format!("data/{name}")), 0o600, "{name}");
    }
}

/// Root reads everything, so root runs the server and its readers as another user.
#[test]
#[cfg(target_os = "linux")]
fn no_process_of_the_same_user_reads_the_memory_and_no_core_dump_has_it() {
    let mut server = Server::stopped("");
    let program = server.path("program");
    std::fs::copy(env!("CARGO_BIN_EXE_hypergrove-server"), &program).unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        let chown = Command::new("chown").args(["-R", "65534"]).arg(server.folder.path()).status();
        assert!(chown.unwrap().success());
    }
    let as_user = |program: &Path| {
        let mut command = Command::new(program);
        if is_root {
            command.uid(65534);
        }
        command
    };
    let mut command = as_user(&program);
    command.args(["run", "--config"]).arg(server.path("server.toml"));
    server.spawn(command);
    let read = |pid: u32, file: &str| as_user(Path::new("cat")).arg(format!("/proc/{pid}/{file}")).output().unwrap();
    let limits = String::from_utf8(read(server.pid(), "limits").stdout).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["0", "0", "bytes"]);
    let mut other = as_user(Path::new("sleep")).arg("60").spawn().unwrap();
    for file in ["environ", "maps"] {
        let denied = read(server.pid(), file);
        assert!(String::from_utf8_lossy(&denied.stderr).contains("Permission denied"), "{file}: {denied:?}");
        // Another program's files can be read, so it is the server that forbids it.
        assert!(read(other.id(), file).status.success(), "{file}");
    }
    other.kill().unwrap();
    other.wait().unwrap();
    server.unseal();
    server.root().make_key("a");
    server.root().sign("a", b"m");
}

#[test]
fn bodies_without_a_token_are_short() {
    let server = Server::new("");
    let (status, body) = Client::new(&server, "").post("sys/unseal", json!({ "key": "a".repeat(10_000) }));
    assert_eq!(status, 413, "{body}");
    let many = format!("{{\"batch_input\":[{}]}}", vec!["{}"; 70_000].join(","));
    server.root().make_key("a");
    let answer = server.root().request("POST", "transit/sign/a", Some(many.as_bytes()), &[]);
    assert!(answer.status == 400 && error(&answer.body).contains("more than 65536"), "{}", answer.text);
}

#[test]
fn clients_that_read_no_answer_hold_no_connection_for_ever() {
    let server = Server::new("[limits]\nconnections = 2\nheader_seconds = 2\n");
    let request = b"GET /v1/sys/internal/specs/openapi HTTP/1.1\r\nHost: a\r\n\r\n";
    let deaf: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.set_nonblocking(true).unwrap();
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                if stream.write(request).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            stream
        })
        .collect();
    assert_eq!(server.root().get("sys/health").0, 200);
    drop(deaf);
}

/// Otherwise a client would send its next request into a connection that is being closed.
#[test]
fn a_connection_that_closes_after_an_unread_body_says_so() {
    let server = Server::new("");
    for (path, is_read) in
        [("no/path", false), ("sys/seal-status", false), ("transit/sign/a", false), ("sys/unseal", true)]
    {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head =
            format!("POST /v1/{path} HTTP/1.1\r\nHost: a\r\nX-Vault-Token: hgs.0.0\r\nContent-Length: 2\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        if is_read {
            stream.write_all(b"{}").unwrap();
        }
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert_eq!(answer.contains("connection: close\r\n"), !is_read, "{answer}");
    }
}
