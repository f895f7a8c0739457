//! Signatures in envelopes: written, recognised, told apart where they do not fit, and never valid as bare ones.

use crate::place::Place;
use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slh_dsa::{Sha2_128s, Signature, VerifyingKey};
use std::fs;

const SIGN: [&str; 5] = ["sign", "--key", "k.pem", "--armor", "--force"];
const VERIFY: [&str; 4] = ["verify", "--key", "p.pem", "m"];

fn place() -> Place {
    let place = Place::with_key();
    place.write("m", "message");
    place
}

/// The lines of the header, the context that is signed, and the bare signature: as anybody would take them out.
fn opened(text: &str) -> (String, String, Vec<u8>) {
    let lines: Vec<_> = text.lines().collect();
    let blank = lines.iter().position(|line| line.is_empty()).unwrap();
    let header: String = lines[1..blank].iter().map(|line| format!("{line}\n")).collect();
    let context = [b"hypergrove-envelope-v1:", &Sha256::digest(&header)[..]].concat();
    let letters = lines[blank + 1..lines.len() - 1].concat();
    (header, hex::encode(context), Base64::decode_vec(&letters).unwrap())
}

#[test]
fn an_envelope_is_no_bare_signature() {
    let place = place();
    let run = place.run(&[&SIGN[..], &["m", "--context", "release", "--comment", "version 1.0"]].concat()).good();
    assert_eq!(run.stderr, "wrote m.sig: a signature of SLH-DSA-SHA2-128f\n");
    let text = String::from_utf8(place.read("m.sig")).unwrap();
    let (header, context, bare) = opened(&text);
    let inspected = place.run(&["inspect", "p.pem", "--json"]).good();
    let key = serde_json::from_str::<Value>(inspected.text()).unwrap()["fingerprint"].as_str().unwrap().to_owned();
    let want = "Version: 1\nSet: SLH-DSA-SHA2-128f\nMode: pure\nContext: release\n";
    assert_eq!(header, format!("{want}Key: {key}\nComment: version 1.0\n"));
    // Recognised, with the comment.
    let run = place.run(&[&VERIFY[..], &["--context", "release"]].concat()).good();
    assert_eq!((run.text(), run.stderr.as_str()), ("m: OK\n", "m: comment: version 1.0\n"));
    let run = place.run(&[&VERIFY[..], &["--context", "release", "--json"]].concat()).good();
    let line: Value = serde_json::from_str(run.text().lines().next().unwrap()).unwrap();
    assert_eq!((&line["verdict"], &line["comment"]), (&json!("ok"), &json!("version 1.0")));
    // The signature inside is valid with the context over the header alone.
    place.write("bare", &bare);
    let bare = |more: &[&str]| place.run(&[&VERIFY[..], &["--signature", "bare"], more].concat());
    bare(&["--context-hex", &context]).good();
    bare(&["--context", "release"]).exits(1);
    bare(&[]).exits(1);
    // And a bare signature is not valid in an envelope.
    place.run(&["sign", "--key", "k.pem", "m", "--context", "release", "-o", "other"]).good();
    let mut forged = place.read("other");
    forged = [
        text.split("\n\n").next().unwrap().as_bytes(),
        b"\n\n",
        (Base64::encode_string(&forged) + "\n").as_bytes(),
        b"-----END HYPERGROVE SIGNATURE-----\n",
    ]
    .concat();
    place.write("m.sig", forged);
    place.run(&[&VERIFY[..], &["--context", "release"]].concat()).exits(1);
    // Nobody else signs with such a context.
    place
        .run(&["sign", "--key", "k.pem", "m", "-o", "x", "--context-hex", &context])
        .refuses(&["kept for signatures in envelopes"]);
}

