//! Keccak-f\[1600\] over lanes, and FIPS 205's functions on SHAKE256 (11.1).
//!
//! PK.seed, ADRS and nodes are whole 64-bit words for every n, so nothing is shifted. A chain's value is the first n bytes of the state, which
//! go back where the node stands.

use crate::batch::{ChainBatch, ListBatch, Source, adrs_bytes, alone, check_rows, groups};
use crate::simd::{GroupRows, Lanes, MOST_LANES, Simd, array, vectorize};
use crate::{AdrsWords, Keys, Primitive, Steps, Trace, TweakableHash};

/// Round constants (FIPS 202, 3.2.5).
#[rustfmt::skip]
pub(crate) static RC: [u64; 24] = [
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b, 0x0000000080000001,
    0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
    0x000000000000800a, 0x800000008000000a, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
];

/// SHAKE256 absorbs 17 words a block.
const RATE: usize = 17;

/// A round (FIPS 202, 3.2): θ, then ρ and π row by row of the result, χ, ι.
#[inline(always)]
fn round<V: Lanes<u64>>(a: &[V; 25], rc: u64) -> [V; 25] {
    let c: [V; 5] = array!(|x| a[x].xor3(a[x + 5], a[x + 10]).xor3(a[x + 15], a[x + 20]));
    let r: [V; 5] = array!(|x| c[x].rotr::<63, 1>());
    let mut out = *a;
    // Word x of row y after π comes from column x of row (x + 3y) mod 5 rotated by its offset: five literals a row.
    macro_rules! row {
        ($y:literal: $($from:literal $left:literal $right:literal),*) => {{
            let b = [$( a[$from].xor3(c[($from + 4) % 5], r[($from + 1) % 5]).rotr::<$right, $left>() ),*];
            for x in 0..5 {
                out[5 * $y + x] = b[x].chi(b[(x + 1) % 5], b[(x + 2) % 5]);
            }
        }};
    }
    row!(0: 0 0 64, 6 44 20, 12 43 21, 18 21 43, 24 14 50);
    out[0] = out[0].xor(V::splat(rc));
    row!(1: 3 28 36, 9 20 44, 10 3 61, 16 45 19, 22 61 3);
    row!(2: 1 1 63, 7 6 58, 13 25 39, 19 8 56, 20 18 46);
    row!(3: 4 27 37, 5 36 28, 11 10 54, 17 15 49, 23 56 8);
    row!(4: 2 62 2, 8 55 9, 14 39 25, 15 41 23, 21 2 62);
    out
}

/// Keccak-f\[1600\] (FIPS 202, 3.3), two rounds an iteration. The first round is outside of the loop, so that it leaves out words that are
/// known to be zero, and the last one, so that it computes only the words that are read.
#[inline(always)]
fn permuted<V: Lanes<u64>>(state: &[V; 25]) -> [V; 25] {
    let [first, between @ .., last] = &RC;
    let mut state = round(state, *first);
    for rc in between.as_chunks::<2>().0 {
        state = round(&round(&state, rc[0]), rc[1]);
    }
    round(&state, *last)
}

/// Absorbs blocks of `rate` bytes of one message into a state (FIPS 202, 4).
#[inline(always)]
pub(crate) fn absorb<T: Simd>(token: T, state: &mut [u64; 25], rate: usize, blocks: &[u8]) {
    vectorize!(token, || {
        for block in blocks.chunks_exact(rate) {
            for (word, bytes) in state.iter_mut().zip(block.as_chunks().0) {
                *word ^= u64::from_le_bytes(*bytes);
            }
            *state = permuted(state);
        }
    });
}

/// Runs a function of vectors for groups of lanes, and for one job alone in plain registers where those are faster.
macro_rules! in_groups {
    ($token:expr, $t:ident, $jobs:expr, $group:ident $(::<$more:tt>)? ($($argument:expr),*)) => {
        vectorize!($token, || {
            let (jobs, lanes) = ($jobs, $t::U64s::LANES);
            let done = groups(
                jobs,
                alone::<$t>(),
                lanes,
                lanes,
                #[inline(always)]
                |_, first, rows| $group::<$t::U64s $(, $more)?>($($argument,)* first, rows),
            );
            if const { alone::<$t>() > 0 } && done < jobs {
                $group::<u64 $(, $more)?>($($argument,)* done, 1);
            }
        })
    };
}

