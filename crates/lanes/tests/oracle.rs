//! Every instruction set against FIPS 205, section 11, written with independent hash crates; group sizes of every
//! partial width.

use hypergrove_fips205::Family;
use hypergrove_lanes::{
    AdrsWords, Isa, KeyState, Keys, MessagePart, SHA256_START, Steps, Trace, TweakableHash, block_hash, sha256,
    tweakable_hash,
};
use sha2::Digest;
use shake::digest::{ExtendableOutput, Update, XofReader};

/// Jobs: none, one, the widths of all groups and one to either side, and two full groups with a remainder.
const JOBS: [usize; 18] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 47, 65];

fn adrs_bytes(a: &AdrsWords) -> Vec<u8> {
    a.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// Trunc_n(Hash(PK.seed ‖ ADRS ‖ M)) (FIPS 205, 11.1 and 11.2); `short` for F and PRF.
fn thash(family: Family, pk_seed: &[u8], adrs: &AdrsWords, m: &[u8], short: bool) -> Vec<u8> {
    let (n, a) = (pk_seed.len(), adrs_bytes(adrs));
    let mut out = match family {
        Family::Shake => {
            let mut out = vec![0; n];
            let mut hash = shake::Shake256::default();
            for part in [pk_seed, &a, m] {
                hash.update(part);
            }
            hash.finalize_xof().read(&mut out);
            out
        }
        Family::Sha2 => {
            let block = if short || n == 16 { 64 } else { 128 };
            let compressed = [&a[3..4], &a[8..16], &a[19..20], &a[20..]].concat();
            let all = [pk_seed, &vec![0; block - n], &compressed, m].concat();
            if block == 64 { sha2::Sha256::digest(all).to_vec() } else { sha2::Sha512::digest(all).to_vec() }
        }
    };
    out.truncate(n);
    out
}

/// Bytes that repeat with no period the lanes could share.
fn bytes(len: usize, salt: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(salt as u64 + 1);
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

/// Addresses that use every bit that the standard lets them use.
fn addresses(jobs: usize, hash: impl Fn(usize) -> u32) -> Vec<AdrsWords> {
    (0..jobs)
        .map(|i| {
            let i32 = i as u32;
            let tree = 0xfedc_ba98_7654_3210u64.rotate_left(i32);
            [i32 % 22, 0, (tree >> 32) as u32, tree as u32, i32 % 7, 0x0103_0507 * i32, 0x1122_3344 ^ i32, hash(i)]
        })
        .collect()
}

/// (PK.seed, SK.seed) of each job.
type Seeds<'a> = &'a dyn Fn(usize) -> (&'a [u8], &'a [u8]);

struct Fixture {
    family: Family,
    n: usize,
    seeds: Vec<(Vec<u8>, Vec<u8>)>,
    keys: Vec<KeyState>,
}

impl Fixture {
    fn new(family: Family, n: usize) -> Fixture {
        let seeds: Vec<_> = (0..3).map(|k| (bytes(n, 2 * k), bytes(n, 2 * k + 1))).collect();
        let keys = seeds.iter().map(|(pk, sk)| KeyState::new(pk, sk)).collect();
        Fixture { family, n, seeds, keys }
    }
    /// One key for all jobs, then keys in turn.
    fn each(&self, jobs: usize, mut check: impl FnMut(Keys<'_>, Seeds<'_>)) {
        check(Keys::One(&self.keys[1]), &|_| (&self.seeds[1].0, &self.seeds[1].1));
        let of: Vec<u32> = (0..jobs).map(|i| (i as u32 * 2 + 1) % 3).collect();
        let seeds = |i: usize| {
            let (pk, sk) = &self.seeds[of[i] as usize];
            (&pk[..], &sk[..])
        };
        if jobs > 0 {
            check(Keys::Of { keys: &self.keys, of: &of }, &seeds);
        }
    }
}

fn check(isa: Isa, hash: &dyn TweakableHash, x: &Fixture) {
    let (family, n) = (x.family, x.n);
    for jobs in JOBS {
        let adrs = addresses(jobs, |i| 0x0a0b_0c0d ^ i as u32);
        x.each(jobs, |keys, seeds| {
            let say = |what: &str| format!("{what}, {}, {family:?}, n = {n}, {jobs} jobs", isa.name());
            let mut out = vec![0xaa; jobs * n];
            hash.prf(keys, &adrs, &mut out);
            let want: Vec<u8> = (0..jobs).flat_map(|i| thash(family, seeds(i).0, &adrs[i], seeds(i).1, true)).collect();
            assert!(out == want, "{}", say("prf"));

            let nodes = bytes(jobs * n, 77);
            let mut out = nodes.clone();
            hash.f(keys, &adrs, &mut out);
            let want: Vec<u8> =
                (0..jobs).flat_map(|i| thash(family, seeds(i).0, &adrs[i], &nodes[i * n..][..n], true)).collect();
            assert!(out == want, "{}", say("f"));

            for l in [2, 3, 4, 14, 17, 33, 35, 51, 67, 133] {
                let nodes = bytes(jobs * l * n, 78);
                let mut out = vec![0xaa; jobs * n];
                hash.t_l(keys, &adrs, l, &nodes, &mut out);
                let want: Vec<u8> = (0..jobs)
                    .flat_map(|i| thash(family, seeds(i).0, &adrs[i], &nodes[i * l * n..][..l * n], false))
                    .collect();
                assert!(out == want, "{} l = {l}", say("t_l"));
            }
        });
    }
}

/// Chains: all steps, from and to varied digits, from sorted digits as in verification, no steps, and with some values kept.
fn check_chains(isa: Isa, hash: &dyn TweakableHash, x: &Fixture) {
    let (family, n) = (x.family, x.n);
    for (w, jobs) in [(16, 33), (16, 70), (4, 5), (8, 18), (16, 1), (16, 2), (256, 3), (256, 33)] {
        let adrs = addresses(jobs, |_| 0);
        let digits: Vec<u8> = bytes(jobs, w).iter().map(|b| (*b as usize % w) as u8).collect();
        let (mut sorted, none) = (digits.clone(), vec![w as u8 - 1; jobs]);
        sorted.sort_unstable();
        let start = bytes(jobs * n, 79);
        x.each(jobs, |keys, seeds| {
            // values[i][s]: value s of chain i, counted from its first value.
            let walk = |i: usize, from: usize, to: usize| {
                let mut values = vec![start[i * n..][..n].to_vec()];
                for step in from..to {
                    let mut a = adrs[i];
                    a[7] = step as u32;
                    values.push(thash(family, seeds(i).0, &a, values.last().expect("the first"), true));
                }
                values
            };
            for (name, steps) in [
                ("all", Steps::All),
                ("from", Steps::From(&digits)),
                ("to", Steps::To(&digits)),
                ("from sorted digits", Steps::From(&sorted)),
                ("without steps", Steps::From(&none)),
            ] {
                let range = |i: usize| match steps {
                    Steps::All => (0, w - 1),
                    Steps::From(start) => (start[i] as usize, w - 1),
                    Steps::To(end) => (0, end[i] as usize),
                };
                let want: Vec<u8> =
                    (0..jobs).flat_map(|i| walk(i, range(i).0, range(i).1).pop().expect("the last")).collect();
                let mut nodes = start.clone();
                hash.chain(keys, &adrs, w, steps, &mut nodes, None);
                assert!(nodes == want, "chain {name}, {}, {family:?}, n = {n}, w = {w}, {jobs} jobs", isa.name());

                if name == "all" {
                    let chains: Vec<u32> = (0..jobs as u32)
                        .map(|i| if i % 3 == 1 { Trace::NONE } else { i / 3 * 2 + i % 3 / 2 })
                        .collect();
                    let mut out = vec![0; (jobs + 1) * w * n];
                    let mut nodes = start.clone();
                    hash.chain(keys, &adrs, w, steps, &mut nodes, Some(Trace { chains: &chains, out: &mut out }));
                    assert!(nodes == want, "a trace changes nothing");
                    for (i, chain) in chains.iter().enumerate().filter(|(_, c)| **c != Trace::NONE) {
                        let values = walk(i, 0, w - 1).concat();
                        assert!(out[*chain as usize * w * n..][..w * n] == values[..], "trace {i}, {}", isa.name());
                    }
                }
            }
        });
    }
}

#[test]
fn every_instruction_set_computes_section_11() {
    for isa in Isa::ALL.iter().copied() {
        if !isa.detect() {
            println!("skipped: {}: this CPU lacks it", isa.name());
            continue;
        }
        for &family in Family::ALL {
            for n in [16, 24, 32] {
                let hash = tweakable_hash(isa, family, n).expect("detected");
                let fixture = Fixture::new(family, n);
                check(isa, &*hash, &fixture);
                check_chains(isa, &*hash, &fixture);
            }
        }
    }
}

/// Lengths around every boundary of blocks and padding, in no order, so that lanes end at all times.
#[test]
fn messages_of_any_lengths() {
    let data = bytes(1 << 16, 5);
    let around = [0, 1, 3, 4, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000, 1024, 4097, 20_000];
    for isa in Isa::available() {
        let hash = sha256(isa).expect("available");
        for jobs in JOBS.into_iter().chain([500]) {
            for equal in [false, true] {
                let length = |i: usize| around[if equal { jobs } else { i * i + 7 * i } % around.len()];
                let messages: Vec<&[u8]> = (0..jobs).map(|i| &data[i * 31..][..length(i)]).collect();
                let mut digests = vec![[0; 32]; jobs];
                hash.hash(&messages, &mut digests);
                for (i, (message, digest)) in messages.iter().zip(digests).enumerate() {
                    let want: [u8; 32] = sha2::Sha256::digest(message).into();
                    assert!(digest == want, "{}: {} bytes, number {i} of {jobs}", isa.name(), message.len());
                }
            }
        }
    }
}

#[test]
fn messages_in_parts() {
    let data = bytes(1 << 14, 6);
    for isa in Isa::available() {
        let hash = sha256(isa).expect("available");
        let messages: Vec<&[u8]> = (0..40).map(|i| &data[i..][..i * 300]).collect();
        let mut states = [SHA256_START; 40];
        for round in 0.. {
            let rest = |i: usize| messages[i].get(round * 1024..);
            let open: Vec<usize> = (0..40).filter(|&i| rest(i).is_some()).collect();
            let mut parts: Vec<MessagePart<'_>> = open
                .iter()
                .map(|&i| {
                    let rest = rest(i).expect("open");
                    let end = (rest.len() < 1024).then_some(messages[i].len() as u64);
                    MessagePart { state: states[i], bytes: &rest[..rest.len().min(1024)], end }
                })
                .collect();
            hash.absorb(&mut parts);
            open.iter().zip(&parts).for_each(|(&i, part)| states[i] = part.state);
            if open.is_empty() {
                break;
            }
        }
        for (message, state) in messages.iter().zip(states) {
            assert!(state == <[u8; 32]>::from(sha2::Sha256::digest(message)), "{}, {}", isa.name(), message.len());
        }
    }
}

#[test]
fn names_are_found() {
    for isa in Isa::ALL {
        assert_eq!(Isa::by_name(&isa.name().to_uppercase()), Some(*isa));
    }
    assert_eq!(Isa::by_name("avx9000"), None);
    assert_eq!(Isa::available().last(), Some(&Isa::Portable));
}

/// SHA-512's blocks in two calls; Keccak's as SHAKE256, whose padding is made here.
#[test]
fn blocks_of_one_message() {
    let data = bytes(30 * 168, 5);
    for isa in Isa::available() {
        let hash = block_hash(isa).expect("available");
        let blocks = &data.as_chunks().0[..25];
        for first in 0..=25 {
            let (mut ours, mut theirs) = ([3; 8], [3; 8]);
            hash.sha512(&mut ours, &blocks[..first]);
            hash.sha512(&mut ours, &blocks[first..]);
            sha2::block_api::compress512(&mut theirs, blocks);
            assert_eq!(ours, theirs, "{}, {first} blocks first", isa.name());
        }
        for whole in 0..30 {
            let mut message = data[..whole * 136 + whole % 136].to_vec();
            let mut expected = [0; 32];
            shake::Shake256::default().chain(&message).finalize_xof_into(&mut expected);
            message.push(0x1f);
            message.resize((whole + 1) * 136, 0);
            message[whole * 136 + 135] |= 0x80;
            let mut state = [0; 25];
            hash.keccak(&mut state, 136, &message);
            let ours: Vec<u8> = state.iter().flat_map(|word: &u64| word.to_le_bytes()).take(32).collect();
            assert_eq!(ours, expected, "{}, {whole} blocks", isa.name());
        }
    }
}
