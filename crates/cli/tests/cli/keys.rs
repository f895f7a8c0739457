//! Keys: made, converted, shown, refused.

use crate::place::Place;
use base64ct::{Base64, Encoding};
use hypergrove::{Engine, Params};
use hypergrove_testkit::forms::forms;
use slh_dsa::{Sha2_128f, Shake192f};
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The test vectors, if they are here.
fn vectors(suite: &str, path: &str) -> Option<PathBuf> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let directory = std::env::var_os("HYPERGROVE_VECTORS").map_or_else(default, PathBuf::from);
    let path = directory.join(path);
    if !path.exists() {
        println!("skipped: {suite}: no vectors at {} (set HYPERGROVE_VECTORS)", path.display());
        return None;
    }
    Some(path)
}

#[cfg(unix)]
fn mode(place: &Place, name: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o7777
}

#[cfg(unix)]
#[test]
fn a_private_key_is_for_its_owner_alone() {
    let place = Place::new();
    place.shell("umask 0; $H keygen --set sha2-128f -o k.pem --pubout p.pem").good();
    assert_eq!((mode(&place, "k.pem"), mode(&place, "p.pem")), (0o600, 0o666));
    place.shell("umask 077; $H keygen --set sha2-128f -o k2.pem --pubout p2.pem").good();
    assert_eq!((mode(&place, "k2.pem"), mode(&place, "p2.pem")), (0o600, 0o600));
    // A file that others could read does not hand its mode on.
    place.shell("echo old > loose; chmod 644 loose; $H keygen --set sha2-128f -o loose --force").good();
    assert_eq!(mode(&place, "loose"), 0o600);
    assert!(place.read("loose").starts_with(b"-----BEGIN PRIVATE KEY-----"));
    assert_eq!(place.names(), ["k.pem", "k2.pem", "loose", "p.pem", "p2.pem"]);
}

#[test]
fn keys_from_seeds_are_those_of_an_independent_crate() {
    let place = Place::new();
    let seeds: Vec<u8> = (0..72).collect();
    let other = slh_dsa::SigningKey::<Sha2_128f>::slh_keygen_internal(&seeds[..16], &seeds[16..32], &seeds[32..48]);
    let run = place.run(&["keygen", "--set", "SLH-DSA-SHA2-128f", "--raw", "--seeds", &hex::encode(&seeds[..48])]);
    assert_eq!(run.good().stdout, other.to_bytes().as_slice());
    let other = slh_dsa::SigningKey::<Shake192f>::slh_keygen_internal(&seeds[..24], &seeds[24..48], &seeds[48..]);
    let run = place.run(&["keygen", "--set", "slh-dsa-shake-192F", "--raw", "--seeds", &hex::encode(&seeds)]);
    assert_eq!(run.good().stdout, other.to_bytes().as_slice());
}

#[test]
fn fresh_keys_differ() {
    let place = Place::new();
    let make = || place.run(&["keygen", "--set", "sha2-128f"]).good().stdout;
    assert_ne!(make(), make());
}

#[test]
fn every_form_of_a_key_is_the_same_key() {
    let place = Place::with_key();
    let seeds: String = (0..48).map(|i| format!("{i:02x}")).collect();
    for form in ["--der", "--raw"] {
        let name = &format!("k{form}");
        place.run(&["keygen", "--set", "sha2-128f", "--seeds", &seeds, form, "-o", name]).good();
    }
    assert_eq!(place.read("k--raw").len(), 64);
    assert_eq!(place.read("k--der").len(), 84);
    let public = place.read("p.pem");
    assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, public);
    assert_eq!(place.run(&["pubkey", "k--der"]).good().stdout, public);
    assert_eq!(place.run(&["pubkey", "k--raw", "--set", "sha2-128f"]).good().stdout, public);
    assert_eq!(place.run_with(&["pubkey", "-"], &place.read("k.pem")).good().stdout, public);
    let raw = place.run(&["pubkey", "k.pem", "--raw"]).good().stdout;
    assert_eq!(raw, place.read("k--raw")[32..]);
    let der = place.run(&["pubkey", "k.pem", "--der"]).good().stdout;
    assert_eq!(der[18..], raw);
    // A public key is converted as well.
    place.write("p.raw", &raw);
    assert_eq!(place.run(&["pubkey", "p.raw", "--set", "sha2-128f"]).good().stdout, public);
    place.write("p.der", &der);
    place.run(&["pubkey", "p.der", "-o", "again.pem"]).good();
    assert_eq!(place.read("again.pem"), public);
}

/// The lines of a PEM file's only block, this wide.
fn rewrapped(pem: &str, width: usize) -> String {
    let mut lines: Vec<&str> = pem.lines().collect();
    let (begin, end) = (lines.remove(0), lines.pop().unwrap());
    let digits = lines.concat();
    let lines = digits.as_bytes().chunks(width).map(|line| format!("{}\n", str::from_utf8(line).unwrap()));
    format!("{begin}\n{}{end}\n", lines.collect::<String>())
}

