//! Bytes of the host that a device reads and writes. Here is the crate's only `unsafe`, except for its test double of a GPU: programs use the
//! host memory of the drivers and of the double through this module alone.

use std::ops::Range;

/// The bytes of a [`Gpu::HostMemory`](crate::Gpu::HostMemory). Whoever allocated them frees them.
pub struct MappedBytes {
    start: *mut u8,
    count: usize,
}
// SAFETY: the bytes belong to this value, and may be used in any thread, as `zeroed` demands.
unsafe impl Send for MappedBytes {}
// SAFETY: as above; through `&`, bytes are read, and only bytes are written that nothing else uses, as `zeroed` demands.
unsafe impl Sync for MappedBytes {}

impl MappedBytes {
    /// Takes bytes that were allocated just now, and writes zeros to them.
    ///
    /// # Safety
    ///
    /// From `start` on there are `count` bytes that can be read and written in any thread for as long as this value is used. Nothing uses them but
    /// this value and the device. Whoever has the value uses it as [`Gpu`](crate::Gpu) demands of its `HostMemory`, `host_bytes`, `host_view` and
    /// `host_write`. So nobody gets bytes while a step copies to them, or writes bytes that another thread uses.
    pub unsafe fn zeroed(start: *mut u8, count: usize) -> MappedBytes {
        // SAFETY: the bytes are there, and nothing else uses them.
        unsafe { start.write_bytes(0, count) };
        MappedBytes { start, count }
    }

    /// Where the bytes begin.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The start of a range, which must lie inside.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.count, "{range:?} of {} bytes", self.count);
        // SAFETY: the offset was checked just now.
        unsafe { self.start.add(range.start) }
    }

    /// Bytes of a range, to change. Panics if the range exceeds them.
    pub fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: the bytes are inside, were zeroed at the beginning, and live as long as `self`, which is borrowed.
        // While a step that copies them is under way nobody asks for them, as `zeroed` demands.
        unsafe { std::slice::from_raw_parts_mut(self.at(&range), range.len()) }
    }

    /// Bytes of a range, to read. Panics if the range exceeds them.
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: as in `slice_mut`; neither the device nor `write` writes bytes that are borrowed.
        unsafe { std::slice::from_raw_parts(self.at(&range), range.len()) }
    }

    /// Copies bytes to an offset. Panics if they exceed the memory.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(&(at..at.saturating_add(bytes.len())));
        // SAFETY: the bytes are inside and live; neither the device nor another thread uses them, as `zeroed` demands, so
        // that no reference exists that could overlap with them.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Writes zeros to all bytes, even if a hung device uses them at the same time.
    pub fn overwrite(&mut self) {
        for at in 0..self.count {
            // SAFETY: the byte is inside and lives. No reference to it exists, since `self` is borrowed alone. The device is no
            // thread of this program; a volatile store is right for memory that others use.
            unsafe { self.start.add(at).write_volatile(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn bytes_are_used_inside_alone() {
        let mut words = vec![u64::MAX; 4];
        // SAFETY: the vector's first 24 bytes, which nothing else uses meanwhile.
        let mut bytes = unsafe { MappedBytes::zeroed(words.as_mut_ptr().cast(), 24) };
        bytes.write(20, &[1, 2, 3, 4]);
        bytes.slice_mut(0..2).copy_from_slice(&[5, 6]);
        assert_eq!((bytes.slice(0..3), bytes.slice(18..24)), (&[5, 6, 0][..], &[0, 0, 1, 2, 3, 4][..]));
        assert_eq!((bytes.slice(24..24).len(), bytes.count()), (0, 24));
        #[expect(clippy::reversed_empty_ranges)]
        for range in [0..25, 25..25, 3..2, 1..usize::MAX] {
            let panics = |used: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(used)).is_err();
            assert!(panics(&mut || drop(bytes.slice(range.clone()).to_vec())), "{range:?}");
            assert!(panics(&mut || bytes.slice_mut(range.clone()).fill(0)), "{range:?}");
        }
        for at in [21, 24, usize::MAX] {
            assert!(catch_unwind(AssertUnwindSafe(|| bytes.write(at, &[0; 4]))).is_err(), "{at}");
        }
        bytes.overwrite();
        assert_eq!(bytes.slice(0..24), [0; 24]);
        assert_eq!(words, [0, 0, 0, u64::MAX], "what lies behind");
    }
}
