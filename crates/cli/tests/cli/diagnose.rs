//! `verify --diagnose`: every mix-up is named, and the command that it gives succeeds.

use crate::place::Place;
use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};

const TEXT: &[u8] = b"Dear reader\nHow are you?\n";
/// The digests of `TEXT`.
const MD5: &str = "4943bde6b1034a4549b5f8d6244f19f9";
const SHA1: &str = "8dff25cdfba561dcde7a74113b06bd17071125c3";
const HASHES: [&str; 12] = [
    "SHA2-224",
    "SHA2-256",
    "SHA2-384",
    "SHA2-512",
    "SHA2-512/224",
    "SHA2-512/256",
    "SHA3-224",
    "SHA3-256",
    "SHA3-384",
    "SHA3-512",
    "SHAKE-128",
    "SHAKE-256",
];

/// Something that people mix up.
struct MixUp {
    name: String,
    /// The message that was signed, and the options of `sign`.
    signed: Vec<u8>,
    sign: Vec<&'static str>,
    /// The message that is verified, and the options of `verify`.
    found: Vec<u8>,
    verify: Vec<&'static str>,
    /// The change to the signature on its way.
    edit: fn(Vec<u8>) -> Vec<u8>,
    /// The diagnosis that is expected.
    says: String,
    /// Without a signature of the right length there is no verdict.
    code: i32,
}

fn mix_up(name: &str, says: &str) -> MixUp {
    MixUp {
        name: name.into(),
        signed: TEXT.into(),
        sign: vec!["--key", "k.pem"],
        found: TEXT.into(),
        verify: vec!["--key", "p.pem"],
        edit: |signature| signature,
        says: says.into(),
        code: 1,
    }
}

