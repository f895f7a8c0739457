//! Load, limits, crashes and the audit log.

use crate::deployment::{Client, Server, amount, encode, error, is_full, lines};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A key whose signatures take long.
fn make_slow_key(client: &Client, name: &str) {
    let body = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-shake-256s" });
    assert_eq!(client.post(&format!("transit/keys/{name}"), body).0, 200);
}

fn batch(count: usize) -> Value {
    json!({ "batch_input": (0..count).map(|index| json!({ "input": encode(index.to_string()) })).collect::<Vec<_>>() })
}

fn metric(client: &Client, name: &str) -> f64 {
    let text = client.request("GET", "sys/metrics", None, &[]).text;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("0 0").to_string();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn wait(what: &str, is_so: &dyn Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_full_queue_answers_429_and_a_deadline_504() {
    let server = Server::new("[limits]\nqueue_jobs = 4\nmax_batch = 4\n");
    let client = server.root();
    make_slow_key(&client, "slow");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| client.post("transit/sign/slow", batch(4)));
        wait("the queue is full", &|| metric(&client, "hypergrove_free_jobs ") == 0.0);
        let refused = client.request("POST", "transit/sign/slow", Some(b"{\"input\":\"\"}"), &[]);
        assert_eq!((refused.status, refused.retry_after.as_deref()), (429, Some("1")));
        let (status, body) = held.join().unwrap();
        assert_eq!(status, 200);
        assert!(body["data"]["batch_results"].as_array().unwrap().iter().all(|result| result.get("error").is_none()));
    });
    // The refused request used no number.
    assert_eq!(client.get("transit/keys/slow").1["data"]["keys"]["1"]["signatures"], json!(4));
    let answer =
        client.request("POST", "transit/sign/slow", Some(b"{\"input\":\"\"}"), &[("X-Hypergrove-Deadline-Ms", "1")]);
    assert_eq!(answer.status, 504);
    assert!(error(&answer.body).contains("deadline"));
}

#[test]
fn a_client_that_goes_away_cancels_what_has_not_begun() {
    let server = Server::new("");
    let client = server.root();
    make_slow_key(&client, "slow");
    // Tickets, because each item has a context of its own: far more than run at a time.
    let items: Vec<Value> = (0..200).map(|_| json!({ "input": "", "signature_context": "YQ==" })).collect();
    let body = json!({ "batch_input": items }).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /v1/transit/sign/slow HTTP/1.1\r\nHost: a\r\nX-Vault-Token: {}\r\nContent-Length: {}\r\n\r\n",
        client.token,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let metric = |name: &str| metric(&client, name);
    wait("the jobs are queued", &|| metric("hypergrove_engine_queued_jobs ") > 100.0);
    drop(stream);
    wait("the jobs are cancelled", &|| metric("hypergrove_engine_cancelled_total ") > 100.0);
    wait("the queue is empty", &|| metric("hypergrove_engine_queued_jobs ") == 0.0);
    assert_eq!(metric("hypergrove_free_jobs "), 16_384.0);
}

/// A client whose requests come one after the other is answered on the thread that waits for all connections, but a long signature is not made there.
#[test]
fn a_long_signature_holds_up_no_other_client() {
    let server = Server::new("");
    let (client, other) = (server.root(), server.root());
    make_slow_key(&client, "slow");
    assert_eq!(other.get("sys/health").0, 200);
    let sign = || assert_eq!(client.post("transit/sign/slow", json!({ "input": "" })).0, 200);
    let was_answered_first = || {
        let begun = Instant::now();
        sign();
        let (took, begun) = (begun.elapsed(), Instant::now());
        std::thread::scope(|scope| {
            let signed = scope.spawn(|| {
                sign();
                begun.elapsed()
            });
            std::thread::sleep(took / 4);
            assert_eq!(other.get("sys/health").0, 200);
            let answered = begun.elapsed();
            signed.join().unwrap() * 3 > answered * 4
        })
    };
    // Now and then the other client's request comes first, so one answer shows nothing.
    assert!((0..6).filter(|_| was_answered_first()).count() >= 4);
}

