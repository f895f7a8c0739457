//! The constants of the hashes, recomputed from where their standards take them and compared with the literals in lanes
//! and in the GPU kernels.

use crate::disk;
use crate::process::{Outcome, Step};
use std::cmp::Ordering;

const SHA2: &str = "crates/lanes/src/sha2.rs";
const IVS: &str = "crates/fips205/src/sha2.rs";
const KECCAK: &str = "crates/lanes/src/keccak.rs";
const KERNELS: &str = "crates/kernels";

pub(crate) fn check() -> Step {
    let seen = [lanes()?, kernels()?];
    Ok(Outcome::Passed(format!("lanes: {}; kernels: {}", seen[0].join(", "), seen[1].join(", "))))
}

/// The first `count` primes' roots: their fractions.
fn roots(count: usize, root: u32, bits: u32) -> Vec<u64> {
    primes(count).map(|p| fraction_of_root(p, root, bits)).collect()
}

/// Every table of literals in these files must be one of those below.
fn lanes() -> Result<Vec<&'static str>, String> {
    let (sha2, ivs, keccak) = (disk::read(SHA2)?, disk::read(IVS)?, disk::read(KECCAK)?);
    let known: [(&str, &str, Vec<u64>); 4] = [
        ("K512", SHA2, roots(80, 3, 64)),
        ("K256", SHA2, roots(64, 3, 32)),
        ("IV512", IVS, roots(8, 2, 64)),
        ("RC", KECCAK, keccak_round_constants()),
    ];
    let (mut seen, mut faults) = (Vec::new(), Vec::new());
    for (path, text) in [(SHA2, &sha2), (IVS, &ivs), (KECCAK, &keccak)] {
        for (name, literals) in tables(text) {
            match known.iter().find(|(known, file, _)| *known == name && *file == path) {
                Some((known, _, values)) if *values == literals => seen.push(*known),
                Some((.., values)) => {
                    let at = (0..).find(|&i| values.get(i) != literals.get(i)).unwrap_or_default();
                    faults.push(format!("{path}: {name}[{at}] should be {:#x?}", values.get(at)));
                }
                None => faults.push(format!("{path}: {name} is a table that xtask cannot recompute")),
            }
        }
    }
    // SHA-256's tables may be derived from SHA-512's, whose upper halves they are.
    for name in ["K512", "IV512", "RC"] {
        if !seen.contains(&name) && faults.is_empty() {
            faults.push(format!("no table {name} in {SHA2}, {IVS} or {KECCAK}"));
        }
    }
    let rows = keccak_rows(&keccak);
    match rows == expected_keccak_rows() {
        true => seen.push("rho and pi"),
        false => faults.push(format!("{KECCAK}: the sources and rotations of row! are {rows:?}")),
    }
    if faults.is_empty() { Ok(seen) } else { Err(faults.join("\n")) }
}

/// The kernels' words are of 32 bits: one of 64 is written high, low. A header of a hash holds its constants alone, in the
/// order of their use; elsewhere every table must be known by its name.
fn kernels() -> Result<Vec<&'static str>, String> {
    let halves = |words: Vec<u64>| words.into_iter().flat_map(|word| [word >> 32, word & 0xffff_ffff]).collect();
    let (k256, k512, rc): (_, Vec<u64>, Vec<u64>) =
        (roots(64, 3, 32), halves(roots(80, 3, 64)), halves(keccak_round_constants()));
    let headers = [
        ("hash/sha256.h", [k256.clone(), roots(8, 2, 32)].concat()),
        ("hash/sha512.h", [k512.clone(), halves(roots(8, 2, 64))].concat()),
        ("hash/keccak.h", rc.clone()),
    ];
    let mut faults = Vec::new();
    for (path, want) in &headers {
        let words = words(&disk::read(format!("{KERNELS}/{path}"))?);
        if words != *want {
            let at = (0..).find(|&i| want.get(i) != words.get(i)).unwrap_or_default();
            let should = want.get(at).map_or("no more".into(), |word| format!("{word:#010x}"));
            faults.push(format!("{KERNELS}/{path}: the constant at {at} should be {should}"));
        }
    }
    let (mut seen, mut checked) = (Vec::new(), 0);
    for path in sources(KERNELS)? {
        let text = disk::read(&path)?;
        for (name, count, words) in c_tables(&text) {
            let known = [("K256", &k256), ("K512", &k512), ("KECCAK_RC", &rc)];
            match known.into_iter().find(|(known, _)| *known == name) {
                Some((known, values)) if *values == words && count == words.len() => {
                    checked += 1;
                    seen.push(known);
                }
                Some((..)) => faults.push(format!("{path}: {name} differs from what the standard derives")),
                None => faults.push(format!("{path}: {name} is a table that xtask cannot recompute")),
            }
        }
    }
    if checked < 3 && faults.is_empty() {
        faults.push(format!("{KERNELS}: of K256, K512 and KECCAK_RC only {} are there", seen.join(", ")));
    }
    seen.sort();
    seen.dedup();
    seen.push("IVs");
    match c_keccak_moves(&disk::read(format!("{KERNELS}/hash/keccak.h"))?) {
        moves if moves == expected_keccak_moves() => seen.push("rho and pi"),
        moves => faults.push(format!("{KERNELS}/hash/keccak.h: the lanes' sources, ends and rotations are {moves:?}")),
    }
    if faults.is_empty() { Ok(seen) } else { Err(faults.join("\n")) }
}