impl MixUp {
    fn signed(self, signed: impl Into<Vec<u8>>) -> MixUp {
        MixUp { signed: signed.into(), ..self }
    }
    fn found(self, found: impl Into<Vec<u8>>) -> MixUp {
        MixUp { found: found.into(), ..self }
    }
    fn sign(mut self, more: &[&'static str]) -> MixUp {
        self.sign.extend(more);
        self
    }
    fn verify(mut self, more: &[&'static str]) -> MixUp {
        self.verify.extend(more);
        self
    }
    fn by(self, sign: &[&'static str], verify: &[&'static str]) -> MixUp {
        MixUp { sign: sign.into(), verify: verify.into(), ..self }
    }
    fn edit(self, edit: fn(Vec<u8>) -> Vec<u8>) -> MixUp {
        MixUp { edit, code: 2, ..self }
    }
    fn code(self, code: i32) -> MixUp {
        MixUp { code, ..self }
    }
}

fn base64(bytes: &[u8], width: usize) -> Vec<u8> {
    let letters = Base64::encode_string(bytes);
    letters.as_bytes().chunks(width).flat_map(|line| [line, b"\n"].concat()).collect()
}

#[expect(clippy::too_many_lines, reason = "a list of mix-ups, each with its diagnosis")]
fn mix_ups() -> Vec<MixUp> {
    let mut all = Vec::new();
    // Modes.
    for hash in HASHES {
        let name = format!("pure instead of {hash}");
        all.push(mix_up(&name, &format!("with the pre-hash {hash}")).sign(&["--prehash", hash]));
    }
    all.push(mix_up("a pre-hash too many", "in pure mode, without a pre-hash").verify(&["--prehash", "SHA2-256"]));
    let wrong = mix_up("another pre-hash", "with the pre-hash SHA2-256").sign(&["--prehash", "SHA2-256"]);
    all.push(wrong.verify(&["--prehash", "SHA2-512"]));
    all.push(mix_up("pure instead of internal", "through the internal interface").sign(&["--internal"]));
    all.push(mix_up("internal instead of pure", "in pure mode").verify(&["--internal"]));
    // Contexts.
    all.push(mix_up("a context too many", "with an empty context").verify(&["--context", "letters"]));
    let context = mix_up("a context in hexadecimal as text", "with the context whose hexadecimal is 00ff");
    all.push(context.sign(&["--context-hex", "00ff"]).verify(&["--context", "00ff"]));
    let context = mix_up("a text as a context in hexadecimal", "with the context '00ff'");
    all.push(context.sign(&["--context", "00ff"]).verify(&["--context-hex", "00ff"]));
    // Line ends, and what editors add.
    all.push(mix_up("a newline too many", "without its final line end").signed(&TEXT[..TEXT.len() - 1]));
    all.push(
        mix_up("a CR LF too many", "without its final line end")
            .found([TEXT, b"x\r\n"].concat())
            .signed([TEXT, b"x"].concat()),
    );
    all.push(mix_up("a newline too few", "with a final newline").found(&TEXT[..TEXT.len() - 1]));
    all.push(mix_up("a CR LF too few", "with a final CR LF").signed(*b"one\r\ntwo\r\n").found(*b"one\r\ntwo"));
    all.push(
        mix_up("CR LF instead of LF", "whose lines end with LF instead of CR LF")
            .found(*b"Dear reader\r\nHow are you?\r\n"),
    );
    all.push(
        mix_up("LF instead of CR LF", "whose lines end with CR LF instead of LF")
            .signed(*b"Dear reader\r\nHow are you?\r\n"),
    );
    all.push(
        mix_up("a byte order mark too many", "without its byte order mark").found([b"\xef\xbb\xbf", TEXT].concat()),
    );
    all.push(mix_up("a byte order mark too few", "with a byte order mark").signed([b"\xef\xbb\xbf", TEXT].concat()));
    // Encodings of the message.
    let hex = hex::encode(TEXT);
    all.push(mix_up("a message in hexadecimal", "decoded from hexadecimal").found(hex.as_str()));
    all.push(
        mix_up("a message in capitals and with a newline", "decoded from hexadecimal").found(hex.to_uppercase() + "\n"),
    );
    all.push(mix_up("a message in base64", "for the message decoded from base64").found(base64(TEXT, 20)));
    all.push(mix_up("a message that was encoded in hexadecimal", "written in hexadecimal").signed(hex.as_str()));
    let encoded = base64(TEXT, 1000);
    all.push(mix_up("a message that was encoded in base64", "written in base64").signed(&encoded[..encoded.len() - 1]));
    all.push(mix_up("a pipe that was empty", "for an empty message").signed(*b""));
    // Digests.
    let digest = Sha256::digest(TEXT).to_vec();
    all.push(mix_up("a digest that was signed", "the message's SHA2-256 digest as a message").signed(digest.clone()));
    all.push(
        mix_up("a SHA-512 digest that was signed", "the message's SHA2-512 digest as a message")
            .signed(sha2::Sha512::digest(TEXT).to_vec()),
    );
    // Programs with OpenSSL 3.0 to 3.3 hash by functions that sign nothing here.
    for (hash, digest) in [("MD5", MD5), ("SHA-1", SHA1)] {
        let says = format!("the message's {hash} digest as a message");
        all.push(mix_up(&format!("a digest by {hash}"), &says).signed(hex::decode(digest).unwrap()));
        let says = format!("the message's {hash} digest in hexadecimal as a message");
        all.push(mix_up(&format!("a digest by {hash} in hexadecimal"), &says).signed(digest));
    }
    let twice = mix_up("a digest and a key of HashSLH-DSA", "valid for the message's MD5 digest as a message");
    all.push(twice.by(&["--key", "h.pem"], &["--key", "h.pub"]).signed(hex::decode(MD5).unwrap()));
    all.push(
        mix_up("the output of sha256sum that was signed", "SHA2-256 digest in hexadecimal as a message")
            .signed(hex::encode(&digest)),
    );
    all.push(
        mix_up("the digest instead of the file", "with the message taken for a digest by SHA2-256")
            .sign(&["--prehash", "SHA2-256"])
            .found(digest.clone()),
    );
    // The signature on its way.
    all.push(
        mix_up("a signature in hexadecimal", "once it is decoded from hexadecimal").edit(|s| hex::encode(s).into()),
    );
    all.push(
        mix_up("a signature as xxd prints it", "once it is decoded from hexadecimal")
            .edit(|s| hex::encode_upper(s).as_bytes().chunks(60).flat_map(|line| [line, b"\n"].concat()).collect()),
    );
    all.push(mix_up("a signature in base64", "once it is decoded from base64").edit(|s| base64(&s, usize::MAX)));
    all.push(mix_up("a signature in lines of base64", "once it is decoded from base64").edit(|s| base64(&s, 64)));
    all.push(
        mix_up("a signature in PEM", "once it is decoded from base64")
            .edit(|s| [&b"-----BEGIN SIGNATURE-----\n"[..], &base64(&s, 64), b"-----END SIGNATURE-----\n"].concat()),
    );
    all.push(
        mix_up("a newline behind the signature", "without the bytes that follow it").edit(|s| [&s[..], b"\n"].concat()),
    );
    all.push(mix_up("a signed message", "without the bytes that follow it").edit(|s| [&s[..], TEXT].concat()));
    all.push(mix_up("a message with its signature", "without the bytes before it").edit(|s| [TEXT, &s].concat()));
    // Keys.
    let raw = mix_up("a raw key as one of SHAKE", "with the key as one of SLH-DSA-SHA2-128f");
    all.push(raw.by(&["--key", "k.pem"], &["--key", "p.raw", "--set", "shake-128f"]));
    let raw = mix_up("a raw key as one of small signatures", "with the key as one of SLH-DSA-SHA2-128f").code(2);
    all.push(raw.by(&["--key", "k.pem"], &["--key", "p.raw", "--set", "sha2-128s"]));
    let raw = mix_up("a raw private key as a public one", "as the private key of SLH-DSA-SHA2-128f that it is").code(2);
    all.push(raw.by(&["--key", "k.pem"], &["--key", "k.raw", "--set", "sha2-256f"]));
    let key = mix_up("a key whose file names the wrong set", "with the key as one of SLH-DSA-SHA2-128f");
    all.push(key.by(&["--key", "k.pem"], &["--key", "wrong.der"]));
    let key = mix_up("a key of HashSLH-DSA too many", "with the key as one that is not of HashSLH-DSA, in pure mode");
    all.push(key.by(&["--key", "k.pem"], &["--key", "h.pub"]));
    let key = mix_up("a key of HashSLH-DSA too few", "with the pre-hash SHA2-256");
    all.push(key.by(&["--key", "h.pem"], &["--key", "p.pem"]));
    // Two at a time.
    let two = mix_up("a pre-hash and no context", "with the pre-hash SHA3-256, with an empty context");
    all.push(two.sign(&["--prehash", "SHA3-256"]).verify(&["--context", "it's"]));
    let two =
        mix_up("a pre-hash and a newline", "with the pre-hash SHA2-512, for the message without its final line end");
    all.push(two.sign(&["--prehash", "SHA2-512"]).signed(&TEXT[..TEXT.len() - 1]));
    let two = mix_up("base64 and a context", "once it is decoded from base64, with an empty context");
    all.push(two.verify(&["--context", "c"]).edit(|s| base64(&s, 76)));
    let two = mix_up("base64 and a newline", "once it is decoded from base64, for the message with a final newline");
    all.push(two.found(&TEXT[..TEXT.len() - 1]).edit(|s| base64(&s, 76)));
    let two =
        mix_up("a newline and the internal interface", "through the internal interface, for the message with a final");
    all.push(two.found(&TEXT[..TEXT.len() - 1]).sign(&["--internal"]));
    let two = mix_up("a set and a newline", "with the key as one of SLH-DSA-SHA2-128f, for the message without");
    let two = two.by(&["--key", "k.pem"], &["--key", "p.raw", "--set", "shake-128f"]);
    all.push(two.signed(&TEXT[..TEXT.len() - 1]));
    all
}

/// `k.pem` and `p.pem`, the same raw, as keys of HashSLH-DSA, and in a file that names another set.
fn place() -> Place {
    let place = Place::with_key();
    let seeds = hex::encode((0..48).collect::<Vec<u8>>());
    let keygen = ["keygen", "--set", "sha2-128f", "--seeds", &seeds];
    place.run(&[&keygen[..], &["--raw", "-o", "k.raw", "--pubout", "p.raw"]].concat()).good();
    place.run(&[&keygen[..], &["--hash-slh-dsa", "-o", "h.pem", "--pubout", "h.pub"]].concat()).good();
    let mut der = place.run(&["pubkey", "p.pem", "--der"]).good().stdout;
    let oid = der.windows(3).position(|three| three == [4, 3, 21]).unwrap();
    der[oid + 2] = 27;
    place.write("wrong.der", der);
    place
}

/// The text after a label on a line of standard error.
fn labelled<'r>(stderr: &'r str, label: &str) -> Option<&'r str> {
    stderr.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}

