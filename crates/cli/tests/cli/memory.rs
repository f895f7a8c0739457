//! Secrets that the tool leaves in memory: once `main` has returned, no secret of a private key is in it, neither on a thread's
//! stack nor in what was freed.
//!
//! And how much memory long files take.
//!
//! `memory.c` is preloaded and writes the process's memory to a file, which is searched here. Left out are `acvp` and
//! `kat`, whose keys are public test vectors, `bench`, whose keys nobody gets, and what the user has the tool show:
//! seeds among the arguments, as they are written there, and `inspect --show-secrets`.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use crate::place::{Place, Run};
use hypergrove::Isa;
use hypergrove::pkcs8::pkcs5::scrypt;
use hypergrove::{EncryptedSigningKey, Params, SigningKey, zkdilithium};
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::field::Fe;
use hypergrove_zkdilithium::params::{ETA_BYTES, HASH_BYTES, MUSIZE, Q};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The library to preload; none, which is said, without a C compiler.
fn library() -> Option<&'static str> {
    static LIBRARY: OnceLock<Option<String>> = OnceLock::new();
    let build = || {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memory.c");
        let library = concat!(env!("CARGO_TARGET_TMPDIR"), "/memory.so").to_string();
        // Bound at once: binding at the first call would put all registers on the stack.
        let args = ["-shared", "-fPIC", "-O2", "-Wl,-z,now", "-o", &library, source];
        match Command::new("cc").args(args).output() {
            Ok(cc) => {
                assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
                Some(library)
            }
            Err(why) => {
                println!("skipped: secrets in memory: cc: {why}");
                None
            }
        }
    };
    LIBRARY.get_or_init(build).as_deref()
}

/// The secrets to search for, in all their forms.
#[derive(Default)]
struct Secrets {
    /// Eight bytes in a row, and what they are.
    bytes: HashMap<u64, String>,
    /// Sixteen hexadecimal digits in a row, by the first eight and the last, and what they are.
    digits: HashMap<[u64; 2], String>,
    /// Polynomials by their coefficients, or values, from 0 to q − 1.
    polynomials: Vec<(String, Vec<u32>)>,
    /// Four elements in a row, and where they are: the polynomial, and the first's place.
    elements: HashMap<[u32; 4], Vec<(usize, usize)>>,
}

impl Secrets {
    /// These eight bytes in a row, wherever they begin.
    fn add_bytes(&mut self, what: &str, bytes: &[u8]) {
        let windows = bytes.windows(8).map(|window| u64::from_le_bytes(window.try_into().unwrap()));
        self.bytes.extend(windows.map(|window| (window, what.to_string())));
    }

    /// Bytes as they are; as words of 32 or 64 bits, as SHA-2 has them; a word in two lanes of a vector.
    fn add(&mut self, name: &str, secret: &[u8]) {
        let swapped =
            |size: usize| secret.chunks(size).flat_map(|word| word.iter().rev().copied()).collect::<Vec<u8>>();
        self.add_bytes(name, secret);
        self.add_bytes(&format!("{name} in words of 32 bits"), &swapped(4));
        self.add_bytes(&format!("{name} in words of 64 bits"), &swapped(8));
        for word in [secret, &swapped(4)].into_iter().flat_map(|bytes| bytes.chunks_exact(4)) {
            self.add_bytes(&format!("{name} in lanes"), &[word; 2].concat());
        }
    }

    /// Adds a secret as text: base64, whatever the place of the first byte among three, and hexadecimal. Eight digits are not
    /// enough: four bytes of a packed polynomial have some 25 bits, and the texts of `/proc/self/maps` and
    /// `/proc/self/status`, which the tool reads, are full of digits.
    fn add_text(&mut self, name: &str, secret: &[u8]) {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for start in 0..3 {
            let letters = secret[start..].as_chunks::<3>().0.iter().flat_map(|[a, b, c]| {
                let bits = u32::from_be_bytes([0, *a, *b, *c]);
                [18, 12, 6, 0].map(|shift| LETTERS[(bits >> shift & 63) as usize])
            });
            self.add_bytes(&format!("{name} in base64"), &letters.collect::<Vec<u8>>());
        }
        let digits = hex::encode(secret);
        let windows = digits.as_bytes().windows(16).map(two_words);
        self.digits.extend(windows.map(|window| (window, format!("{name} in hexadecimal"))));
    }

