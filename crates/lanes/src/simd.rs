//! The operations on vectors that the hash families need, transposed loads and stores among them.

use crate::sha2::blocks512;
use crate::{AdrsWords, sample};
use core::marker::PhantomData;
use core::ops::Range;

#[cfg(test)]
mod tests;

/// The array [f(0), f(1), …]. `core::array::from_fn` and `map` may leave `f` a function of its own, which then lacks the shell's
/// instructions: a single F took twice as long with them.
#[inline(always)]
pub(crate) fn array_of<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut out = [f(0); N];
    let mut i = 1;
    while i < N {
        out[i] = f(i);
        i += 1;
    }
    out
}

/// [`array_of`] with a closure that is always inlined.
macro_rules! array {
    (|$i:ident| $of:expr) => {
        $crate::simd::array_of(
            #[inline(always)]
            |$i| $of,
        )
    };
}
pub(crate) use array;

/// [`Simd::vectorize`] with a closure that is always inlined.
macro_rules! vectorize {
    ($token:expr, || $body:expr) => {
        $token.vectorize(
            #[inline(always)]
            || $body,
        )
    };
}
pub(crate) use vectorize;

/// Calls a macro for each of these numbers. The calls are written out, since an array that is not indexed by constants stays in memory.
macro_rules! each {
    ($m:ident: $($i:literal)*) => { $( $m!($i); )* };
}
pub(crate) use each;

/// Whether rows 0 to `last`, `stride` items apart and `items` long, lie within `len` items. They do not if the product exceeds a `usize`: if it
/// wrapped instead, loads and stores that rely on it would leave their slices.
#[inline(always)]
pub(crate) fn holds(len: usize, last: usize, stride: usize, items: usize) -> bool {
    last.checked_mul(stride).and_then(|start| start.checked_add(items)).is_some_and(|end| end <= len)
}

/// Lanes of the widest vector.
pub(crate) const MOST_LANES: usize = 32;

/// The rows of a group's lanes. Short groups repeat their last row.
pub(crate) struct GroupRows<'a> {
    starts: [*const u8; MOST_LANES],
    bytes: usize,
    rows: PhantomData<&'a [u8]>,
}

impl<'a> GroupRows<'a> {
    /// Rows `first` to `rows` − 1, at most `lanes`, of `bytes` bytes each and `stride` bytes apart.
    #[inline(always)]
    pub(crate) fn new(lanes: usize, src: &'a [u8], bytes: usize, stride: usize, first: usize, rows: usize) -> Self {
        assert!(first < rows && holds(src.len(), rows - 1, stride, bytes));
        // SAFETY: rows `first` to `rows` − 1 begin within the slice, as asserted, and no pointer goes beyond the last one.
        let mut row = unsafe { src.as_ptr().add(first * stride) };
        let mut starts = [row; MOST_LANES];
        for lane in 1..lanes {
            if first + lane < rows {
                // SAFETY: see above.
                row = unsafe { row.add(stride) };
            }
            starts[lane] = row;
        }
        GroupRows { starts, bytes, rows: PhantomData }
    }
    /// A lane's row.
    pub(crate) fn row(&self, lane: usize) -> &'a [u8] {
        // SAFETY: so many bytes lie there, as `new` asserted, in a slice that `self` borrows.
        unsafe { core::slice::from_raw_parts(self.starts[lane], self.bytes) }
    }
    /// N words from byte `at` of each row on.
    #[inline(always)]
    pub(crate) fn load<W: Copy, V: Lanes<W>, const N: usize, const BE: bool>(&self, at: usize) -> [V; N] {
        assert!(holds(self.bytes, 1, at, N * size_of::<W>()));
        // SAFETY: N words lie there, as asserted, in each of the rows that the slice holds.
        unsafe {
            V::load_from::<N, BE>(
                #[inline(always)]
                |lane| self.starts[lane].add(at),
            )
        }
    }
}

/// A vector of `LANES` words. Values exist only inside [`Simd::vectorize`], which proves that the CPU has the
/// instructions; that is why nothing outside this crate can name one.
pub(crate) trait Lanes<W: Copy>: Copy {
    const LANES: usize;
    fn splat(w: W) -> Self;
    /// Lane i is f(i). Slow: for set-up, not for rounds.
    fn from_fn(f: impl FnMut(usize) -> W) -> Self;
    fn get(self, lane: usize) -> W;
    fn add(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    /// `!self & o`
    fn andnot(self, o: Self) -> Self;
    /// R + L is the word's width; stable Rust has no `{BITS - R}`.
    fn rotr<const R: i32, const L: i32>(self) -> Self;
    fn shr<const S: i32>(self) -> Self;
    fn shl<const S: i32>(self) -> Self;

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self.xor(b).xor(c)
    }
    /// Bits of `b` where self is one, of `c` where it is zero.
    #[inline(always)]
    fn ch(self, b: Self, c: Self) -> Self {
        c.xor(self.and(b.xor(c)))
    }
    #[inline(always)]
    fn maj(self, b: Self, c: Self) -> Self {
        b.xor(self.xor(b).and(b.xor(c)))
    }
    /// Keccak's χ: `self ^ (!b & c)`
    #[inline(always)]
    fn chi(self, b: Self, c: Self) -> Self {
        self.xor(b.andnot(c))
    }

