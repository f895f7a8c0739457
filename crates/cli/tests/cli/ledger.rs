//! Ledgers of keys of limited sets, as the tool keeps them. Making such a key and its signatures takes seconds: keys are made up, and signing is
//! ended once its number is reserved.
#![cfg(unix)]

use crate::place::{Place, Run};
use crate::schema::check;
use hypergrove_files::ledger::{LedgerState, witnessed};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
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
    /// The note about the ledger of all numbers of `k`; there is no other yet.
    fn note(&self) -> PathBuf {
        let folder = self.0.path("state/hypergrove/ledgers");
        let notes: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [note] = &notes[..] else { panic!("{notes:?}") };
        note.clone()
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
    // The ledger that the new one replaced is an older copy from the beginning.
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

/// Nothing is written to a relative directory: each command would have another.
#[test]
fn a_missing_state_directory_is_warned_of_once() {
    let place = Limited::new();
    place.0.write("q", [8; 64]);
    place.0.write("table", "k\tm\ta.sig\nq\tm\tb.sig\n");
    let (all, folder) = ((1u64 << 24).to_string(), place.0.path("home"));
    let run = |args: &[&str], homes: [Option<&str>; 2]| {
        let mut command = place.0.command(&[args, &SET].concat());
        for (name, home) in ["XDG_STATE_HOME", "HOME"].into_iter().zip(homes) {
            match home {
                Some(home) => command.env(name, home),
                None => command.env_remove(name),
            };
        }
        Run::from(command.stdin(Stdio::null()).output().unwrap())
    };
    let warnings = |run: &Run| run.stderr.matches("warning: no directory for notes about ledgers is known").count();
    for homes in [[None, None], [Some("state"), None], [None, Some("home")], [Some(""), Some("./home")]] {
        for (args, code) in [
            (&["ledger", "init", "k", "--used", "0", "--force"][..], 0),
            (&["ledger", "show", "k"], 0),
            (&["ledger", "lease", "k", "--count", "1", "-o", "lease", "--force"], 0),
            (&["ledger", "init", "k", "--used", &all, "--force"], 0),
            (&["ledger", "init", "q", "--used", &all, "--force"], 0),
            (&["sign", "--key", "k", "m"], 2),
            (&["sign", "--table", "table"], 2),
        ] {
            let run = run(args, homes).exits(code);
            assert_eq!(warnings(&run), 1, "{args:?}, {homes:?}: {}", run.stderr);
            let words = "a ledger that is restored from a backup is not noticed: set XDG_STATE_HOME or HOME to an absolute path";
            assert!(run.stderr.contains(words), "{}", run.stderr);
        }
    }
    assert!(!place.0.path("state").exists() && !folder.exists());
    let run = run(&["ledger", "init", "k", "--used", "0", "--force"], [Some("state"), folder.to_str()]).good();
    assert!(warnings(&run) == 0 && folder.join(".local/state/hypergrove/ledgers").is_dir(), "{}", run.stderr);
}

#[test]
fn a_damaged_note_is_refused() {
    let place = Limited::new();
    place.ledger(&["init", "k"]).good();
    let note = place.note();
    let before = place.0.read("k.ledger");
    for bytes in ["", "\n", "garbage\n", "-1\n", "+2\n", "1 2\n", "1\n2\n", "99999999999999999999\n", &"9".repeat(100)]
    {
        fs::write(&note, bytes).unwrap();
        for args in [
            &["ledger", "show", "k"][..],
            &["ledger", "lease", "k", "--count", "1", "-o", "lease"],
            &["ledger", "init", "k", "--used", "1", "--force"],
            &["sign", "--key", "k", "m"],
        ] {
            let run = place.run(args);
            run.refuses(&[note.to_str().unwrap(), "this note about a ledger is empty or damaged", "remove the note"]);
        }
    }
    assert_eq!(place.0.read("k.ledger"), before);
    assert!(!place.0.path("lease").exists());
    fs::remove_file(&note).unwrap();
    place.ledger(&["lease", "k", "--count", "1", "-o", "lease"]).good();
    assert_eq!(witnessed(&note).unwrap(), 2);
}

#[test]
fn a_pipe_is_no_ledger_and_no_note() {
    let place = Limited::new();
    let run =
        |command: &str| place.0.shell(&format!("XDG_STATE_HOME=$PWD/state timeout 5 $H {command} --set SHA2-128-24"));
    let commands =
        ["ledger show k", "ledger lease k --count 1 -o lease", "ledger init k --used 1 --force", "sign --key k m"];
    place.0.shell("mkfifo pipe k.ledger").good();
    for command in commands {
        run(command).refuses(&["k.ledger", "no regular file", "hint: "]);
    }
    place.0.shell("rm k.ledger; ln -s pipe k.ledger").good();
    for command in commands {
        run(command).refuses(&["k.ledger", "no regular file", "hint: "]);
    }
    fs::remove_file(place.0.path("k.ledger")).unwrap();
    place.ledger(&["init", "k"]).good();
    let before = place.0.read("k.ledger");
    run("ledger lease k --count 1 -o pipe --force")
        .refuses(&["pipe is no regular file, and a ledger goes to no other"]);
    let note = place.note();
    place.0.shell(&format!("rm {0}; mkfifo {0}", note.display())).good();
    for command in commands {
        run(command).refuses(&[note.to_str().unwrap(), "no regular file", "hint: remove it"]);
    }
    assert_eq!(place.0.read("k.ledger"), before);
}

#[test]
fn no_number_is_lost_where_a_note_cannot_be_written() {
    let place = Limited::new();
    place.ledger(&["init", "k"]).good();
    let (note, before) = (place.note(), place.0.read("k.ledger"));
    let new = note.with_file_name(format!("{}.new", note.file_name().unwrap().display()));
    let lease = ["lease", "k", "--count", "3", "-o", "lease"];
    // There is no note yet, or one that an earlier version wrote.
    for old in [None, Some("1\n")] {
        old.map_or_else(|| fs::remove_file(&note), |old| fs::write(&note, old)).unwrap();
        fs::create_dir(&new).unwrap();
        place.ledger(&lease).refuses(&[new.to_str().unwrap(), "no number is lost"]);
        fs::remove_dir(&new).unwrap();
        // As on a full disk.
        let full = "ulimit -f 0; XDG_STATE_HOME=$PWD/state $H ledger lease k --count 3 -o lease --set SHA2-128-24";
        let folder = note.parent().unwrap().to_str().unwrap();
        place.0.shell(full).refuses(&[folder, "free some space", "no number is lost"]);
        assert!(!new.exists() && !place.0.path("lease").exists());
        assert_eq!((place.0.read("k.ledger"), fs::read_to_string(&note).ok().as_deref()), (before.clone(), old));
    }
    // A file that a killed run left.
    fs::write(&new, "").unwrap();
    place.ledger(&lease).good();
    assert_eq!((place.state("k.ledger").next, witnessed(&note).unwrap(), new.exists()), (3, 2, false));
    // From then on it is overwritten, for which there is room.
    fs::create_dir(&new).unwrap();
    place.ledger(&["lease", "k", "--count", "3", "-o", "another"]).good();
    assert_eq!((place.state("k.ledger").next, witnessed(&note).unwrap()), (6, 3));
}

#[test]
fn no_output_replaces_a_ledger_or_its_note() {
    let place = Limited::new();
    place.ledger(&["init", "k"]).good();
    place.0.write("pp", "a passphrase");
    let note = place.note();
    let shown = note.to_str().unwrap();
    let before = (place.0.read("k"), place.0.read("k.ledger"), fs::read(&note).unwrap());
    std::os::unix::fs::symlink("k.ledger", place.0.path("link")).unwrap();
    for (args, words) in [
        (&["ledger", "lease", "k", "--count", "1", "-o", "k"][..], ["k would be replaced", "k is the same file"]),
        (&["ledger", "lease", "k", "--count", "1", "-o", "link"], ["link would be", "the ledger k.ledger is"]),
        (&["ledger", "lease", "k", "--count", "1", "-o", shown], ["would be replaced", "the note "]),
        (
            &["ledger", "lease", "k", "--count", "1", "-o", "pp", "--passphrase-file", "pp"],
            ["pp would", "--passphrase-file pp"],
        ),
        (&["ledger", "init", "k", "--ledger", "k"], ["k would be replaced", "k is the same file"]),
        (&["ledger", "init", "k", "--ledger", shown, "--used", "0"], ["would be replaced", "the note "]),
        (&["sign", "--key", "k", "m", "-o", "link"], ["link would be", "the ledger k.ledger is"]),
        (&["sign", "--key", "k", "m", "-o", shown], ["would be replaced", "the note "]),
    ] {
        place.run(&[args, &["--force"]].concat()).refuses(&words).says(&["and it is read: "]);
        assert_eq!((place.0.read("k"), place.0.read("k.ledger"), fs::read(&note).unwrap()), before, "{args:?}");
    }
}