#[test]
fn every_mix_up_is_named_and_its_command_succeeds() {
    let place = place();
    let all = mix_ups();
    assert!(all.len() >= 40, "{}", all.len());
    for MixUp { name, signed, sign, found, verify, edit, says, code } in all {
        place.write("a file", &signed);
        let sign = [&["sign", "a file", "--force", "--deterministic"], &sign[..]].concat();
        place.run(&sign).good();
        place.write("a file", &found);
        let signature = edit(place.read("a file.sig"));
        place.write("a file.sig", signature);
        let run = place.run(&[&["verify", "a file", "--diagnose"], &verify[..]].concat()).exits(code);
        let sentence = labelled(&run.stderr, "diagnosis: a file: ").unwrap_or_else(|| panic!("{name}: {}", run.stderr));
        assert!(sentence.starts_with("the signature is valid ") && sentence.contains(&says), "{name}: {sentence}");
        let command = labelled(&run.stderr, "command: ").unwrap_or_else(|| panic!("{name}: {}", run.stderr));
        assert!(command.contains("hypergrove verify"), "{name}: {command}");
        #[cfg(unix)]
        {
            // A command replaces nothing that is there.
            let _ = std::fs::remove_file(place.path("a file.sig.bare"));
            let run = place.shell(&command.replace("hypergrove verify", "\"$H\" verify"));
            assert_eq!(run.code, Some(0), "{name}: {command}: {}", run.stderr);
        }
    }
}