    fn add_polynomial(&mut self, name: String, elements: Vec<u32>) {
        // Zeros are everywhere.
        for (i, run) in elements.windows(4).enumerate().filter(|(_, run)| run[0] != 0 && run[1] != 0) {
            self.elements.entry(run.try_into().unwrap()).or_default().push((self.polynomials.len(), i));
        }
        self.polynomials.push((name, elements));
    }

    /// SK.seed and SK.prf of a raw key.
    fn of_slh_dsa(raw: &[u8]) -> Secrets {
        let (n, mut secrets) = (raw.len() / 4, Secrets::default());
        for (name, secret) in [("SK.seed", &raw[..n]), ("SK.prf", &raw[n..2 * n])] {
            secrets.add(name, secret);
            secrets.add_text(name, secret);
        }
        secrets
    }

    /// `key`, s₁ and s₂ packed and by elements, their transforms, and what a message's masks are made from.
    fn of_zkdilithium(raw: &[u8], message: &[u8]) -> Secrets {
        let mut secrets = Secrets::default();
        let key = hypergrove_zkdilithium::SigningKey::from_bytes(raw).unwrap();
        let rho2 = Message::Bytes(message).rho2(key.key(), key.tr(), &[Fe::ZERO; MUSIZE]);
        secrets.add("the masks' seed", &rho2[..]);
        secrets.add("key", key.key());
        secrets.add_text("key", key.key());
        for (i, packed) in raw[3 * HASH_BYTES..].chunks(ETA_BYTES).take(8).enumerate() {
            secrets.add(&format!("s[{i}]"), packed);
            secrets.add_text(&format!("s[{i}]"), packed);
        }
        let values = |elements: &[Fe]| elements.iter().map(|x| x.value()).collect::<Vec<u32>>();
        for (i, s) in key.s1().iter().chain(key.s2().iter()).enumerate() {
            secrets.add_polynomial(format!("s[{i}]"), values(&s.0));
        }
        let expanded = key.expand();
        for (i, s) in expanded.s1_hat().iter().chain(expanded.s2_hat()).enumerate() {
            secrets.add_polynomial(format!("NTT(s[{i}])"), values(&s.0));
        }
        secrets
    }

    /// The polynomial that elements are of: the first sixteen of them, or four of a transform, which are hardly ever
    /// alike by chance.
    fn polynomial(&self, element: impl Fn(usize) -> Option<u32>) -> Option<&str> {
        let not_zero = |i| element(i).filter(|x| *x != 0);
        let start = [not_zero(0)?, not_zero(1)?, element(2)?, element(3)?];
        let agrees = |(polynomial, at): &(usize, usize)| {
            let (name, elements) = &self.polynomials[*polynomial];
            let count = if name.starts_with("NTT") { 4 } else { 16 };
            let run = elements.get(*at..at + count)?;
            run.iter().enumerate().all(|(i, x)| element(i) == Some(*x)).then_some(name.as_str())
        };
        self.elements.get(&start)?.iter().find_map(agrees)
    }

