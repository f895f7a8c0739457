//! AVX2, with and without the SHA instructions.

use super::portable::NoStreams;
use super::sha_ni::ShaNi;
use super::x86::{self, four_registers, two_registers, x86_doubles, x86_token, x86_transpose, x86_vector};
use crate::sha2::paired_blocks512;
use crate::simd::{Simd, WordPairs, array, vectorize};
use core::arch::x86_64::*;

x86_transpose!(
    transpose32,
    transpose64,
    __m256i,
    _mm256_unpacklo_epi32,
    _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64
);

#[inline(always)]
unsafe fn swap32() -> __m256i {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)) }
}
#[inline(always)]
unsafe fn swap64() -> __m256i {
    // SAFETY: called inside `vectorize` alone.
    unsafe { _mm256_broadcastsi128_si256(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Joins two rows, the second in the upper half.
macro_rules! join {
    ($row:ident, $j:literal, $step:literal) => {
        // SAFETY: called inside `vectorize` alone; the rows are there, as `load_from`'s caller promises.
        unsafe { _mm256_inserti128_si256::<1>(_mm256_castsi128_si256($row!($j)), $row!($j + $step)) }
    };
}

x86_vector!(U32x8, __m256i, u32, 8, 4, 2,
    set1 _mm256_set1_epi32, add _mm256_add_epi32, xor _mm256_xor_si256, and _mm256_and_si256, or _mm256_or_si256,
    andnot _mm256_andnot_si256, shr |x, S| _mm256_srli_epi32::<S>(x), shl |x, S| _mm256_slli_epi32::<S>(x),
    rotr |x, R, L| _mm256_or_si256(_mm256_srli_epi32::<R>(x), _mm256_slli_epi32::<L>(x)),
    bswap |x| _mm256_shuffle_epi8(x, swap32()),
    transpose transpose32,
    registers four_registers join,
    |v| [_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)],
);
x86_vector!(U64x4, __m256i, u64, 4, 2, 2,
    set1 _mm256_set1_epi64x, add _mm256_add_epi64, xor _mm256_xor_si256, and _mm256_and_si256, or _mm256_or_si256,
    andnot _mm256_andnot_si256, shr |x, S| _mm256_srli_epi64::<S>(x), shl |x, S| _mm256_slli_epi64::<S>(x),
    rotr |x, R, L| match R {
        // Whole bytes: one shuffle instead of two shifts.
        8 => _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_set_epi8(8, 15, 14, 13, 12, 11, 10, 9, 0, 7, 6, 5, 4, 3, 2, 1))),
        56 => _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_set_epi8(14, 13, 12, 11, 10, 9, 8, 15, 6, 5, 4, 3, 2, 1, 0, 7))),
        _ => _mm256_or_si256(_mm256_srli_epi64::<R>(x), _mm256_slli_epi64::<L>(x)),
    },
    bswap |x| _mm256_shuffle_epi8(x, swap64()),
    transpose transpose64,
    registers two_registers join,
    |v| [_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)],
);
impl WordPairs<2> for U64x4 {
    #[inline(always)]
    fn load_pairs(blocks: &[[u8; 128]; 2], i: usize) -> Self {
        macro_rules! pair {
            ($block:expr) => {
                _mm_loadu_si128(blocks[$block].as_chunks::<16>().0[i].as_ptr().cast())
            };
        }
        // A pair has 16 bytes.
        let pairs = join!(pair, 0, 1);
        // SAFETY: called inside `vectorize` alone.
        unsafe { U64x4(_mm256_shuffle_epi8(pairs, swap64())) }
    }
    #[inline(always)]
    fn straddle(self, next: Self) -> Self {
        // SAFETY: called inside `vectorize` alone.
        unsafe { U64x4(_mm256_alignr_epi8::<8>(next.0, self.0)) }
    }
    #[inline(always)]
    fn store_sums(self, k: &[u64; 2], sums: &mut [[u64; 2]; 2]) {
        // SAFETY: called inside `vectorize` alone; `k` has 16 bytes, `sums` has 32.
        unsafe {
            let k = _mm256_broadcastsi128_si256(_mm_loadu_si128(k.as_ptr().cast()));
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), _mm256_add_epi64(self.0, k));
        }
    }
}
/// Eight rows of four doubles, from four columns. A half of a register holds four rows after the transposition.
#[inline(always)]
unsafe fn from_columns(columns: *const i32, stride: usize) -> [__m256d; 8] {
    // SAFETY: called inside `vectorize` alone, where there are eight numbers at four multiples of the stride.
    unsafe {
        let rows = transpose32(array!(|lane| _mm256_loadu_si256(columns.add(lane * stride).cast())));
        array!(|i| match i / 4 {
            0 => _mm256_cvtepi32_pd(_mm256_castsi256_si128(rows[i])),
            _ => _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(rows[i - 4])),
        })
    }
}
#[inline(always)]
unsafe fn to_columns(rows: [__m256d; 8], columns: *mut i32, stride: usize) {
    // SAFETY: see from_columns.
    unsafe {
        let columns_of =
            transpose32(array!(|i| _mm256_setr_m128i(_mm256_cvttpd_epi32(rows[i]), _mm256_cvttpd_epi32(rows[i + 4]))));
        for lane in 0..4 {
            _mm256_storeu_si256(columns.add(lane * stride).cast(), columns_of[lane]);
        }
    }
}
x86_doubles!(F64x4, __m256d, 4, __m256d,
    set1 _mm256_set1_pd, add _mm256_add_pd, sub _mm256_sub_pd, mul _mm256_mul_pd, fma _mm256_fmadd_pd,
    fnma _mm256_fnmadd_pd, max _mm256_max_pd, abs |x| _mm256_andnot_pd(_mm256_set1_pd(-0.0), x),
    is_zero |x| _mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_setzero_pd()),
    equals |x, o| _mm256_cmp_pd::<_CMP_EQ_OQ>(x, o), replace |x, mask, o| _mm256_blendv_pd(x, o, mask),
    clear |x, mask| _mm256_andnot_pd(mask, x),
    swap |x, distance| match distance {
        1 => _mm256_permute_pd::<0b0101>(x),
        _ => _mm256_permute2f128_pd::<0x01>(x, x),
    },
    from_columns from_columns, to_columns to_columns
);

/// The vectors of both tokens, and the functions that use them.
macro_rules! vectors {
    () => {
        type U32s = U32x8;
        type Sha256Wide = U32x8;
        type U64s = U64x4;
        type Sha512Wide = U64x4;
        type Doubles = F64x4;
        type DoublesWide = F64x4;
        #[inline(always)]
        fn sha512_blocks(self, state: &mut [u64; 8], blocks: &[[u8; 128]]) {
            vectorize!(self, || paired_blocks512::<U64x4, 2>(state, blocks));
        }
        #[inline(always)]
        fn uniform(self, stream: &[u8], out: &mut [i32]) -> bool {
            // SAFETY: called inside `vectorize`.
            unsafe { x86::uniform(stream, out) }
        }
        #[inline(always)]
        fn short(self, stream: &[u8], out: &mut [i32]) -> bool {
            // SAFETY: called inside `vectorize`.
            unsafe { x86::short(stream, out) }
        }
    };
}
x86_token!(/** AVX2 without SHA instructions. */ plain, Avx2, Avx2, NoStreams up to 0, "avx2" "fma" "bmi1" "bmi2");
x86_token!(
    /** AVX2 for SHA-512 and Keccak, the SHA instructions for SHA-256. */
    sha, Avx2Sha, Avx2, ShaNi up to usize::MAX, "avx2" "fma" "bmi1" "bmi2" "sha"
);