    /// Word i of lane j is word i at `row(j)`; words are big-endian (BE) or the machine's own.
    ///
    /// # Safety
    ///
    /// N words lie at every lane's row.
    unsafe fn load_from<const N: usize, const BE: bool>(row: impl Fn(usize) -> *const u8) -> [Self; N];
    /// Loads N words of row min(first + j, rows − 1) into each lane j. Rows are `stride` bytes apart. So short groups repeat their last row.
    #[inline(always)]
    fn load_rows<const N: usize, const BE: bool>(src: &[u8], stride: usize, first: usize, rows: usize) -> [Self; N] {
        let row_bytes = N * size_of::<W>();
        if rows.saturating_sub(first) >= Self::LANES {
            assert!(holds(src.len(), rows - 1, stride, row_bytes));
            // Full groups, the usual ones, load from one base at constant distances.
            // SAFETY: N words of each row lie within the slice, as asserted.
            unsafe {
                let base = src.as_ptr().add(first * stride);
                Self::load_from::<N, BE>(
                    #[inline(always)]
                    |lane| base.add(lane * stride),
                )
            }
        } else {
            GroupRows::new(Self::LANES, src, row_bytes, stride, first, rows).load::<W, Self, N, BE>(0)
        }
    }
    /// The inverse of `load_rows`, for rows below `rows` alone.
    fn store_rows<const N: usize, const BE: bool>(
        words: &[Self; N],
        dst: &mut [u8],
        stride: usize,
        first: usize,
        rows: usize,
    );
}

/// A vector of two neighbouring words of each of B blocks of one message.
#[cfg(target_arch = "x86_64")]
pub(crate) trait WordPairs<const B: usize>: Lanes<u64> {
    /// The big-endian words 2i and 2i + 1 of each block.
    fn load_pairs(blocks: &[[u8; 128]; B], i: usize) -> Self;
    /// The second words of `self` and the first words of `next`.
    fn straddle(self, next: Self) -> Self;
    /// Writes the pairs, and adds `k` to each.
    fn store_sums(self, k: &[u64; 2], sums: &mut [[u64; 2]; B]);
}

/// A vector of `LANES` doubles that hold integers. As with [`Lanes`], values exist only inside [`Simd::vectorize`].
pub(crate) trait Doubles: Copy {
    const LANES: usize;
    /// A choice of lanes.
    type Mask: Copy;
    /// The vector that a value consists of: itself, or a pair's half.
    type Vector: Doubles;
    fn splat(x: f64) -> Self;
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// `self * b + c`, with one rounding or two: all results in this crate are exact either way.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `c - self * b`
    fn neg_mul_add(self, b: Self, c: Self) -> Self;
    fn abs(self) -> Self;
    /// The larger number, if at most one of the two is negative.
    fn max(self, o: Self) -> Self;
    /// The lanes that are 0 or −0.
    fn is_zero(self) -> Self::Mask;
    /// The lanes that equal `o`, which must not be 0.
    fn equals(self, o: Self) -> Self::Mask;
    /// `x` in the lanes of `mask`, self elsewhere.
    fn replace(self, mask: Self::Mask, x: Self) -> Self;
    /// 0 in the lanes of `mask`, self elsewhere.
    fn clear(self, mask: Self::Mask) -> Self;
    /// Lane i is lane i xor `distance`, a power of two below `LANES`.
    fn swap(self, distance: usize) -> Self;
    /// Eight rows: lane j of row i is `columns[j * stride + i]`.
    fn load_columns(columns: &[i32], stride: usize) -> [Self; 8];
    /// The inverse of `load_columns`, of numbers that fit.
    fn store_columns(rows: &[Self; 8], columns: &mut [i32], stride: usize);

