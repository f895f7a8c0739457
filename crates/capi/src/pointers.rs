//! Arguments from C: pointers, strings, structs that know their size. All `unsafe` blocks of the crate are here.
//!
//! Rust code cannot make an [`In`], an [`Out`] or a [`Handle`] but from C's: their fields are private. Each stands for a promise of the
//! caller in C, which `hypergrove.h` states once: a pointer is NULL, or it points to as much as the function says for as long as the call
//! runs, and nobody writes there meanwhile. Everything that can be checked is checked: NULL, alignment, lengths, overlap.

use crate::failure::{Failure, Status, call};
use hypergrove::rows::RowStatus;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// A pointer to `T` that is read, or to several.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// A pointer to `T` that is written, or to several.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// Where a handle is put.
#[repr(transparent)]
pub(crate) struct OutHandle<T>(*mut *mut T);

/// A handle that is freed.
#[repr(transparent)]
pub(crate) struct Handle<T>(*mut T);

/// A function of C's that gets a result, by the name `hg_done`: the caller's pointer, a status, and the result's bytes if there are any.
pub(crate) type Done = Option<extern "C" fn(User, Status, Given<u8>, usize)>;

/// A pointer of C's that Rust hands back and does not look behind.
#[repr(transparent)]
pub(crate) struct User(#[allow(dead_code)] *mut c_void);

// SAFETY: a number here; the caller in C knows that its function is called by another thread.
unsafe impl Send for User {}

/// A pointer that C gets: to text that is static or lives long enough, or to memory.
#[repr(transparent)]
pub(crate) struct Given<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

/// Types of which all bytes of C's are values.
///
/// # Safety
///
/// Every bit pattern is a value of the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for i64 {}
// SAFETY: integers.
unsafe impl Plain for usize {}
// SAFETY: a pointer; that it is of some use is the caller's promise.
unsafe impl<T> Plain for In<T> {}

/// A struct that begins with its size: later releases append members.
pub(crate) trait Versioned: Plain {
    /// Bytes of the struct in the first release that had it.
    const FIRST: usize;
}

/// A struct of the header.
#[cfg(test)]
pub(crate) trait StructLayout {
    const NAME: &str;
    const SIZE: usize;
    /// Names, offsets and sizes.
    const MEMBERS: &[(&str, usize, usize)];
}

/// Declares structs of `hypergrove.h`: the C name, the bytes that the first release's struct has if members were appended since, then the
/// members.
macro_rules! c_structs {
    ($($(#[$doc:meta])* $name:ident is $c:literal $(since $first:literal)? { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        // SAFETY: its members are plain, which the function below sees to.
        #[allow(unsafe_code)]
        unsafe impl $crate::pointers::Plain for $name {}
        const _: fn() = || {
            fn is_plain<T: $crate::pointers::Plain>() {}
            $(is_plain::<$type>();)*
        };

        impl $crate::pointers::Versioned for $name {
            const FIRST: usize = *[size_of::<$name>(), $($first)?].last().expect("one at least");
        }

        #[cfg(test)]
        impl $crate::pointers::StructLayout for $name {
            const NAME: &str = $c;
            const SIZE: usize = size_of::<$name>();
            const MEMBERS: &[(&str, usize, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*];
        }
    )*};
}
pub(crate) use c_structs;

/// Bytes that an argument covers.
pub(crate) struct Span {
    what: &'static str,
    first: usize,
    bytes: usize,
}

impl Span {
    fn meets(&self, other: &Span) -> bool {
        let is_before = |a: &Span, b: &Span| a.first.saturating_add(a.bytes) <= b.first;
        self.bytes > 0 && other.bytes > 0 && !is_before(self, other) && !is_before(other, self)
    }
}

/// Checks a pointer to so many `T`; how many bytes they have.
fn check<T>(pointer: *const T, count: usize, what: &'static str) -> Result<usize, Failure> {
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    let Some(bytes) = bytes.filter(|bytes| pointer.addr().checked_add(*bytes).is_some()) else {
        return Err(Failure::bad_input(format!("{what}: no memory has room for {count} of them")));
    };
    if count > 0 && pointer.is_null() {
        return Err(Failure::bad_input(format!("{what}: NULL; give a pointer")));
    }
    if count > 0 && !pointer.is_aligned() {
        let align = align_of::<T>();
        return Err(Failure::bad_input(format!("{what}: {pointer:p} is not aligned to {align} bytes")));
    }
    Ok(bytes)
}

impl<T> In<T> {
    #[cfg(test)]
    pub(crate) const NULL: In<T> = In(ptr::null());

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The handle that it points to, whose type the caller's compiler has checked.
    pub(crate) fn get(&self, what: &'static str) -> Result<&T, Failure> {
        check(self.0, 1, what)?;
        // SAFETY: not NULL and aligned. The caller promises a handle that this library made and that is not freed during the call.
        Ok(unsafe { &*self.0 })
    }

    /// The bytes that so many cover.
    pub(crate) fn span(self, count: usize, what: &'static str) -> Span {
        Span { what, first: self.0.addr(), bytes: count.saturating_mul(size_of::<T>()) }
    }
}

impl<T: Plain> In<T> {
    /// So many values.
    pub(crate) fn slice(&self, count: usize, what: &'static str) -> Result<&[T], Failure> {
        check(self.0, count, what)?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: not NULL, aligned, and no longer than memory can be. The caller promises so many values, which do not change
        // during the call; every bit pattern is a value.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<T: Versioned> In<T> {
    /// A copy of a struct that begins with its size; all zeros for NULL. Members that the caller's release did not have are zero. Bytes
    /// of the caller's struct beyond ours must be zero: another value asks for something that this release does not know.
    pub(crate) fn versioned(self, what: &'static str) -> Result<T, Failure> {
        let known = size_of::<T>();
        let mut copy = MaybeUninit::<T>::zeroed();
        if !self.0.is_null() {
            let size = In(self.0.cast::<usize>()).slice(1, what)?[0];
            if !(T::FIRST..=known + 4096).contains(&size) || !size.is_multiple_of(align_of::<T>()) {
                let text = format!("{what}: its size is {size}, here {known}; initialise it with its HG_..._INIT");
                return Err(Failure::bad_input(text));
            }
            let bytes = In(self.0.cast::<u8>());
            let (ours, beyond) = bytes.slice(size, what)?.split_at(size.min(known));
            if beyond.iter().any(|byte| *byte != 0) {
                let text = format!("{what}: it sets members that this release of the library does not have");
                return Err(Failure::unsupported(text));
            }
            // SAFETY: the copy is ours, and has at least as many bytes.
            unsafe { ptr::copy_nonoverlapping(ours.as_ptr(), copy.as_mut_ptr().cast(), ours.len()) };
        }
        // SAFETY: every bit pattern is a value, zeros too.
        Ok(unsafe { copy.assume_init() })
    }

    /// As [`versioned`](In::versioned), for a struct that cannot be left out.
    pub(crate) fn required(self, what: &'static str) -> Result<T, Failure> {
        check(self.0, 1, what)?;
        self.versioned(what)
    }
}

impl In<c_char> {
    /// A string.
    pub(crate) fn text(&self, what: &'static str) -> Result<&str, Failure> {
        check(self.0, 1, what)?;
        // SAFETY: not NULL. The caller promises a zero at the end.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Failure::bad_input(format!("{what}: it is not UTF-8")))
    }
}

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The bytes that so many cover.
    pub(crate) fn span(&self, count: usize, what: &'static str) -> Span {
        In(self.0.cast_const()).span(count, what)
    }

    /// Checks that so many values may be written: they must not overlap the other arguments.
    fn check(&self, count: usize, what: &'static str, others: &[Span]) -> Result<(), Failure> {
        check(self.0.cast_const(), count, what)?;
        let span = self.span(count, what);
        match others.iter().find(|other| span.meets(other)) {
            None => Ok(()),
            Some(other) => Err(Failure::bad_input(format!("{what}: it overlaps {}", other.what))),
        }
    }
}

impl<T: Plain> Out<T> {
    /// Room for so many values, apart from the call's other arguments.
    pub(crate) fn slice(&mut self, count: usize, what: &'static str, others: &[Span]) -> Result<&mut [T], Failure> {
        self.check(count, what, others)?;
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: not NULL, aligned, and no longer than memory can be. The caller promises so much room; it overlaps no other
        // argument, and `self` is borrowed. Values that were never written are bytes like any: nothing reads them before it has
        // written them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }

    /// Writes one value.
    pub(crate) fn put(&mut self, value: T, what: &'static str) -> Result<(), Failure> {
        self.slice(1, what, &[])?[0] = value;
        Ok(())
    }
}

impl Out<RowStatus> {
    /// Room for statuses, all [`RowStatus::NotComputed`] at first: what C has there may be no status.
    pub(crate) fn statuses(&mut self, rows: usize, others: &[Span]) -> Result<&mut [RowStatus], Failure> {
        self.check(rows, "statuses", others)?;
        if rows == 0 {
            return Ok(&mut []);
        }
        const { assert!(RowStatus::NotComputed as u8 == 0) };
        // SAFETY: as in `slice`, and all values are made before there is a reference to them: zero is `NotComputed`.
        unsafe {
            ptr::write_bytes(self.0, 0, rows);
            Ok(std::slice::from_raw_parts_mut(self.0, rows))
        }
    }
}

/// Writes bytes of a length that the caller does not know beforehand, and their number.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Out<u8>, room: usize, length: &mut Out<usize>) -> Result<(), Failure> {
    let place = length.span(1, "length");
    length.put(bytes.len(), "length")?;
    if out.is_null() && room == 0 {
        return Ok(());
    }
    let all = out.slice(room, "the memory for the result", &[place])?;
    match all.get_mut(..bytes.len()) {
        Some(to) => to.copy_from_slice(bytes),
        None => return Err(Failure::too_small(bytes.len(), room)),
    }
    Ok(())
}

impl<T> OutHandle<T> {
    /// [`clear`](OutHandle::clear), if the caller wants a handle.
    pub(crate) fn clear_if_there(&mut self, what: &'static str) -> Result<Option<Place<'_, T>>, Failure> {
        if self.0.is_null() { Ok(None) } else { self.clear(what).map(Some) }
    }

    /// The place, which holds NULL until it is filled.
    pub(crate) fn clear(&mut self, what: &'static str) -> Result<Place<'_, T>, Failure> {
        check(self.0.cast_const(), 1, what)?;
        // SAFETY: not NULL and aligned. The caller promises room for a pointer.
        unsafe { self.0.write(ptr::null_mut()) };
        Ok(Place(self))
    }
}

/// A place for a handle.
pub(crate) struct Place<'a, T>(&'a mut OutHandle<T>);

impl<T> Place<'_, T> {
    /// Hands the value over. The caller frees it.
    pub(crate) fn fill(self, value: T) {
        // SAFETY: `clear` wrote here.
        unsafe { self.0.0.write(Box::into_raw(Box::new(value))) };
    }
}

/// Runs a function of the library that makes a handle.
pub(crate) fn made<T>(
    mut handle: OutHandle<T>,
    what: &'static str,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Status {
    call(|| {
        let place = handle.clear(what)?;
        place.fill(make()?);
        Ok(())
    })
}

impl<T> Handle<T> {
    /// Frees it, if it is not NULL.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: the caller promises a handle that `Place::fill` gave, that is not freed and not in use.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

impl Given<c_char> {
    /// Text that C may read as long as it lives.
    pub(crate) fn text(text: &CStr) -> Given<c_char> {
        Given(text.as_ptr())
    }
}

impl Given<u8> {
    /// Bytes that C may read as long as they live.
    pub(crate) fn bytes(bytes: &[u8]) -> Given<u8> {
        Given(bytes.as_ptr())
    }
}

impl<T> Given<T> {
    pub(crate) const NULL: Given<T> = Given(ptr::null());
}

/// Bytes that C reads and writes, through a pointer that Rust does not use otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Shared(*mut u8);

// SAFETY: a number until C uses it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(bytes: &mut [u8]) -> Shared {
        Shared(bytes.as_mut_ptr())
    }

    pub(crate) fn given(self) -> Out<c_void> {
        Out(self.0.cast())
    }
}

impl Out<c_void> {
    pub(crate) const NULL: Out<c_void> = Out(ptr::null_mut());

    pub(crate) fn bytes(self) -> Out<u8> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    pub(crate) fn bytes(self) -> Out<u8> {
        Out(self.0.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_meet_where_they_share_a_byte() {
        let span = |first, bytes| Span { what: "", first, bytes };
        for (a, b, meet) in [
            (span(10, 5), span(15, 5), false),
            (span(10, 5), span(14, 5), true),
            (span(10, 9), span(12, 1), true),
            (span(10, 0), span(10, 5), false),
            (span(8, usize::MAX), span(9, 1), true),
        ] {
            assert_eq!((a.meets(&b), b.meets(&a)), (meet, meet));
        }
    }

    #[test]
    fn pointers_are_checked_before_they_are_used() {
        let status = |failed: Result<(), Failure>| failed.map_err(|why| why.text().to_string());
        let words = [1u64, 2, 3];
        let odd = In(words.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>());
        let refused = |of: Result<&[u64], Failure>, why: &str| {
            let text = status(of.map(drop)).unwrap_err();
            assert!(text.contains(why), "{text}");
        };
        refused(In(ptr::null()).slice(1, "x"), "x: NULL");
        refused(odd.slice(1, "x"), "is not aligned to 8 bytes");
        refused(In(words.as_ptr()).slice(usize::MAX / 4, "x"), "no memory has room");
        assert_eq!(In(ptr::null::<u64>()).slice(0, "x").ok(), Some(&[][..]));
        assert_eq!(In(words.as_ptr()).slice(3, "x").ok(), Some(&words[..]));

        let mut room = [0u64; 3];
        let mut out = Out(room.as_mut_ptr());
        let inside = In(room.as_ptr().wrapping_add(2)).span(1, "y");
        assert!(status(out.slice(3, "x", &[inside]).map(drop)).unwrap_err().contains("x: it overlaps y"));
        let adjacent = In(words.as_ptr()).span(3, "y");
        out.slice(3, "x", &[adjacent]).unwrap_or_else(|_| panic!("apart")).fill(7);
        assert_eq!(room, [7; 3]);
    }

    #[test]
    fn structs_say_how_large_they_are() {
        c_structs! {
            Sized is "sized" since 16 {
                size: usize,
                value: u64,
                later: u64,
            }
        }
        let read = |words: &[u64]| {
            let read = In(words.as_ptr().cast::<Sized>()).versioned("options");
            read.map(|it| (it.value, it.later)).map_err(|why| why.text().to_string())
        };
        assert_eq!(In::<Sized>::NULL.versioned("options").map(|it| (it.value, it.later)).ok(), Some((0, 0)));
        assert_eq!(read(&[24, 5, 6]), Ok((5, 6)));
        // An older program: what follows its struct is not the struct's.
        assert_eq!(read(&[16, 5, 6]), Ok((5, 0)));
        // A newer program that uses nothing new, and one that does.
        assert_eq!(read(&[32, 5, 6, 0]), Ok((5, 6)));
        assert!(read(&[32, 5, 6, 1]).unwrap_err().contains("does not have"));
        for size in [0, 8, 15, 17, 23, 1 << 40] {
            assert!(read(&[size, 5, 6]).unwrap_err().contains("HG_..._INIT"));
        }
    }
}
