//! Programs as readers: JSON, digests that were computed elsewhere, completions and manual pages.

use crate::place::{Place, Run};
use crate::schema::check;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::fs;

fn lines(run: &Run) -> Vec<Value> {
    run.text().lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))).collect()
}

#[test]
fn verdicts_are_lines_of_json() {
    let place = Place::with_key();
    let key = {
        let made = place.run(&["keygen", "--set", "sha2-128f", "-o", "n.pem", "--pubout", "n.pub", "--json"]).good();
        let lines = lines(&made);
        check(&lines);
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1]["summary"]["made"], &lines[1]["exit"]), (&json!(1), &json!(0)));
        assert_eq!((&lines[0]["private_key"], &lines[0]["public_key"]), (&json!("n.pem"), &json!("n.pub")));
        assert_eq!((&lines[0]["encrypted"], &lines[0]["set"]), (&json!(false), &json!("SLH-DSA-SHA2-128f")));
        lines[0]["key"].as_str().unwrap().to_owned()
    };
    assert!(place.run(&["inspect", "n.pub"]).good().text().contains(&key));
    for name in ["a", "b"] {
        place.write(name, name);
    }
    let run = place.run(&["sign", "--key", "n.pem", "--json", "a", "absent", "b"]).exits(2);
    assert!(!run.stderr.contains("error:"), "{}", run.stderr);
    let signed = lines(&run);
    check(&signed);
    let by = json!({"file": "a", "verdict": "signed", "signature": "a.sig", "set": "SLH-DSA-SHA2-128f", "key": key});
    assert_eq!(signed[0], by);
    assert_eq!((&signed[1]["file"], &signed[1]["verdict"]), (&json!("absent"), &json!("error")));
    assert_eq!(signed[1]["error"], "cannot read absent: there is no such file or directory");
    let counts = |ok, signed, kept, failed, error, improper| json!({"ok": ok, "signed": signed, "kept": kept, "failed": failed, "extra": 0, "error": error, "improper": improper, "made": 0});
    assert_eq!(signed[3], json!({"summary": counts(0, 2, 0, 0, 1, 0), "exit": 2}));
    // One file alone, and one that is kept.
    let run = place.run(&["sign", "--key", "n.pem", "--json", "a", "--skip-existing"]).good();
    assert_eq!(lines(&run)[0]["verdict"], "kept");
    assert_eq!(lines(&run)[1], json!({"summary": counts(0, 0, 1, 0, 0, 0), "exit": 0}));
    place.write("b", "changed");
    let line = place.run(&["pubkey", "n.pub", "--line"]).good();
    place.write("signers", format!("alice {}", line.text()));
    let run = place.run(&["verify", "--allowed-signers", "signers", "--json", "a", "b"]).exits(1);
    let verified = lines(&run);
    check(&verified);
    assert_eq!((&verified[0]["verdict"], &verified[0]["signer"]), (&json!("ok"), &json!("alice")));
    assert_eq!((&verified[1]["verdict"], &verified[1]["file"]), (&json!("failed"), &json!("b")));
    assert_eq!(verified[2], json!({"summary": counts(1, 0, 0, 1, 0, 0), "exit": 1}));
    let run = place.run(&["verify", "--key", "n.pub", "--json", "-q", "a"]).good();
    assert_eq!(lines(&run).len(), 1);
    // An error that ends a command before there are verdicts is printed as without --json.
    place.run(&["verify", "--key", "absent", "--json", "a"]).refuses(&["cannot read absent"]);
    place.run(&["sign", "--key", "n.pem", "--json", "a", "-o", "-"]).refuses(&["a signature and JSON would both"]);
    place.run(&["keygen", "--set", "sha2-128f", "--json"]).refuses(&["a key and JSON would both"]);
}