/// The engine has counted each item that is to be computed twice, and no other. That it finds faults, the library's tests show.
#[test]
fn keys_and_policies_ask_for_redundant_signing() {
    let mut server = Server::new("");
    let root = server.root();
    let make = |name: &str, redundant: Value| {
        let body = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "redundant": redundant });
        let (status, body) = root.post(&format!("transit/keys/{name}"), body);
        assert_eq!((status, &body["data"]["redundant"]), (200, &json!(redundant == true)), "{body}");
    };
    make("once", json!(null));
    let computed_twice = |client: &Client| metric(client, "hypergrove_engine_redundant_jobs_total ");
    // How many of 23 items are computed twice, when a client signs one and a batch, and verifies one of each.
    let used = |root: &Client, client: &Client, key: &str| {
        let before = computed_twice(root);
        for body in [json!({ "input": "" }), batch(20)] {
            let signed = client.post(&format!("transit/sign/{key}"), body).1;
            let signature =
                [&signed["data"], &signed["data"]["batch_results"][19]].map(|item| item["signature"].clone());
            let [single, last] = signature;
            let check = if single.is_null() {
                json!({ "input": encode("19"), "signature": last })
            } else {
                json!({ "input": "", "signature": single })
            };
            assert_eq!(
                client.post(&format!("transit/verify/{key}"), check).1["data"]["valid"],
                json!(true),
                "{signed}"
            );
        }
        computed_twice(root) - before
    };
    assert_eq!(used(&root, &root, "once"), 0.0);
    make("twice", json!(true));
    assert_eq!(used(&root, &root, "twice"), 23.0);
    let allowed = json!({ "capabilities": ["update"], "redundant": true });
    let policy = json!({ "path": { "transit/sign/once": allowed, "transit/verify/once": allowed } });
    let client = server.with_policy("twice", policy);
    assert_eq!(used(&root, &client, "once"), 23.0);
    // Who may change a key's settings may ask for more checks. Fewer take more rights.
    let policy = json!({ "path": { "transit/keys/twice/config": { "capabilities": ["update"] } } });
    let client = server.with_policy("settings", policy);
    assert_eq!(client.post("transit/keys/twice/config", json!({ "redundant": true })).0, 200);
    let (status, body) = client.post("transit/keys/twice/config", json!({ "redundant": false }));
    assert!(status == 400 && body.to_string().contains("sudo"), "{status} {body}");
    assert_eq!(root.post("transit/keys/twice/config", json!({ "redundant": false })).0, 200);
    assert_eq!(used(&root, &root, "twice"), 0.0);
    assert_eq!(root.post("transit/keys/once/config", json!({ "redundant": true })).0, 200);
    // It is there after a restart.
    server.stop();
    server.start();
    server.unseal();
    assert_eq!(used(&server.root(), &server.root(), "once"), 23.0);
}

/// Ends the work of other threads when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One engine computes all requests: those that are computed twice get their turn among the others, and hold none of them up.
#[test]
fn redundant_requests_share_the_engine_with_others() {
    const ROUNDS: u32 = 4;
    let server = Server::new("");
    let root = server.root();
    for (name, redundant) in [("once", false), ("twice", true)] {
        let body = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "redundant": redundant });
        assert_eq!(root.post(&format!("transit/keys/{name}"), body).0, 200);
    }
    let sign = |client: &Client, key: &str, count: usize| {
        let (status, body) = client.post(&format!("transit/sign/{key}"), batch(count));
        let results = body["data"]["batch_results"].as_array().map_or(0, Vec::len);
        assert_eq!((status, results), (200, count), "{body}");
    };
    let (is_over, others) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let client = server.root();
            let (sign, is_over, others) = (&sign, &is_over, &others);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    sign(&client, "once", 40);
                    others.fetch_add(1, Relaxed);
                }
            });
        }
        // The others end, too, if an assertion fails here.
        let _ends = Ends(&is_over);
        wait("others' requests are answered", &|| others.load(Relaxed) >= 3);
        // The others never stop, so requests that had to wait for an idle engine would not end.
        let before = others.load(Relaxed);
        for _ in 0..ROUNDS {
            for count in [1, 20] {
                sign(&root, "twice", count);
            }
        }
        let meanwhile = others.load(Relaxed) - before;
        assert!(meanwhile > 0, "others waited for all redundant requests");
    });
    // The key that signs twice was made twice, too.
    assert_eq!(metric(&root, "hypergrove_engine_redundant_jobs_total "), f64::from(ROUNDS * 21 + 1));
}