#[test]
fn a_wrong_key_a_wrong_context_and_a_changed_file_are_told_apart() {
    let place = place();
    place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem", "--pubout", "o.pub"]).good();
    place.run(&["keygen", "--set", "sha2-128f", "--hash-slh-dsa", "-o", "h.pem", "--pubout", "h.pub"]).good();
    let sign = |more: &[&str]| place.run(&[&SIGN[..], &["m"], more].concat()).good();
    let fails = |args: &[&str], says: &str| {
        let run = place.run(&[&["verify", "m"], args].concat()).exits(1);
        assert_eq!(run.text(), "m: FAILED\n");
        assert!(run.stderr.starts_with("diagnosis: m: ") && run.stderr.contains(says), "{says}: {}", run.stderr);
    };
    sign(&["--context", "release"]);
    let release = ["--key", "p.pem", "--context", "release"];
    fails(&["--key", "o.pub", "--context", "release"], "wrong key: the envelope is of the key SHA256:");
    fails(&["--key", "h.pub", "--context", "release"], "wrong key");
    fails(&["--key", "p.pem"], "wrong context: the envelope's is 'release'");
    fails(&["--key", "p.pem", "--context", "nightly"], "wrong context: the envelope's is 'release'");
    fails(&[&release[..], &["--prehash", "SHA2-256"]].concat(), "wrong mode: the envelope is of pure mode");
    place.run(&[&VERIFY[..], &release[2..]].concat()).good();
    // The file, or what the envelope says of it.
    place.write("m", "massage");
    fails(&release, "changed content: key and context are right");
    fails(&[&release[..], &["--diagnose"]].concat(), "changed content: key and context are right");
    place.write("m", "message");
    let text = String::from_utf8(place.read("m.sig")).unwrap();
    place.write("m.sig", text.replace("\n\n", "\nComment: planted\n\n"));
    fails(&release, "changed content");
    place.write("m.sig", text.replace("Mode: pure", "Mode: pre-hash SHA2-256"));
    fails(&release, "changed content");
    place.write("m.sig", text.replace("Context: release", "Context: nightly"));
    fails(&release, "wrong context: the envelope's is 'nightly'");
    fails(&["--key", "p.pem", "--context", "nightly"], "changed content");
    // Pre-hash: the envelope names it.
    sign(&["--prehash", "SHA3-256", "--context-hex", "00ff"]);
    place.run(&[&VERIFY[..], &["--context-hex", "00ff"]].concat()).good();
    place.run(&[&VERIFY[..], &["--context-hex", "00ff", "--prehash", "SHA3-256"]].concat()).good();
    fails(
        &["--key", "p.pem", "--context-hex", "00ff", "--prehash", "SHA2-256"],
        "wrong mode: the envelope is of the pre-hash SHA3-256",
    );
    fails(&["--key", "p.pem"], "wrong context: the envelope's is 00ff in hexadecimal");
    sign(&[]);
    fails(&release, "wrong context: the envelope's is empty");
    // JSON has it too.
    let run = place.run(&[&["verify", "m", "--json"], &release[..]].concat()).exits(1);
    let line: Value = serde_json::from_str(run.text().lines().next().unwrap()).unwrap();
    assert!(line["diagnosis"].as_str().unwrap().contains("wrong context"), "{line}");
}

/// Whose envelope it is is known, and why the list does not allow it.
#[test]
fn an_envelope_of_a_signer_who_is_left_out_says_who_and_why() {
    let place = place();
    place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem", "--pubout", "o.pub"]).good();
    let [bob, carol] = ["p.pem", "o.pub"].map(|key| place.run(&["pubkey", key, "--line"]).good().text().to_owned());
    place.run(&[&SIGN[..], &["m", "--context", "release"]].concat()).good();
    let verify = |conditions: &str, context: &str, more: &[&str]| {
        place.write("signers", format!("carol {carol}bob {conditions} {bob}"));
        let args = ["verify", "m", "--allowed-signers", "signers", "--context", context];
        place.run(&[&args, more].concat())
    };
    verify("namespace=release", "release", &[]).good();
    for (conditions, context, why) in [
        ("namespace=nightly namespace=other", "release", "bob: the key is only for the context 'nightly' or 'other'"),
        ("namespace=release", "nightly", "bob: the key is only for the context 'release'"),
        ("valid-before=2020-01-01", "release", "bob: the key was valid only before 2020-01-01"),
        ("valid-after=9999-12-31", "release", "bob: the key is valid only from 9999-12-31 on"),
    ] {
        let run = verify(conditions, context, &[]).exits(1);
        assert_eq!(run.text(), "m: FAILED\n");
        let begins = "diagnosis: m: signer left out: the envelope is of the key SHA256:";
        assert!(run.stderr.starts_with(begins) && run.stderr.contains(why), "{why}: {}", run.stderr);
        let run = verify(conditions, context, &["--json"]).exits(1);
        let line: Value = serde_json::from_str(run.text().lines().next().unwrap()).unwrap();
        assert!(line["diagnosis"].as_str().unwrap().ends_with(why), "{line}");
        // Alone on the list, nobody is left.
        place.write("signers", format!("bob {conditions} {bob}"));
        let run = place.run(&["verify", "m", "--allowed-signers", "signers", "--context", context]);
        run.refuses(&["signers allows nobody to sign", why]);
    }
    // A key that the list does not name is another one, and who has two lines may sign by one of them.
    place.write("signers", format!("carol {carol}"));
    let run = place.run(&["verify", "m", "--allowed-signers", "signers", "--context", "release"]).exits(1);
    assert!(run.stderr.contains("wrong key: the envelope is of the key SHA256:"), "{}", run.stderr);
    place.write("signers", format!("bob namespace=other {bob}bob namespace=release {bob}"));
    place.run(&["verify", "m", "--allowed-signers", "signers", "--context", "release"]).good();
}

