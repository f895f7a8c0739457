//! Parameters: what a caller gives, and what it asks for.

use super::types::{Param, UNMODIFIED};
use crate::failure::{Failure, Reason};
use crate::numbers::kind;
use std::ffi::{CStr, c_void};
use std::{ptr, slice};

/// A value for the caller.
pub(crate) enum Value<'a> {
    Number(u64),
    Octets(&'a [u8]),
    Text(&'a CStr),
}

/// Parameters that the caller gives.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a>(&'a [Param]);

impl<'a> Given<'a> {
    /// # Safety
    /// `params` is null or a table that an entry without a key ends; it and what it points to stay as they are during `'a`.
    pub(super) unsafe fn new(params: *const Param) -> Given<'a> {
        if params.is_null() {
            return Given(&[]);
        }
        let mut length = 0;
        // SAFETY: no entry before this one was the last.
        while unsafe { !(*params.add(length)).key.is_null() } {
            length += 1;
        }
        // SAFETY: as many entries were read.
        Given(unsafe { slice::from_raw_parts(params, length) })
    }

    fn find(self, key: &CStr) -> Option<&'a Param> {
        // SAFETY: a key is a string of C.
        self.0.iter().find(|param| unsafe { CStr::from_ptr(param.key) } == key)
    }

    /// The bytes of a parameter of octets.
    pub(crate) fn octets(self, key: &CStr) -> Result<Option<&'a [u8]>, Failure> {
        let Some(param) = self.find(key) else { return Ok(None) };
        match (param.kind, param.data.is_null(), param.size) {
            (kind::OCTETS, _, 0) => Ok(Some(&[])),
            // SAFETY: the parameter says that it has so many bytes.
            (kind::OCTETS, false, size) => Ok(Some(unsafe { slice::from_raw_parts(param.data.cast(), size) })),
            _ => Err(wrong(key, "octets")),
        }
    }

    /// A number from 0 to 2^32 - 1.
    pub(crate) fn number(self, key: &CStr) -> Result<Option<u32>, Failure> {
        let Some(param) = self.find(key) else { return Ok(None) };
        let signed = match param.kind {
            kind::INTEGER => true,
            kind::UNSIGNED => false,
            _ => return Err(wrong(key, "a number")),
        };
        if param.data.is_null() {
            return Err(wrong(key, "a number"));
        }
        // SAFETY: the parameter has as many bytes as its size says, with any alignment.
        let number = unsafe {
            match (param.size, signed) {
                (4, true) => i64::from(param.data.cast::<i32>().read_unaligned()),
                (4, false) => i64::from(param.data.cast::<u32>().read_unaligned()),
                (8, true) => param.data.cast::<i64>().read_unaligned(),
                (8, false) => i64::try_from(param.data.cast::<u64>().read_unaligned()).unwrap_or(i64::MAX),
                _ => return Err(wrong(key, "a number of 4 or 8 bytes")),
            }
        };
        u32::try_from(number).map(Some).map_err(|_| wrong(key, "a number from 0 to 4294967295"))
    }

    /// A text.
    pub(crate) fn text(self, key: &CStr) -> Result<Option<&'a str>, Failure> {
        let Some(param) = self.find(key) else { return Ok(None) };
        if param.kind != kind::UTF8 || param.data.is_null() {
            return Err(wrong(key, "a text"));
        }
        // SAFETY: the parameter says that it has so many bytes. They end before a NUL, if there is one.
        let bytes: &[u8] = unsafe { slice::from_raw_parts(param.data.cast(), param.size) };
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(bytes).map(Some).map_err(|_| wrong(key, "a text in UTF-8"))
    }
}

fn wrong(key: &CStr, expected: &str) -> Failure {
    Failure::new(Reason::Parameter, format!("the parameter {} is not {expected}", key.to_string_lossy()))
}

