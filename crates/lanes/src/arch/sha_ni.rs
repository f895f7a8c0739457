//! SHA-256 by the x86 SHA instructions, several streams interleaved.
//!
//! `sha256rnds2` starts every two cycles and takes four. So one stream needs 144 cycles a block on Zen 5, and four interleaved streams need 67
//! each; the least possible is 64.

use crate::AdrsWords;
use crate::sha2::K256;
use crate::simd::{Sha256Streams, array};
use core::arch::x86_64::*;
use core::ops::Range;

/// Streams by the SHA instructions.
#[derive(Clone, Copy)]
pub(crate) struct ShaNi;

/// ABEF and CDGH, highest lane first, as the instructions want them.
type State = (__m128i, __m128i);

#[inline(always)]
unsafe fn load(words: &[u32; 8]) -> State {
    // SAFETY: called inside `vectorize` alone; both loads are of 16 of the 32 bytes.
    unsafe {
        let badc = _mm_shuffle_epi32::<0xb1>(_mm_loadu_si128(words.as_ptr().cast()));
        let hgfe = _mm_shuffle_epi32::<0x1b>(_mm_loadu_si128(words.as_ptr().add(4).cast()));
        (_mm_alignr_epi8::<8>(badc, hgfe), _mm_blend_epi16::<0xf0>(hgfe, badc))
    }
}

/// The words d c b a and h g f e, lowest lane first.
#[inline(always)]
unsafe fn words((ab, cd): State) -> (__m128i, __m128i) {
    // SAFETY: called inside `vectorize` alone.
    unsafe { (_mm_unpackhi_epi64(cd, ab), _mm_unpacklo_epi64(cd, ab)) }
}

#[inline(always)]
unsafe fn add(a: State, b: State) -> State {
    // SAFETY: called inside `vectorize` alone.
    unsafe { (_mm_add_epi32(a.0, b.0), _mm_add_epi32(a.1, b.1)) }
}

/// Rounds 4r…4r+3 of every stream.
#[inline(always)]
unsafe fn quad<const S: usize>(r: usize, states: &mut [State; S], w: &mut [[__m128i; 4]; S]) {
    for i in 0..S {
        // SAFETY: called inside `vectorize` alone.
        unsafe {
            let w = &mut w[i];
            if r >= 4 {
                let t = _mm_sha256msg1_epu32(w[r & 3], w[(r + 1) & 3]);
                let t = _mm_add_epi32(t, _mm_alignr_epi8::<4>(w[(r + 3) & 3], w[(r + 2) & 3]));
                w[r & 3] = _mm_sha256msg2_epu32(t, w[(r + 3) & 3]);
            }
            let k = _mm_loadu_si128(K256[4 * r..4 * r + 4].as_ptr().cast());
            let k = _mm_add_epi32(w[r & 3], k);
            let (ab, cd) = &mut states[i];
            *cd = _mm_sha256rnds2_epu32(*cd, *ab, k);
            *ab = _mm_sha256rnds2_epu32(*ab, *cd, _mm_shuffle_epi32::<0x0e>(k));
        }
    }
}

macro_rules! quads {
    ($states:expr, $w:expr; $($r:literal)*) => { $(
        quad($r, $states, $w);
    )* };
}

#[inline(always)]
fn compress<const S: usize>(states: &mut [State; S], blocks: [&[u8; 64]; S]) {
    // SAFETY: called inside `vectorize` alone; every load is of 16 bytes inside a 64-byte block.
    unsafe {
        let mut w = array!(|i| {
            let b: &[u8; 64] = blocks[i];
            array!(|j| shuffle(_mm_loadu_si128(b.as_ptr().add(16 * j).cast()), SWAP))
        });
        let mut s = *states;
        quads!(&mut s, &mut w; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for i in 0..S {
            states[i] = add(s[i], states[i]);
        }
    }
}

/// Shuffles that reverse the bytes of each word, and all sixteen bytes.
const SWAP: [i8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
const REVERSE: [i8; 16] = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0];
const Z: i8 = -1;
#[inline(always)]
unsafe fn shuffle(v: __m128i, from: [i8; 16]) -> __m128i {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm_shuffle_epi8(v, core::mem::transmute::<[i8; 16], __m128i>(from)) }
}