#[test]
fn digests_lists_and_several_keys_are_diagnosed() {
    let place = place();
    place.write("m", TEXT);
    let check = |args: &[&str], code: i32, says: &str| {
        let run = place.run(&[&["verify", "--diagnose"], args].concat()).exits(code);
        let sentence = labelled(&run.stderr, "diagnosis: ").unwrap_or_else(|| panic!("{}", run.stderr));
        assert!(sentence.contains(says), "{sentence}");
        #[cfg(unix)]
        if let Some(command) = labelled(&run.stderr, "command: ") {
            let run = place.shell(&command.replace("hypergrove verify", "\"$H\" verify"));
            assert_eq!(run.code, Some(0), "{command}: {}", run.stderr);
        }
        run
    };
    // A digest by another function, and one that was signed as it is.
    let digest = hex::encode(Sha256::digest(TEXT));
    place.run(&["sign", "--key", "k.pem", "m", "--prehash", "SHA2-256"]).good();
    let given = ["--key", "p.pem", "--signature", "m.sig", "--digest", &digest, "--prehash"];
    check(&[&given[..], &["SHA3-256"]].concat(), 1, "with the message taken for a digest by SHA2-256");
    place.write("d", Sha256::digest(TEXT));
    place.run(&["sign", "--key", "k.pem", "d", "-o", "m.sig", "--force"]).good();
    check(&[&given[..], &["SHA2-256"]].concat(), 1, "in pure mode");
    // Words and lists. A list has a say in contexts, which the command leaves out.
    let word = place.run(&["pubkey", "p.pem", "--line"]).good().text().trim().to_owned();
    place.write("signers", format!("alice namespace=letters {word}\n"));
    place.run(&["sign", "--key", "k.pem", "m", "--prehash", "SHA2-256", "--force"]).good();
    check(&["--public-key", &word, "m"], 1, "with the pre-hash SHA2-256");
    check(&["--allowed-signers", "signers", "m", "--context", "letters"], 1, "with an empty context");
    place.run(&["sign", "--key", "k.pem", "m", "--context", "letters", "--force"]).good();
    let list = ["--allowed-signers", "signers", "m", "--context", "letters", "--prehash", "SHA2-256"];
    let run = check(&list, 1, "in pure mode");
    assert!(run.stderr.contains("--allowed-signers signers --context letters --signature m.sig m"), "{}", run.stderr);
    // Of several keys the one that fits; of several files, those that fail.
    place.run(&["keygen", "--set", "shake-128f", "-o", "o.pem", "--pubout", "o.pub"]).good();
    place.write("good", "good");
    place.run(&["sign", "--key", "k.pem", "good"]).good();
    let run = check(&["--key", "o.pub", "--key", "p.pem", "good", "m"], 1, "nothing that was tried fits");
    assert_eq!(run.text(), "good: OK\nm: FAILED\n");
    assert!(labelled(&run.stderr, "command:").is_none(), "{}", run.stderr);
    place.run(&["sign", "--key", "k.pem", "m", "--force", "--internal"]).good();
    let run = check(&["--key", "o.pub", "--key", "p.pem", "m"], 1, "through the internal interface");
    assert!(run.stderr.contains("--key p.pem --internal"), "{}", run.stderr);
    // As JSON, and in silence where all is well.
    let run = place.run(&["verify", "--key", "p.pem", "--diagnose", "--json", "good", "m"]).exits(1);
    let lines: Vec<serde_json::Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["diagnosis"], "the signature is valid through the internal interface");
    assert_eq!(lines[1]["command"], "hypergrove verify --key p.pem --internal --signature m.sig m");
    assert!(lines[0].get("diagnosis").is_none() && run.stderr.is_empty(), "{}", run.stderr);
    let run = place.run(&["verify", "--key", "p.pem", "--diagnose", "good"]).good();
    assert!(run.stderr.is_empty(), "{}", run.stderr);
}