#[test]
fn a_table_of_keys_is_a_line_of_json() {
    let place = Place::new();
    let count =
        |more: &[&str]| place.run(&[&["keygen", "--set", "sha2-128f", "--json", "--count", "3"], more].concat());
    let made = lines(&count(&["--table", "keys", "--pubout", "public"]).good());
    check(&made);
    let set = "SLH-DSA-SHA2-128f";
    assert_eq!(made[0], json!({"table": "keys", "public_table": "public", "set": set, "keys": 3}));
    assert_eq!((made.len(), &made[1]["summary"]["made"], &made[1]["exit"]), (2, &json!(3), &json!(0)));
    let rows = |name: &str| String::from_utf8(place.read(name)).unwrap().lines().count();
    // Private keys have a line that says so.
    assert_eq!((rows("keys"), rows("public")), (1 + 3, 3));
    let made = lines(&count(&["--table", "alone"]).good());
    check(&made);
    assert_eq!(made[0], json!({"table": "alone", "set": set, "keys": 3}));
    for wrong in [&["--table", "-"][..], &["--table", "new", "--pubout", "-"]] {
        count(wrong).refuses(&["a table and JSON would both go to standard output", "--table"]);
    }
    count(&["--table", "keys"]).refuses(&["keys exists", "--force"]);
    assert_eq!(place.names(), ["alone", "keys", "public"]);
}

/// As editors of some systems write it: what follows is read, and judged by what it is.
#[test]
fn a_byte_order_mark_is_no_part_of_json() {
    let place = Place::new();
    place.write("marked", "\u{feff}{}");
    place.run(&["acvp", "marked"]).refuses(&["marked is no ACVP prompt: missing field"]);
    place.run(&["kat", "marked"]).refuses(&["marked is no file of zkDilithium's cases: missing field"]);
    place.run(&["report", "marked", "-o", "page"]).refuses(&["marked, line 1: what was not verified does not count"]);
}

