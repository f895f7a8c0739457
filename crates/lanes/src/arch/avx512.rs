//! AVX-512 (F, BW, VL), with and without the SHA instructions for the serial parts.

use super::portable::NoStreams;
use super::sha_ni::ShaNi;
use super::x86::{self, four_registers, two_registers, x86_doubles, x86_token, x86_transpose, x86_vector};
use crate::field::{Q, ROUND};
use crate::ntt::N;
use crate::sample::SLACK;
use crate::sha2::paired_blocks512;
use crate::simd::{Pair, Simd, WordPairs, array, vectorize};
use core::arch::x86_64::*;

x86_transpose!(
    transpose32,
    transpose64,
    __m512i,
    _mm512_unpacklo_epi32,
    _mm512_unpackhi_epi32,
    _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64
);

#[inline(always)]
unsafe fn swap32() -> __m512i {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)) }
}
#[inline(always)]
unsafe fn swap64() -> __m512i {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm512_broadcast_i32x4(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)) }
}
/// Joins four rows, lowest quarter first.
macro_rules! join {
    ($row:ident, $j:literal, $step:literal) => {
        // SAFETY: called inside `vectorize` alone; the rows are there, as `load_from`'s caller promises.
        unsafe {
            let v = _mm512_castsi128_si512($row!($j));
            let v = _mm512_inserti32x4::<1>(v, $row!($j + $step));
            let v = _mm512_inserti32x4::<2>(v, $row!($j + 2 * $step));
            _mm512_inserti32x4::<3>(v, $row!($j + 3 * $step))
        }
    };
}
#[inline(always)]
unsafe fn split(v: __m512i) -> [__m128i; 4] {
    // SAFETY: called inside `vectorize` alone.
    unsafe {
        [
            _mm512_castsi512_si128(v),
            _mm512_extracti32x4_epi32::<1>(v),
            _mm512_extracti32x4_epi32::<2>(v),
            _mm512_extracti32x4_epi32::<3>(v),
        ]
    }
}

/// Writes each three-input function as one `vpternlog`. The number is the truth table, read with a = 0xf0, b = 0xcc, c = 0xaa.
macro_rules! ternary {
    ($ternlog:ident) => {
        #[inline(always)]
        fn xor3(self, b: Self, c: Self) -> Self {
            // SAFETY: see splat.
            unsafe { Self($ternlog::<{ 0xf0 ^ 0xcc ^ 0xaa }>(self.0, b.0, c.0)) }
        }
        #[inline(always)]
        fn ch(self, b: Self, c: Self) -> Self {
            // SAFETY: see splat.
            unsafe { Self($ternlog::<{ 0xf0 & 0xcc | 0x0f & 0xaa }>(self.0, b.0, c.0)) }
        }
        #[inline(always)]
        fn maj(self, b: Self, c: Self) -> Self {
            // SAFETY: see splat.
            unsafe { Self($ternlog::<{ 0xf0 & 0xcc | 0xf0 & 0xaa | 0xcc & 0xaa }>(self.0, b.0, c.0)) }
        }
        #[inline(always)]
        fn chi(self, b: Self, c: Self) -> Self {
            // SAFETY: see splat.
            unsafe { Self($ternlog::<{ 0xf0 ^ 0x33 & 0xaa }>(self.0, b.0, c.0)) }
        }
    };
}

/// Shifts by a constant `i32`. The intrinsics take a constant `u32`, which stable Rust cannot make of it, so each bit of the count is a shift of
/// its own. The compiler merges them into one instruction. (Intrinsics that take the count as a vector are none that Miri knows.)
macro_rules! by_bits {
    ($shift:ident, $x:expr, $count:ident, $($bit:literal)*) => {{
        let x = $x;
        $(let x = if $count & $bit == 0 { x } else { $shift::<$bit>(x) };)*
        x
    }};
}

