//! Signing and verifying: one file, standard input, many files, lists; and what is wrong with them.

use crate::place::Place;
use slh_dsa::signature::Keypair;
use slh_dsa::{Sha2_128f, Signature, SigningKey};
use std::fs;

const SIGN: [&str; 3] = ["sign", "--key", "k.pem"];
const VERIFY: [&str; 3] = ["verify", "--key", "p.pem"];
const BYTES: usize = 17_088;

fn sign(args: &[&'static str]) -> Vec<&'static str> {
    [&SIGN, args].concat()
}

fn verify(args: &[&'static str]) -> Vec<&'static str> {
    [&VERIFY, args].concat()
}

/// The key of [`Place::with_key`], by an independent crate.
fn other_key() -> SigningKey<Sha2_128f> {
    let seeds: Vec<u8> = (0..48).collect();
    SigningKey::slh_keygen_internal(&seeds[..16], &seeds[16..32], &seeds[32..])
}

#[test]
fn one_file() {
    let place = Place::with_key();
    place.write("m", "message");
    let run = place.run(&sign(&["m"])).good();
    assert!(run.stdout.is_empty());
    assert_eq!(run.stderr, "wrote m.sig: a signature of SLH-DSA-SHA2-128f\n");
    assert_eq!(place.read("m.sig").len(), BYTES);
    for key in ["k.pem", "p.pem"] {
        let run = place.run(&["verify", "--key", key, "m"]).good();
        assert_eq!((run.text(), run.stderr.as_str()), ("m: OK\n", ""));
    }
    place.write("m", "massage");
    assert_eq!(place.run(&verify(&["m"])).exits(1).text(), "m: FAILED\n");
    let again = place.run(&sign(&["m"])).refuses(&["m.sig exists", "--force"]);
    assert!(again.stderr.contains("hint: "));
    place.run(&sign(&["m", "--force"])).good();
    place.run(&verify(&["m"])).good();
    place.run(&sign(&["m", "-o", "elsewhere"])).good();
    place.run(&verify(&["m", "--signature", "elsewhere"])).good();
    assert_eq!(place.names(), ["elsewhere", "k.pem", "m", "m.sig", "p.pem"]);
}

#[test]
fn standard_input_and_output() {
    let place = Place::with_key();
    let signature = place.run_with(&sign(&["-"]), b"message").good().stdout;
    assert_eq!(signature.len(), BYTES);
    place.write("s", &signature);
    let run = place.run_with(&verify(&["-", "--signature", "s"]), b"message").good();
    assert_eq!(run.text(), "standard input: OK\n");
    place.run_with(&verify(&["-", "--signature", "s"]), b"massage").exits(1);
    place.write("m", "message");
    place.run_with(&verify(&["m", "--signature", "-"]), &signature).good();
    place.run_with(&["sign", "--key", "-", "m", "-o", "-"], &place.read("k.pem")).good();
    place.run_with(&sign(&["-", "-o", "t"]), b"message").good();
    place.run(&verify(&["m", "--signature", "t"])).good();
    for args in [&["sign", "--key", "-", "-"][..], &["verify", "--key", "p.pem", "-", "--signature", "-"]] {
        place.run_with(args, b"").refuses(&["standard input is given twice"]);
    }
    place.run_with(&verify(&["-"]), b"").refuses(&["standard input has no name", "--signature"]);
    place.run_with(&sign(&["-", "m"]), b"").refuses(&["standard input has no name"]);
}

#[test]
fn an_empty_message_and_a_long_one() {
    let place = Place::with_key();
    place.write("empty", "");
    place.write("long", vec![42; 3_000_000]);
    place.run(&sign(&["empty", "long"])).good();
    place.run(&verify(&["empty", "long"])).good();
    other_key()
        .verifying_key()
        .try_verify_with_context(&vec![42; 3_000_000], b"", &read_signature(&place, "long.sig"))
        .unwrap();
}

fn read_signature(place: &Place, name: &str) -> Signature<Sha2_128f> {
    Signature::try_from(&place.read(name)[..]).unwrap()
}

#[test]
fn signatures_are_those_of_an_independent_crate() {
    let place = Place::with_key();
    let key = other_key();
    place.write("m", "message");
    for (options, context) in [
        (&[][..], &b""[..]),
        (&["--context", "letters"], b"letters"),
        (&["--context-hex", "00ff"], b"\x00\xff"),
        (&["--context-hex", ""], b""),
    ] {
        let ours = place.run(&[&sign(&["m", "-o", "-", "--deterministic"]), options].concat()).good().stdout;
        let theirs = key.try_sign_with_context(b"message", context, None).unwrap();
        assert_eq!(ours, theirs.to_bytes().as_slice(), "{options:?}");
        let hedged = place.run(&[&sign(&["m", "-o", "-"]), options].concat()).good().stdout;
        assert_ne!(hedged, ours);
        let hedged = Signature::try_from(&hedged[..]).unwrap();
        key.verifying_key().try_verify_with_context(b"message", context, &hedged).unwrap();
        place.write("m.sig", theirs.to_bytes());
        place.run(&[&verify(&["m"]), options].concat()).good();
        place.run(&verify(&["m", "--context", "other"])).exits(1);
    }
    let ours = place.run(&sign(&["m", "-o", "-", "--deterministic", "--internal"])).good().stdout;
    assert_eq!(ours, key.slh_sign_internal(&[b"message"], None).to_bytes().as_slice());
}

#[test]
fn message_options_are_told_apart() {
    let place = Place::with_key();
    place.write("m", "message");
    let options: &[&[&'static str]] = &[
        &[],
        &["--context", "a"],
        &["--context", "b"],
        &["--prehash", "SHA2-256"],
        &["--prehash", "sha512"],
        &["--prehash", "SHAKE-128", "--context", "a"],
        &["--internal"],
    ];
    for signed in options {
        place.run(&[&sign(&["m", "--force"]), *signed].concat()).good();
        for verified in options {
            let run = place.run(&[&verify(&["m"]), *verified].concat());
            run.exits(if signed == verified { 0 } else { 1 });
        }
    }
}

#[test]
fn caches_do_not_change_signatures() {
    let place = Place::with_key();
    place.write("m", "message");
    let signed =
        |more: &[&'static str]| place.run(&[&sign(&["m", "-o", "-", "--deterministic"]), more].concat()).good().stdout;
    let plain = signed(&[]);
    assert_eq!(signed(&["--cache-layers", "0"]), plain);
    assert_eq!(signed(&["--cache-layers", "2"]), plain);
    assert_eq!(signed(&["--cache-memory", "16K"]), plain);
    assert_eq!(signed(&["--cache-memory", "1"]), plain);
    for size in ["4T", "8388608T", "18446744073709551615"] {
        let large = [&sign(&["m", "-o", "-"])[..], &["--cache-memory", size]].concat();
        place.run(&large).refuses(&["which needs", "hint: ask for fewer layers with --cache-layers or --cache-memory"]);
    }
    assert_eq!(signed(&["--threads", "1", "--isa", "portable"]), plain);
    assert_eq!(signed(&["--backend", "reference"]), plain);
    // Many files are signed with the top tree cached.
    place.write("n", "message");
    place.run(&sign(&["m", "n", "--deterministic"])).good();
    assert_eq!((place.read("m.sig"), place.read("n.sig")), (plain.clone(), plain));
    place.run(&sign(&["m", "--cache-layers", "23", "-o", "x"])).refuses(&["SLH-DSA-SHA2-128f has 22 layers"]);
}

#[test]
fn many_files_get_one_verdict_each_and_the_worst_is_the_exit_code() {
    let place = Place::with_key();
    for name in ["a", "b", "c"] {
        place.write(name, name);
    }
    fs::create_dir(place.path("d")).unwrap();
    let run = place.run(&sign(&["a", "missing", "b", "d", "c"])).exits(2);
    assert_eq!(run.text(), "a: SIGNED\nmissing: ERROR\nb: SIGNED\nd: ERROR\nc: SIGNED\n");
    run.says(&["cannot read missing", "d is a directory", "3 SIGNED, 2 ERROR"]);
    assert_eq!(place.names(), ["a", "a.sig", "b", "b.sig", "c", "c.sig", "d", "k.pem", "p.pem"]);

    let run = place.run(&verify(&["a", "b", "c"])).good();
    assert_eq!((run.text(), run.stderr.as_str()), ("a: OK\nb: OK\nc: OK\n", "3 OK\n"));
    place.write("b", "changed");
    let run = place.run(&verify(&["a", "b", "c"])).exits(1);
    assert_eq!(run.text(), "a: OK\nb: FAILED\nc: OK\n");
    assert!(run.stderr.starts_with("FAILED: no valid signature by the key SHA256:"), "{}", run.stderr);
    assert!(run.stderr.contains(" of SLH-DSA-SHA2-128f; if the signer gave a context"), "{}", run.stderr);
    assert!(run.stderr.ends_with("\n2 OK, 1 FAILED\n"), "{}", run.stderr);
    let run = place.run(&verify(&["missing", "b", "c"])).exits(2);
    assert_eq!(run.text(), "missing: ERROR\nb: FAILED\nc: OK\n");
    let run = place.run(&verify(&["-q", "a", "b", "c"])).exits(1);
    assert_eq!((run.text(), run.stderr.as_str()), ("b: FAILED\n", ""));
    // A signature of the wrong length is an error of its file alone.
    place.write("c.sig", &place.read("c.sig")[1..]);
    let run = place.run(&verify(&["a", "c"])).exits(2);
    assert_eq!(run.text(), "a: OK\nc: ERROR\n");
    run.says(&["c.sig has 17,087 bytes", "17,088", "cut short"]);
}

#[test]
fn lists_name_files() {
    let place = Place::with_key();
    let names: Vec<String> = (0..40).map(|i| format!("file {i}")).collect();
    for name in &names {
        place.write(name, name);
    }
    place.write("list", names.join("\n") + "\n\n");
    let run = place.run(&sign(&["--list", "list"])).good();
    let expected: String = names.iter().map(|name| format!("{name}: SIGNED\n")).collect();
    assert_eq!(run.text(), expected);
    place.write("file 17", "changed");
    let list = place.read("list");
    let run = place.run_with(&verify(&["--list", "-", "--threads", "1"]), &list).exits(1);
    let expected: String =
        names.iter().map(|name| format!("{name}: {}\n", if name == "file 17" { "FAILED" } else { "OK" })).collect();
    assert_eq!(run.text(), expected);
    assert!(
        run.stderr.ends_with("; if the signer gave a context, name it with --context\n39 OK, 1 FAILED\n"),
        "{}",
        run.stderr
    );
    place.run(&verify(&["--list", "missing"])).refuses(&["cannot read missing"]);
    place.run(&verify(&["--list", "."])).refuses(&["directory"]);
    place.run_with(&verify(&["--list", "-", "-"]), b"").refuses(&["standard input is given twice"]);
    // Nothing was verified or signed: whoever made the list meant something else.
    for list in [&b""[..], b"\n", b"\n\n\n", b"\r\n\r\n"] {
        for command in [verify(&["--list", "-"]), sign(&["--list", "-"]), vec!["hash", "--list", "-"]] {
            place.run_with(&command, list).refuses(&["standard input lists no files"]);
        }
        place.run_with(&verify(&["--list", "-", "file 1"]), list).refuses(&["standard input lists no files"]);
    }
    // A list from Windows; but a CR is part of a name where not all lines end with one.
    let windows = names[..3].join("\r\n");
    for list in [windows.clone() + "\r\n", windows + "\r\n\r\n"] {
        let run = place.run_with(&verify(&["--list", "-"]), list.as_bytes()).good();
        assert_eq!(run.text(), "file 0: OK\nfile 1: OK\nfile 2: OK\n");
    }
    let run = place.run_with(&verify(&["--list", "-"]), b"file 0\nfile 1\r\n").exits(2);
    assert_eq!(run.text(), "file 0: OK\nfile 1\\r: ERROR\n");
    // An editor's byte order mark is no part of the first name. Before ./ it would be, and no program that ends names with NUL writes it.
    let marked = format!("\u{feff}{}", names[..2].join("\n"));
    let run = place.run_with(&verify(&["--list", "-"]), marked.as_bytes()).good();
    assert_eq!(run.text(), "file 0: OK\nfile 1: OK\n");
    let run = place.run_with(&verify(&["--list", "-", "-0"]), "\u{feff}file 0".as_bytes()).exits(2);
    assert_eq!(run.text(), "\\u{feff}file 0: ERROR\n");
    place.run(&SIGN).refuses(&["FILE"]);
    place.run(&VERIFY).refuses(&["FILE"]);
}

#[test]
fn signatures_may_go_to_a_directory() {
    let place = Place::with_key();
    for directory in ["x", "y", "out"] {
        fs::create_dir(place.path(directory)).unwrap();
    }
    place.write("x/m", "message");
    place.write("x/n", "another");
    place.write("y/m", "third");
    place.run(&sign(&["--out-dir", "out", "x/m", "x/n"])).good();
    place.run(&verify(&["--signature-dir", "out", "x/m", "x/n"])).good();
    place.run(&verify(&["x/m"])).exits(2).says(&["x/m.sig"]);
    // Two files would get one signature: not even --force lets the second win.
    let run = place.run(&sign(&["--force", "--out-dir", "out", "x/m", "y/m", "x/m"])).exits(2);
    assert_eq!(run.text(), "x/m: SIGNED\ny/m: ERROR\nx/m: ERROR\n");
    run.says(&[&format!("out{}m.sig", std::path::MAIN_SEPARATOR), "another file has got"]);
    place.run(&verify(&["--signature-dir", "out", "x/m"])).good();
    // A directory that is not there is one error, however many files there are.
    for command in [sign(&["--out-dir", "none", "x/m", "y/m"]), verify(&["--signature-dir", "none", "x/m", "x/n"])] {
        let run = place.run(&command).refuses(&["none: there is no such file or directory"]);
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
    }
    // One file by two paths.
    let run = place.run(&sign(&["--force", "x/m", "x/../x/m"])).exits(2);
    assert_eq!(run.text(), "x/m: SIGNED\nx/../x/m: ERROR\n");
    run.says(&["another file has got"]);
    place.run(&sign(&["-o", "s", "x/m", "x/n"])).refuses(&["--output s takes one signature, 2 files"]);
    place.run(&verify(&["-s", "s", "x/m", "x/n"])).refuses(&["--signature names one signature, 2 files"]);
}

/// The error names the file that was looked for, and the one that was probably meant.
#[test]
fn a_signature_that_is_not_there() {
    let place = Place::with_key();
    place.write("m", "message");
    place.run(&sign(&["m"])).good();
    let run = place.run(&verify(&["m.sig"])).exits(2);
    run.says(&["cannot read m.sig.sig", "if m.sig is its signature, that is m\n"]);
    let run = place.run(&verify(&["k.pem"])).exits(2);
    run.says(&["cannot read k.pem.sig", "looked for in FILE.sig", "--signature", "--signature-dir"]);
}

/// A name cannot forge a verdict, or show itself as another one.
#[test]
fn names_are_shown_without_characters_that_nobody_sees() {
    let place = Place::with_key();
    let hidden = ["\x1b[2J", "\r", "\n", "\u{85}", "\u{ad}", "\u{61c}", "\u{200b}", "\u{200e}", "\u{200f}", "\u{202a}"];
    let hidden =
        hidden.into_iter().chain(["\u{202e}", "\u{2028}", "\u{2029}", "\u{2066}", "\u{2069}", "\u{feff}", "\u{e0041}"]);
    let hidden = hidden.chain(["\u{34f}", "\u{2800}", "\u{3164}", "\u{fe0f}"]);
    for text in hidden {
        let name = &format!("a{text}b");
        if cfg!(windows) && text.contains(|c: char| c < ' ') {
            println!("skipped: a file name with {text:?}: Windows has none");
            continue;
        }
        place.write(name, "message");
        place.run(&sign(&[]).into_iter().chain([&**name]).collect::<Vec<_>>()).good().shows_no(text);
        let run = place.run(&verify(&[]).into_iter().chain([&**name]).collect::<Vec<_>>()).good();
        assert_eq!(run.text().lines().count(), 1, "{}", run.text());
        assert!(run.text().ends_with("b: OK\n"));
        run.shows_no(text);
        for command in ["verify", "pubkey", "inspect", "hash", "acvp", "kat", "report", "quickstart"] {
            let key: &[&str] = if command == "verify" { &["--key", "p.pem"] } else { &[] };
            let run = place.run(&[&[command], key, &[&format!("no{name}")]].concat());
            assert_ne!(run.code, Some(0));
            run.shows_no(text);
        }
        // The command line's own errors quote arguments.
        place.run(&["verify", &format!("--{name}")]).exits(2).shows_no(text);
        place.run(&["keygen", "--set", name]).exits(2).shows_no(text);
    }
    // On a terminal, sums are for eyes as well. Elsewhere their lines are sha256sum's.
    let names: Vec<_> =
        place.names().into_iter().filter(|name| name.starts_with('a') && !name.contains('\n')).collect();
    place.write("list", names.join("\n"));
    let bytes = place.run(&["hash", "--list", "list"]).good().stdout;
    assert!(cfg!(windows) || bytes.windows(5).any(|window| window == b"\x1b[2Jb"));
    #[cfg(target_os = "linux")]
    {
        let run = place.shell("script -qec '$H hash --list list 2>/dev/null' /dev/null").good();
        assert_eq!(run.text().lines().count(), names.len(), "{}", run.text());
        assert!(run.text().contains("a\\u{202e}b") && !run.text().contains(['\x1b', '\u{202e}', '\u{ad}']));
    }
    // Letters of any script are themselves.
    for name in ["Grüße", "e\u{301}", "文件\u{3000}名", "ملف", "🔑"] {
        place.write(name, "message");
        assert_eq!(place.run(&["hash", name]).good().text().split("  ").nth(1), Some(&*format!("{name}\n")));
        place.run(&["sign", "--key", "k.pem", name]).good();
        assert_eq!(place.run(&["verify", "--key", "p.pem", name]).good().text(), format!("{name}: OK\n"));
    }
}

#[test]
fn bad_signatures() {
    let place = Place::with_key();
    place.write("m", "message");
    place.run(&sign(&["m"])).good();
    let good = place.read("m.sig");
    let judge = |bytes: &[u8]| {
        place.write("m.sig", bytes);
        place.run(&verify(&["m"]))
    };
    let error = |bytes: &[u8], words: &[&str]| {
        let run = judge(bytes).exits(2);
        assert_eq!(run.text(), "m: ERROR\n");
        run.says(words);
    };
    error(b"", &["m.sig has 0 bytes", "a signature of SLH-DSA-SHA2-128f has 17,088"]);
    error(&good[..BYTES - 1], &["m.sig has 17,087 bytes", "cut short"]);
    error(&[&good[..], b"\n"].concat(), &["m.sig has 17,089 bytes", "too many"]);
    error(&good[..7_856], &["m.sig has 7,856 bytes", "length of a SLH-DSA-SHA2-128s signature"]);
    error(&[0; 60_000], &["more than 49,856"]);
    // One byte in each of the parts: R, a FORS secret, a FORS path, the last WOTS+ signature, the last path.
    for at in [0, 15, 16, 100, 3_696, 10_000, BYTES - 100, BYTES - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        assert_eq!(judge(&bad).exits(1).text(), "m: FAILED\n", "byte {at}");
    }
    judge(&good).good();
    // Another family, whose signatures have that length; another key.
    place.keygen("SLH-DSA-SHAKE-128f", "shake.pem", "shake-p.pem");
    place.run(&["verify", "--key", "shake-p.pem", "m"]).exits(1);
    place.run(&["keygen", "--set", "sha2-128f", "-o", "k2.pem"]).good();
    place.run(&["verify", "--key", "k2.pem", "m"]).exits(1);
    // Another set.
    place.keygen("SLH-DSA-SHA2-192f", "k192.pem", "p192.pem");
    let words = ["17,088 bytes", "SLH-DSA-SHA2-192f has 35,664", "length of a SLH-DSA-SHA2-128f signature"];
    place.run(&["verify", "--key", "p192.pem", "m"]).exits(2).says(&words);
    fs::remove_file(place.path("m.sig")).unwrap();
    place.run(&verify(&["m"])).exits(2).says(&["cannot read m.sig"]);
    fs::create_dir(place.path("m.sig")).unwrap();
    place.run(&verify(&["m"])).exits(2).says(&["m.sig is a directory"]);
}

#[test]
fn a_context_of_256_bytes_is_refused_and_one_of_255_is_not() {
    let place = Place::with_key();
    place.write("m", "message");
    let (longest, too_long) = ("ü".repeat(127) + "x", "ü".repeat(128));
    for command in [SIGN, VERIFY] {
        for more in [&["--context", &*too_long][..], &["--context-hex", &"00".repeat(256)]] {
            place.run(&[&command, &["m"][..], more].concat()).refuses(&["256 bytes", "255", "shorten"]);
        }
        place.run(&[&command, &["m", "--context-hex", "0"][..]].concat()).refuses(&["hexadecimal"]);
        place.run(&[&command, &["m", "--internal", "--context", "x"][..]].concat()).refuses(&["--internal"]);
        place.run(&[&command, &["m", "--internal", "--prehash", "sha256"][..]].concat()).refuses(&["--internal"]);
        place.run(&[&command, &["m", "--prehash", "md5"][..]].concat()).refuses(&["'md5'", "SHAKE-256"]);
    }
    assert_eq!(place.names(), ["k.pem", "m", "p.pem"]);
    place.run(&[&SIGN, &["m", "--context", &longest][..]].concat()).good();
    place.run(&[&VERIFY, &["m", "--context", &longest][..]].concat()).good();
}

/// Not even by force.
#[test]
fn what_is_read_is_not_replaced() {
    let place = Place::with_key();
    place.write("m", "message");
    let before = place.read("k.pem");
    place.run(&sign(&["m", "-o", "./m", "--force"])).refuses(&["./m would be replaced"]);
    place.run(&sign(&["m", "-o", "k.pem", "--force"])).exits(2).says(&["k.pem would be replaced"]);
    place.run(&["pubkey", "k.pem", "-o", "k.pem", "--force"]).refuses(&["k.pem would be replaced"]);
    place.run(&["acvp", "m", "-o", "m", "--force"]).refuses(&["m would be replaced"]);
    fs::rename(place.path("k.pem"), place.path("m.sig")).unwrap();
    place.run(&["sign", "--key", "m.sig", "m", "--force"]).exits(2).says(&["m.sig would be replaced"]);
    assert_eq!((place.read("m"), place.read("m.sig")), (b"message".to_vec(), before));
}

#[test]
fn a_damaged_private_key_signs_nothing() {
    let place = Place::with_key();
    place.write("m", "message");
    place.write("n", "message");
    // The root does not follow from the seeds: lower layers would be signed for a tree that is not the key's.
    let mut raw = place.run(&["keygen", "--set", "sha2-128f", "--raw"]).good().stdout;
    raw[63] ^= 1;
    place.write("raw", &raw);
    for files in [&["m"][..], &["m", "n"]] {
        let run = place.run(&[&["sign", "--key", "raw", "--set", "sha2-128f"], files].concat()).exits(2);
        // The key is blamed, not the machine that computes.
        assert!(!run.says(&["not that of its seeds", "the key is damaged"]).stderr.contains("distrust"));
    }
    assert_eq!(place.names(), ["k.pem", "m", "n", "p.pem", "raw"]);
}

#[test]
fn every_set_signs_and_verifies() {
    for set in ["SHA2-192f", "SHAKE-128f", "SHAKE-192f", "SHA2-256f", "SHAKE-256f", "SHA2-128s"] {
        let place = Place::new();
        place.keygen(&format!("SLH-DSA-{set}"), "k.pem", "p.pem");
        place.write("m", set);
        place.run(&sign(&["m"])).good();
        place.run(&verify(&["m"])).good();
        place.write("m", "else");
        place.run(&verify(&["m"])).exits(1);
    }
}

/// `verify --output` hands a message out after the verdict, and never a byte before.
#[cfg(unix)]
#[test]
fn messages_leave_after_their_verdict() {
    let place = Place::with_key();
    let script = "echo installed\n";
    place.write("m", script);
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    let verify = ["verify", "--key", "p.pem", "-s", "m.sig", "m"];
    // The verdict goes to standard error, because the message goes to standard output.
    let run = place.run(&[&verify[..], &["--output", "-"]].concat()).good();
    assert_eq!((run.text(), &run.stderr[..]), (script, "m: OK\n"));
    let run = place.shell("cat m | \"$H\" verify --key p.pem -s m.sig --output - - | sh").good();
    assert_eq!(run.text(), "installed\n");
    let run = place.shell("(cat m; echo echo more) | \"$H\" verify --key p.pem -s m.sig --output - - | sh");
    assert_eq!(run.text(), "", "nothing that was not signed runs");
    place.write("altered", "echo altered\n");
    let altered = ["verify", "--key", "p.pem", "-s", "m.sig", "altered", "--output"];
    let run = place.run(&[&altered[..], &["-"]].concat()).exits(1);
    assert!(run.text().is_empty() && run.stderr.starts_with("altered: FAILED"), "{}", run.stderr);
    place.run(&[&altered[..], &["out"]].concat()).exits(1);
    assert!(!place.path("out").exists());
    let run = place.run(&[&verify[..], &["--output", "out"]].concat()).good();
    assert_eq!((run.text(), place.read("out")), ("m: OK\n", script.into()));
    // Files that exist stay, unless they may be replaced. Files that are read stay always.
    place.run(&[&verify[..], &["--output", "out"]].concat()).refuses(&["out exists", "--force"]);
    place.run(&[&verify[..], &["--output", "out", "--force"]].concat()).good();
    place.run(&[&verify[..], &["--output", "m", "--force"]].concat()).refuses(&["m"]);
    place.run(&[&verify[..], &["--output", "m.sig", "--force"]].concat()).refuses(&["m.sig"]);
    let implied = ["verify", "--key", "p.pem", "m", "--output", "m.sig", "--force"];
    place.run(&implied).refuses(&["m.sig would be replaced, and it is read"]);
    assert_eq!(place.read("m"), script.as_bytes());
    place.run(&[&verify[..], &["--force"]].concat()).refuses(&["--output"]);
    place.run(&[&verify[..], &["--output", "-", "--json"]].concat()).refuses(&["the message and JSON"]);
    place.run(&["verify", "--key", "p.pem", "m", "altered", "--output", "x"]).refuses(&["--output takes one message"]);
    // An envelope, a pre-hash, and more bytes than are kept in memory.
    place.run(&["sign", "--key", "k.pem", "--armor", "m", "-o", "m.env"]).good();
    let run = place.run(&["verify", "--key", "p.pem", "-s", "m.env", "m", "--output", "-"]).good();
    assert_eq!(run.text(), script);
    place.write("large", vec![7; 70 << 20]);
    for mode in [&[][..], &["--prehash", "SHA2-512"]] {
        place.run(&[&["sign", "--key", "k.pem", "--force", "large"], mode].concat()).good();
        let verify = ["verify", "--key", "p.pem", "large", "--output", "copy", "--force"];
        place.run(&[&verify[..], mode].concat()).good();
        assert!(place.read("copy") == place.read("large"));
    }
}
