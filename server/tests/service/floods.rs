//! Floods of clients without a token: neither the operator nor clients with a token are kept out, and no log grows with them.

use crate::deployment::{Client, PASSPHRASE, Server, encode, error, lines};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Runs `work` while some clients send wrong passphrases one after the other.
fn under_wrong_passphrases(server: &Server, work: impl FnOnce()) {
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = Client::new(server, "");
                while !is_over.load(Relaxed) {
                    let (status, body) = client.post("sys/unseal", json!({ "key": "wrong" }));
                    sent.fetch_add(1, Relaxed);
                    // When the server is unsealed, Vault's answer is its state.
                    assert!(status == 200 || status == 400 && error(&body).contains("passphrase"), "{status} {body}");
                }
            });
        }
        while sent.load(Relaxed) < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Relaxed);
        result.unwrap();
    });
}

fn is_sealed(server: &Server) -> bool {
    Client::new(server, "").get("sys/seal-status").1["sealed"] == json!(true)
}

#[test]
fn wrong_passphrases_keep_no_operator_out() {
    let mut server = Server::stopped("");
    server.start();
    under_wrong_passphrases(&server, || server.unseal());
    assert_eq!(server.root().post("sys/seal", json!({})).0, 204);
    under_wrong_passphrases(&server, || {
        let unsealed = server.command(&["unseal"]);
        assert!(unsealed.status.success(), "{unsealed:?}");
    });
    assert!(!is_sealed(&server));
    // Only who unsealed the server has a line.
    let log = lines(&server.audit_log());
    let paths: Vec<&Value> =
        log.iter().filter(|line| line["operation"] == "unseal").map(|line| &line["path"]).collect();
    assert_eq!(paths, ["sys/unseal", "local socket"]);
}

#[test]
fn the_local_socket_is_its_owners_alone() {
    let mut server = Server::stopped("");
    let (program, socket) = (server.path("program"), server.path("socket"));
    std::fs::copy(env!("CARGO_BIN_EXE_hypergrove-server"), &program).unwrap();
    let settings = std::fs::read_to_string(server.path("server.toml")).unwrap();
    std::fs::write(server.path("server.toml"), format!("socket = {socket:?}\n{settings}")).unwrap();
    // A server that was killed has left its socket.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    server.start();
    let file = std::fs::metadata(&socket).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let why = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::write(server.path("passphrase"), "wrong").unwrap();
    let refused = server.command(&["unseal"]);
    assert!(!refused.status.success() && why(&refused).contains("check the passphrase"), "{refused:?}");
    std::fs::write(server.path("passphrase"), "a".repeat(4096)).unwrap();
    let refused = server.command(&["unseal"]);
    assert!(!refused.status.success() && why(&refused).contains("check the passphrase"), "{refused:?}");
    // Bytes beyond a passphrase are not read, and nothing is not taken for one.
    for text in [String::new(), "a".repeat(100_000)] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        drop(stream.write_all(text.as_bytes()));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = String::new();
        assert!(stream.read_to_string(&mut answer).is_err() || answer.contains("1 to 4096 bytes"), "{answer}");
    }
    std::fs::write(server.path("passphrase"), PASSPHRASE).unwrap();
    // Another user, even if the file's mode lets them in.
    if file.uid() == 0 {
        let passphrase = server.path("passphrase");
        let opened = [(server.folder.path(), 0o755), (&socket, 0o666), (&program, 0o755), (&passphrase, 0o644)];
        for (path, mode) in opened {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let mut other = Command::new(&program);
        other.args(["unseal", "--config"]).arg(server.path("server.toml"));
        let refused = other.arg("--passphrase-file").arg(server.path("passphrase")).uid(65534).output().unwrap();
        assert!(!refused.status.success() && why(&refused).contains("socket"), "{refused:?}");
    }
    assert!(is_sealed(&server));
    let unsealed = server.command(&["unseal"]);
    assert!(unsealed.status.success() && !is_sealed(&server), "{unsealed:?}");
    assert!(server.command(&["unseal"]).status.success(), "it is unsealed already");
    server.stop();
    assert!(!socket.exists());
    let refused = server.command(&["unseal"]);
    assert!(!refused.status.success() && why(&refused).contains("is the server running"), "{refused:?}");
}

/// The requests of the lines that sum up refused ones.
fn summed(log: &[Value]) -> u64 {
    log.iter().filter_map(|line| line["refused"]["requests"].as_u64()).sum()
}

