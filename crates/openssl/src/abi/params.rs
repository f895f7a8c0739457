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
    /// Octets that a callback may write to: an address, and their number.
    Writable(*mut c_void, usize),
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

    /// A number, of any width up to 16 bytes.
    pub(crate) fn number(self, key: &CStr) -> Result<Option<i64>, Failure> {
        let Some(param) = self.find(key) else { return Ok(None) };
        let is_signed = match param.kind {
            kind::INTEGER => true,
            kind::UNSIGNED => false,
            _ => return Err(wrong(key, "a number")),
        };
        if param.data.is_null() || !(1..=16).contains(&param.size) {
            return Err(wrong(key, "a number of 1 to 16 bytes"));
        }
        // SAFETY: the parameter has as many bytes as its size says.
        let bytes: &[u8] = unsafe { slice::from_raw_parts(param.data.cast(), param.size) };
        let is_negative = is_signed && bytes[significance(param.size - 1, param.size)] >= 0x80;
        let mut number = [if is_negative { 0xff } else { 0 }; 17];
        for (i, byte) in number[..param.size].iter_mut().enumerate() {
            *byte = bytes[significance(i, param.size)];
        }
        let [low @ .., _] = number;
        let number = i128::from_le_bytes(low);
        // An unsigned number of 16 bytes may seem negative. It is too large, too.
        let is_right = number.is_negative() == is_negative;
        i64::try_from(number)
            .ok()
            .filter(|_| is_right)
            .map(Some)
            .ok_or_else(|| wrong(key, "a number that fits into 64 bits"))
    }

    /// A text.
    pub(crate) fn text(self, key: &CStr) -> Result<Option<&'a str>, Failure> {
        let Some(param) = self.find(key) else { return Ok(None) };
        let data = match param.kind {
            // Nothing is the empty text.
            _ if param.data.is_null() => return Ok(Some("")),
            kind::UTF8 => param.data.cast(),
            // SAFETY: the data of such a parameter is a pointer to the text.
            kind::UTF8_POINTER => unsafe { param.data.cast::<*const u8>().read_unaligned() },
            _ => return Err(wrong(key, "a text")),
        };
        if data.is_null() {
            return Ok(Some(""));
        }
        // SAFETY: the parameter says that the text has so many bytes. It ends before a NUL, if there is one.
        let bytes: &[u8] = unsafe { slice::from_raw_parts(data, param.size) };
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(bytes).map(Some).map_err(|_| wrong(key, "a text in UTF-8"))
    }
}

/// Where the byte of a number with this significance is, of as many bytes as the number has.
fn significance(i: usize, size: usize) -> usize {
    if cfg!(target_endian = "big") { size - 1 - i } else { i }
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
            param.return_size = size_of::<u64>();
            if param.data.is_null() {
                return Ok(());
            }
            let bytes = number.to_le_bytes();
            // The highest bit of a signed number is its sign.
            let needed = bytes.len() - number.leading_zeros() as usize / 8;
            let is_too_small = param.size < needed.max(1)
                || param.kind == kind::INTEGER && param.size == needed && number.leading_zeros() % 8 == 0;
            if is_too_small {
                return Err(small(bytes.len()));
            }
            for i in 0..param.size {
                let byte = bytes.get(i).copied().unwrap_or(0);
                // SAFETY: the parameter has so many bytes.
                unsafe { param.data.cast::<u8>().add(significance(i, param.size)).write(byte) };
            }
            param.return_size = param.size;
            return Ok(());
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
        (Value::Octets(_) | Value::Writable(..), _) => return Err(wrong(key, "octets")),
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
            Value::Writable(address, size) => (kind::OCTETS, address.cast_const(), *size),
        };
        Param { key: key.as_ptr(), kind, data: data.cast_mut(), size, return_size: UNMODIFIED }
    };
    values.iter().map(entry).chain([Param::END]).collect()
}
