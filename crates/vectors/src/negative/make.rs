//! Makes the file of signatures of the negative corpus.
//!
//! Keys and signatures are made from a seed by the reference. All else, what is altered and why, is made of these alone, so
//! that most of the corpus is checked in a moment and whole only in `ci full`.

use hex::encode as hex;
use hypergrove_fips205::digest::{MPrime, prf_msg};
use hypergrove_fips205::reference::{
    fors_node, fors_sk_gen, hash_slh_sign, implied_by, sign_at, slh_keygen_internal, slh_sign, xmss_sign,
};
use hypergrove_fips205::{Adrs, AdrsType, Mode, PARAMETER_SETS, Params, Position, PreHash, SigningKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The path of the file from the root.
pub const SIGNATURES: &str = "vectors/slh-dsa/negative/signatures.json";
/// All bytes of the corpus come from it.
const SEED: &str = "hypergrove negative corpus 1";
/// Messages so long that a context of 256 bytes more can be taken from them.
const MESSAGE: usize = 300;
const CONTEXT: usize = 20;
const HASH: PreHash = PreHash::Sha256;

/// The parts that a group's cases are made of.
pub struct Group {
    /// The set.
    pub params: &'static Params,
    key: Vec<u8>,
    /// The public key of another key pair.
    other: Vec<u8>,
    /// Signatures and parts of them, by name.
    pieces: BTreeMap<String, Vec<u8>>,
}

/// An object with more fields, or with other values in them.
fn with(mut object: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object
}

/// Bytes that look random: blocks of SHAKE256 of the seed, a label and the block's number.
pub(super) fn bytes(label: &str, len: usize) -> Vec<u8> {
    let block =
        |i: usize| PreHash::Shake256.hash(&[SEED.as_bytes(), b" ", label.as_bytes(), b" ", i.to_string().as_bytes()]);
    (0..len.div_ceil(64)).flat_map(block).take(len).collect()
}

/// Of the set: message a, message b, the context.
fn inputs(p: &Params) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let of = |what: &str, len| bytes(&format!("{} {what}", p.name), len);
    (of("message a", MESSAGE), of("message b", MESSAGE), of("context", CONTEXT))
}

fn is_smallest(p: &Params) -> bool {
    p.n == 16
}

fn pair(p: &'static Params, name: &str) -> SigningKey {
    let seed = |what: &str| bytes(&format!("{} {name} {what}", p.name), p.n);
    slh_keygen_internal(p, &seed("SK.seed"), &seed("SK.prf"), &seed("PK.seed"))
}