#[test]
fn requests_without_a_valid_token_have_few_lines() {
    let mut server = Server::new("trusted_proxies = ['127.0.0.1']\n");
    let root = server.root();
    root.make_key("a");
    let before = lines(&server.audit_log()).len();
    // A single mistake is in the log before it is answered.
    let secret = "A".repeat(43);
    let unknown = Client::new(&server, &format!("hgs.{}.{secret}", "0".repeat(32)));
    let forwarded = [("X-Forwarded-For", "198.51.100.7, 192.0.2.1")];
    assert_eq!(unknown.request("POST", "transit/sign/a", Some(b"{}"), &forwarded).status, 403);
    let line = lines(&server.audit_log()).pop().unwrap();
    let expected =
        json!({ "operation": "sign", "path": "transit/sign/a", "status": 403, "error": "permission denied" });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&line[name], value, "{line}");
    }
    assert_eq!(
        (&line["refused"]["requests"], &line["refused"]["why"], &line["refused"]["addresses"]),
        (&json!(1), &json!("an unknown or expired token"), &json!(["192.0.2.1"]))
    );
    // A revoked token, one with the accessor of a valid one, malformed ones, none, and headers that are no text.
    let accessor = root.token.split('.').nth(1).unwrap();
    let made = root.post("auth/token/create", json!({ "policies": ["root"] })).1;
    let revoked = made["auth"]["client_token"].as_str().unwrap().to_string();
    assert_eq!(root.post("auth/token/revoke", json!({ "token": revoked })).0, 204);
    let tokens = [revoked, format!("hgs.{accessor}.{secret}"), "hgs.0.0".into(), "x".repeat(5000), String::new()];
    const ROUNDS: u64 = 60;
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let path = format!("transit/keys/{round}{}", "x".repeat(1000));
        for token in &tokens {
            assert_eq!(Client::new(&server, token).get(&path).0, 403);
        }
        let head = format!("HEAD /v1/{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
        assert!(server.raw((head.clone() + "\r\n").as_bytes()).starts_with("HTTP/1.1 403"));
        let text = [head.as_bytes(), b"X-Vault-Token: \xff\r\n\r\n"].concat();
        assert!(server.raw(&text).starts_with("HTTP/1.1 400"));
    }
    let count = ROUNDS * (tokens.len() as u64 + 2);
    // Of each of three kinds: lines after 0, 1, 3, 7, 15, 31 and 63 seconds, then every 64 seconds, and the last one.
    let most = 3 * (8 + begun.elapsed().as_secs() as usize / 64);
    assert_eq!(server.stop(), Some(0));
    let log = lines(&server.audit_log());
    let refused: Vec<&Value> =
        log[before..].iter().filter(|line| line["status"] != 200 && line["status"] != 204).collect();
    assert!(refused.len() <= most, "{} lines", refused.len());
    // The last of them were written when the server was sealed, and a single one that came before them is counted, too.
    assert_eq!(summed(&log), count + 1);
    let text = std::fs::read_to_string(server.audit_log()).unwrap();
    assert!(text.lines().all(|line| line.len() < 2500), "{text}");
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn the_end_of_a_flood_is_in_the_log_without_another_request() {
    let server = Server::new("");
    let stranger = Client::new(&server, "");
    for _ in 0..5 {
        assert_eq!(stranger.get("transit/keys/a").0, 403);
    }
    let until = Instant::now() + Duration::from_secs(60);
    while summed(&lines(&server.audit_log())) < 5 {
        assert!(Instant::now() < until, "{:?}", lines(&server.audit_log()));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn no_log_grows_with_requests_of_strangers() {
    let mut server = Server::stopped("");
    server.start();
    let (stranger, begun) = (Client::new(&server, ""), Instant::now());
    for _ in 0..12 {
        assert_eq!(stranger.post("sys/unseal", json!({ "key": "wrong" })).0, 400);
    }
    server.unseal();
    let in_audit = lines(&server.audit_log()).len();
    let long = "a".repeat(60_000);
    for index in 0..50 {
        for path in [format!("none/{index}"), format!("transit/keys/{long}/{index}/1/2"), "sys/unseal".into()] {
            let head =
                format!("PATCH /v1/{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Vault-Token: {index}\r\n\r\n");
            let answer = server.raw(head.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
        }
        assert_eq!(stranger.request("HEAD", "none", None, &[]).status, 404);
        assert_eq!(stranger.request("GET", "sys/health", None, &[]).status, 200);
        assert_eq!(stranger.post("sys/unseal", json!({ "key": long })).0, 413);
        for garbage in [&b"\0\r\n\r\n"[..], b"GET / HTTP/1.1\r\n"] {
            drop(TcpStream::connect(&server.address).unwrap().write_all(garbage));
        }
    }
    assert_eq!(lines(&server.audit_log()).len(), in_audit);
    assert_eq!(server.stop(), Some(0));
    let until = Instant::now() + Duration::from_secs(60);
    let logged = || server.logged.lock().unwrap().clone();
    while !logged().last().is_some_and(|line| line.contains("stopping")) {
        assert!(Instant::now() < until, "{:?}", logged());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The first wrong passphrase, or one each minute, that the server was unsealed, and that it stops.
    let most = 3 + begun.elapsed().as_secs() as usize / 60;
    assert!((3..=most).contains(&logged().len()), "{:?}", logged());
}

/// Connections that send these bytes, and then nothing.
fn silent(server: &Server, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        drop(stream.write_all(bytes));
        stream
    };
    (0..count).map(open).collect()
}

const HALVES: [&[u8]; 4] = [
    b"",
    b"GET /v1/sys/he",
    b"POST /v1/sys/unseal HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n{",
    b"GET /v1/sys/health HTTP/1.1\r\nHost: a\r\n\r\n",
];

#[test]
fn silent_connections_lock_nobody_out() {
    let server = Server::new(
        "[limits]\nconnections = 8\nheader_seconds = 3600\nbody_seconds = 3600\nfirst_byte_seconds = 3600\n",
    );
    let root = server.root();
    root.make_key("a");
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-192s" });
    assert_eq!(root.post("transit/keys/slow", make).0, 200);
    std::thread::scope(|scope| {
        // Requests that are being answered meanwhile keep their connections.
        let (body, clients) =
            (json!({ "batch_input": vec![json!({ "input": encode("m") }); 20] }), [(); 2].map(|()| server.root()));
        let signed = clients.map(|client| {
            scope.spawn({
                let body = body.clone();
                move || client.post("transit/sign/slow", body)
            })
        });
        let is_answered = || {
            let metrics = root.request("GET", "sys/metrics", None, &[]).text;
            metrics.contains("hypergrove_free_jobs 16344\n") || signed.iter().any(|signed| signed.is_finished())
        };
        while !is_answered() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for bytes in HALVES {
            let mut held = silent(&server, 30, bytes);
            server.root().sign("a", b"m");
            // The oldest gave way; where the request was whole, perhaps after its answer.
            let mut answer = Vec::new();
            drop(held[0].read_to_end(&mut answer));
            assert!(answer.is_empty() || bytes.ends_with(b"a\r\n\r\n"), "{}", String::from_utf8_lossy(&answer));
        }
        for answer in signed {
            assert_eq!(answer.join().unwrap().0, 200);
        }
    });
}

#[test]
fn who_sends_no_first_byte_is_not_waited_for() {
    let server = Server::new("[limits]\nfirst_byte_seconds = 1\nheader_seconds = 3600\n");
    let mut stream = silent(&server, 1, b"").pop().unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0);
    // From the first byte on, the time for headers holds, and between requests.
    let mut slow = silent(&server, 1, b"GET /v1/sys/health HTTP/1.1\r\n").pop().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    for rest in [&b"Host: a\r\n\r\n"[..], b"GET /v1/sys/health HTTP/1.1\r\nHost: a\r\n\r\n"] {
        slow.write_all(rest).unwrap();
        let mut answer = [0; 4096];
        let length = slow.read(&mut answer).unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..length]));
        std::thread::sleep(Duration::from_millis(1500));
    }
}

