//! The functions that OpenSSL's core offers its providers.

use super::params::table;
use super::types::{Dispatch, Param, UNMODIFIED};
use crate::failure::{Failure, Reason};
use crate::numbers::{function, kind};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::{mem, ptr};
use zeroize::Zeroizing;

/// OSSL_CORE_HANDLE: what the core knows this provider by.
pub(super) type Handle = *const c_void;
/// OSSL_CORE_BIO.
pub(super) type CoreBio = *mut c_void;
/// OSSL_PASSPHRASE_CALLBACK.
pub(super) type PassphraseCallback =
    unsafe extern "C" fn(*mut c_char, usize, *mut usize, *const Param, *mut c_void) -> c_int;

type GetParams = unsafe extern "C" fn(Handle, *mut Param) -> c_int;
type NewError = unsafe extern "C" fn(Handle);
type SetErrorDebug = unsafe extern "C" fn(Handle, *const c_char, c_int, *const c_char);
type VsetError = unsafe extern "C" fn(Handle, u32, *const c_char, *mut c_void);
type ObjAddSigid = unsafe extern "C" fn(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
type ObjCreate = unsafe extern "C" fn(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
type BioReadEx = unsafe extern "C" fn(CoreBio, *mut c_void, usize, *mut usize) -> c_int;
type BioWriteEx = unsafe extern "C" fn(CoreBio, *const c_void, usize, *mut usize) -> c_int;

/// The core, as the provider's context has it.
#[derive(Clone, Copy)]
pub(crate) struct Core {
    handle: Handle,
    get_params: GetParams,
    new_error: NewError,
    set_error_debug: SetErrorDebug,
    vset_error: VsetError,
    add_sigid: ObjAddSigid,
    create: ObjCreate,
    read: BioReadEx,
    write: BioWriteEx,
}

// SAFETY: the core's functions may be called by any thread, and the handle is only handed back to them.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// A number that the core asks for functions by: see [`Core::new`].
macro_rules! found {
    ($functions:expr, $id:expr, $kind:ty) => {{
        let function = $functions($id)?;
        // SAFETY: the function with this number has this type (core_dispatch.h).
        unsafe { mem::transmute::<*const (), $kind>(function) }
    }};
}

impl Core {
    /// # Safety
    /// `functions` is the table that the core gives to a provider with this handle. `None`: a function is missing, as in no OpenSSL since 3.0.
    pub(super) unsafe fn new(handle: Handle, functions: *const Dispatch) -> Option<Core> {
        let find = |id: c_int| {
            let mut at = functions;
            loop {
                // SAFETY: no entry before this one was the last.
                let entry = unsafe { *at };
                match entry.id {
                    0 => return None,
                    _ if entry.id == id => return Some(entry.function).filter(|function| !function.is_null()),
                    // SAFETY: this entry was not the last.
                    _ => at = unsafe { at.add(1) },
                }
            }
        };
        Some(Core {
            handle,
            get_params: found!(find, function::core::GET_PARAMS, GetParams),
            new_error: found!(find, function::core::NEW_ERROR, NewError),
            set_error_debug: found!(find, function::core::SET_ERROR_DEBUG, SetErrorDebug),
            vset_error: found!(find, function::core::VSET_ERROR, VsetError),
            add_sigid: found!(find, function::core::OBJ_ADD_SIGID, ObjAddSigid),
            create: found!(find, function::core::OBJ_CREATE, ObjCreate),
            read: found!(find, function::bio::READ_EX, BioReadEx),
            write: found!(find, function::bio::WRITE_EX, BioWriteEx),
        })
    }

    /// The value of a name in the provider's section of openssl.cnf.
    pub(crate) fn configured(&self, name: &CStr) -> Option<String> {
        let mut text: *const c_char = ptr::null();
        let (data, size) = (ptr::from_mut(&mut text).cast(), size_of::<*const c_char>());
        let param = Param { key: name.as_ptr(), kind: kind::UTF8_POINTER, data, size, return_size: UNMODIFIED };
        let mut params = [param, Param::END];
        // SAFETY: the table ends as the core expects, and has room for a pointer.
        let ok = unsafe { (self.get_params)(self.handle, params.as_mut_ptr()) };
        if ok != 1 || text.is_null() {
            return None;
        }
        // SAFETY: the core answers with a string of C that lives as long as the provider.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// Puts an error into OpenSSL's queue.
    pub(crate) fn raise(&self, failure: &Failure) {
        // The sentence is no format: with no conversion in it, nobody reads the arguments.
        let text = failure.what.replace('%', "%%").replace('\0', "\\0");
        let text = CString::new(text).unwrap_or_default();
        // A `va_list` has at most this size, and functions take its address (the System V ABI of x86-64, AAPCS64).
        let mut none = [0u64; 4];
        // SAFETY: all strings end with a NUL and outlive the calls, in which the core copies them.
        unsafe {
            (self.new_error)(self.handle);
            (self.set_error_debug)(self.handle, c"hypergrove".as_ptr(), 0, c"".as_ptr());
            (self.vset_error)(self.handle, failure.reason as u32, text.as_ptr(), none.as_mut_ptr().cast());
        }
    }

    /// Has the core find a name that every OpenSSL knows.
    pub(crate) fn find_a_name(&self) {
        // SAFETY: all are strings of C. The core adds nothing, since it knows the name.
        unsafe { (self.create)(self.handle, c"2.5.4.3".as_ptr(), c"CN".as_ptr(), c"commonName".as_ptr()) };
    }

    /// Makes an object identifier known, with its short and long name, and says that its signatures are made by its own keys without a digest.
    pub(crate) fn name(&self, oid: &CStr, short: &CStr, long: &CStr) -> bool {
        // SAFETY: all are strings of C, which the core copies.
        unsafe {
            (self.create)(self.handle, oid.as_ptr(), short.as_ptr(), long.as_ptr()) == 1
                && (self.add_sigid)(self.handle, oid.as_ptr(), c"".as_ptr(), oid.as_ptr()) == 1
        }
    }

    /// # Safety
    /// The BIO is open as long as the result is used.
    pub(super) unsafe fn bio(&self, bio: CoreBio) -> Bio {
        Bio { bio, read: self.read, write: self.write }
    }
}

/// A BIO of the core.
pub(crate) struct Bio {
    bio: CoreBio,
    read: BioReadEx,
    write: BioWriteEx,
}

impl Bio {
    /// Reads as many bytes as there is room for. Fewer mean that the input has ended.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> usize {
        let mut done = 0;
        while done < room.len() {
            let (rest, mut got) = (&mut room[done..], 0);
            // SAFETY: the BIO is open, and the rest of the room has as many bytes as it says.
            let ok = unsafe { (self.read)(self.bio, rest.as_mut_ptr().cast(), rest.len(), &mut got) };
            if ok != 1 || got == 0 {
                break;
            }
            done += got.min(rest.len());
        }
        done
    }

    /// Writes all these bytes.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let mut written = 0;
            // SAFETY: the BIO is open, and so many bytes are there.
            let ok = unsafe { (self.write)(self.bio, bytes.as_ptr().cast(), bytes.len(), &mut written) };
            if ok != 1 || written == 0 {
                return Err(Failure::new(Reason::Bio, "OpenSSL did not write all bytes of the key"));
            }
            bytes = &bytes[written.min(bytes.len())..];
        }
        Ok(())
    }
}

/// Whom to ask for a passphrase.
pub(crate) struct Passphrase {
    pub(super) callback: Option<PassphraseCallback>,
    pub(super) argument: *mut c_void,
}

impl Passphrase {
    const LONGEST: usize = 1024;

    /// Asks for the passphrase of a key that is about to be written. A program may ask twice.
    pub(crate) fn ask(&self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let none = || Failure::new(Reason::Encryption, "no passphrase was given; the key is not written");
        let callback = self.callback.ok_or_else(none)?;
        let (mut room, mut length) = (Zeroizing::new(vec![0u8; Passphrase::LONGEST]), 0);
        let info = table(&[(c"info", super::Value::Text(c"PKCS#8 private key"))]);
        // SAFETY: the room has as many bytes as it says, and the table ends as expected.
        let ok = unsafe { callback(room.as_mut_ptr().cast(), room.len(), &mut length, info.as_ptr(), self.argument) };
        if ok != 1 {
            return Err(none());
        }
        room.truncate(length);
        Ok(room)
    }
}
