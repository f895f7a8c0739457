//! Makes the file of encoded keys of the negative corpus.

use super::make::{bytes, file, lines};
use hex::encode as hex;
use hypergrove_fips205::PARAMETER_SETS;
use serde_json::{Value, json};

/// The path of the file from the root.
pub const KEYS: &str = "vectors/slh-dsa/negative/keys.json";

/// DER: tag, length and content.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    element(tag, parts, 0)
}

/// BER: a length with a byte more than it needs.
fn long(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    element(tag, parts, 1)
}

/// An element whose length has so many bytes more than it needs.
fn element(tag: u8, parts: &[&[u8]], more: usize) -> Vec<u8> {
    let content = parts.concat();
    let bytes = content.len().to_be_bytes();
    let needed = if content.len() < 128 { 0 } else { bytes.len() - content.len().leading_zeros() as usize / 8 };
    let digits = &bytes[bytes.len() - needed - more..];
    let length =
        if digits.is_empty() { vec![content.len() as u8] } else { [&[0x80 | digits.len() as u8], digits].concat() };
    [&[tag][..], &length, &content].concat()
}

/// BER: an element of indefinite length.
fn indefinite(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&[tag, 0x80][..], &parts.concat(), &[0, 0]].concat()
}

const SEQUENCE: u8 = 0x30;
const OID: u8 = 6;
const BITS: u8 = 3;
const OCTETS: u8 = 4;

/// The arcs of an identifier below 2.16.840.1.101.3.4.3.
fn oid(arc: u8) -> Vec<u8> {
    tlv(OID, &[&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, arc]])
}

