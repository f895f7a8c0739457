//! Keccak-f\[1600\] over lanes, and FIPS 205's functions on SHAKE256 (11.1).
//!
//! PK.seed, ADRS and nodes are whole 64-bit words for every n, so nothing is shifted: a chain's value is four words of
//! the state that go back where the node stands.

use crate::simd::{Lanes, Simd, array};
use crate::{
    AdrsWords, Keys, Live, Primitive, Steps, Trace, TweakableHash, Width, adrs_bytes, check_chains, check_rows, groups,
};

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
    let c: [V; 5] = array(
        #[inline(always)]
        |x| a[x].xor3(a[x + 5], a[x + 10]).xor3(a[x + 15], a[x + 20]),
    );
    let r: [V; 5] = array(
        #[inline(always)]
        |x| c[x].rotr::<63, 1>(),
    );
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

/// Keccak-f\[1600\] (FIPS 202, 3.3), two rounds an iteration.
#[inline(always)]
fn permute<V: Lanes<u64>>(state: &mut [V; 25]) {
    for rc in RC.as_chunks::<2>().0 {
        *state = round(&round(state, rc[0]), rc[1]);
    }
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
    token.vectorize(
        #[inline(always)]
        || {
            let vectors = groups(
                jobs,
                alone::<T>(),
                T::KeccakWide::LANES,
                T::U64s::LANES,
                #[inline(always)]
                |width, first, rows| match width {
                    Width::Narrow => stream::<T::U64s, W>(inputs, input_bytes, outputs, blocks, first, rows),
                    Width::Wide => stream::<T::KeccakWide, W>(inputs, input_bytes, outputs, blocks, first, rows),
                },
            );
            if vectors < jobs {
                stream::<u64, W>(inputs, input_bytes, outputs, blocks, vectors, 1);
            }
        },
    );
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
    let (whole, rest) = (input_bytes / rate * rate, input_bytes % rate);
    for at in (0..whole).step_by(rate) {
        let block = V::load_rows::<W, false>(&inputs[at..], input_bytes, first, end);
        for i in 0..W {
            state[i] = state[i].xor(block[i]);
        }
        permute(&mut state);
    }
    // What is left, from the rows themselves: two words at a time, then up to 15 bytes.
    let pairs = rest / 16;
    for pair in 0..pairs {
        let words = V::load_rows::<2, false>(&inputs[whole + 16 * pair..], input_bytes, first, end);
        for i in 0..2 {
            state[2 * pair + i] = state[2 * pair + i].xor(words[i]);
        }
    }
    let last = whole + 16 * pairs;
    for word in 0..=(rest % 16) / 8 {
        let words = V::from_fn(
            #[inline(always)]
            |lane| {
                let input = &inputs[(first + lane.min(rows - 1)) * input_bytes..][..input_bytes];
                let bytes = input[last + 8 * word..].iter().take(8);
                bytes.rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            },
        );
        state[2 * pairs + word] = state[2 * pairs + word].xor(words);
    }
    // 1111, then 10*1; both ends may meet in one byte.
    state[rest / 8] = state[rest / 8].xor(V::splat(0x1f << (8 * (rest % 8))));
    state[W - 1] = state[W - 1].xor(V::splat(1 << 63));
    permute(&mut state);
    for block in 0..blocks {
        if block > 0 {
            permute(&mut state);
        }
        let words: [V; W] = array(
            #[inline(always)]
            |i| state[i],
        );
        V::store_rows::<W, false>(&words, &mut outputs[block * rate..], blocks * rate, first, end);
    }
}

/// The FIPS 205 functions of the SHAKE family.
pub(crate) struct Shake<T, const N: usize>(pub(crate) T);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nodes,
    SkSeed,
}

/// PK.seed, or SK.seed, of each lane's key.
#[inline(always)]
fn seeds<V: Lanes<u64>, const N: usize>(keys: Keys<'_>, first: usize, secret: bool) -> [V; 4] {
    let zero = V::splat(0);
    array(
        #[inline(always)]
        |i| match keys {
            _ if i >= N / 8 => zero,
            Keys::One(key) => V::splat(key.seed_word(i, secret)),
            _ => V::from_fn(
                #[inline(always)]
                |lane| keys.get(first + lane).seed_word(i, secret),
            ),
        },
    )
}

/// ADRS as four little-endian words of the big-endian address.
#[inline(always)]
fn address<V: Lanes<u64>>(adrs: &[AdrsWords], first: usize, end: usize) -> [V; 4] {
    // Two words of the address a double word: all eight bytes swapped, then the words.
    let q = V::load_rows::<4, true>(adrs_bytes(adrs), 32, first, end);
    array(
        #[inline(always)]
        |i| q[i].rotr::<32, 32>(),
    )
}

#[inline(always)]
fn load_node<V: Lanes<u64>, const N: usize>(nodes: &[u8], first: usize, end: usize) -> [V; 4] {
    let mut v = [V::splat(0); 4];
    match N {
        16 => v[..2].copy_from_slice(&V::load_rows::<2, false>(nodes, 16, first, end)),
        24 => v[..3].copy_from_slice(&V::load_rows::<3, false>(nodes, 24, first, end)),
        _ => v = V::load_rows::<4, false>(nodes, 32, first, end),
    }
    v
}

