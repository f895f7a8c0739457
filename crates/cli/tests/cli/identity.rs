//! Which key is meant, and which one has signed: fingerprints, keys as words, lists of signers.

use crate::place::Place;
use sha2::{Digest, Sha256};

const SET: &str = "sha2-128f";

/// Three signers, `a`, `b` and `c`, with their keys, and messages that the first two have signed.
fn place() -> Place {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.run(&["keygen", "--set", SET, "-o", &format!("{name}.pem"), "--pubout", &format!("{name}.pub")]).good();
    }
    for name in ["a", "b"] {
        place.write(&format!("by-{name}"), name);
        place.run(&["sign", "--key", &format!("{name}.pem"), &format!("by-{name}"), "--context", "release"]).good();
    }
    place
}

fn word(place: &Place, key: &str) -> String {
    place.run(&["pubkey", key, "--line"]).good().text().trim_end().to_string()
}

/// As `openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64` computes it.
fn fingerprint(place: &Place, key: &str) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::digest(place.run(&["pubkey", key, "--der"]).good().stdout);
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = digest.iter().fold(String::new(), |mut bits, byte| {
        write!(bits, "{byte:08b}").unwrap();
        bits
    });
    let letters = bits.as_bytes().chunks(6).map(|six| {
        let value = six.iter().fold(0, |value, bit| value << 1 | usize::from(bit - b'0')) << (6 - six.len());
        char::from(LETTERS[value])
    });
    format!("SHA256:{}", letters.collect::<String>())
}