/// As OpenSSL and other tools write it, as editors leave it, and with other blocks in the file.
#[test]
fn pem_is_read_as_it_is_met() {
    for scheme in [["--set", "sha2-128f"], ["--scheme", "zkdilithium"]] {
        let place = Place::new();
        let keygen = |private, public| {
            place.run(&[&["keygen"], &scheme[..], &["-o", private, "--pubout", public]].concat()).good();
            [private, public].map(|name| String::from_utf8(place.read(name)).unwrap())
        };
        let ([private, public], [other, other_public]) = (keygen("k.pem", "p.pem"), keygen("k2.pem", "p2.pem"));
        place.write("m", "message");
        place.run(&["sign", "--key", "k.pem", "m"]).good();
        let text = "SLH-DSA-SHA2-128f Private-Key:\npriv:\n    00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:\n    0f\n";
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in [&private, &public] {
            for form in [
                format!("{text}{pem}"),
                format!("{pem}{text}"),
                format!("{pem}and more"),
                format!("{text}{pem}{text}").replace('\n', "\r\n"),
                format!("\u{feff}{pem}"),
                rewrapped(pem, 76),
                rewrapped(pem, 1 << 20),
                rewrapped(pem, 3),
                pem.replace('\n', " \n  ") + "\n\n",
                format!("{certificate}{pem}{certificate}"),
                format!("{public}{private}"),
                format!("{private}{text}{public}"),
            ] {
                place.write("form.pem", &form);
                let run = place.run(&["pubkey", "form.pem"]);
                assert_eq!(run.good().text(), public, "{form}");
                place.run(&["verify", "--key", "form.pem", "m"]).good();
                let is_private = form.contains("PRIVATE KEY");
                let signed = place.run(&["sign", "--key", "form.pem", "m", "-o", "-"]);
                if is_private {
                    signed.good()
                } else {
                    signed.refuses(&["form.pem is a public key"])
                };
            }
        }
        // Which key is meant has to be clear.
        let refused = |form: &str, words: &[&str]| {
            place.write("form.pem", form);
            for command in [&["pubkey", "form.pem"][..], &["sign", "--key", "form.pem", "m", "-o", "-"]] {
                place.run(command).refuses(words);
            }
        };
        refused(&format!("{private}{other}"), &["form.pem: this PEM file has 2 blocks", "PRIVATE KEY', one is needed"]);
        refused(
            &format!("{public}{other_public}"),
            &["form.pem: this PEM file has 2 blocks", "PUBLIC KEY', one is needed"],
        );
        refused(&format!("{private}{other_public}"), &["form.pem: ", "the public key ", "is not that of its se"]);
        let cut = &private[..private.len() - 40];
        refused(cut, &["form.pem: this is damaged PEM", "has no end"]);
        refused(&format!("{cut}\n{public}"), &["form.pem: this is damaged PEM", "has no end"]);
    }
    let place = Place::with_key();
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "zk.pem"]).good();
    place.write("both.pem", [place.read("k.pem"), place.read("zk.pem")].concat());
    place.run(&["pubkey", "both.pem"]).refuses(&["both.pem: ", "keys of zkDilithium and others", "--scheme"]);
    assert_eq!(place.run(&["pubkey", "both.pem", "--scheme", "slh-dsa"]).good().stdout, place.read("p.pem"));
    place.run(&["pubkey", "both.pem", "--scheme", "zkdilithium"]).good();
}

/// Each form of a PEM file is read or refused as in every other reader. No message quotes the file.
#[test]
fn forms_of_pem_are_read_or_refused() {
    for scheme in [&["--set", "sha2-128f"][..], &["--scheme", "zkdilithium"], &["--set", "sha2-128f", "--encrypt"]] {
        let place = Place::new();
        place.write("pass", "secret");
        let pass: &[&str] = if scheme.len() > 2 { &["--passphrase-file", "pass"] } else { &[] };
        place.run(&[&["keygen"], scheme, pass, &["-o", "k.pem", "--pubout", "p.pem"]].concat()).good();
        let [private, public] = ["k.pem", "p.pem"].map(|name| String::from_utf8(place.read(name)).unwrap());
        let letters: Vec<char> = private.lines().nth(2).unwrap().chars().collect();
        let parts: Vec<String> = letters.windows(8).map(|part| part.iter().collect()).collect();
        for (form, is_private) in forms(&private, &public)
            .into_iter()
            .map(|form| (form, true))
            .chain(forms(&public, &private).into_iter().map(|form| (form, false)))
        {
            place.write("form.pem", &form.file);
            let pass = if is_private || form.file.windows(9).any(|part| part == b"ENCRYPTED") { pass } else { &[] };
            let run = place.run(&[&["pubkey", "form.pem"], pass].concat());
            match form.refused {
                None => assert_eq!(run.good().text(), public, "{}", form.name),
                Some(why) => {
                    let shown =
                        format!("{} {}", run.stderr, place.run(&[&["inspect", "form.pem"], pass].concat()).stderr);
                    assert!(shown.matches(why).count() == 2, "{}: {shown}", form.name);
                    assert!(!parts.iter().any(|part| shown.contains(part)), "{}: {shown}", form.name);
                }
            }
        }
    }
}