/// The file of encoded keys.
#[expect(clippy::too_many_lines, reason = "a list of bad keys")]
pub fn keys() -> String {
    let mut cases = Vec::new();
    for (p, arc) in PARAMETER_SETS.iter().filter_map(|p| Some((*p, p.oid_arc()?))) {
        let mut add = |flag: &str, kind: &str, comment: &str, der: Vec<u8>| {
            let result = if flag == "Valid" { "valid" } else { "invalid" };
            let number = cases.len() + 1;
            cases.push(json!({
                "tcId": number, "flags": [flag], "comment": comment, "parameterSet": p.name, "kind": kind, "der": hex(&der),
                "result": result,
            }));
        };
        // The readers of fips205 do not compute PK.root: to them, any bytes are a key.
        let key = bytes(&format!("{} encoded key", p.name), 4 * p.n);
        let (public, id) = (&key[2 * p.n..], oid(arc));
        let algorithm = tlv(SEQUENCE, &[&id]);
        let bits = |unused: u8, key: &[u8]| tlv(BITS, &[&[unused], key]);
        let whole = |algorithm: &[u8], bits: &[u8]| tlv(SEQUENCE, &[algorithm, bits]);
        let right = whole(&algorithm, &bits(0, public));
        add("Valid", "spki", "a public key", right.clone());
        let version = |number: u8| [2, 1, number];
        let octets = tlv(OCTETS, &[&key]);
        let info = |parts: &[&[u8]]| tlv(SEQUENCE, parts);
        let private = info(&[&version(0), &algorithm, &octets]);
        let field = |unused: u8, key: &[u8]| tlv(0x81, &[&[unused], key]);
        add("Valid", "pkcs8", "a private key", private.clone());
        let with_public = info(&[&version(1), &algorithm, &octets, &field(0, public)]);
        add("Valid", "pkcs8", "version 2, with the public key", with_public);
        if !["SLH-DSA-SHA2-128s", "SLH-DSA-SHAKE-256f"].contains(&p.name) {
            continue;
        }
        // Both kinds: what is outside of the key.
        let wrongs = |right: &[u8], parts: &[&[u8]]| {
            vec![
                ("a byte follows", [right, &[0]].concat()),
                ("a byte too few", right[..right.len() - 1].to_vec()),
                ("nothing", Vec::new()),
                ("an element follows inside", info(&[parts, &[&[5, 0]]].concat())),
                ("a length in one byte too many", long(SEQUENCE, parts)),
                ("indefinite length", indefinite(SEQUENCE, parts)),
                ("a SET instead of a SEQUENCE", tlv(0x31, parts)),
                ("not constructed", tlv(0x10, parts)),
                ("twice", right.repeat(2)),
                ("inside another SEQUENCE", tlv(SEQUENCE, &[right])),
                ("inside an OCTET STRING", tlv(OCTETS, &[right])),
            ]
        };
        // Of both kinds: the algorithm's identifier.
        let algorithms = [
            ("NULL parameters", tlv(SEQUENCE, &[&id, &[5, 0]])),
            ("parameters that are an OCTET STRING", tlv(SEQUENCE, &[&id, &[4, 0]])),
            ("an identifier of HashSLH-DSA with NULL parameters", tlv(SEQUENCE, &[&oid(arc + 15), &[5, 0]])),
            ("the identifier of ML-DSA-44", tlv(SEQUENCE, &[&oid(17)])),
            ("an identifier that nobody has", tlv(SEQUENCE, &[&oid(99)])),
            ("the identifier of Ed25519", tlv(SEQUENCE, &[&[OID, 3, 0x2b, 0x65, 0x70]])),
            ("an identifier cut short", tlv(SEQUENCE, &[&tlv(OID, &[&id[2..id.len() - 1]])])),
            ("an identifier with an arc more", tlv(SEQUENCE, &[&tlv(OID, &[&id[2..], &[1]])])),
            ("an arc in two bytes", tlv(SEQUENCE, &[&tlv(OID, &[&id[2..id.len() - 1], &[0x80, arc]])])),
            ("no identifier", tlv(SEQUENCE, &[])),
            ("an identifier without its SEQUENCE", id.clone()),
            ("an algorithm's length in one byte too many", long(SEQUENCE, &[&id])),
            ("an identifier's length in one byte too many", tlv(SEQUENCE, &[&long(OID, &[&id[2..]])])),
            ("an algorithm of indefinite length", indefinite(SEQUENCE, &[&id])),
        ];
        for (comment, der) in wrongs(&right, &[&algorithm, &bits(0, public)]) {
            add("Encoding", "spki", comment, der);
        }
        for (comment, algorithm) in &algorithms {
            add("Encoding", "spki", comment, whole(algorithm, &bits(0, public)));
            add("Encoding", "pkcs8", comment, info(&[&version(0), algorithm, &octets]));
        }
        let even = [&public[..public.len() - 1], &[0]].concat();
        for (comment, bits) in [
            ("a bit unused", bits(1, &even)),
            ("seven bits unused", bits(7, &even)),
            ("eight bits unused", bits(8, &even)),
            ("no byte for the unused bits", tlv(BITS, &[public])),
            ("an empty BIT STRING", tlv(BITS, &[])),
            ("a BIT STRING's length in one byte too many", long(BITS, &[&[0], public])),
            ("a constructed BIT STRING", tlv(0x23, &[&bits(0, &public[..p.n]), &bits(0, &public[p.n..])])),
            ("an OCTET STRING instead", tlv(OCTETS, &[public])),
            ("an OCTET STRING in the BIT STRING", bits(0, &tlv(OCTETS, &[public]))),
        ] {
            add("Encoding", "spki", comment, whole(&algorithm, &bits));
        }
        for length in [0, 1, p.n, 2 * p.n - 1, 2 * p.n + 1, 4 * p.n] {
            let key: Vec<u8> = public.iter().copied().cycle().take(length).collect();
            add("KeyLength", "spki", &format!("{length} bytes"), whole(&algorithm, &bits(0, &key)));
        }
        add("Encoding", "spki", "a private key's PKCS#8", private.clone());

        for (comment, der) in wrongs(&private, &[&version(0), &algorithm, &octets]) {
            add("Encoding", "pkcs8", comment, der);
        }
        for (comment, version) in [
            ("version 3", &[2, 1, 2][..]),
            ("a negative version", &[2, 1, 0xff]),
            ("a version in two bytes", &[2, 2, 0, 0]),
            ("a version's length in two bytes", &[2, 0x81, 1, 0]),
            ("an empty version", &[2, 0]),
            ("a version that is no INTEGER", &[10, 1, 0]),
            ("no version", &[]),
        ] {
            add("Encoding", "pkcs8", comment, info(&[version, &algorithm, &octets]));
        }
        for (comment, octets) in [
            ("an OCTET STRING in the OCTET STRING", tlv(OCTETS, &[&octets])),
            ("an OCTET STRING's length in one byte too many", long(OCTETS, &[&key])),
            ("a constructed OCTET STRING", tlv(0x24, &[&tlv(OCTETS, &[&key[..p.n]]), &tlv(OCTETS, &[&key[p.n..]])])),
            ("a BIT STRING instead", tlv(BITS, &[&[0], &key])),
            ("no key", Vec::new()),
        ] {
            add("Encoding", "pkcs8", comment, info(&[&version(0), &algorithm, &octets]));
        }
        for length in [0, 1, 2 * p.n, 3 * p.n, 4 * p.n - 1, 4 * p.n + 1, 8 * p.n] {
            let key: Vec<u8> = key.iter().copied().cycle().take(length).collect();
            let der = info(&[&version(0), &algorithm, &tlv(OCTETS, &[&key])]);
            add("KeyLength", "pkcs8", &format!("{length} bytes"), der);
        }
        let mut other = public.to_vec();
        other[2 * p.n - 1] ^= 1;
        for (comment, number, field) in [
            ("version 1, with the public key", 0, field(0, public)),
            ("version 2, without the public key", 1, Vec::new()),
            ("another public key", 1, field(0, &other)),
            ("a public key that is too short", 1, field(0, &public[1..])),
            ("a public key with a bit unused", 1, field(1, &even)),
            ("a constructed public key", 1, tlv(0xa1, &[&bits(0, public)])),
        ] {
            add("Encoding", "pkcs8", comment, info(&[&version(number), &algorithm, &octets, &field]));
        }
        add("Encoding", "pkcs8", "a public key's SPKI", right);
    }
    file(cases.len(), "tests", &lines(cases.iter().map(Value::to_string)))
}