/// How a value gets to the caller.
pub(crate) type Put<'p> = &'p mut dyn FnMut(Value<'_>) -> Result<(), Failure>;

/// Answers what the caller asks for. `answer` gets each key and puts its value; parameters without one stay as they are.
///
/// # Safety
/// `params` is null or a table that an entry without a key ends, whose entries say what memory there is for the answers.
pub(super) unsafe fn answer(
    params: *mut Param,
    answer: impl Fn(&CStr, Put<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut at = params;
    // SAFETY: the table goes on until an entry without a key.
    while let Some(param) = unsafe { at.as_mut() }.filter(|param| !param.key.is_null()) {
        // SAFETY: a key is a string of C.
        let key = unsafe { CStr::from_ptr(param.key) };
        // SAFETY: the entry says what memory it has.
        answer(key, &mut |value| unsafe { put(param, key, &value) })?;
        // SAFETY: this entry was not the last.
        at = unsafe { at.add(1) };
    }
    Ok(())
}

/// # Safety
/// The parameter's memory has as many bytes as it says.
unsafe fn put(param: &mut Param, key: &CStr, value: &Value<'_>) -> Result<(), Failure> {
    let small = |needed: usize| {
        let key = key.to_string_lossy();
        Failure::new(Reason::Buffer, format!("the memory for {key} is too small; give it {needed} bytes"))
    };
    let (bytes, nul): (&[u8], usize) = match (value, param.kind) {
        (Value::Number(number), kind::INTEGER | kind::UNSIGNED) => {
            param.return_size = if param.data.is_null() { size_of::<u64>() } else { param.size };
            // SAFETY: see above; any alignment.
            return unsafe {
                match param.size {
                    _ if param.data.is_null() => Ok(()),
                    4 => {
                        let number = u32::try_from(*number).map_err(|_| small(8))?;
                        param.data.cast::<u32>().write_unaligned(number);
                        Ok(())
                    }
                    8 => {
                        param.data.cast::<u64>().write_unaligned(*number);
                        Ok(())
                    }
                    _ => Err(small(8)),
                }
            };
        }
        (Value::Text(text), kind::UTF8_POINTER) => {
            param.return_size = text.count_bytes();
            if !param.data.is_null() {
                // SAFETY: such a parameter's memory is a pointer, and the texts live as long as the provider.
                unsafe { param.data.cast::<*const i8>().write_unaligned(text.as_ptr().cast()) };
            }
            return Ok(());
        }
        (Value::Octets(octets), kind::OCTETS) => (octets, 0),
        (Value::Text(text), kind::UTF8) => (text.to_bytes(), 1),
        (Value::Number(_), _) => return Err(wrong(key, "a number")),
        (Value::Octets(_), _) => return Err(wrong(key, "octets")),
        (Value::Text(_), _) => return Err(wrong(key, "a text")),
    };
    param.return_size = bytes.len();
    if param.data.is_null() {
        return Ok(());
    }
    if param.size < bytes.len() {
        return Err(small(bytes.len() + nul));
    }
    // SAFETY: it has room for these bytes, and for a NUL if it is larger.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), param.data.cast(), bytes.len());
        if nul > 0 && param.size > bytes.len() {
            param.data.cast::<u8>().add(bytes.len()).write(0);
        }
    }
    Ok(())
}

/// The table of parameters with these values, for a callback. The values outlive the call.
pub(super) fn table(values: &[(&CStr, Value<'_>)]) -> Vec<Param> {
    let entry = |(key, value): &(&CStr, Value<'_>)| {
        let (kind, data, size): (u32, *const c_void, usize) = match value {
            Value::Number(number) => (kind::UNSIGNED, ptr::from_ref(number).cast(), size_of::<u64>()),
            Value::Octets(bytes) => (kind::OCTETS, bytes.as_ptr().cast(), bytes.len()),
            Value::Text(text) => (kind::UTF8, text.as_ptr().cast(), text.count_bytes()),
        };
        Param { key: key.as_ptr(), kind, data: data.cast_mut(), size, return_size: UNMODIFIED }
    };
    values.iter().map(entry).chain([Param::END]).collect()
}
