//! Adverse conditions: full disks, closed pipes, little memory, odd names.
#![cfg(unix)]

use crate::place::Place;
use sha2::{Digest, Sha256};
#[cfg(target_os = "linux")]
use std::fs;
use std::fs::File;
use std::io::pipe;
use std::process::Stdio;

/// Standard output on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let place = Place::with_key();
    place.write("m", "message");
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    for command in [
        "keygen --set sha2-128f",
        "pubkey k.pem",
        "sign --key k.pem m -o -",
        "verify --key p.pem m",
        "inspect k.pem",
        "inspect --json m.sig",
        "devices",
    ] {
        place.shell(&format!("$H {command} > /dev/full")).exits(2).says(&["standard output", "No space left"]);
    }
    for command in ["pubkey k.pem -o", "keygen --set sha2-128f -o - --pubout", "sign --key k.pem m -o"] {
        let run = place.shell(&format!("$H {command} /dev/full")).exits(2);
        run.says(&["cannot write /dev/full: No space left", "hint: free some space"]);
    }
    // The device was written to, not replaced.
    assert!(!fs::metadata("/dev/full").unwrap().is_file());
    place.shell("$H sign --key k.pem m -o /dev/null").good();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(place.names(), ["k.pem", "m", "m.sig", "p.pem"]);
}

/// A file that cannot be written to its end. The limit counts blocks of 512 bytes.
#[test]
fn nothing_partial_is_left_behind() {
    let place = Place::with_key();
    place.write("m", "message");
    place.write("n", "message");
    place.write("old.sig", "old");
    let limited = |blocks: u32, command: &str| place.shell(&format!("trap '' XFSZ; ulimit -f {blocks}; $H {command}"));
    limited(1, "sign --key k.pem m").exits(2).says(&["cannot write m.sig", "hint: free some space"]);
    limited(1, "sign --key k.pem m n").exits(2).says(&["cannot write m.sig", "cannot write n.sig"]);
    limited(1, "sign --key k.pem m -o old.sig --force").exits(2).says(&["cannot write old.sig"]);
    limited(0, "keygen --set sha2-128f -o new.pem").exits(2).says(&["cannot write new.pem"]);
    limited(0, "keygen --set sha2-128f -o new.pem --pubout new2.pem").exits(2).says(&["cannot write new.pem"]);
    assert_eq!(place.names(), ["k.pem", "m", "n", "old.sig", "p.pem"]);
    assert_eq!(place.read("old.sig"), b"old");
}

/// A file that is there and cannot be read, even by root.
#[cfg(target_os = "linux")]
#[test]
fn unreadable_files_are_named() {
    let place = Place::with_key();
    let unreadable = "/proc/self/mem";
    place.run(&["sign", "--key", unreadable, "p.pem"]).refuses(&["cannot read /proc/self/mem"]);
    place.run(&["sign", "--key", "k.pem", unreadable, "-o", "s"]).refuses(&["cannot read /proc/self/mem"]);
    place.run(&["verify", "--key", "k.pem", "p.pem", "-s", unreadable]).exits(2).says(&["cannot read /proc/self/mem"]);
    place.run(&["acvp", unreadable]).refuses(&["cannot read /proc/self/mem"]);
    // Without permission, unless this user needs none.
    place.shell("cp k.pem closed.pem; chmod 0 closed.pem").good();
    if fs::read(place.path("closed.pem")).is_err() {
        place.run(&["pubkey", "closed.pem"]).refuses(&["closed.pem: permission denied", "hint: check its owner"]);
    }
}

/// The reader of standard output has gone.
#[test]
fn a_closed_pipe_is_no_panic() {
    let place = Place::with_key();
    place.write("m", "message");
    place.write("n", "message");
    place.run(&["sign", "--key", "k.pem", "m", "n"]).good();
    let run = |args: &[&str]| {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = place.command(args).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{stderr}");
        (output.status.code(), stderr)
    };
    for args in [&["devices"][..], &["inspect", "m.sig"], &["explain", "--set", "sha2-128f"], &["--help"]] {
        assert_eq!(run(args), (Some(0), String::new()), "{args:?}");
    }
    // The verdict is in the exit code all the same.
    assert_eq!(run(&["verify", "--key", "p.pem", "m", "n"]).0, Some(0));
    place.write("n", "changed");
    assert_eq!(run(&["verify", "--key", "p.pem", "m", "n"]).0, Some(1));
    // A key or a signature that nobody took is lost.
    for args in [&["keygen", "--set", "sha2-128f"][..], &["sign", "--key", "k.pem", "m", "-o", "-"]] {
        let (code, stderr) = run(args);
        assert_eq!(code, Some(2));
        assert!(stderr.contains("standard output"), "{stderr}");
    }
}