    /// The secrets that are in memory, each with the kind of memory: in how many places.
    fn find(&self, memory: &Memory) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        let mut may_start = vec![false; 1 << 16];
        let starts = self.bytes.keys().chain(self.digits.keys().map(|[first, _]| first));
        starts.for_each(|window| may_start[usize::from(*window as u16)] = true);
        for (kind, bytes) in &memory.0 {
            let mut note = |what: &str| *found.entry(format!("{what}, {kind}")).or_insert(0) += 1;
            let begins = |w: &[u8]| may_start[usize::from(u16::from_le_bytes([w[0], w[1]]))];
            for (at, window) in bytes.windows(8).enumerate().filter(|(_, window)| begins(window)) {
                self.bytes.get(&u64::from_le_bytes(window.try_into().unwrap())).into_iter().for_each(|what| note(what));
                let digits = bytes.get(at..at + 16).and_then(|digits| self.digits.get(&two_words(digits)));
                digits.into_iter().for_each(|what| note(what));
            }
            if self.polynomials.is_empty() {
                continue;
            }
            for at in (0..bytes.len()).step_by(4) {
                let integer = |i: usize| residue(i32::from_le_bytes(*bytes.get(at + 4 * i..)?.first_chunk()?).into());
                self.polynomial(integer).into_iter().for_each(|name| note(&format!("{name} in integers")));
                // Rows of as many lanes as there are.
                for lanes in [1, 2, 4, 8, 16].into_iter().filter(|_| at % 8 == 0) {
                    let float = |i: usize| {
                        let x = f64::from_le_bytes(*bytes.get(at + 8 * lanes * i..)?.first_chunk()?);
                        residue(x as i64).filter(|_| x.fract() == 0.0)
                    };
                    self.polynomial(float).into_iter().for_each(|name| note(&format!("{name} in floats")));
                }
            }
        }
        found
    }
}

/// Sixteen bytes as two words.
fn two_words(bytes: &[u8]) -> [u64; 2] {
    [&bytes[..8], &bytes[8..]].map(|half| u64::from_le_bytes(half.try_into().unwrap()))
}

/// A number that may be an element, reduced or almost, from 0 to q − 1.
fn residue(x: i64) -> Option<u32> {
    (x.unsigned_abs() <= 6 * u64::from(Q)).then(|| x.rem_euclid(i64::from(Q)) as u32)
}

/// The memory that a process could write, but for pages of zeros: pages in a row, and the mapping they are in.
struct Memory(Vec<(String, Vec<u8>)>);

impl Memory {
    /// Reads the file that `memory.c` wrote.
    fn read(dump: &[u8]) -> Memory {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let (maps, pages) = dump[8..].split_at(number(&dump[..8]) as usize);
        let maps: Vec<&str> = str::from_utf8(maps).unwrap().lines().collect();
        let kind = |address: u64| {
            let is_in = |line: &&&str| {
                let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let [start, end] = [start, end].map(|digits| u64::from_str_radix(digits, 16).unwrap());
                (start..end).contains(&address)
            };
            let name = maps.iter().find(is_in).and_then(|line| line.split_whitespace().nth(5));
            name.unwrap_or("a thread's stack or heap").to_string()
        };
        let (mut all, mut next): (Vec<(String, Vec<u8>)>, u64) = (Vec::new(), 0);
        for page in pages.chunks_exact(8 + 4096) {
            let (address, bytes) = (number(&page[..8]), &page[8..]);
            match all.last_mut() {
                Some((_, row)) if address == next => row.extend_from_slice(bytes),
                _ => all.push((kind(address), bytes.to_vec())),
            }
            next = address + 4096;
        }
        Memory(all)
    }
}

/// Runs of the tool, and what they left.
struct Check {
    place: Place,
    library: &'static str,
    left: Vec<String>,
}

impl Check {
    /// With two messages, `m` and `n`; none without the library.
    fn new() -> Option<Check> {
        let library = library()?;
        let place = Place::new();
        place.write("m", "message");
        place.write("n", "another");
        Some(Check { place, library, left: Vec::new() })
    }

