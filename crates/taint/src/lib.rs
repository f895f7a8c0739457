#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(not(feature = "valgrind"), forbid(unsafe_code))]

#[cfg(all(feature = "valgrind", target_arch = "x86_64", target_os = "linux", not(miri)))]
mod valgrind;
/// There is no Valgrind to ask.
#[cfg(not(all(feature = "valgrind", target_arch = "x86_64", target_os = "linux", not(miri))))]
mod valgrind {
    #[inline(always)]
    pub(crate) fn make_undefined<T: ?Sized>(_: &mut T) {}
    #[inline(always)]
    pub(crate) fn make_defined<T: ?Sized>(_: &T) {}
    pub(crate) fn is_defined(_: &[u8]) -> bool {
        true
    }
    pub(crate) fn reports() -> Option<u64> {
        None
    }
}

/// Makes the value a secret.
#[inline(always)]
pub fn classify<T: ?Sized>(value: &mut T) {
    valgrind::make_undefined(value);
}

/// Makes the value public, in the memory where it lies. For a value of its own there is [`declassified`].
#[inline(always)]
pub fn declassify<T: ?Sized>(value: &T) {
    valgrind::make_defined(value);
}

/// The value, public.
#[inline(always)]
pub fn declassified<T: Copy>(value: T) -> T {
    valgrind::make_defined(&value);
    value
}

/// Whether any bit of these bytes is secret.
pub fn is_secret(bytes: &[u8]) -> bool {
    !valgrind::is_defined(bytes)
}

/// How many branches and addresses that depend on secrets Valgrind has reported so far; none if no Valgrind runs us.
pub fn reports() -> Option<u64> {
    valgrind::reports()
}