#[test]
fn envelopes_of_many_files_and_of_all_kinds_of_messages() {
    let place = place();
    for name in ["a", "b", "c"] {
        place.write(name, name);
    }
    place.write("long", vec![7; 3_000_000]);
    place.run(&[&SIGN[..], &["a", "b", "long", "--prehash", "SHAKE-256", "--comment", "größer"]].concat()).good();
    place.run(&["sign", "--key", "k.pem", "c"]).good();
    place.write("signers", format!("alice {}", place.run(&["pubkey", "p.pem", "--line"]).good().text()));
    let all = ["verify", "a", "b", "c", "long"];
    let run = place.run(&[&all[..], &["--allowed-signers", "signers"]].concat()).good();
    assert_eq!(run.text(), "a: OK (alice)\nb: OK (alice)\nc: OK (alice)\nlong: OK (alice)\n");
    assert!(run.stderr.contains("long: comment: größer"), "{}", run.stderr);
    place.write("b", "changed");
    fs::remove_file(place.path("c.sig")).unwrap();
    let run = place.run(&[&all[..], &["--key", "p.pem", "-q"]].concat()).exits(2);
    assert_eq!(run.text(), "b: FAILED\nc: ERROR\n");
    // Standard input and output.
    let signature = place.run_with(&["sign", "--key", "k.pem", "--armor", "-"], b"message").good().stdout;
    assert!(signature.starts_with(b"-----BEGIN HYPERGROVE SIGNATURE-----\n"));
    place.write("s", &signature);
    place.run_with(&["verify", "--key", "p.pem", "-", "--signature", "s"], b"message").good();
    place.run_with(&["verify", "--key", "p.pem", "m", "--signature", "-"], &signature).good();
    place.run_with(&["verify", "--key", "p.pem", "-", "--signature", "s"], b"massage").exits(1);
    // A key of HashSLH-DSA, and a digest that was computed elsewhere.
    place.run(&["keygen", "--set", "shake-128f", "--hash-slh-dsa", "-o", "h.pem", "--pubout", "h.pub"]).good();
    place.run(&["sign", "--key", "h.pem", "--armor", "m"]).good();
    assert!(String::from_utf8(place.read("m.sig")).unwrap().contains("\nMode: pre-hash SHAKE-128\n"));
    place.run(&["verify", "--key", "h.pub", "--key", "p.pem", "m"]).good();
    let digest = hex::encode(Sha256::digest("message"));
    let digest = ["--digest", &digest, "--prehash", "SHA2-256"];
    place.run(&[&SIGN[..], &digest, &["-o", "m.sig"]].concat()).good();
    place.run(&VERIFY).good();
    place.run(&[&["verify", "--key", "p.pem", "--signature", "m.sig"], &digest[..]].concat()).good();
    // As mail leaves it.
    let text = String::from_utf8(place.read("m.sig")).unwrap();
    place.write("m.sig", format!("\u{feff}{}\r\n\r\n", text.replace('\n', "  \r\n")));
    place.run(&VERIFY).good();
}

