//! The audit log, and the server's own log, on disks that are full and in pipes that nobody reads.

use crate::deployment::{Client, PASSPHRASE, Server, encode, error, is_full, lines};
use hypergrove::{Engine, PassphraseKdf, SLH_DSA_SHA2_128F, SigningKey};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Standard errors that take nothing.
const UNHEARD: [&str; 4] = ["dead", "stuck", "full", "closed"];

/// Those of the usual run, or all.
fn kinds() -> &'static [&'static str] {
    if is_full() { &UNHEARD } else { &UNHEARD[..2] }
}

/// A standard error of this kind. Without the reader, which is returned besides, the pipe would be closed.
fn unheard(kind: &str) -> (Stdio, Option<std::io::PipeReader>) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    match kind {
        "dead" => (writer.into(), None),
        "stuck" => {
            // All that a pipe of Linux holds, so that the next byte would wait for ever.
            writer.write_all(&[b' '; 1 << 16]).unwrap();
            (writer.into(), Some(reader))
        }
        "full" => (File::options().write(true).open("/dev/full").unwrap().into(), None),
        _ => (Stdio::null(), None),
    }
}

/// From here on no file of the server grows beyond this size.
fn limit(server: &Server, bytes: &str) {
    let limit = ["--pid", &server.pid().to_string(), &format!("--fsize={bytes}:")].map(String::from);
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
}

fn verify(server: &Server) -> String {
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    String::from_utf8(verified.stdout).unwrap()
}

fn sign(client: &Client) -> u16 {
    client.post("transit/sign/a", json!({ "input": encode("m") })).0
}

fn used(client: &Client) -> u64 {
    client.get("transit/keys/a").1["data"]["keys"]["1"]["signatures"].as_u64().unwrap()
}

/// A log that is longer than the database's files, so that of all files only this one can grow beyond a limit.
fn lengthen(client: &Client, log: &Path) {
    let item = json!({ "input": "", "signature": "vault:v1:AA==", "signature_context": encode([7; 255]) });
    let mut items = vec![item; 4000];
    items[0]["signature_context"] = json!("");
    let body = json!({ "batch_input": items });
    while std::fs::metadata(log).unwrap().len() < 3 << 20 {
        assert_eq!(client.post("transit/verify/a", body.clone()).0, 200);
    }
}

#[test]
fn neither_a_dead_standard_error_nor_a_full_disk_damages_the_log() {
    for kind in kinds() {
        let mut server = Server::stopped("");
        let (stderr, _reader) = unheard(kind);
        match *kind {
            "closed" => server.start_closed(),
            _ => server.start_unheard(stderr),
        }
        server.unseal();
        let client = server.root();
        let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "max_signatures": 1_000_000 });
        assert_eq!(client.post("transit/keys/a", make).0, 200);
        lengthen(&client, &server.audit_log());
        assert_eq!(sign(&client), 200);
        for room in [0, 10, 300] {
            limit(&server, &(std::fs::metadata(server.audit_log()).unwrap().len() + room).to_string());
            for _ in 0..3 {
                assert_eq!(sign(&client), 503, "{kind}");
                assert_eq!(client.post("transit/keys/b", json!({ "type": "slh-dsa" })).0, 503, "{kind}");
            }
            verify(&server);
            limit(&server, "unlimited");
            assert_eq!(sign(&client), 200, "{kind}");
            verify(&server);
        }
        let metrics = client.request("GET", "sys/metrics", None, &[]).text;
        let lost = metrics.lines().find_map(|line| line.strip_prefix("hypergrove_log_lines_lost_total ")).unwrap();
        // A closed one is the null device for every program of Rust, and a stuck one loses lines when many wait.
        assert_eq!(lost != "0", ["dead", "full"].contains(kind), "{kind}: {lost}");
        let before = used(&client);
        limit(&server, &std::fs::metadata(server.audit_log()).unwrap().len().to_string());
        assert_eq!(sign(&client), 503);
        assert_eq!(server.stop(), Some(0), "{kind}");
        server.start();
        server.unseal();
        let client = server.root();
        assert_eq!(sign(&client), 200);
        // The refused request may have been signed, and no number but its own is missing.
        assert!((before + 1..=before + 2).contains(&used(&client)), "{kind}: {before} {}", used(&client));
        verify(&server);
    }
}

