//! Which memory holds secrets.
//!
//! Under Valgrind a secret is memory that counts as undefined: Valgrind follows it through every copy and computation, and
//! reports each branch and each address that depends on it. The library calls [`classify`] where a secret comes into
//! being, and [`declassify`] where something computed from secrets becomes public, with the reason beside it: these calls
//! are the list of what the library may branch on. `cargo xtask ci secrets` runs the library this way.
//!
//! Without the feature `valgrind`, and on other systems than Linux on x86-64, all of this is nothing. With the feature, but
//! without Valgrind, a call is a few instructions that change nothing.
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
