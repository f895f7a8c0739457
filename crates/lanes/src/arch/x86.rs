//! The macros that write the x86 vector types, and the rejection sampling that these share.

use crate::field::Q;
use crate::ntt::N;
use crate::sample::SLACK;
use core::arch::x86_64::*;
use hypergrove_taint::declassified;

/// Implements `Lanes<$w>` for a vector of `$q` 128-bit quarters.
///
/// Rows are transposed inside the quarters: register j of a 4 × 4 (or 2 × 2) block holds row j of every quarter, so the
/// lanes of quarter q are rows 4q…4q+3 (2q, 2q+1), in order.
macro_rules! x86_vector {
    ($name:ident, $raw:ident, $w:ident, $lanes:literal, $per_quarter:literal, $quarters:literal,
     set1 $set1:ident, add $add:ident, xor $xor:ident, and $and:ident, or $or:ident, andnot $andnot:ident,
     shr |$xr:ident, $nr:ident| $shr:expr, shl |$xl:ident, $nl:ident| $shl:expr,
     rotr |$x:ident, $r:ident, $l:ident| $rot:expr,
     bswap |$bx:ident| $bswap:expr,
     transpose $transpose:ident,
     registers $registers:ident $join:ident, |$sv:ident| $split:expr,
     $($more:item)*
    ) => {
        #[doc = concat!(stringify!($lanes), " lanes of ", stringify!($w), ".")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name($raw);

        impl $crate::simd::Lanes<$w> for $name {
            const LANES: usize = $lanes;
            #[inline(always)]
            fn splat(w: $w) -> Self {
                // SAFETY: vector values are made inside `vectorize` alone, so the CPU has the instructions.
                unsafe { $name($set1(w as _)) }
            }
            #[inline(always)]
            fn from_fn(f: impl FnMut(usize) -> $w) -> Self {
                let words: [$w; $lanes] = $crate::simd::array_of(f);
                // SAFETY: same size, and every bit pattern is a vector.
                unsafe { $name(core::mem::transmute::<[$w; $lanes], $raw>(words)) }
            }
            #[inline(always)]
            fn get(self, lane: usize) -> $w {
                // SAFETY: same size, and every bit pattern is an array of words.
                let words: [$w; $lanes] = unsafe { core::mem::transmute(self.0) };
                words[lane]
            }
            $crate::simd::by_instructions!(add $add, xor $xor, and $and, or $or, andnot $andnot);
            #[inline(always)]
            fn rotr<const $r: i32, const $l: i32>(self) -> Self {
                let $x = self.0;
                // SAFETY: see splat.
                unsafe { $name($rot) }
            }
            #[inline(always)]
            fn shr<const $nr: i32>(self) -> Self {
                let $xr = self.0;
                // SAFETY: see splat.
                unsafe { $name($shr) }
            }
            #[inline(always)]
            fn shl<const $nl: i32>(self) -> Self {
                let $xl = self.0;
                // SAFETY: see splat.
                unsafe { $name($shl) }
            }
            #[inline(always)]
            unsafe fn load_from<const N: usize, const BE: bool>(row: impl Fn(usize) -> *const u8) -> [Self; N] {
                const { assert!(N >= $per_quarter && N <= 11 * $per_quarter) };
                let mut words = [Self::splat(0); N];
                macro_rules! chunk { ($chunk:literal) => {
                    if const { $chunk * $per_quarter < N } {
                        let at = const { $crate::arch::x86::chunk_start($chunk, $per_quarter, N) };
                        macro_rules! quarter { ($e:expr) => { _mm_loadu_si128(row($e).add(at * size_of::<$w>()).cast()) } }
                        // 16 bytes at word `at` of each row, as the caller promises.
                        let mut registers: [$raw; $per_quarter] = $registers!($join, quarter);
                        if BE {
                            let mut i = 0;
                            while i < $per_quarter {
                                let $bx = registers[i];
                                // SAFETY: see splat.
                                registers[i] = unsafe { $bswap };
                                i += 1;
                            }
                        }
                        // SAFETY: see splat.
                        let block = unsafe { $transpose(registers) };
                        let mut i = 0;
                        while i < $per_quarter {
                            words[at + i] = $name(block[i]);
                            i += 1;
                        }
                    }
                } }
                $crate::arch::x86::each_chunk!(chunk);
                words
            }
            #[inline(always)]
            fn store_rows<const N: usize, const BE: bool>(words: &[Self; N], dst: &mut [u8], stride: usize, first: usize, rows: usize) {
                const { assert!(N >= $per_quarter && N <= 11 * $per_quarter) };
                if first >= rows {
                    return;
                }
                assert!($crate::simd::holds(dst.len(), rows - 1, stride, N * size_of::<$w>()));
                let full = rows - first >= $lanes;
                macro_rules! chunk { ($chunk:literal) => {
                    if const { $chunk * $per_quarter < N } {
                        let at = const { $crate::arch::x86::chunk_start($chunk, $per_quarter, N) };
                        // SAFETY: see splat.
                        let block = unsafe { $transpose($crate::simd::array!(|i| words[at + i].0)) };
                        let mut j = 0;
                        while j < $per_quarter {
                            let $bx = block[j];
                            // SAFETY: see splat.
                            let $sv = if BE { unsafe { $bswap } } else { $bx };
                            // SAFETY: see splat.
                            let quarters: [__m128i; $quarters] = unsafe { $split };
                            let mut q = 0;
                            while q < $quarters {
                                let row = first + q * $per_quarter + j;
                                if full || row < rows {
                                    // SAFETY: row < rows, and the assertion above has 16 bytes at word `at` of it.
                                    unsafe {
                                        _mm_storeu_si128(dst.as_mut_ptr().add(row * stride + at * size_of::<$w>()).cast(), quarters[q]);
                                    }
                                }
                                q += 1;
                            }
                            j += 1;
                        }
                    }
                } }
                $crate::arch::x86::each_chunk!(chunk);
            }
            $($more)*
        }
    };
}
pub(super) use x86_vector;