/// SHAKE with blocks of W words (FIPS 202, 6.2): inputs of `input_bytes` each, outputs of `blocks` blocks each.
#[inline(never)]
pub(crate) fn shake<T: Simd, const W: usize>(
    token: T,
    inputs: &[u8],
    input_bytes: usize,
    outputs: &mut [u8],
    blocks: usize,
) {
    let jobs = inputs.len() / input_bytes;
    check_rows(inputs.len(), jobs, 1, input_bytes);
    check_rows(outputs.len(), jobs, blocks, 8 * W);
    in_groups!(token, T, jobs, stream::<W>(inputs, input_bytes, outputs, blocks));
}

#[inline(always)]
fn stream<V: Lanes<u64>, const W: usize>(
    inputs: &[u8],
    input_bytes: usize,
    outputs: &mut [u8],
    blocks: usize,
    first: usize,
    rows: usize,
) {
    let (rate, end) = (8 * W, first + rows);
    let mut state = [V::splat(0); 25];
    let (whole, rest) = (input_bytes / rate, input_bytes % rate);
    // The loop has one permutation for all three uses, since its code is long.
    for round in 0..whole + blocks.max(1) {
        if round < whole {
            let block = V::load_rows::<W, false>(&inputs[round * rate..], input_bytes, first, end);
            for i in 0..W {
                state[i] = state[i].xor(block[i]);
            }
        } else if round == whole {
            // The rest of each input is read from its row: two words at a time, then up to 15 bytes.
            let inputs = GroupRows::new(V::LANES, inputs, input_bytes, input_bytes, first, end);
            let (start, pairs) = (whole * rate, rest / 16);
            for pair in 0..pairs {
                let words = inputs.load::<u64, V, 2, false>(start + 16 * pair);
                for i in 0..2 {
                    state[2 * pair + i] = state[2 * pair + i].xor(words[i]);
                }
            }
            for word in 2 * pairs..=rest / 8 {
                let words = V::from_fn(
                    #[inline(always)]
                    |lane| last_word(&inputs.row(lane)[start + 8 * word..]),
                );
                state[word] = state[word].xor(words);
            }
            // 1111, then 10*1; both ends may meet in one byte.
            state[rest / 8] = state[rest / 8].xor(V::splat(0x1f << (8 * (rest % 8))));
            state[W - 1] = state[W - 1].xor(V::splat(1 << 63));
        }
        state = permuted(&state);
        if round >= whole && blocks > 0 {
            let words: [V; W] = array!(|i| state[i]);
            V::store_rows::<W, false>(&words, &mut outputs[(round - whole) * rate..], blocks * rate, first, end);
        }
    }
}

/// Up to eight bytes as a word.
#[inline(never)]
fn last_word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// PK.seed of each lane's key, and zeros.
#[inline(always)]
fn pk_seeds<V: Lanes<u64>>(keys: Keys<'_>, first: usize) -> [V; 4] {
    keys.load::<u64, V, _, 4, false>(
        first,
        #[inline(always)]
        |key| &key.pk_seed,
    )
}

/// ADRS as four little-endian words of the big-endian address.
#[inline(always)]
fn address<V: Lanes<u64>>(adrs: &[AdrsWords], first: usize, end: usize) -> [V; 4] {
    // A double word has two words of the address: all its eight bytes are swapped, then its two words.
    let q = V::load_rows::<4, true>(adrs_bytes(adrs), 32, first, end);
    array!(|i| q[i].rotr::<32, 32>())
}