#[test]
fn what_cannot_be_diagnosed_is_said() {
    let place = place();
    place.write("m", TEXT);
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    let verify = |args: &[&str]| place.run(&[&["verify", "--diagnose", "--key", "p.pem"], args].concat());
    verify(&["-", "--signature", "m.sig"])
        .refuses(&["--diagnose reads files again", "put what comes by standard input"]);
    verify(&["m", "--signature", "-"]).refuses(&["--diagnose reads files again"]);
    // No file, no signature, no bytes: the errors are those without the option.
    for args in [&["absent", "--signature", "m.sig"][..], &["m", "--signature", "absent"]] {
        let run = verify(args).exits(2).says(&["cannot read absent"]);
        assert!(labelled(&run.stderr, "diagnosis:").is_none(), "{}", run.stderr);
    }
    place.write("empty.sig", "");
    assert!(verify(&["m", "--signature", "empty.sig"]).exits(2).stderr.contains("nothing that was tried fits"));
    // A long file.
    place.write("long", vec![0; (64 << 20) + 1]);
    let run = verify(&["long", "--signature", "m.sig", "--prehash", "SHA2-256"]).exits(1);
    assert!(
        labelled(&run.stderr, "diagnosis: long: ").is_some_and(|said| said.contains("a small file")),
        "{}",
        run.stderr
    );
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    place.run(&["sign", "--key", "z.pem", "m", "-o", "z.sig"]).good();
    let run = place.run(&["verify", "--key", "z.pem", "--diagnose", "m", "--signature", "z.sig"]);
    run.refuses(&["zkDilithium", "--diagnose"]);
}