    /// Runs the tool, which ends with this code, and gives its memory after that.
    fn run(&self, args: &[&str], stdin: Option<&str>, code: i32) -> (Run, Memory) {
        let stdin = stdin.map_or_else(Stdio::null, |file| File::open(self.place.path(file)).unwrap().into());
        let mut command = self.place.command(args);
        command.env("LD_PRELOAD", self.library).env("MEMORY_DUMP", self.place.path("memory"));
        let run = Run::from(command.stdin(stdin).output().unwrap()).exits(code);
        (run, Memory::read(&self.place.read("memory")))
    }

    /// Runs the tool, which succeeds, and gives the most memory that it had, in bytes.
    fn most(&self, args: &[&str], stdin: Option<&str>) -> u64 {
        let stdin = stdin.map_or_else(Stdio::null, |file| File::open(self.place.path(file)).unwrap().into());
        let mut command = self.place.command(args);
        command.env("LD_PRELOAD", self.library).env("MEMORY_STATUS", self.place.path("status"));
        Run::from(command.stdin(stdin).output().unwrap()).good();
        let status = String::from_utf8(self.place.read("status")).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
        most.trim().parse::<u64>().unwrap() << 10
    }

    fn note(&mut self, args: &[&str], secrets: &Secrets, memory: &Memory) {
        for (what, places) in secrets.find(memory) {
            self.left.push(format!("{}: {what}, {places} times", args.join(" ")));
        }
    }

    /// Looks for the secrets after commands, each with the file that is its standard input.
    fn look_for(&mut self, secrets: &Secrets, code: i32, commands: &[(&str, Option<&str>)]) {
        for (command, stdin) in commands {
            let args: Vec<&str> = command.split(' ').collect();
            let (_, memory) = self.run(&args, *stdin, code);
            self.note(&args, secrets, &memory);
        }
    }

    #[track_caller]
    fn finish(self) {
        assert!(self.left.is_empty(), "{}", self.left.join("\n"));
    }
}

/// A file that is read in pieces takes at most 8 MB, however long it is. Of one that zkDilithium signs, all is in memory: the check
/// sees that.
#[test]
fn long_files_take_little_memory() {
    const LENGTH: u64 = 256 << 20;
    const MOST: u64 = 8_000_000;
    let Some(check) = Check::new() else { return };
    let place = &check.place;
    place.keygen("SLH-DSA-SHA2-128f", "k.pem", "p.pem");
    for (name, length) in [("long", LENGTH), ("short", 1)] {
        File::create(place.path(name)).unwrap().set_len(length).unwrap();
    }
    let most = |name: &str, hash: &str, from: Option<&str>| {
        let prehash: &[&str] = if hash.is_empty() { &[] } else { &["--prehash", hash] };
        let file = if from.is_some() { "-" } else { name };
        let signed = [&["sign", "--key", "k.pem", "--force", "-o", "s", file], prehash].concat();
        let verified = [&["verify", "--key", "p.pem", "-s", "s", file], prehash].concat();
        [signed, verified].map(|args| check.most(&args, from))
    };
    for hash in ["", "SHA2-256", "SHA2-512", "SHAKE-128"] {
        // In pure mode, signing reads twice.
        for piped in [false, true].into_iter().take(1 + usize::from(!hash.is_empty())) {
            let [long, short] = ["long", "short"].map(|name| most(name, hash, piped.then_some(name)));
            for (what, long, short) in [("sign", long[0], short[0]), ("verify", long[1], short[1])] {
                println!("{what}, {hash}, standard input {piped}: {long} and {short} bytes");
                assert!(long < short + MOST, "{what}, {hash}, standard input {piped}: {long} and {short} bytes");
            }
        }
    }
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    let whole = |name| check.most(&["sign", "--key", "z.pem", "--force", "-o", "s", name], None);
    let (long, short) = (whole("long"), whole("short"));
    assert!(long > LENGTH && short < LENGTH / 8, "{long} and {short} bytes");
}

