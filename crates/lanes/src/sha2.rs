//! SHA-256 and SHA-512 over lanes, and FIPS 205's functions on them (11.2).
//!
//! PK.seed and its padding fill a block that is absorbed once for each key (the midstate). ADRS^c has 22 bytes, so every word of a node lies
//! across two words of the block. Nodes stay word-planar and are shifted into place by half a word (SHA-256) or six bytes (SHA-512).
//! In F, rounds 0–4 depend on the address alone, so they run once for each chain. The schedule leaves out additions of words of the block that
//! are zero.

use crate::batch::{ChainBatch, ListBatch, Source, adrs_bytes, alone, groups};
#[cfg(target_arch = "x86_64")]
use crate::simd::WordPairs;
use crate::simd::{GroupRows, Lanes, MOST_LANES, Sha256Streams, Simd, array, each, vectorize};
use crate::{AdrsWords, Keys, Primitive, Steps, Trace, TweakableHash, Width};
use core::ops::Range;
use hypergrove_fips205::sha2::{IV256, IV512};

/// SHA-512's round constants (FIPS 180-4, 4.2.3); the upper halves of the first 64 are SHA-256's.
#[rustfmt::skip]
pub(crate) static K512: [u64; 80] = [
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc, 0x3956c25bf348b538, 0x59f111f1b605d019,
    0x923f82a4af194f9b, 0xab1c5ed5da6d8118, 0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694, 0xe49b69c19ef14ad2, 0xefbe4786384f25e3,
    0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65, 0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4, 0xc6e00bf33da88fc2, 0xd5a79147930aa725,
    0x06ca6351e003826f, 0x142929670a0e6e70, 0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b, 0xa2bfe8a14cf10364, 0xa81a664bbc423001,
    0xc24b8b70d0f89791, 0xc76c51a30654be30, 0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8, 0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb,
    0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3, 0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b, 0xca273eceea26619c, 0xd186b8c721c0c207,
    0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178, 0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c, 0x4cc5d4becb3e42b6, 0x597f299cfc657e2a,
    0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
];
/// SHA-256's round constants.
pub(crate) static K256: [u32; 64] = {
    let (mut k, mut i) = ([0; 64], 0);
    while i < 64 {
        k[i] = (K512[i] >> 32) as u32;
        i += 1;
    }
    k
};
/// Writes a hash's round and schedule, with its rotations as arguments (FIPS 180-4, 4.1.2 and 4.1.3). In round i, the state's word a has index
/// −i mod 8, and the message schedule's word i is taken.
macro_rules! sha2_core {
    ($round:ident, $schedule:ident, $compress:ident, $w:ty, $k:ident, $rounds:literal, $bits:literal,
     $e0:literal $e1:literal $e2:literal, $a0:literal $a1:literal $a2:literal,
     $s0:literal $s1:literal $s2:literal, $t0:literal $t1:literal $t2:literal) => {
        macro_rules! $round {
            ($s:ident, $i:expr, $kw:expr) => {{
                let (e, a) = ($s[(12 - $i % 8) % 8], $s[(8 - $i % 8) % 8]);
                let big_e = e
                    .rotr::<$e0, { $bits - $e0 }>()
                    .xor3(e.rotr::<$e1, { $bits - $e1 }>(), e.rotr::<$e2, { $bits - $e2 }>());
                let ch = e.ch($s[(13 - $i % 8) % 8], $s[(14 - $i % 8) % 8]);
                let t1 = $s[(15 - $i % 8) % 8].add($kw).add(big_e.add(ch));
                let big_a = a
                    .rotr::<$a0, { $bits - $a0 }>()
                    .xor3(a.rotr::<$a1, { $bits - $a1 }>(), a.rotr::<$a2, { $bits - $a2 }>());
                let maj = a.maj($s[(9 - $i % 8) % 8], $s[(10 - $i % 8) % 8]);
                $s[(11 - $i % 8) % 8] = $s[(11 - $i % 8) % 8].add(t1);
                $s[(15 - $i % 8) % 8] = t1.add(big_a.add(maj));
            }};
        }
        /// The terms of the schedule's word i.
        mod $schedule {
            use crate::simd::Lanes;
            #[inline(always)]
            pub(super) fn small0<V: Lanes<$w>>(x: V) -> V {
                x.rotr::<$s0, { $bits - $s0 }>().xor3(x.rotr::<$s1, { $bits - $s1 }>(), x.shr::<$s2>())
            }
            #[inline(always)]
            pub(super) fn small1<V: Lanes<$w>>(x: V) -> V {
                x.rotr::<$t0, { $bits - $t0 }>().xor3(x.rotr::<$t1, { $bits - $t1 }>(), x.shr::<$t2>())
            }
            #[inline(always)]
            pub(super) fn word<V: Lanes<$w>>(w: &[V; 16], i: usize) -> V {
                w[i % 16].add(small0(w[(i + 1) % 16])).add(w[(i + 9) % 16].add(small1(w[(i + 14) % 16])))
            }
        }
        /// Compresses one block. The loop stays rolled: unrolled, two interleaved groups outgrow the instruction cache.
        #[inline(always)]
        pub(crate) fn $compress<V: Lanes<$w>>(state: &mut [V; 8], w: &mut [V; 16]) {
            let mut s = *state;
            macro_rules! first {
                ($i:literal) => {
                    $round!(s, $i, w[$i].add(V::splat($k[$i])))
                };
            }
            each!(first: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            for k in $k[16..].as_chunks::<16>().0 {
                macro_rules! later {
                    ($i:literal) => {
                        w[$i] = $schedule::word(w, $i);
                        $round!(s, $i, w[$i].add(V::splat(k[$i])));
                    };
                }
                each!(later: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            }
            for i in 0..8 {
                state[i] = state[i].add(s[i]);
            }
        }
    };
}
sha2_core!(round256, schedule256, compress256, u32, K256, 64, 32, 6 11 25, 2 13 22, 7 18 3, 17 19 10);
sha2_core!(round512, schedule512, compress512, u64, K512, 80, 64, 14 18 41, 28 34 39, 1 8 7, 19 61 6);

/// [`compress256`] of one lane as a function of its own: among code for vectors it would take their registers, and twice the time.
#[inline(never)]
pub(crate) fn compress256_alone<T: Simd>(token: T, state: &mut [u32; 8], w: &mut [u32; 16]) {
    vectorize!(token, || compress256(state, w));
}

/// Compresses blocks of one message.
#[inline(always)]
pub(crate) fn blocks512(state: &mut [u64; 8], blocks: &[[u8; 128]]) {
    for block in blocks {
        compress512(state, &mut <u64 as Lanes<u64>>::load_rows::<16, true>(block, 0, 0, 1));
    }
}

/// Compresses blocks of one message, B at a time. The rounds of a message's blocks are one chain of dependent instructions, in plain registers.
/// Vectors compute the schedules of B blocks among the rounds of the first of them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn paired_blocks512<V: WordPairs<B>, const B: usize>(state: &mut [u64; 8], blocks: &[[u8; 128]]) {
    let (groups, rest) = blocks.as_chunks::<B>();
    // Pairs of words of the schedules, with the round constants added.
    let mut kw = [[[0; 2]; B]; 40];
    let k: &[[u64; 2]; 40] = K512.as_chunks().0.as_array().expect("80 words");
    for group in groups {
        let mut w = [V::splat(0); 8];
        for i in 0..8 {
            w[i] = V::load_pairs(group, i);
            w[i].store_sums(&k[i], &mut kw[i]);
        }
        let mut s = *state;
        for j in 0..4 {
            macro_rules! scheduled {
                ($i:literal) => {
                    let (after, next) = (w[($i + 1) % 8], w[($i + 5) % 8]);
                    let early = w[$i].add(schedule512::small0(w[$i].straddle(after)));
                    let late = w[($i + 4) % 8].straddle(next).add(schedule512::small1(w[($i + 7) % 8]));
                    w[$i] = early.add(late);
                    w[$i].store_sums(&k[8 * j + 8 + $i], &mut kw[8 * j + 8 + $i]);
                    round512!(s, 2 * $i, kw[8 * j + $i][0][0]);
                    round512!(s, 2 * $i + 1, kw[8 * j + $i][0][1]);
                };
            }
            each!(scheduled: 0 1 2 3 4 5 6 7);
        }
        macro_rules! last {
            ($i:literal) => {
                round512!(s, 2 * $i, kw[32 + $i][0][0]);
                round512!(s, 2 * $i + 1, kw[32 + $i][0][1]);
            };
        }
        each!(last: 0 1 2 3 4 5 6 7);
        add_state(state, &s);
        for block in 1..B {
            let mut s = *state;
            for kw in kw.as_chunks::<8>().0 {
                macro_rules! all {
                    ($i:literal) => {
                        round512!(s, 2 * $i, kw[$i][block][0]);
                        round512!(s, 2 * $i + 1, kw[$i][block][1]);
                    };
                }
                each!(all: 0 1 2 3 4 5 6 7);
            }
            add_state(state, &s);
        }
    }
    blocks512(state, rest);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn add_state(state: &mut [u64; 8], s: &[u64; 8]) {
    for i in 0..8 {
        state[i] = state[i].wrapping_add(s[i]);
    }
}

/// The states after PK.seed and its zero padding.
pub(crate) fn midstates(pk_seed: &[u8]) -> ([u32; 8], [u64; 8]) {
    let mut block = [0; 128];
    block[..pk_seed.len()].copy_from_slice(pk_seed);
    let mut mid256 = IV256;
    let mut mid512 = IV512;
    compress256(&mut mid256, &mut <u32 as Lanes<u32>>::load_rows::<16, true>(&block, 0, 0, 1));
    compress512(&mut mid512, &mut <u64 as Lanes<u64>>::load_rows::<16, true>(&block, 0, 0, 1));
    (mid256, mid512)
}

/// ADRS^c of one job.
#[inline(always)]
fn compressed(a: &AdrsWords) -> [u8; 22] {
    let mut out = [0; 22];
    out[0] = a[0] as u8;
    for (bytes, word) in out[1..9].chunks_exact_mut(4).zip(&a[2..4]) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out[9] = a[4] as u8;
    for (bytes, word) in out[10..].chunks_exact_mut(4).zip(&a[5..]) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// ADRS^c as words 0–4 of a SHA-256 block and the upper half of word 5.
#[inline(always)]
fn adrs256<V: Lanes<u32>>(adrs: &[AdrsWords], first: usize, rows: usize) -> [V; 6] {
    let a: [V; 8] = V::load_rows::<8, false>(adrs_bytes(adrs), 32, first, rows);
    [
        a[0].shl::<24>().or(a[2].shr::<8>()),
        a[2].shl::<24>().or(a[3].shr::<8>()),
        a[3].shl::<24>().or(a[4].shl::<16>()).or(a[5].shr::<16>()),
        a[5].shl::<16>().or(a[6].shr::<16>()),
        a[6].shl::<16>().or(a[7].shr::<16>()),
        a[7].shl::<16>(),
    ]
}

/// ADRS^c as words 0–1 of a SHA-512 block and the upper six bytes of word 2.
#[inline(always)]
fn adrs512<V: Lanes<u64>>(adrs: &[AdrsWords], first: usize, rows: usize) -> [V; 3] {
    // Each double word holds two words of the address, the first in its lower half.
    let q: [V; 4] = V::load_rows::<4, false>(adrs_bytes(adrs), 32, first, rows);
    let (tree, tail) = (q[1].rotr::<32, 32>(), q[3].rotr::<32, 32>());
    [
        q[0].shl::<56>().or(tree.shr::<8>()),
        tree.shl::<56>().or(q[2].shl::<48>()).or(q[2].shr::<32>().shl::<16>()).or(tail.shr::<48>()),
        tail.shl::<16>(),
    ]
}

#[inline(always)]
fn mid256<V: Lanes<u32>>(keys: Keys<'_>, first: usize) -> [V; 8] {
    keys.load::<u32, V, _, 8, false>(
        first,
        #[inline(always)]
        |key| &key.mid256,
    )
}
#[inline(always)]
fn mid512<V: Lanes<u64>>(keys: Keys<'_>, first: usize) -> [V; 8] {
    keys.load::<u64, V, _, 8, false>(
        first,
        #[inline(always)]
        |key| &key.mid512,
    )
}

/// Rows of N bytes as word planes; the planes past N bytes are zero.
#[inline(always)]
fn load_nodes<V: Lanes<u32>, const N: usize>(nodes: &[u8], first: usize, rows: usize) -> [V; 8] {
    let mut v = [V::splat(0); 8];
    match N {
        16 => v[..4].copy_from_slice(&V::load_rows::<4, true>(nodes, 16, first, rows)),
        24 => v[..6].copy_from_slice(&V::load_rows::<6, true>(nodes, 24, first, rows)),
        _ => v = V::load_rows::<8, true>(nodes, 32, first, rows),
    }
    v
}
#[inline(always)]
fn store_nodes<V: Lanes<u32>, const N: usize>(v: &[V; 8], nodes: &mut [u8], first: usize, rows: usize) {
    match N {
        16 => V::store_rows::<4, true>(&[v[0], v[1], v[2], v[3]], nodes, 16, first, rows),
        24 => V::store_rows::<6, true>(&[v[0], v[1], v[2], v[3], v[4], v[5]], nodes, 24, first, rows),
        _ => V::store_rows::<8, true>(v, nodes, 32, first, rows),
    }
}

/// Whether word j < 16 of F's block is always zero: after the address, N/4 + 1 words hold the node and its padding.
const fn zero<const N: usize>(j: usize) -> bool {
    j >= 6 + N / 4 && j < 15
}

/// Computes F along the chains of one group, in registers (FIPS 205, Algorithm 5 and 11.2).
#[inline(always)]
fn chain_group<V: Lanes<u32>, const N: usize>(
    mid: &[V; 8],
    adrs: &[V; 6],
    v: &mut [V; 8],
    steps: Range<u32>,
    mut keep: impl FnMut(u32, &mut [V; 8], [V; 8]),
) {
    let words = N / 4;
    let bits = ((64 + 22 + N) * 8) as u32;
    let mut after5 = *mid;
    {
        let s = &mut after5;
        macro_rules! address { ($($i:literal)*) => { $( round256!(s, $i, adrs[$i].add(V::splat(K256[$i]))); )* }; }
        address!(0 1 2 3 4);
    }
    for step in steps {
        let mut s = after5;
        let mut w = [V::splat(0); 16];
        w[..5].copy_from_slice(&adrs[..5]);
        w[5] = adrs[5].add(V::splat(step << 16)).or(v[0].shr::<16>());
        for i in 1..words {
            w[5 + i] = v[i - 1].shl::<16>().or(v[i].shr::<16>());
        }
        w[5 + words] = v[words - 1].shl::<16>().or(V::splat(0x8000));
        w[15] = V::splat(bits);

        macro_rules! first { ($($i:literal)*) => { $(
            round256!(s, $i, if zero::<N>($i) {
                V::splat(K256[$i])
            } else if $i == 15 {
                V::splat(K256[15].wrapping_add(bits))
            } else {
                w[$i].add(V::splat(K256[$i]))
            });
        )* }; }
        first!(5 6 7 8 9 10 11 12 13 14 15);
        macro_rules! second { ($($i:literal)*) => { $(
            // W[i] = W[i−16] + σ0(W[i−15]) + W[i−7] + σ1(W[i−2]), the terms known to be zero left out.
            let mut x = V::splat(0);
            if !zero::<N>($i) { x = x.add(w[$i]); }
            if !($i + 1 < 16 && zero::<N>(($i + 1) % 16)) { x = x.add(schedule256::small0(w[($i + 1) % 16])); }
            if !($i + 9 < 16 && zero::<N>(($i + 9) % 16)) { x = x.add(w[($i + 9) % 16]); }
            if !($i + 14 < 16 && zero::<N>(($i + 14) % 16)) { x = x.add(schedule256::small1(w[($i + 14) % 16])); }
            w[$i] = x;
            round256!(s, $i, x.add(V::splat(K256[16 + $i])));
        )* }; }
        second!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for k in K256[32..].as_chunks::<16>().0 {
            macro_rules! later {
                ($i:literal) => {
                    w[$i] = schedule256::word(&w, $i);
                    round256!(s, $i, w[$i].add(V::splat(k[$i])));
                };
            }
            each!(later: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
        keep(step, v, array!(|i| if i < words { s[i].add(mid[i]) } else { v[i] }));
    }
}

/// Computes chains in groups of lanes, but leaves up to `few` of them. Returns the number of the first one that is left. F is computed only
/// here and in [`chains_in_streams`].
#[inline(never)]
fn chains_in_lanes<T: Simd, const N: usize>(token: T, few: usize, batch: &mut ChainBatch<'_>) -> usize {
    vectorize!(token, || {
        groups(
            batch.adrs.len(),
            few,
            T::Sha256Wide::LANES,
            T::U32s::LANES,
            #[inline(always)]
            |width, first, rows| {
                let has_narrow = const { T::U32s::LANES < T::Sha256Wide::LANES };
                let (half, last) = (rows.min(T::U32s::LANES), batch.last());
                // Chains to be verified come sorted, the longest first. Those in the first half of wide lanes take their first steps in narrow lanes,
                // until the other half begins. (Measured in docs/lab/2026-11-28-few-signatures.md.)
                let both = match width {
                    Width::Narrow if has_narrow => last,
                    _ => batch.hull(first + half, rows - half).0.start,
                };
                if has_narrow && batch.hull(first, half).0.start < both {
                    chain_lanes::<T::U32s, N>(batch, first, half, 0..both);
                }
                if both < last {
                    chain_lanes::<T::Sha256Wide, N>(batch, first, rows, both..last);
                }
            },
        )
    })
}

/// Ones in the lanes where `bound` ≤ step, both below 2³¹.
#[inline(always)]
fn reached<V: Lanes<u32>>(bound: V, step: u32) -> V {
    // There bound − step − 1 is negative, so its sign bit is 1. Inverted, less one, that is all ones.
    let sign = bound.add(V::splat(!step)).shr::<31>();
    sign.xor(V::splat(1)).add(V::splat(u32::MAX))
}

/// Computes the steps in `within` of one group of chains.
#[inline(always)]
fn chain_lanes<V: Lanes<u32>, const N: usize>(
    batch: &mut ChainBatch<'_>,
    first: usize,
    rows: usize,
    within: Range<u32>,
) {
    let end = first + rows;
    debug_assert!(batch.source == Source::Nodes || within.start == 0, "a first value is no node");
    let mid = mid256::<V>(batch.keys, first);
    let adrs = adrs256::<V>(batch.adrs, first, end);
    let mut v = match batch.source {
        Source::Nodes => load_nodes::<V, N>(batch.nodes, first, end),
        Source::SkSeed => batch.keys.load::<u32, V, _, 8, true>(
            first,
            #[inline(always)]
            |key| &key.sk_seed,
        ),
    };
    let (any, all) = batch.hull(first, rows);
    let any = any.start.max(within.start)..any.end.min(within.end);
    let are_all = all.start <= any.start && any.end <= all.end;
    let bounds = if are_all { [V::splat(0); 2] } else { batch.bounds_in_lanes(first) };
    let keeps = batch.keeps(first, rows);
    let mut values = [[0; N]; MOST_LANES];
    chain_group::<V, N>(
        &mid,
        &adrs,
        &mut v,
        any,
        #[inline(always)]
        |step, v, next| {
            if all.contains(&step) {
                *v = next;
            } else {
                // Lanes whose chain has started, and is not at its end.
                let mask = reached(bounds[1], step).andnot(reached(bounds[0], step));
                *v = array!(|i| mask.ch(next[i], v[i]));
            }
            if keeps {
                store_nodes::<V, N>(v, values.as_flattened_mut(), 0, V::LANES);
                batch.keep(step + 1, first, rows, &values);
            }
        },
    );
    store_nodes::<V, N>(&v, batch.nodes, first, end);
}

/// The states after PK.seed of each stream's key.
#[inline(always)]
fn mids<T: Sha256Streams, const S: usize>(keys: Keys<'_>, job: impl Fn(usize) -> usize) -> [T::State; S] {
    match keys {
        Keys::One(key) => [T::load(&key.mid256); S],
        Keys::Of { .. } => array!(|i| T::load(&keys.get(job(i)).mid256)),
    }
}

/// Computes the chains from number `from` on in SHA-256 streams.
#[inline(always)]
fn chains_in_streams<T: Sha256Streams, const N: usize>(from: usize, batch: &mut ChainBatch<'_>) {
    T::vectorize(
        #[inline(always)]
        || {
            for first in (from..batch.adrs.len()).step_by(4) {
                match batch.adrs.len() - first {
                    1 => chain_streams::<T, N, 1>(batch, first, 1),
                    2 => chain_streams::<T, N, 2>(batch, first, 2),
                    left => chain_streams::<T, N, 4>(batch, first, left.min(4)),
                }
            }
        },
    );
}

/// Computes one group of up to S chains in SHA-256 streams.
#[inline(always)]
fn chain_streams<T: Sha256Streams, const N: usize, const S: usize>(
    batch: &mut ChainBatch<'_>,
    first: usize,
    rows: usize,
) {
    let job = |i: usize| first + i.min(rows - 1);
    let mut values: [[u8; N]; S] = array!(|i| match batch.source {
        Source::Nodes => batch.nodes[job(i) * N..][..N].try_into().expect("N bytes"),
        Source::SkSeed => batch.keys.get(job(i)).sk_seed[..N].try_into().expect("N bytes"),
    });
    let (any, all) = batch.hull(first, rows);
    let keeps = batch.keeps(first, rows);
    let adrs = batch.adrs;
    T::chain::<S, N>(
        mids::<T, S>(batch.keys, job),
        array!(|i| &adrs[job(i)]),
        &mut values,
        any.clone(),
        if any == all { None } else { Some(core::array::from_fn(|i| batch.steps(job(i)))) },
        #[inline(always)]
        |step, values| {
            if keeps {
                batch.keep(step + 1, first, rows, values);
            }
        },
    );
    for (i, node) in batch.nodes[first * N..][..rows * N].as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *node = values[i];
    }
}

/// Computes H and T_l for n = 16 in groups of lanes, but leaves up to `few` of them. Returns the number of the first one that is left.
#[inline(never)]
fn lists_256<T: Simd>(token: T, few: usize, batch: &mut ListBatch<'_>) -> usize {
    vectorize!(token, || {
        groups(
            batch.adrs.len(),
            few,
            T::Sha256Wide::LANES,
            T::U32s::LANES,
            #[inline(always)]
            |width, first, rows| match width {
                Width::Narrow if const { T::U32s::LANES < T::Sha256Wide::LANES } => {
                    if batch.l == 2 {
                        h_256::<T::U32s>(batch, first, rows);
                    } else {
                        t_l_256::<T::U32s>(batch, first, rows);
                    }
                }
                _ if batch.l == 2 => h_256::<T::Sha256Wide>(batch, first, rows),
                _ => t_l_256::<T::Sha256Wide>(batch, first, rows),
            },
        )
    })
}

/// Computes one group of H on SHA-256 in lanes: one block, all of it in registers.
#[inline(always)]
fn h_256<V: Lanes<u32>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let end = first + rows;
    let a = adrs256::<V>(batch.adrs, first, end);
    let mut state = mid256::<V>(batch.keys, first);
    let x = V::load_rows::<8, true>(batch.nodes, 32, first, end);
    let mut w = [V::splat(0); 16];
    w[..5].copy_from_slice(&a[..5]);
    w[5] = a[5].or(x[0].shr::<16>());
    for i in 0..7 {
        w[6 + i] = x[i].shl::<16>().or(x[i + 1].shr::<16>());
    }
    w[13] = x[7].shl::<16>().or(V::splat(0x8000));
    w[15] = V::splat((64 + 22 + 32) * 8);
    compress256(&mut state, &mut w);
    V::store_rows::<4, true>(&[state[0], state[1], state[2], state[3]], batch.out, 16, first, end);
}

/// Computes one group of T_l on SHA-256 in lanes.
#[inline(always)]
fn t_l_256<V: Lanes<u32>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let (end, stride) = (first + rows, 16 * batch.l);
    let words = stride / 4;
    let a = adrs256::<V>(batch.adrs, first, end);
    let mut state = mid256::<V>(batch.keys, first);
    let mut w = [V::splat(0); 16];
    w[..5].copy_from_slice(&a[..5]);
    let mut carry = a[5];
    let mut next = |x: V| {
        let word = carry.or(x.shr::<16>());
        carry = x.shl::<16>();
        word
    };
    let nodes = GroupRows::new(V::LANES, batch.nodes, stride, stride, first, end);
    // Three words are loaded, then four at a time, which fill a block's quarters. One is left for the end.
    let x = nodes.load::<u32, V, 4, true>(0);
    for i in 0..3 {
        w[5 + i] = next(x[i]);
    }
    let (mut at, mut read, mut ends) = (8, 3, false);
    while !ends {
        while at < 16 && read < words - 1 {
            let x = nodes.load::<u32, V, 4, true>(4 * read);
            for i in 0..4 {
                w[at + i] = next(x[i]);
            }
            (at, read) = (at + 4, read + 4);
        }
        if at < 16 {
            w[at] = next(nodes.load::<u32, V, 4, true>(4 * read - 12)[3]);
            w[at + 1] = next(V::splat(0x8000_0000));
            w[at + 2..].fill(V::splat(0));
            let bits = 8 * (64 + 22 + stride) as u64;
            (w[14], w[15]) = (V::splat((bits >> 32) as u32), V::splat(bits as u32));
            ends = true;
        }
        // All blocks share this one call, since the code behind it is long.
        compress256(&mut state, &mut w);
        at = 0;
    }
    V::store_rows::<4, true>(&[state[0], state[1], state[2], state[3]], batch.out, 16, first, end);
}

/// Computes H and T_l for n = 16 from number `from` on in SHA-256 streams.
#[inline(always)]
fn lists_in_streams<T: Sha256Streams>(from: usize, batch: &mut ListBatch<'_>) {
    T::vectorize(
        #[inline(always)]
        || {
            for first in (from..batch.adrs.len()).step_by(4) {
                match batch.adrs.len() - first {
                    1 => list_streams::<T, 1>(batch, first, 1),
                    2 => list_streams::<T, 2>(batch, first, 2),
                    left => list_streams::<T, 4>(batch, first, left.min(4)),
                }
            }
        },
    );
}

/// Computes one group of H or T_l in SHA-256 streams. Blocks after the first are read where they lie.
#[inline(always)]
fn list_streams<T: Sha256Streams, const S: usize>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let ListBatch { adrs, l, nodes, .. } = *batch;
    let job = |i: usize| first + i.min(rows - 1);
    let bytes = 22 + l * 16;
    let blocks = (bytes + 9).div_ceil(64);
    let mut states = mids::<T, S>(batch.keys, job);
    if l == 2 {
        let pairs = array!(|i| nodes[32 * job(i)..][..32].try_into().expect("two nodes"));
        let parents = T::h::<S>(states, array!(|i| &adrs[job(i)]), pairs);
        batch.out[16 * first..][..16 * rows].copy_from_slice(&parents.as_flattened()[..16 * rows]);
        return;
    }
    let mut padded = [[0u8; 64]; S];
    for block in 0..blocks {
        let at = 64 * block;
        if block > 0 && at + 64 <= bytes {
            let whole = array!(|i| {
                let row = &nodes[job(i) * l * 16..][..l * 16];
                row[at - 22..][..64].try_into().expect("a block")
            });
            T::compress::<S>(&mut states, whole);
            continue;
        }
        for i in 0..S {
            pad_block(&adrs[job(i)], &nodes[job(i) * l * 16..][..l * 16], block, &mut padded[i]);
        }
        T::compress::<S>(&mut states, padded.each_ref());
    }
    for i in 0..rows {
        for (bytes, word) in batch.out[(first + i) * 16..][..16].chunks_exact_mut(4).zip(T::store(states[i])) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// A block that begins with the address, or ends with padding.
fn pad_block(adrs: &AdrsWords, row: &[u8], block: usize, out: &mut [u8; 64]) {
    let (at, bytes) = (64 * block, 22 + row.len());
    *out = [0; 64];
    if block == 0 {
        let have = row.len().min(42);
        out[..22].copy_from_slice(&compressed(adrs));
        out[22..22 + have].copy_from_slice(&row[..have]);
    } else if at < bytes {
        out[..bytes - at].copy_from_slice(&row[at - 22..]);
    }
    if (at..at + 64).contains(&bytes) {
        out[bytes - at] = 0x80;
    }
    // Nine bytes of padding fit.
    if at + 64 >= bytes + 9 {
        out[56..].copy_from_slice(&((64 + bytes) as u64 * 8).to_be_bytes());
    }
}

/// Computes H and T_l on SHA-512, in groups of lanes, and one job alone in plain registers.
#[inline(never)]
fn lists_512<T: Simd>(token: T, batch: &mut ListBatch<'_>) {
    vectorize!(token, || {
        let jobs = batch.adrs.len();
        let done = groups(
            jobs,
            alone::<T>(),
            T::Sha512Wide::LANES,
            T::U64s::LANES,
            #[inline(always)]
            |width, first, rows| match width {
                Width::Narrow if const { T::U64s::LANES < T::Sha512Wide::LANES } => {
                    if batch.l == 2 {
                        h_512::<T::U64s>(batch, first, rows);
                    } else {
                        t_l_512::<T::U64s>(batch, first, rows);
                    }
                }
                _ if batch.l == 2 => h_512::<T::Sha512Wide>(batch, first, rows),
                _ => t_l_512::<T::Sha512Wide>(batch, first, rows),
            },
        );
        if const { alone::<T>() > 0 } && done < jobs {
            t_l_512::<u64>(batch, done, 1);
        }
    });
}

/// Computes one group of H on SHA-512 in lanes: one block, all of it in registers.
#[inline(always)]
fn h_512<V: Lanes<u64>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let (n, end) = (batch.n, first + rows);
    let a = adrs512::<V>(batch.adrs, first, end);
    let mut state = mid512::<V>(batch.keys, first);
    // The nodes, and their padding.
    let mut x = [V::splat(0); 9];
    match n {
        24 => x[..6].copy_from_slice(&V::load_rows::<6, true>(batch.nodes, 48, first, end)),
        _ => x[..8].copy_from_slice(&V::load_rows::<8, true>(batch.nodes, 64, first, end)),
    }
    x[if n == 24 { 6 } else { 8 }] = V::splat(1 << 63);
    let mut w = [V::splat(0); 16];
    w[..2].copy_from_slice(&a[..2]);
    w[2] = a[2].or(x[0].shr::<48>());
    for i in 0..8 {
        w[3 + i] = x[i].shl::<16>().or(x[i + 1].shr::<48>());
    }
    w[15] = V::splat(8 * (128 + 22 + 2 * n) as u64);
    compress512(&mut state, &mut w);
    store_512(n, &state, batch.out, first, end);
}

/// Computes one group of T_l on SHA-512 in lanes. After the address's 22 bytes, six bytes of every word of a node lie in the block's next word.
#[inline(always)]
fn t_l_512<V: Lanes<u64>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let (n, end, stride) = (batch.n, first + rows, batch.l * batch.n);
    let words = stride / 8;
    let a = adrs512::<V>(batch.adrs, first, end);
    let mut state = mid512::<V>(batch.keys, first);
    let mut w = [V::splat(0); 16];
    w[..2].copy_from_slice(&a[..2]);
    let mut carry = a[2];
    let mut next = |x: V| {
        let word = carry.or(x.shr::<48>());
        carry = x.shl::<16>();
        word
    };
    let nodes = GroupRows::new(V::LANES, batch.nodes, stride, stride, first, end);
    // A load takes two words, which fill a block's eighth. In an odd row one word is left.
    let (mut at, mut read, mut marked, mut ends) = (2, 0, false, false);
    while !ends {
        while at < 16 && read < words - 1 {
            let x = nodes.load::<u64, V, 2, true>(8 * read);
            for i in 0..2 {
                w[at + i] = next(x[i]);
            }
            (at, read) = (at + 2, read + 2);
        }
        if at < 16 && read < words {
            w[at] = next(nodes.load::<u64, V, 2, true>(8 * read - 8)[1]);
            (at, read) = (at + 1, words);
        }
        if at < 16 {
            w[at..].fill(V::splat(0));
            if !marked {
                w[at] = next(V::splat(1 << 63));
                (at, marked) = (at + 1, true);
            }
            // The length takes two words.
            if at <= 14 {
                w[15] = V::splat(8 * (128 + 22 + stride) as u64);
                ends = true;
            }
        }
        // All blocks share this one call, since the code behind it is long.
        compress512(&mut state, &mut w);
        at = 0;
    }
    store_512(n, &state, batch.out, first, end);
}

#[inline(always)]
fn store_512<V: Lanes<u64>>(n: usize, state: &[V; 8], out: &mut [u8], first: usize, end: usize) {
    match n {
        24 => V::store_rows::<3, true>(&[state[0], state[1], state[2]], out, 24, first, end),
        _ => V::store_rows::<4, true>(&[state[0], state[1], state[2], state[3]], out, 32, first, end),
    }
}

/// The FIPS 205 functions of the SHA2 family.
pub(crate) struct Sha2<T, const N: usize>(pub(crate) T);

impl<T: Simd, const N: usize> Sha2<T, N> {
    #[inline(always)]
    fn chains(&self, mut batch: ChainBatch<'_>) {
        let (jobs, few) = (batch.adrs.len(), T::STREAMS_UP_TO);
        let done = if jobs > few { chains_in_lanes::<T::Plain, N>(self.0.plain(), few, &mut batch) } else { 0 };
        if done < jobs {
            chains_in_streams::<T::Streams, N>(done, &mut batch);
        }
    }
}

impl<T: Simd, const N: usize> TweakableHash for Sha2<T, N> {
    fn n(&self) -> usize {
        N
    }
    fn lanes(&self) -> usize {
        if T::STREAMS_UP_TO == usize::MAX { 4 } else { T::Sha256Wide::LANES }
    }
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]) {
        self.chains(ChainBatch::one_step(N, keys, adrs, Source::SkSeed, out));
    }
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]) {
        self.chains(ChainBatch::one_step(N, keys, adrs, Source::Nodes, nodes));
    }
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]) {
        let mut batch = ListBatch::new(N, keys, adrs, l, nodes, out);
        if N > 16 {
            return lists_512(self.0.plain(), &mut batch);
        }
        let (jobs, few) = (adrs.len(), T::STREAMS_UP_TO);
        let done = if jobs > few { lists_256(self.0.plain(), few, &mut batch) } else { 0 };
        if done < jobs {
            lists_in_streams::<T::Streams>(done, &mut batch);
        }
    }
    fn chain(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        w: usize,
        steps: Steps<'_>,
        nodes: &mut [u8],
        trace: Option<Trace<'_>>,
    ) {
        self.chains(ChainBatch::chains(N, keys, adrs, w, steps, nodes, trace));
    }
    fn primitive(&self, which: Primitive, calls: u64) -> u64 {
        let lanes = match which {
            Primitive::Sha256 if T::STREAMS_UP_TO == usize::MAX => bare_streams::<T::Streams>(calls),
            Primitive::Sha256 => bare_256(self.0.plain(), calls),
            Primitive::Sha512 => bare_512(self.0.plain(), calls),
            Primitive::Keccak => unreachable!("Keccak is the other family's"),
        };
        calls * lanes as u64
    }
}