/// The fingerprint of a key.
fn fingerprint(place: &Place, key: &str) -> String {
    let run = place.run(&["inspect", key]).good();
    run.text().lines().find_map(|line| line.strip_prefix("key     ")).unwrap().to_owned()
}

#[test]
fn a_bare_failure_names_its_keys() {
    let place = Place::with_key();
    place.write("m", "message");
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    place.write("m", "another");
    let key = format!("{} of SLH-DSA-SHA2-128f", fingerprint(&place, "p.pem"));
    let run = place.run(&["verify", "--key", "p.pem", "m"]).exits(1);
    assert_eq!(run.text(), "m: FAILED\n");
    let advice = "if the signer gave a context, name it with --context";
    assert_eq!(run.stderr, format!("FAILED: no valid signature by the key {key}; {advice}\n"));
    let run = place.run(&["verify", "--key", "p.pem", "--context", "c", "m"]).exits(1);
    assert_eq!(run.stderr, format!("FAILED: no valid signature by the key {key}\n"));
    let run = place.run(&["verify", "--key", "p.pem", "m", "--json"]).exits(1);
    assert!(run.text().contains(&format!("\"diagnosis\":\"no valid signature by the key {key}\"")), "{}", run.text());
    let mut keys = vec!["--key", "p.pem"];
    let others = ["a.pub", "b.pub", "c.pub"];
    for other in others {
        place.run(&["keygen", other.strip_suffix(".pub").unwrap(), "--set", "sha2-128f"]).good();
    }
    keys.extend(["--key", "a.pub"]);
    let run = place.run(&[&["verify", "m"], &keys[..]].concat()).exits(1);
    let both = format!("any of the keys {key}, {} of SLH-DSA-SHA2-128f", fingerprint(&place, "a.pub"));
    assert!(run.stderr.contains(&both), "{}", run.stderr);
    keys.extend(["--key", "b.pub", "--key", "c.pub"]);
    let run = place.run(&[&["verify", "m"], &keys[..]].concat()).exits(1);
    assert!(run.stderr.contains("no valid signature by any of the 4 keys"), "{}", run.stderr);
    // Of a line of a table, of a manifest, and by another scheme.
    place.write("table", "p.pem\tm\tm.sig\n");
    let run = place.run(&["verify", "--table", "table"]).exits(1);
    assert_eq!(run.stderr, format!("diagnosis: m: no valid signature by the key {key}\n"));
    std::fs::create_dir(place.path("tree")).unwrap();
    place.write("tree/a", "a");
    place.run(&["sign", "--key", "k.pem", "--manifest", "tree", "-o", "sums"]).good();
    place.write("sums", [place.read("sums"), place.read("sums")].concat());
    let run = place.run(&["verify", "--key", "p.pem", "--manifest", "sums"]).exits(1);
    assert!(run.stderr.contains(&format!("FAILED: no valid signature by the key {key}")), "{}", run.stderr);
    place.run(&["keygen", "z", "--scheme", "zkdilithium"]).good();
    place.run(&["sign", "--key", "z.key", "m", "-o", "z.sig"]).good();
    let run = place.run(&["verify", "--key", "z.pub", "tree/a", "-s", "z.sig"]).exits(1);
    assert!(run.stderr.contains(&format!("{} of zkDilithium", fingerprint(&place, "z.pub"))), "{}", run.stderr);
}