x86_vector!(U32x16, __m512i, u32, 16, 4, 4,
    set1 _mm512_set1_epi32, add _mm512_add_epi32, xor _mm512_xor_si512, and _mm512_and_si512, or _mm512_or_si512,
    andnot _mm512_andnot_si512, shr |x, S| by_bits!(_mm512_srli_epi32, x, S, 1 2 4 8 16), shl |x, S| by_bits!(_mm512_slli_epi32, x, S, 1 2 4 8 16),
    rotr |x, R, L| _mm512_ror_epi32::<R>(x),
    bswap |x| _mm512_shuffle_epi8(x, swap32()),
    transpose transpose32,
    registers four_registers join,
    |v| split(v),
    ternary!(_mm512_ternarylogic_epi32);
);
x86_vector!(U64x8, __m512i, u64, 8, 2, 4,
    set1 _mm512_set1_epi64, add _mm512_add_epi64, xor _mm512_xor_si512, and _mm512_and_si512, or _mm512_or_si512,
    andnot _mm512_andnot_si512, shr |x, S| by_bits!(_mm512_srli_epi64, x, S, 1 2 4 8 16 32), shl |x, S| by_bits!(_mm512_slli_epi64, x, S, 1 2 4 8 16 32),
    rotr |x, R, L| _mm512_ror_epi64::<R>(x),
    bswap |x| _mm512_shuffle_epi8(x, swap64()),
    transpose transpose64,
    registers two_registers join,
    |v| split(v),
    ternary!(_mm512_ternarylogic_epi32);
);
impl WordPairs<4> for U64x8 {
    #[inline(always)]
    fn load_pairs(blocks: &[[u8; 128]; 4], i: usize) -> Self {
        macro_rules! pair {
            ($block:expr) => {
                _mm_loadu_si128(blocks[$block].as_chunks::<16>().0[i].as_ptr().cast())
            };
        }
        // A pair has 16 bytes.
        let pairs = join!(pair, 0, 1);
        // SAFETY: called inside `vectorize` alone.
        unsafe { U64x8(_mm512_shuffle_epi8(pairs, swap64())) }
    }
    #[inline(always)]
    fn straddle(self, next: Self) -> Self {
        // SAFETY: called inside `vectorize` alone.
        unsafe { U64x8(_mm512_alignr_epi8::<8>(next.0, self.0)) }
    }
    #[inline(always)]
    fn store_sums(self, k: &[u64; 2], sums: &mut [[u64; 2]; 4]) {
        // SAFETY: called inside `vectorize` alone; `k` has 16 bytes, `sums` has 64.
        unsafe {
            let k = _mm512_broadcast_i32x4(_mm_loadu_si128(k.as_ptr().cast()));
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), _mm512_add_epi64(self.0, k));
        }
    }
}
/// The larger of two doubles, which are ordered as integers are unless both are negative. Miri knows this instruction.
#[inline(always)]
unsafe fn max_unless_both_negative(a: __m512d, b: __m512d) -> __m512d {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm512_castsi512_pd(_mm512_max_epi64(_mm512_castpd_si512(a), _mm512_castpd_si512(b))) }
}
/// Eight rows of eight doubles, from eight columns: four columns a quarter and four rows a half, then the halves.
#[inline(always)]
unsafe fn from_columns(columns: *const i32, stride: usize) -> [__m512d; 8] {
    // SAFETY: called inside `vectorize` alone, where there are eight numbers at eight multiples of the stride.
    unsafe {
        let four = |first: usize| {
            super::avx2::transpose32(array!(|lane| _mm256_loadu_si256(columns.add((first + lane) * stride).cast())))
        };
        let (low, high) = (four(0), four(4));
        array!(|i| match i / 4 {
            0 => _mm512_cvtepi32_pd(_mm256_permute2x128_si256::<0x20>(low[i], high[i])),
            _ => _mm512_cvtepi32_pd(_mm256_permute2x128_si256::<0x31>(low[i - 4], high[i - 4])),
        })
    }
}
#[inline(always)]
unsafe fn to_columns(rows: [__m512d; 8], columns: *mut i32, stride: usize) {
    // SAFETY: see from_columns.
    unsafe {
        // The lower words of x + 1.5·2⁵² are x, and Miri knows these instructions.
        let rows: [__m256i; 8] =
            array!(|i| _mm512_cvtepi64_epi32(_mm512_castpd_si512(_mm512_add_pd(rows[i], _mm512_set1_pd(ROUND)))));
        let low = super::avx2::transpose32(array!(|i| _mm256_permute2x128_si256::<0x20>(rows[i], rows[i + 4])));
        let high = super::avx2::transpose32(array!(|i| _mm256_permute2x128_si256::<0x31>(rows[i], rows[i + 4])));
        for lane in 0..4 {
            _mm256_storeu_si256(columns.add(lane * stride).cast(), low[lane]);
            _mm256_storeu_si256(columns.add((lane + 4) * stride).cast(), high[lane]);
        }
    }
}
x86_doubles!(F64x8, __m512d, 8, __mmask8,
    set1 _mm512_set1_pd, add _mm512_add_pd, sub _mm512_sub_pd, mul _mm512_mul_pd, fma _mm512_fmadd_pd,
    fnma _mm512_fnmadd_pd, max max_unless_both_negative, abs |x| _mm512_abs_pd(x),
    is_zero |x| _mm512_testn_epi64_mask(_mm512_castpd_si512(x), _mm512_set1_epi64(i64::MAX)),
    equals |x, o| _mm512_cmpeq_epi64_mask(_mm512_castpd_si512(x), _mm512_castpd_si512(o)),
    replace |x, mask, o| _mm512_mask_mov_pd(x, mask, o), clear |x, mask| _mm512_maskz_mov_pd(!mask, x),
    swap |x, distance| match distance {
        1 => _mm512_permute_pd::<0b0101_0101>(x),
        2 => _mm512_permutex_pd::<0b01_00_11_10>(x),
        _ => _mm512_shuffle_f64x2::<0b01_00_11_10>(x, x),
    },
    from_columns from_columns, to_columns to_columns
);