impl Group {
    /// By the reference, which takes seconds.
    fn make(p: &'static Params) -> Group {
        let (key, other) = (pair(p, "key"), pair(p, "other key"));
        let (a, b, context) = inputs(p);
        let sign = |message: &[u8], context: &[u8]| slh_sign(message, context, &key, None).expect("a short context");
        let mut pieces = BTreeMap::new();
        let mut add = |name: &str, bytes: Vec<u8>| drop(pieces.insert(name.into(), bytes));
        let signature = sign(&a, &context).into_bytes();
        add("b", sign(&b, &context).into_bytes());
        add("prehash", hash_slh_sign(&a, &context, HASH, &key, None).expect("a short context").into_bytes());
        let m_prime = MPrime::new(Mode::Pure { context: &context }, &a).expect("a short context");
        let mut r = vec![0; p.n];
        prf_msg(p, key.sk_prf(), key.pk_seed(), &m_prime, &mut r);
        let at = Position::of(p, &r, key.pk_seed(), key.pk_root(), &m_prime);
        let (sk_seed, pk_seed) = (key.sk_seed(), key.pk_seed());
        // FORS tree 0 reveals the neighbour of its leaf.
        let (adrs, leaf) = (Adrs::new(0, at.idx_tree, AdrsType::ForsTree).key_pair(at.idx_leaf), at.fors[0] ^ 1);
        let path = (0..p.a as u32).flat_map(|z| fors_node(p, sk_seed, (leaf >> z) ^ 1, z, pk_seed, adrs));
        let secret = fors_sk_gen(p, sk_seed, pk_seed, adrs, leaf);
        add("fors leaf", secret.iter().copied().chain(path).collect());
        // Layers that sign what they should, in another place.
        let implied = implied_by(p, &at, &signature, pk_seed);
        let top = &implied.xmss_roots[(p.d - 2) * p.n..(p.d - 1) * p.n];
        let of_top = ((at.idx_tree >> (p.hp * (p.d - 2))) & ((1 << p.hp) - 1)) as u32;
        let xmss = |message: &[u8], layer, tree, leaf| {
            xmss_sign(p, message, sk_seed, leaf, pk_seed, Adrs::new(layer, tree, AdrsType::WotsHash))
        };
        add("xmss leaf", xmss(&implied.fors_pk, 0, at.idx_tree, at.idx_leaf ^ 1));
        add("xmss tree", xmss(&implied.fors_pk, 0, at.idx_tree ^ 1, at.idx_leaf));
        add("top leaf", xmss(top, p.d as u32 - 1, 0, of_top ^ 1));
        if is_smallest(p) {
            let at_another = |tree, leaf| {
                let at = Position { idx_tree: at.idx_tree ^ tree, idx_leaf: at.idx_leaf ^ leaf, ..at };
                [&r[..], &sign_at(p, &at, sk_seed, pk_seed)].concat()
            };
            add("another tree", at_another(1, 0));
            add("another leaf", at_another(0, 1));
            add("longest context", sign(&b, &bytes("the longest context", 255)).into_bytes());
        }
        add("a", signature);
        Group { params: p, key: key.verifying_key().to_bytes(), other: other.verifying_key().to_bytes(), pieces }
    }

    /// Reads a group from a file of the corpus.
    pub fn read(group: &Value) -> Option<Group> {
        let params: &Params = group["parameterSet"].as_str()?.parse().ok()?;
        let pieces = group["pieces"]
            .as_object()?
            .iter()
            .map(|(name, digits)| Some((name.clone(), hex::decode(digits.as_str()?).ok()?)));
        let key = |name: &str| hex::decode(group[name].as_str()?).ok();
        Some(Group { params, key: key("key")?, other: key("otherKey")?, pieces: pieces.collect::<Option<_>>()? })
    }

