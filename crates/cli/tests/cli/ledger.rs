//! Ledgers of keys of limited sets, as the tool keeps them. Making such a key and its signatures takes seconds: keys are made up, and signing is
//! ended once its number is reserved.
#![cfg(all(feature = "draft-sp800-230", unix))]

use crate::place::{Place, Run};
use crate::schema::check;
use hypergrove::ledger::LedgerState;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SET: [&str; 2] = ["--set", "SHA2-128-24"];

/// With the private key `k` and the public key `p` of a set with a limit; notes lie in `state`.
struct Limited(Place);

impl Limited {
    fn new() -> Limited {
        let place = Place::new();
        place.write("k", [7; 64]);
        place.write("p", [7; 32]);
        place.write("m", "message");
        Limited(place)
    }
    fn run(&self, args: &[&str]) -> Run {
        let mut command = self.0.command(&[args, &SET].concat());
        command.env("XDG_STATE_HOME", self.0.path("state")).stdin(Stdio::null()).output().unwrap().into()
    }
    fn ledger(&self, args: &[&str]) -> Run {
        self.run(&[&["ledger"], args].concat())
    }
    fn state(&self, name: &str) -> LedgerState {
        LedgerState::from_bytes(&self.0.read(name)).unwrap()
    }
}

#[test]
fn numbers_are_reserved_before_signing() {
    let place = Limited::new();
    place.run(&["sign", "--key", "k", "m"]).refuses(&["k.ledger: there is no such ledger", "hypergrove ledger init"]);
    let run = place.ledger(&["init", "k"]).good();
    assert!(run.stderr.contains("16,777,216 signatures are left"), "{}", run.stderr);
    let mut command = place.0.command(&["sign", "--key", "k", "m", SET[0], SET[1], "--threads", "1"]);
    command.env("XDG_STATE_HOME", place.0.path("state")).stderr(Stdio::null());
    let (mut child, start) = (command.spawn().unwrap(), Instant::now());
    while place.state("k.ledger").next == 0 && start.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(1));
    }
    let is_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((place.state("k.ledger").used(), is_running), (1, true));
    assert!(!place.0.path("m.sig").exists());
    // Through other ways to sign, too; the last numbers are not enough for two files.
    let limit = 1u64 << 24;
    place.ledger(&["init", "k", "--force", "--used", &(limit - 1).to_string()]).good();
    place.0.write("n", "another");
    let run = place
        .run(&["sign", "--key", "k", "m", "n"])
        .refuses(&["k.ledger: 2 signatures are asked for, 1 of 16777216 are left"]);
    assert!(run.stderr.contains("make a new key"), "{}", run.stderr);
    place.0.write("table", "k\tm\tm.sig\nk\tn\tn.sig\n");
    place.run(&["sign", "--table", "table"]).refuses(&["2 signatures are asked for"]);
    place.ledger(&["init", "k", "--force", "--used", &limit.to_string()]).good();
    fs::create_dir(place.0.path("tree")).unwrap();
    place.0.write("tree/a", "a");
    place
        .run(&["sign", "--key", "k", "--manifest", "tree", "-o", "sums"])
        .refuses(&["1 signatures are asked for, 0 of"]);
    place.ledger(&["init", "k", "--force", "--used", &(limit + 1).to_string()]).refuses(&["at most 16,777,216"]);
    // Another name, another key's ledger, and keys without a limit.
    place.run(&["sign", "--key", "k", "m", "--ledger", "absent"]).refuses(&["absent: there is no such ledger"]);
    place.0.write("q", [8; 32]);
    place.ledger(&["init", "q"]).good();
    place.run(&["sign", "--key", "k", "m", "--ledger", "q.ledger"]).refuses(&["this is the ledger of SHA256:"]);
    place.0.keygen("SLH-DSA-SHA2-128f", "f.pem", "f.pub");
    place.0.run(&["ledger", "init", "f.pem"]).refuses(&["keys of SLH-DSA-SHA2-128f have no limit", "without a ledger"]);
    place.0.run(&["sign", "--key", "f.pem", "m", "--ledger", "q.ledger"]).refuses(&["no limit"]);
    place.0.run(&["sign", "--key", "f.pem", "m"]).good();
}