#[inline(always)]
fn store_node<V: Lanes<u64>, const N: usize>(v: &[V; 4], nodes: &mut [u8], first: usize, end: usize) {
    match N {
        16 => V::store_rows::<2, false>(&[v[0], v[1]], nodes, 16, first, end),
        24 => V::store_rows::<3, false>(&[v[0], v[1], v[2]], nodes, 24, first, end),
        _ => V::store_rows::<4, false>(v, nodes, 32, first, end),
    }
}

impl<T: Simd, const N: usize> Shake<T, N> {
    /// F and PRF: steps of chains, one or many. The one place where F is computed.
    #[inline(never)]
    fn short(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        source: Source,
        live: Live<'_>,
        nodes: &mut [u8],
        trace: &mut Option<Trace<'_>>,
    ) {
        let jobs = adrs.len();
        check_rows(nodes.len(), jobs, 1, N);
        keys.check(jobs);
        self.0.vectorize(
            #[inline(always)]
            || {
                let vectors = groups(
                    jobs,
                    alone::<T>(),
                    T::KeccakWide::LANES,
                    T::U64s::LANES,
                    #[inline(always)]
                    |width, first, rows| match width {
                        Width::Narrow => lanes::<T::U64s, N>(keys, adrs, source, live, nodes, trace, first, rows),
                        Width::Wide => lanes::<T::KeccakWide, N>(keys, adrs, source, live, nodes, trace, first, rows),
                    },
                );
                if vectors < jobs {
                    lanes::<u64, N>(keys, adrs, source, live, nodes, trace, vectors, 1);
                }
            },
        );
    }
}