/// The limit falls on every part of a request: its first line, its result's line, the head, numbers, the change itself. Nobody reads standard error.
#[test]
fn a_disk_that_is_full_at_any_point_of_a_request_damages_nothing() {
    for is_long in [false, true] {
        let mut server = Server::stopped("");
        server.start_unheard(unheard("dead").0);
        server.unseal();
        let client = server.root();
        client.make_key("a");
        if is_long {
            lengthen(&client, &server.audit_log());
        }
        let (mut signed, mut answered, mut refused) = (0, 0, 0);
        for round in (0..24).step_by(if is_full() { 1 } else { 3 }) {
            let client = server.root();
            // The log grows by bytes, and the database by frames of 4,120 bytes.
            let (longest, step) = if is_long { ("audit.log", 61) } else { ("server.db-wal", 4120) };
            let size = std::fs::metadata(server.path("data").join(longest)).unwrap().len();
            limit(&server, &(size + round * step).to_string());
            let policy = json!({ "policy": json!({ "path": {} }).to_string() });
            for status in [client.post("sys/policies/acl/p", policy).0, sign(&client), sign(&client)] {
                assert!([200, 204, 500, 503].contains(&status), "{status}");
                signed += usize::from(status == 200);
                *(if status < 300 { &mut answered } else { &mut refused }) += 1;
            }
            if round % 6 == 3 {
                server.kill();
                server.start_unheard(unheard("dead").0);
                server.unseal();
            } else {
                limit(&server, "unlimited");
            }
            assert_eq!(sign(&server.root()), 200);
            signed += 1;
            verify(&server);
        }
        // Only a refused signature may have a line that says that it was made.
        let log = lines(&server.audit_log());
        let lines = log.iter().filter(|line| line["operation"] == "sign" && line["status"] == 200).count();
        assert!(lines >= signed && answered > 0 && refused > 0, "{lines} {signed} {answered} {refused}");
        assert_eq!(server.stop(), Some(0));
    }
}

/// Runs a command with these streams, in a folder of its own.
fn run(server: &Server, arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
    command.args(arguments).arg("--config").arg(server.path("server.toml"));
    command.arg("--passphrase-file").arg(server.path("passphrase"));
    command.stdout(stdout).stderr(stderr).spawn().unwrap().wait_with_output().unwrap()
}

/// A file of a private key, encrypted with the passphrase of the server.
fn key_file(server: &Server, key: SigningKey) -> String {
    let path = server.path("key.der");
    let encrypted = key.encrypt(PASSPHRASE.as_bytes(), PassphraseKdf::Pbkdf2).unwrap();
    std::fs::write(&path, encrypted.to_der().unwrap().as_bytes()).unwrap();
    path.display().to_string()
}

#[test]
fn no_command_fails_because_nobody_hears_it() {
    for kind in kinds() {
        let server = Server::stopped("");
        std::fs::remove_dir_all(server.path("data")).unwrap();
        let key = key_file(&server, Engine::new().unwrap().generate(&SLH_DSA_SHA2_128F).unwrap());
        let word = server.path("passphrase").display().to_string();
        let commands: [&[&str]; 6] = [
            &["init"],
            &["root-token"],
            &["import", "imported", &key, "--key-passphrase-file", &word],
            &["audit", "rotate"],
            &["audit", "verify"],
            &["root-token"],
        ];
        let run_unheard = |arguments: &[&str]| {
            let (stderr, _reader) = unheard(kind);
            run(&server, arguments, Stdio::piped(), stderr)
        };
        for arguments in commands {
            let done = run_unheard(arguments);
            assert!(done.status.success(), "{kind}: {arguments:?} {done:?}");
            assert_eq!(done.stdout.is_empty(), arguments[0] == "import", "{kind}: {arguments:?}");
        }
        // A failure that cannot be reported is one all the same, and no panic.
        let failed = run_unheard(&["audit", "verify", "--file", "/none"]);
        assert_eq!(failed.status.code(), Some(1), "{kind}");
        std::fs::remove_file(server.audit_log()).unwrap();
        let accepted = run_unheard(&["audit", "accept-loss", "--reason", "a test"]);
        assert!(accepted.status.success(), "{kind}: {accepted:?}");
        let mut dev = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
        dev.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(server.path("dev"));
        let (stderr, _reader) = unheard(kind);
        let mut dev = dev.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut token = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(dev.stdout.take().unwrap()), &mut token).unwrap();
        assert!(token.starts_with("hgs."), "{kind}: {token}");
        // It is killed by the signal until it waits for it, and ends in order then.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(Command::new("kill").args(["-TERM", &dev.id().to_string()]).status().unwrap().success());
        assert_ne!(dev.wait().unwrap().code(), Some(101), "{kind}");
    }
}