/// [`crate::sample::uniform`] with sixteen candidates a step. They are compressed in registers: compressing to memory is microcode on Zen 4.
///
/// # Safety
///
/// Called inside `vectorize` alone.
#[inline(always)]
unsafe fn uniform(stream: &[u8], out: &mut [i32]) -> bool {
    assert!(out.len() >= N + SLACK);
    let mut count = 0;
    for bytes in stream.chunks(48) {
        let candidates = bytes.len() / 3;
        // SAFETY: the bytes of the chunk are read; sixteen numbers are written at count < N.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi8((1 << (3 * candidates)) - 1, bytes.as_ptr().cast());
            // Each quarter gets twelve bytes, then each word three.
            let quarters = _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
            let spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
            let x = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters, bytes), _mm512_broadcast_i32x4(spread));
            let x = _mm512_and_si512(x, _mm512_set1_epi32(0x7f_ffff));
            let there = ((1u32 << candidates) - 1) as u16;
            let below = _mm512_mask_cmplt_epi32_mask(there, x, _mm512_set1_epi32(Q as i32));
            _mm512_storeu_si512(out.as_mut_ptr().add(count).cast(), _mm512_maskz_compress_epi32(below, x));
            count += below.count_ones() as usize;
        }
        if count >= N {
            return true;
        }
    }
    false
}

/// [`crate::sample::short`] with sixteen nibbles a step.
///
/// # Safety
///
/// Called inside `vectorize` alone.
#[inline(always)]
unsafe fn short(stream: &[u8], out: &mut [i32]) -> bool {
    assert!(out.len() >= N + SLACK);
    let mut count = 0;
    for bytes in stream.as_chunks::<8>().0 {
        // SAFETY: sixteen numbers are written at count < N.
        unsafe {
            let (small, kept) = x86::sixteen_nibbles(bytes);
            let small = _mm512_maskz_compress_epi32(kept, _mm512_cvtepi8_epi32(small));
            _mm512_storeu_si512(out.as_mut_ptr().add(count).cast(), small);
            count += kept.count_ones() as usize;
        }
        if count >= N {
            return true;
        }
    }
    false
}

/// The vectors of both tokens, and the functions that use them.
macro_rules! vectors {
    () => {
        type U32s = U32x16;
        // Two groups hide the latency of rotations: 28.0 against 38.7 cycles a compression on Zen 5, 85 against 64 M
        // chain steps a second on Emerald Rapids; three spill.
        type Sha256Wide = Pair<U32x16>;
        type U64s = U64x8;
        // Two groups take 74 cycles against 96 on Zen 5; there is no difference on Emerald Rapids.
        type Sha512Wide = Pair<U64x8>;
        type Doubles = F64x8;
        type DoublesWide = Pair<F64x8>;
        #[inline(always)]
        fn sha512_blocks(self, state: &mut [u64; 8], blocks: &[[u8; 128]]) {
            vectorize!(self, || paired_blocks512::<U64x8, 4>(state, blocks));
        }
        // Miri does not know the instructions that compress.
        #[inline(always)]
        fn uniform(self, stream: &[u8], out: &mut [i32]) -> bool {
            // SAFETY: called inside `vectorize`.
            unsafe { if cfg!(miri) { x86::uniform(stream, out) } else { uniform(stream, out) } }
        }
        #[inline(always)]
        fn short(self, stream: &[u8], out: &mut [i32]) -> bool {
            // SAFETY: called inside `vectorize`.
            unsafe { if cfg!(miri) { x86::short(stream, out) } else { short(stream, out) } }
        }
    };
}
x86_token!(
    /** AVX-512 for many jobs, the SHA instructions for few. */
    sha, Avx512Sha, Avx512, ShaNi up to 8, "avx512f" "avx512bw" "avx512vl" "bmi1" "bmi2" "popcnt" "sha"
);
x86_token!(
    /** AVX-512 (F, BW, VL) without SHA instructions: Skylake-X, Cascade Lake. */
    plain, Avx512, Avx512, NoStreams up to 0, "avx512f" "avx512bw" "avx512vl" "bmi1" "bmi2" "popcnt"
);