/// The commands in the messages mend the files.
#[cfg(unix)]
#[test]
fn commands_in_messages_mend_pem() {
    let place = Place::with_key();
    let [private, public] = ["k.pem", "p.pem"].map(|name| String::from_utf8(place.read(name)).unwrap());
    let mut mended = 0;
    for form in forms(&private, &public) {
        place.write("form.pem", &form.file);
        let run = place.run(&["pubkey", "form.pem"]);
        let Some(command) = run.stderr.split('`').nth(1).filter(|command| !command.starts_with("openssl")) else {
            continue;
        };
        place.shell(&command.replace("FILE", "form.pem").replace("NEW", "new.pem")).good();
        let read = place.run(&["pubkey", "new.pem"]);
        // Text on the line of a boundary that JSON has written is mended by hand.
        if !form.name.ends_with("JSON") {
            assert_eq!(read.good().text(), public, "{}", form.name);
            mended += 1;
        }
    }
    assert!(mended > 10, "{mended}");
}

/// A public key that verifies nothing is not handed out.
#[test]
fn the_public_key_of_a_damaged_key_is_refused() {
    let place = Place::new();
    let mut raw = place.run(&["keygen", "--set", "sha2-128f", "--raw"]).good().stdout;
    raw[63] ^= 1;
    place.write("raw", &raw);
    place.run(&["pubkey", "raw", "--set", "sha2-128f", "-o", "p.pem"]).refuses(&["raw: ", "damaged"]);
    assert_eq!(place.names(), ["raw"]);
}