    /// The vectors of rows, one after the other.
    #[inline(always)]
    fn vectors_mut(rows: &mut [Self]) -> &mut [Self::Vector] {
        let vectors = rows.len() * (Self::LANES / Self::Vector::LANES);
        // SAFETY: implementors are adjacent vectors.
        unsafe { core::slice::from_raw_parts_mut(rows.as_mut_ptr().cast(), vectors) }
    }
    /// A slice as vectors. Panics unless the slice begins and ends at a vector, as slices of [`crate::Rows`] do.
    #[inline(always)]
    fn of(values: &[f64]) -> &[Self] {
        // SAFETY: implementors are adjacent f64s, of which every bit pattern is a value.
        let (before, vectors, after) = unsafe { values.align_to() };
        assert!(before.is_empty() && after.is_empty(), "rows of whole, aligned vectors");
        vectors
    }
    /// A slice as vectors that can be written. Panics as [`of`](Self::of) does.
    #[inline(always)]
    fn of_mut(values: &mut [f64]) -> &mut [Self] {
        // SAFETY: see `of`; vectors are written as a whole.
        let (before, vectors, after) = unsafe { values.align_to_mut() };
        assert!(before.is_empty() && after.is_empty(), "rows of whole, aligned vectors");
        vectors
    }
}

/// A token: its value proves that the CPU has the instruction set's features.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Vectors for SHA-256: of one group, and those that are fastest for many jobs.
    type U32s: Lanes<u32>;
    type Sha256Wide: Lanes<u32>;
    /// Vectors for SHA-512, likewise. Keccak always takes one group, whose 25 words fill the registers.
    type U64s: Lanes<u64>;
    type Sha512Wide: Lanes<u64>;
    /// Vectors for the field of lattice arithmetic: for one instance alone, and those that are fastest for many.
    type Doubles: Doubles;
    type DoublesWide: Doubles;
    /// SHA-256 instructions, which beat the vectors for up to `STREAMS_UP_TO` jobs: 0 where there are none.
    type Streams: Sha256Streams;
    const STREAMS_UP_TO: usize;
    /// The token without SHA instructions: code that does not use them is compiled for that token alone.
    type Plain: Simd;
    fn detect() -> Option<Self>;
    fn plain(self) -> Self::Plain;
    /// The one shell with `#[target_feature]` of each instruction set; everything inside is `#[inline(always)]`.
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R;
    /// SHA-512's compressions of one message's blocks.
    #[inline(always)]
    fn sha512_blocks(self, state: &mut [u64; 8], blocks: &[[u8; 128]]) {
        vectorize!(self, || blocks512(state, blocks));
    }
    /// See [`sample::uniform`]; called inside `vectorize`.
    #[inline(always)]
    fn uniform(self, stream: &[u8], out: &mut [i32]) -> bool {
        sample::uniform(stream, out)
    }
    /// See [`sample::short`]; called inside `vectorize`.
    #[inline(always)]
    fn short(self, stream: &[u8], out: &mut [i32]) -> bool {
        sample::short(stream, out)
    }
}

/// SHA-256 by dedicated instructions, S independent streams interleaved. Addresses are whole: the implementation makes ADRS^c.
pub(crate) trait Sha256Streams: Copy {
    /// Runs `f` in a shell of its own, without AVX. The SHA instructions have no VEX form: on Intel each takes thousands of cycles while the upper
    /// halves of vector registers are in use (0.2 against 50 M chain steps a second).
    fn vectorize<R>(f: impl FnOnce() -> R) -> R;
    /// A state as the instructions want it.
    type State: Copy;
    fn load(words: &[u32; 8]) -> Self::State;
    fn store(state: Self::State) -> [u32; 8];
    /// Compresses one block for each stream.
    fn compress<const S: usize>(states: &mut [Self::State; S], blocks: [&[u8; 64]; S]);
    /// Computes F along S chains. Stream i takes those of `steps` that lie in `live[i]`. Each step is added to the address's last word. `seen` gets
    /// the values after each step.
    fn chain<const S: usize, const N: usize>(
        mid: [Self::State; S],
        adrs: [&AdrsWords; S],
        values: &mut [[u8; N]; S],
        steps: Range<u32>,
        live: Option<[Range<u32>; S]>,
        seen: impl FnMut(u32, &[[u8; N]; S]),
    );
    /// Computes H for n = 16, which takes one block.
    fn h<const S: usize>(mid: [Self::State; S], adrs: [&AdrsWords; S], nodes: [&[u8; 32]; S]) -> [[u8; 16]; S];
}