/// The kernels' files.
fn sources(folder: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for path in disk::entries(folder)? {
        let name = path.to_string_lossy().into_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("h" | "k" | "cpp") => found.push(name),
            None if path.is_dir() => found.extend(sources(&name)?),
            _ => {}
        }
    }
    Ok(found)
}

/// The literals of eight hexadecimal digits, in order.
fn words(source: &str) -> Vec<u64> {
    let literal = |rest: &str| match rest.get(..9) {
        Some(word) if word.ends_with('u') => u64::from_str_radix(&word[..8], 16).ok(),
        _ => None,
    };
    source.split("0x").skip(1).filter_map(literal).collect()
}

/// `CONST_U32(NAME, count) literals CONST_END`: the dialect's tables.
fn c_tables(source: &str) -> Vec<(&str, usize, Vec<u64>)> {
    let bodies = source.split("CONST_U32(").skip(1).filter_map(|rest| rest.split_once("CONST_END"));
    bodies.filter_map(|(body, _)| c_table(body)).collect()
}

fn c_table(body: &str) -> Option<(&str, usize, Vec<u64>)> {
    let (name, rest) = body.split_once(", ")?;
    let (count, literals) = rest.split_once(')')?;
    Some((name, count.parse().ok()?, integers(&literals.replace('u', "")).unwrap_or_default()))
}

/// `const NAME: [T; N] = [literals];` and `static` alike; what is computed has no literals and is left out.
fn tables(source: &str) -> Vec<(&str, Vec<u64>)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices(": [u") {
        let name = source[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let keyword = source[..at - name.len()].trim_end();
        let body = source[at..].split_once("] = [").filter(|(kind, _)| !kind.contains(['\n', '=']));
        if let (true, Some((_, body))) = (keyword.ends_with("const") || keyword.ends_with("static"), body) {
            let literals: Option<Vec<u64>> = body.split_once(']').and_then(|(body, _)| integers(body));
            found.extend(literals.map(|literals| (name, literals)));
        }
    }
    found
}

/// The integers of a list with commas; `None` if it holds anything else.
fn integers(list: &str) -> Option<Vec<u64>> {
    let words = list.split([',', ' ', '\n']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let digits = word.replace('_', "");
            digits.strip_prefix("0x").map_or_else(|| digits.parse(), |hex| u64::from_str_radix(hex, 16)).ok()
        })
        .collect()
}

fn primes(count: usize) -> impl Iterator<Item = u32> {
    (2u32..).filter(|p| (2..*p).take_while(|q| q * q <= *p).all(|q| p % q != 0)).take(count)
}

/// The first `bits` bits of the fraction of p^(1/root): FIPS 180-4, 4.2.2, 4.2.3, 5.3.3 and 5.3.5.
fn fraction_of_root(p: u32, root: u32, bits: u32) -> u64 {
    // The largest x with x^root ≤ p·2^(root·bits), digit by digit from the top; p^(1/root) < 2^5 for these primes.
    let mut limit = vec![0; (root * bits / 32) as usize];
    limit.push(p);
    let x = (0..bits + 5).rev().fold(0u128, |x, bit| {
        let wider = x | 1 << bit;
        let limbs: Vec<u32> = (0..4).map(|i| (wider >> (32 * i)) as u32).collect();
        let power = (1..root).fold(limbs.clone(), |power, _| product(&power, &limbs));
        if compare(&power, &limit) == Ordering::Greater { x } else { wider }
    });
    (x & ((1 << bits) - 1)) as u64
}

/// Schoolbook multiplication, least limb first.
fn product(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out = vec![0; a.len() + b.len()];
    for (i, &x) in a.iter().enumerate() {
        let mut carry = 0;
        for (j, &y) in b.iter().enumerate() {
            let sum = u64::from(x) * u64::from(y) + u64::from(out[i + j]) + carry;
            (out[i + j], carry) = (sum as u32, sum >> 32);
        }
        out[i + b.len()] = carry as u32;
    }
    out
}