#[test]
fn closed_standard_streams_are_survived() {
    let place = Place::with_key();
    place.write("m", "message");
    place.shell("$H sign --key k.pem m 2>&-").good();
    place.shell("$H verify --key p.pem m 2>&- >&-").good();
}

#[test]
fn memory_is_bounded() {
    let place = Place::with_key();
    let names: Vec<String> = (0..300).map(|i| format!("m{i}")).collect();
    for name in &names {
        place.write(name, name);
    }
    place.write("list", names.join("\n"));
    place.run(&["sign", "--key", "k.pem", "--list", "list", "--memory", "16M"]).good();
    place.run(&["verify", "--key", "k.pem", "--list", "list", "--memory", "16M"]).good();
    // The budget is shown as what it is, and the hint names enough.
    let keygen = ["keygen", "--set", "sha2-256s", "-o", "k256"];
    for (command, memory, shown) in [
        (&["sign", "--key", "k.pem", "m0", "-o", "s"][..], "64K", "has 64 KiB for this"),
        (&["sign", "--key", "k.pem", "m0", "-o", "t"], "2", "has 2 bytes for this"),
        (&keygen, "5000", "has 4.9 KiB for this"),
        (&["sign", "--key", "k256", "m0", "m1", "--force"], "64K", "has 64 KiB for this"),
    ] {
        let run = place.run(&[command, &["--memory", memory]].concat()).exits(2).says(&[shown, "hint: give more with"]);
        let hint = run.stderr.split("for example --memory ").nth(1).unwrap().split('\n').next().unwrap();
        place.run(&[command, &["--memory", hint]].concat()).good();
    }
    let run = place.run(&["explain", "--set", "sha2-128f", "--memory", "900K", "--batch", "1"]).good();
    assert!(run.text().contains(" of 900 KiB for 1 jobs at a time"), "{}", run.text());
    // A message that does not fit is read in pieces.
    place.write("big", vec![0; 20 << 20]);
    let run = place.run(&["sign", "--key", "k.pem", "--force", "m0", "big", "m1", "--memory", "16M"]).good();
    assert_eq!(run.text(), "m0: SIGNED\nbig: SIGNED\nm1: SIGNED\n");
    place.run(&["verify", "--key", "k.pem", "m0", "big", "m1", "--memory", "16M"]).good();
    for size in ["lots", "1.5G", ""] {
        place.run(&["devices", "--memory", size]).refuses(&["--memory"]);
    }
    place.run(&["devices", "--threads", "0"]).refuses(&["--threads"]);
    for time in ["0", "-1", "1d", "soon", "nan"] {
        place.run(&["devices", &format!("--device-timeout={time}")]).refuses(&["--device-timeout", time]);
    }
    place.run(&["devices", "--device-timeout", "5m"]).good();
    place.run(&["devices", "--isa", "mmx"]).refuses(&["mmx", "portable"]);
    place.run(&["devices", "--isa", "portable", "--backend", "reference"]).refuses(&["--isa", "reference"]);
}