#[test]
fn a_stop_finishes_what_was_accepted() {
    let mut server = Server::new("");
    let client = server.root();
    make_slow_key(&client, "slow");
    let accepted = std::thread::spawn({
        let client = client.clone();
        move || client.post("transit/sign/slow", batch(12))
    });
    let log = server.audit_log();
    let before = lines(&log).len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(lines(&log).len(), before, "the request still runs");
    let begun = Instant::now();
    assert_eq!(server.stop(), Some(0));
    let (status, body) = accepted.join().unwrap();
    assert_eq!((status, body["data"]["batch_results"].as_array().unwrap().len()), (200, 12));
    assert!(begun.elapsed() < Duration::from_secs(50));
    server.start();
    server.unseal();
    let used = &server.root().get("transit/keys/slow").1["data"]["keys"]["1"]["signatures"];
    assert_eq!(used, &json!(12), "the rest of the lease was given back");
}

/// Sends a batch that would take minutes, and calls `end` when it is being signed. Gives the answer.
fn interrupted(client: &Client, body: &Value, end: impl FnOnce()) -> (u16, Value) {
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.post("transit/sign/slow", body.clone()));
        wait("the batch is accepted", &|| metric(client, "hypergrove_free_jobs ") < 16_384.0);
        // A part of it has begun, most likely.
        std::thread::sleep(Duration::from_millis(300));
        end();
        answer.join().unwrap()
    })
}