#[test]
fn a_lack_of_file_descriptors_locks_nobody_out() {
    let mut server = Server::stopped("[limits]\nheader_seconds = 3600\nfirst_byte_seconds = 3600\n");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 128; exec \"$0\" run --config \"$1\"", env!("CARGO_BIN_EXE_hypergrove-server")]);
    command.arg(server.path("server.toml"));
    server.spawn(command);
    server.unseal();
    server.root().make_key("a");
    let held = silent(&server, 300, b"");
    for _ in 0..3 {
        server.root().sign("a", b"m");
    }
    drop(held);
}

#[test]
fn a_stop_waits_for_no_stranger() {
    for bytes in HALVES {
        let mut server = Server::new("[limits]\nheader_seconds = 3600\nbody_seconds = 3600\nstop_seconds = 3600\n");
        let held = silent(&server, 3, bytes);
        assert_eq!(server.root().get("sys/health").0, 200);
        let stopped = std::thread::spawn(move || (server.stop(), server));
        let until = Instant::now() + Duration::from_secs(60);
        while !stopped.is_finished() {
            assert!(Instant::now() < until, "{}", String::from_utf8_lossy(bytes));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(stopped.join().unwrap().0, Some(0));
        drop(held);
    }
}

#[test]
fn an_address_behind_a_proxy_has_a_share_of_the_requests() {
    let server = Server::new("trusted_proxies = ['127.0.0.1', '10.0.0.1']\n[limits]\nper_address = 1\n");
    let root = server.root();
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-shake-256s" });
    assert_eq!(root.post("transit/keys/slow", make).0, 200);
    let policy = json!({ "path": { "transit/sign/slow": { "capabilities": ["update"] } } });
    let client = server.with_policy("sign", policy);
    let health = |addresses: &str| root.request("GET", "sys/health", None, &[("X-Forwarded-For", addresses)]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let body = json!({ "batch_input": vec![json!({ "input": encode("m") }); 12] }).to_string();
            let head = [("X-Forwarded-For", "2001:db8::1")];
            let answer = client.request("POST", "transit/sign/slow", Some(body.as_bytes()), &head);
            is_over.store(true, Relaxed);
            answer.status
        });
        // One of its requests is being answered, so the same customer's next ones are refused, whatever else they put into the header.
        let until = Instant::now() + Duration::from_secs(60);
        while health("2001:db8::2").status != 429 {
            assert!(Instant::now() < until && !is_over.load(Relaxed), "none was refused");
        }
        for (addresses, expected) in [
            ("192.0.2.1, 2001:db8::3", 429),
            ("127.0.0.1,[2001:db8::4]:80 , 10.0.0.1", 429),
            ("2001:db8::1, 192.0.2.1", 200),
            ("2001:db8:0:1::1", 200),
            ("nonsense", 200),
        ] {
            let answer = health(addresses);
            assert!(answer.status == expected || is_over.load(Relaxed), "{addresses}: {}", answer.text);
        }
        assert_eq!(root.get("sys/health").0, 200);
        assert_eq!(slow.join().unwrap(), 200);
    });
    assert_eq!(health("2001:db8::2").status, 200);
}