/// Sparse files: their lengths are more than any memory, or than was chosen. Each is its own file's error, where a scheme or a command needs all of
/// a file in memory.
#[test]
fn large_messages_harm_no_other() {
    let place = Place::with_key();
    let sparse = |name: &str, bytes: u64| File::create(place.path(name)).unwrap().set_len(bytes).unwrap();
    place.write("a", "message");
    place.write("b", "message");
    place.write("list", "a\nlarge\nb\n");
    sparse("large", 15 << 40);
    for args in [
        &["inspect", "large"][..],
        &["acvp", "large"],
        &["kat", "large"],
        &["sign", "--key", "k.pem", "--list", "large"],
    ] {
        place.run(args).refuses(&["large"]);
    }
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "zk.pem", "--pubout", "zp.pem"]).good();
    let lines = ["a: SIGNED\nlarge: ERROR\nb: SIGNED\n", "a: OK\nlarge: ERROR\nb: OK\n"];
    let run = place.run(&["sign", "--key", "zk.pem", "--list", "list"]).exits(2);
    assert_eq!(run.says(&["large has 16,492,674,416,640 bytes", "--prehash"]).text(), lines[0]);
    place.run(&["sign", "--key", "zk.pem", "large"]).refuses(&["large has 16,492,674,416,640 bytes"]);
    place.write("large.sig", place.read("a.sig"));
    let run = place.run(&["verify", "--key", "zp.pem", "--list", "list"]).exits(2);
    assert_eq!(run.says(&["large has 16,492,674,416,640 bytes"]).text(), lines[1]);
    sparse("large", 40 << 30);
    let chosen = ["sign", "--key", "zk.pem", "--list", "list", "--memory", "64M", "--force"];
    let run = place.run(&chosen).exits(2);
    assert_eq!(run.says(&["large has 42,949,672,960 bytes", "--memory allows 67,108,864"]).text(), lines[0]);
    // A message that can be read once is refused once it exceeds the limit.
    let run = place.shell("head -c 20M /dev/zero | \"$H\" sign --key k.pem - -o s --memory 16M").exits(2);
    run.says(&["standard input has more than 16,777,216 bytes"]);
}

/// Pure signatures of files that are longer than all the memory that the tool may have. A pipe is verified in pieces too.
#[test]
fn files_of_any_size_take_little_memory() {
    let place = Place::with_key();
    let length = 700 << 20;
    File::create(place.path("large")).unwrap().set_len(length).unwrap();
    let limited = |command: &str| place.shell(&format!("ulimit -v 600000; {command}"));
    limited("\"$H\" sign --key k.pem --threads 2 large").good();
    let verify = "\"$H\" verify --key p.pem --threads 2";
    assert_eq!(limited(&format!("{verify} large")).good().text(), "large: OK\n");
    let run = limited(&format!("cat large | {verify} -s large.sig -")).good();
    assert_eq!(run.text(), "standard input: OK\n");
    // A byte more is another message.
    let run = limited(&format!("(cat large; echo) | {verify} -s large.sig -")).exits(1);
    assert_eq!(run.text(), "standard input: FAILED\n");
}

/// A message of any size is signed with little memory, if it is hashed first: as M′ that holds the hash.
#[test]
fn prehashing_streams() {
    let place = Place::with_key();
    let bytes = 50 << 20;
    File::create(place.path("large")).unwrap().set_len(bytes).unwrap();
    let mut hash = Sha256::new();
    (0..bytes >> 20).for_each(|_| hash.update([0; 1 << 20]));
    let oid = b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01";
    place.write("hashed", [&b"\x01\x01c"[..], oid, &hash.finalize()].concat());
    let prehash = ["--prehash", "SHA2-256", "--context", "c", "--memory", "16M", "large"];
    place.run(&[&["sign", "--key", "k.pem", "--deterministic"], &prehash[..]].concat()).good();
    place.run(&["sign", "--key", "k.pem", "--deterministic", "--internal", "hashed"]).good();
    assert_eq!(place.read("large.sig"), place.read("hashed.sig"));
    place.run(&[&["verify", "--key", "p.pem"], &prehash[..]].concat()).good();
    // Through a pipe too.
    let run =
        place.shell("cat large | \"$H\" verify --key p.pem --prehash SHA2-256 --context c -s large.sig --memory 16M -");
    assert_eq!(run.good().text(), "standard input: OK\n");
    let signed =
        "\"$H\" sign --key k.pem --deterministic --prehash SHA2-256 --context c --redundant -o piped --memory 16M -";
    place.shell(&format!("cat large | {signed}")).good();
    assert_eq!(place.read("piped"), place.read("large.sig"));
}