/// The search finds a string that is left: a context, which is no secret, among the arguments on the stack. It finds nothing of another one.
#[test]
fn what_is_left_is_found() {
    let Some(check) = Check::new() else { return };
    check.place.keygen("SLH-DSA-SHA2-128f", "k.pem", "p.pem");
    let small = [1i8, 2, -1, -2, 1, 1, 2, 2, 0, 0, 1, 2, -2, -1, 0, 1, 0, 2];
    let left = "sixteen letters!";
    let mut secrets = Secrets::default();
    secrets.add("the context", left.as_bytes());
    secrets.add_text("text", b"another secret");
    secrets.add_polynomial("s".into(), small.map(|x| i32::from(x).rem_euclid(Q as i32) as u32).to_vec());
    let (_, memory) = check.run(&["sign", "--key", "k.pem", "m", "--context", left], None, 0);
    assert!(secrets.find(&memory).contains_key("the context, [stack]"));
    let (_, memory) = check.run(&["sign", "--key", "k.pem", "n", "--context", "something else"], None, 0);
    assert_eq!(secrets.find(&memory), BTreeMap::new());
    // The forms that the arguments cannot have.
    let swapped: Vec<u8> = left.as_bytes().chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    let lanes = |lanes: usize| {
        small.iter().flat_map(|x| [&f64::from(*x).to_le_bytes()[..], &vec![7; 8 * (lanes - 1)]].concat()).collect()
    };
    let integers = small.iter().flat_map(|x| i32::from(*x).to_le_bytes()).collect();
    for (bytes, what) in [
        (swapped, "the context in words of 32 bits, memory"),
        (b"sixtsixt".to_vec(), "the context in lanes, memory"),
        (hex::encode("other se").into(), "text in hexadecimal, memory"),
        (b"ub3RoZXIgc2Vj".to_vec(), "text in base64, memory"),
        (integers, "s in integers, memory"),
        (lanes(1), "s in floats, memory"),
        (lanes(8), "s in floats, memory"),
    ] {
        assert!(secrets.find(&Memory(vec![("memory".into(), bytes)])).contains_key(what), "{what}");
    }
    let seven = hex::encode("other s").into();
    assert_eq!(secrets.find(&Memory(vec![("memory".into(), seven)])), BTreeMap::new());
}

#[test]
fn slh_dsa_leaves_no_secrets() {
    for set in ["SHA2-128f", "SHA2-192f", "SHA2-256f", "SHAKE-128f", "SHAKE-192f", "SHAKE-256f"] {
        let Some(mut check) = Check::new() else { return };
        let name = format!("SLH-DSA-{set}");
        let p: &Params = name.parse().unwrap();
        let raw = |key: SigningKey| key.to_bytes().to_vec();
        for (form, file) in [("--raw", "k.raw"), ("--der", "k.der"), ("--force", "k.pem"), ("--force", "-")] {
            let args = ["keygen", "--set", &name, form, "-o", file];
            let (run, memory) = check.run(&args, None, 0);
            let bytes = if file == "-" { run.stdout } else { check.place.read(file) };
            let key = if form == "--raw" { bytes } else { raw(SigningKey::read_pkcs8(&bytes).unwrap()) };
            check.note(&args, &Secrets::of_slh_dsa(&key), &memory);
        }
        // One key in all files.
        let pem = check.place.read("k.pem");
        let key = SigningKey::read_pkcs8(&pem).unwrap();
        check.place.write("k.der", hypergrove::pkcs8::EncodePrivateKey::to_pkcs8_der(&key).unwrap().as_bytes());
        check.place.write("k.raw", key.to_bytes());
        // The last line is not what it should be.
        check.place.write("damaged.pem", String::from_utf8(pem).unwrap().replace("\n-----END", "!\n-----END"));
        let secrets = Secrets::of_slh_dsa(&key.to_bytes());
        let of_set = |command: &str| command.replace("SET", p.name);
        check.look_for(
            &secrets,
            0,
            &[
                ("pubkey k.pem", None),
                ("pubkey - --raw", Some("k.der")),
                ("sign --force --key k.pem m", None),
                ("sign --force --key k.pem m --threads 1 --deterministic", None),
                ("sign --force --key k.pem m --prehash sha2-256 --redundant", None),
                ("sign --force --key k.der m n", None),
                ("sign --force --key - m", Some("k.pem")),
                (&of_set("sign --force --set SET --key - m --cache-layers 1"), Some("k.raw")),
                ("verify --key k.pem m", None),
                ("inspect k.pem", None),
                ("inspect k.der --json", None),
                (&of_set("inspect --set SET -"), Some("k.raw")),
            ],
        );
        for isa in Isa::available() {
            check.look_for(&secrets, 0, &[(&format!("sign --force --isa {} --key k.pem m", isa.name()), None)]);
        }
        check.look_for(&secrets, 2, &[("pubkey damaged.pem", None), ("sign --key - m", Some("damaged.pem"))]);
        // The seeds are among the arguments as text, and nowhere as bytes.
        let seeds: Vec<u8> = (0..3 * p.n as u8).map(|i| i.wrapping_mul(151).wrapping_add(83)).collect();
        let mut secrets = Secrets::default();
        secrets.add("the seeds", &seeds[..2 * p.n]);
        check.look_for(&secrets, 0, &[(&format!("keygen --set {name} --seeds {}", hex::encode(&seeds)), None)]);
        check.finish();
    }
}

