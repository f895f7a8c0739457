//! Certificates, requests and CMS: others' are verified, ours are taken apart, and what is wrong is one line.

use crate::place::{Place, Run};
use base64ct::{Base64, Encoding};
use hypergrove::{PreHash, pre_hasher};
use hypergrove_files::x509::SignedData;
use hypergrove_testkit::vectors;
use serde_json::Value;
#[cfg(unix)]
use std::process::Command;

const SHA2_128F: &[u8] = b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x15";
/// HashSLH-DSA, SLH-DSA-SHA2-128f with SHA2-256.
const SHA2_128F_WITH_SHA2_256: &[u8] = b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x24";
const SHA256: &[u8] = b"\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01";
const DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const SIGNED_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
/// The message as CMS has it.
const INSIDE: &[u8] = b"\x04\x07message";
const NOT_CHECKED: &str = "only the signature was checked: no chain, no date, no name and no revocation";

/// A DER element.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let length = match u32::try_from(value.len()).unwrap() {
        length @ 0..0x80 => vec![length.to_be_bytes()[3]],
        length @ 0x80..0x100 => vec![0x81, length.to_be_bytes()[3]],
        length @ 0x100..0x1_0000 => [&[0x82], &length.to_be_bytes()[2..]].concat(),
        length => [&[0x83], &length.to_be_bytes()[1..]].concat(),
    };
    [&[tag], &length[..], &value].concat()
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, parts)
}

fn name(name: &str) -> Vec<u8> {
    sequence(&[&tlv(0x31, &[&sequence(&[b"\x06\x03\x55\x04\x03", &tlv(0x0c, &[name.as_bytes()])])])])
}

/// With two keys of SHA2-128f, `ca` and `leaf`.
fn place() -> Place {
    let place = Place::new();
    for name in ["ca", "leaf"] {
        let (private, public) = (format!("{name}.pem"), format!("{name}.pub"));
        place.run(&["keygen", "--set", "sha2-128f", "-o", &private, "--pubout", &public]).good();
    }
    place.write("m", "message");
    place
}

fn spki(place: &Place, key: &str) -> Vec<u8> {
    place.run(&["pubkey", key, "--der"]).good().stdout
}

fn sign(place: &Place, key: &str, bytes: &[u8]) -> Vec<u8> {
    place.write("to-be-signed", bytes);
    place.run(&["sign", "--key", key, "to-be-signed", "-o", "-"]).good().stdout
}

/// SEQUENCE { what is signed, algorithm, BIT STRING }.
fn signed(place: &Place, key: &str, algorithm: &[u8], bytes: &[u8]) -> Vec<u8> {
    let signature = sign(place, key, bytes);
    sequence(&[bytes, &sequence(&[algorithm]), &tlv(3, &[&[0], &signature])])
}

fn certificate(place: &Place, issuer: &str, subject: &str) -> Vec<u8> {
    certificate_by(place, issuer, SHA2_128F, subject)
}

/// By an issuer whose key signs with this algorithm.
fn certificate_by(place: &Place, issuer: &str, algorithm: &[u8], subject: &str) -> Vec<u8> {
    let validity = sequence(&[&tlv(0x17, &[b"250101000000Z"]), &tlv(0x17, &[b"350101000000Z"])]);
    let (from, to) = (name(issuer), name(subject));
    let spki = spki(place, &format!("{subject}.pub"));
    let body = sequence(&[b"\xa0\x03\x02\x01\x02\x02\x01\x2a", &sequence(&[algorithm]), &from, &validity, &to, &spki]);
    signed(place, &format!("{issuer}.pem"), algorithm, &body)
}

fn request(place: &Place) -> Vec<u8> {
    let body = sequence(&[b"\x02\x01\x00", &name("leaf"), &spki(place, "leaf.pub"), b"\xa0\x00"]);
    signed(place, "leaf.pem", SHA2_128F, &body)
}

/// Without signed attributes, the message inside as this element or detached, and the algorithm with these parameters.
fn cms(place: &Place, inside: &[u8], parameters: &[u8]) -> Vec<u8> {
    cms_of(place, b"message", (DATA, inside), parameters)
}