    #[expect(clippy::too_many_lines, reason = "a list of bad signatures")]
    fn cases(&self) -> Vec<Value> {
        let (p, mut all) = (self.params, Vec::new());
        let (n, len) = (p.n, p.sig_bytes());
        let (a, b, context) = inputs(p);
        let mut add = |flag: &str, comment: &str, changes: Value| {
            let result = if flag == "Valid" { "valid" } else { "invalid" };
            all.push(with(changes, json!({ "flags": [flag], "comment": comment, "result": result })));
        };
        let edits = |edits: Value| json!({ "edits": edits });
        let m_prime = |mode, message: &[u8]| MPrime::new(mode, message).expect("a short context").parts().concat();
        let pure = m_prime(Mode::Pure { context: &context }, &a);
        let hashed = m_prime(Mode::PreHash { context: &context, hash: HASH }, &a);
        let prehash =
            |more: Value| with(json!({ "interface": "preHash", "hashAlg": HASH.name(), "sig": "prehash" }), more);
        let internal =
            |message: &[u8], sig: &str| json!({ "interface": "internal", "ctx": "", "msg": hex(message), "sig": sig });

        add("Valid", "the signature of message a", json!({}));
        add("Valid", "the signature of message b", json!({ "msg": hex(&b), "sig": "b" }));
        add("Valid", "the signature of message a's hash", prehash(json!({})));
        add("Valid", "M' of the pure interface through the internal one", internal(&pure, "a"));
        add("Valid", "M' of the pre-hash interface through the internal one", internal(&hashed, "prehash"));

        let others = PARAMETER_SETS.iter().filter(|other| other.oid_arc().is_some()).map(|other| other.sig_bytes());
        let mut lengths: Vec<usize> = [0, 1, n, len - n, len - 1, len + 1, len + n].into_iter().chain(others).collect();
        lengths.sort();
        lengths.dedup();
        for other in lengths.into_iter().filter(|other| *other != len) {
            add("Length", &format!("{other} bytes instead of {len}"), edits(json!([["resize", other]])));
        }
        let twice = json!([["resize", 2 * len], ["copy", len, "a", 0, len]]);
        add("Length", "the signature twice", edits(twice));
        add("Length", "zeros", edits(json!([["resize", 0], ["resize", len]])));

        let mut ends = |what: &str, from: usize, to: usize| {
            for (which, at) in [("first", from), ("last", to - 1)] {
                // Another bit each time.
                add("FlippedBit", &format!("{what}, {which} byte"), edits(json!([["xor", at, 1 << (at % 8)]])));
            }
        };
        ends("R", 0, n);
        for i in 0..p.k {
            let tree = p.fors_tree_range(i);
            ends(&format!("FORS tree {i}, secret"), tree.start, tree.start + n);
            ends(&format!("FORS tree {i}, path"), tree.start + n, tree.end);
        }
        for layer in 0..p.d {
            let xmss = p.xmss_range(layer);
            let path = xmss.start + p.len() * n;
            ends(&format!("layer {layer}, WOTS+ chains"), xmss.start, path);
            ends(&format!("layer {layer}, path"), path, xmss.end);
        }

        let mut place = |comment: &str, at: usize, piece: &str| {
            let bytes = self.pieces[piece].len();
            add("Place", comment, edits(json!([["copy", at, piece, 0, bytes]])));
        };
        let (fors, first, top) = (p.fors_tree_range(0), p.xmss_range(0), p.xmss_range(p.d - 1));
        place("FORS tree 0 reveals another leaf, with its path", fors.start, "fors leaf");
        place("layer 0 signs PK_FORS with another leaf, with its path", first.start, "xmss leaf");
        place("layer 0 signs PK_FORS in the neighbouring tree", first.start, "xmss tree");
        place("the top layer signs the root below with another leaf, with its path", top.start, "top leaf");
        if is_smallest(p) {
            place("all of it in a neighbouring tree", 0, "another tree");
            place("all of it with a neighbouring leaf", 0, "another leaf");
        }
        let exchange =
            |x: usize, y: usize, bytes: usize| json!([["copy", x, "a", y, bytes], ["copy", y, "a", x, bytes]]);
        let fors_tree = exchange(p.fors_tree_range(0).start, p.fors_tree_range(1).start, p.fors_tree_bytes());
        add("Place", "FORS trees 0 and 1 exchanged", edits(fors_tree));
        let layers = exchange(p.xmss_range(0).start, p.xmss_range(1).start, p.xmss_bytes());
        add("Place", "layers 0 and 1 exchanged", edits(layers));

        let copy = |range: std::ops::Range<usize>| json!([["copy", range.start, "b", range.start, range.len()]]);
        add("OtherSignature", "R of message b's", edits(copy(p.r_range())));
        add("OtherSignature", "FORS of message b's", edits(copy(p.fors_range())));
        add("OtherSignature", "hypertree of message b's", edits(copy(p.ht_range())));
        add("OtherSignature", "message b's signature for message a", json!({ "sig": "b" }));
        add("OtherSignature", "message a's signature for message b", json!({ "msg": hex(&b) }));

        for (what, message) in [
            ("first bit flipped", [&[a[0] ^ 0x80], &a[1..]].concat()),
            ("last bit flipped", [&a[..MESSAGE - 1], &[a[MESSAGE - 1] ^ 1]].concat()),
            ("one byte less", a[..MESSAGE - 1].to_vec()),
            ("one byte more", [&a[..], &[0]].concat()),
            ("empty", Vec::new()),
            ("twice", a.repeat(2)),
        ] {
            add("Message", &format!("the message: {what}"), json!({ "msg": hex(&message) }));
        }

        for (what, context) in [
            ("a bit flipped", [&[context[0] ^ 1], &context[1..]].concat()),
            ("one byte less", context[..CONTEXT - 1].to_vec()),
            ("one byte more", [&context[..], &[0]].concat()),
            ("empty", Vec::new()),
            ("255 bytes", [&context[..], &[0; 255 - CONTEXT]].concat()),
            ("256 bytes", [&context[..], &[0; 256 - CONTEXT]].concat()),
        ] {
            add("Context", &format!("the context: {what}"), json!({ "ctx": hex(&context) }));
            add("Context", &format!("the context of a hash: {what}"), prehash(json!({ "ctx": hex(&context) })));
        }
        // The bytes behind the context's length are the same in each.
        let moved = |at: usize| {
            let all = [&context[..], &a].concat();
            json!({ "ctx": hex(&all[..at]), "msg": hex(&all[at..]) })
        };
        add("Context", "the context's last byte moved into the message", moved(CONTEXT - 1));
        add("Context", "all of the context moved into the message", moved(0));
        add("Context", "the message's first byte moved into the context", moved(CONTEXT + 1));
        add("Context", "256 bytes moved into the context: its length is the same in one byte", moved(CONTEXT + 256));
        if is_smallest(p) {
            let long = bytes("the longest context", 255);
            let longest = |context: &[u8], message: &[u8]| json!({ "ctx": hex(context), "msg": hex(message), "sig": "longest context" });
            let (longer, message) = ([&long[..], &b[..1]].concat(), [&long[254..], &b].concat());
            for (flag, comment, changes) in [
                ("Valid", "a context of 255 bytes", longest(&long, &b)),
                ("Context", "a context of 256 bytes, the last of them the message's first", longest(&longer, &b[1..])),
                ("Context", "a context of 254 bytes, the message with the last", longest(&long[..254], &message)),
            ] {
                add(flag, comment, changes);
            }
        }

        let separated = |first: u8, m_prime: &[u8]| [&[first], &m_prime[1..]].concat();
        let as_message = [&HASH.oid_der()[..], &HASH.hash(&[&a])].concat();
        for (comment, changes) in [
            ("a pure signature as the internal interface's of the message", internal(&a, "a")),
            ("M' of the pure interface with the other separator", internal(&separated(1, &pure), "a")),
            ("M' of the pre-hash interface with the other separator", internal(&separated(0, &hashed), "prehash")),
            ("M' of the pure interface with a separator that is none", internal(&separated(2, &pure), "a")),
            ("a pure signature as one of the hash", prehash(json!({ "sig": "a" }))),
            ("a signature of the hash as one of the message", json!({ "sig": "prehash" })),
            ("a signature of the hash as one of OID and hash", json!({ "sig": "prehash", "msg": hex(&as_message) })),
            ("the hash is hashed once more", prehash(json!({ "msg": hex(HASH.hash(&[&a])) }))),
        ] {
            add("Interface", comment, changes);
        }
        for hash in PreHash::ALL.into_iter().filter(|hash| *hash != HASH) {
            let comment = format!("the signature of another hash, as {hash}");
            add("PreHash", &comment, prehash(json!({ "hashAlg": hash.name() })));
        }
        // Right but for the OID: M' with the identifiers of hashes as long.
        for hash in PreHash::ALL.into_iter().filter(|hash| *hash != HASH && hash.bytes() == HASH.bytes()) {
            let at = 2 + CONTEXT;
            let m_prime = [&hashed[..at], hash.oid_der(), &hashed[at + 11..]].concat();
            add("PreHash", &format!("the right hash with the OID of {hash}"), internal(&m_prime, "prehash"));
        }

        let flipped = |at: usize| {
            let mut key = self.key.clone();
            key[at] ^= 1 << (at % 8);
            key
        };
        for (what, key) in [
            ("first bit of PK.seed flipped", flipped(0)),
            ("last byte of PK.seed changed", flipped(n - 1)),
            ("first bit of PK.root flipped", flipped(n)),
            ("last byte of PK.root changed", flipped(2 * n - 1)),
            ("halves exchanged", [&self.key[n..], &self.key[..n]].concat()),
            ("another key pair's", self.other.clone()),
            ("PK.seed of another key pair", [&self.other[..n], &self.key[n..]].concat()),
            ("PK.root of another key pair", [&self.key[..n], &self.other[n..]].concat()),
        ] {
            add("Key", &format!("the key: {what}"), json!({ "key": hex(&key) }));
        }
        for bytes in [0, 1, n, 2 * n - 1, 2 * n + 1, 4 * n] {
            let key: Vec<u8> = self.key.iter().copied().cycle().take(bytes).collect();
            add("KeyLength", &format!("a key of {bytes} bytes instead of {}", 2 * n), json!({ "key": hex(&key) }));
        }
        for other in PARAMETER_SETS.iter().filter(|other| other.oid_arc().is_some() && other.name != p.name) {
            let fits = json!([["resize", other.sig_bytes()]]);
            let key: Vec<u8> = self.key.iter().copied().cycle().take(2 * other.n).collect();
            let case = json!({ "parameterSet": other.name, "key": hex(&key), "edits": fits });
            let what = if other.n == n { "" } else { ", lengths made to fit" };
            add("ParameterSet", &format!("key and signature as {}'s{what}", other.name), case);
        }
        all
    }
}