/// Jobs that have begun end within the time of a signature, in the order of a second. The batch would take minutes, beyond the client's patience.
#[test]
fn sealing_cancels_what_has_not_begun() {
    let server = Server::new("");
    let client = server.root();
    make_slow_key(&client, "slow");
    let with_contexts: Vec<Value> = (0..400).map(|_| json!({ "input": "", "signature_context": "YQ==" })).collect();
    // Rows, and tickets of single jobs; computed once and twice.
    for (redundant, body) in [(false, batch(400)), (false, json!({ "batch_input": with_contexts })), (true, batch(400))]
    {
        assert_eq!(client.post("transit/keys/slow/config", json!({ "redundant": redundant })).0, 200);
        let (status, answer) = interrupted(&client, &body, || assert_eq!(client.post("sys/seal", json!({})).0, 204));
        assert!(status == 503 && error(&answer).contains("sealed"), "{status} {answer}");
        server.unseal();
        // No signature left the server, so no number was used; and nothing computes any more.
        assert_eq!(client.get("transit/keys/slow").1["data"]["keys"]["1"]["signatures"], json!(0));
        let seconds = || metric(&client, "hypergrove_engine_run_seconds ");
        let before = seconds();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(seconds(), before);
    }
    // The line of a cancelled request is written before the log closes.
    let log = lines(&server.audit_log());
    let cancelled: Vec<_> = log.iter().filter(|line| line["operation"] == "sign").collect();
    assert_eq!(cancelled.len(), 3);
    assert!(cancelled.iter().all(|line| line["status"] == 503 && line["messages"].as_array().unwrap().len() == 400));
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn a_stop_cancels_what_has_not_begun_when_its_time_is_over() {
    let mut server = Server::new("[limits]\nstop_seconds = 1\n");
    let client = server.root();
    make_slow_key(&client, "slow");
    let (status, answer) = interrupted(&client, &batch(400), || server.terminate());
    assert!(status == 503 && error(&answer).contains("sealed"), "{status} {answer}");
    assert_eq!(server.stop(), Some(0));
    server.start();
    server.unseal();
    let used = &server.root().get("transit/keys/slow").1["data"]["keys"]["1"]["signatures"];
    assert_eq!(used, &json!(0), "the numbers were given back");
}

/// Otherwise they would hold up others for minutes.
#[test]
fn the_rows_of_a_client_that_went_away_end() {
    let server = Server::new("");
    let client = server.root();
    make_slow_key(&client, "slow");
    let body = batch(400).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /v1/transit/sign/slow HTTP/1.1\r\nHost: a\r\nX-Vault-Token: {}\r\nContent-Length: {}\r\n\r\n",
        client.token,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    wait("the batch is accepted", &|| metric(&client, "hypergrove_free_jobs ") < 16_384.0);
    std::thread::sleep(Duration::from_millis(300));
    drop(stream);
    // Two threads that compute have more than this time, even if many other programs run.
    wait("nothing is computed", &|| {
        let before = ticks(server.pid());
        std::thread::sleep(Duration::from_secs(3));
        ticks(server.pid()) < before + 10
    });
    // Sealing waits for jobs that run, and the client waits for a minute at most.
    assert_eq!(client.post("sys/seal", json!({})).0, 204);
}

#[test]
fn a_key_makes_no_more_signatures_than_its_limit() {
    let server = Server::new("");
    let client = server.root();
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "max_signatures": 10 });
    assert_eq!(client.post("transit/keys/few", make).0, 200);
    let sign = |count: usize| client.post("transit/sign/few", batch(count));
    assert_eq!(sign(4).1["warnings"], json!(null));
    assert!(sign(1).1["warnings"][0].as_str().unwrap().contains("50 %"));
    assert!(sign(4).1["warnings"][0].as_str().unwrap().starts_with("urgent"));
    let (status, body) = sign(2);
    assert!(status == 412 && error(&body).contains("1 are left"), "{body}");
    assert_eq!((sign(1).0, sign(1).0), (200, 412));
    // Bad items use no number.
    let (status, body) = client.post("transit/sign/few", json!({ "batch_input": [{ "input": "%" }] }));
    assert!(status == 200 && body["data"]["batch_results"][0]["error"].is_string(), "{body}");
    // Only an administrator raises the limit.
    let policy = json!({ "path": { "transit/*": { "capabilities": ["update", "read"] } } });
    let user = server.with_policy("user", policy);
    assert_eq!(user.post("transit/keys/few/config", json!({ "max_signatures": 20 })).0, 400);
    assert_eq!(user.post("transit/keys/few/config", json!({ "max_signatures": 9 })).0, 200);
    assert_eq!(client.post("transit/keys/few/config", json!({ "max_signatures": 11 })).0, 200);
    assert_eq!((sign(1).0, sign(1).0), (200, 412));
    // A new version begins anew, and many clients get no more than there are.
    assert_eq!(client.post("transit/keys/few/rotate", json!({})).0, 200);
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = server.root();
                while client.post("transit/sign/few", batch(1)).0 == 200 {
                    made.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(made.load(Relaxed), 11);
}