/// Of a key under a passphrase neither the key is left, nor the passphrase, nor the key that is made from it.
#[test]
fn passphrases_leave_no_secrets() {
    let Some(mut check) = Check::new() else { return };
    let (passphrase, wrong) = ("correct horse battery staple", "Zk4vQ-8xPw2m-Lr7Tn9s-Bd3");
    check.place.write("pass", format!("{passphrase}\n"));
    check.place.write("wrong", wrong);
    for kdf in ["scrypt", "pbkdf2"] {
        let keygen = format!("keygen --set sha2-128f -o {kdf}.pem --encrypt --kdf {kdf} --passphrase-file pass");
        let keygen: Vec<&str> = keygen.split(' ').collect();
        let (_, memory) = check.run(&keygen, None, 0);
        let encrypted = EncryptedSigningKey::read(&check.place.read(&format!("{kdf}.pem"))).unwrap();
        let key = SigningKey::decrypt(&encrypted, passphrase.as_bytes()).unwrap();
        let mut secrets = Secrets::of_slh_dsa(&key.to_bytes());
        secrets.add("the passphrase", passphrase.as_bytes());
        secrets.add("the wrong passphrase", wrong.as_bytes());
        if kdf == "scrypt" {
            let document = encrypted.to_der().unwrap();
            // The last field but the initialization vector's: sixteen bytes of salt.
            let der = document.as_bytes();
            let at = der.windows(2).position(|bytes| bytes == [4, 16]).unwrap() + 2;
            let (mut derived, costs) = ([0; 32], scrypt::Params::new(14, 8, 5).unwrap());
            scrypt::scrypt(passphrase.as_bytes(), &der[at..at + 16], &costs, &mut derived).unwrap();
            secrets.add("the key that encrypts", &derived);
        }
        check.note(&keygen, &secrets, &memory);
        let with = |command: &str| format!("{command} --passphrase-file pass").replace("KEY", &format!("{kdf}.pem"));
        for command in ["pubkey KEY", "sign --force --key KEY m", "verify --key KEY m", "inspect KEY"] {
            check.look_for(&secrets, 0, &[(&with(command), None)]);
        }
        let piped = with("sign --force --key KEY m").replace("--passphrase-file pass", "--passphrase-file -");
        check.look_for(&secrets, 0, &[(&piped, Some("pass"))]);
        check.look_for(&secrets, 2, &[(&with("pubkey KEY").replace(" pass", " wrong"), None)]);
    }
    check.finish();
}

