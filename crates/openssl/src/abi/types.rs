//! OpenSSL's structures (`openssl/core.h`).

use crate::numbers::kind;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// `OSSL_DISPATCH`: a function and its number. Number 0 ends a table.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dispatch {
    pub(crate) id: c_int,
    pub(crate) function: *const (),
}

impl Dispatch {
    pub(crate) const END: Dispatch = Dispatch { id: 0, function: ptr::null() };

    pub(crate) const fn new(id: c_int, function: *const ()) -> Dispatch {
        Dispatch { id, function }
    }
}

/// `OSSL_ALGORITHM`: an algorithm's names, properties, functions and description. No names end a table.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Algorithm {
    pub(crate) names: *const c_char,
    pub(crate) properties: *const c_char,
    pub(crate) functions: *const Dispatch,
    pub(crate) description: *const c_char,
}

impl Algorithm {
    pub(crate) const END: Algorithm =
        Algorithm { names: ptr::null(), properties: ptr::null(), functions: ptr::null(), description: ptr::null() };
}

/// `OSSL_ITEM`: a number and a text.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) id: c_uint,
    pub(crate) text: *const c_char,
}

/// `OSSL_PARAM`: a named value that the caller gives or asks for. No key ends a table.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub(crate) key: *const c_char,
    pub(crate) kind: c_uint,
    pub(crate) data: *mut c_void,
    pub(crate) size: usize,
    pub(crate) return_size: usize,
}

/// OSSL_PARAM_UNMODIFIED.
pub(crate) const UNMODIFIED: usize = usize::MAX;

impl Param {
    pub(crate) const END: Param = Param { key: ptr::null(), kind: 0, data: ptr::null_mut(), size: 0, return_size: 0 };

    /// A number without a value, of an `int`'s size: OpenSSL makes one of this size of a text.
    pub(crate) const fn integer(key: &'static CStr) -> Param {
        Param { size: size_of::<c_int>(), ..Param::unset(key, kind::INTEGER) }
    }

    /// A parameter without a value.
    pub(crate) const fn unset(key: &'static CStr, kind: u32) -> Param {
        Param { key: key.as_ptr(), kind, data: ptr::null_mut(), size: 0, return_size: UNMODIFIED }
    }
}

/// Tables of OpenSSL that never change.
#[repr(transparent)]
pub(crate) struct Table<T: 'static, const N: usize>(pub(crate) [T; N]);

// SAFETY: the pointers in these tables lead to constants and functions; nobody writes them.
unsafe impl<T, const N: usize> Sync for Table<T, N> {}

/// Functions by which OpenSSL learns which parameters it may ask for, or give.
macro_rules! parameters {
    ($(fn $name:ident($($unused:tt: $type:ty),*) { $($param:expr,)+ })+) => {$(
        extern "C" fn $name($($unused: $type),*) -> *const $crate::abi::Param {
            const TABLE: &[$crate::abi::Param] = &[$($param,)+ $crate::abi::Param::END];
            TABLE.as_ptr()
        }
    )+};
}
pub(crate) use parameters;