#[test]
fn sums_are_checked_in_json() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.write(name, name);
    }
    let sums = place.run(&["hash", "a", "b", "c"]).good().stdout;
    place.write("sums", [&sums[..], b"no sum\n"].concat());
    place.write("b", "changed");
    fs::remove_file(place.path("c")).unwrap();
    let run = place.run(&["hash", "-c", "--json", "sums"]).exits(1);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
    let checked = lines(&run);
    check(&checked);
    let verdicts: Vec<_> = checked.iter().filter_map(|line| line["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["ok", "failed", "error"]);
    assert!(checked[2]["error"].as_str().unwrap().contains("cannot read c"));
    assert_eq!((&checked[3]["exit"], &checked[3]["summary"]["improper"]), (&json!(1), &json!(1)));
    let run = place.run(&["hash", "-c", "--json", "-q", "--ignore-missing", "sums"]).exits(1);
    assert_eq!(lines(&run).len(), 2);
    place.run(&["hash", "--json", "a"]).refuses(&["--check"]);
}

#[test]
fn a_digest_is_signed_for_its_message() {
    let place = Place::with_key();
    place.write("m", "message");
    let digest = hex::encode(Sha512::digest("message"));
    let given = ["--key", "k.pem", "--digest", &digest, "--context", "c"];
    let hashed = ["--prehash", "sha2-512"];
    let sign = |more: &[&str]| place.run(&[&["sign"], &given[..], more].concat());
    sign(&[&hashed[..], &["-o", "s"]].concat()).good();
    let verify = |args: &[&str]| place.run(&[&["verify", "--signature", "s", "--context", "c"], args].concat());
    verify(&[&["--key", "p.pem", "m"][..], &hashed].concat()).good();
    let run = verify(&[&["--key", "p.pem", "--digest", &digest][..], &hashed].concat()).good();
    assert_eq!(run.text(), format!("digest:{digest}: OK\n"));
    let other = hex::encode(Sha512::digest("another"));
    verify(&[&["--key", "p.pem", "--digest", &other][..], &hashed].concat()).exits(1);
    // A key of HashSLH-DSA says by which function.
    place.run(&["keygen", "--set", "sha2-256f", "--hash-slh-dsa", "-o", "h.pem", "--pubout", "h.pub"]).good();
    place.run(&["sign", "--key", "h.pem", "--digest", &digest, "-o", "hs"]).good();
    place.run(&["verify", "--key", "h.pub", "m", "--signature", "hs"]).good();
    sign(&["-o", "n"]).refuses(&["--digest holds no message", "--prehash"]);
    sign(&["--prehash", "sha2-256", "-o", "n"]).refuses(&["--digest has 64 bytes, a digest of SHA2-256 has 32"]);
    sign(&hashed).refuses(&["--output"]);
    sign(&[&hashed[..], &["m", "-o", "n"]].concat()).refuses(&["cannot be used with"]);
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    place.run(&["sign", "--key", "z.pem", "--digest", &digest, "-o", "n"]).refuses(&["zkDilithium", "--digest"]);
    assert!(!place.path("n").exists());
}

/// Files of all lengths around the pieces in which they are read are signed as their digests are.
#[test]
fn long_files_are_hashed_in_pieces() {
    let place = Place::with_key();
    const PIECE: usize = 1 << 20;
    let sign = |more: &[&str]| {
        let words = ["sign", "--key", "k.pem", "--prehash", "sha2-512", "--deterministic", "--force", "-o", "s"];
        place.run(&[&words[..], more].concat()).good();
        place.read("s")
    };
    for length in [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 9 * PIECE + 7] {
        let bytes: Vec<u8> = (0..length).map(|at| (at >> 8 ^ at) as u8).collect();
        place.write("m", &bytes);
        let digest = hex::encode(Sha512::digest(&bytes));
        assert!(sign(&["m"]) == sign(&["--digest", &digest]), "{length}");
        let words = ["verify", "--key", "p.pem", "--prehash", "sha2-512", "-s", "s", "-"];
        assert_eq!(place.run_with(&words, &bytes).good().text(), "standard input: OK\n");
    }
}

/// Whatever is wrong with the arguments: a line, the way out, nothing else.
#[test]
fn wrong_arguments_are_two_lines() {
    let place = Place::with_key();
    place.write("m", "message");
    for (args, words) in [
        (&["sing"][..], &["unrecognized subcommand 'sing'", "'sign'; `hypergrove help` lists"][..]),
        (&["sign", "m"], &["--key <FILE>", "`hypergrove help sign` explains it"]),
        (&["sign", "--kee", "k.pem", "m"], &["unexpected argument '--kee'", "'--key'; `hypergrove help sign`"]),
        (&["keygen", "--set", "nope"], &["there is no set 'nope'", "`hypergrove help keygen`"]),
        (&["keygen", "--set", "sha2-128f", "--count", "0", "--table", "t"], &["invalid value '0' for '--count <N>'"]),
        (&["keygen", "--set", "sha2-128f", "--encrypt", "--raw"], &["'--encrypt' cannot be used with '--raw'"]),
        (&["completions", "tcsh"], &["invalid value 'tcsh'", "[possible values: bash", "'zsh'; `hypergrove help"]),
        (&["verify", "m"], &["--allowed-signers <FILE>", "`hypergrove help verify`"]),
        (&["sign", "--key", "k.pem", "--digest", "a  b\n\nhint: x", "-o", "s"], &["not hexadecimal"]),
    ] {
        let run = place.run(args).refuses(words);
        let starts: Vec<_> = run.stderr.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(starts, ["error", " hint"], "{args:?}: {}", run.stderr);
    }
    // Nor does it panic at what is no text.
    #[cfg(unix)]
    for before in [&[][..], &["sign"]] {
        use std::os::unix::ffi::OsStrExt;
        let run: Run = place.command(before).arg(std::ffi::OsStr::from_bytes(b"--\xff")).output().unwrap().into();
        let run = run.refuses(&["unexpected argument"]);
        assert_eq!(run.stderr.lines().count(), 2, "{}", run.stderr);
    }
    assert_eq!(place.names(), ["k.pem", "m", "p.pem"]);
    // Help is no error.
    assert!(place.run(&["help", "sign"]).good().text().contains("Usage: "));
    assert!(place.run(&[]).exits(2).stderr.contains("Usage: "));
    // Nor is a file that is not there without a way out.
    place.run(&["sign", "--key", "absent", "m"]).refuses(&["cannot read absent", " hint: check the name"]);
    place.run(&["man", "m"]).refuses(&["m is not a directory", " hint: name a directory"]);
}

/// An option whose values have names offers them, and no files.
#[cfg(unix)]
#[test]
fn completions_offer_names() {
    let place = Place::new();
    place.write("file", "");
    for (typed, start, offered) in [
        ("keygen --set", "", "SLH-DSA-SHA2-128f"),
        ("keygen --set", "SLH-DSA-SHAKE-19", "SLH-DSA-SHAKE-192s"),
        ("sign --set", "", "SLH-DSA-SHA2-256s"),
        ("bench --set", "", "all"),
        ("tune --set", "SLH", "SLH-DSA-SHA2-128f"),
        ("explain --set", "", "SLH-DSA-SHA2-192f"),
        ("quickstart --set", "", "SLH-DSA-SHA2-128f"),
        ("bench --study", "c", "crossover"),
        ("sign --prehash", "SHA3", "SHA3-256"),
        ("explain --isa", "", "portable"),
    ] {
        let script = format!(
            "$H completions bash > c.sh && bash -c '. ./c.sh; COMP_WORDS=(hypergrove {typed} \"{start}\"); COMP_CWORD=3; \
             COMPREPLY=(); _hypergrove hypergrove \"{start}\" {option}; printf \"%s\\n\" \"${{COMPREPLY[@]}}\"'",
            option = typed.split(' ').nth(1).unwrap()
        );
        let run = place.shell(&script).good();
        let names: Vec<&str> = run.text().lines().collect();
        assert!(names.contains(&offered) && !names.contains(&"file"), "{typed}: {names:?}");
        assert!(names.iter().all(|name| name.starts_with(start)), "{typed}: {names:?}");
    }
    // Names that are not listed are understood all the same.
    place.run(&["keygen", "--set", "sha2-128F", "-o", "k.pem"]).good();
    place.run(&["bench", "--study", "abacus"]).refuses(&["there is no study 'abacus'", "the studies are throughput"]);
}

/// Options that a command accepts and does not use are not in its help; whoever has them in an alias gets no error.
#[test]
fn help_lists_only_what_a_command_uses() {
    let place = Place::new();
    for command in ["completions", "inspect", "man", "report"] {
        let help = place.run(&["help", command]).good();
        for option in ["--threads", "--memory", "--device-timeout", "Machine"] {
            assert!(!help.text().contains(option), "{command} {option}: {}", help.text());
        }
        assert!(help.text().contains("--quiet"), "{command}");
    }
    assert!(place.run(&["help", "sign"]).good().text().contains("--threads"));
    for typed in [&["--threads", "1", "completions", "bash"][..], &["completions", "bash", "--threads", "1"]] {
        place.run(typed).good();
    }
    let verify = place.run(&["help", "verify"]).good();
    assert!(verify.text().contains("ERROR (exit code 2)") && !verify.text().contains("A missing file fails"));
}

#[test]
fn shells_and_man_know_every_command() {
    let place = Place::new();
    let help = place.run(&["--help"]).good();
    let commands: Vec<&str> = help
        .text()
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 12, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.run(&["completions", shell]).good();
        assert!(commands.iter().all(|name| script.text().contains(name)), "{shell}");
        assert!(script.text().contains("passphrase-file"), "{shell}");
    }
    #[cfg(unix)]
    place.shell("$H completions bash > c && bash -n c").good();
    fs::create_dir(place.path("man")).unwrap();
    place.run(&["man", "man"]).good();
    for name in commands {
        let page = String::from_utf8(place.read(&format!("man/hypergrove-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains(&format!("hypergrove\\-{name}")), "{name}: {page}");
    }
    let tool = String::from_utf8(place.read("man/hypergrove.1")).unwrap();
    for words in [".TH", ".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""] {
        assert!(tool.contains(words), "{words}: {tool}");
    }
    assert!(!tool.contains("hypergrove\\-help"), "there is no such page: {tool}");
    place.run(&["man", "man"]).good();
    place.run(&["man", "absent/man1"]).good();
    assert!(place.path("absent/man1/hypergrove.1").exists());
    place.run(&["completions", "tcsh"]).refuses(&["tcsh"]);
}