#[test]
fn a_standard_output_that_takes_nothing_is_an_error_and_no_panic() {
    let server = Server::stopped("");
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let lost = run(&server, &["root-token"], full(), Stdio::piped());
    assert!(
        lost.status.code() == Some(1) && String::from_utf8_lossy(&lost.stderr).contains("`root-token`"),
        "{lost:?}"
    );
    let lost = run(&server, &["root-token"], unheard("dead").0, Stdio::piped());
    assert!(lost.status.code() == Some(1), "the token is lost: {lost:?}");
    let unsaid = run(&server, &["audit", "verify"], full(), Stdio::piped());
    assert!(unsaid.status.code() == Some(1) && String::from_utf8_lossy(&unsaid.stderr).contains("lines"), "{unsaid:?}");
    // As `audit verify | head -1` does.
    let verified = run(&server, &["audit", "verify"], unheard("dead").0, Stdio::piped());
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
}

#[test]
fn a_folder_without_a_database_stays_without_one() {
    let server = Server::stopped("");
    let data = server.path("data");
    std::fs::remove_dir_all(&data).unwrap();
    let commands: [&[&str]; 5] = [
        &["audit", "verify"],
        &["audit", "rotate"],
        &["audit", "accept-loss", "--reason", "r"],
        &["root-token"],
        &["run"],
    ];
    for arguments in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
        command.args(arguments).arg("--config").arg(server.path("server.toml"));
        if arguments[0] != "run" {
            command.arg("--passphrase-file").arg(server.path("passphrase"));
        }
        let refused = command.output().unwrap();
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(1) && why.contains("there is no such database") && why.contains("init"),
            "{why}"
        );
        assert!(!data.exists(), "{arguments:?}");
    }
}

#[test]
fn a_loss_that_was_accepted_lets_the_server_start_and_is_never_forgotten() {
    let mut server = Server::new("");
    let client = server.root();
    client.make_key("a");
    assert_eq!(sign(&client), 200);
    let accept = ["audit", "accept-loss", "--reason", "the disk broke"];
    assert!(!server.command(&accept).status.success(), "the server runs");
    server.stop();
    assert!(!server.command(&accept).status.success(), "nothing is lost");
    let text = std::fs::read_to_string(server.audit_log()).unwrap();
    std::fs::write(server.audit_log(), &text[..text.len() / 2]).unwrap();
    let damaged = server.command(&["audit", "verify"]);
    assert!(!damaged.status.success());
    server.start();
    server.unseal_fails("accept-loss");
    server.stop();
    let accepted = server.command(&accept);
    let said = String::from_utf8(accepted.stdout).unwrap();
    assert!(accepted.status.success() && said.contains("LOSS") && said.contains("the disk broke"), "{said}");
    let kept: Vec<PathBuf> = std::fs::read_dir(server.path("data")).unwrap().map(|file| file.unwrap().path()).collect();
    let kept = kept.iter().find(|file| file.to_string_lossy().contains("damaged")).unwrap();
    assert_eq!(std::fs::read_to_string(kept).unwrap(), text[..text.len() / 2]);
    server.start();
    server.unseal();
    assert_eq!(sign(&server.root()), 200);
    assert!(verify(&server).starts_with("LOSS"));
    assert_eq!(lines(&server.audit_log())[0]["loss"]["reason"], json!("the disk broke"));
    let (status, body) = server.root().post("sys/audit/rotate", json!({}));
    assert_eq!(status, 200, "{body}");
    assert!(verify(&server).starts_with("LOSS"));
    let old = body["data"]["file"].as_str().unwrap();
    let earlier = server.command(&["audit", "verify", "--file", old]);
    assert!(earlier.status.success() && earlier.stdout.starts_with(b"LOSS"), "{earlier:?}");
}