/// Implements operations on two vectors, each by the CPU's instruction for it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! by_instructions {
    ($($name:ident $instruction:ident),*) => {$(
        #[inline(always)]
        fn $name(self, o: Self) -> Self {
            // SAFETY: vector values are made inside `vectorize` alone, so the CPU has the instruction.
            unsafe { Self($instruction(self.0, o.0)) }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use by_instructions;

/// Two vectors as one: interleaving by type. Two independent streams hide the latency of rotations.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Pair<V>(V, V);

/// Implements operations on vectors by those on both halves.
macro_rules! by_halves {
    ($($name:ident($($o:ident),*);)*) => {$(
        #[inline(always)]
        fn $name(self, $($o: Self),*) -> Self {
            Pair(self.0.$name($($o.0),*), self.1.$name($($o.1),*))
        }
    )*};
}

impl<W: Copy, V: Lanes<W>> Lanes<W> for Pair<V> {
    const LANES: usize = 2 * V::LANES;
    by_halves! {
        add(o);
        xor(o);
        and(o);
        or(o);
        andnot(o);
        xor3(b, c);
        ch(b, c);
        maj(b, c);
        chi(b, c);
    }
    #[inline(always)]
    fn splat(w: W) -> Self {
        Pair(V::splat(w), V::splat(w))
    }
    #[inline(always)]
    fn from_fn(mut f: impl FnMut(usize) -> W) -> Self {
        let low = V::from_fn(&mut f);
        Pair(
            low,
            V::from_fn(
                #[inline(always)]
                |lane| f(V::LANES + lane),
            ),
        )
    }
    #[inline(always)]
    fn get(self, lane: usize) -> W {
        if lane < V::LANES { self.0.get(lane) } else { self.1.get(lane - V::LANES) }
    }
    #[inline(always)]
    fn rotr<const R: i32, const L: i32>(self) -> Self {
        Pair(self.0.rotr::<R, L>(), self.1.rotr::<R, L>())
    }
    #[inline(always)]
    fn shr<const S: i32>(self) -> Self {
        Pair(self.0.shr::<S>(), self.1.shr::<S>())
    }
    #[inline(always)]
    fn shl<const S: i32>(self) -> Self {
        Pair(self.0.shl::<S>(), self.1.shl::<S>())
    }
    #[inline(always)]
    unsafe fn load_from<const N: usize, const BE: bool>(row: impl Fn(usize) -> *const u8) -> [Self; N] {
        // SAFETY: the caller's promise for both halves of the lanes.
        let (low, high) = unsafe {
            (
                V::load_from::<N, BE>(&row),
                V::load_from::<N, BE>(
                    #[inline(always)]
                    |lane| row(V::LANES + lane),
                ),
            )
        };
        array!(|i| Pair(low[i], high[i]))
    }
    #[inline(always)]
    fn store_rows<const N: usize, const BE: bool>(
        words: &[Self; N],
        dst: &mut [u8],
        stride: usize,
        first: usize,
        rows: usize,
    ) {
        V::store_rows::<N, BE>(&array!(|i| words[i].0), dst, stride, first, rows);
        V::store_rows::<N, BE>(&array!(|i| words[i].1), dst, stride, first + V::LANES, rows);
    }
}

impl<V: Doubles> Doubles for Pair<V> {
    const LANES: usize = 2 * V::LANES;
    type Mask = (V::Mask, V::Mask);
    type Vector = V::Vector;
    by_halves! {
        add(o);
        sub(o);
        mul(o);
        mul_add(b, c);
        neg_mul_add(b, c);
        abs();
        max(o);
    }
    #[inline(always)]
    fn splat(x: f64) -> Self {
        Pair(V::splat(x), V::splat(x))
    }
    #[inline(always)]
    fn is_zero(self) -> Self::Mask {
        (self.0.is_zero(), self.1.is_zero())
    }
    #[inline(always)]
    fn equals(self, o: Self) -> Self::Mask {
        (self.0.equals(o.0), self.1.equals(o.1))
    }
    #[inline(always)]
    fn replace(self, mask: Self::Mask, x: Self) -> Self {
        Pair(self.0.replace(mask.0, x.0), self.1.replace(mask.1, x.1))
    }
    #[inline(always)]
    fn clear(self, mask: Self::Mask) -> Self {
        Pair(self.0.clear(mask.0), self.1.clear(mask.1))
    }
    #[inline(always)]
    fn swap(self, distance: usize) -> Self {
        match distance {
            _ if distance == V::LANES => Pair(self.1, self.0),
            _ => Pair(self.0.swap(distance), self.1.swap(distance)),
        }
    }
    #[inline(always)]
    fn load_columns(columns: &[i32], stride: usize) -> [Self; 8] {
        let low = V::load_columns(columns, stride);
        let high = V::load_columns(&columns[V::LANES * stride..], stride);
        array!(|i| Pair(low[i], high[i]))
    }
    #[inline(always)]
    fn store_columns(rows: &[Self; 8], columns: &mut [i32], stride: usize) {
        let (low, high) = columns.split_at_mut(V::LANES * stride);
        V::store_columns(&array!(|i| rows[i].0), low, stride);
        V::store_columns(&array!(|i| rows[i].1), high, stride);
    }
}
