//! Every instruction set computes what the portable code does: few enough hashes for Miri, which is also how sets that
//! this CPU lacks are run.

use hypergrove_fips205::Family;
use hypergrove_lanes::{
    AdrsWords, Isa, KeyState, Keys, Steps, Trace, TweakableHash, block_hash, sha256, tweakable_hash,
};

const W: usize = 4;

/// PRF, F, T_3, and chains without and with their values kept. A job's rows do not depend on how many follow it.
fn outputs(hash: &dyn TweakableHash, jobs: usize) -> [Vec<u8>; 6] {
    let n = hash.n();
    let seed = |salt: usize| (0..n).map(|i| (31 * i + 7 * salt) as u8).collect::<Vec<_>>();
    let keys: Vec<_> = (0..2).map(|k| KeyState::new(&seed(2 * k), &seed(2 * k + 1))).collect();
    let of: Vec<u32> = (0..jobs as u32).map(|i| i % 2).collect();
    let keys = Keys::Of { keys: &keys, of: &of };
    let adrs = |hash: u32| -> Vec<AdrsWords> {
        (0..jobs as u32).map(|i| [i % 7, 0, 0x0102_0304 << (i % 8), !i, i % 5, i ^ 0xa5a5, i << 9, hash]).collect()
    };
    let nodes: Vec<u8> = (0..3 * jobs * n).map(|i| (i * i / 3) as u8).collect();

    let mut prf = vec![0; jobs * n];
    hash.prf(keys, &adrs(1), &mut prf);
    let mut f = nodes[..jobs * n].to_vec();
    hash.f(keys, &adrs(2), &mut f);
    let mut t_3 = vec![0; jobs * n];
    hash.t_l(keys, &adrs(0), 3, &nodes, &mut t_3);
    let digits: Vec<u8> = (0..jobs).map(|i| (i % W) as u8).collect();
    let mut ends = nodes[..jobs * n].to_vec();
    hash.chain(keys, &adrs(0), W, Steps::From(&digits), &mut ends, None);
    let chains: Vec<u32> = (0..jobs as u32).map(|i| if i % 3 == 1 { Trace::NONE } else { i }).collect();
    let (mut kept, mut whole) = (vec![0; jobs * W * n], nodes[..jobs * n].to_vec());
    hash.chain(keys, &adrs(0), W, Steps::All, &mut whole, Some(Trace { chains: &chains, out: &mut kept }));
    [prf, f, t_3, ends, whole, kept]
}

#[test]
fn instruction_sets_agree() {
    let others = || Isa::ALL.iter().copied().filter(|isa| *isa != Isa::Portable);
    others().filter(|isa| !isa.detect()).for_each(|isa| println!("skipped: {}: this CPU lacks it", isa.name()));
    for (family, n) in [(Family::Sha2, 16), (Family::Sha2, 24), (Family::Shake, 16)] {
        let subjects: Vec<_> = others().filter_map(|isa| Some((isa, tweakable_hash(isa, family, n)?))).collect();
        let most = subjects.iter().map(|(_, hash)| hash.lanes() + 1).max().unwrap_or_default();
        let portable = outputs(&*tweakable_hash(Isa::Portable, family, n).expect("always there"), most);
        for (isa, hash) in &subjects {
            // One more than fills the widest group, and what the narrowest means take.
            for jobs in [hash.lanes() + 1, 1] {
                for (i, (ours, theirs)) in outputs(&**hash, jobs).iter().zip(&portable).enumerate() {
                    let say = || format!("output {i}, {}, {family:?}, n = {n}, {jobs} jobs", isa.name());
                    assert!(!ours.is_empty() && theirs.starts_with(ours), "{}", say());
                }
            }
        }
    }
}

#[test]
fn instruction_sets_agree_on_messages() {
    let data: Vec<u8> = (0..400u32).map(|i| (i * i / 3) as u8).collect();
    for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Portable) {
        let digests = |isa, messages: &[&[u8]]| {
            let mut digests = vec![[0; 32]; messages.len()];
            sha256(isa).expect("available").hash(messages, &mut digests);
            digests
        };
        let lanes = sha256(isa).expect("available").lanes();
        let messages: Vec<&[u8]> = (0..lanes + 1).map(|i| &data[i..][..i * 37 % 140]).collect();
        assert_eq!(digests(isa, &messages), digests(Isa::Portable, &messages), "{}", isa.name());
    }
}

#[test]
fn instruction_sets_agree_on_blocks_of_one_message() {
    let data: Vec<u8> = (0..5 * 168u32).map(|i| (i * i / 3) as u8).collect();
    for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Portable) {
        let states = |isa, blocks| {
            let hash = block_hash(isa).expect("available");
            let (mut sha512, mut keccak) = ([7; 8], [7; 25]);
            hash.sha512(&mut sha512, &data.as_chunks().0[..blocks]);
            hash.keccak(&mut keccak, 168, &data[..blocks * 168]);
            (sha512, keccak)
        };
        // A group of the widest vectors and one block more; fewer than a group.
        for blocks in [5, 1] {
            assert_eq!(states(isa, blocks), states(Isa::Portable, blocks), "{}, {blocks} blocks", isa.name());
        }
    }
}