/// The server is killed under load, again and again. Everything that it had answered is there afterwards.
#[test]
fn a_kill_loses_nothing_that_was_answered() {
    let (kills, begun) = (amount("HYPERGROVE_SERVER_KILLS", 10), Instant::now());
    // Keys and versions grow in number with each kill, and so does the time that each kill takes: a deployment is killed a few times only.
    let counts: Vec<u64> = (0..kills.div_ceil(KILLS)).map(|first| KILLS.min(kills - first * KILLS)).collect();
    let totals = counts.iter().zip(["batch", "second"].iter().cycle()).map(|(kills, fsync)| kill(fsync, *kills));
    let [keys, versions, signatures] =
        totals.fold([0, 0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
    println!(
        "checked: {kills} kills in {:.0} s lost none of {keys} keys, {versions} versions and {signatures} signatures",
        begun.elapsed().as_secs_f64()
    );
}

/// How often one deployment is killed at most.
const KILLS: u64 = 5;

/// Kills a server so many times. Returns how many keys and versions of a key were there in the end, and how many signatures were answered.
fn kill(fsync: &str, rounds: u64) -> [u64; 3] {
    let mut server = Server::new(&format!("[audit]\nfsync = '{fsync}'\n"));
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f", "max_signatures": 1_000_000 });
    assert_eq!(server.root().post("transit/keys/counted", make).0, 200);
    server.root().make_key("rotated");
    let (mut keys, mut rotations, mut used, mut signatures) = (HashSet::from(["counted".to_string()]), 1, 0, 0);
    for round in 0..rounds {
        let (answered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (made, rotated) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let client = server.root();
            for _ in 0..3 {
                let client = client.clone();
                let answered = &answered;
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        if let Some(answer) = attempt(&client, "transit/sign/counted", &batch(3)) {
                            assert_eq!(answer, 200);
                            answered.fetch_add(3, Relaxed);
                        }
                    }
                });
            }
            let maker = scope.spawn({
                let client = client.clone();
                move || {
                    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" });
                    let mut made = HashSet::new();
                    for index in 0.. {
                        let name = format!("key-{round}-{index}");
                        match attempt(&client, &format!("transit/keys/{name}"), &make) {
                            Some(200) => made.insert(name),
                            _ => return made,
                        };
                    }
                    made
                }
            });
            let rotator = scope.spawn(move || {
                let mut rotated = 0;
                while let Some(200) = attempt(&client, "transit/keys/rotated/rotate", &json!({})) {
                    rotated += 1;
                }
                rotated
            });
            std::thread::sleep(Duration::from_millis(150 + 37 * round));
            server.kill();
            is_over.store(true, Relaxed);
            (maker.join().unwrap(), rotator.join().unwrap())
        });
        keys.extend(made);
        rotations += rotated;
        signatures += answered.load(Relaxed);
        // A kill loses the rest of a lease, so there are more numbers than signatures.
        used += answered.load(Relaxed);
        server.start();
        server.unseal();
        let client = server.root();
        let listed: HashSet<String> =
            serde_json::from_value(client.get("transit/keys?list=true").1["data"]["keys"].clone()).unwrap();
        let lost: Vec<_> = keys.difference(&listed).collect();
        assert!(lost.is_empty(), "{lost:?}");
        let latest = client.get("transit/keys/rotated").1["data"]["latest_version"].as_u64().unwrap();
        assert!(latest >= rotations, "{latest} versions, {rotations} were answered");
        rotations = latest;
        let counted = client.get("transit/keys/counted").1["data"]["keys"]["1"]["signatures"].as_u64().unwrap();
        assert!(counted >= used, "{counted} numbers, {used} signatures were answered");
        used = counted;
        client.sign("counted", b"m");
        used += 1;
        let verified = server.command(&["audit", "verify"]);
        assert!(verified.status.success(), "{verified:?}");
    }
    assert!(keys.len() > 1 && rotations > 1 && used > 1, "{} keys, {rotations} versions, {used} numbers", keys.len());
    [keys.len() as u64, rotations, signatures]
}

/// The status of an answer; `None` if the server was killed meanwhile.
fn attempt(client: &Client, path: &str, body: &Value) -> Option<u16> {
    client.try_request("POST", path, Some(body.to_string().as_bytes()), &[]).ok().map(|answer| answer.status)
}