/// Of a file: what each flag means.
fn notes() -> Value {
    json!({
        "Valid": "valid",
        "Length": "a length that is not the set's",
        "FlippedBit": "one bit of the signature is flipped",
        "Place": "a part is right in another place: another leaf, tree or layer",
        "OtherSignature": "parts of two signatures by one key",
        "Message": "another message",
        "Context": "another context, or one that is too long",
        "Interface": "pure, pre-hash and internal signatures taken for each other",
        "PreHash": "another pre-hash function, or its OID alone",
        "Key": "another public key",
        "KeyLength": "a public key's length is not the set's",
        "ParameterSet": "another parameter set",
        "Encoding": "not DER, or not what RFC 9909 and RFC 5958 ask for",
    })
}

/// A list with a line for each entry.
pub(super) fn lines(entries: impl IntoIterator<Item = String>) -> String {
    entries.into_iter().collect::<Vec<_>>().join(",\n")
}

/// A file with so many cases, in a list of this name.
pub(super) fn file(cases: usize, list: &str, entries: &str) -> String {
    let (seed, notes) = (json!(SEED), notes());
    format!("{{\"seed\":{seed},\n\"notes\":{notes},\n\"numberOfTests\":{cases},\n\"{list}\":[\n{entries}]}}\n")
}