#[test]
fn a_key_has_one_fingerprint_wherever_it_is_shown() {
    let place = place();
    let shown = fingerprint(&place, "a.pub");
    assert_eq!(shown.len(), 7 + 43);
    for key in ["a.pem", "a.pub"] {
        assert!(place.run(&["inspect", key]).good().text().contains(&shown), "{shown}");
        let json = place.run(&["inspect", key, "--json"]).good();
        assert!(json.text().contains(&format!(r#""fingerprint": "{shown}""#)));
    }
    let run = place.run(&["sign", "-v", "--key", "a.pem", "by-a", "-o", "s"]).good();
    assert!(run.stderr.contains(&format!("by-a: SIGNED, with the key {shown} of SLH-DSA-SHA2-128f")), "{}", run.stderr);
    let run = place.run(&["verify", "-v", "--key", "a.pub", "by-a", "--signature", "s"]).good();
    assert!(run.stderr.contains(&format!("by-a: OK, with the key {shown}")), "{}", run.stderr);
    let run = place.run(&["keygen", "--set", SET, "-o", "d.pem"]).good();
    assert!(run.stderr.contains(&fingerprint(&place, "d.pem")), "{}", run.stderr);
    assert_ne!(shown, fingerprint(&place, "b.pub"));
    // zkDilithium has no SPKI: its name and the raw key.
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem", "--pubout", "z.pub"]).good();
    let line = |key: &str| {
        let text = place.run(&["inspect", key]).good();
        text.text().lines().find(|line| line.starts_with("key ")).map(str::to_owned)
    };
    assert!(line("z.pem").is_some_and(|line| line.contains("SHA256:")));
    assert_eq!(line("z.pem"), line("z.pub"));
    place.run(&["pubkey", "z.pem", "--line"]).refuses(&["zkDilithium", "--line"]);
}

#[test]
fn one_of_several_keys_has_to_have_signed() {
    let place = place();
    let verify = |more: &[&str]| place.run(&[&["verify", "by-a", "by-b", "--context", "release"], more].concat());
    let run = verify(&["--key", "a.pub", "--key", "b.pub", "-v"]).good();
    assert_eq!(run.text(), "by-a: OK\nby-b: OK\n");
    assert!(run.stderr.contains(&format!("by-b: OK, with the key {}", fingerprint(&place, "b.pub"))), "{}", run.stderr);
    assert_eq!(verify(&["--key", "c.pub", "--key", "b.pub"]).exits(1).text(), "by-a: FAILED\nby-b: OK\n");
    assert_eq!(verify(&["--key", "c.pub"]).exits(1).text(), "by-a: FAILED\nby-b: FAILED\n");
    // Inline, alone and with files; keys of other sets do no harm.
    let [a, b] = ["a.pub", "b.pub"].map(|key| word(&place, key));
    verify(&["--public-key", &a, "--public-key", &b]).good();
    place.run(&["keygen", "--set", "shake-256s", "-o", "s.pem", "--pubout", "s.pub"]).good();
    verify(&["--key", "s.pub", "--public-key", &a, "--key", "b.pub"]).good();
    place.write("by-a.sig", "short");
    let run = verify(&["--key", "s.pub", "--key", "a.pub", "--key", "b.pub"]).exits(2);
    assert_eq!(run.text(), "by-a: ERROR\nby-b: OK\n");
    run.says(&["by-a.sig has 5 bytes", "SLH-DSA-SHA2-128f has 17,088", "SLH-DSA-SHAKE-256s has 29,792"]);
    verify(&["--public-key", "MDAw"]).refuses(&["--public-key: ", "pubkey --line"]);
    verify(&["--public-key", "a.pub"]).refuses(&["--public-key: this is not a public key in base64"]);
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    verify(&["--key", "z.pem", "--key", "a.pub"]).refuses(&["the keys are of SLH-DSA and of zkDilithium"]);
    verify(&[]).refuses(&["--key", "--public-key", "--allowed-signers"]);
    // Several keys of zkDilithium.
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "y.pem"]).good();
    place.run(&["sign", "--key", "y.pem", "by-b", "-o", "zs"]).good();
    let of = |keys: &[&str]| place.run(&[&["verify", "by-b", "--signature", "zs"], keys].concat());
    of(&["--key", "z.pem", "--key", "y.pem"]).good();
    of(&["--key", "z.pem"]).exits(1);
}

#[test]
fn lists_of_signers_say_who_has_signed() {
    let place = place();
    let [a, b, c] = ["a.pub", "b.pub", "c.pub"].map(|key| word(&place, key));
    let verify = |list: &str, more: &[&str]| {
        place.write("signers", list);
        place.run(&[&["verify", "by-a", "by-b", "--allowed-signers", "signers"], more].concat())
    };
    let release = ["--context", "release"];
    let list =
        format!("# who may\nalice@example.org {a}\nbob namespace=release valid-after=2020-01-01 {b}\ncarol {c}\n");
    let run = verify(&list, &release).good();
    assert_eq!(run.text(), "by-a: OK (alice@example.org)\nby-b: OK (bob)\n");
    // Dates and namespaces.
    let at = |time: &str| verify(&list, &[&release[..], &["--at", time, "-v"]].concat());
    let run = at("2019-12-31T23:59:59Z").exits(1);
    assert_eq!(run.text(), "by-a: OK (alice@example.org)\nby-b: FAILED\n");
    assert!(run.stderr.contains("left out: bob"), "{}", run.stderr);
    at("2020-01-01").good();
    let list_b = format!("bob namespace=other {b}\nalice valid-before=2020-01-01 {a}\n");
    verify(&list_b, &release).refuses(&["signers allows nobody to sign", "--at"]);
    let run = verify(&list_b, &[&release[..], &["--at", "2019-01-01"]].concat()).exits(1);
    assert_eq!(run.text(), "by-a: OK (alice@example.org)\nby-b: FAILED\n".replace("@example.org", ""));
    // Another key may be named as well.
    verify(&list_b, &[&release[..], &["--key", "a.pub", "--key", "b.pub"]].concat()).good();
    // Nothing is verified by half a list.
    verify(&format!("alice {a}\nbob\n"), &release).refuses(&["signers: line 2: 'bob' is a name without a key"]);
    verify("", &release).refuses(&["signers: it has no signers"]);
    verify(&list, &["--at", "noon"]).refuses(&["'noon' is no time"]);
    place.run(&["verify", "by-a", "--key", "a.pub", "--at", "2020-01-01"]).refuses(&["--allowed-signers"]);
    place.run(&["verify", "by-a", "--allowed-signers", "absent"]).refuses(&["cannot read absent"]);
    // A limit whose name was forgotten would name a signer, and limit nothing.
    for condition in ["valid-before=2020-01-01", "Namespace=other", "cert-authority"] {
        let run = verify(&format!("bob {b}\n{condition} {a}\n"), &release);
        run.refuses(&["signers: line 2: '", "is a condition, and no name is before it", "hint: mend the line"]);
    }
    let list = format!("alice valid-before=9999-12-31 {a}\nbob {b}\n");
    verify(&list, &[&release[..], &["--at", "9999-12-30T23:30:00Z"]].concat()).good();
    let run = verify(&list, &[&release[..], &["--at", "9999-12-31T00:00:00Z"]].concat()).exits(1);
    assert_eq!(run.text(), "by-a: FAILED\nby-b: OK (bob)\n");
    verify(&list, &["--at", "2026-11-23T12:00:00+25:00"]).refuses(&["is no time, since its offset is a day or more"]);
    // As some editors begin a file: the mark is no part of the first name.
    assert_eq!(verify(&format!("\u{feff}{list}"), &release).good().text(), "by-a: OK (alice)\nby-b: OK (bob)\n");
    // The error says what is too long.
    let run = verify(&format!("{list}{}", "# no signer\n".repeat(90_000)), &release);
    run.refuses(&["signers has more than 1,048,576 bytes, the most that a list of signers may have"]);
}

/// Two names that look alike are told apart, and none reorders its line.
#[test]
fn names_of_signers_are_shown_without_characters_that_nobody_sees() {
    let place = place();
    let word = word(&place, "a.pub");
    for (name, shown) in [
        ("al\u{202e}ice", "al\\u{202e}ice"),
        ("al\u{200b}ice", "al\\u{200b}ice"),
        ("al\u{ad}ice", "al\\u{ad}ice"),
        ("alice\u{e0041}", "alice\\u{e0041}"),
        ("alice\u{fe0f}", "alice\\u{fe0f}"),
        ("alice\u{3164}", "alice\\u{3164}"),
        ("Zoë@例え.jp", "Zoë@例え.jp"),
    ] {
        place.write("signers", format!("{name} {word}\ncarol valid-before=2020-01-01 {word}\n"));
        let run = place.run(&["verify", "by-a", "--context", "release", "--allowed-signers", "signers"]).good();
        assert_eq!(run.text(), format!("by-a: OK ({shown})\n"));
        place.write("signers", format!("{name} valid-before=2020-01-01 {word}\ncarol {word}\n"));
        let run = place.run(&["verify", "-v", "by-a", "--context", "release", "--allowed-signers", "signers"]).good();
        let left_out = format!("left out: {shown}: the key was valid only before 2020-01-01\n");
        assert!(run.stderr.contains(&left_out), "{}", run.stderr);
    }
    for name in ["al\u{2028}ice", "al\u{2029}ice", "al\u{a0}ice", "al\u{85}ice", "al\u{b}ice"] {
        place.write("signers", format!("{name} {word}\n"));
        let run = place.run(&["verify", "by-a", "--context", "release", "--allowed-signers", "signers"]);
        run.refuses(&["signers: line 1: the name "]).shows_no(&name[2..name.len() - 3]);
    }
}

/// Such a key implies its pre-hash; whatever else is asked of it is refused.
#[test]
fn keys_of_hash_slh_dsa_say_so() {
    let place = place();
    place.run(&["keygen", "--set", SET, "--hash-slh-dsa", "-o", "h.pem", "--pubout", "h.pub"]).good();
    for key in ["h.pem", "h.pub"] {
        let shown = place.run(&["inspect", key]).good();
        assert!(shown.text().contains("mode    HashSLH-DSA with SHA2-256, no other"), "{}", shown.text());
        assert!(shown.text().contains("2.16.840.1.101.3.4.3.36 (SLH-DSA-SHA2-128f, HashSLH-DSA with SHA2-256)"));
        assert!(place.run(&["inspect", key, "--json"]).good().text().contains(r#""prehash": "SHA2-256""#));
    }
    place.write("m", "message");
    place.run(&["sign", "--key", "h.pem", "m", "--context", "c"]).good();
    place.run(&["verify", "--key", "h.pub", "m", "--context", "c"]).good();
    place.run(&["verify", "--key", "h.pub", "m", "--context", "c", "--prehash", "sha2-256"]).good();
    // The bytes of that key, as a key that leaves the mode open.
    place.write("raw", place.run(&["pubkey", "h.pub", "--raw"]).good().stdout);
    let raw =
        |more: &[&str]| place.run(&[&["verify", "--key", "raw", "--set", SET, "m", "--context", "c"], more].concat());
    raw(&["--prehash", "sha2-256"]).good();
    raw(&[]).exits(1);
    for mode in [&["--prehash", "sha2-512"][..], &["--internal"]] {
        let words = ["a key of HashSLH-DSA with SHA2-256", "leave --prehash and --internal out"];
        place.run(&[&["sign", "--key", "h.pem", "m", "-o", "s"], mode].concat()).refuses(&words);
        place.run(&[&["verify", "--key", "h.pub", "m"], mode].concat()).refuses(&words);
    }
    place.run(&["keygen", "--set", SET, "--hash-slh-dsa", "--raw"]).refuses(&["--raw", "--hash-slh-dsa"]);
    // Among keys of another kind each takes the message in its own way; so do keys under a passphrase.
    place.run(&["verify", "--key", "a.pub", "--key", "h.pub", "m", "by-a", "--context", "c"]).exits(1);
    place.run(&["sign", "--key", "a.pem", "by-b", "--context", "c", "--force"]).good();
    let both = ["verify", "--key", "a.pub", "--key", "h.pub", "--context", "c"];
    assert_eq!(place.run(&[&both[..], &["m", "by-b"]].concat()).good().text(), "m: OK\nby-b: OK\n");
    let run = place.run_with(&[&both[..], &["-", "--signature", "m.sig"]].concat(), b"message");
    run.refuses(&["standard input can be read once"]);
    place.write("pass", "correct horse");
    let pass = ["--passphrase-file", "pass"];
    let keygen = ["keygen", "--set", SET, "--hash-slh-dsa", "--encrypt", "-o", "e.pem", "--pubout", "e.pub"];
    place.run(&[&keygen[..], &pass].concat()).good();
    place.run(&[&["sign", "--key", "e.pem", "m", "-o", "s"][..], &pass].concat()).good();
    place.run(&["verify", "--key", "e.pub", "m", "--signature", "s"]).good();
    let list = format!("alice {}\n", word(&place, "e.pub"));
    place.write("signers", list);
    let run = place.run(&["verify", "--allowed-signers", "signers", "m", "--signature", "s"]).good();
    assert_eq!(run.text(), "m: OK (alice)\n");
}