#[test]
fn several_keys_and_signers_who_were_left_out_are_diagnosed() {
    let place = Place::with_key();
    place.write("m", "message");
    for name in ["a", "b"] {
        place.run(&["keygen", name, "--set", "sha2-128f"]).good();
    }
    let line = |key: &str| place.run(&["pubkey", key, "--line"]).good().text().to_owned();
    place.run(&["sign", "--key", "k.pem", "--context", "release", "m"]).good();
    let run = place
        .run(&["verify", "--key", "a.pub", "--key", "p.pem", "--context", "72656c65617365", "m", "--diagnose"])
        .exits(1);
    assert!(
        run.stderr.contains("valid with the context 'release'") && run.stderr.contains("--key p.pem --context release"),
        "{}",
        run.stderr
    );
    // The context of a signer of the list, whom it leaves out without that context.
    let diagnosed = |list: &str, more: &[&str], sentence: &str, command: &str| {
        place.write("list", list);
        let run = place.run(&[&["verify", "--allowed-signers", "list", "m", "--diagnose"], more].concat()).exits(1);
        assert!(run.stderr.contains(sentence) && run.stderr.contains(command), "{}", run.stderr);
        assert_eq!(run.stderr.contains("command:"), !command.is_empty(), "{}", run.stderr);
        assert_eq!(run.text(), "m: FAILED\n");
    };
    let (alice, bob) = (format!("alice {}", line("a.key")), line("k.pem"));
    let list = format!("{alice}bob namespace=nightly namespace=release {bob}");
    let sentence =
        "signer left out: bob: the key is only for the context 'nightly' or 'release'; the signature is that signer's";
    diagnosed(&list, &[], sentence, &format!("--public-key {} --context release --signature m.sig m", bob.trim_end()));
    let sentence = "signer left out: bob: the key was valid only before 2020-01-01; the signature is that signer's";
    let list = format!("{alice}bob valid-before=2020-01-01 {bob}");
    // No command accepts what a key signs after its end.
    diagnosed(&list, &["--context", "release"], sentence, "");
    place.write("m", "message\n");
    let sentence =
        "the key was valid only before 2020-01-01; the signature is valid for the message without its final line end";
    diagnosed(&list, &["--context", "release"], sentence, "");
}

#[test]
fn folders_get_a_hint_that_fits_the_command() {
    let place = Place::with_key();
    std::fs::create_dir(place.path("dir")).unwrap();
    place.write("m", "message");
    for (command, hint) in [
        ("sign --key k.pem dir", "--recursive takes every file in it, and --manifest"),
        ("sign --key k.pem --prehash sha2-256 dir", "--recursive takes every file in it, and --manifest"),
        ("verify --key p.pem dir", "--recursive takes every file in it, and --manifest"),
        ("verify --key p.pem dir -s m", "--recursive takes every file in it, and --manifest"),
        ("verify --key p.pem --output new dir -s m", "--recursive takes every file in it, and --manifest"),
        ("verify --key p.pem m -s dir", "name a file in that directory"),
        ("verify --key dir m", "name a file in that directory"),
        ("verify --allowed-signers dir m", "name a file in that directory"),
        ("sign --key dir m", "name a file in that directory"),
        ("sign --key k.pem --list dir", "name a file in that directory"),
        ("pubkey dir", "name a file in that directory"),
        ("passwd dir", "name a file in that directory"),
        ("inspect dir", "name a file in that directory"),
        ("hash dir", "find DIR -type f | hypergrove hash --list -"),
    ] {
        let run = place.run(&command.split(' ').collect::<Vec<_>>());
        assert!(run.code != Some(0) && run.stderr.contains(hint), "{command}: {}", run.stderr);
        assert_eq!(run.stderr.contains("find DIR"), command.starts_with("hash"), "{command}: {}", run.stderr);
    }
}