/// ADRS^c as words w0…w3, and w4 with the upper half of w5.
#[inline(always)]
unsafe fn address(adrs: &AdrsWords) -> (__m128i, __m128i) {
    // SAFETY: called inside `vectorize` alone; both loads are of 16 of the 32 bytes.
    unsafe {
        let a0_3 = _mm_loadu_si128(adrs.as_ptr().cast());
        let a4_7 = _mm_loadu_si128(adrs.as_ptr().add(4).cast());
        let w0_3 = _mm_or_si128(
            shuffle(a0_3, [9, 10, 11, 0, 13, 14, 15, 8, Z, Z, Z, 12, Z, Z, Z, Z]),
            shuffle(a4_7, [Z, Z, Z, Z, Z, Z, Z, Z, 6, 7, 0, Z, 10, 11, 4, 5]),
        );
        (w0_3, shuffle(a4_7, [14, 15, 8, 9, Z, Z, 12, 13, Z, Z, Z, Z, Z, Z, Z, Z]))
    }
}

/// Computes H for n = 16. Block words 4–7 hold the end of ADRS^c and ten bytes of the nodes, words 8–11 the next sixteen,
/// words 12–15 the last six, padding and length.
#[inline(always)]
fn h<const S: usize>(mid: [State; S], adrs: [&AdrsWords; S], nodes: [&[u8; 32]; S]) -> [[u8; 16]; S] {
    // SAFETY: called inside `vectorize` alone; loads are of bytes 0–15, 10–25 and 16–31 of the nodes' 32.
    unsafe {
        let mut w: [[__m128i; 4]; S] = array!(|i| {
            let node = |at: usize| _mm_loadu_si128(nodes[i].as_ptr().add(at).cast());
            let (w0_3, tail) = address(adrs[i]);
            let w4_7 = shuffle(node(0), [Z, Z, Z, Z, 1, 0, Z, Z, 5, 4, 3, 2, 9, 8, 7, 6]);
            let w12_15 = shuffle(node(16), [13, 12, 11, 10, Z, Z, 15, 14, Z, Z, Z, Z, Z, Z, Z, Z]);
            let end = _mm_set_epi32((64 + 22 + 32) * 8, 0, 0x8000, 0);
            [w0_3, _mm_or_si128(tail, w4_7), shuffle(node(10), SWAP), _mm_or_si128(w12_15, end)]
        });
        let mut s = mid;
        quads!(&mut s, &mut w; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        array!(|i| core::mem::transmute(shuffle(words(add(s[i], mid[i])).0, REVERSE)))
    }
}

/// Words w4…w15 of a block with a value, padding and length; the caller adds the address. After the 22 bytes of ADRS^c, every word of the value
/// lies across two words of the block, half in each. `dcba` and `hgfe` hold the value's words, the last in the lowest lane, as [`compress`]
/// leaves them.
#[inline(always)]
unsafe fn value_words<const N: usize>(dcba: __m128i, hgfe: __m128i) -> [__m128i; 3] {
    let bits = ((64 + 22 + N) * 8) as i32;
    // SAFETY: called inside `vectorize` alone.
    unsafe {
        let w4_7 = shuffle(dcba, [Z, Z, Z, Z, 14, 15, Z, Z, 10, 11, 12, 13, 6, 7, 8, 9]);
        let low = shuffle(dcba, [2, 3, 4, 5, Z, Z, 0, 1, Z, Z, Z, Z, Z, Z, Z, Z]);
        match N {
            16 => [w4_7, _mm_or_si128(low, _mm_set_epi32(0, 0, 0x8000, 0)), _mm_set_epi32(bits, 0, 0, 0)],
            24 => {
                let high = shuffle(hgfe, [Z, Z, Z, Z, 14, 15, Z, Z, 10, 11, 12, 13, Z, Z, 8, 9]);
                let pad = _mm_set_epi32(0x8000, 0, 0, 0);
                [w4_7, _mm_or_si128(_mm_or_si128(low, high), pad), _mm_set_epi32(bits, 0, 0, 0)]
            }
            _ => {
                let high = shuffle(hgfe, [Z, Z, Z, Z, 14, 15, Z, Z, 10, 11, 12, 13, 6, 7, 8, 9]);
                let tail = shuffle(hgfe, [2, 3, 4, 5, Z, Z, 0, 1, Z, Z, Z, Z, Z, Z, Z, Z]);
                [w4_7, _mm_or_si128(low, high), _mm_or_si128(tail, _mm_set_epi32(bits, 0, 0x8000, 0))]
            }
        }
    }
}

#[inline(always)]
fn chain<const S: usize, const N: usize>(
    mid: [State; S],
    adrs: [&AdrsWords; S],
    values: &mut [[u8; N]; S],
    steps: Range<u32>,
    live: Option<[Range<u32>; S]>,
    mut seen: impl FnMut(u32, &[[u8; N]; S]),
) {
    const { assert!(N == 16 || N == 24 || N == 32) };
    // SAFETY: called inside `vectorize` alone; loads and stores are of 16 bytes of a value (for the words e f of a
    // 24-byte one, 8).
    unsafe {
        let high = |v: &[u8; N]| match N {
            16 => _mm_setzero_si128(),
            24 => shuffle(_mm_loadl_epi64(v.as_ptr().add(16).cast()), REVERSE),
            _ => shuffle(_mm_loadu_si128(v.as_ptr().add(16).cast()), REVERSE),
        };
        let mut dcba: [__m128i; S] = array!(|i| shuffle(_mm_loadu_si128(values[i].as_ptr().cast()), REVERSE));
        let mut hgfe: [__m128i; S] = array!(|i| high(&values[i]));

        let adrs: [(__m128i, __m128i); S] = array!(|i| address(adrs[i]));
        // The first four rounds do not depend on the value or the step, so they run once for each chain.
        let mut after4 = mid;
        let mut w: [[__m128i; 4]; S] = array!(|i| [adrs[i].0; 4]);
        quad(0, &mut after4, &mut w);

        for step in steps {
            let at = _mm_set_epi32(0, 0, (step << 16) as i32, 0);
            let mut w: [[__m128i; 4]; S] = array!(|i| {
                let [a, b, c] = value_words::<N>(dcba[i], hgfe[i]);
                [adrs[i].0, _mm_or_si128(a, _mm_add_epi32(adrs[i].1, at)), b, c]
            });
            let mut s = after4;
            quads!(&mut s, &mut w; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            for i in 0..S {
                let (low, high) = words(add(s[i], mid[i]));
                match &live {
                    Some(live) if !live[i].contains(&step) => {}
                    _ => (dcba[i], hgfe[i]) = (low, high),
                }
            }
            for i in 0..S {
                let v = values[i].as_mut_ptr();
                _mm_storeu_si128(v.cast(), shuffle(dcba[i], REVERSE));
                match N {
                    16 => {}
                    24 => _mm_storel_epi64(v.add(16).cast(), shuffle(hgfe[i], REVERSE)),
                    _ => _mm_storeu_si128(v.add(16).cast(), shuffle(hgfe[i], REVERSE)),
                }
            }
            seen(step, values);
        }
    }
}

impl Sha256Streams for ShaNi {
    #[inline(always)]
    fn vectorize<R>(f: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "sha,sse4.1")]
        #[inline(never)]
        fn shell<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        // SAFETY: the tokens with these streams were made where `sha` and AVX2, thus SSE4.1, were detected.
        unsafe { shell(f) }
    }
    type State = State;
    #[inline(always)]
    fn load(words: &[u32; 8]) -> State {
        // SAFETY: called inside `vectorize` alone.
        unsafe { load(words) }
    }
    #[inline(always)]
    fn store(state: State) -> [u32; 8] {
        // SAFETY: called inside `vectorize` alone; two vectors have the size of eight words.
        let mut w: [u32; 8] = unsafe { core::mem::transmute(words(state)) };
        w[..4].reverse();
        w[4..].reverse();
        w
    }
    #[inline(always)]
    fn compress<const S: usize>(states: &mut [State; S], blocks: [&[u8; 64]; S]) {
        compress(states, blocks)
    }
    #[inline(always)]
    fn chain<const S: usize, const N: usize>(
        mid: [State; S],
        adrs: [&AdrsWords; S],
        values: &mut [[u8; N]; S],
        steps: Range<u32>,
        live: Option<[Range<u32>; S]>,
        seen: impl FnMut(u32, &[[u8; N]; S]),
    ) {
        chain(mid, adrs, values, steps, live, seen)
    }
    #[inline(always)]
    fn h<const S: usize>(mid: [State; S], adrs: [&AdrsWords; S], nodes: [&[u8; 32]; S]) -> [[u8; 16]; S] {
        h(mid, adrs, nodes)
    }
}
