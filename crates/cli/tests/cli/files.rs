//! Files that are written: whole or absent, never over a file that is read, private keys for nobody else.
#![cfg(unix)]

use crate::place::Place;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEYGEN: [&str; 3] = ["keygen", "--set", "sha2-128f"];

fn keygen(args: &[&'static str]) -> Vec<&'static str> {
    [&KEYGEN, args].concat()
}

/// Names with a dot in front: what is not finished.
fn hidden(place: &Place) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with('.')).collect()
}

/// Runs the tool and sends it a signal after so long.
fn interrupted(place: &Place, args: &[&str], signal: &str, after: Duration) {
    let mut child =
        place.command(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    // It may have ended.
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    child.wait().unwrap();
}

/// Moments within a run of the tool, which takes this long.
fn moments(of: Duration) -> impl Iterator<Item = Duration> {
    const MOMENTS: u32 = 48;
    (0..MOMENTS).map(move |i| of.mul_f64(0.2 + f64::from(i) / f64::from(MOMENTS)))
}

fn duration_of(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

#[test]
fn one_file_by_two_names_is_one_file() {
    let place = Place::with_key();
    place.write("m", "message");
    symlink(".", place.path("here")).unwrap();
    symlink("k.pem", place.path("link")).unwrap();
    fs::create_dir(place.path("sub")).unwrap();
    fs::hard_link(place.path("k.pem"), place.path("hard")).unwrap();
    let (private, public) = (place.read("k.pem"), place.read("p.pem"));
    for name in ["./k.pem", "here/k.pem", "sub/../k.pem", "link", "hard"] {
        let run = place.run(&[&keygen(&["--force", "-o", "k.pem", "--pubout"])[..], &[name]].concat());
        run.refuses(&["both keys would go to k.pem"]);
    }
    // One that does not exist yet.
    place.run(&keygen(&["-o", "new", "--pubout", "here/new"])).refuses(&["both keys would go to new"]);
    let shell = |script: &str, words: &[&str]| drop(place.shell(script).exits(2).says(words));
    shell("$H keygen --set sha2-128f --pubout k2.pem --force > k2.pem", &["both keys would go to standard output"]);
    shell("$H sign --key - m -o k.pem --force < k.pem", &["k.pem would be replaced"]);
    shell("$H pubkey - -o hard --force < k.pem", &["hard would be replaced"]);
    // A file's signature would replace another file, the key or the list.
    place.write("m.sig", "another message");
    for command in [
        "$H sign --key k.pem m ./m.sig --force",
        "mv m.sig list; echo m > list; ln list m.sig; $H sign --key k.pem --list list --force",
    ] {
        shell(command, &["m.sig would be replaced, and it is read"]);
    }
    assert_eq!((place.read("k.pem"), place.read("p.pem")), (private, public));
}

#[test]
fn private_keys_go_to_regular_files_alone() {
    let place = Place::new();
    place.shell("mkfifo pipe; ln -s pipe link; ln -s nothing dangling; ln -s /dev/null device").good();
    // The pipe is open and would take the key.
    for name in ["pipe", "link", "device", "/dev/null", "/dev/stderr"] {
        for force in ["", "--force"] {
            let run = place.shell(&format!("exec 3<>pipe; $H keygen --set sha2-128f {force} -o {name}"));
            run.refuses(&["is no regular file", "private key", "`-` for standard output"]);
        }
    }
    assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    // A link is replaced, not followed.
    place.run(&keygen(&["-o", "dangling"])).refuses(&["dangling exists and is a symbolic link"]);
    place.run(&keygen(&["-o", "dangling", "--force"])).good();
    assert!(fs::symlink_metadata(place.path("dangling")).unwrap().is_file());
    assert!(!place.path("nothing").exists());
    // A public key may go through a pipe.
    let run = place
        .shell("exec 3<>pipe; $H keygen --set sha2-128f -o k.pem --pubout pipe; dd bs=4096 count=1 status=none <&3");
    assert_eq!(run.good().stdout, place.run(&["pubkey", "k.pem"]).good().stdout);
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_leaves_nothing() {
    let place = Place::with_key();
    place.write("m", "message");
    let before = place.names();
    let limited = |command: &str| place.shell(&format!("ulimit -f 0; {command}"));
    for force in ["", "--force"] {
        limited(&format!("$H keygen --set sha2-128f -o k2 --pubout p2 {force}")).refuses(&["k2", "free some space"]);
        limited(&format!("$H sign --key k.pem m {force}")).exits(2).says(&["m.sig", "free some space"]);
    }
    assert_eq!(place.names(), before);
    limited("$H keygen --set sha2-128f > out").exits(2).says(&["standard output"]);
}

/// SIGKILL at any moment: each file is whole or absent, and a public key is never that of another private key.
#[test]
fn a_killed_run_leaves_whole_files() {
    let place = Place::new();
    let args = keygen(&["-o", "k.pem", "--pubout", "p.pem"]);
    let whole = |time: Duration| {
        let private = place.path("k.pem").exists().then(|| place.run(&["pubkey", "k.pem"]).good().stdout);
        if place.path("p.pem").exists() {
            assert_eq!(private, Some(place.read("p.pem")), "killed after {time:?}");
        }
    };
    let time = duration_of(|| drop(place.run(&args).good()));
    for moment in moments(time) {
        for name in place.names() {
            fs::remove_file(place.path(&name)).unwrap();
        }
        interrupted(&place, &args, "-KILL", moment);
        assert_eq!(hidden(&place), [""; 0], "killed after {moment:?}");
        whole(moment);
    }
    // With --force there are temporaries for a moment: of each file, and of the public key that makes way.
    let force = [&args[..], &["--force"]].concat();
    let time = duration_of(|| drop(place.run(&force).good()));
    for moment in moments(time) {
        interrupted(&place, &force, "-KILL", moment);
        whole(moment);
        let left = hidden(&place);
        assert!(left.len() <= 3 && left.iter().all(|name| name.ends_with(".tmp")), "{left:?}");
        for name in left.iter().filter(|name| name.contains("private")) {
            assert_eq!(fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    place.run(&force).good();
    assert_eq!(place.names(), ["k.pem", "p.pem"]);
}

#[test]
fn an_interrupted_run_leaves_no_temporary() {
    let place = Place::new();
    let force = keygen(&["-o", "k.pem", "--pubout", "p.pem", "--force"]);
    let time = duration_of(|| drop(place.run(&force).good()));
    for (moment, signal) in moments(time).zip(["-INT", "-TERM"].into_iter().cycle()) {
        interrupted(&place, &force, signal, moment);
        assert_eq!(hidden(&place), [""; 0], "{signal} after {moment:?}");
        assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
    }
    // A signal that whoever started the tool ignores stays ignored.
    let keygen = "$H keygen --set sha2-128f -o new --pubout pipe";
    let run = place.shell(&format!("trap '' INT; mkfifo pipe; {keygen} & sleep 0.1; kill -INT $!; cat pipe; wait $!"));
    assert_eq!(run.good().stdout, place.run(&["pubkey", "new"]).good().stdout);
}

/// The next run removes the temporaries of a killed run, if they are this user's and no other run has them.
#[test]
fn temporaries_that_were_left_are_removed() {
    let place = Place::new();
    let temporaries = [".hypergrove-private.tmp", ".hypergrove-public.tmp"];
    for args in [keygen(&["-o", "k.pem", "--pubout", "p.pem"]), keygen(&["-o", "k.pem", "--force"])] {
        temporaries.iter().for_each(|name| place.write(name, "half a k"));
        place.run(&args).good();
        assert_eq!(place.names(), ["k.pem", "p.pem"]);
    }
    // A link that somebody planted is not followed.
    place.write("victim", "precious");
    symlink("victim", place.path(temporaries[0])).unwrap();
    let before = place.read("k.pem");
    place.run(&keygen(&["-o", "k.pem", "--force"])).refuses(&["cannot write k.pem", temporaries[0], "remove it"]);
    assert_eq!((place.read("victim"), place.read("k.pem")), (b"precious".to_vec(), before));
}

#[test]
fn pairs_of_runs_at_once_do_not_mix() {
    let place = Place::new();
    for _ in 0..6 {
        let run = |_| {
            let mut command =
                place.command(&keygen(&["-o", "k.pem", "--pubout", "p.pem", "--force", "--threads", "1"]));
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for mut child in (0..8).map(run).collect::<Vec<_>>() {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            assert!(child.wait().unwrap().success(), "{stderr}");
        }
        assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
        assert_eq!(place.names(), ["k.pem", "p.pem"]);
    }
}

/// A mixed pair is reported where both halves are at hand.
#[test]
fn a_public_key_that_is_there_is_compared() {
    for (scheme, of) in [("--set", "sha2-128f"), ("--scheme", "zkdilithium")] {
        let place = Place::new();
        for (private, public) in [("k.pem", "p.pem"), ("k2.pem", "p2.pem")] {
            place.run(&["keygen", scheme, of, "-o", private, "--pubout", public]).good();
        }
        place.run(&["pubkey", "k.pem", "-o", "p.pem"]).refuses(&["p.pem exists, and is of this pair"]);
        place.run(&["pubkey", "k.pem", "-o", "p2.pem"]).refuses(&["p2.pem exists, and is a key of another pair"]);
        place.write("text", "no key");
        let run = place.run(&["pubkey", "k.pem", "-o", "text"]).refuses(&["text exists\n"]);
        assert!(!run.stderr.contains("pair"));
        // A bundle is made by appending.
        place.shell("$H pubkey k.pem >> k.pem").good();
        place.run(&["pubkey", "k.pem", "-o", "again.pem"]).good();
        assert_eq!(place.read("again.pem"), place.read("p.pem"));
    }
}

/// Each file that waits for the disk is open.
#[test]
fn few_files_may_be_open() {
    let place = Place::with_key();
    let names: Vec<String> = (0..60).map(|i| format!("m{i}")).collect();
    names.iter().for_each(|name| place.write(name, name));
    place.write("list", names.join("\n"));
    place.shell("ulimit -n 40; $H sign --key k.pem --threads 1 --list list").good();
}

#[test]
fn a_killed_run_of_many_signatures_is_taken_up_again() {
    for (scheme, of) in [("--set", "sha2-128f"), ("--scheme", "zkdilithium")] {
        let place = Place::new();
        place.run(&["keygen", scheme, of, "-o", "k.pem"]).good();
        let names: Vec<String> = (100..250).map(|i| format!("f{i}")).collect();
        names.iter().for_each(|name| place.write(name, name));
        place.write("list", names.join("\n"));
        let sign = ["sign", "--key", "k.pem", "--list", "list"];
        let mut wait = Duration::from_millis(5);
        let signed = loop {
            interrupted(&place, &sign, "-KILL", wait);
            assert_eq!(hidden(&place), [""; 0]);
            let signed: Vec<_> = place.names().into_iter().filter(|name| name.ends_with(".sig")).collect();
            if !signed.is_empty() {
                break signed;
            }
            wait *= 2;
        };
        let kept: Vec<_> = signed.iter().map(|name| place.read(name)).collect();
        let run = place.run(&[&sign[..], &["--skip-existing"]].concat()).good();
        assert_eq!(run.text().matches(": KEPT\n").count(), kept.len());
        assert_eq!(run.text().matches(": SIGNED\n").count(), names.len() - kept.len());
        assert_eq!(signed.iter().map(|name| place.read(name)).collect::<Vec<_>>(), kept);
        place.run(&["verify", "--key", "k.pem", "--list", "list"]).good();
        // A signature that is there and does not verify is not kept, and not replaced.
        place.write("f117", "changed");
        place.write("f118.sig", "short");
        let run = place.run(&[&sign[..], &["--skip-existing"]].concat()).exits(2);
        assert_eq!(run.text().matches(": ERROR\n").count(), 2);
        run.says(&["f117.sig exists, and is no signature of f117 by this key", "f118.sig has 5 bytes", "2 ERROR"]);
        let run = place.run(&[&sign[..], &["--skip-existing", "--force"]].concat()).good();
        assert!(run.text().contains("f116: KEPT\nf117: SIGNED\nf118: SIGNED\nf119: KEPT\n"), "{}", run.text());
        place.run(&["verify", "--key", "k.pem", "--list", "list"]).good();
        let run = place.run(&["sign", "--key", "k.pem", "f100", "--skip-existing"]).good();
        assert!(run.stderr.starts_with("kept f100.sig: a signature of "), "{}", run.stderr);
        place.run(&["sign", "--key", "k.pem", "-", "--skip-existing"]).refuses(&["--skip-existing reads files twice"]);
    }
}

/// Whatever an option names to be read, by any name, no output takes its place.
#[test]
fn no_output_replaces_a_file_that_is_read() {
    let place = Place::with_key();
    place.shell("mkdir d d/run; echo pass > pp; echo a > d/n; echo a message > m; echo {} > d/run/r.jsonl").good();
    place.shell("$H keygen --set sha2-128f --encrypt --passphrase-file pp -o e.pem; ln -s pp link; ln pp hard").good();
    place
        .shell("cp pp q.sig; echo setup > d/run/setup.md; printf 'e.pem\\tm\\tpp\\n' > table; echo d/n > n.sig")
        .good();
    place.shell("mkdir -p config/hypergrove/tuning/cpu; echo table > config/hypergrove/tuning/cpu/x.toml").good();
    let text = |name: &str| fs::read(place.path(name)).unwrap();
    let inputs = ["pp", "q.sig", "m", "d/run/r.jsonl", "d/run/setup.md", "table", "n.sig"];
    let before = (inputs.map(text), place.names());
    let table = "config/hypergrove/tuning/cpu/x.toml";
    let keygen = "keygen --set sha2-128f --encrypt --passphrase-file pp";
    let sign = "sign --key e.pem --passphrase-file";
    for (command, words) in [
        (format!("{keygen} -o pp"), ["pp would be replaced", "--passphrase-file pp is the same file"]),
        (format!("{keygen} -o ./pp"), ["./pp would be replaced", "--passphrase-file pp"]),
        (format!("{keygen} -o link"), ["link would be replaced", "--passphrase-file pp"]),
        (format!("{keygen} -o d/../hard"), ["hard would be replaced", "--passphrase-file pp"]),
        (format!("{keygen} -o new --pubout pp"), ["pp would be replaced", "--passphrase-file pp"]),
        (format!("{keygen} -o {table}"), ["x.toml would be replaced", "the tuning table"]),
        (
            "keygen --set sha2-128f --encrypt --passphrase-fd 7 -o hard 7<pp".into(),
            ["hard would be", "--passphrase-fd 7"],
        ),
        ("keygen --set sha2-128f --encrypt --passphrase-file - -o pp <pp".into(), ["pp would be", "standard input"]),
        ("pubkey e.pem --passphrase-file pp -o pp".into(), ["pp would be replaced", "--passphrase-file pp"]),
        ("pubkey e.pem --passphrase-file pp -o e.pem".into(), ["e.pem would be replaced", "e.pem is the same file"]),
        (format!("{sign} pp m -o pp"), ["pp would be replaced", "--passphrase-file pp"]),
        (format!("{sign} pp m -o m"), ["m would be replaced", "m is the same file"]),
        (format!("{sign} pp --list n.sig --out-dir ."), ["n.sig would be replaced", "--list n.sig is the same file"]),
        (format!("{sign} pp --manifest d -o pp"), ["pp would be replaced", "--passphrase-file pp"]),
        (format!("{sign} q.sig --manifest d -o q"), ["q.sig would be replaced", "--passphrase-file q.sig"]),
        ("sign --table table --passphrase-file pp".into(), ["pp would be replaced", "--passphrase-file pp"]),
        ("sign --table table --passphrase-file hard".into(), ["pp would be replaced", "--passphrase-file hard"]),
        ("acvp m -o m".into(), ["m would be replaced", "m is the same file"]),
        ("report d/run -o d/run/r.jsonl".into(), ["r.jsonl would be replaced", "r.jsonl is the same file"]),
        ("report d/run -o d/run/setup.md".into(), ["setup.md would be replaced", "setup.md is the same file"]),
    ] {
        let run = place.shell(&format!("export XDG_CONFIG_HOME=$PWD/config; $H {command} --force"));
        run.exits(2).says(&words).says(&["and it is read: ", "hint: choose another name"]);
        assert_eq!((inputs.map(text), place.names()), before, "{command}");
    }
    assert_eq!(text(table), b"table\n");
}