#[test]
fn a_change_of_the_audit_log_is_found() {
    let mut server = Server::new("");
    let client = server.root();
    client.make_key("a");
    for index in 0..5 {
        client.sign("a", format!("message {index}").as_bytes());
    }
    assert_eq!(Client::new(&server, "hgs.0.0").get("transit/keys/a").0, 403);
    let log = server.audit_log();
    let read = lines(&log);
    let signed: Vec<&Value> = read.iter().filter(|line| line["operation"] == "sign").collect();
    assert_eq!(signed.len(), 5);
    let messages: HashSet<&str> = signed.iter().map(|line| line["messages"][0].as_str().unwrap()).collect();
    assert_eq!(messages.len(), 5);
    let accessor = client.token.split('.').nth(1).unwrap();
    for line in &signed {
        let is_so = line["accessor"] == accessor
            && line["version"] == 1
            && line["path"] == "transit/sign/a"
            && line["status"] == 200;
        assert!(is_so, "{line}");
    }
    assert!(read.iter().any(|line| line["status"] == 403 && line["error"] == "permission denied"));
    let verify = || server.command(&["audit", "verify"]);
    assert!(verify().status.success(), "{:?}", verify());
    let text = std::fs::read_to_string(&log).unwrap();
    let all: Vec<&str> = text.lines().collect();
    let removed = [&all[..2], &all[3..]].concat().join("\n") + "\n";
    let edited = text.replacen("\"status\":200", "\"status\":500", 1);
    let cut = all[..all.len() - 1].join("\n") + "\n";
    for (tampered, says) in [(&edited, "HMAC"), (&removed, "must follow"), (&cut, "tail was cut")] {
        std::fs::write(&log, tampered).unwrap();
        let found = verify();
        let why = String::from_utf8_lossy(&found.stderr);
        assert!(!found.status.success() && why.contains(says), "{says}: {why}");
    }
    std::fs::write(&log, &text).unwrap();
    assert!(verify().status.success());
    // The log goes on in another file.
    assert!(!server.command(&["audit", "rotate"]).status.success(), "the server runs");
    server.stop();
    let old = String::from_utf8(server.command(&["audit", "rotate"]).stdout).unwrap();
    assert!(server.command(&["audit", "verify", "--file", old.trim()]).status.success(), "{old}");
    server.start();
    server.unseal();
    server.root().sign("a", b"m");
    server.stop();
    assert!(server.command(&["audit", "verify"]).status.success());
    assert_eq!(lines(&log).len(), 2);
    // A server does not go on with a log whose tail was cut.
    let text = std::fs::read_to_string(&log).unwrap();
    let cut = text.lines().next().unwrap().to_string() + "\n";
    std::fs::write(&log, &cut).unwrap();
    server.start();
    server.unseal_fails("tail was cut");
}

#[test]
fn nothing_is_signed_while_the_audit_log_cannot_be_written() {
    let server = Server::new("");
    let client = server.root();
    client.make_key("a");
    client.sign("a", b"m");
    // From here on no file grows beyond the size that the log has.
    let limit = |bytes: String| {
        let pid = server.pid().to_string();
        let done = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
        assert!(done.unwrap().success());
    };
    let size = std::fs::metadata(server.audit_log()).unwrap().len();
    limit((size + 10).to_string());
    for _ in 0..2 {
        let (status, body) = client.post("transit/sign/a", json!({ "input": encode("m") }));
        assert!(status == 503 && error(&body).contains("audit log"), "{body}");
        assert!(body.get("data").is_none());
    }
    let used = |client: &Client| client.get("transit/keys/a").1["data"]["keys"]["1"]["signatures"].clone();
    limit("unlimited".into());
    client.sign("a", b"m");
    // The first refused request had been signed when its line failed; the second one was not even begun.
    assert_eq!(used(&client), json!(3));
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

/// The time that a process has computed, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn requests_are_answered_while_no_thread_can_be_started() {
    let mut server = Server::stopped("[engine]\nthreads = 4\n");
    // The system does not limit root.
    let owner = Command::new("chown").args(["-R", "47011:47011"]).arg(server.folder.path()).output().unwrap();
    let by_owner = |program: &dyn AsRef<std::ffi::OsStr>| {
        let mut command = Command::new(program);
        if owner.status.success() {
            command.uid(47_011).gid(47_011);
        }
        command
    };
    // The folder of the build may be closed to this user.
    let program = server.path("hypergrove-server");
    std::fs::copy(env!("CARGO_BIN_EXE_hypergrove-server"), &program).unwrap();
    let mut command = by_owner(&program);
    command.args(["run", "--config"]).arg(server.path("server.toml"));
    server.spawn(command);
    server.unseal();
    let limit = |threads: &str| {
        let limited =
            by_owner(&"prlimit").args(["--pid", &server.pid().to_string(), &format!("--nproc={threads}:")]).output();
        assert!(limited.as_ref().unwrap().status.success(), "{limited:?}");
    };
    limit("1");
    if is_full() {
        // By default, idle threads of tokio end after 10 s.
        std::thread::sleep(Duration::from_secs(15));
    }
    let client = server.root();
    client.make_key("a");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = client.clone();
            scope.spawn(move || {
                client.make_key(&format!("key-{number}"));
                for _ in 0..3 {
                    client.sign("a", b"m");
                    let (status, body) = client.post("transit/sign/a", batch(30));
                    let results = body["data"]["batch_results"].as_array().map_or(&[][..], |results| results);
                    let is_signed = results.iter().all(|result| result["signature"].is_string());
                    assert!(status == 200 && results.len() == 30 && is_signed, "{body}");
                }
            });
        }
    });
    assert!(metric(&client, "hypergrove_free_jobs ") > 0.0);
    limit("1000");
    client.sign("key-7", b"m");
    assert_eq!(server.stop(), Some(0));
}