/// CMS like that of [`cms`], of any message, whose content has this type.
fn cms_of(place: &Place, message: &[u8], (kind, inside): (&[u8], &[u8]), parameters: &[u8]) -> Vec<u8> {
    let signature = sign(place, "leaf.pem", message);
    let content = if inside.is_empty() { Vec::new() } else { tlv(0xa0, &[inside]) };
    let content = sequence(&[kind, &content]);
    let algorithm = sequence(&[SHA2_128F, parameters]);
    let signer = sequence(&[b"\x02\x01\x03", &tlv(0x80, &[b"id"]), SHA256, &algorithm, &tlv(4, &[&signature])]);
    let body = sequence(&[b"\x02\x01\x03", &tlv(0x31, &[SHA256]), &content, &tlv(0x31, &[&signer])]);
    sequence(&[SIGNED_DATA, &tlv(0xa0, &[&body])])
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = Base64::encode_string(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn certificates_and_requests_are_verified() {
    let place = place();
    for (file, bytes) in [
        ("ca.der", certificate(&place, "ca", "ca")),
        ("leaf.der", certificate(&place, "ca", "leaf")),
        ("leaf.csr", request(&place)),
    ] {
        place.write(file, bytes);
    }
    place.write("ca.crt", pem("CERTIFICATE", &place.read("ca.der")));
    place.write("csr.pem", pem("CERTIFICATE REQUEST", &place.read("leaf.csr")));
    let verify = |args: &[&str]| place.run(&[&["verify", "--certificate"], args].concat());
    for issuer in ["ca.crt", "ca.der", "ca.pub", "ca.pem"] {
        let run = verify(&["leaf.der", "--issuer", issuer]).good();
        assert_eq!((run.text(), run.stderr.trim_end()), ("leaf.der: OK\n", &*format!("leaf.der: {NOT_CHECKED}")));
        verify(&["leaf.der", "--key", "leaf.pub", "--key", issuer]).good();
    }
    verify(&["ca.crt", "--issuer", "ca.crt"]).good();
    let run = verify(&["leaf.der", "--issuer", "leaf.pub"]).exits(1);
    assert_eq!(run.text(), "leaf.der: FAILED\n");
    assert!(run.stderr.contains("leaf.der: no valid signature by the key SHA256:"), "{}", run.stderr);
    verify(&["leaf.csr"]).good();
    verify(&["csr.pem"]).good();
    let run = verify(&["leaf.der", "--issuer", "ca.crt", "--json"]).good();
    let lines: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["verdict"], &lines[1]["exit"]), (&"ok".into(), &0.into()));
    // The subject's key is a key wherever one is named.
    place.run(&["sign", "--key", "leaf.pem", "m"]).good();
    for key in ["leaf.der", "ca.crt"] {
        place.run(&["verify", "--key", key, "m"]).exits(if key == "leaf.der" { 0 } else { 1 });
    }
    let line = |key: &str| place.run(&["pubkey", key, "--line"]).good().text().to_owned();
    assert_eq!(line("leaf.der"), line("leaf.pub"));
    place.run(&["sign", "--key", "leaf.der", "m", "-o", "x"]).refuses(&["leaf.der is a public key"]);
    // Each byte of what is signed counts, and each of the signature.
    for file in ["leaf.der", "leaf.csr"] {
        let bytes = place.read(file);
        let name = bytes.windows(4).position(|four| four == b"leaf").unwrap();
        for at in [name, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            place.write("changed", changed);
            verify(&[&["changed"][..], if file == "leaf.der" { &["--issuer", "ca.pub"] } else { &[] }].concat())
                .exits(1);
        }
    }
}