#[test]
fn hostile_envelopes_and_wrong_options_are_one_line() {
    let place = place();
    place.run(&[&SIGN[..], &["m", "--comment", "c"]].concat()).good();
    let text = String::from_utf8(place.read("m.sig")).unwrap();
    for (text, words) in [
        (text.replace("Version: 1", "Version: 9"), &["m.sig: line 2: ", "version 1"][..]),
        (text.replace("SHA2-128f", "SHA2-512f"), &["m.sig: line 3: "]),
        (text.replace("SHA2-128f", "SHA2-192f"), &["has 35664"]),
        (text.replace("Comment: c", "Command: rm"), &["version 1 has no field 'Command'"]),
        (text.replace("Comment: c", &format!("Comment: {}", "x".repeat(100_000))), &["at most 512"]),
        (text.replace("\n\n", &"\nx".repeat(30_000)), &["is no field"]),
        (text.clone() + &text, &["more after the end"]),
        (text.clone() + &"\n".repeat(1 << 20), &["at most 131072 bytes"]),
        (text[..5_000].into(), &["cut short"]),
        (text[..48].into(), &["without the field 'Set'"]),
    ] {
        place.write("m.sig", text);
        let run = place.run(&VERIFY).exits(2).says(words);
        assert_eq!(run.text(), "m: ERROR\n");
        assert!(run.stderr.lines().count() == 2 && run.stderr.len() < 500, "{}", run.stderr);
        place.run(&["inspect", "m.sig"]).exits(2);
    }
    place.write("m.sig", &text);
    place
        .run(&[&VERIFY[..], &["--internal"]].concat())
        .exits(2)
        .says(&["the internal interface does not have", "leave --internal out"]);
    let before = place.names();
    let sign = |args: &[&str]| place.run(&[&["sign", "m", "-o", "new"], args].concat());
    sign(&["--key", "k.pem", "--comment", "c"]).refuses(&["--armor"]);
    for more in [["--armor", "--internal"], ["--armor", "--skip-existing"]] {
        sign(&[&["--key", "k.pem"], &more[..]].concat()).refuses(&["--armor", more[1]]);
    }
    place.run(&["sign", "--armor", "--table", "m"]).refuses(&["--armor", "--table"]);
    for comment in ["", " a", "a\nb", "a\u{1b}[2J", &"x".repeat(513)] {
        sign(&["--key", "k.pem", "--armor", "--comment", comment]).refuses(&["--armor: ", "comment"]);
    }
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    sign(&["--key", "z.pem", "--armor"]).refuses(&["zkDilithium", "--armor"]);
    fs::remove_file(place.path("z.pem")).unwrap();
    assert_eq!(place.names(), before);
}

#[test]
fn inspect_shows_what_an_envelope_says() {
    let place = place();
    place.run(&[&SIGN[..], &["m", "--context", "release", "--comment", "a \u{202e}comment"]].concat()).good();
    let (_, context, bare) = opened(&String::from_utf8(place.read("m.sig")).unwrap());
    let run = place.run(&["inspect", "m.sig"]).good();
    let shown = [
        "kind    signature of SLH-DSA-SHA2-128f\n",
        "format  envelope, 17,088 bytes",
        "mode    pure",
        "context 'release'\n",
        "comment a \\u{202e}comment",
        &context,
    ];
    for shown in shown {
        assert!(run.text().contains(shown), "{shown}: {}", run.text());
    }
    let report: Value = serde_json::from_str(place.run(&["inspect", "m.sig", "--json"]).good().text()).unwrap();
    assert_eq!((&report["comment"], &report["signed_context"]), (&json!("a \u{202e}comment"), &json!(context)));
    assert_eq!((&report["context"], &report["context_text"]), (&json!("72656c65617365"), &json!("release")));
    assert_eq!(report["parts"][0]["hex"], hex::encode(&bare[..16]));
    place.run(&["inspect", "m.sig", "--set", "shake-128f"]).refuses(&["is an envelope of SLH-DSA-SHA2-128f"]);
    // Where the envelope has hexadecimal, so has the report.
    for (context, shown) in
        [("00ff", "context 00ff in hexadecimal\n"), ("", "context empty\n"), ("e280ae", "context '\\u{202e}'\n")]
    {
        place.run(&[&SIGN[..], &["m", "--context-hex", context]].concat()).good();
        let run = place.run(&["inspect", "m.sig"]).good();
        assert!(run.text().contains(shown), "{shown}: {}", run.text());
    }
}

