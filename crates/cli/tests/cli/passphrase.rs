//! Private keys under a passphrase: written, read by every command that takes a key, and by OpenSSL.

use crate::place::{Place, Run};
use hypergrove::pkcs8::EncryptedPrivateKeyInfoRef;
use hypergrove::pkcs8::der::{Decode, SecretDocument};
use hypergrove::pkcs8::pkcs5::{EncryptionScheme, pbes2};
use hypergrove::{EncryptedSigningKey, SigningKey};
use std::path::PathBuf;
use std::process::Command;

const SEEDS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f";

/// With `k.pem` and `p.pem`, the same key as `e.pem` under the passphrase in `pass`, and a message `m`.
fn place() -> Place {
    let place = Place::with_key();
    place.write("pass", "correct horse\n");
    place.write("wrong", "battery staple\n");
    place.write("m", "message");
    keygen(&place, &["-o", "e.pem"]).good();
    place
}

fn keygen(place: &Place, more: &[&str]) -> Run {
    let args = ["keygen", "--set", "sha2-128f", "--seeds", SEEDS, "--encrypt", "--passphrase-file", "pass"];
    place.run(&[&args, more].concat())
}

#[test]
fn every_command_reads_an_encrypted_key() {
    let place = place();
    keygen(&place, &["--der", "-o", "e.der", "--kdf", "pbkdf2"]).good();
    assert!(place.read("e.pem").starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n"));
    assert_eq!(place.read("e.der")[0], 0x30);
    let pass = ["--passphrase-file", "pass"];
    for key in ["e.pem", "e.der"] {
        let with = |args: &[&str]| place.run(&[args, &pass].concat());
        assert_eq!(with(&["pubkey", key]).good().stdout, place.read("p.pem"));
        with(&["sign", "--key", key, "m", "--force"]).good();
        place.run(&["verify", "--key", "p.pem", "m"]).good();
        with(&["verify", "--key", key, "m"]).good();
        let shown = with(&["inspect", key]).good();
        assert!(shown.text().contains("private key of SLH-DSA-SHA2-128f") && shown.text().contains("AES-256-CBC"));
        assert!(!shown.text().contains("00010203"), "{}", shown.text());
        assert!(with(&["inspect", key, "--json"]).good().text().contains(r#""encryption": ""#));
        // A public key next to it must be its own, and the key of another scheme is not meant.
        if key == "e.pem" {
            place.write("both.pem", [place.read("e.pem"), place.read("p.pem")].concat());
            with(&["sign", "--key", "both.pem", "m", "--force"]).good();
            place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem", "--pubout", "o.pub"]).good();
            place.write("both.pem", [place.read("e.pem"), place.read("o.pub")].concat());
            with(&["sign", "--key", "both.pem", "m", "--force"]).refuses(&["is not that of its seeds"]);
            place.write("both.pem", [place.read("e.pem"), place.read("k.pem")].concat());
            with(&["sign", "--key", "both.pem", "m", "--force"]).refuses(&["a private key and an encrypted one"]);
        }
    }
    let shown = place.run(&[&["inspect", "e.pem"][..], &pass].concat()).good();
    assert!(shown.text().contains("scrypt (N = 16384, r = 8, p = 5), AES-256-CBC"), "{}", shown.text());
    let shown = place.run(&[&["inspect", "e.der"][..], &pass].concat()).good();
    assert!(shown.text().contains("PBKDF2 (HMAC-SHA-256, 600000 iterations), AES-256-CBC"), "{}", shown.text());
    // Salts are new each time.
    keygen(&place, &["-o", "again.pem"]).good();
    assert_ne!(place.read("again.pem"), place.read("e.pem"));
}

#[test]
fn passphrases_come_from_files_and_descriptors() {
    let place = place();
    place.write("bare", "correct horse");
    place.write("windows", "correct horse\r\n");
    for file in ["pass", "bare", "windows"] {
        place.run(&["pubkey", "e.pem", "--passphrase-file", file]).good();
    }
    place.run_with(&["pubkey", "e.pem", "--passphrase-file", "-"], b"correct horse\n").good();
    place.write("two", "correct horse\nbattery staple\n");
    place.write("long", "x".repeat(1025));
    place.write("empty", "\n");
    let refused = |file: &str, words: &[&str]| {
        let run = place.run(&["sign", "--key", "e.pem", "m", "--passphrase-file", file]);
        run.refuses(words);
        assert!(!place.path("m.sig").exists());
    };
    refused("two", &["e.pem: two has more than one line", "put the passphrase alone"]);
    refused("long", &["e.pem: long has 1025 bytes, a passphrase has at most 1024"]);
    refused("empty", &["e.pem: the passphrase is wrong"]);
    refused("wrong", &["e.pem: the passphrase is wrong, or the encrypted key is damaged"]);
    refused("absent", &["e.pem: cannot read absent: there is no such file"]);
    let run = place.run(&["keygen", "--set", "sha2-128f", "--encrypt", "--passphrase-file", "empty", "-o", "n.pem"]);
    run.refuses(&["the passphrase of n.pem is empty", "protect nothing"]);
    // Nobody can type such a passphrase. A key of others that has one is read.
    place.write("marked", "\u{feff}correct horse\n");
    let run = place.run(&["keygen", "--set", "sha2-128f", "--encrypt", "--passphrase-file", "marked", "-o", "n.pem"]);
    run.refuses(&["marked begins with a byte order mark", "without a byte order mark"]);
    place.run(&["pubkey", "e.pem", "--passphrase-file", "marked"]).refuses(&["the passphrase is wrong"]);
    place.run_with(&["pubkey", "-", "--passphrase-file", "-"], b"").refuses(&["standard input is given twice"]);
    keygen(&place, &["--raw"]).refuses(&["--raw", "--encrypt"]);
    let run = place.run(&["keygen", "--set", "sha2-128f", "--passphrase-file", "pass"]);
    run.refuses(&["pass holds a passphrase", "--encrypt"]);
    place.run(&["keygen", "--set", "sha2-128f", "--kdf", "scrypt"]).refuses(&["--encrypt"]);
    let zk = ["keygen", "--scheme", "zkdilithium", "--encrypt", "--passphrase-file", "pass"];
    place.run(&zk).refuses(&["zkDilithium", "--encrypt"]);
    let names = ["bare", "e.pem", "empty", "k.pem", "long", "m", "marked", "p.pem", "pass", "two", "windows", "wrong"];
    assert_eq!(place.names(), names);
}

#[test]
fn a_passphrase_is_changed_set_and_removed() {
    let place = place();
    place.write("new", "battery staple\n");
    let passwd = |words: &str| place.run(&["passwd"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    let opens = |file: &str, pass: &str| place.run(&["pubkey", file, "--passphrase-file", pass]);
    let run = passwd("e.pem --passphrase-file pass --new-passphrase-file new --kdf pbkdf2").good();
    assert!(run.stderr.contains("e.pem has a new passphrase") && run.stdout.is_empty(), "{}", run.stderr);
    opens("e.pem", "pass").refuses(&["the passphrase is wrong"]);
    assert_eq!(opens("e.pem", "new").good().stdout, place.read("p.pem"));
    assert!(place.run(&["inspect", "e.pem"]).good().text().contains("PBKDF2"));
    // All else in the file stays, also where lines around it end with CR LF.
    place.write(
        "both.pem",
        [b"\xef\xbb\xbf".to_vec(), place.read("e.pem"), place.read("p.pem"), b"more".to_vec()].concat(),
    );
    passwd("both.pem --passphrase-file new --remove").good();
    assert_eq!(place.read("both.pem"), [place.read("k.pem"), place.read("p.pem"), b"more".to_vec()].concat());
    let around = [b"mine\r\n".to_vec(), place.read("p.pem"), place.read("k.pem"), b"more\r\n".to_vec()].concat();
    place.write("both.pem", &around);
    passwd("both.pem --new-passphrase-file pass").good();
    assert_ne!(place.read("both.pem"), around);
    passwd("both.pem --passphrase-file pass --remove").good();
    assert_eq!(place.read("both.pem"), around);
    // An unencrypted key gets a passphrase, in DER too, and loses it.
    keygen(&place, &["--der", "-o", "e.der"]).good();
    let before = place.read("e.der");
    passwd("e.der --passphrase-file pass --remove").good();
    passwd("e.der --remove").refuses(&["e.der has no passphrase"]);
    let run = passwd("e.der --new-passphrase-file new").good();
    assert!(run.stderr.contains("e.der is encrypted now") && place.read("e.der") != before);
    opens("e.der", "new").good();
    // A file is as it was after every error.
    let before = place.read("e.pem");
    passwd("e.pem --passphrase-file pass --new-passphrase-file new").refuses(&["e.pem: the passphrase is wrong"]);
    place.write("empty", "\n");
    passwd("e.pem --passphrase-file new --new-passphrase-file empty").refuses(&["the passphrase of e.pem is empty"]);
    passwd("e.pem --passphrase-file - --new-passphrase-file -").refuses(&["standard input is given twice"]);
    passwd("e.pem --passphrase-file new --remove --new-passphrase-file pass").refuses(&["cannot be used with"]);
    assert_eq!(place.read("e.pem"), before);
    place.run(&["keygen", "--set", "sha2-128f", "--raw", "-o", "raw"]).good();
    place.run(&["keygen", "z", "--scheme", "zkdilithium"]).good();
    for (file, words) in [
        ("p.pem", "p.pem is a public key, which has no passphrase"),
        ("raw", "raw is neither PEM nor DER"),
        ("z.key", "z.key is a key of zkDilithium"),
        ("no", "cannot read no: there is no such file"),
    ] {
        passwd(&format!("{file} --new-passphrase-file new")).refuses(&[words]);
    }
    // A key of HashSLH-DSA stays one.
    place.run(&["keygen", "h", "--set", "sha2-128f", "--hash-slh-dsa"]).good();
    passwd("h.key --new-passphrase-file new").good();
    assert_eq!(opens("h.key", "new").good().stdout, place.read("h.pub"));
}

/// Another program makes a new key while somebody types the passphrase.
#[cfg(unix)]
#[test]
fn a_key_that_was_replaced_meanwhile_stays() {
    let place = place();
    place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem"]).good();
    // Once the pipe has a reader, the key was read.
    let script = "mkfifo typed; $H passwd e.pem --passphrase-file pass --new-passphrase-file typed & exec 3> typed; cat o.pem > e.pem; \
                  echo new >&3; exec 3>&-; wait $!";
    place.shell(script).refuses(&["e.pem was changed by another program meanwhile"]);
    assert_eq!(place.read("e.pem"), place.read("o.pem"));
}

#[cfg(unix)]
#[test]
fn a_changed_key_keeps_its_mode_and_its_links() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    place.shell("chmod 640 e.pem; mkdir sub; ln -s ../e.pem sub/link").good();
    let run = place.run(&["passwd", "sub/link", "--passphrase-file", "pass", "--new-passphrase-file", "wrong"]).good();
    assert!(run.stderr.contains("warning: others may read the private key sub/link"), "{}", run.stderr);
    assert_eq!(std::fs::metadata(place.path("e.pem")).unwrap().permissions().mode() & 0o7777, 0o640);
    place.shell("test -L sub/link && $H pubkey e.pem --passphrase-file wrong | cmp - p.pem").good();
    assert!(place.names().iter().all(|name| !name.contains(".tmp")));
}

#[test]
fn an_encrypted_key_shows_what_needs_no_passphrase() {
    let place = place();
    let run = place.run(&["inspect", "e.pem"]).good();
    for words in [
        "encrypted private key; its passphrase reveals its set",
        "PEM, ",
        "PBES2: scrypt (N = 16384, r = 8, p = 5), AES-256-CBC",
    ] {
        assert!(run.text().contains(words), "{}", run.text());
    }
    keygen(&place, &["--der", "-o", "e.der", "--kdf", "pbkdf2"]).good();
    let json: serde_json::Value =
        serde_json::from_str(place.run(&["inspect", "e.der", "--json"]).good().text()).unwrap();
    assert_eq!((&json["kind"], &json["format"]), (&"encrypted private key".into(), &"DER".into()));
    assert_eq!(json["encryption"], "PBKDF2 (HMAC-SHA-256, 600000 iterations), AES-256-CBC");
    assert_eq!(
        (json["sets"].as_array().unwrap().len(), json["bytes"].as_u64()),
        (0, Some(place.read("e.der").len() as u64))
    );
    // A public key in the same file says more, and only the passphrase proves it.
    place.write("both.pem", [place.read("e.pem"), place.read("p.pem")].concat());
    let run = place.run(&["inspect", "both.pem"]).good();
    assert!(
        run.text().contains("of SLH-DSA-SHA2-128f by the public key next to it") && run.text().contains("SHA256:"),
        "{}",
        run.text()
    );
    let run = place.run(&["inspect", "both.pem", "--passphrase-file", "pass"]).good();
    assert!(
        run.text().contains("private key of SLH-DSA-SHA2-128f\n") && run.text().contains("SK.seed"),
        "{}",
        run.text()
    );
    place.run(&["inspect", "e.pem", "--passphrase-file", "wrong"]).refuses(&["the passphrase is wrong"]);
}

#[cfg(unix)]
#[test]
fn a_private_key_that_others_may_read_is_warned_of() {
    let place = place();
    place.run(&["keygen", "r", "--set", "sha2-128f", "--raw"]).good();
    place.run(&["keygen", "z", "--scheme", "zkdilithium"]).good();
    let commands = [
        ("k.pem", "sign --key k.pem m --force"),
        ("k.pem", "sign --key k.pem --force --list list"),
        ("k.pem", "verify --key k.pem m"),
        ("k.pem", "pubkey k.pem"),
        ("k.pem", "inspect k.pem"),
        ("e.pem", "inspect e.pem"),
        ("e.pem", "pubkey e.pem --passphrase-file pass"),
        ("r.key", "pubkey r.key --set sha2-128f"),
        ("z.key", "pubkey z.key"),
        ("k.pem", "sign --force --table table"),
    ];
    place.write("list", "m\npass\n");
    place.write("table", "k.pem\tm\ta.sig\nk.pem\tpass\tb.sig\n");
    for mode in ["644", "640", "604", "600", "400"] {
        for (key, command) in commands {
            place.shell(&format!("chmod {mode} {key}")).good();
            let run = place.shell(&format!("$H {command}")).good();
            let warning = format!("warning: others may read the private key {key}");
            let wanted = usize::from(!mode.ends_with("00"));
            assert_eq!(run.stderr.matches(&warning).count(), wanted, "{mode} {command}: {}", run.stderr);
        }
    }
    // Public keys, and whatever is no file.
    assert!(place.run(&["verify", "--key", "p.pem", "m"]).good().stderr.is_empty());
    assert!(place.shell("cat k.pem | $H pubkey -").good().stderr.is_empty());
}

#[cfg(unix)]
#[test]
fn a_passphrase_comes_through_a_pipe() {
    let place = place();
    place.shell("echo correct horse | $H pubkey e.pem --passphrase-fd 0 | cmp - p.pem").good();
    place.shell("$H pubkey e.pem --passphrase-fd 7 7<pass | cmp - p.pem").good();
    place.shell("echo correct horse | (exec 5<&0; $H sign --key e.pem m -o s --passphrase-fd 5 </dev/null)").good();
    place.run(&["verify", "--key", "p.pem", "m", "--signature", "s"]).good();
    place.shell("$H pubkey e.pem --passphrase-fd 9").refuses(&["cannot read /dev/fd/9"]);
    place.shell("$H pubkey e.pem --passphrase-fd 7 --passphrase-file pass 7<pass").refuses(&["cannot be used with"]);
}

/// Asked for on the terminal, whatever standard input is; without one, the error says what else there is.
#[cfg(target_os = "linux")]
#[test]
fn a_passphrase_is_asked_for() {
    let place = place();
    let run = place.shell("setsid -w $H sign --key e.pem m");
    run.refuses(&[
        "e.pem: this private key is encrypted, and no terminal is there",
        "--passphrase-file",
        "--passphrase-fd",
    ]);
    let run = place.shell("setsid -w $H keygen --set sha2-128f --encrypt -o n.pem");
    run.refuses(&["the private key is to be encrypted, and no terminal is there"]);
    assert!(!place.path("m.sig").exists() && !place.path("n.pem").exists());
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: prompts: no script(1) (util-linux)");
        return;
    }
    // Input that is typed early enough waits in the terminal; between two prompts it could be dropped.
    let typed = |lines: &str, command: &str| {
        let script = format!("({lines}) | script -qec \"{command}\" typescript; code=$?; cat typescript; exit $code");
        place.shell(&script)
    };
    let line = |text: &str| format!("sleep 1; echo '{text}'; ");
    let run = typed(&line("correct horse"), "$H pubkey e.pem -o asked.pem").good();
    assert!(run.text().contains("Passphrase of e.pem: ") && !run.text().contains("horse"), "{}", run.text());
    assert_eq!(place.read("asked.pem"), place.read("p.pem"));
    let run = typed(&line("correct hrose"), "$H pubkey e.pem -o no.pem").exits(2);
    assert!(run.text().contains("e.pem: the passphrase is wrong"), "{}", run.text());
    let keygen = "$H keygen --set sha2-128f --encrypt -o n.pem";
    let run = typed(&[line("one"), line("two")].concat(), keygen).exits(2);
    assert!(run.text().contains("the two passphrases differ"), "{}", run.text());
    let run = typed(&line(""), keygen).exits(2);
    assert!(run.text().contains("is empty"), "{}", run.text());
    assert!(!place.path("n.pem").exists());
    typed(&[line("battery staple"), line("battery staple")].concat(), keygen).good();
    place.run(&["pubkey", "n.pem", "--passphrase-file", "wrong"]).good();
}

#[test]
fn openssl_keys_are_read_and_hostile_ones_refused() {
    let place = place();
    let vectors = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/slh-dsa/encrypted");
    place.write("pass", "correct_horse\n");
    let run = |name: &str| {
        let path = vectors.join(name);
        place.run(&["pubkey", path.to_str().unwrap(), "--passphrase-file", "pass"])
    };
    let public = std::fs::read_to_string(vectors.join("key.pub.pem")).unwrap();
    for name in ["scrypt-aes-256.pem", "scrypt-aes-128.der", "pbkdf2-sha256-aes-192.pem", "pbkdf2-sha512-aes-256.pem"] {
        assert_eq!(run(name).good().text(), public, "{name}");
    }
    run("refused-des3.pem").refuses(&["refused-des3.pem: this private key is encrypted with DES-EDE3-CBC", "scrypt"]);
    // N is raised to 2^30: no passphrase is asked for.
    let mut hostile = place.read("e.pem");
    let der = SecretDocument::from_pem(str::from_utf8(&hostile).unwrap()).unwrap().1.as_bytes().to_vec();
    let at = der.windows(4).position(|bytes| bytes == [2, 2, 0x40, 0]).unwrap();
    let mut info = EncryptedPrivateKeyInfoRef::from_der(&der).unwrap();
    let EncryptionScheme::Pbes2(parameters) = &mut info.encryption_algorithm else { panic!() };
    let pbes2::Kdf::Scrypt(scrypt) = &mut parameters.kdf else { panic!() };
    assert!(at > 0 && scrypt.cost_parameter == 1 << 14);
    scrypt.cost_parameter = 1 << 30;
    hostile = SecretDocument::encode_msg(&info).unwrap().as_bytes().to_vec();
    place.write("hostile.der", hostile);
    let run = place.run_for(5, &["pubkey", "hostile.der"]);
    run.refuses(&["hostile.der: this encrypted private key asks for scrypt with N = 1073741824", "at most"]);
}

/// OpenSSL decrypts what is written: from 3.5 on it knows the key, before that it has scrypt, PBKDF2 and AES.
#[test]
fn openssl_decrypts_what_is_written() {
    let openssl = std::env::var_os("HYPERGROVE_OPENSSL").unwrap_or_else(|| "openssl".into());
    let output = |args: &[&str]| Command::new(&openssl).args(args).output();
    let Ok(version) = output(&["version"]) else {
        println!("skipped: no openssl");
        return;
    };
    let version = String::from_utf8(version.stdout).unwrap();
    let number = version.split(' ').nth(1).unwrap_or_default().to_string();
    let part = |i: usize| number.split('.').nth(i).and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    if part(0) < 3 {
        println!("skipped: {version}: `openssl kdf` is of 3.0");
        return;
    }
    let place = place();
    let text = |args: &[&str]| {
        let run = output(args).unwrap();
        assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    let plain = SigningKey::read_pkcs8(&place.read("k.pem")).unwrap();
    keygen(&place, &["-o", "e2.pem", "--kdf", "pbkdf2"]).good();
    for name in ["e.pem", "e2.pem"] {
        let path = place.path(name);
        if (part(0), part(1)) >= (3, 5) {
            let pass = format!("file:{}", place.path("pass").display());
            let pem = text(&["pkey", "-in", path.to_str().unwrap(), "-passin", &pass]);
            assert_eq!(SigningKey::read_pkcs8(pem.as_bytes()).as_ref(), Ok(&plain), "{version}, {name}");
            continue;
        }
        let encrypted = EncryptedSigningKey::read(&place.read(name)).unwrap();
        let document = encrypted.to_der().unwrap();
        let info = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes()).unwrap();
        let EncryptionScheme::Pbes2(parameters) = &info.encryption_algorithm else { panic!("{name}") };
        let pbes2::EncryptionScheme::Aes256Cbc { iv } = parameters.encryption else { panic!("{name}") };
        let options: Vec<String> = match &parameters.kdf {
            pbes2::Kdf::Scrypt(scrypt) => {
                let costs = [scrypt.cost_parameter, scrypt.block_size.into(), scrypt.parallelization.into()];
                let [n, r, p] = costs.map(|cost| cost.to_string());
                let salt = hex::encode(scrypt.salt.as_bytes());
                vec![
                    "pass:correct horse".into(),
                    format!("hexsalt:{salt}"),
                    format!("n:{n}"),
                    format!("r:{r}"),
                    format!("p:{p}"),
                ]
            }
            pbes2::Kdf::Pbkdf2(pbkdf2) => {
                let salt = hex::encode(pbkdf2.salt.as_bytes());
                let iterations = format!("iter:{}", pbkdf2.iteration_count);
                vec!["pass:correct horse".into(), format!("hexsalt:{salt}"), iterations, "digest:SHA256".into()]
            }
            _ => panic!("{name}"),
        };
        let mut args = vec!["kdf", "-keylen", "32"];
        options.iter().for_each(|option| args.extend(["-kdfopt", option]));
        args.push(if name == "e.pem" { "SCRYPT" } else { "PBKDF2" });
        let key = text(&args).trim().replace(':', "");
        place.write("data", info.encrypted_data.as_bytes());
        let (data, out) = (place.path("data"), place.path("out"));
        let files = ["-in", data.to_str().unwrap(), "-out", out.to_str().unwrap()];
        text(&[&["enc", "-d", "-aes-256-cbc", "-K", &key, "-iv", &hex::encode(iv)], &files[..]].concat());
        assert_eq!(SigningKey::read_pkcs8(&place.read("out")).as_ref(), Ok(&plain), "{version}, {name}");
    }
}
