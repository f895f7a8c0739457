//! NEON (every 64-bit Arm).

use super::portable::NoStreams;
use crate::simd::{Doubles, Lanes, Pair, Simd, array, array_of, by_instructions};
use core::arch::aarch64::*;

macro_rules! neon_vector {
    ($name:ident, $raw:ident, $w:ident, $lanes:literal, $dup:ident, $add:ident, $xor:ident, $and:ident, $or:ident,
     $bic:ident, $bsl:ident, $shr:ident, $shl:ident, $sri:ident, $load:ident, $store:ident, $from8:ident, $to8:ident, $rev:ident) => {
        #[doc = concat!(stringify!($lanes), " lanes of ", stringify!($w), ".")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name($raw);
        impl Lanes<$w> for $name {
            const LANES: usize = $lanes;
            #[inline(always)]
            fn splat(w: $w) -> Self {
                // SAFETY: vector values are made inside `vectorize` alone, so the CPU has NEON.
                unsafe { $name($dup(w)) }
            }
            #[inline(always)]
            fn from_fn(f: impl FnMut(usize) -> $w) -> Self {
                let words: [$w; $lanes] = array_of(f);
                // SAFETY: see splat; the array has the vector's size.
                unsafe { $name($load(words.as_ptr())) }
            }
            #[inline(always)]
            fn get(self, lane: usize) -> $w {
                let mut words = [0; $lanes];
                // SAFETY: see splat; the array has the vector's size.
                unsafe { $store(words.as_mut_ptr(), self.0) };
                words[lane]
            }
            by_instructions!(add $add, xor $xor, and $and, or $or);
            #[inline(always)]
            fn andnot(self, o: Self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($bic(o.0, self.0)) }
            }
            #[inline(always)]
            fn rotr<const R: i32, const L: i32>(self) -> Self {
                // SAFETY: see splat. Shift left, then insert the shifted-out bits: two instructions.
                unsafe { $name($sri::<R>($shl::<L>(self.0), self.0)) }
            }
            #[inline(always)]
            fn shr<const S: i32>(self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($shr::<S>(self.0)) }
            }
            #[inline(always)]
            fn shl<const S: i32>(self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($shl::<S>(self.0)) }
            }
            #[inline(always)]
            fn ch(self, b: Self, c: Self) -> Self {
                // SAFETY: see splat.
                unsafe { $name($bsl(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            fn maj(self, b: Self, c: Self) -> Self {
                self.xor(b).ch(c, b)
            }
            #[inline(always)]
            unsafe fn load_from<const N: usize, const BE: bool>(row: impl Fn(usize) -> *const u8) -> [Self; N] {
                array!(|i| {
                    // SAFETY: the caller's promise; words may lie anywhere.
                    let word = |lane: usize| unsafe { row(lane).cast::<$w>().add(i).read_unaligned() };
                    let v = Self::from_fn(word);
                    // SAFETY: see splat.
                    if BE { unsafe { $name($from8($rev($to8(v.0)))) } } else { v }
                })
            }
            #[inline(always)]
            fn store_rows<const N: usize, const BE: bool>(
                words: &[Self; N],
                dst: &mut [u8],
                stride: usize,
                first: usize,
                rows: usize,
            ) {
                const B: usize = size_of::<$w>();
                for i in 0..N {
                    // SAFETY: see splat.
                    let v = if BE { unsafe { $name($from8($rev($to8(words[i].0)))) } } else { words[i] };
                    for lane in 0..$lanes {
                        if first + lane < rows {
                            dst[(first + lane) * stride + i * B..][..B].copy_from_slice(&v.get(lane).to_ne_bytes());
                        }
                    }
                }
            }
        }
    };
}

neon_vector!(
    U32x4,
    uint32x4_t,
    u32,
    4,
    vdupq_n_u32,
    vaddq_u32,
    veorq_u32,
    vandq_u32,
    vorrq_u32,
    vbicq_u32,
    vbslq_u32,
    vshrq_n_u32,
    vshlq_n_u32,
    vsriq_n_u32,
    vld1q_u32,
    vst1q_u32,
    vreinterpretq_u32_u8,
    vreinterpretq_u8_u32,
    vrev32q_u8
);
neon_vector!(
    U64x2,
    uint64x2_t,
    u64,
    2,
    vdupq_n_u64,
    vaddq_u64,
    veorq_u64,
    vandq_u64,
    vorrq_u64,
    vbicq_u64,
    vbslq_u64,
    vshrq_n_u64,
    vshlq_n_u64,
    vsriq_n_u64,
    vld1q_u64,
    vst1q_u64,
    vreinterpretq_u64_u8,
    vreinterpretq_u8_u64,
    vrev64q_u8
);

/// 2 doubles.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct F64x2(float64x2_t);

impl Doubles for F64x2 {
    const LANES: usize = 2;
    type Mask = uint64x2_t;
    type Vector = Self;
    #[inline(always)]
    fn splat(x: f64) -> Self {
        // SAFETY: vector values are made inside `vectorize` alone, so the CPU has NEON.
        unsafe { F64x2(vdupq_n_f64(x)) }
    }
    by_instructions!(add vaddq_f64, sub vsubq_f64, mul vmulq_f64);
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vfmaq_f64(c.0, self.0, b.0)) }
    }
    #[inline(always)]
    fn neg_mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vfmsq_f64(c.0, self.0, b.0)) }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vabsq_f64(self.0)) }
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vmaxq_f64(self.0, o.0)) }
    }
    #[inline(always)]
    fn is_zero(self) -> uint64x2_t {
        // SAFETY: see splat.
        unsafe { vceqzq_f64(self.0) }
    }
    #[inline(always)]
    fn equals(self, o: Self) -> uint64x2_t {
        // SAFETY: see splat.
        unsafe { vceqq_f64(self.0, o.0) }
    }
    #[inline(always)]
    fn replace(self, mask: uint64x2_t, x: Self) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vbslq_f64(mask, x.0, self.0)) }
    }
    #[inline(always)]
    fn clear(self, mask: uint64x2_t) -> Self {
        self.replace(mask, Self::splat(0.0))
    }
    #[inline(always)]
    fn swap(self, _: usize) -> Self {
        // SAFETY: see splat.
        unsafe { F64x2(vextq_f64::<1>(self.0, self.0)) }
    }
    #[inline(always)]
    fn load_columns(columns: &[i32], stride: usize) -> [Self; 8] {
        array!(|i| {
            let row = [f64::from(columns[i]), f64::from(columns[stride + i])];
            // SAFETY: see splat; the array has the vector's size.
            unsafe { F64x2(vld1q_f64(row.as_ptr())) }
        })
    }
    #[inline(always)]
    fn store_columns(rows: &[Self; 8], columns: &mut [i32], stride: usize) {
        for i in 0..8 {
            let mut row = [0.0; 2];
            // SAFETY: see splat; the array has the vector's size.
            unsafe { vst1q_f64(row.as_mut_ptr(), rows[i].0) };
            (columns[i], columns[stride + i]) = (row[0] as i32, row[1] as i32);
        }
    }
}

/// NEON without the SHA instructions.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Simd for Neon {
    type U32s = U32x4;
    // Not yet measured on hardware: as with AVX-512, 32 registers hold two groups.
    type Sha256Wide = Pair<U32x4>;
    type U64s = U64x2;
    type Sha512Wide = Pair<U64x2>;
    type Doubles = F64x2;
    type DoublesWide = Pair<F64x2>;
    type Streams = NoStreams;
    const STREAMS_UP_TO: usize = 0;
    type Plain = Neon;
    #[inline(always)]
    fn plain(self) -> Neon {
        self
    }
    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "neon")]
        fn shell<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        // SAFETY: `self` was made by `detect`.
        unsafe { shell(f) }
    }
}
