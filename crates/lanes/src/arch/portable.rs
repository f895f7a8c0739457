//! One lane of plain Rust. This set runs everywhere, and is the reference for the other sets.

use crate::AdrsWords;
use crate::simd::{Doubles, Lanes, Sha256Streams, Simd, array};
use core::ops::Range;

macro_rules! scalar {
    ($w:ty) => {
        impl Lanes<$w> for $w {
            const LANES: usize = 1;
            #[inline(always)]
            fn splat(w: $w) -> Self {
                w
            }
            #[inline(always)]
            fn from_fn(mut f: impl FnMut(usize) -> $w) -> Self {
                f(0)
            }
            #[inline(always)]
            fn get(self, _: usize) -> $w {
                self
            }
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self.wrapping_add(o)
            }
            #[inline(always)]
            fn xor(self, o: Self) -> Self {
                self ^ o
            }
            #[inline(always)]
            fn and(self, o: Self) -> Self {
                self & o
            }
            #[inline(always)]
            fn or(self, o: Self) -> Self {
                self | o
            }
            #[inline(always)]
            fn andnot(self, o: Self) -> Self {
                !self & o
            }
            #[inline(always)]
            fn rotr<const R: i32, const L: i32>(self) -> Self {
                self.rotate_right(R as u32)
            }
            #[inline(always)]
            fn shr<const S: i32>(self) -> Self {
                self >> S
            }
            #[inline(always)]
            fn shl<const S: i32>(self) -> Self {
                self << S
            }
            #[inline(always)]
            unsafe fn load_from<const N: usize, const BE: bool>(row: impl Fn(usize) -> *const u8) -> [Self; N] {
                // SAFETY: the caller's promise.
                let words: [[u8; size_of::<$w>()]; N] = unsafe { row(0).cast::<[_; N]>().read() };
                array!(|i| if BE { <$w>::from_be_bytes(words[i]) } else { <$w>::from_ne_bytes(words[i]) })
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
                if first >= rows {
                    return;
                }
                let row = &mut dst[first * stride..][..N * B];
                for (bytes, word) in row.chunks_exact_mut(B).zip(words) {
                    bytes.copy_from_slice(&if BE { word.to_be_bytes() } else { word.to_ne_bytes() });
                }
            }
        }
    };
}
scalar!(u32);
scalar!(u64);

impl Doubles for f64 {
    const LANES: usize = 1;
    type Mask = bool;
    type Vector = Self;
    #[inline(always)]
    fn splat(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self + o
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        self - o
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        self * o
    }
    // `f64::mul_add` is a call where the CPU has no such instruction.
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        self * b + c
    }
    #[inline(always)]
    fn neg_mul_add(self, b: Self, c: Self) -> Self {
        c - self * b
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f64::abs(self)
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        // This is one instruction; `f64::max` also looks for NaN.
        if self > o { self } else { o }
    }
    #[inline(always)]
    fn is_zero(self) -> bool {
        self == 0.0
    }
    #[inline(always)]
    fn equals(self, o: Self) -> bool {
        self == o
    }
    #[inline(always)]
    fn replace(self, mask: bool, x: Self) -> Self {
        // There is no branch, since the mask is secret.
        let keep = u64::from(mask).wrapping_sub(1);
        f64::from_bits(self.to_bits() & keep | x.to_bits() & !keep)
    }
    #[inline(always)]
    fn clear(self, mask: bool) -> Self {
        self.replace(mask, 0.0)
    }
    #[inline(always)]
    fn swap(self, _: usize) -> Self {
        self
    }
    #[inline(always)]
    fn load_columns(columns: &[i32], _: usize) -> [Self; 8] {
        array!(|i| columns[i].into())
    }
    #[inline(always)]
    fn store_columns(rows: &[Self; 8], columns: &mut [i32], _: usize) {
        for i in 0..8 {
            columns[i] = rows[i] as i32;
        }
    }
}

/// The token of every CPU.
#[derive(Clone, Copy)]
pub(crate) struct Portable(());

impl Simd for Portable {
    type U32s = u32;
    type Sha256Wide = u32;
    type U64s = u64;
    type Sha512Wide = u64;
    type Doubles = f64;
    type DoublesWide = f64;
    type Streams = NoStreams;
    const STREAMS_UP_TO: usize = 0;
    type Plain = Portable;
    #[inline(always)]
    fn plain(self) -> Portable {
        self
    }
    fn detect() -> Option<Self> {
        Some(Portable(()))
    }
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// The streams of CPUs without SHA-256 instructions, which nothing calls.
#[derive(Clone, Copy)]
pub(crate) struct NoStreams;

impl Sha256Streams for NoStreams {
    fn vectorize<R>(_: impl FnOnce() -> R) -> R {
        unreachable!("up to 0 jobs")
    }
    type State = ();
    fn load(_: &[u32; 8]) {}
    fn store(_: ()) -> [u32; 8] {
        unreachable!("up to 0 jobs")
    }
    fn compress<const S: usize>(_: &mut [(); S], _: [&[u8; 64]; S]) {
        unreachable!("up to 0 jobs")
    }
    fn chain<const S: usize, const N: usize>(
        _: [(); S],
        _: [&AdrsWords; S],
        _: &mut [[u8; N]; S],
        _: Range<u32>,
        _: Option<[Range<u32>; S]>,
        _: impl FnMut(u32, &[[u8; N]; S]),
    ) {
        unreachable!("up to 0 jobs")
    }
    fn h<const S: usize>(_: [(); S], _: [&AdrsWords; S], _: [&[u8; 32]; S]) -> [[u8; 16]; S] {
        unreachable!("up to 0 jobs")
    }
}