fn compare(a: &[u32], b: &[u32]) -> Ordering {
    let limb = |x: &[u32], i| x.get(i).copied().unwrap_or(0);
    (0..a.len().max(b.len())).rev().map(|i| limb(a, i).cmp(&limb(b, i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// FIPS 202, Algorithms 5 and 6: bit 2^j − 1 of round i is rc(j + 7i), a shift register's output.
fn keccak_round_constants() -> Vec<u64> {
    let mut register = 1u8;
    let mut rc = || {
        let bit = u64::from(register & 1);
        register = register << 1 ^ if register & 0x80 != 0 { 0x71 } else { 0 };
        bit
    };
    (0..24).map(|_| (0..7).fold(0, |word, j| word | rc() << ((1 << j) - 1))).collect()
}

/// FIPS 202, Algorithm 2: the offset of lane (x, y) at index x + 5y.
fn keccak_offsets() -> [u64; 25] {
    let (mut offsets, mut x, mut y) = ([0; 25], 1, 0);
    for t in 0..24 {
        offsets[x + 5 * y] = (t + 1) * (t + 2) / 2 % 64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
    }
    offsets
}

/// FIPS 202, Algorithm 3: lane (x, y) after π comes from ((x + 3y) mod 5, x). For each: source, rotation left, and right.
fn expected_keccak_rows() -> Vec<u64> {
    let offsets = keccak_offsets();
    let row = |y: usize| (0..5).map(move |x| (x + 3 * y) % 5 + 5 * x);
    let lane = |from: usize| [from as u64, offsets[from], 64 - offsets[from]];
    (0..5).flat_map(|y| std::iter::once(y as u64).chain(row(y).flat_map(lane))).collect()
}

/// The literals of `row!(y: from left right, …)`.
fn keccak_rows(source: &str) -> Vec<u64> {
    let calls = source.split("row!(").skip(1).filter_map(|rest| rest.split_once(')'));
    calls.filter_map(|(call, _)| integers(&call.replace(':', ","))).flatten().collect()
}

/// FIPS 202, Algorithms 2 and 3: source, end, column of the source, and rotation of each lane.
fn expected_keccak_moves() -> Vec<[u64; 4]> {
    let offsets = keccak_offsets();
    let end = |from: usize| from / 5 + 5 * ((2 * (from % 5) + 3 * (from / 5)) % 5);
    (0..25).map(|from| [from as u64, end(from) as u64, from as u64 % 5, offsets[from]]).collect()
}

/// `b[end] = rotl64(XOR3(A[source], c<column − 1>, r<column>), <rotation>u);` by source; without `rotl64` the rotation is 0.
fn c_keccak_moves(source: &str) -> Vec<[u64; 4]> {
    let statements = source.split(';').map(|statement| statement.trim_start_matches(['\\', ' ', '\n']));
    let moves = statements.filter(|statement| statement.starts_with("b[") && statement.contains("XOR3("));
    let numbers = |move_: &str| -> Vec<u64> {
        let text = move_.replace("rotl64", "").replace("XOR3", "");
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let mut found: Vec<_> = moves
        .map(|move_| match numbers(move_)[..] {
            [end, source, before, column] if before == (column + 4) % 5 => [source, end, column, 0],
            [end, source, before, column, rotation] if before == (column + 4) % 5 => [source, end, column, rotation],
            _ => [u64::MAX; 4],
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_the_kernels_dialect() {
        let source = "CONST_U32(A, 2)\n  0x00000010u, 0x80000001u,\nCONST_END\nx = 0xffu & 0x6a09e667u;";
        assert_eq!(c_tables(source), [("A", 2, vec![16, 0x8000_0001])]);
        assert_eq!(words(source), [16, 0x8000_0001, 0x6a09_e667]);
        let source = "U64 b[25]; \\\n  b[10] = rotl64(XOR3(A[1], c0, r1), 1u); b[0] = XOR3(A[0], c4, r0); \\\n  A[0] = b[0] ^ (~b[1] & b[2]);";
        assert_eq!(c_keccak_moves(source), [[0, 0, 0, 0], [1, 10, 1, 1]]);
        assert_eq!(c_keccak_moves(source), expected_keccak_moves()[..2]);
        assert_eq!(c_keccak_moves("b[10] = rotl64(XOR3(A[1], c1, r1), 1u);"), [[u64::MAX; 4]]);
    }

    #[test]
    fn first_and_last_constants() {
        let k512: Vec<u64> = primes(80).map(|p| fraction_of_root(p, 3, 64)).collect();
        assert_eq!((k512[0], k512[79]), (0x428a_2f98_d728_ae22, 0x6c44_198c_4a47_5817));
        assert_eq!(fraction_of_root(311, 3, 32), 0xc671_78f2);
        assert_eq!(fraction_of_root(19, 2, 64), 0x5be0_cd19_137e_2179);
        let rc = keccak_round_constants();
        assert_eq!((rc[0], rc[1], rc[23]), (1, 0x8082, 0x8000_0000_8000_8008));
        assert_eq!((keccak_offsets()[1], keccak_offsets()[24]), (1, 14));
    }

    #[test]
    fn reads_tables_of_literals_alone() {
        let source = "const A: [u64; 2] = [0x1_0, 3];\nstatic B: [u32; 2] = {\n    [1, 2]\n};\nlet c: [u8; 1] = [9];\n\
                      pub(crate) static D: [u32; 1] = [\n    7,\n];\nconst E: [u32; 1] = [A[0] as u32];";
        assert_eq!(tables(source), [("A", vec![16, 3]), ("D", vec![7])]);
        assert_eq!(keccak_rows("row!($y:literal)\nrow!(1: 3 28 36, 9 20 44)"), [1, 3, 28, 36, 9, 20, 44]);
    }
}