#[inline(always)]
fn load_node<V: Lanes<u64>>(n: usize, nodes: &[u8], first: usize, end: usize) -> [V; 4] {
    let mut v = [V::splat(0); 4];
    match n {
        16 => v[..2].copy_from_slice(&V::load_rows::<2, false>(nodes, 16, first, end)),
        24 => v[..3].copy_from_slice(&V::load_rows::<3, false>(nodes, 24, first, end)),
        _ => v = V::load_rows::<4, false>(nodes, 32, first, end),
    }
    v
}

#[inline(always)]
fn store_node<V: Lanes<u64>>(n: usize, v: &[V], nodes: &mut [u8], first: usize, end: usize) {
    match n {
        16 => V::store_rows::<2, false>(&[v[0], v[1]], nodes, 16, first, end),
        24 => V::store_rows::<3, false>(&[v[0], v[1], v[2]], nodes, 24, first, end),
        _ => V::store_rows::<4, false>(&[v[0], v[1], v[2], v[3]], nodes, 32, first, end),
    }
}

/// Ones in the lanes where `bound` ≤ step.
#[inline(always)]
fn reached<V: Lanes<u64>>(bound: V, step: u32) -> V {
    // There bound − step − 1 is negative, so its sign bit is 1. Inverted, less one, that is all ones.
    let sign = bound.add(V::splat(!u64::from(step))).shr::<63>();
    sign.xor(V::splat(1)).add(V::splat(u64::MAX))
}

/// Computes one group of chains. F is computed only here.
#[inline(always)]
fn chain_lanes<V: Lanes<u64>, const N: usize>(batch: &mut ChainBatch<'_>, first: usize, rows: usize) {
    let (end, s) = (first + rows, N / 8);
    let seed = pk_seeds::<V>(batch.keys, first);
    let adrs = address::<V>(batch.adrs, first, end);
    let mut v = match batch.source {
        Source::Nodes => load_node::<V>(N, batch.nodes, first, end),
        Source::SkSeed => batch.keys.load::<u64, V, _, 4, false>(
            first,
            #[inline(always)]
            |key| &key.sk_seed,
        ),
    };
    let (any, all) = batch.hull(first, rows);
    let bounds = if any == all { [V::splat(0); 2] } else { batch.bounds_in_lanes(first) };
    let keeps = batch.keeps(first, rows);
    let mut values = [[0; N]; MOST_LANES];
    for step in any {
        let mut state = [V::splat(0); 25];
        state[..s].copy_from_slice(&seed[..s]);
        state[s..s + 3].copy_from_slice(&adrs[..3]);
        // The hash address fits the last byte of ADRS, whatever the step (w ≤ 256).
        state[s + 3] = adrs[3].add(V::splat(u64::from(step) << 56));
        state[s + 4..2 * s + 4].copy_from_slice(&v[..s]);
        state[2 * s + 4] = V::splat(0x1f);
        state[RATE - 1] = V::splat(1 << 63);
        let next = permuted(&state);
        if all.contains(&step) {
            v[..s].copy_from_slice(&next[..s]);
        } else {
            // Lanes whose chain has started, and is not at its end.
            let mask = reached(bounds[1], step).andnot(reached(bounds[0], step));
            for i in 0..s {
                v[i] = mask.ch(next[i], v[i]);
            }
        }
        if keeps {
            store_node::<V>(N, &v, values.as_flattened_mut(), 0, V::LANES);
            batch.keep(step + 1, first, rows, &values);
        }
    }
    store_node::<V>(N, &v, batch.nodes, first, end);
}

/// Computes one group of H: one block, all of it in registers.
#[inline(always)]
fn h<V: Lanes<u64>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let end = first + rows;
    let (seed, adrs) = (pk_seeds::<V>(batch.keys, first), address::<V>(batch.adrs, first, end));
    let mut state = [V::splat(0); 25];
    state[..4].copy_from_slice(&seed);
    macro_rules! fill {
        ($n:literal, $s:literal, $words:literal) => {{
            state[$s..$s + 4].copy_from_slice(&adrs);
            let nodes = V::load_rows::<$words, false>(batch.nodes, 2 * $n, first, end);
            state[$s + 4..3 * $s + 4].copy_from_slice(&nodes);
            state[3 * $s + 4] = V::splat(0x1f);
        }};
    }
    match batch.n {
        16 => fill!(16, 2, 4),
        24 => fill!(24, 3, 6),
        _ => fill!(32, 4, 8),
    }
    // For n = 32 both ends of the padding lie in one word.
    state[RATE - 1] = state[RATE - 1].xor(V::splat(1 << 63));
    store_node::<V>(batch.n, &permuted(&state), batch.out, first, end);
}