/// Each has a verdict, in the order in which they were given; what is wrong with one does not stop the others.
#[test]
fn several_certificates_are_verified() {
    let place = place();
    place.write("ca.der", certificate(&place, "ca", "ca"));
    let leaf = certificate(&place, "ca", "leaf");
    let mut changed = leaf.clone();
    *changed.last_mut().unwrap() ^= 1;
    place.write("leaf.der", leaf);
    place.write("changed.der", changed);
    let verify = |args: &[&str]| place.run(&[&["verify"], args].concat());
    let run = verify(&["--certificate", "ca.der", "leaf.der", "--issuer", "ca.pub"]).good();
    assert_eq!(run.text(), "ca.der: OK\nleaf.der: OK\n");
    assert!(run.stderr.contains("2 OK") && run.stderr.contains(NOT_CHECKED), "{}", run.stderr);
    let run = verify(&["--certificate", "leaf.der", "--issuer", "ca.pub", "--certificate", "changed.der"]).exits(1);
    assert_eq!(run.text(), "leaf.der: OK\nchanged.der: FAILED\n");
    let all = ["--certificate", "changed.der", "absent", "m", "leaf.der", "--issuer", "ca.der"];
    let run = verify(&all).exits(2).says(&["cannot read absent", "m is no certificate or request"]);
    assert_eq!(run.text(), "changed.der: FAILED\nabsent: ERROR\nm: ERROR\nleaf.der: OK\n");
    let run = verify(&[&all[..], &["--json"]].concat()).exits(2);
    let lines: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<_> = lines[..4].iter().map(|line| line["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["failed", "error", "error", "ok"]);
    assert_eq!((&lines[4]["summary"]["ok"], &lines[4]["exit"]), (&1.into(), &2.into()));
    // A request brings its own key, and no other may be named.
    place.write("leaf.csr", request(&place));
    assert_eq!(verify(&["--certificate", "leaf.csr", "leaf.csr"]).good().text(), "leaf.csr: OK\nleaf.csr: OK\n");
    let run = verify(&["--certificate", "leaf.csr", "leaf.der", "--issuer", "ca.pub"]).exits(2);
    assert_eq!(run.says(&["which its own key has signed"]).text(), "leaf.csr: ERROR\nleaf.der: OK\n");
    verify(&["--certificate", "-", "-", "--issuer", "ca.pub"]).refuses(&["standard input is given twice"]);
}

/// An issuer's key of HashSLH-DSA signs the digest of a certificate's body, by the algorithm of its own.
#[test]
fn certificates_by_a_key_of_hash_slh_dsa_are_verified() {
    let place = place();
    let seeds = "5a".repeat(48);
    let keygen = |name: &str, kind: &[&str]| {
        let (private, public) = (format!("{name}.pem"), format!("{name}.pub"));
        let args = ["keygen", "--set", "sha2-128f", "--seeds", &seeds, "-o", &private, "--pubout", &public];
        place.run(&[&args[..], kind].concat()).good();
    };
    keygen("hash", &["--hash-slh-dsa"]);
    let leaf = certificate_by(&place, "hash", SHA2_128F_WITH_SHA2_256, "leaf");
    place.write("ca.der", certificate_by(&place, "hash", SHA2_128F_WITH_SHA2_256, "hash"));
    place.write("leaf.der", &leaf);
    let verify = |leaf: &str, issuer: &str| place.run(&["verify", "--certificate", leaf, "--issuer", issuer]);
    verify("ca.der", "ca.der").good();
    for issuer in ["ca.der", "hash.pub", "hash.pem"] {
        assert_eq!(verify("leaf.der", issuer).good().text(), "leaf.der: OK\n");
    }
    let subject = leaf.windows(4).position(|four| four == b"leaf").unwrap();
    for at in [subject, leaf.len() - 17_088, leaf.len() - 1] {
        let mut changed = leaf.clone();
        changed[at] ^= 1;
        place.write("changed", changed);
        assert_eq!(verify("changed", "ca.der").exits(1).text(), "changed: FAILED\n");
    }
    // A certificate signed without the pre-hash does not fit a key with it, nor the other way round.
    place.write("pure", certificate_by(&place, "hash", SHA2_128F, "leaf"));
    verify("pure", "ca.der").refuses(&["it was signed with SLH-DSA-SHA2-128f, the key is for", "(HashSLH-DSA)"]);
    verify("leaf.der", "ca.pub").refuses(&["it was signed with SLH-DSA-SHA2-128f with SHA2-256 (HashSLH-DSA)"]);
    // A key of these seeds without the pre-hash signs the body itself, even where the algorithm says that its digest is signed.
    keygen("plain", &[]);
    place.write("plain.der", certificate_by(&place, "plain", SHA2_128F, "leaf"));
    verify("plain.der", "plain.pub").good();
    place.write("swapped", certificate_by(&place, "plain", SHA2_128F_WITH_SHA2_256, "leaf"));
    verify("swapped", "ca.der").exits(1);
}

/// The output of `inspect` for each, for people and for programs.
#[test]
fn certificates_requests_and_cms_are_shown() {
    let place = place();
    let files = [
        ("leaf.der", certificate(&place, "ca", "leaf")),
        ("leaf.csr", request(&place)),
        ("inside.p7s", cms(&place, INSIDE, b"")),
        ("detached.p7s", cms(&place, b"", b"")),
    ];
    for (file, bytes) in &files {
        place.write(file, bytes);
    }
    let key = json(&place.run(&["inspect", "leaf.pub", "--json"]).good());
    let key = key["fingerprint"].as_str().unwrap();
    let text = |file: &str| place.run(&["inspect", file]).good().text().to_owned();
    // Each line that has a name and a value.
    let has = |file: &str, fields: &[(&str, &str)]| {
        let text = text(file);
        for (name, value) in fields {
            assert!(text.lines().any(|line| line == format!("{name:<16}{value}")), "{name}: {value} is not in\n{text}");
        }
        text
    };
    const SET: &str = "SLH-DSA-SHA2-128f";
    let shown = has(
        "leaf.der",
        &[
            ("kind", "certificate"),
            ("subject", "CN=leaf"),
            ("issuer", "CN=ca"),
            ("serial", "2a"),
            ("valid from", "2025-01-01T00:00:00Z"),
            ("valid until", "2035-01-01T00:00:00Z"),
            ("key of", SET),
            ("signed with", SET),
            ("key", key),
        ],
    );
    assert!(["tbsCertificate", "signatureAlgorithm", "signature"].iter().all(|part| shown.contains(part)), "{shown}");
    let shown = has(
        "leaf.csr",
        &[("kind", "certificate request"), ("subject", "CN=leaf"), ("key of", SET), ("signed with", SET), ("key", key)],
    );
    assert!(shown.contains("certificationRequestInfo") && !shown.contains("issuer"), "{shown}");
    let signer = [("signed with", SET), ("digest", "SHA2-256"), ("signs", "the message itself")];
    has("inside.p7s", &[&[("kind", "CMS with signatures"), ("message", "inside, 7 bytes")], &signer[..]].concat());
    has("detached.p7s", &[&[("kind", "CMS with signatures"), ("message", "detached")], &signer[..]].concat());
    // PEM and DER are the same but for their names.
    for ((file, bytes), label) in files.iter().zip(["CERTIFICATE", "CERTIFICATE REQUEST", "CMS", "PKCS7"]) {
        place.write("p.pem", pem(label, bytes));
        let [mut der, mut pem] = [*file, "p.pem"].map(|file| json(&place.run(&["inspect", file, "--json"]).good()));
        assert_eq!(
            (&der["bytes"], &der["format"], &pem["format"]),
            (&bytes.len().into(), &"DER".into(), &"PEM".into())
        );
        for of in [&mut der, &mut pem] {
            of.as_object_mut().unwrap().remove("format");
        }
        assert_eq!(der, pem, "{file}");
    }
    // Where the parts are: the first is what is signed, and the last is the signature.
    let shown = json(&place.run(&["inspect", "leaf.csr", "--json"]).good());
    assert_eq!(
        (&shown["subject"], &shown["key"], &shown["kind"]),
        (&"CN=leaf".into(), &key.into(), &"certificate request".into())
    );
    let parts: Vec<_> = shown["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| {
            let [offset, length] =
                ["offset", "length"].map(|name| usize::try_from(part[name].as_u64().unwrap()).unwrap());
            &files[1].1[offset..offset + length]
        })
        .collect();
    place.write("body", parts[0]);
    place.write("body.sig", parts[2]);
    place.run(&["verify", "--key", "leaf.pub", "body"]).good();
    // A file that was cut short is refused, and nothing of it is shown.
    for (file, bytes) in &files {
        place.write("cut", &bytes[..bytes.len() - 1]);
        place.run(&["inspect", "cut"]).refuses(&["cut"]);
        assert!(text(file).len() > 100);
    }
}

fn json(run: &Run) -> Value {
    serde_json::from_str(run.text()).unwrap()
}

#[test]
fn cms_is_verified_detached_and_inside() {
    let place = place();
    place.write("inside.p7s", cms(&place, INSIDE, b""));
    place.write("detached.p7s", cms(&place, b"", b""));
    place.write("p.pem", pem("CMS", &place.read("inside.p7s")));
    place.write("other", "massage");
    let verify = |args: &[&str]| place.run(&[&["verify", "--key", "leaf.pub", "--cms"], args].concat());
    let run = verify(&["inside.p7s"]).good();
    assert_eq!((run.text(), run.stderr.trim_end()), ("inside.p7s: OK\n", &*format!("inside.p7s: {NOT_CHECKED}")));
    verify(&["p.pem"]).good();
    verify(&["detached.p7s", "m"]).good();
    verify(&["detached.p7s", "other"]).exits(1);
    place.run(&["verify", "--key", "ca.pub", "--cms", "inside.p7s"]).exits(1);
    place.run(&["verify", "--key", "ca.pub", "--key", "leaf.pub", "--cms", "inside.p7s"]).good();
    verify(&["detached.p7s"]).refuses(&["its message is detached, and none was given"]);
    verify(&["inside.p7s", "m"]).refuses(&["it holds its message, and another one was given"]);
    let bytes = place.read("inside.p7s");
    let at = bytes.windows(7).position(|seven| seven == b"message").unwrap();
    place.write("changed", [&bytes[..at], b"massage", &bytes[at + 7..]].concat());
    verify(&["changed"]).exits(1);
    let shown: Value = serde_json::from_str(place.run(&["inspect", "inside.p7s", "--json"]).good().text()).unwrap();
    assert_eq!((&shown["kind"], &shown["message"]), (&"CMS with signatures".into(), &"inside, 7 bytes".into()));
    assert_eq!(shown["signers"][0]["signed_with"], "SLH-DSA-SHA2-128f");
    // A message in pieces (BER) is not the message that has the same bytes.
    place.write("pieces.p7s", cms(&place, b"\x24\x80\x04\x04mess\x04\x03age\0\0", b""));
    verify(&["pieces.p7s"]).good();
    place.write("nested.p7s", cms(&place, b"\x04\x09\x04\x07message", b""));
    verify(&["nested.p7s"]).exits(1);
    // Attributes that somebody signed elsewhere are no message, and without attributes nothing signs the type of a content.
    let digest = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04", &tlv(0x31, &[&tlv(4, &[&[7; 32]])])]);
    let attributes = tlv(0x31, &[&digest]);
    place.write("attributes", &attributes);
    place.write("attributes.p7s", cms_of(&place, &attributes, (DATA, b""), b""));
    verify(&["attributes.p7s", "attributes"]).refuses(&["no signed attributes"]);
    place.write("kind.p7s", cms_of(&place, b"message", (SIGNED_DATA, INSIDE), b""));
    verify(&["kind.p7s"]).refuses(&["no signed attributes"]);
}

/// CMS by attributes in this order, which the signer signed in that one: `written` and `signed` are attributes one after the other.
fn cms_by_attributes(place: &Place, written: &[u8], signed: &[u8], digest_algorithm: &[u8]) -> Vec<u8> {
    let signature = sign(place, "leaf.pem", &tlv(0x31, &[signed]));
    let (id, algorithm) = (tlv(0x80, &[b"id"]), sequence(&[SHA2_128F]));
    let attributes = tlv(0xa0, &[written]);
    let signer = sequence(&[b"\x02\x01\x03", &id, digest_algorithm, &attributes, &algorithm, &tlv(4, &[&signature])]);
    let content = sequence(&[DATA]);
    let body = sequence(&[b"\x02\x01\x03", &tlv(0x31, &[digest_algorithm]), &content, &tlv(0x31, &[&signer])]);
    sequence(&[SIGNED_DATA, &tlv(0xa0, &[&body])])
}

/// The message says which part of CMS is wrong.
#[test]
fn the_part_of_cms_that_is_wrong_is_named() {
    let place = place();
    let kind = sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03", &tlv(0x31, &[DATA])]);
    let digest =
        |digest: &[u8]| sequence(&[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04", &tlv(0x31, &[&tlv(4, &[digest])])]);
    let sha256 = |message: &[u8]| {
        let mut hasher = pre_hasher(PreHash::Sha256);
        hasher.update(message);
        hasher.finish()
    };
    for (file, message) in [("lf", "one\ntwo\n"), ("crlf", "one\r\ntwo\r\n"), ("other", "one\ntwo!\n")] {
        place.write(file, message);
    }
    let verify = |message: &str| place.run(&["verify", "--key", "leaf.pub", "--cms", "m.p7s", message]);
    let is_named = |message: &str, part: &str| {
        let run = verify(message).exits(1);
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
        let json = place.run(&["verify", "--key", "leaf.pub", "--cms", "m.p7s", message, "--json"]).exits(1);
        assert!(json.text().contains(part), "{part}: {}", json.text());
    };
    for (signed, changed, text) in [("lf", "crlf", "LF in place of CR LF"), ("crlf", "lf", "CR LF in place of LF")] {
        let attributes = [kind.clone(), digest(&sha256(&place.read(signed)))].concat();
        for bytes in [
            cms_by_attributes(&place, &attributes, &attributes, SHA256),
            cms_of(&place, &place.read(signed), (DATA, b""), b""),
        ] {
            place.write("m.p7s", bytes);
            verify(signed).good();
            is_named(changed, text);
        }
        // The command mends the message.
        #[cfg(unix)]
        {
            let run = verify(changed).exits(1);
            let command = run.stderr.split('`').nth(1).unwrap().replace("FILE", changed).replace("NEW", "mended");
            place.shell(&command).good();
            verify("mended").good();
        }
    }
    let attributes = [kind.clone(), digest(&sha256(&place.read("lf")))].concat();
    let swapped = [digest(&sha256(&place.read("lf"))), kind.clone()].concat();
    place.write("m.p7s", cms_by_attributes(&place, &attributes, &attributes, SHA256));
    is_named("other", "changed content");
    // Attributes may be written in any order, but are signed in DER's.
    place.write("m.p7s", cms_by_attributes(&place, &swapped, &attributes, SHA256));
    verify("lf").good();
    place.write("m.p7s", cms_by_attributes(&place, &swapped, &swapped, SHA256));
    is_named("lf", "wrong order");
    let short = [kind.clone(), digest(&[7; 31])].concat();
    place.write("m.p7s", cms_by_attributes(&place, &short, &short, SHA256));
    is_named("lf", "wrong digest");
    let mut changed = cms_by_attributes(&place, &attributes, &attributes, SHA256);
    *changed.last_mut().unwrap() ^= 1;
    place.write("m.p7s", changed);
    is_named("lf", "wrong signature");
    let sha1 = sequence(&[b"\x06\x05\x2b\x0e\x03\x02\x1a"]);
    place.write("m.p7s", cms_by_attributes(&place, &attributes, &attributes, &sha1));
    verify("lf").refuses(&["its digest SHA-1 is too weak"]);
}

/// Each certificate of a chain has a verdict, and any of several issuers may have signed.
#[test]
fn chains_and_several_issuers_are_read() {
    let place = place();
    let (ca, leaf) = (certificate(&place, "ca", "ca"), certificate(&place, "ca", "leaf"));
    let mut changed = leaf.clone();
    *changed.last_mut().unwrap() ^= 1;
    let own = certificate(&place, "leaf", "leaf");
    let certificates = |all: &[&[u8]]| all.iter().map(|der| pem("CERTIFICATE", der)).collect::<String>();
    place.write("chain.pem", certificates(&[&leaf, &changed, &ca]));
    place.write("broken.pem", certificates(&[&leaf, b"\x30\x00", &ca]));
    place.write("issuers.pem", certificates(&[&own, &ca]));
    place.write("keys.pem", [place.read("leaf.pub"), place.read("ca.pub")].concat());
    for issuer in ["ca.pub", "issuers.pem", "keys.pem"] {
        let run = place.run(&["verify", "--certificate", "chain.pem", "--issuer", issuer]).exits(1);
        let lines: Vec<&str> = run.text().lines().collect();
        let verdicts: Vec<_> = lines.iter().map(|line| line.rsplit(": ").next().unwrap()).collect();
        assert_eq!(verdicts, ["OK", "FAILED", "OK"], "{issuer}: {lines:?}");
        assert!((1..=3).zip(&lines).all(|(number, line)| line.contains(&format!("certificate {number}"))), "{lines:?}");
    }
    let run = place.run(&["verify", "--certificate", "broken.pem", "--issuer", "ca.pub"]).exits(2);
    let verdicts: Vec<_> = run.text().lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
    assert_eq!(verdicts, ["OK", "ERROR", "OK"], "{}", run.stderr);
    // A private key next to certificates is no reason to refuse them.
    place.write("both.pem", [place.read("leaf.pem"), certificates(&[&leaf, &ca]).into_bytes()].concat());
    place.run(&["verify", "--certificate", "both.pem", "--issuer", "ca.pub"]).good();
    place.run(&["verify", "--key", "issuers.pem", "m"]).refuses(&["2 blocks 'CERTIFICATE'"]);
}

/// A file that is taken for a certificate or a key is named, with the command that makes one of it.
#[test]
fn files_of_other_kinds_are_named() {
    let place = place();
    let leaf = certificate(&place, "ca", "leaf");
    let time = tlv(0x17, &[b"250101000000Z"]);
    let body = sequence(&[b"\x02\x01\x01", &sequence(&[SHA2_128F]), &name("ca"), &time]);
    let crl = signed(&place, "ca.pem", SHA2_128F, &body);
    let trusted = [leaf.clone(), sequence(&[&sequence(&[b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01"])])].concat();
    let cms = cms(&place, INSIDE, b"");
    let smime = "MIME-Version: 1.0\nContent-Type: multipart/signed\n\ntext\n";
    let pkcs12 = sequence(&[b"\x02\x01\x03", &sequence(&[DATA])]);
    for (bytes, words) in [
        (pem("TRUSTED CERTIFICATE", &trusted).into_bytes(), ["TRUSTED CERTIFICATE", "`openssl x509 -in FILE"]),
        (trusted, ["TRUSTED CERTIFICATE", "`openssl x509 -inform DER"]),
        (pem("X509 CRL", &crl).into_bytes(), ["X509 CRL", "`openssl crl -in FILE"]),
        (crl, ["a CRL", "`openssl crl -inform DER"]),
        (pem("PKCS7", &cms).into_bytes(), ["PKCS#7", "`openssl pkcs7 -in FILE"]),
        (cms, ["PKCS#7", "`openssl cms -cmsout -inform DER"]),
        (smime.into(), ["S/MIME", "`openssl cms -cmsout -inform SMIME"]),
        (smime.replace('\n', "\r\n").into(), ["S/MIME", "`openssl cms -cmsout -inform SMIME"]),
        (pkcs12, ["PKCS#12", "`openssl pkcs12"]),
    ] {
        place.write("file", bytes);
        place.run(&["verify", "--certificate", "file", "--issuer", "ca.pub"]).refuses(&words);
        place.run(&["verify", "--certificate", "ca.pem", "--issuer", "file"]).refuses(&words);
        place.run(&["pubkey", "file"]).refuses(&words);
    }
    place.write("file", smime);
    place.run(&["verify", "--cms", "file", "--key", "ca.pub"]).refuses(&["S/MIME", "-inform SMIME"]);
    // A key that lost a field is no PKCS#12, whose version is 3.
    place.write("file", sequence(&[b"\x02\x01\x00", &sequence(&[SHA2_128F])]));
    place.run(&["pubkey", "file"]).refuses(&["its field `privateKey` is no OCTET STRING"]);
}

/// No verdict is given on what is of another form than RFC 9909's and RFC 9814's, be it in a certificate, a request or CMS.
#[test]
fn algorithms_with_parameters_and_other_versions_are_errors() {
    const NULL: &[u8] = b"\x05\x00";
    const HAS_PARAMETERS: &str = "its algorithm has parameters, SLH-DSA has none";
    let place = place();
    place.write("null.p7s", cms(&place, INSIDE, NULL));
    place.run(&["verify", "--key", "leaf.pub", "--cms", "null.p7s"]).refuses(&["null.p7s: ", HAS_PARAMETERS]);
    let with_null = [SHA2_128F, NULL].concat();
    place.write("null.der", certificate_by(&place, "ca", &with_null, "leaf"));
    place.run(&["verify", "--certificate", "null.der", "--issuer", "ca.pub"]).refuses(&["null.der: ", HAS_PARAMETERS]);
    // A signature of another length.
    let good = cms(&place, INSIDE, b"");
    let at = good.len() - 17_088 - 4;
    assert_eq!(good[at..at + 4], [4, 0x82, 0x42, 0xc0]);
    let set = |of: &[u8]| place.write("short.p7s", of);
    let signer = |signature: &[u8]| {
        let algorithm = sequence(&[SHA2_128F]);
        sequence(&[b"\x02\x01\x03", &tlv(0x80, &[b"id"]), SHA256, &algorithm, &tlv(4, &[signature])])
    };
    let cms_by = |signers: &[u8]| {
        let content = sequence(&[DATA, &tlv(0xa0, &[INSIDE])]);
        let body = sequence(&[b"\x02\x01\x03", &tlv(0x31, &[SHA256]), &content, &tlv(0x31, &[signers])]);
        sequence(&[SIGNED_DATA, &tlv(0xa0, &[&body])])
    };
    let signature = &good[at + 4..];
    set(&cms_by(&signer(&signature[1..])));
    let verify = |key: &str| place.run(&["verify", "--key", key, "--cms", "short.p7s"]);
    verify("leaf.pub").refuses(&["short.p7s: ", "its signature has 17087 bytes, one of SLH-DSA-SHA2-128f has 17088"]);
    // One signature that is right suffices, whatever else is there and whoever else is named.
    set(&cms_by(&[signer(&signature[1..]), signer(signature)].concat()));
    verify("leaf.pub").good();
    verify("ca.pub").refuses(&["its signature has 17087 bytes"]);
    place.run(&["verify", "--key", "ca.pub", "--key", "leaf.pub", "--cms", "short.p7s"]).good();
    // A request of a version that does not exist is a request all the same.
    let body = sequence(&[b"\x02\x01\x01", &name("leaf"), &spki(&place, "leaf.pub"), b"\xa0\x00"]);
    place.write("v2.csr", signed(&place, "leaf.pem", SHA2_128F, &body));
    let words = ["v2.csr: this is not a certificate request of version v1: its version number is 1", "RFC 2986, has 0"];
    place.run(&["verify", "--certificate", "v2.csr"]).refuses(&words);
    place.run(&["inspect", "v2.csr"]).refuses(&words);
    place.write("v2.pem", pem("CERTIFICATE REQUEST", &place.read("v2.csr")));
    place.run(&["verify", "--certificate", "v2.pem"]).refuses(&words[1..]);
    let mut v4 = certificate(&place, "ca", "leaf");
    let at = v4.windows(5).position(|five| five == b"\xa0\x03\x02\x01\x02").unwrap();
    v4[at + 4] = 3;
    place.write("v4.der", v4);
    let words = ["v4.der: this is not a certificate of version v1, v2 or v3: its version number is 3"];
    place.run(&["verify", "--certificate", "v4.der", "--issuer", "ca.pub"]).refuses(&words);
    // Whoever made a request says alone whose key it has.
    place.write("leaf.csr", request(&place));
    let words = ["leaf.csr: this is a certificate request, a key or a certificate is needed"];
    place.run(&["verify", "--key", "leaf.csr", "m"]).refuses(&words);
    // The error about a file that is too long names the kind of file that was asked for.
    place.write("long", vec![0; (1 << 20) + 1]);
    for (args, what) in [
        (&["verify", "--certificate", "long", "--issuer", "ca.pub"][..], "a certificate or request"),
        (&["verify", "--certificate", "leaf.csr", "--issuer", "long"], "a key or a certificate"),
        (&["inspect", "long"], "a file for `inspect`"),
    ] {
        let words = format!("long has more than 1,048,576 bytes, the most that {what} may have");
        place.run(args).refuses(&[&*words]);
    }
}

#[test]
fn wrong_certificates_are_one_line() {
    let place = place();
    let good = certificate(&place, "ca", "leaf");
    place.write("leaf.der", &good);
    let verify = |args: &[&str]| place.run(&[&["verify"], args].concat());
    for (bytes, words) in [
        (b"".to_vec(), &["wrong is no certificate or request", "hypergrove inspect"][..]),
        (b"text".to_vec(), &["wrong is no certificate"]),
        (spki(&place, "ca.pub"), &["wrong is no certificate"]),
        (good[..good.len() / 2].to_vec(), &["wrong is no certificate"]),
        ([&good[..], b"\0"].concat(), &["wrong is no certificate"]),
        (pem("CERTIFICATE", b"text").into(), &["this is not a certificate"]),
        (cms(&place, INSIDE, b""), &["wrong is no certificate or request"]),
        (vec![0x30; 1 << 20], &["wrong is no certificate"]),
        (vec![0; (1 << 20) + 1], &["more than 1,048,576 bytes"]),
        (good.iter().rev().copied().collect(), &["wrong is no certificate"]),
    ] {
        place.write("wrong", bytes);
        let run = verify(&["--certificate", "wrong", "--issuer", "ca.pub"]).refuses(words);
        assert!(run.stderr.lines().count() <= 2 && run.stderr.len() < 500, "{}", run.stderr);
    }
    let oids: Vec<_> = good.windows(SHA2_128F.len()).enumerate().filter(|(_, bytes)| *bytes == SHA2_128F).collect();
    let with = |changed: &[usize], arc: u8| {
        let mut bytes = good.clone();
        changed.iter().for_each(|oid| bytes[oids[*oid].0 + SHA2_128F.len() - 1] = arc);
        place.write("wrong", bytes);
        verify(&["--certificate", "wrong", "--issuer", "ca.pub"])
    };
    assert_eq!(oids.len(), 3, "inside, of the key, outside");
    with(&[2], 27).refuses(&["its two algorithms of the signature differ"]);
    with(&[0, 2], 27).refuses(&["it was signed with SLH-DSA-SHAKE-128f, the key is for SLH-DSA-SHA2-128f"]);
    with(&[0, 2], 36).refuses(&["SLH-DSA-SHA2-128f with SHA2-256 (HashSLH-DSA)"]);
    with(&[0, 2], 17).refuses(&["it was signed with 2.16.840.1.101.3.4.3.17"]);
    with(&[1], 17).exits(1);
    place.run(&["verify", "--key", "wrong", "leaf.der"]).refuses(&["wrong: ", "2.16.840.1.101.3.4.3.17"]);
    // Arguments that are missing, unreadable or do not go together.
    let certificate = ["--certificate", "leaf.der"];
    for (more, words) in [
        (&[][..], &["nobody is named", "--issuer"][..]),
        (&["--issuer", "absent"], &["cannot read absent"]),
        (&["--issuer", "m"], &["m: "]),
        (&["--issuer", "ca.pub", "--cms", "leaf.der"], &["--cms"]),
        (&["--issuer", "ca.pub", "--context", "c"], &["--context"]),
        (&["--issuer", "ca.pub", "--signature", "m"], &["--signature"]),
    ] {
        verify(&[&certificate[..], more].concat()).refuses(words);
    }
    verify(&["m", "--certificate", "leaf.der", "--issuer", "ca.pub"]).refuses(&["--certificate"]);
    verify(&["--issuer", "ca.pub", "--key", "ca.pub", "m"]).refuses(&["--certificate"]);
    verify(&["--issuer", "ca.pub", "--key", "ca.pub", "--cms", "m"]).refuses(&["--issuer is for --certificate"]);
    verify(&["--cms", "leaf.der", "--key", "ca.pub"]).refuses(&["leaf.der is no CMS with signatures"]);
    verify(&["--cms", "leaf.der"]).refuses(&["--key"]);
    place.write("leaf.csr", request(&place));
    verify(&["--certificate", "leaf.csr", "--key", "leaf.pub"]).refuses(&["which its own key has signed"]);
}

/// The IETF's: RFC 9909's certificate, trust anchors of OpenSSL, CMS of OpenSSL and Bouncy Castle.
#[test]
fn certificates_and_cms_of_others_are_verified() {
    let place = Place::new();
    if let Some(example) = vectors::rfc9909() {
        place.write("rfc.crt", example.certificate);
        place.write("rfc.pub", example.public_key);
        for issuer in ["rfc.crt", "rfc.pub"] {
            place.run(&["verify", "--certificate", "rfc.crt", "--issuer", issuer]).good();
        }
        let shown = place.run(&["inspect", "rfc.crt"]).good();
        for words in ["certificate\n", "SLH-DSA-SHA2-128s\n", "2024", "tbsCertificate"] {
            assert!(shown.text().contains(words), "{words}: {}", shown.text());
        }
        let line = |key: &str| place.run(&["pubkey", key, "--line"]).good().text().to_owned();
        assert_eq!(line("rfc.crt"), line("rfc.pub"));
    }
    let all = |suite, path| vectors::read_all(suite, &format!("slh-dsa/{path}"), ".der").unwrap_or_default();
    for (name, bytes) in all("OpenSSL 3.5's certificates", "ossl35_artifacts_certs_r5") {
        if name.ends_with("_ta.der") {
            place.write("ta.der", bytes);
            let run = place.run(&["verify", "--certificate", "ta.der", "--issuer", "ta.der"]);
            assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
        }
    }
    for folder in ["ossl35_artifacts_cms_v3", "bc_artifacts_cms_v3"] {
        for (name, bytes) in all("CMS", folder) {
            let read = SignedData::read(&bytes).unwrap_or_else(|error| panic!("{folder}/{name}: {error}"));
            let signer = read.certificates().next().unwrap().unwrap();
            place.write("signer.der", signer.as_bytes());
            place.write("file.p7s", &bytes);
            let run = place.run(&["verify", "--cms", "file.p7s", "--key", "signer.der"]);
            assert_eq!(run.code, Some(0), "{folder}/{name}: {}", run.stderr);
            // The message changed: the signature is over the attributes, which have its digest.
            let content = read.content().unwrap();
            let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            place.write("file.p7s", changed);
            let run = place.run(&["verify", "--cms", "file.p7s", "--key", "signer.der"]).exits(1);
            assert!(run.stderr.contains("changed content"), "{folder}/{name}: {}", run.stderr);
            // These signers' certificates were issued with ML-DSA.
            let run = place.run(&["verify", "--certificate", "signer.der", "--issuer", "signer.der"]);
            run.refuses(&["it was signed with 2.16.840.1.101.3.4.3.17"]);
        }
    }
}

/// OpenSSL 3.5 and newer make certificates, requests and CMS with our key; the tool verifies them.
#[cfg(unix)]
#[test]
fn what_openssl_signs_is_verified() {
    let openssl = std::env::var_os("HYPERGROVE_OPENSSL").unwrap_or_else(|| "openssl".into());
    let place = Place::with_key();
    let run = |args: &[&str]| {
        Command::new(&openssl).args(args).current_dir(place.path("")).env("OPENSSL_CONF", "conf").output()
    };
    place.write("conf", "[req]\ndistinguished_name = name\n[name]\n");
    let version = run(&["version"]).map(|run| String::from_utf8_lossy(&run.stdout).into_owned()).unwrap_or_default();
    let numbers: Vec<u32> = version.split([' ', '.']).filter_map(|part| part.parse().ok()).take(2).collect();
    if numbers < vec![3, 5] {
        println!("skipped: '{}' has no SLH-DSA: HYPERGROVE_OPENSSL names a newer one", version.trim());
        return;
    }
    let good = |args: &[&str]| {
        let run = run(args).unwrap();
        assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    };
    place.write("m", "message");
    good(&["req", "-new", "-x509", "-key", "k.pem", "-subj", "/CN=CA", "-out", "ca.crt"]);
    good(&["req", "-new", "-key", "k.pem", "-subj", "/CN=leaf", "-out", "leaf.csr"]);
    good(&[
        "x509", "-req", "-in", "leaf.csr", "-CA", "ca.crt", "-CAkey", "k.pem", "-out", "leaf.der", "-outform", "DER",
    ]);
    place.run(&["verify", "--certificate", "leaf.csr"]).good();
    place.run(&["verify", "--certificate", "leaf.der", "--issuer", "ca.crt"]).good();
    let sign = [
        "cms", "-sign", "-in", "m", "-signer", "ca.crt", "-inkey", "k.pem", "-binary", "-out", "m.p7s", "-md", "sha512",
    ];
    for (more, detached) in [
        (&["-outform", "DER", "-nodetach"][..], false),
        (&["-outform", "DER"], true),
        (&["-outform", "PEM", "-nodetach"], false),
        (&["-outform", "DER", "-nodetach", "-stream"], false),
    ] {
        good(&[&sign[..], more].concat());
        let message: &[&str] = if detached { &["m"] } else { &[] };
        let verify = [&["verify", "--cms", "m.p7s", "--key", "ca.crt"], message].concat();
        let run = place.run(&verify);
        assert_eq!(run.code, Some(0), "{more:?}: {}", run.stderr);
        place.run(&["inspect", "m.p7s"]).good();
    }
}