#[test]
fn keys_of_the_standard_and_of_openssl_are_read() {
    let place = Place::new();
    if let Some(directory) = vectors("RFC 9909", "slh-dsa/rfc9909") {
        let private = directory.join("id-slh-dsa-sha2-128s.priv");
        let public = fs::read_to_string(directory.join("id-slh-dsa-sha2-128s.pub")).unwrap();
        let run = place.run(&["pubkey", private.to_str().unwrap()]).good();
        assert_eq!(run.text().trim(), public.trim());
    }
    if let Some(directory) = vectors("OpenSSL 3.5", "slh-dsa/ossl35_artifacts_certs_r5") {
        let mut read = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let Some(set) = name.strip_suffix("_priv.der") else { continue };
            let set = set.split("-2.16").next().unwrap();
            let run = place.run(&["inspect", "--json", path.to_str().unwrap(), "--set", set]).good();
            assert!(run.text().contains(r#""kind": "private key""#));
            read += 1;
        }
        assert_eq!(read, 12);
    }
}

#[test]
fn nothing_is_overwritten_without_force() {
    let place = Place::with_key();
    let before = (place.read("k.pem"), place.read("p.pem"));
    place.run(&["keygen", "--set", "sha2-128f", "-o", "k.pem"]).refuses(&["k.pem exists", "--force"]);
    place.run(&["keygen", "--set", "sha2-128f", "-o", "new.pem", "--pubout", "p.pem"]).refuses(&["p.pem exists"]);
    place.run(&["pubkey", "k.pem", "-o", "p.pem"]).refuses(&["p.pem exists"]);
    assert_eq!((place.read("k.pem"), place.read("p.pem")), before);
    assert_eq!(place.names(), ["k.pem", "p.pem"]);
    place.run(&["keygen", "--set", "sha2-128f", "-o", "k.pem", "--pubout", "p.pem", "--force"]).good();
    assert_ne!(place.read("k.pem"), before.0);
    assert_eq!(place.run(&["pubkey", "k.pem"]).good().stdout, place.read("p.pem"));
}

#[test]
fn bad_arguments_of_keygen() {
    let place = Place::new();
    let keygen = |args: &[&str]| place.run(&[&["keygen"], args].concat());
    // Into a pipe, the private key goes as it is.
    assert!(keygen(&[]).good().text().starts_with("-----BEGIN PRIVATE KEY-----\n"));
    keygen(&["--set", "SLH-DSA-SHA2-128x"]).refuses(&["'SLH-DSA-SHA2-128x'", "did you mean 'SLH-DSA-SHA2-128s'?"]);
    keygen(&["--set", "shake256f"]).refuses(&["'shake256f'", "did you mean 'SHAKE-256f'?", "SLH-DSA-SHA2-192s"]);
    keygen(&["--set", "sha2-128f", "--seeds", "00"]).refuses(&["1 bytes", "SLH-DSA-SHA2-128f takes 48", "SK.prf"]);
    keygen(&["--set", "sha2-128f", "--seeds", "xy"]).refuses(&["hexadecimal"]);
    keygen(&["--set", "sha2-128f", "-o", "a/b.pem"]).refuses(&["cannot write to a", "no such", "make the directory"]);
    keygen(&["--set", "sha2-128f", "-o", "."]).refuses(&[". is a directory"]);
    keygen(&["--set", "sha2-128f", "-o", "k", "--pubout", "k"]).refuses(&["both keys would go to k"]);
    keygen(&["--set", "sha2-128f", "--pubout", "-"]).refuses(&["both keys would go to standard output"]);
    keygen(&["--set", "sha2-128f", "--der", "--raw"]).refuses(&["--der", "--raw"]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_pair_is_made_by_its_name() {
    let place = Place::new();
    let keygen = |args: &[&str]| place.run(&[&["keygen"], args].concat());
    let run = keygen(&["release"]).good();
    for words in
        ["wrote release.key: a private key of SLH-DSA-SHA2-128s", "wrote release.pub", "choose --set SLH-DSA-SHA2-128f"]
    {
        assert!(run.stderr.contains(words) && run.stdout.is_empty(), "{}", run.stderr);
    }
    assert_eq!(place.run(&["pubkey", "release.key"]).good().stdout, place.read("release.pub"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(place.path("release.key")).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Nothing is replaced, and no half of a pair is made.
    let before = (place.read("release.key"), place.read("release.pub"));
    let run = keygen(&["release"]).refuses(&["release.key exists", "choose another name, or move the old pair away"]);
    assert!(!run.stderr.contains("--force"), "NAME and --force exclude each other");
    keygen(&["release", "--force"]).refuses(&["--force"]);
    place.write("half.pub", "mine");
    keygen(&["half"]).refuses(&["half.pub exists", "move the old pair away"]);
    keygen(&["no/such"]).refuses(&["cannot write to no"]);
    assert_eq!(
        (place.read("release.key"), place.read("release.pub"), place.read("half.pub")),
        (before.0, before.1, b"mine".to_vec())
    );
    for other in [&["-o", "x"][..], &["--pubout", "x"], &["--count", "2", "--table", "x"]] {
        keygen(&[&["more"], other].concat()).refuses(&["cannot be used with"]);
    }
    // Words that were meant for something else.
    keygen(&["sha2_128f"]).refuses(&["SLH-DSA-SHA2-128f is a parameter set", "--set SLH-DSA-SHA2-128f"]);
    keygen(&["new.key"]).refuses(&["new.key is the name of one file", "`hypergrove keygen new`"]);
    for wrong in ["-", "a/", ".."] {
        keygen(&[wrong]).refuses(&["is no name of a pair of keys"]);
    }
    let text = String::from_utf8(place.read("release.key")).unwrap();
    let word: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    keygen(&[&word]).refuses(&["this looks like a private key"]).shows_no(&word);
    assert_eq!(place.names(), ["half.pub", "release.key", "release.pub"]);
    // With what else there is, and sets in every spelling.
    std::fs::create_dir(place.path("keys")).unwrap();
    place.write("pass", "correct horse\n");
    let run = keygen(&["keys/safe", "--set", "SLH_DSA_SHA2_128F", "--encrypt", "--passphrase-file", "pass"]).good();
    assert!(
        run.stderr.contains("an encrypted private key of SLH-DSA-SHA2-128f") && !run.stderr.contains("choose"),
        "{}",
        run.stderr
    );
    place.run(&["pubkey", "keys/safe.key", "--passphrase-file", "pass"]).good();
    keygen(&["d", "--der", "--set", "shake_128F", "--json"]).good();
    let run = place.run(&["inspect", "d.pub"]).good();
    assert!(run.text().contains("SLH-DSA-SHAKE-128f"), "{}", run.text());
    assert!(!keygen(&["q", "-q"]).good().stderr.contains("choose"));
    keygen(&["z", "--scheme", "zkdilithium"]).good();
    place.run(&["sign", "--key", "z.key", "pass"]).good();
    place.run(&["verify", "--key", "z.pub", "pass"]).good();
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_a_private_key_only_with_output_to_it() {
    let place = Place::new();
    if std::process::Command::new("script").arg("--version").output().is_err() {
        println!("skipped: keys on a terminal: no script(1) (util-linux)");
        return;
    }
    let typed = |args: &str| {
        place.shell(&format!("script -qec \"$H keygen {args}\" typescript; code=$?; cat typescript; exit $code"))
    };
    let run = typed("--set sha2-128f").exits(2);
    assert!(run.text().contains("would be shown on the terminal") && !run.text().contains("BEGIN"), "{}", run.text());
    assert!(typed("--set sha2-128f -o -").good().text().contains("-----BEGIN PRIVATE KEY-----"));
    typed("release").good();
}

#[test]
fn many_keys_are_a_table() {
    let place = Place::new();
    let keygen = |more: &[&str]| place.run(&[&["keygen", "--set", "sha2-128f"], more].concat());
    // More than one buffer's lines, and one.
    for (count, set) in [("1000", "sha2-128f"), ("1", "SLH-DSA-SHAKE-256f")] {
        let words = ["keygen", "--set", set, "--count", count, "--table", "t", "--pubout", "p", "--force"];
        let run = place.run(&words).good();
        assert!(run.stderr.contains("wrote t: ") && run.stderr.contains("their public keys"), "{}", run.stderr);
        let (table, public) = (place.read("t"), place.read("p"));
        let (table, public) = (str::from_utf8(&table).unwrap(), str::from_utf8(&public).unwrap());
        let (columns, table) = table.split_once('\n').unwrap();
        assert_eq!(columns, "# fingerprint\tpublic key\tprivate key");
        assert_eq!(table.lines().count().to_string(), count);
        let mut keys = std::collections::BTreeSet::new();
        for (line, shown) in table.lines().zip(public.lines()) {
            let [fingerprint, word, private] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(shown, format!("{fingerprint}\t{word}"));
            assert!(keys.insert(private) && fingerprint.starts_with("SHA256:"));
        }
        assert_eq!((public.lines().count(), table.ends_with('\n')), (keys.len(), true));
        // The last key, as a file of its own.
        let [fingerprint, word, private] = table.lines().last().unwrap().split('\t').collect::<Vec<_>>()[..] else {
            panic!("three cells")
        };
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{private}\n-----END PRIVATE KEY-----\n");
        place.write("k.pem", pem);
        assert!(place.run(&["inspect", "k.pem"]).good().text().contains(fingerprint));
        place.run(&["sign", "--key", "k.pem", "k.pem", "-o", "s", "--force"]).good();
        place.run(&["verify", "--public-key", word, "k.pem", "-s", "s"]).good();
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(place.path("t")).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let run = keygen(&["--count", "2", "--table", "h", "--hash-slh-dsa"]).good();
    assert!(run.stdout.is_empty());
    keygen(&["--count", "2", "--table", "t"]).refuses(&["t exists", "--force"]);
    keygen(&["--count", "2", "--table", "n", "--pubout", "n"]).refuses(&["both tables would go to n"]);
    keygen(&["--count", "2", "--table", "-"]).refuses(&["standard output is no regular file"]);
    keygen(&["--count", "2", "--table", "n", "--pubout", "absent/p"]).refuses(&["absent"]);
    keygen(&["--count", "2", "--table", "n", "--encrypt"]).refuses(&["cannot be used with"]);
    place.write("pass", "secret");
    keygen(&["--count", "2", "--table", "n", "--passphrase-file", "pass"]).refuses(&["no key is to be encrypted"]);
    keygen(&["--count", "0", "--table", "n"]).refuses(&["--count"]);
    keygen(&["--count", "2"]).refuses(&["--table"]);
    keygen(&["--table", "n"]).refuses(&["--count"]);
    place
        .run(&["keygen", "--scheme", "zkdilithium", "--count", "2", "--table", "n"])
        .refuses(&["--count", "zkDilithium"]);
    assert!(!place.path("n").exists());
}

/// Whoever takes one file for another sees which line is wrong, and neither a terminal nor a log gets a key.
#[test]
#[expect(clippy::too_many_lines, reason = "one folder with every file that can be taken for another")]
fn private_keys_are_shown_by_no_command_that_reads_lists() {
    let place = Place::with_key();
    place.run(&["keygen", "--set", "sha2-128f", "--count", "2", "--table", "keys.tsv"]).good();
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    let seeds = "5a".repeat(48);
    for (form, file) in [("--der", "k.der"), ("--raw", "k.raw")] {
        place.run(&["keygen", "--set", "sha2-128f", "--seeds", &seeds, form, "-o", file]).good();
    }
    let table = String::from_utf8(place.read("keys.tsv")).unwrap();
    let cell = |line: usize, column: usize| table.lines().nth(line).unwrap().split('\t').nth(column).unwrap();
    let (public, private) = (cell(1, 1), cell(1, 2));
    let der = Base64::decode_vec(private).unwrap();
    let (hexadecimal, raw) = (hex::encode(&der), hex::encode(&der[20..]));
    assert_eq!(der.len() - 20, 64);
    place.write("m", "message");
    place.write("words", format!("m\n{private}\n"));
    place.write("hex", format!("m\n{hexadecimal}\n"));
    place.write("raw", format!("m\n{raw}\n"));
    place.write("base64", format!("m\n{}\n", Base64::encode_string(&der[20..])));
    place.run(&["keygen", "--scheme", "zkdilithium", "--raw", "-o", "z.raw"]).good();
    place.write("zk", format!("m\n{}\n", Base64::encode_string(&place.read("z.raw"))));
    place.write("rawsums", format!("{}  m\n{}  {raw}\n", "0".repeat(64), "0".repeat(64)));
    place.write("cells", format!("k.pem\tm\ts\nk.pem\tm\t{private}\n"));
    place.write("raws", format!("k.pem\tm\ts\nk.pem\tm\t{raw}\n"));
    place.write("signers", format!("alice {public}\nbob {private}\n"));
    place.write("options", format!("alice {public}\nbob {private} {public}\n"));
    place.write("sums", format!("{}  m\n{}  {private}\n", "0".repeat(64), "0".repeat(64)));
    // A signed list of sums.
    place.run(&["sign", "--key", "k.pem", "sums"]).good();
    let secret: Vec<String> = [private, hexadecimal.as_str(), raw.as_str()].map(|key| key[24..56].to_owned()).into();
    let shows_nothing = |args: &[&str], file: &str| {
        let run = place.run(&[args, &[file]].concat());
        assert_ne!(run.code, Some(0), "{args:?} {file}");
        let shown = format!("{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
        assert!(!secret.iter().any(|part| shown.contains(part)), "{args:?} {file}: {shown}");
        // Words of other keys: each file has a beginning of its own.
        let text = String::from_utf8_lossy(&place.read(file)).into_owned();
        for word in text.split_whitespace().filter(|word| word.len() > 60 && word.is_ascii() && *word != public) {
            assert!(!shown.contains(&word[32..60]), "{args:?} {file}: {shown}");
        }
        run
    };
    let lists: [&[&str]; 5] = [
        &["sign", "--key", "k.pem", "--list"],
        &["verify", "--key", "p.pem", "--list"],
        &["verify", "--key", "p.pem", "--json", "--list"],
        &["hash", "--list"],
        &["hash", "--check", "--warn"],
    ];
    let tables: [&[&str]; 4] = [
        &["sign", "--table"],
        &["verify", "--table"],
        &["verify", "--json", "--table"],
        &["verify", "m", "--allowed-signers"],
    ];
    let files =
        [("keys.tsv", 2, 121), ("words", 2, 1), ("hex", 2, 1), ("zk", 2, 1), ("cells", 2, 9), ("signers", 2, 5)];
    for (file, line, column) in
        files.into_iter().chain([("k.pem", 1, 1), ("z.pem", 1, 1), ("k.der", 1, 1), ("k.raw", 1, 1)])
    {
        for command in lists.into_iter().chain(tables) {
            let run = shows_nothing(command, file);
            let want = if command.contains(&"--allowed-signers") {
                format!("{file}: line {line}: column {column} looks like a private key")
            } else {
                format!("{file}: line {line}, column {column} looks like a private key")
            };
            assert!(run.stdout.is_empty(), "{command:?} {file}: {}", String::from_utf8_lossy(&run.stdout));
            run.says(&[want.as_str()]);
        }
    }
    shows_nothing(&["verify", "m", "--allowed-signers"], "options").says(&["options: line 2: column 5 looks like"]);
    // A raw key has no form of its own: where files are named, it is one unless there is such a file.
    for file in ["raw", "base64"] {
        for command in &lists[..4] {
            shows_nothing(command, file).refuses(&[&*format!("{file}: line 2, column 1 looks like a private key")]);
        }
    }
    shows_nothing(lists[4], "rawsums").says(&["rawsums: line 2, column 67 looks like a private key"]);
    for command in &tables[..3] {
        shows_nothing(command, "raws").refuses(&["raws: line 2, column 9 looks like a private key"]);
    }
    let check = ["verify", "--key", "p.pem", "--manifest", "sums"];
    place.run(&check).refuses(&["sums: line 2, column 67 looks like a private key"]);
    // Everything else that reads files says what it wants, and nothing of what it got.
    for file in ["keys.tsv", "words", "hex", "k.pem", "k.der"] {
        for command in [
            &["acvp"][..],
            &["kat"],
            &["report", "-o", "page"],
            &["verify", "--key", "p.pem", "m", "--signature"],
            &["verify", "--key", "p.pem", "--cms"],
            &["verify", "--certificate"],
            &["verify", "m", "--public-key"],
        ] {
            shows_nothing(command, file);
        }
    }
    // Names of files that look like keys are names: of sums, and with a path.
    let (name, sum) = (format!("./{hexadecimal}"), "ab".repeat(64));
    place.write(&hexadecimal, "a file");
    place.write(&sum, "a file");
    place.write("list", format!("{name}\n{sum}\nm\n"));
    assert_eq!(place.run(&["hash", "--list", "list"]).good().text().lines().count(), 3);
    place.write("table", format!("k.pem\t{name}\tnew.sig\n"));
    place.run(&["sign", "--table", "table"]).good();
    place.run(&["sign", "--key", "k.pem", &sum]).good();
    place.write("list", format!("{sum}\n"));
    place.run(&["verify", "--key", "p.pem", "--list", "list"]).good();
}

#[test]
fn keys_of_draft_sets_are_raw() {
    let place = Place::new();
    let run = place.run(&["keygen", "--set", "SLH-DSA-SHA2-128-24", "-o", "k.pem"]);
    run.refuses(&["SLH-DSA-SHA2-128-24 has no object identifier yet", "--raw"]);
    place.write("raw", [7; 32]);
    assert_eq!(place.run(&["pubkey", "raw", "--set", "SHA2-128-24", "--raw"]).good().stdout, [7; 32]);
    place.run(&["pubkey", "raw", "--set", "SHA2-128-24"]).refuses(&["no object identifier yet", "--raw"]);
}

/// Each is refused by every command that reads keys.
#[test]
fn bad_keys_are_named() {
    let place = Place::with_key();
    let refused = |name: &str, more: &[&str], words: &[&str]| {
        let words = [&[name], words].concat();
        place.run(&[&["pubkey", name], more].concat()).refuses(&words);
        place.run(&[&["sign", "--key", name, "p.pem"], more].concat()).refuses(&words);
        place.run(&[&["verify", "--key", name, "p.pem"], more].concat()).refuses(&words);
        assert!(!place.path("p.pem.sig").exists());
    };
    let pem = place.read("k.pem");
    let der = {
        let seeds: String = (0..48).map(|i| format!("{i:02x}")).collect();
        place.run(&["keygen", "--set", "sha2-128f", "--seeds", &seeds, "--der"]).good().stdout
    };
    let public = place.run(&["pubkey", "k.pem", "--der"]).good().stdout;
    for (name, bytes, words) in [
        ("empty", &b""[..], &["empty"][..]),
        ("cut.der", &der[..83], &["PKCS#8", "cut short"]),
        ("cut-public.der", &public[..49], &["SPKI", "cut short"]),
        ("long.der", &[&der[..], b"\0"].concat(), &["PKCS#8", "bytes too many"]),
        ("long-public.der", &[&public[..], b"\0"].concat(), &["SPKI", "bytes too many"]),
        ("cut.pem", &pem[..100], &["PEM"]),
        ("no-end.pem", &pem[..pem.len() - 26], &["PEM"]),
        (
            "other-end.pem",
            &String::from_utf8(pem.clone()).unwrap().replacen("END PRIVATE", "END PUBLIC", 1).into_bytes(),
            &["PEM", "ends as another"],
        ),
        ("no-end-two.pem", &[&pem[..pem.len() - 26], &pem[..]].concat(), &["PEM", "has no end"]),
        ("two.pem", &[&pem[..], &pem[..]].concat(), &["PEM", "2 blocks 'PRIVATE KEY'", "file of its own"]),
        ("text", b"no key at all", &["13 bytes"]),
        (
            "raw",
            &[7; 64],
            &["64 raw bytes", "--set", "private key of SLH-DSA-SHA2-128s", "public key of SLH-DSA-SHA2-256s"],
        ),
        ("raw32", &[7; 32], &["32 raw bytes", "--set", "public key of SLH-DSA-SHA2-128s"]),
        ("sequence", &[0x30; 64], &["--set"]),
        ("huge", &vec![7; (1 << 20) + 1], &["more than 1,048,576 bytes"]),
        ("cert.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &["this is not a certificate"]),
        (
            "locked.pem",
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            &["not an encrypted PKCS#8 private key"],
        ),
        (
            "ssh.pem",
            b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            &["the format of OpenSSH"],
        ),
    ] {
        place.write(name, bytes);
        refused(name, &[], words);
    }
    // One byte inside the object identifier: an unknown algorithm, or another set with keys of another length.
    let at = der.windows(8).position(|bytes| bytes == [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03]).unwrap() + 8;
    for (arc, words) in [(99, &["2.16.840.1.101.3.4.3.99"][..]), (23, &["SLH-DSA-SHA2-192f", "96", "64"])] {
        let mut bytes = der.clone();
        bytes[at] = arc;
        place.write("oid.der", bytes);
        refused("oid.der", &[], words);
    }
    refused("k.pem", &["--set", "shake-128f"], &["SLH-DSA-SHA2-128f", "--set says SLH-DSA-SHAKE-128f"]);
    refused("raw", &["--set", "sha2-192f"], &["64 bytes", "SLH-DSA-SHA2-192f", "96", "48"]);
    refused("missing", &[], &["no such file"]);
    refused(".", &[], &["directory"]);
    place.run(&["sign", "--key", "p.pem", "k.pem"]).refuses(&["p.pem is a public key", "private"]);
}

#[test]
fn inspection_shows_every_part_and_no_secret() {
    let place = Place::with_key();
    let raw = place.run(&["keygen", "--set", "sha2-128f", "--raw", "--seeds", &"5a".repeat(48)]).good().stdout;
    place.write("raw", &raw);
    for (file, set) in [("k.pem", None), ("raw", Some("sha2-128f"))] {
        let set = set.map_or(vec![], |set| vec!["--set", set]);
        for json in [&[][..], &["--json"]] {
            let run = |more: &[&str]| place.run(&[&["inspect", file], &set[..], json, more].concat()).good();
            let (hidden, shown) = (run(&[]), run(&["--show-secrets"]));
            let secret = if file == "raw" { "5a".repeat(16) } else { "000102030405060708090a0b0c0d0e0f".into() };
            assert!(hidden.text().contains("SK.prf") && hidden.text().contains("PK.root"));
            // The raw key's public seed is like its secrets.
            assert_eq!(hidden.text().matches(&secret).count(), usize::from(file == "raw"), "{}", hidden.text());
            assert_eq!(shown.text().matches(&secret).count(), if file == "raw" { 3 } else { 1 });
        }
    }
    let text = place.run(&["inspect", "k.pem"]).good();
    for word in ["private key of SLH-DSA-SHA2-128f", "PEM, 84 bytes", "2.16.840.1.101.3.4.3.21", "PrivateKeyInfo"] {
        assert!(text.text().contains(word), "{word}: {}", text.text());
    }

    place.run(&["sign", "--key", "k.pem", "p.pem"]).good();
    let json = place.run(&["inspect", "--json", "p.pem.sig"]).good();
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["sets"], serde_json::json!(["SLH-DSA-SHA2-128f", "SLH-DSA-SHAKE-128f"]));
    let (signature, mut end) = (place.read("p.pem.sig"), 0);
    for part in report["parts"].as_array().unwrap() {
        let (offset, length) = (part["offset"].as_u64().unwrap() as usize, part["length"].as_u64().unwrap() as usize);
        assert_eq!(offset, end, "the parts follow each other");
        end += length;
        assert_eq!(part["hex"], hex::encode(&signature[offset..end]));
    }
    assert_eq!(end, 17_088);
    assert_eq!(report["parts"].as_array().unwrap().len(), 1 + 2 * 33 + 2 * 22);
    let one = place.run(&["inspect", "--set", "shake-128f", "p.pem.sig"]).good();
    assert!(one.text().contains("signature of SLH-DSA-SHAKE-128f\n"));
    place
        .run(&["inspect", "--set", "sha2-128s", "p.pem.sig"])
        .refuses(&["17,088 bytes", "SLH-DSA-SHA2-128s has 7,856"]);
    place.write("cut.sig", &signature[1..]);
    place.run(&["inspect", "cut.sig"]).refuses(&["cut.sig", "17087 bytes"]);
    place.run(&["inspect", "."]).refuses(&["directory"]);
    place.run(&["inspect", "missing"]).refuses(&["missing", "no such file"]);
}

/// How fast a table of keys is written, compared with the rate at which the library makes keys, in turns.
#[test]
#[ignore = "a measurement, which takes minutes: run it alone, with --ignored --nocapture"]
fn tables_of_keys_against_the_library() {
    const PAIRS: usize = 11;
    let count: usize = std::env::var("HYPERGROVE_KEYS").map_or(100_000, |count| count.parse().unwrap());
    let place = Place::new();
    let set: &'static Params = "SLH-DSA-SHA2-128f".parse().unwrap();
    let engine = Engine::builder().build().unwrap();
    let library = |count: usize| {
        let start = Instant::now();
        engine.generate_batch(set, count, |_, key| drop(black_box(key))).unwrap();
        start.elapsed()
    };
    let count_text = count.to_string();
    let tool = || {
        let start = Instant::now();
        place.run(&["keygen", "--set", set.name, "--count", &count_text, "--table", "keys", "--force", "-q"]).good();
        start.elapsed()
    };
    library(1_000);
    let mut pairs: Vec<(f64, Duration, Duration)> = (0..PAIRS)
        .map(|_| {
            let (tool, library) = (tool(), library(count));
            (library.as_secs_f64() / tool.as_secs_f64(), tool, library)
        })
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (share, tool, library) in &pairs {
        println!("checked: {:.1} %: the tool takes {tool:?}, the library {library:?}", 100.0 * share);
    }
    let median = pairs[PAIRS / 2].0;
    println!("checked: the table has {:.1} % of the library's rate, {count} keys", 100.0 * median);
    assert_eq!(fs::read_to_string(place.path("keys")).unwrap().lines().count(), 1 + count);
}