/// Calls a macro for each chunk of words, for up to 22 words in twos. The calls are written out: whether the compiler unrolls a loop of them
/// depends on its level, and an array that is not indexed by constants stays in memory.
macro_rules! each_chunk {
    ($m:ident) => {
        $crate::simd::each!($m: 0 1 2 3 4 5 6 7 8 9 10);
    };
}
pub(super) use each_chunk;

/// Where a chunk starts. The last chunk overlaps the one before it if N is no multiple of a chunk's words.
pub(super) const fn chunk_start(chunk: usize, words: usize, n: usize) -> usize {
    if (chunk + 1) * words <= n { chunk * words } else { n - words }
}

/// For every possible length, the chunks are its words, without a gap, and none goes beyond.
const _: () = {
    let mut words = 2;
    while words <= 4 {
        let mut n = words;
        while n <= 11 * words {
            let (mut chunk, mut end) = (0, 0);
            while chunk * words < n {
                let start = chunk_start(chunk, words, n);
                assert!(start <= end && start + words <= n);
                (chunk, end) = (chunk + 1, start + words);
            }
            assert!(end == n);
            n += 1;
        }
        words += 2;
    }
};

/// Register j holds rows j, j + 4, … (j, j + 2, … for double words), one row in each quarter.
macro_rules! four_registers {
    ($join:ident, $row:ident) => {
        [$join!($row, 0, 4), $join!($row, 1, 4), $join!($row, 2, 4), $join!($row, 3, 4)]
    };
}
pub(super) use four_registers;
macro_rules! two_registers {
    ($join:ident, $row:ident) => {
        [$join!($row, 0, 2), $join!($row, 1, 2)]
    };
}
pub(super) use two_registers;

/// Transposes 4 × 4 words or 2 × 2 double words inside each quarter. This is its own inverse.
macro_rules! x86_transpose {
    ($t32:ident, $t64:ident, $raw:ident, $lo32:ident, $hi32:ident, $lo64:ident, $hi64:ident) => {
        #[inline(always)]
        pub(super) unsafe fn $t32(r: [$raw; 4]) -> [$raw; 4] {
            // SAFETY: called inside `vectorize` alone.
            unsafe {
                let (a, b) = ($lo32(r[0], r[1]), $lo32(r[2], r[3]));
                let (c, d) = ($hi32(r[0], r[1]), $hi32(r[2], r[3]));
                [$lo64(a, b), $hi64(a, b), $lo64(c, d), $hi64(c, d)]
            }
        }
        #[inline(always)]
        unsafe fn $t64(r: [$raw; 2]) -> [$raw; 2] {
            // SAFETY: called inside `vectorize` alone.
            unsafe { [$lo64(r[0], r[1]), $hi64(r[0], r[1])] }
        }
    };
}
pub(super) use x86_transpose;