/// One job alone is faster in plain registers than in four lanes: 816 against 1,388 cycles on Zen 5; not than in eight.
const fn alone<T: Simd>() -> usize {
    (T::U64s::LANES <= 4) as usize
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn lanes<V: Lanes<u64>, const N: usize>(
    keys: Keys<'_>,
    adrs: &[AdrsWords],
    source: Source,
    live: Live<'_>,
    nodes: &mut [u8],
    trace: &mut Option<Trace<'_>>,
    first: usize,
    rows: usize,
) {
    let (end, s) = (first + rows, N / 8);
    let seed = seeds::<V, N>(keys, first, false);
    let a = address::<V>(adrs, first, end);
    let mut v = match source {
        Source::Nodes => load_node::<V, N>(nodes, first, end),
        Source::SkSeed => seeds::<V, N>(keys, first, true),
    };
    let (any, all) = live.hull(first, rows);
    let traced = trace.as_ref().is_some_and(|t| t.chains[first..end].iter().any(|c| *c != Trace::NONE));
    for step in any {
        let mut state = [V::splat(0); 25];
        for i in 0..s {
            state[i] = seed[i];
            state[s + 4 + i] = v[i];
        }
        state[s..s + 3].copy_from_slice(&a[..3]);
        // The hash address is the last byte of ADRS for all the steps there are (w ≤ 256).
        state[s + 3] = a[3].add(V::splat(u64::from(step) << 56));
        state[2 * s + 4] = V::splat(0x1f);
        state[RATE - 1] = V::splat(1 << 63);
        permute(&mut state);
        if all.contains(&step) {
            v[..s].copy_from_slice(&state[..s]);
        } else {
            let mask = V::from_fn(
                #[inline(always)]
                |lane| 0u64.wrapping_sub(u64::from(live.of(first + lane).contains(&step))),
            );
            for i in 0..s {
                v[i] = mask.ch(state[i], v[i]);
            }
        }
        if traced && let Some(trace) = trace {
            let w = live.last as usize + 1;
            let mut values = [0; 16 * 32];
            store_node::<V, N>(&v, &mut values[..rows * N], 0, rows);
            keep_rows::<N>(trace, w, step as usize + 1, first, rows, &values[..rows * N]);
        }
    }
    store_node::<V, N>(&v, nodes, first, end);
}

/// Copies the values of a step to the chains that are kept.
#[inline(always)]
fn keep_rows<const N: usize>(trace: &mut Trace<'_>, w: usize, value: usize, first: usize, rows: usize, values: &[u8]) {
    for (row, chain) in values.chunks_exact(N).zip(&trace.chains[first..first + rows]) {
        if *chain != Trace::NONE {
            trace.out[(*chain as usize * w + value) * N..][..N].copy_from_slice(row);
        }
    }
}

/// T_l: absorbs PK.seed, ADRS and l nodes, word by word.
#[inline(always)]
fn t_l<V: Lanes<u64>, const N: usize>(
    keys: Keys<'_>,
    adrs: &[AdrsWords],
    l: usize,
    nodes: &[u8],
    out: &mut [u8],
    first: usize,
    rows: usize,
) {
    let (end, s, stride) = (first + rows, N / 8, l * N);
    let words = stride / 8;
    let mut state = [V::splat(0); 25];
    state[..s].copy_from_slice(&seeds::<V, N>(keys, first, false)[..s]);
    state[s..s + 4].copy_from_slice(&address::<V>(adrs, first, end));
    let (mut at, mut read) = (s + 4, 0);
    while read < words {
        // Two words a load; the last one of an odd row is loaded with the one before it.
        let from = read.min(words - 2);
        let pair = V::load_rows::<2, false>(&nodes[8 * from..], stride, first, end);
        for x in &pair[read - from..] {
            if at == RATE {
                permute(&mut state);
                at = 0;
            }
            state[at] = state[at].xor(*x);
            at += 1;
            read += 1;
        }
    }
    if at == RATE {
        permute(&mut state);
        at = 0;
    }
    state[at] = state[at].xor(V::splat(0x1f));
    state[RATE - 1] = state[RATE - 1].xor(V::splat(1 << 63));
    permute(&mut state);
    store_node::<V, N>(&[state[0], state[1], state[2], state[3]], out, first, end);
}

/// H: one block, all of it in registers.
#[inline(always)]
fn h<V: Lanes<u64>, const N: usize>(
    keys: Keys<'_>,
    adrs: &[AdrsWords],
    nodes: &[u8],
    out: &mut [u8],
    first: usize,
    rows: usize,
) {
    let (end, s) = (first + rows, N / 8);
    let mut state = [V::splat(0); 25];
    state[..s].copy_from_slice(&seeds::<V, N>(keys, first, false)[..s]);
    state[s..s + 4].copy_from_slice(&address::<V>(adrs, first, end));
    match N {
        16 => state[6..10].copy_from_slice(&V::load_rows::<4, false>(nodes, 32, first, end)),
        24 => state[7..13].copy_from_slice(&V::load_rows::<6, false>(nodes, 48, first, end)),
        _ => state[8..16].copy_from_slice(&V::load_rows::<8, false>(nodes, 64, first, end)),
    }
    state[3 * s + 4] = state[3 * s + 4].xor(V::splat(0x1f));
    state[RATE - 1] = state[RATE - 1].xor(V::splat(1 << 63));
    permute(&mut state);
    store_node::<V, N>(&[state[0], state[1], state[2], state[3]], out, first, end);
}

impl<T: Simd, const N: usize> TweakableHash for Shake<T, N> {
    fn n(&self) -> usize {
        N
    }
    fn lanes(&self) -> usize {
        T::KeccakWide::LANES
    }
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]) {
        self.short(keys, adrs, Source::SkSeed, Live { steps: Steps::All, last: 1 }, out, &mut None);
    }
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]) {
        self.short(keys, adrs, Source::Nodes, Live { steps: Steps::All, last: 1 }, nodes, &mut None);
    }
    #[inline(never)]
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]) {
        let jobs = adrs.len();
        check_rows(nodes.len(), jobs, l, N);
        check_rows(out.len(), jobs, 1, N);
        keys.check(jobs);
        self.0.vectorize(
            #[inline(always)]
            || {
                let vectors = groups(
                    jobs,
                    alone::<T>(),
                    T::KeccakWide::LANES,
                    T::U64s::LANES,
                    #[inline(always)]
                    |width, first, rows| match width {
                        Width::Narrow if l == 2 => h::<T::U64s, N>(keys, adrs, nodes, out, first, rows),
                        Width::Wide if l == 2 => h::<T::KeccakWide, N>(keys, adrs, nodes, out, first, rows),
                        Width::Narrow => t_l::<T::U64s, N>(keys, adrs, l, nodes, out, first, rows),
                        Width::Wide => t_l::<T::KeccakWide, N>(keys, adrs, l, nodes, out, first, rows),
                    },
                );
                if vectors < jobs {
                    t_l::<u64, N>(keys, adrs, l, nodes, out, vectors, 1);
                }
            },
        );
    }
    fn chain(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        w: usize,
        steps: Steps<'_>,
        nodes: &mut [u8],
        mut trace: Option<Trace<'_>>,
    ) {
        check_chains(adrs.len(), N, w, steps, trace.as_ref());
        if let Some(trace) = &mut trace {
            keep_rows::<N>(trace, w, 0, 0, adrs.len(), nodes);
        }
        self.short(keys, adrs, Source::Nodes, Live { steps, last: w as u32 - 1 }, nodes, &mut trace);
    }
    #[inline(never)]
    fn primitive(&self, which: Primitive, calls: u64) -> u64 {
        assert_eq!(which, Primitive::Keccak, "the other family's");
        self.0.vectorize(
            #[inline(always)]
            || {
                let mut state: [T::KeccakWide; 25] = array(
                    #[inline(always)]
                    |i| T::KeccakWide::from_fn(|lane| (i * 64 + lane) as u64),
                );
                for _ in 0..calls {
                    permute(&mut state);
                }
                core::hint::black_box(state[0].get(0));
            },
        );
        calls * T::KeccakWide::LANES as u64
    }
}
