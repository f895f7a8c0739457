//! Differences on Windows: names, devices, files that others have open, text and binary streams.

use crate::place::Place;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::os::windows::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::Instant;

const KEYGEN: [&str; 5] = ["keygen", "--set", "sha2-128f", "--threads", "1"];

fn keygen(args: &[&'static str]) -> Vec<&'static str> {
    [&KEYGEN, args].concat()
}

/// These are there for systems with modes, signals and a shell alone.
#[test]
fn tests_that_do_not_apply() {
    for (name, why) in [
        ("files", "no modes, links that need rights, no named pipes among files, no shell"),
        ("hash", "its tests run sha256sum and sh"),
        ("memory", "it reads a process's memory by Linux's /proc"),
        ("system", "no /dev/full, no limits on a process, no shell"),
        ("trust", "no owners and modes of libraries; Windows looks into its own directories first"),
    ] {
        println!("skipped: the tool's tests {name} on Windows: {why}");
    }
}

#[test]
fn one_file_by_two_names_is_one_file() {
    let place = Place::with_key();
    place.write("m", "message");
    fs::hard_link(place.path("k.pem"), place.path("hard")).unwrap();
    fs::create_dir(place.path("sub")).unwrap();
    let before = (place.read("k.pem"), place.read("p.pem"));
    for name in ["K.PEM", ".\\k.pem", "./k.pem", "sub\\..\\k.pem", "hard"] {
        let run = place.run(&[&keygen(&["--force", "-o", "k.pem", "--pubout"])[..], &[name]].concat());
        run.refuses(&["both keys would go to k.pem"]);
        let run = place.run(&["sign", "--key", "k.pem", "m", "--force", "-o", name]);
        run.refuses(&["would be replaced, and it is read"]);
    }
    // Names of one file that does not exist yet.
    place.run(&keygen(&["-o", "new", "--pubout", "sub\\..\\new"])).refuses(&["both keys would go to new"]);
    place.run(&keygen(&["-o", "new", "--pubout", "NEW"])).exits(2).says(&["NEW"]);
    assert!(!place.path("new").exists());
    place.run(&keygen(&["-o", "k2", "--pubout", "K2", "--force"])).exits(2).says(&["another name of the file"]);
    assert_eq!((place.read("k.pem"), place.read("p.pem")), before);
}

#[test]
fn devices_take_no_private_key() {
    let place = Place::with_key();
    let before = place.names();
    for name in ["NUL", "nul", "sub\\..\\NUL", "CON", "COM1", "\\\\.\\NUL", "\\\\.\\pipe\\hypergrove"] {
        for force in [&[][..], &["--force"]] {
            let run = place.run(&[&KEYGEN[..], &["-o", name], force].concat());
            run.refuses(&["is no regular file", "private key", "`-` for standard output"]);
        }
    }
    // A public key may go there.
    place.run(&["pubkey", "k.pem", "-o", "NUL"]).good();
    place.run(&keygen(&["-o", "k2.pem", "--pubout", "NUL"])).good();
    fs::remove_file(place.path("k2.pem")).unwrap();
    assert_eq!(place.names(), before);
}

/// A file that another program has open and does not share stays as it is.
#[test]
fn a_file_in_use_is_not_replaced() {
    let place = Place::with_key();
    place.write("m", "message");
    let before = (place.read("k.pem"), place.read("p.pem"));
    let force = keygen(&["-o", "k.pem", "--pubout", "p.pem", "--force"]);
    for name in ["k.pem", "p.pem"] {
        let open = File::options().read(true).share_mode(1).open(place.path(name)).unwrap();
        place.run(&force).exits(2).says(&["cannot write", name]);
        drop(open);
        assert_eq!((place.read("k.pem"), place.read("p.pem")), before, "{name}");
        assert_eq!(place.names(), ["k.pem", "m", "p.pem"]);
    }
    place.run(&force).good();
    assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
}

#[test]
fn what_a_killed_run_left_is_removed() {
    let place = Place::new();
    let temporaries = [".hypergrove-private.tmp", ".hypergrove-public.tmp"];
    for args in [keygen(&["-o", "k.pem", "--pubout", "p.pem"]), keygen(&["-o", "k.pem", "--force"])] {
        temporaries.iter().for_each(|name| place.write(name, "half a k"));
        place.run(&args).good();
        assert_eq!(place.names(), ["k.pem", "p.pem"]);
    }
}

/// Ended at any moment: each file is whole or absent, and a public key is never that of another private key.
#[test]
fn a_killed_run_leaves_whole_files() {
    let place = Place::new();
    let force = keygen(&["-o", "k.pem", "--pubout", "p.pem", "--force"]);
    let start = Instant::now();
    place.run(&force).good();
    let time = start.elapsed();
    const MOMENTS: u32 = 16;
    for i in 0..MOMENTS {
        let mut command = place.command(&force);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(time.mul_f64(0.5 + 0.6 * f64::from(i) / f64::from(MOMENTS)));
        let _ = child.kill();
        child.wait().unwrap();
        let private = place.run(&["pubkey", "k.pem"]).good().stdout;
        assert!(!place.path("p.pem").exists() || private == place.read("p.pem"), "moment {i}");
    }
    place.run(&force).good();
    assert_eq!(place.names(), ["k.pem", "p.pem"]);
}

#[test]
fn runs_at_once_do_not_mix_pairs() {
    let place = Place::new();
    let run = |_| {
        let mut command = place.command(&keygen(&["-o", "k.pem", "--pubout", "p.pem", "--force"]));
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in (0..4).map(run).collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
    assert_eq!(place.names(), ["k.pem", "p.pem"]);
}

/// No byte is taken for the end of a line or of a file.
#[test]
fn standard_streams_are_binary() {
    let place = Place::with_key();
    let bytes: Vec<u8> = (0..=255).chain(*b"a\r\nb\nc\x1ad").collect();
    let sum = hex::encode(Sha256::digest(&bytes));
    assert_eq!(place.run_with(&["hash", "-"], &bytes).good().text(), format!("{sum}  -\n"));
    let raw = keygen(&[
        "--raw",
        "--seeds",
        "0a0d1a0d0a1a0a0d0a0d1a0d0a1a0a0d0a0d1a0d0a1a0a0d0a0d1a0d0a1a0a0d0a0d1a0d0a1a0a0d0a0d1a0d0a1a0a0d",
    ]);
    let key = place.run(&raw).good().stdout;
    assert_eq!((key.len(), &key[..4]), (64, &b"\n\r\x1a\r"[..]));
    place.write("key", &key);
    place.run(&["pubkey", "key", "--set", "sha2-128f"]).good();
    let signature = place.run_with(&["sign", "--key", "k.pem", "-", "-o", "-"], &bytes).good().stdout;
    place.write("s", &signature);
    place.run_with(&["verify", "--key", "p.pem", "-s", "s", "-"], &bytes).good();
}

/// The home of tables and kernels is the user's profile.
#[test]
fn the_profile_holds_what_is_kept() {
    let place = Place::new();
    let directory = place.path("local\\hypergrove\\tuning\\cpu");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("bad.toml"), "no table").unwrap();
    let mut command = place.command(&["devices"]);
    command.env_remove("XDG_CONFIG_HOME").env("LOCALAPPDATA", place.path("local")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains("bad.toml"), "{stderr}");
}