/// A server with its audit log, or its database, on a small disk, and a shell that sees this disk.
struct SmallDisk(Server, PathBuf);

impl SmallDisk {
    /// `None` if this machine lets nobody make a disk.
    fn new(is_of_log: bool) -> Option<SmallDisk> {
        let mut server = Server::stopped("");
        let disk = server.path(if is_of_log { "disk" } else { "data" });
        std::fs::create_dir_all(&disk).unwrap();
        // The files that are there already come along.
        let script = "mkdir \"$2/kept\" && cp -p \"$1\"/* \"$2/kept\"
            mount -t tmpfs -o size=8m,mode=700 none \"$1\" || exit 1
            cp -p \"$2\"/kept/* \"$1\"
            \"$0\" run --config \"$2/server.toml\" & server=$!
            while kill -0 $server; do
                if [ -e \"$2/command\" ]; then
                    sh \"$2/command\" >\"$2/output\" 2>&1; echo $? >\"$2/status\"; rm \"$2/command\"
                fi
                sleep 0.05
            done";
        let mut command = Command::new("unshare");
        command.args(["-rm", "--pid", "--fork", "--kill-child", "sh", "-c"]);
        let can_mount = command.arg("mount -t tmpfs none /mnt").output();
        if !can_mount.as_ref().is_ok_and(|output| output.status.success()) {
            println!("skipped: a full disk: unshare and mount do not work here: {can_mount:?}");
            return None;
        }
        let config = std::fs::read_to_string(server.path("server.toml")).unwrap();
        let log = if is_of_log { disk.join("audit.log") } else { server.path("audit.log") };
        let config = format!("{config}\n[audit]\npath = {log:?}\n");
        std::fs::write(server.path("server.toml"), config).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-rm", "--pid", "--fork", "--kill-child", "sh", "-c", script]);
        command.arg(env!("CARGO_BIN_EXE_hypergrove-server")).arg(&disk).arg(server.folder.path());
        server.spawn(command);
        Some(SmallDisk(server, disk))
    }

    fn fill(&self) {
        self.run("dd if=/dev/zero of=\"$disk/fill$(date +%N)\" bs=4096 || true");
    }

    /// How many files of the reserve are there.
    fn kept(&self) -> String {
        self.run("ls \"$disk\" | grep -c reserve").1.trim().into()
    }

    fn wait_for_reserve(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.kept() != "2" {
            assert!(Instant::now() < until, "the reserve is made when there is room");
        }
    }

    /// Runs a command with the paths of the program, of the disk and of the deployment. Returns its exit status and its output.
    fn run(&self, command: &str) -> (String, String) {
        let path = |name| self.0.path(name);
        let program = env!("CARGO_BIN_EXE_hypergrove-server");
        let script = format!("program={program:?} disk={:?} folder={:?}\n{command}\n", self.1, self.0.folder.path());
        std::fs::write(path("written"), script).unwrap();
        std::fs::rename(path("written"), path("command")).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while path("command").exists() {
            assert!(Instant::now() < until, "{command}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let read = |name| std::fs::read_to_string(path(name)).unwrap();
        (read("status").trim().into(), read("output"))
    }
}

#[test]
fn a_full_disk_has_room_for_the_lines_of_requests_and_of_the_seal() {
    let Some(disk) = SmallDisk::new(true) else { return };
    let server = &disk.0;
    server.unseal();
    let root = server.root();
    root.make_key("a");
    disk.wait_for_reserve();
    disk.fill();
    // Strangers use none of it, and their answers do not say that the disk is full.
    let stranger = Client::new(server, "");
    for _ in 0..20 {
        assert_eq!(stranger.get(&format!("transit/keys/{}", "x".repeat(1000))).0, 403);
    }
    assert_eq!(disk.kept(), "2");
    for _ in 0..30 {
        root.sign("a", b"m");
    }
    assert_eq!(disk.kept(), "1");
    // Without that part, nothing is signed or changed, but the server can be sealed.
    disk.fill();
    let sign = || root.post("transit/sign/a", json!({ "input": encode("m") })).0;
    assert!((0..30).any(|_| sign() == 503));
    assert_eq!(root.post("transit/keys/b", json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" })).0, 503);
    assert_eq!((&*disk.kept(), root.get("transit/keys/b").0), ("1", 503));
    assert_eq!(root.post("sys/seal", json!({})).0, 204);
    disk.run("rm \"$disk\"/fill*");
    server.unseal();
    assert_eq!((sign(), root.get("transit/keys/b").0), (200, 404));
    let verify = "\"$program\" audit verify --config \"$folder/server.toml\" --passphrase-file \"$folder/passphrase\"";
    let (status, output) = disk.run(verify);
    assert_eq!(status, "0", "{output}");
    let log = disk.run("cat \"$disk/audit.log\"").1;
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(log.iter().filter(|line| line["operation"] == "seal" && line["status"] == 204).count(), 1);
    assert_eq!(summed(&log), 20);
    disk.wait_for_reserve();
    // With no room at all, private keys leave the memory all the same.
    disk.run("rm \"$disk\"/*reserve*");
    disk.fill();
    let (status, body) = root.post("sys/seal", json!({}));
    assert!(is_sealed(server), "{status} {body}");
    assert!(status == 204 || body.to_string().contains("lacks this request"), "{status} {body}");
}

#[test]
fn a_full_disk_of_the_database_loses_no_number() {
    let Some(disk) = SmallDisk::new(false) else { return };
    let server = &disk.0;
    server.unseal();
    let root = server.root();
    let body = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "max_signatures": 1 << 20 });
    assert_eq!(root.post("transit/keys/a", body).0, 200);
    root.sign("a", b"m");
    disk.wait_for_reserve();
    let sign = || root.post("transit/sign/a", json!({ "input": encode("m") })).0;
    let used = || {
        let (status, body) = root.get("transit/keys/a");
        assert_eq!(status, 200, "{body}");
        body["data"]["keys"]["1"]["signatures"].as_u64().unwrap()
    };
    let before = used();
    disk.fill();
    let signed = (0..2000).take_while(|_| sign() == 200).count() as u64;
    assert!(signed < 2000 && disk.kept() == "2", "signatures use none of it");
    // The line is in the log, whose disk has room, but not its head in the database.
    assert_eq!(root.post("sys/seal", json!({})).0, 503);
    assert!(is_sealed(server));
    disk.run("rm \"$disk\"/fill*");
    server.unseal();
    // Of a block of 1024 numbers none is lost, except that of the signature that did not leave.
    assert!((before + signed..=before + signed + 1).contains(&used()), "{before} {signed} {}", used());
}