/// Implements `Doubles` for a vector of `$lanes` doubles.
macro_rules! x86_doubles {
    ($name:ident, $raw:ident, $lanes:literal, $mask:ident, set1 $set1:ident, add $add:ident, sub $sub:ident, mul $mul:ident,
     fma $fma:ident, fnma $fnma:ident, max $max:ident, abs |$ax:ident| $abs:expr, is_zero |$zx:ident| $zero:expr,
     equals |$ex:ident, $eo:ident| $equals:expr, replace |$rx:ident, $rm:ident, $ro:ident| $replace:expr,
     clear |$cx:ident, $cm:ident| $clear:expr, swap |$px:ident, $pd:ident| $swap:expr,
     from_columns $from:ident, to_columns $to:ident
    ) => {
        #[doc = concat!(stringify!($lanes), " doubles.")]
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name($raw);

        impl $crate::simd::Doubles for $name {
            const LANES: usize = $lanes;
            type Mask = $mask;
            type Vector = Self;
            #[inline(always)]
            fn splat(x: f64) -> Self {
                // SAFETY: vector values are made inside `vectorize` alone, so the CPU has the instructions.
                unsafe { $name($set1(x)) }
            }
            $crate::simd::by_instructions!(add $add, sub $sub, mul $mul, max $max);
            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($fma(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            fn neg_mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($fnma(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let $ax = self.0;
                // SAFETY: see splat.
                unsafe { $name($abs) }
            }
            #[inline(always)]
            fn is_zero(self) -> $mask {
                let $zx = self.0;
                // SAFETY: see splat.
                unsafe { $zero }
            }
            #[inline(always)]
            fn equals(self, o: Self) -> $mask {
                let ($ex, $eo) = (self.0, o.0);
                // SAFETY: see splat.
                unsafe { $equals }
            }
            #[inline(always)]
            fn replace(self, $rm: $mask, x: Self) -> Self {
                let ($rx, $ro) = (self.0, x.0);
                // SAFETY: see splat.
                unsafe { $name($replace) }
            }
            #[inline(always)]
            fn clear(self, $cm: $mask) -> Self {
                let $cx = self.0;
                // SAFETY: see splat.
                unsafe { $name($clear) }
            }
            #[inline(always)]
            fn swap(self, $pd: usize) -> Self {
                let $px = self.0;
                // SAFETY: see splat.
                unsafe { $name($swap) }
            }
            #[inline(always)]
            fn load_columns(columns: &[i32], stride: usize) -> [Self; 8] {
                assert!($crate::simd::holds(columns.len(), $lanes - 1, stride, 8));
                // SAFETY: see splat; there are eight numbers at each multiple of the stride.
                let rows = unsafe { $from(columns.as_ptr(), stride) };
                $crate::simd::array!(|i| $name(rows[i]))
            }
            #[inline(always)]
            fn store_columns(rows: &[Self; 8], columns: &mut [i32], stride: usize) {
                assert!($crate::simd::holds(columns.len(), $lanes - 1, stride, 8));
                let rows = $crate::simd::array!(|i| rows[i].0);
                // SAFETY: see splat; there are eight numbers at each multiple of the stride.
                unsafe { $to(rows, columns.as_mut_ptr(), stride) }
            }
        }
    };
}
pub(super) use x86_doubles;

/// Makes a token with the features, the SHA streams, and the vectors that the module's own macro `vectors` names.
macro_rules! x86_token {
    ($(#[$doc:meta])* $module:ident, $name:ident, $plain:ident, $streams:ident up to $up_to:expr, $($feature:tt)+) => {
        // A module of its own is compiled concurrently with the others.
        mod $module {
            use super::*;
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(crate) struct $name(pub(super) ());
            impl Simd for $name {
                vectors!();
                type Streams = $streams;
                const STREAMS_UP_TO: usize = $up_to;
                type Plain = $plain;
                #[inline(always)]
                fn plain(self) -> $plain {
                    $plain(())
                }
                fn detect() -> Option<Self> {
                    ($(is_x86_feature_detected!($feature))&&+).then_some($name(()))
                }
                #[inline(always)]
                fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
                    #[target_feature($(enable = $feature),+)]
                    fn shell<R>(f: impl FnOnce() -> R) -> R {
                        f()
                    }
                    // SAFETY: `self` was made by `detect`.
                    unsafe { shell(f) }
                }
            }
        }
        pub(crate) use $module::$name;
    };
}
pub(super) use x86_token;

/// For each byte, the places of its set bits, and how many there are. By these, a byte's accepted candidates move to the front.
struct Accepted {
    places: [[u8; 8]; 256],
    count: [u8; 256],
}

static ACCEPTED: Accepted = {
    let mut accepted = Accepted { places: [[0; 8]; 256], count: [0; 256] };
    let mut bits = 0;
    while bits < 256 {
        let mut place = 0;
        while place < 8 {
            if bits >> place & 1 == 1 {
                accepted.places[bits][accepted.count[bits] as usize] = place;
                accepted.count[bits] += 1;
            }
            place += 1;
        }
        bits += 1;
    }
    accepted
};

/// [`crate::sample::uniform`] with eight candidates a step.
///
/// # Safety
///
/// Called inside `vectorize` alone, of a set that has AVX2.
#[inline(always)]
pub(super) unsafe fn uniform(stream: &[u8], out: &mut [i32]) -> bool {
    assert!(out.len() >= N + SLACK);
    let mut count = 0;
    for bytes in stream.as_chunks::<24>().0 {
        // SAFETY: 16 of 24 bytes are read from the first and from the ninth on; eight numbers are written at count < N.
        unsafe {
            // Each half has four candidates: bytes 0 to 11, and bytes 12 to 23 behind four others.
            let halves = _mm256_loadu2_m128i(bytes.as_ptr().add(8).cast(), bytes.as_ptr().cast());
            let spread = _mm256_setr_epi8(
                0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, //
                4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1,
            );
            let x = _mm256_and_si256(_mm256_shuffle_epi8(halves, spread), _mm256_set1_epi32(0x7f_ffff));
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(Q as i32), x);
            let bits = _mm256_movemask_ps(_mm256_castsi256_ps(below)) as u8 as usize;
            let places = _mm256_cvtepu8_epi32(_mm_loadl_epi64(ACCEPTED.places[bits].as_ptr().cast()));
            _mm256_storeu_si256(out.as_mut_ptr().add(count).cast(), _mm256_permutevar8x32_epi32(x, places));
            count += usize::from(ACCEPTED.count[bits]);
        }
        if count >= N {
            return true;
        }
    }
    false
}

/// 2 − (d mod 5) of sixteen nibbles d, the low one of a byte first, and the mask of those that are below 15.
///
/// # Safety
///
/// Called inside `vectorize` alone, of a set that has AVX2.
#[inline(always)]
pub(super) unsafe fn sixteen_nibbles(bytes: &[u8; 8]) -> (__m128i, u16) {
    // SAFETY: eight bytes are read.
    unsafe {
        let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
        let low = |x| _mm_and_si128(x, _mm_set1_epi8(15));
        let nibbles = _mm_unpacklo_epi8(low(bytes), low(_mm_srli_epi16::<4>(bytes)));
        let small = _mm_setr_epi8(2, 1, 0, -1, -2, 2, 1, 0, -1, -2, 2, 1, 0, -1, -2, 0);
        let rejected = _mm_movemask_epi8(_mm_cmpeq_epi8(nibbles, _mm_set1_epi8(15)));
        // The rejected nibbles reveal nothing about those that are kept.
        (_mm_shuffle_epi8(small, nibbles), declassified(!rejected as u16))
    }
}

/// [`crate::sample::short`] with sixteen nibbles a step. Only the rejected nibbles decide at which places the table is read.
///
/// # Safety
///
/// Called inside `vectorize` alone, of a set that has AVX2.
#[inline(always)]
pub(super) unsafe fn short(stream: &[u8], out: &mut [i32]) -> bool {
    assert!(out.len() >= N + SLACK);
    let mut count = 0;
    for bytes in stream.as_chunks::<8>().0 {
        // SAFETY: as the caller promises.
        let (mut small, bits) = unsafe { sixteen_nibbles(bytes) };
        for bits in bits.to_le_bytes().map(usize::from) {
            // SAFETY: eight numbers are written at count < N.
            unsafe {
                let kept = _mm_shuffle_epi8(small, _mm_loadl_epi64(ACCEPTED.places[bits].as_ptr().cast()));
                _mm256_storeu_si256(out.as_mut_ptr().add(count).cast(), _mm256_cvtepi8_epi32(kept));
                small = _mm_srli_si128::<8>(small);
            }
            count += usize::from(ACCEPTED.count[bits]);
            if count >= N {
                return true;
            }
        }
    }
    false
}