/// The only command that makes a key and signs with it.
#[test]
fn quickstart_leaves_no_secrets() {
    let Some(mut check) = Check::new() else { return };
    let args = ["quickstart", ".", "--set", "SLH-DSA-SHAKE-128f", "--keep", "kept"];
    let (_, memory) = check.run(&args, None, 0);
    let key = SigningKey::read_pkcs8(&check.place.read("kept/private.pem")).unwrap();
    check.note(&args, &Secrets::of_slh_dsa(&key.to_bytes()), &memory);
    check.finish();
}

#[test]
fn zkdilithium_leaves_no_secrets() {
    let Some(mut check) = Check::new() else { return };
    for (form, file) in [("--raw", "k.raw"), ("--force", "k.pem"), ("--force", "-")] {
        let args = ["keygen", "--scheme", "zkdilithium", form, "-o", file];
        let (run, memory) = check.run(&args, None, 0);
        let bytes = if file == "-" { run.stdout } else { check.place.read(file) };
        let of_pem = || zkdilithium::SigningKey::read_pem(&bytes).unwrap().to_bytes().to_vec();
        let raw = if form == "--raw" { bytes.clone() } else { of_pem() };
        check.note(&args, &Secrets::of_zkdilithium(&raw, b""), &memory);
    }
    let pem = check.place.read("k.pem");
    let key = zkdilithium::SigningKey::read_pem(&pem).unwrap().to_bytes();
    check.place.write("k.raw", &key);
    check.place.write("damaged.pem", String::from_utf8(pem).unwrap().replace("\n-----END", "!\n-----END"));
    let secrets = Secrets::of_zkdilithium(&key, b"message");
    check.look_for(
        &secrets,
        0,
        &[
            ("pubkey k.pem", None),
            ("pubkey - --raw", Some("k.raw")),
            ("sign --force --key k.pem m", None),
            ("sign --force --key k.pem m --threads 1", None),
            ("sign --force --key k.raw m n", None),
            ("sign --force --key - m", Some("k.pem")),
            ("verify --key k.pem m", None),
            ("inspect k.pem", None),
            ("inspect - --json", Some("k.raw")),
        ],
    );
    for isa in Isa::available() {
        check.look_for(&secrets, 0, &[(&format!("sign --force --isa {} --key k.pem m", isa.name()), None)]);
    }
    check.look_for(&secrets, 2, &[("pubkey damaged.pem", None), ("sign --key - m", Some("damaged.pem"))]);
    let seed: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(151).wrapping_add(83)).collect();
    let mut secrets = Secrets::default();
    secrets.add("the seed", &seed);
    check.look_for(&secrets, 0, &[(&format!("keygen --scheme zkdilithium --seeds {}", hex::encode(&seed)), None)]);
    check.finish();
}

/// A message is not copied for all keys that may have signed it at once.
#[test]
fn many_signers_take_little_memory() {
    const LENGTH: u64 = 3 << 20;
    let Some(check) = Check::new() else { return };
    let place = &check.place;
    place.keygen("SLH-DSA-SHA2-128f", "k.pem", "p.pem");
    File::create(place.path("m")).unwrap().set_len(LENGTH).unwrap();
    place.run(&["sign", "--key", "k.pem", "m"]).good();
    let mut lines = String::new();
    for number in 0..64 {
        place.keygen("SLH-DSA-SHA2-128f", &format!("{number}.pem"), &format!("{number}.pub"));
        let line = place.run(&["pubkey", &format!("{number}.pem"), "--line"]).good();
        lines += &format!("signer{number} {}", line.text());
    }
    let word = place.run(&["pubkey", "k.pem", "--line"]).good();
    place.write("list", format!("{lines}right {}", word.text()));
    let most = check.most(&["verify", "--allowed-signers", "list", "m", "--memory", "16M"], None);
    assert!(most < 64 * LENGTH / 2, "{most} bytes");
}
