//! Tests every load and store of rows, over all small sizes.
//!
//! These sizes suffice, because a load or a store touches the words of rows `first` to `rows` − 1 and nothing else. `holds` alone decides
//! whether these words lie in the slice, once a call, by the last row; the other rows lie before it. So there are three things to show.
//!
//! * `holds` is exact for all numbers. It is one product, one sum and one comparison, of which each is right or is refused. The edges stand on
//!   both sides of every place where one of them changes.
//! * The chunks in which x86 takes a row are the row: the compiler tries all lengths (`chunk_start`).
//! * A lane's row is the right one. Rows are tried from one to more than two groups, from each first row on. A lane depends only on whether
//!   `first + lane` is below `rows`.
//!
//! Slices are as short as they may be; one byte less is refused.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::thread::current;

#[test]
fn holds_is_exact() {
    let exact = |len: usize, last: usize, stride: usize, items: usize| {
        let end = last as u128 * stride as u128 + items as u128;
        assert_eq!(holds(len, last, stride, items), end <= len as u128, "{len} {last} {stride} {items}");
    };
    let root = 1 << (usize::BITS / 2);
    let around = |x: usize| [x.wrapping_sub(1), x, x.wrapping_add(1)];
    let edges = [0, 7, 31, root, usize::MAX / 31, usize::MAX / 7, usize::MAX / 2, usize::MAX - 31].map(around);
    let numbers: [Vec<usize>; 2] = [(0..=17).collect(), edges.into_iter().flatten().collect()];
    for numbers in numbers {
        for len in &numbers {
            for last in &numbers {
                for stride in &numbers {
                    numbers.iter().for_each(|items| exact(*len, *last, *stride, *items));
                }
            }
        }
    }
}

/// Words that can be read from bytes.
trait Word: Copy + PartialEq + std::fmt::Debug {
    fn read<const BE: bool>(bytes: &[u8]) -> Self;
}
impl Word for u32 {
    fn read<const BE: bool>(bytes: &[u8]) -> u32 {
        let bytes = bytes.try_into().expect("four bytes");
        if BE { u32::from_be_bytes(bytes) } else { u32::from_ne_bytes(bytes) }
    }
}
impl Word for u64 {
    fn read<const BE: bool>(bytes: &[u8]) -> u64 {
        let bytes = bytes.try_into().expect("eight bytes");
        if BE { u64::from_be_bytes(bytes) } else { u64::from_ne_bytes(bytes) }
    }
}

fn refused<R>(work: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Loads and stores of N words a row, of each number of rows.
fn rows_of<W: Word, V: Lanes<W>, const N: usize, const BE: bool>() {
    let row = N * size_of::<W>();
    for rows in 1..=2 * V::LANES + 1 {
        for stride in [row, row + 1, row + 16] {
            let bytes: Vec<u8> = (0..(rows - 1) * stride + row).map(|i| (i * 151 + i / 256) as u8).collect();
            for first in 0..rows {
                let words = V::load_rows::<N, BE>(&bytes, stride, first, rows);
                for lane in 0..V::LANES {
                    let start = (first + lane).min(rows - 1) * stride;
                    let expected = bytes[start..][..row].chunks_exact(size_of::<W>()).map(W::read::<BE>);
                    assert!(words.iter().map(|word| word.get(lane)).eq(expected), "lane {lane} of {first} of {rows}");
                }
                // Bytes that are not stored stay as they are.
                let mut stored = vec![0xa5; bytes.len()];
                let mut expected = stored.clone();
                for at in (first..rows.min(first + V::LANES)).map(|row| row * stride) {
                    expected[at..at + row].copy_from_slice(&bytes[at..at + row]);
                }
                V::store_rows::<N, BE>(&words, &mut stored, stride, first, rows);
                assert_eq!(stored, expected, "rows from {first} of {rows}, {stride} bytes apart");
            }
            // The group that ends with the last row.
            let (first, mut short) = (rows.saturating_sub(V::LANES), bytes[..bytes.len() - 1].to_vec());
            let words = V::load_rows::<N, BE>(&bytes, stride, first, rows);
            assert!(refused(|| V::load_rows::<N, BE>(&short, stride, first, rows)), "{rows} rows and a byte too few");
            assert!(refused(|| V::store_rows::<N, BE>(&words, &mut short, stride, first, rows)), "{rows} rows, stored");
        }
    }
    assert!(refused(|| V::load_rows::<N, BE>(&[0; 4096], row, 1, 1)), "no row is left");
}

/// Eight rows from columns and back.
fn columns_of<V: Doubles>() {
    for stride in 8..=19 {
        let columns: Vec<i32> = (0..(V::LANES - 1) * stride + 8).map(|i| i as i32 * 12_345 - 77).collect();
        let rows = V::load_columns(&columns, stride);
        let mut stored = vec![i32::MIN; columns.len()];
        V::store_columns(&rows, &mut stored, stride);
        for (i, (stored, column)) in stored.iter().zip(&columns).enumerate() {
            assert_eq!(*stored, if i % stride < 8 { *column } else { i32::MIN }, "number {i}, {stride} apart");
        }
        if V::LANES > 1 {
            let mut short = columns[1..].to_vec();
            assert!(refused(|| V::load_columns(&short, stride)), "a number too few");
            assert!(refused(|| V::store_columns(&rows, &mut short, stride)), "a number too few");
        }
    }
}

fn every_vector<T: Simd>(name: &str) {
    let Some(token) = T::detect() else {
        return println!("skipped: loads and stores of {name}: no such CPU");
    };
    token.vectorize(|| {
        rows_of::<u32, T::U32s, 8, true>();
        rows_of::<u32, T::U32s, 5, false>();
        rows_of::<u32, T::Sha256Wide, 16, true>();
        rows_of::<u64, T::U64s, 3, false>();
        rows_of::<u64, T::U64s, 17, false>();
        rows_of::<u64, T::Sha512Wide, 16, true>();
        columns_of::<T::Doubles>();
        columns_of::<T::DoublesWide>();
    });
}

#[test]
fn lanes_are_their_rows() {
    // Panics that this thread provokes print nothing; failures are reported at the end.
    let (here, hook) = (current().id(), take_hook());
    set_hook(Box::new(move |panic| {
        if current().id() != here {
            hook(panic);
        }
    }));
    let done = catch_unwind(|| {
        every_vector::<crate::arch::portable::Portable>("portable");
        #[cfg(target_arch = "x86_64")]
        {
            every_vector::<crate::arch::avx2::Avx2>("AVX2");
            every_vector::<crate::arch::avx512::Avx512>("AVX-512");
        }
        #[cfg(target_arch = "aarch64")]
        every_vector::<crate::arch::neon::Neon>("NEON");
    });
    drop(take_hook());
    if let Err(panic) = done {
        panic!("{}", panic.downcast_ref::<String>().map_or("a panic without a text", String::as_str));
    }
}