// In bare compressions, every lane and stream is different and is used, and the compiler knows no message. Otherwise it would compute only
// a part of them.

#[inline(never)]
fn bare_streams<T: Sha256Streams>(calls: u64) -> usize {
    T::vectorize(
        #[inline(always)]
        || {
            let mut states = [1, 2, 3, 4].map(|i| T::load(&[i; 8]));
            let blocks = [5, 6, 7, 8].map(|i| [i; 64]);
            for _ in 0..calls {
                T::compress::<4>(&mut states, core::hint::black_box(&blocks).each_ref());
            }
            core::hint::black_box(states.map(T::store));
            4
        },
    )
}
#[inline(never)]
fn bare_256<T: Simd>(token: T, calls: u64) -> usize {
    vectorize!(token, || {
        let mut state = [T::Sha256Wide::from_fn(|lane| lane as u32); 8];
        for _ in 0..calls {
            let mut w: [_; 16] = array!(|i| state[i % 8]);
            compress256(&mut state, &mut w);
        }
        core::hint::black_box([0, T::Sha256Wide::LANES - 1].map(|lane| state[7].get(lane)));
        T::Sha256Wide::LANES
    })
}
#[inline(never)]
fn bare_512<T: Simd>(token: T, calls: u64) -> usize {
    vectorize!(token, || {
        let mut state = [T::Sha512Wide::from_fn(|lane| lane as u64); 8];
        for _ in 0..calls {
            let mut w: [_; 16] = array!(|i| state[i % 8]);
            compress512(&mut state, &mut w);
        }
        core::hint::black_box([0, T::Sha512Wide::LANES - 1].map(|lane| state[7].get(lane)));
        T::Sha512Wide::LANES
    })
}