#[test]
fn the_log_rotates_while_requests_are_written() {
    let server = Server::new("");
    let client = server.root();
    client.make_key("a");
    let policy = json!({ "path": { "sys/audit/rotate": { "capabilities": ["update"] } } });
    let (status, body) = server.with_policy("some", policy).post("sys/audit/rotate", json!({}));
    assert_eq!(status, 403, "{body}");
    let (is_over, signed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (log, data) = (server.audit_log(), server.path("data"));
    let inode = || std::fs::metadata(&log).ok().filter(|file| file.len() > 0).map(|file| MetadataExt::ino(&file));
    let hangup = |before: Option<u64>| {
        assert!(Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap().success());
        let until = Instant::now() + Duration::from_secs(60);
        while inode() == before || inode().is_none() {
            assert!(Instant::now() < until, "no other file");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    /// Ends the clients, also if something fails.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                let client = server.root();
                while !is_over.load(Relaxed) {
                    assert_eq!(sign(&client), 200);
                    signed.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        for round in 0..4 {
            let (status, body) = client.post("sys/audit/rotate", json!({}));
            assert_eq!(status, 200, "{body}");
            hangup(inode());
            // As logrotate: with `create` in every second round.
            let before = inode();
            std::fs::rename(&log, data.join(format!("audit.log-{round}"))).unwrap();
            verify(&server);
            if round % 2 == 0 {
                std::fs::write(&log, "").unwrap();
            }
            hangup(before);
            verify(&server);
        }
    });
    let mut found = 0;
    let files: Vec<PathBuf> = std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()).collect();
    let logs: Vec<&PathBuf> = files
        .iter()
        .filter(|file| file.to_string_lossy().contains("audit.log") && !file.to_string_lossy().contains("reserve"))
        .collect();
    assert_eq!(logs.len(), 13, "{logs:?}");
    for file in logs {
        let verified = server.command(&["audit", "verify", "--file", &file.to_string_lossy()]);
        assert!(verified.status.success(), "{verified:?}");
        found += lines(file).iter().filter(|line| line["operation"] == "sign").count();
    }
    assert_eq!(found, signed.load(Relaxed));
    // A file that somebody deleted is no file that has ended.
    std::fs::remove_file(&log).unwrap();
    let (status, body) = client.post("sys/audit/rotate", json!({}));
    assert!(status == 500 && error(&body).contains("deleted"), "{body}");
}

#[test]
fn lines_of_signatures_of_different_meaning_differ() {
    let mut server = Server::stopped("");
    let hashed = Engine::new().unwrap().generate(&SLH_DSA_SHA2_128F).unwrap().into_hash_slh_dsa();
    let (file, word) = (key_file(&server, hashed), server.path("passphrase").display().to_string());
    let imported = server.command(&["import", "hashed", &file, "--key-passphrase-file", &word]);
    assert!(imported.status.success(), "{imported:?}");
    server.start();
    server.unseal();
    let client = server.root();
    client.make_key("a");
    let digest = encode([7; 32]);
    let bodies = [
        json!({ "input": digest }),
        json!({ "input": digest, "signature_context": encode("c") }),
        json!({ "input": digest, "hash_algorithm": "SHA2-256" }),
        json!({ "input": digest, "hash_algorithm": "sha2-256", "prehashed": true }),
        json!({ "input": digest, "hash_algorithm": "sha3-256", "prehashed": true, "signature_context": encode("c") }),
        json!({ "batch_input": [{ "input": digest, "signature_context": encode("c") }, { "input": "%" }, { "input": digest }] }),
        json!({ "batch_input": [{ "input": digest, "signature_context": encode("c") }], "signature_context": encode("d") }),
        json!({ "batch_input": vec![json!({ "input": digest }); 20], "signature_context": encode("d") }),
    ];
    for body in &bodies {
        assert_eq!(client.post("transit/sign/a", body.clone()).0, 200);
    }
    assert_eq!(client.post("transit/sign/a/sha2-512", json!({ "input": digest })).0, 200);
    // A key of HashSLH-DSA has a function of its own.
    assert_eq!(client.post("transit/sign/hashed", json!({ "input": digest })).0, 200);
    let log = lines(&server.audit_log());
    let meaning = |line: &Value| {
        ["hash_algorithm", "prehashed", "signature_context", "signature_contexts"].map(|field| line[field].clone())
    };
    let meanings: Vec<_> = log.iter().filter(|line| line["operation"] == "sign").map(meaning).collect();
    let none = Value::Null;
    let (c, d) = (json!(encode("c")), json!(encode("d")));
    assert_eq!(
        meanings,
        [
            [none.clone(), none.clone(), none.clone(), none.clone()],
            [none.clone(), none.clone(), c.clone(), none.clone()],
            [json!("sha2-256"), none.clone(), none.clone(), none.clone()],
            [json!("sha2-256"), json!(true), none.clone(), none.clone()],
            [json!("sha3-256"), json!(true), c.clone(), none.clone()],
            [none.clone(), none.clone(), none.clone(), json!([c, null, null])],
            [none.clone(), none.clone(), d.clone(), json!([c])],
            [none.clone(), none.clone(), d, none.clone()],
            [json!("sha2-512"), none.clone(), none.clone(), none.clone()],
            [json!("sha2-256"), none.clone(), none.clone(), none],
        ]
    );
}