/// The page's vectors: the tool makes these files and no others, and an independent crate verifies what is in them.
#[test]
fn the_test_vectors_are_made_and_verified() {
    const MESSAGE: &[u8] = b"Dear reader\n";
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = fs::read_to_string(format!("{root}/docs/envelope.md")).unwrap();
    let place = Place::new();
    place.write("letter", MESSAGE);
    place.keygen("SLH-DSA-SHA2-128s", "s.pem", "s.pub");
    let seeds = hex::encode((0..48).collect::<Vec<u8>>());
    let keygen =
        ["keygen", "--set", "shake-128s", "--hash-slh-dsa", "--seeds", &seeds, "-o", "h.pem", "--pubout", "h.pub"];
    place.run(&keygen).good();
    for (name, key, options) in [
        ("pure", "s", &["--context", "release", "--comment", "hypergrove 1.0, for Linux"][..]),
        ("pre-hash", "s", &["--context-hex", "00ff", "--prehash", "SHA2-512", "--comment", "Grüße"]),
        ("hash-slh-dsa", "h", &[]),
    ] {
        let key_file = format!("{key}.pem");
        let sign = ["sign", "letter", "--force", "--armor", "--deterministic", "--key", &key_file];
        place.run(&[&sign[..], options].concat()).good();
        let text = String::from_utf8(place.read("letter.sig")).unwrap();
        let vector = fs::read_to_string(format!("{root}/vectors/envelope/{name}.sig")).unwrap();
        assert!(text == vector, "{name}: {}", &text[..400]);
        let (header, context, bare) = opened(&text);
        for shown in [&header, &context, &hex::encode(Sha256::digest(&text))] {
            assert!(page.contains(shown.as_str()), "{name}: docs/envelope.md lacks\n{shown}");
        }
        let public = format!("{key}.pub");
        let given: Vec<_> =
            options.chunks(2).filter(|pair| pair[0].starts_with("--context")).flatten().copied().collect();
        place.run(&[&["verify", "letter", "--key", &public], &given[..]].concat()).good();
        if name == "pure" {
            let raw = place.run(&["pubkey", &public, "--raw"]).good().stdout;
            let key = VerifyingKey::<Sha2_128s>::try_from(&raw[..]).unwrap();
            let signature = Signature::<Sha2_128s>::try_from(&bare[..]).unwrap();
            key.try_verify_with_context(MESSAGE, &hex::decode(context).unwrap(), &signature).unwrap();
        }
    }
}

#[test]
fn a_manifest_is_signed_in_an_envelope() {
    let place = place();
    fs::create_dir(place.path("tree")).unwrap();
    place.write("tree/a", "a");
    let sign = ["sign", "--key", "k.pem", "--manifest", "tree", "-o", "sums", "--force", "--armor"];
    let verify = |more: &[&str]| {
        place.run(&[&["verify", "--key", "p.pem", "--manifest", "sums", "--root", "tree"], more].concat())
    };
    place.run(&[&sign[..], &["--context", "release", "--comment", "version 1.0"]].concat()).good();
    assert!(place.read("sums.sig").starts_with(b"-----BEGIN HYPERGROVE SIGNATURE-----\n"));
    let run = verify(&["--context", "release"]).good();
    assert_eq!(run.text(), "sums: OK\na: OK\n");
    assert!(run.stderr.contains("sums: comment: version 1.0"), "{}", run.stderr);
    // As any other file.
    place.run(&["verify", "--key", "p.pem", "--context", "release", "sums"]).good();
    let run = verify(&[]).exits(1);
    assert!(
        run.stderr.contains("wrong context: the envelope's is 'release'") && run.text() == "sums: FAILED\n",
        "{}",
        run.stderr
    );
    place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem", "--pubout", "o.pub"]).good();
    let run = place
        .run(&["verify", "--key", "o.pub", "--context", "release", "--manifest", "sums", "--root", "tree"])
        .exits(1);
    assert!(run.stderr.contains("wrong key: "), "{}", run.stderr);
    let json = verify(&["--context", "release", "--json"]).good();
    let line: Value = serde_json::from_str(json.text().lines().next().unwrap()).unwrap();
    assert_eq!((&line["verdict"], &line["comment"]), (&json!("ok"), &json!("version 1.0")));
    // A changed manifest, and a changed file.
    place.write("tree/a", "b");
    assert_eq!(verify(&["--context", "release"]).exits(1).text(), "sums: OK\na: FAILED\n");
    let sums = place.read("sums");
    place.write("sums", [&sums[..], &sums[..]].concat());
    let run = verify(&["--context", "release"]).exits(1);
    assert!(run.stderr.contains("changed content") && run.text() == "sums: FAILED\n", "{}", run.stderr);
    for hash in ["SHA2-256", "SHAKE-128"] {
        place.run(&[&sign[..], &["--prehash", hash]].concat()).good();
        verify(&[]).good();
    }
}