/// Computes one group of T_l.
#[inline(always)]
fn t_l<V: Lanes<u64>>(batch: &mut ListBatch<'_>, first: usize, rows: usize) {
    let (n, end, s, stride) = (batch.n, first + rows, batch.n / 8, batch.l * batch.n);
    let mut state = [V::splat(0); 25];
    state[..4].copy_from_slice(&pk_seeds::<V>(batch.keys, first));
    state[s..s + 4].copy_from_slice(&address::<V>(batch.adrs, first, end));
    let nodes = GroupRows::new(V::LANES, batch.nodes, stride, stride, first, end);
    let (words, mut at, mut read) = (stride / 8, s + 4, 0);
    let mut pair = [V::splat(0); 2];
    let mut ended = false;
    while !ended {
        while read < words && at < RATE {
            // A load takes two words. The last word of an odd row is loaded with the word before it.
            let from = (read & !1).min(words - 2);
            if read % 2 == 0 {
                pair = nodes.load::<u64, V, 2, false>(8 * from);
            }
            state[at] = state[at].xor(pair[read - from]);
            (at, read) = (at + 1, read + 1);
        }
        if at < RATE {
            state[at] = state[at].xor(V::splat(0x1f));
            state[RATE - 1] = state[RATE - 1].xor(V::splat(1 << 63));
            ended = true;
        }
        state = permuted(&state);
        at = 0;
    }
    store_node::<V>(n, &state, batch.out, first, end);
}

/// The FIPS 205 functions of the SHAKE family.
pub(crate) struct Shake<T> {
    pub(crate) token: T,
    pub(crate) n: usize,
}

impl<T: Simd> Shake<T> {
    #[inline(never)]
    fn chains(&self, batch: &mut ChainBatch<'_>) {
        match self.n {
            16 => in_groups!(self.token, T, batch.adrs.len(), chain_lanes::<16>(batch)),
            24 => in_groups!(self.token, T, batch.adrs.len(), chain_lanes::<24>(batch)),
            _ => in_groups!(self.token, T, batch.adrs.len(), chain_lanes::<32>(batch)),
        };
    }
}

impl<T: Simd> TweakableHash for Shake<T> {
    fn n(&self) -> usize {
        self.n
    }
    fn lanes(&self) -> usize {
        T::U64s::LANES
    }
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]) {
        self.chains(&mut ChainBatch::one_step(self.n, keys, adrs, Source::SkSeed, out));
    }
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]) {
        self.chains(&mut ChainBatch::one_step(self.n, keys, adrs, Source::Nodes, nodes));
    }
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]) {
        let mut batch = ListBatch::new(self.n, keys, adrs, l, nodes, out);
        if l == 2 {
            in_groups!(self.token, T, adrs.len(), h(&mut batch));
        } else {
            in_groups!(self.token, T, adrs.len(), t_l(&mut batch));
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
        self.chains(&mut ChainBatch::chains(self.n, keys, adrs, w, steps, nodes, trace));
    }
    #[inline(never)]
    fn primitive(&self, which: Primitive, calls: u64) -> u64 {
        assert_eq!(which, Primitive::Keccak, "the other family's");
        vectorize!(self.token, || {
            let mut state: [T::U64s; 25] = array!(|i| T::U64s::from_fn(|lane| (i * 64 + lane) as u64));
            for _ in 0..calls {
                state = permuted(&state);
            }
            core::hint::black_box(state[0].get(0));
        });
        calls * T::U64s::LANES as u64
    }
}