/// The resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends the requests of these numbers. Most of them verify, because this is fast; each kind of request is among them.
fn send(client: &Client, signed: &Value, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let message = format!("message {number}");
        let (path, body, expected) = match number % 64 {
            0 => ("transit/sign/fast", json!({ "input": encode(&message) }), 200),
            1 => ("transit/sign/fast", json!({ "input": "%" }), 400),
            2 => ("transit/sign/nobody", json!({ "input": encode(&message) }), 400),
            3 => ("auth/token/create", json!({ "policies": [], "ttl": "10m" }), 200),
            4 => ("no/path", json!({ "input": message }), 404),
            5 => ("transit/keys/fast/config", json!({ "deletion_allowed": number % 128 == 5 }), 200),
            _ => ("transit/verify/small", signed.clone(), 200),
        };
        let (status, answer) = client.post(path, body);
        assert_eq!(status, expected, "{path}: {answer}");
        if path.starts_with("transit/verify") {
            assert_eq!(answer["data"]["valid"], json!(true));
        } else if let Some(token) = answer["auth"]["client_token"].as_str() {
            assert_eq!(client.post("auth/token/revoke", json!({ "token": token })).0, 204);
        }
    }
}

#[test]
fn memory_does_not_grow_with_requests() {
    const CLIENTS: u64 = 8;
    /// In KiB. Allocators keep some of what is free.
    const GROWTH: u64 = 16 << 10;
    let (requests, begun) = (amount("HYPERGROVE_SERVER_REQUESTS", 6_000), Instant::now());
    let server = Server::new("[audit]\nfsync = 'second'\n");
    let root = server.root();
    root.make_key("fast");
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128s" });
    assert_eq!(root.post("transit/keys/small", make).0, 200);
    let signed = json!({ "input": encode("m"), "signature": root.sign("small", b"m")["signature"] });
    let run = |numbers: std::ops::Range<u64>| {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (numbers, signed) = (numbers.clone(), &signed);
                let root = server.root();
                scope.spawn(move || send(&root, signed, numbers.filter(|number| number / 64 % CLIENTS == client)));
            }
        });
        resident(server.pid())
    };
    // The first requests fill caches, and start threads.
    let first = run(0..requests / 3);
    let last = run(requests / 3..requests);
    println!(
        "checked: {requests} requests in {:.0} s; the server had {first} KiB after a third of them, and {last} KiB in the end",
        begun.elapsed().as_secs_f64()
    );
    assert!(last < first + GROWTH, "{first} KiB of memory grew to {last}");
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
}