/// A library that stands before the system's, so that there is no randomness.
#[cfg(target_os = "linux")]
const NO_RANDOMNESS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
ssize_t getrandom(void *to, size_t bytes, unsigned flags) { errno = ENOSYS; return -1; }
int getentropy(void *to, size_t bytes) { errno = ENOSYS; return -1; }
#define OPEN(name)                                                                        \
    int name(const char *path, int flags, ...) {                                          \
        va_list rest;                                                                     \
        va_start(rest, flags);                                                            \
        int mode = va_arg(rest, int);                                                     \
        va_end(rest);                                                                     \
        if (!strcmp(path, "/dev/urandom") || !strcmp(path, "/dev/random")) {              \
            errno = ENOENT;                                                               \
            return -1;                                                                    \
        }                                                                                 \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        return real(path, flags, mode);                                                   \
    }
OPEN(open)
OPEN(open64)
"#;

/// Keys and hedged signatures need randomness, and say so without it; nothing else needs any.
#[cfg(target_os = "linux")]
#[test]
fn missing_randomness_is_an_error() {
    let place = Place::with_key();
    place.write("none.c", NO_RANDOMNESS);
    let built = place.shell("cc -shared -fPIC -o none.so none.c -ldl");
    if built.code != Some(0) {
        println!("skipped: a run without randomness: cc cannot build a library: {}", built.stderr);
        return;
    }
    place.write("m", "message");
    place.write("n", "message");
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "zk.pem", "--pubout", "zkp.pem"]).good();
    let before = place.names();
    let run = |args: &str| place.shell(&format!("LD_PRELOAD=./none.so exec \"$H\" {args}"));
    for args in [
        "keygen --set sha2-128f -o new.pem",
        "keygen --set sha2-128f -o new.pem --pubout public.pem",
        "keygen --scheme zkdilithium -o new.pem",
        "sign --key k.pem m",
        "sign --key k.pem m --threads 1",
        "sign --key k.pem m n",
        "sign --key k.pem m -o -",
        "quickstart .",
    ] {
        let run = run(args).exits(2).says(&["the operating system gave no randomness"]);
        assert!(args == "quickstart ." || run.stdout.is_empty(), "{args}");
    }
    assert_eq!(place.names(), before);
    for args in [
        "sign --key k.pem m n --deterministic",
        "verify --key p.pem m n",
        "sign --key zk.pem m n --force",
        "verify --key zkp.pem m n",
        "hash m n",
        "inspect k.pem",
        "pubkey k.pem",
        "devices",
    ] {
        run(args).good();
    }
}

#[test]
fn a_name_cannot_forge_a_verdict() {
    let place = Place::with_key();
    let name = "m: OK\nn";
    place.write(name, "message");
    place.run(&["sign", "--key", "k.pem", name]).good();
    assert_eq!(place.run(&["verify", "--key", "p.pem", name]).good().text(), "m: OK\\nn: OK\n");
}

#[test]
fn names_need_not_be_utf8() {
    let place = Place::with_key();
    let run = place.shell(
        "printf message > \"$(printf 'm\\377')\"; $H sign --key k.pem m* && \
         ls | grep -a sig | sed 's/.sig$//' | $H verify --key p.pem --list -",
    );
    assert_eq!(run.good().stdout, "m\u{fffd}: OK\n".as_bytes());
}

/// Nothing is measured before it is needed: measuring takes tenths of a second. A start takes 3 ms. CPU time is compared,
/// which a busy machine stretches less than the time of day.
#[test]
fn it_starts_at_once() {
    let place = Place::new();
    for command in ["--version", "devices"] {
        let seconds = || {
            let run = place.shell(&format!("$H {command} > out && times")).good();
            // The second line is that of the shell's children: user and system time, as in `0m0.003s 0m0.001s`.
            let times = run.text().lines().nth(1).expect("two lines of times").replace('s', "");
            let seconds = |time: &str| {
                let (minutes, seconds) = time.split_once('m').expect("minutes and seconds");
                60.0 * minutes.parse::<f64>().expect("minutes") + seconds.parse::<f64>().expect("seconds")
            };
            times.split_whitespace().map(seconds).sum::<f64>()
        };
        let best = (0..10).map(|_| seconds()).fold(f64::INFINITY, f64::min);
        assert!(best < 0.1, "{command} took {best} s of CPU time at best");
    }
}