/// The file of signatures.
pub fn signatures(groups: &[Group]) -> String {
    let mut number = 0;
    let group = |group: &Group| {
        let (a, _, context) = inputs(group.params);
        let defaults = json!({
            "parameterSet": group.params.name, "key": hex(&group.key), "interface": "pure", "hashAlg": "",
            "msg": hex(&a), "ctx": hex(&context), "sig": "a", "edits": [],
        });
        let pieces = lines(group.pieces.iter().map(|(name, bytes)| format!("{}:\"{}\"", json!(name), hex(bytes))));
        let mut cases = group.cases();
        for case in &mut cases {
            number += 1;
            case["tcId"] = json!(number);
        }
        let cases = lines(cases.iter().map(Value::to_string));
        format!(
            "{{\"parameterSet\":\"{}\",\n\"key\":\"{}\",\n\"otherKey\":\"{}\",\n\"pieces\":{{\n{pieces}}},\n\"defaults\":{defaults},\n\"tests\":[\n{cases}]}}",
            group.params.name,
            hex(&group.key),
            hex(&group.other)
        )
    };
    let groups = lines(groups.iter().map(group));
    file(number, "testGroups", &groups)
}

/// The groups of the standard's sets, made anew on two threads.
pub fn groups() -> Vec<Group> {
    let sets: Vec<_> = PARAMETER_SETS.iter().copied().filter(|p| p.oid_arc().is_some()).collect();
    let half = |at: usize| sets.iter().copied().skip(at).step_by(2).map(Group::make).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        let even = half(0);
        let odd = odd.join().expect("the reference does not panic");
        even.into_iter().zip(odd).flat_map(|(even, odd)| [even, odd]).collect()
    })
}