#[test]
fn a_key_that_has_had_a_ledger_does_not_begin_again() {
    let place = Limited::new();
    place.ledger(&["init", "k"]).good();
    // All that is left, from the beginning: its note is not its parent's.
    place.ledger(&["lease", "k", "--count", "100", "-o", "lease"]).good();
    place.ledger(&["show", "k", "--ledger", "lease"]).good();
    fs::copy(place.0.path("k.ledger"), place.0.path("before")).unwrap();
    place.ledger(&["init", "k", "--force"]).refuses(&["this key has had a ledger", "--used"]);
    fs::remove_file(place.0.path("k.ledger")).unwrap();
    place.run(&["sign", "--key", "k", "m"]).refuses(&["k.ledger: there is no such ledger", "--used N"]);
    place.ledger(&["init", "k"]).refuses(&["this key has had a ledger", "--used"]);
    assert!(!place.0.path("k.ledger").exists());
    place.ledger(&["init", "k", "--used", "100"]).good();
    assert_eq!(place.state("k.ledger").next, 100);
    // What the new ledger replaced is an older copy from the beginning.
    fs::copy(place.0.path("before"), place.0.path("k.ledger")).unwrap();
    place.ledger(&["show", "k"]).refuses(&["an older copy was put back"]);
}

#[test]
fn ledgers_are_shown_and_leased() {
    let place = Limited::new();
    place.ledger(&["init", "p", "--used", "100"]).good();
    place.ledger(&["init", "p"]).refuses(&["p.ledger exists", "--force"]);
    let run = place.ledger(&["lease", "p", "--count", "1000", "-o", "other.ledger"]).good();
    assert!(run.stderr.contains("1,000 signatures for another machine; 16,776,116 are left here"), "{}", run.stderr);
    let (here, there) = (place.state("p.ledger"), place.state("other.ledger"));
    assert_eq!((here.next, there.start, there.next, there.end), (1_100, 100, 100, 1_100));
    assert_eq!((here.generation, here.key), (2, there.key));
    let run = place.ledger(&["show", "p", "--json"]).good();
    let line: Value = serde_json::from_str(run.text()).unwrap();
    assert_eq!((&line["used"], &line["left"], &line["generation"]), (&1_100.into(), &16_776_116.into(), &2.into()));
    assert_eq!((&line["ledger"], &line["set"]), (&"p.ledger".into(), &"SLH-DSA-SHA2-128-24".into()));
    check(&[line]);
    let show = |name: &str| place.ledger(&["show", "p", "--ledger", name]).good().text().to_owned();
    assert!(show("other.ledger").contains("left        1,000\n"), "{}", show("other.ledger"));
    // Warnings at 50 and 90 %.
    let lease = |count: &str, to: &str| {
        let run = place.ledger(&["lease", "p", "--ledger", "other.ledger", "--count", count, "-o", to]).good();
        run.stderr.lines().filter(|line| line.starts_with("warning: ")).collect::<String>()
    };
    assert_eq!(lease("499", "a"), "");
    assert!(lease("1", "b").contains("other.ledger: 50 % of 1,000 signatures are used: plan for a new key"));
    assert!(lease("400", "c").contains("90 % of 1,000 signatures are used: make a new key now"));
    let run = place.ledger(&["lease", "p", "--ledger", "other.ledger", "--count", "101", "-o", "d"]);
    run.refuses(&["101 signatures are asked for, 100 of 1000 are left"]);
    assert!(!place.0.path("d").exists());
    place.ledger(&["lease", "p", "--count", "1", "-o", "p.ledger", "--force"]).refuses(&["it is read"]);
    place.ledger(&["lease", "p", "--count", "0", "-o", "d"]).refuses(&["--count"]);
    // A ledger that was put back.
    fs::copy(place.0.path("p.ledger"), place.0.path("backup")).unwrap();
    place.ledger(&["lease", "p", "--count", "1", "-o", "d"]).good();
    fs::copy(place.0.path("backup"), place.0.path("p.ledger")).unwrap();
    place.ledger(&["show", "p"]).refuses(&["an older copy was put back", "put the newest ledger back"]);
    place.ledger(&["init", "p", "--used", "2000", "--force"]).good();
    assert!(show("p.ledger").contains("used        2,000, 0 %\n"), "{}", show("p.ledger"));
    place.0.write("p.ledger", "rubbish");
    place.ledger(&["show", "p"]).refuses(&["p.ledger: no record of this ledger is whole"]);
}
